"""Random but valid Kineto traces, built without the analyser.

`random_traces` draws host threads and devices that follow them, including properties of real files that a model would
not produce: missing calls, missing activities, clock skew, overlaps on one stream, activities of duration 0, links by
flow only, correlation numbers shared by processes. Every time is an integer number of nanoseconds, so that `naive` can
compute exact answers.

The traces avoid cases that the definitions leave open: they are so short that no silence counts as a recording pause,
and events on one host thread are properly nested.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from hypothesis import HealthCheck, strategies as st
from kineto import A100

Flows = Literal["all", "some", "none"]

KERNEL_NAMES = (
    "ampere_sgemm_128x64_tn",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
    "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
)
COPY_NAMES = ("Memcpy HtoD (Pageable -> Device)", "Memcpy DtoH (Device -> Pinned)", "Memcpy DtoD (Device -> Device)")
WRAPPER_NAMES = {
    "cpu_op": ("my_extension::forward", "my_extension::backward"),
    "python_function": ("train.py(12): step", "torch/_dynamo/convert_frame.py(1200): _compile", "queue.py(154): get"),
    "user_annotation": ("phase", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"),
}

UNHURRIED = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
"""Building random traces is slow and their size varies, which is no fault of the tests."""


@dataclass(frozen=True)
class RandomTrace:
    """A trace as the bytes of a file and as parsed JSON."""

    content: bytes

    @property
    def document(self) -> dict[str, object]:
        """Return the parsed file."""
        parsed: dict[str, object] = json.loads(self.content)
        return parsed


@dataclass
class _Event:
    """Describe one event, times in ns."""

    ph: str
    category: str
    name: str
    pid: int
    tid: int
    start: int
    duration: int | None = None
    args: dict[str, object] = field(default_factory=dict)
    flow_id: int | None = None

    def text(self, origin: int) -> str:
        head: dict[str, object] = {"ph": self.ph, "cat": self.category, "name": self.name}
        head |= {"pid": self.pid, "tid": self.tid}
        head |= {"args": self.args} if self.args else {}
        head |= {"id": self.flow_id} if self.flow_id is not None else {}
        head |= {"bp": "e"} if self.ph == "f" else {}
        dur = "" if self.duration is None else f', "dur": {_microseconds(self.duration)}'
        return f'{json.dumps(head)[:-1]}, "ts": {_microseconds(origin + self.start)}{dur}}}'


def _microseconds(ns: int) -> str:
    return f"{ns // 1_000}.{ns % 1_000:03d}"


@dataclass(frozen=True)
class _Work:
    """Describe an activity to launch: its place, its least delay after the return of its call, and its duration."""

    device: int
    stream: int
    delay: int
    duration: int
    in_order: bool
    category: str
    name: str
    blocks: int
    recorded: bool


@dataclass(frozen=True)
class _Call:
    """Describe a runtime call: the work it enqueues, its links, and its duration."""

    pause: int
    name: str
    duration: int
    works: tuple[_Work, ...]
    link: Literal["correlation", "flow", "missing"]


@dataclass(frozen=True)
class _Wrapper:
    """Put an operator, Python frame or annotation around other instructions."""

    pause: int
    category: str
    name: str
    tail: int
    inside: tuple["_Instruction", ...]


@dataclass(frozen=True)
class _Capture:
    """Describe a graph capture: launches between its begin and, if it ``closes``, its end; none reaches a device."""

    pause: int
    launches: tuple[tuple[int, int], ...]
    closes: bool


_Instruction = _Call | _Wrapper | _Capture

_short = st.integers(0, 3_000)
_pause = st.one_of(_short, st.integers(0, 200_000))
_duration = st.one_of(st.just(0), st.integers(1, 4_000), st.integers(4_000, 90_000))
_delay = st.one_of(st.integers(-4_000, 0), _short, st.integers(0, 9_000), st.integers(20_000, 90_000))


def _works(category: str, names: Sequence[str], devices: Sequence[int]) -> st.SearchStrategy[_Work]:
    return st.builds(
        _Work, device=st.sampled_from(devices), stream=st.sampled_from((7, 7, 7, 20)), delay=_delay, duration=_duration,
        in_order=st.sampled_from((True, True, True, False)), category=st.just(category), name=st.sampled_from(names),
        blocks=st.sampled_from((1, 64, 4096)), recorded=st.sampled_from((True, True, True, True, False)),
    )  # fmt: skip


def _calls(devices: Sequence[int]) -> st.SearchStrategy[_Call]:
    link = st.sampled_from(("correlation", "correlation", "correlation", "correlation", "flow", "missing"))
    kernel = _works("kernel", KERNEL_NAMES, devices)
    copy = _works("gpu_memcpy", COPY_NAMES, devices)
    memset = _works("gpu_memset", ("Memset (Device)",), devices)

    def call(
        name: str, works: st.SearchStrategy[tuple[_Work, ...]], duration: st.SearchStrategy[int]
    ) -> st.SearchStrategy[_Call]:
        return st.builds(_Call, pause=_pause, name=st.just(name), duration=duration, works=works, link=link)

    ordinary, long = st.integers(500, 9_000), st.integers(500, 200_000)
    nothing: st.SearchStrategy[tuple[_Work, ...]] = st.just(())
    return st.one_of(
        call("cudaLaunchKernel", st.tuples(kernel), ordinary),
        call("cuLaunchKernel", st.tuples(kernel), ordinary),
        call("cudaMemcpyAsync", st.tuples(copy), long),
        call("cudaMemsetAsync", st.tuples(memset), ordinary),
        call("cudaGraphLaunch", st.lists(kernel, min_size=1, max_size=4).map(tuple), ordinary),
        call("cudaStreamSynchronize", nothing, long),
        call("cudaDeviceSynchronize", nothing, long),
        call("cudaMalloc", nothing, long),
    )


def _instructions(devices: Sequence[int]) -> st.SearchStrategy[tuple[_Instruction, ...]]:
    calls = _calls(devices)

    def wrapped(inner: st.SearchStrategy[_Instruction]) -> st.SearchStrategy[_Instruction]:
        inside = st.lists(inner, min_size=1, max_size=3).map(tuple)
        return st.one_of(
            st.builds(_Wrapper, _pause, st.just(category), st.sampled_from(names), tail=_pause, inside=inside)
            for category, names in WRAPPER_NAMES.items()
        )

    launches = st.lists(st.tuples(_pause, _short), max_size=3).map(tuple)
    captured = st.builds(_Capture, _pause, launches, st.sampled_from((True, True, True, False)))
    leaf: st.SearchStrategy[_Instruction] = st.one_of(calls, calls, calls, calls, captured)
    return st.lists(st.recursive(leaf, wrapped, max_leaves=5), min_size=1, max_size=8).map(tuple)


class _Recorder:
    """Play the instructions of a trace and collect its events."""

    def __init__(self, flows: Flows, skew: int, unique_flow_ids: bool) -> None:
        self.events: list[_Event] = []
        self.flows = flows
        self.skew = skew
        self.unique_flow_ids = unique_flow_ids
        self.starts: dict[tuple[int, int, int], int] = {}
        self.free: dict[tuple[int, int], int] = {}
        self.flow_count = 0

    def play(self, instructions: Sequence[_Instruction], pid: int, tid: int, now: int, first: int) -> tuple[int, int]:
        """Play instructions on a thread; returns its clock and the next correlation id."""
        correlation = first
        for instruction in instructions:
            now += instruction.pause
            start = now
            if isinstance(instruction, _Capture):
                names = ["cudaStreamBeginCapture", *["cudaLaunchKernel"] * len(instruction.launches)]
                calls = [(0, 900), *instruction.launches]
                if instruction.closes:
                    names, calls = [*names, "cudaStreamEndCapture"], [*calls, (500, 700)]
                for name, (pause, duration) in zip(names, calls, strict=True):
                    now += pause
                    self._slice("cuda_runtime", name, pid, tid, now, duration, {"correlation": correlation})
                    now, correlation = now + duration, correlation + 1
            elif isinstance(instruction, _Wrapper):
                now, correlation = self.play(instruction.inside, pid, tid, now, correlation)
                now += instruction.tail
                self._slice(instruction.category, instruction.name, pid, tid, start, now - start, {})
            else:
                now += instruction.duration
                self._call(instruction, pid, tid, start, now, correlation)
                correlation += 1
        return now, correlation

    def _call(self, call: _Call, pid: int, tid: int, start: int, end: int, correlation: int) -> None:
        number = 0 if call.link == "flow" and call.works else correlation
        if call.link != "missing" or not call.works:
            category = "cuda_driver" if call.name.startswith("cuL") else "cuda_runtime"
            self._slice(category, call.name, pid, tid, start, end - start, {"correlation": number})
        with_flow = call.link == "flow" or (call.link == "correlation" and self._draws_flow())
        own_id = call.link == "flow" or self.unique_flow_ids
        flow_id = 10_000 * pid + correlation if own_id else correlation
        if with_flow and call.works:
            self.events.append(_Event("s", "ac2g", "ac2g", pid, tid, start, flow_id=flow_id))
        for work in call.works:
            self._run(work, end, number, flow_id if with_flow else None)

    def _draws_flow(self) -> bool:
        self.flow_count += 1
        return self.flows == "all" or (self.flows == "some" and self.flow_count % 2 == 0)

    def _run(self, work: _Work, call_end: int, correlation: int, flow_id: int | None) -> None:
        place = (work.device, work.stream)
        start = max(0, call_end + work.delay)
        if work.in_order:
            start = max(start, self.free.get(place, 0))
        while 0 in (correlation, self.starts.get((*place, start))) and (*place, start) in self.starts:
            start += 1  # an arrow that ends at the start of two activities would link both
        self.starts[*place, start] = correlation
        self.free[place] = max(self.free.get(place, 0), start + work.duration)
        if not work.recorded:
            return
        start += self.skew
        details = {"device": work.device, "context": 1, "stream": work.stream, "correlation": correlation}
        is_kernel = work.category == "kernel"
        details |= {"grid": [work.blocks, 1, 1], "block": [128, 1, 1]} if is_kernel else {"bytes": 4 * work.duration}
        self._slice(work.category, work.name, *place, start, work.duration, details)
        if flow_id is not None:
            self.events.append(_Event("f", "ac2g", "ac2g", *place, start, flow_id=flow_id))

    def _slice(
        self, category: str, name: str, pid: int, tid: int, start: int, duration: int, args: dict[str, object]
    ) -> None:
        self.events.append(_Event("X", category, name, pid, tid, start, duration, args))


@st.composite
def _behind_earlier_work(draw: st.DrawFn) -> tuple[_Instruction, ...]:
    """Draw a kernel that may wait for work from before the recording; the CPU may wait for the device."""
    until = draw(st.integers(900_000, 4_000_000))
    small, late = draw(st.integers(0, until // 40)), draw(st.sampled_from((0, 2_000, until // 20, until // 4)))
    blocks = draw(st.sampled_from((until, until, until, until // 2)))

    def kernel(stream: int, delay: int, duration: int) -> _Work:
        return _Work(0, stream, delay, duration, True, "kernel", KERNEL_NAMES[1], 64, True)

    waiting = draw(st.sampled_from((*("cudaStreamSynchronize",) * 3, "cudaMalloc")))
    waits = _Call(1_000, waiting, blocks, (), "correlation")
    first = _Call(0, "cudaLaunchKernel", 600, (kernel(7, 1_000, small),), "correlation")
    behind = kernel(draw(st.sampled_from((7, 20))), until, 5_000)
    return first, _Call(late, "cudaLaunchKernel", 600, (behind,), "correlation"), waits


@st.composite
def traces_behind_earlier_work(draw: st.DrawFn) -> RandomTrace:
    """Draw traces of one thread that begin with possible work from before the recording, and then continue."""
    recorder = _Recorder("all", 0, unique_flow_ids=False)
    recorder.play((*draw(_behind_earlier_work()), *draw(_instructions((0,)))), 4_000, 4_000, 50_000, 100)
    return RandomTrace(_file(recorder.events, origin=0))


@st.composite
def random_traces(draw: st.DrawFn) -> RandomTrace:
    """Draw valid traces of one or two processes, each with one or two threads and its own devices.

    Two processes may number their calls equally; then every link has its own flow, which distinguishes them.
    """
    process_count = draw(st.sampled_from((1, 1, 1, 2)))
    shared_numbers = process_count == 2 and draw(st.booleans())
    flows: Flows = "all" if shared_numbers else draw(st.sampled_from(("all", "some", "none")))
    skew = draw(st.sampled_from((0, 0, 0, -3_000, 5_000)))
    recorder = _Recorder(flows, skew, unique_flow_ids=shared_numbers)
    correlation = 100
    for process in range(process_count):
        pid = 4_000 + 1_000 * process
        devices = draw(st.sampled_from(((2 * process,), (2 * process, 2 * process + 1))))
        correlation = 100 if shared_numbers else correlation
        for tid in range(pid, pid + draw(st.integers(1, 2))):
            instructions = draw(_instructions(devices))
            begins = draw(st.integers(10_000, 200_000))
            _, correlation = recorder.play(instructions, pid, tid, begins, correlation)
    if draw(st.booleans()):
        start, duration = draw(st.integers(0, 300_000)), draw(st.integers(0, 40_000))
        recorder.events.append(_Event("X", "overhead", "Buffer Flush", -1, 0, start, duration))
    events = recorder.events
    if draw(st.booleans()):
        random.Random(draw(st.integers(0, 999))).shuffle(events)
    return RandomTrace(_file(events, origin=draw(st.sampled_from((0, 1_234_567_890_123_457)))))


def _file(events: Sequence[_Event], origin: int) -> bytes:
    used = sorted({e.pid for e in events if e.category in ("kernel", "gpu_memcpy", "gpu_memset")})
    properties = [A100 | {"id": device} for device in used]
    header = json.dumps({"schemaVersion": 1, "deviceProperties": properties})
    body = ",\n".join(event.text(origin) for event in events)
    return f'{header[:-1]}, "traceEvents": [\n{body}\n]}}\n'.encode()
