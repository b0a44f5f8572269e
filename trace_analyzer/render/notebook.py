"""Draw the timeline as a plain Bokeh figure for notebooks, without the page's scripts."""

from collections.abc import Sequence

import numpy as np
import polars as pl
from bokeh.models import ColumnDataSource, FixedTicker, HoverTool, PlainText, Range1d
from bokeh.models.text import BaseText
from bokeh.plotting import figure

from trace_analyzer import units
from trace_analyzer.analyses.distributions import narrow_blocks
from trace_analyzer.render.html.labels import short_name
from trace_analyzer.render.html.timeline import TimelineColumns, Track, timeline_columns
from trace_analyzer.render.palette import palette
from trace_analyzer.report import Report
from trace_analyzer.vocabulary import PARTS

BOX_BUDGET = 20_000
_BLOCKS = 1500  # about one per pixel of a wide notebook
_FAINTEST = 0.35
_ROW_PX = 17
_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns"))


def timeline(report: Report, start_ns: int | None = None, end_ns: int | None = None) -> figure:
    """Draw everything between two times, by default of the whole trace.

    Events narrower than a pixel are drawn as blocks whose opacity is their busy share; pass the times to zoom in. Of
    folded tracks (Python frames, threads without launches), only the outermost row is shown.
    """
    columns = timeline_columns(report)
    start = 0 if start_ns is None else start_ns
    end = max(columns.end_ns, 1) if end_ns is None else max(end_ns, start + 1)
    tracks = [(track, track.rows[:1] if track.collapsed else track.rows) for track in columns.tracks]
    factor, unit = next((size, name) for size, name in _UNITS if end - start >= size or size == 1)
    boxes = _within_budget(_events(columns, tracks, start, end), end - start)
    return _drawn(_styled(boxes, factor), _labels(tracks), (start / factor, end / factor), unit)


def _events(
    columns: TimelineColumns, tracks: Sequence[tuple[Track, Sequence[tuple[int, int]]]], start: int, end: int
) -> pl.DataFrame:
    """Return the shown rows' events between two times, clipped, with labels of row and place."""
    rows = [(first, count, track) for track, shown in tracks for first, count in shown]
    parts = [
        columns.events.slice(first, count).with_columns(
            row=pl.lit(place, pl.Int64), place=pl.lit(f"{track.group}, {track.label}")
        )
        for place, (first, count, track) in enumerate(rows)
    ]
    events = pl.concat(parts) if parts else columns.events.with_columns(row=pl.lit(0, pl.Int64), place=pl.lit(""))
    return (
        events.with_columns(end_ns=pl.col("start_ns") + pl.col("duration_ns"))
        .filter(pl.col("start_ns") < end, pl.col("end_ns") >= start)
        .select(
            "row", "place", "name", "kind",
            whole_start_ns="start_ns", whole_ns="duration_ns",
            start_ns=pl.col("start_ns").clip(start), end_ns=pl.col("end_ns").clip(None, end),
        )
    )  # fmt: skip


def _within_budget(events: pl.DataFrame, length_ns: int) -> pl.DataFrame:
    """Return boxes of the events; narrow ones are merged into blocks, increasingly wide until there are few enough."""
    quantum = max(1, length_ns // _BLOCKS)
    while (boxes := narrow_blocks(events, quantum, _FAINTEST)).height > BOX_BUDGET:
        quantum *= 2
    return boxes


def _styled(boxes: pl.DataFrame, factor: int) -> dict[str, object]:
    """Return columns for Bokeh: boxes in the axis unit, colours, and tooltip texts."""
    colours = palette("light")
    kinds = boxes.get_column("kind").cast(pl.String)
    fills = {kind: colours.get(_colour_key(kind), colours["k-other"]) for kind in kinds.unique()}
    names = boxes.get_column("name").cast(pl.String)
    words = {name: PARTS[name].label if name in PARTS else short_name(name) for name in names.unique()}
    alone = (boxes.get_column("count") == 1).to_list()
    counts = boxes.get_column("count").to_list()
    return {
        "left": (boxes.get_column("start_ns") / factor).to_numpy(),
        "right": (boxes.get_column("end_ns") / factor).to_numpy(),
        "top": boxes.get_column("row").to_numpy(),
        "bottom": boxes.get_column("row").to_numpy() + 0.9,
        "fill": kinds.replace_strict(fills, return_dtype=pl.String).to_list(),
        "alpha": boxes.get_column("alpha").to_numpy(),
        "name": [
            words[name] if one else f"{units.count(count)} events"
            for name, one, count in zip(names, alone, counts, strict=True)
        ],
        "start": [units.duration(time) for time in boxes.get_column("whole_start_ns")],
        "duration": [
            units.duration(whole if one else busy)
            for whole, busy, one in zip(boxes.get_column("whole_ns"), boxes.get_column("busy_ns"), alone, strict=True)
        ],
        "place": boxes.get_column("place").to_list(),
    }


def _colour_key(kind: str) -> str:
    of, _, part = kind.partition("-")
    return f"p-{part}" if of in ("idle", "path") else f"k-{kind}"


def _labels(tracks: Sequence[tuple[Track, Sequence[tuple[int, int]]]]) -> list[tuple[int, int, str]]:
    """Return first row, number of rows and text of each track's label.

    A group's first track also has the group's name.
    """
    firsts = np.cumsum([0, *(len(rows) for _, rows in tracks)]).tolist()
    groups = [track.group for track, _ in tracks]
    return [
        (
            first,
            len(rows),
            track.label if place and groups[place - 1] == track.group else f"{track.group}: {track.label}",
        )
        for place, (first, (track, rows)) in enumerate(zip(firsts, tracks, strict=False))
    ]


def _drawn(
    boxes: dict[str, object], labels: Sequence[tuple[int, int, str]], view: tuple[float, float], unit: str
) -> figure:
    count = max(1, sum(rows for _, rows, _ in labels))
    plot = figure(
        x_range=Range1d(start=view[0], end=view[1], bounds=view), y_range=Range1d(start=count, end=0), height=min(900, 80 + _ROW_PX * count),
        sizing_mode="stretch_width", tools="xpan,xwheel_zoom,xbox_zoom,reset,save", active_scroll="xwheel_zoom",
        x_axis_label=f"Time ({unit})", lod_threshold=None,
    )  # fmt: skip
    source = ColumnDataSource(boxes)
    plot.quad("left", "right", "top", "bottom", source=source, fill_color="fill", fill_alpha="alpha", line_color=None)
    # "@name" is shown as text; "@name{safe}" would be interpreted as markup
    facts = [("", "@name"), ("Duration", "@duration"), ("Start", "@start"), ("On", "@place")]
    plot.add_tools(HoverTool(tooltips=facts, point_policy="follow_mouse"))
    ticks: dict[float | str, str | BaseText] = {first + rows / 2: PlainText(text=text) for first, rows, text in labels}
    plot.yaxis.ticker = FixedTicker(ticks=[first + rows / 2 for first, rows, _ in labels])
    plot.yaxis.major_label_overrides = ticks
    plot.ygrid.visible = False
    return plot
