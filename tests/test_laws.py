"""Test laws for every trace, tested on random ones, and naive definitions compared with the implementation."""

import json
import random
from fractions import Fraction
from functools import cache
from typing import Any
from unittest.mock import patch

import naive
import polars as pl
import pytest
from generator import UNHURRIED, RandomTrace, random_traces, traces_behind_earlier_work
from hypothesis import given, settings, strategies as st
from lazy_report import report_on
from msgspec.structs import replace
from tiers import examples

from trace_analyzer.checks import of_device
from trace_analyzer.frames.intervals import LENGTH_NS, coalesce
from trace_analyzer.pipeline import analyze
from trace_analyzer.report import Report

pytestmark = pytest.mark.slow


def on_traces(count: int) -> settings:
    return settings(max_examples=examples(count), suppress_health_check=UNHURRIED)


def coherent(trace: RandomTrace) -> RandomTrace:
    """Rename the trace's copy operator, as the catalogue classifies any kernel launched by it as a copy."""
    return RandomTrace(trace.content.replace(b"aten::copy_", b"aten::relu"))


def latency_bound(report: Report) -> int:
    (bound,) = (item.value for item in report.verdict.evidence if item.metric == "launch_latency_bound_ns")
    assert isinstance(bound, int)
    return bound


def unchecked(trace: RandomTrace) -> Report:
    """Return the report as if no check of the trace failed, so that nothing is suppressed."""
    with patch("trace_analyzer.checks.checks", return_value=()):
        return analyze(trace.content)


@given(random_traces(), st.integers(0, 99))
@on_traces(6)
def test_the_order_of_events_changes_nothing(trace: RandomTrace, seed: int) -> None:
    document = json.loads(trace.content)
    random.Random(seed).shuffle(document["traceEvents"])
    one, other = (json.loads(analyze(each).to_json()) for each in (trace.content, json.dumps(document).encode()))
    assert one.pop("trace")["event_count"] == other.pop("trace")["event_count"]
    assert one == other


@given(random_traces())
@on_traces(6)
def test_nothing_is_lost_and_nothing_counts_twice(trace: RandomTrace) -> None:
    report = report_on(trace.content)
    gaps_are_their_causes(report)
    windows_are_their_parts(report)
    links_stay_in_their_process(report)
    queue = report.tables["queue"]
    assert (queue.get_column("depth") >= 0).all()
    assert set(queue.group_by("device").agg(pl.col("depth").last()).get_column("depth")) <= {0}


def gaps_are_their_causes(report: Report) -> None:
    gaps, idle = report.tables["gaps"], report.tables["idle"]
    causes = idle.group_by("gap_id").agg(
        LENGTH_NS.sum().alias("duration_ns"), pl.col("start_ns").min(), pl.col("end_ns").max()
    )
    columns = ["gap_id", "duration_ns", "start_ns", "end_ns"]
    assert gaps.select(columns).sort("gap_id").rows() == causes.select(columns).sort("gap_id").rows()
    assert idle.filter(LENGTH_NS <= 0).is_empty()


def windows_are_their_parts(report: Report) -> None:
    for device in report.devices:
        this = pl.col("device") == device.index
        assert device.busy_ns + report.tables["gaps"].filter(this).get_column("duration_ns").sum() == device.window_ns
        assert sum(device.gaps.by_cause_ns.values()) == device.idle_ns
        withheld = {metric for check in of_device(report.trust, device.index) for metric in check.withholds}
        assert sum(device.partition_ns.values()) == (0 if "partition" in withheld else device.window_ns)
        pieces = report.tables["partition"].filter(this).sort("start_ns")
        assert "partition" not in withheld or pieces.is_empty()
        assert pieces.get_column("end_ns").to_list()[:-1] == pieces.get_column("start_ns").to_list()[1:]
        kernels = report.tables["activities"].filter(this & (pl.col("kind") == "kernel"))
        kernel_ns = 0 if "buckets" in withheld else kernels.get_column("duration_ns").sum()
        assert sum(bucket.time_ns for bucket in device.buckets) == kernel_ns


def links_stay_in_their_process(report: Report) -> None:
    """Check that links by correlation id stay in a process; by flow they may cross where the file records this."""
    processes = report.tables["threads"].select("thread_id", "process_id")
    launches = report.tables["launches"].join(processes, on="thread_id").select("launch_id", "process_id")
    owned = report.tables["activities"].join(launches, on="launch_id").filter(pl.col("correlation").is_not_null())
    owners = owned.group_by("device", "context").agg(pl.col("process_id").n_unique())
    assert owners.get_column("process_id").max() in (None, 1)


@given(random_traces())
@on_traces(5)
def test_what_is_withheld_is_all_that_its_check_says_and_nothing_else(trace: RandomTrace) -> None:
    report, whole = analyze(trace.content), unchecked(trace)
    for device, full in zip(report.devices, whole.devices, strict=True):
        metrics = {item.metric for item in device.withheld}
        assert metrics == {metric for check in of_device(report.trust, device.index) for metric in check.withholds}
        this = pl.col("device") == device.index
        columns = ["device", "start_ns", "end_ns", "cause"]
        masked, known = (r.tables["idle"].filter(this).select(columns) for r in (report, whole))
        silent = ~known.get_column("cause").is_in(["unlinked", "untraced", "unrecorded-work"])
        hidden = pl.when(silent).then(pl.lit("withheld")).otherwise("cause").alias("cause")
        if "idle_causes" in metrics:  # suppressed causes are not cut at changes of the innermost event
            masked, known = (coalesce(idle, ["device"], "cause") for idle in (masked, known.with_columns(hidden)))
        assert masked.equals(known)
        empty = {"run_ahead": "queue"}
        assert all(report.tables[table].filter(this).is_empty() for metric, table in empty.items() if metric in metrics)
        of_metric = {
            "busy_ratio": "busy_ratio", "partition": "partition_ns", "run_ahead": "run_ahead", "buckets": "buckets", "groups": "groups", "bounds": "bounds",
            "mfu": "mfu", "hfu": "hfu", "fusions": "fusions", "tensor_cores": "tensor_cores", "communication": "communication", "copies": "copies",
        }  # fmt: skip
        for metric, field in of_metric.items():
            # The run-ahead state needs the busy ratio, which another check may suppress alone.
            if metric not in metrics and not (metric == "partition" and "idle_causes" in metrics):
                assert getattr(device, field) == getattr(full, field), metric
        rests = {"partition", "idle_causes"} & metrics
        if report.verdict.device == device.index and report.verdict.status == "ok" and rests:
            assert report.verdict.confidence != "high"


@given(random_traces().map(coherent), st.randoms(use_true_random=False))
@on_traces(6)
def test_the_definitions_evaluated_slowly_say_the_same(trace: RandomTrace, rng: random.Random) -> None:
    report, facts = unchecked(trace), naive.parse(trace.content)
    check_windows(report, facts)
    if check_links(report, facts):
        check_parts(report, facts, rng)


@given(traces_behind_earlier_work().map(coherent), st.randoms(use_true_random=False))
@on_traces(6)
def test_so_they_do_behind_work_from_before_the_recording(trace: RandomTrace, rng: random.Random) -> None:
    report, facts = unchecked(trace), naive.parse(trace.content)
    if check_links(report, facts):
        check_parts(report, facts, rng)


def check_windows(report: Report, facts: naive.Trace) -> None:
    for device in report.devices:
        members = [a for a in facts.activities if a.device == device.index]
        start, end = naive.naive_window(members)
        assert (device.window_ns, device.busy_ns) == (end - start, naive.naive_busy(members))
        gaps = report.tables["gaps"].filter(pl.col("device") == device.index)
        in_file = gaps.select(pl.col("start_ns", "end_ns") + int(report.trace.origin_ns)).rows()
        assert in_file == naive.naive_gaps(members)


def check_links(report: Report, facts: naive.Trace) -> bool:
    """Check links; by flow, any matching call will do, as a head matches several where activities start together.

    Returns whether each link is the same one: only then can what follows from links be compared.
    """
    rows = dict(report.tables["host_events"].select("event_id", "row").iter_rows())
    links, activities = naive.naive_links(facts), {a.row: a for a in facts.activities}
    table = report.tables["activities"].select("row", "launch_id").iter_rows()
    launch_of = {row: rows.get(launch) for row, launch in table}
    for row, launch in launch_of.items():
        own, expected = activities[row], links[row]
        place = (own.pid, own.tid, own.start)
        ids = {f.flow_id for f in facts.flows if not f.is_start and (f.pid, f.tid, f.time) == place}
        tails = {(f.pid, f.tid, f.time) for f in facts.flows if f.is_start and f.flow_id in ids}
        by_flow = {e.row for e in facts.host if e.is_call and (e.pid, e.tid, e.start) in tails}
        by_number = expected is not None and 0 < own.correlation == expected.correlation
        assert launch in ({expected and expected.row} if by_number or not by_flow else by_flow)
    return launch_of == {row: call and call.row for row, call in links.items()}


def check_parts(report: Report, facts: naive.Trace, rng: random.Random) -> None:
    """Check the parts at random instants, with the launch latency that the analyser estimates."""
    pieces = report.tables["partition"].rows()
    if not pieces:
        return
    origin, bound = int(report.trace.origin_ns), latency_bound(report)
    for device, start, end, part in rng.sample(pieces, min(15, len(pieces))):
        for t in {start, rng.randrange(start, end), end - 1}:
            assert naive.naive_partition_at(facts, device, t + origin, bound) == part, (device, t)


def essence(report: Report) -> dict[str, Any]:
    """Return the content of a report, without numbers of rows and threads."""
    return {name: getattr(report, name) for name in ("verdict", "devices", "steps", "advice")} | {
        "partition": report.tables["partition"].rows(),
        "idle": report.tables["idle"].select("device", "start_ns", "end_ns", "cause").rows(),
        "duration": report.trace.duration_ns,
    }


def without_evidence(fields_of_report: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a report without its evidence, which counts the host's events and their density."""
    return fields_of_report | {"verdict": replace(fields_of_report["verdict"], evidence=())}


def rewritten(trace: RandomTrace, change: Any) -> Report:
    """Return the report on the trace with its list of events changed."""
    document = json.loads(trace.content, parse_float=str, parse_int=str)
    document["traceEvents"] = change(document["traceEvents"])
    return analyze(json.dumps(document).encode())


def as_is(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return events


@cache
def _original(content: bytes) -> dict[str, Any]:
    return essence(rewritten(RandomTrace(content), as_is))


def unchanged(trace: RandomTrace, change: Any) -> None:
    assert essence(rewritten(trace, change)) == _original(trace.content)


@given(random_traces(), st.integers(0, 10**9))
@on_traces(4)
def test_the_origin_of_time_and_numbers_of_processes_do_not_matter(trace: RandomTrace, microseconds: int) -> None:
    """Renamed alike where both are equal: that marks the main thread."""

    def moved(event: dict[str, Any]) -> dict[str, Any]:
        whole, fraction = event["ts"].split(".")
        is_host = event["pid"] in {"4000", "4001", "5000", "5001"}
        place = {"pid": f"9{event['pid']}", "tid": f"9{event['tid']}"} if is_host else {}
        return event | {"ts": f"{int(whole) + microseconds}.{fraction}"} | place

    unchanged(trace, lambda events: [moved(event) for event in events])


@given(random_traces())
@on_traces(3)
def test_an_idle_thread_does_not_matter(trace: RandomTrace) -> None:
    """It has one operator in the middle of the trace, of no duration."""

    def with_thread(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        times = sorted((event["ts"] for event in events if event["ph"] == "X"), key=Fraction)
        idle = {"ph": "X", "cat": "cpu_op", "name": "idle", "pid": "4000", "tid": "77", "dur": "0"}
        return [*events, idle | {"ts": times[len(times) // 2]}]

    changed = essence(rewritten(trace, with_thread))
    assert without_evidence(changed) == without_evidence(_original(trace.content))


def distinct_places(trace: RandomTrace) -> bool:
    """Return whether no two events share a start: only then does the file's order decide nothing."""
    events = json.loads(trace.content, parse_float=str)["traceEvents"]
    starts = [event["ts"] for event in events if event["ph"] == "X"]
    return len(set(starts)) == len(starts)


@given(random_traces().filter(distinct_places), st.integers(2, 5))
@on_traces(3)
def test_a_stream_s_rows_in_several_blocks_do_not_matter(trace: RandomTrace, blocks: int) -> None:
    """Check a file written buffer by buffer: some rows of each thread and stream, then some more, change nothing."""

    def in_blocks(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        seen: dict[tuple[str, str], int] = {}
        placed = []
        for row, event in enumerate(events):
            place = (event["pid"], event["tid"])
            seen[place] = seen.get(place, 0) + 1
            placed.append((seen[place] % blocks, place, row, event))
        return [event for *_, event in sorted(placed, key=lambda item: item[:3])]

    unchanged(trace, in_blocks)


def with_steps(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the events within three steps that ``prof.step()`` marks."""
    starts = [Fraction(event["ts"]) for event in events if event["ph"] == "X"]
    ends = [Fraction(event["ts"]) + Fraction(event["dur"]) for event in events if event["ph"] == "X"]
    first, length = min(starts), (max(ends) - min(starts)) // 3 + 1
    step = {"ph": "X", "cat": "user_annotation", "pid": "4000", "tid": "4000", "dur": f"{int(length)}.000"}
    marks = [step | {"name": f"ProfilerStep#{n}", "ts": f"{int(first + n * length)}.000"} for n in range(3)]
    return [*events, *marks]


@given(random_traces(), st.integers(3, 6))
@on_traces(3)
def test_annotations_of_idle_threads_do_not_matter_where_steps_are_marked(trace: RandomTrace, count: int) -> None:
    """They repeat and span everything, as a mark of steps would; but the steps are marked already."""

    def with_annotations(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        marked = with_steps(events)
        spans = [event for event in marked if event["name"].startswith("ProfilerStep")]
        start, length = int(spans[0]["ts"].split(".")[0]), 3 * int(spans[0]["dur"].split(".")[0])
        row = {"ph": "X", "cat": "user_annotation", "pid": "4000", "tid": "78", "name": "iteration"}
        each = length // count
        return [*marked, *(row | {"ts": f"{start + n * each}.000", "dur": f"{each}.000"} for n in range(count))]

    annotated, marked = (essence(rewritten(trace, change)) for change in (with_annotations, with_steps))
    assert without_evidence(annotated) == without_evidence(marked)
