"""Test the workloads of `sample_traces/record.py`: they run, do not identify the machine, and get their verdicts."""

import gzip
import json
import os
import re
import shutil
import socket
from pathlib import Path

import pytest
from conftest import SAMPLES
from lazy_report import report_on
from tiers import is_thorough

from trace_analyzer.pipeline import analyze

torch = pytest.importorskip("torch")

from record import WORKLOADS, anonymous, record, record_ddp, record_mlp, row  # noqa: E402

pytestmark = pytest.mark.slow

GPU = torch.cuda.is_available()
SMALL = 1 / 256
OTHERWISE_ON_H200 = {"item": ("compute-bound", None), "layer-norm_compiled": ("overhead-bound", "launch")}
"""A workload whose matmuls are too large there, and a wrong verdict (`sample_traces/README.md`)."""


def compiled_if_possible(name: str) -> object:
    """Mark workloads that compile: they need a compiler, and torch's own code warns on the way."""
    if "compiled" not in name:
        return name
    compiler = any(map(shutil.which, (os.environ.get("CXX", "c++"), "g++", "clang++")))
    warns = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
    needs = [pytest.mark.skipif(not compiler, reason="needs a C++ compiler")]
    if name.startswith(("transformer", "tiny-mlp")):
        needs.append(pytest.mark.skipif(not is_thorough(), reason="compiles for half a minute: PROPERTY_EXAMPLES=2"))
    return pytest.param(name, marks=[warns, *needs])


@pytest.mark.parametrize("name", [compiled_if_possible(name) for name in WORKLOADS])
def test_a_workload_runs_anywhere_when_it_is_small(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")  # starting a pool takes longer than these compilations
    path = tmp_path / "trace.json.gz"
    record(WORKLOADS[name], path, "cpu", SMALL, steps=2)
    report = report_on(path)
    if "compiled" in name:
        names = report.tables["host_events"].get_column("name")
        assert names.str.starts_with("Torch-Compiled Region").any()
        assert not {"aten::cos", "aten::native_layer_norm", "aten::relu"} & set(names)  # fused, each in its workload
    assert report.verdict.status == "cpu-run"
    assert report.trace.settings.measured_step_ms is not None
    steps = report.tables["host_events"].get_column("name").str.starts_with("ProfilerStep").sum()
    assert steps == 2


@pytest.mark.skipif(not GPU, reason="needs a GPU")
@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_is_limited_by_what_it_was_made_for(tmp_path: Path, name: str) -> None:
    workload = WORKLOADS[name]
    record(workload, tmp_path / "trace.json.gz", "cuda")
    verdict = analyze(tmp_path / "trace.json.gz").verdict
    assert verdict.status == "ok"
    if workload.regime is not None:
        assert (verdict.regime, verdict.cause) == (workload.regime, workload.cause)


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_recorded_workload_is_limited_by_what_it_was_made_for(name: str) -> None:
    verdict, workload = report_on(SAMPLES / "gpu_workloads" / f"{name}.json.gz").verdict, WORKLOADS[name]
    assert verdict.status == "ok"
    if workload.regime is not None:
        assert (verdict.regime, verdict.cause) == OTHERWISE_ON_H200.get(name, (workload.regime, workload.cause))


@pytest.mark.skipif(not GPU or torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_ranks_wait_for_their_gradients(tmp_path: Path) -> None:
    path = str(tmp_path / "rank{rank}.json.gz")
    torch.multiprocessing.spawn(record_ddp, args=(path, "cuda", 1.0, str(tmp_path / "meet")), nprocs=2)
    verdict = analyze(tmp_path / "rank0.json.gz").verdict
    assert (verdict.regime, verdict.cause) == ("communication-bound", "collectives")


def test_a_recording_is_a_row_of_the_table(tmp_path: Path) -> None:
    record(WORKLOADS["item"], tmp_path / "trace.json.gz", "cpu", SMALL, steps=1)
    cells = row("item", tmp_path / "trace.json.gz").split(" | ")
    assert cells[:3] == ["| `item`", "overhead-bound synchronization", "cpu-run"]
    assert re.fullmatch(r"\d+\.\d{3} ms \|", cells[3])


def test_a_recording_does_not_name_the_machine(tmp_path: Path) -> None:
    record_mlp(tmp_path / "cpu_mlp.json.gz")
    text = gzip.decompress((tmp_path / "cpu_mlp.json.gz").read_bytes()).decode()
    assert socket.gethostname() not in {str(value) for value in json.loads(text).values()}
    assert str(Path.cwd()) not in text
    kept = anonymous({"traceEvents": [{"name": "/a/b/c.py(3): f"}], "host_name": "box", "traceName": "/tmp/x"})
    assert kept == {"traceEvents": [{"name": "c.py(3): f"}]}


def test_no_checked_in_recording_names_the_machine() -> None:
    for path in SAMPLES.glob("gpu_*/*.gz"):
        trace = json.loads(gzip.decompress(path.read_bytes()))
        assert anonymous(trace) == trace, path
