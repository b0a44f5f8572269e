"""Test optimizers that step in turns: an iteration of two networks, or of two optimizers, is one step."""

import re
import sys
from typing import Any

import pytest
from conftest import SAMPLES
from kineto import analysed, annotation, launched, op

from trace_analyzer.report import Report

PERIOD = 25


def trained(*turn: tuple[str, int, str], turns: int = 6, cut: int = 0, also: Any = None) -> Report:
    """Analyse updates in turns: optimizer, count of products it follows, their kernel; the last ``cut`` are missing."""
    events: list[Any] = []
    start, correlation = 0, 0
    updates = [update for _ in range(turns) for update in turn]
    for number, (optimizer, products, kernel) in enumerate(updates[: len(updates) - cut]):
        extra = also(number) if also else []
        for name in [*[kernel] * products, *extra, "adam"]:
            correlation += 1
            if name == "adam":
                events.append(annotation(f"Optimizer.step#{optimizer}.step", start, PERIOD - 5))
            else:
                events.append(op("aten::mm", start, PERIOD - 5))
            events.append(launched(name, start + 2, start + 8, 10, correlation))
            start += PERIOD
    return analysed(events)


@pytest.mark.parametrize(
    "turn",
    [
        [("Adam", 5, "discriminator"), ("Adam", 20, "generator")],
        [("Adam", 10, "discriminator"), ("Adam", 13, "generator")],
        [("Adam", 10, "discriminator"), ("SGD", 10, "discriminator")],
        [*[("RMSprop", 6, "critic")] * 5, ("RMSprop", 9, "generator")],
        [("Muon", 20, "model"), ("AdamW", 0, "")],
    ],
    ids=["twice the work", "alike in length", "by their names", "a critic of five", "two optimizers of one model"],
)
def test_turns_of_several_optimizers_are_steps(turn: list[tuple[str, int, str]]) -> None:
    report = trained(*turn)
    assert [step.state for step in report.steps] == ["first", *["ok"] * 5]
    launches = sum(products + 1 for _, products, _ in turn)
    assert set(report.tables["steps"].get_column("activity_count")) == {launches}


def test_a_turn_that_the_recording_cut_is_no_step() -> None:
    report = trained(("Adam", 5, "discriminator"), ("Adam", 20, "generator"), cut=1)
    assert len(report.steps) == 5
    assert set(report.tables["steps"].get_column("activity_count")) == {27}


def test_a_little_more_in_every_other_step_makes_no_turns() -> None:
    """Check that an average of weights, or a log line, in every second step of one optimizer makes no turns."""
    report = trained(("Adam", 10, "model"), turns=9, also=lambda number: ["average"] * (3 * (number % 2)))
    assert len(report.steps) == 9


def test_one_optimizer_steps_once_an_iteration() -> None:
    assert len(trained(("Adam", 10, "model"), turns=7).steps) == 7


pytestmark = pytest.mark.slow


def test_the_three_turns_make_the_program_faster(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(SAMPLES))
    import three_turns

    monkeypatch.setattr(sys, "argv", ["three_turns.py", "--steps", "2", "--repeats", "1"])
    three_turns.main()
    head, *turns = capsys.readouterr().out.splitlines()
    assert head.split()[:4] == ["turn", "step", "against", "operators"]
    assert [line[:26].strip() for line in turns] == list(three_turns.TURNS)
    times = [float(re.search(r"([\d.]+) ms", line)[1]) for line in turns]  # type: ignore[index]
    assert times[3] < times[0] / 3, "the machine is noisy; three turns together are not"
