"""List the limits of GPUs: peaks, bandwidth and size, with their sources.

The figures are in ``devices.toml``, whose header comment defines them. This module finds the row for a trace's header,
for a user's ``--gpu``, or for the architecture in names of kernels (``architectures.toml``), and the bandwidth to peers
and host (``interconnects.toml``).
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from trace_analyzer import errors, json_types
from trace_analyzer.catalog import NAME_LIMIT, matches, rows

MEMORY_SHARE = (0.9, 1.01)
"""Range of a header's memory size relative to the nominal capacity: ECC and the driver reserve some."""

NAMELESS = (
    r"(AMD |ATI )?Radeon Graphics|(NVIDIA )?Graphics Device|(Intel(\(R\))? )?(Data Center )?Graphics( \[0x\w+\])?"
)
"""Names that drivers write for unknown devices (ROCm without its table of names, an engineering board)."""

Matched = Literal["name", "properties", "likeness"]
"""How a row was found: ``name``; ``properties``, where the header has no name and all matching rows have the same
figures; or ``likeness``, by properties although the header has another name or matching rows differ in figures."""

_VENDOR_WORDS = {"nvidia", "amd", "intel", "r", "tesla", "geforce", "quadro", "instinct"}


class Peaks(Struct, frozen=True):
    """Peak dense TFLOP/s (1e12 per second) by dtype; None where unsupported or unknown.

    ``fp64`` and ``fp32`` are rates of the vector units, all others of the tensor cores.
    """

    fp64: float | None = None
    fp64_matrix: float | None = None
    fp32: float | None = None
    fp32_matrix: float | None = None
    tf32: float | None = None
    bf16: float | None = None
    fp16: float | None = None
    fp8: float | None = None
    fp4: float | None = None
    int8: float | None = None


PEAK_NAMES = Peaks.__struct_fields__


class Device(Struct, frozen=True, kw_only=True):
    """One kind of device as PyTorch sees it: for example one die of an MI250X.

    Rows of the catalogue are complete; None occurs only in devices that a user defined by overrides.
    """

    name: str
    vendor: str
    architecture: str
    compute_capability: str | None
    """``"9.0"`` for NVIDIA, the compiler's target (``"gfx942"``) for AMD and Intel."""
    sm_count: int | None
    """Multiprocessors, compute units or Xe cores."""
    memory_gib: float | None
    """Nominal capacity, GiB."""
    memory_gbps: float | None
    """Peak DRAM bandwidth, GB/s (1e9)."""
    l2_mib: float | None
    """L2 cache of all slices, MiB."""
    warp_size: int | None
    """Threads that run in lockstep."""
    peaks: Peaks
    source: str
    """Document with the figures."""
    attainable: Peaks = Peaks()
    """TFLOP/s of the best matmuls that the vendor measured, where it publishes them."""
    caveat: str = ""
    """Caveats on the figures."""
    aliases: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    assumed: bool = False
    """Whether this row stands for an architecture inferred from kernel names (catalog/architectures.toml)."""
    matched: Matched = "name"
    """Which part of a header's entry determined the row (`find_device`)."""

    def peak_flops(self, dtype: str, matrix: bool = True) -> float | None:
        """Return peak FLOP/s of the tensor cores or the vector units; None where unsupported or unknown.

        ``dtype`` is ``fp64``, ``fp32``, ``tf32``, ``bf16``, ``fp16``, ``fp8``, ``fp4`` or ``int8``. FP64 and FP32
        matmuls run on the vector units where the tensor cores lack that precision: pass ``tf32`` when PyTorch was
        allowed to use it. Vector work on narrower floating types is computed in FP32, as PyTorch does.
        """
        names = (f"{dtype}_matrix", dtype) if matrix else (_VECTOR_TYPE.get(dtype, ""),)
        tflops: float | None = next(filter(None, (getattr(self.peaks, name, None) for name in names)), None)
        return None if tflops is None else tflops * 1e12

    def attainable_ratio(self, dtype: str) -> float | None:
        """Return the share of the tensor cores' peak that the vendor's best matmuls reach; None where it publishes none."""
        best: float | None = getattr(self.attainable, dtype, None)
        return best and best / getattr(self.peaks, dtype)

    @property
    def bandwidth(self) -> float | None:
        """Return peak DRAM bandwidth, byte/s."""
        return None if self.memory_gbps is None else self.memory_gbps * 1e9

    def balance(self, dtype: str, matrix: bool = True) -> float | None:
        """Return the machine balance in FLOP per byte: memory limits kernels with a lower arithmetic intensity."""
        flops, bandwidth = self.peak_flops(dtype, matrix), self.bandwidth
        return None if flops is None or bandwidth is None else flops / bandwidth


_VECTOR_TYPE = {"fp64": "fp64", **dict.fromkeys(("fp32", "tf32", "bf16", "fp16", "fp8", "fp4"), "fp32")}


@cache
def devices() -> tuple[Device, ...]:
    """Return all rows of the catalogue in order, those of plug-ins first."""
    return rows("devices.toml", "device", _device, lambda device: device.name, check_added=_check_patterns)


def _device(row: Mapping[str, Any]) -> Device:
    device = json_types.read_as(Device, {("peaks" if key == "tflops" else key): value for key, value in row.items()})
    figures = ("sm_count", "memory_gib", "memory_gbps", "l2_mib", "warp_size")
    known = {name: getattr(device, name) for name in figures} | {
        name: peak for name in PEAK_NAMES if (peak := getattr(device.peaks, name)) is not None
    }
    if wrong := next((name for name, value in known.items() if not 0 < value <= LARGEST_PEAK), None):
        raise ValueError(f"{wrong} is no number over 0")
    return device


def _check_patterns(device: Device) -> None:
    for pattern in device.patterns:
        re.compile(pattern)


def find_device(
    name: str | None,
    *,
    sm_count: int | None = None,
    memory_bytes: int | None = None,
    compute_capability: str | None = None,
    warp_size: int | None = None,
) -> Device | None:
    """Return the row for a header's ``deviceProperties`` entry, or None.

    A known name determines the rows, and the properties choose between rows with the same name (an A100 of 40 or 80
    GB). They can also exclude all of them: a partition of an MI300X has the name of the whole, but not its speed. An
    empty or unknown name is matched by properties alone, of which SM count and memory must be known. Of several
    matching rows, the catalogue's first counts; its ``matched`` shows how reliable that is.
    """
    fitting = [
        device
        for device in devices()
        if sm_count in (None, device.sm_count)
        and _memory_fits(device, memory_bytes)
        and (not compute_capability or compute_capability in _capabilities(device))
        and warp_size in (None, device.warp_size)
    ]
    named = _first_named(fitting, name)
    if named or sm_count is None or memory_bytes is None or _first_named(devices(), name):
        return named
    return _by_properties(fitting, (name or "").strip())


def _by_properties(fitting: Sequence[Device], name: str) -> Device | None:
    """Return the first of the rows with matching properties, marked with its reliability; None without rows."""
    figures = {(row.peaks, row.memory_gbps) for row in fitting}
    is_nameless = not name or re.fullmatch(NAMELESS, name, re.IGNORECASE) is not None
    matched: Matched = "properties" if is_nameless and len(figures) == 1 else "likeness"
    return replace(fitting[0], matched=matched) if fitting else None


def device_named(query: str) -> Device:
    """Return the row for ``--gpu``: by a header's name, the row's name or alias, or words of its name.

    Case, punctuation and vendor names are ignored. A family name means its usual device: ``h100`` the H100 SXM,
    ``a100`` the A100 SXM 80GB, ``v100`` the V100 SXM2 16GB.

    Raises:
        UsageError: unknown, or several devices fit; it lists the near ones.
    """
    spellings = {_key(text): device for device in devices() for text in (device.name, *device.aliases)}
    if known := spellings.get(_key(query)) or find_device(query):
        return known
    words = set(_words(query))
    partial = [device for device in devices() if words and words <= set(_words(device.name))]
    if len(partial) == 1:
        return partial[0]
    from difflib import get_close_matches

    near = partial or [spellings[key] for key in get_close_matches(_key(query), spellings, n=5)] or devices()
    names = ", ".join(dict.fromkeys(device.name for device in near))
    problem = "several GPUs fit" if partial else "no known GPU is named"
    raise errors.UsageError(f"{problem} {query!r}: choose from {names}")


LARGEST_PEAK = 1e9
"""Largest accepted TFLOP/s or GB/s: a million times present devices.

Larger values are errors, and results would overflow.
"""


def with_overrides(device: Device | None, peak_tflops: Mapping[str, float], peak_gbps: float | None) -> Device | None:
    """Return ``device`` with the user's figures; an unlisted device (None) becomes a new one with only these figures.

    Args:
        peak_tflops: dense TFLOP/s by name of a field of ``Peaks``; "" stands for all that have no figure of their own.
        peak_gbps: DRAM bandwidth, GB/s.

    Raises:
        UsageError: an unknown name, or a figure that is not between 0 and `LARGEST_PEAK`.
    """
    given = ["all" if name == "" else name for name in peak_tflops]
    if "" in peak_tflops:
        peak_tflops = {**dict.fromkeys(PEAK_NAMES, peak_tflops[""]), **{n: p for n, p in peak_tflops.items() if n}}
    if unknown := sorted(set(peak_tflops) - set(PEAK_NAMES)):
        raise errors.UsageError(f"no peak is named {', '.join(unknown)}: choose from {', '.join(PEAK_NAMES)}")
    figures = {**peak_tflops} if peak_gbps is None else {**peak_tflops, "bandwidth": peak_gbps}
    given += [] if peak_gbps is None else ["bandwidth"]
    if wrong := sorted(name for name, figure in figures.items() if not 0 < figure <= LARGEST_PEAK):
        raise errors.UsageError(f"the peak of {', '.join(wrong)} must be a number over 0, at most {LARGEST_PEAK:g}")
    if not figures:
        return device
    base = device or _UNLISTED
    return replace(
        base,
        matched="name",
        peaks=replace(base.peaks, **peak_tflops),
        attainable=replace(base.attainable, **dict.fromkeys(peak_tflops)),  # of the listed peak
        memory_gbps=base.memory_gbps if peak_gbps is None else peak_gbps,
        source="; ".join(filter(None, [base.source, f"{', '.join(given)}: given by the user"])),
    )


_UNLISTED = Device(
    name="unlisted",
    vendor="unknown",
    architecture="unknown",
    compute_capability=None,
    sm_count=None,
    memory_gib=None,
    memory_gbps=None,
    l2_mib=None,
    warp_size=None,
    peaks=Peaks(),
    source="",
)


def _first_named(rows: Sequence[Device], name: str | None) -> Device | None:
    text = (name or "").strip()
    named = (row for row in rows if any(re.fullmatch(pattern, text, re.IGNORECASE) for pattern in row.patterns))
    return next(named, None) if text else None


def _memory_fits(device: Device, memory_bytes: int | None) -> bool:
    least, most = MEMORY_SHARE
    if memory_bytes is None or device.memory_gib is None:
        return True
    return least <= memory_bytes / (device.memory_gib * 2**30) <= most


def _capabilities(device: Device) -> set[str | None]:
    """Return the notations of a capability in headers: an AMD target ``gfx942`` is major 9, minor 4."""
    target = re.fullmatch(r"gfx(\d+)(\d)[0-9a-f]", device.compute_capability or "")
    return {device.compute_capability, f"{target[1]}.{target[2]}" if target else None}


def _words(text: str) -> list[str]:
    return [word for word in re.findall(r"[a-z0-9]+", text.lower()) if word not in _VENDOR_WORDS]


def _key(text: str) -> str:
    return "".join(_words(text))


class Architecture(Struct, frozen=True, kw_only=True):
    """The name pattern of an architecture's kernels, and the device whose roofs represent it."""

    id: str
    device: str
    name: str


@cache
def architectures() -> tuple[Architecture, ...]:
    """Return all architectures, oldest first."""
    return rows("architectures.toml", "architecture", Architecture, lambda architecture: architecture.id)


def architectures_of(kernels: pl.DataFrame) -> dict[int, Architecture]:
    """Return by device the newest architecture among those that names of its kernels contain (device, name)."""
    named = kernels.select("device", "name").unique().with_columns(pl.col("name").cast(pl.String))
    head = pl.col("name").str.head(NAME_LIMIT)
    places = [pl.when(matches(head, row.name)).then(place) for place, row in enumerate(architectures())]
    newest = named.group_by("device").agg(pl.max_horizontal(places).max().alias("place")).drop_nulls()
    return {device: architectures()[place] for device, place in newest.select("device", "place").iter_rows()}


def assumed_devices(kernels: pl.DataFrame) -> dict[int, Device]:
    """Return by device the usual device of the architecture that names of its kernels contain, marked as assumed."""
    usual = {device.name: replace(device, assumed=True) for device in devices()}
    return {code: usual[architecture.device] for code, architecture in architectures_of(kernels).items()}


InterconnectKind = Literal["nvlink", "xgmi", "xelink", "c2c", "pcie"]


class Interconnect(Struct, frozen=True, kw_only=True):
    """An interconnect of some devices; ``gbps`` is the peak per direction over all its links, GB/s (1e9)."""

    kind: InterconnectKind
    devices: tuple[str, ...]
    gbps: float
    links: int
    source: str

    @property
    def byte_per_s(self) -> float:
        """Return the peak per direction, byte/s."""
        return self.gbps * 1e9


@cache
def interconnects() -> tuple[Interconnect, ...]:
    """Return all rows of the catalogue in order."""
    return rows("interconnects.toml", "interconnect", Interconnect, lambda row: f"{row.kind} {row.devices}")


def interconnects_of(device: str) -> tuple[Interconnect, ...]:
    """Return the interconnects of a device by its name in the catalogue, fastest first; empty for unknown names."""
    return tuple(sorted((row for row in interconnects() if device in row.devices), key=lambda row: -row.gbps))
