"""Show a report's plots in notebooks without preparation by the user."""

import sys
from functools import cache
from typing import Any

from trace_analyzer.render.plots import plots
from trace_analyzer.report import Report


class Plots(dict[str, Any]):
    """Map names to HoloViews objects; its text representation is the names."""

    def __repr__(self) -> str:
        return f"<{len(self)} plots: {', '.join(self)}>"


def shown_plots(report: Report) -> Plots:
    """Return the plots by name; in a notebook, load the scripts that display them first."""
    load_into_notebook()
    return Plots(plots(report))


def load_into_notebook() -> None:
    """Load the scripts that display HoloViews plots, once, if this runs in a notebook."""
    ipython = sys.modules.get("IPython")
    if ipython is not None and getattr(ipython.get_ipython(), "kernel", None) is not None:
        _load_into_notebook()


@cache
def _load_into_notebook() -> None:
    """Load Bokeh's scripts into the notebook, once per kernel."""
    import holoviews as hv

    hv.extension("bokeh", logo=False)
