"""Words that the vocabulary gave up, because nobody outside of this project uses them so."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from text_reports import all_reports

from trace_analyzer.render.html.page import page

GIVEN_UP = re.compile(
    r"contractions?\b|\brunway\b|attention written out|matrix units?\b|told apart|lost to the roof|(?:thin|matrix)[ -]products?\b"
    r"|time for [\d.,]+ [KMGTP]FLOP",
    re.IGNORECASE,
)
ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "sample_traces").glob("*.md")])
PLOTS = "queue_depth, runway"  # names of plots in Python, as keys of JSON, stay what they are


class Visible(HTMLParser):
    """The texts of a page that a person can see, tips included."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.inside: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Keep what a pointer shows, and remember what is no text."""
        self.texts += [value or "" for name, value in attributes if name in ("data-tip", "title", "aria-label")]
        if tag in ("script", "style"):
            self.inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Leave what is no text."""
        if self.inside and self.inside[-1] == tag:
            self.inside.pop()

    def handle_data(self, data: str) -> None:
        """Keep a text."""
        if not self.inside:
            self.texts.append(data)


def visible(html: str) -> str:
    """What a person can read on a page."""
    parser = Visible()
    parser.feed(html)
    return "\n".join(parser.texts)


def outputs() -> Iterator[str]:
    """Text, Markdown and digest of each report, and the page of the first."""
    reports = all_reports()
    for report in reports.values():
        yield from (report.summary(verbose=True), report.to_markdown(), report.to_agent_text())
    yield visible(page(reports["ok"]))


def test_outputs_use_none_of_them() -> None:
    assert [match.group() for text in outputs() for match in GIVEN_UP.finditer(text)] == []


@pytest.mark.parametrize("path", PAGES, ids=[path.name for path in PAGES])
def test_docs_use_none_of_them(path: Path) -> None:
    text = path.read_text(encoding="utf-8").replace(PLOTS, "")
    assert GIVEN_UP.findall(re.sub(r"`[^`]*`", "", text)) == []


def test_they_are_seen_where_they_stand() -> None:
    html = '<p data-tip="The runway">thin products<script>contraction</script></p>'
    assert GIVEN_UP.findall(visible(html)) == ["runway", "thin products"]
