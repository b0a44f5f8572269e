"""Test what names of code show: phases, scopes, frames and preparations."""

import polars as pl
import pytest

from trace_analyzer.catalog import event_names
from trace_analyzer.render.row_phrases import blamed_place


def reported(kind: str, names: tuple[str, ...], column: str) -> dict[str, object]:
    """Map names to the results of the rules."""
    events = pl.DataFrame({"kind": [kind] * len(names), "name": list(names)})
    return dict(event_names.named_code(events).select("name", column).iter_rows())


def test_a_missing_name_prepares_no_inputs() -> None:
    assert (
        pl.DataFrame({"name": [None]}, {"name": pl.String}).select(event_names.preparation_of(pl.col("name"))).item()
        is None
    )


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
    ("name", "is_scope"),
    [
        ("[pl][profile]run_training_batch", True),
        ("epoch=3/step", True),
        ("train#7", True),
        ("Optimizer.step#SGD.step", True),
        ("## forward ##", True),
        ("aten::add", False),
        ("autograd::engine::evaluate_function: AddBackward0", False),
        ("torch::autograd::CppNode<SplitLookupFunction_sgd_Op>", False),
        ("MyFunctionBackward", False),
        ("nccl:all_reduce", False),
        ("record_param_comms", False),
        ("TorchDynamo Cache Lookup", False),
        ("Torch-Compiled Region: 0/3", False),
    ],
)
def test_scopes_that_old_files_hold_as_operators_are_no_operators(name: str, is_scope: bool) -> None:
    """Check that scopes that old files hold as operators are not taken for operators.

    PyTorch before 1.11 wrote `record_function` as an operator; in names of operators such characters do not occur.
    """
    events = pl.DataFrame({"kind": ["operator", "annotation"], "name": [name, name]})
    assert events.select(event_names.is_annotation()).to_series().to_list() == [is_scope, True]


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
    row = {
        "operator": None,
        "module": None,
        "python_function": "train.py(9): step",
        "annotation": None,
        "call_line": None,
    }
    assert blamed_place({**row, "phase": phase}) == place
