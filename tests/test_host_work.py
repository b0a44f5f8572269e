"""Test rules that name the work of host events, against their own examples."""

import polars as pl
import pytest

from trace_analyzer.catalog.host_work import (
    BLOCKING,
    GUARDS,
    LOOKUP,
    HostWorkRule,
    host_work,
    host_work_rules,
)
from trace_analyzer.vocabulary import NAMED_WORK

KINDS = ("operator", "annotation", "python", "runtime", "driver", "overhead", "other")
every_rule = pytest.mark.parametrize("rule", host_work_rules(), ids=lambda rule: f"{rule.work}:{'+'.join(rule.kinds)}")


def named(kind: str, *names: str) -> dict[str, str]:
    """Name -> work of those that a rule names."""
    table = host_work(
        pl.DataFrame({"kind": [kind] * len(names), "name": names}, schema={"kind": pl.String, "name": pl.String})
    )
    return dict(table.select("name", "work").iter_rows())


@every_rule
def test_a_rule_names_its_examples_in_all_its_kinds(rule: HostWorkRule) -> None:
    assert rule.examples
    for kind in rule.kinds:
        assert named(kind, *rule.examples) == dict.fromkeys(rule.examples, rule.work)


@every_rule
def test_a_rule_leaves_its_counterexamples(rule: HostWorkRule) -> None:
    for kind in rule.kinds:
        assert rule.work not in named(kind, *rule.counterexamples).values()


@every_rule
def test_a_rule_is_well_formed(rule: HostWorkRule) -> None:
    assert rule.work in (*NAMED_WORK, BLOCKING, GUARDS, LOOKUP)
    assert set(rule.kinds) <= set(KINDS)
    assert not pl.Series(["§"]).str.contains(rule.pattern).any() or rule.pattern == "."


def test_named_work_keeps_its_ranks() -> None:
    """Check that named work keeps its ranks.

    Added entries may stand anywhere among these.
    """
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
