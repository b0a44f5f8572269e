"""Define laws of the program for any bytes: a refusal in one line, or a report that keeps its contract."""

import json
import math
import random
import re
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
from jsonschema import Draft202012Validator

from trace_analyzer import checks, errors, json_types, pipeline, registry, thresholds, units
from trace_analyzer.compare import comparison, decomposition, profiles, sides
from trace_analyzer.render.exports import write_perfetto
from trace_analyzer.render.html.timeline import payload, timeline_columns
from trace_analyzer.replay.whatif import WhatIf, whatif
from trace_analyzer.report import Report, Verdict, summaries, verdicts

SCHEMA = Draft202012Validator(registry.json_schema())
COMPARISON = Draft202012Validator(json_types.result_schema(comparison.Comparison))
CONTROLS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_SIGNED = ("origin_ns", "launch_lead_ns", "offset")
"""Parts of the JSON whose figures may be negative."""
SIGNED_COLUMNS = ("lead_ns",)
"""Columns of tables whose figures may be negative."""
MOST_RATIO = {"link_ratio": 2.1, "host_device_ratio": math.inf}
"""Ratios that are no shares, or that a switch that reduces doubles."""


def check_program(content: bytes, *, page: bool = True, verbs: bool = True) -> Report | None:
    """Analyse the bytes and check all outputs, including those of other verbs; None where they are refused.

    Raises ``AssertionError`` for a violated property, and any exception that the program should not have raised.
    """
    try:
        report = pipeline.analyze(content, max_bytes=1 << 24)
    except errors.InputError as error:
        if "\n" in str(error):
            raise AssertionError("an error of several lines") from error
        return None
    document = json.loads(report.to_json(), parse_constant=_refuse)
    assert [f"{e.json_path}: {e.message}" for e in SCHEMA.iter_errors(document)] == []
    _not_negative(document, "")
    parts_add_up(report)
    ratios_within_physics(report)
    for text in (str(report), report.to_markdown()):
        assert not CONTROLS.search(text)
    if page:
        payload(timeline_columns(report))
    if verbs:
        check_order(content, report)
        check_estimate(report)
        check_flip(report, partial(pipeline.analyze, content))
        check_comparison(report)
        check_export(content, report)
    return report


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON; of two values of one key json keeps the last, and the reader both lists of events."""
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a key occurs twice")
    return made


def check_order(content: bytes, report: Report) -> None:
    """Check that the events in another order get the same report; damage has its place, and later metadata counts."""
    try:
        document = json.loads(content, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        return
    document = document if isinstance(document, dict) else {"traceEvents": document}
    assert_same_judgement(report, document | {"traceEvents": shuffled(document["traceEvents"])})


def shuffled(events: list[Any]) -> list[Any]:
    """Return events in another order, but for metadata and halves of pairs, of which the later ones count."""
    fixed = [isinstance(event, dict) and event.get("ph") in ("M", "B", "E") for event in events]
    free = [place for place, stays in enumerate(fixed) if not stays]
    moved = dict(zip(free, random.Random(5).sample(free, len(free)), strict=True))
    return [events[moved.get(place, place)] for place in range(len(events))]


def assert_same_judgement(first: Report, other: dict[str, Any]) -> None:
    """Check that the other document gets the same verdict, figures of devices, steps, advice and checks."""
    second = pipeline.analyze(json.dumps(other).encode())
    for name in ("verdict", "devices", "steps", "advice", "trust"):
        assert getattr(first, name) == getattr(second, name), name


def check_estimate(report: Report) -> None:
    """Check that the estimate of what would help is refused with a reason, or obeys the laws of estimates."""
    result = whatif(report)
    document = json.loads(result.to_json(), parse_constant=_refuse)
    check_regime(report)
    check_bound_of_waits(report)
    assert (result.reason is None) == (result.status == "ok")
    for text in (result.summary(), result.to_markdown()):
        assert not CONTROLS.search(text)
    check_estimates(document)
    below_floors_say_why(result)


def below_floors_say_why(result: WhatIf) -> None:
    """Check that where an interval starts below the floor that is printed for its side, the text says why it may."""
    shown = [one for one in result.scenarios if result.changes or one in result.helpful or one.what == "sensitivity"]
    for side, names, floor in (("CPU", _OF_CPU, result.device_floor_ns), ("GPU", _OF_DEVICE, result.cpu_floor_ns)):
        least = (1 - abs(result.replay.error_ratio)) * (floor or 0.0) - 1 if result.replay else 0.0
        if any(one.name in names and one.low_ns < least for one in shown):
            text = " ".join(result.summary().split())
            why = "unless it spares launches|with the CPU as recorded"
            assert f"no {side} fix" not in text or re.search(f"no {side} fix [^,]*? ({why})", text)


_REGIMES = {
    "host": "overhead-bound", "small-kernels": "overhead-bound", "memory-bandwidth": "memory-bandwidth-bound", "compute": "compute-bound",
    "communication": "communication-bound", "copies": "communication-bound",
}  # fmt: skip


def check_regime(report: Report) -> None:
    """Check that what saves most is the regime, or in balance with it."""
    verdict = report.verdict
    if verdict.status == "ok" and verdict.levers and verdict.levers[0].saves_ratio >= thresholds.WORTH_RATIO:
        assert _REGIMES[verdict.levers[0].resource] in (verdict.regime, verdict.runner_up)
    if verdict.status == "ok":
        _check_shares(verdict)


def check_bound_of_waits(report: Report) -> None:
    """Check that advice on waits saves at most no less than the replay says that all waits are worth."""
    saved = max((lever.saves_ratio for lever in report.verdict.host_levers if lever.resource == "waits"), default=0.0)
    for item in report.advice:
        assert item.id != "synchronization" or item.saving.at_most_ratio >= saved - thresholds.WORTH_RATIO


_NAMED = {
    "communication": "communication", "copies": "copy", "device waits": "device-wait", "compute-bound kernels": "compute",
    "memory-bound kernels": "memory",
}  # fmt: skip
"""Noun of the headline's share -> the part of the table that it names."""


def _check_shares(verdict: Verdict) -> None:
    """Check that the headline's share is that of the parts which it names, and that idle time holds no work."""
    parts = summaries.judged_parts(verdict)
    window, totals = sum(parts.values()), summaries.part_totals(parts)
    nouns, share = re.search(r"\(([a-z, -]+): (\S+ %) of", verdict.headline).groups()  # type: ignore[union-attr]
    if nouns != "overhead":
        named = sum(parts.get(_NAMED[noun], 0) for noun in re.split(", | and ", nouns))
        assert units.percent(named / window) == share
    (idle,) = (item.value for item in verdict.evidence if item.metric == "idle_ns")
    assert idle == totals.idle_ns
    assert not {"earlier-work", "time-slice", "unrecorded-work"} & {*totals.idle}


def check_flip(report: Report, analyse: Callable[..., Report]) -> None:
    """Check that the verdict with a measured step on either side of the step that the verdict names is as it says."""
    said = r"under about ([\d.]+) (ns|us|ms|s) without the profiler, it is (\S+(?: or \S+)*) "
    for why in filter(None, (re.match(f"if a step takes {said}", why) for why in report.verdict.confidence_why)):
        step_ms = float(why[1]) * {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}[why[2]]
        below, above = (analyse(measured_step_ms=ratio * step_ms).verdict.regime for ratio in (0.96, 1.04))
        assert below in why[3].split(" or ")
        assert above == report.verdict.regime


_OF_DEVICE, _OF_CPU = ("fuse", "tf32", "bf16", "overlap"), ("no-sync", "prefetch", "warm", "graphs")


def check_estimates(document: dict[str, Any]) -> None:
    """Check the laws of all estimates of one trace: what only removes time makes nothing longer, floors hold, and the
    like.
    """
    if document["status"] == "refused":
        return
    now, floors = document["step_ns"], document["floors"]
    longest = now * (1 + 1e-9) + 1
    assert max(floors.values()) <= longest
    if not document["changes"]:
        assert set(document["predicted"].values()) == {now}, "what was recorded is certain"
    for lever in document["levers"]:
        assert (
            0
            <= lever["saves_ns"]
            <= longest - (floors["device_ns"] if lever["resource"] == "host" else floors["cpu_ns"])
        )
    for part in document["critical_path"]:
        steps = list(part["speedups"].values())
        assert steps == sorted(steps, reverse=True), "a curve falls"
        assert steps[0] <= longest
        side = {"device": "cpu_ns", "host": "device_ns"}.get(part["kind"])
        assert document["changes"] or side is None or steps[-1] >= floors[side] - 1, "no part alone ends below a floor"
    for scenario in document["scenarios"]:
        if scenario["refused"] is not None:
            assert scenario["step_ns"] is None
            continue
        name, target = scenario["name"], scenario["options"].get("target")
        assert scenario["step_ns"] <= longest
        assert scenario["high_ns"] <= longest or name == "prefetch", "a change that only removes time"
        floor = 0
        if name in _OF_DEVICE or target not in (None, "cpu"):
            floor = floors["cpu_ns"]
        if name in _OF_CPU or target == "cpu":
            floor = floors["device_ns"]
        if name != "fuse":  # whose launches are gone
            assert scenario["step_ns"] >= floor - 1
            slower = 1 - thresholds.RECORDING_MOST_RATIO if floor == floors["cpu_ns"] < 0.99 * now else 1.0
            assert scenario["low_ns"] >= (1 - abs(document["replay"]["error_ratio"])) * slower * floor - 1
        assert scenario["is_known"] == verdicts.is_saving_known(
            now, *(scenario[key] for key in ("step_ns", "low_ns", "high_ns"))
        )
        assert 0 <= scenario["low_ns"] <= scenario["step_ns"] <= scenario["high_ns"], scenario
    steps = {
        (s["name"], s["options"].get("target")): s["step_ns"] for s in document["scenarios"] if s["refused"] is None
    }
    hidden, faster = steps.get(("overlap", None)), steps.get(("speedup", "communication"))
    assert hidden is None or faster is None or hidden <= faster + 1, "what is hidden is no worse than what is fast"


def check_comparison(report: Report) -> None:
    """Check that a trace does not differ from itself, nor from its baseline."""
    profile = profiles.profile_of(report)
    again = profile
    if not profile.facts.withheld and profile.total_ns:
        again = sides.read_baseline(Path("b"), json.loads(sides.baseline_json(profile), parse_constant=_refuse))
    for other in (profile, again):
        result = decomposition.compare_profiles(profile, other)
        document = json.loads(result.to_json(), parse_constant=_refuse)
        assert [f"{e.json_path}: {e.message}" for e in COMPARISON.iter_errors(document)] == []
        assert not result.difference_ns
        assert {line.difference_ns for line in result.lines} <= {0.0}
        assert sum(line.before_total_ns for line in result.lines) == (profile.total_ns if result.lines else 0)
        for text in (result.summary(), result.to_markdown()):
            assert not CONTROLS.search(text)


def check_export(content: bytes, report: Report) -> None:
    """Check that the exported trace has the original and the added events, unless it has no list for these."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "in"), Path(folder, "out.json")
        source.write_bytes(content)
        try:
            write_perfetto(str(source), report, target)
        except errors.InputError:
            assert not target.exists()
            return
        try:
            document = json.loads(content)
        except (ValueError, RecursionError):  # nested too deeply for Python's own reader
            return
        assert isinstance(json.loads(target.read_bytes()), type(document))


def parts_add_up(report: Report) -> None:
    """Check that parts add up: busy and idle time to the window, causes to idle time, and parts to the window.

    Suppressed figures are not checked.
    """
    for device in report.devices:
        suppressed = {metric for check in checks.of_device(report.trust, device.index) for metric in check.withholds}
        assert device.busy_ns + device.idle_ns == device.window_ns
        assert sum(device.gaps.by_cause_ns.values()) == device.idle_ns
        if "partition" not in suppressed:
            assert sum(device.partition_ns.values()) == device.window_ns


def ratios_within_physics(report: Report) -> None:
    """Check that no share in a table is above 1 beyond what clocks add, or negative, and that no size or duration is."""
    for name, frame in report.tables.items():
        for column, dtype in frame.schema.items():
            if not dtype.is_numeric() or column in SIGNED_COLUMNS:
                continue
            least, most = frame.select(pl.col(column).min(), pl.col(column).max().alias("most")).row(0)
            # A row of freed memory has negative bytes.
            if (name, column) != ("memory_events", "bytes") and column.endswith(
                ("_ns", "_bytes", "_ratio", "bytes", "flop")
            ):
                assert least is None or least >= 0, (name, column, least)
            if column.endswith("_ratio"):
                assert most is None or most <= MOST_RATIO.get(column, 1.05), (name, column, most)


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def _not_negative(value: Any, place: str) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            _not_negative(item, f"{place}.{key}")
    elif isinstance(value, list):
        for item in value:
            _not_negative(item, place)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        assert math.isfinite(value)
        is_free = place.endswith((".index", ".device", "value")) or any(part in place for part in _SIGNED)
        assert value >= 0 or is_free, f"{place}: {value}"
