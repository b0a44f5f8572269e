"""Check that a table that only declares its section is shown in all outputs, in the docs and in the schema."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, strategies as st
from jsonschema import Draft202012Validator
from kineto import launched, loaded
from msgspec.structs import replace
from report_factory import frame, gpu_report

from trace_analyzer.analyses import registry
from trace_analyzer.analysis import PARTITION, Analysis, Value
from trace_analyzer.pipeline import report_of
from trace_analyzer.registry import ANALYSES, json_schema
from trace_analyzer.render import documents, html, terminal
from trace_analyzer.render.declared import declared_sections, headings
from trace_analyzer.render.html.view import view
from trace_analyzer.report import DeclaredTable, Report
from trace_analyzer.schema import Table, columns
from trace_analyzer.sections import DEVICE_LABEL, Section, Shown
from trace_analyzer.units import written

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))

import generate

TOYS = Table(
    "toys",
    "Toys, the fastest first.",
    columns("""
        device
        name str Name of the toy.
        busy_ns i64 Time in play.
        moved_bytes i64 Bytes moved.
        play_ratio f64 Share of time in play.
        flop f64 FLOP.
        achieved_flop_per_s f64 FLOP over time.
        achieved_byte_per_s f64 Bytes over time.
        toy_count i64 Toys.
        is_red bool Whether it is red.
        start_ns i64 Start of the longest.
        end_ns i64 Its end.
    """),
)
SECTION = Section("Toy chest", "What was played with.", sort=("-busy_ns",), rows=3)
HOSTILE = "<b>x</b>|`y`\x1b[2J"


TOY_DEFAULTS = dict.fromkeys(TOYS.schema) | {"device": 0}
ROWS = tuple(
    TOY_DEFAULTS | row
    for row in (
        {
            "name": "ball",
            "busy_ns": 1_500_000,
            "moved_bytes": 2_040_000_000,
            "play_ratio": 0.25,
            "start_ns": 10,
            "end_ns": 20,
        },
        {"name": "top"},
        {
            "name": "kite",
            "busy_ns": 2_500_000,
            "flop": 3.46e13,
            "achieved_flop_per_s": 3.12e14,
            "achieved_byte_per_s": 2.04e12,
        },
        {"name": HOSTILE, "busy_ns": 500_000, "toy_count": 12_345, "is_red": True},
    )
)


def toy_report(section: Section = SECTION) -> Report:
    report = gpu_report()
    tables = {**report.tables, "toys": frame(TOYS, ROWS)}
    return replace(report, tables=tables, declared=(DeclaredTable(TOYS, "devices[].toys", section),))


def test_rows_stand_in_the_order_of_the_section() -> None:
    (shown,) = declared_sections(toy_report())
    assert [row["name"] for row in shown.rows] == ["kite", "ball", HOSTILE, "top"]
    assert shown.headings[:3] == ("Name", "Busy", "Moved")
    assert shown.alignment == "lrrrrrrrl"
    assert {"device", "start_ns", "end_ns"}.isdisjoint(column.name for column in shown.columns), (
        "places, the only device"
    )
    (few,) = declared_sections(toy_report(replace(SECTION, show=("busy_ns", "name"))))
    assert few.headings == ("Busy", "Name")


def test_columns_that_name_no_output_are_in_all_of_them_and_an_output_without_columns_has_no_title() -> None:
    (shown,) = declared_sections(toy_report(replace(SECTION, show=(Shown("name"), Shown("busy_ns")))))
    assert {column.name for column in shown.for_terminal(80).columns} == {"name", "busy_ns"}
    assert [column.name for column in shown.for_markdown().columns] == ["name", "busy_ns"]
    on_page = toy_report(replace(SECTION, show=(Shown("name", markdown=True), Shown("busy_ns"))))
    (few,) = declared_sections(on_page)
    assert [column.name for column in few.for_markdown().columns] == ["name"]
    in_terminal = toy_report(replace(SECTION, show=(Shown("name", terminal=0),)))
    for report, is_in_terminal in ((on_page, False), (in_terminal, True)):
        assert (SECTION.title in terminal.summary(report, verbose=True)) is is_in_terminal
        assert (SECTION.title in documents.to_markdown(report)) is not is_in_terminal


def test_the_label_of_a_device_is_its_id_where_there_are_several() -> None:
    section = replace(SECTION, show=(DEVICE_LABEL, Shown("name"), Shown("busy_ns")))
    assert declared_sections(toy_report(section))[0].headings == ("Name", "Busy")
    report = toy_report(section)
    both = replace(report, devices=(report.devices[0], replace(report.devices[0], index=1)))
    (shown,) = declared_sections(both)
    assert shown.headings == ("device", "Name", "Busy")
    assert shown.cells(shown.rows[0]) == ("0", "kite", "2.50 ms")


def test_a_label_of_a_device_needs_a_column_of_devices() -> None:
    table = Table("toys", "Toys.", columns("name str Name."))
    with pytest.raises(ValueError, match="shows device_label"):
        Analysis(table, lambda: pl.DataFrame(), section=Section("Toys", show=(DEVICE_LABEL, "name")))


def test_a_section_without_rows_is_left_out() -> None:
    report = toy_report()
    declared = (DeclaredTable(replace(TOYS, name="none"), None, SECTION), DeclaredTable(TOYS, "x", None))
    report = replace(report, tables={**report.tables, "none": TOYS.empty()}, declared=declared)
    assert declared_sections(report) == ()
    assert terminal.summary(report, verbose=True) == terminal.summary(gpu_report(), verbose=True)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1_500_000, "ns", "1.50 ms"), (2_040_000_000, "bytes", "2.04 GB"), (0.25, "ratio", "25 %"), (25.0, "percent", "25 %"),
        (3.46e13, "FLOP", "34.6 TFLOP"), (3.12e14, "FLOP/s", "312 TFLOP/s"), (2.04e12, "byte/s", "2.04 TB/s"),
        (12_345, "count", "12,345"), (12_345, "", "12,345"), (0.123456, "", "0.123"), (7.5, "FLOP/byte", "7.5"),
        (True, "", "yes"), (False, "", "no"), (None, "ns", "–"), ("", "", "–"), ("kite", "", "kite"),
    ],
)  # fmt: skip
def test_a_value_is_written_by_its_unit(value: Any, unit: str, text: str) -> None:
    assert written(value, unit) == text


@given(
    st.lists(
        st.sampled_from(
            [f"busy{end}" for end in ("", *["_ns", "_ratio", "_time", "_bytes", "_byte_per_s", "_percent"])]
        ),
        unique=True,
    )
)
def test_default_headings_of_a_section_differ(names: list[str]) -> None:
    actual = headings(names, [""] * len(names))
    assert len(set(actual)) == len(names)
    assert headings(["busy_ns", "busy_ratio", "idle_ns"], ["", "", ""]) == ["Busy time", "Busy ratio", "Idle"]
    assert headings(["busy_ns", "busy_ratio"], ["work", ""]) == ["work", "Busy"], "one is given"
    assert headings(["achieved_flop_per_s", "play_ratio", "flop"], ["", "", ""]) == ["Achieved", "Play", "FLOP"]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_terminal_shows_it(width: int) -> None:
    lines = terminal.summary(toy_report(), width, verbose=True).splitlines()
    place = next(number for number, line in enumerate(lines) if line.startswith("Toy chest"))
    end = lines.index("  and 1 more", place)
    assert [line.split()[0] for line in lines[place:end] if ".50 ms" in line] == ["kite", "ball"]
    assert max(map(len, lines)) <= width
    assert "\x1b" not in "".join(lines)


def test_markdown_shows_it() -> None:
    text = documents.to_markdown(toy_report())
    section = text.partition("### Toy chest")[2].partition("###")[0]
    assert "What was played with." in section
    assert "| <code>kite</code> | 2.50 ms |" in section
    assert "<b>" not in section
    assert "And 1 more." in section


def test_the_page_shows_it_behind_its_own_sections() -> None:
    report = toy_report()
    *_, shown, devices = view(report).chapters
    assert devices.key == "devices"
    assert (shown.key, shown.title, shown.lead) == ("declared-toys", "Toy chest", "What was played with.")
    (listing,) = shown.pieces
    assert [row.cells[0].text for row in listing.rows] == ["kite", "ball", HOSTILE, "top"]
    assert listing.rows[1].span is not None
    page = html.html(report)
    assert re.search(r'id="table-declared-toys"', page)
    assert "2.50 ms" in page.partition('id="table-declared-toys"')[2]
    assert "<b>x</b>" not in page


def test_the_schema_and_the_docs_describe_its_rows() -> None:
    schema = json_schema([Analysis(TOYS, TOYS.empty, json="devices[].toys"), Analysis(TOYS, TOYS.empty, json="toys")])
    Draft202012Validator.check_schema(schema)
    in_device = schema["properties"]["devices"]["items"]["properties"]["toys"]["items"]["properties"]
    assert in_device["busy_ns"] == {"description": "Time in play.", "type": ["integer", "null"]}
    assert "device" not in in_device
    rows = Draft202012Validator(schema["properties"]["toys"]["items"])
    assert all(rows.is_valid(row) for row in ROWS)
    assert not rows.is_valid({**ROWS[0], "busy_ns": "long"})
    text = generate.table_page(TOYS, (SECTION,))
    assert "Shown in the section “Toy chest”." in text
    assert "| `busy_ns` | Int64 | Time in play. |" in text


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


STREAMS_SECTION = Section("Streams", show=("stream", "busy_ns"), rows=3)
OF_DEVICES = Analysis(STREAMS, sums_of_streams, json="devices[].streams", section=STREAMS_SECTION)
LONGEST = Analysis(
    Table("longest_stream", "The stream of most work.", STREAMS.columns),
    lambda stream_sums: stream_sums.sort("busy_ns", descending=True).head(1),
    needs=(PARTITION,),
    json="longest_stream",
)
DECLARED = (OF_DEVICES, Value("stream_sums", sums_of_streams), LONGEST)


def streams_report(*events: Any) -> Report:
    some = events or (launched("a", 0, 20, 30, 1, stream=7), launched("b", 10, 60, 10, 2, stream=13))
    return report_of(loaded(*some), analyses=(*ANALYSES, *DECLARED))


def test_every_module_that_declares_analyses_is_listed() -> None:
    assert registry.__file__ is not None
    paths = Path(registry.__file__).parent.glob("*.py")
    declaring = {path.stem for path in paths if "\nANALYSES" in path.read_text(encoding="utf-8")} - {"registry"}
    assert sorted(registry.MODULES) == sorted(declaring)


def test_its_table_is_one_of_the_report_and_its_rows_stand_at_their_place_in_the_json() -> None:
    report = streams_report()
    assert report.tables["streams"].schema == STREAMS.schema
    assert report.tables["streams"].rows() == [(0, "7", 1, 30_000), (0, "13", 1, 10_000)]
    assert "stream_sums" not in report.tables
    document = json.loads(report.to_json())
    streams = [
        {"stream": "7", "activity_count": 1, "busy_ns": 30_000},
        {"stream": "13", "activity_count": 1, "busy_ns": 10_000},
    ]
    assert document["devices"][0]["streams"] == streams
    assert document["longest_stream"] == [{"device": 0, **streams[0]}]
    schema = json_schema((*ANALYSES, *DECLARED))
    assert "longest_stream" in schema["required"]
    assert "streams" in schema["properties"]["devices"]["items"]["required"]
    assert [error.message for error in Draft202012Validator(schema).iter_errors(document)] == []
    assert "\nStreams\n  Stream   Busy\n  7       30 us\n  13      10 us\n" in report.summary(verbose=True)
    assert "### Streams\n\n| Stream | Busy |" in report.to_markdown()


def test_what_failed_checks_do_not_support_is_hidden_as_declared() -> None:
    """Later work of the stream ran during most of a kernel: its duration is impossible, and no figure is supported."""
    report = streams_report(launched("a", 0, 20, 9_000, 1), launched("b", 10, 60, 80, 2))
    assert PARTITION in {item.metric for item in report.devices[0].withheld}
    assert report.tables["streams"].height == 1, "it needs nothing"
    assert report.tables["longest_stream"].is_empty()
    assert json.loads(report.to_json())["longest_stream"] == []
