"""Code of advice runs: each snippet that needs neither a GPU nor another package, in a small program on the CPU."""

import concurrent.futures
import contextlib
import functools
import gc
import inspect
import io
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from commands import ran

from trace_analyzer.catalog.fixes import FOREACH, FUSED, Platform, optimizer_in_few_launches

OF_OTHERS = r"quantize_|convert_to_float8|\b(pipe|processor|tokenizer)\(|generation_config"
"""Names of torchao and transformers."""


def on_the_cpu(code: str) -> str:
    """Return code for the CPU, with values in place of what the user fills in."""
    code = re.sub(r'"(?:cuda|xpu)"', '"cpu"', code).replace("torch.xpu.", "torch.cuda.")
    code = re.sub(r"(torch\.\w+\()\.\.\.", r"\g<1>8", code).replace("profile(..., ", "profile(")
    code = re.sub(r"num_workers=\d", "num_workers=1", code)
    return code.replace('device="cpu", pin_memory=True', 'device="cpu"')


def program(code: str) -> dict[str, Any]:
    """Return the names of a training step on the CPU; each call makes it anew."""
    import torch
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    from torch.distributed.fsdp import fully_shard
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts
    from torch.utils.data import DataLoader

    class Step(int):
        """The number of the step, and the step itself."""

        def __call__(self, batch: torch.Tensor | None = None) -> None:
            names["loss"].backward()
            optimizer.step()

    model = torch.nn.Sequential(torch.nn.Conv2d(3, 3, 3, padding=1), torch.nn.LayerNorm(8))
    x, optimizer = torch.randn(4, 3, 8, 8), torch.optim.SGD(model.parameters(), lr=0.1)
    module = torch.nn.Linear(8, 8)
    tensors = dict.fromkeys(
        ("x", "y", "a", "b", "q", "k", "v", "batch", "next_batch", "result", "cache", "values", "images"), x
    )
    rows = torch.ones(8)
    names = tensors | {
        "torch": torch, "F": torch.nn.functional, "os": os, "gc": gc, "functools": functools, "model": model, "optimizer": optimizer,
        "loss": model(x).sum(), "total": torch.zeros(()), "options": {"lr": 0.1}, "step": Step(1_000), "scaler": torch.amp.GradScaler("cpu"),
        "warmup_batches": [x], "workers": 1, "num_workers": 1, "batch_size": 2, "size": 13, "count": 8, "sequence": torch.randn(5, 13), "shape": (4, 8), "array": rows.numpy(), "self": module, "constant": rows, "weight": rows, "bias": rows,
        "eps": 1e-5, "mask": torch.ones(8, 8) > 0, "condition": x > 0, "index": torch.arange(4), "repeats": torch.tensor([1, 2, 1, 0]), "length": 4, "n": 3,
        "out": torch.empty_like(x), "host": torch.empty_like(x), "buffer": torch.empty_like(x), "copies": mock.create_autospec(torch.Stream, instance=True),
        "event": mock.create_autospec(torch.Event, instance=True), "prof": mock.create_autospec(torch.profiler.profile, instance=True),
        "other_device": "cpu", "path": io.BytesIO(), "pool": concurrent.futures.ThreadPoolExecutor(1), "prepare": abs, "transforms": abs, "part_of_the_step": gc.get_count,
        "loss_fn": torch.nn.functional.mse_loss, "attention": torch.nn.MultiheadAttention(8, 2), "sdpa_kernel": sdpa_kernel, "SDPBackend": SDPBackend, "checkpoint": checkpoint,
        "create_selective_checkpoint_contexts": create_selective_checkpoint_contexts, "DistributedDataParallel": DistributedDataParallel, "default_hooks": default_hooks,
        "DataLoader": lambda _, **options: [*DataLoader([rows] * 8, **options)],
        "p": rows.clone().requires_grad_(), "reduce_gradient": abs, "work": mock.create_autospec(torch.distributed.Work, instance=True),
        "batches": iter([x]), "config": {"zero_optimization": {}}, "small": [SimpleNamespace(grad=rows)],
        "adjacency": torch.eye(4).to_sparse(), "value": 0.0, "row": torch.randn(1, 8), "whole": torch.empty(4, 8), "start": 0, "scores": rows,
        **dict.fromkeys(("f", "layer", "activation", "mlp", "block"), module),
    }  # fmt: skip
    if "grouped_mm" in code:  # four rows, each for two of two experts
        names |= {"x": torch.randn(4, 8), "w": torch.randn(2, 8, 8), "experts": torch.tensor([[0, 1]] * 4), "k": 2,
                  "offsets": torch.tensor([4, 8], dtype=torch.int32)}  # fmt: skip
    if re.search(r"^[^#]*(set_modules_to|set_requires_gradient_sync)", code, re.MULTILINE):
        blocks = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(4))
        names |= {
            name: fully_shard(block)
            for name, block in zip(("previous_block", "block", "next_block"), blocks, strict=False)
        }
        names |= {"fully_shard": fully_shard, "model": fully_shard(blocks[3])}
        names |= {"block": torch.nn.Linear(8, 8)} if "fully_shard(block)" in code.splitlines()[0] else {}
    if code.startswith("for x, y in batches"):
        names["batches"] = [(x, x)]
    if "sparse.mm" in code:
        names["x"] = torch.randn(4, 8)
    if code.startswith("rows.append"):
        names["rows"] = []
    if code.startswith("grads = "):
        names["loss"].backward()
    if re.search(r"^(with )?model\.(no_sync|register_comm_hook)", code, re.MULTILINE):
        names["model"] = DistributedDataParallel(model)
    if "need_weights" in code:
        names |= dict.fromkeys("qkv", torch.randn(4, 2, 8))
    return names


def run_all() -> None:
    """Print each snippet that fails, and why."""
    import tempfile

    import torch
    import torch._dynamo
    import torch._inductor.config
    import torch.distributed
    from test_advice_code import codes

    from trace_analyzer.catalog.fixes import for_compiled

    store = Path(tempfile.mkdtemp()) / "store"
    torch.distributed.init_process_group("gloo", init_method=store.as_uri(), rank=0, world_size=1)
    for name in ("synchronize", "current_stream", "graph", "make_graphed_callables", "CUDAGraph"):
        setattr(torch.cuda, name, mock.create_autospec(getattr(torch.cuda, name)))
    torch.Tensor.pin_memory = lambda tensor: tensor
    for ranges in (torch.cuda.nvtx, torch.profiler.itt):
        ranges.range = contextlib.nullcontext
    for code in dict.fromkeys(text for plain in codes() for text in (plain, for_compiled(plain))):
        if re.search(OF_OTHERS, code):
            continue
        try:
            with contextlib.redirect_stdout(None):
                exec(on_the_cpu(code), program(code))
        except Exception as error:
            print(f"{type(error).__name__}: {error}\n{code}\n")


@pytest.mark.slow
def test_optimizers_have_the_forms_that_advice_names() -> None:
    """Compare the lists with the arguments of torch's own optimizers."""
    torch = pytest.importorskip("torch")
    arguments = {
        name: inspect.signature(kind).parameters
        for name, kind in vars(torch.optim).items()
        if isinstance(kind, type) and kind is not torch.optim.Optimizer
    }
    fused = {name for name, known in arguments.items() if "fused" in known}
    assert set(FUSED) == fused
    assert set(FOREACH) == {name for name, known in arguments.items() if "foreach" in known} - fused


@pytest.mark.parametrize(
    ("name", "platform", "code"),
    [
        ("Adagrad", None, "fused=True)  # options: the present ones"),
        (
            "Adagrad",
            "cuda",
            "fused=True)  # options: the present ones; on GPUs from PyTorch 2.13 on, before: foreach=True",
        ),
        ("Adagrad", "xpu", "foreach=True)  # options: the present ones"),
        ("Adam", "xpu", "fused=True)  # options: the present ones"),
        ("", "xpu", "# fused=True where the optimizer has it (Adam, AdamW, SGD), else foreach=True"),
    ],
)
def test_a_fused_form_is_offered_where_it_runs(name: str, platform: Platform | None, code: str) -> None:
    assert optimizer_in_few_launches(name, platform).endswith(code)


@pytest.mark.slow
def test_code_runs() -> None:
    pytest.importorskip("torch")
    done = ran(sys.executable, __file__, timeout=600)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    run_all()
