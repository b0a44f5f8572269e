"""Convert parsed JSON into the raw frame: one row of text per event."""

import json
import re
from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_EVEN, Context, Decimal, InvalidOperation
from functools import cache, lru_cache
from typing import Any

import polars as pl

# Column of the raw frame -> spellings of the key in an event's `args`, newest first.
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "correlation": ("correlation",),
    "external_id": ("External id", "external id"),
    "device": ("device",),
    "context": ("context",),
    "stream": ("stream",),
    "bytes": ("bytes", "Bytes"),
    "grid": ("grid",),
    "block": ("block",),
    "registers_per_thread": ("registers per thread",),
    "shared_memory_bytes": ("shared memory",),
    "occupancy_percent": ("est. achieved occupancy %",),
    "graph_id": ("graph id",),
    "graph_node_id": ("graph node id",),
    # The Python exporters of PyTorch write these (torch/profiler/_cupti): kinds of copies and of memory, the stream of a
    # graph's node that is drawn on another lane, and what the program called the node (torch.cuda.graph_annotations).
    "copy_kind": ("copy kind",),
    "source_kind": ("src kind",),
    "destination_kind": ("dst kind",),
    "memory_kind": ("memory kind",),
    "original_stream": ("original_stream",),
    "module": ("module_fqn",),
    "annotation": ("annotation", "str"),
    "sequence_number": ("Sequence number",),
    "forward_thread": ("Fwd thread id",),
    "python_id": ("Python id",),
    "python_parent_id": ("Python parent id",),
    "input_dims": ("Input Dims", "Input dims"),
    "input_types": ("Input type",),
    "input_strides": ("Input Strides",),
    "concrete_inputs": ("Concrete Inputs",),
    "collective": ("Collective name",),
    "message_elements": ("In msg nelems", "In msg size"),
    "message_dtype": ("dtype",),
    "output_elements": ("Out msg nelems", "Out msg size"),
    "input_splits": ("In split size",),
    "output_splits": ("Out split size",),
    "group_size": ("Group size",),
    "process_group": ("Process Group Name",),
    "process_group_description": ("Process Group Description",),
    "process_group_ranks": ("Process Group Ranks",),
    "global_rank_start": ("Global rank start",),
    "global_rank_stride": ("Global rank stride",),
    "collective_seq": ("Seq",),
    "comms_id": ("Comms Id",),
    "source_rank": ("Src Rank",),
    "destination_rank": ("Dst Rank",),
    "call_stack": ("Call stack",),
    "module_hierarchy": ("Module Hierarchy",),
    "kernel_file": ("kernel_file",),
    "wait_on_stream": ("wait_on_stream",),
    "device_type": ("Device Type",),
    "memory_device": ("Device Id",),
    "memory_address": ("Addr",),
    "total_allocated_bytes": ("Total Allocated",),
    "total_reserved_bytes": ("Total Reserved",),
    "label": ("name",),
}
FIELDS = ("ph", "cat", "name", "pid", "tid", "id", "ts", "dur")
RAW_SCHEMA = {"row": pl.UInt32} | dict.fromkeys((*FIELDS, *ARGUMENTS), pl.String)


SURROGATE = re.compile("[\ud800-\udfff]")


class Digits(str):
    """Keep a number as written in the file: a float64 loses the nanoseconds of epoch-based timestamps."""

    __slots__ = ()


_whole_number = lru_cache(1024)(Digits)
"""`Digits` of a whole number; few of them are distinct where a hostile file has millions."""


@cache
def strict_decoder() -> json.JSONDecoder:
    """Return a JSON decoder that keeps the digits of numbers, and accepts NaN, Infinity and raw control characters."""
    return json.JSONDecoder(strict=False, parse_float=Digits, parse_int=_whole_number, parse_constant=Digits)


def raw_frame(events: list[Any], first_row: int) -> pl.DataFrame:
    """Return events as text columns; entries that are no objects are left out."""
    rows = [i for i, event in enumerate(events, first_row) if isinstance(event, dict)]
    events = [event for event in events if isinstance(event, dict)]
    arguments = [args if isinstance(args := event.get("args"), dict) else {} for event in events]
    columns: dict[str, pl.Series] = {"row": pl.Series(rows, dtype=pl.UInt32)}
    for column in FIELDS:
        columns[column] = _texts([event.get(column) for event in events])
    for column, keys in ARGUMENTS.items():
        columns[column] = _texts(_values(arguments, keys))
    return pl.DataFrame(columns)


def _values(arguments: list[dict[str, Any]], keys: tuple[str, ...]) -> list[Any]:
    first, *others = keys
    values = [args.get(first) for args in arguments]
    for key in others:
        values = [args.get(key) if v is None else v for v, args in zip(values, arguments, strict=True)]
    return values


def _texts(values: list[Any]) -> pl.Series:
    texts = [v if v is None or type(v) is str else text_of(v) for v in values]
    try:
        return pl.Series(texts, dtype=pl.String)
    except UnicodeEncodeError:  # lone surrogates, which JSON can escape and UTF-8 cannot encode
        return pl.Series([v and SURROGATE.sub("\ufffd", v) for v in texts], dtype=pl.String)


def text_of(value: Any) -> str | None:
    """Return the JSON text of a value whose numbers are `Digits`; None where it nests too deeply."""
    try:
        return _json(value)
    except RecursionError:
        return None


def _json(value: Any) -> str:
    if isinstance(value, Digits):
        return str(value)
    if isinstance(value, list):
        return "[" + ", ".join(map(_json, value)) + "]"
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{json.dumps(key, ensure_ascii=False)}: {_json(item)}" for key, item in value.items())
            + "}"
        )
    return json.dumps(value, ensure_ascii=False)


_LIMIT_NS = 1 << 62
_LONGEST = 400
_EXACT = Context(prec=2 * _LONGEST, Emax=MAX_EMAX, Emin=MIN_EMIN)


def nanoseconds(texts: pl.Series) -> pl.Series:
    """Return int64 nanoseconds from decimal microseconds; null where the text is no number or out of range.

    Digits beyond the nanosecond are rounded half to even, as in exact decimal arithmetic.
    """
    name = texts.name
    # A decimal with three places, to which Polars rounds half to even, is stored as an integer of thousandths.
    thousandths = pl.col("text").str.to_decimal(scale=3).to_physical().cast(pl.Int64, strict=False)
    plain = texts.to_frame("text").select("text", pl.when(thousandths.abs() < _LIMIT_NS).then(thousandths).alias(name))
    if plain.get_column(name).null_count() == texts.null_count():
        return plain.get_column(name)
    odd = plain.filter(pl.col(name).is_null() & pl.col("text").is_not_null()).get_column("text").unique()
    exact = {text: _exact(text) for text in odd}
    return plain.select(
        pl.coalesce(name, pl.col("text").replace_strict(exact, default=None, return_dtype=pl.Int64)).alias(name)
    ).get_column(name)


def _exact(text: str) -> int | None:
    """Return nanoseconds from a number in any notation (exponents, a leading plus, surrounding blanks)."""
    try:
        value = Decimal(text.strip()) if len(text) < _LONGEST else None
        if value is None or not value.is_finite() or value.adjusted() > 20:
            return None
        ns = int(_EXACT.multiply(value, Decimal(1_000)).to_integral_value(ROUND_HALF_EVEN))
    except (InvalidOperation, ValueError):
        return None
    return ns if abs(ns) < _LIMIT_NS else None
