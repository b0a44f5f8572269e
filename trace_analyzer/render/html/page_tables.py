"""Choose the page's sortable tables: which table of the report each one shows, which columns, and where its rows lead."""

from collections.abc import Sequence
from typing import Literal

import polars as pl

from trace_analyzer.analyses.places import longest_intervals, named_events
from trace_analyzer.render.declared import DeclaredSection, LaidColumn, dataclass_rows, laid_column, sorted_rows
from trace_analyzer.render.html.page_cells import MOST_ROWS, Field, Listing, listing, written_rows
from trace_analyzer.render.html.timeline_rows import MODULE_PREFIX, device_labels
from trace_analyzer.report import Bucket, DeviceReport, Group, Report
from trace_analyzer.sections import Form, Longest, Section, Shown

# Unit of a column -> form of the page's cells.
_FORMS: dict[str, Form] = {
    "ns": "duration",
    "ratio": "ratio",
    "count": "count",
    "bytes": "bytes",
    "byte/s": "bandwidth",
    "FLOP": "flop",
    "FLOP/s": "flops",
    "FLOP/byte": "number",
}


def declared_listing(declared: DeclaredSection) -> Listing:
    """Return the rows of a section that an analysis declares; a row with ``start_ns`` and ``end_ns`` leads there."""
    fields = tuple(map(_field, declared.columns))
    rows = written_rows(fields, declared.rows[:MOST_ROWS])
    return Listing(f"declared-{declared.key}", declared.section.title, fields, rows, declared.total)


def section_listing(report: Report, key: str, section: Section, table: pl.DataFrame) -> Listing:
    """Return the top rows of the table as its section declares them; a row leads where the section says."""
    rows = sorted_rows(table, section.sort)
    if "device" in rows.columns:
        rows = rows.with_columns(_device_column(report))
    shown = [each for each in section.show if isinstance(each, Shown) and each.page and each.column in rows.columns]
    rows = _led(report, section.place, rows).with_columns(
        pl.col(each.column).fill_null(pl.col(each.fallback)) for each in shown if each.fallback
    )
    fields = [_field(laid_column(each, rows.schema)) for each in shown]
    return listing(key, section.title, rows, fields, section.record)


def _field(column: LaidColumn) -> Field:
    """Return the column as the page has it."""
    shown, head = column.shown, column.heading
    unit = _FORMS.get(column.unit, "number" if column.side == "r" else "text")
    return Field(shown.column, head[:1].upper() + head[1:], shown.form or unit, shown.term, shown.mark)


def _led(report: Report, place: tuple[str, str] | Longest, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with ``start_ns`` and ``end_ns`` of where each leads."""
    if not isinstance(place, Longest):
        return rows.rename({old: new for old, new in zip(place, ("start_ns", "end_ns"), strict=True) if old != new})
    events, keys = report.tables[place.table], list(place.keys)
    if place.kind:
        events = events.filter(kind=place.kind)
    if place.prefix:
        name = pl.col("name")
        events = events.filter(name.str.starts_with(place.prefix)).with_columns(
            name.str.strip_prefix(place.prefix).alias(keys[-1])
        )
    on_page = events.join(rows.head(MOST_ROWS), on=keys, how="semi", nulls_equal=True)
    return named_events(on_page, rows, keys)


def module_listing(report: Report) -> Listing:
    """List modules by device time; a row leads to the longest call of the module."""
    top = report.tables["modules"].sort("time_ns", "depth", "module", descending=[True, False, False], nulls_last=True)
    calls = (
        report.tables["host_events"]
        .filter(pl.col("kind") == "python", pl.col("name").str.starts_with(MODULE_PREFIX))
        .with_columns(module=pl.col("name").str.strip_prefix(MODULE_PREFIX))
        .join(top.head(MOST_ROWS), on="module", how="semi")
    )
    frame = named_events(calls, top, ["module"]).with_columns(_device_column(report))
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
    """List the article's table for this trace, with the article's figures; a row leads to the longest kernel."""
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
    """List kernels by what they do; a row leads to the longest of them."""
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
    """List kernels of known work by the time that they lose against the roof; a row leads to the longest."""
    known = report.tables["roofline"].filter(pl.col("roof_ratio").is_not_null())
    losing = known.sort("lost_ns", "name", descending=[True, False])
    frame = named_events(report.tables["activities"], losing, ["device", "name", "operator"]).with_columns(
        _device_column(report)
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
        Field("bound", "Bound", "part", "bound"),
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


def culprit_listing(report: Report) -> Listing:
    """List idle time of the verdict's window by cause and code; a row leads to the longest interval of it."""
    fields = (
        Field("cause", "Cause", "part"),
        Field("python_function", "In function", "frame"),
        Field("module", "Module", "module"),
        Field("operator", "Operator", "name"),
        Field("annotation", "Annotation", "name"),
        Field("phase", "Phase"),
        Field("idle_ns", "Device idle", "duration"),
    )
    return listing("culprits", "Who kept the device waiting in the judged window", dataclass_rows(report.blame), fields)


def blame_listing(report: Report, by: Literal["python_function", "module"], title: str, record: str) -> Listing:
    """List idle time by the code it is attributed to; a row leads to the longest interval of it."""
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


def recomputation_listing(report: Report) -> Listing:
    """List forward work that ran again in the backward pass; a row leads to the longest kernel of it."""
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
    """List copies by direction, host memory and operator; a row leads to the longest of them."""
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
    """List collectives by name and size; a row leads to the longest of them."""
    keys = ["device", "collective", "name", "message_dtype", "group_size", "message_bytes"]
    exposed = report.tables["communication"].sort("exposed_ns", "time_ns", descending=True)
    frame = named_events(report.tables["collectives"], exposed, keys).with_columns(_device_column(report))
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
    """List idle time of each device by cause; a row leads to the longest interval with that cause."""
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
            longest_intervals(report.tables["idle"], ["device", "cause"]),
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
    """List the gaps, longest first."""
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
    """Return the rows, each with the longest kernel of the device that has this ``key``."""
    codes = report.tables["devices"].filter(pl.col("label") == str(device.index)).get_column("device")
    kernels = report.tables["activities"].filter(pl.col("kind") == "kernel", pl.col("device").is_in(codes.implode()))
    return named_events(kernels, dataclass_rows(rows), [key])


def _device_column(report: Report) -> pl.Expr:
    """Return the device's label; null, so that the column is left out, where there is only one."""
    labels = device_labels(report)
    if len(labels) < 2:
        return pl.lit(None, pl.String).alias("device_label")
    return pl.col("device").replace_strict(labels, default="GPU", return_dtype=pl.String).alias("device_label")
