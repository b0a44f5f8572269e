"""The results of passes over a replay's graph, with the constants and the neighbouring changes of their intervals."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import wraps
from typing import Annotated, Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from trace_analyzer import thresholds
from trace_analyzer.replay.changes import Change, side_of
from trace_analyzer.replay.recording import Ints
from trace_analyzer.replay.weights import NotApplicable, Weights

MIN_HALF_WIDTH, MIN_HALF_RATIO = 0.02, 0.1
"""Least half of an interval: as a share of the step with a slower part, and of the step or the saving, whichever is
smaller, of a change that removes time."""
MIN_HALF_BATCH = 0.1
"""Least half of it with another batch, as a share of the step. In `benchmarks/truth.py` the device's work under another batch
is off by 5 % in the median of 12 pairs, and in none beyond its interval."""
MAX_UNEXPLAINED = 0.05
"""Largest unexplained share of the critical path for which the effect of a change is predicted."""
NOISE_BATCH = 0.5
"""Relative deviation of the CPU part between recordings with different batches, each of its own process, where the CPU limits
the step: of 75 pairs of four series, on an A100 and an H200, 65 lie within it (`benchmarks/truth.py`), and 41 within
`thresholds.NOISE_STEPS` and `thresholds.NOISE_WINDOW`."""
TYPICAL_ERROR = 0.01
"""Share of what a change removes by which typical latencies and gaps may miss those of the changed program."""
MAX_SPREAD = 2.0
"""Largest ratio of an interval's ends: a wider estimate is not useful."""
INFERRED_RATIO = 0.01
BEST_CASES = ("fuse", "tf32", "bf16", "overlap", "overlap-copies", "buckets", "graphs")
"""Changes that are modelled at their best: kernels at a roof, all communication or all copies hidden, links as fast for all messages as for
each, a whole step as one graph.

Their interval starts at half of their gain.
"""
BEST: Mapping[str, Mapping[str, str]] = {
    "tf32": {"reach": "roof"},
    "bf16": {"reach": "roof"},
    "overlap": {"reach": "all"},
    "buckets": {"reach": "all"},
    "pinned": {"reach": "roof"},
    "prefetch": {"reach": "never"},
    "graphs": {"reach": "all"},
}
"""Options of changes for the lower end of their interval."""
WORST: Mapping[str, Mapping[str, str]] = {
    "no-sync": {"reach": "streams"},
    "pinned": {"reach": "slot"},
    "prefetch": {"reach": "always"},
}
"""Options of changes for its upper end: waits for other streams, copies in a slower slot, workers that never rest."""
SPEEDUPS: Mapping[str, float] = {"1.11": 0.9, "1.33": 0.75, "2": 0.5, "4": 0.25, "inf": 0.0}
"""Speed-up factors and the remaining share of the time: 10, 25, 50, 75 and 100 % less."""

T = TypeVar("T")


def kept(method: Callable[[Any, tuple[Change, ...]], T]) -> Callable[[Any, tuple[Change, ...]], T]:
    """Keep what a replay's method returns for changes: reports, what-if and intervals ask for the same ones."""

    @wraps(method)
    def result(replay: Any, changes: tuple[Change, ...]) -> T:
        key = method.__name__, repr(changes)
        if key not in replay.results:
            replay.results[key] = method(replay, changes)
        found: T = replay.results[key]
        return found

    return result


class Prediction(Struct, frozen=True):
    """A predicted step time with its interval."""

    step_ns: Annotated[float, "The step, ns."]
    low_ns: Annotated[float, "Lower end of the interval, ns."]
    high_ns: Annotated[float, "Upper end of the interval, ns."]


class Identity(Struct, frozen=True):
    """The results of the replay without changes."""

    step_ns: Annotated[float, "Its step, ns."]
    error_ratio: Annotated[float, "Its distance from the recorded step, as a share of that."]
    unexplained_ratio: Annotated[float, "Share of the critical path that nothing explains."]
    inferred_ratio: Annotated[float, "Share of the critical path that is inferred, not recorded."]


class Outcome(Struct, frozen=True):
    """One pass: weights of edges, times of points, binding edges, and the step's length."""

    weight: Ints
    times: Ints
    binding: Ints
    step_ns: float


def unexplained_ratio(path: Ints, outcome: Outcome, weights: Weights) -> float:
    """Return the share of a path that nothing explains."""
    return float(weights.rest[path].sum() / max(int(outcome.weight[path].sum()), 1))


def faster(target: str, factor: float) -> tuple[Change]:
    """Return the change that makes a part so many times as fast."""
    return (Change("speedup", {"target": target, "factor": factor}),)


def unless_below(cpu_floor_ns: float, estimates: Iterable[Any]) -> str:
    """Return on what condition no GPU fix goes below the CPU's floor, where an estimate does: fused kernels spare launches, too,
    and recording slows the CPU.
    """
    below = {one.name for one in estimates if one.low_ns < cpu_floor_ns and side_of(one) == "device"}
    slow = " with the CPU as recorded" if below - {"fuse"} else ""
    return f"{slow} unless it spares launches, as fused kernels do" if "fuse" in below else slow


def is_batch(changes: tuple[Change, ...]) -> bool:
    """Return whether one of the changes is another batch."""
    return any(change.name == "batch" for change in changes)


def only_removes(changes: tuple[Change, ...]) -> bool:
    """Return whether changes only remove time: none is another batch or a slower part."""
    return all(change.name != "batch" and float(change.options.get("factor", 1)) >= 1 for change in changes)


def beside_a_bigger_batch(changes: tuple[Change, ...]) -> tuple[Change, ...] | None:
    """Return the other changes, if they only remove time; None without a bigger batch."""
    others = tuple(change for change in changes if change.name != "batch")
    is_bigger = any(float(change.options["times"]) > 1 for change in changes if change.name == "batch")
    return others if is_bigger and only_removes(others) else None


def lows_alone(changes: tuple[Change, ...], predict: Callable[[tuple[Change, ...]], Prediction]) -> list[float]:
    """Return the starts of the intervals of each of several changes, ns, of those that have an estimate alone."""
    lows = []
    for change in changes if len(changes) > 1 else ():
        with suppress(NotApplicable):
            lows.append(predict((change,)).low_ns)
    return lows


def least_half(changes: tuple[Change, ...], saves_ns: float, step_ns: float) -> float:
    """Return the least half of an interval, ns."""
    if only_removes(changes):
        return MIN_HALF_RATIO * min(saves_ns, step_ns)
    return (MIN_HALF_BATCH if is_batch(changes) else MIN_HALF_WIDTH) * step_ns


def deviation(changes: tuple[Change, ...], now_ns: float, then_ns: float, *, has_steps: bool) -> float:
    """Return the deviation between recordings of the CPU's time on the path, ns, of which a step has so much now and then.

    Changes that remove time leave the rest as recorded: at most what they take off the path deviates.
    """
    noise = NOISE_BATCH if is_batch(changes) else thresholds.NOISE_STEPS if has_steps else thresholds.NOISE_WINDOW
    return noise * (min(then_ns, abs(now_ns - then_ns)) if only_removes(changes) else then_ns)


def with_options(changes: tuple[Change, ...], more: Mapping[str, Mapping[str, str]]) -> tuple[Change, ...]:
    """Return the changes with more options by name."""
    return tuple(replace(change, options={**change.options, **more.get(change.name, {})}) for change in changes)


def fewer(changes: tuple[Change, ...]) -> list[tuple[Change, ...]]:
    """Return less of the changes: each of several alone, and each part less fast."""
    alone = [(change,) for change in changes] if len(changes) > 1 else []
    slower = [
        (*changes[:at], replace(change, options={**change.options, "factor": factor}), *changes[at + 1 :])
        for at, change in enumerate(changes)
        for factor in map(float, SPEEDUPS)
        if factor < float(change.options.get("factor", 0))
    ]
    return alone + slower
