"""Write a comparison, or a series of batches, as one offline HTML file."""

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup, escape

from trace_analyzer import forks
from trace_analyzer.compare.comparison import Comparison
from trace_analyzer.compare.phrasing import scale_of, scaled, signed
from trace_analyzer.compare.scaling import Scaling
from trace_analyzer.compare.text import summary
from trace_analyzer.files import write_text
from trace_analyzer.render.offline import bokeh_library
from trace_analyzer.render.palette import palette_css
from trace_analyzer.units import counted, visible
from trace_analyzer.version import tool_version

_STYLE = """
body { margin: 0 auto; max-width: 1040px; padding: 24px 16px 64px; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.35rem; line-height: 1.3; text-wrap: balance; } h2 { font-size: 1.05rem; margin: 2.5rem 0 .25rem; }
p, ul.notes { color: var(--text-soft); font-size: 13.5px; margin: .25rem 0 .5rem; max-width: 80ch; }
ul.notes { padding-left: 1.2em; } ul.notes li { margin: .25rem 0; }
table { border-collapse: collapse; font-size: 14px; margin: 1rem 0; }
th, td { text-align: left; padding: 4px 16px 4px 0; border-bottom: 1px solid var(--line); vertical-align: baseline; }
th { color: var(--text-muted); font-weight: 500; } td.n { font-variant-numeric: tabular-nums; white-space: nowrap; }
td.path { overflow-wrap: anywhere; } @media (max-width: 600px) { td.path { display: none; } th, td { padding-right: 10px; } }
pre { overflow-x: auto; white-space: pre-wrap; background: var(--sunken); padding: 12px; border-radius: 8px; font-size: 12.5px; }
.figure { overflow-x: auto; } .figure > div { width: 100%; }
.key { display: inline-block; margin-right: 14px; white-space: nowrap; }
.key i { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 5px; }
"""
_THEME = """
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  function paint() {
    document.documentElement.dataset.theme = dark.matches ? "dark" : "light";
    const css = getComputedStyle(document.documentElement), of = (name) => css.getPropertyValue("--" + name).trim();
    const axis = { axis_label_text_color: of("text-soft"), major_label_text_color: of("text-soft"), axis_line_color: of("text-muted"),
      major_tick_line_color: of("text-muted"), minor_tick_line_color: null };
    const plot = { background_fill_color: null, border_fill_color: null, outline_line_color: null, border_line_color: null };
    const legend = { background_fill_color: of("page"), label_text_color: of("text-soft"), border_line_color: null };
    for (const root of Bokeh.documents) for (const model of root._all_models.values()) {
      if (model.type.endsWith("Axis")) model.setv(axis);
      else if (model.type === "Grid") model.setv({ grid_line_color: of("grid") });
      else if (model.type === "Figure" || model.type === "Plot") model.setv(plot);
      else if (model.type === "Toolbar") model.setv({ logo: null });
      else if (model.type === "Legend") model.setv(legend);
      else if (model.tags.includes("ink")) model.setv({ [model.type === "Text" ? "text_color" : "line_color"]: { value: of("text-soft") } });
    }
  }
  dark.addEventListener("change", paint);
  addEventListener("load", () => setTimeout(paint, 0));
  document.documentElement.dataset.theme = dark.matches ? "dark" : "light";
})();
"""
_WATERFALLS = {
    "bucket": "By cause and bucket",
    "operator": "By operator",
    "module": "By module",
}
Figure = tuple[str, Markup, object]
"""A title, a caption and what is drawn."""


def write_html(result: Comparison, path: Path) -> Path:
    """Write waterfalls, timelines, flame graph and the text; nothing is fetched.

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
    write_text(path, _page(result.headline, _facts(result), figures, summary(result, 120)))
    return path


def write_scaling(result: Scaling, path: Path) -> Path:
    """Write the plot of a series of batches and its text."""
    from trace_analyzer.compare import plots

    figures: list[Figure] = []
    if result.points:
        figures.append(("Step, busy and idle time", escape(_SCALING), plots.scaling_plot(result)))
    facts = _list([*result.notes, *result.contradictions])
    write_text(path, _page(result.headline, facts, figures, result.summary(120)))
    return path


_WATERFALL = "From the step before to the step after: each bar is what changed, blue for less time and orange for more."
_FLAME = (
    "The step, kinds of time, modules and operators, each as wide as the longer side: blue takes less time than before, orange more, grey the"
    " same within 2 %."
)
_SCALING = "Dashed: the host's time a step. Dotted: the device's time as a line over the batch. Where they cross, the device takes over."


def _key(keys: list[tuple[str, str]]) -> Markup:
    """Return the caption of the timelines: the colours of what owns most time."""
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
            name, scaled(side.step_ns, scale), unit, counted(side.steps, "step"), side.verdict or "no verdict", visible(side.path)
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
    return Markup("<table>{}{}</table>").format(rows, change) + _list(result.notes)


def _list(notes: Sequence[str]) -> Markup:
    items = Markup("").join(Markup("<li>{}</li>").format(visible(note)) for note in notes)
    return Markup('<ul class="notes">{}</ul>').format(items) if notes else Markup("")


def _page(headline: str, facts: Markup, figures: list[Figure], text: str) -> str:
    """Return the page: headline, figures with Bokeh's scripts inline, and the text."""
    import holoviews as hv
    from bokeh.embed import components

    drawn = [hv.render(figure, backend="bokeh") for *_, figure in figures]
    script, parts = components(drawn) if drawn else ("", ())
    scripts = bokeh_library() if drawn else ""
    sections = Markup("").join(
        Markup('<h2>{}</h2><p>{}</p><div class="figure">{}</div>').format(title, caption, Markup(part))
        for (title, caption, _), part in zip(figures, parts, strict=True)
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="generator" content="trace-analyzer {escape(tool_version())}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(visible(headline))}</title><style>{palette_css()}{_STYLE}</style>"
        f"<script>{scripts}{_THEME if drawn else ''}</script></head>"
        f"<body><h1>{escape(visible(headline))}</h1>{facts}{sections}"
        f"<h2>In words</h2><pre>{escape(text)}</pre>{script}</body></html>\n"
    )
