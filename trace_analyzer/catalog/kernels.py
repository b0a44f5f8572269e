"""Classify kernels by their work, from the operator that launched them and their names.

The rules are in ``kernels.toml``; the first match counts. This module reads them and applies them to frames.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import polars as pl

from trace_analyzer import plugins
from trace_analyzer.catalog.checked import each, own
from trace_analyzer.catalog.documents import document
from trace_analyzer.catalog.patterns import check, matches
from trace_analyzer.tuning import remembered
from trace_analyzer.vocabulary import GROUPS

NAME_LIMIT = 4096
"""Number of characters of a name that rules read: the beginning distinguishes kernels, and names can be huge."""

PRIORS = ("compute", "memory", "communication", "other")
"""Bounds of a bucket's kernels when nothing better is known."""

CONDITIONS = ("name", "words", "operator")
"""Conditions of a rule; all that it has must hold."""


@dataclass(frozen=True)
class Bucket:
    """Hold a kind of work: its group in the article's table, and its bound when shapes are unknown.

    ``label`` is its name for people.
    """

    bucket: str
    label: str
    group: str
    prior: str
    doc: str


@dataclass(frozen=True)
class Kernel:
    """Hold the properties of a kernel that rules read."""

    name: str
    operator: str | None = None


@dataclass(frozen=True, kw_only=True)
class KernelRule:
    """Hold conditions on kernel name and launching operator, and the bucket of kernels that meet them."""

    id: str
    bucket: str
    group: str
    prior: str
    name: str | None
    words: str | None
    operator: str | None
    examples: tuple[Kernel, ...]
    counterexamples: tuple[Kernel, ...]


@cache
def rules() -> tuple[KernelRule, ...]:
    """Return all rules in order of precedence, those of plug-ins first; the last one matches every kernel."""
    ours = own("kernels.toml", parsed, check_rules)
    return (
        *plugins.added("kernels.toml", _added_rules, key=lambda rule: rule.id, taken=[rule.id for rule in ours]),
        *ours,
    )


def parsed(document: Mapping[str, Any]) -> tuple[KernelRule, ...]:
    """Return the rules of a parsed file. Raises ``ValueError`` with the name of an invalid rule."""
    known = {bucket.bucket: bucket for bucket in _buckets()}
    return tuple(each(document.get("rule", ()), lambda row: _rule(known, row), lambda row: f"rule {row['id']}"))


def _added_rules(document: Mapping[str, Any]) -> tuple[KernelRule, ...]:
    made = parsed(document)
    check_rules(made)
    if bare := next((rule.id for rule in made if not _has_condition(rule)), None):
        raise ValueError(f"rule {bare} has no condition: {', '.join(CONDITIONS)}")
    return made


def check_rules(rules: Sequence[KernelRule]) -> None:
    """Refuse invalid patterns, and rules without a condition except the last. Raises ``ValueError``."""
    for rule in rules:
        if not _has_condition(rule) and rule is not rules[-1]:
            raise ValueError(f"rule {rule.id} has no condition: {', '.join(CONDITIONS)}")
        try:
            check(rule.name, rule.words, rule.operator)
        except ValueError as error:
            raise ValueError(f"rule {rule.id}: {error}") from None


def _has_condition(rule: KernelRule) -> bool:
    return any(getattr(rule, condition) for condition in CONDITIONS)


def buckets() -> pl.DataFrame:
    """Return all buckets, in the catalogue's order: (bucket, label, group, prior, doc), all strings."""
    return pl.DataFrame(_buckets())


def kernel_buckets(kernels: pl.DataFrame, *, using: Sequence[KernelRule] | None = None) -> pl.DataFrame:
    """Return the bucket of each kernel: (name, operator) -> (name, operator, bucket, group, prior, rule), strings.

    ``operator`` is the innermost operator around the launch, null when unknown. There is one row per distinct pair, in
    order of appearance; kernels without a specific rule are in bucket ``other``, never null. ``prior`` is the bound
    when nothing better is known: compute, memory, communication or other.

    Args:
        using: rules instead of the catalogue's, to measure the effect of each; the last must match all.

    Raises:
        polars.exceptions.ColumnNotFoundError: a column is missing.
    """
    pairs = kernels.select("name", "operator").unique(maintain_order=True)
    return _by_catalogue(pairs) if using is None else _decided(pairs, tuple(using))


@remembered
def _by_catalogue(pairs: pl.DataFrame) -> pl.DataFrame:
    return _decided(pairs, rules())


def _decided(pairs: pl.DataFrame, used: tuple[KernelRule, ...]) -> pl.DataFrame:
    """Add bucket, group, prior and rule to distinct pairs of name and operator."""
    pairs = pairs.with_columns(words=function_words("name"))
    # A null name or operator joins nothing, and a null condition does not hold.
    return (
        pairs.join(_matches(pairs, "name", used), on="name", how="left", maintain_order="left")
        .join(_matches(pairs, "words", used), on="words", how="left", maintain_order="left")
        .join(_matches(pairs, "operator", used), on="operator", how="left", maintain_order="left")
        .select("name", "operator", decision(used).alias("rule"))
        .join(_rule_table(used), on="rule", how="left", maintain_order="left")
        .select("name", "operator", "bucket", "group", "prior", "rule")
    )


def function_words(column: str) -> pl.Expr:
    """Return the words of a kernel's own identifier, in lower case, joined by ``_``.

    Namespaces and template arguments are left out.

    ``void ns::residualScaleRMSNorm<float, 8>(float*)`` is ``residual_scale_rms_norm``.
    """
    return (
        pl.col(column)
        .str.head(NAME_LIMIT)
        .str.replace_all(r"\(anonymous namespace\)|<unnamed>", "")
        .str.extract(r"^([^<(]*)")
        .str.extract(r"(\w+)\s*$")
        .str.replace_all(r"([a-z0-9])([A-Z])", "${1}_${2}")
        .str.replace_all(r"([A-Z])([A-Z][a-z])", "${1}_${2}")
        .str.to_lowercase()
    )


def function_name(name: str) -> str:
    """Return a kernel's own identifier, without namespaces, template arguments and characters special to a shell.

    ``void ns::softmax_warp_forward<float, 8>(float*)`` becomes ``softmax_warp_forward``; a name without an identifier
    stays.
    """
    head = re.sub(r"\(anonymous namespace\)|<unnamed>", "", name[:NAME_LIMIT])
    own = re.search(r"(\w+)\s*$", re.split(r"[<(]", head, maxsplit=1)[0])
    return own[1] if own else re.sub(r"\W+", "_", head)


def _matches(pairs: pl.DataFrame, column: str, used: tuple[KernelRule, ...]) -> pl.DataFrame:
    """Return each distinct value of a column and, for each rule with a condition on it, whether it holds."""
    head = pl.col(column).str.head(NAME_LIMIT)
    return pairs.select(pl.col(column).unique()).with_columns(
        matches(head, pattern).alias(f"{column}:{rule.id}")
        for rule in used
        if (pattern := getattr(rule, column)) is not None
    )


def decision(used: tuple[KernelRule, ...]) -> pl.Expr:
    """Return the id of the first rule whose conditions all hold."""
    conditions_by_rule = {
        rule.id: [pl.col(f"{column}:{rule.id}") for column in CONDITIONS if getattr(rule, column)] for rule in used
    }
    return pl.coalesce(
        pl.when(pl.all_horizontal(all_ or pl.lit(True))).then(pl.lit(id_)) for id_, all_ in conditions_by_rule.items()
    )


def _rule_table(used: Sequence[KernelRule]) -> pl.DataFrame:
    return pl.DataFrame(
        [(rule.id, rule.bucket, rule.group, rule.prior) for rule in used],
        schema=["rule", "bucket", "group", "prior"],
        orient="row",
    )


@cache
def _catalogue() -> dict[str, Any]:
    return document("kernels.toml")


@cache
def _buckets() -> tuple[Bucket, ...]:
    own = _buckets_of(_catalogue())
    return (*own, *plugins.added("kernels.toml", _buckets_of, key=lambda b: b.bucket, taken=[b.bucket for b in own]))


def _buckets_of(document: Mapping[str, Any]) -> tuple[Bucket, ...]:
    rows = document.get("bucket", {}).items()
    made = tuple(Bucket(bucket=name, **{"label": name.replace("_", " ").capitalize(), **row}) for name, row in rows)
    for bucket in made:
        if bucket.group not in GROUPS or bucket.prior not in PRIORS:
            raise ValueError(
                f"bucket {bucket.bucket}: group is one of {', '.join(GROUPS)}, prior of {', '.join(PRIORS)}"
            )
    return made


def _rule(known: Mapping[str, Bucket], row: Mapping[str, Any]) -> KernelRule:
    home = known.get(row["bucket"])
    if home is None:
        raise ValueError(f"bucket {row['bucket']!r} is none of {', '.join(known)}")
    inherited = {"group": home.group, "prior": home.prior, "name": None, "words": None, "operator": None}
    cases = {key: tuple(map(_kernel, row.get(key, ()))) for key in ("examples", "counterexamples")}
    return KernelRule(**{**inherited, **row, **cases})


def _kernel(example: str | Mapping[str, str]) -> Kernel:
    return Kernel(example) if isinstance(example, str) else Kernel(**example)
