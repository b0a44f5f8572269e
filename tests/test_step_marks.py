"""Test rules for step marks, against their own examples."""

import polars as pl
import pytest

from trace_analyzer.catalog.step_marks import MARKS, StepMarkRule, step_mark_rules, step_marks

every_rule = pytest.mark.parametrize("rule", step_mark_rules(), ids=lambda rule: f"{rule.marks}:{rule.source}")


def named(kind: str, *names: str) -> dict[str, tuple[str, str]]:
    """Name -> what it marks and whose it is, of those that a rule knows."""
    schema = {"kind": pl.String, "name": pl.String}
    table = step_marks(pl.DataFrame({"kind": [kind] * len(names), "name": names}, schema=schema))
    return {name: (marks, source) for name, marks, source in table.select("name", "marks", "source").iter_rows()}


@every_rule
def test_a_rule_knows_its_examples_in_all_its_kinds(rule: StepMarkRule) -> None:
    assert rule.marks in MARKS
    assert rule.examples
    for kind in rule.kinds:
        assert set(named(kind, *rule.examples).values()) == {(rule.marks, rule.source)}


@every_rule
def test_a_rule_leaves_its_counterexamples(rule: StepMarkRule) -> None:
    assert rule.counterexamples
    for kind in rule.kinds:
        assert (rule.marks, rule.source) not in named(kind, *rule.counterexamples).values()


def test_other_names_mark_nothing() -> None:
    assert named("annotation", "train_step", "", "execute") == {}
    assert named("runtime", "Optimizer.step#SGD.step") == {}
