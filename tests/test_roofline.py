"""Test kernels and their roofline, their sums by name, step and module, and the article's table: worked out by hand.

The A100 of `kineto` does 312e12 FLOP/s in fp16 on its tensor cores and moves 2039e9 bytes per second.
"""

from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings, strategies as st
from kineto import A100, analysed, annotation, kernel, launch, launched, notes, op, python, rows, trace_bytes
from tiers import examples

from trace_analyzer.analyses import steps
from trace_analyzer.analyses.roofline import roof_ns
from trace_analyzer.catalog.kernels import article
from trace_analyzer.pipeline import analyze
from trace_analyzer.render.html import timeline
from trace_analyzer.report import Report

pytestmark = pytest.mark.slow

GEMM, ADD = "ampere_fp16_s16816gemm_fp16_128x64", "void at::native::vectorized_elementwise_kernel<4, x>(int)"
PEAK, BANDWIDTH = 312e12, 2039e9
SQUARE, DECODE = [[4096, 4096], [4096, 4096]], [[1, 4096], [4096, 4096]]
UNLISTED = {"id": 0, "name": "NVIDIA Unlisted 9000"}


def product(
    called: int, start: int, duration: int, number: int, dims: Any = SQUARE, *,
    name: str = GEMM, dtype: str = "c10::Half", blocks: int | None = 500, shapes: bool = True, **args: Any,
) -> list[Any]:  # fmt: skip
    """Build a matrix product whose launch takes the middle of an operator of 10 us."""
    recorded = {"Input Dims": dims, "Input type": [dtype] * 2} if shapes else {}
    return [
        op("aten::mm", called, 10, **recorded, **args),
        launched(name, called + 2, start, duration, number, **({} if blocks is None else {"grid": [blocks, 1, 1]})),
    ]


def test_a_product_against_both_roofs() -> None:
    """4096 cubed: 137.4 GFLOP take 440.5 us at peak; 100.7 MB take 49.4 us at full bandwidth."""
    report = analysed(product(0, 20, 500, 1))
    (row,) = report.tables["roofs"].to_dicts()
    flop, moved = 2 * 4096**3, 3 * 2 * 4096**2
    assert row == {
        "activity_id": 0, "intensity_flop_per_byte": pytest.approx(flop / moved),
        "peak_flop_per_s": PEAK, "attainable_flop_per_s": PEAK,
        "achieved_flop_per_s": pytest.approx(flop / 500e-6), "achieved_byte_per_s": pytest.approx(moved / 500e-6),
        "compute_roof_ns": pytest.approx(440_510, abs=1), "roof_ns": pytest.approx(440_510, abs=1),
        "roof_ratio": pytest.approx(0.88102, abs=1e-5), "lost_ns": pytest.approx(59_490, abs=1), "inefficient": False,
        "few_tiles": False, "near_ridge": False,
    }  # fmt: skip


def test_a_thin_product_is_held_by_the_bandwidth() -> None:
    """1 x 4096 x 4096: one FLOP per byte; 33.6 MB take 16.5 us, their FLOP 0.1 us."""
    (row,) = analysed(product(0, 20, 40, 1, DECODE)).tables["roofs"].to_dicts()
    moved = 2 * (4096 + 4096**2 + 4096)
    assert row["roof_ns"] == pytest.approx(moved / BANDWIDTH * 1e9)
    assert row["attainable_flop_per_s"] == pytest.approx(2 * 4096**2 / moved * BANDWIDTH)


def test_faster_than_the_memory_loses_nothing_and_reaches_no_known_share() -> None:
    report = analysed(product(0, 20, 10, 1, DECODE))
    (row,) = report.tables["roofs"].to_dicts()
    assert row["roof_ns"] > 1.6 * 10_000
    assert (row["roof_ratio"], row["lost_ns"]) == (None, 0)
    assert [note.count for note in report.notes if note.code == "beyond-roof"] == [1]


def test_without_a_device_there_is_no_roof() -> None:
    report = analysed(product(0, 20, 500, 1), devices=[UNLISTED])
    (row,) = report.tables["roofs"].to_dicts()
    assert row["achieved_flop_per_s"] == pytest.approx(2 * 4096**3 / 500e-6)
    assert [row[name] for name in ("peak_flop_per_s", "roof_ns", "roof_ratio", "lost_ns")] == [None] * 4
    assert report.devices[0].mfu is None
    assert report.devices[0].buckets[0].achieved_flop_per_s == pytest.approx(2 * 4096**3 / 500e-6)


def test_an_instant_kernel_has_its_work_but_no_rate() -> None:
    (row,) = analysed(product(0, 20, 0, 1), kernel(ADD, 30, 5)).tables["roofs"].to_dicts()
    assert [row[name] for name in ("achieved_flop_per_s", "achieved_byte_per_s", "roof_ratio")] == [None] * 3


def mixed() -> Report:
    """Analyse two square products of 500 us, a thin one of 50 us, 450 us of kernels without shapes: 1.5 ms in all."""
    return analysed(
        product(0, 100, 500, 1), product(10, 600, 500, 2), product(20, 1100, 50, 3, DECODE), kernel(ADD, 1150, 450)
    )


def test_kernels_are_summed_up_by_name_operator_and_shapes() -> None:
    table = mixed().tables["roofline"]
    assert rows(table, "operator", "input_dims", "count", "time_ns", "known_ns") == [
        ("aten::mm", str(SQUARE), 2, 1000, 1000),
        (None, None, 1, 450, 0),
        ("aten::mm", str(DECODE), 1, 50, 50),
    ]
    square, unknown, thin = table.to_dicts()
    assert square["peak_ratio"] == square["roof_ratio"] == pytest.approx(0.88102, abs=1e-5)
    assert thin["peak_ratio"] == pytest.approx(2 * 4096**2 / 50e-6 / PEAK)
    assert thin["bound"] == "memory"
    assert (unknown["flop"], unknown["roof_ns"], unknown["achieved_byte_per_s"]) == (None, None, None)


def test_buckets_have_work_and_say_for_which_share_of_their_time() -> None:
    device = mixed().devices[0]
    matmul, pointwise = device.buckets
    flop = 2 * 2 * 4096**3 + 2 * 4096**2
    assert (matmul.flop, matmul.flop_ratio, matmul.known_ratio) == (flop, 1, 1)
    assert matmul.achieved_flop_per_s == pytest.approx(flop / 1050e-6)
    assert matmul.peak_ratio == pytest.approx(flop / 1050e-6 / PEAK)
    assert (pointwise.flop, pointwise.flop_ratio, pointwise.peak_ratio, pointwise.known_ratio) == (None, None, None, 0)
    assert device.flop_time_ratio == pytest.approx(1050 / 1500)
    assert device.mfu == pytest.approx(flop / PEAK / 1500e-6)


def test_the_articles_table_stands_beside_that_of_the_trace() -> None:
    matmul, pointwise = mixed().devices[0].groups
    assert (matmul.group, matmul.time_ratio, matmul.slower_ratio) == ("matmul", pytest.approx(0.7), 1)
    assert (matmul.article_flop_ratio, matmul.article_time_ratio) == (0.998, 0.61)
    assert (pointwise.slower_ratio, pointwise.article_time_ratio) == (None, 0.135)


@pytest.mark.parametrize(("unknown_us", "stands"), [(900, True), (1100, False)])
def test_a_rate_known_for_little_of_the_time_does_not_stand_for_the_group(unknown_us: int, stands: bool) -> None:
    rest = [launch(20, 5, 2), kernel(GEMM, 2000, unknown_us, correlation=2, grid=[500, 1, 1])]
    (matmul,) = analysed(product(0, 100, 1000, 1), rest).devices[0].groups
    shown = (matmul.achieved_flop_per_s is not None, matmul.flop_ratio is not None, matmul.slower_ratio == 1)
    assert shown == (stands,) * 3
    assert matmul.flop is not None


def test_the_article_says_250_and_700_times_less() -> None:
    groups = article().groups
    rate = {name: figures.flop_ratio / figures.time_ratio for name, figures in groups.items()}
    assert rate["matmul"] / rate["normalization"] == pytest.approx(250, rel=0.03)
    assert rate["matmul"] / rate["pointwise"] == pytest.approx(700, rel=0.06)
    assert sum(figures.flop_ratio for figures in groups.values()) == pytest.approx(1)
    assert sum(figures.time_ratio for figures in groups.values()) == pytest.approx(1)


def test_operators_have_the_work_of_their_kernels() -> None:
    report = mixed()
    work = {row["operator"]: row for row in report.tables["operator_work"].to_dicts()}
    flop = 2 * 2 * 4096**3 + 2 * 4096**2
    assert (work["aten::mm"]["flop"], work["aten::mm"]["time_ns"]) == (flop, 1_050_000)
    assert work["aten::mm"]["achieved_flop_per_s"] == pytest.approx(flop / 1050e-6)
    kernels = report.tables["activities"].filter(pl.col("kind") == "kernel")
    assert sum(row["time_ns"] for row in work.values()) == kernels.get_column("duration_ns").sum()
    assert sum(row["count"] for row in work.values()) == kernels.height


def test_a_step_has_its_own_mfu() -> None:
    report = analysed(
        *(annotation(f"ProfilerStep#{n}", 1000 * n, 900) for n in range(3)),
        *(product(1000 * n + 10, 1000 * n + 100, 500 + 100 * n, n + 1) for n in range(3)),
    )
    flop = 2 * 4096**3
    assert rows(report.tables["step_work"], "step", "flop") == [(0, flop), (1, flop), (2, flop)]
    lengths = [500, 1000 + 100, 1000 + 100]
    assert [step.mfu for step in report.steps] == pytest.approx([flop / PEAK / (n * 1e-6) for n in lengths])
    assert [step.flop for step in report.steps] == [flop] * 3


def test_work_belongs_to_all_modules_around_its_launch() -> None:
    """Check a block that calls two layers, where the second's backward product runs on another thread, later."""
    report = analysed(
        python("nn.Module: Block_0", 0, 100),
        python("nn.Module: Linear_0", 10, 30), product(15, 1000, 100, 1, **{"Sequence number": 1}),
        python("nn.Module: Linear_1", 50, 30), product(55, 1100, 200, 2, **{"Sequence number": 2}),
        op("MmBackward0", 200, 40, tid=7, **{"Sequence number": 2, "Fwd thread id": 1}),
        op("aten::mm", 205, 20, tid=7, **{"Input Dims": SQUARE, "Input type": ["c10::Half"] * 2}),
        launch(210, 5, 3, tid=7), kernel(GEMM, 1300, 400, correlation=3),
        launch(90, 2, 4), kernel(ADD, 1700, 50, correlation=4), launch(300, 2, 5), kernel(ADD, 1750, 1, correlation=5),
    )  # fmt: skip
    columns = ("module", "class", "parent", "depth", "call_count", "count", "time_ns", "backward_ns", "self_ns")
    assert rows(report.tables["modules"], *columns) == [
        ("Block_0", "Block", None, 0, 1, 4, 750, 400, 50),
        ("Linear_1", "Linear", "Block_0", 1, 1, 2, 600, 400, 600),
        ("Linear_0", "Linear", "Block_0", 1, 1, 1, 100, 0, 100),
    ]
    assert report.tables["modules"].get_column("flop").to_list() == [n * 2 * 4096**3 for n in (3, 2, 1)]


def test_a_module_within_itself_counts_once() -> None:
    report = analysed(
        python("nn.Module: Tree_0", 0, 100), python("nn.Module: Tree_0", 10, 80), python("walk.py(1): down", 12, 70),
        launch(20, 5, 1), kernel(ADD, 200, 30, correlation=1),
    )  # fmt: skip
    assert rows(report.tables["modules"], "module", "call_count", "time_ns", "self_ns") == [("Tree_0", 2, 30, 30)]


SORT = "void cub::DeviceRadixSortOnesweepKernel<P>(int)"
AT_PEAK_US = 2 * 4096**3 / 312e12 * 1e6
"""A product of 4096 cubed at peak: 440.5 us. It moves 100.7 MB, which takes 49.4 us."""


def square(start: float, lasting: float, number: int, **asked: Any) -> list[Any]:
    return product(20 * number, start, lasting, number, **asked)


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
    kernels = report.tables["activities"].filter(pl.col("kind") == "kernel")
    assert report.tables["bounds"].get_column("time_ns").sum() == kernels.get_column("duration_ns").sum()


UNTILED, LONG = "my_gemm", [[128, 262_144], [262_144, 128]]  # a long inner size, and two tiles of 128 x 64


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("events", "flags"),
    [
        (square(1000, 1700, 1), [(False, False)]),  # above a quarter of its roof
        (square(1000, 1800, 1), [(True, False)]),
        (square(1000, 1800, 1, name=UNTILED), [(True, False)]),
        (
            square(1000, 1800, 1, name=UNTILED, blocks=107),
            [(False, False)],
        ),  # one SM has no block, which explains little
        (
            square(1000, 1800, 1, name=UNTILED, blocks=54),
            [(False, False)],
        ),  # 2 times by its blocks, and 2.04 by the rest
        (square(1000, 1800, 1, name=UNTILED, blocks=53), [(False, True)]),
        (square(1000, 1800, 1, blocks=107), [(True, False)]),  # persistent: 2,048 tiles of 128 x 64
        (square(1000, 1800, 1, blocks=None), [(True, False)]),
        (square(1000, 1800, 1, name=UNTILED, blocks=None), [(False, False)]),  # who knows
        (square(1000, 1800, 1, name=UNTILED, blocks=0), [(False, False)]),  # a grid that was not recorded
        (square(1000, 500, 1, dims=LONG), [(True, False)]),  # 500 blocks split its inner size
        (square(1000, 500, 1, dims=LONG, blocks=None), [(False, True)]),
        (square(1000, 500, 1, dims=LONG, blocks=None, name=GEMM + "_splitK"), [(False, False)]),
        (square(1000, 19, 1, dims=[[512, 512]] * 2), [(False, False)]),  # too short to last
        (addition(1000, 350, 1), [(True, False)]),
        (addition(1000, 350, 1, kernels=2), [(False, False)] * 2),  # each pass may read and write everything
    ],
)
def test_what_lasts_and_stays_below_a_quarter_is_inefficient_or_has_few_tiles(events: Any, flags: Any) -> None:
    assert analysed(events).tables["roofs"].select("inefficient", "few_tiles").rows() == flags


@pytest.mark.parametrize(
    ("dims", "tiles", "split"),
    [
        # 449 blocks were recorded for these sizes on an MI300X; the other way round they would be 6,284.
        ([[32, 2880], [2880, 201_088]], 449, ""),
        ([[32, 2880], [2880, 201_088]], 3 * 449, "_GSU3"),  # three blocks share the inner size of each
        ([["x"], 7], None, ""),
        ([], None, ""),
    ],
)
def test_tiles_are_those_of_columns_first(dims: Any, tiles: int | None, split: str) -> None:
    name = f"Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT448x32x64_MI16x16x1_SN{split}"
    events = square(1000, 100, 1, dims=dims, name=name, blocks=None)
    assert analysed(events).tables["activities"].get_column("tiles").to_list() == [tiles]


def test_compute_without_flop_has_no_roof() -> None:
    kernels = pl.DataFrame({"bound": ["compute", "memory"]}).with_columns(
        flop=None, peak_flop_per_s=PEAK, moved_bytes=1e6, byte_per_s=1e12, matrix=False
    )
    assert kernels.select(roof_ns()).to_series().to_list() == [None, 1000]


def slow_products(name: str) -> Report:
    """Analyse eleven products of 12.24 ms by a kernel of this name."""
    return analysed(*(square(1000 + 12_300 * n, 12_240, n, name=name) for n in range(1, 12)))


def test_a_naive_product_is_not_called_limited_by_arithmetic() -> None:
    """At 3.6 % of the peak the advice is another kernel, not less work."""
    naive = "my_naive_matmul_kernel"
    report = slow_products(naive)
    assert report.verdict.regime == "compute-bound"
    assert "reach 3.6 % of their roof" in report.verdict.headline
    advice = {item.id: item for item in report.advice}
    assert "inefficient-kernels" in advice
    assert not {"less-work", "max-autotune"} & set(advice)
    assert naive in advice["inefficient-kernels"].code
    assert advice["inefficient-kernels"].saves_ns_at_most == pytest.approx(11 * (12_240 - AT_PEAK_US) * 1000, rel=1e-6)


def test_names_that_are_no_identifiers_stay_out_of_what_is_typed() -> None:
    hostile = 'x"; rm -rf ~ #<script>'
    report = slow_products(hostile)
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
    assert levels[1] == "medium"


def test_a_roof_that_arithmetic_exceeds_is_doubted_where_memory_limits_too() -> None:
    """Which kernels are memory-bound rests on the same peaks."""
    for takes, is_doubted in ((500, False), (300, True)):
        events = [
            [square(1000 * n, takes, n), addition(1000 * n + takes, 1000 - takes, 20 + n, 100_000_000)]
            for n in range(1, 12)
        ]
        verdict = analysed(events, step="all").verdict
        assert verdict.regime == "memory-bandwidth-bound"
        assert any("which is impossible" in why for why in verdict.confidence_why) is is_doubted


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


@settings(max_examples=examples(6))
@given(st.lists(st.tuples(st.booleans(), st.integers(445, 5000)), min_size=1, max_size=8))
def test_the_interval_holds_what_hidden_shapes_would_show(products: list[tuple[bool, int]]) -> None:
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
    back_to_back = [launched(GEMM, 10 * n, 200 * n + 5, 200, n + 1) for n in range(9)]
    assert "by kernel names, since little of their work is known" in analysed(back_to_back).verdict.headline


def test_steps_in_which_a_device_did_nothing_are_left_out_where_there_are_very_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    marks = [annotation(f"ProfilerStep#{n}", 10 * n, 9.9) for n in range(40)]
    work: list[Any] = [launched("k", 10 * d + 1, 10 * d + 3, 4, d + 1, device=d, takes=1) for d in range(12)]
    few = analysed(marks, work)
    assert len(few.steps) > 40
    assert "many-steps" not in notes(few)
    monkeypatch.setattr(steps, "MAX_STEP_ROWS", 100)
    monkeypatch.setattr("trace_analyzer.report_notes.MAX_STEP_ROWS", 100)
    report = analysed(marks, work)
    assert len(report.steps) == report.tables["steps"].height == 12
    assert notes(report)["many-steps"] == 12 * 40 - 12


def test_a_file_of_many_devices_and_steps_has_rows_in_proportion() -> None:
    marks = [annotation(f"ProfilerStep#{n}", 10 * n, 9.9) for n in range(1_000)]
    work = [launched("k", 10 * d + 1, 10 * d + 3, 4, d + 1, device=d, takes=1) for d in range(256)]
    content = trace_bytes([marks, work])
    assert len(analyze(content).to_json()) < 12 * len(content)


@pytest.mark.parametrize("place", ["tid", "stream"])
def test_the_timeline_shows_the_busiest_of_very_many_rows(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "MAX_TRACKS", 10)
    pairs = [launched("k", 20 * n, 20 * n + 8, 1 + n % 7, n + 1) for n in range(60)]
    for n, (call, run) in enumerate(pairs):
        if place == "tid":
            call["tid"] = 1_000 + n
        else:
            run["tid"] = run["args"]["stream"] = n
    columns = timeline.timeline_columns(analysed(pairs))
    assert len(columns.tracks) == 10
    assert "rows of streams and threads" in columns.left_out[-1]
    timeline.payload(columns)


def test_a_device_s_name_has_the_length_that_drivers_have_room_for() -> None:
    report = analysed(launched("k", 1, 5, 3, 1), devices=[A100 | {"name": "x" * 1_000_000}])
    assert report.trace.devices[0].name == "x" * 255 + "\u2026"
    assert len(report.to_json()) < 50_000


FLOP = 2 * 4096**3
SGEMM, SIMT_HALF = "ampere_sgemm_128x64_nn", "void cutlass::Kernel2<cutlass_80_simt_hgemm_128x64_8x5_nn_align1>()"
ALIGN1 = "void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_f16_256x128_64x3_tn_align1>()"
ALIGN8 = ALIGN1.replace("align1", "align8")
V100 = A100 | {"name": "Tesla V100-SXM2-16GB", "totalGlobalMem": 16945512448, "computeMajor": 7, "numSms": 80}


def typed(name: str, dtype: str, duration: int, dims: Any = SQUARE, **asked: Any) -> list[Any]:
    return product(0, 20, duration, 1, dims, name=name, dtype=dtype, **asked)


def actual(*events: Any, **options: Any) -> list[dict[str, Any]]:
    return analysed(*events, **options).tables["tensor_cores"].to_dicts()


ODD = [[4097, 4095], [4095, 4097]]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("events", "device", "reason", "target", "could_ns"),
    [
        # 137.4 GFLOP take 7.05 ms at 19.5 TFLOP/s, and 881 us at the A100's 156 TFLOP/s in TF32.
        (typed(SGEMM, "float", 8_000), A100, "fp32", "tf32", FLOP / 156e12 * 1e9),
        # 8 ms in fp32 are 1 ms in TF32, an eighth of the peak, which alone bounds it without shapes.
        (typed(SGEMM, "float", 8_000, shapes=False), A100, "fp32", "tf32", 1e6),
        (typed(SGEMM, "float", 12_000), V100, "fp32", "fp16", FLOP / 125e12 * 1e9),
        (typed(SIMT_HALF, "c10::Half", 5_000), A100, "vector-units", "fp16", FLOP / 312e12 * 1e9),
        # Rows that do not start at 16 bytes.
        (typed(ALIGN1, "c10::Half", 1_000, ODD), A100, "unaligned", "fp16", 2 * 4097 * 4095 * 4097 / 312e12 * 1e9),
    ],
)  # fmt: skip
def test_what_tensor_cores_would_do_faster(
    events: list[Any], device: dict[str, Any], reason: str, target: str, could_ns: float
) -> None:
    (row,) = actual(events, devices=[device])
    assert (row["reason"], row["dtype"], row["target_dtype"]) == (
        reason,
        "fp32" if reason == "fp32" else "fp16",
        target,
    )
    assert row["could_ns"] == pytest.approx(could_ns)
    assert row["saves_ns"] == pytest.approx(row["time_ns"] - could_ns)
    assert (row["flop"] is None) == ("args" not in events[0])


def test_what_tensor_cores_would_do_has_its_code() -> None:
    report = analysed(typed(SGEMM, "float", 12_000), devices=[V100])
    (reported,) = report.devices[0].tensor_cores
    assert (reported.target_dtype, reported.code) == ("fp16", "torch.autocast('cuda', dtype=torch.float16)")
    assert "1 matmul or convolution in fp32" in " ".join(report.summary(verbose=True).split())
    (reported,) = analysed(typed(ALIGN1, "c10::Half", 1_000, ODD)).devices[0].tensor_cores
    assert reported.code == "pad the innermost sizes to multiples of 8 elements"


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("events", "device"),
    [
        pytest.param(typed(ALIGN8, "c10::Half", 500), A100, id="aligned"),
        pytest.param(typed(GEMM, "c10::Half", 500), A100, id="tensor-cores"),
        pytest.param(typed(SGEMM, "float", 800), A100, id="at-the-roof-already"),
        pytest.param(typed("void gemv2T_kernel_val<int, float>()", "float", 100, DECODE), A100, id="held-by-memory"),
        pytest.param(typed(ADD, "float", 100), A100, id="no-matmul"),
        pytest.param(typed("my_own_gemm", "c10::Half", 1_000, shapes=False), A100, id="nothing-known"),
        pytest.param(typed(SGEMM, "float", 8_000), UNLISTED, id="no-device"),
    ],
)
def test_what_is_well_as_it_is(events: list[Any], device: dict[str, Any]) -> None:
    assert actual(events, devices=[device]) == []


def test_equal_kernels_are_one_row() -> None:
    twice = [
        op("aten::mm", 0, 30, **{"Input Dims": SQUARE, "Input type": ["float"] * 2}),
        launch(1, 2, 1), launch(5, 2, 2), kernel(SGEMM, 50, 4_000, correlation=1), kernel(SGEMM, 4_050, 4_000, correlation=2),
    ]  # fmt: skip
    assert rows(analysed(twice).tables["tensor_cores"], "count", "time_ns", "flop") == [(2, 8_000, FLOP)]
