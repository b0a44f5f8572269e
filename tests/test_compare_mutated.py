"""Test laws of comparisons on recordings with typical differences: kernels, steps and inputs."""

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from compare_sides import Program
from hypothesis import HealthCheck, example, given, settings, strategies as st
from test_compare import is_zero, sums_are_exact, swap_flips_every_sign
from tiers import examples

from trace_analyzer.compare import comparison, decomposition, profiles
from trace_analyzer.pipeline import analyze

Event = dict[str, Any]
Mutation = Callable[[list[Event]], list[Event]]
KERNELS = Program(layers=3).layers * 3


@cache
def recorded() -> bytes:
    return Program(steps=5, layers=3, loading_ns=300_000, scatter=0.1).trace()


@cache
def read(content: bytes, **changes: Any) -> profiles.Profile:
    return profiles.profile_of(analyze(content, **changes))


def compare(before: bytes, after: bytes) -> comparison.Comparison:
    """Compare recordings that can be read again, as whole ones where only one of them holds two whole steps."""
    return decomposition.compare_read(lambda **changes: [read(side, **changes) for side in (before, after)])


def correlation(event: Event) -> object:
    return event.get("args", {}).get("correlation")


def is_kernel(event: Event, name: str = "") -> bool:
    return event.get("cat") == "kernel" and (not name or event["name"] == name)


def without_kernel(place: int) -> Mutation:
    """Take one kernel of each step away, with its launch."""

    def mutate(events: list[Event]) -> list[Event]:
        gone = {correlation(event) for event in [e for e in events if is_kernel(e)][place::KERNELS]}
        return [event for event in events if correlation(event) not in gone or correlation(event) is None]

    return mutate


def renamed(place: int, category: str) -> Mutation:
    """Give all events of one name another, as a new version of a library or a program does."""

    def mutate(events: list[Event]) -> list[Event]:
        names = sorted({event["name"] for event in events if event.get("cat") == category})
        old = names[place % len(names)]
        same = [event.get("cat") == category and event["name"] == old for event in events]
        return [event | {"name": f"{old}_v2"} if is_old else event for event, is_old in zip(events, same, strict=True)]

    return mutate


def faster(place: int, factor: float) -> Mutation:
    """Make all kernels of one name take less time."""

    def mutate(events: list[Event]) -> list[Event]:
        names = sorted({event["name"] for event in events if is_kernel(event)})
        chosen = names[place % len(names)]
        return [e | {"dur": round(e["dur"] * factor, 3)} if is_kernel(e, chosen) else e for e in events]

    return mutate


def cut(steps: int) -> Mutation:
    """Leave out what comes after so many steps."""

    def mutate(events: list[Event]) -> list[Event]:
        starts = sorted(e["ts"] for e in events if str(e.get("name")).startswith("ProfilerStep") and e.get("ph") == "X")
        end = starts[steps] if steps < len(starts) else float("inf")
        return [event for event in events if event.get("ph") == "M" or event.get("ts", 0) < end]

    return mutate


def other_inputs(rows: int) -> Mutation:
    """Record other sizes of the same operators."""

    def mutate(events: list[Event]) -> list[Event]:
        text = json.dumps(events).replace("[32, 1024]", f"[{rows}, 1024]")
        changed: list[Event] = json.loads(text)
        return changed

    return mutate


mutations = st.lists(
    st.one_of(
        st.builds(without_kernel, st.integers(0, KERNELS - 1)),
        st.builds(renamed, st.integers(0, 5), st.sampled_from(["kernel", "cpu_op"])),
        st.builds(faster, st.integers(0, 5), st.floats(0.1, 1.0)),
        st.builds(cut, st.integers(3, 4)),
        st.builds(other_inputs, st.integers(1, 4096)),
    ),
    min_size=1,
    max_size=4,
)


def mutated(changes: list[Mutation]) -> bytes:
    document = json.loads(recorded())
    for change in changes:
        document["traceEvents"] = change(document["traceEvents"])
    return json.dumps(document).encode()


@pytest.mark.slow
@given(mutations)
@example([without_kernel(0), cut(3)])
@settings(max_examples=examples(8), suppress_health_check=list(HealthCheck), deadline=None)
def test_laws_of_recordings_that_differ_as_programs_do(changes: list[Mutation]) -> None:
    """Check that no remainder is left, every sign flips with the sides, and nothing differs from itself."""
    before, after = recorded(), mutated(changes)
    assert is_zero(compare(after, after))
    result, swapped = compare(before, after), compare(after, before)
    assert result.status == swapped.status == "ok", result.reason
    sums_are_exact(result)
    swap_flips_every_sign(result, swapped)
