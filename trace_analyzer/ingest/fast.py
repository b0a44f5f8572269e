"""Read events into columns with compiled code on several threads; small files take the strict reader.

This reader checks each character. An unusual event (a repeated key, an exponent, a number as text) goes to the strict
reader alone. So does the text between a place where no event can be read and the next complete event.
"""

import json
import os
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import chain
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

import polars as pl
from msgspec import Struct

from trace_analyzer.ingest import classify
from trace_analyzer.ingest.raw import ARGUMENTS, FIELDS, SURROGATE, nanoseconds, raw_frame, strict_decoder, text_of
from trace_analyzer.ingest.tolerant import Fault, oddities, recover
from trace_analyzer.tuning import READING_THREADS

try:
    import trace_analyzer.ingest._scanner as _scanner
except ImportError:  # the installation had no C compiler
    _scanner = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from trace_analyzer.ingest._scanner import Scanner

_WORTH_BYTES = 1 << 18
"""Smaller files are read by the strict reader."""
_CHUNK = 8 << 20
_ROWS = 1 << 16
_FIRST = 1 << 20
_SEED = int.from_bytes(os.urandom(8), "little")
"""Random seed of the hash table, so that a file cannot contain names constructed to collide."""
_LONGEST = 64 << 20
"""Longer events are left to the strict reader."""
_WORTH_EVENTS = 1_000
"""Resuming takes as long as the strict reader takes for this many events, so it reads as many where fewer were sound."""

_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[\s*(?=\{)')
_BARE = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[\s*(?=\{)")
_BETWEEN = re.compile(r"\s*,\s*\{")

_TIMES = {"ts": "start_ns", "dur": "duration_ns"}
_TRACK = ("name", "pid", "tid")
_LABELS = ("ph", "cat", "name", "pid", "tid")
_TEXTS = tuple(
    name for name in (*FIELDS, *ARGUMENTS) if name not in (*_LABELS, *classify.CATEGORIES, *_TIMES, *classify.INTEGERS)
)
_KINDS = classify.HOST_KINDS | classify.DEVICE_KINDS | classify.FLOW_KINDS | {"cpu_instant_event": "memory"}


class _Route(NamedTuple):
    """Map events of some categories and one of two phases to their columns and to the function that classifies them."""

    categories: tuple[str, ...]
    phases: str
    columns: tuple[str, ...]
    sort: Callable[[pl.DataFrame], classify.Classified | None] | None


_SPAN = ("ph", "cat", "name", "pid", "tid", "ts", "dur")
_POINT = ("ph", "cat", "name", "pid", "tid", "ts")
_ROUTES = (
    _Route(("python_function",), "X", (*_SPAN, *classify.PYTHON_NUMBERS), classify.sorted_python),
    _Route(
        ("cuda_runtime", "hip_runtime", "xpu_runtime", "cuda_driver", "Runtime"),
        "X",
        (*_SPAN, *classify.CALL_NUMBERS),
        classify.sorted_calls,
    ),
    _Route(
        ("cpu_op", "Operator", "user_annotation"),
        "X",
        (*_SPAN, *classify.OPERATOR_NUMBERS, *classify.LISTED_INPUTS, *classify.OTHER_INPUTS),
        classify.sorted_calls,
    ),
    _Route(
        ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"),
        "X",
        (*_SPAN, "device", *classify.DEVICE_ARGUMENTS),
        classify.sorted_activities,
    ),
    _Route(tuple(classify.FLOW_KINDS), "sf", (*_POINT, "id"), classify.sorted_arrows),
    _Route(("cpu_instant_event",), "i", (*_POINT, *classify.MEMORY_NUMBERS), classify.sorted_memory),
)
_ANY = _Route((), "", (*FIELDS, *ARGUMENTS), None)


class Scanned(NamedTuple):
    """The events of the fast reader, and the rest of the document, which is small in a sound file.

    ``rest`` is the document without ``cut_bytes`` of it, which contained ``event_count`` entries. ``replaced`` counts
    byte sequences in the removed bytes that are no UTF-8, ``odd`` their `oddities`. ``faults`` are places in them.
    """

    parts: list[classify.Classified]
    event_count: int
    rest: bytes
    odd: Counter[str]
    cut_bytes: int = 0
    replaced: int = 0
    faults: tuple[Fault, ...] = ()


class _Part(Struct, frozen=True):
    """Events of a text up to ``end``, some of them not classified yet, and the state at the end of its scan."""

    events: list[classify.Classified]
    raw: list[pl.DataFrame]
    count: int
    replaced: int
    ending: int
    end: int
    odd: Counter[str]
    faults: list[Fault]


def scanned(head: bytes, blocks: Iterator[bytes]) -> Scanned | None:
    """Read the document of ``head`` and ``blocks``; None where this reader cannot read it or the file is small."""
    opening = _EVENTS.search(head) or _BARE.match(head)
    if _scanner is None or len(head) < _WORTH_BYTES or opening is None or not _is_whole(head[: opening.end()]):
        return None
    texts = _texts(chain((head[opening.end() :],), blocks), _separator(head[opening.end() :]))
    parts: list[classify.Classified] = []
    raw: list[pl.DataFrame] = []
    left: list[bytes] = []
    count = replaced = size = 0
    odd = Counter[str]()
    faults: list[Fault] = []
    ending = _scanner.MORE
    for text, end, future in _ahead(texts):
        if ending not in (_scanner.MORE, _scanner.PARTIAL) or sum(map(len, left)) > _LONGEST:
            left.append(text[:end])
            continue
        if left:  # the previous text ended within an event
            text = b"".join((*left, text[:end]))
            end = len(text)
            part = _part(text, end, _new_scanner())
        else:
            part = future.result()
        ending, left = part.ending, [text[part.end : end]] if part.end < end else []
        parts += (classify.shifted(events, count) for events in part.events)
        raw += (frame.with_columns((pl.col("row") + count).cast(pl.UInt32)) for frame in part.raw)
        if sum(frame.height for frame in raw) > _ROWS:
            parts.append(classify.sorted_events(pl.concat(raw, how="diagonal")))
            raw.clear()
        count += part.count
        replaced, odd = replaced + part.replaced, odd + part.odd
        faults += (fault.moved(opening.end() + size) for fault in part.faults)
        size += part.end
    if raw:
        parts.append(classify.sorted_events(pl.concat(raw, how="diagonal")))
    rest = b"".join((head[: opening.end()], *left))
    return Scanned(parts, count, rest, odd, size, replaced, tuple(faults))


def _texts(blocks: Iterator[bytes], separator: bytes | None) -> Iterator[tuple[bytes, int]]:
    """Yield all bytes as texts with their sizes, each up to the probable end of an event."""
    pending, size = [], 0
    for block in blocks:
        pending.append(block)
        size += len(block)
        if size < _CHUNK:
            continue
        text = b"".join(pending)
        last = text.rfind(separator) if separator else -1
        end = last + len(separator) - 1 if separator and last >= 0 else size
        yield text, end
        pending, size = [text[end:]], size - end
    yield b"".join(pending), size


def _ahead(texts: Iterator[tuple[bytes, int]]) -> Iterator[tuple[bytes, int, "Future[_Part]"]]:
    """Yield texts with their sizes and the results of other threads on them, reading some texts ahead."""
    scanners: SimpleQueue[Scanner] = SimpleQueue()
    for _ in range(READING_THREADS):
        scanners.put(_new_scanner())

    def read(text: bytes, size: int) -> _Part:
        scanner = scanners.get()
        try:
            return _part(text, size, scanner)
        finally:
            scanners.put(scanner)

    with ThreadPoolExecutor(READING_THREADS) as pool:
        running: deque[tuple[bytes, int, Future[_Part]]] = deque()
        try:
            for text, size in texts:
                running.append((text, size, pool.submit(read, text, size)))
                if len(running) > READING_THREADS:
                    yield running.popleft()
            while running:
                yield running.popleft()
        finally:
            for _, _, future in running:
                future.cancel()


def _is_whole(opening: bytes) -> bool:
    """Return whether the list that opens there is the document or its `traceEvents`, and not part of another value."""
    for end in ("]", "]}"):
        with suppress(ValueError, RecursionError):
            value = strict_decoder().decode(opening.decode("utf-8-sig") + end)
            is_list_of = isinstance(value, dict) and value.get("traceEvents") == []
            return value == [] or (is_list_of and opening.count(b'"traceEvents"') == 1)
    return False


def _separator(text: bytes) -> bytes | None:
    """Return the bytes between the first two events: from the ``}`` of one to the ``{`` of the next."""
    readable = text[:_FIRST].decode("utf-8", "ignore")
    try:
        _, end = json.JSONDecoder().raw_decode(readable)
    except (ValueError, RecursionError):
        return None
    between = _BETWEEN.match(readable, end)
    return b"}" + between[0].encode() if between else None


def _new_scanner() -> "Scanner":
    forms = dict.fromkeys(FIELDS + tuple(ARGUMENTS), _scanner.TEXT) | {
        **dict.fromkeys((*_LABELS, *classify.CATEGORIES), _scanner.LABEL),
        **dict.fromkeys(_TIMES, _scanner.TIME),
        **dict.fromkeys(classify.INTEGERS, _scanner.INTEGER),
    }
    return _scanner.Scanner(
        list(forms.items()),
        {field: field for field in FIELDS},
        {key: column for column, keys in ARGUMENTS.items() for key in keys},
        [(route.categories, route.phases, route.columns) for route in _ROUTES],
        _SEED,
        _ROWS,
    )


def _part(text: bytes, size: int, scanner: "Scanner") -> _Part:
    frames: list[classify.Classified | pl.DataFrame] = []
    faults: list[Fault] = []
    count, at, ending, odd, signs = 0, 0, _scanner.FULL, Counter[str](), ""
    while ending == _scanner.FULL:
        ending, at, events = scanner.read(text, at, size)
        frames += _frames(text, scanner, count)
        count += events
        if ending == _scanner.BROKEN and text[at : at + 1] != b"]":
            signs = signs or text[:size].decode("latin-1")
            recovered = recover(text, signs, at, 1 if events > _WORTH_EVENTS else _WORTH_EVENTS)
            if recovered is None:
                ending = _scanner.PARTIAL
                continue
            entries, more_faults, at = recovered
            frames.append(classify.shifted(classify.sorted_objects(entries, 0), count))
            faults += more_faults
            count += len(entries)
            odd += oddities(entries)
            ending = _scanner.FULL
    known = [events for events in frames if isinstance(events, classify.Classified)]
    raw = [frame for frame in frames if isinstance(frame, pl.DataFrame)]
    return _Part(known, raw, count, _replaced(text, at), ending, at, odd, faults)


def _replaced(text: bytes, size: int) -> int:
    """Count byte sequences that are no UTF-8 in the first ``size`` bytes."""
    if text.isascii():
        return 0
    text = text[:size]
    try:
        text.decode()
    except UnicodeDecodeError:
        return text.decode("utf-8", "replace").count("\ufffd") - text.count(b"\xef\xbf\xbd")
    return 0


def _frames(text: bytes, scanner: "Scanner", first: int) -> Iterator[classify.Classified | pl.DataFrame]:
    """Yield the events of the last scan of this text route by route, with row numbers from ``first``.

    Events that do not fit their route, or have none, are yielded as raw frames.
    """
    words = scanner.words(text, _scanner.LABEL, _readable)
    labels = pl.Series(words, dtype=pl.String)
    texts = dict.fromkeys(_TEXTS, pl.Series(scanner.words(text, _scanner.TEXT, _readable), dtype=pl.String))
    tracks = labels.fill_null("").cast(pl.Categorical)
    raw = texts | dict.fromkeys((*_LABELS, *classify.CATEGORIES), labels)
    typed = (
        texts
        | dict.fromkeys(classify.CATEGORIES, labels.cast(pl.Categorical))
        | dict.fromkeys(_TRACK, tracks)
        | {
            "ph": pl.Series("is_start", [word == "s" for word in words]),
            "cat": pl.Series("kind", [_KINDS.get((word or "").lower()) for word in words], dtype=classify.KIND),
        }
    )
    row, pid, tid = map(pl.Series, scanner.tracks("pid", "tid", first))
    yield classify.sorted_tracks(pl.DataFrame({"row": row, "pid": tracks[pid], "tid": tracks[tid]}))
    for code in scanner.taken():
        if code == _scanner.ODD:
            yield _strictly(text, scanner, first)
            continue
        route = _ROUTES[code] if code < len(_ROUTES) else _ANY
        known: classify.Classified | pl.DataFrame | None
        known = route.sort(_frame(scanner, code, route, typed, first)) if route.sort else None
        if known is None:
            known = _frame(scanner, code, route, raw, first)
            known = known.with_columns(
                pl.col(name).cast(pl.String) for name in classify.INTEGERS if name in known.columns
            )
        yield known


def _frame(scanner: "Scanner", code: int, route: _Route, words: Mapping[str, pl.Series], first: int) -> pl.DataFrame:
    """Return a route's events with labels and texts from ``words``, classified if the route has a function."""
    columns = {"row": pl.Series(scanner.rows(code, first))}
    for name in route.columns:
        if name in FIELDS or scanner.has(code, name):
            if name in words:
                columns[words[name].name or name] = words[name][pl.Series(scanner.codes(code, name))]
            else:
                columns[_TIMES.get(name, name)] = pl.Series(scanner.integers(code, name))
    return pl.DataFrame(columns)


def _strictly(text: bytes, scanner: "Scanner", first: int) -> pl.DataFrame:
    """Return the raw frame of the unusual events, read by the strict reader."""
    decoder, places = strict_decoder(), scanner.places(_scanner.ODD)
    raw = raw_frame([decoder.decode(text[start:end].decode("utf-8", "replace")) for _, start, end in places], 0)
    times = (nanoseconds(raw.get_column(name)).alias(ns) for name, ns in _TIMES.items())
    rows = pl.Series("row", [first + number for number, _, _ in places], dtype=pl.UInt32)
    return raw.drop(*_TIMES).with_columns(rows, *times)


def _readable(raw: bytes) -> str | None:
    """Return a value as the strict reader decodes it."""
    value = strict_decoder().decode(raw.decode("utf-8", "replace"))
    text = value if type(value) is str else text_of(value)
    return text and SURROGATE.sub("\ufffd", text)
