"""Inspect this installation: the version of the package, missing optional packages, missing compiled modules."""

from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path

DISTRIBUTION = "torch-trace-analyzer"
"""Name on PyPI, where ``trace-analyzer`` and ``traceanalyzer`` are other projects."""

GENERATOR = "trace-analyzer"
"""Name in the pages that this program writes, by which it recognizes them."""


@cache
def tool_version() -> str:
    """Return the installed version; ``0`` in a checkout that is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "0"


PURPOSES = {**dict.fromkeys(("bokeh", "jinja2", "markupsafe"), "a page"), "zstandard": "reading zstd"}
"""Purpose of each package without which text, JSON, Markdown and tables are made all the same."""


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


MODULES = (
    "frames/_arrow", "frames/_path_loops", "frames/_row_loops", "frames/_span_loops", "ingest/_scanner",
    "allocator/_pickle_reader",
)  # fmt: skip
"""Modules that setup.py compiles; without them, reading and analysing take several times as long."""


def why_slow(package: Path = Path(__file__).parent) -> str | None:
    """Return why this copy of the package is slow and what to do; None where everything is compiled."""
    if all(any(package.joinpath(name + end).exists() for end in EXTENSION_SUFFIXES) for name in MODULES):
        return None
    if package.with_name("setup.py").exists():
        return (
            f"reading is slow: the package in {package.parent} is not compiled; run in another folder to use the one that is"
            " installed, or compile it there: python setup.py build_ext --inplace"
        )
    return f"reading is slow: the package in {package} was installed without a C compiler; install it again with one"
