"""Record ground truth for `analyze whatif`: programs before and after a change, and their steps without the profiler.

Recording needs only torch and a GPU; comparing needs only trace_analyzer. `gpu_truth/` has programs of torch 2.11 on an H200.

    python sample_traces/record_truth.py record OUT [--sizes tiny small large] [--changes sync ...] [--seconds 480]
    python sample_traces/record_truth.py compare OUT

Each program leaves a trace, `SIZE_PROGRAM.json.gz`, and a row of `truth.json`: mean and spread of its step, in ms. It is
timed and then recorded in a process of its own: CUPTI stays attached after a recording, and slows the CPU. `compare`
prints the prediction from the trace before next to the measurement after, and how far equal programs differ.
"""

import argparse
import gzip
import json
import math
import multiprocessing
import platform
import shutil
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Step = Callable[[], None]

SIZES: Mapping[str, Mapping[str, int]] = {
    "tiny": {"width": 256, "layers": 12, "batch": 32},
    "small": {"width": 1024, "layers": 12, "batch": 512},
    "large": {"width": 4096, "layers": 4, "batch": 1024},
}
"""Launch-bound, intermediate, and compute-bound on a large GPU."""
LOADING_MS = 8.0
HEADS = SEQUENCES = 8
DEVIATIONS = 2.0
"""A prediction is within the noise if the measured step is at most so many standard deviations from the interval."""
WARM_UP = 8
GROUPS, GROUP_SECONDS, MAX_STEPS = 6, 0.25, 60
"""Steps are timed in groups with one synchronization each."""
FULL_NAME = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


@dataclass(frozen=True)
class Program:
    """Describe how a training step is written; the defaults are the usual start or result of changes."""

    sync: bool = False
    nonzero: bool = False
    load_ms: float = 0.0
    copy: str | None = None
    optimizer: str = "single"
    tf32: bool = False
    bf16: bool = False
    graph: bool = False
    compiled: str | None = None
    attention: str | None = None
    batch_factor: int = 1

    @property
    def options(self) -> dict[str, Any]:
        """Return what differs from the defaults."""
        return dict(vars(self).items() - vars(Program()).items())

    @property
    def name(self) -> str:
        """Return a name for files."""
        return "_".join(key if value is True else f"{key}-{value}" for key, value in self.options.items()) or "plain"


@dataclass(frozen=True)
class Pair:
    """Hold a program before and after a change, and the options of `trace_analyzer.whatif` for predicting it."""

    before: Program
    after: Program
    whatif: Mapping[str, Any]


CHANGES: Mapping[str, Pair] = {
    "sync": Pair(Program(sync=True), Program(), {"no_sync": True}),
    "nonzero": Pair(Program(nonzero=True), Program(), {"no_sync": True}),
    "data": Pair(Program(load_ms=LOADING_MS), Program(), {"prefetch": 8}),
    "pageable": Pair(Program(copy="pageable"), Program(copy="pinned"), {"pinned": True}),
    "graph": Pair(Program(), Program(graph=True), {"graphs": True, "fuse": "optimizer"}),
    "fused_optimizer": Pair(Program(), Program(optimizer="fused"), {"fuse": "optimizer"}),
    "foreach_optimizer": Pair(Program(), Program(optimizer="foreach"), {"fuse": "optimizer"}),
    "tf32": Pair(Program(), Program(tf32=True), {"tf32": True}),
    "bf16": Pair(Program(), Program(bf16=True), {"bf16": True}),
    "batch2x": Pair(Program(), Program(batch_factor=2), {"batch": 2}),
    "compile": Pair(Program(), Program(compiled="default"), {"fuse": "chain"}),
    "compile_graphs": Pair(Program(), Program(compiled="reduce-overhead"), {"graphs": True}),
    "attention": Pair(Program(attention="written-out"), Program(attention="sdpa"), {"fuse": "attention"}),
}
REPEATS = 2
"""How often the usual program is measured again, for the noise of the measurement."""


def step_of(program: Program, device: str, width: int, layers: int, batch: int) -> Step:
    """Return one training step of residual blocks with Adam, ready to be called."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    cuda = device == "cuda"
    if cuda:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = program.tf32

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.up, self.down = (
                nn.LayerNorm(width),
                nn.Linear(width, 4 * width),
                nn.Linear(4 * width, width),
            )

        def forward(self, x: Any) -> Any:
            return x + self.down(nn.functional.gelu(self.up(self.norm(x)), approximate="tanh"))

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(width, 3 * width)

        def forward(self, x: Any) -> Any:
            q, k, v = self.qkv(x).view(SEQUENCES, -1, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
            if program.attention == "sdpa":
                y = nn.functional.scaled_dot_product_attention(q, k, v)
            else:
                y = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(width // HEADS), -1) @ v
            return x + y.transpose(1, 2).reshape(x.shape)

    kinds = (Block, Attention) if program.attention else (Block,)
    model = nn.Sequential(*(kind() for _ in range(layers) for kind in kinds)).to(device)
    x = torch.randn(batch * program.batch_factor, width, device=device)
    flags = {"fused": {"fused": True}, "foreach": {"foreach": True}, "single": {"foreach": False}}[program.optimizer]
    adam = torch.optim.Adam(model.parameters(), capturable=program.graph and cuda, **flags)
    host = torch.randn(x.shape)
    host = host.pin_memory() if program.copy == "pinned" and cuda else host
    net = torch.compile(model, mode=program.compiled) if program.compiled else model

    def train() -> Any:
        adam.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled=program.bf16):
            loss = net(x).square().mean()
        loss.backward()
        adam.step()
        return loss

    replay = _captured(train) if program.graph and cuda else None

    def step() -> None:
        if program.load_ms:
            with torch.profiler.record_function(FULL_NAME):
                until = time.perf_counter() + program.load_ms / 1e3
                while time.perf_counter() < until:
                    pass
        if program.copy:
            x.copy_(host, non_blocking=program.copy == "pinned")
        if replay is not None:
            replay()
            return
        loss = train()
        if program.sync:
            loss.item()
        if program.nonzero:
            (x > 2).nonzero()

    return step


def _captured(train: Callable[[], Any]) -> Step:
    """Return the replay of a CUDA graph of a step."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            train()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        train()
    return graph.replay


def _wait(device: str) -> None:
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


def timed(step: Step, device: str) -> dict[str, Any]:
    """Return mean and spread of the step without the profiler, ms, over groups of steps of about `GROUP_SECONDS` each."""
    for _ in range(WARM_UP):
        step()
    _wait(device)
    start = time.perf_counter()
    step()
    _wait(device)
    count = max(3, min(MAX_STEPS, int(GROUP_SECONDS / max(time.perf_counter() - start, 1e-4))))
    groups = []
    for _ in range(GROUPS):
        start = time.perf_counter()
        for _ in range(count):
            step()
        _wait(device)
        groups.append((time.perf_counter() - start) / count * 1e3)
    return {"mean_ms": statistics.mean(groups), "sd_ms": statistics.stdev(groups), "steps": count * GROUPS}


def traced(step: Step, device: str, path: Path) -> None:
    """Record six steps after a warm-up, with shapes, as a gzip file."""
    import torch

    kinds = [torch.profiler.ProfilerActivity.CPU]
    kinds += [torch.profiler.ProfilerActivity.CUDA] if device == "cuda" else []
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "trace.json"
        with torch.profiler.profile(
            activities=kinds, record_shapes=True, schedule=torch.profiler.schedule(wait=1, warmup=2, active=6),
            on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(plain)),
        ) as profiler:  # fmt: skip
            for _ in range(9):
                step()
                profiler.step()
        _wait(device)
        with plain.open("rb") as source, gzip.open(path, "wb") as target:
            shutil.copyfileobj(source, target)


def measured(program: Program, device: str, dimensions: Mapping[str, int], path: Path | None) -> dict[str, Any]:
    """Return the facts and the step of a program without the profiler, and then record it to ``path``."""
    import torch

    step = step_of(program, device, **dimensions)
    row = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        **timed(step, device),
    }
    if path is not None:
        traced(step, device, path)
        row["trace"] = path.name
    return row


def record(
    out: Path, device: str, sizes: Iterable[str], changes: Iterable[str], seconds: float = math.inf
) -> list[dict[str, Any]]:
    """Record programs until ``seconds`` are spent, each in a process of its own; return the rows of `truth.json`.

    A program that fails (out of memory, no fused optimizer) leaves its error in the row, and no trace.
    """
    out.mkdir(parents=True, exist_ok=True)
    pairs = [CHANGES[change] for change in changes]
    programs = list(dict.fromkeys(side for pair in pairs for side in (pair.before, pair.after)))
    began = time.monotonic()
    rows: list[dict[str, Any]] = []
    for size in sizes:
        for number, program in enumerate([*programs, *[Program()] * REPEATS]):
            if time.monotonic() - began > seconds:
                print(f"time is up before {size} {program.name}")
                return rows
            path = out / f"{size}_{program.name}.json.gz" if number < len(programs) else None
            row = {"size": size, "options": program.options}
            try:
                with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
                    row |= process.submit(measured, program, device, SIZES[size], path).result()
            except (RuntimeError, ValueError) as error:
                row["error"] = f"{type(error).__name__}: {error}"[:300]
            rows.append(row)
            (out / "truth.json").write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")
    return rows


@dataclass(frozen=True)
class Compared:
    """Hold a prediction of the replay with the measurement; ``reason`` is why it was refused.

    ``noise`` is the standard deviation of the logarithm of the ratio of two steps of one program.
    """

    size: str
    change: str
    now_ms: float
    measured_ms: float
    noise: float
    predicted_ms: float | None = None
    low_ms: float = math.nan
    high_ms: float = math.nan
    reason: str | None = None

    @property
    def is_inside(self) -> bool:
        """Return whether the measured step is within the interval."""
        return self.low_ms <= self.measured_ms <= self.high_ms

    @property
    def is_within_noise(self) -> bool:
        """Return whether the measured step is within the interval, or as near to it as steps of one program are."""
        factor = math.exp(DEVIATIONS * self.noise)
        return self.low_ms / factor <= self.measured_ms <= self.high_ms * factor


Measured = Mapping[tuple[str, Program], list[Mapping[str, Any]]]


def measurements(rows: Iterable[Mapping[str, Any]]) -> Measured:
    """Return the rows of `truth.json` that have a step, by size and program."""
    found = defaultdict(list)
    for row in rows:
        if "mean_ms" in row:
            found[row["size"], Program(**row["options"])].append(row)
    return found


def noise(found: Measured) -> dict[str, float]:
    """Return the noise of a ratio of two steps by size, from programs measured more than once; nothing without any.

    A step deviates as much as it does between processes, or between the groups of steps within one: the larger.
    """
    between: dict[str, list[float]] = defaultdict(list)
    within: dict[str, list[float]] = defaultdict(list)
    for (size, _), rows in found.items():
        if len(rows) > 1:
            variance = statistics.variance(math.log(row["mean_ms"]) for row in rows)
            between[size] += [variance] * (len(rows) - 1)
            within[size] += [(row["sd_ms"] / row["mean_ms"]) ** 2 for row in rows]
    return {size: math.sqrt(2 * max(map(statistics.mean, (between[size], within[size])))) for size in between}


def compare(out: Path) -> list[Compared]:
    """Return the predictions from the trace of each pair's program before.

    Recording slows the CPU: the predictions are those for the step before that was measured without the profiler.
    """
    import trace_analyzer as ta
    from trace_analyzer.units import NS_PER_MS

    compared = []
    found = measurements(json.loads((out / "truth.json").read_text()))
    noises = noise(found)
    reports = {
        key: ta.analyze(out / row["trace"], measured_step_ms=row["mean_ms"])
        for key, (row, *_) in found.items()
        if "trace" in row and any(pair.before == key[1] for pair in CHANGES.values())
    }
    for (size, before), report in reports.items():
        now_ms = found[size, before][0]["mean_ms"]
        for change, pair in CHANGES.items():
            if pair.before != before or (size, pair.after) not in found:
                continue
            result = ta.whatif(report, **pair.whatif)
            head = (size, change, now_ms, found[size, pair.after][0]["mean_ms"], noises.get(size, 0.0))
            if result.predicted is None:
                compared.append(Compared(*head, reason=result.reason))
                continue
            then = result.predicted
            compared.append(Compared(*head, *(ns / NS_PER_MS for ns in (then.step_ns, then.low_ns, then.high_ns))))
    return compared


def conclusion(rows: list[Compared]) -> str:
    """Return how many predictions hold what was measured, and how far off they are."""
    predicted = [row for row in rows if row.predicted_ms is not None]
    inside, near = (sum(getattr(row, name) for row in predicted) for name in ("is_inside", "is_within_noise"))
    off = [abs(row.predicted_ms / row.measured_ms - 1) for row in predicted if row.predicted_ms]
    return (
        f"{inside} of {len(predicted)} measured steps inside the interval, {near} inside or within {DEVIATIONS:g} deviations\n"
        f"predicted steps are off by {statistics.median(off or [0]):.1%} in the median; {len(rows) - len(predicted)} refused"
    )


def main(arguments: list[str] | None = None) -> None:
    """Record or compare, as the command line requests."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["record", "compare"])
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--changes", nargs="+", default=list(CHANGES), choices=list(CHANGES))
    parser.add_argument("--seconds", type=float, default=480)
    options = parser.parse_args(arguments)
    if options.verb == "record":
        import torch

        if options.device == "cuda" and not torch.cuda.is_available():
            parser.error("torch finds no GPU; --device cpu tries the script without one")
        record(options.out, options.device, options.sizes, options.changes, options.seconds)
        return
    if not (options.out / "truth.json").is_file():
        parser.error(f"{options.out} holds no truth.json: record first")
    rows = compare(options.out)
    for row in rows:
        said = (
            f"predicted {row.predicted_ms:.3f} ({row.low_ms:.3f} to {row.high_ms:.3f})"
            if row.predicted_ms is not None
            else f"refused: {row.reason}"
        )
        print(f"{row.size:6} {row.change:18} {row.now_ms:8.3f} -> {row.measured_ms:8.3f} ms, {said}")
    for size, deviation in {row.size: row.noise for row in rows}.items():
        print(f"{size}: measured steps of equal programs differ by {deviation:.2%} (standard deviation of a ratio)")
    print(conclusion(rows))


if __name__ == "__main__":
    main()
