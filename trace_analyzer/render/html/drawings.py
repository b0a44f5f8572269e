"""Turn HoloViews plots into Bokeh documents for the page: in its colours, without code, each on its own."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import holoviews as hv
from bokeh.document import Document
from bokeh.models.annotations import Legend
from bokeh.models.glyph import Glyph

from trace_analyzer.render.palette import palette
from trace_analyzer.render.plots import PLOTS
from trace_analyzer.report import Report

_FONT = "system-ui, sans-serif"
_COLOUR_FIELDS = ("fill_color", "line_color", "text_color")


@dataclass(frozen=True)
class Drawing:
    """Hold a plot as Bokeh's document JSON; its legend as names with the CSS variables of their colours."""

    document: Mapping[str, Any]
    legend: tuple[tuple[str, str], ...]
    height: int


def drawings(report: Report, names: tuple[str, ...]) -> dict[str, Drawing]:
    """Return the named plots that the report has data for.

    Glyphs are tagged with the CSS variable of their colour: ``assets/plots.js`` gives them the theme's.
    """
    with _plain_data():
        made = {name: PLOTS[name](report) for name in names}
        return {name: _drawing(name, plot) for name, plot in made.items() if plot is not None}


@contextmanager
def _plain_data() -> Iterator[None]:
    """Keep HoloViews from looking for data frames: asking pandas about arrays takes as long as the drawing."""
    before = hv.Dataset.datatype
    hv.Dataset.datatype = ["dictionary", "grid"]
    try:
        yield
    finally:
        hv.Dataset.datatype = before


def _drawing(name: str, plot: hv.Element) -> Drawing:
    figure: Any = hv.render(plot, backend="bokeh")
    _tag_colours(figure)
    legend = _legend(figure)
    _bare(figure)
    figure.name = f"plot-{name}"
    document = Document()
    document.add_root(figure)
    return Drawing(document.to_json(deferred=False), legend, figure.height)


def _legend(figure: Any) -> tuple[tuple[str, str], ...]:
    """Return Bokeh's own legend; the page writes it beside the plot, where names can be no markup."""
    items = [item for legend in figure.legend for item in legend.items]
    return tuple((item.label.value, item.renderers[0].glyph.tags[0].removeprefix("--")) for item in items)


def _bare(figure: Any) -> None:
    """Fit the figure to its place, on the page's background; its heading and its legend are the page's."""
    figure.update(
        width=None, sizing_mode="stretch_width", toolbar_location=None, title=None,
        background_fill_alpha=0, border_fill_alpha=0, outline_line_color=None, min_border_right=16,
        lod_threshold=None, output_backend="canvas",
    )  # fmt: skip
    figure.axis.axis_label_text_font_style = "normal"
    figure.axis.axis_label_text_font = figure.axis.major_label_text_font = _FONT
    figure.axis.minor_tick_line_color = None
    figure.grid.minor_grid_line_color = None
    figure.center = [part for part in figure.center if not isinstance(part, Legend)]


def _tag_colours(figure: Any) -> None:
    """Tag each glyph with the name of its colour: of those for kinds and parts, the first that has it."""
    colours = {
        hexadecimal: name for name, hexadecimal in reversed(list(palette().items())) if name[:2] in ("p-", "k-", "qu")
    }
    for renderer in figure.renderers:
        for glyph in (renderer.glyph, renderer.nonselection_glyph, renderer.selection_glyph, renderer.muted_glyph):
            if not isinstance(glyph, Glyph):
                continue
            used = (getattr(glyph, field) for field in _COLOUR_FIELDS if field in glyph.properties())
            glyph.tags = [f"--{colours[colour]}" for colour in used if isinstance(colour, str) and colour in colours][
                :1
            ]
