"""Test the two tiers: what each runs of slow tests, sampled tests and property tests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import pytest
from hypothesis import given, strategies as st

def test_plain(): ...

@pytest.mark.slow
def test_slow(): ...

@pytest.mark.sampled
@pytest.mark.parametrize("n", range(7))
def test_sampled(n): ...

@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("n", range(4))
def test_both(n): ...

@given(st.integers())
def test_law(n): ...
"""
SLOW = {"test_slow", "test_sampled[1]", "test_sampled[5]", "test_both[0]"}
QUICK = {"test_plain", "test_law", "test_sampled[0]", "test_sampled[6]"}


def collected(folder: Path, *options: str) -> set[str]:
    """Return the tests that a run with these options collects."""
    (folder / "test_it.py").write_text(TESTS, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  slow\n  sampled\n", encoding="utf-8")
    command = [
        sys.executable,
        *["-m", "pytest", "-p", "tiers", "-p", "no:cacheprovider", "--collect-only", "-q"],
        *options,
    ]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "TRACE_ANALYZER"))
    }
    environment["PYTHONPATH"] = str(Path(__file__).parent)
    listed = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return {line.partition("::")[2] for line in listed.stdout.splitlines() if "::" in line}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "tests"),
    [
        ([], QUICK),
        (["--slow"], QUICK | SLOW),
        (["--left-out"], SLOW | {"test_law"}),
        (["test_it.py::test_slow", "test_it.py::test_sampled[2]"], {"test_slow", "test_sampled[2]"}),
    ],
)
def test_each_tier_runs_what_it_says(tmp_path: Path, options: list[str], tests: set[str]) -> None:
    assert collected(tmp_path, *options) == tests
