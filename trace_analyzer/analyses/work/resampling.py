"""Count gradients of padding, pooling and resampling, grid sampling, and im2col.

A gradient is read once and the input's gradient written once; the input itself is not needed where its shape is an
argument. Grid sampling may read only a part of the input, so these reads are doubtful.
"""

from dataclasses import replace
from math import prod

from trace_analyzer.analyses.work.calls import (
    INT64,
    Call,
    Formula,
    Shape,
    Tensor,
    Work,
    require,
    tensor_of,
    total_bytes,
)
from trace_analyzer.analyses.work.movement import moved, upsample


def upsample_backward(flop: float | None) -> Formula:
    """Return the formula of upsample_*_backward(grad_output, output_size, input_size, ...).

    ``flop`` is per element of the gradient.
    """

    def formula(call: Call) -> Work:
        gradient = call.tensor(0)
        if not call.valued:
            return replace(moved(gradient), flop=None, least=True)
        shape = call.numbers(2)
        require(len(shape) == len(gradient.shape) and shape[:2] == gradient.shape[:2])
        work = moved(gradient, tensor_of(shape, gradient.dtype))
        return replace(work, flop=None if flop is None else flop * gradient.elements)

    return formula


def pad_backward(call: Call) -> Work:
    """Count reflection_padNd_backward, replication_padNd_backward(grad_output, self, padding): one addition each."""
    gradient, given = call.tensor(0), call.tensor(1)
    require(len(gradient.shape) == len(given.shape))
    return moved(gradient, Tensor(given.shape, given.dtype), flop=float(gradient.elements))


def unfold_backward(call: Call) -> Work:
    """Count unfold_backward(grad_in, input_sizes, dim, size, step): each gradient is added once."""
    gradient = call.tensor(0)
    return moved(gradient, tensor_of(call.numbers(1), gradient.dtype), flop=float(gradient.elements))


def adaptive_max_pool(rank: int) -> Formula:
    """Return the formula of adaptive_max_poolNd: compares every input once, and also writes indices."""

    def formula(call: Call) -> Work:
        given, size = call.tensor(0), call.numbers(1)
        require(len(given.shape) > rank and len(size) == rank)
        shape = (*given.shape[:-rank], *size)
        return moved(given, tensor_of(shape, given.dtype), tensor_of(shape, INT64), flop=float(given.elements))

    return formula


_BILINEAR = {0: 2.0, 1: 0.0}
"""Interpolation modes of grid_sampler -> FLOP per tap and output (bilinear: multiply, add; nearest: none).

Bicubic is not counted.
"""


def grid_sampler(call: Call) -> Work:
    """Count grid_sampler_2d, grid_sampler_3d(input, grid, mode, padding, align): (n, c, ...) at (n, ..., 2 or 3).

    The reads of the input are doubtful.
    """
    given, grid = call.tensor(0), call.tensor(1)
    output = Tensor(_sampled(given, grid), given.dtype)
    per_tap = _BILINEAR.get(call.number(2)) if call.valued else None
    flop = None if per_tap is None else per_tap * 2 ** (len(given.shape) - 2) * output.elements
    return replace(moved(given, grid, output), flop=flop, doubtful_bytes=given.bytes)


def grid_sampler_backward(call: Call) -> Work:
    """Count grid_sampler_2d_backward(grad_output, input, grid, ...): both gradients are written.

    The gradient of the grid reads the input.
    """
    gradient, given, grid = (call.tensor(i) for i in range(3))
    require(_sampled(given, grid) == gradient.shape)
    written = total_bytes(Tensor(given.shape, given.dtype), Tensor(grid.shape, grid.dtype))
    work = moved(gradient, given, grid)
    return replace(work, flop=None, moved_bytes=(work.moved_bytes or 0.0) + written, doubtful_bytes=given.bytes)


def _sampled(given: Tensor, grid: Tensor) -> Shape:
    rank = len(given.shape) - 2
    require(rank in (2, 3) and len(grid.shape) == rank + 2)
    require(grid.shape[0] == given.shape[0] and grid.shape[-1] == rank)
    return (*given.shape[:2], *grid.shape[1:-1])


def columns(call: Call) -> Work:
    """Count im2col(self, kernel, dilation, padding, stride): each window becomes a column of (channels x taps)."""
    given = call.tensor(0)
    kernel, dilation, padding, stride = (call.numbers(i) for i in range(1, 5))
    require(len(given.shape) in (3, 4) and {len(kernel), len(dilation), len(padding), len(stride)} == {2})
    require(min(*kernel, *dilation, *stride) > 0 and min(padding) >= 0)
    counts = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, d, p, s in zip(given.shape[-2:], kernel, dilation, padding, stride, strict=True)
    ]
    require(min(counts) > 0)
    shape = (*given.shape[:-3], given.shape[-3] * prod(kernel), prod(counts))
    return moved(given, tensor_of(shape, given.dtype))


def from_columns(call: Call) -> Work:
    """Count col2im(self, output_size, kernel, ...): each element is added once."""
    given, size, kernel = call.tensor(0), call.numbers(1), call.numbers(2)
    require(len(given.shape) in (2, 3) and len(size) == len(kernel) == 2 and min(*size, *kernel) > 0)
    channels, rest = divmod(given.shape[-2], prod(kernel))
    require(rest == 0)
    shape = (*given.shape[:-2], channels, *size)
    return moved(given, tensor_of(shape, given.dtype), flop=float(given.elements))


def gated_linear(call: Call) -> Work:
    """Count glu(self, dim): sigmoid 4 and a multiplication per pair."""
    given = call.tensor(0)
    require(given.elements % 2 == 0)
    return moved(given, Tensor((given.elements // 2,), given.dtype), flop=2.5 * given.elements)


def gated_linear_backward(call: Call) -> Work:
    """Count glu_backward(grad_output, self, dim): sigmoid 4, multiplications and a difference 5 per pair."""
    gradient, given = call.tensor(0), call.tensor(1)
    require(2 * gradient.elements == given.elements)
    return moved(gradient, given, Tensor(given.shape, given.dtype), flop=9.0 * gradient.elements)


_TAPS = {"linear1d": 2, "bilinear2d": 4, "trilinear3d": 8, "bicubic2d": 16}
"""Inputs per output, each with a multiplication and an addition."""

FORMULAS: dict[str, Formula] = {
    **{
        f"aten::{name}{n}d_backward": upsample_backward(1.0)
        for name in ("upsample_nearest", "_upsample_nearest_exact")
        for n in (1, 2, 3)
    },
    **{f"aten::upsample_{kind}_backward": upsample_backward(2.0 * taps) for kind, taps in _TAPS.items()},
    **{f"aten::_upsample_{kind}2d_aa_backward": upsample_backward(None) for kind in ("bilinear", "bicubic")},
    **{f"aten::_upsample_nearest_exact{n}d": upsample(n, 0.0) for n in (1, 2, 3)},
    **{f"aten::_upsample_{kind}2d_aa": upsample(2, None) for kind in ("bilinear", "bicubic")},
    "aten::upsample_bicubic2d": upsample(2, 32.0),
    **{f"aten::{kind}_pad{n}d_backward": pad_backward for kind in ("reflection", "replication") for n in (1, 2, 3)},
    **{f"aten::adaptive_max_pool{n}d": adaptive_max_pool(n) for n in (2, 3)},
    **{f"aten::grid_sampler_{n}d": grid_sampler for n in (2, 3)},
    **{f"aten::grid_sampler_{n}d_backward": grid_sampler_backward for n in (2, 3)},
    "aten::unfold_backward": unfold_backward,
    "aten::im2col": columns,
    "aten::col2im": from_columns,
    "aten::glu": gated_linear,
    "aten::glu_backward": gated_linear_backward,
}
