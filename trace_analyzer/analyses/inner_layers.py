"""Find the layers within a pass: the most common of the equal parts that its launches fall into.

A pass is layers, and what comes once: the lookup of its tokens, its input, its head. A layer holds no layers.
"""

from typing import NamedTuple

import polars as pl

from trace_analyzer import thresholds

_CANDIDATES = 12
"""Kinds of work that are tried as the beginning of a layer, so that the cost stays linear."""
_LEAST_LAUNCHES = 3
"""A layer launches more than a product and its bias."""
_LEAST_SHARE = 0.5
"""Share of a pass's launches that its layers make at least; products of one layer that come alike make fewer."""


class Layers(NamedTuple):
    """Hold for each launch of a repetition whether it is in none of the layers, and what one layer launches."""

    outside: pl.Series
    works: pl.Series


def layers_of(launches: pl.DataFrame) -> Layers | None:
    """Return the layers of a repetition; None where there are none.

    ``launches`` are those of one repetition in order, with ``work``. Each kind of work that comes three times or more is tried as the
    beginning of a layer, the counts that most kinds share first. Layers are the parts from one such launch to the next that launch
    the same things, the most common of them; they come `STEP_REPEATS` times or more and hold half of the launches.
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
    """Return whether what is launched beside the layers is a pass's, not that of one more layer of another kind.

    Beside the layers stand the last one, whose end does not show, and what comes once. The latter holds a product, as a head does,
    and not half of what a layer launches: a group of layers of which one looks up positions holds that layer, with or
    without products of its own. ``launches`` need work and multiplies.
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
    """Return a kind of work for each count of three or more, the counts that most kinds share first."""
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
