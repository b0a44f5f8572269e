"""Store a side as a small JSON file, for later comparisons without its traces."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import polars as pl

from trace_analyzer.compare.facts import Facts, RecordedSteps
from trace_analyzer.compare.profiles import CALLS, KINDS, ROWS, UNITS, Profile
from trace_analyzer.errors import InputError
from trace_analyzer.typed import damage, first_line, read_as
from trace_analyzer.version import tool_version

KIND = "baseline_version"
VERSION = 1
_FRAMES: Mapping[str, Mapping[str, pl.DataType]] = {
    "calls": CALLS,
    "rows": ROWS,
    "units": UNITS,
}


_KNOWN: Mapping[str, tuple[str, ...]] = {
    "calls": ("call", "count", "outer_count", "first"),
    "rows": ("row", "kind", "category", "count", "total_ns", "roof_ns", "known_ns", "blocks"),
    "units": ("row", "unit", "total_ns"),
}
"""Columns of the frames without nulls."""
_NUMBERS: Mapping[str, tuple[str, ...]] = {
    "calls": ("count", "outer_count", "flop"),
    "rows": ("count", "total_ns", "roof_ns", "known_ns", "blocks"),
    "units": ("total_ns",),
}
"""Columns of the frames with finite, non-negative numbers."""


@dataclasses.dataclass(frozen=True)
class _Head:
    """Hold the content of a baseline other than its frames."""

    path: str
    detail: Literal["calls", "parts"]
    unit_of_work: int
    recordings: tuple[RecordedSteps, ...]
    facts: Facts


def to_json(profile: Profile) -> str:
    """Write the profile as JSON, one column per line: aggregated calls and kernels, steps and facts.

    It contains no single events.
    """
    document = {
        KIND: VERSION,
        "tool_version": tool_version(),
        "path": profile.path,
        "detail": profile.detail,
        "unit_of_work": profile.unit_of_work,
        "recordings": [dataclasses.asdict(recording) for recording in profile.recordings],
        "facts": dataclasses.asdict(profile.facts),
        "frames": {name: columns_of(getattr(profile, name)) for name in _FRAMES},
    }
    head = {key: value for key, value in document.items() if key != "frames"}
    lines = [f"{json.dumps(key)}: {json.dumps(value, allow_nan=False)}" for key, value in head.items()]
    frames = [
        f"{json.dumps(name)}: {{\n"
        + ",\n".join(f"  {json.dumps(c)}: {json.dumps(v)}" for c, v in columns.items())
        + "\n}"
        if columns is not None
        else f"{json.dumps(name)}: null"
        for name, columns in document["frames"].items()  # type: ignore[attr-defined]
    ]
    return "{\n" + ",\n".join([*lines, '"frames": {\n' + ",\n".join(frames) + "\n}"]) + "\n}\n"


def columns_of(frame: pl.DataFrame | None) -> dict[str, list[Any]] | None:
    """Return columns as lists; repeated texts as a list of distinct ones and indices into it."""
    if frame is None:
        return None
    columns: dict[str, Any] = {}
    for name, dtype in frame.schema.items():
        values = frame.get_column(name)
        if dtype == pl.String:
            distinct = values.drop_nulls().unique(maintain_order=True)
            places = {text: place for place, text in enumerate(distinct)}
            columns[name] = {"texts": distinct.to_list(), "rows": [places.get(text, -1) for text in values]}
        else:
            columns[name] = values.to_list()
    return columns


def read(path: Path, document: Mapping[str, Any]) -> Profile:
    """Read a baseline. Raises ``InputError`` for a damaged one, or one of another version."""
    version = document[KIND]
    if not isinstance(version, int) or isinstance(version, bool) or version != VERSION:
        raise InputError(
            f"{path}: a baseline of version {version!r}; this program reads version {VERSION}: save it again"
        )
    try:
        profile = profile_from(document)
    except damage() as error:
        raise InputError(f"{path}: a damaged baseline ({first_line(error)}); save it again") from None
    if not _sums_up(profile):
        raise InputError(f"{path}: a damaged baseline: its lines do not sum to its steps; save it again")
    return profile


def _sums_up(profile: Profile) -> bool:
    """Return whether lines sum to the steps, in total and for each step (or recording, of several)."""
    if profile.rows.get_column("total_ns").sum() != profile.total_ns:
        return False
    if profile.units is None:
        return True
    units = profile.recordings if profile.are_recordings_units else profile.recordings[0].lengths_ns
    lengths = [unit if isinstance(unit, int) else unit.total_ns for unit in units]
    by_unit = dict(profile.units.group_by("unit").agg(pl.col("total_ns").sum()).iter_rows())
    by_row = profile.units.group_by("row").agg(pl.col("total_ns").sum().alias("of_units"))
    rows = profile.rows.select("row", "total_ns").join(by_row, on="row", how="full", nulls_equal=True)
    return by_unit == {unit: length for unit, length in enumerate(lengths) if unit in by_unit or length} and bool(
        (rows.get_column("total_ns").fill_null(0) == rows.get_column("of_units").fill_null(0)).all()
    )


def profile_from(document: Mapping[str, Any]) -> Profile:
    """Return the profile stored in a baseline's document."""
    frames = {name: _frame(name, document["frames"][name]) for name in _FRAMES}
    head = read_as(_Head, {key: document[key] for key in _Head.__annotations__})
    if head.unit_of_work < 1:
        raise ValueError("unit_of_work is below 1")
    if any(item.steps < 1 for item in head.facts.devices):
        raise ValueError("a device has no steps")
    return Profile(**vars(head), **frames)


def _frame(name: str, columns: Mapping[str, Any] | None) -> Any:
    if columns is None and name == "units":
        return None
    if columns is None:
        raise TypeError(f"{name} is missing")
    frame = frame_of(columns, _FRAMES[name])
    for column in _KNOWN[name]:
        if frame.get_column(column).null_count():
            raise ValueError(f"{column} is missing in a row of {name}")
    for column in _NUMBERS[name]:
        values = frame.get_column(column).drop_nulls()
        if not (values.is_finite() & (values >= 0)).all():
            raise ValueError(f"{column} of {name} has what is no number of 0 or more")
    if name == "rows" and not frame.get_column("kind").is_in(KINDS).all():
        raise ValueError("a row is of no known kind")
    return frame


def frame_of(columns: Mapping[str, Any], schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Return the frame from columns that `columns_of` wrote."""
    return pl.DataFrame([pl.Series(name, _values(columns[name], dtype), dtype) for name, dtype in schema.items()])


def _values(column: Any, dtype: pl.DataType) -> list[Any]:
    if dtype != pl.String:
        return list(column)
    texts = column["texts"]
    return [None if row < 0 else texts[row] for row in column["rows"]]
