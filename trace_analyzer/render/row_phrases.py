"""Write texts that combine several columns of a row (sections name these functions by their keys), advice, and levers."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from trace_analyzer import documents, thresholds, units
from trace_analyzer.catalog import event_names, kernels
from trace_analyzer.render.names import middle_cut
from trace_analyzer.render.phrasing import (
    LINKS,
    advised_place,
    evidence_label,
    evidence_value,
    mfu,
    predicted_briefly,
    step_limit,
)
from trace_analyzer.report import Advice, Evidence, Lever, Verdict, summaries
from trace_analyzer.verdict.judge import OF_HOST
from trace_analyzer.vocabulary import PARTS, RESOURCES, UNSEEN, WORK, label, phrase, regime_noun


def levers_sentence(verdict: Verdict) -> str:
    """Write what the two first levers save, and kinds of the host's work; "" without a replay."""
    saved = [
        f"{units.percent(lever.saves_ratio) if lever.saves_ratio else 'not at all'} {name}"
        for name, lever in lever_rows(verdict)[:2]
    ]
    return f"{levers_title(verdict)} {', '.join(saved)}. {host_levers_sentence(verdict)}".rstrip() if saved else ""


def host_levers_sentence(verdict: Verdict) -> str:
    """Write what each kind of the host's work saves alone, and its waits, which may save more than all of it; "" without any."""
    saved = documents.savings_of(lever for lever in verdict.host_levers if lever.resource != "waits")
    sentences = [f"Of the host's work, each alone: {saved}."] if saved else []
    sentences += [
        f"If no call waited for the device: {units.percent(lever.saves_ratio)}."
        for lever in verdict.host_levers
        if lever.resource == "waits" and lever.saves_ratio >= thresholds.WORTH_RATIO
    ]
    return " ".join([*sentences, *_named_by_time(verdict)])


def step_without_recording(verdict: Verdict) -> str:
    """Write how long a step takes without the profiler, by estimate, where that is much less; else ""."""
    if (times := summaries.step_without_recording(verdict)) is None:
        return ""
    now, without, least, most = map(units.duration, times)
    what = "a step" if verdict.window is not None and verdict.window.steps else "the window"
    return f"Without the profiler {what} takes about {without} ({least} to {most}); savings are of the recorded {now}."


def _named_by_time(verdict: Verdict) -> Iterator[str]:
    """Yield why the kind of the host's work that saves most is not the cause, if so: the device idles for it less."""
    ratio = summaries.cause_ratio(verdict) if verdict.regime == "overhead-bound" and verdict.cause else 0.0
    for best in verdict.host_levers[:1]:
        parts = OF_HOST[best.resource]
        causes = {*parts, *((PARTS[part].cure or ("", ""))[1] for part in parts)}
        if verdict.cause not in causes and ratio > best.share_ratio and best.saves_ratio >= thresholds.WORTH_RATIO:
            named = units.capitalized(phrase(verdict.cause or ""))
            times = f"({units.percent(ratio)} of the window) than for {RESOURCES[best.resource]} ({units.percent(best.share_ratio)})"
            yield f"{named} is named as the cause, since the GPU idles longer for it {times}; savings depend on what runs meanwhile."


def levers_title(verdict: Verdict) -> str:
    """Write what the figures of levers are."""
    return f"{units.capitalized(_unit(verdict))} would be shorter by"


def _unit(verdict: Verdict) -> str:
    return "a step" if verdict.window is not None and verdict.window.steps else "the window"


LEVER_PARTS = {
    "host": "python", "compute": "compute", "memory-bandwidth": "memory", "communication": "communication", "copies": "copy",
    "small-kernels": "latency",
}  # fmt: skip
"""Part of the window in whose colour each lever is drawn."""


def lever_rows(verdict: Verdict) -> list[tuple[str, Lever]]:
    """Return the levers to show, the largest saving first, each with its name after `levers_title`: ``without host time``.

    They are the one that saves most, and the two that take most time of the others.
    """
    rest = sorted(verdict.levers[1:], key=lambda lever: -lever.share_ratio)
    shown = sorted((*verdict.levers[:1], *rest[:2]), key=lambda lever: -lever.saves_ns)
    return [(f"without {RESOURCES[lever.resource]}", lever) for lever in shown]


def rule_applied(verdict: Verdict) -> str:
    """Write why the largest figure is not the verdict, if so: a step does not wait for it, or waiting can go."""
    larger = summaries.larger_regime(verdict)
    if larger is None:
        return ""
    regime, ratio = larger
    noun = regime_noun(regime, summaries.judged_parts(verdict))
    resource = "host time" if regime == "overhead-bound" else noun
    saves = next((one.saves_ratio for one in verdict.levers if RESOURCES[one.resource] == resource), None)
    takes, it = ("takes", "that") if noun in ("overhead", "communication") else ("take", "them")
    what = f"{units.capitalized(noun)} {takes}"
    if verdict.levers:
        shorter = f"{units.percent(saves)} shorter" if saves else "no shorter"
        less = "" if saves is None else f"; without {it}, {_unit(verdict)} would be {shorter}"
        return f"{what} {units.percent(ratio)}{less}."
    return (
        f"{what} {units.percent(ratio)}, but waiting can be recovered in full:"
        f" it decides where it takes at least {units.percent(thresholds.WAITING_WINS_RATIO)} as much."
    )


Row = Mapping[str, Any]


def drained_by(row: Row) -> str:
    """Write the cause of a queue underrun, from a row of table `drains`: ``.item() in train (train.py:12)``."""
    function = row["python_function"]
    own = row["name"] if row["name"] != function else None
    names = (row["source"] or row["operator"] or own, event_names.in_function(function) if function else "")
    return " ".join(name for name in names if name)


def blamed_place(row: Row) -> str:
    """Write a place in code: ``aten::copy_ in to_gpu (train.py:12)``, else module or annotation, and the phase; "" if unknown."""
    function = event_names.in_function(row["python_function"], row["call_line"]) if row["python_function"] else ""
    around = row["module"] or row.get("annotation")
    place = " ".join(part for part in (row["operator"] or "", function or (f"in {around}" if around else "")) if part)
    return ", ".join(part for part in (place, _PASSES.get(row.get("phase") or "", "")) if part)


_PASSES = {"backward": "backward pass", "optimizer": "optimizer"}
"""Phases that a place in code does not tell: one function calls them all."""


def fusion_place(row: Row) -> str:
    """Write the module or the function around a fusion opportunity; "" if unknown."""
    return row["module"] or row["function"] or ""


def fusion_phrase(row: Row) -> str:
    """Write a fusion opportunity: ``x.cos().cos(), in Block, moves 2.1 GB instead of 4.2 GB``."""
    place = fusion_place(row)
    facts = (row["what"], f"in {place}" if place else "", fusion_traffic(row))
    return ", ".join(fact for fact in facts if fact)


def fusion_traffic(row: Row) -> str:
    """Write the traffic of a fused kernel and the present one: ``moves 2.1 GB instead of 4.2 GB``."""
    if row["moved_bytes"] is None or row["saved_bytes"] is None or row["kind"] != "chain":
        return ""
    rest = row["moved_bytes"] - row["saved_bytes"]
    return f"moves {units.size(rest)} instead of {units.size(row['moved_bytes'])}"


def movement_name(row: Row) -> str:
    """Name communication, or copies by direction and host memory: ``host to device, pageable``."""
    memory = f", {row['host_memory']}" if row.get("host_memory") else ""
    return f"{row['direction'].replace('-', ' ')}{memory}"


def movement(row: Row) -> str:
    """Write the cost of communication or copies: how many, how long, how much exposed time, and the bandwidth."""
    return _communication(row) if row["direction"] == "communication" else _copies(row)


def _communication(row: Row) -> str:
    exposed = f"{units.duration(row['exposed_ns'])} exposed, {units.duration(row['hidden_ns'])} hidden behind work"
    rate = "" if row["bus_byte_per_s"] is None else f"; bus bandwidth {units.bandwidth(row['bus_byte_per_s'])}"
    if rate and row["link"] is not None and row["link_ratio"] is not None:
        best = units.bandwidth(row["best_bus_byte_per_s"])
        most = "" if best in rate else f", at most {best}"  # one collective, or all alike
        rate += f"{most} ({units.percent(row['link_ratio'])} of {LINKS[row['link']]}'s peak)"
    return f"{units.counted(row['kernel_count'], 'kernel')}: {exposed}{rate}"


def _copies(row: Row) -> str:
    few = f", {units.count(row['small_count'])} of them small" if row["small_count"] else ""
    small = ", small" if row["count"] == row["small_count"] == 1 else few
    rate = "" if row["byte_per_s"] is None else f" at {units.bandwidth(row['byte_per_s'])}"
    if rate and row["link"] is not None and row["link_ratio"] is not None:
        large = "large ones " if row["small_count"] else ""
        rate += f" ({large}{units.percent(row['link_ratio'])} of {LINKS[row['link']]}'s peak)"
    calls = f"; the calls held the CPU for {units.duration(row['call_ns'])}"
    exposed = f"{units.duration(row['time_ns'])}{rate}, {units.duration(row['exposed_ns'])} exposed"
    return f"{units.counted(row['count'], 'copy', 'copies')}{small}: {exposed}{calls}"


PHRASES: Mapping[str, Callable[[Row], str]] = {
    "drained-by": drained_by,
    "evidence": lambda row: evidence_value(Evidence(**row)),
    "fusion": fusion_phrase,
    "fusion-place": fusion_place,
    "fusion-traffic": fusion_traffic,
    "live-memory": lambda row: units.memory_size(row["live_bytes"]),
    "metric": lambda row: evidence_label(Evidence(**row)),
    "mfu": lambda row: "–" if row["mfu"] is None else mfu(row["mfu"], row["mfu_at_most"]),
    "movement": movement,
    "movement-name": movement_name,
    "part": lambda row: label(row["part"]) if row["part"] in (*WORK, *UNSEEN) else f"Idle: {phrase(row['part'])}",
    "path-part": lambda row: kernels.line_label(row["name"]),
    "place": blamed_place,
    "step-limit": step_limit,
}
"""Keys for ``phrase`` in `trace_analyzer.sections.Shown` -> the function that writes a row."""


_PLACES = "; "
_TEMPLATE_ARGUMENTS = re.compile(r"(?<=\w)<[^<>]*>")
_LONG_NAME = re.compile(r"[^\s/]{81,}")
"""Names of kernels that take more than a line, such as Tensile's; paths stay whole."""
_NAME_CELLS = 72


def code_line(code: str, width: int) -> str:
    """Return the first statement of the code on one line, without its comment if both exceed ``width``.

    A ``with`` statement keeps the first line of its body. Code of comments only gives its first one.
    """
    lines = [line for line in code.splitlines() if line.strip()]
    statements = [line for line in lines if not line.lstrip().startswith("#")]
    if not statements:
        return lines[0].strip() if lines else ""
    first = statements[0].strip()
    statement = _without_comment(first)
    if statement.endswith(":") and len(statements) > 1:
        return f"{statement} {_without_comment(statements[1].strip())}"
    return first if units.cell_width(first) <= width else statement


def _without_comment(line: str) -> str:
    return line.partition("  #")[0].rstrip()


def predicted_arrow(item: Advice) -> str:
    """Write the present and the predicted step without the interval.

    For example ``176 → 119 ms a step``; "" without a prediction.
    """
    return predicted_briefly(item).removeprefix("estimate: ").partition(" (")[0]


def saves_at_most(item: Advice) -> str:
    """Write the bound, ``saves at most 1.69 ms a step, 12 %``; next to an estimate with its label and its assumption.

    It is "" where the advice saves nothing by itself.
    """
    saving = item.saving
    if not saving.at_most_ns:
        return ""
    unit = " a step" if saving.has_steps else ""
    most = f"saves at most {units.duration(saving.at_most_ns)}{unit}, {units.percent(saving.at_most_ratio)}"
    return f"bound: {most}, if nothing else limits" if item.predicted else most


def brief(item: Advice) -> str:
    """Write an advice in a line: ``data-loading: Load data in parallel; estimate: 13.6 → 5.38 ms a step (5.27 to 5.49)``."""
    return units.visible(
        f"{item.id}: {item.title}; {predicted_briefly(item) or saves_at_most(item)}".removesuffix("; ")
    )


def card(item: Advice) -> str:
    """Write an advice in several lines: the change, its effect, why, where, and the code, indented."""
    code = [f"    {line}" for line in item.code.splitlines()]
    lines = (item.title, predicted_briefly(item), saves_at_most(item), item.why, advised_place(item), *code)
    return "\n".join(units.visible(line) for line in lines if line)


def first_place(item: Advice, cells: int) -> str:
    """Write the most important place completely: ``at aten::mm in step (train.py:12) (8.66 ms)``; "" if unknown.

    A name longer than ``cells`` loses its template arguments.
    """
    place = item.where.partition(_PLACES)[0]
    while units.cell_width(place) > cells and (bare := _TEMPLATE_ARGUMENTS.sub("", place)) != place:
        place = bare
    place = _LONG_NAME.sub(lambda name: middle_cut(name[0], _NAME_CELLS), place)
    return place if not place or place.startswith("before ") else f"at {place}"
