"""Test `trace_handler` with torch's profiler: each cycle gets its files, and no failure ends the training."""

import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from commands import environment, ran

import trace_analyzer as ta

torch = pytest.importorskip("torch")

from torch.profiler import ProfilerAction, ProfilerActivity, profile, schedule  # noqa: E402

from trace_analyzer.capture import facts  # noqa: E402
from trace_analyzer.capture.handler import verdict_line  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Warning. Profiler clears events:UserWarning")]
CPU = [ProfilerActivity.CPU]


def work() -> None:
    (torch.ones(8, 8) @ torch.ones(8, 8)).relu()


def recorded(handler: Callable[..., Any], cycles: Callable[[int], ProfilerAction], steps: int, **options: Any) -> None:
    with profile(activities=CPU, schedule=cycles, on_trace_ready=handler, **options) as profiler:
        for _ in range(steps):
            work()
            profiler.step()


def names(folder: Path, pattern: str = "*") -> list[str]:
    return sorted(path.name for path in folder.glob(pattern))


def test_each_cycle_gets_a_trace_reports_and_a_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "new"
    handler = ta.trace_handler(folder, name="mlp", step="all", peak_tflops={"bf16": 1.5})
    recorded(handler, schedule(wait=1, warmup=1, active=2, repeat=2), 9, record_shapes=True)
    stems, kinds = ["mlp.step4", "mlp.step8"], ["json.gz", "report.html", "report.json"]
    assert names(folder) == sorted(f"{stem}.{kind}" for stem in stems for kind in kinds)
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("trace_analyzer:")]
    assert [stem in line for stem, line in zip(stems, lines, strict=True)] == [True, True]
    assert all("cpu-run" in line for line in lines)
    reported = json.loads((folder / "mlp.step8.report.json").read_text())
    assert reported["trace"]["settings"]["torch_version"] == torch.__version__
    assert reported["trace"]["settings"]["level"] == "standard"
    marks = {
        event["name"]
        for event in json.loads(gzip.decompress((folder / "mlp.step8.json.gz").read_bytes()))["traceEvents"]
    }
    assert {"ProfilerStep#6", "ProfilerStep#7"} <= marks
    assert "ProfilerStep#3" not in marks


@pytest.mark.parametrize(
    ("cycles", "timed"),
    [
        ({"wait": 6, "warmup": 1, "active": 1}, [4, 10.5]),  # of steps 0 to 5 the last three; then 8 to 13
        ({"wait": 4, "warmup": 1, "active": 1}, [None, 7.5]),  # step 3 alone is too few; then 6 to 9
        ({"wait": 0, "warmup": 1, "active": 4}, [None, None]),
    ],
)
def test_steps_that_are_not_recorded_are_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cycles: dict[str, int], timed: list[float | None]
) -> None:
    """Step n takes n seconds, so that the mean names the steps."""
    now = [0.0]
    monkeypatch.setattr(facts, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    handler = ta.trace_handler(tmp_path, report=False)
    with profile(activities=CPU, schedule=schedule(**cycles, repeat=2), on_trace_ready=handler) as profiler:
        for number in range(2 * sum(cycles.values())):
            work()
            now[0] += number
            profiler.step()
    headers = [
        json.loads(gzip.decompress(path.read_bytes()))
        for path in sorted(tmp_path.iterdir(), key=lambda path: int(path.name.split(".")[1][4:]))
    ]
    known = [header["trace_analyzer"].get("measured_step_ms") for header in headers]
    assert known == [mean and pytest.approx(mean * 1e3) for mean in timed]


def test_with_cupti_only_steps_before_the_first_recording_are_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "_recordings", [])
    monkeypatch.setattr(facts, "cupti_stays", lambda: True)
    recorded(ta.trace_handler(tmp_path, report=False), schedule(wait=6, warmup=1, active=1, repeat=2), 16)
    headers = {path.name: json.loads(gzip.decompress(path.read_bytes())) for path in tmp_path.iterdir()}
    timed = {name: "measured_step_ms" in header["trace_analyzer"] for name, header in headers.items()}
    assert timed == {"trace.step8.json.gz": True, "trace.step16.json.gz": False}


def test_a_schedule_that_counts_its_calls_is_called_once_a_step(tmp_path: Path) -> None:
    """As Lightning's does; asked for later steps, it would never record."""
    calls: list[int] = []
    plan = schedule(wait=5, warmup=1, active=1, repeat=1)

    def counts(step: int) -> ProfilerAction:
        calls.append(step)
        return plan(len(calls) - 1)

    recorded(ta.trace_handler(tmp_path, report=False), counts, 8)
    assert (calls, len(names(tmp_path))) == (list(range(9)), 1)


def test_nothing_is_overwritten_and_the_report_is_a_choice(tmp_path: Path) -> None:
    for _ in range(3):
        with profile(activities=CPU, on_trace_ready=ta.trace_handler(tmp_path, report=False)):
            work()
    assert names(tmp_path) == ["trace-2.json.gz", "trace-3.json.gz", "trace.json.gz"]


@pytest.mark.parametrize(
    ("folder", "options", "warning", "kept"),
    [
        (
            ".",
            {"gpu": "Cray-1"},
            r"trace\.json\.gz was kept, but not analysed: analyze: no known GPU",
            ["trace.json.gz"],
        ),
        (".", {"time_limit_s": 0.01}, "was kept, but not analysed.*timed out", ["trace.json.gz"]),
        ("file/traces", {}, "no trace was written", []),
    ],
    ids=["a failed analysis", "too long an analysis", "no folder"],
)
def test_a_failure_is_a_warning(
    folder: str, options: dict[str, Any], warning: str, kept: list[str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    handler = ta.trace_handler(tmp_path / folder, **options)
    with pytest.warns(RuntimeWarning, match=warning), profile(activities=CPU, on_trace_ready=handler):
        work()
    assert names(tmp_path) == ["file", *kept]


def test_an_exception_in_the_loop_stays_what_it_is_and_the_trace_is_written(tmp_path: Path) -> None:
    def loop() -> None:
        cycles = schedule(wait=0, warmup=1, active=5)
        handler = ta.trace_handler(tmp_path, report=False)
        with profile(activities=CPU, schedule=cycles, on_trace_ready=handler) as profiler:
            for number in range(6):
                work()
                if number == 3:
                    raise KeyError("batch")
                profiler.step()

    with pytest.raises(KeyError, match="batch"):
        loop()
    (trace,) = tmp_path.iterdir()
    assert ta.analyze(trace).trace.event_count > 0


def test_an_option_that_does_not_exist_is_reported_before_training() -> None:
    with pytest.raises(ta.UsageError, match="no option colour"):
        ta.trace_handler(".", colour="red")


def test_a_verdict_in_one_line() -> None:
    verdict = {
        "status": "ok",
        "regime": "overhead-bound",
        "cause": "launch",
        "confidence": "high",
        "headline": "a\x1bb",
    }
    assert verdict_line(verdict) == "overhead-bound by launch, high confidence: a\\x1bb"
    cpu = {"status": "cpu-run", "regime": None, "headline": "Of the 3 steps ..."}
    assert verdict_line(cpu) == "cpu-run: Of the 3 steps ..."
    assert verdict_line({**cpu, "status": "insufficient"}) == "no verdict (insufficient): Of the 3 steps ..."


RANKS = """
import os, sys, torch, torch.distributed as dist, trace_analyzer as ta
from torch.profiler import ProfilerAction, ProfilerActivity, profile, schedule
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
cycles = schedule(wait=1, warmup=1, active=2, repeat=1)
with profile(activities=[ProfilerActivity.CPU], schedule=cycles, on_trace_ready=ta.trace_handler(sys.argv[1], job=True)) as p:
    for _ in range(5):
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
        p.step()
# Gloo's threads outlive the group. One that drops its last work takes the GIL, and aborts the process if Python is
# ending: so Python does not end.
dist.barrier()
sys.stdout.flush()
sys.stderr.flush()
os._exit(0)
"""


def test_two_ranks_under_torchrun(tmp_path: Path) -> None:
    script, folder = tmp_path / "train.py", tmp_path / "traces"
    script.write_text(RANKS)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = ran(*launcher, script, folder, env=environment(OMP_NUM_THREADS="1"))
    assert done.returncode == 0, done.stderr
    assert names(folder, "*.json.gz") == ["trace.rank0.step4.json.gz", "trace.rank1.step4.json.gz"]
    reported = [json.loads((folder / name).read_text())["trace"] for name in names(folder, "*.report.json")]
    assert [(trace["rank"], trace["world_size"]) for trace in reported] == [(0, 2), (1, 2)]
    assert done.stderr.count("trace_analyzer: ") == 3
    assert "trace_analyzer: job: " in done.stderr
    summaries = names(folder, "*.rank.gz")
    assert summaries == ["trace.rank0.step4.rank.gz", "trace.rank1.step4.rank.gz"]
    job = ta.analyze_ranks(folder, workers=1)
    assert (job.job.seen, job.job.world_size, job.problems) == (2, 2, ())
    assert [rank.path for rank in job.ranks] == [str(folder / name) for name in summaries]
