"""Let every allocation of the compiled reader and its columns fail once: one line, exit code 2, no files."""

import json
import os
import platform
from pathlib import Path

import pytest
from commands import environment, run_python
from kineto import A100, flow, launched, op, trace_bytes
from test_faults import COMPILER, FORKS, built, outcomes

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        COMPILER is None or platform.libc_ver()[0] != "glibc", reason="needs a C compiler and the GNU C library"
    ),
]

# A small trace is read in several parts.
_FAST = """
from trace_analyzer.ingest import fast, load
assert fast._scanner is not None
fast._WORTH_BYTES, fast._CHUNK = 0, 20_000
"""
_COMMAND = _FAST + FORKS.replace("ARM", "faults.memory_arm(point)")
_READER = f"""
import ctypes, gc, json, sys
from pathlib import Path
{_FAST}
faults = ctypes.CDLL(sys.argv[1])
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
    sys.stderr.write(f"{{ended[-1]}}\\n")
print(json.dumps(ended))
"""
STRIDE = os.environ.get("MEMORY_FAULT_STRIDE", "149")
"""Every how many allocations the command's test fails one, as each takes a second or two; the reader's test fails
every one."""
SECONDS = None if "MEMORY_FAULT_STRIDE" in os.environ else 900


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
    return built(tmp_path_factory.mktemp("faults"), "memory_faults", "-fno-builtin")


def test_a_reader_without_memory_says_so_and_keeps_nothing(library: Path, trace: Path) -> None:
    own = environment(LD_PRELOAD=str(library), PYTHONDONTWRITEBYTECODE="1", POLARS_MAX_THREADS="1")
    done = run_python(_READER, library, trace, env=own, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    *faulty, whole = json.loads(done.stdout.splitlines()[-1])
    assert len(faulty) > 3
    assert whole[1] == "read"
    assert {how for _, how, _ in faulty} == {"MemoryError"}
    assert [(point, kept) for point, _, kept in faulty if kept] == []


def test_a_command_without_memory_ends_in_a_line_and_writes_nothing(library: Path, trace: Path, tmp_path: Path) -> None:
    options = (STRIDE, 0, trace, "--format", "json", "-o", "out")
    *faulty, _ = outcomes(_COMMAND, library, tmp_path, *options, seconds=SECONDS)
    assert len(faulty) > 3
    for outcome in faulty:
        assert (outcome.code, outcome.left) == (2, {"out": b"old"}), outcome
        assert outcome.stderr.startswith("analyze: out of memory"), outcome
        assert outcome.stderr.count("\n") == 1
