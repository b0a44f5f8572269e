"""Test FLOP and bytes of attention of libraries, worked out by hand.

Comments name the file and version of the library that each signature was read from.
"""

from typing import Any

import pytest
from test_work import BF16, BOOL, INT, f, h, q8, work

from trace_analyzer.analyses.work import Work
from trace_analyzer.analyses.work.attention import Mask

PAIR = 2 * (8 + 8)
"""FLOP of one pair of query and key of width 8: two products."""


# torch 2.13 (CPU), torch._C._jit_get_all_schemas(): aten::_flash_attention_forward(query, key, value, cum_seq_q, cum_seq_k, max_q,
# max_k, dropout_p, is_causal, return_debug_mask, *, scale, window_size_left, window_size_right, seqused_k, alibi_slopes, block_table,
# num_splits), and .quantized with q_descale, k_descale, v_descale behind return_debug_mask.
TORCH_FLASH = (None, None, 6, 6, 0.0, True, False)
# xformers 0.0.28, xformers/csrc/attention/attention.cpp: (query, key, value, attn_bias, seqstart_q, seqstart_k, max_seqlen_q, dropout_p,
# compute_logsumexp, custom_mask_type, scale, seqlen_k, window_size)
XFORMERS = (None, None, None, None, 0.0, True)
# flash-attn, hopper/flash_api.cpp at 01afd16: fwd(q, k, v, k_new, v_new, q_v, out, cu_seqlens_q, cu_seqlens_k, cu_seqlens_k_new,
# seqused_q, seqused_k, max_seqlen_q, max_seqlen_k, page_table, kv_batch_idx, leftpad_k, rotary_cos, rotary_sin, seqlens_rotary,
# q_descale, k_descale, v_descale, softmax_scale, is_causal, window_size_left, window_size_right, attention_chunk, softcap, ...)
FA3 = (*[None] * 20, 0.125, True, -1, -1)
# flash-attn, hopper/flash_attn_interface.py at 01afd16: bwd(dout, q, k, v, out, softmax_lse, dq, dk, dv, cu_seqlens_q, cu_seqlens_k,
# seqused_q, seqused_k, max_seqlen_q, max_seqlen_k, softmax_scale, is_causal, window_size_left, window_size_right, ...)
FA3_BACKWARD = (h(1, 4, 2, 8),) * 5 + (f(1, 2, 4),) + (h(1, 4, 2, 8),) * 3 + (None,) * 6 + (0.125, True, -1, -1)


@pytest.mark.parametrize(
    ("operator", "arguments", "expected"),
    [
        # A window of 2 to the left of 6 queries: 1 + 2 + 3 * 4 pairs.
        ("aten::_flash_attention_forward", (h(1, 6, 1, 8),) * 3 + (*TORCH_FLASH, 0.1, 2, 0), Work(PAIR * 15, 4 * 96, "fp16")),
        ("aten::_flash_attention_forward", (q8(1, 6, 1, 8),) * 3 + (*TORCH_FLASH, f(1, 1), f(1, 1), f(1, 1), 0.1, 2, 0), Work(PAIR * 15, 4 * 48, "fp8")),
        # Keys in a cache: how many are in use is a tensor; a block table.
        ("aten::_flash_attention_forward", (h(1, 6, 1, 8), h(1, 99, 1, 8), h(1, 99, 1, 8), *TORCH_FLASH, 0.1, None, None, ((1,), INT)), Work(None, 192, "fp16")),
        ("aten::_flash_attention_forward", (h(6, 1, 8), h(9, 16, 1, 8), h(9, 16, 1, 8), ((2,), INT), ((2,), INT), *TORCH_FLASH[2:], 0.1, None, None, None, None, ((1, 9), INT)),
         Work(None, 192, "fp16")),
        ("aten::_flash_attention_forward_no_dropout_inplace", (h(1, 6, 1, 8),) * 4 + (*TORCH_FLASH, 0.1, 2, 0), Work(PAIR * 15, 4 * 96, "fp16")),
        # One query behind 9 keys sees those of a window of 2 to its left, and reads no more.
        ("aten::_flash_attention_forward", (h(1, 1, 1, 8), h(1, 9, 1, 8), h(1, 9, 1, 8), *TORCH_FLASH, 0.1, 2, 0), Work(PAIR * 3, 2 * (8 + 2 * 24 + 8), "fp16")),
        ("aten::_scaled_dot_product_flash_attention", (q8(1, 1, 6, 8),) * 3 + (f(1, 1), f(1, 1), f(1, 1), 0.0, True, False, 0.1), Work(PAIR * 21, 4 * 48, "fp8")),
        ("aten::_cudnn_attention_backward", (h(1, 1, 6, 8),) * 5 + (f(1, 1, 6), None, None, None, None, None, 6, 6, 0.0, True),
         Work(5 * 16 * 21, 2 * 48 * (5 + 3) + 24, "fp16")),
        # torch 2.2: (query, key, value, bias, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, dropout_p, custom_mask_type, compute_log_sumexp, ...)
        ("aten::_efficient_attention_forward", (h(1, 6, 1, 8),) * 3 + (None, None, None, None, 0.0, 1, False), Work(PAIR * 21, 4 * 96, "fp16")),
        # torch 2.13: a window behind seqlen_k
        ("aten::_efficient_attention_forward", (h(1, 6, 1, 8),) * 3 + (None,) * 5 + (0.0, 1, False, 0.1, None, 2), Work(None, 4 * 96, "fp16")),
        ("xformers::efficient_attention_forward_cutlass", (h(1, 6, 1, 8),) * 3 + (*XFORMERS, 1, 0.1, None, None), Work(PAIR * 21, 4 * 96, "fp16")),
        ("xformers::efficient_attention_forward_cutlass", (h(1, 6, 1, 8),) * 3 + (*XFORMERS, 0, 0.1, None, None), Work(PAIR * 36, 4 * 96, "fp16")),
        ("xformers::efficient_attention_forward_cutlass", (h(1, 6, 1, 8),) * 3 + (*XFORMERS, 1, 0.1, None, 2), Work(None, 4 * 96, "fp16")),
        # xformers 0.0.16, ops/fmha/cutlass.py at 00afc12: a flag `causal` stands where the type of the mask stands later
        ("xformers::efficient_attention_forward_cutlass", (h(1, 6, 1, 8),) * 3 + (*XFORMERS, True, 0.1), Work(PAIR * 21, 4 * 96, "fp16")),
        # Two sequences in one row: lengths are not recorded.
        ("xformers::efficient_attention_forward_cutlass", (h(1, 6, 1, 8),) * 3 + (None, ((3,), INT), ((3,), INT), 4, 0.0, True, 1, 0.1, None, None), Work(None, 4 * 96, "fp16")),
        # xformers 0.0.26, ops/fmha/flash.py: flash_fwd(query, key, value, cu_seqlens_q, cu_seqlens_k, seqused_k, ...)
        ("xformers_flash::flash_fwd", (h(6, 1, 8), h(99, 1, 8), h(99, 1, 8), ((3,), INT), ((3,), INT), ((2,), INT), 4, 50), Work(None, 192, "fp16")),
        ("xformers_flash::flash_fwd", (h(6, 1, 8),) * 3 + (((3,), INT), ((3,), INT), None, 4, 4), Work(None, 4 * 96, "fp16")),
        # xformers 0.0.26, ops/fmha/flash.py: flash_bwd(dout, query, key, value, out, softmax_lse, dq, dk, dv, ...)
        ("xformers_flash::flash_bwd", (h(6, 1, 8),) * 4, Work(None, 7 * 96, "fp16")),
        ("flash_attn_3::_flash_attn_forward", (h(1, 4, 2, 8),) * 3 + FA3, Work(2 * PAIR * 10, 4 * 128, "fp16")),
        ("flash_attn_3::fwd", (h(1, 4, 2, 8),) * 3 + (*FA3, 2, 0.0), Work(None, 4 * 128, "fp16")),
        ("flash_attn_3::fwd", (h(1, 4, 2, 8),) * 3 + (*FA3, 0, 0.0), Work(2 * PAIR * 10, 4 * 128, "fp16")),
        ("flash_attn_3::bwd", FA3_BACKWARD, Work(5 * 2 * 16 * 10, 8 * 128 + 32, "fp16")),
        # hopper/flash_attn_interface.py at 01afd16: _flash_attn_backward(dout, q, k, v, out, softmax_lse, cu_seqlens_q, ..., max_seqlen_k, dq, dk, dv, scale, causal, ...)
        ("flash_attn_3::_flash_attn_backward", (*FA3_BACKWARD[:6], *[None] * 6, *FA3_BACKWARD[6:9], 0.125, True, -1, -1), Work(5 * 2 * 16 * 10, 8 * 128 + 32, "fp16")),
        # flash-attn 2.7 beta, flash_attn/flash_attn_interface.py at 0053002: namespace flashattn, and a block table behind return_softmax
        ("flashattn::_flash_attn_forward", (h(1, 4, 2, 8),) * 3 + (0.0, 0.125, True, -1, -1, 0.0, None, False), Work(2 * PAIR * 10, 4 * 128, "fp16")),
        ("flash_attn::_flash_attn_varlen_forward", (h(4, 2, 8), h(9, 16, 2, 8), h(9, 16, 2, 8), ((2,), INT), ((2,), INT), 4, 99, 0.0, 0.125, True, -1, -1, 0.0, None, False, ((1, 9), INT)),
         Work(None, 256, "fp16")),
        # aiter, aiter/ops/mha.py at 00472f7: mha_varlen_fwd(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, ...)
        ("aiter::mha_varlen_fwd", (h(4, 2, 8),) * 3 + (((2,), INT), ((2,), INT), 4, 4, 0.0, 0.125, False, True, -1, -1), Work(None, 4 * 128, "fp16")),
        # vLLM, vllm/attention/layer.py at 004a5da: unified_mla_attention(q, kv_c_normed, k_pe, layer_name); its result is narrower
        ("vllm::unified_mla_attention", (h(9, 4, 192), h(9, 512), h(9, 1, 64)), Work(None, 2 * 9 * 4 * 192, "fp16")),
        ("vllm::unified_mla_attention_with_output", (h(9, 4, 192), h(9, 512), h(9, 1, 64), h(9, 512)), Work(None, 2 * (9 * 4 * 192 + 9 * 512), "fp16")),
        # vLLM, csrc/torch_bindings.cpp at 00256d5: (out, lse, q_nope, q_pe, cache, ...); SGLang, sgl-kernel/csrc/common_extension.cc at 40ef116: no lse
        ("_C::sm100_cutlass_mla_decode", (h(2, 4, 8), f(2, 4), h(2, 4, 8), h(2, 4, 2), h(99, 16, 10)), Work(None, 2 * (64 + 64 + 16), "fp16")),
        ("sgl_kernel::cutlass_mla_decode", (h(2, 4, 8), h(2, 4, 8), h(2, 4, 2), h(99, 16, 10)), Work(None, 2 * (64 + 64 + 16), "fp16")),
        # flash-attn, hopper/flash_api.cpp: values of another width, as in latent attention, make a narrower result
        ("flash_attn_3::fwd", (h(6, 1, 24), h(9, 16, 1, 24), h(9, 16, 1, 8), *[None] * 11, ((1, 9), INT)), Work(None, 2 * (6 * 24 + 6 * 8), "fp16")),
        # flash-attn, hopper/flash_attn_interface.py and flash_attn/cute/interface.py: FlashAttnVarlenFunc(q, k, v, cu_seqlens_q, cu_seqlens_k,
        # seqused_q, seqused_k, page_table or max_seqlen_q ...): lengths in use or keys in blocks mean a cache
        ("FlashAttnVarlenFunc", (h(6, 1, 8), h(9, 1, 8), h(9, 1, 8), ((2,), INT), ((2,), INT), None, None, 6, 9), Work(None, 2 * (48 + 72 + 72 + 48), "fp16")),
        ("FlashAttnVarlenFunc", (h(6, 1, 8), h(9, 1, 8), h(9, 1, 8), ((2,), INT), ((2,), INT), None, ((1,), INT), 6, 9), Work(None, 2 * 96, "fp16")),
        ("FlashAttnVarlenFunc", (h(6, 1, 8), h(9, 16, 1, 8), h(9, 16, 1, 8), ((2,), INT), None, None, ((1,), INT), ((1, 9), INT)), Work(None, 2 * 96, "fp16")),
        # Transformer Engine: between what differs by version, query, key and value
        ("FusedAttnFunc", (True, 4, 4, ((2,), INT), ((2,), INT), h(1, 4, 2, 8), h(1, 4, 1, 8), h(1, 4, 1, 8), None), Work(None, 2 * (64 + 32 + 32 + 64), "fp16")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_attention_of_libraries(operator: str, arguments: tuple[Any, ...], expected: Work) -> None:
    assert work(operator, *arguments) == expected


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        # No damage, but shapes that the formula does not know: three dimensions, keys in blocks, unpacked heads.
        ("aten::scaled_dot_product_attention", (h(3, 5, 8), h(3, 5, 8), h(3, 5, 8), None, 0.0, False)),
        ("FlashAttnQKVPackedFunc", (h(1, 4, 8, 8),)),
        ("FlashAttnKVPackedFunc", (h(1, 4, 2, 8), h(1, 4, 8, 8))),
        ("aiter::mha_batch_prefill", (h(6, 1, 8), h(99, 1, 8), h(99, 1, 8), ((2,), INT), ((2,), INT), ((6,), INT), 6, 6, 0.0, 0.1, 0.0, False, True, 2, 0)),
        ("FusedAttnFunc", (True, h(1, 4, 2, 8), ((1, 4, 2, 8), BOOL), h(1, 4, 2, 8))),
    ],
)  # fmt: skip
def test_unknown_attention(operator: str, arguments: tuple[Any, ...]) -> None:
    assert work(operator, *arguments) is None


def test_doubt_of_attention() -> None:
    """Check that unrecorded windows and padding leave the work of attention in doubt.

    Of 9 keys and one query, a window that is not recorded may leave 8 unread; tokens of vLLM's step may be padding.
    """
    known = work("FlashAttnFunc", h(1, 1, 1, 8), h(1, 9, 1, 8), h(1, 9, 1, 8))
    assert known is not None
    assert known.doubtful_bytes == 2 * 2 * 8 * 8
    step = work(
        "vllm::unified_attention_with_output",
        ((9, 4, 8), BF16),
        ((9, 1, 8), BF16),
        ((9, 1, 8), BF16),
        ((9, 4, 8), BF16),
    )
    assert step is not None
    assert step.doubtful_bytes == step.moved_bytes


@pytest.mark.parametrize(
    ("mask", "queries", "keys", "seen"),
    [
        (Mask(), 3, 7, 7),
        (Mask(right=0), 3, 7, 3),
        (Mask(right=0, from_end=True), 3, 7, 7),
        (Mask(left=1, right=0, from_end=True), 3, 7, 4),
        (Mask(left=9, right=0, from_end=True), 3, 7, 7),
        (Mask(right=0, from_end=True), 7, 3, 3),
        (Mask(), 0, 7, 0),
    ],
)
def test_keys_seen(mask: Mask, queries: int, keys: int, seen: int) -> None:
    assert mask.keys_seen(queries, keys) == seen
    offset = keys - queries if mask.from_end else 0
    naive = {
        key
        for query in range(queries)
        for key in range(keys)
        if (mask.left is None or key >= query + offset - mask.left)
        and (mask.right is None or key <= query + offset + mask.right)
    }
    assert len(naive) == seen
