"""Test the work of host events by name: its ranks, other names, and names of many runtimes."""

import polars as pl
import pytest

from trace_analyzer.catalog.event_names import (
    BLOCKING,
    host_work,
)
from trace_analyzer.vocabulary import NAMED_WORK


def named(kind: str, *names: str) -> dict[str, str]:
    """Name -> work of those that a rule names."""
    table = host_work(
        pl.DataFrame({"kind": [kind] * len(names), "name": names}, schema={"kind": pl.String, "name": pl.String})
    )
    return dict(table.select("name", "work").iter_rows())


def test_named_work_keeps_its_ranks() -> None:
    """Added entries may stand anywhere among these."""
    ranked = (
        "data-loading",
        "compilation",
        "graph-capture",
        "allocation",
        "garbage-collection",
        "blocking-copy",
        "profiler",
        "host-wait",
    )
    assert tuple(work for work in NAMED_WORK if work in ranked) == ranked


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("operator", "cudaMalloc"), ("python", "cudaDeviceSynchronize"), ("runtime", "enumerate(DataLoader)#x"), ("overhead", ""),
        ("operator", "aten::embedding"), ("python", "model.py(3): load_state_dict"), ("runtime", "cudaMemcpyAsync"),
        ("annotation", "torch/_dynamo/eval_frame.py(1): _fn"), ("operator", "x" * 100_000 + "dataloader.py(1): __next__"),
    ],
)  # fmt: skip
def test_names_that_say_nothing(kind: str, name: str) -> None:
    assert named(kind, name) == {}


@pytest.mark.parametrize(
    ("kind", "name", "work"),
    [
        ("runtime", "cudaFreeHost", "allocation"), ("runtime", "hipFree", "allocation"), ("driver", "cuMemAlloc_v2", "allocation"),
        ("runtime", "cudaMallocAsync", "allocation"), ("runtime", "hipStreamSynchronize", BLOCKING), ("driver", "cuEventSynchronize", BLOCKING),
        ("overhead", "Lazy Function Loading", "compilation"), ("overhead", "CUPTI Unknown", "profiler"),
    ],
)  # fmt: skip
def test_names_of_many_runtimes(kind: str, name: str, work: str) -> None:
    assert named(kind, name) == {name: work}
