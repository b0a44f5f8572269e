"""Test the command: exit codes, destinations of outputs, protection from overwriting, and how failures are reported."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner, Result
from commands import COMMAND, ROOT, command, environment, ran, run_python
from msgspec.structs import replace
from report_factory import empty_report, gpu_report

from trace_analyzer import errors, files, ingest, pipeline
from trace_analyzer.cli import main, outputs, process
from trace_analyzer.report import Report

TRACE = {"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]}
OWN = b'<!doctype html><html><head><meta name="generator" content="trace-analyzer 1">'

Run = Callable[..., Result]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current directory, otherwise empty, with one trace in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NO_COLOR", raising=False)
    (tmp_path / "t.json").write_text(json.dumps(TRACE))
    return tmp_path


@pytest.fixture
def asked() -> list[dict[str, Any]]:
    """Return the list that takes the options of each call of the analysis."""
    return []


@pytest.fixture
def run(folder: Path, asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Run the command on a report of the factory instead of an analysis; HTML is written as a stub."""
    made = {"report": gpu_report()}

    class Loaded(dict[str, Any]):
        rank = None

    def load(source: Any, **options: Any) -> Loaded:
        return Loaded(source=source, **options)

    def report_of(loaded: dict[str, Any], options: pipeline.Options, _: Any, capture: Any = None) -> Report:
        asked.append(loaded | vars(options))
        if isinstance(made["report"], BaseException):
            raise made["report"]
        return made["report"]

    monkeypatch.setattr(ingest, "load", load)
    monkeypatch.setattr(pipeline, "report_of", report_of)
    monkeypatch.setattr(pipeline, "captured", lambda options, *_: options.capture)
    monkeypatch.setattr(Report, "to_html", lambda self, path, **_: files.write_text(path, OWN.decode()))

    def invoke(*args: str, report: Report | BaseException | None = None) -> Result:
        if report is not None:
            made["report"] = report  # type: ignore[assignment]
        return CliRunner().invoke(main, args)

    yield invoke
    assert not [p for p in folder.iterdir() if p.name.endswith(".tmp")], "a temporary file was left"


class TestShortForm:
    def test_a_trace_is_the_short_form_of_report_and_options_may_come_first(self, run: Run) -> None:
        assert run("t.json").stdout == run("report", "t.json").stdout
        assert run("--format", "json", "t.json").exit_code == 0

    def test_a_file_named_like_a_verb_is_a_path(self, run: Run, folder: Path, asked: list[dict[str, Any]]) -> None:
        (folder / "report").write_text("{}")
        assert run("./report").exit_code == 0
        assert asked[0]["source"] == "./report"

    @pytest.mark.parametrize(
        ("args", "words"),
        [
            (["--version"], ("analyze ",)),
            (["--help"], ("--max-idle", "--redact", "--version", "Commands:\n  report")),
            (["-h"], ("--max-idle", "--redact", "--version", "Commands:\n  report")),
        ],
    )
    def test_version_and_help_with_the_options_of_the_short_form(self, args: list[str], words: tuple[str, ...]) -> None:
        text = CliRunner().invoke(main, args).stdout
        assert all(word in text for word in words)


OPTIONS = (
    "--device 3 --step 7 --gpu H200 --peak-gbps 4800 --peak-tflops bf16=989 --peak-tflops 67 --measured-step-ms 12.5 "
    "--max-bytes 1000 --calibration a100.json --capture eager.json --compile-log logs"
)


class TestOptions:
    def test_they_reach_the_analysis(self, run: Run, asked: list[dict[str, Any]]) -> None:
        run("t.json")
        run("t.json", *OPTIONS.split())
        defaults = {
            "source": "t.json", "device": None, "step": "steady", "gpu": None, "peak_gbps": None, "calibration": None,
            "capture": None, "compile_log": None, "peak_tflops": {}, "measured_step_ms": None,
            "export": False, "max_bytes": 16 << 30,
        }  # fmt: skip
        options = {
            "device": 3, "step": 7, "gpu": "H200", "peak_gbps": 4800.0, "calibration": "a100.json", "capture": "eager.json",
            "compile_log": "logs", "peak_tflops": {"bf16": 989.0, "": 67.0}, "measured_step_ms": 12.5, "max_bytes": 1_000,
        }  # fmt: skip
        reached = [{key: value for key, value in call.items() if key != "progress"} for call in asked]
        assert reached == [defaults, defaults | options]

    @pytest.mark.parametrize(
        ("args", "line"),
        [
            ("", "no trace given; see 'analyze --help'"),
            ("t.json b.json", "one trace at a time, and 2 are named; 'analyze compare t.json b.json' says what changed"),
            ("t.json b.json c.json", "one trace at a time, and 3 are named; 'analyze compare BEFORE AFTER' compares two"),
            ("t.json --capture -", "--capture names a file"),
            ("t.json --no-report --tables t.json", "is a file"),
            ("t.json --no-report --tables t.json/x", "no directory"),
            ("t.json --no-report --tables-format csv", "--tables DIR"),
        ],
    )  # fmt: skip
    def test_what_cannot_be(self, run: Run, asked: list[dict[str, Any]], args: str, line: str) -> None:
        result = run(*args.split())
        assert (result.exit_code, asked, result.stderr.count("\n")) == (2, [], 1)
        assert line in result.stderr

    @pytest.mark.parametrize(
        "args",
        [
            ("--max-idle", "nan"), ("--max-idle", "1.1"), ("--max-idle", "-0.1"), ("--max-idle", "x"),
            ("--peak-gbps", "0"), ("--peak-gbps", "inf"), ("--peak-tflops", "bf16="),
            ("--peak-tflops", "bf16=-1"), ("--max-bytes", "0"), ("--step", "last"), ("--fail-on", "slow"),
            ("--format", "xml"), ("--nonsense",), ("another.json",), ("--no-report", "--open"),
            ("--no-report", "--report", "x.html"),
        ],
    )  # fmt: skip
    def test_nonsense_is_refused_in_one_line_before_any_work(
        self, run: Run, asked: list[dict[str, Any]], args: tuple[str, ...]
    ) -> None:
        result = run("t.json", *args)
        assert result.exit_code == 2
        assert result.stderr.startswith("analyze: ")
        assert result.stderr.count("\n") == 1
        assert (result.stdout, asked) == ("", [])


class TestOutputs:
    @pytest.mark.parametrize(
        ("traces", "name"),
        [
            ("t.json /d/t.json.gz t.gz t.json.zst t.zst t", "t"), ("t.pt.trace.json.gz", "t.pt.trace"), ("T.JSON.GZ", "T"),
            ("-", "stdin"), (".json", "trace"), ("t.jsonl", "t.jsonl"),
        ],
    )  # fmt: skip
    def test_the_report_is_named_after_the_trace(self, traces: str, name: str) -> None:
        assert {outputs.default_report_path(trace) for trace in traces.split()} == {Path(f"{name}.report.html")}

    def test_the_summary_is_printed_and_the_report_is_written_over_an_earlier_one(self, run: Run, folder: Path) -> None:
        assert run("t.json", "--no-report").stderr == ""
        assert [p.name for p in folder.iterdir()] == ["t.json"]
        for earlier in (b"", OWN + b"old"):
            (folder / "t.report.html").write_bytes(earlier) if earlier else None
            result = run("t.json")
            assert result.exit_code == 0
            assert result.stdout == gpu_report().summary()
            assert result.stderr == "analyze: report: t.report.html\n"
            assert (folder / "t.report.html").read_bytes() == OWN

    @pytest.mark.parametrize("form", ["text", "json", "markdown"])
    def test_output_on_standard_output_or_into_a_file(self, run: Run, folder: Path, form: str) -> None:
        made = gpu_report()
        expected = {"text": made.summary, "json": made.to_json, "markdown": made.to_markdown}[form]()
        assert run("t.json", "--format", form).stdout == expected
        assert run("t.json", "--format", form, "-o", "out", "--no-report").stdout == ""
        assert (folder / "out").read_text(encoding="utf-8") == expected
        verbose = run("t.json", "--format", form, "-v", "--no-report").stdout
        assert verbose == (made.summary(verbose=True) if form == "text" else expected)

    def test_output_named_like_a_page_is_the_page(self, run: Run, folder: Path) -> None:
        result = run("t.json", "-o", "x.html")
        assert (result.stdout, result.stderr) == (gpu_report().summary(), "analyze: report: x.html\n")
        assert (folder / "x.html").read_bytes() == OWN
        assert not (folder / "t.report.html").exists()

    @pytest.mark.parametrize(
        ("traces", "hint"),
        [
            (("t.json", "b.json"), "'analyze compare t.json b.json' says what changed"),
            (("t.json", "b.json", "c.json"), "'analyze compare BEFORE AFTER' compares two"),
        ],
    )
    def test_several_traces_are_for_compare(
        self, run: Run, asked: list[dict[str, Any]], traces: tuple[str, ...], hint: str
    ) -> None:
        result = run(*traces)
        line = f"analyze: one trace at a time, and {len(traces)} are named; {hint}\n"
        assert (result.exit_code, asked, result.stderr) == (2, [], line)

    @pytest.mark.parametrize(
        ("words", "meant"),
        [
            (("compre", "t.json", "b.json"), "did you mean compare?"), (("compre",), "did you mean compare?"),
            (("analyse", "t.json"), "the trace comes first: analyze TRACE"), (("analyze",), "the trace comes first: analyze TRACE"),
        ],
    )  # fmt: skip
    def test_a_misspelt_verb_is_no_trace(
        self, run: Run, folder: Path, asked: list[dict[str, Any]], words: tuple[str, ...], meant: str
    ) -> None:
        result = run(*words)
        assert (result.exit_code, asked) == (2, [])
        assert result.stderr.startswith(f"analyze: no verb or file {words[0]!r}; {meant}")
        (folder / words[0]).write_text("{}")
        assert "no verb" not in run(*words).stderr

    def test_output_keeps_the_mode_and_the_link(self, run: Run, folder: Path) -> None:
        (folder / "real").write_text("old")
        (folder / "real").chmod(0o640)
        (folder / "out").symlink_to("real")
        run("t.json", "--format", "json", "-o", "out")
        assert (folder / "out").is_symlink()
        assert (folder / "real").read_text().startswith("{")
        assert (folder / "real").stat().st_mode & 0o777 == 0o640

    def test_output_into_a_device_leaves_the_device(self, run: Run) -> None:
        assert run("t.json", "-o", os.devnull, "--no-report").exit_code == 0
        assert Path(os.devnull).is_char_device()

    @pytest.mark.parametrize("args", [(), ("--report", "t.report.html")])
    def test_what_this_program_did_not_write_is_kept(
        self, run: Run, folder: Path, asked: list[dict[str, Any]], args: tuple[str, ...]
    ) -> None:
        (folder / "t.report.html").write_text("<html>mine</html>")
        result = run("t.json", *args)
        assert (result.exit_code, asked) == (2, [])
        assert "--force" in result.stderr
        assert (folder / "t.report.html").read_text() == "<html>mine</html>"
        assert run("t.json", *args, "--force").exit_code == 0

    @pytest.mark.parametrize(
        "args",
        [
            ("-o", "t.json"), ("-o", "./t.json"), ("-o", "link"), ("--report", "t.json", "--force"),
            ("--report", "link", "--force"), ("-o", "x.html", "--report", "x.html"),
            ("-o", "x", "--report", "x"), ("-o", "x.html", "--no-report"),
            ("--format", "json", "-o", "t.report.html"), ("-o", "."), ("--report", "."), ("-o", "none/x"),
            ("--report", "none/x"), ("--report", os.devnull, "--force"),
        ],
    )  # fmt: skip
    def test_impossible_or_harmful_paths_are_refused_before_any_work(
        self, run: Run, folder: Path, asked: list[dict[str, Any]], args: tuple[str, ...]
    ) -> None:
        (folder / "link").symlink_to("t.json")
        result = run("t.json", *args)
        assert (result.exit_code, asked) == (2, [])
        assert result.stderr.count("\n") == 1
        assert json.loads((folder / "t.json").read_text()) == TRACE

    def test_redact_covers_everything_that_is_written(self, run: Run, folder: Path) -> None:
        made = gpu_report()
        secret = replace(made, trace=replace(made.trace, path="/home/alice/t.json"))
        for form in ("text", "json", "markdown"):
            assert "alice" not in run("t.json", "--redact", "--format", form, report=secret).stdout


class TestFailures:
    @pytest.mark.parametrize(
        ("error", "code", "line"),
        [
            (errors.InputError("t.json: no \x1b[31mtrace\n"), 2, r"t.json: no \x1b[31mtrace\x0a"),
            (OSError(28, "No space left on device", "out"), 2, "out: No space left on device"),
            (MemoryError(), 2, "out of memory"),
            (KeyboardInterrupt(), 130, "interrupted"),
            (KeyError("x"), 2, "a bug in this program (KeyError: 'x'); the same command with --debug shows where"),
            (type("Panic", (BaseException,), {})("boom"), 2, "a bug in this program (Panic: boom)"),
        ],
    )
    def test_every_failure_is_one_line_and_a_code(self, run: Run, error: Any, code: int, line: str) -> None:
        result = run("t.json", report=error)
        assert (result.exit_code, result.stdout) == (code, "")
        assert result.stderr.lstrip("\n").startswith(f"analyze: {line}")
        assert result.stderr.strip("\n").count("\n") == 0

    def test_debug_shows_the_traceback(self, run: Run) -> None:
        error: Any = KeyError("x")
        result = run("t.json", "--debug", report=error)
        assert (result.exit_code, "Traceback (most recent call last)" in result.stderr) == (2, True)


REGIME = "--fail-on overhead-bound: that is the regime, cause launch (medium confidence)"


class TestGates:
    """Check gates on the factory's report, which is overhead-bound with 40 % idle."""

    @pytest.mark.parametrize(
        ("args", "broken"),
        [
            ("--fail-on compute-bound", []),
            ("--max-idle 0.4", []),
            ("--fail-on compute-bound --fail-on overhead-bound", [REGIME]),
            ("--max-idle 0.39", ["--max-idle 0.39: the device idles 0.4 of the verdict's window"]),
            ("--max-idle 0 --fail-on overhead-bound", [REGIME, "--max-idle 0: the device idles 0.4 of the verdict's window"]),
        ],
    )  # fmt: skip
    def test_a_bound_holds_or_breaks_with_its_figures(self, run: Run, args: str, broken: list[str]) -> None:
        result = run("t.json", "--no-report", *args.split())
        assert result.exit_code == bool(broken)
        assert result.stderr == (f"analyze: gate broke: {'; '.join(broken)}\n" if broken else "")

    @pytest.mark.parametrize("args", [(), ("--fail-on", "compute-bound"), ("--max-idle", "1")])
    def test_a_trace_without_a_regime_breaks_every_gate(self, run: Run, args: tuple[str, ...]) -> None:
        result = run("t.json", "--no-report", *args, report=empty_report())
        assert result.exit_code == bool(args)
        assert [word for word in ("no regime", "no-gpu-activity") if word in result.stderr] == (
            ["no regime", "no-gpu-activity"] if args else []
        )


class TestProcess:
    """Check properties that need a separate process: pipes, terminals, signals, imports."""

    @pytest.mark.slow
    def test_standard_input(self, folder: Path) -> None:
        strict = environment(PYTHONWARNINGS="error")
        done = command("-", "--format", "json", "--no-report", cwd=folder, input=json.dumps(TRACE), env=strict)
        assert done.stderr == ""
        assert json.loads(done.stdout)["trace"]["path"] == "stdin"

    @pytest.mark.slow
    @pytest.mark.parametrize("closed", ["1", "2"])
    def test_a_stream_that_is_closed_from_the_start_is_no_failure(self, folder: Path, closed: str) -> None:
        line = f'exec "$0" -m trace_analyzer "$1" --no-report {closed}>&-'
        done = ran("sh", "-c", line, sys.executable, "t.json", cwd=folder)
        assert done.returncode == 0
        assert "bug" not in done.stderr
        assert bool(done.stdout) == (closed == "2")

    @pytest.mark.slow
    def test_a_pipe_that_closes_early_is_no_failure(self, folder: Path) -> None:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen([*COMMAND, "t.json", "--no-report"], cwd=folder, env=environment(), **pipes)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0
        process.stderr.close()

    @pytest.mark.slow
    def test_ctrl_c_ends_in_one_line(self, folder: Path) -> None:
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        process = subprocess.Popen([*COMMAND, "-"], cwd=folder, env=environment(), **pipes)
        time.sleep(2)  # until the process waits for standard input
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (130, b"")
        assert err.strip() == b"analyze: interrupted; nothing half written was left"

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("variables", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
    )
    def test_colours_only_on_a_terminal_that_wants_them(
        self, folder: Path, variables: dict[str, str], coloured: bool
    ) -> None:
        printed = on_terminal(folder, "t.json", "--no-report", **variables)
        assert "Run on the CPU" in printed
        assert ("\x1b[" in printed) == coloured

    @pytest.mark.slow
    def test_an_encoding_without_block_characters_is_no_failure(self, folder: Path) -> None:
        done = command("t.json", "--no-report", cwd=folder, env=environment(PYTHONIOENCODING="ascii"))
        assert done.stdout.isascii()
        assert (done.returncode, done.stderr) == (0, "")
        assert "\x1b" not in done.stdout

    @pytest.mark.parametrize(
        ("arguments", "heavy"),
        [
            (["--help"], {"torch", "polars", "bokeh", "holoviews", "numpy", "jinja2"}),
            pytest.param(["t.json", "--no-report"], {"torch", "bokeh", "holoviews", "jinja2", "pandas", "numpy.ma"}, marks=pytest.mark.slow),
        ],
    )  # fmt: skip
    def test_only_what_is_needed_is_imported(self, folder: Path, arguments: list[str], heavy: set[str]) -> None:
        code = f"{RUN % arguments}imported = {heavy} & sys.modules.keys()\nsys.exit(str(imported) if imported else 0)"
        done = run_python(code, cwd=folder)
        assert (done.returncode, done.stderr) == (0, "")


RUN = "import sys; from trace_analyzer.cli import main\ntry: main(%s)\nexcept SystemExit: pass\n"


@pytest.mark.slow
@pytest.mark.parametrize(("size", "asked"), [(1 << 20, None), (1 << 20, "3"), ((1 << 20) + 1, None)])
def test_a_small_trace_takes_one_thread_unless_the_user_says_how_many(
    folder: Path, size: int, asked: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("POLARS_MAX_THREADS", raising=False)
    (folder / "t.json").write_text(json.dumps(TRACE).ljust(size))
    code = RUN % ["t.json", "--no-report", "-o", "t.txt"] + "import polars; print(polars.thread_pool_size())"
    done = run_python(code, cwd=folder, env=environment(**({"POLARS_MAX_THREADS": asked} if asked else {})))
    assert (done.returncode, done.stderr) == (0, "")
    if size > 1 << 20:
        assert int(done.stdout) > 1 or os.cpu_count() == 1
    else:
        assert done.stdout.strip() == (asked or "1")


def on_terminal(folder: Path, *args: str, **variables: str) -> str:
    """Return the output of the command when standard output is a terminal."""
    kept = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    ours, theirs = pty.openpty()
    streams = {"stdout": theirs, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
    own = {**kept, "PYTHONPATH": str(ROOT), "TERM": "xterm", **variables}
    process = subprocess.Popen([*COMMAND, *args], cwd=folder, env=own, **streams)
    os.close(theirs)
    printed = b""
    try:
        while chunk := os.read(ours, 65536):
            printed += chunk
    except OSError:  # Linux reports the end of a terminal as EIO
        pass
    finally:
        os.close(ours)
        process.wait(60)
    return printed.decode()


class TestTables:
    """Check ``--tables DIR``: every table of the report is a complete file."""

    @pytest.mark.parametrize(("asked_for", "suffix"), [((), "parquet"), (("--tables-format", "csv"), "csv")])
    def test_every_table_is_written(self, run: Run, folder: Path, asked_for: tuple[str, ...], suffix: str) -> None:
        result = run("t.json", "--no-report", "--tables", "new/tables", *asked_for)
        assert result.exit_code == 0
        read = {"parquet": pl.read_parquet, "csv": pl.read_csv}[suffix]
        report = gpu_report()
        written = {path.name: path for path in (folder / "new" / "tables").iterdir()}
        assert set(written) == {f"{name}.{suffix}" for name in report.tables}
        assert f"tables: {len(written)} files in new/tables" in result.stderr
        for name, table in report.tables.items():
            back = read(written[f"{name}.{suffix}"])
            assert (back.columns, back.height) == (table.columns, table.height)
        if suffix == "parquet":
            assert read(written["activities.parquet"]).equals(report.tables["activities"])

    def test_what_is_there_is_replaced_and_the_rest_left_alone(self, run: Run, folder: Path) -> None:
        (folder / "gaps.parquet").write_text("old")
        (folder / "notes.txt").write_text("mine")
        assert run("t.json", "--no-report", "--tables", ".").exit_code == 0
        assert pl.read_parquet(folder / "gaps.parquet").height == gpu_report().tables["gaps"].height
        assert (folder / "notes.txt").read_text() == "mine"

    def test_nothing_half_written_stays(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(self: pl.DataFrame, file: Any) -> None:
            file.write(b"half")
            raise OSError("no space left on device")

        monkeypatch.setattr(pl.DataFrame, "write_parquet", full)
        with pytest.raises(OSError, match="no space"):
            gpu_report().write_tables(folder / "out")
        assert [path.name for path in folder.iterdir()] == ["t.json"], "not even the folder"

    def test_an_unknown_format_is_named(self, folder: Path) -> None:
        with pytest.raises(ValueError, match="xlsx"):
            gpu_report().write_tables(folder, "xlsx")  # type: ignore[arg-type]


BUG = "analyze: a bug in this program ({}); the same with --debug\n"
MEMORY = "out of memory: this process may take 2.15 GB (ulimit -v); allow more, or record fewer steps\n"


@pytest.mark.parametrize(
    ("ended", "line", "code", "says"),
    [
        *((2, BUG.format(bug), 2, "a bug in this program") for bug in (
            "IndexError: list index out of range", "KeyError: 'x'", "PanicException: index out of bounds", "ImportError: cannot import name 'x'")),
        *((2, BUG.format(lack), 2, "out of memory") for lack in (
            "MemoryError: ", "RuntimeError: can't start new thread", "PanicException: failed to allocate 1 GB")),
        (-signal.SIGKILL, "", 2, "out of memory"),
        (-signal.SIGABRT, "memory allocation of 1073741824 bytes failed", 2, "out of memory"),
        (-signal.SIGABRT, "terminate called after throwing an instance of 'std::bad_alloc'", 2, "out of memory"),
        (-signal.SIGABRT, "Assertion `n > 0' failed", 128 + 6, "a bug in this program or in a library: ended by SIGABRT"),
        (-signal.SIGSEGV, "", 128 + 11, "a bug in this program or in a library: ended by SIGSEGV"),
        (-signal.SIGTERM, "", 128 + 15, "interrupted"),
        (1, "MemoryError\n", 2, MEMORY),
        (1, "", 1, None),  # a gate's
        (0, "OSError: [Errno 12] ENOMEM, ignored\n", 0, None),
    ],
)  # fmt: skip
def test_under_a_limit_only_missing_memory_is_called_so_and_a_crash_what_it_is(
    ended: int,
    line: str,
    code: int,
    says: str | None,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(process.os, "_exit", sys.exit)
    with pytest.raises(SystemExit) as exited:
        process._report(ended, [line.encode()] if line else [], 2 << 30)
    written = capfd.readouterr().err
    assert exited.value.code == code
    assert written == "" if says is None else written.startswith(f"analyze: {says}")
    assert written.count("\n") == (says is not None)
