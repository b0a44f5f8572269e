"""Simulate programs before and after a change that the replay predicts, for every edge and change."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import Any

from make_samples import ADD_FLOAT, ALL_REDUCE, BF16, FP32, GEMM, MULTIPLY, Eager, elementwise, kernel_ns
from simulator import Costs, Kernel, Simulation, Stream, Tensor, Thread

from trace_analyzer.replay.changes import Change

STEPS = 8
RELU_KERNEL = elementwise(ADD_FLOAT)
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


reaches, slower = 1.0, 1.0
"""Of the current pair: the share of its roof that a kernel reaches after the change, and the slowdown of other work."""


@dataclass(frozen=True)
class Pair:
    """Describe a program by its random choices and whether it is changed, with the changes that predict it."""

    program: Callable[[random.Random, bool], Simulation]
    changes: tuple[Change, ...]
    drops: str | None = None
    """A category of events missing in the recording."""
    reached: float = 1.0
    """Least share of a best case that the changed program reaches; a value is drawn for each seed."""

    def before(self, seed: int) -> bytes:
        """Return the trace before the change."""
        return self._trace(seed, False)

    def after(self, seed: int) -> bytes:
        """Return the trace after the change."""
        return self._trace(seed, True)

    def _trace(self, seed: int, changed: bool) -> bytes:
        global reaches, slower
        share = random.Random(-seed).uniform(self.reached, 1.0)
        reaches, slower = share, 1 + (1 - share) / 2
        simulation = self.program(random.Random(seed), changed)
        reaches = slower = 1.0
        simulation.records = [record for record in simulation.records if record.category != self.drops]
        return simulation.json().encode()


def faster(target: str, factor: float = 2.0) -> Change:
    return Change("speedup", {"target": target, "factor": factor})


def steps(simulation: Simulation, main: Thread, step: Callable[[int], None]) -> Simulation:
    """Simulate a loop of steps, synchronized at the end, and return the simulation."""
    main.spend(200_000)
    for number in range(STEPS):
        with main.step(number):
            step(number)
    main.synchronize_device()
    return simulation


def gemm(ns: int) -> Kernel:
    return Kernel(GEMM[BF16], ns, (432, 1, 1), (256, 1, 1))


def pointwise(ns: int) -> Kernel:
    return Kernel(RELU_KERNEL, ns, (4_096, 1, 1), (128, 1, 1))


def op(main: Thread, name: str, kernel: Kernel, stream: Stream, before_ns: int = 4_000, **launch: Any) -> Any:
    """Run an operator that launches one kernel."""
    with main.op(name, before_ns=before_ns):
        return main.launch(kernel, stream, **launch)


def products(main: Thread, stream: Stream, kernels: list[int], before_ns: int = 4_000) -> None:
    """Run a product for each of these durations."""
    for ns in kernels:
        op(main, "aten::mm", gemm(ns), stream, before_ns)


def beginning(rng: random.Random, **options: Any) -> tuple[Simulation, Thread, Stream]:
    """Return a simulation, its main thread and its stream."""
    simulation = Simulation(seed=rng.randrange(1_000), **options)
    return simulation, simulation.thread(), simulation.stream()


def synchronized(rng: random.Random, changed: bool) -> Simulation:
    """Simulate a loop in which a number is read back after every block of operators."""
    simulation, main, stream = beginning(rng)
    kernels = [rng.randint(20_000, 120_000) for _ in range(24)]
    think = rng.randint(100_000, 400_000)
    pageable = rng.random() < 0.5

    def step(_: int) -> None:
        for at in range(0, 24, 6):
            products(main, stream, kernels[at : at + 6])
            with main.op("aten::item"), main.op("aten::_local_scalar_dense"):
                main.memcpy("DtoH", 4, stream, pageable=pageable and not changed)
                if not changed:
                    main.synchronize(stream)
            main.spend(think)

    return steps(simulation, main, step)


def returning(rng: random.Random, changed: bool) -> Simulation:
    """Simulate blocks of operators; the CPU waits for each, in four ways, then works; or kernels twice as fast."""
    simulation, main, stream = beginning(rng)
    kernels = [rng.randint(40_000, 160_000) // (2 if changed else 1) for _ in range(24)]
    think = rng.randint(100_000, 400_000)
    waits = (
        lambda: main.synchronize(stream),
        main.synchronize_device,
        lambda: main.memcpy("DtoH", 4, stream, pageable=True),
        lambda: main.free(60_000),
    )

    def step(_: int) -> None:
        for at, wait in enumerate(waits):
            products(main, stream, kernels[6 * at : 6 * at + 6])
            with main.op("aten::item"):
                wait()
            main.spend(think)

    return steps(simulation, main, step)


def moving(rng: random.Random, changed: bool) -> Simulation:
    """Simulate copies from pageable memory, which block; after the change, links are twice as fast."""
    simulation, main, stream = beginning(rng)
    kernels = [rng.randint(10_000, 40_000) for _ in range(24)]
    size = rng.randint(4 << 20, 9 << 20)

    def step(_: int) -> None:
        for at in range(0, 24, 8):
            with main.op("aten::copy_"):
                # A copy takes 1.2 us, plus its bytes divided by the bandwidth.
                rate = size / ((1_200 + size / 6) / 2 - 1_200) if changed else 6.0
                main.memcpy("HtoD", size, stream, pageable=True, gb_per_s=rate)
            products(main, stream, kernels[at : at + 8])

    return steps(simulation, main, step)


def uploading(copies_ns: int, rng: random.Random, changed: bool) -> Simulation:
    """Simulate copies from pinned memory before the kernels on their stream, or of the next batch on a stream of their own."""
    simulation, main, stream = beginning(rng)
    side = simulation.stream(number=20)
    kernels = [rng.randint(100_000, 200_000) for _ in range(8)]
    size = rng.randint(copies_ns // 2, copies_ns) * 20

    def step(_: int) -> None:
        with main.op("aten::copy_"):
            main.memcpy("HtoD", size, side if changed else stream, gb_per_s=20.0)
        products(main, stream, [round(ns * slower) if changed else ns for ns in kernels])

    return steps(simulation, main, step)


def loading(rng: random.Random, changed: bool) -> Simulation:
    """Simulate batches loaded in the loop, or by workers that are fast enough."""
    simulation, main, stream = beginning(rng)
    kernels = [rng.randint(50_000, 200_000) for _ in range(40)]
    load = rng.randint(3_000_000, 9_000_000)

    def step(_: int) -> None:
        with main.annotation(LOADER, cause="data-loading"):
            main.spend(0 if changed else load)
        main.memcpy("HtoD", 1 << 20, stream)
        products(main, stream, kernels)

    return steps(simulation, main, step)


def _loading(rng: random.Random, loader: str, batch: Callable[[Simulation, int], tuple[int, int | None]]) -> Simulation:
    """Simulate a loop over batches.

    ``batch`` returns how long after the last batch the next one is ready, and how long the loop loads it itself.
    """
    simulation, main, stream = beginning(rng)
    kernels = [rng.randint(20_000, 60_000) for _ in range(20)]
    load, ready = rng.randint(6_000_000, 9_000_000), [0]

    def step(_: int) -> None:
        with main.annotation(loader, cause="data-loading"):
            after, alone = batch(simulation, load)
            ready[0] = max(ready[0], begun) + after
            main._advance(max(0, ready[0] - main.now_ns) if alone is None else alone, "data-loading")
        products(main, stream, kernels)

    begun = main.now_ns
    return steps(simulation, main, step)


def loading_slowly(rng: random.Random, changed: bool) -> Simulation:
    """Simulate batches that two workers cannot load as fast as the loop consumes them."""

    def batch(simulation: Simulation, load: int) -> tuple[int, int | None]:
        loaded = sum(simulation.jittered(load // 100) for _ in range(100))
        return loaded // 2, None if changed else loaded

    return _loading(rng, LOADER, batch)


def loading_by_workers(rng: random.Random, changed: bool) -> Simulation:
    """Simulate batches that workers cannot load as fast as the loop could go, or twice as many workers."""
    loader = LOADER.replace("SingleProcess", "MultiProcessing")
    return _loading(rng, loader, lambda _, load: (load // (8 if changed else 4), None))


def copying(rng: random.Random, changed: bool) -> Simulation:
    """Simulate pageable copies that block, or pinned ones that do not; some pinned copies show the bandwidth."""
    simulation, main, stream = beginning(rng)
    kernels = [rng.randint(40_000, 120_000) for _ in range(30)]
    size, staging = rng.randint(2 << 20, 8 << 20), rng.randint(100_000, 600_000)

    def step(_: int) -> None:
        main.memcpy("HtoD", 2 << 20, stream)
        for at in range(0, 30, 10):
            with main.op("aten::copy_"):
                if changed:
                    main.memcpy("HtoD", size, stream)
                else:
                    main.memcpy("HtoD", size, stream, pageable=True, gb_per_s=6.0, staging_ns=staging)
            products(main, stream, kernels[at : at + 10])

    return steps(simulation, main, step)


def staging(change: str, rng: random.Random, changed: bool) -> Simulation:
    """Simulate pageable copies whose calls wait for the device and return before them; or pinned ones, or faster products."""
    simulation, main, stream = beginning(rng)
    kernels = [rng.randint(40_000, 120_000) // (2 if changed and change == "matmul" else 1) for _ in range(30)]
    size, think = rng.randint(2 << 20, 8 << 20), rng.randint(300_000, 900_000)

    def step(_: int) -> None:
        main.memcpy("HtoD", 2 << 20, stream)
        products(main, stream, kernels)
        with main.op("aten::copy_"):
            if changed and change == "pinned":
                main.memcpy("HtoD", size, stream)
            else:
                main.memcpy("HtoD", size, stream, pageable=True, gb_per_s=6.0, early_ns=60_000)
                if change == "pinned":
                    main.synchronize(stream)
        main.spend(think)

    return steps(simulation, main, step)


def launching(rng: random.Random, changed: bool) -> Simulation:
    """Simulate many small operators, or one CUDA graph of their kernels."""
    costs = Costs(graph_call_ns=round(10_000 / reaches), graph_node_ns=round(1_000 / reaches))
    simulation, main, stream = beginning(rng, costs=costs, python_frames=True)
    kernels = [pointwise(rng.randint(3_000, 15_000)) for _ in range(60)]
    seam = rng.randint(5_000, 20_000)

    def step(_: int) -> None:
        if changed:
            main.launch_graph(kernels, stream)
            return
        with main.frame("train.py(3): step", before_ns=seam):
            for kernel in kernels:
                op(main, "aten::add", kernel, stream, rng.randint(4_000, 9_000))

    return steps(simulation, main, step)


def host(longest_ns: int, rng: random.Random, changed: bool) -> Simulation:
    """Simulate a loop that the CPU limits, forward and on autograd's thread; the change makes the CPU twice as fast."""
    costs = Costs()
    if changed:
        halved = ("launch_call_ns", "copy_call_ns", "small_call_ns", "wake_up_ns", "hand_over_ns")
        costs = replace(costs, host_factor=0.5, **{name: getattr(costs, name) // 2 for name in halved})
    simulation = Simulation(costs=costs, seed=rng.randrange(1_000))
    main, autograd, stream = simulation.thread(), simulation.thread("pt_autograd_0"), simulation.stream()
    kernels = [rng.randint(2_000, longest_ns) for _ in range(30)]
    seam = rng.randint(20_000, 90_000)

    def step(_: int) -> None:
        main.spend(seam)
        sequences = [simulation.next_sequence() for _ in kernels]
        for ns, sequence in zip(kernels, sequences, strict=True):
            with main.op("aten::mm", before_ns=8_000, sequence=sequence):
                main.launch(gemm(ns), stream)
        with main.hand_over(autograd):
            for ns, sequence in zip(kernels, sequences, strict=True):
                with autograd.backward_op("MmBackward0", sequence):
                    autograd.launch(gemm(ns), stream)

    return steps(simulation, main, step)


def device(rng: random.Random, changed: bool) -> Simulation:
    """Simulate a loop that the device limits; after the change kernels are twice as fast and the CPU limits some."""
    simulation, main, stream = beginning(rng)
    kernels = [rng.randint(15_000, 60_000) // (2 if changed else 1) for _ in range(40)]
    return steps(simulation, main, lambda _: products(main, stream, kernels, 6_000))


def mixed(target: str, rng: random.Random, changed: bool) -> Simulation:
    """Simulate products and additions, in modules; those of the target are twice as fast after the change."""
    simulation, main, stream = beginning(rng, python_frames=True)
    layers = [(rng.randint(30_000, 90_000), rng.randint(20_000, 70_000)) for _ in range(16)]

    def ns(value: int, *names: str) -> int:
        return value // 2 if changed and target in names else value

    def step(_: int) -> None:
        for at, (product, added) in enumerate(layers):
            module = "Linear_0" if at % 2 else "Linear_1"
            with main.frame(f"nn.Module: {module}"):
                op(main, "aten::mm", gemm(ns(product, "matmul", "aten::mm", module)), stream)
            op(main, "aten::add", pointwise(ns(added, "pointwise", "aten::add")), stream)

    return steps(simulation, main, step)


def reducing(rng: random.Random, changed: bool) -> Simulation:
    """Simulate backward kernels, and all-reduces on their own stream that the optimizer awaits; or faster links."""
    simulation = Simulation(seed=rng.randrange(1_000))
    main, stream, links = simulation.thread(), simulation.stream(), simulation.stream(number=20)
    kernels = [rng.randint(60_000, 200_000) for _ in range(24)]
    reduces = [rng.randint(300_000, 700_000) for _ in range(6)]
    message = {"In msg nelems": 1 << 20, "Out msg nelems": 1 << 20, "dtype": "Float", "Group size": 8}
    args = {"Collective name": "allreduce", **message}

    def step(_: int) -> None:
        products(main, stream, kernels)
        done = None
        for at, ns in enumerate(reduces):
            for kernel in kernels[4 * at : 4 * at + 4]:
                op(main, "aten::mm", gemm(kernel), stream)
            with main.op("record_param_comms", args=args):
                main.wait_event(links, main.record_event(stream))
                main.launch(Kernel(ALL_REDUCE, ns // 2 if changed else ns, (24, 1, 1), (512, 1, 1), args=args), links)
                done = main.record_event(links)
        assert done is not None
        main.wait_event(stream, done)
        op(main, "aten::add", pointwise(80_000), stream)

    return steps(simulation, main, step)


def exposing(longest_ns: int, rng: random.Random, changed: bool) -> Simulation:
    """Simulate collectives for which all later work waits, or that overlap with all computation but the last matmul."""
    simulation = Simulation(seed=rng.randrange(1_000))
    main, stream, links = simulation.thread(), simulation.stream(), simulation.stream(number=20)
    kernels = [rng.randint(100_000, 200_000) for _ in range(20)]
    reduces = [rng.randint(longest_ns // 2, longest_ns) for _ in range(4)]

    def step(_: int) -> None:
        for at, ns in enumerate(kernels):
            op(main, "aten::mm", gemm(round(ns * slower) if changed else ns), stream)
            if at % 4 == 3 and at < 16:
                main.wait_event(links, main.record_event(stream))
                main.launch(Kernel(ALL_REDUCE, reduces[at // 4], (24, 1, 1), (512, 1, 1)), links)
                if not changed:
                    main.wait_event(stream, main.record_event(links))

    return steps(simulation, main, step)


def sending(rng: random.Random, changed: bool) -> Simulation:
    """Simulate gradients that are reduced one by one before the optimizer, or all at once: latency and transfer."""
    simulation, main, stream = beginning(rng)
    links, sizes = simulation.stream(number=20), [0, *(rng.randint(1 << 10, 1 << 18) for _ in range(39))]
    messages = [sum(sizes)] if changed else sizes

    def step(_: int) -> None:
        products(main, stream, [100_000] * 4)
        main.wait_event(links, main.record_event(stream))
        for size in messages:
            args = {"Collective name": "allreduce", "In msg nelems": size, "dtype": "Float", "Group size": 8}
            with main.op("record_param_comms", args=args):
                sent = round(size / 16 / (reaches if changed else 1))
                main.launch(Kernel(ALL_REDUCE, 50_000 + sent, (24, 1, 1), (512, 1, 1), args=args), links)
        main.wait_event(stream, main.record_event(links))
        op(main, "aten::mm", gemm(200_000), stream)

    return steps(simulation, main, step)


def recompiling(rng: random.Random, changed: bool) -> Simulation:
    """Simulate code that Dynamo recompiles in each step, or not any more."""
    simulation, main, stream = beginning(rng, python_frames=True)
    kernels = [rng.randint(10_000, 40_000) for _ in range(30)]
    compiling = rng.randint(1_000_000, 3_000_000)

    def step(_: int) -> None:
        for at, ns in enumerate(kernels):
            if not changed and at == 10:
                with main.frame("torch/_dynamo/convert_frame.py(500): _compile", before_ns=compiling):
                    pass
            op(main, "aten::mm", gemm(ns), stream)

    return steps(simulation, main, step)


def pipelined(rng: random.Random, changed: bool) -> Simulation:
    """Simulate a model on two devices: each waits for the other's half; the change makes products twice as fast."""
    simulation = Simulation(devices=2, seed=rng.randrange(1_000))
    main = simulation.thread()
    streams = [simulation.stream(number) for number in (0, 1)]
    kernels = [rng.randint(100_000, 300_000) for _ in range(16)]

    def step(_: int) -> None:
        for at, stream in enumerate(streams):
            for ns in kernels[8 * at : 8 * at + 8]:
                op(main, "aten::mm", gemm(ns // 2 if changed else ns), stream)
            other = streams[1 - at]
            main.wait_event(stream, main.record_event(other))
            main.memcpy("PtoP", 8 << 20, stream, gb_per_s=200.0)
            main.wait_event(other, main.record_event(stream))

    return steps(simulation, main, step)


def queued(rng: random.Random, changed: bool) -> Simulation:
    """Simulate a CPU far ahead: it waits for queue room and works long after the last launch; kernels twice as fast."""
    costs = Costs(queue_limit=rng.choice([512, 700]))
    simulation, main, stream = beginning(rng, costs=costs)
    count, ns = rng.randint(1_100, 1_400), rng.randint(24_000, 32_000)
    after = rng.randint(20_000_000, 26_000_000)

    def step(_: int) -> None:
        for _ in range(count):
            op(main, "aten::add", pointwise(ns // 2 if changed else ns), stream, 1_000)
        main.spend(after)

    return steps(simulation, main, step)


def polling(rng: random.Random, changed: bool) -> Simulation:
    """Simulate a thread that polls memory until a kernel has written it; the change makes kernels twice as fast."""
    simulation, main, stream = beginning(rng)
    before = [rng.randint(400_000, 600_000) for _ in range(4)]
    think = [rng.randint(200_000, 400_000) for _ in range(4)]

    def step(_: int) -> None:
        for ns, pause in zip(before, think, strict=True):
            for _ in range(4):
                op(main, "aten::mm", gemm(ns // 2 if changed else ns), stream)
            written = main.launch(pointwise(10_000 // (2 if changed else 1)), stream)
            main.poll(written, every_ns=10_000)
            with main.op("aten::add"):
                main.spend(pause)

    return steps(simulation, main, step)


def contending(rng: random.Random, changed: bool) -> Simulation:
    """Simulate a kernel that starts when another stream's kernel, twice as fast after the change, leaves SMs."""
    simulation = Simulation(seed=rng.randrange(1_000))
    main, stream, side = simulation.thread(), simulation.stream(), simulation.stream(number=20)
    holders = [rng.randint(600_000, 1_200_000) for _ in range(4)]
    small = rng.randint(150_000, 300_000)

    def step(_: int) -> None:
        for ns in holders:
            done = main.record_event(stream)
            main.wait_event(side, done)
            holder = main.launch(Kernel(ALL_REDUCE, ns // 2 if changed else ns, (432, 1, 1), (512, 1, 1)), side)
            op(main, "aten::mm", gemm(small), stream, behind=holder)
            main.wait_event(stream, main.record_event(side))

    return steps(simulation, main, step)


def once(rng: random.Random, changed: bool) -> Simulation:
    """Simulate memory that is allocated and modules that are loaded in each step, or not any more."""
    simulation, main, stream = beginning(rng)
    kernels = [rng.randint(10_000, 40_000) for _ in range(30)]
    allocation, freeing = rng.randint(300_000, 900_000), rng.randint(100_000, 400_000)

    def step(_: int) -> None:
        for at, ns in enumerate(kernels):
            op(main, "aten::mm", gemm(ns), stream)
            if not changed and at % 10 == 5:
                main.malloc(allocation)
            if not changed and at == 12:
                main.free(freeing)

    return steps(simulation, main, step)


def starting(rng: random.Random, changed: bool) -> Simulation:
    """Simulate two passes from a cold start, or warm ones.

    Each kernel's first launch starts its library in the operator, or loads it in the call; the second pass compiles one
    kernel for two, which run a third time.
    """
    simulation, main, stream = beginning(rng)
    products(main, stream, [5_000], 4_000)
    kernels = [(f"kernel_{number}", rng.randint(5_000, 20_000)) for number in range(12)]
    start = [0 if changed else rng.randint(2_000_000, 9_000_000) for _ in kernels]
    for turn in range(3):
        for number, (name, ns) in enumerate(kernels * 2):
            fused = turn > 0 and number == 5
            first = (turn == 0 and number < len(kernels)) or (turn == 1 and number == 5)
            begin = start[number % len(kernels)] if first else 0
            op(main, "aten::mm", replace(gemm(ns), name=name + "_fused" * fused), stream, 4_000 + begin)
    main.synchronize_device()
    return simulation


def fusing(rng: random.Random, changed: bool) -> Simulation:
    """Simulate chains of additions and products of a tensor, or one kernel per chain with half the traffic or less."""
    simulation = Simulation(header={"record_shapes": 1}, seed=rng.randrange(1_000))
    main = simulation.thread()
    torch = Eager(simulation, main, simulation.stream())
    rows, width = rng.choice([2_048, 4_096]), rng.choice([1_024, 2_048])
    chain = (
        ("aten::mul", MULTIPLY),
        ("aten::add", "at::native::CUDAFunctor_add<c10::BFloat16>"),
        ("aten::mul", MULTIPLY),
    )
    tensor = torch.tensor(rows, width)
    saved = 1 / len(chain)  # every intermediate is written and read once

    def step(_: int) -> None:
        for _ in range(8):
            torch.mm(rows, width, width)
            if changed:
                duration = round(saved * sum(kernel_ns(0, 2 * tensor.bytes) for _ in chain) / reaches)
                with main.op("aten::mul", [tensor], before_ns=3_500):
                    kernel = Kernel("triton_poi_fused_add_mul_0", duration, (ceil(rows * width / 512), 1, 1))
                    main.launch(kernel, torch.stream)
            else:
                for operator, functor in chain:
                    torch.pointwise(operator, functor, rows, width, inputs=1)

    return steps(simulation, main, step)


def narrowing(rng: random.Random, changed: bool) -> Simulation:
    """Simulate FP32 products on vector units, or at TF32's roof."""
    simulation = Simulation(header={"record_shapes": 1}, seed=rng.randrange(1_000))
    main = simulation.thread()
    torch = Eager(simulation, main, simulation.stream(), FP32)
    size = rng.choice([2_048, 3_072])
    flop, moved = 2.0 * size**3, 3 * Tensor((size, size), FP32).bytes
    roof = round(1e9 * max(flop / 156e12, moved / 2.039e12) / reaches)

    def step(_: int) -> None:
        for _ in range(10):
            if changed:
                with main.op("aten::mm", [torch.tensor(size, size)] * 2, before_ns=4_000):
                    main.launch(Kernel("ampere_sgemm_tf32", roof, (432, 1, 1), (256, 1, 1)), torch.stream)
            else:
                torch.mm(size, size, size)
            torch.pointwise("aten::add", ADD_FLOAT, 1_024, 1_024)

    return steps(simulation, main, step)


def halving(rng: random.Random, changed: bool) -> Simulation:
    """Simulate FP32 products on vector units and FP32 traffic, or bfloat16: products at the roof, half the bytes."""
    simulation, main, stream = beginning(rng, header={"record_shapes": 1})
    wide, narrow = (Eager(simulation, main, stream, dtype) for dtype in (FP32, BF16))
    size = rng.choice([2_048, 3_072])
    flop, moved = 2.0 * size**3, 3 * Tensor((size, size), BF16).bytes
    roof = round(1e9 * max(flop / 312e12, moved / 2.039e12))

    def step(_: int) -> None:
        for _ in range(6):
            if changed:
                with main.op("aten::mm", [narrow.tensor(size, size)] * 2, before_ns=4_000):
                    main.launch(Kernel(GEMM[BF16], roof, (432, 1, 1), (256, 1, 1)), stream)
            else:
                wide.mm(size, size, size)
            for _ in range(4):
                (narrow if changed else wide).pointwise("aten::add", ADD_FLOAT, 4_096, 4_096)

    return steps(simulation, main, step)


def batching(rng: random.Random, changed: bool) -> Simulation:
    """Simulate a batch twice as big for long blocks, four of which fit on a multiprocessor by their registers.

    Whole waves take twice as long, half of one as long; grids that do not depend on the batch take twice as long.
    """
    simulation, main, stream = beginning(rng)
    times = 2 if changed else 1
    full = [(rng.randint(200_000, 400_000), rng.randint(1, 4)) for _ in range(8)]
    half, persistent, channels = (rng.randint(200_000, 400_000) for _ in range(3))
    size = rng.randint(4 << 20, 9 << 20)

    def step(_: int) -> None:
        with main.annotation(LOADER, cause="data-loading"):
            main.spend(200_000 * times)
        with main.op("aten::copy_"):
            main.memcpy("HtoD", size * times, stream, pageable=True)
        for ns, waves in full:
            blocks = times * waves * 4 * 108
            op(main, "aten::add", Kernel(RELU_KERNEL, times * waves * ns, (blocks, 1, 1), registers=128), stream)
        op(main, "aten::add", Kernel(RELU_KERNEL, half, (times * 2 * 108 - 1, 1, 1), registers=128), stream)
        op(main, "aten::add", Kernel(RELU_KERNEL, times * persistent, (2 * 108, 1, 1), registers=128), stream)
        op(main, "aten::native_batch_norm", Kernel(RELU_KERNEL, times * channels, (64, 1, 1)), stream)

    return steps(simulation, main, step)


def choosing(rng: random.Random, changed: bool) -> Simulation:
    """Simulate a CPU-limited loop of products that leave SMs empty; for twice the batch, a library chooses others."""
    simulation, main, stream = beginning(rng)
    kernels = [rng.randint(5_000, 8_000) for _ in range(60)]
    longer = 1 + 2 * (1 - reaches) if changed else 1.0

    def step(_: int) -> None:
        for ns in kernels:
            op(main, "aten::mm", replace(gemm(round(ns * longer)), grid=(8, 1, 1)), stream, 5_000)

    return steps(simulation, main, step)


def beside_workers(rng: random.Random, changed: bool) -> Simulation:
    """Simulate a loop limited by the CPU, which loads its data itself or has workers that slow it."""
    costs = Costs(host_factor=slower if changed else 1.0)
    simulation, main, stream = beginning(rng, costs=costs)
    kernels = [rng.randint(5_000, 20_000) for _ in range(40)]
    load = rng.randint(300_000, 900_000)

    def step(_: int) -> None:
        with main.annotation(LOADER, cause="data-loading"):
            main.spend(0 if changed else load)
        products(main, stream, kernels, 12_000)

    return steps(simulation, main, step)


VARIED: Mapping[str, Pair] = {
    "fuse": Pair(fusing, (Change("fuse"),), reached=0.5),
    "tf32": Pair(narrowing, (Change("tf32"),), reached=0.4),
    "graphs": Pair(launching, (Change("graphs"),), reached=0.5),
    "overlap-copies": Pair(partial(uploading, 600_000), (Change("overlap-copies"),), reached=0.8),
    "overlap": Pair(partial(exposing, 600_000), (Change("overlap"),), reached=0.8),
    "buckets": Pair(sending, (Change("buckets"),), reached=0.5),
    "prefetch": Pair(beside_workers, (Change("prefetch", {"workers": 8}),), reached=0.5),
    "batch": Pair(choosing, (Change("batch", {"times": 2.0}),), reached=0.5),
}
"""Changes that reach only a part of their model: fused kernels half of the bandwidth or more, TF32 kernels 40 % of
their roof or more, graphs with gaps and launches up to twice as long, computation up to 10 % slower next to
communication or copies, links half as fast for the sum of messages, a main thread up to 25 % slower next to workers, and other kernels for a bigger batch, up to twice as
long."""

PAIRS: Mapping[str, Pair] = {
    "no-sync": Pair(synchronized, (Change("no-sync"),)),
    "prefetch": Pair(loading, (Change("prefetch", {"workers": 8}),)),
    "prefetch, slow workers": Pair(loading_slowly, (Change("prefetch", {"workers": 2}),)),
    "prefetch, more workers": Pair(loading_by_workers, (Change("prefetch", {"workers": 8}),)),
    "pinned": Pair(copying, (Change("pinned"),)),
    "pinned, calls that wait": Pair(partial(staging, "pinned"), (Change("pinned"),)),
    "staging": Pair(partial(staging, "matmul"), (faster("matmul"),)),
    "graphs": Pair(launching, (Change("graphs"),)),
    "cpu": Pair(partial(host, 14_000), (faster("cpu"),)),
    "hand-over": Pair(partial(host, 3_000), (faster("cpu"),)),
    "gpu": Pair(device, (faster("gpu"),)),
    "bucket": Pair(partial(mixed, "matmul"), (faster("matmul"),)),
    "group": Pair(partial(mixed, "pointwise"), (faster("pointwise"),)),
    "operator": Pair(partial(mixed, "aten::add"), (faster("aten::add"),)),
    "module": Pair(partial(mixed, "Linear_1"), (faster("Linear_1"),)),
    "communication": Pair(reducing, (faster("communication"),)),
    "communication, waits not recorded": Pair(reducing, (faster("communication"),), drops="cuda_sync"),
    "devices": Pair(pipelined, (faster("matmul"),)),
    "devices, waits not recorded": Pair(pipelined, (faster("matmul"),), drops="cuda_sync"),
    "returns": Pair(returning, (faster("gpu"),)),
    "copies": Pair(moving, (faster("copies"),)),
    "queue": Pair(queued, (faster("gpu"),)),
    "polling": Pair(polling, (faster("gpu"),)),
    "contention": Pair(contending, (faster("communication"),)),
    "warm": Pair(once, (Change("warm"),)),
    "warm, from a cold start": Pair(starting, (Change("warm"),)),
    "recompilation": Pair(recompiling, (Change("warm", {"only": "compilation"}),)),
    "overlap-copies": Pair(partial(uploading, 600_000), (Change("overlap-copies"),)),
    "overlap-copies, copies limit": Pair(partial(uploading, 4_000_000), (Change("overlap-copies"),)),
    "overlap": Pair(partial(exposing, 600_000), (Change("overlap"),)),
    "overlap, links limit": Pair(partial(exposing, 3_000_000), (Change("overlap"),)),
    "buckets": Pair(sending, (Change("buckets"),)),
    "fuse": Pair(fusing, (Change("fuse"),)),
    "tf32": Pair(narrowing, (Change("tf32"),)),
    "bf16": Pair(halving, (Change("bf16"),)),
    "batch": Pair(batching, (Change("batch", {"times": 2.0}),)),
}
