"""Test the program's own time and memory by stage."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from kineto import launched, trace_bytes

from trace_analyzer import stages
from trace_analyzer.cli import main
from trace_analyzer.pipeline import analyze
from trace_analyzer.stages import StageTimer, StageTiming

CONTENT = trace_bytes([launched(f"k{t}", 20 * t + 1, 20 * t + 12, 4, t + 1) for t in range(10)])
STAGES = ["starting", "reading", "sorting", "linking launches", "explaining idle time", "summing up", "judging"]


def ticking(*times: float) -> StageTimer:
    """Return a timer whose wall clock shows these times in turn and whose CPU clock shows twice as much."""
    wall, cpu = iter(times), iter([2 * time for time in times])
    return StageTimer(wall=lambda: next(wall), cpu=lambda: next(cpu))


def test_each_stage_gets_the_time_until_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "peak_bytes", lambda: 7)
    timer = ticking(10, 11, 13, 17)
    timer("reading", 0.1)
    timer("reading", 0.5)  # the same stage: no time is taken
    timer("parsing", None)
    assert timer.stages() == (
        StageTiming("starting", 1, 2, 7),
        StageTiming("reading", 2, 4, 7),
        StageTiming("parsing", 4, 8, 7),
    )


def test_a_stage_that_comes_again_adds_up() -> None:
    timer = ticking(0, 1, 3, 6, 10)
    timer("reading")
    timer("parsing")
    timer("reading")
    assert [(stage.name, stage.seconds) for stage in timer.stages()] == [
        ("starting", 1),
        ("reading", 6),
        ("parsing", 3),
    ]


def test_the_table_has_a_row_per_stage_and_their_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "peak_bytes", lambda: 123_400_000)
    timer = ticking(0, 1, 3)
    timer("reading")
    assert timer.table().splitlines() == [
        "stage         seconds  CPU seconds  peak memory",
        "starting         1.00         2.00       123 MB",
        "reading          2.00         4.00       123 MB",
        "all              3.00         6.00       123 MB",
    ]


def test_a_system_that_does_not_tell_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "peak_bytes", lambda: None)
    assert StageTimer().table().endswith("–")


def test_the_library_times_its_stages() -> None:
    timer = StageTimer()
    analyze(CONTENT, progress=timer)
    timed = timer.stages()
    assert [stage.name for stage in timed] == STAGES
    assert all(stage.seconds >= 0 and stage.cpu_seconds >= 0 for stage in timed)
    peaks = [stage.peak_bytes or 0 for stage in timed]
    assert peaks == sorted(peaks)
    assert peaks[0] > 10_000_000


@pytest.mark.slow
@pytest.mark.parametrize(("args", "last"), [(["--no-report"], "printing"), ([], "writing the report")])
def test_the_command_tells_them_on_standard_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], last: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.json").write_bytes(CONTENT)
    plain = CliRunner().invoke(main, ["t.json", *args])
    timed = CliRunner().invoke(main, ["t.json", *args, "--profile-self", "--no-cache"])
    assert timed.exit_code == 0
    assert timed.stdout == plain.stdout
    added = [line for line in timed.stderr.splitlines() if line not in plain.stderr.splitlines()]
    assert [line.removeprefix("analyze: ")[:20].strip() for line in added] == [
        "stage", *STAGES, "printing", *([last] if last != "printing" else []), "all",
    ]  # fmt: skip
