"""Check that the product's tables equal those of the strict reference reader in every column."""

import gzip
import json
import os
from pathlib import Path

import pytest
from conftest import CORPUS
from generator import RandomTrace, random_traces
from hypothesis import given, settings, strategies as st
from kineto import kernel, op, trace_bytes
from reference import assert_same, columns_read, read
from test_fast_reader import events
from tiers import examples

from trace_analyzer.errors import NotATrace
from trace_analyzer.ingest import Trace, fast, load, tables

LAYOUTS = ({}, {"separators": (",", ":")}, {"indent": 2}, {"indent": 4, "ensure_ascii": False})
FIRST_EVENTS = int(os.environ.get("REFERENCE_EVENTS", "1000"))
"""How many events of each real trace are compared; set it to a million for all."""


def first_events(content: bytes, count: int) -> bytes:
    """Return the trace with its first events only, in the file's own bytes: digits, key order and blanks are kept."""
    text = content.decode()
    at = text.index("[", text.index('"traceEvents"')) + 1
    decoder, end = json.JSONDecoder(strict=False), at
    for _ in range(count):
        end = next(i for i in range(end, len(text)) if text[i] not in " \t\r\n,")
        if text[end] == "]":
            return content
        _, end = decoder.raw_decode(text, end)
    return (text[:end] + "]}").encode()


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.json.gz")), ids=lambda path: path.name)
def test_real_traces(path: Path) -> None:
    content = first_events(gzip.decompress(path.read_bytes()), FIRST_EVENTS)
    assert_same(load(content), read(content))


@given(random_traces())
@settings(max_examples=examples(10))
def test_random_traces(trace: RandomTrace) -> None:
    assert_same(load(trace.content), read(trace.content))


@given(st.lists(events(), min_size=2, max_size=20), st.sampled_from(LAYOUTS))
@settings(max_examples=examples(15))
def test_random_layouts_by_the_short_cut(rows: list[dict[str, object]], layout: dict[str, object]) -> None:
    content = json.dumps({"traceEvents": rows}, **layout).encode("utf-8", "surrogatepass")  # type: ignore[arg-type]
    try:
        trace = by_the_short_cut(content)
    except NotATrace:  # nothing of it can be read but metadata
        return
    assert_same(trace, read(content))


def by_the_short_cut(content: bytes) -> Trace:
    """Read the trace in chunks so small that the short cut is worth while."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fast, "_WORTH_BYTES", 0)
        patch.setattr(fast, "_CHUNK", 300)
        return load(content)


@pytest.mark.parametrize("field", ['"name": "other"', '"ts": 8000', '"args": {}', '"cat": "cpu_op"'])
def test_keys_twice(field: str) -> None:
    rows = [kernel(f"k{t}", t, 1, correlation=t + 1) for t in range(40)]
    content = trace_bytes(rows).replace(b'"name": "k7"', f'{field}, "name": "k7"'.encode())
    assert_same(by_the_short_cut(content), read(content))


def test_a_lone_message_type_is_an_input() -> None:
    rows = [op(f"op{t}", t, 1) for t in range(39)]
    rows.append(
        {
            "ph": "X", "cat": "user_annotation", "name": "a", "pid": 1, "tid": 1, "ts": 50, "dur": 1,
            "args": {"dtype": "Int"},
        }
    )  # fmt: skip
    content = trace_bytes(rows)
    assert_same(by_the_short_cut(content), read(content))


@pytest.mark.parametrize(
    "value",
    [
        {"a": 1},
        {"a": "b"}, [1, [2.5, None], "x"], True, 1.5, "\ud800",
    ],
)  # fmt: skip
def test_values_that_are_no_text(value: object) -> None:
    row = {"ph": "X", "cat": "cpu_op", "name": value, "pid": value, "tid": value, "ts": 1, "dur": 1}
    content = json.dumps({"traceEvents": [row | {"args": {"Input Dims": value, "dtype": value}}]}).encode()
    assert_same(load(content), read(content))


@pytest.mark.sampled
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "sample", sorted(Path(__file__).parents[1].glob("sample_traces/*.json.gz")), ids=lambda p: p.stem
)
def test_samples_in_every_layout(sample: Path, layout: dict[str, object]) -> None:
    document = json.loads(gzip.decompress(sample.read_bytes()))
    document["traceEvents"] = document["traceEvents"][:FIRST_EVENTS]
    content = json.dumps(document, **layout).encode()  # type: ignore[arg-type]
    assert_same(load(content), read(content))


def test_the_reference_reads_every_column() -> None:
    compared = (
        tables.HOST_EVENTS, tables.OPERATOR_INPUTS, tables.DEVICE_EVENTS, tables.COLLECTIVE_INPUTS,
        tables.SYNC_EVENTS, tables.DEVICE_ANNOTATIONS, tables.FLOWS, tables.MEMORY_EVENTS,
    )  # fmt: skip
    assert set(columns_read()) == {(table.name, column.name) for table in compared for column in table.columns}
