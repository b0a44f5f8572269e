"""Judge the findings: name what limits the window and each step, or why that is unknown and what to record instead."""

from collections.abc import Iterator, Mapping, Sequence

import polars as pl
from msgspec import Struct
from msgspec.structs import asdict, replace

from trace_analyzer import thresholds as t
from trace_analyzer.analyses import partition
from trace_analyzer.analyses.cpu import TINY, CpuRun
from trace_analyzer.analyses.host import Host
from trace_analyzer.analyses.left_out import ns_in_windows
from trace_analyzer.analyses.links import launching_calls
from trace_analyzer.analyses.profiler_overhead import is_measured
from trace_analyzer.analyses.roofline import bound_table
from trace_analyzer.analyses.steps import STEPS
from trace_analyzer.analysis import Value
from trace_analyzer.catalog.fixes import Accelerator
from trace_analyzer.checks import is_lossy, lost_count
from trace_analyzer.errors import breaks_off
from trace_analyzer.findings import DeviceFindings, Findings, StepFindings, WindowSources, bound_shares, ordered
from trace_analyzer.frames.intervals import LENGTH_NS, filter_inside
from trace_analyzer.ingest.trace import Trace
from trace_analyzer.report import Confidence, Debiased, Evidence, Regime, Status, Verdict, Window
from trace_analyzer.units import NS_PER_S, count, counted, duration, percent, visible
from trace_analyzer.verdict import judge
from trace_analyzer.verdict.decide import confidence_of, headline_of, is_undecided, verdict, withheld_inputs
from trace_analyzer.vocabulary import PARTS, phrase

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
    if trace.unsupported or accelerator in _UNSUPPORTED:
        kinds = (
            ", ".join(f"{category} ({n:,})" for category, n in trace.unsupported.items()) or "none of it was recorded"
        )
        return without_regime(
            "unsupported-accelerator",
            f"{_UNSUPPORTED.get(accelerator, 'The work of the accelerator in this trace')} cannot be accounted for: {kinds}."
            " Traces with kernel, gpu_memcpy and gpu_memset events (CUDA, ROCm, XPU) can.",
            evidence,
        )
    truncated, lost = breaks_off(trace.notes), lost_count(trace.notes)
    if truncated or is_lossy(trace.notes, trace.event_count) or (calls and lost > t.MISSING_FAIL_RATIO * calls):
        but = (
            "the file is truncated: GPU events may have stood behind that. Export or copy it again"
            if truncated
            else f"{counted(lost, 'event')} of the file cannot be read, or have an impossible time: GPU events may"
            " be among them. Export it again"
        )
        return without_regime(
            "gpu-timeline-missing" if calls else "no-gpu-activity",
            f"What can be read of this trace has {counted(calls, 'launch', 'launches')} and no GPU activity, but {but}.",
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
    recorded = set(trace.host_events.get_column("kind").unique())
    if recorded <= {"python", "annotation"}:
        return without_regime(
            "insufficient",
            "No operator, call or kernel can be read from this trace. Was the profiler active while the model ran? Of threads"
            " that the program starts, it records none without experimental_config=_ExperimentalConfig(profile_all_threads=True)."
            " With a schedule, prof.step() has to be called wait + warmup + active times; without repeat=1 it begins again, and"
            " what it records of an unfinished cycle may replace the file.",
            evidence,
        )
    if recorded == {"other"}:
        return without_regime(
            "insufficient",
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


def with_main_thread(
    verdict: Verdict, accelerator: Accelerator | None, run: CpuRun | None, cpu_time: pl.DataFrame
) -> Verdict:
    """Return the verdict with where the main thread's time goes; for a run on the CPU, that is the verdict.

    A program that meant a device, as its calls and the names of its operators show, keeps the words on its missing work.
    """
    if run is None or cpu_time.is_empty():
        return replace(verdict, status="no-gpu-activity") if verdict.status == "cpu-run" else verdict
    if verdict.status == "cpu-run" and run.meant:
        _, activity = PROFILERS.get(accelerator, PROFILERS["cuda"])
        verdict = replace(verdict, status="no-gpu-activity", headline=_MEANT.format(run.meant, activity))
    sentence = _main_thread_sentence(run, cpu_time)
    evidence = tuple(_main_thread_evidence(run, cpu_time, on_cpu=verdict.status == "cpu-run"))
    if verdict.status == "cpu-run":
        return without_regime("cpu-run", sentence, evidence)
    return replace(verdict, headline=f"{verdict.headline} {sentence}", evidence=(*verdict.evidence, *evidence))


_MEANT = (
    "The trace has no GPU activity and no launches, but its program uses a device ({}): the device's work was not recorded."
    " Record with activities=[ProfilerActivity.CPU, ProfilerActivity.{}]."
)


def _main_thread_sentence(run: CpuRun, cpu_time: pl.DataFrame) -> str:
    """Write the three largest parts of the main thread's time."""
    (first, ratio, operator), *others = cpu_time.select("part", "time_ratio", "operator").head(3).iter_rows()
    most = f" (led by {visible(operator)})" if operator else ""
    rest = [f"{percent(ratio)} {phrase(part)}" for part, ratio, _ in others if ratio >= _WORTH_NAMING]
    listed = "; ".join([f"{percent(ratio)} is {phrase(first)}{most}", *rest])
    if not run.steps:
        return f"Of the {duration(run.window_ns)} of the main thread, {listed}."
    length = f"{duration(run.window_ns / run.steps)}{' each' if run.steps > 1 else ''}"
    steps = counted(run.steps, f"{run.step_kind} step") if run.steps > 1 else f"one {run.step_kind} step"
    sentence = f"Of the {steps} of the main thread ({length}), {listed}."
    left_ns = sum(run.rest_ns.values())
    whole_ns = left_ns + run.window_ns
    if left_ns <= t.LEFT_OUT_RATIO * whole_ns:
        return sentence
    of_what = f"{duration(left_ns)} of {duration(whole_ns)} ({phrase(list(run.rest_ns)[-1])})"
    return f"{sentence} The window leaves out {percent(left_ns / whole_ns)} of the thread's time: {of_what}."


_WORTH_NAMING = 0.05


def _main_thread_evidence(run: CpuRun, cpu_time: pl.DataFrame, *, on_cpu: bool) -> Iterator[Evidence]:
    """Yield steps and phases, and of operators that work ``on_cpu`` short ones, FP64, FLOP/s and other threads."""
    if run.steps:
        yield Evidence("steps", run.steps, "steps", f"{run.step_kind} steps, marked by {run.steps_from}")
        yield Evidence("step_ns", run.window_ns / run.steps, "ns", "mean of these on the main thread")
    for phase in ("forward", "backward", "optimizer"):
        if ns := int(cpu_time.get_column(f"{phase}_ns").sum()):
            yield Evidence(
                f"{phase}_ratio", ns / run.window_ns, "ratio", f"share of the main thread's time in phase {phase}"
            )
    if not on_cpu:
        return  # the times of operators are those of their launches
    calls = run.pieces.filter(pl.col("part") == TINY)
    if calls.height:
        yield Evidence(
            "tiny_operators", calls.get_column("event_id").n_unique() / max(1, run.steps), "runs",
            f"runs of operators of under 10 us{' a step' if run.steps else ''}: calling them takes longer than their work",
        )  # fmt: skip
    if double := run.pieces.filter(pl.col("bits") == 64).select(LENGTH_NS.sum()).item():
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


class StepVerdict(Struct, frozen=True):
    """The verdict on one step; null where no part of it counts towards a regime."""

    regime: Regime | None
    cause: str | None
    runner_up: Regime | None
    confidence: Confidence | None
    headline: str | None
    cold_start_ns: int | None = None
    recording_ns: int | None = None
    unrecorded_regime: Regime | None = None


def step_verdict(step: StepFindings, levers: judge.Levers = judge.NO_LEVERS) -> StepVerdict:
    """Judge one step: partition, window, cold start and profiler overhead are the step's, all else is the device's.

    ``levers`` are those of the steps that it is one of. The confidence is low where the step alone is not enough for a
    verdict.
    """
    findings = step.findings
    if (withheld := withheld_inputs(findings, "the step")) is not None:
        return StepVerdict(None, None, None, "low", withheld[0])
    cold, window = findings.cold_gap_ns, sum(findings.parts_ns.values())
    levers = levers._replace(loading_behind_waits_ns=findings.loading_behind_waits_ns)
    judgement = judge.judge(findings.parts_ns, cold, judge.NO_LEVERS if is_measured(findings.recording) else levers)
    if judgement is None:
        return StepVerdict(None, None, None, None, None, cold)
    unbiased = judge.debiased(findings.parts_ns, findings.recording, cold, levers)
    too_little = step.activity_count < t.INSUFFICIENT_KERNELS and step.busy_ns < t.INSUFFICIENT_TIME_NS
    level, _ = confidence_of(findings, judgement, tuple(judge.doubts_of(findings, judgement)))
    return StepVerdict(
        regime=judgement.regime,
        cause=judgement.cause,
        runner_up=judgement.runner_up,
        confidence="low" if too_little or is_undecided(judgement, findings.parts_ns) else level,
        headline=headline_of(findings, judgement, window) + _recording_sentence(unbiased, judgement, window),
        cold_start_ns=cold,
        recording_ns=None if unbiased is None else unbiased.removed_ns,
        unrecorded_regime=None if unbiased is None else unbiased.regime,
    )


def _recording_sentence(unbiased: Debiased | None, judgement: judge.Judgement, window: int) -> str:
    """Write the profiler overhead in a step, where it matters, and the step's regime without it."""
    if unbiased is None or unbiased.removed_ns < t.RECORDING_REPORTED_RATIO * window:
        return ""
    took = f"{duration(unbiased.removed_ns)} ({percent(unbiased.removed_ns / window)})"
    sentence = (
        f" Recording took {took} of it" if unbiased.is_measured else f" Recording is estimated at up to {took} of it"
    )
    if judgement.regime != unbiased.regime:
        maybe = "it may be" if unbiased.survives is None else "it is"
        return f"{sentence}; without that {maybe} {unbiased.regime or 'of no regime'}."
    return f"{sentence}."


def step_verdicts(
    step_findings: Sequence[StepFindings], window_findings: Findings | None, levers: judge.Levers
) -> pl.DataFrame:
    """Return device, index and the fields of `StepVerdict` for the steps of each device."""
    rows = [
        {"device": step.device, "index": step.index, **asdict(step_verdict(step, own))}
        for step in step_findings
        for own in [_levers_of(step.findings, window_findings, levers)]
        if step.findings.parts_ns or step.findings.device.parts_withheld
    ]
    names = ("device", "index", *StepVerdict.__struct_fields__)
    return pl.DataFrame(rows, schema={name: STEPS.schema[name] for name in names})


def _levers_of(findings: Findings, judged: Findings | None, levers: judge.Levers) -> judge.Levers:
    """Return the levers of the judged window for the device's steps, so that all have one verdict.

    There are none for steps of another device, or of another kind of serving steps. That the host takes as long as a step
    holds for those of the window alone.
    """
    if judged is None or findings.device.report.index != judged.device.report.index:
        return judge.NO_LEVERS
    if {*findings.window.steps} & {*judged.window.steps}:
        return levers
    return levers._replace(host_alone_ratio=0.0) if judged.window.step_kind is None else judge.NO_LEVERS


_SCHEMA = {
    "device": pl.Int64(),
    "step_kind": pl.String(),
    **dict.fromkeys(("regime", "cause", "runner_up", "confidence", "headline"), pl.String()),
}


def serving_verdicts(
    annotated_steps: pl.DataFrame,
    device_findings: Mapping[int, DeviceFindings],
    window_sources: WindowSources,
    window_findings: Findings | None,
    levers: judge.Levers,
) -> pl.DataFrame:
    """Return device, step_kind, regime, cause, runner_up, confidence and headline: the verdict on all steps of each kind."""
    rows = [
        {
            "device": device,
            "step_kind": kind,
            **_judged(device_findings[device], steps, window_sources, window_findings, levers),
        }
        for (device, kind), steps in annotated_steps.group_by("device", "step_kind", maintain_order=True)
        if device in device_findings
    ]
    return pl.DataFrame(rows, schema=_SCHEMA)


def _judged(
    device: DeviceFindings, steps: pl.DataFrame, sources: WindowSources, window: Findings | None, levers: judge.Levers
) -> dict[str, str | None]:
    spans = steps.select("device", "start_ns", "end_ns", pl.lit(0, dtype=pl.UInt32).alias("window"))
    sums = partition.part_sums(sources.busy_parts, sources.idle_causes, spans, ["device"]).select("part", "time_ns")
    findings = Findings(
        device=device,
        window=Window("step", tuple(steps.select("start_ns", "end_ns").iter_rows()), tuple(steps.get_column("index"))),
        parts_ns=ordered(sums, PARTS),
        cold_gap_ns=ns_in_windows(sources.cold_idle, spans).get(0, 0),
        recording=None,
        waiting_depth=None,
        bounds=bound_shares(bound_table(filter_inside(sources.rated, "start_ns", steps, ["device"]))),
    )
    code, counts = int(steps.get_column("device").item(0)), steps.select(pl.col("activity_count", "busy_ns").sum())
    own = _levers_of(findings, window, levers)
    verdict = step_verdict(StepFindings(findings, code, 0, *counts.row(0)), own)
    judged = {name: getattr(verdict, name) for name in ("regime", "cause", "runner_up", "confidence")}
    return judged | {"headline": _headline(findings, steps, own)}


def _headline(findings: Findings, steps: pl.DataFrame, levers: judge.Levers) -> str | None:
    """Write what limits the steps of a kind, in one sentence; None where it is unknown."""
    judgement = judge.judge(findings.parts_ns, findings.cold_gap_ns, levers)
    if judgement is None or withheld_inputs(findings, "the steps") is not None:
        return None
    of = "the step" if steps.height == 1 else f"its {count(steps.height)} steps"
    kind = steps.get_column("step_kind").item(0)
    sentence = headline_of(findings, judgement, sum(findings.parts_ns.values()), of)
    return f"{kind.capitalize()} is {sentence[0].lower()}{sentence[1:]}"


def trace_verdict(
    trace: Trace,
    host: Host,
    window_findings: Findings | None,
    accelerator: Accelerator | None,
    levers: judge.Levers,
    cpu_run: CpuRun | None,
    cpu_time: pl.DataFrame,
) -> Verdict:
    """Return the verdict on the window, or the reason why a trace without device activities has none."""
    if window_findings is not None:
        return verdict(window_findings, levers)
    return with_main_thread(without_activities(trace, host, accelerator), accelerator, cpu_run, cpu_time)


VALUES = (
    Value("step_verdicts", step_verdicts),
    Value("serving_verdicts", serving_verdicts),
    Value("verdict", trace_verdict),
)

__all__ = ["VALUES", "StepVerdict", "serving_verdicts", "step_verdict", "step_verdicts", "verdict", "without_regime"]
