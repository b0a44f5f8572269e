"""Shorten names of kernels, but keep their distinguishing parts."""

import re
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from trace_analyzer import units
from trace_analyzer.render.cutlass_names import cutlass_label

_NAMESPACES = re.compile(r"(?:\b\w+::|\(anonymous namespace\)::)+")
_WRAPPER = re.compile(r"Kernel\d*<(\w+)>")
"""An entry point around the kernel's own name: ``cutlass::Kernel2<cutlass_80_tensorop_...>``."""


_ARGUMENT = re.compile(r"(?:\w+::)*\w+")
_READ = 4_000
"""Number of characters of a name that are compared: template arguments come before function arguments."""
_MOST_ARGUMENTS = 3


def telling_arguments(labelled: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the distinguishing template arguments of names with a common label: ``BFloat16``.

    ``labelled`` has names with their labels. Types come before numbers, and at most three arguments are returned.
    """
    by_label: dict[str, set[str]] = {}
    for name, label in labelled:
        by_label.setdefault(label, set()).add(name)
    alike = (sorted(names) for names in by_label.values() if len(names) > 1)
    return {name: text for names in alike for name, text in zip(names, _differences(names), strict=True) if text}


def _differences(names: Sequence[str]) -> list[str]:
    """Return the words of each name that differ, as few as distinguish all names."""
    words = [_ARGUMENT.findall(name[:_READ].replace("(anonymous namespace)::", "")) for name in names]
    columns = [column for column in zip_longest(*words, fillvalue="") if len(set(column)) > 1]
    columns.sort(key=lambda column: any(word[:1].isdigit() for word in column))
    arguments: list[tuple[str, ...]] = [() for _ in names]
    for column in columns:
        more = [(*row, word) for row, word in zip(arguments, column, strict=True)]
        if len(set(more)) > len(set(arguments)) and len(more[0]) <= _MOST_ARGUMENTS:
            arguments = more
    return [" ".join(filter(None, (word.rsplit("::", 1)[-1] for word in row))) for row in arguments]


def distinct_labels(names: Sequence[str], cells: int) -> list[str]:
    """Return each name's `kernel_label` of at most ``cells`` cells, with distinguishing arguments for equal labels."""
    labels = [kernel_label(name, cells) for name in names]
    arguments = telling_arguments(zip(names, labels, strict=True))
    return [
        f"{kernel_label(name, max(1, cells - len(arguments[name]) - 2))}, {arguments[name]}"
        if name in arguments and len(arguments[name]) < cells // 2 else label
        for name, label in zip(names, labels, strict=True)
    ]  # fmt: skip


def kernel_label(name: str, cells: int) -> str:
    """Shorten a kernel's name to at most ``cells`` cells, keeping its distinguishing part longest.

    A C++ name loses its return type, its arguments and its namespaces, then its end, as the distinguishing functor
    comes first. Any other name loses its middle, because libraries put the tile at the end.
    """
    text = units.visible(name)
    if units.cell_width(text) <= cells:
        return text
    if (label := cutlass_label(text)) is not None:
        return units.shorten(label, cells)
    bare = _without_arguments(text)
    short = _NAMESPACES.sub("", _without_return_type(bare) if bare != text else text.removeprefix("void "))
    wrapper = _WRAPPER.fullmatch(short)
    if wrapper or "<" not in short:
        return middle_cut(wrapper[1] if wrapper else short, cells)
    return units.shorten(short, cells)


def _without_arguments(name: str) -> str:
    """Return the name without the parenthesised list at its end, if there is one."""
    if not name.endswith(")"):
        return name
    depth = 0
    for position in range(len(name) - 1, 0, -1):
        depth += {")": 1, "(": -1}.get(name[position], 0)
        if depth == 0:
            return name[:position]
    return name


def _without_return_type(name: str) -> str:
    """Return a template's name without the type before it.

    That is the part before the last space outside all brackets.
    """
    opened: list[str] = []
    start = 0
    for position, sign in enumerate(name):
        if sign in "<(":
            opened.append(sign)
        elif opened and opened[-1] + sign in ("<>", "()"):
            opened.pop()
        elif sign == " " and not opened:
            start = position + 1
    return name[start:] if "<" in name[start:] else name


def middle_cut(text: str, cells: int) -> str:
    """Cut the text in its middle to at most ``cells`` cells, with an ellipsis at the cut."""
    if units.cell_width(text) <= cells:
        return text
    head = units.shorten(text, max(1, cells * 3 // 5))
    tail = units.shorten(text[::-1], max(0, cells - units.cell_width(head)) + 1)[-2::-1]
    return head + tail
