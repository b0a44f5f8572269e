"""Shorten names of kernels so that what tells them apart stays."""

import re

from trace_analyzer import units
from trace_analyzer.render.cutlass_names import cutlass_label

_NAMESPACES = re.compile(r"(?:\b\w+::|\(anonymous namespace\)::)+")
_WRAPPER = re.compile(r"Kernel\d*<(\w+)>")
"""``cutlass::Kernel2<cutlass_80_tensorop_...>``: an entry point around the kernel's own name."""


def kernel_label(name: str, cells: int) -> str:
    """Shorten a kernel's name to at most ``cells`` cells: what tells it apart is kept longest.

    A C++ name loses its return type, its arguments and its namespaces, then its end: the functor that tells
    it apart comes first. Any other name loses its middle, because libraries put the tile at the end.
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
    """Return the name without the parenthesised list that ends it, if one does."""
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

    That is what stands before the last space that is in no brackets.
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
    """Cut the text in its middle to at most ``cells`` cells, the cut marked by an ellipsis."""
    if units.cell_width(text) <= cells:
        return text
    head = units.shorten(text, max(1, cells * 3 // 5))
    tail = units.shorten(text[::-1], max(0, cells - units.cell_width(head)) + 1)[-2::-1]
    return head + tail
