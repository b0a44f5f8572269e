"""Count library operators for expert routing, merging, sampling, pooled embeddings and detection.

Argument orders are those of the libraries' registrations: vLLM (`csrc/moe/torch_bindings.cpp`,
`csrc/torch_bindings.cpp`), SGLang (`sgl-kernel/csrc/common_extension.cc`), FlashInfer (`cascade.py`), FBGEMM
(`permute_pooled_embedding_ops`), torchvision (`torchvision/csrc/ops`).
"""

from dataclasses import replace

from trace_analyzer.analyses.work.calls import (
    INT32,
    Call,
    Formula,
    Tensor,
    Work,
    compute,
    in_namespaces,
    require,
    tensor_of,
    total_bytes,
)
from trace_analyzer.analyses.work.vendor import moved


def all_touched(call: Call) -> Work:
    """Count merge_attn_states, topk_softmax, moe_sum and similar: reads or writes each tensor once.

    FLOP: 2 per element of the largest tensor.
    """
    tensors = call.given()
    require(bool(tensors))
    largest = max(tensors, key=lambda tensor: tensor.elements)
    return moved(2.0 * largest.elements, largest, *tensors)


def all_read(call: Call) -> Work:
    """Count moe_fused_gate, grouped_topk(scores, [bias], ...): reads each tensor; the selection is small."""
    return replace(all_touched(call), least=True)


def aligned(call: Call) -> Work:
    """Count moe_align_block_size(ids, experts, block, sorted ids, ...): reads the ids, writes them in another order.

    The buffer of sorted ids has room for padding, which need not be written.
    """
    ids = call.tensor(0)
    return Work(None, total_bytes(ids, Tensor(ids.shape, INT32)), None, least=True)


def rows_shuffled(call: Call) -> Work:
    """Count shuffle_rows(input, map, out); reads are doubtful: all rows of out may come from one row."""
    given, places, output = (call.tensor(i) for i in range(3))
    require(given.shape[-1:] == output.shape[-1:])
    read = min(given.bytes, output.bytes)
    return Work(0.0, total_bytes(places, output) + read, compute(output.dtype), doubtful_bytes=read)


def rows_summed(call: Call) -> Work:
    """Count apply_shuffle_mul_sum(input, out, places, factors): multiply, add; reads only rows that places name.

    These reads are doubtful, because several places may name one row.
    """
    given, output, places, factors = (*(call.tensor(i) for i in range(3)), call.optional(3))
    read = min(given.bytes, places.elements * given.shape[-1] * given.size) if given.shape else 0.0
    size = total_bytes(output, places, factors) + read
    return Work(2.0 * places.elements * output.shape[-1] if output.shape else 0.0, size, compute(given.dtype), read)


def rewritten(call: Call) -> Work:
    """Count top_k_renorm_probs, top_p_renorm_probs, top_k_mask_logits(probabilities, out, ...), each tensor once."""
    given, output = call.tensor(0), call.tensor(1)
    require(given.elements == output.elements)
    return Work(None, total_bytes(given, output), compute(given.dtype))


def sampled(call: Call) -> Work:
    """Count top_p_sampling_from_probs and similar (probabilities, out, ...).

    The search may end early, so the reads are doubtful.
    """
    given, output = call.tensor(0), call.tensor(1)
    return Work(None, total_bytes(given, output), compute(given.dtype), given.bytes, least=True)


def penalized(call: Call) -> Work:
    """Count apply_repetition_penalties_(logits, prompt mask, output mask, penalties).

    Masks and penalties are read; the number of logits that the masks select is not recorded.
    """
    masks = [call.tensor(i) for i in (1, 2, 3)]
    return Work(None, total_bytes(*masks), None, least=True)


def permuted(call: Call) -> Work:
    """Count fbgemm::permute_pooled_embs(pooled, ...), which reads and writes each element once."""
    given = call.tensor(0)
    return moved(0.0, given, given, Tensor(given.shape, given.dtype), *call.given(1))


def pooled_regions(call: Call) -> Work:
    """Count torchvision's roi_align, roi_pool(input, boxes, scale, height, width, ...): a result per box and channel.

    Reads of the input are not counted, because boxes may cover a small part of it.
    """
    given, boxes = call.tensor(0), call.tensor(1)
    require(len(given.shape) == 4 and len(boxes.shape) == 2)
    result = tensor_of((boxes.shape[0], given.shape[1], call.number(3), call.number(4)), given.dtype)
    return Work(None, total_bytes(boxes, result), compute(given.dtype), least=True)


def region_gradients(call: Call) -> Work:
    """Count the reads of torchvision::_roi_align_backward(gradient, boxes, ...); its writes depend on boxes' values."""
    gradient, boxes = call.tensor(0), call.tensor(1)
    require(len(gradient.shape) == 4 and len(boxes.shape) == 2 and gradient.shape[0] == boxes.shape[0])
    return Work(None, total_bytes(gradient, boxes), compute(gradient.dtype), least=True)


def suppressed(call: Call) -> Work:
    """Count torchvision::nms(boxes, scores, threshold), which reads both tensors."""
    boxes, scores = call.tensor(0), call.tensor(1)
    return Work(None, total_bytes(boxes, scores), compute(boxes.dtype), least=True)


FORMULAS: dict[str, Formula] = {
    **dict.fromkeys(
        (
            "_C::merge_attn_states",
            *in_namespaces("sgl_kernel", "merge_state", "merge_state_v2"),
            "flashinfer::merge_state",
            *in_namespaces("_moe_C sgl_kernel", "topk_softmax", "topk_sigmoid", "moe_sum"),
            "sgl_kernel::moe_sum_reduce",
        ),
        all_touched,
    ),
    **dict.fromkeys(("sgl_kernel::moe_fused_gate", "sgl_kernel::kimi_k2_moe_fused_gate", "_moe_C::grouped_topk"), all_read),
    **dict.fromkeys(
        ("_moe_C::moe_align_block_size", "_moe_C::sgl_moe_align_block_size", "sgl_kernel::moe_align_block_size"), aligned
    ),
    "sgl_kernel::shuffle_rows": rows_shuffled,
    "sgl_kernel::apply_shuffle_mul_sum": rows_summed,
    **dict.fromkeys(in_namespaces("sgl_kernel", "top_k_renorm_probs", "top_p_renorm_probs", "top_k_mask_logits"), rewritten),
    **dict.fromkeys(
        in_namespaces(
            "sgl_kernel", "min_p_sampling_from_probs", "top_p_sampling_from_probs", "top_k_top_p_sampling_from_probs"
        ),
        sampled,
    ),
    "_C::apply_repetition_penalties_": penalized,
    **dict.fromkeys(in_namespaces("fbgemm", "permute_pooled_embs", "permute_pooled_embs_auto_grad"), permuted),
    "torch::autograd::CppNode<fbgemm_gpu::PermutePooledEmbsFunction<&fbgemm_gpu::permute_pooled_embs_gpu> >": permuted,
    **dict.fromkeys(in_namespaces("torchvision", "roi_align", "roi_pool"), pooled_regions),
    "torchvision::_roi_align_backward": region_gradients,
    "torchvision::nms": suppressed,
}  # fmt: skip
