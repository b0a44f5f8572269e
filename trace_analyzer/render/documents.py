"""Lay out documents: as text for a terminal, as Markdown, and as an offline page."""

from collections.abc import Callable
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any

from trace_analyzer import forks
from trace_analyzer.documents import Code, Document, Figure, Notes, PlainTable
from trace_analyzer.files import write_text
from trace_analyzer.render.layout import column_widths, folded, folded_code, line_text, table_row
from trace_analyzer.render.markdown import escaped, fenced
from trace_analyzer.units import counted, shorten, visible

DOCUMENTS = {
    "Calibration": "trace_analyzer.documents.calibration",
    "Comparison": "trace_analyzer.documents.comparison",
    "Explanation": "trace_analyzer.explain.explanation",
    "JobReport": "trace_analyzer.documents.ranks",
    "Loop": "trace_analyzer.documents.loop",
    "Memory": "trace_analyzer.documents.memory",
    "Scaling": "trace_analyzer.documents.scaling",
    "WhatIf": "trace_analyzer.documents.whatif",
}
"""Class of a result -> the module that describes it, by ``document(result)``."""
_BRIEF_CELLS = 160
NOTEBOOK_PX = 720
"""Height of a page in a notebook, pixels."""
PAGES = {"JobReport": "trace_analyzer.render.html.rank_map"}
"""Class of a result -> the module with its page, ``page(result, document, folder)``, where that has more than the document."""


def document_of(result: object) -> Document:
    """Return the document of a result."""
    describe: Callable[[object], Document] = import_module(DOCUMENTS[type(result).__name__]).document
    return describe(result)


def brief(result: object) -> str:
    """Return a result in one line, for the prompt."""
    return shorten(visible(f"<{type(result).__name__}: {document_of(result).headline}"), _BRIEF_CELLS - 1) + ">"


def text(document: Document, width: int) -> str:
    """Return the document as lines of at most ``width`` cells."""
    lines = folded(visible(document.headline), width)
    for chapter in document.chapters:
        shown = [line for piece in chapter.pieces for line in _text(piece, width)]
        if shown:
            lead = folded(visible(f"{chapter.title}. {chapter.lead}" if chapter.lead else chapter.title), width)
            lines += ["", *lead, *shown]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _text(piece: object, width: int) -> list[str]:
    if isinstance(piece, Notes):
        return [line for note in piece.notes for line in hanging(note, width)]
    if isinstance(piece, Code):
        lines = (line for text in piece.code.splitlines() for line in folded_code(visible(text), width - 4))
        return [f"    {line}" for line in lines]
    if not isinstance(piece, PlainTable) or piece.most == 0:
        return []
    rows = [[visible(cell) for cell in row] for row in piece.rows[: piece.most]]
    kept = [place for place, cells in enumerate(zip(piece.headings, *rows, strict=True)) if any(cells)]
    headings, *rows = ([row[place] for place in kept] for row in (piece.headings, *rows))
    sides = "".join(piece.sides[place] for place in kept)
    widths = column_widths([headings, *rows], sides, width - 2)
    styles = [""] * len(widths)
    laid = [line for row in ([headings] if any(headings) else []) + rows for line in table_row(row, widths, sides, styles)]  # fmt: skip
    more = [f"  {counted(len(piece.rows) - len(rows), 'more row')}"] if len(rows) < len(piece.rows) else []
    title = [f"  {visible(piece.title)}"] if piece.title else []
    return [*title, *("  " + line_text(line, width - 2, colour=False) for line in laid), *more]


def hanging(sentence: str, width: int) -> list[str]:
    """Wrap a sentence, with two cells before its first line and four before the others."""
    first, *rest = folded(visible(sentence), max(1, width - 4))
    return [f"  {first}", *(f"    {line}" for line in rest)]


def markdown(document: Document) -> str:
    """Return the document as Markdown, in which no text becomes markup."""
    blocks = [f"**{escaped(document.headline)}**"]
    for chapter in document.chapters:
        shown = [block for piece in chapter.pieces if (block := _markdown(piece))]
        if not shown:
            continue
        lead = [escaped(chapter.lead)] if chapter.lead else []
        if chapter.folded:
            blocks += [f"<details><summary>{escaped(chapter.title)}</summary>", *lead, *shown, "</details>"]
        else:
            blocks += [f"**{escaped(chapter.title)}**", *lead, *shown]
    return "\n\n".join(blocks) + "\n"


def _markdown(piece: object) -> str:
    if isinstance(piece, Notes):
        return "\n".join(f"- {escaped(note)}" for note in piece.notes)
    if isinstance(piece, Code):
        return "\n".join(fenced(piece.code))
    if not isinstance(piece, PlainTable) or piece.most == 0:
        return ""
    head = (
        "| " + " | ".join(map(escaped, piece.headings)) + " |" if any(piece.headings) else "|" + " |" * len(piece.sides)
    )
    rule = "|" + "|".join("---:" if side == "r" else "---" for side in piece.sides) + "|"
    rows = ["| " + " | ".join(map(escaped, row)) + " |" for row in piece.rows[: piece.most]]
    return "\n".join([head, rule, *rows])


def write_page(result: Any, path: Path) -> Path:
    """Write a result as one offline page and return the path. Raises ``OSError`` when it cannot be written, and as `page`."""
    write_text(path, page(result, path.absolute().parent))
    return path


def page(result: object, folder: Path) -> str:
    """Return a result as one offline page; links to other files are relative to ``folder``.

    Raises ``ForkedError`` where Polars would hang.
    """
    forks.check()
    document = document_of(result)
    if place := PAGES.get(type(result).__name__):
        made: str = import_module(place).page(result, document, folder)
        return made
    from trace_analyzer.render.html.shell import document_page

    return document_page(document)


def plot(result: object) -> Any:
    """Return the first chart of a result as a HoloViews element; None without one."""
    from trace_analyzer.render.plots import plot

    pieces = (piece for chapter in document_of(result).chapters for piece in chapter.pieces)
    charts = (piece.chart() for piece in pieces if isinstance(piece, Figure))
    chart = next((chart for chart in charts if chart is not None), None)
    return None if chart is None else plot(chart)


def notebook(result: object) -> str:
    """Return the page of a result in a frame, for notebooks."""
    text = page(result, Path())
    return (
        f'<iframe srcdoc="{escape(text)}" sandbox="allow-scripts" style="width: 100%; height: {NOTEBOOK_PX}px; border: 0"'
        f' title="{escape(type(result).__name__)}"></iframe>'
    )
