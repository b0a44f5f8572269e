"""Check whether the wheel holds every file of the package, and the compiled modules.

python .ci/check_wheel.py [FOLDER]    # leave the wheel in FOLDER, which must be empty
"""

import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "trace_analyzer"

_COMPILED = re.compile(
    r"trace_analyzer/(?:frames/_arrow|frames/_(?:path|row|span)_loops|ingest/_scanner)\.[^/]*\.(?:so|pyd)"
)
_MODULES = 5


def built(folder: str) -> Path:
    """Return a wheel built now, in this folder."""
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, str(ROOT)]
    subprocess.run(command, check=True)
    (wheel,) = Path(folder).glob("*.whl")
    return wheel


def shipped(wheel: Path) -> set[str]:
    """Return the names of the package's files in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if name.startswith(f"{PACKAGE}/")}


def written() -> set[str]:
    """Return the names of the package's files in the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", PACKAGE], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return {name for name in listed.stdout.splitlines() if (ROOT / name).exists()}


def main() -> int:
    """Build a wheel and check it."""
    if len(sys.argv) > 1:
        return checked(built(sys.argv[1]))
    with tempfile.TemporaryDirectory() as folder:
        return checked(built(folder))


def checked(path: Path) -> int:
    """Name the files that are missing from the wheel, or too many in it."""
    wheel, tree = shipped(path), written()
    compiled = {name for name in wheel if _COMPILED.fullmatch(name)}
    if len(compiled) != _MODULES:
        print(f"compiled are {len(compiled)} of {_MODULES} modules; is there a C compiler?")
    wheel -= compiled
    for name in sorted(tree - wheel):
        print(f"not in the wheel: {name}")
    for name in sorted(wheel - tree):
        print(f"in the wheel, not in the repository: {name}")
    return int(wheel != tree or len(compiled) != _MODULES)


if __name__ == "__main__":
    sys.exit(main())
