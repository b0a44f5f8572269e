"""Run an unchanged command under the profiler: the waiting side of ``analyze record``."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from msgspec import Struct

from trace_analyzer import errors, files
from trace_analyzer.capture.recorder import VARIABLE, Plan

HOOK = Path(__file__).with_name("hook")
"""Folder with the ``sitecustomize`` that every Python process of the command runs first."""


class RecordedCommand(Struct, frozen=True):
    """The command's exit code (negative: minus the signal), its traces, and reasons for missing ones.

    ``without_device`` names the torch that sees no device, "" where all see one.
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
    """Return the name for the traces: that of the script, else of the module, else of the command."""
    scripts = [Path(word).stem for word in words if word.endswith(".py")]
    modules = [words[i + 1].rpartition(".")[2] for i, word in enumerate(words[:-1]) if word == "-m"]
    # where a script follows torchrun's module, the script's name is more useful
    return next(iter((*scripts, *reversed(modules), Path(words[0]).name)))


def record(words: Sequence[str], plan: Plan) -> RecordedCommand:
    """Run the command to its end and collect the traces of its processes in ``plan.folder``, under its name.

    Standard input, output and error belong to the command, and so do signals: Ctrl-C reaches it directly, and signals
    to this process are forwarded. A trace is complete or absent. Raises ``UsageError`` when the command cannot be
    started or the folder cannot be written.
    """
    folder = Path(plan.folder)
    with contextlib.ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            private = stack.enter_context(files.temporary_folder(folder.resolve()))
        except OSError as error:
            raise errors.UsageError(f"--output {folder}: {error.strerror}") from None
        returncode = _run(full_command(words), replace(plan, folder=str(private)))
        reasons = _messages(private, "reason") or _messages(private, "interpreter")
        without_device = next(iter(_messages(private, "device")), "")
        return RecordedCommand(returncode, _named(private, folder, script_name(words)), reasons, without_device)


def _messages(private: Path, what: str) -> tuple[str, ...]:
    """Return the messages that the processes left in files with this suffix."""
    return tuple(path.read_text(encoding="utf-8") for path in sorted(private.glob(f"*.{what}")))


def _run(command: list[str], plan: Plan) -> int:
    """Run the command and return its exit code, as `subprocess` defines it."""
    path = os.pathsep.join(filter(None, (str(HOOK), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, VARIABLE: plan.to_text(), "PYTHONPATH": path}
    with _signals_for() as children:
        try:
            process = subprocess.Popen(command, env=environment)
        except OSError as error:
            raise errors.UsageError(f"{command[0]}: {error.strerror}") from None
        children.append(process)
        return process.wait()


@contextlib.contextmanager
def _signals_for() -> "Iterator[list[subprocess.Popen[bytes]]]":
    """Forward signals of this process to the command, except those that the terminal sends to both."""
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
    """Return whether this process group, which includes the command, receives the terminal's signals."""
    try:
        with open("/dev/tty") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


def _named(private: Path, folder: Path, name: str) -> tuple[Path, ...]:
    """Move the traces to ``folder`` under descriptive, unused names.

    Where there are ranks, traces are ordered by rank and others (such as a launcher's) are dropped; else the largest
    comes first.
    """
    ranks = sorted(private.glob("rank*.json.gz"), key=lambda path: int(path.name[4:-8]))
    recorded = ranks or sorted(private.glob("process*.json.gz"), key=lambda path: -path.stat().st_size)
    suffixes = [f".{path.name}" if ranks or len(recorded) > 1 else ".json.gz" for path in recorded]
    number, stem = 1, name
    while any((folder / f"{stem}{suffix}").exists() for suffix in suffixes):
        number += 1
        stem = f"{name}-{number}"
    return tuple(path.replace(folder / f"{stem}{suffix}") for path, suffix in zip(recorded, suffixes, strict=True))
