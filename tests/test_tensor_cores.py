"""Test matmuls and convolutions with poor use of tensor cores: the reason, and the saving that the roof allows."""

from typing import Any

import pytest
from kineto import A100, analysed, kernel, launch, op, rows

SQUARE = [[4096, 4096], [4096, 4096]]
FLOP, MOVED_FP32 = 2 * 4096**3, 3 * 4 * 4096**2
SGEMM, SIMT_HALF = "ampere_sgemm_128x64_nn", "void cutlass::Kernel2<cutlass_80_simt_hgemm_128x64_8x5_nn_align1>()"
ALIGN1 = "void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_f16_256x128_64x3_tn_align1>()"
ALIGN8 = ALIGN1.replace("align1", "align8")
V100 = A100 | {"name": "Tesla V100-SXM2-16GB", "totalGlobalMem": 16945512448, "computeMajor": 7, "numSms": 80}
UNLISTED = {"id": 0, "name": "NVIDIA Unlisted 9000"}


def product(name: str, dtype: str, duration: int, dims: list[list[int]] = SQUARE, shapes: bool = True) -> list[Any]:
    """Build one product, without shapes if so asked."""
    recorded = {"Input Dims": dims, "Input type": [dtype] * 2} if shapes else {}
    return [
        op("aten::mm", 0, 10, **recorded),
        launch(2, 5, 1),
        kernel(name, 20, duration, correlation=1, grid=[500, 1, 1]),
    ]


def actual(*events: Any, **options: Any) -> list[dict[str, Any]]:
    return analysed(*events, **options).tables["tensor_cores"].to_dicts()


def test_fp32_where_tf32_is_faster() -> None:
    """Check that fp32 is reported where TF32 is faster.

    137.4 GFLOP take 7.05 ms at 19.5 TFLOP/s, and 881 us at the A100's 156 TFLOP/s in TF32.
    """
    (row,) = actual(product(SGEMM, "float", 8_000))
    assert (row["reason"], row["dtype"], row["target_dtype"]) == ("fp32", "fp32", "tf32")
    assert row["could_ns"] == pytest.approx(FLOP / 156e12 * 1e9)
    assert row["saves_ns"] == pytest.approx(8e6 - FLOP / 156e12 * 1e9)


@pytest.mark.slow
def test_a_device_without_tf32_has_fp16() -> None:
    report = analysed(product(SGEMM, "float", 12_000), devices=[V100])
    (reported,) = report.devices[0].tensor_cores
    assert (reported.target_dtype, reported.code) == ("fp16", "torch.autocast('cuda', dtype=torch.float16)")
    assert reported.saves_ns == pytest.approx(12e6 - FLOP / 125e12 * 1e9)
    assert "1 matmul or convolution in fp32" in " ".join(report.summary(verbose=True).split())


def test_without_shapes_the_peaks_alone_bound_it() -> None:
    """8 ms in fp32 are 1 ms in TF32: an eighth of the peak."""
    (row,) = actual(product(SGEMM, "float", 8_000, shapes=False))
    assert (row["reason"], row["flop"], row["could_ns"]) == ("fp32", None, pytest.approx(1e6))


def test_half_on_vector_units() -> None:
    (row,) = actual(product(SIMT_HALF, "c10::Half", 5_000))
    assert (row["reason"], row["target_dtype"], row["could_ns"]) == (
        "vector-units", "fp16", pytest.approx(FLOP / 312e12 * 1e9),
    )  # fmt: skip


def test_rows_that_do_not_start_at_16_bytes() -> None:
    odd = [[4097, 4095], [4095, 4097]]
    (row,) = actual(product(ALIGN1, "c10::Half", 1_000, odd))
    assert (row["reason"], row["saves_ns"]) == ("unaligned", pytest.approx(1e6 - 2 * 4097 * 4095 * 4097 / 312e12 * 1e9))
    (reported,) = analysed(product(ALIGN1, "c10::Half", 1_000, odd)).devices[0].tensor_cores
    assert reported.code == "pad the innermost sizes to multiples of 8 elements"


@pytest.mark.sampled
@pytest.mark.parametrize(
    "events",
    [
        product(ALIGN8, "c10::Half", 500),
        product("ampere_fp16_s16816gemm_fp16_128x64", "c10::Half", 500),
        product(SGEMM, "float", 800),
        product("void gemv2T_kernel_val<int, float>()", "float", 100, [[1, 4096], [4096, 4096]]),
        product("void at::native::vectorized_elementwise_kernel<4, x>(int)", "float", 100),
        product("my_own_gemm", "c10::Half", 1_000, shapes=False),
    ],
    ids=["aligned", "tensor-cores", "at-the-roof-already", "held-by-memory", "no-matmul", "nothing-known"],
)
def test_what_is_well_as_it_is(events: list[Any]) -> None:
    assert actual(events) == []


def test_without_a_device_nothing_is_reported() -> None:
    assert actual(product(SGEMM, "float", 8_000), devices=[UNLISTED]) == []


def test_equal_kernels_are_one_row() -> None:
    twice = [
        op("aten::mm", 0, 30, **{"Input Dims": SQUARE, "Input type": ["float"] * 2}),
        launch(1, 2, 1), launch(5, 2, 2), kernel(SGEMM, 50, 4_000, correlation=1), kernel(SGEMM, 4_050, 4_000, correlation=2),
    ]  # fmt: skip
    assert rows(analysed(twice).tables["tensor_cores"], "count", "time_ns", "flop") == [(2, 8_000, FLOP)]
