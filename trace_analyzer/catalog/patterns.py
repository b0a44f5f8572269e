"""Match the catalogues' patterns: Rust's regular expressions, with ASCII's classes."""

import polars as pl


def matches(name: pl.Expr, pattern: str) -> pl.Expr:
    r"""Return whether the pattern matches the name, null where that is.

    ``\w`` and ``\d`` are ASCII's: names that rules know have no other letters, and to compile a pattern with Unicode's
    tables takes twice as long, which is most of what applying it to a small trace costs.
    """
    return name.str.contains(pattern.replace(r"\w", "[0-9A-Za-z_]").replace(r"\d", "[0-9]"))


def with_slashes(events: pl.DataFrame) -> pl.DataFrame:
    r"""Return the rows with ``/`` in the place of ``\`` in column name, as rules write paths: frames of Windows have the other."""
    if not events.get_column("name").str.contains("\\", literal=True).any():
        return events
    return events.with_columns(pl.col("name").str.replace_all("\\", "/", literal=True))


def check(*patterns: str | None) -> None:
    """Refuse what is no regular expression. Raises ``ValueError``."""
    for pattern in patterns:
        if pattern is not None:
            try:
                pl.select(matches(pl.lit(""), pattern))
            except pl.exceptions.PolarsError as error:
                line = " ".join(str(error).split())
                raise ValueError(f"{pattern!r} is no regular expression: {line}") from None
