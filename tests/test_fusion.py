"""Fusion opportunities, worked out by hand: chains, attention, optimizers, and near misses."""

from itertools import count
from typing import Any

import pytest
from kineto import analysed, annotation, kernel, launched, op, python, rows

from trace_analyzer.analyses.fusion import _words, expression
from trace_analyzer.catalog.fixes import COMPILE
from trace_analyzer.report import Report

MEGA = 1_000_000
KERNELS = {
    "bmm": "ampere_fp16_s16816gemm_fp16_128x64", "_softmax": "void softmax_warp_forward<float>(x)",
    "mean": "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, MeanOps>>(x)",
}  # fmt: skip
Calls = list[tuple[Any, ...]]


def run(calls: Calls, *, at: int = 0, **place: Any) -> list[Any]:
    """Build calls (operator, shapes, dtype, duration), one kernel each, back to back on a stream from 1 ms on."""
    events, start = [], 1000 + at
    for called, (name, dims, dtype, duration) in zip(count(at, 20), calls, strict=False):
        types = {"Input Dims": dims, "Input type": [dtype] * len(dims)}
        kernel_name = KERNELS.get(name, f"void at::native::vectorized_elementwise_kernel<4, {name}>(int)")
        events += [op(f"aten::{name}", called, 15, **types),
                   launched(kernel_name, called + 5, start, duration, next(NUMBERS), grid=[5000, 1, 1], **place)]  # fmt: skip
        start += duration
    return events


NUMBERS = count(1)
COS_COS: Calls = [("cos", [[25 * MEGA]], "float", 100), ("cos", [[25 * MEGA]], "float", 100)]


def actual(report: Report, *columns: str) -> list[tuple[Any, ...]]:
    return rows(report.tables["fusions"], *columns)


@pytest.mark.slow
def test_cos_cos_goes_from_four_passes_to_two() -> None:
    """25 million floats are 100 MB; each kernel reads and writes them in 100 us: 2 TB/s."""
    report = analysed(run(COS_COS))
    (row,) = report.tables["fusions"].to_dicts()
    assert (row["kind"], row["what"], row["operators"]) == ("chain", "x.cos().cos()", ">cos>cos>")
    assert (row["moved_bytes"], row["saved_bytes"]) == (400e6, 200e6)
    assert row["byte_per_s"] == pytest.approx(2e12)
    assert (row["time_ns"], row["saves_ns"]) == (200_000, 100_000)
    assert (row["tensors"], row["count"], row["kernel_count"]) == ("[25000000] float", 1, 2)
    assert "moves 200 MB instead of 400 MB" in report.summary(verbose=True)
    assert "x.cos().cos()" in report.to_markdown()
    assert report.devices[0].fusions[0].saves_ns == 100_000


def test_a_chain_of_n_passes_is_one_row_however_often_it_runs() -> None:
    """Check three calls in each of two layers: 6 passes, 2 of which stay."""
    inputs = {"mul": [[MEGA], []], "add": [[MEGA], [MEGA]], "gelu": [[MEGA]]}
    three = [(name, dims, "float", 30) for name, dims in inputs.items()]
    report = analysed(run(three), kernel("ampere_sgemm_128x64_tn", 1100, 50), run(three, at=200))
    assert actual(report, "what", "count", "kernel_count", "time_ns", "moved_bytes", "saved_bytes") == [
        ("F.gelu(x + bias)", 2, 6, 180, 2 * 7 * 4e6, 2 * 4 * 4e6),
    ]  # fmt: skip


@pytest.mark.parametrize("step", ["ProfilerStep#{}", None])
def test_a_chain_lies_within_one_step(step: str | None) -> None:
    """Two equal calls of a step are a chain; the same twelve calls without steps may be a loop over tensors."""
    steps = [annotation(step.format(i), 100 * i, 90) for i in range(6)] if step else []
    report = analysed(*steps, *(run(COS_COS, at=100 * i) for i in range(6)))
    chains = [("x.cos().cos()", 6, 12)] if step else []
    assert actual(report, "what", "count", "kernel_count") == chains


ADD = "void at::native::vectorized_elementwise_kernel<4, add>(int)"


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("events", "is_chain"),
    [
        (run(COS_COS[:1]) + run(COS_COS[1:], at=100), True),
        # shape, type and kind must agree
        (run([COS_COS[0], ("cos", [[25 * MEGA + 1]], "float", 100)]), False),
        (run([COS_COS[0], ("cos", [[5 * MEGA, 5]], "float", 100)]), False),
        (run([COS_COS[0], ("cos", [[25 * MEGA]], "c10::Half", 100)]), False),
        (run([COS_COS[0], ("cumsum", [[25 * MEGA]], "float", 100)]), False),
        (run([COS_COS[0], ("my_cos", [[25 * MEGA]], "float", 100)]), False),
        # neighbours on one stream
        (run(COS_COS[:1], stream=7) + run(COS_COS[1:], at=100, stream=8), False),
        ([*run(COS_COS[:1]), kernel("ampere_sgemm_128x64_tn", 1100, 10), *run(COS_COS[1:], at=110)], False),
        # without shapes nothing is known
        ([kernel(ADD, 0, 50), kernel(ADD, 50, 50)], False),
    ],
)
def test_only_neighbours_of_one_shape_type_and_kind_form_a_chain(events: list[Any], is_chain: bool) -> None:
    assert actual(analysed(events), "what") == [("x.cos().cos()",)] * is_chain


def test_equal_calls_in_a_row_are_a_loop_and_neither_a_chain_nor_advice() -> None:
    """Three additions of equal shapes need not be a chain; a call behind them may read what the last one wrote."""
    add, exp = ("add", [[MEGA], [MEGA]], "float", 30), ("exp", [[MEGA]], "float", 30)
    assert actual(analysed(run([add] * 2)), "what") == [("x.add(y).add(y)",)]
    loop = analysed(run([add] * 30))
    assert actual(loop, "what") == []
    assert loop.verdict.regime == "memory-bandwidth-bound"
    assert "fusion" not in [item.id for item in loop.advice]
    mixed = analysed(run([exp, *[add] * 3, exp]))
    assert actual(mixed, "what", "count") == [("x.exp().add(y)", 1), ("x.add(y).exp()", 1)]


def test_the_place_is_the_class_of_the_module_and_the_function_of_the_user() -> None:
    report = analysed(
        python("nn.Module: Norm_7", 0, 100), python("models/norm.py(12): forward", 1, 98),
        python("torch/_tensor.py(40): cos", 2, 90), python("<built-in method cos>", 3, 80), run(COS_COS),
    )  # fmt: skip
    assert actual(report, "module", "function") == [("Norm", "models/norm.py(12): forward")]


def attention(scores: list[int], probabilities: list[int] | None = None) -> Calls:
    q, k, v = [8, 1000, 64], [8, 64, 1000], [8, 1000, 64]
    return [
        ("bmm", [q, k], "c10::Half", 40), ("div", [scores, []], "c10::Half", 60), ("_softmax", [scores, [], []], "c10::Half", 70),
        ("bmm", [probabilities or scores, v], "c10::Half", 40),
    ]  # fmt: skip


def test_attention_through_memory() -> None:
    """Check that attention through memory is found, with the bytes and the time that fusing it saves.

    8 x 1000 x 1000 half scores are 16 MB, passed over six times; q, k, v and the output are 1.024 MB each.
    """
    (row,) = analysed(run(attention([8, 1000, 1000]))).tables["fusions"].to_dicts()
    fused = 2 * ATTENTION_FLOP / 312e12 * 1e9
    assert (row["kind"], row["time_ns"], row["saves_ns"]) == ("attention", 210_000, pytest.approx(210_000 - fused))
    assert (row["moved_bytes"], row["saved_bytes"]) == (96e6 + 4 * 1.024e6, 96e6)
    assert "F.scaled_dot_product_attention" in row["code"]


ATTENTION_FLOP = 2 * 8 * 1000 * 1000 * 64
"""Of each of the two products."""


def test_what_fused_attention_would_take_is_never_more_than_it_can() -> None:
    """Check that a mask may be causal, which halves the FLOP, and that no roof is known on an unknown device."""
    calls = attention([8, 1000, 1000])
    masked = [*calls[:2], ("add", [[8, 1000, 1000], [1, 1000, 1000]], "c10::Half", 30), *calls[2:]]
    assert actual(analysed(run(masked)), "saves_ns") == [(pytest.approx(240 - ATTENTION_FLOP / 312e12 * 1e6),)]
    unknown = analysed(run(calls), devices=[{"id": 0, "name": "Frobnicator 9"}])
    assert actual(unknown, "saves_ns") == [(210,)]
    # Of few queries it takes as long as its bytes: k and v are 1.024 MB each, q and the output a hundredth of that.
    q, k, v, scores = [8, 10, 64], [8, 64, 1000], [8, 1000, 64], [8, 10, 1000]
    inputs = ([q, k], [scores, []], [scores, [], []], [scores, v])
    few = [(name, dims, *rest) for (name, _, *rest), dims in zip(calls, inputs, strict=True)]
    assert actual(analysed(run(few)), "saves_ns") == [(pytest.approx(210 - 2.02 * 1.024e6 / 2039e9 * 1e6),)]


def test_products_around_another_softmax_are_no_attention() -> None:
    views = attention([2, 4, 1000, 1000], [8, 1000, 1000])  # scores viewed as (batch, heads, ...) for the softmax
    assert actual(analysed(run(views)), "kind") == [("attention",)]
    assert actual(analysed(run(attention([8, 500, 1000]))), "kind") == [("chain",)]
    calls = attention([8, 1000, 1000])
    stranger = ("cumsum", [[5]], "float", 50)
    assert actual(analysed(run([calls[0], stranger, *calls[1:]])), "kind") == [("chain",)]


def test_attention_between_which_masks_are_made_and_values_are_laid_out() -> None:
    """Check attention as autocast runs it: ten calls between its products, most of them copies."""
    scores, values, square = [8, 1000, 1000], [8, 1000, 64], [1000, 1000]
    first, scale, softmax, last = attention(scores)
    copy, made = (
        ("copy_", [scores, scores, []], "c10::Half", 50),
        [("fill_", [square, []], "c10::Half", 2), ("triu", [square, []], "c10::Half", 5)],
    )
    masked = ("masked_fill_", [scores, square, []], "c10::Half", 90)
    calls = [
        first,
        scale,
        *made,
        copy,
        masked,
        copy,
        softmax,
        copy,
        ("copy_", [values, values, []], "c10::Half", 8),
        last,
    ]
    assert actual(analysed(run(calls)), "kind", "kernel_count", "time_ns") == [("attention", 11, 465)]


def test_attention_of_the_backward_pass() -> None:
    """The gradient of the scores is the second input of the product that gives the keys' gradient."""
    (_, qk, *rest), scale, _, _ = attention([8, 1000, 1000])
    back = ("_softmax_backward_data", [[8, 1000, 1000], [8, 1000, 1000], [], []], "c10::Half", 80)
    keys = ("bmm", [[8, 64, 1000], [8, 1000, 1000]], "c10::Half", 40)
    assert actual(analysed(run([("bmm", qk, *rest), back, scale, keys])), "kind", "time_ns") == [("attention", 220)]


def optimizer(operators: list[str], name: str = "AdamW") -> list[Any]:
    """Build a step of an optimizer whose kernels take 10, 20, ... us."""
    calls = [(o, [[64]], "float", 10 * (i + 1)) for i, o in enumerate(operators)]
    return [annotation(f"Optimizer.step#{name}.step", 0, 500), run(calls)]


def test_an_optimizer_that_loops_one_by_foreach_and_a_fused_one() -> None:
    table = analysed(optimizer(["lerp_", "addcmul_", "sqrt", "addcdiv_"])).tables["fusions"]
    (row,) = table.filter(kind="optimizer").to_dicts()
    assert row["what"] == "AdamW.step: a kernel or more per parameter"
    assert row["code"] == "torch.optim.AdamW(..., fused=True)"
    assert (row["kernel_count"], row["time_ns"], row["saves_ns"]) == (4, 100_000, 60_000)
    assert (row["moved_bytes"], row["byte_per_s"]) == (None, None)
    foreach = analysed(optimizer(["_foreach_lerp_", "_foreach_addcdiv_"], "Adam"))
    assert actual(foreach, "what") == [("Adam.step: several passes over all parameters",)]
    assert actual(analysed(optimizer(["_fused_adamw_", "add_"])), "kind") == []


def test_compiling_a_model_does_not_fuse_its_optimizer() -> None:
    """Four in-place operators read what the one before wrote: a chain, but not in a step of an optimizer."""
    operators = ["lerp_", "addcmul_", "sqrt", "addcdiv_"]
    assert actual(analysed(optimizer(operators)[1]), "kind") == [("chain",)]
    assert actual(analysed(optimizer(operators)), "kind") == [("optimizer",)]


def test_expressions() -> None:
    assert expression(["mul", "copy", "sin"]) == "x.mul(y).to(...).sin()"
    assert expression(["cos", "cos"]) == "x.cos().cos()"
    assert expression(["add", "cos"] * 3) == "x.add(y).cos(), 3 times in a row"
    assert expression(["cos"] * 5) == "x.cos(), 5 times in a row"
    assert expression([*["exp", "log"] * 5, "abs"]) == "x" + ".exp().log()" * 4 + " ... .log().abs()"
    what, code = _words("chain", ">" + "add>mul>" * 50_000, "all")
    assert what.endswith("50000 times in a row")
    assert code == COMPILE
