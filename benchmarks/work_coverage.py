"""Measure how much of the kernel time has known FLOP and bytes, and whether any rate exceeds the device's limits.

    python benchmarks/work_coverage.py [--without-values] [TRACE ...]

``--without-values`` simulates recordings of PyTorch before 2.1: shapes and types, but no strides and values. Without
traces, every ``*.json.gz`` of ``$TRACE_CORPUS`` is used. Printed per device: the share of kernel time that is linked to
an operator; the shares with FLOP, with bytes and with either, of the linked kernels' time and (after the slash) of all
kernels' time; for kernels other than communication whose operator has shapes, the share of time with either, and with
both (after the slash: without those that moved more than was recorded, ``at-least``); the highest FLOP/s relative to
the peak of its dtype, and the highest byte/s relative to the memory's bandwidth (of kernels that neither the cache nor
the clock explains, see docs/definitions.md); kernels faster than their roof by more than 5 %. Then follow the operators
and kernels with most linked time without bytes.
"""

import os
import sys
from pathlib import Path

import polars as pl
from msgspec.structs import replace

from trace_analyzer.ingest import load
from trace_analyzer.pipeline import report_of
from trace_analyzer.report import DeviceReport, Report
from trace_analyzer.units import percent

HEAD = f"{'linked':>7} {'FLOP':>15} {'bytes':>15} {'either':>15} {'shaped':>15} {'peak':>7} {'memory':>7} {'beyond':>6}  trace, device"
WORST = 4
TOLERANCE = 1.05


def main(paths: list[Path], *, values: bool) -> int:
    print(HEAD)
    return sum([table(reported(path, values=values), path.name.removesuffix(".json.gz")) for path in paths]) > 0


def reported(path: Path, *, values: bool) -> Report:
    """Return the report of a trace, with or without the strides and values of its operators."""
    trace = load(path)
    if not values:
        nothing = pl.lit(None, pl.Categorical)
        inputs = trace.operator_inputs.with_columns(nothing.alias("input_strides"), nothing.alias("concrete_inputs"))
        trace = replace(trace, operator_inputs=inputs)
    return report_of(trace)


def table(report: Report, name: str) -> int:
    """Print the lines of one trace; return the number of kernels beyond a roof."""
    beyond = 0
    codes = {str(label): code for code, label, _ in report.tables["devices"].iter_rows()}
    for device in report.devices:
        this = pl.col("device") == codes[str(device.index)]
        kernels = report.tables["activities"].filter(this, pl.col("kind") == "kernel")
        total = kernels.get_column("duration_ns").sum()
        if not total:
            continue
        linked = kernels.filter(pl.col("operator_id").is_not_null())
        roofs = kernels.join(report.tables["roofs"].drop("device", strict=False), on="activity_id", how="inner")
        over = roofs.filter(
            (pl.col("achieved_flop_per_s") > TOLERANCE * pl.col("peak_flop_per_s"))
            | (pl.col("faster_than_memory") == "unexplained")
        ).height
        beyond += over
        print(
            f"{percent(linked.get_column('duration_ns').sum() / total):>7} {shares(device)}"
            f" {' / '.join(map(percent, shaped_ratios(report, linked))):>15}"
            f" {percent(highest_share_of_peak(roofs)):>7} {percent(highest_share_of_bandwidth(roofs)):>7} {over:>6}"
            f"  {name}, {device.name or device.index}"
        )
        for operator, kernel, share in uncovered(linked).iter_rows():
            print(f"{'':24}{percent(share):>7}  {operator[:40]}: {kernel[:60]}")
    return beyond


def shares(device: DeviceReport) -> str:
    coverage = device.work_coverage
    assert coverage is not None
    pairs = (
        (coverage.linked_flop_ratio, coverage.flop_ratio),
        (coverage.linked_bytes_ratio, coverage.bytes_ratio),
        (coverage.linked_either_ratio, coverage.either_ratio),
    )
    return " ".join(f"{f'{percent(of_linked)} / {percent(of_all)}':>15}" for of_linked, of_all in pairs)


def shaped_ratios(report: Report, linked: pl.DataFrame) -> tuple[float | None, float | None]:
    """Return the shares of time with FLOP or bytes, and with both, for kernels other than communication with shapes."""
    inputs = report.tables["operator_inputs"].filter(pl.col("input_dims").cast(pl.String).str.contains(r"\d"))
    shaped = linked.filter(pl.col("bucket") != "communication").join(
        inputs.select(pl.col("event_id").alias("operator_id")), on="operator_id", how="semi"
    )
    known = pl.col("moved_bytes").is_not_null() | (pl.col("flop") > 0).fill_null(False)
    whole = known & (pl.col("work_from").cast(pl.String) != "at-least").fill_null(True)
    time = pl.col("duration_ns")
    total, with_work, with_all = shaped.select(
        time.sum(), time.filter(known).sum().alias("known"), time.filter(whole).sum().alias("whole")
    ).row(0)
    return (with_work / total, with_all / total) if total else (None, None)


def highest_share_of_peak(roofs: pl.DataFrame) -> float | None:
    return roofs.select((pl.col("achieved_flop_per_s") / pl.col("peak_flop_per_s")).max()).item()  # type: ignore[no-any-return]


def highest_share_of_bandwidth(roofs: pl.DataFrame) -> float | None:
    """Return the highest share of bandwidth that neither cache nor clock explains, where memory is the roof."""
    timed = roofs.filter(pl.col("faster_than_memory").is_null() | (pl.col("faster_than_memory") == "unexplained"))
    memory_bound = timed.filter(pl.col("roof_ns") > pl.col("compute_roof_ns").fill_null(0))
    return memory_bound.select(pl.col("roof_ratio").max()).item()  # type: ignore[no-any-return]


def uncovered(linked: pl.DataFrame) -> pl.DataFrame:
    """Return (operator, name, share) with most linked time without bytes or FLOP."""
    return (
        linked.with_columns((pl.col("duration_ns") / pl.col("duration_ns").sum()).alias("share"))
        .filter(pl.col("moved_bytes").is_null() & ~(pl.col("flop") > 0).fill_null(False))
        .group_by("operator", "name")
        .agg(pl.col("share").sum())
        .filter(pl.col("share") > 0.001)
        .sort("share", "name", descending=[True, False])
        .head(WORST)
    )


if __name__ == "__main__":
    given = [argument for argument in sys.argv[1:] if argument != "--without-values"]
    chosen = [Path(path) for path in given] or sorted(Path(os.environ["TRACE_CORPUS"]).glob("*.json.gz"))
    sys.exit(main(chosen, values="--without-values" not in sys.argv))
