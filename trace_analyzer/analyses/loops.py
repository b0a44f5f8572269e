"""Distinguish iterations of the program's own loop from repeated parts of a single pass, such as its layers.

Both repeat; the recorded context distinguishes them. A module call, an operator or an annotation that encloses all
repetitions is a pass, and the repetitions are its parts. With recorded Python frames, the loop itself is visible: one
frame encloses all repetitions, and calls the same function in each.
"""

import polars as pl

from trace_analyzer.analyses.host import Host
from trace_analyzer.catalog.step_marks import LAYERS, step_marks
from trace_analyzer.frames.intervals import enclosing

_MODULE = r"^nn\.Module: "


def is_loop(repetitions: pl.DataFrame, host: Host) -> bool:
    """Return whether no recorded event contradicts that repetitions are iterations of the program's loop.

    ``repetitions`` are (process_id, start_ns, end_ns) of one process, in order: the beginning of each.
    """
    process = repetitions.get_column("process_id").item(0)
    own = host.events.filter(pl.col("process_id") == process).select(
        "kind", "name_id", "thread_id", "start_ns", "end_ns", "marks"
    )
    if _enclosing(own, host, repetitions, annotations=True).height:
        return False
    if _different_parts(own, host, repetitions.get_column("start_ns").sort()):
        return False
    frames = own.filter(pl.col("kind") == "python")
    return frames.is_empty() or _calls_in_each(frames, repetitions)


def _different_parts(events: pl.DataFrame, host: Host, starts: pl.Series) -> bool:
    """Return whether each repetition has a different module, or annotated layer, of the same family.

    ``events`` are those of a process. The blocks of a model are instances of one class, and none occurs twice in a
    pass.
    """
    is_module = (pl.col("kind") == "python") & pl.col("name").str.contains(_MODULE)
    layers = step_marks(host.names.select("kind", "name")).filter(pl.col("source") == LAYERS).get_column("name")
    is_layer = (pl.col("kind") == "annotation") & pl.col("name").is_in(layers.implode())
    names = host.names.filter(is_module | is_layer).select(
        "name_id", pl.col("name").str.replace_all(r"\d+", "#").alias("family")
    )
    if names.is_empty():
        return False
    begun = _begun(events.join(names, on="name_id", how="semi"), starts).join(names, on="name_id")
    once = begun.group_by("family", "name_id").agg(pl.col("repetition").n_unique().alias("repetitions"))
    families = begun.group_by("family").agg(pl.col("repetition").n_unique()).join(
        once.group_by("family").agg(pl.col("repetitions").max()), on="family"
    )  # fmt: skip
    return families.filter(
        (pl.col("repetition") == starts.len() - 1) & (pl.col("repetitions") == 1)
    ).height > 0  # fmt: skip


def called_in_each(repetitions: pl.DataFrame, host: Host) -> bool:
    """Return whether some module, or data-loading code, is called equally often in each repetition.

    A loop calls the same model each time, while layers of one pass are different modules. ``repetitions`` as in
    `is_loop`.
    """
    process = repetitions.get_column("process_id").item(0)
    starts = repetitions.get_column("start_ns").sort()
    is_module = (pl.col("kind") == "python") & pl.col("name").str.contains(_MODULE)
    events = host.events.filter(
        host.each(is_module | (pl.col("work") == "data-loading").fill_null(False)), pl.col("process_id") == process
    )
    return _in_each(events, starts)


def enclosed_by_work(spans: pl.DataFrame, host: Host) -> bool:
    """Return whether a module call or operator encloses all spans (process_id, start_ns, end_ns) of a process."""
    process = spans.get_column("process_id").item(0)
    return bool(_enclosing(host.events.filter(pl.col("process_id") == process), host, spans, annotations=False).height)


def _enclosing(events: pl.DataFrame, host: Host, spans: pl.DataFrame, *, annotations: bool) -> pl.DataFrame:
    """Return module calls, operators and optionally annotations of a process that enclose all spans, on any thread.

    Autograd's thread works within a call of the thread that started the backward pass.
    """
    first, last = spans.select(pl.col("start_ns").min(), pl.col("end_ns").max()).row(0)
    around = events.filter(
        pl.col("start_ns") <= first,
        pl.col("end_ns") >= last,
        (pl.col("start_ns") < first) | (pl.col("end_ns") > last),
    )
    names = host.names.get_column("name")[around.get_column("name_id")]
    marks = pl.col("marks") | (pl.col("kind") == "annotation")
    is_module = (pl.col("kind") == "python") & names.str.contains(_MODULE)
    is_work = is_module | ((pl.col("kind") == "operator") & ~marks)
    return around.filter(is_work | marks if annotations else is_work)


def _calls_in_each(frames: pl.DataFrame, repetitions: pl.DataFrame) -> bool:
    """Return whether a frame around all repetitions, or a thread, calls a function equally often in each.

    Of several such frames, the innermost is examined. The last repetition may be truncated and is ignored.
    """
    starts = repetitions.get_column("start_ns").sort()
    return any(_loops(part, starts) for part in frames.partition_by("thread_id"))


def _loops(frames: pl.DataFrame, starts: pl.Series) -> bool:
    first, last = starts.item(0), starts.item(-1)
    frames = frames.sort("start_ns", pl.col("end_ns"), descending=[False, True], maintain_order=True)
    parents = enclosing(frames, ["thread_id"])
    around = frames.select((pl.col("start_ns") <= first) & (pl.col("end_ns") > last)).to_series().arg_true()
    loop = around.item(-1) if around.len() else None
    children = frames.filter(parents.is_null() if loop is None else (parents == loop).fill_null(False))
    return _in_each(children, starts)


def _in_each(events: pl.DataFrame, starts: pl.Series) -> bool:
    """Return whether events of some name begin equally often, at least once, in each interval between starts."""
    whole = starts.len() - 1
    counts = _begun(events, starts).group_by("name_id", "repetition").len()
    in_each = counts.group_by("name_id").agg(pl.len().alias("places"), pl.col("len").n_unique().alias("sizes"))
    return in_each.filter((pl.col("places") == whole) & (pl.col("sizes") == 1)).height > 0


def _begun(events: pl.DataFrame, starts: pl.Series) -> pl.DataFrame:
    """Return (name_id, repetition) of the events that begin from the first start to the last."""
    begun = events.filter(pl.col("start_ns") >= starts.item(0), pl.col("start_ns") < starts.item(-1))
    place = starts.search_sorted(begun.get_column("start_ns"), side="right")
    return begun.select("name_id", place.alias("repetition"))
