"""Test the whole program on damaged traces, and properties that must not matter, on real traces with random damage."""

import copy
import gzip
import json
import random
from typing import Any

import polars as pl
import pytest
import zstandard
from broken_input import CASES
from conftest import CORPUS, corpus_rows
from mutations import mutated, random_trace
from program_laws import assert_same_judgement, check_program, shuffled

from trace_analyzer.ingest import Trace, fast, load
from trace_analyzer.pipeline import analyze

SMALL = 1_500
FILES = [row["file"] for row in corpus_rows()][::2]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_every_promise_holds_on_random_damage(seed: int) -> None:
    check_program(mutated(random_trace(random.Random(seed)), seed), page=seed % 4 == 0)


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("case", [c for c in CASES if isinstance(c.make, bytes)][::3], ids=lambda case: case.what)
def test_every_promise_holds_on_hostile_input(case: Any) -> None:
    check_program(case.make)


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_every_promise_holds_on_damaged_real_traces(file: str) -> None:
    check_program(mutated(json.dumps(first_events(file)).encode(), 1_000), page=False)


def first_events(file: str) -> dict[str, Any]:
    """Return the document of a real trace with only its first events, numbers as they stand."""
    document = json.loads(gzip.decompress((CORPUS / file).read_bytes()), strict=False)
    document = {"traceEvents": document} if isinstance(document, list) else document
    return document | {"traceEvents": [e for e in document["traceEvents"] if isinstance(e, dict)][:SMALL]}


def mutant(file: str, seed: int) -> dict[str, Any]:
    """Return a real trace in which some events are gone and some have other times, durations or correlation ids."""
    choose, document = random.Random(seed), copy.deepcopy(first_events(file))
    for event in choose.sample(document["traceEvents"], len(document["traceEvents"]) // 20):
        what = choose.choice(("drop", "ts", "dur", "correlation"))
        if what == "drop":
            event["ph"] = "gone"
        elif what == "correlation" and isinstance(event.get("args"), dict):
            event["args"]["correlation"] = choose.randrange(1, 500)
        elif isinstance(event.get(what), (int, float)):
            longer, later = event[what] * choose.choice((0.5, 1.0, 1.5)), event[what] + choose.randrange(-50, 50)
            event[what] = round(longer if what == "dur" else later, 3)
    kept = [event for event in document["traceEvents"] if event.get("ph") != "gone"]
    for place, event in enumerate(kept):  # no two events are equal, so that their order cannot matter
        if isinstance(event.get("ts"), (int, float)):
            event["ts"] = round(event["ts"] - 0.001 * (place % 7), 3)
    return document | {"traceEvents": kept}


def same_trace(one: Trace, other: Trace) -> bool:
    """Return whether all data read from two files is equal: reports depend on nothing else."""
    pairs = ((getattr(one, name), getattr(other, name)) for name in Trace.__struct_fields__ if name != "path")
    return all(a.equals(b) if isinstance(a, pl.DataFrame) else a == b for a, b in pairs)


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_packing_layout_and_reader_do_not_matter(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether compressed, in whatever layout, read by compiled code or strictly: the same is read and so reported."""
    document = mutant(file, 1)
    content, indented = json.dumps(document).encode(), json.dumps(document, indent=2).encode()
    compact, expected = json.dumps(document, separators=(",", ":")).encode(), load(content)
    for other in (gzip.compress(content), zstandard.compress(content), compact, indented):
        assert same_trace(load(other), expected)
    monkeypatch.setattr(fast, "_WORTH_BYTES", 0)
    assert same_trace(load(content), expected)
    monkeypatch.setattr(fast, "_CHUNK", 5_000)
    assert same_trace(load(compact), expected)


def renamed(event: dict[str, Any], of_devices: set[str]) -> dict[str, Any]:
    """Return the event with other numbers of correlations, arrows, host processes, host threads and streams."""
    event = dict(event)
    if event.get("ph") in ("s", "f") and isinstance(event.get("id"), int):
        event["id"] = 5 * event["id"] + 7
    if str(event.get("pid")) in of_devices:
        if isinstance(event.get("tid"), int):
            event["tid"] = other_stream(event["tid"])
    elif isinstance(event.get("pid"), int):
        event["pid"] += 1_000_000
        if isinstance(event.get("tid"), int):
            event["tid"] += 7_000_000
    if isinstance(args := event.get("args"), dict):
        streams = {key: other_stream(args[key]) for key in ("stream", "wait_on_stream") if key in args}
        number = args.get("correlation")
        ids = {"correlation": 3 * number + 1_000} if isinstance(number, int) and number > 0 else {}
        event["args"] = args | streams | ids
    return event


def other_stream(number: Any) -> Any:
    return 2 * number + 20 if isinstance(number, int) and 0 <= number < 1 << 31 else number


def is_on_device(event: dict[str, Any]) -> bool:
    """Return whether the event's process is a device and its thread a stream."""
    return isinstance(event.get("args"), dict) and "stream" in event["args"] and "device" in event["args"]


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_numbers_order_and_origin_do_not_matter(file: str) -> None:
    """Ids, processes, threads and streams only have to be distinguished; Kineto writes events by activity, not by time.

    Events may come in any order, but for metadata and halves of pairs, of which the later ones count.
    """
    document = mutant(file, 2)
    of_devices = {str(event.get("pid")) for event in document["traceEvents"] if is_on_device(event)}
    events = [renamed(event, of_devices) for event in document["traceEvents"]]
    for event in events:
        if isinstance(event.get("ts"), (int, float)):
            event["ts"] = round(event["ts"] + 4_096, 3)
    assert_same_judgement(analyze(json.dumps(document).encode()), document | {"traceEvents": shuffled(events)})
