"""The page's sortable tables: which table of the report each one shows, which columns, and where its rows lead.

A `Listing` is what `assets/page.html.j2` lays out and `assets/tables.js` sorts and filters. It holds the top rows of a
table of the report; how many are left out is part of it, so that the page can say so.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import polars as pl

from trace_analyzer import units
from trace_analyzer.frames.intervals import longest_place
from trace_analyzer.render.html.labels import KINDS, short_name
from trace_analyzer.render.html.timeline_rows import device_labels
from trace_analyzer.report import Blame, Bucket, DeviceReport, Group, Report
from trace_analyzer.vocabulary import label

MOST_ROWS = 100
SHOWN_ROWS = 12
MODULE_PREFIX = "nn.Module: "

_FRAME = re.compile(r"(?:.*[/\\\\])?([^/\\\\]+\(\d+\)): (.+)")

Form = Literal[
    "name",
    "text",
    "code",
    "frame",
    "module",
    "part",
    "group",
    "count",
    "duration",
    "time",
    "ratio",
    "share",
    "times",
    "number",
    "flop",
    "flops",
    "bandwidth",
    "bytes",
]


@dataclass(frozen=True)
class Span:
    """A place on the timeline that a click leads to."""

    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Field:
    """One column of a listing: where its values come from and how they are written.

    ``term`` names the definition of the heading (`words.TERMS`); ``group`` the column with the group of kernels whose
    colour marks the value. A column whose values are all missing is left out.
    """

    column: str
    label: str
    form: Form = "text"
    term: str = ""
    group: str = ""

    @property
    def is_number(self) -> bool:
        """Whether the values are quantities: written to the right, sorted downwards first."""
        return self.form not in ("name", "text", "code", "frame", "module", "part", "group")


@dataclass(frozen=True)
class Cell:
    """A value as people read it, as it sorts (None: last), and in full where the text is shortened."""

    text: str
    sort: int | float | str | None
    full: str = ""
    key: str = ""


@dataclass(frozen=True)
class Row:
    """Cells in the order of the listing's fields."""

    cells: tuple[Cell, ...]
    span: Span | None


@dataclass(frozen=True)
class Listing:
    """A table of the page; ``total`` rows exist in the report, ``record`` says what to record if there are none."""

    key: str
    title: str
    fields: tuple[Field, ...]
    rows: tuple[Row, ...]
    total: int
    record: str = ""

    @property
    def left_out(self) -> int:
        """Rows of the report that are not on the page."""
        return self.total - len(self.rows)


def listing(key: str, title: str, frame: pl.DataFrame, fields: Sequence[Field], record: str = "") -> Listing:
    """The top rows of ``frame``, in its order; columns ``start_ns`` and ``end_ns`` say where a row leads."""
    shown = tuple(
        f for f in fields if f.column in frame.columns and frame.get_column(f.column).null_count() < frame.height
    )
    top = frame.head(MOST_ROWS)
    has_place = {"start_ns", "end_ns"} <= set(frame.columns)
    rows = tuple(
        Row(
            cells=tuple(_cell(field, row) for field in shown),
            span=Span(row["start_ns"], row["end_ns"]) if has_place and row["start_ns"] is not None else None,
        )
        for row in top.iter_rows(named=True)
    )
    return Listing(key, title, shown, rows, frame.height, record)


def longest(events: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Per key the longest event: the place that its row leads to."""
    return events.group_by(keys).agg(longest_place())


def with_duration(intervals: pl.DataFrame) -> pl.DataFrame:
    """Intervals (start_ns, end_ns) with duration_ns."""
    return intervals.with_columns(duration_ns=pl.col("end_ns") - pl.col("start_ns"))


def kernel_listing(report: Report) -> Listing:
    """Activities by name, those that take most device time first; a row leads to the longest of them."""
    places = longest(report.tables["activities"], ["device", "name"])
    frame = (
        report.tables["kernels"]
        .sort("time_ns", "name", descending=[True, False])
        .join(places, on=["device", "name"], how="left", maintain_order="left")
        .with_columns(_device_column(report), bucket=pl.col("bucket").fill_null(pl.col("kind")))
    )
    fields = (
        Field("name", "Kernel", "name"),
        Field("device_label", "Device"),
        Field("bucket", "Bucket", term="bucket"),
        Field("bound", "Bound", term="bound"),
        Field("operator", "Operator", "name"),
        Field("count", "Count", "count"),
        Field("median_ns", "Median", "duration"),
        Field("time_ns", "Time", "duration"),
        Field("time_ratio", "Share", "share"),
    )
    return listing("kernels", "Top kernels and copies", frame, fields)


def operator_listing(report: Report) -> Listing:
    """Operators by name, by device time and then by CPU time; a row leads to the longest call."""
    top = report.tables["operators"].sort("device_ns", "host_self_ns", "name", descending=[True, True, False])
    calls = report.tables["host_events"].filter(kind="operator").join(top.head(MOST_ROWS), on="name", how="semi")
    frame = top.join(longest(calls, ["name"]), on="name", how="left", maintain_order="left")
    fields = (
        Field("name", "Operator", "name"),
        Field("count", "Calls", "count"),
        Field("launch_count", "Launches", "count", "launch"),
        Field("short_launch_count", "Not worth it", "count", "short-launch"),
        Field("host_ns", "CPU time", "duration"),
        Field("host_self_ns", "Own CPU time", "duration", "self"),
        Field("python_ns", "Python", "duration"),
        Field("dispatch_ns", "Dispatch", "duration"),
        Field("runtime_ns", "Runtime calls", "duration"),
        Field("blocked_ns", "Waiting", "duration", "waiting"),
        Field("device_ns", "Device time", "duration", "device-time"),
        Field("host_device_ratio", "CPU per device time", "times"),
    )
    return listing(
        "operators",
        "Top operators",
        frame,
        fields,
        "Record with activities=[ProfilerActivity.CPU, ...] to see operators.",
    )


def module_listing(report: Report) -> Listing:
    """Modules by device time; a row leads to the longest call of the module."""
    top = report.tables["modules"].sort("time_ns", "depth", "module", descending=[True, False, False], nulls_last=True)
    calls = (
        report.tables["host_events"]
        .filter(pl.col("kind") == "python", pl.col("name").str.starts_with(MODULE_PREFIX))
        .with_columns(module=pl.col("name").str.strip_prefix(MODULE_PREFIX))
        .join(top.head(MOST_ROWS), on="module", how="semi")
    )
    frame = top.join(longest(calls, ["module"]), on="module", how="left", maintain_order="left").with_columns(
        _device_column(report)
    )
    fields = (
        Field("module", "Module", "name"),
        Field("parent", "In", "name"),
        Field("device_label", "Device"),
        Field("call_count", "Calls", "count"),
        Field("host_ns", "CPU time", "duration"),
        Field("time_ns", "Device time", "duration"),
        Field("backward_ns", "Backward", "duration"),
        Field("self_ns", "Own device time", "duration"),
        Field("achieved_flop_per_s", "FLOP/s", "flops", "known-work"),
        Field("lost_ns", "Lost to the roof", "duration", "lost"),
    )
    return listing("modules", "Modules", frame, fields, "Record with with_stack=True to see time by nn.Module.")


def group_listing(report: Report, device: DeviceReport) -> Listing:
    """The article's table for this trace, with the article's own figures beside; a row leads to the longest kernel."""
    fields = (
        Field("group", "Kernels", "group"),
        Field("flop_ratio", "Share of FLOP", "ratio", "known-work"),
        Field("article_flop_ratio", "in the article", "ratio", "article"),
        Field("time_ratio", "Share of time", "share"),
        Field("article_time_ratio", "in the article", "ratio", "article"),
        Field("achieved_flop_per_s", "FLOP/s", "flops", "known-work"),
        Field("slower_ratio", "Slower than matmul", "times"),
        Field("kernel_count", "Count", "count"),
        Field("time_ns", "Time", "duration"),
        Field("known_ratio", "Work known", "ratio", "known-work"),
    )
    return listing("groups", "Compute against everything else", _placed(report, device, device.groups, "group"), fields)


def bucket_listing(report: Report, device: DeviceReport) -> Listing:
    """Kernels by what they do; a row leads to the longest of them."""
    fields = (
        Field("bucket", "Bucket", "text", "bucket", group="group"),
        Field("kernel_count", "Kernels", "count"),
        Field("time_ns", "Time", "duration"),
        Field("time_ratio", "Share", "share"),
        Field("achieved_flop_per_s", "FLOP/s", "flops", "known-work"),
        Field("achieved_byte_per_s", "Bandwidth", "bandwidth", "known-work"),
        Field("roof_ratio", "Of the roof", "ratio", "roof"),
        Field("lost_ns", "Lost to the roof", "duration", "lost"),
        Field("known_ratio", "Work known", "ratio", "known-work"),
    )
    return listing("buckets", "By bucket", _placed(report, device, device.buckets, "bucket"), fields)


def roofline_listing(report: Report) -> Listing:
    """Kernels of known work, those first that lose most time against the roof; a row leads to the longest of them."""
    places = longest(report.tables["activities"], ["device", "name", "operator"])
    frame = (
        report.tables["roofline"]
        .filter(pl.col("roof_ratio").is_not_null())
        .sort("lost_ns", "name", descending=[True, False])
        .join(places, on=["device", "name", "operator"], how="left", maintain_order="left", nulls_equal=True)
        .with_columns(_device_column(report))
    )
    fields = (
        Field("name", "Kernel", "name", group="group"),
        Field("device_label", "Device"),
        Field("operator", "Operator", "name"),
        Field("input_dims", "Shapes"),
        Field("lost_ns", "Lost to the roof", "duration", "lost"),
        Field("roof_ratio", "Of the roof", "share", "roof"),
        Field("count", "Count", "count"),
        Field("time_ns", "Time", "duration"),
        Field("bound", "Bound", term="bound"),
        Field("dtype", "Type"),
        Field("achieved_flop_per_s", "FLOP/s", "flops"),
        Field("achieved_byte_per_s", "Bandwidth", "bandwidth"),
        Field("intensity_flop_per_byte", "FLOP per byte", "number", "intensity"),
    )
    return listing(
        "roofline",
        "Time lost against the roof",
        frame,
        fields,
        "Record with record_shapes=True, and on a device whose peaks are known (or name it: --gpu), to see FLOP, bytes"
        " and how far each kernel is from what the device can do.",
    )


def host_listing(report: Report) -> Listing:
    """What held the CPU up, by the code that asked for it; a row leads to the event that cost most."""
    frame = report.tables["host_costs"].sort("idle_ns", "host_ns", descending=True, nulls_last=True)
    fields = (
        Field("kind", "What", "part"),
        Field("source", "As written"),
        Field("python_function", "In function", "frame"),
        Field("idle_ns", "Device idle", "duration", "drain"),
        Field("host_ns", "CPU time", "duration"),
        Field("count", "Count", "count"),
        Field("name", "Event", "name"),
        Field("operator", "Operator", "name"),
        Field("copy", "Copy"),
        Field("module", "Module", "module"),
        Field("hidden_ns", "CPU time while the device worked", "duration"),
    )
    return listing(
        "host",
        "Synchronizations and other things that held the CPU",
        frame,
        fields,
        "Nothing of the kind was recorded.",
    )


def culprit_listing(report: Report) -> Listing:
    """Idle time of the verdict's window by cause and code; a row leads to the longest interval of it."""
    fields = (
        Field("cause", "Cause", "part"),
        Field("python_function", "In function", "frame"),
        Field("module", "Module", "module"),
        Field("operator", "Operator", "name"),
        Field("annotation", "Annotation", "name"),
        Field("phase", "Phase"),
        Field("idle_ns", "Device idle", "duration"),
    )
    return listing("culprits", "Who kept the device waiting in the judged window", _rows(report.blame), fields)


def drain_listing(report: Report) -> Listing:
    """Where the runway ran out, by the idle time that followed; a row leads there."""
    frame = report.tables["drains"].sort("idle_ns", descending=True).with_columns(_device_column(report))
    fields = (
        Field("cause", "Cause", "part"),
        Field("device_label", "Device"),
        Field("start_ns", "Ran out at", "time"),
        Field("runway_ns", "Runway before", "duration", "runway"),
        Field("idle_ns", "Device idle", "duration"),
        Field("python_function", "In function", "frame"),
        Field("name", "Event", "name"),
        Field("source", "As written"),
        Field("operator", "Operator", "name"),
        Field("phase", "Phase"),
    )
    return listing("drains", "Where the runway ran out", frame, fields)


def blame_listing(report: Report, by: Literal["python_function", "module"], title: str, record: str) -> Listing:
    """Idle time by the code to blame; a row leads to the longest interval of it."""
    frame = (
        report.tables["idle_by"]
        .filter(pl.col("by") == by, pl.col("key").is_not_null())
        .sort("idle_ns", descending=True)
        .rename({"longest_start_ns": "start_ns", "longest_end_ns": "end_ns"})
        .with_columns(_device_column(report))
    )
    fields = (
        Field("key", title.removeprefix("By ").capitalize(), "frame" if by == "python_function" else by),
        Field("device_label", "Device"),
        Field("cause", "Cause", "part"),
        Field("count", "Intervals", "count"),
        Field("idle_ns", "Device idle", "duration"),
    )
    return listing(f"idle-{by}".replace("_", "-"), title, frame, fields, record)


def fusion_listing(report: Report) -> Listing:
    """Kernels that one kernel could replace, the most time saved first; a row leads to the longest of them."""
    frame = report.tables["fusions"].with_columns(_device_column(report))
    fields = (
        Field("what", "What could be one kernel"),
        Field("code", "Write instead", "code"),
        Field("device_label", "Device"),
        Field("saves_ns", "Saves at most", "duration", "saves"),
        Field("time_ns", "Time", "duration"),
        Field("count", "Count", "count"),
        Field("kernel_count", "Kernels", "count"),
        Field("saved_bytes", "Bytes saved", "bytes"),
        Field("tensors", "In between"),
        Field("module", "Module", "name"),
        Field("function", "In function", "frame"),
        Field("operators", "Operators"),
    )
    return listing("fusions", "Kernels that could be one", frame, fields)


def recomputation_listing(report: Report) -> Listing:
    """Forward work that ran again in the backward pass; a row leads to the longest kernel of it."""
    frame = report.tables["recomputation"].sort("time_ns", descending=True).with_columns(_device_column(report))
    fields = (
        Field("operator", "Run again", "name"),
        Field("module", "Module", "name"),
        Field("device_label", "Device"),
        Field("sign", "Told by"),
        Field("count", "Count", "count"),
        Field("time_ns", "Time", "duration"),
        Field("flop", "FLOP", "flop"),
    )
    return listing("recomputation", "Forward work run again in the backward pass", frame, fields)


def copy_listing(report: Report) -> Listing:
    """Copies by direction, host memory and operator; a row leads to the longest of them."""
    frame = report.tables["copies"].sort("exposed_ns", "time_ns", descending=True).with_columns(_device_column(report))
    fields = (
        Field("direction", "Copies"),
        Field("host_memory", "Host memory"),
        Field("device_label", "Device"),
        Field("operator", "Operator", "name"),
        Field("count", "Count", "count"),
        Field("time_ns", "Time", "duration"),
        Field("exposed_ns", "Exposed", "duration", "exposed"),
        Field("bytes", "Bytes", "bytes"),
        Field("byte_per_s", "Bandwidth", "bandwidth"),
        Field("call_ns", "CPU time in the calls", "duration"),
        Field("small_count", "Under 64 KiB", "count"),
    )
    return listing("copies", "Copies", frame, fields)


def communication_listing(report: Report) -> Listing:
    """Collectives by name and size; a row leads to the longest of them."""
    keys = ["device", "collective", "name", "message_dtype", "group_size", "message_bytes"]
    places = longest(report.tables["collectives"], keys)
    frame = (
        report.tables["communication"]
        .sort("exposed_ns", "time_ns", descending=True)
        .join(places, on=keys, how="left", maintain_order="left", nulls_equal=True)
        .with_columns(_device_column(report))
    )
    fields = (
        Field("name", "Kernel", "name"),
        Field("device_label", "Device"),
        Field("collective", "Collective"),
        Field("message_bytes", "Message", "bytes"),
        Field("group_size", "Ranks", "count"),
        Field("count", "Count", "count"),
        Field("time_ns", "Time", "duration"),
        Field("exposed_ns", "Exposed", "duration", "exposed"),
        Field("bus_byte_per_s", "Bus bandwidth", "bandwidth", "bus"),
        Field("best_bus_byte_per_s", "Best", "bandwidth", "bus"),
    )
    return listing("communication", "Communication", frame, fields)


def cause_listing(report: Report) -> Listing:
    """Idle time of each device by cause; a row leads to the longest interval with that cause."""
    codes = {str(label): code for code, label in report.tables["devices"].select("device", "label").iter_rows()}
    rows = [
        {"device": codes.get(str(device.index)), "cause": cause, "time_ns": ns, "ratio": ns / device.idle_ns}
        for device in report.devices
        for cause, ns in device.gaps.by_cause_ns.items()
        if ns and device.idle_ns
    ]
    schema = {"device": pl.Int64, "cause": pl.String, "time_ns": pl.Int64, "ratio": pl.Float64}
    frame = (
        pl.DataFrame(rows, schema=schema)
        .sort("time_ns", descending=True)
        .join(
            longest(with_duration(report.tables["idle"]), ["device", "cause"]),
            on=["device", "cause"],
            how="left",
            maintain_order="left",
        )
        .with_columns(_device_column(report))
    )
    fields = (
        Field("cause", "Cause", "part"),
        Field("device_label", "Device"),
        Field("time_ns", "Time", "duration"),
        Field("ratio", "Share of idle", "share"),
    )
    return listing("causes", "By cause", frame, fields)


def gap_listing(report: Report) -> Listing:
    """The gaps, longest first."""
    frame = (
        report.tables["gaps"]
        .sort("duration_ns", "start_ns", descending=[True, False])
        .with_columns(_device_column(report))
    )
    fields = (
        Field("cause", "Main cause", "part"),
        Field("device_label", "Device"),
        Field("start_ns", "Start", "time"),
        Field("duration_ns", "Length", "duration"),
    )
    return listing("gaps", "Longest gaps", frame, fields)


def _placed(report: Report, device: DeviceReport, rows: Sequence[Bucket | Group], key: str) -> pl.DataFrame:
    """The rows, each with the longest kernel of the device that has this ``key``."""
    codes = report.tables["devices"].filter(pl.col("label") == str(device.index)).get_column("device")
    kernels = report.tables["activities"].filter(pl.col("kind") == "kernel", pl.col("device").is_in(codes.implode()))
    return _rows(rows).join(longest(kernels, [key]), on=key, how="left", maintain_order="left")


def _rows(rows: Sequence[Bucket | Group | Blame]) -> pl.DataFrame:
    return pl.DataFrame([asdict(row) for row in rows], infer_schema_length=None)


def _device_column(report: Report) -> pl.Expr:
    """What people call the device; null, so that the column is left out, where there is only one."""
    labels = device_labels(report)
    if len(labels) < 2:
        return pl.lit(None, pl.String).alias("device_label")
    return pl.col("device").replace_strict(labels, default="GPU", return_dtype=pl.String).alias("device_label")


def _cell(field: Field, row: Mapping[str, Any]) -> Cell:
    cell = _CELLS[field.form](row[field.column])
    return replace(cell, key=row[field.group] or "other") if field.group else cell


def _name_cell(value: str | None) -> Cell:
    label = short_name(value) if value else "–"
    return Cell(label, value, value if value and label != value else "")


def _frame_cell(value: str | None) -> Cell:
    """``dir/file.py(12): function`` as ``function · file.py(12)``."""
    found = _FRAME.fullmatch(value or "")
    return Cell(f"{found[2]} · {found[1]}", value, value or "") if found else _name_cell(value)


def _module_cell(value: str | None) -> Cell:
    """The end of a module's path, which tells it apart."""
    parts = (value or "").split("/")
    return Cell("… / " + " / ".join(parts[-2:]), value, value or "") if len(parts) > 2 else _text_cell(value)


def _text_cell(value: Any) -> Cell:
    return Cell("–" if value in (None, "") else str(value), value)


def _part_cell(value: str | None) -> Cell:
    return Cell("–", None) if value is None else Cell(label(value), value, key=value)


def _group_cell(value: str | None) -> Cell:
    word = KINDS.get(value or "other")
    return Cell(word.label if word else str(value), value, key=value or "other")


def _number_cell(written: Callable[[Any], str]) -> Callable[[Any], Cell]:
    return lambda value: Cell(written(value), value)


_CELLS: Mapping[str, Callable[[Any], Cell]] = {
    "name": _name_cell,
    "text": _text_cell,
    "code": _text_cell,
    "frame": _frame_cell,
    "module": _module_cell,
    "part": _part_cell,
    "group": _group_cell,
    "count": _number_cell(units.count),
    "duration": _number_cell(units.duration),
    "time": _number_cell(units.duration),
    "ratio": _number_cell(units.percent),
    "share": _number_cell(units.percent),
    "flops": _number_cell(units.flops),
    "bandwidth": _number_cell(units.bandwidth),
    "bytes": _number_cell(lambda value: units.quantity(value, "B")),
    "flop": _number_cell(lambda value: units.quantity(value, "FLOP")),
    "number": _number_cell(lambda value: "–" if value is None else f"{value:,.3g}"),
    "times": _number_cell(lambda value: "–" if value is None else f"{value:,.3g} ×"),
}
