"""Test rules on names of code, against their own examples."""

import polars as pl
import pytest

from trace_analyzer.catalog.code import (
    INPUT_FILES,
    PHASES,
    CodeRule,
    code_rules,
    in_function,
    is_annotation,
    named_code,
    preparation_of,
    prepares_input_files,
    without_address,
)
from trace_analyzer.render.row_phrases import blamed_place

RULES = code_rules()
named_rules = pytest.mark.parametrize(
    ("column", "rule"),
    [("phase", rule) for rule in RULES.phases] + [("source", rule) for rule in RULES.sources],
    ids=lambda part: part if isinstance(part, str) else f"{part.name}:{part.pattern[:20]}",
)
libraries = pytest.mark.parametrize("rule", RULES.libraries, ids=range(len(RULES.libraries)))


def reported(kind: str, names: tuple[str, ...], column: str) -> dict[str, object]:
    """Map names to the results of the rules."""
    events = pl.DataFrame({"kind": [kind] * len(names), "name": list(names)})
    return dict(named_code(events).select("name", column).iter_rows())


@named_rules
def test_a_rule_names_its_examples_in_all_its_kinds(column: str, rule: CodeRule) -> None:
    assert rule.examples
    for kind in rule.kinds:
        assert reported(kind, rule.examples, column) == dict.fromkeys(rule.examples, rule.name)


@named_rules
def test_a_rule_leaves_its_counterexamples(column: str, rule: CodeRule) -> None:
    assert rule.counterexamples
    for kind in rule.kinds:
        assert rule.name not in reported(kind, rule.counterexamples, column).values()


@libraries
def test_frames_of_libraries_are_distinguished_from_those_of_the_program(rule: CodeRule) -> None:
    assert all(reported("python", rule.examples, "library").values())
    assert not any(reported("python", rule.counterexamples, "library").values())


@pytest.mark.parametrize("rule", RULES.preparations, ids=lambda rule: rule.name)
def test_preparation_of_inputs_is_known_by_name(rule: CodeRule) -> None:
    for names, expected in ((rule.examples, rule.name), (rule.counterexamples, None)):
        assert names
        prepared = pl.DataFrame({"name": names}).select(preparation_of(pl.col("name"))).to_series().to_list()
        assert prepared == [expected] * len(names)
        assert [prepares_input_files(name) for name in names] == [expected in INPUT_FILES] * len(names)


def test_a_missing_name_prepares_no_inputs() -> None:
    assert pl.DataFrame({"name": [None]}, {"name": pl.String}).select(preparation_of(pl.col("name"))).item() is None


def test_phases_are_in_the_order_of_the_definitions() -> None:
    assert tuple(dict.fromkeys(rule.name for rule in RULES.phases)) == PHASES[1:]


def test_frames_for_people() -> None:
    assert in_function("dir/train.py(12): step") == "in step (dir/train.py:12)"
    assert in_function("train.py(12): step", 17) == "in step (train.py:12, call in line 17)"
    assert in_function("a(1).py(12): <lambda>") == "in <lambda> (a(1).py:12)"
    assert in_function("<built-in function len>") == "in <built-in function len>"
    endless = f"train.py({'1' * 5_000}): step"
    assert in_function(endless) == f"in {endless}"


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
    assert events.select(is_annotation()).to_series().to_list() == [is_scope, True]


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
    assert pl.select(without_address(pl.lit(name))).item() == plain


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
