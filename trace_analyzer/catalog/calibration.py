"""Store the measured rates of a device (``analyze calibrate``), in addition to its datasheet.

A calibration is a JSON file, versioned by ``format``. Files in the user's own folder are looked up by the device on
which they were measured.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from msgspec import Struct
from msgspec.structs import replace

from trace_analyzer import errors, files
from trace_analyzer.catalog.devices import PEAK_NAMES, Device, with_overrides
from trace_analyzer.json_types import Amount, Limits, Positive, Quantity, read_as
from trace_analyzer.results import plain

FORMAT = 1

_LARGE = 4
"""Copies of at least this fraction (1 in 4) of the largest one measure the memory; smaller ones may fit in a cache."""


class CopyRate(Struct, frozen=True):
    """A copy within the device's memory: ``bytes`` are read and as many written, ``gbps`` is the total GB/s."""

    bytes: Annotated[int, Limits(minimum=1)]
    gbps: Positive


class MatmulRate(Struct, frozen=True):
    """The rate of a matmul of two square matrices."""

    dtype: str
    size: Annotated[int, Limits(minimum=1)]
    tflops: Positive


class SweepPoint(Struct, frozen=True):
    """The rate of a compiled chain of ``repeats`` multiply-adds per FP32 element of a large tensor."""

    repeats: Annotated[int, Limits(minimum=1)]
    gbps: Positive
    tflops: Positive


class Calibration(Struct, frozen=True, kw_only=True):
    """The measurements of one device, identified as in a trace's header; null where unknown."""

    name: str
    kind: str
    """``cuda`` (including AMD's GPUs), ``xpu`` or ``cpu``."""
    sm_count: Amount | None = None
    memory_bytes: Amount | None = None
    compute_capability: str | None = None
    torch_version: str = ""
    quick: bool = False
    copies: tuple[CopyRate, ...] = ()
    matmuls: tuple[MatmulRate, ...] = ()
    sweep: tuple[SweepPoint, ...] = ()
    sweep_failure: str | None = None
    """Why the sweep is missing."""
    launch_overhead_ns: Quantity | None = None
    """CPU time of one operator on one element."""
    launch_latency_ns: Amount | None = None
    """Median time from the end of a launch to the start of its kernel on an idle device."""
    left_out: tuple[str, ...] = ()
    """Measurements left out for lack of time."""
    doubts: tuple[str, ...] = ()
    """Reasons to distrust the figures: batches that differ, contradicting rates."""

    @property
    def memory_gbps(self) -> float | None:
        """Return the attained bandwidth of the device's memory, GB/s."""
        largest = max((copy.bytes for copy in self.copies), default=0)
        return max((copy.gbps for copy in self.copies if copy.bytes * _LARGE >= largest), default=None)

    @property
    def _products(self) -> dict[str, float]:
        """Return TFLOP/s of the best matmul size, by dtype."""
        best: dict[str, float] = {}
        for matmul in self.matmuls:
            best[matmul.dtype] = max(matmul.tflops, best.get(matmul.dtype, 0.0))
        return best

    @property
    def peak_tflops(self) -> dict[str, float]:
        """Return attained TFLOP/s by dtype."""
        best = self._products
        if self.sweep and "fp32" in best:  # without tensor cores, matmul and sweep both use the vector units
            best["fp32"] = max(best["fp32"], *(point.tflops for point in self.sweep))
        return best

    def device(self, listed: Device | None) -> Device | None:
        """Replace the datasheet's figures of ``listed`` by the attained ones; an unlisted device has only these.

        Matmuls measure the tensor cores where the device has them for the type; the sweep measures the vector units.
        """
        known = {
            f"{dtype}_matrix" if listed and getattr(listed.peaks, f"{dtype}_matrix", None) else dtype: peak
            for dtype, peak in self._products.items()
        }
        if self.sweep:
            known["fp32"] = max(known.get("fp32", 0.0), *(point.tflops for point in self.sweep))
        figures = {name: peak for name, peak in known.items() if name in PEAK_NAMES}
        device = with_overrides(listed, figures, self.memory_gbps)
        return device and replace(
            device, name=device.name if listed else self.name, source="measured by analyze calibrate"
        )

    def to_json(self) -> str:
        """Return the content of a calibration file."""
        return json.dumps({"format": FORMAT, **plain(self)}, indent=1, allow_nan=False) + "\n"


def read_calibration(path: Path) -> Calibration:
    """Read the calibration in a file; raise ``UsageError`` for any other content."""
    try:
        if files.is_special(path):  # opening a pipe that nobody writes to would block
            raise errors.UsageError(f"{path}: is no file")
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise errors.UsageError(f"{path}: {error.strerror}") from None
    except ValueError:
        raise errors.UsageError(f"{path}: is no JSON; analyze calibrate writes calibrations") from None
    version = document.get("format") if isinstance(document, dict) else None
    if version != FORMAT:
        raise errors.UsageError(f"{path}: is no calibration of format {FORMAT}; run analyze calibrate again")
    try:
        return read_as(Calibration, {key: value for key, value in document.items() if key != "format"})
    except (TypeError, ValueError, AttributeError) as error:
        raise errors.UsageError(f"{path}: is a damaged calibration ({error}); run analyze calibrate again") from None


def calibration_folder() -> Path:
    """Return the user's folder of calibrations; it need not exist."""
    return files.config_folder() / "devices"


def file_name(calibration: Calibration) -> str:
    """Return the name of the device's file in that folder, distinct for each variant."""
    words = [calibration.name, *(str(x) for x in (calibration.sm_count, calibration.memory_bytes) if x is not None)]
    return re.sub(r"[^a-z0-9]+", "-", " ".join(words).lower()).strip("-")[:120] + ".json"


def known_calibrations() -> tuple[Calibration, ...]:
    """Return all calibrations in the user's folder; skip other files."""
    try:
        paths = sorted(calibration_folder().glob("*.json"))
    except (OSError, RuntimeError):  # no home folder
        return ()
    return tuple(calibration for path in paths if (calibration := _readable(path)))


def _readable(path: Path) -> Calibration | None:
    try:
        return read_calibration(path)
    except errors.UsageError:
        return None


def matching(
    calibrations: Iterable[Calibration], name: str | None, sm_count: int | None, memory_bytes: int | None
) -> Calibration | None:
    """Return the calibration for the device in a trace's header; all known properties must agree."""
    return next(
        (
            known
            for known in calibrations
            if known.kind != "cpu"
            and name
            and known.name == name
            and (not sm_count or known.sm_count in (None, sm_count))
            and (not memory_bytes or known.memory_bytes in (None, memory_bytes))
        ),
        None,
    )
