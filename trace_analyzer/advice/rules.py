"""Map each fix of the catalogue to its rule, which decides whether it applies and what it can save."""

from collections.abc import Callable, Mapping
from functools import cache, partial

from trace_analyzer import plugins
from trace_analyzer.advice import communication, fusion, host_work, kernels, overhead
from trace_analyzer.advice.opportunity import Opportunity
from trace_analyzer.advice.window_context import AdviceContext
from trace_analyzer.catalog.fixes import fixes
from trace_analyzer.errors import TraceAnalyzerError

Rule = Callable[[AdviceContext], Opportunity | None]
RULE_OF_FIX: Mapping[str, Rule] = {
    "cuda-graphs": overhead.cuda_graphs,
    "bigger-batch": overhead.bigger_batch,
    "fused-optimizer": fusion.fused_optimizer,
    "set-to-none": fusion.set_to_none,
    "garbage-collection": overhead.garbage_collection,
    "synchronization": overhead.synchronization,
    "data-loading": host_work.data_loading,
    "allocator": overhead.allocator,
    "recompilation": overhead.recompilation,
    "lazy-loading": overhead.lazy_loading,
    "warm-up": overhead.warm_up,
    "graph-capture": overhead.graph_capture,
    "pinned-memory": communication.pinned_memory,
    "host-wait": overhead.host_wait,
    "cpu-operators": host_work.cpu_operators,
    "cpu-preparation": host_work.cpu_preparation,
    "python-work": host_work.python_work,
    "labels-at-once": host_work.labels_at_once,
    "record-stacks": host_work.record_stacks,
    "attention-kernel": fusion.attention_kernel,
    "fusion": fusion.fusion,
    "fuse-replayed": fusion.fuse_replayed,
    "channels-last": kernels.channels_last,
    "fewer-bytes": kernels.fewer_bytes,
    "casts": communication.casts,
    "compiled-copies": communication.compiled_copies,
    "device-copies": communication.device_copies,
    "skinny-matmuls": kernels.skinny_matmuls,
    "tensor-cores": lambda context: kernels.out_of_fp32(context, tf32=False),
    "tf32": lambda context: kernels.out_of_fp32(context, tf32=True),
    "padding": kernels.padding,
    "low-precision": kernels.low_precision,
    "few-tiles": kernels.few_tiles,
    "inefficient-kernels": kernels.inefficient_kernels,
    "max-autotune": kernels.max_autotune,
    "custom-kernels": communication.custom_kernels,
    "recompute-less": fusion.recompute_less,
    "less-work": kernels.less_work,
    "overlap": communication.overlap,
    "gradient-buckets": communication.gradient_buckets,
    "transport": communication.transport,
    "copies": communication.copies,
    "small-copies": communication.small_copies,
    "peer-copies": communication.peer_copies,
    "dependencies": communication.dependencies,
    "earlier-work": overhead.earlier_work,
}
RULES = tuple(RULE_OF_FIX)
"""Ids of the fixes with a rule: all fixes of the catalogue."""


@cache
def rules_of_fixes() -> Mapping[str, Rule]:
    """Return the rules of fixes in the catalogue and in plug-ins, which define ``RULE_OF_FIX`` in their ``advice.py``.

    A plug-in's fix without a rule never applies; one whose rule raises is left out (`trace_analyzer.plugins.refuse`).
    """
    of_plugins = {plugin: getattr(module, "RULE_OF_FIX", {}) for plugin, module in plugins.modules("advice")}
    rules = dict(RULE_OF_FIX)
    for fix_id in fixes():
        plugin = plugins.owner("fixes.toml", fix_id)
        if plugin is None:
            continue
        rule = of_plugins.get(plugin, {}).get(fix_id)
        if rule is None:
            plugins.refuse(plugin, f"fix {fix_id}", "has no rule; RULE_OF_FIX in advice.py maps its id to one")
        rules[fix_id] = partial(_guarded, plugin, fix_id, rule or _never)
    return rules


def _guarded(plugin: plugins.Plugin, fix_id: str, rule: Rule, context: AdviceContext) -> Opportunity | None:
    """Call a plug-in's rule; leave its fix out where the rule fails."""
    try:
        opportunity = rule(context)
        if opportunity is None or isinstance(opportunity, Opportunity):
            return opportunity
        raise TypeError(f"its rule returns a {type(opportunity).__name__}, no Opportunity")
    except TraceAnalyzerError:
        raise
    except Exception as error:  # a plug-in's rule may raise anything
        plugins.refuse(plugin, f"fix {fix_id}", plugins.reason(error))
        return None


def _never(context: AdviceContext) -> None:
    """Return None: this fix never applies."""
