"""What each resource is worth: its share of the time, of the critical path, and what the step saves without it."""

from functools import cache, partial

import pytest
from kineto import analysed as analysed_events, annotation, call, launched, op, python
from lazy_report import report_on
from msgspec.structs import replace
from program_laws import check_flip, check_regime
from replay_pairs import PAIRS
from test_advice_laws import bounds_hold

from trace_analyzer import vocabulary
from trace_analyzer.ranks.job import judge
from trace_analyzer.ranks.summary import RankSummary, to_bytes
from trace_analyzer.render.row_phrases import host_levers_sentence
from trace_analyzer.replay.changes import Change
from trace_analyzer.replay.prediction import Replay
from trace_analyzer.replay.whatif import whatif
from trace_analyzer.report import Report

pytestmark = pytest.mark.slow

LIMITS = {"gpu": "compute", "cpu": "host", "copies": "copies", "overlap, links limit": "communication"}


@cache
def report(name: str) -> Report:
    return report_on(PAIRS[name].before(1))


@pytest.mark.sampled
@pytest.mark.parametrize("name", [*LIMITS, "staging", "bucket"])
def test_levers_are_parts_of_one_replay_and_the_resource_that_limits_saves_most(name: str) -> None:
    """Check that shares and paths are parts of a whole, and that no lever saves more than its side's floor."""
    of = report(name)
    check_regime(of)
    rows, result = of.verdict.levers, whatif(of)
    assert rows == result.levers == tuple(sorted(rows, key=lambda row: -row.saves_ns))
    assert rows[0].resource == LIMITS.get(name, rows[0].resource)
    assert None not in (result.replay, result.cpu_floor_ns, result.device_floor_ns, now := result.step_ns)
    assert sum(row.share_ratio for row in rows) <= 1 + 1e-9
    assert sum(row.path_ratio for row in rows) <= 1 + 1e-9
    for row in (*rows, *of.verdict.host_levers):
        floor = result.cpu_floor_ns if row in rows and row.resource != "host" else result.device_floor_ns
        assert 0 <= row.saves_ns <= now - floor + 1
        assert row.saves_ratio == pytest.approx(row.saves_ns / now)


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "resource"), [("no-sync", "waits"), ("prefetch", "data-loading")])
def test_a_kind_of_the_hosts_work_saves_what_the_program_without_it_does(name: str, resource: str) -> None:
    before, after = (report_on(made(2)) for made in (PAIRS[name].before, PAIRS[name].after))
    verdict = before.verdict
    lever = next(row for row in verdict.host_levers if row.resource == resource)
    now = lever.saves_ns / lever.saves_ratio
    assert now - lever.saves_ns == pytest.approx(Replay.of(after, 0).recorded_step_ns, rel=0.01)
    words = "If no call waited" if resource == "waits" else f"without {vocabulary.RESOURCES[resource]}"
    assert words in host_levers_sentence(verdict)


def test_levers_of_ranks_are_their_own_and_of_the_job_their_means() -> None:
    own = report("cpu").verdict.levers
    twice = tuple(replace(lever, saves_ns=2 * lever.saves_ns) for lever in own[:1])
    made = [RankSummary(f"{rank}", rank, levers=levers) for rank, levers in enumerate((own, twice, ()))]
    job = judge([to_bytes(summary) for summary in made])
    assert [rank.levers for rank in job.ranks] == [own, twice, ()]
    assert [(lever.resource, lever.saves_ns) for lever in job.job.levers[:1]] == [("host", 1.5 * own[0].saves_ns)]
    assert sum(lever.share_ratio for lever in job.job.levers) <= 1


def test_a_lever_is_the_step_with_its_part_infinitely_fast() -> None:
    of = report("overlap, links limit")
    fast = (Change("speedup", {"target": "communication", "factor": float("inf")}),)
    (lever,) = (row for row in of.verdict.levers if row.resource == "communication")
    assert lever.saves_ns == pytest.approx(lever.saves_ns / lever.saves_ratio - Replay.of(of, 0).predict(fast).step_ns)


KERNEL_US, LAUNCHES, STEPS = 40, 25, 6


def program(call_us: int, *, frame: bool = False, **options: float) -> Report:
    """Analyse steps that launch a kernel of 40 us every ``call_us``, and wait for the last at their end."""
    step_us, shapes = step_of(call_us), {"Input Dims": [[10_000_000]], "Input type": ["float"]}
    events: list[object] = []
    for step, begins in enumerate(range(1_000, 1_000 + STEPS * step_us, step_us)):
        events.append(annotation(f"ProfilerStep#{step}", begins, step_us))
        events += [python("train.py(7): loop", begins, step_us)] * frame
        busy = 0
        for n in range(LAUNCHES):
            called = begins + call_us * n
            start = max(busy, called + 10)
            busy = start + KERNEL_US
            events.append(op("aten::relu", called, call_us - 2, **shapes))
            events += launched(
                "vectorized_elementwise_kernel<4, x>", called + 4, start, KERNEL_US, 100 * step + n + 1, takes=3
            )
        waits = begins + call_us * LAUNCHES
        events.append(call("cudaDeviceSynchronize", waits, max(busy + 10 - waits, 5)))
    return analysed_events(events, **options)


def step_of(call_us: int) -> int:
    return LAUNCHES * max(call_us, KERNEL_US) + 60


def test_time_between_operators_is_python_only_where_frames_were_recorded() -> None:
    """Levers and critical path name what no operator covers as idle causes do: unrecorded, or Python within a frame."""
    bare, framed = program(100), program(100, frame=True)
    named = [
        {lever.resource for lever in one.verdict.host_levers} & {"python", "host-unknown"} for one in (bare, framed)
    ]
    assert named == [{"host-unknown"}, {"python"}]
    assert "python" not in bare.tables["critical_path_parts"].get_column("name").to_list()


def test_kernels_of_doubtful_bound_are_hidden_behind_the_host_whichever_it_is() -> None:
    """Names alone say that the matmuls are compute; the host is the limit as surely as if their bound were known."""
    step_us, events = 2_000, []
    for step in range(6):
        begins = 1_000 + step * step_us
        events += [annotation(f"ProfilerStep#{step}", begins, step_us), python("train.py(7): load", begins, 1_900)]
        for n in range(10):
            called = begins + 1_900 + 10 * n
            events.append(op("aten::mm", called, 8))
            events += launched("ampere_sgemm_128x64_tn", called + 2, begins + 1_920 + 120 * n, 118, 10 * step + n + 1)
    judged = analysed_events(*events).verdict
    assert (judged.regime, judged.cause, judged.confidence_ratio) == ("overhead-bound", "python", 1.0)


def test_kernels_that_no_rule_knows_are_not_taken_to_be_hidden_as_others_are() -> None:
    events: list[object] = []
    for step, begins in enumerate(range(1_000, 7_000, 1_000)):
        events.append(annotation(f"ProfilerStep#{step}", begins, 1_000))
        for n, (name, us) in enumerate([*[("vectorized_elementwise_kernel<4, x>", 10)] * 5, ("mystery", 700)]):
            called = begins + 40 * n
            events += [op("aten::relu", called, 30, **{"Input Dims": [[2_000_000]], "Input type": ["float"]})] * (n < 5)
            events += launched(name, called + 4, called + 12, us, 10 * step + n + 1)
        events.append(call("cudaDeviceSynchronize", begins + 240, 690))
    assert analysed_events(*events).verdict.status == "insufficient"


def test_steps_have_the_verdict_of_their_window() -> None:
    """The device is busy for most of each step, and waits for the CPU all the same."""
    report = program(45)
    judged = report.verdict
    assert (judged.regime, judged.shares and judged.shares.memory > 0.8) == ("overhead-bound", True)
    assert {(step.regime, step.cause) for step in report.steps} == {(judged.regime, judged.cause)}
    assert len(report.steps) > len(judged.window.steps), "a first step is of the same program"


@pytest.mark.parametrize("call_us", [43, 45, 50, 60, 75])
def test_the_step_below_which_the_verdict_does_not_hold_flips_it(call_us: int) -> None:
    """What the host hides saves nothing: once the host is fast, what takes most time limits."""
    traced = program(call_us)
    (said,) = (why for why in traced.verdict.confidence_why if "if a step takes under" in why)
    assert (traced.verdict.regime, "it is memory-bandwidth-bound " in said) == ("overhead-bound", True)
    check_flip(traced, partial(program, call_us))


@pytest.mark.parametrize(("recorded_us", "true_us"), [(100, 30), (120, 60)])
def test_a_measured_step_gives_the_answers_of_the_program_without_the_profiler(recorded_us: int, true_us: int) -> None:
    """The same program, with recording that makes each launch take longer, and without it: first another regime, then not."""
    true = program(true_us)
    step_ms = step_of(true_us) / 1_000
    traced, known = program(recorded_us), program(recorded_us, measured_step_ms=step_ms)
    regime = "memory-bandwidth-bound" if true_us < KERNEL_US else "overhead-bound"
    assert (traced.verdict.regime, known.verdict.regime, true.verdict.regime) == ("overhead-bound", regime, regime)
    assert known.verdict.levers[0].resource == true.verdict.levers[0].resource
    saves = [{lever.resource: lever.saves_ratio for lever in one.verdict.levers} for one in (known, true)]
    assert saves[0] == pytest.approx(saves[1], abs=0.1)
    # An item without a saving only says that nothing is known to gain.
    gains = {item.id for item in known.advice if item.saves_ns_at_most}
    assert gains <= {item.id for item in (*traced.advice, *true.advice)}
    for item in known.advice:
        assert item.saving.at_most_ns <= step_ms * 1e6 + 1
        assert item.predicted is None or item.predicted.now_ns == pytest.approx(step_ms * 1e6)
    assert "Python takes" not in known.summary(), "overhead is more than Python"
    now = whatif(known).step_ns
    assert now == pytest.approx(step_ms * 1e6, rel=0.01)


def test_a_device_that_hides_the_cpu_does_not_tell_how_much_of_it_was_recording() -> None:
    """A step as long without the profiler as recorded: of the factors on the CPU that leave it so, the middle one holds."""
    recorded = program(30)
    now = whatif(recorded).step_ns
    known = program(30, measured_step_ms=now / 1e6)
    floors = [result.cpu_floor_ns for result in (whatif(recorded), whatif(known))]
    assert floors[0] is not None
    assert 0.4 * floors[0] < (floors[1] or 0.0) < 0.9 * floors[0]
    assert whatif(known).step_ns == pytest.approx(now, rel=0.001)


def test_a_loader_takes_as_long_without_the_profiler() -> None:
    """Of 7 ms a step, 5 go to loading; of the 6 ms without the profiler they are 5, too, and the rest takes 1."""
    events = []
    for step in range(6):
        begins = 1_000 + 7_000 * step
        loader = annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", begins, 5_000)
        events += [annotation(f"ProfilerStep#{step}", begins, 6_999), loader]
        for at in range(20):
            called = begins + 5_000 + 100 * at
            events += [op("aten::mm", called, 98), *launched("k", called + 90, called + 97, 2, 20 * step + at + 1)]
    predicted = whatif(analysed_events(*events, measured_step_ms=6.0), (Change("prefetch", {"workers": 8}),)).predicted
    assert predicted is not None
    assert predicted.low_ns == pytest.approx(1e6, rel=0.1)


def test_no_fix_for_the_host_goes_below_its_floor() -> None:
    report = report_on(PAIRS["graphs"].before(1))
    bounds_hold(report)
    assert "lowered to what a CPU that takes no time saves" in report.advice[0].how_bound
