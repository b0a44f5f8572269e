"""Test phases of steps: data loading, forward, backward, optimizer and the rest, on the host and on the device."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from conftest import SAMPLES, sample_report
from kineto import Event, analysed, annotation, kernel, launch, launched, op, python, rows

from trace_analyzer import Report

LOADING = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
AUTOGRAD = {"tid": 7}


def step(start: int, number: int) -> list[Any]:
    """Return a step of 100 us: 10 of loading, 30 forward, 30 backward on autograd's thread, 12 in the optimizer."""
    node = "autograd::engine::evaluate_function: AddmmBackward0"
    return [
        annotation(f"ProfilerStep#{number}", start, 100), annotation(LOADING, start + 2, 10),
        annotation("## forward ##", start + 15, 10), annotation("## forward ##", start + 30, 15),
        launched("gemm", start + 31, start + 37, 8, 2 * number + 1), op(node, start + 50, 10, **AUTOGRAD),
        op(node, start + 65, 15, **AUTOGRAD),
        launch(start + 66, 5, 2 * number + 2, **AUTOGRAD), kernel("gemm", start + 72, 12, correlation=2 * number + 2),
        annotation("Optimizer.step#SGD.step", start + 85, 12),
    ]  # fmt: skip


def shown(report: Report, table: str, *columns: str) -> list[tuple[Any, ...]]:
    return rows(report.tables[table], *columns)


def test_a_step_is_divided_into_its_phases() -> None:
    waits = python("threading.py(1): run", 0, 2000, **AUTOGRAD)  # autograd's thread is alive all the time
    report = analysed([step(100 * number, number) for number in range(1, 7)], waits)
    assert shown(report, "phases", "phase", "host_ns", "device_ns") == [
        ("data-loading", 10, 0), ("forward", 30, 8), ("backward", 30, 12), ("optimizer", 12, 0), ("other", 18, 0),
    ]  # fmt: skip
    third = report.tables["phase_intervals"].filter(step=3).select("phase", pl.col("start_ns", "end_ns") - 300_000)
    assert rows(third, "phase", "start_ns", "end_ns") == [
        ("data-loading", 2, 12), ("forward", 15, 45), ("backward", 50, 80), ("optimizer", 85, 97),
    ]  # fmt: skip


def test_the_main_thread_counts_before_autograds() -> None:
    """Optimizers that step within the backward pass are optimizers: the main thread says what the step is in."""
    inside = [annotation("Optimizer.step#SGD.step", 100 * n + 55, 4) for n in range(1, 7)]
    phases = dict(shown(analysed([step(100 * n, n) for n in range(1, 7)], inside), "phases", "phase", "host_ns"))
    assert (phases["optimizer"], phases["backward"]) == (16, 26)


def test_ranges_alone_leave_the_rest_of_a_step_to_no_pass() -> None:
    """Check a program without operators, as other profilers record it: what no range names is no backward work."""
    steps = [annotation(f"ProfilerStep#{n}", 100 * n, 100) for n in range(8)]
    ranges = [annotation("backward", 100 * n + 10, 30) for n in range(8)]
    work = [event for n in range(8) for event in launched("a", 100 * n + 50, 100 * n + 52, 20, n + 1)]
    report = analysed(*steps, *ranges, *work)
    assert dict(shown(report, "phases", "phase", "host_ns")) == {"backward": 30, "other": 70}


@pytest.mark.parametrize(
    "events", [[launched("a", 10, 20, 5, 1)], [annotation("forward", 0, 50), launched("a", 10, 20, 5, 1)]]
)
def test_without_steps_there_are_no_phases(events: list[Event]) -> None:
    assert analysed(*events).tables["phases"].is_empty()


@pytest.mark.sampled
@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.json.gz")), ids=lambda path: path.name)
def test_phases_add_up_to_the_step_and_to_its_activities(path: Path) -> None:
    tables = sample_report(path.name).tables
    sums = tables["step_phases"].group_by("device", "step").agg(pl.col("host_ns", "device_ns").sum())
    steps = tables["steps"].select("device", pl.col("host_end_ns") - pl.col("host_start_ns"), step=pl.col("index"))
    joined = sums.join(steps, on=["device", "step"], how="left")
    assert (joined.get_column("host_ns") == joined.get_column("host_end_ns")).all()
    assert (tables["step_phases"].get_column("host_ns") >= 0).all()
    of_steps = tables["step_work"].select("device", "step", "time_ns").join(sums, on=["device", "step"])
    copies = tables["activities"].filter(pl.col("kind") != "kernel").get_column("duration_ns").sum()
    excess = (of_steps.get_column("device_ns") - of_steps.get_column("time_ns")).sum()
    assert 0 <= excess <= copies


@pytest.mark.parametrize(("count", "forward_ns"), [(3, 30), (2, 30), (1, 90)])
def test_a_mean_has_no_first_step_beside_others(count: int, forward_ns: int) -> None:
    report = analysed([
        [annotation(f"ProfilerStep#{n}", 200 * n, 200), op("forward", 200 * n, 30 if n else 90),
         launched("gemm", 200 * n + 5, 200 * n + 10, 60, n + 1)]
        for n in range(count)
    ])  # fmt: skip
    assert dict(shown(report, "phases", "phase", "host_ns"))["forward"] == forward_ns
    assert ("one step alone need not be typical" in report.summary(verbose=True)) == (count == 2)
