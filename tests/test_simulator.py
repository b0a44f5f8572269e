"""Test the simulator's own laws, and that it reproduces the samples in the repository."""

import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import make_samples
import pytest
from conftest import SAMPLES
from simulator import Activity, Costs, Kernel, Simulation

EXPECTED = json.loads((SAMPLES / "expected.json").read_text())


@pytest.fixture(params=list(make_samples.SAMPLES))
def simulation(request: pytest.FixtureRequest) -> Simulation:
    return make_samples.SAMPLES[request.param]()


def by_stream(simulation: Simulation) -> dict[tuple[int, int], list[Activity]]:
    """Return the activities of each stream, in the order in which they were enqueued."""
    streams = defaultdict(list)
    for activity in simulation.activities:
        streams[activity.device, activity.stream].append(activity)
    return streams


def strictly_parsed(text: str) -> dict[str, Any]:
    """Parse the text as JSON without NaN, Infinity or duplicate keys."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len({key for key, _ in pairs}) == len(pairs)
        return dict(pairs)

    parsed: dict[str, Any] = json.loads(text, parse_constant=refuse, object_pairs_hook=unique)
    return parsed


def events(simulation: Simulation, *categories: str) -> list[dict[str, Any]]:
    """Return the slices of these categories in the written file."""
    rows: list[dict[str, Any]] = simulation.trace()["traceEvents"]
    return [e for e in rows if e["ph"] == "X" and e.get("cat") in categories]


@pytest.mark.sampled
def test_streams_are_in_order(simulation: Simulation) -> None:
    for activities in by_stream(simulation).values():
        for earlier, later in pairwise(activities):
            assert earlier.end_ns <= later.start_ns
            assert earlier.call_start_ns <= later.call_start_ns


def test_nothing_starts_before_its_launch(simulation: Simulation) -> None:
    assert all(a.call_start_ns < a.start_ns < a.end_ns for a in simulation.activities)


@pytest.mark.sampled
def test_a_correlation_id_belongs_to_one_call(simulation: Simulation) -> None:
    calls = Counter(e["args"]["correlation"] for e in events(simulation, "cuda_runtime"))
    assert set(calls.values()) == {1}
    assert {a.correlation for a in simulation.activities} <= set(calls)


@pytest.mark.sampled
def test_every_activity_has_one_flow_from_its_launch(simulation: Simulation) -> None:
    flows = [e for e in simulation.trace()["traceEvents"] if e.get("cat") == "ac2g"]
    heads = Counter((e["id"], e["pid"], e["tid"], e["ts"]) for e in flows if e["ph"] == "f")
    tails = Counter((e["id"], e["pid"], e["tid"], e["ts"]) for e in flows if e["ph"] == "s")
    work = events(simulation, "kernel", "gpu_memcpy", "gpu_memset")
    assert heads == Counter((e["args"]["correlation"], e["pid"], e["tid"], e["ts"]) for e in work)
    launches = {e["args"]["correlation"] for e in work}
    calls = [e for e in events(simulation, "cuda_runtime") if e["args"]["correlation"] in launches]
    assert tails == Counter((e["args"]["correlation"], e["pid"], e["tid"], e["ts"]) for e in calls)


@pytest.mark.sampled
def test_host_events_nest(simulation: Simulation) -> None:
    threads = defaultdict(list)
    for event in events(simulation, "cpu_op", "user_annotation", "python_function", "cuda_runtime"):
        start = round(event["ts"] * 1_000)
        threads[event["tid"]].append((start, -(start + round(event["dur"] * 1_000))))
    for slices in threads.values():
        stack: list[int] = []
        for start, negative_end in sorted(slices):
            while stack and stack[-1] <= start:
                stack.pop()
            assert not stack or -negative_end <= stack[-1]
            stack.append(-negative_end)


@pytest.mark.sampled
def test_backward_operators_have_a_forward_operator(simulation: Simulation) -> None:
    operators = [e for e in events(simulation, "cpu_op") if "Sequence number" in e["args"]]
    forward = {e["args"]["Sequence number"] for e in operators if e["args"]["Fwd thread id"] == 0}
    backward = [e["args"]["Sequence number"] for e in operators if e["args"]["Fwd thread id"]]
    assert set(backward) <= forward


@pytest.mark.sampled
def test_the_truth_covers_the_idle_time(simulation: Simulation) -> None:
    for device in range(simulation.devices):
        activities = [a for a in simulation.activities if a.device == device]
        window = max(a.end_ns for a in activities) - min(a.start_ns for a in activities)
        covered, reached = 0, 0
        for activity in sorted(activities, key=lambda a: a.start_ns):
            covered += max(0, activity.end_ns - max(activity.start_ns, reached))
            reached = max(reached, activity.end_ns)
        gaps = simulation.truth(device)
        assert sum(g.end_ns - g.start_ns for g in gaps) == window - covered
        assert all(sum(g.by_cause_ns.values()) == g.end_ns - g.start_ns for g in gaps)


@pytest.mark.sampled
@pytest.mark.parametrize("name", make_samples.SAMPLES)
def test_a_sample_in_the_repository_is_what_the_simulator_makes(name: str) -> None:
    content = (SAMPLES / f"{name}.json.gz").read_bytes()
    simulation = make_samples.SAMPLES[name]()
    assert gzip.decompress(content).decode() == simulation.json()
    assert content == simulation.gzipped()
    assert len(content) < 300_000


@pytest.mark.parametrize("name", make_samples.SAMPLES)
def test_a_synthetic_sample_says_so_and_has_its_steps(name: str) -> None:
    trace = strictly_parsed(gzip.decompress((SAMPLES / f"{name}.json.gz").read_bytes()).decode())
    assert trace["synthetic"] == "made by sample_traces/simulator.py"
    rows = trace["traceEvents"]
    steps = [e["name"] for e in rows if e.get("cat") == "user_annotation" and "ProfilerStep#" in e["name"]]
    on_device = {e["name"] for e in rows if e.get("cat") == "gpu_user_annotation"}
    assert 6 <= len(steps) <= 8
    assert set(steps) <= on_device


def test_every_sample_has_an_expectation_and_a_line_in_the_readme() -> None:
    files = {path.name for path in SAMPLES.glob("*.json.gz")}
    readme = (SAMPLES / "README.md").read_text()
    assert files == set(EXPECTED)
    for name, expected in EXPECTED.items():
        row = next(line for line in readme.splitlines() if line.startswith(f"| `{name}`"))
        cells = [cell.strip() or None for cell in row.split("|")[1:-1]]
        assert cells[3:] == [expected["status"], expected["regime"], expected["cause"]]


@pytest.mark.parametrize(
    ("simulate", "device_share", "cause"),
    [
        (make_samples.overhead_launch, 0.2, "dispatch"),
        (make_samples.overhead_data_loading, 0.5, "data-loading"),
        (make_samples.overhead_synchronization, 0.6, "synchronization"),
        (make_samples.communication_dependency, 0.6, "device-wait"),
    ],
)
def test_idle_samples_idle_for_the_planted_cause(
    simulate: Callable[[], Simulation], device_share: float, cause: str
) -> None:
    simulation = simulate()
    idle: Counter[str] = Counter()
    for gap in simulation.truth(device=0):
        idle.update(gap.by_cause_ns)
    activities = [a for a in simulation.activities if a.device == 0]
    window = max(a.end_ns for a in activities) - min(a.start_ns for a in activities)
    assert 1 - idle.total() / window < device_share
    assert idle.most_common(1)[0][0] == cause


@pytest.mark.slow
def test_the_cpu_recording_names_no_machine_and_holds_no_gpu_work() -> None:
    text = gzip.decompress((SAMPLES / "cpu_mlp.json.gz").read_bytes()).decode()
    rows = strictly_parsed(text)["traceEvents"]
    assert not any(e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset") for e in rows)
    assert "/" not in text
    assert "synthetic" not in strictly_parsed(text)


def test_a_launch_waits_for_room_in_the_queue() -> None:
    simulation = Simulation(costs=Costs(queue_limit=2))
    thread, stream = simulation.thread(), simulation.stream()
    first, second, third = (thread.launch(Kernel("k", 1_000_000), stream) for _ in range(3))
    assert third.call_start_ns < first.end_ns < second.end_ns <= third.start_ns
    assert thread.now_ns < second.start_ns
    thread.launch(Kernel("k", 1_000_000), stream)
    assert thread.now_ns > second.start_ns


def test_blocking_calls_return_when_the_device_is_done() -> None:
    simulation = Simulation()
    thread, stream, other = simulation.thread(), simulation.stream(), simulation.stream(number=20)
    kernel, longer = thread.launch(Kernel("k", 500_000), stream), thread.launch(Kernel("k", 900_000), other)
    copy = thread.memcpy("DtoH", 4, stream, pageable=True)
    assert kernel.end_ns < copy.end_ns < thread.now_ns < longer.end_ns
    thread.synchronize(stream)
    assert thread.now_ns < longer.end_ns
    thread.synchronize_device()
    assert thread.now_ns > longer.end_ns


def test_work_waits_for_the_events_of_other_streams() -> None:
    simulation = Simulation()
    thread, stream, other = simulation.thread(), simulation.stream(), simulation.stream(number=20)
    kernel = thread.launch(Kernel("k", 500_000), other)
    thread.wait_event(stream, thread.record_event(other))
    waiting = thread.launch(Kernel("k", 1_000), stream)
    assert (waiting.bound_by, waiting.start_ns > kernel.end_ns) == ("event", True)
    assert len(events(simulation, "cuda_sync")) == 1
    (gap,) = simulation.truth(device=0)
    assert gap.by_cause_ns == {"device-gap": simulation.costs.inter_kernel_ns}


def test_a_graph_is_one_call_with_many_kernels() -> None:
    simulation = Simulation()
    thread, stream = simulation.thread(), simulation.stream()
    members = thread.launch_graph([Kernel("k", 2_000)] * 5, stream)
    assert len({a.correlation for a in members}) == 1
    assert [b.start_ns - a.end_ns for a, b in pairwise(members)] == [800] * 4
    assert all("External id" not in e["args"] for e in events(simulation, "kernel"))
