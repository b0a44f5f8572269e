"""Fit how times grow with the batch: flat time is overhead, growing time is work.

The test of Horace He's article (https://horace.io/brrr_intro.html): if the batch doubles and the step takes hardly
longer, the step was overhead.
"""

import json
import math
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import combinations, islice, pairwise
from typing import Annotated, Any, Literal

import polars as pl
from msgspec import Struct

from trace_analyzer import forks
from trace_analyzer.compare import judgement
from trace_analyzer.compare.profiles import Profile
from trace_analyzer.compare.sides import SideSource, profile_side
from trace_analyzer.errors import UsageError
from trace_analyzer.installation import tool_version
from trace_analyzer.options import takes_options_of
from trace_analyzer.pipeline import analyze
from trace_analyzer.report import Lever
from trace_analyzer.results import Result
from trace_analyzer.units import counted, duration, number, percent

SCHEMA_VERSION = 1
FLAT, PROPORTIONAL = 0.2, 0.8
"""Exponents below the first are flat, above the second proportional."""
LEAST_FACTOR = 1.2
"""Least ratio of batches in a series: padding alone changes sizes by a few percent, and exponents over so little
work are noise."""
_FLOOR_QUANTILE = 0.1
_AS_STEEP = 0.98
"""Share of the line's slope from which the last batches are as steep: chance moves it by as much."""
_AT_FLOOR = 1.1
"""A step of up to this multiple of the host's lower bound is limited by the host."""


class Point(Struct, frozen=True):
    """One trace of a series, by its batch."""

    path: Annotated[str, "File, as it was given."]
    batch: Annotated[int, "Batch, read from shapes."]
    steps: Annotated[int, "Steps that were averaged."]
    step_ns: Annotated[float, "Mean time of a step without one-time work, ns."]
    busy_ns: Annotated[float, "Time of a step in which the device worked, ns."]
    idle_ns: Annotated[float, "Time of a step in which the device idled, ns."]
    flop: Annotated[float | None, "FLOP of a step; null where shapes are unknown."]
    verdict: Annotated[str | None, "Regime of the trace's own verdict; null where it has none."]
    levers: Annotated[
        tuple[Lever, ...], "What each resource can bring, as in the trace's own report; empty without a replay."
    ] = ()

    @property
    def busy_ratio(self) -> float:
        """Return the share of the step in which the device worked."""
        return self.busy_ns / self.step_ns


class Exponent(Struct, frozen=True):
    """How a time grows with the work between two batches: ln(t'/t) / ln(work'/work)."""

    name: Annotated[str, "What takes the time: `step`, `busy`, or an operator."]
    from_batch: Annotated[int, "The smaller batch."]
    to_batch: Annotated[int, "The larger batch."]
    before_ns: Annotated[float, "Time of a step at the smaller batch, ns."]
    after_ns: Annotated[float, "Time of a step at the larger batch, ns."]
    work_ratio: Annotated[float, "Work at the larger batch over that at the smaller one."]
    work: Annotated[Literal["FLOP", "elements", "batch"], "What the work is counted in."]
    exponent: Annotated[float, "0 where the time stays, 1 where it grows as the work does."]
    growth: Annotated[Literal["flat", "proportional", "between"], "The exponent in a word."]


class DeviceLine(Struct, frozen=True):
    """The device's time per step as a linear function of the batch."""

    fixed_ns: Annotated[float, "Time that does not depend on the batch, ns."]
    per_item_ns: Annotated[float, "Time of each further item, ns."]


class Scaling(Result, frozen=True):
    """The result for a series of batches."""

    PLOTTED = ("profiles",)

    schema_version: Annotated[int, "Version of this schema."]
    tool_version: Annotated[str, "Version of the program that wrote it."]
    status: Annotated[Literal["ok", "refused"], "Whether the series could be judged."]
    reason: Annotated[str | None, "Why it is refused; null where it is not."]
    headline: Annotated[str, "The result in a sentence."]
    points: Annotated[tuple[Point, ...], "The traces, by batch."] = ()
    step: Annotated[tuple[Exponent, ...], "Growth of the step between neighbouring batches."] = ()
    busy: Annotated[tuple[Exponent, ...], "Growth of the device's work between neighbouring batches."] = ()
    operators: Annotated[tuple[Exponent, ...], "Growth of the operators that take longest."] = ()
    host_floor_ns: Annotated[
        float | None, "Lower bound of a step's time at small batches, ns; null where the series shows none."
    ] = None
    device_line: Annotated[DeviceLine | None, "The device's time over the batch; null where it is not linear."] = None
    flip_batch: Annotated[
        float | None, "Batch at which the device takes as long as the host; null where it is unknown."
    ] = None
    is_upper_bound: Annotated[
        bool, "Whether `flip_batch` is extrapolated: the time is convex, so it is at most that."
    ] = False
    overhead_is_proven: Annotated[
        bool, "Whether more work took hardly longer, and idle time fell as busy time rose."
    ] = False
    contradictions: Annotated[tuple[str, ...], "Verdicts of single traces that the series contradicts."] = ()
    notes: Annotated[tuple[str, ...], "What to know before trusting it."] = ()
    profiles: Annotated[tuple[Profile, ...], "Profiles of the traces, for plots; no part of the JSON."] = ()

    @property
    def timed(self) -> str:
        """What is timed, in a word: of traces without steps their windows."""
        return _timed(self.profiles)


def _timed(sides: Sequence[Profile]) -> str:
    return "step" if all(side.has_steps for side in sides) else "window"


@takes_options_of(analyze)
def scaling(*sources: SideSource, **options: Any) -> Scaling:
    """Compare recordings of a program at several batches: which times are flat or grow, and where regimes change.

    ``sources`` are at least two, in the forms that `compare` accepts; ``options`` are those of
    `trace_analyzer.analyze`. Raises ``UsageError`` for fewer than two.
    """
    read = partial(analyze, **options)
    return scale_profiles([profile_side(source, read) for source in sources])


def scale_profiles(profiles: Sequence[Profile]) -> Scaling:
    """Compare recordings of one program at several batches.

    Raises ``UsageError`` for fewer than two, ``ForkedError`` where Polars would hang.
    """
    forks.check()
    if len(profiles) < 2:
        raise UsageError("scaling needs two traces or more, of one program at several batches")
    for side in profiles:
        if not side.total_ns:
            return _refused(f"{side.path} has no device work: {side.facts.headline or 'nothing ran on a device'}")
        if side.detail == "parts":
            return _refused(f"{side.path}: a saved report keeps no shapes, so its batch is not known; give the trace")
    ordered = sorted(profiles, key=_work)
    first = ordered[0]
    for side in ordered[1:]:
        names = first.path, side.path
        reason = (
            judgement.refusal(first, side, names) or judgement.cold_side(first, side, names) or _unlike(first, side)
        )
        if reason:
            return _refused(reason)
    batches, others = _batches(ordered)
    if batches is None:
        return _refused(
            "no size of inputs tells the batch: shapes were not recorded (record_shapes=True), or do not differ"
        )
    if max(batches) < LEAST_FACTOR * min(batches):
        return _refused(
            f"the sizes of inputs that differ most often go from {min(batches)} to {max(batches)} only, as padding changes them: record batches that"
            f" differ by {percent(LEAST_FACTOR - 1)} or more"
        )
    series = sorted(zip(batches, ordered, strict=True), key=lambda item: item[0])
    return _scaled([batch for batch, _ in series], [side for _, side in series], others)


def _refused(reason: str) -> Scaling:
    return Scaling(SCHEMA_VERSION, tool_version(), "refused", reason, f"Not scaled: {reason.rstrip('.')}.")


def _work(side: Profile) -> float:
    """Return the sort key of traces until their batch is known: FLOP per step, else busy time."""
    return side.facts.flop / side.steps if side.facts.flop else _busy(side) / side.steps


def _busy(side: Profile) -> int:
    return int(side.rows.filter(pl.col("kind") != "idle").get_column("total_ns").sum())


def _unlike(one: Profile, other: Profile) -> str | None:
    """Return why two traces are of different programs; None where they are of one."""
    alike = judgement.likeness(one, other)
    if alike.calls >= judgement.SAME_PROGRAM_LIKENESS or (alike.modules or 0.0) >= judgement.SAME_PROGRAM_LIKENESS:
        return None
    return f"{one.path} and {other.path} are not known to be one program (likeness of calls {alike.calls:.2f})"


def _batches(ordered: Sequence[Profile]) -> tuple[list[int] | None, list[str]]:
    """Return each trace's batch, and other changes.

    The batch is the size of the first trace's inputs that changed in most calls. Changes below `LEAST_FACTOR` count
    only where there are no others.
    """
    first, votes = ordered[0], Counter[int]()
    changes = [judgement.input_changes(first, side) for side in ordered[1:]]
    every = [item for changed in changes for item in changed]
    # A trace with the first one's batch differs from it only by padding, which is irrelevant to the batch.
    wide = [item for item in every if max(item.before, item.after) >= LEAST_FACTOR * min(item.before, item.after)]
    for item in wide or every:
        votes[item.before] += item.calls
    if not votes:
        return None, []
    size = votes.most_common(1)[0][0]
    batches, others = [size], dict[str, None]()
    for changed in changes:
        batch = next((item.after for item in changed if item.before == size), size)
        unlike = (
            f"{item.before} to {item.after}"
            for item in changed
            if item.before != size and abs(item.after / max(1, item.before) / (batch / size) - 1) > 0.01
        )
        others |= dict.fromkeys(islice(unlike, 3))
        batches.append(batch)
    if len(set(batches)) < 2:
        return None, []
    note = f"Other sizes change with the batch as well ({', '.join(others)}), so operators are put over their own work."
    return batches, [note] if others else []


def _scaled(batches: list[int], sides: list[Profile], others: list[str]) -> Scaling:
    points = tuple(_point(batch, side) for batch, side in zip(batches, sides, strict=True))
    pairs = [(a, b) for a, b in pairwise(range(len(points))) if batches[b] >= LEAST_FACTOR * batches[a]]
    step = tuple(_exponent("step", points[a], points[b], points[a].step_ns, points[b].step_ns) for a, b in pairs)
    busy = tuple(_exponent("busy", points[a], points[b], points[a].busy_ns, points[b].busy_ns) for a, b in pairs)
    operators = tuple(item for a, b in pairs for item in _operators(points[a], points[b], sides[a], sides[b]))
    line = _device_line(points)
    floor = _host_floor(points, step, sides)
    flip = (floor - line.fixed_ns) / line.per_item_ns if floor is not None and line and line.per_item_ns > 0 else None
    flip = flip if flip is not None and flip > 0 else None
    timed = _timed(sides)
    proof = _proof(points, timed)
    is_upper_bound = flip is not None and flip > max(batches) and not others and _steepens(points, pairs, line)
    return Scaling(
        SCHEMA_VERSION,
        tool_version(),
        "ok",
        None,
        _headline(points, timed, floor, flip, proof, bool(others), is_upper_bound),
        points=points,
        step=step,
        busy=busy,
        operators=operators,
        host_floor_ns=floor,
        device_line=line,
        flip_batch=flip,
        is_upper_bound=is_upper_bound,
        overhead_is_proven=proof is not None,
        contradictions=tuple(_contradictions(points, timed, floor, step)),
        notes=(*others, *([proof] if proof else [])),
        profiles=tuple(sides),
    )


def _point(batch: int, side: Profile) -> Point:
    busy = _busy(side) / side.steps
    step = (side.total_ns - side.once_ns) / side.steps
    flop = side.facts.flop / side.steps if side.facts.flop else None
    return Point(side.path, batch, side.steps, step, busy, step - busy, flop, side.facts.regime, side.facts.levers)


def _exponent(
    name: str,
    one: Point,
    other: Point,
    before: float,
    after: float,
    ratio: float | None = None,
    work: Literal["FLOP", "elements", "batch"] = "batch",
) -> Exponent:
    """Return how a time grows with the work, whose ratio is that of the batches where none is given."""
    ratio = ratio or other.batch / one.batch
    exponent = math.log(after / before) / math.log(ratio)
    growth: Literal["flat", "proportional", "between"] = (
        "flat" if exponent < FLAT else "proportional" if exponent > PROPORTIONAL else "between"
    )
    return Exponent(name, one.batch, other.batch, before, after, ratio, work, exponent, growth)


def _operators(one: Point, other: Point, before: Profile, after: Profile) -> list[Exponent]:
    """Return exponents of the operators in both traces, longest first.

    They are relative to the operators' own FLOP, else to the elements of their inputs.
    """
    sums = [_operator_sums(side) for side in (before, after)]
    both = (
        sums[0]
        .join(sums[1], on="operator", how="inner", suffix="_after")
        .sort("total_ns_after", "operator", descending=[True, False])
    )
    exponents = []
    for row in both.iter_rows(named=True):
        if not row["total_ns"] or not row["total_ns_after"]:
            continue
        ratio, work = other.batch / one.batch, "batch"
        for column, name in (("flop", "FLOP"), ("elements", "elements")):
            if row[column] and row[f"{column}_after"]:
                ratio, work = row[f"{column}_after"] / row[column], name
                break
        if abs(math.log(ratio)) >= math.log(LEAST_FACTOR):
            times = row["total_ns"], row["total_ns_after"]
            exponents.append(_exponent(row["operator"], one, other, *times, ratio, work))  # type: ignore[arg-type]
    return exponents


def _operator_sums(side: Profile) -> pl.DataFrame:
    """Return operator, and per step: total_ns, flop and elements of its inputs."""
    owned = side.rows.drop_nulls("call").group_by("call").agg(pl.col("total_ns").sum())
    calls = side.calls.drop_nulls("operator").join(owned, on="call", how="inner")
    shapes = calls.select("shapes").drop_nulls().unique()
    sizes = pl.DataFrame(
        {"shapes": shapes.get_column("shapes"), "size": [_elements(text) for text in shapes.get_column("shapes")]},
        schema={"shapes": pl.String, "size": pl.Float64},
    )
    known = calls.join(sizes, on="shapes", how="left")
    return known.group_by("operator").agg(
        pl.col("total_ns").sum() / side.steps,
        pl.when(pl.col("flop").null_count() == 0).then(pl.col("flop").sum() / side.steps).alias("flop"),
        ((pl.col("size") * pl.col("count")).sum() / side.steps).alias("elements"),
    )


def _elements(shapes: str) -> float:
    try:
        parsed = json.loads(shapes)
    except ValueError:
        return 0.0
    return float(sum(_product(shape) for shape in parsed if isinstance(shape, list)))


def _product(shape: list[object]) -> float:
    """Return the number of elements of one input, or of the tensors in a list."""
    if any(isinstance(size, list) for size in shape):
        return sum(_product(inner) for inner in shape if isinstance(inner, list))
    return math.prod(size for size in shape if isinstance(size, int)) if shape else 0.0


def _device_line(points: Sequence[Point]) -> DeviceLine | None:
    """Fit busy time = a + c * batch by least relative squares: each residual is divided by its own time."""
    weights = [1 / point.busy_ns**2 for point in points if point.busy_ns > 0]
    if len(weights) < len(points):
        return None
    total = sum(weights)
    x = sum(w * p.batch for w, p in zip(weights, points, strict=True)) / total
    y = sum(w * p.busy_ns for w, p in zip(weights, points, strict=True)) / total
    spread = sum(w * (p.batch - x) ** 2 for w, p in zip(weights, points, strict=True))
    slope = sum(w * (p.batch - x) * (p.busy_ns - y) for w, p in zip(weights, points, strict=True)) / spread
    return DeviceLine(y - slope * x, slope)


def _steepens(points: Sequence[Point], pairs: Sequence[tuple[int, int]], line: DeviceLine | None) -> bool:
    """Return whether the device's time grows at least as fast between the last batches as the line: it bends up, if at all."""
    if line is None or not pairs:
        return False
    one, other = (points[place] for place in pairs[-1])
    return (other.busy_ns - one.busy_ns) / (other.batch - one.batch) >= _AS_STEEP * line.per_item_ns


def _host_floor(points: Sequence[Point], step: Sequence[Exponent], sides: Sequence[Profile]) -> float | None:
    """Return the 10th percentile of steps up to the largest batch to which the step is flat; None without such a batch.

    The host's time is the same at smaller batches, even where chance lets the step grow from one to the next.
    """
    flat = max((item.to_batch for item in step if item.growth == "flat"), default=0)
    times = sorted(
        time for point, side in zip(points, sides, strict=True) if point.batch <= flat for time in side.without_once()
    )
    return times[min(len(times) - 1, int(_FLOOR_QUANTILE * len(times)))] if times else None


def _proof(points: Sequence[Point], timed: str) -> str | None:
    """Write the proof of overhead: the widest range of batches in which the step stays flat.

    In that range, idle time decreases as busy time grows.
    """
    proven = [
        (factor, one, other)
        for one, other in combinations(points, 2)
        for factor, risen in [(other.batch / one.batch, other.busy_ns - one.busy_ns)]
        if factor >= 1.5 and risen > 0 and one.idle_ns - other.idle_ns >= risen / 2
        if math.log(other.step_ns / one.step_ns) / math.log(factor) < FLAT
    ]
    if not proven:
        return None
    factor, one, other = max(proven, key=lambda item: item[0])
    return (
        f"Overhead is proven between batch {one.batch} and {other.batch}: {number(factor)} times the work, the {timed} takes"
        f" {other.step_ns / one.step_ns:.2f} times as long and the device works {other.busy_ns / one.busy_ns:.2f} times as long; idle time falls by"
        f" {duration(one.idle_ns - other.idle_ns)} while busy time rises by {duration(other.busy_ns - one.busy_ns)}."
    )


def _contradictions(points: Sequence[Point], timed: str, floor: float | None, step: Sequence[Exponent]) -> list[str]:
    """Name contradictions between the series and a single trace's verdict; both are stated."""
    texts = []
    for point in points:
        at_floor = floor is not None and point.step_ns <= _AT_FLOOR * floor
        if at_floor and point.verdict not in ("overhead-bound", None):
            texts.append(
                f"Batch {point.batch}: its own verdict is {point.verdict} (the device works {percent(point.busy_ns / point.step_ns)} of the {timed}),"
                f" yet the {timed} still takes the host's time: faster kernels alone save nothing."
            )
        grows = [item for item in step if point.batch == item.from_batch and item.growth == "proportional"]
        if grows and not at_floor and point.verdict == "overhead-bound":
            texts.append(
                f"Batch {point.batch}: its own verdict is overhead-bound, yet from there on the {timed} grows with the work"
                f" (exponent {grows[0].exponent:.2f})."
            )
    return texts


def _headline(
    points: Sequence[Point],
    timed: str,
    floor: float | None,
    flip: float | None,
    proof: str | None,
    others: bool,
    is_bound: bool,
) -> str:
    """Write one sentence: which times grow, and where the regime changes."""
    first, last = points[0], points[-1]
    text = (
        f"From batch {first.batch} to {last.batch} ({counted(len(points), 'trace')}) the {timed} goes from {duration(first.step_ns)} to"
        f" {duration(last.step_ns)}"
    )
    if floor is None:
        return f"{text}: it grows with the work from the first batch on."
    where = "" if flip is None else f"; the device takes over at batch {flip:.0f}"
    if flip is not None and flip > last.batch:  # extrapolated
        where += ", if other sizes change as they did" if others else " at the latest" if is_bound else " or so"
    return f"{text}: {'overhead is proven' if proof else 'it is flat'}, the host takes {duration(floor)}{where}."
