"""Match the work of two sides level by level, finest first; each level gets what the previous ones did not match."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from trace_analyzer.compare.profiles import Profile
from trace_analyzer.frames.arrays import Codes, codes_of, combined, first_of_each, sums_by
from trace_analyzer.frames.lookups import factorize

LEVELS = (
    "cause", "call", "operator", "replay", "attention", "module", "anywhere", "phase-bucket", "bucket",
    "group", "removed", "new",
)  # fmt: skip
"""The levels in order; idle time is matched by its cause, and unmatched work is removed or new."""
MATCHED = {
    "call": ("call", "replay"),
    "outer": ("call", "operator", "replay"),
    "module": ("call", "operator", "replay", "attention", "module"),
    "bucket": LEVELS[1:10],
}
"""The levels whose kernel time each matched share of the report includes: its own and all finer ones."""
COUNTED = ("cause", "call", "operator", "replay", "anywhere", "removed", "new")
"""Levels with counts of gaps, calls or kernels. At the others, all time counts as replaced."""
_DEEPEST = 12
_TEXTS = ("phase", "module", "operator", "outer_operator", "shapes", "kernel", "category", "group")
_WRAPPERS = ("OptimizedModule", "DistributedDataParallel", "FullyShardedDataParallel", "DataParallel")
"""Modules that wrap a model: torch.compile and data parallelism add them."""
_SCORES = ("matmul", "bmm", "softmax", "attention", "pointwise", "copy_cast")
"""Buckets of the kernels of unfused attention."""


@dataclass(frozen=True)
class _Level:
    """Declare a level: its name, the columns of its key, what it counts, and the rows to which it applies.

    ``depth`` is the number of path components of a match by module. Rows at a level with ``alone`` need no counterpart
    on the other side.
    """

    name: str
    key: list[str]
    counts: str | None
    where: pl.Expr
    depth: int = 0
    is_matched_alone: bool = False


def matches(before: Profile, after: Profile) -> pl.DataFrame:
    """Match the rows of two profiles.

    Returns one row per match and category: match, level, kind, category, name, phase, module, operator, shapes,
    before_total_ns, after_total_ns, before_count, after_count (null at levels without counts), and roof_ns and known_ns of both
    sides. The times sum to those of the profiles exactly.
    """
    rows = _rows(before, after)
    taken = _Cascade(rows, _levels(rows, before, after)).frame()
    every = rows[taken.get_column("place")].hstack(taken.drop("place"))
    depth, is_attention = pl.col("depth"), pl.col("level") == "attention"
    of_match = pl.when(depth > 0).then(pl.col("path").list.head(depth).list.join("/").cast(pl.Categorical))
    attention = pl.when(is_attention).then(pl.lit("attention", pl.Categorical)).otherwise("category")
    every = every.with_columns(of_match.otherwise("module").alias("module"), attention.alias("category"))
    known = _sums(every)
    if "parts" in (before.detail, after.detail):
        known = known.with_columns(pl.lit(None, pl.Int64).alias(f"{side}_count") for side in ("before", "after"))
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
        _Level("call", ["phase", "module", "operator", "shapes"], "calls", operator),
        _Level("call", ["phase", "module", "kernel", "grid"], "count", ~operator & pl.col("kernel").is_not_null()),
        _Level("operator", ["phase", "module", "operator"], "calls", operator),
    ]
    if rows.filter(work).get_column("is_replayed").any():
        # Kernels replayed by a graph have operator and innermost module from the trace of --capture, or from their own.
        levels.append(_Level("replay", ["innermost", "operator", "kernel", "grid"], "count", operator))
    attention = _attention(before, after)
    if attention is not None:
        levels.append(_Level("attention", [], None, work & attention))
    depths = min(rows.filter(work).select(pl.col("path").list.len().max()).item() or 0, _DEEPEST)
    levels += [_Level("module", ["phase", f"depth {depth}"], None, module, depth) for depth in range(depths, 0, -1)]
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


_NONE = -1


class _Cascade:
    """Match rows level by level: matched rows are removed, the rest goes to the next level."""

    def __init__(self, rows: pl.DataFrame, levels: Sequence[_Level]) -> None:
        """Take the rows of both sides, and the levels in order."""
        self._levels = levels
        self._rows = rows
        self._side = rows.get_column("side").to_numpy()
        conditions = rows.select(level.where.fill_null(False).alias(str(n)) for n, level in enumerate(levels))
        self._may = [column.to_numpy() for column in conditions]
        self._counts = {name: rows.get_column(name).fill_null(0).to_numpy() for name in ("count", "calls")}
        self._codes: dict[str, Codes] = {}
        modules, firsts = factorize(rows.get_column("module"))
        self._module, self._paths = modules.to_numpy(), rows.get_column("path")[firsts]

    def frame(self) -> pl.DataFrame:
        """Return the rows in order of their levels.

        Columns: place (of the row), order and name of the level, depth, key (of the match at that level) and n (the
        level's count on that side).
        """
        order, key, n = (np.full(self._rows.height, _NONE) for _ in range(3))
        for number in range(len(self._levels)):
            places = np.flatnonzero((order == _NONE) & self._may[number])
            if len(places):
                self._take(number, (order, key, n), places)
        levels = pl.DataFrame(
            {
                "order": range(len(self._levels)),
                "level": [level.name for level in self._levels],
                "depth": [level.depth for level in self._levels],
            }
        )
        places = np.argsort(order, kind="stable")
        known = {"place": places, "key": key[places], "n": n[places]}
        counted = pl.when(pl.col("n") != _NONE).then("n").alias("n")
        return pl.DataFrame(known).with_columns(counted).hstack(levels[pl.Series(order[places])])

    def _take(self, number: int, taken: tuple[Codes, Codes, Codes], places: Codes) -> None:
        """Match the rows at ``places`` at this level; write order, key and n of the matched ones."""
        level, (order, key, n) = self._levels[number], taken
        side = self._side[places].astype(np.int64)
        codes = combined([self._code(column)[places] for column in level.key] or [np.zeros(len(places), np.int64)])
        if not level.is_matched_alone:
            has = np.zeros((2, int(codes.max()) + 1), np.bool_)
            has[side, codes] = True
            is_matched = (has[0] & has[1])[codes]
            places, side, codes = places[is_matched], side[is_matched], codes[is_matched]
        order[places], key[places] = number, codes
        if level.counts is not None and len(places):
            n[places] = self._counted(level.counts, places, 2 * codes + side)

    def _counted(self, counts: str, places: Codes, groups: Codes) -> Codes:
        """Return the level's count in each group (a match's side), by row."""
        numbers, count = self._counts[counts][places], int(groups.max()) + 1
        if counts == "calls":
            each = first_of_each(combined([groups, self._code("call")[places]]))
            return sums_by(groups[each], numbers[each], count)[groups]
        return sums_by(groups, numbers, count)[groups]

    def _code(self, column: str) -> Codes:
        """Return the codes of a column of the rows, or of the first components of their module path (``depth 2``)."""
        if column not in self._codes:
            if column.startswith("depth "):
                heads = self._paths.list.head(int(column.removeprefix("depth "))).list.join("/")
                self._codes[column] = codes_of(heads)[self._module]
            else:
                self._codes[column] = codes_of(self._rows.get_column(column))
        return self._codes[column]


def _sums(rows: pl.DataFrame) -> pl.DataFrame:
    """Sum rows by match and category, with both sides in the same row."""

    def of(side: int, column: str) -> pl.Expr:
        return pl.col(column).filter(pl.col("side") == side)

    def sole(column: str) -> pl.Expr:
        return pl.when(pl.col(column).n_unique() == 1).then(pl.col(column).first()).alias(column)

    counts = rows.group_by("order", "key").agg(
        of(0, "n").first().alias("before_count"), of(1, "n").first().alias("after_count")
    )
    is_counted = pl.col("level").is_in(COUNTED)
    return (
        rows.group_by("order", "key", "level", "kind", "category", maintain_order=True)
        .agg(
            *(
                sole(column)
                for column in ("phase", "module", "operator", "outer_operator", "shapes", "kernel", "group")
            ),
            *(
                of(side, column).sum().alias(f"{name}_{column}")
                for side, name in enumerate(("before", "after"))
                for column in ("total_ns", "roof_ns", "known_ns")
            ),
            pl.col("row").filter(pl.col("side") == 0).alias("before_rows"),
            pl.col("row").filter(pl.col("side") == 1).alias("after_rows"),
        )
        .join(counts, on=["order", "key"], how="left", maintain_order="left")
        .with_columns(
            pl.when(is_counted).then(pl.col("before_count").fill_null(0)).alias("before_count"),
            pl.when(is_counted).then(pl.col("after_count").fill_null(0)).alias("after_count"),
            pl.col("category", "phase", "module", "operator", "outer_operator", "shapes", "kernel", "group").cast(
                pl.String
            ),
        )
        .with_row_index("match")
    )
