"""Check that the summary fits its width, begins with the verdict, and lets no text of a trace control a terminal."""

import re
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from conftest import sample_report
from kineto import analysed, annotation, call, copy, kernel, launched, op
from msgspec.structs import replace
from report_factory import empty_report, gpu_report
from text_reports import STATUSES, all_reports, report_saying

from trace_analyzer import analysis, errors, units, vocabulary
from trace_analyzer.render import layout, names, phrasing, row_phrases
from trace_analyzer.render.documents import to_markdown
from trace_analyzer.render.terminal import summary
from trace_analyzer.report import Advice, Debiased, Lever, Predicted, Report, Saving, devices, summaries

ALL = Saving(1, 1, 1, 1, has_steps=False)
WIDTHS = (40, 41, 60, 79, 80, 91, 92, 100, 120, 140, 160, 200)
SGR = re.compile(r"\x1b\[[0-9;]*m")
KERNEL = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int, float)"
HOSTILE = {
    "escapes": "\x1b[2J\x1b]0;title\x07\x9b31m",
    "lines": "one\ntwo\rthree\x0bfour\x85five\u2028six",
    "bidi": "abc\u202edef\u2066ghi\u200f",
    "wide": "模型" * 90,
    "combining": "e\u0301" * 300,
    "long": "x" * 4000,
    "spaces": " " * 300,
    "empty": "",
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", all_reports())
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("verbose", [False, True])
def test_no_line_is_wider_than_asked(name: str, width: int, verbose: bool) -> None:
    lines = summary(all_reports()[name], width, verbose=verbose).splitlines()
    assert max(map(units.cell_width, lines)) <= width


@pytest.mark.sampled
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("verbose", [False, True])
def test_hostile_text_stays_text_within_the_width(text: str, width: int, verbose: bool) -> None:
    printed = summary(report_saying(text), width, verbose=verbose)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\u200b-\u200f]", printed)
    assert all(units.cell_width(line) <= width for line in printed.split("\n"))
    assert (r"\x1b[2J" in printed) == text.startswith("\x1b"), "an escape is shown, not obeyed"


def test_tables_that_are_not_shown_are_not_made() -> None:
    def make() -> pl.DataFrame:
        pytest.fail("nobody sees this table")

    report = gpu_report()
    seen = {"kernels", "devices", *(declared.table.name for declared in report.declared)}
    unseen = {name: make for name in report.tables if name not in seen}
    lazy = replace(report, tables=analysis.LazyTables({**report.tables, **unseen}))
    assert summary(lazy, verbose=True) == summary(report, verbose=True)
    assert summary(replace(report, tables=analysis.LazyTables(dict.fromkeys(report.tables, make)))) == summary(report)


@pytest.mark.parametrize("name", all_reports())
@pytest.mark.parametrize(("width", "most"), [(80, 30), (100, 27), (140, 27)])
def test_all_that_matters_is_on_one_screen(name: str, width: int, most: int) -> None:
    lines = summary(all_reports()[name], width).splitlines()
    assert len(lines) <= most
    assert not [line for line in lines if "…" in line]


def test_the_verdict_and_its_reason_come_first_then_the_confidence() -> None:
    lines = summary(gpu_report(), 140).splitlines()
    assert lines[:3] == [
        "Overhead-bound: launch. The GPU waits for Python 30 % of the time.",
        "Medium confidence: only two steady steps; 1 more: -v",
        "train_step.pt.trace.json.gz · NVIDIA H100 80GB HBM3 · 1.20 ms",
    ]
    assert "Checks  1 of 3 hold; link coverage 40 % (run ahead withheld); lost events 12" in lines
    assert "Note    odd name <img src=x onerror=alert(1)>" in lines


@pytest.mark.parametrize(
    ("removed", "text"),
    [
        ((100_000, 200_000, 300_000), "Without the profiler a step takes about 500 us (405 us to 600 us); savings are of the recorded 600 us."),
        ((0, 119_000, 200_000), ""),
    ],
)  # fmt: skip
def test_the_step_without_the_profiler_is_said_where_it_is_a_tenth_shorter(removed: Any, text: str) -> None:
    """Two steps of 600 us, of which recording took so much at least, by estimate and at most."""
    least, taken, most = removed
    unbiased = Debiased("estimated", {}, 9, least, taken, most, 1_200_000 - taken, None, {}, None, None, True, "")
    report = gpu_report()
    report = replace(report, verdict=replace(report.verdict, debiased=unbiased))
    assert row_phrases.step_without_recording(report.verdict) == text
    assert ("Without the profiler a step" in summary(report)) == bool(text)


def test_the_first_screen_leaves_out_advice_whose_time_other_advice_counts() -> None:
    report = gpu_report()
    whole, shared = (
        replace(report.advice[0], title=title, shared_ratio=ratio) for title, ratio in (("Mine", 0.89), ("Theirs", 0.9))
    )
    shown = summary(replace(report, advice=(whole, shared)))
    assert ("Mine" in shown, "Theirs" in shown, "1 of 2; -v shows all" in shown) == (True, False, True)
    assert "Theirs" in summary(replace(report, advice=(shared,)), verbose=True)
    estimated = replace(shared, predicted=Predicted(50, 40, 60, 100))
    assert "Theirs" in summary(replace(report, advice=(estimated,)))


@pytest.mark.parametrize(
    ("shared_with", "ratio", "says"),
    [
        ("first", 0.98, "(98 % shared with 1)"),
        ("first", 1.0, "(all shared with 1)"),
        ("first", 0.4, ""),
        ("hidden", 1.0, ""),
    ],
)
def test_the_first_screen_says_what_shares_most_of_its_time(shared_with: str, ratio: float, says: str) -> None:
    """With estimates, both are listed; what is not on the screen has no number there."""
    report = gpu_report()
    first = replace(
        report.advice[0], id="first", predicted=Predicted(50, 40, 60, 100), shared_with=None, shared_ratio=None
    )
    second = replace(first, id="second", shared_with=shared_with, shared_ratio=ratio)
    shown = " ".join(summary(replace(report, advice=(first, second)), 140).split())
    assert ("shared with" in shown) == bool(says)
    assert says in shown


def test_the_rule_stands_where_the_largest_figure_is_not_the_verdict() -> None:
    report = gpu_report()
    larger = {"compute": 490_000, "python": 400_000, "memory": 110_000}
    text = summary(replace(report, verdict=replace(report.verdict, parts_ns=larger)), 140)
    rule = "Compute-bound kernels take 49 %, but waiting can be recovered in full: it decides where it takes at least 60 % as much."
    assert f"\n  {rule}\n" in text
    assert "recovered in full" not in summary(report, 140)


def test_advice_is_a_title_one_line_of_code_and_a_whole_place() -> None:
    place = f"cudaLaunchKernel in step ({'deep/' * 30}train.py:12) (8 ms); aten::mm (2 ms)"
    report = gpu_report()
    advice = replace(report.advice[0], where=place, code="# why\ng = f()  # and so on\nh = g()", id="cuda-graphs")
    lines = summary(replace(report, advice=(advice,)), 100).splitlines()
    start = lines.index("What to change")
    assert lines[start + 1 : start + 3] == [
        "  1. Capture the step in a CUDA graph   saves at most 360 us, 30 %",
        "       g = f()  # and so on",
    ]
    shown = "".join(line.strip() for line in lines[start + 3 :])
    assert f"({'deep/' * 30}train.py:12)(8 ms)" in shown.replace(" (8", "(8")
    assert "aten::mm (2 ms)" not in shown
    assert lines[-1].endswith("analyze explain TRACE advice:cuda-graphs")


@pytest.mark.parametrize(
    ("code", "width", "line"),
    [
        ("", 50, ""),
        ("# only words", 50, "# only words"),
        ("# first\nx = 1  # set", 50, "x = 1  # set"),
        ("x = 1  # set", 8, "x = 1"),
        ("with a():  # why\n    b()  # what\nc()", 50, "with a(): b()"),
    ],
)
def test_one_line_of_code_says_what_to_write(code: str, width: int, line: str) -> None:
    assert row_phrases.code_line(code, width) == line


@pytest.mark.parametrize(
    ("line", "written"),
    [
        ("x = f()  # as is", ["x = f()  # as is"]),
        ("x = f(1, 2)  # why it is so", ["# why it is so", "x = f(1, 2)"]),
        ("# or by hand: with a graph", ["# or by hand: with", "# a graph"]),
        ("    # inside of a block it is", ["    # inside of a", "    # block it is"]),
        ("    x = f(1, 2, 3, 4)", ["    x = f(1, 2, 3,", "    4)"]),
        ("x = '#' * 3 + y + zzz", ["x = '#' * 3 + y +", "zzz"]),
    ],
)
def test_wrapped_code_stays_code(line: str, written: list[str]) -> None:
    assert layout.folded_code(line, 18) == written


def test_verbose_tells_the_rest() -> None:
    short, whole = summary(gpu_report(), 100), summary(gpu_report(), 100, verbose=True)
    for title in ("Evidence", "Top kernels and copies", "Device 0", "Recorded", "Notes", "     Launches cost 30 %"):
        assert title not in short
        assert f"\n{title}" in whole
    assert "with torch.cuda.graph(g):\n" in whole


@pytest.mark.parametrize(
    ("write", "value", "text"),
    [
        (units.duration, 999_400, "999 us"),
        (units.duration, 999_600, "1.00 ms"),  # not 1,000 us
        (units.duration, -999_600, "-1.00 ms"),
        (units.duration, 5e12, "5,000 s"),
        (units.duration, 0.4, "0.40 ns"),
        (units.memory_size, 1_000 << 20, "1,000 MiB"),
        (units.memory_size, 1_023.7 * (1 << 20), "1.00 GiB"),
        (units.flops, 999.9e12, "1.00 PFLOP/s"),
        (units.factor, None, "–"), (units.factor, 1, "1 ×"), (units.factor, 2.54, "2.54 ×"), (units.factor, 381.4, "381 ×"),
        (units.factor, 1390, "1,390 ×"), (units.factor, 14_875_395_601.0, "over 100,000 ×"),
    ],
)  # fmt: skip
def test_a_unit_fits_the_rounded_value(write: Callable[[Any], str], value: float | None, text: str) -> None:
    assert write(value) == text


@pytest.mark.parametrize(
    "made",
    [
        *(lambda name=name: all_reports()[name] for name in all_reports()),
        lambda: sample_report("cpu_mlp.json.gz"),
    ],
    ids=[*all_reports(), "cpu"],
)
@pytest.mark.parametrize("verbose", [False, True])
def test_colour_only_adds_attributes(made: Callable[[], Report], verbose: bool) -> None:
    report = made()
    plain = summary(report, 100, verbose=verbose)
    coloured = summary(report, 100, colour=True, verbose=verbose)
    assert "\x1b" not in plain
    assert "\x1b[" in coloured
    assert SGR.sub("", coloured) == plain


@pytest.mark.parametrize("resource", row_phrases.LEVER_PARTS)
def test_every_part_and_lever_has_a_colour(resource: Any) -> None:
    lever = Lever(resource, 0.5, 0.5, 100, 0.5)
    made = replace(gpu_report().verdict, parts_ns=dict.fromkeys(vocabulary.PARTS, 10), levers=(lever,))
    report = replace(gpu_report(), verdict=made)
    assert SGR.sub("", summary(report, colour=True)) == summary(report)


def test_the_parts_of_the_window_are_shown_with_their_times() -> None:
    text = summary(gpu_report(kernels=10), 100)
    assert re.search(r"Compute +█+\S* +40 % +400 us +Python +█+\S* +75 % +300 us", text)
    assert re.search(r"Idle +█+\S* +40 % +400 us +Launch latency +█+\S* +25 % +100 us", text)


@pytest.mark.parametrize("status", STATUSES)
def test_without_a_regime_it_says_what_was_found_and_what_to_record(status: str) -> None:
    text = summary(empty_report(status, "Found: nothing."))
    assert text.startswith(f"No verdict: {vocabulary.STATUSES[status].phrase}. Found: nothing.\n")
    assert "What to record instead\n  - " in text


def test_warnings_come_before_remarks() -> None:
    notes = (*(errors.Note(f"n{i}", "info", f"remark {i}") for i in range(4)), errors.Note("w", "warning", "mind this"))
    report = replace(gpu_report(), notes=notes)
    whole = summary(report, verbose=True)
    assert whole.index("! mind this") < whole.index("remark 0") < whole.index("remark 3")
    assert "Note    mind this" in summary(report)
    assert "remark" not in summary(report)


def test_a_long_note_ends_where_a_clause_does_and_not_within_a_name() -> None:
    note = errors.Note("w", "warning", f"it was late: f({'long*, ' * 40}int) ran; wait for it")
    assert "Note    it was late (-v)\n" in summary(replace(gpu_report(), notes=(note,)))


def test_a_second_device_is_summed_up() -> None:
    text = summary(gpu_report(devices=8), 140, verbose=True)
    assert "8 x NVIDIA H100 80GB HBM3" in text
    assert "6 more" in text


@pytest.mark.parametrize(
    ("name", "cells", "label"),
    [
        (KERNEL, 200, KERNEL),
        (KERNEL, 50, "vectorized_elementwise_kernel<4, CUDAFunctor_add<…"),
        (KERNEL, 30, "vectorized_elementwise_kernel…"),
        ("ampere_sgemm_32x32_sliced1x4_tn", 20, "ampere_sgem…ed1x4_tn"),
        ("f\x1bg", 9, r"f\x1bg"),
        ("模型模型模型", 7, "模…模型"),
        ("(anonymous namespace)::k<at::Half>(int)", 12, "k<Half>"),
        ("std::enable_if<(((8)>(0)))&&is<T>::value, void>::type lib::fused_add_rms_norm_kernel<T, 8>(T*)", 40, "fused_add_rms_norm_kernel<T, 8>"),
        ("all of the loader<3>", 12, "all of the …"),
        ("void cutlass::Kernel2<cutlass_75_tensorop_s1688gemm_256x128_tn_align1>(T)", 30, "cutlass_75_tensor…28_tn_align1"),
        ("void multi_tensor_apply<A, B<int> >(int)", 25, "multi_tensor_apply<A, B<…"),
        ("abc", 1, "…"),
    ],
)  # fmt: skip
def test_kernel_names_keep_what_tells_them_apart(name: str, cells: int, label: str) -> None:
    assert names.kernel_label(name, cells) == label
    assert units.cell_width(label) <= cells


@pytest.mark.parametrize(
    ("ratio", "drawn"), [(0, ""), (1e-9, "▏"), (0.5, "██"), (0.53, "██▏"), (1, "████"), (1.2, "████")]
)
def test_bars_show_eighths_and_never_hide_what_is_there(ratio: float, drawn: str) -> None:
    assert layout.bar(ratio, 4) == drawn


@pytest.mark.parametrize(
    ("text", "width", "most", "lines"),
    [
        ("", 10, 9, [""]),
        ("a bb ccc", 4, 9, ["a bb", "ccc"]),
        ("a bb ccc d", 4, 2, ["a bb", "ccc…"]),
        ("abcdefgh ij", 5, 9, ["abcde", "fgh", "ij"]),
        ("模型 模型", 5, 9, ["模型", "模型"]),
        ("idle 12 % of 4 ms", 7, 9, ["idle", "12 % of", "4 ms"]),
        ("takes 1.5 GB/s, 3 times", 13, 9, ["takes", "1.5 GB/s, 3", "times"]),
    ],
)
def test_wrapping_counts_cells(text: str, width: int, most: int, lines: list[str]) -> None:
    assert layout.folded(text, width, most) == lines


@pytest.mark.parametrize(
    ("room", "widths", "lines"),
    [
        (40, [4, 12, 14], ["step  Tokens per s  regime        ", "   1        10,510  overhead-bound"]),
        (22, [4, 6, 8], ["step  Tokens  regime  ", "       per s          ", "   1  10,510  overhead", "              -bound  "]),
    ],
)  # fmt: skip
def test_a_table_wraps_headings_and_texts_where_it_is_too_wide(room: int, widths: list[int], lines: list[str]) -> None:
    rows = [["step", "Tokens per s", "regime"], ["1", "10,510", "overhead-bound"]]
    assert layout.column_widths(rows, "rrl", room) == widths
    laid = [line for row in rows for line in layout.table_row(row, widths, "rrl", ["", "", ""])]
    assert ["".join(text for text, _ in line) for line in laid] == lines


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("explain 'my runs/a b.json' gap:1", 20, ["explain", "'my runs/a b.json'", "gap:1"]),
        ("'my long runs/a b.json'", 14, ["'my long runs/", "a b.json'"]),
        ("see runs/one/two.json.gz", 12, ["see", "runs/one/", "two.json.gz"]),
        ("see runs/" + "x" * 15, 10, ["see runs/", "x" * 10, "x" * 5]),
        ("the GPU's 'a/b", 9, ["the GPU's", "'a/b"]),
    ],
)
def test_a_path_is_not_broken_within_a_file_s_name(text: str, width: int, lines: list[str]) -> None:
    assert layout.folded(text, width) == lines
    assert "".join(layout.broken("runs/one/a-b-c.json", 12)) == "runs/one/a-b-c.json"
    assert layout.broken("runs/one/a-b-c.json", 12) == ["runs/one/", "a-b-c.json"]


def test_a_text_is_cut_only_after_many_lines() -> None:
    assert layout.broken("", 5) == [""]
    assert layout.broken("host time 50 %", 12) == ["host time", "50 %"]
    assert layout.broken("memory-bandwidth-bound", 10) == ["memory-", "bandwidth-", "bound"]
    assert layout.broken("模型模型模型", 5) == ["模型", "模型", "模型"]
    assert layout.broken("x" * 100, 5, most=3) == ["xxxxx", "xxxxx", "xxxx…"]


@pytest.mark.parametrize("width", [80, 100, 140])
def test_sentences_are_whole_in_the_verbose_text(width: int) -> None:
    text = " ".join(f"word{i}" for i in range(60))
    shown = summary(report_saying(text), width, verbose=True)
    assert " ".join(shown.split()).count("word58 word59") >= 2


def test_a_run_on_the_cpu_shows_its_operators() -> None:
    operators = [
        {"name": f"aten::{name}", "count": count, "host_ns": 9_000, "host_self_ns": self_ns}
        for name, count, self_ns in (("mm", 2, 5_000), ("add", 1, 7_000))
    ]
    text = summary(empty_report(operators=operators))
    lines = text[text.index("What operators cost the CPU") :].splitlines()[1:4]
    assert [line.split() for line in lines] == [
        ["own", "CPU", "time", "calls", "CPU", "time", "operator"],
        ["7", "us", "1", "9", "us", "aten::add"],
        ["5", "us", "2", "9", "us", "aten::mm"],
    ]
    assert "What operators cost the CPU" not in summary(gpu_report())


@pytest.mark.slow
def test_one_of_something_is_reported_in_the_singular() -> None:
    one = [
        annotation("ProfilerStep#0", 0, 20_000),
        op("aten::mm", 100, 900, **{"Input Dims": [[1024, 1023]] * 2, "Input type": ["c10::Half"] * 2}),
        launched("ampere_fp16_s16816gemm_fp16_128x64_align1", 900, 1_000, 15_000, 1, grid=[500, 1, 1]),
        call("cudaMemcpyAsync", 16_100, 2_500, correlation=2),
        copy("HtoD (Pageable -> Device)", 16_200, 2_000, correlation=2, bytes=1_000),
        kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 18_300, 1_000),
    ]
    report = analysed(one)
    things = (
        "kernels|launches|matmuls|convolutions|copies|calls|events|steps|chains|products|collectives|devices|activities"
    )
    for text in (summary(report, 200, verbose=True), to_markdown(report), *(item.why for item in report.advice)):
        assert re.findall(rf"(?<![\d.,])1 (?:{things})\b", text) == []
    whole = summary(report, verbose=True)
    assert "1 kernel" in whole or "2 kernels" in whole
    assert "1 copy, small" in whole


def test_a_mfu_is_an_interval_where_work_is_unknown() -> None:
    device = replace(gpu_report().devices[0], flop_time_ratio=0.07, mfu=0.00042, mfu_at_most=0.35)
    assert phrasing.known_work(replace(device, mfu_at_most=0.08)).endswith("MFU at most 8.0 %"), "it is low"
    unknown = "MFU not known: only 3.0 % of the time of matmuls and convolutions has known FLOP"
    products = devices.GroupTime("matmul", 9, 900, 0.9, 1.0, None, None, None, 0.03, None, None)
    assert phrasing.known_work(replace(device, groups=(products,), mfu_at_most=0.35)).endswith(unknown)
    unrecorded = "MFU not known: the device may have multiplied in time of which nothing was recorded"
    products = replace(products, known_ratio=1.0)
    assert phrasing.known_work(replace(device, groups=(products,), mfu_at_most=0.35)).endswith(unrecorded)
    assert phrasing.mfu(0.1, 0.31) == "not known"
    assert phrasing.mfu(0.1, 0.29) == "10 % to 29 %"
    assert phrasing.known_work(replace(device, mfu=0.12, mfu_at_most=0.35)).endswith("MFU 12 % to 35 %")
    assert phrasing.known_work(replace(device, mfu=0.12, mfu_at_most=0.122)).endswith("MFU 12 %")
    assert phrasing.known_work(replace(device, mfu_at_most=0.00042)).endswith("MFU <0.1 %")


def test_code_that_held_up_the_device_for_nothing_is_not_named() -> None:
    report = gpu_report()
    assert summaries.blamed(report.blame, report.verdict)
    assert not summaries.blamed([replace(item, idle_ns=1) for item in report.blame], report.verdict)


@pytest.mark.parametrize(
    ("where", "place"),
    [
        (
            f"Cijk_{'a' * 300}_MT256x128x64 (5 us); aten::mm (1 us)",
            f"at Cijk_{'a' * 37}…{'a' * 16}_MT256x128x64 (5 us)",
        ),
        (f"aten::mm in f (/{'long/' * 40}f.py:3) (5 us)", f"at aten::mm in f (/{'long/' * 40}f.py:3) (5 us)"),
        (f"before {'k' * 90} (5 us)", f"before {'k' * 42}…{'k' * 29} (5 us)"),
    ],
)
def test_a_place_shortens_long_names_of_kernels_and_no_paths(where: str, place: str) -> None:
    item = Advice(title="Change it", why="", where=where, code="", saves_ns_at_most=1, how_bound="", saving=ALL)
    assert row_phrases.first_place(item, 200) == place
