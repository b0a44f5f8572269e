"""Compare what the report on one side promised with what the other side shows."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import polars as pl

from trace_analyzer.compare.facts import Promise
from trace_analyzer.compare.profiles import Profile
from trace_analyzer.compare.statistics import FLOOR_RATIO
from trace_analyzer.tuning import dataclass

_LAUNCH = ("python", "dispatch", "runtime-call", "launch-latency", "host-unknown")
TARGETS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "cuda-graphs": (_LAUNCH, ()),
    "set-to-none": (_LAUNCH, ()),
    "garbage-collection": (("garbage-collection",), ()),
    "synchronization": (("synchronization",), ()),
    "data-loading": (("data-loading",), ()),
    "allocator": (("allocation",), ()),
    "recompilation": (("compilation",), ()),
    "lazy-loading": (("compilation",), ()),
    "pinned-memory": (("blocking-copy",), ()),
    "host-wait": (("host-wait",), ()),
    "cpu-operators": (("cpu-operator",), ()),
    "dependencies": (("device-wait",), ()),
    "attention-kernel": ((), ("matmul", "bmm", "softmax", "attention", "pointwise")),
    "tf32": ((), ("matmul", "bmm", "convolution")),
    "padding": ((), ("matmul", "bmm", "convolution")),
    "max-autotune": ((), ("matmul", "bmm", "convolution")),
    "overlap": ((), ("communication",)),
    "gradient-buckets": ((), ("communication",)),
    "transport": ((), ("communication",)),
    "copies": ((), ("host-to-device copy", "device-to-host copy")),
    "small-copies": ((), ("host-to-device copy", "device-to-host copy")),
    **dict.fromkeys(
        (
            "fusion",
            "channels-last",
            "fewer-bytes",
            "tensor-cores",
            "casts",
            "compiled-copies",
            "skinny-matmuls",
            "thin-products",  # the id of skinny-matmuls in reports of schema version 1
            "low-precision",
            "inefficient-kernels",
            "custom-kernels",
            "recompute-less",
        ),
        ((), ("kernel",)),
    ),
}
"""Of fixes that aim at some lines: the causes of idle time, and the buckets, or all kernels. The others aim at the whole step."""


_OTHER_WORK = ("bigger-batch",)
"""Fixes that change what a step computes: where the work is the same, they were not followed."""
_FEWER_LAUNCHES = ("cuda-graphs", "set-to-none", "fused-optimizer", "fusion")
"""Fixes after which a step makes fewer launches: where it makes as many, something else took the time off their lines."""

LEAST_PART = 0.1
"""Share of an advice's bound that must have come where its lines, or AFTER's report, do not show alone that it was followed."""


@dataclass(frozen=True)
class KeptPromise:
    """Hold an advice of BEFORE's report that AFTER shows, whole or in part, with what it promised and what came.

    The bound held when no more than it came, of these lines or of the step, but for the 0.5 % of the step that come by chance. AFTER shows the
    advice where its report does not repeat it, repeats at most half of the bound, or repeats most of it though part came. A prediction is null
    where BEFORE's report has none, and where a part came; it held when the step takes less by a time within its interval.
    """

    id: Annotated[str, "Id of the advice."]
    title: Annotated[str, "Title of the advice."]
    promised_ns_at_most: Annotated[float, "Bound of BEFORE's report on what it saves, ns a step."]
    came_ns: Annotated[float, "What the lines that the advice aims at take less, ns a step."]
    step_ns: Annotated[float, "What the whole step takes less, ns."]
    targets: Annotated[tuple[str, ...], "Keys of the lines that the advice aims at."]
    evidence: Annotated[Literal["advice gone", "bound halved", "part came"], "How AFTER shows the advice."]
    bound_held: Annotated[bool, "Whether no more came than the bound."]
    predicted_ns: Annotated[float | None, "What a replay of BEFORE took off the step, ns."] = None
    predicted_interval_ns: Annotated[tuple[float, float] | None, "Interval of that prediction, ns."] = None
    prediction_held: Annotated[bool | None, "Whether what came lies within the interval."] = None
    late_launches_ns: Annotated[float, "Part of `came_ns` in launches that waits had made late, ns a step."] = 0.0


_NO_PREDICTION = (None, None, None)
"""A replay predicts the whole change, and says nothing of a part."""


def _prediction(
    promise: Promise, step_ns: float, came_ns: float
) -> tuple[float | None, tuple[float, float] | None, bool | None]:
    """Return what a replay predicts of the step before to be saved, its interval, and whether what came is within it."""
    if promise.predicted_ratio is None or promise.predicted_interval is None:
        return None, None, None
    low, high = ((1 - ratio) * step_ns for ratio in reversed(promise.predicted_interval))
    return (1 - promise.predicted_ratio) * step_ns, (low, high), low <= came_ns <= high


def kept_promises(before: Profile, after: Profile, table: pl.DataFrame) -> tuple[KeptPromise, ...]:
    """Return the advice of BEFORE that AFTER's report does not repeat, or by half at most, with what came of it.

    Of an advice that aims at one cause of idle time, also the part that came, though AFTER's report repeats most of it. What came of an advice is
    worth a word over `FLOOR_RATIO` of the step: less comes without any change. Parts, and advice whose lines others aim at too, need `LEAST_PART`
    of the bound: advice on launches is gone, too, where what made the host late was something else.
    """
    left = {promise.id: promise.saves_ns_at_most for promise in after.facts.advice}
    has_fewer_waits, has_as_many_launches = _has_fewer_waits(before, after, table), _has_as_many_launches(before, after)
    step, floor = (
        before.total_ns / before.steps - after.total_ns / after.steps,
        FLOOR_RATIO * before.total_ns / before.steps,
    )
    if not after.facts.headline:
        return ()
    saved, kept = _saved(table), []
    for promise in before.facts.advice:
        bound = promise.saves_ns_at_most / before.unit_of_work
        remaining = left.get(promise.id, 0.0) / after.unit_of_work
        causes, buckets = TARGETS.get(promise.id, ((), ()))
        if promise.id in _OTHER_WORK or (promise.id in _FEWER_LAUNCHES and has_as_many_launches):
            continue
        came = sum(ns for line, ns in saved if _is_aimed(line, causes, buckets)) if causes or buckets else step
        late = 0.0
        if promise.id == "synchronization" and has_fewer_waits:
            late = max(sum(ns for line, ns in saved if _is_aimed(line, _LAUNCH, ())), 0.0)
            causes = (*causes, *_LAUNCH)
        came += late
        if came <= floor:
            continue
        is_part, is_alone = remaining > bound / 2, not buckets and (len(causes) == 1 or promise.id == "synchronization")
        if (is_part and not is_alone) or (came < LEAST_PART * bound and (is_part or not is_alone)):
            continue
        evidence: Literal["advice gone", "bound halved", "part came"] = "part came" if is_part else "bound halved"
        if promise.id not in left:
            evidence = "advice gone"
        kept.append(
            KeptPromise(
                promise.id,
                promise.title,
                bound,
                came,
                step,
                (*causes, *buckets),
                evidence,
                min(came, max(step, 0.0)) <= bound + floor,
                *(_NO_PREDICTION if is_part else _prediction(promise, before.total_ns / before.steps, step)),
                late_launches_ns=late,
            )
        )
    return tuple(kept)


def _saved(table: pl.DataFrame) -> list[tuple[tuple[str, str], float]]:
    """Return what each kind and category takes less, in ns a step."""
    sums = table.group_by("kind", "category", maintain_order=True).agg(pl.col("difference_ns").sum())
    return [((kind, category), -ns) for kind, category, ns in sums.iter_rows()]


def _is_aimed(line: tuple[str, str], causes: Sequence[str], buckets: Sequence[str]) -> bool:
    """Return whether causes of idle time, or buckets or kinds of work, are those of a line of (kind, category)."""
    kind, category = line
    return category in causes if kind == "idle" else category in buckets or kind in buckets


def _has_fewer_waits(before: Profile, after: Profile, table: pl.DataFrame) -> bool:
    """Return whether waits leave at most half as many gaps in a step of AFTER."""
    gaps = table.filter((pl.col("kind") == "idle") & (pl.col("category") == "synchronization"))
    counts = gaps.select(pl.col("before_count", "after_count").sum()).row(0)
    return bool(2 * counts[1] / after.steps <= counts[0] / before.steps and counts[0])


def _has_as_many_launches(before: Profile, after: Profile) -> bool:
    """Return whether a step of AFTER makes over 1 - `LEAST_PART` of the launches that one of BEFORE makes.

    False where a side does not tell.
    """
    launches = before.facts.launches, after.facts.launches
    if launches[0] is None or launches[1] is None:
        return False
    return launches[1] / after.steps > (1 - LEAST_PART) * launches[0] / before.steps
