"""Count lookups in embedding tables (FBGEMM), and operators that sort their indices.

The flat weights of a call contain its tables in order, each with its own width; the widths are values of a tensor. A
lookup reads a row per index and writes the sum of each bag; its backward pass reads the gradient of each bag and
updates the rows (`fbgemm_gpu/codegen/training`). Traffic is counted as in FBGEMM's `tbe_training_benchmark`: mean width
times indices.
"""

from dataclasses import dataclass

from trace_analyzer.analyses.work.calls import (
    FLOAT32,
    Call,
    Formula,
    Tensor,
    Unrecorded,
    Work,
    compute,
    require,
    tensor_of,
    total_bytes,
)

LOOKUP = "fbgemm::split_embedding_codegen_lookup_"
LOOKUP_BACKWARD = (
    "torch::autograd::CppNode<SplitLookupFunction_",
    "torch::autograd::CppNode<SplitNoBagLookupFunction_",
)
_UNPOOLED = 2
"""FBGEMM's pooling mode of lookups whose rows are returned one by one (PoolingMode.NONE)."""


@dataclass(frozen=True)
class _Places:
    """Hold positions of a lookup's arguments; ``total``, the sum of the widths, is the first number among them."""

    weights: int
    total: int

    @property
    def widths(self) -> int:
        return self.total - 1

    @property
    def indices(self) -> int:
        return self.total + 4

    @property
    def offsets(self) -> int:
        return self.total + 5

    @property
    def pooling(self) -> int:
        return self.total + 6


def _places(call: Call) -> _Places | None:
    """Return the positions of a lookup's arguments.

    They are (autograd, [host weights], weights, uvm, cache, placements, weight offsets, D_offsets, total_D, max_D, a
    hash's sizes and bits, indices, offsets, pooling mode, ...). Lookups for torch.compile (`_pt2`) have host weights
    before the device's weights; later versions have all weights in one list.
    """
    total = next((i for i, kind in enumerate(call.kinds) if i and kind == "Scalar"), None)
    places: dict[int | None, int] = {3: 0, 7: 1, 8: 2}
    if total not in places:
        return None
    assert total is not None
    return _Places(places[total], total)


def lookup(call: Call) -> Work:
    """Count a lookup: indices and offsets; where the sum of widths is recorded, also a mean row per index and bags.

    One read of a row may serve several indices, and bags may be narrower or differ in number between tables: rows and
    bags are doubtful. Without the widths, or where the weights are a list, only indices and offsets are known.
    """
    places = _places(call)
    if places is None:
        raise Unrecorded
    widths, indices, offsets = (call.optional(i) for i in (places.widths, places.indices, places.offsets))
    if widths is None or indices is None or offsets is None:
        raise Unrecorded
    if any(len(t.shape) != 1 for t in (widths, indices, offsets)):
        raise Unrecorded
    weights = call.optional(places.weights) if places.weights else None
    tables, bags = widths.elements - 1, offsets.elements - 1
    if tables < 1 or bags < 1:
        raise Unrecorded
    read = total_bytes(indices, offsets)
    total = call.value(places.total) if call.valued else None
    if not isinstance(total, int) or total < tables or weights is None or len(weights.shape) != 1:
        return Work(None, read, None, least=True)
    rows = indices.elements * total / tables * weights.size
    is_pooled = call.value(places.pooling) != _UNPOOLED and not bags % tables
    sums = total_bytes(Tensor((bags // tables, total), FLOAT32)) if is_pooled else 0.0
    return Work(None, read + rows + sums, None, doubtful_bytes=rows + sums, least=True)


def lookup_backward(call: Call) -> Work:
    """Count the read of the bags' gradient; the number of updated rows is not recorded."""
    return Work(None, total_bytes(call.tensor(0)), None, least=True)


def permuted(call: Call) -> Work:
    """Count permute_(1D|2D)_sparse_data and permute_sparse_features(permute, lengths, values, weights, ...).

    One length per permuted row is written. Where each row is permuted, values count as read once and written once;
    these bytes are doubtful, because the number of written values is not recorded.
    """
    order, lengths, values = call.tensor(0), call.tensor(1), call.tensor(2)
    if len(order.shape) != 1 or len(lengths.shape) not in (1, 2) or not lengths.shape[0]:
        raise Unrecorded
    written = Tensor((order.elements, *lengths.shape[1:]), lengths.dtype)
    used = Tensor((min(order.elements, lengths.shape[0]), *lengths.shape[1:]), lengths.dtype)
    others = total_bytes(*call.given(2)) if order.elements >= lengths.shape[0] and values.elements else 0.0
    return Work(None, total_bytes(order, used, written) + 2 * others, None, doubtful_bytes=2 * others, least=True)


def bucketized(call: Call) -> Work:
    """Count block_bucketize_sparse_features(lengths, indices, ...): reads both, writes the indices in another order."""
    lengths, indices = call.tensor(0), call.tensor(1)
    return Work(None, total_bytes(lengths, indices, indices), None, least=True)


def checked(call: Call) -> Work:
    """Count bounds_check_indices(rows_per_table, indices, offsets, ...): reads all tensors."""
    return Work(None, total_bytes(*call.given()), None)


def padded(call: Call) -> Work:
    """Count jagged_to_padded_dense(values, offsets, longest, ...): pads each sequence to the longest length.

    There is one sequence fewer than offsets. Values beyond the longest length are not read: their bytes are doubtful.
    """
    values, offsets, longest = call.tensor(0), call.tensors(1), call.numbers(2)
    require(bool(offsets) and len(offsets[0].shape) == 1 and offsets[0].shape[0] > 0 and len(values.shape) in (1, 2))
    result = tensor_of((offsets[0].shape[0] - 1, *longest, *values.shape[1:]), values.dtype)
    return Work(None, total_bytes(values, result), compute(values.dtype), values.bytes)


def unpadded(call: Call) -> Work:
    """Count dense_to_jagged(dense, offsets, rows): reads and writes that many rows, where the number is recorded."""
    dense, rows = call.tensor(0), call.value(2)
    if not isinstance(rows, int) or isinstance(rows, bool) or not dense.shape:
        raise Unrecorded
    kept = tensor_of((rows, dense.shape[-1]), dense.dtype)
    require(kept.elements <= dense.elements)
    return Work(None, total_bytes(kept, kept), compute(dense.dtype))


def summed_up(call: Call) -> Work:
    """Count asynchronous_(complete|inclusive|exclusive)_cumsum(t): read once, written once."""
    given = call.tensor(0)
    return Work(float(given.elements), total_bytes(given, given), None)


FORMULAS: dict[str, Formula] = {
    **{f"fbgemm::permute_{kind}": permuted for kind in ("1D_sparse_data", "2D_sparse_data", "sparse_features")},
    **{f"fbgemm::jagged_to_padded_dense{end}": padded for end in ("", "_forward")},
    **{f"fbgemm::dense_to_jagged{end}": unpadded for end in ("", "_forward")},
    "aten::_jagged_to_padded_dense_forward": padded,
    "aten::_padded_dense_to_jagged_forward": unpadded,
    "fbgemm::block_bucketize_sparse_features": bucketized,
    "fbgemm::bounds_check_indices": checked,
    **{f"fbgemm::asynchronous_{kind}_cumsum": summed_up for kind in ("complete", "inclusive", "exclusive")},
}
PREFIXES: dict[str, Formula] = {LOOKUP: lookup, **dict.fromkeys(LOOKUP_BACKWARD, lookup_backward)}
"""Formulas by the prefix of the operator's name; the optimizer's name follows it."""
