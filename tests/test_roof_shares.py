"""Roof shares by bound, inefficient kernels, and the interval of the MFU, worked out by hand.

The A100 of `kineto` does 312e12 FLOP/s in fp16 on its tensor cores, moves 2039e9 bytes per second and has 108 SMs.
"""

from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kineto import analysed, annotation, kernel, launch, launched, op, rows
from tiers import examples

GEMM, ADD = "ampere_fp16_s16816gemm_fp16_128x64", "void at::native::vectorized_elementwise_kernel<4, x>(int)"
SORT = "void cub::DeviceRadixSortOnesweepKernel<P>(int)"
AT_PEAK_US = 2 * 4096**3 / 312e12 * 1e6
"""A product of 4096 cubed at peak: 440.5 us. It moves 100.7 MB, which takes 49.4 us."""


def square(start: float, lasting: float, number: int, *, blocks: int = 500, dims: Any = None) -> list[Any]:
    shapes = {"Input Dims": [[4096, 4096]] * 2 if dims is None else dims, "Input type": ["c10::Half"] * 2}
    return [
        op("aten::mm", number * 20, 10, **shapes),
        launch(number * 20 + 2, 5, number),
        kernel(GEMM, start, lasting, correlation=number, grid=[blocks, 1, 1]),
    ]


def addition(start: float, lasting: float, number: int, elements: int = 20_390_000, *, kernels: int = 1) -> list[Any]:
    """Build an addition that reads and writes 4 bytes of each element: 80 us at full bandwidth by default."""
    shapes = {"Input Dims": [[elements], []], "Input type": ["float", "Scalar"]}
    names = [ADD] if kernels == 1 else [SORT] * kernels
    return [
        op("aten::add" if kernels == 1 else "aten::relu", number * 20, 10, **shapes),
        *(launch(number * 20 + 1 + i, 1, number + 100 * i) for i in range(kernels)),
        *(
            kernel(name, start + i * lasting, lasting, correlation=number + 100 * i, grid=[500, 1, 1])
            for i, name in enumerate(names)
        ),
    ]


def test_bounds_say_how_near_to_their_roof_their_kernels_come() -> None:
    """Products of 500 and 2000 us at 440.5 each; additions of 100 and 400 us at 80 each; 300 us without shapes."""
    report = analysed(
        square(1000, 500, 1), square(2000, 2000, 2), addition(5000, 100, 3), addition(6000, 400, 4), kernel(ADD, 7000, 300)
    )  # fmt: skip
    compute, memory = report.devices[0].bounds
    assert (compute.bound, compute.kernel_count, compute.time_ns, compute.known_ns) == (
        "compute",
        2,
        2_500_000,
        2_500_000,
    )
    assert compute.roof_ratio == pytest.approx(2 * AT_PEAK_US / 2500)
    assert compute.below_half_ratio == pytest.approx(0.8)
    assert compute.inefficient_ns == 2_000_000
    assert (memory.bound, memory.time_ns, memory.known_ns) == ("memory", 800_000, 500_000)
    assert memory.roof_ratio == pytest.approx(160 / 500)
    assert memory.below_half_ratio == pytest.approx(0.8)
    assert memory.inefficient_ns == 400_000
    assert rows(report.tables["bounds"], "bound", "count", "inefficient_ns") == [
        ("compute", 2, 2000),
        ("memory", 3, 400),
    ]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("events", "flags"),
    [
        (square(1000, 1700, 1), [False]),  # above a quarter of its roof
        (square(1000, 1800, 1), [True]),
        (square(1000, 1800, 1, blocks=107), [False]),  # one SM has no block
        (square(1000, 19, 1, dims=[[512, 512]] * 2), [False]),  # too short to last
        (addition(1000, 350, 1), [True]),
        (addition(1000, 350, 1, kernels=2), [False, False]),  # each pass may read and write everything
    ],
)
def test_inefficient_is_what_fills_the_device_lasts_and_stays_below_a_quarter(events: Any, flags: list[bool]) -> None:
    assert analysed(events).tables["roofs"].get_column("inefficient").to_list() == flags


def test_a_naive_product_is_not_called_limited_by_arithmetic() -> None:
    """At 3.6 % of the peak the advice is another kernel, not less work."""
    naive = "my_naive_matmul_kernel"
    report = analysed(
        *(
            [
                op("aten::mm", n * 20, 10, **{"Input Dims": [[4096, 4096]] * 2, "Input type": ["c10::Half"] * 2}),
                launch(n * 20 + 2, 5, n),
                kernel(naive, 1000 + n * 12_300, 12_240, correlation=n, grid=[500, 1, 1]),
            ]
            for n in range(1, 12)
        )
    )
    assert report.verdict.regime == "compute-bound"
    assert "reach 3.6 % of their roof" in report.verdict.headline
    advice = {item.id: item for item in report.advice}
    assert "inefficient-kernels" in advice
    assert not {"less-work", "max-autotune"} & set(advice)
    assert naive in advice["inefficient-kernels"].code
    assert advice["inefficient-kernels"].saves_ns_at_most == pytest.approx(11 * (12_240 - AT_PEAK_US) * 1000, rel=1e-6)


def test_names_that_are_no_identifiers_stay_out_of_what_is_typed() -> None:
    hostile = 'x"; rm -rf ~ #<script>'
    report = analysed(
        *(
            [
                op("aten::mm", n * 20, 10, **{"Input Dims": [[4096, 4096]] * 2, "Input type": ["c10::Half"] * 2}),
                launch(n * 20 + 2, 5, n),
                kernel(hostile, 1000 + n * 12_300, 12_240, correlation=n, grid=[500, 1, 1]),
            ]
            for n in range(1, 12)
        )
    )
    codes = [item.code for item in report.advice if item.id == "inefficient-kernels"]
    assert all("rm -rf" not in code and "<script>" not in code for code in codes)


def test_a_roof_that_arithmetic_exceeds_is_doubted() -> None:
    """Products of 440 us at the peak: in 500 us they are possible, in 300 us the peak is another device's."""
    levels = []
    for takes, is_doubted in ((500, False), (300, True)):
        verdict = analysed([square(1000 + takes * n, takes, n) for n in range(1, 12)]).verdict
        assert verdict.regime == "compute-bound"
        assert any("which is impossible" in why for why in verdict.confidence_why) is is_doubted
        levels.append(verdict.confidence)
    assert levels in (["high", "medium"], ["medium", "low"])


def test_other_kernels_are_no_advice_for_products_that_are_good() -> None:
    """At 440 of 500 us (88 %) nothing is to be won; those of 1,000 us (44 %) are counted alone."""
    good, poor = [square(1500 * n, 500, n) for n in range(1, 12)], [square(1500 * n + 500, 1_000, 50 + n) for n in range(1, 12)]  # fmt: skip
    assert "max-autotune" not in {item.id for item in analysed(good).advice}
    (item,) = (item for item in analysed(good, poor).advice if item.id == "max-autotune")
    assert "reach 44 %" in item.why


def test_a_mfu_of_which_part_is_known_is_an_interval() -> None:
    """500 us of known work, and 500 us of a matmul of unknown work that did at most its peak; 1 ms in all."""
    report = analysed(square(1000, 500, 1), kernel(GEMM, 1500, 500, grid=[500, 1, 1]))
    device = report.devices[0]
    assert device.mfu == pytest.approx(AT_PEAK_US / 1000)
    assert device.mfu_at_most == pytest.approx((AT_PEAK_US + 500) / 1000)
    known = analysed(square(1000, 500, 1), kernel(ADD, 1500, 500)).devices[0]
    assert known.mfu == known.mfu_at_most == pytest.approx(AT_PEAK_US / 1000)
    unknown = analysed(kernel(GEMM, 1500, 500)).devices[0]
    assert (unknown.mfu, unknown.mfu_at_most) == (None, None)


@pytest.mark.slow
@settings(max_examples=examples(12))
@given(st.lists(st.tuples(st.booleans(), st.integers(445, 5000)), min_size=1, max_size=8))
def test_the_interval_holds_what_hidden_shapes_would_show(products: list[tuple[bool, int]]) -> None:
    """Check that hiding the shapes of some matmuls never excludes the MFU with all shapes from the interval."""
    starts = [1000 + sum(lasting for _, lasting in products[:i]) for i in range(len(products))]
    whole = [
        square(start, lasting, i + 1) for i, (start, (_, lasting)) in enumerate(zip(starts, products, strict=True))
    ]
    partly = [
        events if seen else [*events[1:]] for events, (seen, _) in zip(whole, products, strict=True)
    ]  # without its operator a product has no shapes
    partial, true = analysed(partly).devices[0], analysed(whole).devices[0]
    assert true.mfu is not None
    assert true.mfu == true.mfu_at_most
    if partial.mfu is not None and partial.mfu_at_most is not None:
        assert partial.mfu <= true.mfu + 1e-12
        assert true.mfu <= partial.mfu_at_most + 1e-12
    else:
        assert not any(seen for seen, _ in products)


def test_sums_of_bounds_are_all_kernel_time() -> None:
    report = analysed(square(1000, 500, 1), addition(5000, 100, 3), kernel("k", 7000, 1))
    kernels = report.tables["activities"].filter(pl.col("kind") == "kernel")
    assert report.tables["bounds"].get_column("time_ns").sum() == kernels.get_column("duration_ns").sum()


def test_a_step_says_how_near_to_the_roof_its_own_kernels_come() -> None:
    """Products of 500 us in one step and of 1000 us in the next, at 440.5 each: 88 % and 44 % of the roof."""
    steps = [
        [annotation(f"ProfilerStep#{n}", 40 * n, 38), square(at, lasting, 2 * n), square(at + lasting, lasting, 2 * n + 1)]
        for n, at, lasting in ((1, 100, 500), (2, 1100, 1000))
    ]  # fmt: skip
    first, second = (step.headline or "" for step in analysed(steps).steps)
    assert "they reach 88 % of their roof" in first
    assert "they reach 44 % of their roof, 100 % of their time below half of it" in second


def test_a_regime_by_names_alone_says_so_in_its_headline() -> None:
    """Without shapes a kernel is of memory or of arithmetic by its name; with them by its work."""
    back_to_back = [launched(GEMM, 10 * n, 200 * n + 5, 200, n + 1) for n in range(9)]
    assert "by kernel names, since little of their work is known" in analysed(back_to_back).verdict.headline
