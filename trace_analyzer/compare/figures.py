"""Compute what text, page and plots of a comparison show: counts and times per step, waterfalls and flame graphs."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import polars as pl

from trace_analyzer.catalog.kernels import line_label
from trace_analyzer.compare.comparison import Bar, Comparison, Line, RankChange
from trace_analyzer.compare.phrasing import bar_label

_MOST_BARS = 12
_LEAST_BAR = 0.01
"""Bars below this share of the largest one are too short to be visible, and are merged."""
_DEPTH = 9
"""Number of levels of the flame graph: the step, the kind of time, modules, the operator."""
_LEAST_SHARE = 0.002
"""Frames of the flame graph below this share of the step are not drawn."""
_EVEN = 0.02
"""Frames whose sides differ by at most this share count as equal."""
_KINDS = {"idle": "Idle", "kernel": "Kernels", "copy": "Copies", "communication": "Communication"}
"""Labels of the kinds of time, the flame graph's second level."""


def counts_a_step(line: Line, result: Comparison) -> tuple[float, float] | None:
    """Return a line's number of calls or gaps per step of each side; None where its level has no counts."""
    if line.before_count is None or line.after_count is None:
        return None
    before, after = result.both
    return line.before_count / before.steps, line.after_count / after.steps


def times_a_step(line: Line, result: Comparison) -> tuple[float, float]:
    """Return the time of a line per step of each side, ns; both sides must have steps."""
    before, after = result.both
    return line.before_total_ns / before.steps, line.after_total_ns / after.steps


@dataclass(frozen=True)
class WaterfallRow:
    """Hold a bar of a waterfall, from the end of the previous bar; ``difference_ns`` is None for the two whole steps.

    ``within_chance`` is true where the difference is not significant.
    """

    name: str
    start_ns: float
    end_ns: float
    difference_ns: float | None = None
    within_chance: bool = False


def waterfall_rows(bars: Sequence[Bar], before_ns: float, after_ns: float) -> list[WaterfallRow]:
    """Return the bars from the step before to the step after, largest changes first; the rest is one bar."""
    least = _LEAST_BAR * max((abs(bar.difference_ns) for bar in bars), default=0.0)
    shown = [bar for bar in bars if abs(bar.difference_ns) > least][:_MOST_BARS]
    changes = [(bar_label(bar), bar.difference_ns, bar.significant is False) for bar in shown]
    if len(bars) > len(shown):
        changes.append(("all others", after_ns - before_ns - sum(bar.difference_ns for bar in shown), False))
    rows, level = [WaterfallRow("before", 0.0, before_ns)], before_ns
    for name, change, within_chance in changes:
        rows.append(WaterfallRow(name, level, level + change, change, within_chance))
        level += change
    return [*rows, WaterfallRow("after", 0.0, after_ns)]


def category_times(result: Comparison) -> dict[tuple[str, str], int]:
    """Return the time of each kind and category in both typical steps, ns; {} where a side has no single events."""
    sums = Counter[tuple[str, str]]()
    for side in result.sides:
        for start, end, kind, category, _ in (side.timeline() if side.timeline else pl.DataFrame()).iter_rows():
            sums[kind, category] += end - start
    return dict(sums)


@dataclass
class _Frame:
    """Hold a frame of the flame graph: time per step of both sides, and its children."""

    name: str
    before_ns: float = 0.0
    after_ns: float = 0.0
    children: dict[str, "_Frame"] = field(default_factory=dict)

    @property
    def width_ns(self) -> float:
        """Return the larger time of both sides, including children, so that removed work is visible too."""
        return max(self.before_ns, self.after_ns, sum(child.width_ns for child in self.children.values()))


@dataclass(frozen=True)
class FlameRow:
    """Hold a drawn frame: its position, width and level, and the time per step of both sides, in ns."""

    name: str
    depth: int
    start_ns: float
    width_ns: float
    before_ns: float
    after_ns: float

    @property
    def change(self) -> str:
        """Return ``slower``, ``faster`` or, within 2 %, ``even``."""
        difference = self.after_ns - self.before_ns
        if abs(difference) <= _EVEN * max(self.before_ns, self.after_ns):
            return "even"
        return "slower" if difference > 0 else "faster"


def flame_rows(result: Comparison) -> list[FlameRow]:
    """Return the frames of the differential flame graph, the step first; each has the width of the larger side."""
    before, after = result.both
    root = _tree(result.matches, before.steps, after.steps)
    return list(_rows(root, 0.0, 0, _LEAST_SHARE * root.width_ns))


def _tree(table: pl.DataFrame, before_steps: int, after_steps: int) -> _Frame:
    root = _Frame("step")
    rows = table.select(
        "kind", "category", "module", pl.coalesce("operator", "outer_operator", "kernel", "category").alias("operator"),
        (pl.col("before_total_ns") / before_steps).alias("before"), (pl.col("after_total_ns") / after_steps).alias("after"),
    )  # fmt: skip
    for kind, category, module, operator, before, after in rows.iter_rows():
        own = line_label(category) if kind == "idle" or operator == category else operator
        path = [_KINDS[kind], own] if kind == "idle" else [_KINDS[kind], *(module or "").split("/"), own]
        frame = root
        frame.before_ns, frame.after_ns = frame.before_ns + before, frame.after_ns + after
        for name in [part for part in path if part][: _DEPTH - 1]:
            frame = frame.children.setdefault(name, _Frame(name))
            frame.before_ns, frame.after_ns = frame.before_ns + before, frame.after_ns + after
    return root


def _rows(frame: _Frame, start_ns: float, depth: int, least_ns: float) -> Iterator[FlameRow]:
    width = frame.width_ns
    if width < least_ns:
        return
    yield FlameRow(frame.name, depth, start_ns, width, frame.before_ns, frame.after_ns)
    for child in sorted(frame.children.values(), key=lambda item: (-item.width_ns, item.name)):
        yield from _rows(child, start_ns, depth + 1, least_ns)
        start_ns += child.width_ns


def scale_ends(rows: Sequence[WaterfallRow]) -> tuple[float, float]:
    """Return the axis range of a waterfall in ns: from 0, or from below all changes where they are close together."""
    ends = [end for row in rows if row.difference_ns is not None for end in (row.start_ns, row.end_ns)] or [
        row.end_ns for row in rows
    ]
    low, high = min(ends), max(*ends, rows[0].end_ns, rows[-1].end_ns)
    start = max(0.0, low - 0.3 * (high - low)) if high - low < 0.4 * high else 0.0
    return start, high + 0.18 * (high - start)


def times_by_colour(
    times: Mapping[tuple[str, str], int], colours: Mapping[tuple[str, str], str], most: int, most_names: int
) -> list[tuple[str, str]]:
    """Return the ``most`` colours with most time, each after its ``most_names`` categories with most time."""
    sums, names = Counter[str](), dict[str, Counter[str]]()
    for key, ns in times.items():
        colour = colours[key]
        sums[colour] += ns
        names.setdefault(colour, Counter())[line_label(key[1])] += ns
    return [
        (", ".join(name for name, _ in names[colour].most_common(most_names)), colour)
        for colour, _ in sums.most_common(most)
    ]


def role_rows(result: Comparison) -> list[tuple[str, list[int], list[float]]]:
    """Return each role of a job with several, its ranks, and the means of their figures, ns, as `RankChange` has them."""
    roles = sorted({item.role for item in result.ranks if item.role is not None}, key=lambda role: (len(role), role))
    return [
        (
            role,
            sorted(item.rank for item in own),
            [fmean(of_figure) for of_figure in zip(*map(_figures, own), strict=True)],
        )
        for role in (roles if len(roles) > 1 else ())
        for own in [[item for item in result.ranks if item.role == role]]
    ]


def _figures(item: RankChange) -> tuple[float, ...]:
    return item.before_ns, item.after_ns, item.own_work_ns, item.communication_ns, item.idle_ns
