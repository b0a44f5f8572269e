"""Tell whether a name is made of public words alone: those of PyTorch, of its kernels, and of this program.

`public_words.txt` is written by ``.ci/public_words.py``; `kernel_words.txt` is what names of library kernels are made of beside
that. Names that compilers and Tensile generate have a grammar of their own.
"""

import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("public_words.txt")
KERNEL_FILE = Path(__file__).with_name("kernel_words.txt")

_PACKAGE = Path(__file__).parents[1]
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_a-zA-Z]+")
_SOURCES = ("*.py", "*.pyx", "*.toml", "*.json", "*.j2", "*.js")
_TENSILE = re.compile(r"C[ijkl]{2,4}_A[ijkl]{2,4}_B[ijkl]{2,4}_\w*_MT\d+x\d+x\d+_\w*")
_TENSILE_CODE = re.compile(
    r"\d?[A-Z]{1,8}(?:n?\d+(?:p\d+)?(?:[A-Z]{1,4}\d*)?(?:x\d+)*)|[A-Z]{1,4}|GSUAMB(?:SK)?|GSUASB|UserArgs|\d+"
)
"""How kernels of rocBLAS and hipBLASLt are named: the problem, the tile, then capitals of parameters with their values, such as `LBSPPA256`.
See `getNameMin` and `getParameterNameAbbreviation` in Tensile (https://github.com/ROCm/Tensile)."""
_LONGEST = 8_192
"""Characters of an identifier; those of mangled templates take thousands."""
_LONGEST_NUMBER = 8
"""Digits of a number within a name; longer ones may be somebody's."""

_MANGLED = re.compile(r"_*Z(?=[NL]|\d)\w*")
"""A C++ name as compilers write it: identifiers after their lengths, between codes of types, literals and references."""
_MANGLED_PART = re.compile(
    r"L[a-z]n?\d+E|[ST][0-9A-Z]*(?:_|$)|A\d+_|DF\d+[b_]|(?P<length>[1-9]\d{0,2})|(?P<code>[A-Za-z])|_|0|(?<=E)\d+E"
)
"""The parts of such a name: Itanium C++ ABI, section 5.1 (https://itanium-cxx-abi.github.io/cxx-abi/abi.html#mangling)."""
_MOST_CODES = 4
"""Different letters in a row that codes of types have within a mangled name; more may be a word."""
_FORMATS = re.compile(r"(?i)e\dm\d|t\dr\ds\d|p[1248]x(?=\d)")
"""Numeric formats of 8 and fewer bits (`e4m3`), and how cuDNN and TensorRT-LLM write filters and schedules."""


def is_public(identifier: str) -> bool:
    """Return whether all words of the identifier are public; digits count only many in a row.

    >>> is_public("vectorized_elementwise_kernel"), is_public("s16816gemm_bf16"), is_public("zor" + "blat_gemm"), is_public("b7d2c9")
    (True, True, False, False)
    """
    if (
        len(identifier) > _LONGEST
        or not identifier.isascii()
        or any(len(digits) > _LONGEST_NUMBER for digits in re.findall(r"\d+", identifier))
    ):
        return False
    if _MANGLED.fullmatch(identifier):
        return _mangled_is_public(identifier)
    if _TENSILE.fullmatch(identifier):
        return all(_TENSILE_CODE.fullmatch(part) or _part_is_public(part) for part in identifier.split("_") if part)
    return all(_part_is_public(part) for part in identifier.split("_"))


def _part_is_public(part: str) -> bool:
    # Different single letters between digits, more than a type or a size has: a code, perhaps of somebody.
    codes = re.findall(r"(?<=\d)[A-Za-z](?=\d)", _FORMATS.sub("", part))
    if len(set(codes) - set("xXef")) > 1:
        return False
    known = _words()
    return all(len(word) < 2 or word in known for word in words_of(part)) or part.lower() in known


def _mangled_is_public(name: str) -> bool:
    """Return whether all identifiers within a mangled C++ name are public, and nothing else is in it but codes.

    >>> _mangled_is_public("_ZN2at6native6kernelIfEEvi"), _mangled_is_public("_ZN2at7zor" + "blatIfEEvi")
    (True, False)
    """
    position, codes = name.index("Z") + 1, ""
    while position < len(name):
        part = _MANGLED_PART.match(name, position)
        if part is None:
            return False
        position, codes = part.end(), codes + (part["code"] or " ")
        if part["length"]:
            end = position + int(part["length"])
            if is_public(name[position:end]):
                position = end
            elif (
                name[part.start() - 1] + name[position : position + 1] != "EE"
            ):  # the value of a literal, before its end
                return False
    return all(len(set(run)) <= _MOST_CODES for run in re.findall(r"[a-z]+", codes))


def words_of(identifier: str) -> Iterator[str]:
    """Yield the words of an identifier in lower case, cut at underscores, digits and capitals."""
    return (match[0].lower() for match in _WORD.finditer(identifier))


@cache
def _words() -> frozenset[str]:
    """Return every public word: PyTorch's, those of kernels and Python's modules, and this program's own."""
    lines = (line for file in (FILE, KERNEL_FILE) for line in file.read_text(encoding="utf-8").splitlines())
    listed = (word for line in lines if not line.startswith("#") for word in line.split())
    own = (path.read_text(encoding="utf-8") for pattern in _SOURCES for path in _PACKAGE.rglob(pattern))
    ours = (word for text in own for word in words_of(text) if len(word) > 2)
    modules = (word for name in sys.stdlib_module_names for word in words_of(name))
    return frozenset((*listed, *ours, *modules))
