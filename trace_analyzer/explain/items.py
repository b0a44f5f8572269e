"""Define ids of a report's items that stay equal from run to run, and find the rows behind them.

``verdict``, ``advice:FIX``, ``check:NAME``, ``step:N``, ``gap:N``, ``kernel:HASH`` for all runs of a kernel and
``kernel:HASH/K`` for its K-th run. A step or check of another device than the verdict's ends in ``@DEVICE``. ``gap:N``
is row N of table `gaps`, ``memory:N`` of table `memory`; HASH is the beginning of the SHA-256 of the kernel's name, in
place of which a part of the name may stand that no other kernel has.
"""

import hashlib
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import polars as pl

from trace_analyzer.errors import UsageError, did_you_mean
from trace_analyzer.frames.intervals import LENGTH_NS, clip, spans_on
from trace_analyzer.render.names import kernel_label
from trace_analyzer.report import Check, Report, StepReport
from trace_analyzer.report.summaries import device_code, part_totals
from trace_analyzer.thresholds import WORTH_RATIO

KINDS = ("verdict", "advice", "check", "step", "gap", "kernel", "memory")
"""Kinds of items with an id, in reading order."""

_HASH_DIGITS = 8
_NEAR = 5
_LONGEST = 60
_LABEL = 28


def kernel_hash(name: str) -> str:
    """Return eight hexadecimal digits of the hash of a kernel's name."""
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_DIGITS]


def step_id(report: Report, step: StepReport) -> str:
    """Return the id of a step."""
    return f"step:{step.index}{_of_device(report, step.device)}"


def check_id(report: Report, check: Check) -> str:
    """Return the id of a check; a check of the whole file has no device."""
    return f"check:{check.name}{'' if check.device is None else _of_device(report, check.device)}"


def _of_device(report: Report, device: int | str) -> str:
    judged = next(
        (index for index in (report.verdict.device, *(each.index for each in report.devices)) if index is not None),
        None,
    )
    return "" if device == judged else f"@{device}"


def kernel_names(report: Report) -> list[str]:
    """Return the distinct names in table `kernels`, by descending time."""
    return [str(name) for name in report.tables["kernels"].get_column("name").unique(maintain_order=True)]


def kernels_named(report: Report, text: str) -> list[str]:
    """Return the names of kernels that have this hash, are this text or, failing these, contain it in any case."""
    names = kernel_names(report)
    exact = [name for name in names if text in (kernel_hash(name), name)]
    return exact or [name for name in names if text and text.casefold() in name.casefold()]


def longest_gaps(report: Report, most: int) -> pl.DataFrame:
    """Return the longest rows of table `gaps` of the verdict's device in its window, longest first; none of a busy window."""
    gaps, window = report.tables["gaps"], report.verdict.window
    device = device_code(report, report.verdict.device)
    own = gaps if device is None else gaps.filter(pl.col("device") == device)
    if device is not None and window is not None:
        totals = part_totals(report.verdict.parts_ns)
        if sum(totals.idle.values()) < WORTH_RATIO * totals.total_ns:
            return own.clear()
        own = own.join(clip(own, spans_on(device, window.intervals), ["device"]), on="gap_id", how="semi")
    return own.sort("duration_ns", "gap_id", descending=[True, False]).head(most)


def host_intervals(report: Report, gap_id: int) -> pl.DataFrame:
    """Return the host's work during a gap, longest first: cause, name of the event, operator, function, module, time_ns."""
    keys = ("cause", "name", "operator", "python_function", "module")
    return (
        report.tables["blame"]
        .filter(pl.col("gap_id") == gap_id)
        .join(report.tables["host_events"].select("event_id", "name"), on="event_id", how="left")
        .with_columns(pl.col(keys).cast(pl.String), time_ns=LENGTH_NS)
        .group_by(keys)
        .agg(pl.col("time_ns").sum())
        .sort("time_ns", *keys, descending=[True, *(False for _ in keys)], nulls_last=True)
    )


def kernel_totals(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return time_ns, time_ratio (mean over devices) and count of a kernel, from its rows of table `kernels`."""
    sums = {name: sum(row[name] for row in rows) for name in ("time_ns", "time_ratio", "count")}
    return sums | {"time_ratio": sums["time_ratio"] / len(rows)}


def median_ns(runs: pl.DataFrame) -> float:
    """Return the median duration of runs of a kernel, of all devices."""
    return float(runs.select(pl.col("duration_ns").median()).item())


def step_parts(report: Report, step: StepReport, device: int | None) -> list[tuple[str, int, float]]:
    """Return part, time in ns and ratio of a device's time within a step, longest first."""
    end = step.start_ns + step.duration_ns
    sums = (
        report.tables["partition"]
        .filter(pl.col("device") == device, pl.col("start_ns") < end, pl.col("end_ns") > step.start_ns)
        .with_columns(time_ns=pl.col("end_ns").clip(None, end) - pl.col("start_ns").clip(step.start_ns))
        .group_by(pl.col("part").cast(pl.String))
        .agg(pl.col("time_ns").sum())
        .sort("time_ns", "part", descending=[True, False])
    )
    return [(part, ns, ns / max(1, step.duration_ns)) for part, ns in sums.iter_rows()]


def unknown(report: Report, asked: str) -> UsageError:
    """Return the error for an unknown id, with the most similar known ids."""
    kind = asked.partition(":")[0]
    asked = asked if len(asked) <= _LONGEST else asked[:_LONGEST] + "..."
    if kind in ("gap", "memory"):
        rows = report.tables["gaps" if kind == "gap" else kind]
        there = f"{kind}:0 to {kind}:{rows.height - 1}"
        if rows.is_empty():
            there = "no gaps" if kind == "gap" else "no memory events (profile_memory=True records them)"
        elif kind == "gap":
            longest = rows.sort("duration_ns", "gap_id", descending=[True, False]).item(0, "gap_id")
            there += f"; the longest is gap:{longest}"
        return UsageError(f"no {asked!r} in this trace: there are {there}")
    if kind == "kernel":
        return _unknown_kernel(report, asked)
    ids = [
        *(f"advice:{item.id}" for item in report.advice),
        *(step_id(report, step) for step in report.steps),
        *(check_id(report, check) for check in report.trust),
    ]
    known = [name for name in ids if name.startswith(f"{kind}:")] or ["verdict", *ids]
    if kind not in KINDS and ":" in asked:
        return UsageError(f"no {asked!r}, as ids begin with {', '.join(KINDS)}{did_you_mean(kind.lower(), KINDS)}")
    near = get_close_matches(asked, known, n=_NEAR, cutoff=0.5) or known[:_NEAR]
    return UsageError(
        f"no {asked!r} in this trace; near it: {', '.join(near)}{', ...' if len(known) > len(near) else ''}"
    )


def _unknown_kernel(report: Report, asked: str) -> UsageError:
    """Return the error for an id of no kernel or of several, with the kernels that it may mean, the longest first."""
    named = kernels_named(report, asked.removeprefix("kernel:").partition("/")[0])
    known = named or kernel_names(report)
    if not known:
        return UsageError(f"no {asked!r} in this trace: there are no kernels")
    listed = ", ".join(f"kernel:{kernel_hash(name)} ({kernel_label(name, _LABEL).strip()})" for name in known[:_NEAR])
    why = (
        f"{len(named)} kernels have this in their name" if len(named) > 1 else "near it" if named else "the longest are"
    )
    return UsageError(f"no {asked!r} in this trace; {why}: {listed}{', ...' if len(known) > _NEAR else ''}")
