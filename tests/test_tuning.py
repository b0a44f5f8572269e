"""Check that allocators share few arenas unless the user sets a number, and that tricks keep results."""

import dataclasses
import os
import pickle
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError, field
from typing import Any

import polars as pl
import pytest

from trace_analyzer.tuning import ARENAS, dataclass, limit_arenas, within_query

VARIABLE = "_RJEM_MALLOC_CONF"


@pytest.fixture
def before_polars(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Polars look as if it were not imported yet, which is when it reads the variable."""
    monkeypatch.delitem(sys.modules, "polars", raising=False)
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.delenv(VARIABLE)


@pytest.mark.usefixtures("before_polars")
def test_polars_is_given_few_arenas_that_return_freed_pages() -> None:
    limit_arenas()
    assert os.environ[VARIABLE] == f"narenas:{ARENAS},muzzy_decay_ms:0"


@pytest.mark.usefixtures("before_polars")
def test_what_the_user_sets_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "narenas:7")
    limit_arenas()
    assert os.environ[VARIABLE] == "narenas:7"


@pytest.mark.usefixtures("before_polars")
def test_a_polars_that_is_imported_has_read_it_already(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", sys)
    limit_arenas()
    assert VARIABLE not in os.environ


def test_work_within_a_query_is_done_once_and_gives_its_result() -> None:
    frame = pl.DataFrame({"key": ["a", "b", "a"], "value": [1, 2, 3]})
    calls: list[pl.DataFrame] = []

    def work() -> pl.DataFrame:
        calls.append(frame.group_by("key", maintain_order=True).agg(pl.col("value").sum()))
        return within_query(lambda: calls[-1].filter(pl.col("value") > 2))

    assert within_query(work).rows() == [("a", 4)]
    assert len(calls) == 1


@pytest.mark.parametrize(
    "error", [ValueError("no such step"), KeyboardInterrupt(), pl.exceptions.ComputeError("no"), SystemExit(2)]
)
def test_what_is_raised_within_a_query_is_raised_outside(error: BaseException) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        within_query(fail)
    assert raised.value is error


def test_threads_may_all_work_within_queries_and_wait_for_each_other() -> None:
    barrier = threading.Barrier(4, timeout=30)

    def work() -> int:
        barrier.wait()
        frame = pl.DataFrame({"value": range(100)}).filter(pl.col("value") > 9)
        total: int = frame.lazy().select(pl.col("value").sum()).collect(engine="streaming").item()
        barrier.wait()
        return total

    with ThreadPoolExecutor(3) as pool:
        others = [pool.submit(within_query, work) for _ in range(3)]
        assert within_query(work) == 4905
        assert [other.result() for other in others] == [4905] * 3


def classes(decorator: Callable[..., Any]) -> tuple[type, type, type]:
    """Return a class of each kind: plain, inheriting, and with methods of its own."""

    @decorator(frozen=True)
    class Base:
        """Have one required field, one that is not compared, and one that is not shown."""

        a: int
        b: list[int] = field(default_factory=list, compare=False)
        c: str = field(default="x", repr=False)

    @decorator(frozen=True, kw_only=True)
    class Derived(Base):
        """Add a field, and one that is made of the others."""

        d: float = 0.5
        e: int = field(init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "e", self.a + 1)

    @decorator(frozen=True, repr=False)
    class Own:
        """Define methods that the decorator leaves alone."""

        a: object = None

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

    return Base, Derived, Own


@pytest.mark.parametrize("kind", range(3))
def test_a_dataclass_is_as_the_standard_library_makes_it(kind: int) -> None:
    ours, theirs = classes(dataclass)[kind], classes(dataclasses.dataclass)[kind]
    one, other = ours(a=1), theirs(a=1)
    assert dataclasses.asdict(one) == dataclasses.asdict(other)
    assert hash(one) == hash(other)
    assert (one == ours(a=1), one == ours(a=2), one == other, one == 1) == (
        other == theirs(a=1), other == theirs(a=2), other == one, other == 1,
    )  # fmt: skip
    assert dataclasses.replace(one, a=3) == ours(a=3)
    assert ours.__match_args__ == theirs.__match_args__
    if kind != 2:
        assert repr(one) == repr(other)
        assert one == ours(a=1, b=[1])
    for instance in (one, other):
        for name in ("a", "new"):
            with pytest.raises(FrozenInstanceError, match=f"cannot assign to field '{name}'"):
                setattr(instance, name, 2)
            with pytest.raises(FrozenInstanceError, match=f"cannot delete field '{name}'"):
                delattr(instance, name)


def test_a_dataclass_can_be_inherited_from_as_one_of_the_standard_library() -> None:
    base = classes(dataclass)[0]

    @dataclasses.dataclass(frozen=True)
    class Theirs(base):  # type: ignore[valid-type,misc]
        d: int = 4

    with pytest.raises(FrozenInstanceError):
        Theirs(1).a = 2
    assert repr(Theirs(1)).endswith("Theirs(a=1, b=[], d=4)")
    assert Theirs(1) == Theirs(1)
    with pytest.raises(TypeError, match="non-frozen"):
        dataclasses.dataclass(type("Unfrozen", (base,), {}))


@dataclass(frozen=True)
class _Pickled:
    a: float
    b: "_Pickled | None" = None


def test_a_dataclass_is_pickled_and_compares_with_nan() -> None:
    nan = float("nan")
    assert pickle.loads(pickle.dumps(_Pickled(1, _Pickled(2)))) == _Pickled(1, _Pickled(2))
    assert _Pickled(nan) == _Pickled(nan)
    assert len({_Pickled(1), _Pickled(1), _Pickled(2)}) == 2
