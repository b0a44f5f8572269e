"""Implement `analyze completion SHELL`, and the completion of words on the command line."""

import re

import click
from click.shell_completion import CompletionItem, get_completion_class

from trace_analyzer.cli import outputs
from trace_analyzer.cli.options import DEBUG

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_ANALYZE_COMPLETE"
"""Environment variable that requests completions from click (click.palletsprojects.com, Shell Completion)."""

_PATHS = re.compile(r"\b(FILE|DIR|FOLDER|PATH|OUT|TRACE)\b")
_TRACES = ("trace", "before", "after")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("shell", type=click.Choice(SHELLS))
@DEBUG
def completion(shell: str) -> None:
    """Print the script that makes SHELL complete verbs, options, words and files.

    \b
      analyze completion bash > ~/.local/share/bash-completion/completions/analyze
      analyze completion zsh > ~/.zfunc/_analyze          # a folder of $fpath
      analyze completion fish > ~/.config/fish/completions/analyze.fish
    """
    from trace_analyzer.cli import main

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(main, {}, "analyze", VARIABLE)
    outputs.say(type(script).source_template % script.source_vars() + "\n")


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
