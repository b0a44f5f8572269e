"""Summarize ranks on any executor with ``submit(function, path).result()``; by default on a pool of processes.

This module imports no analysis code, as a worker sets its environment before importing it.
"""

import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Protocol, Self

from trace_analyzer.ranks.store import Store
from trace_analyzer.tuning import limit_arenas

Progress = Callable[[str, float | None], None]

_IN_FLIGHT = 64
"""Most ranks in flight on a foreign executor."""
_TRIES = 2
"""Tries per rank: a worker that dies also loses its neighbours' ranks, which are tried again, then one by one."""
_POLL_S = 0.2
_BASE_BYTES = 100 << 20
_PER_BYTE = {".gz": 40, ".zst": 40}
"""Memory per byte of a compressed file: a worker takes 100 MB plus twice the JSON text, of which the file is a
twentieth."""


class Future(Protocol):
    """Declare the result of ``submit``."""

    def result(self) -> Any:
        """Wait for the result, and raise what the function raised."""


class Executor(Protocol):
    """Declare the interface of executors: `concurrent.futures`, `dask.distributed.Client`, loky."""

    def submit(self, function: Callable[[str], bytes], path: str, /) -> Future:
        """Run the function on the path."""


def summaries(
    paths: Sequence[str],
    contents: Store,
    executor: Executor | None = None,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Store:
    """Put a summary of each path into ``contents``, in order, like `summarize`, and return it.

    A dying worker is an error of its rank. The caller shuts down a given ``executor``. By default, ranks run in
    ``workers`` new processes, limited by processors and memory. All processes end before the call returns.
    """
    if executor is not None:
        run = _Run(paths, lambda path: executor.submit(summarized, path), workers or _IN_FLIGHT, progress)
        return run.results(contents)
    many = min(workers or processors(), len(paths)) or 1
    with _Pool(many) as pool:
        run = _Run(paths, pool.submit, many, progress, _Memory(memory_limit() // 2))
        run.results(contents)
    for place in run.suspects:  # each alone, so that only its own failure can end its worker
        with _Pool(1) as pool, Store() as alone:
            contents.put(place, _Run([paths[place]], pool.submit, 1, None).results(alone)[0])
    return contents


def summarized(path: str) -> bytes:
    """Summarize a rank in the calling process."""
    from trace_analyzer.ranks.recording import summarize

    return summarize(path)


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


class _Memory:
    """Admit work while its memory fits; work that exceeds the total runs alone."""

    def __init__(self, limit: int) -> None:
        self._limit, self._used, self._free = limit, 0, threading.Condition()

    def take(self, size: int, is_stopped: Callable[[], bool]) -> None:
        """Wait until so many bytes are free."""
        with self._free:
            while self._used and self._used + size > self._limit and not is_stopped():
                self._free.wait(_POLL_S)
            self._used += size

    def give(self, size: int) -> None:
        """Free bytes."""
        with self._free:
            self._used -= size
            self._free.notify_all()


class _Run:
    """Process paths with threads that wait for results, which works with any executor."""

    def __init__(
        self,
        paths: Sequence[str],
        submit: Callable[[str], Future],
        in_flight: int,
        progress: Progress | None,
        memory: _Memory | None = None,
    ) -> None:
        self._paths, self._submit, self._progress, self._memory = paths, submit, progress, memory
        self._waiting: list[tuple[int, bytes]] = []
        self._open = deque((place, 0) for place in range(len(paths)))
        self._lock, self._stopped = threading.Lock(), threading.Event()
        self._done = self._failed = 0
        self.suspects: list[int] = []
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(min(in_flight, len(paths)))]

    def results(self, store: Store) -> Store:
        """Put all results into the store in order and return it; an interrupt ends the run."""
        for thread in self._threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in self._threads):
                for thread in self._threads:
                    thread.join(_POLL_S)
                    self._keep(store)
                    self._report_progress()
        finally:
            self._stopped.set()
        self._keep(store)
        for place, path in enumerate(self._paths):
            if place >= len(store) or not store[place]:
                store.put(place, _failed(path, "not read"))
        return store

    def _keep(self, store: Store) -> None:
        with self._lock:
            done, self._waiting = self._waiting, []
        for place, result in done:
            store.put(place, result)

    def _report_progress(self) -> None:
        if self._progress is not None:
            failed = f", {self._failed} failed" if self._failed else ""
            total = len(self._paths)
            self._progress(f"reading ranks, {self._done} of {total}{failed}", self._done / total if total else None)

    def _work(self) -> None:
        while not self._stopped.is_set():
            with self._lock:
                if not self._open:
                    return
                place, tries = self._open.popleft()
            path = self._paths[place]
            size = needed_bytes(path)
            if self._memory:
                self._memory.take(size, self._stopped.is_set)
            try:
                result = self._submit(path).result()
            except Exception as error:
                self._retry(place, tries + 1, error)
                continue
            finally:
                if self._memory:
                    self._memory.give(size)
            is_failed = _is_failed(result)
            with self._lock:
                self._waiting.append((place, bytes(result)))
                self._done += 1
                self._failed += is_failed

    def _retry(self, place: int, tries: int, error: Exception) -> None:
        """Put a rank back whose worker died or was lost.

        After some tries it is a suspect, with the error as its result.
        """
        with self._lock:
            if self._stopped.is_set():
                return
            if tries < _TRIES:
                self._open.append((place, tries))
                return
            self._waiting.append((place, _failed(self._paths[place], _reason(error))))
            self.suspects.append(place)
            self._done += 1
            self._failed += 1


def _reason(error: Exception) -> str:
    if isinstance(error, BrokenProcessPool):
        return "the process that read it died: it may have run out of memory"
    return f"{type(error).__name__}: {error}"


def _is_failed(content: bytes) -> bool:
    from trace_analyzer.ranks.summary import is_failed

    return is_failed(content)


def _failed(path: str, error: str) -> bytes:
    from trace_analyzer.ranks.summary import failed

    return failed(path, error)


class _Process(SpawnProcess):
    """Start a process without the caller's main module.

    A script that calls this at its top level must not run again in each worker.
    """

    @staticmethod
    def _Popen(process_obj: BaseProcess) -> Any:  # noqa: N802 (the name that multiprocessing calls)
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        mask = _block_interrupts()
        try:
            return SpawnProcess._Popen(process_obj)
        finally:
            sys.modules["__main__"] = main
            if mask is not None:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _block_interrupts() -> "set[signal.Signals] | None":
    """Block interrupts in this thread and in processes that it starts; return the previously blocked signals."""
    if not hasattr(signal, "pthread_sigmask"):
        return None
    return signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # type: ignore[return-value]


class _Context(SpawnContext):
    Process = _Process


class _Pool:
    """Hold a pool of processes that is replaced when one of them dies."""

    def __init__(self, workers: int) -> None:
        self._workers, self._lock, self._closed = workers, threading.Lock(), False
        self._pool = self._new()

    def _new(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self._workers, _Context(), initializer=_prepare, initargs=(self._threads(),))

    def _threads(self) -> int:
        return max(1, processors() // self._workers)

    def submit(self, path: str) -> Future:
        """Submit a path to the pool, or to a new one if it is broken."""
        with self._lock:
            if self._closed:
                raise RuntimeError("the pool is closed")
            try:
                return self._pool.submit(summarized, path)
            except BrokenProcessPool:
                self._pool.shutdown(wait=False, cancel_futures=True)
                self._pool = self._new()
                return self._pool.submit(summarized, path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._closed = True
            processes = list((getattr(self._pool, "_processes", None) or {}).values())
            if kind is not None:
                for process in processes:
                    process.kill()
            self._pool.shutdown(wait=True, cancel_futures=True)


def _prepare(threads: int) -> None:
    """Prepare a worker process: the parent handles interrupts, and workers share the processors."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.setdefault("POLARS_MAX_THREADS", str(threads))
    limit_arenas()
