"""Run the command, or any program, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
COMMAND = (sys.executable, "-m", "trace_analyzer")


def environment(**more: str) -> dict[str, str]:
    """Return the variables of this process and more, with which this package can be imported."""
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


def ran(*words: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program that can import this package, and return what it printed; ``options`` are subprocess's."""
    usual = {"capture_output": True, "encoding": "utf-8", "env": environment(), "timeout": 300}
    return subprocess.run([*map(str, words)], **(usual | options))


def run_python(code: str, *words: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run code in a Python of its own."""
    return ran(sys.executable, "-c", code, *words, **options)


def command(*words: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    return ran(*COMMAND, *words, **options)
