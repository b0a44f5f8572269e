"""Test collectives and copies: sizes, bandwidths and exposed time, worked out by hand."""

import itertools
from typing import Any

import polars as pl
import pytest
from kineto import A100, analysed, call, copy, kernel, launch, launched, op, rows

from trace_analyzer.catalog.event_names import WITHIN_DEVICE, copy_direction, direction_rules
from trace_analyzer.render.row_phrases import movement
from trace_analyzer.report.summaries import movements

NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
ADD = "void at::native::vectorized_elementwise_kernel<4, x>(int)"


def collective(name: str, elements: int, ranks: int | None, duration: int = 100, n: int = 0, **more: Any) -> list[Any]:
    """Build a collective of bf16 elements, 100 us behind its operator; the n-th 1 ms behind the first."""
    args = {"Collective name": name, "In msg nelems": elements, "dtype": "BFloat16"} | (
        {"Group size": ranks} if ranks else {}
    )
    kernel_ = launched("ncclDevKernel_SendRecv(x)", 1000 * n + 5, 1000 * n + 100, duration, n + 1, **more)
    return [op("record_param_comms", 1000 * n, 20, **args), kernel_]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("name", "kind", "size", "bus"),
    [
        ("allreduce", "all_reduce", 2e6, 2e10 * 2 * 7 / 8), ("_allgather_base", "all_gather", 16e6, 16e10 * 7 / 8),
        ("_reduce_scatter_base", "reduce_scatter", 2e6, 2e10 * 7 / 8), ("all_to_allv", "all_to_all", 2e6, 2e10 * 7 / 8),
        ("broadcast", "broadcast", 2e6, 2e10), ("send", "send_recv", 2e6, 2e10),
    ],
)  # fmt: skip
def test_bandwidth_of_eight_ranks(name: str, kind: str, size: float, bus: float) -> None:
    """Check the bandwidth of a million bf16 elements in 100 us: 20 GB/s of what one rank sends."""
    (row,) = analysed(collective(name, 1_000_000, 8)).tables["collectives"].to_dicts()
    assert (row["collective"], row["message_bytes"], row["group_size"]) == (kind, size, 8)
    assert row["algorithm_byte_per_s"] == pytest.approx(size / 100e-6)
    assert row["bus_byte_per_s"] == pytest.approx(bus)


def test_without_the_number_of_ranks_there_is_no_bus_bandwidth() -> None:
    (row,) = analysed(collective("allreduce", 1_000_000, None)).tables["collectives"].to_dicts()
    assert (row["message_bytes"], row["bus_byte_per_s"]) == (2e6, None)


def test_messages_by_shape_where_arguments_were_not_recorded() -> None:
    report = analysed(
        op("c10d::alltoall_base_", 0, 30),
        op("record_param_comms", 1, 20, **{"Input Dims": [[512, 64], [], []], "Input type": ["c10::Half", "", ""]}),
        launch(5, 5, 1), kernel("ncclDevKernel_SendRecv(x)", 100, 10, correlation=1),
        op("symm_mem::multimem_all_reduce_", 40, 9, **{"Input Dims": [[1000], []], "Input type": ["float", ""]}),
        launch(42, 5, 2), kernel("multimem_all_reduce_kernel<c10::BFloat16, 16>", 200, 10, correlation=2),
        kernel("void deep_ep::intranode::dispatch<8, 768>(int4*)", 300, 10), kernel(NCCL, 400, 10),
    )  # fmt: skip
    assert rows(report.tables["collectives"], "collective", "message_bytes") == [
        ("all_to_all", 2 * 512 * 64), ("all_reduce", 4000), ("all_to_all", None), ("all_reduce", None),
    ]  # fmt: skip


def test_exposed_is_what_no_other_work_hides() -> None:
    """Check a collective of 100 us that overlaps a kernel in its first 30 us, and another from 80 us on."""
    report = analysed(
        collective("allreduce", 1_000_000, 8, stream=20), kernel(ADD, 90, 40), kernel(ADD, 180, 60),
        copy("HtoD (Pinned -> Device)", 130, 20, stream=30),
    )  # fmt: skip
    assert rows(report.tables["collectives"], "hidden_ns", "exposed_ns") == [(50, 50)]
    reported = report.devices[0].communication
    assert (reported.time_ns, reported.exposed_ns, reported.hidden_ns) == (100_000, 50_000, 50_000)
    assert reported.bus_byte_per_s == pytest.approx(2e10 * 1.75)
    assert report.devices[0].partition_ns["communication"] == 50_000


def test_collectives_of_one_kind_and_size_are_one_row_and_the_fastest_is_held_against_the_link() -> None:
    """16 MB among 8 ranks: an all_reduce puts 2 * 7 / 8 of them on the bus."""
    report = analysed(*(collective("allreduce", 8_000_000, 8, us, n) for n, us in enumerate((200, 125))))
    (row,) = report.tables["communication"].to_dicts()
    assert (row["count"], row["time_ns"], row["message_bytes"]) == (2, 325_000, 16e6)
    best = 16e6 / 125e-6 * 2 * 7 / 8
    assert row["bus_byte_per_s"] == pytest.approx(2 * 16e6 / 325e-6 * 2 * 7 / 8)
    assert row["best_bus_byte_per_s"] == pytest.approx(best)
    assert (row["link"], row["link_ratio"]) == ("nvlink", pytest.approx(best / NVLINK))
    figures = report.devices[0].communication
    assert (figures.best_bus_byte_per_s, figures.link_ratio) == (pytest.approx(best), pytest.approx(best / NVLINK))


def test_a_device_that_does_not_communicate() -> None:
    report = analysed(kernel(ADD, 0, 10))
    assert report.devices[0].communication is None
    assert report.tables["collectives"].is_empty()
    assert report.tables["copies"].is_empty()


def test_copies_by_direction_and_memory() -> None:
    """64 KiB or more is no small copy; a kernel hides a third of the pinned copy."""
    report = analysed(
        op("aten::copy_", 0, 30), call("cudaMemcpyAsync", 2, 20, correlation=1),
        copy("HtoD (Pageable -> Device)", 10, 10, correlation=1, bytes=65_535),
        copy("HtoD (Pageable -> Device)", 30, 10, bytes=65_536),
        copy("HtoD (Pinned -> Device)", 50, 30, bytes=600_000, stream=9), kernel(ADD, 50, 10),
        copy("DtoH", 90, 10), copy("DtoD (Device -> Device)", 100, 10, bytes=100),
    )  # fmt: skip
    columns = ("direction", "host_memory", "operator", "count", "bytes", "exposed_ns", "call_ns", "small_count")
    assert sorted(rows(report.tables["copies"], *columns), key=str) == [
        ("device-to-host", None, None, 1, None, 10, 0, 0),
        ("host-to-device", "pageable", "aten::copy_", 1, 65_535, 10, 20, 1),
        ("host-to-device", "pageable", None, 1, 65_536, 10, 0, 0),
        ("host-to-device", "pinned", None, 1, 600_000, 20, 0, 0),
        ("within-device", None, None, 1, 100, 10, 0, 1),
    ]
    places = rows(report.tables["copies"].filter(direction="host-to-device"), "host_memory", "start_ns", "end_ns")
    assert ("pinned", 50, 80) in places
    pinned = report.devices[0].copies[0]
    assert (pinned.host_memory, pinned.byte_per_s, pinned.exposed_ns) == ("pinned", pytest.approx(20e9), 20_000)
    pageable = report.devices[0].copies[1]
    assert (pageable.count, pageable.bytes, pageable.small_count, pageable.call_ns) == (2, 131_071, 1, 20_000)


def test_other_names_tell_no_direction() -> None:
    names = pl.DataFrame({"name": ["Memcpy S2D (Shared -> Device)", "Memcpy Unknown", ""]})
    assert set(names.select(copy_direction()).to_series()) == {None}
    assert WITHIN_DEVICE in {rule.name for rule in direction_rules()}


def test_copies_of_an_xpu() -> None:
    names = ("Memcpy M2D (Memory -> Device)", "Memcpy D2D (Device -> Device)", "Memcpy D2M (Device -> Memory)")
    report = analysed([
        [call("urEnqueueUSMMemcpy", 100 * n, 5, correlation=n + 1, category="xpu_runtime"),
         kernel(name, 100 * n + 10, 20, category="gpu_memcpy", correlation=n + 1, bytes=100_000)]
        for n, name in enumerate(names)
    ])  # fmt: skip
    assert report.tables["activities"].get_column("bound").to_list() == ["copy", "memory", "copy"]
    assert sorted(rows(report.tables["copies"], "direction", "bytes")) == [
        ("device-to-host", 100_000), ("host-to-device", 100_000), ("within-device", 100_000),
    ]  # fmt: skip


PCIE, NVLINK = 31.5e9, 300e9


def copied(direction: str, *sizes: tuple[int, float]) -> list[Any]:
    """Build copies of (bytes, us)."""
    return [
        [
            call("cudaMemcpyAsync", at, 5, correlation=at + 1),
            copy(direction, at + 10, us, bytes=size, correlation=at + 1),
        ]
        for at, (size, us) in zip(itertools.count(0, 100), sizes, strict=False)
    ]


@pytest.mark.parametrize(
    ("copies", "devices", "link", "ratio"),
    [
        # small copies are left out of the share: they take longer to start than to move
        (copied("HtoD (Pinned -> Device)", (1_000_000, 50), (1000, 5)), [A100], "pcie", 1e6 / 50e-6 / PCIE),
        (copied("HtoD (Pinned -> Device)", (1000, 5)), [A100], "pcie", None),
        (copied("PtoP (Device -> Device)", (3_000_000, 20)), [A100], "nvlink", 3e6 / 20e-6 / NVLINK),
        (copied("DtoD (Device -> Device)", (1_000_000, 50)), [A100], None, None),
        (copied("HtoD (Pinned -> Device)", (1_000_000, 50)), [{"id": 0, "name": "Some accelerator"}], None, None),
    ],
    ids=["to the host", "small", "between devices", "within a device", "unknown device"],
)
def test_copies_take_a_link(copies: list[Any], devices: list[Any], link: str | None, ratio: float | None) -> None:
    report = analysed(copies, devices=devices)
    row, figures = report.tables["copies"].row(0, named=True), report.devices[0].copies[0]
    assert (row["link"], row["link_ratio"]) == (link, ratio and pytest.approx(ratio))
    assert (figures.link, figures.link_ratio) == (row["link"], row["link_ratio"])


def test_a_copy_is_shown_with_the_share_of_its_link() -> None:
    (device,) = analysed(copied("HtoD (Pinned -> Device)", (1_000_000, 50), (1000, 5))).devices
    assert [row for row in movements(device) if "(large ones 63 % of PCIe's peak)" in movement(row)]
