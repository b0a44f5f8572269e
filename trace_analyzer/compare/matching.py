"""Match the work of two sides, the finest level first: what a level does not match goes on to the next."""

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from trace_analyzer.compare.profiles import Profile

LEVELS = (
    "cause",
    "call",
    "operator",
    "outer",
    "replay",
    "innermost",
    "attention",
    "module",
    "anywhere",
    "kernel",
    "phase-bucket",
    "bucket",
    "group",
    "removed",
    "new",
)
"""The levels, in order; idle time is matched by its cause, and what is left is removed or new."""
MATCHED = {
    "call": ("call", "replay"),
    "outer": ("call", "operator", "outer", "replay", "innermost"),
    "module": ("call", "operator", "outer", "replay", "innermost", "attention", "module"),
    "bucket": LEVELS[1:13],
}
"""The levels whose kernel time each matched share of the report includes: its own and the finer ones."""
COUNTED = ("cause", "call", "operator", "outer", "replay", "innermost", "anywhere", "kernel", "removed", "new")
"""Levels that count something: gaps, calls or kernels. At the others, all time is replaced."""
_DEEPEST = 12
_TEXTS = ("phase", "module", "operator", "outer_operator", "shapes", "outer_shapes", "kernel", "category", "group")
_COMPILED = r"CompiledFunction|Torch-Compiled Region|CompiledFxGraph"
_WRAPPERS = ("OptimizedModule", "DistributedDataParallel", "FullyShardedDataParallel", "DataParallel")
"""Modules around a model that are no part of it: what torch.compile and data parallelism wrap it in."""
_SCORES = ("matmul", "bmm", "softmax", "attention", "pointwise", "copy_cast")
"""Buckets of the kernels that attention consists of where it is not fused."""


@dataclass(frozen=True)
class _Level:
    """Declare a level: its name, the columns of its key, what it counts, and which rows it may match."""

    name: str
    key: list[str]
    counts: str | None = None
    where: pl.Expr | None = None


def matches(before: Profile, after: Profile) -> pl.DataFrame:
    """Match the rows of two profiles.

    Returns one row per match and category: match, level, kind, category, name, phase, module, operator, shapes, before_ns, after_ns,
    before_count, after_count (null where the level counts nothing), and of both sides roof_ns and known_ns. Its times sum to those of the
    profiles exactly.
    """
    rows = _rows(before, after)
    matched = [
        frame.with_columns(pl.lit(level.name).alias("level"), pl.lit(place, pl.Int64).alias("order"))
        for place, (level, frame) in enumerate(_cascade(rows, before, after))
    ]
    every = pl.concat(matched, how="diagonal_relaxed")
    known = _sums(every)
    if "parts" in (before.detail, after.detail):
        known = known.with_columns(pl.lit(None, pl.Int64).alias(f"{side}_count") for side in ("before", "after"))
    return known


def _rows(before: Profile, after: Profile) -> pl.DataFrame:
    """Return the rows of both sides with what calls say of them; texts are categorical."""
    sides = []
    for number, profile in enumerate((before, after)):
        calls = profile.calls.rename({"count": "calls", "outer_count": "outer_calls"}).drop("flop", "first")
        sides.append(
            profile.rows.join(calls, on="call", how="left", maintain_order="left").with_columns(
                pl.lit(number, pl.UInt8).alias("side")
            )
        )
    every = pl.concat(sides)
    named = every.drop("module").hstack(_modules(every.select("side", "module")))
    return named.with_columns(
        pl.col(*_TEXTS).cast(pl.Categorical),
        pl.col("module").str.split("/").alias("path"),
        pl.col("module").str.extract("([^/]+)$").cast(pl.Categorical).alias("innermost"),
        (pl.col("operator").is_not_null() & pl.col("outer_operator").is_null() & pl.col("phase").is_null()).alias(
            "is_replayed"
        ),
        (pl.col("blocks") / pl.col("count")).alias("grid"),
        pl.col("outer_operator").str.contains(_COMPILED).fill_null(True).alias("is_compiled"),
    )


def _modules(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the module paths of both sides without wrappers.

    What lies in nothing but wrappers, as a model that was compiled as a whole does, lies in the other side's model, if that is one.
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


def _cascade(rows: pl.DataFrame, before: Profile, after: Profile) -> Iterator[tuple[_Level, pl.DataFrame]]:
    """Yield each level with the rows that it matches and their number ``key`` of match."""
    idle = pl.col("kind") == "idle"
    yield _Level("cause", ["category"], "rows"), _numbered(rows.filter(idle), ["category"])
    left = rows.filter(~idle)
    for level in _levels(left, before, after):
        if left.is_empty():
            return
        matched, left = _match(left, level)
        if matched.height:
            yield level, matched
    for side, name in enumerate(("removed", "new")):
        own = left.filter(pl.col("side") == side)
        if own.height:
            yield _Level(name, ["operator"], "calls"), _numbered(own, ["phase", "operator", "kernel"])


def _levels(rows: pl.DataFrame, before: Profile, after: Profile) -> Iterator[_Level]:
    """Yield the levels of work, the finest first."""
    operator, module = pl.col("operator").is_not_null(), pl.col("module").is_not_null()
    yield _Level("call", ["phase", "module", "operator", "shapes"], "calls", operator)
    yield _Level("call", ["phase", "module", "kernel", "grid"], "rows", ~operator & pl.col("kernel").is_not_null())
    yield _Level("operator", ["phase", "module", "operator"], "calls", operator)
    yield _Level("outer", ["phase", "module", "outer_operator"], "outer_calls", ~pl.col("is_compiled"))
    if rows.get_column("is_replayed").any():
        # Kernels that a graph replays know their operator and the innermost module, from the trace of --capture or their own.
        yield _Level("replay", ["innermost", "operator", "kernel", "grid"], "rows", operator)
        yield _Level("innermost", ["innermost", "operator"], "rows", operator & module)
    attention = _attention(before, after)
    if attention is not None:
        yield _Level("attention", ["is_attention"], None, attention)
    depths = rows.select(pl.col("path").list.len().max()).item() or 0
    for depth in range(min(depths, _DEEPEST), 0, -1):
        yield _Level("module", ["phase", f"depth {depth}"], None, module)
    yield _Level("anywhere", ["operator"], "calls", operator)
    yield _Level("kernel", ["kernel"], "rows", pl.col("kernel").is_not_null())
    yield _Level("phase-bucket", ["phase", "category"], None, pl.col("phase").is_not_null())
    yield _Level("bucket", ["category"])
    yield _Level("group", ["group"])


def _attention(before: Profile, after: Profile) -> pl.Expr | None:
    """Select fused attention of a side, and the other's kernels that it replaces; None where neither side changed."""
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


def _match(rows: pl.DataFrame, level: _Level) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the rows whose key both sides have, numbered by it, and the others."""
    keyed = rows
    for column in level.key:
        if column.startswith("depth "):
            path = pl.col("path").list.head(int(column.removeprefix("depth "))).list.join("/")
            keyed = keyed.with_columns(path.cast(pl.Categorical).alias(column))
        elif column == "is_attention":
            keyed = keyed.with_columns(pl.lit(True).alias(column))
    may = pl.lit(True) if level.where is None else level.where
    keyed = keyed.with_columns(may.fill_null(False).alias("may"))
    both = (
        keyed.filter("may")
        .group_by(level.key, maintain_order=True)
        .agg(pl.col("side").n_unique().alias("sides"))
        .filter(pl.col("sides") == 2)
        .drop("sides")
        .with_row_index("key")
    )
    numbered = keyed.join(both, on=level.key, how="left", nulls_equal=True, maintain_order="left")
    is_matched = pl.col("may") & pl.col("key").is_not_null()
    matched = numbered.filter(is_matched)
    if level.name == "attention":
        matched = matched.with_columns(pl.lit("attention", pl.Categorical).alias("category"))
    if level.name == "module":
        matched = matched.with_columns(pl.col(level.key[1]).alias("module"))
    return _counted(matched, level), numbered.filter(~is_matched).select(rows.columns)


def _numbered(rows: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """Return rows numbered by a key, with their count."""
    keys = rows.select(key).unique(maintain_order=True).with_row_index("key")
    level = _Level("", key, "rows" if rows.is_empty() or rows.get_column("kind").eq("idle").all() else "calls")
    return _counted(rows.join(keys, on=key, how="left", nulls_equal=True, maintain_order="left"), level)


def _counted(rows: pl.DataFrame, level: _Level) -> pl.DataFrame:
    """Add ``n``, what the level counts in a row's match on its side."""
    if level.counts is None:
        return rows.with_columns(pl.lit(None, pl.Int64).alias("n"))
    place = ["key", "side"]
    if level.counts == "rows":
        return rows.with_columns(pl.col("count").sum().over(place).alias("n"))
    if level.counts == "outer_calls":
        # Calls of one outermost operator launch in several inner ones: these are counted once.
        once = (
            rows.unique([*place, "call"]).group_by(*place, "outer_shapes").agg(pl.col("outer_calls").max().alias("n"))
        )
    else:
        once = rows.unique([*place, "call"]).select(*place, pl.col("calls").alias("n"))
    counts = once.group_by(place).agg(pl.col("n").sum())
    return rows.join(counts, on=place, how="left", maintain_order="left")


def _sums(rows: pl.DataFrame) -> pl.DataFrame:
    """Sum rows by match and category, with both sides beside each other."""

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
