"""Implement verbs about the program itself: `doctor`, `completion`, and `skill` and `mcp` for language models."""

import re
from importlib.resources import files
from pathlib import Path

import click
from click.shell_completion import CompletionItem, get_completion_class

from trace_analyzer.cli import outputs
from trace_analyzer.cli.options import format_option, verb
from trace_analyzer.errors import UsageError

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_ANALYZE_COMPLETE"
"""Environment variable that requests completions from click (click.palletsprojects.com, Shell Completion)."""
PROBLEMS = 1

_PATHS = re.compile(r"\b(FILE|DIR|FOLDER|PATH|OUT|TRACE)\b")
_TRACES = ("trace", "before", "after")


@verb()
@format_option("text, or JSON for scripts", ("text", "json"))
@click.option("--redact", is_flag=True, help="Omit paths and names of plug-ins, to share the output in an issue.")
def doctor(form: str, redact: bool) -> int:
    """Show what is active here, what is slow, missing or broken, and what to do.

    Checks versions, the compiled reader, plug-ins and their examples, calibrations and settings, without
    importing torch. Exits with 1 if there is a problem (lines with !), with 2 if a named plug-in is broken.
    """
    from trace_analyzer.doctor import items, redacted, to_json, to_text

    facts = redacted(items()) if redact else items()
    outputs.say(to_json(facts) if form == "json" else to_text(facts))
    return PROBLEMS if any(item.status == "problem" for item in facts) else 0


def with_paths(command: click.Command) -> click.Command:
    """Return the command with file completion for parameters that its help calls FILE, DIR, TRACE and the like."""
    for param in command.params:
        name = param.metavar or ""
        is_path = _PATHS.search(name) or (isinstance(param, click.Argument) and param.name in _TRACES)
        if is_path and isinstance(param.type, type(click.STRING)):
            param.type = click.Path()
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            with_paths(inner)
    return command


def files_and(items: list[CompletionItem], incomplete: str) -> list[CompletionItem]:
    """Return the completions, and files too unless an option is being typed."""
    return items if incomplete.startswith("-") else [*items, CompletionItem(incomplete, type="file")]


@verb(plugin=False)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that makes SHELL complete verbs, options, words and files.

    \b
      analyze completion bash > ~/.local/share/bash-completion/completions/analyze
      analyze completion zsh > ~/.zfunc/_analyze          # a folder of $fpath
      analyze completion fish > ~/.config/fish/completions/analyze.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(ctx.find_root().command, {}, "analyze", VARIABLE)
    outputs.say(type(script).source_template % script.source_vars() + "\n")


@verb(plugin=False)
def skill() -> None:
    """Print a guide for language models: recording, commands, and checking of answers.

    \b
      analyze skill > .claude/skills/torch-trace-analyzer/SKILL.md
    """
    outputs.say(files("trace_analyzer.agents").joinpath("SKILL.md").read_text("utf-8").rstrip("\n"))


@verb()
@click.option("--root", metavar="DIR", default=".", show_default=True, help="Read only traces in DIR.")
def mcp(root: str) -> None:
    """Serve the other verbs over the Model Context Protocol.

    \b
      claude mcp add traces -- analyze mcp --root ~/traces

    The tools are traces, which lists those in DIR, and analyze, explain, whatif, compare, scaling, ranks, memory, loop and record; record runs a command in
    DIR once the client's user consents to it. Needs the package mcp (pip install 'torch-trace-analyzer[mcp]'). Uses
    standard input and output, and ends when the client closes standard input.
    """
    try:
        from trace_analyzer.agents.server import server
    except ModuleNotFoundError:
        raise UsageError("serving needs the package mcp: pip install 'torch-trace-analyzer[mcp]'") from None

    server(Path(root)).run("stdio")
