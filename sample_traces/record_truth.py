"""Record ground truth for `analyze whatif`: a program before and after each change, and its step without the profiler.

Recording needs only torch and a GPU; comparing needs only trace_analyzer. `gpu_truth/` has pairs of torch 2.11 on an H200.

    python sample_traces/record_truth.py record OUT [--sizes tiny small large] [--changes sync ...] [--seconds 480]
    python sample_traces/record_truth.py compare OUT

Each pair leaves `SIZE_CHANGE_before.json.gz` and `..._after.json.gz`, and a row of `truth.json`: mean and spread of the
step, in ms, on both sides. `compare` prints the prediction from the trace before next to the measurement after, and how far measurements of equal
programs differ.
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
from collections import defaultdict
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
HEADS = SEQUENCES = 8
DEVIATIONS = 2.0
"""A prediction is within the noise if the measured step is at most so many standard deviations from the interval."""
NS_PER_MS = 1e6
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


@dataclass(frozen=True)
class Pair:
    """Hold a program before and after a change, and the options of `trace_analyzer.whatif` for predicting it."""

    before: Program
    after: Program
    whatif: Mapping[str, Any] = field(default_factory=dict)


CHANGES: Mapping[str, Pair] = {
    "sync": Pair(Program(sync=True), Program(), {"no_sync": True}),
    "nonzero": Pair(Program(nonzero=True), Program(), {"no_sync": True}),
    "data": Pair(Program(load_ms=LOADING_MS), Program(), {"prefetch": 8}),
    "pageable": Pair(Program(copy="pageable"), Program(copy="pinned"), {"pinned": True}),
    "graph": Pair(Program(), Program(graph=True), {"graphs": True}),
    "fused_optimizer": Pair(Program(), Program(optimizer="fused"), {"fuse": "optimizer"}),
    "foreach_optimizer": Pair(Program(), Program(optimizer="foreach"), {"fuse": "optimizer"}),
    "tf32": Pair(Program(), Program(tf32=True), {"tf32": True}),
    "bf16": Pair(Program(), Program(bf16=True), {"bf16": True}),
    "batch2x": Pair(Program(), Program(batch_factor=2), {"batch": 2}),
    "compile": Pair(Program(), Program(compiled="default"), {"fuse": "chain"}),
    "compile_graphs": Pair(Program(), Program(compiled="reduce-overhead"), {"graphs": True}),
    "attention": Pair(Program(attention="written out"), Program(attention="sdpa"), {"fuse": "attention"}),
    "no_change": Pair(Program(), Program()),
}
"""``no_change`` shows the noise of the measurement; `compare` leaves it out."""


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
                    row[side] = {"options": program.options, **timed(step, device)}
                    traced(step, device, out / name)
                    row[side]["trace"] = name
                except (RuntimeError, ValueError) as error:
                    row[side] = {"error": f"{type(error).__name__}: {error}"[:300]}
            rows.append(row)
            (out / "truth.json").write_text(json.dumps(rows, indent=1) + "\n")
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


def noise(rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return the noise of a ratio of two steps by size, over the programs with equal options; nothing without two."""
    logarithms = defaultdict(list)
    for row in rows:
        for side in (row["before"], row["after"]):
            if "mean_ms" in side:
                logarithms[row["size"], json.dumps(side.get("options"))].append(math.log(side["mean_ms"]))
    squares: dict[str, list[float]] = defaultdict(list)
    degrees: dict[str, int] = defaultdict(int)
    for (size, _), values in logarithms.items():
        squares[size] += [(value - statistics.mean(values)) ** 2 for value in values]
        degrees[size] += len(values) - 1
    return {size: math.sqrt(2 * sum(squares[size]) / degrees[size]) for size in squares if degrees[size]}


def compare(out: Path) -> list[Compared]:
    """Return the predictions from the trace of each pair's program before.

    Recording slows the CPU: the predictions are those for the step before that was measured without the profiler.
    """
    import trace_analyzer as ta

    compared = []
    rows = json.loads((out / "truth.json").read_text())
    noises = noise(rows)
    for row in rows:
        before, after, pair = row["before"], row["after"], CHANGES.get(row["change"])
        if pair is None or not pair.whatif or "trace" not in before or "mean_ms" not in after:
            continue
        report = ta.analyze(out / before["trace"], measured_step_ms=before["mean_ms"])
        result = ta.whatif(report, **pair.whatif)
        head = (row["size"], row["change"], before["mean_ms"], after["mean_ms"], noises.get(row["size"], 0.0))
        if result.predicted is None:
            compared.append(Compared(*head, reason=result.reason))
            continue
        then = result.predicted
        compared.append(Compared(*head, *(ns / NS_PER_MS for ns in (then.step_ns, then.low_ns, then.high_ns))))
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
        said = (
            f"predicted {row.predicted_ms:.3f} ({row.low_ms:.3f} to {row.high_ms:.3f})"
            if row.predicted_ms is not None
            else f"refused: {row.reason}"
        )
        print(f"{row.size:6} {row.change:18} {row.now_ms:8.3f} -> {row.measured_ms:8.3f} ms, {said}")
    for size, deviation in {row.size: row.noise for row in rows}.items():
        print(f"{size}: measured steps of equal programs differ by {deviation:.2%} (standard deviation of a ratio)")
    predicted = [row for row in rows if row.predicted_ms is not None]
    inside, near = (sum(getattr(row, name) for row in predicted) for name in ("is_inside", "is_within_noise"))
    print(
        f"{inside} of {len(predicted)} measured steps inside the interval, {near} inside or within {DEVIATIONS:g} deviations"
    )
    if predicted:
        off = statistics.median(abs(row.predicted_ms / row.measured_ms - 1) for row in predicted if row.predicted_ms)
        print(f"the predicted step is off by {off:.1%} in the median; {len(rows) - len(predicted)} refused")


if __name__ == "__main__":
    main()
