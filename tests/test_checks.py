"""Test checks of the trace: what each examines, and what its failure suppresses (microseconds)."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from broken_input import HOLED
from kineto import (
    A100,
    analysed,
    annotation,
    call,
    copy,
    event,
    flow,
    kernel,
    launch,
    launched,
    op,
    python,
    trace_bytes,
)
from lazy_report import changed, report_on
from msgspec.structs import replace

from trace_analyzer import checks
from trace_analyzer.render.phrasing import check_phrase, record_instead
from trace_analyzer.report import Check, Report

pytestmark = pytest.mark.slow

TIMES, RATES = ("buckets", "groups", "bounds", "fusions", "tensor_cores"), ("mfu", "hfu")
ALL = ("busy_ratio", "partition", "idle_causes", "run_ahead", *TIMES, *RATES, "communication", "copies")
A, B = launched("a", 0, 10, 10, 1), launched("b", 80, 90, 10, 2)


def check(report: Report, name: str) -> Check:
    (actual,) = (check for check in report.trust if check.name == name)
    return actual


def judged(name: str, *events: Any) -> tuple[float | None, str, tuple[str, ...]]:
    """Return value, status and withheld metrics of a check."""
    actual = check(analysed(*events), name)
    return actual.value, actual.status, actual.withholds


def arrows(*launches: list[Any]) -> list[Any]:
    return [flow(i, tail, head) for i, (tail, head) in enumerate(launches)]


def test_a_plain_trace_is_trusted() -> None:
    report = analysed(A, B, arrows(A, B), python("train.py(3): main", 0, 100))
    assert {c.name: c.status for c in report.trust} == dict.fromkeys((c.name for c in report.trust), "ok")
    assert [c.device for c in report.trust] == [None] * 3 + [0] * 14


OVERLAPS = launched("c", 81, 95, 10, 3)
GRAPH = [call("cudaGraphLaunch", 80, 5, correlation=2), *(kernel("n", 90 + i, 10, correlation=2) for i in range(3))]
BAD = event("cpu_op", "aten::mm", 5, -3, pid=100, tid=100)
ANNOTATIONS = [annotation("x", i, 1) for i in range(20)]
LOST = [launch(30 + 5 * i, 2, 10 + i) for i in range(3)]
BEGIN, END = call("cudaStreamBeginCapture", 25, 2), call("cudaStreamEndCapture", 50, 2)
SMALL = [launched("s", 20 * i, 20 * i + 10, 1, i + 1) for i in range(100)]
JUDGED: list[tuple[str, list[Any], float | None, str, tuple[str, ...]]] = [
    ("link_coverage", [A, B, kernel("c", 100, 60, correlation=9)], 0.25, "fail", ("run_ahead",)),
    ("link_coverage", [A, B, kernel("c", 100, 5, correlation=9)], 0.8, "warn", ()),
    # Work from before the recording is launched by nothing, as is work at its end.
    ("unlinked_before", [A, B, kernel("c", 0.5, 4, correlation=9), kernel("c", 200, 6, correlation=10)], 4 / 30, "warn", ()),
    # Overlaps on one stream count; those of several streams and of a graph's nodes do not.
    ("stream_overlap", [A, B, OVERLAPS], 5 / 30, "fail", TIMES),
    ("stream_overlap", [A, B, launched("c", 81, 95, 10, 3, stream=8)], 0.0, "ok", ()),
    ("stream_overlap", [A, GRAPH], 0.0, "ok", ()),
    ("graph_share", [A, GRAPH], 0.75, "ok", ()),
    ("started_before_launch", [A, B, launch(60, 5, 3), kernel("c", 50, 5, correlation=3)], 1 / 3, "fail", ("run_ahead",)),
    ("short_durations", [launched("k", 20 * i, 20 * i + 8, 5 if i % 4 else 0, i + 1) for i in range(40)], 0.25, "warn", ()),
    ("short_durations", [A, B], 0.0, "ok", ()),
    # A handful of activities with most of the time; not so collectives.
    ("few_long_activities", [SMALL, launched("large", 3_000, 3_010, 900, 200)], 904 / 1_000, "warn", ()),
    ("few_long_activities", [SMALL, launched("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 3_000, 3_010, 900, 200)], 5 / 1_000, "ok", ()),
    ("untraced", [A, launched("b", 40_000, 40_010, 10, 2), python("f", 0, 100), python("f", 39_000, 2_000)], 38_900 / 39_990, "fail", ("busy_ratio", *RATES)),
    ("unrecorded_host_time", [A, B], 60 / 70, "warn", ()),
    ("unrecorded_host_time", [A, B, python("train.py(3): f", 0, 100)], 0.0, "ok", ()),
    # Launches without their kernels; a launch that runtime and driver record is one, and a copy's may be none.
    ("missing_activities", [A, B, LOST], 0.6, "fail", ALL),
    ("missing_activities", [A, B, call("cuLaunchKernel", 81, 2, correlation=2, category="cuda_driver"), call("cudaMemcpyAsync", 50, 2, correlation=8)], 0.0, "ok", ()),
    # Kernels go into a graph between begin and end of a capture, whichever thread of the process launches them.
    ("missing_activities", [A, B, BEGIN, LOST, END], 0.0, "ok", ()),
    ("missing_activities", [A, B, BEGIN, END, LOST[0], launch(55, 2, 20)], 1 / 3, "warn", ()),
    ("missing_activities", [A, B, call("cudaStreamBeginCapture", 25, 2, tid=999, pid=999), LOST], 0.6, "fail", ALL),
    ("lost_events", [A, B, ANNOTATIONS, BAD], 1, "warn", ()),
    ("lost_events", [A, B, BAD], 1, "fail", ALL),
    # A file without arrows was edited.
    ("launch_arrows", [A, B], 0, "warn", ()),
    ("launch_arrows", [A, B, arrows(A, B)], 2, "ok", ()),
    ("launch_arrows", [annotation("x", 0, 5)], None, "ok", ()),
]  # fmt: skip


@pytest.mark.parametrize(("name", "events", "value", "status", "withholds"), JUDGED)
def test_a_check_has_a_value_a_status_and_what_it_withholds(
    name: str, events: list[Any], value: float | None, status: str, withholds: tuple[str, ...]
) -> None:
    assert judged(name, *events) == (value if value is None else pytest.approx(value), status, withholds)


@pytest.mark.parametrize("lasts", [0, 0.05])
def test_durations_that_no_device_can_have(lasts: float) -> None:
    report = analysed([launched("k", 20 * i, 20 * i + 8, lasts, i + 1) for i in range(30)])
    short = check(report, "short_durations")
    assert (short.value, short.status, short.withholds) == (1.0, "fail", ALL)
    assert (report.verdict.status, report.verdict.confidence) == ("insufficient", "low")


def loop(ahead: float, *waits: Any) -> list[Any]:
    """Build 30 launches 12 us before their kernels on an idle device, its clock ``ahead`` us ahead of the host's."""
    rows = [launched("k", 200 * i, 200 * i + 12 + ahead, 140, i + 1) for i in range(30)]
    return [rows, python("train.py(3): main", 0, 6_000), *waits]


SYNCHRONIZED = [call("cudaDeviceSynchronize", 1_000 * i + 10, 145) for i in range(6)]
"""Each returns 3 us after the end of the last kernel that was launched before it, if the clocks agree."""


AHEAD = {"ended_after_wait", "late_starts", "skewed_idle"}
BEHIND = {"started_before_launch", "skewed_idle"}
OF_ANOTHER_RATE = [launched("k", 200 * i, 200 * i + 12 + 100 * (i - 15), 60, i + 1) for i in range(30)]


@pytest.mark.parametrize(
    ("events", "failed", "says"),
    [
        (loop(0, SYNCHRONIZED), set(), None),
        (loop(500, SYNCHRONIZED), AHEAD, "is ahead of the host's by about 497 us to 512 us, as waits and launches show"),
        (loop(3.6e9, SYNCHRONIZED), AHEAD, "is ahead of the host's by about 3,600 s to 3,600 s, as waits and launches show"),
        # Without waits, it shows in idle time with work in the queue; a launch that shows a prompt start bounds the clock.
        (loop(500), {"late_starts"}, "may be ahead of the host's, by 512 us or less"),
        (loop(500, launched("prompt", 7_000, 7_012, 5, 99)), set(), None),
        (loop(-500, SYNCHRONIZED), BEHIND, "is behind the host's by about 488 us to 503 us, as launches and waits show"),
        (loop(-500), BEHIND, "by 488 us or more, as launches show"),
        ([OF_ANOTHER_RATE, SYNCHRONIZED], BEHIND | {"ended_after_wait"}, "no constant offset"),
    ],
)  # fmt: skip
def test_clocks_of_host_and_device(events: list[Any], failed: set[str], says: str | None) -> None:
    report = analysed(events)
    assert {check.name for check in report.trust if check.status == "fail"} == failed
    values = {check.value for check in report.trust if check.name in AHEAD | BEHIND}
    assert failed or values - {None} == {0.0}
    (note,) = [note.message for note in report.notes if note.code == "clock-offset"] or [None]
    assert note is None if says is None else says in str(note)
    if failed == AHEAD:
        assert report.devices[0].run_ahead.state is None
        assert {cause for cause, ns in report.devices[0].gaps.by_cause_ns.items() if ns} == {"withheld"}
        assert report.verdict.confidence == "low"


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("name", "copies", "tells"),
    [("cudaMemcpyAsync", "DtoH (Device -> Pageable)", True), ("cudaMemcpyAsync", "DtoH (Device -> Pinned)", False),
     ("hipMemcpyWithStream", "DeviceToHost", True), ("cudaMemcpy", "HtoD (Pageable -> Device)", False)],
)  # fmt: skip
def test_copies_that_block_show_the_clock_too(name: str, copies: str, tells: bool) -> None:
    copied = [
        [call(name, 30 * i, 20, correlation=i + 1), copy(copies, 30 * i + 500, 10, correlation=i + 1)] for i in range(9)
    ]
    assert (check(analysed(copied), "ended_after_wait").value is not None) == tells


def test_durations_that_the_stream_does_not_allow() -> None:
    corrupt, after = launched("c", 100, 200, 9_000, 3), launched("d", 300, 400, 80, 4)
    report = analysed(A, B, corrupt, after)
    actual = check(report, "impossible_durations")
    shortened = 200 / report.devices[0].busy_ns * 1_000
    assert (actual.value, actual.status, actual.withholds) == (pytest.approx(shortened), "fail", ALL)
    (device,) = report.devices
    assert (device.busy_ratio, device.buckets, device.groups, device.mfu, device.hfu) == (None, (), (), None, None)
    assert next(item.value for item in report.verdict.evidence if item.metric == "busy_ratio") is None
    assert (report.verdict.status, report.verdict.parts_ns, device.partition_ns) == ("insufficient", {}, {})
    (why,) = report.verdict.confidence_why
    assert why.startswith("impossible durations ")
    assert why.partition(": ")[0] in report.verdict.headline


@pytest.mark.parametrize("kept", [0.5, 0.99])
def test_nobody_knows_how_many_events_a_broken_file_lost(kept: float) -> None:
    whole = trace_bytes([A, B, ANNOTATIONS])
    actual = check(report_on(whole[: int(kept * len(whole))]), "lost_events")
    assert (actual.value, actual.status) == (None, "warn")
    assert check_phrase(actual) == "lost events"
    bad = replace(actual, value=3, status="fail", withholds=("busy_ratio",))
    assert check_phrase(bad) == "lost events 3 (busy ratio withheld)"
    assert check_phrase(replace(bad, withholds=ALL)) == "lost events 3 (all figures of devices withheld)"


def test_nobody_knows_how_many_events_a_file_with_a_hole_lost() -> None:
    actual = report_on(HOLED)
    assert "868 NUL bytes, from byte" in actual.notes[0].message
    lost = check(actual, "lost_events")
    assert (lost.value, lost.status) == (None, "warn")


def test_what_fails_comes_first_and_withholds_only_its_own_device() -> None:
    other = [launched("a", 1, 11, 9, 3, device=1), kernel("b", 300, 100, correlation=99, device=1)]
    report = analysed(A, B, other, devices=[A100, A100 | {"id": 1}])
    assert (report.trust[0].name, report.trust[0].device) == ("link_coverage", 1)
    good, bad = (device.run_ahead for device in report.devices)
    assert good.state is not None
    assert bad == replace(bad, state=None, empty_queue_ratio=None)
    assert (bad.launch_lead_ns.p50, bad.queue_depth.max, bad.queued_work_ns.max) == (None,) * 3


def test_figures_are_withheld_where_their_inputs_fail_and_only_there() -> None:
    """Products of known FLOP in two steps: half of the durations are impossible, or none is."""
    shapes = {"Input Dims": [[4096, 4096], [4096, 4096]], "Input type": ["c10::Half", "c10::Half"]}
    name = "ampere_fp16_s16816gemm_fp16_128x64"

    def report(*, broken: bool) -> Report:
        steps = [
            [annotation(f"ProfilerStep#{n}", 10_000 * n, 9_990), op("aten::mm", 10_000 * n + 10, 30, **shapes),
             launched(name, 10_000 * n + 20, 10_000 * n + 100, 4_000, n + 1, grid=[5000, 1, 1])]
            for n in range(4)
        ]  # fmt: skip
        again = [launched(name, 10_000 * n + 50, 10_000 * n + 2_050, 4_000, 50 + n) for n in range(4) if broken]
        return analysed(steps, again)

    good, bad = report(broken=False), report(broken=True)
    (device,), (doubtful,) = good.devices, bad.devices
    assert device.mfu == pytest.approx(4 * 2 * 4096**3 / 312e12 / (device.window_ns * 1e-9))
    assert [bucket.time_ns for bucket in device.buckets] == [16_000_000]
    assert all(step.mfu for step in good.steps)
    assert (doubtful.buckets, doubtful.groups, doubtful.mfu) == ((), (), None)
    assert [step.mfu for step in bad.steps] == [None] * 4
    assert [(step.regime, step.cause) for step in bad.steps] == [(None, None)] * 4
    assert all("is not known" in (step.headline or "") for step in bad.steps)
    assert {item.metric for item in doubtful.withheld} == set(ALL)
    assert {item.check for item in doubtful.withheld} == {"impossible_durations"}
    assert not device.withheld
    assert "What the kernels computed" in good.to_markdown()
    reported = bad.to_markdown()
    assert "What the kernels computed" not in reported
    assert "all figures of devices withheld" in reported, "why it is left out"


def skewed(by: int, *, device: int = 0) -> list[Any]:
    """Build 40 late launches of work that, by the device's clock, started ``by`` us before the launch call ended."""
    return [
        [op("aten::x", 100 * n + 5, 50), launched("a", 100 * n + 70, 100 * n + 75 - by, 20, 100 * device + n + 1, device=device)]
        for n in range(40)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("by", "ratio", "status"), [(0, 0.0, "ok"), (10, 5 / 80, "ok"), (30, 25 / 80, "warn"), (60, 55 / 80, "fail")]
)
def test_clocks_that_disagree_by_more_than_the_gaps_leave_no_causes(by: int, ratio: float, status: str) -> None:
    withheld = ("idle_causes",) if status == "fail" else ()
    assert judged("skewed_idle", skewed(by)) == (pytest.approx(ratio, rel=0.01), status, withheld)


def test_a_small_skew_does_not_take_an_overhead_verdict_away() -> None:
    """Check kernels that all begin 5 us before launch: leads mean nothing, and gaps of 80 us are still the CPU's."""
    report = analysed(skewed(10))
    (device,) = report.devices
    assert check(report, "started_before_launch").status == "fail"
    assert {item.metric for item in device.withheld} == {"run_ahead"}
    assert (report.verdict.regime, report.verdict.cause) == ("overhead-bound", "launch")
    assert any("clocks of host and device disagree" in why for why in report.verdict.confidence_why)
    assert report.tables["queue"].is_empty()
    assert report.tables["drains"].is_empty()
    assert report.tables["launches"].get_column("lead_ns").null_count() == 40


def test_idle_time_without_causes_is_withheld_everywhere() -> None:
    good, bad = skewed(0), skewed(60, device=1)
    report = analysed(good, bad, [annotation(f"ProfilerStep#{n}", 1_000 * n, 990) for n in range(4)],
                      call("cudaDeviceSynchronize", 3_990, 5), device=1, devices=[A100, A100 | {"id": 1}])  # fmt: skip
    fine, doubtful = report.devices
    assert "withheld" not in {cause for cause, ns in fine.gaps.by_cause_ns.items() if ns}
    assert {cause for cause, ns in doubtful.gaps.by_cause_ns.items() if ns} == {"withheld"}
    assert sum(doubtful.gaps.by_cause_ns.values()) == doubtful.idle_ns
    codes = dict(report.tables["devices"].select("label", "device").iter_rows())
    for table in ("idle", "gaps", "blame", "idle_by"):
        frame = report.tables[table].filter(pl.col("device") == codes["1"])
        assert set(frame.get_column("cause")) == {"withheld"}, table
    assert report.tables["blame"].filter(pl.col("device") == codes["1"]).get_column("operator").null_count() > 0
    assert report.tables["host_costs"].get_column("idle_ns").null_count() == report.tables["host_costs"].height > 0
    (reported,) = (item for item in doubtful.withheld if item.metric == "idle_causes")
    assert (reported.check, reported.reason[:12]) == ("skewed_idle", "skewed idle ")
    verdict = report.verdict
    assert (verdict.status, verdict.regime, report.advice) == ("insufficient", None, ())
    assert reported.reason in verdict.confidence_why
    check_of = reported.reason.partition(": ")[0]
    assert check_of in verdict.headline
    of_bad = [step for step in report.steps if step.device == 1]
    assert of_bad
    assert all(step.regime is None and check_of in (step.headline or "") for step in of_bad)
    assert all(step.regime for step in report.steps if step.device == 0 and step.headline)
    for text in (report.summary(120, verbose=True), report.to_markdown()):
        assert "run ahead" in text
        assert "idle causes withheld" in text
        assert "why is not known" in text.replace("\n", " ")
        assert "do not merge or shift files" in " ".join(text.split())
    (as_json,) = (d for d in json.loads(report.to_json())["devices"] if d["index"] == 1)
    assert {"metric": "idle_causes", "check": "skewed_idle", "reason": reported.reason} in as_json["withheld"]


def test_the_page_says_what_is_withheld_and_why(tmp_path: Path) -> None:
    page = analysed(skewed(60)).to_html(tmp_path / "report.html").read_text("utf-8")
    assert "Not shown because of it: idle causes" in page
    assert "why is not known" in page


def test_each_check_that_takes_the_verdict_says_what_to_do_instead() -> None:
    rules = (*checks._rules_of_devices(), checks._missing_rule())
    failed = [rule.check(0.0 if rule.good else 1.0, 0) for rule in rules] + [check(analysed(A, B, BAD), "lost_events")]
    taking = {actual for actual in failed if {"partition", "idle_causes"} & {*actual.withholds}}
    good = analysed(A, B)
    for actual in taking:
        verdict = replace(good.verdict, status="insufficient", device=0)
        (tip,) = record_instead(changed(good, verdict=verdict, trust=(actual,)))
        assert tip.endswith((".", "disagree."))
    names = "impossible_durations late_starts lost_events missing_activities short_durations skewed_idle"
    assert " ".join(sorted(actual.name for actual in taking)) == names


def test_kernels_that_no_operator_launches_are_profiled_where_shapes_are_recorded() -> None:
    """Check that a Triton program, whose kernels have no operator, is not told to record what it recorded."""
    own = [launched("frobnicate", 20 * n, 400 + 500 * n, 500, n + 1, grid=[500, 1, 1]) for n in range(12)]
    shaped = op("aten::zero_", 300, 5, **{"Input Dims": [[64]], "Input type": ["float"]})
    shapes, counters = "Record operators with their shapes", "Profile kernels that no operator launches"
    for events, tips in (([own], (shapes, counters)), ([own, shaped], (counters,))):
        report = analysed(*events)
        assert report.verdict.status == "insufficient"
        assert all(text.startswith(tip) for text, tip in zip(record_instead(report), tips, strict=True))
