"""Check that the README's story holds: each turn makes the program faster, on a CPU."""

import re
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[1] / "sample_traces"


def test_each_turn_makes_the_program_faster(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(FOLDER))
    import three_turns

    monkeypatch.setattr(sys, "argv", ["three_turns.py", "--steps", "2", "--repeats", "1"])
    three_turns.main()
    head, *turns = capsys.readouterr().out.splitlines()
    assert head.split() == [
        "turn",
        "step",
        "against",
        "operators",
        "most",
        "CPU",
        "time",
        "before",
        "the",
        "next",
        "turn",
    ]
    assert [line[:26].strip() for line in turns] == list(three_turns.TURNS)
    times = [float(re.search(r"([\d.]+) ms", line)[1]) for line in turns]  # type: ignore[index]
    assert times[3] < times[0] / 3, "the machine is noisy; three turns together are not"
