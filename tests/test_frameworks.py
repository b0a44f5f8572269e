"""The recipes of docs/capture.md for Lightning, Accelerate and Transformers, where these are installed."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
RECIPES = dict(
    re.findall(
        r"<!-- recipe: (\w+) -->\n```python\n(.*?)```", (ROOT / "docs" / "capture.md").read_text("utf-8"), re.DOTALL
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


@pytest.mark.parametrize(
    ("name", "package", "before"),
    [
        ("lightning", "lightning", LIGHTNING),
        ("accelerate", "accelerate", ACCELERATE),
        ("transformers", "transformers", TRANSFORMERS),
    ],
)
def test_a_recipe_writes_traces_and_reports(tmp_path: Path, name: str, package: str, before: str) -> None:
    if find_spec("torch") is None or find_spec(package) is None:
        pytest.skip(f"{package} or torch is not installed")
    (tmp_path / "train.py").write_text(BEFORE + before + RECIPES[name])
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    written = sorted(path.name for path in (tmp_path / "traces").iterdir())
    assert [re.sub(r"step\d+", "step", name) for name in written] == [
        "trace.step.json.gz",
        "trace.step.report.html",
        "trace.step.report.json",
    ], done.stderr


def test_every_recipe_is_tested() -> None:
    assert set(RECIPES) == {"lightning", "accelerate", "transformers"}
