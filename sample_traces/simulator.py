"""Simulate launching threads and device streams, and write Kineto traces of them.

It makes traces with a known truth: it writes what a PyTorch Profiler would have recorded on the modelled machine, and
`Simulation.truth` returns why each device idled.

The model. A host thread has a clock; operators, Python frames and annotations nest on it and advance it. A
runtime call enqueues work on a stream. Streams are in order: work starts when the call has returned and the
launch latency has passed, when its predecessor on the stream has ended and the inter-kernel latency has
passed, and when every event that the stream waits for has been reached, whichever is last. Calls block as
CUDA's do: a synchronize until the work enqueued before it is done, a pageable copy until the copy is done,
a launch while the stream's queue is full.

Simplifications: streams of one device slow each other down only where a launch specifies it (``behind``), only one
thread runs Python at a time (`Thread.hand_over`), and the profiler costs nothing. Times are integer nanoseconds; jitter
comes from a seeded generator, so a simulation always writes the same bytes.
"""

import gzip
import io
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any, Literal

SYNTHETIC = "made by sample_traces/simulator.py"
BASE_TIME_NS = 1_735_689_600_000_000_000
FIRST_EVENT_NS = 1_000_000_000_000
DEVICE_GAP_LIMIT_NS = 20_000
TAIL_RATIO = 0.1
"""Last part of a kernel in which its blocks no longer fill the device."""

A100: Mapping[str, object] = {
    "name": "NVIDIA A100-SXM4-80GB",
    "totalGlobalMem": 81251 << 20,
    "computeMajor": 8,
    "computeMinor": 0,
    "maxThreadsPerBlock": 1024,
    "maxThreadsPerMultiprocessor": 2048,
    "regsPerBlock": 65536,
    "warpSize": 32,
    "sharedMemPerBlock": 49152,
    "numSms": 108,
    "regsPerMultiprocessor": 65536,
    "sharedMemPerBlockOptin": 166912,
    "sharedMemPerMultiprocessor": 167936,
}

_CBID = {
    "cudaLaunchKernel": 211,
    "cudaMemcpyAsync": 41,
    "cudaMemsetAsync": 51,
    "cudaStreamSynchronize": 131,
    "cudaDeviceSynchronize": 165,
    "cudaMalloc": 20,
    "cudaFree": 22,
    "cudaGraphLaunch": 311,
    "cudaStreamWaitEvent": 147,
    "cudaEventRecord": 135,
    "cudaFuncGetAttributes": 16,
    "cuModuleLoadData": 43,
}
_ITEM_BYTES = {"c10::BFloat16": 2, "c10::Half": 2, "float": 4, "long int": 8, "bool": 1}

CopyKind = Literal["HtoD", "DtoH", "DtoD", "PtoP"]
BoundBy = Literal["launch", "stream", "event", "contention"]
Dims = tuple[int, int, int]


class Input:
    """Hold an operator's input as the profiler records it."""

    dtype: str


@dataclass(frozen=True)
class Tensor(Input):
    """Hold a dense tensor input: its shape and dtype."""

    shape: tuple[int, ...]
    dtype: str = "c10::BFloat16"

    @property
    def bytes(self) -> int:
        """Return the size of the dense tensor."""
        return prod(self.shape) * _ITEM_BYTES[self.dtype]

    @property
    def strides(self) -> list[int]:
        """Return the strides of the dense row-major tensor."""
        return [prod(self.shape[i + 1 :]) for i in range(len(self.shape))]


@dataclass(frozen=True)
class Scalar(Input):
    """Hold any other input: its value and type as recorded by the profiler."""

    value: str
    dtype: str = "Scalar"


@dataclass(frozen=True)
class Kernel:
    """Hold a kernel: its name, its duration on the device, its launch configuration."""

    name: str
    duration_ns: int
    grid: Dims = (1, 1, 1)
    block: Dims = (128, 1, 1)
    registers: int = 32
    shared_memory: int = 0
    args: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Costs:
    """Hold the costs of calls and hand-overs in ns; ``host_factor`` scales all other host work."""

    launch_call_ns: int = 4_500
    copy_call_ns: int = 6_000
    small_call_ns: int = 1_200
    graph_call_ns: int = 25_000
    launch_latency_ns: int = 3_000
    inter_kernel_ns: int = 1_000
    graph_node_ns: int = 800
    wake_up_ns: int = 6_000
    hand_over_ns: int = 12_000
    queue_limit: int = 1_022
    host_factor: float = 1.0


@dataclass
class Stream:
    """Hold an in-order queue of one device. ``free_ns`` is the end of all work enqueued so far."""

    device: int
    number: int
    free_ns: int = 0
    not_before_ns: int = 0
    starts: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class CudaEvent:
    """Hold a point in a stream, reached at ``time_ns``, and the call that recorded it."""

    time_ns: int
    stream: Stream
    correlation: int


@dataclass(frozen=True)
class Activity:
    """Hold an activity of a device, and its last wait before the start."""

    category: str
    name: str
    device: int
    stream: int
    start_ns: int
    end_ns: int
    correlation: int
    call_start_ns: int
    bound_by: BoundBy


@dataclass(frozen=True)
class PlantedGap:
    """Hold an idle interval of a device and the time of each cause in it; the causes sum to the gap.

    The causes have the names of docs/definitions.md as far as the model has them: host causes are the work of the
    simulated program. Queued work of other streams is not considered.
    """

    device: int
    start_ns: int
    end_ns: int
    by_cause_ns: Mapping[str, int]

    @property
    def cause(self) -> str:
        """Return the largest cause of the gap."""
        return max(self.by_cause_ns, key=lambda cause: self.by_cause_ns[cause])


@dataclass(frozen=True)
class _Segment:
    """Hold the work of a host thread in an interval."""

    start_ns: int
    end_ns: int
    cause: str


@dataclass(frozen=True)
class _Wait:
    """Hold a blocking call that waited for a device in an interval."""

    start_ns: int
    end_ns: int


@dataclass
class _Record:
    """Hold one event of the file, with times still in ns."""

    ph: str
    name: str
    pid: int | str
    tid: int | str
    start_ns: int
    category: str | None = None
    duration_ns: int | None = None
    args: dict[str, object] = field(default_factory=dict)
    flow_id: int | None = None

    def text(self) -> str:
        """Return the event in Kineto's format: microseconds with three decimals."""
        parts = [f'"ph": "{self.ph}"']
        parts += [f'"cat": "{self.category}"'] if self.category else []
        parts += [f'"name": {json.dumps(self.name)}', f'"pid": {json.dumps(self.pid)}']
        parts += [f'"tid": {json.dumps(self.tid)}']
        parts += [f'"id": {self.flow_id}'] if self.flow_id is not None else []
        parts += [f'"ts": {_microseconds(self.start_ns)}']
        parts += [f'"dur": {_microseconds(self.duration_ns)}'] if self.duration_ns is not None else []
        parts += ['"bp": "e"'] if self.ph == "f" else []
        parts += ['"s": "g"'] if self.ph == "i" else []
        parts += [f'"args": {json.dumps(self.args, allow_nan=False)}'] if self.args else []
        return "{" + ", ".join(parts) + "}"


def _microseconds(ns: int) -> str:
    return f"{ns // 1_000}.{ns % 1_000:03d}"


def _traffic(size: int, duration_ns: int) -> dict[str, object]:
    return {"bytes": size, "memory bandwidth (GB/s)": round(size / duration_ns, 6)}


class Simulation:
    """Simulate a process with host threads and devices, and the trace of its work."""

    def __init__(
        self,
        *,
        devices: int = 1,
        python_frames: bool = False,
        memory: bool = False,
        costs: Costs | None = None,
        header: Mapping[str, object] | None = None,
        pid: int = 4242,
        seed: int = 0,
    ) -> None:
        self.devices = devices
        self.python_frames = python_frames
        self.memory = memory
        self.costs = costs or Costs()
        self.header = dict(header or {})
        self.pid = pid
        self.activities: list[Activity] = []
        self.records: list[_Record] = []
        self.segments: list[_Segment] = []
        self.waits: list[_Wait] = []
        self.forward: dict[int, tuple[int, int]] = {}
        self.blocks: dict[int, int] = {}
        self._next_address = 0x7F00_0000_0000
        self._reserved_bytes = 0
        self._streams: dict[tuple[int, int], Stream] = {}
        self._threads: list[Thread] = []
        self._random = random.Random(seed)
        self._correlation = 1_000
        self._external_id = 0
        self._python_id = 0
        self._sequence = 0

    def thread(self, name: str = "pt_main_thread") -> "Thread":
        """Return a new host thread; the first one is the process's main thread."""
        number = len(self._threads)
        thread = Thread(self, name, tid=self.pid + 57 * number, number=number + 1)
        self._threads.append(thread)
        return thread

    def stream(self, device: int = 0, number: int = 7) -> Stream:
        """Return the stream with this number, created on first use."""
        return self._streams.setdefault((device, number), Stream(device, number))

    def occupy(self, stream: Stream, ns: int) -> None:
        """Occupy a stream with unrecorded work from before the recording for ``ns`` from the first event on."""
        stream.not_before_ns = max(stream.not_before_ns, FIRST_EVENT_NS + ns)

    def jittered(self, ns: int) -> int:
        """Return a cost with the variation of a real machine: 0.9 to 1.2 times the cost."""
        return round(ns * self._random.uniform(0.9, 1.2))

    def next_correlation(self) -> int:
        """Return an unused correlation id."""
        self._correlation += 1
        return self._correlation

    def next_external_id(self) -> int:
        """Return an unused operator id."""
        self._external_id += 1
        return self._external_id

    def next_python_id(self) -> int:
        """Return an id for a Python frame."""
        self._python_id += 1
        return self._python_id

    def next_sequence(self) -> int:
        """Return an autograd sequence number for a forward operator."""
        self._sequence += 1
        return self._sequence

    def truth(self, device: int) -> list[PlantedGap]:
        """Return every idle interval of a device and the causes of the simulated machine's waiting."""
        by_start = sorted(
            (a for a in self.activities if a.device == device),
            key=lambda a: (a.start_ns, a.call_start_ns, a.stream, a.correlation),
        )
        gaps, reached_ns = [], by_start[0].start_ns if by_start else 0
        for activity in by_start:
            if activity.start_ns > reached_ns:
                causes = self._planted(activity, reached_ns)
                gaps.append(PlantedGap(device, reached_ns, activity.start_ns, causes))
            reached_ns = max(reached_ns, activity.end_ns)
        return gaps

    def trace(self) -> dict[str, Any]:
        """Return the trace as parsed JSON."""
        parsed: dict[str, Any] = json.loads(self.json())
        return parsed

    def json(self) -> str:
        """Return the trace as the text of a Kineto file."""
        properties = [{"id": i, **A100} for i in range(self.devices)]
        header = {"schemaVersion": 1, "synthetic": SYNTHETIC, "deviceProperties": properties, **self.header}
        footer = {"traceName": "trace.json", "displayTimeUnit": "ms", "baseTimeNanoseconds": BASE_TIME_NS}
        in_time = sorted(self.records, key=lambda r: (r.start_ns, -(r.duration_ns or 0)))
        events = ",\n".join(record.text() for record in [*in_time, *self._metadata()])
        head = json.dumps(header, allow_nan=False)[:-1]
        tail = json.dumps(footer, allow_nan=False)[1:]
        return f'{head}, "traceEvents": [\n{events}\n], {tail}\n'

    def gzipped(self) -> bytes:
        """Return the compressed file; the same simulation gives the same bytes."""
        buffer = io.BytesIO()
        with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, mtime=0, compresslevel=9) as file:
            file.write(self.json().encode())
        return buffer.getvalue()

    def write(self, path: Path) -> None:
        """Write the trace, compressed when the name ends in ``.gz``."""
        path.write_bytes(self.gzipped() if path.suffix == ".gz" else self.json().encode())

    def _planted(self, ender: Activity, gap_start_ns: int) -> Mapping[str, int]:
        """Return the time of each cause in the gap that ``ender`` ends."""
        duration_ns = ender.start_ns - gap_start_ns
        if ender.bound_by != "launch":
            waits = ender.bound_by in ("event", "contention") and duration_ns >= DEVICE_GAP_LIMIT_NS
            return {"device-wait" if waits else "device-gap": duration_ns}
        host_end_ns = max(ender.call_start_ns, gap_start_ns)
        waited = (gap_start_ns - w.start_ns for w in self.waits if w.start_ns <= gap_start_ns < w.end_ns)
        blocked_ns = min(max(waited, default=0), host_end_ns - gap_start_ns)
        causes = Counter({"synchronization": blocked_ns})
        for segment in self.segments:
            start_ns = max(segment.start_ns, gap_start_ns + blocked_ns)
            causes[segment.cause] += max(0, min(segment.end_ns, host_end_ns) - start_ns)
        causes["launch-latency"] += ender.start_ns - host_end_ns
        causes["host-unknown"] += duration_ns - causes.total()
        return {cause: ns for cause, ns in causes.items() if ns}

    def _metadata(self) -> Iterator[_Record]:
        """Yield the events that name processes, threads and streams, and those that bound the recording."""
        devices = [(i, f"GPU {i}", 16_777_216 + i) for i in range(self.devices)]
        for pid, label, index in [(self.pid, "CPU", self.pid), *devices]:
            yield _Record("M", "process_name", pid, 0, FIRST_EVENT_NS, args={"name": "python3"})
            yield _Record("M", "process_labels", pid, 0, FIRST_EVENT_NS, args={"labels": label})
            yield _Record("M", "process_sort_index", pid, 0, FIRST_EVENT_NS, args={"sort_index": index})
        threads = [(self.pid, t.tid, f"thread {t.tid} ({t.name})") for t in self._threads]
        streams = [(device, number, f"stream {number} ") for device, number in self._streams]
        for pid, tid, name in [*threads, *streams]:
            yield _Record("M", "thread_name", pid, tid, FIRST_EVENT_NS, args={"name": name})
            yield _Record("M", "thread_sort_index", pid, tid, FIRST_EVENT_NS, args={"sort_index": tid})
        began_ns = FIRST_EVENT_NS - 50_000
        ends = (r.start_ns + (r.duration_ns or 0) for r in self.records)
        ended_ns = max(ends, default=FIRST_EVENT_NS) + 50_000
        profiler, span_ns = "PyTorch Profiler", ended_ns - began_ns
        yield _Record("X", f"{profiler} (0)", "Spans", profiler, began_ns, "Trace", span_ns, {"Op count": 0})
        yield _Record("i", f"Iteration Start: {profiler}", "Traces", f"Trace {profiler}", began_ns)
        yield _Record("i", "Record Window End", "", "", ended_ns)


class Thread:
    """Simulate a host thread: its clock, its open operators and frames, and its calls."""

    def __init__(self, simulation: Simulation, name: str, tid: int, number: int) -> None:
        self.simulation = simulation
        self.name = name
        self.tid = tid
        self.number = number
        self.now_ns = FIRST_EVENT_NS
        self._causes = ["python"]
        self._operators: list[int] = []
        self._frames: list[int | None] = [None]
        self._annotated: list[list[Activity]] = []

    def spend(self, ns: int) -> None:
        """Let the thread work for about this time, which belongs to its innermost event."""
        scaled_ns = round(ns * self.simulation.costs.host_factor)
        self._advance(self.simulation.jittered(scaled_ns), self._causes[-1])

    @contextmanager
    def op(
        self,
        name: str,
        inputs: Sequence[Input] = (),
        *,
        before_ns: int = 2_000,
        after_ns: int = 800,
        sequence: int | None = None,
        args: Mapping[str, object] | None = None,
    ) -> Iterator[None]:
        """Simulate an operator around the calls and operators inside; ``sequence`` is from `next_sequence`."""
        details: dict[str, object] = dict(args or {})
        if sequence is not None:
            details |= {"Sequence number": sequence, "Fwd thread id": 0}
            self.simulation.forward.setdefault(sequence, (self.tid, self.now_ns))
        if inputs:
            details |= {
                "Input Dims": [list(i.shape) if isinstance(i, Tensor) else [] for i in inputs],
                "Input type": [i.dtype for i in inputs],
                "Input Strides": [i.strides if isinstance(i, Tensor) else [] for i in inputs],
                "Concrete Inputs": [i.value if isinstance(i, Scalar) else "" for i in inputs],
            }
        with self._operator(name, details):
            self.spend(before_ns)
            yield
            self.spend(after_ns)

    @contextmanager
    def backward_op(self, name: str, sequence: int, inputs: Sequence[Tensor] = ()) -> Iterator[None]:
        """Simulate the backward node of a forward operator, linked by sequence number and ``fwdbwd`` flow."""
        tie = {"Sequence number": sequence, "Fwd thread id": 1}
        with self._operator(f"autograd::engine::evaluate_function: {name}", dict(tie)):
            self.spend(2_500)
            forward_tid, forward_ns = self.simulation.forward[sequence]
            self._flow("s", "fwdbwd", sequence, self.simulation.pid, forward_tid, forward_ns)
            self._flow("f", "fwdbwd", sequence, self.simulation.pid, self.tid, self.now_ns)
            types = [i.dtype for i in inputs]
            details = tie | {"Input Dims": [list(i.shape) for i in inputs], "Input type": types}
            with self._operator(name, details):
                self.spend(1_500)
                yield
                self.spend(800)
            self.spend(1_000)

    @contextmanager
    def frame(self, name: str, *, before_ns: int = 3_000, after_ns: int = 1_000) -> Iterator[None]:
        """Simulate a Python function, ``file.py(line): name``; recorded when the simulation records frames."""
        python_id, start_ns = self.simulation.next_python_id(), self.now_ns
        parent = self._frames[-1]
        self._frames.append(python_id)
        self._causes.append("python")
        self.spend(before_ns)
        yield
        self.spend(after_ns)
        self._causes.pop()
        self._frames.pop()
        if self.simulation.python_frames:
            details: dict[str, object] = {"Python parent id": parent, "Python id": python_id}
            self._slice("python_function", name, start_ns, details)

    @contextmanager
    def annotation(self, name: str, *, cause: str | None = None) -> Iterator[None]:
        """Simulate a ``record_function`` range, also on the device's rows; ``cause`` is the cause of its own time."""
        start_ns, external_id = self.now_ns, self.simulation.next_external_id()
        self._annotated.append([])
        self._causes.append(cause or self._causes[-1])
        yield
        self._causes.pop()
        activities = self._annotated.pop()
        self._slice("user_annotation", name, start_ns, {"External id": external_id})
        by_stream = defaultdict(list)
        for activity in activities:
            by_stream[activity.device, activity.stream].append(activity)
        for (device, stream), members in by_stream.items():
            first_ns, last_ns = min(a.start_ns for a in members), max(a.end_ns for a in members)
            row = (name, device, stream, first_ns, "gpu_user_annotation", last_ns - first_ns)
            self.simulation.records.append(_Record("X", *row, {"External id": external_id}))

    @contextmanager
    def step(self, number: int) -> Iterator[None]:
        """Simulate the annotation of ``profiler.step()``."""
        with self.annotation(f"ProfilerStep#{number}"):
            yield

    @contextmanager
    def hand_over(self, other: "Thread") -> Iterator[None]:
        """Sleep while the other thread works, as ``backward()`` does for the autograd thread."""
        other.now_ns = self.now_ns
        other._advance(self.simulation.jittered(self.simulation.costs.hand_over_ns), "python")
        other._annotated, annotated = self._annotated, other._annotated
        yield
        other._annotated = annotated
        self.now_ns = other.now_ns
        self._advance(self.simulation.jittered(self.simulation.costs.hand_over_ns), "python")

    def launch(self, kernel: Kernel, stream: Stream, *, behind: Activity | None = None) -> Activity:
        """Simulate ``cudaLaunchKernel``.

        An activity of another stream given as ``behind`` occupies all SMs until its tail.
        """
        costs = self.simulation.costs
        start_ns, correlation = self._begin_launch(stream)
        self._advance(self.simulation.jittered(costs.launch_call_ns), "runtime-call")
        self._call("cudaLaunchKernel", start_ns, correlation)
        held_ns = 0 if behind is None else behind.end_ns - round(TAIL_RATIO * (behind.end_ns - behind.start_ns))
        return self._run(kernel, stream, correlation, start_ns, self._operator_id(), costs.inter_kernel_ns, held_ns)

    def launch_graph(self, kernels: Sequence[Kernel], stream: Stream, graph_id: int = 1) -> list[Activity]:
        """Simulate ``cudaGraphLaunch`` of a chain of kernels: one call, one correlation id, no operators."""
        costs = self.simulation.costs
        start_ns, correlation = self._begin_launch(stream)
        self._advance(self.simulation.jittered(costs.graph_call_ns), "runtime-call")
        self._call("cudaGraphLaunch", start_ns, correlation)
        activities = []
        for node, kernel in enumerate(kernels):
            ids = {"graph id": graph_id, "graph node id": (graph_id << 32) + node}
            after_ns = costs.graph_node_ns if node else costs.inter_kernel_ns
            member = replace(kernel, args={**kernel.args, **ids})
            activities.append(self._run(member, stream, correlation, start_ns, {}, after_ns))
        return activities

    def memcpy(
        self,
        kind: CopyKind,
        size: int,
        stream: Stream,
        *,
        pageable: bool = False,
        gb_per_s: float = 24.0,
        staging_ns: int = 0,
        early_ns: int = 0,
    ) -> Activity:
        """Simulate ``cudaMemcpyAsync``; with pageable host memory it returns ``early_ns`` before the copy is done.

        ``staging_ns`` is the driver's time for staging pageable memory in its own buffer before the copy starts;
        ``early_ns`` is the time of the copy's last part, which is staged when the call returns.
        """
        costs, host = self.simulation.costs, "Pageable" if pageable else "Pinned"
        ends = {
            "HtoD": f"{host} -> Device",
            "DtoH": f"Device -> {host}",
            "DtoD": "Device -> Device",
            "PtoP": "Device -> Device",
        }
        start_ns, correlation = self._begin_launch(stream)
        self._advance(self.simulation.jittered(costs.copy_call_ns + staging_ns), "runtime-call")
        duration_ns = 1_200 + round(size / gb_per_s)
        activity = self._place(
            ("gpu_memcpy", f"Memcpy {kind} ({ends[kind]})", duration_ns),
            stream,
            correlation,
            start_ns,
            costs.inter_kernel_ns,
            self._operator_id() | _traffic(size, duration_ns),
        )
        if pageable:
            self._wait_until(max(activity.start_ns, activity.end_ns - early_ns))
        self._call("cudaMemcpyAsync", start_ns, correlation)
        return activity

    def memset(self, size: int, stream: Stream) -> Activity:
        """Simulate ``cudaMemsetAsync``."""
        start_ns, correlation = self._begin_launch(stream)
        self._advance(self.simulation.jittered(self.simulation.costs.launch_call_ns), "runtime-call")
        self._call("cudaMemsetAsync", start_ns, correlation)
        duration_ns = 1_000 + round(size / 1_500)
        return self._place(
            ("gpu_memset", "Memset (Device)", duration_ns),
            stream,
            correlation,
            start_ns,
            self.simulation.costs.inter_kernel_ns,
            self._operator_id() | _traffic(size, duration_ns),
        )

    def synchronize(self, stream: Stream) -> None:
        """Simulate ``cudaStreamSynchronize``."""
        self._block("cudaStreamSynchronize", stream.free_ns)

    def synchronize_device(self, device: int = 0) -> None:
        """Simulate ``cudaDeviceSynchronize``."""
        self._block("cudaDeviceSynchronize", self._device_free_ns(device))

    def poll(self, activity: Activity, *, every_ns: int = 20_000) -> None:
        """Read memory, without any call, until the activity has written it."""
        until_ns = max(self.now_ns, activity.end_ns) + self.simulation.jittered(every_ns)
        self.simulation.waits.append(_Wait(self.now_ns, until_ns))
        self._advance(until_ns - self.now_ns, "python")

    def malloc(self, duration_ns: int) -> None:
        """Simulate ``cudaMalloc``: the driver works and does not wait."""
        start_ns, correlation = self.now_ns, self.simulation.next_correlation()
        self._advance(self.simulation.jittered(duration_ns), "allocation")
        self._call("cudaMalloc", start_ns, correlation)

    def call(self, name: str, duration_ns: int) -> None:
        """Simulate a runtime call that neither enqueues nor waits."""
        start_ns, correlation = self.now_ns, self.simulation.next_correlation()
        self._advance(self.simulation.jittered(duration_ns), "runtime-call")
        self._call(name, start_ns, correlation)

    @contextmanager
    def capture(self) -> Iterator[None]:
        """Simulate a graph capture: launches by `capture_launch` within it go into the graph and not to a device."""
        self._capture_call("cudaStreamBeginCapture", self.simulation.costs.small_call_ns)
        self._causes.append("graph-capture")
        yield
        self._causes.pop()
        self._capture_call("cudaStreamEndCapture", self.simulation.costs.small_call_ns)

    def capture_launch(self) -> None:
        """Simulate ``cudaLaunchKernel`` into the graph that is being captured."""
        self._capture_call("cudaLaunchKernel", self.simulation.costs.launch_call_ns)

    def profiler_row(self, name: str, duration_ns: int) -> None:
        """Simulate an ``overhead`` row: the profiler stops the thread, as when it flushes its buffers."""
        start_ns = self.now_ns
        self._advance(self.simulation.jittered(duration_ns), "profiler")
        row = (name, -1, 0, start_ns, "overhead", self.now_ns - start_ns)
        self.simulation.records.append(_Record("X", *row))

    def free(self, duration_ns: int, device: int = 0) -> None:
        """Simulate ``cudaFree``: waits for the device, then the driver works."""
        start_ns, correlation = self.now_ns, self.simulation.next_correlation()
        self._wait_until(self._device_free_ns(device))
        self._advance(self.simulation.jittered(duration_ns), "allocation")
        self._call("cudaFree", start_ns, correlation)

    def allocate(self, size: int) -> int:
        """Take a block of device memory and return its address; recorded when the simulation records memory."""
        address = self.simulation._next_address
        self.simulation._next_address += size
        self.simulation.blocks[address] = size
        self._memory(address, size)
        return address

    def release(self, address: int) -> None:
        """Give a block of device memory back."""
        self._memory(address, -self.simulation.blocks.pop(address))

    def record_event(self, stream: Stream) -> CudaEvent:
        """Simulate ``cudaEventRecord``: the event is reached when the work enqueued on the stream so far has ended."""
        correlation = self._small_call("cudaEventRecord")
        return CudaEvent(max(stream.free_ns, stream.not_before_ns, self.now_ns), stream, correlation)

    def wait_event(self, stream: Stream, event: CudaEvent) -> None:
        """Simulate ``cudaStreamWaitEvent`` and its ``cuda_sync`` row: later work of the stream waits for the event."""
        correlation = self._small_call("cudaStreamWaitEvent")
        stream.not_before_ns = max(stream.not_before_ns, event.time_ns)
        details: dict[str, object] = {
            "wait_on_stream": event.stream.number,
            "wait_on_cuda_event_record_corr_id": event.correlation,
            "wait_on_cuda_event_id": event.correlation,
            "stream": stream.number,
            "correlation": correlation,
            "device": stream.device,
            "context": 1,
        }
        row = ("Stream Wait Event", stream.device, stream.number, self.now_ns)
        self.simulation.records.append(_Record("X", *row, "cuda_sync", 0, details))

    @contextmanager
    def _operator(self, name: str, details: dict[str, object]) -> Iterator[None]:
        start_ns, external_id = self.now_ns, self.simulation.next_external_id()
        self._operators.append(external_id)
        self._causes.append("dispatch")
        yield
        self._causes.pop()
        self._operators.pop()
        ids = {"External id": external_id, "Ev Idx": external_id - 1}
        self._slice("cpu_op", name, start_ns, ids | details)

    def _advance(self, ns: int, cause: str) -> None:
        self.simulation.segments.append(_Segment(self.now_ns, self.now_ns + ns, cause))
        self.now_ns += ns

    def _wait_until(self, time_ns: int) -> None:
        wakes_ns = max(self.now_ns, time_ns) + self.simulation.jittered(self.simulation.costs.wake_up_ns)
        self.simulation.waits.append(_Wait(self.now_ns, wakes_ns))
        self._advance(wakes_ns - self.now_ns, "runtime-call")

    def _block(self, name: str, until_ns: int) -> None:
        start_ns, correlation = self.now_ns, self.simulation.next_correlation()
        self._wait_until(until_ns)
        self._call(name, start_ns, correlation)

    def _capture_call(self, name: str, duration_ns: int) -> None:
        start_ns, correlation = self.now_ns, self.simulation.next_correlation()
        self._advance(self.simulation.jittered(duration_ns), "graph-capture")
        self._slice("cuda_runtime", name, start_ns, self._operator_id() | {"correlation": correlation})

    def _small_call(self, name: str) -> int:
        start_ns, correlation = self.now_ns, self.simulation.next_correlation()
        self._advance(self.simulation.jittered(self.simulation.costs.small_call_ns), "runtime-call")
        self._call(name, start_ns, correlation)
        return correlation

    def _begin_launch(self, stream: Stream) -> tuple[int, int]:
        """Return start and correlation id of a call that enqueues, which waits while the queue is full."""
        start_ns = self.now_ns
        full = len(stream.starts) >= self.simulation.costs.queue_limit
        room_ns = stream.starts[-self.simulation.costs.queue_limit] if full else 0
        if room_ns > start_ns:
            self._advance(room_ns - start_ns, "runtime-call")
        return start_ns, self.simulation.next_correlation()

    def _device_free_ns(self, device: int) -> int:
        return max((s.free_ns for s in self.simulation._streams.values() if s.device == device), default=0)

    def _operator_id(self) -> dict[str, object]:
        """Return the innermost operator as args of an event."""
        return {"External id": self._operators[-1]} if self._operators else {}

    def _run(
        self,
        kernel: Kernel,
        stream: Stream,
        correlation: int,
        call_start_ns: int,
        operator: dict[str, object],
        after_previous_ns: int,
        held_ns: int = 0,
    ) -> Activity:
        """Enqueue a kernel whose call ends now; no SM is free for it before ``held_ns``."""
        blocks, threads = prod(kernel.grid), prod(kernel.block)
        details: dict[str, object] = {
            "queued": 0,
            "registers per thread": kernel.registers,
            "shared memory": kernel.shared_memory,
            "blocks per SM": round(blocks / 108, 6),
            "warps per SM": round(blocks * threads / 32 / 108, 6),
            "grid": list(kernel.grid),
            "block": list(kernel.block),
            "est. achieved occupancy %": min(100, round(100 * blocks * threads / 108 / 2048)),
            **kernel.args,
        }
        return self._place(
            ("kernel", kernel.name, kernel.duration_ns),
            stream,
            correlation,
            call_start_ns,
            after_previous_ns,
            operator | details,
            held_ns,
        )

    def _place(
        self,
        work: tuple[str, str, int],
        stream: Stream,
        correlation: int,
        call_start_ns: int,
        after_previous_ns: int,
        details: dict[str, object],
        held_ns: int = 0,
    ) -> Activity:
        """Run work on the stream as early as its launch, its predecessor, awaited events and free SMs allow."""
        category, name, duration_ns = work
        latency_ns = self.simulation.jittered(self.simulation.costs.launch_latency_ns)
        earliest: dict[BoundBy, int] = {
            "launch": self.now_ns + latency_ns,
            "stream": stream.free_ns + after_previous_ns if stream.starts else 0,
            "event": stream.not_before_ns + after_previous_ns if stream.not_before_ns else 0,
            "contention": held_ns,
        }
        bound_by = max(earliest, key=lambda bound: earliest[bound])
        start_ns = earliest[bound_by]
        activity = Activity(
            category,
            name,
            stream.device,
            stream.number,
            start_ns,
            start_ns + duration_ns,
            correlation,
            call_start_ns,
            bound_by,
        )
        stream.free_ns = activity.end_ns
        stream.starts.append(start_ns)
        self.simulation.activities.append(activity)
        for open_annotation in self._annotated:
            open_annotation.append(activity)
        place: dict[str, object] = {
            "device": stream.device,
            "context": 1,
            "stream": stream.number,
            "correlation": correlation,
        }
        row = (name, stream.device, stream.number, start_ns, category, duration_ns)
        self.simulation.records.append(_Record("X", *row, place | details))
        self._flow("f", "ac2g", correlation, stream.device, stream.number, start_ns)
        return activity

    def _call(self, name: str, start_ns: int, correlation: int) -> None:
        ids = {"cbid": _CBID[name], "correlation": correlation}
        self._slice("cuda_runtime", name, start_ns, self._operator_id() | ids)
        if name in ("cudaLaunchKernel", "cudaMemcpyAsync", "cudaMemsetAsync", "cudaGraphLaunch"):
            self._flow("s", "ac2g", correlation, self.simulation.pid, self.tid, start_ns)

    def _memory(self, address: int, size: int) -> None:
        if self.simulation.memory:
            total = sum(self.simulation.blocks.values())
            details: dict[str, object] = {"Addr": address, "Bytes": size, "Device Id": 0, "Device Type": 1}
            self.simulation._reserved_bytes = max(self.simulation._reserved_bytes, total)
            details |= {"Total Allocated": total, "Total Reserved": self.simulation._reserved_bytes}
            row = ("[memory]", self.simulation.pid, self.tid, self.now_ns, "cpu_instant_event")
            self.simulation.records.append(_Record("i", *row, args=details))

    def _slice(self, category: str, name: str, start_ns: int, details: dict[str, object]) -> None:
        row = (name, self.simulation.pid, self.tid, start_ns, category, self.now_ns - start_ns)
        self.simulation.records.append(_Record("X", *row, details))

    def _flow(self, ph: str, name: str, flow_id: int, pid: int, tid: int, time_ns: int) -> None:
        self.simulation.records.append(_Record(ph, name, pid, tid, time_ns, name, flow_id=flow_id))
