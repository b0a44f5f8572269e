"""Derive the substrings that every match of a regular expression contains.

setup.py derives them with Python's parser of regular expressions, so this file imports nothing of the package. A condition
is a substring, ``{"all": [...]}`` or ``{"any": [...]}`` of conditions, or None where nothing is known. Conditions apply to
lower-case ASCII names only, because patterns that ignore case also match some letters outside ASCII.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

Condition = Any
"""A substring, a dict with one key, or None."""
KEYS = ("name", "words", "operator")
"""Keys of the patterns of kernel rules."""
_VERBOSE = re.compile(r"\(\?x\)\s*")
_FLAGS = re.compile(r"\(\?-?[ims]+\)")
_SCOPED_FLAGS = re.compile(r"\(\?-?[ims]+:")


def condition(pattern: str) -> Condition:
    """Return the condition that every match of the pattern meets.

    >>> condition("(?i)^aten::(?:add|mul)_?$")
    {'all': ['aten::', {'any': ['add', 'mul']}]}
    """
    try:
        from re import _constants, _parser  # type: ignore[attr-defined]
    except ImportError:  # private modules of Python, which may disappear
        return None
    verbose = _VERBOSE.match(pattern)
    plain = _SCOPED_FLAGS.sub("(?:", _FLAGS.sub("", pattern[verbose.end() :] if verbose else pattern))
    try:
        parsed = _parser.parse(plain, re.VERBOSE if verbose else 0)
    except re.error:  # Rust's syntax has a few more constructs
        return None
    return _of_sequence(parsed, _constants)


def conditions(document: object) -> dict[str, Condition]:
    """Return pattern -> condition for the patterns in parsed kernel rules, without unknown conditions."""
    made = {pattern: condition(pattern) for pattern in _patterns(document)}
    return {pattern: known for pattern, known in made.items() if known is not None}


def may_hold(condition: Condition, text: str) -> bool:
    """Return whether a lower-case text meets a condition; an unknown condition is met.

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
    """Return the condition of consecutive items: each run of literals, and the known conditions between them."""
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
    """Yield items, with groups replaced by their items."""
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
