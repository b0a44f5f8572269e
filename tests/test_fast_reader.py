"""Check that the fast reader agrees with the strict one on any layout, or declines."""

import json
import re
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings, strategies as st
from tiers import examples

from trace_analyzer.errors import InputError
from trace_analyzer.ingest import classify, fast, source, strict
from trace_analyzer.ingest.build import trace_tables
from trace_analyzer.ingest.strict import read_document

HEAD = 1500
TABLES = (
    "threads", "devices", "host_events", "operator_inputs", "device_events", "collective_inputs",
    "sync_events", "device_annotations", "flows", "memory_events",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast, "_WORTH_BYTES", 0)
    monkeypatch.setattr(fast, "_CHUNK", 300)
    monkeypatch.setattr(fast, "_ROWS", 7)
    monkeypatch.setattr(fast, "_WORTH_EVENTS", 3)
    monkeypatch.setattr(source, "_CHUNK", 170)
    monkeypatch.setattr(strict, "_HEAD", HEAD)


def read(content: bytes) -> classify.TraceDocument:
    return read_document(source.content_of(content))


def strictly(content: bytes) -> classify.TraceDocument:
    short_cut, fast.scanned = fast.scanned, lambda head, blocks: None
    try:
        return read(content)
    finally:
        fast.scanned = short_cut


def takes_short_cut(content: bytes) -> bool:
    actual = fast.scanned(content[:HEAD], iter((content[HEAD:],)))
    return actual is not None and actual.event_count > 0


def assert_same(content: bytes) -> bool:
    """Compare all tables; return whether the fast reader was used."""
    quick, strict = read(content), strictly(content)
    assert quick.notes == strict.notes
    assert quick.event_count == strict.event_count
    one, other = trace_tables(quick, "t"), trace_tables(strict, "t")
    assert one.header == other.header
    assert one.notes == other.notes
    for name in TABLES:
        assert getattr(one, name).equals(getattr(other, name)), name
    return takes_short_cut(content)


names = st.text(max_size=12) | st.sampled_from(
    ["}, {", '"},\n  {"', "},{", "\\", '"ts": 1', "é\u2028", "\U0001f600", "a\tb"]
)
microseconds = (
    st.integers(0, 10**15)
    | st.floats(0, 10**13, allow_nan=False)
    | st.floats(0, 100)
    | st.decimals(0, 10**6, places=3).map(float)
)
dims = st.lists(st.lists(st.integers(0, 99), max_size=3), max_size=3)
values = names | st.integers(-(2**40), 2**40) | st.booleans() | st.none() | dims


@st.composite
def events(draw: st.DrawFn) -> dict[str, Any]:
    categories = ["cpu_op", "kernel", "cuda_runtime", "python_function", "user_annotation", "ac2g", None]
    event = {
        "ph": draw(st.sampled_from("XXXXXXsfiM")), "cat": draw(st.sampled_from(categories)), "name": draw(names),
        "pid": draw(st.integers(0, 3)),
        "tid": draw(st.integers(0, 3) | names), "ts": draw(microseconds), "dur": draw(microseconds), "id": draw(st.integers(0, 9)),
        "args": {
            "correlation": draw(st.integers(0, 9)), "device": draw(st.integers(0, 1)), "stream": draw(st.integers(0, 3)),
            "External id": draw(st.integers(0, 9)), "Input Dims": draw(values), "Concrete Inputs": draw(values),
            "grid": [draw(st.integers(1, 9)), 1, 1], "unknown": draw(values),
        },
    }  # fmt: skip
    order = draw(st.permutations(list(event)))
    return {key: event[key] for key in order if key in ("ph", "args") or draw(st.integers(0, 9))}


LAYOUTS: tuple[dict[str, Any], ...] = (
    {},
    {"separators": (",", ":")},
    {"indent": 2},
    {"indent": 4, "ensure_ascii": False},
)


@given(st.lists(events(), min_size=2, max_size=25), st.sampled_from(LAYOUTS), st.booleans(), st.data())
@settings(max_examples=examples(25))
def test_any_layout(rows: list[dict[str, Any]], layout: dict[str, Any], bare: bool, data: st.DataObject) -> None:
    head = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "x"}, {"id": 1, "name": "y"}]}
    tail = {"traceName": "}, {", "distributedInfo": {"rank": 1}}
    whole = rows if bare else head | {"traceEvents": rows} | tail
    text = json.dumps(whole, **layout)
    if data.draw(st.booleans()):
        text = text.replace("\n", "\r\n")
    assert_same_or_refused(text.encode("utf-8", "surrogatepass"))


def plain(i: int, **more: Any) -> dict[str, Any]:
    row = {"ph": "X", "cat": "cpu_op", "name": f"op{i}", "pid": 1, "tid": 1, "ts": 10.125 * i, "dur": 3.5}
    return row | {"args": {"External id": i}} | more


def written(count: int = 40, odd: dict[int, dict[str, Any]] | None = None, **layout: Any) -> bytes:
    """Return a file of plain events, some of them with other values."""
    return json.dumps({"traceEvents": [plain(i, **(odd or {}).get(i, {})) for i in range(count)]}, **layout).encode()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_sound_files_take_the_short_cut(layout: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    content = written(**layout)
    assert assert_same(content)
    monkeypatch.setattr(fast, "_scanner", None)
    assert not takes_short_cut(content), "without the compiled reader all is read strictly"
    assert trace_tables(read(content), "t").host_events.height == 40
    assert not read(content).notes


@pytest.mark.sampled
@pytest.mark.parametrize(
    "odd",
    [
        {"name": "\ud800"}, {"ts": 2.0005}, {"dur": 0.00049999999}, {"name": "}, {"},
        {"args": {"nested": [{"a": 1}, {"b": 2}]}}, {"args": [1]}, {"args": {"Input Dims": [[2, 3], []]}}, {"pid": "Spans"},
    ],
)  # fmt: skip
def test_odd_events_lose_nothing(odd: dict[str, Any]) -> None:
    content = written(odd={20: odd})
    assert_same(content)
    assert trace_tables(read(content), "t").host_events.height == 40


@pytest.mark.parametrize("cut", [1, 5, 40, 200, 1000])
def test_a_broken_file_keeps_what_stands_before(cut: int) -> None:
    assert_same(written()[:-cut])
    assert [note.code for note in read(written()[:-cut]).notes] == ["truncated"]


@pytest.mark.sampled
@pytest.mark.parametrize(
    "faults", [["+"], ["None"], ["}}", "{"], ['"'], ["],"], ["null,"], ["{}"], ["+"] * 30, ["[" * 300]]
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_both_readers_go_on_after_the_same_faults(faults: list[str], layout: dict[str, Any]) -> None:
    text = json.dumps({"traceEvents": [plain(i) for i in range(60)], "distributedInfo": {"rank": 3}}, **layout)
    for number, fault in enumerate(faults):
        at = text.index('"ts"', text.index(f'"op{10 + number}"'))
        text = text[:at] + fault + text[at:]
    assert_same(text.encode())
    assert trace_tables(read(text.encode()), "t").host_events.height >= 60 - 2 * len(faults)


@pytest.mark.parametrize("path", [r"C:\torch\_init.py", 'a" "'])
def test_where_many_events_are_damaged_the_fast_reader_resumes_rarely(
    monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(fast, "_CHUNK", 1 << 20)
    monkeypatch.setattr(fast, "_WORTH_EVENTS", 50)
    scans = Mock(side_effect=fast._frames)
    monkeypatch.setattr(fast, "_frames", scans)
    text = re.sub(r"op(\d*[02468])\b", lambda match: f"{path}{match[1]}", json.dumps([plain(i) for i in range(1000)]))
    assert read(text.encode()).notes
    assert 2 < scans.call_count < 1000 / 50 * 2


@pytest.mark.slow
@given(st.data())
@settings(max_examples=examples(25))
def test_both_readers_go_on_after_any_damage(data: st.DataObject) -> None:
    rows = [plain(i, args={"Input Dims": [[1, i]]}) for i in range(30)]
    text = json.dumps({"traceEvents": rows, "x": 1}, **data.draw(st.sampled_from(LAYOUTS)))
    pieces = ["", "{", "}", "[", "]", '"', ",", ":", "\\", "x", "1", " ", '{"ph": "X"}', "\u00e9"]
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(40, len(text) - 1))
        text = text[:at] + data.draw(st.sampled_from(pieces)) + text[at + data.draw(st.integers(0, 3)) :]
    assert_same_or_refused(text.encode())


def assert_same_or_refused(content: bytes) -> None:
    words = []
    for reader in (read, strictly):
        try:
            reader(content)
        except InputError as error:
            words.append(str(error))
    assert len(words) in (0, 2)
    if words:
        assert words[0] == words[1]
    else:
        assert_same(content)


def test_events_behind_a_second_list_or_of_another_list_are_not_taken() -> None:
    rows = [plain(i) for i in range(40)]
    assert not takes_short_cut(json.dumps({"a": [{"traceEvents": rows}]}).encode())
    assert not takes_short_cut(json.dumps({"a": {"traceEvents": rows}, "traceEvents": rows}).encode())
    assert_same(json.dumps({"traceEvents": rows, "a": {"traceEvents": rows}}).encode())


@pytest.mark.sampled
@pytest.mark.parametrize("raw", ["\n", "\r", "\t", "\x01"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_raw_control_characters_stay_in_names(raw: str, layout: dict[str, Any]) -> None:
    content = written(odd={i: {"name": f"a~b{i}"} for i in range(40)}, **layout).replace(b"~", raw.encode())
    names = trace_tables(read(content), "t").host_events.get_column("name")
    assert names.to_list() == [f"a{raw}b{i}" for i in range(40)]


@pytest.mark.parametrize("raw", ["\n", "\r", "\t", "\x01"])
def test_raw_control_characters_stay_in_names_of_rare_categories(monkeypatch: pytest.MonkeyPatch, raw: str) -> None:
    """In one chunk with many others, where few are read strictly."""
    monkeypatch.setattr(fast, "_CHUNK", 1 << 20)
    monkeypatch.setattr(source, "_CHUNK", 1 << 20)
    content = written(400, {20: {"cat": "no_such", "name": "a~b"}}).replace(b"~", raw.encode())
    assert trace_tables(read(content), "t").host_events.get_column("name").to_list()[20] == f"a{raw}b"


@pytest.mark.sampled
@pytest.mark.parametrize(("fraction", "ns"), [(".125", 125), (".9999", 1000), ("", 0), ("e0", 0), (".5e0", 500)])
def test_epoch_based_times_keep_their_nanoseconds(fraction: str, ns: int) -> None:
    rows = json.dumps({"traceEvents": [plain(i, ts=i + 10) for i in range(40)]})
    content = re.sub(r'"ts": (\d\d)', rf'"ts": 16958355425142\1{fraction}', rows).encode()
    assert assert_same(content)
    assert trace_tables(read(content), "t").origin_ns == 1695835542514210_000 + ns


@pytest.mark.parametrize("size", [150, 299, 301, 1000])
def test_events_longer_than_a_piece_or_than_may_be(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Pieces end within events where the first separator is not that of the others."""
    monkeypatch.setattr(fast, "_LONGEST", 600)
    rows = [plain(i, name="n" * (size if i > 5 else 1)) for i in range(20)]
    text = "[" + ",\n".join(json.dumps(row) for row in rows[:2]) + "".join(f" ,{json.dumps(r)}" for r in rows[2:]) + "]"
    assert assert_same(text.encode())
    assert trace_tables(read(text.encode()), "t").host_events.height == 20
