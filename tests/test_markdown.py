"""The Markdown report: what comes from a trace stays text when a real parser renders it."""

import re
from dataclasses import replace

import pytest
from markdown_it import MarkdownIt
from report_factory import empty_report, gpu_report
from text_reports import STATUSES, all_reports, report_saying

from trace_analyzer.render.markdown import escaped, to_markdown

HOSTILE = (
    "a|b",
    "`code`",
    "``",
    "**bold** _it_ __init__ ~~gone~~",
    "<script>alert(1)</script>",
    "<!-- hidden",
    "[link](http://evil.example)",
    "![img](https://evil.example/x.png)",
    "www.evil.example",
    "https://evil.example",
    "# heading",
    "- item",
    "1. item",
    "1) item",
    "1.5 %",
    "2.",
    "> quote",
    "&lt;b&gt; &amp;",
    "---",
    "===",
    "\\",
    "```\nfence",
    "| a | b |",
    "line\nbreak",
    "</code></details><b>",
    "a_b_c",
    "$x$",
    "+ plus",
    "::=",
)

RENDER = MarkdownIt("commonmark", {"html": True, "linkify": True}).enable(["table", "strikethrough", "linkify"])
OWN_TAGS = {
    "h2",
    "h3",
    "p",
    "strong",
    "code",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "ol",
    "ul",
    "li",
    "pre",
    "details",
    "summary",
}


def tags(html: str) -> set[str]:
    return {name.lower() for name in re.findall(r"<[/!]?\s*([A-Za-z0-9-]+)", html)}


@pytest.mark.parametrize("text", HOSTILE)
def test_text_from_a_trace_makes_no_markup(text: str) -> None:
    html = RENDER.render(to_markdown(report_saying(text)))
    plain = RENDER.render(to_markdown(report_saying("word")))
    assert tags(html) <= OWN_TAGS
    assert {tag: html.count(f"<{tag}") for tag in OWN_TAGS} == {tag: plain.count(f"<{tag}") for tag in OWN_TAGS}
    assert "href" not in html
    assert "src=" not in html


@pytest.mark.parametrize("text", [t for t in HOSTILE if "\n" not in t])
def test_escaped_text_reads_as_it_was(text: str) -> None:
    html = RENDER.render(f"x {escaped(text)}")
    shown = (
        re.sub(r"<[^>]+>", "", html)
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", '"')
        .replace("&amp;", "&")
    )
    assert shown.strip() == f"x {text}"


def test_nobody_is_mentioned() -> None:
    assert escaped("@octocat fixes #12 in ProfilerStep#3") == "@&#8203;octocat fixes #&#8203;12 in ProfilerStep#3"


def test_fences_outgrow_the_backticks_in_code() -> None:
    made = gpu_report()
    text = to_markdown(replace(made, advice=(replace(made.advice[0], code="a = '````'"),)))
    assert "   `````python\n   a = '````'\n   `````" in text


def test_tables_have_as_many_cells_as_columns() -> None:
    for line in to_markdown(report_saying("a|b")).splitlines():
        if line.startswith("|"):
            cells = re.split(r"(?<!\\)\|", line)
            assert len(cells) - 2 in (3, 6, 8)


@pytest.mark.parametrize("name", all_reports())
def test_it_starts_with_trust_and_the_verdict(name: str) -> None:
    report = all_reports()[name]
    text = to_markdown(report)
    assert text.startswith("Trust: ")
    title = next(line for line in text.splitlines() if line.startswith("#"))
    assert title.startswith(f"## {report.verdict.regime or 'no verdict: ' + report.verdict.status}")


@pytest.mark.parametrize("status", STATUSES)
def test_without_a_regime_it_says_what_to_record(status: str) -> None:
    assert "### What to record instead\n\n- " in to_markdown(empty_report(status))
