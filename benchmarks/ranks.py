"""How long a job is judged, and what memory that takes, by ranks and collectives: from summaries, without reading traces.

``python benchmarks/ranks.py [RANKS x COLLECTIVES ...]``, by default ``8x400 64x400 1000x400``. Each size runs in a process of its own.
Summaries are made from `tests/made_ranks.py`: one rank is late, clocks of hosts differ.
"""

import resource
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STEPS = 10
SIZES = ("8x400", "64x400", "1000x400")


def measure(size: str) -> None:
    """Print seconds and peak memory of judging a job of this size."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    from made_ranks import MS, job, summaries

    from trace_analyzer.ranks.job import judge

    ranks, collectives = map(int, size.split("x"))
    everybody = [list(range(ranks))]
    program = [("work", MS), ("meet", everybody)] * (collectives // STEPS)
    made = job(ranks, STEPS, program, lambda rank, step: 60 * MS * (rank == ranks // 2), offsets={"host1": 3 * MS})
    contents = summaries(made)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started, used = time.perf_counter(), time.process_time()
    report = judge(contents)
    seconds, cpu = time.perf_counter() - started, time.process_time() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert [straggler.rank for straggler in report.stragglers] == [ranks // 2]
    print(
        f"{ranks:>6} ranks x {collectives:>5}: {seconds:6.2f} s, {cpu:6.2f} CPU s, {ranks / seconds:8.0f} ranks/s, peak {peak / 1024:6.0f} MB"
        f" ({before / 1024:.0f} MB before), {sum(map(len, contents)) / ranks / 1e3:.1f} kB a rank"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        measure(sys.argv[2])
    else:
        for size in sys.argv[1:] or SIZES:
            subprocess.run([sys.executable, __file__, "--one", size], check=True)
