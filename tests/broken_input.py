"""Define cases of hostile and broken input: the rows of docs/broken-input.md, each of which is tested.

`CASES` are inputs: each makes a file, and names the expected error or notes. `HAPPENINGS` are events during a run of
the command; each has a test of its own.
"""

import gzip
import io
import json
import lzma
import os
import pickle
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zstandard
from kineto import A100, event, kernel, launch, launched, op, trace_bytes

Notes = dict[str, int]

PAIRS = [launched(f"k{t}", 20 * t + 1, 20 * t + 12, 4, t + 1) for t in range(10)]
SOUND = trace_bytes(PAIRS, deviceProperties=[A100])
KERNEL = kernel("odd", 500, 5, correlation=77)
LATER = kernel("later", 600, 5, correlation=78)
DEEP = 100_000
HOLED = re.sub(rb'k3".*?(?=6")', lambda lost: bytes(len(lost[0])), SOUND, count=1)
"""NUL bytes from the middle of one kernel's name to the middle of another's."""


@dataclass(frozen=True)
class Case:
    """Describe one input: its description, its file, and the expected result of the command.

    ``make`` writes the input into a folder and returns the argument of the command; bytes are the content of a file. An
    input is refused with ``error`` (a part of the line), or gives a report with ``notes`` on ``events`` events (None:
    some). ``says`` explains the result to people.
    """

    what: str
    make: bytes | Callable[[Path], Path]
    says: str = ""
    error: str = ""
    notes: Notes = field(default_factory=dict)
    events: int | None = 20
    pairs: int = 0
    options: tuple[str, ...] = ()

    def path(self, folder: Path) -> Path:
        """Return the argument of the command, made in the folder."""
        if callable(self.make):
            return self.make(folder)
        path = folder / "trace.json"
        path.write_bytes(self.make)
        return path


def with_events(*events: Any, **header: Any) -> bytes:
    """Return the sound trace with more events."""
    return trace_bytes([*PAIRS, *events], deviceProperties=[A100], **header)


def with_text(text: str) -> bytes:
    """Return the sound trace with one more event, given as text."""
    return SOUND[:-2] + b", " + text.encode() + b"]}"


def in_name(character: bytes) -> bytes:
    """Return the sound trace with bytes in the name of a kernel."""
    return SOUND.replace(b'"k3"', b'"k3' + character + b'"')


def without(row: dict[str, Any], *keys: str) -> dict[str, Any]:
    """Return the event without some of its fields."""
    return {key: value for key, value in row.items() if key not in keys}


def bad_crc(content: bytes) -> bytes:
    """Compress the content as gzip with a wrong checksum."""
    packed = bytearray(gzip.compress(content))
    packed[-6] ^= 1
    return bytes(packed)


def bomb() -> bytes:
    """Build a trace with 100 MB of blanks between two events in about 100 kB of gzip."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    blanks, half = b" " * (1 << 20), SOUND.index(b", {") + 1
    parts = (SOUND[:half], *(blanks for _ in range(100)), SOUND[half:])
    return b"".join([*map(packer.compress, parts), packer.flush()])


def zipped() -> bytes:
    """Pack the sound trace in a zip archive."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("trace.json", SOUND)
    return made.getvalue()


def tarred() -> bytes:
    """Pack the sound trace in a tar archive."""
    made, member = io.BytesIO(), tarfile.TarInfo("trace.json")
    member.size = len(SOUND)
    with tarfile.open(fileobj=made, mode="w") as archive:
        archive.addfile(member, io.BytesIO(SOUND))
    return made.getvalue()


def folder_itself(folder: Path) -> Path:
    """Return a directory."""
    return folder


def absent(folder: Path) -> Path:
    """Return a name without a file."""
    return folder / "absent.json"


def silent_pipe(folder: Path) -> Path:
    """Create a FIFO without a writer."""
    os.mkfifo(folder / "pipe")
    return folder / "pipe"


def symlink_loop(folder: Path) -> Path:
    """Create two symbolic links in a cycle."""
    (folder / "one").symlink_to("two")
    (folder / "two").symlink_to("one")
    return folder / "one"


def socket_file(folder: Path) -> Path:
    """Create a socket of the file system."""
    import socket

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(folder / "socket"))
    return folder / "socket"


WRONG_TYPES = [
    without(KERNEL, "args") | {key: value, "name": "odd"}
    for key in ("name", "cat", "pid", "tid", "id", "args")
    for value in ([1], {"a": 1}, True, None, 1.5, "", "x")
]
WRONG_ARGS = [
    event("kernel", "odd", 500, 5, pid=0, tid=7, **{"correlation": v, "stream": v, "device": 0, "context": v,
          "External id": v, "grid": v, "block": v, "bytes": v, "registers per thread": v, "shared memory": v,
          "est. achieved occupancy %": v, "graph id": v})
    for v in ([1, [2]], {"a": 1}, True, None, 1.5, "", "x", 10**40, -1)
]  # fmt: skip

CASES = (
    # Places
    Case("no such file", absent, error="no such file"),
    Case("a directory", folder_itself, error="is a directory; name one trace file in it"),
    Case("a FIFO without a writer", silent_pipe, "within a second", error="is a pipe that nobody writes to"),
    Case("a socket", socket_file, error="cannot be opened"),
    Case("`/dev/zero` and other devices", lambda _: Path("/dev/zero"), error="is a device, not a trace file"),
    Case("links that lead to each other", symlink_loop, error="cannot be opened: Too many levels of symbolic links"),
    # Files that are no trace
    Case("an empty file", b"", error="is empty"),
    Case("only blanks", b" \r\n\t", error="is empty"),
    Case("gzip of nothing", gzip.compress(b""), error="is empty"),
    Case("no JSON", b"404: Not Found", error="is not JSON (starts with '404: Not Found')"),
    Case("random bytes", bytes(range(128, 256)) * 9, error="is not JSON"),
    Case("a page of HTML", b"\n<!DOCTYPE html><title>Sign in</title>", error="is a page of HTML"),
    Case("a pointer of Git LFS", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
         error="is a Git LFS pointer in the place of the file; fetch that"),
    Case("a file of NUL bytes", b"\0" * 4096, error="begins with NUL bytes"),
    Case("a zip archive", zipped(), error="is a zip archive; unpack it and name the trace in it"),
    Case("a tar archive, compressed or not", gzip.compress(tarred()),
         error="is a tar archive; unpack it and name the trace in it"),
    Case("xz, bzip2, lz4", lzma.compress(SOUND), error="is compressed by xz; decompress it first"),
    Case("compressed twice", gzip.compress(gzip.compress(SOUND)), error="is compressed twice; decompress it once"),
    Case("JSON Lines", b'{"name": "aten::mm"}\n{"name": "aten::add"}\n', error="is JSON Lines; put the lines into one list"),
    Case("UTF-16", SOUND.decode().encode("utf-16"), error="is UTF-16 text"),
    Case("UTF-32", SOUND.decode().encode("utf-32"), error="is UTF-32 text"),
    Case("UTF-16 without a mark of its byte order", SOUND.decode().encode("utf-16-le"), error="is UTF-16 text"),
    Case("a snapshot of memory", pickle.dumps({"segments": []}), error="is a pickle, as torch.cuda.memory writes its snapshots"),
    Case("JSON of rocprofv3 without events", b'{"rocprofiler-sdk-tool": [{"buffer_records": {}}]}', error="holds no events of a device or its runtime"),
    Case("a database that is cut short", b"SQLite format 3\0" + bytes(84), error="is an SQLite database that cannot be read"),
    Case("an execution trace", b'{"schema": "1.1.1", "pid": 1, "nodes": []}', error="is an execution trace"),
    Case("JSON that is no trace", b'{"name": "app", "version": 1}', error="is JSON without a `traceEvents` list"),
    Case("JSON whose `traceEvents` is no list", b'{"traceEvents": {"ph": "X"}}', error="without a `traceEvents` list"),
    Case("a list of something else", b'[{"name": "app"}, 2]', "a JSON list without a single event",
         error="holds no trace events"),
    Case("a number, a text, null", b"12", error="is JSON without a `traceEvents` list"),
    Case("100,000 opening brackets", b"[" * DEEP, error="holds no event that can be read: the file is truncated at byte 1"),
    Case("100,000 opening braces", b'{"a":' * DEEP, error="holds no event that can be read: the file is truncated at byte 1"),
    Case("no event that can be read", b'{"traceEvents": [{"ph": X}]}',
         error="holds no event that can be read: syntax error at byte 24"),
    Case("a Python literal, as `print` writes it", repr(json.loads(SOUND)).encode(), error="is a Python literal"),
    Case("a gzip header and nothing else", b"\x1f\x8b\x08\0\0\0\0\0\0\x03", error="gzip stream"),
    Case("a gzip bomb, with `--max-bytes`", bomb(), error="more than 50,000,000 bytes when decompressed",
         options=("--max-bytes", "50000000")),
    # Files that break off, or go on
    Case("truncated within an event", SOUND[:-30], "all whole events before",
         notes={"truncated": 1}, events=19),
    Case("truncated between events", SOUND[: SOUND.index(b"}, {") + 1], "all whole events before",
         notes={"truncated": 1}, events=1),
    Case("truncated before the first event", SOUND[: SOUND.rindex(b'"traceEvents"') + 16],
         error="holds no event that can be read: the file is truncated at byte"),
    Case("truncated in its header", SOUND[:40], error="holds no event that can be read: the file is truncated at byte"),
    Case("truncated behind its events", SOUND[:-1], "all events", notes={"truncated": 1}),
    Case("truncated gzip", gzip.compress(SOUND)[:-60], "all whole events before",
         notes={"gzip-truncated": 1, "truncated": 1}, events=None),
    Case("gzip that misses its checksum", gzip.compress(SOUND)[:-8], "all events", notes={"gzip-truncated": 1}),
    Case("gzip with a wrong checksum", bad_crc(SOUND), "all events", notes={"gzip-damaged": 1}),
    Case("gzip, then other bytes", gzip.compress(SOUND) + b"garbage", "all events", notes={"trailing-garbage": 1}),
    Case("truncated zstd", zstandard.compress(SOUND)[:-9], error="the zstd stream is truncated"),
    Case("text behind the document", SOUND + b" <!-- sent by mail -->", "all events", notes={"trailing-garbage": 1}),
    Case("NUL bytes behind the document", SOUND + b"\0" * 4096, "all events", notes={"trailing-garbage": 1}),
    Case("a second document behind the first", SOUND + b"\n" + SOUND, "the first one's events",
         notes={"trailing-garbage": 1}),
    Case("an array that is not closed", json.dumps([e for p in PAIRS for e in p])[:-1].encode(), "all events",
         notes={"truncated": 1}),
    Case("a comma behind the last event", SOUND[:-2] + b",]}", "all events"),
    Case("no events but devices", trace_bytes([], deviceProperties=[A100]), error="holds no event: was the profiler active"),
    # Fields
    Case("entries that are no objects", with_events(1, None, "x", [1], True), "all others",
         notes={"not-an-event": 5}, events=25),
    Case("an empty object as event", with_events({}), "all others", notes={"unknown-phase": 1}, events=21),
    Case("a wrong type in `name`, `cat`, `pid`, `tid`, `id` or `args`", with_events(*WRONG_TYPES),
         "the value as text, or as missing", events=20 + len(WRONG_TYPES)),
    Case("a wrong type in any of `args`", with_events(*WRONG_ARGS), "the value counts as missing",
         notes={"implausible-size": 3}, events=20 + len(WRONG_ARGS)),
    Case("a wrong type in `ph`", with_events(*({**KERNEL, "ph": v} for v in (1, None, [], "", "XX", {}))), "all others",
         notes={"unknown-phase": 6}, events=26),
    Case("no `ts`, or one that is no number", with_events(*({**KERNEL, "ts": v} for v in (None, "", "soon", [], {}, True))),
         "all others", notes={"no-time": 6}, events=26),
    Case("`ts` and `dur` as text", with_events({**KERNEL, "ts": "500.125", "dur": "5"}), "their numbers", events=21),
    Case("NaN, Infinity", with_text('{"ph": "X", "cat": "kernel", "name": "odd", "pid": 0, "tid": 7, "ts": NaN, "dur": 1},'
         '{"ph": "X", "cat": "kernel", "name": "odd", "pid": 0, "tid": 7, "ts": 500, "dur": -Infinity}'),
         "a time: left out; a duration: none", notes={"no-time": 1, "no-duration": 1}, events=22),
    Case("no `dur`", with_events(without(KERNEL, "dur")), "duration 0", notes={"no-duration": 1}, events=21),
    Case("a negative `dur`", with_events({**KERNEL, "dur": -5}), "all others", notes={"negative-duration": 1}, events=21),
    Case("an absurd `dur` or `ts`", with_events({**KERNEL, "dur": 1e15}, {**KERNEL, "ts": 4e15}, {**KERNEL, "ts": -1e300}),
         "all others", notes={"implausible-time": 1, "impossible-duration": 1, "no-time": 1}, events=23),
    Case("correlation ids that repeat, or are 0", with_events(*PAIRS[0], launch(300, 4, 0), kernel("k", 320, 5)),
         "0 links nothing; of equal ids the latest call before the kernel",
         events=24),
    Case("kernels before their launch", with_events(*launched("early", 900, 880, 5, 40)), "a negative lead, no queue",
         events=22),
    Case("kernels that overlap on a stream", with_events(KERNEL, {**KERNEL, "ts": 502}), "busy time counts once", events=22),
    Case("B without E, and E without B", with_events(*({"ph": p, "cat": "cpu_op", "name": "x", "pid": 1, "tid": 1, "ts": t}
         for t, p in ((1, "E"), (2, "B"), (3, "B"), (4, "E")))), "the pairs", notes={"unmatched": 2}, events=24, pairs=1),
    Case("events in any order", trace_bytes(list(reversed([e for p in PAIRS for e in p])), deviceProperties=[A100]),
         "as in order"),
    Case("keys twice in one event", SOUND.replace(b'"name": "k3"', b'"name": "first", "name": "k3"'), "the last counts"),
    Case("two lists of events", SOUND[:-1] + b', "traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "x", "pid": 1, '
         b'"tid": 1, "ts": 1, "dur": 1}]}', "the events of both", events=21),
    Case("a header of wrong types", with_events(schemaVersion=[], distributedInfo=3, baseTimeNanoseconds={"a": 1},
         traceName=None), "what is wrong there is missing"),
    Case("a rank, a world size, a number of a device that cannot be", with_events(distributedInfo={"rank": 2**70,
         "world_size": -4}), "it is missing", notes={"implausible-header": 2}),
    Case("`displayTimeUnit` ns, and times without a fraction", with_events(displayTimeUnit="ns"), "microseconds all the same",
         notes={"display-time-unit": 1}),
    Case("100,000 brackets in an event", with_events(op("deep", 1, 1, **{"Input Dims": 0}), LATER).replace(
         b'"Input Dims": 0', b'"Input Dims": ' + b"[" * DEEP + b"]" * DEEP), "all others", notes={"too-deep": 1}, events=22),
    Case("100,000 brackets in the header", SOUND[:-1] + b', "x": ' + b"[" * DEEP + b"]" * DEEP + b"}", "all events",
         notes={"deep-header": 1}),
    # Syntax errors
    Case("a number that is none (`+0.5`, `.5`, `0x1F`)", with_events(KERNEL, LATER).replace(b'"ts": 500', b'"ts": +0.5'),
         "all other events, and how many bytes were not read", notes={"syntax-error": 1}, events=21),
    Case("a brace, bracket, quote or comma that is missing or too many", SOUND.replace(b"}}, {", b"}, {", 1),
         "all events that are whole", notes={"syntax-error": 1}, events=19),
    Case("a literal of Python in an event", with_events(KERNEL, LATER).replace(b'"ts": 500', b'"ts": None'), "all other events",
         notes={"syntax-error": 1}, events=21),
    Case("a syntax error in the header", SOUND.replace(b'"numSms": 108', b'"numSms": ,'), "all events",
         notes={"syntax-error": 1}),
    # Text
    Case("a name of 10 MB", in_name(b"x" * 10_000_000), "the whole name in the tables, a short one elsewhere"),
    Case("HTML, scripts and terminal controls in names", in_name(rb'<script>alert(1)</script>\u001b[2J\u202e\n'),
         "text in every output, controls as visible escapes"),
    Case("raw control characters in names", in_name(b"\x1b[31m\n\t"), "as if they were escaped"),
    Case("NUL bytes in names", in_name(b"\0" * 9), "as if they were escaped", notes={"nul-bytes": 1}),
    Case("NUL bytes in the place of events", HOLED, "the events around them", notes={"nul-bytes": 1}, events=14),
    Case("bytes that are not UTF-8", in_name(b"\xff\xc3"), "U+FFFD in their place", notes={"invalid-utf8": 2}),
    Case("half of a surrogate pair, escaped", in_name(rb"\ud800"), "U+FFFD in its place"),
    # Sound, if unusual
    Case("a byte order mark, CRLF", b"\xef\xbb\xbf" + SOUND.replace(b", ", b",\r\n"), "as without"),
    Case("gzip under any name, of several members", gzip.compress(SOUND[:99]) + gzip.compress(SOUND[99:]), "as plain"),
    Case("zstd with frames that are to be skipped", b"\x52\x2a\x4d\x18\x05\0\0\0hello" + zstandard.compress(SOUND), "as plain"),
    Case("zstd under any name, of several frames", zstandard.compress(SOUND[:99]) + zstandard.compress(SOUND[99:]),
         "as plain"),
)  # fmt: skip

HAPPENINGS = {
    "the file may not be read": "error: `cannot be opened: Permission denied`",
    "the file grows while it is read": "what it held until then; note `changed-while-read`, and one if that is truncated",
    "the file shrinks while it is read": "what was left; note `changed-while-read`, and one if that is truncated",
    "a FIFO or process substitution with a writer": "read to its end like a file",
    "the directory of an output may not be written": "error before any work: `the directory ... cannot be written to`",
    "the disk is full while an output is written": "error: `No space left on device`, or `File too large`; no partial file, "
    "an earlier report stays",
    "an output is `/dev/full`": "error: `No space left on device`",
    "standard output is full": "error: `No space left on device`",
    "Ctrl-C at any moment": "exit code 130, `interrupted; nothing half written was left`, or the whole result if it was done;"
    " SIGTERM: 143 and `terminated`",
    "memory runs out": "error: `out of memory; a trace of fewer steps needs less`",
    "a million device ids": "the 256 busiest are reported, with a note that says so",
}
"""Events during a run, and what the command does then."""

MEMORY_MULTIPLE = 400
"""Bytes of memory of the whole command, beyond what a trace of a few launches takes, for each byte of the uncompressed file ..."""
OUTPUT_MULTIPLE = 16
"""... and of JSON, and of the page. Small files that name much are the worst: tests/hostile_shapes.py makes them."""

MEMORY_BASE_BYTES, MEMORY_PER_BYTE = 300 << 20, 100
"""The stated bound: peak memory over that of an empty trace, whatever the (inflated) input holds."""


def page() -> str:
    """Return the Markdown page that says what each input gets."""
    rows = [f"| {case.what} | {_outcome(case)} |" for case in CASES]
    happenings = [f"| {what} | {outcome} |" for what, outcome in HAPPENINGS.items()]
    return "\n".join(
        [
            "# Hostile and broken input\n",
            "Input gets one of two things: an error, which is one line on standard error and exit code 2, or a report,",
            "with a note for everything that was odd, skipped or repaired. Notes stand in the summary, in the report and",
            "in the JSON (`notes`: code, severity, message, count). Every event of a file is in a table or counted by a note.",
            "`tests/test_broken_input.py` walks these tables.\n",
            "| input | what it gets |\n|---|---|",
            *rows,
            "\n## While it runs\n",
            "| what happens | what the command does |\n|---|---|",
            *happenings,
            "\nOutputs are written to a temporary name beside them and renamed, so they are whole or not there. What a process that"
            " was killed",
            "(SIGKILL, a power cut) leaves under such a name, the next run that writes into the same folder deletes.\n",
            "## Memory\n",
            f"Sound traces need about as much as they hold when decompressed. Whatever the input is, loading it takes at most"
            f" {MEMORY_BASE_BYTES >> 20} MB",
            f"and {MEMORY_PER_BYTE} bytes per byte of decompressed input: the worst are files of millions of empty events,",
            "`{},{},...`.",
            "`--max-bytes` limits the decompressed size, and with it the memory.\n",
            'A file is refused early, whatever its size, where its first 16 MB have no phase (`"ph"`) of an event, where'
            " more than",
            "100,000 entries in a row are no objects, and where it nests a million levels deep.\n",
            "## What a small file can cost\n",
            "A file of less than a megabyte may name thousands of devices, processes, threads, streams, steps or kernels. Beyond"
            " what a trace of a few",
            f"launches takes, the command takes less than {MEMORY_MULTIPLE} bytes of memory, writes less than {OUTPUT_MULTIPLE}"
            f" bytes of JSON and less than {OUTPUT_MULTIPLE} bytes of",
            "HTML for each byte of the uncompressed file. What is left out for that is counted by a note. To measure it:\n",
            "```sh\npython -m pytest --slow -q tests/test_multiples.py\n```\n",
        ]
    )


def _outcome(case: Case) -> str:
    if case.error:
        quoted = f"`` {case.error} ``" if "`" in case.error else f"`{case.error}`"
        return f"error: {quoted}" + (f"; {case.says}" if case.says else "")
    notes = ", ".join(f"`{code}`" for code in case.notes)
    return f"report: {case.says or 'as usual'}" + (f"; note {notes}" if notes else "")
