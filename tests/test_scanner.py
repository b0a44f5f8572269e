"""Test the compiled scanner: its values equal those of the strict reader, and no text crashes it."""

import json
import random
from typing import Any

import polars as pl
import pytest
from hypothesis import given, strategies as st

from trace_analyzer.ingest.raw import nanoseconds, strict_decoder, text_of

_scanner = pytest.importorskip("trace_analyzer.ingest._scanner", reason="the reader was not compiled")

COLUMNS = [
    ("ph", _scanner.LABEL), ("cat", _scanner.LABEL), ("name", _scanner.LABEL), ("ts", _scanner.TIME), ("dur", _scanner.TIME),
    ("stream", _scanner.INTEGER), ("dims", _scanner.TEXT),
]  # fmt: skip
FIELDS = {"ph": "ph", "cat": "cat", "name": "name", "ts": "ts", "dur": "dur"}
ARGUMENTS = {"stream": "stream", "Stream": "stream", "dims": "dims"}
SPANS = 0
RICH = (
    '{"ph": "X", "cat": "a", "name": "k\\u00e9\\n", "ts": 12.5, "dur": 1e3, "args": {"stream": 7, "dims": [[1,2],[]], "x": {"y": [null, -1.5e-3, true]}}},'
    '\n{"ph":"X","cat":"a","name":"k","ts":0.0005,"dur":3,"args":{"stream":"7","dims":"t"}} ,{"ph":"i","ts":null}]'
)


def scanner(rows: int = 16) -> Any:
    return _scanner.Scanner(COLUMNS, FIELDS, ARGUMENTS, [(("a",), "X", [name for name, _ in COLUMNS])], 1, rows)


def readable(raw: bytes) -> str | None:
    value = strict_decoder().decode(raw.decode())
    return value if type(value) is str else text_of(value)


def read(text: str, rows: int = 16) -> tuple[int, int, dict[int, pl.DataFrame]]:
    """Return how the scan ended, where, and its events by route."""
    scan, content = scanner(rows), text.encode()
    ending, at, _ = scan.read(content, 0, len(content))
    words = {form: scan.words(content, form, readable) for form in (_scanner.LABEL, _scanner.TEXT)}
    frames = {}
    for route in scan.taken():
        columns = {"row": pl.Series(scan.rows(route, 0))}
        for name, form in COLUMNS if route != _scanner.ODD else ():
            if form in words:
                codes = pl.Series(scan.codes(route, name)).to_list()
                columns[name] = pl.Series([words[form][code] for code in codes], dtype=pl.String)
            else:
                columns[name] = pl.Series(scan.integers(route, name))
        frames[route] = pl.DataFrame(columns)
    return ending, at, frames


def test_values_of_events() -> None:
    ending, at, frames = read(RICH)
    assert (ending, at) == (_scanner.CLOSED, len(RICH) - 1)
    assert frames[SPANS].rows() == [(1, "X", "a", "k", 0, 3000, 7, "t")]
    assert frames[_scanner.NO_ROUTE].rows() == [(2, "i", None, None, None, None, None, None)]
    assert frames[_scanner.ODD].get_column("row").to_list() == [0]  # an exponent


@pytest.mark.parametrize(
    "event",
    [
        '{"ph": "X", "ts": "1"}', '{"ph": "X", "ts": 1E0}', '{"ph": "X", "ts": 4000000000000000}', '{"ph": "X", "ts": true}',
        '{"ph": "X", "ph": "X"}', '{"args": {}, "args": {}}', '{"args": {"stream": 1, "Stream": 1}}', '{"args": {"stream": 1.0}}',
        '{"args": {"stream": 1234567890123456789}}', '{"args": {"stream": -0}}', '{"args": {"stream": "01"}}',
        '{"args": {"stream": ""}}', '{"args": {"stream": [1]}}', '{"ts": NaN}', '{"ts": -Infinity}', '{"\\u0070h": "X"}',
    ],
)  # fmt: skip
def test_events_out_of_the_ordinary_are_left_to_the_strict_reader(event: str) -> None:
    ending, _, frames = read(event + "]")
    assert ending == _scanner.CLOSED
    assert list(frames) == [_scanner.ODD]


@pytest.mark.parametrize(
    "text",
    [
        "1]", "null]", "]", '{"ph" "X"}]', '{"ph": 01}]', '{"ph": .5}]', '{"ph": 1.}]', '{"ph": 1e}]', '{"ph": +1}]', '{ph: 1}]',
        '{"ph": tru}]', '{"ph": "\\x"}]', '{"ph": "\\u12g4"}]', '{"ph": 1,}]', '{"x": [1,]}]', '{"x": [}]}]', '{"x": {]}]',
        '{"x": ' + "[" * 300 + "]" * 300 + "}]", '{"ph": "X"} {"ph": "X"}]', "\0{}]", '{"ph": "X"}\0]', '{"x": \0}]',
    ],
)  # fmt: skip
def test_what_is_no_sound_event_ends_the_scan_there(text: str) -> None:
    assert read(text)[:2] == (_scanner.BROKEN, 0)


@pytest.mark.parametrize("size", range(len(RICH.encode())))
def test_a_text_may_end_anywhere(size: int) -> None:
    content = RICH.encode()[:size]
    assert scanner().read(RICH.encode(), 0, size) == scanner().read(content, 0, size), "whatever follows"
    starts = [0, RICH.index('{"ph":"X"'), RICH.index('{"ph":"i"')]
    ending, at, events = scanner().read(content, 0, len(content))
    if ending == _scanner.MORE:
        assert at == size
    else:
        assert (ending, at) == (_scanner.PARTIAL, starts[events])


@pytest.mark.slow
@given(
    st.binary(max_size=60) | st.text(alphabet='{}[]",:\\u0019.eE-+tfnN Infya\t\n', max_size=60).map(str.encode),
    st.integers(0, 400),
)
def test_no_text_breaks_it(noise: bytes, place: int) -> None:
    content = RICH.encode()[:place] + noise + RICH.encode()[place:]
    scan = scanner()
    _, at, events = scan.read(content, 0, len(content))
    assert 0 <= at <= len(content)
    assert sum(scan.taken().values()) == events
    for _, start, end in (place for route in scan.taken() for place in scan.places(route)):
        assert isinstance(strict_decoder().decode(content[start:end].decode("utf-8", "replace")), dict)
    for form in (_scanner.LABEL, _scanner.TEXT):
        scan.words(content, form, lambda raw: raw.decode("utf-8", "replace"))


@given(st.decimals(-(10**15), 10**15, places=5) | st.integers(-(10**16), 10**16) | st.floats(0, 1e15))
def test_times_are_those_of_exact_arithmetic(us: Any) -> None:
    _, _, frames = read(f'{{"ph": "X", "cat": "a", "ts": {us}}}]')
    if SPANS in frames:
        assert frames[SPANS].get_column("ts").to_list() == nanoseconds(pl.Series([str(us)])).to_list()
    else:
        assert "e" in str(us) or abs(us) >= 4 * 10**15


@pytest.mark.slow
@given(
    st.recursive(st.integers() | st.text(max_size=5) | st.none() | st.booleans() | st.floats(), st.lists, max_leaves=9),
    st.sampled_from([{}, {"indent": 1}, {"separators": (",", ":")}, {"ensure_ascii": False}]),
)
def test_lists_are_reported_as_the_strict_reader_tells_them(value: Any, layout: dict[str, Any]) -> None:
    text = json.dumps([value], **layout).encode("utf-8", "replace").decode()
    _, _, frames = read(f'{{"ph": "X", "cat": "a", "args": {{"dims": {text}}}}}]')
    assert frames[SPANS].get_column("dims").to_list() == [readable(text.encode())]


def test_it_stops_when_rows_are_used_up_and_goes_on_there() -> None:
    content = (",".join(f'{{"ph": "X", "cat": "a", "name": "n{i}"}}' for i in range(10)) + "]").encode()
    scan, at, names = scanner(rows=4), 0, []
    for expected in (_scanner.FULL, _scanner.FULL, _scanner.CLOSED):
        ending, at, _ = scan.read(content, at, len(content))
        assert ending == expected
        words = scan.words(content, _scanner.LABEL, readable)
        names += [words[code] for code in pl.Series(scan.codes(SPANS, "name"))]
    assert names == [f"n{i}" for i in range(10)]


def test_an_event_with_a_key_a_thousand_times_takes_no_more_room_than_another() -> None:
    event = "{" + ",".join(f'"name": "{i}"' for i in range(5000)) + "}"
    ending, _, frames = read(event + "," + event + "]", rows=2)
    assert ending == _scanner.CLOSED
    assert frames[_scanner.ODD].height == 2


def test_words_that_differ_in_their_last_letter_stay_apart() -> None:
    names = [random.Random(i).randbytes(40).hex() for i in range(300)]
    content = (",".join(f'{{"ph": "X", "cat": "a", "name": "{n}{e}"}}' for n in names for e in "ab") + "]").encode()
    scan = scanner(rows=1000)
    scan.read(content, 0, len(content))
    words = scan.words(content, _scanner.LABEL, readable)
    assert [words[code] for code in pl.Series(scan.codes(SPANS, "name"))] == [n + e for n in names for e in "ab"]


def test_columns_and_words_are_of_the_last_scan() -> None:
    content = RICH.encode()
    scan = scanner()
    scan.read(content, 0, len(content))
    column = scan.rows(SPANS, 5)
    assert pl.Series(column).to_list() == [6]
    with pytest.raises(ValueError, match="taken"):
        column.__arrow_c_array__()
    with pytest.raises(ValueError, match="another text"):
        scan.words(bytes(bytearray(content)), _scanner.LABEL, readable)
    with pytest.raises(KeyError, match="name"):
        scan.codes(_scanner.ODD, "name")
    with pytest.raises(IndexError, match="route"):
        scan.rows(128, 0)
    with pytest.raises(ValueError, match="no place"):
        scan.read(content, len(content) + 1, len(content))
    with pytest.raises(TypeError):
        scan.read(bytearray(content), 0, 1)
