"""Hostile and broken input: one clear line and exit code 2, or a report that describes the problem."""

import gzip
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import broken_input
import pytest
from broken_input import CASES, HAPPENINGS, MEMORY_BASE_BYTES, MEMORY_PER_BYTE, PAIRS, SOUND, Case
from click.testing import CliRunner, Result
from commands import COMMAND, command, environment, ran, run_python
from kineto import A100, kernel, launched, notes, trace_bytes
from reference import accounted
from tiers import is_thorough

from trace_analyzer import cli, errors, pipeline
from trace_analyzer.ingest import load, source

BIG = trace_bytes([launched(f"k{t % 9}", 20 * t + 1, 20 * t + 12, 4, t + 1) for t in range(10_000)])
ENDED = b"ed; nothing half written was left\n"  # interrupted, or terminated

seen: set[str] = set()


def happening(what: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Mark the test of a row of `HAPPENINGS`."""
    assert what in HAPPENINGS
    seen.add(what)
    return lambda test: test


def run(*args: str | Path) -> Result:
    result = CliRunner().invoke(cli.main, [str(arg) for arg in args])
    assert "a bug in this program" not in result.stderr
    return result


def assert_one_line(result: Result | subprocess.CompletedProcess[str], message: str) -> None:
    """Check that the failure is one line with the message, that nothing is printed, and that the exit code is 2."""
    code = result.exit_code if isinstance(result, Result) else result.returncode
    assert (code, result.stdout) == (2, "")
    assert result.stderr.startswith("analyze: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr


@pytest.mark.sampled
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_every_input_of_the_page(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = case.path(tmp_path)
    started = time.monotonic()
    result = run(path, "--no-report", "--format", "json", *case.options)
    if case.error:
        assert_one_line(result, case.error)
        assert str(path) in result.stderr
        assert time.monotonic() - started < 30  # more means a hang, on the slowest machine
        return
    assert (result.exit_code, result.stderr) == (0, "")
    reported = json.loads(result.stdout)
    trace = load(path)
    assert notes(trace) == case.notes
    assert case.notes.items() <= {note["code"]: note["count"] for note in reported["notes"]}.items()
    assert trace.event_count == reported["trace"]["event_count"]
    assert case.events in (None, trace.event_count)
    assert accounted(trace, pairs=case.pairs) == trace.event_count


@pytest.mark.slow
@pytest.mark.parametrize("form", ["text", "markdown"])
@pytest.mark.parametrize("case", [c for c in CASES if "control" in c.what], ids=lambda case: case.what)
def test_nothing_active_reaches_a_terminal(case: Case, form: str, tmp_path: Path) -> None:
    """Check that names are drawn, not obeyed: no control character but the line break is printed."""
    result = run(case.path(tmp_path), "--no-report", "--format", form)
    assert result.exit_code == 0
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", result.stdout)
    assert "<script>" not in result.stdout or form == "text"


def test_every_happening_of_the_page_has_a_test() -> None:
    assert seen == HAPPENINGS.keys()


# Truncation


def whole_events(text: bytes) -> int | None:
    """Count the events that the text holds whole; return None where it breaks before the list of events."""
    at = text.find(b'"traceEvents": [')
    if at < 0:
        return None
    decoder, rest, count = json.JSONDecoder(), text[at + 16 :].decode("utf-8", "ignore"), 0
    while True:
        rest = rest.lstrip(" ,")
        try:
            _, end = decoder.raw_decode(rest)
        except ValueError:
            return count
        rest, count = rest[end:], count + 1


SMALL = trace_bytes(PAIRS[:2], deviceProperties=[A100])


@pytest.mark.slow
def test_a_file_may_break_off_at_any_byte() -> None:
    for cut in range(0, len(SMALL), 1 if is_thorough() else 3):
        expected = whole_events(SMALL[:cut])
        if not expected:
            with pytest.raises(errors.InputError, match=r"^bytes: [^\n]+$"):
                load(SMALL[:cut])
            continue
        trace = load(SMALL[:cut])
        assert trace.event_count == accounted(trace) == expected, cut
        note = next(note for note in trace.notes if note.code == "truncated")
        assert f"after event {expected:,}" in note.message
        at = int(re.search(r"at byte ([\d,]+)", note.message)[1].replace(",", ""))  # type: ignore[index]
        assert at <= cut
        assert whole_events(SMALL[:at]) == expected


@pytest.mark.slow
@pytest.mark.parametrize("level", [0, 9])
def test_gzip_may_break_off_at_any_byte(level: int) -> None:
    packed = gzip.compress(SOUND, level, mtime=0)
    kept = 0
    for cut in sorted({*range(0, len(packed), 17 if is_thorough() else 47), *range(len(packed) - 12, len(packed))}):
        try:
            trace = load(packed[:cut])
        except errors.InputError:
            assert kept == 0, cut
            continue
        assert "gzip-truncated" in notes(trace), cut
        assert trace.event_count == accounted(trace) >= kept, cut  # a longer file never gives less
        kept = trace.event_count
    assert kept == 20


# While it runs


def as_nobody(*args: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command as a user without rights, which needs root to become."""
    if os.geteuid():
        return command(*args, cwd=cwd)
    code = (
        "import difflib, os, secrets, sys, polars; import trace_analyzer.cli.analyze, trace_analyzer.pipeline, trace_analyzer.installation; trace_analyzer.installation.tool_version(); os.setgid(65534); os.setuid(65534); "
        "from trace_analyzer.cli import main; main(sys.argv[1:])"
    )
    return run_python(code, *args, cwd=cwd)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a trace in it, that every user can reach."""
    for each in [tmp_path, *tmp_path.parents]:
        if each.stat().st_uid == os.geteuid() and each != Path("/"):
            each.chmod(each.stat().st_mode | 0o055)
    (tmp_path / "trace.json").write_bytes(SOUND)
    (tmp_path / "trace.json").chmod(0o644)
    return tmp_path


@pytest.mark.slow
@happening("the file may not be read")
def test_an_unreadable_file(folder: Path) -> None:
    (folder / "trace.json").chmod(0)
    done = as_nobody("trace.json", "--no-report", cwd=folder)
    assert_one_line(done, "trace.json: cannot be opened: Permission denied")


@pytest.mark.slow
@happening("the directory of an output may not be written")
@pytest.mark.parametrize("args", [(), ("--no-report", "-o", "out.txt")])
def test_no_permission_to_write(folder: Path, args: tuple[str, ...]) -> None:
    folder.chmod(0o555)
    assert_one_line(as_nobody("trace.json", *args, cwd=folder), "cannot be written to")
    assert [path.name for path in folder.iterdir()] == ["trace.json"]


def changed_while_read(
    path: Path, change: Callable[[], object], monkeypatch: pytest.MonkeyPatch, opened: bool = False
) -> tuple[int, dict[str, int]]:
    """Load a file, by path or ``opened`` by the caller, that is changed when its first block has been read.

    Returns the number of its events and the notes on it, but for the change of a file that the reader opened itself.
    """
    monkeypatch.setattr(source, "_CHUNK", 1000)
    changes = iter([change])
    time.sleep(0.02)  # file times have the resolution of the system's clock
    with path.open("rb") as file:
        trace = load(file if opened else path, progress=lambda *_: next(changes, lambda: None)())
    reported = notes(trace)
    assert reported.pop("changed-while-read", 0) == (not opened)
    return trace.event_count, reported


@happening("the file grows while it is read")
@pytest.mark.parametrize("opened", [False, True])
def test_a_file_that_grows(folder: Path, monkeypatch: pytest.MonkeyPatch, opened: bool) -> None:
    path = folder / "trace.json"
    path.write_bytes(SOUND[:-300])
    with path.open("ab") as end:
        grow = lambda: (end.write(SOUND[-300:]), end.flush())  # noqa: E731
        assert changed_while_read(path, grow, monkeypatch, opened) == (20, {})


@happening("the file shrinks while it is read")
@pytest.mark.parametrize("opened", [False, True])
def test_a_file_that_shrinks(folder: Path, monkeypatch: pytest.MonkeyPatch, opened: bool) -> None:
    path, content = folder / "trace.json", trace_bytes(PAIRS * 30)
    path.write_bytes(content)
    events = whole_events(content[:40_000])
    assert changed_while_read(path, lambda: os.truncate(path, 40_000), monkeypatch, opened) == (
        events,
        {"truncated": 1},
    )
    assert 0 < (events or 0) < 600


def test_a_file_that_is_written_anew_within_its_size(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its halves may be of two recordings."""
    path = folder / "trace.json"
    assert changed_while_read(path, lambda: path.write_bytes(SOUND.replace(b"k9", b"K9")), monkeypatch) == (20, {})


_LOAD_OFTEN = """
import sys
from trace_analyzer.errors import InputError
from trace_analyzer.ingest import load
for _ in range(30):
    try:
        trace = load(sys.argv[1])
        codes = {note.code for note in trace.notes}
        assert trace.event_count == 20_000 or codes & {"truncated", "gzip-truncated", "gzip-damaged", "nul-bytes", "syntax-error"}, codes
    except InputError as error:
        assert any(part in str(error) for part in ("is empty", "gzip", "holds no event")), error
"""


@pytest.mark.slow
@pytest.mark.parametrize("packed", [False, True])
def test_a_file_that_another_process_changes(tmp_path: Path, packed: bool) -> None:
    """Check that there is no SIGBUS, no traceback, and never a part that passes for the whole."""
    path = tmp_path / "trace.json"
    content = gzip.compress(BIG, 1) if packed else BIG
    path.write_bytes(content)
    process = subprocess.Popen(
        [sys.executable, "-c", _LOAD_OFTEN, str(path)], stderr=subprocess.PIPE, env=environment()
    )
    while process.poll() is None:
        os.truncate(path, len(content) // 2)
        time.sleep(0.002)
        path.write_bytes(content)
        time.sleep(0.02)
    _, err = process.communicate()
    assert (process.returncode, err) == (0, b"")


@pytest.mark.slow
@happening("a FIFO or process substitution with a writer")
def test_process_substitution(tmp_path: Path) -> None:
    (tmp_path / "trace.json.gz").write_bytes(gzip.compress(BIG, 1))
    line = f"{sys.executable} -m trace_analyzer <(sleep 0.2; zcat trace.json.gz) --no-report --format json"
    done = ran("bash", "-c", line, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["trace"]["event_count"] == 20_000


@pytest.mark.slow
def test_what_is_explained_may_come_through_a_pipe(folder: Path) -> None:
    """It may be a snapshot of memory, too, but a pipe can be read only once."""
    done = ran("bash", "-c", f"{sys.executable} -m trace_analyzer explain <(cat trace.json) verdict", cwd=folder)
    assert (done.returncode, done.stderr, done.stdout[:7]) == (0, "", "verdict")


def small_files_only() -> None:
    """Let this process write no file over 4 kB; the write fails as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


@pytest.mark.slow
@happening("the disk is full while an output is written")
@pytest.mark.parametrize("args", [(), ("--no-report", "-o", "trace.report.html", "--format", "json")])
def test_a_full_disk_leaves_the_earlier_output(folder: Path, args: tuple[str, ...]) -> None:
    assert command("trace.json", cwd=folder).returncode == 0
    before = (folder / "trace.report.html").read_bytes()
    done = command("trace.json", *args, cwd=folder, preexec_fn=small_files_only)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "File too large" in done.stderr
    assert (folder / "trace.report.html").read_bytes() == before
    assert sorted(path.name for path in folder.iterdir()) == ["trace.json", "trace.report.html"]


@pytest.mark.slow
@happening("an output is `/dev/full`")
@happening("standard output is full")
def test_a_full_device(folder: Path) -> None:
    output = command("trace.json", "--no-report", "-o", "/dev/full", cwd=folder)
    with open("/dev/full", "w") as full:
        streams = {"capture_output": False, "stdout": full, "stderr": subprocess.PIPE}
        printed = command("trace.json", "--no-report", cwd=folder, **streams)
    printed.stdout = ""
    for done in (output, printed):
        assert_one_line(done, "No space left on device")
    assert Path("/dev/full").is_char_device()


@pytest.mark.slow
@happening("memory runs out")
def test_memory_runs_out(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(b'{"x": ["ph", ' + b"[[1]]," * 12_000_000 + b'1], "traceEvents": []}')
    little = lambda: resource.setrlimit(resource.RLIMIT_AS, (3 << 29, 3 << 29))  # noqa: E731
    done = command(path, "--no-report", preexec_fn=little)
    assert done.returncode == 2
    # Which allocation fails is a matter of chance; native code aborts at its own, and the supervisor reports that.
    assert done.stderr.splitlines()[-1] in (
        "analyze: out of memory; a trace of fewer steps needs less",
        "analyze: out of memory: this process may take 1.61 GB (ulimit -v); allow more, or record fewer steps",
    )


def interrupted_after(seconds: float, folder: Path, number: signal.Signals) -> tuple[int, bytes, bytes]:
    """Exit code and outputs of the command on the trace in the folder, with five signals after some time."""
    process = subprocess.Popen(
        [*COMMAND, "trace.json", "--format", "json", "--tables", "tables", "--force"],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=environment(),
    )  # fmt: skip
    time.sleep(seconds)
    for _ in range(5):
        process.send_signal(number)
        time.sleep(0.001)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


@pytest.mark.slow
@happening("Ctrl-C at any moment")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_at_any_moment_however_often(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "trace.json").write_bytes(BIG)
    started = time.monotonic()
    assert command("trace.json", cwd=tmp_path).returncode == 0
    took = time.monotonic() - started
    report = tmp_path / "trace.report.html"
    report.unlink()
    for part in (0.5, 0.7, 0.95):
        code, out, err = interrupted_after(part * took, tmp_path, number)
        left = sorted(path.name for path in tmp_path.iterdir() if path.name not in ("trace.json", "tables"))
        assert b"Traceback" not in err, err
        assert code in (0, 128 + number, -number), (code, err)  # -number: before the interpreter has started
        assert left in ([], [report.name])
        assert not [path.name for path in (tmp_path / "tables").glob(".*")]
        assert json.loads(out) if code == 0 else not out or json.loads(out)
        if code == 128 + number:
            assert err.endswith(ENDED)
            assert err.count(ENDED) == 1
        if left:
            assert report.read_bytes().rstrip().endswith(b"</html>")
            report.unlink()


@pytest.mark.slow
@happening("a million device ids")
def test_many_device_ids() -> None:
    rows = [kernel("k", 10 * t, 5 + (t == 1900), device=t) for t in range(2_000)]
    report = pipeline.analyze(trace_bytes(rows))
    assert len(report.devices) == 256
    assert 1900 in {device.index for device in report.devices}
    assert notes(report)["many-devices"] == 2_000 - 256
    assert report.tables["devices"].height == 2_000
    assert report.verdict.status is not None


# Memory

_PEAK = """
import sys
from trace_analyzer.errors import InputError
from trace_analyzer.ingest import load
try:
    load(sys.stdin.buffer)
except InputError:
    pass
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@cache
def peak_bytes(content: bytes) -> int:
    return int(run_python(_PEAK, input=content, encoding=None, check=True).stdout) * 1024


SIZE = 4_000_000
EVENTS = b'{"traceEvents": ['


@pytest.mark.slow
@pytest.mark.parametrize(
    "content",
    [
        pytest.param(EVENTS + b"{}," * (SIZE // 3) + b"{}]}", id="empty events"),
        pytest.param(EVENTS + b"1," * (SIZE // 2) + b"1]}", id="numbers for events"),
        pytest.param(b'{"x": [' + b"1," * (SIZE // 2) + b'1], "traceEvents": []}', id="numbers in the header"),
        pytest.param(b"[" * SIZE, id="brackets"),
        pytest.param(EVENTS + b'{"ph":"B","ts":1},' * (SIZE // 18) + b"{}]}", id="events that only begin"),
        pytest.param(EVENTS + b'{"ph":"X","ts":1,"dur":1,"name":"' + b"\xff" * SIZE + b'"}]}', id="a long bad name"),
        pytest.param(EVENTS + b'{"ph":"X","ts":1' + b"0" * SIZE + b'"}]}', id="a long number"),
        pytest.param(gzip.compress(EVENTS + b" " * SIZE + b"]}"), id="blanks in gzip"),
    ],
)
def test_memory_is_bounded(content: bytes) -> None:
    assert peak_bytes(content) - peak_bytes(EVENTS + b"]}") <= MEMORY_BASE_BYTES + MEMORY_PER_BYTE * SIZE


@pytest.mark.parametrize("packed", [False, True])
def test_a_trace_behind_many_blanks(packed: bool) -> None:
    content = b" " * (9 << 20) + SOUND
    assert load(gzip.compress(content) if packed else content).event_count == 20


@pytest.mark.slow
def test_the_bomb_is_refused_before_it_unfolds() -> None:
    assert len(broken_input.bomb()) < 200_000
    with pytest.raises(errors.InputError, match="more than 1,000,000 bytes"):
        load(broken_input.bomb(), max_bytes=1_000_000)
