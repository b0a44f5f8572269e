"""Test jobs of known truth: matches, clocks, waits, stragglers, roles and problems, from summaries of ranks."""

import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings, strategies as st
from made_ranks import MS, TRANSFER, Made, document, job, summaries, summary, write_traces
from msgspec.structs import replace
from tiers import examples, is_thorough

from trace_analyzer.compare import comparison, decomposition, sides
from trace_analyzer.compare.judgement import roles
from trace_analyzer.documents.ranks import problem_lines
from trace_analyzer.errors import InputError, UsageError
from trace_analyzer.ingest.trace import Header, rank_in_name, rank_of
from trace_analyzer.json_types import result_schema
from trace_analyzer.pipeline import analyze
from trace_analyzer.ranks import lateness
from trace_analyzer.ranks.files import files_of, numbered
from trace_analyzer.ranks.job import JobReport, analyze_ranks, judge
from trace_analyzer.ranks.joining import Problem, joined
from trace_analyzer.ranks.matching import coded
from trace_analyzer.ranks.recording import exposed_pieces, group_of, summarize
from trace_analyzer.ranks.stragglers import imbalance, sentence, slowdown, with_problems
from trace_analyzer.ranks.summary import (
    JOINED,
    STEPS,
    WORK,
    RankSummary,
    frames_of,
    from_bytes,
    ranks_of,
    runs_of,
    to_bytes,
)
from trace_analyzer.ranks.waits import UNSPLIT, _Grid, _uncharged
from trace_analyzer.render.html import rank_map
from trace_analyzer.schema import typed
from trace_analyzer.units import duration

pytestmark = pytest.mark.slow

CLOCKS: dict[str, Any] = {
    "offsets": {"host1": 3_000_000, "host3": -7_123_456, "host5": 2_500_000_000},
    "drifts": {"host1": 1e-5, "host2": -2e-5},
}


def everyone(size: int) -> list[list[int]]:
    return [list(range(size))]


def data_parallel(size: int, late: Callable[[int, int], int], **clocks: Any) -> Made:
    """Build a job of ranks that work 20 ms, meet, work 10 ms and meet again, ten times."""
    program = [("work", 20 * MS), ("meet", everyone(size)), ("work", 10 * MS), ("meet", everyone(size))]
    return job(size, 10, program, late, **clocks)


def late_rank(rank: int, delay: int = 60 * MS, but: int = 3) -> Callable[[int, int], int]:
    return lambda r, step: delay if r == rank and step != but else 0


def waits(report: JobReport) -> dict[int | None, int | None]:
    return {rank.rank: rank.wait_ns for rank in report.ranks}


def changed(made: Made, columns: Callable[[int], Any], **recorded: bool) -> list[bytes]:
    """Return the summaries of a job, with other columns of the collectives of each rank."""
    own = [summary(made, rank, **recorded) for rank in range(made.size)]
    return [
        to_bytes(replace(one, collectives=one.collectives.with_columns(columns(rank)))) for rank, one in enumerate(own)
    ]


def first_is(kind: str) -> pl.Expr:
    """Return the kinds of collectives, of which the first of each step is another."""
    return pl.when(pl.col("ordinal") == 0).then(pl.lit(kind)).otherwise("kind").alias("kind")


RECORDED: list[tuple[dict[str, bool], str]] = [
    ({}, "seq"), ({"seq": False}, "order"), ({"seq": False, "grouped": False}, "ends"), ({"hosts": False}, "seq"),
]  # fmt: skip


@pytest.mark.parametrize(("size", "recorded", "by"), [(8, *case) for case in RECORDED] + [(64, *RECORDED[0])])
def test_a_planted_straggler_is_named_whatever_was_recorded(size: int, recorded: dict[str, bool], by: str) -> None:
    made = data_parallel(size, late_rank(5), **CLOCKS)
    report = judge(summaries(made, **recorded))
    assert report.collectives.by == {by: 20 * size}
    (straggler,) = report.stragglers
    assert (straggler.rank, straggler.kind, straggler.late_steps, straggler.steps) == (5, "persistent", 9, 10)
    assert straggler.late_ns == pytest.approx(60 * MS, abs=1_000)
    assert 0.99 * 60 * MS <= straggler.gain_at_least_ns <= 60 * MS + 1_000
    assert report.job.sentence.startswith("Rank 5 ")
    assert "9 of 10 steps, by 60" in report.job.sentence
    for rank, wait in waits(report).items():
        assert wait == pytest.approx(made.waits[rank or 0], rel=0.01, abs=1_000)


def test_collectives_of_a_graph_are_matched_by_ends_beside_others() -> None:
    """Kernels launched by a CUDA graph record no group, no sequence number and no message size."""
    made = data_parallel(16, late_rank(5), **CLOCKS)
    in_graph = pl.int_range(pl.len()) % 2 == 1
    unsaid = [pl.when(~in_graph).then(name).alias(name) for name in ("group", "seq", "dtype", "elements", "group_size")]
    report = judge(changed(made, lambda rank: unsaid))
    assert report.collectives.by == {"ends": 160, "seq": 160}
    (straggler,) = report.stragglers
    assert (straggler.rank, straggler.kind, straggler.late_steps) == (5, "persistent", 9)
    for rank, wait in waits(report).items():
        assert wait == pytest.approx(made.waits[rank or 0], rel=0.01, abs=1_000)


def test_clocks_are_found_within_their_residual() -> None:
    made = data_parallel(64, late_rank(5), **CLOCKS)
    clocks = {clock.host: clock for clock in judge(summaries(made)).clocks}
    first_end = min(end for _, _, group, _, end in made.ran[0] if group)
    for host, clock in clocks.items():
        drift = made.drifts.get(host, 0.0)
        assert clock.residual_ns <= 10
        assert clock.drift_ppm == pytest.approx(drift * 1e6, abs=0.05)
        # The origin is the first end on any clock, which the earliest clock shows 7 ms early.
        expected = made.offsets.get(host, 0) + drift * first_end
        assert clock.offset_ns == pytest.approx(expected, abs=abs(drift) * 10 * MS + 10)


@pytest.mark.parametrize(("most_ns", "is_shared"), [(300_000, False), (2_000_000, True)])
def test_jitter_is_the_residual_and_nothing_is_claimed_below_it(most_ns: int, is_shared: bool) -> None:
    made = data_parallel(16, lambda rank, step: 0)
    noise = np.random.default_rng(7)
    report = judge(changed(made, lambda rank: pl.col("duration_ns") + pl.Series(noise.integers(-most_ns, most_ns, 20))))
    assert 0.6 * most_ns < report.collectives.residual_ns < 1.4 * most_ns
    assert any("time-slicing" in note for note in report.notes) == is_shared
    assert not report.stragglers
    assert "No rank is late by more than" in report.job.sentence


def test_a_straggler_of_one_group_is_not_charged_to_those_who_waited_for_it() -> None:
    tensor = [[4 * i + j for j in range(4)] for i in range(4)]
    data = [[4 * i + j for i in range(4)] for j in range(4)]
    program = [("work", 20 * MS), ("meet", tensor), ("work", 10 * MS), ("meet", data)]
    report = judge(summaries(job(16, 10, program, late_rank(5))))
    assert [(s.rank, s.kind, s.late_ns, s.late_steps) for s in report.stragglers] == [(5, "persistent", 60 * MS, 9)]
    assert [rank.late_ns for rank in report.ranks] == [540 * MS if rank == 5 else 0 for rank in range(16)]
    assert sorted(group.ranks for group in report.groups) == sorted(map(tuple, tensor + data))


def test_several_stragglers_once_and_wandering() -> None:
    delays = {
        2: lambda step: 40 * MS,
        7: lambda step: 25 * MS if step == 4 else 0,
        11: lambda step: 30 * MS * (step % 3 == 0),
    }
    made = data_parallel(16, lambda rank, step: delays[rank](step) if rank in delays else 0)
    late = {s.rank: s for s in judge(summaries(made)).stragglers}
    assert {rank: (s.kind, s.late_ns, s.late_steps) for rank, s in late.items()} == {
        2: ("persistent", 40 * MS, 10), 7: ("once", 25 * MS, 1), 11: ("wandering", 30 * MS, 4),
    }  # fmt: skip
    # As the others come in time, each gains what it alone costs then.
    assert {rank: s.gain_at_least_ns for rank, s in late.items()} == {2: 40 * MS, 7: 25 * MS, 11: 30 * MS}


def jittered(size: int, seed: int, late: Callable[[int, int], int] = lambda rank, step: 0, **clocks: Any) -> Made:
    """Build a job whose ranks differ by 2 % of their work in each step, by a distribution that the seed picks."""
    noise = np.random.default_rng(seed)
    draws = [noise.normal(1, 0.02, (size, 10)), noise.exponential(0.02, (size, 10)), noise.uniform(0, 0.05, (size, 10))]
    own = draws[seed % 3] * 20 * MS
    return data_parallel(size, lambda rank, step: max(0, int(own[rank][step])) + late(rank, step), **clocks)


@pytest.mark.parametrize(("unit", "says"), [("step", "takes 40 % of a step;"), ("window", "takes 40 % of the window;")])
def test_waits_of_a_job_without_steps_are_of_its_window(unit: str, says: str) -> None:
    rest: dict[str, Any] = {"seen": 2, "floor_ns": 2.0, "regime": None, "step_ns": 1.0, "waited": None}
    assert says in sentence([], matched=4, waiting_ratio=0.4, unit=unit, **rest)
    rest |= {"seen": 1, "regime": "compute-bound"}
    alone = with_problems(sentence([], matched=0, waiting_ratio=None, unit=unit, **rest), [], 1)
    assert alone.startswith("1 rank alone: ")
    assert alone.endswith("; it is compute-bound.")


def test_jitter_names_no_rank() -> None:
    named = [judge(summaries(jittered(size, seed))).stragglers for size in (8, 32) for seed in range(12)]
    assert sum(map(bool, named)) <= 1


@pytest.mark.parametrize("spread", ["normal", "exponential"])
@pytest.mark.parametrize(("size", "steps"), [(2, 1), (2, 3), (8, 2)])
def test_few_ranks_and_steps_do_not_tell_jitter(size: int, steps: int, spread: str) -> None:
    """Check false alarms within what chance adds to 5 % (three standard deviations), and planted stragglers."""
    noise, jobs = np.random.default_rng(100 * size + steps), 150 if is_thorough() else 50
    named = Counter[str]()
    planted = {"none": 0, "once": [0], "persistent": range(steps)}
    for start in getattr(noise, spread)(size=(jobs, size, steps)):
        for name, at in planted.items():
            delays = start + 500 * (np.isin(np.arange(steps), at) & (np.arange(size) == 1)[:, None]) * (name != "none")
            late = np.maximum(0, delays - np.sort(delays, axis=0)[(size - 1) // 2]) * MS
            rows = [(rank, step, round(ns), 2, 1) for (rank, step), ns in np.ndenumerate(late)]
            own = pl.DataFrame(rows, schema=["rank", "step", "own_late_ns", "split", "led"], orient="row")
            found = lateness.late_ranks(own, pl.DataFrame(), 0.0)[0].get_column("rank").to_list()
            named[name] += bool(found) if name == "none" else 1 in found
    assert named["none"] <= jobs * (0.05 + 3 * (0.05 * 0.95 / jobs) ** 0.5)
    if steps >= 3:
        assert named["once"] == named["persistent"] == jobs


def test_collectives_outside_of_steps_are_no_step() -> None:
    steps = [*range(8), None]
    rows = [(rank, step, 400 * MS * (rank == 1 and step is not None), 2, 1) for rank in range(8) for step in steps]
    own = pl.DataFrame(rows, schema=["rank", "step", "own_late_ns", "split", "led"], orient="row")
    late, _ = lateness.late_ranks(own, pl.DataFrame(), 0.0)
    assert late.select("rank", "late_steps", "steps").rows() == [(1, 8, 8)]


@pytest.mark.parametrize(
    ("size", "late", "kinds"),
    [
        (64, {3: range(10), 40: range(10)}, {3: "persistent", 40: "persistent"}),
        (64, {9: [4]}, {9: "once"}),
        (64, {9: [4], 11: range(10)}, {9: "once", 11: "persistent"}),
    ],
)
def test_stragglers_alone_are_named_above_jitter(
    size: int, late: dict[int, Sequence[int]], kinds: dict[int, str]
) -> None:
    made = jittered(size, 1, lambda rank, step: 60 * MS * (step in late.get(rank, ())), **CLOCKS)
    found = judge(summaries(made)).stragglers
    assert {late.rank: late.kind for late in found} == kinds
    assert all((late.gain_at_least_ns or 0) > 40 * MS for late in found)


def test_a_collective_that_held_all_ranks_but_one_is_split_whatever_its_kind() -> None:
    made = data_parallel(16, lambda rank, step: 60 * MS * (rank == 5 and step == 4), **CLOCKS)
    report = judge(changed(made, lambda rank: first_is("broadcast"), seq=False))
    (late,) = report.stragglers
    assert (late.rank, late.kind, late.late_ns) == (5, "once", pytest.approx(60 * MS, abs=1_000))
    assert waits(report)[0] == pytest.approx(60 * MS, abs=1_000)
    assert not report.collectives.unsplit


def test_times_of_ranks_are_of_a_step() -> None:
    report = judge(summaries(data_parallel(8, late_rank(5), **CLOCKS)))
    means = [rank.of_step for rank in report.ranks if rank.of_step]
    exposed = sum(of.exposed_ns for of in means) / len(report.ranks)
    assert exposed == pytest.approx((report.job.waiting_ns or 0) + (report.job.transfer_ns or 0))
    late = report.stragglers[0]
    assert means[5].late_ns == pytest.approx(late.late_ns * late.late_steps / late.steps)
    assert all(of.wait_ns + of.transfer_ns <= (rank.step_ns or 0) for rank, of in zip(report.ranks, means, strict=True))
    assert all(duration(of.wait_ns) in report.summary() for of in means)


def test_what_is_not_split_is_a_line_with_its_reason() -> None:
    """A broadcast whose root leaves early holds nobody; a collective of one rank has no peer."""
    made = data_parallel(4, lambda rank, step: 0)
    contents = []
    for rank in range(4):
        own = summary(made, rank)
        rows = own.collectives.with_columns(
            first_is("broadcast"),
            (pl.col("duration_ns") - MS * (rank == 0) * (pl.col("ordinal") == 0).cast(int)).alias("duration_ns"),
            pl.when((pl.col("seq") == 20) & (pl.lit(rank) == 0)).then(99).otherwise("seq").alias("seq"),
        )
        contents.append(to_bytes(replace(own, collectives=rows[:-1] if rank == 3 else rows)))
    matches = judge(contents).collectives
    assert {item.reason: (item.collectives, item.total_ns) for item in matches.unsplit} == {
        UNSPLIT[2]: (40, 10 * (4 * TRANSFER - MS)), UNSPLIT[4]: (1, TRANSFER),
    }  # fmt: skip
    assert matches.total_ns == 79 * TRANSFER - 10 * MS
    assert "In neither waiting nor transfer: 72 ms of 148 ms" in " ".join(judge(contents).summary().split())


def jobs(folder: Path, size: int, steps: int, program: list[tuple[str, Any]], grown: Callable[[int], int]) -> list[Any]:
    """Return the profiles of a job before and after ranks do more work."""
    for name, times in (("before", 0), ("after", 1)):
        (folder / name).mkdir()
        write_traces(job(size, steps, program, lambda rank, step, times=times: times * grown(rank)), folder / name)
    return [sides.profile_side(folder / name, analyze) for name in ("before", "after")]


def test_two_jobs_are_compared_by_rank(tmp_path: Path) -> None:
    """The rank whose own work grew is named; the others wait for it. Steps of the job are the observations."""
    program = [("work", 20 * MS), ("meet", everyone(4))]
    before, after = jobs(tmp_path, 4, 6, program, lambda rank: 5 * MS * (rank == 2))
    result = decomposition.compare(before, after)
    first, *others = result.ranks
    assert (first.rank, first.own_work_ns, first.communication_ns) == (2, 5 * MS, 0)
    assert {(item.own_work_ns, item.communication_ns) for item in others} == {(0, 5 * MS)}
    for item in result.ranks:
        change = item.after_ns - item.before_ns
        assert item.own_work_ns + item.communication_ns + item.idle_ns == pytest.approx(change)
    assert result.difference_ns == pytest.approx(5 * MS)
    assert len(before.observations()) == 5, "not 4 ranks, which wait for each other"
    assert "by 0.00 ms a step in the median, and by +5.0 ms on rank 2" in " ".join(result.summary().split())
    assert sides.profile_from(json.loads(sides.baseline_json(before))).units.equals(before.units)  # type: ignore[union-attr]
    assert not decomposition.compare(before, before).difference_ns


@pytest.mark.slow
def test_jobs_are_compared_by_role(tmp_path: Path) -> None:
    """Ranks 3 to 5 make a call more. Ranks 0 to 2 take 3 ms more, as their role does; rank 4 alone takes 5 ms more."""
    program = [("work", 20 * MS), ("work on", ([3, 4, 5], 10 * MS)), ("meet", everyone(6))]
    result = decomposition.compare(
        *jobs(tmp_path, 6, 3, program, lambda rank: 3 * MS * (rank < 3) + 5 * MS * (rank == 4))
    )
    assert {item.rank: item.role for item in result.ranks} == {rank: "AB"[rank // 3] for rank in range(6)}
    assert [(role, ranks, means[2]) for role, ranks, means in comparison.role_rows(result)] == [
        ("A", [0, 1, 2], pytest.approx(3 * MS)), ("B", [3, 4, 5], pytest.approx(5 * MS / 3)),
    ]  # fmt: skip
    text = " ".join(result.summary().split())
    assert "0.00 ms a step in the median of role B, and by +5.0 ms on rank 4" in text
    assert "B 3 to 5" in text


def test_what_recording_takes_follows_from_the_step_without_it() -> None:
    contents = summaries(data_parallel(4, late_rank(1)))
    step_ms = (judge(contents).job.step_ns or 0) / MS
    report = judge(contents, measured_step_ms=step_ms - 3)
    assert report.job.recording_ns == pytest.approx(3 * MS)
    assert re.search(r"recording takes 3(\.00)? ms of the recorded one", " ".join(report.summary().split()))
    assert judge(contents, measured_step_ms=2 * step_ms).job.recording_ns == 0


def test_ranks_of_files_that_name_none(tmp_path: Path) -> None:
    assert numbered(["a/gpu0.step12.json", "a/gpu1.step12.json"]) == {"a/gpu0.step12.json": 0, "a/gpu1.step12.json": 1}
    assert numbered(["a/step10.json", "a/step20.json"]) == numbered(["a/x0.json", "a/y1.json"]) == {}
    assert numbered(["a/n7g1.json"], r"g(\d)") == {"a/n7g1.json": 1}
    with pytest.raises(UsageError, match="group of digits"):
        numbered(["a/g1.json"], "g")
    made = data_parallel(2, lambda rank, step: 0)
    for rank in range(2):
        trace = {**document(made, rank), "distributedInfo": {}}
        (tmp_path / f"gpu{rank}_of_node7.json").write_text(json.dumps(trace), encoding="utf-8")
    report = analyze_ranks(tmp_path, workers=1)
    assert [rank.rank for rank in report.ranks] == [0, 1]
    assert not report.problems
    assert report.collectives.matched == 40


def test_ranks_merged_in_one_file_are_judged_as_those_of_several(tmp_path: Path) -> None:
    """As SGLang merges them: processes have the rank in front, and all write device 0."""
    made = job(2, 3, [("work", 20 * MS), ("meet", everyone(2))], late_rank(1, 9 * MS, 1))
    one, other = (document(made, rank) for rank in range(2))
    for rank, trace in enumerate((one, other)):
        for event in trace["traceEvents"]:
            event["pid"] = f"[TP0{rank}] {event['pid']}"
    merged = {**one, "distributedInfo": {}, "traceEvents": one["traceEvents"] + other["traceEvents"]}
    (tmp_path / "merged.json").write_text(json.dumps(merged), encoding="utf-8")
    report = analyze_ranks(tmp_path, workers=1)
    assert [rank.rank for rank in report.ranks] == [0, 1]
    assert report.collectives.matched == 6
    assert [rank.wait_ns for rank in report.ranks] == [18 * MS, 0]


def test_ranks_of_little_work_are_judged_by_one_rule(tmp_path: Path) -> None:
    made = job(2, 2, [("work", 20 * MS), ("meet", everyone(2))])
    for rank in range(2):
        trace = document(made, rank)
        for event in trace["traceEvents"]:
            event |= {"ts": event["ts"] / 200, "dur": event["dur"] / 200}
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(trace), encoding="utf-8")
    little, other = (from_bytes(summarize(str(tmp_path / f"rank{rank}.json"))) for rank in range(2))
    assert little.is_little
    assert little.regime is not None
    enough = replace(other, is_little=False, regime="communication-bound")
    for ranks, regimes in (((little, other), {None}), ((little, enough), {little.regime, "communication-bound"})):
        report = judge([to_bytes(rank) for rank in ranks])
        assert {rank.regime for rank in report.ranks} == regimes


def test_the_rank_that_most_waits_are_for_is_named_where_one_step_tells_no_straggler() -> None:
    made = job(4, 1, [("work", 20 * MS), ("meet", everyone(4))], lambda rank, step: (0, 4, 5, 9)[rank] * MS)
    report = judge(summaries(made))
    assert not report.stragglers
    assert ", 100 % of it for rank 3;" in report.job.sentence


def test_what_several_ranks_share_is_said_once() -> None:
    lines = problem_lines([Problem(rank, f"r{rank}.json", "cut", "is cut") for rank in (1, 2, 3)])
    assert lines == ["cut: ranks 1 to 3, r1.json and 2 more: is cut"]


def test_a_late_host_is_named_instead_of_its_ranks() -> None:
    made = data_parallel(32, lambda rank, step: 20 * MS + rank * 1_000 if rank // 8 == 2 else 0)
    (straggler,) = judge(summaries(made)).stragglers
    assert (straggler.kind, straggler.host, straggler.ranks) == ("host", "host2", tuple(range(16, 24)))


def test_pipeline_stages_have_roles_of_their_own() -> None:
    def calls(rank: int, stage: int) -> list[tuple[Any, ...]]:
        return [(rank, "kernel", "gemm", f"stage{stage}.linear", 4.0, 5e6), (rank, "kernel", "norm", "norm", 2.0, 1e6)]

    columns = ["rank", "kind", "category", "operator", "count", "step_ns"]
    rows = [row for rank in range(8) for row in calls(rank, rank // 4)]
    assert roles(pl.DataFrame(rows, schema=columns, orient="row")) == {r: "AB"[r // 4] for r in range(8)}
    # A rank of which a call in fifty was lost has peers all the same.
    many = [(r, "kernel", "gemm", f"op{i}", 1.0, 1e6) for r in range(4) for i in range(50) if (r, i) != (3, 9)]
    assert set(roles(pl.DataFrame(many, schema=columns, orient="row")).values()) == {"A"}


def gpipe(stages: int, microbatches: int, pipelines: int, late: int | None = None) -> list[tuple[str, Any]]:
    """Build a step of pipelines: forward of all microbatches, then backward, then the stages of all pipelines meet."""
    program: list[tuple[str, Any]] = []
    for back in (False, True):
        for _ in range(microbatches):
            order = range(stages)[:: -1 if back else 1]
            for place in order:
                for first in range(0, stages * pipelines, stages):
                    rank = first + place
                    program.append(("work on", ([rank], 10 * MS if rank != late else 14 * MS)))
                    if place != order[-1]:
                        program.append(("send", (rank, rank - 1 if back else rank + 1)))
    meets = [list(range(place, stages * pipelines, stages)) for place in range(stages)]
    return [*program, ("meet", meets)] if pipelines > 1 else program


@pytest.mark.parametrize(("stages", "microbatches", "pipelines"), [(2, 3, 1), (4, 6, 1), (4, 8, 2)])
def test_bubbles_of_a_pipeline(stages: int, microbatches: int, pipelines: int) -> None:
    made = job(stages * pipelines, 5, gpipe(stages, microbatches, pipelines), ranks_per_host=stages)
    report = judge(summaries(made))
    assert report.pipeline.microbatches == microbatches
    ideal = (stages - 1) / (microbatches + stages - 1)
    assert report.pipeline.ideal_ratio == ideal
    members = [tuple(range(place, made.size, stages)) for place in range(stages)]
    assert [stage.ranks for stage in report.pipeline.stages] == members
    for stage in report.pipeline.stages:
        sent = sum(end - start for _, name, _, start, end in made.ran[stage.stage] if name == "send_recv")
        whole = made.bounds[stage.stage][-1][1] - made.bounds[stage.stage][0][0]
        assert stage.bubble_ratio == pytest.approx(sent / whole, rel=1e-6)
    if pipelines == 1:  # no other waits: the first stage has the bubble of the formula, except for the time of sends
        assert report.pipeline.stages[0].bubble_ratio == pytest.approx(ideal, rel=0.01)
    # Each send finds its receive.
    per_step = 2 * microbatches * (stages - 1) * pipelines * 2
    assert report.collectives.by["pair"] == 5 * per_step
    assert f"stage 0 {100 * report.pipeline.stages[0].bubble_ratio:.0f}" in report.summary(200)


def test_a_slow_stage_is_the_fullest_and_its_data_peer_waits() -> None:
    report = judge(summaries(job(8, 5, gpipe(4, 6, 2, late=2))))
    ratios = {stage.stage: stage.bubble_ratio for stage in report.pipeline.stages}
    assert min(ratios, key=lambda stage: ratios[stage]) == 2
    assert report.stragglers[0].rank in range(4)  # the pipeline with the slow rank comes last to every meeting
    assert {rank.rank for rank in report.ranks if rank.late_ns} <= set(range(4))
    assert judge(summaries(data_parallel(4, late_rank(1)))).pipeline is None, "a job without sends"


@pytest.mark.parametrize("recorded", [{}, {"seq": False}, {"seq": False, "grouped": False}])
def test_a_job_in_parts_says_what_the_whole_says(recorded: dict[str, bool]) -> None:
    tensor = [[4 * i + j for j in range(4)] for i in range(4)]
    data = [[4 * i + j for i in range(4)] for j in range(4)]
    program = [("work", 20 * MS), ("meet", tensor), ("work", 10 * MS), ("meet", data)] * 3
    contents = summaries(job(16, 10, program, late_rank(5), **CLOCKS), **recorded)
    if not recorded:  # what has a number is matched even where its step was lost
        cut = from_bytes(contents[3])
        lost = pl.when(pl.col("step") > 6).then(None).otherwise("step").alias("step")
        contents[3] = to_bytes(replace(cut, damage="is truncated", collectives=cut.collectives.with_columns(lost)))
    whole, parts = (judge(contents, part_rows=rows) for rows in (10**6, 200))
    assert json.loads(parts.to_json()) == json.loads(whole.to_json())
    assert parts.by_step.equals(whole.by_step)
    assert parts.rows.drop("match").sort("rank", "row").equals(whole.rows.drop("match").sort("rank", "row"))


@pytest.mark.parametrize("recorded", [{}, {"seq": False, "grouped": False}])
def test_a_job_without_steps_is_reduced_in_parts_too(recorded: dict[str, bool]) -> None:
    """Memory is bounded without marks of steps: by what rows share, else by their place among all of a rank."""
    tensor = [[4 * i + j for j in range(4)] for i in range(4)]
    program = [("work", 20 * MS), ("meet", tensor), ("work", 10 * MS), ("meet", [list(range(16))])]
    made = job(16, 30, program, late_rank(5), **CLOCKS)
    contents = [to_bytes(without_steps(summary(made, rank, **recorded))) for rank in range(16)]
    with closing(joined(contents, 100).collectives) as spool:
        heights = [rows.height for rows, _ in spool.parts()]
    assert sum(heights) == 16 * 60
    assert max(heights) <= 150
    whole, parts = (judge(contents, part_rows=rows) for rows in (10**6, 100))
    assert parts.collectives.matched >= 0.9 * whole.collectives.matched
    if not recorded:
        assert parts.collectives == whole.collectives
        assert parts.by_step.equals(whole.by_step)
    assert [late.rank for late in whole.stragglers] == [late.rank for late in parts.stragglers] == [5]


def without_steps(own: RankSummary) -> RankSummary:
    """Return the summary of a rank that did not mark its steps."""
    collectives = own.collectives.with_columns(
        pl.lit(None, pl.Int64).alias("step"), pl.int_range(pl.len(), dtype=pl.Int64).over("group").alias("ordinal")
    )
    parts = (
        own.parts.group_by("part")
        .agg(pl.col("total_ns").sum())
        .select(pl.lit(None, pl.Int64).alias("step"), "part", "total_ns")
    )
    return replace(own, steps=own.steps.clear(), collectives=collectives, parts=parts, steps_from=None)


def test_a_large_job_is_aligned_by_whole_collectives(monkeypatch: pytest.MonkeyPatch) -> None:
    def sampled(part_rows: int) -> pl.DataFrame:
        with closing(joined(summaries(made), part_rows).collectives) as spool:
            return spool.sample()

    made = data_parallel(8, late_rank(5), **CLOCKS)
    height = sampled(10**6).height
    monkeypatch.setattr("trace_analyzer.ranks.joining.SAMPLE_ROWS", 40)
    monkeypatch.setattr("trace_analyzer.ranks.joining._LEAST_SAMPLED", 0)
    kept = sampled(20)
    assert 0 < kept.height < height
    assert kept.group_by("key").len().get_column("len").to_list() == [8] * (kept.height // 8)


def test_imbalance_names_the_operator_and_its_longest_rank() -> None:
    columns = ["rank", "kind", "category", "operator", "count", "step_ns"]
    rows = [(rank, "kernel", "gemm", "experts", 1.0, 9e6 if rank == 3 else 3e6) for rank in range(4)]
    roles = pl.DataFrame({"rank": list(range(4)), "role": ["A"] * 4})
    (row,) = imbalance(pl.DataFrame(rows, schema=columns, orient="row"), roles, 1e5).to_dicts()
    assert (row["operator"], row["max_rank"], row["mean_ns"], row["ratio"]) == ("experts", 3, 4.5e6, 0.5)


@pytest.mark.parametrize(
    ("own", "roles", "transfer", "kind"),
    [
        (lambda rank, step: 20 if rank == 2 else 10, "AAAA", 0.0, "worker"),
        (lambda rank, step: 10 + 7 * ((rank * 5 + step * 3) % 4), "AAAA", 0.0, "data"),
        (lambda rank, step: 20 if rank > 1 else 10, "AABB", 0.0, "stages"),
        (lambda rank, step: 10, "AAAA", 0.5, "network"),
        (lambda rank, step: 10, "AAAA", 0.0, "even"),
    ],
)
def test_kinds_of_slowdown(own: Callable[[int, int], int], roles: str, transfer: float, kind: str) -> None:
    rows = [(rank, step, own(rank, step)) for rank in range(4) for step in range(12)]
    frame = pl.DataFrame(rows, schema=["rank", "step", "own_ns"], orient="row")
    result = slowdown(frame, pl.DataFrame({"rank": list(range(4)), "role": list(roles)}), transfer)
    assert result.kind == kind


def test_missing_cut_failed_duplicate_and_foreign_ranks_cost_only_themselves() -> None:
    made = data_parallel(8, late_rank(5))
    by_rank = [from_bytes(content) for content in summaries(made)]
    cut = replace(by_rank[6], damage="the file is truncated", collectives=by_rank[6].collectives.head(7))
    odd = [
        replace(by_rank[2], path="other.json", world_size=16),
        replace(by_rank[3], path="twice.json"),
        replace(by_rank[3], path="later.json", base_ns=by_rank[3].base_ns + 10**14),
        RankSummary("broken.rank1.json", rank=1, error="is no JSON"),
        replace(by_rank[3], path="nameless.json", rank=None),
    ]
    used = [by_rank[rank] for rank in (0, 2, 3, 4, 5)] + [cut]
    report = judge([to_bytes(item) for item in (*odd, *used)])
    assert [(p.kind, p.rank) for p in report.problems] == [
        ("missing", 7), ("failed", 1), ("cut", 6), ("duplicate", 3), ("foreign", None), ("foreign", 2), ("foreign", 3),
    ]  # fmt: skip
    assert [s.rank for s in report.stragglers] == [5]
    assert {rank: wait for rank, wait in waits(report).items() if rank in (0, 4)} == {0: 540 * MS, 4: 540 * MS}
    assert {rank.status for rank in report.ranks if rank.rank in (0, 4, 5)} == {"ok"}


def test_a_late_start_shifts_no_match() -> None:
    made = data_parallel(8, late_rank(5))
    contents = summaries(made, seq=False)
    late = from_bytes(contents[3])
    kept = late.collectives.filter(pl.col("step") > 1)
    contents[3] = to_bytes(replace(late, collectives=kept, exposed=late.exposed.clear()))
    report = judge(contents)
    assert report.collectives.by == {"order": 156}
    assert waits(report)[3] == 420 * MS
    assert waits(report)[0] == 540 * MS


def test_a_wrong_order_is_undone_by_kind() -> None:
    made = data_parallel(8, late_rank(5))
    report = judge(changed(made, lambda rank: first_is("all_gather") if rank == 3 else [], seq=False))
    assert (report.collectives.matched, report.collectives.unmatched) == (150, 10)
    assert report.collectives.by == {"order": 150}


def test_impossible_matches_are_undone() -> None:
    made = data_parallel(8, lambda rank, step: 0)
    report = judge(changed(made, lambda rank: pl.col("start_ns") + 40 * MS * (rank == 3) * (pl.col("seq") == 7)))
    assert report.collectives.unmatched == 8
    assert all(wait == 0 for wait in waits(report).values())


def test_groups_without_a_common_rank_leave_clocks_apart() -> None:
    program = [("work", 20 * MS), ("meet", [list(range(8)), list(range(8, 16))])]
    report = judge(summaries(job(16, 10, program, late_rank(5), **CLOCKS)))
    assert report.clocks[1].offset_ns is None
    assert any("ties the clock of host1" in note for note in report.notes)
    assert [s.rank for s in report.stragglers] == [5]


@settings(max_examples=examples(20))
@given(
    size=st.integers(2, 9),
    delays=st.lists(st.integers(0, 50 * MS), min_size=27, max_size=27),
    recorded=st.sampled_from([{}, {"seq": False}, {"seq": False, "grouped": False}]),
)
def test_laws(size: int, delays: list[int], recorded: dict[str, bool]) -> None:
    """Waits are never negative, wait and transfer are the duration, and ranks sum to the job; truth is arithmetic."""
    program = [("work", 20 * MS), ("meet", everyone(size))]
    made = job(size, 3, program, lambda rank, step: delays[3 * rank + step])
    report = judge(summaries(made, **recorded))
    rows = report.rows.filter(pl.col("wait_ns").is_not_null())
    assert rows.height == 3 * size
    assert (rows.get_column("wait_ns") >= 0).all()
    assert (rows.get_column("wait_ns") + rows.get_column("transfer_ns")).equals(rows.get_column("duration_ns"))
    assert rows.filter(pl.col("exposed_wait_ns") + pl.col("exposed_transfer_ns") != pl.col("exposed_ns")).is_empty()
    assert [waits(report)[rank] for rank in range(size)] == made.waits
    assert rows.get_column("transfer_ns").to_list() == [TRANSFER] * (3 * size)
    for straggler in report.stragglers:
        assert straggler.gain_at_least_ns <= straggler.late_ns


def uncharged(late: Any, slots: Any, cut: int = 0) -> Any:
    """Return the lateness that is charged, collectives by ranks, the first ``cut`` in a part of their own."""
    count, ranks = late.shape
    charged, then = np.zeros(ranks, dtype=np.int64), np.zeros((ranks, 1 + int(slots.max())), dtype=np.int64)
    parts = []
    for part in (slice(0, cut), slice(cut, count)):
        place, rank = (axis.ravel() for axis in np.indices(late[part].shape))
        if len(place):
            grid = _Grid(rank, place, slots[part].ravel(), late[part].ravel())
            parts.append(grid.advanced(charged, then, _uncharged).reshape(late[part].shape))
    return np.concatenate(parts)


@settings(max_examples=examples(200))
@given(st.integers(1, 4), st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2)), min_size=1, max_size=12))
def test_uncharged_lateness_agrees_with_a_naive_scan(ranks: int, rows: list[tuple[int, int]]) -> None:
    late = np.array([[value + rank for rank in range(ranks)] for value, _ in rows], dtype=np.int64)
    slots = np.array([[(slot + rank) % 3 for rank in range(ranks)] for _, slot in rows], dtype=np.int64)
    own = uncharged(late, slots, len(rows) // 2)
    for rank in range(ranks):
        for place in range(len(rows)):
            earlier = [p for p in range(place) if slots[p][rank] == slots[place][rank]]
            since = range(earlier[-1] + 1 if earlier else 0, place)
            assert own[place][rank] == max(0, late[place][rank] - sum(int(own[p][rank]) for p in since))


def test_collectives_without_a_key_stay_without_where_another_key_repeats() -> None:
    rows = [(rank, row, "g" if row < 2 else None, 1 if row < 2 else None) for rank in (0, 1) for row in range(5)]
    known = pl.DataFrame(
        rows, schema={"rank": pl.Int64, "row": pl.UInt32, "group": pl.String, "seq": pl.Int64}, orient="row"
    )
    texts = {"kind": "all_reduce", "dtype": "Float", "comms_id": None}
    others = {name: pl.lit(texts.get(name, 1), dtype) for name, dtype in JOINED.items() if name not in known.columns}
    others["step"] = pl.lit(None, pl.Int64)
    enums = pl.col(pl.String).cast(pl.Enum(["all_reduce", "Float", "g"]))
    keys = coded(known.with_columns(**others).with_columns(enums), [])[0].get_column("key")
    own, other = keys[:5], keys[5:]
    assert own.is_not_null().to_list() == [True, True, False, False, False]
    assert own[0] != own[1]
    assert own.equals(other, null_equal=True)


def test_exposed_pieces() -> None:
    collectives = pl.DataFrame({"start_ns": [0, 100, 300], "duration_ns": [50, 100, 10]})
    work = pl.DataFrame({"start_ns": [10, 150, 290], "end_ns": [20, 160, 400]})
    assert exposed_pieces(collectives, work).rows() == [
        (0, 0, 10, 10), (0, 20, 50, 30), (1, 0, 50, 50), (1, 60, 100, 40),
    ]  # fmt: skip
    # Of many pieces neighbours are joined, and their sum stays.
    many = pl.DataFrame({"start_ns": list(range(0, 1000, 10)), "end_ns": list(range(5, 1000, 10))})
    pieces = exposed_pieces(pl.DataFrame({"start_ns": [0], "duration_ns": [1000]}), many)
    assert (pieces.height, pieces.get_column("exposed_ns").sum()) == (8, 500)


@given(st.lists(st.integers(0, 3_000), unique=True, max_size=30))
@settings(max_examples=examples(100))
def test_ranks_are_packed_without_loss(ranks: list[int]) -> None:
    assert ranks_of(runs_of(ranks)) == tuple(ranks)
    assert runs_of(range(0, 4096, 8)) == [[0, 8, 512]]


@pytest.mark.parametrize(
    ("record", "world", "ranks"),
    [
        ({"global_rank_start": 4, "global_rank_stride": 8, "group_size": 3}, 64, (4, 12, 20)),
        ({"process_group_ranks": "[0, 5, 6]", "group_size": 3}, 64, (0, 5, 6)),
        ({"process_group_ranks": "[0, 1, ...]", "group_size": 64}, 64, tuple(range(64))),
        ({"process_group_ranks": "[0, 1, ...]", "group_size": 32}, 64, ()),
    ],
)
def test_ranks_of_a_group(record: dict[str, Any], world: int, ranks: tuple[int, ...]) -> None:
    names = (
        "process_group_description",
        "process_group_ranks",
        "global_rank_start",
        "global_rank_stride",
        "group_size",
    )
    row = {"process_group": "7", **dict.fromkeys(names), **record}
    group = group_of(row, Header((), 0, world, None))
    assert group.ranks == ranks
    assert group_of(row | {"process_group": None}, Header((), 0, world, None)) is None


@pytest.mark.parametrize(
    ("path", "rank"),
    [
        ("a/trace.rank3.json.gz", 3),
        ("x/rank_12/host.pt.trace.json", 12),
        ("b/trace.json", None),
        ("r/sampled_128ranks_rank7.json", 7),
        ("t/iteration_10/rank0_trace.json.gz", 0),
        ("v/dp0_pp0_tp1_dcp0_ep1_rank3.1712345678901234567.pt.trace.json.gz", 3),
        ("v/3f2a-rank-2.1712345678.pt.trace.json.gz", 2),
        ("v/host_77.async_llm.1712345678.pt.trace.json.gz", None),
        ("p/primus-megatron-exp[a]-rank[3].json", 3),
        ("s/1712345678.12-TP-5.trace.json.gz", 5),
        ("s/1712345678.12-TP-5-decode.trace.json.gz", 5),
        ("s/1712345678.12-TP-1-DP-1.trace.json.gz", None),
        ("s/1712345678.12-TP-1-PP-0.trace.json.gz", None),
    ],
)
def test_the_rank_in_a_name(path: str, rank: int | None) -> None:
    assert rank_in_name(path) == rank


@pytest.mark.parametrize(
    ("says", "world", "path", "rank"),
    [(2, 4, "rank3.json", 2), (None, None, "rank3.json", 3), (0, None, "rank3.json", 3), (0, None, "a.json", 0), (0, 4, "rank3.json", 0), (2, None, "rank3.json", 2)],
)  # fmt: skip
def test_the_header_comes_before_the_name(says: int | None, world: int | None, path: str, rank: int) -> None:
    assert rank_of(Header((), says, world, None), path) == rank


def named(made: Made, name: Callable[[int], str], later_ns: int = 0) -> list[RankSummary]:
    """Return the summaries of the ranks of a job, with their paths as given."""
    parts = [from_bytes(content) for content in summaries(made)]
    return [replace(part, path=name(part.rank or 0), base_ns=part.base_ns + later_ns) for part in parts]


@pytest.mark.parametrize("name", [
    lambda n, rank: f"t/iteration_{10 * n}/rank{rank}_trace.json",
    lambda n, rank: f"t/1712345678.12-TP-{rank}-{'ab'[n - 1]}.trace.json.gz",
])  # fmt: skip
def test_of_several_recordings_one_is_judged_and_none_are_mixed(name: Callable[[int, int], str]) -> None:
    made = data_parallel(8, late_rank(5))
    first = named(made, lambda rank: name(1, rank))[:-1]
    second = named(made, lambda rank: name(2, rank), 10**10)
    report = judge([to_bytes(item) for item in (*first, *second)])
    assert [(p.kind, p.rank, p.path) for p in report.problems] == [
        ("duplicate", rank, name(1, rank)) for rank in range(7)
    ]
    assert name(2, 0) in report.problems[0].message
    assert report.job.sentence.endswith("7 ranks are there twice.")
    assert {rank.path for rank in report.ranks if rank.status == "ok"} == {name(2, rank) for rank in range(8)}


def test_folders_of_hosts_are_one_recording() -> None:
    made = data_parallel(8, late_rank(5))
    report = judge(
        [to_bytes(item) for item in named(made, lambda rank: f"t/host{rank // 4}/rank{rank % 4}_trace.json")]
    )
    assert (report.problems, report.job.seen) == ((), 8)


def test_a_name_that_contradicts_the_trace_is_reported_and_does_not_count() -> None:
    made = data_parallel(8, late_rank(5))
    names = {2: 5, 5: 2}
    report = judge([to_bytes(item) for item in named(made, lambda rank: f"t/rank{names.get(rank, rank)}.json")])
    assert report.problems == ()
    assert {rank.rank: rank.named_rank for rank in report.ranks if rank.named_rank is not None} == names
    assert [s.rank for s in report.stragglers] == [5]
    assert {rank.status for rank in report.ranks} == {"ok"}
    for text in (report.summary(120), report.to_markdown()):
        assert "misnamed: t/rank5.json is of rank 2, not 5" in text


def test_links_to_a_folder_or_a_trace_give_each_file_once(tmp_path: Path) -> None:
    job = tmp_path / "job"
    (job / "a").mkdir(parents=True)
    (job / ".trash").mkdir()
    for name in ("a/rank0.json", "a/rank1.json", ".trash/rank7.json"):
        (job / name).touch()
    for link, target in (("up", ".."), ("me", "../a"), ("again", ".")):
        (job / "a" / link).symlink_to(target)
    (job / "0.json").symlink_to("a/rank0.json")
    expected = [str(job / "a" / f"rank{rank}.json") for rank in range(2)]
    for pattern in ("**/*.json", "**", "*/**/rank*.json"):
        assert files_of([str(job / pattern), str(job / "a" / "up" / "a")]) == expected
    assert files_of([str(job / ".t*" / "*.json")]) == [str(job / ".trash" / "rank7.json")]
    assert list(map(str, sides.recordings(job / "a"))) == expected


def test_files_of_a_job(tmp_path: Path) -> None:
    for name in ("a.rank0.json.gz", "a.rank0.rank.gz", "a.rank1.json", "a.rank1.report.json", "notes.txt"):
        (tmp_path / name).touch()
    names = [Path(path).name for path in files_of([str(tmp_path)])]
    assert names == ["a.rank0.rank.gz", "a.rank1.json"]


def test_no_two_runs_of_judging_differ(tmp_path: Path) -> None:
    contents = summaries(data_parallel(8, late_rank(5), **CLOCKS))
    assert judge(contents).to_json() == judge(contents).to_json() == judge(contents[::-1]).to_json()


def test_documents() -> None:
    report = judge(summaries(data_parallel(24, late_rank(5), **CLOCKS))[:-2])
    document = json.loads(report.to_json())
    jsonschema.validate(document, result_schema(JobReport))
    assert [(p["rank"], p["path"], p["kind"], p["message"]) for p in document["problems"]] == [
        (rank, None, "missing", f"no trace of rank {rank} of 24") for rank in (22, 23)
    ]
    text = report.summary(80)
    assert "missing: ranks 22 to 23" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "| 5 | host0 | persistent | 60" in report.to_markdown()
    check_contract(document)


CONTRACT: dict[str, set[str]] = {
    "job": {"sentence", "regime", "world_size", "seen", "step_ns"},
    "problems": {"rank", "path", "kind", "message"},
    "ranks": {
        "rank", "host", "path", "status", "step_ns", "regime", "cause", "wait_ns", "transfer_ns", "late_ns", "led_ratio", "role",
    },
    "stragglers": {"rank", "kind", "late_ns", "gain_at_least_ns", "why"},
    "clocks": {"host", "offset_ns", "drift_ppm", "residual_ns"},
    "collectives": {"matched", "unmatched", "by"},
}  # fmt: skip
"""Names that scripts rely on, which stay whatever else is added."""


def check_contract(document: dict[str, Any]) -> None:
    assert type(document["schema_version"]) is int
    for name, keys in CONTRACT.items():
        records = document[name] if isinstance(document[name], list) else [document[name]]
        assert records
        for record in records:
            assert keys <= set(record)
    described = result_schema(JobReport)
    kinds = {
        name: described["$defs"][kind]["properties"]["kind"]["enum"]
        for name, kind in (("problems", "Problem"), ("stragglers", "Straggler"))
    }
    assert set(kinds["problems"]) == {"missing", "cut", "duplicate", "foreign", "failed"}
    assert set(kinds["stragglers"]) == {"persistent", "once", "wandering", "host"}
    job = document["job"]
    assert (job["world_size"], job["seen"], type(job["sentence"])) == (24, 22, str)
    (late,) = document["stragglers"]
    assert (late["rank"], late["kind"], round(late["late_ns"] / MS)) == (5, "persistent", 60)
    in_time, behind = document["ranks"][4], document["ranks"][5]
    assert (in_time["status"], behind["rank"], behind["wait_ns"] < in_time["wait_ns"]) == ("ok", 5, True)
    assert document["collectives"]["by"] == {"seq": document["collectives"]["matched"]}


def test_nothing_usable_is_reported() -> None:
    report = judge([to_bytes(RankSummary("a.json", error="is no JSON"))])
    assert (report.job.seen, report.job.regime, report.ranks[0].status) == (0, None, "failed")
    assert report.job.sentence.startswith("No trace of a rank could be used.")
    jsonschema.validate(json.loads(report.to_json()), result_schema(JobReport))


@pytest.mark.parametrize("content", [b"", b"nonsense", to_bytes(RankSummary("x"))[:-4]])
def test_a_damaged_summary_is_a_failed_rank(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "trace.rank4.rank.gz"
    path.write_bytes(content)
    read = from_bytes(summarize(str(path)))
    assert read.rank == 4
    assert read.error is not None
    assert "no summary" in read.error


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"rank": "3"}, "rank is no"), ({"nothing": 1}, "nothing is unknown"), ({"base_ns": None}, "base_ns"),
        ({"groups": [{"key": "a", "name": "a", "description": None, "size": 2, "ranks": [[0, 1, 10**12]]}]}, "too many ranks"),
        ({"n_collectives": 7}, "collectives is another"), ({"rank_summary_version": 9}, "version 9"), ({"rank_summary_version": 3}, "version 3"),
    ],
)  # fmt: skip
def test_a_summary_of_wrong_types_is_refused(change: dict[str, Any], reason: str) -> None:
    head, rest = members(summaries(data_parallel(2, late_rank(1)))[0])
    with pytest.raises(InputError, match=reason):
        from_bytes(gzip.compress(json.dumps(json.loads(head) | change).encode()) + rest)


def members(content: bytes) -> tuple[bytes, bytes]:
    """Return the text of the head of a summary, and the compressed rest."""
    inflater = zlib.decompressobj(wbits=31)
    return inflater.decompress(content), inflater.unused_data


@pytest.mark.parametrize(
    ("frame", "change", "reason"),
    [
        ("steps", {"start_ns": ["now"]}, "cannot parse 'now'"), ("steps", {"is_steady": "yes"}, "unexpected value"),
        ("collectives", {"kind": []}, "matching element counts"), ("steps", {"step": None}, "matching element counts"),
        ("collectives", {"seq": [10**30]}, "unexpected value"), ("steps", {"start_ns": [None]}, "time is missing"),
    ],
)  # fmt: skip
def test_a_summary_with_wrong_columns_is_refused(frame: str, change: dict[str, Any], reason: str) -> None:
    head, rest = members(summaries(data_parallel(2, late_rank(1)))[0])
    lines = gzip.decompress(rest).splitlines()
    place = 1 + ["steps", "parts", "collectives"].index(frame)
    columns = json.loads(lines[place])
    (column, values), height = *change.items(), len(columns["start_ns"])
    lines[place] = json.dumps(columns | {column: values and values * height}).encode()
    with pytest.raises(InputError, match=f"no summary.*{reason}"):
        from_bytes(gzip.compress(head) + gzip.compress(b"\n".join(lines)))


_NUMBER = st.none() | st.integers(-(2**63), 2**63 - 1)
_TEXT = st.none() | st.text(max_size=3)


@settings(max_examples=examples(100))
@given(
    st.lists(st.tuples(_NUMBER, _TEXT, _TEXT, _NUMBER, st.floats(allow_nan=False, allow_infinity=False)), max_size=8)
)
def test_frames_come_back_as_they_were(rows: list[tuple[Any, ...]]) -> None:
    work = pl.DataFrame([("kernel", *row[1:3], 1.0, row[4]) for row in rows], schema=WORK, orient="row")
    steps = pl.DataFrame([(row[0], 0, 1, None, row[1]) for row in rows], schema=STEPS, orient="row")
    content = to_bytes(RankSummary("a.json", steps=steps, work=work))
    back = from_bytes(content)
    assert (back.steps.equals(steps), back.work.equals(work)) == (True, True)
    joined = frames_of([content, to_bytes(RankSummary("b.json")), content])
    assert joined["work"][1] == [len(rows), 0, len(rows)]
    assert typed(joined["work"][0], WORK).equals(pl.concat([work, work]))


def test_traces_of_ranks_say_what_was_made(tmp_path: Path) -> None:
    """From trace to verdict: the straggler, the operator that makes it late, the waits, a cut file."""
    program = [("work", 20 * MS), ("meet", everyone(4)), ("work", 10 * MS), ("meet", everyone(4))]
    made = job(4, 6, program, late_rank(1, 15 * MS), ranks_per_host=2, offsets={"host1": 3_000_000})
    paths = write_traces(made, tmp_path)
    paths[3].write_text(paths[3].read_text()[:6_000])
    report = judge([summarize(str(path)) for path in paths])
    assert report.collectives.by == {"seq": report.collectives.matched}
    (straggler,) = report.stragglers
    assert (straggler.rank, straggler.kind, straggler.late_ns) == (1, "persistent", 15 * MS)
    assert straggler.why.startswith("aten::mm +12")
    assert [(problem.kind, problem.rank) for problem in report.problems] == [("cut", 3)]
    assert [waits(report)[rank] for rank in range(3)] == made.waits[:3]
    assert [rank.role for rank in report.ranks[:3]] == ["A", "A", "A"]


def test_the_page_holds_a_job_and_nothing_that_runs(tmp_path: Path) -> None:
    made = data_parallel(16, late_rank(5))
    contents = [from_bytes(content) for content in summaries(made)]
    hostile = "</script><script>alert(1)</script>\u202e"
    contents[5] = replace(contents[5], host=hostile, path=f"{tmp_path}/trace.rank5.json", regime="compute-bound")
    (tmp_path / "trace.rank5.report.html").touch()
    path = judge([to_bytes(item) for item in contents]).to_html(tmp_path / "job.html")
    text = path.read_text(encoding="utf-8")
    assert "alert(1)</script>" not in text
    assert "\u202e" not in text
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert "9 of 10 steps" in text
    assert len(text) < 200_000


def test_the_page_of_many_collectives_leaves_out_the_steps_with_least_lateness(monkeypatch: pytest.MonkeyPatch) -> None:
    report = judge(summaries(data_parallel(8, lambda rank, step: (step + 1) * MS if rank == 5 else 0)))
    monkeypatch.setattr(lateness, "MOST_COLLECTIVES", 40)
    rows = lateness.drawn_collectives(report.rows, list(range(10)), report.by_step)
    assert rows.get_column("step").unique().to_list() == [8, 9]
    left_out = "This file holds 32 of 160 collectives, those of the 2 steps with most lateness."
    assert rank_map.left_out(report.rows, rows) == left_out
    assert rank_map.left_out(report.rows, report.rows) == ""
    monkeypatch.setattr(lateness, "MOST_COLLECTIVES", 10)
    assert (
        lateness.drawn_collectives(report.rows, list(range(10)), report.by_step).height == 8
    )  # one collective of eight ranks


@pytest.mark.parametrize("most", [10, 20, 1_000])
def test_a_late_rank_is_named_however_few_collectives_are_kept(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Those of a step are 16: what the rank costs follows from whole collectives, of which its own row is the shortest."""
    monkeypatch.setattr("trace_analyzer.ranks.waits.KEPT_ROWS", most)
    (straggler,) = judge(summaries(data_parallel(8, late_rank(5)))).stragglers
    assert (straggler.rank, straggler.gain_at_least_ns) == (5, straggler.late_ns)


def test_the_map_of_a_job_has_a_cell_per_rank_and_step() -> None:
    report = judge(summaries(data_parallel(3, lambda rank, step: (step + 1) * MS if rank == 1 else 0)))
    assert lateness.drawn_steps(report.by_step, 3) == list(range(10))
    assert lateness.drawn_steps(report.by_step, 3_000_000) == [0]
    cells = lateness.cells(report.by_step, report.steps, [0, 1], [3, 4], [])
    assert cells.select("rank", "step", "regime").rows() == [(0, 3, 0), (0, 4, 0), (1, 3, 0), (1, 4, 0)]
    rows = lateness.placed_collectives(report.rows, [0, 1], list(range(10)))
    assert rows.get_column("c_start").min() == 0
    offsets = lateness.offsets(rows, 10)
    assert (len(offsets), offsets[0], offsets[-1]) == (11, 0, rows.height)
    parts = [rows["c_step"][low:high].unique().to_list() for low, high in pairwise(offsets)]
    assert parts == [[place] for place in range(10)]


def test_a_thousand_ranks_fit_into_ten_megabytes(tmp_path: Path) -> None:
    everybody = everyone(1_024)
    program = [("work", 5 * MS), ("meet", everybody)] * 20
    delays = np.random.default_rng(1).integers(0, 100_000, (1_024, 10))
    made = job(1_024, 10, program, lambda r, s: 60 * MS * (r == 700) + int(delays[r, s]), **CLOCKS)
    report = judge(summaries(made)[:-1])
    assert [(s.rank, s.kind) for s in report.stragglers] == [(700, "persistent")]
    assert report.stragglers[0].late_ns == pytest.approx(60 * MS, rel=0.01)
    for rank, wait in waits(report).items():
        assert wait == pytest.approx(made.waits[rank or 0], rel=0.01, abs=20_000)
    assert report.to_html(tmp_path / "job.html").stat().st_size < 10e6
