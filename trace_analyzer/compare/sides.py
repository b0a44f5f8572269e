"""Read the sides of a comparison: a trace, a folder or pattern of recordings, a saved report, or a baseline."""

import glob
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from trace_analyzer.compare import baselines
from trace_analyzer.compare.facts import Facts, Promise, RecordedSteps, promise
from trace_analyzer.compare.profiles import CALLS, Profile, merged, part_rows, profile_of
from trace_analyzer.errors import InputError, UsageError
from trace_analyzer.report import SCHEMA_VERSION, Report
from trace_analyzer.results import plain
from trace_analyzer.typed import first_line, read_as
from trace_analyzer.units import printable

Analyze = Callable[[str | Path], Report]
SideSource = str | Path | Report | Profile | Sequence[str | Path | Report]
SUFFIXES = (".json", ".json.gz", ".json.zst")
_LONGEST_NS = 2**53
"""Largest integer that every JSON reader represents exactly; sums of parts fit into 64 bits."""
_HEAD_BYTES = 4096
_PREDICTED = ("step_ns", "low_ns", "high_ns", "now_ns")
_WORK_KINDS = {"communication": "communication", "copy": "copy"}


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
        return merged(", ".join(_name(item) for item in source), [profile_side(item, analyze) for item in source])
    paths = recordings(source)
    return merged(printable(str(source)), [_read(path, analyze) for path in paths])


def recordings(source: str | Path) -> list[Path]:
    """Return the files that a path, a folder or a pattern names, in order.

    Raises ``UsageError`` where there is none.
    """
    if not str(source):
        raise UsageError("no file is named: the name is empty")
    path = Path(source)
    if str(source) == "-":
        return [path]
    if path.is_dir():
        files = sorted(item for item in path.iterdir() if item.is_file() and item.name.endswith(SUFFIXES))
        if not files:
            raise UsageError(f"{source}: no trace (*.json, *.json.gz, *.json.zst) in this folder")
        return files
    if path.exists() or not glob.has_magic(str(source)):
        return [path]
    files = sorted(Path(item) for item in glob.glob(str(source), recursive=True) if Path(item).is_file())
    if not files:
        raise UsageError(f"{source}: no file matches this pattern")
    return files


def _name(item: object) -> str:
    return item.trace.path if isinstance(item, Report) else str(item)


def _read(path: Path, analyze: Analyze) -> Profile:
    """Read a baseline or a saved report, recognised by its first bytes; any other file as a trace."""
    saved = None if str(path) == "-" else _saved(path)
    if saved is None:
        return profile_of(analyze(str(path)))
    if baselines.KIND in saved:
        return baselines.read(path, saved)
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
                b'"tool_version"' not in head and f'"{baselines.KIND}"'.encode() not in head
            ):
                return None
            text = head + file.read()
    except OSError:
        return None
    try:
        document = json.loads(text)
    except ValueError as error:
        if f'"{baselines.KIND}"'.encode() in head:
            raise InputError(
                f"{printable(str(path))}: a damaged baseline ({first_line(error)}); save it again"
            ) from None
        return None
    return (
        document
        if isinstance(document, dict) and ({"verdict", "devices"} <= document.keys() or baselines.KIND in document)
        else None
    )


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
    parts = {_part(name): _time(ns) for name, ns in (verdict["parts_ns"] or {}).items() if ns}
    total = sum(parts.values())
    steps = [s for s in document["steps"] if s["index"] in window["steps"] and s["device"] == verdict["device"]]
    lengths = tuple(int(s["duration_ns"]) for s in steps)
    if sum(lengths) != total:
        lengths = (total,) if total else ()
    device: Mapping[str, Any] = next((d for d in document["devices"] if d["index"] == verdict["device"]), {})
    withheld = {item["metric"]: item["reason"] for item in device.get("withheld", ())}
    sums = pl.DataFrame(
        [(_kind(name), name, ns) for name, ns in parts.items()],
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
                "advice": plain(tuple(_promise(a, count) for a in document["advice"])),
            },
        ),
        detail="parts",
    )


def _part(name: str) -> str:
    """Return a part's name. Raises ``ValueError`` for an unknown one."""
    from trace_analyzer.vocabulary import PARTS

    if name not in PARTS:
        raise ValueError(f"verdict.parts_ns has a part of no known name, {name!r}")
    return name


def _time(ns: object) -> int:
    """Return a time in ns. Raises ``ValueError`` for an invalid one."""
    if not isinstance(ns, int) or isinstance(ns, bool) or not 0 <= ns <= _LONGEST_NS:
        raise ValueError(f"verdict.parts_ns has {ns!r}, which is no time in ns")
    return ns


def _promise(advice: Mapping[str, Any], steps: int) -> Promise:
    predicted = advice.get("predicted")
    return promise(
        (advice["id"], advice["title"], advice["saves_ns_at_most"] / steps, advice["how_bound"]),
        None if predicted is None else tuple(float(predicted[name]) for name in _PREDICTED),  # type: ignore[arg-type]
    )


def _kind(part: str) -> str:
    """Return the kind of a line for its part."""
    from trace_analyzer.vocabulary import WORK

    return _WORK_KINDS.get(part, "kernel") if part in WORK else "idle"
