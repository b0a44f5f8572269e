"""Read the files of the catalogue, and name the file and the row where one is wrong.

This is no part of `documents`, which setup.py runs without the package.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from trace_analyzer import plugins
from trace_analyzer.catalog.documents import document, is_changed
from trace_analyzer.errors import UsageError

FOLDER = Path(__file__).parent
T = TypeVar("T")
Row = TypeVar("Row")


def own(name: str, parse: Callable[[Mapping[str, Any]], T], check: Callable[[T], object], folder: Path = FOLDER) -> T:
    """Return what ``parse`` makes of a file of this package; what was changed since setup.py read it passes ``check`` too.

    Raises ``UsageError`` that names the file, the row and what is wrong with it.
    """
    try:
        made = parse(document(name, folder))
        if is_changed(name, folder):
            check(made)
    except Exception as error:
        raise UsageError(f"{folder.name}/{name}: {plugins.reason(error)}") from error
    return made


def each(rows: Iterable[Row], make: Callable[[Row], T], name_of: Callable[[Row], object]) -> Iterator[T]:
    """Yield what is made of each row. Raises ``ValueError`` that names the row which something is wrong with."""
    for number, row in enumerate(rows, 1):
        try:
            yield make(row)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            try:
                name = name_of(row)
            except (AttributeError, LookupError, TypeError):
                name = None
            raise ValueError(f"{f'row {number}' if name is None else name}: {plugins.reason(error)}") from error
