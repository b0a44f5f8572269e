"""Write a comparison, or a series of batches, as one offline HTML file."""

from pathlib import Path

from markupsafe import Markup, escape

from trace_analyzer import forks
from trace_analyzer.compare.comparison import Comparison
from trace_analyzer.compare.scaling import Scaling
from trace_analyzer.compare.text import summary
from trace_analyzer.files import write_text
from trace_analyzer.render.palette import palette_css
from trace_analyzer.units import visible
from trace_analyzer.version import tool_version

_STYLE = """
body { margin: 0 auto; max-width: 1040px; padding: 24px 16px 64px; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.35rem; line-height: 1.3; } h2 { font-size: 1.05rem; margin: 2.5rem 0 .5rem; }
pre { overflow-x: auto; white-space: pre-wrap; background: var(--sunken); padding: 12px; border-radius: 8px; font-size: 12.5px; }
.figure { overflow-x: auto; }
"""
_TITLES = {
    "bucket": "By cause and bucket",
    "operator": "By operator",
    "module": "By module",
}


def write_html(result: Comparison, path: Path) -> Path:
    """Write waterfalls, timelines, flame graph and the text; nothing is fetched.

    Raises ``OSError`` when it cannot be written, ``ForkedError`` where Polars would hang.
    """
    from trace_analyzer.compare import plots

    forks.check()
    figures: list[tuple[str, object]] = []
    if result.before is not None and result.after is not None and result.status == "ok":
        step = (result.before.step_ns, result.after.step_ns)
        figures += [(title, plots.waterfall(result.waterfall[by], *step, "")) for by, title in _TITLES.items()]
        timeline = plots.timelines(result)
        if timeline is not None:
            figures.insert(1, ("Timelines", timeline))
        figures.append(("Differential flame graph", plots.flame_graph(result)))
    write_text(path, _page(result.headline, figures, summary(result, 120)))
    return path


def write_scaling(result: Scaling, path: Path) -> Path:
    """Write the plot of a series of batches and its text."""
    from trace_analyzer.compare import plots

    figures = [("Step, busy and idle time", plots.scaling_plot(result))] if result.points else []
    write_text(path, _page(result.headline, figures, result.summary(120)))
    return path


def _page(headline: str, figures: list[tuple[str, object]], text: str) -> str:
    """Return the page: headline, figures with Bokeh's scripts inline, and the text."""
    import holoviews as hv
    from bokeh.embed import components
    from bokeh.resources import INLINE

    drawn = [hv.render(figure, backend="bokeh") for _, figure in figures]
    script, parts = components(drawn) if drawn else ("", ())
    sections = Markup("").join(
        Markup('<h2>{}</h2><div class="figure">{}</div>').format(title, Markup(part))
        for (title, _), part in zip(figures, parts, strict=True)
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="generator" content="trace-analyzer {escape(tool_version())}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(visible(headline))}</title><style>{palette_css()}{_STYLE}</style>"
        f"{INLINE.render() if drawn else ''}</head><body><h1>{escape(visible(headline))}</h1>{sections}"
        f"<h2>In words</h2><pre>{escape(text)}</pre>{script}</body></html>\n"
    )
