"""Test repetitions that are steps or layers of one pass, by the content of each (microseconds)."""

from typing import Any

import pytest
from kineto import analysed, annotation, call, copy, kernel, launched, op, python, spread

from trace_analyzer.report import Report

PARTS = ("gemm", "relu", "norm")
HIDDEN, WIDTH, TOKENS = 4096, 1024, 256


def repeated(*extra: Any, count: int = 10, busy: int = 60) -> list[Any]:
    """Build equal parts of a pass, or passes: 3 kernels each 300 us, and what ``extra`` makes of (start, number)."""
    return spread([
        [[make(300 * n, n) for make in extra],
         [launched(name, 300 * n + 40 + 70 * k, 300 * n + 50 + 70 * k, busy, 1_000 * n + k + 1) for k, name in enumerate(PARTS)]]
        for n in range(count)
    ])  # fmt: skip


def from_host(size: int, takes: int = 2, shape: list[int] | None = None) -> Any:
    """Build a copy from the host, with the shape of its tensor where shapes are recorded."""

    def make(start: int, n: int) -> list[Any]:
        shapes = {} if shape is None else {"Input Dims": [shape, shape, []], "Input type": ["float", "float", "Scalar"]}
        return [
            op("aten::copy_", start + 2, 8, **shapes),
            call("cudaMemcpyAsync", start + 4, 3, correlation=1_000 * n + 900),
            copy("HtoD (Pinned -> Device)", start + 8, takes, correlation=1_000 * n + 900, bytes=size),
        ]

    return make


def product(start: int, n: int) -> list[Any]:
    """Build the first kernel's operator with its shapes: (tokens, hidden) by (hidden, width)."""
    dims = {"Input Dims": [[TOKENS, HIDDEN], [HIDDEN, WIDTH]], "Input type": ["float", "float"]}
    return [op("aten::mm", start + 38, 12, **dims)]


def lookup(*table: int) -> Any:
    def make(start: int, n: int) -> list[Any]:
        dims = {"Input Dims": [[*table], [4, 64], [], [], []], "Input type": ["float", "long int", "", "", ""]} if table else {}  # fmt: skip
        return [op("aten::embedding", start + 14, 14, **dims), launched("void indexSelectLargeIndex<float>()", start + 16, start + 24, 9, 1_000 * n + 800)]  # fmt: skip

    return make


def alone(name: str) -> Any:
    """Build one kernel without an operator."""
    return lambda start, n: launched(name, start + 16, start + 24, 9, 1_000 * n + 800)


def inside(parent: Any) -> Any:
    """Build a lookup as PyTorch launches it: the kernel is of ``aten::index_select``, within ``aten::embedding``."""

    def make(start: int, n: int) -> list[Any]:
        return [parent(start, n), op("aten::index_select", start + 15, 12)]

    return make


def layers(with_lookup: bool = False, each: int = 4) -> Any:
    """Build four layers of four kernels before the parts; where wanted, each has a lookup of its own."""

    def make(start: int, n: int) -> list[Any]:
        names = ("qkv", "attention", "output", "mlp")
        launches = [
            launched(f"layer {name}", start + 186 + 7 * (4 * layer + k), start + 190 + 7 * (4 * layer + k), 3, 1_000 * n + 100 + 10 * layer + k, takes=2)
            for layer in range(each) for k, name in enumerate(names)
        ]  # fmt: skip
        own = [op("aten::embedding", start + 185 + 28 * layer, 5) for layer in range(each if with_lookup else 0)]
        return [launches, own]

    return make


ROUND = ("norm", "qkv gemm", "attention", "mlp gemm")


def group(before: bool, each: int = 6) -> Any:
    """Return a maker of just six layers of four kernels, the last with a table lookup at its beginning or within it."""

    def make(start: int, n: int) -> list[Any]:
        works = [*ROUND * (each - 1), *((LOOKUP, *ROUND) if before else (*ROUND[:2], LOOKUP, *ROUND[2:]))]
        return [launched(name, start + 12 + 16 * k, start + 16 + 16 * k, 14, 1_000 * n + k, takes=3) for k, name in enumerate(works)]  # fmt: skip

    return make


LOOKUP = "embedding_kernel"


@pytest.mark.parametrize("before", [True, False])
def test_groups_of_layers_of_which_one_looks_up_are_no_steps(before: bool) -> None:
    """Check one pass, within no recorded range, of ten equal groups: layers, and a lookup outside of the equal ones."""
    make = group(before)
    report = analysed(spread([[make(500 * n, n), blocked(500 * n, n)] for n in range(10)]))
    assert report.steps_from is None
    assert is_noted(report)


def graph(number: Any) -> Any:
    def make(start: int, n: int) -> list[Any]:
        made = {} if number is None else {"graph id": number(n)}
        return [
            call("cudaGraphLaunch", start + 12, 4, correlation=1_000 * n + 700),
            *(kernel(f"g{k}", start + 18 + 10 * k, 9, correlation=1_000 * n + 700, **made) for k in range(2)),
        ]

    return make


def wait(start: int, n: int) -> list[Any]:
    return [call("cudaDeviceSynchronize", start, 1)]


def blocked(start: int, n: int) -> list[Any]:
    return [call("cudaStreamSynchronize", start, 1)]


def is_noted(report: Report) -> bool:
    return [note.count for note in report.notes if note.code == "unproven-steps"] == [10]


LAYERS = {
    "offloaded weights": [from_host(HIDDEN * WIDTH * 4, 40)],
    "offloaded weights, by their shape": [from_host(HIDDEN * WIDTH * 4, 2, [WIDTH, HIDDEN]), product],
    "offloaded weights, the device waited for": [from_host(HIDDEN * WIDTH * 4, 40), wait],
    "a number from the host": [from_host(8)],
    "a mask from the host": [from_host(TOKENS * TOKENS * 4, 2, [TOKENS, TOKENS]), product],
    "a graph each": [graph(lambda n: n + 1)],
    "a graph whose number is not recorded": [graph(None)],
    "relative positions": [lookup(32, 64), product, blocked],
    "relative positions without shapes": [lookup(), blocked],
    "rotations by position": [lookup(32_768, 128), product, blocked],
    "a lookup of each layer in a pass": [inside(lookup()), layers(with_lookup=True), blocked],
    "a number before layers": [from_host(8), layers()],
}
PASSES = {
    "an input, by its shape": [from_host(TOKENS * HIDDEN * 4, 2, [4, TOKENS // 4, HIDDEN]), product],
    "an input, by its size": [from_host(TOKENS * HIDDEN * 4)],
    "an input, and the device waited for": [from_host(8), wait],
    "the same graph": [graph(lambda n: 7)],
    "a lookup before layers": [inside(lookup()), layers(), blocked],
    "a lookup before layers, without its operator": [alone("embedding_kernel"), layers(), blocked],
    "pooled lookups": [alone("void EmbeddingBag_updateOutputKernel_sum_mean<float>()"), blocked],
    "an input of few bytes before layers": [from_host(TOKENS * 8), layers()],
    "a lookup of a vocabulary": [lookup(32_000, HIDDEN), product, blocked],
    "a lookup in a small table that enters": [lookup(100, HIDDEN), product, blocked],
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", LAYERS)
def test_what_layers_do_too_proves_no_steps(name: str) -> None:
    report = analysed(repeated(*LAYERS[name]))
    assert (report.steps_from, report.steps) == (None, ())
    assert report.verdict.window is not None
    assert report.verdict.window.kind == "whole"
    assert is_noted(report), "but it is noted"


@pytest.mark.sampled
@pytest.mark.parametrize("name", PASSES)
def test_what_only_passes_do_proves_steps(name: str) -> None:
    report = analysed(repeated(*PASSES[name]))
    assert report.steps_from == "kernel sequence"
    assert len(report.steps) in (10, 11), "one more where the cut is within a pass"
    assert not is_noted(report)


def test_functional_layers_that_fetch_their_weights_in_one_frame_are_no_steps() -> None:
    """Check that functional layers that fetch their weights in one frame are no steps.

    A loop over layers calls one function for each, as a loop over batches does.
    """
    frames = [python("net.py(3): forward", 0, 3_200), [python("net.py(12): F", 300 * n + 1, 280) for n in range(10)]]
    report = analysed(frames, repeated(from_host(HIDDEN * WIDTH * 4, 40)))
    assert report.steps_from is None
    assert is_noted(report)


def test_what_has_no_rhythm_or_is_enclosed_is_not_noted() -> None:
    events = [e | {"ts": e["ts"] + 50} for e in repeated(from_host(8))]
    assert not is_noted(analysed(annotation("forward", 0, 4_000), events))


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["layer {}", "block_{}", "encoder.layers.{}.mlp", "Attention"])
def test_annotations_that_name_layers_mark_no_steps(name: str) -> None:
    layers = [annotation(name.format(n), 300 * n + 1, 295) for n in range(10)]
    assert analysed(repeated(from_host(8)), layers).steps_from is None


def test_damaged_shapes_prove_nothing() -> None:
    for dims in ([[TOKENS, -1], "x"], [[], [2**60, 2**60]], [[TOKENS]], "no list"):
        shapes = {"Input Dims": dims, "Input type": ["float"]}
        calls = [op("aten::mm", 300 * n + 38, 12, **shapes) for n in range(10)]
        assert analysed(repeated(from_host(8)), calls).steps_from is None


def in_turns(count: int = 8, *kinds: tuple[str, ...]) -> list[Any]:
    """Build passes of several kinds in turns, each of these kernels, and each waited for."""
    correlation, at, events = 0, 0, []
    for n in range(count * len(kinds)):
        events.append(call("cudaStreamSynchronize", at, 1))
        for name in kinds[n % len(kinds)]:
            correlation += 1
            events.append(launched(name, at + 10, at + 20, 8, correlation))
            at += 15
        at += 40
    return spread(events)


@pytest.mark.parametrize(
    "kinds",
    [
        [("gemm", "relu", "gemm", "norm"), ("gemm", "relu", "relu", "relu", "gemm", "relu", "norm", "norm")],
        [("gemm", "relu"), ("gemm", "gemm", "gemm", "relu"), ("relu", "gemm", "relu", "relu", "relu")],
    ],
)
def test_two_kinds_of_passes_in_turns_are_noted(kinds: list[tuple[str, ...]]) -> None:
    report = analysed(in_turns(8, *kinds))
    assert report.steps_from is None
    assert [note.count for note in report.notes if note.code == "unproven-steps"] in ([8], [9])
