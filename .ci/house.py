"""Print the size of the package at revisions of its repository.

It prints lines by folder, the longest module and function, and in how many files and lines one file column, cause,
analysis and fix is named.

    python .ci/house.py a70ead5 HEAD            # print the table
    python .ci/house.py a70ead5 HEAD --write    # put it into docs/house.md

It reads the revisions through git, without a checkout. The page's scripts count only for the longest module, and
generated C code does not count.
"""

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

PACKAGE = "trace_analyzer"
CODE = (".py", ".pyx", ".pxd", ".pyi")
DATA = (".toml", ".j2", ".js", ".json")
KINDS = ("statements", "declarations", "docs", "imports", "blank")
"""Kinds of lines of Python.

Declarations are values at module level, such as tables and sections; docs are docstrings and comments.
"""
PAGE = Path(__file__).parents[1] / "docs" / "house.md"
LISTED = ("public_words.py", "public_words.txt")
"""Lists of words that a program generates."""
EXAMPLES = {
    "file column": "shared_memory_bytes",
    "cause": "compilation",
    "analysis": "recomputation",
    "fix": "padding",
}
"""One of each kind that both the first and the last revision have; places where it is quoted are counted."""


def folder_lines(files: Mapping[str, str]) -> Counter[str]:
    """Count the lines of code by folder of the package."""
    lines: Counter[str] = Counter()
    for path, text in files.items():
        if path.endswith(CODE):
            lines[str(PurePosixPath(path).parent)] += text.count("\n")
    return lines


def kinds_of_lines(files: Mapping[str, str]) -> Counter[str]:
    """Count the lines of Python by kind: docs, imports, declarations of a module, blank, or statements."""
    kinds: Counter[str] = Counter()
    for path, text in files.items():
        if path.endswith(".py"):
            kinds.update(_kinds(text))
    return kinds


def _kinds(text: str) -> Iterator[str]:
    module = ast.parse(text)
    kind_of: dict[int, str] = {}
    for node in module.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            kind_of |= dict.fromkeys(_rows(node), "declarations")
    for node in ast.walk(module):
        if isinstance(node, ast.Import | ast.ImportFrom):
            kind_of |= dict.fromkeys(_rows(node), "imports")
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            kind_of |= dict.fromkeys(_rows(node), "docs")
    for number, line in enumerate(text.splitlines(), 1):
        is_comment = line.lstrip().startswith("#")
        yield "blank" if not line.strip() else kind_of.get(number, "docs" if is_comment else "statements")


def _rows(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def longest_module(files: Mapping[str, str]) -> tuple[int, str]:
    """Return the lines and the path of the longest module of Python or JavaScript."""
    return max((text.count("\n"), path) for path, text in files.items() if path.endswith((".py", ".js")))


def longest_function(files: Mapping[str, str]) -> tuple[int, str]:
    """Return the lines and the name of the longest Python function, without its decorators."""
    return max(
        ((node.end_lineno or 0) - node.lineno + 1, f"{PurePosixPath(path).name}:{node.name}")
        for path, text in files.items()
        if path.endswith(".py")
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def places(files: Mapping[str, str], name: str) -> tuple[int, int]:
    """Count the files and the lines with the quoted name."""
    quoted = (f'"{name}"', f"'{name}'")
    counts = [
        sum(any(each in line for each in quoted) for line in text.splitlines())
        for path, text in files.items()
        if path.endswith((*CODE, *DATA)) and PurePosixPath(path).name not in LISTED
    ]
    return sum(count > 0 for count in counts), sum(counts)


def package_files(revision: str) -> dict[str, str]:
    """Read the files of the package at a revision."""
    listed = _git("ls-tree", "-r", "--name-only", revision, PACKAGE).splitlines()
    wanted = [path for path in listed if path.endswith((*CODE, *DATA))]
    return {path: _git("show", f"{revision}:{path}") for path in wanted}


def table(revisions: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return the rows of a Markdown table with a column per revision."""
    sizes = {revision: folder_lines(files) for revision, files in revisions.items()}
    kinds = [kinds_of_lines(files) for files in revisions.values()]
    folders = sorted({folder for counted in sizes.values() for folder in counted})
    rows: list[Iterable[str]] = [
        ("", *revisions),
        ("---", *("---:" for _ in revisions)),
        ("lines of code", *(f"{counted.total():,}" for counted in sizes.values())),
        *((f"of these {kind}", *(f"{counted[kind]:,}" for counted in kinds)) for kind in KINDS),
        *((f"`{folder}`", *(f"{counted[folder]:,}" for counted in sizes.values())) for folder in folders),
        ("longest module", *("{} (`{}`)".format(*longest_module(files)) for files in revisions.values())),
        ("longest function", *("{} (`{}`)".format(*longest_function(files)) for files in revisions.values())),
    ]
    for kind, name in EXAMPLES.items():
        counts = (places(files, name) for files in revisions.values())
        rows.append((f"files (lines) that name {kind} `{name}`", *(f"{files} ({lines})" for files, lines in counts)))
    return [f"| {' | '.join(row)} |" for row in rows]


def _git(*arguments: str) -> str:
    root = Path(__file__).parents[1]
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True).stdout


def written(page: str, rows: Iterable[str]) -> str:
    """Return the page with these rows instead of its first table."""
    before, table_and_rest = page.split("\n\n|", 1)
    return "\n".join([before, "", *rows, "", table_and_rest.split("\n\n", 1)[1]])


def main(arguments: list[str]) -> None:
    """Print the table of the revisions, or write it into the page."""
    named = [name for name in arguments if name != "--write"] or ["HEAD"]
    revisions = {_git("rev-parse", "--short", name).strip(): package_files(name) for name in named}
    if "--write" in arguments:
        PAGE.write_text(written(PAGE.read_text("utf-8"), table(revisions)), encoding="utf-8")
    else:
        print("\n".join(table(revisions)))


if __name__ == "__main__":
    main(sys.argv[1:])
