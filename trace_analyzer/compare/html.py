"""Write a comparison, or a series of batches, as one offline HTML file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from trace_analyzer import forks
from trace_analyzer.compare.comparison import Comparison, Line
from trace_analyzer.compare.decomposition import LINE_KEY, parts_of_lines
from trace_analyzer.compare.figures import times_a_step
from trace_analyzer.compare.phrasing import is_shown, limit, line_name, scale_of, scaled, signed
from trace_analyzer.compare.scaling import Scaling
from trace_analyzer.compare.text import line_detail, summary
from trace_analyzer.files import write_text
from trace_analyzer.render.offline import Figure, figures_page
from trace_analyzer.units import counted, visible

_WATERFALLS = {
    "bucket": "By cause and bucket",
    "operator": "By operator",
    "module": "By module",
}


_LINES, _PARTS = 40, 24
"""Number of lines of the table, and of rows in each unfolded line."""


def write_html(result: Comparison, path: Path) -> Path:
    """Write a page with waterfalls, timelines, flame graph and the text, without external resources.

    Raises ``OSError`` when it cannot be written, ``ForkedError`` where Polars would hang.
    """
    from trace_analyzer.compare import plots

    forks.check()
    figures: list[Figure] = []
    if result.before is not None and result.after is not None and result.status == "ok":
        step = (result.before.step_ns, result.after.step_ns)
        for by, title in _WATERFALLS.items():
            figures.append((title, escape("" if figures else _WATERFALL), plots.waterfall(result.waterfall[by], *step)))
        timeline = plots.timelines(result)
        if timeline is not None:
            figures.insert(1, ("Timelines", _key(plots.timeline_key(result)), timeline))
        figures.append(("Differential flame graph", escape(_FLAME), plots.flame_graph(result)))
    write_text(path, figures_page(result.headline, _facts(result), figures, summary(result, 120)))
    return path


def write_scaling(result: Scaling, path: Path) -> Path:
    """Write a page with the plot of a series of batches and its text."""
    from trace_analyzer.compare import plots

    figures: list[Figure] = []
    if result.points:
        figures.append(("Step, busy and idle time", escape(_SCALING), plots.scaling_plot(result)))
    facts = _list([*result.notes, *result.contradictions])
    write_text(path, figures_page(result.headline, facts, figures, result.summary(120)))
    return path


_WATERFALL = "From the step before to the step after: each bar is what changed, blue for less time and orange for more."
_FLAME = (
    "The step, kinds of time, modules and operators, each as wide as the longer side: blue takes less time than before, orange more, grey the"
    " same within 2 %."
)
_SCALING = "Dashed: the host's time a step. Dotted: the device's time as a line over the batch. Where they cross, the device takes over."


def _key(keys: list[tuple[str, str]]) -> Markup:
    """Return the legend of the timelines: the colours of the categories with most time."""
    items = Markup("").join(
        Markup('<span class="key"><i style="background:{}"></i>{}</span>').format(colour, visible(name))
        for name, colour in keys
    )
    return Markup("A typical step of each side, by what owns each instant; drag to zoom in.<br>") + items


def _facts(result: Comparison) -> Markup:
    """Return the table of both sides and the notes."""
    if result.before is None or result.after is None or result.status == "refused":
        return Markup("")
    scale, unit = scale_of(max(result.before.step_ns, result.after.step_ns))
    rows = Markup("").join(
        Markup('<tr><th>{}</th><td class="n">{} {}</td><td class="n">{}</td><td>{}</td><td class="path">{}</td></tr>').format(
            name, scaled(side.step_ns, scale), unit, counted(side.steps, "step"), limit(side), visible(side.path)
        )
        for name, side in (("before", result.before), ("after", result.after))
    )  # fmt: skip
    low_high = ""
    if result.interval_ns:
        low_high = (
            f"95 % interval {signed(result.interval_ns[0], scale)} to {signed(result.interval_ns[1], scale)} {unit}"
        )
    change = Markup('<tr><th>change</th><td class="n">{} {}</td><td colspan="3">{}</td></tr>').format(
        signed(result.difference_ns or 0.0, scale), unit, low_high
    )
    return Markup("<table>{}{}</table>").format(rows, change) + _list(result.notes) + _lines(result, scale, unit)


def _lines(result: Comparison, scale: float, unit: str) -> Markup:
    """Return the lines of the difference, each with its folded modules and shapes."""
    parts = {key: rows.to_dicts() for key, rows in parts_of_lines(result).partition_by(LINE_KEY, as_dict=True).items()}
    items = Markup("").join(
        _line(line, parts.get(tuple(getattr(line, name) for name in LINE_KEY), [])[:_PARTS], result, scale)
        for line in result.lines[:_LINES]
        if is_shown(line.difference_ns, scale)
    )
    if not items:
        return Markup("")
    head = Markup(
        '<tr><th></th><td class="n">before</td><td class="n">after</td><td class="n">change</td><td class="path">how</td></tr>'
    )
    return Markup(
        '<details id="lines"><summary>Lines by operator and cause ({} a step)</summary><table>{}{}</table></details>'
    ).format(unit, head, items)


def _line(line: Line, parts: Sequence[Mapping[str, Any]], result: Comparison, scale: float) -> Markup:
    """Return a row of a line with its folded parts."""
    before_ns, after_ns = times_a_step(line, result)
    name: str | Markup = visible(line_name(line))
    if parts:
        rows = Markup("").join(
            Markup('<tr><td>{}</td><td class="n">{}</td><td class="n">{}</td><td class="n">{}</td></tr>').format(
                visible(" ".join(text for text in (part["module"], part["shapes"]) if text) or "elsewhere"),
                scaled(part["before_ns"], scale), scaled(part["after_ns"], scale), signed(part["difference_ns"], scale),
            )
            for part in parts
        )  # fmt: skip
        name = Markup("<details><summary>{}</summary><table>{}</table></details>").format(name, rows)
    return Markup('<tr><th>{}</th><td class="n">{}</td><td class="n">{}</td><td class="n">{}</td><td class="path">{}</td></tr>').format(
        name, scaled(before_ns, scale), scaled(after_ns, scale), signed(line.difference_ns, scale), line_detail(line, result, scale)
    )  # fmt: skip


def _list(notes: Sequence[str]) -> Markup:
    items = Markup("").join(Markup("<li>{}</li>").format(visible(note)) for note in notes)
    return Markup('<ul class="notes">{}</ul>').format(items) if notes else Markup("")
