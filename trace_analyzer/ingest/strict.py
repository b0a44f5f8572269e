"""Parse bytes into the header and one row of text per event, after telling which profiler wrote them.

Compiled code (`fast`) reads the sound parts of all but small files. The rest is parsed as a whole if it is valid JSON;
else value by value (`tolerant`), skipping invalid parts, which a note names.

A database is opened read-only and as immutable, so that it stays as it is: SQLite writes beside what it reads. Only stored
tables are read, never views or virtual tables, which a file can define.
"""

import os
import re
import shutil
import sqlite3
import tempfile
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

import polars as pl

from trace_analyzer import tuning, units
from trace_analyzer.errors import NUL_BYTES, SYNTAX, TRUNCATED, InputError, NotATrace, Note
from trace_analyzer.ingest import databases, fast, nsight, raw, rocm, source
from trace_analyzer.ingest.classify import Classified, TraceDocument, joined, sorted_objects
from trace_analyzer.ingest.tolerant import NESTED, NO_OBJECT, Hopeless, Walk, oddities, walk_document

SQLITE = b"SQLite format 3\0"
"""First bytes of a database (https://sqlite.org/fileformat.html, 1.2)."""
NSYS_REPORT = re.compile(r"\.(nsys-rep|qdrep|qdstrm)$")
"""Pattern of names of Nsight Systems' reports, which ``nsys`` reads."""
ROCPROFV3 = re.compile(rb'\s*\{\s*"rocprofiler-sdk-tool"')
"""Beginning of the JSON of rocprofv3."""
_WRITERS = (
    (nsight.wrote, nsight.document, nsight.RECORD),
    (rocm.wrote_rocpd, rocm.rocpd_document, rocm.RECORD),
    (rocm.wrote_rpd, rocm.rpd_document, "record with `runTracer.sh`"),
)


def database_document(content: source.Content) -> TraceDocument:
    """Return the events of a database of Nsight Systems or of ROCm's profilers.

    Raises ``NotATrace`` for other databases, and ``InputError`` for a damaged one.
    """
    try:
        with _file_of(content) as path, closing(_opened(path)) as connection:
            database = databases.Database(connection, content.name)
            # Zeros are content here, not damage.
            content.notes = tuple(note for note in content.notes if note.code != NUL_BYTES)
            for writer, read, record in _WRITERS:
                if writer(database):
                    return _with_events(read(database), content.name, record)
    except (sqlite3.Error, ValueError) as error:
        raise InputError(
            f"{content.name}: is an SQLite database that cannot be read ({error}); export or copy it again"
        ) from None
    listed = ", ".join(sorted(database.tables)[:3]) or "no tables"
    raise NotATrace(
        f"{content.name}: is an SQLite database of another program ({listed}); expected one of Nsight Systems"
        " (`nsys export --type=sqlite`), rocprofv3 or rpd"
    )


def rocprofv3_document(content: source.Content) -> TraceDocument:
    """Return the events of the JSON of rocprofv3. Raises ``InputError`` for damage, and ``NotATrace`` where it has none."""
    try:
        document = rocm.rocprofv3_document(b"".join(content.blocks()))
    except pl.exceptions.PolarsError:
        raise InputError(
            f"{content.name}: is JSON of rocprofv3 that is damaged or of another form; copy it again, or {rocm.RECORD}"
        ) from None
    return _with_events(document, content.name, rocm.RECORD)


def _with_events(document: TraceDocument, name: str, record: str) -> TraceDocument:
    if not document.events.seen.height:
        raise NotATrace(f"{name}: holds no events of a device or its runtime; {record}")
    return document


@contextmanager
def exported_by_nsys(report: Path) -> Iterator[Path]:
    """Yield the export of a report of Nsight Systems, which ``nsys`` writes into a temporary folder.

    Raises ``InputError`` where ``nsys`` is not on the PATH, or fails.
    """
    import subprocess  # it takes longer to import than a small file to read

    name, nsys = units.printable(str(report)), shutil.which("nsys")
    if nsys is None:
        raise InputError(
            f"{name}: --export needs nsys on the PATH; export it elsewhere (`nsys export --type=sqlite FILE`)"
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "export.sqlite")
        command = [nsys, "export", "--type=sqlite", f"--output={path}", str(report.absolute())]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
        )
        if done.returncode or not path.is_file():
            said = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()[-1]
            raise InputError(f"{name}: nsys could not export it: {units.printable(said)}")
        yield path


@contextmanager
def _file_of(content: source.Content) -> Iterator[Path]:
    """Yield the path of the database: of the file, or of a copy in a temporary folder where it is compressed or no file."""
    if content.path is not None:
        with content.path.open("rb") as file:
            if file.read(len(SQLITE)) == SQLITE:
                content.check_size(os.fstat(file.fileno()).st_size)
                yield content.path
                return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "copy.sqlite")
        with path.open("wb") as file:
            file.writelines(content.blocks())
        yield path


def _opened(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1", uri=True)
    connection.text_factory = lambda text: text.decode("utf-8", "replace")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    return connection


_UNPACK = "unpack it and name the trace in it"
_BEGINNINGS = (
    (b"PK\x03\x04", f"a zip archive; {_UNPACK}"),
    (b"7z\xbc\xaf\x27\x1c", f"a 7z archive; {_UNPACK}"),
    (b"\xfd7zXZ\0", "compressed by xz; decompress it first (`xz -d`)"),
    (b"BZh", "compressed by bzip2; decompress it first (`bunzip2`)"),
    (b"\x04\x22\x4d\x18", "compressed by lz4; decompress it first (`lz4 -d`)"),
    (b"\x1f\x8b", "compressed twice; decompress it once (`gunzip`)"),
    (b"\x28\xb5\x2f\xfd", "compressed twice; decompress it once (`unzstd`)"),
    (b"\0\0\0\0", "no text: it begins with NUL bytes, as a crash or an interrupted copy leaves them; copy it again"),
    (b"version https://git-lfs", "a Git LFS pointer in the place of the file; fetch that (`git lfs pull`)"),
    (
        tuple(bytes([0x80, protocol]) for protocol in range(2, 6)),
        "a pickle, as torch.cuda.memory writes its snapshots: analyze memory FILE reads those",
    ),
)
"""First bytes of other file types, after one decompression if needed; no JSON document begins with them."""
_ENCODED = (
    ("UTF-32", re.compile(rb"\xff\xfe\0\0|\0\0\xfe\xff")),  # begins like UTF-16, so it must come first
    ("UTF-16", re.compile(rb"\xff\xfe|\xfe\xff")),
    ("UTF-32LE", re.compile(rb"[{\[]\0\0\0[^\0]")),
    ("UTF-32BE", re.compile(rb"\0\0\0[{\[]\0")),
    ("UTF-16LE", re.compile(rb"[{\[]\0[^\0]")),
    ("UTF-16BE", re.compile(rb"\0[{\[]\0[^\0]")),
)
"""First bytes of text in other encodings: a byte order mark or, without one, the bracket of a JSON document."""
_NO_TEXT = re.compile(rb"[\0-\x08\x0e-\x1a\x1c-\x1f]")
_BINARY = (
    (
        NSYS_REPORT,
        "a report of Nsight Systems; --export reads it with nsys, or analyze what `nsys export --type=sqlite FILE` writes",
    ),
    (re.compile(r"\.ncu-rep$"), "a report of Nsight Compute; record with torch.profiler"),
    (
        re.compile(r"\.xplane\.pb$"),
        "a profile of JAX or TensorFlow (XSpace); this program reads traces of torch.profiler",
    ),
    (
        re.compile(r"\.(pftrace|perfetto-trace)$"),
        "a Perfetto trace in protobuf; export JSON, to a path that ends in .json or .json.gz (prof.export_chrome_trace)",
    ),
)
"""Binary files by the end of their name."""
_PYTHON = re.compile(rb"\s*[{\[]\s*(?:[{\[]\s*)?'")
_LINES = re.compile(rb'\s*\{(?![^\n]*"traceEvents")[^\n]*\}\s*\n\s*\{')
_PAGE = re.compile(rb"\s*<(?:!doctype html|html)\b", re.IGNORECASE)
_NAME, _MAGIC = slice(0, 100), slice(257, 262)
"""Fields of a tar archive's header: the first file's name, padded with NUL, and the magic bytes."""


def mistaken_file(content: bytes, name: str = "") -> str | None:
    """Name the file type of this content, worded to follow "is"; None for an unknown type of text."""
    if _PAGE.match(content):
        return "a page of HTML, as a download without permission gets; download the trace again"
    if b"\0" in content[_NAME] and content[_MAGIC] == b"ustar":
        return f"a tar archive; {_UNPACK}"
    if _PYTHON.match(content):
        return "a Python literal (keys in single quotes), not JSON; write it with `json.dump`"
    if _LINES.match(content):
        return "JSON Lines; put the lines into one list (`jq -s . FILE`), if they are events of a trace"
    for encoding, beginning in _ENCODED:
        if beginning.match(content):
            return f"{encoding[:6]} text; convert it to UTF-8 (`iconv -f {encoding} -t UTF-8`)"
    known = next((what for start, what in _BEGINNINGS if content.startswith(start)), None)
    if known or content.lstrip().startswith((b"{", b"[", b"\xef\xbb\xbf")) or not _NO_TEXT.search(content[:512]):
        return known
    by_name = (what for pattern, what in _BINARY if pattern.search(name.removesuffix(".gz")))
    # Both are protobuf of which field 1 is repeated: packets in Perfetto, planes with such names in an XSpace.
    of_planes = b"/host:" in content[:4096] or b"/device:" in content[:4096]
    by_content = _BINARY[2][1] if of_planes else _BINARY[3][1] if content.startswith(b"\n") else None
    return next(by_name, by_content) or "a binary file, not JSON; expected a trace from torch.profiler"


_HEAD = 1 << 20


def read_document(content: source.Content) -> TraceDocument:
    """Parse a Chrome trace: an object with ``traceEvents``, or a bare array of events.

    Numbers keep their digits as text. Raises ``NotATrace`` when the bytes are no JSON, or contain no list of events, an
    empty one, or one without a readable event. Errors from reading the content are raised unchanged.
    """
    try:
        return _read(content)
    except Hopeless as error:
        raise NotATrace(f"{content.name}: {error}") from None


def _read(content: source.Content) -> TraceDocument:
    name, blocks = content.name, _with_phases(content)
    head = _gathered(blocks, _HEAD)
    if head.startswith(SQLITE):
        return database_document(content)
    if ROCPROFV3.match(head):
        return rocprofv3_document(content)
    with tuning.without_garbage_collection():
        quick = fast.scanned(head, blocks)
    if quick is None:
        if what := mistaken_file(head, name):
            raise NotATrace(f"{name}: is {what}")
        rest = head if len(head) < _HEAD else b"".join(_with_phases(content))
        if not rest or rest.isspace():
            raise InputError(f"{name}: " + (content.notes[0].message if content.notes else "is empty"))
        quick = fast.Scanned([], 0, rest, Counter())
    text = quick.rest.decode("utf-8-sig", "replace")
    notes: list[Note] = []
    if replaced := text.count("\ufffd") - quick.rest.count(b"\xef\xbf\xbd") + quick.replaced:
        notes.append(Note("invalid-utf8", "warning", "byte sequences are not UTF-8: shown as U+FFFD", replaced))
    with tuning.without_garbage_collection():
        walk = _whole(text) or walk_document(text, name)
        count = quick.event_count + len(walk.events)
        damage = [*_damage(walk, text, quick, count)]
        if damage and not count:
            raise NotATrace(
                f"{name}: holds no event that can be read: {damage[0].message}; expected a trace from torch.profiler"
            )
        if not walk.has_events:
            if {"schema", "nodes"} <= walk.header.keys():
                raise NotATrace(
                    f"{name}: is an execution trace (ExecutionTraceObserver), which has no kernels; record with torch.profiler"
                )
            raise NotATrace(
                f"{name}: is JSON without a `traceEvents` list; expected a trace from torch.profiler"
                " (prof.export_chrome_trace)"
            )
        parts = quick.parts
        if walk.events or not parts:
            parts = [*parts, sorted_objects(walk.events, quick.event_count)]
    notes += damage
    events = joined(parts)
    if what := _other_writer(events):
        raise NotATrace(f"{name}: is {what}")
    mended = quick.odd + oddities(walk.events)
    odd, too_deep = mended.pop(NO_OBJECT, 0), mended.pop(NESTED, 0)
    unknown = events.skipped.filter(pl.col("reason") == "unknown-phase").get_column("count").sum()
    if count and unknown + odd + too_deep == count:
        raise NotATrace(
            f"{name}: holds no trace events: none of {count:,} entries has a phase (`ph`) that PyTorch Profiler writes;"
            " expected a trace from torch.profiler (prof.export_chrome_trace)"
        )
    if odd:
        notes.append(Note("not-an-event", "warning", NO_OBJECT, odd))
    notes += (Note("not-json", "warning", f"events hold {held}", number) for held, number in sorted(mended.items()))
    if too_deep:
        notes.append(Note("too-deep", "warning", NESTED, too_deep))
    if not _has_work(events):
        counts = dict(events.skipped.group_by("reason").agg(pl.col("count").sum()).iter_rows())
        unread = [note.message for note in damage if note.code in (SYNTAX, TRUNCATED)]
        unread += [f"{odd:,} entries are no objects"] * bool(odd) + [f"{too_deep:,} nest too deeply"] * bool(too_deep)
        unread += [f"{counts['no-time']:,} without a readable time"] if "no-time" in counts else []
        if unread:
            raise NotATrace(f"{name}: of its events only metadata can be read: {'; '.join(unread)}")
        held = f"no operator, call or kernel, only metadata ({units.counted(count, 'event')})" if count else "no event"
        raise NotATrace(
            f"{name}: holds {held}: was the profiler active while"
            " the model ran? With a schedule, export in on_trace_ready, and call prof.step() wait + warmup + active times"
        )
    return TraceDocument(walk.header, events, count, tuple(notes))


def _other_writer(events: Classified) -> str | None:
    """Name the program that wrote these events, worded to follow "is", if it is one whose traces cannot be analysed."""
    processes = events.seen.get_column("pid").cast(pl.String)
    if processes.len() and processes.str.contains(r"^[A-Z]+ functions$").all():
        return (
            "an export of the profiler before Kineto (torch.autograd.profiler), which has no launches; record with"
            " torch.profiler of PyTorch 1.8.1 or later"
        )
    is_name = (pl.col("kind") == "metadata") & (pl.col("name") == "process_name")
    names = events.rest.filter(is_name).get_column("label").cast(pl.String)
    is_foreign = (
        events.device.is_empty() and events.python.is_empty() and events.host.get_column("kind").eq("other").all()
    )
    if is_foreign and names.str.contains("^/(device|host):").any():
        return "a trace of JAX or TensorFlow; this program reads traces of torch.profiler"
    return None


_MARKS = ("metadata", "session", "boundary")


def _has_work(events: Classified) -> bool:
    """Return whether there is any event but metadata and the marks of the recording's begin and end.

    Work of a device that is not supported is some, too: the report names it.
    """
    frames = (events.python, events.host, events.device, events.arrows, events.edges)
    has_other = not events.rest.get_column("kind").is_in(_MARKS).all() or "unsupported" in events.skipped.get_column(
        "reason"
    )
    return has_other or any(frame.height for frame in frames)


_NO_PHASE_BYTES = 16 << 20
"""No header of a trace is as long: a file without a phase up to there is refused before it takes time and memory."""


def _with_phases(content: source.Content) -> Iterator[bytes]:
    """Yield the blocks of the content. Raises ``NotATrace`` where no event begins in `_NO_PHASE_BYTES`."""
    size, last, is_known = 0, b"", False
    for block in content.blocks():
        is_known = is_known or b'"ph"' in last + block
        size, last = size + len(block), block[-3:]
        if size > _NO_PHASE_BYTES and not is_known:
            raise NotATrace(
                f"{content.name}: holds no trace events: no phase (`ph`) is in its first {_NO_PHASE_BYTES:,} bytes;"
                " expected a trace from torch.profiler (prof.export_chrome_trace)"
            )
        yield block


def _gathered(blocks: Iterator[bytes], size: int) -> bytes:
    """Return the first blocks, with at least ``size`` bytes in total if there are as many."""
    gathered = bytearray()
    for block in blocks:
        gathered += block
        if len(gathered) >= size:
            break
    return bytes(gathered)


def _whole(text: str) -> Walk | None:
    """Parse the document in one go; None when it is invalid JSON, or may contain two lists of events."""
    if text.count('"traceEvents"') > 1:  # the walker keeps both lists, where JSON keeps the last of equal keys
        return None
    try:
        value = raw.strict_decoder().decode(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, list):
        return Walk({}, value, has_events=True)
    if not isinstance(value, dict):
        return Walk()
    events = value.pop("traceEvents", None)
    return Walk(value, events if isinstance(events, list) else [], has_events=isinstance(events, list))


def _damage(walk: Walk, text: str, quick: fast.Scanned, count: int) -> Iterator[Note]:
    """Note the unreadable parts of the document."""
    faults = [(fault.at, fault.end - fault.start) for fault in quick.faults]
    for fault in walk.faults:
        at = 0 if faults else quick.cut_bytes + _byte_place(quick.rest, text, fault.at)
        faults.append((at, len(text[fault.start : fault.end].encode("utf-8", "replace"))))
    if faults:
        unread, many = sum(size for _, size in faults), len(faults) > 1
        where = f"at byte {faults[0][0]:,}"
        yield Note(
            SYNTAX,
            "warning",
            (f"{len(faults):,} syntax errors, the first {where}" if many else f"syntax error {where}")
            + f": {unread:,} bytes around {'them' if many else 'it'} were not read",
            len(faults),
        )
    if walk.broken_at is not None:
        offset = quick.cut_bytes + _byte_place(quick.rest, text, walk.broken_at)
        yield Note(
            TRUNCATED,
            "warning",
            f"the file is truncated at byte {offset:,}, "
            + (f"after event {count:,}; everything before it was used" if count else "before its first whole event"),
        )
    if walk.deep_members:
        yield Note(
            "deep-header", "warning", "entries of the header nest too deeply to be read: skipped", walk.deep_members
        )
    if walk.trailing:
        yield Note("trailing-garbage", "warning", "text after the end of the JSON document was ignored")


def _byte_place(content: bytes, text: str, at: int) -> int:
    """Return the byte offset of the character at index ``at`` of the decoded content."""
    if len(content) == len(text):
        return at

    def characters(size: int) -> int:
        return len(content[:size].decode("utf-8-sig", "replace"))

    return bisect_left(range(len(content)), at + 1, key=characters) - 1 if at < len(text) else len(content)
