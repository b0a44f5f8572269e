"""Write an advice: in one line, in two with code and place, or completely."""

import re

from trace_analyzer import units
from trace_analyzer.render.names import middle_cut
from trace_analyzer.render.phrasing import advised_place, predicted_briefly
from trace_analyzer.report import Advice

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
    """Write the bound: ``saves at most 49.1 ms``; next to an estimate, it is labelled as bound, with its assumption.

    An estimate accounts for other limits of the step and is per step; the bound is for the window and does not.
    """
    most = f"saves at most {units.duration(item.saves_ns_at_most)}"
    return f"bound: {most} of the window, if nothing else limits" if item.predicted else most


def brief(item: Advice) -> str:
    """Write an advice in a line: ``data-loading: Load data in parallel; estimate: 13.6 → 5.38 ms a step (5.27 to 5.49)``."""
    return units.visible(f"{item.id}: {item.title}; {predicted_briefly(item) or saves_at_most(item)}")


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
