"""Declare how the terminal, Markdown and the page show a table: its title, columns, order and rows.

A section is data: renderers lay it out, and write each value by its column's unit.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Section:
    """Show a table under a title.

    ``show`` names the columns in order, all of them where it is empty. ``sort`` names the column whose largest values come
    first; without it the table's own order stays. ``rows`` limits the rows in the terminal and in Markdown; the page has a
    limit of its own.
    """

    title: str
    doc: str = ""
    show: tuple[str, ...] = ()
    sort: str | None = None
    rows: int | None = None
