"""Check the shape of the code: directions of imports, cost of imports, documentation of everything public."""

import ast
import pkgutil
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "trace_analyzer"
HEAVY = ("torch", "polars", "bokeh", "holoviews", "pandas", "numpy")
MODULES = sorted(PACKAGE.rglob("*.py"))


def output(*words: str | Path) -> str:
    """Return what a program prints that ends well."""
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_imports_point_one_way() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    if not linter.exists():
        pytest.skip("import-linter is not installed")
    output(linter)


@pytest.mark.parametrize("module", ["trace_analyzer", "trace_analyzer.cli", "trace_analyzer.errors"])
def test_an_import_loads_nothing_heavy(module: str) -> None:
    script = f"import sys, {module}; print(*sorted({{name.split('.')[0] for name in sys.modules}} & set({HEAVY!r})))"
    assert output(sys.executable, "-c", script).split() == []


@pytest.mark.slow
def test_the_public_names_exist_and_load_when_asked_for() -> None:
    listing = [path.parent for path in MODULES if path.name == "__init__.py" and "__all__" in written(path)]
    names = [".".join(folder.relative_to(ROOT).parts) for folder in listing]
    output(sys.executable, "-c", "\n".join(f"from {name} import *" for name in names))


@cache
def written(path: Path) -> str:
    """Return the text of a file, read once."""
    return path.read_text(encoding="utf-8", errors="replace")


@cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a module, made once."""
    return ast.parse(written(path))


def within(path: Path, folder: Path = PACKAGE) -> str:
    """Return the name of a module relative to a folder, without its suffix."""
    return path.relative_to(folder).with_suffix("").as_posix()


def undocumented(path: Path) -> list[str]:
    """Return public functions, methods and classes without a docstring, and the module itself."""
    module = parsed(path)
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    public = [node for node in module.body if isinstance(node, kinds) and not node.name.startswith("_")]
    methods = [item for node in public if isinstance(node, ast.ClassDef) for item in node.body
               if isinstance(item, kinds) and not item.name.startswith("_")]  # fmt: skip
    names = [node.name for node in (*public, *methods) if not ast.get_docstring(node)]
    return names if ast.get_docstring(module) or not module.body else ["(module)", *names]


def test_everything_public_has_a_docstring() -> None:
    assert {within(path): names for path in MODULES if (names := undocumented(path))} == {}


@cache
def tracked_files() -> list[Path]:
    git = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=False)
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).is_file()]


def test_no_file_names_a_place_of_one_machine() -> None:
    places = re.compile("/" + "/|/".join(("work/" + "shared", "work/" + "main", "home/" + "user")) + "/")
    suffixes = {".py", ".toml", ".md", ".js", ".css", ".j2", ".json", ".yml", ".yaml", ".sh"}
    files = [path for path in tracked_files() if path.suffix in suffixes]
    assert files or not (ROOT / ".git").exists()
    assert [path.name for path in files if places.search(written(path))] == []


GEOMETRY = (
    "layout", "names", "charts", "html/codec", "html/figures", "html/shell", "html/timeline",
)  # fmt: skip
"""Renderers that divide lengths into cells, pixels, bytes, bins and units of axes, and sum up widths and heights."""
RENDERERS = ("agent", "explanation", "lookups", "phrasing")
"""Names of modules outside of ``render/`` that write text, pages and plots."""
SCALED = ("compare/phrasing",)
"""Those of them that divide figures by the unit in which they are written; they sum up nothing."""
SUMS = ("sum", "mean", "median", "fmean", "quantile", "group_by")


def computed(module: ast.Module) -> list[int]:
    """Return the lines that divide figures or sum them up; a ``/`` that joins a path is none."""
    divided = (
        node for node in ast.walk(module) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.FloorDiv)
    )
    return summed(module) + [node.lineno for node in divided if not is_path(node)]


def summed(module: ast.Module) -> list[int]:
    """Return the lines that sum figures up."""
    called = (node for node in ast.walk(module) if isinstance(node, ast.Call))
    return [node.lineno for node in called if getattr(node.func, "id", getattr(node.func, "attr", "")) in SUMS]


def is_path(division: ast.BinOp) -> bool:
    """Tell whether the right side is a text, or the left side the folder of the assets."""
    right = division.right
    is_text = isinstance(right, ast.JoinedStr) or (isinstance(right, ast.Constant) and isinstance(right.value, str))
    return is_text or getattr(division.left, "id", "") == "_ASSETS"


def test_a_renderer_of_text_divides_and_sums_nothing() -> None:
    assert computed(ast.parse("a = b / c")) == computed(ast.parse("a = sum(b)")) == [1]
    assert computed(ast.parse('a = folder / "b" / f"{c}"')) == []
    render = {f"render/{within(path, PACKAGE / 'render')}": path for path in (PACKAGE / "render").rglob("*.py")}
    exempt = {f"render/{name}" for name in GEOMETRY}
    others = {within(path): path for path in MODULES if path.stem in RENDERERS}
    lines = {
        name: (summed if name in SCALED else computed)(parsed(path))
        for name, path in (render | others).items()
        if name not in exempt
    }
    assert {name: at for name, at in lines.items() if at} == {}
    assert all(computed(parsed((render | others)[name])) for name in (*exempt, *SCALED)), (
        "an exception that nothing needs"
    )


def test_a_document_sums_nothing_and_knows_no_layout() -> None:
    for path in (PACKAGE / "documents").rglob("*.py"):
        assert summed(parsed(path)) == [], path.name
        assert "trace_analyzer.render" not in written(path), path.name


def test_what_imports_a_way_to_draw_is_a_renderer() -> None:
    drawing = re.compile(
        r"(?m)^(import|from) (holoviews|bokeh|markupsafe|jinja2|trace_analyzer\.render\.(layout|markdown|html))\b"
    )
    drawers = {path for path in MODULES if drawing.search(written(path))}
    assert drawers, "the pattern finds them"
    assert {within(path) for path in drawers if PACKAGE / "render" not in path.parents} == set()


def test_analyses_do_not_draw_and_renderers_do_not_compute() -> None:
    for folder, words in (
        ("analyses", ("bokeh", "holoviews", "print(")),
        ("render", (".group_by(",)),
        ("", ("map_elements",)),
    ):
        for path in (PACKAGE / folder).rglob("*.py"):
            assert not any(word in written(path) for word in words), path.name


def test_a_public_class_has_its_name_alone() -> None:
    classes = Counter(node.name for path in MODULES for node in parsed(path).body if isinstance(node, ast.ClassDef))
    assert [name for name, count in classes.items() if count > 1 and not name.startswith("_")] == []


def test_docstrings_can_be_encoded() -> None:
    """CPython 3.13 refuses to compile a docstring with a lone surrogate, which an escape in a plain string can write."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [(path.name, node) for path in MODULES for node in ast.walk(parsed(path)) if isinstance(node, documented)]
    texts = [(name, ast.get_docstring(node, clean=False) or "") for name, node in nodes]
    assert [name for name, text in texts if re.search("[\ud800-\udfff]", text)] == []


def leads(name: str) -> bool:
    try:
        return pkgutil.resolve_name(name) is not None
    except (ImportError, AttributeError):
        return False


def test_references_in_the_text_lead_to_what_they_name() -> None:
    """Check that a full name in a docstring or comment is that of a module or of something in one."""
    pattern = re.compile(r"`(trace_analyzer(?:\.[a-zA-Z_]\w*)+)`")
    names = {name: within(path) for path in MODULES for name in pattern.findall(written(path))}
    assert len(names) > 20
    assert {name: place for name, place in names.items() if not leads(name)} == {}


def test_scripts_beside_the_package_import_what_it_has() -> None:
    """Check what no test runs: benchmarks, fuzzers, examples and checks."""
    names = {
        f"{node.module}.{alias.name}": str(path.relative_to(ROOT))
        for path in tracked_files()
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] not in {"trace_analyzer", "tests"}
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("trace_analyzer")
        for alias in node.names
    }
    assert len(names) > 20
    assert {name: place for name, place in names.items() if not leads(name)} == {}


LONGEST_MODULE = 500
"""Lines of the longest module, script or style sheet that a reader keeps in mind."""


def test_a_file_fits_a_reader() -> None:
    assets = [path for path in PACKAGE.rglob("assets/*") if path.suffix in {".js", ".css", ".j2"}]
    lines = {path.relative_to(PACKAGE): written(path).count("\n") for path in (*MODULES, *assets)}
    assert {path: count for path, count in lines.items() if count > LONGEST_MODULE} == {}


def test_property_tests_run_fewer_examples_in_the_quick_tier() -> None:
    pattern = re.compile(r"max_examples=(?!examples\()")
    tests = sorted((ROOT / "tests").glob("test_*.py"))
    assert [path.name for path in tests if pattern.search(written(path))] == ["test_architecture.py"]
