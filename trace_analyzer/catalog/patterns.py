"""Match the catalogues' patterns: Rust regular expressions with ASCII classes."""

from collections.abc import Iterable

import polars as pl

from trace_analyzer.catalog.documents import conditions_of_patterns
from trace_analyzer.catalog.literals import may_hold

MOST_LETTERS = 1 << 15
"""Most characters to search: beyond, searching takes as long as compiling the patterns."""


def matches(name: pl.Expr, pattern: str) -> pl.Expr:
    r"""Return whether the pattern matches the name; null for a null name.

    ``\w`` and ``\d`` match ASCII only: names in rules contain no other letters, and compiling a pattern with Unicode
    tables takes twice as long, which dominates the time on a small trace.
    """
    return name.str.contains(pattern.replace(r"\w", "[0-9A-Za-z_]").replace(r"\d", "[0-9]"))


def may_match(patterns: Iterable[str], names: pl.Series) -> set[str]:
    """Return the patterns that may match one of the names, by their `literals` (benchmarks/startup.py --tricks).

    Two thirds of the patterns of kernel rules match no name of a small trace, and compiling a pattern takes 0.2 ms.
    """
    if int(names.str.len_bytes().sum()) > MOST_LETTERS:
        return set(patterns)
    text = "\n".join(names.drop_nulls().to_list())
    if not text.isascii():
        return set(patterns)
    conditions, small = conditions_of_patterns(), text.lower()
    return {pattern for pattern in patterns if may_hold(conditions.get(pattern), small)}


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
