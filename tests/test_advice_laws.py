"""Check bounds of advice on random and real traces: none exceeds what its fix can reach or counts time twice."""

from collections.abc import Mapping
from typing import Any

import polars as pl
import pytest
from generator import UNHURRIED, RandomTrace, random_traces
from hypothesis import given, settings
from lazy_report import report_on
from msgspec.structs import replace
from tiers import examples

from trace_analyzer.advice import LAUNCHING, RULES, _ranked, ranked_ratio
from trace_analyzer.advice.opportunity import Opportunity, combined, total
from trace_analyzer.catalog.fixes import fixes
from trace_analyzer.frames.intervals import LENGTH_NS, clip, union
from trace_analyzer.report import Advice, Predicted, Report, Saving
from trace_analyzer.report.summaries import saves_nothing
from trace_analyzer.thresholds import SHARED_RATIO
from trace_analyzer.verdict.judge import KERNEL_REGIMES
from trace_analyzer.vocabulary import HOST_CAUSES, IDLE_CAUSES

SMALL = ("latency", "device-gap")
KERNELS = ("compute", "memory", "latency", "other")
REACHES: Mapping[str, tuple[str, ...]] = {
    "cuda-graphs": (*LAUNCHING, "device-gap", "unlinked"),
    "bigger-batch": (*{*IDLE_CAUSES, *SMALL, "compute", "memory", "communication", "other"},),
    "fused-optimizer": (*LAUNCHING, "memory", "latency", "device-gap"),
    "set-to-none": (*LAUNCHING, *KERNELS),
    "synchronization": ("synchronization", "blocking-copy", *LAUNCHING, *KERNELS, "copy"),
    "warm-up": HOST_CAUSES,
    "earlier-work": ("earlier-work",),
    "cpu-preparation": ("cpu-operator", "python"),
    "pinned-memory": ("blocking-copy", "copy"),
    "python-work": ("python",),
    "record-stacks": ("host-unknown",),
    "labels-at-once": (*{*IDLE_CAUSES, *KERNELS, "communication", "copy"},),
    "copies": ("copy", "blocking-copy"),
    "cpu-operators": ("cpu-operator",),
    "dependencies": ("device-wait",),
    "fusion": ("memory", "latency"),
    "fuse-replayed": ("memory", "latency", "device-gap"),
    # A wait of the device for the CPU may hide them.
    **{name: (name, "synchronization") for name in ("garbage-collection", "data-loading", "host-wait")},
    "graph-capture": HOST_CAUSES,
    "allocator": ("allocation", "synchronization"),
    **dict.fromkeys(("recompilation", "lazy-loading"), ("compilation",)),
    **dict.fromkeys(("transport", "overlap", "gradient-buckets"), ("communication",)),
    **dict.fromkeys(("small-copies", "peer-copies"), ("copy",)),
    **dict.fromkeys(
        ("casts", "custom-kernels", "attention-kernel", "channels-last", "padding", "recompute-less"), KERNELS
    ),
    **dict.fromkeys(("inefficient-kernels", "few-tiles"), KERNELS),
    **dict.fromkeys(("compiled-copies", "device-copies", "fewer-bytes", "skinny-matmuls"), ("memory",)),
    **dict.fromkeys(("low-precision", "max-autotune", "less-work"), ("compute",)),
    **dict.fromkeys(("tensor-cores", "tf32"), ("compute", "memory")),
}
"""Parts of the window that a fix can reduce."""
HALF = ("bigger-batch", "fewer-bytes", "skinny-matmuls")
NONE = ("custom-kernels", "earlier-work", "less-work", "record-stacks")
"""Advice that saves nothing by itself."""


def bounds_hold(report: Report) -> None:
    parts = report.verdict.parts_ns
    window_ns = sum(parts.values())
    estimates = report.tables["what_would_help"]
    steps = dict(estimates.filter(pl.col("kind") != "change").select("kind", "step_ns").iter_rows())
    floors = {kind: 1 - steps.get(kind, 0.0) / steps.get("now", 1.0) for kind in ("device-floor", "cpu-floor")}
    for item in report.advice:
        fix, predicted = fixes()[item.id], item.predicted
        best = 0.0 if predicted is None or not predicted.now_ns else 1 - predicted.low_ns / predicted.now_ns
        of_kernels = {*fix.regimes} <= {*KERNEL_REGIMES}
        if (of_kernels or fix.regimes == ("overhead-bound",)) and item.id != "bigger-batch":
            floor = floors["cpu-floor" if of_kernels else "device-floor"]
            assert item.saving.at_most_ratio <= max(floor, best) + 1e-6, "no fix of a side goes below its floor"
        has_products = item.id == "fewer-bytes" and "time of fp32 matmuls" in item.how_bound
        reached = sum(parts[part] for part in (("compute", "memory") if has_products else REACHES[item.id]))
        if predicted is not None and "raised to the best end of the replay" in item.how_bound:
            reached = window_ns
        assert 0 <= item.saves_ns_at_most <= (reached + 1) // (2 if item.id in HALF and not has_products else 1)
        assert (item.saves_ns_at_most == 0) == (item.id in NONE)
        check_saving(item, report)
        assert item.saves_ns_at_most >= min(round(best * window_ns), window_ns) - 1, "no less than the interval allows"
        assert item.start_ns is None or item.start_ns <= (item.end_ns or 0)


def check_saving(item: Advice, report: Report) -> None:
    """Check that the saving of a step is the window's divided by its steps, and that the ratios agree."""
    steps = report.verdict.window.steps
    step_ns = sum(report.verdict.parts_ns.values()) / max(1, len(steps))
    saving = item.saving
    assert saving.has_steps == bool(steps)
    assert saving.at_most_ns == pytest.approx(item.saves_ns_at_most / max(1, len(steps)))
    assert saving.at_most_ratio == pytest.approx(saving.at_most_ns / step_ns)
    assert saving.ratio == pytest.approx(saving.ns / step_ns)
    assert saving.ns <= saving.at_most_ns + 1  # bounds are whole nanoseconds
    if item.predicted is not None:
        assert item.predicted.has_steps <= bool(steps)


def order_holds(report: Report) -> None:
    """Check docs/advice.md's order: what an item is ranked by falls, and the exceptions come behind.

    An estimate too wide for one figure is no higher than a known one that saves half as much, and more at the worst. Stacks may come first, and what others need comes right before these, if it gains by itself.
    """
    needed = {"pinned-memory": ("copies",), "synchronization": ("cuda-graphs",)}
    after = [*(item.id for item in report.advice), ""][1:]
    items = [
        item
        for item, following in zip(report.advice, after, strict=True)
        if item.id != "record-stacks"
        and (following not in needed.get(item.id, ()) or (item.predicted is not None and saves_nothing(item.predicted)))
    ]
    ranks = [
        (
            item.predicted is not None and saves_nothing(item.predicted),
            fixes()[item.id].last_resort,
            not (item.is_of_limit or (item.predicted is not None and item.predicted.is_known)),
            -min([ranked_ratio(item), *(ranked_ratio(other) for other in items if is_surer(other, item))]),
        )
        for item in items
    ]
    assert ranks == sorted(ranks)


def is_surer(one: Advice, than: Advice) -> bool:
    a, b = one.predicted, than.predicted
    if a is None or b is None or b.is_known or not (a.is_known and than.is_of_limit) or fixes()[one.id].last_resort:
        return False
    return 2 * one.saving.ratio >= ranked_ratio(than) and max(0.0, 1 - a.high_ns / a.now_ns) > max(
        0.0, 1 - b.high_ns / b.now_ns
    )


def counted_once(report: Report) -> None:
    """Check that the bounds, each without the share of its time that advice above it counts, are at most the step.

    Last resorts do not save the same time. What an estimate saves beyond its own time are waits of others, and says so.
    """
    members, seen, total_ns = report.tables["advice_members"], None, 0.0
    if (window := report.verdict.window) is None:
        assert members.is_empty()
        return
    steps = max(1, len(window.steps))
    for item in report.advice:
        own = union(members.filter(advice=item.id).select("device", "start_ns", "end_ns"), ["device"])
        most_ns = item.saving.at_most_ns
        if fixes()[item.id].last_resort or own.is_empty() or not most_ns:
            continue
        shared = 0 if seen is None else total(clip(own, seen, ["device"]), LENGTH_NS)
        own_ns = total(own, LENGTH_NS)
        if most_ns - own_ns / steps > SHARED_RATIO * most_ns and "raised" in item.how_bound:
            assert "other waits, which other advice may count, too" in item.why
        total_ns += min(most_ns, own_ns / steps) * (1 - shared / own_ns)
        seen = own if seen is None else union(pl.concat([seen, own]), ["device"])
    assert total_ns <= sum(report.verdict.parts_ns.values()) / steps * 1.01 + 1


def test_every_fix_has_its_reach() -> None:
    assert sorted(REACHES) == sorted(RULES)


@pytest.mark.parametrize(
    ("predicted", "at_most", "ratio"),
    [
        (None, 0.16, 0.16),  # the bound
        (Predicted(87, 80, 90, 100), 0.2, 0.15),
        (Predicted(56, 54, 82, 100), 0.46, 0.32),  # 44 %, which may be 18
        (Predicted(56, 50, 100, 100, is_known=False), 0.5, 0.25),  # nothing to 50 %
    ],
)
def test_advice_is_ranked_by_its_estimate_else_by_its_bound(
    predicted: Predicted | None, at_most: float, ratio: float
) -> None:
    saving = Saving(1, 1, 1, at_most, has_steps=True)
    assert ranked_ratio(Advice("", "", "", "", 1, "", saving, predicted=predicted)) == pytest.approx(ratio)


def opportunity(fix_id: str, after: tuple[str, ...] = ()) -> Opportunity:
    return Opportunity(1, "", "", lambda steps: "", (None, None), after=after, is_first=fix_id == "record-stacks")


def test_what_hardly_adds_to_a_bound_needs_no_words() -> None:
    main, other = (
        replace(opportunity("copies"), saves_ns=ns, why=why) for ns, why in ((99_100, "much"), (900, "0.9 %"))
    )
    assert (combined([main, other]).saves_ns, combined([main, other]).why) == (100_000, "much")
    assert combined([main, replace(other, saves_ns=1_100)]).why == "much; 0.9 %"


def test_the_order_of_advice() -> None:
    ranked: list[tuple[str, tuple[int, ...] | None, float, float, dict[str, Any]]] = [
        ("stacks", None, 0, 0, {"fix": "record-stacks"}),
        ("waits, before what they hinder", None, 0.01, 0.01, {"fix": "synchronization"}),
        ("graph", (60, 50, 62), 0.4, 0.5, {"fix": "cuda-graphs", "after": ("synchronization", "pinned-memory")}),
        ("estimate", (80, 50, 82), 0.2, 0.5, {}),
        ("bound", None, 0.3, 0.3, {}),
        ("known beside the limit", (72, 70, 73), 0.28, 0.28, {"limits": False}),
        ("perhaps more, perhaps nothing", (50, 15, 98), 0.5, 0.85, {"known": False}),
        ("uncertain", (80, 50, 100), 0.2, 0.5, {"known": False}),
        ("beside the limit, uncertain", (30, 20, 100), 0.7, 0.8, {"known": False, "limits": False}),
        ("beside the limit", None, 0.36, 0.36, {"limits": False}),
        ("last resort", (40, 38, 42), 0.6, 0.62, {"fix": "bigger-batch"}),
        ("no gain, but a graph needs it", (99, 97, 99), 0.01, 0.9, {"fix": "pinned-memory"}),
        ("no gain", (99, 97, 99), 0.01, 0.9, {}),
    ]
    items = []
    for title, steps, ratio, most, what in ranked:
        predicted = steps and Predicted(*steps, 100, is_known=what.get("known", True))
        saving = Saving(ratio, ratio, most, most, has_steps=True)
        item = Advice(title, "", "", "", 1, "", saving, predicted=predicted, is_of_limit=what.get("limits", True))
        fix = fixes()[what.get("fix", "host-wait")]
        items.append((fix, opportunity(fix.id, after=what.get("after", ())), item))
    assert [item.title for item in _ranked(items[::-1])] == [title for title, *_ in ranked[:-1]]
    assert [item.title for item in _ranked(items[-1:])] == ["no gain"], "where nothing gains, that is said"


@given(random_traces())
@settings(max_examples=examples(6), suppress_health_check=UNHURRIED)
def test_on_random_traces(trace: RandomTrace) -> None:
    report = report_on(trace.content, step="all")
    bounds_hold(report)
    order_holds(report)
    counted_once(report)
