"""Invalid arguments: each is refused in one line with exit code 2, before anything is read or written."""

import json
import os
import re
import threading
from pathlib import Path
from typing import Any

import click
import pytest
import test_surroundings as surroundings
from click.testing import CliRunner
from test_surroundings import SOUND, refused

import trace_analyzer
from trace_analyzer.cli import main
from trace_analyzer.cli.options import Results, result_options
from trace_analyzer.errors import InputError, UsageError
from trace_analyzer.pipeline import analyze
from trace_analyzer.replay.whatif import changes_of

folder = surroundings.folder


EMPTY = [
    ("",), ("t.json", "--gpu="), ("t.json", "--gpu", ""), ("t.json", "--report", ""), ("t.json", "-o", ""),
    ("whatif", ""), ("whatif", "t.json", "--plot", ""), ("whatif", "t.json", "--device="),
    ("compare", "", "t.json"), ("compare", "t.json", ""), ("compare", "t.json", "t.json", "--html", ""),
    ("scaling", "", ""), ("export", "", "--perfetto", "x"), ("export", "t.json", "--perfetto", "x", "--before", ""),
    ("baseline", "save", "", "x"), ("baseline", "check", "t.json", ""),
]  # fmt: skip
WRITES = (
    "t.json --report -", "t.json --tables -", "whatif t.json --plot -", "compare t.json t.json --html -",
    "scaling t.json t.json --plot -", "export t.json --perfetto -", "baseline save t.json -",
)  # fmt: skip
READS = ("compare - -", "baseline check - -", "scaling - -")
REFUSED = [
    *((args, "an argument is empty") for args in EMPTY),  # and not the current directory
    *((tuple(words.split()), "only --output writes to standard output") for words in WRITES),
    *((tuple(words.split()), "can be read once") for words in READS),
    (("baseline",), "Missing command"),
    (("ranks", "nowhere"), "nowhere: no such file, so no trace of a rank"),
]


@pytest.mark.parametrize(("args", "says"), REFUSED, ids=[" ".join(args) for args, _ in REFUSED])
def test_what_cannot_be_is_refused_in_one_line(folder: Path, args: tuple[str, ...], says: str) -> None:
    assert says in refused(*args, text=SOUND)
    assert [path.name for path in folder.iterdir()] == ["t.json"]


def test_an_empty_name_is_refused_in_python(folder: Path) -> None:
    with pytest.raises(InputError, match="the name is empty"):
        analyze("")
    with pytest.raises(UsageError, match="the name is empty"):
        trace_analyzer.compare("", "t.json")


@pytest.mark.slow
def test_every_public_name_stays_what_it_is_once_it_was_used(folder: Path) -> None:
    """Check that a package does not take the place of the function of the same name."""
    for _ in range(2):
        assert trace_analyzer.compare("t.json", "t.json").status == "ok"
        with pytest.raises(UsageError, match="two traces"):
            trace_analyzer.scaling("t.json")
    for name in trace_analyzer.__all__:
        value = getattr(trace_analyzer, name)
        assert callable(value) or name == "__version__", name


@pytest.mark.parametrize(
    "args",
    [
        *(("t.json", "--step", value) for value in ("9" * 40, "-" + "9" * 40, "9" * 5000)),
        ("t.json", "--device", "9" * 40),
        *(
            ("t.json", option, value)
            for option in ("--measured-step-ms", "--peak-gbps", "--peak-tflops", "--max-report-mb")
            for value in ("1e308", "1e-308", "1e999", "nan", "-1", "0")
        ),
        *(("record", "--after", value, "--seconds", "1", "--", "true") for value in ("inf", "nan")),
        ("record", "--seconds", "1e308", "--", "true"),
        ("record", "--steps", "1" * 30, "--", "true"),
        *(("whatif", "t.json", "--speedup", f"gpu={value}") for value in ("1e-308", "1e308", "nan")),
        *(("whatif", "t.json", "--batch", value) for value in ("1e308", "1e-308")),
        ("compare", "t.json", "t.json", "--fail-if-slower", "9" * 400),
        ("compare", "t.json", "t.json", "--fail-if-more-idle", "9" * 400 + "%"),
    ],
    ids=lambda args: " ".join(args)[:50],
)
def test_numbers_and_names_beyond_all_sense(folder: Path, args: tuple[str, ...]) -> None:
    refused(*args)


@pytest.mark.slow
def test_a_target_that_is_not_utf_8() -> None:
    sample = Path(__file__).parents[1] / "sample_traces" / "synthetic_overhead_launch.json.gz"
    line = CliRunner().invoke(main, ["whatif", str(sample), "--speedup", os.fsdecode(b"\xff=2")])
    assert line.exit_code == 2
    assert r"no bucket, group, operator or module '\\xff'" in line.stderr


def test_numbers_are_bounded_in_python() -> None:
    for options in ({"batch": 1e308}, {"batch": 1e-308}, {"speedup": {"gpu": 1e-308}}, {"speedup": {"gpu": 1e308}}):
        with pytest.raises(UsageError):
            changes_of(**options)  # type: ignore[arg-type]
    assert changes_of(speedup={"gpu": float("inf")})
    for options in ({"measured_step_ms": 1e308}, {"peak_gbps": 1e308}, {"peak_tflops": {"bf16": 1e308}}):
        with pytest.raises(UsageError):
            analyze(SOUND, **options)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["scaling", "compare", "whatif"])
@pytest.mark.parametrize("form", ["text", "json"])
def test_a_refusal_is_said_once_where_people_look(folder: Path, verb: str, form: str) -> None:
    on_cpu = '{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 0, "dur": 9}'
    (folder / "none.json").write_text(f'{{"traceEvents": [{on_cpu}]}}')
    sides = ["none.json"] if verb == "whatif" else ["none.json", "t.json"]
    result = CliRunner().invoke(main, [verb, *sides, "--format", form])
    assert result.exit_code == (3 if verb == "whatif" else 2)
    on_screen = result.stdout + result.stderr if form == "text" else result.stderr
    assert len(re.findall("(?i)no estimate: |not (?:scaled|compared): ", on_screen)) == 1
    assert result.stderr.count("\n") == (form == "json")


@pytest.mark.slow
def test_sides_may_be_pipes(folder: Path) -> None:
    """Check ``compare <(zcat before.json.gz) <(zcat after.json.gz)``; a pipe that nobody writes to is refused."""
    for name in ("before", "after"):
        os.mkfifo(folder / name)
        threading.Thread(target=(folder / name).write_bytes, args=(SOUND,)).start()
    assert json.loads(output("compare", "before", "after", "--format", "json"))["difference_ns"] == 0
    assert "is a pipe that nobody writes to" in refused("compare", "before", "t.json")


@pytest.mark.slow
@pytest.mark.parametrize("words", [("explain", "t.json"), ("loop", "start", "turns", "t.json")], ids=" ".join)
def test_explanations_and_loops_have_pages(folder: Path, words: tuple[str, ...]) -> None:
    run = CliRunner().invoke(main, [*words, "-o", "x.html"])
    assert (run.exit_code, run.stderr[-9:]) == (0, ": x.html\n")
    assert (folder / "x.html").read_text("utf-8").startswith("<!doctype html>")
    assert "exists; --force overwrites it" in refused(*words, "-o", "x.html")


def output(*words: str, **options: Any) -> str:
    """Return what the command prints, which does what it is asked for."""
    run = CliRunner().invoke(main, words, **options)
    assert run.exit_code == 0, run.stderr
    return run.stdout


@pytest.mark.slow
def test_a_pipe_is_exported(folder: Path) -> None:
    output("export", "-", "--perfetto", "x.json", input=SOUND)
    assert len(json.loads((folder / "x.json").read_bytes())["traceEvents"]) > len(json.loads(SOUND)["traceEvents"])


@pytest.mark.slow
def test_a_file_called_dash_is_not_standard_input(folder: Path) -> None:
    (folder / "-").write_text('{"tool_version": "x", "verdict": {}, "devices": []}')
    output("compare", "-", "t.json", input=SOUND)


@pytest.mark.slow
def test_bytes_of_a_name_that_are_not_utf_8_stay_out_of_json(folder: Path) -> None:
    name = os.fsdecode(b"caf\xe9.json")
    (folder / name).write_bytes(SOUND)
    printed = output("compare", name, name, "--format", "json")
    assert r"caf\\xe9.json" in printed
    assert r"\udc" not in printed


@pytest.mark.parametrize("option", ["--html", "--plot"])
def test_an_output_named_like_a_page_is_the_page(option: str) -> None:
    """Check it as of `analyze TRACE`; other forms than text stay as asked for, whatever their file is called."""

    @click.command
    @result_options("text", page="A page.")
    def verb(results: Results) -> Results:
        return results

    def taken(output: str | None, form: str = "text", page: str | None = None) -> tuple[str | None, ...]:
        words = [*(["-o", output] if output else []), *([option, page] if page else []), "--format", form]
        results = verb.main(words, standalone_mode=False)
        return results.page, results.output, results.option

    assert taken("x.html") == ("x.html", None, "--output")
    assert taken("x.HTM") == ("x.HTM", None, "--output")
    assert taken("x.html", "markdown")[:2] == (None, "x.html")
    assert taken("x.txt", page="y.html") == ("y.html", "x.txt", "--html")
    with pytest.raises(UsageError, match=r"x\.html names an HTML page, and so does --html y\.html"):
        taken("x.html", page="y.html")
