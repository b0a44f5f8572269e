"""Declare the options of an analysis, once for the library and the command."""

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypedDict, TypeVar

from trace_analyzer.errors import UsageError, did_you_mean

LEAST, MOST = 1e-9, 1e9
"""Limits of rates and times, so that no result overflows."""
DEFAULT_MAX_BYTES = 16 << 30
"""Limit on the decompressed size: far above any usable trace, far below the output of a gzip bomb."""


def _option(default: Any, metavar: str | None, text: str, **click: Any) -> Any:
    """Return a field with what the command says of it; ``range`` limits numbers."""
    return field(default=default, metadata={"metavar": metavar, "help": text, **click})


class Choices(TypedDict, total=False):
    """Declare the types of `Options` for callers that pass them as keywords."""

    device: int | str | None
    step: int | str
    gpu: str | None
    peak_tflops: Mapping[str, float] | None
    peak_gbps: float | None
    measured_step_ms: float | None
    calibration: str | Path | None
    capture: Any
    compile_log: str | Path | None
    export: bool
    max_bytes: int


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of an analysis. Each is a keyword of `trace_analyzer.analyze` and an option of the command.

    - ``device``: by the file's id; the one with most busy time by default.
    - ``step``: ``"steady"``, ``"all"`` (the whole trace) or a step's index: what the verdict is about.
    - ``gpu``: name of a device of the catalogue, instead of the one in the file.
    - ``peak_tflops``: dtype -> dense peak in TFLOP/s, instead of the catalogue's; key ``""`` is for all.
    - ``peak_gbps``: memory bandwidth in GB/s, instead of the catalogue's.
    - ``measured_step_ms``: time of a step without the profiler, ms, for the exact cost of recording; by default the
      trace's own, if `trace_analyzer.profile` recorded it. To be measured before the process records: CUPTI stays.
    - ``calibration``: file of ``analyze calibrate``, or ``"none"``; by default the user's own for such a device.
    - ``capture``: a second trace of the same program, in which the kernels that graphs replay were launched one by one,
      or in which these graphs were captured: replayed kernels take operators, modules and shapes from there. Or a folder
      of such traces: of those of the trace's rank, each graph takes the one whose kernels it repeats. Or JSON of
      ``torch.cuda.graph_annotations.get_kernel_annotations()``, which names their modules.
    - ``compile_log``: folder of ``TORCH_TRACE`` logs of this program, or of what tlparse made of them: why Dynamo broke graphs
      and compiled again.
    - ``export``: export a report of Nsight Systems (.nsys-rep) with ``nsys``, into a temporary folder, and read the export.
    - ``max_bytes``: limit on the decompressed size of a trace.
    """

    device: int | str | None = _option(None, "N", "Judge this device instead of the one with most busy time.")
    step: int | str = _option(
        "steady", "N|all|steady", "Judge one step, the whole trace, or the steady steps.", show_default=True
    )
    gpu: str | None = _option(None, "NAME", "Use the peaks of this device in the catalogue.")
    peak_tflops: Mapping[str, float] | None = _option(
        None, "[DTYPE=]X", "Dense peak in TFLOP/s, for one dtype (bf16=989) or for all. Repeatable.", multiple=True
    )
    peak_gbps: float | None = _option(None, "X", "Memory bandwidth in GB/s.", range=(LEAST, MOST))
    measured_step_ms: float | None = _option(
        None,
        "X",
        "Time of a step without the profiler, measured before the process records, for the exact cost of recording.",
        range=(LEAST, MOST),
    )
    calibration: str | Path | None = _option(
        None,
        "FILE|none",
        "Use these measurements of the device (analyze calibrate); by default the user's own, if they are of this device.",
    )
    capture: Any = _option(
        None,
        "FILE|FOLDER",
        "Take operators, modules and shapes of replayed kernels from a second trace of the same program, eager or of the"
        " capture of its graphs, or from a folder of them, one a rank and size. Or take modules from annotations of graphs"
        " in JSON.",
    )
    compile_log: str | Path | None = _option(
        None,
        "DIR",
        "Say why graphs broke and were compiled again: logs of TORCH_TRACE=DIR, or what tlparse made of them.",
    )
    export: bool = _option(
        False, None, "Export a report of Nsight Systems (.nsys-rep) with nsys, into a temporary folder.", is_flag=True
    )
    max_bytes: int = _option(
        DEFAULT_MAX_BYTES,
        "N",
        "Refuse a trace of more than N bytes when decompressed (16 GiB by default).",
        range=(1, None),
    )

    def __post_init__(self) -> None:
        """Take numbers in text for numbers. Raises ``UsageError`` for an impossible step or time of a step."""
        object.__setattr__(self, "device", number_in(self.device))
        object.__setattr__(self, "step", number_in(self.step))
        if isinstance(self.step, str) and self.step not in ("all", "steady"):
            raise UsageError(f"step {self.step!r} is neither a step's number nor 'all' nor 'steady'")
        if self.measured_step_ms is not None and not 0 < self.measured_step_ms <= MOST:
            raise UsageError(f"measured_step_ms={self.measured_step_ms!r}: must be over 0, at most {MOST:g}")


def number_in(value: Any) -> Any:
    """Return the integer that a text is, as the command gets it; any other value unchanged."""
    if isinstance(value, str):
        with suppress(ValueError):
            return int(value)
    return value


P = ParamSpec("P")
R = TypeVar("R")


def takes_options_of(source: Callable[..., Any]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that shows the keyword options of ``source`` in place of ``**options``, and refuses others.

    A call with another option raises ``TypeError``, which names the nearest one.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        own = inspect.signature(function)
        kept = [p for p in own.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        options = [
            parameter
            for parameter in inspect.signature(source).parameters.values()
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY and parameter.name not in own.parameters
        ]
        taken = own.replace(parameters=[*kept, *options])

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in kwargs.keys() - taken.parameters.keys():
                raise TypeError(f"{function.__name__}() has no option {name!r}{did_you_mean(name, taken.parameters)}")
            return function(*args, **kwargs)

        checked.__signature__ = taken  # type: ignore[attr-defined]
        return checked

    return decorate
