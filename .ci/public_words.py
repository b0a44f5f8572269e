"""Writes trace_analyzer/catalog/public_words.txt: the words that names in a trace may be made of under --redact.

They are the words of the identifiers of an installed PyTorch (operators, Python modules, classes, functions and
arguments, C++ headers; its tests left out) and of Python's standard library. Run it with a new PyTorch at hand.
"""

import ast
import re
import sys
import sysconfig
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from trace_analyzer.catalog.public_words import FILE, words_of  # noqa: E402

LEAST_IDENTIFIERS = 2
"""A word of one identifier alone is often a typing error or a name of somebody."""

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", re.DOTALL)
_TESTS = re.compile(r"/(?:testing|tests?|site-packages|idlelib|lib2to3|turtledemo)/")


def identifiers() -> Iterator[str]:
    """Every identifier of PyTorch and of the standard library, with repetitions."""
    home = Path(torch.__file__).parent
    for schema in torch._C._jit_get_all_schemas():
        yield from schema.name.split("::")
        yield from (argument.name for argument in schema.arguments)
    for folder in (home, Path(sysconfig.get_path("stdlib"))):
        for path in sorted(folder.rglob("*.py")):
            inner = path.relative_to(folder).as_posix()
            if not _TESTS.search(f"/{inner}"):
                yield from path.relative_to(folder).with_suffix("").parts
                yield from _of_python(path)
    for path in sorted((home / "include").rglob("*.*h")):
        yield from re.findall(r"[A-Za-z_]\w+", _COMMENT.sub(" ", path.read_text(encoding="utf-8", errors="ignore")))


def _of_python(path: Path) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_bytes())
    except SyntaxError:
        return
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name):
                yield name
            case _:
                pass


def main() -> None:
    """Write the file."""
    users: dict[str, set[str]] = defaultdict(set)
    for identifier in set(identifiers()):
        for word in words_of(identifier):
            if len(word) > 2:
                users[word].add(identifier)
    words = sorted(word for word, using in users.items() if len(using) >= LEAST_IDENTIFIERS)
    head = f"# Written by .ci/public_words.py from PyTorch {torch.__version__} and Python {sys.version_info[0]}.{sys.version_info[1]}.\n"
    FILE.write_text(head + "\n".join(words) + "\n", encoding="utf-8")
    print(len(words), "words")


if __name__ == "__main__":
    main()
