"""Declare tables: columns with type, unit and meaning.

A table's schema and its documentation are one object: the reference in ``docs/`` is generated from it, and frames are
checked against it. Columns carry their unit in their name (``_ns``, ``_bytes``, ``_ratio``) or declare it; missing is
null. Columns that several tables share follow below.
"""

from collections.abc import Mapping
from inspect import cleandoc

import polars as pl
from msgspec import Struct
from msgspec.structs import force_setattr

# End of a column's name -> its unit; the first match counts.
_UNITS = {
    "flop_per_byte": "FLOP/byte",
    "flop_per_s": "FLOP/s",
    "byte_per_s": "byte/s",
    "flop": "FLOP",
    "bytes": "bytes",
    "ratio": "ratio",
    "percent": "percent",
    "count": "count",
    "ns": "ns",
}


def unit_of(name: str) -> str:
    """Return the unit at the end of a name; "" without one."""
    return next((unit for end, unit in _UNITS.items() if name == end or name.endswith(f"_{end}")), "")


class Member(Struct, frozen=True):
    """Declare an object in JSON rows that groups several columns: its key, and its description."""

    object: str
    key: str
    doc: str


class Column(Struct, frozen=True):
    """Declare a column: name, type and meaning.

    ``unit`` is ns, bytes, ratio, percent, count, FLOP, FLOP/s, byte/s or FLOP/byte; "" for a column without one. By
    default the end of the name determines it. In JSON, a column with a ``member`` is nested in that object.
    """

    name: str
    dtype: pl.DataType
    doc: str
    unit: str | None = None
    member: Member | None = None

    def __post_init__(self) -> None:
        if self.unit is None:
            force_setattr(self, "unit", unit_of(self.name) if self.dtype.is_numeric() else "")


class Table(Struct, frozen=True):
    """Declare a named table with documented columns."""

    name: str
    doc: str
    columns: tuple[Column, ...]

    @property
    def schema(self) -> dict[str, pl.DataType]:
        """Return column names to types, in order."""
        return {column.name: column.dtype for column in self.columns}

    def empty(self) -> pl.DataFrame:
        """Return the table without rows."""
        return pl.DataFrame(schema=self.schema)

    def conform(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the frame with exactly this table's columns, in its order and with its types.

        Raises ``polars.exceptions.ColumnNotFoundError`` for a missing column and
        ``InvalidOperationError`` for a value that does not fit its type.
        """
        if list(frame.schema.items()) == list(self.schema.items()):
            return frame
        return frame.select(pl.col(c.name).cast(c.dtype) for c in self.columns)


def nulls(height: int, dtype: pl.DataType) -> pl.Series:
    """Return a column of nulls; the pages of its memory are not touched until a write."""
    return pl.Series([None], dtype=dtype).new_from_index(0, height)


def typed(frame: pl.DataFrame, types: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Return the columns named in ``types``, cast to these types.

    Raises Polars' errors for a missing or unfit column.
    """
    return frame.select(pl.col(name).cast(dtype) for name, dtype in types.items())


STR, I64, I32, U32, F64, BOOL = pl.String(), pl.Int64(), pl.Int32(), pl.UInt32(), pl.Float64(), pl.Boolean()
_TYPES = {"str": STR, "i64": I64, "i32": I32, "u32": U32, "f64": F64, "bool": BOOL}
_SHARED: dict[str, Column] = {}


def columns(*parts: str | Column) -> tuple[Column, ...]:
    """Return the columns that texts declare, in order with those that need more (a unit, a member).

    A line of a text is a column's name, its type (str, i64, i32, u32, f64, bool) and its meaning, which continues in lines
    that are indented further. A line of names alone means columns that several tables share.

    >>> [column.name for column in columns("device start_ns")]
    ['device', 'start_ns']
    """
    declared: list[Column] = []
    for part in parts:
        if isinstance(part, Column):
            declared.append(part)
            continue
        for line in cleandoc(part).replace("\n    ", " ").splitlines():
            name, *rest = line.split(" ", 2)
            if rest and rest[0] in _TYPES:
                declared.append(Column(name, _TYPES[rest[0]], rest[1]))
            else:
                declared += [_SHARED[shared] for shared in line.split()]
    return tuple(declared)


_SHARED |= {
    column.name: column
    for column in columns("""
    start_ns i64 Start, ns since the trace's origin.
    end_ns i64 End (exclusive), ns since the trace's origin.
    duration_ns i64 Duration in ns.
    name str Name, as the trace has it.
    device i64 Device code: the file's id where that is a number (see `devices`).
    stream i64 Stream, as the file numbers it; null when it has none.
    thread_id i32 The host thread, a row of `threads`.
    correlation i64 Correlation id that ties a runtime call to its activities; 0 is null.
    external_id i64 Kineto's external id: the operator that was running.
    activity_id u32 Row number of the activity, in order of start.
    launch_id u32 `event_id` of the runtime call that enqueued it; null when unknown.
    gap_id u32 Row number of the gap.
    bucket str What the kernel does (catalog/kernels.toml); null for copies and memsets.
    bound str What limits it: compute, memory, latency, communication, copy or other.
    flop f64 Sum of their known FLOP; null when none are known.
    moved_bytes f64 Sum of the bytes that they must move at least, where known; null when none are known.
    time_ns i64 Sum of durations.
    count u32 Kernels.
    part str Part of the partition: what the device did, or the cause of its idling.
    operator str Name of the innermost operator around it; null for none.
    module str Path of the nn.Modules around it, `Net_0/Block_3/Linear_7`; of the forward pass for backward work.
    python_function str Innermost function of the program around it, `file.py(12): f`: the line is that of its `def`,
        but that of the call where PyTorch before 1.13 recorded it. Of the forward pass for backward work; a library's
        function for want of any.
    hidden_ns i64 Time of it in which other work ran on the device.
    exposed_ns i64 The rest: time of it in which nothing else ran on the device.
    """)
}
RATES = columns("""
    known_ns i64 Durations of those whose time at the roof is known.
    intensity_flop_per_byte f64 Arithmetic intensity: FLOP over bytes.
    achieved_flop_per_s f64 FLOP over the time of the kernels whose FLOP are known; null above 1.05 times the peak.
    achieved_byte_per_s f64 Bytes over the time of the kernels whose bytes are known.
    peak_ratio f64 Share of the peak FLOP/s of their dtypes that they reached; null above 1.05.
    roof_ns f64 Time that they would take at the roof: at peak FLOP/s or full bandwidth.
    roof_ratio f64 That time over the time they took; null above 1.05, as where data came from the cache.
    lost_ns f64 Time over that at the roof.
""")
PLACE = columns("""
    start_ns i64 Start of the longest of them, ns since the trace's origin.
    end_ns i64 Its end.
""")
