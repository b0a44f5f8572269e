"""Declare what verbs share: options of the analysis, and of outputs, which are checked before any work is done."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import Field, fields
from functools import lru_cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import click
from msgspec import Struct

from trace_analyzer import errors, installation
from trace_analyzer.cli import outputs
from trace_analyzer.options import LEAST, MOST, Options

if TYPE_CHECKING:
    from trace_analyzer.cli.outputs import Progress
    from trace_analyzer.report import Report

T = TypeVar("T")
Function = Callable[..., Any]
Decorator = Callable[[Function], Function]

DEBUG = click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")


def _load_plugins(ctx: click.Context, _: click.Parameter, folders: tuple[str, ...]) -> None:
    """Activate the plug-ins, and check those that the user named before any work is done."""
    from trace_analyzer import plugins

    if ctx.resilient_parsing:
        return
    plugins.add(folders)
    if (folders or plugins.ENVIRONMENT in os.environ) and any(plugin.is_named for plugin in plugins.active()):
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
PAGE = ("--html", "--plot")  # names of a page's option, of every verb; messages have the first
REDACT = click.option(
    "--redact", is_flag=True, help="Keep only data known to be harmless in all output, as report --redact does."
)


def verb(
    group: Any = click, *, name: str | None = None, plugin: bool = True, **settings: Any
) -> Callable[[Function], click.Command]:
    """Return a decorator that makes a function a verb, with the options that all verbs have."""

    def decorate(function: Function) -> click.Command:
        declared = getattr(function, "__click_params__", [])
        own = list(declared)
        declared.clear()  # click collects options from the last to the first, and these are the last
        function = PLUGIN(DEBUG(function)) if plugin else DEBUG(function)
        function.__click_params__ += own  # type: ignore[attr-defined]
        command: click.Command = group.command(
            name, context_settings={"help_option_names": ["-h", "--help"], **settings}
        )(function)
        return command

    return decorate


class Number(click.FloatRange):
    """Take a number within limits; ``nan`` is none, though no comparison refuses it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        number = super().convert(value, param, ctx)
        if number != number:
            self.fail(f"{value!r} is no number", param, ctx)
        return number

    def _describe_range(self) -> str:
        return (
            super()._describe_range().replace(f"{LEAST}<=", "0<").replace(f"{MOST}", f"{MOST:.0e}".replace("e+0", "e"))
        )


POSITIVE = Number(LEAST, MOST)
"""A number over 0, within limits, so that no result overflows."""


def peak(text: str) -> tuple[str, float]:
    """Parse ``X`` or ``DTYPE=X``: a dtype ("" for all) and its peak."""
    dtype, _, number = text.rpartition("=")
    return dtype.strip(), POSITIVE.convert(number, None, None)


def analysis_options(*names: str) -> Decorator:
    """Return a decorator that adds options of `Options`, all by default, and passes them as ``chosen``."""
    declared = [item for item in fields(Options) if not names or item.name in names]

    def decorate(function: Function) -> Function:
        @wraps(function)
        def call(*args: Any, **values: Any) -> Any:
            taken = {item.name: values.pop(item.name) for item in declared}
            if "peak_tflops" in taken:
                taken["peak_tflops"] = dict(taken["peak_tflops"])
            if taken.get("capture") == "-":
                raise errors.UsageError("--capture names a file: standard input is for a trace")
            return function(*args, chosen=Options(**taken), **values)

        return _with(call, map(_option_of, declared))

    return decorate


def _with(function: Function, options: Iterable[Decorator]) -> Function:
    for option in reversed([*options]):
        function = option(function)
    return function


def _option_of(item: Field[Any]) -> Decorator:
    declared = dict(item.metadata)
    limits = declared.pop("range", None)
    kind: Any = peak if declared.get("multiple") else bool if declared.get("is_flag") else str
    if limits:
        kind = (Number if float in (item.type, *get_args(item.type)) else click.IntRange)(*limits)
    return click.option(f"--{item.name.replace('_', '-')}", type=kind, default=item.default, **declared)


def format_option(what: str, forms: Sequence[str] = ("text", "json", "markdown")) -> Decorator:
    """Return ``--format`` for a verb that prints one of ``forms``, the first by default; ``what`` describes them."""
    return click.option(
        "--format",
        "form",
        type=click.Choice(forms),
        default=forms[0],
        show_default=True,
        help=f"What to print: {what}.",
    )


def _schema_option(module: str, result: str) -> Decorator:
    """Return ``--json-schema`` for a verb whose JSON is that of a class ``result`` in ``module``."""

    def show(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
        if wanted:
            from importlib import import_module

            from trace_analyzer.json_types import schema_text

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


def result_options(
    what: str, forms: Sequence[str] = ("text", "json", "markdown"), *, page: str, schema: tuple[str, str] | None = None
) -> Decorator:
    """Return a decorator that adds options for the result, and passes them as ``results``.

    ``what`` describes ``forms``, ``schema`` is the class of the JSON, ``page`` the help of the page.
    """
    text = "Write the output to FILE instead of printing it"
    options: list[Decorator] = [
        format_option(what, forms),
        *([_schema_option(*schema)] if schema else []),
        click.option("-o", "--output", metavar="FILE", help=f"{text}; to FILE.html, the page."),
        click.option(*PAGE, "page", metavar="FILE", help=page),
        click.option("--force", is_flag=True, help="Overwrite the FILE of --html or of -o FILE.html."),
    ]

    def decorate(function: Function) -> Function:
        @wraps(function)
        def call(*args: Any, form: str, output: str | None, redact: bool, force: bool, **values: Any) -> Any:
            html = values.pop("page")
            option = PAGE[0] if html else "--output"
            html, output = outputs.page_asked_for(html, output, form, PAGE[0])
            return function(*args, results=Results(form, output, html, force, redact, option), **values)

        return _with(call, [*options, REDACT])

    return decorate


class Results(Struct, frozen=True):
    """The format, the output, and the page's file that ``option`` names; None without a page.

    ``is_redacted`` is true for output that will be shared.
    """

    form: str
    output: str | None
    page: str | None
    force: bool
    is_redacted: bool
    option: str

    def check(self, trace: str) -> None:
        """Refuse outputs that must not be written, before any work is done. Raises ``UsageError``."""
        if not outputs.is_standard_output(self.output):
            outputs.check_writable(Path(str(self.output)), trace, "--output")
        if self.page:
            if lacking := installation.missing_for_pages():
                raise errors.UsageError(lacking)
            check_new(Path(self.page), trace, self.option, self.force)

    def redacted(self, result: T, paths: Iterable[str]) -> tuple[T, Callable[[str], str]]:
        """Return a result for sharing, if requested, and a function that redacts messages about it.

        ``paths`` are the user's paths, and those of the traces behind them.
        """
        if not self.is_redacted:
            return result, str
        from trace_analyzer.redact import Redaction
        from trace_analyzer.report import Report
        from trace_analyzer.units import printable

        redaction = Redaction(*(path for path in map(printable, paths) if path != "-"))
        clean = redaction.report(result) if isinstance(result, Report) else redaction.result(result)
        return clean, redaction.text  # type: ignore[return-value]

    def deliver(self, result: Any, *, links: bool = False) -> None:
        """Write a result in the format to the output; ``links`` makes places in files links in a terminal."""
        if self.form == "agent":
            outputs.deliver(result.to_agent_text(), self.output)
        elif self.form == "text":
            width = outputs.text_width() if outputs.is_standard_output(self.output) else 100
            outputs.deliver(result.summary(width), self.output, links=links)
        else:
            outputs.deliver(result.to_json() if self.form == "json" else result.to_markdown(), self.output)

    def is_refusal(self, result: Any, what: str, shown: Callable[[str], str]) -> bool:
        """Return whether the result is a refusal; standard error says so, unless a text on standard output has."""
        if result.status != "refused":
            return False
        if self.form != "text" or not outputs.is_standard_output(self.output):
            outputs.complain(shown(f"{what}: {result.reason}"))
        return True

    def deliver_page(self, result: Any, what: str, shown: Callable[[str], str] = str) -> None:
        """Write the page, if requested, and say where ``what`` is; ``shown`` writes its path."""
        if self.page:
            result.to_html(self.page)
            outputs.complain(f"{what}: {shown(self.page)}")


def check_new(path: Path, trace: str, option: str, force: bool) -> None:
    """Refuse a path that is not writable or, without ``force``, that exists. Raises ``UsageError``."""
    outputs.check_writable(path, trace, option)
    if path.exists() and not force:
        raise errors.UsageError(f"{option} {path}: exists; --force overwrites it")


def read_report(path: str | Path, chosen: Options, progress: "Progress") -> "Report":
    """Read the report on one trace."""
    from trace_analyzer import ingest, pipeline

    loaded = ingest.load(path, max_bytes=chosen.max_bytes, export=chosen.export, progress=progress)
    captured = None if chosen.capture is None else _captured(chosen.capture, chosen.max_bytes, loaded.rank)
    return pipeline.report_of(loaded, chosen, progress, capture=captured)


@lru_cache(maxsize=1)
def _captured(path: str, max_bytes: int, rank: int | None) -> Any:
    """Read the traces of ``--capture`` once for all sides and recordings of a rank."""
    from trace_analyzer.pipeline import captured

    return captured(Options(capture=path, max_bytes=max_bytes), rank)
