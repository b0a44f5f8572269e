"""Check that every form in ``--help`` works end to end; a new option needs a value here."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from conftest import SAMPLES
from test_compiled import LOG

from trace_analyzer.catalog.devices import PEAK_NAMES, with_overrides
from trace_analyzer.cli import VERBS, main

SAMPLE = SAMPLES / "synthetic_overhead_launch.json.gz"

VALUES = {
    "--report PATH": "there.html", "--max-report-mb N": "5", "--output FILE": "out.txt", "--tables DIR": "tables",
    "--fail-on REGIME": "compute-bound", "--max-idle RATIO": "1", "--device N": "0", "--step N": "3",
    "--gpu NAME": "H200",
    "--peak-tflops X": "989", "--peak-tflops DTYPE=X": "bf16=989", "--peak-gbps X": "3350",
    "--measured-step-ms X": "12.5",
    "--calibration FILE": "calibration.json", "--capture FILE": str(SAMPLE), "--capture FOLDER": "captures",
    "--compile-log DIR": "compiled", "--max-peak SIZE": "20GiB", "--units N,M": "10,12",
    "--rank-of PATTERN": r"rank(\d+)",
    "--budget S": "2", "--max-bytes N": "100000000", "--output FOLDER": "recorded", "--steps N": "2", "--skip N": "1",
    "--seconds X": "0.2", "--after X": "0", "--plot FILE": "plot.html", "--trace TRACE": str(SAMPLE),
    "--memory SNAPSHOT": str(SAMPLES / "synthetic_training.json.gz"), "--html FILE": "compared.html",
    "--perfetto OUT": "added.json.gz", "--before TRACE": str(SAMPLE), "--before SNAPSHOT": str(SAMPLE),
    "--prefetch K": "4",
    "--batch K": "2", "--speedup NAME=K": "matmul=2", "--fail-if-slower R": "5%",
    "--fail-if-slower LINE=R": "copy=0.05",
    "--fail-if-more-idle R": "0.1", "--workers N": "1", "--dask SCHEDULER": "tcp://127.0.0.1:9",
    "--rank-summary FILE": "trace.rank.gz", "--advice ID": "synchronization", "--note TEXT": "workers",
    "--patch FILE": str(SAMPLES / "README.md"),
    "--plugin DIR": "none",  # tests/test_plugins.py names some, in processes of their own
}  # fmt: skip
"""A value for each placeholder of each option; words in the help are used as they are."""

ALONE = ("--help", "--version", "--json-schema")
_ROW = re.compile(r"^  (?:-\w, )?(--[\w-]+)(?: / (--[\w-]+))?(?: (\S+))?(?:  |$)", re.MULTILINE)


@pytest.mark.parametrize("group", [(), ("baseline",), ("loop",)])
def test_lists_of_commands_are_whole_sentences_and_limits_are_plain(group: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(main, [*group, "--help"]).stdout
    listed = re.split(r"\n  (?=\w)", shown.partition("Commands:")[2].partition("\n\n")[0])[1:]
    assert listed
    assert all(row.rstrip().endswith(".") and "..." not in row for row in listed)
    assert not any(figure in shown for figure in ("1e-09", "1000000000.0"))


def forms(verb: str) -> Iterator[tuple[str, ...]]:
    """Yield each option of the verb with each documented form of its value."""
    text = CliRunner().invoke(main, [*verb.split(), "--help"], terminal_width=100).stdout
    rows = _ROW.findall(text[text.index("Options:") :])
    assert len(rows) > 4, text
    for option, opposite, metavar in rows:
        if not metavar:
            yield (option,)
            if opposite:
                yield (opposite,)
            continue
        for form in spelled_out(metavar):
            yield option, VALUES.get(f"{option} {form}", form if form.islower() else f"no value for {option} {form}")


def spelled_out(metavar: str) -> list[str]:
    """List the forms of a placeholder: ``[a|b]`` and ``A|b`` are choices, ``[B=]X`` is with and without."""
    if optional := re.fullmatch(r"\[(\w+=)\](\w+)", metavar):
        return [optional[2], optional[1] + optional[2]]
    return metavar.strip("[]").split("|")


def invoked(folder: Path, monkeypatch: pytest.MonkeyPatch, *args: str) -> Result:
    monkeypatch.chdir(folder)
    monkeypatch.setattr("webbrowser.open", lambda url: url.startswith("file://"))
    (folder / "compiled").mkdir()
    (folder / "compiled" / "dedicated_log_torch_trace_a.log").write_text(LOG)
    (folder / "captures").mkdir()
    (folder / "captures" / SAMPLE.name).symlink_to(SAMPLE)
    (folder / "calibration.json").write_text(json.dumps({"format": 1, "name": "a device", "kind": "cuda"}))
    return CliRunner().invoke(main, args)


def test_a_bare_trace_takes_what_report_takes() -> None:
    """Check the options alone, too; what the first word may be is tested in tests/test_cli.py."""
    assert set(forms("")) - {(option,) for option in ALONE} == set(forms("report")) - {("--help",)}


def together(forms_of_it: set[tuple[str, ...]], *, apart: tuple[set[str], ...]) -> list[list[str]]:
    """Return few commands that hold every form: none has an option twice or options of two sets of `apart`."""
    commands: list[dict[str, tuple[str, ...]]] = []
    for option, *values in sorted(forms_of_it):
        side = next((options for options in apart if option in options), None)
        others = set() if side is None else set().union(*apart) - side
        command = next((c for c in commands if not c.keys() & {option, *others}), None)
        if command is None:
            commands.append(command := {})
        command[option] = (option, *values)
    return [[word for form in command.values() for word in form] for command in commands]


REPORTS = together(
    set(forms("report")) - {(option,) for option in ALONE},
    apart=({"--report", "--max-report-mb", "--force", "--open", "--redact"}, {"--no-report", "--rank-summary"}),
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "form", [*([option] for option in ALONE), *([str(SAMPLE), *form] for form in REPORTS)], ids=" ".join
)
def test_every_form_of_a_report_works(form: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = ["--tables", "tables"] if "--tables-format" in form and "--tables" not in form else []
    result = invoked(tmp_path, monkeypatch, *form, *more)
    assert result.exit_code == 0, result.stderr
    assert result.stdout or (tmp_path / "out.txt").stat().st_size


def test_the_peak_for_all_types_is_that_of_each() -> None:
    device = with_overrides(None, {"": 100.0, "bf16": 200.0}, None)
    peaks = dict.fromkeys(PEAK_NAMES, 100.0) | {"bf16": 200.0}
    assert {name: getattr(device.peaks, name) for name in PEAK_NAMES} == peaks
    assert device.source == "all, bf16: given by the user"


CALIBRATIONS = [
    *together(
        {form for form in forms("calibrate") if form[-1] not in ("--help", "cuda", "xpu")},
        apart=({"--sweep"}, {"--no-sweep"}),
    ),
    *(["--device", absent, "--no-sweep"] for absent in ("cuda", "xpu")),
]


@pytest.mark.slow
@pytest.mark.parametrize("form", CALIBRATIONS, ids=" ".join)
def test_every_form_of_calibrate_works(form: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from trace_analyzer.capture import calibrate

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(calibrate, "_COPY_BYTES", {("cpu", True): (1 << 12, 1 << 16)})
    monkeypatch.setattr(calibrate, "_MATMUL_SIZES", {("cpu", True): (16, 32)})
    monkeypatch.setattr(calibrate, "_REPEATS", {True: (1,)})
    quick = [] if "--quick" in form else ["--quick"]
    where = [] if "--device" in form else ["--device", "cpu"]
    result = invoked(tmp_path, monkeypatch, "calibrate", *form, *quick, *where)
    may_be_absent = {"cuda", "xpu"} & set(form)
    assert result.exit_code in ((0, 2) if may_be_absent else (0,)), result.stderr
    assert "a bug in this program" not in result.stderr


RECORDING = together(set(forms("record")) - {("--help",)}, apart=({"--steps", "--skip"}, {"--seconds", "--after"}))
"""A run of torch takes seconds, and options do not affect each other's meaning."""


@pytest.mark.slow
@pytest.mark.parametrize("form", RECORDING, ids=" ".join)
def test_every_form_of_record_works(form: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    script = tmp_path / "train.py"
    script.write_text(
        "import time, torch\n"
        "p = torch.zeros(3, requires_grad=True)\n"
        "o = torch.optim.SGD([p], lr=0.1)\n"
        "for _ in range(40):\n"
        "    p.sum().backward(); o.step(); o.zero_grad(); time.sleep(0.01)\n"
    )
    result = invoked(tmp_path, monkeypatch, "record", *form, "--", sys.executable, str(script))
    assert result.exit_code == 0, result.stderr
    assert "a bug in this program" not in result.stderr


TRACES = {
    "loop apply": ["loop"], "loop check": ["loop", str(SAMPLE)], "loop start": ["loop", str(SAMPLE)],
    "explain": [str(SAMPLE)],
    "whatif": [str(SAMPLE)], "compare": [str(SAMPLE)] * 2, "scaling": [str(SAMPLE)] * 2, "export": [str(SAMPLE)],
    "ranks": [str(SAMPLE)], "memory": [str(SAMPLE)], "baseline save": [str(SAMPLE), "saved.json"],
    "baseline check": [str(SAMPLE)] * 2,
}  # fmt: skip
"""Verbs that take traces as the report does, each with its arguments."""

REFUSES = {
    "scaling": (2, 3),
    "whatif": (0, 3),
    "ranks": (2,),
    "loop apply": (2,),
    "loop check": (2,),
    "loop start": (0, 2),
}
"""Exit codes of verbs that refuse two recordings at one batch, a trace that does not determine the answer, a trace
without a rank, a turn that has not begun, or an advice that the report does not give."""


EXCLUDING = "units whole dask workers fuse fuse-only warm warm-only tf32 bf16"
"""Options that exclude another of them."""

LAST = {form: verb for verb in TRACES for form in forms(verb)}
"""Each form of an option -> the last of the verbs that have it."""

COMMANDS = [
    (verb, *words)
    for verb in TRACES
    for words in [
        *([option] for option in ALONE if LAST.get((option,)) == verb),
        *together(
            {form for form in LAST if LAST[form] == verb and form[0] not in ALONE},
            apart=tuple({f"--{word}"} for word in EXCLUDING.split()),
        ),
    ]
]


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_form_of_a_verb_works(command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verb, *form = command
    monkeypatch.setattr("trace_analyzer.cli.compare._PATIENCE_S", 1)  # no scheduler runs at the address in `VALUES`
    result = invoked(tmp_path, monkeypatch, *verb.split(), *TRACES[verb], *form)
    codes = (0,) if form[0] in ("--help", "--json-schema") else REFUSES.get(verb, (0,))
    assert result.exit_code in codes, result.stderr
    assert "a bug in this program" not in result.stderr
    assert "no value for" not in result.stderr


def test_every_verb_is_driven() -> None:
    verbs: set[str] = set()
    for name in VERBS:
        command = main.get_command(click.Context(main), name)
        verbs |= {f"{name} {inner}" for inner in command.commands} if isinstance(command, click.Group) else {name}
    elsewhere = {"mcp", "skill", "doctor", "completion"}  # tests/test_agents.py, test_doctor.py, test_shell.py
    assert verbs == {"report", "record", "calibrate", *elsewhere, *TRACES}, "a new verb needs a test of its forms"


def test_the_help_lists_every_exit_code() -> None:
    """Check that the page lists exit codes 0 to 3 and those of signals; a verb with another code documents it, too."""
    epilog = " ".join(CliRunner().invoke(main, ["--help"]).stdout.split()).partition("Exit codes: ")[2]
    assert [int(code) for code in re.findall(r"\b(\d+) [a-z]", epilog)] == [0, 1, 2, 3]
    assert "Exits with 3" in " ".join(CliRunner().invoke(main, ["whatif", "--help"]).stdout.split())
    page = (SAMPLES.parent / "docs" / "cli.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| (\d+) \|", page, re.MULTILINE) == ["0", "1", "2", "3"]
