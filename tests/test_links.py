"""Test links from activities to the calls that enqueued them: correlation ids, flows, processes."""

import itertools
import pickle
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from conftest import SAMPLES, sample_report
from generator import RandomTrace, random_traces
from hypothesis import HealthCheck, given, settings
from kineto import Event, analysed, call, flow, kernel, launch, notes, op
from lazy_report import report_on
from tiers import examples

from trace_analyzer import vocabulary
from trace_analyzer.analyses.partition import step_windows
from trace_analyzer.frames.intervals import LENGTH_NS
from trace_analyzer.report import Report

pytestmark = pytest.mark.slow


def links(*events: Any) -> dict[str, str | None]:
    """Map each kernel to the start of its launch in microseconds and the launch's name."""
    tables = analysed(*events).tables
    calls = {row: f"{name}@{start / 1_000:g}" for row, name, start in
             tables["host_events"].select("event_id", "name", "start_ns").iter_rows()}  # fmt: skip
    return {
        name: calls.get(launch_id) for name, launch_id in tables["activities"].select("name", "launch_id").iter_rows()
    }


LAUNCH = "cudaLaunchKernel"


@pytest.mark.parametrize(
    ("calls", "launched"),
    [
        ([call("cudaEventRecord", 0, 9, correlation=1), launch(2, 2, 1)], f"{LAUNCH}@2"),
        ([launch(0, 9, 1), call("cudaEventRecord", 2, 1, correlation=1)], f"{LAUNCH}@0"),
        ([call("INVALID", 0, 9, correlation=1)], "INVALID@0"),
    ],
)
def test_calls_that_enqueue_work_go_first(calls: list[Event], launched: str) -> None:
    assert links(*calls, kernel("k", 20, 1, correlation=1)) == {"k": launched}


@pytest.mark.parametrize(
    ("launches", "start", "linked"),
    [
        ((0, 10, 30), 10, 10),
        ((0, 10, 30), 40, 30),
        ((10, 30), 9, 10),  # else the earliest
        ((0, 10, 30), 29, 30),  # clocks may disagree by 1 us
        ((0, 10, 30), 19, 10),
        ((0, 5_000), 4_979, 0),
    ],
)
def test_of_several_the_latest_before_the_activity(launches: tuple[int, ...], start: int, linked: int) -> None:
    calls = [launch(at, 1, 1) for at in launches]
    assert links(op("origin", 0, 1), *calls, kernel("k", start, 1, correlation=1)) == {"k": f"{LAUNCH}@{linked}"}


@pytest.mark.parametrize("number", [0, -1, 4_294_967_295])
def test_ids_that_are_none_link_nothing(number: int) -> None:
    calls = [call("cudaMemcpyAsync", 10 * t, 1, correlation=number) for t in range(5)]
    old = kernel("n", 80, 1, correlation=number, **{"External id": 5})
    assert links(
        op("o", 0, 3, **{"External id": 5}), calls, launch(60, 1, 7), kernel("k", 70, 1, correlation=7), old
    ) == {"k": f"{LAUNCH}@60", "n": None}


def test_a_graph_launch_owns_all_its_activities() -> None:
    nodes = [kernel(f"k{n}", 10 + n, 1, correlation=1) for n in range(5)]
    report = analysed(call("cudaGraphLaunch", 0, 4, correlation=1), *nodes)
    table = report.tables["launches"]
    assert table.select("name", "activity_count", "first_start_ns", "lead_ns").rows() == [
        ("cudaGraphLaunch", 5, 10_000, 6_000)
    ]


def test_a_flow_links_where_no_correlation_id_does() -> None:
    tail, head = launch(0, 2, 0), kernel("k", 9, 1)
    assert links(tail, head, flow(77, tail, head)) == {"k": f"{LAUNCH}@0"}
    assert links(tail, head, flow(77, tail, head, category="async_cpu_to_gpu")) == {"k": f"{LAUNCH}@0"}
    assert links(tail, head, flow(77, tail, head, category="fwdbwd")) == {"k": None}
    for wrong in ({"ts": 8}, {"tid": 20}, {"pid": 1}):
        assert links(tail, head, flow(77, tail, head | wrong)) == {"k": None}, wrong
        assert links(tail, head, flow(77, tail | wrong, head)) == {"k": None}, wrong


def test_a_correlation_id_goes_before_a_flow() -> None:
    by_id, by_flow, head = launch(0, 1, 1), launch(3, 1, 0), kernel("k", 9, 1, correlation=1)
    assert links(by_id, by_flow, head, flow(1, by_flow, head)) == {"k": f"{LAUNCH}@0"}


def test_flows_never_cross_processes() -> None:
    """Arrow 5 of process 2 ends at another device, and process 2 comes first in the file."""
    theirs, yours = launch(1, 1, 0, pid=2, tid=2), kernel("far", 9, 1, device=1)
    ours, mine = launch(0, 1, 0, pid=1, tid=1), kernel("k", 9, 1)
    numbered = [launch(3, 1, 6, pid=2, tid=2), kernel("far6", 12, 1, correlation=6, device=1),
                launch(4, 1, 7, pid=1, tid=1), kernel("k7", 12, 1, correlation=7)]  # fmt: skip
    actual = links(theirs, yours, flow(5, theirs, yours), ours, mine, flow(5, ours, mine), numbered)
    assert actual == {"far": f"{LAUNCH}@1", "k": f"{LAUNCH}@0", "far6": f"{LAUNCH}@3", "k7": f"{LAUNCH}@4"}


def two_processes(lead: int, other_lead: int) -> list[Event]:
    """Build two processes that number alike, each launching before a kernel of devices 0 and 1."""
    return [
        *(launch(100 * n - lead, 1, n, pid=1, tid=1) for n in (1, 2, 3)),
        *(launch(100 * n - other_lead, 1, n, pid=2, tid=2) for n in (1, 2, 3)),
        *(kernel(f"k{n}", 100 * n, 10, correlation=n) for n in (1, 2, 3)),
    ]  # fmt: skip


def owners(events: list[Event | list[Event]]) -> set[str | None]:
    """Return the processes whose launches the activities are linked to."""
    tables = analysed(*events).tables
    of_launch = tables["launches"].join(tables["threads"], on="thread_id").select("launch_id", "pid")
    return set(tables["activities"].join(of_launch, on="launch_id", how="left").get_column("pid"))


@pytest.mark.parametrize(
    ("leads", "arrow_from", "owner"),
    [
        ((5, 50), None, "1"),  # the smallest median lead
        ((50, 5), None, "2"),
        ((50, -5), None, "1"),  # the fewest negative leads go first
        ((5, 50), 3, "2"),  # a flow goes before leads
        ((5, 5), 0, "1"),
        ((5, 5), None, None),
    ],
)
def test_leads_and_flows_tell_whose_a_device_is(
    leads: tuple[int, int], arrow_from: int | None, owner: str | None
) -> None:
    events = two_processes(*leads)
    arrow = [] if arrow_from is None else flow(900, events[arrow_from], events[6])
    assert owners([*events, *arrow]) == {owner}
    assert ("ambiguous-process" in notes(analysed(*events, *arrow))) == (owner is None)


@pytest.mark.sampled
@pytest.mark.parametrize(("pairs", "actual"), [(6, {"1"}), (2, {"1"}), (1, {None})])
def test_some_activities_tell_whose_it_is(pairs: int, actual: set[str | None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trace_analyzer.analyses.links._MOST_PAIRS", pairs)
    assert owners([*two_processes(5, 50)]) == actual


def test_devices_go_to_processes_one_by_one() -> None:
    events = [
        *two_processes(5, 50),
        *(kernel(f"other{n}", 100 * n - 45, 5, correlation=n, device=1) for n in (1, 2, 3)),
    ]
    actual = links(*events)
    assert {actual[f"k{n}"] for n in (1, 2, 3)} == {f"{LAUNCH}@{100 * n - 5 - 50}" for n in (1, 2, 3)}
    assert {actual[f"other{n}"] for n in (1, 2, 3)} == {f"{LAUNCH}@{100 * n - 50 - 50}" for n in (1, 2, 3)}


def test_the_operator_is_the_innermost_around_the_launch_on_its_thread() -> None:
    events = [
        op("outer", 0, 100), op("inner", 5, 10), op("elsewhere", 6, 3, tid=9), launch(7, 2, 1), launch(15, 2, 2), launch(200, 2, 3),
        *(kernel(f"k{n}", 210 + 2 * n, 1, correlation=n) for n in (1, 2, 3)),
    ]  # fmt: skip
    activities = analysed(*events).tables["activities"]
    assert activities.select("name", "operator").rows() == [("k1", "inner"), ("k2", "outer"), ("k3", None)]


def test_coverage_counts_links_and_weighs_them_by_time() -> None:
    report = analysed(launch(0, 2, 1), kernel("a", 5, 30, correlation=1), kernel("b", 40, 10), kernel("c", 60, 10))
    device = report.devices[0]
    assert (device.linked_count, device.link_coverage_ratio, device.link_coverage_time_ratio) == (1, 1 / 3, 0.6)
    assert notes(report)["low-link-coverage"] == 2
    (message,) = (n.message for n in analysed(kernel("a", 5, 30)).notes if n.code == "low-link-coverage")
    assert message == "device 0: no activity has a known launch, so neither run-ahead nor causes of idle time are known"


ALIKE = {
    "one correlation id": lambda n: [e for i in range(n) for e in (launch(10 * i, 2, 1), kernel("k", 10 * i + 5, 4, correlation=1))],
    "one arrow": lambda n: [e for _ in range(n) for e in flow(1, call(LAUNCH, 10, 2), kernel("k", 50, 4))]
    + [e for _ in range(n) for e in (call(LAUNCH, 10, 2), kernel("k", 50, 4))],
    "one arrow to the backward pass": lambda n:
        [flow(1, op("a", 1, 2), op("b", 10, 2), category="fwdbwd") for _ in range(n)]
    + [kernel("k", 50, 4), *(op(*of, 2) for of in (("a", 1), ("b", 10)) for _ in range(n))],
    "one instant": lambda n: [e for i in range(n) for e in (op("aten::mm", 0, 90), launch(1, 2, i + 1), kernel("k", 5, 4, correlation=i + 1))],
}  # fmt: skip
"""Events with equal keys: the number of all pairs would be the square of their number."""


@pytest.mark.parametrize("name", ALIKE)
def test_no_join_makes_pairs_of_all(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wide: list[tuple[int, int, int]] = []
    join = pl.DataFrame.join

    def watched(left: pl.DataFrame, right: pl.DataFrame, *args: Any, **kwargs: Any) -> pl.DataFrame:
        joined = join(left, right, *args, **kwargs)
        if joined.height > 2 * (left.height + right.height):
            wide.append((left.height, right.height, joined.height))
        return joined

    monkeypatch.setattr(pl.DataFrame, "join", watched)
    tables = analysed(*ALIKE[name](300)).tables
    assert all(tables[table].height < 10_000 for table in tables)
    assert not wide


Interval = tuple[int, int, int, str, int | None]


def owners_sum_to_the_steps(report: Report) -> None:
    tables = report.tables
    windows = step_windows(tables["activities"], tables["steps"])
    owned = tables["owners"].group_by("device", "step").agg(LENGTH_NS.sum()).sort("device", "step")
    assert owned.rows() == windows.select("device", "step", LENGTH_NS).sort("device", "step").rows()
    pieces = tables["owners"].filter(LENGTH_NS > 0)
    in_order = tables["owners"].sort("device", "start_ns", "end_ns", "activity_id", maintain_order=True)
    assert tables["owners"].equals(in_order)
    following = pl.col("start_ns").shift(-1).over("device")
    assert pieces.filter(pl.col("end_ns") > following).is_empty()


def naive_owners(report: Report, device: int) -> set[Interval]:
    """Return the owners of the elementary intervals of a device's window, by the definition."""
    activities = report.tables["activities"].filter(pl.col("device") == device)
    spans = [
        (vocabulary.WORK.index(bound), start, row, start + duration, bound)
        for row, start, duration, bound in activities.select("activity_id", "start_ns", "duration_ns", "bound").rows()
    ]
    steps = report.tables["steps"].filter(pl.col("device") == device)
    windows = step_windows(activities, steps).select("start_ns", "end_ns").rows()
    idle = report.tables["blame"].filter(pl.col("device") == device).select("start_ns", "end_ns", "cause").rows()
    cuts = {t for _, start, _, end, _ in spans for t in (start, end)} | {
        t for row in (*idle, *windows) for t in row[:2]
    }
    owned: set[Interval] = set()
    for (since, until), (begin, end) in itertools.product(windows, itertools.pairwise(sorted(cuts))):
        if since <= begin and end <= until:
            running = [span for span in spans if span[1] <= begin and end <= span[3]]
            cause = [row[2] for row in idle if row[0] <= begin and end <= row[1]]
            _, _, activity, _, part = min(running) if running else (0, 0, None, 0, cause[0])
            owned.add((device, begin, end, part, activity))
    return owned


@given(random_traces())
@settings(max_examples=examples(6), suppress_health_check=list(HealthCheck))
def test_owners_are_those_of_the_definition(trace: RandomTrace) -> None:
    report = report_on(trace.content)
    owners_sum_to_the_steps(report)
    pieces = report.tables["owners"].filter(LENGTH_NS > 0)
    for device in report.tables["owners"].get_column("device").unique():
        rows = pieces.filter(pl.col("device") == device).select("start_ns", "end_ns", "part", "activity_id").rows()
        for _, begin, end, part, activity in naive_owners(report, device):
            (owner,) = [row[2:] for row in rows if row[0] <= begin and end <= row[1]]
            assert owner == (part, activity)


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.json.gz")), ids=lambda path: path.stem)
def test_samples(path: Path) -> None:
    tables = sample_report(path.name).tables
    owners_sum_to_the_steps(sample_report(path.name))
    assert pickle.loads(pickle.dumps(tables["owners"])).equals(tables["owners"])
    windows = step_windows(tables["activities"], tables["steps"])
    spans = windows.group_by("device").agg(since=pl.col("start_ns").min(), until=pl.col("end_ns").max())
    in_span = pl.col("start_ns").is_between("since", "until", closed="left")
    inside = tables["activities"].join(spans, on="device").filter(in_span)
    assert set(inside.get_column("activity_id")) <= set(tables["owners"].get_column("activity_id"))
