"""Check that an analysis declared only in this file is shown everywhere that its declaration names."""

import json
from pathlib import Path

import polars as pl
from jsonschema import Draft202012Validator
from kineto import launched, spread, trace_bytes

from trace_analyzer.analyses import registry
from trace_analyzer.analysis import PARTITION, Analysis, Value
from trace_analyzer.ingest import load
from trace_analyzer.pipeline import report_of
from trace_analyzer.registry import ANALYSES, json_schema
from trace_analyzer.render.html.view import view
from trace_analyzer.report import Report
from trace_analyzer.schema import Table, columns
from trace_analyzer.sections import Section

STREAMS = Table(
    "streams",
    "Work of each stream.",
    columns("""
        device
        stream str The stream.
        activity_count u32 Activities on it.
        busy_ns i64 Sum of their durations.
    """),
)


def sums_of_streams(activities: pl.DataFrame) -> pl.DataFrame:
    return (
        activities.group_by("device", pl.col("stream").cast(pl.String))
        .agg(pl.len().alias("activity_count"), pl.col("duration_ns").sum().alias("busy_ns"))
        .sort("device", "busy_ns", "stream", descending=[False, True, False])
    )


SECTION = Section("Streams", show=("stream", "busy_ns"), rows=3)
OF_DEVICES = Analysis(STREAMS, sums_of_streams, json="devices[].streams", section=SECTION)
LONGEST = Analysis(
    Table("longest_stream", "The stream of most work.", STREAMS.columns),
    lambda stream_sums: stream_sums.sort("busy_ns", descending=True).head(1),
    needs=(PARTITION,),
    json="longest_stream",
)
DECLARED = (OF_DEVICES, Value("stream_sums", sums_of_streams), LONGEST)
EVENTS = [launched("a", 0, 20, 30, 1, stream=7), launched("b", 10, 60, 10, 2, stream=13)]


def toy_report() -> Report:
    return report_of(load(trace_bytes(spread(EVENTS))), analyses=(*ANALYSES, *DECLARED))


def test_every_module_that_declares_analyses_is_listed() -> None:
    assert registry.__file__ is not None
    paths = Path(registry.__file__).parent.glob("*.py")
    declaring = {path.stem for path in paths if "\nANALYSES" in path.read_text(encoding="utf-8")} - {"registry"}
    assert sorted(registry.MODULES) == sorted(declaring)


def test_its_table_is_one_of_the_report() -> None:
    tables = toy_report().tables
    assert tables["streams"].schema == STREAMS.schema
    assert tables["streams"].rows() == [(0, "7", 1, 30_000), (0, "13", 1, 10_000)]
    assert tables["longest_stream"].rows() == [(0, "7", 1, 30_000)]
    assert "stream_sums" not in tables


def test_its_rows_stand_at_their_place_in_the_json() -> None:
    document = json.loads(toy_report().to_json())
    (device,) = document["devices"]
    assert device["streams"] == [
        {"stream": "7", "activity_count": 1, "busy_ns": 30_000},
        {"stream": "13", "activity_count": 1, "busy_ns": 10_000},
    ]
    assert document["longest_stream"] == [{"device": 0, "stream": "7", "activity_count": 1, "busy_ns": 30_000}]


def test_its_rows_satisfy_the_schema() -> None:
    schema = json_schema((*ANALYSES, *DECLARED))
    assert "longest_stream" in schema["required"]
    assert "streams" in schema["properties"]["devices"]["items"]["required"]
    document = json.loads(toy_report().to_json())
    assert [error.message for error in Draft202012Validator(schema).iter_errors(document)] == []


def test_its_section_is_laid_out_by_all_renderers() -> None:
    report = toy_report()
    assert "\nStreams\n  Stream   Busy\n  7       30 us\n  13      10 us\n" in report.summary(verbose=True)
    assert "### Streams\n\n| Stream | Busy |" in report.to_markdown()
    (listing,) = next(section.listings for section in view(report).sections if section.title == "Streams")
    assert [[cell.text for cell in row.cells] for row in listing.rows] == [["7", "30 us"], ["13", "10 us"]]


def test_the_report_carries_its_section() -> None:
    *_, streams, longest = toy_report().declared
    assert (streams.table, streams.section) == (STREAMS, SECTION)
    assert longest.section is None


def test_what_failed_checks_do_not_support_is_hidden_as_declared() -> None:
    """Later work of the stream ran during most of a kernel: its duration is impossible, and no figure is supported."""
    corrupt = spread([launched("a", 0, 20, 9_000, 1), launched("b", 10, 60, 80, 2)])
    report = report_of(load(trace_bytes(corrupt)), analyses=(*ANALYSES, *DECLARED))
    assert PARTITION in {item.metric for item in report.devices[0].withheld}
    assert report.tables["streams"].height == 1, "it needs nothing"
    assert report.tables["longest_stream"].is_empty()
    assert json.loads(report.to_json())["longest_stream"] == []
