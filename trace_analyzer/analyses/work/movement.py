"""Count work that only moves data: copies, concatenations, padding, pooling and resampling."""

from dataclasses import replace
from math import prod

from trace_analyzer.analyses.work.calls import (
    INT64,
    Call,
    Formula,
    Tensor,
    Unrecorded,
    Work,
    broadcast,
    compute,
    moved,
    require,
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


def _window(call: Call, position: int, rank: int, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
    values = call.numbers(position)
    if not values and default is not None:
        return default
    values = values * rank if len(values) == 1 else values
    require(len(values) == rank and all(0 <= n < 2**31 for n in values))
    return values


def _pooled(call: Call, rank: int, *, dilated: bool) -> tuple[Tensor, tuple[int, ...], int]:
    """Return input, output shape and taps of a pool.

    Its arguments are (self, kernel, stride, padding, [dilation], ceil_mode).
    """
    given = call.tensor(0)
    require(len(given.shape) in (rank + 1, rank + 2))
    kernel = _window(call, 1, rank)
    stride, padding = _window(call, 2, rank, kernel), _window(call, 3, rank)
    dilation = _window(call, 4, rank) if dilated else (1,) * rank
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


def max_pool(rank: int) -> Formula:
    """Return the formula of max_poolNd_with_indices: one comparison per tap; int64 indices are written too."""

    def formula(call: Call) -> Work:
        if not call.valued:
            return _into_pooled(call)
        given, shape, taps = _pooled(call, rank, dilated=True)
        output = Tensor(shape, given.dtype)
        flop = float(taps * output.elements)
        return moved(given, output, Tensor(shape, INT64), flop=flop)

    return formula


def average_pool(rank: int) -> Formula:
    """Return the formula of avg_poolNd: one addition per tap."""

    def formula(call: Call) -> Work:
        if not call.valued:
            return _into_pooled(call)
        given, shape, taps = _pooled(call, rank, dilated=False)
        output = Tensor(shape, given.dtype)
        return moved(given, output, flop=float(taps * output.elements))

    return formula


def adaptive_pool(rank: int) -> Formula:
    """Return the formula of _adaptive_avg_poolNd(self, output_size): every input is added once at least."""

    def formula(call: Call) -> Work:
        given = call.tensor(0)
        require(len(given.shape) in (rank + 1, rank + 2))
        if not call.valued:
            return _into_pooled(call)
        shape = (*given.shape[:-rank], *_window(call, 1, rank))
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
            shape = (*given.shape[:2], *_window(call, 1, rank))
        else:
            factors = next((v for v in map(call.value, range(2, len(call.arguments))) if isinstance(v, list)), [])
            require(len(factors) == rank and all(isinstance(f, int | float) and 0 < f < 1e6 for f in factors))
            shape = (*given.shape[:2], *(int(n * f) for n, f in zip(given.shape[2:], factors, strict=True)))
        output = Tensor(shape, given.dtype)
        return replace(moved(given, output), flop=None if flop is None else flop * output.elements)

    return formula


FORMULAS: dict[str, Formula] = {
    "aten::copy_": copy,
    "aten::_to_copy": converted,
    **dict.fromkeys(
        (
            "aten::cat",
            "aten::_cat",
            "aten::stack",
            "aten::_stack",
            "aten::concat",
            "aten::_chunk_cat",
            "fsdp::chunk_cat",
        ),
        concatenate,
    ),
    "aten::topk": topk,
    **{f"aten::{kind}_pad{n}d": pad for kind in ("reflection", "replication") for n in (1, 2, 3)},
    "aten::constant_pad_nd": pad,
    **{f"aten::max_pool{n}d_with_indices": max_pool(n) for n in (2, 3)},
    **{f"aten::avg_pool{n}d": average_pool(n) for n in (2, 3)},
    **{f"aten::_adaptive_avg_pool{n}d": adaptive_pool(n) for n in (2, 3)},
    **{
        f"aten::{kind}_backward": pool_backward
        for n in (2, 3)
        for kind in (f"max_pool{n}d_with_indices", f"adaptive_max_pool{n}d", f"avg_pool{n}d", f"_adaptive_avg_pool{n}d")
    },
    **{f"aten::upsample_nearest{n}d": upsample(n, 0.0) for n in (1, 2, 3)},
    "aten::upsample_linear1d": upsample(1, 4.0),
    "aten::upsample_bilinear2d": upsample(2, 8.0),
    "aten::upsample_trilinear3d": upsample(3, 16.0),
}
