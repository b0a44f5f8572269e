"""Run a command under the profiler without a change to it: the side of ``analyze record`` that waits."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from trace_analyzer.capture.recorder import VARIABLE, Plan
from trace_analyzer.errors import UsageError
from trace_analyzer.files import temporary_folder
from trace_analyzer.tuning import dataclass

HOOK = Path(__file__).with_name("hook")
"""Folder of the ``sitecustomize`` that every Python of the command runs first."""


@dataclass(frozen=True)
class RecordedCommand:
    """Hold how the command ended (negative: by that signal), its traces, and why there are none.

    ``without_device`` says for which torch there is no device, "" where there is one.
    """

    returncode: int
    traces: tuple[Path, ...]
    reasons: tuple[str, ...]
    without_device: str = ""


def full_command(words: Sequence[str]) -> list[str]:
    """Return the command to run; this Python runs ``train.py ...`` and ``-m module ...``."""
    if words[0] == "-m" or words[0].endswith(".py"):
        return [sys.executable, *words]
    return list(words)


def script_name(words: Sequence[str]) -> str:
    """Return the name for the traces: the script, else the module, else the command."""
    scripts = [Path(word).stem for word in words if word.endswith(".py")]
    modules = [words[i + 1].rpartition(".")[2] for i, word in enumerate(words[:-1]) if word == "-m"]
    # torchrun's own module is not what one looks for when a script follows it
    return next(iter((*scripts, *reversed(modules), Path(words[0]).name)))


def record(words: Sequence[str], plan: Plan) -> RecordedCommand:
    """Run the command to its end and collect the traces of its processes in ``plan.folder``, named after it.

    Standard input, output and error are the command's own, and so are signals: Ctrl-C reaches it, not us, and
    signals to this process are passed on. A trace is whole or not there. Raises ``UsageError`` when the command
    cannot be started or the folder not be written to.
    """
    folder = Path(plan.folder)
    with contextlib.ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            private = stack.enter_context(temporary_folder(folder.resolve()))
        except OSError as error:
            raise UsageError(f"--output {folder}: {error.strerror}") from None
        returncode = _run(full_command(words), replace(plan, folder=str(private)))
        reasons = _told(private, "reason") or _told(private, "interpreter")
        without_device = next(iter(_told(private, "device")), "")
        return RecordedCommand(returncode, _named(private, folder, script_name(words)), reasons, without_device)


def _told(private: Path, what: str) -> tuple[str, ...]:
    """Return what the processes wrote for us, each kind of message in files of its own suffix."""
    return tuple(path.read_text(encoding="utf-8") for path in sorted(private.glob(f"*.{what}")))


def _run(command: list[str], plan: Plan) -> int:
    """Run the command and return its code, as `subprocess` counts it."""
    path = os.pathsep.join(filter(None, (str(HOOK), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, VARIABLE: plan.to_text(), "PYTHONPATH": path}
    with _signals_for() as children:
        try:
            process = subprocess.Popen(command, env=environment)
        except OSError as error:
            raise UsageError(f"{command[0]}: {error.strerror}") from None
        children.append(process)
        return process.wait()


@contextlib.contextmanager
def _signals_for() -> "Iterator[list[subprocess.Popen[bytes]]]":
    """Forward signals of this process to the command, except those that the terminal sends it itself."""
    children: list[subprocess.Popen[bytes]] = []

    def forward(number: int, _: object) -> None:
        if number in _FROM_TERMINAL and _in_foreground():
            return
        for child in children:
            child.send_signal(number)

    before = {number: signal.signal(number, forward) for number in (*_FROM_TERMINAL, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield children
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT)


def _in_foreground() -> bool:
    """Return whether the terminal sends its signals to this process group, which the command shares."""
    try:
        with open("/dev/tty") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


def _named(private: Path, folder: Path, name: str) -> tuple[Path, ...]:
    """Move the traces to ``folder`` under descriptive names that no file has yet.

    By rank where there are ranks, and then without other processes (a launcher); else the largest first.
    """
    ranks = sorted(private.glob("rank*.json.gz"), key=lambda path: int(path.name[4:-8]))
    recorded = ranks or sorted(private.glob("process*.json.gz"), key=lambda path: -path.stat().st_size)
    suffixes = [f".{path.name}" if ranks or len(recorded) > 1 else ".json.gz" for path in recorded]
    number, stem = 1, name
    while any((folder / f"{stem}{suffix}").exists() for suffix in suffixes):
        number += 1
        stem = f"{name}-{number}"
    return tuple(path.replace(folder / f"{stem}{suffix}") for path, suffix in zip(recorded, suffixes, strict=True))
