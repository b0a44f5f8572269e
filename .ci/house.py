"""Print the lines and Python modules of each folder of the package, and the lines of the tests, at a revision.

    python .ci/house.py             # of the working tree
    python .ci/house.py d5afa6b     # of a revision

Lines are all lines of Python, Cython, JavaScript, CSS, templates, TOML and JSON that git tracks.
"""

import subprocess
import sys
from collections import Counter
from pathlib import PurePosixPath

CODE = {".py", ".pyi", ".pyx", ".pxd", ".js", ".css", ".j2", ".toml", ".json"}


def git(*arguments: str) -> str:
    """Return what a git command prints."""
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout


def lines(revision: str, folder: str) -> dict[PurePosixPath, int]:
    """Return the lines of each tracked file of a folder; of the working tree where the revision is empty."""
    tree = [revision] if revision else []
    counted = git("grep", "--count", "", *tree, "--", folder).splitlines()
    rows = (row.removeprefix(f"{revision}:").rpartition(":") for row in counted)
    return {PurePosixPath(path): int(count) for path, _, count in rows}


def main(revision: str = "") -> None:
    """Print the table."""
    package = {path: count for path, count in lines(revision, "trace_analyzer").items() if path.suffix in CODE}
    by_folder: Counter[str] = Counter()
    modules: Counter[str] = Counter()
    for path, count in package.items():
        by_folder[str(path.parent)] += count
        modules[str(path.parent)] += path.suffix == ".py"
    print("| folder | lines | modules |\n|---|---:|---:|")
    for folder in sorted(by_folder):
        print(f"| `{folder}` | {by_folder[folder]:,} | {modules[folder]} |")
    print(f"| package | {by_folder.total():,} | {modules.total()} |")
    print(f"| tests | {sum(lines(revision, 'tests').values()):,} | |")


if __name__ == "__main__":
    main(*sys.argv[1:2])
