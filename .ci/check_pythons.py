"""Check that the wheel and the uncompiled package start on every CPython at hand, and give the same JSON of all samples.

python .ci/check_pythons.py FOLDER    # the wheel is in FOLDER

Interpreters are those of 3.11 to 3.14 that pyenv has and that are in PATH. Each gets an environment of its own, in which
no compiler is in PATH. The uncompiled package is a copy without compiled modules, as in a checkout.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = [f"3.{minor}" for minor in range(11, 15)]
SAMPLES = sorted((ROOT / "sample_traces").glob("*.json.gz"))
REPORTS = """
import sys, warnings
warnings.simplefilter("ignore", RuntimeWarning)  # that reading is slow
import trace_analyzer
from msgspec.structs import replace
for path in sys.argv[1:]:
    report = trace_analyzer.analyze(path)
    report.to_html("page.html")
    print(replace(report, tool_version="").to_json(), report.summary(verbose=True))
"""


def interpreters() -> dict[str, str]:
    """Return version -> interpreter, one for each version that is at hand."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    at_hand = {}
    for version in VERSIONS:
        known = sorted(pyenv.glob(f"{version}.*/bin/python{version}"))
        if command := str(known[-1]) if known else shutil.which(f"python{version}"):
            at_hand[version] = command
    return at_hand


def reports(python: Path, folder: Path, package: Path | None) -> str:
    """Return JSON and text of all samples, by the installed package or by the one in a folder."""
    environment = {"PATH": str(python.parent), "TRACE_ANALYZER_PLUGINS": "none", "HOME": str(folder)}
    if package is not None:
        environment["PYTHONPATH"] = str(package)
    command = [str(python), "-c", REPORTS, *map(str, SAMPLES)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{python}, {'uncompiled' if package else 'wheel'}: {done.stderr[-2000:]}")
    return done.stdout


def main(wheels: str) -> int:
    """Compare the reports of all interpreters and both kinds of package."""
    (wheel,) = Path(wheels).glob("*.whl")
    results = {}
    with tempfile.TemporaryDirectory() as scratch:
        plain = Path(scratch) / "plain"
        ignored = shutil.ignore_patterns("*.so", "*.pyd", "*.c", "__pycache__", "parsed.json")
        shutil.copytree(ROOT / "trace_analyzer", plain / "trace_analyzer", ignore=ignored)
        for version, command in interpreters().items():
            home = Path(scratch) / version
            subprocess.run([command, "-m", "venv", str(home)], check=True)
            python = home / "bin" / "python"
            subprocess.run([str(python), "-m", "pip", "install", "-qq", "--no-compile", str(wheel)], check=True)
            results |= {
                (version, kind): reports(python, home, package)
                for kind, package in (("wheel", None), ("uncompiled", plain))
            }
    first = next(iter(results.values()))
    different = [f"{version}, {kind}" for (version, kind), text in results.items() if text != first]
    print("the same:", ", ".join(f"{version} {kind}" for version, kind in results))
    if different:
        print("different from the first:", "; ".join(different))
    return bool(different)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
