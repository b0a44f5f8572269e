"""Edited baselines, saved reports and calibrations: refused in one line, or read, and never reported as a bug."""

import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from kineto import A100, annotation, launched, op, trace_bytes

from trace_analyzer import errors, pipeline
from trace_analyzer.catalog.calibration import Calibration, CopyRate, MatmulRate, SweepPoint, read_calibration
from trace_analyzer.compare.decomposition import compare_profiles
from trace_analyzer.compare.profiles import Profile, profile_of
from trace_analyzer.compare.sides import baseline_json, profile_side, read_baseline
from trace_analyzer.report import Report

pytestmark = pytest.mark.slow

VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1.5, 10**30, -(10**30), float("nan"), float("inf"), "", "x", "\ud800", "9" * 5_000, [], [1], {}, {"a": 1}, [[[]]], "\x1b[31m",
)  # fmt: skip


@pytest.fixture(scope="module")
def report() -> Report:
    rows = []
    for n in range(20):
        rows += [op("aten::mm", 100 * n, 30), *launched(f"k{n % 4}", 100 * n + 5, 100 * n + 20, 60, n + 1)]
    marks = [annotation(f"ProfilerStep#{n}", 400 * n, 400) for n in range(5)]
    return pipeline.analyze(trace_bytes([*rows, *marks], deviceProperties=[A100]))


@pytest.fixture(scope="module")
def profile(report: Report) -> Profile:
    return profile_of(report)


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield every place in the document, of long lists the first few."""
    if place:
        yield place
    inner = value.items() if isinstance(value, dict) else list(enumerate(value))[:6] if isinstance(value, list) else ()
    for key, item in inner:
        yield from places(item, (*place, key))


def edited(document: dict[str, Any], place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """Return the document with another value at the place; ``...`` takes the place away."""
    document = json.loads(json.dumps(document))
    inner: Any = document
    for key in place[:-1]:
        inner = inner[key]
    if value is ...:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return document


def keys(place: str) -> tuple[Any, ...]:
    return tuple(int(key) if key.isdigit() else key for key in place.split("."))


def edits(document: dict[str, Any], count: int) -> Iterator[dict[str, Any]]:
    """Yield ``count`` different edits of the document, the same in each run."""
    choose = random.Random(19)
    everywhere = list(places(document))
    for _ in range(count):
        yield edited(document, choose.choice(everywhere), choose.choice((..., *VALUES)))


T = TypeVar("T")


def read_or_refused(read: Callable[..., T], *arguments: Any) -> T | None:
    """Return the function's result, or None where it refuses the file in one line."""
    try:
        return read(*arguments)
    except (errors.InputError, errors.UsageError) as error:
        line = str(error)
    assert line.count("\n") == 0, line
    assert re.search("again|no trace|without a|is not JSON|no calibration", line), line
    return None


def compared(side: Profile, other: Profile) -> None:
    result = compare_profiles(side, other)
    result.to_json()
    result.summary()
    result.to_markdown()


def test_an_edited_baseline(profile: Profile) -> None:
    document = json.loads(baseline_json(profile))
    sides = [read_or_refused(read_baseline, Path("b.json"), edit) for edit in edits(document, 300)]
    for number, side in enumerate(filter(None, sides)):
        compared(*(side, profile)[:: -1 if number % 2 else 1])
    assert None in sides


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("frames.rows", None), ("frames.rows.category.texts.0", None), ("frames.rows.kind.texts.0", "x"),
        ("frames.rows.row", "x"),
        ("frames.rows.row", []), ("frames.rows.roof_ns.0", float("nan")), ("frames.rows.count.0", None),
        ("frames.rows.blocks.0", -1),
        ("frames.units.unit.0", 77), ("frames.units.total_ns.0", 1), ("facts", ...), ("facts.colour", 1),
        ("facts.device_name", 5),
        ("facts.advice", [1]), ("facts.flop", -1.0), ("facts.launches", -1), ("facts.devices", "x"),
        ("facts.devices", [{"label": "0", "steps": 0, "total_ns": 1, "idle_ns": 0}]),
        ("facts.advice", [{"id": "a", "title": "t", "saves_ns_at_most": 5, "how": "h", "predicted_ratio": "x"}]),
        ("recordings", []), ("recordings.0.lengths_ns", [1.5]), ("recordings.0.lengths_ns.0", -1), ("unit_of_work", 0),
        ("detail", "x"),
        ("baseline_version", 5), ("baseline_version", True), ("baseline_version", "1"),
    ],
    ids=str,
)  # fmt: skip
def test_a_baseline_that_cannot_be(profile: Profile, place: str, value: Any) -> None:
    document = edited(json.loads(baseline_json(profile)), keys(place), value)
    with pytest.raises(errors.InputError, match=r"damaged baseline|of version .* save it again") as refused:
        read_baseline(Path("b.json"), document)
    assert "isinstance" not in str(refused.value)


def test_an_edited_report(report: Report, profile: Profile, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    for number, edit in enumerate(edits(json.loads(report.to_json()), 300)):
        path.write_text(json.dumps(edit))
        if (side := read_or_refused(profile_side, path, pipeline.analyze)) is not None:
            compared(*(side, profile)[:: -1 if number % 2 else 1])


@pytest.mark.parametrize(
    ("place", "value"),
    [
        *(("steps.2.duration_ns", odd) for odd in (float("inf"), "x", None, 0, -1, 1e308, "5", 1.5, True, 10**30)),
        *(("trace.duration_ns", odd) for odd in (-1, 1e308, "5", True, None, [])),
        *(("verdict.parts_ns", odd) for odd in ({"compute": -5}, {"compute": 1.5}, {"nonsense": 500})),
        ("verdict.window", 7),
        ("steps", None),
        ("verdict.levers", [{"resource": "host", "saves_ns": "5"}]),
        ("advice", [{"id": "a", "title": "b", "saves_ns_at_most": 1, "how_bound": "c", "predicted": {}}]),
    ],
    ids=str,
)
def test_a_saved_report_that_cannot_be(report: Report, tmp_path: Path, place: str, value: Any) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps(edited(json.loads(report.to_json()), keys(place), value)))
    with pytest.raises(errors.InputError, match="save it again"):
        profile_side(path, pipeline.analyze)


def test_an_edited_calibration(tmp_path: Path) -> None:
    whole = Calibration(
        name=str(A100["name"]), kind="cuda", sm_count=108, compute_capability="8.0", copies=(CopyRate(1 << 26, 1500.0),),
        matmuls=(MatmulRate("fp16", 1024, 150.0),), sweep=(SweepPoint(1, 1600.0, 0.4),), launch_overhead_ns=4200.0,
    )  # fmt: skip
    path = tmp_path / "c.json"
    refused = 0
    for edit in edits(json.loads(whole.to_json()), 200):
        path.write_text(json.dumps(edit))
        calibration = read_or_refused(read_calibration, path)
        refused += calibration is None
        if calibration is not None:
            calibration.device(None)
            assert calibration.peak_tflops is not None
            assert isinstance(hash(calibration), int)
    assert 100 < refused < 200
