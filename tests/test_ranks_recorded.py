"""Test ranks recorded during the test: four processes under torchrun that meet by gloo, one of which is late."""

import re
import sys
from pathlib import Path

import polars as pl
import pytest
from commands import environment, ran
from conftest import CORPUS, corpus_rows

import trace_analyzer as ta
from trace_analyzer.ingest import load
from trace_analyzer.ranks.recording import collectives_of, steps_of, summarize
from trace_analyzer.ranks.summary import from_bytes

LATE, DELAY_S, STEPS = 2, 0.4, 5
JOB = f"""
import os, sys, time, torch, torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, schedule
dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def ready(profiler):
    profiler.export_chrome_trace(f"{{sys.argv[1]}}/trace.rank{{rank}}.json")
cycles = schedule(wait=1, warmup=1, active={STEPS}, repeat=1)
with profile(activities=[ProfilerActivity.CPU], schedule=cycles, on_trace_ready=ready, record_shapes=True) as p:
    for _ in range({STEPS} + 3):
        if rank == {LATE}:
            time.sleep({DELAY_S})
        model(torch.ones(32, 64)).sum().backward()
        optimizer.step()
        p.step()
dist.barrier()
sys.stdout.flush()
os._exit(0)  # as in test_handler: gloo's threads outlive the group
"""

PUBLIC = CORPUS.parent / "truth" / "dlrm_8xv100"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Record the traces of the job and return their folder."""
    folder = tmp_path_factory.mktemp("gloo")
    script = folder / "train.py"
    script.write_text(JOB)
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4")
    done = ran(*launcher, script, folder, env=environment(OMP_NUM_THREADS="1"))
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_the_late_one_of_four_recorded_ranks_is_named(folder: Path) -> None:
    report = ta.analyze_ranks(str(folder / "trace.rank*.json"), workers=1)
    assert (report.job.seen, report.job.world_size, report.problems) == (4, 4, ())
    assert report.collectives.by == {"order": 4 * STEPS}
    assert report.collectives.unmatched == 0
    first = report.stragglers[0]
    assert (first.rank, first.kind) == (LATE, "persistent")
    # The rank sleeps for this time in each step; any further lateness is due to the machine.
    assert first.late_ns > 0.8 * DELAY_S * 1e9
    assert [group.ranks for group in report.groups] == [(0, 1, 2, 3)]
    assert not any("time-slicing" in note for note in report.notes), "there are no devices to share"
    rows = report.rows
    assert (rows.get_column("wait_ns") >= 0).all()
    assert (rows.get_column("wait_ns") + rows.get_column("transfer_ns")).equals(rows.get_column("duration_ns"))
    assert (rows.get_column("exposed_ns") <= rows.get_column("duration_ns")).all()
    # Ends of an all-reduce are simultaneous: the four processes share a clock, and the residual shows their agreement.
    ends = rows.group_by("match").agg((pl.col("end_ns").max() - pl.col("end_ns").min()).alias("apart_ns"))
    residual = report.collectives.residual_ns
    assert ends.get_column("apart_ns").median() <= 2 * residual  # type: ignore[operator]


@pytest.mark.slow
def test_what_gloo_marks(folder: Path) -> None:
    trace = load(folder / "trace.rank0.json")
    steps = steps_of(trace)
    rows, groups = collectives_of(trace, steps)
    assert rows.get_column("step").to_list() == steps.get_column("step").to_list()
    assert rows.select("kind", "dtype", "elements", "group_size").unique().rows() == [
        ("all_reduce", "Float", 64 * 65, 4)
    ]
    assert [group.ranks for group in groups] == [(0, 1, 2, 3)]
    summary = from_bytes(summarize(str(folder / "trace.rank0.json")))
    assert (summary.rank, summary.world_size, summary.steps_from) == (0, 4, "ProfilerStep")
    assert summary.host


@pytest.mark.slow
@pytest.mark.skipif(not corpus_rows(), reason="the corpus ($TRACE_CORPUS) is absent")
def test_two_real_ranks_of_128() -> None:
    """Check that collectives of two recorded ranks of 128 are matched by their ends.

    Filtered traces without hosts, groups' members or numbers: half of the collectives match, by their ends alone.
    """
    report = ta.analyze_ranks([CORPUS / f"sampled_128ranks_rank{rank}.json.gz" for rank in (0, 1)], workers=1)
    assert [(problem.kind, problem.rank) for problem in report.problems] == [("missing", n) for n in range(2, 128)]
    assert report.job.sentence.startswith("Of the 2 ranks at hand: ")
    assert (report.collectives.matched, report.collectives.unmatched, report.collectives.by) == (10, 10, {"ends": 10})
    residual = report.collectives.residual_ns
    assert residual < 330_000
    # For two of 128 ranks, the gain of a fix is unknown, and no lateness below the residual is reported.
    assert all(not late.gain_at_least_ns and late.late_ns > 2 * residual for late in report.stragglers)
    rows = report.rows.filter(pl.col("match").is_not_null())
    assert (rows.get_column("wait_ns") >= 0).all()
    assert (rows.get_column("wait_ns") + rows.get_column("transfer_ns")).equals(rows.get_column("duration_ns"))
    assert rows.group_by("match").agg(pl.col("kind").n_unique(), pl.col("rank").n_unique()).select(
        "kind", "rank"
    ).unique().rows() == [(1, 2)]


@pytest.mark.slow
@pytest.mark.skipif(not PUBLIC.exists(), reason="the public jobs (beside $TRACE_CORPUS) are absent")
def test_who_waited_for_whom_in_a_public_job() -> None:
    """Of 11.34 ms that rank 1 is in collectives 11.12 are waiting, mostly for rank 7; one step tells no straggler."""
    report = ta.analyze_ranks(PUBLIC, workers=1)
    assert (report.collectives.matched, report.collectives.unmatched, report.stragglers) == (64, 0, ())
    first = report.ranks[1]
    assert (first.rank, round((first.wait_ns or 0) / 1e4), round((first.transfer_ns or 0) / 1e4)) == (1, 1112, 22)
    assert max(report.ranks, key=lambda rank: rank.led_ratio or 0).rank == 7
    assert "one window cannot tell a late rank from jitter" in report.job.sentence
    assert "of it for rank 7" in report.job.sentence
    assert re.search(r"\bStep\b|of 1 step|a step ", report.summary()) is None, "nothing repeats"


@pytest.mark.slow
@pytest.mark.skipif(not PUBLIC.exists(), reason="the public jobs (beside $TRACE_CORPUS) are absent")
def test_a_late_rank_is_the_last_as_often_in_both_tables() -> None:
    """Rank 1 is the last in 25 of 76 collectives, 21 of them in the 56 of steps with a number."""
    report = ta.analyze_ranks(PUBLIC.parent / "ranks_8xh100", workers=1)
    by_rank = {rank.rank: rank.led_ratio for rank in report.ranks}
    assert {late.rank: late.led_ratio for late in report.stragglers}.items() <= by_rank.items()
    assert by_rank[1] == 25 / 76
