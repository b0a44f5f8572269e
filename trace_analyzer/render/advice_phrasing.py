"""Write a piece of advice: in a line, in two with code and place, or whole."""

import re

from trace_analyzer import units
from trace_analyzer.render.phrasing import advised_place, predicted_briefly
from trace_analyzer.report import Advice

_PLACES = "; "
_TEMPLATE_ARGUMENTS = re.compile(r"(?<=\w)<[^<>]*>")


def code_line(code: str, width: int) -> str:
    """Return the first statement of the code on one line; its comment goes where both do not fit ``width``.

    A ``with`` keeps its body's first line. Code that is all comments gives its first one.
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
    """Write the step now and then without the interval: ``176 → 119 ms a step``; "" where no replay estimates it."""
    return predicted_briefly(item).removeprefix("estimate: ").partition(" (")[0]


def saves_at_most(item: Advice) -> str:
    """Write the bound: ``saves at most 49.1 ms``; beside an estimate it is called the bound, with its assumption.

    An estimate keeps whatever else limits the step, and is of a step; the bound is of the window and does not.
    """
    most = f"saves at most {units.duration(item.saves_ns_at_most)}"
    return f"bound: {most} of the window, if nothing else limits" if item.predicted else most


def brief(item: Advice) -> str:
    """Write an advice in a line: ``data-loading: Load data in parallel; estimate: 13.6 → 5.38 ms a step (5.27 to 5.49)``."""
    return units.visible(f"{item.id}: {item.title}; {predicted_briefly(item) or saves_at_most(item)}")


def card(item: Advice) -> str:
    """Write an advice in lines: what to change, what it brings, why, where, and the code, indented."""
    code = [f"    {line}" for line in item.code.splitlines()]
    lines = (item.title, predicted_briefly(item), saves_at_most(item), item.why, advised_place(item), *code)
    return "\n".join(units.visible(line) for line in lines if line)


def first_place(item: Advice, cells: int) -> str:
    """Write the place that matters most, whole: ``at aten::mm in step (train.py:12) (8.66 ms)``; "" if unknown.

    Only a name longer than ``cells`` loses its template arguments.
    """
    place = item.where.partition(_PLACES)[0]
    while units.cell_width(place) > cells and (bare := _TEMPLATE_ARGUMENTS.sub("", place)) != place:
        place = bare
    return place if not place or place.startswith("before ") else f"at {place}"
