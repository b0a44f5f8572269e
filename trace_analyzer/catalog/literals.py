"""Find the texts that a name must hold for a regular expression to match it.

setup.py works them out, with Python's parser of such expressions; this file imports nothing of the package. A condition is a text,
``{"all": [...]}`` or ``{"any": [...]}`` of conditions, or None where nothing is known. It is for names of ASCII alone, in small letters:
patterns that ignore case match other letters than ASCII's, too.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

Condition = Any
"""A text, a dict with one key, or None."""
KEYS = ("name", "words", "operator")
"""Keys under which kernel rules hold patterns."""
_VERBOSE = re.compile(r"\(\?x\)\s*")
_FLAGS = re.compile(r"\(\?-?[ims]+\)")
_SCOPED_FLAGS = re.compile(r"\(\?-?[ims]+:")


def condition(pattern: str) -> Condition:
    """Return what each name that the pattern matches holds.

    >>> condition("(?i)^aten::(?:add|mul)_?$")
    {'all': ['aten::', {'any': ['add', 'mul']}]}
    """
    try:
        from re import _constants, _parser  # type: ignore[attr-defined]
    except ImportError:  # they are Python's own, and may go
        return None
    verbose = _VERBOSE.match(pattern)
    plain = _SCOPED_FLAGS.sub("(?:", _FLAGS.sub("", pattern[verbose.end() :] if verbose else pattern))
    try:
        parsed = _parser.parse(plain, re.VERBOSE if verbose else 0)
    except re.error:  # Rust's expressions have a little more
        return None
    return _of_sequence(parsed, _constants)


def conditions(document: object) -> dict[str, Condition]:
    """Return the condition of each pattern of kernel rules, parsed from TOML, of which one is known."""
    made = {pattern: condition(pattern) for pattern in _patterns(document)}
    return {pattern: known for pattern, known in made.items() if known is not None}


def may_hold(condition: Condition, text: str) -> bool:
    """Return whether a text in small letters meets a condition; what is not known is met.

    >>> may_hold({"all": ["aten::", {"any": ["add", "mul"]}]}, "aten::mm")
    False
    """
    if isinstance(condition, str):
        return condition in text
    if condition is None:
        return True
    if "all" in condition:
        return all(may_hold(part, text) for part in condition["all"])
    return any(may_hold(part, text) for part in condition["any"])


def _patterns(document: object) -> Iterator[str]:
    if isinstance(document, dict):
        yield from (value for key, value in document.items() if key in KEYS and isinstance(value, str))
    if isinstance(document, dict | list):
        for item in document.values() if isinstance(document, dict) else document:
            yield from _patterns(item)


def _of_sequence(items: Iterable[Any], constants: Any) -> Condition:
    """Return the condition of items that follow each other: each run of letters, and what else is known."""
    parts: list[Condition] = []
    run = ""
    for kind, value in _flat(items, constants):
        if kind is constants.LITERAL:
            run += chr(value).lower()
        elif kind is not constants.AT:
            parts += [run, _of_item(kind, value, constants)]
            run = ""
    known = [part for part in (*parts, run) if part]
    return {"all": known} if len(known) > 1 else next(iter(known), None)


def _flat(items: Iterable[Any], constants: Any) -> Iterator[tuple[Any, Any]]:
    """Yield items, those of groups in their place."""
    for kind, value in items:
        if kind is constants.SUBPATTERN:
            yield from _flat(value[3], constants)
        else:
            yield kind, value


def _of_item(kind: Any, value: Any, constants: Any) -> Condition:
    if kind is constants.BRANCH:
        branches = [_of_sequence(branch, constants) for branch in value[1]]
        return None if None in branches else {"any": branches}
    if kind in (constants.MAX_REPEAT, constants.MIN_REPEAT) and value[0]:
        return _of_sequence(value[2], constants)
    return None


__all__ = ["Condition", "condition", "conditions", "may_hold"]
