"""Match the catalogues' patterns: Rust regular expressions with ASCII classes."""

import polars as pl


def matches(name: pl.Expr, pattern: str) -> pl.Expr:
    r"""Return whether the pattern matches the name; null for a null name.

    ``\w`` and ``\d`` match ASCII only: names in rules contain no other letters, and compiling a pattern with Unicode
    tables takes twice as long, which dominates the time on a small trace.
    """
    return name.str.contains(pattern.replace(r"\w", "[0-9A-Za-z_]").replace(r"\d", "[0-9]"))


def with_slashes(events: pl.DataFrame) -> pl.DataFrame:
    r"""Replace ``\`` in column name by ``/``, as in the rules' paths; frames from Windows have ``\``."""
    if not events.get_column("name").str.contains("\\", literal=True).any():
        return events
    return events.with_columns(pl.col("name").str.replace_all("\\", "/", literal=True))


def check(*patterns: str | None) -> None:
    """Refuse invalid regular expressions. Raises ``ValueError``."""
    for pattern in patterns:
        if pattern is not None:
            try:
                pl.select(matches(pl.lit(""), pattern))
            except pl.exceptions.PolarsError as error:
                line = " ".join(str(error).split())
                raise ValueError(f"{pattern!r} is no regular expression: {line}") from None
