"""Write the effect of a change as text for a terminal, as Markdown, and as a tornado plot."""

from collections.abc import Sequence
from html import escape

from trace_analyzer.charts import Axis, Boxes, Chart, LineMark, Strokes
from trace_analyzer.render.layout import folded
from trace_analyzer.render.row_phrases import path_part
from trace_analyzer.replay.whatif import PathPart, Scenario, WhatIf
from trace_analyzer.units import counted, duration, percent, shorten, visible

PATH_ROWS = 5
PATH_SPEEDUPS = {"1.11": "10 % less", "1.33": "25 % less", "2": "50 % less", "4": "75 % less", "inf": "without it"}
"""Labels of the speed-ups of a part of the critical path: the reduction of its time."""
_FEW = ("1.33", "2", "inf")
"""Speed-ups shown in fewer than `_WIDE` cells."""
_WIDE = 100
_NS_PER_MS = 1e6


def whatif_text(result: WhatIf, width: int = 100) -> str:
    """Return the answer in lines of at most ``width`` cells; sentences are wrapped, and names in tables shortened."""
    if result.status == "refused":
        return _laid([_heading(result), f"No estimate: {visible(result.reason or '')}."], [], width)
    assert result.predicted is not None
    sentences = [_heading(result), *([_prediction(result)] if result.changes else []), *_not_estimated(result)]
    shown = tuple(PATH_SPEEDUPS) if width >= _WIDE else _FEW
    rows = ["", _path_head(result, shown), *(_part(part, shown) for part in result.critical_path[:PATH_ROWS])]
    if result.changes and len(result.scenarios) > 1:
        rows += ["", "Each change alone", *(_row(s, result) for s in result.scenarios)]
    if not result.changes:
        helpful = result.helpful
        rows += ["", "What would help most (estimates)"]
        rows += [_row(s, result) for s in helpful] or ["  No standard change saves 2 % or more."]
        rows += [
            "",
            "How much a part matters: the step if it were faster",
            *(_row(s, result) for s in result.scenarios if s.what == "sensitivity"),
        ]
    return _laid(sentences, [*rows, ""], width) + _laid([floors_sentence(result), *_refused(result)], [], width)


def _laid(sentences: Sequence[str], rows: Sequence[str], width: int) -> str:
    lines = [line for sentence in sentences for line in folded(sentence, width)]
    return "\n".join([*lines, *(shorten(row, width) for row in rows)]) + "\n"


def _headline(result: WhatIf) -> str:
    """Return the answer in a line: the combined effect of the changes, or the best standard change."""
    if result.changes:
        return _prediction(result)
    if not result.helpful or result.replay is None:
        return "No standard change saves 2 % or more."
    best = max(result.helpful, key=lambda scenario: scenario.saves_ratio)
    return (
        f"What would help most: {visible(best.label)}, {duration(result.replay.step_ns)} -> {duration(best.step_ns)} "
        f"({duration(best.low_ns)} to {duration(best.high_ns)}), an estimate."
    )


def _not_estimated(result: WhatIf) -> list[str]:
    """Return why a requested change is not in the estimate, or has no estimate of its own."""
    if not result.changes:
        return []
    return [f"{'Not estimated alone' if s.is_applied else 'Not changed'}: {s.reason}." for s in result.skipped]


def _refused(result: WhatIf) -> list[str]:
    """Return which standard changes cannot be predicted, and why."""
    if result.changes:
        return []
    return [f"No estimate of {labels}: {visible(reason)}." for reason, labels in result.refused.items()]


def whatif_markdown(result: WhatIf) -> str:
    """Return the answer as Markdown."""
    if result.status == "refused":
        return f"{_escaped(_heading(result))}\n\nNo estimate: {_escaped(result.reason or '')}.\n"
    lines = [_escaped(_heading(result)), ""]
    if result.changes:
        lines += [_escaped(sentence) + "\n" for sentence in (_prediction(result), *_not_estimated(result))]
    lines += ["| change | step | interval | saves |", "|---|---|---|---|"]
    shown = result.scenarios if result.changes else result.helpful
    lines += [
        f"| {_escaped(s.label)} | {duration(s.step_ns)} | {duration(s.low_ns)} to {duration(s.high_ns)} | {percent(s.saves_ratio)} |"
        for s in shown
    ]
    return "\n".join([*lines, "", " ".join([floors_sentence(result), *map(_escaped, _refused(result))])]) + "\n"


def floors_sentence(result: WhatIf) -> str:
    """Return the lower bounds of the step for fixes of one side only."""
    unit = "a step" if result.steps else "for the window"
    return (
        f"Floors: no CPU fix goes below {duration(result.device_floor_ns)} {unit}, "
        f"no GPU fix below {duration(result.cpu_floor_ns)}."
    )


def _heading(result: WhatIf) -> str:
    if result.step_ns is None:
        return "Nothing was replayed."
    what = counted(result.steps, "steady step") + " of" if result.steps else "The window of"
    each = " each" if result.steps > 1 else ""
    text = f"{what} device {visible(str(result.device))}: {duration(result.step_ns)}{each}."
    if result.replay is None:
        return text
    return (
        f"{text} The replay without changes takes {duration(result.replay.step_ns)}"
        f" (error {percent(abs(result.replay.error_ratio))})."
    )


def _prediction(result: WhatIf) -> str:
    assert result.predicted is not None
    assert result.replay is not None
    then, saves = result.predicted, result.saves_ratio
    names = " and ".join(visible(change.label) for change in result.changes)
    change = f"{percent(saves)} less" if saves > 0 else f"{percent(-saves)} more" if saves < 0 else "no less"
    return (
        f"Estimate with {names}: {duration(result.replay.step_ns)} -> {duration(then.step_ns)} "
        f"({duration(then.low_ns)} to {duration(then.high_ns)}), {change}."
    )


def _row(scenario: Scenario, result: WhatIf) -> str:
    interval = f"({duration(scenario.low_ns)} to {duration(scenario.high_ns)})"
    label = shorten(visible(scenario.label), 52)
    return f"  {label:52} {duration(scenario.step_ns):>8}  {interval:24} {_change(scenario.saves_ratio):>8}"


def _change(saves_ratio: float) -> str:
    """Return the change of the step with its sign, or "no change" where it rounds to 0."""
    if abs(saves_ratio) < _NO_CHANGE:
        return "no change"
    return f"-{percent(saves_ratio)}" if saves_ratio > 0 else f"+{percent(-saves_ratio)}"


_NO_CHANGE = 0.0005
"""Half of the smallest change that a percentage with one decimal shows."""


def _path_head(result: WhatIf, shown: tuple[str, ...]) -> str:
    title = "Critical path then" if result.changes else "Critical path"
    return f"{title:41}" + "".join(f"{PATH_SPEEDUPS[key]:>11}" for key in shown)


def _part(part: PathPart, shown: tuple[str, ...]) -> str:
    steps = "".join(f"{duration(part.speedups[key]):>11}" for key in shown if key in part.speedups)
    return f"  {shorten(visible(path_part(vars(part))), 22):22} {percent(part.ratio):>6} {duration(part.ns):>8} {steps}"


def _escaped(text: str) -> str:
    return visible(text).replace("|", "\\|").replace("<", "&lt;")


def tornado(result: WhatIf) -> Chart | None:
    """Declare each scenario's step as a bar, with its interval, largest saving on top; None without scenarios.

    A bar goes from the present step to the predicted one.
    """
    if not result.scenarios or result.replay is None:
        return None
    now = result.replay.step_ns / _NS_PER_MS
    rows = sorted(result.scenarios, key=lambda s: -s.step_ns)
    names, places = [visible(s.label) for s in rows], range(len(rows))
    steps, low, high = (
        [ns / _NS_PER_MS for ns in each] for each in zip(*((s.step_ns, s.low_ns, s.high_ns) for s in rows), strict=True)
    )
    bars = Boxes(
        [min(now, step) for step in steps], [max(now, step) for step in steps], [at - 0.3 for at in places], [at + 0.3 for at in places],
        "p-compute", {"change": names, "step": [duration(s.step_ns) for s in rows]},
    )  # fmt: skip
    present = LineMark("now", [now, now], [-0.5, len(rows) - 0.5], "text-muted", "dashed")
    return Chart(
        Axis("step", "ms, estimated"), Axis("", ticks={float(at): name for at, name in zip(places, names, strict=True)}, names=True),
        (bars, Strokes(low, places, high, places), present), height=120 + 28 * len(rows), least_width=320,
    )  # fmt: skip


def whatif_html(result: WhatIf) -> str:
    """Return the answer for a notebook: the text, and the tornado plot in a frame."""
    text = f"<pre>{escape(whatif_text(result))}</pre>"
    page = tornado_html(result, words=False)
    if page is None:
        return text
    height = 380 + 28 * len(result.scenarios)
    return f'{text}<iframe srcdoc="{escape(page)}" style="width: 100%; height: {height}px; border: 0" title="What a change would bring"></iframe>'


def tornado_html(result: WhatIf, *, words: bool = True) -> str | None:
    """Return the tornado plot, followed by the text if ``words``, as one offline HTML page; None without scenarios."""
    chart = tornado(result)
    if chart is None or result.replay is None:
        return None
    from trace_analyzer.documents import Chapter, Figure, Words
    from trace_analyzer.render.html.shell import document_page  # text needs only Polars

    title = "Step with each change"
    caption = f"A bar goes from the step now, {duration(result.replay.step_ns)}, to the step with the change; a line is the interval of the estimate."
    chapters = [Chapter("changes", title, [Figure(title, caption, chart)])]
    if words:
        chapters.append(Chapter("words", "In words", [Words(whatif_text(result))]))
    return document_page("what if", _headline(result), chapters)
