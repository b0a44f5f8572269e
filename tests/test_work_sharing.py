"""Assignment of an operator call's work: kernels by role, outer operators, graphs, the clock."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from kineto import analysed, kernel, launch, memset, op

from trace_analyzer.analyses.work import Record, Work, call_work, sharing
from trace_analyzer.report import WorkCoverage

pytestmark = pytest.mark.slow

GEMM, SPLIT = "ampere_fp16_s16816gemm_fp16_128x64", "void cublasLt::splitKreduce_kernel<32, 16, int, float>()"
NHWC = "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, 0>(float*)"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int)"
MM = {"Input Dims": [[10, 20], [20, 30]], "Input type": ["c10::Half", "c10::Half"]}
FLOP, BYTES = 2.0 * 10 * 20 * 30, 2.0 * (200 + 600 + 300)


def launches(*names: str, start: float = 1, first: int = 1, at: float = 100, lasting: float = 50) -> list[Any]:
    """Build launches from ``start`` on and their kernels from ``at`` on."""
    runs = [kernel(n, at + i * lasting, lasting, correlation=first + i, grid=[500, 1, 1]) for i, n in enumerate(names)]
    return [*(launch(start + 2 * i, 1, first + i) for i in range(len(names))), *runs]


def work(*events: Any, **options: Any) -> list[tuple[Any, ...]]:
    return analysed(*events, **options).tables["activities"].select("flop", "moved_bytes", "dtype").rows()


def test_the_kernels_of_a_product_share_it_and_its_helpers_have_none() -> None:
    assert work(op("aten::mm", 0, 30, **MM), launches(GEMM, GEMM, SPLIT)) == [
        (FLOP / 2, BYTES / 2, "fp16"), (FLOP / 2, BYTES / 2, "fp16"), (0.0, None, "fp16"),
    ]  # fmt: skip


def test_layout_changes_of_a_convolution_are_helpers() -> None:
    arguments = {
        "Input Dims": [[2, 4, 9, 9], [6, 4, 3, 3], [], [], [], []],
        "Input type": ["float", "float", "ScalarList", "ScalarList", "ScalarList", "Scalar"],
        "Concrete Inputs": ["", "", "[0, 0]", "[1, 1]", "[1, 1]", "1"],
    }
    flop = 2.0 * 2 * 6 * 49 * 36
    rows = work(op("aten::cudnn_convolution", 0, 30, **arguments), launches(NHWC, "my_conv_kernel_fprop"))
    assert [row[0] for row in rows] == [0.0, flop]
    winograd = "maxwell_scudnn_winograd_128x128_ldg1_ldg4_tile148n_nt"
    assert [row[0] for row in work(op("aten::cudnn_convolution", 0, 30, **arguments), launches(winograd))] == [None]


def test_a_nameless_kernel_of_a_product_is_the_product() -> None:
    assert work(op("aten::mm", 0, 30, **MM), launches("kernel_v7")) == [(FLOP, BYTES, "fp16")]


def test_all_kernels_of_other_operators_share_but_memsets() -> None:
    arguments = {"Input Dims": [[100]], "Input type": ["float"]}
    cleared = [launch(20, 1, 9), memset(300, 5, correlation=9)]
    rows = work(op("aten::sum", 0, 30, **arguments), launches(ADD, ADD), cleared)
    assert rows == [(50.0, 202.0, "fp32")] * 2 + [(None, None, None)]


def test_instant_kernels_share_equally() -> None:
    assert work(op("aten::mm", 0, 30, **MM), launches(GEMM, GEMM, lasting=0)) == [(FLOP / 2, BYTES / 2, "fp16")] * 2


def test_a_composite_operator_does_not_count_twice() -> None:
    linear = {"Input Dims": [[10, 20], [30, 20]], "Input type": ["c10::Half", "c10::Half"]}
    assert work(op("aten::linear", 0, 50, **linear), op("aten::mm", 1, 30, **MM), launches(GEMM, start=2)) == [
        (FLOP, BYTES, "fp16")
    ]


def test_an_operator_without_formula_takes_the_matmul_around_it() -> None:
    linear = {"Input Dims": [[10, 20], [30, 20]], "Input type": ["c10::Half", "c10::Half"]}
    outer, inner = op("aten::linear", 0, 50, **linear), op("vendor::matmul", 1, 30)
    assert work(outer, inner, launches(GEMM, GEMM, start=2)) == [(FLOP / 2, BYTES / 2, "fp16")] * 2
    # but not a kernel of another kind, and not where something in it already has its work
    assert work(outer, inner, launches(ADD, start=2)) == [(None, None, None)]
    known = op("aten::mm", 32, 10, **MM)
    rows = work(outer, inner, known, launches(GEMM, start=2), launches(GEMM, start=33, first=7, at=400))
    assert rows == [(None, None, None), (FLOP, BYTES, "fp16")]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("name", "types", "dtype", "tensor_cores"),
    [
        ("cutlass_80_tensorop_s1688gemm_128x64", "float", "tf32", True), ("ampere_sgemm_128x64_nn", "float", "fp32", False),
        (GEMM, "c10::Half", "fp16", True), ("nvjet_sst_128x64_TNN", "float", "tf32", True), ("gemm_kernel", "float", "fp32", None),
        ("sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize128x128x128", "c10::Half", "fp8", True),
        ("Cijk_Ailk_Bljk_S_B_Bias_MT128x64x16_MI16x16x1", "float", "fp32", True), ("Cijk_Ailk_Bljk_SB_MT64x32x8", "float", "fp32", False),
    ],
)  # fmt: skip
def test_the_dtype_is_what_is_computed_in(name: str, types: str, dtype: str, tensor_cores: bool | None) -> None:
    table = analysed(op("aten::mm", 0, 30, **MM | {"Input type": [types] * 2}), launches(name)).tables["activities"]
    assert table.select("dtype", "uses_tensor_cores").rows() == [(dtype, tensor_cores)]


def test_the_bound_is_against_the_units_in_use() -> None:
    """20 FLOP per byte: above the A100's balance on its vector units (about 10), below that on its Tensor Cores in TF32
    (about 77).
    """
    shape = {"Input Dims": [[1024, 160], [160, 160]], "Input type": ["float", "float"]}
    for name, bound in (("ampere_sgemm_128x64_nn", "compute"), ("cutlass_80_tensorop_s1688gemm_128x64", "memory")):
        table = analysed(op("aten::mm", 0, 30, **shape), launches(name)).tables["activities"]
        assert table.get_column("bound").to_list() == [bound]


def test_damaged_arguments_are_one_note_per_kind() -> None:
    bad = op("aten::mm", 0, 30, **MM | {"Input Dims": [[10, -20], [20, 30]]})
    worse = op("aten::mm", 40, 30, **MM | {"Input Dims": [[10, 20], [21, 30]]})
    report = analysed(bad, launches(GEMM, GEMM), worse, launches(GEMM, start=41, first=7, at=400))
    notes = {note.message: note.count for note in report.notes if note.code == "damaged-operator-inputs"}
    assert sorted(notes.values()) == [1, 2]
    assert [row[0] for row in report.tables["activities"].select("flop").rows()] == [None] * 3


def test_coverage_is_by_time() -> None:
    report = analysed(op("aten::mm", 0, 30, **MM), launches(GEMM, SPLIT), kernel(ADD, 500, 100))
    assert report.devices[0].work_coverage == WorkCoverage(0.5, 0.25, 0.25, 1.0, 0.5, 0.5)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("duration", "elements", "why"),
    [(100, 1_000_000, None), (100, 25_000_000, None), (100, 26_000_000, "cache"), (10.001, 9_000_000, "unexplained"), (0.5, 9_000_000, "clock")],
)  # fmt: skip
def test_bytes_faster_than_the_memory_are_explained_or_not(duration: float, elements: int, why: str | None) -> None:
    """Check an add of 8 bytes per element on an A100, which moves 2.039 TB/s and holds 40 MiB in its L2 cache."""
    arguments = {"Input Dims": [[elements], []], "Input type": ["float", "Scalar"], "Input Strides": [[1], []]}
    report = analysed(op("aten::add", 0, 30, **arguments), launches(ADD, lasting=duration), kernel("k", 900, 0.123))
    assert report.tables["activities"].row(0, named=True)["faster_than_memory"] == why


def test_a_clock_of_microseconds_ticks_slower() -> None:
    arguments = {"Input Dims": [[20_000_000], []], "Input type": ["float", "Scalar"]}
    report = analysed(op("aten::add", 0, 30, **arguments), launches(ADD, lasting=19))
    assert report.tables["activities"].row(0, named=True)["faster_than_memory"] == "clock"


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous namespace)::OpaqueType<2u>, unsigned int, 4, 64, 64>(...)", 2.0),
        ("void at::native::(anonymous namespace)::CatArrayBatchedCopy_vectorized<char, unsigned int, 3, 128, 1, 16, 8>(char*)", 2.0),
        ("void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2, 128, 1>(float*)", 4.0),
        ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<1>, at::native::(anonymous namespace)::BinaryOpScalarFunctor<c10::BFloat16, 1, 1, 0>, std::plus<float>, float>(...)", 2.0),
        ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4, (ADAM_MODE)1, false> >(...)", 4.0),
        ("kernel_v7", None),
        ("CatArrayBatchedCopy<OpaqueType<\u0661>, 2>", None),
        (f"CatArrayBatchedCopy<OpaqueType<{'9' * 400}>, 2>", None),
        ("CatArrayBatchedCopy_vectorized<x, 16, 0>", None),
        ("CatArrayBatchedCopy_vectorized<x, \u0661, \u0661>", None),
    ],
)  # fmt: skip
def test_names_tell_the_type_of_lists(name: str, size: float | None) -> None:
    assert pl.DataFrame({"name": [name]}).select(sharing.list_element_bytes()).item() == size


def doubled(*strides: list[int], elements: int = 9_000_000, lasting: float = 40) -> list[tuple[Any, ...]]:
    """Return the moved bytes of x * y, and why it is faster than memory if it is.

    x * y in float on an A100 of 2.039 TB/s: 81.6 MB in 40 us, and 40 MiB of cache; 72 MB are two tensors, 108 MB three.
    """
    arguments = {"Input Dims": [[elements]] * 2, "Input type": ["float"] * 2}
    if strides:
        arguments["Input Strides"] = [*strides]
    events = op("aten::mul", 0, 30, **arguments), launches(ADD, lasting=lasting), kernel("k", 900, 0.123)
    return analysed(*events).tables["activities"].head(1).select("moved_bytes", "faster_than_memory").rows()


def test_a_tensor_that_cannot_have_been_read_twice_was_read_once() -> None:
    assert doubled([1], [1], lasting=60) == [(108e6, None)]
    assert doubled([1], [1], lasting=40) == [(108e6, "cache")]
    assert doubled([1], [1], lasting=30) == [(72e6, "cache")]  # 108 MB would be more than memory and cache allow
    assert doubled([1], [2], lasting=30) == [(108e6, "unexplained")]  # two tensors, by their strides


def test_is_nan_reads_its_tensor_once() -> None:
    arguments = {"Input Dims": [[1000]] * 2, "Input type": ["float"] * 2}
    inner = op("aten::ne", 1, 20, **arguments)
    outer = op("aten::isnan", 0, 30, **{"Input Dims": [[1000]], "Input type": ["float"]})
    assert work(outer, inner, launches(ADD, start=2)) == [(1000.0, 5000.0, "fp32")]
    assert work(inner, launches(ADD, start=2)) == [(1000.0, 9000.0, "fp32")]


def test_shapes_without_types_take_that_of_the_kernel_and_say_so() -> None:
    untyped = op("aten::mm", 0, 30, **{"Input Dims": MM["Input Dims"]})
    known, unknown = (analysed(untyped, launches(name)).tables["activities"] for name in (GEMM, "my_gemm"))
    assert known.select("flop", "moved_bytes", "dtype", "work_from").rows() == [(FLOP, BYTES, "fp16", "assumed-dtype")]
    assert unknown.select("flop", "work_from").rows() == [(None, None)]


def test_where_work_comes_from_is_reported() -> None:
    linear = {"Input Dims": [[10, 20], [30, 20]], "Input type": ["c10::Half", "c10::Half"]}
    outer, inner = op("aten::linear", 0, 50, **linear), op("vendor::matmul", 1, 30)
    first = analysed(outer, inner, launches(GEMM, start=2)).tables["activities"].get_column("work_from").to_list()
    assert first == ["outer-call"]


def test_a_convolution_without_values_takes_its_result_from_the_next_reader() -> None:
    """Check that batch norm, as PyTorch 1.8 writes it, counts its batches first and then reads the result."""
    dims = [[2, 4, 9, 9], [6, 4, 3, 3], [], [], [], [], [], [], []]
    types = ["float", "float", *["GenericList"] * 3, "Int", "Bool", "Bool", "Bool"]
    convolution = op("aten::cudnn_convolution", 0, 30, **{"Input Dims": dims, "Input type": types})
    counts = op("aten::add_", 40, 5, **{"Input Dims": [[], [], []], "Input type": ["long int", "Scalar", "Scalar"]})
    norm = op("aten::batch_norm", 50, 5, **{"Input Dims": [[2, 6, 5, 5], [6]], "Input type": ["float", "float"]})
    events = convolution, counts, norm, launches("volta_scudnn_128x64_relu_interior_nn_v1")
    table = analysed(*events).tables["activities"]
    assert table.select("flop", "work_from").rows() == [(2.0 * 2 * 6 * 25 * 36, "inferred-shape")]
    assert analysed(convolution, counts, events[-1]).tables["activities"].get_column("flop").to_list() == [None]


def old(name: str, *tensors: tuple[list[int], str] | None, **context: Any) -> Work | None:
    """Return the work of a call without values, where None stands for a scalar."""
    shapes = [[] if tensor is None else tensor[0] for tensor in tensors]
    types = ["Scalar" if tensor is None else tensor[1] for tensor in tensors]
    return call_work(Record(name, json.dumps(shapes), json.dumps(types), **context)).work


X = ([8, 6, 10, 10], "float")
N = 8 * 6 * 100


def test_a_reduction_of_unknown_dimensions_leaves_one_element_at_least() -> None:
    work = old("aten::sum", X, None, None, None)
    assert (work.flop, work.moved_bytes, work.least) == (N, 4.0 * N + 4, True)
    whole = old("aten::sum", X, None)
    assert not whole.least


@pytest.mark.parametrize(
    ("name", "arguments", "bytes_"),
    [
        ("aten::native_batch_norm", [X, ([6], "float"), ([6], "float"), ([6], "float"), ([6], "float"), None], 8.0 * N + 4 * 24),
        ("aten::native_group_norm", [X, ([6], "float"), ([6], "float"), None, None], 8.0 * N + 48 + 64),
        ("aten::_softmax", [([4, 5], "c10::Half"), None, None], 80.0),
        ("aten::topk", [([4, 5], "float"), None, None], 80.0),
        ("aten::nonzero", [([4, 5], "bool")], 20.0),
        ("aten::embedding_dense_backward", [([7, 16], "float"), ([7], "long int"), None, None, None], 7 * 64 + 56.0),
    ],
)  # fmt: skip
def test_what_has_no_recorded_size_is_left_out(name: str, arguments: list[Any], bytes_: float) -> None:
    work = old(name, *arguments)
    assert (work.moved_bytes, work.least) == (bytes_, True)


def test_a_pool_takes_its_result_from_the_next_reader() -> None:
    dims = {"Input Dims": [[8, 6, 10, 10], [], [], [], [], []], "Input type": ["float", *["GenericList"] * 4, "Bool"]}
    pool = op("aten::max_pool2d_with_indices", 0, 30, **dims)
    name = "void at::native::(anonymous namespace)::max_pool_forward_nchw<float>(int)"
    run = [launch(2, 3, 1), kernel(name, 100, 50, correlation=1)]
    reader = op("aten::relu", 50, 5, **{"Input Dims": [[8, 6, 5, 5]], "Input type": ["float"]})
    other = op("aten::relu", 40, 5, **{"Input Dims": [[8, 3, 5, 5]], "Input type": ["float"]})
    table = analysed(pool, other, reader, run).tables["activities"]
    assert table.select("moved_bytes", "work_from").rows() == [(4.0 * N + 12 * N / 4, "at-least")]
    # A tensor larger than the input is not the result of pooling.
    larger = op("aten::relu", 50, 5, **{"Input Dims": [[8, 6, 20, 20]], "Input type": ["float"]})
    assert analysed(pool, larger, run).tables["activities"].get_column("moved_bytes").to_list() == [None]


DGRAD = "void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int)"
WGRAD = "void cudnn::cnn::wgrad_alg0_engine<float, 128, 5, 5, 3, 3, 3, false, 512>(int)"
PLAIN, LAYOUT = "ampere_scudnn_128x64_relu_interior_nn_v1", NHWC
ONE = 2.0 * 8 * 25 * (12 * 6 * 9)
"""A stride of 2: 10 x 10 of 6 channels become 5 x 5 of 12, by 3 x 3 taps."""


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("kernels", "flop"),
    [([DGRAD, WGRAD], 2 * ONE), ([WGRAD], ONE), ([DGRAD], ONE), ([PLAIN, PLAIN], 2 * ONE), ([PLAIN], ONE),
     ([DGRAD, PLAIN, LAYOUT], 2 * ONE), ([LAYOUT, WGRAD], ONE), ([DGRAD, DGRAD], ONE), ([LAYOUT], 0)],
)  # fmt: skip
def test_kernels_tell_which_gradients_of_a_convolution_were_computed(kernels: list[str], flop: float) -> None:
    dims = [[8, 12, 5, 5], [8, 6, 10, 10], [12, 6, 3, 3], *[[]] * 8]
    types = ["float"] * 3 + ["ScalarList"] * 8
    backward = op("aten::convolution_backward", 0, 60, **{"Input Dims": dims, "Input type": types})
    runs = [
        [launch(2 + 5 * i, 3, 1 + i), kernel(name, 100 + 60 * i, 50, correlation=1 + i)]
        for i, name in enumerate(kernels)
    ]
    table = analysed(backward, *runs).tables["activities"]
    assert table.get_column("flop").fill_null(0).sum() == pytest.approx(flop)


def test_a_transposed_convolution_grows() -> None:
    """12 channels of 5 x 5 become 12 of 10 x 10: the filter's shape is ambiguous, the sizes decide."""
    arguments = [([8, 12, 10, 10], "float"), ([8, 12, 5, 5], "float"), ([12, 12, 3, 3], "float"), *[None] * 8]
    work = old("aten::convolution_backward", *arguments, gradients="input,weight")
    assert work.flop == 2 * 2.0 * 8 * 25 * (12 * 12 * 9)
    assert old("aten::convolution_backward", *arguments) is None


def program() -> None:
    """Run many operators, forward and backward."""
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    torch.manual_seed(0)
    x = torch.randn(4, 8, 12, 12, requires_grad=True)
    weight, norm = torch.randn(16, 8, 3, 3, requires_grad=True), torch.nn.BatchNorm2d(16)
    table = torch.randn(50, 12, requires_grad=True)
    y = functional.group_norm(norm(functional.conv2d(x, weight, stride=2, padding=1)), 4)
    scaled = functional.interpolate(y, scale_factor=2.0, mode="bilinear")
    pooled = [functional.max_pool2d(y, 2), functional.avg_pool2d(y, 2), scaled, functional.pad(y, (1, 1, 1, 1))]
    rows = functional.layer_norm(functional.embedding(torch.randint(0, 50, (4, 9)), table), (12,))
    parts = [rows.sum(-1), rows.mean(1), rows.amax(-1), rows.var(-1), rows.norm(dim=-1), rows.logsumexp(-1), rows.prod(-1),
             functional.softmax(rows, -1), rows.max(-1)[0], rows.topk(3)[0], rows.sort()[0], rows.cumsum(1), functional.dropout(rows), rows.std()]  # fmt: skip
    index = torch.zeros(4, 9, 1, dtype=torch.long)
    every = (*(part + 0 for part in pooled), *parts, rows.gather(2, index), rows @ rows.mT)
    sum(part.float().mean() for part in every).backward()


def test_a_record_without_values_tells_no_more_than_one_with_them(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
        program()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text("utf-8"))["traceEvents"]
    calls = [e for e in events if e.get("cat") == "cpu_op" and "Input Dims" in e.get("args", {})]
    known = 0
    for call in calls:
        dims, types, values = (json.dumps(call["args"][key]) for key in ("Input Dims", "Input type", "Concrete Inputs"))
        whole = call_work(Record(call["name"], dims, types, None, values)).work
        part = call_work(Record(call["name"], dims, types)).work
        if whole is None or part is None:
            continue
        known += 1
        for full, least in ((whole.flop, part.flop), (whole.moved_bytes, part.moved_bytes)):
            assert (least or 0) <= (full or 0) * 1.0001, call["name"]
            assert part.least or least == full or call["name"] in SCALED, call["name"]
    assert known > 60


SCALED = ("aten::add", "aten::add_", "aten::sub", "aten::sub_")
"""A factor of 1 or another is a value: one FLOP."""
