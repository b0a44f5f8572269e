"""Test the Markdown report: a real parser renders texts from a trace as text."""

import re
from functools import cache
from html import unescape

import pytest
from kineto import analysed, annotation, launched, op, python
from markdown_it import MarkdownIt
from msgspec.structs import replace
from report_factory import empty_report, gpu_report
from text_reports import STATUSES, all_reports, report_saying

from trace_analyzer import units
from trace_analyzer.render.documents import escaped, to_markdown
from trace_analyzer.report import Report
from trace_analyzer.vocabulary import label

GEMM = "ampere_sgemm_128x64_tn"
HOSTILE = (
    "a|b", "`code`", "``", "**bold** _it_ __init__ ~~gone~~", "<script>alert(1)</script>", "<!-- hidden",
    "[link](http://evil.example)", "![img](https://evil.example/x.png)", "www.evil.example", "https://evil.example",
    "# heading", "- item", "1. item", "1) item", "1.5 %", "2.", "> quote", "&lt;b&gt; &amp;", "---", "===", "\\",
    "```\nfence", "| a | b |", "line\nbreak", "</code></details><b>", "a_b_c", "$x$", "+ plus", "::=",
)  # fmt: skip

RENDER = MarkdownIt("commonmark", {"html": True, "linkify": True}).enable(["table", "strikethrough", "linkify"])
OWN_TAGS = {
    "h2", "h3", "p", "strong", "code", "table", "thead", "tbody", "tr", "th", "td", "ol", "ul", "li", "pre", "details",
    "summary",
}  # fmt: skip


def tags(html: str) -> set[str]:
    return {name.lower() for name in re.findall(r"<[/!]?\s*([A-Za-z0-9-]+)", html)}


@cache
def tags_of_plain_text() -> dict[str, int]:
    plain = RENDER.render(to_markdown(report_saying("word")))
    return {tag: plain.count(f"<{tag}") for tag in OWN_TAGS}


@pytest.mark.parametrize("text", HOSTILE)
def test_text_from_a_trace_makes_no_markup_and_reads_as_it_was(text: str) -> None:
    html = RENDER.render(to_markdown(report_saying(text)))
    assert tags(html) <= OWN_TAGS
    assert {tag: html.count(f"<{tag}") for tag in OWN_TAGS} == tags_of_plain_text()
    assert "href" not in html
    assert "src=" not in html
    shown = unescape(re.sub(r"<[^>]+>", "", RENDER.render(f"x {escaped(text)}")))
    assert "\n" in text or shown.strip() == f"x {text}"


def test_nobody_is_mentioned_and_fences_outgrow_the_backticks_in_code() -> None:
    assert escaped("@octocat fixes #12 in ProfilerStep#3") == "@&#8203;octocat fixes #&#8203;12 in ProfilerStep#3"
    made = gpu_report()
    text = to_markdown(replace(made, advice=(replace(made.advice[0], code="a = '````'"),)))
    assert "   `````python\n   a = '````'\n   `````" in text


def test_tables_have_as_many_cells_as_columns() -> None:
    for table in re.findall(r"(?:^\|.*\n)+", to_markdown(report_saying("a|b")), re.MULTILINE):
        widths = {len(re.split(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(widths) == 1, table


@pytest.mark.parametrize("name", all_reports())
def test_it_starts_with_trust_and_the_verdict(name: str) -> None:
    report = all_reports()[name]
    text = to_markdown(report)
    assert text.startswith("Trust: ")
    title = next(line for line in text.splitlines() if line.startswith("#"))
    assert title.startswith(f"## {label(report.verdict.regime) if report.verdict.regime else 'No verdict: '}")


@pytest.mark.parametrize("status", STATUSES)
def test_without_a_regime_it_says_what_to_record(status: str) -> None:
    assert "### What to record instead\n\n- " in to_markdown(empty_report(status))


def fed() -> Report:
    """Build ten iterations: the CPU runs 12 kernels ahead, then reads a value back and loads data."""
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    return analysed([
        [[[op("aten::relu", at + 10 * k, 8), launched(GEMM, at + 10 * k + 2, at + 100 + 60 * k, 60, at + k + 1)]
          for k in range(12)],
         python("train.py(7): batches", at + 130, 1_800), annotation(loader, at + 140, 1_780)]
        for at in range(0, 20_000, 2_000)
    ])  # fmt: skip


def part(text: str, title: str) -> str:
    return text.split(f"### {title}")[1].split("###")[0]


@pytest.mark.slow
def test_where_the_queued_work_ran_out_is_reported_with_what_drained_it() -> None:
    drained = part(to_markdown(fed()), "Where the queue ran empty")
    rows = [line for line in drained.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 5
    assert all("Data loading" in row and "<code>in batches (train.py:7)</code>" in row for row in rows)
    assert "And 4 more." in drained
    assert "### Where the queue ran empty" not in to_markdown(empty_report("no-gpu-activity"))


@pytest.mark.slow
def test_what_operators_cost_is_split_and_short_launches_are_counted() -> None:
    cost = part(to_markdown(fed()), "What operators cost the CPU")
    (row,) = (line for line in cost.splitlines() if "aten::relu" in line)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1:4] == ["120", "120", "1.14 ms"]  # a column of no late launches is left out
    assert "launches of operators took" not in cost
    relus = [op("aten::relu", at, 80) for at in range(0, 1_200, 100)]
    late = analysed(relus, [launched(GEMM, at + 20, at + 82, 4, at + 1, takes=50) for at in range(0, 1_200, 100)])
    assert "12 of 12 launches of operators took the CPU longer than the device" in to_markdown(late)


@pytest.mark.slow
def test_shares_without_recording_stand_beside_the_raw_ones() -> None:
    dense = [[python(f"train.py({k % 9}): f", 100 * n + 0.5 * k, 0.2) for k in range(100)] for n in range(12)]
    few = [launched(GEMM, 100 * n + 52, 100 * n + 58, 30, n + 1) for n in range(12)]
    report = analysed(dense, few)
    assert report.verdict.debiased is not None
    shares = part(to_markdown(report), "Where the time went")
    assert "| part | share | time | share without recording |" in shares
    row = next(line for line in shares.splitlines() if "| Idle: Python" in line)
    raw, without = (float(cell.split()[0]) for cell in row.split("|")[2:5:2])
    assert without < raw
    assert "from the distances between such events" in to_markdown(report)
    assert "share without recording" not in to_markdown(analysed(few)), "too few launches show what one costs"


@pytest.mark.slow
def test_advice_names_its_place_on_the_timeline() -> None:
    item = fed().advice[0]
    assert item.start_ns is not None
    assert f"On the timeline from {units.duration(item.start_ns)} on." in to_markdown(fed())
