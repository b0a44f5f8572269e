"""Findings and verdict -> advice: what to change, where, and how much it can save at most.

Each rule of `_RULES` is a function of the findings that returns its advice, or None where its condition
does not hold. A rule belongs to regimes: what a regime cannot use is not said.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import polars as pl

from trace_analyzer import thresholds
from trace_analyzer.analyses.intervals import at, clip
from trace_analyzer.catalog.devices import Device
from trace_analyzer.report import Advice, Regime, Verdict
from trace_analyzer.units import count, duration, percent


@dataclass(frozen=True)
class Scene:
    """What the rules look at: the verdict, its window's idle time and kernels, and who was at work."""

    verdict: Verdict
    window_ns: int
    idle: pl.DataFrame
    activities: pl.DataFrame
    host_events: pl.DataFrame
    steps: int
    model: Device | None


def advise(
    verdict: Verdict, frames: Mapping[str, pl.DataFrame], device: int | None, model: Device | None
) -> tuple[Advice, ...]:
    """Advice for a verdict with a regime, most time saved first; times are for the verdict's window.

    ``device`` is the code of the judged device and ``model`` its row of the catalogue, where known.
    """
    if verdict.regime is None or verdict.window is None or device is None:
        return ()
    scene = _scene(verdict, frames, device, model)
    regimes = {verdict.regime, verdict.runner_up}
    found = [rule(scene) for of, rule in _RULES if of in regimes]
    worth = [item for item in found if item and item.saves_ns_at_most >= thresholds.WORTH_RATIO * scene.window_ns]
    return tuple(sorted(worth, key=lambda item: -item.saves_ns_at_most))


def _scene(verdict: Verdict, frames: Mapping[str, pl.DataFrame], device: int, model: Device | None) -> Scene:
    this = pl.col("device") == device
    assert verdict.window is not None
    spans = pl.DataFrame(
        [(device, *interval) for interval in verdict.window.intervals],
        schema={"device": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64},
        orient="row",
    )
    activities = frames["activities"].filter(this)
    inside = at(activities, "start_ns", spans.with_columns(pl.lit(True).alias("inside")), ["device"], ["inside"])
    return Scene(
        verdict=verdict,
        window_ns=sum(verdict.parts_ns.values()),
        idle=_with_waiting(clip(frames["idle"].filter(this), spans, ["device"]), frames["gaps"], activities),
        activities=inside.filter("inside"),
        host_events=frames["host_events"],
        steps=max(1, len(verdict.window.steps)),
        model=model,
    )


def _with_waiting(idle: pl.DataFrame, gaps: pl.DataFrame, activities: pl.DataFrame) -> pl.DataFrame:
    """Idle time with ``waiting``: the name of the activity that ended the gap."""
    names = activities.select("activity_id", pl.col("name").alias("waiting"))
    ended = gaps.select("gap_id", "activity_id").join(names, on="activity_id", how="inner")
    return idle.join(ended.select("gap_id", "waiting"), on="gap_id", how="left", maintain_order="left")


def _where(scene: Scene, causes: tuple[str, ...]) -> tuple[str, int | None, int | None]:
    """What the host did in most of the idle time of some causes, and the longest such stretch.

    Where the host did nothing about it, the work that had to wait.
    """
    idle = scene.idle.filter(pl.col("cause").is_in(causes))
    if idle.is_empty():
        return "", None, None
    length = pl.col("end_ns") - pl.col("start_ns")
    events = scene.host_events.select("event_id", "name")
    start, end = idle.sort(length, descending=True).select("start_ns", "end_ns").row(0)
    doing = _longest(idle.join(events, on="event_id", how="inner"), "name", length)
    return doing or "before " + _longest(idle, "waiting", length), start, end


def _longest(idle: pl.DataFrame, name: str, length: pl.Expr) -> str:
    """The three names that hold most time, with it."""
    sums = idle.group_by(name).agg(length.sum().alias("idle_ns")).sort("idle_ns", name, descending=[True, False])
    return "; ".join(f"{name} ({duration(ns)})" for name, ns in sums.head(3).iter_rows())


def _idle_advice(
    scene: Scene, causes: tuple[str, ...], title: str, code: str, why: str, extra_ns: int = 0
) -> Advice | None:
    """Advice against some idle causes: it saves at most all of their time."""
    parts = scene.verdict.parts_ns
    saves = sum(parts.get(cause, 0) for cause in causes) + extra_ns
    if saves == 0:
        return None
    where, start, end = _where(scene, causes)
    bound = " + ".join(causes) + (" + time in kernels too small to fill the device" if extra_ns else "")
    share = percent(saves / scene.window_ns)
    return Advice(
        title,
        f"{share} of the window ({duration(saves)}): {why}",
        where,
        code,
        saves,
        f"all idle time of the window with cause {bound}",
        start,
        end,
    )


def _launch(scene: Scene) -> Advice | None:
    launches = scene.activities.get_column("launch_id").drop_nulls().n_unique()
    parts = scene.verdict.parts_ns
    small = parts.get("latency", 0) + parts.get("device-gap", 0)
    per_step = f"{count(launches / scene.steps)} launches" + (" per step" if scene.steps > 1 else "")
    causes = ("python", "dispatch", "runtime-call", "launch-latency", "host-unknown", "garbage-collection")
    return _idle_advice(
        scene,
        causes,
        "Launch less often: compile, or replay a CUDA graph",
        'model = torch.compile(model, mode="reduce-overhead")  # or torch.cuda.graph(...); or a bigger batch',
        f"the CPU needs longer to prepare a kernel than the GPU to run it ({per_step})",
        small,
    )


def _synchronization(scene: Scene) -> Advice | None:
    return _idle_advice(
        scene,
        ("synchronization",),
        "Do not wait for the GPU inside the loop",
        "losses.append(loss.detach())  # instead of loss.item(); no .cpu(), print, nonzero or boolean masks per step",
        "after a blocking call the queue is empty, and the GPU waits for the next launch",
    )


def _data(scene: Scene) -> Advice | None:
    return _idle_advice(
        scene,
        ("data-loading",),
        "Load data in parallel with the GPU's work",
        "DataLoader(..., num_workers=8, pin_memory=True, prefetch_factor=4, persistent_workers=True)",
        "the loop waits in the data loader while the GPU has nothing queued",
    )


def _allocation(scene: Scene) -> Advice | None:
    return _idle_advice(
        scene,
        ("allocation",),
        "Keep memory instead of allocating it again",
        "os.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'expandable_segments:True'  # no empty_cache() in the loop; reuse buffers",
        "cudaMalloc and cudaFree stop the CPU, and often the device",
    )


def _compilation(scene: Scene) -> Advice | None:
    return _idle_advice(
        scene,
        ("compilation",),
        "Compile and load code before it counts",
        "warm up with the real shapes; torch.compile(model, dynamic=True) against recompilation; CUDA_MODULE_LOADING=EAGER",
        "code is compiled, or kernels are loaded at their first use, while the GPU waits",
    )


def _blocking_copy(scene: Scene) -> Advice | None:
    return _idle_advice(
        scene,
        ("blocking-copy",),
        "Copy without blocking the CPU",
        "x = x.pin_memory().to('cuda', non_blocking=True)",
        "copies of pageable memory hold the CPU until they are done",
    )


def _cpu_operator(scene: Scene) -> Advice | None:
    return _idle_advice(
        scene,
        ("cpu-operator",),
        "Move CPU operators off the critical path",
        "create and transform tensors with device='cuda', or in data-loader workers",
        "operators compute on the CPU for milliseconds while the GPU waits",
    )


def _memory(scene: Scene) -> Advice | None:
    """Members of chains of memory-bound kernels on a stream, but the first of each chain."""
    fusible = pl.col("group").is_in(["pointwise", "normalization"]) & (pl.col("bound") == "memory")
    chain = scene.activities.sort("stream", "start_ns").with_columns(
        (fusible & fusible.shift(1).over("stream").fill_null(False)).alias("follows")
    )
    followers = chain.filter("follows")
    saves = int(followers.get_column("duration_ns").sum())
    if saves == 0:
        return None
    names = (
        followers.group_by("operator")
        .agg(pl.col("duration_ns").sum())
        .sort("duration_ns", "operator", descending=[True, False])
    )
    listed = "; ".join(f"{name or 'unknown operator'} ({duration(ns)})" for name, ns in names.head(3).iter_rows())
    start, length = followers.sort("duration_ns", descending=True).select("start_ns", "duration_ns").row(0)
    return Advice(
        "Fuse chains of memory-bound kernels",
        f"{count(followers.height)} pointwise and normalization kernels follow another one on their stream: each"
        f" reads and writes all its data again ({percent(saves / scene.window_ns)} of the window)",
        listed,
        "model = torch.compile(model)  # or fused layers: F.scaled_dot_product_attention, foreach/fused optimizers",
        saves,
        "time of every such kernel but the first of its chain: a fused chain moves data once",
        start,
        start + length,
    )


def _low_precision(scene: Scene) -> Advice | None:
    """Contractions that ran without tensor cores in fp32, on a device that is faster in another dtype."""
    fp32 = pl.col("dtype") == "fp32"
    by_name = pl.col("name").str.contains(r"(?i)sgemm|fp32_fp32|_f32f32_f32f32_f32")
    tf32 = pl.col("name").str.contains(r"(?i)tf32|s1688|bf16|f16|half|Bfloat16")
    slow = scene.activities.filter((pl.col("bound") == "compute") & (fp32 | by_name) & ~tf32)
    total = int(slow.get_column("duration_ns").sum())
    faster = _faster_than_fp32(scene.model)
    if total == 0 or faster is None:
        return None
    dtype, ratio = faster
    start, length = slow.sort("duration_ns", descending=True).select("start_ns", "duration_ns").row(0)
    autocast = f"torch.autocast('cuda', dtype=torch.{_TORCH_DTYPES[dtype]})"
    return Advice(
        f"Use tensor cores: {'TF32 or bf16' if dtype == 'tf32' else dtype} instead of fp32",
        f"{count(slow.height)} contractions ran in fp32 ({percent(total / scene.window_ns)} of the window)",
        _operators(slow),
        f"torch.set_float32_matmul_precision('high')  # or {autocast}" if dtype == "tf32" else autocast,
        round(total * (1 - 1 / ratio)),
        f"time of contractions in fp32, if they reach the peak of {dtype}: {ratio:.3g} times that of fp32 on this device",
        start,
        start + length,
    )


_TORCH_DTYPES = {"tf32": "bfloat16", "bf16": "bfloat16", "fp16": "float16"}


def _faster_than_fp32(model: Device | None) -> tuple[str, float] | None:
    """The dtype nearest to fp32 in which the device's matrix units are faster, and how many times; None where unknown."""
    fp32 = model.peak_flops("fp32") if model else None
    if model is None or fp32 is None:
        return None
    peaks = ((dtype, model.peak_flops(dtype)) for dtype in _TORCH_DTYPES)
    return next(((dtype, peak / fp32) for dtype, peak in peaks if peak is not None and peak > fp32), None)


def _compute(scene: Scene) -> Advice | None:
    heavy = scene.activities.filter(pl.col("bound") == "compute")
    total = int(heavy.get_column("duration_ns").sum())
    if total == 0:
        return None
    start, length = heavy.sort("duration_ns", descending=True).select("start_ns", "duration_ns").row(0)
    return Advice(
        "Compute less, or in fewer bits",
        f"contractions hold {percent(min(1.0, total / scene.window_ns))} of the window: only less work, or cheaper work, shortens them",
        _operators(heavy),
        "bf16 or fp8 (torchao), F.scaled_dot_product_attention, sizes that are multiples of 64; then a faster GPU",
        min(total, scene.window_ns) // 2,
        "half the time of compute-bound kernels, if a dtype of half the width runs twice as fast on this device",
        start,
        start + length,
    )


def _operators(kernels: pl.DataFrame) -> str:
    by = (
        kernels.with_columns(pl.coalesce("operator", "name").alias("by"))
        .group_by("by")
        .agg(pl.col("duration_ns").sum())
    )
    top = by.sort("duration_ns", "by", descending=[True, False]).head(3)
    return "; ".join(f"{name} ({duration(ns)})" for name, ns in top.iter_rows())


def _part_advice(scene: Scene, part: str, bucketed: pl.Expr, title: str, why: str, code: str) -> Advice | None:
    saves = scene.verdict.parts_ns.get(part, 0)
    rows = scene.activities.filter(bucketed)
    if saves == 0:
        return None
    place = rows.sort("duration_ns", descending=True).select("start_ns", "duration_ns").head(1).rows()
    start, end = (place[0][0], sum(place[0])) if place else (None, None)
    return Advice(
        title,
        f"{percent(saves / scene.window_ns)} of the window ({duration(saves)}): {why}",
        _operators(rows),
        code,
        saves,
        f"time in which {part} ran and no kernel computed",
        start,
        end,
    )


def _collectives(scene: Scene) -> Advice | None:
    return _part_advice(
        scene,
        "communication",
        pl.col("bound") == "communication",
        "Overlap communication with computation",
        "collectives run while nothing else does",
        "DDP(model, bucket_cap_mb=50, gradient_as_bucket_view=True)  # FSDP: forward_prefetch=True; accumulate with no_sync()",
    )


def _copies(scene: Scene) -> Advice | None:
    return _part_advice(
        scene,
        "copy",
        pl.col("bound") == "copy",
        "Hide copies between host and device",
        "the device only copies",
        "DataLoader(..., pin_memory=True); batch.to('cuda', non_blocking=True) for the next batch on a side stream",
    )


def _dependency(scene: Scene) -> Advice | None:
    return _idle_advice(
        scene,
        ("device-wait",),
        "Find what queued work waits for",
        "balance the ranks (compare their traces), start collectives earlier, remove needless stream waits",
        "work was queued and the device still idled: it waited for another stream or a peer, not for the CPU",
    )


_RULES: tuple[tuple[Regime, Callable[[Scene], Advice | None]], ...] = (
    ("overhead-bound", _launch),
    ("overhead-bound", _synchronization),
    ("overhead-bound", _data),
    ("overhead-bound", _allocation),
    ("overhead-bound", _compilation),
    ("overhead-bound", _blocking_copy),
    ("overhead-bound", _cpu_operator),
    ("memory-bandwidth-bound", _memory),
    ("compute-bound", _low_precision),
    ("compute-bound", _compute),
    ("communication-bound", _collectives),
    ("communication-bound", _copies),
    ("communication-bound", _dependency),
)
