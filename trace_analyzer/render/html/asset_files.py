"""Read the files of pages: templates, styles and scripts."""

from importlib.resources import files

_ASSETS = files("trace_analyzer.render.html") / "assets"


def asset(name: str) -> str:
    """Return the text of an asset file."""
    return (_ASSETS / name).read_text(encoding="utf-8")
