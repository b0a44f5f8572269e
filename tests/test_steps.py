"""Test steps on a device, the representative ones among them, and the verdict's window."""

import gzip
import json
import re
from pathlib import Path

import polars as pl
import pytest
from kineto import A100, analysed, annotation, call, copy, flow, kernel, launch, launched, op, python, rows

from trace_analyzer import analyze, errors
from trace_analyzer.replay.whatif import whatif
from trace_analyzer.report import Report

pytestmark = pytest.mark.slow

SAMPLES = sorted((Path(__file__).parent.parent / "sample_traces").glob("synthetic_*.json.gz"))

GEMM = "ampere_sgemm_128x64_tn"


def step(
    number: int, start: int, busy: int = 50, *, name: str = "ProfilerStep#{}", count: int = 2, length: int = 100
) -> list[object]:
    """Build a step of ``length`` us from ``start`` that launches ``count`` kernels, the first 20 us later."""
    marks = [annotation(name.format(number), start, length)]
    work = [launched(GEMM, start + 5 + 6 * n, start + 20 + busy * n, busy, 10 * number + n + 1) for n in range(count)]
    return [*marks, *work]


def table(report: Report, *columns: str) -> list[tuple[object, ...]]:
    return rows(report.tables["steps"], *columns)


def test_a_step_runs_from_the_previous_last_activity_to_its_own() -> None:
    report = analysed(step(3, 0), step(4, 200), step(5, 400))
    assert table(report, "index", "name", "start_ns", "end_ns", "busy_ns", "activity_count") == [
        (3, "ProfilerStep#3", 20, 120, 100, 2), (4, "ProfilerStep#4", 120, 320, 100, 2), (5, "ProfilerStep#5", 320, 520, 100, 2),
    ]  # fmt: skip
    assert table(report, "host_start_ns", "host_end_ns") == [(0, 100), (200, 300), (400, 500)]


def test_work_belongs_to_the_step_that_launched_it() -> None:
    late = launched("late", 50, 600, 5, 99)
    report = analysed(step(0, 0), step(1, 200), late, launched("outside", 150, 160, 5, 98))
    assert table(report, "index", "start_ns", "end_ns", "activity_count") == [(0, 20, 605, 3), (1, 605, 605, 2)]


def test_annotations_copied_onto_devices_count_once() -> None:
    copied = annotation("ProfilerStep#0", 20, 100, tid=7, pid=0) | {"cat": "gpu_user_annotation"}
    assert len(table(analysed(step(0, 0), step(1, 200), copied), "index")) == 2


@pytest.mark.parametrize(
    ("steps", "states"),
    [
        ([step(n, 200 * n) for n in range(4)], ["first", "ok", "ok", "ok"]),
        ([step(0, 0), step(1, 200), step(2, 400), step(3, 600, count=0)], ["first", "ok", "ok", "empty"]),
        (
            [*(step(n, 200 * n, count=3, busy=30) for n in range(3)), step(3, 600, count=1)],
            ["first", "ok", "ok", "cut"],
        ),
        ([*(step(n, 200 * n) for n in range(4)), step(4, 1_600)], ["first", "ok", "ok", "ok", "outlier"]),
    ],
)
def test_states(steps: list[object], states: list[str]) -> None:
    report = analysed(steps)
    assert table(report, "state") == [(state,) for state in states]
    assert table(report, "steady") == [(state == "ok",) for state in states]
    assert report.verdict.window.kind == "steady"
    assert report.verdict.window.steps == tuple(n for n, state in enumerate(states) if state == "ok")


@pytest.mark.parametrize(("count", "state"), [(6, "ok"), (2, "cut")])
def test_with_fewer_than_two_whole_ones_there_is_one_window(count: int, state: str) -> None:
    report = analysed(step(0, 0, count=6, busy=200), step(1, 1_300, count=count, busy=200))
    assert table(report, "state", "steady") == [("first", False), (state, False)]
    assert (report.verdict.window.kind, report.verdict.window.steps) == ("whole", ())
    assert not any(step_word(text) for text in sentences(report)), "a mean of a first and a cut step is no step"


def sentences(report: Report) -> list[str]:
    """Return what the report says but for the names of marks, advice's code, and how to mark steps."""
    code = {line.strip() for item in report.advice for line in item.code.splitlines()}
    advice = [text for item in report.advice for text in (report.explain(item.id).summary(), item.why, item.how_bound)]
    said = [
        report.summary(verbose=True),
        report.to_agent_text(),
        whatif(report).summary(),
        report.explain("verdict").summary(),
    ]
    lines = "\n".join([*said, *advice]).splitlines()
    return [line for line in lines if "prof.step()" not in line and line.strip() not in code]


def step_word(text: str) -> re.Match[str] | None:
    return re.search(r"\b(a|the|each|per|every|steady) steps?\b", text)


@pytest.mark.sampled
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
def test_without_steps_no_sentence_speaks_of_one(sample: Path) -> None:
    trace = json.loads(gzip.decompress(sample.read_bytes()))
    trace["traceEvents"] = [e for e in trace["traceEvents"] if e.get("cat") != "user_annotation"]
    report = analyze(json.dumps(trace).encode())
    assert report.steps == ()
    assert report.advice, "there is something to say"
    assert [text for text in sentences(report) if step_word(text)] == []


def test_steps_are_of_like_length_and_content() -> None:
    lengths = analysed(step(0, 0), step(1, 200), step(2, 400, busy=160))
    assert table(lengths, "state") == [("first",), ("ok",), ("outlier",)], "of two, the shorter is the typical one"
    more = analysed(step(0, 0), step(1, 200), step(2, 400), step(3, 600, count=5, busy=20))
    assert table(more, "state")[-1] == ("outlier",), "over twice the work is something else"


def test_of_labels_that_count_loops_the_innermost_is_the_step() -> None:
    outer = [annotation(f"epoch {n}", 600 * n, 590) for n in range(3)]
    inner = [annotation(f"epoch {n // 3} batch {n % 3}", 200 * n, 190) for n in range(9)]
    report = analysed(loop(9), outer, inner)
    assert (report.steps_from, len(report.steps)) == ("epoch # batch #", 9)
    named = [annotation(f"epoch {n // 3} forward", 200 * n, 190) for n in range(9)]
    assert analysed(loop(9), outer, named).steps_from == "epoch #", "a part has a name, no number"


def test_profiler_steps_that_do_not_recur_give_way_to_marks_that_do() -> None:
    ends = [annotation("Optimizer.step#SGD.step", 200 * n + 120, 20) for n in range(6)]
    whole = [annotation("ProfilerStep#0", 0, 1_300)]
    assert analysed(loop(6), whole, ends).steps_from == "optimizer"
    assert analysed(loop(6), whole).steps_from == "ProfilerStep"


def test_the_steady_window_may_be_several_intervals() -> None:
    steps = [step(n, 200 * n) for n in range(3)]
    outlier, more = step(3, 1_000), [step(n, 200 * n + 500) for n in (4, 5)]
    window = analysed(steps, outlier, more).verdict.window
    assert (window.steps, window.intervals) == ((1, 2, 4, 5), ((120_000, 520_000), (1_120_000, 1_620_000)))


def test_a_step_or_all_of_it_can_be_asked_for() -> None:
    events = [step(n, 200 * n) for n in range(4)]
    one, whole = (analysed(events, step=wanted).verdict.window for wanted in (2, "all"))
    assert (one.kind, one.intervals, one.steps) == ("step", ((320_000, 520_000),), (2,))
    assert (whole.kind, whole.intervals) == ("whole", ((20_000, 720_000),))
    with pytest.raises(errors.UsageError, match=r"step 9 .*: 0, 1, 2, 3"):
        analysed(events, step=9)


def test_other_annotations_mark_steps_when_they_repeat_around_the_launches() -> None:
    names = "iteration_{}(8)_of[3]"
    report = analysed([step(n, 200 * n, name=names) for n in range(4)], annotation("inside", 10, 2))
    assert table(report, "index", "activity_count") == [(0, 2), (1, 2), (2, 2), (3, 2)]
    assert table(analysed([step(n, 200 * n, name=names) for n in range(2)]), "index") == [], "twice is no pattern"
    apart = [launched(GEMM, 1_000 + 10 * n, 1_005 + 10 * n, 1, 900 + n) for n in range(9)]
    assert table(analysed([step(n, 200 * n, name=names) for n in range(4)], apart), "index") == [], (
        "under 80 % of launches"
    )


def test_without_steps_the_window_is_the_whole_trace() -> None:
    report = analysed(kernel(GEMM, 5, 3_000))
    assert report.steps == ()
    assert (report.verdict.window.kind, report.verdict.window.intervals) == ("whole", ((0, 3_000_000),))


def test_a_step_has_the_regime_of_its_own_partition() -> None:
    slow = [
        annotation("ProfilerStep#9", 3_000, 900),
        *(launched(GEMM, 3_000 + 80 * n, 3_010 + 80 * n, 4, 900 + n) for n in range(1, 9)),
    ]
    report = analysed([step(n, 200 * n, busy=100) for n in range(4)], slow)
    assert table(report, "index", "regime")[-2:] == [(3, "compute-bound"), (9, "overhead-bound")]
    assert [item.regime for item in report.steps] == report.tables["steps"].get_column("regime").to_list()


def in_bursts(stalls: dict[int, int], count: int = 14) -> Report:
    """Analyse steps of 200 us, some of which wait for the data loader first."""
    rows, at = [], 0
    for n in range(count):
        wait = stalls.get(n, 0)
        rows.append([*step(n, at + wait), annotation(f"ProfilerStep#{n}", at, wait + 100)][1:])
        rows += (
            [annotation("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", at + 1, wait - 2)]
            if wait
            else []
        )
        at += wait + 200
    return analysed(rows)


@pytest.mark.parametrize(
    ("stalls", "states"),
    [
        ({4: 3_000, 8: 3_000, 12: 3_000}, {"first": 1, "ok": 13}),
        ({8: 9_000}, {"first": 1, "ok": 12, "outlier": 1}),
        ({7: 4_000, 8: 4_000}, {"first": 1, "ok": 11, "outlier": 2}),
        ({4: 450, 8: 450}, {"first": 1, "ok": 11, "outlier": 2}),
    ],
    ids=["every fourth step waits", "one step waits", "two in a row", "little of the time"],
)
def test_slow_steps_that_recur_and_hold_most_of_the_time_are_no_outliers(
    stalls: dict[int, int], states: dict[str, int]
) -> None:
    report = in_bursts(stalls)
    assert dict(report.tables["steps"].group_by("state").len().rows()) == states
    assert (report.verdict.cause == "data-loading") == ("outlier" not in states)


def test_durations_of_steps_sum_to_their_span() -> None:
    steps = analysed([step(n, 200 * n) for n in range(5)]).tables["steps"]
    total = steps.select((pl.col("end_ns") - pl.col("start_ns")).sum()).item()
    assert total == steps.get_column("end_ns").max() - steps.get_column("start_ns").min()


# Steps without marks


def loop(count: int, *around: object, period: int = 200, copies: bool = True) -> list[object]:
    """Build ``count`` iterations that copy their input, launch three layers of two kernels, and an epilogue."""
    events: list[object] = [*around]
    for n in range(count):
        t, first = period * n, 100 * n
        names = [*("gemm", "relu") * 3, "argmax"]
        if copies:
            events += [call("cudaMemcpyAsync", t, 4, correlation=first + 90), copy("HtoD (Pinned -> Device)", t + 6, 8, correlation=first + 90, bytes=1 << 18)]  # fmt: skip
        events += [launched(name, t + 10 + 15 * k, t + 20 + 15 * k, 12, first + k + 1) for k, name in enumerate(names)]
    return events


def test_optimizers_and_data_loaders_announce_steps() -> None:
    fetches = [
        annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 200 * n - 5, 4) for n in range(6)
    ]
    report = analysed(loop(6), fetches)
    assert (report.steps_from, len(report.steps)) == ("data loader", 6)
    ends = [annotation("Optimizer.step#SGD.step", 200 * n + 120, 20) for n in range(6)]
    report = analysed(loop(6), fetches, ends)
    assert (report.steps_from, len(report.steps)) == ("optimizer", 6)
    assert table(report, "host_start_ns", "host_end_ns")[1] == (145, 345), "time starts 5 us earlier, with the fetch"


def test_frameworks_announce_steps_also_once() -> None:
    once = analysed(loop(1), annotation("execute_context_2(512)_generation_30(30)", 0, 190))
    assert (once.steps_from, table(once, "index", "state")) == ("serving framework", [(0, "ok")])
    frames = [python("vllm/v1/worker/gpu_worker.py(540): execute_model", 200 * n, 190) for n in range(4)]
    inner = [python("vllm/v1/worker/gpu_model_runner.py(3200): execute_model", 200 * n + 2, 180) for n in range(4)]
    report = analysed(loop(4), frames, inner)
    assert (report.steps_from, len(report.steps)) == ("vLLM", 4)


def test_repetitions_without_marks_or_of_compiled_regions_are_no_steps() -> None:
    regions = [annotation("Torch-Compiled Region: 0/0", 200 * n + 8, 120) for n in range(6)]
    assert analysed(loop(6)).steps_from is None
    assert analysed(loop(6), regions).steps_from is None


def test_annotations_within_one_module_call_or_operator_are_parts_of_a_pass() -> None:
    """As are those within a call on another thread: autograd's works within the call of the one that asked for it."""
    parts = [annotation(f"part {n}", 200 * n + 3, 180) for n in range(6)]
    assert analysed(loop(6), parts).steps_from == "part #"
    module = "nn.Module: Net_0"
    for around in (op("x::forward", 0, 2_000), python(module, 0, 2_000), python(module, 0, 2_000, tid=7)):
        assert analysed(loop(6), parts, around).steps_from is None, around
    assert analysed(loop(6), parts, annotation("epoch", 0, 2_000)).steps_from == "part #", "an epoch has steps"
    assert analysed(loop(6), parts, annotation("forward", 0, 2_000)).steps_from is None, "a pass has parts"


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["layer {}", "block_{}", "encoder.layers.{}.mlp", "Attention", "TransformerBlock_{}"])
def test_annotations_that_name_layers_mark_no_steps(name: str) -> None:
    assert analysed(loop(6), [annotation(name.format(n), 200 * n + 3, 180) for n in range(6)]).steps_from is None


def test_each_process_has_its_own_steps() -> None:
    here, there = (
        [[annotation("iteration", 200 * n + shift, 150, pid=pid, tid=pid), launch(200 * n + 10 + shift, 5, n + 1 + 50 * device, pid=pid, tid=pid),
          kernel(GEMM, 200 * n + 20 + shift, 60, correlation=n + 1 + 50 * device, device=device)] for n in range(count)]
        for pid, device, count, shift in ((100, 0, 4, 0), (200, 1, 3, 40))
    )  # fmt: skip
    report = analysed(here, there, devices=[A100, A100 | {"id": 1}])
    assert [(s.device, s.index) for s in report.steps] == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2)]


def test_where_two_recordings_count_from_the_same_number_the_second_counts_on() -> None:
    again = [[annotation(f"ProfilerStep#{n}", 2_000 + 200 * n, 100), launched(GEMM, 2_005 + 200 * n, 2_020 + 200 * n, 50, 500 + n)] for n in range(2)]  # fmt: skip
    report = analysed(step(0, 0), step(1, 200), again)
    assert table(report, "index", "activity_count") == [(0, 2), (1, 2), (2, 1), (3, 1)]


def test_a_number_that_nothing_counts_to_is_no_step() -> None:
    last = [[annotation(f"ProfilerStep#{2**63 - 1}", 200 * n, 100), launched(GEMM, 200 * n + 5, 200 * n + 20, 50, n + 1)] for n in range(4)]  # fmt: skip
    assert table(analysed(last), "index", "activity_count") == [(0, 1), (1, 1), (2, 1), (3, 1)]


# Broken steps


def test_slow_steps_after_the_first_warm_up() -> None:
    slow = [step(n, 1_000 * n, busy=400, length=900) for n in range(2)]
    report = analysed(slow, [step(n, 1_600 + 200 * n) for n in range(2, 7)])
    assert [state for (state,) in table(report, "state")] == ["first", "warm-up", *["ok"] * 5]


def test_a_step_that_did_little_is_an_outlier() -> None:
    steps = [step(n, 200 * n, count=1 if n == 3 else 4, busy=20) for n in range(6)]
    report = analysed(steps)
    assert [state for (state,) in table(report, "state")] == ["first", "ok", "ok", "outlier", "ok", "ok"]
    assert report.verdict.window.steps == (1, 2, 4, 5)


def test_a_step_has_cause_and_runner_up() -> None:
    events = [[annotation(f"ProfilerStep#{n}", 1_000 * n, 900), op("aten::mm", 1_000 * n, 500), launched(GEMM, 1_000 * n + 505, 1_000 * n + 515, 450, n + 1)] for n in range(3)]  # fmt: skip
    assert table(analysed(events), "regime", "cause", "runner_up")[2] == ("overhead-bound", "launch", "compute-bound")


def test_a_step_has_a_sentence_and_its_confidence() -> None:
    """Check that all steps share the doubts about the device, and that each step has its own of the others."""

    def loop(*more: object, kernels: int = 14) -> Report:
        return analysed([
            [annotation(f"ProfilerStep#{n}", 10_000 * n, 9_900), op("aten::mm", 10_000 * n, 9_800),
             *(launched(GEMM, 10_000 * n + 100 + 500 * k, 10_000 * n + 110 + 500 * k, 50 if n != 2 else 200, 100 * n + k + 1)
               for k in range(kernels))]
            for n in range(4)
        ], [flow(1, launch(0, 1, 999), launch(0, 1, 999))], *more)  # fmt: skip

    assert table(loop(), "regime", "confidence") == [("overhead-bound", "high")] * 4
    assert table(loop(kernels=2), "confidence") == [("low",)] * 4, "too little alone"
    second = loop().steps[1]
    assert second.headline == ("Overhead-bound: the CPU cannot launch work fast enough (overhead: 93 % of the step).")
    assert second.confidence == "high"


def marked(index: int, inside: object) -> list[object]:
    """Build a step of 20 ms with the host's and the device's work in it."""
    return [annotation(f"ProfilerStep#{index}", 20_000 * index, 19_900), inside]


def cold_then_warm(first: str = "cold") -> Report:
    """Analyse four steps of six kernels 2 ms apart: in the first each is a kernel's first use, or none is."""
    names = [f"{first} {k}" for k in range(6)]
    return analysed([
        marked(n, [launched(names[k] if n == 0 else "warm", 20_000 * n + 2_000 * (k + 1), 20_000 * n + 2_000 * (k + 1) + 10, 60, 10 * n + k + 1)
                   for k in range(6)])
        for n in range(4)
    ])  # fmt: skip


def test_a_step_is_judged_for_its_own_cold_start() -> None:
    first, second, *_ = cold_then_warm().steps
    assert (first.regime, first.cause) == ("overhead-bound", "cold-start")
    assert "before kernels are first used" in (first.headline or "")
    assert first.cold_start_ns == 5 * 1_940_000, "all gaps of the step"
    # The first kernel of the second step is another one, for the first time.
    assert second.cold_start_ns == 9_940_000
    third = cold_then_warm().steps[2]
    assert (third.cause, third.cold_start_ns) == ("launch", 0)
    assert cold_then_warm().verdict.cause == "launch", "the steady steps are warm"


def frames(count: int, start: float, each: float) -> list[object]:
    return [python(f"train.py({n % 9}): f", start + each * n, each / 2) for n in range(count)]


def recorded(dense: int) -> list[object]:
    """Build four steps of twelve late launches; in step ``dense`` recorded events take most of the time before each."""
    return [
        marked(n, [[frames(400 if n == dense else 20, 20_000 * n + 1_000 * k, 0.5),
                    launched(GEMM, 20_000 * n + 1_000 * k + 210, 20_000 * n + 1_000 * k + 220, 180, 100 * n + k + 1)]
                   for k in range(12)])
        for n in range(4)
    ]  # fmt: skip


def test_a_step_is_judged_for_what_recording_took_of_it() -> None:
    steps = analysed(recorded(2)).steps
    taken = [step.recording_ns for step in steps]
    assert taken[2] == max(ns for ns in taken if ns is not None) >= 11 * 400 * 500
    assert taken[1] == pytest.approx(12 * 20 * 500, rel=0.1)
    assert "Recording is estimated at up to 2.4" in (steps[2].headline or "")
    assert (
        analysed([marked(n, launched(GEMM, 20_000 * n + 100, 20_000 * n + 110, 50, n + 1)) for n in range(3)])
        .steps[0]
        .recording_ns
        is None
    )


def test_a_step_that_only_recording_makes_overhead_bound_says_so() -> None:
    """Kernels of 550 us every 1,000 us: with 440 us of Python that the profiler made, and without."""

    def loop(*, busy: int) -> Report:
        return analysed([
            marked(n, [[frames(880, 20_000 * n + 1_000 * k + 5, 0.5), launched(GEMM, 20_000 * n + 1_000 * k + 446, 20_000 * n + 1_000 * k + 450, busy, 100 * n + k + 1)]
                       for k in range(19)])
            for n in range(4)
        ])  # fmt: skip

    step = loop(busy=550).steps[1]
    assert (step.regime, step.unrecorded_regime) == ("overhead-bound", "compute-bound")
    assert "without that it " in (step.headline or "")
    assert "compute-bound." in (step.headline or "")
    assert step.confidence != "high"


def test_a_measured_step_time_holds_for_each_step() -> None:
    """Check that if a step takes 20 ms recorded and 12 ms without, 8 ms of its idle time are recording."""
    step = analysed(recorded(2), measured_step_ms=12.0).steps[1]
    assert step.recording_ns == pytest.approx(step.duration_ns - 12_000_000, abs=10)
    assert "Recording took " in (step.headline or "")
    first = analysed(recorded(2), measured_step_ms=12.0).steps[0]
    assert (first.state, first.recording_ns) == ("first", None), "it may do something else, which is not recording"


def test_the_steps_of_a_report_are_reported_with_what_limits_them() -> None:
    text = cold_then_warm().to_markdown()
    assert "| ProfilerStep#0 | first | " in text
    assert "Overhead-bound: cold start" in text
    assert "set aside: 1 first (Overhead-bound: cold start)" in " ".join(
        cold_then_warm().summary(200, verbose=True).split()
    )
    one = analysed(marked(0, launched(GEMM, 100, 110, 50, 1)))
    assert "### Steps" not in one.to_markdown()
    many = analysed(
        [marked(n, launched(GEMM, 20_000 * n + 100, 20_000 * n + 110, 50, n + 1)) for n in range(30)]
    ).to_markdown()
    assert many.count("| ProfilerStep#") == 12
    assert "18 more steps" in many


def scoped(*names: str, copies: bool = True) -> list[object]:
    """Build iterations as PyTorch before 1.11 writes them, with scopes among the operators, named ``names`` in turn."""
    return [loop(6, copies=copies), *(op(names[n % len(names)].format(n), 200 * n + 0.5, 190) for n in range(6))]


@pytest.mark.parametrize("name", ["epoch=0/step={}", "train step {}", "step-{}", "## step ##", "trainer.step"])
def test_scopes_among_the_operators_of_old_files_mark_steps(name: str) -> None:
    """Check that a name that no operator has is as unlikely to be a layer's scope in old files as in new ones."""
    report = analysed(scoped(name, copies=False))
    assert len(report.steps) == 6, report.steps_from


@pytest.mark.parametrize("name", ["train_step", "MyFunction", "aten::linear"])
def test_names_that_operators_may_have_mark_no_steps(name: str) -> None:
    assert analysed(scoped(name)).steps_from is None


def test_parts_of_steps_among_the_operators_mark_none() -> None:
    for name in ("TorchDynamo Cache Lookup", "layer {}", "DistributedDataParallel.forward"):
        assert analysed(scoped(name, copies=False)).steps_from is None
    user = annotation("something", 5, 2)
    assert analysed(scoped("train step", copies=False), user).steps_from is None, "a file with user annotations"


def test_of_equal_marks_on_two_threads_those_that_begin_first_are_taken_in_any_order_of_the_file() -> None:
    loads = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    early = [annotation(loads, 1_000 * n, 20, tid=1) for n in range(4)]
    late = [annotation(loads, 1_000 * n + 50, 20, tid=2) for n in range(4)]
    work = [launched(GEMM, 1_000 * n + 100, 1_000 * n + 120, 500, n + 1) for n in range(4)]
    one, other = (
        table(analysed(*events), "host_start_ns", "start_ns") for events in ((early, late, work), (late, early, work))
    )
    assert one == other
    assert one[0][0] == 0
