"""Test layers within a pass, from the sequence of its launches only."""

import polars as pl
import pytest

from trace_analyzer.analyses.inner_layers import is_pass_around, layers_of

LAYER = ("norm", "gemm", "attention", "gemm", "add")
T5_LAYER = (
    "pow", "mean", "mul", "gemm", "copy", "gemm", "copy", "gemm", "copy", "lookup", "gemm", "add", "softmax", "gemm", "copy", "gemm", "add",
    "pow", "mean", "mul", "gemm", "gelu", "gemm", "mul", "gemm", "add",
)  # fmt: skip


def outside(works: tuple[str, ...]) -> list[str] | None:
    launches = pl.DataFrame({"work": pl.Series(works, dtype=pl.String)})
    actual = layers_of(launches)
    return None if actual is None else launches.filter(actual.outside).get_column("work").to_list()


def test_layers_are_the_equal_parts_of_a_pass() -> None:
    """Check that layers are the equal parts of a pass.

    From one beginning of a layer to the next: the last one has no end, so it is left out as the head is.
    """
    assert outside(("lookup", *LAYER * 6, "head", "argmax")) == ["lookup", *LAYER, "head", "argmax"]


@pytest.mark.parametrize(
    "works",
    [(), LAYER, LAYER * 3, ("lookup", *T5_LAYER), ("a", "b") * 20, ("lookup", *LAYER * 4, *(f"own {n}" for n in range(40)))],
    ids=["nothing", "one layer", "too few", "a layer of many products", "too short", "a minor part"],
)  # fmt: skip
def test_what_holds_no_layers(works: tuple[str, ...]) -> None:
    assert outside(works) is None


OTHER = ("norm", "gemm", "positions", "softmax", "gemm", "add")


@pytest.mark.parametrize(
    ("works", "is_pass"),
    [
        (("lookup", *LAYER * 4, "norm", "head gemm", "argmax"), True),
        (("lookup", "scale", *LAYER * 12, "head gemm"), True),
        ((*LAYER * 4, "lookup"), False),
        ((*LAYER * 4, "lookup", *LAYER), False),
        ((*LAYER * 4, *LAYER[:2], "lookup", *LAYER[2:]), False),
        ((*LAYER * 4, "lookup", *OTHER), False),
        ((*LAYER * 6, *OTHER[:3], "lookup", *OTHER[3:]), False),
        (("lookup", *LAYER * 4, "norm", "argmax"), False),
    ],
    ids=["a head", "two launches before", "nothing once", "before a layer", "within a layer", "another kind", "within that", "no product"],
)  # fmt: skip
def test_a_pass_has_a_head_and_a_group_of_layers_has_none(works: tuple[str, ...], is_pass: bool) -> None:
    work = pl.Series(works, dtype=pl.String)
    launches = pl.DataFrame({"work": work, "multiplies": work.str.contains("gemm")})
    layers = layers_of(launches)
    assert layers is not None
    assert is_pass_around(launches, layers) is is_pass
