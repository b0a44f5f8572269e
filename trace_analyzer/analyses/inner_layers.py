"""Find the layers within a pass: the most frequent of equal parts of its launches.

A pass consists of layers and once-only parts: the lookup of its tokens, its input, its head. A layer contains no
layers.
"""

from typing import NamedTuple

import polars as pl

from trace_analyzer import thresholds

_CANDIDATES = 12
"""Number of kinds of work that are tried as the beginning of a layer, to keep the cost linear."""
_LEAST_LAUNCHES = 3
"""Least launches of a layer: it has more than a matmul and its bias."""
_LEAST_SHARE = 0.5
"""Least share of a pass's launches within its layers; repeated matmuls within one layer have less."""


class Layers(NamedTuple):
    """Hold whether each launch of a repetition is outside all layers, and the launches of one layer."""

    outside: pl.Series
    works: pl.Series


def layers_of(launches: pl.DataFrame) -> Layers | None:
    """Return the layers of a repetition; None without layers.

    ``launches`` are those of one repetition in order, with ``work``. Each kind of work with at least three launches is
    tried as the beginning of a layer, in the order of the counts that most kinds share. Layers are the most frequent of
    the parts, between two such launches, that launch the same work. They must occur at least `STEP_REPEATS` times and
    have half of the launches.
    """
    for anchor in _anchors(launches.get_column("work")):
        parts = launches.select(pl.col("work").hash().alias("code"), (pl.col("work") == anchor).cum_sum().alias("part"))
        last = parts.get_column("part").item(-1)
        whole = pl.col("part").is_between(1, last - 1)
        made = parts.filter(whole).group_by("part").agg(pl.len().alias("launches"), pl.col("code").sum())
        kinds = made.group_by("launches", "code").agg(pl.len().alias("times"), pl.col("part"))
        kinds = kinds.with_columns((pl.col("times") * pl.col("launches")).alias("held")).filter(
            pl.col("times") >= thresholds.STEP_REPEATS,
            pl.col("launches") >= _LEAST_LAUNCHES,
            pl.col("held") >= _LEAST_SHARE * launches.height,
        )
        if kinds.height:
            layers = kinds.sort("held", descending=True).get_column("part").item(0)
            one = launches.filter(parts.get_column("part") == layers.item(0))
            return Layers(~parts.get_column("part").is_in(layers.implode()), one.get_column("work"))
    return None


def is_pass_around(launches: pl.DataFrame, layers: Layers) -> bool:
    """Return whether the launches outside the layers belong to a pass, and not to one more layer of another kind.

    Outside the layers are the last one, whose end is unknown, and once-only parts. The latter must include a matmul, as
    a head does, and less than half of a layer's launches. A group of layers, one of which looks up positions, has that
    layer as its rest, with or without matmuls of its own. ``launches`` needs work and multiplies.
    """
    counts = layers.works.to_frame("work").group_by("work").agg(pl.len().alias("in_layer"))
    once = (
        launches.filter(layers.outside)
        .join(counts, on="work", how="left", maintain_order="left")
        .filter(pl.col("work").cum_count().over("work") > pl.col("in_layer").fill_null(0))
    )
    again = once.group_by("work").agg(pl.len().alias("times"), pl.col("in_layer").first().fill_null(0))
    shared = int(again.select(pl.min_horizontal("times", "in_layer").sum()).item())
    return bool(once.get_column("multiplies").any()) and shared < thresholds.OTHER_LAYER_RATIO * layers.works.len()


def _anchors(works: pl.Series) -> list[str]:
    """Return one kind of work for each count of at least three, in the order of the counts that most kinds share."""
    counts = works.to_frame("work").group_by("work", maintain_order=True).len("count")
    return (
        counts.filter(pl.col("count") > thresholds.STEP_REPEATS)
        .with_columns(pl.len().over("count").alias("support"))
        .unique("count", keep="first", maintain_order=True)
        .sort("support", "count", descending=True)
        .head(_CANDIDATES)
        .get_column("work")
        .to_list()
    )
