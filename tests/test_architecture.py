"""Check the shape of the code: directions of imports, cost of imports, documentation of everything public."""

import ast
import pkgutil
import re
import subprocess
import sys
from functools import cache
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
    finished = subprocess.run([linter], cwd=ROOT, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr


@pytest.mark.parametrize("module", ["trace_analyzer", "trace_analyzer.cli", "trace_analyzer.errors"])
def test_an_import_loads_nothing_heavy(module: str) -> None:
    script = f"import sys, {module}; print(*sorted({{name.split('.')[0] for name in sys.modules}} & set({HEAVY!r})))"
    finished = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert finished.stdout.split() == []


@pytest.mark.slow
def test_the_public_names_exist_and_load_when_asked_for() -> None:
    script = "import trace_analyzer as ta; print(all(getattr(ta, name) is not None for name in ta.__all__))"
    finished = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == "True"


@cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a module, made once."""
    return ast.parse(path.read_text(encoding="utf-8"))


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
    names = {str(path.relative_to(PACKAGE)): undocumented(path) for path in MODULES}
    assert {path: missing for path, missing in names.items() if missing} == {}


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
    render = PACKAGE / "render"
    lines = {
        str(path.relative_to(render).with_suffix("")): computed(parsed(path))
        for path in render.rglob("*.py")
        if str(path.relative_to(render).with_suffix("")) not in GEOMETRY
    }
    others = {
        str(path.relative_to(PACKAGE).with_suffix("")): parsed(path) for path in MODULES if path.stem in RENDERERS
    }
    lines |= {
        name: summed(module) if name in SCALED else computed(module)
        for name, module in others.items()
        if not name.startswith("render/")
    }
    assert {name: at for name, at in lines.items() if at} == {}
    assert all(computed(parsed(render / f"{name}.py")) for name in GEOMETRY), "an exception that nothing needs"
    assert all(computed(others[name]) for name in SCALED), "an exception that nothing needs"


def test_a_document_sums_nothing_and_knows_no_layout() -> None:
    for path in (PACKAGE / "documents").rglob("*.py"):
        assert summed(parsed(path)) == [], path.name
        assert "trace_analyzer.render" not in path.read_text(encoding="utf-8"), path.name


def test_what_imports_a_way_to_draw_is_a_renderer() -> None:
    drawing = re.compile(
        r"^(import|from) (holoviews|bokeh|markupsafe|jinja2|trace_analyzer\.render\.(layout|markdown|html))\b",
        re.MULTILINE,
    )
    drawers = [path for path in MODULES if drawing.search(path.read_text(encoding="utf-8"))]
    outside = {str(path.relative_to(PACKAGE)) for path in drawers if PACKAGE / "render" not in path.parents}
    assert "explain/explanation.py" in outside
    assert {name for name in outside if Path(name).stem not in RENDERERS} == set()


def test_analyses_do_not_draw_and_renderers_do_not_compute() -> None:
    for path in (PACKAGE / "analyses").rglob("*.py"):
        assert not any(word in path.read_text(encoding="utf-8") for word in ("bokeh", "holoviews", "print(")), path.name
    for path in (PACKAGE / "render").rglob("*.py"):
        assert ".group_by(" not in path.read_text(encoding="utf-8"), path.name
    for path in MODULES:
        assert "map_elements" not in path.read_text(encoding="utf-8"), path.name


def test_a_public_class_has_its_name_alone() -> None:
    homes: dict[str, list[str]] = {}
    for path in MODULES:
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert {name: modules for name, modules in homes.items() if len(modules) > 1} == {}


def test_docstrings_can_be_encoded() -> None:
    """CPython 3.13 refuses to compile a docstring with a lone surrogate, which an escape in a plain string can write."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = {
        f"{path.name}:{getattr(node, 'name', '')}": text
        for path in MODULES
        for node in ast.walk(parsed(path))
        if isinstance(node, documented) and (text := ast.get_docstring(node, clean=False))
    }
    assert [place for place, text in texts.items() if re.search("[\ud800-\udfff]", text)] == []


def leads(name: str) -> bool:
    try:
        return pkgutil.resolve_name(name) is not None
    except (ImportError, AttributeError):
        return False


def test_references_in_the_text_lead_to_what_they_name() -> None:
    """Check that a full name in a docstring or comment is that of a module or of something in one."""
    names = {
        name: str(path.relative_to(PACKAGE))
        for path in MODULES
        for name in re.findall(r"`(trace_analyzer(?:\.[a-zA-Z_]\w*)+)`", path.read_text(encoding="utf-8"))
    }
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
    lines = {
        str(path.relative_to(PACKAGE)): path.read_text(encoding="utf-8").count("\n") for path in (*MODULES, *assets)
    }
    assert {path: count for path, count in lines.items() if count > LONGEST_MODULE} == {}


def test_property_tests_run_fewer_examples_in_the_quick_tier() -> None:
    pattern = re.compile(r"max_examples=(?!examples\()")
    tests = sorted((ROOT / "tests").glob("test_*.py"))
    assert [path.name for path in tests if pattern.search(path.read_text(encoding="utf-8"))] == ["test_architecture.py"]
