"""Judge whether two sides did the same work, or ran the same program with other inputs, and which advice was applied."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count, product
from string import ascii_uppercase
from typing import Annotated, Literal

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from trace_analyzer.compare.facts import STATES
from trace_analyzer.compare.profiles import Profile
from trace_analyzer.compare.statistics import FLOOR_RATIO
from trace_analyzer.frames.arrays import Codes, codes_of, combined, sums_by
from trace_analyzer.vocabulary import PARTS, shortened_by

SAME_WORK_RATIO = 0.5
"""Least share of each side's kernel time in calls of equal shapes for the same work: different programs reach at
most 3 %."""
SAME_PROGRAM_LIKENESS = 0.8
"""Least similarity of calls for the same program with other sizes: the 95th percentile of different programs is
0.31."""
MODULE_LIKENESS = 0.5
"""Least similarity of modules for the same program: BERT and ViT have similar calls (0.79) in different modules."""
FLOP_TOLERANCE = 0.001
FLOP_KNOWN, FLOP_KNOWN_ALIKE = 0.5, 0.05
"""Least share of the time of matmuls and convolutions whose FLOP must be known on each side, and largest difference of
both shares, for their ratio: else it is of what is known."""
UNIT_AGREEMENT = 0.8
"""Least share of matched operators that must agree on the number of units of work in a step."""
ALIKE = 0.9
"""Least Ruzicka similarity of calls per step at which a rank without peers joins the most similar role: a truncated
file or a late start changes a few calls, another pipeline stage changes many."""
_UNIT_TOLERANCE = 0.02
"""Tolerance of this number, as calls cut off at the window's ends change the ratio."""


class InputChange(Struct, frozen=True):
    """A size in the inputs of operators that differs between the sides."""

    before: Annotated[int, "Size in BEFORE, elements of a dimension."]
    after: Annotated[int, "Size in AFTER, elements of a dimension."]
    calls: Annotated[int, "Kinds of calls in which it changed so."]


class Likeness(Struct, frozen=True):
    """Measure how similar two programs are."""

    calls: Annotated[
        float, "Ruzicka similarity of the calls per step by operator, or by kernel without one, from 0 to 1."
    ]
    modules: Annotated[float | None, "The same over modules; null where a side has none."]
    flop_ratio: Annotated[
        float | None,
        "FLOP of matmuls and convolutions per step, AFTER over BEFORE; null where they are not known of most, and of as much on both sides.",
    ]
    operators: Annotated[int, "Operators (or kernels, of calls without) that either side runs."] = 0
    equal_operators: Annotated[int, "Those of them that both run equally often in a step."] = 0

    @property
    def is_same_flop(self) -> bool:
        """Return whether a step has the same FLOP on both sides."""
        return self.flop_ratio is not None and abs(self.flop_ratio - 1) <= FLOP_TOLERANCE


def refusal(before: Profile, after: Profile, names: tuple[str, str] = ("before", "after")) -> str | None:
    """Return why the sides, which have these names, cannot be compared; None where they can.

    Their work is not compared yet.
    """
    for name, side in zip(names, (before, after), strict=True):
        path = "" if side.path == name else f" ({side.path})"
        if not side.recordings or side.total_ns == 0:
            said = f"; its report says: {side.facts.headline}" if side.facts.headline else ""
            return f"{name}{path} has no device work, and steps are compared by a device's time{said}"
        if side.facts.withheld:
            return f"{name}{path}: what the device did is not known: {side.facts.withheld}"
    return None


def cold_side(before: Profile, after: Profile, names: tuple[str, str] = ("before", "after")) -> str | None:
    """Return that only one side is a cold start, which neither gates nor scaling judge; None where it is not so."""
    if before.is_cold == after.is_cold:
        return None
    other, cold = names if after.is_cold else reversed(names)
    return f"all steps of {cold} are a cold start, and those of {other} are not; warm up some steps before {cold} is recorded"


def unit_of_work(before: Profile, after: Profile) -> int | None:
    """Return how many units of work of one side's step a step of the other contains.

    It is above 1 where AFTER contains more, below -1 where BEFORE does, and 1 where both are equal.

    None where the matched operators do not agree on a number, or launch less than half of the work.
    """
    key = ["phase", "module", "operator"]
    # The count of a call is in the first of its rows.
    count = (pl.col("calls") * pl.col("call").is_first_distinct()).alias("count")
    both = [side.called_rows.drop_nulls("operator").select(*key, count, "total_ns") for side in (before, after)]
    if any(side.is_empty() for side in both):
        key, both = ["kernel"], [_kernels(side).select("kernel", "count", "total_ns") for side in (before, after)]
        if any(side.is_empty() for side in both):
            return None
    rows, counts, owned_ns = _sums(both, key, "count", "total_ns")
    is_matched = rows.all(axis=1)
    if (2 * owned_ns[is_matched].sum(axis=0) < owned_ns.sum(axis=0)).any():
        return None
    is_counted = is_matched & counts.all(axis=1)
    ratios = (counts[is_counted, 1] / after.steps) / (counts[is_counted, 0] / before.steps)
    votes = Counter(number for ratio in ratios.tolist() if (number := _whole(ratio)) is not None)
    if not votes:
        return None
    number, agreeing = votes.most_common(1)[0]
    return number if agreeing >= UNIT_AGREEMENT * len(ratios) else None


def _kernels(side: Profile) -> pl.DataFrame:
    return side.called_rows.filter(pl.col("kind") != "idle")


def _sums(sides: Sequence[pl.DataFrame], key: Sequence[str], *columns: str) -> tuple[Codes, ...]:
    """Return the number of rows and the sums of columns for each combination of the key and side: (n, 2) each."""
    rows = pl.concat(sides)
    codes = combined([codes_of(rows.get_column(name)) for name in key])
    groups = int(codes.max(initial=-1)) + 1
    places = 2 * codes + np.repeat(np.arange(2), [side.height for side in sides])
    values = [np.ones(len(codes), np.int64), *(rows.get_column(name).fill_null(0).to_numpy() for name in columns)]
    return tuple(sums_by(places, each, 2 * groups).reshape(groups, 2) for each in values)


def _whole(ratio: float) -> int | None:
    """Round a ratio to an integer, negative for its inverse; None where it is not close to one."""
    size = max(ratio, 1 / ratio)
    number = round(size)
    if abs(size - number) > _UNIT_TOLERANCE * number:
        return None
    return number if ratio >= 1 or number == 1 else -number


def likeness(before: Profile, after: Profile) -> Likeness:
    """Compare calls, modules and FLOP per step."""
    known = [side.facts.ratios.get("flop", 1.0) for side in (before, after)]
    is_known = min(known) >= FLOP_KNOWN and max(known) - min(known) <= FLOP_KNOWN_ALIKE
    flop = [side.facts.flop / side.steps if side.facts.flop and is_known else None for side in (before, after)]
    kernels = [_kernels(side) for side in (before, after)]
    in_modules = [side.select("module", "count").drop_nulls("module") for side in kernels]
    is_kernel = pl.lit(bool(side_without_operators(before, after))) | pl.col("operator").is_null()
    name = pl.when(is_kernel).then("kernel").otherwise("operator").alias("name")
    # The count of a call is in the first of its rows.
    calls = pl.when(is_kernel).then("count").otherwise(pl.col("calls") * pl.col("call").is_first_distinct())
    named = [side.select(name, calls.alias("count")) for side in kernels]
    _, counts = _sums(named, ["name"], "count")
    has_modules = all(not side.is_empty() for side in in_modules)
    steps = before.steps, after.steps
    return Likeness(
        calls=_ruzicka(counts, steps),
        modules=_ruzicka(_sums(in_modules, ["module"], "count")[1], steps) if has_modules else None,
        flop_ratio=flop[1] / flop[0] if flop[0] and flop[1] else None,
        operators=len(counts),
        equal_operators=int((counts[:, 0] * after.steps == counts[:, 1] * before.steps).sum()),
    )


def _ruzicka(counts: Codes, steps: tuple[int, int]) -> float:
    """Return the sum of minima over the sum of maxima (Ruzicka 1958) of both sides' counts per step, by row."""
    a_step = counts / np.array(steps)
    most = float(a_step.max(axis=1, initial=0).sum())
    return float(a_step.min(axis=1, initial=np.inf).sum()) / most if most else 0.0


def is_same_work(matched_by_call: float, before: Profile, after: Profile) -> bool:
    """Return whether equal calls take most kernel time.

    Where shapes were not recorded, kernels of equal name must also have equal grids.
    """
    if "parts" in (before.detail, after.detail) or matched_by_call < SAME_WORK_RATIO:
        return False
    return (before.facts.shapes_known and after.facts.shapes_known) or _equal_grids(before, after) >= SAME_WORK_RATIO


def _equal_grids(before: Profile, after: Profile) -> float:
    """Return the time share of kernels with equal name and number of blocks on both sides; 1 without common names."""
    sums = [
        side.rows.filter(pl.col("kind") == "kernel")
        .group_by("kernel")
        .agg(pl.col("total_ns").sum(), (pl.col("blocks").sum() / pl.col("count").sum()).alias("blocks"))
        for side in (before, after)
    ]
    both = sums[0].join(sums[1], on="kernel", how="inner", suffix="_after")
    equal = both.filter((pl.col("blocks_after") / pl.col("blocks") - 1).abs() <= FLOP_TOLERANCE)
    whole = int(both.get_column("total_ns").sum())
    return int(equal.get_column("total_ns").sum()) / whole if whole else 1.0


def is_same_program(same_work: bool, alike: Likeness) -> bool:
    """Return whether both sides run the same program, possibly with other sizes."""
    if same_work:
        return True
    if alike.modules is not None and alike.modules < MODULE_LIKENESS:
        return False
    return alike.calls >= SAME_PROGRAM_LIKENESS or (alike.is_same_flop and alike.modules is not None)


def input_changes(before: Profile, after: Profile) -> tuple[InputChange, ...]:
    """Return the sizes that differ between paired calls, most frequent first.

    Calls of one phase, module and operator are paired in order of first appearance, where both sides have equally many
    kinds of them.
    """
    key = ["phase", "module", "operator"]
    kinds = [
        side.calls.drop_nulls(["operator", "shapes"]).sort("first").group_by(key, maintain_order=True).agg("shapes")
        for side in (before, after)
    ]
    both = kinds[0].join(kinds[1], on=key, how="inner", nulls_equal=True, maintain_order="left", suffix="_after")
    changes: Counter[tuple[int, int]] = Counter()
    for shapes, shapes_after in both.select("shapes", "shapes_after").iter_rows():
        if len(shapes) == len(shapes_after):
            for one, other in zip(shapes, shapes_after, strict=True):
                with suppress(ValueError):  # of shapes that are no JSON
                    changes.update(set(_pairs(json.loads(one), json.loads(other))) if one != other else ())
    return tuple(InputChange(*pair, calls) for pair, calls in changes.most_common())


def _pairs(one: object, other: object) -> Iterator[tuple[int, int]]:
    """Yield pairs of different sizes in two lists of shapes with the same structure."""
    if isinstance(one, list) and isinstance(other, list):
        if len(one) == len(other):
            for a, b in zip(one, other, strict=True):
                yield from _pairs(a, b)
    elif isinstance(one, int) and isinstance(other, int) and one != other:
        yield one, other


def side_without_operators(before: Profile, after: Profile) -> str:
    """Return which side lacks operators for most of its kernel time, where the other has them."""
    lacks = [
        2 * int(kernels.join(side.calls.drop_nulls("operator"), on="call", how="anti").get_column("total_ns").sum())
        > int(kernels.get_column("total_ns").sum())
        for side in (before, after)
        for kernels in [side.rows.filter(pl.col("kind") == "kernel")]
    ]
    return {(True, False): "before", (False, True): "after"}.get((lacks[0], lacks[1]), "")


def roles(work: pl.DataFrame) -> dict[int, str]:
    """Return the role of each rank of ``work``; ranks with equal calls per step share one.

    ``work`` has rank, and the columns of `Profile.work`.

    Roles are named A, B, ... in the order of their first ranks. A rank without peers joins the most similar role with
    several ranks (or any role, if none has), if they are `ALIKE`.
    """
    # Communication and copies differ little between stages, and idle time has no kernels.
    own = work.filter(pl.col("kind") == "kernel").with_columns(pl.col("count").round().cast(pl.Int64))
    calls = own.filter(pl.col("count") > 0).select("rank", "category", "operator", "count").sort(pl.all())
    hashed = calls.with_columns(pl.struct("category", "operator", "count").hash().alias("call"))
    keys = hashed.group_by("rank").agg(pl.col("call").bitwise_xor().alias("mixed"), pl.len(), pl.col("call").sum())
    codes = keys.with_columns(pl.struct("mixed", "len", "call").rank("dense").alias("role")).select("rank", "role")
    assigned = dict(codes.sort("rank").iter_rows())
    sizes = Counter(assigned.values())
    shared = [next(rank for rank in assigned if assigned[rank] == role) for role, size in sizes.items() if size > 1]
    merged = dict(assigned)
    examples = shared or [min(assigned, default=0)]
    for rank, role in assigned.items():
        if sizes[role] == 1 and rank not in examples:
            near = _nearest(calls.filter(pl.col("rank") == rank), calls.filter(pl.col("rank").is_in(examples)))
            if near is not None:
                merged[rank] = merged[near]
            elif not shared:
                examples.append(rank)
    letters = ("".join(name) for length in count(1) for name in product(ascii_uppercase, repeat=length))
    names = defaultdict[int, str](lambda: next(letters))
    return {rank: names[role] for rank, role in merged.items()}


def _nearest(calls: pl.DataFrame, examples: pl.DataFrame) -> int | None:
    """Return the rank of ``examples`` with the most similar calls; None where none is `ALIKE`."""
    key = ["category", "operator"]
    own = calls.select(*key, pl.col("count").alias("own"))
    pairs = (
        examples.select("rank").unique().join(own, how="cross")
        .join(examples, on=["rank", *key], how="full", coalesce=True, nulls_equal=True)
        .with_columns(pl.col("own", "count").fill_null(0))
    )  # fmt: skip
    scores = pairs.group_by("rank").agg(
        (pl.min_horizontal("own", "count").sum() / pl.max_horizontal("own", "count").sum()).alias("score")
    )
    best = scores.filter(pl.col("score") >= ALIKE).sort("score", "rank", descending=[True, False])
    return int(best.get_column("rank")[0]) if best.height else None


_LAUNCH = shortened_by("cuda-graphs")
# `thin-products` is the id of skinny-matmuls in reports of schema version 1.
_ALL_KERNELS = (
    "fusion channels-last fewer-bytes tensor-cores casts compiled-copies skinny-matmuls thin-products low-precision"
    " inefficient-kernels few-tiles custom-kernels recompute-less"
)
TARGETS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    **{fix: (shortened_by(fix), ()) for part in PARTS.values() for fix in part.fixes},
    "attention-kernel": ((), ("matmul", "bmm", "softmax", "attention", "pointwise")),
    **dict.fromkeys(("tf32", "padding", "max-autotune"), ((), ("matmul", "bmm", "convolution"))),
    **dict.fromkeys(("overlap", "gradient-buckets", "transport"), ((), ("communication",))),
    **dict.fromkeys(("copies", "small-copies"), ((), ("host-to-device copy", "device-to-host copy"))),
    "peer-copies": ((), ("peer-to-peer copy",)),
    "device-copies": ((), ("within-device copy",)),
    **dict.fromkeys(_ALL_KERNELS.split(), ((), ("kernel",))),
}
"""Lines that a fix concerns: causes of idle time, and buckets, or all kernels. Other fixes concern the whole step."""


_OTHER_WORK = ("bigger-batch",)
"""Fixes that change the work of a step: where the work is the same, they were not applied."""
_FEWER_LAUNCHES, _FEWER_KERNELS = ("cuda-graphs",), ("set-to-none", "fused-optimizer", "fusion")
"""Fixes that reduce launches, and kernels too: where a step has as many, another change shortened their lines."""

LEAST_PART = 0.1
"""Least share of an advice's bound that must be saved where its lines, or AFTER's report, alone do not show that it
was applied."""


class KeptPromise(Struct, frozen=True):
    """An advice of BEFORE's report that was applied in AFTER, whole or in part: its promise and the actual saving.

    The bound held if the saving, of these lines or of the step, does not exceed it by more than 0.5 % of the step,
    which can be chance. An advice counts as applied if AFTER's report does not repeat it, repeats at most half of its
    bound, or repeats most of it although a part was saved. The prediction is null where BEFORE's report has none, and
    where only a part was saved. It held if the saving of the step is within its interval, which is not known where
    several pieces of advice came at once: a replay predicts one change alone.
    """

    id: Annotated[str, "Id of the advice."]
    title: Annotated[str, "Title of the advice."]
    promised_ns_at_most: Annotated[float, "Upper bound of the saving in BEFORE's report, ns per step."]
    came_ns: Annotated[float, "Actual saving of the lines that the advice concerns, ns per step."]
    step_ns: Annotated[float, "Actual saving of the whole step, ns."]
    targets: Annotated[tuple[str, ...], "Keys of the lines that the advice concerns."]
    evidence: Annotated[Literal["advice gone", "bound halved", "part came"], "How AFTER shows the advice."]
    bound_held: Annotated[bool, "Whether the saving is within the bound."]
    predicted_ns: Annotated[float | None, "Saving of the step predicted by a replay of BEFORE, ns."] = None
    predicted_interval_ns: Annotated[tuple[float, float] | None, "Interval of that prediction, ns."] = None
    prediction_held: Annotated[
        bool | None, "Whether the actual saving is within the interval; null where several changes came at once."
    ] = None
    late_launches_ns: Annotated[float, "Part of `came_ns` in launches that waits had delayed, ns per step."] = 0.0


def kept_promises(before: Profile, after: Profile, table: pl.DataFrame) -> tuple[KeptPromise, ...]:
    """Return the advice of BEFORE that AFTER's report does not repeat, or at most by half, with its actual saving.

    For advice on one cause of idle time, a partial saving counts too, even if AFTER's report repeats most of it. A
    saving must exceed `FLOOR_RATIO` of the step, as smaller ones occur without any change. Partial savings, and advice
    on lines that other advice also concerns, need `LEAST_PART` of the bound, because advice on launches also disappears
    when the host was late for another reason.
    """
    left = {promise.id: promise.saves_ns_at_most for promise in after.facts.advice}
    gaps = table.filter((pl.col("kind") == "idle") & (pl.col("category") == "synchronization"))
    waits = gaps.select(pl.col("before_count", "after_count").sum()).row(0)
    has_fewer_waits = waits[0] and 2 * waits[1] / after.steps <= waits[0] / before.steps
    launches = before.facts.launches, after.facts.launches
    kernels = [int(_kernels(side).get_column("count").sum()) for side in (before, after)]
    as_many = {
        fix
        for fixes, (old, new) in ((_FEWER_LAUNCHES, launches), (_FEWER_KERNELS, kernels))
        if None not in (old, new) and new / after.steps > (1 - LEAST_PART) * old / before.steps  # type: ignore[operator]
        for fix in fixes
    }
    step_ns = before.total_ns / before.steps
    step, floor = step_ns - after.total_ns / after.steps, FLOOR_RATIO * step_ns
    if not after.facts.headline:
        return ()
    sums = table.group_by("kind", "category", maintain_order=True).agg(-pl.col("difference_ns").sum()).rows()

    def saved(causes: Sequence[str], buckets: Sequence[str]) -> float:
        """Return the saving of these causes of idle time, and of these buckets or kinds of work, ns per step."""
        of_work = {*buckets}
        return float(
            sum(ns for kind, name, ns in sums if (name in causes if kind == "idle" else {name, kind} & of_work))
        )

    kept = []
    for promise in before.facts.advice:
        bound = promise.saves_ns_at_most / before.unit_of_work  # 0 where an advice saves nothing itself
        remaining = left.get(promise.id, 0.0) / after.unit_of_work
        causes, buckets = TARGETS.get(promise.id, ((), ()))
        if not bound or promise.id in _OTHER_WORK or promise.id in as_many:
            continue
        came = saved(causes, buckets) if causes or buckets else step
        late = 0.0
        if promise.id == "synchronization" and has_fewer_waits:
            late = max(saved(_LAUNCH, ()), 0.0)
            causes = (*causes, *_LAUNCH)
        came += late
        if came <= floor:
            continue
        is_part, is_alone = remaining > bound / 2, not buckets and (len(causes) == 1 or promise.id == "synchronization")
        if (is_part and not is_alone) or (came < LEAST_PART * bound and (is_part or not is_alone)):
            continue
        evidence: Literal["advice gone", "bound halved", "part came"] = "part came" if is_part else "bound halved"
        if promise.id not in left:
            evidence = "advice gone"
        predicted, interval, held = None, None, None
        # A replay predicts the whole change, not a part of it.
        if promise.predicted_ratio is not None and promise.predicted_interval is not None and not is_part:
            predicted = (1 - promise.predicted_ratio) * step_ns
            low, high = ((1 - ratio) * step_ns for ratio in reversed(promise.predicted_interval))
            interval, held = (low, high), low <= step <= high
        is_bound_held = min(came, max(step, 0.0)) <= bound + floor
        kept.append(
            KeptPromise(
                promise.id, promise.title, bound, came, step, (*causes, *buckets), evidence, is_bound_held, predicted,
                interval, held, late,
            )
        )  # fmt: skip
    one = len(kept) == 1
    return tuple(promise if one else replace(promise, prediction_held=None) for promise in kept)


def most_used(shares: Mapping[str, float], start: str) -> tuple[str, float]:
    """Return the type of numbers with the largest of the shares whose names begin so, and the share; "" where few are known."""
    types = {name.removeprefix(start): ratio for name, ratio in shares.items() if name.startswith(start)}
    known = [(ratio, name) for name, ratio in types.items() if name not in (*STATES, "flop") and " " not in name]
    if sum(share for share, _ in known) < FLOP_KNOWN:
        return "", 0.0  # of too little time to be that of most
    ratio, name = max(known)
    return name, ratio
