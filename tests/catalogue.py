"""Read examples of the catalogue's rules: tests/catalog has a file for each TOML file of the package."""

import tomllib
from pathlib import Path
from typing import Any


def examples(file: str) -> dict[str, Any]:
    """Return a file of examples, with the same tables as the file of rules."""
    return tomllib.loads((Path(__file__).with_name("catalog") / file).read_text("utf-8"))
