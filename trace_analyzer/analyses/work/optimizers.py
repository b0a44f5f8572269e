"""Count updates of lists of tensors: ``_foreach_*`` and fused optimizers.

FLOP per element follow from the update rule. Bytes need the element type from the kernel's name, because Kineto records
only the shapes of lists.
"""

from trace_analyzer.analyses.work.calls import (
    Call,
    Formula,
    Malformed,
    Tensor,
    Unrecorded,
    Work,
    require,
    total_bytes,
)
from trace_analyzer.analyses.work.pointwise import SPECIFICATIONS, Pointwise

_FUSED = {
    # (lists that are read, number of these that are written, FLOP per element): moments 3 + 4, bias corrections 2,
    # root, add, divide, update 2
    "aten::_fused_adam_": (4, 3, 15),
    "aten::_fused_adamw_": (4, 3, 17),
    "aten::_fused_sgd_": (3, 2, 5),
    "aten::_fused_adagrad_": (3, 2, 6),
}


def _elements(tensors: tuple[Tensor, ...]) -> int:
    return sum(tensor.elements for tensor in tensors)


def _bytes(tensors: tuple[Tensor, ...]) -> float | None:
    try:
        return total_bytes(*tensors)
    except Unrecorded:
        return None


def _work(flop: float, traffic: list[tuple[Tensor, ...]]) -> Work:
    sizes = [_bytes(tensors) for tensors in traffic]
    known = None if None in sizes else sum(size for size in sizes if size is not None)
    first = next((tensor.dtype for tensors in traffic for tensor in tensors), None)
    return Work(flop, known, first.compute if first else None)


def foreach(name: str, spec: Pointwise) -> Formula:
    """Return the formula of one element-by-element pass over each list's tensors."""

    def formula(call: Call) -> Work:
        lists = [argument for argument in call.arguments[: spec.inputs] if isinstance(argument, tuple)]
        if not lists:
            return _missing(call)
        require(len({len(tensors) for tensors in lists}) == 1)
        return _work(spec.flop * _elements(lists[0]), [*lists, lists[0]])

    return formula


def _missing(call: Call) -> Work:
    call.tensors(0)
    raise Malformed("arguments that do not fit the operator")


def foreach_norm(call: Call) -> Work:
    """Count _foreach_norm(self, ord): square, add."""
    tensors = call.tensors(0)
    return _work(2.0 * _elements(tensors), [tensors])


def foreach_maximum(call: Call) -> Work:
    """Count _foreach_max(self): one comparison per element."""
    tensors = call.tensors(0)
    return _work(float(_elements(tensors)), [tensors])


def foreach_copy(call: Call) -> Work:
    """Count _foreach_copy_(self, src)."""
    target, source = call.tensors(0), call.tensors(1)
    return _work(0.0, [target, source])


def foreach_zero(call: Call) -> Work:
    """Count _foreach_zero_(self)."""
    return _work(0.0, [call.tensors(0)])


def unscale(call: Call) -> Work:
    """Count _amp_foreach_non_finite_check_and_unscale_(self, found_inf, inv_scale): compare and multiply in place."""
    tensors = call.tensors(0)
    return _work(2.0 * _elements(tensors), [tensors, tensors])


def fused(call: Call) -> Work:
    """Count _fused_adam(w)_ and _fused_sgd_.

    Their arguments are (params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, ...) and (params, grads, momenta).
    """
    reads, writes, flop = _FUSED[call.operator]
    lists = [tensors for i in range(reads) if (tensors := _optional(call, i))]
    require(len(lists) >= 2 and len({len(tensors) for tensors in lists}) == 1)
    kept = len(lists) - 1  # all lists except the gradients are written back
    return _work(float(flop * _elements(lists[0])), [*lists, *([lists[0]] * min(kept, writes))])


def _optional(call: Call, position: int) -> tuple[Tensor, ...]:
    """Return the list at this position; empty for an omitted optional one (momenta, maxima)."""
    argument = call.arguments[position] if position < len(call.arguments) else None
    return argument if isinstance(argument, tuple) else call.tensors(position) if position < 2 else ()


FORMULAS: dict[str, Formula] = {
    f"aten::_foreach_{name}{suffix}": foreach(name, spec)
    for name, spec in SPECIFICATIONS.items()
    for suffix in ("", "_")
} | {
    "aten::_foreach_norm": foreach_norm,
    "aten::_foreach_max": foreach_maximum,
    "aten::_amp_foreach_non_finite_check_and_unscale_": unscale,
    "aten::_foreach_copy_": foreach_copy,
    "aten::_foreach_zero_": foreach_zero,
    **dict.fromkeys(_FUSED, fused),
}
