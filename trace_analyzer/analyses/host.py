"""Prepare host events for all analyses: thread, end, and the results of rules on names.

A trace has a million host events and a thousand names, so rules are applied once per name; every event has the number
of its name for looking up the results.
"""

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import polars as pl
from polars import selectors as cs

from trace_analyzer.analysis import Value
from trace_analyzer.catalog import event_names
from trace_analyzer.catalog.event_names import CALLS
from trace_analyzer.frames.intervals import END_NS, enclosing
from trace_analyzer.frames.lookups import Tree, factorize, gather, inverse_index, lookup, scatter
from trace_analyzer.ingest.trace import Trace
from trace_analyzer.thresholds import HOST_WAIT_NS
from trace_analyzer.vocabulary import NAMED_WORK

STREAM_WAITS = "StreamWaitEvent"
"""Substring of names of calls that make a stream wait for an event."""
KERNEL_LAUNCH = pl.col("name").str.contains("(?i)launch") & ~pl.col("name").str.contains("(?i)graph|host_?func")
"""Whether a call launches one kernel, by its name."""


class Host(NamedTuple):
    """The host events of a trace, and their names.

    ``events`` has one row per host event, in order of event_id: event_id, kind and name, both categorical, thread_id,
    process_id, start_ns, end_ns, duration_ns, name_id, ``marks`` (whether it only marks other events) and ``work``,
    from rules, null for most. ``calls`` are those of `CALLS`, with their correlation. ``names`` has one row per kind
    and name, in order of name_id, with ``text``, the name as a categorical, and further results of rules: phase and
    source, null for most, and ``library``, whether it is library code.
    """

    events: pl.DataFrame
    calls: pl.DataFrame
    names: pl.DataFrame

    def each(self, of_name: pl.Expr, ids: pl.Series | None = None) -> pl.Series:
        """Evaluate an expression of kind and name for each event, or for the events ``ids``."""
        name_ids = self.events.get_column("name_id")
        return gather(self.names.select(of_name).to_series(), name_ids if ids is None else name_ids[ids])

    def by_name(self, column: str, ids: pl.Series) -> pl.Series:
        """Look up a column of ``names`` for events."""
        return self.names.get_column(column)[self.events.get_column("name_id")[ids]]

    def texts(self, ids: pl.Series) -> pl.Series:
        """Return the names of events, categorical."""
        return self.by_name("text", ids)

    def those(self, condition: pl.Expr, *columns: str) -> pl.DataFrame:
        """Return the events whose kind and name meet a condition, with these columns, or all."""
        events = self.events.select(columns) if columns else self.events
        return events.filter(self.each(condition)).with_columns(
            cs.by_name("kind", "name", require_all=False).cast(pl.String)
        )

    def calls_of(self, condition: pl.Expr) -> pl.DataFrame:
        """Return the calls whose name meets a condition."""
        return self.calls.filter(gather(self.names.select(condition).to_series(), self.calls.get_column("name_id")))


def host_of(trace: Trace) -> Host:
    """Return the host events of a trace with the columns that all analyses need."""
    rows = trace.host_events
    name_ids, names = _names(rows)
    process = trace.threads.get_column("process_id")[rows.get_column("thread_id").cast(pl.UInt32)]
    events = rows.select(
        "event_id",
        "kind",
        "name",
        "thread_id",
        process.alias("process_id"),
        "start_ns",
        END_NS,
        "duration_ns",
        name_ids.alias("name_id"),
        *(gather(names.get_column(column), name_ids) for column in _NAME_COLUMNS),
    )
    too_short = (pl.col("work") == event_names.HOST_WAIT) & (pl.col("duration_ns") < HOST_WAIT_NS)
    events = events.with_columns(pl.when(~too_short.fill_null(False)).then("work").alias("work"))
    is_call = gather(names.get_column("kind").is_in(CALLS), name_ids)
    calls = events.with_columns(rows.get_column("correlation")).filter(is_call)
    return Host(events, calls, names)


_NAME_COLUMNS = ("work", "marks")
_WORK = pl.Enum((*NAMED_WORK, event_names.BLOCKING, event_names.GUARDS, event_names.LOOKUP))


def _names(rows: pl.DataFrame) -> tuple[pl.Series, pl.DataFrame]:
    """Assign numbers to pairs of kind and name; return them with the results of rules on each pair."""
    key = ["kind", "name"]
    ids, firsts = factorize(*rows.select(key))
    names = rows.select(key)[firsts].cast(pl.String).with_row_index("name_id")
    return ids, (
        names.join(event_names.host_work(names), on=key, how="left", maintain_order="left")
        .join(event_names.named_code(names), on=key, how="left", maintain_order="left")
        .with_columns(
            pl.col("work").cast(_WORK),
            pl.col("phase").cast(pl.Enum(event_names.PHASES)),
            pl.col("source").cast(
                pl.Enum(list(dict.fromkeys(rule.name for rule in event_names.code_rules("sources"))))
            ),
            event_names.is_annotation().alias("marks"),
            pl.col("name").cast(pl.Categorical).alias("text"),
        )
    )


# Locate host events: the operator, module, Python function and phase around each.
#
# The parent of an event is the event in progress when it began. Its context consists of its nearest ancestors of each
# kind; backward work also has the context of its forward operator.

MODULE = "nn.Module: "
"""Beginning of a module's frame."""
IS_MODULE = (pl.col("kind") == "python") & pl.col("name").str.starts_with(MODULE)
_MODULE_LEVELS = 12
"""Most modules in a path; outer modules of a deeper nest are left out."""
_STEP_NAMES = r"^ProfilerStep"
_PACKAGES = r"^.*(?:site|dist)-packages/"


class Context(NamedTuple):
    """The context of every host event, and the names of the ids.

    ``events`` are those of `Host`, with parent_id (the enclosing event), operator_id, module_id, frame_id, stack_id and
    annotation_id (the nearest among the event and its ancestors; for backward work, module and frame are those of the
    forward operator), source_id (the outermost of these that matches a rule), and phase. ``stacks`` are texts of
    PyTorch before 1.13: event_id, function, module. The methods return categoricals, as millions of intervals share few
    names.
    """

    events: pl.DataFrame
    tree: Tree
    stacks: pl.DataFrame
    host: Host

    def sources(self, ids: pl.Series) -> pl.Series:
        """Return the rule's name of the outermost event around each event that matches a rule."""
        return self.host.by_name("source", self.events.get_column("source_id")[ids])

    def outermost_operators(self, condition: pl.Expr) -> pl.Series:
        """Return for every event the id of the outermost enclosing operator that meets a condition; null for none.

        The event itself counts as well.
        """
        wanted = self.host.each((pl.col("kind") == "operator") & ~pl.col("marks") & condition)
        return self.tree.outermost(wanted)

    def functions(self, ids: pl.Series) -> pl.Series:
        """Return the Python function of each event in the trace's notation, ``file.py(12): f``; null where unknown.

        It is the innermost of the program's own frames, else that of a library.
        """
        frames = self.host.texts(self.events.get_column("frame_id")[ids])
        return self._or_text(frames, ids, "function")

    def modules(self, ids: pl.Series) -> pl.Series:
        """Return the path of nn.Modules around each event, ``Net_0/Block_3/Linear_7``; null where not recorded."""
        module_ids = self.events.get_column("module_id")[ids]
        paths = self._paths(module_ids.drop_nulls().unique())
        rows = inverse_index(paths.get_column("module_id"), self.events.height)[module_ids]
        return self._or_text(paths.get_column("path")[rows], ids, "module")

    def code(self, ids: pl.Series) -> pl.DataFrame:
        """Return name, source, operator, module and python_function of each event."""
        return pl.DataFrame(
            {
                "name": self.host.texts(ids),
                "source": self.sources(ids),
                "operator": self.host.texts(self.events.get_column("operator_id")[ids]),
                "module": self.modules(ids),
                "python_function": self.functions(ids),
            }
        )

    def _or_text(self, named: pl.Series, ids: pl.Series, column: str) -> pl.Series:
        """Return the names from frames, else from the texts of PyTorch before 1.13."""
        if self.stacks.is_empty():
            return named
        stack_ids = self.events.get_column("stack_id")[ids]
        rows = inverse_index(self.stacks.get_column("event_id"), self.events.height)[stack_ids]
        return named.zip_with(named.is_not_null(), self.stacks.get_column(column)[rows])

    def _paths(self, module_ids: pl.Series) -> pl.DataFrame:
        """Return module_id and path: the names of a module frame and of the enclosing ones, outermost first."""
        parents, modules = self.events.get_column("parent_id"), self.events.get_column("module_id")
        levels: list[pl.Series] = []
        level = module_ids
        while not levels or (len(levels) < _MODULE_LEVELS and level.null_count() < level.len()):
            levels.append(self.host.texts(level).cast(pl.String).str.strip_prefix(MODULE).alias(f"level_{len(levels)}"))
            level = modules[parents[level]]
        path = pl.concat_str(pl.all(), separator="/", ignore_nulls=True).cast(pl.Categorical)
        return pl.DataFrame({"module_id": module_ids, "path": pl.DataFrame(levels[::-1]).select(path).to_series()})


def contexts(trace: Trace, host: Host, host_parents: pl.Series, backward_links: pl.DataFrame) -> Context:
    """Return the context of every host event."""
    events = host.events
    tree, stacks = Tree(host_parents), _stacks(trace)
    forward_of = scatter(backward_links.get_column("event_id"), backward_links.get_column("forward_id"), events.height)
    name, is_python = pl.col("name"), pl.col("kind") == "python"
    is_frame = is_python & ~IS_MODULE & ~name.str.starts_with("<")

    def around(of_name: pl.Expr) -> pl.Series:
        return tree.nearest(host.each(of_name.cast(pl.UInt8)))

    own = around(is_frame & ~pl.col("library"))
    nearest = {
        "module_id": around(IS_MODULE),
        "frame_id": own.zip_with(own.is_not_null(), around(is_frame)),
        "stack_id": tree.nearest(inverse_index(stacks.get_column("event_id"), events.height).is_not_null()),
    }
    backward_ids = tree.nearest(forward_of.is_not_null())
    forward_ids = forward_of[backward_ids]
    return Context(
        events.with_columns(
            host_parents.alias("parent_id"),
            around((pl.col("kind") == "operator") & ~pl.col("marks")).alias("operator_id"),
            around(pl.col("marks") & ~name.str.contains(_STEP_NAMES)).alias("annotation_id"),
            tree.outermost(host.each(pl.col("source").is_not_null())).alias("source_id"),
            _phases(host, tree, trace.host_events.get_column("forward_thread"), forward_of).alias("phase"),
            *(_of_forward(ids, backward_ids, forward_ids).alias(column) for column, ids in nearest.items()),
        ),
        tree,
        stacks,
        host,
    )


def input_dims(operator_inputs: pl.DataFrame, rows: pl.DataFrame) -> pl.Series:
    """Return the shapes of inputs of each row's operator (operator_id)."""
    shapes = operator_inputs.select(pl.col("event_id").alias("operator_id"), "input_dims")
    return lookup(shapes, rows, "operator_id").get_column("input_dims")


def parents_of(trace: Trace) -> pl.Series:
    """Return the enclosing event of every host event; null for none, and for the profiler's own rows."""
    # An event of duration 0 encloses nothing.
    length = pl.when(pl.col("kind") != "overhead").then("duration_ns").otherwise(0)
    end = (pl.col("start_ns") + length).alias("end_ns")
    return enclosing(trace.host_events.select("thread_id", "start_ns", end), ["thread_id"])


def _phases(host: Host, tree: Tree, forward_thread: pl.Series, forward_of: pl.Series) -> pl.Series:
    """Return the phase of each event: the first of `PHASES` among the event and its ancestors.

    Operators that autograd ran are backward, forward operators whose backward ran later are forward, and threads that
    only autograd uses are backward even between operators.
    """
    threads, is_operator = host.events.get_column("thread_id"), host.events.get_column("kind") == "operator"
    backward, none = event_names.PHASES.index("backward"), len(event_names.PHASES)
    named = (
        pl.when(pl.col("work") == event_names.DATA_LOADING)
        .then(pl.lit(event_names.DATA_LOADING, pl.Enum(event_names.PHASES)))
        .otherwise("phase")
    )
    of_name = host.each(named.to_physical().cast(pl.UInt8).fill_null(none))
    ran = (is_operator & (forward_thread > 0)).fill_null(False)
    ran_back = inverse_index(forward_of.drop_nulls(), threads.len()).is_not_null()
    of_others = pl.when(ran).then(backward).when(ran_back).then(event_names.PHASES.index("forward")).otherwise(none)
    own = pl.select(pl.min_horizontal(of_name, of_others.cast(pl.UInt8)).alias("phase")).to_series()
    phases, is_backward = tree.least(own, none), ran | host.each((pl.col("phase") == "backward").fill_null(False))
    # Steps and passes that are annotated enclose operators of other passes too: all operators count, not only outermost.
    shared = threads.filter(is_operator & (phases != backward).fill_null(True)).unique()
    # A range named backward on a thread without operators shows nothing of its other work.
    autograd = threads.filter(is_backward & is_operator).unique()
    autograd = autograd.filter(~autograd.is_in(shared.implode()))
    if autograd.len():
        phases = phases.zip_with(
            phases.is_not_null() | ~threads.is_in(autograd.implode()), pl.Series([backward], dtype=pl.UInt32)
        )
    return pl.Series(event_names.PHASES, dtype=pl.Enum(event_names.PHASES))[phases]


def _of_forward(ids: pl.Series, backward_ids: pl.Series, forward_ids: pl.Series) -> pl.Series:
    """Replace the context of backward events by their forward operator's.

    A context that lies within the backward event stays.
    """
    around = ids[forward_ids]
    outside = around.is_not_null() & ~(ids > backward_ids).fill_null(False)
    return around.zip_with(outside, ids)


def _stacks(trace: Trace) -> pl.DataFrame:
    """Return event_id, function and module of operators from the call stack texts of PyTorch before 1.13.

    Frames are separated by ``;``, innermost first, with the line of the call.
    """
    texts = (
        trace.operator_inputs.select("event_id", "call_stack", pl.col("module_hierarchy").alias("module"))
        .filter(pl.col("call_stack").is_not_null() | pl.col("module").is_not_null())
        .with_columns(pl.col("call_stack", "module").cast(pl.String))
        .filter(pl.col("call_stack").str.len_bytes().gt(0) | pl.col("module").str.len_bytes().gt(0))
    )
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
        .join(event_names.named_code(frames.drop_nulls("name")), on=["kind", "name"], how="left", maintain_order="left")
        .group_by("call_stack", maintain_order=True)
        .agg(pl.coalesce(own, pl.col("name").first()).str.replace(_PACKAGES, "").alias("function"))
    )
    return texts.join(functions, on="call_stack", how="left", maintain_order="left").select(
        "event_id",
        pl.col("function").cast(pl.Categorical),
        pl.when(pl.col("module").str.len_bytes() > 0).then("module").cast(pl.Categorical).alias("module"),
    )


# Find the line of a call. Kineto records the line at which a function begins. If the named file has that function at that
# line, and the function calls a name of the operator exactly once, the result is the line of that call.

MAX_BYTES = 1 << 20
"""Larger files are not hand-written source."""
# Names by which programs call these operators; other operators are called by their own name.
_CALLED: dict[str, frozenset[str]] = {
    "_local_scalar_dense": frozenset({"item", "tolist", "int", "float", "bool"}),
    "item": frozenset({"item", "tolist", "int", "float", "bool"}),
    "is_nonzero": frozenset({"bool"}),
    "_to_copy": frozenset({"to", "cpu", "cuda", "float", "half", "bfloat16", "type", "numpy"}),
    "to": frozenset({"to", "cpu", "cuda", "float", "half", "bfloat16", "type", "numpy"}),
    "copy_": frozenset({"to", "cpu", "cuda", "copy_", "contiguous", "clone", "numpy"}),
    "_unique2": frozenset({"unique"}),
}
# A network path is not a local file, and opening it would reveal the user to another machine.
_ELSEWHERE = re.compile(r"^(\\\\|//|\w+://)")


def call_line(frame: str | None, operator: str | None) -> int | None:
    """Return the only line in the function of ``frame`` (``file.py(12): f``) that calls ``operator``, or None."""
    match = event_names.FRAME.fullmatch(frame) if frame else None
    if match is None or not operator or not operator.startswith("aten::"):
        return None
    name = operator.removeprefix("aten::")
    called = _CALLED.get(name, frozenset({name, name.strip("_")}))
    function = _function(match["file"], int(match["line"]), match["function"])
    lines = [] if function is None else [call.lineno for call in _calls(function) if _name(call) in called]
    return lines[0] if len(lines) == 1 else None


def _function(file: str, line: int, name: str) -> ast.AST | None:
    """Return the function that begins at that line, including decorators; None without one."""
    if not file.endswith(".py") or _ELSEWHERE.match(file):
        return None
    tree = _tree(file)
    if tree is None or name == "<module>":
        return tree if line <= 1 else None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if line in (first, node.lineno):
                return node
    return None


def _tree(file: str) -> ast.Module | None:
    try:
        path = Path(file)
        state = path.stat()
        if not path.is_file() or state.st_size > MAX_BYTES:
            return None
        return _parsed(file, state.st_mtime_ns)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


@lru_cache(maxsize=32)
def _parsed(file: str, changed_ns: int) -> ast.Module:
    return ast.parse(Path(file).read_bytes())


def _calls(function: ast.AST) -> Iterator[ast.Call]:
    """Return the calls in the function, except those in nested functions and classes."""
    waiting = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Call):
            yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting.extend(ast.iter_child_nodes(node))


def _name(call: ast.Call) -> str | None:
    """Return the called name: ``f`` for ``f()`` and for ``x.y.f()``."""
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return None


ANALYSES = (Value("host", host_of), Value("host_parents", parents_of), Value("context", contexts))
