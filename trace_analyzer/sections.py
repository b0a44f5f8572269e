"""Declare how the terminal, Markdown and the page show a table: its title, columns, order and rows.

A section is data: renderers lay it out, and write each value by its column's unit.
"""

from typing import Literal

from trace_analyzer.tuning import dataclass

Form = Literal[
    "", "text", "word", "part", "line", "state", "name", "frame", "module", "code", "group", "share", "fine", "times", "count", "duration",
    "time", "ratio", "number", "flop", "flops", "bandwidth", "bytes",
]  # fmt: skip
"""How a value is written where its column's unit does not say it.

``text`` and ``name`` are the trace's own words, a name long and worth its end; ``frame`` and ``module`` are names with a
path, ``code`` is source. ``word`` is a key of the catalogue that reads as it is, ``part``, ``state`` and ``group`` are keys
with a label in the vocabulary, ``line`` is a bucket or a kind of copy (`catalog.line_labels`). ``share`` is a ratio with a bar, ``fine`` one with two decimals, ``times`` a factor. The others are
units.
"""

TEXTS = ("text", "word", "part", "line", "state", "name", "frame", "module", "code", "group")
"""Forms of what is no quantity."""


@dataclass(frozen=True)
class Shown:
    """Show a column of a section's table.

    ``heading`` is as in running text; without one it follows from the column's name. ``terminal`` is the width in cells from
    which on the terminal has the column, None for never; ``markdown`` and ``page`` say whether those have it. Where a value
    is missing, that of column ``fallback`` stands for it; ``phrase`` names what writes the whole row instead
    (`trace_analyzer.render.row_phrases.PHRASES`); on the page such a column sorts by its value. ``term`` names the heading's definition on the page, ``mark`` the column with the group of kernels whose colour
    marks the value there. ``unless_zero`` leaves the column out where all its values are 0: there is nothing of the kind that it counts.
    """

    column: str
    heading: str = ""
    form: Form = ""
    terminal: int | None = None
    markdown: bool = False
    page: bool = True
    fallback: str = ""
    phrase: str = ""
    term: str = ""
    mark: str = ""
    unless_zero: bool = False


WHOLE_TRACE = "of the whole trace"
"""Scope of figures that are summed over all that was recorded, and not over the judged window."""

DEVICE_LABEL = Shown("device_label", "device")
"""The device of a row, where the trace has several."""


@dataclass(frozen=True)
class Longest:
    """Lead from a row to the longest event of ``table`` with the same ``keys``.

    Only events of this ``kind`` count; with a ``prefix``, only those whose name begins so, and the rest of it is the key.
    """

    table: str
    keys: tuple[str, ...]
    kind: str = ""
    prefix: str = ""


@dataclass(frozen=True)
class Section:
    """Show a table under a title.

    ``table`` names the table of the report whose rows these are, as far as they have the values of ``only`` and any value in
    the columns of ``known``; "" where the renderer is handed the rows. ``key`` names the section in addresses of the page.

    ``show`` has the columns in order, all of them where it is empty; a name alone is a column that all outputs have. A
    column without any value is left out.
    ``sort`` names columns, each with ``-`` before it where its largest values come first; without any the table's own order
    stays, and rows without a value come last. ``rows`` is the most that Markdown and the terminal show, each of
    which has a limit of its own, as the page has. ``place`` says where on the timeline a row leads: the columns of its start and its end, or the longest event
    of a table. ``beside`` lays rows side by side on the page, a column each with the first value on top. ``scope`` stands behind the title: what the figures are summed over; ``top`` leaves unsaid how many rows are left out, ``whole`` leaves none out; ``record`` is
    what to record where there are none. Where ``lines`` is not 0, the terminal has no headings, and wraps the last column to at
    most so many lines.
    """

    title: str
    doc: str = ""
    show: tuple[str | Shown, ...] = ()
    sort: tuple[str, ...] = ()
    rows: int | None = None
    place: tuple[str, str] | Longest = ("start_ns", "end_ns")
    scope: str = ""
    top: bool = False
    whole: bool = False
    record: str = ""
    key: str = ""
    table: str = ""
    only: tuple[tuple[str, str], ...] = ()
    known: tuple[str, ...] = ()
    lines: int = 0
    beside: bool = False
