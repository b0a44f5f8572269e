"""Implement `analyze doctor`: what is active, and what is slow, missing or broken."""

import click

from trace_analyzer.cli import outputs
from trace_analyzer.cli.options import DEBUG, PLUGIN

PROBLEMS = 1


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="What to print: text, or JSON for scripts.",
)
@click.option("--redact", is_flag=True, help="Omit paths and names of plug-ins, to share the output in an issue.")
@PLUGIN
@DEBUG
def doctor(form: str, redact: bool) -> int:
    """Show what is active here, what is slow, missing or broken, and what to do.

    Checks versions, the compiled reader, plug-ins and their examples, calibrations and settings, without
    importing torch. Exits with 1 if there is a problem (lines with !), with 2 if a named plug-in is broken.
    """
    from trace_analyzer.doctor import items, redacted, to_json, to_text

    facts = redacted(items()) if redact else items()
    outputs.say(to_json(facts) if form == "json" else to_text(facts))
    return PROBLEMS if any(item.status == "problem" for item in facts) else 0
