"""Measure time and memory of judging a job from summaries, by ranks and collectives.

``python benchmarks/ranks.py [RANKS x COLLECTIVES ...]``, by default `SIZES`. Each size runs in its own process;
``10000x2000-unmarked`` is a job without step marks. A trace instead of a size, ``python benchmarks/ranks.py
trace.json.gz``, measures the cost of its summary in addition to reading and analysing it. Summaries are made by
`tests/made_ranks.py`: one rank is late, and clocks of hosts differ.
"""

import gzip
import json
import resource
import statistics
import subprocess
import sys
import time
import zlib
from pathlib import Path

import numpy as np
import polars as pl
from msgspec.structs import replace

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
from made_ranks import MS, job, summary  # noqa: E402

from trace_analyzer.ingest import load  # noqa: E402
from trace_analyzer.pipeline import report_of  # noqa: E402
from trace_analyzer.ranks.job import judge  # noqa: E402
from trace_analyzer.ranks.recording import summary_of  # noqa: E402
from trace_analyzer.ranks.summary import (  # noqa: E402
    WORK,
    RankGroup,
    RankSummary,
    to_bytes,
)

STEPS, LINES, VARIANTS = 10, 60, 32
SIZES = ("8x400", "64x400", "1024x400", "10000x400", "10000x2000")


def measure(size: str) -> None:
    """Print seconds and peak memory of judging a job of this size."""
    numbers, _, unmarked = size.partition("-")
    ranks, collectives = map(int, numbers.split("x"))
    everybody = [[0, 1]]
    program = [("work", MS), ("meet", everybody)] * (collectives // STEPS)
    late = ranks // 2
    # Ranks that are on time are copies of a few: making summaries takes longer than judging them.
    made = job(2, STEPS, program, lambda rank, step: 60 * MS * (rank == 1))
    noise = np.random.default_rng(7)
    alike = [to_bytes(of_job(summary(made, 0), ranks, noise, bool(unmarked))) for _ in range(VARIANTS)]
    slow = to_bytes(of_job(summary(made, 1), ranks, noise, bool(unmarked)))
    contents = [of_rank(slow if rank == late else alike[rank % VARIANTS], rank) for rank in range(ranks)]
    kilobytes = sum(map(len, contents)) / ranks / 1e3
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started, used = time.perf_counter(), time.process_time()
    report = judge(contents)
    seconds, cpu = time.perf_counter() - started, time.process_time() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert [straggler.rank for straggler in report.stragglers] == [late], report.job.sentence
    print(
        f"{ranks:>6} ranks x {collectives:>5}: {seconds:6.2f} s, {cpu:6.2f} CPU s, {ranks / seconds:8.0f} ranks/s, peak {peak / 1024:6.0f} MB"
        f" ({before / 1024:.0f} MB before), {kilobytes:.1f} kB a rank",
        flush=True,
    )


def measure_rank(path: str, runs: int = 3) -> None:
    """Print CPU seconds of reading and analysing a trace, and of its rank's summary: medians, after one import run."""
    turns = []
    for _ in range(runs + 1):
        before = time.process_time()
        trace = load(Path(path))
        report = report_of(trace)
        report.summary()
        analysed = time.process_time()
        content = to_bytes(summary_of(trace, report))
        turns.append((analysed - before, time.process_time() - analysed))
    own, beyond = (statistics.median(turn[part] for turn in turns[1:]) for part in (0, 1))
    print(
        f"{path}: {own:.2f} CPU s of analysis, {beyond:.3f} beyond it for a summary of {len(content) / 1e3:.1f} kB",
        flush=True,
    )


def of_rank(content: bytes, rank: int) -> bytes:
    """Return a summary under another rank, with its host's clock."""
    inflater = zlib.decompressobj(wbits=31)
    head = json.loads(inflater.decompress(content))
    head |= {"path": f"trace.rank{rank}.json", "rank": rank, "host": f"host{rank // 8}"}
    head["base_ns"] += 1_000_000 * (rank // 8 % 7)
    return gzip.compress(json.dumps(head).encode() + b"\n", 1) + inflater.unused_data


def of_job(made: RankSummary, ranks: int, noise: np.random.Generator, is_unmarked: bool) -> RankSummary:
    """Return a summary with starts and ends that vary by 5 us, and 60 lines of work."""
    count = made.collectives.height
    start, end = (pl.Series(noise.integers(-5_000, 5_000, count)) for _ in range(2))
    collectives = made.collectives.with_columns(
        pl.col("start_ns") + start,
        pl.col("duration_ns") + end - start,
        pl.col("exposed_ns") + end - start,
        pl.lit(ranks, pl.Int64).alias("group_size"),
    )
    if is_unmarked:
        nothing = pl.lit(None, pl.Int64).alias("step")
        parts = made.parts.group_by("part").agg(pl.col("total_ns").sum()).select(nothing, "part", "total_ns")
        collectives = collectives.with_columns(nothing, pl.int_range(pl.len(), dtype=pl.Int64).alias("ordinal"))
        made = replace(made, steps=made.steps.clear(), parts=parts, steps_from=None)
    work = pl.DataFrame(
        {
            "kind": ["kernel"] * LINES,
            "category": [f"bucket{line % 6}" for line in range(LINES)],
            "operator": [f"aten::operator_{line}" for line in range(LINES)],
            "count": [float(line) for line in range(LINES)],
            "step_ns": noise.normal(1e5, 1e3, LINES),
        },
        schema=WORK,
    )
    return replace(
        made,
        world_size=ranks,
        groups=(RankGroup("group0", "group0", None, ranks, tuple(range(ranks))),),
        collectives=collectives,
        work=work,
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        measure_rank(sys.argv[2]) if Path(sys.argv[2]).is_file() else measure(sys.argv[2])
    else:
        for size in sys.argv[1:] or SIZES:
            subprocess.run([sys.executable, __file__, "--one", size], check=True)
