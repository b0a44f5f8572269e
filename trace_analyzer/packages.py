"""Name the purposes of optional packages: text, JSON, Markdown and tables need polars, numpy and click alone."""

from importlib.util import find_spec

PURPOSES = {
    **dict.fromkeys(("bokeh", "jinja2", "markupsafe"), "a page"),
    "zstandard": "reading zstd",
}
"""Purpose of each package."""


def missing_for_pages() -> str | None:
    """Return a line that names the missing packages for pages; None where all are installed."""
    names = [name for name, purpose in PURPOSES.items() if purpose == "a page" and find_spec(name) is None]
    return _line("a page", names) if names else None


def missing(error: ModuleNotFoundError) -> str | None:
    """Return a line with the purpose of the package that an import did not find; None for an unknown package."""
    name = (error.name or "").partition(".")[0]
    return _line(PURPOSES[name], [name]) if name in PURPOSES else None


def _line(purpose: str, names: list[str]) -> str:
    verb = "is" if len(names) == 1 else "are"
    return f"{purpose} needs {', '.join(names)}, which {verb} not installed: pip install {' '.join(names)}"
