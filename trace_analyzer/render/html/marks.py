"""Mark up texts: code between backticks, comments in code, and line breaks in names."""

import re

from markupsafe import Markup, escape

from trace_analyzer.render.html.inert import inert

_CODE = re.compile(r"`([^`]*)`")
_PARTS = re.compile(r"(?<=[_.:/#])(?=[^_.:/#])|(?<=[a-z])(?=[A-Z])|(?<= )")
_REMARK = re.compile(r"(?:^|(?<=  ))#.*", re.MULTILINE)


def coded(text: str) -> Markup:
    """Return the text with the parts between backticks as code."""
    marks = (
        Markup("<code>{}</code>").format(inert(part)) if k % 2 else escape(inert(part))
        for k, part in enumerate(_CODE.split(text))
    )
    return Markup("").join(marks)


def remarked(code: str) -> Markup:
    """Return Python code with its comments marked: a comment after code wraps to the next line as a whole."""
    code = inert(code)
    marks, end = [], 0
    for remark in _REMARK.finditer(code):
        name = "remark after" if code[end : remark.start()].strip(" ").rpartition("\n")[2] else "remark"
        marks += [escape(code[end : remark.start()]), Markup('<span class="{}">{}</span>').format(name, remark[0])]
        end = remark.end()
    return Markup("").join([*marks, escape(code[end:])])


def breakable(name: str, room: int, lines: int) -> Markup:
    """Return a name that may break between its words, unless it would then exceed its lines.

    A line has room for ``room`` characters and a sixth more, as letters are narrower than the digits by which rooms are
    measured.
    """
    room += room // 6
    name = inert(name)
    parts, taken, width = _PARTS.split(name), 1, 0
    for part in parts:
        if width and width + len(part) > room:
            taken, width = taken + 1, 0
        width += len(part)
    fits = taken <= lines and max(map(len, parts)) <= room
    return Markup("<wbr>" if fits else "").join(map(escape, parts))
