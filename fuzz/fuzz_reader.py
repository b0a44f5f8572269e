"""Fuzz the reader: random and mutated traces against the strict reference reader of the tests.

    pip install -e '.[fuzz]'
    python fuzz/fuzz_reader.py [CORPUS_FOLDER] -max_total_time=120 [libFuzzer options]

Properties for any bytes: `load` raises only `InputError`, with one line; every event is in a table or counted by a
note; valid JSON gives the same columns as the reference. libFuzzer ends a run that hangs (over 20 s) or takes over 2
GB. Failing inputs are saved as ``crash-...``, ``timeout-...`` or ``oom-...``; ``python fuzz/fuzz_reader.py FILE`` runs
one again. The chunks of the fast reader are made tiny, so that small traces use it.
"""

import gzip
import os
import random
import re
import sys
import tempfile
import zlib
from pathlib import Path

import atheris

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

with atheris.instrument_imports(include=["trace_analyzer.ingest"]):
    from trace_analyzer.ingest import (
        Trace,
        build,
        classify,
        fast,
        load,
        raw,
        source,
        strict,
        tolerant,
        trace,
    )

import reference  # noqa: E402
from mutations import mutated, seeds  # noqa: E402

from trace_analyzer.errors import InputError  # noqa: E402

_ODD_NUMBER = re.compile(rb'"(pid|tid|device)"\s*:\s*-?[0-9]+[.eE]')
INSTRUMENTED = (strict, build, raw, fast, classify, source, tolerant, trace)


def one_input(data: bytes) -> None:
    """Read the bytes; raise ``AssertionError`` where they violate a property."""
    fast._WORTH_BYTES, fast._CHUNK, fast._ROWS = 0, 1500, 9  # type: ignore[misc]
    trace = _loaded(data)
    if trace is None:
        return
    content = _inflated(data)
    expected = None if content is None or content.count(b"traceEvents") > 1 else _expected(content)
    if expected is not None:
        _assert_same(trace, expected, content)
        assert not {note.code for note in trace.notes} & {"truncated", "trailing-garbage", "syntax-error"}
    else:
        assert_whole(trace)


def _assert_same(trace: Trace, expected: reference.Reference, content: bytes) -> None:
    try:
        reference.assert_same(trace, expected)
    # known limitation: a process or thread number in two notations counts as two processes
    except AssertionError as error:
        if not re.match("threads|devices", str(error)) or not _ODD_NUMBER.search(content):
            raise


def _loaded(data: bytes) -> Trace | None:
    try:
        return load(data, max_bytes=1 << 22)
    except InputError as error:
        if "\n" in str(error):
            raise AssertionError("an error of several lines") from error
        return None


def assert_whole(trace: Trace) -> None:
    """Assert that each event is in a table or under a note, except metadata events and halves of pairs."""
    assert reference.accounted(trace) <= trace.event_count


def _inflated(data: bytes) -> bytes | None:
    try:
        return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else None if data[:4] == b"\x28\xb5\x2f\xfd" else data
    except (OSError, EOFError, ValueError, zlib.error):
        return None


def _expected(content: bytes) -> reference.Reference | None:
    """Return the result of the reference reader; None where the content is no valid JSON trace of objects."""
    try:
        entries, header = reference.parse(content)
    except (ValueError, RecursionError, KeyError, AttributeError):
        return None
    return reference.read(content) if isinstance(entries, list) and isinstance(header, dict) else None


def _mutated(data: bytes, max_size: int, seed: int) -> bytes:
    return mutated(data, seed, (_libfuzzer,))


def _libfuzzer(data: bytes, choose: random.Random) -> bytes:
    return bytes(atheris.Mutate(data, len(data) + 16)) if data else data


def main() -> None:
    """Run libFuzzer; without a corpus folder, on temporary seeds."""
    arguments = sys.argv[1:]
    if not any(not argument.startswith("-") for argument in arguments):
        folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
        seeds(folder)
        arguments.append(str(folder))
    elif (folder := Path(next(a for a in arguments if not a.startswith("-")))).is_dir() and not any(folder.iterdir()):
        seeds(folder)
    limits = ["-timeout=20", "-rss_limit_mb=2048", "-max_len=16384"]
    atheris.Setup([sys.argv[0], *limits, *arguments], one_input, custom_mutator=_mutated)
    atheris.Fuzz()


if __name__ == "__main__":
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    main()
