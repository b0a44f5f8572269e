"""Test bounds of kernels: communication, latency, intensity against the machine balance, else the prior."""

from typing import Any

import pytest
from kineto import A100, analysed, call, copy, kernel, launch, launched, memset, op, rows

GEMM, ADD, NCCL = (
    "ampere_fp16_s16816gemm_fp16_128x64", "void at::native::vectorized_elementwise_kernel<4, x>(int)", "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
)  # fmt: skip


def bounds(*events: Any, **options: Any) -> list[str]:
    return analysed(*events, **options).tables["activities"].get_column("bound").to_list()


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("name", "duration", "blocks", "bound"),
    [
        (GEMM, 2.999, 500, "latency"), (GEMM, 3, 500, "compute"), (ADD, 3, 500, "memory"), (NCCL, 1, 1, "communication"),
        (ADD, 19.999, 107, "latency"), (ADD, 19.999, 108, "memory"), (ADD, 20, 1, "memory"), (ADD, 19, None, "memory"),
        (GEMM, 500, 1, "compute"), ("my_own_kernel", 50, 500, "other"), ("my_own_kernel", 1, 500, "latency"),
    ],
)  # fmt: skip
def test_without_shapes(name: str, duration: float, blocks: int | None, bound: str) -> None:
    grid = {} if blocks is None else {"grid": [blocks, 1, 1]}
    assert bounds(kernel(name, 0, duration, **grid)) == [bound]


def test_few_blocks_prove_nothing_on_an_unknown_device() -> None:
    unknown = A100 | {"name": "Frobnicator 9", "numSms": 0}
    assert bounds(kernel(ADD, 0, 10, grid=[1, 1, 1]), devices=[unknown]) == ["memory"]


def test_copies_and_memsets() -> None:
    between = (
        "HtoD (Pageable -> Device)",
        "DtoH (Device -> Pinned)",
        "PtoP (Device -> Device)",
        "DtoD (Device -> Device)",
    )
    copies = [copy(direction, 10 * n, 9) for n, direction in enumerate(between)]
    assert bounds(*copies, memset(40, 9)) == ["copy", "copy", "copy", "memory", "memory"]


def shaped(operator: str, dims: list[list[int]], kernels: int = 1, blocks: int = 500) -> list[Any]:
    """Build an operator with shapes that launches kernels of 50 us."""
    around = op(operator, 0, 30, **{"Input Dims": dims, "Input type": ["c10::Half"] * len(dims)})
    return [
        around,
        *(launched(GEMM, 1 + 2 * n, 40 + 50 * n, 50, n + 1, takes=1, grid=[blocks, 1, 1]) for n in range(kernels))
    ]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(("rows", "bound"), [(4096, "compute"), (1, "memory"), (32, "memory")])
def test_shapes_overrule_the_prior(rows: int, bound: str) -> None:
    """Check A100 bounds: 312e12 FLOP take the time of moving about 2e12 bytes; break-even is near 150 FLOP per byte."""
    assert bounds(*shaped("aten::mm", [[rows, 4096], [4096, 4096]])) == [bound]


@pytest.mark.parametrize(("blocks", "bound", "near_ridge"), [(500, "memory", True), (32, "compute", False)])
def test_multiprocessors_without_a_tile_compute_nothing(blocks: int, bound: str, near_ridge: bool) -> None:
    """120 FLOP per byte are under the A100's 153; 32 tiles occupy 32 of 108 multiprocessors, whose balance is 45."""
    report = analysed(shaped("aten::mm", [[128, 65_536], [65_536, 2_048]], blocks=blocks))
    assert report.tables["activities"].get_column("bound").to_list() == [bound]
    assert report.tables["roofs"].get_column("near_ridge").to_list() == [near_ridge]


def test_the_kernels_of_an_operator_share_its_work() -> None:
    report = analysed(shaped("aten::mm", [[10, 20], [20, 30]], kernels=2))
    table = report.tables["activities"].select("flop", "moved_bytes", "dtype")
    assert table.rows() == [(6_000.0, 2 * (200 + 600 + 300) / 2, "fp16")] * 2


@pytest.mark.slow
def test_peaks_that_the_caller_states_decide() -> None:
    """1024 cubed in fp16 is 341 FLOP per byte."""
    square = shaped("aten::mm", [[1024, 1024], [1024, 1024]])
    assert bounds(*square, peak_tflops={"fp16": 100}, peak_gbps=1_000) == ["compute"]
    assert bounds(*square, peak_tflops={"fp16": 1_000}, peak_gbps=1_000) == ["memory"]


def test_other_kernels_of_a_matmul_operator_have_no_work_of_its_own() -> None:
    fill = [launch(9, 1, 7), memset(100, 5, correlation=7)]
    table = analysed(shaped("aten::mm", [[10, 20], [20, 30]]), fill).tables["activities"]
    assert table.select("kind", "operator", "flop").rows() == [
        ("kernel", "aten::mm", 12_000.0),
        ("memset", "aten::mm", None),
    ]


def test_activities_are_summed_up_by_name_and_kernels_by_bucket() -> None:
    events = [
        kernel(ADD, 0, 30),
        kernel(GEMM, 30, 50),
        kernel(ADD, 80, 10),
        copy("HtoD", 90, 10),
        call("cudaMalloc", 0, 1),
    ]
    report = analysed(events)
    assert rows(report.tables["kernels"], "name", "kind", "bucket", "bound", "count", "time_ns", "time_ratio") == [
        (GEMM, "kernel", "matmul", "compute", 1, 50, 0.5), (ADD, "kernel", "pointwise", "memory", 2, 40, 0.4),
        ("Memcpy HtoD", "memcpy", None, "copy", 1, 10, 0.1),
    ]  # fmt: skip
    assert [(b.bucket, b.group, b.kernel_count, b.time_ns, b.time_ratio) for b in report.devices[0].buckets] == [
        ("matmul", "matmul", 1, 50_000, pytest.approx(5 / 9)),
        ("pointwise", "pointwise", 2, 40_000, pytest.approx(4 / 9)),
    ]  # fmt: skip


def unlinked(duration: float, **args: Any) -> Any:
    """Build a kernel from before the recording, with the name and grid of those of `shaped`."""
    return kernel(GEMM, 1_000, duration, **{"grid": [500, 1, 1]} | args)


@pytest.mark.parametrize(
    ("rows", "other", "bound"),
    [
        (1, unlinked(50), "memory"), (1, unlinked(99), "memory"), (1, unlinked(101), "compute"),
        (1, unlinked(50, grid=[499, 1, 1]), "compute"),
        (1, unlinked(50, block=[64, 1, 1]), "compute"), (1, unlinked(2), "latency"), (4096, unlinked(50), "compute"),
    ],
)  # fmt: skip
def test_a_kernel_without_shapes_has_the_bound_of_its_other_executions(rows: int, other: Any, bound: str) -> None:
    """With the same name, grid and block, and times within a factor of two; by its name it would be compute."""
    assert bounds(shaped("aten::mm", [[rows, 4096], [4096, 4096]]), other)[-1] == bound


def test_other_executions_decide_no_bound_where_they_differ() -> None:
    wide = [op("aten::mm", 500, 30, **{"Input Dims": [[2048, 2048]] * 2, "Input type": ["c10::Half"] * 2}),
            launched(GEMM, 501, 540, 50, 9, takes=1, grid=[500, 1, 1])]  # fmt: skip
    assert bounds(shaped("aten::mm", [[1, 4096], [4096, 4096]]), wide, unlinked(50)) == ["memory", "compute", "compute"]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("name", "blocks"),
    [("hipExtModuleLaunchKernel", 280), ("hipModuleLaunchKernel", 71_680), ("hipLaunchKernel", 71_680)]
)  # fmt: skip
def test_one_call_of_hip_counts_its_grid_in_threads(name: str, blocks: int) -> None:
    """An unlinked kernel counts its grid as others of its name do."""
    gemm, grid = "Cijk_Alik_Bljk_BBS_BH_MT256x128x64", {"grid": [71_680, 1, 1], "block": [256, 1, 1]}
    linked = [call(name, 0, 2, correlation=1), kernel(gemm, 4, 40, correlation=1, **grid)]
    report = analysed(linked, kernel(gemm, 50, 40, **grid), kernel("another", 100, 40, **grid))
    assert report.tables["activities"].get_column("blocks").to_list() == [blocks, blocks, 71_680]


SM = {"maxThreadsPerMultiprocessor": 2_048, "regsPerMultiprocessor": 65_536, "sharedMemPerMultiprocessor": 167_936}


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "resident"),
    [
        (256, 32, 0, 8),  # threads: 2,048 / 256
        (256, 33, 0, 6),  # registers: 33 x 32 take 5 units of 256 a warp, 10,240 a block
        (256, 128, 0, 2),  # 32,768 a block
        (128, 16, 49_152, 3),  # shared memory: 48 KiB and the runtime's 1 KiB of 164 KiB
        (128, 16, 54_273, 3),
        (128, 16, 54_956, 2),
        (33, 16, 0, 32),  # blocks: two warps each would be also 32
        (32, 16, 0, 32),  # blocks: 64 warps would fit
        (1_024, 255, 200_000, 1),  # one block runs, or the launch would have failed
    ],
)
def test_waves_are_blocks_over_those_that_run_at_once(threads: int, registers: int, shared: int, resident: int) -> None:
    sizes = {"block": [threads, 1, 1], "registers per thread": registers, "shared memory": shared}
    report = analysed(kernel(ADD, 0, 10, grid=[108 * 64, 1, 1], **sizes), devices=[A100 | SM])
    assert report.tables["activities"].get_column("waves").to_list() == [pytest.approx(64 / resident)]
