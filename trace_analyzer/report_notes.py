"""Make the notes of a report: those of the reader, then those of the analyses."""

from collections.abc import Iterator, Mapping

import polars as pl

from trace_analyzer import analysis, checks, thresholds, units, windows
from trace_analyzer.analyses import idle, roofline
from trace_analyzer.analyses.steps import MAX_STEP_ROWS, HostSteps
from trace_analyzer.catalog.devices import Device
from trace_analyzer.catalog.kernels import line_phrase
from trace_analyzer.errors import Note
from trace_analyzer.ingest.trace import Trace
from trace_analyzer.report import DeviceReport


def notes(
    trace: Trace,
    launch_links: tuple[pl.DataFrame, tuple[Note, ...]],
    device_work: tuple[pl.DataFrame, tuple[Note, ...]],
    activities: pl.DataFrame,
    rated: pl.DataFrame,
    collectives: pl.DataFrame,
    reported_devices: pl.DataFrame,
    device_figures: pl.DataFrame,
    host_steps: HostSteps,
    device_steps: pl.DataFrame,
    device_reports: Mapping[int, DeviceReport],
    earlier_work_notes: tuple[Note, ...],
    time_slice_notes: tuple[Note, ...],
    trim_notes: tuple[Note, ...],
    device_models: Mapping[int, Device | None],
) -> tuple[Note, ...]:
    """Return the notes of the reader, then those of the analyses."""
    return (
        *trace.notes,
        *launch_links[1],
        *device_work[1],
        *_shared_notes(trace, activities),
        *_serialized_notes(activities, collectives, reported_devices),
        *checks.clock_notes(windows.device_ids(reported_devices), device_figures),
        *earlier_work_notes,
        *time_slice_notes,
        *_unreported_notes(trace, reported_devices),
        *_likeness_notes(reported_devices, device_models),
        *_empty_step_notes(host_steps.marks, device_steps),
        *_unlinked_notes(tuple(device_reports.values())),
        *_slow_notes(rated, trace),
        *_roof_notes(rated, trace),
        *trim_notes,
    )


def _shared_notes(trace: Trace, activities: pl.DataFrame) -> list[Note]:
    """Note signs that other processes share a device, as idle time is then known for this process only."""
    by_device = activities.group_by("device").agg(
        pl.col("context").drop_nulls().n_unique().alias("contexts"),
        pl.col("process_id").drop_nulls().n_unique().alias("processes"),
    )
    labels = trace.devices.select("device", "label")
    shared = by_device.join(labels, on="device").filter(pl.col("contexts").clip(pl.col("processes")) > 1).sort("device")
    notes = [
        Note(
            "shared-device",
            "warning",
            f"device {label} was used from {units.counted(contexts, 'context')} and"
            f" {units.counted(processes, 'process', 'processes')} of this file; more may not be"
            " in it, so idle means only that none of these had work",
            max(contexts, processes),
        )
        for label, contexts, processes in shared.select("label", "contexts", "processes").iter_rows()
    ]
    world, listed = trace.header.world_size, len(trace.header.devices)
    # several hosts with an equal number of devices
    are_hosts = world is not None and listed > 1 and world % listed == 0
    if world is not None and 0 < listed < world and not are_hosts and activities.height:
        notes.append(
            Note(
                "more-ranks-than-devices",
                "info",
                f"{units.counted(world, 'rank')}, and {units.counted(listed, 'device')} listed: if ranks share a device, its idle time is only this one's",
                world,
            )
        )
    return notes


def _serialized_notes(
    activities: pl.DataFrame, collectives: pl.DataFrame, reported_devices: pl.DataFrame
) -> Iterator[Note]:
    """Note collectives on the stream of most other kernels, which executes in order, and what another stream hides at most.

    That is the lesser of their exposed time and of the time of other kernels.
    """
    kernels = activities.filter(pl.col("kind") == "kernel", pl.col("group") != "communication")
    streams = (
        kernels.group_by("device", "stream")
        .agg(pl.col("duration_ns").sum())
        .with_columns(pl.col("duration_ns").sum().over("device").alias("other_ns"))
        .sort("device", "duration_ns")
        .unique("device", keep="last")
    )
    ids = windows.device_ids(reported_devices)
    serialized = (
        collectives.join(streams.drop("duration_ns"), on=["device", "stream"])
        .group_by("device")
        .agg(pl.len().alias("count"), pl.col("exposed_ns").sum(), pl.col("other_ns").first())
        .filter(
            pl.col("exposed_ns") >= thresholds.SERIALIZED_RATIO * pl.col("other_ns"), pl.col("device").is_in(list(ids))
        )
        .sort("device")
    )
    for device, count, exposed_ns, other_ns in serialized.iter_rows():
        yield Note(
            "serialized-collectives",
            "info",
            f"device {ids[device]}: {units.counted(count, 'collective runs', 'collectives run')} on the stream of the other kernels: serialized"
            f" by design; on a stream of their own, at most {units.duration(min(exposed_ns, other_ns))} would be hidden",
            count,
        )


def _unreported_notes(trace: Trace, reported: pl.DataFrame) -> list[Note]:
    more = trace.devices.height - reported.height
    message = f"the trace names {trace.devices.height:,} devices: only the {idle.MAX_DEVICES} busiest are reported"
    return [Note("many-devices", "warning", message, more)] if more else []


def _likeness_notes(reported: pl.DataFrame, models: Mapping[int, Device | None]) -> list[Note]:
    """Note devices that were identified by their properties, as no name in the trace matches the catalogue."""
    ids = windows.device_ids(reported)
    return [
        Note(
            "device-by-likeness",
            "warning",
            f"device {ids[code]}: {f'its name ({units.visible(name)}) is not in the catalogue' if name else 'the trace does not name it'};"
            f" it is taken for {model.name},"
            " which has as many multiprocessors, as much memory and the same capability (--gpu NAME tells which it is)",
        )
        for code, _, name in reported.iter_rows()
        if (model := models.get(code)) is not None and model.matched == "likeness"
    ]


def _empty_step_notes(marks: pl.DataFrame, steps: pl.DataFrame) -> list[Note]:
    devices = steps.get_column("device").n_unique()
    more = marks.height * devices - steps.height
    if marks.height * devices <= MAX_STEP_ROWS or more <= 0:
        return []
    message = f"{marks.height:,} steps and {devices:,} devices: only the steps in which a device worked are reported"
    return [Note("many-steps", "info", message, more)]


def _unlinked_notes(reports: tuple[DeviceReport, ...]) -> list[Note]:
    return [
        Note(
            "low-link-coverage",
            "warning",
            f"device {report.index}: "
            + (
                f"only {report.linked_count:,} of {report.activity_count:,} activities have a known launch; run-ahead and"
                " idle causes speak for those only"
                if report.linked_count
                else "no activity has a known launch, so neither run-ahead nor causes of idle time are known"
            ),
            report.activity_count - report.linked_count,
        )
        for report in reports
        if report.link_coverage_ratio is not None and report.link_coverage_ratio < thresholds.GOOD_COVERAGE
    ]


def _slow_notes(rated: pl.DataFrame, trace: Trace) -> list[Note]:
    """Note where matmuls of all kinds are about equally far from peak, and possible reasons."""
    ids = windows.device_ids(trace.devices)
    return [
        Note(
            "equally-far-from-peak",
            "info",
            f"device {ids[code]}: {count:,} large products of different kinds all reach {units.percent(lowest)} to"
            f" {units.percent(highest)} of their peak; what holds them may be common to all: lower clocks (a power or thermal"
            " limit; watch nvidia-smi or rocm-smi during a run), or a peak that is not this device's (--peak-tflops)",
            count,
        )
        for code, count, lowest, _, highest in roofline.equally_slow(rated, trace.operator_inputs).iter_rows()
    ]


def _roof_notes(rated: pl.DataFrame, trace: Trace) -> list[Note]:
    """Note kernels that are faster than their work allows, so that their share of the roof is not known."""
    ids = windows.device_ids(trace.devices)
    return [
        Note(
            "beyond-roof",
            "warning",
            f"device {ids[code]}: {units.counted(count, 'kernel')} of {line_phrase(bucket)} took less time in all than the work"
            " needs at the device's peaks, so shares of peak and roof are unknown: the data came from a cache,"
            " or the peaks (--gpu NAME, --peak-tflops), FLOP or bytes are wrong",
            count,
        )
        for code, bucket, count in roofline.beyond_roof(rated).iter_rows()
    ]


VALUES = (analysis.Value("notes", notes),)
