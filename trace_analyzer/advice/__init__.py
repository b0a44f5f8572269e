"""Recommend changes: what, where, and how much each can save at most.

Fixes are data (catalog/advice, a page each). Each has a rule (`rules`), a function of the `AdviceContext` that returns an
`Opportunity`, or None where the findings do not call for the fix. A fix belongs to regimes. If it is neither for the
limiting regime nor for its runner-up, it is listed only where it saves much, and begins with "although compute limits". docs/advice.md
says how advice is chosen.
"""

from collections.abc import Mapping, Sequence

import polars as pl
from msgspec.structs import replace

from trace_analyzer import thresholds
from trace_analyzer.advice import window_context
from trace_analyzer.advice.host_work import cpu_advice
from trace_analyzer.advice.opportunity import Opportunity, combined, with_claims, worth_ns
from trace_analyzer.advice.overhead import LAUNCHING
from trace_analyzer.advice.rules import RULES, rules_of_fixes
from trace_analyzer.advice.window_context import AdviceContext
from trace_analyzer.analyses.cpu import CpuRun
from trace_analyzer.analyses.host import Host
from trace_analyzer.analysis import Value
from trace_analyzer.catalog.fixes import Fix, fixes, for_compiled, for_replayed, optimizer_in_few_launches, with_remark
from trace_analyzer.ingest.trace import Trace
from trace_analyzer.replay.changes import Change
from trace_analyzer.replay.estimates import DeviceReplay, Estimates, change_of, with_changes
from trace_analyzer.report import Advice, Predicted, Saving, Verdict
from trace_analyzer.report.summaries import saves_nothing
from trace_analyzer.report.verdicts import middle_ratio
from trace_analyzer.units import duration
from trace_analyzer.verdict.judge import KERNEL_REGIMES
from trace_analyzer.vocabulary import although


def candidates(advice_context: AdviceContext | None) -> tuple[tuple[Fix, Opportunity], ...]:
    """Return the fixes that the findings call for, in the order of the catalogue."""
    if advice_context is None:
        return ()
    rules = rules_of_fixes()
    # Fixes of other regimes are checked too, except last resorts.
    checked = (fix for fix in fixes().values() if _is_of_limit(fix, advice_context) or not fix.last_resort)
    asked = ((fix, rules[fix.id](advice_context)) for fix in checked)
    return tuple((fix, opportunity) for fix, opportunity in asked if opportunity is not None)


def fix_estimates(
    estimates: Estimates, device_replay: DeviceReplay, candidates: Sequence[tuple[Fix, Opportunity]]
) -> Estimates:
    """Return the estimates with the changes that model the candidates."""
    changes = (_change(fix, opportunity) for fix, opportunity in candidates)
    return with_changes(estimates, device_replay, filter(None, changes))


_WORKERS = 4
"""Number of data-loading workers in code where the fewest that suffice are not known."""


def opportunities(
    advice_context: AdviceContext | None, candidates: Sequence[tuple[Fix, Opportunity]], fix_estimates: Estimates
) -> tuple[tuple[Fix, Opportunity], ...]:
    """Return the candidates that save enough, by their bound or by the replay's estimate."""
    if advice_context is None:
        return ()
    of_trace = {
        "workers": fix_estimates.workers or _WORKERS,
        "torch_dtype": advice_context.half,
        "optimizer": optimizer_in_few_launches(advice_context.optimizer, advice_context.platform),
    }
    asked = [(fix, replace(opportunity, values={**of_trace, **opportunity.values})) for fix, opportunity in candidates]
    worthy = [
        (fix, opportunity) for fix, opportunity in asked if _is_worth(fix, opportunity, fix_estimates, advice_context)
    ]
    once = _once_each(worthy, advice_context)
    return tuple((fix, _within_floor(fix, opportunity, fix_estimates, advice_context)) for fix, opportunity in once)


def _within_floor(fix: Fix, opportunity: Opportunity, estimates: Estimates, context: AdviceContext) -> Opportunity:
    """Return the opportunity of a fix for kernels, or for the host, with the bound that an infinitely fast one sets.

    A known estimate may go beyond: fused kernels spare the CPU their launches, as ``why`` then says. Floors hold for the
    batch as it is.
    """
    other_batch = fix.replayed is not None and fix.replayed.get("name") == "batch"
    if estimates.floors is None or not estimates.now_ns or not opportunity.is_saving or other_batch:
        return opportunity
    if set(fix.regimes) <= set(KERNEL_REGIMES):
        floor_ns, how = estimates.floors[0], "a device that takes no time saves, since the CPU is waited for"
    elif fix.regimes == ("overhead-bound",):
        floor_ns, how = estimates.floors[1], "a CPU that takes no time saves, since the device is waited for"
    else:
        return opportunity
    predicted = _predicted(fix, opportunity, estimates, context)
    is_known = predicted is not None and predicted.is_known
    if predicted is not None and is_known and predicted.step_ns < (1 - thresholds.WORTH_RATIO) * floor_ns:
        spared, rest = (duration(max(0.0, ns)) for ns in (floor_ns - predicted.step_ns, estimates.now_ns - floor_ns))
        each = " a step" if predicted.has_steps else ""
        why = f"{opportunity.why}; it spares launches, which save {spared}{each}: kernels that take no time save {rest}"
        opportunity = replace(opportunity, why=why, spares_launches=True)
    most_ns = round((1 - floor_ns / estimates.now_ns) * context.window_ns)
    if predicted is not None and (is_known or _is_hidden(context)):
        most_ns = max(most_ns, _best_ns(predicted, context.window_ns))
    if most_ns >= opportunity.saves_ns:
        return opportunity
    return replace(opportunity, saves_ns=max(most_ns, 0), how_bound=f"{opportunity.how_bound}; lowered to what {how}")


def _once_each(
    asked: Sequence[tuple[Fix, Opportunity]], advice_context: AdviceContext
) -> tuple[tuple[Fix, Opportunity], ...]:
    """Merge fixes with the same code into the one that saves most, with the reasons and savings of all."""
    same_code: dict[str, list[tuple[Fix, Opportunity]]] = {}
    for fix, opportunity in asked:
        same_code.setdefault(_code(fix, opportunity, advice_context), []).append((fix, opportunity))
    groups = (sorted(group, key=lambda one: -one[1].saves_ns) for group in same_code.values())
    return tuple((group[0][0], combined([opportunity for _, opportunity in group])) for group in groups)


def _code(fix: Fix, opportunity: Opportunity, context: AdviceContext) -> str:
    """Return the fix's code for the case, the program, the release and the compile state of the trace."""
    case = opportunity.case or context.program or ""
    code = fix.code_of(context.platform, *((case,) if isinstance(case, str) else case), **opportunity.values)
    code = for_compiled(code) if context.is_compiled else code
    if context.replays_graphs and context.program != "serving" and not {*KERNEL_REGIMES}.isdisjoint(fix.regimes):
        code = for_replayed(code)
    remark = "needs PyTorch 2" if context.is_torch_1 else window_context.OF_SCRIPTED
    return with_remark(code, remark) if context.is_torch_1 or context.is_scripted else code


def intervals(opportunities: Sequence[tuple[Fix, Opportunity]]) -> Mapping[str, pl.DataFrame]:
    """Map each fix to the intervals of the device that it concerns: device, start_ns, end_ns."""
    return {fix.id: opportunity.members for fix, opportunity in opportunities if opportunity.members is not None}


def advise(
    advice_context: AdviceContext | None,
    opportunities: Sequence[tuple[Fix, Opportunity]],
    fix_estimates: Estimates,
    verdict: Verdict,
    cpu_run: CpuRun | None,
    host: Host,
    trace: Trace,
) -> tuple[Advice, ...]:
    """Return the advice for a verdict with a regime, in the order of `_ranked`; times are for the verdict's window.

    Where several fixes concern the same time, the first one counts it, and the others refer to it (`claims`).
    """
    if cpu_run is not None and verdict.status == "cpu-run":
        return cpu_advice(cpu_run, host.names, trace.header.settings)
    if advice_context is None:
        return ()
    items = [
        (
            fix,
            opportunity,
            _item(fix, opportunity, advice_context, _predicted(fix, opportunity, fix_estimates, advice_context)),
        )
        for fix, opportunity in opportunities
        if not fix.alone or len(opportunities) == 1
    ]
    return with_claims(_ranked(items), intervals(opportunities))


def _item(fix: Fix, opportunity: Opportunity, advice_context: AdviceContext, predicted: Predicted | None) -> Advice:
    """Return the advice in the catalogue's words, with the rule's figures and the replay's estimate."""
    window_ns = advice_context.window_ns
    bound_ns, how_bound = min(opportunity.saves_ns, window_ns) if opportunity.is_saving else 0, opportunity.how_bound
    # If a faster CPU can run ahead, other waits disappear too: idle time of one cause is then no upper bound.
    why, where = opportunity.why, opportunity.where
    most_ns = 0 if predicted is None else _best_ns(predicted, window_ns)
    if opportunity.if_more and most_ns > _FAR_ABOVE * bound_ns:
        why, where = f"{why}; {opportunity.if_more}", opportunity.where_if_more or where
    if (others_ns := most_ns - bound_ns) > thresholds.SHARED_RATIO * most_ns:
        most_of_step, others = (duration(ns / advice_context.steps) for ns in (most_ns, others_ns))
        why = f"{why}; of the {most_of_step} that it saves at most, {others} are other waits, which other advice may count, too"
    if most_ns > bound_ns:
        bound_ns, how_bound = (
            most_ns,
            f"{how_bound}; raised to the best end of the replay's interval, since other waits may shrink too",
        )
    launches_limit = opportunity.spares_launches and "overhead-bound" in advice_context.regimes
    is_of_limit, verdict = launches_limit or _is_of_limit(fix, advice_context), advice_context.verdict
    most, steps = bound_ns / window_ns, advice_context.steps
    shown = None if opportunity.is_part else predicted
    ratio = most if shown is None else _saved_ratio(shown.step_ns, shown)
    title = fix.title_of(advice_context.platform, **opportunity.values)
    return Advice(
        title=for_compiled(title) if advice_context.is_compiled else title,
        code=_code(fix, opportunity, advice_context),
        why=why if is_of_limit else f"{although(str(verdict.regime), verdict.cause)}: {why}",
        where=where(steps),
        saves_ns_at_most=bound_ns,
        how_bound=how_bound,
        saving=Saving(ratio * window_ns / steps, ratio, bound_ns / steps, most, advice_context.has_steps),
        start_ns=opportunity.place[0],
        end_ns=opportunity.place[1],
        id=fix.id,
        docs=fix.docs,
        predicted=shown,
        is_of_limit=is_of_limit,
    )


_FAR_ABOVE = 2
"""Ratio of the best end of the replay's interval to the idle time of a fix's own cause above which the advice explains the
difference."""


def _change(fix: Fix, opportunity: Opportunity) -> Change | None:
    """Return the change that models the fix in this case; None where none does."""
    change = change_of(fix) if opportunity.is_replayed else None
    return change and replace(change, options={**change.options, **opportunity.options})


def _predicted(
    fix: Fix, opportunity: Opportunity, estimates: Estimates, advice_context: AdviceContext
) -> Predicted | None:
    """Return the replay's prediction for the fix, of a step only where the verdict's window has steps."""
    predicted = estimates.of(_change(fix, opportunity))
    return predicted and replace(predicted, has_steps=predicted.has_steps and advice_context.has_steps)


def _saved_ratio(step_ns: float, predicted: Predicted) -> float:
    return max(0.0, 1 - step_ns / predicted.now_ns) if predicted.now_ns else 0.0


def _best_ns(predicted: Predicted, window_ns: int) -> int:
    """Return the saving in the window at the best end of a prediction's interval."""
    return min(round(_saved_ratio(predicted.low_ns, predicted) * window_ns), window_ns)


def _is_hidden(context: AdviceContext) -> bool:
    """Return whether no resource alone saves a tenth: what a fix gains then depends on how long the other ones take."""
    levers = context.verdict.levers
    return bool(levers) and levers[0].saves_ratio < thresholds.BALANCED_RATIO


def _estimated_ns(predicted: Predicted | None, context: AdviceContext) -> int:
    """Return the saving in the window that a replay estimates; 0 without an estimate.

    Where resources hide each other, it is that of the best end of the interval: the other end is the other resource's.
    """
    if predicted is None:
        return 0
    if _is_hidden(context):
        return _best_ns(predicted, context.window_ns)
    return round(_saved_ratio(predicted.step_ns, predicted) * context.window_ns)


def _is_of_limit(fix: Fix, advice_context: AdviceContext) -> bool:
    """Return whether the fix is for the limiting regime or its runner-up."""
    return not advice_context.regimes.isdisjoint(fix.regimes)


def _is_worth(fix: Fix, opportunity: Opportunity, estimates: Estimates, context: AdviceContext) -> bool:
    """Return whether a fix saves enough by all of its estimate's interval, else by the bound or the estimate, then more beside the limit."""
    predicted = _predicted(fix, opportunity, estimates, context)
    is_shown = predicted is not None and predicted.is_known and not opportunity.is_part
    if predicted is not None and is_shown and _saved_ratio(predicted.high_ns, predicted) >= thresholds.WORTH_RATIO:
        return True
    most_ns = max(_within_floor(fix, opportunity, estimates, context).saves_ns, _estimated_ns(predicted, context))
    other_ns = thresholds.OTHER_REGIME_RATIO * context.window_ns
    return most_ns >= max(1, worth_ns(context) if _is_of_limit(fix, context) else other_ns)


def ranked_ratio(item: Advice) -> float:
    """Return the share of the step by which advice is ranked: the middle of an estimate's interval, else the bound."""
    then = item.predicted
    if then is None:
        return item.saving.at_most_ratio
    return middle_ratio(then.now_ns, then.low_ns, then.high_ns)


def _surer(item: Advice, known: Sequence[Advice]) -> list[Advice]:
    """Return what is known to save half as much as an estimate too wide for one figure, and more if both turn out worst.

    Where another regime limits, what is known stands before the wide one anyway.
    """
    if item.predicted is None or item.predicted.is_known or not item.is_of_limit:
        return []
    least, half = _saved_ratio(item.predicted.high_ns, item.predicted), ranked_ratio(item) / 2
    enough = (other for other in known if other.saving.ratio >= half)
    return [one for one in enough if one.predicted and _saved_ratio(one.predicted.high_ns, one.predicted) > least]


def _ranked(items: Sequence[tuple[Fix, Opportunity, Advice]]) -> tuple[Advice, ...]:
    """Sort by `ranked_ratio`, the largest first; what others come ``after`` stands right before them, if it gains by itself.

    An estimate too wide for one figure is behind what is `_surer`. Behind all come, in this order: what is for another regime
    and nothing shows to help; last resorts. What the replay says gains nothing is left out where other advice gains, unless
    that needs it: then it is last.
    """

    def gains_nothing(item: Advice) -> bool:
        return item.predicted is not None and saves_nothing(item.predicted)

    gaining = [item for fix, _, item in items if not (fix.last_resort or gains_nothing(item))]
    known = [item for item in gaining if item.predicted and item.predicted.is_known]

    def place(triple: tuple[Fix, Opportunity, Advice]) -> tuple[bool, bool, bool, bool, float, bool]:
        fix, opportunity, item = triple
        shown_to_help = item.predicted is not None and item.predicted.is_known
        return (
            not (opportunity.is_first or (opportunity.is_first_of_bounds and not known)),
            gains_nothing(item),
            fix.last_resort,
            not (shown_to_help or item.is_of_limit),
            -min([ranked_ratio(item), *map(ranked_ratio, _surer(item, known))]),
            not shown_to_help,
        )

    needs = {fix_id for _, opportunity, item in items if not gains_nothing(item) for fix_id in opportunity.after}
    worth = [one for one in items if not gains_nothing(one[2]) or one[0].id in needs]
    by_place = sorted(worth or items, key=place)
    needed = [
        [*(other for other in by_place if other[0].id in one[1].after and not gains_nothing(other[2])), one]
        for one in by_place
    ]
    return tuple({item.id or item.title: item for group in needed for _, _, item in group}.values())


VALUES = (
    *window_context.VALUES,
    Value("candidates", candidates, cost=5),
    Value("fix_estimates", fix_estimates),
    Value("opportunities", opportunities),
    Value("advice_intervals", intervals),
    Value("advice", advise),
)

__all__ = ["LAUNCHING", "RULES", "VALUES", "AdviceContext", "advise"]
