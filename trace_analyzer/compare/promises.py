"""Compare the promises of one side's report with the other side's results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import polars as pl

from trace_analyzer.compare.facts import Promise
from trace_analyzer.compare.profiles import Profile
from trace_analyzer.compare.statistics import FLOOR_RATIO

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
            "thin-products",  # id of skinny-matmuls in reports of schema version 1
            "low-precision",
            "inefficient-kernels",
            "custom-kernels",
            "recompute-less",
        ),
        ((), ("kernel",)),
    ),
}
"""Lines that a fix concerns: causes of idle time, and buckets, or all kernels. Other fixes concern the whole step."""


_OTHER_WORK = ("bigger-batch",)
"""Fixes that change the work of a step: where the work is the same, they were not applied."""
_FEWER_LAUNCHES = ("cuda-graphs", "set-to-none", "fused-optimizer", "fusion")
"""Fixes that reduce launches: where a step has as many, another change shortened their lines."""

LEAST_PART = 0.1
"""Least share of an advice's bound that must be saved where its lines, or AFTER's report, alone do not show that it
was applied."""


@dataclass(frozen=True)
class KeptPromise:
    """Hold an advice of BEFORE's report that was applied in AFTER, whole or in part: its promise and the actual saving.

    The bound held if the saving, of these lines or of the step, does not exceed it by more than 0.5 % of the step,
    which can be chance. An advice counts as applied if AFTER's report does not repeat it, repeats at most half of its
    bound, or repeats most of it although a part was saved. The prediction is null where BEFORE's report has none, and
    where only a part was saved. It held if the saving of the step is within its interval.
    """

    id: Annotated[str, "Id of the advice."]
    title: Annotated[str, "Title of the advice."]
    promised_ns_at_most: Annotated[float, "Upper bound of the saving in BEFORE's report, ns per step."]
    came_ns: Annotated[float, "Actual saving of the lines that the advice concerns, ns per step."]
    step_ns: Annotated[float, "Actual saving of the whole step, ns."]
    targets: Annotated[tuple[str, ...], "Keys of the lines that the advice concerns."]
    evidence: Annotated[Literal["advice gone", "bound halved", "part came"], "How AFTER shows the advice."]
    bound_held: Annotated[bool, "Whether the saving is within the bound."]
    predicted_ns: Annotated[float | None, "Saving of the step predicted by a replay of BEFORE, ns."] = None
    predicted_interval_ns: Annotated[tuple[float, float] | None, "Interval of that prediction, ns."] = None
    prediction_held: Annotated[bool | None, "Whether the actual saving is within the interval."] = None
    late_launches_ns: Annotated[float, "Part of `came_ns` in launches that waits had delayed, ns per step."] = 0.0


_NO_PREDICTION = (None, None, None)
"""Values without a prediction: a replay predicts the whole change, not a part of it."""


def _prediction(
    promise: Promise, step_ns: float, came_ns: float
) -> tuple[float | None, tuple[float, float] | None, bool | None]:
    """Return the predicted saving per step, its interval, and whether the actual saving is within it."""
    if promise.predicted_ratio is None or promise.predicted_interval is None:
        return None, None, None
    low, high = ((1 - ratio) * step_ns for ratio in reversed(promise.predicted_interval))
    return (1 - promise.predicted_ratio) * step_ns, (low, high), low <= came_ns <= high


def kept_promises(before: Profile, after: Profile, table: pl.DataFrame) -> tuple[KeptPromise, ...]:
    """Return the advice of BEFORE that AFTER's report does not repeat, or at most by half, with its actual saving.

    For advice on one cause of idle time, a partial saving counts too, even if AFTER's report repeats most of it. A
    saving must exceed `FLOOR_RATIO` of the step, as smaller ones occur without any change. Partial savings, and advice
    on lines that other advice also concerns, need `LEAST_PART` of the bound, because advice on launches also disappears
    when the host was late for another reason.
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
    """Return the saving of each kind and category, ns per step."""
    sums = table.group_by("kind", "category", maintain_order=True).agg(pl.col("difference_ns").sum())
    return [((kind, category), -ns) for kind, category, ns in sums.iter_rows()]


def _is_aimed(line: tuple[str, str], causes: Sequence[str], buckets: Sequence[str]) -> bool:
    """Return whether these causes of idle time, buckets or kinds of work include the line (kind, category)."""
    kind, category = line
    return category in causes if kind == "idle" else category in buckets or kind in buckets


def _has_fewer_waits(before: Profile, after: Profile, table: pl.DataFrame) -> bool:
    """Return whether waits cause at most half as many gaps in a step of AFTER."""
    gaps = table.filter((pl.col("kind") == "idle") & (pl.col("category") == "synchronization"))
    counts = gaps.select(pl.col("before_count", "after_count").sum()).row(0)
    return bool(2 * counts[1] / after.steps <= counts[0] / before.steps and counts[0])


def _has_as_many_launches(before: Profile, after: Profile) -> bool:
    """Return whether a step of AFTER has over 1 - `LEAST_PART` of the launches in a step of BEFORE.

    False where a side has no count.
    """
    launches = before.facts.launches, after.facts.launches
    if launches[0] is None or launches[1] is None:
        return False
    return launches[1] / after.steps > (1 - LEAST_PART) * launches[0] / before.steps
