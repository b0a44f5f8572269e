"""Write comparisons as plain text and as Markdown."""

from trace_analyzer.compare.comparison import Bar, Comparison, Line
from trace_analyzer.compare.phrasing import scale_of, scaled, signed
from trace_analyzer.compare.promises import KeptPromise
from trace_analyzer.units import cell_width, counted, percent, shorten, visible

_LINES = 12
_BARS = 8
_NUMBER_CELLS = 11
_LEVELS = {
    "cause": "idle",
    "call": "same call",
    "operator": "same operator",
    "outer": "same outer operator",
    "replay": "same kernel of the operator, replayed",
    "innermost": "same operator and module, replayed",
    "attention": "attention, fused or not",
    "module": "same module",
    "anywhere": "same operator elsewhere",
    "kernel": "same kernel",
    "phase-bucket": "same bucket and phase",
    "bucket": "same bucket",
    "group": "same group",
    "removed": "removed",
    "new": "new",
}


def summary(result: Comparison, width: int = 100) -> str:
    """Write the comparison as plain text."""
    if result.status == "refused" or result.before is None or result.after is None:
        return f"{visible(result.headline)}\n"
    scale, unit = scale_of(max(result.before.step_ns, result.after.step_ns))
    text = [result.headline, ""]
    text += _steps(result, scale, unit)
    text += [f"  {note}" for note in result.notes]
    text += ["", *_table(result.waterfall["bucket"][:_BARS], scale, unit, width)]
    rest = result.waterfall["bucket"][_BARS:]
    if rest:
        text.append(
            f"  {counted(len(rest), 'more line')}, together {signed(sum(b.difference_ns for b in rest), scale)} {unit}"
        )
    text += ["", f"Lines by operator and cause ({unit} a step)", *_lines(result.lines[:_LINES], scale, width)]
    text += _promises(result, scale, unit)
    return "\n".join(map(visible, text)) + "\n"


def _steps(result: Comparison, scale: float, unit: str) -> list[str]:
    assert result.before is not None
    assert result.after is not None
    assert result.matched_ratio is not None
    rows = []
    for name, side in (("before", result.before), ("after", result.after)):
        what = side.verdict or "no verdict"
        rows.append(
            f"  {name:<7} {scaled(side.step_ns, scale):>8} {unit}  {counted(side.steps, 'step')}  {what}  {side.path}"
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
    name_cells = max([cell_width(bar.name) for bar in bars] + [12])
    name_cells = min(name_cells, 28)
    room = max(8, min(30, width - name_cells - 3 * _NUMBER_CELLS - 4))
    greatest = max((abs(bar.difference_ns) for bar in bars), default=0.0)
    rows = [
        f"  {f'{unit} a step':<{name_cells}}{'before':>{_NUMBER_CELLS}}{'after':>{_NUMBER_CELLS}}{'change':>{_NUMBER_CELLS}}"
    ]
    for bar in bars:
        length = round(room * abs(bar.difference_ns) / greatest) if greatest else 0
        name = shorten(visible(bar.name), name_cells)
        cells = " " * (name_cells - cell_width(name))
        rows.append(
            f"  {name}{cells}{scaled(bar.before_ns, scale):>{_NUMBER_CELLS}}{scaled(bar.after_ns, scale):>{_NUMBER_CELLS}}"
            f"{signed(bar.difference_ns, scale):>{_NUMBER_CELLS}}  {('+' if bar.difference_ns > 0 else '-') * length}"
        )
    return rows


def _lines(lines: tuple[Line, ...], scale: float, width: int) -> list[str]:
    rows = []
    for line in lines:
        if not line.difference_ns:
            continue
        rows.append(
            f"  {signed(line.difference_ns, scale):>8}  {shorten(visible(line.name), max(24, width - 70))}  {_detail(line, scale)}"
        )
    return rows


def _detail(line: Line, scale: float) -> str:
    """Write category, level, counts and split of a line."""
    words = [] if line.kind == "idle" else [line.category]
    words.append(_LEVELS[line.level])
    if line.before_count is not None and line.after_count is not None:
        words.append(f"{line.before_count:,} -> {line.after_count:,}")
        if line.by_count_ns and line.by_time_ns:
            words.append(f"by count {signed(line.by_count_ns, scale)}, by time {signed(line.by_time_ns, scale)}")
    if line.by_hardware_ns is not None and line.by_software_ns is not None:
        words.append(f"hardware {signed(line.by_hardware_ns, scale)}, software {signed(line.by_software_ns, scale)}")
    if line.significant is False:
        words.append("within chance")
    return ", ".join(words)


def _promises(result: Comparison, scale: float, unit: str) -> list[str]:
    if not result.promises:
        return []
    rows = ["", "Advice on BEFORE that AFTER shows"]
    for kept in result.promises:
        held = "within the bound" if kept.bound_held else "more than the bound"
        if kept.evidence == "part came":
            held += ", and AFTER's report still advises it"
        rows.append(
            f"  {kept.title}: at most {scaled(kept.promised_ns_at_most, scale)} {unit} a step were promised,"
            f" {scaled(kept.came_ns, scale)} came, {held}; the step takes {signed(-kept.step_ns, scale)}"
            f"{_prediction(kept, scale)}"
        )
    return rows


def _prediction(kept: KeptPromise, scale: float) -> str:
    """Write what a replay predicted of the step, and whether it came so."""
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
        text.append(
            f"| {name}: {_escaped(side.path)} | {scaled(side.step_ns, scale)} | {side.steps} | {side.verdict or '–'} |"
        )
    text += ["", *(f"- {_escaped(note)}" for note in result.notes), ""]
    text += [f"| {unit} a step | before | after | change |", "|---|---:|---:|---:|"]
    for bar in result.waterfall["bucket"][:_BARS]:
        text.append(
            f"| {_escaped(bar.name)} | {scaled(bar.before_ns, scale)} | {scaled(bar.after_ns, scale)} | {signed(bar.difference_ns, scale)} |"
        )
    shown = [line for line in result.lines[:_LINES] if line.difference_ns]
    if shown:
        text += ["", "<details><summary>Lines</summary>", "", f"| change ({unit}) | line | how |", "|---:|---|---|"]
        text += [
            f"| {signed(line.difference_ns, scale)} | {_escaped(line.name)} | {_escaped(_detail(line, scale))} |"
            for line in shown
        ]
        text += ["", "</details>"]
    promises = _promises(result, scale, unit)
    if promises:
        text += ["", f"**{promises[1]}**", "", *(f"- {_escaped(row.strip())}" for row in promises[2:])]
    return "\n".join(text) + "\n"


def _escaped(text: str) -> str:
    """Return text that Markdown and HTML show as it is."""
    from trace_analyzer.render.markdown import escaped

    return escaped(text)
