"""Declare how a table is shown: a section (title, columns, order, rows), or a chart (marks on two axes).

Both are data. Renderers lay sections out for the terminal, Markdown and the page, and write each value by its column's unit;
pages draw charts with Bokeh, notebooks with HoloViews.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy.typing as npt
import polars as pl
from msgspec import Struct

Form = Literal[
    "", "text", "word", "part", "line", "state", "name", "frame", "module", "code", "group", "share", "fine", "times", "number",
]  # fmt: skip
"""How a value is written where its column's unit does not determine it.

``text`` and ``name`` are the trace's own text (a name is long, and its end matters); ``frame`` and ``module`` are names
with a path, ``code`` is source. ``word`` is a key of the catalogue that is shown unchanged; ``part``, ``state`` and
``group`` are keys with a label in the vocabulary; ``line`` is a bucket or a kind of copy (`catalog.kernels`).
``share`` is a ratio with a bar, ``fine`` one with two decimals, ``times`` a factor, ``number`` another figure.
"""

TEXTS = ("text", "word", "part", "line", "state", "name", "frame", "module", "code", "group")
"""Forms of values that are no quantities."""


class Shown(Struct, frozen=True):
    """Show a column of a section's table.

    ``heading`` is written as in running text; by default it follows from the column's name. ``terminal`` is the least
    width in cells of a terminal that shows the column, None for never; ``markdown`` and ``page`` determine whether
    these outputs show it. A missing value is replaced by that of column ``fallback``. ``phrase`` names a function that
    writes the cell from the whole row (`trace_analyzer.render.row_phrases.PHRASES`); on the page such a column sorts by
    its value. ``term`` names the heading's definition on the page, ``mark`` the column with the kernel group whose
    colour marks the value there. ``unless_zero`` omits a column whose values are all 0.
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
"""Scope of figures that sum over the whole recording instead of the judged window."""

DEVICE_LABEL = Shown("device_label", "device")
"""Column with the device of a row, shown where the trace has several devices."""


class Longest(Struct, frozen=True):
    """Link a row to the longest event of ``table`` with the same ``keys``.

    Only events of this ``kind`` count. With a ``prefix``, only events whose name begins with it count, and the rest of
    the name is the key.
    """

    table: str
    keys: tuple[str, ...]
    kind: str = ""
    prefix: str = ""


class Section(Struct, frozen=True):
    """Show a table under a title.

    ``table`` names the table of the report that provides the rows; "" where the renderer gets the rows from its caller.
    ``only`` restricts the rows to given values, ``known`` to those with any value in these columns. ``key`` names the
    section in addresses of the page.

    ``show`` lists the columns in order; all columns where it is empty. A plain name is a column that all outputs show.
    A column without any value is left out. ``sort`` names columns, each with ``-`` before it for descending order; rows
    without a value come last, and without ``sort`` the table's order stays. ``rows`` limits the rows in Markdown and in
    the terminal; each of these, and the page, has a limit of its own. ``place`` determines where on the timeline a row
    leads: the columns with its start and end, or the longest event of a table. ``beside`` puts rows side by side on the
    page, one column each with the first value on top. ``scope`` follows the title and names what the figures cover.
    ``top`` omits the number of rows left out, ``whole`` leaves no row out, and ``record`` is advice on what to record
    where there are no rows. With ``lines`` above 0, the terminal shows no headings and wraps the last column to at most
    that many lines.

    In the section that an analysis adds (``Analysis.section``), all outputs have all columns if no column names a width of
    the terminal or Markdown.
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
    record: str = "Nothing of the kind was recorded."
    key: str = ""
    table: str = ""
    only: tuple[tuple[str, str], ...] = ()
    known: tuple[str, ...] = ()
    lines: int = 0
    beside: bool = False


Numbers = Sequence[float] | npt.NDArray[Any]

SIGNS = {"circle": "●", "triangle": "▲", "square": "■", "diamond": "◆", "inverted_triangle": "▼"}
"""Shapes of points -> the signs that stand for them in a legend."""


class Axis(Struct, frozen=True):
    """An axis: its label with a unit, labelled ``ticks`` (default: the browser's), and ends (None: the data's).

    An axis of names has a tick for each and no grid, one of ``counts`` none between them.
    """

    label: str
    unit: str = ""
    log: bool = False
    ticks: Mapping[float, str] = {}
    ends: tuple[float | None, float | None] = (None, None)
    names: bool = False
    counts: bool = False
    hidden: bool = False

    @property
    def title(self) -> str:
        """Return the label with its unit."""
        return f"{self.label} ({self.unit})" if self.unit and self.label else self.label or self.unit


class Boxes(Struct, frozen=True):
    """Rectangles: bars, bins of a histogram, events. ``colours`` is one colour, or one for each.

    ``texts`` are shown on hovering, by heading. With ``start_ns`` and ``end_ns`` (-1: none), a tap on the report's page
    leads to that place of the timeline.
    """

    left: Numbers
    right: Numbers
    bottom: Numbers
    top: Numbers
    colours: str | Sequence[str]
    texts: Mapping[str, Sequence[str]] = {}
    start_ns: Numbers | None = None
    end_ns: Numbers | None = None


class Strokes(Struct, frozen=True):
    """Straight lines from (x0, y0) to (x1, y1)."""

    x0: Numbers
    y0: Numbers
    x1: Numbers
    y1: Numbers
    colour: str = "text-soft"
    width: float = 2


class LineMark(Struct, frozen=True):
    """A curve; ``dash`` is solid, dashed or dotted. With a ``place``, it is a step function over time for that device.

    ``unit_ns`` is then the number of ns in a unit of the horizontal axis.
    """

    label: str
    x: Numbers
    y: Numbers
    colour: str
    dash: str = "solid"
    place: str = ""
    unit_ns: int = 1


class Points(Struct, frozen=True):
    """Points of one group: ``texts`` are shown on hovering, by heading; ``markers`` are shapes of `SIGNS`."""

    label: str
    colour: str
    x: Numbers
    y: Numbers
    texts: Mapping[str, Sequence[str]] = {}
    size: Numbers | None = None
    markers: Sequence[str] = ()
    start_ns: Numbers | None = None
    end_ns: Numbers | None = None


class Labels(Struct, frozen=True):
    """Texts at points: ``align`` is left, right or center, ``baseline`` top, middle or bottom.

    A narrow plot omits them if they are ``spare``.
    """

    x: Sequence[float]
    y: Sequence[float]
    texts: Sequence[str]
    colours: str | Sequence[str] = "text-muted"
    align: str = "left"
    baseline: str = "middle"
    spare: bool = False


Mark = Boxes | Strokes | LineMark | Points | Labels


class Chart(Struct, frozen=True):
    """A plot: ``marks`` in the order of drawing, and as ``legend`` names with their colours.

    ``signs`` are signs (shapes of points, dashes) with their meaning. The plot has the width of its place, at least
    ``least_width`` pixels; ``width`` is that in a notebook. With ``zooms``, dragging zooms horizontally.
    """

    x: Axis
    y: Axis
    marks: tuple[Mark, ...]
    legend: tuple[tuple[str, str], ...] = ()
    signs: tuple[tuple[str, str], ...] = ()
    width: int = 560
    height: int = 260
    least_width: int = 0
    zooms: bool = False


class Flame(Struct, frozen=True):
    """A flame graph: the nodes of a tree, callers first, and the number of smaller nodes that are left out.

    ``nodes`` has columns ``caller`` (the caller's row, -1 for a root), ``frame`` (whole name), ``label`` (short name),
    ``colour`` and ``value_ns``, and may have ``note`` (shown on hovering). ``unit`` is ns, or bytes for values of memory.
    """

    key: str
    title: str
    nodes: pl.DataFrame
    left_out: int = 0
    unit: str = "ns"
