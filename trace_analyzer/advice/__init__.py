"""Recommend changes: what, where, and how much each can save at most.

Fixes are data (catalog/fixes.toml). Each has a rule (`rules`), a function of the `AdviceContext` that returns an
`Opportunity`, or None where the findings do not call for the fix. A fix belongs to regimes. If it is neither for the
limiting regime nor for its runner-up, it is listed only where it saves much, and marked "not the limit". docs/advice.md
has a section on each.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl

from trace_analyzer import thresholds
from trace_analyzer.advice import window_context
from trace_analyzer.advice.opportunity import Opportunity, combined, with_claims, worth_ns
from trace_analyzer.advice.overhead import LAUNCHING
from trace_analyzer.advice.rules import RULES, rules_of_fixes
from trace_analyzer.advice.window_context import AdviceContext
from trace_analyzer.analysis import Value
from trace_analyzer.catalog.fixes import Fix, fixes, for_torch_1
from trace_analyzer.replay.estimates import DeviceReplay, Estimates, change_of, with_changes
from trace_analyzer.report import Advice, Predicted


def candidates(advice_context: AdviceContext | None) -> tuple[tuple[Fix, Opportunity], ...]:
    """Return the fixes that the findings call for, in the order of the catalogue."""
    if advice_context is None:
        return ()
    rules = rules_of_fixes()
    asked = ((fix, rules[fix.id](advice_context)) for fix in fixes().values() if _may_help(fix, advice_context))
    return tuple((fix, opportunity) for fix, opportunity in asked if opportunity is not None)


def fix_estimates(
    estimates: Estimates, device_replay: DeviceReplay, candidates: Sequence[tuple[Fix, Opportunity]]
) -> Estimates:
    """Return the estimates with the changes that model the candidates."""
    changes = (change_of(fix) for fix, opportunity in candidates if opportunity.is_replayed)
    return with_changes(estimates, device_replay, filter(None, changes))


def opportunities(
    advice_context: AdviceContext | None, candidates: Sequence[tuple[Fix, Opportunity]], fix_estimates: Estimates
) -> tuple[tuple[Fix, Opportunity], ...]:
    """Return the candidates that save enough, by their bound or by the replay's estimate."""
    if advice_context is None:
        return ()
    workers = {"workers": fix_estimates.workers}
    worthy = [
        (fix, replace(opportunity, values={**workers, **opportunity.values}))
        for fix, opportunity in candidates
        if max(
            opportunity.saves_ns, _estimated_ns(_predicted(fix, opportunity, fix_estimates), advice_context.window_ns)
        )
        >= max(1, _least_ns(fix, advice_context))
    ]
    return _once_each(worthy, advice_context)


def _once_each(
    asked: Sequence[tuple[Fix, Opportunity]], advice_context: AdviceContext
) -> tuple[tuple[Fix, Opportunity], ...]:
    """Merge fixes with the same code into the one that saves most, with the reasons and savings of all."""
    same_code: dict[str, list[tuple[Fix, Opportunity]]] = {}
    for fix, opportunity in asked:
        code = fix.code_of(advice_context.platform, **opportunity.values)
        same_code.setdefault(code, []).append((fix, opportunity))
    groups = (sorted(group, key=lambda one: -one[1].saves_ns) for group in same_code.values())
    return tuple((group[0][0], combined([opportunity for _, opportunity in group])) for group in groups)


def intervals(opportunities: Sequence[tuple[Fix, Opportunity]]) -> Mapping[str, pl.DataFrame]:
    """Map each fix to the intervals of the device that it concerns: device, start_ns, end_ns."""
    return {fix.id: opportunity.members for fix, opportunity in opportunities if opportunity.members is not None}


def advise(
    advice_context: AdviceContext | None, opportunities: Sequence[tuple[Fix, Opportunity]], fix_estimates: Estimates
) -> tuple[Advice, ...]:
    """Return the advice for a verdict with a regime, largest saving first; times are for the verdict's window.

    The saving is the replay's estimate, or the bound without one. The fix of the verdict's cause (else the best of its
    regime) comes first if it is close to the largest saving. Fixes that change the work instead of its speed come last.
    Where several fixes concern the same time, the first one counts it, and the others refer to it (`claims`).
    """
    if advice_context is None:
        return ()
    items = [
        (fix, _item(fix, opportunity, advice_context, _predicted(fix, opportunity, fix_estimates)))
        for fix, opportunity in opportunities
        if not fix.alone or len(opportunities) == 1
    ]
    return with_claims(_ranked(items, advice_context), intervals(opportunities))


def _item(fix: Fix, opportunity: Opportunity, advice_context: AdviceContext, predicted: Predicted | None) -> Advice:
    """Return the advice in the catalogue's words, with the rule's figures and the replay's estimate."""
    window_ns = advice_context.window_ns
    bound_ns, how_bound = min(opportunity.saves_ns, window_ns), opportunity.how_bound
    # If a faster CPU can run ahead, other waits disappear too: idle time of one cause is then no upper bound.
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
"""Ratio of the replay's estimate to the idle time of a fix's own cause above which the advice explains the
difference."""


def _predicted(fix: Fix, opportunity: Opportunity, estimates: Estimates) -> Predicted | None:
    """Return the replay's prediction for the fix; None where the replayed change differs from the rule's."""
    return estimates.of(change_of(fix)) if opportunity.is_replayed else None


def _saved_ratio(step_ns: float, predicted: Predicted) -> float:
    return max(0.0, 1 - step_ns / predicted.now_ns) if predicted.now_ns else 0.0


def _estimated_ns(predicted: Predicted | None, window_ns: int) -> int:
    """Return the saving in the window that a replay estimates; 0 without an estimate."""
    return 0 if predicted is None else round(_saved_ratio(predicted.step_ns, predicted) * window_ns)


def saved_ns(item: Advice, window_ns: int) -> float:
    """Return the saving that ranks a piece of advice, ns of the window: the replay's estimate, else the bound."""
    predicted = item.predicted
    return item.saves_ns_at_most if predicted is None else _saved_ratio(predicted.step_ns, predicted) * window_ns


def _is_of_limit(fix: Fix, advice_context: AdviceContext) -> bool:
    """Return whether the fix is for the limiting regime or its runner-up."""
    return not advice_context.regimes.isdisjoint(fix.regimes)


def _may_help(fix: Fix, advice_context: AdviceContext) -> bool:
    """Return whether to check the fix: fixes of other regimes are checked too, except last resorts."""
    return _is_of_limit(fix, advice_context) or not fix.last_resort


def _least_ns(fix: Fix, advice_context: AdviceContext) -> float:
    """Return the least saving of a recommended fix, ns."""
    if _is_of_limit(fix, advice_context):
        return worth_ns(advice_context)
    return thresholds.OTHER_REGIME_RATIO * advice_context.window_ns


def _ranked(items: Sequence[tuple[Fix, Advice]], advice_context: AdviceContext) -> tuple[Advice, ...]:
    """Sort by saving, last resorts behind others, and behind all what the replay says gains nothing.

    The verdict's own fix comes first if it is as close as a runner-up.
    """
    verdict = advice_context.verdict

    def saved(pair: tuple[Fix, Advice]) -> float:
        return saved_ns(pair[1], advice_context.window_ns)

    def gains(pair: tuple[Fix, Advice]) -> bool:
        return pair[1].predicted is None or saved(pair) >= thresholds.WORTH_RATIO * advice_context.window_ns

    ranked = sorted(items, key=lambda pair: (not gains(pair), pair[0].last_resort, -saved(pair)))
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
    Value("candidates", candidates, cost=5),
    Value("fix_estimates", fix_estimates),
    Value("opportunities", opportunities),
    Value("advice_intervals", intervals),
    Value("advice", advise),
)

__all__ = ["LAUNCHING", "RULES", "VALUES", "AdviceContext", "advise"]
