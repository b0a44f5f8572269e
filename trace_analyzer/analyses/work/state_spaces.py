"""Count scans and causal convolutions of state-space models (Mamba, causal_conv1d, vLLM, SGLang).

Argument orders: Mamba (`mamba_ssm/ops/selective_scan_interface.py`), causal_conv1d (`causal_conv1d/cpp_functions.py`),
vLLM (`csrc/torch_bindings.cpp`), SGLang (`sgl-kernel/csrc/common_extension.cc`).
"""

from dataclasses import replace

from trace_analyzer.analyses.work.calls import (
    Call,
    Formula,
    Tensor,
    Unrecorded,
    Work,
    compute,
    in_namespaces,
    require,
    total_bytes,
)


def scanned(call: Call) -> Work:
    """Count selective_scan_fwd, SelectiveScanFn(u, delta, A, B, C, D, z, delta bias, ...): a result of u's shape.

    FLOP per element of a state and time step: exponential 2, multiplication 2, multiply-add 2, multiplication by C 2.
    The bytes of states are not counted. Of the arguments after C, gates of u's shape and vectors of A's height are
    read; their positions differ where None is not recorded.
    """
    given, delta, a, b, c = (call.tensor(i) for i in range(5))
    require(given.elements == delta.elements and len(a.shape) == 2)
    kept = [t for t in call.given(5)[:3] if t.shape in (given.shape, a.shape[:1]) and compute(t.dtype) is not None]
    flop = 8.0 * given.elements * a.shape[1]
    moved = total_bytes(given, delta, a, b, c, *kept, Tensor(given.shape, given.dtype))
    return Work(flop, moved, compute(given.dtype), least=True)


def causal_convolution(call: Call) -> Work:
    """Count _causal_conv1d_fwd_cpp, causal_conv1d_fwd(x, weight, bias, ...): a causal convolution of each channel.

    Input and weight are (..., channels, length) and (channels, taps).
    The activation is not counted. Tokens that pad a graph's batch need not be computed: all bytes of operators that can
    skip them (vLLM, SGLang) are doubtful.
    """
    given, weight = call.tensor(0), call.tensor(1)
    require(len(given.shape) in (2, 3) and len(weight.shape) == 2 and weight.shape[0] in given.shape)
    bias = call.optional(2)
    bias = bias if bias is not None and bias.shape == weight.shape[:1] else None
    moved = total_bytes(given, weight, bias, Tensor(given.shape, given.dtype))
    work = Work(2.0 * given.elements * weight.shape[1], moved, compute(given.dtype))
    return replace(work, doubtful_bytes=moved) if call.operator.startswith(("_C::", "sgl_kernel::")) else work


def convolution_step(call: Call) -> Work:
    """Count causal_conv1d_update(x, state, weight, bias, ...): x (samples, channels, [length]); a state row per sample.

    Samples without a state are not computed: all bytes are doubtful.
    """
    given, state, weight = (call.tensor(i) for i in range(3))
    if len(weight.shape) != 2 or len(given.shape) not in (2, 3) or given.shape[1] != weight.shape[0]:
        raise Unrecorded
    kept = Tensor((given.shape[0], weight.shape[0], weight.shape[1] - 1), state.dtype)
    moved = total_bytes(given, given, kept, kept, weight)
    return Work(2.0 * given.elements * weight.shape[1], moved, compute(given.dtype), moved, least=True)


def chunked_scan(call: Call) -> Work:
    """Count the bytes of MambaChunkScanCombinedFn(x, dt, A, B, C, ...), whose result has x's shape.

    States between chunks are not counted. The FLOP of a chunk depend on its size, which is unknown without recorded
    numbers.
    """
    given, delta, a, b, c = (call.tensor(i) for i in range(5))
    if len(given.shape) != 4 or len(b.shape) != 4 or b.shape != c.shape or delta.shape != given.shape[:3]:
        raise Unrecorded
    return Work(None, total_bytes(given, given, delta, a, b, c), compute(given.dtype), least=True)


def whole_mixer(call: Call) -> Work:
    """Count the bytes of MambaInnerFn(xz, ...): reads both halves of (samples, 2 channels, length), writes one."""
    both = call.tensor(0)
    if len(both.shape) != 3 or both.shape[1] % 2:
        raise Unrecorded
    return Work(None, 1.5 * both.bytes, compute(both.dtype), least=True)


def projected_mixer(call: Call) -> Work:
    """Count the reads of MambaSplitConv1dScanCombinedFn(zxbcdt, ...); the width of its result depends on values."""
    both = call.tensor(0)
    if len(both.shape) != 3:
        raise Unrecorded
    return Work(None, float(both.bytes), compute(both.dtype), least=True)


FORMULAS: dict[str, Formula] = {
    "MambaChunkScanCombinedFn": chunked_scan,
    "MambaInnerFn": whole_mixer,
    "MambaSplitConv1dScanCombinedFn": projected_mixer,
    **dict.fromkeys(("_C::selective_scan_fwd", "SelectiveScanFn"), scanned),
    **dict.fromkeys(
        (
            *in_namespaces("DaoAILab", "_causal_conv1d_fwd_cpp"),
            *in_namespaces("_C sgl_kernel", "causal_conv1d_fwd"),
            "CausalConv1dFn",
        ),
        causal_convolution,
    ),
    **dict.fromkeys(
        (*in_namespaces("_C sgl_kernel", "causal_conv1d_update"), "DaoAILab::_causal_conv1d_update_cpp"),
        convolution_step,
    ),
}
