"""Check that each instant of a window is one kind of work, or idle with one cause."""

import itertools

import polars as pl
import pytest
from kineto import analysed, copy, kernel, launched, memset, partition_parts

from trace_analyzer.analyses.partition import busy_parts, part_sums, partition
from trace_analyzer.report import Report
from trace_analyzer.vocabulary import PARTS, WORK

GEMM, ADD, NCCL, OTHER = (
    "ampere_sgemm_128x64_tn", "void at::native::vectorized_elementwise_kernel<4, x>(int)", "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
    "my_own_kernel",
)  # fmt: skip


def parts(*activities: tuple[str, int, int]) -> list[tuple[object, ...]]:
    """Return the partition of activities (bound, start, end) without idle causes."""
    table = pl.DataFrame(
        [(0, bound, start, end - start) for bound, start, end in activities],
        schema={"device": pl.Int64, "bound": pl.String, "start_ns": pl.Int64, "duration_ns": pl.Int64},
        orient="row",
    )
    none = pl.DataFrame(schema={"device": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64, "cause": pl.String})
    return partition(busy_parts(table), none).select("start_ns", "end_ns", "part").rows()


def test_where_activities_overlap_an_instant_counts_once_and_neighbours_of_one_part_are_one_interval() -> None:
    assert WORK == ("compute", "memory", "latency", "other", "communication", "copy")
    assert parts(("communication", 0, 10), ("compute", 4, 6), ("copy", 8, 14)) == [
        (0, 4, "communication"), (4, 6, "compute"), (6, 10, "communication"), (10, 14, "copy"),
    ]  # fmt: skip
    assert parts(("memory", 0, 3), ("memory", 3, 5), ("memory", 4, 9), ("compute", 5, 5), ("memory", 12, 13)) == [
        (0, 9, "memory"), (12, 13, "memory"),
    ]  # fmt: skip


@pytest.mark.parametrize(("first", "second"), list(itertools.pairwise(WORK)))
def test_the_order_of_work(first: str, second: str) -> None:
    assert parts((first, 0, 5), (second, 0, 9)) == [(0, 5, first), (5, 9, second)]


def test_what_each_activity_is() -> None:
    report = analysed(
        kernel(GEMM, 0, 30, grid=[500, 1, 1]), kernel(ADD, 30, 30, grid=[500, 1, 1]), kernel(NCCL, 60, 2), kernel(ADD, 62, 2),
        kernel(OTHER, 64, 30), copy("HtoD (Pageable -> Device)", 94, 2), copy("PtoP", 96, 2), copy("DtoD (Device -> Device)", 98, 2), memset(100, 2),
    )  # fmt: skip
    assert partition_parts(report) == [
        (0, 30, "compute"), (30, 60, "memory"), (60, 62, "communication"), (62, 64, "latency"), (64, 94, "other"), (94, 98, "copy"),
        (98, 102, "memory"),
    ]  # fmt: skip


def covering() -> Report:
    other = [kernel(OTHER, at, 1, device=1) for at in (0, 5)]
    return analysed(launched(GEMM, 0, 10, 30, 1), launched(ADD, 50, 60, 30, 2), other)


def test_the_partition_covers_each_window() -> None:
    report = covering()
    table = report.tables["partition"]
    for device, first, last in ((0, 10_000, 90_000), (1, 0, 6_000)):
        own = table.filter(device=device)
        assert own.get_column("start_ns").to_list()[0] == first
        assert own.get_column("end_ns").to_list() == [*own.get_column("start_ns").to_list()[1:], last]
    assert [sum(d.partition_ns.values()) for d in report.devices] == [80_000, 6_000]
    assert all(tuple(d.partition_ns) == tuple(PARTS) for d in report.devices)


def test_sums_over_windows() -> None:
    report = covering()
    idle = report.tables["idle"].cast({"cause": pl.Categorical})
    busy = report.tables["partition"].filter(pl.col("part").is_in(WORK)).cast({"part": pl.Categorical})
    windows = pl.DataFrame({"device": [0, 0], "start_ns": [0, 35_000], "end_ns": [20_000, 65_000], "window": [1, 2]})
    assert part_sums(busy, idle, windows, ["window"]).rows() == [
        (1, "compute", 10_000), (2, "compute", 5_000), (2, "host-unknown", 10_000), (2, "launch-latency", 10_000), (2, "memory", 5_000),
    ]  # fmt: skip
