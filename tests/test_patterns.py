"""Test patterns of the catalogues, as they are matched with names."""

import polars as pl
import pytest

from trace_analyzer.catalog.patterns import matches


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        (r"^\w+_kernel$", "gemm2_kernel", True),
        (r"^\w+_kernel$", "gemm<2>_kernel", False),
        (r"^[\w:]+$", "ns::gemm", True),
        (r"^[^\w]+$", "<<>>", True),
        (r"^[^\w]+$", "<a>", False),
        (r"\.py\(\d+\)$", "train.py(12)", True),
        (r"(?i)^GEMM\d$", "gemm7", True),
        (r"^\w+$", "né", False),
        (r"^\d$", "٣", False),
        (r"^.$", "é", True),
        (r"a", None, None),
    ],
)
def test_classes_are_those_of_ascii(pattern: str, name: str | None, expected: bool | None) -> None:
    names = pl.DataFrame({"name": [name]}, schema={"name": pl.String})
    assert names.select(matches(pl.col("name"), pattern)).item() is expected
