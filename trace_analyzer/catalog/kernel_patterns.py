"""Write a short regular expression that profilers of kernels take for one kernel of a trace.

Nsight Compute (``--kernel-name-base demangled``) and ROCm Compute Profiler match part of the demangled name. They write template
arguments in other ways than traces do, such as ``(int)4`` for ``4``, so a pattern consists of words with anything between.
"""

import re
from collections.abc import Iterable, Sequence

from trace_analyzer.catalog.kernels import function_name

LONG_WORD = 40
"""Libraries write whole parameter sets into one identifier, joined by ``_``: words of more are matched by their parts."""
MOST_WORDS = 6
"""What so many words do not tell apart differs in a way that a pattern of words cannot say."""
_MANGLED = re.compile(r"_Z\w+", re.ASCII)
_NUMBERS = re.compile(r"L[a-z]n?\d+E|[ST][0-9A-Z]*_|DF\d+|(?P<length>[1-9]\d{0,2})")
_WORDS = re.compile(r"\w+", re.ASCII)
_SPELT_OTHERWISE = frozenset({"void", "const", "unsigned", "false", "true"})
"""Profilers write some of these in another order, or as ``(bool)1``."""


def kernel_pattern(name: str, names: Iterable[str]) -> tuple[str, int]:
    """Return a regular expression that matches ``name``, and how many others of ``names`` it matches.

    It is the kernel's own identifier where no other kernel has it, else the fewest words that tell it from the others; none
    of its characters means anything to a shell in double quotes.
    """
    others = {other for other in names if other != name}
    own = function_name(name)
    words = list(dict.fromkeys((own, *_words(name)) if own in name and 0 < len(own) <= LONG_WORD else _words(name)))
    if not words:
        return ".*", len(others)
    chosen: list[str] = []
    tried = [(others, chosen)]
    while (tried[-1][0] and len(chosen) < min(MOST_WORDS, len(words))) or not chosen:
        # Of words that leave equally many, the kernel's own identifier, then the longest.
        rest = ((_left(name, [*chosen, word], tried[-1][0]), word) for word in words if word not in chosen)
        left, best = min(rest, key=lambda one: (len(one[0]), one[1] != own, -len(one[1]), one[1]))
        chosen = [*chosen, best]
        tried.append((left, chosen))
    left, chosen = min(tried[1:], key=lambda one: len(one[0]))
    if left and _WORDS.fullmatch(name) and not _MANGLED.fullmatch(name):
        whole = re.compile(rf"^{name}\b", re.ASCII)
        return whole.pattern, sum(whole.search(other) is not None for other in left)
    return _in_order(name, chosen), len(left)


def _words(name: str) -> Sequence[str]:
    """Return the words that stand in a name, demangled or not; parts of words that are long."""
    words = _WORDS.findall(name)
    if _MANGLED.fullmatch(name):
        words = _identifiers(name)
    parts = [part for word in words for part in (word.split("_") if len(word) > LONG_WORD else [word])]
    return [part for part in parts if part and part not in _SPELT_OTHERWISE]


def _identifiers(mangled: str) -> list[str]:
    """Return the identifiers of a mangled name (Itanium C++ ABI): each behind its length; numbers are other things too."""
    identifiers, at = [], 2
    while match := _NUMBERS.search(mangled, at):
        length = int(match["length"] or 0)
        word = mangled[match.end() : match.end() + length]
        identifiers += [word] if length > 2 else []
        at = match.end() + len(word)
    return identifiers


def _in_order(name: str, words: Sequence[str]) -> str:
    """Return the words in the order in which they stand in the name, with anything between."""
    return ".*".join(sorted(words, key=lambda word: (name.find(word), len(word))))


def _left(name: str, words: Sequence[str], others: Iterable[str]) -> set[str]:
    """Return the other names that the words leave; all of them where the words overlap in the name itself."""
    pattern = re.compile(_in_order(name, words), re.DOTALL)
    return {other for other in others if pattern.search(other)} if pattern.search(name) else set(others)
