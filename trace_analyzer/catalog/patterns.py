"""Match the catalogues' patterns: Rust's regular expressions, with ASCII's classes."""

import polars as pl


def matches(name: pl.Expr, pattern: str) -> pl.Expr:
    r"""Return whether the pattern matches the name, null where that is.

    ``\w`` and ``\d`` are ASCII's: names that rules know have no other letters, and to compile a pattern with Unicode's
    tables takes twice as long, which is most of what applying it to a small trace costs.
    """
    return name.str.contains(pattern.replace(r"\w", "[0-9A-Za-z_]").replace(r"\d", "[0-9]"))
