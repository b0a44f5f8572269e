"""Test sections of the package's tables: each names existing columns, and all outputs lay out the same declaration."""

import polars as pl
import pytest
from msgspec.structs import replace
from report_factory import gpu_report

from trace_analyzer import analysis, registry
from trace_analyzer.allocator import trace as allocator
from trace_analyzer.analyses.idle import CAUSES, cause_table
from trace_analyzer.analyses.operators import launch_counts
from trace_analyzer.render.declared import row_section, section_rows, table_section
from trace_analyzer.render.documents import to_markdown
from trace_analyzer.render.html.cells import Listing
from trace_analyzer.render.html.view import view
from trace_analyzer.render.row_phrases import PHRASES
from trace_analyzer.render.terminal import summary
from trace_analyzer.replay import critical_path, estimates
from trace_analyzer.report import devices, summaries, verdicts
from trace_analyzer.report.summaries import blamed_rows, part_shares, recomputed_ratio, step_rows
from trace_analyzer.sections import Longest, Section, Shown

OF_REPORT = [
    value
    for module in (allocator, critical_path, devices, estimates, summaries, verdicts)
    for value in vars(module).values()
    if isinstance(value, Section)
]
OF_TABLES = list(registry.SECTIONS.values())
SCHEMAS = {table.name: table.schema for table in registry.TABLES}


@pytest.mark.parametrize("section", OF_TABLES, ids=lambda section: section.key)
def test_a_section_names_columns_of_its_table(section: Section) -> None:
    known = {*SCHEMAS[section.table], "device_label"}
    shown = [each for each in section.show if isinstance(each, Shown)]
    used = {each.column for each in shown if not each.phrase} | {each.fallback for each in shown if each.fallback}
    used |= (
        {name.removeprefix("-") for name in section.sort} | {*section.known} | {column for column, _ in section.only}
    )
    if not isinstance(section.place, Longest):
        used |= {*section.place}
    assert used - known == set()


@pytest.mark.parametrize("section", OF_TABLES, ids=lambda section: section.key)
def test_the_longest_event_that_a_row_leads_to_has_its_keys(section: Section) -> None:
    if not isinstance(section.place, Longest):
        return
    *keys, last = section.place.keys
    events = SCHEMAS[section.place.table]
    assert {*keys, *(() if section.place.prefix else (last,))} <= {*events}
    assert {*section.place.keys} <= {*SCHEMAS[section.table]}


def test_keys_of_sections_differ() -> None:
    keys = [section.key for section in (*OF_TABLES, *OF_REPORT) if section.key]
    assert len(keys) == len(set(keys))


def test_a_section_shows_the_table_of_its_analysis_in_words_that_there_are() -> None:
    placed = [(made.table.name, made.placed) for made in registry.ANALYSES if isinstance(made, analysis.Analysis)]
    assert {section.table for name, sections in placed for section in sections if section.table != name} == set()
    shown = [each for section in (*OF_TABLES, *OF_REPORT) for each in section.show if isinstance(each, Shown)]
    assert {each.phrase for each in shown if each.phrase} == {*PHRASES}


def test_rows_of_a_section_have_its_values_and_stand_in_its_order() -> None:
    table = pl.DataFrame(
        {"by": ["module", "module", "phase", "module"], "key": ["a", None, "b", "c"], "idle_ns": [1, 2, 3, 4]}
    )
    assert section_rows(registry.SECTIONS["idle-module"], table).rows() == [("module", "c", 4), ("module", "a", 1)]


def test_a_column_without_any_value_is_left_out() -> None:
    section = Section("T", show=(Shown("name", form="text"), Shown("moved_bytes"), Shown("gone"), Shown("time_ns")))
    table = pl.DataFrame({"name": ["a", None], "moved_bytes": [None, None], "time_ns": [1_000, None]})
    shown = table_section(section, table, 9)
    assert (shown.headings, shown.alignment) == (("Name", "Time"), "lr")
    assert [shown.cells(row) for row in shown.rows] == [("a", "1 us"), ("–", "–")]
    assert table_section(section, table.clear(), 9) is None
    assert row_section(section, []) is None


def test_lines_wrap_the_last_column_beside_the_figures() -> None:
    report = gpu_report()
    text = summary(report, width=60, verbose=True)
    heading = text.index("Who kept the device waiting in the judged window")
    assert text[heading:].splitlines()[1] == "  300 us  Python  aten::add in forward (net.py:12)"
    assert all(len(line) <= 60 for line in text.splitlines())
    assert f"### {verdicts.BLAME_SECTION.title}\n\n| device idle | cause | at |" in to_markdown(report)
    pieces = (piece for chapter in view(report).chapters for piece in chapter.pieces if isinstance(piece, Listing))
    listing = next(piece for piece in pieces if piece.key == "culprits")
    assert listing.title == verdicts.BLAME_SECTION.title
    assert [column.heading for column in listing.columns][:2] == ["Device idle", "Cause"]


def test_evidence_of_a_trace_stays_text_in_markdown() -> None:
    report = gpu_report()
    fact = replace(report.verdict.evidence[0], value="<b>|x", unit="")
    markdown = to_markdown(replace(report, verdict=replace(report.verdict, evidence=(fact,))))
    assert "| &lt;b&gt;\\|x |" in markdown


def test_idle_time_is_summed_by_cause() -> None:
    rows = [(0, "python", 0, 2), (0, "python", 10, 16), (0, "launch-latency", 50, 62), (1, "python", 5, 9)]
    idle = pl.DataFrame(rows, schema=["device", "cause", "start_ns", "end_ns"], orient="row")
    table = cause_table(idle)
    assert table.schema == CAUSES.schema
    assert table.rows() == [
        (0, "launch-latency", 12, 0.6, 50, 62), (0, "python", 8, 0.4, 10, 16), (1, "python", 4, 1.0, 5, 9),
    ]  # fmt: skip
    assert cause_table(idle.clear()).is_empty()


def test_parts_of_a_window_have_shares_with_and_without_recording() -> None:
    shares = part_shares({"python": 30, "copy": 0, "compute": 20, "memory": 50}, {"compute": 20, "memory": 60})
    assert [(share.part, share.time_ns, share.time_ratio, share.unrecorded_ratio) for share in shares] == [
        ("memory", 50, 0.5, 0.75), ("compute", 20, 0.2, 0.25), ("python", 30, 0.3, 0.0),
    ]  # fmt: skip
    assert part_shares({}) == part_shares({"compute": 0}) == ()
    assert part_shares({"compute": 1})[0].unrecorded_ratio is None


def test_of_many_steps_those_that_differ_are_rows() -> None:
    report = gpu_report()
    step = replace(report.steps[0], steady=True, regime="overhead-bound", duration_ns=100, busy_ns=25, recording_ns=0)
    steps = [replace(step, index=i, start_ns=100 * i) for i in range(6)]
    steps[4] = replace(steps[4], steady=False, state="outlier", duration_ns=0, busy_ns=0)
    rows, more = step_rows(steps, replace(report.verdict, device=step.device), 3)
    assert ([row["index"] for row in rows], more) == ([0, 1, 4], 3)
    assert [row["busy_ratio"] for row in rows] == [0.25, 0.25, None]
    assert rows[0]["recording_ns"] is None
    assert step_rows(steps, replace(report.verdict, device=99), 3) == ([], 0)


def test_code_is_named_where_it_is_known_and_worth_it() -> None:
    row = gpu_report().blame[0]
    nameless = replace(row, operator=None, python_function=None, module=None, annotation=None)
    assert blamed_rows([row, nameless, replace(row, idle_ns=5)], 10) == (row,)


def test_launches_and_recomputed_time_are_summed() -> None:
    operators = pl.DataFrame({"launch_count": [3, 4], "short_launch_count": [1, None]})
    assert launch_counts(operators) == (7, 1)
    device = gpu_report().devices[0]
    kernels_ns = sum(bucket.time_ns for bucket in device.buckets)
    assert recomputed_ratio(replace(device, recomputed_ns=kernels_ns // 4)) == pytest.approx(0.25)
    assert recomputed_ratio(replace(device, buckets=())) is None
