"""Compute FLOP and bytes of operator calls from recorded shapes, types and values.

Unknown figures are None, never a guess.

A multiply-add counts as two FLOP, as in ``torch.utils.flop_counter``. Bytes are the least that must move: every input
is read once with its stored size, and every output is written once. There is one file per family; `calls` has the
shared code.
"""

from typing import NamedTuple

from trace_analyzer.analyses.work import attention, convolutions, elementwise, matmuls, movement, quantized, rows
from trace_analyzer.analyses.work.calls import Formula, Malformed, Record, Unrecorded, Work, call_of

MATMUL_FORMULAS: dict[str, Formula] = matmuls.FORMULAS | quantized.FORMULAS | convolutions.FORMULAS | attention.FORMULAS
"""Formulas of the operators whose kernels are of group `matmul`: matmuls, convolutions and attention."""
FORMULAS: dict[str, Formula] = {**elementwise.FORMULAS, **movement.FORMULAS, **rows.FORMULAS, **MATMUL_FORMULAS}
_PREFIXES: dict[str, Formula] = {elementwise.TRITON: elementwise.triton, **movement.PREFIXES}


class WorkResult(NamedTuple):
    """The work of a call, or None and, where the record itself is invalid, its problem."""

    work: Work | None
    problem: str | None = None


def call_work(record: Record) -> WorkResult:
    """Return the work of one call.

    Never raises: a formula without its inputs gives None, and damaged arguments give None and their problem.
    """
    by_prefix = (formula for prefix, formula in _PREFIXES.items() if record.operator.startswith(prefix))
    formula = FORMULAS.get(record.operator) or next(by_prefix, None)
    if formula is None:
        return WorkResult(None)
    try:
        return WorkResult(formula(call_of(record)))
    except Unrecorded:
        return WorkResult(None)
    except Malformed as problem:
        return WorkResult(None, str(problem))


__all__ = ["FORMULAS", "MATMUL_FORMULAS", "Record", "Work", "WorkResult", "call_work"]
