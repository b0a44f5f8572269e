"""Test the verdict by the partition: the table of the definitions, the rules of precedence, confidence."""

import json
import random
import re
from typing import Any

import pytest
from hypothesis import given, strategies as st
from kineto import A100, analysed, annotation, kernel, launch, launched, op, trace_bytes
from msgspec.structs import asdict, replace

from trace_analyzer.analyses.left_out import LeftOut, RecordedSpan
from trace_analyzer.analyses.profiler_overhead import ProfilerOverhead
from trace_analyzer.catalog.devices import device_named
from trace_analyzer.findings import DeviceFindings, Findings, StepFindings
from trace_analyzer.pipeline import analyze
from trace_analyzer.render import phrasing
from trace_analyzer.render.row_phrases import host_levers_sentence, levers_sentence, rule_applied
from trace_analyzer.report import (
    BoundShare,
    DeviceReport,
    Gaps,
    LaunchLead,
    Lever,
    RunAhead,
    TimeWeighted,
    Verdict,
    Window,
)
from trace_analyzer.units import percent
from trace_analyzer.verdict import StepVerdict, step_verdict, step_verdicts, verdict, without_regime
from trace_analyzer.verdict.decide import COUNTED_NOWHERE
from trace_analyzer.verdict.judge import (
    MOST_WORLDS,
    Levers,
    confidence_ratio,
    debiased,
    doubts_of,
    groups_of,
    judge,
    shares,
)
from trace_analyzer.vocabulary import HOST_CAUSES, IDLE_CAUSES, NOT_OWN, PARTS, regime_noun

OVERHEAD, MEMORY, COMPUTE = "overhead-bound", "memory-bandwidth-bound", "compute-bound"
COMMUNICATION = "communication-bound"

TABLE = [
    (("compute",), COMPUTE, None),
    (("memory",), MEMORY, None),
    (("communication",), COMMUNICATION, "collectives"),
    (("copy",), COMMUNICATION, "copies"),
    (("device-wait",), COMMUNICATION, "dependency"),
    *(((cause,), OVERHEAD, cause) for cause in
      ("synchronization", "data-loading", "allocation", "compilation", "graph-capture", "blocking-copy", "garbage-collection",
       "cpu-operator", "host-wait")),
    (("dispatch", "runtime-call", "launch-latency", "profiler"), OVERHEAD, "launch"),
    (("python",), OVERHEAD, "python"), (("host-unknown",), OVERHEAD, "host-unknown"),
    (("latency", "device-gap"), OVERHEAD, "small-kernels"),
]  # fmt: skip
IN_NO_GROUP = (
    "other", "earlier-work", "time-slice", "unrecorded-work", "unlinked", "unexplained", "untraced",
    "withheld",
)  # fmt: skip


def parts_of(**ns: int) -> dict[str, int]:
    """Return the times of parts, written with underscores."""
    return dict.fromkeys(PARTS, 0) | {part.replace("_", "-"): value for part, value in ns.items()}


@pytest.mark.parametrize(
    ("part", "regime", "cause"), [(part, regime, cause) for parts, regime, cause in TABLE for part in parts]
)
def test_what_each_part_alone_says(part: str, regime: str, cause: str | None) -> None:
    judged = judge(parts_of(**{part: 5}))
    assert (judged.regime, judged.cause, judged.runner_up) == (regime, cause, None)


@pytest.mark.parametrize("part", IN_NO_GROUP)
def test_parts_in_no_group_say_nothing(part: str) -> None:
    assert judge(parts_of(**{part: 5})) is None


def test_the_table_is_complete() -> None:
    assert sorted([part for parts, _, _ in TABLE for part in parts] + list(IN_NO_GROUP)) == sorted(PARTS)
    assert sorted(key for key, part in PARTS.items() if part.cure) == sorted(set(PARTS) - set(IN_NO_GROUP))


@pytest.mark.parametrize(
    ("parts", "regime", "runner_up", "cause"),
    [
        # The largest group, not the largest part.
        ({"memory": 40, "python": 25, "dispatch": 20}, OVERHEAD, MEMORY, "python"),
        ({"compute": 60, "memory": 40}, COMPUTE, None, None),
        ({"compute": 100, "memory": 80}, COMPUTE, MEMORY, None),
        ({"compute": 100, "memory": 79}, COMPUTE, None, None),
        # Waiting wins at 0.6 of the largest kernel group ...
        ({"compute": 50, "synchronization": 30, "other": 20}, OVERHEAD, None, "synchronization"),
        ({"compute": 50, "synchronization": 29, "other": 21}, COMPUTE, None, None),
        ({"memory": 50, "communication": 30, "other": 20}, COMMUNICATION, None, "collectives"),
        # ... in balance with it from 0.8 on ...
        ({"memory": 50, "communication": 40, "other": 10}, COMMUNICATION, MEMORY, "collectives"),
        # ... if it is a quarter of the window.
        ({"compute": 40, "synchronization": 25, "other": 35}, OVERHEAD, None, "synchronization"),
        ({"compute": 40, "synchronization": 24, "other": 36}, COMPUTE, None, None),
        ({"compute": 30, "synchronization": 24, "other": 46}, COMPUTE, OVERHEAD, None),
        # Under a quarter it still wins as the largest.
        ({"compute": 10, "synchronization": 20, "other": 70}, OVERHEAD, None, "synchronization"),
        # Each waiting group stands for itself.
        ({"compute": 40, "synchronization": 20, "communication": 20, "other": 20}, COMPUTE, None, None),
        ({"compute": 35, "python": 30, "communication": 25, "other": 10}, OVERHEAD, COMPUTE, "python"),
        ({"compute": 33, "python": 25, "communication": 32, "other": 10}, COMMUNICATION, COMPUTE, "collectives"),
        # Kernel groups are compared one by one.
        ({"compute": 36, "memory": 34, "python": 30}, OVERHEAD, COMPUTE, "python"),
        # The cause holds most of its group.
        ({"python": 20, "dispatch": 20, "data_loading": 39}, OVERHEAD, None, "launch"),
        ({"python": 20, "dispatch": 18, "data_loading": 39}, OVERHEAD, None, "data-loading"),
        # Of late launches, it is Python or what was not recorded, if this takes most of them and longer than other causes.
        ({"python": 40, "dispatch": 39, "data_loading": 39}, OVERHEAD, None, "python"),
        ({"host_unknown": 40, "dispatch": 30, "data_loading": 40}, OVERHEAD, None, "launch"),
        ({"latency": 20, "device_gap": 20, "python": 39}, OVERHEAD, None, "small-kernels"),
        # All of the host's causes together are held against small kernels.
        ({"latency": 39, "graph_capture": 25, "synchronization": 15}, OVERHEAD, None, "graph-capture"),
        ({"latency": 40, "graph_capture": 25, "synchronization": 15}, OVERHEAD, None, "small-kernels"),
        ({"communication": 20, "copy": 19, "device_wait": 30}, COMMUNICATION, None, "dependency"),
    ],
)
def test_judgement(parts: dict[str, int], regime: str, runner_up: str | None, cause: str | None) -> None:
    judged = judge(parts_of(**parts))
    assert (judged.regime, judged.runner_up, judged.cause) == (regime, runner_up, cause)


@pytest.mark.parametrize(
    ("cold", "parts", "cause"),
    [
        (50, {"python": 60, "compilation": 40}, "cold-start"),
        (49, {"python": 60, "compilation": 40}, "python"),
        (50, {"python": 60, "compilation": 40, "latency": 200}, "cold-start"),
        (40, {"python": 80, "compute": 200}, None),
        (0, {"latency": 5}, "small-kernels"),
    ],
)
def test_a_cold_start_holds_half_of_the_host_time(cold: int, parts: dict[str, int], cause: str | None) -> None:
    judged = judge(parts_of(**parts), cold)
    assert judged.cause == cause


def test_host_time_is_what_the_cpu_did() -> None:
    assert set(IDLE_CAUSES) - set(HOST_CAUSES) == {
        "device-gap", "device-wait", "earlier-work", "time-slice", "unrecorded-work", "unexplained", "unlinked", "untraced", "withheld",
    }  # fmt: skip


@given(st.dictionaries(st.sampled_from(list(PARTS)), st.integers(0, 1_000)))
def test_judgements_obey_the_rules(parts: dict[str, int]) -> None:
    judged = judge(dict.fromkeys(PARTS, 0) | parts)
    if judged is None:
        assert not any(ns for part, ns in parts.items() if PARTS[part].cure)
        return
    groups, window = judged.groups_ns, sum(ns for part, ns in parts.items() if part not in NOT_OWN)
    assert sum(groups.values()) == sum(ns for part, ns in parts.items() if PARTS[part].cure)
    largest, won = max(groups.values()), groups[judged.regime]
    kernels = max(groups[COMPUTE], groups[MEMORY])
    waiting = max(groups[OVERHEAD], groups[COMMUNICATION])
    wins = waiting >= 0.6 * kernels and waiting >= window / 4
    assert won == (waiting if wins else largest)
    second = max(ns for regime, ns in groups.items() if regime != judged.regime)
    assert (judged.runner_up is not None) == (min(second, won) >= 0.8 * max(second, won))
    if judged.runner_up is not None:
        assert groups[judged.runner_up] == second


# The verdict from findings


DEVICE = DeviceReport(
    index=0, name="x", window_ns=10**7, busy_ns=10**7, idle_ns=0, busy_ratio=1.0, activity_count=100, kernel_count=100, linked_count=100,
    link_coverage_ratio=1.0, link_coverage_time_ratio=1.0, gaps=Gaps(0, 0, {}), partition_ns={},
    run_ahead=RunAhead("ahead", LaunchLead(1, 2, 3), TimeWeighted(1.0, 1, 2), TimeWeighted(1.0, 1, 2), 0.0), buckets=(),
)  # fmt: skip


def recording(taken: int, least: int | None = None) -> ProfilerOverhead:
    """Return the estimate of what recording took of the Python time."""
    low = taken if least is None else least
    return ProfilerOverhead("estimated", {"python": taken}, {"python": low}, {"operator": (300, 900)}, events=7)


OF_DEVICE = DeviceFindings(
    report=DEVICE, step_count=5, launches_per_step=20.0, peaks_known=True, matmul_ratio=0.8, shapes_ratio=1.0, known_ratio=1.0,
    assumed_peaks=None, waits_recorded=False, launch_latency_ns=7_000, steps_from="ProfilerStep", idle_peak=None,
    profiler=None, flows_missing=False, breaks_off=False, damaged=False, unit_doubted=False,
)  # fmt: skip
FINDINGS = Findings(
    device=OF_DEVICE, window=Window("steady", ((0, 10**7),), (1, 2)), parts_ns=parts_of(compute=80, memory=20), cold_gap_ns=0,
    recording=None, waiting_depth=None,
)  # fmt: skip
LAUNCHING = parts_of(python=80, compute=20)


def facts(judged: Verdict) -> dict[str, Any]:
    return {fact.metric: fact.value for fact in judged.evidence}


def verdict_of(device: dict[str, Any] | None = None, **changes: Any) -> Verdict:
    return verdict(findings(device, **changes))


def findings(report: dict[str, Any] | None = None, **changes: Any) -> Findings:
    """Return findings of a healthy trace, but for some fields of the device's report, its findings and the window's."""
    of_device = {name: changes.pop(name) for name in [*changes] if hasattr(OF_DEVICE, name)}
    device = OF_DEVICE._replace(report=replace(DEVICE, **(report or {})), **of_device)
    return FINDINGS._replace(device=device, **changes)


def on_step(of_step: Findings) -> StepVerdict:
    """Return the verdict on a step with these findings."""
    return step_verdict(StepFindings(of_step, 0, 1, 100, 10**7))


def test_a_verdict_without_doubt() -> None:
    judged = verdict_of()
    assert (judged.status, judged.regime, judged.confidence, judged.confidence_why) == ("ok", COMPUTE, "high", ())
    assert judged.headline.startswith("Compute-bound: ")
    assert "80 % of the steady steps" in judged.headline


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"shapes_ratio": 0.09}, "by their names"),
        ({"peaks_known": False}, "peaks are unknown"),
        ({"model": replace(device_named("h100"), matched="likeness")}, "peaks are those of H100 SXM, which has the same multiprocessors"),
        ({"flows_missing": True}, "no launch arrows"),
        ({"breaks_off": True, "damaged": True}, "is truncated"),
        ({"damaged": True}, "lost events are not judged"),
        ({"left_out": LeftOut(6, 10, False, {"python": 6}, 0)}, "60 % of the trace lies outside of the window (--step all judges"),
        ({"parts_ns": parts_of(device_wait=80, compute=20)}, "inferred"),
        ({"parts_ns": parts_of(host_unknown=31, python=49, compute=20)}, "39 % of its idle time"),
        ({"unit_doubted": True}, "1,000 times too long"),
    ],
)  # fmt: skip
def test_what_no_figure_can_weigh_takes_high_confidence_and_no_more(changes: dict[str, Any], word: str) -> None:
    judged = verdict_of(**changes)
    assert (judged.confidence, word in judged.confidence_why[0]) == ("medium", True)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"step_count": 0}, "prof.step()"), ({"step_count": 1}, "one step was recorded"),
        ({"model": replace(device_named("mi300x"), matched="properties")}, "memory and capability are those of MI300X"),
        ({"assumed_peaks": "A100 SXM 80GB: 2.04 TB/s", "known_ratio": 0.5}, "50 % of kernel time"),
        ({"assumed_peaks": "A100 SXM 80GB: 2.04 TB/s"}, "these peaks (A100"),
    ],
)  # fmt: skip
def test_a_remark_does_not(changes: dict[str, Any], word: str) -> None:
    judged = verdict_of(**changes)
    assert (judged.confidence, word in judged.confidence_why[0]) == ("high", True)


def named(compute: int, by_name: int) -> BoundShare:
    """Return compute-bound kernels, some of which count as such by their names."""
    return BoundShare("compute", 10, compute, compute - by_name, 0.8, 0.0, 0, named_ns=by_name)


@pytest.mark.parametrize(
    ("changes", "ratio", "level"),
    [
        # Nothing that is open can turn it.
        ({"parts_ns": parts_of(compute=70, other=30)}, 1, "high"),
        ({"parts_ns": parts_of(python=60, unexplained=40)}, 1, "high"),
        ({"device": {"link_coverage_time_ratio": 0.4}}, 1, "high"),
        # Of 60 ns by name, 0, 15, 30, 45 or 60 may be memory, beside 20: compute leads in two of the five.
        ({"parts_ns": parts_of(compute=60, memory=20), "bounds": (named(60, 60),)}, 2 / 5, "low"),
        ({"parts_ns": parts_of(compute=80, memory=20), "bounds": (named(80, 20),)}, 1, "high"),
        # Recording took 5, 21, 38, 54 or 70 of 80 ns, beside 20 of compute: the last leaves no quarter of the window.
        ({"parts_ns": LAUNCHING, "recording": recording(70, least=5)}, 4 / 5, "medium"),
        ({"parts_ns": LAUNCHING, "recording": recording(70)}, 0, "low"),
        # 30 ns near the ridge may be on either side.
        ({"parts_ns": parts_of(compute=50, memory=39), "bounds": (
            replace(named(50, 0), near_ridge_ns=30),)}, 1 / 2, "low"),
        # Without the second step, memory leads: the whole, and two of three rests.
        ({"parts_ns": parts_of(compute=60, memory=40),
          "steps_ns": ({"compute": 10, "memory": 20}, {"compute": 40}, {"compute": 10, "memory": 20})}, 3 / 4, "low"),
        # The two in balance: no surer than with a little less memory.
        ({"parts_ns": parts_of(compute=50, memory=41), "bounds": (
            replace(named(50, 0), near_ridge_ns=30),)}, 1 / 2, "low"),
        # Waiting of 0.55 of compute wins for one value of the rule, and of 0.7 for two.
        ({"parts_ns": parts_of(compute=60, python=33)}, 2 / 3, "low"),
        ({"parts_ns": parts_of(compute=60, python=42)}, 2 / 3, "low"),
    ],
)  # fmt: skip
def test_confidence_is_the_share_of_worlds_in_which_the_regime_holds(
    changes: dict[str, Any], ratio: float, level: str
) -> None:
    judged = verdict_of(**changes)
    assert judged.confidence_ratio == pytest.approx(ratio)
    assert judged.confidence == level


@given(
    st.dictionaries(st.sampled_from([part for part in PARTS if part != "withheld"]), st.integers(1, 1_000), min_size=1),
    st.integers(0, 1_000),
    st.integers(0, 1 << 32),
)
def test_worlds_drawn_at_random_agree_with_the_confidence(parts: dict[str, int], by_name: int, seed: int) -> None:
    """Draw a move of each doubt instead of enumerating all; 400 draws are within 5 standard deviations."""
    draw = random.Random(seed)  # of Hypothesis only the seed: it prefers simple draws to likely ones
    own = findings(parts_ns=parts_of() | parts, bounds=(named(1_000, by_name),), recording=recording(300, least=10))
    judgement = judge(own.parts_ns)
    if judgement is None:
        return
    doubts = tuple(doubts_of(own, judgement))
    ratio, held, moves = confidence_ratio(judgement, doubts), 0, [doubt.moves.tolist() for doubt in doubts]
    for _ in range(400):
        groups = list(judgement.groups_ns.values())
        for worlds in moves:
            groups = [ns + more for ns, more in zip(groups, draw.choice(worlds), strict=True)]
        overhead, memory, compute, communication = (max(ns, 0) for ns in groups)
        waiting, kernels = max(overhead, communication), max(memory, compute)
        wins = waiting >= draw.choice((0.45, 0.6, 0.8)) * kernels
        wins = wins and waiting >= sum(judgement.groups_ns.values()) / 4
        sizes = {OVERHEAD: overhead, MEMORY: memory, COMPUTE: compute, COMMUNICATION: communication}
        first = OVERHEAD if overhead >= communication else COMMUNICATION
        first = first if wins else max(sizes, key=lambda regime: sizes[regime])
        second = max((regime for regime in sizes if regime != first), key=lambda regime: sizes[regime])
        ends = sorted((sizes[first], sizes[second]))
        held += judgement.regime in ((first, second) if ends[0] >= 0.8 * ends[1] and sizes[second] >= 1 else (first,))
    assert abs(held / 400 - ratio) <= 5 * (0.25 / 400) ** 0.5


@pytest.mark.parametrize(("lengths", "differ"), [((100, 2), True), ((60, 60), False)])
def test_each_of_touching_steps_may_be_left_out(lengths: tuple[int, ...], differ: bool) -> None:
    """Steps of 1 ms end where the next begin, and the window is one interval: without the last, the device limits.

    Two steps are too few to replay, so these are judged by shares; launches are too few to price.
    """
    steps = [
        [annotation(f"ProfilerStep#{n}", 1_000 * n, 1_000),
         *([op("aten::add", at, 190), launched("k", at + 160, at + 180, 2 * length, 5 * n + i + 1)]
           for i, at in enumerate(range(1_000 * n, 1_000 * n + 1_000, 200)))]
        for n, length in enumerate((lengths[0], *lengths))
    ]  # fmt: skip
    judged = analysed(steps).verdict
    assert judged.window is not None
    assert (len(judged.window.steps), len(judged.window.intervals)) == (2, 1)
    assert ("its steps differ" in judged.confidence_why) is differ


def test_worlds_are_bounded_whatever_the_number_of_steps() -> None:
    """Of doubts with 2, 5, 6 and 3,001 worlds, some of all are drawn: about as many as of a tenth of the steps hold."""
    parts, ratios = {"compute": 60, "memory": 40, "other": 20, "earlier-work": 10}, []
    for count in (300, 3_000):
        own = findings(
            parts_ns=parts_of() | {part: ns * count for part, ns in parts.items()},
            bounds=(replace(named(60, 0), near_ridge_ns=20),),
            steps_ns=(parts,) * count,
        )
        judgement = judge(own.parts_ns)
        assert judgement is not None
        ratios.append(confidence_ratio(judgement, tuple(doubts_of(own, judgement))))
    assert ratios[0] == pytest.approx(ratios[1], abs=5 * (0.5 / MOST_WORLDS) ** 0.5)


def test_a_doubt_is_named_where_the_regime_would_be_surer_without_it() -> None:
    judged = verdict_of(parts_ns=parts_of(compute=60, memory=20, other=10), bounds=(named(60, 60),))
    assert "names alone say that 100 %" in judged.confidence_why[0]
    assert not any("unknown bound" in why for why in verdict_of(parts_ns=parts_of(compute=70, other=30)).confidence_why)


@pytest.mark.parametrize(
    ("one", "two", "open_part", "ratio"),
    [
        # 40 and 0, 7.5, 15, 22.5 or 30 against 30 and the rest: only 40 against 60 is neither larger nor in balance.
        *(("compute", "memory", part, 0.8) for part in ("other", "unrecorded-work")),
        *(("python", "communication", part, 0.8) for part in ("unlinked", "unexplained", "untraced", "withheld")),
        # A sixth world has nothing of it.
        ("compute", "memory", "earlier-work", 5 / 6),
    ],
)
def test_time_of_which_little_is_known_may_be_either_of_two(one: str, two: str, open_part: str, ratio: float) -> None:
    own = findings(parts_ns=parts_of(**{one: 40, two: 30, open_part: 30}))
    doubts = tuple(doubts_of(own, judge(own.parts_ns)))
    assert ("30 % of the window" in doubts[0].words, len(doubts)) == (True, 1)
    assert confidence_ratio(judge(own.parts_ns), doubts) == pytest.approx(ratio)


def test_a_doubt_of_kernels_that_overlap_moves_their_time_in_the_window() -> None:
    """Kernels of 120 fill 60 of the window, with 20 of memory: of 0, 15, 30, 45 and 60 less, two leave it the larger."""
    own = findings(parts_ns=parts_of(compute=60, memory=20), bounds=(named(120, 120),))
    judgement = judge(own.parts_ns)
    assert confidence_ratio(judgement, tuple(doubts_of(own, judgement))) == pytest.approx(0.4)


def test_the_doubt_that_matters_most_comes_first() -> None:
    """Without earlier work all worlds hold (at least 40 against 43); without other kernels one does not (40 against 63)."""
    judged = verdict_of(parts_ns=parts_of(compute=40, memory=33, other=10, earlier_work=30))
    assert "launched before the recording" in judged.confidence_why[0]
    assert "kernels of unknown bound" in judged.confidence_why[1]


@pytest.mark.parametrize(("part", "ns", "confidence"), [("unrecorded-work", 5, "high"), ("unrecorded-work", 6, "medium"), ("time-slice", 1, "medium")])  # fmt: skip
def test_work_of_which_the_trace_knows_nothing_takes_high_confidence(part: str, ns: int, confidence: str) -> None:
    assert verdict_of(parts_ns=parts_of(**{"compute": 100 - ns, part: ns})).confidence == confidence


# The regime by what helps: levers of the replay


def levers(**saves: float) -> Levers:
    """Return what a step saves per ns of each regime's time."""
    equal = dict.fromkeys((OVERHEAD, MEMORY, COMPUTE, COMMUNICATION), 1.0)
    return Levers((), equal | {k.replace("_", "-"): v for k, v in saves.items()})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("parts", "saves", "regime", "runner_up"),
    [
        # The device is busier, and the step waits for the CPU alone.
        ({"compute": 70, "python": 30}, {"compute_bound": 0.0}, OVERHEAD, None),
        # The device hides what the CPU does.
        ({"compute": 60, "python": 40}, {"overhead_bound": 0.1}, COMPUTE, None),
        # Within a fifth, what can be removed completely leads, and both are named.
        ({"compute": 50, "python": 40}, {}, OVERHEAD, COMPUTE),
        ({"compute": 50, "memory": 40}, {}, COMPUTE, MEMORY),
        ({"compute": 50, "python": 39}, {}, COMPUTE, None),
        # The CPU's floor limits both alike: what takes longer leads.
        ({"compute": 66, "memory": 31}, {"compute_bound": 14 / 66, "memory_bandwidth_bound": 14 / 31}, COMPUTE, MEMORY),
        ({"compute": 31, "memory": 66}, {"compute_bound": 14 / 31, "memory_bandwidth_bound": 14 / 66}, MEMORY, COMPUTE),
        # It limits all three: waiting leads, in balance with what takes longest.
        (
            {"compute": 40, "memory": 31, "communication": 29},
            {"compute_bound": 14 / 40, "memory_bandwidth_bound": 14 / 31, "communication_bound": 14 / 29},
            COMMUNICATION,
            COMPUTE,
        ),
        # No resource alone saves a tenth: the first two hold the step together, if both save something.
        ({"compute": 60, "python": 40}, {"compute_bound": 0.05, "overhead_bound": 0.2}, OVERHEAD, COMPUTE),
        ({"compute": 60, "python": 40}, {"compute_bound": 0.01, "overhead_bound": 0.2}, OVERHEAD, None),
        # None saves anything: time decides.
        ({"compute": 80, "python": 20}, {"compute_bound": 0.01, "overhead_bound": 0.05}, COMPUTE, None),
    ],
)
def test_the_regime_is_the_resource_that_would_help(
    parts: dict[str, int], saves: dict[str, float], regime: str, runner_up: str | None
) -> None:
    judged = verdict(findings(parts_ns=parts_of(**parts)), levers(**saves))
    assert (judged.regime, judged.runner_up) == (regime, runner_up)
    assert ("in balance with" in judged.headline) is (runner_up is not None)


def test_of_equal_savings_that_of_the_regime_comes_first() -> None:
    rows = tuple(Lever(one, 0.3, 0.3, 14.0, 0.14) for one in ("compute", "memory-bandwidth", "communication"))  # type: ignore[arg-type]
    host = Lever("host", 0.1, 0.1, 20.0, 0.2)
    saves = levers(compute_bound=14 / 40, memory_bandwidth_bound=14 / 31, communication_bound=14 / 29)
    judged = verdict(
        findings(parts_ns=parts_of(compute=40, memory=31, communication=29)), saves._replace(rows=(host, *rows))
    )
    assert judged.regime == COMMUNICATION
    assert [one.resource for one in judged.levers] == ["host", "communication", "compute", "memory-bandwidth"]


@pytest.mark.parametrize(
    ("host", "small", "compute", "runner_up", "cause"),
    [
        # CPU and device take equally long, so that each hides what the other could save.
        (Lever("host", 0.1, 0.5, 5.0, 0.05), 0.0, 0.3, COMPUTE, "python"),
        (Lever("host", 0.1, 0.95, 5.0, 0.05), 0.0, 0.05, None, "python"),
        (Lever("host", 0.3, 0.5, 30.0, 0.3), 0.0, 0.3, None, "python"),
        # The cause is one of what saves, though another part of the regime takes longer.
        (Lever("host", 0.1, 0.1, 1.0, 0.01), 5.0, 0.05, None, "small-kernels"),
    ],
)
def test_what_saves_has_the_cause_and_what_hides_it_is_in_balance(
    host: Lever, small: float, compute: float, runner_up: str | None, cause: str
) -> None:
    rows = (host, Lever("small-kernels", 0.15, 0.1, small, small / 100), Lever("compute", 0.7, compute, 0.0, 0.0))
    rows = tuple(sorted(rows, key=lambda lever: -lever.saves_ns))
    parts = parts_of(compute=70, python=10, latency=20 if cause == "python" else 5)
    saves = levers(overhead_bound=rows[0].saves_ns / (parts["python"] + parts["latency"]), compute_bound=0.0)
    judged = judge(parts, levers=saves._replace(rows=rows))
    assert (judged.regime, judged.runner_up, judged.cause) == (OVERHEAD, runner_up, cause)


@pytest.mark.parametrize(("alone", "runner_up"), [(0.9, OVERHEAD), (0.89, None)])
def test_where_nothing_saves_the_cpu_that_takes_as_long_is_in_balance(alone: float, runner_up: str | None) -> None:
    """A CPU that takes as long as the step hides what the device could save, though the path is the device's."""
    rows = (
        Lever("host", 0.0, 0.0, 1.2, 0.012),
        Lever("memory-bandwidth", 0.58, 0.58, 0.0, 0.0),
        Lever("compute", 0.36, 0.36, 0.0, 0.0),
    )
    saves = levers(overhead_bound=0.2, memory_bandwidth_bound=0.0, compute_bound=0.0)
    parts = parts_of(**{"memory": 58, "compute": 36, "device-gap": 6})
    judged = judge(parts, levers=saves._replace(rows=rows, host_alone_ratio=alone))
    assert (judged.regime, judged.runner_up) == (MEMORY, runner_up)


@pytest.mark.parametrize(("best", "rest", "cause"), [("copies", "communication", "copies"), ("communication", "copies", "collectives")])  # fmt: skip
def test_of_copies_and_collectives_those_that_save_are_the_cause_though_the_others_take_longer(
    best: Any, rest: Any, cause: str
) -> None:
    rows = (Lever(best, 0.25, 0.3, 25.0, 0.25), Lever(rest, 0.35, 0.1, 5.0, 0.05))
    times = {"copies": 25, "communication": 35} if best == "copies" else {"copies": 35, "communication": 25}
    parts = parts_of(compute=40, copy=times["copies"], communication=times["communication"])
    judged = judge(parts, levers=levers(compute_bound=0.0)._replace(rows=rows))
    assert (judged.regime, judged.cause) == (COMMUNICATION, cause)


def test_of_waits_the_longer_is_the_cause_and_gaps_are_where_nothing_else_is() -> None:
    rows = (Lever("host", 0.4, 0.4, 40.0, 0.4),)
    known = levers(compute_bound=0.0)._replace(rows=rows, host=(Lever("waits", 0.4, 0.4, 40.0, 0.4),))
    waits = parts_of(**{"compute": 60, "synchronization": 10, "blocking-copy": 30})
    assert judge(waits, levers=known).cause == "blocking-copy"
    assert judge(parts_of(**{"compute": 60, "device-gap": 40}), levers=known).cause == "small-kernels"


def test_a_fast_device_has_no_doubt_of_the_host_that_it_does_not_wait_for() -> None:
    """Of 30 % idle time, all unrecorded and lengthened by recording, a faster host saves nothing: compute saves 10 %."""
    rows = (Lever("compute", 0.7, 0.9, 10.0, 0.1), Lever("host", 0.3, 0.0, 0.0, 0.0))
    by_replay = levers(compute_bound=0.1 / 0.7, overhead_bound=0.0)._replace(rows=rows)
    judged = verdict(findings(parts_ns=parts_of(**{"compute": 70, "host-unknown": 30})), by_replay)
    assert (judged.regime, judged.confidence) == (COMPUTE, "high")


@pytest.mark.parametrize("foreign", ["earlier-work", "time-slice"])
def test_time_that_is_not_the_programs_own_is_no_part_of_the_window_of_which_waiting_takes_a_quarter(
    foreign: str,
) -> None:
    judged = judge(parts_of(**{foreign: 60, "compute": 25, "communication": 15}))
    assert (judged and judged.regime) == COMMUNICATION


def test_where_little_is_saved_what_saves_is_in_balance_before_what_holds_the_path() -> None:
    rows = (
        Lever("host", 0.3, 0.4, 8.0, 0.08),
        Lever("memory-bandwidth", 0.2, 0.1, 4.0, 0.04),
        Lever("compute", 0.5, 0.5, 0.0, 0.0),
    )
    saves = levers(overhead_bound=0.08 / 0.3, memory_bandwidth_bound=0.2, compute_bound=0.0)._replace(rows=rows)
    judged = judge(parts_of(compute=50, memory=20, python=30), levers=saves)
    assert (judged.regime, judged.runner_up) == (OVERHEAD, MEMORY)


@pytest.mark.parametrize(("loading", "waits", "cause"), [(60, 35, "data-loading"), (20, 35, "synchronization")])
def test_of_loading_and_waits_that_which_saves_more_is_the_cause(loading: float, waits: float, cause: str) -> None:
    """Data is loaded after a wait: the time before the device has work counts as the wait's first."""
    host = (Lever("data-loading", 0.25, 0.6, loading, 0.0), Lever("waits", 0.35, 0.3, waits, 0.0))
    known = levers()._replace(rows=(Lever("host", 0.6, 0.6, 60.0, 0.6),), host=host)
    parts = parts_of(**{"compute": 40, "data-loading": 25, "synchronization": 35})
    assert judge(parts, levers=known).cause == cause
    behind = parts["data-loading"] * round(loading - 25) // 25
    assert verdict_of(parts_ns=parts, loading_behind_waits_ns=behind).cause == cause


@pytest.mark.parametrize(
    ("best", "says"),
    [
        ("dispatch", "than for operators and calls of the runtime (10 %)"), ("waits", "than for waits for the device (10 %)"), ("data-loading", None),
    ],
)  # fmt: skip
def test_a_cause_that_another_kind_of_work_would_save_more_than_says_why_it_is_named(
    best: str, says: str | None
) -> None:
    """Every kind of the host's work that is not the cause, though it saves most, is beside the cause in one sentence."""
    host = (Lever(best, 0.1, 0.5, 40.0, 0.4), Lever("python", 0.0, 0.1, 5.0, 0.05))
    judged = verdict(findings(parts_ns=parts_of(**{"compute": 50, "data-loading": 40, "dispatch": 10})))
    sentence = host_levers_sentence(replace(judged, host_levers=host))
    assert judged.cause == "data-loading"
    assert ("Data loading is named as the cause" in sentence) is (says is not None)
    assert says is None or f"idles longer for it (40 % of the window) {says}" in sentence


@pytest.mark.parametrize(
    ("flip_ns", "ratio", "confidence"), [(40_500, 1.0, "high"), (41_600, 0.8, "medium"), (42_800, 0.6, "low")]
)
def test_host_time_that_recording_may_cost_lowers_the_confidence(flip_ns: int, ratio: float, confidence: str) -> None:
    """Two steps of 50 us, of which recording takes 4 to 9 us, 1.5 times its estimate: 46, 44.75, 43.5, 42.25 or 41 remain."""
    host, kernels = (levers(overhead_bound=a, compute_bound=1.0 - a) for a in (1.0, 0.0))
    rows = (Lever("host", 0.2, 0.9, 10_000.0, 0.2), Lever("compute", 0.8, 0.0, 0.0, 0.0))
    by_replay = host._replace(rows=rows, measured=lambda _, step_ns: host if step_ns >= flip_ns else kernels)
    parts = parts_of(compute=80_000, dispatch=20_000)
    judged = verdict(findings(parts_ns=parts, recording=recording(12_000, least=8_000)), by_replay)
    assert (judged.regime, judged.confidence) == (OVERHEAD, confidence)
    assert judged.confidence_ratio == pytest.approx(ratio)
    assert any("may have taken 8 us to 18 us" in why for why in judged.confidence_why) is (ratio < 1.0)
    assert any("it is compute-bound (--measured-step-ms)" in why for why in judged.confidence_why)
    known = recording(0)._replace(method="measured", measured_step_ns=50_000, step_ns=50_000)
    assert verdict(findings(parts_ns=parts, recording=known), by_replay).confidence == "high"


@pytest.mark.parametrize(("loading", "says"), [(35, True), (20, False)])
def test_another_cause_without_the_profiler_is_said(loading: int, says: bool) -> None:
    parts = parts_of(**{"python": 40, "data-loading": loading, "compute": 60 - loading})
    judged = verdict(findings(parts_ns=parts, recording=recording(12, least=8)))
    assert (judged.regime, judged.cause) == (OVERHEAD, "python")
    assert any(why.endswith("most of it is data loading") for why in judged.confidence_why) is says


@pytest.mark.parametrize(
    ("small", "words"),
    [(70, ": 100 % of the steady steps; 70 % in small kernels)"), (50, ": 100 % of the steady steps)")],
)
def test_small_kernels_that_are_most_of_the_overhead_are_named_beside_another_cause(small: int, words: str) -> None:
    rows = (Lever("host", 0.3, 0.5, 30.0, 0.3), Lever("small-kernels", 0.7, 0.5, 5.0, 0.05))
    parts = parts_of(latency=small, dispatch=100 - small)
    judged = verdict(findings(parts_ns=parts), levers(overhead_bound=0.3)._replace(rows=rows))
    assert (judged.cause, words in judged.headline) == ("launch", True)


def test_a_truncated_file_is_not_sure_of_the_little_that_it_holds() -> None:
    """The GPU's events behind the cut are lost: the device did not stop there."""
    span = RecordedSpan((0, 10), (0, 4))
    judged = verdict_of(left_out=LeftOut(6, 10, False, {}, 0, span), breaks_off=True)
    assert judged.confidence == "low"
    assert "behind the last GPU event of the truncated file" in judged.headline


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("python", "runs Python in 75 % of the idle time"), ("host-unknown", "nothing was recorded in 75 % of the idle time"), ("dispatch", "cannot launch work fast enough"),
    ],
)  # fmt: skip
def test_the_headline_says_what_most_of_late_launches_is(part: str, words: str) -> None:
    parts = parts_of(**{"compute": 20, "launch-latency": 20, part: 60})
    judged = verdict(findings(parts_ns=parts), levers())
    assert (judged.cause, words in judged.headline) == ("launch" if part == "dispatch" else part, True)
    half = verdict(findings(parts_ns=parts_of(compute=20, python=40, dispatch=40)), levers())
    assert "the CPU cannot launch work fast enough" in half.headline


def test_a_regime_with_more_time_says_what_a_step_would_be_without_it() -> None:
    rows = (Lever("host", 0.3, 0.9, 30.0, 0.3), Lever("compute", 0.7, 0.1, 1.1, 0.011))
    parts = parts_of(compute=70, python=30)
    judged = verdict(findings(parts_ns=parts), levers(compute_bound=0.01)._replace(rows=rows))
    assert judged.regime == OVERHEAD
    assert rule_applied(judged) == "Compute-bound kernels take 70 %; without them, a step would be 1.1 % shorter."
    window = replace(judged, window=Window("whole", ((0, 10**7),), ()))
    assert rule_applied(window).endswith("without them, the window would be 1.1 % shorter.")
    nothing = replace(judged, levers=(rows[0], replace(rows[1], saves_ns=0.0, saves_ratio=0.0)))
    assert rule_applied(nothing) == "Compute-bound kernels take 70 %; without them, a step would be no shorter."
    assert levers_sentence(nothing).endswith("30 % without host time, not at all without compute-bound kernels.")
    by_time = verdict_of(parts_ns=parts_of(compute=60, python=40))
    assert "decides where it takes at least 60 % as much" in rule_applied(by_time)


def test_a_measured_step_decides_the_verdict_on_the_program_without_the_profiler() -> None:
    measured = recording(70)._replace(method="measured", measured_step_ns=30, step_ns=100)
    judged = verdict_of(parts_ns=LAUNCHING, recording=measured)
    assert (judged.regime, judged.parts_ns["python"]) == (COMPUTE, 80)
    assert "67 % of the steady steps" in judged.headline
    assert judged.debiased is not None
    assert (judged.debiased.regime, judged.debiased.survives) == (COMPUTE, False)
    without = levers(overhead_bound=0.0)  # of the program without the profiler, which say nothing of the traced one
    assert debiased(LAUNCHING, measured, 0, without).survives is False
    step = findings(parts_ns=LAUNCHING, recording=measured)
    assert step_verdict(StepFindings(step, 0, 1, 100, 10**7), without).regime == OVERHEAD


def test_what_the_cpu_does_not_explain_of_a_measured_step_is_said_and_peers_are_where_there_are_any() -> None:
    measured = recording(50)._replace(method="measured", measured_step_ns=30, step_ns=100, rest_ns=20)
    alone, among = (verdict_of(parts_ns=LAUNCHING, recording=measured._replace(peers_ns=ns)).debiased for ns in (0, 5))
    assert alone.why.endswith("20 % of the steps is more than the CPU's idle time explains")
    assert "of which 25 % may be waiting for peers" in among.why


@pytest.mark.parametrize(
    ("kernels", "busy_ns", "confidence"), [(49, 4_999_999, "medium"), (50, 4_999_999, "high"), (49, 5_000_000, "high")]
)
def test_few_kernels_in_little_time_take_high_confidence_and_no_more(
    kernels: int, busy_ns: int, confidence: str
) -> None:
    judged = verdict_of(device={"kernel_count": kernels, "busy_ns": busy_ns})
    assert judged.confidence == confidence
    assert ("only 49 kernels in 5.00 ms of device time" in judged.confidence_why) is (confidence == "medium")
    one_doubt = verdict_of(device={"kernel_count": kernels, "busy_ns": busy_ns}, peaks_known=False)
    assert one_doubt.confidence == "medium"


def test_a_dependency_that_was_recorded_is_no_doubt() -> None:
    assert verdict_of(parts_ns=parts_of(device_wait=80, compute=20), waits_recorded=True).confidence == "high"


@pytest.mark.parametrize("known", [None, 0.0, 0.099])
def test_names_alone_are_not_enough_for_high_confidence(known: float | None) -> None:
    assert verdict_of(shapes_ratio=known).confidence == "medium"
    assert verdict_of(shapes_ratio=known, matmul_ratio=0.2).confidence == "high"
    assert verdict_of(shapes_ratio=0.5, work_ratio=known).confidence == "medium", "of other kernels, too"


@pytest.mark.parametrize(("known", "confidence"), [(0.1, "high"), (0.09, "medium"), (None, "medium")])
def test_without_products_names_alone_are_as_little(known: float | None, confidence: str) -> None:
    """Memory-bound kernels without products, of which nobody knows the bytes."""
    judged = verdict_of(parts_ns=parts_of(memory=90, python=10), matmul_ratio=0.0, shapes_ratio=None, work_ratio=known)
    assert (judged.regime, judged.confidence) == (MEMORY, confidence)
    waiting = verdict_of(parts_ns=LAUNCHING, matmul_ratio=0.0, shapes_ratio=None, work_ratio=known)
    assert waiting.confidence == "high"


def share_of_roof(bound: str, roof: float, below: float = 0.0, known_ns: int = 80) -> BoundShare:
    return BoundShare(bound, 10, 100, known_ns, roof, below, 0)


def test_a_bound_says_how_near_to_its_roof_its_kernels_come() -> None:
    judged = verdict_of(bounds=(share_of_roof("compute", 0.6, 0.3), share_of_roof("memory", 0.2, 0.9)))
    assert judged.headline.endswith("they reach 60 % of their roof, 30 % of their time below half of it).")
    assert "spends its time in matmuls, convolutions and attention (" in judged.headline
    evidence = facts(judged)
    assert (evidence["roof_ratio"], evidence["below_half_roof_ratio"]) == (0.6, 0.3)
    all_near = verdict_of(bounds=(share_of_roof("compute", 0.6),))
    assert all_near.headline.endswith("they reach 60 % of their roof).")
    named_only = verdict_of(bounds=(share_of_roof("compute", 0.6),), shapes_ratio=None)
    assert named_only.headline.endswith("by kernel names, since little of their work is known).")
    second = verdict_of(parts_ns=parts_of(python=50, memory=45), bounds=(share_of_roof("memory", 0.2),))
    assert (second.runner_up, facts(second)["roof_ratio"]) == (MEMORY, 0.2)


def test_kernels_beyond_their_roof_are_a_doubt_where_kernels_limit() -> None:
    beyond = replace(share_of_roof("compute", 0.5), roof_ratio=None)
    for parts, confidence in (
        (parts_of(compute=80, memory=20), "medium"),
        (parts_of(compute=20, memory=80), "medium"),
        (parts_of(compute=20, synchronization=80), "high"),
    ):
        assert verdict_of(parts_ns=parts, bounds=(beyond,)).confidence == confidence


def test_kernels_far_below_their_roof_are_not_called_limited_by_it() -> None:
    judged = verdict_of(bounds=(share_of_roof("compute", 0.036, 1.0),))
    assert judged.regime == COMPUTE
    assert "which reach little of its peak" in judged.headline
    memory = verdict_of(parts_ns=parts_of(memory=100), bounds=(share_of_roof("memory", 0.2, 0.87),))
    assert "far more slowly than the memory could" in memory.headline
    few = verdict_of(bounds=(replace(share_of_roof("compute", 0.036, 1.0), few_tiles_ns=51),))
    assert "too few tiles to fill the GPU" in few.headline
    half = verdict_of(bounds=(replace(share_of_roof("compute", 0.036, 1.0), few_tiles_ns=50),))
    assert "which reach little of its peak" in half.headline
    assert not any("something else" in why for why in few.confidence_why), "the headline knows what limits them"


@pytest.mark.parametrize(
    ("roof", "doubts", "confidence"),
    [(0.5, 0, "high"), (0.49, 0, "medium"), (0.49, 1, "medium"), (0.5, 1, "medium"), (0.49, 2, "medium")],
)
def test_kernels_below_half_of_their_roof_take_high_confidence_and_no_more(
    roof: float, doubts: int, confidence: str
) -> None:
    changes = dict(list({"flows_missing": True, "peaks_known": False}.items())[:doubts])
    judged = verdict_of(bounds=(share_of_roof("compute", roof, 1.0),), **changes)
    assert judged.confidence == confidence
    assert any("something else limits them more" in why for why in judged.confidence_why) is (roof < 0.5)
    unknown = verdict_of(bounds=(share_of_roof("compute", roof, known_ns=49),))
    assert unknown.confidence == "high"
    assert verdict_of(parts_ns=LAUNCHING, bounds=(share_of_roof("compute", roof),)).confidence == "high"


def test_a_roof_that_is_known_for_little_of_the_time_does_not_stand_for_the_rest() -> None:
    judged = verdict_of(bounds=(share_of_roof("compute", 0.036, 1.0, known_ns=49),))
    assert "roof" not in judged.headline
    assert "little" not in judged.headline
    assert "49 % of their time" in next(item.why for item in judged.evidence if item.metric == "roof_ratio")


def test_kernel_doubts_do_not_touch_an_overhead_verdict() -> None:
    assert verdict_of(parts_ns=LAUNCHING, shapes_ratio=None, peaks_known=False).confidence == "high"


@pytest.mark.parametrize(
    ("parts", "regime"),
    [
        (parts_of(compute=80, withheld=20), COMPUTE),
        (parts_of(compute=60, withheld=40), None),
        (parts_of(compute=75, python=10, withheld=15), COMPUTE),
        (parts_of(compute=70, python=12, withheld=18), COMPUTE),
        (parts_of(compute=55, python=20, withheld=25), None),
        (parts_of(python=70, withheld=20, compute=10), OVERHEAD),
        (parts_of(python=40, withheld=50, compute=10), None),
        (parts_of(withheld=100), None),
    ],
)
def test_idle_time_without_causes_that_could_turn_the_verdict(parts: dict[str, int], regime: str | None) -> None:
    """Idle time may be due to the CPU or to peers; there is no verdict where these would lead to different ones."""
    why = "skewed idle 60 %: clocks disagree"
    judged = verdict_of(parts_ns=parts, causes_withheld=why, doubted_checks=(why,))
    assert (judged.status, judged.regime) == (("ok", regime) if regime else ("insufficient", None))
    assert why in judged.confidence_why
    if regime is None:
        assert judged.headline.startswith(
            f"The device idles for {parts['withheld']} % of the window, and why is not known"
        )
        assert judged.headline.endswith("(skewed idle 60 %).")
    step = on_step(findings(parts_ns=parts, causes_withheld=why))
    assert step.regime == regime
    assert ("skewed idle 60 %" in (step.headline or "")) == (regime is None)


def test_no_verdict_rests_on_times_that_the_trace_does_not_support() -> None:
    why = "missing activities 62 %: the device may have been busier"
    judged = verdict_of(parts_withheld=why)
    assert (judged.status, judged.regime) == ("insufficient", None)
    assert (judged.confidence, judged.confidence_why, judged.parts_ns, judged.shares) == ("low", (why,), {}, None)
    unknown = "What the device did in the window is not known: the trace does not support it"
    assert judged.headline == f"{unknown} (missing activities 62 %)."
    assert facts(judged)["idle_ns"] is None
    step = on_step(findings(parts_withheld=why))
    assert (step.regime, step.confidence) == (None, "low")
    assert "missing activities 62 %" in (step.headline or "")


@pytest.mark.parametrize(
    ("kernels", "busy_us", "parts", "status"),
    [
        (9, 999, parts_of(compute=100), "insufficient"),
        (10, 999, parts_of(compute=100), "ok"),
        (9, 1_000, parts_of(compute=100), "ok"),
        (5, 500_000, parts_of(compute=100), "ok"),
        (100, 5_000, parts_of(compute=49, unlinked=20, unexplained=20, untraced=11), "insufficient"),
        (100, 5_000, parts_of(compute=50, unlinked=20, unexplained=20, untraced=10), "ok"),
        (100, 5_000, parts_of(compute=49, other=51), "insufficient"),
        (100, 5_000, parts_of(compute=51, other=49), "ok"),
        (100, 5_000, parts_of(compute=27, memory=26, unexplained=47), "insufficient"),
        # Waiting wins over more kernel time, whatever limits that, but idle time may be that of peers.
        (100, 5_000, parts_of(python=45, other=55), "ok"),
        (100, 5_000, parts_of(python=30, other=70), "insufficient"),
        (100, 5_000, parts_of(compute=40, python=25, unlinked=35), "insufficient"),
        (100, 5_000, parts_of(compute=40, python=31, unlinked=29), "ok"),
        # Work from before the recording is explained, though in no group.
        (100, 5_000, parts_of(compute=30, earlier_work=70), "ok"),
        (100, 5_000, parts_of(other=100), "insufficient"),
    ],
)
def test_what_cannot_be_judged(kernels: int, busy_us: int, parts: dict[str, int], status: str) -> None:
    judged = verdict_of({"kernel_count": kernels, "busy_ns": busy_us * 1_000}, parts_ns=parts)
    assert judged.status == status
    assert (judged.regime is None) == (status == "insufficient")
    assert judged.confidence == "low" or status == "ok"


def test_kernels_of_unknown_limit_are_named_where_they_are_most() -> None:
    unknown = verdict_of(parts_ns=parts_of(memory=3, other=97)).headline
    assert unknown.startswith("For 97 % of the window it is not known what limits the kernels")


@pytest.mark.parametrize(
    ("parts", "is_the_device"),
    [
        (parts_of(other=100), True),
        (parts_of(python=5, other=95), True),
        (parts_of(python=30, other=70), True),
        (parts_of(memory=49, other=51), True),
        (parts_of(unexplained=45, other=55), False),
        (parts_of(python=20, unlinked=30, other=50), False),
    ],
)
def test_where_only_the_kind_of_kernels_is_open_they_are_said_to_limit_more_than_the_cpu(
    parts: dict[str, int], is_the_device: bool
) -> None:
    assert verdict_of(parts_ns=parts).headline.endswith("they limit more than the CPU.") == is_the_device
    assert "no known cause" in verdict_of(parts_ns=parts_of(memory=3, other=10, unlinked=87)).headline


@given(
    st.dictionaries(st.sampled_from([part for part in PARTS if part != "withheld"]), st.integers(1, 1_000), min_size=1)
)
def test_no_regime_is_named_beside_more_that_is_unknown(parts: dict[str, int]) -> None:
    """Unknown kernels may be compute or memory, unknown waiting the host's or that of peers: none may turn what is named."""
    judged = verdict_of(parts_ns=parts_of() | parts)
    idle = sum(ns for part, ns in parts.items() if part in COUNTED_NOWHERE and part != "other")
    other, known = parts.get("other", 0), {part: ns for part, ns in parts.items() if part not in COUNTED_NOWHERE}
    judgement = judge(parts_of() | parts)
    turned = {
        alone.regime
        for kind in ("compute", "memory")
        for waiting in ("python", "device-wait")
        if (
            alone := judge(
                parts_of() | known | {kind: known.get(kind, 0) + other, waiting: known.get(waiting, 0) + idle}
            )
        )
    }
    if judgement is None:
        assert judged.regime is None
    elif idle + other <= judgement.groups_ns[judgement.regime] or turned == {judgement.regime}:
        assert judged.regime == judgement.regime
    else:
        assert (judged.status, judged.regime) == ("insufficient", None)


def test_what_is_known_is_named_beside_what_is_not() -> None:
    judged = verdict_of(parts_ns=parts_of(compute=27, memory=26, unexplained=47))
    assert "47 % of the window has no known cause" in judged.headline
    assert "more than what the rest names as the limit (compute-bound kernels: 27 %)" in judged.headline


def test_evidence_is_in_the_window_and_names_the_cause_otherwise_found() -> None:
    cold = verdict_of(parts_ns=parts_of(compilation=80, python=10, compute=10), cold_gap_ns=70)
    assert (cold.cause, facts(cold)["cause_without_cold_start"]) == ("cold-start", "compilation")
    evidence = facts(verdict_of(parts_ns=parts_of(python=30, memory=70)))
    assert evidence["busy_ratio"] == pytest.approx(0.7)
    assert (evidence["idle_ns"], evidence["memory-bandwidth_ratio"], evidence["overhead_ratio"]) == (30, 0.7, 0.3)
    assert (evidence["launches_per_step"], evidence["launch_latency_bound_ns"]) == (20.0, 7_000)
    assert evidence["steps_from"] == "ProfilerStep"


@given(st.dictionaries(st.sampled_from(list(PARTS)), st.integers(0, 10**12)))
def test_shares_sum_to_one(parts: dict[str, int]) -> None:
    judged = shares(parts)
    if judged is None:
        assert not sum(parts.values())
    else:
        assert sum(asdict(judged).values()) == pytest.approx(1)
        work = sum(ns for part, ns in parts.items() if part in ("earlier-work", "time-slice", "unrecorded-work"))
        idle = sum(ns for part, ns in parts.items() if part in IDLE_CAUSES) - work
        assert (judged.idle, judged.unrecorded) == pytest.approx(
            (idle / sum(parts.values()), work / sum(parts.values()))
        )


def test_without_regime_says_why() -> None:
    judged = without_regime("no-gpu-activity", "Nothing ran.")
    assert (judged.status, judged.headline) == ("no-gpu-activity", "Nothing ran.")
    assert (judged.regime, judged.shares) == (None, None)


# The whole way


@pytest.mark.slow
def test_a_cold_start_in_a_trace() -> None:
    """Check first uses of kernels that come after 2 ms of silence of the host, where later uses follow at once."""
    first = [launched(f"k{n}", 2_100 * n, 2_100 * n + 10, 30, n + 1) for n in range(1, 9)]
    again = [launched(f"k{n}", 20_000 + 100 * n, 20_010 + 100 * n, 90, n + 50) for n in range(1, 9)]
    assert analysed(first, again).verdict.cause == "cold-start"
    warm = [launched("k1", 2_100 * n, 2_100 * n + 10, 30, n + 1) for n in range(1, 9)]
    assert analysed(warm, again).verdict.cause == "host-unknown"


@pytest.mark.slow
def test_the_judged_device_is_the_busiest_or_the_one_asked_for() -> None:
    events = [[launched("ampere_sgemm_128x64_tn", 200 * n, 200 * n + 10, length, 100 * d + n, device=d) for n in range(1, 12)]
              for d, length in ((0, 20), (1, 150))]  # fmt: skip
    assert analysed(events).verdict.device == 1
    assert analysed(events, device=0).verdict.device == 0
    assert analysed(events).verdict.regime == COMPUTE
    assert analysed(events, device="0").verdict.regime == OVERHEAD


def test_few_kernels_that_fill_the_time_are_enough() -> None:
    judged = analysed([kernel("ampere_sgemm_128x64_tn", 100_000 * n, 100_000) for n in range(5)]).verdict
    assert (judged.status, judged.regime) == ("ok", COMPUTE)


OPERATORS = trace_bytes([op("aten::mm", 10 * n, 5) for n in range(9)])


@pytest.mark.slow
@pytest.mark.parametrize("lost", [10, 200])
def test_what_breaks_off_or_holds_nothing_is_not_called_a_run_on_the_cpu(lost: int) -> None:
    judged = analyze(OPERATORS[:-lost]).verdict
    assert judged.status == "no-gpu-activity"
    assert "is truncated" in judged.headline
    assert "CPU-only" not in judged.headline


# Findings that come from the whole trace


def test_idle_time_is_reported_in_flop() -> None:
    """90 us idle between kernels of 10 us, on a device of 312 TFLOP/s in bf16."""
    report = analysed([launched("ampere_fp16_s16816gemm", 100 * n, 100 * n + 90, 10, n + 1) for n in range(12)])
    idle = sum(report.verdict.parts_ns[cause] for cause in IDLE_CAUSES)
    assert facts(report.verdict)["idle_flop"] == pytest.approx(idle / 1e9 * 312e12)


@pytest.mark.slow
def test_a_full_queue_tells_a_dependency_from_a_slow_cpu() -> None:
    """14 launches at once, then one kernel each 100 us: the CPU had done its part."""
    early = [[launch(n, 1, n), kernel("ampere_fp16_s16816gemm", 100 * n, 20, correlation=n)] for n in range(1, 15)]
    report = analysed(early, kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 0, 20))
    assert (report.verdict.regime, report.verdict.cause) == (COMMUNICATION, "dependency")
    assert "not for the CPU" in report.verdict.headline
    assert facts(report.verdict)["queue_depth_while_waiting"] == pytest.approx(7, abs=1)
    assert "queue_depth_while_waiting" not in facts(analysed(kernel("k", 0, 5_000)).verdict)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("events", "header", "code"),
    [
        ([kernel("a", 0, 2_000, context=1), kernel("b", 3_000, 2_000, context=2)], {}, "shared-device"),
        ([kernel("a", 0, 2_000)], {"distributedInfo": {"rank": 0, "world_size": 8}}, "more-ranks-than-devices"),
        ([kernel("a", 0, 2_000)], {"distributedInfo": {"rank": 0, "world_size": 1}}, None),
        (
            [kernel("a", 0, 2_000)],
            {"distributedInfo": {"rank": 0, "world_size": 4}, "deviceProperties": [A100, A100 | {"id": 1}]},
            None,
        ),
        ([kernel("a", 0, 2_000), kernel("b", 0, 9, device=1, context=2)], {}, None),
    ],
)
def test_a_device_that_others_may_use_is_named(events: list[Any], header: dict[str, Any], code: str | None) -> None:
    report = analyze(trace_bytes(events, **({"deviceProperties": [A100]} | header)))
    judged = {note.code for note in report.notes} & {"shared-device", "more-ranks-than-devices"}
    assert judged == ({code} if code else set())


@pytest.mark.slow
def test_outliers_that_hold_most_of_the_time_are_reported() -> None:
    def step(number: int, start: int, length: int) -> list[Any]:
        work = launched("ampere_fp16_s16816gemm", start + 5, start + 10, length - 20, number + 1)
        return [annotation(f"ProfilerStep#{number}", start, length - 5), work]

    quick = [step(n, 100 * n, 100) for n in range(10)]
    assert not any("outside of the window" in why for why in analysed(quick).verdict.confidence_why)
    slow = [step(10 + n, 1_000 + 1_000 * n, 1_000) for n in range(3)]
    (why,) = (why for why in analysed(quick, slow).verdict.confidence_why if "outside of the window" in why)
    assert "81 % of the device time" in why


TASK = {"ph": "X", "cat": "toplevel", "name": "task", "pid": 1, "tid": 1, "ts": 1, "dur": 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("events", "status", "says"),
    [
        ([op("aten::conv2d", 0, 50), op("aten::_mps_convolution", 5, 40)], "no-gpu-activity", "Apple's GPU (MPS)"),
        ([op("aten::conv2d", 0, 50)], "cpu-run", ""),
        ([TASK], "insufficient", "another tool"),
        ([TASK, TASK | {"cat": "cpu_op"}], "cpu-run", ""),
    ],
)
def test_traces_of_other_gpus_and_tools_are_no_runs_on_the_cpu(events: list[Any], status: str, says: str) -> None:
    judged = analyze(json.dumps(events).encode()).verdict
    assert (judged.status, judged.regime, says in judged.headline) == (status, None, True)


@given(
    st.dictionaries(st.sampled_from([part for part in PARTS if part != "withheld"]), st.integers(1, 10**9), min_size=1)
)
def test_a_share_is_that_of_what_it_names(parts: dict[str, int]) -> None:
    """The noun of a regime is overhead or its kernels, or lists parts that have the regime's share, as shown."""
    nouns = {"communication": "communication", "copies": "copy", "device waits": "device-wait"}
    window = sum(parts.values())
    for regime, ns in groups_of(parts).items():
        noun = regime_noun(regime, parts)
        named = [nouns[one] for one in re.split(", | and ", noun) if one in nouns]
        assert (regime == "communication-bound") == bool(named)
        if named:
            assert percent(sum(parts.get(part, 0) for part in named) / window) == percent(ns / window)


def test_a_share_of_communication_names_copies_and_waits() -> None:
    """Communication takes 54 % of the table, copies 6 %, waits 0.04 %: the headline's 60 % are communication and copies."""
    judged = verdict_of(parts_ns=parts_of(communication=5_400, copy=600, compute=3_996, **{"device-wait": 4}))
    assert "(communication and copies: 60 % of" in judged.headline
    alone = verdict_of(parts_ns=parts_of(communication=5_400, copy=1, compute=4_599))
    assert "(communication: 54 % of" in alone.headline


def test_copies_are_no_communication() -> None:
    copying = verdict_of(parts_ns=parts_of(copy=60, compute=40))
    assert (copying.regime, copying.cause) == ("communication-bound", "copies")
    assert copying.headline.startswith(
        "Copy-bound: copies between host and device run while nothing else does (copies: 60 %"
    )
    assert phrasing.verdict_label(copying) == "Copy-bound"
    assert phrasing.headline(copying).startswith("Copies between host and device run")
    assert {"copies_ratio"} == {fact.metric for fact in copying.evidence if "copy-bound" in fact.why}
    both = verdict_of(parts_ns=parts_of(copy=40, communication=20, compute=40))
    assert {"communication_ratio"} == {fact.metric for fact in both.evidence if "communication-bound" in fact.why}
    close = verdict_of(parts_ns=parts_of(copy=45, python=55))
    assert "in balance with" in close.headline


@pytest.mark.parametrize(("parts", "says"), [
    # 60 of python, 40 of compute in two steps: overhead leads down to 0.6 of compute, 24 of 64 in the window: 32 a step.
    ({"python": 60, "compute": 40}, "if a step takes under about 31.7 ns without the profiler, it is compute-bound"),
    ({"python": 90, "compute": 10}, None),
    ({"compute": 90, "python": 10}, None),
    ({"synchronization": 60, "compute": 40}, None),
])  # fmt: skip
def test_an_overhead_verdict_says_below_which_step_it_does_not_hold(parts: dict[str, int], says: str | None) -> None:
    why = [why for why in verdict_of(parts_ns=parts_of(**parts)).confidence_why if "without the profiler" in why]
    assert len(why) == (says is not None)
    assert says is None or why[0].startswith(says)
    measured = recording(0)._replace(method="measured", measured_step_ns=50, step_ns=50)
    known = verdict_of(parts_ns=parts_of(**parts), recording=measured).confidence_why
    assert not any("without the profiler" in why for why in known), "it is known"
    assert "without the profiler" not in verdict_of(parts_ns=parts_of(**parts), recording=measured).headline, (
        "all of it"
    )
    alone = verdict_of(parts_ns=parts_of(**parts), window=Window("whole", ((0, 100),), ())).confidence_why
    assert not any("a step" in why or "--measured-step-ms" in why for why in alone), "no step was recorded"
    assert any("if the window takes under about 63.4 ns" in why for why in alone) is (says is not None)


def test_what_the_host_hides_is_no_limit_while_the_host_takes_longer() -> None:
    """Where the host still saves most in the replay of the faster program, no step is named; else that of its shares."""
    rows = (Lever("host", 0.6, 0.5, 6.0, 0.06), Lever("compute", 0.4, 0.4, 4.0, 0.04))
    by_replay = levers(overhead_bound=0.1, compute_bound=0.1)._replace(rows=rows)
    for then, says in ((levers(compute_bound=0.0), False), (levers(overhead_bound=0.0), True)):
        known = by_replay._replace(measured=lambda findings, step_ns, then=then: then)
        judged = verdict(findings(parts_ns=parts_of(python=40, synchronization=20, compute=40)), known)
        assert judged.regime == OVERHEAD
        assert any("if a step takes under" in why for why in judged.confidence_why) is says


@pytest.mark.parametrize(("unknown", "says"), [(20, False), (21, True)])
def test_unexplained_time_is_in_the_headline_from_a_fifth_on(unknown: int, says: bool) -> None:
    assert (
        "cannot be explained" in verdict_of(parts_ns=parts_of(compute=100 - unknown, unlinked=unknown)).headline
    ) is says


@pytest.mark.parametrize(("saves", "says"), [(0.3, False), (0.09, True)])
def test_a_balance_says_where_no_resource_alone_saves_a_tenth(saves: float, says: bool) -> None:
    rows = (Lever("host", 0.5, 0.5, 100 * saves, saves), Lever("compute", 0.5, 0.5, 95 * saves, 0.95 * saves))
    by_replay = levers(overhead_bound=2 * saves, compute_bound=1.9 * saves)._replace(rows=rows)
    headline = verdict(findings(parts_ns=parts_of(python=50, compute=50)), by_replay).headline
    assert ("in balance with" in headline, "no resource alone saves a tenth" in headline) == (True, says)


def test_a_step_of_little_work_or_of_which_little_is_known_is_not_sure() -> None:
    assert on_step(findings()).confidence == "high"
    assert step_verdict(StepFindings(findings(), 0, 1, 9, 999_999)).confidence == "low"
    assert on_step(findings(parts_ns=parts_of(compute=49, other=51))).confidence == "low"


def test_a_step_has_the_cause_and_the_words_of_its_own() -> None:
    loading = parts_of(**{"compute": 40, "data-loading": 25, "synchronization": 35})
    assert on_step(findings(parts_ns=loading, loading_behind_waits_ns=35)).cause == "data-loading"
    assert "Recording" not in (on_step(findings(parts_ns=LAUNCHING, recording=recording(0))).headline or "")
    perhaps = on_step(findings(parts_ns=LAUNCHING, recording=recording(70, 0)))
    assert (perhaps.headline or "").endswith("without that it may be compute-bound.")


def test_levers_are_for_steps_of_the_judged_device_and_kind() -> None:
    """The step holds 70 of compute and 30 of idle time, and by the levers the host limits it."""
    parts, by_replay = parts_of(compute=70, python=30), levers(compute_bound=0.0)
    judged = findings(parts_ns=parts, window=replace(FINDINGS.window, step_kind="decode"))
    other = judged._replace(window=Window("step", ((0, 100),), (9,)))
    steps = [judged, findings({"index": 1}, parts_ns=parts), other, findings(parts_ns={})]
    rows = step_verdicts([StepFindings(of, 0, n, 100, 10**7) for n, of in enumerate(steps)], judged, by_replay)
    assert rows.get_column("regime").to_list() == [OVERHEAD, COMPUTE, COMPUTE], (
        "nothing is said of a step without parts"
    )
