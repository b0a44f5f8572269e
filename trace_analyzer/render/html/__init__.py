"""Render the report as one offline HTML file.

Importing this package imports neither Bokeh nor Jinja, so that the command line can call `is_own_report` without them;
the functions below import them when they draw.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from trace_analyzer import forks
from trace_analyzer.files import write_text
from trace_analyzer.installation import GENERATOR
from trace_analyzer.tuning import within_query

if TYPE_CHECKING:
    from trace_analyzer.report import Report

__all__ = ["html", "is_own_report", "notebook_html", "write_html"]

_HEAD_BYTES = 4096
_DOCTYPE = b"<!doctype html>"
_MARKER = f'<meta name="generator" content="{GENERATOR} '.encode()


def html(report: "Report", *, command: str = "", compact: bool = False, max_mb: float | None = None) -> str:
    """Return the whole page as text, with styles, scripts and data inline and no external resources.

    ``command`` is the command line that made the report, for display. A ``compact`` page ends after the timeline. A
    page that would exceed ``max_mb`` leaves out part of the timeline and states this.
    """
    from trace_analyzer.render.html.view import page

    forks.check()
    return within_query(lambda: page(report, command, compact=compact, max_mb=max_mb))


def notebook_html(report: "Report") -> str:
    """Return verdict and timeline in a frame that isolates their styles and scripts from the notebook."""
    from trace_analyzer.render.html.view import frame

    return frame(html(report, compact=True))


def write_html(report: "Report", path: Path, *, command: str = "", max_mb: float | None = None) -> Path:
    """Write the page to ``path`` in one step and return it.

    Raises ``OSError`` when it cannot be written; an earlier file then stays as it was.
    """
    write_text(path, html(report, command=command, max_mb=max_mb))
    return path


def is_own_report(path: Path) -> bool:
    """Return whether the file is a report written by this program; only its head is read."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return False
    return head.startswith(_DOCTYPE) and _MARKER in head
