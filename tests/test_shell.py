"""Test features of the shell: completion of words and files, the manual page, links to places in source files."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner
from commands import ROOT, environment, ran

from trace_analyzer.cli import VERBS, main, outputs, record

MAN = ROOT / "docs" / "analyze.1"


def completions(line: str) -> set[str]:
    """Return what completes the last word: words, ``file`` where files do."""
    *words, last = shlex.split(line + "|")
    completer = BashComplete(main, {}, "analyze", record.VARIABLE)
    items = completer.get_completions(words[1:], last.removesuffix("|"))
    return {item.value if item.type == "plain" else item.type for item in items}


def test_the_first_word_is_a_verb_an_option_or_a_trace() -> None:
    assert completions("analyze ") == {*VERBS, "file"}
    assert completions("analyze comp") == {"compare", "completion", "file"}
    assert completions("analyze --max") == {"--max-report-mb", "--max-idle", "--max-bytes"}
    assert "--version" in completions("analyze --")


def test_options_words_and_files_are_completed() -> None:
    assert completions("analyze t.json --fo") == {"--force", "--format"}
    assert completions("analyze t.json --format ") == {"text", "json", "markdown", "agent"}
    assert completions("analyze t.json --fail-on m") == {"memory-bandwidth-bound"}
    assert completions("analyze whatif --no-s") == {"--no-sync"}
    assert completions("analyze baseline ") == {"save", "check"}
    for line in (
        "t.json -o ",
        "t.json --tables ",
        "compare ",
        "whatif ",
        "export t.json --before ",
        "baseline save ",
        "--report ",
    ):
        assert completions(f"analyze {line}") == {"file"}, line


@pytest.mark.parametrize("shell", record.SHELLS)
def test_the_script_is_one_that_the_shell_takes(shell: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    assert record.VARIABLE in result.stdout
    if (program := shutil.which(shell)) is not None:
        (tmp_path / "script").write_text(result.stdout, encoding="utf-8")
        check = subprocess.run([program, "-n", tmp_path / "script"], capture_output=True, text=True, check=False)
        assert (check.returncode, check.stderr) == (0, "")


def test_another_shell_is_refused() -> None:
    result = CliRunner().invoke(main, ["completion", "tcsh"])
    assert result.exit_code == 2
    assert "tcsh" in result.stderr


@pytest.fixture
def command(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which `analyze` is a command."""
    program = tmp_path / "bin" / "analyze"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\nimport sys\nfrom trace_analyzer.cli import run\nsys.exit(run())\n", encoding="utf-8"
    )
    program.chmod(0o755)
    return environment(PATH=f"{program.parent}{os.pathsep}{os.environ['PATH']}")


DRIVEN = {
    "bash": """
        source ./script; COMP_WORDS=(analyze t.json --format m); COMP_CWORD=3
        $(complete -p analyze | sed 's/.*-F \\([^ ]*\\).*/\\1/') analyze; printf '%s\\n' "${COMPREPLY[@]}"
    """,
    "fish": "source ./script; complete -C 'analyze t.json --format m'",
    "zsh": """
        compdef() { :; }; compadd() { print -l ${(P)@[-1]}; }; source ./script
        words=(analyze t.json --format m); CURRENT=4; _analyze_completion
    """,
}


@pytest.mark.slow
@pytest.mark.parametrize("shell", record.SHELLS)
def test_the_shell_completes_a_word(shell: str, tmp_path: Path, command: dict[str, str]) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "script").write_text(CliRunner().invoke(main, ["completion", shell]).stdout, encoding="utf-8")
    options = ["--no-rcs", "-c"] if shell == "zsh" else ["--noprofile", "--norc", "-c"] if shell == "bash" else ["-c"]
    done = ran(program, *options, DRIVEN[shell], cwd=tmp_path, env=command)
    assert "markdown" in done.stdout, done.stderr
    assert "json" not in done.stdout


def test_the_manual_has_every_verb_and_option() -> None:
    text = MAN.read_text("utf-8")
    for verb in VERBS:
        assert f".SS analyze {verb} " in text
    assert ".B \\-\\-fail\\-if\\-slower" in text
    assert not re.search(r"(?<!\\)--", text)


def test_the_manual_is_sound() -> None:
    program = shutil.which("groff")
    if program is None:
        pytest.skip("groff is not installed")
    done = subprocess.run([program, "-man", "-ww", "-Tutf8", "-z", MAN], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_manual_is_part_of_the_wheel() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert project["tool"]["setuptools"]["data-files"] == {"share/man/man1": ["docs/analyze.1"]}


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a source file in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("socket.gethostname", lambda: "host")
    path = tmp_path / "train.py"
    path.write_text("", encoding="utf-8")
    return path


def test_places_of_files_that_exist_are_links(source: Path) -> None:
    link = f"\x1b]8;;file://host{source.as_uri().removeprefix('file://')}#12\x1b\\"
    for place in ("train.py:12", f"{source}:12"):
        text = f"in {place}, gone.py:12"
        assert outputs.linked(text, outputs.file_address) == f"in {link}{place}\x1b]8;;\x1b\\, gone.py:12"
    assert outputs.linked("train.py (12): f", outputs.file_address) == "train.py (12): f"


def test_vs_code_has_addresses_of_its_own(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM_PROGRAM", "vscode")
    assert f"\x1b]8;;vscode://file{source.as_uri().removeprefix('file://')}:7\x1b\\" in outputs.linked("train.py:7")


@pytest.mark.parametrize("name", ["a\x1b]8;;x.py", "a\x07b.py", "é€;#%?.py", "x\x9c.py", "..py", "a" * 300 + ".py"])
def test_hostile_names_stay_text(name: str, source: Path) -> None:
    try:
        (source.parent / name).write_text("", encoding="utf-8")
    except OSError:
        assert len(name) > 255
    text = outputs.linked(f"{name}:3", outputs.file_address)
    assert re.sub(r"\x1b\]8;;[!-~]*\x1b\\", "", text) == f"{name}:3"
    for address in re.findall(r"\x1b\]8;;(file:[^\x1b]*)\x1b", text):
        assert re.fullmatch(r"file://host/[A-Za-z0-9%/._~-]+#3", address)


@pytest.mark.parametrize(
    ("environment", "is_terminal", "wanted"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"TERM": "dumb"}, True, False),
        ({"TERM": "linux"}, True, False),
    ],
)
def test_links_are_for_terminals(
    environment: dict[str, str], is_terminal: bool, wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal, raising=False)
    assert outputs.wants_links() is wanted
