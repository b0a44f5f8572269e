"""Test laws of everything derived from FLOP and bytes, on random traces and on the samples."""

from pathlib import Path

import polars as pl
import pytest
from generator import RandomTrace, random_traces
from hypothesis import HealthCheck, given, settings
from lazy_report import report_on
from tiers import examples

from trace_analyzer.analyses import communication, fusion, modules, roofline, tensor_cores
from trace_analyzer.report import Report

pytestmark = pytest.mark.slow

SAMPLES = sorted((Path(__file__).parents[1] / "sample_traces").glob("*.json.gz"))
NEW = (
    roofline.ROOFS, roofline.ROOFLINE, roofline.STEP_WORK, modules.MODULES, communication.COLLECTIVES, communication.COMMUNICATION, communication.COPIES,
    fusion.FUSIONS, modules.RECOMPUTATION, tensor_cores.TENSOR_CORES,
)  # fmt: skip


@given(random_traces())
@settings(max_examples=examples(6), suppress_health_check=list(HealthCheck))
def test_random_traces_keep_the_laws(trace: RandomTrace) -> None:
    laws(report_on(trace.content))


@pytest.mark.sampled
@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_samples_keep_the_laws(path: Path) -> None:
    laws(report_on(path))


def laws(report: Report) -> None:
    for table in NEW:
        assert report.tables[table.name].schema == table.schema
    kernels = report.tables["activities"].filter(kind="kernel")
    sums_are_those_of_the_kernels(report, kernels)
    nothing_is_saved_that_was_not_spent(report)
    exposed_and_hidden_make_the_whole(report)


def sums_are_those_of_the_kernels(report: Report, kernels: pl.DataFrame) -> None:
    total = kernels.get_column("duration_ns").sum()
    assert report.tables["roofline"].get_column("time_ns").sum() == total
    assert report.tables["modules"].get_column("self_ns").sum() <= total
    assert report.tables["step_work"].get_column("time_ns").sum() <= total
    flop = sum(bucket.flop or 0.0 for device in report.devices for bucket in device.buckets)
    assert flop == pytest.approx(kernels.get_column("flop").sum() or 0.0)
    for device in report.devices:
        assert sum(bucket.time_ns for bucket in device.buckets) == sum(group.time_ns for group in device.groups)
        assert (device.mfu or 0.0) <= (device.hfu or 0.0)


def nothing_is_saved_that_was_not_spent(report: Report) -> None:
    for name in ("fusions", "tensor_cores"):
        table = report.tables[name]
        assert table.filter((pl.col("saves_ns") < 0) | (pl.col("saves_ns") > pl.col("time_ns"))).is_empty(), name
    roofs = report.tables["roofs"].join(
        report.tables["activities"].select("activity_id", "duration_ns"), on="activity_id"
    )
    assert roofs.filter((pl.col("lost_ns") < 0) | (pl.col("lost_ns") > pl.col("duration_ns"))).is_empty()
    assert report.tables["fusions"].filter(pl.col("saved_bytes") > pl.col("moved_bytes")).is_empty()


def exposed_and_hidden_make_the_whole(report: Report) -> None:
    parts = pl.col("exposed_ns") + pl.col("hidden_ns")
    for name, whole in (("collectives", "duration_ns"), ("communication", "time_ns"), ("copies", "time_ns")):
        table = report.tables[name]
        assert table.filter((parts != pl.col(whole)) | (pl.min_horizontal("exposed_ns", "hidden_ns") < 0)).is_empty(), (
            name
        )
    for device in report.devices:
        if device.communication is not None:
            assert device.communication.hidden_ns >= 0
            assert device.communication.exposed_ns == device.partition_ns["communication"]
