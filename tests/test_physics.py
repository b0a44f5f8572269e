"""Test that no figure exceeds what a device can do: impossible sizes, work and shares are unknown, with a note."""

import json
from typing import Any

import pytest
from kineto import A100, Event, annotation, copy, launched, memset, notes, op, trace_bytes

from trace_analyzer.pipeline import analyze
from trace_analyzer.report import Report

pytestmark = pytest.mark.slow


def program(*, dims: Any = ((1024, 1024), (1024, 768)), extra: tuple[Event, ...] = ()) -> Report:
    """Analyse six steps of ten matmuls of 95 us with the given shapes."""
    events: list[Any] = [annotation(f"ProfilerStep#{number}", 1_000 * number, 999) for number in range(6)]
    for number in range(60):
        step, place = divmod(number, 10)
        at = 1_000 * step + 10 * place
        events.append(op("aten::mm", at, 9, **{"Input Dims": dims, "Input type": ["float", "float"]}))
        events.append(
            launched("ampere_sgemm_128x64_tn", at + 2, 1_000 * step + 20 + 96 * place, 95, number + 1, takes=3)
        )
    return analyze(trace_bytes([*events, *extra], deviceProperties=[A100]))


def beyond(value: Any, place: str = "") -> list[str]:
    """Return the places of negative sizes, of shares over 1 (but for rounding) and of numbers that overflow."""
    if isinstance(value, dict):
        return [where for key, inner in value.items() for where in beyond(inner, f"{place}.{key}")]
    if isinstance(value, list):
        return [where for inner in value for where in beyond(inner, place)]
    name = place.rpartition(".")[2]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return []
    share = name.endswith("_ratio") or name in {"mfu", "mfu_at_most", "hfu"}
    sized = any(word in name for word in ("bytes", "flop", "elements", "byte_per_s"))
    rate = name == "achieved_flop_per_s" and value > 1.05 * 19.5e12  # of an A100 in FP32
    return [f"{place} {value}"] * (rate or (share and value > 1.05) or (sized and not 0 <= value < 1e30))


@pytest.mark.sampled
@pytest.mark.parametrize("size", [10**4, 10**5, 10**6, 2**31, 2**40])
def test_work_that_no_device_can_do_is_unknown(size: int) -> None:
    report = program(dims=[[size, size], [size, size]])
    assert beyond(json.loads(report.to_json())) == []
    assert report.devices[0].mfu is None
    assert notes(report).keys() <= {"impossible-work", "damaged-operator-inputs"}
    assert sum(notes(report).values()) == 60
    assert report.verdict.confidence != "high"


def test_possible_work_is_kept() -> None:
    report = program()
    assert report.devices[0].mfu == pytest.approx(0.87 * 0.95, abs=0.02)
    assert not notes(report).keys() & {"impossible-work", "implausible-size"}


@pytest.mark.sampled
@pytest.mark.parametrize("size", [-1, -24_576, -(2**62), 2**43, 2**62, 2**63 - 1])
@pytest.mark.parametrize(
    "what", ["HtoD (Pageable -> Device)", "DtoD (Device -> Device)", "PtoP (Device -> Device)", "memset"]
)
def test_sizes_that_cannot_be_are_unknown(size: int, what: str) -> None:
    starts = range(7_000, 7_180, 20)
    odd = [memset(at, 10, bytes=size) if what == "memset" else copy(what, at, 10, bytes=size) for at in starts]
    report = program(extra=tuple(odd))
    assert notes(report)["implausible-size"] == 9
    assert beyond(json.loads(report.to_json())) == []
    for name, table in report.tables.items():
        if "bytes" in table.columns and name != "memory_events":
            assert (table.get_column("bytes").drop_nulls() >= 0).all(), name


def test_a_copy_faster_than_its_link_has_no_share_of_it() -> None:
    fast = tuple(copy("HtoD (Pinned -> Device)", 7_000 + 20 * i, 10, bytes=2**30) for i in range(9))
    assert beyond(json.loads(program(extra=fast).to_json())) == []
