"""Count work that moves data (copies, concatenations, padding, pooling, resampling), and operators that select by indices.

Gathered or scattered elements count once per index, but at most as the whole tensor they come from: repeated rows come
from the cache. Kineto does not record indices in a list (``x[i, j]``), so only reads of recorded values are known
(``at-least``).
"""

from math import prod

from msgspec.structs import replace

from trace_analyzer.analyses.work.calls import (
    FLOAT32,
    INT32,
    INT64,
    Call,
    Formula,
    Tensor,
    Unrecorded,
    Work,
    broadcast,
    compute,
    moved,
    operators,
    require,
    tensor_of,
    total_bytes,
)


def copy(call: Call) -> Work:
    """Count copy_(self, src), which broadcasts src."""
    target, source = call.tensor(0), call.tensor(1)
    broadcast(target.shape, source.shape)
    return replace(moved(target, source), doubtful_bytes=source.bytes if source.strides is None else 0.0)


def converted(call: Call) -> Work:
    """Count _to_copy(self, dtype, ...): reads once, and writes once in the requested type."""
    given = call.tensor(0)
    if not call.valued:
        return replace(moved(given), least=True)
    return moved(given, Tensor(given.shape, call.type_at(1) or given.dtype))


def concatenate(call: Call) -> Work:
    """Count cat, stack of a list; _chunk_cat pads its chunks to one size."""
    tensors = call.tensors(0)
    read = total_bytes(*tensors)
    written = sum(tensor.elements * tensor.size for tensor in tensors)
    return Work(0.0, read + written, compute(tensors[0].dtype), least=call.operator.endswith("chunk_cat"))


def topk(call: Call) -> Work:
    """Count topk(self, k, dim): k values and indices per row are written."""
    if not call.valued:
        return Work(None, call.tensor(0).bytes, compute(call.tensor(0).dtype), least=True)
    given, count, dim = call.tensor(0), call.number(1), call.number(2)
    require(bool(given.shape) and -len(given.shape) <= dim < len(given.shape) and 0 <= count <= given.shape[dim])
    kept = given.elements // max(1, given.shape[dim]) * count
    return Work(None, total_bytes(given, Tensor((kept,), given.dtype), Tensor((kept,), INT64)), compute(given.dtype))


def pad(call: Call) -> Work:
    """Count constant_pad_nd, reflection_pad, replication_pad(self, pad): pairs from the last dimension on."""
    if not call.valued:
        return _into_result(call)
    given, sizes = call.tensor(0), call.numbers(1)
    require(len(sizes) % 2 == 0 and len(sizes) // 2 <= len(given.shape))
    grown = [before + after for before, after in zip(sizes[::2], sizes[1::2], strict=True)]
    shape = [*given.shape[: len(given.shape) - len(grown)]]
    shape += [n + more for n, more in zip(given.shape[len(shape) :], reversed(grown), strict=True)]
    require(min(shape, default=0) >= 0)
    return moved(given, Tensor(tuple(shape), given.dtype))


def _into_result(call: Call) -> Work:
    """Count a call without values, whose result's shape is known from its reader."""
    given = call.tensor(0)
    if call.result is None:
        raise Unrecorded
    require(len(call.result) == len(given.shape))
    return moved(given, Tensor(call.result, given.dtype))


def _into_pooled(call: Call) -> Work:
    """Count a pool without values: each input is read and contributes to at least one output."""
    work = _into_result(call)
    given, result = call.tensor(0), call.result or ()
    if prod(result) >= given.elements:
        raise Unrecorded
    indices = prod(result) * INT64.bytes if "with_indices" in call.operator else 0.0
    return replace(work, flop=float(given.elements), moved_bytes=(work.moved_bytes or 0.0) + indices, least=True)


def _pooled(call: Call, rank: int, *, dilated: bool) -> tuple[Tensor, tuple[int, ...], int]:
    """Return input, output shape and taps of a pool.

    Its arguments are (self, kernel, stride, padding, [dilation], ceil_mode).
    """
    given = call.tensor(0)
    require(len(given.shape) in (rank + 1, rank + 2))
    kernel = call.sizes(1, rank)
    stride, padding = call.sizes(2, rank) if call.numbers(2) else kernel, call.sizes(3, rank)
    dilation = call.sizes(4, rank) if dilated else (1,) * rank
    require(min(stride) > 0 and min(kernel) > 0 and min(dilation) > 0)
    ceil = call.flag(5 if dilated else 4)
    space = []
    for n, k, s, p, d in zip(given.shape[-rank:], kernel, stride, padding, dilation, strict=True):
        room = n + 2 * p - d * (k - 1) - 1
        count = (room + (s - 1 if ceil else 0)) // s + 1
        # The last window must start inside the input or its left padding.
        space.append(count - 1 if ceil and (count - 1) * s >= n + p else count)
    require(min(space) > 0)
    return given, (*given.shape[:-rank], *space), prod(kernel)


def pool(rank: int, *, takes_most: bool) -> Formula:
    """Return the formula of max_poolNd_with_indices, or of avg_poolNd: a comparison or an addition per tap.

    A maximum's int64 index is written, too.
    """

    def formula(call: Call) -> Work:
        if not call.valued:
            return _into_pooled(call)
        given, shape, taps = _pooled(call, rank, dilated=takes_most)
        output, indices = Tensor(shape, given.dtype), Tensor(shape, INT64) if takes_most else None
        return moved(given, output, indices, flop=float(taps * output.elements))

    return formula


def adaptive_pool(rank: int) -> Formula:
    """Return the formula of _adaptive_avg_poolNd(self, output_size): every input is added once at least."""

    def formula(call: Call) -> Work:
        given = call.tensor(0)
        require(len(given.shape) in (rank + 1, rank + 2))
        if not call.valued:
            return _into_pooled(call)
        shape = (*given.shape[:-rank], *call.sizes(1, rank))
        return moved(given, Tensor(shape, given.dtype), flop=float(given.elements))

    return formula


def pool_backward(call: Call) -> Work:
    """Count *_pool_backward(grad_output, self, ..., [indices]).

    Gradients and indices are read, the input's gradient is written.
    """
    gradient, given = call.tensor(0), call.tensor(1)
    indices = [tensor for tensor in call.given(2) if tensor.dtype == INT64]
    return moved(gradient, Tensor(given.shape, given.dtype), *indices, flop=float(gradient.elements))


def upsample(rank: int, flop: float | None) -> Formula:
    """Return the formula of upsample_*(self, output_size, ...).

    The output's size is given, or factors in the last list.
    """

    def formula(call: Call) -> Work:
        given = call.tensor(0)
        require(len(given.shape) == rank + 2)
        if not call.valued:
            work = _into_result(call)
            return replace(work, flop=None if flop is None else flop * prod(call.result or ()))
        size = call.value(1)
        if isinstance(size, list):
            shape = (*given.shape[:2], *call.sizes(1, rank))
        else:
            factors = next((v for v in map(call.value, range(2, len(call.arguments))) if isinstance(v, list)), [])
            require(len(factors) == rank and all(isinstance(f, int | float) and 0 < f < 1e6 for f in factors))
            shape = (*given.shape[:2], *(int(n * f) for n, f in zip(given.shape[2:], factors, strict=True)))
        output = Tensor(shape, given.dtype)
        return replace(moved(given, output), flop=None if flop is None else flop * output.elements)

    return formula


def _some(tensor: Tensor, count: int) -> float:
    """Return the bytes of ``count`` elements of a tensor; repeated indices are doubtful."""
    return min(count, tensor.stored) * tensor.size


def _expandable(index: Tensor) -> float:
    """Return bytes of indices that may be expanded: one for each row, say."""
    return index.bytes if index.strides is None else 0.0


def _rows(given: Tensor, index: Tensor, of: int) -> Work:
    require(of > 0)
    count = given.elements // of * index.elements
    read = _some(given, count)
    return Work(0.0, index.bytes + read + count * given.size, compute(given.dtype), read)


def index_select(call: Call) -> Work:
    """Count index_select(self, dim, index)."""
    given, index = call.tensor(0), call.tensor(2)
    dim = call.number(1) if call.valued else 0
    require(len(index.shape) <= 1 and -len(given.shape) <= dim < max(1, len(given.shape)))
    return _rows(given, index, given.shape[dim] if given.shape else 1)


def embedding(call: Call) -> Work:
    """Count embedding(weight, indices)."""
    weight, index = call.tensor(0), call.tensor(1)
    require(len(weight.shape) == 2)
    return _rows(weight, index, weight.shape[0])


def embedding_backward(call: Call) -> Work:
    """Count embedding_dense_backward(grad_output, indices, num_weights, ...): a zeroed table, and rows added to it."""
    gradient, index = call.tensor(0), call.tensor(1)
    require(bool(gradient.shape) and gradient.elements == index.elements * gradient.shape[-1])
    if not call.valued:
        return replace(moved(gradient, index, flop=float(gradient.elements)), least=True)
    table = Tensor((call.number(2), gradient.shape[-1]), gradient.dtype)
    return moved(gradient, index, table, flop=float(gradient.elements))


def gather(call: Call) -> Work:
    """Count gather(self, dim, index)."""
    given, index = call.tensor(0), call.tensor(2)
    read = _some(given, index.elements)
    size = index.bytes + read + index.elements * given.size
    return Work(0.0, size, compute(given.dtype), _expandable(index) + read)


def _scatter(adds: bool, by_index: bool) -> Formula:
    """Return the formula of scatter, index_add and similar (self, dim, index, src or value), in place.

    Places are written, and read where values are added: as many as indices, or (index_add, index_copy) as source values.
    """

    def formula(call: Call) -> Work:
        given, index, source = call.tensor(0), call.tensor(2), call.optional(3)
        if not by_index or adds:
            call.tensor(3)
        count = index.elements if by_index or source is None else source.elements
        places = (1 + adds) * _some(given, count)
        read = 0.0 if source is None else _some(source, count)
        doubtful = _expandable(index) + places if by_index else places * adds
        return Work(float(count * adds), index.bytes + read + places, compute(given.dtype), doubtful)

    return formula


def index_put(call: Call) -> Work:
    """Count _index_put_impl_(self, indices, values, ...): reads the values; equal indices may write to one element."""
    values = call.tensor(2)
    if values.elements < 2:
        raise Unrecorded
    return replace(moved(values), least=True)


def search(call: Call) -> Work:
    """Count searchsorted(sorted, self, out_int32, ...), bucketize(self, boundaries, out_int32, ...).

    One index is written per value.
    """
    values = call.tensor(1 if call.operator == "aten::searchsorted" else 0)
    narrow = call.valued and call.flag(2)
    return replace(moved(values, Tensor(values.shape, INT32 if narrow else INT64)), flop=None, least=True)


def bag(call: Call) -> Work:
    """Count _embedding_bag(weight, indices, offsets, scale, mode, sparse, weights, include_last, ...).

    Rows are summed in bags. A row may be read once for several indices, so these reads are doubtful.
    """
    weight, index, offsets = (call.tensor(i) for i in range(3))
    require(len(weight.shape) == 2 and len(index.shape) == len(offsets.shape) == 1)
    width = weight.shape[1]
    bags = max(0, offsets.elements - (call.valued and call.flag(7)))
    read = index.elements * width * weight.size
    work = moved(index, offsets, Tensor((bags, width), weight.dtype), call.optional(6))
    return Work(
        float(index.elements * width),
        (work.moved_bytes or 0.0) + read,
        compute(weight.dtype),
        doubtful_bytes=read,
        least=not call.valued,
    )


def bag_backward(call: Call) -> Work:
    """Count _embedding_bag_dense_backward(grad, indices, offset2bag, bag_size, maxima, num_weights, ...).

    The table is written.
    """
    gradient, index = call.tensor(0), call.tensor(1)
    require(len(gradient.shape) == 2)
    if not call.valued:
        return replace(moved(gradient, index, call.optional(2)), flop=None, least=True)
    table = tensor_of((call.number(5), gradient.shape[1]), gradient.dtype)
    return moved(gradient, index, call.optional(2), table, flop=float(index.elements * gradient.shape[1]))


LOOKUP = "fbgemm::split_embedding_codegen_lookup_"
LOOKUP_BACKWARD = (
    "torch::autograd::CppNode<SplitLookupFunction_",
    "torch::autograd::CppNode<SplitNoBagLookupFunction_",
)
_UNPOOLED = 2
"""FBGEMM's pooling mode of lookups whose rows are returned one by one (PoolingMode.NONE)."""


def lookup(call: Call) -> Work:
    """Count a lookup in FBGEMM's embedding tables, which `torch.ops.fbgemm` keeps one behind the other in flat weights.

    The arguments are (autograd, [host weights], weights, uvm, cache, placements, weight offsets, D_offsets, total_D,
    max_D, a hash's sizes and bits, indices, offsets, pooling mode, ...). Lookups for torch.compile (`_pt2`) have host
    weights before the device's weights; later versions have all weights in one list. The widths of the tables are values
    of a tensor; only their sum, the first number, is recorded.

    A lookup reads a row per index and writes the sum of each bag; traffic is counted as in FBGEMM's
    `tbe_training_benchmark`: mean width times indices. One read of a row may serve several indices, and bags may be
    narrower or differ in number between tables: rows and bags are doubtful. Without the widths, or where the weights are
    a list, only indices and offsets are known.
    """
    total = next((i for i, kind in enumerate(call.kinds) if i and kind == "Scalar"), 0)
    if total not in (3, 7, 8):
        raise Unrecorded
    widths, indices, offsets = (call.optional(total + i) for i in (-1, 4, 5))
    if widths is None or indices is None or offsets is None:
        raise Unrecorded
    tables, bags = widths.elements - 1, offsets.elements - 1
    if any(len(t.shape) != 1 for t in (widths, indices, offsets)) or tables < 1 or bags < 1:
        raise Unrecorded
    read = total_bytes(indices, offsets)
    width = call.value(total) if call.valued else None
    weights = None if total == 3 else call.optional(total - 6)
    if not isinstance(width, int) or width < tables or weights is None or len(weights.shape) != 1:
        return Work(None, read, None, least=True)
    rows = indices.elements * width / tables * weights.size
    is_pooled = call.value(total + 6) != _UNPOOLED and not bags % tables
    sums = total_bytes(Tensor((bags // tables, width), FLOAT32)) if is_pooled else 0.0
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


_POOLS = ("max_pool{}d_with_indices", "adaptive_max_pool{}d", "avg_pool{}d", "_adaptive_avg_pool{}d")
FORMULAS: dict[str, Formula] = operators(
    ("aten", "copy_", copy),
    ("aten", "_to_copy", converted),
    ("aten", "cat _cat stack _stack concat _chunk_cat", concatenate),
    ("fsdp", "chunk_cat", concatenate),
    ("aten", "topk", topk),
    ("aten", " ".join(f"{kind}_pad{n}d" for kind in ("reflection", "replication") for n in (1, 2, 3)), pad),
    ("aten", "constant_pad_nd", pad),
    *(("aten", f"max_pool{n}d_with_indices", pool(n, takes_most=True)) for n in (2, 3)),
    *(("aten", f"avg_pool{n}d", pool(n, takes_most=False)) for n in (2, 3)),
    *(("aten", f"_adaptive_avg_pool{n}d", adaptive_pool(n)) for n in (2, 3)),
    *(("aten", f"{kind.format(n)}_backward", pool_backward) for n in (2, 3) for kind in _POOLS),
    *(("aten", f"upsample_nearest{n}d", upsample(n, 0.0)) for n in (1, 2, 3)),
    ("aten", "upsample_linear1d", upsample(1, 4.0)),
    ("aten", "upsample_bilinear2d", upsample(2, 8.0)),
    ("aten", "upsample_trilinear3d", upsample(3, 16.0)),
    ("aten", "index_select", index_select),
    ("aten", "embedding", embedding),
    ("aten", "embedding_dense_backward", embedding_backward),
    ("aten", "gather", gather),
    # The functional variants first copy with an operator of its own, and then work in place.
    ("aten", "scatter scatter_", _scatter(adds=False, by_index=True)),
    ("aten", "scatter_add scatter_add_ scatter_reduce scatter_reduce_", _scatter(adds=True, by_index=True)),
    ("aten", "index_add index_add_", _scatter(adds=True, by_index=False)),
    ("aten", "index_copy index_copy_", _scatter(adds=False, by_index=False)),
    ("aten", "_index_put_impl_ _unsafe_index_put", index_put),
    ("aten", "searchsorted bucketize", search),
    ("aten", "_embedding_bag _embedding_bag_forward_only", bag),
    ("aten", "_embedding_bag_dense_backward", bag_backward),
    ("fbgemm", "permute_1D_sparse_data permute_2D_sparse_data permute_sparse_features", permuted),
    ("fbgemm", "jagged_to_padded_dense jagged_to_padded_dense_forward", padded),
    ("fbgemm", "dense_to_jagged dense_to_jagged_forward", unpadded),
    ("aten", "_jagged_to_padded_dense_forward", padded),
    ("aten", "_padded_dense_to_jagged_forward", unpadded),
)
PREFIXES: dict[str, Formula] = {LOOKUP: lookup, **dict.fromkeys(LOOKUP_BACKWARD, lookup_backward)}
"""Formulas by the prefix of the operator's name; the optimizer's name follows it."""
