"""Save time and memory in ways that change no result.

Each names the benchmark that shows what it wins. The threads that make tables ahead are the graph's
(`trace_analyzer.graph`).
"""

import atexit
import dataclasses
import gc
import os
import reprlib
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass

    import polars as pl

T = TypeVar("T")

SMALL_BYTES = 1 << 20
"""A file up to this size is worked on by one thread: over small tables, several mostly wait for each other."""

READING_THREADS = min(4, os.cpu_count() or 1)
"""Texts of a file that compiled code reads at once (benchmarks/ingest.py --tricks)."""

PREFETCHING_THREADS = 2
"""Threads that make tables beside the one that waits for the report (benchmarks/linearity.py) ..."""

SMALL_EVENTS = 20_000
"""... of a trace of more than so many events: over small tables they mostly wait (benchmarks/again.py)."""

ARENAS = 2
"""Arenas of each allocator that threads share: more take more memory, and one would make threads wait for each other (`limit_arenas`)."""

_M_ARENA_MAX = -8
"""The parameter of glibc's ``mallopt``, from its ``malloc.h``."""

_GARBAGE_AFTER = 200_000

_REMEMBERED_ROWS = 2_048
_REMEMBERED_FRAMES = 64


if not TYPE_CHECKING:

    def dataclass(cls: type | None = None, /, **options: Any) -> Any:
        """Make a dataclass as the standard library does, if frozen in a third of its time (benchmarks/startup.py --tricks).

        Python up to 3.12 compiles six methods of every frozen dataclass, each by itself: half a millisecond, and the analyses have 150.
        Here it compiles ``__init__`` alone, and all classes share the other five. A field can be set once, as ``__init__`` does.
        Dataclasses with slots, and those that inherit from one, are left to the standard library.
        """
        if cls is None:
            return lambda cls: dataclass(cls, **options)
        inherits = any(dataclasses.is_dataclass(base) for base in cls.__mro__[1:])
        if not options.get("frozen") or options.get("slots") or inherits:
            return dataclasses.dataclass(**options)(cls)
        own = vars(cls)
        has_hash = own.get("__hash__") is not None
        shared: dict[str, Any] = {"__setattr__": _set_once, "__delattr__": _refuse_to_delete}
        if options.get("repr", True) and "__repr__" not in own:
            shared["__repr__"] = _shown
        if options.get("eq", True) and "__eq__" not in own:
            shared["__eq__"] = _equal
        if options.get("eq", True) and not has_hash:
            shared["__hash__"] = _hash
        made = dataclasses.dataclass(**{**options, "frozen": False, "repr": False, "eq": False})(cls)
        for name, method in shared.items():
            setattr(made, name, method)
        made.__dataclass_params__.frozen = True  # as those who inherit from it look up
        return made


def _set_once(self: Any, name: str, value: object) -> None:
    values = self.__dict__
    if name in values or name not in self.__dataclass_fields__:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
    values[name] = value


def _refuse_to_delete(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


@reprlib.recursive_repr()
def _shown(self: Any) -> str:
    fields = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(fields)})"


def _equal(self: Any, other: object) -> bool:
    return _compared(self) == _compared(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(
        tuple(getattr(self, f.name) for f in dataclasses.fields(self) if (f.compare if f.hash is None else f.hash))
    )


def _compared(instance: Any) -> tuple[object, ...]:
    return tuple(getattr(instance, field.name) for field in dataclasses.fields(instance) if field.compare)


def collect_garbage_rarely() -> None:
    """Let Python look for garbage after more new objects (benchmarks/startup.py --tricks).

    Imports and analyses make many objects and next to none in cycles. Looking after every 20,000 takes 22 ms of CPU time of a small
    trace and finds 80 objects; after every 200,000 it does not happen.
    """
    gc.set_threshold(_GARBAGE_AFTER)


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Pause the collector of cycles (benchmarks/ingest.py --tricks).

    Reading text as JSON makes millions of dicts that are in no cycle; the collector walks over them again and again, which
    takes an eighth more CPU time for a file of 60 MB.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def return_freed_memory() -> None:
    """Return freed memory to the system, where the C library is glibc (benchmarks/ingest.py --tricks).

    glibc keeps the small pieces that reading frees, and little that follows takes pieces as small: that adds a tenth to the
    peak of an analysis of 120 MB. Returning them takes 5 ms. Before and after
    the replay it is 10 and 20 MB of such a trace.
    """
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def limit_threads(*paths: str) -> None:
    """Give Polars one thread where all files are small, and NumPy's linear algebra one, if the user does not say how many.

    Both ask for the number once, when they are imported. OpenBLAS starts its threads then, which takes 10 to 60 ms of CPU time;
    nothing here multiplies matrices (benchmarks/startup.py --tricks).
    """
    if "numpy" not in sys.modules:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if "polars" not in sys.modules and all(os.path.isfile(p) and os.path.getsize(p) <= SMALL_BYTES for p in paths):
        os.environ.setdefault("POLARS_MAX_THREADS", "1")
    limit_arenas()


def limit_arenas() -> None:
    """Let threads share `ARENAS` arenas of memory, and return freed pages at once, if the user sets nothing else.

    What it wins: ``benchmarks/ingest.py --tricks``.

    Polars' allocator, jemalloc, has four arenas for each core and keeps freed pages for a second, glibc has eight for each core:
    what one thread frees, the others do not use again. Polars reads the variable when it is imported. A tenth less of
    memory at the peak of an analysis of 120 MB, and no more CPU time.
    """
    if "polars" not in sys.modules:
        os.environ.setdefault("_RJEM_MALLOC_CONF", f"narenas:{ARENAS},muzzy_decay_ms:0")
    if sys.platform == "linux" and "MALLOC_ARENA_MAX" not in os.environ:
        import ctypes

        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
        if mallopt is not None:
            mallopt(_M_ARENA_MAX, ARENAS)


@contextmanager
def beside(work: Callable[[], object]) -> Iterator[None]:
    """Do some work in another thread while this lasts, and wait for its end (benchmarks/startup.py).

    What raises there is left to who needs it. Reading a trace leaves the time for importing the analyses.
    """

    def quietly() -> None:
        try:
            work()
        except BaseException:  # it raises again where it is needed
            return

    thread = threading.Thread(target=quietly, name="beside")
    thread.start()
    try:
        yield
    finally:
        thread.join()


def within_query(function: Callable[[], T]) -> T:
    """Return what a function returns, called within a query of Polars (benchmarks/startup.py --tricks).

    Polars hands each query to a thread of its pool and waits, which takes longer than most queries over small tables. A query that is made
    within one of its streaming engine stays in its thread: a fifth less CPU time for a small trace, a tenth for one of 120 MB. What the
    function raises is raised here.
    """
    import polars as pl

    results: list[T] = []
    errors: list[BaseException] = []

    def run(frame: pl.DataFrame) -> pl.DataFrame:
        try:
            results.append(function())
        except BaseException as error:  # Polars would wrap it in an error of its own
            errors.append(error)
        return frame

    pl.LazyFrame({"row": [0]}).map_batches(run).collect(engine="streaming")
    if errors:
        raise errors[0]
    return results[0]


def remembered(function: "Callable[[pl.DataFrame], pl.DataFrame]") -> "Callable[[pl.DataFrame], pl.DataFrame]":
    """Keep the last results of a pure function for frames of up to 2,048 rows (benchmarks/again.py).

    Polars compiles the patterns of the catalogues for every report, a quarter of the time that a small trace takes.
    Programs that analyse several traces meet the same names again.
    """

    @lru_cache(_REMEMBERED_FRAMES)
    def result(columns: "tuple[tuple[str, pl.DataType], ...]", rows: tuple[tuple[object, ...], ...]) -> "pl.DataFrame":
        import polars as pl

        return function(pl.DataFrame(rows, schema=dict(columns), orient="row"))

    @wraps(function)
    def of_frame(frame: "pl.DataFrame") -> "pl.DataFrame":
        if frame.height > _REMEMBERED_ROWS:
            return function(frame)
        return result(tuple(frame.schema.items()), tuple(frame.rows()))

    return of_frame


def exit_without_freeing(code: int, unwritten: int) -> NoReturn:
    """End the process with ``code``, without freeing what it holds (benchmarks/startup.py).

    Freeing takes a tenth of the time that a small trace takes. Streams are flushed and exit functions called before; a
    stream that cannot be flushed turns a ``code`` of 0 into ``unwritten``.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:  # its failure was reported where it was written
            code = code or unwritten
    atexit._run_exitfuncs()
    os._exit(code)
