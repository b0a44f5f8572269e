"""Test conditions of advice: for each, a trace that calls for it, a near miss, and one that has the fix already."""

import itertools
import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from kineto import A100, analysed, annotation, call, copy, kernel, launch, launched, loaded, op, python
from test_advice import (
    ADD,
    CASES,
    FP32,
    GEMM,
    NCCL,
    V100,
    WIDE,
    advised,
    apart,
    converted,
    copied_within,
    cos_cos,
    eager,
    in_a_row,
    iterations,
    matmuls,
    messages,
    saved,
    with_python,
)

from trace_analyzer.advice.kernels import _weights_are_most
from trace_analyzer.pipeline import report_of
from trace_analyzer.units import duration
from trace_analyzer.vocabulary import although

pytestmark = pytest.mark.slow


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("computes", "saves"),
    [((2_000, 500), 500_000), ((2_000, 2_000), 1_200_000), ((0, 1_200), None), ((2_000, 10), None)],
    ids=["less computes than is exposed", "more computes than is exposed", "all is hidden", "hardly anything computes"],
)
@pytest.mark.parametrize("fix", ["overlap", "copies"])
def test_no_more_is_hidden_than_computes(fix: str, computes: tuple[int, int], saves: int | None) -> None:
    """Of 1.2 ms, as much can be hidden as there is other work that does not hide any yet."""
    moves: Callable[[int], Any] = (lambda at: kernel(NCCL, at, 100, stream=20)) if fix == "overlap" else (
        lambda at: copy("HtoD (Pinned -> Device)", at, 100, stream=20))  # fmt: skip
    start, length = computes
    assert saved(analysed([moves(100 * n) for n in range(12)], kernel(GEMM, start, length))).get(fix) == saves


def test_what_hides_a_collective_already_hides_no_other() -> None:
    hidden = [kernel(NCCL, 0, 1_000, stream=20), kernel(GEMM, 0, 1_000)]
    exposed = [kernel(NCCL, 1_000 + 100 * n, 100, stream=20) for n in range(20)]
    assert "overlap" not in saved(analysed(hidden, exposed))
    assert saved(analysed(hidden, exposed, kernel(GEMM, 3_000, 600)))["overlap"] == 600_000


def products(rows: int, operator: str = "mm", each: int = 100) -> list[Any]:
    """Build products of some rows with 4096 x 4096 half weights (33.6 MB), or of batches of activations."""
    dims = {
        "mm": [[rows, 4096], [4096, 4096]],
        "bmm": [[64, 1, 4096], [64, 4096, 64]],
        "gradient": [[40, rows], [rows, 128]],
    }[operator]
    name = "aten::bmm" if operator == "bmm" else "aten::mm"
    return [
        [op(name, 20 * n, 10, **{"Input Dims": dims, "Input type": ["c10::Half"] * 2}), launch(20 * n + 2, 4, n + 1),
         kernel(GEMM, 1_000 + each * n, each, correlation=n + 1, grid=[500, 1, 1])]
        for n in range(12)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "operator", "asks"),
    [(4, "mm", True), (1_500, "mm", False), (0, "bmm", False), (100_000, "gradient", False)],
    ids=["a few rows", "many rows", "no weights", "the gradient of weights"],
)
def test_fewer_bits_per_weight_where_weights_are_most_of_the_bytes(rows: int, operator: str, asks: bool) -> None:
    others = [kernel(ADD, 3_000 + 60 * n, 50, grid=[500, 1, 1]) for n in range(30)]
    report = analysed(products(rows, operator), others)
    assert report.verdict.regime == "memory-bandwidth-bound"
    assert ("skinny-matmuls" in saved(report)) == asks


@pytest.mark.parametrize(
    ("name", "operator"),
    [
        ("void kgemm_4bit_inference_naive<__nv_bfloat16, 128, 16>(int)", "bitsandbytes::gemv_4bit"),
        ("gemv_kernel", "aten::_weight_int4pack_mm"), ("void gemm_half_q_half_gptq_4bit_kernel<true, 4>(x)", None),
    ],
)  # fmt: skip
def test_weights_of_four_bits_by_kernel_or_operator(name: str, operator: str | None) -> None:
    around = [op(operator, 20 * n, 15) for n in range(12)] if operator else []
    work = [launched(name, 20 * n + 1, 400 + 100 * n, 100, n + 1, grid=[500, 1, 1]) for n in range(12)]
    others = [kernel(ADD, 1_600 + 100 * n, 100, grid=[500, 1, 1], stream=9 + n) for n in range(14)]
    advice = {item.id: item for item in analysed(around, work, others).advice}
    assert "skinny-matmuls" not in advice or "fewer bits" not in advice["skinny-matmuls"].title
    assert not {"torch.matmul", "quantize_("} & {
        word for item in advice.values() for word in re.findall(r"[\w.]+\(?", item.code)
    }


@pytest.mark.parametrize("trains", [False, True])
def test_what_autocast_leaves_in_fp32_moves_no_fewer_bytes_in_training(trains: bool) -> None:
    norm = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int)"
    work = [
        [op(name, 40 * n + 20 * k, 15), launched(kernel_name, 40 * n + 20 * k + 2, 1_000 + 200 * n + 100 * k, 100, 2 * n + k + 1, grid=[500, 1, 1])]
        for n in range(12)
        for k, (name, kernel_name) in enumerate((("aten::native_layer_norm", norm), ("aten::add", WIDE)))
    ]  # fmt: skip
    report = analysed(work, annotation("Optimizer.step#SGD.step", 990, 2) if trains else [])
    assert saved(report)["fewer-bytes"] == (12 if trains else 24) * 50_000


@pytest.mark.parametrize("within", [False, True])
def test_what_an_optimizer_launches_moves_no_fewer_bytes(within: bool) -> None:
    """Passes of 100 us are launched within a step of the optimizer, or right behind it; 10 of 12 steps are steady."""
    work = [
        [annotation("Optimizer.step#SGD.step", 40 * n, 18 if within else 2), op("aten::add", 40 * n + 5, 12),
         launched(WIDE, 40 * n + 7, 1_000 + 100 * n, 100, n + 1, grid=[500, 1, 1])]
        for n in range(12)
    ]  # fmt: skip
    assert saved(analysed(work)).get("fewer-bytes") == (None if within else 10 * 50_000)


def test_products_in_tf32_are_computed_in_16_bits() -> None:
    """Arithmetic limits 12 convolutions in TF32; without shapes half of their time may go, as for a peak twice as high."""
    name = "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16"
    item = {item.id: item for item in analysed(in_a_row(name)).advice}["fewer-bytes"]
    assert item.title == "Compute in 16 bits: bf16 instead of fp32"
    assert "12 convolutions ran in TF32" in item.why
    assert "fewer-bytes" not in {item.id for item in analysed(in_a_row(FP32)).advice}, "TF32 comes first"


@pytest.mark.parametrize(
    ("group", "name", "also", "code"),
    [
        ("TENSOR_MODEL_PARALLEL_GROUP", "allreduce", "megatron/core/ddp.py(1): f", "--tp-comm-overlap"),
        ("PIPELINE_MODEL_PARALLEL_GROUP", "send", "megatron/core/ddp.py(1): f", "--num-layers-per-virtual-pipeline-stage"),
        ("DATA_PARALLEL_GROUP", "allreduce", "megatron/core/ddp.py(1): f", "--overlap-grad-reduce"),
        ("mesh_pp", "send", "aten::mm", "ScheduleInterleaved1F1B"),
        ("mesh_tp", "allreduce", "FSDP::pre_forward", "as another half of the batch"),
        ("mesh_dp_shard", "_allgather_base", "FSDP::pre_forward", "set_modules_to_forward_prefetch"),
        ("default_pg", "barrier", "FSDP::pre_forward", "# delete torch.distributed.barrier()"),
        ("default_pg", "broadcast", "torch/nn/parallel/data_parallel.py(180): forward", "instead of DataParallel"),
    ],
)  # fmt: skip
def test_collectives_have_the_code_of_their_group(group: str, name: str, also: str, code: str) -> None:
    args = {
        "Collective name": name,
        "In msg nelems": 20_000_000,
        "dtype": "Float",
        "Group size": 8,
        "Process Group Description": group,
    }
    work = [[op("record_param_comms", 100 * n, 20, **args), launched(NCCL, 100 * n + 5, 100 * n + 15, 80, n + 1)] for n in range(12)]  # fmt: skip
    trains = [op(also, 2_990, 2), op("Optimizer.step#Adam.step", 3_000, 2)]
    assert code in advised("overlap", work, kernel(GEMM, 1_300, 300), trains).code


@pytest.mark.parametrize(("operator", "asks"), [("bmm", False), ("mm", True)])
def test_kernels_without_an_operator_are_no_skinny_matmuls_where_others_of_their_name_are_none(
    operator: str, asks: bool
) -> None:
    before = [kernel(GEMM, 60 * n, 50, grid=[500, 1, 1]) for n in range(12)]
    report = analysed(before, products(4, operator, each=50))
    assert set(report.tables["activities"].get_column("bound")) == {"memory"}
    assert ("skinny-matmuls" in saved(report)) == asks


@pytest.mark.parametrize(
    ("name", "operator", "asks"),
    [
        (ADD, "aten::add", True),
        (ADD, None, True),
        ("triton_poi_fused_add_mul_0", None, False),
        (ADD, "CompiledFunction", False),
        ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<x>(int)", None, False),
        (ADD, "aten::_foreach_add_", False),
        (ADD, "aten::miopen_convolution", False),
        # No compiler looks into kernels of other libraries.
        ("void vllm::act_and_mul_kernel<c10::BFloat16>(x)", None, False),
        ("void flashinfer::activation::act_and_mul_kernel<x>(x)", "sgl_kernel::silu_and_mul", False),
        ("_swiglu_forward_kernel", "LigerSiLUMulFunction", False),
        ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(x)", None, True),
    ],
)
def test_only_what_no_one_fused_is_to_be_fused(name: str, operator: str | None, asks: bool) -> None:
    around = [op(operator, 20 * n, 15) for n in range(12)] if operator else []
    work = [launched(name, 20 * n + 1, 400 + 100 * n, 100, n + 1, grid=[500, 1, 1]) for n in range(12)]
    assert ("fusion" in saved(analysed(around, work))) == asks


@pytest.mark.parametrize(
    ("name", "asks"),
    [
        ("void nchwToNhwcKernel<__nv_bfloat16, __nv_bfloat16, float>(x)", True),
        ("void nchwToNhwcKernel<float, float>(x)", False),  # slower in channels last, on an H200
        ("batched_transpose_32x32_dword", False),
        ("batched_transpose_32x32_half", True),
        ("transpose_rows", False),
    ],
)
def test_layouts_of_both_libraries(name: str, asks: bool) -> None:
    turns = [kernel(name, 60 * n, 50, grid=[500, 1, 1], stream=7 + n) for n in range(12)]
    assert saved(analysed(turns)).get("channels-last") == (12 * 50_000 if asks else None)


@pytest.mark.parametrize("computes", [False, True])
def test_copies_alone_are_no_graph(computes: bool) -> None:
    work = [
        [op("aten::to", t, 800), call("cudaMemcpyAsync", t + 800, 5, correlation=n + 1), copy("HtoD (Pinned -> Device)", t + 810, 90, correlation=n + 1)]
        for n, t in enumerate(range(0, 12_000, 1_000))
    ]  # fmt: skip
    report = analysed(work, [launched("k", 12_800, 12_805, 90, 99)] if computes else [])
    assert report.verdict.regime == "overhead-bound"
    assert ("cuda-graphs" in saved(report)) == computes


@pytest.mark.parametrize(
    ("silent_us", "asks", "replayed"), [(0, True, True), (1_500, True, False), (6_000, False, False)]
)
def test_stretches_of_python_may_grow_with_the_batch(silent_us: int, asks: bool, replayed: bool) -> None:
    """Operators and launches take 4 ms of each step: more Python than that is no case for a bigger batch, less has no estimate."""
    work = [
        [annotation(f"ProfilerStep#{step}", t, 4_200 + silent_us),
         *(launched("k", t + silent_us + 200 * n + 190, t + silent_us + 200 * n + 195, 5, 100 * step + n + 1) for n in range(20)),
         *(op("aten::mm", t + silent_us + 200 * n, 185) for n in range(20))]
        for step, t in enumerate(range(0, 8 * (4_200 + silent_us), 4_200 + silent_us))
    ]  # fmt: skip
    report = analysed(work)
    items = [item for item in report.advice if item.id == "bigger-batch"]
    assert len(items) == asks
    assert [item.predicted is not None for item in items] == [replayed] * asks
    for item in items:
        assert item.saving.at_most_ratio == pytest.approx(0.5 * (1 - silent_us / (4_200 + silent_us)), abs=0.02)


@pytest.mark.parametrize(("length", "marked"), [(100, True), (40, False)])
def test_what_is_not_the_limit_is_reported_where_it_saves_over_a_tenth(length: int, marked: bool) -> None:
    """Idle time of 10.2 ms limits; the chain's followers take 1.9 or 0.8 ms of it."""
    idle = iterations(lambda t: op("aten::mm", t, 850))
    report = analysed(idle, [kernel(ADD, 12_000 + length * n, length, grid=[500, 1, 1]) for n in range(20)])
    assert (report.verdict.regime, report.verdict.runner_up) == ("overhead-bound", None)
    assert [item.id for item in report.advice if not item.is_of_limit] == ["fusion"] * marked
    assert all(item.why.startswith("although overhead limits: ") != item.is_of_limit for item in report.advice)


@pytest.mark.parametrize(
    ("regime", "cause", "words"),
    [("communication-bound", "copies", "copies limit"), ("communication-bound", None, "communication limits"),
     ("memory-bandwidth-bound", None, "memory bandwidth limits")],
)  # fmt: skip
def test_what_limits_has_the_headline_s_name(regime: str, cause: str | None, words: str) -> None:
    assert although(regime, cause) == f"although {words}"


@pytest.mark.parametrize(
    ("pageable", "kernel_us", "title"),
    [
        (12, 500, "Pin memory, then hide copies between host and device"),
        (6, 500, "Hide copies between host and device"),  # half of them
        (1, 500, "Hide copies between host and device"),
        (0, 800, "Hide copies between host and device"),
    ],
)
def test_memory_is_pinned_before_copies_hide(pageable: int, kernel_us: int, title: str) -> None:
    memory = ["Pageable"] * pageable + ["Pinned"] * (12 - pageable)
    copies = [copy(f"HtoD ({kind} -> Device)", 100 * n, 100, stream=20) for n, kind in enumerate(memory)]
    item = advised("copies", copies, kernel(GEMM, 2_000, kernel_us))
    assert item.title == title
    # From pinned memory these few bytes take no time, so that nothing is left to hide.
    assert ("keep on the device what is copied again" in item.why) == (pageable < 12 and 2 * kernel_us < 12 * 100)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("rows", "inner", "columns", "words"),
    [
        (64, 3137, 64, "aten::mm with inner size 3,137 → 3,144"),
        (4096, 4096, 50257, "aten::mm with columns 50,257 → 50,264"),
        (4095, 4096, 4097, "aten::mm with rows 4,095 → 4,096, columns 4,097 → 4,104"),
        (4096, 4096, 4096, None),
    ],
)
def test_padding_names_the_dimension_that_is_odd(rows: int, inner: int, columns: int, words: str | None) -> None:
    shapes = {"Input Dims": [[rows, inner], [inner, columns]], "Input type": ["c10::Half"] * 2}
    odd = "cutlass_80_tensorop_f16_s16816gemm_f16_256x128_tn_align1"
    work = [
        [op("aten::mm", 20 * n, 10, **shapes), launch(20 * n + 2, 4, n + 1),
         kernel(odd if words else GEMM, 1_000 + 20_000 * n, 20_000, correlation=n + 1, grid=[5_000, 1, 1])]
        for n in range(12)
    ]  # fmt: skip
    items = [item for item in analysed(work).advice if item.id == "padding"]
    assert [item.code.partition("# ")[2] for item in items] == ([words] if words else [])
    assert all("vocabulary" not in item.code for item in items)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("ranks", "elements", "job", "waits_ms"),
    [
        (8, 4_000_000, {"rank": 0, "world_size": 8}, 6 * (1 - 2 * 7 / 8 * 16e6 / 500e-6 / 300e9)),
        (8, 4_000_000, None, 6 * (1 - 2 * 7 / 8 * 16e6 / 500e-6 / 300e9)),  # by the ranks of the collectives
        (0, 4_000_000, {"rank": 1, "world_size": 2}, None),  # a group of none exchanges nothing
        (8, 1_000, {"rank": 0, "world_size": 8}, 6 * (1 - 2 * 7 / 8 * 4e3 / 500e-6 / 300e9)),  # small messages too
        (8, 4_000_000, {"rank": 0, "world_size": 1}, None),
        (1, 4_000_000, None, None),
    ],
)
def test_communication_in_a_job_may_be_waiting_for_peers(
    ranks: int, elements: int, job: dict[str, int] | None, waits_ms: float | None
) -> None:
    """Collectives run alone for 500 us each, A100s have links of 300 GB/s; a process alone has no peers."""
    work = [kernel(GEMM, 8_000 + 1_000 * n, 900) for n in range(6)]
    header = {"deviceProperties": [A100]} | ({} if job is None else {"distributedInfo": job})
    report = report_of(loaded(messages(elements, 500, 2_000, 500, stream=20, ranks=ranks), work, **header))
    why = {item.id: item.why for item in report.advice if item.id in ("overlap", "gradient-buckets", "transport")}
    assert why
    assert {"analyze ranks" in text for text in (report.verdict.headline, *why.values())} == {waits_ms is not None}
    if waits_ms is not None:
        assert f"({duration(waits_ms * 1e6)}) may be waiting for other ranks" in why["overlap"]


@pytest.mark.parametrize("last_us", [100, 5_900])
@pytest.mark.parametrize(
    ("waits", "title"), [(0, ""), (1, ""), (2, " between waits (2 a step)"), (3, " between waits (3 a step)")]
)
def test_calls_that_wait_stand_in_a_graphs_way(waits: int, title: str, last_us: int) -> None:
    """Check that one wait a step may stand at its end, outside of the graph, and that the last step's counts."""
    times = [last_us, 300, 500][:waits]
    calls = [call("cudaStreamSynchronize", 6_000 * n + us, 1) for n in range(6) for us in times]
    item = advised("cuda-graphs", stepping(), calls)
    assert item.title.endswith(f"replay a CUDA graph{title}")
    assert ("no graph can contain" in item.why) == bool(title)


def test_copies_of_amd_that_wait_stand_in_a_graphs_way() -> None:
    calls = [call("hipMemcpyWithStream", 6_000 * n + us, 1) for n in range(6) for us in (300, 500)]
    assert advised("cuda-graphs", stepping(), calls).title.endswith("between waits (2 a step)")


def stepping(*, collective: bool = False, grown: bool = False, loads: int = 0, sorts: int = 0) -> list[Any]:
    """Build six steps of 14 CPU-limited launches; optionally a collective, other blocks in each, or CPU work."""
    return [
        [annotation(f"ProfilerStep#{n}", 6_000 * n, 6_000), op("aten::add", 6_000 * n + 5, 2_900),
         *(launched(NCCL if collective and i == 13 else ADD, 6_000 * n + 10 + 200 * i, 6_000 * n + 20 + 200 * i, 8, 20 * n + i + 1,
                    grid=[500 + (n if grown and i < 7 else 0), 1, 1]) for i in range(14)),
         annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 6_000 * n + 2_910, loads) if loads else [],
         op("aten::sort", 6_000 * n + 2_910, sorts) if sorts else []]
        for n in range(6)
    ]  # fmt: skip


OBSTACLES = {
    "; 1 collective per step: all ranks have to capture them in the same order (NCCL 2.9.6 or later)": ({"collective": True}, {}),
    "; 50 % of the kernels differ from step to step, because shapes or branches change: pad or bucket the inputs first": ({"grown": True}, {}),
    "loading data (": ({"loads": 2_900}, {"loads": 60}),
    "long CPU work of operators (": ({"sorts": 2_900}, {"sorts": 900}),
}  # fmt: skip


@pytest.mark.parametrize("says", OBSTACLES)
def test_a_graph_card_names_what_a_graph_cannot_hold(says: str) -> None:
    for program, is_said in zip(OBSTACLES[says], (True, False), strict=True):
        why = advised("cuda-graphs", stepping(**program)).why
        assert (says in why) == is_said
        assert sum(other in why for other in OBSTACLES) == is_said, "nothing else is in its way"


@pytest.mark.parametrize(
    ("lengths", "trains", "asks"),
    [(range(64, 88), False, True), ([64] * 24, False, False), (range(64, 88), True, False)],
    ids=["keys grow by a row per token", "the same length each time", "training"],
)
def test_decoding_keeps_keys_and_values_in_a_cache_of_fixed_size(
    lengths: Iterable[int], trains: bool, asks: bool
) -> None:
    """Launches are late, and beside them a row is appended to keys of each length."""
    appends = [
        op("aten::cat", 500 * n + 2, 3, **{"Input Dims": [[[1, 8, length, 64], [1, 8, 1, 64]], []], "Input type": ["TensorList", "Scalar"]})
        for n, length in enumerate(lengths)
    ]  # fmt: skip
    loop = [
        [op("aten::mm", 500 * n + 10, 460), launched(ADD, 500 * n + 465, 500 * n + 480, 8, n + 1)] for n in range(24)
    ]
    report = analysed(loop, appends, [op("Optimizer.step#SGD.step", 100, 5)] if trains else [])
    items = {item.id: item for item in report.advice}
    assert ('cache_implementation = "static"' in items["cuda-graphs"].code) == asks
    assert ("keys and values grow by a row per token" in items["cuda-graphs"].why) == asks
    assert ("tokenizer(prompts" in items["bigger-batch"].code) == asks


@pytest.mark.parametrize(
    ("operator", "says"),
    [
        ("fbgemm::permute_2D_sparse_data", True),
        ("aten::_nested_view_from_jagged", True),
        ("aten::embedding_bag", False),
    ],
)
def test_operators_on_rows_of_different_lengths_stand_in_a_graphs_way(operator: str, says: bool) -> None:
    why = advised("cuda-graphs", iterations(lambda t: op(operator, t, 850))).why
    assert (f"; sizes depend on the data in operators such as {operator}: pad them first" in why) is says


# Each condition alone: a program that meets all, and one that lacks exactly that one

OWN = "my_own_operator(int)"


def own(name: str, operator: str | None = None, us: int = 40, **args: object) -> list[object]:
    """Build products, and kernels of an extension; 40 us each are over a twentieth of the window, 4 us are not."""
    around = [op(operator, 300 + 20 * n, 15, **args) for n in range(12)] if operator else []
    return [in_a_row(GEMM), around, [launched(name, 300 + 20 * n + 2, 1_600 + us * n, us, 100 + n) for n in range(12)]]


def converting_by_copies() -> list[object]:
    """Build conversions within a linear layer that launch copies to the device instead of kernels."""
    return [
        [op("aten::linear", 40 * n, 35), op("aten::_to_copy", 40 * n + 5, 20), call("cudaMemcpyAsync", 40 * n + 10, 5, correlation=n + 1),
         copy("DtoD (Device -> Device)", 1_000 + 100 * n, 100, correlation=n + 1, bytes=100_000_000)]
        for n in range(12)
    ]  # fmt: skip


def uploads(per_step: int, *, within: bool = False) -> list[object]:
    """Build steps of a short product and so many kilobyte copies, 80 us in all; on request one within the device."""
    length = 80 // per_step
    return [
        [annotation(f"ProfilerStep#{n}", 110 * n, 110), launched(GEMM, 110 * n + 1, 110 * n + 5, 20, 10 * n + 1),
         *([call("cudaMemcpyAsync", 110 * n + 8 + 8 * i, 5, correlation=10 * n + i + 2),
            copy("HtoD (Pinned -> Device)", 110 * n + 26 + length * i, length, correlation=10 * n + i + 2, bytes=1_000)]
           for i in range(per_step)),
         copy("DtoD (Device -> Device)", 110 * n + 107, 2, correlation=10 * n + 2, bytes=1_000) if within else []]
        for n in range(24)
    ]  # fmt: skip


NORM = {"Input Dims": [[4096, 4096], [4096, 4096], [4096], []], "Input type": ["c10::Half"] * 3 + ["Scalar"]}

MERGED = {"Input Dims": [[4096, 8, 512], [4096, 8]], "Input type": ["c10::Half", "float"]}
"""Work that is known of an operator whose kernels no rule knows."""


@pytest.mark.parametrize(
    ("fix", "program", "asks"),
    [
        ("casts", converting_by_copies(), False),
        ("compiled-copies", copied_within("Torch-Compiled Region: 0/0", "HtoD (Pinned -> Device)"), False),
        ("custom-kernels", own(OWN), True),
        ("custom-kernels", own("void at::native::(anonymous namespace)::frobnicate<float>(int)"), False),
        ("custom-kernels", own(OWN, "aten::frobnicate"), False),
        ("custom-kernels", own(OWN, "_C::rms_norm", **NORM), False),
        ("custom-kernels", own(OWN, "_C::merge_attn_states", **MERGED), False),
        ("transport", messages(1_000), False),
        ("gradient-buckets", messages(1_000, name="alltoall"), False),
        ("gradient-buckets", messages(1_000, ranks=2), True),
        *(("gradient-buckets", messages(1_000, ranks=ranks), False) for ranks in (1, 0, -1, -(2**62))),
        ("small-copies", uploads(2), True),
        ("small-copies", uploads(1), False),
        ("small-copies", uploads(1, within=True), False),
        ("transport", messages(4_000_000, 9_400, 2_000, 9_400, ranks=1), False),
        ("lazy-loading", CASES["recompilation"][0], False),
        ("recompilation", CASES["lazy-loading"][0], False),
        (
            "cuda-graphs",
            [[launch(n, 1, n), kernel("k", 1_000 + 20 * n, 10, correlation=n)] for n in range(1, 40)],
            False,
        ),
        ("record-stacks", [launched(GEMM, 2_000 * n, 2_000 * n + 10, 1_500, n + 1) for n in range(12)], False),
        ("fused-optimizer", eager(cos_cos(6)), False),
        ("max-autotune", matmuls(1_765), False),
        ("max-autotune", matmuls(1_765, "my_gemm", blocks=53), False),
        ("python-work", [with_python(2_000), [op(f"ProfilerStep#{n}", 2_300 * n, 2_290) for n in range(12)]], True),
        ("skinny-matmuls", products(100), True),
        ("fewer-bytes", apart(WIDE.replace(", x>", ", c10::Half>")), False),
        ("fewer-bytes", [in_a_row(WIDE), kernel("ampere_bf16_s16816gemm_bf16_128x64", 1_600, 100)], False),
        ("fewer-bytes", [in_a_row(WIDE), kernel(FP32, 1_600, 100)], True),
    ],
)
def test_every_condition_counts(fix: str, program: list[object], asks: bool) -> None:
    report = analysed(program)
    assert report.verdict.status == "ok", "without a verdict there is no advice"
    assert (fix in saved(report)) == asks


@pytest.mark.parametrize(
    ("operator", "dims", "are_most"),
    [
        ("aten::convolution", "[[16, 64, 128, 128], [64, 64, 1, 1]]", False),
        ("aten::convolution", "[[1, 4096, 1, 1], [4096, 4096, 1, 1]]", True),
        ("aten::convolution", None, False),
        ("aten::mm", "[[1, 4096], [4096, 4096]]", True),
        ("aten::mm", "[[1, 4096]]", False),
        ("aten::linear", None, True),
        (None, None, True),
    ],
)
def test_weights_are_the_second_factor(operator: str | None, dims: str | None, are_most: bool) -> None:
    assert _weights_are_most(operator, dims, "fp16", 34e6) == are_most


@pytest.mark.parametrize(
    ("device", "code"), [(V100, "model = torch.compile(model)"), (A100, "model = model.to(torch.bfloat16)")]
)
def test_weights_in_fp16_underflow_in_training(device: dict[str, Any], code: str) -> None:
    trains = annotation("Optimizer.step#SGD.step", 990, 2)
    assert advised("casts", converted("aten::linear"), trains, devices=[device]).code.startswith(code)


MI300X = {"id": 0, "name": "AMD Instinct MI300X", "computeMajor": 9, "computeMinor": 4, "numSms": 304}


@pytest.mark.parametrize(("us", "asks"), [(214, False), (217, True)])
def test_what_is_good_is_what_the_vendor_s_best_matmuls_reach(us: int, asks: bool) -> None:
    """AMD measures 654 of 1,307 TFLOP/s in fp16: 210 us of a product of 4096 x 4096, of which 2 % are worth a line."""
    report = analysed(matmuls(us, "Cijk_Alik_Bljk_HHS_BH_MT256x256x32_MI16x16x16x1"), devices=[MI300X])
    advice = {item.id: item for item in report.advice}
    assert ("max-autotune" in advice) == asks
    if asks:
        item = advice["max-autotune"]
        assert item.why.startswith("matmuls reach 48 % of the device's peak; 50 % is good")
        assert item.saves_ns_at_most == pytest.approx(12 * (us * 1e3 - 2 * 4096**3 / 654e3), abs=12)
    else:
        alone = analysed(
            matmuls(212, "Cijk_Alik_Bljk_HHS_BH_MT256x256x32_MI16x16x16x1"), peak_tflops={"fp8": 1307}, devices=[MI300X]
        ).advice
        assert [item.title for item in alone] == [
            "Nothing known to gain: kernels reach 50 % of the roof, good ones 50 %"
        ]


STREAMS = {
    "vectorized_elementwise_kernel<4, x>(int)": "# analyze calibrate",
    "unrolled_elementwise_kernel<f, 4, LoadWithCast<1>, StoreWithCast<1> >(int)": "x = x.to(torch.bfloat16)",
    "elementwise_kernel<128, 4, f>(int)": "model = torch.compile(model)  # generates kernels for these strides",
    "elementwise_kernel_manual_unroll<128, 8, f>(int)": "model = torch.compile(model)  # generates kernels for these strides",
    "frobnicate<4>(int)": "# what holds one of them",
}


@pytest.mark.parametrize("name", STREAMS)
def test_a_kernel_that_streams_at_less_than_half_of_the_bandwidth_has_the_code_of_its_loads(name: str) -> None:
    """Reading and writing 100 MB each takes 98 us at an A100's 2,039 GB/s: less than half of it from 197 us on."""
    for us, asks in ((195, False), (198, True)):
        calls = [("cos", [[25_000_000]], "float", us, f"void at::native::{name}")] * 12
        items = {item.id: item for item in analysed(eager(calls)).advice}
        assert ("inefficient-kernels" in items) == asks
    item = items["inefficient-kernels"]
    assert item.code.startswith(STREAMS[name])
    assert ("in 5,000 blocks on 108 multiprocessors: nothing in its launch explains that" in item.why) == (
        name[0] == "v"
    )
    assert ("strided, broadcast or of several types" in item.why) == (name[0] == "e")


def test_kernels_of_one_name_are_told_apart() -> None:
    calls = [
        ("cos", [[25_000_000]], "float", us, f"void at::native::elementwise_kernel<128, {us}, f>(int)")
        for us in (327, 245) * 12
    ]
    assert (
        "elementwise_kernel reaches 30 % of the roof; another elementwise_kernel reaches 40 %"
        in {item.id: item for item in analysed(eager(calls)).advice}["inefficient-kernels"].why
    )


def updating(name: str, count: int = 88) -> list[object]:
    """Build graphs of a product and so many pointwise kernels in a row, the last of this name; all are too small."""
    pointwise = "void at::native::vectorized_elementwise_kernel<4, at::native::{}(at::TensorIteratorBase&)::x>(int)"
    names = [GEMM, *[pointwise.format("lerp_scalar_kernel")] * count, pointwise.format(name)]
    return [
        [call("cudaGraphLaunch", 1_000 * n, 10, correlation=n + 1),
         *(kernel(each, 1_000 * n + 15 + 11 * k, 10, correlation=n + 1, grid=[8, 1, 1]) for k, each in enumerate(names))]
        for n in range(12)
    ]  # fmt: skip


def test_an_optimizer_that_graphs_replay_is_fused_before_its_capture() -> None:
    """All 89 kernels of each update but the longest may go, with the gaps before them; compiling the model fuses none."""
    report = analysed(updating("addcdiv_cuda_kernel"))
    items = {item.id: item for item in report.advice}
    item = items["fused-optimizer"]
    assert item.saves_ns_at_most == pytest.approx(12 * (88 * 10_000 + 89 * 1_000), abs=1)
    assert "capturable=True" in item.code
    assert "fuse-replayed" not in items
    other = {item.id for item in analysed(updating("addcmul_cuda_kernel")).advice}
    assert ("fused-optimizer" in other, "fuse-replayed" in other) == (False, True)
    eager_one = "void at::native::vectorized_elementwise_kernel<4, at::native::addcdiv_cuda_kernel(x)::y>(int)"
    assert "fused-optimizer" not in saved(analysed(in_a_row(eager_one)))


@pytest.mark.parametrize(
    ("name", "code"),
    [("Adam", "fused=True, capturable=True"), ("RMSprop", "foreach=True, capturable=True"), ("SGD", "fused=True")],
)
def test_only_optimizers_that_have_it_are_capturable(name: str, code: str) -> None:
    warm_up = annotation(f"Optimizer.step#{name}.step", -500, 100)
    item = advised("fused-optimizer", warm_up, updating("addcdiv_cuda_kernel"))
    assert f"torch.optim.{name}(model.parameters(), **options, {code})" in item.code


@pytest.mark.parametrize(
    ("around", "says"),
    [([], True), (op("Torch-Compiled Region: 0/0", 0, 5), False), (annotation("step[DECODE bs=4]", 0, 5_000), False)],
    ids=["captured by the program", "compiled", "an engine"],
)
def test_what_graphs_repeat_changes_before_its_capture(around: object, says: bool) -> None:
    graph = [call("cudaGraphLaunch", 0, 10, correlation=1),
             *(kernel(WIDE, 20 + 60 * n, 50, grid=[500, 1, 1], correlation=1) for n in range(12))]  # fmt: skip
    code = advised("fewer-bytes", graph, around).code
    assert code.startswith("# before the capture: ") == ("cache_enabled=False" in code) == says


@pytest.mark.parametrize("trains", [False, True])
def test_training_does_not_quantize(trains: bool) -> None:
    step = [annotation("Optimizer.step#SGD.step", 990, 2)] if trains else []
    assert ("fewer bits" in advised("skinny-matmuls", products(4), step).title) != trains


def test_the_median_kernel_is_no_copy() -> None:
    copies = [
        [call("cudaMemcpyAsync", 1_000 * n + 310 + 5 * k, 4, correlation=1_000 * n + k + 50), copy("DtoD (Device -> Device)", 1_000 * n + 315 + 20 * k, 15, correlation=1_000 * n + k + 50)]
        for n in range(12) for k in range(4)
    ]  # fmt: skip
    assert (
        "the median kernel takes 50 us (12 kernels)"
        in advised("bigger-batch", iterations(lambda t: op("aten::mm", t, 300)), copies).why
    )


def test_only_kernels_that_hold_a_twentieth_of_the_window_are_named() -> None:
    lesser = [launched("my_lesser_operator(int)", 600 + 20 * n, 2_080 + 4 * n, 4, 200 + n) for n in range(12)]
    why = advised("custom-kernels", own(OWN), lesser).why
    assert ("my_own_operator" in why, "my_lesser_operator" in why) == (True, False)


def test_a_kernel_far_below_the_roof_has_a_short_name() -> None:
    item = advised("inefficient-kernels", matmuls(5_000, f"_ZN2my200{'g' * 100}{'h' * 100}IfEEvPf"))
    assert f"{'g' * 60}…{'h' * 16} reaches" in item.why


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void at::native::(anonymous namespace)::fill<4, at::Functor<float>>(int, x)", "fill"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_gemm_align8>(Params)", "cutlass_80_tensorop_gemm_align8"),
        ("ncclDevKernel_SendRecv(ncclDevComm*, unsigned long)", "ncclDevKernel_SendRecv"),
        ("Cijk_Alik_Bljk_BBS", "Cijk_Alik_Bljk_BBS"),
        (f"Cijk_{'A' * 60}{'B' * 400}_WS64_WG16_16_1", f"Cijk_{'A' * 55}…B_WS64_WG16_16_1"),
    ],
)
def test_kernels_are_named_without_namespaces_and_arguments(name: str, short: str) -> None:
    """What waited for unrecorded work is a kernel; CUTLASS's entry point has the kernel's name in brackets."""
    loop = [launched(name, 1_000 * n + 900, 1_000 * n + 910, 50, n + 1) for n in range(12)]
    assert advised("record-stacks", loop).where.startswith(f"before {short} (")


@pytest.mark.parametrize(("name", "option"), [("step[DECODE bs=4]", "--max-num-seqs"), ("step", "quantize_(model")])
def test_steps_of_an_engine_show_that_it_serves(name: str, option: str) -> None:
    """Engines name their steps where no frame or kernel of theirs was recorded."""
    assert option in advised("skinny-matmuls", products(4), annotation(name, 0, 5_000)).code


@pytest.mark.parametrize(
    ("program", "devices", "missing", "code"),
    [
        ([kernel(GEMM, 100 * n, 100) for n in range(12)], [A100], "record shapes", "record_shapes=True"),
        (matmuls(563), [{"id": 0, "name": "Frobnicator 9"}], "the device's peaks are unknown", "--gpu NAME"),
        (
            [matmuls(563), [kernel(GEMM, 7_000 + 600 * n, 600) for n in range(20)]],
            [A100],
            "is unknown",
            "ncu --set full",
        ),
    ],
)
def test_what_may_be_far_from_the_roof_is_not_called_near_it(
    program: list[object], devices: list[dict[str, object]], missing: str, code: str
) -> None:
    """Less than half of the kernels' time has a roof: nothing shows that only less work shortens it."""
    (item,) = (item for item in analysed(program, devices=devices).advice if item.id == "less-work")
    assert missing in item.title
    assert code in item.code
    assert "faster device" not in item.code + item.how_bound


def test_the_kernel_to_profile_is_the_first_of_those_named() -> None:
    """Of one kernel a single run takes longest, of the other one all runs, or those for two operators, together."""
    runs = [("few_gemm", 3_000)] * 3 + [("many_gemm", 400)] * 40
    starts = itertools.accumulate((us for _, us in runs), initial=7_000)
    unknown = [kernel(name, at, us) for (name, us), at in zip(runs, starts, strict=False)]
    calls = [("cos", [[25_000_000]], "float", 2_000, "frobnicate<1>(int)")] * 3
    calls += [(name, [[25_000_000]], "float", 1_333, "bumble<2>(int)") for name in ("sin", "exp") * 3]
    for fix, program, first in (
        ("less-work", [matmuls(563), unknown], "many_gemm"),
        ("inefficient-kernels", [eager(calls)], "bumble"),
    ):
        item = advised(fix, *program)
        assert f": {first} " in item.why
        assert f'"regex:{first}"' in item.code


@pytest.mark.parametrize(
    ("call_after", "frame", "asks"),
    [
        ("cudaStreamSynchronize", "pick.py(3): next_token", True),
        ("cudaStreamSynchronize", "nn.Module: Net_0", False),
        ("cudaEventQuery", "pick.py(3): next_token", False),
    ],
)
def test_short_python_counts_where_no_graph_takes_it(call_after: str, frame: str, asks: bool) -> None:
    """A wait after each launch leaves nothing to capture; without waits a graph may hold the step."""
    loop = [
        [launched(GEMM, t + 10, t + 15, 100, n + 1), call(call_after, t + 20, 97), python(frame, t + 118, 600)]
        for n, t in enumerate(range(0, 40 * 750, 750))
    ]
    items = {item.id: item for item in analysed(loop).advice}
    assert ("python-work" in items) == asks
    assert ("cuda-graphs" in items) == (call_after == "cudaEventQuery")
    assert not asks or items["python-work"].where.startswith(frame)


def test_python_between_graphs_that_are_replayed_counts() -> None:
    loop = [
        [
            call("cudaGraphLaunch", t, 8, correlation=n + 1),
            *(kernel(GEMM, t + 10 + 12 * k, 10, correlation=n + 1) for k in range(10)),
            python("sampler.py(3): next_token", t + 130, 600),
        ]
        for n, t in enumerate(range(0, 40 * 750, 750))
    ]
    assert analysed(loop).advice[0].id == "python-work"


@pytest.mark.parametrize(
    ("begin", "fixes"),
    [("cudaStreamBeginCapture", ["graph-capture"]), ("cudaStreamIsCapturing", ["allocator"])],
)
def test_what_comes_before_a_capture_is_the_capture_s(begin: str, fixes: list[str]) -> None:
    """``torch.cuda.graph`` waits and empties the cache by itself: no line of the program does, that could be struck out."""
    before = [
        [call("cudaDeviceSynchronize", t, 1_300), call("cudaFree", t + 1_301, 900), call(begin, t + 2_210, 2)]
        for t in range(0, 48_000, 4_000)
    ]
    after = [[call("cudaStreamEndCapture", t + 2_900, 2)] * ("Begin" in begin) + [launched(GEMM, t + 2_910, t + 2_920, 1_200, n + 1)]
             for n, t in enumerate(range(0, 48_000, 4_000))]  # fmt: skip
    items = {item.id: item for item in analysed(before, after).advice}
    assert sorted({*items} - {"cuda-graphs", "record-stacks"}) == fixes
    assert ("garbage collection" in items[fixes[0]].why) == ("Begin" in begin)


def test_a_bound_holds_idle_time_of_which_no_launch_is_known() -> None:
    """Launches of a third of the kernels are lost, as those of drivers' calls that old profilers do not record."""
    loop = iterations(lambda t: op("aten::mm", t, 850))
    item = advised("cuda-graphs", loop)
    assert "no launch" not in item.why
    lost = [
        [kernel(GEMM, 1_000 * n + 910, 50), op("aten::mm", 1_000 * n, 850)] if n % 3 == 1 else one
        for n, one in enumerate(loop)
    ]
    bound = advised("cuda-graphs", lost)
    assert "of it end with work of which no launch is known, and may have another cause" in bound.why
    assert bound.saves_ns_at_most > 0.9 * item.saves_ns_at_most
