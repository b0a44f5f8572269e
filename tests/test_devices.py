"""Test the device catalogue: the contract of every row, and the ways to look one up."""

import re
import tomllib
from pathlib import Path

import polars as pl
import pytest
from catalogue import examples
from kineto import A100, analysed, kernel, launched, op
from msgspec.structs import replace

from trace_analyzer.catalog import devices as catalog
from trace_analyzer.catalog.devices import PEAK_NAMES, Device, device_named, devices, find_device, with_overrides
from trace_analyzer.errors import UsageError
from trace_analyzer.report import Report

GIB = 2**30
EXAMPLES = examples("devices.toml")


def found_by_header(name: str, device: Device) -> Device | None:
    """Find the device by a header entry of this name and the device's properties, less some reserved memory."""
    return find_device(
        name,
        sm_count=device.sm_count,
        memory_bytes=int((device.memory_gib or 0) * 0.97 * GIB),
        compute_capability=device.compute_capability,
        warp_size=device.warp_size,
    )


def ascending(*peaks: float | None) -> bool:
    known = [peak for peak in peaks if peak is not None]
    return known == sorted(known)


def test_row_is_complete_and_plausible() -> None:
    rows = tomllib.loads(Path(catalog.__file__).with_suffix(".toml").read_text("utf-8"))["device"]
    assert len({frozenset(row) - {"aliases", "attainable", "caveat"} for row in rows}) == 1, "an unknown key"
    for device in devices():
        assert device.source
        assert device.architecture
        assert re.fullmatch(r"\d+\.\d|gfx[0-9a-f]+|intel_gpu_\w+", device.compute_capability or "")
        assert 6 <= (device.sm_count or 0) <= 320
        assert 3 <= (device.memory_gib or 0) <= 320
        assert 100 <= (device.memory_gbps or 0) <= 10_000
        assert 1 <= (device.l2_mib or 0) <= 256
        radeon = device.architecture.startswith("RDNA")
        assert device.warp_size == (32 if radeon else {"NVIDIA": 32, "AMD": 64, "Intel": 16}[device.vendor])
        most = 1000 if "shared with the CPU" in device.caveat else 500
        for dtype in ("fp32", "fp16") if device.peaks.fp16 else ("fp32",):
            assert 5 < (device.balance(dtype, matrix=False) or 0) <= (device.balance(dtype) or 0) < most


def test_peaks_of_a_row_agree_with_each_other() -> None:
    for device in devices():
        peaks = device.peaks
        assert peaks.fp32
        assert peaks.fp16
        assert ascending(peaks.fp64, peaks.fp64_matrix)
        assert ascending(peaks.fp64, peaks.fp32, peaks.fp32_matrix, peaks.tf32, peaks.fp16, peaks.fp8, peaks.fp4)
        assert ascending(peaks.fp16, peaks.int8) or device.compute_capability == "10.3"  # Blackwell Ultra gave up INT8
        assert peaks.bf16 in (None, peaks.fp16) or device.architecture == "CDNA"
        if peaks.fp8 and peaks.fp16:
            assert peaks.fp8 == pytest.approx(2 * peaks.fp16, rel=0.02), "sparse and dense figures mixed?"
        clock_hz = peaks.fp32 * 1e12 / (device.sm_count or 0)  # FP32 operations of one SM per second
        assert any(0.7e9 < clock_hz / per_clock < 3.0e9 for per_clock in (128, 256, 512)), "no such boost clock"


def test_what_a_vendor_s_best_matmuls_reach_is_below_the_peak() -> None:
    shares = {
        (device.name, dtype): share
        for device in devices()
        for dtype in PEAK_NAMES
        if (share := device.attainable_ratio(dtype)) is not None
    }
    assert shares["MI300X", "bf16"] == pytest.approx(0.5415, abs=1e-4)
    assert all(0.4 < share < 0.8 for share in shares.values()), "above that, GOOD_ROOF_RATIO says enough"
    own = with_overrides(device_named("MI300X"), {"bf16": 900}, None)
    assert own is not None
    assert own.attainable_ratio("bf16") is None, "a share of the listed peak says nothing of another one"
    assert own.attainable_ratio("fp16") == shares["MI300X", "fp16"]


RATIOS: tuple[tuple[str, str, dict[str, tuple[float, ...]]], ...] = (
    ("bf16", "tf32", {"": (2,)}),  # TF32 takes twice the passes of bfloat16, on every tensor core that has it
    ("int8", "fp16", {"NVIDIA": (2, 4), "CDNA ": (1,), "CDNA2": (1,), "RDNA3": (1,), "": (1, 2)}),  # 4: GeForce, FP32 accumulation at half rate
    ("fp4", "fp8", {"10.3": (3,), "": (2, 4)}),
    ("fp16", "fp32", {"Pascal 6.0": (2,), "Pascal 6.1": (1,), "Turing (GTX)": (2,), "GCN5": (2,), "Volta": (8,), "RDNA3": (2,)}),
    ("fp64", "fp32", {"NVIDIA": (1 / 2, 1 / 32, 1 / 64), "CDNA2": (1,), "CDNA": (1 / 2,), "RDNA3": (1 / 32,), "RDNA4": (1 / 64,), "GCN5": (1 / 2,)}),
    ("fp64_matrix", "fp64", {"Ampere 8.0": (2,), "CDNA2": (2,), "CDNA3": (2,), "": (1, 2)}),
)  # fmt: skip
"""Precision, its base, and the multiples that vendors' architectures have, by the first key that the row contains."""
OWN_RATIOS = {"H20", "H800 SXM", "B300", "GB300"}
"""Devices whose FP64 or INT8 rate has an individual reduction."""


def test_precisions_are_multiples_of_each_other() -> None:
    """A sparse figure, one of another clock or of another accumulation is another multiple than the architecture has."""
    for device in devices():
        words = f"{device.vendor} {device.architecture} {device.compute_capability}"
        for precision, of, known in RATIOS:
            peak, base = (getattr(device.peaks, name) for name in (precision, of))
            multiples = next((known[key] for key in known if key in words), ())
            if peak and base and multiples and not (device.name in OWN_RATIOS and precision in ("fp64", "int8")):
                nearest = min(multiples, key=lambda multiple: abs(peak / base / multiple - 1))
                assert peak / base == pytest.approx(nearest, rel=0.07), (device.name, precision, of)


def test_examples_find_their_row_and_no_other() -> None:
    for device in devices():
        size = (device.sm_count, device.memory_gib)
        like = [other for other in devices() if other is not device and (other.sm_count, other.memory_gib) == size]
        patterns = [pattern for other in like for pattern in other.patterns]
        assert EXAMPLES[device.name]
        for example in EXAMPLES[device.name]:
            assert found_by_header(example, device) is device
            assert [each for each in patterns if re.fullmatch(each, example, re.IGNORECASE)] == []


def test_user_can_name_every_row_by_names_that_are_unique() -> None:
    for device in devices():
        own = (device.name, device.name.lower().replace(" ", "-"), f"{device.vendor} {device.name}", *device.aliases)
        assert [device_named(spelling) for spelling in own] == [device] * len(own)
    spellings = [catalog._key(text) for device in devices() for text in (device.name, *device.aliases)]
    assert len(spellings) == len(set(spellings))


@pytest.mark.parametrize(
    ("name", "memory_bytes", "capability", "warp_size", "sm_count", "expected"),
    [
        ("NVIDIA A100-PG509-200", 42297524224, "8.0", 32, 108, ("A100 SXM 40GB", "name")),
        ("NVIDIA A100-PG509-200", 42505273344, "8.0", 32, 108, ("A100 SXM 40GB", "name")),
        ("NVIDIA A100-PG509-200", 84990623744, "8.0", 32, 108, ("A100 SXM 80GB", "name")),
        ("NVIDIA A100-SXM4-80GB", 84990623744, "8.0", 32, 108, ("A100 SXM 80GB", "name")),
        ("Tesla V100-DGXS-32GB", 34087305216, "7.0", 32, 80, ("V100 SXM2 32GB", "name")),
        ("NVIDIA H100 80GB HBM3", 85045477376, "9.0", 32, 132, ("H100 SXM", "name")),
        ("NVIDIA GH200 480GB", 102005473280, "9.0", 32, 132, ("GH200 96GB", "name")),
        ("NVIDIA B200", 191503138816, "10.0", 32, 148, ("B200", "name")),
        ("Tesla T4", 15828320256, "7.5", 32, 40, ("T4", "name")),
        ("AMD Instinct MI300X VF", 206141652992, "9.4", 64, 304, ("MI300X", "name")),
        ("AMD Instinct MI250X/MI250", 68702699520, "9.0", 64, 110, ("MI250X GCD", "name")),
        ("AMD Instinct MI250X/MI250", 68702699520, "9.0", 64, 104, ("MI250 GCD", "name")),
        # Without a name: one row alone has these properties, and no other figures are possible.
        ("", 206141652992, "9.4", 64, 304, ("MI300X", "properties")),
        (" ", 206141652992, "gfx942", 64, 304, ("MI300X", "properties")),
        (None, 206141652992, "gfx942", 64, 304, ("MI300X", "properties")),
        ("AMD Radeon Graphics", 274861129728, "9.4", 64, 304, ("MI325X", "properties")),
        ("NVIDIA Graphics Device", 191503138816, "10.0", 32, 148, ("B200", "properties")),
        # Without a name, but the SXM form has more bandwidth than the one for PCIe.
        ("", 84990623744, "8.0", 32, 108, ("A100 SXM 80GB", "likeness")),
        # With another name: the laptop's RTX 4090 has an RTX 4080's properties, and two thirds of its bandwidth.
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 17170956288, "8.9", 32, 76, ("RTX 4080", "likeness")),
        ("NVIDIA X9000 Ultra", 206141652992, "9.4", 64, 304, ("MI300X", "likeness")),
        ("", 206141652992, "9.4", 32, 304, None),
        ("", 206141652992, "9.0", 64, 304, None),
        ("", 206141652992, "9.4", 64, 38, None),
        ("", None, "9.4", 64, 304, None),
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", 42297524224, "8.0", 32, 42, None),
        ("AMD Instinct MI300X", 206141652992, "9.4", 64, 38, None),
        ("ARTEMIS", None, None, None, None, None),
        ("", None, None, None, None, None),
    ],
)
def test_the_row_of_a_header_and_how_sure_the_match_is(
    name: str | None, memory_bytes: int | None, capability: str | None, warp_size: int | None, sm_count: int | None,
    expected: tuple[str, str] | None,
) -> None:  # fmt: skip
    actual = find_device(
        name, sm_count=sm_count, memory_bytes=memory_bytes, compute_capability=capability, warp_size=warp_size
    )
    assert (actual and (actual.name, actual.matched)) == expected
    if actual:
        assert replace(actual, matched="name") == device_named(actual.name)  # figures are the row's
        assert with_overrides(actual, {"bf16": 100.0}, None).matched == "name"


def products(devices: list[dict[str, object]], **options: object) -> Report:
    name, shapes = (
        "ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_32x6_tn",
        {"Input Dims": [[4096, 4096]] * 2, "Input type": ["c10::Half"] * 2},
    )
    events = [
        [op("aten::mm", 20 * n, 15, **shapes), launched(name, 20 * n + 2, 1000 + 500 * n, 490, n + 1, grid=[500, 1, 1])]
        for n in range(12)
    ]
    return analysed(events, kernel("volta_sgemm_128x64_nn", 8000, 5), devices=devices, **options)


UNKNOWN = A100 | {"name": "NVIDIA X9000"}
BY_LIKENESS, BY_KERNELS = "as other devices may (name the device", "names no device"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("devices", "options", "doubt"),
    [
        ([UNKNOWN], {}, BY_LIKENESS), ([UNKNOWN], {"gpu": "a100"}, None), ([A100], {}, None), ([], {}, BY_KERNELS),
        ([], {"gpu": "h100"}, None),
    ],
)  # fmt: skip
def test_a_device_of_unknown_name_or_none_has_assumed_roofs_and_a_doubt_unless_the_user_names_it(
    devices: list[dict[str, object]], options: dict[str, object], doubt: str | None
) -> None:
    report = products(devices, **options)
    doubts = " ".join(report.verdict.confidence_why)
    assert [each for each in (BY_LIKENESS, BY_KERNELS) if each in doubts] == [doubt] * (doubt is not None)
    assert ("device-by-likeness" in {note.code for note in report.notes}) == (doubt == BY_LIKENESS)
    if doubt == BY_KERNELS:
        assert "A100 SXM 80GB" in doubts
        assert report.trace.devices[0].catalog_name is None


GPU_OPTIONS = {
    "H100 SXM": ["h100", "H100 SXM", "h100sxm5", "NVIDIA H100 80GB HBM3"],
    "H100 PCIe": ["nvidia h100 pcie"],
    "A100 SXM 80GB": ["a100", "a100-80gb"],
    "A100 SXM 40GB": ["a100 40GB"],
    "A100 PCIe 40GB": ["A100-PCIe-40GB", "40gb pcie a100"],
    "V100 SXM2 16GB": ["v100"],
    "RTX 4090": ["4090", "geforce rtx4090"],
    "RTX A6000": ["a6000"],
    "MI300X": ["mi300x"],
    "MI250X GCD": ["AMD Instinct MI250X"],
    "Max 1550 stack": ["Intel(R) Data Center GPU Max 1550"],
}


@pytest.mark.parametrize("name", GPU_OPTIONS)
def test_gpu_option(name: str) -> None:
    assert {device_named(query).name for query in GPU_OPTIONS[name]} == {name}


@pytest.mark.parametrize(
    ("query", "near"),
    [("rtx", ["RTX 4090", "RTX A6000"]), ("mi301x", ["MI300X"]), ("80gb", ["A100 SXM 80GB"]), ("", ["H100 SXM"])],
)
def test_gpu_option_that_names_no_single_device_lists_the_near_ones(query: str, near: list[str]) -> None:
    with pytest.raises(UsageError) as error:
        device_named(query)
    assert all(name in str(error.value) for name in near)


def test_peaks_of_the_article() -> None:
    a100 = device_named("a100 40gb")
    assert a100.peak_flops("bf16") == 312e12
    assert a100.peak_flops("bf16", matrix=False) == a100.peak_flops("fp32") == 19.5e12
    assert a100.peak_flops("fp64") == 19.5e12
    assert a100.peak_flops("fp64", matrix=False) == 9.7e12
    assert a100.bandwidth == 1555e9
    assert a100.balance("bf16") == pytest.approx(200.6, abs=0.1)
    assert a100.balance("fp32", matrix=False) == pytest.approx(12.5, abs=0.1)
    assert a100.peak_flops("fp8") is None
    assert a100.balance("complex64") is None
    assert a100.peak_flops("int8", matrix=False) is None


def test_overrides() -> None:
    a100 = device_named("a100")
    assert with_overrides(a100, {}, None) is a100
    assert with_overrides(None, {}, None) is None
    slower = with_overrides(a100, {"bf16": 250.0}, 1800.0)
    assert (slower.peak_flops("bf16"), slower.peak_flops("fp32"), slower.bandwidth) == (250e12, 19.5e12, 1800e9)
    assert "bf16, bandwidth: given by the user" in slower.source
    unlisted = with_overrides(None, {"bf16": 148.0}, None)
    assert unlisted.peaks == catalog.Peaks(bf16=148.0)
    assert (unlisted.bandwidth, unlisted.balance("bf16"), unlisted.sm_count) == (None, None, None)
    for peaks, rate in (({"bfloat17": 1.0}, None), ({"bf16": 0.0}, None), ({"bf16": float("nan")}, None), ({}, -1.0)):
        with pytest.raises(UsageError):
            with_overrides(None, peaks, rate)


def test_the_newest_counts_as_libraries_reuse_kernels() -> None:
    names = [
        "volta_sgemm_128x64_nn",
        "sm80_xmma_gemm_bf16bf16",
        "sm90_xmma_gemm_bf16bf16",
        "kernel",
        "void kernel<float>()",
    ]
    kernels = pl.DataFrame({"device": [0, 0, 0, 0, 1], "name": names})
    assert catalog.architectures_of(kernels) == {0: next(row for row in catalog.architectures() if row.id == "Hopper")}
    assert catalog.architectures_of(kernels.clear()) == {}


def test_interconnects_have_known_devices_a_source_and_plausible_rates() -> None:
    for row in catalog.interconnects():
        both = re.search(r"([\d.]+) (GB|TB)/s bidirectional", row.source)
        if both:  # datasheets add up both directions
            assert row.gbps == pytest.approx(float(both[1]) * (1000 if both[2] == "TB" else 1) / 2, rel=0.01)
        assert row.source
        most = {"nvlink": 50, "xgmi": 76.8, "xelink": 26.5, "c2c": 450, "pcie": 121}
        assert row.gbps / row.links <= most[row.kind]
        for name in row.devices:
            assert row.gbps < (device_named(name).memory_gbps or 0), "a peer or host is farther than memory"
    pairs = [(row.kind, name) for row in catalog.interconnects() for name in row.devices]
    assert len(set(pairs)) == len(pairs)
    assert {name for _, name in pairs} <= {device.name for device in devices()}


def test_every_device_reaches_the_host_and_the_fastest_way_comes_first() -> None:
    alone = {device.name for device in devices() if not catalog.interconnects_of(device.name)}
    assert alone <= {device.name for device in devices() if "shared with the CPU" in device.caveat}
    assert [row.kind for row in catalog.interconnects_of("H100 SXM")] == ["nvlink", "pcie"]
    assert catalog.interconnects_of("H100 SXM")[0].byte_per_s == 450e9
    assert catalog.interconnects_of("no such device") == ()
