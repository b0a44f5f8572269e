"""Measure time and memory of judging a job from summaries, by ranks and collectives.

``python benchmarks/ranks.py [RANKS x COLLECTIVES ...]``, by default `SIZES`. Each size runs in a process of its own.
Summaries are made from `tests/made_ranks.py`: one rank is late, clocks of hosts differ.
"""

import gzip
import json
import resource
import subprocess
import sys
import time
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
from made_ranks import MS, job, summary  # noqa: E402

from trace_analyzer.ranks.groups import RankGroup  # noqa: E402
from trace_analyzer.ranks.job import judge  # noqa: E402
from trace_analyzer.ranks.store import Store  # noqa: E402
from trace_analyzer.ranks.summary import RankSummary, to_bytes  # noqa: E402
from trace_analyzer.ranks.tables import WORK  # noqa: E402

STEPS, LINES, VARIANTS = 10, 60, 32
SIZES = ("8x400", "64x400", "1024x400", "10000x400", "10000x2000")


def measure(size: str) -> None:
    """Print seconds and peak memory of judging a job of this size."""
    ranks, collectives = map(int, size.split("x"))
    everybody = [[0, 1]]
    program = [("work", MS), ("meet", everybody)] * (collectives // STEPS)
    late = ranks // 2
    with Store() as store:
        # Ranks in time are copies of some: summaries take longer to make than to judge.
        made = job(2, STEPS, program, lambda rank, step: 60 * MS * (rank == 1))
        noise = np.random.default_rng(7)
        alike = [to_bytes(of_job(summary(made, 0), ranks, noise)) for _ in range(VARIANTS)]
        slow = to_bytes(of_job(summary(made, 1), ranks, noise))
        for rank in range(ranks):
            store.append(of_rank(slow if rank == late else alike[rank % VARIANTS], rank))
        kilobytes = sum(map(len, store)) / ranks / 1e3
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        started, used = time.perf_counter(), time.process_time()
        report = judge(store)
        seconds, cpu = time.perf_counter() - started, time.process_time() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert [straggler.rank for straggler in report.stragglers] == [late], report.job.sentence
    print(
        f"{ranks:>6} ranks x {collectives:>5}: {seconds:6.2f} s, {cpu:6.2f} CPU s, {ranks / seconds:8.0f} ranks/s, peak {peak / 1024:6.0f} MB"
        f" ({before / 1024:.0f} MB before), {kilobytes:.1f} kB a rank",
        flush=True,
    )


def of_rank(content: bytes, rank: int) -> bytes:
    """Return a summary as that of another rank, on its host's clock."""
    inflater = zlib.decompressobj(wbits=31)
    head = json.loads(inflater.decompress(content))
    head |= {"path": f"trace.rank{rank}.json", "rank": rank, "host": f"host{rank // 8}"}
    head["base_ns"] += 1_000_000 * (rank // 8 % 7)
    return gzip.compress(json.dumps(head).encode() + b"\n", 1) + inflater.unused_data


def of_job(made: RankSummary, ranks: int, noise: np.random.Generator) -> RankSummary:
    """Return a summary with starts and ends that vary by 5 us, and 60 lines of work."""
    count = made.collectives.height
    start, end = (pl.Series(noise.integers(-5_000, 5_000, count)) for _ in range(2))
    collectives = made.collectives.with_columns(
        pl.col("start_ns") + start,
        pl.col("duration_ns") + end - start,
        pl.col("exposed_ns") + end - start,
        pl.lit(ranks, pl.Int64).alias("group_size"),
    )
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
        measure(sys.argv[2])
    else:
        for size in sys.argv[1:] or SIZES:
            subprocess.run([sys.executable, __file__, "--one", size], check=True)
