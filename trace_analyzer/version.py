"""Read the version of this package from its metadata."""

from functools import cache


@cache
def tool_version() -> str:
    """Return the installed version; ``0`` in a checkout that is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("trace-analyzer")
    except PackageNotFoundError:
        return "0"
