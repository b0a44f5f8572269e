"""Tell which profiler wrote a database or a JSON document of another form, and read it.

A database is opened read-only and as immutable, so that it stays as it is: SQLite writes beside what it reads. Only stored
tables are read, never views or virtual tables, which a file can define.
"""

import os
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

import polars as pl

from trace_analyzer.errors import NUL_BYTES, InputError, NotATrace
from trace_analyzer.ingest import nsight, rocm
from trace_analyzer.ingest.classify import TraceDocument
from trace_analyzer.ingest.databases import Database
from trace_analyzer.ingest.source import Content
from trace_analyzer.units import printable

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


def database_document(content: Content) -> TraceDocument:
    """Return the events of a database of Nsight Systems or of ROCm's profilers.

    Raises ``NotATrace`` for other databases, and ``InputError`` for a damaged one.
    """
    try:
        with _file_of(content) as path, closing(_opened(path)) as connection:
            database = Database(connection, content.name)
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


def rocprofv3_document(content: Content) -> TraceDocument:
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

    name, nsys = printable(str(report)), shutil.which("nsys")
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
            raise InputError(f"{name}: nsys could not export it: {printable(said)}")
        yield path


@contextmanager
def _file_of(content: Content) -> Iterator[Path]:
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
