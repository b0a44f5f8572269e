"""Test the HTML report: its data first, then its markup."""

import base64
import re
import shutil
import zlib
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from bokeh.document import Document
from bokeh.models import ColumnDataSource, Plot
from bokeh.resources import Resources
from commands import ran, run_python
from hypothesis import given, settings, strategies as st
from markupsafe import Markup
from msgspec.structs import replace
from report_factory import HOSTILE, cpu_report, empty_report, frame, gpu_report, hostile_report
from tiers import examples

from trace_analyzer import files, vocabulary
from trace_analyzer.analyses import cpu
from trace_analyzer.analyses.activities import ACTIVITIES
from trace_analyzer.ingest.tables import DEVICES
from trace_analyzer.render import charts, html, phrasing
from trace_analyzer.render.html import cells, codec, shell, view
from trace_analyzer.render.html.figures import busy_bins, host_bins, timeline_figures
from trace_analyzer.render.html.timeline import timeline_columns
from trace_analyzer.render.html.tracks import first_fit, in_rows
from trace_analyzer.render.names import short_name
from trace_analyzer.report import Evidence, Report

ASSETS = Path(html.__file__).parent / "assets"
REPORTS = {
    "gpu": gpu_report(),
    "two": gpu_report(7, 2),
    "cpu": cpu_report(),
    "empty": empty_report(),
    "hostile": hostile_report(),
}


def lanes(*events: tuple[int, int]) -> list[int]:
    """Return the rows that (start, duration) events on one track are drawn in."""
    schema = {"start_ns": pl.Int64, "duration_ns": pl.Int64}
    track = pl.DataFrame(events, schema=schema, orient="row").with_row_index("order")
    return in_rows(track).sort("order").get_column("depth").to_list()


@pytest.mark.parametrize(
    ("events", "rows"),
    [
        ([(0, 10), (1, 3), (2, 1), (6, 2), (10, 5)], [0, 1, 2, 1, 0]),
        ([(0, 10), (5, 0), (5, 3), (8, 0)], [0, 1, 1, 1]),
        ([(0, 10), (5, 10), (10, 10), (15, 10)], [0, 1, 0, 1]),
        ([(0, 9), (1, 8), (2, 2), (10, 10), (15, 10), (30, 5), (30, 0), (31, 2)], [0, 1, 2, 0, 1, 0, 1, 1]),
    ],
    ids=["nested", "without-duration", "overlapping", "a-clash-between-runs"],
)
def test_rows_of_events(events: list[tuple[int, int]], rows: list[int]) -> None:
    assert lanes(*events) == rows


@pytest.mark.parametrize("seed", range(20))
def test_rows_never_overlap_whatever_the_events_and_the_first_that_is_free_is_taken(seed: int) -> None:
    random = np.random.default_rng(seed)
    start, length = np.sort(random.integers(0, 300, 60)), random.integers(0, 12, 60)
    track = pl.DataFrame({"start_ns": start, "duration_ns": length}).sort("start_ns", -pl.col("duration_ns"))
    laid = in_rows(track)
    assert sorted(laid.select("start_ns", "duration_ns").iter_rows()) == sorted(track.iter_rows())
    assert laid.get_column("depth").is_sorted()
    assert laid.get_column("gap_ns").min() >= 0  # type: ignore[operator]
    start = start // 5
    free_from: list[int] = []
    naive = []
    for begin, finish in zip(start.tolist(), (start + length).tolist(), strict=True):
        row = next((row for row, free in enumerate(free_from) if free <= begin), len(free_from))
        free_from[row : row + 1] = [finish]
        naive.append(row)
    assert first_fit(start, start + length).tolist() == naive


@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
def test_rows_hold_every_event_once_sorted_and_disjoint(report: Report) -> None:
    columns = timeline_columns(report)
    spans = [row for track in columns.tracks for row in track.rows]
    positions = sorted(position for first, count in spans for position in range(first, first + count))
    assert positions == list(range(columns.events.height))
    for first, count in spans:
        row = columns.events.slice(first, count)
        end = row.get_column("start_ns") + row.get_column("duration_ns")
        gap, start = row.get_column("gap_ns"), row.get_column("start_ns")
        assert (gap >= 0).all()
        assert (gap + end.shift(1, fill_value=0)).equals(start, check_names=False)
    tables, length = report.tables, (pl.col("end_ns") - pl.col("start_ns")).alias("duration_ns")
    expected = [
        *(tables[name] for name in ("activities", "host_events", "sync_events", "device_annotations")),
        tables["idle"].select(pl.col("cause").alias("name"), "start_ns", length),
        tables["partition"].filter(part="communication").select(pl.col("part").alias("name"), "start_ns", length),
    ]
    shown = [
        sorted(pl.concat([t.select("name", "start_ns", "duration_ns") for t in tables_]).iter_rows())
        for tables_ in (expected, [columns.events])
    ]
    assert shown[0] == shown[1], "nothing is lost or invented"


def test_links_lead_to_the_launch_and_to_what_the_host_did() -> None:
    columns = timeline_columns(gpu_report(kernels=3))
    names = columns.events.get_column("name")
    kernels, idle = columns.events.head(3), columns.events.filter(pl.col("kind").str.starts_with("idle-"))
    assert [names[link] for link in kernels.get_column("link")] == ["cudaLaunchKernel"] * 3
    explained = idle.get_column("link").filter(idle.get_column("link") >= 0)
    assert {names[link] for link in explained} == {"train.py(12): step"}
    assert len(explained) == idle.height // 2


def test_tracks_stand_in_the_order_of_reading() -> None:
    tracks = timeline_columns(gpu_report(4, devices=2)).tracks
    assert [(track.family, track.collapsed) for track in tracks] == [
        ("stream", False), ("idle", False), ("stream", False), ("idle", False),
        ("annotations", False), ("calls", False), ("operators", False), ("python", True),
    ]  # fmt: skip
    assert tracks[0].group == "GPU 0 · NVIDIA H100 80GB HBM3"
    assert len({track.group for track in tracks}) == 3


def test_two_streams_and_none_are_three_tracks() -> None:
    row = {"kind": "kernel", "name": "k", "device": 0, "start_ns": 0, "duration_ns": 5}
    rows = [row | {"activity_id": i, "stream": stream} for i, stream in enumerate((7, 20, None))]
    made = {"activities": frame(ACTIVITIES, rows), "devices": frame(DEVICES, [{"device": 0, "label": "0"}])}
    report = replace(empty_report(), devices=gpu_report().devices, tables={**empty_report().tables, **made})
    assert [track.label for track in timeline_columns(report).tracks] == ["Stream 7", "Stream 20", "Stream –"]


def test_busy_bins_add_up_to_the_busy_time_of_the_devices_or_of_the_host() -> None:
    share = busy_bins(gpu_report(9), 1_000_000)
    assert share.sum() * 1_000_000 / len(share) == pytest.approx(9 * 60_000)
    assert (share.min(), share.max()) == (0, pytest.approx(1))
    assert busy_bins(gpu_report(9, devices=2), 1_000_000) == pytest.approx(share), "of two devices their mean"
    columns = timeline_columns(cpu_report())
    assert host_bins(columns, columns.end_ns).mean() == pytest.approx(0.8)


def test_figures_hold_no_events_and_no_code() -> None:
    report = hostile_report()
    figures = Document.from_json(codec.document(timeline_figures(report, timeline_columns(report)), "p")).roots
    assert [figure.name for figure in figures] == ["overview", "rows", "queue", "queued_work"]
    boxes = figures[1].select_one({"name": "boxes"})
    assert isinstance(boxes, ColumnDataSource)
    assert set(map(len, boxes.data.values())) == {0}
    assert all(isinstance(figure, Plot) and figure.lod_threshold is None for figure in figures)
    assert not [model for figure in figures for model in figure.references() if "CustomJS" in type(model).__name__]


def test_columns_are_written_as_planes_of_bytes() -> None:
    assert codec._planes(np.array([1, 258], dtype=np.uint64)) == [b"\x01\x02", b"\x00\x01"], "less what is always zero"
    assert codec._planes(np.array([], dtype=np.uint64)) == []
    assert codec.delta(pl.Series([-1, 5, 5, 3])).integers.tolist() == [1, 12, 0, 3]
    column = codec.text(pl.Series(["b", None, "a", "b"]))
    assert (column.integers.tolist(), column.values) == ([1, 0, 2, 1], ("", "b", "a"))
    odd = pl.Series([float("inf"), 1e300, float("nan"), -1.0, None, 7.9], dtype=pl.Float64)
    assert codec.plain(odd).integers.tolist() == [2**53 - 1, 2**53 - 1, 0, 0, 0, 7]


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("aten::mm", "aten::mm"),
        ("train.py(12): step", "step"),
        ("ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"),
        (
            "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
            "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
        ),
        ("Memcpy DtoH (Device -> Pageable)", "Memcpy DtoH (Device -> Pageable)"),
        (
            "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long)",
            "ncclKernel_AllReduce_RING_LL_Sum_float",
        ),
        ("void at::native::(anonymous namespace)::softmax_warp_forward<float, 3>(float*)", "softmax_warp_forward"),
        (
            "void cutlass::Kernel2<cutlass_80_tensorop_bf16>(cutlass_80_tensorop_bf16::Params)",
            "cutlass_80_tensorop_bf16",
        ),
        (
            "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl<"
            "at::native::BinaryFunctor<float, at::native::binary_internal::MulFunctor<float> > > >(int)",
            "elementwise_kernel · MulFunctor",
        ),
        (
            "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int>,"
            " cutlass::gemm::collective::CollectiveMma<cutlass::gemm::MainloopSm90TmaGmmaWarpSpecialized<7, cute::tuple<cute::C<2>,"
            " cute::C<1>, cute::C<1> >, cutlass::gemm::KernelTmaWarpSpecializedPingpong>, cute::tuple<cute::C<64>, cute::C<128>,"
            " cute::C<64> >, cutlass::bfloat16_t> > >(Params)",
            "device_kernel · GemmUniversal 64x128x64 bfloat16_t Pingpong",
        ),
        (
            "void cutlass::device_kernel<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2, cute::tuple<cute::C<1>,"
            " cute::C<1>, cute::C<1> >, cute::tuple<cute::C<128>, cute::C<176>, cute::C<128> >, cutlass::half_t> > >(Params)",
            "device_kernel · FlashAttnFwdSm90 128x176x128 half_t",
        ),
        (
            "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda("
            "at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda(float)#1}> >(int)",
            "elementwise_kernel · direct_copy_kernel_cuda",
        ),
        (
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float>, unsigned int> >(int)",
            "reduce_kernel · MeanOps",
        ),
        ("void cutlass::device_kernel<GemmKernel>(GemmKernel::Params)", "device_kernel · GemmKernel"),
    ],
)
def test_short_names(name: str, short: str) -> None:
    assert short_name(name) == short


def test_shares_sum_to_one_with_work_first() -> None:
    parts = view.shares({"python": 30, "compute": 50, "data-loading": 20, "copy": 0})
    assert [(share.key, share.ratio) for share in parts] == [("compute", 0.5), ("python", 0.3), ("data-loading", 0.2)]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(0.5, "ratio", "50 %"), (1500, "ns", "1.50 us"), (5165, "launches", "5,165 launches"),
     (3e12, "FLOP/s", "3 TFLOP/s"),
     (True, "", "yes"), ("behind", "", "behind"), (None, "ns", "–"), (2.5, "count", "2.50"), (684.2, "runs", "684 runs")],
)  # fmt: skip
def test_evidence_is_written_for_people(value: int | float | str | bool | None, unit: str, text: str) -> None:
    assert phrasing.evidence_value(Evidence("x", value, unit, "")).rstrip("0") == text.rstrip("0")


def test_every_key_has_a_colour() -> None:
    colours = charts.palette("light")
    wanted = [f"p-{part}" for part in vocabulary.PARTS] + [f"k-{kind}" for kind in cells.KINDS]
    host = ("operator", "annotation", "python", "runtime", "driver", "overhead", "host", "module", "sync")
    wanted += [f"k-{kind}" for kind in (*host, cpu.FIRST, cpu.STALLED, cpu.TINY)]
    assert [key for key in wanted if key not in colours] == []
    assert [regime for regime in vocabulary.REGIMES if f".r-{regime}, " not in charts.palette_css()] == []
    assert "vocabulary */" not in charts.palette_css()


@pytest.mark.slow
def test_bokehjs_is_in_the_page_deflated() -> None:
    library = re.search(r'<script type="text/plain" id="bokeh">([\w+/=]+)</script>', html.html(gpu_report()))
    assert library
    assert zlib.decompress(base64.b64decode(library[1]), wbits=-15).decode() in "\n".join(
        Resources(mode="inline", components=["bokeh"]).js_raw
    )
    assert len(html.html(gpu_report())) < 800_000
    empty = html.html(empty_report())
    assert 'id="bokeh"' not in empty
    assert "Nothing ran on a GPU" in empty
    assert len(empty) < 200_000


@pytest.mark.slow
@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
def test_a_page_fetches_nothing(report: Report) -> None:
    page = html.html(report)
    assert "default-src 'none'" in page[:2048]
    assert "unsafe-eval" not in page
    markup = re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL).replace("src=x onerror", "")
    fetched = r"(?:src|href|action|srcset|poster)\s*=\s*[\"']?(?!#|data:,)[^\"'\s>]+"
    assert re.findall(fetched, markup) == []
    style = "".join(path.read_text() for path in ASSETS.glob("*.css"))
    assert "url(" not in style
    assert "@import" not in style


def test_hostile_text_is_escaped_everywhere_and_closes_no_script() -> None:
    page = html.html(hostile_report())
    for text in HOSTILE[:2]:
        assert text not in page
    assert '"onmouseover="' not in page
    assert page.count("&lt;img src=x onerror=alert(1)&gt;") > 10
    scripts = re.findall(r"<script\b[^>]*>(.*?)</script>", page, re.DOTALL)
    assert len(scripts) == 8
    assert scripts[-1].endswith("})();")
    for own in (scripts[0], scripts[1], scripts[-2], scripts[-1]):
        assert not re.search(r"^\s*(import|export)\b", own, re.MULTILINE)


def test_a_notebook_gets_the_page_in_a_sandbox() -> None:
    frame_html = html.notebook_html(hostile_report())
    assert frame_html.startswith('<iframe sandbox="allow-scripts"')
    assert frame_html.count("<") == 2
    assert frame_html.count('"') == frame_html.split("srcdoc=")[0].count('"') + 2


@pytest.mark.slow
def test_a_written_report_is_recognised_and_no_other_file(tmp_path: Path) -> None:
    path, other = tmp_path / "report.html", tmp_path / "other.html"
    assert html.write_html(gpu_report(), path) == path
    assert b'<meta name="generator" content="trace-analyzer 0.1.0">' in path.read_bytes()[:2048]
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]
    assert html.is_own_report(path)
    for text in ("", "<!doctype html><title>mine</title>", '{"name": "<meta name=\\"generator\\""}'):
        other.write_text(text)
        assert not html.is_own_report(other)
    assert not html.is_own_report(tmp_path)
    assert not html.is_own_report(tmp_path / "missing.html")


@pytest.mark.parametrize("failure", [OSError("disk full"), KeyboardInterrupt()])
def test_a_failed_write_keeps_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")

    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(type(failure)):
        files.write_text(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(OSError, match="missing"):
        files.write_text(tmp_path / "missing" / "report.html", "text")


def test_recognising_a_report_loads_nothing_heavy() -> None:
    heavy = "{'bokeh', 'holoviews', 'jinja2', 'polars'}"
    code = f"import sys; from trace_analyzer.render.html import is_own_report; print({heavy} & set(sys.modules))"
    assert run_python(code).stdout.strip() == "set()"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_scripts_own_tests_pass() -> None:
    tests = sorted(str(path) for path in (Path(__file__).parent / "js").glob("*.test.mjs"))
    done = ran("node", "--test", *tests)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_each_step_says_its_verdict(tmp_path: Path) -> None:
    report = gpu_report()
    judged_step = replace(report.steps[0], headline="Overhead-bound: <it> waits.", confidence="medium")
    path = replace(report, steps=(judged_step, *report.steps[1:])).to_html(tmp_path / "report.html")
    text = path.read_text("utf-8")
    assert text.count("Overhead-bound: &lt;it&gt; waits. Confidence: medium") == 2, "to read, and to hear"
    assert text.count("Confidence: ") == 2, "where there is no sentence, nothing"


@pytest.mark.parametrize(
    ("name", "room", "lines", "broken"),
    [
        ("aten::convolution_backward", 24, 2, "aten::|convolution_|backward"),
        ("cudaEventSynchronize", 16, 2, "cuda|Event|Synchronize"),
        ("Optimizer.zero_grad#SGD.zero_grad", 20, 2, "Optimizer.|zero_|grad#|SGD.|zero_|grad"),
        ("DistributedDataParallel.forward", 12, 2, "DistributedDataParallel.forward"),
        ("transformers/models/bert/modeling_bert.py:364", 20, 3, "transformers/|models/|bert/|modeling_|bert.py:364"),
        ("onewordwithoutanyplacetobreak", 20, 2, "onewordwithoutanyplacetobreak"),
    ],
)
def test_a_name_breaks_between_its_words_where_that_fits(name: str, room: int, lines: int, broken: str) -> None:
    assert str(shell.breakable(name, room, lines)) == broken.replace("|", "<wbr>")


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("runs/a_b/my_run-7.json.gz, 4 MB", "runs/|a_b/[my_|run-|7.json.gz,] 4 MB"),
        ("at train.py(12): step", "at [train.py(12):] step"),
        ("beside_computation 0.5 ms", "beside_computation 0.5 ms"),
        ("work beside_computation", "work beside_|computation"),
        ("<i>.py", "&lt;i&gt;.py"),
        ("in step (train.py:7) (1 ms)", "in step [(train.py:7)] (1 ms)"),
    ],
)
def test_a_path_breaks_after_a_slash_and_a_name_of_a_file_as_a_whole(text: str, marked: str) -> None:
    name = marked.replace("[", '<span class="file-name">').replace("]", "</span>").replace("|", "<wbr>")
    assert shell.as_path(text) == name


def test_a_number_stays_with_its_unit() -> None:
    text = shell.unbroken("13.6 ms -> 5 s, 40 % less; 6 GiB of 3 steps, 7 us a step, 2 samples")
    assert text.replace("\u00a0", "~") == "13.6~ms -> 5~s, 40~% less; 6~GiB of 3 steps, 7~us a step, 2 samples"


@pytest.mark.slow
@settings(max_examples=examples(200))
@given(st.text(), st.integers(1, 40), st.integers(1, 3))
def test_no_letter_is_lost_and_all_is_text(text: str, room: int, lines: int) -> None:
    remark = r'<span class="remark(?: after)?">|</span>'
    for made, tags in ((shell.breakable(text, room, lines), "<wbr>"), (shell.remarked(text), remark)):
        assert Markup(re.sub(tags, "", made)).unescape() == codec.inert(text)
        assert "<" not in re.sub(tags, "", made)


def test_remarks_are_marked_and_those_after_code_differ() -> None:
    after, own = '<span class="remark after"># &lt;b&gt;</span>', '<span class="remark"># or y</span>'
    assert shell.remarked('x = "#1"  # <b>\n# or y') == f"x = &#34;#1&#34;  {after}\n{own}"
