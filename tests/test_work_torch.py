"""Test FLOP of matmuls, convolutions and attention compared with `torch.utils.flop_counter`."""

import json
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import pytest

from trace_analyzer.analyses.work import FORMULAS, MATMUL_FORMULAS, Record, call_work

torch = pytest.importorskip("torch")
F = torch.nn.functional
from torch.profiler import ProfilerActivity, profile  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode, flop_registry  # noqa: E402

pytestmark = pytest.mark.slow


def recorded(run: Callable[[], Any], path: Path) -> list[dict[str, Any]]:
    """Return the operator rows of a profile of ``run``."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        run()
    profiler.export_chrome_trace(str(path))
    events = json.loads(path.read_text("utf-8"))["traceEvents"]
    return [event for event in events if event.get("cat") == "cpu_op" and "Input Dims" in event.get("args", {})]


def contains(outer: dict[str, Any], inner: dict[str, Any]) -> bool:
    """Return whether one row of a thread lies in another, longer row; of two equal spans neither is outer."""
    if outer is inner or outer["tid"] != inner["tid"]:
        return False
    starts, ends = outer["ts"] <= inner["ts"], inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"]
    return bool(starts and ends and outer["dur"] > inner["dur"])


def formula_flop(events: list[dict[str, Any]], *, leaves: bool = False) -> float:
    """Return our FLOP of the outermost calls that have a formula of group `matmul` (or of the innermost)."""
    calls = [event for event in events if event["name"] in MATMUL_FORMULAS]
    return sum(
        flop_of(call)
        for call in calls
        if not any(contains(call, other) if leaves else contains(other, call) for other in calls)
    )


def record_of(event: dict[str, Any]) -> Record:
    """Return the call of a row, its lists of tensors of four bytes an element."""
    keys = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
    texts = (json.dumps(event["args"][key]) for key in keys if key in event["args"])
    return Record(event["name"], *texts)._replace(list_element_bytes=4.0)


def flop_of(event: dict[str, Any]) -> float:
    outcome = call_work(record_of(event))
    assert outcome.work is not None, (event["name"], outcome.problem, event["args"])
    assert outcome.work.flop is not None, event["name"]
    return outcome.work.flop


def t(*shape: int, dtype: Any = None, grad: bool = False) -> Any:
    return torch.randn(*shape, dtype=dtype, requires_grad=grad)


def backward(result: Any) -> None:
    result.sum().backward()


def linear_layer() -> None:
    backward(F.linear(t(6, 5, 8, grad=True), t(7, 8, grad=True), t(7)))


def convolution(
    n: int, out: int, filters: tuple[int, ...], shape: tuple[int, ...], **options: Any
) -> Callable[[], None]:
    layer = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[n]
    return lambda: backward(layer(t(*shape, grad=True), t(out, *filters, grad=True), t(out, grad=True), **options))


def transposed(filters: tuple[int, ...], shape: tuple[int, ...], **options: Any) -> Callable[[], None]:
    return lambda: backward(F.conv_transpose2d(t(*shape, grad=True), t(*filters, grad=True), **options))


def attention(queries: tuple[int, ...], keys: tuple[int, ...], **options: Any) -> Callable[[], None]:
    def run() -> None:
        out = F.scaled_dot_product_attention(
            t(*queries, grad=True), t(*keys, grad=True), t(*keys, grad=True), **options
        )
        backward(out)

    return run


CASES: dict[str, Callable[[], Any]] = {
    "mm": lambda: t(3, 4) @ t(4, 5),
    "mm-bf16": lambda: t(3, 4, dtype=torch.bfloat16) @ t(4, 5, dtype=torch.bfloat16),
    "mm-transposed": lambda: torch.mm(t(4, 3).T, t(5, 4).T),
    "addmm": lambda: torch.addmm(t(5), t(3, 4), t(4, 5), beta=0.5),
    "addmm-out": lambda: torch.addmm(t(5), t(3, 4), t(4, 5), out=torch.empty(3, 5)),
    "bmm": lambda: torch.bmm(t(2, 3, 4), t(2, 4, 5)),
    "baddbmm": lambda: torch.baddbmm(t(2, 3, 5), t(2, 3, 4), t(2, 4, 5)),
    "matmul-broadcast": lambda: t(6, 2, 3, 4) @ t(2, 4, 5),
    "linear": linear_layer,
    "linear-without-bias": lambda: F.linear(t(6, 8), t(7, 8)),
    "einsum": lambda: torch.einsum("bhqd,bhkd->bhqk", t(2, 3, 5, 8), t(2, 3, 6, 8)),
    "einsum-several": lambda: torch.einsum("ij,jk,kl->il", t(3, 4), t(4, 5), t(5, 6)),
    "conv1d": convolution(1, 6, (4, 3), (2, 4, 10)),
    "conv2d-padded": convolution(2, 6, (4, 3, 5), (2, 4, 12, 11), padding=(1, 2)),
    "conv2d-strided": convolution(2, 6, (4, 3, 3), (2, 4, 12, 11), stride=2, padding=1),
    "conv2d-dilated": convolution(2, 6, (4, 3, 3), (2, 4, 12, 11), dilation=(2, 3)),
    "conv2d-frozen-input": lambda: backward(F.conv2d(t(2, 4, 9, 9), t(6, 4, 3, 3, grad=True))),
    "conv2d-frozen-weight": lambda: backward(F.conv2d(t(2, 4, 9, 9, grad=True), t(6, 4, 3, 3))),
    "conv3d": convolution(3, 6, (4, 2, 3, 3), (2, 4, 5, 7, 6)),
    "conv2d-groups-forward": lambda: F.conv2d(t(2, 4, 9, 9), t(6, 2, 3, 3), groups=2),
    "conv2d-depthwise-forward": lambda: F.conv2d(t(2, 4, 9, 9), t(4, 1, 3, 3), groups=4),
    "conv-transposed": transposed((4, 6, 3, 3), (2, 4, 7, 8), stride=2, padding=1, output_padding=1),
    "conv-transposed-dilated": transposed((4, 6, 3, 3), (2, 4, 7, 8), dilation=2),
    "conv-transposed-groups-forward": lambda: F.conv_transpose2d(t(2, 4, 7, 8), t(4, 3, 3, 3), groups=2),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_flop_agree_with_the_flop_counter(name: str, tmp_path: Path) -> None:
    with FlopCounterMode(display=False) as counter:
        CASES[name]()
    events = recorded(CASES[name], tmp_path / "trace.json")
    assert formula_flop(events) == formula_flop(events, leaves=True) == counter.get_total_flops() > 0


def test_grouped_convolutions_differ_by_the_weight_gradient_alone(tmp_path: Path) -> None:
    """The counter does not divide the weight gradient by the groups: its own products are as many as the forward's."""
    run = convolution(2, 6, (2, 3, 3), (2, 4, 9, 9), groups=2)
    with FlopCounterMode(display=False) as counter:
        run()
    forward = 2 * 2 * 7 * 7 * prod((6, 2, 3, 3))
    assert counter.get_total_flops() == forward + forward + 2 * forward
    assert formula_flop(recorded(run, tmp_path / "trace.json")) == 3 * forward


ATTENTIONS = {
    "plain": ((2, 3, 16, 8), (2, 3, 16, 8), {}),
    "longer-keys": ((2, 3, 16, 8), (2, 3, 24, 8), {}),
    "grouped-queries": ((2, 6, 16, 8), (2, 2, 16, 8), {"enable_gqa": True}),
}


@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention_agrees_with_the_counter_s_own_formula(name: str, tmp_path: Path) -> None:
    """On the CPU attention is an operator that the counter does not know; its formula for CUDA's is the same."""
    queries, keys, options = ATTENTIONS[name]
    events = recorded(attention(queries, keys, **options), tmp_path / "trace.json")
    calls = [e for e in events if e["name"].startswith("aten::_scaled_dot_product_flash_attention_for_cpu")]
    aten = torch.ops.aten
    q, kv = torch.empty(queries, device="meta"), torch.empty(keys, device="meta")
    counted = (
        flop_registry[aten._scaled_dot_product_flash_attention](q, kv, kv),
        flop_registry[aten._scaled_dot_product_flash_attention_backward](q, q, kv, kv),
    )
    assert tuple(flop_of(call) for call in calls) == counted


def test_causal_attention_counts_the_pairs_that_are_not_masked(tmp_path: Path) -> None:
    whole = recorded(attention((2, 3, 16, 8), (2, 3, 16, 8)), tmp_path / "whole.json")
    causal = recorded(attention((2, 3, 16, 8), (2, 3, 16, 8), is_causal=True), tmp_path / "causal.json")
    assert formula_flop(causal) * 16 * 16 == formula_flop(whole) * (16 * 17 // 2)


def test_the_math_path_is_its_products(tmp_path: Path) -> None:
    def run() -> None:
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            attention((2, 3, 16, 8), (2, 3, 16, 8))()

    events = [e for e in recorded(run, tmp_path / "trace.json") if e["name"] in ("aten::bmm", "aten::mm")]
    with FlopCounterMode(display=False) as counter:
        run()
    assert sum(map(flop_of, events)) == counter.get_total_flops()


def families() -> None:
    """Call operators whose arguments stand at the positions that the formulas of families read."""
    x, a, index = t(2, 4, 8, 8, grad=True), torch.randn(10, 6), torch.tensor([1, 2, 3])
    for mode in ("nearest", "bilinear", "bicubic", "nearest-exact"):
        backward(F.interpolate(x, size=(16, 12), mode=mode))
    backward(F.interpolate(x, size=(16, 12), mode="bilinear", antialias=True))
    backward(F.pad(x, (1, 1, 2, 2), mode="reflect") + F.pad(x, (1, 1, 2, 2), mode="replicate"))
    backward(F.adaptive_max_pool2d(x, (4, 4)))
    backward(F.grid_sample(x, t(2, 5, 6, 2, grad=True), align_corners=False))
    backward(F.fold(F.unfold(x, 3, padding=1), (8, 8), 3, padding=1))
    backward(F.glu(x, 1))
    backward(x.unfold(3, 2, 2))
    backward(F.embedding_bag(torch.tensor([1, 2, 3, 4]), t(10, 6, grad=True), torch.tensor([0, 2])))
    backward(torch.cdist(t(9, 4, grad=True), t(7, 4, grad=True)))
    backward(torch._weight_norm_interface(t(8, 4, grad=True), t(8, 1, grad=True))[0])
    a[index] = torch.randn(3, 6)
    a.masked_scatter_(a > 0, torch.randn(60))
    a.cummax(1), torch.var_mean(a, 1), torch.aminmax(a, dim=1), torch.norm(a), a.median(), a.kthvalue(2)
    torch.searchsorted(torch.arange(10.0), a)
    torch.bucketize(a, torch.arange(10.0))
    torch._chunk_cat([a, a], 0, 2)
    torch.fft.irfft(torch.fft.rfft(a))
    torch.fft.fft2(a)


def test_arguments_stand_where_the_formulas_of_families_look(tmp_path: Path) -> None:
    known = {
        event["name"]: call_work(record_of(event)).work is not None
        for event in recorded(families, tmp_path / "trace.json")
        if event["name"] in FORMULAS and event["name"] != "aten::max"  # max(self, other) is known to have none
    }
    assert len(known) > 10
    assert [name for name, has_work in known.items() if not has_work] == []
