"""Declare charts as data: marks on two axes. Pages draw them with Bokeh, notebooks with HoloViews.

A colour is the name of a CSS variable of the pages without its dashes (`trace_analyzer.render.charts`). All texts are
shown as they are, never as markup.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt
import polars as pl

Numbers = Sequence[float] | npt.NDArray[Any]

SIGNS = {"circle": "●", "triangle": "▲", "square": "■", "diamond": "◆", "inverted_triangle": "▼"}
"""Shapes of points -> the signs that stand for them in a legend."""


@dataclass(frozen=True)
class Axis:
    """An axis: its label with a unit, labelled ``ticks`` (default: the browser's), and ends (None: the data's).

    An axis of names has a tick for each and no grid.
    """

    label: str
    unit: str = ""
    log: bool = False
    ticks: Mapping[float, str] = field(default_factory=dict)
    ends: tuple[float | None, float | None] = (None, None)
    names: bool = False
    hidden: bool = False

    @property
    def title(self) -> str:
        """Return the label with its unit."""
        return f"{self.label} ({self.unit})" if self.unit and self.label else self.label or self.unit


@dataclass(frozen=True)
class Boxes:
    """Rectangles: bars, bins of a histogram, events. ``colours`` is one colour, or one for each.

    ``texts`` are shown on hovering, by heading. With ``start_ns`` and ``end_ns`` (-1: none), a tap on the report's page
    leads to that place of the timeline.
    """

    left: Numbers
    right: Numbers
    bottom: Numbers
    top: Numbers
    colours: str | Sequence[str]
    texts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    start_ns: Numbers | None = None
    end_ns: Numbers | None = None


@dataclass(frozen=True)
class Strokes:
    """Straight lines from (x0, y0) to (x1, y1)."""

    x0: Numbers
    y0: Numbers
    x1: Numbers
    y1: Numbers
    colour: str = "text-soft"
    width: float = 2


@dataclass(frozen=True)
class LineMark:
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


@dataclass(frozen=True)
class Points:
    """Points of one group: ``texts`` are shown on hovering, by heading; ``markers`` are shapes of `SIGNS`."""

    label: str
    colour: str
    x: Numbers
    y: Numbers
    texts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    size: Numbers | None = None
    markers: Sequence[str] = ()
    start_ns: Numbers | None = None
    end_ns: Numbers | None = None


@dataclass(frozen=True)
class Labels:
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


@dataclass(frozen=True)
class Chart:
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


@dataclass(frozen=True)
class Flame:
    """A flame graph: the nodes of a tree, callers first, and the number of smaller nodes that are left out.

    ``nodes`` has columns ``caller`` (the caller's row, -1 for a root), ``frame`` (whole name), ``label`` (short name),
    ``colour`` and ``value_ns``, and may have ``note`` (shown on hovering). ``unit`` is ns, or bytes for values of memory.
    """

    key: str
    title: str
    nodes: pl.DataFrame
    left_out: int = 0
    unit: str = "ns"
