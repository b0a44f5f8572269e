"""Find which kernels of different ranks are one collective: by number, by order in a step, else by their ends."""

import polars as pl

from trace_analyzer.ranks.tables import SYNCHRONIZING

ENDS_APART_NS = 500_000
"""Ends of one collective lie within this: those of two real ranks of 128 differ by up to 0.33 ms."""
_EVEN = ("all_reduce", "all_gather", "reduce_scatter")
"""Collectives to which every rank gives as many elements."""
_KEY = ["by", "group", "number", "comms_id", "channel", "place"]


def signature() -> pl.Expr:
    """Return what all kernels of a collective share: what it does, the type and, for some, the number of elements."""
    elements = pl.when(pl.col("kind").is_in(_EVEN)).then("elements")
    return pl.struct("kind", "dtype", elements.alias("elements")).hash().alias("signature")


def matched_by_key(rows: pl.DataFrame) -> pl.DataFrame:
    """Add ``match`` and ``by``: rows of `JOINED` with one number are one collective; null for those without peers.

    The key is the process group and ``Seq``, or the collective's identifier (``comms-id``), or the group, the step and the order of launch in
    it (``order``); of sends and receives the group, both ranks, the step and the order (``pair``). Where the signatures of a match differ, those
    that over half of its rows share stay.
    """
    is_pair = pl.col("kind") == "send_recv"
    grouped = pl.col("group").is_not_null()
    source = pl.when(pl.col("destination").is_not_null()).then(pl.coalesce("source", "rank")).otherwise("source")
    destination = (
        pl.when(pl.col("source").is_not_null()).then(pl.coalesce("destination", "rank")).otherwise("destination")
    )
    rows = rows.with_columns(signature(), source.alias("from"), destination.alias("to"))
    by = (
        pl.when(is_pair & pl.col("from").is_not_null() & pl.col("to").is_not_null() & (pl.col("from") != pl.col("to")))
        .then(pl.lit("pair"))
        .when(is_pair)
        .then(None)
        .when(grouped & pl.col("seq").is_not_null())
        .then(pl.lit("seq"))
        .when(pl.col("comms_id").is_not_null())
        .then(pl.lit("comms-id"))
        .when(grouped & pl.col("step").is_not_null())
        .then(pl.lit("order"))
    )
    keyed = rows.with_columns(by.alias("by")).with_columns(
        pl.when(pl.col("by") == "seq")
        .then("seq")
        .when(pl.col("by").is_in(["order", "pair"]))
        .then("step")
        .alias("number"),
        pl.when(pl.col("by") == "comms-id").then("comms_id").alias("comms_id"),
        pl.when(pl.col("by") == "pair").then(pl.col("from") * (1 << 31) + pl.col("to")).alias("channel"),
    )
    order = pl.struct("start_ns", "row").rank("ordinal").over("rank", "by", "group", "number", "comms_id", "channel")
    keyed = keyed.with_columns(
        pl.when(pl.col("by") == "order").then("ordinal").otherwise(order.cast(pl.Int64)).alias("place")
    )
    numbers = keyed.filter(pl.col("by").is_not_null()).select(_KEY).unique(maintain_order=True).with_row_index("match")
    numbered = keyed.join(numbers, on=_KEY, how="left", nulls_equal=True, maintain_order="left")
    return checked(numbered).drop("number", "channel", "place", "from", "to")


def checked(rows: pl.DataFrame) -> pl.DataFrame:
    """Take out of each match the rows with another signature than over half of it, and matches of a single rank."""
    counts = rows.filter(pl.col("match").is_not_null()).group_by("match", "signature").len("alike")
    kept = (
        counts.with_columns(pl.col("alike").sum().over("match").alias("all"))
        .filter(2 * pl.col("alike") > pl.col("all"), pl.col("alike") > 1)
        .select("match", "signature", pl.lit(True).alias("is_kept"))
    )
    joined = rows.join(kept, on=["match", "signature"], how="left", maintain_order="left")
    return joined.with_columns(pl.when("is_kept").then(name).alias(name) for name in ("match", "by")).drop("is_kept")


def most_frequent_difference(ends: pl.DataFrame, reference: pl.DataFrame) -> int | None:
    """Return by how many ns most ends lie behind ends of equal signature and step of the reference; None where none are alike."""
    differences = (
        ends.join(reference, on=["signature", "step"], nulls_equal=True, suffix="_there")
        .select((pl.col("end_ns") - pl.col("end_ns_there")).sort())
        .to_series()
    )
    if differences.is_empty():
        return None
    near = differences.search_sorted(differences + ENDS_APART_NS, "right") - pl.int_range(len(differences), eager=True)
    first = int(near.arg_max() or 0)
    return int(differences[first : first + int(near[first])].median())  # type: ignore[arg-type]


def matched_by_ends(rows: pl.DataFrame, first_match: int) -> pl.DataFrame:
    """Match synchronizing rows without a match by ``end_ns``, numbering from ``first_match`` on.

    Only rows of one ``component``, whose clocks are aligned with each other, are matched.

    Ends of equal signature that lie close to each other are one collective where every rank there has one, or as many as every other, which are
    taken in order. Where more ranks come together than a group has, nothing is matched.
    """
    open_rows = rows.filter(
        pl.col("match").is_null(), pl.col("kind").is_in(SYNCHRONIZING), pl.col("end_ns").is_not_null()
    )
    if open_rows.is_empty():
        return rows
    key = ["component", "signature", "group_size"]
    ordered = open_rows.select("rank", "row", *key, "end_ns").sort(*key, "end_ns", "rank", "row")
    begins = (
        (pl.col("component") != pl.col("component").shift())
        | (pl.col("signature") != pl.col("signature").shift())
        | pl.col("group_size").ne_missing(pl.col("group_size").shift())
        | (pl.col("end_ns") - pl.col("end_ns").shift() > ENDS_APART_NS)
    )
    clusters = ordered.with_columns(begins.fill_null(True).cum_sum().alias("cluster")).with_columns(
        pl.int_range(pl.len()).over("cluster", "rank").alias("place"), pl.len().over("cluster", "rank").alias("own")
    )
    sound = (
        (pl.col("own").max().over("cluster") == pl.col("own").min().over("cluster"))
        & (pl.col("rank").n_unique().over("cluster") > 1)
        & (pl.col("rank").n_unique().over("cluster") <= pl.col("group_size").fill_null(1 << 40))
    )
    numbers = clusters.filter(sound)
    ids = numbers.select("cluster", "place").unique(maintain_order=True).with_row_index("by_ends")
    numbers = numbers.join(ids, on=["cluster", "place"]).select(
        "rank", "row", (pl.col("by_ends") + first_match).cast(pl.UInt32).alias("by_ends")
    )
    joined = rows.join(numbers, on=["rank", "row"], how="left", maintain_order="left")
    is_new = pl.col("by_ends").is_not_null()
    return joined.with_columns(
        pl.coalesce("match", "by_ends").alias("match"), pl.when(is_new).then(pl.lit("ends")).otherwise("by").alias("by")
    ).drop("by_ends")
