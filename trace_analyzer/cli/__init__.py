"""Define the command `analyze`: its verbs, the default verb, and how failures are reported.

Exit codes: 0 the trace was analysed, whatever its verdict's status; 1 a gate (``--fail-on``, ``--max-idle``) broke; 2
bad input or usage, or a bug: nothing was judged, or a requested output could not be written; 3 the trace does not
determine the effect of a change (``whatif``); 130 interrupted (SIGINT), 143 terminated (SIGTERM).

Importing this module loads click and nothing else, so that ``analyze --help`` answers at once.
"""

import contextlib
import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

import click

from trace_analyzer import tuning

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

VERBS = {
    "report": "trace_analyzer.cli.analyze:report",
    "explain": "trace_analyzer.cli.whatif:explain",
    "whatif": "trace_analyzer.cli.whatif:whatif",
    "record": "trace_analyzer.cli.record:record",
    "calibrate": "trace_analyzer.cli.record:calibrate",
    "compare": "trace_analyzer.cli.compare:compare",
    "scaling": "trace_analyzer.cli.compare:scaling",
    "ranks": "trace_analyzer.cli.compare:ranks",
    "memory": "trace_analyzer.cli.whatif:memory",
    "export": "trace_analyzer.cli.whatif:export",
    "baseline": "trace_analyzer.cli.compare:baseline",
    "loop": "trace_analyzer.cli.compare:loop",
    "doctor": "trace_analyzer.cli.record:doctor",
    "completion": "trace_analyzer.cli.record:completion",
    "skill": "trace_analyzer.cli.record:skill",
    "mcp": "trace_analyzer.cli.record:mcp",
}
"""Verb -> its place (``module:attribute``), imported on use."""

DEFAULT_VERB = "report"

ARGUMENTS = "trace_analyzer.cli.arguments"
"""Key of a click context's ``meta`` with the arguments as given."""

GATE_BROKE, FAILED, INTERRUPTED = 1, 2, 130

_GROUP_OPTIONS = ("-h", "--help", "--version", "--json-schema")

_EMPTY_VALUE = re.compile(r"--[a-z-]+=")
"""An option with an empty value, which is never valid."""

_PATHS = re.compile(r"\b(FILE|DIR|FOLDER|PATH|OUT|TRACE)\b")
_TRACES = ("trace", "before", "after")


def _with_paths(command: click.Command) -> click.Command:
    """Return the command with file completion for parameters that its help calls FILE, DIR, TRACE and the like."""
    for param in command.params:
        name = param.metavar or ""
        is_path = _PATHS.search(name) or (isinstance(param, click.Argument) and param.name in _TRACES)
        if is_path and isinstance(param.type, type(click.STRING)):
            param.type = click.Path()
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            _with_paths(inner)
    return command


class Verbs(click.Group):
    """Import verbs on use, and accept a trace as first argument."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in the order of `VERBS`."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the verb, imported now; None for an unknown name."""
        if cmd_name not in VERBS:
            return None
        module, attribute = VERBS[cmd_name].split(":")
        command: click.Command = getattr(import_module(module), attribute)
        command.short_help = command.get_short_help_str(limit=1000)  # a whole sentence, which wraps
        return _with_paths(command) if ctx.resilient_parsing else command  # completing words

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Return completions of the first word: verbs, files, and the options of the default verb."""
        from click.shell_completion import CompletionItem

        items = super().shell_complete(ctx, incomplete)
        if incomplete.startswith("-"):
            command = self.get_command(ctx, DEFAULT_VERB)
            assert command is not None
            known = {item.value for item in items}
            own = command.shell_complete(click.Context(command, parent=ctx, resilient_parsing=True), incomplete)
            items += [item for item in own if item.value not in known]
        return items if incomplete.startswith("-") else [*items, CompletionItem(incomplete, type="file")]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse; arguments that start with neither a verb nor an option of the group belong to the default verb."""
        if ctx.resilient_parsing and not args:
            return super().parse_args(ctx, args)
        if not args:
            raise click.UsageError("no trace given", ctx)
        ctx.meta[ARGUMENTS] = tuple(args)
        if (
            not ctx.resilient_parsing
            and args[0] != "record"
            and any(not arg or _EMPTY_VALUE.fullmatch(arg) for arg in args)
        ):
            raise click.UsageError("an argument is empty: a variable of the shell that is not set?", ctx)
        bare = args[0] not in VERBS and args[0] not in _GROUP_OPTIONS
        if bare and args[0].isalpha() and not ctx.resilient_parsing and not os.path.lexists(args[0]):
            from trace_analyzer.errors import did_you_mean

            own = did_you_mean(args[0], ["analyze"]) and "; the trace comes first: analyze TRACE"
            if meant := did_you_mean(args[0], VERBS) or own:
                raise click.UsageError(f"no verb or file {args[0]!r}{meant}", ctx)
        return super().parse_args(ctx, [DEFAULT_VERB, *args] if bare else args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of the default verb, which may be omitted, then the verbs."""
        command = self.get_command(ctx, DEFAULT_VERB)
        assert command is not None
        params = [param for source in (command, self) for param in source.get_params(ctx)]
        options = filter(None, (param.get_help_record(ctx) for param in params if isinstance(param, click.Option)))
        with formatter.section("Options"):
            formatter.write_dl(list(dict(options).items()))
        self.format_commands(ctx, formatter)

    def main(self, args: Sequence[str] | None = None, *rest: Any, standalone_mode: bool = True, **options: Any) -> Any:
        """Run the command line; every failure becomes one line on standard error and an exit code."""
        options["prog_name"] = "analyze"
        if not standalone_mode:
            return super().main(args, standalone_mode=False, **options)
        for name in ("stdout", "stderr"):
            if getattr(sys, name) is None:  # it is closed
                setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (it stays open to the end)
        debug = "--debug" in (sys.argv[1:] if args is None else args)
        try:
            code = super().main(args, standalone_mode=False, **options)
        except SystemExit:
            raise
        except BaseException as error:  # a panic in Polars' native code is a BaseException, but no Exception
            _fail(error, debug)
        sys.exit(code if isinstance(code, int) else 0)


def _fail(error: BaseException, debug: bool) -> NoReturn:
    """Report the failure in one line, with the traceback only if requested, and exit."""
    from trace_analyzer.cli.outputs import complain

    if debug:
        import traceback

        traceback.print_exception(error)
    with contextlib.suppress(OSError):  # where standard error is full or closed, nobody can read it
        complain(_line(error))
    sys.exit(INTERRUPTED if isinstance(error, (click.Abort, KeyboardInterrupt)) else FAILED)


def _line(error: BaseException) -> str:
    """Write the problem and what to do, for people."""
    from trace_analyzer.errors import TraceAnalyzerError
    from trace_analyzer.installation import missing

    match error:
        case click.UsageError():
            message = error.format_message().rstrip(".")
            verb = "" if error.ctx is None else "".join(f" {name}" for name in error.ctx.command_path.split()[1:])
            return f"{message}{' See' if message.endswith('?') else '; see'} 'analyze{verb} --help'"
        case click.ClickException():
            return error.format_message()
        case TraceAnalyzerError():
            return str(error)
        case click.Abort() | KeyboardInterrupt():
            return "interrupted; nothing half written was left"
        case MemoryError():
            return "out of memory; a trace of fewer steps needs less"
        case ModuleNotFoundError() if line := missing(error):
            return line
        case OSError():
            return ": ".join(str(part) for part in (error.filename, error.strerror or error) if part)
        case _:
            from trace_analyzer.cli.process import library_settings

            if settings := library_settings():
                return (
                    f"{type(error).__name__}: {error}; the environment sets {', '.join(settings)}: "
                    "try again without, and with --debug"
                )
            return (
                f"a bug in this program ({type(error).__name__}: {error}); the same command with --debug "
                "shows where. Please report it, with the trace if you can share it"
            )


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from trace_analyzer.installation import tool_version

        click.echo(f"analyze {tool_version()}")
        ctx.exit()


def _json_schema(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from trace_analyzer.registry import json_schema_text

        click.echo(json_schema_text(), nl=False)
        ctx.exit()


@click.command(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"]},
    options_metavar="",
    subcommand_metavar="[VERB] TRACE [OPTIONS]",
    epilog="Exit codes: 0 analysed, 1 a gate broke, 2 bad input or usage, 3 no estimate can be made (whatif). For a file named like a verb, write ./report",
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version.")
@click.option(
    "--json-schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_json_schema,
    help="Print the JSON Schema of --format json.",
)
def main() -> None:
    """Why is this PyTorch program slow, and what to change first?

    Reads a trace of PyTorch Profiler (.json, .json.gz or .json.zst; - for standard input), prints a
    summary and writes <trace name>.report.html into the current directory.

    \b
      analyze trace.json.gz                   the summary, and the report as HTML
      analyze trace.json --format json        for scripts
      analyze trace.json --max-idle 0.2       a gate for CI
    """


def run() -> None:
    """Run the command as a process of its own."""
    from trace_analyzer.cli import process

    process.end_cleanly()
    process.supervise(sys.argv[1:])
    try:
        main()
    except SystemExit as end:
        tuning.exit_without_freeing(end.code if isinstance(end.code, int) else FAILED if end.code else 0, FAILED)
