"""What the page says, as plain values: chosen from the report and put in the order of display.

`assets/page.html.j2` only lays these out, so that what a page claims can be tested without reading markup.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import PurePath

import polars as pl

from trace_analyzer import units
from trace_analyzer.render.html.timeline import device_labels
from trace_analyzer.render.html.words import PARTS, WORK_PARTS, Word, short_name
from trace_analyzer.report import Evidence, Report, StepReport, TraceInfo

TOP_KERNELS = 15
LONGEST_GAPS = 10


@dataclass(frozen=True)
class Span:
    """A place on the timeline that a click leads to."""

    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Share:
    """One part of a partition of time."""

    key: str
    word: Word
    ns: int
    ratio: float
    span: Span | None = None


@dataclass(frozen=True)
class Fact:
    """A measured value with its name and why it matters."""

    name: str
    value: str
    why: str = ""


@dataclass(frozen=True)
class KernelRow:
    """Activities of one name; ``span`` is the longest of them."""

    device: str
    name: str
    label: str
    kind: str
    bucket: str | None
    bound: str | None
    operator: str | None
    count: int
    time_ns: int
    median_ns: float
    ratio: float
    span: Span | None


@dataclass(frozen=True)
class GapRow:
    """A long gap of a device."""

    device: str
    word: Word
    cause: str
    duration_ns: int
    span: Span


@dataclass(frozen=True)
class StepRow:
    """One step on the strip; ``ratio`` is its share of the strip's length."""

    step: StepReport
    span: Span
    ratio: float


@dataclass(frozen=True)
class View:
    """The sections of the page that depend on more than one field of the report."""

    title: str
    partition: tuple[Share, ...]
    causes: tuple[tuple[str, tuple[Share, ...]], ...]
    evidence: tuple[Fact, ...]
    steps: tuple[tuple[str, tuple[StepRow, ...]], ...]
    kernels: tuple[KernelRow, ...]
    gaps: tuple[GapRow, ...]
    facts: tuple[Fact, ...]


def view(report: Report) -> View:
    """All that the page shows beside the timeline."""
    labels = device_labels(report)
    return View(
        title=PurePath(report.trace.path).name,
        partition=shares(report.verdict.parts_ns),
        causes=_causes(report),
        evidence=tuple(Fact(_title(e.metric), written(e), e.why) for e in report.verdict.evidence),
        steps=_steps(report.steps),
        kernels=_kernels(report, labels),
        gaps=_gaps(report, labels),
        facts=_facts(report.trace),
    )


def shares(parts_ns: Mapping[str, int]) -> tuple[Share, ...]:
    """A partition as shares of its sum: work in a fixed order, then idle time, the longest cause first."""
    total = sum(parts_ns.values())
    work = [key for key in WORK_PARTS if parts_ns.get(key)]
    idle = sorted((key for key, ns in parts_ns.items() if ns and key not in WORK_PARTS), key=lambda key: -parts_ns[key])
    return tuple(Share(key, part_word(key), parts_ns[key], parts_ns[key] / total) for key in work + idle)


def part_word(key: str) -> Word:
    """What a part of a partition is called."""
    return PARTS.get(key, Word(_title(key), ""))


def written(evidence: Evidence) -> str:
    """An evidence's value as people write it."""
    value, unit = evidence.value, evidence.unit
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or isinstance(value, str):
        return value or "–"
    formats = {"ns": units.duration, "ratio": units.percent, "FLOP/s": units.flops, "B/s": units.bandwidth}
    if unit in formats:
        return formats[unit](value)
    number = units.count(value) if isinstance(value, int) or abs(value) >= 100 else f"{value:.3g}"
    return number if unit in ("", "count") else f"{number} {unit}"


def _title(key: str) -> str:
    words = key.removesuffix("_ns").removesuffix("_ratio").replace("_", " ").replace("-", " ")
    return words[:1].upper() + words[1:]


def _causes(report: Report) -> tuple[tuple[str, tuple[Share, ...]], ...]:
    """Per device its idle time by cause, each with the longest interval of that cause."""
    longest = _longest(report.tables["idle"].rename({"cause": "name"}))
    codes = {str(label): code for code, label in report.tables["devices"].select("device", "label").iter_rows()}
    return tuple(
        (
            f"GPU {device.index}",
            tuple(
                Share(s.key, s.word, s.ns, s.ratio, longest.get((codes.get(str(device.index)), s.key)))
                for s in shares(device.gaps.by_cause_ns)
            ),
        )
        for device in report.devices
        if any(device.gaps.by_cause_ns.values())
    )


def _steps(steps: Iterable[StepReport]) -> tuple[tuple[str, tuple[StepRow, ...]], ...]:
    by_device = groupby(sorted(steps, key=lambda step: (str(step.device), step.start_ns)), key=lambda step: step.device)
    return tuple((f"GPU {device}", _strip(tuple(group))) for device, group in by_device)


def _strip(steps: tuple[StepReport, ...]) -> tuple[StepRow, ...]:
    total = sum(step.duration_ns for step in steps) or 1
    return tuple(
        StepRow(step, Span(step.start_ns, step.start_ns + step.duration_ns), step.duration_ns / total) for step in steps
    )


def _kernels(report: Report, labels: Mapping[int, str]) -> tuple[KernelRow, ...]:
    longest = _longest(report.tables["activities"].with_columns(end_ns=pl.col("start_ns") + pl.col("duration_ns")))
    top = report.tables["kernels"].sort("time_ns", descending=True).head(TOP_KERNELS)
    return tuple(
        KernelRow(
            device=labels.get(row["device"], "GPU"),
            label=short_name(row["name"]),
            ratio=row["time_ratio"],
            span=longest.get((row["device"], row["name"])),
            **{
                key: row[key]
                for key in ("name", "kind", "bucket", "bound", "operator", "count", "time_ns", "median_ns")
            },
        )
        for row in top.iter_rows(named=True)
    )


def _gaps(report: Report, labels: Mapping[int, str]) -> tuple[GapRow, ...]:
    top = report.tables["gaps"].sort("duration_ns", descending=True).head(LONGEST_GAPS)
    return tuple(
        GapRow(
            device=labels.get(row["device"], "GPU"),
            word=part_word(row["cause"]),
            cause=row["cause"],
            duration_ns=row["duration_ns"],
            span=Span(row["start_ns"], row["end_ns"]),
        )
        for row in top.iter_rows(named=True)
    )


def _longest(intervals: pl.DataFrame) -> dict[tuple[int | None, str], Span]:
    """The longest interval of each name on each device."""
    frame = intervals.group_by("device", "name").agg(
        pl.col("start_ns", "end_ns").get((pl.col("end_ns") - pl.col("start_ns")).arg_max())
    )
    return {(device, name): Span(start, end) for device, name, start, end in frame.iter_rows()}


def _facts(trace: TraceInfo) -> tuple[Fact, ...]:
    recorded = trace.recorded
    kept = {
        "shapes": recorded.shapes,
        "Python stacks": recorded.stack,
        "memory": recorded.memory,
        "modules": recorded.modules,
    }
    facts = [
        Fact("File", trace.path),
        Fact("Events", units.count(trace.event_count)),
        Fact("Duration", units.duration(trace.duration_ns)),
        Fact("Recorded", ", ".join(name for name, on in kept.items() if on) or "no optional details"),
        Fact("Not recorded", ", ".join(name for name, on in kept.items() if not on)),
        Fact(
            "Rank",
            ""
            if trace.rank is None
            else f"{trace.rank}"
            if trace.world_size is None
            else f"{trace.rank} of {trace.world_size}",
        ),
        Fact(
            "Idle devices",
            ", ".join(trace.idle_devices),
            "In the file's header, but no work was recorded on them.",
        ),
        Fact(
            "Time zero",
            trace.origin_ns,
            "Absolute time of 0 on this page, in ns: add it to find an event in Perfetto.",
        ),
    ]
    return tuple(fact for fact in facts if fact.value)
