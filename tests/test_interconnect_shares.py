"""Check that copies and collectives show their share of the interconnect's peak (figures of an A100 SXM)."""

from typing import Any

import polars as pl
import pytest
from kineto import analysed, call, copy, kernel, launch, op

from trace_analyzer.render.row_phrases import movement
from trace_analyzer.report.summaries import movements

PCIE, NVLINK = 31.5e9, 300e9
PEER = "PtoP (Device -> Device)"


def copied(direction: str, *sizes: tuple[int, float]) -> list[Any]:
    """Build copies of (bytes, us)."""
    return [
        [call("cudaMemcpyAsync", 100 * i, 5, correlation=1 + i), copy(direction, 10 + 100 * i, us, bytes=size, correlation=1 + i)]
        for i, (size, us) in enumerate(sizes)
    ]  # fmt: skip


def test_copies_to_the_host_take_pcie() -> None:
    """Check that copies between host and device are held against the peak of PCIe.

    Small copies are left out of the share: they take longer to start than to move.
    """
    report = analysed(copied("HtoD (Pinned -> Device)", (1_000_000, 50), (1000, 5)))
    row = report.tables["copies"].row(0, named=True)
    assert (row["link"], row["link_byte_per_s"]) == ("pcie", PCIE)
    assert row["link_ratio"] == pytest.approx(1e6 / 50e-6 / PCIE)
    figures = report.devices[0].copies[0]
    assert (figures.link, figures.link_ratio) == ("pcie", pytest.approx(row["link_ratio"]))
    assert [row for row in movements(report.devices[0]) if "(large ones 63 % of PCIe's peak)" in movement(row)]


def test_copies_between_devices_take_the_fastest_way() -> None:
    row = analysed(copied(PEER, (3_000_000, 20))).tables["copies"].row(0, named=True)
    assert (row["link"], row["link_ratio"]) == ("nvlink", pytest.approx(3e6 / 20e-6 / NVLINK))


def test_within_a_device_no_link_is_taken() -> None:
    row = analysed(copied("DtoD (Device -> Device)", (1_000_000, 50))).tables["copies"].row(0, named=True)
    assert (row["link"], row["link_ratio"]) == (None, None)


def test_small_copies_alone_have_no_share() -> None:
    row = analysed(copied("HtoD (Pinned -> Device)", (1000, 5))).tables["copies"].row(0, named=True)
    assert (row["link"], row["link_ratio"]) == ("pcie", None)


def test_an_unknown_device_has_no_link() -> None:
    unknown = {"devices": [{"id": 0, "name": "Some accelerator"}]}
    row = analysed(copied("HtoD (Pinned -> Device)", (1_000_000, 50)), **unknown).tables["copies"].row(0, named=True)
    assert (row["link"], row["link_ratio"]) == (None, None)


def test_the_fastest_collective_is_held_against_the_link() -> None:
    """16 MB among 8 ranks: an all_reduce puts 2 * 7 / 8 of them on the bus."""
    inputs = {
        "Collective name": "allreduce", "In msg nelems": 4_000_000, "dtype": "Float", "Group size": 8,
        "Input Dims": [[4_000_000]], "Input type": ["float"],
    }  # fmt: skip
    name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    calls = [
        [op("record_param_comms", 300 * i, 20, **inputs), launch(300 * i + 5, 5, 1 + i), kernel(name, 300 * i + 30, us, correlation=1 + i)]
        for i, us in enumerate((200, 125))
    ]  # fmt: skip
    report = analysed(calls)
    best = 16e6 / 125e-6 * 2 * 7 / 8
    row = report.tables["communication"].row(0, named=True)
    assert (row["link"], row["link_ratio"]) == ("nvlink", pytest.approx(best / NVLINK))
    figures = report.devices[0].communication
    assert figures is not None
    assert (figures.best_bus_byte_per_s, figures.link_ratio) == (pytest.approx(best), pytest.approx(best / NVLINK))
    assert report.tables["communication"].filter(pl.col("link_ratio") > 1).is_empty()
