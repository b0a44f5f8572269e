"""`Report`: all that a renderer sees. Scalars in frozen dataclasses, rows in `tables`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import polars as pl

from trace_analyzer.notes import Note
from trace_analyzer.run_metadata import RunMetadata
from trace_analyzer.schema import Table
from trace_analyzer.sections import Section

SCHEMA_VERSION = 1

Status = Literal["ok", "no-gpu-activity", "gpu-timeline-missing", "unsupported-accelerator", "insufficient"]
Regime = Literal["overhead-bound", "memory-bandwidth-bound", "compute-bound", "communication-bound"]
Confidence = Literal["high", "medium", "low"]
CheckStatus = Literal["ok", "warn", "fail"]
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
    """The file: where it came from and what it holds.

    ``settings`` is what a recording by this package tells about the run; null for all other traces.
    """

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
    settings: RunMetadata | None = None


@dataclass(frozen=True)
class Check:
    """Whether the trace supports its figures in one respect; ``device`` is null for the whole file.

    A failed check withholds metrics of its device: they are null in the report, or empty where they are lists;
    `DeviceReport.withheld` names them with the reason. Idle time without causes has the cause ``withheld``.
    """

    name: str
    device: int | str | None
    status: CheckStatus
    value: float | int | None
    unit: Literal["ratio", "events", "arrows"]
    meaning: str
    withholds: tuple[str, ...]


@dataclass(frozen=True)
class Withheld:
    """A metric that is not told, the check that its inputs fail, and what that says, for people."""

    metric: str
    check: str
    reason: str


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
class Debiased:
    """The verdict's window without what recording itself cost the CPU.

    ``method`` says whether that was estimated from the trace (``event_cost_ns`` per kind of event, ``events``
    that delayed launches) or measured without the profiler. ``least_removed_ns`` is the lower bound of the
    estimate. ``survives``: whether the regime is the same; None where the estimate cannot tell.
    """

    method: Literal["estimated", "measured"]
    event_cost_ns: Mapping[str, int]
    events: int | None
    least_removed_ns: int
    removed_ns: int
    window_ns: int
    shares: Shares | None
    parts_ns: Mapping[str, int]
    regime: Regime | None
    cause: str | None
    survives: bool | None
    why: str


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
    debiased: Debiased | None = None


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
    """Whether the CPU runs ahead of the device; all is null where a check of the trace withholds it."""

    state: Literal["ahead", "keeping-up", "behind"] | None
    launch_lead_ns: LaunchLead
    queue_depth: QueueDepth
    runway_ns: Runway
    empty_queue_ratio: float | None


@dataclass(frozen=True)
class Bucket:
    """Kernel time of one bucket, and its work where it is known.

    ``flop`` and ``bytes`` are those of the kernels whose shapes tell; rates are over the time of these kernels.
    """

    bucket: str
    group: str
    kernel_count: int
    time_ns: int
    time_ratio: float
    flop: float | None = None
    bytes: float | None = None
    flop_ratio: float | None = None
    achieved_flop_per_s: float | None = None
    achieved_byte_per_s: float | None = None
    peak_ratio: float | None = None
    roof_ratio: float | None = None
    lost_ns: float | None = None
    known_ratio: float = 0.0


@dataclass(frozen=True)
class Group:
    """One row of the article's table: what share of FLOP and of kernel time a group of buckets takes.

    ``slower_ratio`` is the matmul group's FLOP/s over this group's; ``article_flop_ratio`` and
    ``article_time_ratio`` are those of BERT in the article (catalog/article.toml), null for other groups.
    """

    group: str
    kernel_count: int
    time_ns: int
    time_ratio: float
    flop: float | None
    flop_ratio: float | None
    achieved_flop_per_s: float | None
    slower_ratio: float | None
    known_ratio: float
    article_flop_ratio: float | None
    article_time_ratio: float | None


@dataclass(frozen=True)
class Communication:
    """Communication kernels of one device, as unions over its streams.

    ``exposed_ns`` is the time in which nothing else ran, ``hidden_ns`` the rest. ``message_bytes`` and
    ``bus_byte_per_s`` are for those kernels whose messages are known, ``known_ns`` long.
    """

    kernel_count: int
    time_ns: int
    exposed_ns: int
    hidden_ns: int
    known_ns: int
    message_bytes: float | None
    bus_byte_per_s: float | None


@dataclass(frozen=True)
class Copies:
    """Copies of one device in one direction, to or from one kind of host memory (null where not told).

    ``exposed_ns`` is the time in which no kernel ran, ``call_ns`` the CPU's in the calls; small are those
    that take longer to start than to move.
    """

    direction: str
    host_memory: str | None
    count: int
    time_ns: int
    bytes: int | None
    byte_per_s: float | None
    exposed_ns: int
    call_ns: int
    small_count: int
    small_ns: int


@dataclass(frozen=True)
class Fusion:
    """Kernels that one kernel could replace: row of table `fusions`."""

    kind: Literal["chain", "attention", "optimizer"]
    what: str
    operators: str
    tensors: str | None
    module: str | None
    function: str | None
    count: int
    kernel_count: int
    time_ns: int
    moved_bytes: float | None
    byte_per_s: float | None
    saved_bytes: float | None
    saves_ns: float
    how: str
    code: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class WorkCoverage:
    """Shares of kernel time whose FLOP, bytes, or at least one of them are known.

    Of all kernels, and of those that are linked to an operator; null where these took no time. FLOP of 0 alone are not
    known work.
    """

    flop_ratio: float | None
    bytes_ratio: float | None
    either_ratio: float | None
    linked_flop_ratio: float | None
    linked_bytes_ratio: float | None
    linked_either_ratio: float | None


@dataclass(frozen=True)
class TensorCores:
    """Contractions that could use matrix units, or use them better, for one reason (sum over table `tensor_cores`)."""

    reason: Literal["fp32", "vector-units", "unaligned"]
    target_dtype: str
    kernel_count: int
    time_ns: int
    saves_ns: float
    code: str


@dataclass(frozen=True)
class MeasuredRoof:
    """One roof that the kernels met, measured, beside the datasheet's: byte/s of the memory, else FLOP/s of a dtype.

    ``datasheet_per_s`` is what all other metrics rest on; null where the catalogue does not know the device:
    then the measured roof is.
    """

    dtype: str | None
    matrix_units: bool | None
    measured_per_s: float
    datasheet_per_s: float | None


@dataclass(frozen=True)
class Attained:
    """What the device was measured to do (``analyze calibrate``), and how near to that its kernels came.

    ``roof_ratio``, by bucket: time at the measured roofs over time taken, of the kernels whose work is known.
    """

    memory_gbps: float | None
    peak_tflops: Mapping[str, float]
    launch_overhead_ns: float | None
    launch_latency_ns: int | None
    roof_ratio: Mapping[str, float]
    roofs: tuple[MeasuredRoof, ...] = ()


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
    groups: tuple[Group, ...] = ()
    mfu: float | None = None
    hfu: float | None = None
    flop_time_ratio: float | None = None
    recomputed_ns: int = 0
    recomputed_flop: float | None = None
    communication: Communication | None = None
    copies: tuple[Copies, ...] = ()
    fusions: tuple[Fusion, ...] = ()
    work_coverage: WorkCoverage | None = None
    tensor_cores: tuple[TensorCores, ...] = ()
    attained: Attained | None = None
    withheld: tuple[Withheld, ...] = ()


@dataclass(frozen=True)
class StepReport:
    """One step on one device; regime, cause, runner-up, confidence and headline are of its own partition.

    ``cold_start_ns`` is host time before the first use of kernels, ``recording_ns`` what recording took of the step, and
    ``unrecorded_regime`` the regime without that.
    """

    index: int
    name: str
    start_ns: int
    duration_ns: int
    device: int | str
    busy_ns: int
    idle_ns: int
    regime: Regime | None
    state: Literal["ok", "first", "warm-up", "cut", "empty", "outlier"]
    steady: bool
    flop: float | None = None
    mfu: float | None = None
    cause: str | None = None
    runner_up: Regime | None = None
    confidence: Confidence | None = None
    headline: str | None = None
    cold_start_ns: int | None = None
    recording_ns: int | None = None
    unrecorded_regime: Regime | None = None


@dataclass(frozen=True)
class Blame:
    """Idle time of the verdict's window by cause and by the code that was running; null is not known.

    ``python_function`` is as the trace names it, ``file.py(12): f``, and its line that of the ``def``. ``start_ns``
    and ``end_ns`` are the longest interval. ``call_line`` is the line of the call, where the source is at hand and
    leaves no doubt.
    """

    cause: str
    operator: str | None
    module: str | None
    python_function: str | None
    annotation: str | None
    phase: str | None
    idle_ns: int
    start_ns: int
    end_ns: int
    call_line: int | None = None


@dataclass(frozen=True)
class HostCost:
    """What the host did in the whole trace that can leave a device idle, with the code that asked for it.

    ``idle_ns`` is what it cost the devices, ``hidden_ns`` the part of ``host_ns`` in which they worked.
    """

    kind: str
    source: str | None
    name: str
    copy: str | None
    operator: str | None
    module: str | None
    python_function: str | None
    count: int
    host_ns: int | None
    hidden_ns: int | None
    idle_ns: int | None
    start_ns: int
    end_ns: int
    call_line: int | None = None


@dataclass(frozen=True)
class Advice:
    """One thing to change: what, why, where, and how much it can save at most.

    ``start_ns`` and ``end_ns`` name a place on the timeline that shows it, where there is one. ``id`` is the fix
    of the catalogue, ``docs`` the section on it: when it helps, when not, and how its bound is computed.
    """

    title: str
    why: str
    where: str
    code: str
    saves_ns_at_most: int
    how_bound: str
    start_ns: int | None = None
    end_ns: int | None = None
    id: str = ""
    docs: str = ""


@dataclass(frozen=True)
class DeclaredRows:
    """The rows of an analysis that declares its place in the JSON report, or a section.

    ``json`` is the name of a field of the report, such as ``copies``, or ``devices[].copies`` for the rows of each device.
    Where rows have a ``device``, it is the device's ``index``.
    """

    table: Table
    json: str | None
    section: Section | None
    rows: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class Report:
    """The result of an analysis: frozen, saveable, and all that a renderer sees.

    ``tables`` maps names of `trace_analyzer.analyses.registry.TABLES` to frames with those columns. Those that
    nobody has asked for yet are made when they are asked for. ``steps_from`` says what
    marks the steps: ``ProfilerStep``, an annotation's pattern, a framework, ``kernel sequence``, or None.
    ``declared`` are the rows of analyses that declare where they show instead of having a field here.
    """

    schema_version: int
    tool_version: str
    trace: TraceInfo
    trust: tuple[Check, ...]
    notes: tuple[Note, ...]
    verdict: Verdict
    devices: tuple[DeviceReport, ...]
    steps: tuple[StepReport, ...]
    blame: tuple[Blame, ...]
    host_costs: tuple[HostCost, ...]
    advice: tuple[Advice, ...]
    tables: Mapping[str, pl.DataFrame] = field(repr=False, compare=False)
    steps_from: str | None = None
    declared: tuple[DeclaredRows, ...] = ()

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

    def to_html(self, path: str | Path, *, command: str = "", max_mb: float | None = None) -> Path:
        """Write the report as one offline HTML file and return its path.

        ``command`` is what made the report; the page shows it. Where the file would be larger than ``max_mb`` (MB of
        10^6 bytes), it leaves out the shortest Python frames, then details of events, then the shortest other host
        events, and says so. Raises ``OSError`` when the file cannot be
        written; nothing half written is left.
        """
        from trace_analyzer.render.html import write_html

        return write_html(self, Path(path), command=command, max_mb=max_mb)

    def to_png(self, path: str | Path, *, width: int = 1280, height: int = 1100) -> Path:
        """Write a picture of verdict and timeline, ``width`` by ``height`` pixels, and return its path.

        A Chromium or Chrome draws it: one on the ``PATH``, or the one that the environment variable ``CHROME``
        names. Raises ``UsageError`` when there is none or it fails, ``OSError`` when the file cannot be written.
        """
        from trace_analyzer.render.png import write_png

        return write_png(self, Path(path), width, height)

    def timeline(self, start_ns: int | None = None, end_ns: int | None = None) -> Any:
        """The timeline as a Bokeh figure for notebooks (``bokeh.io.show``), by default of the whole trace.

        Events too narrow to be seen are joined into blocks; give times (ns) to look closer.
        """
        from trace_analyzer.render.notebook import timeline

        return timeline(self, start_ns, end_ns)

    @property
    def plots(self) -> Mapping[str, Any]:
        """HoloViews objects by name, those that the report has data for; made anew at each access.

        HoloViews and its Bokeh backend are imported at the first access. In a notebook call
        ``hv.extension("bokeh")`` to see them; ``hv.save(report.plots["gaps"], "gaps.html")`` works anywhere.
        """
        from trace_analyzer.render.plots import plots

        return plots(self)

    def write_tables(self, folder: str | Path, form: Literal["parquet", "csv"] = "parquet") -> tuple[Path, ...]:
        """Write every table into ``folder``, as ``<table>.parquet`` or ``<table>.csv``, and return the files.

        The folder is made if need be, and files of these names are replaced: all of them, or none where one cannot
        be written. Raises ``ValueError`` for an unknown format and ``OSError``.
        """
        from trace_analyzer.render.table_files import write_tables

        return write_tables(self, Path(folder), form)

    def _repr_html_(self) -> str:
        from trace_analyzer.render.html import notebook_html

        return notebook_html(self)
