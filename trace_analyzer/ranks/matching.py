"""Find which kernels of different ranks are one collective: by number, by order in a step, else by their ends."""

import polars as pl

from trace_analyzer.ranks.tables import ROWS, SYNCHRONIZING, typed

ENDS_APART_NS = 500_000
"""Ends of one collective lie within this: those of two real ranks of 128 differ by up to 0.33 ms."""
_EVEN = ("all_reduce", "all_gather", "reduce_scatter")
"""Collectives to which every rank gives as many elements."""
_ODD = 0x9E3779B97F4A7C15
"""2^64 over the golden ratio: tells the ranks of a key apart."""
WAYS = ("pair", "seq", "comms-id", "order", "ends")
"""What rows are matched by: ranks and order of a send, `Seq`, the collective's identifier, order in the step, ends."""


def signature() -> pl.Expr:
    """Return what all kernels of a collective share: what it does, the type and, for some, the number of elements."""
    elements = pl.when(pl.col("kind").is_in(_EVEN)).then("elements")
    return pl.struct("kind", "dtype", elements.alias("elements")).hash().alias("signature")


def coded(rows: pl.DataFrame, kinds: list[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return rows of `JOINED`, in order of rank and start, as `ROWS`; and from, to, step and count of sends, by rank.

    Rows of one ``key`` are one collective. It is the process group and ``Seq``, or the collective's identifier (``comms-id``), or the group, the step and the
    order of launch in it (``order``); of sends and receives the group, both ranks, the step and the order (``pair``). Kinds that are new are
    appended to ``kinds``.
    """
    kinds += [kind for kind in rows.get_column("kind").unique().sort() if kind not in kinds]
    is_pair = pl.col("kind") == "send_recv"
    grouped = pl.col("group").is_not_null()
    source = pl.when(pl.col("destination").is_not_null()).then(pl.coalesce("source", "rank")).otherwise("source")
    destination = (
        pl.when(pl.col("source").is_not_null()).then(pl.coalesce("destination", "rank")).otherwise("destination")
    )
    rows = rows.with_columns(source.alias("from"), destination.alias("to"))
    by = (
        pl.when(is_pair & pl.col("from").is_not_null() & pl.col("to").is_not_null() & (pl.col("from") != pl.col("to")))
        .then(WAYS.index("pair"))
        .when(is_pair)
        .then(None)
        .when(grouped & pl.col("seq").is_not_null())
        .then(WAYS.index("seq"))
        .when(pl.col("comms_id").is_not_null())
        .then(WAYS.index("comms-id"))
        .when(grouped & pl.col("step").is_not_null())
        .then(WAYS.index("order"))
    )
    rows = rows.with_columns(by.cast(pl.UInt8).alias("by"))
    is_way = {way: pl.col("by") == place for place, way in enumerate(WAYS)}
    identity = pl.struct(
        "by",
        "group",
        pl.when(is_way["seq"]).then("seq").when(is_way["order"] | is_way["pair"]).then("step").alias("number"),
        pl.when(is_way["comms-id"]).then("comms_id").alias("comms_id"),
        pl.when(is_way["pair"]).then(pl.col("from") * (1 << 31) + pl.col("to")).alias("channel"),
        pl.when(is_way["order"]).then("ordinal").alias("ordinal"),
    ).hash()
    rows = rows.with_columns(pl.when(pl.col("by").is_not_null()).then(identity).alias("key"))
    of = pl.coalesce("group", pl.format("size {}", "group_size"), pl.lit("ungrouped")).hash()
    if _repeats(rows):  # as sends of one channel in a step do
        again = pl.int_range(pl.len()).over("rank", "key")
        rows = rows.with_columns(
            pl.when(again > 0).then(pl.struct("key", again.alias("again")).hash()).otherwise("key").alias("key")
        )
    result = rows.with_columns(
        signature(),
        of.alias("of"),
        pl.col("kind").is_in(SYNCHRONIZING).alias("is_split"),
        pl.col("kind").replace_strict(kinds, range(len(kinds)), return_dtype=pl.UInt8).alias("kind"),
    )
    pairs = (
        rows.filter(pl.col("by") == WAYS.index("pair"))
        .group_by("rank", "from", "to", "step")
        .agg(pl.len().cast(pl.Int64).alias("count"))
    )
    return typed(result, ROWS), pairs


def _repeats(rows: pl.DataFrame) -> bool:
    """Return whether a rank may have two rows of one key."""
    mixed = pl.col("key") ^ (pl.col("rank").cast(pl.UInt64) * _ODD)
    return rows.select(mixed.drop_nulls().n_unique() < pl.col("key").count()).item()  # type: ignore[no-any-return]


def matched_by_key(rows: pl.DataFrame) -> pl.DataFrame:
    """Add ``match`` to `ROWS`: rows of one key are one collective; null for those without peers.

    Where the signatures of a key differ, those that over half of its rows share stay.
    """
    keys = (
        rows.lazy()
        .filter(pl.col("key").is_not_null())
        .group_by("key")
        .agg(
            pl.len().alias("rows"),
            pl.col("signature").min().alias("least"),
            pl.col("signature").max().alias("greatest"),
        )
        .collect()
    )
    if not keys.filter(pl.col("least") != pl.col("greatest")).is_empty():
        alike = (
            rows.filter(pl.col("key").is_not_null())
            .group_by("key", "signature")
            .len("alike")
            .sort("key", "alike", "signature", descending=[False, True, False])
            .unique("key", keep="first")
        )
        keys = keys.join(alike, on="key").filter(2 * pl.col("alike") > pl.col("rows"), pl.col("alike") > 1)
        keys = keys.with_columns(pl.col("signature").alias("least"))
    numbers = keys.filter(pl.col("rows") > 1).sort("key").with_row_index("match")
    joined = rows.join(
        numbers.select("key", "match", "least"), on="key", how="left", maintain_order="left"
    ).with_columns(pl.when(pl.col("least") == pl.col("signature")).then("match").alias("match"))
    return joined.with_columns(pl.when(pl.col("match").is_not_null()).then("by").alias("by")).drop("least")


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
    open_rows = rows.filter(pl.col("match").is_null(), pl.col("is_split"), pl.col("end_ns").is_not_null())
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
        pl.coalesce("match", "by_ends").alias("match"),
        pl.when(is_new).then(pl.lit(WAYS.index("ends"), pl.UInt8)).otherwise("by").alias("by"),
    ).drop("by_ends")
