"""Read the files of the catalogue; errors name the file and the row.

This is separate from `documents`, which setup.py uses without the package.
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
    """Parse a file of this package with ``parse``; ``check`` validates it if it has changed since setup.py read it.

    Raises ``UsageError`` with the file, the row and the problem.
    """
    try:
        made = parse(document(name, folder))
        if is_changed(name, folder):
            check(made)
    except Exception as error:
        raise UsageError(f"{folder.name}/{name}: {plugins.reason(error)}") from error
    return made


def each(rows: Iterable[Row], make: Callable[[Row], T], name_of: Callable[[Row], object]) -> Iterator[T]:
    """Yield the result of ``make`` for each row. Raises ``ValueError`` with the name of an invalid row."""
    for number, row in enumerate(rows, 1):
        try:
            yield make(row)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            try:
                name = name_of(row)
            except (AttributeError, LookupError, TypeError):
                name = None
            raise ValueError(f"{f'row {number}' if name is None else name}: {plugins.reason(error)}") from error
