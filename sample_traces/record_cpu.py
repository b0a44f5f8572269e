"""Record ``cpu_mlp.json.gz``: a real CPU-only torch.profiler trace of a tiny MLP's training steps.

Needs torch. A recording differs from run to run; what could name the machine is taken out of it.
"""

import gzip
import json
import re
import tempfile
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule

STEPS = 3
_ABSOLUTE_PATH = re.compile(r"(?<![\w.])/(?:[\w.+-]+/)+")
_KEPT_HEADER = (
    "schemaVersion",
    "deviceProperties",
    "record_shapes",
    "displayTimeUnit",
    "baseTimeNanoseconds",
    "traceEvents",
)


def record(path: Path) -> None:
    """Train for a few steps and write the profiler's trace."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 128),
        torch.nn.ReLU(),
        torch.nn.Linear(128, 128),
        torch.nn.ReLU(),
        torch.nn.Linear(128, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    inputs, labels = torch.randn(32, 64), torch.randint(0, 10, (32,))

    def train_step() -> None:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        torch.autograd.backward(loss)
        optimizer.step()

    steps = schedule(wait=1, warmup=1, active=STEPS)
    with profile(activities=[ProfilerActivity.CPU], schedule=steps, record_shapes=True) as profiler:
        for _ in range(2 + STEPS):
            train_step()
            profiler.step()
    profiler.export_chrome_trace(str(path))


def anonymous(trace: dict[str, object]) -> dict[str, object]:
    """The trace without absolute paths, and without header entries that could name the machine."""
    kept = {key: trace[key] for key in _KEPT_HEADER if key in trace}
    text = _ABSOLUTE_PATH.sub("", json.dumps(kept))
    stripped: dict[str, object] = json.loads(text)
    return stripped


def main(target: Path) -> None:
    """Record and write the sample."""
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "trace.json"
        record(raw)
        trace = anonymous(json.loads(raw.read_text()))
    target.write_bytes(gzip.compress(json.dumps(trace).encode(), mtime=0))


if __name__ == "__main__":
    main(Path(__file__).parent / "cpu_mlp.json.gz")
