"""Former terms must not occur in outputs for users: `test_prose` keeps them out of docs and code."""

from collections.abc import Iterator
from html.parser import HTMLParser

from test_prose import JARGON
from text_reports import all_reports

from trace_analyzer.render.html.page import page


class Visible(HTMLParser):
    """Collect the texts of a page that a person can see, tips included."""

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
        """Leave an element that is no text."""
        if self.inside and self.inside[-1] == tag:
            self.inside.pop()

    def handle_data(self, data: str) -> None:
        """Keep a text."""
        if not self.inside:
            self.texts.append(data)


def visible(html: str) -> str:
    """Return the text of a page that a person can read."""
    parser = Visible()
    parser.feed(html)
    return "\n".join(parser.texts)


def outputs() -> Iterator[str]:
    """Yield text, Markdown and digest of each report, and the page of the first."""
    reports = all_reports()
    for report in reports.values():
        yield from (report.summary(verbose=True), report.to_markdown(), report.to_agent_text())
    yield visible(page(reports["ok"]))


def test_outputs_use_none_of_them() -> None:
    assert [match.group() for text in outputs() for match in JARGON.finditer(text)] == []


def test_only_what_is_seen_counts() -> None:
    assert visible('<p title="a tip" id="no text">seen<script>hidden</script></p>').split() == ["a", "tip", "seen"]
