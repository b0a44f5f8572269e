"""Make the parts of a report on demand, as few tests read more than a table or the verdict.

Each is made within a query, as whole reports are, which takes a quarter less CPU time.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import force_setattr, replace
from tiers import is_thorough

from trace_analyzer import analysis, ingest, installation, pipeline
from trace_analyzer.options import Options
from trace_analyzer.report import SCHEMA_VERSION, Report
from trace_analyzer.tuning import within_query


def report_on(source: Path | bytes, **options: Any) -> Report:
    """Return the report on a file, of which only the parts that are read are made, unless the run is thorough."""
    return pipeline.analyze(source, **options) if is_thorough() else LazyReport.on(source, **options)


PARTS = {
    "trace": "trace_info", "trust": "checks", "notes": "notes", "verdict": "verdict", "steps": "step_reports",
    "blame": "blame_rows", "host_costs": "host_cost_rows", "advice": "advice",
}  # fmt: skip
"""Field of a report -> value of the graph."""


def changed(report: Report, **changes: Any) -> Report:
    """Return the report with other values of these fields; those that are unset are made first."""
    return replace(report, **{name: getattr(report, name) for name in Report.__struct_fields__} | changes)


class LazyReport(Report, frozen=True, dict=True):
    """Make each field on first access, from one graph: until then, it is unset."""

    @classmethod
    def on(cls, source: Path | bytes, **options: Any) -> "LazyReport":
        """Return the report on this file."""
        report = cls(**dict.fromkeys(cls.__struct_fields__))
        for name in cls.__struct_fields__:
            getattr(cls, name).__delete__(report)
        kept = [*PARTS.values(), "device_reports", "host_steps"]
        graph = pipeline.graph_of(ingest.load(source), Options(**options), kept=kept)
        made = pipeline.public_tables(graph)
        report.__dict__["_graph"] = graph
        force_setattr(
            report,
            "tables",
            analysis.LazyTables({name: partial(within_query, partial(made.__getitem__, name)) for name in made}),
        )
        return report

    def __getattr__(self, name: str) -> Any:
        if name not in self.__struct_fields__:
            raise AttributeError(name)
        value = _MADE[name](self)
        force_setattr(self, name, value)
        return value


def _part(value: str) -> Callable[[LazyReport], Any]:
    return lambda report: within_query(lambda: _graph(report).take(value))


def _graph(report: LazyReport) -> analysis.TableGraph:
    graph: analysis.TableGraph = report.__dict__["_graph"]
    return graph


_MADE: dict[str, Callable[[LazyReport], Any]] = {
    **{field: _part(value) for field, value in PARTS.items()},
    "devices": lambda report: tuple(_part("device_reports")(report).values()),
    "steps_from": lambda report: _part("host_steps")(report).source,
    "schema_version": lambda report: SCHEMA_VERSION,
    "tool_version": lambda report: installation.tool_version(),
    "declared": lambda report: tuple(pipeline._declared(pipeline.ANALYSES)),
}
