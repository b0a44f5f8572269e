"""Read the figures of the article's table from ``article.toml``."""

from dataclasses import dataclass
from functools import cache

from trace_analyzer.catalog.documents import document


@dataclass(frozen=True)
class Figures:
    """Hold the shares of one operator class in a training step of BERT."""

    flop_ratio: float
    time_ratio: float


@dataclass(frozen=True)
class Article:
    """Map groups to figures, and name the paper with the measurements."""

    groups: dict[str, Figures]
    source: str
    url: str


@cache
def article() -> Article:
    """Return the article's table."""
    data = document("article.toml")
    groups = {group: Figures(**row) for group, row in data["group"].items()}
    return Article(groups, data["source"], data["url"])
