"""Test the recipes of docs/recipes.md: those whose package is installed are run; for the others, files are tested."""

import os
import re
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import polars as pl
import pytest
from commands import ROOT, environment, ran
from conftest import CORPUS
from kineto import A100, annotation, launched, spread, trace_bytes

from trace_analyzer.pipeline import analyze
from trace_analyzer.report import Report

RECIPES = dict(
    re.findall(
        r"<!-- recipe: (\w+) -->\n```python\n(.*?)```", (ROOT / "docs" / "recipes.md").read_text("utf-8"), re.DOTALL
    )
)

BEFORE = """
import torch
import trace_analyzer as ta
torch.manual_seed(0)
inputs, labels = torch.randn(96, 8), torch.randint(0, 2, (96,))
"""

LIGHTNING = """
import lightning
class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 2)
    def training_step(self, batch, _):
        return torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
model = Model()
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, labels), batch_size=8)
choices = dict(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, max_epochs=2)
"""

ACCELERATE = """
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, labels), batch_size=8)
choices = dict(cpu=True)
"""

TRANSFORMERS = """
from transformers import Trainer, TrainingArguments
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 2)
    def forward(self, inputs, labels):
        out = self.layer(inputs)
        return {"loss": torch.nn.functional.cross_entropy(out, labels), "logits": out}
data = [{"inputs": row, "labels": label} for row, label in zip(inputs, labels)]
arguments = TrainingArguments("out", max_steps=24, per_device_train_batch_size=4, use_cpu=True, report_to=[], save_strategy="no")
model = Model()
"""


RAY = """
import os, ray
ray.init(num_cpus=1, include_dashboard=False, runtime_env={"env_vars": {"PYTHONPATH": os.environ["PYTHONPATH"]}})
config = {"traces": os.path.abspath("traces"), "batches": [(inputs[n : n + 8], labels[n : n + 8]) for n in range(0, 96, 8)]}
"""

TORCHTITAN = """
import os
os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "RANK": "0", "WORLD_SIZE": "1"}
torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = [(inputs[n : n + 4], labels[n : n + 4]) for n in range(0, 96, 4)]
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "before"),
    [("lightning", LIGHTNING), ("accelerate", ACCELERATE), ("transformers", TRANSFORMERS), ("ray", RAY)],
)
def test_a_recipe_writes_traces_and_reports(tmp_path: Path, name: str, before: str) -> None:
    if find_spec("torch") is None or find_spec(name) is None:
        pytest.skip(f"{name} or torch is not installed")
    run_recipe(tmp_path, name, before)
    written = sorted(path.name for path in (tmp_path / "traces").iterdir())
    written = [name for name in written if not name.endswith(".rank.gz")]  # for a rank of a job
    names = [re.sub(r"(rank\d+[.])?step\d+", "step", name) for name in written]
    assert names == ["trace.step.json.gz", "trace.step.report.html", "trace.step.report.json"]


def run_recipe(folder: Path, name: str, before: str) -> None:
    (folder / "train.py").write_text(BEFORE + before + RECIPES[name], encoding="utf-8")
    done = ran(sys.executable, "train.py", cwd=folder, env=environment(PYTHONPATH=os.pathsep.join(sys.path)))
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_loop_like_torchtitan_s_leaves_a_file_a_cycle(tmp_path: Path) -> None:
    if find_spec("torch") is None:
        pytest.skip("torch is not installed")
    run_recipe(tmp_path, "torchtitan", TORCHTITAN)
    folders = sorted((tmp_path / "profile_trace").iterdir())
    assert [folder.name for folder in folders] == ["iteration_12", "iteration_24"]
    for folder in folders:
        report = analyze(folder / "rank0_trace.json.gz")
        marks = report.tables["host_events"].filter(pl.col("name").str.starts_with("ProfilerStep#"))
        assert marks.get_column("name").n_unique() == 5


SERVING = {"b200_vllm_eager": "vLLM", "mi300_vllm_decode_graph": None, "mi300_sglang_qwen3_prefilldecode": "SGLang"}


@pytest.mark.slow
@pytest.mark.parametrize("name", SERVING)
def test_files_of_the_servers_endpoints_are_judged(name: str, corpus_report: Callable[[str], Report]) -> None:
    if not (CORPUS / f"{name}.json.gz").exists():
        pytest.skip("the corpus is not here")
    report = corpus_report(f"{name}.json.gz")
    assert report.verdict.status == "ok"
    assert report.devices
    if SERVING[name] is not None:
        assert report.steps_from is not None


def test_a_file_of_the_daemon_has_the_optimizer_s_steps() -> None:
    """On demand nobody calls ``step()`` of a profiler, the recording begins and ends anywhere, and the header is the
    daemon's.
    """
    events = [
        [launched("ampere_sgemm_128x64_nn", 1000 * step + 100, 1000 * step + 150, 600, step + 1),
         annotation("Optimizer.step#SGD.step", 1000 * step + 800, 100)]
        for step in range(-1, 7)
    ]  # fmt: skip
    cut = [event for event in spread(events) if event["ts"] >= 0]  # the recording began within a step
    trace = trace_bytes(cut, deviceProperties=[A100], schemaVersion=1, traceName="/tmp/trace_12345.json")
    report = analyze(trace)
    assert report.verdict.status == "ok"
    assert report.steps_from == "optimizer"
    assert [step.duration_ns for step in report.steps if step.steady] == 6 * [1_000_000]


def test_every_recipe_is_tested() -> None:
    assert set(RECIPES) == {"lightning", "accelerate", "transformers", "torchtitan", "ray"}
