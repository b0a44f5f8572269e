"""Determine a kernel's arithmetic from its name: tensor cores, precision, and whether it only supports a matmul.

The rules are data, in ``arithmetic.toml``; this module reads them and applies them to names.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import polars as pl

from trace_analyzer.catalog.documents import document
from trace_analyzer.catalog.kernels import NAME_LIMIT
from trace_analyzer.catalog.patterns import matches


@dataclass(frozen=True, kw_only=True)
class ArithmeticRule:
    """Hold a pattern over kernel names and its implications; ``None`` for properties that its list does not define."""

    id: str
    name: str
    examples: tuple[str, ...]
    counterexamples: tuple[str, ...] = ()
    tensor_cores: bool | None = None
    fp32: str | None = None
    dtype: str | None = None


@cache
def rules(kind: str) -> tuple[ArithmeticRule, ...]:
    """Return the rules of one list: ``unit``, ``precision``, ``operand``, ``helper`` or ``fast``."""
    return tuple(
        ArithmeticRule(
            **{**row, "examples": tuple(row["examples"]), "counterexamples": tuple(row.get("counterexamples", ()))}
        )
        for row in _catalogue()[kind]
    )


@cache
def _catalogue() -> dict[str, Any]:
    return document("arithmetic.toml")


def arithmetic(names: pl.Series) -> pl.DataFrame:
    """Return (name, tensor_cores, fp32, precision, helper, fast) per distinct name.

    ``tensor_cores``: null where the name does not show it. ``fp32``: the type in which FP32 operands are multiplied,
    null for FP32. ``precision``: the type of the multiplications regardless of the operands, null where the operands
    determine it. ``helper``: launched only next to a matmul, without any of its FLOP. ``fast``: part of an algorithm
    with fewer multiplications than the definition.
    """
    return (
        pl.DataFrame({"name": names.unique(maintain_order=True)}, schema={"name": pl.String})
        .with_columns(arithmetic_of_name())
        .join(_units(), on="unit", how="left", maintain_order="left")
        .select("name", "tensor_cores", "fp32", "precision", "helper", "fast")
    )


@cache
def arithmetic_of_name() -> tuple[pl.Expr, ...]:
    """Return the expressions of the rules: the id of the first unit that matches a name, and the other columns."""
    head = pl.col("name").str.head(NAME_LIMIT)

    def first(kind: str) -> pl.Expr:
        return pl.coalesce(pl.when(matches(head, rule.name)).then(pl.lit(rule.id)) for rule in rules(kind))

    dtypes = {rule.id: rule.dtype for rule in rules("precision")}
    return (
        first("unit").alias("unit"),
        first("precision").replace_strict(dtypes, return_dtype=pl.String).alias("precision"),
        *(
            pl.any_horizontal(matches(head, rule.name) for rule in rules(kind)).alias(kind)
            for kind in ("helper", "fast")
        ),
    )


def operand_type(column: str) -> pl.Expr:
    """Return Kineto's name of the operand type that a kernel's name contains; null without one."""
    head = pl.col(column).cast(pl.String).str.head(NAME_LIMIT)
    first = pl.coalesce(pl.when(matches(head, rule.name)).then(pl.lit(rule.dtype)) for rule in rules("operand"))
    return first.alias("operand_type")


@cache
def _units() -> pl.DataFrame:
    return pl.DataFrame(
        [(rule.id, rule.tensor_cores, rule.fp32) for rule in rules("unit")],
        schema={"unit": pl.String, "tensor_cores": pl.Boolean, "fp32": pl.String},
        orient="row",
    )
