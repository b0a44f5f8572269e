"""Advise what to change, where, and how much it can save at most.

What can be changed is data (catalog/fixes.toml). For each fix there is a rule that says whether the findings ask for it
(`rules`): a function of the `AdviceContext` that returns an `Opportunity`, or None. A fix belongs to regimes: what neither
the limiting regime nor its runner-up can use is listed where it saves much, and marked "not the limit". docs/advice.md has a section on each.
"""

from collections.abc import Sequence

from trace_analyzer import thresholds
from trace_analyzer.advice import window_context
from trace_analyzer.advice.opportunity import worth_ns
from trace_analyzer.advice.overhead import LAUNCHING
from trace_analyzer.advice.rules import RULE_OF_FIX, RULES
from trace_analyzer.advice.window_context import AdviceContext
from trace_analyzer.analysis import Value
from trace_analyzer.catalog.fixes import Fix, fixes
from trace_analyzer.report import Advice


def advise(advice_context: AdviceContext | None) -> tuple[Advice, ...]:
    """Return the advice for a verdict with a regime, most time saved first; times are for the verdict's window.

    Where the best of the regime comes close to that of the runner-up, the verdict decides which is first. What changes
    the work instead of doing it faster comes last.
    """
    if advice_context is None:
        return ()
    asked = [(fix, RULE_OF_FIX[fix.id](advice_context)) for fix in fixes().values() if _may_help(fix, advice_context)]
    items = [
        (
            fix,
            Advice(
                title=fix.title_of(advice_context.platform, **opportunity.values),
                code=fix.code_of(advice_context.platform, **opportunity.values),
                why=opportunity.why if _is_of_limit(fix, advice_context) else f"not the limit, but {opportunity.why}",
                where=opportunity.where,
                saves_ns_at_most=min(opportunity.saves_ns, advice_context.window_ns),
                how_bound=opportunity.how_bound,
                start_ns=opportunity.place[0],
                end_ns=opportunity.place[1],
                id=fix.id,
                docs=fix.docs,
            ),
        )
        for fix, opportunity in asked
        if opportunity is not None and opportunity.saves_ns >= max(1, _least_ns(fix, advice_context))
    ]
    return _ranked(items, str(advice_context.verdict.regime))


def _is_of_limit(fix: Fix, advice_context: AdviceContext) -> bool:
    """Return whether the limiting regime or its runner-up can use the fix."""
    return not advice_context.regimes.isdisjoint(fix.regimes)


def _may_help(fix: Fix, advice_context: AdviceContext) -> bool:
    """Return whether to ask for the fix: across regimes for all but last resorts."""
    return _is_of_limit(fix, advice_context) or not fix.last_resort


def _least_ns(fix: Fix, advice_context: AdviceContext) -> float:
    """Return the least saving that is worth a word, ns."""
    if _is_of_limit(fix, advice_context):
        return worth_ns(advice_context)
    return thresholds.OTHER_REGIME_RATIO * advice_context.window_ns


def _ranked(items: Sequence[tuple[Fix, Advice]], regime: str) -> tuple[Advice, ...]:
    """Sort by time saved, last resorts last; the regime's own advice leads if it is as close as runners-up are."""
    ranked = sorted(items, key=lambda pair: (pair[0].last_resort, -pair[1].saves_ns_at_most))
    leads = next(
        (
            item
            for fix, item in ranked
            if regime in fix.regimes
            and not fix.last_resort
            and item.saves_ns_at_most >= thresholds.RUNNER_UP_RATIO * ranked[0][1].saves_ns_at_most
        ),
        None,
    )
    return tuple(item for _, item in sorted(ranked, key=lambda pair: pair[1] is not leads))


VALUES = (*window_context.VALUES, Value("advice", advise))

__all__ = ["LAUNCHING", "RULES", "VALUES", "AdviceContext", "advise"]
