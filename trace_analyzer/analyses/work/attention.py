"""Count scaled dot product attention: two matmuls forward, five backward (the scores are computed again).

FLOP are counted as in ``torch.utils.flop_counter``, for all heads of the query, with one difference: masked pairs of
causal or windowed attention are not counted, because fused kernels skip them; the counter ignores masks. As in the
counter, the softmax is left out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from trace_analyzer.analyses.work.calls import (
    FLOAT32,
    Call,
    Formula,
    Tensor,
    Unrecorded,
    Work,
    compute,
    require,
    total_bytes,
)


@dataclass(frozen=True)
class Layout:
    """Locate sizes in query, key and value: (batch, heads, sequence, width) or (batch, sequence, heads, width)."""

    heads: int
    sequence: int


HEADS_FIRST, SEQUENCE_FIRST = Layout(1, 2), Layout(2, 1)


@dataclass(frozen=True)
class Mask:
    """Hold which keys a query sees: at most ``left`` before and ``right`` after its own position; None is all.

    ``from_end`` aligns the last query with the last key (flash-attn), else the first with the first (PyTorch).
    """

    left: int | None = None
    right: int | None = None
    from_end: bool = False

    def pairs(self, queries: int, keys: int) -> int:
        """Count the pairs of query and key that are computed."""
        offset = keys - queries if self.from_end else 0
        upto = queries * keys if self.right is None else _clamped_sum(queries, offset + self.right + 1, keys)
        before = 0 if self.left is None else _clamped_sum(queries, offset - self.left, keys)
        return upto - before

    def keys_seen(self, queries: int, keys: int) -> int:
        """Count the keys that at least one query sees.

        Keys before the first query's window and after the last query's window are not read.
        """
        offset = keys - queries if self.from_end else 0
        first = 0 if self.left is None else min(keys, max(0, offset - self.left))
        behind = keys if self.right is None else min(keys, max(0, offset + queries + self.right))
        return max(0, behind - first) if queries else 0


CAUSAL_FROM_START, CAUSAL_FROM_END = Mask(right=0), Mask(right=0, from_end=True)


def _clamped_sum(count: int, first: int, most: int) -> int:
    """Sum over i < count of first + i, clamped to 0..most."""
    rising = range(max(0, -first), max(0, -first, min(count, most - first)))
    full = max(0, count - max(0, most - first))
    return sum((first + rising.start, first + rising.stop - 1)) * len(rising) // 2 + full * most


def _mask_of(call: Call, mask: Callable[[Call], Mask]) -> Mask | None:
    """Return the mask; None where the record does not show whether there is one."""
    try:
        return mask(call)
    except Unrecorded:
        return None


def _unread(seen: Mask | None, queries: int, keys: int, *tensors: Tensor) -> tuple[float, float]:
    """Return the bytes of key and value that no query sees, and the doubtful ones where the mask is unknown."""
    size = total_bytes(*tensors)
    if seen is not None:
        return size * (keys - seen.keys_seen(queries, keys)) / max(1, keys), 0.0
    return 0.0, size * max(0, keys - queries) / max(1, keys)


def forward(
    call: Call, *, layout: Layout, mask: Callable[[Call], Mask], bias: int | None = None, first: int = 0
) -> Work:
    """Count attention; query, key and value are the arguments from ``first`` on."""
    query, key, value = (call.tensor(first + i) for i in range(3))
    batch, heads, queries, keys, width, value_width = _sizes(query, key, value, layout)
    output = Tensor((batch, heads, queries, value_width), query.dtype)
    known = _mask_of(call, mask)
    flop = None if known is None else 2.0 * batch * heads * known.pairs(queries, keys) * (width + value_width)
    extra = None if bias is None else call.optional(bias)
    unread, doubtful = _unread(known, queries, keys, key, value)
    return Work(flop, total_bytes(query, key, value, extra, output) - unread, compute(query.dtype), doubtful)


def backward(
    call: Call, *, layout: Layout, mask: Callable[[Call], Mask], output: int, bias: int | None = None, first: int = 0
) -> Work:
    """Count the gradients of query, key and value; the arguments from ``first`` on are grad_output and these."""
    gradient, query, key, value = (call.tensor(first + i) for i in range(4))
    batch, heads, queries, keys, width, value_width = _sizes(query, key, value, layout)
    require(gradient.elements == batch * heads * queries * value_width)
    known = _mask_of(call, mask)
    flop = None if known is None else 2.0 * batch * heads * known.pairs(queries, keys) * (3 * width + 2 * value_width)
    sums = Tensor((batch, heads, queries), FLOAT32)
    read = total_bytes(gradient, query, key, value, call.optional(output), sums)
    written = sum(tensor.elements * tensor.size for tensor in (query, key, value))
    extra = None if bias is None else call.optional(bias)
    unread, doubtful = _unread(known, queries, keys, key, value)
    return Work(flop, read + written + total_bytes(extra) - unread, compute(query.dtype), doubtful)


def _sizes(query: Tensor, key: Tensor, value: Tensor, layout: Layout) -> tuple[int, int, int, int, int, int]:
    if not len(query.shape) == len(key.shape) == len(value.shape) == 4:
        raise Unrecorded
    batch, heads, queries, width = (
        query.shape[0],
        query.shape[layout.heads],
        query.shape[layout.sequence],
        query.shape[3],
    )
    keys, shared = key.shape[layout.sequence], key.shape[layout.heads]
    require(key.shape[0] == value.shape[0] == batch and key.shape[3] == width)
    require(value.shape[layout.sequence] == keys and value.shape[layout.heads] == shared)
    require(shared > 0 and heads % shared == 0)
    return batch, heads, queries, keys, width, value.shape[3]


def ragged(
    call: Call,
    *,
    first: int,
    offsets: tuple[int, int],
    longest: tuple[int, int],
    mask: Callable[[Call], Mask],
    backward_pass: bool = False,
) -> Work:
    """Count attention over packed sequences of unequal length: (tokens, heads, width).

    A trace does not contain their lengths. They are known for a single sequence, and where all sequences are as long
    as the longest: then there are that many tokens per sequence. Otherwise, only the bytes are known.
    """
    query, key, value = (call.tensor(first + i) for i in range(3))
    if not len(query.shape) == len(key.shape) == len(value.shape) == 3:
        raise Unrecorded
    tokens, heads, width = query.shape
    keys, shared, value_width = key.shape[0], key.shape[1], value.shape[2]
    require(key.shape[2] == width and value.shape[:2] == key.shape[:2] and shared > 0 and heads % shared == 0)
    queries_each = uniform(call, tokens, offsets[0], longest[0])
    keys_each = uniform(call, keys, offsets[1], longest[1])
    seen, unread, doubtful = None, 0.0, total_bytes(key, value) * max(0, keys - tokens) / max(1, keys)
    known = _mask_of(call, mask)
    if known is not None and queries_each is not None and keys_each is not None:
        require(queries_each[0] == keys_each[0])
        seen = known.pairs(queries_each[1], keys_each[1]) * queries_each[0]
        unread, doubtful = _unread(known, queries_each[1], keys_each[1], key, value)
    per_pair = 2.0 * heads * ((3 * width + 2 * value_width) if backward_pass else (width + value_width))
    result = Tensor((tokens, heads, value_width), query.dtype)
    moved = total_bytes(query, key, value, result)
    if backward_pass:
        moved = 2 * moved + total_bytes(Tensor((tokens, heads), FLOAT32))
    return Work(None if seen is None else per_pair * seen, moved - unread, compute(query.dtype), doubtful)


def uniform(call: Call, tokens: int, offsets: int, longest: int) -> tuple[int, int] | None:
    """Return (number of sequences, length of each) where the shapes determine both; else None."""
    bounds = call.tensor(offsets)
    require(len(bounds.shape) == 1 and bounds.shape[0] > 1)
    count = bounds.shape[0] - 1
    if count == 1:
        return 1, tokens
    return (count, tokens // count) if call.valued and call.number(longest) * count == tokens else None


def _causal_at(position: int) -> Callable[[Call], Mask]:
    return lambda call: CAUSAL_FROM_START if call.flag(position) else Mask()


def windowed_at(causal: int, left: int, right: int) -> Callable[[Call], Mask]:
    """Return a reader of flash-attn's mask; a window size that is missing or negative is no limit."""

    def mask(call: Call) -> Mask:
        sizes = [value if isinstance(value, int) and value >= 0 else None for value in map(call.value, (left, right))]
        return Mask(sizes[0], 0 if call.flag(causal) else sizes[1], from_end=True)

    return mask


def _efficient_mask(call: Call) -> Mask:
    """Return the mask of the memory-efficient kernel, whose position differs between versions.

    Its type is 0 for none, 1 for causal from the start, 2 for causal from the end, or a flag for causal (xformers up
    to 0.0.18). Lengths of keys or a window after it make the number of pairs unknown.
    """
    before, here = call.value(8), call.value(9)
    if any(call.optional(i) for i in range(10, 14)) or any(_is_count(call.value(i)) for i in range(11, 14)):
        raise Unrecorded
    if isinstance(here, bool) and isinstance(before, bool):
        return CAUSAL_FROM_START if here else Mask()
    return _mask_of_type(before if isinstance(here, bool) else here)


def _efficient_gradient_mask(call: Call) -> Mask:
    """Return the mask (custom_mask_type) of the memory-efficient backward pass; with a window, pairs are unknown."""
    if _is_count(call.value(18)):
        raise Unrecorded
    return _mask_of_type(call.value(14))


def _mask_of_type(number: object) -> Mask:
    masks = {0: Mask(), 1: CAUSAL_FROM_START, 2: CAUSAL_FROM_END}
    if not isinstance(number, int) or isinstance(number, bool) or number not in masks:
        raise Unrecorded
    return masks[number]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def efficient(call: Call) -> Work:
    """Count efficient_attention_forward(query, key, value, bias, offsets ...); only bytes for packed sequences."""
    offsets = [t for t in (call.optional(i) for i in range(3, 6)) if t is not None and len(t.shape) == 1]
    if not offsets:
        return forward(call, layout=SEQUENCE_FIRST, mask=_efficient_mask, bias=3)
    if any(call.optional(i) for i in range(6, 14)):
        return cached(call, value=2)
    return unmasked_bytes(call)


def unmasked_bytes(call: Call) -> Work:
    """Count the bytes of attention(q, k, v, ...) whose mask or lengths are not recorded.

    Where there are more keys than queries, a window may leave some keys unread: these bytes are doubtful.
    """
    query, key, value = (call.tensor(i) for i in range(3))
    if not len(query.shape) == len(key.shape) == len(value.shape) >= 3 or key.shape[:-1] != value.shape[:-1]:
        raise Unrecorded
    queries, keys = (prod(t.shape[:-2]) for t in (query, key))
    output = Tensor((*query.shape[:-1], value.shape[-1]), query.dtype)
    doubtful = total_bytes(key, value) * max(0, keys - queries) / max(1, keys)
    return Work(None, total_bytes(query, key, value, output), compute(query.dtype), doubtful)


def cached(call: Call, *, query: int = 0, value: int | None = None) -> Work:
    """Count attention with a cache: only query and result, because reads of the cache are not recorded.

    The result is as wide as the values, if there are any at position ``value``.
    """
    asked = call.tensor(query)
    values = None if value is None else call.optional(value)
    result = asked if values is None else Tensor((*asked.shape[:-1], values.shape[-1]), asked.dtype)
    return Work(None, total_bytes(asked, result), compute(asked.dtype), least=True)


def flash(call: Call, *, first: int = 0) -> Work:
    """Count _flash_attention_forward(query, key, value, offsets, longest, dropout, causal, debug, ...).

    With operands in fp8, three scales follow, which shift the window. Lengths or a block table mean that the keys are
    in a cache.
    """
    query = call.tensor(first)
    moved = first + (3 if query.dtype is not None and query.dtype.compute == "fp8" else 0)
    if call.optional(moved + 13) is not None or call.optional(first + 15) is not None:
        return cached(call, query=first, value=first + 2)
    mask = windowed_at(first + 8, moved + 11, moved + 12)
    if call.optional(first + 3) is None:
        return forward(call, layout=SEQUENCE_FIRST, mask=mask, first=first)
    return ragged(call, first=first, offsets=(first + 3, first + 4), longest=(first + 5, first + 6), mask=mask)


def _scaled_flash(call: Call) -> Work:
    """Count _scaled_dot_product_flash_attention(query, key, value, [three scales], dropout, causal, debug, scale)."""
    causal = 7 if len(call.arguments) > 9 else 4
    return forward(call, layout=HEADS_FIRST, mask=_causal_at(causal))


def maybe_packed(batched: Formula, ragged_: Formula, offsets: int) -> Formula:
    """Choose the formula for packed sequences where their offsets are given."""
    return lambda call: ragged_(call) if call.optional(offsets) is not None else batched(call)


def unless_packed(batched: Formula, offsets: int) -> Formula:
    """Refuse packed sequences of operators that keep a batch dimension of 1."""

    def formula(call: Call) -> Work:
        if call.optional(offsets) is not None:
            raise Unrecorded
        return batched(call)

    return formula


def whole(layout: Layout, mask: Callable[[Call], Mask], bias: int | None = None) -> Formula:
    """Return `forward` of this layout and mask."""
    return lambda call: forward(call, layout=layout, mask=mask, bias=bias)


def gradients(layout: Layout, mask: Callable[[Call], Mask], output: int, bias: int | None = None) -> Formula:
    """Return `backward` of this layout and mask."""
    return lambda call: backward(call, layout=layout, mask=mask, output=output, bias=bias)


def packed(
    first: int,
    offsets: tuple[int, int],
    longest: tuple[int, int],
    mask: Callable[[Call], Mask],
    backward_pass: bool = False,
) -> Formula:
    """Return `ragged` at these positions."""
    return lambda call: ragged(
        call, first=first, offsets=offsets, longest=longest, mask=mask, backward_pass=backward_pass
    )


_FLASH_BACKWARD = maybe_packed(
    gradients(SEQUENCE_FIRST, windowed_at(11, 15, 16), 4),
    packed(1, (6, 7), (8, 9), windowed_at(11, 15, 16), backward_pass=True),
    6,
)

FORMULAS: dict[str, Formula] = {
    "aten::scaled_dot_product_attention": whole(HEADS_FIRST, _causal_at(5), 3),
    "aten::_scaled_dot_product_flash_attention": _scaled_flash,
    "aten::_scaled_dot_product_flash_attention_for_cpu": whole(HEADS_FIRST, _causal_at(4)),
    "aten::_scaled_dot_product_efficient_attention": whole(HEADS_FIRST, _causal_at(6), 3),
    "aten::_scaled_dot_product_cudnn_attention": whole(HEADS_FIRST, _causal_at(6), 3),
    "aten::_scaled_dot_product_fused_attention_overrideable": whole(HEADS_FIRST, _causal_at(5), 3),
    "aten::_cudnn_attention_forward": unless_packed(whole(HEADS_FIRST, _causal_at(10), 3), 4),
    "aten::_flash_attention_forward": flash,
    "aten::_flash_attention_forward_no_dropout_inplace": lambda call: flash(call, first=1),
    "aten::_efficient_attention_forward": efficient,
    "aten::_scaled_dot_product_flash_attention_backward": gradients(HEADS_FIRST, _causal_at(11), 4),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": gradients(HEADS_FIRST, _causal_at(7), 4),
    "aten::_scaled_dot_product_efficient_attention_backward": gradients(HEADS_FIRST, _causal_at(11), 5, 4),
    "aten::_scaled_dot_product_cudnn_attention_backward": gradients(HEADS_FIRST, _causal_at(14), 4, 8),
    "aten::_cudnn_attention_backward": unless_packed(gradients(HEADS_FIRST, _causal_at(14), 4, 8), 9),
    "aten::_scaled_dot_product_fused_attention_overrideable_backward": gradients(HEADS_FIRST, _causal_at(13), 6, 4),
    "aten::_flash_attention_backward": _FLASH_BACKWARD,
    "aten::_efficient_attention_backward": unless_packed(gradients(SEQUENCE_FIRST, _efficient_gradient_mask, 5, 4), 6),
}
