"""Aggregate the table rows that are the evidence for one kernel, gap, step or advice."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from trace_analyzer.report import Advice, Report, StepReport

_HOST_KEYS = ("cause", "name", "operator", "python_function", "module")


def saved_ratio(report: Report, item: Advice) -> float | None:
    """Return the share of the verdict's window that an advice can save at most; None without a window."""
    window = report.verdict.window
    return item.saves_ns_at_most / window.length_ns if window and window.length_ns else None


def host_intervals(report: Report, gap_id: int, most: int) -> list[dict[str, Any]]:
    """Return the host's work during a gap, longest first.

    Columns: time_ns, cause, name (of the event), operator, python_function, module.
    """
    names = report.tables["host_events"].select("event_id", "name")
    pieces = report.tables["blame"].filter(pl.col("gap_id") == gap_id).join(names, on="event_id", how="left")
    return (
        pieces.with_columns(pl.col(_HOST_KEYS).cast(pl.String), time_ns=pl.col("end_ns") - pl.col("start_ns"))
        .group_by(_HOST_KEYS)
        .agg(pl.col("time_ns").sum())
        .sort("time_ns", *_HOST_KEYS, descending=[True, *(False for _ in _HOST_KEYS)], nulls_last=True)
        .head(most)
        .to_dicts()
    )


def kernel_totals(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return time_ns, time_ratio (mean over devices) and count of a kernel, from its rows of table `kernels`."""
    return {
        "time_ns": sum(row["time_ns"] for row in rows),
        "time_ratio": sum(row["time_ratio"] for row in rows) / len(rows),
        "count": sum(row["count"] for row in rows),
    }


def step_parts(report: Report, step: StepReport, device: int | None) -> list[dict[str, Any]]:
    """Return part, time_ns and time_ratio of a device's time within a step, longest first."""
    end, length = step.start_ns + step.duration_ns, max(1, step.duration_ns)
    sums = (
        report.tables["partition"]
        .filter(pl.col("device") == device, pl.col("start_ns") < end, pl.col("end_ns") > step.start_ns)
        .with_columns(time_ns=pl.col("end_ns").clip(None, end) - pl.col("start_ns").clip(step.start_ns))
        .group_by(pl.col("part").cast(pl.String))
        .agg(pl.col("time_ns").sum())
        .sort("time_ns", "part", descending=[True, False])
    )
    return [{"part": part, "time_ns": ns, "time_ratio": ns / length} for part, ns in sums.iter_rows()]
