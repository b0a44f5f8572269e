"""Read the version of this package from its metadata."""

from functools import cache

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
