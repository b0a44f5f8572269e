"""Partial files of killed processes: the next writer to the same folder deletes them, and nothing else."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trace_analyzer import files
from trace_analyzer.files import ABANDONED_S, remove_abandoned, temporary_folder, write_text

_KILLED = """
import os, signal, sys
from pathlib import Path
from trace_analyzer.files import Outputs, temporary_folder

with Outputs() as outputs, temporary_folder(Path(sys.argv[1])) as folder, outputs.open(Path(sys.argv[1], "a")) as file:
    (folder / "part").write_text("half")
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def temporaries(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name.startswith(".analyze-"))


def killed(folder: Path) -> None:
    """Let a process be killed that writes a file and a folder."""
    done = subprocess.run([sys.executable, "-c", _KILLED, str(folder)], cwd=Path(__file__).parents[1], check=False)
    assert done.returncode == -signal.SIGKILL


def dead_process() -> int:
    """Return the process ID of a process that ran."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def left(folder: Path, machine: str, process: int, age_s: float = 0) -> Path:
    """Create a temporary file of that process, of that age."""
    path = folder / f".analyze-{machine}-{process}-{'0' * 12}.tmp"
    path.write_text("half")
    os.utime(path, (time.time() - age_s,) * 2)
    return path


@pytest.mark.skipif(os.name != "posix", reason="signals are those of Unix")
def test_the_next_run_deletes_what_a_killed_one_left(tmp_path: Path) -> None:
    killed(tmp_path)
    assert len(temporaries(tmp_path)) == 2
    write_text(tmp_path / "b", "whole")
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


@pytest.mark.skipif(os.name != "posix", reason="processes are looked up as on Unix")
@pytest.mark.parametrize(
    ("machine", "process", "age_s", "stays"),
    [
        ("this", "dead", 0, False),
        ("this", "this", 0, True),
        ("this", "this", 2 * ABANDONED_S, False),
        ("another", "dead", 0, True),
        ("another", "dead", 2 * ABANDONED_S, False),
    ],
)
def test_only_what_nobody_writes_any_more_goes(
    tmp_path: Path, machine: str, process: str, age_s: float, stays: bool
) -> None:
    number = os.getpid() if process == "this" else dead_process()
    path = left(tmp_path, files._machine() if machine == "this" else "0" * 8, number, age_s)
    remove_abandoned(tmp_path)
    assert path.exists() == stays


def test_other_names_links_and_folders_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("text")
    others = (".analyze-x.tmp", ".analyze-00000000-1-zz.tmp", "analyze-00000000-1-000000000000.tmp", ".analyze.tmp")
    for name in others:
        left(tmp_path, "x", 1, 9 * ABANDONED_S).rename(tmp_path / name)
    link = tmp_path / f".analyze-{files._machine()}-{dead_process()}-{'1' * 12}.tmp"
    link.symlink_to("kept", target_is_directory=True)
    remove_abandoned(tmp_path)
    assert not link.is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted((*others, "kept"))
    assert (tmp_path / "kept" / "file").read_text() == "text"


def test_a_folder_that_cannot_be_listed_is_no_failure(tmp_path: Path) -> None:
    remove_abandoned(tmp_path / "nowhere")


def test_what_this_process_writes_stays_while_others_write_beside_it(tmp_path: Path) -> None:
    with temporary_folder(tmp_path) as folder:
        write_text(tmp_path / "b", "whole")
        assert folder.is_dir()
