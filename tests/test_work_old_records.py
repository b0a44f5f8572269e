"""Work of calls as recorded by PyTorch before 2.1: shapes and types, but no strides and no values."""

import json
from pathlib import Path
from typing import Any

import pytest
from kineto import analysed, kernel, launch, op

from trace_analyzer.analyses.work import Record, Work, call_work


def old(name: str, *tensors: tuple[list[int], str] | None, **context: Any) -> Work | None:
    """Return the work of a call without values, where None stands for a scalar."""
    shapes = [[] if tensor is None else tensor[0] for tensor in tensors]
    types = ["Scalar" if tensor is None else tensor[1] for tensor in tensors]
    return call_work(Record(name, json.dumps(shapes), json.dumps(types), **context)).work


X = ([8, 6, 10, 10], "float")
N = 8 * 6 * 100


def test_a_reduction_of_unknown_dimensions_leaves_one_element_at_least() -> None:
    work = old("aten::sum", X, None, None, None)
    assert work is not None
    assert (work.flop, work.moved_bytes, work.least) == (N, 4.0 * N + 4, True)
    whole = old("aten::sum", X, None)
    assert whole is not None
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
    assert work is not None
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


DGRAD, WGRAD, PLAIN, LAYOUT = (
    "void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int)",
    "void cudnn::cnn::wgrad_alg0_engine<float, 128, 5, 5, 3, 3, 3, false, 512>(int)",
    "ampere_scudnn_128x64_relu_interior_nn_v1",
    "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, 0>(float*)",
)
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
    assert work is not None
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
    pooled = [
        functional.max_pool2d(y, 2),
        functional.avg_pool2d(y, 2),
        functional.interpolate(y, scale_factor=2.0, mode="bilinear"),
        functional.pad(y, (1, 1, 1, 1)),
    ]
    rows = functional.layer_norm(functional.embedding(torch.randint(0, 50, (4, 9)), table), (12,))
    parts = [rows.sum(-1), rows.mean(1), rows.amax(-1), rows.var(-1), rows.norm(dim=-1), rows.logsumexp(-1), rows.prod(-1),
             functional.softmax(rows, -1), rows.max(-1)[0], rows.topk(3)[0], rows.sort()[0], rows.cumsum(1), functional.dropout(rows), rows.std()]  # fmt: skip
    index = torch.zeros(4, 9, 1, dtype=torch.long)
    total = sum(
        part.float().mean() for part in (*(p + 0 for p in pooled), *parts, rows.gather(2, index), rows @ rows.mT)
    )
    total.backward()


@pytest.mark.slow
def test_a_record_without_values_tells_no_more_than_one_with_them(tmp_path: Path) -> None:
    """Check that FLOP and bytes without values are at most those with them, and equal unless marked as the least."""
    torch = pytest.importorskip("torch")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
        program()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text("utf-8"))["traceEvents"]
    calls = [e for e in events if e.get("cat") == "cpu_op" and "Input Dims" in e.get("args", {})]
    known = 0
    for call in calls:
        texts = {key: json.dumps(call["args"][key]) for key in ("Input Dims", "Input type", "Concrete Inputs")}
        whole = call_work(
            Record(call["name"], texts["Input Dims"], texts["Input type"], None, texts["Concrete Inputs"])
        ).work
        part = call_work(Record(call["name"], texts["Input Dims"], texts["Input type"])).work
        if whole is None or part is None:
            continue
        known += 1
        for full, least in ((whole.flop, part.flop), (whole.moved_bytes, part.moved_bytes)):
            assert (least or 0) <= (full or 0) * 1.0001, call["name"]
            assert part.least or least == full or call["name"] in SCALED, call["name"]
    assert known > 60


SCALED = ("aten::add", "aten::add_", "aten::sub", "aten::sub_")
"""A factor of 1 or another is a value: one FLOP."""
