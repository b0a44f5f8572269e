"""Arithmetic from kernel names: every example of every rule."""

import polars as pl
import pytest

from trace_analyzer.catalog.arithmetic import ArithmeticRule, arithmetic, operand_type, rules

KINDS = ("unit", "precision", "operand", "helper", "fast")


def arithmetic_of_name(name: str) -> dict[str, object]:
    return arithmetic(pl.Series("name", [name])).row(0, named=True)


@pytest.mark.parametrize("rule", rules("unit"), ids=lambda rule: rule.id)
def test_units(rule: ArithmeticRule) -> None:
    for name in rule.examples:
        assert (arithmetic_of_name(name)["tensor_cores"], arithmetic_of_name(name)["fp32"]) == (
            rule.tensor_cores,
            rule.fp32,
        ), name


@pytest.mark.parametrize("rule", rules("precision"), ids=lambda rule: rule.id)
def test_precisions(rule: ArithmeticRule) -> None:
    for name in rule.examples:
        assert arithmetic_of_name(name)["precision"] == rule.dtype, name


@pytest.mark.parametrize("kind", ["helper", "fast"])
def test_helpers_and_fast_algorithms(kind: str) -> None:
    for rule in rules(kind):
        assert all(arithmetic_of_name(name)[kind] for name in rule.examples), rule.id
        assert not any(arithmetic_of_name(name)[kind] for name in rule.counterexamples), rule.id


def test_ids_are_unique_and_every_rule_has_an_example() -> None:
    everything = [rule for kind in KINDS for rule in rules(kind)]
    assert len({rule.id for rule in everything}) == len(everything)
    assert all(rule.examples for rule in everything)


def test_what_no_rule_knows() -> None:
    expected = {
        "name": "kernel_v7",
        "tensor_cores": None,
        "fp32": None,
        "precision": None,
        "helper": False,
        "fast": False,
    }
    assert arithmetic_of_name("kernel_v7") == expected
    assert arithmetic(pl.Series("name", [], dtype=pl.String)).is_empty()


@pytest.mark.parametrize("rule", rules("operand"), ids=lambda rule: rule.id)
def test_operands(rule: ArithmeticRule) -> None:
    for name in rule.examples:
        assert pl.DataFrame({"name": [name]}).select(operand_type("name")).item() == rule.dtype, name
    assert pl.DataFrame({"name": ["kernel_v7"]}).select(operand_type("name")).item() is None
