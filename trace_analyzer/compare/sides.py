"""Read one side of a comparison (a trace, a folder or pattern of recordings, a saved report, or a baseline); store it as a baseline."""

import glob
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated, Any, Literal

import polars as pl
from msgspec import Struct
from msgspec.structs import asdict, replace

from trace_analyzer.analyses.roofline import known_sum
from trace_analyzer.compare.facts import Facts, RecordedSteps, promise
from trace_analyzer.compare.judgement import roles
from trace_analyzer.compare.profiles import CALLS, DEVICE_SEPARATOR, KINDS, ROWS, UNITS, Profile, profile_of
from trace_analyzer.errors import InputError, UsageError
from trace_analyzer.installation import tool_version
from trace_analyzer.json_types import Limits, damage, first_line, read_as
from trace_analyzer.report import SCHEMA_VERSION, Report
from trace_analyzer.results import plain
from trace_analyzer.schema import typed
from trace_analyzer.units import printable
from trace_analyzer.vocabulary import PARTS, WORK

KIND = "baseline_version"
VERSION, _READ = 4, (1, 2, 3, 4)
"""The version that is written, and those that are read: 1 has a column more (`outer_count`), 2 no ``cold_ns``, 3 no ranks and no levers."""
_FRAMES: Mapping[str, Mapping[str, pl.DataType]] = {"calls": CALLS, "rows": ROWS, "units": UNITS}


_OPEN: Mapping[str, tuple[str, ...]] = {
    "calls": ("phase", "module", "operator", "outer_operator", "shapes", "outer_shapes", "flop"),
    "rows": ("call", "group", "part", "kernel"),
    "units": (),
}
"""Columns of the frames that may have nulls."""


class _Head(Struct, frozen=True):
    """The content of a baseline other than its frames."""

    path: str
    detail: Literal["calls", "parts"]
    unit_of_work: Annotated[int, Limits(minimum=1)]
    recordings: tuple[RecordedSteps, ...]
    facts: Facts


def baseline_json(profile: Profile) -> str:
    """Write the profile as JSON, one column per line: aggregated calls and kernels, steps and facts.

    It contains no single events.
    """
    document = {
        KIND: VERSION,
        "tool_version": tool_version(),
        "path": profile.path,
        "detail": profile.detail,
        "unit_of_work": profile.unit_of_work,
        "recordings": plain(profile.recordings),
        "facts": plain(profile.facts),
    }
    texts = {key: json.dumps(value, allow_nan=False) for key, value in document.items()}
    frames = {name: columns_of(getattr(profile, name)) for name in _FRAMES}
    lines = {
        name: "null" if columns is None else _lines({c: json.dumps(v) for c, v in columns.items()}, "  ")
        for name, columns in frames.items()
    }
    return _lines({**texts, "frames": _lines(lines)}) + "\n"


def _lines(entries: Mapping[str, str], indent: str = "") -> str:
    """Write an object whose values are JSON, an entry a line."""
    return "{\n" + ",\n".join(f"{indent}{json.dumps(key)}: {value}" for key, value in entries.items()) + "\n}"


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


def read_baseline(path: Path, document: Mapping[str, Any]) -> Profile:
    """Read a baseline. Raises ``InputError`` for a damaged one, or one of another version."""
    version = document[KIND]
    if not isinstance(version, int) or isinstance(version, bool) or version not in _READ:
        raise InputError(
            f"{path}: a baseline of version {version!r}; this program reads up to version {VERSION}: save it again"
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
    lengths = profile.unit_totals_ns
    by_unit = dict(profile.units.group_by("unit").agg(pl.col("total_ns").sum()).iter_rows())
    by_row = profile.units.group_by("row").agg(pl.col("total_ns").sum().alias("of_units"))
    rows = profile.rows.select("row", "total_ns").join(by_row, on="row", how="full", nulls_equal=True)
    return by_unit == {unit: length for unit, length in enumerate(lengths) if unit in by_unit or length} and bool(
        (rows.get_column("total_ns").fill_null(0) == rows.get_column("of_units").fill_null(0)).all()
    )


def profile_from(document: Mapping[str, Any]) -> Profile:
    """Return the profile stored in a baseline's document."""
    frames = {name: _frame(name, document["frames"][name]) for name in _FRAMES}
    head = read_as(_Head, {key: document[key] for key in _Head.__struct_fields__})
    return Profile(**asdict(head), **frames)


def _frame(name: str, columns: Mapping[str, Any] | None) -> Any:
    if columns is None and name == "units":
        return None
    if columns is None:
        raise TypeError(f"{name} is missing")
    frame = frame_of(columns, _FRAMES[name])
    for column in frame:
        if column.has_nulls() and column.name not in _OPEN[name]:
            raise ValueError(f"{column.name} is missing in a row of {name}")
        if column.dtype.is_numeric() and not (column.is_finite() & (column >= 0)).all():
            raise ValueError(f"{column.name} of {name} has what is no number of 0 or more")
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


Analyze = Callable[[str | Path], Report]
SideSource = str | Path | Report | Profile | Sequence[str | Path | Report]
SUFFIXES = (".json", ".json.gz", ".json.zst")
_LONGEST_NS = 2**53
"""Largest integer that every JSON reader represents exactly; sums of parts fit into 64 bits."""
_HEAD_BYTES = 4096
_PREDICTED = ("step_ns", "low_ns", "high_ns", "now_ns")
_KIND_OF = {part: part if part in ("communication", "copy") else "kernel" if part in WORK else "idle" for part in PARTS}
"""Kind of line of each part of the partition."""


def profile_side(source: SideSource, analyze: Analyze) -> Profile:
    """Read one side.

    A string or path is a trace, a baseline, a saved JSON report, a folder of traces or a pattern (``runs/*.json.gz``).
    Each of several traces is one recording. Raises ``UsageError`` where no file matches, and ``InputError`` for a file
    that is no trace.
    """
    if isinstance(source, Profile):
        return source
    if isinstance(source, Report):
        return profile_of(source)
    if not isinstance(source, str | Path):
        if not isinstance(source, Iterable) or not (source := list(source)):
            raise UsageError(
                f"no recording in an object of type {type(source).__name__}: expected a path, a report or several"
            )
        names = [item.trace.path if isinstance(item, Report) else str(item) for item in source]
        return merged(", ".join(names), [profile_side(item, analyze) for item in source])
    paths = recordings(source)
    return merged(printable(str(source)), [_read(path, analyze) for path in paths])


def recordings(source: str | Path) -> list[Path]:
    """Return the files that a path, a folder or a pattern names, in order.

    Raises ``UsageError`` where there is none.
    """
    if not str(source):
        raise UsageError("no file is named: the name is empty")
    if str(source) == "-":
        return [Path(source)]
    path = Path(source)
    if path.is_dir():
        files = sorted(item for item in path.iterdir() if item.is_file() and item.name.endswith(SUFFIXES))
        if not files:
            raise UsageError(f"{source}: no trace (*.json, *.json.gz, *.json.zst) in this folder")
        return [Path(item) for item in distinct(map(str, files))]
    return files_matching(str(source))


def files_matching(source: str) -> list[Path]:
    """Return the files that a path or a pattern names, in order. Raises ``UsageError`` for a pattern without any."""
    if Path(source).exists() or not glob.has_magic(source):
        return [Path(source)]
    # In pathlib `**` does not follow links: by glob.glob a folder with a link to its parent is read at 40 levels.
    whole = Path(source)
    parts = [part if part == "**" else re.sub(r"\*+", "*", part) for part in whole.relative_to(whole.anchor).parts]
    names = Path(whole.anchor).glob("/".join([*parts, *["*"] * (parts[-1] == "**")]))
    files = [str(name) for name in sorted(names) if name.is_file() and not _is_hidden(name, parts)]
    if not files:
        raise UsageError(f"{source}: no file matches this pattern")
    return [Path(name) for name in distinct(files)]


def _is_hidden(path: Path, asked: Sequence[str]) -> bool:
    """Return whether a part of the path begins with a dot without being asked for, as shells decide it."""
    dotted = [part for part in asked if part.startswith(".")]
    return any(part.startswith(".") and not any(fnmatch(part, own) for own in dotted) for part in path.parts)


def distinct(paths: Iterable[str]) -> list[str]:
    """Return the paths of distinct files, in order; of several paths of one file, the one without links."""
    real = {path: path if "://" in path else os.path.realpath(path) for path in paths}
    kept: dict[str, str] = {}
    for path in sorted(real, key=lambda path: (os.path.abspath(path) != real[path], path.count(os.sep))):
        kept.setdefault(real[path], path)
    return [path for path in real if kept[real[path]] == path]


def _read(path: Path, analyze: Analyze) -> Profile:
    """Read a baseline or a saved report, recognised by its first bytes; any other file as a trace."""
    saved = None if str(path) == "-" else _saved(path)
    if saved is None:
        return profile_of(analyze(str(path)))
    if KIND in saved:
        return read_baseline(path, saved)
    return _of_report(path, saved)


def _saved(path: Path) -> Mapping[str, Any] | None:
    """Return the document of a baseline or saved report; None for other files, which the trace reader checks.

    A pipe can be read only once, and reading one without a writer blocks: it counts as a trace.
    """
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
            if not head.lstrip().startswith(b"{") or (
                b'"tool_version"' not in head and f'"{KIND}"'.encode() not in head
            ):
                return None
            text = head + file.read()
    except OSError:
        return None
    try:
        document = json.loads(text)
    except ValueError as error:
        if f'"{KIND}"'.encode() in head:
            raise InputError(
                f"{printable(str(path))}: a damaged baseline ({first_line(error)}); save it again"
            ) from None
        return None
    is_ours = isinstance(document, dict) and ({"verdict", "devices"} <= document.keys() or KIND in document)
    return document if is_ours else None


def _of_report(path: Path, document: Mapping[str, Any]) -> Profile:
    """Return the profile of a saved JSON report: the verdict's window by part, and the lengths of its steps."""
    version = document.get("schema_version")
    if not isinstance(version, int) or not 1 <= version <= SCHEMA_VERSION:
        raise InputError(
            f"{path}: a report of schema version {version}; this program reads up to version {SCHEMA_VERSION}: save it again"
        )
    try:
        return _parts_profile(path, document)
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise InputError(f"{path}: not a report of this program that can be read ({error!r}); save it again") from None


def _parts_profile(path: Path, document: Mapping[str, Any]) -> Profile:
    verdict = document["verdict"]
    window = verdict["window"] or {"intervals": [], "steps": [], "kind": "whole"}
    parts = {name: ns for name, ns in (verdict["parts_ns"] or {}).items() if ns}
    for name, ns in parts.items():
        if name not in PARTS:
            raise ValueError(f"verdict.parts_ns has a part of no known name, {name!r}")
        _check_time("verdict.parts_ns", ns)
    total = sum(parts.values())
    steps = [s for s in document["steps"] if s["index"] in window["steps"] and s["device"] == verdict["device"]]
    _check_times(document)
    for advice in document["advice"]:
        for name in _PREDICTED if advice.get("predicted") else ():
            _check_time(f"advice.predicted.{name}", advice["predicted"][name], (int, float))
    lengths = tuple(s["duration_ns"] for s in steps)
    if parts and steps and sum(lengths) != total:
        raise ValueError("the parts of the verdict's window do not sum to its steps")
    if not steps or not parts:
        lengths = (total,) if total else ()
    device: Mapping[str, Any] = next((d for d in document["devices"] if d["index"] == verdict["device"]), {})
    withheld = {item["metric"]: item["reason"] for item in device.get("withheld", ())}
    sums = pl.DataFrame(
        [(_KIND_OF[name], name, ns) for name, ns in parts.items()],
        schema={"kind": pl.String, "category": pl.String, "total_ns": pl.Int64},
        orient="row",
    ).with_row_index("row")
    count = max(1, len(lengths))
    return Profile(
        path=printable(str(path)),
        recordings=(RecordedSteps(str(document["trace"]["path"]), lengths, bool(steps)),),
        calls=pl.DataFrame(schema=CALLS),
        rows=part_rows(sums),
        units=None,
        facts=read_as(
            Facts,
            {
                "device_name": device.get("name"),
                "regime": verdict["regime"],
                "cause": verdict["cause"],
                "headline": verdict["headline"],
                "withheld": withheld.get("partition") or (None if parts else verdict["headline"]),
                "causes_withheld": "idle_causes" in withheld,
                "advice": plain(tuple(promise(a, count) for a in document["advice"])),
                "versions": document["trace"].get("versions", {}),
            },
        ),
        detail="parts",
    )


_SINCE_1970 = ("origin_ns", "base_time_ns")  # texts: a double holds no such whole number


def _check_times(value: object, place: str = "") -> None:
    """Raise ``ValueError`` for a length that is no whole number of ns, or any other time that is no number."""
    if isinstance(value, list):
        for inner in value:
            _check_times(inner, place)
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key == "duration_ns":
                _check_time(f"{place}{key}", inner)
            elif key.endswith("_ns") and key not in _SINCE_1970 and not isinstance(inner, dict | list | None):
                _check_time(f"{place}{key}", abs(inner), (int, float))
            _check_times(inner, f"{place}{key}.")


def _check_time(place: str, ns: object, kinds: tuple[type, ...] = (int,)) -> None:
    if not isinstance(ns, kinds) or isinstance(ns, bool) or not 0 <= ns <= _LONGEST_NS:  # type: ignore[operator]
        raise ValueError(f"{place} has {ns!r}, which is no time in ns")


def in_parts(profile: Profile) -> Profile:
    """Return the profile with only the partition, to compare it with a side that has no more."""
    if profile.detail == "parts":
        return profile
    kind = pl.col("part").replace_strict(_KIND_OF, default="kernel").alias("kind")
    summed = (
        profile.rows.group_by(kind, pl.col("part").alias("category"), maintain_order=True)
        .agg(pl.col("total_ns").sum(), pl.col("row").alias("rows"))
        .with_row_index("row")
    )
    units = units_of_rows(profile, summed)
    return replace(profile, calls=profile.calls.clear(), rows=part_rows(summed), units=units, detail="parts")


def units_of_rows(profile: Profile, summed: pl.DataFrame) -> pl.DataFrame | None:
    """Return `UNITS` of rows that sum up those of the profile: ``summed`` has row, and the numbers of its own (rows)."""
    if profile.units is None:
        return None
    places = summed.select(pl.col("row").alias("sum_row"), pl.col("rows").alias("row")).explode("row")
    joined = profile.units.join(places, on="row").group_by(pl.col("sum_row").alias("row"), "unit")
    return typed(joined.agg(pl.col("total_ns").sum()).sort("row", "unit"), UNITS)


def part_rows(sums: pl.DataFrame) -> pl.DataFrame:
    """Return `ROWS` for parts, from kind, category and total_ns."""
    known = {"kind", "category", "total_ns", "row"}
    zeros = {name: pl.lit(0, dtype) for name, dtype in ROWS.items() if dtype.is_numeric() and name not in known}
    texts = {"group": pl.col("category"), "part": pl.col("category"), "kernel": pl.lit(None, pl.String)}
    extra = {**zeros, **texts, "call": pl.lit(None, pl.UInt32)}
    return typed(sums.with_columns(expr.alias(name) for name, expr in extra.items() if name not in sums.columns), ROWS)


def merged(path: str, profiles: Sequence[Profile]) -> Profile:
    """Merge several recordings of one side into a profile, in which each is a unit of observation."""
    if len(profiles) == 1:
        return replace(profiles[0], path=path)
    call_key = [c for c in CALLS if c not in ("call", "count", "flop", "first")]
    known = [p.calls.with_columns(pl.lit(i, pl.UInt32).alias("side")) for i, p in enumerate(profiles)]
    every = pl.concat(known)
    calls = (
        every.group_by(call_key, maintain_order=True)
        .agg(pl.col("count").sum(), known_sum("flop"), pl.col("first").min())
        .with_row_index("call")
        .cast({"call": pl.UInt32})
    )
    numbers = every.join(
        calls.select(*call_key, pl.col("call").alias("merged")), on=call_key, how="left", nulls_equal=True
    ).select("side", "call", "merged")
    rows = pl.concat([p.rows.with_columns(pl.lit(i, pl.UInt32).alias("side")) for i, p in enumerate(profiles)])
    rows = rows.join(numbers, on=["side", "call"], how="left", maintain_order="left").with_columns(
        pl.col("merged").alias("call")
    )
    row_key = ["call", "kind", "category", "group", "part", "kernel"]
    sums = (
        rows.group_by(row_key, maintain_order=True)
        .agg(pl.col("count", "total_ns", "roof_ns", "known_ns", "blocks").sum())
        .with_row_index("row")
    )
    numbered = rows.select(*row_key, "side", pl.col("row").alias("own"), "total_ns").join(
        sums.select(*row_key, "row"), on=row_key, how="left", nulls_equal=True
    )
    made = Profile(
        path=path,
        recordings=tuple(recording for profile in profiles for recording in profile.recordings),
        calls=typed(calls, CALLS),
        rows=typed(sums, ROWS),
        units=None,
        facts=_merged_facts([p.facts for p in profiles]),
        timeline=profiles[0].timeline,
        detail="parts" if any(p.detail == "parts" for p in profiles) else "calls",
    )
    by_unit = [numbered.select("row", "total_ns", pl.col("side").alias("unit"))]
    if made.is_job:  # whose units are its steps; profiles with a rank have units
        ranked = zip(made.recordings, profiles, strict=True)
        role_of = roles(pl.concat(p.work.with_columns(pl.lit(r.rank, pl.Int64).alias("rank")) for r, p in ranked))
        recordings = tuple(replace(r, role=role_of.get(r.rank or 0)) for r in made.recordings)
        made = replace(made, recordings=recordings)
        by_unit = [
            p.units.join(numbered.filter(pl.col("side") == i).select("own", pl.col("row").alias("merged")), left_on="row", right_on="own")
            .select(pl.col("merged").alias("row"), "total_ns", "unit")
            for i, p in enumerate(profiles)
            if p.units is not None
        ]  # fmt: skip
    units = pl.concat(by_unit).group_by("row", "unit").agg(pl.col("total_ns").sum()).sort("row", "unit")
    return replace(made, units=typed(units, UNITS))


def _merged_facts(facts: Sequence[Facts]) -> Facts:
    """Merge facts of several recordings: the first one's, with the doubts of any and the FLOP of all."""
    flop, launches = ([getattr(f, name) for f in facts] for name in ("flop", "launches"))
    names = sorted({f.device_name for f in facts if f.device_name})
    common = set.intersection(*({*f.versions.items()} for f in facts))
    return replace(
        facts[0],
        device_name=DEVICE_SEPARATOR.join(names) or None,
        withheld=next((f.withheld for f in facts if f.withheld), None),
        cold=all(f.cold for f in facts),
        shapes_known=all(f.shapes_known for f in facts),
        versions={name: version for name, version in facts[0].versions.items() if (name, version) in common},
        flop=None if None in flop else sum(flop),
        launches=None if None in launches else sum(launches),
    )
