"""Summarize a report in a few lines, for the prompt of Python and of notebooks."""

from pathlib import PurePath

from trace_analyzer import units
from trace_analyzer.render import phrasing
from trace_analyzer.report import Report

_LONGEST = 160
_TOP = 2


def glance(report: Report) -> str:
    """Return five lines: the file, the verdict, its reason, the best advice, and how to continue."""
    verdict = report.verdict
    name = PurePath(report.trace.path).name or report.trace.path
    sure = f" ({verdict.confidence} confidence)" if verdict.regime else ""
    advice = "; ".join(
        f"{item.title} (at most {units.duration(item.saves_ns_at_most)})" for item in report.advice[:_TOP]
    )
    lines = (
        f"<Report of {name}>",
        phrasing.verdict_label(verdict) + sure,
        phrasing.sentences(phrasing.headline(verdict))[0],
        f"Advice: {advice or 'none'}",
        "print(report) for the summary; .advice, .explain(id), .tables, .plots, .to_html(path)",
    )
    return "\n  ".join(units.shorten(units.visible(line), _LONGEST) for line in lines)
