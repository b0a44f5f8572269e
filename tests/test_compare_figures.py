"""Test plots of a comparison: waterfalls end at the step after, and frames lie within the frame below."""

from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest
from kineto import analysed, launched
from msgspec.structs import replace

from trace_analyzer.compare import comparison, profiles
from trace_analyzer.compare.phrasing import named_bars


def bar(name: str, difference_ns: float) -> comparison.Bar:
    return comparison.Bar(name, "work", 100.0, 100.0 + difference_ns, difference_ns, difference_ns, 0.0)


def test_a_waterfall_leads_from_the_step_before_to_the_step_after() -> None:
    bars = [bar("a", -40.0), bar("b", 10.0), bar("c", 0.1), bar("d", 0.2)]
    rows = comparison.waterfall_rows(bars, 200.0, 170.3)
    assert [(row.name, row.start_ns, row.end_ns) for row in rows[:3]] == [("before", 0.0, 200.0), ("a", 200.0, 160.0), ("b", 160.0, 170.0)]  # fmt: skip
    assert [row.name for row in rows[3:]] == ["all others", "after"]
    assert rows[3].end_ns == pytest.approx(170.3)
    assert [row.difference_ns for row in (rows[0], rows[-1])] == [None, None]


def test_bars_that_may_be_chance_are_marked_and_not_named() -> None:
    bars = [replace(bar("a", -40.0), significant=True), replace(bar("b", 10.0), significant=False), bar("c", 9.0)]
    within = [row.within_chance for row in comparison.waterfall_rows(bars, 200.0, 179.0)]
    assert within == [False, False, True, False, False]
    step = SimpleNamespace(step_ns=200.0)
    result: Any = SimpleNamespace(both=(step, step), floor_ns=1.0, waterfall={"bucket": tuple(bars)}, significant=True)
    assert [item.name for item in named_bars(result)] == ["a", "c"], "of c too few steps tell"
    result.significant = False
    assert named_bars(result) == [], "where the step may differ by chance, of many bars some always differ by more"


def test_the_axis_of_a_waterfall_begins_below_changes_that_lie_close_together() -> None:
    near = comparison.waterfall_rows([bar("a", -2.0), bar("b", 1.0)], 100.0, 99.0)
    assert comparison.scale_ends(near)[0] == pytest.approx(98.0 - 0.3 * 2.0)
    far = comparison.waterfall_rows([bar("a", -60.0)], 100.0, 40.0)
    assert comparison.scale_ends(far) == (0.0, pytest.approx(135.0))


def test_frames_lie_within_the_frame_below_and_say_what_changed() -> None:
    matches = pl.DataFrame(
        [
            ("kernel", "matmul", "Net/Linear", "aten::mm", None, "gemm", 200, 400),
            ("kernel", "softmax", None, "aten::softmax", None, "softmax", 100, 0),
            ("idle", "python", None, None, None, None, 60, 60),
        ],
        schema=[
            "kind",
            "category",
            "module",
            "operator",
            "outer_operator",
            "kernel",
            "before_total_ns",
            "after_total_ns",
        ],
        orient="row",
    )
    side = SimpleNamespace(steps=2)
    rows = comparison.flame_rows(cast("comparison.Comparison", SimpleNamespace(matches=matches, both=(side, side))))
    assert [(row.name, row.caller, row.width_ns, row.change) for row in rows] == [
        ("step", -1, 280.0, "slower"),
        ("Kernels", 0, 250.0, "slower"),
        ("Net", 1, 200.0, "slower"),
        ("Linear", 2, 200.0, "slower"),
        ("aten::mm", 3, 200.0, "slower"),
        ("aten::softmax", 1, 50.0, "faster"),
        ("Idle", 0, 30.0, "even"),
        ("Python", 6, 30.0, "even"),
    ]


def test_the_key_has_the_colours_of_most_time() -> None:
    times = [("red", "matmul", 5), ("red", "bmm", 3), ("blue", "python", 7)]
    key = comparison.times_by_colour(times, most_names=1)
    assert [colour for _, colour in key] == ["red", "blue"]
    assert "," not in key[0][0]


def test_matmuls_without_a_duration_have_no_share_of_known_flop() -> None:
    """Check that a baseline of products that take no time, beside other work, is valid JSON."""
    events = [
        [launched("ampere_sgemm_128x64_nn", 10 * n, 10 * n + 5, 0, 2 * n + 1), launched("k", 10 * n + 5, 10 * n + 6, 3, 2 * n + 2)]
        for n in range(4)
    ]  # fmt: skip
    profile = profiles.profile_of(analysed(*events))
    assert [share.ratio for share in profile.facts.shares if share.name == "flop"] == [0.0]
