"""Judge the findings: name what limits the window, or why that is unknown."""

import polars as pl

from trace_analyzer.analyses.cpu import CpuRun
from trace_analyzer.analyses.host import Host
from trace_analyzer.analysis import Value
from trace_analyzer.catalog.fixes import Accelerator
from trace_analyzer.findings import Findings
from trace_analyzer.ingest.trace import Trace
from trace_analyzer.report import Verdict
from trace_analyzer.verdict.decide import verdict
from trace_analyzer.verdict.judge import (
    KERNEL_REGIMES,
    Judgement,
    Levers,
    cause_sums,
    debiased,
    groups_of,
    judge,
    judged_parts,
    shares,
)
from trace_analyzer.verdict.step_verdicts import StepVerdict, serving_verdicts, step_verdict, step_verdicts
from trace_analyzer.verdict.without_activities import with_main_thread, without_activities, without_regime


def trace_verdict(
    trace: Trace,
    host: Host,
    window_findings: Findings | None,
    accelerator: Accelerator | None,
    levers: Levers,
    cpu_run: CpuRun | None,
    cpu_time: pl.DataFrame,
) -> Verdict:
    """Return the verdict on the window, or the reason why a trace without device activities has none."""
    if window_findings is not None:
        return verdict(window_findings, levers)
    return with_main_thread(without_activities(trace, host, accelerator), host, cpu_run, cpu_time)


VALUES = (
    Value("step_verdicts", step_verdicts),
    Value("serving_verdicts", serving_verdicts),
    Value("verdict", trace_verdict),
)

__all__ = [
    "KERNEL_REGIMES",
    "VALUES",
    "Judgement",
    "Levers",
    "StepVerdict",
    "cause_sums",
    "debiased",
    "groups_of",
    "judge",
    "judged_parts",
    "serving_verdicts",
    "shares",
    "step_verdict",
    "trace_verdict",
    "verdict",
    "without_activities",
    "without_regime",
]
