"""Write a short regular expression that selects one kernel of a trace in kernel profilers.

Nsight Compute (``--kernel-name-base demangled``) and ROCm Compute Profiler match a part of the demangled name. They
write template arguments differently from traces, such as ``(int)4`` for ``4``, so a pattern consists of words with
anything between.
"""

import re
from collections.abc import Iterable, Sequence

from trace_analyzer.catalog.kernels import function_name

LONG_WORD = 40
"""Longest identifier that is matched as a whole: libraries join whole parameter sets with ``_``, and longer ones are
matched by parts."""
MOST_WORDS = 6
"""Most words of a pattern: names that so many words do not distinguish differ in ways that words cannot express."""
_MANGLED = re.compile(r"_Z\w+", re.ASCII)
_NUMBERS = re.compile(r"L[a-z]n?\d+E|[ST][0-9A-Z]*_|DF\d+|(?P<length>[1-9]\d{0,2})")
_WORDS = re.compile(r"\w+", re.ASCII)
_SPELT_OTHERWISE = frozenset({"void", "const", "unsigned", "false", "true"})
"""Words that some profilers write in another order, or as ``(bool)1``."""


def kernel_pattern(name: str, names: Iterable[str]) -> tuple[str, int]:
    """Return a regular expression that matches ``name``, and the number of other ``names`` that it matches.

    It is the kernel's own identifier where no other kernel has it, else the fewest words that distinguish the kernel.
    None of its characters is special to a shell in double quotes.
    """
    others = {other for other in names if other != name}
    own = function_name(name)
    words = list(dict.fromkeys((own, *_words(name)) if own in name and 0 < len(own) <= LONG_WORD else _words(name)))
    if not words:
        return ".*", len(others)
    chosen: list[str] = []
    tried = [(others, chosen)]
    while (tried[-1][0] and len(chosen) < min(MOST_WORDS, len(words))) or not chosen:
        # Among words that leave equally many names, prefer the kernel's own identifier, then the longest.
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
    """Return the words of a name, demangled or not; long words are split."""
    words = _WORDS.findall(name)
    if _MANGLED.fullmatch(name):
        words = _identifiers(name)
    parts = [part for word in words for part in (word.split("_") if len(word) > LONG_WORD else [word])]
    return [part for part in parts if part and part not in _SPELT_OTHERWISE]


def _identifiers(mangled: str) -> list[str]:
    """Return the identifiers of a mangled name (Itanium C++ ABI), each after its length; other numbers are skipped."""
    identifiers, at = [], 2
    while match := _NUMBERS.search(mangled, at):
        length = int(match["length"] or 0)
        word = mangled[match.end() : match.end() + length]
        identifiers += [word] if length > 2 else []
        at = match.end() + len(word)
    return identifiers


def _in_order(name: str, words: Sequence[str]) -> str:
    """Return a pattern of the words in their order within the name, with anything between."""
    return ".*".join(sorted(words, key=lambda word: (name.find(word), len(word))))


def _left(name: str, words: Sequence[str], others: Iterable[str]) -> set[str]:
    """Return the other names that match the words; all of them where the words overlap in the name itself."""
    pattern = re.compile(_in_order(name, words), re.DOTALL)
    return {other for other in others if pattern.search(other)} if pattern.search(name) else set(others)
