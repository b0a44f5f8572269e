"""Read the files of the catalogue.

Parsing TOML is slow in Python, so setup.py stores the content of the files as JSON next to them. Reading that takes a
twentieth of the time, and is done for files that have not changed since (benchmarks/startup.py).
"""

import json
import zlib
from functools import cache
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
PARSED = "parsed.json"
"""File that maps each file's name to its checksum and content."""


def document(name: str, folder: Path = _HERE) -> dict[str, Any]:
    """Return a parsed TOML file of this package: ``document("devices.toml")``."""
    content = (folder / name).read_bytes()
    checksum, parsed = _parsed(folder).get(name, (None, {}))
    if checksum == zlib.crc32(content):
        return parsed
    import tomllib

    return tomllib.loads(content.decode("utf-8"))


def is_changed(name: str, folder: Path = _HERE) -> bool:
    """Return whether a file has changed since setup.py read it, or was never read."""
    return _parsed(folder).get(name, (None, {}))[0] != zlib.crc32((folder / name).read_bytes())


def write_parsed(folder: Path) -> None:
    """Write `PARSED` for the TOML files of a folder."""
    import tomllib

    contents = {path.name: path.read_bytes() for path in sorted(folder.glob("*.toml"))}
    parsed = {name: (zlib.crc32(content), tomllib.loads(content.decode("utf-8"))) for name, content in contents.items()}
    (folder / PARSED).write_text(json.dumps(parsed), encoding="utf-8")


@cache
def _parsed(folder: Path) -> dict[str, tuple[int, dict[str, Any]]]:
    """Return the content of `PARSED`; empty where the file is missing or truncated."""
    try:
        parsed = json.loads((folder / PARSED).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


__all__ = ["PARSED", "document", "is_changed", "write_parsed"]
