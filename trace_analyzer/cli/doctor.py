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
    help="What to print: lines, or the same for scripts.",
)
@click.option("--redact", is_flag=True, help="Leave out paths and names of plug-ins, as to paste it into an issue.")
@PLUGIN
@DEBUG
def doctor(form: str, redact: bool) -> int:
    """Tell what is active here, and what is slow, missing or broken, with what to do.

    Versions, the compiled reader, plug-ins and whether their examples hold, calibrations, the cache, settings. torch is not
    imported. Exits with 1 where there is a problem (lines with !), with 2 where a plug-in that was named is broken.
    """
    from trace_analyzer.doctor import items, redacted, to_json, to_text

    facts = redacted(items()) if redact else items()
    outputs.say(to_json(facts) if form == "json" else to_text(facts))
    return PROBLEMS if any(item.status == "problem" for item in facts) else 0
