"""`Report`: all that a renderer sees. Scalars in frozen dataclasses, rows in `tables`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import polars as pl

from trace_analyzer.notes import Note

SCHEMA_VERSION = 1

Status = Literal["ok", "no-gpu-activity", "gpu-timeline-missing", "unsupported-accelerator", "insufficient"]
Regime = Literal["overhead-bound", "memory-bandwidth-bound", "compute-bound", "communication-bound"]
Confidence = Literal["high", "medium", "low"]
Value = int | float | str | bool | None


@dataclass(frozen=True)
class DeviceInfo:
    """A device that did work: its id as an int where the file's is one, its names."""

    index: int | str
    name: str | None
    catalog_name: str | None


@dataclass(frozen=True)
class Recorded:
    """What the profiler was asked to record."""

    shapes: bool
    stack: bool
    memory: bool
    modules: bool


@dataclass(frozen=True)
class TraceInfo:
    """The file: where it came from and what it holds."""

    path: str
    event_count: int
    duration_ns: int
    origin_ns: str
    base_time_ns: str | None
    rank: int | None
    world_size: int | None
    devices: tuple[DeviceInfo, ...]
    idle_devices: tuple[str, ...]
    recorded: Recorded


@dataclass(frozen=True)
class Evidence:
    """One measured fact behind the verdict: ``value`` in ``unit`` and why it matters."""

    metric: str
    value: Value
    unit: str
    why: str


@dataclass(frozen=True)
class Window:
    """The interval (or intervals) that the verdict is about."""

    kind: Literal["steady", "whole", "step"]
    intervals: tuple[tuple[int, int], ...]
    steps: tuple[int, ...]


@dataclass(frozen=True)
class Shares:
    """What the device did in the verdict's window, as ratios that sum to 1."""

    compute: float
    memory: float
    latency: float
    communication: float
    copy: float
    other: float
    idle: float


@dataclass(frozen=True)
class Verdict:
    """What limits the workload, or why that cannot be told."""

    status: Status
    regime: Regime | None
    runner_up: Regime | None
    cause: str | None
    confidence: Confidence
    confidence_why: tuple[str, ...]
    device: int | str | None
    window: Window | None
    shares: Shares | None
    parts_ns: Mapping[str, int]
    headline: str
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True)
class Gaps:
    """Idle time of a device by cause; the causes sum to the device's idle time."""

    count: int
    longest_ns: int
    by_cause_ns: Mapping[str, int]


@dataclass(frozen=True)
class LaunchLead:
    """Quantiles of the launch lead, ns."""

    p10: int | None
    p50: int | None
    p90: int | None


@dataclass(frozen=True)
class QueueDepth:
    """Queue depth, weighted by time."""

    mean: float | None
    p50: int | None
    max: int | None


@dataclass(frozen=True)
class Runway:
    """Device time of the queued work, ns, weighted by time."""

    mean: float | None
    p50: int | None
    max: int | None


@dataclass(frozen=True)
class RunAhead:
    """Whether the CPU runs ahead of the device; ``state`` is null when links are too few to tell."""

    state: Literal["ahead", "keeping-up", "behind"] | None
    launch_lead_ns: LaunchLead
    queue_depth: QueueDepth
    runway_ns: Runway
    empty_queue_ratio: float | None


@dataclass(frozen=True)
class Bucket:
    """Kernel time of one bucket."""

    bucket: str
    group: str
    kernel_count: int
    time_ns: int
    time_ratio: float


@dataclass(frozen=True)
class DeviceReport:
    """One device over the whole trace, to the nanosecond of what the file says."""

    index: int | str
    name: str | None
    window_ns: int
    busy_ns: int
    idle_ns: int
    busy_ratio: float | None
    activity_count: int
    kernel_count: int
    linked_count: int
    link_coverage_ratio: float | None
    link_coverage_time_ratio: float | None
    gaps: Gaps
    partition_ns: Mapping[str, int]
    run_ahead: RunAhead
    buckets: tuple[Bucket, ...]


@dataclass(frozen=True)
class StepReport:
    """One step on one device."""

    index: int
    name: str
    start_ns: int
    duration_ns: int
    device: int | str
    busy_ns: int
    idle_ns: int
    regime: Regime | None
    state: Literal["ok", "first", "cut", "empty", "outlier"]
    steady: bool


@dataclass(frozen=True)
class Advice:
    """One thing to change: what, why, where, and how much it can save at most.

    ``start_ns`` and ``end_ns`` name a place on the timeline that shows it, where there is one.
    """

    title: str
    why: str
    where: str
    code: str
    saves_ns_at_most: int
    how_bound: str
    start_ns: int | None = None
    end_ns: int | None = None


@dataclass(frozen=True)
class Report:
    """The result of an analysis: frozen, saveable, and all that a renderer sees.

    ``tables`` maps names of `trace_analyzer.tables.ALL` to frames with those columns.
    """

    schema_version: int
    tool_version: str
    trace: TraceInfo
    notes: tuple[Note, ...]
    verdict: Verdict
    devices: tuple[DeviceReport, ...]
    steps: tuple[StepReport, ...]
    advice: tuple[Advice, ...]
    tables: Mapping[str, pl.DataFrame] = field(repr=False, compare=False)

    def summary(self, width: int = 100) -> str:
        """The one-screen summary as plain text, ``width`` cells wide."""
        from trace_analyzer.render.terminal import summary

        return summary(self, width=width)

    def to_json(self) -> str:
        """The report as strict JSON text (schema: ``trace_analyzer/render/report.schema.json``)."""
        from trace_analyzer.render.json import to_json

        return to_json(self)

    def to_markdown(self) -> str:
        """The report as Markdown, for issues and CI comments."""
        from trace_analyzer.render.markdown import to_markdown

        return to_markdown(self)

    def to_html(self, path: str | Path) -> Path:
        """Write the report as one offline HTML file and return its path.

        Raises ``OSError`` when it cannot be written; nothing half written is left.
        """
        from trace_analyzer.render.html import write_html

        return write_html(self, Path(path))

    def _repr_html_(self) -> str:
        from trace_analyzer.render.html import notebook_html

        return notebook_html(self)
