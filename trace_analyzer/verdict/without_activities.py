"""Explain why a trace without device activities has no regime, and what to record instead."""

from collections.abc import Mapping

from trace_analyzer.analyses.host import Host
from trace_analyzer.analyses.links import launching_calls
from trace_analyzer.catalog.fixes import Accelerator
from trace_analyzer.errors import breaks_off
from trace_analyzer.ingest.trace import Trace
from trace_analyzer.report import Evidence, Status, Verdict
from trace_analyzer.units import counted

PROFILERS: Mapping[Accelerator | None, tuple[str, str]] = {
    "cuda": ("CUPTI", "CUDA"), "hip": ("roctracer", "CUDA"), "xpu": ("PTI (Intel's Profiling Tools Interface)", "XPU"),
}  # fmt: skip
"""What records a vendor's devices, and the member of ``ProfilerActivity`` that asks for it."""
_UNSUPPORTED: Mapping[Accelerator | None, str] = {
    "npu": "The work of Ascend NPUs in this trace",
    "hpu": "The work of Gaudi HPUs in this trace",
    "mtia": "The work of MTIA in this trace",
}


def without_activities(trace: Trace, host: Host, accelerator: Accelerator | None) -> Verdict:
    """Return a verdict on why a trace without device activities has no regime, and what to record instead."""
    profiler, activity = PROFILERS.get(accelerator, PROFILERS["cuda"])
    calls = launching_calls(host).height
    ranges = sum(note.count for note in trace.notes if note.code == "profiler-range")
    evidence = (
        Evidence("launch_calls", calls, "calls", "runtime calls that enqueue device work"),
        Evidence("host_events", trace.host_events.height, "events", "events recorded on the CPU"),
    )
    if trace.unsupported:
        kinds = ", ".join(f"{category} ({n:,})" for category, n in trace.unsupported.items())
        return without_regime(
            "unsupported-accelerator",
            f"{_UNSUPPORTED.get(accelerator, 'The work of the accelerator in this trace')} cannot be accounted for: {kinds}."
            " Traces with kernel, gpu_memcpy and gpu_memset events (CUDA, ROCm, XPU) can.",
            evidence,
        )
    if breaks_off(trace.notes):
        return without_regime(
            "gpu-timeline-missing" if calls else "no-gpu-activity",
            f"What can be read of this trace has {counted(calls, 'launch', 'launches')} and no GPU activity, but the file is truncated:"
            " GPU events may have stood behind that. Export or copy it again.",
            evidence,
        )
    if calls:
        why = (
            f"only {counted(ranges, 'profiler range')} (hardware counters) were recorded"
            if ranges
            else f"{profiler} was not available, was in use by another tool, or may not be used by this user"
        )
        return without_regime(
            "gpu-timeline-missing",
            f"The trace has {counted(calls, 'launch', 'launches')} but no GPU activity: {why}."
            f" Record with activities=[ProfilerActivity.CPU, ProfilerActivity.{activity}] and no other profiler attached.",
            evidence,
        )
    if trace.host_events.is_empty():
        return without_regime(
            "no-gpu-activity",
            "No operator, call or kernel can be read from this trace. Was the profiler active while the model ran?"
            " With a schedule, prof.step() has to be called wait + warmup + active times.",
            evidence,
        )
    if trace.host_events.get_column("kind").eq("other").all():
        return without_regime(
            "no-gpu-activity",
            "None of its events is of a category that PyTorch Profiler writes (cpu_op, cuda_runtime, kernel, ...): another"
            " tool recorded this trace. Export one with prof.export_chrome_trace(...) of torch.profiler.",
            evidence,
        )
    if accelerator == "mps":
        return without_regime(
            "no-gpu-activity",
            "Operators of Apple's GPU (MPS) ran, and PyTorch Profiler records no work of it. Record its work with"
            " torch.mps.profiler and Instruments; this trace shows the CPU alone.",
            evidence,
        )
    return without_regime(
        "no-gpu-activity",
        "The trace has no GPU activity and no launches: this is a CPU-only run."
        " To judge a GPU workload, record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA].",
        evidence,
    )


def without_regime(status: Status, headline: str, evidence: tuple[Evidence, ...] = ()) -> Verdict:
    """Return a verdict without a regime, whose headline explains why."""
    return Verdict(status, None, None, None, "low", (), None, None, None, {}, headline, evidence)
