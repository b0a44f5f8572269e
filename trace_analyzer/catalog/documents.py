"""Read the files of the catalogue."""

import tomllib
from importlib.resources import files
from typing import Any


def document(name: str) -> dict[str, Any]:
    """Return a file of this package as TOML, parsed: ``document("devices.toml")``."""
    return tomllib.loads(files(__package__).joinpath(name).read_text("utf-8"))


__all__ = ["document"]
