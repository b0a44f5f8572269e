"""The data of the program: devices, rules, fixes and the article's figures. This module reads it.

The tables are TOML files of this folder, and files of the same names in plug-ins. A table's rows are structs, whose
fields declare the keys and their types. Errors name the file and the row.
"""

import tomllib
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from trace_analyzer import plugins
from trace_analyzer.errors import UsageError
from trace_analyzer.json_types import read_as

FOLDER = Path(__file__).parent
NAME_LIMIT = 4_096
"""Number of characters of a name that rules read: the beginning distinguishes names, and they can be huge."""

_NAMES = ("id", "name", "work", "marks", "source")
"""Keys that name a row in errors."""

T = TypeVar("T")


@cache
def document(file: str, folder: Path | None = None) -> dict[str, Any]:
    """Return a parsed file of this folder: ``document("devices.toml")``. Raises ``UsageError``."""
    try:
        return tomllib.loads(((folder or FOLDER) / file).read_text("utf-8"))
    except ValueError as error:
        raise UsageError(f"catalog/{file}: {error}") from error


def rows(
    file: str,
    table: str,
    row: type[T] | Callable[[Mapping[str, Any]], T],
    key: Callable[[T], str],
    *,
    check: Callable[[T], object] = lambda _: None,
    check_added: Callable[[T], object] = lambda _: None,
    own: Iterable[Mapping[str, Any]] | None = None,
    own_first: bool = False,
) -> tuple[T, ...]:
    """Return the rows of a table: those of plug-ins, then those of this package, or first those with ``own_first``.

    With ``own``, those of this package are these instead of its file's.

    ``row`` makes a row from its keys; ``key`` identifies it. ``check`` refuses a row that would fail in use, and
    ``check_added`` a row of a plug-in, as by compiling its regular expressions: of ours, the tests do this.
    """

    def made(document: Mapping[str, Any], check: Callable[[T], object]) -> list[T]:
        raw = document.get(table, ())
        if isinstance(raw, Mapping):  # a table by key
            raw = [{table: name, **columns} for name, columns in raw.items()]
        return [one(columns, number, check) for number, columns in enumerate(raw, 1)]

    def one(columns: Mapping[str, Any], number: int, check: Callable[[T], object]) -> T:
        try:
            item = read_as(row, columns) if isinstance(row, type) else row(columns)
            check(item)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            name = next((columns[name] for name in (*_NAMES, table) if name in columns), number)
            raise ValueError(f"{table} {name}: {plugins.reason(error)}") from error
        return item

    try:
        own_rows = made(document(file) if own is None else {table: own}, check)
    except ValueError as error:
        raise UsageError(f"catalog/{file}: {error}") from error
    added = plugins.added(
        file,
        lambda added: made(added, lambda item: (check(item), check_added(item))),
        key=key,
        taken=map(key, own_rows),
    )
    return (*own_rows, *added) if own_first or own is not None else (*added, *own_rows)


def check_patterns(*patterns: str | None) -> None:
    """Refuse invalid regular expressions. Raises ``ValueError``."""
    for pattern in filter(None, patterns):
        try:
            pl.select(matches(pl.lit(""), pattern))
        except pl.exceptions.PolarsError as error:
            raise ValueError(f"{pattern!r} is no regular expression: {' '.join(str(error).split())}") from None


def matches(name: pl.Expr, pattern: str) -> pl.Expr:
    r"""Return whether the pattern (Rust's syntax) matches the name; null for a null name.

    ``\w`` and ``\d`` match ASCII only: names in rules contain no other letters, and compiling a pattern with Unicode
    tables takes twice as long, which dominates the time on a small trace.
    """
    return name.str.contains(pattern.replace(r"\w", "[0-9A-Za-z_]").replace(r"\d", "[0-9]"))


def first(rules: Iterable[tuple[pl.Expr, pl.Expr]]) -> pl.Expr:
    """Return the result of the first rule (condition, result) that holds; null without one."""
    return pl.coalesce(pl.when(condition).then(result) for condition, result in rules)
