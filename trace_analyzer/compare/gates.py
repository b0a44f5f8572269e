"""Gate a comparison in CI: limit the growth of the step, of idle time, or of a line."""

from collections.abc import Sequence
from difflib import get_close_matches

import polars as pl
from msgspec import Struct

from trace_analyzer.catalog.event_names import direction_rules
from trace_analyzer.catalog.kernels import buckets as kernel_buckets, is_group_named, is_named, line_phrase
from trace_analyzer.compare import comparison, judgement, profiles, statistics
from trace_analyzer.compare.phrasing import scale_of, scaled, signed
from trace_analyzer.units import counted, percent
from trace_analyzer.vocabulary import GROUPS, IDLE_CAUSES

LEAST_STEPS = 3
_NAMES = ("kind", "category", "operator", "outer_operator", "module", "group", "kernel")
"""Columns of the matches whose values a gate may use to name lines."""
_NEAR = 4


class Gate(Struct, frozen=True):
    """Limit the growth of the step, of its idle time or of named lines, as a share of BEFORE's step."""

    option: str
    ratio: float
    line: str | None = None
    is_idle: bool = False


class GateResult(Struct, frozen=True):
    """The result of a gate; ``why`` explains it in a sentence."""

    broke: bool
    why: str


def refusal(result: comparison.Comparison, gates: Sequence[Gate] = ()) -> str | None:
    """Return why these gates cannot be checked on a comparison; None where they can."""
    if result.status == "refused":
        return result.reason
    if result.same_program is None:
        return "a saved report does not tell whether it is the same program; keep a baseline (analyze baseline save) instead"
    if not result.same_program:
        return "gates compare a program with itself, and these two are not known to be the same program"
    before, after = result.sides
    if cold := judgement.cold_side(before, after):
        return cold
    devices = [side.device for side in result.both]
    if None not in devices and devices[0] != devices[1]:
        return (
            f"gates judge the program, and before ran on {devices[0]}, after on {devices[1]}; record both on one device"
        )
    steps = min(side.steps for side in result.both)
    if steps < LEAST_STEPS:
        return f"gates need {LEAST_STEPS} steps of each side, and one has {counted(steps, 'step')}; record more"
    return next((why for gate in gates if (why := _unknown(result, gate))), None)


def _unknown(result: comparison.Comparison, gate: Gate) -> str | None:
    """Return why no line has the gate's name; None where a line has it, or could have it.

    Any kind, cause or bucket may be absent from a recording.
    """
    if gate.line is None or not _named(result.matches, gate.line).is_empty():
        return None
    general = [
        *profiles.KINDS,
        *IDLE_CAUSES,
        *kernel_buckets().get_column("bucket"),
        *(f"{rule.name} copy" for rule in direction_rules()),
    ]
    if any(is_named(key, gate.line) for key in general) or any(is_group_named(key, gate.line) for key in GROUPS):
        return None
    names = {name for column in _NAMES for name in result.matches.get_column(column).drop_nulls()}
    known = sorted({*general, *names})
    lower = {name.lower(): name for name in reversed(known)}
    near = [lower[name] for name in get_close_matches(gate.line.lower(), lower, n=_NEAR, cutoff=0.5)]
    near = near or [bar.name for bar in result.waterfall["bucket"][:_NEAR]]
    return f"{gate.option}: no line is called {gate.line!r}; near it: {', '.join(near)}"


def _named(matches: pl.DataFrame, name: str) -> pl.DataFrame:
    """Return the matches with a name as key, or else as label."""
    keyed = matches.filter(pl.any_horizontal((pl.col(column) == name).fill_null(False) for column in _NAMES))
    if not keyed.is_empty():
        return keyed
    labelled = {
        column: [key for key in matches.get_column(column).drop_nulls().unique() if is_labelled(key, name)]
        for column, is_labelled in (("category", is_named), ("group", is_group_named))
    }
    return matches.filter(pl.any_horizontal(pl.col(column).is_in(keys) for column, keys in labelled.items()))


def held(result: comparison.Comparison, gates: Sequence[Gate]) -> tuple[GateResult, ...]:
    """Check the gates on a comparison. Where both sides have steps, the step is used instead of the unit of work.

    A gate breaks when the time grows by more than its ratio of BEFORE's step and by more than chance; where chance is
    unknown, by the ratio alone.
    """
    return tuple(_hold(result, gate) for gate in gates)


def _hold(result: comparison.Comparison, gate: Gate) -> GateResult:
    before, after = result.sides
    if before.has_steps and after.has_steps:
        before, after = before.divided(1), after.divided(1)
    step = before.total_ns / before.steps
    floor, adjustment = statistics.floor_of(step, after.total_ns / after.steps), None
    if gate.line is None and not gate.is_idle:
        name = "the step"
        real, adjustment = statistics.step_difference(before, after, floor=floor)
    else:
        name = "idle time" if gate.is_idle else gate.line or ""
        independent = before.are_recordings_units, after.are_recordings_units
        real = statistics.difference(*_of_lines(result, gate), floor=floor, independent=independent)
    scale, unit = scale_of(step)
    sign = "+" if real.value > 0 else "-" if real.value < 0 else ""
    grown = (
        f"{name} changes by {signed(real.value, scale)} {unit}{' a step' if name != 'the step' else ''}"
        f" ({sign}{percent(abs(real.value) / step)} of BEFORE's {scaled(step, scale)} {unit})"
    )
    too_much = real.value > gate.ratio * step
    if too_much and real.significant is False:
        shown = f"; so many steps show {scaled(real.detectable or 0.0, scale)} {unit}"
        if adjustment is not None:
            ends = f"{scaled(adjustment.least_ns, scale)} to {scaled(adjustment.most_ns, scale)} {unit}"
            shown += (
                f" of the rest, as {line_phrase(adjustment.left_out)} varies from {ends} a step, which may be chance"
            )
        return GateResult(False, f"{gate.option}: {grown}, no more than chance{shown}")
    return GateResult(too_much, f"{gate.option}: {grown}; allowed are +{percent(gate.ratio)}")


def _of_lines(result: comparison.Comparison, gate: Gate) -> tuple[list[float], list[float]]:
    """Return the time per step of the gate's lines, by unit of observation of each side."""
    table = result.matches
    chosen = table.filter(pl.col("kind") == "idle") if gate.is_idle else _named(table, gate.line or "")
    times: list[list[float]] = []
    for side, column in zip(result.sides, ("before_rows", "after_rows"), strict=True):
        bare = side.divided(1) if all(s.has_steps for s in result.sides) else side
        rows = chosen.select(pl.lit(0).alias("group"), pl.col(column).list.explode().alias("row"))
        if side.units is None:
            total = int(side.rows.join(rows, on="row", how="semi").get_column("total_ns").sum())
            times.append([total / bare.steps])
        else:
            times.append(bare.unit_times(rows).get(0, [0.0] * len(bare.weights())))
    return times[0], times[1]
