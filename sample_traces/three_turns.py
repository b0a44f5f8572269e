"""Speed up a training program in three turns, each guided by the report: the story of the README, on a CPU.

``python sample_traces/three_turns.py`` records each version, and prints its step without the profiler and the first
advice of the report. It needs torch and no GPU. The faults are common ones: samples that are prepared one by one, an
activation composed of elementary operators, and data that NumPy made float64.
"""

import argparse
from collections.abc import Callable
from functools import partial
from statistics import median

import torch
from torch import Tensor, nn

import trace_analyzer as ta

WIDTH, LAYERS, BATCH = 32, 6, 4096


def normalized_by_row(rows: Tensor) -> Tensor:
    """Normalize each sample separately, like a dataset's ``__getitem__``."""
    return torch.stack([(row - row.mean()) / row.std() for row in rows])


def normalized(rows: Tensor) -> Tensor:
    """Normalize all samples at once."""
    return (rows - rows.mean(1, keepdim=True)) / rows.std(1, keepdim=True)


def gelu_by_formula(x: Tensor) -> Tensor:
    """Return the tanh form of GELU, one operator after the other."""
    return 0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def program(turn: int) -> Callable[[], None]:
    """Return the training step after this many turns: 0 has all three faults."""
    torch.manual_seed(0)
    prepare = normalized_by_row if turn < 1 else normalized
    activation = gelu_by_formula if turn < 2 else partial(nn.functional.gelu, approximate="tanh")
    dtype = torch.float64 if turn < 3 else torch.float32
    layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH, dtype=dtype) for _ in range(LAYERS))
    optimizer = torch.optim.Adam(layers.parameters(), lr=0.001, fused=True)
    samples, target = torch.randn(BATCH, WIDTH, dtype=dtype), torch.randn(BATCH, WIDTH, dtype=dtype)

    def step() -> None:
        x = prepare(samples)
        for layer in layers:
            x = activation(layer(x))
        optimizer.zero_grad()
        nn.functional.mse_loss(x, target).backward()
        optimizer.step()

    return step


TURNS = ("as it was", "all samples at once", "F.gelu, not its formula", "float32, not float64")


def measured(turn: int, steps: int, repeats: int) -> tuple[float, int, str]:
    """Return the median step without the profiler (ms), operator calls per step, and the first advice, if any."""
    times, calls, first = [], 0, ""
    for _ in range(repeats):
        step = program(turn)
        with ta.profile(steps=steps, level="standard") as profiler:
            while profiler.trace is None and profiler.failure is None:
                step()
                profiler.step()
        times.append(profiler.measured_step_ms or 0.0)
        calls = profiler.report.tables["operators"]["count"].sum() // steps
        first = next((item.title for item in profiler.report.advice), "nothing")
    return median(times), calls, first


def main() -> None:
    """Print one line per turn."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=10)
    options.add_argument("--repeats", type=int, default=5)
    chosen = options.parse_args()
    torch.set_num_threads(1)
    print(f"{'turn':<26}{'step':>10}{'against':>9}{'operators':>11}   what the report says to change first")
    start = 0.0
    for turn, what in enumerate(TURNS):
        step_ms, calls, first = measured(turn, chosen.steps, chosen.repeats)
        start = start or step_ms
        print(f"{what:<26}{step_ms:>7.2f} ms{start / step_ms:>8.1f}x{calls:>11,}   {first}", flush=True)


if __name__ == "__main__":
    main()
