"""Return the user's folders for settings and for caches, by the conventions of the platform."""

import os
import sys
from pathlib import Path

_NAME = "trace-analyzer"
TEMPLATES = "templates"
"""Subfolder of the cache folder for compiled templates, which are no traces."""


def config_folder() -> Path:
    """Return the folder for settings, by the XDG convention; it need not exist.

    Raises ``RuntimeError`` without a home.
    """
    base = os.environ.get("APPDATA" if os.name == "nt" else "XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / _NAME


def cache_folder() -> Path:
    """Return the cache folder: below XDG_CACHE_HOME, LOCALAPPDATA or the platform's own place; it need not exist."""
    if base := os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA"):
        return Path(base) / _NAME
    home = Path.home()
    return (home / "Library" / "Caches" if sys.platform == "darwin" else home / ".cache") / _NAME


def template_folder() -> Path:
    """Return the folder for compiled templates within the cache folder; it need not exist."""
    return cache_folder() / TEMPLATES
