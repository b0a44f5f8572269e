"""Attribution on random and real traces: complete, without double counting, and nearly always with a name."""

from collections.abc import Callable

import polars as pl
import pytest
from conftest import CORPUS, corpus_rows
from generator import RandomTrace, random_traces
from hypothesis import HealthCheck, given, settings
from tiers import examples

from trace_analyzer.analyses.blame import DIMENSIONS
from trace_analyzer.analyses.host_costs import COSTS
from trace_analyzer.analysis import CAUSES_OF_IDLE
from trace_analyzer.checks import suppressed
from trace_analyzer.pipeline import analyze
from trace_analyzer.report import Report
from trace_analyzer.vocabulary import HOST_CAUSES

LENGTH = pl.col("end_ns") - pl.col("start_ns")
UNHURRIED = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
FILES = sorted({row["file"] for row in corpus_rows()})


def idle_time_is_blamed_once(report: Report) -> None:
    """Check that blame cuts idle time as causes do and sums to it in every way, and named work to its causes."""
    idle, blame = report.tables["idle"], report.tables["blame"]
    assert blame.select("gap_id", "device", "start_ns", "end_ns", "cause").equals(idle.drop("event_id", "host_event"))
    by_cause = dict(idle.group_by("cause").agg(LENGTH.sum()).iter_rows())
    for by in DIMENSIONS:
        sums = report.tables["idle_by"].filter(pl.col("by") == by).group_by("cause").agg(pl.col("idle_ns").sum())
        assert dict(sums.iter_rows()) == by_cause
    costs = dict(report.tables["host_costs"].group_by("kind").agg(pl.col("idle_ns").sum()).iter_rows())
    if suppressed(report.trust, report.tables["devices"])[CAUSES_OF_IDLE]:
        assert (
            report.tables["host_costs"].select("idle_ns", "hidden_ns").null_count().row(0)
            == (report.tables["host_costs"].height,) * 2
        )
    else:
        assert {kind: costs.get(kind, 0) for kind in COSTS} == {kind: by_cause.get(kind, 0) for kind in COSTS}
    codes = dict(report.tables["devices"].select("label", "device").iter_rows())
    for step in report.steps:
        blamed = blame.filter(pl.col("step") == step.index, pl.col("device") == codes[str(step.device)])
        assert blamed.select(LENGTH.sum()).item() == step.idle_ns
    window = report.verdict.parts_ns
    if window and 0 < len(report.blame) < 20:
        assert sum(item.idle_ns for item in report.blame) == sum(window[cause] for cause in by_cause)


def operators_spend_what_they_last(report: Report) -> None:
    """Check that the self time of operators is at most the duration of their outermost operator."""
    operators = report.tables["operators"]
    own = operators.select(pl.sum_horizontal("dispatch_ns", "runtime_ns", "blocked_ns").sum()).item()
    assert own <= operators.get_column("host_self_ns").sum() <= operators.get_column("host_ns").sum()
    assert operators.filter(pl.col("short_launch_count") > pl.col("launch_count")).is_empty()


def drains_hold_idle_time_once(report: Report) -> None:
    drains, idle = report.tables["drains"], report.tables["idle"]
    assert drains.filter((pl.col("idle_ns") <= 0) | (pl.col("idle_ns") > LENGTH)).is_empty()
    in_drains = dict(drains.group_by("device").agg(pl.col("idle_ns").sum()).iter_rows())
    for device, idle_ns in idle.group_by("device").agg(LENGTH.sum()).iter_rows():
        assert in_drains.get(device, 0) <= idle_ns


@given(random_traces())
@settings(max_examples=examples(8), suppress_health_check=UNHURRIED)
def test_on_random_traces(trace: RandomTrace) -> None:
    report = analyze(trace.content)
    idle_time_is_blamed_once(report)
    operators_spend_what_they_last(report)
    drains_hold_idle_time_once(report)


@pytest.mark.sampled
@pytest.mark.skipif(not FILES, reason="the corpus ($TRACE_CORPUS) is absent")
@pytest.mark.parametrize("file", FILES)
def test_on_real_traces(file: str, corpus_report: Callable[[str], Report]) -> None:
    """Check that at most 5 % of host time is unnamed with recorded stacks; without them, plain Python is silent."""
    assert (CORPUS / file).exists()
    report = corpus_report(file)
    idle_time_is_blamed_once(report)
    operators_spend_what_they_last(report)
    drains_hold_idle_time_once(report)
    host = report.tables["idle"].filter(pl.col("cause").is_in(HOST_CAUSES))
    unknown = host.filter(pl.col("cause") == "host-unknown")
    if report.trace.recorded.stack:
        assert unknown.select(LENGTH.sum()).item() <= 0.05 * host.select(LENGTH.sum()).item()
