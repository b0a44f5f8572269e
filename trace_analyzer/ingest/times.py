"""Convert decimal text in microseconds to int64 nanoseconds exactly; no other code converts the unit of times."""

from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_EVEN, Context, Decimal, InvalidOperation

import polars as pl

_LIMIT_NS = 1 << 62
_LONGEST = 400
_EXACT = Context(prec=2 * _LONGEST, Emax=MAX_EMAX, Emin=MIN_EMIN)


def nanoseconds(texts: pl.Series) -> pl.Series:
    """Return int64 nanoseconds from decimal microseconds; null where the text is no number or out of range.

    Digits beyond the nanosecond are rounded half to even, as in exact decimal arithmetic.
    """
    name = texts.name
    # A decimal with three places, to which Polars rounds half to even, is stored as an integer of thousandths.
    thousandths = pl.col("text").str.to_decimal(scale=3).to_physical().cast(pl.Int64, strict=False)
    plain = texts.to_frame("text").select("text", pl.when(thousandths.abs() < _LIMIT_NS).then(thousandths).alias(name))
    if plain.get_column(name).null_count() == texts.null_count():
        return plain.get_column(name)
    odd = plain.filter(pl.col(name).is_null() & pl.col("text").is_not_null()).get_column("text").unique()
    exact = {text: _exact(text) for text in odd}
    return plain.select(
        pl.coalesce(name, pl.col("text").replace_strict(exact, default=None, return_dtype=pl.Int64)).alias(name)
    ).get_column(name)


def _exact(text: str) -> int | None:
    """Return nanoseconds from a number in any notation (exponents, a leading plus, surrounding blanks)."""
    try:
        value = Decimal(text.strip()) if len(text) < _LONGEST else None
        if value is None or not value.is_finite() or value.adjusted() > 20:
            return None
        ns = int(_EXACT.multiply(value, Decimal(1_000)).to_integral_value(ROUND_HALF_EVEN))
    except (InvalidOperation, ValueError):
        return None
    return ns if abs(ns) < _LIMIT_NS else None
