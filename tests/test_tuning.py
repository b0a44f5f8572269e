"""Check that allocators share few arenas unless the user sets a number, and that tricks keep results."""

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import polars as pl
import pytest

from trace_analyzer.tuning import ARENAS, limit_arenas, remembered, within_query

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


def test_a_row_is_made_once_in_whatever_company_and_one_that_is_left_out_stays_out() -> None:
    asked: list[object] = []

    @remembered
    def halves(frame: pl.DataFrame) -> pl.DataFrame:
        asked.append(frame.get_column("value").to_list())
        return frame.filter(pl.col("value") % 2 == 0).with_columns(half=pl.col("value") // 2)

    for values, halved in (([], []), ([2, 3], [(2, 1)]), ([4, 3, 2], [(4, 2), (2, 1)]), ([3, 2], [(2, 1)])):
        made = halves(pl.DataFrame({"value": values}, schema={"value": pl.Int64}))
        assert (made.rows(), made.columns) == (halved, ["value", "half"])
    assert asked == [[], [2, 3], [4]]
