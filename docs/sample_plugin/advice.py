"""Say for each fix of fixes.toml whether the findings ask for it, and what it can save at most."""

from trace_analyzer.advice.opportunity import Opportunity
from trace_analyzer.advice.overhead import idle_of
from trace_analyzer.advice.window_context import AdviceContext


def save_less_often(context: AdviceContext) -> Opportunity | None:
    """Return the idle time in which weights are saved; None where there is none."""
    return idle_of(context, ("saving",), "weights are saved while the GPU has nothing queued")


RULE_OF_FIX = {"save-less-often": save_less_often}
