"""Check that the wheel contains every file of the package, and the compiled modules.

python .ci/check_wheel.py [FOLDER]    # leave the wheel in FOLDER, which must be empty
"""

import ast
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "trace_analyzer"

_SETUP = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
_MODULES: set[str] = next(
    set(ast.literal_eval(node.value))
    for node in _SETUP.body
    if isinstance(node, ast.Assign) and ast.unparse(node.targets) == "SOURCES"
)
"""Names of the compiled modules."""


def built(folder: str) -> Path:
    """Build a wheel in this folder from a copy of the repository's files, as others may compile in the tree."""
    with tempfile.TemporaryDirectory() as copy:
        for name in listed("."):
            (Path(copy) / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, Path(copy) / name)
        command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, copy]
        subprocess.run(command, check=True)
    (wheel,) = Path(folder).glob("*.whl")
    return wheel


def shipped(wheel: Path) -> set[str]:
    """Return the names of the package's files in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if name.startswith(f"{PACKAGE}/")}


def listed(path: str) -> set[str]:
    """Return the names of the repository's files below a path, including uncommitted ones."""
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", path], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return {name for name in names.stdout.splitlines() if (ROOT / name).exists()}


def main() -> int:
    """Build a wheel and check it."""
    if len(sys.argv) > 1:
        return checked(built(sys.argv[1]))
    with tempfile.TemporaryDirectory() as folder:
        return checked(built(folder))


def checked(path: Path) -> int:
    """Print the names of files that the wheel lacks, or should not have."""
    wheel, tree = shipped(path), listed(PACKAGE)
    compiled = {name for name in wheel if name.endswith((".so", ".pyd"))}
    missing = _MODULES - {name.split(".")[0].replace("/", ".") for name in compiled}
    for name in sorted(missing):
        print(f"not compiled: {name}; is there a C compiler?")
    wheel -= compiled
    for name in sorted(tree - wheel):
        print(f"not in the wheel: {name}")
    for name in sorted(wheel - tree):
        print(f"in the wheel, not in the repository: {name}")
    return int(wheel != tree or bool(missing))


if __name__ == "__main__":
    sys.exit(main())
