"""Memory, JSON and page stay below a stated multiple of a small file's size."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from broken_input import MEMORY_MULTIPLE, OUTPUT_MULTIPLE
from commands import environment, run_python
from hostile_shapes import SHAPES, a_few_launches

# A process between the test and the command: a process inherits its parent's peak memory, which has to be small.
_DRIVER = """
import json, os, subprocess, sys
child = subprocess.Popen([sys.executable, "-m", "trace_analyzer", *sys.argv[1:]])
_, status, usage = os.wait4(child.pid, 0)
print(json.dumps([os.waitstatus_to_exitcode(status), usage.ru_maxrss]))
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="peak memory in kibibytes is Linux's"),
]


def taken(folder: Path, content: bytes) -> tuple[int, int, int]:
    """Return the bytes of peak memory, JSON and page of the command on a file."""
    folder.mkdir()
    (folder / "t.json").write_bytes(content)
    arguments = ["t.json", "--format", "json", "-o", "out.json", "--report", "page.html"]
    done = run_python(_DRIVER, *arguments, cwd=folder, env=environment(POLARS_MAX_THREADS="2"), check=True)
    code, kibibytes = json.loads(done.stdout.splitlines()[-1])
    assert code == 0, done.stderr
    return kibibytes * 1024, (folder / "out.json").stat().st_size, (folder / "page.html").stat().st_size


@pytest.fixture(scope="module")
def least(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, int, int]:
    return taken(tmp_path_factory.mktemp("least") / "few", a_few_launches())


@pytest.mark.parametrize("make", SHAPES[::3], ids=lambda make: make.__name__)
def test_what_is_taken_is_bounded_by_the_file(
    make: Callable[[], bytes], least: tuple[int, int, int], tmp_path: Path
) -> None:
    content = make()
    assert 100_000 < len(content) < 1_000_000
    memory, text, page = (one - base for one, base in zip(taken(tmp_path / "it", content), least, strict=True))
    assert memory < MEMORY_MULTIPLE * len(content)
    assert text < OUTPUT_MULTIPLE * len(content)
    assert page < OUTPUT_MULTIPLE * len(content)
