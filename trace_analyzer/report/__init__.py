"""Define `Report`, the only input of renderers: scalars in immutable records, rows in ``tables``.

The sentence of each field is its description in the JSON Schema and in docs/json.md.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import polars as pl
from msgspec import Struct

from trace_analyzer.errors import Note
from trace_analyzer.json_types import (
    CheckStatus as CheckStatus,
    Confidence as Confidence,
    Limits,
    Regime as Regime,
    Status as Status,
    Value as Value,
)
from trace_analyzer.report.devices import (
    Attained as Attained,
    BoundShare as BoundShare,
    BucketTime as BucketTime,
    Communication as Communication,
    Copies as Copies,
    DeviceReport as DeviceReport,
    FusionOpportunity as FusionOpportunity,
    Gaps as Gaps,
    GroupTime as GroupTime,
    LaunchLead as LaunchLead,
    MeasuredRoof as MeasuredRoof,
    RunAhead as RunAhead,
    TensorCores as TensorCores,
    TimeWeighted as TimeWeighted,
    WorkCoverage as WorkCoverage,
)
from trace_analyzer.report.verdicts import (
    Advice as Advice,
    Blame as Blame,
    Check as Check,
    Debiased as Debiased,
    DeviceInfo as DeviceInfo,
    Evidence as Evidence,
    HostCost as HostCost,
    Lever as Lever,
    Predicted as Predicted,
    Recorded as Recorded,
    Resource as Resource,
    Saving as Saving,
    Shares as Shares,
    StepReport as StepReport,
    TraceInfo as TraceInfo,
    Verdict as Verdict,
    Window as Window,
    Withheld as Withheld,
)
from trace_analyzer.results import Result, used
from trace_analyzer.schema import Table
from trace_analyzer.sections import Section

SCHEMA_VERSION = 2
"""Version of the JSON report: it increases when a field is renamed, removed or changes its meaning, not when one is
added."""


class DeclaredTable(Struct, frozen=True):
    """A table of the report with its place in the JSON report, and its section.

    ``json`` is the name of a field of the report, such as ``copies``, or ``devices[].copies`` for the rows of each device.
    """

    table: Table
    json: str | None
    section: Section | None


class Report(Result, frozen=True):
    """The result of an analysis: immutable, saveable, and the only input of renderers.

    ``tables`` maps names of `trace_analyzer.registry.TABLES` to frames with those columns, each made on first access.
    ``steps_from`` names what marks the steps: ``ProfilerStep``, an annotation's pattern, a framework, ``optimizer``,
    ``data loader``, or None. ``declared`` holds the tables that declare their place instead of having a field here: outputs
    that show them make them.
    """

    PLOTTED = ("tables",)

    schema_version: Annotated[Annotated[int, Limits(const=SCHEMA_VERSION)], "Version of this schema."]
    tool_version: Annotated[str, "Version of the program that wrote it."]
    trace: Annotated[TraceInfo, "The file."]
    trust: Annotated[tuple[Check, ...], "Whether the trace supports its figures, the gravest first."]
    notes: Annotated[tuple[Note, ...], "What is odd about the trace, yet survivable."]
    verdict: Annotated[Verdict, "What limits the workload, or why that is not known."]
    devices: Annotated[tuple[DeviceReport, ...], "Devices with activities."]
    steps: Annotated[tuple[StepReport, ...], "Steps of the workload on each device."]
    blame: Annotated[
        tuple[Blame, ...],
        "Idle time of the verdict's window by cause and by the code that was running, most first: the first 20.",
    ]
    host_costs: Annotated[
        tuple[HostCost, ...],
        "What the host did in the whole trace that can leave a device idle, by the code that asked for it, the"
        " costliest first: the first 20.",
    ]
    advice: Annotated[tuple[Advice, ...], "What to change, the greatest saving first."]
    tables: Mapping[str, pl.DataFrame]
    steps_from: Annotated[
        str | None,
        "What marks the steps: `ProfilerStep`, an annotation's pattern, a framework, `optimizer`, `data loader`;"
        " null without steps.",
    ] = None
    declared: tuple[DeclaredTable, ...] = ()

    def __repr__(self) -> str:
        return used("trace_analyzer.render.first_screen:glance")(self)

    def summary(self, width: int = 100, *, verbose: bool = False) -> str:
        """Return the one-screen summary as plain text, ``width`` cells wide; with ``verbose`` the complete text."""
        return used("trace_analyzer.render.terminal:summary")(self, width=width, verbose=verbose)

    def explain(self, id: str) -> Any:  # noqa: A002 (an id is what it takes)
        """Explain ``verdict``, ``advice:FIX``, ``check:NAME``, ``step:N``, ``gap:N``, ``kernel:HASH/K`` or
        ``memory:N``.

        An advice can also be named by its `Advice.id` alone, a kernel by a part of its name. `to_agent_text` lists the most important ids. Raises
        ``UsageError`` for an unknown id, and suggests similar ones.
        """
        return used("trace_analyzer.explain.lookups:explain")(self, id)

    def to_agent_text(self) -> str:
        """Return the report in at most 2,000 bytes with an id for each item, for language models and scripts."""
        return used("trace_analyzer.explain.agent:agent_text")(self)

    def document(self) -> dict[str, Any]:
        """Return the content of `to_json` in JSON's own types; ``analyze --json-schema`` prints its schema."""
        return used("trace_analyzer.render.exports:document")(self)

    def to_markdown(self) -> str:
        """Return the report as Markdown, for issues and CI comments."""
        return used("trace_analyzer.render.documents:to_markdown")(self)

    def to_html(self, path: str | Path, *, command: str = "", max_mb: float | None = None) -> Path:
        """Write the report as one offline HTML file and return its path.

        ``command`` is the command line that made the report, which the page shows. Where the file would exceed
        ``max_mb`` (MB of 10^6 bytes), it leaves out the shortest Python frames, then details of events, then the
        shortest other host events, and the page states this. Raises ``OSError`` when the file cannot be written; no
        partial file is left.
        """
        return used("trace_analyzer.render.html:write_html")(self, Path(path), command=command, max_mb=max_mb)

    @property
    def plots(self) -> Mapping[str, Any]:
        """Return HoloViews objects by name, for which the report has data; made anew at each access.

        The first access imports HoloViews (the extra ``plots``) and its Bokeh backend. Raises ``UsageError`` without
        it. A notebook displays the objects; ``hv.save(report.plots["gaps"], "gaps.html")`` works anywhere.
        """
        return used("trace_analyzer.render.plots:plots")(self)

    @property
    def plot(self) -> Any:
        """Return the first of `plots`; None without one."""
        return next(iter(self.plots.values()), None)

    def write_tables(self, folder: str | Path, form: Literal["parquet", "csv"] = "parquet") -> tuple[Path, ...]:
        """Write every table into ``folder``, as ``<table>.parquet`` or ``<table>.csv``, and return the files.

        The folder is created if necessary, and existing files of these names are replaced: all of them, or none where
        one cannot be written. Raises ``ValueError`` for an unknown format and ``OSError``.
        """
        return used("trace_analyzer.render.exports:write_tables")(self, Path(folder), form)

    def _repr_html_(self) -> str:
        return used("trace_analyzer.render.html:notebook_html")(self)
