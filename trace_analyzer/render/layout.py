"""Lay out lines of styled text in terminal cells: wrapping, columns and bars."""

import re
from collections.abc import Sequence
from itertools import chain, zip_longest
from textwrap import wrap

from trace_analyzer import units

Span = tuple[str, str]
"""A piece of text and the name of its style ("" for none)."""

Line = list[Span]

STYLES = {
    "bold": "1", "dim": "2", "title": "1",
    "verdict": "1;36", "code": "36", "good": "32", "bad": "1;31", "warn": "33",
    "compute": "32", "memory": "34", "latency": "33", "communication": "35", "copy": "36", "other": "37",
    "idle": "31",
}  # fmt: skip
"""ANSI attributes (SGR) per style, from the sixteen colours that every terminal theme defines."""

COLUMN_GAP = 4
"""Cells between two blocks next to each other."""

MOST_LINES = 12
"""Most lines of any text; only malicious names need more."""

LEAST_TEXT = 5
"""Least width of a text column; where even that does not fit, the right end of the lines is cut."""

_UNIT = re.compile(r"(?:%|[num]?s|[kMGTPE]?(?:B|FLOP)(?:/s)?)[.,;:)]*")
"""Units that stay on the line of their figure."""

_WORD = re.compile(r"'[^'/]*/[^']*'(?!\S)|\S+")
"""Words, and paths in a shell's quotes."""

_EIGHTHS = " ▏▎▍▌▋▊▉█"


def cells(line: Line) -> int:
    """Return the width of a line in terminal cells."""
    return sum(units.cell_width(text) for text, _ in line)


def half_width(width: int) -> int:
    """Return the width of each of two blocks next to each other."""
    return (width - COLUMN_GAP) // 2


def unbroken(text: str) -> list[str]:
    """Split a text where a line may end: at spaces, except between a figure and its unit, and within a quoted path.

    >>> unbroken("takes 549 us, 12 % of it")
    ['takes', '549 us,', '12 %', 'of', 'it']
    >>> unbroken("analyze explain 'my runs/a b.json' gap:1")
    ['analyze', 'explain', "'my runs/a b.json'", 'gap:1']
    """
    words: list[str] = []
    for word in _WORD.findall(text):
        if words and words[-1][-1].isdigit() and _UNIT.fullmatch(word):
            words[-1] += f" {word}"
        else:
            words.append(word)
    return words


def folded(text: str, width: int, most: int = 99) -> list[str]:
    """Wrap the text to at most ``most`` lines of at most ``width`` cells, with an ellipsis at a cut; break long words."""
    lines: list[str] = []
    for piece in chain.from_iterable(_pieces(word, max(1, width)) for word in unbroken(text)):
        if lines and units.cell_width(f"{lines[-1]} {piece}") <= width:
            lines[-1] += f" {piece}"
        else:
            lines.append(piece)
    if len(lines) <= most:
        return lines or [""]
    return [*lines[: most - 1], units.shorten(" ".join(lines[most - 1 :]), width)]


def folded_code(line: str, width: int) -> list[str]:
    """Wrap a line of Python into valid Python.

    A comment moves above its statement, and each of its lines begins with ``#``.
    """
    if units.cell_width(line) <= width:
        return [line]
    statement, mark, comment = line.partition("  # ")
    if line.lstrip().startswith("#"):
        statement, mark, comment = "", "#", line.lstrip(" #")
    indent = " " * (len(line) - len(line.lstrip()))
    room = max(1, width - len(indent))
    notes = [f"# {piece}" for piece in folded(comment, max(1, room - 2))] if mark else []
    written = [*notes, *(folded(statement, room) if statement else [])]
    return [indent + piece for piece in written] if len(indent) < width else folded(line, width)


def _pieces(word: str, width: int) -> list[str]:
    """Break a word into pieces of at most ``width`` cells: after a slash, else a space, else anywhere."""
    pieces = [""]
    for sign in word:
        if units.cell_width(pieces[-1] + sign) > width:
            end = pieces[-1].rfind("/") + 1 or pieces[-1].rfind(" ") + 1 or len(pieces[-1])
            pieces[-1:] = [pieces[-1][:end], pieces[-1][end:]]
        pieces[-1] += sign
    return [piece.strip() for piece in pieces if piece.strip()]


def hanging(head: Line, text: str, width: int, style: str = "") -> list[Line]:
    """Write the head, and the text next to it, wrapped below itself, without control characters."""
    indent = cells(head)
    first, *rest = folded(units.visible(text), max(1, width - indent), MOST_LINES)
    return [[*head, (first, style)], *([(" " * indent, ""), (line, style)] for line in rest)]


def columns(rows: Sequence[Line], align: str, gap: int = 2) -> list[Line]:
    """Pad the rows' spans into columns; ``align`` has an ``l`` or ``r`` per column."""
    widths = [max(units.cell_width(row[k][0]) for row in rows) for k in range(len(align))] if rows else []
    return [
        [part for k, span in enumerate(row) for part in _cell(span, widths[k], align[k], gap if k else 0)]
        for row in rows
    ]


def column_widths(rows: Sequence[Sequence[str]], sides: str, room: int, gap: int = 2) -> list[int]:
    """Return the width of each column for a table of ``room`` cells; ``rows`` begin with the headings.

    Numbers are never cut. If the table is too wide, headings above them wrap, and texts share the rest, short ones
    uncut.
    """
    needs = [max(map(units.cell_width, column)) for column in zip(*rows, strict=True)]
    left = room - gap * (len(needs) - 1)
    if sum(needs) <= left:
        return needs
    widths = [
        max(map(units.cell_width, (*head.split(), *column)), default=0) if side == "r" else 0
        for (head, *column), side in zip(zip(*rows, strict=True), sides, strict=True)
    ]
    left -= sum(widths)
    texts = sorted((k for k, side in enumerate(sides) if side == "l"), key=lambda k: needs[k])
    for place, k in enumerate(texts):
        widths[k] = min(needs[k], max(LEAST_TEXT, left // (len(texts) - place)))
        left -= widths[k]
    return widths


def table_row(texts: Sequence[str], widths: Sequence[int], sides: str, styles: Sequence[str]) -> list[Line]:
    """Write a row of a table with two cells between columns; a text wider than its column continues below."""
    cut = [broken(text, width) for text, width in zip(texts, widths, strict=True)]
    return [
        [
            part
            for k, (text, side) in enumerate(zip(line, sides, strict=True))
            for part in _cell((text, styles[k]), widths[k], side, 2 if k else 0)
        ]
        for line in zip_longest(*cut, fillvalue="")
    ]


def broken(text: str, width: int, most: int = MOST_LINES) -> list[str]:
    """Wrap the text like `folded`, and at hyphens where it names no file."""
    words = " ".join(word.replace(" ", "\xa0") for word in unbroken(text))
    by_hyphens = text.isascii() and "/" not in text
    lines = [line.replace("\xa0", " ") for line in wrap(words, width)] if by_hyphens else folded(text, width)
    if len(lines) <= most:
        return lines or [""]
    return [*lines[: most - 1], units.shorten("".join(lines[most - 1 :]), width)]


def _cell(span: Span, width: int, side: str, gap: int) -> Line:
    text, style = span
    fill = " " * (width - units.cell_width(text))
    return [(" " * gap + (fill if side == "r" else ""), ""), (text, style), (fill if side == "l" else "", "")]


def side_by_side(left: Sequence[Line], right: Sequence[Line], at: int) -> list[Line]:
    """Lay two blocks next to each other, the right one starting in column ``at``."""
    return [
        [*(one or []), (" " * (at - cells(one or [])), ""), *(other or [])] if other else one or []
        for one, other in zip_longest(left, right)
    ]


def bar(ratio: float, width: int) -> str:
    """Draw a bar of ``ratio`` of ``width`` cells, in eighths of a cell; a positive ratio is always visible."""
    eighths = min(8 * width, max(round(8 * width * ratio), 1 if ratio > 0 else 0))
    full, rest = divmod(eighths, 8)
    return "█" * full + (_EIGHTHS[rest] if rest else "")


def line_text(line: Line, width: int, colour: bool) -> str:
    """Write the line as text of at most ``width`` cells, with ANSI codes if ``colour``."""
    spans = _clipped(line, width)
    while spans and not spans[-1][0].rstrip():
        spans.pop()
    if not spans:
        return ""
    spans[-1] = (spans[-1][0].rstrip(), spans[-1][1])
    return "".join(f"\x1b[{STYLES[style]}m{text}\x1b[0m" if colour and style else text for text, style in spans)


def _clipped(line: Line, width: int) -> Line:
    kept: Line = []
    left = width
    for text, style in line:
        if left > 0:
            short = units.shorten(text, left)
            kept.append((short, style))
            left -= units.cell_width(short)
    return kept
