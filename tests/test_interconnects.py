"""Test interconnects: each device has one or shares its memory with the CPU, and figures are plausible."""

import re

import pytest

from trace_analyzer.catalog.devices import Interconnect, devices, interconnects, interconnects_of

NAMES = {device.name for device in devices()}


@pytest.mark.parametrize("row", interconnects(), ids=lambda row: f"{row.kind}-{row.devices[0]}")
def test_a_row_names_known_devices_and_its_source(row: Interconnect) -> None:
    assert set(row.devices) <= NAMES
    assert len(set(row.devices)) == len(row.devices)
    assert row.source
    both = re.search(r"([\d.]+) (GB|TB)/s bidirectional", row.source)
    if both:  # datasheets add up both directions
        assert row.gbps == pytest.approx(float(both[1]) * (1000 if both[2] == "TB" else 1) / 2, rel=0.01)
    per_link = row.gbps / row.links
    assert per_link <= {"nvlink": 50, "xgmi": 76.8, "xelink": 26.5, "c2c": 450, "pcie": 121}[row.kind]


def test_no_device_has_two_interconnects_of_a_kind() -> None:
    pairs = [(row.kind, name) for row in interconnects() for name in row.devices]
    assert len(set(pairs)) == len(pairs)


def test_every_device_reaches_the_host() -> None:
    alone = {device.name for device in devices() if not interconnects_of(device.name)}
    shared = {device.name for device in devices() if "shared with the CPU" in device.caveat}
    assert alone <= shared


def test_the_fastest_comes_first() -> None:
    assert [row.kind for row in interconnects_of("H100 SXM")] == ["nvlink", "pcie"]
    assert interconnects_of("H100 SXM")[0].byte_per_s == 450e9
    assert interconnects_of("no such device") == ()
