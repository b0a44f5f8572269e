"""Test that times which cannot be decide nothing: events without a time are left out, durations end in time."""

from typing import Any

import polars as pl
import pytest
from kineto import Event, analysed, annotation, call, kernel, launched, loaded, notes, op

BASE = 1_419_247_332_972
"""Microseconds, sixteen days after the base of the file."""
HOUR = 3_600_000_000


def steps(count: int = 6, base: float = BASE, **place: Any) -> list[Event]:
    """Build steps of 1 ms with 20 kernels of 10 us, each launched 50 us after the one before it."""
    events: list[Event] = []
    for step in range(count):
        at = base + 1_000 * step
        events.append(annotation(f"ProfilerStep#{step}", at, 999))
        for i, now in enumerate(at + 50 * i for i in range(20)):
            events.append(op("aten::add", now + 1, 45))
            events += launched("add", now + 4, now + 9, 10, 1 + 20 * step + i, takes=3, **place)
    return events


def kernels(events: list[Event]) -> list[Event]:
    return [event for event in events if event["cat"] == "kernel"]


PLAIN = loaded(*steps())


@pytest.mark.parametrize("days", [0.5, 5, 16, 29, 31, 50, 400])
@pytest.mark.parametrize(
    "share", ["one kernel", "one launch", "a kernel with a duration", "the last two steps", "all kernels of a step"]
)
def test_time_zero_decides_nothing_whenever_the_file_was_recorded(days: float, share: str) -> None:
    events = steps(base=round(days * 86_400_000_000))
    device = kernels(events)
    odd = {
        "one kernel": device[30:31],
        "one launch": [event for event in events if event["cat"] == "cuda_runtime"][30:31],
        "a kernel with a duration": device[30:31],
        "the last two steps": events[4 * 61 :],
        "all kernels of a step": device[40:60],
    }[share]
    for event in odd:
        event.update(ts=0, dur=10 if "duration" in share else 0)
    trace = loaded(*events)
    assert trace.duration_ns == (PLAIN.duration_ns if "last two" not in share else 4_000_000 - 1_000)
    assert trace.device_events.height + trace.host_events.height == len(events) - len(odd)
    assert notes(trace) == {"outside-time" if "last two" in share else "implausible-time": len(odd)}


def behind(events: list[Event]) -> list[Event]:
    """Return the events with a device whose clock is half an hour behind."""
    return [event | {"ts": event["ts"] - HOUR / 2 * (event["cat"] == "kernel")} for event in events]


@pytest.mark.parametrize(
    ("events", "count"),
    [
        ([annotation("start", 0, 0), kernel("k", 0, 10), *steps(base=0)], 121),
        ([annotation("start", 0, 0), kernel("k", 0, 10), *steps(base=500)], 121),
        ([*steps(), *(event | {"ts": event["ts"] + 5 * HOUR} for event in steps())], 240),
        (behind(steps()), 120),
    ],
    ids=["times from zero", "and a pause", "a pause of hours", "a clock that is behind"],
)
def test_times_that_can_be_are_kept(events: list[Event], count: int) -> None:
    trace = loaded(*events)
    assert (notes(trace), trace.device_events.height) == ({}, count)


def test_a_host_event_of_weeks_is_left_out_and_copies_of_seconds_between_kernels_are_shortened() -> None:
    trace = loaded(*steps(), op("aten::odd", BASE + 100, 1e12))
    assert (trace.duration_ns, notes(trace)) == (PLAIN.duration_ns, {"implausible-time": 1})
    events = steps()
    for i in (10, 20, 30):
        kernels(events)[i].update(name="Memcpy HtoD (Pageable -> Device)", cat="gpu_memcpy", dur=3e6)
    assert notes(loaded(*events)) == {"impossible-duration": 3}


@pytest.mark.parametrize("hours", [-300, -28, -2, -0.001, -0.0001, 2, 28, 300])
def test_kernels_far_from_their_launches_are_left_out(hours: float) -> None:
    events = steps()
    for event in kernels(events)[:3]:
        event["ts"] += hours * HOUR
    trace = loaded(*events)
    assert (trace.duration_ns, sum(notes(trace).values())) == (5_999_000, 3)
    assert notes(trace).keys() <= {"implausible-time", "outside-time"}


@pytest.mark.parametrize("odd", [[30], [0], [119], [7, 50, 51], [10, 30, 90]])
def test_a_duration_ends_where_the_streams_next_work_begins(odd: list[int]) -> None:
    events = steps()
    device = kernels(events)
    for i in odd:
        device[i]["dur"] = 3_400_000
    trace = loaded(*events)
    durations = trace.device_events.get_column("duration_ns").to_list()
    recorded = trace.device_events.get_column("recorded_ns").to_list()
    assert notes(trace) == {"impossible-duration": len(odd)}
    assert [i for i, ns in enumerate(recorded) if ns is not None] == odd
    assert {recorded[i] for i in odd} == {3_400_000_000}
    # The last one ends with the recording.
    assert {i: durations[i] for i in odd} == {i: 40_000 if i == 119 else 50_000 for i in odd}
    assert {durations[i] for i in range(120) if i not in odd} == {10_000}
    assert trace.duration_ns == 5_999_000


@pytest.mark.parametrize(
    "events",
    [
        # a long kernel overlaps the next one's start by less than half, as dependent launches do
        [kernel("a", 0, 5_000, correlation=1), kernel("b", 4_000, 5_000, correlation=2)],
        # nodes of a graph run at once, on the stream of their launch
        [kernel("a", 0, 5_000, correlation=1), kernel("b", 10, 5_000, correlation=1)],
        [kernel("a", 0, 5_000, **{"graph id": 1}), kernel("b", 10, 5_000, **{"graph id": 1})],
        # other streams, contexts and devices
        [kernel("a", 0, 5_000), kernel("b", 10, 5_000, stream=8)],
        [kernel("a", 0, 5_000), kernel("b", 10, 5_000, context=2)],
        [kernel("a", 0, 5_000), kernel("b", 10, 5_000, device=1)],
        # the last work outlasts the host's events
        [call("cudaLaunchKernel", 0, 5, correlation=1), kernel("a", 10, 1_900_000, correlation=1)],
    ],
)
def test_work_that_may_run_at_once_keeps_its_duration(events: list[Event]) -> None:
    trace = loaded(*events)
    assert trace.device_events.get_column("recorded_ns").null_count() == trace.device_events.height
    assert notes(trace) == {}


def test_times_are_possible_in_the_whole_report() -> None:
    events = steps()
    kernels(events)[30].update(ts=0, dur=0)
    kernels(events)[31].update(dur=9e6)
    report, plain = analysed(*events), analysed(*steps())
    assert report.verdict.regime == plain.verdict.regime == "overhead-bound"
    idle = [r.tables["causes"].select(pl.col("time_ns").sum()).item() for r in (report, plain)]
    assert idle[0] == pytest.approx(idle[1], rel=0.02)
