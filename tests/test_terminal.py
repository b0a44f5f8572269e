"""The summary fits its width, says the verdict first, and lets nothing from a trace act on a terminal."""

import re
from dataclasses import replace

import polars as pl
import pytest
from kineto import analysed, annotation, call, copy, kernel, launched, op
from report_factory import empty_report, gpu_report
from text_reports import STATUSES, all_reports, report_saying

from trace_analyzer import units, vocabulary
from trace_analyzer.graph import LazyTables
from trace_analyzer.notes import Note
from trace_analyzer.render import layout, phrasing
from trace_analyzer.render.kernel_labels import kernel_label
from trace_analyzer.render.markdown import to_markdown
from trace_analyzer.render.terminal import summary
from trace_analyzer.units import cell_width

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


@pytest.mark.parametrize("name", all_reports())
@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_is_wider_than_asked(name: str, width: int) -> None:
    lines = summary(all_reports()[name], width).splitlines()
    assert max(map(cell_width, lines)) <= width


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("width", WIDTHS)
def test_hostile_text_stays_text_within_the_width(text: str, width: int) -> None:
    printed = summary(report_saying(text), width)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\u200b-\u200f]", printed)
    assert all(cell_width(line) <= width for line in printed.split("\n"))


def test_an_escape_is_shown_not_obeyed() -> None:
    assert r"\x1b[2J" in summary(report_saying("\x1b[2J"))


def test_tables_that_are_not_shown_are_not_made() -> None:
    def make() -> pl.DataFrame:
        pytest.fail("nobody sees this table")

    report = gpu_report()
    unseen = {name: make for name in report.tables if name not in ("kernels", "devices")}
    assert summary(replace(report, tables=LazyTables({**report.tables, **unseen}))) == summary(report)


@pytest.mark.parametrize("name", all_reports())
def test_one_screen_at_100_columns(name: str) -> None:
    assert len(summary(all_reports()[name]).splitlines()) <= 46


def test_trust_comes_first_then_the_verdict() -> None:
    trust, verdict = (block.splitlines()[0] for block in summary(gpu_report(), 140).split("\n\n")[:2])
    assert trust == (
        "Trust  1 of 3 checks of the trace hold; device 0: link coverage 40 % (run ahead withheld); lost events 12"
    )
    assert verdict == "Overhead-bound: launch   medium confidence, runner-up: compute-bound"


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (None, "–"),
        (1, "1 ×"),
        (2.54, "2.54 ×"),
        (381.4, "381 ×"),
        (1390, "1,390 ×"),
        (14_875_395_601.0, "over 100,000 ×"),
    ],
)
def test_how_much_less_a_group_computes(ratio: float | None, text: str) -> None:
    assert units.times(ratio) == text


def test_colour_only_adds_attributes() -> None:
    plain, coloured = summary(gpu_report(), 100), summary(gpu_report(), 100, colour=True)
    assert "\x1b" not in plain
    assert "\x1b[" in coloured
    assert SGR.sub("", coloured) == plain


def test_the_parts_of_the_window_are_shown_with_their_times() -> None:
    text = summary(gpu_report(kernels=10), 100)
    assert re.search(r"Compute +█+\S* +40 % +400 us +Python +█+\S* +75 % +300 us", text)
    assert re.search(r"Idle +█+\S* +40 % +400 us +Launch latency +█+\S* +25 % +100 us", text)


@pytest.mark.parametrize("status", STATUSES)
def test_without_a_regime_it_says_what_was_found_and_what_to_record(status: str) -> None:
    text = summary(empty_report(status, "Found: nothing."))
    assert f"\n\nNo verdict: {vocabulary.STATUSES[status].phrase}\nFound: nothing.\n" in text
    assert "What to record instead\n  - " in text


def test_warnings_come_before_remarks_and_the_rest_is_counted() -> None:
    notes = (*(Note(f"n{i}", "info", f"remark {i}") for i in range(4)), Note("w", "warning", "mind this"))
    text = summary(replace(gpu_report(), notes=notes))
    assert text.index("! mind this") < text.index("remark 0")
    assert "remark 1" in text
    assert "remark 2" not in text
    assert "and 2 more" in text


def test_a_second_device_is_summed_up() -> None:
    text = summary(gpu_report(devices=8), 140)
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
        (
            "std::enable_if<(((8)>(0)))&&is<T>::value, void>::type lib::fused_add_rms_norm_kernel<T, 8>(T*)",
            40,
            "fused_add_rms_norm_kernel<T, 8>",
        ),
        ("all of the loader<3>", 12, "all of the …"),
        (
            "void cutlass::Kernel2<cutlass_75_tensorop_s1688gemm_256x128_tn_align1>(T)",
            30,
            "cutlass_75_tensor…28_tn_align1",
        ),
        ("void multi_tensor_apply<A, B<int> >(int)", 25, "multi_tensor_apply<A, B<…"),
        ("abc", 1, "…"),
    ],
)
def test_kernel_names_keep_what_tells_them_apart(name: str, cells: int, label: str) -> None:
    assert kernel_label(name, cells) == label
    assert cell_width(label) <= cells


@pytest.mark.parametrize(
    ("ratio", "drawn"),
    [(0, ""), (1e-9, "▏"), (0.5, "██"), (0.53, "██▏"), (1, "████"), (1.2, "████")],
)
def test_bars_show_eighths_and_never_hide_what_is_there(ratio: float, drawn: str) -> None:
    assert layout.bar(ratio, 4) == drawn


@pytest.mark.parametrize(
    ("text", "width", "most", "lines"),
    [
        ("", 10, 9, [""]),
        ("a bb ccc", 4, 9, ["a bb", "ccc"]),
        ("a bb ccc d", 4, 2, ["a bb", "ccc…"]),
        ("abcdefgh ij", 5, 9, ["abcd…", "ij"]),
        ("模型 模型", 5, 9, ["模型", "模型"]),
    ],
)
def test_wrapping_counts_cells(text: str, width: int, most: int, lines: list[str]) -> None:
    assert layout.wrapped(text, width, most) == lines


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


def test_one_of_something_is_said_in_the_singular() -> None:
    """A trace with one of each: device, kernel, launch, copy, step."""
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
    for text in (summary(report, 200), to_markdown(report), *(item.why for item in report.advice)):
        assert re.findall(rf"(?<![\d.,])1 (?:{things})\b", text) == []
    assert "1 kernel" in summary(report) or "2 kernels" in summary(report)
    assert "1 copy, small" in summary(report)


def test_a_mfu_is_an_interval_where_work_is_unknown() -> None:
    device = replace(gpu_report().devices[0], flop_time_ratio=0.07, mfu=0.00042, mfu_at_most=0.35)
    assert phrasing.known_work(replace(device, mfu_at_most=0.35)).endswith("MFU 0.04 % to 35 %")
    assert phrasing.known_work(replace(device, mfu=0.12, mfu_at_most=0.35)).endswith("MFU 12 % to 35 %")
    assert phrasing.known_work(replace(device, mfu=0.12, mfu_at_most=0.122)).endswith("MFU 12 %")
    assert phrasing.known_work(replace(device, mfu_at_most=0.00042)).endswith("MFU <0.1 %")


def test_code_that_held_up_the_device_for_nothing_is_not_named() -> None:
    report = gpu_report()
    assert phrasing.blamed(report)
    assert not phrasing.blamed(replace(report, blame=tuple(replace(item, idle_ns=1) for item in report.blame)))
