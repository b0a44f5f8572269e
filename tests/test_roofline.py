"""Test kernels and their roofline, their sums by name, step and module, and the article's table: worked out by hand.

The A100 of `kineto` does 312e12 FLOP/s in fp16 on its tensor cores and moves 2039e9 bytes per second.
"""

from typing import Any

import polars as pl
import pytest
from kineto import analysed, annotation, kernel, launch, op, python, rows

from trace_analyzer.catalog.kernels import article
from trace_analyzer.report import Report

GEMM, ADD = "ampere_fp16_s16816gemm_fp16_128x64", "void at::native::vectorized_elementwise_kernel<4, x>(int)"
PEAK, BANDWIDTH = 312e12, 2039e9
SQUARE, DECODE = [[4096, 4096], [4096, 4096]], [[1, 4096], [4096, 4096]]
UNLISTED = {"id": 0, "name": "NVIDIA Unlisted 9000"}


def product(
    called: int, start: int, duration: int, number: int, dims: list[list[int]] = SQUARE, **args: Any
) -> list[Any]:
    """Build a matrix product in fp16 whose launch takes the middle of an operator of 10 us."""
    return [
        op("aten::mm", called, 10, **{"Input Dims": dims, "Input type": ["c10::Half"] * 2}, **args),
        launch(called + 2, 5, number),
        kernel(GEMM, start, duration, correlation=number, grid=[500, 1, 1]),
    ]


def test_a_product_against_both_roofs() -> None:
    """Check that a product is compared with both roofs.

    4096 cubed: 137.4 GFLOP take 440.5 us at peak; 100.7 MB take 49.4 us at full bandwidth.
    """
    report = analysed(product(0, 20, 500, 1))
    (row,) = report.tables["roofs"].to_dicts()
    flop, moved = 2 * 4096**3, 3 * 2 * 4096**2
    assert row == {
        "activity_id": 0, "intensity_flop_per_byte": pytest.approx(flop / moved),
        "peak_flop_per_s": PEAK, "attainable_flop_per_s": PEAK,
        "achieved_flop_per_s": pytest.approx(flop / 500e-6), "achieved_byte_per_s": pytest.approx(moved / 500e-6),
        "compute_roof_ns": pytest.approx(440_510, abs=1), "roof_ns": pytest.approx(440_510, abs=1),
        "roof_ratio": pytest.approx(0.88102, abs=1e-5), "lost_ns": pytest.approx(59_490, abs=1), "inefficient": False,
    }  # fmt: skip


def test_a_thin_product_is_held_by_the_bandwidth() -> None:
    """Check that a skinny matmul is limited by bandwidth.

    1 x 4096 x 4096: one FLOP per byte; 33.6 MB take 16.5 us, their FLOP 0.1 us.
    """
    (row,) = analysed(product(0, 20, 40, 1, DECODE)).tables["roofs"].to_dicts()
    moved = 2 * (4096 + 4096**2 + 4096)
    assert row["roof_ns"] == pytest.approx(moved / BANDWIDTH * 1e9)
    assert row["attainable_flop_per_s"] == pytest.approx(2 * 4096**2 / moved * BANDWIDTH)


def test_faster_than_the_memory_loses_nothing_and_is_not_clamped() -> None:
    (row,) = analysed(product(0, 20, 10, 1, DECODE)).tables["roofs"].to_dicts()
    assert row["roof_ratio"] > 1.6
    assert row["lost_ns"] == 0


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
    assert (matmul.group, matmul.time_ratio, matmul.slower_ratio) == (
        "matmul", pytest.approx(0.7), 1,
    )  # fmt: skip
    assert (matmul.article_flop_ratio, matmul.article_time_ratio) == (0.998, 0.61)
    assert (pointwise.slower_ratio, pointwise.article_time_ratio) == (None, 0.135)


@pytest.mark.parametrize(("unknown_us", "stands"), [(900, True), (1100, False)])
def test_a_rate_known_for_little_of_the_time_does_not_stand_for_the_group(unknown_us: int, stands: bool) -> None:
    rest = [launch(20, 5, 2), kernel(GEMM, 2000, unknown_us, correlation=2, grid=[500, 1, 1])]
    (matmul,) = analysed(product(0, 100, 1000, 1), rest).devices[0].groups
    assert (matmul.achieved_flop_per_s is not None, matmul.flop_ratio is not None, matmul.slower_ratio == 1) == (
        stands,
    ) * 3
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
    columns = ("module", "parent", "depth", "call_count", "count", "time_ns", "backward_ns", "self_ns")
    assert rows(report.tables["modules"], *columns) == [
        ("Block_0", None, 0, 1, 4, 750, 400, 50),
        ("Linear_1", "Block_0", 1, 1, 2, 600, 400, 600),
        ("Linear_0", "Block_0", 1, 1, 1, 100, 0, 100),
    ]
    assert report.tables["modules"].get_column("flop").to_list() == [n * 2 * 4096**3 for n in (3, 2, 1)]


def test_a_module_within_itself_counts_once() -> None:
    report = analysed(
        python("nn.Module: Tree_0", 0, 100), python("nn.Module: Tree_0", 10, 80), python("walk.py(1): down", 12, 70),
        launch(20, 5, 1), kernel(ADD, 200, 30, correlation=1),
    )  # fmt: skip
    assert rows(report.tables["modules"], "module", "call_count", "time_ns", "self_ns") == [("Tree_0", 2, 30, 30)]
