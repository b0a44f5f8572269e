"""Advise what to change, where, and how much it can save at most.

What can be changed is data (catalog/fixes.toml). For each fix there is a rule that says whether the findings ask for it
(`rules`): a function of the `AdviceContext` that returns an `Opportunity`, or None. A fix belongs to regimes: what neither
the limiting regime nor its runner-up can use is listed where it saves much, and marked "not the limit". docs/advice.md has a section on each.
"""

from collections.abc import Mapping, Sequence

import polars as pl

from trace_analyzer import thresholds
from trace_analyzer.advice import window_context
from trace_analyzer.advice.claims import with_claims
from trace_analyzer.advice.opportunity import Opportunity, combined, worth_ns
from trace_analyzer.advice.overhead import LAUNCHING
from trace_analyzer.advice.rules import RULES, rules_of_fixes
from trace_analyzer.advice.window_context import AdviceContext
from trace_analyzer.analysis import Value
from trace_analyzer.catalog.fixes import Fix, fixes, for_torch_1
from trace_analyzer.replay.estimates import Estimates, change_of
from trace_analyzer.report import Advice, Predicted


def opportunities(advice_context: AdviceContext | None, estimates: Estimates) -> tuple[tuple[Fix, Opportunity], ...]:
    """Return the fixes that the findings ask for and that are worth a word, in the order of the catalogue."""
    if advice_context is None:
        return ()
    rules = rules_of_fixes()
    asked = [(fix, rules[fix.id](advice_context)) for fix in fixes().values() if _may_help(fix, advice_context)]
    worthy = [
        (fix, opportunity)
        for fix, opportunity in asked
        if opportunity is not None
        and max(opportunity.saves_ns, _estimated_ns(_predicted(fix, opportunity, estimates), advice_context.window_ns))
        >= max(1, _least_ns(fix, advice_context))
    ]
    return _once_each(worthy, advice_context)


def _once_each(
    asked: Sequence[tuple[Fix, Opportunity]], advice_context: AdviceContext
) -> tuple[tuple[Fix, Opportunity], ...]:
    """Return one of the fixes that are the same code, for the reasons of all: that which saves most, with what all save."""
    same_code: dict[str, list[tuple[Fix, Opportunity]]] = {}
    for fix, opportunity in asked:
        code = fix.code_of(advice_context.platform, **opportunity.values)
        same_code.setdefault(code, []).append((fix, opportunity))
    groups = (sorted(group, key=lambda one: -one[1].saves_ns) for group in same_code.values())
    return tuple((group[0][0], combined([opportunity for _, opportunity in group])) for group in groups)


def intervals(opportunities: Sequence[tuple[Fix, Opportunity]]) -> Mapping[str, pl.DataFrame]:
    """Return fix -> the intervals of the device that it is about: device, start_ns, end_ns."""
    return {fix.id: opportunity.members for fix, opportunity in opportunities if opportunity.members is not None}


def advise(
    advice_context: AdviceContext | None, opportunities: Sequence[tuple[Fix, Opportunity]], estimates: Estimates
) -> tuple[Advice, ...]:
    """Return the advice for a verdict with a regime, most time saved first; times are for the verdict's window.

    What a replay estimates counts as what is saved, elsewhere the bound. Where what cures the verdict's cause, or else the best
    of its regime, comes close to the first, it leads: the verdict decides. What changes the work instead of doing it faster
    comes last. Time that several are about is saved once: the first carries it, the others say so (`claims`).
    """
    if advice_context is None:
        return ()
    items = [
        (fix, _item(fix, opportunity, advice_context, _predicted(fix, opportunity, estimates)))
        for fix, opportunity in opportunities
        if not fix.alone or len(opportunities) == 1
    ]
    return with_claims(_ranked(items, advice_context), intervals(opportunities))


def _item(fix: Fix, opportunity: Opportunity, advice_context: AdviceContext, predicted: Predicted | None) -> Advice:
    """Return the advice in the catalogue's words, with the rule's figures and what a replay estimates."""
    window_ns = advice_context.window_ns
    bound_ns, how_bound = min(opportunity.saves_ns, window_ns), opportunity.how_bound
    # Where the CPU runs ahead once it is faster, other waits go too: a bound by idle time of one cause is none then.
    why = opportunity.why
    if predicted is not None and opportunity.if_more and _estimated_ns(predicted, window_ns) > _FAR_ABOVE * bound_ns:
        why = f"{why}; {opportunity.if_more}"
    most_ns = 0 if predicted is None else min(round(_saved_ratio(predicted.low_ns, predicted) * window_ns), window_ns)
    if most_ns > bound_ns:
        bound_ns, how_bound = (
            most_ns,
            f"{how_bound}; raised to the best end of the replay's interval, since other waits may shrink too",
        )
    is_of_limit = _is_of_limit(fix, advice_context)
    code = fix.code_of(advice_context.platform, opportunity.case or advice_context.program or "", **opportunity.values)
    return Advice(
        title=fix.title_of(advice_context.platform, **opportunity.values),
        code=for_torch_1(code) if advice_context.is_torch_1 else code,
        why=why if is_of_limit else f"not the limit, but {why}",
        where=opportunity.where(),
        saves_ns_at_most=bound_ns,
        how_bound=how_bound,
        start_ns=opportunity.place[0],
        end_ns=opportunity.place[1],
        id=fix.id,
        docs=fix.docs,
        predicted=predicted,
        is_of_limit=is_of_limit,
    )


_FAR_ABOVE = 2
"""Where a replay estimates over so many times the idle time of a fix's own cause, the advice says why."""


def _predicted(fix: Fix, opportunity: Opportunity, estimates: Estimates) -> Predicted | None:
    """Return what a replay makes of the fix; None where its change is not what the rule speaks of."""
    return estimates.of(change_of(fix)) if opportunity.is_replayed else None


def _saved_ratio(step_ns: float, predicted: Predicted) -> float:
    return max(0.0, 1 - step_ns / predicted.now_ns) if predicted.now_ns else 0.0


def _estimated_ns(predicted: Predicted | None, window_ns: int) -> int:
    """Return what a replay estimates that a change saves of the window; 0 where it estimates nothing."""
    return 0 if predicted is None else round(_saved_ratio(predicted.step_ns, predicted) * window_ns)


def saved_ns(item: Advice, window_ns: int) -> float:
    """Return what an advice is ranked by, ns of the window: what a replay estimates, else the bound."""
    predicted = item.predicted
    return item.saves_ns_at_most if predicted is None else _saved_ratio(predicted.step_ns, predicted) * window_ns


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


def _ranked(items: Sequence[tuple[Fix, Advice]], advice_context: AdviceContext) -> tuple[Advice, ...]:
    """Sort by time saved, last resorts last; what the verdict speaks for leads if it is as close as runners-up are."""
    verdict = advice_context.verdict

    def saved(pair: tuple[Fix, Advice]) -> float:
        return saved_ns(pair[1], advice_context.window_ns)

    ranked = sorted(items, key=lambda pair: (pair[0].last_resort, -saved(pair)))
    close = [
        pair
        for pair in ranked
        if not pair[0].last_resort and saved(pair) >= thresholds.RUNNER_UP_RATIO * saved(ranked[0])
    ]
    leads = next(
        (
            pair
            for speaks_for in (
                [pair for pair in close if verdict.cause in pair[0].causes],
                [pair for pair in close if verdict.regime in pair[0].regimes],
            )
            for pair in speaks_for
        ),
        None,
    )
    return tuple(item for _, item in sorted(ranked, key=lambda pair: pair is not leads))


VALUES = (
    *window_context.VALUES,
    Value("opportunities", opportunities),
    Value("advice_intervals", intervals),
    Value("advice", advise),
)

__all__ = ["LAUNCHING", "RULES", "VALUES", "AdviceContext", "advise"]
