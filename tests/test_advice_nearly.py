"""Test each condition of a fix alone: a program that meets all conditions, and one that lacks exactly that one."""

import pytest
from kineto import analysed, annotation, call, copy, kernel, launched, op
from test_advice import ADD, GEMM, NCCL, copied_within, in_a_row, large_messages, messages

OWN = "my_own_operator(int)"


def own(name: str, operator: str | None = None, us: int = 40, **args: object) -> list[object]:
    """Build products, and kernels of an extension; 40 us each are over a twentieth of the window, 4 us are not."""
    around = [op(operator, 300 + 20 * n, 15, **args) for n in range(12)] if operator else []
    return [
        in_a_row(GEMM),
        around,
        [launched(name, 300 + 20 * n + 2, 1_600 + us * n, us, 100 + n) for n in range(12)],
    ]


def collectives(name: str, elements: int, us: int) -> list[object]:
    moved = {"Collective name": name, "In msg nelems": elements, "dtype": "Float", "Group size": 8}
    return [
        [op("record_param_comms", 100 * n, 20, **moved), launched(NCCL, 100 * n + 5, 2_000 + us * n, us, n + 1)]
        for n in range(12)
    ]


def converting(by_copies: bool) -> list[object]:
    """Build the activities launched by conversions within a linear layer: kernels, or copies to the device."""
    return [
        [op("aten::linear", 40 * n, 35), op("aten::_to_copy", 40 * n + 5, 20),
         [call("cudaMemcpyAsync", 40 * n + 10, 5, correlation=n + 1), copy("DtoD (Device -> Device)", 1_000 + 100 * n, 100, correlation=n + 1, bytes=100_000_000)]
         if by_copies else launched(ADD, 40 * n + 10, 1_000 + 100 * n, 100, n + 1, grid=[5_000, 1, 1])]
        for n in range(12)
    ]  # fmt: skip


def compiled_uploads() -> list[object]:
    return [
        op("Torch-Compiled Region: 0/0", 0, 600),
        [[call("cudaMemcpyAsync", 40 * n + 10, 5, correlation=n + 1), copy("HtoD (Pinned -> Device)", 1_000 + 100 * n, 100, correlation=n + 1)]
         for n in range(12)],
        [kernel(ADD, 2_200 + 100 * n, 90, grid=[5_000, 1, 1], stream=9 + n) for n in range(6)],
    ]  # fmt: skip


def uploads(per_step: int, *, within: bool = False) -> list[object]:
    """Build steps of a short product and so many kilobyte copies, 80 us in all; on request one within the device."""
    length = 80 // per_step
    return [
        [annotation(f"ProfilerStep#{n}", 110 * n, 110), launched(GEMM, 110 * n + 1, 110 * n + 5, 20, 10 * n + 1),
         *([call("cudaMemcpyAsync", 110 * n + 8 + 8 * i, 5, correlation=10 * n + i + 2),
            copy("HtoD (Pinned -> Device)", 110 * n + 26 + length * i, length, correlation=10 * n + i + 2, bytes=1_000)]
           for i in range(per_step)),
         copy("DtoD (Device -> Device)", 110 * n + 107, 2, correlation=10 * n + 2, bytes=1_000) if within else []]
        for n in range(24)
    ]  # fmt: skip


NORM = {"Input Dims": [[4096, 4096], [4096, 4096], [4096], []], "Input type": ["c10::Half"] * 3 + ["Scalar"]}

MERGED = {"Input Dims": [[4096, 8, 512], [4096, 8]], "Input type": ["c10::Half", "float"]}
"""Work that is known of an operator whose kernels no rule knows."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fix", "program", "asks"),
    [
        ("casts", converting(by_copies=False), True),
        ("casts", converting(by_copies=True), False),
        ("compiled-copies", copied_within("Torch-Compiled Region: 0/0"), True),
        ("compiled-copies", compiled_uploads(), False),
        ("custom-kernels", own(OWN), True),
        ("custom-kernels", own("void at::native::(anonymous namespace)::frobnicate<float>(int)"), False),
        ("custom-kernels", own(OWN, "aten::frobnicate"), False),
        ("custom-kernels", own(OWN, "_C::rms_norm", **NORM), False),
        ("custom-kernels", own(OWN, "_C::merge_attn_states", **MERGED), False),
        ("transport", large_messages(20_000), True),
        ("transport", messages(1_000), False),
        ("gradient-buckets", collectives("allreduce", 1_000, 80), True),
        ("gradient-buckets", collectives("alltoall", 1_000, 80), False),
        ("small-copies", uploads(2), True),
        ("small-copies", uploads(1), False),
        ("small-copies", uploads(1, within=True), False),
    ],
)
def test_every_condition_counts(fix: str, program: list[object], asks: bool) -> None:
    assert (fix in [item.id for item in analysed(program).advice]) == asks


@pytest.mark.slow
def test_only_kernels_that_hold_a_twentieth_of_the_window_are_named() -> None:
    lesser = [launched("my_lesser_operator(int)", 600 + 20 * n, 2_080 + 4 * n, 4, 200 + n) for n in range(12)]
    (item,) = (item for item in analysed(own(OWN), lesser).advice if item.id == "custom-kernels")
    assert "my_own_operator" in item.why
    assert "my_lesser_operator" not in item.why
