"""Collect facts on this process for a trace (versions, clocks, numeric modes, ranks), and write traces with them.

Torch does not report when the program starts a profiler of its own or autocast, on which a recording depends: the
methods of its classes are wrapped during a recording.
"""

import contextlib
import functools
import gzip
import json
import os
import platform
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar

from trace_analyzer import errors, files, run_metadata

T = TypeVar("T")


def settings(
    level: str | None = None, measured_step_ms: float | None = None, autocast_dtype: str | None = None
) -> run_metadata.RunMetadata:
    """Return all facts on this process; null where its torch does not provide one.

    Flags have their present values. They are modes of the process, except autocast, which has regions: without
    ``autocast_dtype``, it is known only if this is called within one. ``measured_step_ms``, taken before the last
    recording, is left out if an earlier one slowed it (`follow_recordings`).
    """
    import torch

    facts: dict[str, Any] = {
        "level": level,
        "measured_step_ms": None if len(_recordings) > 1 and cupti_stays() else measured_step_ms,
        "torch_version": torch.__version__,
        "python_version": platform.python_version(),
        "cuda_version": torch.version.cuda or getattr(torch.version, "hip", None),
        "cudnn_version": _asked(torch.backends.cudnn.version),
        "float32_matmul_precision": _asked(torch.get_float32_matmul_precision),
        "tf32_matmul": _asked(lambda: torch.backends.cuda.matmul.allow_tf32),
        "tf32_cudnn": _asked(lambda: torch.backends.cudnn.allow_tf32),
        "cudnn_benchmark": _asked(lambda: torch.backends.cudnn.benchmark),
        "deterministic": _asked(torch.are_deterministic_algorithms_enabled),
        "autocast_dtype": autocast_dtype or autocast_dtype_on("cuda", "xpu", "cpu"),
        "allocator_settings": os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or os.environ.get("PYTORCH_ALLOC_CONF"),
        "cpu_threads": torch.get_num_threads(),
        **_of_device(torch),
    }
    return run_metadata.settings_of(facts) or run_metadata.RunMetadata()


def _of_device(torch: Any) -> Mapping[str, Any]:
    """Return facts on the current CUDA or HIP device; empty where it is missing or was never used."""
    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
        return {}
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    khz = {name: getattr(properties, name, None) for name in ("clock_rate", "memory_clock_rate")}
    return {
        "driver_version": _asked(lambda: torch._C._cuda_getDriverVersion()),
        "sm_clock_mhz": khz["clock_rate"] and khz["clock_rate"] / 1e3,
        "memory_clock_mhz": khz["memory_clock_rate"] and khz["memory_clock_rate"] / 1e3,
        "memory_bus_bits": getattr(properties, "memory_bus_width", None),
        "l2_cache_bytes": getattr(properties, "L2_cache_size", None),
        "allocator": _asked(torch.cuda.get_allocator_backend),
    }


def _asked(question: Callable[[], T]) -> T | None:
    """Return the answer, or None: builds of torch differ, and a fact must not fail the training."""
    try:
        return question()
    except Exception:
        return None


def synchronize() -> None:
    """Wait until the current accelerator is idle; do nothing on a machine without one."""
    import torch

    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    elif hasattr(torch, "xpu") and torch.xpu.is_available():
        torch.xpu.synchronize()


def world_size() -> int:
    """Return the number of processes of the job."""
    import torch

    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_world_size())
    ranks = os.environ.get("WORLD_SIZE", "")
    return int(ranks) if ranks.isdecimal() else 1


def rank() -> int | None:
    """Return this process's rank in its job; None when it is alone."""
    import torch

    if world_size() < 2:
        return None
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return int(torch.distributed.get_rank())
    number = os.environ.get("RANK", "")
    return int(number) if number.isdecimal() else None


Undo = Callable[[], None]


def other_profilers(own: Callable[[object], bool], meet: Callable[[], None]) -> Undo:
    """Call ``meet`` before any profiler starts for which ``own`` is false; the result is a function that ends this.

    Torch has one session: the profiler that stops it gets the data of all, and the export of a profiler without data
    crashes the process.
    """
    from torch.autograd.profiler import profile

    def begins(profiler: object) -> None:
        if not own(profiler):
            meet()

    undo = contextlib.ExitStack()
    for name in ("_prepare_trace", "_start_trace"):
        undo.callback(_watched(profile, name, before=begins))
    return undo.close


_prepared: "weakref.WeakSet[Any]" = weakref.WeakSet()


def follow_profilers() -> None:
    """Make `profiler_at_work` also notice prepared profilers, not only recording ones.

    A profiler is prepared from the start of its schedule's warm-up; a recording meanwhile takes its data.
    """
    from torch.autograd.profiler import profile

    _watched(profile, "_prepare_trace", before=_prepared.add)
    _watched(profile, "__exit__", after=_prepared.discard)


@functools.cache
def follow_recordings() -> None:
    """Make `settings` know of the recordings of this process from now on."""
    from torch.autograd.profiler import profile

    _watched(profile, "_prepare_trace", before=lambda profiler: _recordings.append(id(profiler)))


_recordings: list[int] = []


def cupti_stays() -> bool:
    """Return whether CUPTI stays attached after a recording, and makes launches take longer (by 1.1 to 1.6 times a step)."""
    import torch

    return torch.cuda.is_available() and torch.version.hip is None and os.environ.get("TEARDOWN_CUPTI") != "1"


def profiler_at_work() -> bool:
    """Return whether any profiler of this process is recording, in any thread, or is prepared (`follow_profilers`)."""
    from torch.autograd import profiler

    return bool(getattr(profiler, "_is_profiler_enabled", False) or _prepared)


class StepTimer:
    """Time steps that follow each other, with the device idle at the start, after the first and at the end."""

    MOST_ENDS_S = 0.5e-3
    """Longest time for which filling and draining the device's queue count, s: some launches and a synchronization."""

    def __init__(self) -> None:
        self._times: list[float] = []

    def mark(self) -> None:
        """Take the time, s, once the device is idle."""
        synchronize()
        self._times.append(time.perf_counter())

    def mean_ms(self, steps: int) -> float:
        """Return the mean time of ``steps`` steps, ms, without filling and draining the queue where there are 3 or more.

        Both take the same time around one step as around all others: of two equations, the two unknowns. Uneven steps
        would solve them as well, hence the limit.
        """
        began, first, *_, ended = (*self._times, self._times[-1])
        alone, others = first - began, ended - first
        is_known = steps > 2 and others > alone
        ends = ((steps - 1) * alone - others) / (steps - 2) if is_known else 0.0
        return (alone + others - 2 * min(max(ends, 0.0), self.MOST_ENDS_S)) * 1e3 / steps


class UnrecordedSteps:
    """Time the last steps before each recording of a schedule by `StepTimer`: ``mean_ms`` of one.

    A profiler is timed whose ``on_trace_ready`` has this as attribute ``unrecorded`` and whose schedule is of
    ``torch.profiler.schedule``, once `time_unrecorded_steps` was called. As in `session`, the first steps do not count.
    """

    MOST, LEAST, SKIP = 10, 3, 3

    def __init__(self) -> None:
        self.mean_ms: float | None = None
        """Mean time of a step before the last recording, ms; None where fewer than `LEAST` could be timed."""
        self._since = 0
        self._timer: StepTimer | None = None

    def stepped(self, number: int, schedule: Callable[[int], Any], idle: Any) -> None:
        """Handle the beginning of step ``number``; ``idle`` is the schedule's action of a step without the profiler."""
        if self._timer is None:
            ends = any(schedule(number + ahead) != idle for ahead in range(self.MOST + 1))
            if number >= self.SKIP and schedule(number) == idle and ends:
                self.mean_ms, self._since, self._timer = None, number, StepTimer()
                self._timer.mark()
            return
        if (ended := schedule(number) != idle) or number == self._since + 1:
            self._timer.mark()
        if ended:
            timer, self._timer = self._timer, None
            self.mean_ms = timer.mean_ms(steps) if (steps := number - self._since) >= self.LEAST else None


@functools.cache
def time_unrecorded_steps() -> None:
    """Make `UnrecordedSteps` work in this process: wrap ``torch.profiler.profile.step``, once."""
    from torch.profiler import ProfilerAction, profile, schedule

    def stepped(profiler: Any) -> None:
        timed = getattr(profiler.on_trace_ready, "unrecorded", None)
        # Another schedule, such as Lightning's, may count its calls: asking it for later steps would change it.
        if timed is not None and getattr(profiler.schedule, "__module__", None) == schedule.__module__:
            _asked(lambda: timed.stepped(profiler.step_num, profiler.schedule, ProfilerAction.NONE))

    follow_recordings()
    _watched(profile, "step", after=stepped)


def autocast(note: Callable[[str], None]) -> Undo:
    """Call ``note`` with the compute type at the start of each autocast region; return a function to stop this.

    Regions inside previously compiled code are not seen.
    """
    from torch.amp.autocast_mode import autocast as region_type

    def entered(region: object) -> None:
        if dtype := autocast_dtype_on(getattr(region, "device", "")):
            note(dtype)

    return _watched(region_type, "__enter__", after=entered)


def autocast_dtype_on(*kinds: str) -> str | None:
    """Return the type of the active autocast region on the first of these device kinds; None without one."""
    import torch

    try:
        on = [torch.get_autocast_dtype(kind) for kind in kinds if torch.is_autocast_enabled(kind)]
    except (AttributeError, TypeError, RuntimeError):  # torch before 2.4, or a kind without autocast
        return None
    return str(on[0]).removeprefix("torch.") if on else None


def _watched(
    owner: type, name: str, *, before: Callable[[Any], None] | None = None, after: Callable[[Any], None] | None = None
) -> Undo:
    """Call functions with the object before and after its method; return one that ends this."""
    original = getattr(owner, name)
    over = threading.Event()

    @functools.wraps(original)
    def method(self: Any, *arguments: Any) -> Any:
        if before and not over.is_set():
            before(self)
        try:
            return original(self, *arguments)
        finally:
            if after and not over.is_set():
                after(self)

    def undo() -> None:
        over.set()
        if getattr(owner, name) is method:
            setattr(owner, name, original)

    setattr(owner, name, method)
    return undo


_CHUNK = 1 << 20
_COMPRESSION = 1  # training waits for it: a third of the time of gzip's default 6, for a fifth more bytes


class FinishedProfile(Protocol):
    """Declare the interface of ``torch.profiler.profile`` that `export` uses."""

    def export_chrome_trace(self, path: str) -> object:
        """Write the trace as Chrome's JSON."""


def export(profile: FinishedProfile, path: Path, settings: run_metadata.RunMetadata | None = None) -> Path:
    """Write the trace of a finished profile to ``path``, compressed if that ends in ``.gz``; return it.

    ``settings`` are written to the header, after the file's first brace. ``add_metadata_json`` of the profiler works
    only before it stops, which is too early for a callback such as ``on_trace_ready``. Raises ``UsageError`` for a
    profile that is not finished or was saved before, and other errors of the export, including ``OSError``; no partial
    file is left.
    """
    with files.temporary_folder(path.parent) as folder, files.Outputs() as outputs:
        raw = folder / "trace.json"
        _save(profile, raw)
        with raw.open("rb") as source, outputs.open(path) as file, _compressed(file, path) as target:
            target.write(_with_facts(source.read(_CHUNK), settings))
            while chunk := source.read(_CHUNK):
                target.write(chunk)
    return path


def _save(profile: FinishedProfile, path: Path) -> None:
    """Save the trace, which PyTorch can do once."""
    try:
        profile.export_chrome_trace(str(path))
    except RuntimeError as error:
        if "already saved" not in str(error):
            raise
        raise errors.UsageError(
            "the trace of this profile was saved already, by on_trace_ready or an earlier call, and PyTorch saves it once: "
            "analyze that file, or keep the first report"
        ) from None
    except (AssertionError, AttributeError):  # of torch, which has no recording yet
        raise errors.UsageError(
            "this profile holds no finished recording: analyze it after its with block, or once a cycle of its schedule has ended"
        ) from None


def _compressed(file: BinaryIO, path: Path) -> gzip.GzipFile | AbstractContextManager[BinaryIO]:
    """Return a writer into the file, which compresses if the file's name ends in ``.gz``."""
    if path.suffix != ".gz":
        return nullcontext(file)
    return gzip.GzipFile(path.name, "wb", _COMPRESSION, file)


def _with_facts(start: bytes, settings: run_metadata.RunMetadata | None) -> bytes:
    """Insert the facts as the trace's first entry; a trace that is no object is returned unchanged."""
    opening = len(start) - len(start.lstrip()) + 1
    known = {} if settings is None else {key: fact for key, fact in asdict(settings).items() if fact is not None}
    if not known or start[opening - 1 : opening] != b"{" or start[opening:].lstrip()[:1] == b"}":
        return start
    facts = json.dumps({run_metadata.HEADER_KEY: known}, allow_nan=False)[1:-1]
    return start[:opening] + facts.encode() + b"," + start[opening:]
