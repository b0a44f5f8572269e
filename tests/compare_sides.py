"""Simulated recordings of a training loop with known changes, for tests and benchmarks of comparisons."""

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl
from simulator import Kernel, Simulation, Stream, Tensor, Thread

from trace_analyzer.compare import profiles, statistics

GEMM = "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, x>(int)"
NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int, float, float const*)"

Times = Mapping[str, float]
"""Time a step in ns by line (cause of idle time, bucket) of one recording."""


def times_of(profile: profiles.Profile) -> Times:
    """Return the lines of a recording of one step."""
    return dict(profile.rows.group_by("category", maintain_order=True).agg(pl.col("total_ns").sum()).iter_rows())


def joined(passes: Sequence[Times]) -> Times:
    """Return the lines of one recording with these passes as its steps."""
    return {name: sum(item.get(name, 0.0) for item in passes) / len(passes) for name in {n for p in passes for n in p}}


def is_found(before: Sequence[Times], after: Sequence[Times], change: float = 0.0) -> bool:
    """Return whether the step's test detects a difference between recordings, where AFTER is ``change`` longer."""
    longer = [{name: (1 + change) * ns for name, ns in item.items()} for item in after]
    names = sorted({name for item in (*before, *after) for name in item})
    lines = {n: ([item.get(n, 0.0) for item in before], [item.get(n, 0.0) for item in longer]) for n in names}
    steps = [sum(item.values()) for item in before], [sum(item.values()) for item in longer]
    floor = statistics.FLOOR_RATIO * sum(steps[0]) / len(before)
    return bool(statistics.samples_difference(steps, lines, floor=floor, independent=(True, True))[0].significant)


def splits(passes: Sequence[Times], size: int) -> Iterator[tuple[list[Times], list[Times]]]:
    """Yield every way to make two sides of ``size`` recordings of one pass each."""
    for chosen in itertools.combinations(range(len(passes)), 2 * size):
        for mates in itertools.combinations(chosen[1:], size - 1):
            side = (chosen[0], *mates)
            yield [passes[n] for n in side], [passes[n] for n in chosen if n not in side]


Extra = Callable[[Thread, Stream], None]


def nothing(thread: Thread, stream: Stream) -> None:
    """Do nothing between two steps."""


@dataclass(frozen=True)
class Program:
    """Describe a loop of steps, over layers of a matmul, a normalization and an addition.

    With ``graphed``, the layers are replayed from a graph. Times are in ns, and of the device unless their name says
    otherwise.
    """

    steps: int = 6
    layers: int = 4
    batch: int = 32
    mm_ns: int = 400_000
    norm_ns: int = 60_000
    add_ns: int = 50_000
    adds: int = 1
    host_ns: int = 20_000
    slow_layer: int | None = None
    loading_ns: int = 0
    scatter: float = 0.0
    seed: int = 0
    marked: bool = True
    graphed: bool = False
    extra: Extra = nothing

    def trace(self) -> bytes:
        """Return the recording as a Kineto file."""
        simulation = Simulation(python_frames=True, seed=self.seed)
        thread, stream = simulation.thread(), simulation.stream()
        rng = random.Random(self.seed)
        for number in range(self.steps):
            if self.marked:
                with thread.step(number):
                    self._step(thread, stream, rng)
            else:
                self._step(thread, stream, rng)
        return simulation.json().encode()

    def faster(self, **changes: object) -> "Program":
        """Return the same program with changes."""
        return replace(self, **changes)  # type: ignore[arg-type]

    def _step(self, thread: Thread, stream: Stream, rng: random.Random) -> None:
        factor = 1 + self.scatter * rng.gauss(0, 1)
        if self.graphed:
            layer = [Kernel(GEMM, self.mm_ns, (432, 1, 1)), Kernel(NORM, self.norm_ns, (432, 1, 1))]
            adds = [Kernel(ADD, self.add_ns, (432, 1, 1))] * self.adds
            thread.launch_graph([*layer, *adds] * self.layers, stream)
            self.extra(thread, stream)
            thread.synchronize(stream)
            return
        if self.loading_ns:
            with thread.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"):
                thread.spend(round(self.loading_ns * factor))
        wide = (Tensor((self.batch, 1024)), Tensor((1024, 1024)))
        for layer in range(self.layers):
            with thread.frame(f"nn.Module: Layer_{layer}"):
                self._launch(
                    thread,
                    stream,
                    "aten::mm",
                    GEMM,
                    round(self.mm_ns * factor * (1 + (layer == self.slow_layer))),
                    wide,
                )
                self._launch(thread, stream, "aten::native_layer_norm", NORM, round(self.norm_ns * factor), wide[:1])
                for _ in range(self.adds):
                    self._launch(thread, stream, "aten::add", ADD, round(self.add_ns * factor), wide[:1])
        self.extra(thread, stream)
        thread.synchronize(stream)

    def _launch(
        self, thread: Thread, stream: Stream, operator: str, kernel: str, ns: int, inputs: tuple[Tensor, ...]
    ) -> None:
        with thread.op(operator, inputs, before_ns=self.host_ns):
            thread.launch(Kernel(kernel, ns, (432, 1, 1)), stream)
