"""Return the user's folder for settings, by the conventions of the platform."""

import os
from pathlib import Path

_NAME = "trace-analyzer"


def config_folder() -> Path:
    """Return the folder for settings, by the XDG convention; it need not exist.

    Raises ``RuntimeError`` without a home.
    """
    base = os.environ.get("APPDATA" if os.name == "nt" else "XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / _NAME
