"""Test what names of code show: phases, scopes, frames and preparations."""

import polars as pl
import pytest

from trace_analyzer.catalog import event_names
from trace_analyzer.render.row_phrases import blamed_place


def test_phases_are_in_the_order_of_the_definitions() -> None:
    assert tuple(dict.fromkeys(rule.name for rule in event_names.code_rules("phases"))) == event_names.PHASES[1:]


def test_frames_for_people() -> None:
    assert event_names.in_function("dir/train.py(12): step") == "in step (dir/train.py:12)"
    assert event_names.in_function("train.py(12): step", 17) == "in step (train.py:12, call in line 17)"
    assert event_names.in_function("a(1).py(12): <lambda>") == "in <lambda> (a(1).py:12)"
    assert event_names.in_function("<built-in function len>") == "in <built-in function len>"
    endless = f"train.py({'1' * 5_000}): step"
    assert event_names.in_function(endless) == f"in {endless}"


@pytest.mark.parametrize(
    ("names", "is_scope"),
    [
        (["[pl][profile]run_training_batch", "epoch=3/step", "train#7", "Optimizer.step#SGD.step", "## forward ##"], True),
        (["aten::add", "autograd::engine::evaluate_function: AddBackward0", "torch::autograd::CppNode<SplitLookupFunction_sgd_Op>"], False),
        (["MyFunctionBackward", "nccl:all_reduce", "record_param_comms", "TorchDynamo Cache Lookup", "Torch-Compiled Region: 0/3"], False),
    ],
)  # fmt: skip
def test_scopes_that_old_files_hold_as_operators_are_no_operators(names: list[str], is_scope: bool) -> None:
    """PyTorch before 1.11 wrote `record_function` as an operator; names of operators have no such characters."""
    for kind, scope in (("operator", is_scope), ("annotation", True)):
        events = pl.DataFrame({"kind": [kind] * len(names), "name": names})
        assert set(events.select(event_names.is_annotation()).to_series()) == {scope}


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("<built-in method run_backward of torch._C._EngineBase object at 0x7f15c10c7010>", "run_backward()"),
        ("<built-in method reshape of Tensor object at 0x7f2808adc550>", "reshape()"),
        ("<built-in function sleep>", "sleep()"),
        ("train.py(3): step", "train.py(3): step"),
        ("cudaLaunchKernel", "cudaLaunchKernel"),
    ],
)
def test_a_built_in_function_is_named_without_the_object(name: str, plain: str) -> None:
    assert pl.select(event_names.built_in_call(pl.lit(name))).item() == plain


@pytest.mark.parametrize(
    ("phase", "place"),
    [("optimizer", "in step (train.py:9), optimizer"), ("backward", "in step (train.py:9), backward pass"), ("forward", "in step (train.py:9)")],
)  # fmt: skip
def test_a_place_tells_the_phase_that_its_function_does_not(phase: str, place: str) -> None:
    row = dict.fromkeys(("operator", "module", "annotation", "call_line"))
    assert blamed_place({**row, "python_function": "train.py(9): step", "phase": phase}) == place
