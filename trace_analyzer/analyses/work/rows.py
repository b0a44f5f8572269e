"""Count norms, activations, rotations, caches, quantization and routing of inference libraries.

Most of these operators move each tensor once, so that a row of `_ROWS` says all: the operators, FLOP per element, the
tensor whose elements count, and the tensors that move. Argument orders are those of the libraries' registrations: vLLM
(`csrc/torch_bindings.cpp`, `csrc/libtorch_stable/torch_bindings.cpp`, `csrc/moe/torch_bindings.cpp`,
`vllm/_aiter_ops.py`), SGLang (`sgl-kernel/csrc/common_extension.cc`), FlashInfer (`norm.py`, `cascade.py`), aiter
(`aiter/ops/rmsnorm.py`), FBGEMM (`quantize_ops`, `permute_pooled_embedding_ops`), torchvision (`torchvision/csrc/ops`).
"""

from msgspec.structs import replace

from trace_analyzer.analyses.work.calls import (
    BYTE,
    DTYPES,
    FLOAT32,
    INT32,
    INT64,
    Call,
    Dtype,
    Formula,
    Tensor,
    Unrecorded,
    Work,
    compute,
    moved,
    operators,
    require,
    total_bytes,
)

Row = tuple[str, str, float, int, str]
"""Namespaces, names, FLOP per element (one more for each tensor marked +), of which argument, what moves (`_row`)."""

_ROWS: tuple[Row, ...] = (
    ("aten", "fill_ zero_ normal_ uniform_ bernoulli_ random_ exponential_", 0, 0, "0"),
    ("aten", "clone contiguous", 0, 0, "0 =0"),
    ("aten fsdp", "split_with_sizes_copy", 0, 0, "0 =0"),
    ("aten", "sort", 0, 0, "0 =0 =0:long unknown"),
    ("aten", "nonzero masked_select", 0, 0, "0 1? least"),  # the number of results is not recorded
    ("aten", "masked_scatter_", 0, 1, "1 least"),  # reads of the source are not recorded
    ("aten", "histc bincount kthvalue median mode _unique2 unique_dim unique_consecutive", 0, 0, "0 least unknown"),
    ("aten", "cummax cummin _cummax_helper _cummin_helper", 1, 0, "0 =0 =0:long"),
    ("aten", "batch_norm_elemt", 2, 0, "0 1+ 2+ 3? 4? =0"),  # subtract, scale
    ("aten", "batch_norm_backward_elemt", 6, 1, "0~ 1 2.. =1"),  # two differences, three products, scale
    ("aten", "_fused_rms_norm", 3, 0, "0 2+ =0"),  # square, add; divide by the root
    ("aten", "_masked_softmax", 5, 0, "0 1 =0"),
    ("aten", "_transform_bias_rescale_qkv", 4 / 3, 0, "0 1 =0"),  # adds a bias, scales the query, a third
    ("_C sgl_kernel flashinfer", "rms_norm rmsnorm gemma_rmsnorm rms_norm_weightless", 3, 1, "0 1 2+"),
    ("aiter", "rmsnorm rms_norm_cu", 3, 1, "0 1 2+"),
    ("aiter", "rms_norm rmsnorm2d_fwd", 4, 0, "0 =0 1"),
    ("vllm", "rocm_aiter_rms_norm", 4, 0, "0 =0 1"),
    ("_C sgl_kernel flashinfer", "fused_add_rms_norm fused_add_rmsnorm gemma_fused_add_rmsnorm fused_add_rms_norm_weightless", 4, 0, "0! 1! 2+"),
    ("aiter", "fused_add_rms_norm_cu", 4, 0, "0! 1! 2+"),
    ("vllm", "rocm_aiter_rmsnorm2d_fwd_with_add", 4, 0, "0! 1! 2+"),
    ("aiter", "add_rmsnorm rmsnorm2d_fwd_with_add", 5, 1, "0 1 2 3 4"),
    ("aiter", "_groupnorm_run", 8, 0, "0 =0 2 3"),
    ("_C sgl_kernel flashinfer aiter", "silu_and_mul mul_and_silu gelu_and_mul gelu_tanh_and_mul fatrelu_and_mul swigluoai_and_mul silu_and_mul_with_clamp", 6, 0, "0 2*1"),
    ("_C", "gelu_new gelu_fast gelu_quick", 5, 0, "0 1"),
    ("_C_cache_ops", "concat_mla_q", 0, 0, "0 1 2"),
    ("sgl_kernel", "concat_mla_absorb_q concat_mla_k", 0, 0, "0 1 2"),
    ("vllm", "flashinfer_concat_mla_k", 0, 0, "0 1 2"),
    ("_C", "static_scaled_fp8_quant dynamic_scaled_fp8_quant dynamic_per_token_scaled_fp8_quant static_scaled_int8_quant dynamic_scaled_int8_quant", 2, 1, "1 =1:0 2?"),
    ("aiter", "dynamic_per_token_scaled_quant", 2, 1, "1 =1:0 2?"),
    ("_C", "silu_and_mul_quant silu_and_mul_per_block_quant", 8, 0, "0 2*1 2.."),
    ("_C", "rms_norm_static_fp8_quant", 6, 1, "0 1 2.."),
    ("flashinfer aiter", "rmsnorm_quant", 6, 1, "0 1 2.."),
    ("aiter", "rmsnorm2d_fwd_with_dynamicquant", 6, 1, "0 1 2.."),
    ("_C", "fused_add_rms_norm_static_fp8_quant", 6, 1, "0 1 2.. 2+"),
    ("flashinfer", "fused_add_rmsnorm_quant", 6, 1, "0 1 2.. 2+"),
    ("_C", "rms_norm_dynamic_per_token_quant rms_norm_per_block_quant", 6, 1, "0 1 2.. 6+"),
    ("aiter", "add_rmsnorm_quant rmsnorm2d_fwd_with_add_dynamicquant", 7, 1, "0 1 2 3 4 5"),
    ("_C_cache_ops", "convert_fp8", 2, 1, "0 1"),
    ("fbgemm", "FloatToHFP8Quantized", 2, 0, "0 =0:byte"),
    ("fbgemm", "HFP8QuantizedToFloat", 2, 0, "0 =0:float"),
    ("fbgemm mslk", "quantize_fp8_per_row quantize_fp8_per_tensor", 3, 0, "0 =0:byte least"),
    ("vllm", "rocm_aiter_per_token_quant rocm_aiter_per_tensor_quant rocm_aiter_group_fp8_quant triton_per_token_group_quant_fp8", 3, 0, "0 =0:byte least"),
    ("fbgemm", "permute_pooled_embs permute_pooled_embs_auto_grad", 0, 0, "0 =0 1.."),
    ("fbgemm", "block_bucketize_sparse_features", 0, 0, "0 1 =1 least unknown"),  # lengths, indices
    ("fbgemm", "bounds_check_indices", 0, 0, "0.. unknown"),
    ("fbgemm", "asynchronous_complete_cumsum asynchronous_inclusive_cumsum asynchronous_exclusive_cumsum", 1, 0, "0 =0"),
    # The ids in another order; the buffer of sorted ids has room for padding, which need not be written.
    ("_moe_C sgl_kernel", "moe_align_block_size sgl_moe_align_block_size", 0, 0, "0 =0:int least unknown"),
    ("torchvision", "nms", 0, 0, "0 1 least unknown"),
)  # fmt: skip


def _row(flop: float, of: int, spec: str) -> Formula:
    """Return the formula of a row.

    ``1`` is a tensor that moves once, ``1!`` one that is read and written, ``1?`` and ``1+`` one that may be missing,
    ``3/0`` tensor 0 where 3 is missing, ``1..`` all tensors from there on. ``0~`` has as many elements as the tensor that
    counts, ``2*1`` twice as many. ``=0`` is a result of
    the shape and type of tensor 0, ``=1:0`` one with the type of tensor 0, ``=0:byte`` one of bytes. ``least``: further
    results are not known; ``unknown``: FLOP are not known; ``doubtful``: all bytes are.
    """
    tokens = spec.split()
    types: dict[str, Dtype] = {"byte": BYTE, "float": FLOAT32, "int": INT32, "long": INT64}

    def formula(call: Call) -> Work:
        main = call.tensor(of)
        moving: list[Tensor | None] = []
        more = 0
        for token in tokens:
            if token.isalpha():
                continue
            if token.startswith("="):
                like, _, dtype = token[1:].partition(":")
                given = call.tensor(int(like))
                kind = given.dtype if not dtype else types.get(dtype) or call.tensor(int(dtype)).dtype
                moving.append(Tensor(given.shape, kind))
            elif token.endswith(".."):
                moving += call.given(int(token[:-2]))
            elif "/" in token:
                place, instead = map(int, token.split("/"))
                moving.append(call.optional(place) or call.tensor(instead))
            elif token.endswith(("?", "+")):
                optional = call.optional(int(token[:-1]))
                moving.append(optional)
                more += optional is not None and token.endswith("+")
            else:
                tensor = call.tensor(int(token.partition("*")[2] or token.rstrip("!~")))
                require("~" not in token or tensor.elements == main.elements)
                require("*" not in token or tensor.elements == int(token[0]) * main.elements)
                moving += [tensor] * (1 + token.endswith("!"))
        if "=1:0" in tokens and call.tensor(0).elements < main.elements:
            raise Unrecorded  # not the result of this input; a larger one has rows of padding
        # Arithmetic on elements of a byte is in the type of the tensors that they come from or go to.
        typed = main if main.size > 1 else max(filter(None, moving), key=lambda tensor: tensor.bytes)
        size = total_bytes(*moving)
        return Work(
            None if "unknown" in tokens else float((flop + more) * main.elements),
            size,
            compute(typed.dtype),
            size if "doubtful" in tokens else 0.0,
            least="least" in tokens,
        )

    return formula


def formulas(rows: tuple[Row, ...]) -> dict[str, Formula]:
    """Return the formula of each operator of these rows."""
    return operators(*((namespaces, names, _row(flop, of, spec)) for namespaces, names, flop, of, spec in rows))


def _rows(positions: Tensor, table: Tensor) -> Tensor:
    """Return at most as many rows of a table as there are positions; several positions may name one row."""
    require(len(table.shape) == 2)
    return Tensor((min(positions.elements, table.shape[0]), table.shape[1]), table.dtype)


def rotary(call: Call) -> Work:
    """Count rotary_embedding(positions, query, key, head_size, cos_sin_cache, is_neox): in place, 3 FLOP per element.

    The cache's width of each head is rotated, which is less than the head in models with partial rotation. Without
    values, the head size is unknown: whole heads count, and are doubtful. Rows of the cache that several positions may
    name are also doubtful.
    """
    positions, query, key, table = call.tensor(0), call.tensor(1), call.optional(2), call.tensor(4)
    rows = _rows(positions, table)
    head = call.number(3) if call.valued else table.shape[1]
    require(head > 0)
    part = min(1.0, table.shape[1] / head)
    given = [query, *([key] if key else [])]
    turned, rest = sum(t.elements for t in given) * part, sum(t.bytes for t in given) * part * 2
    doubtful = rows.bytes + (0.0 if call.valued else rest)
    return Work(3.0 * turned, total_bytes(positions, rows) + rest, compute(query.dtype), doubtful)


def rotary_to(call: Call) -> Work:
    """Count apply_rope_pos_ids_cos_sin_cache(q, k, q out, k out, cache, positions, ...).

    The part of a head that is not rotated need not move in place: these bytes are doubtful.
    """
    query, key, query_out, key_out, table, positions = (call.tensor(i) for i in range(6))
    require(query.elements == query_out.elements and key.elements == key_out.elements)
    rows = _rows(positions, table)
    turned = min(1.0, table.shape[1] / query.shape[-1]) * (query.elements + key.elements)
    doubtful = total_bytes(query, key, query_out, key_out, rows)
    size = total_bytes(query, key, positions, rows, query_out, key_out)
    return Work(3.0 * turned, size, compute(query.dtype), doubtful)


def store_cache(slots: int, *places: tuple[int, int]) -> Formula:
    """Return the formula of tokens written to caches, as many as slots, in the caches' types.

    ``places`` are the positions of a tensor of tokens and of its cache. Tokens may be more than slots: the others pad a
    graph's batch. A token without a slot is not written: these bytes are doubtful.
    """

    def formula(call: Call) -> Work:
        read, written = [], []
        for place, cache in places:
            given = call.tensor(place)
            require(bool(given.shape))
            shape = (min(given.shape[0], call.tensor(slots).elements), given.elements // max(1, given.shape[0]))
            read.append(Tensor(shape, given.dtype))
            written.append(Tensor(shape, call.tensor(cache).dtype))
        doubtful = total_bytes(*read, *written)
        return Work(0.0, doubtful + call.tensor(slots).bytes, compute(call.tensor(places[0][0]).dtype), doubtful)

    return formula


def group_quantized(call: Call) -> Work:
    """Count sgl_per_token_group_quant_fp8 and similar (input, out, scales, ...): maximum, multiply, clamp.

    An input of twice the output's size is that of a gate (fuse_silu_and_mul). With a tensor of row counts (masked_m),
    the work is unknown.
    """
    given, output = call.tensor(0), call.tensor(1)
    if call.optional(9) is not None:
        raise Unrecorded
    is_gated = given.elements == 2 * output.elements
    require(output.elements == given.elements or is_gated)
    flop = (9.0 if is_gated else 3.0) * output.elements
    return moved(given, output, call.optional(2), flop=flop)


def quantized_fp4(call: Call) -> Work:
    """Count scaled_fp4_quant(out, input, scales, scale) and (input, scale, ...): maximum, multiply, clamp.

    The input is the largest tensor in FP16 or BF16; two of its elements become one byte. Scales, one per 16 elements,
    may be padded and are not counted.
    """
    halves = [t for t in call.given() if compute(t.dtype) in ("fp16", "bf16")]
    if not halves:
        raise Unrecorded
    given = max(halves, key=lambda tensor: tensor.elements)
    return replace(moved(given, Tensor((given.elements // 2,), BYTE), flop=3.0 * given.elements), least=True)


_ROWWISE_SCALES = 8
"""Bytes that FBGEMM's rowwise formats append to each row: a scale and a bias in float (fbgemm_gpu, quantize_ops)."""
_HALVES = (1, 5)
"""FBGEMM's numbers (SparseType) of 16-bit types that can be requested for a result."""


def to_rowwise_bytes(call: Call) -> Work:
    """Count FloatToFP8RowwiseQuantized, FloatToFused8BitRowwiseQuantized(input): bytes, and scales of each row."""
    given = call.tensor(0)
    require(len(given.shape) == 2)
    written = Tensor((given.shape[0], given.shape[1] + _ROWWISE_SCALES), BYTE)
    return moved(given, written, flop=3.0 * given.elements)


def from_rowwise_bytes(call: Call) -> Work:
    """Count FP8RowwiseQuantizedToFloat(input, forward, [type]), Fused8BitRowwiseQuantizedToFloat(input)."""
    given = call.tensor(0)
    require(len(given.shape) == 2 and given.shape[1] > _ROWWISE_SCALES)
    narrow = call.value(2) in _HALVES if call.valued else len(call.arguments) > 2
    dtype = DTYPES["c10::Half"] if narrow else FLOAT32
    written = Tensor((given.shape[0], given.shape[1] - _ROWWISE_SCALES), dtype)
    return replace(moved(written, given, flop=2.0 * written.elements), least=narrow and not call.valued)


def all_touched(call: Call) -> Work:
    """Count merge_attn_states, topk_softmax, moe_sum and similar: reads or writes each tensor once.

    FLOP: 2 per element of the largest tensor.
    """
    tensors = call.given()
    require(bool(tensors))
    largest = max(tensors, key=lambda tensor: tensor.elements)
    return Work(2.0 * largest.elements, total_bytes(*tensors), compute(largest.dtype))


def all_read(call: Call) -> Work:
    """Count moe_fused_gate, grouped_topk(scores, [bias], ...): reads each tensor; the selection is small."""
    return replace(all_touched(call), least=True)


FORMULAS: dict[str, Formula] = formulas(_ROWS) | operators(
    ("_C sgl_kernel", "rotary_embedding batched_rotary_embedding", rotary),
    ("sgl_kernel", "apply_rope_pos_ids_cos_sin_cache", rotary_to),
    ("_C_cache_ops", "reshape_and_cache_flash reshape_and_cache", store_cache(4, (0, 2), (1, 3))),
    ("sglang", "store_cache", store_cache(4, (0, 2), (1, 3))),
    ("sgl_kernel", "store_kv_cache", store_cache(2, (3, 0), (4, 1))),
    ("_C_cache_ops", "concat_and_cache_mla", store_cache(3, (0, 2), (1, 2))),
    ("sgl_kernel", "sgl_per_token_group_quant_8bit sgl_per_token_group_quant_8bit_v2 sgl_per_token_group_quant_fp8"
     " sgl_per_token_group_quant_int8 sgl_per_tensor_quant_fp8 sgl_per_token_quant_fp8", group_quantized),
    ("_C", "per_token_group_fp8_quant per_token_group_fp8_quant_packed per_token_group_quant_int8", group_quantized),
    ("_C _C_stable_libtorch sgl_kernel", "scaled_fp4_quant", quantized_fp4),
    ("fbgemm", "FloatToFP8RowwiseQuantized FloatToFused8BitRowwiseQuantized", to_rowwise_bytes),
    ("fbgemm", "FP8RowwiseQuantizedToFloat Fused8BitRowwiseQuantizedToFloat", from_rowwise_bytes),
    ("_C", "merge_attn_states", all_touched),
    ("sgl_kernel", "merge_state merge_state_v2 moe_sum_reduce", all_touched),
    ("flashinfer", "merge_state", all_touched),
    ("_moe_C sgl_kernel", "topk_softmax topk_sigmoid moe_sum", all_touched),
    ("sgl_kernel", "moe_fused_gate kimi_k2_moe_fused_gate", all_read),
    ("_moe_C", "grouped_topk", all_read),
) | {
    "torch::autograd::CppNode<fbgemm_gpu::PermutePooledEmbsFunction<&fbgemm_gpu::permute_pooled_embs_gpu> >": _row(0, 0, "0 =0 1.."),
}  # fmt: skip
