"""Test the page around the timeline: tables, definitions, plots, colours, the picture."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from colour_vision import VISION, closest, contrast, distance
from conftest import SAMPLES, sample_report
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace
from report_factory import HOSTILE, cpu_report, empty_report, frame, gpu_report, hostile_report
from tiers import examples

from trace_analyzer import units, vocabulary
from trace_analyzer.analyses import fusion, roofline
from trace_analyzer.documents import Chapter, Document, Figure, FlameFigure, Notes, PlainTable
from trace_analyzer.render import documents, html
from trace_analyzer.render.charts import CHARTS, Theme, palette
from trace_analyzer.render.html import cells, shell
from trace_analyzer.render.html.figures import drawing
from trace_analyzer.render.html.view import View, view
from trace_analyzer.render.names import distinct_labels
from trace_analyzer.report import Debiased, Report, StepReport, summaries
from trace_analyzer.run_metadata import RunMetadata
from trace_analyzer.sections import Axis, Boxes, Chart, Flame, Form, Labels, Points, Section, Shown

pytestmark = pytest.mark.slow


def table(shown: View, key: str) -> cells.Listing:
    (only,) = (
        piece
        for chapter in shown.chapters
        for piece in chapter.pieces
        if isinstance(piece, cells.Listing) and piece.key == key
    )
    return only


def listed(frame: pl.DataFrame, *shown: Shown) -> cells.Listing:
    return cells.section_listing(empty_report(), Section("t", show=shown), frame)


def column(shown: cells.Listing, name: str) -> list[str]:
    place = [column.name for column in shown.columns].index(name)
    return [row.cells[place].text for row in shown.rows]


def test_rows_lead_to_the_longest_of_their_kind() -> None:
    shown = view(gpu_report(kernels=4))
    assert {(row.cells[0].text, row.span.start_ns) for row in table(shown, "kernels").rows if row.span} == {
        ("vectorized_elementwise_kernel · CUDAFunctor_add", 30_000), ("ampere_sgemm_128x64_tn", 130_000),
    }  # fmt: skip
    causes = table(shown, "causes").rows
    assert [row.span.start_ns for row in causes if row.span] == [90_000, 120_000]
    assert [row.cells[0].sort for row in causes if row.span] == ["python", "launch-latency"]
    assert sum(row.cells[-1].sort or 0 for row in causes) == pytest.approx(1)  # type: ignore[misc]
    assert column(table(shown, "gaps"), "duration_ns") == ["40 us"] * 3


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.json.gz")), ids=lambda path: path.name.split(".")[0])
def test_every_row_leads_to_a_place_in_the_trace_and_the_docs_name_every_section(path: Path) -> None:
    report = sample_report(path.name)
    chapters = [chapter for chapter in view(report).chapters if chapter.pieces]
    for shown in (piece for chapter in chapters for piece in chapter.pieces if isinstance(piece, cells.Listing)):
        # Time in which a thread records nothing, or is in no phase, is no place.
        unplaced = ("declared-cpu_time", "declared-phases")
        places = [row.span for row in shown.rows if row.span or shown.key not in unplaced]
        assert all(p and 0 <= p.start_ns <= p.end_ns <= report.trace.duration_ns for p in places), shown.key
    documented = (Path(__file__).parents[1] / "docs" / "report.md").read_text().partition("## What it shows")[2]
    rows = [line.split("|")[1] for line in documented.splitlines() if line[:2] == "| "]
    titles = [chapter.title for chapter in chapters]
    assert set(titles) <= {name.strip() for row in rows for name in row.split(", ")}
    assert "Phases of a step" not in titles[1:]


def test_a_group_and_a_bucket_lead_to_their_longest_kernel() -> None:
    report = sample_report("synthetic_compute.json.gz")
    kernels = report.tables["activities"].filter(kind="kernel")
    for key, name in (("buckets", "bucket"), ("groups", "group")):
        shown = table(view(report), key).rows
        assert shown
        for row in shown:
            longest = kernels.filter(pl.col(name) == row.cells[0].sort).get_column("duration_ns").max()
            assert row.span
            assert row.span.end_ns - row.span.start_ns == longest


def test_rows_beyond_the_most_are_counted_and_columns_without_values_left_out() -> None:
    frame = pl.DataFrame({"name": [f"n{i}" for i in range(cells.MOST_ROWS + 7)]})
    shown = listed(frame, Shown("name", form="name"))
    assert (len(shown.rows), shown.left_out) == (cells.MOST_ROWS, 7)
    frame = pl.DataFrame({"name": ["a"], "time_ns": [5], "flop": [None]}, schema_overrides={"flop": pl.Float64})
    shown = listed(frame, *map(Shown, ("name", "time_ns", "flop", "no")))
    assert [column.name for column in shown.columns] == ["name", "time_ns"]


def test_devices_are_named_only_where_there_are_several_and_a_run_on_the_cpu_shows_its_operators_only() -> None:
    one, two = (table(view(gpu_report(4, devices)), "gaps") for devices in (1, 2))
    assert "device_label" not in [column.name for column in one.columns]
    assert set(column(two, "device_label")) == {"GPU 0", "GPU 1"}
    assert [chapter.key for chapter, _ in shell.laid_out(view(cpu_report()).chapters)[0]] == ["operators"]


@pytest.mark.parametrize("value", [0, 7])
def test_columns_that_count_nothing_are_left_out_on_the_page_and_in_the_text(value: int) -> None:
    counted = {
        "launch_count": "launches", "short_launch_count": "not worth it", "blocked_ns": "waiting",
        "device_ns": "device time"
    }  # fmt: skip
    report = gpu_report()
    row = {"count": 3, "host_ns": 50, "host_self_ns": 40, "dispatch_ns": 30}
    rows = [row | {"name": f"aten::op{figure}", **dict.fromkeys(counted, figure)} for figure in (value, 0)]
    operators = pl.DataFrame(rows, report.tables["operators"].schema)
    report = replace(report, tables={**report.tables, "operators": operators})
    columns = {column.name for column in table(view(report), "operators").columns}
    assert columns & set(counted) == (set(counted) if value else set())
    assert {"name", "count", "dispatch_ns"} <= columns
    head = documents.to_markdown(report).partition("| operator |")[2].partition("\n")[0]
    assert "dispatch" in head
    assert [name in head for name in counted.values()] == [bool(value)] * len(counted)


def test_devices_stand_side_by_side_at_most_six_in_a_table() -> None:
    three = table(view(gpu_report(4, 3)), "device-work")
    assert three.beside
    assert [row.cells[0].text for row in three.rows] == ["GPU 0", "GPU 1", "GPU 2"]
    page = html.html(gpu_report(4, 3))
    shown = page[page.index('id="table-device-work"') :].partition("</table>")[0]
    assert shown.count('<th scope="col"') == 4
    assert shown.count('<th scope="row"') == len(three.columns) - 1
    assert shown.count("<td") == 3 * (len(three.columns) - 1)
    many = replace(three, rows=three.rows * 5, total=17)
    pieces = cells.pieces_beside(many)
    assert [(piece.key, len(piece.rows), piece.left_out) for piece in pieces] == [
        ("device-work", 6, 2), ("device-work-2", 6, 0), ("device-work-3", 3, 0),
    ]  # fmt: skip


MUL = "void at::native::elementwise_kernel<128, {}, gpu_kernel_impl<BinaryFunctor<{}, {}, MulFunctor<float> > > >(int)"


def test_like_names_of_kernels_are_distinguished_by_what_differs() -> None:
    types = ((4, "c10::BFloat16", "float"), (2, "float", "float"), (2, "float", "double"))
    names = [*(MUL.format(*each) for each in types), "sgemm"]
    frame = pl.DataFrame({"name": names, "operator": ["", "", "", ""]})
    shown = listed(frame, Shown("name", form="name"), Shown("operator", form="name"))
    assert [row.cells[0].text for row in shown.rows] == [
        "elementwise_kernel · MulFunctor, BFloat16 float", "elementwise_kernel · MulFunctor, float float",
        "elementwise_kernel · MulFunctor, float double", "sgemm",
    ]  # fmt: skip
    assert [column.name for column in shown.columns] == ["name"], "a column of empty texts is left out"
    long = ["elementwise_kernel<128, 4, gp…, BFloat16", "elementwise_kernel<128, 4, gpu_k…, float"]
    assert distinct_labels([names[0], MUL.format(4, "float", "float")], 40) == long
    assert distinct_labels([names[3]] * 2, 40) == ["sgemm", "sgemm"]


def test_texts_share_the_room_that_figures_leave() -> None:
    row = {"name": "n" * 200, "module": "m" * 60, "phase": "forward", "time_ns": 1_234_567}
    columns = [*row, *(f"time_{place}_ns" for place in range(6))]
    frame = pl.DataFrame([{**dict.fromkeys(columns, 1_234_567), **row}])
    forms: dict[str, Form] = {"name": "name", "module": "module", "phase": "text"}
    shown = listed(frame, *(Shown(name, name, forms.get(name, "")) for name in columns))
    assert shown.is_wide
    name, module, phase, *figures = shown.room
    assert phase == len("forward")
    assert all(figure >= len("1.23 ms") for figure in figures)
    assert abs(name - module) <= 1
    assert 120 < sum(shown.room) + len(shown.room) - 1 <= cells.ROOM
    assert not listed(frame, Shown("name", form="name")).is_wide


def test_code_in_a_lead_and_the_command_are_code_and_nothing_in_them_is_markup() -> None:
    coded = shell.environment().filters["coded"]
    assert coded("see `a <b>` & `c") == "see <code>a &lt;b&gt;</code> &amp; `c"
    page = html.html(gpu_report(), command=f"analyze '{HOSTILE[0]}'")
    assert "<code>analyze &#39;&lt;img src=x onerror=alert(1)&gt;&#39;</code>" in page


def test_a_missing_table_says_what_to_record_and_many_pieces_of_advice_unfold() -> None:
    assert "Record with activities=[ProfilerActivity.CPU" in html.html(empty_report())
    report = gpu_report()
    page = html.html(replace(report, advice=report.advice * 6))
    assert "<summary>3 more</summary>" in page
    assert page.count('<li class="card">') == 6


def test_a_sentence_without_figures_has_its_whole_row() -> None:
    report, reason = gpu_report(), "no estimate of CUDA graphs: a graph cannot contain the waits of this program"
    made = [{"kind": "now", "label": "now", "step_ns": 1.0}, {"kind": "refused", "label": reason}]
    helps = pl.DataFrame(made, strict=False).with_columns(device=0, start_ns=0, end_ns=10)
    helps = pl.concat([report.tables["what_would_help"].clear(), helps], how="diagonal_relaxed")
    page = html.html(replace(report, tables={**report.tables, "what_would_help": helps}))
    (row,) = re.findall(rf"<tr[^>]*>\s*(<td[^>]*colspan[^>]*>.*?{reason}.*?)</tr>", page, re.DOTALL)
    first, *others = re.findall("<td[^>]*>", row)
    assert f'colspan="{1 + len(others)}"' in first
    assert all(" hidden" in cell for cell in others), "kept for sorting and CSV"
    assert page.count("colspan") == 1


def test_broken_checks_come_first_and_say_what_they_withhold() -> None:
    checks = view(gpu_report()).trust
    assert [(check.status, check.name, check.value) for check in checks] == [
        ("fail", "Link coverage", "40 %"), ("warn", "Lost events", "12"), ("ok", "Launched by graphs", "0 %"),
    ]  # fmt: skip
    assert [check.withheld for check in checks] == ["run ahead", "", ""]
    page = html.html(gpu_report())
    assert "Not shown because of it: run ahead" in page
    assert "1 check of the trace holds, 2 in doubt" in page
    assert 'href="#trust">3 doubts about this trace' in page


def test_the_verdict_without_the_cost_of_recording_stands_beside_the_doubts() -> None:
    report, parts = gpu_report(), {"compute": 60, "python": 40}
    removed = ("measured", {}, None, 500, 500, 500, 100, None, parts, "compute-bound", None, False, "measured 1 ms")
    unbiased = replace(report, verdict=replace(report.verdict, debiased=Debiased(*removed)))
    assert [(share.key, share.ratio) for share in view(unbiased).debiased] == [("compute", 0.6), ("python", 0.4)]
    assert "Without the cost of recording: Compute 60 %, Python 40 %" in html.html(unbiased)
    assert view(report).debiased == ()


def test_blame_leads_to_the_longest_interval() -> None:
    report = gpu_report()
    shown = table(view(report), "culprits")
    assert column(shown, "python_function")[0] == "forward · net.py(12)"
    assert shown.rows[0].span == cells.Span(report.blame[0].start_ns, report.blame[0].end_ns)


@pytest.mark.parametrize(
    ("form", "value", "text", "full"),
    [
        ("frame", "a/b c/net.py(12): forward", "forward · net.py(12)", "a/b c/net.py(12): forward"),
        ("frame", "C:\\x\\net.py(3): f", "f · net.py(3)", "C:\\x\\net.py(3): f"),
        ("frame", "<built-in method mul>", "<built-in method mul>", ""),
        ("frame", None, "–", ""),
        ("module", "Net_0/Block_3/Linear_7", "… / Block_3 / Linear_7", "Net_0/Block_3/Linear_7"),
        ("module", "Net_0/Linear_1", "Net_0/Linear_1", ""),
        ("", 1_500_000_000, "1.50 GB", ""),
        ("times", 250.0, "250 ×", ""),
    ],
)
def test_values_are_written_for_people(form: Form, value: object, text: str, full: str) -> None:
    frame = pl.DataFrame({"x_bytes": [value, value] if value else ["other.py(1): g", None]})
    cell = listed(frame, Shown("x_bytes", form=form)).rows[-1].cells[0]
    assert (cell.text, cell.full, cell.sort) == (text, full, value)


def test_fusions_say_what_to_write_and_lead_to_the_longest() -> None:
    row = {"device": 0, "kind": "chain", "what": "x.cos().cos()", "operators": ">cos>cos>", "count": 3, "time_ns": 900,
           "kernel_count": 6, "saves_ns": 450.0, "code": "torch.compile(f)", "start_ns": 5, "end_ns": 9}  # fmt: skip
    report = gpu_report()
    report = replace(report, tables={**report.tables, "fusions": frame(fusion.FUSIONS, [row])})
    shown = table(view(report), "fusions")
    assert (column(shown, "code"), shown.rows[0].span) == (["torch.compile(f)"], cells.Span(5, 9))
    assert "module" not in [column.name for column in shown.columns]


@pytest.mark.parametrize("report", [gpu_report(), cpu_report(), empty_report()], ids=["gpu", "cpu", "empty"])
@pytest.mark.parametrize("compact", [False, True])
def test_every_reference_within_the_page_leads_somewhere(report: Report, compact: bool) -> None:
    page = html.html(report, compact=compact)
    markup = re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL)
    ids = re.findall(r'\bid="([^"]+)"', markup)
    assert len(ids) == len(set(ids))
    pattern = r'(?:href="#|data-term="|aria-describedby="|aria-labelledby="|aria-controls=")([^"]+)"'
    assert set(re.findall(pattern, markup)) <= set(ids)
    assert ("timeline" in ids) == bool(report.tables["host_events"].height)
    assert not compact or not re.search(r'<div class="listing|data-plot', markup), "it ends after the timeline"


def test_every_definition_is_a_sentence() -> None:
    definitions = [word.definition for words in shell.GLOSSARY.values() for word in words.values()]
    assert [text for text in definitions if not text.endswith(".")] == []


def test_plots_are_what_the_report_has_data_for() -> None:
    assert set(gpu_report().plots) == set(CHARTS) - {"roofline"}
    assert empty_report().plots == {}


def test_plots_can_be_restyled_and_composed() -> None:
    import holoviews as hv

    made = gpu_report().plots
    layout = made["gaps"].opts(color="#123456", width=300) + made["launch_lead"]
    assert len(hv.render(layout, backend="bokeh").references()) > 10


def test_a_histogram_of_gaps_holds_all_idle_time_and_one_of_leads_no_late_launches() -> None:
    (bins,) = CHARTS["gaps"](gpu_report(kernels=9)).marks
    assert isinstance(bins, Boxes)
    assert sum(bins.top) == pytest.approx(8 * 40)  # us
    assert min(bins.left) <= 40_000 <= max(bins.right)
    report = gpu_report(kernels=4)
    launches = report.tables["launches"].with_columns(lead_ns=pl.Series([-5, 0, 10, 1000]))
    (bins,) = CHARTS["launch_lead"](replace(report, tables={**report.tables, "launches": launches})).marks
    assert isinstance(bins, Boxes)
    assert sum(bins.top) == 2


def test_the_queue_keeps_its_highest_points_and_has_a_curve_for_each_device() -> None:
    import holoviews as hv

    report, time = gpu_report(), np.arange(100_000)
    depth = np.where(time == 54_321, 500, time % 7)
    queue = pl.DataFrame({"device": 0, "time_ns": time, "depth": depth, "queued_work_ns": time % 7 * 10})
    curve = replace(report, tables={**report.tables, "queue": queue}).plots["queue_depth"]
    assert curve.dimension_values(1).max() == 500
    assert len(curve) < 1000
    assert hv.render(curve, backend="bokeh").yaxis[0].ticker.min_interval == 1, "no half of a launch"
    assert [curve.label for curve in gpu_report(8, 2).plots["queue_depth"]] == ["GPU 0", "GPU 1"]


def test_the_roofline_shows_kernels_of_known_work_under_the_roofs_of_their_peaks() -> None:
    import holoviews as hv

    rows = [
        {"device": 0, "name": name, "group": group, "time_ns": 1000, "intensity_flop_per_byte": intensity,
         "achieved_flop_per_s": 1e13, "peak_flop_per_s": 1e15, "roof_ratio": 0.5}
        for name, group, intensity in (("gemm", "matmul", 500.0), ("add", "pointwise", 0.1), ("odd", "other", None))
    ]  # fmt: skip
    roofs = [{"activity_id": 0, "intensity_flop_per_byte": 0.1, "attainable_flop_per_s": 2e11, "peak_flop_per_s": 1e15}]
    made = {"roofline": frame(roofline.ROOFLINE, rows), "roofs": frame(roofline.ROOFS, roofs)}
    report = replace(empty_report(), tables={**empty_report().tables, **made})
    plot = report.plots["roofline"]
    (roof,) = plot.traverse(specs=[hv.Curve])
    assert dict(roof.array().tolist())[500.0] == 1e15  # the ridge: 1e15 FLOP/s over 2e12 B/s
    assert {points.label: len(points) for points in plot.traverse(specs=[hv.Points])} == {"matmul": 1, "pointwise": 1}
    chart = CHARTS["roofline"](report)
    assert chart is not None
    assert drawing("roofline", chart).legend == (("Matmul, conv, attention", "k-matmul"), ("Pointwise", "k-pointwise"))
    only_moves = frame(roofline.ROOFS, [roofs[0] | {"intensity_flop_per_byte": 0.0, "attainable_flop_per_s": 0.0}])
    flat = CHARTS["roofline"](replace(report, tables={**report.tables, "roofs": only_moves})).marks[0]
    assert [*flat.y] == [1e15, 1e15], "no bandwidth is known"


def roofed(*peaks: tuple[str, str, float | None]) -> tuple[Chart, Labels]:
    """Return the roofline of kernels of these groups, types and peaks, and its names of roofs."""
    rows = [
        {"device": 0, "name": f"{group} {dtype}", "group": group, "dtype": dtype, "time_ns": 1000, "achieved_flop_per_s": 1e13,
         "intensity_flop_per_byte": 10.0 + place, "peak_flop_per_s": peak, "roof_ratio": 0.5}
        for place, (group, dtype, peak) in enumerate(peaks)
    ]  # fmt: skip
    tables = {**empty_report().tables, "roofline": frame(roofline.ROOFLINE, rows)}
    chart = CHARTS["roofline"](replace(empty_report(), tables=tables))
    (names,) = (mark for mark in chart.marks if isinstance(mark, Labels))
    return chart, names


def test_each_roof_names_its_types_units_and_kernels_and_its_points_have_a_shape_of_their_own() -> None:
    chart, names = roofed(("matmul", "bf16", 9.9e14), ("matmul", "fp16", 9.9e14), ("pointwise", "fp32", 6.7e13))
    assert names.texts == ["bf16, fp16 matmuls: 990 TFLOP/s", "fp32 elsewhere: 67 TFLOP/s"]
    matmul, pointwise = (mark for mark in chart.marks if isinstance(mark, Points))
    assert set(matmul.markers).isdisjoint(pointwise.markers)
    assert set(pointwise.texts["peak"]) == {"fp32 elsewhere: 67 TFLOP/s"}


def test_a_single_kernel_of_unknown_peak_has_a_point_without_a_roof() -> None:
    chart, names = roofed(("matmul", "bf16", None))
    assert not names.texts
    assert chart.y.ends == (5e12, 3e13)


def test_names_of_roofs_that_are_close_stand_beside_each_other() -> None:
    _, names = roofed(("matmul", "tf32", 1.6e14), ("matmul", "bf16", 1.5e14), ("pointwise", "fp32", 1e13))
    high, close, low = names.x
    assert close < high == low
    assert names.texts[:2] == ["tf32 matmuls: 160 TFLOP/s", "bf16 matmuls: 150 TFLOP/s"]


def test_text_json_markdown_and_page_need_neither_holoviews_nor_pandas() -> None:
    code = """
import sys
sys.modules.update(dict.fromkeys(("holoviews", "pandas", "panel")))  # importing them raises
from report_factory import gpu_report
from trace_analyzer.render.html import html
report = gpu_report()
assert 'data-plot="gaps"' in html(report)
assert report.summary(verbose=True) and report.to_json() and report.to_markdown()
assert "bokeh" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent)


def test_a_document_is_a_page_with_its_charts_tables_and_flame_graph() -> None:
    chart = Chart(Axis("ms"), Axis(""), (Boxes([0], [1], [0], [1], "p-python", {"": [HOSTILE[0]]}),))
    nodes = pl.DataFrame({"caller": [-1], "frame": ["step"], "label": ["step"], "colour": ["share"], "value_ns": [9]})
    page = shell.document_page(Document("a and b", HOSTILE[0], [
        Chapter("cause", "By cause", [Figure("By cause", "Blue: less.", lambda: chart)]),
        Chapter("flames", "Flame graph", [FlameFigure("Flame graph", "", lambda: (Flame("step", "Step", nodes),), (("less", "p-compute"),))]),
        Chapter("sides", "Sides", [PlainTable(("", "Step"), "lr", [("before", HOSTILE[0])], under=lambda: {0: [("in x", "1 ms")]}), Notes(["careful"], "warning")]),
        Chapter("words", "In words", [Notes(["text"])], folded=True),
        Chapter("none", "Nothing", []),
    ], chips=("ok",)))  # fmt: skip
    assert HOSTILE[0] not in page
    assert page.count("&lt;img src=x onerror=alert(1)&gt;") >= 2
    assert all(f'id="{key}"' in page for key in ("cause", "plot-cause-0", "flame", "stacks", "sides", "words", "bokeh"))
    assert "Nothing" not in page
    assert "<details><summary>before</summary>" in page


@pytest.mark.sampled
@pytest.mark.parametrize("report", [gpu_report(), gpu_report(9, 3), hostile_report()], ids=["gpu", "three", "hostile"])
def test_drawings_hold_no_code_and_no_foreign_colour(report: Report) -> None:
    charts = {name: chart for name, describe in CHARTS.items() if (chart := describe(report)) is not None}
    assert set(charts) == set(report.plots)
    text = str({name: drawing(name, chart) for name, chart in charts.items()})
    assert [code for code in ("CustomJS", "{safe}", "Div") if code in text] == []
    tags = set(re.findall(r"'(--[\w-]+)'", text))
    assert tags
    assert {tag.removeprefix("--") for tag in tags} <= set(palette())


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_what_is_the_same_has_the_same_colour_and_dark_colours_overlay_the_light_ones(theme: Theme) -> None:
    colours, light = palette(theme), palette("light")
    pairs = {"k-matmul": "p-compute", "k-pointwise": "p-memory", "k-communication": "p-communication"}
    assert [colours[kind] for kind in pairs] == [colours[part] for part in pairs.values()]
    assert (colours["k-memcpy"], colours["k-other"]) == (colours["p-copy"], colours["p-other"])
    assert set(light) == set(colours)
    assert light["p-memory"] == colours["p-memory"]
    assert (light["text"] == colours["text"]) == (theme == "light")


KIND_COLOURS, CPU_COLOURS = (
    [f"k-{kind}" for kind in (*vocabulary.GROUPS, *others)]
    for others in (vocabulary.ACTIVITIES, vocabulary.CPU_OPERATORS)
)
WORK_COLOURS = [f"p-{part}" for part in vocabulary.WORK]
REGIME_COLOURS = ["p-python", "p-memory", "p-compute", "p-communication"]
BAR_COLOURS = [*WORK_COLOURS, *(f"p-{cause}" for cause in (
    "synchronization", "data-loading", "python", "launch-latency", "device-gap", "device-wait"))]  # fmt: skip


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize(
    ("names", "least"),
    [(KIND_COLOURS, 0.08), (CPU_COLOURS, 0.08), (WORK_COLOURS, 0.08), (REGIME_COLOURS, 0.08), (BAR_COLOURS, 0.05)],
    ids=["kinds", "cpu", "work", "regimes", "bar"],
)
def test_colours_can_be_distinguished(theme: Theme, vision: str, names: list[str], least: float) -> None:
    colours = palette(theme)
    distance, *pair = closest({name: colours[name] for name in names}, vision)
    assert distance >= least, pair


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("ink", ["text", "text-soft", "text-muted", "link"])
def test_text_stands_out(theme: Theme, ink: str) -> None:
    colours = palette(theme)
    assert min(contrast(colours[ink], colours[ground]) for ground in ("page", "card", "sunken")) >= 4.5


def test_the_simulation_knows_who_confuses_what() -> None:
    red, green = "#c04040", "#6f6f1f"
    assert distance(red, green, "deutan") < distance(red, green, "normal") / 3
    assert distance("#123456", "#123456", "protan") == 0
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


def test_numbers_and_settings_are_written_for_people() -> None:
    numbers = [None, 0.001234, 999.4, 999.6, 1390.2, -1234.5, 1e7]
    assert [units.number(value) for value in numbers] == ["–", "0.00123", "999", "1,000", "1,390", "-1,234", "1e+07"]
    run = RunMetadata(measured_step_ms=0.7124139, level="full", sm_clock_mhz=1410.0, cpu_threads=8, tf32_cudnn=True)
    report = gpu_report()
    facts = view(replace(report, trace=replace(report.trace, settings=run))).facts
    assert {fact.name: fact.value for fact in facts}.items() >= {
        ("Measured step", "712 us"), ("Level", "full"), ("SM clock", "1,410 MHz"), ("CPU threads", "8"), ("TF32 cuDNN", "yes"),
    }  # fmt: skip
    assert not any("`" in fact.why for fact in facts)


def test_a_summary_of_steps_is_of_the_steady_ones_and_counts_those_set_aside() -> None:
    first, *steady = (
        StepReport(k, f"s{k}", 100 * k, 100 + k, 0, 50, 50 + k, "overhead-bound", "ok", True) for k in range(4)
    )
    aside = replace(first, state="first", steady=False, regime="compute-bound")
    verdict = replace(gpu_report().verdict, device=0, regime="overhead-bound", cause=None)
    totals = summaries.step_totals([aside, *steady], verdict)
    assert (totals.count, totals.steady_count) == (4, 3)
    assert (totals.median_ns, totals.shortest_ns, totals.longest_ns) == (102, 101, 103)
    assert totals.busy_ratio == 150 / 306
    assert totals.set_aside == (summaries.SetAside("first", 1, aside),)
    assert summaries.step_totals([], verdict) is None
    assert summaries.longest_and_rest({"a": 3, "b": 2, "c": 1}, 2) == ([("a", 3)], 2, 3)
    assert summaries.longest_and_rest({"a": 3, "b": 2}, 2) == ([("a", 3), ("b", 2)], 0, 0)


@pytest.mark.parametrize(
    ("names", "ends"),
    [
        (["short", "a_name_of_its_own_that_is_long_enough"], ["", "long_enough"]),
        ([f"Cijk_Ailk_Bljk_HHS_BH_MT64x{n}_ISA942" for n in (32, 16)], ["4x32_ISA942", "4x16_ISA942"]),
        (["one_function_of_many_elements", "two_function_of_many_elements"], ["ny_elements", "ny_elements"]),
        ([f"gemm_kernel_{end}_tail_of_it_all" for end in ("64x64_aaaa", "64x64_bbbb", "32x64_aaaa")],
         [f"el_{end}_tail_of_it_all" for end in ("64x64_aaaa", "64x64_bbbb", "32x64_aaaa")]),
        ([], []),
    ],
)  # fmt: skip
def test_like_names_are_cut_where_they_differ(names: list[str], ends: list[str]) -> None:
    rows = listed(pl.DataFrame({"name": names}, schema={"name": pl.String}), Shown("name", form="name")).rows
    assert [row.cells[0].end for row in rows] == ends
    assert all(row.cells[0].text.startswith(row.cells[0].head) for row in rows)


@given(st.sets(st.text("abc", min_size=25, max_size=40), max_size=12))
@settings(max_examples=examples(60))
def test_no_two_names_are_cut_alike(names: set[str]) -> None:
    rows = listed(pl.DataFrame({"name": sorted(names)}, schema={"name": pl.String}), Shown("name", form="name")).rows
    shown = {(row.cells[0].text[: cells.NAME_END], row.cells[0].end) for row in rows}
    assert len(shown) == len(names)


def test_compiled_templates_are_kept_as_python_keeps_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def kept(folder: Path, *, writing: bool = True) -> int:
        monkeypatch.setattr(sys, "dont_write_bytecode", not writing)
        cache = shell._CompiledTemplates(str(folder))
        shell.environment().overlay(bytecode_cache=cache, cache_size=1).get_template("ranks.html.j2")
        return sum(1 for _ in folder.glob("*")) if folder.exists() else 0

    assert kept(tmp_path, writing=False) == 0
    assert kept(tmp_path / "missing") == 0
    assert kept(tmp_path) == 1
    (file,) = tmp_path.iterdir()
    file.write_bytes(b"of an interrupted process")
    assert kept(tmp_path) == 1
    assert len(written := file.read_bytes()) > 1_000
    (tmp_path / "other").write_text("another way to escape")
    monkeypatch.setattr(shell, "__file__", str(tmp_path / "other"))
    assert kept(tmp_path) == 2
    assert file.read_bytes() != written
