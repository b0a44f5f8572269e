"""Test FLOP and bytes of operators in inference and recommendation libraries, worked out by hand."""

from typing import Any

import polars as pl
import pytest
from kineto import analysed, kernel, launch, op
from test_work import BF16, BYTES, FP8, INT, INT8, LONG, f, h, work

from trace_analyzer.analyses.work import Record, Work, call_work

EXPERTS = (h(10, 64), h(8, 96, 64), h(8, 64, 48), f(10, 2), ((10, 2), INT))
"""Ten tokens of 64, each to 2 of 8 experts with an inner width of 48 and a gate."""
WEIGHTS = 2 * (96 * 64 + 64 * 48)
"""Bytes of one of these experts."""


@pytest.mark.parametrize(
    ("operator", "arguments", "expected"),
    [
        ("_C::cutlass_scaled_mm", (((4, 6), BF16), ((4, 8), FP8), ((8, 6), FP8), f(1), f(1)), Work(2 * 24 * 8, 48 + 32 + 48 + 8, "fp8")),
        ("sgl_kernel::dsv3_fused_a_gemm", (((4, 6), BF16), ((4, 8), BF16), ((6, 8), BF16)), Work(384, 2 * (24 + 32 + 48), "bf16")),
        ("_C::cutlass_scaled_fp4_mm", (((4, 6), BF16), ((4, 8), BYTES), ((6, 8), BYTES)), Work(2 * 24 * 16, 48 + 32 + 48, "fp4")),
        ("sgl_kernel::fp8_scaled_mm", (((4, 8), FP8), ((8, 6), FP8), f(4), f(6), 5), Work(384, 32 + 48 + 48 + 40, "fp8")),
        ("sgl_kernel::int8_scaled_mm", (((4, 8), INT8), ((8, 6), INT8), f(4), f(6), 6), Work(384, 32 + 48 + 96 + 40, "int8")),
        ("fbgemm::f8f8bf16_rowwise", (((4, 8), FP8), ((6, 8), FP8), f(4), f(6)), Work(384, 32 + 48 + 48 + 40, "fp8")),
        ("mslk::f8f8bf16_rowwise_batched", (((2, 4, 8), FP8), ((2, 6, 8), FP8)), Work(768, 64 + 96 + 96, "fp8")),
        ("fbgemm::bf16i4bf16_rowwise", (((4, 8), BF16), ((6, 4), INT8), ((1, 6), BF16)), Work(384, 64 + 24 + 48 + 12, "bf16")),
        # 4-bit weights: eight in an int32; 128 weights share a scale.
        ("_C::awq_gemm", (h(4, 256), ((256, 2), INT), h(2, 16), ((2, 2), INT), 8), Work(2 * 4 * 256 * 16, 2 * 1024 + 4 * 512 + 64 + 128, "fp16")),
        ("_C::gptq_marlin_gemm", (h(4, 256), None, ((16, 32), INT), None, h(2, 16)), Work(32_768, 2048 + 2048 + 64 + 128, "fp16")),
        ("vllm::outplace_fused_experts", EXPERTS, Work(2 * 20 * 64 * 144, 2 * 2 * 640 + 80 + 80 + 8 * WEIGHTS, "fp16")),
        # One token reads the weights of its 2 experts alone.
        ("vllm::inplace_fused_experts", (h(1, 64), *EXPERTS[1:3], f(1, 2), ((1, 2), INT)), Work(2 * 2 * 64 * 144, 256 + 16 + 2 * WEIGHTS, "fp16")),
        ("_C::silu_and_mul_quant", (((4, 6), FP8), h(4, 12), f(1)), Work(8 * 24, 24 + 96 + 4, "fp16")),
        ("_C::rms_norm_static_fp8_quant", (((4, 6), FP8), h(4, 6), h(6), f(1), 1e-6), Work(6 * 24, 24 + 48 + 12 + 4, "fp16")),
        ("_C::fused_add_rms_norm_static_fp8_quant", (((4, 6), FP8), h(4, 6), h(4, 6), h(6), f(1)), Work(7 * 24, 24 + 48 + 2 * 48 + 12 + 4, "fp16")),
        ("sgl_kernel::sgl_per_token_group_quant_fp8", (h(4, 6), ((4, 6), FP8), f(4)), Work(72, 48 + 24 + 16, "fp16")),
        ("_C_cache_ops::concat_and_cache_mla", (h(4, 8), h(4, 2), ((9, 16, 10), FP8), ((4,), LONG)), Work(0, 80 + 40 + 32, "fp16")),
        ("sgl_kernel::merge_state_v2", (h(4, 6), f(4), h(4, 6), f(4), h(4, 6), f(4)), Work(48, 3 * 48 + 3 * 16, "fp16")),
        ("FlashAttnFunc", (h(2, 16, 4, 8), h(2, 16, 2, 8), h(2, 16, 2, 8)), Work(None, 2 * (2 * 1024 + 2 * 512), "fp16")),
        ("FlashAttnQKVPackedFunc", (h(2, 16, 3, 4, 8),), Work(None, 2 * 4 * 1024, "fp16")),
        ("FlashAttnFuncBackward", (h(2, 16, 4, 8),), Work(None, 2 * 2048, "fp16")),
        ("vllm::unified_attention_with_output", (h(9, 4, 8), h(9, 1, 8), h(9, 1, 8), h(9, 4, 8)), Work(None, 2 * (576 + 144), "fp16")),
        ("_vllm_fa2_C::varlen_fwd", (h(9, 4, 8), h(99, 16, 1, 8), h(99, 16, 1, 8)), Work(None, 2 * 576, "fp16")),
        ("fbgemm::bounds_check_indices", (((3,), LONG), ((100,), LONG), ((13,), LONG)), Work(None, 8 * 116, None)),
        ("fbgemm::asynchronous_complete_cumsum", (((100,), INT),), Work(100, 800, None)),
        ("fbgemm::permute_2D_sparse_data", (((6,), INT), ((3, 10), INT), ((50,), LONG)), Work(None, 24 + 120 + 240 + 800, None)),
        ("fbgemm::permute_1D_sparse_data", (((6,), INT), ((3,), INT), ((50,), LONG)), Work(None, 24 + 12 + 24 + 800, None)),
        # FBGEMM, jagged_tensor_ops: jagged_to_padded_dense(values, offsets, max_lengths, padding_value), dense_to_jagged(dense, offsets, total_L)
        ("fbgemm::jagged_to_padded_dense", (h(50, 8), [[5]], [20], 0.0), Work(None, 800 + 1280, "fp16")),
        ("fbgemm::dense_to_jagged", (h(4, 20, 8), [[5]], 50), Work(None, 1600, "fp16")),
        ("fbgemm::block_bucketize_sparse_features", (((30,), INT), ((50,), LONG)), Work(None, 120 + 800, None)),
        ("torch::autograd::CppNode<SplitLookupFunction_adam_Op>", (f(10, 64),), Work(None, 2560, None)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_operators_of_libraries(operator: str, arguments: tuple[Any, ...], expected: Work) -> None:
    assert work(operator, *arguments) == expected


FA3 = (*[None] * 20, 0.125, True, -1, -1)
"""Arguments of flash-attn 3 behind query, key and value: nothing of a cache, causal."""


@pytest.mark.parametrize(
    ("operator", "arguments", "expected"),
    [
        ("vllm::rocm_unquantized_gemm", (h(2, 4, 8), h(6, 8), h(6)), Work(2 * 48 * 8, 2 * (64 + 48 + 48 + 6), "fp16")),
        ("vllm::w8a8_triton_block_scaled_mm_func", (((4, 8), FP8), ((6, 8), FP8), f(4, 1), f(1, 1)), Work(384, 32 + 48 + 48 + 20, "fp8")),
        # Blocks of 18 bytes hold 32 elements of 4 bits.
        ("_C::ggml_mul_mat_a8", (((6, 36), BYTES), h(4, 64), 2, 6), Work(2 * 24 * 64, 216 + 512 + 48, "int8")),
        ("_C::allspark_w8a16_gemm", (h(4, 8), ((8, 32), BYTES), h(1, 32), None, 30), Work(2 * 120 * 8, 64 + 240 + 64 + 240, "fp16")),
        ("flashinfer::rmsnorm", (h(4, 6), h(4, 6), h(6)), Work(96, 48 + 48 + 12, "fp16")),
        ("flashinfer::silu_and_mul", (h(4, 6), h(4, 12)), Work(144, 48 + 96, "fp16")),
        # Two query heads, one of keys and one of values, of 8; of each, 4 are turned; 100 positions in the cache.
        ("_C::rotary_embedding", (((5,), LONG), h(5, 16), h(5, 8), 8, h(100, 4), True), Work(3 * 60, 40 + 40 + 2 * 2 * 60, "fp16")),
        ("sgl_kernel::apply_rope_pos_ids_cos_sin_cache", (h(5, 2, 8), h(5, 1, 8), h(5, 2, 8), h(5, 1, 8), f(100, 8), ((5,), LONG)),
         Work(360, 4 * 120 + 160 + 40, "fp16")),
        ("_C::scaled_fp4_quant", (((4, 16), BYTES), h(4, 32), ((128, 4), "int"), f(1)), Work(384, 64 + 256, "fp16")),
        ("_C_cache_ops::convert_fp8", (((4, 6), BYTES), h(4, 6), 1.0), Work(48, 24 + 48, "fp16")),
        ("_C_cache_ops::concat_mla_q", (h(4, 6), h(4, 2), h(4, 8)), Work(0, 2 * 64, "fp16")),
        ("sgl_kernel::shuffle_rows", (h(4, 6), ((8,), INT), h(8, 6)), Work(0, 32 + 96 + 48, "fp16")),
        ("fbgemm::quantize_fp8_per_row", (h(4, 6),), Work(72, 48 + 24, "fp16")),
        ("flash_attn_3::fwd", (h(2, 4, 2, 8), h(2, 4, 1, 8), h(2, 4, 1, 8), *FA3),
         Work(2 * 2 * 2 * 10 * 16, 2 * (2 * 128 + 2 * 64), "fp16")),
        ("xformers::efficient_attention_backward_cutlass", (h(2, 4, 2, 8), h(2, 4, 2, 8), h(2, 4, 2, 8), h(2, 4, 2, 8)), Work(None, 7 * 256, "fp16")),
        ("FlashAttnKVPackedFunc", (h(2, 4, 2, 8), h(2, 4, 2, 2, 8)), Work(None, 2 * 256 + 512, "fp16")),
        # Of tables of 100 rows, those of 5 places.
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_more_operators_of_libraries(operator: str, arguments: tuple[Any, ...], expected: Work) -> None:
    assert work(operator, *arguments) == expected


def test_what_shapes_alone_do_not_tell_is_less_or_unknown() -> None:
    """Keys in a cache, a part of a head that is not turned, experts' rows that may be another device's."""
    paged = list(FA3)
    paged[8] = ((2, 9), INT)
    cached = work("flash_attn_3::fwd", h(2, 1, 2, 8), h(99, 16, 1, 8), h(99, 16, 1, 8), *paged)
    assert cached == Work(None, 2 * 64, "fp16")
    assert cached is not None
    assert cached.least
    assert work("ApplyRotaryEmb", h(2, 5, 4, 8), h(100, 2), h(100, 2)) is None
    assert work("_LayerNormMLP", h(4, 6), h(16, 6), h(16, 6), h(6, 8)) is None
    assert work("_C::cutlass_moe_mm", h(8, 6), h(8, 4), h(2, 4, 6)) is None


def lookup(total_width: int | None) -> Work | None:
    """Return the work of three tables of half precision and 30 indices into them in 4 bags each."""
    return work(
        "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function", f(0), h(9_000), h(0), h(0, 0), ((3,), INT), ((3,), LONG),
        ((4,), INT), total_width, 64, ((4,), LONG), 20, ((30,), LONG), ((13,), LONG),
    )  # fmt: skip


def test_a_lookup_reads_a_row_of_mean_width_per_index_and_writes_its_bags() -> None:
    expected = Work(None, 8 * 43 + 30 * 40 * 2 + 4 * 120 * 4, None)
    assert lookup(120) == expected
    known = lookup(120)
    assert known is not None
    assert (known.least, known.doubtful_bytes) == (True, 2400 + 1920), (
        "a row that several indices name may be read once"
    )


@pytest.mark.parametrize(
    ("before", "moved"),
    [
        # FBGEMM, codegen/training/pt2/embedding_split_host_pt2_autograd_template.cpp: placeholder, host_weights, dev_weights, uvm, cache, placements, weights_offsets, D_offsets, total_D
        ((f(0), h(0), h(9_000), h(0), h(0, 0), ((3,), INT), ((3,), LONG), ((4,), INT)), 8 * 43 + 2400 + 1920),
        # FBGEMM 1.1: placeholder, list of weights, D_offsets, total_D: the list's type is not recorded
        ((f(0), [[0], [9_000]], ((4,), INT)), 8 * 43),
    ],
)
def test_lookups_of_later_versions(before: tuple[Any, ...], moved: float) -> None:
    rest = (120, 64, ((4,), LONG), 20, ((30,), LONG), ((13,), LONG), 0)
    assert work("fbgemm::split_embedding_codegen_lookup_adam_function_pt2", *before, *rest) == Work(None, moved, None)


def test_a_lookup_without_pooling_returns_rows() -> None:
    before = (f(0), h(9_000), h(0), h(0, 0), ((3,), INT), ((3,), LONG), ((4,), INT), 120, 64, ((4,), LONG), 20)
    known = work("fbgemm::split_embedding_codegen_lookup_sgd_function", *before, ((30,), LONG), ((13,), LONG), 2)
    assert known == Work(None, 8 * 43 + 2400, None)


def test_a_lookup_of_unknown_width_reads_its_indices_at_least() -> None:
    record = Record(
        "fbgemm::split_embedding_codegen_lookup_sgd_function",
        "[[0], [9000], [0], [0, 0], [3], [3], [4], [], [], [4], [], [30], [13]]",
        '["float", "c10::Half", "c10::Half", "c10::Half", "int", "long", "int", "Scalar", "Scalar", "long", "Scalar", "long", "long"]',
    )
    assert call_work(record).work == Work(None, 8 * 43, None)


@pytest.mark.parametrize(
    "arguments",
    [
        # Experts on several devices: the map has more than are here.
        (*EXPERTS, ((16,), INT)),
        (h(10, 64), h(8, 96, 64), h(8, 32, 48), f(10, 2), ((10, 2), INT)),
        (h(10, 64), h(8, 96, 0), h(8, 64, 48), f(10, 2), ((10, 2), INT)),
        EXPERTS[:3],
    ],
    ids=["map", "width", "empty", "without ids"],
)
def test_experts_that_are_not_all_here_have_unknown_work(arguments: tuple[Any, ...]) -> None:
    assert work("vllm::outplace_fused_experts", *arguments) is None


def test_what_weights_experts_need_not_read_is_doubted() -> None:
    known = work("vllm::outplace_fused_experts", *EXPERTS)
    assert known is not None
    assert known.doubtful_bytes == 6 * WEIGHTS


def test_work_that_is_known_in_part_says_nothing_of_the_roof() -> None:
    """Check that a lookup of unknown widths, which moves far more than its indices, has no known share of the roof."""
    lookups = op("fbgemm::bounds_check_indices", 0, 20, **{"Input Dims": [[10**8]], "Input type": ["float"]})
    update = op(
        "torch::autograd::CppNode<SplitLookupFunction_adam_Op>",
        30,
        20,
        **{"Input Dims": [[10**6, 64]], "Input type": ["float"]},
    )
    report = analysed(
        lookups, launch(5, 5, 1), kernel("bounds_check_indices_kernel", 20, 400, correlation=1),
        update, launch(35, 5, 2), kernel("split_embedding_backward_codegen_adam_unweighted_kernel_cta_per_row_1", 500, 4_000, correlation=2),
    )  # fmt: skip
    known = report.tables["activities"].select("work_from", pl.col("moved_bytes").is_not_null()).rows()
    assert known == [("call", True), ("at-least", True)]
    bounds = report.tables["bounds"].select(pl.col("known_ns").sum()).item()
    assert bounds == 400_000


def linear_pass(kernels: int, *, forward: bool = True) -> list[tuple[Any, ...]]:
    """Return FLOP, bytes and their basis of each kernel of the backward pass of a linear layer of 64 rows, 32 to 48."""
    half = {"Input type": ["c10::Half", "c10::Half"]}
    events = [
        op("_Linear", 0, 20, **{"Input Dims": [[48, 32], [64, 32]], "Sequence number": 7, "Fwd thread id": 0} | half),
        op(
            "_LinearBackward",
            100,
            90,
            **{
                "Input Dims": [[64, 48]],
                "Input type": ["c10::Half"],
                "Sequence number": 7 if forward else 9,
                "Fwd thread id": 1,
            },
        ),
    ]
    for n in range(kernels):
        events += [
            launch(110 + 10 * n, 5, n + 1),
            kernel("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTN", 300 + 100 * n, 90, correlation=n + 1),
        ]
    return analysed(events).tables["activities"].select("flop", "moved_bytes", "work_from").rows()


def test_the_backward_pass_of_attention_reads_what_its_forward_call_did() -> None:
    shapes = "[[2, 16, 4, 8], [2, 16, 2, 8], [2, 16, 2, 8]]"
    record = Record("FlashAttnFuncBackward", "[[2, 16, 4, 8]]", '["c10::Half"]', outer="forward", outer_dims=shapes)
    assert call_work(record).work == Work(None, 2 * (4 * 1024 + 4 * 512), "fp16")
