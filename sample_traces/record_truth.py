"""Record ground truth for `analyze whatif`: a program before and after each change, and its step without the profiler.

Recording needs only torch and a GPU; comparing needs only trace_analyzer. **Nobody has run it on a GPU yet.**

    python sample_traces/record_truth.py record OUT [--sizes tiny small large] [--changes sync ...] [--seconds 480]
    python sample_traces/record_truth.py compare OUT

Each pair leaves `SIZE_CHANGE_before.json.gz` and `..._after.json.gz`, and a row of `truth.json`: mean and spread of the
step, in ms, on both sides. `compare` prints the prediction from the trace before next to the measurement after.
"""

import argparse
import gzip
import json
import math
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Step = Callable[[], None]

SIZES: Mapping[str, Mapping[str, int]] = {
    "tiny": {"width": 256, "layers": 12, "batch": 32},
    "small": {"width": 1024, "layers": 12, "batch": 512},
    "large": {"width": 4096, "layers": 6, "batch": 4096},
}
"""Launch-bound, intermediate, and compute-bound on a large GPU."""
LOADING_MS = 8.0
GROUPS, GROUP_SECONDS, MAX_STEPS = 6, 0.25, 60
"""Steps are timed in groups with one synchronization each."""
FULL_NAME = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


@dataclass(frozen=True)
class Program:
    """Describe how a training step is written; the defaults are the usual start or result of changes."""

    waits: bool = False
    loads: bool = False
    copies: str | None = None
    optimizer: str = "single"
    tf32: bool = False
    bf16: bool = False
    graph: bool = False
    batch_times: int = 1


@dataclass(frozen=True)
class Pair:
    """Hold a program before and after a change, and the options of `trace_analyzer.whatif` for predicting it."""

    before: Program
    after: Program
    whatif: Mapping[str, Any] = field(default_factory=dict)


CHANGES: Mapping[str, Pair] = {
    "sync": Pair(Program(waits=True), Program(), {"no_sync": True}),
    "data": Pair(Program(loads=True), Program(), {"prefetch": 8}),
    "pinned": Pair(Program(copies="pageable"), Program(copies="pinned"), {"pinned": True}),
    "graph": Pair(Program(), Program(graph=True), {"graphs": True}),
    "fused-optimizer": Pair(Program(), Program(optimizer="fused"), {"fuse": True}),
    "tf32": Pair(Program(), Program(tf32=True), {"tf32": True}),
    "bf16": Pair(Program(), Program(bf16=True), {"bf16": True}),
    "batch": Pair(Program(), Program(batch_times=2), {"batch": 2}),
}


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

    model = nn.Sequential(*(Block() for _ in range(layers))).to(device)
    x = torch.randn(batch * program.batch_times, width, device=device)
    flags = {"fused": {"fused": True}, "single": {"foreach": False}}[program.optimizer]
    adam = torch.optim.Adam(model.parameters(), capturable=program.graph and cuda, **flags)
    host = torch.randn(x.shape)
    host = host.pin_memory() if program.copies == "pinned" and cuda else host

    def train() -> Any:
        adam.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled=program.bf16):
            loss = model(x).square().mean()
        loss.backward()
        adam.step()
        return loss

    replay = _captured(train) if program.graph and cuda else None

    def step() -> None:
        if program.loads:
            with torch.profiler.record_function(FULL_NAME):
                until = time.perf_counter() + LOADING_MS / 1e3
                while time.perf_counter() < until:
                    pass
        if program.copies:
            x.copy_(host, non_blocking=program.copies == "pinned")
        if replay is not None:
            replay()
            return
        loss = train()
        if program.waits:
            loss.item()

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
    for _ in range(3):
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
    return {"mean_ms": statistics.mean(groups), "deviation_ms": statistics.stdev(groups), "steps": count * GROUPS}


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


def record(
    out: Path, device: str, sizes: Iterable[str], changes: Iterable[str], seconds: float = math.inf
) -> list[dict[str, Any]]:
    """Record pairs until ``seconds`` are spent, and return the rows of `truth.json`.

    A side that fails (out of memory, no fused optimizer) leaves its error in the row, and no trace.
    """
    import torch

    out.mkdir(parents=True, exist_ok=True)
    facts = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
    }
    began = time.monotonic()
    rows: list[dict[str, Any]] = []
    for size in sizes:
        for change in changes:
            if time.monotonic() - began > seconds:
                print(f"time is up before {size} {change}")
                return rows
            pair = CHANGES[change]
            row: dict[str, Any] = {"size": size, "change": change, **facts}
            for side, program in (("before", pair.before), ("after", pair.after)):
                name = f"{size}_{change}_{side}.json.gz"
                try:
                    step = step_of(program, device, **SIZES[size])
                    row[side] = timed(step, device)
                    traced(step, device, out / name)
                    row[side]["trace"] = name
                except (RuntimeError, ValueError) as error:
                    row[side] = {"error": f"{type(error).__name__}: {error}"[:300]}
            rows.append(row)
            (out / "truth.json").write_text(json.dumps(rows, indent=1) + "\n")
    return rows


@dataclass(frozen=True)
class Compared:
    """Hold a prediction of the replay with the measurement; ``reason`` is why it was refused."""

    size: str
    change: str
    now_ms: float
    predicted_ms: float | None
    low_ms: float | None
    high_ms: float | None
    measured_ms: float
    reason: str | None

    @property
    def is_inside(self) -> bool:
        """Return whether the measured step is within the interval."""
        return self.low_ms is not None and self.high_ms is not None and self.low_ms <= self.measured_ms <= self.high_ms


def compare(out: Path) -> list[Compared]:
    """Return the predictions from the trace of each pair's program before.

    Recording slows the CPU, so the prediction is scaled by the step before without the profiler.
    """
    import trace_analyzer as ta

    compared = []
    for row in json.loads((out / "truth.json").read_text()):
        before, after = row["before"], row["after"]
        if "trace" not in before or "mean_ms" not in after:
            continue
        result = ta.whatif(out / before["trace"], **CHANGES[row["change"]].whatif)
        head = (row["size"], row["change"], before["mean_ms"])
        if result.predicted is None or result.replay is None:
            compared.append(Compared(*head, None, None, None, after["mean_ms"], result.reason))
            continue
        scale = before["mean_ms"] / result.replay.step_ns
        then = result.predicted
        figures = (scale * then.step_ns, scale * then.low_ns, scale * then.high_ns)
        compared.append(Compared(*head, *figures, after["mean_ms"], None))
    return compared


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
        figures = (
            f"{row.predicted_ms:.3f} ({row.low_ms:.3f} to {row.high_ms:.3f})"
            if row.predicted_ms is not None
            else row.reason
        )
        print(f"{row.size:6} {row.change:16} {row.now_ms:8.3f} -> {row.measured_ms:8.3f} ms, predicted {figures}")
    predicted = [row for row in rows if row.predicted_ms is not None]
    print(f"{sum(row.is_inside for row in predicted)} of {len(predicted)} measured steps inside the interval")


if __name__ == "__main__":
    main()
