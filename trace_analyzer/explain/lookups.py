"""Look up one item of a report by its id, with the table rows that are its evidence."""

import shlex
from collections.abc import Callable, Mapping
from typing import Any

import polars as pl
from msgspec.structs import asdict

from trace_analyzer import allocator, catalog, errors, units
from trace_analyzer.allocator.attribution import MEANINGS
from trace_analyzer.catalog.event_names import in_function
from trace_analyzer.catalog.fixes import fixes
from trace_analyzer.explain import Explanation, items
from trace_analyzer.render import phrasing, row_phrases
from trace_analyzer.report import Advice, Report, Value, Verdict, summaries
from trace_analyzer.vocabulary import PART_OPTION, PARTS, UNSEEN, label

_MOST_ROWS = 8


def explain(report: Report, asked: str) -> Explanation:
    """Return the explanation of the item with this id, or of the advice with this `Advice.id`.

    Raises ``UsageError`` for an unknown id.
    """
    if asked == "verdict":
        return _verdict(report)
    if any(item.id == asked for item in report.advice):
        asked = f"advice:{asked}"
    look_up = _LOOKUPS.get(asked.partition(":")[0])
    explanation = look_up(report, asked) if look_up else None
    if explanation is None:
        raise items.unknown(report, asked)
    return explanation


def _command(report: Report, *words: str) -> str:
    return shlex.join(("analyze", words[0], report.trace.path, *words[1:]))


def _frequency(verdict: Verdict) -> str:
    """Write in which share of the worlds that the trace admits the regime holds."""
    if verdict.confidence_ratio is None:
        return ""
    share = units.percent(verdict.confidence_ratio)
    how_often = catalog.document("confidence.toml")
    level = next(row for row in how_often["levels"] if row["level"] == verdict.confidence)
    return (
        f"The regime is the same in {share} of the ways to fill in what the trace leaves open. Of {level['verdicts']} verdicts of"
        f" {verdict.confidence} confidence on {how_often['recordings']} recordings made poorer, {level['held']} held (docs/definitions.md,"
        " Confidence)."
    )


def _verdict(report: Report) -> Explanation:
    """Explain the verdict: its reason, the rule, the confidence, and the facts behind it."""
    verdict = report.verdict
    how_sure, why = phrasing.confidence(verdict)
    sure = f"{how_sure} {why}.".replace(" .", ".") if verdict.regime else ""
    text = [
        phrasing.headline(verdict),
        row_phrases.step_without_recording(verdict),
        row_phrases.levers_sentence(verdict),
        row_phrases.rule_applied(verdict),
        sure,
        _frequency(verdict),
    ]
    parts = sorted(verdict.parts_ns.items(), key=lambda item: -item[1])
    window = verdict.window
    next_id = f"advice:{report.advice[0].id}" if report.advice else ""
    return Explanation(
        id="verdict",
        title=phrasing.verdict_label(verdict),
        text=tuple(sentence for sentence in text if sentence),
        facts={
            "device": verdict.device,
            "window": None if window is None else phrasing.window_phrase(report),
            **{fact.metric: fact.value for fact in verdict.evidence},
        },
        rows_title="Parts of the window",
        rows=tuple({"time_ns": ns, "part": label(part)} for part, ns in parts if ns),
        see=tuple(f"advice:{item.id}" for item in report.advice),
        next=_command(report, "explain", next_id) if next_id else "",
    )


def _advice(report: Report, asked: str) -> Explanation | None:
    """Explain an advice: the figures that lead to it, the code, where, and how its bound is computed."""
    item = next((item for item in report.advice if f"advice:{item.id}" == asked), None)
    if item is None:
        return None
    return Explanation(
        id=asked,
        title=item.title,
        text=tuple(
            sentence for sentence in (item.why, phrasing.advised_place(item), phrasing.predicted_step(item)) if sentence
        ),
        facts={
            "saves_at_most_ns": item.saving.at_most_ns,
            "saves_at_most_ratio": item.saving.at_most_ratio,
            "of": "a step" if item.saving.has_steps else "the window",
            "bound": item.how_bound,
            "place_start_ns": item.start_ns,
            "place_end_ns": item.end_ns,
            "documentation": item.docs,
        },
        code=item.code,
        see=(see := _at_place(report, item)),
        next=_command(report, "whatif", *whatif_options(item))
        if item.predicted
        else _command(report, "explain", see[0] if see else "verdict"),
    )


def whatif_options(item: Advice) -> tuple[str, ...]:
    """Return the options of `analyze whatif` that estimate the advice.

    For example ``("--prefetch", "auto")``; () where there are none.
    """
    fix = fixes().get(item.id)
    if fix is None or fix.replayed is None:
        return ()
    return change_options(
        str(fix.replayed["name"]), {key: value for key, value in fix.replayed.items() if key != "name"}
    )


def change_options(name: str, figures: Mapping[str, float | str]) -> tuple[str, ...]:
    """Return the options of `analyze whatif` for a change with its figures, or with the part of it that it names."""
    suffix = "-only" if figures.keys() & set(PART_OPTION.values()) else ""
    return (f"--{name}{suffix}", *(value if isinstance(value, str) else f"{value:g}" for value in figures.values()))


def _at_place(report: Report, item: Advice) -> tuple[str, ...]:
    """Return the ids of the gap or the kernel that begins at the advice's place."""
    if item.start_ns is None:
        return ()
    gaps = report.tables["gaps"].filter(pl.col("start_ns") <= item.start_ns, pl.col("end_ns") > item.start_ns)
    if gaps.height:
        return tuple(f"gap:{gap}" for gap in gaps.get_column("gap_id").head(1))
    kernels = report.tables["activities"].filter(pl.col("start_ns") == item.start_ns)
    return tuple(_kernel_id(report, row["activity_id"]) for row in kernels.head(1).to_dicts())


def _gap(report: Report, asked: str) -> Explanation | None:
    """Explain an idle gap: the activity that ended it, its launch, and the host's work meanwhile."""
    key = asked.removeprefix("gap:")
    rows = report.tables["gaps"].filter(pl.col("gap_id") == int(key)).to_dicts() if _is_number(key) else []
    if not rows:
        return None
    gap = rows[0]
    after = _activity(report, gap["activity_id"])
    launch = _one(report.tables["launches"], "launch_id", gap["launch_id"])
    start = gap["start_ns"]
    return Explanation(
        id=asked,
        title=f"{_device(report, gap['device'])} {'works unseen' if gap['cause'] in UNSEEN else 'idles'}: {label(gap['cause'])}",
        text=(PARTS[gap["cause"]].definition,) if gap["cause"] in PARTS else (),
        facts={
            "duration_ns": gap["duration_ns"],
            "start_ns": start,
            "ended_by": after.get("name"),
            "launched_by": launch.get("name"),
            "launched_after_ns": None if not launch else launch["start_ns"] - start,
            "launch_call_ns": launch.get("duration_ns"),
            "launch_lead_ns": after.get("lead_ns"),
        },
        rows_title="What the host did meanwhile, by time",
        rows=tuple(
            {
                "time_ns": row["time_ns"],
                "cause": label(row["cause"]),
                "event": row["name"],
                "operator": row["operator"] if row["operator"] != row["name"] else None,
                "where": in_function(row["python_function"]) if row["python_function"] else row["module"],
            }
            for row in items.host_intervals(report, gap["gap_id"]).head(_MOST_ROWS).to_dicts()
        ),
        see=(_kernel_id(report, gap["activity_id"]),) if after else (),
        next=_next_of_gap(report, gap),
    )


def _next_of_gap(report: Report, gap: Mapping[str, Any]) -> str:
    """Return the command that explains the first advice that shortens the gap's cause or shows this gap, else the verdict."""
    fixes = PARTS[gap["cause"]].fixes if gap["cause"] in PARTS else ()
    start_ns, end_ns = gap["start_ns"], gap["end_ns"]
    best = next(
        (item.id for item in report.advice if item.id in fixes or start_ns <= (item.start_ns or -1) < end_ns), None
    )
    return _command(report, "explain", f"advice:{best}" if best else "verdict")


def _kernel(report: Report, asked: str) -> Explanation | None:
    """Explain all runs of a kernel, or the run with an ordinal: work, roof, and the operator that launched it."""
    key = asked.removeprefix("kernel:")
    text, slash, ordinal = (key, "", "") if key in items.kernel_names(report) else key.partition("/")
    named = items.kernels_named(report, text)
    if len(named) != 1:
        return None
    (name,) = named
    asked = f"kernel:{items.kernel_hash(name)}{slash}{ordinal}"
    runs = report.tables["activities"].filter(pl.col("name").cast(pl.String) == name)
    if ordinal:
        return _one_run(report, asked, runs, int(ordinal)) if _is_number(ordinal) else None
    summed = report.tables["kernels"].filter(pl.col("name") == name).to_dicts()
    first = summed[0]
    roofline = report.tables["roofline"].filter(pl.col("name").cast(pl.String) == name)
    fused = _one(report.tables["fused_kernels"], "name", name)
    longest = int(runs.get_column("duration_ns").arg_max() or 0)
    return Explanation(
        id=asked,
        title=name,
        text=(_bound_text(first["bound"]),) if first["bound"] in PARTS else (),
        facts={
            **items.kernel_totals(summed),
            "median_ns": items.median_ns(runs),
            "bucket": first["bucket"],
            "bound": label(first["bound"]) if first["bound"] else None,
            "operator": first["operator"],
            "fuses": fused.get("fuses"),
            "kernel_file": fused.get("kernel_file"),
        },
        rows_title="By operator, dtype and shapes",
        rows=tuple(map(_roofline_row, roofline.sort("time_ns", descending=True).head(_MOST_ROWS).to_dicts())),
        see=(f"{asked}/{longest + 1}",),
        next=_command(report, "explain", f"{asked}/{longest + 1}"),
    )


def _bound_text(bound: str) -> str:
    return f"{label(bound)}: {PARTS[bound].definition[:1].lower()}{PARTS[bound].definition[1:]}"


def _roofline_row(row: Mapping[str, Value]) -> Mapping[str, Value]:
    kept = (
        "time_ns",
        "count",
        "roof_ratio",
        "achieved_flop_per_s",
        "achieved_byte_per_s",
        "operator",
        "dtype",
        "input_dims",
    )
    return {name: row[name] for name in kept}


def _one_run(report: Report, asked: str, runs: pl.DataFrame, ordinal: int) -> Explanation | None:
    if not 1 <= ordinal <= runs.height:
        return None
    run = runs.row(ordinal - 1, named=True)
    roof = _one(report.tables["roofs"], "activity_id", run["activity_id"])
    launch = _one(report.tables["launches"], "launch_id", run["launch_id"])
    waited = report.tables["gaps"].filter(pl.col("activity_id") == run["activity_id"]).get_column("gap_id").to_list()
    kept = (
        "start_ns", "duration_ns", "stream", "operator", "bucket", "dtype", "grid", "block",
        "registers_per_thread", "shared_memory_bytes", "occupancy_percent", "bytes", "flop", "moved_bytes", "lead_ns",
    )  # fmt: skip
    return Explanation(
        id=asked,
        title=f"{run['name']}, run {ordinal} of {runs.height}, {_device(report, run['device'])}",
        text=(_bound_text(run["bound"]),) if run["bound"] in PARTS else (),
        facts={
            **{name: run[name] for name in kept},
            **{
                name: roof.get(name) for name in ("achieved_flop_per_s", "achieved_byte_per_s", "roof_ratio", "lost_ns")
            },
            "launched_by": launch.get("name"),
            "launch_start_ns": launch.get("start_ns"),
        },
        see=(asked.partition("/")[0], *(f"gap:{gap}" for gap in waited)),
        next=_command(report, "explain", f"gap:{waited[0]}" if waited else asked.partition("/")[0]),
    )


def _step(report: Report, asked: str) -> Explanation | None:
    """Explain a step: its limit, and its device's work and idle time."""
    step = next((step for step in report.steps if items.step_id(report, step) == asked), None)
    if step is None:
        return None
    device = summaries.device_code(report, step.device)
    gaps = report.tables["gaps"].filter(
        pl.col("device") == device,
        pl.col("start_ns") < step.start_ns + step.duration_ns,
        pl.col("end_ns") > step.start_ns,
    )
    longest = gaps.sort("duration_ns", "gap_id", descending=[True, False]).get_column("gap_id").head(3).to_list()
    kept = (
        "start_ns", "duration_ns", "busy_ns", "idle_ns", "state", "steady", "confidence", "flop", "mfu", "cold_start_ns", "recording_ns",
    )  # fmt: skip
    return Explanation(
        id=asked,
        title=f"{step.name}: {phrasing.step_limit(asdict(step))}",
        text=(step.headline,) if step.headline else (),
        facts={("mfu_ratio" if name == "mfu" else name): getattr(step, name) for name in kept},
        rows_title="What the device did, by time",
        rows=tuple(
            {"time_ns": ns, "time_ratio": ratio, "part": label(part)}
            for part, ns, ratio in items.step_parts(report, step, device)
        ),
        see=tuple(f"gap:{gap}" for gap in longest),
        next=_command(report, "explain", f"gap:{longest[0]}" if longest else "verdict"),
    )


def _check(report: Report, asked: str) -> Explanation | None:
    """Explain a check of the trace: what it measures, and what it suppresses."""
    check = next((check for check in report.trust if items.check_id(report, check) == asked), None)
    if check is None:
        return None
    return Explanation(
        id=asked,
        title=f"{phrasing.check_phrase(check)}: {'nothing to check' if check.value is None else _STATUSES[check.status]}",
        text=(f"It is the {check.meaning}." if check.unit == "ratio" else f"{units.capitalized(check.meaning)}.",),
        facts={
            "status": check.status,
            ("value_ratio" if check.unit == "ratio" else "value"): check.value,
            "unit": None if check.unit == "ratio" else check.unit,
            "device": check.device,
            "withholds": ", ".join(check.withholds),
        },
        see=tuple(items.check_id(report, other) for other in summaries.broken_checks(report) if other is not check),
        next=_command(report, "explain", "verdict"),
    )


def line_at_peak(memory: allocator.Memory, asked: str) -> Explanation:
    """Explain the line that holds the N-th most bytes at the peak of a snapshot. Raises ``UsageError``."""
    lines = [(device, line) for device in memory.devices[:1] for line in device.held_by("line")]
    key = asked.removeprefix("memory:")
    if not (asked.startswith("memory:") and _is_number(key) and int(key) < len(lines)):
        there = f"memory:0 to memory:{len(lines) - 1}" if lines else "none"
        raise errors.UsageError(f"no {asked[:60]!r} in this snapshot, whose ids are {there}")
    device, line = lines[int(key)]
    share = device.ratio_of(line)
    rows = memory.parts_of(device, line)
    categories = rows.get_column("category").unique().sort().to_list()
    return Explanation(
        id=asked,
        title=f"{units.percent(share)} of the peak of device {device.device}'s memory: {line.key}",
        text=tuple(f"{units.capitalized(name)}: {MEANINGS[name]}." for name in categories if name in MEANINGS),
        facts={"live_bytes": line.bytes, "live_ratio": share, "block_count": line.count},
        rows_title="What it is, by bytes",
        rows=tuple(rows.head(_MOST_ROWS).to_dicts()),
        next=f"analyze memory {shlex.quote(memory.path)}",
    )  # fmt: skip


_STATUSES = {"ok": "holds", "warn": "holds in part", "fail": "does not hold"}


def _memory(report: Report, asked: str) -> Explanation | None:
    """Explain what holds a part of the peak of device memory, and what else is live then."""
    key, rows = asked.removeprefix("memory:"), report.tables["memory"]
    if not _is_number(key) or int(key) >= rows.height:
        return None
    row = rows.row(int(key), named=True)
    names = ("live_bytes", "live_ratio", "block_count", "category", "operator", "module", "python_function", "start_ns")
    others = rows.filter((pl.col("torch_device") == row["torch_device"]) & (pl.int_range(pl.len()) != int(key)))
    return Explanation(
        id=asked,
        title=f"{units.percent(row['live_ratio'])} of the peak of device {row['torch_device']}'s memory: {row['category']}",
        text=(f"{MEANINGS[row['category']]}.",) if row["category"] in MEANINGS else (),
        facts={name: row[name] for name in names},
        rows_title="What else is live at the peak, by bytes",
        rows=tuple(
            others.select("live_bytes", "live_ratio", "category", "operator", "module").head(_MOST_ROWS).to_dicts()
        ),
        next=_command(report, "memory"),
    )


def _is_number(key: str) -> bool:
    return key.isascii() and key.isdecimal() and len(key) < 10


def _one(table: pl.DataFrame, key: str, value: int | str | None) -> Mapping[str, Value]:
    """Return the row with a key; {} where it is missing."""
    rows = table.filter(pl.col(key) == value).head(1).to_dicts() if value is not None else []
    return rows[0] if rows else {}


def _activity(report: Report, activity_id: int | None) -> Mapping[str, Value]:
    return _one(report.tables["activities"], "activity_id", activity_id)


def _kernel_id(report: Report, activity_id: int) -> str:
    """Return the id of one run of a kernel, copy or memset."""
    activities = report.tables["activities"]
    name = str(_activity(report, activity_id)["name"])
    before = activities.filter(pl.col("activity_id") <= activity_id, pl.col("name").cast(pl.String) == name)
    return f"kernel:{items.kernel_hash(name)}/{before.height}"


def _device(report: Report, code: int) -> str:
    labels = _one(report.tables["devices"], "device", code)
    return f"device {labels.get('label', code)}"


_LOOKUPS: Mapping[str, Callable[[Report, str], Explanation | None]] = {
    "advice": _advice,
    "check": _check,
    "step": _step,
    "gap": _gap,
    "kernel": _kernel,
    "memory": _memory,
}
