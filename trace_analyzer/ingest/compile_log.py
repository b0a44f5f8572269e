"""Read why Dynamo broke graphs and compiled again: logs of ``TORCH_TRACE=DIR``, or what tlparse made of them.

A log has an event a line, in JSON after the prefix of glog, and its payload in lines that begin with a tab
(`torch/_logging/_internal.py`: ``TorchLogsFormatter``). tlparse writes each payload to a file of the event's name, in a
folder for each compilation: ``-_0_1_0`` is frame 0, version 1, attempt 0.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from trace_analyzer.errors import UsageError

COMPILE_LOG = {
    "region": pl.String,
    "graph_break": pl.String,
    "recompiled": pl.String,
    "compile_ns": pl.Int64,
    "cache_misses": pl.UInt32,
}
_LOGS = "dedicated_log_torch_trace*.log"
_EVENT = re.compile(r"V\d{4} [\d:.]+ \d+ [^\]]*\] (\{.*)")
_FOLDER = re.compile(r"[^_]*_(\d+)_(\d+)_\d+")
_LONGEST = 500
"""Characters of a reason that are kept: the rest is a stack."""


def read_compile_log(folder: Path, rank: int | None) -> pl.DataFrame:
    """Return a row for each compilation, with its region as the trace names it: `COMPILE_LOG`.

    Of logs that name ranks, those of ``rank`` count. Raises ``UsageError`` where there is nothing of the kind.
    """
    logs = sorted(folder.glob(_LOGS))
    logs = [log for log in logs if f"_rank_{rank}_" in log.name] or logs
    compilations: dict[str, dict[str, Any]] = {}
    for region, name, payload in (event for log in logs for event in _events(log)) if logs else _artefacts(folder):
        row = compilations.setdefault(region, {"region": region, "cache_misses": 0})
        if name == "dynamo_graph_break_reason":
            row["graph_break"] = _in_a_line(payload)
        elif name == "recompile_reasons":
            row["recompiled"] = _in_a_line(_text_of(payload))
        elif "_cache_miss" in name:
            row["cache_misses"] += 1
        elif name == "compilation_metrics":
            seconds = _json(payload).get("entire_frame_compile_time_s")
            row["compile_ns"] = (
                round(seconds * 1e9) if isinstance(seconds, (int, float)) and 0 <= seconds < 1e9 else None
            )
    if not compilations:
        raise UsageError(
            f"--compile-log {folder}: no logs of compilations; TORCH_TRACE={folder} python train.py writes them, and tlparse unpacks them"
        )
    return pl.DataFrame(list(compilations.values()), COMPILE_LOG)


def _events(log: Path) -> Iterator[tuple[str, str, str]]:
    """Yield region, name and payload of the events of a log that belong to a compilation."""
    head: dict[str, Any] = {}
    payload: list[str] = []
    with log.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith("\t"):
                payload.append(line[1:])
            elif event := _EVENT.match(line):
                yield from _event(head, payload)
                head, payload = _json(event[1]), []
    yield from _event(head, payload)


def _event(head: dict[str, Any], payload: list[str]) -> Iterator[tuple[str, str, str]]:
    if not {"frame_id", "frame_compile_id"} <= head.keys():
        return
    region = f"{head['frame_id']}/{head['frame_compile_id']}"
    if isinstance(artifact := head.get("artifact"), dict):
        yield region, str(artifact.get("name")), "".join(payload)
    elif "compilation_metrics" in head:
        yield region, "compilation_metrics", json.dumps(head["compilation_metrics"])


def _artefacts(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yield the same of the files of tlparse."""
    for file in sorted(folder.glob("*_*_*_*/*_*.*")):
        if place := _FOLDER.fullmatch(file.parent.name):
            yield f"{place[1]}/{place[2]}", re.sub(r"_\d+$", "", file.stem), file.read_text("utf-8", errors="replace")


def _json(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _text_of(payload: str) -> str:
    """Return the reasons of a list in JSON, one a line; other text as it is."""
    try:
        reasons = json.loads(payload)
    except ValueError:
        return payload
    return "\n".join(map(str, reasons)) if isinstance(reasons, list) else payload


def _in_a_line(text: str) -> str | None:
    """Return a reason in one line, without the details and the stack that follow it."""
    reason = re.split(r"\n\s*(?:User code traceback|Developer debug context|For more details)", text, maxsplit=1)[0]
    return " ".join(reason.split())[:_LONGEST] or None
