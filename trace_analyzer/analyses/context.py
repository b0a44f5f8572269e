"""In whose name a host event happened: the operator, module, Python function and phase around it.

Every event hangs below the event that was in progress when it began. What surrounds it is the nearest of
its ancestors of some sort, and backward work also stands for the forward operator that it belongs to.
"""

from dataclasses import dataclass

import polars as pl

from trace_analyzer.analyses.intervals import enclosing
from trace_analyzer.catalog.code import DATA_LOADING, PHASES, is_annotation, named_code
from trace_analyzer.catalog.host_work import host_work
from trace_analyzer.ingest.trace import Trace

_MODULE = "nn.Module: "
_MODULE_LEVELS = 12
"""Modules that a path names; the outer ones of a deeper nest are left out."""
_STEP_NAMES = r"^ProfilerStep"
_PACKAGES = r"^.*(?:site|dist)-packages/"


@dataclass(frozen=True)
class Context:
    """What surrounds every host event, and the names behind the ids.

    ``events`` has one row per host event, in order of event_id: kind, name, thread_id, parent_id (the event
    around it), work and source (what rules name it as), operator_id, module_id, frame_id, stack_id,
    annotation_id (nearest of itself and its ancestors; for backward work, module and frame are those of the
    forward operator), source_id (the outermost of these that a rule names) and phase. ``stacks`` are texts of PyTorch before 1.13: event_id, function, module.
    """

    events: pl.DataFrame
    stacks: pl.DataFrame

    def names(self, ids: pl.Series) -> pl.Series:
        """Names of events."""
        return self.events.get_column("name").gather(ids)

    def sources(self, ids: pl.Series) -> pl.Series:
        """What rules name the outermost event as, of each event and those around it, that they name."""
        source_ids = self.events.get_column("source_id").gather(ids)
        return self.events.get_column("source").gather(source_ids)

    def functions(self, ids: pl.Series) -> pl.Series:
        """The Python function of each event as the trace names it, ``file.py(12): f``; null where unknown.

        The innermost of the program's own frames; a library's where there is none.
        """
        at = self.events.select("frame_id", "stack_id").with_row_index("event_id")
        rows = pl.DataFrame({"event_id": ids.cast(pl.UInt32)}).join(
            at, on="event_id", how="left", maintain_order="left"
        )
        texts = rows.join(self.stacks, left_on="stack_id", right_on="event_id", how="left", maintain_order="left")
        frames = self.names(rows.get_column("frame_id"))
        return frames.zip_with(frames.is_not_null(), texts.get_column("function"))

    def modules(self, ids: pl.Series) -> pl.Series:
        """The path of nn.Modules around each event, ``Net_0/Block_3/Linear_7``; null where none was recorded."""
        at = self.events.select("module_id", "stack_id").with_row_index("event_id")
        rows = pl.DataFrame({"event_id": ids.cast(pl.UInt32)}).join(
            at, on="event_id", how="left", maintain_order="left"
        )
        paths = self._paths(rows.get_column("module_id").drop_nulls().unique())
        return (
            rows.join(paths, on="module_id", how="left", maintain_order="left")
            .join(self.stacks, left_on="stack_id", right_on="event_id", how="left", maintain_order="left")
            .select(pl.coalesce("path", "module"))
            .to_series()
        )

    def _paths(self, module_ids: pl.Series) -> pl.DataFrame:
        """module_id, path: the names of a module frame and of those around it, the outermost first."""
        parents, modules = self.events.get_column("parent_id"), self.events.get_column("module_id")
        levels: list[pl.Series] = []
        level = module_ids
        while len(levels) < _MODULE_LEVELS and level.null_count() < level.len():
            levels.append(self.names(level).str.strip_prefix(_MODULE).alias(f"level_{len(levels)}"))
            level = modules.gather(parents.gather(level))
        if not levels:
            return pl.DataFrame(schema={"module_id": pl.UInt32, "path": pl.String})
        return pl.DataFrame({"module_id": module_ids}).with_columns(
            pl.DataFrame(levels[::-1])
            .select(pl.concat_str(pl.all(), separator="/", ignore_nulls=True).alias("path"))
            .to_series()
        )


def nearest(parents: pl.Series, wanted: pl.Series) -> pl.Series:
    """For each event the nearest of itself and its ancestors that is ``wanted``; null where none is.

    ``parents`` holds row numbers. Pointers double with every turn, so a stack a thousand deep takes ten.
    """
    if not wanted.any():
        return pl.repeat(None, parents.len(), dtype=pl.UInt32, eager=True)
    rows = pl.int_range(parents.len(), dtype=pl.UInt32, eager=True)
    jumps = rows.zip_with(wanted.fill_null(False), parents.cast(pl.UInt32))
    while True:
        further = jumps.gather(jumps)
        if further.eq_missing(jumps).all():
            return jumps
        jumps = further


def outermost(parents: pl.Series, wanted: pl.Series) -> pl.Series:
    """For each event the farthest of itself and its ancestors that is ``wanted``; null where none is."""
    wanted = wanted.fill_null(False)
    around = nearest(parents, wanted).gather(parents)
    return nearest(parents, wanted & around.is_null())


def contexts(trace: Trace, backward_links: pl.DataFrame) -> Context:
    """The context of every host event of the trace."""
    events = _named(trace)
    parents = events.get_column("parent_id")
    is_python = pl.col("kind") == "python"
    is_module = is_python & pl.col("name").str.starts_with(_MODULE)
    is_frame = is_python & ~is_module & ~pl.col("name").str.starts_with("<")
    stacks = _stacks(trace)
    forward = backward_links.select("event_id", "forward_id")
    is_text = pl.col("event_id").is_in(stacks.get_column("event_id").implode())
    is_backward = pl.col("event_id").is_in(forward.get_column("event_id").implode())

    def around(wanted: pl.Expr) -> pl.Series:
        return nearest(parents, events.select(wanted).to_series())

    found = events.with_columns(
        around((pl.col("kind") == "operator") & ~is_annotation()).alias("operator_id"),
        around(is_module).alias("module_id"),
        around(is_frame & ~pl.col("library")).alias("own_id"),
        around(is_frame).alias("any_id"),
        around(is_text).alias("stack_id"),
        around(is_annotation() & ~pl.col("name").str.contains(_STEP_NAMES)).alias("annotation_id"),
        around(is_backward).alias("backward_id"),
        outermost(parents, events.get_column("source").is_not_null()).alias("source_id"),
        _phases(events, parents, forward.get_column("forward_id")).alias("phase"),
    ).with_columns(pl.coalesce("own_id", "any_id").alias("frame_id"))
    return Context(_with_forward(found, forward), stacks)


def _named(trace: Trace) -> pl.DataFrame:
    """Host events with the event around each, and what rules say about their names."""
    end = (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns")
    events = trace.host_events.select(
        "event_id", "kind", "name", "thread_id", "start_ns", "duration_ns", end, "forward_thread"
    )
    inside = enclosing(events.filter(pl.col("kind") != "overhead"), ["thread_id"], "event_id")
    return (
        events.join(inside, on="event_id", how="left", maintain_order="left")
        .join(named_code(events), on=["kind", "name"], how="left", maintain_order="left")
        .join(host_work(events), on=["kind", "name"], how="left", maintain_order="left")
    )


def _phases(events: pl.DataFrame, parents: pl.Series, forward_ids: pl.Series) -> pl.Series:
    """The phase of each event: the first of `PHASES` among those in progress around it.

    Operators that autograd ran are backward, those that it later ran back are forward, and threads that only
    autograd uses are backward even between its operators.
    """
    is_operator = pl.col("kind") == "operator"
    marks = {
        DATA_LOADING: pl.col("work") == DATA_LOADING,
        "optimizer": pl.col("phase") == "optimizer",
        "backward": (pl.col("phase") == "backward") | (is_operator & (pl.col("forward_thread") > 0)),
        "forward": (pl.col("phase") == "forward") | pl.col("event_id").is_in(forward_ids.implode()),
    }
    within = events.with_columns(
        nearest(parents, events.select(mark).to_series()).is_not_null().alias(f"in_{phase}")
        for phase, mark in marks.items()
    )
    alone = (is_operator & pl.col("parent_id").is_null() & ~pl.col("in_backward")).sum().over("thread_id") == 0
    autograd = alone & pl.col("in_backward").any().over("thread_id")
    return within.select(
        pl.coalesce(
            *(pl.when(f"in_{phase}").then(pl.lit(phase)) for phase in PHASES),
            pl.when(autograd).then(pl.lit("backward")),
        )
    ).to_series()


def _with_forward(events: pl.DataFrame, links: pl.DataFrame) -> pl.DataFrame:
    """Backward events with module and Python function of their forward operator, but for what ran within them."""
    forward = links.rename({"event_id": "backward_id"})
    origin = (
        events.select("backward_id")
        .join(forward, on="backward_id", how="left", maintain_order="left")
        .get_column("forward_id")
    )
    traced = {
        column: events.get_column(column).gather(origin).alias("forward")
        for column in ("module_id", "frame_id", "stack_id")
    }
    columns = [
        events.select("backward_id", column)
        .with_columns(ids)
        .select(
            pl.when(pl.col("backward_id").is_null() | (pl.col(column) > pl.col("backward_id")).fill_null(False))
            .then(column)
            .otherwise(pl.coalesce("forward", column))
            .alias(column)
        )
        .to_series()
        for column, ids in traced.items()
    ]
    return events.with_columns(columns).select(
        "event_id", "kind", "name", "thread_id", "start_ns", "end_ns", "duration_ns", "parent_id", "work", "source",
        "operator_id", "module_id", "frame_id", "stack_id", "annotation_id", "source_id", "phase",
    )  # fmt: skip


def _stacks(trace: Trace) -> pl.DataFrame:
    """event_id, function, module of operators with the call stack and module texts of PyTorch before 1.13.

    Frames are separated by ``;``, the innermost first, and their line is that of the call.
    """
    texts = trace.operator_inputs.filter(
        pl.col("call_stack").str.len_chars().gt(0) | pl.col("module_hierarchy").str.len_chars().gt(0)
    ).select("event_id", "call_stack", pl.col("module_hierarchy").alias("module"))
    frames = (
        texts.select("call_stack")
        .drop_nulls()
        .unique()
        .with_columns(pl.col("call_stack").str.split(";").alias("name"))
        .explode("name", empty_as_null=True)
        .with_columns(pl.lit("python").alias("kind"), pl.col("name").str.strip_chars().replace("", None))
    )
    own = pl.col("name").filter(~pl.col("library")).first()
    functions = (
        frames.drop_nulls("name")
        .join(named_code(frames.drop_nulls("name")), on=["kind", "name"], how="left", maintain_order="left")
        .group_by("call_stack", maintain_order=True)
        .agg(pl.coalesce(own, pl.col("name").first()).str.replace(_PACKAGES, "").alias("function"))
    )
    return texts.join(functions, on="call_stack", how="left", maintain_order="left").select(
        "event_id", "function", pl.when(pl.col("module").str.len_chars() > 0).then("module").alias("module")
    )
