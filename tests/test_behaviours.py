"""Check that each behaviour in docs/behaviours.md names existing tests."""

import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "behaviours.md"
ROWS = re.findall(r"^\| (?!behaviour|---)(.+?) \| (.+?) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


@cache
def names(file: str) -> set[str]:
    """Return the names of the tests of a file."""
    text = (TESTS / file).read_text(encoding="utf-8")
    pattern = r"^ *def (test_\w+)" if file.endswith(".py") else r"^test\('([^']+)'"
    return set(re.findall(pattern, text, re.MULTILINE))


def test_a_behaviour_stands_once() -> None:
    behaviours = [behaviour for behaviour, _ in ROWS]
    assert len(behaviours) > 50
    assert len(set(behaviours)) == len(behaviours)


def test_the_tests_of_each_behaviour_exist() -> None:
    missing = []
    for behaviour, shown in ROWS:
        tests = re.findall(r"`([^`]+)::([^`]+)`", shown)
        assert tests, behaviour
        assert re.sub(r"`[^`]+::[^`]+`|, ", "", shown) == ""
        missing += [f"{file}::{test}" for file, test in tests if test not in names(file)]
    assert missing == []
