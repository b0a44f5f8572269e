"""Count kernels that Inductor wrote: the tensors that its call passes, each touched once.

Their FLOP are not in a trace.
"""

from math import prod

from trace_analyzer.analyses.work.calls import Call, Unrecorded, Work, compute, promoted, total_bytes

TEMPLATE = "triton_tem_"
"""How names of kernels start that Inductor filled into a template of its own."""


def triton(call: Call) -> Work:
    """Count a ``triton_*`` call: tensors, then the sizes of the iteration space.

    A kernel that reads a slice or some rows of a tensor is passed all of it, so no tensor counts for more elements than
    the kernel has iterations. What is updated in place counts once: a lower bound. A template of matmul or attention (``triton_tem_*``) has its
    grid as last numbers. It is passed the whole tensor that an operand is a view of, and a mask of blocks may leave keys unread: all is doubted.
    """
    tensors = call.given()
    if not tensors:
        raise Unrecorded
    if call.operator.startswith(TEMPLATE):
        moved = total_bytes(*tensors)
        return Work(None, moved, compute(promoted(tensors)), moved)
    sizes = [n for n in call.arguments if isinstance(n, int) and not isinstance(n, bool) and n > 0]
    used = 2 if call.operator.startswith("triton_poi") else 3
    iterations = prod(sizes[-used:]) if sizes else max(tensor.elements for tensor in tensors)
    moved = sum(min(tensor.stored, iterations) * tensor.size for tensor in tensors)
    return Work(None, float(moved), compute(promoted(tensors)))
