"""Define a result as a document: plain data that the terminal, Markdown and pages lay out (in the package `render`).

Texts are those of the result and of the trace; each layout escapes them for its format. What only pages show (charts,
flame graphs, rows that unfold) is a function, called when a page is made: text and Markdown do not wait for it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from trace_analyzer.report import Lever
from trace_analyzer.sections import Chart, Flame
from trace_analyzer.thresholds import WORTH_RATIO
from trace_analyzer.units import percent
from trace_analyzer.vocabulary import RESOURCES


def largest_lever(levers: Sequence[Lever]) -> str:
    """Write what could save most, and how much: ``host time 40 %``; a dash where no lever is worth it."""
    return next((f"{RESOURCES[lever.resource]} {percent(lever.saves_ratio)}" for lever in _worth(levers)), "–")


def savings_of(levers: Iterable[Lever]) -> str:
    """Write what the levers that are worth it save: ``40 % without host time, 11 % without copies``; "" for none."""
    return ", ".join(f"{percent(lever.saves_ratio)} without {RESOURCES[lever.resource]}" for lever in _worth(levers))


def _worth(levers: Iterable[Lever]) -> Iterable[Lever]:
    return (lever for lever in levers if lever.saves_ratio >= WORTH_RATIO)


class Figure(Struct, frozen=True):
    """A chart with its title and caption; a page leaves it out where ``chart`` returns None.

    ``key`` names it on the page, by default by its place.
    """

    title: str
    caption: str
    chart: Callable[[], Chart | None]
    key: str = ""
    is_wide: bool = True


class FlameFigure(Struct, frozen=True):
    """Flame graphs to choose from, with a caption and a legend of names and colours (CSS variables without dashes)."""

    title: str
    caption: str
    flames: Callable[[], tuple[Flame, ...]]
    legend: tuple[tuple[str, str], ...] = ()


class PlainTable(Struct, frozen=True):
    """A table of texts; ``sides`` has ``l`` or ``r`` (figures) per column.

    ``under`` returns rows that unfold below the first cell of a row, by its place. Text and Markdown have the first
    ``most`` rows. ``picks`` names what the first cell picks on the page (a ``data-`` attribute).
    """

    headings: Sequence[str]
    sides: str
    rows: Sequence[Sequence[str]]
    title: str = ""
    under: Callable[[], Mapping[int, Sequence[Sequence[str]]]] = dict
    most: int | None = None
    picks: str = ""


class Notes(Struct, frozen=True):
    """Sentences in a list; those with severity ``warning`` or ``error`` stand out on the page."""

    notes: Sequence[str]
    severity: str = "info"


class Code(Struct, frozen=True):
    """Python code to copy."""

    code: str


class Chapter(Struct, frozen=True):
    """Pieces below a title, after a lead. Where nothing is `shown` it is left out; ``folded`` where the format can fold.

    A piece of another type is content that a page makes for itself. ``short`` is the title in the page's navigation.
    """

    key: str
    title: str
    pieces: Sequence[object]
    lead: str = ""
    folded: bool = False
    short: str = ""

    @property
    def shown(self) -> list[object]:
        """Return the pieces but for tables without rows, lists without notes, and code without any."""
        return [piece for piece in self.pieces if not _is_empty(piece)]


def _is_empty(piece: object) -> bool:
    match piece:
        case PlainTable(rows=content) | Notes(notes=content) | Code(code=content):
            return not content
    return False


class Document(Struct, frozen=True):
    """A result: what it is of, its headline, and its chapters. ``chips`` are short remarks on the page's headline."""

    title: str
    headline: str
    chapters: Sequence[Chapter]
    chips: Sequence[str] = ()
    regime: str = ""
