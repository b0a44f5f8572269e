"""Test tensors that calls read and write: against torch itself, and on what no trace should hold."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from trace_analyzer.analyses.tensors import call_tensors

NAMES = {"float32": "float", "float16": "c10::Half", "bfloat16": "c10::BFloat16", "float64": "double", "int64": "long int",
         "bool": "bool", "int32": "int", "uint8": "unsigned char"}  # fmt: skip


@dataclass(frozen=True)
class Ones:
    """Describe a tensor of ones that is made when torch is there."""

    shape: tuple[int, ...]
    dtype: str


def t(*shape: int, dtype: str = "float32") -> Ones:
    return Ones(shape, dtype)


def recorded(*inputs: Any) -> tuple[str, str, str]:
    """Return inputs as Kineto writes them."""
    tensors = [isinstance(x, Ones) for x in inputs]
    dims = [list(x.shape) if is_tensor else [] for x, is_tensor in zip(inputs, tensors, strict=True)]
    types = [NAMES[x.dtype] if is_tensor else "Scalar" for x, is_tensor in zip(inputs, tensors, strict=True)]
    values = ["" if is_tensor else str(x) for x, is_tensor in zip(inputs, tensors, strict=True)]
    return json.dumps(dims), json.dumps(types), json.dumps(values)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("cos", (t(4, 5),)), ("gelu", (t(4, dtype="bfloat16"),)), ("rsqrt", (t(3, 1),)), ("relu_", (t(2, 2),)),
        ("add", (t(4, 5), t(5))), ("add", (t(4, 1), t(1, 5))), ("mul", (t(2, 3, dtype="bfloat16"), t(2, 3))),
        ("mul", (t(3, dtype="float16"), t(3, dtype="bfloat16"))), ("sub", (t(3, dtype="int64"), t(3, dtype="float16"))),
        ("add", (t(2, 3, dtype="float16"), t())), ("pow", (t(4, 5), 2)), ("div_", (t(4, 5), t(5))),
        ("eq", (t(4, 5), t(5))), ("lt", (t(4), 3)), ("logical_not", (t(4, dtype="int32"),)), ("isnan", (t(4),)),
        ("where", (t(4, 5, dtype="bool"), t(5), t(4, 1))), ("addcmul", (t(4, 5), t(5), t(4, 5))),
        ("maximum", (t(4, dtype="uint8"), t(4, dtype="bool"))), ("_softmax", (t(2, 7, dtype="float16"), -1, False)),
        ("mean", (t(2, 3, 4), [-1], True)), ("mean", (t(2, 3, 4), [0, 2], False)), ("sum", (t(2, 3), [1], True)),
        ("amax", (t(2, 3, 4), [1], False)), ("bmm", (t(6, 2, 3), t(6, 3, 5))), ("baddbmm", (t(1, 1, 1), t(6, 2, 3), t(6, 3, 5))),
        ("bitwise_and", (t(4, dtype="bool"), t(4, dtype="bool"))), ("masked_fill", (t(4, 5), t(5, dtype="bool"), 0.0)),
        ("div", (t(4, dtype="int64"), t(4, dtype="int64"))), ("sqrt", (t(4, dtype="int32"),)), ("neg", (t(4, dtype="int64"),)),
        ("bitwise_not", (t(4, dtype="bool"),)), ("mul", (t(4, dtype="bool"), t(4, dtype="bool"))), ("pow", (t(4, dtype="int64"), 2)),
        ("clamp_min", (t(4, 5), 0)), ("copy_", (t(4, 5), t(4, 5, dtype="float16"))),
    ],
)  # fmt: skip
def test_the_output_is_that_of_torch(name: str, inputs: tuple[Any, ...]) -> None:
    call = call_tensors(f"aten::{name}", *recorded(*inputs))
    torch = pytest.importorskip("torch")
    made = (torch.ones(x.shape, dtype=getattr(torch, x.dtype)) if isinstance(x, Ones) else x for x in inputs)
    result = getattr(torch.ops.aten, name)(*made)
    assert call.output.shape == tuple(result.shape)
    assert call.output.dtype == NAMES[str(result.dtype)[6:]].lower().removeprefix("c10::")
    assert call.output.bytes == result.numel() * result.element_size()


def test_a_copy_reads_its_source_only() -> None:
    call = call_tensors("aten::copy_", *recorded(t(4, 5), t(4, 5, dtype="float16")))
    assert [tensor.key for tensor in call.inputs] == ["[4, 5] half"]


def test_a_reduction_over_everything_reads_and_writes_nothing_known() -> None:
    call = call_tensors("aten::sum", "[[4, 5], []]", '["float", ""]', '["", ""]')
    assert (len(call.inputs), call.output) == (1, None)


@pytest.mark.parametrize(
    ("operator", "dims", "types"),
    [
        ("aten::cos", None, '["float"]'), ("aten::cos", "[[4]]", None), ("aten::cos", "[[4]]", "[]"), ("aten::cos", "{", "["),
        ("aten::cos", "[[]]", '["float"]'), ("aten::cos", "[[[4], [5]]]", '["TensorList"]'), ("aten::cos", "[[4]]", '["weird"]'),
        ("aten::cos", '[["a"]]', '["float"]'), ("aten::cos", "[[0]]", '["float"]'), ("aten::cos", "[[-1]]", '["float"]'),
        ("aten::add", "[[4], [5]]", '["float", "float"]'), ("aten::cat", "[[4]]", '["float"]'), ("cos", "[[4]]", '["float"]'),
        ("aten::add", "[null, [5]]", '["float", null]'), ("aten::cos", "7", '"float"'), ("aten::cos", f"[{[1] * 3000}]", '["float"]'),
        ("aten::mul", "[[4], [4]]", '["c10::Float8_e4m3fn", "float"]'), ("aten::copy_", "[[4]]", '["float"]'),
        ("aten::add", f"[[{10**300},{10**300}],[]]", '["float","Scalar"]'),
    ],
)  # fmt: skip
def test_what_is_not_known(operator: str, dims: str | None, types: str | None) -> None:
    call = call_tensors(operator, dims, types, None)
    assert call is None or call.output is None or call.output.key == "[5] float"
