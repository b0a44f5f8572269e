"""Check that a copy of the package that is not compiled reports this in one line with the reason."""

import ast
import os
import re
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
from kineto import kernel, launch, trace_bytes

from trace_analyzer import installation
from trace_analyzer.pipeline import analyze

ROOT = Path(__file__).parents[1]
TRACE = trace_bytes([launch(0, 5, 1), kernel("k", 20, 30, correlation=1)])


def built(folder: Path, names: tuple[str, ...] = installation.MODULES) -> Path:
    """Create a folder with the files of some compiled modules."""
    for name in names:
        file = folder / "package" / (name + EXTENSION_SUFFIXES[0])
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    return folder / "package"


def test_the_modules_are_those_that_setup_compiles() -> None:
    sources = re.findall(r'"trace_analyzer\.([\w.]+)":', (ROOT / "setup.py").read_text(encoding="utf-8"))
    assert sorted(sources) == sorted(name.replace("/", ".") for name in installation.MODULES)


def test_a_compiled_package_has_nothing_to_say(tmp_path: Path) -> None:
    assert installation.why_slow(built(tmp_path)) is None


def test_one_module_that_is_missing_is_enough(tmp_path: Path) -> None:
    package = built(tmp_path, installation.MODULES[1:])
    reason = installation.why_slow(package)
    assert reason is not None
    assert "without a C compiler" in reason


def test_a_source_folder_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "setup.py").touch()
    reason = installation.why_slow(built(tmp_path, ()))
    assert reason is not None
    assert str(tmp_path) in reason
    assert "build_ext --inplace" in reason


@pytest.mark.slow
def test_every_docstring_can_be_encoded() -> None:
    # A lone surrogate in a docstring ends the import on CPython 3.13, which encodes it.
    names = subprocess.run(["git", "ls-files", "-z", "*.py", "*.pyx"], cwd=ROOT, capture_output=True, text=True)
    files = [ROOT / name for name in names.stdout.split("\0") if name] or sorted(ROOT.glob("trace_analyzer/**/*.py"))
    for file in (file for file in files if file.exists()):
        text = file.read_text(encoding="utf-8")
        if file.suffix == ".py":
            ours = [
                node.value.value
                for node in ast.walk(ast.parse(text))
                if isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ]
            assert "".join(ours).encode(), file
        else:
            assert not re.search(r'"""[^"]*\\u[dD][89a-fA-F]', text), file


def test_the_library_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trace_analyzer.pipeline.why_slow", lambda: "reading is slow: as planted")
    with pytest.warns(RuntimeWarning, match="as planted"):
        analyze(TRACE)


@pytest.mark.slow
def test_the_command_in_a_folder_of_sources_says_so_once(tmp_path: Path) -> None:
    shutil.copytree(
        ROOT / "trace_analyzer",
        tmp_path / "trace_analyzer",
        ignore=shutil.ignore_patterns("*.so", "*.pyd", "*.c", "__pycache__"),
    )
    shutil.copy(ROOT / "setup.py", tmp_path)
    (tmp_path / "trace.json").write_bytes(TRACE)
    done = subprocess.run(
        [sys.executable, "-m", "trace_analyzer", "trace.json", "--no-report"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.count("reading is slow") == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
