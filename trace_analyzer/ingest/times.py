"""Decimal text in microseconds -> int64 nanoseconds, exactly: the one place where time changes its unit."""

from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_EVEN, Context, Decimal, InvalidOperation

import polars as pl

_PLAIN = r"^(-?)([0-9]{1,16})(?:\.([0-9]+))?$"
_LIMIT_NS = 1 << 62
_LONGEST = 400
_EXACT = Context(prec=2 * _LONGEST, Emax=MAX_EMAX, Emin=MIN_EMIN)


def nanoseconds(texts: pl.Series) -> pl.Series:
    """Int64 nanoseconds of decimal microseconds; null where the text is no number or out of range.

    Digits beyond the nanosecond are rounded half to even, as in exact decimal arithmetic.
    """
    name = texts.name
    plain = texts.to_frame("text").select("text", *_split(pl.col("text"))).select("text", _assembled().alias(name))
    if plain.get_column(name).null_count() == texts.null_count():
        return plain.get_column(name)
    odd = plain.filter(pl.col(name).is_null() & pl.col("text").is_not_null()).get_column("text").unique()
    exact = {text: _exact(text) for text in odd}
    return plain.select(
        pl.coalesce(name, pl.col("text").replace_strict(exact, default=None, return_dtype=pl.Int64)).alias(name)
    ).get_column(name)


def _split(text: pl.Expr) -> tuple[pl.Expr, ...]:
    parts = text.str.extract_groups(_PLAIN)
    fraction = parts.struct.field("3").fill_null("")
    return (
        parts.struct.field("1").alias("sign"),
        parts.struct.field("2").cast(pl.Int64).alias("whole"),
        fraction.str.slice(0, 3).str.pad_end(3, "0").cast(pl.Int64, strict=False).alias("thousandths"),
        fraction.str.slice(3).str.strip_chars_end("0").alias("rest"),
    )


def _assembled() -> pl.Expr:
    in_range = pl.when(pl.col("whole") < _LIMIT_NS // 1_000).then("whole")
    floor = in_range * 1_000 + pl.col("thousandths")
    up = (pl.col("rest") > "5") | ((pl.col("rest") == "5") & (floor % 2 == 1))
    return (floor + up.cast(pl.Int64)) * pl.when(pl.col("sign") == "-").then(-1).otherwise(1)


def _exact(text: str) -> int | None:
    """Nanoseconds of a number in any notation (exponents, a leading plus, blanks around it)."""
    try:
        value = Decimal(text.strip()) if len(text) < _LONGEST else None
        if value is None or not value.is_finite() or value.adjusted() > 20:
            return None
        ns = int(_EXACT.multiply(value, Decimal(1_000)).to_integral_value(ROUND_HALF_EVEN))
    except (InvalidOperation, ValueError):
        return None
    return ns if abs(ns) < _LIMIT_NS else None
