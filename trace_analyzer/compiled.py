"""Detect missing compiled modules; without them, reading and analysing take several times as long."""

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

MODULES = ("frames/_arrow", "frames/_path_loops", "frames/_row_loops", "frames/_span_loops", "ingest/_scanner")
"""Modules that the installation compiles (setup.py)."""


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
