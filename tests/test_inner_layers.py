"""Layers within a pass, by the sequence of its launches alone."""

import polars as pl
import pytest

from trace_analyzer.analyses.inner_layers import outside_of_layers

LAYER = ("norm", "gemm", "attention", "gemm", "add")
T5_LAYER = (
    "pow", "mean", "mul", "gemm", "copy", "gemm", "copy", "gemm", "copy", "lookup", "gemm", "add", "softmax", "gemm", "copy", "gemm", "add",
    "pow", "mean", "mul", "gemm", "gelu", "gemm", "mul", "gemm", "add",
)  # fmt: skip


def outside(works: tuple[str, ...]) -> list[str] | None:
    launches = pl.DataFrame({"work": pl.Series(works, dtype=pl.String)})
    actual = outside_of_layers(launches)
    return None if actual is None else launches.filter(actual).get_column("work").to_list()


def test_layers_are_the_equal_parts_of_a_pass() -> None:
    """From one beginning of a layer to the next: the last one has no end, so it is left out as the head is."""
    assert outside(("lookup", *LAYER * 6, "head", "argmax")) == ["lookup", *LAYER, "head", "argmax"]


@pytest.mark.parametrize(
    "works",
    [(), LAYER, LAYER * 3, ("lookup", *T5_LAYER), ("a", "b") * 20, ("lookup", *LAYER * 4, *(f"own {n}" for n in range(40)))],
    ids=["nothing", "one layer", "too few", "a layer of many products", "too short", "a minor part"],
)  # fmt: skip
def test_what_holds_no_layers(works: tuple[str, ...]) -> None:
    assert outside(works) is None
