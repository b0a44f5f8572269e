"""Test the whole program on damaged traces, and properties that must not matter, on real traces with random damage."""

import gzip
import json
import random
from dataclasses import fields, replace
from functools import cache
from typing import Any

import polars as pl
import pytest
import zstandard
from broken_input import CASES
from conftest import CORPUS, corpus_rows
from mutations import mutated, random_trace
from program_laws import check_program

from trace_analyzer.ingest import Trace, fast, load
from trace_analyzer.pipeline import analyze
from trace_analyzer.report import Report

SMALL = 1_500
FILES = [row["file"] for row in corpus_rows()]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_every_promise_holds_on_random_damage(seed: int) -> None:
    check_program(mutated(random_trace(random.Random(seed)), seed), page=seed % 4 == 0)


@pytest.mark.slow
@pytest.mark.parametrize("case", [c for c in CASES if isinstance(c.make, bytes)], ids=lambda case: case.what)
def test_every_promise_holds_on_hostile_input(case: Any) -> None:
    check_program(case.make)


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_every_promise_holds_on_damaged_real_traces(file: str) -> None:
    content = json.dumps(first_events(file)).encode()
    for seed in range(6):
        check_program(mutated(content, 1_000 + seed), page=False)


def first_events(file: str) -> dict[str, Any]:
    """Return the document of a real trace with only its first events, numbers as they stand."""
    document = json.loads(gzip.decompress((CORPUS / file).read_bytes()), strict=False)
    document = {"traceEvents": document} if isinstance(document, list) else document
    return document | {"traceEvents": [e for e in document["traceEvents"] if isinstance(e, dict)][:SMALL]}


def mutant(file: str, seed: int) -> dict[str, Any]:
    """Return a real trace in which some events are gone and some have other times, durations or correlation ids."""
    choose, document = random.Random(seed), first_events(file)
    events = [
        dict(e, args=dict(e["args"])) if isinstance(e.get("args"), dict) else dict(e) for e in document["traceEvents"]
    ]
    for event in choose.sample(events, len(events) // 20):
        what = choose.choice(("drop", "ts", "dur", "correlation"))
        if what == "drop":
            event["ph"] = "gone"
        elif what == "correlation" and isinstance(event.get("args"), dict):
            event["args"]["correlation"] = choose.randrange(1, 500)
        elif isinstance(event.get(what), (int, float)):
            event[what] = round(
                event[what] * choose.choice((0.5, 1.0, 1.5))
                if what == "dur"
                else event[what] + choose.randrange(-50, 50),
                3,
            )
    kept = [event for event in events if event.get("ph") != "gone"]
    for place, event in enumerate(kept):  # no two events are equal, so that their order cannot matter
        if isinstance(event.get("ts"), (int, float)):
            event["ts"] = round(event["ts"] - 0.001 * (place % 7), 3)
    return document | {"traceEvents": kept}


@cache
def judged(file: str, seed: int) -> Report:
    """Return the report on a mutant, which several laws compare with that on a changed one."""
    return analyze(json.dumps(mutant(file, seed)).encode())


def same_trace(one: Trace, other: Trace) -> bool:
    """Return whether all data read from two files is equal: reports depend on nothing else."""
    return all(
        getattr(one, field.name).equals(getattr(other, field.name))
        if isinstance(getattr(one, field.name), pl.DataFrame)
        else field.name == "path" or getattr(one, field.name) == getattr(other, field.name)
        for field in fields(Trace)
    )


def essence(report: Report) -> dict[str, Any]:
    """Return the content of a report that depends on the program."""
    trace = replace(report.trace, path="", origin_ns="", base_time_ns=None)
    return {
        "trace": trace, "verdict": report.verdict, "devices": report.devices, "steps": report.steps, "advice": report.advice,
        "trust": report.trust, "notes": report.notes,
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_packing_layout_and_reader_do_not_matter(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compressed or not, in any layout, read by compiled code or strictly: the same is read, and so the report is the
    same.
    """
    document = mutant(file, 1)
    content = json.dumps(document).encode()
    expected = load(content)
    compact = json.dumps(document, separators=(",", ":")).encode()
    for other in (
        gzip.compress(content),
        zstandard.compress(content),
        compact,
        json.dumps(document, indent=2).encode(),
    ):
        assert same_trace(load(other), expected)
    monkeypatch.setattr(fast, "_WORTH_BYTES", 0)
    assert same_trace(load(content), expected)
    monkeypatch.setattr(fast, "_CHUNK", 5_000)
    assert same_trace(load(compact), expected)


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_the_origin_of_time_and_host_ids_do_not_matter(file: str) -> None:
    document = mutant(file, 2)
    expected = essence(judged(file, 2))
    later = [event | {"ts": round(event["ts"] + 4_096, 3)} if isinstance(event.get("ts"), (int, float)) else event
             for event in document["traceEvents"]]  # fmt: skip
    assert essence(analyze(json.dumps(document | {"traceEvents": later}).encode())) == expected


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_blocks_of_events_in_another_order_do_not_matter(file: str) -> None:
    """Kineto writes events by activity, not by time; blocks of one kind of event may come in any order."""
    document = mutant(file, 3)
    host = [e for e in document["traceEvents"] if "kernel" not in str(e.get("cat")) and "gpu_" not in str(e.get("cat"))]
    device = [e for e in document["traceEvents"] if e not in host]
    one, other = (json.dumps(document | {"traceEvents": rows}).encode() for rows in (host + device, device + host))
    first, second = analyze(one), analyze(other)
    assert first.verdict == second.verdict
    assert first.devices == second.devices
    assert first.trust == second.trust


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_the_numbers_of_correlations_do_not_matter(file: str) -> None:
    """Correlation ids and arrow ids only have to agree: consistently renamed, the report is the same."""
    document = mutant(file, 2)

    def renamed(event: dict[str, Any]) -> dict[str, Any]:
        args = event.get("args")
        if isinstance(args, dict) and isinstance(args.get("correlation"), int) and args["correlation"] > 0:
            event = event | {"args": args | {"correlation": 3 * args["correlation"] + 1_000}}
        return (
            event | {"id": 5 * event["id"] + 7}
            if event.get("ph") in ("s", "f") and isinstance(event.get("id"), int)
            else event
        )

    other = document | {"traceEvents": [renamed(event) for event in document["traceEvents"]]}
    first, second = judged(file, 2), analyze(json.dumps(other).encode())
    assert first.verdict == second.verdict
    assert first.devices == second.devices
    assert first.trust == second.trust


def assert_same_judgement(first: Report, other: dict[str, Any]) -> None:
    """Check that the other document gets the same verdict, figures of devices, steps, advice and checks."""
    second = analyze(json.dumps(other).encode())
    assert first.verdict == second.verdict
    assert first.devices == second.devices
    assert first.steps == second.steps
    assert first.advice == second.advice
    assert first.trust == second.trust


def is_on_device(event: dict[str, Any]) -> bool:
    """Return whether the event's process is a device and its thread a stream."""
    return isinstance(event.get("args"), dict) and "stream" in event["args"] and "device" in event["args"]


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_the_order_of_events_does_not_matter(file: str) -> None:
    """Events may come in any order, but for metadata and halves of pairs, of which the later ones count."""
    document = mutant(file, 3)
    events = document["traceEvents"]
    free = [place for place, event in enumerate(events) if event.get("ph") not in ("M", "B", "E")]
    shuffled = random.Random(5).sample(free, len(free))
    moved = dict(zip(free, shuffled, strict=True))
    other = [events[moved.get(place, place)] for place in range(len(events))]
    assert_same_judgement(judged(file, 3), document | {"traceEvents": other})


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_the_numbers_of_processes_and_threads_do_not_matter(file: str) -> None:
    """Processes and threads of the host only have to be distinguished; those of devices name devices and streams."""
    document = mutant(file, 3)
    of_devices = {str(event.get("pid")) for event in document["traceEvents"] if is_on_device(event)}

    def renamed(event: dict[str, Any]) -> dict[str, Any]:
        if str(event.get("pid")) in of_devices or not isinstance(event.get("pid"), int):
            return event
        event = event | {"pid": event["pid"] + 1_000_000}
        return event | {"tid": event["tid"] + 7_000_000} if isinstance(event.get("tid"), int) else event

    other = document | {"traceEvents": [renamed(event) for event in document["traceEvents"]]}
    assert_same_judgement(judged(file, 3), other)


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_the_numbers_of_streams_do_not_matter(file: str) -> None:
    """Streams only have to be distinguished: as threads of a device, in arguments, and where arrows end."""
    document = mutant(file, 2)
    of_devices = {str(event.get("pid")) for event in document["traceEvents"] if is_on_device(event)}

    def other(number: Any) -> Any:
        return 2 * number + 20 if isinstance(number, int) and 0 <= number < 1 << 31 else number

    def renamed(event: dict[str, Any]) -> dict[str, Any]:
        if str(event.get("pid")) in of_devices and "tid" in event:
            event = event | {"tid": other(event["tid"])}
        args = event.get("args")
        if not isinstance(args, dict):
            return event
        return event | {"args": args | {key: other(args[key]) for key in ("stream", "wait_on_stream") if key in args}}

    changed = document | {"traceEvents": [renamed(event) for event in document["traceEvents"]]}
    assert_same_judgement(judged(file, 2), changed)
