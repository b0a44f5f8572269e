"""Describe a comparison, a loop of changes and a series of batches as documents."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial

import polars as pl

from trace_analyzer.catalog.kernels import line_label, line_phrase
from trace_analyzer.compare import comparison, decomposition, judgement, scaling, statistics
from trace_analyzer.compare.comparison import Bar, Comparison, Line, Side, bar_label, counts_a_step, times_a_step
from trace_analyzer.compare.loop import Loop, Turn
from trace_analyzer.compare.phrasing import (
    CHANCE,
    a_step,
    is_shown,
    is_undivided,
    limit,
    line_name,
    scale_of,
    scaled,
    signed,
)
from trace_analyzer.documents import Chapter, Document, Figure, FlameFigure, Notes, PlainTable, largest_lever
from trace_analyzer.sections import Axis, Boxes, Chart, Flame, Labels, LineMark, Points
from trace_analyzer.units import counted, duration, number, percent, runs, visible
from trace_analyzer.vocabulary import GROUPS, PARTS

_WATERFALLS = {"bucket": "By cause and bucket", "operator": "By operator", "module": "By module"}
_BARS, _TEXT_LINES = 8, 12
"""Rows in text and Markdown."""
_LINES, _PARTS = 40, 24
"""Number of lines of the page, and of rows in each unfolded line."""
_WATERFALL = "From the step before to the step after: each bar is what changed, blue for less time, orange for more, grey where it may be chance."
_TIMELINES = "A typical step of each side, by what owns each instant; drag to zoom in."
_FLAME = "The step, kinds of time, modules and operators, each as wide as the longer side."
_NARROWEST, _WIDEST = 340, 640
"""Least widths in pixels: of plots that a phone shows completely, and of those that it scrolls."""
_LABEL_CELLS = 24
COLOURS: Mapping[str, str] = {"slower": "p-python", "faster": "p-compute", "even": "share"}
"""Colours of changes."""
_FLAME_LEGEND = tuple(
    (text, COLOURS[change])
    for change, text in (("faster", "less time"), ("slower", "more time"), ("even", "the same within 2 %"))
)
_LEVELS = {
    "cause": "idle",
    "call": "same call",
    "operator": "same operator",
    "replay": "same kernel of the operator, replayed",
    "attention": "attention, fused or not",
    "module": "same module",
    "anywhere": "same operator elsewhere",
    "phase-bucket": "same bucket and phase",
    "bucket": "same bucket",
    "group": "same group",
    "removed": "removed",
    "new": "new",
}


def document(result: Comparison) -> Document:
    """Return the document: both sides, what changed by cause, operator and module, and promises that were kept."""
    before, after = result.before, result.after
    if before is None or after is None or result.status == "refused":
        return Document("comparison", result.headline, ())
    scale, unit = scale_of(max(before.step_ns, after.step_ns))
    falls = {
        by: Figure(title, _WATERFALL if by == "bucket" else "", partial(waterfall, result.waterfall[by], before.step_ns, after.step_ns, a_step(result)))
        for by, title in _WATERFALLS.items()
    }  # fmt: skip
    steps = Figure("Timelines", _TIMELINES, partial(timelines, result))
    flames = FlameFigure("Differential flame graph", _FLAME, lambda: (flame_graph(result),), _FLAME_LEGEND)
    return Document("comparison", result.headline, [
        Chapter("sides", "Both sides", [_sides(result, before, after, scale, unit), Notes([*_matched(result), *result.notes])]),
        Chapter("by-bucket", _WATERFALLS["bucket"], [falls["bucket"], _bars(result.waterfall["bucket"], scale, unit + a_step(result))]),
        Chapter("ranks", "Ranks", _ranks(result, scale, unit)),
        Chapter("timelines", steps.title, [steps]),
        Chapter("by-operator", _WATERFALLS["operator"], [falls["operator"]]),
        Chapter("by-module", _WATERFALLS["module"], [falls["module"]]),
        Chapter("flames", flames.title, [flames]),
        Chapter("lines", "Lines by operator and cause", [_lines(result, scale, unit)], folded=True),
        Chapter("promises", "Advice on BEFORE that AFTER shows", [Notes(_promises(result, scale, unit))]),
    ])  # fmt: skip


def _steps(side: Side, ranks: int, of: str) -> str:
    each = counted(side.steps // (side.recordings if ranks else 1), of.lower())
    return f"{each} of {side.recordings} ranks" if ranks else each


def _sides(result: Comparison, before: Side, after: Side, scale: float, unit: str) -> PlainTable:
    of = "Step" if is_undivided(result) else "Unit"
    rows = [
        (name, f"{scaled(side.step_ns, scale)} {unit}", _steps(side, len(result.ranks), of), limit(side), side.path)
        for name, side in (("before", before), ("after", after))
    ]
    interval = ""
    if result.interval_ns:
        low, high = (signed(end, scale) for end in result.interval_ns)
        interval = f"95 % interval {low} to {high} {unit}"
    rows.append(("change", f"{signed(result.difference_ns or 0.0, scale)} {unit}", "", "", interval))
    if result.whole and is_undivided(result):
        return PlainTable(("", "Whole", "Limit", "Trace"), "lrll", [(*row[:2], *row[3:]) for row in rows])
    return PlainTable(("", of, f"{of}s", "Limit", "Trace"), "lrrll", rows)


def _ranks(result: Comparison, scale: float, unit: str) -> list[PlainTable]:
    """Return the ranks that changed most, after the roles where there are several."""

    def row(name: str, ranks: str, before: float, after: float, *changes: float) -> tuple[str, ...]:
        return name, ranks, scaled(before, scale), scaled(after, scale), *(signed(ns, scale) for ns in changes)

    of_roles = [row(role, runs(ranks), *means) for role, ranks, means in comparison.role_rows(result)]
    of_ranks = [row(item.role or "–", str(item.rank), *item.times_ns) for item in result.ranks]
    headings = (f"Before, {unit}", "After", "Own work", "Communication", "Idle")
    return [
        PlainTable(("Role", "Ranks", *headings), "llrrrrr", of_roles),
        PlainTable(("Role", "Rank", *headings), "lrrrrrr", of_ranks, most=_BARS),
    ]


def _matched(result: Comparison) -> list[str]:
    if (ratio := result.matched_ratio) is None:
        return []
    return [
        f"Matched: {percent(ratio.call)} of kernel time by call, {percent(ratio.outer)} by operator, {percent(ratio.module)} by module,"
        f" {percent(ratio.bucket)} in all."
    ]


def _bars(bars: tuple[Bar, ...], scale: float, unit: str) -> PlainTable:
    rows = [
        (bar_label(bar), scaled(bar.before_ns, scale), scaled(bar.after_ns, scale), signed(bar.difference_ns, scale),
         CHANCE if bar.significant is False and is_shown(bar.difference_ns, scale) else "")
        for bar in bars
    ]  # fmt: skip
    return PlainTable((unit, "Before", "After", "Change", ""), "lrrrl", rows, most=_BARS)


def _lines(result: Comparison, scale: float, unit: str) -> PlainTable:
    """Return the lines of the difference, each with its folded modules and shapes."""
    lines = [line for line in result.lines[:_LINES] if is_shown(line.difference_ns, scale)]
    alike = Counter((line.name, line.category, line.level) for line in lines)
    rows = [
        (
            line_name(line), *(scaled(ns, scale) for ns in times_a_step(line, result)),
            signed(line.difference_ns, scale),
            line_detail(line, result, scale, has_phase=alike[line.name, line.category, line.level] > 1),
        )
        for line in lines
    ]  # fmt: skip
    headings = (f"{unit}{a_step(result)}", "Before", "After", "Change", "How")
    return PlainTable(headings, "lrrrl", rows, under=partial(_parts, result, lines, scale), most=_TEXT_LINES)


def _parts(result: Comparison, lines: Sequence[Line], scale: float) -> dict[int, list[tuple[str, ...]]]:
    """Return the modules and shapes of each line, by its place."""
    parts = decomposition.parts_of_lines(result).partition_by(decomposition.LINE_KEY, as_dict=True)
    own = (parts.get(tuple(getattr(line, name) for name in decomposition.LINE_KEY)) for line in lines)
    return {
        place: [
            (
                " ".join(text for text in (part["module"], part["shapes"]) if text) or "elsewhere",
                scaled(part["before_ns"], scale), scaled(part["after_ns"], scale), signed(part["difference_ns"], scale),
            )
            for part in rows.head(_PARTS).to_dicts()
        ]
        for place, rows in enumerate(own)
        if rows is not None
    }  # fmt: skip


def line_detail(line: Line, result: Comparison, scale: float, *, has_phase: bool = False) -> str:
    """Write category, level, counts per step and split of a line; its phase where another one differs in that alone."""
    words = [] if line.kind == "idle" else [line_phrase(line.category)]
    words.append(_LEVELS[line.level])
    words += [line.phase] if has_phase and line.phase else []
    counts = counts_a_step(line, result)
    if counts:
        plural = "" if counts[1] == 1 else "s"
        what = f"{f' gap{plural}' if line.kind == 'idle' else f' call{plural}' if result.whole else ''}{a_step(result)}"
        words.append(f"{' → '.join(dict.fromkeys(map(_few, counts)))}{what}")
        if line.by_count_ns and line.by_time_ns:
            words.append(f"by count {signed(line.by_count_ns, scale)}, by time {signed(line.by_time_ns, scale)}")
    if line.by_hardware_ns is not None and line.by_software_ns is not None:
        words.append(f"hardware {signed(line.by_hardware_ns, scale)}, software {signed(line.by_software_ns, scale)}")
    if line.significant is False:
        words.append(CHANCE)
    return ", ".join(words)


def _few(number: float) -> str:
    """Write a count per step: an integer, or one decimal.

    >>> _few(20.0), _few(1.25), _few(0.0), _few(1234.5)
    ('20', '1.2', '0', '1,234')
    """
    return f"{number:,.0f}" if number >= 100 or number == round(number) else f"{number:,.1f}"


def _promises(result: Comparison, scale: float, unit: str) -> list[str]:
    rows, of = [], a_step(result)
    for kept in result.promises:
        bound_phrase = "within the bound" if kept.bound_held else "more than the bound"
        if kept.bound_held and kept.came_ns > kept.promised_ns_at_most:
            alike = kept.step_ns > kept.promised_ns_at_most
            bound_phrase = "as much as the bound" if alike else "more than the bound in its own lines, not in the whole"
        if kept.evidence == "part came":
            bound_phrase += ", and AFTER's report still advises it"
        rows.append(
            f"{kept.title}: at most {scaled(kept.promised_ns_at_most, scale)} {unit}{of} were promised,"
            f" {scaled(kept.came_ns, scale)} came{_late(kept, scale)}, {bound_phrase}; the {of.removeprefix(' a ') or 'recording'} takes {scaled(abs(kept.step_ns), scale)} {'less' if kept.step_ns >= 0 else 'more'}{_others(kept, scale)}"
            f"{_prediction(kept, scale)}"
        )
    return rows


def _late(kept: judgement.KeptPromise, scale: float) -> str:
    """Write the part of the saving in launches that were late because waits had emptied the queue."""
    if not is_shown(kept.late_launches_ns, scale):
        return ""
    own = scaled(kept.came_ns - kept.late_launches_ns, scale)
    return f" ({own} of it in waits, {scaled(kept.late_launches_ns, scale)} in launches that waits had made late)"


def _others(kept: judgement.KeptPromise, scale: float) -> str:
    """Write the change of all other lines, where it is at least a tenth of the actual saving."""
    others = kept.came_ns - kept.step_ns
    return f", as other lines take {signed(others, scale)}" if abs(others) > 0.1 * kept.came_ns else ""


def _prediction(kept: judgement.KeptPromise, scale: float) -> str:
    """Write the replay's prediction for the step, and whether it held."""
    if kept.predicted_ns is None or kept.predicted_interval_ns is None:
        return ""
    low, high = sorted(-end for end in kept.predicted_interval_ns)
    held = {None: "for this change alone", True: "which held", False: "which did not hold"}[kept.prediction_held]
    return f"; the replay predicted {signed(-kept.predicted_ns, scale)} ({signed(low, scale)} to {signed(high, scale)}), {held}"


def waterfall(bars: Sequence[Bar], before_ns: float, after_ns: float, of: str = " a step") -> Chart:
    """Declare a waterfall from the step before to the step after, largest changes first; the rest is one bar."""
    scale, unit = scale_of(max(before_ns, after_ns))
    rows = comparison.waterfall_rows(bars, before_ns, after_ns)
    start, end = (ns / scale for ns in comparison.scale_ends(rows))
    middles = [len(rows) - place - 0.5 for place in range(len(rows))]
    changes = [
        scaled(row.end_ns, scale) if row.difference_ns is None else signed(row.difference_ns, scale) for row in rows
    ]
    right = [max(row.start_ns, row.end_ns) / scale for row in rows]
    boxes = Boxes(
        [max(start, min(row.start_ns, row.end_ns) / scale) for row in rows], right,
        [middle - 0.4 for middle in middles], [middle + 0.4 for middle in middles],
        ["queue" if not row.difference_ns or row.within_chance else COLOURS["slower" if row.difference_ns > 0 else "faster"] for row in rows],
        {"": [visible(row.name) for row in rows], unit: [f"{change} {CHANCE}" if row.within_chance else change for change, row in zip(changes, rows, strict=True)]},
    )  # fmt: skip
    names = {middle: _end(visible(row.name)) for middle, row in zip(middles, rows, strict=True)}
    begins = f", from {scaled(start * scale, scale)} on" if start else ""
    return Chart(
        Axis(f"{unit}{of}{begins}", ends=(start, end)), Axis("", ticks=names, names=True, ends=(0, len(rows))),
        (boxes, Labels(right, middles, changes, "text-soft")), height=60 + 26 * len(rows), least_width=_NARROWEST,
    )  # fmt: skip


def _end(name: str) -> str:
    """Return the end of a long name, the most informative part of a module path."""
    return name if len(name) <= _LABEL_CELLS else f"…{name[1 - _LABEL_CELLS :]}"


def timelines(result: Comparison) -> Chart | None:
    """Declare one typical step of each side on one axis, by category; None where a side has no single events.

    Its legend has the colours with most time in both.
    """
    sides = [side.timeline() if side.timeline else None for side in result.sides]
    before, after = sides if len(sides) == 2 else (None, None)
    if result.before is None or before is None or after is None or before.is_empty() or after.is_empty():
        return None
    scale, unit = scale_of(result.before.step_ns)
    rows = [(place, *row) for place, side in ((1, before), (0, after)) for row in side.iter_rows()]
    boxes = Boxes(
        [start / scale for _, start, *_ in rows], [end / scale for _, _, end, *_ in rows],
        [place + 0.1 for place, *_ in rows], [place + 0.9 for place, *_ in rows],
        [_colour(kind, category) for *_, kind, category, _ in rows],
        {
            "category": [line_label(category) for *_, category, _ in rows],
            "name": [visible(line_label(name) if name == category else name) for *_, category, name in rows],
            unit: [scaled(end - start, scale) for _, start, end, *_ in rows],
        },
    )  # fmt: skip
    key = comparison.times_by_colour(
        (_colour(kind, category), category, end - start) for _, start, end, kind, category, _ in rows
    )
    return Chart(
        Axis(unit, ends=(0, max(boxes.right))), Axis("", ticks={1.5: "before", 0.5: "after"}, names=True, ends=(0, 2)), (boxes,),
        legend=tuple((visible(name), colour) for name, colour in key), height=220, least_width=_WIDEST, zooms=True,
    )  # fmt: skip


def _colour(kind: str, category: str) -> str:
    if kind == "idle":
        return f"p-{category if category in PARTS else 'unexplained'}"
    if kind == "kernel":
        product = "matmul" if category in ("convolution", "attention", "bmm") else "pointwise"
        return f"k-{category if category in GROUPS else product}"
    return "p-communication" if kind == "communication" else "p-copy"


def flame_graph(result: Comparison) -> Flame:
    """Declare a differential flame graph of kinds of time, modules and operators, coloured by change.

    A frame has the width of the larger side.

    After Gregg 2016, "The Flame Graph" (https://doi.org/10.1145/2909476), with both widths kept.
    """
    frames = comparison.flame_rows(result)
    scale, unit = scale_of(max(frames[0].before_ns, frames[0].after_ns))
    names = [visible(frame.name) for frame in frames]
    both = [
        f"{unit}{a_step(result)}: {scaled(f.before_ns, scale)} before, {scaled(f.after_ns, scale)} after"
        for f in frames
    ]
    nodes = pl.DataFrame(
        {
            "caller": [frame.caller for frame in frames], "frame": names, "label": names, "colour": [COLOURS[frame.change] for frame in frames],
            "value_ns": [frame.width_ns for frame in frames], "note": both,
        }
    )  # fmt: skip
    return Flame("differential", "The longer side", nodes)


_HELD = {True: "yes", False: "no", None: "–"}
_HEADINGS = ("Turn", "Change", "Before", "Predicted", "After", "Came", "Held", "Decision")


def loop_document(result: Loop) -> Document:
    """Return the document: how many changes were kept, the turns, and what is next."""
    decisions: list[str] = [turn.decision for turn in result.turns]
    kept, reverted, left = map(decisions.count, ("keep", "revert", "open"))
    headline = f"{counted(len(result.turns), 'turn')}: {kept} kept, {reverted} reverted, {left} open."
    rows = PlainTable(_HEADINGS, "rlrlrlll", [_row(turn) for turn in result.turns])
    turns = Chapter("turns", "Prediction against what came", [rows])
    return Document(
        "loop", headline, (turns, Chapter("last", "Last turn", [Notes(_last(turn)) for turn in result.turns[-1:]]))
    )


def _row(turn: Turn) -> tuple[str, ...]:
    predicted, came, before, after = "–", "–", *map(duration, turn.steps_ns or (None, None))
    if turn.saves_ratio is not None:
        predicted = _saved(turn.saves_ratio, turn.interval_ratio)
    elif turn.at_most_ratio is not None:
        predicted = f"at most {_saved(turn.at_most_ratio)}"
    if turn.steps_ns is not None:
        now, then = turn.steps_ns
        came = _saved(
            1 - then / now, turn.interval_ns and (-turn.interval_ns[1] / now, min(-turn.interval_ns[0] / now, 1.0))
        )
    change = turn.note or turn.patch or turn.title or "–"
    return str(turn.number), change, before, predicted, after, came, _HELD[turn.prediction_held], turn.decision


def _saved(ratio: float, interval: tuple[float, float] | None = None) -> str:
    """Return the change of a step, and its interval: ``-60 % (-57 % to -61 %)`` for one that saves 60 %."""
    text = f"{'-' if ratio > 0 else '+' if ratio < 0 else ''}{percent(abs(ratio))}"
    return text if interval is None else f"{text} ({_saved(interval[0])} to {_saved(interval[1])})"


def _last(turn: Turn) -> list[str]:
    advice = f"Advice {turn.advice}: {turn.title}." if turn.advice else "The report has no advice that saves time."
    needs = f"a decision needs {statistics.LEAST_OBSERVATIONS} of each side: analyze loop start LOOP FOLDER"
    lines = [advice]
    if turn.has_few_before:
        lines.append(f"{counted(len(turn.before), 'recording')} before the change; {needs}.")
    if turn.after:
        following = "check LOOP FOLDER, with more recordings" if turn.decision == "open" else "start LOOP"
        lines.append(f"Decision: {turn.decision}: {turn.why}.")
        return lines if turn.has_few_before else [*lines, f"Next: analyze loop {following}."]
    if turn.note or turn.patch:
        return [*lines, "Next: record the changed program, then analyze loop check LOOP TRACE."]
    return [*lines, "Next: change the program, then analyze loop apply LOOP --note TEXT."]


_OPERATORS = 12
_SCALING = "Where the host's time and the device's line cross, the device takes over."


def scaling_document(result: scaling.Scaling) -> Document:
    """Return the document: points with their plot, exponents, lower bound, line, proof and contradictions."""
    if result.status == "refused" or not result.points:
        return Document("scaling", result.headline, [Chapter("notes", "Notes", [Notes(result.notes)])])
    scale, unit = scale_of(max(point.step_ns for point in result.points))
    points = [
        (str(p.batch), scaled(p.step_ns, scale), scaled(p.busy_ns, scale), scaled(p.idle_ns, scale), percent(p.busy_ratio),
         p.verdict or "–", largest_lever(p.levers), p.path)
        for p in result.points
    ]  # fmt: skip
    others = (*result.busy, *result.operators[:_OPERATORS])
    exponents = [
        (f"{item.exponent:.2f}", name, f"{item.from_batch} to {item.to_batch}", f"{duration(item.before_ns)} to {duration(item.after_ns)}",
         f"{item.work} x {number(item.work_ratio)}")
        for name, item in (*((result.timed, item) for item in result.step), *((item.name, item) for item in others))
    ]  # fmt: skip
    title = f"{result.timed.capitalize()}, busy and idle time"
    return Document(
        "scaling",
        result.headline,
        (
            Chapter("times", title, [
                Figure(title, _SCALING, partial(scaling_chart, result)),
                PlainTable(("Batch", f"{result.timed.capitalize()} ({unit})", "Busy", "Idle", "Busy %", "Verdict", "Saves most", "Trace"), "rrrrrlll", points),
            ]),
            Chapter("exponents", "Exponents", [PlainTable(("Exponent", "Time", "Batches", "From, to", "Work"), "rllll", exponents)],
                    "0 is flat, 1 grows with the work."),
            Chapter("notes", "Notes", [Notes([*_host_and_device(result), *result.notes, *result.contradictions])]),
        ),
    )  # fmt: skip


def _host_and_device(result: scaling.Scaling) -> list[str]:
    lines = []
    if result.host_floor_ns is not None:
        lines.append(f"The host takes {duration(result.host_floor_ns)} a {result.timed}, whatever the batch")
    if line := result.device_line:
        lines.append(f"The device takes {duration(line.fixed_ns)} + {duration(line.per_item_ns)} an item")
    if result.flip_batch:
        bound = ", an upper bound: kernels of small batches grow less than later ones" if result.is_upper_bound else ""
        lines.append(f"Both take as long at batch {result.flip_batch:.0f}{bound}")
    return lines


_FURTHEST = 4
"""Limit of the device's line, as a multiple of the largest batch, where it crosses the host's time beyond the data."""


def scaling_chart(result: scaling.Scaling) -> Chart:
    """Declare step, busy and idle time over the batch, with the host's lower bound and the device's line."""
    scale, unit = scale_of(max(point.step_ns for point in result.points))
    batches = [float(point.batch) for point in result.points]
    marks: list[LineMark | Points] = []
    legend = {result.timed: "text-soft", "busy": "p-compute", "idle": "p-python"}
    for (name, colour), key in zip(legend.items(), ("step_ns", "busy_ns", "idle_ns"), strict=True):
        times = [getattr(point, key) for point in result.points]
        heights, texts = [ns / scale for ns in times], [scaled(ns, scale) for ns in times]
        marks.append(LineMark(name, batches, heights, colour))
        marks.append(
            Points(name, colour, batches, heights, {"batch": [f"{b:g}" for b in batches], f"{name}, {unit}": texts})
        )
    last = batches[-1]
    if result.device_line:
        line = result.device_line
        last = max(last, min(result.flip_batch or 0, _FURTHEST * last))
        ends = [batches[0], last]
        fitted = [(line.fixed_ns + line.per_item_ns * batch) / scale for batch in ends]
        marks.append(LineMark("device line", ends, fitted, "p-compute", "dotted"))
    if result.host_floor_ns is not None:
        marks.append(LineMark("host", [batches[0], last], [result.host_floor_ns / scale] * 2, "text-muted", "dashed"))
    return Chart(
        Axis("batch", counts=True, ends=(0, 1.05 * last)), Axis("time", f"{unit} a {result.timed}", ends=(0, None)), tuple(marks), legend=tuple(legend.items()),
        signs=(*((("╌", "host's time"),) if result.host_floor_ns is not None else ()), *((("┈", "device's line"),) if result.device_line else ())),
        height=420, least_width=_NARROWEST,
    )  # fmt: skip
