"""Test `profile` with torch: which steps are recorded and timed, and how recording ends."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from commands import run_python

import trace_analyzer as ta
from trace_analyzer.capture import facts
from trace_analyzer.capture.facts import StepTimer
from trace_analyzer.capture.session import LEVELS, WARMUP

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.slow

SLEEP_S = 0.02


def work() -> None:
    (torch.ones(8, 8) @ torch.ones(8, 8)).relu()


def marks(report: ta.Report) -> list[str]:
    """Return the names of the steps that the trace holds."""
    names = report.tables["host_events"].get_column("name").to_list()
    return sorted(name for name in names if name.startswith("ProfilerStep"))


def test_steps_are_timed_without_the_profiler_and_then_recorded() -> None:
    with ta.profile(steps=3, skip=2) as profiler:
        for number in range(20):
            work()
            time.sleep(SLEEP_S if number >= 2 else 0)
            profiler.step()
    assert profiler.needed == 2 + 3 + WARMUP + 3
    assert profiler.measured_step_ms == pytest.approx(SLEEP_S * 1e3, rel=0.5)
    report = profiler.report
    assert marks(report) == ["ProfilerStep#7", "ProfilerStep#8", "ProfilerStep#9"]
    assert report.trace.settings.measured_step_ms == profiler.measured_step_ms
    assert report.trace.path == "trace_analyzer.profile"
    assert profiler.report is report


@pytest.mark.parametrize(
    ("steps_s", "ends_s", "mean_s"),
    [
        ([170e-6] * 5, 150e-6, 170e-6),
        ([170e-6] * 3, 150e-6, 170e-6),
        ([170e-6] * 2, 150e-6, 320e-6),  # two steps do not tell what the ends take
        ([0.030, 0.010, 0.010, 0.010], 0.0, 0.015),  # a long first step is no end
        ([0.014, 0.010, 0.010, 0.010], 0.0, 0.044 / 4 - 2 * StepTimer.MOST_ENDS_S / 4),
        ([0.010, 0.014, 0.010, 0.010], 0.0, 0.011),
    ],
)
def test_filling_and_draining_the_queue_are_no_part_of_a_step(
    monkeypatch: pytest.MonkeyPatch, steps_s: list[float], ends_s: float, mean_s: float
) -> None:
    """The device is idle when the time is taken: from then on, ``ends_s`` passes that no step takes."""
    now = [0.0]
    monkeypatch.setattr(facts, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    profiler = ta.profile(steps=len(steps_s), skip=1)
    with profiler:
        for number, step_s in enumerate([1.0, *steps_s]):
            now[0] += step_s + (ends_s if number in (1, 2) else 0)
            profiler.step()
    assert profiler.measured_step_ms == pytest.approx(mean_s * 1e3)


@pytest.mark.parametrize("stays", [True, False])
@pytest.mark.parametrize("kind", [ta.profile, torch.profiler.profile])
def test_a_step_measured_after_a_recording_is_not_kept_where_that_slows_it(
    monkeypatch: pytest.MonkeyPatch, stays: bool, kind: Any
) -> None:
    monkeypatch.setattr(facts, "_recordings", [])
    monkeypatch.setattr(facts, "cupti_stays", lambda: stays)

    def stored() -> float | None:
        with ta.profile(steps=1, skip=0) as profiler:
            for _ in range(profiler.needed):
                work()
                profiler.step()
        assert profiler.measured_step_ms is not None
        settings = profiler.report.trace.settings
        assert settings is not None
        return settings.measured_step_ms

    assert stored() is not None
    with kind():
        work()
    assert (stored() is None) == stays


@pytest.mark.parametrize(
    ("cuda", "hip", "variable", "stays"),
    [(True, None, None, True), (True, None, "1", False), (True, "6.4", None, False), (False, None, None, False)],
)
def test_cupti_stays_after_a_recording_unless_it_is_torn_down(
    monkeypatch: pytest.MonkeyPatch, cuda: bool, hip: str | None, variable: str | None, stays: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.delenv("TEARDOWN_CUPTI", raising=False)
    if variable:
        monkeypatch.setenv("TEARDOWN_CUPTI", variable)
    assert facts.cupti_stays() == stays


@pytest.mark.filterwarnings("ignore")  # torch warns about memory from before the recording
def test_levels_record_what_they_say() -> None:
    actual = {}
    for level in LEVELS:
        with ta.profile(level=level) as profiler:  # type: ignore[arg-type]
            torch.nn.Linear(8, 8)(torch.ones(8, 8))
        actual[level] = profiler.report.trace.recorded
    levels = [(r.shapes, r.stack, r.memory) for r in actual.values()]
    assert levels == [(False,) * 3, (True, False, False), (True,) * 3]


def test_a_block_without_steps_is_recorded_whole_and_its_trace_goes() -> None:
    with ta.profile() as profiler:
        work()
    assert "aten::relu" in profiler.report.tables["operators"].get_column("name")
    trace = profiler.trace
    assert trace.exists()
    del profiler
    assert not trace.exists()


def test_a_trace_can_be_kept(tmp_path: Path) -> None:
    kept = tmp_path / "t.json.gz"
    with ta.profile(trace=kept) as profiler:
        work()
    assert profiler.report.trace.path == str(kept)
    del profiler
    assert ta.analyze(kept).trace.event_count > 0


def test_a_decorated_function_takes_a_step_with_each_call() -> None:
    @ta.profile(steps=2, skip=1)
    def train_step(value: int) -> int:
        """Multiply."""
        work()
        return 2 * value

    assert [train_step(n) for n in range(9)] == [0, 2, 4, 6, 8, 10, 12, 14, 16]
    assert train_step.__doc__ == "Multiply."
    assert marks(train_step.profiler.report) == ["ProfilerStep#5", "ProfilerStep#6"]  # type: ignore[attr-defined]


def test_a_decorated_function_without_steps_is_recorded_once() -> None:
    @ta.profile()
    def once() -> None:
        work()

    once()
    report = once.profiler.report  # type: ignore[attr-defined]
    once()
    assert once.profiler.report is report  # type: ignore[attr-defined]


def test_an_exception_passes_through_and_what_was_recorded_is_there() -> None:
    profiler = ta.profile(steps=5, skip=0)

    def loop() -> None:
        with profiler:
            for number in range(20):
                work()
                if number == 9:
                    raise KeyError("batch")
                profiler.step()

    with pytest.raises(KeyError, match="batch"):
        loop()
    assert marks(profiler.report) == ["ProfilerStep#7", "ProfilerStep#8", "ProfilerStep#9"]


def test_a_trace_that_cannot_be_written_does_not_end_the_loop(tmp_path: Path) -> None:
    with ta.profile(trace=tmp_path / "nowhere" / "t.json.gz") as profiler:
        work()
    with pytest.raises(ta.UsageError, match="could not be written"):
        _ = profiler.report


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": "heavy"}, "no level is named 'heavy'"),
        ({"steps": 0}, "steps=0: must be a whole number, at least 1"),
        ({"steps": 2.5}, "steps=2.5: must be"),
        ({"steps": "3"}, "steps='3': must be"),
        ({"steps": True}, "steps=True: must be"),
        ({"skip": -1}, "skip=-1: must be a whole number, at least 0"),
    ],
)
def test_a_wrong_option_is_reported(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ta.UsageError, match=message):
        ta.profile(**options)


def test_wrong_use_is_reported() -> None:
    with pytest.raises(ta.UsageError, match="did not run"):
        _ = ta.profile().report
    with ta.profile() as profiler:
        work()
    with pytest.raises(ta.UsageError, match="records once"), profiler:
        pass
    with ta.profile(steps=5) as profiler:
        for _ in range(4):
            work()
            profiler.step()
    with pytest.raises(ta.UsageError, match="after 4 of 15 steps"):
        _ = profiler.report


def test_what_returns_before_its_work_is_done_is_not_decorated() -> None:
    def generator() -> Iterator[int]:
        yield 1

    async def coroutine() -> None:
        pass

    for function in (generator, coroutine, Path, 3):
        with pytest.raises(ta.UsageError, match="decorates plain functions"):
            ta.profile()(function)  # type: ignore[arg-type]


def test_a_call_inside_of_a_call_is_no_step_of_its_own() -> None:
    @ta.profile(steps=1, skip=0)
    def train_step(depth: int) -> None:
        work()
        if depth:
            train_step(depth - 1)

    for _ in range(5):
        train_step(2)
    report = train_step.profiler.report  # type: ignore[attr-defined]
    assert marks(report) == ["ProfilerStep#3"]
    assert report.tables["operators"].filter(pl.col("name") == "aten::relu").get_column("count").to_list() == [3]


def test_beside_another_profiler_nothing_begins() -> None:
    with torch.profiler.profile() as other, pytest.raises(ta.UsageError, match="another profiler is at work"):
        ta.profile().start()
    work()
    assert "aten::ones" not in {event.name for event in other.events()}
    with ta.profile() as outer:
        work()
        with pytest.raises(ta.UsageError, match="another profiler is at work"), ta.profile():
            work()
    assert outer.report.trace.event_count > 0


# Two simultaneous sessions of torch's profiler end in a segmentation fault, so this needs a separate process.
RIVALS = """
import threading, torch, trace_analyzer as ta
def work(): (torch.ones(8, 8) @ torch.ones(8, 8)).relu()
def rival():
    with torch.profiler.profile() as other: torch.ones(4).tanh()
    other.export_chrome_trace("other.json")
    print("aten::tanh" in {event.name for event in other.events()}, end=" ")
def with_rival_at(step, run=lambda: rival()):
    with ta.profile(steps=2, skip=0) as profiler:
        for number in range(10):
            work()
            if number == step: run()
            profiler.step()
    try: print(profiler.report.verdict.status)
    except ta.UsageError as error: print(str(error)[:60])
def in_a_thread():
    thread = threading.Thread(target=rival); thread.start(); thread.join()
for step in (1, 3, 5, 8): with_rival_at(step)
with ta.profile() as profiler: work(); rival(); torch.ones(4).cos()
print(sorted(set(profiler.report.tables["operators"]["name"]) & {"aten::relu", "aten::tanh", "aten::cos"}))
with_rival_at(4, in_a_thread)
"""


def test_another_profiler_ends_the_recording_and_both_stay_whole(tmp_path: Path) -> None:
    done = run_python(RIVALS, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "True nothing was recorded: another profiler began after 1 of 6 st",
        "True nothing was recorded: another profiler began after 3 of 6 st",
        "True cpu-run",
        "True cpu-run",
        "True ['aten::relu']",
        "True nothing was recorded: another profiler began after 4 of 6 st",
    ]


def test_autocast_is_reported_where_it_is_seen_and_not_guessed() -> None:
    plain = type(torch.autocast("cpu")).__enter__

    def reported(inside: bool) -> object:
        with ta.profile(steps=1, skip=0) as profiler:
            for _ in range(4):
                with torch.autocast("cpu", dtype=torch.float16, enabled=inside):
                    work()
                profiler.step()
        return profiler.report.trace.settings.autocast_dtype

    assert reported(inside=True) == "float16"
    assert reported(inside=False) is None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert reported(inside=False) == "bfloat16"  # on around the loop
    assert type(torch.autocast("cpu")).__enter__ is plain


def test_a_forked_child_leaves_the_recording_to_its_parent(tmp_path: Path) -> None:
    with ta.profile(steps=2, skip=0) as profiler:
        for number in range(8):
            work()
            if number == 5 and (child := os.fork()) == 0:
                profiler.step()
                profiler.stop()
                os._exit(0 if profiler.trace is None else 1)
            profiler.step()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert marks(profiler.report) == ["ProfilerStep#4", "ProfilerStep#5"]


def test_forking_loaders_work_while_recording() -> None:
    data = torch.utils.data.TensorDataset(torch.ones(24, 8))
    with ta.profile(steps=2, skip=1) as profiler:
        for _ in range(2):
            for (batch,) in torch.utils.data.DataLoader(data, batch_size=4, num_workers=2):
                batch.sum()
                profiler.step()
    names = profiler.report.tables["host_events"].get_column("name")
    assert names.str.contains("DataLoader").any()


def test_torch_is_loaded_by_its_use_only() -> None:
    script = (
        "import sys, trace_analyzer as ta; ta.profile(steps=2); ta.trace_handler('.'); print('torch' in sys.modules)"
    )
    assert run_python(script).stdout.strip() == "False"
