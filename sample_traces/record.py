"""Record real samples with torch: small workloads with a known limit.

``python record.py FOLDER`` records on the GPU if there is one, else ``cpu_mlp.json.gz`` on the CPU. Data that could
identify the machine is removed from a recording. `gpu_workloads/` has those of an H200.
"""

import gzip
import json
import re
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn import functional

import trace_analyzer as ta

STEPS = 6
MAX_BYTES = 20 << 20
"""Limit on the total size of the samples."""

Step = Callable[[], object]


@dataclass(frozen=True)
class Workload:
    """Hold a step to repeat, and its limit on a GPU.

    ``make(device, scale)`` prepares the step; ``scale`` 1 is meant for a data-centre GPU, and a small fraction of it
    runs anywhere. A regime of None means no expectation: the workload is a variant of another, for comparison.
    """

    make: Callable[[str, float], Step]
    regime: str | None
    cause: str | None = None


def _size(full: int, scale: float) -> int:
    """Return a width or a length: a multiple of 8, at least 8."""
    return max(8, int(full * scale) // 8 * 8)


def _training(model: torch.nn.Module, inputs: torch.Tensor, *, compiled: bool = False) -> Step:
    model = torch.compile(model) if compiled else model
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=False)

    def step() -> None:
        optimizer.zero_grad()
        model(inputs).float().square().mean().backward()
        optimizer.step()

    return step


def _tiny_mlp(device: str, scale: float) -> tuple[torch.nn.Module, torch.Tensor]:
    width = _size(128, scale)
    layers = [layer for _ in range(12) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    return torch.nn.Sequential(*layers).to(device), torch.randn(32, width, device=device)


def tiny_mlp(device: str, scale: float) -> Step:
    """Return the training of twelve narrow layers, in which each kernel is shorter than its launch."""
    return _training(*_tiny_mlp(device, scale))


def tiny_mlp_compiled(device: str, scale: float) -> Step:
    """Return the same with compiled passes and the uncompiled optimizer."""
    return _training(*_tiny_mlp(device, scale), compiled=True)


def tiny_mlp_graph(device: str, scale: float) -> Step:
    """Return the same forward and backward pass, replayed as a CUDA graph; unchanged without CUDA."""
    step = tiny_mlp(device, scale)
    if device != "cuda":
        return step
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def cos_chain(device: str, scale: float) -> Step:
    """Return the article's ``x.cos().cos()``, with four passes over memory where two suffice."""
    x = torch.randn(_size(1 << 27, scale), device=device)
    return lambda: x.cos().cos()


def cos_chain_compiled(device: str, scale: float) -> Step:
    """Return the same, fused by torch.compile."""
    x = torch.randn(_size(1 << 27, scale), device=device)
    chain = torch.compile(lambda value: value.cos().cos())
    return lambda: chain(x)


def layer_norm(device: str, scale: float) -> Step:
    """Return the normalization of a large tensor."""
    width = _size(4096, scale)
    x = torch.randn(_size(1 << 15, scale), width, device=device, dtype=torch.bfloat16)
    return lambda: functional.layer_norm(x, (width,))


def layer_norm_compiled(device: str, scale: float) -> Step:
    """Return the same, compiled by torch.compile."""
    return torch.compile(layer_norm(device, scale))


def matmul(device: str, scale: float) -> Step:
    """Return matmuls of large bf16 matrices."""
    size = _size(8192, scale)
    left, right = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))

    def step() -> None:
        for _ in range(4):
            left @ right

    return step


def _transformer(device: str, scale: float) -> tuple[torch.nn.Module, torch.Tensor]:
    width, heads = _size(4096, scale), 8 if scale < 1 else 32
    block = torch.nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
    inputs = torch.randn(8, _size(2048, scale), width, device=device, dtype=torch.bfloat16)
    return block.to(device, torch.bfloat16), inputs


def transformer(device: str, scale: float) -> Step:
    """Return a wide transformer block in bf16, forward and backward."""
    return _training(*_transformer(device, scale))


def transformer_compiled(device: str, scale: float) -> Step:
    """Return the same, compiled."""
    return _training(*_transformer(device, scale), compiled=True)


def item_in_the_loop(device: str, scale: float) -> Step:
    """Return ``.item()`` after each few matmuls, which empties the queue each time."""
    size = _size(1024, scale)
    x = torch.randn(size, size, device=device)

    def step() -> float:
        total = 0.0
        for _ in range(20):
            for _ in range(4):
                y = (x @ x).relu()
            total += y.sum().item()
        return total

    return step


class _Slow(torch.utils.data.Dataset[torch.Tensor]):
    """Provide a dataset that takes a millisecond per item."""

    def __init__(self, width: int) -> None:
        self.width = width

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, _: int) -> torch.Tensor:
        time.sleep(1e-3)
        return torch.ones(self.width)


def slow_loader(device: str, scale: float) -> Step:
    """Return a data loader without workers that decodes for longer than the device computes."""
    width = _size(2048, scale)
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(4))).to(device)
    batches = iter(torch.utils.data.DataLoader(_Slow(width), batch_size=16))

    def step() -> None:
        model(next(batches).to(device)).sum().backward()

    return step


def pageable_copies(device: str, scale: float) -> Step:
    """Return batches in pageable memory, copied before each short computation."""
    batch = torch.randn(_size(1 << 26, scale))
    return lambda: batch.to(device).mul(2.0) if device != "cpu" else batch.clone().mul(2.0)


WORKLOADS: Mapping[str, Workload] = {
    "tiny-mlp": Workload(tiny_mlp, "overhead-bound", "launch"),
    "tiny-mlp_cuda-graph": Workload(tiny_mlp_graph, None),
    "tiny-mlp_compiled": Workload(tiny_mlp_compiled, None),
    "cos-chain": Workload(cos_chain, "memory-bandwidth-bound"),
    "cos-chain_compiled": Workload(cos_chain_compiled, "memory-bandwidth-bound"),
    "layer-norm": Workload(layer_norm, "memory-bandwidth-bound"),
    "layer-norm_compiled": Workload(layer_norm_compiled, "memory-bandwidth-bound"),
    "matmul": Workload(matmul, "compute-bound"),
    "transformer": Workload(transformer, "compute-bound"),
    "transformer_compiled": Workload(transformer_compiled, "compute-bound"),
    "item": Workload(item_in_the_loop, "overhead-bound", "synchronization"),
    "slow-loader": Workload(slow_loader, "overhead-bound", "data-loading"),
    "pageable-copies": Workload(pageable_copies, "communication-bound", "copies"),
}


def record(workload: Workload, path: Path, device: str, scale: float = 1.0, steps: int = STEPS) -> None:
    """Record a workload; the trace contains the time of a step without the profiler."""
    torch.manual_seed(0)
    step = workload.make(device, scale)
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "trace.json"
        with ta.profile(steps=steps, level="standard", trace=raw) as profiler:
            for _ in range(profiler.needed):
                step()
                profiler.step()
        if profiler.failure:
            raise OSError(profiler.failure)
        trace = anonymous(json.loads(raw.read_text()))
    path.write_bytes(gzip.compress(json.dumps(trace).encode(), mtime=0))


def record_ddp(rank: int, path: str, device: str, scale: float, rendezvous: str, steps: int = STEPS) -> None:
    """Record one of two data-parallel ranks whose gradients take longer to reduce than to compute."""
    import torch.distributed as distributed

    distributed.init_process_group(
        "nccl" if device == "cuda" else "gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2
    )
    if device == "cuda":
        torch.cuda.set_device(rank)

    def make(device: str, scale: float) -> Step:
        width = _size(8192, scale)
        model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(4))).to(device)
        return _training(torch.nn.parallel.DistributedDataParallel(model), torch.randn(8, width, device=device))

    record(Workload(make, "communication-bound", "collectives"), Path(path.format(rank=rank)), device, scale, steps)
    distributed.barrier()
    distributed.destroy_process_group()


def record_mlp(path: Path) -> None:
    """Record ``cpu_mlp.json.gz``: the training of an MLP on one CPU thread."""
    torch.set_num_threads(1)

    def make(device: str, _: float) -> Step:
        widths = [torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 128), torch.nn.ReLU()]
        model = torch.nn.Sequential(*widths, torch.nn.Linear(128, 10)).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        inputs, labels = torch.randn(32, 64), torch.randint(0, 10, (32,))

        def step() -> None:
            optimizer.zero_grad()
            torch.autograd.backward(functional.cross_entropy(model(inputs), labels))
            optimizer.step()

        return step

    record(Workload(make, None), path, "cpu", steps=3)


_ABSOLUTE_PATH = re.compile(r"(?<![\w.])/(?:[\w.+-]+/)+")
_KEPT_HEADER = (
    "schemaVersion",
    "trace_analyzer",
    "deviceProperties",
    "distributedInfo",
    "record_shapes",
    "displayTimeUnit",
    "baseTimeNanoseconds",
    "traceEvents",
)


def anonymous(trace: dict[str, object]) -> dict[str, object]:
    """Return the trace without absolute paths, and without header entries that could identify the machine."""
    kept = {key: trace[key] for key in _KEPT_HEADER if key in trace}
    text = _ABSOLUTE_PATH.sub("", json.dumps(kept))
    stripped: dict[str, object] = json.loads(text)
    return stripped


def record_alone(_: int, name: str, path: Path) -> None:
    """Record a workload in this process, which recorded nothing before."""
    record(WORKLOADS[name], path, "cuda")


def row(name: str, path: Path) -> str:
    """Return a line of a table: the workload's purpose, its verdict, and its step without the profiler."""
    report, expected = ta.analyze(path), WORKLOADS[name]
    verdict, settings = report.verdict, report.trace.settings
    step_ms = settings and settings.measured_step_ms
    wanted, verdict = (
        " ".join(word for word in words if word) or "not promised"
        for words in ((expected.regime, expected.cause), (verdict.regime or verdict.status, verdict.cause))
    )
    return f"| `{name}` | {wanted} | {verdict} | {'' if step_ms is None else f'{step_ms:.3f} ms'} |"


def main(folder: Path) -> None:
    """Record the workloads that this machine supports."""
    if not torch.cuda.is_available():
        record_mlp(folder / "cpu_mlp.json.gz")
        return
    print("| workload | expected | verdict | step without the profiler |\n|---|---|---|---|")
    for name in WORKLOADS:
        path = folder / f"gpu_{name}.json.gz"
        torch.multiprocessing.spawn(record_alone, args=(name, path), nprocs=1)
        print(row(name, path), flush=True)
    if torch.cuda.device_count() > 1:
        with tempfile.TemporaryDirectory() as shared:
            path = str(folder / "gpu_ddp_rank{rank}.json.gz")
            arguments = (path, "cuda", 1.0, f"{shared}/rendezvous")
            torch.multiprocessing.spawn(record_ddp, args=arguments, nprocs=2)
    size = sum(path.stat().st_size for path in folder.glob("*.json.gz"))
    if size > MAX_BYTES:
        sys.exit(f"the samples hold {size:,} bytes: record fewer steps")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
