"""Checks of the trace itself: what each looks at, and what a failed one withholds (microseconds)."""

from dataclasses import replace
from typing import Any

import pytest
from kineto import A100, analysed, annotation, call, event, flow, kernel, launch, launched, op, python, trace_bytes

from trace_analyzer.pipeline import analyze
from trace_analyzer.render.words import check_phrase
from trace_analyzer.report import Check, Report

TIMES, RATES = ("buckets", "groups"), ("mfu", "hfu")
A, B = launched("a", 0, 10, 10, 1), launched("b", 80, 90, 10, 2)


def check(report: Report, name: str) -> Check:
    (found,) = (check for check in report.trust if check.name == name)
    return found


def judged(name: str, *events: Any, **options: Any) -> tuple[float | None, str, tuple[str, ...]]:
    """Value, status and withheld metrics of a check."""
    found = check(analysed(*events, **options), name)
    return found.value, found.status, found.withholds


def arrows(*launches: list[Any]) -> list[Any]:
    return [flow(i, tail, head) for i, (tail, head) in enumerate(launches)]


def test_a_plain_trace_is_trusted() -> None:
    report = analysed(A, B, arrows(A, B), python("train.py(3): main", 0, 100))
    assert {c.name: c.status for c in report.trust} == dict.fromkeys((c.name for c in report.trust), "ok")
    assert [c.device for c in report.trust] == [None] * 3 + [0] * 9


def test_links() -> None:
    lost = kernel("c", 100, 60, correlation=9)
    assert judged("link_coverage", A, B, lost) == (0.25, "fail", ("run_ahead",))
    assert judged("link_coverage", A, B, kernel("c", 100, 5, correlation=9)) == (0.8, "warn", ())


def test_work_from_before_the_recording() -> None:
    early, late = kernel("c", 0.5, 4, correlation=9), kernel("c", 200, 6, correlation=10)
    assert judged("unlinked_before", A, B, early, late) == (pytest.approx(4 / 30), "warn", ())


def test_overlaps_on_one_stream_count_and_others_do_not() -> None:
    over = launched("c", 81, 95, 10, 3)
    assert judged("stream_overlap", A, B, over) == (pytest.approx(5 / 30), "fail", TIMES)
    assert judged("stream_overlap", A, B, launched("c", 81, 95, 10, 3, stream=8)) == (0.0, "ok", ())


def test_nodes_of_a_graph_may_overlap() -> None:
    graph = [call("cudaGraphLaunch", 80, 5, correlation=2), *(kernel("n", 90 + i, 10, correlation=2) for i in range(3))]
    assert judged("stream_overlap", A, graph)[:2] == (0.0, "ok")
    assert judged("graph_share", A, graph) == (0.75, "ok", ())


def test_activities_that_begin_before_their_launch() -> None:
    skewed = [launch(60, 5, 3), kernel("c", 50, 5, correlation=3)]
    assert judged("started_before_launch", A, B, skewed) == (pytest.approx(1 / 3), "fail", ("run_ahead",))


def test_durations_that_later_work_of_the_stream_contradicts() -> None:
    corrupt, after = launched("c", 100, 200, 9_000, 3), launched("d", 300, 400, 80, 4)
    report = analysed(A, B, corrupt, after)
    found = check(report, "impossible_durations")
    assert (found.value, found.status, found.withholds) == (
        pytest.approx(9_000 / 9_100),
        "fail",
        ("busy_ratio", *TIMES, *RATES),
    )
    (device,) = report.devices
    assert (device.busy_ratio, device.buckets, device.groups, device.mfu, device.hfu) == (None, (), (), None, None)
    assert next(item.value for item in report.verdict.evidence if item.metric == "busy_ratio") is None
    assert report.verdict.confidence_why[0].startswith("impossible durations: ") or any(
        why.startswith("impossible durations: ") for why in report.verdict.confidence_why
    )


def test_a_handful_of_activities_with_most_of_the_time() -> None:
    small = [launched("s", 20 * i, 20 * i + 10, 1, i + 1) for i in range(100)]
    large = launched("large", 3_000, 3_010, 900, 200)
    assert judged("few_long_activities", small, large) == (pytest.approx(904 / 1_000), "warn", ())
    collective = launched("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 3_000, 3_010, 900, 200)
    assert judged("few_long_activities", small, collective) == (pytest.approx(5 / 1_000), "ok", ())


def test_pauses() -> None:
    late = launched("b", 40_000, 40_010, 10, 2)
    frames = [python("train.py(3): f", 0, 100), python("train.py(3): f", 39_000, 2_000)]
    value, status, withholds = judged("untraced", A, late, frames)
    assert value == pytest.approx(38_900 / 39_990)
    assert (status, withholds) == ("fail", ("busy_ratio", *RATES))


def test_silence_of_the_host() -> None:
    assert judged("unnamed_host_time", A, B) == (pytest.approx(60 / 70), "warn", ())
    assert judged("unnamed_host_time", A, B, python("train.py(3): f", 0, 100)) == (0.0, "ok", ())


def test_launches_without_their_kernels() -> None:
    lost = [launch(30 + 5 * i, 2, 10 + i) for i in range(3)]
    assert judged("missing_activities", A, B, lost) == (0.6, "fail", ("busy_ratio", "run_ahead", *TIMES, *RATES))
    twice = call("cuLaunchKernel", 81, 2, correlation=2, category="cuda_driver")
    assert judged("missing_activities", A, B, twice, call("cudaMemcpyAsync", 50, 2, correlation=8)) == (0.0, "ok", ())


def test_lost_events() -> None:
    bad = event("cpu_op", "aten::mm", 5, -3, pid=100, tid=100)
    assert judged("lost_events", A, B, [annotation("x", i, 1) for i in range(20)], bad) == (1, "warn", ())
    assert judged("lost_events", A, B, bad) == (1, "fail", ("busy_ratio", "run_ahead", *TIMES, *RATES))


@pytest.mark.parametrize("kept", [0.5, 0.99])
def test_nobody_knows_how_many_events_a_broken_file_lost(kept: float) -> None:
    whole = trace_bytes([A, B, [annotation("x", i, 1) for i in range(20)]])
    found = check(analyze(whole[: int(kept * len(whole))]), "lost_events")
    assert (found.value, found.status) == (None, "warn")
    assert check_phrase(found) == "lost events"
    bad = replace(found, value=3, status="fail", withholds=("busy_ratio",))
    assert check_phrase(bad) == "lost events 3 (busy ratio withheld)"


def test_a_file_without_arrows_was_edited() -> None:
    assert judged("launch_arrows", A, B) == (0, "warn", ())
    assert judged("launch_arrows", A, B, arrows(A, B)) == (2, "ok", ())
    assert judged("launch_arrows", annotation("x", 0, 5)) == (None, "ok", ())


def test_what_fails_comes_first_and_withholds_only_its_own_device() -> None:
    other = [launched("a", 1, 11, 9, 3, device=1), kernel("b", 300, 100, correlation=99, device=1)]
    report = analysed(A, B, other, devices=[A100, A100 | {"id": 1}])
    assert (report.trust[0].name, report.trust[0].device) == ("link_coverage", 1)
    good, bad = report.devices
    assert good.run_ahead.state is not None
    assert bad.run_ahead == replace(bad.run_ahead, state=None, empty_queue_ratio=None)
    assert (bad.run_ahead.launch_lead_ns.p50, bad.run_ahead.queue_depth.max, bad.run_ahead.runway_ns.max) == (None,) * 3


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
        again = [launched(name, 10_000 * n + 50, 10_000 * n + 200, 4_000, 50 + n) for n in range(4) if broken]
        return analysed(steps, again)

    good, bad = report(broken=False), report(broken=True)
    (device,), (doubtful,) = good.devices, bad.devices
    assert device.mfu == pytest.approx(4 * 2 * 4096**3 / 312e12 / (device.window_ns * 1e-9))
    assert [bucket.time_ns for bucket in device.buckets] == [16_000_000]
    assert all(step.mfu for step in good.steps)
    assert (doubtful.buckets, doubtful.groups, doubtful.mfu) == ((), (), None)
    assert [step.mfu for step in bad.steps] == [None] * 4
    assert "What the kernels computed" in good.to_markdown()
    told = bad.to_markdown()
    assert "What the kernels computed" not in told
    assert "buckets, groups" in told, "why it is not told"
