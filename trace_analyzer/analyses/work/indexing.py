"""Count operators that select by indices, and operators on lists.

They are fills and writes at indices, embedding bags, searches, and copies of parts. Kineto does not record indices in a
list (``x[i, j]``), so only reads of recorded values are known (``at-least``).
"""

from dataclasses import replace

from trace_analyzer.analyses.work.calls import (
    INT32,
    INT64,
    Call,
    Formula,
    Tensor,
    Unrecorded,
    Work,
    compute,
    require,
    tensor_of,
)
from trace_analyzer.analyses.work.movement import (
    concatenate,
    index_add,
    index_copy,
    moved,
    pool_backward,
    scatter,
    scatter_add,
)


def index_put(call: Call) -> Work:
    """Count _index_put_impl_(self, indices, values, ...): reads the values; equal indices may write to one element."""
    values = call.tensor(2)
    if values.elements < 2:
        raise Unrecorded
    return replace(moved(values), least=True)


def index_fill(call: Call) -> Work:
    """Count index_fill_(self, dim, index, value): whole rows are written."""
    given, index, dim = call.tensor(0), call.tensor(2), call.number(1)
    require(bool(given.shape) and -len(given.shape) <= dim < len(given.shape) and len(index.shape) <= 1)
    rows = min(index.elements, given.shape[dim]) * (given.elements // max(1, given.shape[dim]))
    return Work(0.0, index.bytes + rows * given.size, compute(given.dtype))


def take(call: Call) -> Work:
    """Count take(self, index), like gather."""
    given, index = call.tensor(0), call.tensor(1)
    count = index.elements
    return Work(0.0, index.bytes + (min(count, given.stored) + count) * given.size, compute(given.dtype))


def masked_scatter(call: Call) -> Work:
    """Count masked_scatter_(self, mask, source): the mask is read; reads of the source are not recorded."""
    return replace(moved(call.tensor(1)), least=True)


def search(call: Call) -> Work:
    """Count searchsorted(sorted, self, out_int32, ...), bucketize(self, boundaries, out_int32, ...).

    One index is written per value.
    """
    values = call.tensor(1 if call.operator == "aten::searchsorted" else 0)
    narrow = call.valued and call.flag(2)
    return replace(moved(values, Tensor(values.shape, INT32 if narrow else INT64)), flop=None, least=True)


def read_once(call: Call) -> Work:
    """Count histc, bincount, kthvalue, median, mode, unique: at least the input is read; the result may be small."""
    return replace(moved(call.tensor(0)), flop=None, least=True)


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


def split_copy(call: Call) -> Work:
    """Count split_with_sizes_copy(self, sizes, dim, [out]): reads and writes each element once."""
    given = call.tensor(0)
    return moved(given, Tensor(given.shape, given.dtype))


def padded_concatenate(call: Call) -> Work:
    """Count _chunk_cat(tensors, dim, chunks, [out]), like cat; chunks are padded to one size."""
    return replace(concatenate(call), least=True)


FORMULAS: dict[str, Formula] = {
    "aten::_index_put_impl_": index_put,
    "aten::_unsafe_index_put": index_put,
    "aten::index_fill_": index_fill,
    "aten::take": take,
    "aten::masked_scatter_": masked_scatter,
    **dict.fromkeys(("aten::searchsorted", "aten::bucketize"), search),
    **dict.fromkeys([f"aten::{name}" for name in ("histc", "bincount", "kthvalue", "median", "mode", "_unique2", "unique_dim", "unique_consecutive")], read_once),
    # The functional variants first copy with an operator of its own, and then work in place.
    "aten::scatter": scatter,
    **dict.fromkeys(("aten::scatter_add", "aten::scatter_reduce", "aten::scatter_reduce_"), scatter_add),
    "aten::index_add": index_add,
    "aten::index_copy": index_copy,
    **{f"aten::adaptive_max_pool{n}d_backward": pool_backward for n in (2, 3)},
    **dict.fromkeys(("aten::_embedding_bag", "aten::_embedding_bag_forward_only"), bag),
    "aten::_embedding_bag_dense_backward": bag_backward,
    **dict.fromkeys(("aten::split_with_sizes_copy", "fsdp::split_with_sizes_copy"), split_copy),
    **dict.fromkeys(("aten::_chunk_cat", "fsdp::chunk_cat"), padded_concatenate),
}  # fmt: skip
