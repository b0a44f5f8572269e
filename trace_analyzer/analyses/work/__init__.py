"""Compute FLOP and bytes of operator calls from recorded shapes, types and values.

Unknown is None, never a guess.

A multiply-add counts as two FLOP, as in ``torch.utils.flop_counter``. Bytes are what must move at least: every
input read once in its real size, every output written once. One file per family; what they share is in `calls`.
"""

from trace_analyzer.analyses.work import (
    attention,
    autograd_functions,
    convolutions,
    embeddings,
    fused,
    indexing,
    matmuls,
    movement,
    normalizations,
    optimizers,
    pointwise,
    recurrent,
    reductions,
    resampling,
    vendor,
    vendor_products,
)
from trace_analyzer.analyses.work.calls import Formula, Malformed, Record, Unrecorded, Work, call_of
from trace_analyzer.tuning import dataclass

MATMUL_FORMULAS: dict[str, Formula] = (
    matmuls.FORMULAS
    | convolutions.FORMULAS
    | attention.FORMULAS
    | vendor_products.FORMULAS
    | autograd_functions.PRODUCTS
    | recurrent.PRODUCTS
)
"""Formulas of the operators whose kernels are of group `matmul`: products, convolutions and attention."""
FORMULAS: dict[str, Formula] = {
    **pointwise.FORMULAS,
    **optimizers.FORMULAS,
    **reductions.FORMULAS,
    **normalizations.FORMULAS,
    **movement.FORMULAS,
    **indexing.FORMULAS,
    **resampling.FORMULAS,
    **recurrent.FORMULAS,
    **autograd_functions.FORMULAS,
    **vendor.FORMULAS,
    **embeddings.FORMULAS,
    **MATMUL_FORMULAS,
}
TRITON = "triton_"
"""Start of the names of operators that Inductor wrote."""
_PREFIXES: dict[str, Formula] = {TRITON: fused.triton, **embeddings.PREFIXES}


@dataclass(frozen=True)
class WorkResult:
    """Hold the work of a call, or None and, where the record itself is at fault, what is wrong with it."""

    work: Work | None
    problem: str | None = None


def call_work(record: Record) -> WorkResult:
    """Return the work of one call.

    Never raises: a formula that lacks something gives None, damaged arguments give None and their problem.
    """
    formula = FORMULAS.get(record.operator) or _by_prefix(record.operator)
    if formula is None:
        return WorkResult(None)
    try:
        return WorkResult(formula(call_of(record)))
    except Unrecorded:
        return WorkResult(None)
    except Malformed as problem:
        return WorkResult(None, str(problem))


def _by_prefix(operator: str) -> Formula | None:
    return next((formula for prefix, formula in _PREFIXES.items() if operator.startswith(prefix)), None)


__all__ = ["FORMULAS", "MATMUL_FORMULAS", "TRITON", "Record", "Work", "WorkResult", "call_work"]
