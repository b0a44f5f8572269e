"""Parse serving frameworks' annotations of steps, with rules from ``serving_steps.toml``."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import polars as pl

from trace_analyzer.catalog.documents import document
from trace_analyzer.tuning import remembered

KINDS = ("prefill", "decode", "mixed")
"""Kinds of steps: prompt tokens only, one or a few tokens per running request, or both."""

_STEPS = {
    **dict.fromkeys(("name", "source", "step_kind"), pl.String),
    **dict.fromkeys(("prefill_tokens", "decode_tokens", "tokens"), pl.Int64),
}
_COUNTS = ("prefill_requests", "decode_requests", "prefill_tokens", "decode_tokens", "requests", "tokens")


@dataclass(frozen=True)
class ServingRule:
    """Hold a pattern of names, their framework, and examples: a name, its kind, its tokens (-1 for unknown)."""

    source: str
    pattern: str
    examples: tuple[tuple[str, str, int], ...]


@cache
def serving_rules() -> tuple[tuple[ServingRule, ...], Mapping[str, str], tuple[str, ...]]:
    """Return the rules in the file's order, the kind of each mode, and the modes with one token per request."""
    raw = document("serving_steps.toml")
    rules = (
        ServingRule(
            rule["source"], rule["pattern"], tuple((name, kind, tokens) for name, kind, tokens in rule["examples"])
        )
        for rule in raw["rules"]
    )
    return tuple(rules), raw["modes"], tuple(raw["one_token"])


def serving_steps(names: pl.Series) -> pl.DataFrame:
    """Return distinct names that match a rule: name, source, step_kind and token counts.

    Tokens are null where the name contains no sizes.
    """
    return _steps_of(names.cast(pl.String).unique(maintain_order=True).alias("name").to_frame())


@remembered
def _steps_of(names: pl.DataFrame) -> pl.DataFrame:
    rules, modes, one_token = serving_rules()
    matched = ((rule, names.filter(pl.col("name").str.contains(rule.pattern))) for rule in rules)
    parsed = [_parsed(rows, rule, modes, one_token) for rule, rows in matched if rows.height]
    return pl.concat([pl.DataFrame(schema=_STEPS), *parsed]).unique("name", keep="first", maintain_order=True)


def _parsed(
    rows: pl.DataFrame, rule: ServingRule, modes: Mapping[str, str], one_token: tuple[str, ...]
) -> pl.DataFrame:
    groups = re.compile(rule.pattern).groupindex
    matched = rows.with_columns(pl.col("name").str.extract_groups(rule.pattern).struct.unnest())
    absent = [pl.lit(None, dtype=pl.String).alias(group) for group in ("mode", *_COUNTS) if group not in groups]
    matched = matched.with_columns(absent).with_columns(pl.col(_COUNTS).cast(pl.Int64, strict=False))
    prefills, decodes = (pl.col(f"{kind}_requests") > 0 for kind in ("prefill", "decode"))
    by_requests = (
        pl.when(prefills & decodes).then(pl.lit("mixed")).when(prefills).then(pl.lit("prefill")).when(decodes).then(pl.lit("decode"))
    )  # fmt: skip
    by_mode = pl.col("mode").replace_strict(modes, default=None, return_dtype=pl.String)
    ones = pl.when(pl.col("mode").is_in(list(one_token))).then("requests")
    tokens = pl.coalesce("tokens", ones, pl.col("prefill_tokens") + pl.col("decode_tokens"))
    return (
        matched.with_columns(pl.coalesce(by_mode, by_requests).alias("step_kind"), tokens.alias("tokens"))
        .drop_nulls("step_kind")
        .select(
            "name",
            pl.lit(rule.source).alias("source"),
            "step_kind",
            *(
                pl.coalesce(f"{kind}_tokens", pl.when(pl.col("step_kind") == kind).then("tokens")).alias(
                    f"{kind}_tokens"
                )
                for kind in ("prefill", "decode")
            ),
            "tokens",
        )
    )
