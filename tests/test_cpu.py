"""Test the answer to a run on the CPU: where its main thread spends time, and what to change."""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from kineto import A100, analysed, annotation, call, launched, op, python, rows, trace_bytes
from test_advice import advised, check_snapshot

from trace_analyzer import pipeline
from trace_analyzer.catalog.fixes import fixes, pages
from trace_analyzer.report import Advice, Report

pytestmark = pytest.mark.slow

DOUBLE = {"Input Dims": [[4, 4], [4, 4]], "Input type": ["double", "double"]}
NUMBER = {"Input Dims": [[], [4, 4]], "Input type": ["double", "float"]}
TYPED = {"Input Dims": [[1024, 1024], [1024, 1024]], "Input type": ["float", "float"]}
SMALL = TYPED | {"Input Dims": [[1, 256], [256, 256]]}


def step(n: int, **of_mul: object) -> list[object]:
    """Build a step of 1 ms: 300 us of loading, a matmul of 180 us within a linear layer, pointwise work, an optimizer."""
    t = 1_000 * n
    return [
        annotation(f"ProfilerStep#{n}", t, 1_000),
        annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", t, 300),
        op("aten::stack", t + 10, 200),
        op("aten::linear", t + 300, 200), op("aten::addmm", t + 310, 180),
        op("aten::relu", t + 520, 5),
        op("aten::mul", t + 600, 100, **of_mul),
        annotation("Optimizer.step#SGD.step", t + 700, 200), op("aten::add_", t + 710, 180),
    ]  # fmt: skip


def run(*more: object, **of_mul: object) -> Report:
    return analysed([step(n, **of_mul) for n in range(4)], *more, devices=[])


def cpu_time(*events: object, devices: Sequence[object] = ()) -> dict[str, float]:
    """Return the time of each part of the main thread, us."""
    return dict(rows(analysed(*events, devices=list(devices)).tables["cpu_time"], "part", "time_ns"))


def test_each_instant_of_the_steady_steps_has_one_part() -> None:
    report = run()
    assert rows(report.tables["cpu_time"], "part", "time_ns", "optimizer_ns", "operator") == [
        ("data-loading", 900, 0, "aten::stack"), ("pointwise", 840, 540, "aten::add_"), ("host-unknown", 645, 60, None),
        ("matmul", 540, 0, "aten::addmm"), ("dispatch", 60, 0, "aten::linear"), ("tiny-operators", 15, 0, "aten::relu"),
    ]  # fmt: skip
    assert report.tables["cpu_time"].get_column("time_ns").sum() == 3 * 1_000_000, "parts add up to three steps"


def test_parts_of_under_a_twentieth_are_not_in_the_headline() -> None:
    short, long = (
        analysed(
            op("aten::mm", 0, 10_000 - us, **TYPED), op("aten::relu", 10_000 - us, us), devices=[]
        ).verdict.headline
        for us in (450, 550)
    )
    assert short.endswith("96 % is matmul, conv, attention (led by aten::mm).")
    assert long.endswith("; 5.5 % pointwise.")


def test_a_silent_thread_waits_for_collectives_that_other_threads_carry_out() -> None:
    """Of 500 us between two matmuls 300 are silent while gloo sends, of which 100 lie in an annotation, 30 in an operator."""
    sending = annotation("gloo:all_reduce", 300, 300, tid=9)
    matmuls = [op("aten::mm", 100, 100, **TYPED), op("aten::mm", 700, 100, **TYPED)]
    silent = cpu_time(
        *matmuls, annotation("DistributedDataParallel.forward", 250, 150), op("aten::copy_", 500, 30), sending
    )
    assert silent == {"matmul": 200, "communication": 270, "host-unknown": 200, "pointwise": 30}
    assert cpu_time(*matmuls, sending) == {"matmul": 200, "communication": 300, "host-unknown": 200}
    busy = cpu_time(op("aten::mm", 100, 700, **TYPED), op("aten::mm", 900, 100, **TYPED), sending)
    assert busy == {"matmul": 800, "host-unknown": 100}, "what is hidden costs nothing"


def test_the_verdict_says_where_the_time_goes_and_what_to_change() -> None:
    report = run()
    assert (report.verdict.status, report.verdict.regime) == ("cpu-run", None)
    headline = "Of the 3 steady steps of the main thread (1 ms each), 30 % is data loading"
    assert report.verdict.headline.startswith(headline)
    facts = {fact.metric: fact.value for fact in report.verdict.evidence}
    assert (facts["steps"], facts["step_ns"], facts["optimizer_ratio"]) == (3, 1_000_000, pytest.approx(0.2))
    assert [item.id for item in report.advice] == ["cpu-data-loading"]
    assert report.advice[0].saves_ns_at_most == 900_000
    silent = analysed(op("aten::mm", 0, 100), op("aten::mm", 900, 100), devices=[])
    assert "advice:cpu-unrecorded  Find out what runs between operators: record Python too\n" in silent.to_agent_text()
    for text in (report.summary(), report.to_markdown(), report.to_agent_text()):
        assert "Run on the CPU" in text
        assert "num_workers" in text
    assert "Record with activities" not in report.summary(), "nothing is missing"


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("events", "has", "lacks"),
    [
        ([], ("torch.compile(", "inference_mode"), ("TORCH_LOGS",)),
        ([annotation("Optimizer.step#SGD.step", 950, 5)], ("torch.compile(", "2 * batch_size"), ("inference_mode",)),
        ([op("autograd::engine::evaluate_function: MulBackward0", 950, 5)], ("torch.compile(",), ("inference_mode",)),
        ([annotation("Torch-Compiled Region: 0/0", 0, 900)], ("TORCH_LOGS",), ("torch.compile(",)),
        ([python("nn.Module: OptimizedModule_0", 0, 900)], ("TORCH_LOGS",), ("torch.compile(",)),
        ([[op("aten::_local_scalar_dense", 901 + 2 * n, 1) for n in range(2)]], ("x.tolist()",), ("torch.compile(",)),
        ([op("aten::_local_scalar_dense", 901, 1)], ("torch.compile(",), ("x.tolist()",)),  # a loss that is logged
        ([python("torch/jit/_script.py(9): __call__", 0, 900)], ("instead of torch.jit.script",), ("TORCH_LOGS",)),
    ],
)
def test_code_fits_the_program(events: list[object], has: tuple[str, ...], lacks: tuple[str, ...]) -> None:
    code = advised("cpu-compile", [op("aten::add", 10 * n, 8) for n in range(90)], events, devices=[]).code
    assert [words in code for words in (*has, *lacks)] == [True] * len(has) + [False] * len(lacks)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("inputs", "fix", "asked"),
    [
        (NUMBER, "cpu-double", False),  # the precision is that of the first tensor
        (DOUBLE, "cpu-double", True),
        ({}, "cpu-double", False),
        (TYPED, "cpu-bfloat16", True),
        ({"Input Dims": [[4, 4], [4, 4]]}, "cpu-bfloat16", False),  # only what is known to have 32 bits
        *((TYPED | {"Input type": [name] * 2}, "cpu-bfloat16", False) for name in ("c10::BFloat16", "c10::Half", "long int")),
    ],
)  # fmt: skip
def test_advice_on_precision_is_for_the_types_of_tensors(inputs: dict[str, object], fix: str, asked: bool) -> None:
    report = analysed([op("aten::mm", 100 * n, 90, **inputs) for n in range(9)], devices=[])
    assert (fix in [item.id for item in report.advice]) == asked


def test_what_runs_within_generated_code_and_the_engine_of_autograd_is_no_gap_and_no_python() -> None:
    engine = python("<built-in method run_backward of torch._C._EngineBase object at 0x7f>", 500, 300)
    generated = [annotation("## Call CompiledFxGraph f1 ##", 0, 400), op("aten::mm", 100, 250)]
    assert cpu_time(generated, op("aten::add_", 550, 100), engine) == {
        "matmul": 250, "other-operators": 150, "pointwise": 100, "dispatch": 50, "host-unknown": 100,
    }  # fmt: skip


def test_graphs_of_compiled_code_lead_a_part_together_and_not_by_their_hashes() -> None:
    graphs = [annotation(f"## Call CompiledFxGraph f{n} ##", 200 * n, 200) for n in range(2)]
    report = analysed(graphs, op("aten::sort", 400, 300), devices=[])
    (row,) = report.tables["cpu_time"].filter(part="other-operators").rows(named=True)
    assert (row["operator"], row["time_ns"]) == ("compiled code", 700_000)
    assert "led by compiled code" in report.verdict.headline


def test_a_compiler_s_python_and_operators_are_compilation_which_the_window_leaves_out() -> None:
    first = [
        annotation("ProfilerStep#0", 0, 9_000), op("aten::mm", 10, 90), op("aten::mm", 300, 200),
        python("torch/_dynamo/convert_frame.py(1): _compile", 100, 8_000), python("torch/fx/proxy.py(2): f", 200, 7_000),
    ]  # fmt: skip
    steps = [
        [annotation(f"ProfilerStep#{n}", 9_000 + 100 * n, 100), op("aten::mm", 9_010 + 100 * n, 80)] for n in (1, 2, 3)
    ]
    assert cpu_time(first) == {"compilation": 400, "matmul": 90}
    whole, steady = (analysed(first, more, devices=[]).verdict.headline for more in ([], steps))
    assert "leaves out" not in whole
    assert "The window leaves out 97 % of the thread's time: 9.09 ms of 9.39 ms (compilation)." in steady


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("events", "fix", "has"),
    [
        ([op("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 40, 2_000)], "cpu-data-loading", "2 * num_workers"),
        ([op("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 40, 2_000)], "cpu-data-loading", "num_workers=16"),
        ([python("datasets/arrow_dataset.py(3): __getitem__", 40, 2_000)], "cpu-data-loading", "pool.submit(next, batches)"),
        ([python("<built-in method tensor of type object at 0x7f>", 40, 2_000)], "cpu-python", "each number of a list"),
        ([op("aten::bmm", 40, 500), op("aten::_softmax", 540, 1_000), op("aten::bmm", 1_540, 500)], "cpu-fusion", "scaled_dot"),
        ([op("aten::lstm_cell", 40 + 10 * n, 8) for n in range(200)], "cpu-compile", "torch.nn.LSTM(size, size)(sequence)"),
        ([op("aten::gru", 40, 2_000), [op("aten::mul", 40 + 10 * n, 8) for n in range(200)]], "cpu-compile", "batch_size = 2 * batch_size"),
        ([op("aten::nonzero", 40, 900), op("aten::index", 940, 1_000)], "cpu-indexing", "torch.where(condition"),
        ([op("aten::index", 40, 2_000)], "cpu-indexing", "x.index_select(0, index)"),
        ([op("aten::_softmax", 40, 1_000), op("aten::mul", 1_040, 1_000)], "cpu-fusion", "one pass over memory"),
        ([annotation("Optimizer.step#SparseAdam.step", 40, 2_000)], "cpu-optimizer", "no fused or foreach form of SparseAdam"),
        ([annotation("Optimizer.step#RMSprop.step", 40, 2_000)], "cpu-optimizer", "foreach=True"),
        ([python("train.py(3): count", 40, 2_000)], "cpu-python", "values * values"),
        ([python("<built-in function sleep>", 40, 2_000)], "cpu-host-wait", "time.sleep()"),
        ([op("c10d::allreduce_", 40, 2_000)], "cpu-communication", "analyze ranks FOLDER"),
    ],
)  # fmt: skip
def test_code_is_for_what_takes_the_time(events: list[object], fix: str, has: str) -> None:
    report = analysed(op("aten::mm", 0, 40), events, op("aten::mm", 2_090, 10), devices=[])
    assert has in next(item.code for item in report.advice if item.id == fix)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("event", "part", "fix"),
    [
        ([op("aten::_sparse_mm", 40, 2_000), op("aten::addmm", 41, 1_990, **TYPED)], "matmul", "cpu-bfloat16"),
        (op("quantized::linear_dynamic", 40, 2_000), "matmul", "cpu-bfloat16"),
        ([op("aten::gru", 40, 2_000), op("aten::mul", 41, 990), op("aten::add", 1_035, 990)], "pointwise", "cpu-fusion"),
        (op("aten::slice", 40, 2_000), "dispatch", "cpu-fusion"),
        (python("<built-in function kernel>", 40, 2_000), "other-operators", "cpu-python"),
        (python("torch/_dynamo/eval_frame.py(1423): _fn", 40, 2_000), "python", "cpu-python"),
        ([python("torch/autograd/function.py(609): apply", 40, 2_000), python("<built-in method apply of type object at 0x1>", 41, 1_998)], "python", "cpu-python"),
        ([python("torch/_dynamo/eval_frame.py(1423): _fn", 40, 2_000), python("model.py(9): forward", 41, 1_998)], "python", "cpu-compile"),
        (op("aten::abs", 40, 2_000, **{"Input Dims": [[1024, 1024]], "Input type": ["c10::complex<float>"]}), "pointwise", "cpu-fusion"),
        ([annotation("Optimizer.step#SparseAdam.step", 40, 2_000), op("aten::mul", 40, 1_990)], "pointwise", "cpu-optimizer"),
    ],
)  # fmt: skip
def test_a_fix_is_not_for_what_it_cannot_change(event: list[object], part: str, fix: str) -> None:
    """Check views, numbers that neither bf16 nor Inductor handles, compiled code and its calls, optimizers without a fused form."""
    report = analysed(op("aten::mm", 0, 40), event, op("aten::mm", 2_090, 10), devices=[])
    assert report.tables["cpu_time"].item(0, "part") == part
    assert fix not in [item.id for item in report.advice]


SLOW_HALF = {"Input Dims": [[64, 64], [64, 64]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}
LARGE_HALF = SLOW_HALF | {"Input Dims": [[1024, 1024], [1024, 1024]]}
HALF = TYPED | {"Input type": ["c10::BFloat16", "c10::BFloat16"]}
ENGINE = "autograd::engine::evaluate_function: MmBackward0"
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
CPU_CASES: dict[str, tuple[Callable[[int], object], Callable[[int], object]]] = {
    # Work of so many microseconds that calls for a fix, and the same in a program that has it.
    "cpu-anomaly": (
        lambda us: [op(ENGINE, 0, us), op("aten::mm", 1, us - 20), op("aten::_is_any_true", us - 15, 10)],
        lambda us: [op(ENGINE, 0, us), op("aten::mm", 1, us - 20)],
    ),
    "cpu-bfloat16": (lambda us: op("aten::mm", 0, us, **TYPED), lambda us: op("aten::mm", 0, us, **HALF)),
    "cpu-communication": (lambda us: op("c10d::allreduce_", 0, us), lambda us: op("c10d::allreduce_", 0, us // 10)),
    "cpu-compile": (lambda us: [op("aten::add", 5 * n, 5) for n in range(us // 5)], lambda us: annotation("## Call CompiledFxGraph f1 ##", 0, us)),
    "cpu-concatenation": (lambda us: op("aten::cat", 0, us), lambda us: op("aten::copy_", 0, us)),
    "cpu-data-loading": (lambda us: annotation(LOADER, 0, us), lambda us: annotation(LOADER, 0, us // 10)),
    "cpu-double": (lambda us: op("aten::mm", 0, us, **DOUBLE), lambda us: op("aten::mm", 0, us, **TYPED)),
    "cpu-fusion": (lambda us: [op("aten::relu", 20 * n, 20, **TYPED) for n in range(1 + us // 20)], lambda us: annotation("## Call CompiledFxGraph f1 ##", 0, us)),
    "cpu-embedding": (
        lambda us: [op("aten::_embedding_bag_dense_backward", 0, us), op("aten::fill_", 1, us - 2)],
        lambda us: [op("aten::_embedding_bag_sparse_backward", 0, us), op("aten::index_select", 1, us - 2)],
    ),
    "cpu-float32": (lambda us: op("aten::mm", 0, us, **SLOW_HALF), lambda us: op("aten::mm", 0, us, **LARGE_HALF)),
    "cpu-host-wait": (lambda us: python("<built-in function sleep>", 0, us), lambda us: python("<built-in function sleep>", 0, us // 10)),
    "cpu-indexing": (
        lambda us: [op("aten::index_add_", 0, us), op("aten::index_select", 1, us - 2)],
        lambda us: [op("aten::embedding", 0, us), op("aten::index_select", 1, us - 2)],
    ),
    "cpu-optimizer": (
        lambda us: annotation("Optimizer.step#SGD.step", 0, us),
        # Its counters of steps are still updated one by one.
        lambda us: [annotation("Optimizer.step#SGD.step", 0, us), op("aten::_fused_sgd_", 0, 50), op("aten::add_", 60, us - 60)],
    ),
    "cpu-python": (lambda us: python("train.py(3): count", 0, us), lambda us: op("aten::sum", 0, us)),
    "cpu-sorting": (lambda us: op("aten::sort", 0, us), lambda us: op("aten::topk", 0, us)),
    "cpu-threads": (lambda us: op("aten::mm", -900, us + 900, **SMALL), lambda us: op("aten::mm", -900, us + 900, **TYPED)),
    "cpu-shapes": (lambda us: op("aten::mm", 0, us), lambda us: op("aten::mm", 0, us, **TYPED)),
    "cpu-unrecorded": (lambda us: [], lambda us: python("train.py(3): count", 0, us)),
    "cpu-warm-up": (
        lambda us: [op("aten::mm", 0, us - 20, **TYPED), op("aten::mm", us - 20, 20, **TYPED)],
        lambda us: [op("aten::mm", 0, 20, **TYPED), op("aten::mm", 20, us - 20, **TYPED)],
    ),
    "recompilation": (lambda us: op("compile_attempt_0 (dynamo_timed)", 0, us), lambda us: op("TorchDynamo Cache Lookup", 0, us)),
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("fix", CPU_CASES)
def test_a_fix_is_for_programs_that_need_it(fix: str) -> None:
    """Check each page of a run on the CPU: just above the least share, just below, and where the program has it."""

    def advice(make: Callable[[int], object], us: int) -> dict[str, Advice]:
        rest = op("quantized::linear_dynamic", us, 4_000 - us)
        return {item.id: item for item in analysed(op("aten::view", 0, 0), make(us), rest, devices=[]).advice}

    least = int(4_000 * pages()[fix]["least"])
    needs, has = CPU_CASES[fix]
    item = advice(needs, least + 100).get(fix)
    assert item is not None
    assert fix not in advice(needs, least - 100)
    assert fix not in advice(has, least + 100)
    if fix not in fixes():  # else its snapshot is that of a device
        check_snapshot(item)


@pytest.mark.parametrize(("threads", "proposed"), [(1, False), (2, True), (None, True)])
def test_one_thread_is_not_proposed_to_a_process_that_has_one(threads: int | None, proposed: bool) -> None:
    events = op("aten::view", 0, 0), op("aten::mm", 0, 2_000, **SMALL), op("quantized::linear_dynamic", 2_000, 2_000)
    report = pipeline.analyze(trace_bytes(events, deviceProperties=[], trace_analyzer={"cpu_threads": threads}))
    (item,) = (item for item in report.advice if item.id == "cpu-threads")
    assert ("set_num_threads" in item.code) == proposed


def test_what_is_fused_is_a_chain_whose_longest_operator_stays() -> None:
    """Check that a matmul splits a chain, that calls do not, and that a filled table and drawn numbers are none."""
    matmul = [op("aten::mm", 1_000 * n + 600, 400) for n in range(3)]
    alone = [op("aten::fill_", 1_000 * n, 600) for n in range(3)]
    chain = [
        [op("aten::mul", 1_000 * n, 400), op("aten::view", 1_000 * n + 400, 20), op("aten::add", 1_000 * n + 420, 180)]
        for n in range(3)
    ]
    drawn = [[op("aten::mul", 1_000 * n, 300), op("aten::bernoulli_", 1_000 * n + 300, 300)] for n in range(3)]
    for program in (alone, drawn):
        assert "cpu-fusion" not in [item.id for item in analysed(matmul, program, devices=[]).advice]
    (fix,) = (item for item in analysed(matmul, chain, devices=[]).advice if item.id == "cpu-fusion")
    assert fix.saves_ns_at_most == 3 * 180_000


def test_attention_that_is_written_out_goes_with_its_matmuls_and_leaves_no_pass() -> None:
    """Recorded: 79 % less, of which the pointwise operators and the softmax beside their longest pass were 34 %."""
    steps = [("aten::bmm", 300), ("aten::div", 200), ("aten::_softmax", 300), ("aten::bmm", 200), ("aten::addmm", 500)]
    starts = itertools.accumulate((us for _, us in steps), initial=0)
    program = [op(name, at, us) for at, (name, us) in zip(starts, steps, strict=False)]
    (fix,) = (item for item in analysed(program, devices=[]).advice if item.id == "cpu-fusion")
    assert fix.saves_ns_at_most == 1_000_000


def test_what_is_compiled_for_two_reasons_is_told_once() -> None:
    """Calls of 500 us and a chain of 1,500 us, of which an operator of 800 us stays; fp64 may save all of its 400 us."""
    calls = [op("aten::view", 5 * n, 5) for n in range(100)]
    chain = [op("aten::mul", 500, 700), op("aten::add", 1_200, 800), op("aten::mm", 2_000, 400, **DOUBLE)]
    items = {item.id: item for item in analysed(calls, chain, devices=[]).advice}
    assert [item.code.count("torch.compile(model)") for item in items.values()] == [1, 0]
    item = items["cpu-fusion"]
    assert (item.saves_ns_at_most, items["cpu-double"].saves_ns_at_most) == (1_200_000, 400_000)
    assert (item.saving.at_most_ns, item.saving.at_most_ratio) == (1_200_000, 0.5)
    assert [item.why.count("of the main thread's time"), item.how_bound.count("; and ")] == [2, 1]


def test_what_depends_on_unknown_instructions_has_no_figure_and_comes_last() -> None:
    report = analysed(
        [
            [
                op("aten::mm", 100 * n, 60, **TYPED),
                op("aten::add", 100 * n + 60, 5),
                op("aten::add", 100 * n + 70, 25, **DOUBLE),
            ]
            for n in range(9)
        ],
        devices=[],
    )
    *others, last = report.advice
    assert (last.id, last.saves_ns_at_most) == ("cpu-bfloat16", 0)
    assert others


def test_no_fused_optimizer_takes_sparse_gradients() -> None:
    """`torch.optim.SGD(..., fused=True)` raises `RuntimeError` for them (torch/optim/sgd.py)."""
    update = [
        annotation("Optimizer.step#SGD.step", 40, 2_000), op("aten::mul_", 50, 900), op("aten::add_", 950, 900)
    ]  # fmt: skip
    asked = [
        "cpu-optimizer"
        in [
            item.id
            for item in analysed(op("aten::mm", 0, 40), update, more, op("aten::mm", 2_090, 10), devices=[]).advice
        ]
        for more in ([], [op("aten::_nnz", 60, 1)])
    ]
    assert asked == [True, False]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("operators", "saved_us"),
    [
        ([("aten::add_", 900)], 0),  # plain SGD: one pass, with a fused optimizer, too
        ([("aten::mul_", 200), ("aten::add_", 300), ("aten::add_", 400)], 550),
        ([("aten::mul_", 500), ("aten::add_", 100), ("aten::add_", 300)], 400),
    ],
)
def test_a_fused_optimizer_still_passes_over_the_parameters_once(
    operators: list[tuple[str, int]], saved_us: int
) -> None:
    starts = itertools.accumulate((us for _, us in operators), initial=40)
    updates = [op(name, at, us) for at, (name, us) in zip(starts, operators, strict=False)]
    zeroed = annotation("Optimizer.zero_grad#SGD.zero_grad", 940, 500)  # frees gradients, however they are used
    report = analysed(
        op("aten::mm", 0, 40), annotation("Optimizer.step#SGD.step", 40, 900), updates, zeroed, op("aten::mm", 1_440, 40), devices=[]
    )  # fmt: skip
    items = {item.id: item.saves_ns_at_most for item in report.advice}
    assert items.get("cpu-optimizer", 0) == 1_000 * saved_us
    assert "cpu-unrecorded" not in items, "it is the optimizer that runs"


@pytest.mark.parametrize(
    ("optimizer", "of_the_table"), [("SGD", "SGD"), ("Adam", "SparseAdam"), ("AdamW", "SparseAdam")]
)
def test_an_optimizer_does_not_pass_over_the_gradient_of_a_table_that_is_sparse(
    optimizer: str, of_the_table: str
) -> None:
    made = CPU_CASES["cpu-embedding"][0](1_000)
    update = [annotation(f"Optimizer.step#{optimizer}.step", 1_000, 300), op("aten::add_", 1_000, 300)]
    freed = annotation("Optimizer.zero_grad#SGD.zero_grad", 1_300, 100)
    (item,) = (
        item for item in analysed(made, update, freed, op("aten::mm", 1_400, 40), devices=[]).advice if item.id == "cpu-embedding"
    )  # fmt: skip
    assert item.saves_ns_at_most == 1_400_000
    assert f"torch.optim.{of_the_table}(" in item.code


def test_each_optimizer_of_the_program_keeps_its_class() -> None:
    updates = [
        [annotation(f"Optimizer.step#{name}.step", at, 900), op("aten::add_", at + 50, 800)]
        for name, at in (("RMSprop", 40), ("Adam", 1_000))
    ]
    (fix,) = (
        item for item in analysed(op("aten::mm", 0, 40), updates, devices=[]).advice if item.id == "cpu-optimizer"
    )
    assert "RMSprop(model.parameters(), **options, foreach=True)" in fix.code
    assert "Adam(model.parameters(), **options, fused=True)" in fix.code


@pytest.mark.sampled
@pytest.mark.parametrize(("loads_us", "workers"), [(100, 1), (490, 1), (510, 2), (700, 3), (995, 16)])
def test_the_fewest_workers_that_keep_up_with_the_rest_of_a_step(loads_us: int, workers: int) -> None:
    steps = [
        [
            annotation(f"ProfilerStep#{n}", 1_000 * n, 1_000),
            annotation(LOADER, 1_000 * n, loads_us),
            op("aten::mm", 1_000 * n + loads_us, 1_000 - loads_us),
        ]
        for n in range(4)
    ]
    (fix,) = (item for item in analysed(steps, devices=[]).advice if item.id == "cpu-data-loading")
    assert f"num_workers={workers}," in fix.code


def test_each_page_for_the_cpu_has_a_case() -> None:
    assert sorted(CPU_CASES) == [name for name, page in pages().items() if "parts" in page]


@pytest.mark.parametrize("folder", ["torchinductor_me/ab", "cache/ab"])
def test_pythons_time_in_code_that_inductor_wrote_is_no_python_of_the_program(folder: str) -> None:
    frame = python(f"/tmp/{folder}/cab{49 * 'a'}.py(9): call", 0, 900)
    items = [item.id for item in analysed(op("aten::view", 0, 0), frame, op("aten::mm", 900, 100), devices=[]).advice]
    assert "cpu-compile" in items
    assert "cpu-python" not in items


def test_python_is_what_frames_name_and_a_launch_is_no_work() -> None:
    steps = [
        [annotation(f"ProfilerStep#{n}", 1_000 * n, 1_000), op("aten::add", 1_000 * n + 100, 400)] for n in range(4)
    ]
    frames = [python("train.py(3): count", 1_000 * n + 600, 300) for n in range(4)]
    launches = [call("cudaLaunchKernel", 1_000 * n + 200, 10, correlation=n + 1) for n in range(4)]
    assert cpu_time(steps, frames)["python"] == 900
    assert cpu_time(steps, launches, devices=[A100])["dispatch"] == 3 * 390


@pytest.mark.sampled
@pytest.mark.parametrize(
    "names",
    [
        ["aten::cudnn_is_acceptable"],
        ["aten::_use_cudnn_ctc_loss"],
        [f"aten::_scaled_dot_product_flash_attention_for_cpu{backward}" for backward in ("", "_backward")],
        ["CacheBase.triton_key", "CacheBase.triton_key_data: compile_id=0/0", "CacheBase.triton_key (dynamo_timed)"],
    ],
)
def test_who_asks_for_a_device_and_a_compiler_for_all_devices_run_on_the_cpu(names: list[str]) -> None:
    assert run(*(op(name, 505 + n, 0.5) for n, name in enumerate(names))).verdict.status == "cpu-run"


@pytest.mark.sampled
@pytest.mark.parametrize(
    "name", ["nccl:all_reduce", "aten::cudnn_convolution", "aten::miopen_batch_norm", "aten::_flash_attention_forward"]
)
def test_a_program_that_meant_a_device_keeps_the_words_on_its_missing_work(name: str) -> None:
    report = run(op(name, 505, 10))
    assert report.verdict.status == "no-gpu-activity"
    assert "ProfilerActivity.CUDA" in report.verdict.headline
    assert "49 % is dispatch (led by aten::add_); 30 % data loading" in report.verdict.headline, "operators only launch"
    metrics = {item.metric for item in report.verdict.evidence}
    on_the_cpu = {"tiny_operators", "other_threads_ratio"}
    assert not on_the_cpu & metrics, "times of operators are those of their launches"
    assert on_the_cpu <= {item.metric for item in run().verdict.evidence}
    assert report.advice == ()
    assert parts_of(report) == LAUNCHING


LAUNCHING = {"dispatch", "data-loading", "host-unknown"}


def parts_of(report: Report) -> set[str]:
    return set(report.tables["cpu_time"].get_column("part"))


def test_a_long_copy_of_a_program_that_uses_a_device_waits_and_is_no_launch_no_stall_and_no_first_call() -> None:
    small = {"Input Dims": [[8], [8], []], "Input type": ["float", "float", "Scalar"]}
    copies = [op("aten::copy_", 5_000 * n, 4_000, **small) for n in range(4)]
    assert cpu_time(copies) == {"stalled-operators": 16_000, "host-unknown": 3_000}
    device = op("aten::cudnn_convolution", 4_100, 10)
    assert cpu_time(copies, device) == {"blocking-copy": 16_000, "host-unknown": 2_990, "dispatch": 10}
    short = [op("aten::copy_", 20_000 + 100 * n, 99, **small) for n in range(9)]
    of_all = {"blocking-copy": 16_000, "host-unknown": 3_998, "dispatch": 901}
    assert cpu_time(copies, device, short) == of_all
    assert "first-calls" in cpu_time(short, op("aten::copy_", 0, 4_000, **small))


def test_parameters_may_be_filled_on_the_cpu_before_they_go_to_a_device() -> None:
    made = [op("aten::uniform_", 0, 1_000), op("aten::uniform_", 1_000, 999), op("aten::zero_", 2_000, 1_000)]
    device = op("aten::cudnn_convolution", 3_000, 10)
    assert cpu_time(made, device) == {"pointwise": 2_000, "dispatch": 1_009, "host-unknown": 1}


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("torch/cuda/graphs.py(139): replay", "no-gpu-activity"),
        ("torch/cuda/streams.py(231): synchronize", "no-gpu-activity"),
        ("<built-in function _cuda_getCurrentRawStream>", "no-gpu-activity"),
        ("torch/cuda/graphs.py(47): is_current_stream_capturing", "cpu-run"),
        ("torch/cuda/__init__.py(163): is_available", "cpu-run"),
        ("<built-in function _cuda_isInBadFork>", "cpu-run"),
    ],
)
def test_python_that_uses_a_device_and_does_not_only_ask_for_one_means_it(name: str, status: str) -> None:
    assert run(python(name, 505, 10)).verdict.status == status


def test_code_that_inductor_generated_for_a_device_launches() -> None:
    graphs = [annotation("## Call CompiledFxGraph fabc ##", 200 * n, 100) for n in range(3)]
    assert cpu_time(graphs, op("aten::mm", 600, 10)).keys() == {"other-operators", "host-unknown", "matmul"}
    assert cpu_time(graphs, op("aten::cudnn_convolution", 600, 10)).keys() == {"dispatch", "host-unknown"}


def test_operators_of_apples_gpu_only_launch() -> None:
    report = run(op("aten::_mps_convolution", 505, 10))
    assert "torch.mps.profiler" in report.verdict.headline
    assert parts_of(report) == LAUNCHING


@pytest.mark.sampled
@pytest.mark.parametrize("more", [[], [call("AclrtLaunch", 506, 2, correlation=1)]], ids=["operators", "a call"])
@pytest.mark.parametrize(
    ("name", "known"), [("torch_npu::npu_format_cast", "Ascend"), ("hpu::linear", "Gaudi"), ("mtia::copy", "MTIA")]
)
def test_an_accelerator_of_which_only_operators_are_recorded_keeps_its_own_words(
    name: str, known: str, more: list[object]
) -> None:
    report = run(op(name, 505, 10), more)
    assert report.verdict.status == "unsupported-accelerator"
    assert f"The work of {known}" in report.verdict.headline
    assert ("30 % is data loading" if more else "30 % data loading") in report.verdict.headline
    assert "CUDA]" not in report.summary() + report.to_markdown()


def test_of_serving_steps_those_of_the_kind_with_most_time_are_judged() -> None:
    lengths = [100, 900, 400, 400, 400, 400]
    names = ["step[DECODE bs=32]", "step[EXTEND bs=1 toks=64]", *["step[DECODE bs=32]"] * 4]
    starts = itertools.accumulate(lengths, initial=0)
    steps = [
        [annotation(name, at, us), op("aten::mm", at + 1, us - 2)]
        for name, at, us in zip(names, starts, lengths, strict=False)
    ]
    headline = analysed(steps, devices=[]).verdict.headline
    assert headline.startswith("Of the 4 decode steps of the main thread (400 us each)"), headline
    alone = analysed(steps[1], devices=[]).verdict.headline
    assert alone.startswith("Of the one prefill step of the main thread (900 us), "), alone


def test_the_main_thread_is_that_of_the_steps_not_of_a_loader_that_computes_more() -> None:
    loads = [op("aten::stack", 500 * n, 490, tid=7) for n in range(8)]
    own = analysed([step(n) for n in range(4)], loads, devices=[])
    assert rows(own.tables["cpu_time"], "part", "time_ns") == rows(run().tables["cpu_time"], "part", "time_ns")
    (others,) = (e.value for e in own.verdict.evidence if e.metric == "other_threads_ratio")
    assert others == pytest.approx(0.98)


def test_without_steps_the_whole_time_of_operators_counts() -> None:
    report = analysed(op("aten::mm", 0, 600), op("aten::relu", 700, 300), devices=[])
    parts = rows(report.tables["cpu_time"], "part", "time_ns")
    assert parts == [("matmul", 600), ("pointwise", 300), ("host-unknown", 100)]
    assert "step" not in report.verdict.headline
    assert not any(" step" in text for item in report.advice for text in (item.why, item.title, item.how_bound))


@pytest.mark.parametrize(
    ("shapes", "parts"),
    [
        ({"Input Dims": [[8], [8]], "Input type": ["float", "float"]}, {"tiny-operators": 420}),
        ({}, {"pointwise": 400, "tiny-operators": 20}),
    ],
)
def test_a_tiny_operator_that_is_interrupted_once_has_no_more_work(shapes: dict[str, object], parts: object) -> None:
    """Without shapes, a longer run may be one on larger tensors."""
    starts_and_lengths = ((0, 5), (5, 5), (10, 400), (410, 5), (415, 5))
    assert cpu_time([op("aten::mul", start, length, **shapes) for start, length in starts_and_lengths]) == parts


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("shapes", "lengths", "first"),
    [
        (TYPED, (3_000, 2_000, 20, 20, 20), 5_000),
        (TYPED, (20, 3_000, 20), 0),  # interrupted later
        (TYPED, (900, 20, 20), 0),
        (TYPED, (3_000, 2_000, 2_000), 0),
        (TYPED, (3_000, 20), 3_000),
        (TYPED, (3_000,), 0),
        ({}, (3_000, 20, 20, 20), 3_000),
        ({}, (3_000, 20, 20), 0),  # perhaps on larger tensors
    ],
)
def test_first_calls_that_start_threads_or_a_library_are_no_work(
    shapes: dict[str, object], lengths: tuple[int, ...], first: int
) -> None:
    events, start = [], 0
    for length in lengths:
        events.append(op("aten::mul", start, length, **shapes))
        start += length
    report = analysed(events, devices=[])
    parts = dict(rows(report.tables["cpu_time"], "part", "time_ns"))
    assert parts == {part: ns for part, ns in (("first-calls", first), ("pointwise", start - first)) if ns}
    assert any(item.id == "cpu-warm-up" and item.saves_ns_at_most == 1_000 * first for item in report.advice) == (
        first > 0
    )


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("name", "shapes", "lengths", "stalled"),
    [
        ("aten::mul", TYPED, (20, 20, 20, 3_000), 3_000),
        ("aten::mul", TYPED, (20, *[3_000] * 9), 27_000),
        ("aten::mul", TYPED, (20, 20, 3_000), 0),  # of three calls any may be unusual
        ("aten::mul", TYPED, (*[20] * 7, 900), 0),
        ("aten::mul", TYPED, (*[400] * 7, 3_000), 0),
        ("aten::mul", {}, (*[20] * 7, 3_000), 0),  # perhaps on a larger tensor
        ("aten::sort", TYPED, (*[20] * 7, 3_000), 0),  # its work depends on the data
        ("aten::mul", SMALL, (1_200, 1_200), 0),  # half a megabyte
        ("aten::_log_softmax", SMALL, (1_300, 1_300), 2_600),
        ("aten::cumsum", {}, (1_300, 1_300), 0),  # perhaps on a larger tensor
        ("aten::mm", SMALL, (1_000, 1_000, 1_000), 0),  # 131,072 FLOP
        ("aten::mm", SMALL, (1_400, 1_400, 1_400), 4_200),
        ("aten::mm", HALF | {"Input Dims": SMALL["Input Dims"]}, (1_400, 1_400, 1_400), 0),  # perhaps emulated
    ],
)
def test_operators_that_take_far_longer_than_their_work_stall(
    name: str, shapes: dict[str, object], lengths: tuple[int, ...], stalled: int
) -> None:
    starts = itertools.accumulate(lengths, initial=0)
    parts = cpu_time([op(name, start, length, **shapes) for start, length in zip(starts, lengths, strict=False)])
    assert parts.get("stalled-operators", 0) == stalled
    assert sum(parts.values()) == sum(lengths)


def test_methods_have_one_name_whatever_object_they_are_called_on() -> None:
    frames = [python(f"<built-in method split of str object at 0x7f{n:010x}>", 10 + 10 * n, 8) for n in range(3)]
    work = [python("train.py(1): main", 0, 60), op("aten::mm", 0, 10), op("aten::mm", 40, 10)]
    report = analysed(work, frames, devices=[])
    assert report.tables["host_events"].get_column("name").cast(str).str.contains("0x").sum() == 0
    assert "60 % is Python (led by split())" in report.verdict.headline
    assert "split() (24 us)" in report.summary()


def test_a_recording_of_the_profiler_alone_says_how_schedules_end() -> None:
    """Check the last file of a schedule that began again: a step, frames, no operator."""
    report = analysed([annotation("ProfilerStep#8", 10, 100), python("train.py(1): main", 0, 400)], devices=[])
    assert (report.verdict.status, report.verdict.regime) == ("insufficient", None)
    assert "is on the device" not in report.summary()
    assert "without repeat=1 it begins again" in report.verdict.headline


def test_with_device_work_there_is_no_table_of_the_main_thread() -> None:
    assert analysed(op("aten::mm", 0, 30), launched("gemm", 5, 20, 50, 1)).tables["cpu_time"].is_empty()


@pytest.mark.slow
def test_the_page_has_the_bar_that_the_terminal_has(tmp_path: Path) -> None:
    page = run().to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    assert 'aria-label="Data loading 30 %, Pointwise 28 %' in page
    assert "var(--k-pointwise)" in page
    assert "Time of the main thread." in page
