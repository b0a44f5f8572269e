"""Change kernels: fuse them, speed them up, use a narrower type or a bigger batch."""

from collections.abc import Mapping
from math import inf

import numpy as np
import polars as pl

from trace_analyzer.analyses.tensor_cores import halved_in_16_bits, in_tf32, mostly_narrow
from trace_analyzer.catalog.event_names import NAMED, OPTIMIZER_STEP, ZERO_GRAD, step_marks
from trace_analyzer.catalog.kernels import bucket_key, is_group_named, is_line, line_label
from trace_analyzer.errors import did_you_mean
from trace_analyzer.frames.arrays import column
from trace_analyzer.frames.lookups import as_strings, factorize, lookup, map_unique
from trace_analyzer.replay.graph import CALL, EXECUTION, GAP, LATENCY, QUEUE, THREAD, WAIT
from trace_analyzer.replay.recording import LAUNCHING, OF_SAMPLES, Flags, Ints, by_track, is_any, median
from trace_analyzer.replay.weights import (
    Floats,
    NotApplicable,
    NothingToChange,
    Scene,
    UnknownTarget,
    Weights,
    scale_activities,
    scale_host,
)
from trace_analyzer.thresholds import SMALL_MESSAGE_BYTES
from trace_analyzer.units import count, size

FIXED_KERNEL_NS = 2_000
"""Part of a kernel's time that is independent of its work: start and drain."""
GROWTHS: Mapping[str, tuple[float, float]] = {"": (1.0, 10_000), "low": (0.4, 25_000), "high": (2.5, 3_000)}
"""Share of a kernel's start that a wave of blocks adds, and the longest start, ns: the likely ones, and the ends of what they may be.

With the likely ones the device's time of a recorded series (16, 64 and 128 samples) is off by 1 to 11 %; the ends hold it.
"""
LAUNCH_MEDIANS = 3
"""Fusing a kernel saves at most this many median intervals of CPU time before its launch."""
_SIGNATURE = 16


def fuse(weights: Weights, scene: Scene, options: Mapping[str, float | str]) -> None:
    """Run each chain of table `fusions`, or those of kind ``of``, as one kernel: less traffic, one launch, no gaps."""
    fusions = scene.tables["fusions"]
    wanted = fusions.filter(pl.col("kind") == options["of"]) if "of" in options else fusions
    if wanted.is_empty():
        raise NothingToChange("no kernels that one kernel could replace")
    factor, inner = _fused(scene, wanted)
    if not inner.any():
        raise NothingToChange("no kernels that one kernel could replace")
    _merge(weights, scene, factor, inner)


def _merge(weights: Weights, scene: Scene, factor: Floats, inner: Flags) -> None:
    """Let activities take a ``factor`` of their time, and ``inner`` ones need no gap before them, and no launch."""
    graph = scene.graph
    scale_activities(weights, graph, factor != 1, factor)
    gaps = np.flatnonzero(graph.kind == GAP)
    own = gaps[inner[graph.ref[gaps]]]
    weights.device[own] = weights.rest[own]
    calls = np.zeros(graph.recorded.calls.start.size, dtype=bool)
    gone = graph.recorded.activities.call[inner]
    calls[gone[gone >= 0]] = True
    call = np.flatnonzero(graph.kind == CALL)
    weights.host[call[calls[graph.ref[call]]]] = 0
    stretch = graph.ref[_before(scene, calls)]
    # Launch time is saved; a longer interval before the launch includes other work.
    parts = weights.parts[list(LAUNCHING)][:, stretch]
    length = parts.sum(axis=0)
    usual = LAUNCH_MEDIANS * median(length[length > 0]) if (length > 0).any() else 0.0
    left = np.maximum(length - usual, 0) / np.maximum(length, 1)
    for part in LAUNCHING:
        weights.parts[part][stretch] *= left


def _before(scene: Scene, calls: Flags) -> Ints:
    """Return the edges of threads that lead to these calls."""
    graph = scene.graph
    begins = np.zeros(graph.time.size, dtype=bool)
    begins[graph.call_starts[calls]] = True
    thread = np.flatnonzero(graph.kind == THREAD)
    return thread[begins[graph.target[thread]]]


def buckets(weights: Weights, scene: Scene, options: Mapping[str, float | str]) -> None:
    """Send small messages of one kind as one of up to `BUCKET_BYTES`, if nothing needs the first before the last.

    The last one takes one latency, the time of the shortest, and what all take beyond theirs: transfer, and waiting for
    peers. With the option ``reach`` it takes no longer than now.
    """
    members = _small_messages(scene)
    key = [*_OF_BUCKET, pl.col("message_bytes").cum_sum().over(_OF_BUCKET) // BUCKET_BYTES]
    beyond = pl.col("duration_ns") - pl.col("latency_ns")
    more = 0.0 if "reach" in options else (beyond.sum().over(key) - beyond) / pl.col("duration_ns").clip(1)
    is_last = pl.col("row") == pl.col("row").max().over(key)
    members = members.select("row", is_last=is_last, factor=pl.when(is_last).then(1.0 + more).otherwise(0.0))
    inner = members.filter(~pl.col("is_last")).get_column("row").to_numpy()
    if not inner.size:
        raise NothingToChange("no small messages could be sent as one")
    factor, gone = np.ones(scene.known.table.height), np.zeros(scene.known.table.height, dtype=bool)
    factor[members.get_column("row").to_numpy()] = members.get_column("factor").to_numpy()
    gone[inner] = True
    _merge(weights, scene, factor, gone)


def _small_messages(scene: Scene) -> pl.DataFrame:
    """Return row of each activity, its bytes and time, the latency in that, and what tells its bucket.

    Raises `NotApplicable` where collectives have no recorded size.
    """
    graph, activities = scene.graph, scene.graph.recorded.activities
    sent = scene.tables["collectives"].select("activity_id", "collective", "message_bytes", "group_size")
    of_kinds = (
        scene.known.table.select("duration_ns", "start_ns", step=column(activities.step))
        .hstack(lookup(sent, scene.tables["activities"], "activity_id"))
        .with_row_index("row")
        .filter(pl.col("collective").is_in(BUCKETED), (pl.col("group_size") >= 2).fill_null(True))
    )
    if of_kinds.get_column("message_bytes").has_nulls():
        raise NotApplicable("the sizes of messages are not recorded")
    small = of_kinds.filter(pl.col("message_bytes") < SMALL_MESSAGE_BYTES)
    follows = np.isin(graph.source, graph.ends[small.get_column("row").to_numpy()]) & is_any(graph.kind, (GAP, WAIT))
    needing = graph.ref[follows]
    needed = np.sort(activities.start[needing[~scene.collective[needing]]])
    latency = pl.col("duration_ns").min().over("collective", "group_size")
    piece = column(np.searchsorted(needed, small.get_column("start_ns").to_numpy(), "right"))
    return small.with_columns(latency_ns=latency, piece=piece)


BUCKETED = ("all_reduce", "reduce_scatter", "all_gather")
"""Collectives whose messages can be sent as one."""
BUCKET_BYTES = 100_000_000
"""Size of the buckets that the code of the advice asks for."""
_OF_BUCKET = ("step", "collective", "group_size", "piece")


def _fused(scene: Scene, fusions: pl.DataFrame) -> tuple[Floats, Flags]:
    """Return the factor on each activity's time in its fused kernel, and which activities start within one."""
    table = scene.known.table
    factor, inner = np.ones(table.height), np.zeros(table.height, dtype=bool)
    keys = scene.known.kernel_codes
    start, device = table.get_column("start_ns").to_numpy(), scene.graph.recorded.activities.device
    track = scene.graph.recorded.activities.track
    for row in fusions.iter_rows(named=True):
        length = row["kernel_count"] // max(row["count"], 1)
        since, until = np.searchsorted(start, (row["start_ns"], row["end_ns"]))
        first = since + np.flatnonzero(device[since:until] == row["device"])
        if length < 2 or first.size < length:
            continue
        runs = _runs(keys, track, first[:1], length, row["count"])
        runs = runs[~inner[runs].any(axis=1) & (factor[runs] == 1).all(axis=1)]
        factor[runs] = 1 - row["saves_ns"] / max(row["time_ns"], 1)
        inner[runs[:, 1:]] = True
    return factor, inner


def _runs(keys: Ints, track: Ints, first: Ints, length: int, count: int) -> Ints:
    """Return up to ``count`` rows of ``length`` activities of one stream with the same kernels as from ``first`` on."""
    own = np.flatnonzero(track == track[first[0]])
    at = int(np.searchsorted(own, first[0]))
    wanted = keys[own[at : at + min(length, _SIGNATURE)]]
    if at + length > own.size:
        return np.empty((0, length), dtype=np.int64)
    of_track = keys[own]
    begins = np.flatnonzero(of_track[: own.size - length + 1] == wanted[0])
    for shift, key in enumerate(wanted.tolist()):
        begins = begins[of_track[begins + shift] == key]
    chosen: list[int] = []
    reached = -1
    for begin in begins.tolist():
        if begin >= reached and len(chosen) < count:
            chosen.append(begin)
            reached = begin + length
    rows: Ints = own[np.array(chosen, dtype=np.int64)[:, None] + np.arange(length)]
    return rows


def overlap(weights: Weights, scene: Scene, options: Mapping[str, float | str]) -> None:
    """Let all communication overlap with computation, a best case.

    A step takes at least as long as its communication; not with the option ``reach``, as nobody knows how much of it
    waits for peers.
    """
    if not scene.collective.any():
        raise NothingToChange("nothing is communicated")
    if "reach" not in options:
        _last_as_long(weights, scene, scene.collective)
    scale_activities(weights, scene.graph, scene.collective, 0.0)


def overlap_copies(weights: Weights, scene: Scene, options: Mapping[str, float | str]) -> None:
    """Let all copies between pinned memory and the device overlap with computation, a best case.

    A step takes at least as long as its copies. Copies of pageable memory block: `pinned` comes first.
    """
    kinds = [number for number, name in enumerate(scene.known.labels) if name in ("memcpy HtoD", "memcpy DtoH")]
    copies = np.isin(scene.known.activity_label, kinds) & ~scene.graph.recorded.activities.pageable
    if not copies.any():
        raise NothingToChange("nothing is copied between pinned memory and the device")
    _last_as_long(weights, scene, copies)
    scale_activities(weights, scene.graph, copies, 0.0)


def _last_as_long(weights: Weights, scene: Scene, chosen: Flags) -> None:
    """Let a step take at least as long as its chosen activities on the stream with most of them."""
    graph = scene.graph
    runs = np.flatnonzero((graph.kind == EXECUTION) & scene.steady)
    runs = runs[chosen[graph.ref[runs]]]
    on_stream = np.bincount(graph.recorded.activities.track[graph.ref[runs]], weights=weights.device[runs])
    weights.at_least_ns = max(weights.at_least_ns, on_stream.max(initial=0.0) / max(scene.steady_steps, 1))


SIDES: Mapping[str, str] = {"cpu": "CPU", "gpu": "GPU"}
"""Sides of a program that a speed-up may name, with their labels."""


def target_key(text: str) -> str:
    """Convert the label of a side or of a kernel bucket to its key; other names stay.

    >>> target_key("CPU"), target_key("Copy and cast"), target_key("aten::mm")
    ('cpu', 'copy_cast', 'aten::mm')
    """
    return text.lower() if text.lower() in SIDES else bucket_key(text)


def target_label(key: str) -> str:
    """Return the label of a side or bucket; names of operators and modules stay.

    >>> target_label("cpu"), target_label("copy_cast"), target_label("aten::mm")
    ('CPU', 'Copy and cast', 'aten::mm')
    """
    return SIDES.get(key) or (line_label(key) if is_line(key) or key == "copies" else key)


def speedup(weights: Weights, scene: Scene, options: Mapping[str, float | str]) -> None:
    """Make ``target`` ``factor`` times as fast.

    A target is cpu, gpu, a group or bucket of kernels (by key or label), an operator, or a module.
    """
    target, factor = str(options["target"]), float(options["factor"])
    by = 0.0 if factor == inf else 1 / factor
    if target == "cpu":
        scale_host(weights, by)
        return
    if target == "gpu":
        scale_activities(weights, scene.graph, np.ones(scene.known.table.height, dtype=bool), by)
        return
    chosen = chosen_activities(scene, target)
    if not chosen.any():
        names = sorted({*SIDES, *_names(scene, "bucket"), *_names(scene, "group")})
        meant = did_you_mean(target, names) or f"; some that there are: {', '.join(names)}"
        raise UnknownTarget(f"no bucket, group, operator or module {target!r}{meant}")
    scale_activities(weights, scene.graph, chosen, by)


def _names(scene: Scene, column: str) -> list[str]:
    return scene.known.table.get_column(column).drop_nulls().unique().to_list()


def chosen_activities(scene: Scene, target: str) -> Flags:
    """Return the activities of a bucket, a group, a kind of copy, an operator or a module; the first match counts."""
    for name in ("bucket", "group", "label", "operator"):
        if (chosen := _where(scene, pl.col(name) == target)).any():
            return chosen
    if target == "copies":
        return _where(scene, pl.col("kind") == "memcpy")
    if grouped := [key for key in _names(scene, "group") if is_group_named(key, target)]:
        return _where(scene, pl.col("group").is_in(grouped))
    plain = _where(scene, pl.col("operator") == f"aten::{target}")
    return plain if plain.any() else _of_module(scene, target)


def _where(scene: Scene, condition: pl.Expr) -> Flags:
    return scene.known.table.select(condition.fill_null(False)).to_series().to_numpy().astype(bool)


def _of_module(scene: Scene, module: str) -> Flags:
    """Return activities launched by an ``nn.Module``, named by the last part of its path, or by its backward pass."""
    events = scene.tables["host_events"].select("event_id", "kind", "name", "thread_id", "start_ns", "duration_ns")
    name = module.rsplit("/", 1)[-1]
    text = pl.col("name").cast(pl.String)
    forward = events.filter((pl.col("kind") == "python") & text.is_in([f"nn.Module: {name}", name]))
    backward = scene.tables["backward_links"].filter(
        pl.col("module").cast(pl.String).str.split("/").list.contains(name).fill_null(False)
    )
    behind = events.filter(pl.col("event_id").is_in(backward.get_column("event_id").implode()))
    return _launched_in(scene, pl.concat([forward, behind]))


def _launched_in(scene: Scene, spans: pl.DataFrame) -> Flags:
    """Return the activities whose call lies in a span of its thread (thread_id, start_ns, duration_ns)."""
    return _calls_in(scene, spans)[scene.graph.recorded.activities.call]


def _calls_in(scene: Scene, spans: pl.DataFrame) -> Flags:
    """Return which calls lie in a span of their thread, and at last False for activities without a call."""
    calls = scene.graph.recorded.calls
    inside = np.zeros(calls.start.size + 1, dtype=bool)
    for thread, start, length in spans.select("thread_id", "start_ns", "duration_ns").iter_rows():
        low, high = np.searchsorted(calls.thread, thread, "left"), np.searchsorted(calls.thread, thread, "right")
        first, last = low + np.searchsorted(calls.start[low:high], (start, start + length))
        inside[first:last] = True
    return inside


def of_updates(scene: Scene) -> Flags:
    """Return the edges of optimizers' steps: calls, what the CPU does before each, and what the device waits for."""
    graph, annotations = scene.graph, scene.tables["host_events"].filter(pl.col("kind") == "annotation")
    calls = _calls_in(scene, annotations.filter(pl.col("name").cast(pl.String).str.contains(OPTIMIZER_STEP)))
    of_calls, of_work = is_any(graph.kind, (CALL, QUEUE)), is_any(graph.kind, (LATENCY, GAP))
    found = np.zeros(graph.kind.size, dtype=bool)
    found[of_calls] = calls[graph.ref[of_calls]]
    found[of_work] = calls[graph.recorded.activities.call[graph.ref[of_work]]]
    found[_before(scene, calls[:-1])] = True
    return found


def narrower(weights: Weights, scene: Scene, options: Mapping[str, float | str]) -> None:
    """Run eligible FP32 kernels in a narrower type, at `_reached` of its roof, or at the roof (option ``reach``).

    Matmuls and convolutions run on tensor cores. With 16 bits, those in TF32 take half, as its peaks are half of theirs, and
    so do passes over memory (`halved_in_16_bits`). Optimizers stay, as parameters do.
    """
    half = options["dtype"] == "bf16"
    rows = scene.tables["tensor_cores"].filter((pl.col("reason") == "fp32") & (pl.col("time_ns") > 0))
    if not half:
        rows = rows.filter(pl.col("target_dtype") == "tf32")
    key = ["device", "name", "operator"]
    sums = (
        rows.with_columns(pl.col("name", "operator").cast(pl.String))
        .group_by(key)
        .agg(pl.col("could_ns", "time_ns").sum(), pl.col("target_dtype").first())
    )
    share = (
        pl.col("could_ns")
        / pl.col("time_ns")
        * (pl.when(pl.col("target_dtype") == "tf32").then(0.5).otherwise(1.0) if half else 1.0)
    )
    kernels = scene.known.table.select(*key, "dtype", "bound", "group", "bucket")
    numbers, firsts = factorize(*kernels)
    joined = as_strings(kernels[firsts]).join(
        sums.select(*key, share.alias("share")), on=key, how="left", nulls_equal=True, maintain_order="left"
    )
    reached = 1.0 if "reach" in options else _reached(scene, rows.get_column("target_dtype").unique().to_list())
    factor = (joined.get_column("share") / reached).fill_null(1.0).clip(0.0, 1.0).to_numpy().copy()
    factor = factor[numbers.to_numpy()]
    if half and not mostly_narrow(scene.known.table):
        halved = halved_in_16_bits(trains=not scene.tables["backward_links"].is_empty())
        traffic = (pl.col("dtype") == "fp32") & halved & pl.col("share").is_null()
        factor[joined.select(traffic.fill_null(False)).to_series()[numbers].to_numpy()] = 0.5
        known = _with_roofs(scene)
        of_roof = (pl.col("roof_ns") / pl.col("duration_ns")).fill_null(1.0) if "reach" in options else pl.lit(1.0)
        share = pl.when(in_tf32(known)).then(of_roof.clip(0.0, 1.0) / 2)
        factor = np.fmin(factor, known.select(share).to_series().to_numpy())
    if half:
        factor[_of_optimizer(scene)] = 1.0
    if not (factor < 1).any():
        raise NothingToChange("no kernel is known to compute in FP32 where a narrower type is faster")
    scale_activities(weights, scene.graph, factor < 1, factor)


def _with_roofs(scene: Scene) -> pl.DataFrame:
    """Return the scene's activities with the time that each takes at its roofs."""
    roofs = scene.tables["roofs"].select("activity_id", "roof_ns", "compute_roof_ns")
    return scene.known.table.hstack(lookup(roofs, scene.tables["activities"], "activity_id"))


def _reached(scene: Scene, targets: list[str]) -> float:
    """Return the share of the roof that matmuls and convolutions of the target types reach here, else those in FP32."""
    roofs = scene.tables["roofs"].select("activity_id", "roof_ns").drop_nulls()
    kernels = scene.tables["activities"].select("group", "dtype", "duration_ns")[roofs.get_column("activity_id")]
    known = as_strings(kernels).hstack(roofs).filter(pl.col("group") == "matmul")
    for dtypes in (targets, ["fp32"]):
        own = known.filter(pl.col("dtype").is_in(dtypes))
        ran, roof = (float(own.get_column(name).sum() or 0) for name in ("duration_ns", "roof_ns"))
        if ran:
            return min(max(roof / ran, _LEAST_REACHED), 1.0)
    return 1.0


_LEAST_REACHED = 0.1
"""Least share of a roof: kernels below it are limited by something that a narrower type does not change."""


def batch(weights: Weights, scene: Scene, options: Mapping[str, float | str]) -> None:
    """Multiply the batch: kernels grow by their waves or their work; loading, waits and copies in proportion.

    Option ``end`` is one of `GROWTHS`. Calls that stage pageable memory grow as their copies.
    """
    times, graph, table = float(options["times"]), scene.graph, scene.known.table
    if times == 1:
        raise NothingToChange("the batch stays as big as it is")
    updates = _of_optimizer(scene)
    _refuse_what_does_not_fit(scene, times, updates)
    duration = table.get_column("duration_ns").to_numpy().astype(np.float64)
    grown = _grown(scene, times, str(options.get("end", "")))
    factor = np.where(updates | (duration == 0), 1.0, grown / np.maximum(duration, 1))
    scale_activities(weights, graph, np.ones(table.height, dtype=bool), factor)
    weights.parts[list(OF_SAMPLES)] *= times
    weights.at_least_ns *= times
    activities = graph.recorded.activities
    staged = activities.pageable & (activities.call >= 0)
    of_call = np.ones(graph.recorded.calls.start.size)
    of_call[activities.call[staged]] = factor[staged]
    calls, delays = np.flatnonzero(graph.kind == CALL), np.flatnonzero(graph.kind == LATENCY)
    weights.host[calls] *= of_call[graph.ref[calls]]
    weights.host[delays] *= np.where(staged, factor, 1.0)[graph.ref[delays]]


def _grown(scene: Scene, times: float, end: str) -> Floats:
    """Return each activity's time with ``times`` as much work, ns.

    A kernel takes a start of at most ``start_ns``, and a ``share`` of it for each wave. What it takes beyond that is the
    time of long blocks: they fill a wave before it grows. In proportion grow copies and kernels whose grid does not depend
    on the batch: batch normalization's, and persistent ones, which have the same whole number of blocks on each
    multiprocessor. No kernel beats its roof.
    """
    if not scene.sm_count:
        raise NotApplicable("the device's number of multiprocessors is not known")
    share, start_ns = GROWTHS[end]
    ran, waves = pl.col("duration_ns").cast(pl.Float64), pl.col("waves")
    start = pl.min_horizontal(ran, start_ns * (1 + share * waves))
    filling = pl.max_horizontal(1.0, times * waves) / pl.max_horizontal(1.0, waves)
    by_waves = start * (1 + share * times * waves) / (1 + share * waves) + (ran - start) * filling
    fixed = pl.min_horizontal(ran, float(FIXED_KERNEL_NS))
    is_persistent = (pl.col("blocks") % scene.sm_count == 0) & (waves <= 1)
    by_work = is_persistent | pl.col("operator").cast(pl.String).str.contains("batch_norm").fill_null(False)
    is_product = (pl.col("group") == "matmul").fill_null(False)
    # For other sizes a library chooses other kernels than those that leave multiprocessors empty.
    chosen = is_product & (pl.col("blocks") < scene.sm_count)
    grown = (
        pl.when(chosen & (end == "high")).then(ran * times)
        .when((chosen | is_product & (pl.col("bound") == "memory")) & (end == "low")).then(ran)
        .when(by_work | waves.is_null()).then(fixed + (ran - fixed) * times)
        .otherwise(by_waves)
    )  # fmt: skip
    # Of a product's bytes those of weights do not grow.
    roof = pl.when(is_product).then("compute_roof_ns").otherwise("roof_ns").fill_null(0.0)
    return (
        _with_roofs(scene).select(pl.max_horizontal(grown, times * pl.min_horizontal(roof, ran))).to_series().to_numpy()
    )


def _refuse_what_does_not_fit(scene: Scene, times: float, updates: Flags) -> None:
    """Raise `NotApplicable` where the tensors of one pointwise kernel, all live at once, would exceed device memory."""
    activities = scene.tables["activities"].select("device", "bucket", "moved_bytes")
    grows = (pl.col("bucket") == "pointwise") & (pl.col("device") == scene.graph.recorded.device)
    known = activities.select(pl.when(grows).then("moved_bytes").fill_null(0.0)).to_series().to_numpy()
    moved = float(known[~updates].max(initial=0.0))
    if scene.memory_bytes is not None and times * moved > scene.memory_bytes:
        raise NotApplicable(
            f"the tensors of one kernel take {size(moved)} now, and {count(times)} times as much is more than the device's"
            f" {size(scene.memory_bytes)}"
        )


def _of_optimizer(scene: Scene) -> Flags:
    """Return the activities launched by optimizers, as parameters do not grow with the batch."""
    events = scene.tables["host_events"]
    is_update = map_unique(events.select("name"), pl.col("name").str.contains(f"{OPTIMIZER_STEP}|{ZERO_GRAD}"))
    return _launched_in(scene, events.filter(is_update.to_series()))


def named_alone(scene: Scene, least_ns: int) -> Flags:
    """Return the edges of threads within which an annotation of the program lies: no call is in it, so nothing is launched."""
    graph, meant = scene.graph, (pl.col("kind") == "annotation") & (pl.col("duration_ns") >= least_ns)
    events = as_strings(
        scene.tables["host_events"].filter(meant).select("kind", "name", "thread_id", "start_ns", "duration_ns")
    )
    marks = step_marks(events).filter(pl.col("marks") != NAMED)
    spans = events.join(marks, on=["kind", "name"], how="anti")
    thread, start, length = (
        spans[name].to_numpy().astype(np.int64) for name in ("thread_id", "start_ns", "duration_ns")
    )
    edges = np.flatnonzero(graph.kind == THREAD)
    alone = np.zeros(graph.kind.size, dtype=bool)
    if not edges.size or not thread.size:
        return alone
    known, asked = by_track((graph.thread[graph.target[edges]], graph.time[graph.source[edges]]), (thread, start))
    order = np.argsort(known, kind="stable")
    at = edges[order[np.maximum(np.searchsorted(known[order], asked, "right") - 1, 0)]]
    holds = (graph.thread[graph.target[at]] == thread) & (start + length <= graph.time[graph.target[at]])
    alone[at[holds & (graph.time[graph.source[at]] <= start)]] = True
    return alone
