"""Build reports for tests of text renderers: one per status, and one with every text given."""

import polars as pl
from msgspec.structs import replace
from report_factory import empty_report, gpu_report

from trace_analyzer.errors import Note
from trace_analyzer.report import DeviceInfo, Evidence, Report, Status

STATUSES: tuple[Status, ...] = ("no-gpu-activity", "gpu-timeline-missing", "unsupported-accelerator", "insufficient")


def all_reports() -> dict[str, Report]:
    """Name to report: a full one, one with several devices, one per status without a regime."""
    return {"ok": gpu_report(), "devices": gpu_report(devices=8)} | {s: empty_report(s) for s in STATUSES}


def report_saying(text: str) -> Report:
    """Return a report in which every text that a trace controls is ``text``."""
    report = gpu_report()
    return replace(
        report,
        trace=replace(report.trace, path=f"/d/{text}.json", devices=(DeviceInfo(0, text, text),)),
        notes=(Note("odd", "warning", text),),
        verdict=replace(
            report.verdict, headline=text, confidence_why=(text,), evidence=(Evidence(text, text, text, text),)
        ),
        devices=tuple(replace(device, name=text) for device in report.devices),
        steps=tuple(replace(step, name=text) for step in report.steps),
        trust=tuple(replace(check, name=text, meaning=text) for check in report.trust),
        blame=tuple(replace(item, operator=text, python_function=text) for item in report.blame),
        host_costs=tuple(replace(item, source=text, python_function=text) for item in report.host_costs),
        advice=tuple(replace(a, title=text, why=text, where=text, code=text, how_bound=text) for a in report.advice),
        tables={
            **report.tables,
            "kernels": report.tables["kernels"].with_columns(
                name=pl.lit(text), operator=pl.lit(text), bucket=pl.lit(text)
            ),
        },
    )
