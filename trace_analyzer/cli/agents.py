"""Serve language models: `analyze skill` prints a guide, `analyze mcp` answers their requests."""

from importlib.resources import files
from pathlib import Path

import click

from trace_analyzer.cli import outputs
from trace_analyzer.cli.options import DEBUG, PLUGIN

_SETTINGS = {"help_option_names": ["-h", "--help"]}


@click.command(context_settings=_SETTINGS)
@DEBUG
def skill() -> None:
    """Print a guide for language models: recording, commands, and checking of answers.

    \b
      analyze skill > .claude/skills/torch-trace-analyzer/SKILL.md
    """
    outputs.say(files("trace_analyzer.agents").joinpath("SKILL.md").read_text("utf-8").rstrip("\n"))


@click.command(context_settings=_SETTINGS)
@click.option("--root", metavar="DIR", default=".", show_default=True, help="Read only traces in DIR.")
@PLUGIN
@DEBUG
def mcp(root: str) -> None:
    """Serve analyze, explain, whatif and compare over the Model Context Protocol.

    \b
      claude mcp add traces -- analyze mcp --root ~/traces

    Needs the package mcp (pip install 'torch-trace-analyzer[mcp]'). Uses standard input and output, and ends when the
    client closes standard input.
    """
    from trace_analyzer.agents.server import server

    server(Path(root)).run("stdio")
