"""Measure what each resource holds up: its share of the time, its share of the critical path, and what it costs a step."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from trace_analyzer.replay.graph import GAP, OF_DURATION, WAIT
from trace_analyzer.replay.prediction import Replay
from trace_analyzer.replay.recording import Flags, Ints, is_any
from trace_analyzer.replay.weights import scale_activities

HOST = "host"
RESOURCES: Mapping[str, str | None] = {
    "compute": "compute", "memory-bandwidth": "memory", "small-kernels": "latency", "other-kernels": None,
    "communication": "communication", "copies": "copy",
}  # fmt: skip
"""Resource of the device -> bound of its activities, in the order in which one of several in progress counts."""


@dataclass(frozen=True)
class Lever:
    """Hold a resource, what it holds of a step, and what the step gains at most if it takes no time."""

    resource: Annotated[
        str, "`host`, `compute`, `memory-bandwidth`, `small-kernels`, `other-kernels`, `communication` or `copies`."
    ]
    share_ratio: Annotated[float, "Share of the steps in which it works; of the host that in which the device is idle."]
    path_ratio: Annotated[float, "Share of the replay's critical path: what a step gains per percent of its speed."]
    saves_ns: Annotated[float, "What a step saves if it takes no time, and nothing else changes, ns."]  # fmt: skip


def levers(replay: Replay) -> tuple[Lever, ...]:
    """Return the levers of the replayed device: the host, then each resource that worked."""
    graph, now = replay.graph, replay.identity.step_ns
    path = replay.path(replay.identity)
    weight, kind = replay.identity.weight[path], graph.kind[path]
    on_device, total = is_any(kind, OF_DURATION), max(weight.sum(), 1)
    shares, rows, (cpu_floor, device_floor) = _shares(replay), [], replay.floors()
    for resource, own in _members(replay).items():
        if not own.any():
            continue
        weights = replay.weights(())
        scale_activities(weights, graph, own, 0.0)
        held = weight[on_device][own[graph.ref[path][on_device]]].sum() / total
        step = min(max(replay.run(weights).step_ns, cpu_floor), now)
        rows.append(Lever(resource, shares[resource], float(held), now - step))
    of_host = ~(on_device | is_any(kind, (GAP, WAIT)))
    host = Lever(HOST, 1 - sum(shares.values()), float(weight[of_host].sum() / total), now - device_floor)
    return (host, *rows)


def _members(replay: Replay) -> Mapping[str, Flags]:
    """Return the activities of each resource, on all devices."""
    bound = replay.known.table.get_column("bound")
    known = {name: (bound == of).fill_null(False).to_numpy() for name, of in RESOURCES.items() if of}
    rest = ~np.logical_or.reduce([*known.values(), np.zeros(bound.len(), dtype=bool)])
    return {name: known.get(name, rest).astype(bool) for name in RESOURCES}


def _shares(replay: Replay) -> Mapping[str, float]:
    """Return the share of the recorded steps in which each resource is the first of `RESOURCES` in progress."""
    activities, anchors, time = replay.graph.recorded.activities, replay.anchors, replay.graph.time
    latest = anchors.latest(time)
    begins, ends = latest[anchors.begins], latest[anchors.ends]
    total, reached = max(int((ends - begins).sum()), 1), 0
    own, shares = np.zeros(activities.start.size, dtype=bool), {}
    for resource, members in _members(replay).items():
        own |= members & (activities.device == replay.graph.recorded.device)
        covered = _covered_ns(activities.start[own], activities.end[own], begins, ends)
        shares[resource], reached = (covered - reached) / total, covered
    return shares


def _covered_ns(start: Ints, end: Ints, begins: Ints, ends: Ints) -> int:
    """Return how much of some disjoint windows any of the intervals covers."""
    if not start.size:
        return 0
    order = np.argsort(start, kind="stable")
    since, until = start[order], np.maximum.accumulate(end[order])
    first = np.flatnonzero(np.append(True, since[1:] > until[:-1]))
    since, until = since[first], until[np.append(first[1:], since.size) - 1]
    sums = np.append(0, np.cumsum(until - since))

    def before(times: Ints) -> Ints:
        at = np.searchsorted(since, times, "right")
        over = np.where(at > 0, until[np.maximum(at - 1, 0)] - times, 0)
        covered: Ints = sums[at] - np.maximum(over, 0)
        return covered

    return int((before(ends) - before(begins)).sum())
