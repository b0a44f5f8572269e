"""Random traces and random damage for the fuzzers: valid and hostile events, layouts, numbers and bytes."""

import gzip
import json
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import reference
from broken_input import CASES

Mutation = Callable[[bytes, random.Random], bytes]

CATEGORIES = (
    *reference.KINDS, *(name.title() for name in ("kernel", "memcpy", "operator", "runtime")), *reference.FLOWS,
    "mtia_ccp_events", "something_new", "", None,
)  # fmt: skip
PHASES = ("X",) * 12 + ("B", "E", "s", "f", "t", "M", "i", "C", "N", "", None)
KEYS = sorted(
    {key for table in (reference.HOST_NUMBERS, reference.DEVICE_NUMBERS, reference.INPUTS) for keys in table.values()
     for key in ((keys,) if isinstance(keys, str) else keys)}
    | {"device", "grid", "block", "est. achieved occupancy %", "wait_on_stream", "Device Type", "Device Id",
       "Total Allocated", "Total Reserved", "In msg nelems", "Group size", "name", "unknown"}
)  # fmt: skip
NAMES = (
    "aten::mm", "k", "", " ", "[memory]", "thread_name", "ProfilerStep#1", "Record Window End", "}, {", '"},\n  {"', "},{", "\\",
    '"ts": 1', '{"ph": "X"}', "é\u2028", "\U0001f600", "a\tb", "\x1b[31m", "\u202e", "<script>", "traceEvents", "null", "NaN", "1",
)  # fmt: skip
TOKENS = (
    b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\\u", b"\\ud800", b"\\u0000", b"\xff", b"\xed\xa0\x80", b"\0", b"\n", b"\r\n",
    b"\xef\xbb\xbf", b"NaN", b"-Infinity", b"null", b"true", b"1e5", b"-0", b"0.0005", b"1e400", b"9" * 30, b'"ts":', b'"dur":',
    b'"args":{', b'"traceEvents":[', b"}, {", b"},\n  {", b'"ph":"B"', b'"ph":"E"', b'{"ph":"X","cat":"kernel","ts":1,"dur":1},',
)  # fmt: skip


def mutated(data: bytes, seed: int, more: Sequence[Mutation] = ()) -> bytes:
    """Make a new random trace, or change, cut, move or pack some bytes of the data; ``more`` are other ways to change it."""
    choose = random.Random(seed)
    if choose.random() < 0.4 or len(data) < 8:
        data = random_trace(choose)
        if choose.random() < 0.6:
            return data
    for _ in range(choose.choice((1, 1, 1, 2, 4))):
        data = choose.choice((_flip, _insert, _drop, _repeat, _number, _cut, *more))(data, choose)
    return gzip.compress(data, 1, mtime=0) if choose.random() < 0.03 else data


def _flip(data: bytes, choose: random.Random) -> bytes:
    at = choose.randrange(len(data) + 1)
    return data[:at] + bytes([choose.randrange(256)]) + data[at + 1 :]


def _insert(data: bytes, choose: random.Random) -> bytes:
    at = choose.randrange(len(data) + 1)
    return data[:at] + choose.choice(TOKENS) + data[at:]


def _drop(data: bytes, choose: random.Random) -> bytes:
    at = choose.randrange(len(data) + 1)
    return data[:at] + data[at + choose.choice((1, 2, 10, 100)) :]


def _repeat(data: bytes, choose: random.Random) -> bytes:
    at, to = choose.randrange(len(data) + 1), choose.randrange(len(data) + 1)
    return data[:to] + data[at : at + choose.choice((3, 30, 300))] + data[to:]


def _number(data: bytes, choose: random.Random) -> bytes:
    spots = list(re.finditer(rb"[0-9]+", data))
    if not spots:
        return data
    spot = choose.choice(spots)
    return data[: spot.start()] + number(choose).encode() + data[spot.end() :]


def _cut(data: bytes, choose: random.Random) -> bytes:
    return data[: choose.randrange(len(data) + 1)]


def number(choose: random.Random) -> str:
    """Choose a JSON number in some notation."""
    whole = choose.choice((0, 1, 7, 4096, 2**31, 2**53 + 1, 2**63, 10**15 + 3, choose.randrange(10**6)))
    return choose.choice(
        (f"{whole}", f"-{whole}", f"{whole}.0", f"{whole}.125", f"{whole}.0005", f"{whole}.{choose.randrange(10**4):04d}",
         f"{whole}e0", f"{whole}.5E+1", f"{whole}e-3", "NaN", "-Infinity", "1e400")
    )  # fmt: skip


def random_trace(choose: random.Random) -> bytes:
    """Build a valid trace in a random layout: blanks, order of keys, notation of numbers, escapes, hostile names."""
    base = choose.choice((0, 0, 1_000, 1_700_000_000_000_000))
    rows = [_event(choose, base) for _ in range(choose.choice((0, 1, 2, 5, 20, 60)))]
    between = choose.choice((",", ", ", ",\n", ",\n  ", "\n, ", ",\r\n\t"))
    colon = choose.choice((":", ": ", " : "))
    ascii_only = choose.random() < 0.5
    # One order of keys for most events, as in real exports.
    order = choose.sample(("ph", "cat", "name", "pid", "tid", "ts", "dur", "id", "args"), 9)
    text = between.join(_written(row, order, choose, colon, ascii_only) for row in rows)
    if choose.random() < 0.2:
        return f"[{text}]".encode("utf-8", "surrogatepass")
    devices = '"deviceProperties": [{"id": 0, "name": "x", "numSms": 4}], '
    head = choose.choice(('"schemaVersion": 1, ', "", devices, '"a": [{"b": "}, {"}], '))
    tail = choose.choice(("", ', "distributedInfo": {"rank": 1}', ', "traceName": "}, {"'))
    blank = choose.choice(("", " ", "\n  "))
    return f'{{{head}"traceEvents"{colon}[{blank}{text}{blank}]{tail}}}'.encode("utf-8", "surrogatepass")


def _event(choose: random.Random, base: int) -> dict[str, Any]:
    args = {key: _value(choose) for key in choose.sample(KEYS, choose.choice((0, 1, 3, 6)))}
    event: dict[str, Any] = {
        "ph": choose.choice(PHASES), "cat": choose.choice(CATEGORIES), "name": choose.choice(NAMES),
        "pid": choose.choice((0, 1, 1, "p", "1")), "tid": choose.choice((0, 7, 7, "t", -1)),
        "ts": _microseconds(choose, base), "dur": _microseconds(choose, 0), "id": choose.randrange(9), "args": args,
    }  # fmt: skip
    for key in choose.sample(sorted(event), choose.choice((0, 0, 0, 1, 2))):
        del event[key]
    if choose.random() < 0.05:
        event[choose.choice(sorted(event) or ["name"])] = _value(choose)
    return event


def _microseconds(choose: random.Random, base: int) -> reference.Digits:
    if choose.random() < 0.04:
        return reference.Digits(number(choose))
    digits = choose.choice(("", ".5", ".125", ".0004", ".9999", f".{choose.randrange(1000):03d}", "e0", ".25e1"))
    return reference.Digits(f"{base + choose.randrange(500)}{digits}")


def _value(choose: random.Random) -> Any:
    return choose.choice(
        (choose.randrange(9), choose.randrange(9), reference.Digits(number(choose)), choose.choice(NAMES), True, None, [], [1, 2, 3],
         [[2, 3], []], [4, "x", None], {"a": 1}, "float", "7", "0.5", " 5", "1_0", "0x1")
    )  # fmt: skip


def _written(row: dict[str, Any], order: list[str], choose: random.Random, colon: str, ascii_only: bool) -> str:
    keys = choose.sample(sorted(row), len(row)) if choose.random() < 0.1 else [key for key in order if key in row]
    cells = (f'"{key}"{colon}{_json(row[key], colon, ascii_only)}' for key in keys)
    return "{" + ", ".join(cells) + "}"


def _json(value: Any, colon: str, ascii_only: bool) -> str:
    if isinstance(value, reference.Digits):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{k}"{colon}{_json(v, colon, ascii_only)}' for k, v in value.items()) + "}"
    return json.dumps(value, ensure_ascii=ascii_only)


def seeds(folder: Path) -> None:
    """Write valid, unusual and broken traces as seeds."""
    for i, case in enumerate(CASES):
        if isinstance(case.make, bytes) and len(case.make) < 20_000:
            (folder / f"seed-{i}").write_bytes(case.make)
    for i in range(30):
        (folder / f"random-{i}").write_bytes(random_trace(random.Random(i)))
