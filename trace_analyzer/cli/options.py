"""Declare options that several verbs share, and check their values before any work is done."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from trace_analyzer.cli import outputs
from trace_analyzer.errors import UsageError

Command = TypeVar("Command", bound=Callable[..., Any])

DEBUG = click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")


def _load_plugins(ctx: click.Context, _: click.Parameter, folders: tuple[str, ...]) -> None:
    """Activate the plug-ins, and check those that the user named before any work is done."""
    from trace_analyzer import plugins

    if ctx.resilient_parsing:
        return
    plugins.add(folders)
    if (folders or plugins.ENVIRONMENT in os.environ) and plugins.is_asked_for():
        from trace_analyzer.doctor import check_plugins

        check_plugins()


PLUGIN = click.option(
    "--plugin",
    multiple=True,
    expose_value=False,
    callback=_load_plugins,
    metavar="DIR|none",
    help="Add the kernel rules, devices, causes, analyses and advice in DIR (docs/plugins.md). Repeatable.",
)
"""Option of every verb that analyses."""

READING = (
    click.option("--device", metavar="N", help="Compare this device instead of the one with most busy time."),
    click.option("--gpu", metavar="NAME", help="Use the peaks of this device in the catalogue."),
    click.option(
        "--capture",
        metavar="FILE",
        help="Take operators, modules and shapes of replayed kernels from this trace of the same program, eager or of the capture of its graphs.",
    ),
    PLUGIN,
    DEBUG,
)
"""Options of verbs that read several traces."""


def json_schema_option(module: str, result: str) -> Callable[[Command], Command]:
    """Return ``--json-schema`` for a verb whose JSON is that of a class ``result`` in ``module``."""

    def show(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
        if wanted:
            from importlib import import_module

            from trace_analyzer.type_schemas import schema_text

            click.echo(schema_text(getattr(import_module(module), result)), nl=False)
            ctx.exit()

    return click.option(
        "--json-schema",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=show,
        help="Print the JSON Schema of --format json.",
    )


def format_option(what: str, forms: Sequence[str] = ("text", "json", "markdown")) -> Callable[[Command], Command]:
    """Return ``--format`` for a verb that prints one of ``forms``, the first by default; ``what`` describes them."""
    return click.option(
        "--format",
        "form",
        type=click.Choice(forms),
        default=forms[0],
        show_default=True,
        help=f"What to print: {what}.",
    )


OUTPUT = click.option("-o", "--output", metavar="FILE", help="Write the output to FILE instead of printing it.")
PAGE_OUTPUT = click.option(
    "-o", "--output", metavar="FILE", help="Write the output to FILE instead of printing it; to FILE.html, the page."
)
"""``--output`` for a verb with a page."""


def output_options(result: str, *, comment: str = "a comment for CI") -> tuple[Callable[[Command], Command], ...]:
    """Return ``--format`` and ``--output`` for a verb; ``result`` names its JSON, with its documentation."""
    return format_option(f"the summary, {result}, or {comment}"), PAGE_OUTPUT


def page_options(option: str, what: str) -> tuple[Callable[[Command], Command], ...]:
    """Return the option for the file of an HTML page, ``--force`` and ``--redact``."""
    return (
        click.option(option, metavar="FILE", help=what),
        click.option("--force", is_flag=True, help=f"Overwrite the FILE of {option} or of -o FILE.html."),
        outputs.redact_option,
    )


def with_options(options: Sequence[Callable[[Command], Command]]) -> Callable[[Command], Command]:
    """Return a decorator that adds the options, in this order."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@dataclass(frozen=True)
class Results:
    """Hold the format, the output, and the page's file that ``option`` names; None without a page.

    ``is_redacted`` is true for output that will be shared.
    """

    form: str
    output: str | None
    page: str | None
    force: bool
    is_redacted: bool
    option: str

    @classmethod
    def taken(cls, options: dict[str, Any], option: str) -> "Results":
        """Take these options out of a verb's options."""
        page = options.pop(option.removeprefix("--"))
        form, output, force, redact = (options.pop(name) for name in ("form", "output", "force", "redact"))
        own = page
        page, output = outputs.page_asked_for(page, output, form, option)
        return cls(form, output, page, force, redact, option if own else "--output")

    def check(self, trace: str) -> None:
        """Refuse outputs that must not be written, before any work is done. Raises ``UsageError``."""
        if not outputs.is_standard_output(self.output):
            outputs.check_writable(Path(str(self.output)), trace, "--output")
        if self.page:
            check_new(Path(self.page), trace, self.option, self.force)


def check_new(path: Path, trace: str, option: str, force: bool) -> None:
    """Refuse a path that is not writable or, without ``force``, that exists. Raises ``UsageError``."""
    outputs.check_writable(path, trace, option)
    if path.exists() and not force:
        raise UsageError(f"{option} {path}: exists; --force overwrites it")
