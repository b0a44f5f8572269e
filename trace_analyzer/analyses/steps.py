"""Find the steps of the workload on each device, and the representative ones among them."""

from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from trace_analyzer import analysis, schema, thresholds
from trace_analyzer.analyses.host import Host
from trace_analyzer.analyses.left_out import with_states
from trace_analyzer.catalog import event_names
from trace_analyzer.frames.intervals import END_NS, counts_until, union, with_covered
from trace_analyzer.schema import typed

STEPS = schema.Table(
    "steps",
    "Steps of the workload on each device.",
    schema.columns("""
        index i64 Number of the step: the annotation's own, else its position.
        name device start_ns end_ns
        host_start_ns i64 Start of the annotation on the host.
        host_end_ns i64 End of the annotation on the host.
        activity_count u32 Activities that it launched on this device.
        busy_ns i64 Time of the step in which the device worked.
        state str ok, first, warm-up, cut, empty, lost or outlier.
        steady bool Whether the step is part of the steady window.
        step_kind str What a serving framework's annotation says that it does: prefill, decode or mixed.
        regime str Regime of this step alone; null when it is not known.
        cause str Cause within that regime.
        runner_up str Regime that came close to it, if any.
        confidence str high, medium or low: how sure that is; null without a regime.
        headline str The verdict on this step alone, in a sentence.
        cold_start_ns i64 Host time in gaps of 1 ms or more that end at the first use of a kernel name.
        recording_ns i64 What recording took of the step, estimated or measured; null where that is not known.
        unrecorded_regime str Regime of this step without that; null where that or the regime is not known.
    """),
)

PROFILER_STEP = "ProfilerStep"
"""The kind of mark of ``torch.profiler``'s ``step()``."""

_TRACK = ["process_id", "thread_id", "source"]
_REPEATED = pl.len().over(_TRACK) >= thresholds.STEP_REPEATS
_LONGEST_TURN = 12
"""Most marks in a turn: five updates of a critic and one of a generator are six."""

_MARKS = {
    "process_id": pl.Int32(),
    "thread_id": pl.Int32(),
    "index": pl.Int64(),
    "name": pl.String(),
    "host_start_ns": pl.Int64(),
    "host_end_ns": pl.Int64(),
}

OF_VERDICTS = (
    "regime", "cause", "runner_up", "confidence", "headline", "cold_start_ns", "recording_ns",
    "unrecorded_regime",
)  # fmt: skip
"""Columns of table `steps` that the verdict fills in."""


class HostSteps(NamedTuple):
    """The steps on the host in order (process_id, thread_id, index, name, host_start_ns, host_end_ns), and their kind of mark."""

    marks: pl.DataFrame
    source: str | None


def host_steps(host: Host, activities: pl.DataFrame) -> HostSteps:
    """Return the steps on the host, and their kind of mark: ``ProfilerStep``, an annotation's pattern, or the framework.

    The first available kind is used: steps of serving frameworks that say what they do; ``ProfilerStep#N``; a repeated
    annotation (ignoring numbers and arguments) that encloses most launches (in files without annotations, an operator
    that is one by its name); marks of frameworks, optimizers and data loaders (catalog/step_marks.toml).
    ``ProfilerStep`` that is too rare for steady steps gives way to marks that are not.
    """
    launched = activities.select("process_id", pl.col("launch_start_ns").alias("at_ns"), pl.col("name").alias("work"))
    launched = launched.drop_nulls("at_ns")
    if activities.is_empty():  # a run on the CPU: operators are its work
        work = host.those((pl.col("kind") == "operator") & ~pl.col("marks"))
        launched = work.select("process_id", pl.col("start_ns").alias("at_ns"), pl.col("name").alias("work"))
    known = _marked(host)
    serving = event_names.serving_steps(known.filter(pl.col("marks") == "span").get_column("name"))
    marks = _best(outermost(known.join(serving, on="name", how="semi", maintain_order="left"), *_TRACK), launched)
    profiler = _profiler_steps(host)
    if marks.is_empty() and _repeats(profiler):
        return HostSteps(profiler, PROFILER_STEP)
    if marks.is_empty():
        annotations = known.filter(
            pl.col("kind") == "annotation", pl.col("marks").fill_null(event_names.NAMED) == event_names.NAMED
        )
        pattern = pl.col("name").str.replace_all(r"\(.*\)|\[.*\]", "").str.replace_all(r"\d+", "#").alias("source")
        whole = _in_passes(annotations.with_columns(pattern).filter(_REPEATED), launched, host).filter(_REPEATED)
        # Of requests that are served at once by several threads, no mark tells which work is its own.
        marks = _outside_of_passes(_best(whole, launched, apart=("process_id", "source")), host)
        if marks.is_empty():
            marks = _announced(known.drop_nulls("marks"), launched)
        if profiler.height and not _repeats(marks):
            return HostSteps(profiler, PROFILER_STEP)
    return HostSteps(typed(marks, _MARKS), "; ".join(marks.get_column("source").unique().sort()) or None)


def _repeats(marks: pl.DataFrame) -> bool:
    """Return whether steps can be steady beside a first one, in any process."""
    return marks.get_column("process_id").value_counts().get_column("count").gt(thresholds.MIN_STEADY_STEPS).any()


def _marked(host: Host) -> pl.DataFrame:
    """Return annotations and other events that match a rule, in order, with their ``marks`` and ``source``."""
    names = host.names.select("kind", "name", "name_id", pl.col("marks").alias("is_scope"))
    if not (names.get_column("kind") == "annotation").any():  # PyTorch before 1.11 writes annotations as operators
        annotation = pl.lit("annotation", dtype=names.schema["kind"])
        names = names.with_columns(pl.when("is_scope").then(annotation).otherwise("kind").alias("kind"))
    known = event_names.step_marks(names.filter(pl.col("kind").is_in(["annotation", "operator", "python"])))
    names = names.join(known, on=["kind", "name"], how="left", maintain_order="left")
    wanted = names.filter((pl.col("kind") == "annotation") | pl.col("marks").is_not_null()).get_column("name_id")
    events = _spans(host, pl.col("name_id").is_in(wanted.implode()))
    return events.with_columns(names.select("kind", "marks", "source")[events.get_column("name_id")])


def _spans(host: Host, condition: pl.Expr) -> pl.DataFrame:
    """Return host events whose name meets a condition, in order, with their process and their bounds."""
    return (
        host.those(condition)
        .select("process_id", "thread_id", "kind", "name", "name_id", host_start_ns="start_ns", host_end_ns="end_ns")
        .sort("process_id", "host_start_ns", maintain_order=True)
    )


def _profiler_steps(host: Host) -> pl.DataFrame:
    """Return ``ProfilerStep#N``, once where several threads or kinds of events have the same step.

    Two recordings in one file may start with the same number: their steps do not overlap.
    """
    number = pl.col("name").str.extract(event_names.PROFILER_STEP_NAME).cast(pl.Int64)
    steps = _spans(host, pl.col("kind").is_in(["annotation", "operator"]) & number.is_not_null()).with_columns(
        number.alias("index")
    )
    return typed(outermost(steps, "process_id", "index"), _MARKS)


def _in_passes(marks: pl.DataFrame, launched: pl.DataFrame, host: Host) -> pl.DataFrame:
    """Return the marks; of a source that numbers the parts of a pass, one for each pass instead, from its first to its last.

    Numbers count steps and layers alike, so the name has to say that it is a step (`NAMED`), or something that a pass
    does once has to happen from the start of nearly each mark to the start of the next: its data are loaded or copied,
    the CPU waits for it, its gradients are computed, or its optimizer steps. All other numbered marks are parts. A pass
    ends where a name comes again; its parts have the order of the first pass's.
    """
    is_once = pl.col("work").is_in([event_names.DATA_LOADING, event_names.BLOCKING]) | pl.col("phase").is_in(
        ["backward", "optimizer"]
    )
    direction = event_names.copy_direction(pl.col("work").cast(pl.String))
    copied = launched.select(pl.col("work").unique()).filter(
        direction.is_in([event_names.FROM_HOST, event_names.TO_HOST])
    )
    once = pl.concat(
        [
            host.those(is_once, "process_id", "start_ns", "kind", "name").select("process_id", "start_ns"),
            launched.join(copied, on="work", how="semi").select("process_id", start_ns="at_ns"),
        ]
    )
    before = _launched_before(marks, once.sort("process_id", "start_ns"), "host_start_ns").alias("before")
    shown = (pl.col("before").shift(-1) > pl.col("before")).mean().over(_TRACK) >= thresholds.STEP_COVERAGE
    is_part = pl.col("marks").is_null() & (pl.col("name").n_unique().over(_TRACK) > 1) & ~shown
    split = marks.with_columns(before).with_columns(is_part.alias("is_part"))
    turn = pl.int_range(pl.len()).over(*_TRACK, "name").alias("pass")
    names = pl.col("name").str.join("\n")
    passes = (
        split.filter("is_part")
        .with_columns(turn)
        .group_by(*_TRACK, "pass", maintain_order=True)
        .agg(
            pl.all().exclude("name", "host_end_ns").first(),
            pl.col("host_end_ns").max(),
            pl.format("{} to {}", pl.col("name").first(), pl.col("name").last()).alias("name"),
            names.alias("names"),
        )
        .filter(pl.col("names") == pl.col("names").first().over(_TRACK))
    )
    return pl.concat([split.filter(~pl.col("is_part")).select(marks.columns), passes.select(marks.columns)])


def _outside_of_passes(marks: pl.DataFrame, host: Host) -> pl.DataFrame:
    """Return the marks of processes in which no call encloses all of them as parts of one pass.

    Such calls are those of modules and operators, and what its name calls a forward or backward pass.

    It may do so on any thread: autograd's works within a call of the thread that started the backward pass.
    """
    all_of_them = marks.group_by("process_id").agg(
        pl.col("host_start_ns").min().alias("first_ns"), pl.col("host_end_ns").max().alias("last_ns")
    )
    first, last = all_of_them.select(pl.col("first_ns").max(), pl.col("last_ns").min())
    is_work = ((pl.col("kind") == "operator") & ~pl.col("marks")) | pl.col("phase").is_in(["forward", "backward"])
    enclosed = (
        host.events.filter(pl.col("start_ns") <= first, pl.col("end_ns") >= last)
        .join(host.names.filter(is_work), on="name_id", how="semi")
        .join(all_of_them, on="process_id")
        .filter(
            pl.col("start_ns") <= pl.col("first_ns"),
            pl.col("end_ns") >= pl.col("last_ns"),
            (pl.col("start_ns") < pl.col("first_ns")) | (pl.col("end_ns") > pl.col("last_ns")),
        )
        .get_column("process_id")
    )
    return marks.filter(~pl.col("process_id").is_in(enclosed.implode()))


def _announced(known: pl.DataFrame, launched: pl.DataFrame) -> pl.DataFrame:
    """Return steps from marks of frameworks: spans, else turns of optimizers, else optimizer steps, else fetches."""
    whole = outermost(known.filter(pl.col("marks") == "span"), *_TRACK)
    by = pl.struct("process_id", "thread_id", "name")
    ends = known.filter(pl.col("marks") == "end").with_columns(
        pl.col("host_end_ns").shift(1).over(by).fill_null(0).alias("host_start_ns")
    )
    last = pl.lit(launched.get_column("at_ns").max(), dtype=pl.Int64) + 1
    starts = known.filter(pl.col("marks") == "start").with_columns(
        pl.max_horizontal(pl.col("host_start_ns").shift(-1).over(by).fill_null(last), "host_end_ns").alias(
            "host_end_ns"
        )
    )
    tracks = known.filter(pl.col("marks") == "end").partition_by(_TRACK, maintain_order=True)
    turns = pl.concat([known.clear(), *(_in_turns(part, launched) for part in tracks)])
    best = [_best(marks, launched) for marks in (whole, turns, ends, starts)]
    return next((marks for marks in best if marks.height), best[0])


def outermost(spans: pl.DataFrame, *keys: str) -> pl.DataFrame:
    """Return the spans that begin after all earlier ones with their keys, as functions call each other."""
    reached = pl.col("host_end_ns").cum_max().shift(1).over(keys)
    return spans.filter((pl.col("host_start_ns") >= reached).fill_null(True))


def _in_turns(ends: pl.DataFrame, launched: pl.DataFrame) -> pl.DataFrame:
    """Return marks with the ``ends`` of one track, one for each turn; empty where the ends do not alternate.

    Ends alternate where every n-th launches the same work, and neighbours launch other work or have other names: two
    optimizers that step one after the other, or a network trained against another. An incomplete last turn is left out.
    """
    marks = ends.with_columns(pl.col("host_end_ns").shift(1, fill_value=0).alias("host_start_ns"))
    length = _turn(marks, launched)
    if length < 2:
        return marks.clear()
    turn = (pl.int_range(pl.len()) // length).alias("turn")
    firsts = pl.all().exclude("host_end_ns").first()
    merged = marks.group_by(turn, maintain_order=True).agg(firsts, pl.col("host_end_ns").max(), pl.len().alias("ends"))
    return merged.filter(pl.col("ends") == length).select(marks.columns)


def _turn(marks: pl.DataFrame, launched: pl.DataFrame) -> int:
    """Return after how many marks the launches recur; 1 where neighbours launch the same work, or nothing recurs.

    The first mark also includes earlier work, so it is not compared.
    """
    spans = marks.select("process_id", "host_start_ns", "host_end_ns").with_row_index("mark")
    inside = _within(launched, "at_ns", spans)
    # The launches between each mark's start and its end.
    counts = inside.group_by(pl.col("mark").cast(pl.Int64), "work").agg(pl.len().cast(pl.Int64).alias("count"))
    names = marks.select(pl.int_range(pl.len()).alias("mark"), "name")
    for length in range(1, min(_LONGEST_TURN, (marks.height - 1) // 2) + 1):
        pairs = _likeness(counts, names, length)
        again = (pairs.get_column("likeness") >= thresholds.PERIOD_LIKENESS) & pairs.get_column("same")
        if again.len() and again.mean() >= thresholds.PERIOD_LIKENESS:  # type: ignore[operator]
            near = _likeness(counts, names, 1)
            unlike = (near.get_column("likeness") < thresholds.TURN_LIKENESS) | ~near.get_column("same")
            return length if unlike.any() else 1
    return 1


def _within(rows: pl.DataFrame, at: str, marks: pl.DataFrame) -> pl.DataFrame:
    """Return the rows whose instant lies within a mark of their process, in order of it, with the mark's columns."""
    return (
        rows.sort(at)
        .join_asof(
            marks.sort("host_start_ns"), left_on=at, right_on="host_start_ns", by="process_id", check_sortedness=False
        )
        .filter(pl.col(at) < pl.col("host_end_ns"))
    )


def _likeness(counts: pl.DataFrame, names: pl.DataFrame, length: int) -> pl.DataFrame:
    """Return for each mark except the first, and the one ``length`` later: likeness, same (whether names are equal)."""
    later = pl.col("mark") - length
    sizes = counts.group_by("mark").agg(pl.col("count").sum().alias("size"))
    common = (
        counts.join(counts.with_columns(later), on=["mark", "work"], suffix="_later")
        .group_by("mark")
        .agg(pl.min_horizontal("count", "count_later").sum().alias("common"))
    )
    sized = names.join(sizes, on="mark", how="left").join(common, on="mark", how="left").fill_null(0)
    pairs = sized.join(sized.with_columns(later), on="mark", suffix="_later").filter(pl.col("mark") > 0)
    both = pl.col("size") + pl.col("size_later")
    return pairs.select(
        pl.when(both > 0).then(2 * pl.col("common") / both).otherwise(1.0).alias("likeness"),
        (pl.col("name") == pl.col("name_later")).alias("same"),
    )


def _best(marks: pl.DataFrame, launched: pl.DataFrame, apart: Sequence[str] = _TRACK) -> pl.DataFrame:
    """Return each process's marks of the source and thread that enclose most launches, with ``index``.

    Sources whose marks overlap where ``apart`` are equal are ignored. Of several that enclose enough launches, the
    rarest is used; of equally rare ones, the one that encloses most, then the one that begins first. Of labels that
    count on in the numbers of others (``epoch 0``, ``epoch 0 step 1``), the longest is used: its loop is the innermost.
    """
    reached = pl.col("host_end_ns").cum_max().shift(1).over(apart)
    overlaps = (pl.col("host_start_ns") < reached).fill_null(False).any().over(apart)
    grouped = (
        marks.sort("process_id", "host_start_ns", maintain_order=True)
        .filter(~overlaps)
        .with_columns(pl.int_range(pl.len(), dtype=pl.Int64).over(_TRACK).alias("index"))
    )
    if grouped.is_empty() or launched.is_empty():
        return grouped.clear()
    before = launched.select("process_id", start_ns="at_ns").sort("process_id", "start_ns")
    totals = launched.group_by("process_id").agg(pl.len().alias("total"))
    inside = _launched_before(grouped, before, "host_end_ns") - _launched_before(grouped, before, "host_start_ns")
    chosen = (
        grouped.with_columns(inside.alias("inside"))
        .group_by(_TRACK)
        .agg(pl.col("inside").sum(), pl.len().alias("repeats"), pl.col("host_start_ns").min().alias("first_ns"))
        .join(totals, on="process_id")
        .filter(pl.col("inside") >= thresholds.STEP_COVERAGE * pl.col("total"))
    )
    deeper = pl.col("source_deeper").str.strip_prefix(pl.col("source"))
    counted_on = chosen.join(chosen, on="process_id", suffix="_deeper").filter(
        pl.col("source_deeper").str.starts_with(pl.col("source")), deeper.str.contains("#", literal=True)
    )
    chosen = (
        chosen.join(counted_on, on=["process_id", "source"], how="anti")
        .sort("process_id", "repeats", -pl.col("inside"), "first_ns", "source", "thread_id")
        .unique("process_id", keep="first", maintain_order=True)
    )
    return grouped.join(chosen, on=_TRACK, how="semi", maintain_order="left")


def _launched_before(marks: pl.DataFrame, launched: pl.DataFrame, at: str) -> pl.Series:
    """Count the launches (process_id, start_ns), sorted, of each mark's process before ``at``."""
    return counts_until(marks.with_columns(pl.col(at) - 1), at, launched, ["process_id"])


def device_steps(step_marks: pl.DataFrame, linked_events: pl.DataFrame, kernel_launches: pl.DataFrame) -> pl.DataFrame:
    """Return table `steps` (without verdicts): an activity belongs to the step that launched it.

    On a device, a step lasts from the previous step's last activity end to its own (the first from its first activity),
    so the idle time before a step's work belongs to it. A step that launched kernels of which none is recorded is
    ``lost``: it lasts until the next recorded work of a step, as the device may have worked until then. So is a step
    whose work was still queued when the recording ended.
    """
    numbered = step_marks.sort("process_id", "host_start_ns", maintain_order=True).with_row_index("mark")
    linked = linked_events.select("device", "process_id", "start_ns", "duration_ns", "launch_start_ns")
    launched = _within(linked.drop_nulls("launch_start_ns"), "launch_start_ns", numbered)
    processes = launched.select("device", "process_id").unique()
    work = launched.group_by("device", "mark").agg(
        pl.len().alias("activity_count"), pl.col("start_ns").min().alias("first_ns"), END_NS.max().alias("last_ns")
    )
    missing = _within(
        kernel_launches.filter("missing").select("process_id", "start_ns", "queued"), "start_ns", numbered
    )
    queued = missing.filter("queued").select("mark")
    lost = pl.concat([missing.join(work, on="mark", how="anti").select("mark"), queued]).get_column("mark")
    until = pl.col("last_ns").cum_max().forward_fill().over("device")
    kinds = event_names.serving_steps(step_marks.get_column("name")).select("name", "step_kind")
    again = (pl.int_range(pl.len(), dtype=pl.Int64)).over("device", "index")
    bounds = (
        processes.join(numbered.join(kinds, on="name", how="left", maintain_order="left"), on="process_id", how="inner")
        .join(work, on=["device", "mark"], how="left")
        .sort("device", "host_start_ns", "mark")
        .with_columns(pl.col("mark").is_in(lost.implode()).alias("lost"))
        .with_columns(
            pl.when("lost")
            .then(pl.col("first_ns").backward_fill().over("device"))
            .otherwise("last_ns")
            .alias("last_ns")
        )
        .with_columns(until.alias("until_ns"))
        .with_columns(
            pl.coalesce(pl.col("until_ns").shift(1).over("device"), "first_ns").alias("start_ns"),
            pl.col("until_ns").alias("end_ns"),
            pl.col("activity_count").fill_null(0),
        )
        .drop_nulls("start_ns")
        .with_columns(pl.col("index") + again * (pl.col("index").max().over("device") + 1))
    )
    if bounds.height > MAX_STEP_ROWS:
        bounds = bounds.filter((pl.col("activity_count") > 0) | pl.col("lost"))
    spans = linked_events.select("device", "start_ns", END_NS)
    busy = with_covered(bounds, union(spans, ["device"]), ["device"], "busy_ns")
    nulls = (pl.lit(None, dtype=STEPS.schema[column]).alias(column) for column in OF_VERDICTS)
    return STEPS.conform(with_states(busy).with_columns(nulls))


MAX_STEP_ROWS = 20_000
"""Most rows: beyond it, steps without device work are left out, as a small file with many devices and steps has
millions."""


def with_verdicts(device_steps: pl.DataFrame, step_verdicts: pl.DataFrame) -> pl.DataFrame:
    """Return table `steps`: the steps of each device with their verdicts; null without one."""
    verdicts = step_verdicts.drop("device", "index").columns
    frame = device_steps.drop(verdicts).join(step_verdicts, on=["device", "index"], how="left", maintain_order="left")
    return STEPS.conform(frame)


ANALYSES = (
    analysis.Value("host_steps", host_steps),
    analysis.Value("step_marks", lambda host_steps: host_steps.marks),
    analysis.Value("device_steps", device_steps),
    analysis.Analysis(STEPS, with_verdicts),
)
