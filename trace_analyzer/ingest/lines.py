"""The short cut: chunks of events, one per line, through Polars' own JSON reader, on several threads.

Traces separate their events alike throughout a file, so cutting the text there makes lines of JSON. What a line
has to be read for depends on its category: the fewer columns, the faster. The short cut must prove itself: every
line of a chunk has to be a JSON object, of the category and phase it was taken for, and digits must have survived
(Polars reads numbers as float64). Lines that fail are parsed strictly; a file that fails is left to the strict reader.
"""

import json
import os
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain

import polars as pl
from polars.exceptions import PolarsError

from trace_analyzer.ingest.raw import ARGUMENTS, FIELDS, raw_frame, strict_decoder
from trace_analyzer.ingest.sorting import (
    CALL_NUMBERS,
    DEVICE_ARGUMENTS,
    FLOW_KINDS,
    LISTED_INPUTS,
    MEMORY_NUMBERS,
    OPERATOR_NUMBERS,
    OTHER_INPUTS,
    PYTHON_NUMBERS,
    Sorted,
    joined,
    shifted,
    sorted_events,
    sorted_objects,
    sorted_spans,
)
from trace_analyzer.ingest.times import nanoseconds

_WORTH_BYTES = 1 << 18
"""Smaller files are read strictly at once."""
_CHUNK = 4 << 20
_TAIL = 1 << 16
_WORKERS = min(4, os.cpu_count() or 1)
_SMALLEST_EVENT = 64
_FEW = 16
"""Events of categories without a route are read strictly where they are fewer than one in so many."""

_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[\s*(?=\{)')
_BARE = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[\s*(?=\{)")
_BETWEEN = re.compile(r"\s*,\s*\{")

# How nearly all spans begin; what it finds needs not be read again.
_SPAN_OF = r'^\s*"ph"\s*:\s*"X"\s*,\s*"cat"\s*:\s*"([A-Za-z0-9_]*)"'
_CATEGORY = r'"cat"\s*:\s*"([A-Za-z0-9_]*)"'
# Between the first of these and the last stand the lists of an operator's inputs, in traces of PyTorch 1.13 and later.
_LISTS_FROM = ('"Input ', '"Concrete Inputs"')
_LISTS_TO = '"Ev Idx"'
_RARE_INPUTS = [f'"{key}"' for column in OTHER_INPUTS for key in ARGUMENTS[column]]

# Up to here a float64 of microseconds tells every text from those that round to another nanosecond.
_EXACT_BELOW_US = float(1 << 42)
_DIGITS = r'"{}"\s*:\s*(-?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)'
_NO_NUMBER = r'"(?:ts|dur)"\s*:\s*[tf]'


@dataclass(frozen=True)
class _Route:
    """What to read of events of some categories, which have one of some phases."""

    categories: tuple[str, ...]
    phases: tuple[str, ...]
    fields: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    lists: tuple[str, ...] = ()

    def schema(self, *more: str) -> dict[str, pl.DataType]:
        """Columns for Polars' reader: the fields, ``more`` of them, and the arguments."""
        fields = dict.fromkeys((*more, *self.fields), pl.String()) | {
            field: pl.Float64() for field in ("ts", "dur") if field in self.fields
        }
        return fields | ({"args": _struct(self.arguments)} if self.arguments else {})


def _struct(columns: Iterable[str]) -> pl.Struct:
    return pl.Struct({key: pl.String for column in columns for key in ARGUMENTS[column]})


_TIMED = ("name", "pid", "tid", "ts", "dur")
_ROUTES = (
    _Route(("python_function",), ("X",), _TIMED, PYTHON_NUMBERS),
    _Route(("cuda_runtime", "hip_runtime", "xpu_runtime", "cuda_driver", "Runtime"), ("X",), _TIMED, CALL_NUMBERS),
    _Route(
        ("cpu_op", "Operator", "user_annotation"), ("X",), _TIMED, (*OPERATOR_NUMBERS, *OTHER_INPUTS), LISTED_INPUTS
    ),
    _Route(
        ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"),
        ("X",),
        _TIMED,
        ("device", *DEVICE_ARGUMENTS),
    ),
    _Route(tuple(FLOW_KINDS), ("s", "f"), ("pid", "tid", "id", "ts")),
    _Route(("cpu_instant_event",), ("i",), ("name", "pid", "tid", "ts"), MEMORY_NUMBERS),
)
_ANY = _Route((), (), tuple(field for field in FIELDS if field not in ("ph", "cat")), tuple(ARGUMENTS))
_ROUTE_OF = {category: code for code, route in enumerate(_ROUTES) for category in route.categories}


@dataclass(frozen=True)
class Lines:
    """Events by the short cut, and the rest of the document: a small one, with the last events in it.

    ``rest`` is the document without ``cut_bytes`` of it, in which ``event_count`` events stood; ``replaced``
    counts the byte sequences in those that are no UTF-8.
    """

    parts: list[Sorted]
    event_count: int
    rest: bytes
    cut_bytes: int
    replaced: int


@dataclass(frozen=True)
class _Part:
    events: Sorted
    count: int
    replaced: int


def read_lines(head: bytes, blocks: Iterator[bytes]) -> Lines | None:
    """The document that begins with ``head`` and goes on in ``blocks``, or None where the short cut does not prove itself."""
    opening = _EVENTS.search(head) or _BARE.match(head)
    if len(head) < _WORTH_BYTES or opening is None:
        return None
    separator = _separator(head[opening.end() :])
    if separator is None or not _is_whole(head[: opening.end()]):
        return None
    parts: list[Sorted] = []
    count = replaced = 0
    chunks = _Chunks(chain((head[opening.end() :],), blocks), separator)
    for part in _in_order(chunks, separator):
        if part is None:
            return None
        parts.append(shifted(part.events, count))
        count += part.count
        replaced += part.replaced
    return Lines(parts, count, head[: opening.end()] + chunks.tail, chunks.cut_bytes, replaced)


def _in_order(chunks: Iterable[bytes], separator: bytes) -> Iterator[_Part | None]:
    """The parts of the chunks, some of which are read ahead by other threads."""
    with ThreadPoolExecutor(_WORKERS) as pool:
        running: deque[Future[_Part | None]] = deque()
        try:
            for chunk in chunks:
                running.append(pool.submit(_part, chunk, separator))
                if len(running) > _WORKERS:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            for future in running:
                future.cancel()


class _Chunks:
    """Pieces of whole events, from the ``{`` of the first to the ``}`` of the last; what follows them is the tail."""

    def __init__(self, blocks: Iterator[bytes], separator: bytes) -> None:
        self._blocks = blocks
        self._separator = separator
        self.tail = b""
        self.cut_bytes = 0

    def __iter__(self) -> Iterator[bytes]:
        pending, size = [], 0
        for block in self._blocks:
            pending.append(block)
            size += len(block)
            if size >= _CHUNK:
                text = b"".join(pending)
                yield from self._cut(text, len(text))
                pending, size = [self.tail], len(self.tail)
        text = b"".join(pending)
        yield from self._cut(text, max(0, len(text) - _TAIL))

    def _cut(self, text: bytes, end: int) -> Iterator[bytes]:
        """The events before the last separator that ends before ``end``, if any; the tail is the rest."""
        found = text.rfind(self._separator, 0, end)
        self.tail = text if found < 0 else text[found + len(self._separator) - 1 :]
        if found >= 0:
            self.cut_bytes += found + len(self._separator) - 1
            yield text[: found + 1]


def _is_whole(opening: bytes) -> bool:
    """Whether the list that opens there is the document, or the member `traceEvents` of it, not of something inside."""
    try:
        value = strict_decoder().decode(opening.decode("utf-8-sig") + "]")
    except (ValueError, RecursionError):
        pass
    else:
        return bool(value == [])
    try:
        value = strict_decoder().decode(opening.decode("utf-8-sig") + "]}")
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and value.get("traceEvents") == [] and opening.count(b'"traceEvents"') == 1


def _separator(text: bytes) -> bytes | None:
    """What stands between the first two events: from the ``}`` of one to the ``{`` of the next."""
    readable = text.decode("utf-8", "ignore")
    try:
        _, end = json.JSONDecoder().raw_decode(readable)
    except (ValueError, RecursionError):
        return None
    between = _BETWEEN.match(readable, end)
    return b"}" + between[0].encode() if between else None


def _part(chunk: bytes, separator: bytes) -> _Part | None:
    """The events of a chunk, parsed strictly where the short cut does not prove itself; None where that fails too."""
    lines = _lines(chunk, separator)
    if lines is not None:
        try:
            return _Part(joined(list(_sorted_lines(lines))), lines.height, 0)
        except (PolarsError, _UnprovenError):
            pass
    text = chunk.decode("utf-8", "replace")
    try:
        events = strict_decoder().decode(f"[{text}]")
    except (ValueError, RecursionError):
        return None
    if not all(isinstance(event, dict) for event in events):
        return None
    replaced = text.count("\ufffd") - chunk.count(b"\xef\xbf\xbd")
    return _Part(sorted_objects(events, 0), len(events), replaced)


class _UnprovenError(Exception):
    """Lines are not what they were taken for."""


def _lines(chunk: bytes, separator: bytes) -> pl.DataFrame | None:
    """(row, line, category, proven) of the events of a chunk; None where these cannot be told apart.

    A line is an event without its outer braces. ``proven`` says that it is a span of that category; else the
    category is a guess.
    """
    # Polars would read escaped surrogates as NUL.
    if b"\\" in chunk and (b"\\ud" in chunk or b"\\uD" in chunk):
        return None
    # Tabs are blanks between tokens, and an error inside strings, as the line breaks that they replace.
    text, between = (part.replace(b"\n", b"\t").replace(b"\r", b"\t") for part in (chunk[1:-1], separator))
    try:
        lines = pl.Series("line", [text.decode()]).str.split(between.decode()).explode()
    except UnicodeDecodeError:
        return None
    if len(lines) * _SMALLEST_EVENT > len(chunk):  # tiny events would take more memory in columns than as text
        return None
    frame = lines.to_frame().with_row_index("row").with_columns(_span_categories(lines).alias("category"))
    proven = frame.get_column("category").is_not_null()
    if not proven.all():
        guess = _where(pl.col("line"), pl.col("category").is_null()).str.extract(_CATEGORY)
        frame = frame.with_columns(pl.coalesce("category", guess))
    return frame.with_columns(proven.alias("proven"))


def _span_categories(lines: pl.Series) -> pl.Series:
    """Categories of the lines that begin as spans do; null for the others."""
    first = re.match(_SPAN_OF, lines.item(0))
    if first and lines.str.starts_with(first[0]).all():  # Python frames, most of a trace, come by the thousands
        return pl.repeat(first[1], len(lines), dtype=pl.String, eager=True)
    return lines.str.extract(_SPAN_OF)


def _where(column: pl.Expr, condition: pl.Expr) -> pl.Expr:
    """The column with nulls elsewhere, so that what follows has nothing to do there."""
    return pl.when(condition).then(column)


def _sorted_lines(lines: pl.DataFrame) -> Iterator[Sorted]:
    """The events of the lines, route by route."""
    routed = lines.with_columns(
        pl.col("category").replace_strict(_ROUTE_OF, default=None, return_dtype=pl.Int8).alias("route")
    )
    for (code, proven), part in routed.partition_by("route", "proven", as_dict=True).items():
        part = part.drop("route")
        if code is None and part.height * _FEW < lines.height:
            yield sorted_events(_strictly(part))
            continue
        route = _ANY if code is None else _ROUTES[int(code)]
        if proven and code is not None:
            yield sorted_spans(_frame(part, route))
            continue
        frame = _frame(part, route, "ph", "cat")
        known = (pl.col("cat") == pl.col("category")) & pl.col("ph").is_in(route.phases)
        if route is not _ANY and not frame.select(known.fill_null(False).all()).item():
            frame = _frame(part, _ANY, "ph", "cat")
        yield sorted_events(frame)


def _strictly(lines: pl.DataFrame) -> pl.DataFrame:
    """The raw frame of a few lines, by the strict reader."""
    decoder = strict_decoder(controls=False)  # a tab in a string may have been a line break
    try:
        events = [decoder.decode(f"{{{line}}}") for line in lines.get_column("line")]
    except (ValueError, RecursionError) as error:
        raise _UnprovenError from error
    return raw_frame(events, 0).with_columns(lines.get_column("row"))


def _frame(lines: pl.DataFrame, route: _Route, *more: str) -> pl.DataFrame:
    """What the route reads of the lines: row, category, fields and arguments as text, times in ns.

    Raises ``PolarsError`` or `_UnprovenError` when it cannot be read so.
    """
    line, arguments, lists = lines.get_column("line"), route.arguments, None
    text = line
    if route.lists:
        if not line.str.contains_any(_RARE_INPUTS).any():
            arguments = tuple(column for column in arguments if column not in OTHER_INPUTS)
        text, lists = _without_lists(line, (*arguments, *route.lists))
        arguments = arguments if lists is not None else (*arguments, *route.lists)
    frame = _read(text, replace(route, arguments=arguments).schema(*more))
    times = [
        _nanoseconds(frame.get_column(field), field, line).alias(name)
        for field, name in (("ts", "start_ns"), ("dur", "duration_ns"))
        if field in frame.columns
    ]
    fields = [field for field in frame.columns if field not in ("args", "ts", "dur")]
    frame = frame.select(lines.get_column("row"), lines.get_column("category"), *times, *fields, *_columns(arguments))
    if lists is None:
        return frame
    return frame.with_columns(
        pl.coalesce(lists.get_column(column), column) if column in frame.columns else lists.get_column(column)
        for column in lists.columns
    )


def _columns(arguments: Iterable[str]) -> Iterator[pl.Expr]:
    """The arguments out of their struct, by whichever of their names the event has."""
    struct = pl.col("args").struct
    for column in arguments:
        yield pl.coalesce(struct.field(key) for key in ARGUMENTS[column]).alias(column)


def _without_lists(line: pl.Series, columns: tuple[str, ...]) -> tuple[pl.Series, pl.DataFrame | None]:
    """The lines without the stretch in which the lists of inputs stand, and these; None where that cannot be told.

    Calls of one operator repeat the same shapes, so each text is read once. ``columns`` are all that a stretch may hold.
    """
    text = pl.col("line")
    frame = line.str.strip_chars_end(" \t").to_frame().with_columns(
        pl.min_horizontal(text.str.find(key, literal=True) for key in _LISTS_FROM).alias("at"),
        text.str.find(_LISTS_TO, literal=True).alias("index"),
    )  # fmt: skip
    flat = (text.str.count_matches("{", literal=True) == 1) & text.str.ends_with("}")
    if not frame.select((flat | pl.col("at").is_null()).all()).item():
        return line, None
    is_inside = (pl.col("index") > pl.col("at")).fill_null(False)
    frame = frame.with_columns(pl.when(is_inside).then("index").otherwise(text.str.len_bytes() - 1).alias("end"))
    pieces = text.cast(pl.Binary).bin
    frame = frame.select(
        pl.when(pl.col("at").is_null())
        .then(text)
        .otherwise(
            pl.concat_str(
                pieces.slice(0, pl.col("at")).cast(pl.String),
                pl.when(is_inside).then(pl.lit('"":0,')).otherwise(pl.lit('"":0')),
                pieces.slice(pl.col("end")).cast(pl.String),
            )
        )
        .alias("line"),
        pieces.slice(pl.col("at"), pl.col("end") - pl.col("at")).cast(pl.String).cast(pl.Categorical).alias("lists"),
    )
    texts = frame.select(pl.col("lists").unique()).drop_nulls()
    bodies = texts.select(pl.col("lists").cast(pl.String).str.strip_chars_end(" \t").str.strip_suffix(",")).to_series()
    keys = dict.fromkeys((key for column in columns for key in ARGUMENTS[column]), pl.String())
    known = texts.with_columns(
        (_read(bodies, keys) if len(bodies) else pl.DataFrame(schema=keys)).select(
            pl.coalesce(ARGUMENTS[column]).alias(column) for column in columns
        )
    )
    return frame.get_column("line"), frame.select("lists").join(
        known, on="lists", how="left", maintain_order="left"
    ).drop("lists")


def _read(lines: pl.Series, schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Bodies of objects as a frame."""
    _prove_keys_once(lines, schema)
    text = lines.str.join("}\n{").cast(pl.Binary).item()
    frame = pl.read_ndjson(b"{%b}" % text, schema=schema)
    if frame.height != len(lines):
        raise _UnprovenError
    return frame


def _prove_keys_once(lines: pl.Series, schema: Mapping[str, pl.DataType]) -> None:
    """Raise `_UnprovenError` where an event has a key twice: Polars takes the first, JSON readers the last.

    An event with one more key than most of its kind is looked at closely.
    """
    keys = [
        *dict.fromkeys(("ph", "cat", *schema)),
        *(field.name for dtype in schema.values() if isinstance(dtype, pl.Struct) for field in dtype.fields),
    ]
    count = lines.str.count_matches('":', literal=True)
    usual = count.mode().max() or 0
    if not usual:
        closely = lines
    else:
        example = lines.filter(count == usual).head(1)
        closely = pl.concat([example, lines.filter(count != usual)])
    if any((closely.str.count_matches(f'"{key}"', literal=True) > times).any() for key, times in Counter(keys).items()):
        raise _UnprovenError


def _nanoseconds(us: pl.Series, field: str, lines: pl.Series) -> pl.Series:
    """Nanoseconds of float64 microseconds; of their digits in the lines where the float may have lost some."""
    near = (us * 1_000).round().cast(pl.Int64, strict=False)
    lowest = us.min()
    if isinstance(lowest, float) and lowest <= 1:  # true and false would be read as 1 and 0
        flags = ((us == 0) | (us == 1)).fill_null(False)
        if flags.any() and lines.filter(flags).str.contains(_NO_NUMBER).any():
            raise _UnprovenError
    lossy = us.is_not_null() & ~((us.abs() < _EXACT_BELOW_US) & (near / 1_000 == us)).fill_null(False)
    if not lossy.any():
        return near
    digits = lines.filter(lossy).str.extract(_DIGITS.format(field))
    if not (digits.cast(pl.Float64, strict=False) == us.filter(lossy)).all():
        raise _UnprovenError
    exact = nanoseconds(digits)
    return near.scatter(lossy.arg_true(), exact)
