"""Write the one-screen summary for terminals and logs: the verdict first, then its basis."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import asdict, replace

from trace_analyzer import registry, units
from trace_analyzer.render import first_screen, names, phrasing
from trace_analyzer.render.declared import (
    DeclaredSection,
    LaidColumn,
    declared_sections,
    record_rows,
    row_section,
    table_section,
)
from trace_analyzer.render.layout import Line, cells, column_widths, columns, hanging, line_text, table_row
from trace_analyzer.render.row_phrases import host_levers_sentence, saves_at_most
from trace_analyzer.report import Advice, DeviceReport, Report, summaries, verdicts
from trace_analyzer.report.devices import GROUPS_SECTION

_TOP_ROWS, _TOP_EVIDENCE, _TOP_DEVICES, _TOP_BLAME, _TOP_FUSIONS = 5, 5, 2, 3, 3
_LEAST_TEXT = 24  # least width of a wrapped text after its head


def summary(report: Report, width: int = 100, colour: bool = False, verbose: bool = False) -> str:
    """Return the report on one screen, in lines of at most ``width`` cells; ANSI colours only if ``colour``.

    With ``verbose`` the complete text follows: evidence, kernels, operators, advice with its reasons, steps, notes.
    """
    sections = _details(report, width) if verbose else _first_screen(report, width)
    blocks = ("\n".join(line_text(line, width, colour) for line in section) for section in sections if section)
    return "\n\n".join(blocks) + "\n"


def _first_screen(report: Report, width: int) -> Iterator[list[Line]]:
    yield first_screen.verdict_lines(report, width)
    yield first_screen.time_lines(report, width)
    yield first_screen.lever_lines(report, width)
    yield [] if report.advice else _operators(report, width)
    yield first_screen.advice_lines(report, width)
    yield first_screen.record_lines(report, width)
    yield [*first_screen.doubt_lines(report, width), *first_screen.more_lines(report, width)]


def _details(report: Report, width: int) -> Iterator[list[Line]]:
    yield first_screen.verdict_lines(report, width, verbose=True)
    yield first_screen.time_lines(report, width)
    of_host = host_levers_sentence(report.verdict)
    yield [
        *first_screen.lever_lines(report, width),
        *(hanging([("  ", "")], of_host, width) if of_host else []),
    ]
    facts = [asdict(fact) for fact in report.verdict.evidence[:_TOP_EVIDENCE]]
    yield _section(row_section(verdicts.EVIDENCE_SECTION, facts), width)
    phrase = phrasing.debiased_phrase(report.verdict)
    yield hanging([("Without the profiler  ", "title")], phrase, width, "dim") if phrase else []
    blamed = summaries.blamed(report.blame, report.verdict)[:_TOP_BLAME]
    yield _section(row_section(verdicts.BLAME_SECTION, [asdict(row) for row in blamed]), width)
    yield _kernels(report, width)
    yield _work(report, width)
    device = phrasing.judged_device(report)
    yield _section(row_section(summaries.MOVEMENTS_SECTION, summaries.movements(device)), width)
    fusions = summaries.fusions(device, _TOP_FUSIONS) if device else []
    yield _section(row_section(registry.SECTIONS["fusions"], [asdict(fusion) for fusion in fusions]), width)
    yield _operators(report, width)
    declared = (shown.top(_TOP_ROWS) for shown in declared_sections(report))
    yield from (_section(shown, width) for shown in declared if shown.for_terminal(width).columns)
    yield _advice(report, width)
    yield first_screen.record_lines(report, width)
    yield [*_checks(report, width), *_trust(report, width)]
    yield _notes(report, width)


def _checks(report: Report, width: int) -> list[Line]:
    broken = summaries.broken_checks(report)
    if not report.trust:
        return []
    text = "; ".join((phrasing.trust_phrase(report), *phrasing.check_phrases(report, broken)))
    style = "bad" if any(check.status == "fail" for check in broken) else "warn" if broken else "dim"
    return hanging([("Checks  ", "title")], text, width, style)


def _kernels(report: Report, width: int) -> list[Line]:
    table = report.tables.get("kernels")
    device = summaries.device_code(report, report.verdict.device)
    if table is not None and device is not None:
        table = table.filter(table["device"] == device)
    return _section(table_section(registry.SECTIONS["kernels"], table, _TOP_ROWS), width)


def _work(report: Report, width: int) -> list[Line]:
    """Write the article's table: share of time and share of FLOP by group, next to those of BERT."""
    if (known := phrasing.judged_work(report)) is None:
        return []
    device, texts = known
    table = replace(GROUPS_SECTION, scope=f"{GROUPS_SECTION.scope}; {phrasing.known_work(device)}")
    lines = _section(table_section(table, record_rows(device.groups), len(device.groups)), width)
    return lines + [line for text in texts for line in hanging([("  ", "")], text, width, "dim")]


def _operators(report: Report, width: int) -> list[Line]:
    """Write the operators with most CPU time, where no device did any work."""
    # Evaluated last: making this table may take a tenth of the whole analysis.
    if report.devices:
        return []
    return _section(table_section(registry.SECTIONS["operators"], report.tables.get("operators"), _TOP_ROWS), width)


def _section(declared: DeclaredSection | None, width: int) -> list[Line]:
    if declared is None:
        return []
    shown = declared.for_terminal(width)
    aside = shown.section.scope or shown.section.doc
    title = hanging([(shown.section.title, "title"), ("  ", "")], aside, width, "dim")
    rest = [] if shown.section.top else _left_out(shown.total - len(shown.rows))
    return [*title, *(_lines(shown, width) if shown.section.lines else _table(shown, width)), *rest]


def _lines(shown: DeclaredSection, width: int) -> list[Line]:
    """Write rows without headings, the last column wrapped next to the others, or below them where it does not fit."""
    if not shown.columns:
        return []
    *before, last = shown.columns
    heads = columns(
        [[(_unheaded(column, row), "bold" if column.side == "r" else "") for column in before] for row in shown.rows],
        "".join(column.side for column in before),
    )
    lines: list[Line] = []
    for row, line in zip(shown.rows, heads, strict=True):
        head, text = [("  ", ""), *line, ("  ", "")], last.cell(row)
        if width - cells(head) >= _LEAST_TEXT:
            lines += hanging(head, text, width, "dim")
        else:
            lines += [head, *hanging([("    ", "")], text, width, "dim")]
    return lines


def _unheaded(column: LaidColumn, row: Mapping[str, Any]) -> str:
    """Write a value for a row without headings: a count as ``x3``."""
    text = units.visible(column.cell(row))
    return f"x{text}" if column.unit == "count" else text


def _table(shown: DeclaredSection, width: int) -> list[Line]:
    """Write rows below headings.

    A text that does not fit in its column continues below, a long name on at most a second line. Texts before a name are
    whole where they leave room for it.
    """
    sides = shown.alignment
    named = bool(shown.columns) and shown.columns[-1].shown.form == "name"
    rows = [list(map(units.visible, row)) for row in (shown.headings, *map(shown.cells, shown.rows))]
    widths = column_widths(rows, "r" * (len(sides) - 1) + sides[-1] if named else sides, width - 2)
    if named and widths[-1] < _LEAST_TEXT:
        widths = column_widths(rows, sides, width - 2)
    if named:
        labels = names.distinct_labels([row[-1] for row in rows[1:]], 2 * widths[-1] - 1)
        rows[1:] = [[*figures, label] for (*figures, _), label in zip(rows[1:], labels, strict=True)]
    head, *body = (
        table_row(
            row,
            widths,
            sides,
            ["dim"] * len(sides) if row is rows[0] else [*("" for _ in sides[1:]), "bold" if named else ""],
        )
        for row in rows
    )
    return [[("  ", ""), *line] for lines in (head, *body) for line in lines]


def _left_out(count: int) -> list[Line]:
    return [[(f"  and {units.count(count)} more", "dim")]] if count else []


def _advice(report: Report, width: int) -> list[Line]:
    lines = [line for rank, item in enumerate(report.advice, 1) for line in _one_advice(rank, item, report, width)]
    return [[("What to change", "title")], *lines] if lines else []


def _one_advice(rank: int, item: Advice, report: Report, width: int) -> list[Line]:
    lines = first_screen.advice_title(rank, item, phrasing.predicted_step(item) or saves_at_most(item), width)
    why = f"{item.why}; {saves_at_most(item)}" if item.predicted else item.why
    lines += hanging([("     ", "")], why, width, "dim")
    lines += first_screen.code_lines(item.code, width)
    if place := phrasing.advised_place(item):
        lines += hanging([("     ", "dim")], place, width, "dim")
    return lines


def _trust(report: Report, width: int) -> list[Line]:
    """Write how busy and how well linked each device is, its steps, and what was recorded."""
    recorded = report.trace.recorded
    flags = {
        "shapes": recorded.shapes,
        "stacks": recorded.stack,
        "modules": recorded.modules,
        "memory": recorded.memory,
    }
    yes = ", ".join(name for name, is_on in flags.items() if is_on)
    no = ", ".join(name for name, is_on in flags.items() if not is_on)
    pairs = [
        *((f"Device {device.index}", _device_phrase(device)) for device in report.devices[:_TOP_DEVICES]),
        *_more_devices(report.devices[_TOP_DEVICES:]),
        *_steps(report),
        ("Recorded", "; ".join(text for text in (yes or "times only", f"not {no}" if no else "") if text)),
    ]
    indent = max(len(units.visible(label)) for label, _ in pairs)
    heads = ((units.visible(label).ljust(indent) + "  ", "title") for label, _ in pairs)
    return [line for head, (_, text) in zip(heads, pairs, strict=True) for line in hanging([head], text, width, "dim")]


def _device_phrase(device: DeviceReport) -> str:
    facts = (
        f"busy {units.percent(device.busy_ratio)} of {units.duration(device.window_ns)}",
        units.counted(device.kernel_count, "kernel"),
        f"linked to their launch: {units.percent(device.link_coverage_ratio)}",
        phrasing.run_ahead_phrase(device.run_ahead),
    )
    return ", ".join(fact for fact in facts if fact)


def _more_devices(devices: Sequence[DeviceReport]) -> list[tuple[str, str]]:
    if not devices:
        return []
    busy = summaries.busy_range(devices)
    ranged = " to ".join(map(units.percent, busy)) if busy else units.percent(None)
    return [(f"{len(devices)} more", f"busy {ranged}")]


def _steps(report: Report) -> list[tuple[str, str]]:
    """Write the steps of the verdict's device: how many, how long, how busy, and which were set aside."""
    totals = summaries.step_totals(report.steps, report.verdict)
    if totals is None:
        return []
    shortest, longest = units.duration(totals.shortest_ns), units.duration(totals.longest_ns)
    ranged = f" ({shortest} to {longest})" if shortest != longest else ""
    text = f"{totals.steady_count or 'none'} of {totals.count} steady"
    if totals.steady_count:
        text += f", median {units.duration(totals.median_ns)}{ranged}, busy {units.percent(totals.busy_ratio)}"
    elif totals.too_few:
        text += ": one step alone need not be typical"
    return [("Steps", text + _set_aside(totals.set_aside) + _marked(report.steps_from))]


def _marked(steps_from: str | None) -> str:
    """Write the kind of step marks, where ``prof.step()`` was not called."""
    return "" if steps_from in (None, "ProfilerStep") else f"; marked by: {steps_from}"


def _set_aside(aside: Sequence[summaries.SetAside]) -> str:
    """Write the number of steps set aside, by state, with their limit if it differs from the verdict's."""
    states = [
        f"{steps.count} {steps.state}" + (f" ({phrasing.step_limit(asdict(steps.limited))})" if steps.limited else "")
        for steps in aside
    ]
    return "; set aside: " + ", ".join(states) if states else ""


def _notes(report: Report, width: int) -> list[Line]:
    notes = phrasing.sorted_notes(report.notes)
    lines: list[Line] = [[("Notes", "title")]]
    for note in notes:
        style = "dim" if note.severity == "info" else "warn"
        mark = "  " if note.severity == "info" else "! "
        lines += hanging([("  ", ""), (mark, style)], note.message, width, style)
    return lines if notes else []
