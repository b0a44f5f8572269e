"""Write trace_analyzer/catalog/public_words.txt: the public words that names in a trace keep under --redact.

They come from the identifiers of an installed PyTorch (operators, Python modules, classes, functions and arguments, C++
headers, without its tests), of Python's standard library, and of the C++ and CUDA sources in wheels of kernel
libraries. Run it with a new PyTorch installed:

    pip download --no-deps --only-binary :all: -d WHEELS nvidia-cutlass nvidia-cuda-cccl-cu12 flashinfer-python sglang
    python .ci/public_words.py WHEELS/*.whl
"""

import ast
import re
import sys
import sysconfig
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from trace_analyzer.redact import FILE, words_of  # noqa: E402

LEAST_IDENTIFIERS = 2
"""Least number of identifiers with a word: a word in a single one is often a typing error or a person's name."""

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", re.DOTALL)
_HEX = re.compile(r"[a-f]{3,}(?:u|ull)?")
"""Hexadecimal digits of a constant."""
_TESTS = re.compile(r"/(?:testing|tests?|site-packages|idlelib|lib2to3|turtledemo)/")


def identifiers() -> Iterator[str]:
    """Yield every identifier of PyTorch and of the standard library, with repetitions."""
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


def kernel_identifiers(wheels: Sequence[Path]) -> Iterator[str]:
    """Yield every identifier of the C++ and CUDA sources in the wheels."""
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.endswith((".h", ".hpp", ".cuh", ".cu", ".cc", ".cpp", ".inl")) and not _TESTS.search(
                    f"/{name}"
                ):
                    yield from re.findall(
                        r"[A-Za-z_]\w+", _COMMENT.sub(" ", archive.read(name).decode("utf-8", "ignore"))
                    )


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
    wheels = sorted(map(Path, sys.argv[1:]))
    users: dict[str, set[str]] = defaultdict(set)
    for identifier in set(identifiers()):
        for word in words_of(identifier):
            if len(word) > 2:
                users[word].add(identifier)
    for identifier in set(kernel_identifiers(wheels)):
        for word in words_of(identifier):
            if len(word) > 2 and not _HEX.fullmatch(word):
                users[word].add(identifier)
    words = sorted(word for word, using in users.items() if len(using) >= LEAST_IDENTIFIERS)
    sources = [f"PyTorch {torch.__version__}", f"Python {sys.version_info[0]}.{sys.version_info[1]}"]
    sources += [" ".join(wheel.name.split("-")[:2]) for wheel in wheels]
    head = f"# Written by .ci/public_words.py from {', '.join(sources)}.\n"
    FILE.write_text(head + "\n".join(words) + "\n", encoding="utf-8")
    print(len(words), "words")


if __name__ == "__main__":
    main()
