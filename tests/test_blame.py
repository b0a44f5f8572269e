"""Attribution of idle time to code: operator, module, function, phase and step, worked out by hand (microseconds)."""

from typing import Any

import polars as pl
import pytest
from generator import UNHURRIED, RandomTrace, random_traces
from hypothesis import given, settings
from kineto import Event, analysed, annotation, call, flow, kernel, launch, launched, op, python, rows
from lazy_report import report_on
from tiers import examples

from trace_analyzer import analysis, checks
from trace_analyzer.analyses.blame import DIMENSIONS
from trace_analyzer.analyses.host_costs import COSTS
from trace_analyzer.frames.intervals import LENGTH_NS
from trace_analyzer.report import Report

pytestmark = pytest.mark.slow

# Kernel a runs in [10, 20), kernel b from 90 on; [20, 80) is host time, [80, 85) the launch call, then its latency.
A, B = launched("a", 0, 10, 10, 1), launched("b", 80, 90, 10, 2)


def blamed(report: Report, *columns: str) -> list[tuple[Any, ...]]:
    return rows(report.tables["blame"].sort("start_ns"), "start_ns", "end_ns", *columns)


def test_each_stretch_names_its_operator_function_and_module() -> None:
    report = analysed(
        A, B, python("train.py(3): main", 0, 200), python("nn.Module: Net_0", 22, 50), python("nn.Module: Linear_1", 25, 40),
        python("torch/nn/modules/linear.py(120): forward", 26, 38), op("aten::linear", 30, 30), op("aten::addmm", 35, 20),
    )  # fmt: skip
    assert blamed(report, "operator", "module", "python_function") == [
        (20, 22, None, None, "train.py(3): main"),
        (22, 25, None, "Net_0", "train.py(3): main"),
        (25, 26, None, "Net_0/Linear_1", "train.py(3): main"),
        (26, 30, None, "Net_0/Linear_1", "train.py(3): main"),
        (30, 35, "aten::linear", "Net_0/Linear_1", "train.py(3): main"),
        (35, 55, "aten::addmm", "Net_0/Linear_1", "train.py(3): main"),
        (55, 60, "aten::linear", "Net_0/Linear_1", "train.py(3): main"),
        (60, 64, None, "Net_0/Linear_1", "train.py(3): main"),
        (64, 65, None, "Net_0/Linear_1", "train.py(3): main"),
        (65, 72, None, "Net_0", "train.py(3): main"),
        (72, 80, None, None, "train.py(3): main"),
        (80, 85, None, None, "train.py(3): main"),
        (85, 90, None, None, "train.py(3): main"),
    ]


LIBRARY = "torch/nn/functional.py(20): linear"
INNER = "aten::_local_scalar_dense"
MM = op("aten::mm", 30, 20)
STACK = (
    "/opt/lib/python3.7/site-packages/torch/nn/functional.py(1847): linear;"
    "/opt/lib/python3.7/site-packages/timm/mlp.py(20): forward;train.py(46): <module>"
)


@pytest.mark.parametrize(
    ("events", "columns", "expected"),
    [
        # A library is named where the program has no frame.
        ([python(LIBRARY, 0, 200), python("<built-in function linear>", 30, 20)], "python_function", (30, 50, LIBRARY)),
        # The drain of a blocking call belongs to its operator, silence to the open annotation.
        ([op("aten::item", 5, 20), op(INNER, 6, 18), call("cudaStreamSynchronize", 8, 15)], "cause operator", (20, 30, "synchronization", INNER)),
        ([annotation("ProfilerStep#4", 0, 200), annotation("## forward ##", 5, 60)], "cause annotation phase", (20, 80, "host-unknown", "## forward ##", "forward")),
        # Phases; the optimizer outranks modules that it calls.
        ([annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, 99), MM], "phase", (30, 50, "data-loading")),
        ([annotation("Optimizer.step#SGD.step", 0, 99), MM], "phase", (30, 50, "optimizer")),
        ([op("Optimizer.step#SGD.step", 0, 99), MM], "phase", (30, 50, "optimizer")),
        ([annotation("## backward ##", 0, 99), MM], "phase", (30, 50, "backward")),
        ([python("nn.Module: Net_0", 0, 99), MM], "phase", (30, 50, "forward")),
        ([python("main.py(3): main", 0, 99), MM], "operator phase", (30, 50, "aten::mm", None)),
        ([python("nn.Module: Net_0", 25, 40), annotation("Optimizer.step#LBFGS.step", 21, 50), MM], "phase", (30, 50, "optimizer")),
        # In files of PyTorch before 1.13, call stacks are texts that name the program's innermost line.
        ([op("aten::linear", 30, 40, **{"Call stack": STACK, "Module Hierarchy": "Net.fc1"}), op("aten::addmm", 40, 20)],
         "operator module python_function", (40, 60, "aten::addmm", "Net.fc1", "timm/mlp.py(20): forward")),
    ],
)  # fmt: skip
def test_idle_time_before_kernel_b_belongs_to(events: list[Event], columns: str, expected: tuple[Any, ...]) -> None:
    assert expected in blamed(analysed(A, B, *events), *columns.split())


def test_call_and_latency_belong_to_the_late_launch_and_device_time_to_nobody() -> None:
    late = [op("aten::mm", 78, 20), launch(80, 5, 2), kernel("b", 300, 10, correlation=2)]
    assert blamed(analysed(A, late), "cause", "operator") == [
        (20, 78, "host-unknown", None), (78, 80, "dispatch", "aten::mm"), (80, 85, "launch-latency", "aten::mm"),
        (85, 185, "launch-latency", "aten::mm"), (185, 300, "unexplained", None),
    ]  # fmt: skip


def test_an_annotation_that_marks_a_step_names_no_code() -> None:
    """Check marks that nobody knows by name: the steps' code is that of all of them."""
    report = analysed([
        [annotation(f"train_iter {i}", 200 * i, 190), op("aten::mm", 200 * i + 50, 60), launched(f"k{i}", 200 * i + 100, 200 * i + 110, 20, i)]
        for i in range(1, 5)
    ])  # fmt: skip
    assert report.steps_from == "train_iter #"
    assert report.tables["blame"].get_column("annotation").null_count() == report.tables["blame"].height


# The backward pass


def backward_trace(*more: Any, numbered: bool) -> list[Any]:
    """Build a forward operator in a module, and its backward operator on autograd's thread, late for kernel b."""
    numbers = ({"Sequence number": 3, "Fwd thread id": n} if numbered else {} for n in (0, 1))
    forward = op("aten::addmm", 3, 5, **next(numbers))
    node = op("AddmmBackward0", 42, 46, tid=7, **next(numbers))
    return [
        A, python("net.py(8): forward", 1, 8), python("nn.Module: Net_0", 2, 7), python("nn.Module: Linear_0", 2.5, 6), forward,
        python("train.py(9): main", 0, 200), op("autograd::engine::evaluate_function: AddmmBackward0", 40, 50, tid=7), node,
        launch(80, 5, 2, tid=7), kernel("b", 90, 10, correlation=2),
        [] if numbered else flow(1, forward, node, category="fwdbwd"), *more,
    ]  # fmt: skip


@pytest.mark.parametrize("numbered", [True, False], ids=["by number", "by arrow"])
def test_backward_work_is_traced_to_its_forward_module(numbered: bool) -> None:
    report = analysed(backward_trace(numbered=numbered))
    assert blamed(report, "operator", "module", "python_function", "phase") == [
        (20, 40, None, None, "train.py(9): main", None),
        (40, 42, "autograd::engine::evaluate_function: AddmmBackward0", None, None, "backward"),
        *((*span, "AddmmBackward0", "Net_0/Linear_0", "net.py(8): forward", "backward") for span in ((42, 80), (80, 85), (85, 90))),
    ]  # fmt: skip


def test_functions_within_the_backward_pass_are_their_own() -> None:
    own = python("ops.py(30): backward", 50, 20, tid=7)
    actual = blamed(analysed(backward_trace(own, numbered=True)), "python_function", "phase")
    assert (50, 70, "ops.py(30): backward", "backward") in actual


def test_a_thread_of_autograd_alone_is_in_the_backward_pass_between_operators_too() -> None:
    actual = [
        A, op("autograd::engine::evaluate_function: MulBackward0", 1, 10, tid=7), python("train.py(9): main", 0, 200),
        op("autograd::engine::evaluate_function: AddBackward0", 30, 70, tid=7), launch(80, 5, 2, tid=7),
        kernel("b", 90, 10, correlation=2),
    ]  # fmt: skip
    assert {row[2] for row in blamed(analysed(*actual), "phase")[1:]} == {"backward"}


# Traces of PyTorch before 1.13


@pytest.mark.parametrize("name", ["ProfilerStep#3", "train_iter 3", "model.forward"])
def test_annotations_that_are_written_as_operators_tell_nothing(name: str) -> None:
    actual = blamed(analysed(A, B, op(name, 0, 200), op("aten::mm", 30, 20)), "operator")
    assert actual[:3] == [(20, 30, None), (30, 50, "aten::mm"), (50, 80, None)]


# Sums


def test_idle_time_by_operator_counts_all_of_it() -> None:
    table = analysed(A, B, op("aten::mm", 30, 20), op("aten::add", 60, 10)).tables["idle_by"]
    assert rows(table.filter(pl.col("by") == "operator"), "key", "cause", "idle_ns", "longest_start_ns", "longest_end_ns") == [
        (None, "host-unknown", 30, 20, 30), ("aten::mm", "dispatch", 20, 30, 50), ("aten::add", "dispatch", 10, 60, 70),
        (None, "launch-latency", 10, 80, 85),
    ]  # fmt: skip


def test_idle_time_by_step() -> None:
    steps = [annotation(f"ProfilerStep#{i}", 100 * i, 100) for i in range(3)]
    work = [launched(f"k{i}", 100 * i + 50, 100 * i + 60, 10, i + 1) for i in range(3)]
    table = analysed(*steps, *work).tables["idle_by"].filter(pl.col("by") == "step")
    assert dict(rows(table.group_by("key").agg(pl.col("idle_ns").sum()), "key", "idle_ns")) == {"1": 90, "2": 90}


def test_a_stack_a_thousand_deep_is_no_trouble() -> None:
    deep = [python(f"f.py({i}): f", 20 + i * 0.01, 50 - i * 0.02) for i in range(1_000)]
    modules = [python(f"nn.Module: M_{i}", 20 + i * 0.01 + 0.005, 50 - i * 0.02 - 0.01) for i in range(1_000)]
    actual = analysed(A, B, deep, modules).tables["blame"]
    inner = actual.filter(pl.col("start_ns") <= 40_000, pl.col("end_ns") > 40_000).row(0, named=True)
    assert inner["python_function"] == "f.py(999): f"
    assert inner["module"] == "/".join(f"M_{i}" for i in range(988, 1_000))


def test_the_report_names_the_code_of_the_verdict_s_window() -> None:
    """Of three steps the last two are steady: from 370 to 770, of which the device works 120 us."""
    steps = [annotation(f"ProfilerStep#{i}", 200 * i, 200) for i in range(1, 4)]
    work = [launched(f"k{i}", 200 * i + 100, 200 * i + 110, 60, i) for i in range(1, 4)]
    main = "train.py(3): main"
    report = analysed(
        steps, work, python(main, 0, 900), op("aten::mm", 460, 30), op("aten::add", 690, 2), step="steady"
    )
    window = [item for item in report.blame if item.cause in ("python", "dispatch")]
    assert [(b.cause, b.operator, b.python_function, b.idle_ns) for b in window] == [
        ("python", None, main, 228_000), ("dispatch", "aten::mm", main, 30_000), ("dispatch", "aten::add", main, 2_000),
    ]  # fmt: skip
    assert sum(item.idle_ns for item in report.blame) == 280_000


def idle_time_is_blamed_once(report: Report) -> None:
    """Check that blame cuts idle time as causes do and sums to it in every way, and named work to its causes."""
    idle, blame = report.tables["idle"], report.tables["blame"]
    assert blame.select("gap_id", "device", "start_ns", "end_ns", "cause").equals(idle.drop("event_id", "host_event"))
    by_cause = dict(idle.group_by("cause").agg(LENGTH_NS.sum()).iter_rows())
    for by in DIMENSIONS:
        sums = report.tables["idle_by"].filter(pl.col("by") == by).group_by("cause").agg(pl.col("idle_ns").sum())
        assert dict(sums.iter_rows()) == by_cause
    costs = dict(report.tables["host_costs"].group_by("kind").agg(pl.col("idle_ns").sum()).iter_rows())
    if checks.suppressed(report.trust, report.tables["devices"])[analysis.CAUSES_OF_IDLE]:
        assert (
            report.tables["host_costs"].select("idle_ns", "hidden_ns").null_count().row(0)
            == (report.tables["host_costs"].height,) * 2
        )
    else:
        assert {kind: costs.get(kind, 0) for kind in COSTS} == {kind: by_cause.get(kind, 0) for kind in COSTS}
    codes = dict(report.tables["devices"].select("label", "device").iter_rows())
    for step in report.steps:
        blamed = blame.filter(pl.col("step") == step.index, pl.col("device") == codes[str(step.device)])
        assert blamed.select(LENGTH_NS.sum()).item() == step.idle_ns
    window = report.verdict.parts_ns
    if window and 0 < len(report.blame) < 20:
        assert sum(item.idle_ns for item in report.blame) == sum(window[cause] for cause in by_cause)


def operators_spend_what_they_last(report: Report) -> None:
    """Check that the self time of operators is at most the duration of their outermost operator."""
    operators = report.tables["operators"]
    own = operators.select(pl.sum_horizontal("dispatch_ns", "runtime_ns", "blocked_ns").sum()).item()
    assert own <= operators.get_column("host_self_ns").sum() <= operators.get_column("host_ns").sum()
    assert operators.filter(pl.col("short_launch_count") > pl.col("launch_count")).is_empty()


def drains_hold_idle_time_once(report: Report) -> None:
    drains, idle = report.tables["drains"], report.tables["idle"]
    assert drains.filter((pl.col("idle_ns") <= 0) | (pl.col("idle_ns") > LENGTH_NS)).is_empty()
    in_drains = dict(drains.group_by("device").agg(pl.col("idle_ns").sum()).iter_rows())
    for device, idle_ns in idle.group_by("device").agg(LENGTH_NS.sum()).iter_rows():
        assert in_drains.get(device, 0) <= idle_ns


@given(random_traces())
@settings(max_examples=examples(4), suppress_health_check=UNHURRIED)
def test_on_random_traces(trace: RandomTrace) -> None:
    report = report_on(trace.content)
    idle_time_is_blamed_once(report)
    operators_spend_what_they_last(report)
    drains_hold_idle_time_once(report)
