"""Advice: only what the regime can use, with numbers of its window, ordered by time saved."""

import pytest
from kineto import analysed, annotation, call, copy, kernel, launch, launched, op, python

from trace_analyzer.analyses.causes import CAUSES
from trace_analyzer.report import Advice, Report

GEMM, FP32, ADD, NCCL = (
    "ampere_fp16_s16816gemm_fp16_128x64", "ampere_sgemm_128x64_tn", "void at::native::vectorized_elementwise_kernel<4, x>(int)",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
)  # fmt: skip
LOADS = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def iterations(*inside: object, period: int = 1_000, busy: int = 50, count: int = 12) -> list[object]:
    """A kernel every ``period`` us, launched late; ``inside`` maps an iteration's start to its host events."""
    return [[launched(GEMM, period * n + period - 100, period * n + period - 90, busy, n + 1), *(make(period * n) for make in inside)]
            for n in range(count)]  # type: ignore[operator]  # fmt: skip


def titles(report: Report) -> list[str]:
    return [item.title for item in report.advice]


@pytest.mark.parametrize(
    ("event", "title", "code"),
    [
        (lambda t: op("aten::mm", t, 850), "Launch less often: compile, or replay a CUDA graph", "torch.compile"),
        (lambda t: annotation(LOADS, t, 850), "Load data in parallel with the GPU's work", "num_workers"),
        (lambda t: call("cudaMalloc", t, 850), "Keep memory instead of allocating it again", "expandable_segments"),
        (
            lambda t: python("torch/_dynamo/convert_frame.py(1): _compile", t, 850),
            "Compile and load code before it counts",
            "dynamic=True",
        ),
    ],
    ids=["launch", "data-loading", "allocation", "compilation"],
)
def test_each_cause_has_its_advice(event: object, title: str, code: str) -> None:
    first = analysed(iterations(event)).advice[0]
    assert first.title == title
    assert code in first.code


def test_synchronization() -> None:
    loop = [
        [launched(GEMM, 200 * n, 200 * n + 10, 90, n + 1), call("cudaDeviceSynchronize", 200 * n + 6, 95)]
        for n in range(12)
    ]
    assert analysed(loop).advice[0].title == "Do not wait for the GPU inside the loop"


def test_blocking_copies() -> None:
    loop = [[call("cudaMemcpyAsync", 500 * n, 400, correlation=2 * n + 1), copy("HtoD (Pageable -> Device)", 500 * n + 370, 10, correlation=2 * n + 1),
             launched(GEMM, 500 * n + 410, 500 * n + 420, 60, 2 * n + 2)] for n in range(12)]  # fmt: skip
    assert analysed(loop).advice[0].title == "Copy without blocking the CPU"


def test_cpu_operators() -> None:
    loop = iterations(lambda t: op("aten::sort", t, 4_800), period=5_000)
    first = analysed(loop).advice[0]
    assert first.title == "Move CPU operators off the critical path"
    assert first.where.startswith("aten::sort (")


def test_it_saves_no_more_than_the_idle_time_of_its_causes() -> None:
    report = analysed(iterations(lambda t: annotation(LOADS, t, 400), lambda t: op("aten::mm", t + 400, 450)))
    parts = report.verdict.parts_ns
    saved = {item.title: item.saves_ns_at_most for item in report.advice}
    launching = (
        "python",
        "dispatch",
        "runtime-call",
        "launch-latency",
        "host-unknown",
        "garbage-collection",
        "latency",
        "device-gap",
    )
    assert saved == {
        "Load data in parallel with the GPU's work": parts["data-loading"],
        "Launch less often: compile, or replay a CUDA graph": sum(parts[cause] for cause in launching),
    }
    assert sum(saved.values()) <= sum(parts.values())


def test_it_names_a_place_on_the_timeline() -> None:
    longest = [annotation(LOADS, 12_100, 2_850), launched(GEMM, 15_000, 15_010, 50, 99)]
    first = analysed(iterations(lambda t: annotation(LOADS, t, 850)), longest).advice[0]
    assert (first.start_ns, first.end_ns) == (12_100_000, 14_950_000)
    assert first.where == f"{LOADS} (12.2 ms)", "eleven times 850 us and once 2850"


def memory_bound(*streams: int) -> list[object]:
    return [kernel(ADD, 30 * n, 30, stream=streams[n % len(streams)], grid=[500, 1, 1]) for n in range(40)]


def test_chains_of_memory_bound_kernels_can_be_fused() -> None:
    (fuse,) = analysed(memory_bound(7)).advice
    assert fuse.title == "Fuse chains of memory-bound kernels"
    assert fuse.saves_ns_at_most == 39 * 30_000, "all but the first of the chain"
    (two_chains,) = analysed(memory_bound(7, 20)).advice
    assert two_chains.saves_ns_at_most == 38 * 30_000, "each stream has a chain of its own"
    split = [kernel(ADD if n % 3 else GEMM, 60 * n, 20 if n % 3 == 0 else 60, grid=[500, 1, 1]) for n in range(30)]
    (pairs,) = (item for item in analysed(split).advice if item.title == fuse.title)
    assert pairs.saves_ns_at_most == 10 * 60_000, "the second of each pair"


def test_compute_bound_kernels_want_fewer_or_cheaper_flop() -> None:
    report = analysed([kernel(GEMM, 100 * n, 100) for n in range(12)])
    assert [(item.title, item.saves_ns_at_most) for item in report.advice] == [
        ("Compute less, or in fewer bits", 600_000)
    ]
    fp32 = analysed([kernel(FP32, 100 * n, 100) for n in range(12)])
    assert [(item.title, item.saves_ns_at_most) for item in fp32.advice] == [
        ("Use tensor cores: TF32 or bf16 instead of fp32", 1_050_000), ("Compute less, or in fewer bits", 600_000),
    ]  # fmt: skip


def test_communication() -> None:
    report = analysed([kernel(NCCL, 100 * n, 100) for n in range(12)])
    assert [(item.title, item.saves_ns_at_most) for item in report.advice] == [
        ("Overlap communication with computation", 1_200_000)
    ]
    copies = analysed([kernel(GEMM, 0, 10), *(copy("HtoD (Pinned -> Device)", 10 + 100 * n, 100) for n in range(12))])
    assert [(item.title, item.saves_ns_at_most) for item in copies.advice] == [
        ("Hide copies between host and device", 1_200_000)
    ]


def test_waiting_for_other_streams() -> None:
    early = [[launch(n, 1, n), kernel(GEMM, 100 * n, 20, correlation=n)] for n in range(1, 14)]
    report = analysed(early, kernel(NCCL, 0, 20))
    assert titles(report) == ["Find what queued work waits for"]


def test_a_regime_has_no_advice_of_others() -> None:
    idle = iterations(lambda t: op("aten::mm", t, 850))
    memory = [kernel(ADD, 20_000 + 30 * n, 30, grid=[500, 1, 1]) for n in range(20)]
    report = analysed(idle, memory)
    assert (report.verdict.regime, report.verdict.runner_up) == ("overhead-bound", None)
    assert "Fuse chains of memory-bound kernels" not in titles(report)


def test_the_runner_up_is_heard_too() -> None:
    idle = iterations(lambda t: op("aten::mm", t, 850))
    memory = [kernel(ADD, 12_000 + 30 * n, 30, grid=[500, 1, 1]) for n in range(400)]
    report = analysed(idle, memory)
    assert {report.verdict.regime, report.verdict.runner_up} == {"overhead-bound", "memory-bandwidth-bound"}
    assert sorted(titles(report)) == [
        "Fuse chains of memory-bound kernels",
        "Launch less often: compile, or replay a CUDA graph",
    ]


def test_small_savings_are_noise() -> None:
    report = analysed(iterations(lambda t: op("aten::mm", t, 830), lambda t: annotation(LOADS, t + 830, 15)))
    assert titles(report) == ["Launch less often: compile, or replay a CUDA graph"]


def test_no_verdict_no_advice() -> None:
    assert analysed(kernel("k", 0, 5)).advice == ()


def check(item: Advice, window: int) -> None:
    assert 0 < item.saves_ns_at_most <= window
    assert all((item.title, item.why, item.where, item.code, item.how_bound))
    assert (item.start_ns is None) == (item.end_ns is None)


def test_every_item_is_complete_and_in_order() -> None:
    mixed = [iterations(lambda t: annotation(LOADS, t, 300), lambda t: op("aten::mm", t + 300, 300), lambda t: call("cudaMalloc", t + 600, 250)),
             [kernel(ADD, 11_970 + 30 * n, 30, grid=[500, 1, 1]) for n in range(400)]]  # fmt: skip
    report = analysed(mixed)
    saves = [item.saves_ns_at_most for item in report.advice]
    assert len(saves) == 4
    assert saves == sorted(saves, reverse=True)
    for item in report.advice:
        check(item, sum(report.verdict.parts_ns.values()))


def test_bounds_name_causes_that_exist() -> None:
    report = analysed(iterations(lambda t: annotation(LOADS, t, 850)))
    (item,) = (item for item in report.advice if "data" in item.title)
    assert item.how_bound.removeprefix("all idle time of the window with cause ") in CAUSES


def test_the_dtype_is_one_that_the_device_is_faster_in() -> None:
    v100 = {"id": 0, "name": "Tesla V100-SXM2-32GB", "computeMajor": 7, "computeMinor": 0, "numSms": 80}
    kernels = [kernel(FP32, 100 * n, 100) for n in range(12)]
    (half, _) = analysed(kernels, devices=[v100]).advice
    assert half.title == "Use tensor cores: fp16 instead of fp32"
    assert "torch.float16" in half.code
    assert half.saves_ns_at_most == round(1_200_000 * (1 - 15.7 / 125))
    unknown = analysed(kernels, devices=[{"id": 0, "name": "Frobnicator 9"}]).advice
    assert [item.title for item in unknown] == ["Compute less, or in fewer bits"]
