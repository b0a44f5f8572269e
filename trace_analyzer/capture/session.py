"""Profile a block, a function or a notebook cell, and time a step without the profiler: ``with profile(steps=6):``."""

import contextlib
import functools
import inspect
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, ParamSpec, Self, TypeVar

from trace_analyzer.capture import facts
from trace_analyzer.capture.facts import FinishedProfile, export
from trace_analyzer.errors import TraceAnalyzerError, UsageError

if TYPE_CHECKING:
    from trace_analyzer.report import Report

P = ParamSpec("P")
R = TypeVar("R")

Level = Literal["light", "standard", "full"]

LEVELS: Mapping[str, Mapping[str, bool]] = MappingProxyType(
    {
        "light": {},
        "standard": {"record_shapes": True},
        "full": {"record_shapes": True, "with_stack": True, "profile_memory": True, "with_modules": True},
    }
)
"""Arguments of ``torch.profiler.profile`` at each level; host and device activity is always recorded."""

SKIP = 3
"""Steps before the timed ones: the first steps load kernels, compile and allocate."""
WARMUP = 2
"""Warm-up steps of the profiler before it records."""


def profile(
    *, steps: int | None = None, level: Level = "light", skip: int = SKIP, trace: str | Path | None = None
) -> "Session":
    """Record this block, or the decorated function, and analyse it.

    ::

        with ta.profile(steps=6) as profiler:        @ta.profile(steps=6)
            for batch in loader:                     def train_step(batch): ...
                train_step(batch)
                profiler.step()                      ... train_step.profiler.report
        profiler.report

    Parameters
    ----------
    steps: how many steps to record. ``skip`` steps come first, then as many as are recorded, timed without
        the profiler, then 2 of warm-up. A loop that goes on afterwards is recorded no more, but CUDA's launches stay
        slower: CUPTI stays attached unless ``TEARDOWN_CUPTI=1`` is set. Without ``steps``, the whole block is
        recorded, or the function's first call.
    level: ``"light"`` records host and device activity, and slows the CPU least: for the verdict. ``"standard"``
        adds shapes, for FLOP and bytes; ``"full"`` adds Python stacks and allocations, for where it comes from.
    trace: file in which to keep the trace (``.json`` or ``.json.gz``); none is kept by default.

    Raises ``UsageError`` for an unknown level, or fewer than 1 step. A process can have only one active profiler: the
    recording does not start while another one is active, and ends when another one starts.
    """
    return Session(steps, level, skip, trace)


class Session:
    """One recording; `profile` makes it."""

    def __init__(self, steps: int | None, level: str, skip: int, trace: str | Path | None) -> None:
        if level not in LEVELS:
            raise UsageError(f"no level is named {level!r}: choose from {', '.join(LEVELS)}")
        for name, count, least in (("steps", steps, 1), ("skip", skip, 0)):
            if count is not None and (type(count) is not int or count < least):
                raise UsageError(f"{name}={count!r}: must be a whole number, at least {least}")
        self.steps, self.level, self.skip = steps, level, skip
        self.measured_step_ms: float | None = None
        """Mean time of a step without the profiler, ms; None when not measured. After a recording, CUPTI may slow it."""
        self.failure: str | None = None
        """Why no trace could be written; None when one was, or nothing has been recorded."""
        self._kept = None if trace is None else Path(trace)
        self.trace: Path | None = None
        """The trace's file; None before it exists."""
        self._profiler: Any = None
        self._process: int | None = None
        self._thread: int | None = None
        self._count = 0
        self._depth = 0
        self._timer = facts.StepTimer()
        self._autocast_dtype: str | None = None
        self.gave_way = False
        """Whether the recording ended because the program started its own profiler."""
        self._watches = contextlib.ExitStack()

    @property
    def needed(self) -> int:
        """Return the number of steps that a complete recording still needs; 0 where steps are not counted."""
        return 0 if self.steps is None else self.skip + 2 * self.steps + WARMUP

    @property
    def started(self) -> bool:
        """Return whether the recording has started, which happens once."""
        return self._process is not None

    @property
    def running(self) -> bool:
        """Return whether the profiler is recording in this process; a forked child records nothing."""
        return self._profiler is not None and self._process == os.getpid()

    def start(self) -> Self:
        """Start; ``with`` does so. Raises ``UsageError`` when it was started before, or another profiler is active."""
        if self.started:
            raise UsageError("a profile records once: make another one")
        try:
            import torch
        except ImportError:
            raise UsageError("recording needs torch: pip install torch") from None
        if facts.profiler_at_work():
            raise UsageError(
                "another profiler is at work, and two cannot be: end it first, "
                "or give it on_trace_ready=trace_analyzer.trace_handler(...)"
            )
        facts.follow_recordings()
        self._process, self._thread = os.getpid(), threading.get_ident()
        schedule = None
        if self.steps is not None:
            schedule = torch.profiler.schedule(wait=self.skip + self.steps, warmup=WARMUP, active=self.steps, repeat=1)
        self._profiler = torch.profiler.profile(
            schedule=schedule, on_trace_ready=self._write, **dict(LEVELS[self.level])
        )
        self._autocast_dtype = facts.autocast_dtype_on("cuda", "xpu", "cpu")
        self._watches.callback(facts.autocast(functools.partial(setattr, self, "_autocast_dtype")))
        self._watches.callback(facts.other_profilers(self._owns, self._give_way))
        self._profiler.start()
        self._time()
        return self

    def step(self) -> None:
        """Mark the end of a step; free of cost once the recording is complete."""
        if not self.running:
            return
        self._count += 1
        self._time()
        self._profiler.step()
        if self.trace or self.failure:
            self.stop()

    def stop(self) -> None:
        """End the recording and keep its data; ``with`` and `report` call it."""
        if not self.running:
            return
        self._watches.close()
        profiler, self._profiler = self._profiler, None
        profiler.stop()
        profiler.on_trace_ready = None  # torch's profile has a reference cycle, which would keep this object alive

    def _owns(self, profiler: object) -> bool:
        """Return whether this object belongs to the session's own profiler."""
        return self._profiler is not None and self._profiler.profiler is profiler

    def _give_way(self) -> None:
        """End the recording and keep it, as another profiler is about to start.

        If that happens in another thread, torch cannot end this recording: the other profiler gets its data, and ending
        it would crash.
        """
        if not self.running:
            return
        if threading.get_ident() == self._thread:
            self.stop()
        else:
            self._watches.close()
            self._profiler = None
        self.gave_way = True

    def _time(self) -> None:
        """Take the time at the start of the timed steps, after the first and at the end."""
        if self.steps is None or self._count not in (self.skip, self.skip + 1, self.skip + self.steps):
            return
        self._timer.mark()
        if self._count == self.skip + self.steps:
            self.measured_step_ms = self._timer.mean_ms(self.steps)

    def _write(self, profiler: FinishedProfile) -> None:
        """Write the trace. A full disk must not end the profiled program: `report` raises the error later."""
        try:
            path = self._kept or Path(_folder_for(self), "trace.json")
            self.trace = export(profiler, path, facts.settings(self.level, self.measured_step_ms, self._autocast_dtype))
        except Exception as error:
            self.failure = f"the trace could not be written: {error}"

    def analyze(self, **options: Any) -> "Report":
        """Analyse the recording; ``options`` are those of `trace_analyzer.analyze`.

        Raises ``UsageError`` with the reason when nothing was recorded.
        """
        self.stop()
        if self.trace is None:
            raise UsageError(self.failure or self.shortage())
        from msgspec.structs import replace

        from trace_analyzer.pipeline import analyze

        report = analyze(self.trace, **options)
        return report if self._kept else replace(report, trace=replace(report.trace, path="trace_analyzer.profile"))

    @cached_property
    def report(self) -> "Report":
        """Return the report on the recording, made on first use; raises like `analyze`."""
        return self.analyze()

    def shortage(self) -> str:
        """Return why nothing was recorded."""
        if not self.started:
            return "nothing was recorded yet: the block or function did not run"
        ended = "another profiler began" if self.gave_way else "the loop ended"
        return (
            f"nothing was recorded: {ended} after {self._count} of {self.needed} steps ({self.skip} skipped, "
            f"{self.steps} timed, {WARMUP} of warm-up, {self.steps} recorded; step() ends each)"
        )

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate a function: each call is a step, except nested calls.

        The returned function has the session as attribute ``profiler``. Raises ``UsageError`` for generators and
        coroutines, which return before their work is done, and for classes.
        """
        kinds = (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction, inspect.isclass)
        if not callable(function) or any(kind(function) for kind in kinds):
            raise UsageError(
                "profile decorates plain functions; in a generator or a coroutine, write `with profile(...)` inside"
            )

        @functools.wraps(function)
        def stepped(*args: P.args, **kwargs: P.kwargs) -> R:
            if not self.started:
                self.start()
            self._depth += 1
            try:
                return function(*args, **kwargs)
            finally:
                self._depth -= 1
                if self._depth == 0:
                    (self.stop if self.steps is None else self.step)()

        stepped.profiler = self  # type: ignore[attr-defined]
        return stepped


def _folder_for(owner: object) -> str:
    """Make a temporary folder that is removed with its owner."""
    folder = tempfile.mkdtemp(prefix="trace-analyzer-")
    weakref.finalize(owner, _remove, folder, os.getpid())
    return folder


def _remove(folder: str, process: int) -> None:
    """Remove the folder, but not in a forked child that ends before its parent."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def register_magic(shell: Any) -> None:
    """Add ``%%analyze`` to an IPython shell (``InteractiveShell``): ``%load_ext trace_analyzer`` calls this."""
    import argparse
    import shlex

    from IPython.core.error import UsageError as MagicError

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:  # an error in one line, where argparse would end the kernel
            raise UsageError(message)

    parser = Parser("%%analyze", add_help=False)
    parser.add_argument("name", nargs="?", default="report")
    parser.add_argument("--level", choices=tuple(LEVELS), default="standard")

    def analyze(line: str, cell: str) -> "Report | None":
        """Run the cell under the profiler, show the report and keep it: ``%%analyze [NAME] [--level LEVEL]``.

        NAME is the variable for the report, ``report`` by default. LEVEL is light, standard (with shapes) or full (with
        stacks and memory).
        """
        try:
            options = parser.parse_args(shlex.split(line))
            if not options.name.isidentifier():
                raise UsageError(f"{options.name!r} is no name of a variable")
            with profile(level=options.level) as session:
                ran = shell.run_cell(cell, store_history=False)
            report = session.report if ran.success else None  # the cell's own error is shown already
        except (TraceAnalyzerError, ValueError) as error:
            raise MagicError(f"%%analyze: {error}") from None
        if report is not None:
            shell.user_ns[options.name] = report
        return report

    shell.register_magic_function(analyze, magic_kind="cell", magic_name="analyze")
