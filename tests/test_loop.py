"""Check that a loop keeps what it was given, decides only what its recordings show, and goes on from what was kept."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result
from compare_sides import Program

from trace_analyzer.cli import main
from trace_analyzer.compare.loop import Turn, decide, is_held, read

SLOW = Program(steps=4, loading_ns=3_000_000, scatter=0.01)
FAST = SLOW.faster(loading_ns=100_000)


def recorded(folder: Path, program: Program, count: int = 3) -> str:
    folder.mkdir()
    for seed in range(count):
        (folder / f"{seed}.json").write_bytes(program.faster(seed=seed).trace())
    return str(folder)


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["loop", *words])


@pytest.mark.slow
def test_a_change_is_kept_and_the_next_turn_goes_on_from_it(tmp_path: Path) -> None:
    loop, before, after = str(tmp_path / "loop"), recorded(tmp_path / "a", SLOW), recorded(tmp_path / "b", FAST)
    patch = tmp_path / "fix.patch"
    patch.write_text("- num_workers=0\n+ num_workers=2\n")
    for words in (
        ("start", loop, before, "--advice", "data-loading"),
        ("apply", loop, "--patch", str(patch), "--note", "two | workers"),
    ):
        assert run(*words).exit_code == 0
    shown = run("check", loop, after, "--format", "json")
    jsonschema.validate(json.loads(shown.stdout), json.loads(run("check", "--json-schema").stdout))
    (turn,) = read(tmp_path / "loop").turns
    assert (turn.decision, turn.advice, turn.number) == ("keep", "data-loading", 1)
    assert turn.steps_ns is not None
    assert turn.steps_ns[0] - turn.steps_ns[1] == pytest.approx(3e6, rel=0.1)
    kept = tmp_path / "loop" / "turn-1"
    assert (kept / "change" / "1-fix.patch").read_text() == patch.read_text()
    assert [(tmp_path / "loop" / name).read_bytes() for name in turn.after] == [
        FAST.faster(seed=seed).trace() for seed in range(3)
    ]
    assert "data loading" in (kept / "comparison.md").read_text(encoding="utf-8").splitlines()[0]
    history = (tmp_path / "loop" / "history.md").read_text(encoding="utf-8")
    (row,) = [line for line in history.splitlines() if line.startswith("| 1 |")]
    assert "two \\| workers" in row
    assert row.endswith("| yes | keep |")
    assert run("start", loop).exit_code == 0
    assert read(tmp_path / "loop").turns[1].before == tuple(
        f"turn-2/before/{place}-{Path(name).name}" for place, name in enumerate(turn.after, 1)
    )


@pytest.mark.slow
def test_one_recording_a_side_decides_nothing(tmp_path: Path) -> None:
    loop = str(tmp_path / "loop")
    started = run("start", loop, recorded(tmp_path / "a", SLOW, 1)).stdout
    assert "1 recording before the change; a decision needs 3 of each side" in " ".join(started.split())
    run("apply", loop, "--note", "workers")
    checked = run("check", loop, recorded(tmp_path / "b", FAST, 1)).stdout
    assert "a decision needs 3 recordings" in " ".join(checked.split())
    assert "Next:" not in checked, "more recordings after the change decide nothing either"
    assert run("check", loop, recorded(tmp_path / "c", FAST)).exit_code == 0, "an open turn can be checked again"


@pytest.mark.parametrize(
    ("after", "significant", "decision"),
    [(8, None, "open"), (8, False, "open"), (8, True, "keep"), (12, True, "revert")],
)
def test_only_more_than_chance_decides(after: float, significant: bool | None, decision: str) -> None:
    assert decide((10, after), significant)[0] == decision


INTERVAL = {"interval_ratio": (0.2, 0.4), "at_most_ratio": 0.4}


@pytest.mark.parametrize(
    ("prediction", "after", "held"),
    [
        (INTERVAL, 7.0, True), (INTERVAL, 9.0, False), ({"at_most_ratio": 0.2}, 9.5, True),
        ({"at_most_ratio": 0.2}, 7.0, False), ({}, 7.0, None)
    ],
)  # fmt: skip
def test_a_prediction_is_checked(prediction: dict[str, Any], after: float, held: bool | None) -> None:
    assert is_held(Turn(1, steps_ns=(10.0, after), decision="keep", **prediction)) is held
    assert is_held(Turn(1, steps_ns=(10.0, after), **prediction)) is None, "open"


@pytest.mark.parametrize(
    ("state", "words", "message"),
    [
        (None, ("check", "LOOP", "TRACE"), "begins a loop"),
        (None, ("start", "LOOP"), "name recordings"),
        (None, ("start", "LOOP", "-"), "not standard input"),
        ('{"turns": []}', ("apply", "LOOP", "--note", "x"), "no turn is open"),
        ('{"turns": [{"number": 1}]}', ("apply", "LOOP"), "--note TEXT or --patch FILE"),
        ('{"turns": [{"number": 1}]}', ("apply", "LOOP", "--patch", "absent"), "absent: no such file"),
        ('{"turns": [{"number": 1}]}', ("check", "LOOP", "TRACE"), "has no change yet"),
        ('{"turns": [{"number": 1, "steps_ns": [1]}]}', ("start", "LOOP"), "a damaged loop"),
        ('{"turns": [{"number": 1, "steps_ns": [0, 1]}]}', ("start", "LOOP"), "a damaged loop"),
        ('{"turns": 3}', ("start", "LOOP"), "a damaged loop"),
        ("[" * 100_000, ("start", "LOOP"), "a damaged loop"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line(state: str | None, words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    if state is not None:
        (tmp_path / "loop.json").write_text(state)
    result = run(*(str(tmp_path) if word == "LOOP" else word for word in words))
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (2, "", 1)
    assert message in result.stderr
