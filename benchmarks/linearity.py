"""Measure whether cost grows linearly with the trace: time and memory per event at several sizes.

There are two tables. The first has a given trace, repeated to several sizes (by `benchmarks/ingest.py`), per event
relative to a trace of one event and, in brackets, per further event relative to the previous size, without the fixed
cost of any real trace. The second has event streams that no real program makes, at one size and at four times that
size, where a ratio of about 4 is linear. It uses CPU time of whole processes, which varies less between machines than
wall time, and the least of several runs, as short runs leave a small difference.

    python benchmarks/linearity.py [TRACE] [--mb 50 200 1000] [--events 100000] [--runs 3]
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ingest import COMMANDS, run, written_apart

Event = dict[str, Any]
KINETO = {"id": 0, "name": "NVIDIA A100-SXM4-80GB", "numSms": 108, "computeMajor": 8, "computeMinor": 0}


def launch(start: int, correlation: int, name: str = "cudaLaunchKernel", tid: int = 1) -> Event:
    """Return a runtime call of 3 us."""
    return span("cuda_runtime", name, 1, tid, start, 3, correlation=correlation)


def kernel(start: int, duration: int, correlation: int, stream: int = 7) -> Event:
    """Return a kernel."""
    return span(
        "kernel", "k", 0, stream, start, duration, device=0, context=1, stream=stream, correlation=correlation
    )  # fmt: skip


def span(category: str, name: str, pid: int, tid: int, start: int, duration: int, **args: Any) -> Event:
    """Return a complete event."""
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": start,
        "dur": duration,
        "args": args,
    }


def arrow(phase: str, category: str, number: int, pid: int, tid: int, start: int) -> Event:
    """Return one end of an arrow."""
    return {"ph": phase, "cat": category, "name": category, "id": number, "pid": pid, "tid": tid, "ts": start}


def one_stream(n: int) -> Iterator[Event]:
    """Yield kernels back to back on one stream."""
    for i in range(n):
        yield from (launch(10 * i, i + 1), kernel(10 * i + 5, 10, i + 1))


def tiny_gaps(n: int) -> Iterator[Event]:
    """Yield a gap after every kernel."""
    for i in range(n):
        yield from (launch(10 * i, i + 1), kernel(10 * i + 5, 4, i + 1))


def graph_launch(n: int) -> Iterator[Event]:
    """Yield one graph launch that enqueues everything."""
    yield launch(0, 1, "cudaGraphLaunch")
    yield from (kernel(10 + 10 * i, 9, 1) for i in range(n))


def deep_stack(n: int) -> Iterator[Event]:
    """Yield stacks of a thousand frames, with launches at their top."""
    for round_ in range(max(1, n // 1_000)):
        begin = 100_000 * round_
        yield from (span("python_function", f"f{i}", 1, 1, begin + i, 9_000 - 2 * i) for i in range(1_000))
        for i in range(20):
            at, number = begin + 1_000 + 10 * i, 20 * round_ + i + 1
            yield from (launch(at, number), kernel(at + 5, 4, number))


def crossing(n: int) -> Iterator[Event]:
    """Yield operators without any nesting."""
    yield from (span("cpu_op", f"op{i % 5}", 1, 1, 10 * i, 10 * n) for i in range(n))
    yield from (event for i in range(50) for event in (launch(10 * i, i + 1), kernel(10 * i + 5, 4, i + 1)))


def one_arrow_id(n: int) -> Iterator[Event]:
    """Yield arrows of one id between calls and kernels of one instant."""
    for _ in range(n):
        yield from (launch(10, 0), kernel(50, 4, 0), arrow("s", "ac2g", 1, 1, 1, 10), arrow("f", "ac2g", 1, 0, 7, 50))


def one_correlation(n: int) -> Iterator[Event]:
    """Yield calls and kernels that all have one correlation id."""
    yield from (event for i in range(n) for event in (launch(10 * i, 1), kernel(10 * i + 5, 4, 1)))


def many_steps(n: int) -> Iterator[Event]:
    """Yield a step for every ten events."""
    for i in range(n // 10):
        yield span("user_annotation", f"ProfilerStep#{i}", 1, 1, 100 * i, 95)
        for j in range(4):
            yield from (launch(100 * i + 20 * j, 4 * i + j + 1), kernel(100 * i + 20 * j + 5, 9, 4 * i + j + 1))


def many_threads(n: int) -> Iterator[Event]:
    """Yield a thread for every launch."""
    yield from (e for i in range(n) for e in (launch(10 * i, i + 1, tid=i), kernel(10 * i + 5, 4, i + 1)))


STREAMS: tuple[Callable[[int], Iterator[Event]], ...] = (
    one_stream, tiny_gaps, graph_launch, deep_stack, crossing, one_arrow_id, one_correlation, many_steps, many_threads,
)  # fmt: skip


def write(events: Iterator[Event], path: Path) -> int:
    """Write a trace with the events; return their number."""
    count = 0
    with path.open("w") as file:
        file.write(json.dumps({"deviceProperties": [KINETO]})[:-1] + ', "traceEvents": [\n')
        for event in events:
            file.write((",\n" if count else "") + json.dumps(event))
            count += 1
        file.write("\n]}")
    return count


def least(name: str, path: Path, runs: int) -> tuple[float, float]:
    """Return CPU seconds and peak memory (bytes) of a command, the least of several runs."""
    _, cpu, peak = zip(*(run(sys.executable, COMMANDS[name], path) for _ in range(runs)), strict=True)
    return min(cpu), min(peak)


def main() -> None:
    """Print both tables; the first only for a given trace."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path, nargs="?")
    parser.add_argument("--mb", type=float, nargs="+", default=[50, 200, 1000])
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        write(one_stream(1), path)
        base = {name: least(name, path, options.runs) for name in ("load", "analyze")}
        if options.trace:
            print("| MB | events | load us / event | analyze us / event | load bytes / event | analyze bytes / event |")
            print("|---|---|---|---|---|---|")
            previous, smaller = base, 0
            for megabytes in options.mb:
                count = written_apart(options.trace, path, megabytes, "native")
                cost = {name: least(name, path, options.runs) for name in base}
                per_event = [
                    f"{scale * (cost[name][of] - base[name][of]) / count:.1f}"
                    f" ({scale * (cost[name][of] - previous[name][of]) / max(count - smaller, 1):.1f})"
                    for of, scale in enumerate((1e6, 1))
                    for name in base
                ]
                print(f"| {megabytes:g} | {count:,} | {' | '.join(per_event)} |", flush=True)
                previous, smaller = cost, count
        print("\n| stream | events | analyze CPU s | at 4 x | ratio |\n|---|---|---|---|---|")
        for stream in STREAMS:
            count = write(stream(options.events), path)
            once = least("analyze", path, options.runs)[0] - base["analyze"][0]
            write(stream(4 * options.events), path)
            fourfold = least("analyze", path, options.runs)[0] - base["analyze"][0]
            name = stream.__name__.replace("_", " ")
            ratio = f"{fourfold / once:.1f}" if once >= 0.1 else "too short"
            print(f"| {name} | {count:,} | {once:.2f} | {fourfold:.2f} | {ratio} |", flush=True)


if __name__ == "__main__":
    main()
