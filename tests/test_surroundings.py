"""Test effects of the environment: one line, the right exit code, and never "a bug"."""

import fcntl
import json
import os
import resource
import select
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from commands import COMMAND, command, environment, run_python
from kineto import A100, kernel, launched, trace_bytes

from trace_analyzer import analyze, cli, errors, files

SOUND = trace_bytes([launched(f"k{t}", 20 * t + 1, 20 * t + 12, 4, t + 1) for t in range(10)], deviceProperties=[A100])
BUG = "a bug in this program"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create an empty current directory with one trace in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.json").write_bytes(SOUND)
    return tmp_path


def refused(*args: str, text: bytes = b"") -> str:
    """Return the one line with which the command refuses these arguments."""
    result = CliRunner().invoke(cli.main, args, input=text)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert BUG not in result.stderr
    assert "\\x" not in result.stderr
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr


class TestPaths:
    @pytest.mark.parametrize(
        "args",
        [("--report", "loop"), ("-o", "loop"), ("--tables", "loop"), ("--calibration", "loop"), ("--report", "loop/x"), ("--tables", "loop/x")],
    )  # fmt: skip
    def test_links_that_lead_to_each_other(self, folder: Path, args: tuple[str, ...]) -> None:
        (folder / "loop").symlink_to("loop")
        refused("t.json", *args)
        assert {path.name for path in folder.iterdir()} - {"t.report.html"} == {"loop", "t.json"}

    def test_a_trace_whose_report_would_have_too_long_a_name(self, folder: Path) -> None:
        name = "x" * 250 + ".json"
        (folder / name).write_bytes(SOUND)
        assert "File name too long" in refused(name)

    def test_links_and_pipes_that_lead_nowhere(self, folder: Path) -> None:
        (folder / "link").symlink_to("nowhere/x")
        (folder / "new link").symlink_to("new")
        os.mkfifo(folder / "pipe")
        assert "leads to where no directory is" in refused("t.json", "-o", "link")
        assert "is a pipe that nobody reads" in refused("t.json", "--no-report", "-o", "pipe")
        assert CliRunner().invoke(cli.main, ["t.json", "--no-report", "-o", "new link"]).exit_code == 0
        assert (folder / "new link").is_symlink()
        assert (folder / "new").stat().st_size

    def test_a_pipe_whose_reader_comes_late_gets_it_all(self, folder: Path) -> None:
        os.mkfifo(folder / "pipe")
        read: list[bytes] = []

        def reader() -> None:
            time.sleep(0.3)
            read.append((folder / "pipe").read_bytes())

        thread = threading.Thread(target=reader)
        thread.start()
        files.write_bytes(folder / "pipe", b"x" * 300_000)
        thread.join()
        assert read == [b"x" * 300_000]

    @pytest.mark.slow
    def test_a_reader_that_leaves_early_is_no_failure(self, folder: Path) -> None:
        os.mkfifo(folder / "pipe")
        reader = os.open(folder / "pipe", os.O_RDONLY | os.O_NONBLOCK)
        fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
        arguments = [*COMMAND, "t.json", "--no-report", "--format", "json", "-o", "pipe"]
        process = subprocess.Popen(arguments, cwd=folder, env=environment(), stderr=subprocess.PIPE, text=True)
        select.select([reader], [], [], 60)
        assert os.read(reader, 1) == b"{"
        os.close(reader)
        assert process.communicate(timeout=60)[1] == ""
        assert process.returncode == 0

    @pytest.mark.slow
    @pytest.mark.sampled
    @pytest.mark.parametrize("form", ["text", "json", "markdown"])
    def test_a_name_that_is_not_utf_8(self, folder: Path, form: str) -> None:
        name = os.fsdecode(b"caf\xe9 \xff.json")
        (folder / name).write_bytes(SOUND)
        result = CliRunner().invoke(cli.main, [name, "--format", form, "-o", "out", "--tables", "tables"])
        assert (result.exit_code, BUG in result.stderr) == (0, False), result.stderr
        page = (folder / os.fsdecode(b"caf\xe9 \xff.report.html")).read_text(encoding="utf-8")
        assert r"caf\xe9 \xff.json" in page
        shown = {"text": r"caf\xe9 \xff.json", "json": r"caf\\xe9 \\xff.json", "markdown": r"caf\\xe9 \\xff.json"}
        assert shown[form] in (folder / "out").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variable", "value"),
    [("POLARS_MAX_THREADS", "0"), ("POLARS_MAX_THREADS", "99999999999999999999"), ("POLARS_IDEAL_MORSEL_SIZE", "0")],
)  # fmt: skip
def test_settings_of_libraries_that_cannot_be(folder: Path, variable: str, value: str) -> None:
    done = command("t.json", cwd=folder, env=environment(**{variable: value}))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert variable in done.stderr
    assert BUG not in done.stderr


@pytest.mark.slow
def test_a_page_needs_no_setting_of_bokeh(folder: Path) -> None:
    done = command("t.json", cwd=folder, env=environment(BOKEH_LOG_LEVEL="x", BOKEH_MINIFIED="x"))
    assert (done.returncode, done.stderr) == (0, "analyze: report: t.report.html\n")


@pytest.mark.slow
@pytest.mark.parametrize("megabytes", [100, 400, 700])
def test_a_limit_on_memory(folder: Path, megabytes: int) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))

    done = command("t.json", cwd=folder, preexec_fn=limit)
    if done.returncode:  # its memory depends on the machine
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1, done.stderr[:2000]
        assert done.stderr.startswith("analyze: out of memory")
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "args", [("t.json",), ("nonsense.json",), ("t.json", "--no-report", "--max-idle", "0", "--step", "all")]
)
def test_standard_error_is_full(folder: Path, args: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        done = command(*args, cwd=folder, capture_output=False, stdout=subprocess.DEVNULL, stderr=full)
    assert done.returncode == 2, "1 would mean that a gate broke"


@pytest.mark.slow
def test_what_the_starter_has_ignored_stays_ignored(folder: Path) -> None:
    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    os.mkfifo(folder / "in")
    process = subprocess.Popen(
        [*COMMAND, "-", "--no-report"], cwd=folder, env=environment(), preexec_fn=ignore, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    time.sleep(1)
    process.send_signal(signal.SIGHUP)
    out, err = process.communicate(SOUND, timeout=60)
    assert (process.returncode, err) == (0, b"")
    assert out


@pytest.mark.slow
def test_ctrl_c_ignored_by_the_starter_stays_ignored_while_queries_run(folder: Path) -> None:
    def ignore() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    process = subprocess.Popen(
        [*COMMAND, "t.json", "--tables", "tables"], cwd=folder, env=environment(), preexec_fn=ignore,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
        time.sleep(0.001)
    err = process.communicate()[1]
    assert process.returncode == 0, err


_FORK = """
import os, trace_analyzer as ta
from trace_analyzer.compare.decomposition import compare_profiles
from trace_analyzer.compare.profiles import profile_of
from trace_analyzer.errors import ForkedError
{before}
for inside in {insides}:
    child = os.fork()
    if not child:
        code = 1
        try:
            exec(inside)
            code = 0
        except ForkedError as error:
            code = 42 if "spawn" in str(error) else 2
        finally:
            os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
_ANALYSED = """
report, compared, ranks = ta.analyze('t.json'), ta.compare('t.json', 't.json'), ta.analyze_ranks(['t.json'])
side = profile_of(report)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "insides"),
    [
        (_ANALYSED, {
            "ta.analyze('t.json')": 42, "report.to_html('x.html')": 42, "report.tables['gaps']": 42, "ranks.to_html('x.html')": 42,
            "compare_profiles(side, side)": 42, "compared.to_json(), compared.summary()": 0,
        }),
        ("import polars; polars.DataFrame({'a': [2, 1]}).sort('a')", {"ta.compare('t.json', 't.json')": 42}),
        ("import polars", {"ta.analyze('t.json')": 0}),
    ],
)  # fmt: skip
def test_a_fork_works_or_says_at_once_that_it_cannot(folder: Path, before: str, insides: dict[str, int]) -> None:
    done = run_python(_FORK.format(before=before, insides=[*insides]), cwd=folder)
    assert [*map(int, done.stdout.split())] == [*insides.values()], done.stderr


@pytest.mark.slow
def test_the_process_that_forks_goes_on(folder: Path) -> None:
    assert issubclass(errors.ForkedError, Exception)
    analyze(folder / "t.json")
    assert os.waitstatus_to_exitcode(os.waitpid(os.posix_spawn("/bin/true", ["true"], os.environ), 0)[1]) == 0
    assert analyze(folder / "t.json").trace.event_count == 20


class TestOutputs:
    def test_files_appear_together_or_not_at_all(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_text("old")

        def fail() -> None:
            with files.Outputs() as outputs:
                outputs.make_folder(tmp_path / "new" / "inner")
                for name in ("a", "new/inner/b"):
                    with outputs.open(tmp_path / name) as file:
                        file.write(b"new")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        assert [path.name for path in tmp_path.iterdir()] == ["a"]
        assert (tmp_path / "a").read_text() == "old"

    def test_two_at_a_time_do_not_disturb_each_other(self, tmp_path: Path) -> None:
        with files.Outputs() as one:
            with pytest.raises(ZeroDivisionError), files.Outputs() as other, other.open(tmp_path / "b"):
                raise ZeroDivisionError
            with one.open(tmp_path / "a") as file:
                file.write(b"1")
        assert [path.name for path in tmp_path.iterdir()] == ["a"]


ACTIVE = "\x1b[31m\u202egpj.exe\u2066\x9b2J"


def with_active_names() -> bytes:
    """Build a trace in which every name, including its device's, contains code for a terminal or a browser."""
    events = [launched(f"k{t}{ACTIVE}", 20 * t + 1, 20 * t + 12, 4, t + 1) for t in range(10)]
    odd = kernel(f"late{ACTIVE}", 500, 5, device=f"dev{ACTIVE}", correlation=77)
    return trace_bytes([*events, odd], deviceProperties=[A100 | {"name": f"A100{ACTIVE}"}])


@pytest.mark.slow
@pytest.mark.parametrize("form", ["text", "markdown", "json"])
def test_no_output_holds_what_acts(folder: Path, form: str) -> None:
    import base64
    import re
    import zlib

    (folder / f"x{ACTIVE.replace('/', '')}.json").write_bytes(with_active_names())
    result = CliRunner().invoke(cli.main, [f"x{ACTIVE}.json", "--format", form, "--report", "r.html"])
    assert result.exit_code == 0, result.stderr
    page = (folder / "r.html").read_text(encoding="utf-8")
    packed = re.findall(r'<script type="text/plain" id="events">([^<]+)<', page)[0]
    data = zlib.decompress(base64.b64decode(packed), -15).decode("utf-8", "replace").partition("\x00")[0]
    scripts = "".join(re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL))
    names = json.dumps(re.findall(r'"[^"]*gpj[^"]*"', data), ensure_ascii=False)
    places = {"printed": result.stdout + result.stderr, "page": page, "data": names, "scripts": scripts}
    for place, text in places.items():
        assert not re.search("[\x1b\x9b\u202e\u2066]", text), place
    for escaped in ("001b", "202e", "2066", "009b"):
        assert not re.search(rf"(?<!\\)\\u{escaped}", scripts), escaped
    assert r"\x1b[31m" in page
