"""Test the line of a call, where the source is available and the call unambiguous."""

import os
from pathlib import Path

import pytest
from kineto import analysed, call, launched, op, python

from trace_analyzer.analyses.host import MAX_BYTES, call_line

SOURCE = """\
import torch


def step(model, x):
    y = model(x)
    loss = torch.relu(y).sum()

    def inner():
        return loss.item()

    return loss.item()


@torch.no_grad()
def evaluate(x):
    return x.cpu(), x.to("cpu")
"""


@pytest.fixture
def train(tmp_path: Path) -> str:
    file = tmp_path / "train.py"
    file.write_text(SOURCE)
    return str(file)


def test_the_one_call_in_the_function(train: str) -> None:
    assert call_line(f"{train}(4): step", "aten::item") == 11
    assert call_line(f"{train}(4): step", "aten::_local_scalar_dense") == 11
    assert call_line(f"{train}(4): step", "aten::relu") == 6
    assert call_line(f"{train}(8): inner", "aten::item") == 9


def test_a_function_begins_at_its_decorator(train: str) -> None:
    assert call_line(f"{train}(14): evaluate", "aten::copy_") is None
    Path(train).write_text(SOURCE.replace(', x.to("cpu")', ""))
    os.utime(train, ns=(1, 1))
    assert call_line(f"{train}(14): evaluate", "aten::copy_") == 16
    assert call_line(f"{train}(15): evaluate", "aten::copy_") == 16


def test_two_calls_leave_doubt_and_none_is_no_line(train: str) -> None:
    assert call_line(f"{train}(14): evaluate", "aten::copy_") is None
    assert call_line(f"{train}(4): step", "aten::mm") is None


@pytest.mark.parametrize("frame", ["(5): step", "(4): other", "(1): <lambda>"])
def test_another_function_than_the_file_holds(train: str, frame: str) -> None:
    assert call_line(train + frame, "aten::item") is None


def test_what_is_no_source_is_not_read(tmp_path: Path) -> None:
    large, broken, text = (tmp_path / name for name in ("large.py", "broken.py", "text.txt"))
    large.write_text(SOURCE + "#" * MAX_BYTES)
    broken.write_bytes(b"def step(:\n\x00")
    text.write_text(SOURCE)
    frames = [f"{path}(4): step" for path in (large, broken, text, tmp_path, tmp_path / "none.py")]
    frames += [f"{tmp_path}/x.py({'1' * 5_000}): step"]
    frames += ["//host/share/x.py(4): step", r"\\host\share\x.py(4): step", "<built-in function len>", None]
    assert {call_line(frame, "aten::item") for frame in frames} == {None}
    assert call_line(f"{tmp_path}/x.py(4): step", None) is None


@pytest.mark.slow
def test_the_report_tells_it(train: str) -> None:
    item = [op("aten::item", 5, 20), op("aten::_local_scalar_dense", 6, 18), call("cudaStreamSynchronize", 8, 15)]
    kernels = [launched("a", 0, 10, 10, 1), launched("b", 80, 90, 10, 2)]
    report = analysed(kernels, item, python(f"{train}(4): step", 0, 200))
    assert [cost.call_line for cost in report.host_costs] == [11]
    assert {item.call_line for item in report.blame if item.operator} == {11}
    assert f"in step ({train}:4, call in line 11)" in report.to_markdown().replace("&#58;", ":")
