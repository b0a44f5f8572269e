"""Table `owners`: each instant of the steady steps has one owner, and owners sum to the steps in integer ns."""

import itertools
import pickle
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from conftest import corpus_rows
from generator import RandomTrace, random_traces
from hypothesis import HealthCheck, given, settings
from tiers import examples

from trace_analyzer.analyses.partition import step_windows
from trace_analyzer.pipeline import analyze
from trace_analyzer.report import Report
from trace_analyzer.vocabulary import WORK

LENGTH = pl.col("end_ns") - pl.col("start_ns")
SAMPLES = sorted((Path(__file__).parents[1] / "sample_traces").glob("*.json.gz"))
Interval = tuple[int, int, int, str, int | None]


def owners_sum_to_the_steps(report: Report) -> None:
    tables = report.tables
    windows = step_windows(tables["activities"], tables["steps"])
    owned = tables["owners"].group_by("device", "step").agg(LENGTH.sum()).sort("device", "step")
    assert owned.rows() == windows.select("device", "step", LENGTH).sort("device", "step").rows()
    pieces = tables["owners"].filter(LENGTH > 0)
    in_order = tables["owners"].sort("device", "start_ns", "end_ns", "activity_id", maintain_order=True)
    assert tables["owners"].equals(in_order)
    following = pl.col("start_ns").shift(-1).over("device")
    assert pieces.filter(pl.col("end_ns") > following).is_empty()


def naive_owners(report: Report, device: int) -> set[Interval]:
    """Return the owners of the elementary intervals of a device's window, by the definition."""
    activities = report.tables["activities"].filter(pl.col("device") == device)
    spans = [
        (WORK.index(bound), start, row, start + duration, bound)
        for row, start, duration, bound in activities.select("activity_id", "start_ns", "duration_ns", "bound").rows()
    ]
    windows = step_windows(activities, report.tables["steps"].filter(pl.col("device") == device))
    idle = report.tables["blame"].filter(pl.col("device") == device).select("start_ns", "end_ns", "cause").rows()
    cuts = {t for _, start, _, end, _ in spans for t in (start, end)} | {t for row in idle for t in row[:2]}
    cuts |= set(windows.get_column("start_ns")) | set(windows.get_column("end_ns"))
    instants = sorted(cuts)
    owned: set[Interval] = set()
    for since, until in windows.select("start_ns", "end_ns").rows():
        for begin, end in itertools.pairwise(instants):
            if since <= begin and end <= until:
                running = [span for span in spans if span[1] <= begin and end <= span[3]]
                cause = [row[2] for row in idle if row[0] <= begin and end <= row[1]]
                _, _, activity, _, part = min(running) if running else (0, 0, None, 0, cause[0])
                owned.add((device, begin, end, part, activity))
    return owned


@given(random_traces())
@settings(max_examples=examples(12), suppress_health_check=list(HealthCheck))
def test_owners_are_those_of_the_definition(trace: RandomTrace) -> None:
    report = analyze(trace.content)
    owners_sum_to_the_steps(report)
    pieces = report.tables["owners"].filter(LENGTH > 0)
    for device in report.tables["owners"].get_column("device").unique():
        rows = pieces.filter(pl.col("device") == device).select("start_ns", "end_ns", "part", "activity_id").rows()
        for _, begin, end, part, activity in naive_owners(report, device):
            (owner,) = [row[2:] for row in rows if row[0] <= begin and end <= row[1]]
            assert owner == (part, activity)


@pytest.mark.slow
@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_samples(path: Path) -> None:
    report = analyze(path)
    owners_sum_to_the_steps(report)
    assert pickle.loads(pickle.dumps(report.tables["owners"])).equals(report.tables["owners"])


@pytest.mark.slow
@pytest.mark.skipif(not corpus_rows(), reason="the corpus ($TRACE_CORPUS) is absent")
@pytest.mark.parametrize("file", sorted({row["file"] for row in corpus_rows()}))
def test_real_traces(file: str, corpus_report: Callable[[str], Report]) -> None:
    owners_sum_to_the_steps(corpus_report(file))


def test_every_activity_of_the_steps_has_a_row() -> None:
    report = analyze(next(path for path in SAMPLES if "collectives" in path.name))
    tables = report.tables
    windows = step_windows(tables["activities"], tables["steps"])
    inside = tables["activities"].filter(
        pl.col("start_ns").is_between(
            windows.get_column("start_ns").min(), windows.get_column("end_ns").max(), closed="left"
        )
    )
    assert set(inside.get_column("activity_id")) <= set(tables["owners"].get_column("activity_id"))
