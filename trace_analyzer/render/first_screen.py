"""Lay out the first screen: the verdict, where the time went, and what to change; and a glance of a few lines.

Important texts are never cut, but wrapped. `trace_analyzer.render.terminal` writes the rest of the report with
``verbose``.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import NamedTuple

from trace_analyzer import units, vocabulary
from trace_analyzer.render import phrasing, row_phrases
from trace_analyzer.render.layout import (
    MOST_LINES,
    STYLES,
    Line,
    bar,
    cells,
    columns,
    folded,
    folded_code,
    half_width,
    hanging,
    side_by_side,
    unbroken,
)
from trace_analyzer.report import Advice, Report, Verdict, summaries

_SIDE_BY_SIDE, _WIDE = 76, 92  # cells from which two blocks fit next to each other, and both with their times
_WITHOUT_TIMES = 33  # cells of a block with the longest name, a bar and shares, but no times
_TOP_CAUSES, _TOP_PARTS, _TOP_ADVICE = 4, 4, 3
_COUNTED_ABOVE = 0.9
"""Share of the time of advice without an estimate that other advice counts, from which the first screen leaves it out."""
_MOSTLY_SHARED = 0.5
"""Share of its time from which the first screen says that advice shares it."""
_TOP_REASONS = {"high": 0, "medium": 1, "low": 2}
"""Number of reasons shown by confidence: the first ones, which lower it. The others only explain."""


def verdict_lines(report: Report, width: int, verbose: bool = False) -> list[Line]:
    """Write regime and reason, the rule where the largest figure is not the verdict, the confidence, and the file."""
    verdict = report.verdict
    name, sentence = phrasing.verdict_label(verdict), units.visible(phrasing.headline(verdict))
    style = "bad" if verdict.regime is None and verdict.status != "cpu-run" else "verdict"
    lines = _continued([(name + ". ", style)], sentence, width, "bold")
    if rule := row_phrases.rule_applied(verdict):
        lines += hanging([("  ", "")], rule, width)
    lines += _confidence(verdict, width, verbose)
    if shorter := row_phrases.step_without_recording(verdict):
        lines += hanging([], shorter, width, "dim")
    return [*lines, *([(line, "dim")] for line in folded(trace_phrase(report, verbose), width, MOST_LINES))]


def _continued(head: Line, text: str, width: int, style: str) -> list[Line]:
    """Write the text after the head, and its continuation below, from the margin."""
    words = unbroken(text)
    first: list[str] = []
    while words and cells(head) + units.cell_width(" ".join([*first, words[0]])) <= width:
        first.append(words.pop(0))
    rest = [[("  ", ""), (line, style)] for line in folded(" ".join(words), width - 2, MOST_LINES)] if words else []
    return [[*head, (" ".join(first), style)], *rest]


def _confidence(verdict: Verdict, width: int, verbose: bool) -> list[Line]:
    """Write the confidence and its reasons; remarks on a high confidence only with ``verbose``."""
    if verdict.regime is None or (verdict.confidence == "high" and not verbose):
        return []
    how_sure, why = phrasing.confidence(verdict)
    shown = _TOP_REASONS[verdict.confidence]
    more = len(verdict.confidence_why) - shown
    if not verbose and more > 0:
        why = f"{phrasing.reasons(verdict.confidence_why[:shown])}; {more} more: -v"
    return _continued([(f"{how_sure} ", "dim")], units.visible(why), width, "dim")


def advice_lines(report: Report, width: int) -> list[Line]:
    """Write the three best changes: the effect of each, one line of code, and where.

    The effect is the step that a replay predicts, else the largest possible saving.
    """
    if not report.advice:
        return []
    best = [item for item in report.advice if _is_worth_a_place(item)][:_TOP_ADVICE]
    more = len(report.advice) - len(best)
    rest = f"  {len(best)} of {len(report.advice)}; -v shows all" if more > 0 else ""
    lines: list[Line] = [[("What to change", "title"), (rest, "dim")]]
    ranks = {item.id: rank for rank, item in enumerate(best, 1)}
    for rank, item in enumerate(best, 1):
        brings = phrasing.predicted_briefly(item) or row_phrases.saves_at_most(item)
        although_limited = (
            "" if item.is_of_limit else f"({vocabulary.although(str(report.verdict.regime), report.verdict.cause)})"
        )
        shares = _shares(item, ranks)
        lines += advice_title(rank, item, " ".join(filter(None, (brings, although_limited, shares))), width)
        if code := row_phrases.code_line(item.code, width - 7):
            lines += code_lines(code, width)
        if place := row_phrases.first_place(item, 2 * (width - 5)):
            lines += [[("     ", ""), (line, "dim")] for line in folded(units.visible(place), width - 5, MOST_LINES)]
    return lines


def _shares(item: Advice, ranks: Mapping[str, int]) -> str:
    """Write how much of the time another change on the screen counts, too, where that is most of it."""
    ratio, other = item.shared_ratio or 0.0, ranks.get(item.shared_with or "")
    share = "all" if units.percent(ratio) == "100 %" else units.percent(ratio)
    return f"({share} shared with {other})" if other and ratio >= _MOSTLY_SHARED else ""


def _is_worth_a_place(item: Advice) -> bool:
    """Return whether an estimate shows a gain, or advice above leaves most of its time."""
    if item.predicted is None:
        return (item.shared_ratio or 0.0) < _COUNTED_ABOVE
    return not summaries.saves_nothing(item.predicted)


def code_lines(code: str, width: int) -> list[Line]:
    """Write each line of code unchanged if it fits, else its comment first, wrapped."""
    return [
        [("       ", ""), (piece, "code")]
        for line in map(units.visible, code.splitlines())
        for piece in folded_code(line, width - 7)
    ]


def advice_title(rank: int, item: Advice, brings: str, width: int) -> list[Line]:
    """Write the change and its effect, on one line if they fit."""
    lines = hanging([(f"  {rank}. ", "")], item.title, width, "bold")
    if not brings:
        return lines
    if cells(lines[-1]) + 3 + units.cell_width(brings) > width:
        return [*lines, *hanging([("     ", "")], brings, width, "good")]
    return [*lines[:-1], [*lines[-1], ("   ", ""), (brings, "good")]]


def doubt_lines(report: Report, width: int) -> list[Line]:
    """Write the failed checks and the most serious note above a remark, in a line each."""
    lines: list[Line] = []
    broken = summaries.broken_checks(report)
    if broken:
        passed = f"{len(report.trust) - len(broken)} of {len(report.trust)} hold"
        text = "; ".join((passed, *phrasing.check_phrases(report, broken)))
        style = "bad" if any(check.status == "fail" for check in broken) else "warn"
        lines += hanging([("Checks  ", "title")], text, width, style)
    grave = [note for note in phrasing.sorted_notes(report.notes) if note.severity != "info"]
    if grave:
        text = _first_clauses(units.visible(grave[0].message), 2 * (width - 8))
        more = f" (and {units.counted(len(grave) - 1, 'more note')}: -v)" if len(grave) > 1 else ""
        lines += hanging([("Note    ", "title")], text + more, width, "warn")
    return lines


def _first_clauses(text: str, room: int) -> str:
    """Return as many clauses of the text as fit, and a reference to the rest; the whole text if not even one fits.

    A comma between the arguments of a kernel's name ends no clause.
    """
    if units.cell_width(text) <= room:
        return text
    marks = [match.start() for match in re.finditer(r"[;:,] ", text) if match.start() <= room - 5]
    ends = [end for end in marks if text.count("(", 0, end) == text.count(")", 0, end)]
    return f"{text[: ends[-1]]} (-v)" if ends else text


def more_lines(report: Report, width: int) -> list[Line]:
    """Write how to read on."""
    one = f"; one thing: analyze explain TRACE advice:{report.advice[0].id}" if report.advice else ""
    long = f"evidence, kernels, steps, notes: -v{one}"
    text = long if units.cell_width(long) <= width - 8 else f"all: -v{one}"
    return hanging([("More    ", "title")], text, width, "dim")


def trace_phrase(report: Report, verbose: bool = False) -> str:
    """Write the file and its content, and the confidence if it is high."""
    trace = report.trace
    names = list(dict.fromkeys(device.name for device in trace.devices if device.name))
    many = f"{len(trace.devices)} x " if len(names) == 1 and len(trace.devices) > 1 else ""
    world = f" of {trace.world_size}" if trace.world_size is not None else ""
    is_alone = trace.world_size == 1
    facts = (
        PurePath(trace.path).name or trace.path,
        many + ", ".join(names),
        f"rank {trace.rank}{world}" if trace.rank is not None and not is_alone else "",
        units.counted(trace.event_count, "event") if verbose else "",
        units.duration(trace.duration_ns),
        f"{report.verdict.confidence} confidence" if report.verdict.confidence == "high" and not verbose else "",
    )
    return units.visible(" · ".join(fact for fact in facts if fact))


def time_lines(report: Report, width: int) -> list[Line]:
    """Lay out the device's work and its idle time by cause, next to each other if they fit; else the main thread's time."""
    parts_ns, window = _parts(report)
    if not parts_ns:
        return []
    parts = summaries.part_totals(parts_ns)
    idle_ns, total = parts.idle_ns, parts.total_ns
    if not report.devices:
        host = summaries.shares_of(list(parts_ns.items())[:_TOP_PARTS], total)
        return _parts_bars("Where the time went", window, host, width, style="other")
    done = sorted([*parts.work.items(), *([("idle", idle_ns)] if idle_ns else [])], key=lambda item: -item[1])
    if not parts.idle or not summaries.is_idle_worth_naming(idle_ns, total):
        return _parts_bars("Where the time went", window, summaries.shares_of(done, total), width)
    first, second = _halves(width)
    left = _parts_bars("Where the time went", window, summaries.shares_of(done, total), first)
    longest, rest_count, rest_ns = summaries.longest_and_rest(parts.idle, _TOP_CAUSES)
    shown = [*longest, *([(f"{rest_count} other causes", rest_ns)] if rest_count else [])]
    right = _parts_bars(
        "Why the device idled", units.duration(idle_ns), summaries.shares_of(shown, idle_ns), second, style="idle"
    )
    return side_by_side(left, right, width - second) if first < width else [*left, [], *right]


def _halves(width: int) -> tuple[int, int]:
    """Return the widths of two blocks: halves; or a narrow second one; or each the whole width."""
    if width < _SIDE_BY_SIDE:
        return width, width
    return (half_width(width),) * 2 if width >= _WIDE else (width - 3 - _WITHOUT_TIMES, _WITHOUT_TIMES)


def _parts(report: Report) -> tuple[dict[str, int], str]:
    """Return the partition of the verdict's window, else of the first device's work or the main thread, with its length."""
    if report.verdict.parts_ns:
        return dict(report.verdict.parts_ns), phrasing.short_window_phrase(report)
    if report.devices:
        device = report.devices[0]
        return dict(device.partition_ns), phrasing.length_of_trace(device.window_ns, report.trace.duration_ns)
    parts = dict(summaries.main_thread_parts(report))
    return parts, f"of the main thread: {units.duration(summaries.part_totals(parts).total_ns)}"


def _parts_bars(
    title: str, detail: str, parts: Sequence[summaries.PartShare], width: int, style: str = ""
) -> list[Line]:
    rows = [
        _Bar(vocabulary.label(share.part), style or _style(share.part), share.time_ratio, share.time_ns)
        for share in parts
    ]
    return _bars(title, detail, rows, width)


def _style(part: str) -> str:
    """Return the style of a part's bar: causes of idle time share one, and so does work that is not the program's."""
    return part if part in STYLES else "other" if part in vocabulary.UNSEEN else "idle"


class _Bar(NamedTuple):
    name: str
    style: str
    ratio: float
    ns: float


def _bars(title: str, detail: str, shown: Sequence[_Bar], width: int) -> list[Line]:
    """Write a line each: its name, a bar, its share of the total and, if it fits, its time."""
    rows: list[Line] = [
        [(units.visible(one.name), ""), (units.percent(one.ratio), ""), (units.duration(one.ns), "dim")]
        for one in shown
    ]
    table = columns([row[:2] for row in rows], "lr") if width <= _WITHOUT_TIMES else columns(rows, "lrr")
    room = width - cells(table[0]) - 4 if table else 0
    room_for_detail = width - units.cell_width(title) - 2
    head: Line = [(title, "title")]
    fits = units.cell_width(detail) <= room_for_detail
    lines: list[Line] = [[*head, ("  ", ""), (detail, "dim")]] if fits else [head, [("  ", ""), (detail, "dim")]]
    for one, line in zip(shown, table, strict=True):
        drawn = bar(one.ratio, room).ljust(room) if room >= 4 else ""
        name, figures = line[:3], line[3:]
        lines.append([("  ", ""), *name, (f"  {drawn}" if drawn else "", one.style), *figures])
    return lines


def lever_lines(report: Report, width: int) -> list[Line]:
    """Draw what a step would save without each of the three levers to show."""
    rows = [
        _Bar(name, _style(row_phrases.LEVER_PARTS[lever.resource]), lever.saves_ratio, lever.saves_ns)
        for name, lever in row_phrases.lever_rows(report.verdict)
    ]
    return _bars(row_phrases.levers_title(report.verdict), "", rows, min(width, _SIDE_BY_SIDE)) if rows else []


def record_lines(report: Report, width: int) -> list[Line]:
    """Write what to record for a verdict, where there is none."""
    tips = phrasing.record_instead(report)
    if not tips:
        return []
    lines: list[Line] = [[("What to record instead", "title")]]
    return lines + [line for tip in tips for line in hanging([("  - ", "")], tip, width)]


_GLANCE_CELLS = 160
_GLANCE_ADVICE = 2


def glance(report: Report) -> str:
    """Return five lines: the file, the verdict, its reason, the best advice, and how to continue."""
    verdict = report.verdict
    name = PurePath(report.trace.path).name or report.trace.path
    sure = f" ({verdict.confidence} confidence)" if verdict.regime else ""
    advice = "; ".join(
        item.title + (f" ({brings})" if (brings := row_phrases.saves_at_most(item).removeprefix("bound: ")) else "")
        for item in report.advice[:_GLANCE_ADVICE]
    )
    lines = (
        f"<Report of {name}>",
        phrasing.verdict_label(verdict) + sure,
        phrasing.sentences(phrasing.headline(verdict))[0],
        f"Advice: {advice or 'none'}",
        "print(report) for the summary; .advice, .explain(id), .tables, .plots, .to_html(path)",
    )
    return "\n  ".join(units.shorten(units.visible(line), _GLANCE_CELLS) for line in lines)
