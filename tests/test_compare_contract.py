"""Test the contract of a comparison's JSON, field by field, and the sentences for unusual sides."""

import json
from functools import cache
from pathlib import Path

import polars as pl
import pytest
from compare_sides import Program
from msgspec.structs import replace
from test_compare import CPU_ONLY

from trace_analyzer import errors, pipeline
from trace_analyzer.compare.comparison import Comparison, Line, MatchedRatio, Side
from trace_analyzer.compare.decomposition import compare
from trace_analyzer.compare.phrasing import change
from trace_analyzer.compare.profiles import Profile, profile_of
from trace_analyzer.compare.sides import baseline_json, merged

pytestmark = pytest.mark.slow

BASE = Program(steps=5)
FIELDS = {
    "schema_version", "status", "reason", "same_work", "same_program", "before", "after", "difference_ns", "interval_ns", "significant",
    "matched_ratio", "lines",
}  # fmt: skip
SIDE = {"path", "steps", "total_ns", "step_ns", "verdict"}
LINE = {
    "kind", "name", "level", "before_total_ns", "after_total_ns", "before_count", "after_count", "by_count_ns", "by_time_ns",
}  # fmt: skip


@cache
def profile(program: Program) -> Profile:
    return profile_of(pipeline.analyze(program.trace()))


def on(device: str, side: Profile, path: str = "") -> Profile:
    """Return the side as if recorded on another device, into another file."""
    recordings = tuple(replace(item, path=path or item.path) for item in side.recordings)
    return replace(side, recordings=recordings, facts=replace(side.facts, device_name=device))


def names(kind: type) -> set[str]:
    return set(kind.__struct_fields__)


def test_every_field_of_the_contract_is_there_and_of_its_type() -> None:
    document = json.loads(compare(profile(BASE), profile(BASE.faster(mm_ns=500_000, adds=2))).to_json())
    assert document.keys() == names(Comparison) - {"matches", "sides"} >= FIELDS
    assert (document["schema_version"], document["status"], document["reason"]) == (1, "ok", None)
    assert (document["same_work"], document["same_program"], document["significant"]) == (True, True, True)
    assert document["matched_ratio"].keys() == names(MatchedRatio) == {"call", "outer", "module", "bucket"}
    assert all(0 <= share <= 1 for share in document["matched_ratio"].values())
    low, high = document["interval_ns"]
    assert low <= document["difference_ns"] <= high
    for side in ("before", "after"):
        own = document[side]
        assert own.keys() == names(Side) >= SIDE
        assert own["step_ns"] == own["total_ns"] / own["steps"]
        assert sum(line[f"{side}_total_ns"] for line in document["lines"]) == own["total_ns"]
        assert all(isinstance(line[f"{side}_total_ns"], int) for line in document["lines"])
    for line in document["lines"]:
        assert line.keys() == names(Line) >= LINE
        assert line["kind"] in {"idle", "kernel", "copy", "communication"}
        assert line["by_count_ns"] + line["by_time_ns"] == pytest.approx(line["difference_ns"], abs=1e-6)
    assert document["difference_ns"] == document["after"]["step_ns"] - document["before"]["step_ns"]


def test_a_refusal_keeps_every_field() -> None:
    document = json.loads(compare(CPU_ONLY, profile(BASE)).to_json())
    assert document.keys() >= FIELDS
    assert (document["status"], document["lines"], document["significant"]) == ("refused", [], None)
    assert "no device work" in document["reason"]


@pytest.mark.parametrize("length", [200, 3000])
def test_a_baseline_that_breaks_off_is_called_damaged(tmp_path: Path, length: int) -> None:
    path = tmp_path / "baseline.json"
    path.write_text(baseline_json(profile(BASE))[:length])
    with pytest.raises(errors.InputError, match=r"a damaged baseline .*save it again"):
        compare(path, profile(BASE))


@pytest.mark.sampled
@pytest.mark.parametrize("version", [0, 1, 2, 3, 99, None, "1"])
def test_reports_of_every_version_so_far_are_read_and_no_others(tmp_path: Path, version: object) -> None:
    path = tmp_path / "report.json"
    document = json.loads(pipeline.analyze(BASE.trace()).to_json())
    assert document["schema_version"] == 2
    path.write_text(json.dumps({**document, "schema_version": version}))
    if version in (1, 2):
        assert compare(path, profile(BASE)).status == "ok"
    else:
        with pytest.raises(
            errors.InputError, match=r"a report of schema version .* this program reads up to version 2"
        ):
            compare(path, profile(BASE))


def test_other_devices_are_named() -> None:
    one, other = on("GPU A", profile(BASE), "1.json"), on("GPU B", profile(BASE), "2.json")
    assert "Before ran on GPU A, after on GPU B" in compare(one, other).summary(400)
    assert "Before ran on" not in compare(one, on("GPU A", profile(BASE), "2.json")).summary(400)
    mixed = merged("runs", [one, on("GPU B", profile(BASE), "3.json")])
    assert "Before ran on GPU A and GPU B, after on GPU B" in compare(mixed, other).summary(400)


def test_gaps_between_kernels_of_two_vendors_are_read_with_the_kernels() -> None:
    one = on("NVIDIA H100 80GB HBM3", profile(BASE), "1.json")
    is_idle = pl.col("row") == one.rows.filter(kind="idle").item(0, "row")
    gap = (pl.when(is_idle).then(pl.lit("device-gap")).otherwise(name).alias(name) for name in ("category", "part"))
    gaps = replace(one, rows=one.rows.with_columns(gap))
    for before, device, says in (
        (gaps, "AMD Instinct MI300X", True), (gaps, "NVIDIA A100-SXM4-80GB", False), (one, "AMD Instinct MI300X", False),
    ):  # fmt: skip
        notes = " ".join(compare(before, on(device, one, "2")).notes)
        assert ("together with those of kernels" in notes, "together with" in notes) == (says, says)


def test_twice_the_time_is_no_percentage() -> None:
    words = ["2 times as fast", "1.5 times as long", "2 times as long", "4.5 times as long", "1,234 times as long"]
    assert [change(2, after) for after in (1, 3, 4, 9, 2468)] == words


def test_recordings_on_both_sides_are_named() -> None:
    one, two = (on("GPU A", profile(BASE), f"{number}.json") for number in (1, 2))
    assert "Both sides are the same recording." in compare(one, one).notes
    assert "Both sides are the same recordings." in compare(merged("a", [one, two]), merged("b", [two, one])).notes
    assert "On both sides is 1 recording." in compare(merged("a", [one, two]), one).notes
    assert not any("sides" in note for note in compare(one, two).notes if "recording." in note)
