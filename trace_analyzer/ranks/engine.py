"""Summarize ranks on any executor with ``submit(function, path).result()``; by default on a pool of processes.

This module imports no analysis code, as a worker sets its environment before importing it.
"""

import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from trace_analyzer.tuning import limit_arenas

Progress = Callable[[str, float | None], None]

_IN_FLIGHT = 64
"""Most ranks in flight on a foreign executor."""
_POLL_S = 0.2
_BASE_BYTES = 100 << 20
_PER_BYTE = {".gz": 40, ".zst": 40}
"""Memory per byte of a compressed file: a worker takes 100 MB plus twice the JSON text, of which the file is a
twentieth."""


class Executor(Protocol):
    """Declare the interface of executors: `concurrent.futures`, `dask.distributed.Client`, loky."""

    def submit(self, function: Callable[[str], bytes], path: str, /) -> Any:
        """Return an object whose ``result()`` waits for the function's result on the path, or raises its error."""


def summaries(
    paths: Sequence[str],
    executor: Executor | None = None,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> list[bytes]:
    """Return a summary of each path, in order, like `summarize`; the summary of a failed rank holds its error.

    The caller shuts down a given ``executor``. By default, ranks run in ``workers`` new processes, limited by processors
    and memory. All processes end before the call returns.
    """
    if executor is not None:
        most = workers or _IN_FLIGHT
        with ThreadPoolExecutor(most) as threads:  # they wait for results, which works with any executor
            return _all(
                paths,
                lambda path: threads.submit(lambda: bytes(executor.submit(summarized, path).result())),
                (most, most),
                None,
                progress,
            )
    most = min(workers or processors(), len(paths)) or 1
    with _Processes(most) as pool:
        # A worker that dies takes the ranks of its neighbours with it: all are tried again, one by one.
        return _all(paths, pool.submit, (most, 1), memory_limit() // 2, progress)


def summarized(path: str) -> bytes:
    """Summarize a rank in the calling process."""
    from trace_analyzer.ranks.recording import summarize

    return summarize(path)


def _all(
    paths: Sequence[str],
    submit: Callable[[str], "Future[bytes]"],
    rounds: Sequence[int],
    memory: int | None,
    progress: Progress | None,
) -> list[bytes]:
    """Return the results of all paths, with so many in flight in each round; lost ones go to the next round.

    Of a rank in flight alone, memory does not matter: a rank that exceeds ``memory`` runs alone.
    """
    from trace_analyzer.ranks.summary import failed, is_failed

    results: dict[int, bytes] = {}
    needed = [needed_bytes(path) if memory else 0 for path in paths]
    open_places = list(range(len(paths)))
    bad = 0
    for number, most in enumerate(rounds):
        todo, lost = deque(open_places), list[int]()
        running: dict[Future[bytes], int] = {}
        while todo or running:
            while todo and len(running) < most:
                if running and memory and needed[todo[0]] + sum(needed[place] for place in running.values()) > memory:
                    break
                place = todo.popleft()
                running[submit(paths[place])] = place
            for future in wait(running, _POLL_S, FIRST_COMPLETED).done:
                place = running.pop(future)
                error = future.exception()
                if error is None:
                    results[place] = future.result()
                elif number + 1 < len(rounds):
                    lost.append(place)
                    continue
                else:
                    results[place] = failed(paths[place], _reason(error))
                bad += is_failed(results[place])
            if progress is not None:
                some = f", {bad} failed" if bad else ""
                progress(f"reading ranks, {len(results)} of {len(paths)}{some}", len(results) / len(paths))
        open_places = sorted(lost)
    return [results[place] for place in range(len(paths))]


def _reason(error: BaseException) -> str:
    if isinstance(error, BrokenProcessPool):
        return "the process that read it died: it may have run out of memory"
    return f"{type(error).__name__}: {error}"


def processors() -> int:
    """Return the number of processors available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_limit() -> int:
    """Return the memory of this machine, or of its control group if that is less."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 8 << 30
    try:
        text = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
        return min(total, int(text)) if text.isdecimal() else total
    except OSError:
        return total


def needed_bytes(path: str) -> int:
    """Return the estimated memory for summarizing the file."""
    try:
        size = Path(path).stat().st_size
    except OSError:
        size = 0
    return _BASE_BYTES + size * _PER_BYTE.get(Path(path).suffix, 2)


class _Worker(SpawnProcess):
    """Start without the caller's main module: a script that calls this at its top level must not run again.

    The parent handles interrupts: they are blocked where a worker starts.
    """

    @staticmethod
    def _Popen(process_obj: BaseProcess) -> Any:  # noqa: N802 (the name that multiprocessing calls)
        main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
        masks = hasattr(signal, "pthread_sigmask")
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if masks else None
        try:
            return SpawnProcess._Popen(process_obj)
        finally:
            sys.modules["__main__"] = main
            if mask is not None:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@contextmanager
def _late_signals() -> Iterator[None]:
    """Handle signals of the body after it: a worker that an interrupt leaves half started, and unknown, prints a traceback."""
    if threading.current_thread() is not threading.main_thread():  # signals are handled in the main thread
        yield
        return
    ending = {signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}
    handled = [number for number in ending if callable(signal.getsignal(number))]
    came: list[int] = []
    handlers = {number: signal.signal(number, lambda number, _: came.append(number)) for number in handled}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in came:
            signal.raise_signal(number)


class _Context(SpawnContext):
    Process = _Worker


class _Processes:
    """A standard pool of processes, which is replaced when one of them dies."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._pool = self._new()

    def _new(self) -> ProcessPoolExecutor:
        threads = max(1, processors() // self._workers)
        return ProcessPoolExecutor(self._workers, _Context(), initializer=_prepare, initargs=(threads,))

    def submit(self, path: str) -> "Future[bytes]":
        """Submit a path to the pool, or to a new one if it is broken."""
        with _late_signals():
            try:
                return self._pool.submit(summarized, path)
            except BrokenProcessPool:
                self._pool.shutdown(wait=False, cancel_futures=True)
                self._pool = self._new()
                return self._pool.submit(summarized, path)

    def __enter__(self) -> "_Processes":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:  # as an interrupt: ranks in flight are given up
            for process in list((getattr(self._pool, "_processes", None) or {}).values()):
                process.kill()
        self._pool.shutdown(wait=True, cancel_futures=True)


def _prepare(threads: int) -> None:
    """Prepare a worker process: the parent handles interrupts, and workers share the processors."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.setdefault("POLARS_MAX_THREADS", str(threads))
    limit_arenas()
