"""Test Windows and macOS as far as a Unix can emulate them: code pages, newlines, paths, missing modules."""

import io
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from catalogue import examples
from commands import ROOT, environment, ran, run_python
from kineto import A100, analysed, annotation, launched, python, trace_bytes

from trace_analyzer import files, ingest, installation, plugins
from trace_analyzer.catalog.event_names import host_work, in_function, named_code, step_marks
from trace_analyzer.cli import outputs, process
from trace_analyzer.errors import UsageError
from trace_analyzer.report import Report

SAMPLE = ROOT / "sample_traces" / "synthetic_overhead_launch.json.gz"


@pytest.mark.parametrize("page", ["cp1252", "cp437", "cp932", "ascii", "utf-8"])
def test_every_code_page_shows_the_summary_and_errors(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = (
        io.TextIOWrapper(io.BytesIO(), encoding=page, newline="\r\n") for _ in range(2)
    )  # as Windows opens them
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    outputs.say("██▌ 61 % · naïve – 模型…\nend\n")
    outputs.complain("模型.json: is empty")
    written = out.buffer.getvalue()  # type: ignore[attr-defined]
    assert written.endswith(b"end\r\n")
    text = written.decode(page)
    assert "61 %" in text
    assert page != "cp1252" or (text.startswith("###") and "naïve" in text and "\\u6a21" in text)
    assert page != "utf-8" or "██▌" in text
    complaint = err.buffer.getvalue()  # type: ignore[attr-defined]
    assert page != "cp1252" or complaint == b"analyze: \\u6a21\\u578b.json: is empty\r\n"


CODE_PAGE = """
import sys, warnings
warnings.filterwarnings("error", category=EncodingWarning, module=r"trace_analyzer\\b")
from trace_analyzer.cli import main
main(sys.argv[1:])
"""


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["report", "compare", "whatif", "ranks", "doctor"])
def test_no_file_is_read_or_written_in_the_code_page_of_the_machine(verb: str, tmp_path: Path) -> None:
    """Python warns of each file that is opened without an encoding: on Windows it would be cp1252."""
    words = {
        "report": [SAMPLE, "--tables", "tables", "--tables-format", "csv", "-o", "out.json", "--format", "json"],
        "compare": ["compare", SAMPLE, SAMPLE, "--html", "page.html", "-o", "out.md"],
        "whatif": ["whatif", SAMPLE, "--plot", "plot.html"],
        "ranks": ["ranks", SAMPLE, "--workers", "1"],
        "doctor": ["doctor"],
    }[verb]
    own = environment(PYTHONUTF8="0", PYTHONIOENCODING="cp1252")
    program = (sys.executable, "-X", "warn_default_encoding", "-c", CODE_PAGE)
    done = ran(*program, *words, cwd=tmp_path, env=own, encoding=None)
    assert done.returncode in (0, 2 if verb == "ranks" else 0), done.stderr
    assert not re.search(rb"trace_analyzer\S*: EncodingWarning", done.stderr), done.stderr
    for path in (path for path in tmp_path.rglob("*") if path.suffix in (".json", ".md", ".html")):
        content = path.read_bytes()
        content.decode("utf-8")
        assert path.suffix == ".html" or b"\r\n" not in content


def windows(name: str) -> str:
    """Return a frame as Windows names it."""
    match = re.match(r"(.+\.py)(\(\d+\): .+)", name)
    return match[1].replace("/", "\\") + match[2] if match else name


def test_rules_know_frames_of_windows() -> None:
    rows = [row for file in ("host_work", "step_marks") for row in examples(f"{file}.toml")["rules"]]
    frames = [name for row in rows if "python" in row["kinds"] for name in row["examples"] if ".py(" in name]
    frames += ["torch/nn/modules/module.py(1553): _call_impl", "torch/optim/adamw.py(220): step", "train.py(12): step"]
    frames += ["/opt/lib/python3.10/site-packages/torch/optim/sgd.py(117): step"]
    assert len(frames) > 20
    own, other = (pl.DataFrame({"kind": "python", "name": list(map(spelled, frames))}) for spelled in (str, windows))
    assert own.get_column("name").to_list() != other.get_column("name").to_list()
    for named, columns in (
        (host_work, ["work"]),
        (step_marks, ["marks", "source"]),
        (named_code, ["phase", "source", "library"]),
    ):
        there, here = ({row["name"]: [row[c] for c in columns] for row in named(of).to_dicts()} for of in (other, own))
        assert there == {windows(name): row for name, row in here.items()}, named


def test_a_trace_of_windows_blames_the_program_and_not_torch() -> None:
    def report(library: str, path: str) -> Report:
        return analysed([
            [annotation(f"ProfilerStep#{step}", at, 1000), python(f"{path}train.py(12): train_step", at + 10, 640),
             python(library, at + 20, 600), launched("ampere_sgemm_128x64_nn", at + 650, at + 700, 100, step + 1)]
            for step, at in enumerate(range(0, 6000, 1000))
        ])  # fmt: skip

    here = report("torch/nn/modules/module.py(1553): _call_impl", "/home/u/")
    library = "C:\\Python\\Lib\\site-packages\\torch\\nn\\modules\\module.py(1553): _call_impl"
    there = report(library, "C:\\Users\\u\\")
    assert there.verdict.headline == here.verdict.headline
    functions = {row.python_function for row in there.blame if row.python_function}
    assert functions == {"C:\\Users\\u\\train.py(12): train_step"}
    assert in_function("C:\\Users\\u\\train.py(12): train_step") == "in train_step (C:\\Users\\u\\train.py:12)"


def test_a_trace_with_crlf_is_the_same() -> None:
    events = [launched("k", 10 * n, 10 * n + 3, 5, n + 1) for n in range(4)]
    text = trace_bytes(events, deviceProperties=[A100]).replace(b"}, {", b"},\r\n{")
    assert b"\r\n" in text
    assert ingest.load(text).device_events.equals(ingest.load(text.replace(b"\r\n", b"\n")).device_events)


@pytest.mark.parametrize(
    ("name", "environment", "config"),
    [
        ("nt", {"APPDATA": "/u/Roaming"}, "/u/Roaming/trace-analyzer"),
        ("posix", {"XDG_CONFIG_HOME": "/u/c"}, "/u/c/trace-analyzer"),
        ("posix", {}, "/home/.config/trace-analyzer"),
    ],
)
def test_a_users_folder(name: str, environment: dict[str, str], config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "os", SimpleNamespace(name="nt" if name == "nt" else "posix", environ=environment))
    monkeypatch.setattr(Path, "home", lambda: Path("/home"))
    assert str(files.config_folder()) == config


def test_compiled_modules_are_found_by_the_suffixes_of_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "EXTENSION_SUFFIXES", [".cp311-win_amd64.pyd", ".pyd"])
    assert "slow" in str(installation.why_slow(tmp_path))
    for module in installation.MODULES:
        (tmp_path / f"{module}.pyd").parent.mkdir(exist_ok=True)
        (tmp_path / f"{module}.pyd").write_bytes(b"")
    assert installation.why_slow(tmp_path) is None


def test_a_drive_letter_does_not_separate_plugins_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins.os, "pathsep", ";")
    with pytest.raises(UsageError, match="is no folder"):
        plugins.add(["C:\\plugins\\toylib"])
    with pytest.raises(UsageError, match="separates folders"):
        plugins.add(["C:\\one;D:\\two"])
    assert os.environ[plugins.ENVIRONMENT] == "none"


def test_without_limits_of_unix_nothing_is_supervised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resource", None)
    assert process.memory_limit() is None


WITHOUT = """
import os, signal, sys
for name in ("SIGHUP", "SIGQUIT", "SIGXCPU", "SIGUSR1", "SIGUSR2", "SIGALRM"):
    delattr(signal, name)
for name in ("register_at_fork", "fork", "getuid", "geteuid", "sched_getaffinity", "mkfifo"):
    delattr(os, name)
sys.modules["resource"] = sys.modules["pwd"] = sys.modules["fcntl"] = sys.modules["termios"] = None
sys.argv = ["analyze", *sys.argv[1:]]
from trace_analyzer.cli import run
run()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [["report", SAMPLE, "--report", "page.html"], ["compare", SAMPLE, SAMPLE], ["doctor"]]
)
def test_the_command_needs_nothing_that_windows_lacks(words: list[Any], tmp_path: Path) -> None:
    done = run_python(WITHOUT, *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout
