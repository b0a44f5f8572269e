"""Make the parts of a report on demand, as few tests read more than a table or the verdict.

Each is made within a query, as whole reports are, which takes a quarter less CPU time.
"""

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

from trace_analyzer import analysis, ingest, pipeline
from trace_analyzer.options import Options
from trace_analyzer.report import Report
from trace_analyzer.tuning import within_query


class LazyReport(Report):
    """Make each field on first access, from one graph; code that needs the whole report gets a report of its own."""

    @classmethod
    def on(cls, content: bytes, **options: Any) -> "LazyReport":
        """Return the report on this file."""
        report = object.__new__(cls)
        trace = ingest.load(content)
        chosen = Options(**options)
        graph = pipeline.graph_of(trace, chosen, kept=[*PARTS.values(), "device_reports"])
        made = pipeline.public_tables(graph)
        tables = analysis.LazyTables({name: partial(within_query, partial(made.__getitem__, name)) for name in made})
        report.__dict__.update(_trace=trace, _options=chosen, _graph=graph, tables=tables)
        return report


PARTS = {
    "trace": "trace_info", "trust": "checks", "notes": "notes", "verdict": "verdict", "steps": "step_reports",
    "blame": "blame_rows", "host_costs": "host_cost_rows", "advice": "advice",
}  # fmt: skip
"""Field of a report -> value of the graph."""


def _part(value: str) -> Callable[[LazyReport], Any]:
    return lambda report: within_query(lambda: _graph(report).take(value))


def _whole(field: str) -> Callable[[LazyReport], Any]:
    return lambda report: getattr(pipeline.report_of(_trace(report), report.__dict__["_options"]), field)


def _graph(report: LazyReport) -> analysis.TableGraph:
    graph: analysis.TableGraph = report.__dict__["_graph"]
    return graph


def _trace(report: LazyReport) -> ingest.Trace:
    trace: ingest.Trace = report.__dict__["_trace"]
    return trace


_MADE: dict[str, Callable[[LazyReport], Any]] = {
    **{field: _part(value) for field, value in PARTS.items()},
    "devices": lambda report: tuple(_part("device_reports")(report).values()),
    **{field: _whole(field) for field in ("schema_version", "tool_version", "steps_from", "declared")},
}

for _field, _make in _MADE.items():
    _made = cached_property(_make)
    _made.__set_name__(LazyReport, _field)
    setattr(LazyReport, _field, _made)
