"""Write the effect of a change as text for a terminal, as Markdown, and as a tornado plot."""

from collections.abc import Sequence
from html import escape
from typing import Any

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


def tornado(result: WhatIf) -> Any:
    """Draw each scenario's step as a bar, with its interval, largest saving on top; None without scenarios.

    It is a HoloViews overlay with a line at the present step, and bars from there to the predicted step.
    """
    if not result.scenarios or result.replay is None:
        return None
    import holoviews as hv
    import holoviews.plotting.bokeh

    now = result.replay.step_ns / _NS_PER_MS
    rows = sorted(result.scenarios, key=lambda s: -s.step_ns)
    names = [visible(s.label) for s in rows]
    places = range(len(rows))
    bars = hv.Rectangles(
        [
            (
                min(now, s.step_ns / _NS_PER_MS),
                at - 0.3,
                max(now, s.step_ns / _NS_PER_MS),
                at + 0.3,
                name,
                s.step_ns / _NS_PER_MS,
            )
            for at, (s, name) in enumerate(zip(rows, names, strict=True))
        ],
        vdims=["change", "step (ms)"],
    ).opts(color="#0072b2", line_color=None, tools=["hover"])
    whiskers = hv.Segments([(s.low_ns / _NS_PER_MS, at, s.high_ns / _NS_PER_MS, at) for at, s in enumerate(rows)]).opts(
        color="#222222", line_width=2
    )
    line = hv.VLine(now).opts(color="#888888", line_dash="dashed")
    return (bars * whiskers * line).opts(
        responsive=True, height=120 + 28 * len(rows), yticks=list(zip(places, names, strict=True)), xlabel="step (ms), estimated",
        ylabel="", min_width=320, toolbar="disable", hooks=[_tag_whiskers],
    )  # fmt: skip


def _tag_whiskers(plot: Any, element: object) -> None:
    """Tag the intervals, so that the page's script gives them the theme's text colour."""
    from bokeh.models import Segment
    from bokeh.models.renderers import GlyphRenderer

    for model in plot.state.select({"type": GlyphRenderer}):
        if isinstance(model.glyph, Segment):
            model.glyph.tags = ["ink"]


def whatif_html(result: WhatIf) -> str:
    """Return the answer for a notebook: the text, and the tornado plot in a frame."""
    text = f"<pre>{escape(whatif_text(result))}</pre>"
    try:
        page = tornado_html(result, words=False)
    except ModuleNotFoundError:
        page = None  # without HoloViews, the text is complete
    if page is None:
        return text
    height = 380 + 28 * len(result.scenarios)
    return f'{text}<iframe srcdoc="{escape(page)}" style="width: 100%; height: {height}px; border: 0" title="What a change would bring"></iframe>'


def tornado_html(result: WhatIf, *, words: bool = True) -> str | None:
    """Return the tornado plot, followed by the text if ``words``, as one offline HTML page; None without scenarios."""
    plot = tornado(result)
    if plot is None or result.replay is None:
        return None
    from trace_analyzer.render.offline import figures_page  # text needs only Polars

    caption = f"A bar goes from the step now, {duration(result.replay.step_ns)}, to the step with the change; a line is the interval of the estimate."
    return figures_page(
        _headline(result),
        None,
        [("Step with each change", caption, plot)],
        whatif_text(result) if words else "",
    )
