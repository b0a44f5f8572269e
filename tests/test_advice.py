"""Advice: only for the regime, with figures of its window, in order of saving."""

import ast
import json
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from kineto import A100, MAIN, PROCESS, analysed, annotation, call, copy, event, kernel, launch, launched, op, python
from test_advice_laws import order_holds

from trace_analyzer.advice import LAUNCHING, RULES
from trace_analyzer.advice.overhead import waited_ns
from trace_analyzer.catalog.event_names import BLOCKING, code_rules
from trace_analyzer.catalog.fixes import HEADINGS, PLATFORMS, Fix, fixes, page_of, pages, with_remark
from trace_analyzer.report import Advice, Report
from trace_analyzer.vocabulary import IDLE_CAUSES, REGIMES, phrase

GEMM, FP32, ADD, NCCL = (
    "ampere_fp16_s16816gemm_fp16_128x64", "ampere_sgemm_128x64_tn", "void at::native::vectorized_elementwise_kernel<4, x>(int)",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
)  # fmt: skip
LOADS = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def iterations(*inside: object, period: int = 1_000, busy: int = 50, count: int = 12) -> list[object]:
    """Build a kernel every ``period`` us, launched late; ``inside`` maps an iteration's start to its host events."""
    return [[launched(GEMM, period * n + period - 100, period * n + period - 90, busy, n + 1), *(make(period * n) for make in inside)]
            for n in range(count)]  # type: ignore[operator]  # fmt: skip


def ids(report: Report) -> list[str]:
    return [item.id for item in report.advice]


def saved(report: Report) -> dict[str, int]:
    return {item.id: item.saves_ns_at_most for item in report.advice}


def advised(fix: str, *events: object, **options: Any) -> Advice:
    """Return the advice of this id on these events."""
    (item,) = (item for item in analysed(*events, **options).advice if item.id == fix)
    return item


def test_a_run_of_the_collector_is_no_call_of_it() -> None:
    first = analysed(iterations(lambda t: annotation("Python GC", t, 850))).advice[0]
    assert (first.id, "gc.freeze()" in first.code) == ("garbage-collection", True)


def test_a_transformers_pipeline_loads_by_its_own_option() -> None:
    frame = "transformers/pipelines/pt_utils.py(249): __next__"
    first = analysed(iterations(lambda t: annotation(LOADS, t, 850), lambda t: python(frame, t, 851))).advice[0]
    assert first.id == "data-loading"
    assert first.code.startswith("outputs = pipe(inputs, num_workers=6)"), "850 us of loading beside 150 us"
    assert "(num_workers=0: the launching process loads it)" in first.why


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("category", "name", "is_torch_1"),
    [("cpu_op", "ProfilerStep#3", True), ("cpu_op", "Optimizer.step#SGD.step", True), ("user_annotation", "ProfilerStep#3", False),
     ("cpu_op", "my::op#2", False)],
)  # fmt: skip
def test_code_for_files_of_pytorch_1_remarks_that_compiling_needs_pytorch_2(
    category: str, name: str, is_torch_1: bool
) -> None:
    scope = event(category, name, 0, 10, pid=PROCESS, tid=MAIN)
    code = analysed(scope, iterations(lambda t: op("aten::mm", t, 850))).advice[0].code
    assert "torch.compile" in code
    assert ("# needs PyTorch 2" in code) is is_torch_1


def test_a_remark_on_the_release_replaces_the_comment_of_a_statement_alone() -> None:
    code = 'model = torch.compile(model, mode="max-autotune")  # tries\n# or torch.compile(block)\nx = 1  # y'
    expected = (
        'model = torch.compile(model, mode="max-autotune")  # needs PyTorch 2\n# or torch.compile(block)\nx = 1  # y'
    )
    assert with_remark(code, "needs PyTorch 2") == expected


@pytest.mark.slow
def test_recompilation_says_how_many_regions_had_been_compiled_before() -> None:
    loop = iterations(lambda t: python("torch/_dynamo/convert_frame.py(1): _compile", t, 850))
    regions = [op("Torch-Compiled Region: 0/2", 901, 2), op("Torch-Compiled Region: 1/1", 1_901, 2)]
    assert "2 regions of the trace had been compiled before" in analysed(loop, regions).advice[0].why
    assert "compiled before" not in analysed(loop, op("Torch-Compiled Region: 0/0", 901, 2)).advice[0].why


def test_waits_count_where_the_device_works() -> None:
    """Check waits of two threads, from 0 to 60 and 40 to 100 us; the device works from 50 to 90 and from 95 us on.

    A wait of another process, which launches nothing, does not count.
    """
    waits = [(1, BLOCKING, 0, 60, 0), (2, BLOCKING, 40, 100, 0), (3, "other", 0, 1_000, 0), (4, BLOCKING, 0, 45, 1)]
    calls = pl.DataFrame(waits, schema=["event_id", "work", "start_ns", "end_ns", "process_id"], orient="row")
    calls = calls.with_columns(thread_id=pl.col("event_id"))
    launched = {"kind": ["kernel"], "launch_id": [3], "start_ns": [0], "duration_ns": [5]}
    busy = pl.DataFrame({"start_ns": [50, 70, 95], "end_ns": [70, 90, 500]})
    context: Any = SimpleNamespace(
        host=SimpleNamespace(calls=calls), busy_parts=busy, within=SimpleNamespace(activities=pl.DataFrame(launched)),
        launch_threads=pl.Series([1]),
    )  # fmt: skip
    assert waited_ns(context) == 45


def waiting_for(*around: object, every: int = 1, module: str = "") -> Advice | None:
    """Return the advice on 24 kernels of 90 us, a wait behind each or some, and these events around each wait."""
    loop: list[object] = []
    for n in range(24):
        loop.append(launched(GEMM, 200 * n, 200 * n + 10, 90, n + 1))
        if n % every == 0:
            loop.append([call("cudaStreamSynchronize", 200 * n + 6, 95), *(make(200 * n + 5) for make in around)])  # type: ignore[operator]
            loop += [python(f"nn.Module: {module}", 200 * n + 4, 110)] if module else []
    return next((item for item in analysed(loop).advice if item.id == "synchronization"), None)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("around", "module", "code"),
    [
        ((lambda t: op("aten::item", t, 98),), "", "total += loss.detach()"),
        ((lambda t: op("aten::nonzero", t, 98),), "Net_0", "instead of nonzero()"),
        ((lambda t: op("aten::repeat_interleave", t, 98),), "", "output_size"),
        ((lambda t: op("aten::index", t, 98),), "", "instead of x[mask]"),
        ((lambda t: op("aten::index", t, 98),), "SparseMoeBlock_0", "grouped_mm"),
        ((lambda t: python("torch/amp/grad_scaler.py(300): step", t, 105), lambda t: op("aten::item", t + 1, 97)), "", "fused=True"),
        ((lambda t: python("torch/distributions/distribution.py(50): __init__", t, 105), lambda t: op("aten::is_nonzero", t + 1, 97)), "",
         "set_default_validate_args(False)"),
    ],
)  # fmt: skip
def test_a_wait_has_the_code_of_what_was_written(around: tuple[Any, ...], module: str, code: str) -> None:
    item = waiting_for(*around, module=module)
    assert code in item.code
    assert ("torch.where" in item.code) == (code in ("instead of nonzero()", "instead of x[mask]"))


def test_the_code_is_for_what_holds_the_cpu_longest_though_the_device_idles_elsewhere() -> None:
    """`nonzero` holds the CPU for 280 us while the device works, `.item()` for 45 us, and for 40 us in which it idles."""
    loop = [
        [launched(GEMM, t, t + 10, 300, 2 * n + 1), op("aten::nonzero", t + 20, 292), call("cudaStreamSynchronize", t + 21, 290),
         launched(GEMM, t + 313, t + 320, 50, 2 * n + 2), op("aten::item", t + 322, 90), call("cudaStreamSynchronize", t + 323, 87)]
        for n, t in enumerate(range(0, 12 * 420, 420))
    ]  # fmt: skip
    assert "nonzero()" in advised("synchronization", loop).code


def test_without_stacks_code_is_named_by_the_operator_around_a_call() -> None:
    """A call that waits is named beside its operator; one that only launches is a part of it."""
    wait = waiting_for(lambda t: op("aten::nonzero", t, 98))
    assert wait.where.startswith("cudaStreamSynchronize in aten::nonzero (")
    late = [[op("aten::mul", 50 * n, 30), launched(GEMM, 50 * n + 20, 50 * n + 32, 5, n + 1)] for n in range(240)]
    assert re.fullmatch(r"aten::mul \(.*\)", advised("cuda-graphs", late).where)


def test_a_step_of_small_kernels_in_graphs_leaves_no_device_unused_by_a_launch() -> None:
    """The device is busy for most of each graph: what a launch leaves unused is the figure of kernels launched one by one."""
    small = advised("bigger-batch", *small_replayed(ADD))
    assert "small kernels and idle time around them take" in small.why
    assert "each launch leaves" in advised("bigger-batch", *iterations(busy=5)).why


@pytest.mark.parametrize(("launches", "advised"), [(4, False), (12, True)])
def test_no_graph_where_waits_leave_few_launches_between_them(launches: int, advised: bool) -> None:
    """Late launches of 5 us kernels, and a wait after some of them."""
    loop: list[object] = []
    for n in range(240):
        loop += [op("aten::mul", 50 * n, 30), launched(GEMM, 50 * n + 20, 50 * n + 32, 5, n + 1)]
        if n % launches == 0:
            loop += [op("aten::item", 50 * n + 31, 18), call("cudaStreamSynchronize", 50 * n + 32, 16)]
    report = analysed(loop)
    assert ("cuda-graphs" in ids(report)) == advised
    wait = next(item for item in report.advice if item.id == "synchronization")
    assert ("a CUDA graph can contain more" in wait.why) == (not advised)


CONVOLUTION = "sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4_g1_tensor16x8x16_kernel_cudnn"
CONVOLVED = {
    "Input Dims": [[64, 256, 56, 56], [256, 256, 3, 3], *[[]] * 7],
    "Input type": [*["c10::Half"] * 2, *["ScalarList"] * 3, *["Scalar"] * 4],
    "Concrete Inputs": ["", "", "[1, 1]", "[1, 1]", "[1, 1]", "1", "True", "False", "True"],
}


@pytest.mark.slow
def test_products_below_their_peak_are_called_what_they_are() -> None:
    loop = [[op("aten::cudnn_convolution", 20 * n, 10, **CONVOLVED), launched(CONVOLUTION, 20 * n + 2, 400 + 2_300 * n, 2_300, n + 1, grid=[5_000, 1, 1])]
            for n in range(12)]  # fmt: skip
    for work, products, code in (
        (loop, "convolutions", "cudnn.benchmark = True"),
        (matmuls(700), "matmuls", 'mode="max-autotune"'),
    ):
        item = advised("max-autotune", work)
        assert code in item.code
        assert item.title == f"Bring {products} closer to the peak"
        assert item.why.startswith(f"{products} reach ")


@pytest.mark.parametrize(
    ("kernel", "switch"),
    [
        (FP32, "torch.set_float32_matmul_precision"),
        ("ampere_scudnn_128x64_relu_interior_nn_v1", "torch.backends.cudnn.allow_tf32 = True"),
    ],
)  # fmt: skip
def test_tf32_is_switched_on_for_what_runs_in_fp32(kernel: str, switch: str) -> None:
    """The precision of matmuls leaves convolutions as they are."""
    assert advised("tf32", in_a_row(kernel)).code.startswith(switch)


def test_convolutions_in_tf32_show_that_it_is_allowed() -> None:
    """The others have no such kernel, and cuDNN's changes of layout multiply nothing."""
    ran = "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x128x32_execute_kernel_cudnn"
    both = [in_a_row("ampere_scudnn_128x64_relu_interior_nn_v1"), kernel(ran, 1_600, 100)]
    assert advised("tf32", both).code.startswith("torch.set_float32_matmul_precision")
    assert "tf32" not in ids(analysed(in_a_row("void nhwcToFoldedNhwcKernel<float, float, float, true, 2>(int)")))


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("operator", "us", "code"),
    [
        ("aten::sort", 4_800, 'x = x.to("cuda", non_blocking=True)'),
        ("aten::addmm", 4_950, "# run them once before the loop"),
        ("aten::upsample_bilinear2d", 4_950, "# run them once before the loop"),  # it launches, and prepares no data
        ("Torch-Compiled Region", 4_950, "# run the compiled region once before the loop"),
    ],
)
def test_cpu_operators_that_prepare_their_launch_for_long_do_not_compute(operator: str, us: int, code: str) -> None:
    first = analysed(iterations(lambda t: op(operator, t, us), period=5_000)).advice[0]
    launches = us == 4_950
    assert first.id == "cpu-operators"
    assert first.where.startswith(f"{operator} (")
    assert first.code.startswith(code)
    assert not launches or "compute" not in first.title + first.why
    assert first.why.endswith("100 % of it in GPU operators before their launch") == launches
    assert (".to(" in first.code) != launches
    assert ("TORCH_LOGS=recompiles,guards" in first.code) == ("Compiled" in operator)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("prepares", "trains", "says", "code"),
    [
        ("aten::randn", False, "random numbers", 'torch.randn(shape, device="cuda")'),
        ("aten::_upsample_bilinear2d_aa", False, "images or sound", 'processor(images, return_tensors="pt", device="cuda")'),
        ("aten::_upsample_bilinear2d_aa", True, "images or sound", 'transforms(images.to("cuda"))'),
    ],
)  # fmt: skip
def test_cpu_preparation_has_the_code_of_what_is_prepared(prepares: str, trains: bool, says: str, code: str) -> None:
    loop = iterations(lambda t: op(prepares, t, 4_800), period=5_000)
    first = analysed(loop, [op("Optimizer.step#SGD.step", 4_990, 2)] if trains else []).advice[0]
    assert first.id == "cpu-preparation"
    assert f"the loop prepares {says} on the CPU" in first.why
    assert code in first.code
    assert first.where.startswith(prepares)


def test_it_saves_no_more_than_the_idle_time_of_its_causes() -> None:
    """Check bounds by rule: a loader's frames, unlike its annotations, mark no steps, and without them so few kernels are not replayed."""
    loads = "torch/utils/data/dataloader.py(701): __next__"
    report = analysed(iterations(lambda t: python(loads, t, 400), lambda t: op("aten::mm", t + 400, 450)))
    parts = report.verdict.parts_ns
    launching = sum(parts[cause] for cause in (*LAUNCHING, "device-gap"))
    assert saved(report) == {
        "data-loading": parts["data-loading"],
        "cuda-graphs": launching,
        "bigger-batch": (sum(parts.values()) - parts["data-loading"]) // 2,
    }
    assert parts["data-loading"] + launching <= sum(parts.values())


def test_graphs_save_neither_loading_nor_allocation_nor_short_kernels() -> None:
    loads: Any = lambda t: call("cuModuleLoadData", t + 550, 250, category="cuda_driver")  # noqa: E731
    dispatches, allocates = lambda t: op("aten::mm", t, 300), lambda t: call("cudaMalloc", t + 300, 250)
    report = analysed(iterations(dispatches, allocates, loads, busy=2))
    parts = report.verdict.parts_ns
    assert all(parts[part] for part in ("allocation", "compilation", "latency"))
    assert saved(report)["cuda-graphs"] == sum(parts[cause] for cause in (*LAUNCHING, "device-gap"))


def test_stacks_that_are_recorded_are_not_asked_for() -> None:
    """Also where the file has them as text (PyTorch 1.8 to 1.12), without events of Python functions."""
    asked = "Record with stacks, to see what the CPU does"
    for stack, title in (({}, asked), ({"Call stack": "train.py(9): step"}, asked.replace("stacks", "labels"))):
        item = advised("record-stacks", iterations(lambda t, args=stack: op("aten::mm", t, 300, **args)))
        assert item.title == title
        assert ("with_stack=True" in item.code) == (not stack)
        assert ("record_function" in item.code) == bool(stack)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("named_us", "count", "place"),
    [(300, 60, 0), (430, 60, 0), (500, 60, 1), (500, 12, 0), (600, 12, 0), (700, 12, None)],
)
def test_stacks_come_first_where_idle_time_has_no_name(named_us: int, count: int, place: int | None) -> None:
    """Where most has none; from 30 % on where no estimate is known, as a replay needs 50 kernels; else where it ranks."""
    advice = ids(analysed(iterations(lambda t: op("aten::mm", t, named_us), count=count)))
    assert (advice.index("record-stacks") if "record-stacks" in advice else None) == place


def test_it_names_a_place_on_the_timeline() -> None:
    longest = [annotation(LOADS, 12_100, 2_850), launched(GEMM, 15_000, 15_010, 50, 99)]
    first = analysed(iterations(lambda t: annotation(LOADS, t, 850)), longest, step="all").advice[0]
    assert (first.start_ns, first.end_ns) == (12_100_000, 14_950_000)
    assert first.where == f"{LOADS} (12.2 ms)", "eleven times 850 us and once 2850"


def memory_bound(*streams: int) -> list[object]:
    return [kernel(ADD, 30 * n, 30, stream=streams[n % len(streams)], grid=[500, 1, 1]) for n in range(40)]


@pytest.mark.slow
def test_chains_of_memory_bound_kernels_can_be_fused() -> None:
    split = [kernel(ADD if n % 3 else GEMM, 60 * n, 20 if n % 3 == 0 else 60, grid=[500, 1, 1]) for n in range(30)]
    assert saved(analysed(memory_bound(7))) == {"fusion": 39 * 30_000}, "all but the first of the chain"
    assert saved(analysed(memory_bound(7, 20))) == {"fusion": 38 * 30_000}, "each stream has a chain of its own"
    assert saved(analysed(split))["fusion"] == 10 * 60_000, "the second of each pair"


@pytest.mark.slow
def test_the_bound_of_small_kernels_that_graphs_replay_holds_all_of_them() -> None:
    """A compiler may fold the first of a chain into another kernel too: 1,080 kernels of 10 us, and 1 us before most."""
    item = advised("fuse-replayed", *small_replayed(ADD))
    assert 10_800_000 + 12 * 89_000 <= item.saves_ns_at_most <= 12_000_000


def test_compute_bound_kernels_want_fewer_or_cheaper_flop() -> None:
    (alone,) = analysed([kernel(GEMM, 100 * n, 100) for n in range(12)]).advice
    assert (alone.id, alone.saves_ns_at_most) == ("less-work", 0)
    assert f"{GEMM} does unknown work" in alone.why
    fp32 = analysed([kernel(FP32, 100 * n, 100) for n in range(12)])
    assert saved(fp32) == {"tf32": 1_050_000}


def test_the_place_of_communication_is_where_nothing_hides_it() -> None:
    hidden = [kernel(NCCL, 0, 900, stream=20), kernel(GEMM, 0, 850), kernel(GEMM, 6_000, 2_000)]
    gather = "ncclDevKernel_AllGather_RING_LL"
    (item,) = analysed(hidden, [kernel(gather, 1_000 + 500 * n, 500, stream=20) for n in range(10)]).advice
    assert item.where == "all_gather (5 ms); all_reduce (50 us)"
    assert (item.start_ns, item.end_ns) == (1_000_000, 1_500_000)


def test_small_savings_are_noise() -> None:
    report = analysed(iterations(lambda t: op("aten::mm", t, 830), lambda t: annotation(LOADS, t + 830, 15)))
    assert ids(report) == ["cuda-graphs", "bigger-batch"]


def test_no_verdict_no_advice() -> None:
    assert analysed(kernel("k", 0, 5)).advice == ()


def check(item: Advice, window: int) -> None:
    assert (item.saves_ns_at_most == 0) == (item.id in ("custom-kernels", "earlier-work", "less-work", "record-stacks"))
    assert item.saves_ns_at_most <= window
    assert all((item.title, item.why, item.where, item.code, item.how_bound))
    assert (item.start_ns is None) == (item.end_ns is None)


def test_a_runner_up_that_can_save_far_more_is_heard_first() -> None:
    """Waiting wins against more kernel time, as it can be recovered in full; here three causes share it."""
    mixed = [iterations(lambda t: annotation(LOADS, t, 300), lambda t: op("aten::mm", t + 300, 300), lambda t: call("cudaMalloc", t + 600, 250)),
             [kernel(ADD, 11_970 + 30 * n, 30, grid=[500, 1, 1]) for n in range(400)]]  # fmt: skip
    report = analysed(mixed, step="all")
    assert (report.verdict.regime, report.verdict.runner_up) == ("overhead-bound", "memory-bandwidth-bound")
    assert len(report.advice) >= 4
    assert report.advice[0].id == "fusion"
    order_holds(report)


def test_bounds_name_causes_that_exist() -> None:
    bound = advised("data-loading", iterations(lambda t: annotation(LOADS, t, 850))).how_bound
    assert bound.removeprefix("all idle time of the window with cause ") in map(phrase, IDLE_CAUSES)


@pytest.mark.slow
def test_the_dtype_is_one_that_the_device_is_faster_in() -> None:
    kernels = [kernel(FP32, 100 * n, 100) for n in range(12)]
    (half,) = analysed(kernels, devices=[V100]).advice
    assert half.title == "Use tensor cores: fp16 instead of fp32"
    assert "torch.float16" in half.code
    assert "torch.amp.GradScaler" in half.code, "gradients of FP16 underflow"
    assert half.saves_ns_at_most == round(1_200_000 * (1 - 15.7 / 125))
    assert ids(analysed(kernels, devices=[{"id": 0, "name": "Frobnicator 9"}])) == ["less-work"]


@pytest.mark.slow
def test_eight_bits_only_where_the_device_is_faster_in_them() -> None:
    item = advised("low-precision", in_a_row(GEMM), devices=[H100])
    assert item.title == "Compute in fewer bits: fp8"
    assert item.saves_ns_at_most == pytest.approx(600_000, rel=0.01)
    assert "low-precision" not in ids(analysed(in_a_row(GEMM))), "an A100 has no fp8"


@pytest.mark.slow
def test_fewer_bytes_in_a_type_of_the_device() -> None:
    for device, dtype in ((A100, "bf16"), (V100, "fp16")):
        item = advised("fewer-bytes", apart(WIDE), devices=[device])
        assert (dtype in item.title, item.saves_ns_at_most) == (True, 12 * 25_000)


@pytest.mark.slow
def test_a_replayed_decoding_step_wants_bigger_batches_or_fewer_bits() -> None:
    """Without recorded shapes, kernel names show that memory limits them; the confidence names this source."""
    gemv, paged = "void gemv2T_kernel_val<int, float>(x)", "void vllm::paged_attention_v2_kernel<float, 128>(float*)"
    report = analysed(replayed(gemv, paged, paged, paged))
    assert report.verdict.regime == "memory-bandwidth-bound"
    assert report.verdict.confidence != "high"
    assert any("by their names" in why for why in report.verdict.confidence_why)
    assert saved(report) == {"skinny-matmuls": 40 * 20_000}


def test_odd_sizes_cost_half_where_flop_are_not_known() -> None:
    assert saved(analysed(in_a_row(f"cutlass_80_tensorop_{GEMM}_align1")))["padding"] == 12 * 50_000
    assert "padding" not in ids(analysed(in_a_row("cutlass_80_simt_sgemm_128x32_8x5_nn_align1"))), (
        "they never load more"
    )


def optimizer(name: str, span: str = "Optimizer.step#Adam.step", count: int = 60) -> list[object]:
    """Build a step in which an optimizer of ``count`` late launches by operators in turn takes the second half."""
    start, names = 2_000, name.split()
    work = [
        [
            op(names[n % len(names)], start + 20 * n, 15),
            launched(ADD, start + 20 * n + 8, start + 20 * n + 14, 4, n + 100, takes=4),
        ]
        for n in range(count)
    ]
    return [launched(GEMM, 0, 10, 400, 1), annotation(span, start, 20 * count), *work]


@pytest.mark.slow
def test_a_graph_holds_neither_steps_of_an_optimizer_nor_its_zeroed_gradients() -> None:
    forward = [launched(ADD, 600 + 20 * n, 606 + 20 * n, 4, n + 500, takes=4) for n in range(60)]
    spans = ("Optimizer.zero_grad#SGD.zero_grad", "Optimizer.step#SGD.step", "clear")
    whys = [advised("cuda-graphs", forward, optimizer("aten::zero_", span)).why for span in spans]
    assert ["(61 launches," in why for why in whys] == [True, True, False]
    assert "(121 launches)" in whys[2]


def test_an_optimizer_with_launches_per_parameter() -> None:
    assert "60 launches per update" in advised("fused-optimizer", optimizer("aten::addcdiv_")).why


FOREACH = "aten::_foreach_mul_ aten::_foreach_addcdiv_"


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("events", "asks"),
    [
        # A foreach optimizer makes a pass of each operator, and only some classes have a fused form.
        (optimizer(FOREACH, "Optimizer.step#RMSprop.step"), False),
        (optimizer(FOREACH, "Optimizer.step#Adam.step"), True),
        (optimizer(FOREACH, "Optimizer.step#Adagrad.step"), True),
        (optimizer("aten::_foreach_addcdiv_"), False),
        # A fused optimizer raises for sparse gradients; those of another optimizer do not matter.
        *(([optimizer("aten::addcdiv_"), annotation(f"Optimizer.step#{name}.step", 3_300, 9), op("aten::_nnz", 3_301, 1)], True)
          for name in ("SparseAdam", "AdamW")),  # whose names end, or begin, with that of the other
        ([optimizer("aten::addcdiv_"), op("aten::_nnz", 2_001, 1)], False),
    ],
)  # fmt: skip
def test_a_fused_optimizer_is_for_classes_that_have_one(events: list[object], asks: bool) -> None:
    assert ("fused-optimizer" in ids(analysed(events))) == asks


MEGA = 1_000_000
SQUARE = [[4096, 4096], [4096, 4096]]
FLOP = 2 * 4096**3
SOFTMAX = "void softmax_warp_forward<c10::Half>(x)"
FLASH = "void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4> >(Flash_fwd_params)"
Call = tuple[str, list[list[int]], str, int, str]


def eager(calls: list[Call], *, at: int = 0, first: int = 1, late: bool = False, blocks: int = 5000) -> list[object]:
    """Build a kernel per (operator, shapes, type, duration, kernel), back to back long after launch or 5 ms apart."""
    events: list[object] = []
    start = at + 10_000
    for n, (name, dims, dtype, duration, does) in enumerate(calls):
        called = at + (5_000 if late else 20) * n
        shapes = {"Input Dims": dims, "Input type": [dtype] * len(dims)}
        begin = called + 15 if late else start
        events += [op(f"aten::{name}", called, 15, **shapes), launch(called + 5, 5, first + n),
                   kernel(does, begin, duration, correlation=first + n, grid=[blocks, 1, 1])]  # fmt: skip
        start += duration
    return events


def matmuls(us: int, name: str = GEMM, *, blocks: int = 5000) -> list[object]:
    """Build twelve products of 4096 x 4096 halves, each so long; 440 us at the A100's peak."""
    return eager([("mm", SQUARE, "c10::Half", us, name)] * 12, blocks=blocks)


def cos_cos(pairs: int) -> list[Call]:
    """Build pairs of calls, each on other sizes so that no chain is longer; 50 MB are read and written in 100 us."""
    return [("cos", [[25 * MEGA + 64 * (n // 2)]], "c10::Half", 100, ADD) for n in range(2 * pairs)]


def attention(count: int, keys: int = 1000) -> list[Call]:
    """Build attention of 1,000 keys written out; the scores are of another product where ``keys`` differ."""
    q, k, v, scores = [8, 1000, 64], [8, 64, keys], [8, 1000, 64], [8, 1000, 1000]
    once: list[Call] = [("bmm", [q, k], "c10::Half", 40, GEMM), ("div", [scores, []], "c10::Half", 60, ADD),
                        ("_softmax", [scores, [], []], "c10::Half", 70, SOFTMAX), ("bmm", [scores, v], "c10::Half", 40, GEMM)]  # fmt: skip
    return once * count


@pytest.mark.slow
def test_chains_that_shapes_prove_take_the_place_of_guessed_ones() -> None:
    fuse = advised("fusion", python("models/wave.py(12): forward", 0, 1_000), eager(cos_cos(6)))
    assert fuse.saves_ns_at_most == 600_000, "two of four passes"
    assert fuse.code == "torch.compile(f)  # fuses the chain into one kernel"
    assert fuse.where == "x.cos().cos(), in forward (models/wave.py:12), 6 times (600 us)"
    assert (fuse.start_ns, fuse.end_ns) == (10_000_000, 10_200_000), "a chain"


def test_repeated_calls_are_no_chain_where_some_were_not_recorded() -> None:
    """Kernels launched before the recording have the name of those with an operator, which repeat one call."""
    recorded = eager([("mul_", [[1 << 24], []], "c10::Half", 100, ADD)] * 12, at=1_300)
    assert "fusion" in ids(analysed(in_a_row(ADD)))
    assert "fusion" not in ids(analysed(in_a_row(ADD), recorded))


@pytest.mark.slow
def test_only_chains_in_the_window_count() -> None:
    steps = [
        [annotation(f"ProfilerStep#{n}", 1_300 * n, 1_250), eager(cos_cos(6), at=1_300 * n, first=100 * n + 1)]
        for n in range(3)
    ]
    assert saved(analysed(steps, step="all"))["fusion"] == 3 * 600_000
    assert saved(analysed(steps, step=1))["fusion"] == 600_000


def test_attention_written_out() -> None:
    report = analysed(eager(attention(6)))
    item = next(item for item in report.advice if item.id == "attention-kernel")
    fused = 2 * 2 * 8 * 1000 * 1000 * 64 / 312e12 * 1e9
    assert item.saves_ns_at_most == int(6 * (210_000 - fused)), "all of it but a fused kernel at its roof"
    assert "F.scaled_dot_product_attention" in item.code
    assert not {"fusion", "skinny-matmuls"} & set(ids(report)), "its kernels count once"


@pytest.mark.slow
@pytest.mark.parametrize(("queries", "keys", "us", "asks"), [(1, 8_000, 1_000, True), (128, 128, 100, False)])
def test_attention_of_many_queries_reads_no_cache_for_a_few(queries: int, keys: int, us: int, asks: bool) -> None:
    """Flash attention of a prefill may wait for memory too, but neither a bigger batch nor a smaller cache helps it."""
    inputs = {
        "Input Dims": [[64, 16, queries, 64], *[[64, 16, keys, 64]] * 2, [], []],
        "Input type": [*["c10::Half"] * 3, "Scalar", "Scalar"],
        "Concrete Inputs": ["", "", "", "0.0", "False"],
    }
    report = analysed([
        [op("aten::_scaled_dot_product_flash_attention", 20 * n, 10, **inputs), launched(FLASH, 20 * n + 2, 1_000 + us * n, us, n + 1, grid=[5_000, 1, 1])]
        for n in range(12)
    ])  # fmt: skip
    assert report.verdict.regime == "memory-bandwidth-bound"
    assert report.tables["activities"].get_column("moved_bytes").null_count() == 0
    assert ("skinny-matmuls" in ids(report)) == asks


@pytest.mark.slow
def test_what_waits_for_the_cpu_needs_no_fusion() -> None:
    report = analysed(eager([*cos_cos(3), *attention(3)], late=True))
    assert (report.verdict.regime, report.verdict.runner_up) == ("overhead-bound", None)
    assert not {"fusion", "attention-kernel", "skinny-matmuls"} & set(ids(report))


def test_what_runs_beside_other_kernels_saves_no_more_than_its_part() -> None:
    both = [kernel(ADD, 30 * n, 30, stream=stream, grid=[500, 1, 1]) for n in range(40) for stream in (7, 8)]
    report = analysed(both)
    (fuse,) = report.advice
    assert fuse.saves_ns_at_most == 39 * 30_000, "not 2 x 39 x 30 us"
    assert report.verdict.parts_ns["memory"] == 1_200_000
    assert "limited to the part of the window" in fuse.how_bound


@pytest.mark.slow
def test_two_kernels_side_by_side_take_their_time_once() -> None:
    """Check that the saving is half of the time in which both run, and nothing while a matmul runs too."""
    wide = ADD.replace("<4, x>", "<4, at::native::CUDAFunctor_add<float>, x>")
    pairs = [kernel(wide, 60 * n, 50, stream=stream, grid=[500, 1, 1]) for n in range(12) for stream in (7, 8)]
    item = advised("fewer-bytes", pairs)
    assert item.saves_ns_at_most == 12 * 25_000
    assert item.where == "vectorized_elementwise_kernel (600 us)"
    assert "24 memory-bound kernels read and write fp32 (85 % of the window)" in item.why
    beside = [kernel("my_gemm", 60 * n + 10, 20, stream=9, grid=[500, 1, 1]) for n in range(12)]
    assert saved(analysed(pairs, beside))["fewer-bytes"] == 12 * 15_000
    collectives = [
        [op("record_param_comms", 100 * n, 20, **{"Collective name": "allreduce", "In msg nelems": 1_000, "dtype": "Float"}),
         *(launched(NCCL, 100 * n + 5 + 6 * s, 100 * n + 20, 70, 2 * n + s + 1, stream=20 + s) for s in (0, 1))]
        for n in range(12)
    ]  # fmt: skip
    assert saved(analysed(collectives))["gradient-buckets"] == 12 * 70_000


@pytest.mark.slow
def test_an_optimizer_of_many_passes_where_memory_limits() -> None:
    passes: list[Call] = [(name, [[25 * MEGA]], "float", 200 + 10 * n, ADD) for n, name in
                          enumerate(("lerp_", "addcmul_", "sqrt", "addcdiv_"))]  # fmt: skip
    report = analysed(annotation("Optimizer.step#AdamW.step", 0, 500), eager(passes * 3))
    assert report.verdict.regime == "memory-bandwidth-bound"
    assert saved(report)["fused-optimizer"] == 3 * (200 + 210 + 220) * 1_000
    assert "fusion" not in ids(report), "its kernels count once"


@pytest.mark.slow
def test_products_that_miss_the_matrix_units_by_their_shapes() -> None:
    """7.05 ms at the peak of fp32, 881 us at that of TF32."""
    report = analysed(eager([("mm", SQUARE, "float", 8_000, FP32)] * 12))
    assert saved(report)["tf32"] == pytest.approx(12 * (8e6 - FLOP / 156e12 * 1e9), abs=2)
    assert "max-autotune" not in ids(report), "the same time"
    thin = [("mm", [[1, 4096], [4096, 4096]], "float", 100, "void gemv2T_kernel_val<int, float>(x)")] * 12
    assert not {"tf32", "tensor-cores"} & set(ids(analysed(eager(thin)))), "memory holds it on any unit"


def test_halves_on_vector_units_want_other_sizes() -> None:
    simt = "void cutlass::Kernel2<cutlass_80_simt_hgemm_128x64_8x5_nn_align1>()"
    report = analysed(eager([("mm", SQUARE, "c10::Half", 5_000, simt)] * 12))
    assert saved(report)["padding"] == pytest.approx(12 * (5e6 - FLOP / 312e12 * 1e9), abs=2)


@pytest.mark.slow
def test_recomputation_is_a_trade() -> None:
    report = analysed(again("CheckpointFunctionBackward", **{"Sequence number": 7, "Fwd thread id": 0}))
    assert report.verdict.regime == "compute-bound"
    assert saved(report)["recompute-less"] == 500_000
    assert "less-work" not in ids(report), "something is known to gain"


@pytest.mark.slow
def test_many_small_copies() -> None:
    small, large = (
        analysed(kernel("k", 1_210, 600), [copy("HtoD (Pageable -> Device)", 10 + 100 * n, 100, bytes=size) for n in range(12)])
        for size in (1_000, 1 << 20)
    )  # fmt: skip
    assert (
        saved(small).items() >= {"copies": 1_200_000, "small-copies": 1_200_000}.items()
    )  # the bytes take 0.4 us from pinned memory
    why = {item.id: item.why for item in large.advice}
    assert "small-copies" not in why
    assert "100 % of the copies' time is from or to pageable memory" in why["copies"]


@pytest.mark.slow
def test_small_messages_want_bigger_buckets() -> None:
    trains = op("Optimizer.step#Adam.step", 3_000, 2)
    for around, also, code in (
        ("Optimizer.step#SGD.step", trains, "parameters_to_vector"),
        ("ddp.reducer::copy_bucket_to_grad", trains, "bucket_cap_mb=100"),
        ("deepspeed/runtime/engine.py(1): step", trains, "reduce_bucket_size"),
        ("aten::mm", [], "torch.cat([a.flatten()"),
    ):
        item = advised("gradient-buckets", messages(1_000), op(around, 1_300, 2), also)
        assert (item.saves_ns_at_most, code in item.code) == (11 * 80_000, True), "one stays"
    each = [annotation(f"ProfilerStep#{n}", 100 * n, 99) for n in range(12)]
    assert "gradient-buckets" not in ids(analysed(messages(1_000), each)), "one a step cannot be merged"


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "trains", "code"), [
    ("_allgather_base", "Optimizer.step#Muon.step", "register_post_accumulate_grad_hook"),
    ("_allgather_base", "FSDP::pre_forward", "set_modules_to_forward_prefetch"), ("_allgather_base", "", "async_op=True"),
    ("allreduce", "Optimizer.step#Adam.step", "register_post_accumulate_grad_hook"), ("alltoall", "FSDP::pre_forward", "all_to_all_single(out, x, async_op=True)"),
    ("allreduce", "", "all_reduce(x, async_op=True)"), ("allreduce", "megatron/core/ddp.py(1): f", "--overlap-grad-reduce"),
    ("allreduce", "DistributedDataParallel.forward", "options of the program's own"), ("allreduce", "deepspeed/ops.py(1): f", "overlap_comm"),
])  # fmt: skip
def test_the_code_of_overlap_is_for_the_collectives_of_the_program(name: str, trains: str, code: str) -> None:
    adam = [op(trains, 2_990, 2), op("Optimizer.step#Adam.step", 3_000, 2)] if trains else op("aten::mm", 3_000, 2)
    item = advised("overlap", messages(20_000_000, name=name), kernel(GEMM, 1_300, 300), adam)
    assert code in item.code.splitlines()[0]


@pytest.mark.parametrize(
    ("forward", "code"), [(3, "register_post_accumulate_grad_hook"), (4, "as another half of the batch")]
)
def test_collectives_of_the_forward_pass_exchange_no_gradients(forward: int, code: str) -> None:
    modules = [op("nn.Module: Linear_0", 100 * n, 20) for n in range(forward)]
    adam = op("Optimizer.step#Adam.step", 3_000, 2)
    assert code in advised("overlap", messages(20_000_000), kernel(GEMM, 1_300, 300), modules, adam).code


@pytest.mark.slow
@pytest.mark.parametrize(
    "event", [lambda t: call("cudaMalloc", t + 100, 4_500), lambda t: op("aten::conv2d", t + 100, 4_700)]
)
def test_a_cold_start_has_advice_of_its_own(event: Callable[[int], dict[str, Any]]) -> None:
    """Each kernel runs for the first time, after 5 ms of allocation or of a library that starts, which happens once."""
    report = analysed(first_uses(same=False), [event(5_000 * n) for n in range(12)])
    assert report.verdict.cause == "cold-start"
    assert ids(report) == ["warm-up"]
    assert report.advice[0].where.startswith(f"{event(0)['name']} (")
    assert report.advice[0].saves_ns_at_most <= sum(report.verdict.parts_ns.values())


def test_loading_before_first_uses_is_no_cold_start() -> None:
    """One batch is recorded, so every kernel runs for the first time; the next batch is loaded as the first was."""
    report = analysed(first_uses(same=False), [annotation(LOADS, 5_000 * n + 100, 4_700) for n in range(12)])
    assert report.verdict.cause == "data-loading"
    assert ids(report)[0] == "data-loading"


@pytest.mark.slow
@pytest.mark.parametrize(("regions", "says"), [(0, False), (1, False), (12, True)])
def test_code_that_is_compiled_without_graphs_is_called_so(regions: int, says: bool) -> None:
    compiled = [op("Torch-Compiled Region: 0/0", 1_000 * n, 950) for n in range(regions)]
    first = analysed(iterations(lambda t: op("aten::mm", t, 850)), compiled).advice[0]
    assert ("already compiled" in first.why) == says


@pytest.mark.slow
def test_amd_and_intel_have_words_of_their_own() -> None:
    """A device without a name is known by its runtime."""
    nameless = {"id": 0, "name": ""}
    late = [[call("urEnqueueKernelLaunch", 5_000 * n + 4_900, 5, correlation=n + 1, category="xpu_runtime"),
             kernel(GEMM, 5_000 * n + 4_910, 50, correlation=n + 1), op("aten::sort", 5_000 * n, 4_800)] for n in range(12)]  # fmt: skip
    mixed = iterations(lambda t: op("aten::mm", t, 400), lambda t: call("hipMalloc", t + 400, 450))
    for device in (
        nameless,
        {"id": 0, "name": "AMD Instinct MI300X", "computeMajor": 9, "computeMinor": 4, "numSms": 304},
    ):
        assert "HIP graph" in advised("cuda-graphs", mixed, devices=[device]).title
        assert "PYTORCH_HIP_ALLOC_CONF" in advised("allocator", mixed, devices=[device]).code
    for device in (nameless, {"id": 0, "name": "Intel(R) Data Center GPU Max 1550"}):
        assert '.to("xpu"' in advised("cpu-operators", late, devices=[device]).code


def test_workers_that_do_not_keep_up() -> None:
    loads = LOADS.replace("SingleProcess", "MultiProcessing")
    item = analysed(iterations(lambda t: annotation(loads, t, 850))).advice[0]
    assert "num_workers=2 * workers" in item.code
    assert "do not keep up" in item.why


# The catalogue

every_fix = pytest.mark.parametrize("fix", fixes().values(), ids=list(fixes()))
ROOT = Path(__file__).parents[1]
VALUES = {
    "products": "matmuls", "workers": "8", "dtype": "bf16", "torch_dtype": "bfloat16", "scaled": "", "factory": "arange",
    "chains": "torch.compile(f)", "sizes": "rows 13 → 16", "profile": "ncu softmax_kernel", "first": "Hide",
    "also": "  # 2 other kernels have such a name", "or_fewer_bits": ", or fewer bits",
    "optimizer": "optimizer = torch.optim.SGD(model.parameters(), **options, fused=True)",
    "between": "", "when": "once", "what": "stacks", "reached": ": kernels reach 80 % of the roof", "arguments": ", scale=1.0", "about": "",
}  # fmt: skip


@pytest.mark.parametrize("fix_id", pages())
def test_a_page_of_advice_has_all_sections_and_its_links_lead_somewhere(fix_id: str) -> None:
    sections = pages()[fix_id]["sections"]
    assert tuple(sections) == HEADINGS
    assert all(sections.values())
    ast.parse(sections["Example"].removeprefix("```python").removesuffix("```"))
    page = ROOT / page_of(fix_id)
    for link in re.findall(r"\]\(([^)#]+\.md)", page.read_text("utf-8")):
        assert (page.parent / link).is_file(), link
    assert f"](../{page_of(fix_id)})" in (ROOT / "docs" / "advice.md").read_text("utf-8")


@every_fix
def test_a_fix_is_well_formed(fix: Fix) -> None:
    assert set(fix.regimes) <= set(REGIMES)
    for platform in PLATFORMS:
        assert fix.title_of(platform, **VALUES).strip()
        for case in ("", *fix.cases):
            code = fix.code_of(platform, case, **VALUES)
            ast.parse(code)
            assert platform != "xpu" or "cuda" not in (code + fix.title_of(platform, **VALUES)).lower(), case


def test_a_wait_has_code_for_each_way_to_write_it() -> None:
    written = {rule.name for rule in code_rules("sources")}
    assert set(fixes()["synchronization"].cases) - written == {
        "routing to experts",  # told by modules
        # told by the copies' direction, and by modules
        *("copies to the device within a module", "copies to the device", "copies to the host", "index on the CPU"),
        "copies of a pipeline",  # told by frames
        "GradScaler's check for overflow without a fused optimizer",  # told by the optimizer's class
    }
    assert written < set(fixes()["synchronization"].cases)


def test_code_in_the_case_of_a_program_or_a_cause() -> None:
    precision, wait = fixes()["low-precision"], fixes()["synchronization"]
    assert "convert_to_float8_training" in precision.code_of("cuda", "training")
    assert "quantize_" in precision.code_of("cuda", "inference").splitlines()[0]
    assert "output_size" in wait.code_of("hip", "repeat_interleave")
    for name in ("cuda-graphs", "bigger-batch"):
        assert not any(
            "serving" in fixes()[name].code_of("cuda", case) for case in ("training", "inference", "decoding")
        )
    assert wait.code_of("cuda", "what nobody wrote") == wait.code_of("cuda")


# Each fix: a trace that calls for it, and a similar one that does not

V100 = {"id": 0, "name": "Tesla V100-SXM2-32GB", "computeMajor": 7, "computeMinor": 0, "numSms": 80}
H100 = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "computeMajor": 9, "computeMinor": 0, "numSms": 132}
WIDE = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, x>(int)"


def apart(name: str, **args: object) -> list[object]:
    """Build kernels on streams of their own, one after the other."""
    return [kernel(name, 60 * n, 50, grid=[500, 1, 1], stream=7 + n, **args) for n in range(12)]


def in_a_row(name: str) -> list[object]:
    return [launched(name, 20 * n, 400 + 100 * n, 100, n + 1, grid=[500, 1, 1]) for n in range(12)]


def replayed(*names: str) -> list[object]:
    """Build a graph of 40 kernels with these names in turn."""
    kernels = [kernel(names[n % len(names)], 20 + 40 * n, 40, correlation=1, grid=[500, 1, 1]) for n in range(40)]
    return [call("cudaGraphLaunch", 0, 10, correlation=1), *kernels]


def graphs(each: int) -> list[object]:
    """Build late launches of so many kernels each."""
    return [
        [op("aten::mm", 1_000 * n, 790), call("cudaGraphLaunch", 1_000 * n + 800, 10, correlation=n + 1),
         *(kernel(f"k{k}", 1_000 * n + 815 + 10 * k, 9, correlation=n + 1) for k in range(each))]
        for n in range(12)
    ]  # fmt: skip


def small_replayed(name: str) -> list[object]:
    """Build graphs of 90 small kernels of this name, back to back."""
    return [
        [call("cudaGraphLaunch", 1_000 * n, 10, correlation=n + 1),
         *(kernel(name, 1_000 * n + 15 + 11 * k, 10, correlation=n + 1, grid=[8, 1, 1]) for k in range(90))]
        for n in range(12)
    ]  # fmt: skip


def partly_graphs(single: int) -> list[object]:
    """Build 12 graphs of 5 kernels and so many single launches: 60 of 66 kernels are over nine tenths, of 67 not."""
    return [graphs(5), [launched("k0", 1_000 * n + 900, 1_000 * n + 905, 4, 100 + n) for n in range(single)]]


def launching_and_loading(us: int) -> list[object]:
    """Build milliseconds, each with ``us`` in an operator, and 850 us less that in the data loader."""
    return iterations(lambda t: op("aten::mm", t, us), lambda t: annotation(LOADS, t + us, 850 - us))


def late(
    make: Callable[..., Any], asks: str, does_not: str, us: int = 850, period: int = 1_000
) -> tuple[list[object], list[object]]:
    """Build two loops whose launches are late for an event of either name."""
    asking, other = (iterations(lambda t, name=name: make(name, t, us), period=period) for name in (asks, does_not))
    return asking, other


def several(make: Callable[[int, int], object], us: int, period: int = 1_000) -> list[object]:
    """Build as many events of a length, one after the other, as go into a period before its launch."""
    count = (period - 150) // (us + 1)
    return iterations(*(lambda t, n=n: make(t + (us + 1) * n, us) for n in range(count)), period=period)  # type: ignore[misc]


def with_calls(name: str) -> list[object]:
    """Build a call after each launch that lasts until the kernel ends."""
    return [[launched(GEMM, 200 * n, 200 * n + 10, 110, n + 1), call(name, 200 * n + 6, 115)] for n in range(12)]


def uploads(call_ends_after: int, memory: str = "Pageable") -> list[object]:
    """Build copies and products in turn; the copy's call takes so long, the copy ends 380 us after it began."""
    return [
        [call("cudaMemcpyAsync", 500 * n, call_ends_after, correlation=2 * n + 1),
         copy(f"HtoD ({memory} -> Device)", 500 * n + 370, 10, correlation=2 * n + 1),
         launched(GEMM, 500 * n + 410, 500 * n + 420, 60, 2 * n + 2)]
        for n in range(12)
    ]  # fmt: skip


def messages(
    elements: int, us: int = 80, at: int = 15, every: int = 100, name: str = "allreduce", stream: int = 7, ranks: int = 8
) -> list[object]:  # fmt: skip
    """Build collectives of floats by some ranks, one after the other."""
    args = {"Collective name": name, "In msg nelems": elements, "dtype": "Float", "Group size": ranks}
    return [
        [op("record_param_comms", 100 * n, 20, **args), launched(NCCL, 100 * n + 5, at + every * n, us, n + 1, stream=stream)]
        for n in range(12)
    ]  # fmt: skip


def copied(computes: int, direction: str = "HtoD (Pinned -> Device)") -> list[object]:
    """Build copies behind which a kernel of the given length could run."""
    return [*(copy(direction, 100 * n, 100, bytes=1 << 20) for n in range(12)), kernel("k", 1_200, computes)]


def moved(direction: str, size: int) -> list[object]:
    return [kernel(GEMM, 0, 10), *(copy(direction, 10 + 100 * n, 100, bytes=size) for n in range(12))]


def first_uses(same: bool) -> list[object]:
    return [launched("k" if same else f"k{n}", 5_000 * n + 4_900, 5_000 * n + 4_910, 50, n + 1) for n in range(12)]


def again(node: str, **numbers: int) -> list[object]:
    """Build a product, and again in the backward pass, in an autograd node; ``numbers`` that autograd gave it there."""
    halves = {"Input Dims": SQUARE, "Input type": ["c10::Half"] * 2}
    return [
        [op("aten::mm", at, 10, **halves, **own), launch(at + 2, 5, n), kernel(GEMM, 1_000 + 500 * n, 500, correlation=n, grid=[500, 1, 1])]
        for at, n, own in ((0, 1, {}), (110, 2, numbers))
    ] + [op(node, 100, 200, **{"Sequence number": 1, "Fwd thread id": 1})]  # fmt: skip


def queued(waits: bool) -> list[object]:
    """Build work that is queued long before it starts."""
    early = [[launch(n, 1, n), kernel(GEMM, 100 * n, 60, correlation=n)] for n in range(1, 14)]
    return [early, kernel(NCCL, 0, 20)] if waits else [early]


def extending(us: int) -> list[object]:
    """Build products, and kernels of an extension that take so long each."""
    own = [kernel("my_own_operator(int)", 2_960 + 12 * n, us) for n in range(12)]
    return [in_a_row(GEMM), kernel(GEMM, 1_600, 1_352), *own]


def capturing(begin: str) -> list[object]:
    """Build a millisecond before each kernel in which launches may go into a graph."""
    inside = [[op("aten::mm", 2_000 * n + 5, 900), call("cudaStreamEndCapture", 2_000 * n + 910, 2)] for n in range(12)]
    around = [
        [call(begin, 2_000 * n, 2), launched(GEMM, 2_000 * n + 920, 2_000 * n + 930, 1_000, n + 1)] for n in range(12)
    ]
    return [around, inside if begin == "cudaStreamBeginCapture" else []]


def behind(until: int) -> list[object]:
    """Build a kernel that starts 9 ms after launch, the CPU waiting for the device up to some instant; then work."""
    return [
        [launched("first", 0, 10, 3, 1), launched("second", 100, 9_000, 7, 2, stream=20)],
        call("cudaStreamSynchronize", 110, until - 110),
        [launched(GEMM, 9_100 + 100 * n, 9_110 + 100 * n, 90, n + 10, stream=20) for n in range(90)],
    ]


def converted(around: str | None) -> list[object]:
    """Build conversions, in the middle of an operator if one is given."""
    return [
        [*([op(around, 40 * n, 35)] if around else []), op("aten::_to_copy", 40 * n + 5, 20),
         launched(CAST, 40 * n + 10, 1_000 + 100 * n, 100, n + 1, grid=[5_000, 1, 1])]
        for n in range(12)
    ]  # fmt: skip


def copied_within(region: str, direction: str = "DtoD (Device -> Device)") -> list[object]:
    copies = [
        [call("cudaMemcpyAsync", 40 * n + 10, 5, correlation=n + 1),
         copy(direction, 1_000 + 100 * n, 100, correlation=n + 1, bytes=100_000_000)]
        for n in range(12)
    ]  # fmt: skip
    beside = [kernel(ADD, 2_200 + 100 * n, 90, grid=[5_000, 1, 1], stream=9 + n) for n in range(6)]
    return [op(region, 0, 600), *copies, beside]


def with_python(us: int) -> list[object]:
    """Build steps of three launches with operators between them, and Python of the program's own before each."""
    return iterations(
        lambda t: op("aten::mm", t, 40), lambda t: python("log.py(3): to_file", t + 50, us), lambda t: op("aten::mm", t + us + 60, 40),
        period=us + 300,
    )  # fmt: skip


def labels(runs: int) -> list[object]:
    """Build one call of a zero-shot pipeline that runs its model for so many labels."""
    frame = "transformers/pipelines/zero_shot_object_detection.py({}): {}"
    calls = [python(frame.format(184, "_forward"), 100 + 5_000 * n, 4_000) for n in range(runs)]
    return [python(frame.format(65, "__call__"), 10, 13_000), *calls, iterations(lambda t: op("aten::mm", t, 850))]


def waits(t: int, us: int) -> object:
    return python("queue.py(154): get", t, us)


def sorts(t: int, us: int) -> object:
    return op("aten::sort", t, us)


CAST = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda, x>(int)"
CASES: dict[str, tuple[list[object], list[object]]] = {
    # Traces that call for a fix, and near misses: beyond a threshold, or without one condition.
    "cuda-graphs": (partly_graphs(7), partly_graphs(6)),
    "bigger-batch": (launching_and_loading(380), launching_and_loading(360)),
    "fused-optimizer": (optimizer("aten::addcdiv_", count=50), optimizer("aten::addcdiv_", count=49)),
    "set-to-none": (optimizer("aten::zero_", "Optimizer.zero_grad#SGD.zero_grad"), optimizer("aten::zero_", "clear")),
    "garbage-collection": late(python, "<built-in function collect>", "train.py(9): collect"),
    "host-wait": (several(waits, 110), several(waits, 95)),
    "synchronization": (with_calls("cudaDeviceSynchronize"), with_calls("cudaEventQuery")),
    "data-loading": late(annotation, LOADS, "## reload ##"),
    "allocator": late(call, "cudaMalloc", "cudaFuncGetAttributes"),
    "recompilation": late(python, "torch/_dynamo/convert_frame.py(1): _compile", "torch/_dynamo/eval_frame.py(1): _fn"),
    "lazy-loading": late(partial(call, category="cuda_driver"), "cuModuleLoadData", "cuCtxGetCurrent"),
    "warm-up": (first_uses(same=False), first_uses(same=True)),
    "graph-capture": (capturing("cudaStreamBeginCapture"), capturing("cudaStreamIsCapturing")),
    "python-work": (with_python(2_000), with_python(900)),
    "labels-at-once": (labels(2), labels(1)),
    "record-stacks": (iterations(), iterations(lambda t: op("aten::mm", t, 700))),
    "earlier-work": (behind(8_150), behind(8_100)),
    "pinned-memory": (uploads(381), uploads(379, "Pinned")),
    "cpu-operators": (several(sorts, 1_010, period=5_000), several(sorts, 990, period=5_000)),
    "cpu-preparation": late(op, "aten::randn", "aten::sort", 4_800, 5_000),
    "casts": (converted("aten::linear"), converted(None)),
    "compiled-copies": (copied_within("Torch-Compiled Region: 0/0"), copied_within("aten::copy_")),
    "device-copies": (copied_within("aten::copy_"), copied_within("Torch-Compiled Region: 0/0")),
    "custom-kernels": (extending(12), extending(11)),
    "transport": (messages(4_000_000, 9_400, 2_000, 9_400), messages(4_000_000, 9_300, 2_000, 9_300)),
    "attention-kernel": (eager(attention(6)), eager(attention(6, keys=999))),
    "fusion": (memory_bound(7), apart(ADD)),
    "fuse-replayed": (small_replayed(ADD), small_replayed("triton_poi_fused_add_0")),
    "channels-last": (apart("void nchwToNhwcKernel<__half, __half>(x)"), apart("void nchwAddKernel<__half, __half>(x)")),
    "fewer-bytes": (apart(WIDE), apart(WIDE.replace("<float>", "<c10::Half>"))),
    "skinny-matmuls": (replayed("void gemv2T_kernel_val<int, float>(x)"), replayed(GEMM)),
    "tensor-cores": (in_a_row(FP32), in_a_row("volta_fp16_s884gemm_fp16_128x64_ldg8_f2f_nn")),
    "tf32": (in_a_row(FP32), in_a_row(GEMM)),
    "padding": (in_a_row(f"cutlass_80_tensorop_{GEMM}_align2"), in_a_row(f"cutlass_80_tensorop_{GEMM}_align4")),
    "low-precision": (in_a_row(GEMM), in_a_row(FP32)),
    "inefficient-kernels": (matmuls(1_765), matmuls(1_760)),
    "few-tiles": (matmuls(1_765, "my_gemm", blocks=53), matmuls(1_765, "my_gemm", blocks=54)),
    "max-autotune": (matmuls(563), matmuls(561)),
    "recompute-less": (again("CheckpointFunctionBackward", **{"Sequence number": 7, "Fwd thread id": 0}), again("MmBackward0")),
    "less-work": (matmuls(561), matmuls(563)),
    "overlap": ([in_a_row(NCCL), kernel(GEMM, 1_600, 25)], [in_a_row(NCCL), kernel(GEMM, 1_600, 20)]),
    "gradient-buckets": (messages((1 << 20) - 1), messages(1 << 20)),
    "copies": (copied(25), copied(24)),
    "peer-copies": (copied(25, "PtoP (Device -> Device)"), copied(24, "PtoP (Device -> Device)")),
    "small-copies": (moved("HtoD (Pinned -> Device)", (64 << 10) - 1), moved("HtoD (Pinned -> Device)", 64 << 10)),
    "dependencies": (queued(waits=True), queued(waits=False)),
}  # fmt: skip
ON = {"tensor-cores": V100, "low-precision": H100}
SNAPSHOTS = Path(__file__).parent / "golden" / "advice.jsonl"
"""Each piece of advice on its trace: id, place, case of its page's code, what is filled in; ``UPDATE_GOLDEN=1`` writes it."""


def filled(template: str, text: str) -> list[str] | None:
    """Return what the placeholders of a template are in a text; None if it is not made of that template."""
    between = re.split(r"\$\{?\w+\}?", template)
    match = re.fullmatch("(.*)".join(map(re.escape, between)), text, re.DOTALL)
    return match and [*match.groups()]


def check_snapshot(item: Advice) -> None:
    page = pages()[item.id]
    title = filled(page["title"], item.title)
    assert title is not None
    code = item.code.removeprefix("# before the capture: a graph repeats the kernels that it captured\n")
    codes = {case: filled(texts["code"], code) for case, texts in ({"": page} | page["cases"]).items()}
    case, values = next((case, values) for case, values in codes.items() if values is not None)
    known = {line.split('"')[1]: line for line in SNAPSHOTS.read_text("utf-8").splitlines()}
    line = json.dumps([item.id, item.where, case, *title, *values])
    if os.environ.get("UPDATE_GOLDEN"):
        known[item.id] = line
        SNAPSHOTS.write_text("".join(f"{known[name]}\n" for name in sorted(known)), "utf-8")
    assert line == known[item.id]


def test_every_fix_has_a_rule_and_a_case() -> None:
    assert sorted(CASES) == sorted(RULES) == sorted(fixes())


@pytest.mark.slow
@pytest.mark.parametrize("fix", CASES)
def test_a_fix_is_reported_where_it_helps_and_not_where_it_nearly_does(fix: str) -> None:
    """Check that a fix is reported only where it helps, with code, numbers, bound, timeline place and docs."""
    asks, does_not = (analysed(events, devices=[ON.get(fix, A100)]) for events in CASES[fix])
    (item,) = (item for item in asks.advice if item.id == fix)
    check(item, sum(asks.verdict.parts_ns.values()))
    assert item.docs == page_of(fix)
    assert 0 <= item.start_ns < item.end_ns <= asks.trace.duration_ns
    assert asks.tables["advice_members"].filter(advice=fix).height, "the timeline outlines what it is about"
    assert does_not.verdict.status == "ok"
    assert fix not in ids(does_not)
    check_snapshot(item)
    assert not re.search("[{}]|None|nan", item.title + item.why + item.where + item.how_bound), "a word is missing"
    ast.parse(item.code)
