"""Match kernels of different ranks that are one collective: by number, by order in a step, else by their ends."""

from collections.abc import Callable

import polars as pl

from trace_analyzer.ranks.summary import ROWS, SYNCHRONIZING
from trace_analyzer.schema import typed

ENDS_APART_NS = 500_000
"""Largest distance between ends of one collective: those of two real ranks of 128 differ by up to 0.33 ms."""
_EVEN = ("all_reduce", "all_gather", "reduce_scatter")
"""Collectives in which all ranks have the same number of elements."""
_ODD = 0x9E3779B97F4A7C15
"""Multiplier of Fibonacci hashing (2^64 / golden ratio): distinguishes the ranks of a key."""
WAYS = ("pair", "seq", "comms-id", "order", "ends")
"""Ways of matching rows: ranks and order of a send, `Seq`, the collective's identifier, order in the step, ends."""


def coded(rows: pl.DataFrame, kinds: list[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Convert rows of `JOINED`, ordered by rank and start, to `ROWS`.

    Also returns from, to, step and count of sends, by rank.

    Rows with equal ``key`` are one collective. The key combines the process group and ``Seq``; or the collective's
    identifier (``comms-id``); or the group, the step and the order of launch in it (``order``); for sends and receives
    the group, both ranks, the step and the order (``pair``). New kinds are appended to ``kinds``. All rows of a
    collective share its ``signature``: the operation, the type and, for some, the number of elements. Texts are
    ``pl.Enum``.
    """
    new = rows.get_column("kind").unique().cast(pl.String).sort()
    kinds += [kind for kind in new if kind not in kinds]
    codes = {
        "kind_hash": _of_text(rows, "kind", pl.Series.hash),
        "kind_code": _of_text(
            rows,
            "kind",
            lambda texts: texts.replace_strict(kinds, range(len(kinds)), default=None, return_dtype=pl.UInt8),
        ),
        "is_split": _of_text(rows, "kind", lambda texts: texts.is_in(SYNCHRONIZING)),
        "is_even": _of_text(rows, "kind", lambda texts: texts.is_in(_EVEN)),
        "is_pair": _of_text(rows, "kind", lambda texts: texts == "send_recv"),
        "dtype_hash": _of_text(rows, "dtype", pl.Series.hash).fill_null(0),
        "group_hash": _of_text(rows, "group", pl.Series.hash),
        "comms_hash": _of_text(rows, "comms_id", pl.Series.hash),
    }
    together = rows.select(
        "rank", "row", "seq", "step", "ordinal", "elements", "group_size", "source", "destination", "start_ns", "duration_ns", "exposed_ns"
    ).with_columns(**codes)  # fmt: skip
    together, pairs = _with_channels(together)
    by = (
        pl.when("is_pair", pl.col("channel").is_not_null()).then(WAYS.index("pair"))
        .when("is_pair").then(None)
        .when(pl.col("group_hash").is_not_null() & pl.col("seq").is_not_null()).then(WAYS.index("seq"))
        .when(pl.col("comms_hash").is_not_null()).then(WAYS.index("comms-id"))
        .when(pl.col("group_hash").is_not_null() & pl.col("step").is_not_null()).then(WAYS.index("order"))
    )  # fmt: skip
    together = together.with_columns(by.cast(pl.UInt8).alias("by"))
    is_way = {way: pl.col("by") == place for place, way in enumerate(WAYS)}
    step = pl.col("step").hash()
    number = (
        pl.when(is_way["seq"]).then(pl.col("seq").hash()).when(is_way["comms-id"]).then("comms_hash").otherwise(step)
    )
    other = pl.when(is_way["order"]).then(pl.col("ordinal").hash()).when(is_way["pair"]).then("channel").otherwise(0)
    group = pl.col("group_hash").fill_null(0)
    identity = _mixed(_mixed(group ^ pl.col("by").cast(pl.UInt64), number), other)
    elements = pl.when("is_even").then(pl.col("elements").hash()).otherwise(0)
    result = together.with_columns(
        pl.when(pl.col("by").is_not_null()).then(identity).alias("key"),
        _mixed(_mixed(pl.col("kind_hash"), pl.col("dtype_hash")), elements).alias("signature"),
        pl.coalesce("group_hash", _mixed(pl.lit(0, pl.UInt64), pl.col("group_size").hash())).alias("of"),
        pl.col("kind_code").alias("kind"),
    )
    if _repeats(result):  # as for sends of one channel in a step
        again = pl.int_range(pl.len()).over("rank", "key").cast(pl.UInt64)
        is_again = pl.col("key").is_not_null() & (again > 0)
        result = result.with_columns(pl.when(is_again).then(_mixed(pl.col("key"), again)).otherwise("key").alias("key"))
    return typed(result, ROWS), pairs


def _of_text(rows: pl.DataFrame, name: str, function: Callable[[pl.Series], pl.Series]) -> pl.Series:
    """Apply a function to each distinct string of a column; null stays null."""
    column = rows.get_column(name)
    texts = column.dtype.categories  # type: ignore[attr-defined]
    of_each = function(texts)
    return of_each.gather(column.to_physical()) if len(texts) else of_each.extend_constant(None, len(column))


def _mixed(hashed: pl.Expr, value: pl.Expr) -> pl.Expr:
    """Combine a hash and a value, in this order, to a hash; values are hashes, too, of which null has one of its own."""
    return (hashed.hash(1) ^ value).hash()


def _with_channels(rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Add ``channel``, a hash of both ranks of a send or receive, null where they are unknown.

    Also returns rank, from, to, step and count of sends and receives.
    """
    source = pl.when(pl.col("destination").is_not_null()).then(pl.coalesce("source", "rank")).otherwise("source")
    destination = (
        pl.when(pl.col("source").is_not_null()).then(pl.coalesce("destination", "rank")).otherwise("destination")
    )
    rows = rows.with_columns(source.alias("from"), destination.alias("to"))
    is_known = pl.col("is_pair") & (pl.col("from") != pl.col("to")).fill_null(False)
    channel = _mixed(pl.col("from").hash(), pl.col("to").hash())
    rows = rows.with_columns(pl.when(is_known).then(channel).alias("channel"))
    pairs = (
        rows.filter(pl.col("channel").is_not_null())
        .group_by("rank", "from", "to", "step")
        .agg(pl.len().cast(pl.Int64).alias("count"))
    )
    return rows, pairs


def _repeats(rows: pl.DataFrame) -> bool:
    """Return whether a rank has two rows with the same key."""
    mixed = pl.col("key") ^ (pl.col("rank").cast(pl.UInt64) * _ODD)
    return rows.select(mixed.drop_nulls().n_unique() < pl.col("key").count()).item()  # type: ignore[no-any-return]


def matched_by_key(rows: pl.DataFrame) -> pl.DataFrame:
    """Add ``match`` to `ROWS`: rows with equal key are one collective; null for those without peers.

    Where signatures within a key differ, only rows with the signature of over half of its rows stay matched.
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
    """Return the most frequent delay of ends after the reference's ends of equal signature and step; None without."""
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
    """Match synchronizing rows without a match by ``end_ns``, numbering matches from ``first_match``.

    Only rows of one ``component``, whose clocks are aligned with each other, are matched.

    Close ends of equal signature are one collective where every rank has one, or all ranks have equally many, which are
    then paired in order. Where more ranks meet than the group has, nothing is matched.
    """
    open_rows = rows.filter(pl.col("match").is_null(), pl.col("is_split"), pl.col("end_ns").is_not_null())
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
