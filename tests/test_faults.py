"""Let every writing call fail once, and signals arrive at every such call: no partial file is ever left."""

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from commands import environment, run_python
from kineto import A100, launched, trace_bytes

TRACE = trace_bytes([launched(f"k{t}", 20 * t + 1, 20 * t + 12, 4, t + 1) for t in range(10)], deviceProperties=[A100])
COMPILER = shutil.which("cc") or shutil.which("gcc")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(COMPILER is None or sys.platform != "linux", reason="needs a C compiler and Linux"),
]

# Imports once, then forks a process for each point: Polars, not yet used, is sound in a fork.
FORKS = """
import ctypes, json, os, sys
from pathlib import Path
import polars, trace_analyzer.pipeline, trace_analyzer.render.html.view, trace_analyzer.render.html.figures
from trace_analyzer.cli import run

templates = trace_analyzer.render.html.shell.environment()
for name in templates.list_templates(["j2"]):
    templates.get_template(name)  # that they cannot be kept in the cache folder is no failure

_, library, folder, stride, number, *arguments = sys.argv
faults, folder, number, point = ctypes.CDLL(library), Path(folder), int(number), 1
while True:
    place = folder / str(point)
    place.mkdir()
    (place / "out").write_text("old")
    child = os.fork()
    if not child:
        os.chdir(place)
        for fd, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(folder / f"{point}.{name}", os.O_WRONLY | os.O_CREAT), fd)
        sys.argv = ["analyze", *arguments]
        ARM
        run()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(json.dumps([point, code]), flush=True)
    if code == 0:
        break
    point += int(stride)
"""


@dataclass(frozen=True)
class Outcome:
    """Describe how the command ended with the fault at a point, and the files that it left."""

    point: int
    code: int
    stderr: str
    left: dict[str, bytes]


def built(folder: Path, name: str, *options: str) -> Path:
    assert COMPILER is not None
    path, source = folder / f"{name}.so", Path(__file__).with_name(f"{name}.c")
    subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", *options, "-o", str(path), str(source), "-ldl"], check=True)
    return path


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("faults"), "faults")


def outcomes(
    driver: str, library: Path, folder: Path, *arguments: object, seconds: float | None = 3600
) -> list[Outcome]:
    """Return the outcomes of the fault at every point, until it comes too late to have an effect."""
    own = environment(LD_PRELOAD=str(library), PYTHONDONTWRITEBYTECODE="1", POLARS_MAX_THREADS="1")
    done = run_python(driver, library, folder, *map(str, arguments), env=own, timeout=seconds)
    assert done.returncode == 0, done.stderr
    ended = [json.loads(line) for line in done.stdout.splitlines()]
    assert ended[-1][1] == 0
    return [
        Outcome(point, code, (folder / f"{point}.stderr").read_text(), files(folder / str(point)))
        for point, code in ended
    ]


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else b""
        for path in folder.rglob("*")
    }  # fmt: skip


WRITES = {
    "text and page": (("--format", "json", "-o", "out"), 2, 3),
    "tables": (("--no-report", "--format", "json", "-o", "out", "--tables", "new/tables"), 47, 89),
}
"""Words of the command, every how many writing calls one fails, and at how many a signal arrives.

A table's file has four such calls; both strides are coprime to four, so that each kind of call is covered in many
files.
"""
STRIDE = os.environ.get("WRITE_FAULT_STRIDE")
"""One stride for all: 1 covers every call."""


@pytest.mark.parametrize("number", [0, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("what", WRITES)
def test_a_fault_at_a_write_leaves_nothing_half_written(library: Path, tmp_path: Path, what: str, number: int) -> None:
    words, *strides = WRITES[what]
    (tmp_path / "t.json").write_bytes(TRACE)
    stride = int(STRIDE or strides[number != 0])
    driver = FORKS.replace("ARM", "faults.faults_arm(point, number)")
    *faulty, whole = outcomes(driver, library, tmp_path, stride, number, tmp_path / "t.json", *words)
    assert len(faulty) > 2
    expected = {0: 2, signal.SIGKILL: -signal.SIGKILL}.get(number, 128 + number)
    for outcome in faulty:
        assert outcome.code == expected, outcome
        for name, content in outcome.left.items():
            is_old, is_whole = (name, content) == ("out", b"old"), whole.left.get(name) == content
            is_temporary = number == signal.SIGKILL and ".analyze-" in name
            assert is_old or is_whole or is_temporary, (outcome.point, name, outcome.stderr)
        if number != signal.SIGKILL:
            told = ("analyze: tables:", "analyze: report:")
            lines = [line for line in outcome.stderr.splitlines() if not line.startswith(told)]
            assert len(lines) == 1, outcome.stderr
            assert lines[0].startswith("analyze: "), outcome.stderr
            assert ("No space left on device" if number == 0 else "nothing half written was left") in lines[0]
    if what == "tables" and number == 0:
        assert any("new" not in outcome.left for outcome in faulty), "a folder made for tables that failed goes too"
