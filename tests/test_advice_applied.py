"""Check that no advice proposes a fix that a program already has; one program for every fix of the catalogue."""

import pytest
import test_advice
from kineto import A100, analysed, annotation, call, copy, kernel, launched, op, python

from trace_analyzer.advice import RULES

BUSY = test_advice.in_a_row(test_advice.GEMM)


def pinned() -> list[object]:
    """Build copies of pinned memory whose calls return at once, and products in turn."""
    return [
        [call("cudaMemcpyAsync", 500 * n, 5, correlation=2 * n + 1),
         copy("HtoD (Pinned -> Device)", 500 * n + 20, 10, correlation=2 * n + 1),
         launched(test_advice.GEMM, 500 * n + 10, 500 * n + 30, 460, 2 * n + 2)]
        for n in range(12)
    ]  # fmt: skip


APPLIED: dict[str, list[object]] = {
    "cuda-graphs": test_advice.graphs(8),
    "fuse-replayed": test_advice.small_replayed("triton_poi_fused_add_0"),
    "bigger-batch": BUSY,
    "fused-optimizer": test_advice.optimizer("aten::_fused_adamw_"),
    "set-to-none": [BUSY, annotation("Optimizer.zero_grad#SGD.zero_grad", 300, 2)],
    "garbage-collection": [BUSY, python("<built-in function collect>", 400, 300)],
    "host-wait": [BUSY, python("queue.py(154): get", 400, 300)],
    "synchronization": [[launched(test_advice.GEMM, 200 * n, 200 * n + 10, 190, n + 1), call("cudaEventRecord", 200 * n + 6, 2)] for n in range(12)],
    "data-loading": test_advice.iterations(lambda t: annotation(test_advice.LOADS, t, 5), lambda t: op("aten::mm", t + 10, 850)),
    "allocator": [BUSY, call("cudaMalloc", 400, 300)],
    "recompilation": test_advice.iterations(lambda t: op("Torch-Compiled Region: 0/0", t, 850)),
    "lazy-loading": [BUSY, call("cuModuleLoadData", 400, 300, category="cuda_driver")],
    "warm-up": test_advice.first_uses(same=True),
    "graph-capture": test_advice.graphs(5),
    "python-work": [BUSY, python("log.py(3): to_file", 20, 1_300)],
    "labels-at-once": [BUSY, python("transformers/pipelines/zero_shot_object_detection.py(184): _forward", 0, 1_300)],
    "record-stacks": test_advice.iterations(lambda t: python("train.py(9): step", t, 890)),
    "earlier-work": BUSY,
    "pinned-memory": pinned(),
    "cpu-operators": [BUSY, op("aten::sort", 300, 1_100)],
    "cpu-preparation": [BUSY, op("aten::randn", 300, 1_100)],
    "attention-kernel": test_advice.eager([("_scaled_dot_product_flash_attention", [[8, 16, 1000, 64]] * 3, "c10::Half", 90, test_advice.FLASH)] * 12),
    "fusion": test_advice.in_a_row("triton_poi_fused_add_mul_0"),
    "channels-last": test_advice.in_a_row("sm80_xmma_fprop_implicit_gemm_f16f16_nhwckrsc_nhwc"),
    "fewer-bytes": test_advice.in_a_row(test_advice.WIDE.replace("<float>", "<c10::Half>")),
    "casts": test_advice.in_a_row("triton_poi_fused__to_copy_add_0"),
    "compiled-copies": [op("Torch-Compiled Region: 0/0", 0, 600), test_advice.in_a_row("triton_poi_fused_add_0")],
    "device-copies": [BUSY, [copy("PtoP (Device -> Device)", 410 + 100 * n, 80, stream=20) for n in range(11)]],
    "custom-kernels": BUSY,
    "skinny-matmuls": test_advice.matmuls(441),
    "tensor-cores": test_advice.in_a_row("volta_fp16_s884gemm_fp16_128x64_ldg8_f2f_nn"),
    "tf32": test_advice.in_a_row("ampere_tf32_s1688gemm_tf32_128x64_nn"),
    "padding": test_advice.in_a_row(f"cutlass_80_tensorop_{test_advice.GEMM}_align8"),
    "low-precision": test_advice.in_a_row("sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize128x128x128"),
    "inefficient-kernels": test_advice.matmuls(500),
    "few-tiles": test_advice.matmuls(500),
    "max-autotune": test_advice.matmuls(441),
    "recompute-less": test_advice.matmuls(441),
    "less-work": test_advice.in_a_row(test_advice.ADD),
    "overlap": [BUSY, [kernel(test_advice.NCCL, 410 + 100 * n, 80, stream=20) for n in range(11)]],
    "gradient-buckets": test_advice.messages(20_000_000),
    "transport": test_advice.messages(4_000_000, 200, 2_000, 200),
    "copies": [BUSY, [copy("HtoD (Pinned -> Device)", 410 + 100 * n, 80, stream=20, bytes=1 << 20) for n in range(11)]],
    "peer-copies": [BUSY, [copy("PtoP (Device -> Device)", 410 + 100 * n, 80, stream=20, bytes=1 << 20) for n in range(11)]],
    "small-copies": [BUSY, [copy("HtoD (Pinned -> Device)", 410 + 100 * n, 2, stream=20, bytes=1_000) for n in range(11)]],
    "dependencies": BUSY,
}  # fmt: skip


def test_every_fix_has_a_program_that_has_it() -> None:
    assert sorted(APPLIED) == sorted(RULES)


@pytest.mark.slow
@pytest.mark.parametrize("fix", APPLIED)
def test_what_a_program_has_already_is_not_advised(fix: str) -> None:
    report = analysed(APPLIED[fix], devices=[test_advice.ON.get(fix, A100)])
    assert report.verdict.status == "ok"
    assert fix not in test_advice.ids(report)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("work", "asks"),
    [
        (test_advice.in_a_row("volta_sgemm_128x64_tn"), True),
        ([[op("aten::linear", 40 * n, 35), op("aten::_to_copy", 40 * n + 5, 20),
           launched(test_advice.CAST, 40 * n + 10, 2_000 + 10 * n, 8, n + 100, grid=[5_000, 1, 1])] for n in range(12)], False),
    ],
    ids=["fp32", "under autocast"],
)  # fmt: skip
def test_autocast_is_no_advice_under_autocast(work: list[object], asks: bool) -> None:
    products = [kernel("volta_sgemm_128x64_tn", 2_130 + 100 * n, 100) for n in range(12)]
    report = analysed(work, products, devices=[test_advice.V100])
    advice = test_advice.ids(report)
    assert report.verdict.status == "ok"
    assert ("tensor-cores" in advice) == asks
    assert "less-work" not in advice or advice == ["less-work"]
    # What is in fp32 under autocast, TF32 speeds up all the same.
    assert "tf32" in test_advice.ids(analysed(work, products, devices=[A100]))


@pytest.mark.slow
def test_nothing_known_to_gain_is_reported_alone() -> None:
    assert [item.title for item in analysed(test_advice.matmuls(445)).advice] == [
        "Nothing known to gain: kernels reach 99 % of the roof"
    ]
    assert "less-work" not in test_advice.ids(analysed(test_advice.matmuls(800)))


def test_one_time_work_that_fills_the_recording_is_advised_once() -> None:
    compiled = [
        launched(test_advice.GEMM, 0, 10, 80, 1),
        python("torch/_dynamo/convert_frame.py(1): _compile", 100, 20_000),
    ]
    steps = [launched(test_advice.GEMM, 21_000 + 100 * n, 21_010 + 100 * n, 90, n + 10) for n in range(12)]
    advice = test_advice.ids(analysed(compiled, steps, step="all"))
    assert ("warm-up" in advice, "recompilation" in advice) == (True, False)


def test_padding_leaves_attention_to_its_own_fix() -> None:
    odd = [
        (name, *rest, f"cutlass_{test_advice.GEMM}_align1" if name == "bmm" else does)
        for name, *rest, does in test_advice.attention(6)
    ]
    advice = test_advice.ids(analysed(test_advice.eager(odd)))
    assert ("attention-kernel" in advice, "padding" in advice) == (True, False)


def test_cache_reading_is_no_custom_kernel() -> None:
    reading = test_advice.replayed("void vllm::paged_attention_v2_kernel<float, 128>(float*)")
    assert "custom-kernels" not in test_advice.ids(analysed(reading))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "asks"),
    [("void gemv2T_kernel_val<int, float>(x)", True), ("void gemv2T_kernel_val<mxfp4, float>(x)", False)],
)
def test_weights_of_four_bits_are_not_to_have_fewer(name: str, asks: bool) -> None:
    item = test_advice.advised("skinny-matmuls", test_advice.replayed(name))
    assert ("fewer bits" in item.title) == ("quantize_" in item.code) == asks
    assert "more sequences" in item.code
