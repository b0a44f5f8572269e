"""Explain why a trace without device activities has no regime, and what to record instead."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import polars as pl

from trace_analyzer.analyses.cpu import TINY, CpuRun
from trace_analyzer.analyses.host import Host
from trace_analyzer.analyses.links import launching_calls
from trace_analyzer.catalog.fixes import Accelerator
from trace_analyzer.errors import breaks_off
from trace_analyzer.ingest.trace import Trace
from trace_analyzer.report import Evidence, Status, Verdict
from trace_analyzer.units import NS_PER_S, counted, duration, percent, visible
from trace_analyzer.vocabulary import phrase

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
    launched = launching_calls(host)
    calls, of_graphs = launched.height, launched.get_column("name").cast(pl.String).str.contains("(?i)graph").all()
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
    if trace.header.profiler is not None:
        what = (
            f"{counted(calls, 'launch', 'launches')} but no GPU activity"
            if calls
            else "no GPU activity and no launches"
        )
        status: Status = "gpu-timeline-missing" if calls else "no-gpu-activity"
        return without_regime(status, f"The recording of {trace.header.profiler} has {what}.", evidence)
    if calls:
        why = (
            f"only {counted(ranges, 'profiler range')} (hardware counters) were recorded"
            if ranges
            else f"all launch graphs, whose kernels {profiler} did not record; it may miss those of graphs that were captured before"
            " the recording, so record from before the capture on, or without graphs"
            if of_graphs
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
        "cpu-run",
        "The trace has no GPU activity and no launches: this is a CPU-only run."
        " To judge a GPU workload, record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA].",
        evidence,
    )


_OF_DEVICES = r"(?i)cuda|cudnn|cublas|miopen|hipblas|[nrh]ccl|triton_|::xpu|::npu|::hpu"
"""Operators and annotations of programs that use a device: a trace with these is no run on the CPU."""


def with_main_thread(verdict: Verdict, host: Host, run: CpuRun | None, cpu_time: pl.DataFrame) -> Verdict:
    """Return the verdict with where the main thread's time goes; for a run on the CPU, that is the verdict.

    A program that meant a device, as its calls and the names of its operators show, keeps the words on its missing work.
    """
    known = run is not None and not cpu_time.is_empty()
    if verdict.status == "cpu-run" and (not known or (meant := _meant_device(host))):
        verdict = replace(
            verdict, status="no-gpu-activity", headline=_MEANT.format(meant) if known else verdict.headline
        )
    if run is None or not known:
        return verdict
    sentence = _main_thread_sentence(run, cpu_time)
    evidence = tuple(_main_thread_evidence(run, cpu_time))
    if verdict.status == "cpu-run":
        return without_regime("cpu-run", sentence, evidence)
    return replace(verdict, headline=f"{verdict.headline} {sentence}", evidence=(*verdict.evidence, *evidence))


_MEANT = (
    "The trace has no GPU activity and no launches, but its program uses a device ({}): the device's work was not recorded."
    " Record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]."
)


def _meant_device(host: Host) -> str:
    """Return a name that only programs on a device have; "" without one."""
    kinds = pl.col("kind").is_in(["operator", "annotation"]) & pl.col("name").cast(pl.String).str.contains(_OF_DEVICES)
    named = host.names.filter(kinds).get_column("name").cast(pl.String).sort().head(1).to_list()
    return visible(named[0]) if named else "it calls the runtime" if host.calls.height else ""


def _main_thread_sentence(run: CpuRun, cpu_time: pl.DataFrame) -> str:
    """Write the three largest parts of the main thread's time."""
    (first, ratio, operator), *others = cpu_time.select("part", "time_ratio", "operator").head(3).iter_rows()
    most = f" (most of it in {visible(operator)})" if operator else ""
    rest = [f"{percent(ratio)} {phrase(part)}" for part, ratio, _ in others if ratio >= _WORTH_NAMING]
    listed = "; ".join([f"{percent(ratio)} is {phrase(first)}{most}", *rest])
    if not run.steps:
        return f"Of the {duration(run.window_ns)} of the main thread, {listed}."
    each = duration(run.window_ns / run.steps)
    return f"Of the {counted(run.steps, 'steady step')} of the main thread ({each} each), {listed}."


_WORTH_NAMING = 0.05


def _main_thread_evidence(run: CpuRun, cpu_time: pl.DataFrame) -> Iterator[Evidence]:
    """Yield steps, phases, short operators, FP64, FLOP/s and other threads."""
    length = pl.col("end_ns") - pl.col("start_ns")
    if run.steps:
        yield Evidence("steps", run.steps, "steps", f"steady steps, marked by {run.steps_from}")
        yield Evidence("step_ns", run.window_ns / run.steps, "ns", "mean of these on the main thread")
    for phase in ("forward", "backward", "optimizer"):
        if ns := int(cpu_time.get_column(f"{phase}_ns").sum()):
            yield Evidence(
                f"{phase}_ratio", ns / run.window_ns, "ratio", f"share of the main thread's time in phase {phase}"
            )
    calls = run.pieces.filter(pl.col("part") == TINY)
    if calls.height:
        yield Evidence(
            "tiny_operators", calls.get_column("event_id").n_unique() / max(1, run.steps), "runs",
            f"runs of operators of under 10 us{' a step' if run.steps else ''}: calling them takes longer than their work",
        )  # fmt: skip
    if double := run.pieces.filter("double").select(length.sum()).item():
        yield Evidence(
            "fp64_ratio", double / run.window_ns, "ratio", "share of the main thread's time in operators on FP64"
        )
    if run.flop and run.flop_ns:
        yield Evidence(
            "matmul_flop_per_s", run.flop / run.flop_ns * NS_PER_S, "FLOP/s",
            "what matmuls and convolutions reach, by their shapes; the CPU's peak is not known",
        )  # fmt: skip
    yield Evidence(
        "other_threads_ratio", run.others_ns / run.window_ns, "ratio",
        "time of operators on other threads over the main thread's time; threads within operators are not recorded",
    )  # fmt: skip


def without_regime(status: Status, headline: str, evidence: tuple[Evidence, ...] = ()) -> Verdict:
    """Return a verdict without a regime, whose headline explains why."""
    return Verdict(status, None, None, None, "low", (), None, None, None, {}, headline, evidence)
