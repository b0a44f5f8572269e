"""Let every allocation of the compiled reader and its columns fail once: one line, exit code 2, no files."""

import json
import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest
from commands import environment, run_python
from kineto import A100, flow, launched, op, trace_bytes

COMPILER = shutil.which("cc") or shutil.which("gcc")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        COMPILER is None or platform.libc_ver()[0] != "glibc", reason="needs a C compiler and the GNU C library"
    ),
]

_START = """
import ctypes, gc, json, os, sys
from pathlib import Path
from trace_analyzer.ingest import fast, load
assert fast._scanner is not None
fast._WORTH_BYTES, fast._CHUNK = 0, 20_000  # so that a small trace is read in several parts
faults = ctypes.CDLL(sys.argv[1])
"""

_READER = """
assert faults.memory_arm(0) == 2

def read():
    load(Path(sys.argv[2]).read_bytes())

read()
gc.collect()
count, kept, ended = faults.memory_calls(), faults.memory_held(), []
for point in range(1, count + 2):
    faults.memory_arm(point)
    try:
        read()
        how = "read"
    except MemoryError:
        how = "MemoryError"
    gc.collect()
    ended.append([point, how, faults.memory_held() - kept])
    sys.stderr.write(f"{ended[-1]}\\n")
print(json.dumps(ended))
"""

# Imports once, then forks a process for each point: Polars, not yet used, is sound in a fork.
STRIDE = os.environ.get("MEMORY_FAULT_STRIDE", "149")
"""Every how many allocations the command's test fails one, as each takes a second or two; the reader's test fails
every one."""

_COMMAND = """
import polars, trace_analyzer.pipeline, trace_analyzer.render.html.view, trace_analyzer.render.html.figures
from trace_analyzer.cli import run

templates = trace_analyzer.render.html.view.environment()
for name in templates.list_templates(["j2"]):
    templates.get_template(name)  # that they cannot be kept in the cache folder is no failure

folder, point = Path(sys.argv[2]), 1
while True:
    place = folder / str(point)
    place.mkdir()
    child = os.fork()
    if not child:
        os.chdir(place)
        for fd, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(folder / f"{point}.{name}", os.O_WRONLY | os.O_CREAT), fd)
        sys.argv = ["analyze", *sys.argv[4:]]
        faults.memory_arm(point)
        run()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(json.dumps([point, code, sorted(os.listdir(place))]), flush=True)
    if code == 0:
        break
    point += int(sys.argv[3])
"""


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a trace that is read in several parts, with all kinds of columns."""
    pairs = [launched(f"k{n % 9}", 20 * n + 1, 20 * n + 8, 4, n + 1) for n in range(120)]
    arrows = [flow(n, *pair) for n, pair in enumerate(pairs)]
    operators = [op("aten::mm", 20 * n, 9) for n in range(120)]
    path = tmp_path_factory.mktemp("trace") / "t.json"
    path.write_bytes(trace_bytes([pairs, arrows, operators], deviceProperties=[A100]))
    return path


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the faults as a library to preload."""
    assert COMPILER is not None
    path = tmp_path_factory.mktemp("faults") / "memory_faults.so"
    source = Path(__file__).with_name("memory_faults.c")
    subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-fno-builtin", "-o", str(path), str(source)], check=True)
    return path


def driven(driver: str, library: Path, *arguments: str) -> list[str]:
    """Return the lines that the driver prints, with the faults preloaded."""
    own = environment(LD_PRELOAD=str(library), PYTHONDONTWRITEBYTECODE="1", POLARS_MAX_THREADS="1")
    seconds = None if "MEMORY_FAULT_STRIDE" in os.environ else 900
    done = run_python(_START + driver, library, *arguments, env=own, timeout=seconds)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_reader_without_memory_says_so_and_keeps_nothing(library: Path, trace: Path) -> None:
    *faulty, whole = json.loads(driven(_READER, library, str(trace))[-1])
    assert len(faulty) > 3
    assert whole[1] == "read"
    assert {how for _, how, _ in faulty} == {"MemoryError"}
    assert [(point, kept) for point, _, kept in faulty if kept] == []


def test_a_command_without_memory_ends_in_one_line_and_writes_nothing(
    library: Path, trace: Path, tmp_path: Path
) -> None:
    options = ("--format", "json", "-o", "out.json")
    lines = driven(_COMMAND, library, str(tmp_path), STRIDE, str(trace), *options)
    *faulty, whole = [json.loads(line) for line in lines]
    assert len(faulty) > 3
    assert whole[1] == 0
    for point, code, left in faulty:
        stderr = (tmp_path / f"{point}.stderr").read_text()
        assert (code, left) == (2, []), (point, stderr)
        assert stderr.startswith("analyze: out of memory"), (point, stderr)
        assert stderr.count("\n") == 1
