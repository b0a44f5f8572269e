"""Test what a name must hold for a kernel rule to match it: no rule that matches is ever left out."""

import json
import shutil
from pathlib import Path

import polars as pl
import pytest

from trace_analyzer.catalog import patterns
from trace_analyzer.catalog.documents import PARSED, write_parsed
from trace_analyzer.catalog.kernels import CONDITIONS, function_words, kernel_buckets, rules
from trace_analyzer.catalog.literals import condition, may_hold
from trace_analyzer.catalog.patterns import matches, may_match

KERNELS = pl.DataFrame(
    [(kernel.name, kernel.operator) for rule in rules() for kernel in (*rule.examples, *rule.counterexamples)],
    schema={"name": pl.String, "operator": pl.String},
    orient="row",
).with_columns(function_words("name").alias("words"))
"""All kernels that the rules name, as each rule sees them."""
PATTERNS = sorted({getattr(rule, column) for rule in rules() for column in CONDITIONS} - {None})
CONDITIONS_OF = {pattern: condition(pattern) for pattern in PATTERNS}


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("gemm", "gemm"),
        ("(?i)Gemm|MATMUL", {"any": ["gemm", "matmul"]}),
        (r"^aten::(?:add|mul)_?$", {"all": ["aten::", {"any": ["add", "mul"]}]}),
        ("(?x) ab c | (?i: d\\w+ e )", {"any": ["abc", {"all": ["d", "e"]}]}),
        ("a?b*c{0,2}", None),
        ("(?:ab)+[^c](?-i:D)", {"all": ["ab", "d"]}),
        ("ab|[cd]", None),
        (r"\p{Greek}", None),
    ],
)
def test_conditions_of_patterns(pattern: str, expected: object) -> None:
    assert condition(pattern) == expected


@pytest.mark.parametrize("column", CONDITIONS)
def test_each_name_that_a_rule_matches_meets_its_condition(column: str) -> None:
    names = KERNELS.select(column).unique().drop_nulls().filter(pl.col(column).str.contains(r"^[\x00-\x7f]*$"))
    matched = names.select(column, *(matches(pl.col(column), p).alias(str(i)) for i, p in enumerate(PATTERNS)))
    for number, pattern in enumerate(PATTERNS):
        known = condition(pattern)
        for name in matched.filter(pl.col(str(number))).get_column(column):
            assert may_hold(known, name.lower()), (pattern, name)


def test_setup_leaves_the_conditions_of_all_rules(tmp_path: Path) -> None:
    shutil.copy(Path(patterns.__file__).parent / "kernels.toml", tmp_path)
    write_parsed(tmp_path)
    held = json.loads((tmp_path / PARSED).read_text("utf-8"))["patterns"][1]
    assert {pattern: held.get(pattern) for pattern in PATTERNS} == CONDITIONS_OF


@pytest.fixture
def _setup_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the conditions of the rules as they are now, whatever setup.py left here."""
    monkeypatch.setattr(patterns, "conditions_of_patterns", lambda: CONDITIONS_OF)


@pytest.mark.usefixtures("_setup_ran")
def test_one_kernel_meets_few_rules() -> None:
    possible = may_match(PATTERNS, pl.Series(["void softmax_warp_forward<float>(float*)"]))
    assert 0 < len(possible) < len(PATTERNS) / 4


def test_other_letters_than_ascii_may_match_what_ignores_case() -> None:
    kelvin = "\u212aernel"
    assert pl.select(matches(pl.lit(kelvin), "(?i)kernel")).item()
    assert may_match(["(?i)kernel", "gemm"], pl.Series([kelvin])) == {"(?i)kernel", "gemm"}


@pytest.mark.usefixtures("_setup_ran")
def test_buckets_are_those_of_all_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    single = [KERNELS[row : row + 1] for row in range(0, KERNELS.height, 25)]
    few = [kernel_buckets(row, using=rules()) for row in single]
    monkeypatch.setattr(patterns, "MOST_LETTERS", 0)
    assert pl.concat(few).equals(pl.concat([kernel_buckets(row, using=rules()) for row in single]))
