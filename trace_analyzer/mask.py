"""Hide data that failed checks do not support: rows and causes in tables, and figures of devices and steps.

Checks read the unmasked tables. Everything else reads the masked ones.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from trace_analyzer import metrics as m
from trace_analyzer.analysis import Declaration, Value
from trace_analyzer.checks import suppressed_metrics, withholding_devices
from trace_analyzer.graph import Node
from trace_analyzer.report import Check, DeviceReport, LaunchLead, QueueDepth, QueuedWork, RunAhead, StepReport
from trace_analyzer.windows import device_id

NO_RUN_AHEAD = RunAhead(
    None, LaunchLead(None, None, None), QueueDepth(None, None, None), QueuedWork(None, None, None), None
)


def suppressed(checks: Sequence[Check], devices: pl.DataFrame) -> Mapping[str, tuple[int, ...]]:
    """Return the codes of the devices for which a failed check suppresses each metric."""
    ids = {code: device_id(label) for code, label in devices.select("device", "label").iter_rows()}
    where = {metric: withholding_devices(checks, metric) for metric in m.ALL}
    return {
        metric: tuple(code for code in ids if None in hidden or ids[code] in hidden) for metric, hidden in where.items()
    }


def masked(declarations: Iterable[Declaration]) -> Iterator[Node]:
    """Return the nodes of declared analyses and values; one that needs metrics is made unmasked first, then masked."""
    for declared in declarations:
        if not declared.needs:
            yield Node(declared.name, declared.make, declared.takes, declared.cost)
            continue
        unmasked = f"unmasked_{declared.name}"
        yield Node(unmasked, declared.make, declared.takes, declared.cost)
        yield Node(declared.name, _masking(declared), {"value": unmasked})


def _masking(declared: Declaration) -> Callable[[Any, Mapping[str, tuple[int, ...]]], Any]:
    def mask(value: Any, suppressed: Mapping[str, tuple[int, ...]]) -> Any:
        devices = sorted({code for metric in declared.needs for code in suppressed[metric]})
        return declared.hide(value, devices) if devices else value

    return mask


def suppress_metrics(report: DeviceReport, checks: Sequence[Check]) -> DeviceReport:
    """Return the report with unsupported metrics removed: null, or an empty list.

    The tables that the report aggregates already hide unsupported causes of idle time.
    """
    hidden = suppressed_metrics(checks, report.index)
    metrics = {item.metric for item in hidden}
    return replace(
        report,
        busy_ratio=None if m.BUSY_RATIO in metrics else report.busy_ratio,
        partition_ns={} if m.PARTITION in metrics else report.partition_ns,
        run_ahead=NO_RUN_AHEAD if m.RUN_AHEAD in metrics else report.run_ahead,
        buckets=() if "buckets" in metrics else report.buckets,
        groups=() if "groups" in metrics else report.groups,
        bounds=() if "bounds" in metrics else report.bounds,
        fusions=() if "fusions" in metrics else report.fusions,
        tensor_cores=() if "tensor_cores" in metrics else report.tensor_cores,
        mfu=None if "mfu" in metrics else report.mfu,
        mfu_at_most=None if "mfu" in metrics else report.mfu_at_most,
        hfu=None if "hfu" in metrics else report.hfu,
        communication=None if "communication" in metrics else report.communication,
        copies=() if "copies" in metrics else report.copies,
        withheld=hidden,
    )


def suppress_step_metrics(steps: Sequence[StepReport], checks: Sequence[Check]) -> tuple[StepReport, ...]:
    """Return the steps without the metrics that a failed check of their device suppresses."""
    hidden = withholding_devices(checks, "mfu")
    return tuple(
        replace(step, mfu=None, mfu_at_most=None) if None in hidden or step.device in hidden else step for step in steps
    )


VALUES = (Value("suppressed", suppressed),)
