"""Save time and memory without changing results.

Each function names the benchmark that shows its gain. The threads that prefetch tables are in `trace_analyzer.analysis`.
"""

import atexit
import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, NoReturn, TypeVar

if TYPE_CHECKING:
    import polars as pl

T = TypeVar("T")

SMALL_BYTES = 1 << 20
"""Largest file that is processed by one thread: on small tables, several threads mostly wait for each other."""

READING_THREADS = min(4, os.cpu_count() or 1)
"""Number of chunks of a file that compiled code reads in parallel (benchmarks/ingest.py --tricks)."""

PREFETCHING_THREADS = min(2, max(1, (os.cpu_count() or 1) - 1))
"""Number of threads that prefetch tables for the report, beside the one that asks for it (benchmarks/linearity.py).

A third thread on two cores takes a tenth more CPU time and 8 MB for a trace of 120 MB, and gains nothing.
"""

SMALL_EVENTS = 20_000
"""Least events of a trace for prefetching: on small tables the threads mostly wait (benchmarks/again.py)."""

ARENAS = 2
"""Arenas of each allocator: more take more memory, and with one, threads wait for each other (`limit_arenas`)."""

_M_ARENA_MAX = -8
"""The parameter of glibc's ``mallopt``, from ``malloc.h``."""

_GARBAGE_AFTER = 200_000

_REMEMBERED_ROWS = 2_048
_REMEMBERED_IN_ALL = 64 * _REMEMBERED_ROWS


def collect_garbage_rarely() -> None:
    """Raise the threshold of Python's garbage collector (benchmarks/startup.py --tricks).

    Imports and analyses make many objects, and hardly any cycles. Collecting after every 20,000 new objects takes 22 ms of
    CPU time for a small trace and frees 80 objects; after every 200,000 it does not run.
    """
    gc.set_threshold(_GARBAGE_AFTER)


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Pause the garbage collector (benchmarks/ingest.py --tricks).

    Parsing JSON makes millions of dicts without cycles. The collector visits them repeatedly, which costs an eighth
    more CPU time for a file of 60 MB.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def return_freed_memory() -> None:
    """Return freed memory to the system, with glibc only (benchmarks/ingest.py --tricks).

    glibc keeps the small blocks that reading frees, and later steps hardly reuse them, which adds a tenth to the peak
    memory for a trace of 120 MB. Returning them takes 5 ms. Before and between the passes of the replay it saves 15 MB
    of such a trace.
    """
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def limit_threads(*paths: str) -> None:
    """Limit Polars to one thread where all files are small, and NumPy's BLAS to one, unless the user sets a number.

    Both read the number once, at import. OpenBLAS would start its threads then, which takes 10 to 60 ms of CPU time,
    but no code here multiplies matrices (benchmarks/startup.py --tricks).
    """
    if "numpy" not in sys.modules:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if "polars" not in sys.modules and all(os.path.isfile(p) and os.path.getsize(p) <= SMALL_BYTES for p in paths):
        os.environ.setdefault("POLARS_MAX_THREADS", "1")
    limit_arenas()


def limit_arenas() -> None:
    """Let threads share `ARENAS` memory arenas and return freed pages at once, unless the user sets other values.

    Its gain: ``benchmarks/ingest.py --tricks``.

    By default jemalloc, Polars' allocator, has four arenas per core and keeps freed pages for a second, and glibc has
    eight per core: other threads cannot reuse the memory that one thread frees. Polars reads the variable at import.
    This saves a tenth of the peak memory for a trace of 120 MB, at the same CPU time.
    """
    if "polars" not in sys.modules:
        os.environ.setdefault("_RJEM_MALLOC_CONF", f"narenas:{ARENAS},muzzy_decay_ms:0")
    if sys.platform == "linux" and "MALLOC_ARENA_MAX" not in os.environ:
        import ctypes

        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has no mallopt
        if mallopt is not None:
            mallopt(_M_ARENA_MAX, ARENAS)


@contextmanager
def beside(work: Callable[[], object]) -> Iterator[None]:
    """Run a function in another thread during the block, and wait for its end (benchmarks/startup.py).

    Its exceptions are ignored, as the code that needs its result raises them again. Analyses are imported this way
    while a trace is read.
    """

    def quietly() -> None:
        try:
            work()
        except BaseException:  # raised again where the result is needed
            return

    thread = threading.Thread(target=quietly, name="beside")
    thread.start()
    try:
        yield
    finally:
        thread.join()


def within_query(function: Callable[[], T]) -> T:
    """Call a function within a Polars query and return its result (benchmarks/startup.py --tricks).

    Polars hands each query to a thread of its pool and waits, which takes longer than most queries on small tables. A
    query within a query of the streaming engine stays in its thread. The analysis of a small trace takes 0.77 s
    of CPU time instead of 1.33 s, on two cores. Exceptions of the function are raised unchanged.
    """
    import polars as pl

    results: list[T] = []
    errors: list[BaseException] = []

    def run(frame: pl.DataFrame) -> pl.DataFrame:
        try:
            results.append(function())
        except BaseException as error:  # Polars would wrap it in its own error
            errors.append(error)
        return frame

    pl.LazyFrame({"row": [0]}).map_batches(run).collect(engine="streaming")
    if errors:
        raise errors[0]
    return results[0]


def remembered(function: "Callable[[pl.DataFrame], pl.DataFrame]") -> "Callable[[pl.DataFrame], pl.DataFrame]":
    """Cache the rows of a pure function that keeps its columns and makes of each row, by itself, one or none, in order.

    Polars compiles the catalogues' patterns again for every report, which is a quarter of the time for a small trace.
    Programs that analyse several traces meet the same names again, among others (benchmarks/again.py).
    """
    memory: dict[object, tuple[dict[tuple[object, ...], tuple[object, ...] | None], pl.Schema]] = {}

    @wraps(function)
    def of_frame(frame: "pl.DataFrame") -> "pl.DataFrame":
        import polars as pl

        if frame.height > _REMEMBERED_ROWS:
            return function(frame)
        rows, key = frame.rows(), tuple(frame.schema.items())
        known, schema = memory.get(key, ({}, None))
        if schema is None or any(row not in known for row in rows):
            if len(known) > _REMEMBERED_IN_ALL:
                known = {}
            new = [row for row in rows if row not in known]
            made = function(pl.DataFrame(new, schema=frame.schema, orient="row"))
            schema = made.schema
            # Another thread may read the former rows meanwhile: they stay as they are.
            known = known | dict.fromkeys(new) | dict(zip(made.select(frame.columns).rows(), made.rows(), strict=True))
            memory[key] = known, schema
        return pl.DataFrame([kept for row in rows if (kept := known[row])], schema=schema, orient="row")

    return of_frame


def exit_without_freeing(code: int, unwritten: int) -> NoReturn:
    """End the process with ``code`` without freeing its memory (benchmarks/startup.py).

    Freeing takes a tenth of the time for a small trace. Before, streams are flushed and exit functions called; a stream
    that cannot be flushed turns a ``code`` of 0 into ``unwritten``.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:  # its failed write was reported before
            code = code or unwritten
    atexit._run_exitfuncs()
    os._exit(code)
