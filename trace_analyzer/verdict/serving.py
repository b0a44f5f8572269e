"""Judge each kind of step of a serving framework by the partition of all its steps."""

from collections.abc import Mapping

import polars as pl

from trace_analyzer.analyses import partition
from trace_analyzer.analyses.cold_start import cold_gap_ns
from trace_analyzer.analyses.roof_shares import bound_table
from trace_analyzer.findings import DeviceFindings, Findings, StepFindings, WindowSources, bound_shares, ordered
from trace_analyzer.frames.intervals import filter_inside
from trace_analyzer.report import Window
from trace_analyzer.units import count
from trace_analyzer.verdict.decide import headline_of, withheld_inputs
from trace_analyzer.verdict.judge import judge
from trace_analyzer.verdict.step_verdicts import step_verdict
from trace_analyzer.vocabulary import PARTS

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
