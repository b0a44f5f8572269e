"""Small files with many names, which cost a careless program far more than their bytes."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from kineto import A100, Event, annotation, flow, kernel, launched, op


def _file(*events: Event | Sequence[Event], **more: Any) -> bytes:
    flat = [row for rows in events for row in ([rows] if isinstance(rows, dict) else rows)]
    return json.dumps({"deviceProperties": [A100], "traceEvents": flat} | more, separators=(",", ":")).encode()


def _launches(count: int, **more: Any) -> list[list[Event]]:
    return [list(launched("k", 20 * n + 1, 20 * n + 8, 4, n + 1, **more)) for n in range(count)]


def a_few_launches() -> bytes:
    """Build an ordinary trace, to compare with."""
    return _file(*_launches(10))


def devices_and_steps() -> bytes:
    marks = [annotation(f"ProfilerStep#{n}", 100 * n, 90) for n in range(1_000)]
    return _file(marks, [row for d in range(256) for row in launched("k", 9 * d, 9 * d + 3, 4, d + 1, device=d)])


def processes(one_correlation_id: bool = False) -> bytes:
    pairs = _launches(1_200)
    for n, (call, work) in enumerate(pairs):
        call["pid"] = n
        if one_correlation_id:
            call["args"]["correlation"] = work["args"]["correlation"] = 1
    return _file(*pairs)


def processes_of_one_correlation_id() -> bytes:
    return processes(one_correlation_id=True)


def contexts() -> bytes:
    pairs = _launches(1_200)
    for n, (call, work) in enumerate(pairs):
        call["pid"] = n % 40
        work["args"]["context"] = n
    return _file(*pairs)


def threads() -> bytes:
    pairs = _launches(1_200)
    for n, (call, _) in enumerate(pairs):
        call["tid"] = n
    return _file(*pairs)


def streams() -> bytes:
    pairs = _launches(1_200)
    for n, (_, work) in enumerate(pairs):
        work["tid"] = work["args"]["stream"] = n
    return _file(*pairs)


def one_correlation_id() -> bytes:
    pairs = _launches(1_200)
    for call, work in pairs:
        call["args"]["correlation"] = work["args"]["correlation"] = 1
    return _file(*pairs)


def one_flow_id() -> bytes:
    pairs = _launches(600)
    ends = [flow(1, call, work) for call, work in pairs]
    return _file(*pairs, *ends)


def names_of_their_own() -> bytes:
    return _file([kernel(f"kernel_{n}", 10 * n, 5, correlation=n + 1) for n in range(2_500)])


def long_names() -> bytes:
    return _file([kernel(f"{n}" + "a" * 5_000, 10 * n, 5, correlation=n + 1) for n in range(80)])


def long_operator_names() -> bytes:
    return _file([op(f"{n}" + "a" * 5_000, 20 * n, 15) for n in range(80)], *_launches(80))


def one_very_long_name() -> bytes:
    return _file([kernel("a<b<" * 100_000, 10 * n, 5, correlation=n + 1) for n in range(1)], *_launches(10))


def long_step_names() -> bytes:
    marks = [annotation(f"ProfilerStep#{n}" + "9" * 3_000, 20 * n, 19) for n in range(100)]
    return _file(marks, *_launches(100))


def nested_operators() -> bytes:
    return _file([op(f"op{n}", n, 10_000 - 2 * n) for n in range(3_000)], *_launches(100))


def overlapping_kernels() -> bytes:
    return _file([kernel("k", n, 10_000, correlation=n + 1, stream=7) for n in range(2_500)])


def device_properties() -> bytes:
    return _file(*_launches(10), deviceProperties=[A100 | {"id": n} for n in range(2_000)])


def annotations_of_their_own() -> bytes:
    return _file([annotation(f"part {n}", 20 * n, 19) for n in range(1_500)], *_launches(1_000))


SHAPES: tuple[Callable[[], bytes], ...] = (
    devices_and_steps, processes, processes_of_one_correlation_id, contexts, threads, streams, one_correlation_id,
    one_flow_id, names_of_their_own, long_names, long_operator_names, one_very_long_name, long_step_names,
    nested_operators, overlapping_kernels, device_properties, annotations_of_their_own,
)  # fmt: skip
