"""Overlap on one stream, by design or corrupt; and exclusive times, which sum to busy time (microseconds)."""

from typing import Any

import polars as pl
import pytest
from generator import RandomTrace, random_traces
from hypothesis import HealthCheck, given, settings
from kineto import A100, Event, analysed, copy, kernel, launch, launched
from lazy_report import report_on
from tiers import examples

from trace_analyzer.report import Report

pytestmark = pytest.mark.slow

H100 = A100 | {"name": "NVIDIA H100 80GB HBM3", "computeMajor": 9, "computeMinor": 0, "numSms": 132}
MI300X = {"id": 0, "name": "AMD Instinct MI300X", "computeMajor": 9, "computeMinor": 4, "warpSize": 64, "numSms": 304}
UNLISTED = {"id": 0, "name": "", "computeMajor": 11, "computeMinor": 7, "warpSize": 32, "numSms": 77}
GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n"


def chain(count: int = 40, *, each: int = 10, overlap: int = 3, **args: Any) -> list[list[Event]]:
    """Build kernels of which each starts ``overlap`` before the one before it ends."""
    period = each - overlap
    return [
        [launch(n, 1, n + 1), kernel(GEMM, 100 + period * n, each, correlation=n + 1, **args)] for n in range(count)
    ]


def ratios(*events: Any, device: dict[str, Any] = H100) -> tuple[float, float, str]:
    """Return the overlap by design, the overlap not by design, and what the check says."""
    checks = {check.name: check for check in analysed(*events, devices=[device]).trust}
    overlap, designed = checks["stream_overlap"], checks["dependent_launches"]
    assert overlap.value is not None
    assert designed.value is not None
    return float(designed.value), float(overlap.value), overlap.status


def test_dependent_launches_overlap_by_design() -> None:
    assert ratios(chain()) == (pytest.approx(39 * 3 / 400), 0.0, "ok")
    report = analysed(chain(), devices=[H100])
    assert report.devices[0].withheld == ()
    assert report.verdict.status == "ok"


@pytest.mark.parametrize("device", [A100, MI300X], ids=["no such launches", "another vendor's 9.x"])
def test_on_a_device_that_cannot_it_is_corrupt(device: dict[str, Any]) -> None:
    assert ratios(chain(), device=device) == (0.0, pytest.approx(39 * 3 / 400), "fail")


def test_an_unlisted_device_is_known_by_its_capability() -> None:
    assert ratios(chain(), device=UNLISTED)[2] == "ok"
    assert ratios(chain(), device=UNLISTED | {"name": "AMD Radeon 9999"})[2] == "fail"
    assert ratios(chain(), device=UNLISTED | {"computeMajor": 8})[2] == "fail"


def test_without_a_capability_the_names_of_kernels_tell() -> None:
    nameless = {"id": 0, "name": "Some board", "numSms": 77}
    assert ratios(chain(), device=nameless)[2] == "ok"
    older = [event | {"name": event["name"].replace("sm90", "sm80")} for pair in chain() for event in pair]
    assert ratios(older, device=nameless)[2] == "fail"


@pytest.mark.sampled
@pytest.mark.parametrize(
    "second",
    [
        [launch(1, 1, 2), kernel(GEMM, 110, 10, correlation=2)],  # contained
        [launch(1, 1, 2), kernel(GEMM, 121, 8, correlation=2)],  # contained in its tail
        [launch(1, 1, 2), kernel(GEMM, 100, 40, correlation=2)],  # together
        [launch(1, 1, 2), kernel(GEMM, 110, 40, correlation=2)],  # not in its tail
        [launch(-1, 1, 2), kernel(GEMM, 120, 40, correlation=2)],  # launched before it
        [launch(1, 1, 2), copy("DtoD (Device -> Device)", 120, 40, correlation=2)],  # no kernel
    ],
    ids=["contained", "contained in its tail", "together", "early", "reversed", "a copy"],
)  # fmt: skip
def test_other_overlap_is_corrupt(second: list[Event]) -> None:
    first = [launch(0, 1, 1), kernel(GEMM, 100, 30, correlation=1)]
    moved = [event | {"ts": event["ts"] + 50} for event in [*first, *second]]
    designed, corrupt, status = ratios(moved)
    assert designed == 0.0
    assert corrupt > 0.1
    assert status == "fail"
    tail = [launch(51, 1, 2), kernel(GEMM, 166, 40, correlation=2)]
    assert ratios(moved[:2], tail)[0] > 0, "as the others do not"


def test_many_at_once_are_corrupt() -> None:
    designed, corrupt, status = ratios(chain(each=900, overlap=540), chain(0))
    assert (designed, status) == (0.0, "fail")
    three = [[launch(n, 1, n + 1), kernel(GEMM, 100 + 4 * n, 9, correlation=n + 1)] for n in range(30)]
    designed, corrupt, status = ratios(three)
    assert designed < corrupt
    assert status == "fail"


def test_a_stream_of_its_own_overlaps_nothing() -> None:
    assert ratios(chain(), [launch(60, 1, 900), kernel(GEMM, 100, 500, correlation=900, stream=20)])[1] == 0.0


# Exclusive times


def kernels(report: Report) -> dict[str, tuple[int, int]]:
    return {name: (own, alone) for name, own, alone in report.tables["kernels"].select("name", "time_ns", "exclusive_ns").iter_rows()}  # fmt: skip


def test_an_instant_is_credited_once() -> None:
    report = analysed(
        launched("ampere_sgemm_128x64_tn", 0, 100, 50, 1),
        launched("void at::native::vectorized_elementwise_kernel<4, x>(int)", 10, 120, 60, 2, stream=20),
        launched("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 20, 90, 100, 3, stream=30),
    )
    assert list(kernels(report).values()) == [(100_000, 20_000), (60_000, 30_000), (50_000, 50_000)]
    assert report.devices[0].busy_ns == 100_000


def test_of_dependent_kernels_the_first_keeps_its_time() -> None:
    report = analysed(chain(3, each=30, overlap=10), devices=[H100])
    assert kernels(report) == {GEMM: (90_000, 70_000)}


@given(random_traces())
@settings(max_examples=examples(8), suppress_health_check=[*HealthCheck])
def test_exclusive_times_add_up_to_busy_time_and_to_the_parts(trace: RandomTrace) -> None:
    report = report_on(trace.content)
    for device in report.devices:
        rows = report.tables["kernels"].filter(pl.col("device") == device.index)
        assert rows.get_column("exclusive_ns").sum() == device.busy_ns
        assert (rows.get_column("exclusive_ns") <= rows.get_column("time_ns")).all()
        assert (rows.get_column("exclusive_ns") >= 0).all()
