"""Write Bokeh figures as offline pages."""

from collections.abc import Sequence
from html import escape
from typing import Any

from markupsafe import Markup

from trace_analyzer.render.charts import palette_css
from trace_analyzer.render.html.bokeh_models import bokeh_library
from trace_analyzer.render.html.shell import asset
from trace_analyzer.units import visible
from trace_analyzer.version import tool_version

Figure = tuple[str, str, object]
"""A title, a caption (HTML if it is ``Markup``) and a plot."""


def figures_page(headline: str, facts: Markup | None, figures: Sequence[Figure], text: str) -> str:
    """Return HoloViews plots as an offline page: the headline, facts, the plots, and the complete text."""
    from bokeh.embed import components

    drawn = [_rendered(figure) for *_, figure in figures]
    script, parts = components(drawn) if drawn else ("", ())
    scripts = (bokeh_library(), asset("figure_page.js")) if drawn else ()
    sections = Markup("").join(
        Markup('<h2>{}</h2><p>{}</p><div class="figure">{}</div>').format(title, caption, Markup(part))
        for (title, caption, _), part in zip(figures, parts, strict=True)
    )
    words = f"<h2>In words</h2><pre>{escape(text)}</pre>" if text else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="generator" content="trace-analyzer {escape(tool_version())}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(visible(headline))}</title><style>{palette_css()}{asset('figure_page.css')}</style>"
        f"<script>{''.join(scripts)}</script></head>"
        f"<body><h1>{escape(visible(headline))}</h1>{facts or ''}{sections}"
        f"{words}{script}</body></html>\n"
    )


def _rendered(figure: Any) -> Any:
    """Return the Bokeh model of a HoloViews plot on the page's background; a Bokeh model is returned unchanged."""
    if type(figure).__module__.startswith("bokeh."):
        return figure
    import holoviews as hv
    from bokeh.models import Plot

    model = hv.render(figure, backend="bokeh")
    for plot in model.select({"type": Plot}):
        plot.update(background_fill_color=None, border_fill_color=None, outline_line_color=None)
        plot.output_backend = "canvas"  # emulated WebGL causes warnings, and has no benefit for so few shapes
    return model
