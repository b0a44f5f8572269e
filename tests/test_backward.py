"""Backward operators find their forward operator, and its module."""

from typing import Any

import pytest
from kineto import Event, flow, loaded, op, python, rows

from trace_analyzer.analyses.backward import backward_links
from trace_analyzer.analyses.host import host_of

BACKWARD = 7


def forward(name: str, start: float, number: int | None) -> Event:
    return op(name, start, 2, **_numbered(number, thread=0))


def backward(name: str, start: float, number: int | None) -> Event:
    return op(name, start, 2, tid=BACKWARD, **_numbered(number, thread=1))


def _numbered(number: int | None, thread: int) -> dict[str, Any]:
    return {} if number is None else {"Sequence number": number, "Fwd thread id": thread}


def pairs(*events: Any) -> list[tuple[Any, ...]]:
    trace = loaded(*events)
    names = trace.host_events.select("event_id", "name")
    links = backward_links(trace, host_of(trace))
    named = links.join(names, on="event_id").join(names, left_on="forward_id", right_on="event_id", suffix="_forward")
    return rows(named.sort("name"), "name", "name_forward", "module")


def test_the_last_forward_operator_of_a_number_made_the_node() -> None:
    assert pairs(forward("aten::empty", 1, 5), forward("aten::mm", 4, 5), backward("MmBackward0", 20, 5)) == [
        ("MmBackward0", "aten::mm", None)
    ]


def test_numbers_that_start_again_belong_to_the_last_before() -> None:
    events = [
        forward("aten::a", 1, 5),
        backward("ABackward", 5, 5),
        forward("aten::b", 10, 5),
        backward("BBackward", 15, 5),
    ]
    assert pairs(*events) == [("ABackward", "aten::a", None), ("BBackward", "aten::b", None)]


def test_arrows_tell_where_numbers_are_missing() -> None:
    tail, head = forward("aten::mm", 1, None), backward("MmBackward0", 9, None)
    assert pairs(tail, head, flow(1, tail, head, category="fwdbwd")) == [("MmBackward0", "aten::mm", None)]
    assert pairs(tail, head) == []


@pytest.mark.parametrize(("start", "module"), [(5, "Linear_0"), (2, "MLP_0"), (30, None)])
def test_the_module_is_the_innermost_around_the_forward_operator(start: float, module: str | None) -> None:
    frames = [
        python("nn.Module: MLP_0", 1, 20),
        python("model.py(3): forward", 2, 18),
        python("nn.Module: Linear_0", 4, 6),
    ]
    assert pairs(*frames, forward("aten::mm", start, 1), backward("MmBackward0", 50, 1)) == [
        ("MmBackward0", "aten::mm", module)
    ]


def test_an_arrow_id_that_everything_shares_is_no_cross_product() -> None:
    """Check two thousand arrows of one id between two thousand operators at each end: 10^13 pairs otherwise."""
    ones = [op("forward", 1, 2) for _ in range(2_000)]
    others = [op("backward", 10, 2) for _ in range(2_000)]
    arrows = [flow(1, ones[0], others[0], category="fwdbwd") for _ in range(2_000)]
    trace = loaded(ones, others, arrows)
    links = backward_links(trace, host_of(trace))
    assert (links.height, links.get_column("forward_id").unique().to_list()) == (2_000, [0])
