"""Test `trace_handler` with torch's profiler: each cycle gets its files, and no failure ends the training."""

import gzip
import json
import sys
from pathlib import Path
from types import SimpleNamespace

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


def test_each_cycle_gets_a_trace_reports_and_a_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    cycles = schedule(wait=1, warmup=1, active=2, repeat=2)
    handler = ta.trace_handler(tmp_path / "new", name="mlp", step="all", peak_tflops={"bf16": 1.5})
    with profile(activities=CPU, schedule=cycles, on_trace_ready=handler, record_shapes=True) as profiler:
        for _ in range(9):
            work()
            profiler.step()
    stems = ["mlp.step4", "mlp.step8"]
    kinds = ["json.gz", "report.html", "report.json"]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted(
        f"{stem}.{kind}" for stem in stems for kind in kinds
    )
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("trace_analyzer:")]
    assert [stem in line for stem, line in zip(stems, lines, strict=True)] == [True, True]
    assert all("cpu-run" in line for line in lines)
    reported = json.loads((tmp_path / "new" / "mlp.step8.report.json").read_text())
    assert reported["trace"]["settings"]["torch_version"] == torch.__version__
    assert reported["trace"]["settings"]["level"] == "standard"
    names = {event["name"] for event in _events(tmp_path / "new" / "mlp.step8.json.gz")}
    assert {"ProfilerStep#6", "ProfilerStep#7"} <= names
    assert "ProfilerStep#3" not in names


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
    headers = [json.loads(gzip.decompress(path.read_bytes())) for path in sorted(tmp_path.iterdir(), key=_number)]
    known = [header["trace_analyzer"].get("measured_step_ms") for header in headers]
    assert known == [mean and pytest.approx(mean * 1e3) for mean in timed]


def test_a_schedule_that_counts_its_calls_is_called_once_a_step(tmp_path: Path) -> None:
    """As Lightning's does; asked for later steps, it would never record."""
    calls: list[int] = []
    plan = schedule(wait=5, warmup=1, active=1, repeat=1)

    def counts(step: int) -> ProfilerAction:
        calls.append(step)
        return plan(len(calls) - 1)

    with profile(activities=CPU, schedule=counts, on_trace_ready=ta.trace_handler(tmp_path, report=False)) as profiler:
        for _ in range(8):
            work()
            profiler.step()
    assert (calls, len(list(tmp_path.iterdir()))) == (list(range(9)), 1)


def _number(path: Path) -> int:
    return int(path.name.split("step")[1].split(".")[0])


def _events(path: Path) -> list[dict[str, str]]:
    events: list[dict[str, str]] = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return events


def test_nothing_is_overwritten_and_the_report_is_a_choice(tmp_path: Path) -> None:
    for _ in range(3):
        with profile(activities=CPU, on_trace_ready=ta.trace_handler(tmp_path, report=False)):
            work()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["trace-2.json.gz", "trace-3.json.gz", "trace.json.gz"]


def test_a_failed_analysis_warns_and_keeps_the_trace(tmp_path: Path) -> None:
    with (
        pytest.warns(RuntimeWarning, match=r"trace\.json\.gz was kept, but not analysed: analyze: no known GPU"),
        profile(activities=CPU, on_trace_ready=ta.trace_handler(tmp_path, gpu="Cray-1")),
    ):
        work()
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json.gz"]


def test_an_analysis_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with (
        pytest.warns(RuntimeWarning, match="was kept, but not analysed.*timed out"),
        profile(activities=CPU, on_trace_ready=ta.trace_handler(tmp_path, time_limit_s=0.01)),
    ):
        work()
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json.gz"]


def test_a_folder_that_cannot_be_written_warns(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.warns(RuntimeWarning, match="no trace was written"),
        profile(activities=CPU, on_trace_ready=ta.trace_handler(tmp_path / "file" / "traces")),
    ):
        work()


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
    script = tmp_path / "train.py"
    script.write_text(RANKS)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = ran(*launcher, script, tmp_path / "traces", env=environment(OMP_NUM_THREADS="1"))
    assert done.returncode == 0, done.stderr
    traces = sorted((tmp_path / "traces").glob("*.json.gz"))
    assert [path.name for path in traces] == ["trace.rank0.step4.json.gz", "trace.rank1.step4.json.gz"]
    reported = [json.loads(path.read_text()) for path in sorted((tmp_path / "traces").glob("*.report.json"))]
    assert [(report["trace"]["rank"], report["trace"]["world_size"]) for report in reported] == [(0, 2), (1, 2)]
    assert done.stderr.count("trace_analyzer: ") == 3
    assert "trace_analyzer: job: " in done.stderr
    summaries = sorted((tmp_path / "traces").glob("*.rank.gz"))
    assert [path.name for path in summaries] == ["trace.rank0.step4.rank.gz", "trace.rank1.step4.rank.gz"]
    job = ta.analyze_ranks(tmp_path / "traces", workers=1)
    assert (job.job.seen, job.job.world_size, job.problems) == (2, 2, ())
    assert [rank.path for rank in job.ranks] == list(map(str, summaries))
