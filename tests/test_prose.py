"""Check the prose of the code mechanically: first lines of docstrings, and meaningless names."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROSE = ("*.md", "*.py", "*.pyx", "*.toml", "*.js", "*.css", "*.j2", "*.yml")
JARGON = re.compile(
    r"contractions?\b|\brunway|matrix units?|(attention|GELU|normalization|it is) written out|thin products?"
    r"|lost to the roof|told apart|(is|are) told\b",
    re.IGNORECASE,
)
"""Former or uncommon words, for which PyTorch, NVIDIA or plain English have a known one."""
QUOTED = frozenset({"CHANGELOG.md", "tests/test_prose.py", "trace_analyzer/catalog/article.toml"})
"""Files that quote these words: renamed terms, this list, and a paper."""
FOLDERS = ("trace_analyzer", "docs", ".ci", "benchmarks", "sample_traces", "fuzz", "tests")
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
NO_VERBS = frozenset(
    [
        "A",
        "All",
        "An",
        "Before",
        "Each",
        "Every",
        "How",
        "It",
        "Its",
        "No",
        "One",
        "Same",
        "Some",
        "That",
        "The",
        "These",
        "This",
        "Those",
        "What",
        "Where",
        "Whether",
        "Who",
        "Whose",
        "Why",
    ]
)
VERBS_IN_S = frozenset({"Compress", "Express", "Pass", "Press", "Process", "Suppress"})
FILLERS = frozenset({"found", "told", "said"})
"""Names without a meaning of their own."""
VERB = re.compile(r"[A-Z][a-z]+(-[a-z]+)?")


def first_words(module: ast.Module) -> dict[str, str]:
    """Return the first word of each docstring by what it is of, the help of commands left out."""
    words = {}
    for node in ast.walk(module):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text and not any("click." in ast.unparse(each) for each in getattr(node, "decorator_list", ())):
                words[getattr(node, "name", "(module)")] = text.split()[0].rstrip(",;:.")
    return words


def is_verb(word: str) -> bool:
    """Return whether a word may be an imperative: no article, question or pronoun, no plural or third person."""
    return bool(VERB.fullmatch(word)) and word not in NO_VERBS and (not word.endswith("s") or word in VERBS_IN_S)


def fillers(module: ast.Module) -> set[str]:
    """Return the names of variables, parameters, functions and classes that say nothing of what they hold."""
    names = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
    return names & FILLERS


def test_a_verb_is_distinguished_from_other_words() -> None:
    assert all(map(is_verb, ("Return", "Analyse", "Suppress", "Re-read")))
    assert not any(map(is_verb, ("Returns", "The", "Whether", "``x``", "return", "Tables", "FLOP")))
    module = ast.parse(
        '"""Read."""\n@click.command()\ndef f():\n    """Why?"""\ndef g():\n    """Write, then wait."""\n'
    )
    assert first_words(module) == {"(module)": "Read", "g": "Write"}
    assert fillers(ast.parse("told = 1\ndef f(found): return said.x")) == {"told", "found", "said"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_docstrings_begin_with_a_verb_and_names_say_something(path: Path) -> None:
    module = ast.parse(path.read_text(encoding="utf-8"))
    assert {name: word for name, word in first_words(module).items() if not is_verb(word)} == {}
    assert fillers(module) == set()


def test_no_jargon() -> None:
    """Check that renamed words no longer occur in any text that people read: docs, code, comments, tests."""
    places = [path for folder in FOLDERS for kind in PROSE for path in (ROOT / folder).rglob(kind)]
    lines = []
    for path in sorted({*places, *ROOT.glob("*.md")}):
        text = path.read_text(encoding="utf-8")
        if path.relative_to(ROOT).as_posix() not in QUOTED:
            lines += [
                f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]}"
                for match in JARGON.finditer(text.replace("\n", " "))  # two words may stand on two lines
            ]
    assert lines == []
