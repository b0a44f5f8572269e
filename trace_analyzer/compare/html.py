"""Write a comparison, or a series of batches, as one offline HTML file."""

from collections.abc import Sequence
from pathlib import Path

from trace_analyzer import forks
from trace_analyzer.compare import charts
from trace_analyzer.compare.comparison import Comparison
from trace_analyzer.compare.decomposition import LINE_KEY, parts_of_lines
from trace_analyzer.compare.figures import times_a_step
from trace_analyzer.compare.phrasing import is_shown, limit, line_name, scale_of, scaled, signed
from trace_analyzer.compare.scaling import Scaling
from trace_analyzer.compare.text import line_detail, summary
from trace_analyzer.documents import Chapter, Figure, FlameFigure, Notes, PlainTable, Words
from trace_analyzer.files import write_text
from trace_analyzer.render.html.shell import document_page
from trace_analyzer.units import counted

_WATERFALLS = {"bucket": "By cause and bucket", "operator": "By operator", "module": "By module"}
_LINES, _PARTS = 40, 24
"""Number of lines of the table, and of rows in each unfolded line."""
_WATERFALL = "From the step before to the step after: each bar is what changed, blue for less time and orange for more."
_TIMELINES = "A typical step of each side, by what owns each instant; drag to zoom in."
_FLAME = "The step, kinds of time, modules and operators, each as wide as the longer side."
_FLAME_LEGEND = tuple(
    (text, charts.COLOURS[change])
    for change, text in (("faster", "less time"), ("slower", "more time"), ("even", "the same within 2 %"))
)
_SCALING = "Where the host's time a step and the device's line cross, the device takes over."


def write_html(result: Comparison, path: Path) -> Path:
    """Write a page with waterfalls, timelines, flame graph and the text, without external resources.

    Raises ``OSError`` when it cannot be written, ``ForkedError`` where Polars would hang.
    """
    forks.check()
    chapters = [Chapter("sides", "Both sides", _sides(result))]
    if result.before is not None and result.after is not None and result.status == "ok":
        step = (result.before.step_ns, result.after.step_ns)
        drawn = [
            Chapter(f"by-{by}", title, [Figure(title, "" if place else _WATERFALL, charts.waterfall(result.waterfall[by], *step))])
            for place, (by, title) in enumerate(_WATERFALLS.items())
        ]  # fmt: skip
        if (timeline := charts.timelines(result)) is not None:
            drawn.insert(1, Chapter("timelines", "Timelines", [Figure("Timelines", _TIMELINES, timeline)]))
        burning = FlameFigure("Differential flame graph", _FLAME, (charts.flame_graph(result),), _FLAME_LEGEND)
        chapters += [*drawn, Chapter("flames", "Differential flame graph", [burning])]
    chapters += [
        Chapter("lines", "Lines by operator and cause", _lines(result), folded=True),
        Chapter("words", "In words", [Words(summary(result, 120))], folded=True),
    ]
    write_text(path, document_page("comparison", result.headline, chapters))
    return path


def write_scaling(result: Scaling, path: Path) -> Path:
    """Write a page with the plot of a series of batches and its text."""
    title = "Step, busy and idle time"
    chapters = [
        Chapter("times", title, [Figure(title, _SCALING, charts.scaling_chart(result))] if result.points else []),
        Chapter("notes", "Notes", _notes([*result.notes, *result.contradictions])),
        Chapter("words", "In words", [Words(result.summary(120))]),
    ]
    write_text(path, document_page("scaling", result.headline, chapters))
    return path


def _sides(result: Comparison) -> list[PlainTable | Notes]:
    """Return the table of both sides and the notes."""
    if result.before is None or result.after is None or result.status == "refused":
        return []
    scale, unit = scale_of(max(result.before.step_ns, result.after.step_ns))
    rows = [
        (name, f"{scaled(side.step_ns, scale)} {unit}", counted(side.steps, "step"), limit(side), side.path)
        for name, side in (("before", result.before), ("after", result.after))
    ]
    interval = ""
    if result.interval_ns:
        low, high = (signed(end, scale) for end in result.interval_ns)
        interval = f"95 % interval {low} to {high} {unit}"
    rows.append(("change", f"{signed(result.difference_ns or 0.0, scale)} {unit}", "", interval, ""))
    return [PlainTable(("", "Step", "Steps", "Limit", "Trace"), "lrrll", rows), *_notes(result.notes)]


def _notes(notes: Sequence[str]) -> list[Notes]:
    return [Notes(notes)] if notes else []


def _lines(result: Comparison) -> list[PlainTable]:
    """Return the lines of the difference, each with its folded modules and shapes."""
    if result.before is None or result.after is None or result.status == "refused":
        return []
    scale, unit = scale_of(max(result.before.step_ns, result.after.step_ns))
    parts = {key: rows.to_dicts() for key, rows in parts_of_lines(result).partition_by(LINE_KEY, as_dict=True).items()}
    rows: list[tuple[str, ...]] = []
    under: dict[int, list[tuple[str, ...]]] = {}
    for line in (line for line in result.lines[:_LINES] if is_shown(line.difference_ns, scale)):
        before, after = (scaled(ns, scale) for ns in times_a_step(line, result))
        own = parts.get(tuple(getattr(line, name) for name in LINE_KEY), [])[:_PARTS]
        under[len(rows)] = [
            (
                " ".join(text for text in (part["module"], part["shapes"]) if text) or "elsewhere",
                scaled(part["before_ns"], scale), scaled(part["after_ns"], scale), signed(part["difference_ns"], scale),
            )
            for part in own
        ]  # fmt: skip
        change = signed(line.difference_ns, scale)
        rows.append((line_name(line), before, after, change, line_detail(line, result, scale)))
    headings = (f"{unit} a step", "Before", "After", "Change", "How")
    return [PlainTable(headings, "lrrrl", rows, under=under)] if rows else []
