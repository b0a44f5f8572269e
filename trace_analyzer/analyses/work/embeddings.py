"""Count lookups in embedding tables (FBGEMM), and the sorting of their indices.

The tables of a call are concatenated in flat weights, each with its own width; the widths are values. A lookup reads a
row per index and writes the sum of each bag. Its backward pass reads the gradient of each bag and updates the rows
(`fbgemm_gpu/codegen/training`; traffic as in its benchmark `tbe_training_benchmark`: mean width times indices).
"""

from trace_analyzer.analyses.work.calls import FLOAT32, Call, Formula, Tensor, Unrecorded, Work, total_bytes

LOOKUP = "fbgemm::split_embedding_codegen_lookup_"
LOOKUP_BACKWARD = (
    "torch::autograd::CppNode<SplitLookupFunction_",
    "torch::autograd::CppNode<SplitNoBagLookupFunction_",
)
_WEIGHTS, _WIDTHS, _TOTAL_WIDTH, _INDICES, _OFFSETS = 1, 6, 7, 11, 12
"""Positions in a lookup's arguments: (autograd, device weights, ..., D_offsets, total_D, ..., indices, offsets,
...)."""


def lookup(call: Call) -> Work:
    """Count a lookup: its indices and, where the total width is recorded, a row of mean width per index and the bags.

    A row may be read once for several indices, so these reads are doubtful. Without the widths, only indices and
    offsets are known.
    """
    weights, widths, indices, offsets = (call.optional(i) for i in (_WEIGHTS, _WIDTHS, _INDICES, _OFFSETS))
    known = weights is not None and widths is not None and indices is not None and offsets is not None
    if not known or any(len(t.shape) != 1 for t in (weights, widths, indices, offsets)):  # type: ignore[union-attr]
        raise Unrecorded
    assert weights is not None
    assert widths is not None
    assert indices is not None
    assert offsets is not None
    tables, bags = widths.elements - 1, offsets.elements - 1
    if tables < 1 or bags < 1 or bags % tables:
        raise Unrecorded
    read = total_bytes(indices, offsets)
    total = call.value(_TOTAL_WIDTH) if call.valued else None
    if not isinstance(total, int) or total < tables:
        return Work(None, read, None, least=True)
    rows = indices.elements * total / tables * weights.size
    sums = total_bytes(Tensor((bags // tables, total), FLOAT32))
    return Work(None, read + rows + sums, None, doubtful_bytes=rows, least=True)


def lookup_backward(call: Call) -> Work:
    """Count the read gradient of the bags; the number of updated rows is not recorded."""
    return Work(None, total_bytes(call.tensor(0)), None, least=True)


def permuted(call: Call) -> Work:
    """Count permute_2D_sparse_data, permute_sparse_features(permute, lengths, values, weights, ...).

    Lengths are written per permuted row. Values are read once where each row is permuted; the number of written values
    is not recorded.
    """
    order, lengths, values = call.tensor(0), call.tensor(1), call.tensor(2)
    if len(order.shape) != 1 or len(lengths.shape) != 2 or not lengths.shape[0]:
        raise Unrecorded
    written = Tensor((order.elements, lengths.shape[1]), lengths.dtype)
    used = Tensor((min(order.elements, lengths.shape[0]), lengths.shape[1]), lengths.dtype)
    others = total_bytes(*call.given(2)) if order.elements >= lengths.shape[0] and values.elements else 0.0
    return Work(None, total_bytes(order, used, written) + 2 * others, None, doubtful_bytes=2 * others, least=True)


def bucketized(call: Call) -> Work:
    """Count block_bucketize_sparse_features(lengths, indices, ...): both are read, indices are written."""
    lengths, indices = call.tensor(0), call.tensor(1)
    return Work(None, total_bytes(lengths, indices, indices), None, least=True)


def checked(call: Call) -> Work:
    """Count bounds_check_indices(rows_per_table, indices, offsets, ...): all are read."""
    return Work(None, total_bytes(*call.given()), None)


def summed_up(call: Call) -> Work:
    """Count asynchronous_complete_cumsum and related operators (t): read once, written once."""
    given = call.tensor(0)
    return Work(float(given.elements), total_bytes(given, given), None)


FORMULAS: dict[str, Formula] = {
    "fbgemm::permute_2D_sparse_data": permuted,
    "fbgemm::permute_sparse_features": permuted,
    "fbgemm::block_bucketize_sparse_features": bucketized,
    "fbgemm::bounds_check_indices": checked,
    **{f"fbgemm::asynchronous_{kind}_cumsum": summed_up for kind in ("complete", "inclusive", "exclusive")},
}
PREFIXES: dict[str, Formula] = {LOOKUP: lookup, **dict.fromkeys(LOOKUP_BACKWARD, lookup_backward)}
"""Formulas by prefix of the operator's name; the rest of the name is the optimizer."""
