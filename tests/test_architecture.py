"""The shape of the code, checked: who imports whom, what an import costs, that everything public says what it is."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "trace_analyzer"
HEAVY = ("torch", "polars", "bokeh", "holoviews", "pandas", "numpy")
MODULES = sorted(PACKAGE.rglob("*.py"))


def test_imports_point_one_way() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    if not linter.exists():
        pytest.skip("import-linter is not installed")
    found = subprocess.run([linter], cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize("module", ["trace_analyzer", "trace_analyzer.cli", "trace_analyzer.errors"])
def test_an_import_loads_nothing_heavy(module: str) -> None:
    script = f"import sys, {module}; print(*sorted({{name.split('.')[0] for name in sys.modules}} & set({HEAVY!r})))"
    found = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


def test_the_public_names_exist_and_load_when_asked_for() -> None:
    script = "import trace_analyzer as ta; print(all(getattr(ta, name) is not None for name in ta.__all__))"
    found = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "True"


def undocumented(path: Path) -> list[str]:
    """Public functions, methods and classes without a docstring, and the module itself."""
    module = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    public = [node for node in module.body if isinstance(node, kinds) and not node.name.startswith("_")]
    methods = [item for node in public if isinstance(node, ast.ClassDef) for item in node.body
               if isinstance(item, kinds) and not item.name.startswith("_")]  # fmt: skip
    names = [node.name for node in (*public, *methods) if not ast.get_docstring(node)]
    return names if ast.get_docstring(module) or not module.body else ["(module)", *names]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_everything_public_says_what_it_is(path: Path) -> None:
    assert undocumented(path) == []


def tracked_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).is_file()]


def test_no_file_names_a_place_of_one_machine() -> None:
    places = tuple("/" + "/".join(parts) + "/" for parts in (("work", "shared"), ("work", "main"), ("home", "user")))
    files = [
        path
        for path in tracked_files()
        if path.suffix in {".py", ".toml", ".md", ".js", ".css", ".j2", ".json", ".yml", ".yaml", ".sh"}
    ]
    assert files or not (ROOT / ".git").exists()
    assert [
        path.name
        for path in files
        if any(place in path.read_text(encoding="utf-8", errors="replace") for place in places)
    ] == []


def test_analyses_do_not_draw_and_renderers_do_not_compute() -> None:
    for path in (PACKAGE / "analyses").glob("*.py"):
        assert not any(word in path.read_text(encoding="utf-8") for word in ("bokeh", "holoviews", "print(")), path.name
    for path in PACKAGE.rglob("*.py"):
        assert "map_elements" not in path.read_text(encoding="utf-8"), path.name
