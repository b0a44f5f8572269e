"""Test rules for the direction of copies, against their own examples, and their effects."""

import polars as pl
import pytest
from kineto import analysed, call, kernel, rows

from trace_analyzer.catalog.copy_directions import WITHIN_DEVICE, DirectionRule, copy_direction, direction_rules

every_rule = pytest.mark.parametrize("rule", direction_rules(), ids=lambda rule: rule.name)


def directions(*names: str) -> set[str | None]:
    return set(pl.DataFrame({"name": names}).select(copy_direction()).to_series())


@every_rule
def test_a_rule_names_its_examples(rule: DirectionRule) -> None:
    assert rule.examples
    assert directions(*rule.examples) == {rule.name}


@every_rule
def test_a_rule_leaves_its_counterexamples(rule: DirectionRule) -> None:
    assert rule.counterexamples
    assert rule.name not in directions(*rule.counterexamples)


def test_other_names_tell_no_direction() -> None:
    assert directions("Memcpy S2D (Shared -> Device)", "Memcpy Unknown", "") == {None}
    assert WITHIN_DEVICE in {rule.name for rule in direction_rules()}


def test_copies_of_an_xpu() -> None:
    """Check that an XPU's copy within the device is memory work, and one from or to the host is a copy."""
    names = {
        "Memcpy M2D (Memory -> Device)": 0,
        "Memcpy D2D (Device -> Device)": 100,
        "Memcpy D2M (Device -> Memory)": 200,
    }
    pairs = [
        [call("urEnqueueUSMMemcpy", at, 5, correlation=at + 1, category="xpu_runtime"),
         kernel(name, at + 10, 20, category="gpu_memcpy", correlation=at + 1, bytes=100_000)] for name, at in names.items()
    ]  # fmt: skip
    report = analysed(pairs)
    assert report.tables["activities"].get_column("bound").to_list() == ["copy", "memory", "copy"]
    assert sorted(rows(report.tables["copies"], "direction", "bytes")) == [
        ("device-to-host", 100_000), ("host-to-device", 100_000), ("within-device", 100_000),
    ]  # fmt: skip
