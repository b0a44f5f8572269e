"""Edges of the replay's graph, one recording each: what a call waited for, and what it did not."""

import numpy as np
import pytest
from kineto import analysed, call, copy, launched

from trace_analyzer.replay.graph import RETURN
from trace_analyzer.replay.prediction import Replay


def copied(direction: str, copy_ends_before_call: int, length: int = 100) -> Replay:
    """Copies of pageable memory by calls of 400 us, each between two kernels."""
    return Replay.of(
        analysed(
            [
                [launched("k", 1_000 * n, 1_000 * n + 10, 20, 2 * n + 1),
                 call("cudaMemcpyAsync", 1_000 * n + 50, 400, correlation=2 * n + 2),
                 copy(direction, 1_000 * n + 450 - copy_ends_before_call - length, length, correlation=2 * n + 2)]
                for n in range(30)
            ]
        ),
        0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("direction", "ends_before", "waits"),
    [
        ("HtoD (Pageable -> Device)", 5, True),
        ("HtoD (Pageable -> Device)", 150, False),
        ("DtoH (Device -> Pageable)", 5, True),
        ("DtoH (Device -> Pageable)", 150, True),
    ],
)
def test_a_call_that_returns_long_after_its_copy_to_the_device_did_not_wait_for_it(
    direction: str, ends_before: int, waits: bool
) -> None:
    """Its bytes are staged when it returns; what comes from the device must have arrived."""
    graph = copied(direction, ends_before).graph
    assert (graph.kind == RETURN).any() == waits
    assert np.all(graph.rest[graph.kind == RETURN] >= 0)


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_a_round_trip_of_staged_copies_leads_back(target: str) -> None:
    """On a device twice as fast, copies end long before the calls that stage their bytes."""
    assert copied("HtoD (Pageable -> Device)", -45, 300).round_trip_of(target) < 0.001
