"""Compare what the report on one side promised with what the other side shows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import polars as pl

from trace_analyzer.compare.facts import Promise
from trace_analyzer.compare.profiles import Profile
from trace_analyzer.compare.statistics import FLOOR_RATIO

_LAUNCH = ("python", "dispatch", "runtime-call", "launch-latency", "host-unknown")
TARGETS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "cuda-graphs": (_LAUNCH, ()),
    "bigger-batch": (_LAUNCH, ()),
    "set-to-none": (_LAUNCH, ()),
    "garbage-collection": (("garbage-collection",), ()),
    "synchronization": (("synchronization",), ()),
    "data-loading": (("data-loading",), ()),
    "allocator": (("allocation",), ()),
    "recompilation": (("compilation",), ()),
    "lazy-loading": (("compilation",), ()),
    "pinned-memory": (("blocking-copy",), ()),
    "cpu-operators": (("cpu-operator",), ()),
    "dependencies": (("device-wait",), ()),
    "attention-kernel": ((), ("matmul", "bmm", "softmax", "attention", "pointwise")),
    "tensor-cores": ((), ("matmul", "bmm", "convolution")),
    "tf32": ((), ("matmul", "bmm", "convolution")),
    "padding": ((), ("matmul", "bmm", "convolution")),
    "max-autotune": ((), ("matmul", "bmm", "convolution")),
    "overlap": ((), ("communication",)),
    "gradient-buckets": ((), ("communication",)),
}
"""Of fixes that aim at some lines: the causes of idle time and the buckets. The others aim at the whole step."""


@dataclass(frozen=True)
class KeptPromise:
    """Hold an advice of BEFORE's report that AFTER shows: what it promised at most, and what came, in ns a step.

    ``came_ns`` is what the lines that the advice aims at take less, ``step_ns`` what the whole step does. The bound held
    when no more than it came, of these lines or of the step. ``predicted_ns`` is what a replay of BEFORE took off the step, with its interval;
    the prediction held when the step takes less by a time within it. Both are null where BEFORE's report predicts nothing.
    """

    id: str
    title: str
    promised_ns_at_most: float
    came_ns: float
    step_ns: float
    targets: tuple[str, ...]
    evidence: Literal["advice gone", "bound halved"]
    bound_held: bool
    predicted_ns: float | None = None
    predicted_interval_ns: tuple[float, float] | None = None
    prediction_held: bool | None = None


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

    What came of an advice is worth a word over `FLOOR_RATIO` of the step: less comes without any change.
    """
    left = {promise.id: promise.saves_ns_at_most for promise in after.facts.advice}
    step = before.total_ns / before.steps - after.total_ns / after.steps
    if not after.facts.headline:
        return ()
    kept = []
    for promise in before.facts.advice:
        bound = promise.saves_ns_at_most / before.unit_of_work
        remaining = left.get(promise.id, 0.0) / after.unit_of_work
        if remaining > bound / 2:
            continue
        causes, buckets = TARGETS.get(promise.id, ((), ()))
        is_idle = pl.col("kind") == "idle"
        aimed = table.filter(
            (is_idle & pl.col("category").is_in(causes)) | (~is_idle & pl.col("category").is_in(buckets))
        )
        came = -float(aimed.get_column("difference_ns").sum()) if causes or buckets else step
        if came <= FLOOR_RATIO * before.total_ns / before.steps:
            continue
        evidence: Literal["advice gone", "bound halved"] = "bound halved" if promise.id in left else "advice gone"
        kept.append(
            KeptPromise(
                promise.id,
                promise.title,
                bound,
                came,
                step,
                (*causes, *buckets),
                evidence,
                min(came, max(step, 0.0)) <= bound,
                *_prediction(promise, before.total_ns / before.steps, step),
            )
        )
    return tuple(kept)
