"""Classify copies by direction, with rules from ``copies.toml``."""

from dataclasses import dataclass
from functools import cache

import polars as pl

from trace_analyzer.catalog.documents import document
from trace_analyzer.catalog.patterns import matches

WITHIN_DEVICE = "within-device"
FROM_HOST = "host-to-device"
_MATCHED = 4_096


@dataclass(frozen=True)
class DirectionRule:
    """Hold a direction and the pattern of names that imply it."""

    name: str
    pattern: str
    examples: tuple[str, ...]
    counterexamples: tuple[str, ...]


@cache
def direction_rules() -> tuple[DirectionRule, ...]:
    """Return the rules in the file's order, of which the first match counts."""
    raw = document("copies.toml")
    return tuple(
        DirectionRule(rule["name"], rule["pattern"], tuple(rule["examples"]), tuple(rule["counterexamples"]))
        for rule in raw["directions"]
    )


def copy_direction() -> pl.Expr:
    """Return the direction of a copy from its ``name``; null where no rule matches."""
    name = pl.col("name").str.slice(0, _MATCHED)
    return pl.coalesce(pl.when(matches(name, rule.pattern)).then(pl.lit(rule.name)) for rule in direction_rules())
