"""Check the hand-written pages: links, examples and their output, thresholds.

``--write`` puts the present output of the pages' commands into them instead.
"""

import doctest
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from trace_analyzer import thresholds

ROOT = Path(__file__).resolve().parents[1]
UNITS = {"": 1, "ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}

_LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(#[^)\s]*)?\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_CODE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_COMMAND = re.compile(r"^```console\n\$ analyze ([^\n]+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_SESSION = re.compile(r"^```pycon\n(.*?)^```", re.DOTALL | re.MULTILINE)
_THRESHOLD = re.compile(r"^\| `([A-Z_]+)` \| ([\d.]+) ?(ns|us|ms|s)? \|", re.MULTILINE)


def pages() -> list[Path]:
    """Return the Markdown files of the repository, including uncommitted ones."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).exists()]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = _HEADING.findall(_CODE.sub("", page.read_text("utf-8")))
    return {"#" + re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> Iterator[str]:
    """Yield relative links of a page to missing files or headings."""
    for path, anchor in _LINK.findall(_CODE.sub("", page.read_text("utf-8"))):
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            yield f"no file {path}"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            yield f"no heading {path}{anchor}"


def printed(arguments: str) -> str:
    """Return the output of ``analyze`` for these arguments, standard error last; files that it writes are deleted."""
    words = arguments.split()
    with tempfile.TemporaryDirectory() as folder:
        for top in {Path(word).parts[0] for word in words if (ROOT / word).exists()}:
            Path(folder, top).symlink_to(ROOT / top)
        run = subprocess.run(
            [sys.executable, "-m", "trace_analyzer", *words],
            cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
    if run.returncode:
        sys.exit(f"analyze {arguments}: exit code {run.returncode}\n{run.stderr}")
    return run.stdout.rstrip() + "\n" + run.stderr


def stale_commands(page: Path) -> Iterator[str]:
    """Yield the commands of a page whose output differs from the page."""
    for arguments, output in _COMMAND.findall(page.read_text("utf-8")):
        if output != printed(arguments):
            yield f"`analyze {arguments}` prints something else (.ci/check_docs.py --write)"


def stale_sessions(page: Path) -> Iterator[str]:
    """Yield Python sessions of a page, run in order in the repository's root, whose output differs from the page."""
    names: dict[str, object] = {}
    for text in _SESSION.findall(page.read_text("utf-8")):
        failures: list[str] = []
        test = doctest.DocTestParser().get_doctest(text, names, page.name, str(page), 0)
        doctest.DocTestRunner(verbose=False).run(test, out=failures.append, clear_globs=False)
        names.update(test.globs)
        yield from failures


def stale_thresholds(page: Path) -> Iterator[str]:
    """Yield the thresholds whose value in the page's table is missing or differs from the code."""
    stated = {name: float(value) * UNITS[unit] for name, value, unit in _THRESHOLD.findall(page.read_text("utf-8"))}
    real = {name: value for name, value in vars(thresholds).items() if name.isupper() and not name.startswith("NS_PER")}
    for name in sorted(stated.keys() | real.keys()):
        if stated.get(name) != real.get(name):
            yield f"{name} is {real.get(name)}, not {stated.get(name)}"


def rewrite(page: Path) -> None:
    """Replace the output of the page's commands by their present output."""
    text = page.read_text("utf-8")
    fresh = _COMMAND.sub(lambda m: f"```console\n$ analyze {m[1]}\n{printed(m[1])}```", text)
    if fresh != text:
        page.write_text(fresh, "utf-8")


def main() -> int:
    """Print the failures; return 1 if there are any."""
    os.chdir(ROOT)
    if "--write" in sys.argv:
        for page in pages():
            rewrite(page)
    wrong = [
        (page, line) for page in pages() for line in (*broken_links(page), *stale_commands(page), *stale_sessions(page))
    ]
    definitions = ROOT / "docs" / "definitions.md"
    wrong += [(definitions, line) for line in stale_thresholds(definitions)]
    for page, line in wrong:
        print(f"{page.relative_to(ROOT)}: {line}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
