"""Match the work of two sides level by level, finest first; each level gets what the previous ones did not match."""

from collections.abc import Mapping

import polars as pl
from msgspec import Struct

from trace_analyzer.compare.profiles import Profile
from trace_analyzer.frames.lookups import factorize

_BY_MODULE = ("call", "operator", "replay", "attention", "module")
MATCHED = {
    "call": ("call", "replay"),
    "outer": ("call", "operator", "replay"),
    "module": _BY_MODULE,
    "bucket": (*_BY_MODULE, "anywhere", "phase-bucket", "bucket", "group"),
}
"""The levels whose kernel time each matched share of the report includes: its own and all finer ones. Idle time is matched
by its ``cause``, and unmatched work is ``removed`` or ``new``."""
_DEEPEST = 12
_TEXTS = ("phase", "module", "operator", "outer_operator", "shapes", "kernel", "category", "group")
_WRAPPERS = ("OptimizedModule", "DistributedDataParallel", "FullyShardedDataParallel", "DataParallel")
"""Modules that wrap a model: torch.compile and data parallelism add them."""
_SIDES = ("before", "after")
_SCORES = ("matmul", "bmm", "softmax", "attention", "pointwise", "copy_cast")
"""Buckets of the kernels of unfused attention."""


class _Level(Struct, frozen=True):
    """A level: its name, the key of its matches, what it counts, and the rows to which it applies.

    ``shown`` has the columns that show a match instead of those of its rows. Without ``counts``, all time counts as
    replaced. Rows at a level with ``is_matched_alone`` need no counterpart on the other side.
    """

    name: str
    key: list[str | pl.Expr]
    counts: str | None
    where: pl.Expr
    shown: Mapping[str, pl.Expr] = {}
    is_matched_alone: bool = False

    def taken(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows that match, with ``key`` (the first row of the match), ``level``, and the counts of both sides."""
        rows = rows.filter(self.where).with_columns(pl.col("place").min().over(self.key).alias("key"))
        if not self.is_matched_alone:
            rows = rows.filter(pl.col("side").n_unique().over("key") == 2)
        counts = [self._count(side).alias(f"{name}_count") for side, name in enumerate(_SIDES)]
        return rows.with_columns(pl.lit(self.name).alias("level"), *counts, **self.shown)

    def _count(self, side: int) -> pl.Expr:
        """Return the calls, kernels or gaps of a match on a side; the count of a call is in each of its rows."""
        if self.counts is None:
            return pl.lit(None, pl.Int64)
        number = pl.col(self.counts).fill_null(0) * (pl.col("side") == side)
        is_first = pl.struct("key", "side", "call").is_first_distinct()
        return (number * is_first if self.counts == "calls" else number).sum().over("key")


def matches(before: Profile, after: Profile) -> pl.DataFrame:
    """Match the rows of two profiles.

    Returns one row per match and category: match, level, kind, category, phase, module, operator, outer_operator, shapes,
    kernel, group, before_rows, after_rows, before_count, after_count (null at levels without counts), and total_ns,
    roof_ns and known_ns of both sides. The times sum to those of the profiles exactly.
    """
    left, taken = _rows(before, after).with_row_index("place"), []
    for order, level in enumerate(_levels(left, before, after)):
        rows = level.taken(left)
        left = left.join(rows, on="place", how="anti", maintain_order="left")
        taken.append(rows.with_columns(pl.lit(order).alias("order")))
    known = _sums(pl.concat(taken))
    if "parts" in (before.detail, after.detail):
        known = known.with_columns(pl.lit(None, pl.Int64).alias(f"{side}_count") for side in _SIDES)
    return known


def _rows(before: Profile, after: Profile) -> pl.DataFrame:
    """Return the rows of both sides with columns of their calls; texts are categorical."""
    sides = []
    for number, profile in enumerate((before, after)):
        sides.append(profile.called_rows.with_columns(pl.lit(number, pl.UInt8).alias("side")))
    every = pl.concat(sides)
    numbers, firsts = factorize(*every.select("side", "module"))
    modules = _modules(every.select("side", "module")[firsts]).with_columns(
        pl.col("module").str.split("/").alias("path"),
        pl.col("module").str.extract("([^/]+)$").cast(pl.Categorical).alias("innermost"),
    )
    return (
        every.drop("module")
        .hstack(modules[numbers])
        .with_columns(
            pl.col(*_TEXTS).cast(pl.Categorical),
            (pl.col("operator").is_not_null() & pl.col("outer_operator").is_null() & pl.col("phase").is_null()).alias(
                "is_replayed"
            ),
            (pl.col("blocks") / pl.col("count")).alias("grid"),
        )
    )


def _modules(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the module paths of both sides without wrappers.

    Work inside wrappers only, as in a model compiled as a whole, is assigned to the other side's model, if there is
    exactly one.
    """
    parts = pl.col("module").str.split("/")
    bare = parts.list.eval(pl.element().filter(~pl.element().is_in(_WRAPPERS))).list.join("/")
    paths = rows.with_columns(bare.alias("module"))
    roots = (
        paths.filter(pl.col("module") != "")
        .group_by("side")
        .agg(pl.col("module").str.extract("^([^/]+)").unique().alias("roots"))
        .filter(pl.col("roots").list.len() == 1)
        .select((1 - pl.col("side")).cast(pl.UInt8).alias("side"), pl.col("roots").list.first().alias("root"))
    )
    joined = paths.join(roots, on="side", how="left", maintain_order="left")
    return joined.select(
        pl.when(pl.col("module") != "").then("module").when(pl.col("module") == "").then("root").alias("module")
    )


def _levels(rows: pl.DataFrame, before: Profile, after: Profile) -> list[_Level]:
    """Return the levels, finest first."""
    operator, module, work = pl.col("operator").is_not_null(), pl.col("module").is_not_null(), pl.col("kind") != "idle"
    levels = [
        _Level("cause", ["category"], "count", ~work, is_matched_alone=True),
        _replayed(),
        _Level("call", ["phase", "module", "operator", "shapes"], "calls", operator),
        _Level("call", ["phase", "module", "kernel", "grid"], "count", ~operator & pl.col("kernel").is_not_null()),
        _Level("operator", ["phase", "module", "operator"], "calls", operator),
    ]
    if rows.filter(work).get_column("is_replayed").any():
        # Kernels replayed by a graph have operator and innermost module from the trace of --capture, or from their own.
        levels.append(_Level("replay", ["innermost", "operator", "kernel", "grid"], "count", operator))
    attention = _attention(before, after)
    if attention is not None:
        shown = {"category": pl.lit("attention", pl.Categorical)}
        levels.append(_Level("attention", [pl.lit("attention")], None, work & attention, shown))
    depths = min(rows.filter(work).select(pl.col("path").list.len().max()).item() or 0, _DEEPEST)
    for depth in range(depths, 0, -1):
        head = pl.col("path").list.head(depth).list.join("/").cast(pl.Categorical)
        levels.append(_Level("module", ["phase", head], None, module, {"module": head}))
    one_side = [pl.col("side") == side for side in (0, 1)]
    return [
        *levels,
        _Level("anywhere", ["operator"], "calls", operator),
        _Level("phase-bucket", ["phase", "category"], None, pl.col("phase").is_not_null()),
        _Level("bucket", ["category"], None, work),
        _Level("group", ["group"], None, work),
        _Level("removed", ["phase", "operator", "kernel"], "calls", one_side[0], is_matched_alone=True),
        _Level("new", ["phase", "operator", "kernel"], "calls", one_side[1], is_matched_alone=True),
    ]


def _replayed() -> _Level:
    """Match kernels that one side alone launches without operators, as a graph does, with those of the other side.

    A kernel's grids must agree in the mean of the side, as its calls in a graph are one row.
    """
    operator, of_side = pl.col("operator"), ["side", "kernel"]
    bare = pl.col("side").filter(operator.is_null()).n_unique().over("kernel") == 1
    grid = pl.col("blocks").sum().over(of_side) / pl.col("count").sum().over(of_side)
    operators = operator.drop_nulls()
    sole = pl.when(operators.n_unique().over("key") == 1).then(operators.first().over("key"))
    where = (pl.col("kind") == "kernel") & bare
    return _Level("replay", ["kernel", grid.alias("mean_grid")], "count", where, {"operator": sole})


def _attention(before: Profile, after: Profile) -> pl.Expr | None:
    """Select fused attention of one side, and the kernels of the other that it replaces.

    Returns None where attention did not change.
    """
    fused, conditions = pl.col("category") == "attention", []
    for number, (one, other) in enumerate(((before, after), (after, before))):
        has_fused = one.rows.get_column("category").eq("attention").any()
        if has_fused and other.facts.attention:
            names = [f"aten::{name}" for name in other.facts.attention]
            written_out = pl.col("operator").cast(pl.String).is_in(names) & pl.col("category").is_in(_SCORES)
            conditions.append(
                (pl.col("side") == number) & fused | (pl.col("side") == 1 - number) & (written_out | fused)
            )
    return pl.any_horizontal(conditions) if conditions else None


def _sums(rows: pl.DataFrame) -> pl.DataFrame:
    """Sum rows by match and category, with both sides in the same row."""

    def sole(column: str) -> pl.Expr:
        return pl.when(pl.col(column).n_unique() == 1).then(pl.col(column).first()).alias(column)

    of_side = [
        expression
        for side, name in enumerate(_SIDES)
        for own in [pl.col("side") == side]
        for expression in (
            *(pl.col(column).filter(own).sum().alias(f"{name}_{column}") for column in ("total_ns", "roof_ns", "known_ns")),
            pl.col("row").filter(own).alias(f"{name}_rows"),
            pl.col(f"{name}_count").first(),
        )
    ]  # fmt: skip
    texts = [name for name in _TEXTS if name != "category"]
    return (
        rows.group_by("order", "key", "level", "kind", "category", maintain_order=True)
        .agg(*map(sole, texts), *of_side)
        .with_columns(pl.col(_TEXTS).cast(pl.String))
        .with_row_index("match")
    )
