"""Name the rule of each fix of the catalogue: whether the findings ask for it, and what it can save."""

from collections.abc import Callable, Mapping

from trace_analyzer.advice import communication, kernels, overhead, traffic, transport
from trace_analyzer.advice.opportunity import Opportunity
from trace_analyzer.advice.window_context import AdviceContext

RULE_OF_FIX: Mapping[str, Callable[[AdviceContext], Opportunity | None]] = {
    "cuda-graphs": overhead.cuda_graphs,
    "bigger-batch": overhead.bigger_batch,
    "fused-optimizer": overhead.fused_optimizer,
    "set-to-none": overhead.set_to_none,
    "garbage-collection": overhead.garbage_collection,
    "synchronization": overhead.synchronization,
    "data-loading": overhead.data_loading,
    "allocator": overhead.allocator,
    "recompilation": overhead.recompilation,
    "lazy-loading": overhead.lazy_loading,
    "warm-up": overhead.warm_up,
    "graph-capture": overhead.graph_capture,
    "pinned-memory": overhead.pinned_memory,
    "cpu-operators": overhead.cpu_operators,
    "cpu-preparation": overhead.cpu_preparation,
    "attention-kernel": kernels.attention_kernel,
    "fusion": kernels.fusion,
    "channels-last": kernels.channels_last,
    "fewer-bytes": kernels.fewer_bytes,
    "casts": traffic.casts,
    "compiled-copies": traffic.compiled_copies,
    "thin-products": kernels.thin_products,
    "tensor-cores": lambda context: kernels.out_of_fp32(context, tf32=False),
    "tf32": lambda context: kernels.out_of_fp32(context, tf32=True),
    "padding": kernels.padding,
    "low-precision": kernels.low_precision,
    "inefficient-kernels": kernels.inefficient_kernels,
    "max-autotune": kernels.max_autotune,
    "custom-kernels": traffic.custom_kernels,
    "recompute-less": kernels.recompute_less,
    "less-work": kernels.less_work,
    "overlap": communication.overlap,
    "gradient-buckets": communication.gradient_buckets,
    "transport": transport.transport,
    "copies": communication.copies,
    "small-copies": communication.small_copies,
    "dependencies": communication.dependencies,
    "earlier-work": overhead.earlier_work,
}
RULES = tuple(RULE_OF_FIX)
"""Ids of the fixes that have a rule: all of the catalogue."""
