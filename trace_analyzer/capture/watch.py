"""Watch for events that a recording depends on: the program's own profilers, and autocast.

Torch reports neither, so the relevant methods of its classes are wrapped during a recording.
"""

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any

Undo = Callable[[], None]


def other_profilers(own: Callable[[object], bool], meet: Callable[[], None]) -> Undo:
    """Call ``meet`` before any profiler starts for which ``own`` is false; the result is a function that ends this.

    Torch has one session: the profiler that stops it gets the data of all, and the export of a profiler without data
    crashes the process.
    """
    from torch.autograd.profiler import profile

    def wrap(start: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def begins(profiler: Any) -> Any:
            if not own(profiler):
                meet()
            return start(profiler)

        return begins

    undo = contextlib.ExitStack()
    for name in ("_prepare_trace", "_start_trace"):
        undo.callback(_wrapped(profile, name, wrap))
    return undo.close


_prepared: "weakref.WeakSet[Any]" = weakref.WeakSet()


def follow_profilers() -> None:
    """Make `profiler_at_work` also notice prepared profilers, not only recording ones.

    A profiler is prepared from the start of its schedule's warm-up; a recording meanwhile takes its data.
    """
    from torch.autograd.profiler import profile

    def preparing(prepare: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def prepares(profiler: Any) -> Any:
            _prepared.add(profiler)
            return prepare(profiler)

        return prepares

    def ending(end: Callable[..., Any]) -> Callable[..., Any]:
        def ends(profiler: Any, *why: Any) -> Any:
            try:
                return end(profiler, *why)
            finally:
                _prepared.discard(profiler)

        return ends

    _wrapped(profile, "_prepare_trace", preparing)
    _wrapped(profile, "__exit__", ending)


def profiler_at_work() -> bool:
    """Return whether any profiler of this process is recording, in any thread, or is prepared (`follow_profilers`)."""
    from torch.autograd import profiler

    return bool(getattr(profiler, "_is_profiler_enabled", False) or _prepared)


def autocast(note: Callable[[str], None]) -> Undo:
    """Call ``note`` with the compute type at the start of each autocast region; return a function to stop this.

    Regions inside previously compiled code are not seen.
    """
    from torch.amp.autocast_mode import autocast as region_type

    def wrap(enter: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def enters(region: Any) -> Any:
            entered = enter(region)
            if dtype := autocast_dtype(getattr(region, "device", "")):
                note(dtype)
            return entered

        return enters

    return _wrapped(region_type, "__enter__", wrap)


def autocast_dtype(*kinds: str) -> str | None:
    """Return the type of the active autocast region on the first of these device kinds; None without one."""
    import torch

    try:
        on = [torch.get_autocast_dtype(kind) for kind in kinds if torch.is_autocast_enabled(kind)]
    except (AttributeError, TypeError, RuntimeError):  # torch before 2.4, or a kind without autocast
        return None
    return str(on[0]).removeprefix("torch.") if on else None


def _wrapped(owner: type, name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Undo:
    """Wrap a method; return a function that restores it, unless it was wrapped again."""
    original = getattr(owner, name)
    wrapper = wrap(original)
    over = threading.Event()

    @functools.wraps(original)
    def method(self: Any, *arguments: Any) -> Any:
        return (original if over.is_set() else wrapper)(self, *arguments)

    def undo() -> None:
        over.set()
        if getattr(owner, name) is method:
            setattr(owner, name, original)

    setattr(owner, name, method)
    return undo
