"""Write Bokeh figures as pages that need no network."""

from html import escape
from typing import Any

from trace_analyzer.units import visible


def bokeh_library() -> str:
    """Return BokehJS as JavaScript.

    It holds Bokeh's own scripts alone: `bokeh.embed.file_html` adds those of extensions that happen to be imported, and
    Panel's, which HoloViews imports, are files of a server.
    """
    from bokeh.resources import Resources

    return "\n".join(Resources(mode="inline", components=["bokeh"]).js_raw)


def figure_page(figure: Any, title: str) -> str:
    """Return one Bokeh figure or layout as an HTML page with nothing beside it."""
    from bokeh.embed import components

    script, place = components(figure)
    head = f'<meta charset="utf-8"><title>{escape(visible(title))}</title><script>{bokeh_library()}</script>'
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head><body>{place}{script}</body></html>\n'
