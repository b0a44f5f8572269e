"""Test steps on a device, the representative ones among them, and the verdict's window."""

import gzip
import itertools
import json
import random
import re
from pathlib import Path

import polars as pl
import pytest
from kineto import A100, analysed, annotation, call, copy, flow, kernel, launch, launched, op, python, rows, trace_bytes

from trace_analyzer import analyze, errors, ingest
from trace_analyzer.options import Options
from trace_analyzer.pipeline import graph_of
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


def others(*numbers: int, count: int) -> list[object]:
    """Build nine steps, of which some launch another number of kernels."""
    return [step(n, 200 * n, count=count if n in numbers else 4, busy=8) for n in range(9)]


@pytest.mark.parametrize(
    ("steps", "states"),
    [
        ([step(n, 200 * n) for n in range(4)], ["first", "ok", "ok", "ok"]),
        ([step(0, 0), step(1, 200), step(2, 400), step(3, 600, count=0)], ["first", "ok", "ok", "empty"]),
        ([*(step(n, 200 * n, count=3, busy=30) for n in range(3)), step(3, 600, count=1)], ["first", "ok", "ok", "cut"]),
        ([*(step(n, 200 * n) for n in range(4)), step(4, 1_600)], ["first", "ok", "ok", "ok", "outlier"]),
        # It did little; over twice the work is something else too.
        ([step(n, 200 * n, count=1 if n == 3 else 4, busy=20) for n in range(6)], ["first", "ok", "ok", "outlier", "ok", "ok"]),
        ([*(step(n, 200 * n) for n in range(4)), step(4, 800, count=5, busy=20)], ["first", "ok", "ok", "ok", "outlier"]),
        # Slow steps after the first warm up.
        ([*(step(n, 1_000 * n, busy=400, length=900) for n in range(2)), *(step(n, 1_600 + 200 * n) for n in range(2, 7))],
         ["first", "warm-up", *["ok"] * 5]),
        # What comes back at equal distances is the program's: an optimizer step for several steps that add up gradients,
        # networks trained in turns. Twice at other distances, next to each other or unlike, it is something else.
        (others(3, 7, count=10), ["first", *["ok"] * 8]),
        (others(2, 4, 6, 8, count=10), ["first", *["ok"] * 8]),
        (others(1, 3, 5, 7, count=10), ["first", *["ok"] * 8]),
        (others(3, 5, 8, count=10), ["first", "ok", "ok", "outlier", "ok", "outlier", "ok", "ok", "outlier"]),
        (others(4, 5, count=10), ["first", "ok", "ok", "ok", "outlier", "outlier", "ok", "ok", "ok"]),
        (others(4, count=10), ["first", "ok", "ok", "ok", "outlier", "ok", "ok", "ok", "ok"]),
        ([*others(3, count=10)[:5], step(5, 1_000), step(6, 1_200, count=12, busy=8), step(7, 1_400)],
         ["first", "ok", "ok", "outlier", "ok", "ok", "outlier", "ok"]),
    ],
)  # fmt: skip
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


def test_of_two_steps_the_shorter_is_the_typical_one() -> None:
    lengths = analysed(step(0, 0), step(1, 200), step(2, 400, busy=160))
    assert table(lengths, "state") == [("first",), ("ok",), ("outlier",)]


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
        _ = analysed(events, step=9).verdict


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
    loads, rows, at = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", [], 0
    for n in range(count):
        wait = stalls.get(n, 0)
        rows.append([*step(n, at + wait), annotation(f"ProfilerStep#{n}", at, wait + 100)][1:])
        rows += [annotation(loads, at + 1, wait - 2)] if wait else []
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


def loop(count: int) -> list[object]:
    """Build ``count`` iterations that copy their input, launch three layers of two kernels, and an epilogue."""
    events: list[object] = []
    for n in range(count):
        t, first = 200 * n, 100 * n
        names = [*("gemm", "relu") * 3, "argmax"]
        events += [call("cudaMemcpyAsync", t, 4, correlation=first + 90), copy("HtoD (Pinned -> Device)", t + 6, 8, correlation=first + 90, bytes=1 << 18)]  # fmt: skip
        events += [launched(name, t + 10 + 15 * k, t + 20 + 15 * k, 12, first + k + 1) for k, name in enumerate(names)]
    return events


def marks(name: str, first: float = 3, length: float = 180) -> list[object]:
    """Build an annotation in each iteration of `loop`."""
    return [annotation(name.format(n, n // 3, n % 3), 200 * n + first, length) for n in range(9)]


FETCHES = marks("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", -5, 4)
ENDS, PARTS, EPOCHS = (
    marks("Optimizer.step#SGD.step", 120, 20),
    marks("part {}"),
    [annotation(f"epoch {n}", 600 * n, 590) for n in range(3)],
)
WHOLE, MODULE = annotation("ProfilerStep#0", 0, 1_900), "nn.Module: Net_0"
SOURCES: dict[str, tuple[list[object], str | None]] = {
    "nothing": ([], None),
    "data loader": ([FETCHES], "data loader"),
    "optimizer before data loader": ([FETCHES, ENDS], "optimizer"),
    "of labels that count loops the innermost": ([EPOCHS, marks("epoch {1} batch {2}", 0, 190)], "epoch # batch #"),
    "a part has a name, no number": ([EPOCHS, marks("epoch {1} forward", 0, 190)], "epoch #"),
    "one profiler step gives way to marks that recur": ([WHOLE, ENDS], "optimizer"),
    "one profiler step alone": ([WHOLE], "ProfilerStep"),
    "frames of a framework": (
        [[python("vllm/v1/worker/gpu_worker.py(540): execute_model", 200 * n, 190),
          python("vllm/v1/worker/gpu_model_runner.py(3200): execute_model", 200 * n + 2, 180)] for n in range(9)], "vLLM",
    ),
    "compiled regions": ([marks("Torch-Compiled Region: 0/0", 8, 120)], None),
    "parts": ([PARTS], "part #"),
    # Annotations within one module call or operator are parts of a pass; autograd's thread works within the call of another.
    "within an operator": ([PARTS, op("x::forward", 0, 2_000)], None),
    "within a module": ([PARTS, python(MODULE, 0, 2_000)], None),
    "within a module of another thread": ([PARTS, python(MODULE, 0, 2_000, tid=7)], None),
    "an epoch has steps": ([PARTS, annotation("epoch", 0, 2_000)], "part #"),
    "a pass has parts": ([PARTS, annotation("forward", 0, 2_000)], None),
    **{f"layers: {name}": ([marks(name)], None)
       for name in ("layer {}", "block_{}", "encoder.layers.{}.mlp", "Attention", "TransformerBlock_{}")},
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(("around", "source"), SOURCES.values(), ids=SOURCES)
def test_what_marks_steps(around: list[object], source: str | None) -> None:
    report = analysed(loop(9), around)
    count = {None: 0, "epoch #": 3, "ProfilerStep": 1}.get(source, 9)
    assert (report.steps_from, len(report.steps)) == (source, count)


def test_time_of_a_step_starts_with_the_fetch() -> None:
    report = analysed(loop(9), FETCHES, ENDS)
    assert table(report, "host_start_ns", "host_end_ns")[1] == (145, 345), "5 us earlier"


def test_frameworks_announce_steps_also_once() -> None:
    once = analysed(loop(1), annotation("execute_context_2(512)_generation_30(30)", 0, 190))
    assert (once.steps_from, table(once, "index", "state")) == ("serving framework", [(0, "ok")])


def layers(
    count: int, passes: int, name: str = "enc.{}", *, parent: str = "", fetch: bool = True, each: str = ""
) -> list[object]:
    """Build passes of ``count`` numbered marks around three kernels each, with or without ``parent`` marks around a pass.

    A pass copies its input first and waits for its result (``fetch``); ``each`` mark does one of these, or trains.
    """
    events: list[object] = []
    for turn in range(passes):
        begin = t = turn * (count * 100 + 100)
        number = 10 * count * turn
        if fetch:
            events += [*fetched(t, number + 1), call("cudaStreamSynchronize", t + count * 100 + 60, 20)]
        for layer in range(count):
            t, number = begin + 50 + layer * 100, number + 5
            extra = {
                "": [], "copy": fetched(t + 2, number + 4), "wait": [call("cudaDeviceSynchronize", t + 85, 4)],
                "train": [annotation("Optimizer.step#SGD.step", t + 80, 5)], "backward": [op("autograd::engine::evaluate_function: MmBackward0", t + 80, 5)],
                "load": [annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", t - 4, 3)],
            }[each]  # fmt: skip
            kernels = ("gemm", "relu", "gemm")
            work = [launched(k, t + 10 + 20 * n, t + 20 + 20 * n, 15, number + n) for n, k in enumerate(kernels)]
            events += [annotation(name.format(layer), t, 95), *work, *extra]
        events += [annotation(parent.format(turn), begin + 49, count * 100)] if parent else []
    return events


def fetched(at: float, number: int) -> list[object]:
    """Build a copy of 256 KiB to the device."""
    called = call("cudaMemcpyAsync", at, 2, correlation=number)
    return [called, copy("HtoD (Pinned -> Device)", at + 3, 2, correlation=number, bytes=1 << 18)]


def marks(*events: object) -> list[str]:
    """Return the names of the marks of steps."""
    graph = graph_of(ingest.load(trace_bytes(events)), Options(), kept=["host_steps"])
    return [*graph.take("host_steps").marks.get_column("name")]


NAMES = ("enc.{}", "stage{}", "h[{}]", "down({})", "net.{}.body", "decoder {} of 6")


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("name", "parent", "passes"),
    random.Random(0).sample([*itertools.product(NAMES, ("", "net", "net {}"), (1, 2, 3, 5))], 72),
)
def test_numbered_layers_are_no_steps_and_their_passes_are(name: str, parent: str, passes: int) -> None:
    """A pass that is made once or twice shows no period."""
    for fetch in (True, False):
        found = marks(layers(6, passes, name, parent=parent, fetch=fetch))
        assert len(found) == (passes if passes >= 3 else 0)
    assert found[:1] in ([], [parent], [f"{name.format(0)} to {name.format(5)}"])


def test_passes_of_layers_are_steady_steps() -> None:
    steps = analysed(layers(6, 5)).tables["steps"]
    assert rows(steps, "name", "activity_count", "steady") == [("enc.0 to enc.5", 18, n > 0) for n in range(5)]


def test_layers_within_layers_and_layers_that_are_computed_again_are_no_steps() -> None:
    inner = [annotation(f"enc.{n}.part.{k}", 51 + 100 * n + 45 * k, 44) for n in range(6) for k in range(2)]
    assert marks(layers(6, 1), inner) == []
    again = [
        [annotation(f"enc.{n if turn % 2 else 5 - n}", at, 95), launched(GEMM, at + 5, at + 20, 60, 10 * turn + n + 1)]
        for turn in range(6)
        for n in range(6)
        for at in [1_000 * turn + 100 * n]
    ]
    assert marks(again) == [], "backwards every second time"


@pytest.mark.parametrize("each", ["copy", "wait", "train", "backward", "load"])
def test_numbered_marks_of_any_name_are_steps_where_each_does_what_a_pass_does_once(each: str) -> None:
    assert marks(layers(6, 1, "thing {}", fetch=False, each=each)) == [f"thing {n}" for n in range(6)]
    assert marks(layers(6, 1, "thing", fetch=False)) == ["thing"] * 6, "marks of one name are not numbered"


@pytest.mark.parametrize("name", ["iter {}", "train_step_{}", "epoch 1 batch {}", "generate_masks 0 {} 0", "frame#{}"])
def test_numbered_marks_whose_name_says_so_are_steps(name: str) -> None:
    assert marks(layers(6, 1, name, fetch=False)) == [name.format(n) for n in range(6)]


def test_marks_of_requests_that_are_served_at_once_are_no_steps() -> None:
    """Most of the work is launched within the first thread's marks, but not by it."""

    def served(later: int) -> list[object]:
        return [
            [annotation(f"request {n}", 400 * n + begin, 390, tid=tid), launch(400 * n + begin + 5, 5, 10 * n + tid, tid=tid), kernel(GEMM, 400 * n + begin + 20, 60, correlation=10 * n + tid)]
            for n in range(5) for tid, begin in ((1, 0), (2, later))
        ]  # fmt: skip

    assert marks(served(110)) == []
    assert marks(served(2_000)) == [], "neither thread's marks enclose most of the work"
    alone = [event for event in served(110) if event[0]["tid"] == 1]  # type: ignore[index]
    assert marks(alone) == [f"request {n}" for n in range(5)]


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


def test_a_step_has_cause_and_runner_up() -> None:
    events = [[annotation(f"ProfilerStep#{n}", 1_000 * n, 900), op("aten::mm", 1_000 * n, 500), launched(GEMM, 1_000 * n + 505, 1_000 * n + 515, 450, n + 1)] for n in range(3)]  # fmt: skip
    assert table(analysed(events), "regime", "cause", "runner_up")[2] == ("overhead-bound", "launch", "compute-bound")


def test_a_step_has_a_sentence_and_its_confidence() -> None:

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
    assert second.headline == (
        "Overhead-bound: the CPU cannot launch work fast enough (overhead: 93 % of the step)."
        " Recording is estimated at up to 126 us (1.3 %) of it."
    ), "14 launches of 5 us, each at up to 1.8 times that"
    assert second.confidence == "high"


def marked(index: int, inside: object) -> list[object]:
    """Build a step of 20 ms with the host's and the device's work in it."""
    return [annotation(f"ProfilerStep#{index}", 20_000 * index, 19_900), inside]


def one_kernel_each(count: int) -> list[object]:
    return [marked(n, launched(GEMM, 20_000 * n + 100, 20_000 * n + 110, 50, n + 1)) for n in range(count)]


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
    assert (third.cause, third.cold_start_ns) == ("host-unknown", 0)
    assert cold_then_warm().verdict.cause == "host-unknown", "the steady steps are warm"


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
    assert taken[1] == pytest.approx(12 * (20 * 500 + 9_000), rel=0.1), "operators, and a launch of 5 us at up to 9"
    assert "Recording is estimated at up to 2.51 ms" in (steps[2].headline or "")
    assert analysed(one_kernel_each(3)).steps[0].recording_ns is None


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
    assert "### Steps" not in analysed(one_kernel_each(1)).to_markdown()
    many = analysed(one_kernel_each(30)).to_markdown()
    assert many.count("| ProfilerStep#") == 12
    assert "18 more steps" in many


def scoped(name: str) -> list[object]:
    """Build iterations as PyTorch before 1.11 writes them, with scopes of this name among the operators."""
    return [loop(6), *(op(name.format(n), 200 * n + 0.5, 190) for n in range(6))]


@pytest.mark.parametrize(
    ("name", "count"),
    [
        # A name that no operator has is as unlikely to be a layer's scope in old files as in new ones.
        ("epoch=0/step={}", 6), ("train step {}", 6), ("step-{}", 6), ("## step ##", 6), ("trainer.step", 6),
        # Operators and parts of steps.
        ("train_step", 0), ("MyFunction", 0), ("aten::linear", 0),
        ("TorchDynamo Cache Lookup", 0), ("layer {}", 0), ("DistributedDataParallel.forward", 0),
    ],
)  # fmt: skip
def test_scopes_among_the_operators_of_old_files_mark_steps(name: str, count: int) -> None:
    assert len(marks(scoped(name))) == count
    assert not marks(scoped(name), annotation("something", 5, 2)), "a file with user annotations"


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
