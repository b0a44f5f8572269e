"""Show devices next to each other: how busy each is, how much of its work is linked, and how far the CPU runs ahead."""

from dataclasses import dataclass

from trace_analyzer.report.device_report import DeviceReport
from trace_analyzer.sections import WHOLE_TRACE, Longest, Section, Shown

DEVICES_SECTION = Section(
    "Work and run-ahead by device",
    show=(
        Shown("label", "device", "text"),
        Shown("model", "model", "text"),
        Shown("busy_ratio", "busy", term="busy"),
        Shown("window_ns", "window", term="window"),
        Shown("activity_count", "activities", term="activity"),
        Shown("link_coverage_ratio", "linked", term="coverage"),
        Shown("link_coverage_time_ratio", "linked, of time", term="coverage"),
        Shown("mfu", "MFU", "ratio", term="mfu", phrase="mfu"),
        Shown("state", "run-ahead", "state"),
        Shown("empty_queue_ratio", "queue empty", term="empty-queue"),
        Shown("mean_queue_depth", "depth, mean", "number", term="queue"),
        Shown("max_queue_depth", "depth, most", "count", term="queue"),
        Shown("mean_queued_work_ns", "queued work, mean", term="queued_work"),
        Shown("max_queued_work_ns", "queued work, most", term="queued_work"),
        Shown("p10_launch_lead_ns", "lead, p10", term="lead"),
        Shown("p50_launch_lead_ns", "lead, p50", term="lead"),
        Shown("p90_launch_lead_ns", "lead, p90", term="lead"),
    ),
    place=Longest("activities", ("device",)),
    key="device-work",
    beside=True,
    scope=WHOLE_TRACE,
)


@dataclass(frozen=True)
class DeviceOverview:
    """Hold a row of `DEVICES_SECTION`: the figures of `DeviceReport` for comparing devices."""

    label: str
    model: str | None
    busy_ratio: float | None
    window_ns: int
    activity_count: int
    link_coverage_ratio: float | None
    link_coverage_time_ratio: float | None
    mfu: float | None
    mfu_at_most: float | None
    state: str | None
    empty_queue_ratio: float | None
    mean_queue_depth: float | None
    max_queue_depth: int | None
    mean_queued_work_ns: float | None
    max_queued_work_ns: int | None
    p10_launch_lead_ns: int | None
    p50_launch_lead_ns: int | None
    p90_launch_lead_ns: int | None


def overview(device: DeviceReport) -> DeviceOverview:
    """Return a device's row of `DEVICES_SECTION`."""
    ahead = device.run_ahead
    return DeviceOverview(
        label=f"GPU {device.index}",
        model=device.name,
        busy_ratio=device.busy_ratio,
        window_ns=device.window_ns,
        activity_count=device.activity_count,
        link_coverage_ratio=device.link_coverage_ratio,
        link_coverage_time_ratio=device.link_coverage_time_ratio,
        mfu=device.mfu,
        mfu_at_most=device.mfu_at_most,
        state=ahead.state,
        empty_queue_ratio=ahead.empty_queue_ratio,
        mean_queue_depth=ahead.queue_depth.mean,
        max_queue_depth=ahead.queue_depth.max,
        mean_queued_work_ns=ahead.queued_work_ns.mean,
        max_queued_work_ns=ahead.queued_work_ns.max,
        p10_launch_lead_ns=ahead.launch_lead_ns.p10,
        p50_launch_lead_ns=ahead.launch_lead_ns.p50,
        p90_launch_lead_ns=ahead.launch_lead_ns.p90,
    )
