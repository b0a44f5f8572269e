"""Count the bytes of kernels that Inductor generated: each tensor of the call is read or written once.

A trace does not contain their FLOP.
"""

from math import prod

from trace_analyzer.analyses.work.calls import Call, Unrecorded, Work, compute, promoted, total_bytes

TEMPLATE = "triton_tem_"
"""Prefix of the names of kernels that Inductor generated from its own templates."""


def triton(call: Call) -> Work:
    """Count a call of ``triton_*``(tensors ..., sizes of the iteration space ...).

    A kernel that reads a slice or some rows of a tensor receives the whole tensor, so each tensor counts for at most as
    many elements as the kernel has iterations. A tensor updated in place counts once: a lower bound. The last numbers
    of a matmul or attention template (``triton_tem_*``) are its grid. Such a kernel receives the whole tensor of which
    an operand is a view, and a mask of blocks may leave keys unread: all its bytes are doubtful.
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
