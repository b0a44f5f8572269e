"""Find the ranks that do the same work: a rank's peers."""

import polars as pl

ALIKE = 0.9
"""Least Ruzicka similarity of calls per step at which a rank without peers joins the most similar role: a truncated
file or a late start changes a few calls, another pipeline stage changes many."""


def roles(work: pl.DataFrame) -> dict[int, str]:
    """Return the role of each rank of ``work``; ranks with equal calls per step share one.

    ``work`` has rank, category, operator and count.

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
    sizes = {role: sum(1 for other in assigned.values() if other == role) for role in set(assigned.values())}
    shared = {
        role: next(rank for rank in assigned if assigned[rank] == role) for role, size in sizes.items() if size > 1
    }
    merged = dict(assigned)
    examples = list(shared.values()) or [min(assigned, default=0)]
    for rank, role in assigned.items():
        if sizes[role] == 1 and rank not in examples:
            near = _nearest(calls.filter(pl.col("rank") == rank), calls.filter(pl.col("rank").is_in(examples)))
            if near is not None:
                merged[rank] = merged[near]
            elif not shared:
                examples.append(rank)
    names: dict[int, str] = {}
    for role in merged.values():
        names.setdefault(role, _letters(len(names)))
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


def _letters(number: int) -> str:
    """Return A, B, ..., Z, AA, AB, ... for 0, 1, ..."""
    letters = ""
    number += 1
    while number:
        number, place = divmod(number - 1, 26)
        letters = chr(ord("A") + place) + letters
    return letters


def imbalance(work: pl.DataFrame, role_of: pl.DataFrame, least_ns: float) -> pl.DataFrame:
    """Return operators whose time differs between the ranks of a role, by (max - mean) / max, largest loss first.

    ``least_ns`` is the least (max - mean) per step that is listed. Columns: role, operator, category, ranks, mean_ns,
    max_ns, max_rank, ratio.
    """
    compute = work.filter(pl.col("kind") == "kernel").join(role_of, on="rank")
    sizes = role_of.group_by("role").len("ranks")
    grouped = (
        compute.group_by("role", "operator", "category")
        .agg(
            pl.col("step_ns").sum().alias("sum_ns"),
            pl.col("step_ns").max().alias("max_ns"),
            pl.col("rank").sort_by("step_ns", "rank", descending=[True, False]).first().alias("max_rank"),
        )
        .join(sizes, on="role")
        .filter(pl.col("ranks") > 1)
        .with_columns((pl.col("sum_ns") / pl.col("ranks")).alias("mean_ns"))
        .with_columns(((pl.col("max_ns") - pl.col("mean_ns")) / pl.col("max_ns")).alias("ratio"))
    )
    loss = pl.col("max_ns") - pl.col("mean_ns")
    return grouped.filter(loss > least_ns).sort(
        loss, "role", "operator", "category", descending=[True, False, False, False], nulls_last=True
    ).select("role", "operator", "category", "ranks", "mean_ns", "max_ns", "max_rank", "ratio")  # fmt: skip
