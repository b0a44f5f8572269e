"""Record within the script's own process: wait for torch, then count steps or seconds.

Imports only the standard library until the script imports torch. Nothing here may fail the script.
"""

import atexit
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import re
import sys
import threading
import types
import weakref
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

VARIABLE = "TRACE_ANALYZER_RECORD"
"""Environment variable with the `Plan` for every Python process that the command starts."""


@dataclass(frozen=True)
class Plan:
    """Describe what to record: ``steps`` optimizer steps, or ``seconds``, ``after`` seconds from torch's import.

    ``folder`` is where traces are written.
    """

    folder: str
    steps: int | None = None
    seconds: float | None = None
    after: float = 0.0
    skip: int = 3
    level: str = "light"

    def to_text(self) -> str:
        """Serialize the plan for the environment."""
        return json.dumps(asdict(self))


def arm() -> None:
    """Record this process as the environment requests, once it has imported torch."""
    text = os.environ.get(VARIABLE)
    if text:
        plan = Plan(**json.loads(text))
        sys.meta_path.insert(0, _AfterTorch(functools.partial(_attach, plan)))
        atexit.register(_harmless, functools.partial(_report_missing_torch, plan))


class _AfterTorch(importlib.abc.MetaPathFinder):
    """Call a function right after ``import torch``."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return torch's spec, with the callback at the end of its execution; None for any other module."""
        if fullname != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            execute(module)
            _harmless(self._callback)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _harmless(action: Callable[[], None]) -> bool:
    """Call a function and return whether it failed: that is a line on standard error, and the script continues."""
    try:
        action()
    except Exception as error:
        print(f"analyze: recording failed: {error}", file=sys.stderr, flush=True)
        return True
    return False


def _attach(plan: Plan) -> None:
    from trace_analyzer.capture import facts

    facts.follow_profilers()
    facts.follow_recordings()
    if plan.seconds is None:
        StepRecorder(plan).attach()
    elif not _HELPER.search(" ".join(sys.orig_argv)):
        SecondsRecorder(plan).attach()


_HELPER = re.compile(r"--multiprocessing-fork|multiprocessing\.\w+ import|compile_worker")
"""Command lines of helper processes of a script: data loaders, compilers."""


def _trace_path(plan: Plan) -> Path:
    from trace_analyzer.capture import facts

    rank = facts.rank()
    return Path(plan.folder, f"process{os.getpid()}.json.gz" if rank is None else f"rank{rank}.json.gz")


class StepRecorder:
    """Record by steps of the process's first optimizer (or the next one, if that was deleted), in its thread."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._session: Any = None
        self._place: tuple[int, int] | None = None
        self._owner: Callable[[], object] = lambda: None
        self._depth = 0
        self._over = False

    def attach(self) -> None:
        """Wrap ``step`` of every optimizer class outside torch's own wrapper.

        Torch's hooks run inside the range ``Optimizer.step#...``, where neither a profiler step nor the recording may
        begin or end.
        """
        from torch.optim import Optimizer

        wrap = Optimizer.profile_hook_step
        recorder = self

        def profile_hook_step(step: Callable[..., Any]) -> Callable[..., Any]:
            inner = wrap(step)

            @functools.wraps(step)
            def counted(*args: Any, **kwargs: Any) -> Any:
                if recorder._over or _compiling():
                    return inner(*args, **kwargs)
                recorder._depth += 1
                try:
                    result = inner(*args, **kwargs)
                finally:
                    recorder._depth -= 1
                if recorder._depth == 0:
                    recorder.stepped(args[0])
                return result

            return counted

        Optimizer.profile_hook_step = staticmethod(profile_hook_step)
        atexit.register(_harmless, self.finish)

    def stepped(self, optimizer: object) -> None:
        """Handle one step of an optimizer."""
        place = (os.getpid(), threading.get_ident())
        if self._place is None:
            self._place = place
        if place != self._place:
            return
        if self._owner() is None:
            self._owner = weakref.ref(optimizer)
        if self._owner() is optimizer and not self._over:
            self._over = _harmless(self._advance) or self._over

    def _advance(self) -> None:
        """Advance the session by a step, and start it once no profiler of the script runs."""
        from trace_analyzer.capture import facts
        from trace_analyzer.capture.session import Session

        session = self._session
        if session is not None:
            session.step()
            self._over = not session.running and (session.trace is not None or not session.gave_way)
        if (session is None or not session.running) and not self._over and not facts.profiler_at_work():
            self._session = Session(self._plan.steps, self._plan.level, self._plan.skip, _trace_path(self._plan))
            self._session.start()
            needed = self._session.needed
            _write_reason(
                self._plan, f"its process ended at once (os._exit, exec, a signal), before the end of {needed} steps"
            )

    def finish(self) -> None:
        """Keep the recording so far, and report why there is none."""
        session = self._session
        if self._place is None or self._place[0] != os.getpid():
            return
        _report_missing_device(self._plan)
        if session is None:
            _write_reason(self._plan, "the script ran a profiler of its own, and two cannot be at work")
            return
        session.stop()
        if session.trace is None:
            _write_reason(
                self._plan, session.failure or f"{session.shortage()}; the optimizer's first step begins the first"
            )


class SecondsRecorder:
    """Record all threads for some time, until the script starts a profiler of its own."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._ending = threading.Event()
        self._stopped = threading.Event()
        self._recording = False
        self._process = os.getpid()
        self._thread = threading.Thread(target=_harmless, args=(self._record,), daemon=True)

    def attach(self) -> None:
        """Start to wait in a thread."""
        from torch.profiler import ProfilerActivity, profile

        # Kineto initializes in the thread of its first use, and refuses if torch was imported in another thread.
        with profile(activities=[ProfilerActivity.CPU]):
            pass
        atexit.register(self._finish)
        self._thread.start()

    def _record(self) -> None:
        from torch._C._profiler import _ExperimentalConfig
        from torch.profiler import profile

        from trace_analyzer.capture import facts
        from trace_analyzer.capture.facts import export
        from trace_analyzer.capture.session import LEVELS

        if self._ending.wait(self._plan.after):
            _write_reason(self._plan, f"the script ended before the {self._plan.after:g} seconds of --after")
            return
        everywhere = _ExperimentalConfig(profile_all_threads=True)
        profiler = profile(experimental_config=everywhere, **LEVELS[self._plan.level])
        while facts.profiler_at_work() or (undo := self._claimed()) is None:
            if self._ending.wait(_PATIENCE_S):
                _write_reason(self._plan, "the script ran a profiler of its own, and two cannot be at work")
                return
        try:
            profiler.start()
            self._ending.wait(self._plan.seconds)
            profiler.stop()
        finally:
            self._recording = False
            undo()
            self._stopped.set()
        export(profiler, _trace_path(self._plan), facts.settings(self._plan.level))
        _report_missing_device(self._plan)

    def _claimed(self) -> Callable[[], None] | None:
        """Make the script's profilers wait for the recording.

        Returns a function that undoes this, or None if a profiler is running.
        """
        from trace_analyzer.capture import facts

        self._recording = True
        undo = facts.other_profilers(lambda other: threading.current_thread() is self._thread, self._give_way)
        if not facts.profiler_at_work():
            return undo
        self._recording = False
        undo()
        self._stopped.set()
        self._stopped = threading.Event()
        return None

    def _give_way(self) -> None:
        """End the recording in its own thread and keep it, as the script starts a profiler."""
        stopped = self._stopped
        if self._recording and os.getpid() == self._process:
            self._ending.set()
            stopped.wait()

    def _finish(self) -> None:
        if os.getpid() == self._process:
            self._ending.set()
            self._thread.join()


_PATIENCE_S = 0.1
"""Interval for checking whether the script's own profiler has ended."""


def _report_missing_torch(plan: Plan) -> None:
    """Report an interpreter that ended without importing torch, as reason for a missing trace."""
    if "torch" in sys.modules or not Path(plan.folder).is_dir():
        return
    has_none = importlib.util.find_spec("torch") is None
    reason = f"{sys.executable} has no torch" if has_none else f"{sys.executable} has torch, and nothing imported it"
    Path(plan.folder, f"process{os.getpid()}.interpreter").write_text(reason, encoding="utf-8")


def _report_missing_device(plan: Plan) -> None:
    """Report that torch sees no device, if so."""
    import torch

    kinds = [kind for kind in ("cuda", "xpu") if hasattr(torch, kind) and getattr(torch, kind).is_available()]
    if not kinds:
        built = torch.version.cuda or getattr(torch.version, "hip", None)
        why = "" if built else f": torch {torch.__version__} is built without it"
        Path(plan.folder, f"process{os.getpid()}.device").write_text(
            f"torch sees no CUDA device ({sys.executable}{why})", encoding="utf-8"
        )


def _write_reason(plan: Plan, reason: str) -> None:
    """Write the reason for a missing trace to a file that ``analyze record`` reads."""
    Path(plan.folder, f"process{os.getpid()}.reason").write_text(reason, encoding="utf-8")


def _compiling() -> bool:
    """Return whether torch.compile is tracing this code, which must not see a recorder."""
    import torch

    return bool(torch.compiler.is_compiling())
