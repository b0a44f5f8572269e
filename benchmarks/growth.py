"""Measure how cost grows in each dimension of a trace (`ranks.py`: of a job): CPU time at one size and at four times that size.

The streams are what no real program makes. CPU time of whole processes, less that of a trace of one launch, is the
least of several runs. The exponent is the logarithm to base 4 of the ratio: 1.0 is linear, n log n about 1.05 to 1.1.

    python benchmarks/growth.py [--events 20000] [--runs 2] [--only NAME ...] [--commands analyze page compare whatif]
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from math import log
from pathlib import Path
from typing import Any

from ingest import run

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


def pairs(n: int, **more: Callable[[int], Any]) -> Iterator[Event]:
    """Yield launches with their kernels; ``more`` gives fields of the i-th kernel or of its call (tid, pid)."""
    for i in range(n):
        call, work = launch(10 * i, i + 1), kernel(10 * i + 5, 4, i + 1)
        for name, value in more.items():
            if name in ("tid", "pid"):
                call[name] = value(i)
            elif name == "name":
                work[name] = value(i)
            else:
                work["args"][name] = value(i)
        yield from (call, work)


def nested(n: int, category: str, name: str) -> Iterator[Event]:
    """Yield n events, each within the one before it, around a few launches."""
    yield from (span(category, f"{name}{i % 50}", 1, 1, i, 3 * n - 2 * i, **{"Python id": i + 1}) for i in range(n))
    yield from (event for i in range(60) for event in (launch(n + i, i + 1), kernel(n + i + 5, 1, i + 1)))


def graph_launches(n: int) -> Iterator[Event]:
    """Yield graph launches of four kernels each."""
    for i in range(n // 4):
        yield launch(50 * i, i + 1, "cudaGraphLaunch")
        yield from (kernel(50 * i + 10 * j + 5, 8, i + 1) for j in range(4))


def collectives(n: int) -> Iterator[Event]:
    """Yield collectives with messages, beside computation."""
    for i in range(n):
        yield span(
            "cpu_op", "c10d::allreduce_", 1, 1, 20 * i, 9, **{"Collective name": "allreduce", "In msg nelems": i}
        )
        yield from (launch(20 * i + 1, i + 1), kernel(20 * i + 5, 9, i + 1, 20) | {"name": "ncclDevKernel_AllReduce"})


def fixed_steps(n: int) -> Iterator[Event]:
    """Yield eight steps with all launches."""
    yield from (span("user_annotation", f"ProfilerStep#{i}", 1, 1, 10 * n * i // 8, 10 * n // 8 - 1) for i in range(8))
    yield from pairs(n)


def waits(n: int) -> Iterator[Event]:
    """Yield a synchronize after every launch."""
    for i in range(n):
        yield from (launch(20 * i, i + 1), kernel(20 * i + 5, 8, i + 1))
        yield span("cuda_runtime", "cudaDeviceSynchronize", 1, 1, 20 * i + 4, 12)


def copies(n: int) -> Iterator[Event]:
    """Yield copies of pageable memory that block."""
    for i in range(n):
        yield launch(20 * i, i + 1, "cudaMemcpyAsync")
        copied = kernel(20 * i + 5, 8, i + 1) | {"cat": "gpu_memcpy", "name": "Memcpy HtoD (Pageable -> Device)"}
        copied["args"]["bytes"] = 4096
        yield copied


def operators(n: int) -> Iterator[Event]:
    """Yield a launch in each of n operators with a name and shapes of its own."""
    for i, event in enumerate(pairs(n)):
        if i % 2 == 0:
            shapes = [[i + 1, 64], [64, 64]]
            yield span(
                "cpu_op", f"my::op{i}", 1, 1, event["ts"] - 1, 8, **{"Input Dims": shapes, "Input type": ["float"] * 2}
            )
        yield event


def zeros(n: int) -> Iterator[Event]:
    """Yield launches of which every third kernel has lost its time."""
    for i, event in enumerate(pairs(n)):
        yield event | {"ts": 0, "dur": 0} if i % 6 == 1 else event | {"ts": event["ts"] + 10**12}


def paths(n: int) -> Iterator[Event]:
    """Yield frames of Windows, whose backslashes PyTorch did not escape, between launches."""
    for i, event in enumerate(pairs(n)):
        yield event
        yield span("python_function", f"C:\\torch\\_{i}.py(1): f", 1, 1, 20 * i, 3)


def memory(n: int) -> Iterator[Event]:
    """Yield allocations and frees beside launches."""
    yield from pairs(60)
    for i in range(n):
        size = 512 if i % 2 == 0 else -512
        yield {
            "ph": "i",
            "cat": "cpu_instant_event",
            "name": "[memory]",
            "pid": 1,
            "tid": 1,
            "ts": 10 * i,
            "s": "t",
            "args": {"Bytes": size, "Device Type": 1, "Device Id": 0, "Total Allocated": 512, "Total Reserved": 1024},
        }


STREAMS: dict[str, Callable[[int], Iterator[Event]]] = {
    "kernels back to back": one_stream,
    "gaps": pairs,
    "kernels of one graph launch": graph_launch,
    "graph launches": graph_launches,
    "stacks of a thousand frames": deep_stack,
    "operators that cross": crossing,
    "operators nested": lambda n: nested(n, "cpu_op", "aten::op"),
    "frames nested": lambda n: nested(n, "python_function", "f.py(1): f"),
    "modules nested": lambda n: nested(n, "python_function", "nn.Module: M_"),
    "annotations nested": lambda n: nested(n, "user_annotation", "part"),
    "arrows of one id": one_arrow_id,
    "launches of one id": one_correlation,
    "steps": many_steps,
    "launches in eight steps": fixed_steps,
    "threads": lambda n: pairs(n, tid=lambda i: i),
    "processes": lambda n: pairs(n // 10, pid=lambda i: i),
    "streams": lambda n: pairs(n, stream=lambda i: i),
    "contexts": lambda n: pairs(n // 10, context=lambda i: i),
    "devices": lambda n: pairs(n // 100, device=lambda i: i),
    "devices in charts": lambda n: pairs(n, device=lambda i: i % max(1, n // 20)),
    "operators and shapes": operators,
    "names of kernels": lambda n: pairs(n, name=lambda i: f"k{i}"),
    "collectives": collectives,
    "waits": waits,
    "copies": copies,
    "kernels without a time": zeros,
    "allocations": memory,
    "backslashes without an escape": paths,
}
COMMANDS = {
    "analyze": ["-m", "trace_analyzer", "--no-report"],
    "page": ["-m", "trace_analyzer", "-o", "/dev/null"],
    "compare": ["-c", "import sys; from trace_analyzer import compare; compare(sys.argv[1], sys.argv[1]).to_json()"],
    "whatif": ["-c", "import sys; from trace_analyzer import whatif; whatif(sys.argv[1])"],
}


def write(events: Iterator[Event], path: Path) -> int:
    """Write a trace with the events; return their number."""
    count = 0
    with path.open("w") as file:
        file.write(json.dumps({"deviceProperties": [KINETO]})[:-1] + ', "traceEvents": [\n')
        for event in events:
            file.write((",\n" if count else "") + json.dumps(event).replace(r"\\", "\\"))  # only `paths` has any
            count += 1
        file.write("\n]}")
    return count


def main() -> None:
    """Print a row for each stream."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--only", nargs="*", choices=STREAMS, default=list(STREAMS))
    parser.add_argument("--commands", nargs="*", choices=COMMANDS, default=["analyze"])
    options = parser.parse_args()
    print("| stream | events | command | CPU s | at 4 x | exponent |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")

        def cost(command: str) -> float:
            return min(run(sys.executable, COMMANDS[command], path)[1] for _ in range(options.runs))

        write(one_stream(1), path)
        base = {command: cost(command) for command in options.commands}
        for name in options.only:
            count = write(STREAMS[name](options.events), path)
            once = {command: cost(command) - base[command] for command in options.commands}
            write(STREAMS[name](4 * options.events), path)
            for command in options.commands:
                fourfold = cost(command) - base[command]
                exponent = f"{log(fourfold / once[command], 4):.2f}" if once[command] >= 0.1 else "too short"
                row = (name, f"{count:,}", command, f"{once[command]:.2f}", f"{fourfold:.2f}", exponent)
                print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
