"""Test the engine: any executor, dying workers, interrupts, memory; and the command on folders of traces."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from made_ranks import MS, document, job, summaries, write_traces

import trace_analyzer as ta
from trace_analyzer.cli import main
from trace_analyzer.errors import UsageError
from trace_analyzer.ranks import engine, summary

PROGRAM = [("work", 20 * MS), ("meet", [list(range(4))])]


class Direct:
    """Run tasks at once, as the smallest executor. ``fails`` paths raise that often before they run."""

    def __init__(self, fails: dict[str, int] | None = None) -> None:
        self.fails, self.submitted = fails or {}, 0

    def submit(self, function: Any, path: str, /) -> "Future[bytes]":
        future: Future[bytes] = Future()
        self.submitted += 1
        if self.fails.get(Path(path).name, 0) > 0:
            self.fails[Path(path).name] -= 1
            future.set_exception(RuntimeError("lost"))
        else:
            future.set_result(function(path))
        return future


def written(folder: Path) -> list[str]:
    made = job(4, 3, PROGRAM, lambda rank, step: 9 * MS * (rank == 2))
    paths = []
    for rank, content in enumerate(summaries(made)):
        path = folder / f"trace.rank{rank}.rank.gz"
        path.write_bytes(content)
        paths.append(str(path))
    return paths


def invoked(folder: Path, *options: str) -> Result:
    """Run the command on a folder; what it raises is raised."""
    return CliRunner().invoke(main, ["ranks", str(folder), *options], standalone_mode=False, catch_exceptions=False)


def test_any_executor_will_do(tmp_path: Path) -> None:
    paths = written(tmp_path)
    reported: list[tuple[str, float | None]] = []
    assert ta.analyze_ranks(tmp_path, executor=Direct()).stragglers[0].rank == 2
    with ThreadPoolExecutor(2) as pool:
        report = ta.analyze_ranks(paths, executor=pool, progress=lambda stage, ratio: reported.append((stage, ratio)))
    assert report.stragglers[0].rank == 2
    assert reported[-1] == ("judging the job", None)
    assert ("reading ranks, 4 of 4", 1.0) in reported


def test_a_lost_rank_is_tried_again_and_a_hopeless_one_is_a_row(tmp_path: Path) -> None:
    paths = written(tmp_path)
    once = Direct({"trace.rank1.rank.gz": 1})
    assert [summary.from_bytes(c).error for c in engine.summaries(paths, once)] == [None] * 4
    assert once.submitted == 5
    report = ta.analyze_ranks(paths, executor=Direct({"trace.rank1.rank.gz": 9}))
    assert [(p.kind, p.rank, p.message) for p in report.problems] == [("failed", 1, "RuntimeError: lost")]


def test_nothing_is_there(tmp_path: Path) -> None:
    for source in (tmp_path, tmp_path / "*.json"):
        with pytest.raises(UsageError):
            ta.analyze_ranks(source, executor=Direct())
    missing = ta.analyze_ranks(tmp_path / "no.json", executor=Direct())
    assert [problem.kind for problem in missing.problems] == ["failed"]


def test_memory_admits_what_fits_and_what_is_larger_alone() -> None:
    sizes = {"1": 40, "2": 60, "3": 400, "4": 100, "5": 100}
    running: list[str] = []
    seen: list[list[str]] = []

    def work(path: str) -> bytes:
        time.sleep(0.05)
        running.remove(path)
        return path.encode()

    def submit(path: str) -> "Future[bytes]":
        running.append(path)
        seen.append(list(running))
        return pool.submit(work, path)

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(5) as pool:
        patch.setattr(engine, "needed_bytes", sizes.__getitem__)
        patch.setattr("trace_analyzer.ranks.summary.is_failed", lambda content: False)
        assert engine._all(list(sizes), submit, (5, 1), 100, None) == [path.encode() for path in sizes]
    assert all(len(some) == 1 or sum(sizes[path] for path in some) <= 100 for some in seen)
    assert any(len(some) == 2 for some in seen)


def test_what_a_trace_needs(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.json", tmp_path / "a.json.gz"
    for path in (plain, packed):
        path.write_bytes(b"x" * 1_000)
    assert engine.needed_bytes(str(plain)) == (100 << 20) + 2_000
    assert engine.needed_bytes(str(packed)) == (100 << 20) + 40_000
    assert engine.needed_bytes(str(tmp_path / "none")) == 100 << 20


@pytest.mark.slow
def test_the_command_on_a_folder_of_traces(tmp_path: Path) -> None:
    write_traces(job(4, 4, PROGRAM, lambda rank, step: 9 * MS * (rank == 2)), tmp_path)
    (tmp_path / "trace.rank3.json").write_text("nonsense")
    result = invoked(tmp_path, "--format", "json", "--workers", "2")
    assert result.return_value == 0, result.output
    document = json.loads(result.output)
    assert [s["rank"] for s in document["stragglers"]] == [2]
    assert [(p["kind"], p["rank"]) for p in document["problems"]] == [("failed", 3)]
    for path in tmp_path.iterdir():
        path.write_text("nonsense")
    with pytest.raises(UsageError, match="no trace of a rank"):
        invoked(tmp_path, "--workers", "1")


def children() -> set[int]:
    """Return the running workers that this process started, without Python's resource tracker, which outlives them."""
    own = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            is_worker = b"spawn_main" in (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) == os.getpid() and fields[0] != "Z" and is_worker:
            own.add(int(folder.name))
    return own


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
def test_a_worker_that_is_killed_costs_no_rank(tmp_path: Path) -> None:
    paths = [str(p) for p in write_traces(job(4, 40, PROGRAM), tmp_path)] * 3
    before, killed = children(), []

    def kill(stage: str, ratio: float | None) -> None:
        if not killed and ratio:
            killed.append(max(children() - before))
            os.kill(killed[0], signal.SIGKILL)

    contents = engine.summaries(paths, workers=2, progress=kill)
    assert [summary.from_bytes(content).error for content in contents] == [None] * 12
    assert killed
    assert children() == before


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
def test_an_interrupt_leaves_no_worker(tmp_path: Path) -> None:
    write_traces(job(4, 400, PROGRAM), tmp_path)
    for rank in range(4, 60):
        (tmp_path / f"trace.rank{rank}.json").hardlink_to(tmp_path / "trace.rank0.json")
    code = "from trace_analyzer.cli import main; main()"
    words = [sys.executable, "-c", code, "ranks", str(tmp_path), "--workers", "2"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True)
    for _ in range(600):
        time.sleep(0.1)
        workers = [p for p in Path("/proc").glob("[0-9]*") if re.search(rf"\) [SR] {process.pid} ", _stat(p))]
        if len(workers) >= 2:
            break
    os.killpg(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in stderr
    assert "Traceback" not in stderr
    until = time.monotonic() + 10  # a killed process takes a moment to end
    while any(worker.exists() and ") Z " not in _stat(worker) for worker in workers):
        assert time.monotonic() < until
        time.sleep(0.05)


def _stat(folder: Path) -> str:
    try:
        return (folder / "stat").read_text()
    except OSError:
        return ""


@pytest.mark.slow
def test_addresses_are_read_and_leave_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec = pytest.importorskip("fsspec")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    memory = fsspec.filesystem("memory")
    made = job(4, 3, PROGRAM, lambda rank, step: 9 * MS * (rank == 2))
    for rank in range(4):
        memory.pipe(f"/job/trace.rank{rank}.json", json.dumps(document(made, rank)).encode())
    memory.pipe("/job/trace.rank3.json", b"nonsense")
    for source in ("memory://job", "memory://job/*.json"):
        report = ta.analyze_ranks(source, executor=Direct())
        assert [straggler.rank for straggler in report.stragglers] == [2]
        assert [(p.kind, p.path) for p in report.problems] == [("failed", "memory:///job/trace.rank3.json")]
    assert not list(tmp_path.iterdir())
    with pytest.raises(UsageError, match="nothing is there"):
        ta.analyze_ranks("memory://job/*.gz", executor=Direct())
    with pytest.raises(UsageError, match="nosuch"):
        ta.analyze_ranks("nosuch://job", executor=Direct())


@pytest.mark.slow
def test_a_web_server_is_read(tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    written(tmp_path)
    handler = partial(QuietHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        names = [f"{address}/trace.rank{rank}.rank.gz" for rank in (0, 1, 2, 9)]
        report = ta.analyze_ranks(names, executor=Direct())
        server.shutdown()
    assert [straggler.rank for straggler in report.stragglers] == [2]
    assert [(p.kind, p.rank) for p in report.problems] == [("missing", 3), ("failed", 9)]


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the name of the parameter)
        """Say nothing."""


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_dask_cluster_loses_no_rank_when_a_worker_is_killed(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    write_traces(job(4, 20, PROGRAM, lambda rank, step: 9 * MS * (rank == 2)), tmp_path)
    killed: list[int] = []
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):

        def kill(stage: str, ratio: float | None) -> None:
            if not killed:
                killed.append(next(iter(cluster.workers.values())).pid)
                os.kill(killed[0], signal.SIGKILL)

        report = ta.analyze_ranks(tmp_path, executor=client, progress=kill)
        again = invoked(tmp_path, "--format", "json", "--dask", cluster.scheduler_address)
    assert killed
    assert (report.job.seen, report.problems) == (4, ())
    assert [straggler.rank for straggler in report.stragglers] == [2]
    assert json.loads(again.output)["job"]["sentence"] == report.job.sentence


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_scheduler_that_does_not_answer_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("trace_analyzer.cli.compare._PATIENCE_S", 1)
    written(tmp_path)
    with pytest.raises(UsageError, match="no scheduler answers"):
        invoked(tmp_path, "--dask", "tcp://127.0.0.1:9")
