"""List what `torch.compile` made: the regions that Dynamo compiled, and the kernels that Inductor generated.

Dynamo names a region by the number of its frame and the number of earlier compilations of that frame
(`torch/_dynamo/eval_frame.py`: ``Torch-Compiled Region: 0/1``, and ``!2/0/1`` within compiled autograd's graph 2,
`torch/_guards.py`: ``CompileId``); after a graph break the rest of a function is a frame of its own,
``torch_dynamo_resume_in_forward_at_12``. Inductor names a kernel by the operators that it fuses
(`torch/_inductor/utils.py`: ``get_fused_kernel_name``).

Why Dynamo broke graphs and compiled again is in a log of ``TORCH_TRACE=DIR``, or in what tlparse made of it. A log has an
event a line, in JSON after the prefix of glog, and its payload in lines that begin with a tab
(`torch/_logging/_internal.py`: ``TorchLogsFormatter``). tlparse copies the log to ``raw.log``, and writes each payload to a
file of the event's name, in a folder for each compilation: ``-_0_1_0`` is frame 0, version 1, attempt 0. Times of
compilations are in the log only.
"""

import json
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl

from trace_analyzer import analysis, errors, schema
from trace_analyzer.analyses.host import Context
from trace_analyzer.catalog import FOLDER
from trace_analyzer.frames.intervals import END_NS
from trace_analyzer.ingest.trace import Trace
from trace_analyzer.options import Options
from trace_analyzer.sections import WHOLE_TRACE, Section, Shown

COMPILE_LOG = {
    "region": pl.String,
    "compiled_function": pl.String,
    "graph_break": pl.String,
    "recompiled": pl.String,
    "compile_ns": pl.Int64,
    "cache_misses": pl.UInt32,
}
_LOGS = "dedicated_log_torch_trace*.log"
_EVENT = re.compile(r"V\d{4} [\d:.]+ \d+ [^\]]*\] (\{.*)")
_FOLDER = re.compile(r"[^_]*_(\d+)_(\d+)_\d+")
_DETAILS = re.compile(
    r"\n\s*(?:User (?:code traceback|stack trace)|from user code|Traceback|Developer debug context|For more details|Set TORCH)"
)
_LIBRARIES = r"(?<!\S)\S*/(?:site-packages|lib/python3\.\d+)/"
_LEADS = {
    r"Graph break in user code at ": "",
    r"\n(?:Graph Break )?Reason: (?:Encountered graph break when attempting to trace [^\n]*\n+)?": ": ",
    r"(?m)^\s*Explanation: (?:.|\n)*?(?=^\s*Hint: |\Z)": "",
    "Hint: ": "– ",
    _LIBRARIES: "",
}
"""What stands between place, reason and hints of a graph break (torch/_dynamo/symbolic_convert.py) -> what replaces it."""
_LONGEST = 240
"""Characters of reasons that are kept."""


def read_compile_log(folder: Path, rank: int | None) -> pl.DataFrame:
    """Return a row for each compilation, with its region as the trace names it: `COMPILE_LOG`.

    Of logs that name ranks, those of ``rank`` count. Raises ``UsageError`` where there is nothing of the kind.
    """
    logs = sorted(folder.glob(_LOGS)) or sorted(folder.glob("raw.log"))
    logs = [log for log in logs if f"_rank_{rank}_" in log.name] or logs
    compilations: dict[str, dict[str, Any]] = {}
    for region, name, payload in (event for log in logs for event in _events(log)) if logs else _artefacts(folder):
        row = compilations.setdefault(region, {"region": region, "cache_misses": 0})
        if name == "dynamo_graph_break_reason":
            row["graph_break"] = _why_broken(payload)
        elif name == "recompile_reasons":
            row["recompiled"] = _in_a_line(_reasons(payload))
        elif "_cache_miss" in name:
            row["cache_misses"] += 1
        elif name == "compilation_metrics":
            metrics = _json(payload)
            seconds = metrics.get("entire_frame_compile_time_s")
            row["compile_ns"] = (
                round(seconds * 1e9) if isinstance(seconds, (int, float)) and 0 <= seconds < 1e9 else None
            )
            if isinstance(failure := metrics.get("fail_reason"), str):
                row.setdefault("graph_break", _why_broken(failure))
            file, line, function = (metrics.get(f"co_{key}") for key in ("filename", "firstlineno", "name"))
            row["compiled_function"] = (
                re.sub(_LIBRARIES, "", f"{file}({line}): {function}") if file and function else None
            )
    if not compilations:
        raise errors.UsageError(
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


def _reasons(payload: str) -> list[str]:
    """Return the reasons of a list in JSON; other text is one."""
    try:
        reasons = json.loads(payload)
    except ValueError:
        return [payload]
    return list(map(str, reasons)) if isinstance(reasons, list) else [payload]


def _why_broken(text: str) -> str | None:
    """Return place, reason and hints of a graph break in one line."""
    for lead, short in _LEADS.items():
        text = re.sub(lead, short, text)
    return _in_a_line([text])


def _in_a_line(reasons: list[str]) -> str | None:
    """Return reasons in one line, each without the details and the stack that follow it."""
    text = "; ".join(_DETAILS.split(reason, maxsplit=1)[0].strip() for reason in reasons)
    return textwrap.shorten(text, _LONGEST, placeholder=" …") or None


COMPILED_REGIONS = schema.Table(
    "compiled_regions",
    "Functions that Dynamo compiled, by version, most device time first.",
    schema.columns("""
        region str Number of the frame and of its version, as Dynamo counts: 0/1 was compiled once before.
        python_function
        resumed_after str The call of a graph break, as function and line, after which this region goes on; null for none.
        compiled_before u32 Earlier compilations of this frame.
        graph_break str Why it ends before its function does, of a log of compilations (``--compile-log``).
        recompiled str Guards that failed, so that it was compiled again, of that log.
        compile_ns i64 Time of its compilation, of that log.
        cache_misses u32 Look-ups in caches of compiled code (AOTAutograd's, Inductor's) that found none, of that log; null without it.
        count u32 How often the region ran.
        host_ns i64 Time of these runs, with what they call.
        activity_count u32 Activities that it launched, without those of regions within it.
        device_ns i64 Sum of their durations.
        event_id u32 Its longest run, a row of `host_events`.
        start_ns i64 Start of that.
        end_ns i64 Its end.
    """),
)
FUSED_KERNELS = schema.Table(
    "fused_kernels",
    "Kernels that Inductor generated, with the operators that each fuses and its source, most device time first.",
    schema.columns("""
        name str Name of the kernel.
        fuses str Operators whose work it does, as its name says, in alphabetical order.
        kernel_file str File with its source, as the profiler recorded it; null when it did not.
        count u32 How often it ran.
        device_ns i64 Sum of its durations.
        start_ns i64 Start of its longest run.
        end_ns i64 Its end.
    """),
)

_REGION = r"^Torch-Compiled Region: (?:!\d+/)?(\d+)/(\d+)$"
_RESUMED = r": torch_dynamo_resume_in_(.+)_at_(\d+)$"
_FUSED = r"^triton_[a-z]{2,4}_fused_(.+)_\d+$"


@cache
def _operator() -> str:
    """Return the pattern of operators within a kernel's name, which joins them with underscores: the longest known ones first."""
    known = [name for name in (FOLDER / "operators.txt").read_text("utf-8").splitlines() if not name.startswith("#")]
    longest_first = "|".join(sorted(known, key=len, reverse=True))
    return f"_(?:{longest_first}|[a-z0-9]+)(?:_forward|_backward(?:_data)?)?"


def compile_log(options: Options, trace: Trace) -> pl.DataFrame:
    """Return the log that the options name: `COMPILE_LOG`; no rows without one."""
    if options.compile_log is None:
        return pl.DataFrame(schema=COMPILE_LOG)
    return read_compile_log(Path(options.compile_log), trace.rank)


def compiled_regions(context: Context, activities: pl.DataFrame, compile_log: pl.DataFrame) -> pl.DataFrame:
    """Return table `compiled_regions`: the runs of each region, summed up, with what they launched."""
    host = context.host
    runs = host.those(pl.col("name").str.contains(_REGION), "event_id", "name", "start_ns", "end_ns", "duration_ns")
    if runs.is_empty() and compile_log.is_empty():
        return COMPILED_REGIONS.empty()
    around = context.tree.nearest(host.each(pl.col("name").str.contains(_REGION).cast(pl.UInt8)))
    launched = activities.select("duration_ns", around[activities.get_column("launch_id")].alias("event_id"))
    work = launched.group_by("event_id").agg(
        pl.len().alias("activity_count"), pl.col("duration_ns").sum().alias("device_ns")
    )
    # The compiled function is the first frame that a region calls.
    frames = (
        context.events.filter(
            pl.col("kind") == "python", pl.col("parent_id").is_in(runs.get_column("event_id").implode())
        )
        .sort("start_ns", "event_id")
        .group_by("parent_id", maintain_order=True)
        .agg(pl.col("name").cast(pl.String).first().alias("python_function"))
    )
    named = runs.join(work, on="event_id", how="left").join(
        frames, left_on="event_id", right_on="parent_id", how="left"
    )
    function = pl.col("python_function")
    return COMPILED_REGIONS.conform(
        named.sort("duration_ns", "event_id", descending=[True, False])
        .group_by(pl.col("name").cast(pl.String).str.replace(_REGION, "$1/$2").alias("region"))
        .agg(
            pl.len().alias("count"),
            pl.col("duration_ns").sum().alias("host_ns"),
            pl.col("activity_count", "device_ns").sum(),
            function.drop_nulls().first(),
            pl.col("event_id", "start_ns", "end_ns").first(),
        )
        .join(compile_log, on="region", how="full", coalesce=True)
        .filter(pl.any_horizontal(pl.col("count", "graph_break", "recompiled").is_not_null()))
        .with_columns(
            pl.col("count", "host_ns", "activity_count", "device_ns").fill_null(0),
            pl.coalesce(function, "compiled_function"),
            pl.col("region").str.extract(r"/(\d+)").cast(pl.UInt32, strict=False).alias("compiled_before"),
        )
        .with_columns(
            pl.format("{}, line {}", function.str.extract(_RESUMED, 1), function.str.extract(_RESUMED, 2)).alias("resumed_after"),
        )
        .sort("device_ns", "host_ns", "region", descending=[True, True, False])
    )  # fmt: skip


def fused_kernels(trace: Trace, activities: pl.DataFrame) -> pl.DataFrame:
    """Return table `fused_kernels`: the runs of each kernel, summed up."""
    runs = activities.filter(pl.col("name").cast(pl.String).str.contains(_FUSED))
    files = trace.operator_inputs.select(pl.col("event_id").alias("operator_id"), "kernel_file").drop_nulls()
    listed = pl.format("_{}", pl.col("name").str.extract(_FUSED, 1)).str.extract_all(_operator())
    fuses = listed.list.eval(pl.element().str.slice(1)).list.join(", ")
    return FUSED_KERNELS.conform(
        runs.select(pl.col("name").cast(pl.String), "operator_id", "start_ns", END_NS, "duration_ns")
        .join(files, on="operator_id", how="left")
        .sort("duration_ns", "start_ns", descending=[True, False])
        .group_by("name", maintain_order=True)
        .agg(
            pl.col("kernel_file").cast(pl.String).drop_nulls().first(),
            pl.len().alias("count"),
            pl.col("duration_ns").sum().alias("device_ns"),
            pl.col("start_ns", "end_ns").first(),
        )
        .with_columns(fuses.alias("fuses"))
        .sort("device_ns", "name", descending=[True, False])
    )


REGIONS_SECTION = Section(
    "Compiled regions",
    "What torch.compile compiled. A region that goes on after a call follows a graph break there; one that was compiled before"
    " was compiled again, as a guard failed. --compile-log says why.",
    show=(
        "region",
        Shown("python_function", "function", "frame", terminal=80, markdown=True),
        Shown("resumed_after", "goes on after", "text", terminal=140, markdown=True),
        Shown("graph_break", "graph break", "text", terminal=80, markdown=True),
        Shown("compiled_before", "compiled before", markdown=True, terminal=100, unless_zero=True),
        Shown("recompiled", "compiled again, as", "text", terminal=80, markdown=True),
        Shown("compile_ns", "compilation", markdown=True, terminal=80),
        Shown("cache_misses", "cache misses", markdown=True, unless_zero=True),
        "count",
        Shown("host_ns", "host time", markdown=True, terminal=60),
        Shown("activity_count", "activities", unless_zero=True),
        Shown("device_ns", "device time", markdown=True, terminal=60, unless_zero=True),
    ),
    scope=WHOLE_TRACE,
)
KERNELS_SECTION = Section(
    "Fused kernels",
    "What Inductor generated: the operators whose work each kernel does, and the file with its source.",
    show=(
        Shown("name", "kernel", "name", terminal=60, markdown=True),
        Shown("fuses", "operators", "text", terminal=100, markdown=True),
        Shown("count", "runs", terminal=60, markdown=True),
        Shown("device_ns", "device time", terminal=60, markdown=True),
        Shown("kernel_file", "source", "text", terminal=140, markdown=True),
    ),
    rows=10,
    scope=WHOLE_TRACE,
)

ANALYSES = (
    analysis.Value("compile_log", compile_log),
    analysis.Analysis(COMPILED_REGIONS, compiled_regions, json="compiled_regions", section=REGIONS_SECTION),
    analysis.Analysis(FUSED_KERNELS, fused_kernels, json="fused_kernels", section=KERNELS_SECTION),
)
