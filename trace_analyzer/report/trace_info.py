"""Describe the file, its checks and the metrics that they withhold; fields have the sentences of the JSON report."""

from dataclasses import dataclass
from typing import Annotated, Literal

from trace_analyzer.field_types import Amount, CheckStatus, DecimalText, DeviceIndex, Quantity
from trace_analyzer.run_metadata import RunMetadata


@dataclass(frozen=True)
class DeviceInfo:
    """Hold a device that did work: its id (an int if the file's id is one) and its names."""

    index: Annotated[DeviceIndex, "The device's id in the file; a string where it is no number."]
    name: Annotated[str | None, "Name from the file's header."]
    catalog_name: Annotated[
        str | None,
        "Its name in the device catalogue, where its peaks come from; null where it is not listed there.",
    ]


@dataclass(frozen=True)
class Recorded:
    """Hold which data the profiler was configured to record."""

    shapes: Annotated[bool, "Shapes of the operators' inputs."]
    stack: Annotated[bool, "Python stacks."]
    memory: Annotated[bool, "Allocations."]
    modules: Annotated[bool, "nn.Module calls."]


@dataclass(frozen=True)
class TraceInfo:
    """Hold facts on the file: its origin and its content.

    ``settings`` are the settings of a recording by this package; null for all other traces.
    """

    path: Annotated[str, "Path as it was given; `stdin` for standard input."]
    event_count: Annotated[Amount, "Events in the file, of all kinds."]
    duration_ns: Annotated[Amount, "From the first event's start to the last one's end."]
    origin_ns: Annotated[
        DecimalText,
        "Absolute time of 0 ns in this report, as the file counts it: add it to find a place again in Perfetto.",
    ]
    base_time_ns: Annotated[
        str | None,
        "`baseTimeNanoseconds` of the file's header, a decimal string; null when it has none.",
    ]
    rank: Annotated[int | None, "Rank of the process."]
    world_size: Annotated[int | None, "Ranks in the job."]
    devices: Annotated[tuple[DeviceInfo, ...], "Devices that did work."]
    idle_devices: Annotated[tuple[str, ...], "Devices of the header that did no work."]
    recorded: Annotated[Recorded, "What the profiler recorded."]
    settings: Annotated[
        RunMetadata | None,
        "Settings of a recording by this program; null for other traces.",
    ] = None


@dataclass(frozen=True)
class Check:
    """Hold whether the trace supports its metrics in one respect; ``device`` is null for a check of the whole file.

    A failed check withholds metrics of its device: they are null in the report, and lists are empty.
    `DeviceReport.withheld` names them with the reason. Idle time without causes has the cause ``withheld``.
    """

    name: Annotated[str, "Stable name, for programs (docs/definitions.md lists them)."]
    device: Annotated[DeviceIndex | None, "The device that it is about; null for the whole file."]
    status: Annotated[CheckStatus, "Whether figures can be trusted in this respect; a failed check withholds some."]
    value: Annotated[
        Quantity | None,
        "What was measured; null where there is nothing to check, and where nobody can know it.",
    ]
    unit: Annotated[Literal["ratio", "events", "arrows"], "Unit of the value."]
    meaning: Annotated[str, "What the value is, and what it means, for people."]
    withholds: Annotated[
        tuple[str, ...],
        "Metrics of `devices[]` that are withheld because of it (docs/definitions.md lists them): fields that are"
        " null or empty, `mfu` of `steps[]` too. `partition` is the verdict's `parts_ns` and `shares` too;"
        " without `idle_causes` all idle time has the cause `withheld`.",
    ]


@dataclass(frozen=True)
class Withheld:
    """Hold a withheld metric, the check that failed, and its message."""

    metric: Annotated[str, "Its name, as `trust[].withholds` has it."]
    check: Annotated[str, "Name of the check that fails."]
    reason: Annotated[str, "The check with its value and what it means, for people."]
