"""Judge each step by its own partition."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import polars as pl

from trace_analyzer import thresholds as t
from trace_analyzer.analyses import partition
from trace_analyzer.analyses.left_out import cold_gap_ns
from trace_analyzer.analyses.roofline import bound_table
from trace_analyzer.analyses.steps import STEPS
from trace_analyzer.findings import DeviceFindings, Findings, StepFindings, WindowSources, bound_shares, ordered
from trace_analyzer.frames.intervals import filter_inside
from trace_analyzer.report import Confidence, Debiased, Regime, Window
from trace_analyzer.units import count, duration, percent
from trace_analyzer.verdict.decide import confidence_of, headline_of, is_undecided, withheld_inputs
from trace_analyzer.verdict.judge import Judgement, debiased, judge
from trace_analyzer.verdict.worlds import doubts_of
from trace_analyzer.vocabulary import PARTS


@dataclass(frozen=True)
class StepVerdict:
    """Hold the verdict on one step; null where no part of it counts towards a regime."""

    regime: Regime | None
    cause: str | None
    runner_up: Regime | None
    confidence: Confidence | None
    headline: str | None
    cold_start_ns: int | None = None
    recording_ns: int | None = None
    unrecorded_regime: Regime | None = None


def step_verdict(step: StepFindings) -> StepVerdict:
    """Judge one step: partition, window, cold start and profiler overhead are the step's, all else is the device's.

    The confidence is low where the step alone is not enough for a verdict.
    """
    findings = step.findings
    if (withheld := withheld_inputs(findings, "the step")) is not None:
        return StepVerdict(None, None, None, "low", withheld[0])
    cold, window = findings.cold_gap_ns, sum(findings.parts_ns.values())
    judgement = judge(findings.parts_ns, cold)
    if judgement is None:
        return StepVerdict(None, None, None, None, None, cold)
    unbiased = debiased(findings.parts_ns, findings.recording, cold)
    too_little = step.activity_count < t.INSUFFICIENT_KERNELS and step.busy_ns < t.INSUFFICIENT_TIME_NS
    level, _ = confidence_of(findings, judgement, tuple(doubts_of(findings, judgement)))
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


def _recording_sentence(unbiased: Debiased | None, judgement: Judgement, window: int) -> str:
    """Write the profiler overhead in a step, where it matters, and the step's regime without it."""
    if unbiased is None or unbiased.removed_ns < t.RECORDING_REPORTED_RATIO * window:
        return ""
    took = f"{duration(unbiased.removed_ns)} ({percent(unbiased.removed_ns / window)})"
    sentence = (
        f" Recording took {took} of it"
        if unbiased.method == "measured"
        else f" Recording is estimated at up to {took} of it"
    )
    if judgement.regime != unbiased.regime:
        maybe = "it may be" if unbiased.survives is None else "it is"
        return f"{sentence}; without that {maybe} {unbiased.regime or 'of no regime'}."
    return f"{sentence}."


def step_verdicts(step_findings: Sequence[StepFindings]) -> pl.DataFrame:
    """Return device, index and the fields of `StepVerdict` for the steps of each device."""
    rows = [
        {"device": step.device, "index": step.index, **vars(step_verdict(step))}
        for step in step_findings
        if step.findings.parts_ns or step.findings.device.parts_withheld
    ]
    names = ("device", "index", *(field.name for field in fields(StepVerdict)))
    return pl.DataFrame(rows, schema={name: STEPS.schema[name] for name in names})


_SCHEMA = {
    "device": pl.Int64(),
    "step_kind": pl.String(),
    **dict.fromkeys(("regime", "cause", "runner_up", "confidence", "headline"), pl.String()),
}


def serving_verdicts(
    annotated_steps: pl.DataFrame, device_findings: Mapping[int, DeviceFindings], window_sources: WindowSources
) -> pl.DataFrame:
    """Return device, step_kind, regime, cause, runner_up, confidence and headline: the verdict on all steps of each kind."""
    rows = [
        {"device": device, "step_kind": kind, **_judged(device_findings[device], steps, window_sources)}
        for (device, kind), steps in annotated_steps.group_by("device", "step_kind", maintain_order=True)
        if device in device_findings
    ]
    return pl.DataFrame(rows, schema=_SCHEMA)


def _judged(device: DeviceFindings, steps: pl.DataFrame, sources: WindowSources) -> dict[str, str | None]:
    spans = steps.select("device", "start_ns", "end_ns", pl.lit(0, dtype=pl.UInt32).alias("window"))
    sums = partition.part_sums(sources.busy_parts, sources.idle_causes, spans, ["device"]).select("part", "time_ns")
    findings = Findings(
        device=device,
        window=Window("step", tuple(steps.select("start_ns", "end_ns").iter_rows()), tuple(steps.get_column("index"))),
        parts_ns=ordered(sums, PARTS),
        cold_gap_ns=cold_gap_ns(sources.cold_idle, spans).get(0, 0),
        recording=None,
        waiting_depth=None,
        bounds=bound_shares(bound_table(_started_in(sources.rated, steps))),
    )
    code, counts = int(steps.get_column("device").item(0)), steps.select(pl.col("activity_count", "busy_ns").sum())
    verdict = step_verdict(StepFindings(findings, code, 0, *counts.row(0)))
    judged = {name: getattr(verdict, name) for name in ("regime", "cause", "runner_up", "confidence")}
    return judged | {"headline": _headline(findings, steps)}


def _headline(findings: Findings, steps: pl.DataFrame) -> str | None:
    """Write what limits the steps of a kind, in one sentence; None where it is unknown."""
    judgement = judge(findings.parts_ns, findings.cold_gap_ns)
    if judgement is None or withheld_inputs(findings, "the steps") is not None:
        return None
    of = "the step" if steps.height == 1 else f"its {count(steps.height)} steps"
    kind = steps.get_column("step_kind").item(0)
    sentence = headline_of(findings, judgement, sum(findings.parts_ns.values()), of)
    return f"{kind.capitalize()} is {sentence[0].lower()}{sentence[1:]}"


def _started_in(kernels: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    return filter_inside(kernels, "start_ns", steps.select("device", "start_ns", "end_ns"), ["device"])
