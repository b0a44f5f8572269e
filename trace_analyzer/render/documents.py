"""Lay out documents: as text for a terminal, as Markdown, and as an offline page; the report as Markdown.

Names from a trace never become markup.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from html import escape
from importlib import import_module
from pathlib import Path, PurePath
from pkgutil import resolve_name
from typing import Any

from msgspec.structs import asdict

from trace_analyzer import files, forks, registry, units, vocabulary
from trace_analyzer.analyses.operators import launch_counts
from trace_analyzer.catalog.kernels import article
from trace_analyzer.documents import Code, Document, Figure, Notes, PlainTable
from trace_analyzer.render import phrasing, row_phrases
from trace_analyzer.render.declared import (
    DeclaredSection,
    LaidColumn,
    declared_sections,
    record_rows,
    row_section,
    table_section,
)
from trace_analyzer.render.layout import column_widths, folded, folded_code, line_text, table_row
from trace_analyzer.render.names import kernel_label
from trace_analyzer.report import Advice, Report, devices, summaries
from trace_analyzer.report.summaries import MOVEMENTS_SECTION, PARTITION_SECTION, part_shares, step_rows
from trace_analyzer.report.verdicts import BLAME_SECTION, EVIDENCE_SECTION, STEPS_SECTION
from trace_analyzer.units import counted, shorten, visible

_NAME_RATIO = 0.4
"""Most of a terminal's width that the symbol of a kernel takes in a table of a document."""

DOCUMENTS = {
    "Calibration": "trace_analyzer.documents.whatif:calibration_document",
    "Comparison": "trace_analyzer.documents.comparison:document",
    "Explanation": "trace_analyzer.explain:document",
    "JobReport": "trace_analyzer.documents.ranks:document",
    "Loop": "trace_analyzer.documents.comparison:loop_document",
    "Memory": "trace_analyzer.documents.memory:document",
    "Scaling": "trace_analyzer.documents.comparison:scaling_document",
    "WhatIf": "trace_analyzer.documents.whatif:document",
}
"""Class of a result -> the function that describes it, ``document(result)``."""
_BRIEF_CELLS = 160
NOTEBOOK_PX = 720
"""Height of a page in a notebook, pixels."""
PAGES = {"JobReport": "trace_analyzer.render.html.rank_map"}
"""Class of a result -> the module with its page, ``page(result, document, folder)``, where that has more than the document."""


def document_of(result: object) -> Document:
    """Return the document of a result."""
    describe: Callable[[object], Document] = resolve_name(DOCUMENTS[type(result).__name__])
    return describe(result)


def brief(result: object) -> str:
    """Return a result in one line, for the prompt."""
    return shorten(visible(f"<{type(result).__name__}: {document_of(result).headline}"), _BRIEF_CELLS - 1) + ">"


def text(document: Document, width: int) -> str:
    """Return the document as lines of at most ``width`` cells."""
    lines = folded(visible(document.headline), width)
    for chapter in document.chapters:
        shown = [line for piece in chapter.shown for line in _text(piece, width)]
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
    rows = [[visible(_name(cell, int(_NAME_RATIO * width))) for cell in row] for row in piece.rows[: piece.most]]
    kept = [place for place, cells in enumerate(zip(piece.headings, *rows, strict=True)) if any(cells)]
    headings, *rows = ([row[place] for place in kept] for row in (piece.headings, *rows))
    sides = "".join(piece.sides[place] for place in kept)
    widths = column_widths([headings, *rows], sides, width - 2)
    styles = [""] * len(widths)
    laid = [line for row in ([headings] if any(headings) else []) + rows for line in table_row(row, widths, sides, styles)]  # fmt: skip
    more = [f"  {counted(len(piece.rows) - len(rows), 'more row')}"] if len(rows) < len(piece.rows) else []
    title = [f"  {visible(piece.title)}"] if piece.title else []
    return [*title, *("  " + line_text(line, width - 2, colour=False) for line in laid), *more]


def _name(cell: str, cells: int) -> str:
    """Return the text of a cell; the symbol of a kernel is shortened to so many cells of the terminal."""
    return kernel_label(cell, cells) if "<" in cell and "::" in cell else cell


def hanging(sentence: str, width: int) -> list[str]:
    """Wrap a sentence, with two cells before its first line and four before the others."""
    first, *rest = folded(visible(sentence), max(1, width - 4))
    return [f"  {first}", *(f"    {line}" for line in rest)]


def markdown(document: Document) -> str:
    """Return the document as Markdown, in which no text becomes markup."""
    blocks = [f"**{escaped(document.headline)}**"]
    for chapter in document.chapters:
        shown = [block for piece in chapter.shown if (block := _markdown(piece))]
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
    rows = ([escaped(_name(cell, _NAME_CELLS)) for cell in row] for row in piece.rows[: piece.most])
    return _table([heading and escaped(heading) for heading in piece.headings], piece.sides, rows)


def write_page(result: Any, path: Path) -> Path:
    """Write a result as one offline page and return the path. Raises ``OSError`` when it cannot be written, and as `page`."""
    files.write_text(path, page(result, path.absolute().parent))
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


_TOP_ROWS, _NAME_CELLS, _TOP_BLAME, _TOP_STEPS = 10, 100, 10, 12

_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
# Code, emphasis, links, cells, strikethrough, math; underscores only where they could open or close emphasis.
_INLINE = re.compile(r"[\\`*\[\]|~$]|(?<![^\W_])_|_(?![^\W_])")
_BLOCK = re.compile(
    r"^(\d+(?=[.)](?:\s|$))|(?=[#+=-]))([.)#+=-])"
)  # headings, lists and rules, which only the beginning of a text can make
_ADDRESS = re.compile(r"\b(https?|ftp)(:)(?=//)|\b(www)(\.)", re.IGNORECASE)
_REFERENCE = re.compile(r"@|(?<!\w)#(?=\d)")  # GitHub links @names and #numbers after rendering Markdown


def to_markdown(report: Report) -> str:
    """Return the report in GitHub's Markdown, in the order of the page, without the timeline."""
    verdict, device = report.verdict, phrasing.judged_device(report)
    fusions = record_rows(summaries.fusions(device, _TOP_ROWS)) if device else None
    sections = (
        _trust(report),
        _verdict(report),
        _section(row_section(EVIDENCE_SECTION, [asdict(fact) for fact in verdict.evidence])),
        _partition(report),
        _steps(report),
        _section(
            row_section(BLAME_SECTION, [asdict(row) for row in summaries.blamed(report.blame, verdict)[:_TOP_BLAME]])
        ),
        _section(table_section(registry.SECTIONS["host"], record_rows(report.host_costs), _TOP_ROWS)),
        _section(table_section(registry.SECTIONS["drains"], report.tables.get("drains"), _TOP_ROWS)),
        _costs_of_operators(report),
        _section(table_section(registry.SECTIONS["kernels"], report.tables.get("kernels"), _TOP_ROWS)),
        _work(report),
        _section(row_section(MOVEMENTS_SECTION, summaries.movements(device))),
        _section(table_section(registry.SECTIONS["fusions"], fusions, _TOP_ROWS)),
        *(_section(shown.top(_TOP_ROWS)) for shown in declared_sections(report) if shown.for_markdown().columns),
        _titled(
            "### What to change", "\n\n".join(_one_advice(rank, item) for rank, item in enumerate(report.advice, 1))
        ),
        _titled(
            "### What to record instead", "\n".join(f"- {escaped(tip)}" for tip in phrasing.record_instead(report))
        ),
        _notes(report),
    )
    return "\n\n".join(section for section in sections if section) + "\n"


def escaped(text: str) -> str:
    """Escape the text for one line: no part of it becomes markup, a link or a mention."""
    # Only an invisible space after the sign prevents GitHub from linking it.
    return _unaddressed(_REFERENCE.sub(r"\g<0>&#8203;", _literal(text))) or "–"


def code(text: str) -> str:
    """Return the text as code that is safe in a table cell, where a pipe ends the cell even inside backticks."""
    return f"<code>{_unaddressed(_literal(text))}</code>"


def _literal(text: str) -> str:
    return _BLOCK.sub(r"\1\\\2", _INLINE.sub(r"\\\g<0>", units.visible(text).strip().translate(_HTML)))


def _unaddressed(text: str) -> str:
    """Escape the sign after ``http`` or ``www`` as an entity, so that it does not become a link."""
    return _ADDRESS.sub(_unlinked, text)


def _unlinked(address: re.Match[str]) -> str:
    scheme, sign = (group for group in address.groups() if group)
    return f"{scheme}&#{ord(sign)};"


def _verdict(report: Report) -> str:
    verdict, trace = report.verdict, report.trace
    how_sure, why = phrasing.confidence(verdict)
    facts = (
        f"{how_sure} {escaped(why)}." if why else f"{how_sure}.",
        f"Runner-up: {vocabulary.phrase(verdict.runner_up)}." if verdict.runner_up else "",
    )
    names = ", ".join(dict.fromkeys(device.name for device in trace.devices if device.name))
    source = f"{code(PurePath(trace.path).name or trace.path)}, {units.counted(trace.event_count, 'event')}"
    window = phrasing.window_phrase(report)
    asides = [source, *([escaped(names)] if names else []), *([escaped(f"judged: {window}")] if window else [])]
    return _paragraphs(
        f"## {escaped(phrasing.verdict_label(verdict))}",
        f"**{escaped(phrasing.headline(verdict))}**",
        escaped(row_phrases.levers_sentence(verdict)),
        " ".join(fact for fact in facts if fact),
        ", ".join(asides),
        f"Without the profiler: {escaped(unbiased)}." if (unbiased := phrasing.debiased_phrase(verdict)) else "",
    )


def _trust(report: Report) -> str:
    """Write whether the trace supports the figures, and which checks failed."""
    if not report.trust:
        return ""
    broken = summaries.broken_checks(report)
    items = "\n".join(
        f"- {check.status}: {escaped(phrasing.check_phrase(check))}: {escaped(check.meaning)}" for check in broken
    )
    return _paragraphs(f"Trust: {phrasing.trust_phrase(report)}{':' if broken else '.'}", items)


def _partition(report: Report) -> str:
    parts = report.verdict.parts_ns or (report.devices[0].partition_ns if report.devices else {})
    unbiased = summaries.debiased_worth_a_line(report.verdict)
    shown = part_shares(parts, None if unbiased is None else unbiased.parts_ns)
    return _section(row_section(PARTITION_SECTION, [asdict(share) for share in shown]))


def _steps(report: Report) -> str:
    """Write the judged device's steps, including those set aside, with the limit of each."""
    rows, more = step_rows(report.steps, report.verdict, _TOP_STEPS)
    if len(rows) < 2:
        return ""
    rest = f"And {units.counted(more, 'more step that is', 'more steps that are')} like the steady ones."
    return _paragraphs(_section(row_section(STEPS_SECTION, rows)), rest if more else "")


def _costs_of_operators(report: Report) -> str:
    """Return the operators with most CPU time: its split, and launches that took longer than their device work."""
    table = report.tables.get("operators") if report.devices else None
    shown = _section(table_section(registry.SECTIONS["operators"], table, _TOP_ROWS))
    if table is None or not shown:
        return ""
    launches, short = launch_counts(table)
    short_launches = (
        f"{units.count(short)} of {units.counted(launches, 'launch', 'launches')} of operators took the CPU longer than the"
        " device: their kernels are too small to be worth a launch each."
    )
    return _paragraphs(shown, short_launches if short else "")


def _work(report: Report) -> str:
    """Write the article's table of the judged device, with the article's figures and their source."""
    if (known := phrasing.judged_work(report)) is None:
        return ""
    source, (device, texts) = article(), known
    return _paragraphs(
        _section(table_section(devices.GROUPS_SECTION, record_rows(device.groups), len(device.groups))),
        f"{escaped(phrasing.known_work(device))}. BERT: [{escaped(source.source)}]({source.url}).",
        *(escaped(f"{text}.") for text in texts),
    )


def _section(declared: DeclaredSection | None) -> str:
    """Lay out a declared section; "" without rows."""
    if declared is None:
        return ""
    shown = declared.for_markdown()
    rows = ([_cell(column, column.cell(row)) for column in shown.columns] for row in shown.rows)
    more = 0 if shown.section.top else shown.total - len(shown.rows)
    return _paragraphs(
        f"### {escaped(', '.join(filter(None, (shown.section.title, shown.section.scope))))}",
        escaped(shown.section.doc) if shown.section.doc else "",
        _table([escaped(head) for head in shown.headings], shown.alignment, rows),
        f"And {units.count(more)} more." if more else "",
    )


def _cell(column: LaidColumn, text: str) -> str:
    """Return the trace's own text as code, and other text escaped; figures need no escape."""
    if column.side == "r" and not column.shown.phrase:
        return text
    if column.side == "r" or text == "–" or column.shown.form in ("word", "part", "line", "group"):
        return escaped(text)
    return code(kernel_label(text, _NAME_CELLS) if column.shown.form == "name" else text)


def _one_advice(rank: int, item: Advice) -> str:
    """Write a numbered item, with its details indented below."""
    bound = " ".join(filter(None, (row_phrases.saves_at_most(item), item.how_bound and f"({escaped(item.how_bound)})")))
    predicted = phrasing.predicted_step(item)
    title = f"{rank}. **{escaped(item.title)}**: {escaped(predicted) if predicted else bound}"
    where = " ".join(
        text
        for text in (
            _advised_place(item),
            "" if item.start_ns is None else f"On the timeline from {units.duration(item.start_ns)} on.",
            f"More: {escaped(item.docs)}." if item.docs else "",
        )
        if text
    )
    block = "\n".join(fenced(item.code)) if item.code else ""
    return _paragraphs(
        title,
        *(
            "\n".join(f"   {line}" for line in part.splitlines())
            for part in (escaped(item.why), f"{units.capitalized(bound)}." if predicted else "", where, block)
            if part
        ),
    )


def _advised_place(item: Advice) -> str:
    """Write where to make the change, with the name as code; "" if unknown."""
    place = phrasing.advised_place(item)
    preposition, _, name = place.partition(" ")
    return f"{preposition.capitalize()} {code(name)}." if place else ""


def fenced(source: str) -> list[str]:
    """Write the code between fences that are longer than any run of backticks in the code."""
    lines = [units.visible(line) for line in source.splitlines()]
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}python", *lines, fence]


def _notes(report: Report) -> str:
    notes = "\n".join(f"- {note.severity}: {escaped(note.message)}" for note in phrasing.sorted_notes(report.notes))
    if not notes:
        return ""
    return f"<details><summary>Notes ({len(report.notes)})</summary>\n\n{notes}\n\n</details>"


def _titled(title: str, body: str) -> str:
    return _paragraphs(title, body) if body else ""


def _paragraphs(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)


def _table(head: Sequence[str], align: str, rows: Iterable[Sequence[str]]) -> str:
    """Write a table of escaped cells; "" without rows."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    rule = "|".join("---:" if side == "r" else "---" for side in align)
    return "\n".join([f"| {' | '.join(head)} |", f"|{rule}|", *lines]) if lines else ""
