"""Find what each resource can bring: the step if it takes no time, and its share of the critical path.

A resource limits a program where making it faster helps, which is not always the one that takes most time.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl

from trace_analyzer.analysis import Value
from trace_analyzer.findings import Findings
from trace_analyzer.replay.changes import instant_cpu
from trace_analyzer.replay.estimates import DeviceReplay
from trace_analyzer.replay.graph import OF_DURATION
from trace_analyzer.replay.prediction import Replay
from trace_analyzer.replay.recording import is_any
from trace_analyzer.replay.weights import scale_activities
from trace_analyzer.report import Lever, Regime, Resource
from trace_analyzer.thresholds import UNRECORDED_RATIO
from trace_analyzer.verdict import Levers, groups_of, judged_parts
from trace_analyzer.vocabulary import NOT_OWN, PARTS, UNKNOWN_CAUSES, WITHHELD

_HOST: Resource = "host"
_OF_BOUND: Mapping[str, Resource] = {
    "compute": "compute", "memory": "memory-bandwidth", "communication": "communication", "copy": "copies", "latency": "small-kernels",
}  # fmt: skip
"""Resource that an activity of each bound uses."""
_OF_REGIME: Mapping[Regime, frozenset[Resource]] = {
    "overhead-bound": frozenset({_HOST, "small-kernels"}),
    "memory-bandwidth-bound": frozenset({"memory-bandwidth"}),
    "compute-bound": frozenset({"compute"}),
    "communication-bound": frozenset({"communication", "copies"}),
}
"""Resources whose time counts towards each regime."""
_UNKNOWN = (*UNKNOWN_CAUSES, *NOT_OWN, WITHHELD)


def levers(device_replay: DeviceReplay, window_findings: Findings | None) -> Levers:
    """Return what the step of the judged device saves if each resource takes no time."""
    replay = device_replay.replay
    if replay is None or device_replay.unlinked is not None or window_findings is None or not replay.identity.step_ns:
        return Levers()
    recording = window_findings.recording
    parts_ns, now = judged_parts(window_findings.parts_ns, recording), replay.identity.step_ns
    if parts_ns != window_findings.parts_ns and now == replay.recorded_step_ns:
        return Levers()
    # The replay takes for host time what the device may have worked.
    if sum(parts_ns.get(part, 0) for part in _UNKNOWN) > UNRECORDED_RATIO * sum(parts_ns.values()):
        return Levers()
    used = _resources(replay)
    present = [resource for resource in (_HOST, *_OF_BOUND.values()) if resource == _HOST or (used == resource).any()]
    saves = {frozenset({resource}): _saved_ns(replay, used, frozenset({resource})) for resource in present}
    shares, path = _shares(parts_ns), _path_ratios(replay, used)
    rows = [
        Lever(one, shares.get(one, 0.0), path.get(one, 0.0), saves[frozenset({one})], saves[frozenset({one})] / now)
        for one in present
    ]
    window, groups = sum(parts_ns.values()), groups_of(parts_ns)
    per_ns = {}
    for regime, resources in _OF_REGIME.items():
        own = resources.intersection(present)
        saved = saves[own] if own in saves else _saved_ns(replay, used, own)
        # A ns of a regime that the window lacks would be a ns of the step.
        per_ns[regime] = saved / now * window / groups[regime] if groups[regime] else 1.0
    device_replay.trim()
    return Levers(tuple(sorted(rows, key=lambda lever: -lever.saves_ns)), per_ns)


def _resources(replay: Replay) -> npt.NDArray[np.str_]:
    """Return the resource of each activity; "" for those of unknown bound.

    Work of other devices is communication, unless another process launched it: that is a rank of the same program.
    """
    bounds = replay.known.table.get_column("bound").cast(pl.String)
    own = bounds.replace_strict(_OF_BOUND, default="", return_dtype=pl.String).to_numpy()
    recorded = replay.graph.recorded
    activities, calls = recorded.activities, recorded.calls
    linked = activities.call >= 0
    process = np.full(int(activities.device.max(initial=recorded.device)) + 1, -1, dtype=np.int64)
    process[activities.device[linked]] = calls.process[activities.call[linked]]
    of_rank = process[activities.device] != process[recorded.device]
    return np.where((activities.device == recorded.device) | of_rank, own, "communication")


def _saved_ns(replay: Replay, used: npt.NDArray[np.str_], resources: frozenset[Resource]) -> float:
    """Return what a step saves if the resources take no time, ns."""
    weights, graph = replay.weights(()), replay.graph
    if _HOST in resources:  # it still waits for what it waits for: work stays in the program's order
        instant_cpu(weights, replay.scene)
    scale_activities(weights, graph, np.isin(used, list(resources)), 0.0)
    floor = 0.0 if _HOST in resources else replay.floors[0]
    return max(replay.identity.step_ns - max(replay.run(weights).step_ns, floor), 0.0) if resources else 0.0


def _path_ratios(replay: Replay, used: npt.NDArray[np.str_]) -> dict[Resource, float]:
    """Return each resource's share of the critical path."""
    graph, path = replay.graph, replay.path(replay.identity)
    weight = replay.identity.weight[path]
    runs = is_any(graph.kind[path], OF_DURATION)
    of_run = used[graph.ref[path[runs]]]
    total = max(float(weight.sum()), 1.0)
    ratios = {name: float(weight[runs][of_run == name].sum()) / total for name in _OF_BOUND.values()}
    return ratios | {_HOST: replay.host_on_path}


def _shares(parts_ns: Mapping[str, int]) -> dict[str, float]:
    """Return each resource's share of the window: busy time by bound, and idle time that the host causes."""
    window = max(sum(parts_ns.values()), 1)
    sums = {resource: parts_ns.get(bound, 0) for bound, resource in _OF_BOUND.items()}
    host = sum(ns for part, ns in parts_ns.items() if (PARTS[part].cure or ("",))[0] == "overhead-bound")
    small = sums["small-kernels"] + parts_ns.get("device-gap", 0)
    waits = sums["communication"] + parts_ns.get("device-wait", 0)
    sums |= {"small-kernels": small, "communication": waits, _HOST: host - small}
    return {resource: ns / window for resource, ns in sums.items()}


VALUES = (Value("levers", levers, cost=5),)
