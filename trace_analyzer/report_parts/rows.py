"""List the table rows that are fields of the report: steps, code that causes idle time, host costs."""

from dataclasses import fields

import polars as pl

from trace_analyzer.analyses import blame, call_lines
from trace_analyzer.analysis import Value
from trace_analyzer.mask import suppress_step_metrics
from trace_analyzer.report import (
    Blame,
    Check,
    HostCost,
    StepReport,
    Verdict,
)
from trace_analyzer.windows import device_ids

TOP_CODE = 20
"""Number of rows of attribution and of host costs in the report; the tables have all of them."""


def step_reports(
    steps: pl.DataFrame, step_work: pl.DataFrame, devices: pl.DataFrame, checks: tuple[Check, ...]
) -> tuple[StepReport, ...]:
    """Return each step with its verdict and its work, without the figures that failed checks suppress."""
    ids = device_ids(devices)
    figures = step_work.select("device", pl.col("step").alias("index"), "flop", "mfu_ratio", "mfu_most_ratio")
    reports = tuple(
        StepReport(
            index=row["index"],
            name=row["name"],
            start_ns=row["start_ns"],
            duration_ns=row["end_ns"] - row["start_ns"],
            device=ids[row["device"]],
            busy_ns=row["busy_ns"],
            idle_ns=row["end_ns"] - row["start_ns"] - row["busy_ns"],
            regime=row["regime"],
            state=row["state"],
            steady=row["steady"],
            flop=row["flop"],
            mfu=row["mfu_ratio"],
            mfu_at_most=row["mfu_most_ratio"],
            cause=row["cause"],
            runner_up=row["runner_up"],
            confidence=row["confidence"],
            headline=row["headline"],
            cold_start_ns=row["cold_start_ns"],
            recording_ns=row["recording_ns"],
            unrecorded_regime=row["unrecorded_regime"],
        )
        for row in steps.join(figures, on=["device", "index"], how="left", maintain_order="left").to_dicts()
    )
    return suppress_step_metrics(reports, checks)


def blame_rows(window_attribution: blame.Attribution | None, verdict: Verdict) -> tuple[Blame, ...]:
    """Return the code that causes most idle time in the verdict's window."""
    if window_attribution is None or verdict.window is None:
        return ()
    rows = blame.blamed_code(window_attribution).head(TOP_CODE).to_dicts()
    return tuple(Blame(**row, call_line=call_lines.call_line(row["python_function"], row["operator"])) for row in rows)


def host_cost_rows(host_costs: pl.DataFrame) -> tuple[HostCost, ...]:
    """Return the rows of table `host_costs` with the highest cost."""
    columns = [field.name for field in fields(HostCost) if field.name in host_costs.columns]
    rows = host_costs.drop_nulls("name").select(columns).head(TOP_CODE).to_dicts()
    return tuple(
        HostCost(**row, call_line=call_lines.call_line(row["python_function"], row["operator"])) for row in rows
    )


VALUES = (
    Value("step_reports", step_reports),
    Value("blame_rows", blame_rows),
    Value("host_cost_rows", host_cost_rows),
)
