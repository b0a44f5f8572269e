"""Profile a notebook cell: ``%load_ext trace_analyzer``, then ``%%analyze`` above the cell."""

import argparse
import shlex
from typing import TYPE_CHECKING, Any, NoReturn

from trace_analyzer.capture.session import LEVELS, profile
from trace_analyzer.errors import TraceAnalyzerError

if TYPE_CHECKING:
    from trace_analyzer.report import Report


class _Options(argparse.ArgumentParser):
    """Parse the arguments of ``%%analyze``; an invalid one is a usage error and does not exit the kernel."""

    def error(self, message: str) -> NoReturn:
        """Raise an error that IPython shows in one line."""
        raise _usage_error(message)


def _usage_error(message: str) -> Exception:
    from IPython.core.error import UsageError

    return UsageError(f"%%analyze: {message}")


def _parser() -> _Options:
    options = _Options("%%analyze", add_help=False)
    options.add_argument("name", nargs="?", default="report")
    options.add_argument("--level", choices=tuple(LEVELS), default="standard")
    return options


def register(shell: Any) -> None:
    """Add the magic to an IPython shell (``InteractiveShell``)."""

    def analyze(line: str, cell: str) -> "Report | None":
        """Run the cell under the profiler, show the report and keep it: ``%%analyze [NAME] [--level LEVEL]``.

        NAME is the variable for the report, ``report`` by default. LEVEL is light, standard (with shapes) or full (with
        stacks and memory).
        """
        try:
            words = shlex.split(line)
        except ValueError as error:
            raise _usage_error(str(error)) from None
        return _analyzed(shell, cell, _parser().parse_args(words))

    shell.register_magic_function(analyze, magic_kind="cell", magic_name="analyze")


def _analyzed(shell: Any, cell: str, options: Any) -> "Report | None":
    """Return the report on the cell, stored under its name; None where the cell failed, with its error shown."""
    if not options.name.isidentifier():
        raise _usage_error(f"{options.name!r} is no name of a variable")
    try:
        session = profile(level=options.level)
        with session:
            ran = shell.run_cell(cell, store_history=False)
        if not ran.success:
            return None
        report = session.report
    except TraceAnalyzerError as error:
        raise _usage_error(str(error)) from None
    shell.user_ns[options.name] = report
    return report
