"""Find the line of a call within a Python function, where the source is available and the call unambiguous.

Kineto records the line at which a function begins. If the named file has that function at that line, and the function
calls a name of the operator exactly once, the result is the line of that call.
"""

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from trace_analyzer.catalog.event_names import FRAME

MAX_BYTES = 1 << 20
"""Larger files are not hand-written source."""
# Names by which programs call these operators; other operators are called by their own name.
_CALLED: dict[str, frozenset[str]] = {
    "_local_scalar_dense": frozenset({"item", "tolist", "int", "float", "bool"}),
    "item": frozenset({"item", "tolist", "int", "float", "bool"}),
    "is_nonzero": frozenset({"bool"}),
    "_to_copy": frozenset({"to", "cpu", "cuda", "float", "half", "bfloat16", "type", "numpy"}),
    "to": frozenset({"to", "cpu", "cuda", "float", "half", "bfloat16", "type", "numpy"}),
    "copy_": frozenset({"to", "cpu", "cuda", "copy_", "contiguous", "clone", "numpy"}),
    "_unique2": frozenset({"unique"}),
}
# A network path is not a local file, and opening it would reveal the user to another machine.
_ELSEWHERE = re.compile(r"^(\\\\|//|\w+://)")


def call_line(frame: str | None, operator: str | None) -> int | None:
    """Return the only line in the function of ``frame`` (``file.py(12): f``) that calls ``operator``, or None."""
    match = FRAME.fullmatch(frame) if frame else None
    if match is None or not operator or not operator.startswith("aten::"):
        return None
    name = operator.removeprefix("aten::")
    called = _CALLED.get(name, frozenset({name, name.strip("_")}))
    function = _function(match["file"], int(match["line"]), match["function"])
    lines = [] if function is None else [call.lineno for call in _calls(function) if _name(call) in called]
    return lines[0] if len(lines) == 1 else None


def _function(file: str, line: int, name: str) -> ast.AST | None:
    """Return the function that begins at that line, including decorators; None without one."""
    if not file.endswith(".py") or _ELSEWHERE.match(file):
        return None
    tree = _tree(file)
    if tree is None or name == "<module>":
        return tree if line <= 1 else None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if line in (first, node.lineno):
                return node
    return None


def _tree(file: str) -> ast.Module | None:
    """Return the syntax tree of a file; None where it cannot be read as Python."""
    try:
        path = Path(file)
        state = path.stat()
        if not path.is_file() or state.st_size > MAX_BYTES:
            return None
        return _parsed(file, state.st_mtime_ns)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


@lru_cache(maxsize=32)
def _parsed(file: str, changed_ns: int) -> ast.Module:
    """Return the syntax tree of a file as of its last change."""
    return ast.parse(Path(file).read_bytes())


def _calls(function: ast.AST) -> Iterator[ast.Call]:
    """Return the calls in the function, except those in nested functions and classes."""
    waiting = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Call):
            yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting.extend(ast.iter_child_nodes(node))


def _name(call: ast.Call) -> str | None:
    """Return the called name: ``f`` for ``f()`` and for ``x.y.f()``."""
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return None
