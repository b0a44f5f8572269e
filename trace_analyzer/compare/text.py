"""Write comparisons as plain text and as Markdown."""

from trace_analyzer.catalog.line_labels import line_phrase
from trace_analyzer.compare.comparison import Bar, Comparison, Line
from trace_analyzer.compare.figures import counts_a_step, total_difference
from trace_analyzer.compare.judgement import KeptPromise
from trace_analyzer.compare.phrasing import CHANCE, bar_label, is_shown, limit, line_name, scale_of, scaled, signed
from trace_analyzer.render.layout import bar_cells, folded
from trace_analyzer.units import cell_width, counted, percent, shorten, visible

_LINES = 12
_BARS = 8
_NUMBER_CELLS = 11
_LEVELS = {
    "cause": "idle",
    "call": "same call",
    "operator": "same operator",
    "replay": "same kernel of the operator, replayed",
    "attention": "attention, fused or not",
    "module": "same module",
    "anywhere": "same operator elsewhere",
    "phase-bucket": "same bucket and phase",
    "bucket": "same bucket",
    "group": "same group",
    "removed": "removed",
    "new": "new",
}


def summary(result: Comparison, width: int = 100) -> str:
    """Write the comparison as plain text."""
    if result.status == "refused" or result.before is None or result.after is None:
        return "\n".join(folded(visible(result.headline), width)) + "\n"
    scale, unit = scale_of(max(result.before.step_ns, result.after.step_ns))
    text = [*folded(visible(result.headline), width), ""]
    text += _steps(result, scale, unit)
    text += [line for note in result.notes for line in indented(note, width)]
    bars = result.waterfall["bucket"]
    text += ["", *_table(bars[:_BARS], scale, unit, width)]
    if bars[_BARS:]:
        text.append(
            f"  {counted(len(bars[_BARS:]), 'more line')}, together {signed(total_difference(bars[_BARS:]), scale)} {unit}"
        )
    text += ["", f"Lines by operator and cause ({unit} a step)", *_lines(result, scale, width)]
    title, *kept = _promises(result, scale, unit) or [""]
    text += ["", title] if title else []
    text += [line for sentence in kept for line in indented(sentence, width)]
    return "\n".join(map(visible, text)) + "\n"


def indented(sentence: str, width: int) -> list[str]:
    """Wrap a sentence, with two cells before its first line and four before the others."""
    first, *rest = folded(visible(sentence), max(1, width - 4))
    return [f"  {first}", *(f"    {line}" for line in rest)]


def _steps(result: Comparison, scale: float, unit: str) -> list[str]:
    assert result.before is not None
    assert result.after is not None
    assert result.matched_ratio is not None
    rows = []
    for name, side in (("before", result.before), ("after", result.after)):
        rows.append(
            f"  {name:<7} {scaled(side.step_ns, scale):>8} {unit}  {counted(side.steps, 'step')}  {limit(side)}  {side.path}"
        )
    interval = ""
    if result.interval_ns:
        interval = f", 95 % interval {signed(result.interval_ns[0], scale)} to {signed(result.interval_ns[1], scale)}"
    rows.append(f"  change  {signed(result.difference_ns or 0.0, scale):>8} {unit}{interval}")
    ratio = result.matched_ratio
    rows.append(
        f"  matched {percent(ratio.call)} of kernel time by call, {percent(ratio.outer)} by operator,"
        f" {percent(ratio.module)} by module, {percent(ratio.bucket)} in all"
    )
    return rows


def _table(bars: tuple[Bar, ...], scale: float, unit: str, width: int) -> list[str]:
    """Write a waterfall as rows with bars of characters."""
    name_cells = max([cell_width(bar_label(bar)) for bar in bars] + [12])
    name_cells = min(name_cells, 28)
    remarks = [CHANCE if bar.significant is False and is_shown(bar.difference_ns, scale) else "" for bar in bars]
    room = max(8, min(30, width - name_cells - 3 * _NUMBER_CELLS - 4 - (len(CHANCE) + 1 if any(remarks) else 0)))
    greatest = max((abs(bar.difference_ns) for bar in bars), default=0.0)
    rows = [
        f"  {f'{unit} a step':<{name_cells}}{'before':>{_NUMBER_CELLS}}{'after':>{_NUMBER_CELLS}}{'change':>{_NUMBER_CELLS}}"
    ]
    for bar, remark in zip(bars, remarks, strict=True):
        length = bar_cells(abs(bar.difference_ns), greatest, room)
        name = shorten(visible(bar_label(bar)), name_cells)
        cells = " " * (name_cells - cell_width(name))
        drawn = " ".join(filter(None, (("+" if bar.difference_ns > 0 else "-") * length, remark)))
        rows.append(
            f"  {name}{cells}{scaled(bar.before_ns, scale):>{_NUMBER_CELLS}}{scaled(bar.after_ns, scale):>{_NUMBER_CELLS}}"
            f"{signed(bar.difference_ns, scale):>{_NUMBER_CELLS}}  {drawn}"
        )
    return rows


def _lines(result: Comparison, scale: float, width: int) -> list[str]:
    rows = []
    for line in result.lines[:_LINES]:
        if not is_shown(line.difference_ns, scale):
            continue
        rows.append(
            f"  {signed(line.difference_ns, scale):>8}  {shorten(visible(line_name(line)), max(24, width - 70))}  {line_detail(line, result, scale)}"
        )
    return rows


def line_detail(line: Line, result: Comparison, scale: float) -> str:
    """Write category, level, counts per step and split of a line."""
    words = [] if line.kind == "idle" else [line_phrase(line.category)]
    words.append(_LEVELS[line.level])
    counts = counts_a_step(line, result)
    if counts:
        what = "gaps a step" if line.kind == "idle" else "a step"
        words.append(f"{' -> '.join(dict.fromkeys(map(_few, counts)))} {what}")
        if line.by_count_ns and line.by_time_ns:
            words.append(f"by count {signed(line.by_count_ns, scale)}, by time {signed(line.by_time_ns, scale)}")
    if line.by_hardware_ns is not None and line.by_software_ns is not None:
        words.append(f"hardware {signed(line.by_hardware_ns, scale)}, software {signed(line.by_software_ns, scale)}")
    if line.significant is False:
        words.append(CHANCE)
    return ", ".join(words)


def _few(number: float) -> str:
    """Write a count per step: an integer, or one decimal.

    >>> _few(20.0), _few(1.25), _few(0.0), _few(1234.5)
    ('20', '1.2', '0', '1,234')
    """
    return f"{number:,.0f}" if number >= 100 or number == round(number) else f"{number:,.1f}"


def _promises(result: Comparison, scale: float, unit: str) -> list[str]:
    if not result.promises:
        return []
    rows = ["Advice on BEFORE that AFTER shows"]
    for kept in result.promises:
        bound_phrase = "within the bound" if kept.bound_held else "more than the bound"
        if kept.evidence == "part came":
            bound_phrase += ", and AFTER's report still advises it"
        rows.append(
            f"{kept.title}: at most {scaled(kept.promised_ns_at_most, scale)} {unit} a step were promised,"
            f" {scaled(kept.came_ns, scale)} came{_late(kept, scale)}, {bound_phrase}; the step takes {signed(-kept.step_ns, scale)}{_others(kept, scale)}"
            f"{_prediction(kept, scale)}"
        )
    return rows


def _late(kept: KeptPromise, scale: float) -> str:
    """Write the part of the saving in launches that were late because waits had emptied the queue."""
    if not is_shown(kept.late_launches_ns, scale):
        return ""
    own = scaled(kept.came_ns - kept.late_launches_ns, scale)
    return f" ({own} of it in waits, {scaled(kept.late_launches_ns, scale)} in launches that waits had made late)"


def _others(kept: KeptPromise, scale: float) -> str:
    """Write the change of all other lines, where it is at least a tenth of the actual saving."""
    others = kept.came_ns - kept.step_ns
    return f", as other lines take {signed(others, scale)}" if abs(others) > 0.1 * kept.came_ns else ""


def _prediction(kept: KeptPromise, scale: float) -> str:
    """Write the replay's prediction for the step, and whether it was correct."""
    if kept.predicted_ns is None or kept.predicted_interval_ns is None:
        return ""
    low, high = sorted(-end for end in kept.predicted_interval_ns)
    came = "as predicted" if kept.prediction_held else "not as predicted"
    return f", {came} by replay: {signed(-kept.predicted_ns, scale)} ({signed(low, scale)} to {signed(high, scale)})"


def to_markdown(result: Comparison) -> str:
    """Write the comparison as Markdown, for a comment on a pull request."""
    if result.status == "refused" or result.before is None or result.after is None:
        return f"**{_escaped(result.headline)}**\n"
    scale, unit = scale_of(max(result.before.step_ns, result.after.step_ns))
    text = [f"**{_escaped(result.headline)}**", "", f"| | step ({unit}) | steps | verdict |", "|---|---:|---:|---|"]
    for name, side in (("before", result.before), ("after", result.after)):
        text.append(f"| {name}: {_escaped(side.path)} | {scaled(side.step_ns, scale)} | {side.steps} | {limit(side)} |")
    text += ["", *(f"- {_escaped(note)}" for note in result.notes), ""]
    text += [f"| {unit} a step | before | after | change |", "|---|---:|---:|---:|"]
    for bar in result.waterfall["bucket"][:_BARS]:
        text.append(
            f"| {_escaped(bar_label(bar))} | {scaled(bar.before_ns, scale)} | {scaled(bar.after_ns, scale)} | {signed(bar.difference_ns, scale)}{f' ({CHANCE})' if bar.significant is False else ''} |"
        )
    shown = [line for line in result.lines[:_LINES] if is_shown(line.difference_ns, scale)]
    if shown:
        text += ["", "<details><summary>Lines</summary>", "", f"| change ({unit}) | line | how |", "|---:|---|---|"]
        text += [
            f"| {signed(line.difference_ns, scale)} | {_escaped(line_name(line))} | {_escaped(line_detail(line, result, scale))} |"
            for line in shown
        ]
        text += ["", "</details>"]
    promises = _promises(result, scale, unit)
    if promises:
        text += ["", f"**{promises[0]}**", "", *(f"- {_escaped(row)}" for row in promises[1:])]
    return "\n".join(text) + "\n"


def _escaped(text: str) -> str:
    """Escape text for Markdown and HTML."""
    from trace_analyzer.render.markdown import escaped

    return escaped(text)
