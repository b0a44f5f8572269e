"""Test the direction of copies by other names, and its effects."""

import polars as pl
from kineto import analysed, call, kernel, rows

from trace_analyzer.catalog.event_names import WITHIN_DEVICE, copy_direction, direction_rules


def directions(*names: str) -> set[str | None]:
    return set(pl.DataFrame({"name": names}).select(copy_direction()).to_series())


def test_other_names_tell_no_direction() -> None:
    assert directions("Memcpy S2D (Shared -> Device)", "Memcpy Unknown", "") == {None}
    assert WITHIN_DEVICE in {rule.name for rule in direction_rules()}


def test_copies_of_an_xpu() -> None:
    """Check that an XPU's copy within the device is memory work, and one from or to the host is a copy."""
    names = {
        "Memcpy M2D (Memory -> Device)": 0,
        "Memcpy D2D (Device -> Device)": 100,
        "Memcpy D2M (Device -> Memory)": 200,
    }
    pairs = [
        [call("urEnqueueUSMMemcpy", at, 5, correlation=at + 1, category="xpu_runtime"),
         kernel(name, at + 10, 20, category="gpu_memcpy", correlation=at + 1, bytes=100_000)] for name, at in names.items()
    ]  # fmt: skip
    report = analysed(pairs)
    assert report.tables["activities"].get_column("bound").to_list() == ["copy", "memory", "copy"]
    assert sorted(rows(report.tables["copies"], "direction", "bytes")) == [
        ("device-to-host", 100_000), ("host-to-device", 100_000), ("within-device", 100_000),
    ]  # fmt: skip
