"""Test the figures of `.ci/house.py`, on a package of two files."""

import importlib.util
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / ".ci" / "house.py"
SPEC = importlib.util.spec_from_file_location("house", SCRIPT)
assert SPEC is not None
assert SPEC.loader is not None
house = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(house)

FILES = {
    "trace_analyzer/a.py": 'X = "padding"\n\n\ndef short() -> None:\n    pass\n',
    "trace_analyzer/b/c.py": "def longer() -> str:\n    x = 'padding'\n    y = \"padding\"\n    return x + y\n\n\n# padding\n",
    "trace_analyzer/b/d.toml": 'id = "padding"\n',
}


def test_lines_are_those_of_code_by_folder() -> None:
    assert house.folder_lines(FILES) == {"trace_analyzer": 5, "trace_analyzer/b": 7}


def test_lines_of_python_are_of_one_kind_each() -> None:
    text = '"""A module."""\n\nimport ast\n\nX = (\n    1,\n)\n"""A value."""\n\n# Why.\nprint(ast, X)\n'
    kinds = house.kinds_of_lines({"a.py": text, "b.toml": "x = 1\n"})
    assert kinds == {"docs": 3, "imports": 1, "declarations": 3, "statements": 1, "blank": 3}
    assert set(kinds) == set(house.KINDS)


def test_the_table_of_the_page_is_replaced() -> None:
    page = "# Size\n\nProse.\n\n| a |\n| --- |\n| 1 |\n\nMore.\n\n| b |\n| --- |\n"
    assert (
        house.written(page, ["| c |", "| --- |"]) == "# Size\n\nProse.\n\n| c |\n| --- |\n\nMore.\n\n| b |\n| --- |\n"
    )


def test_the_longest_module_and_function_are_named() -> None:
    assert house.longest_module(FILES) == (7, "trace_analyzer/b/c.py")
    assert house.longest_function(FILES) == (4, "c.py:longer")


def test_a_name_counts_where_it_stands_in_quotes() -> None:
    assert house.places(FILES, "padding") == (3, 4)
    assert house.places(FILES, "copies") == (0, 0)


def test_the_table_has_a_column_per_revision() -> None:
    head, rule, total, *_ = house.table({"old": {**FILES, "trace_analyzer/e.py": "\n" * 990}, "new": FILES})
    assert (head, rule, total) == ("|  | old | new |", "| --- | ---: | ---: |", "| lines of code | 1,002 | 12 |")
