"""Draw verdict and timeline of a report as a picture, with a headless Chromium or Chrome."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from trace_analyzer.errors import UsageError
from trace_analyzer.files import write_bytes
from trace_analyzer.render.html import write_html
from trace_analyzer.report import Report

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
"""Commands to search for, in this order."""

_TIMEOUT_S = 120
_DRAWING_MS = 15_000  # virtual time of the browser, which advances faster while it is idle


def browser() -> str:
    """Return the command of a headless browser; the variable ``CHROME`` has precedence.

    Raises ``UsageError`` when none is found.
    """
    for name in (os.environ.get("CHROME", ""), *BROWSERS):
        executable = shutil.which(name) if name else None
        if executable:
            return executable
    raise UsageError("a picture needs Chromium or Chrome: install one, or name it in the environment variable CHROME")


def write_png(report: Report, path: Path, width: int, height: int) -> Path:
    """Write the picture to ``path`` in one step and return it; `Report.to_png` documents it."""
    command = browser()
    with tempfile.TemporaryDirectory(prefix="trace-analyzer-") as folder:
        page, picture = Path(folder, "report.html"), Path(folder, "report.png")
        write_html(report, page, compact=True)
        ran = screenshot(command, page, picture, f"{width},{height}")
        if not picture.exists():
            errors = ran.strip().splitlines()
            raise UsageError(f"{command} drew no picture{': ' + errors[-1] if errors else ''}")
        write_bytes(path, picture.read_bytes())
    return path


def screenshot(command: str, page: Path, picture: Path, size: str) -> str:
    """Let the browser draw the page (``size`` is ``width,height``); return its standard error. Raises ``UsageError``."""
    try:
        done = subprocess.run(
            [
                command, "--headless=new", "--disable-gpu", "--no-first-run", "--hide-scrollbars",
                "--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND",
                *(["--no-sandbox"] if _is_root() else []),
                f"--user-data-dir={page.parent / 'profile'}", f"--window-size={size}", f"--screenshot={picture}",
                f"--virtual-time-budget={_DRAWING_MS}", f"{page.as_uri()}#picture",
            ],
            capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise UsageError(f"{command} drew no picture within {_TIMEOUT_S} s") from None
    except OSError as error:
        raise UsageError(f"{command} cannot be started: {error.strerror}") from None
    return done.stderr


def _is_root() -> bool:
    """Return whether this runs as root, where Chromium's sandbox does not work.

    Most containers run as root; the page is this program's own and fetches nothing.
    """
    return hasattr(os, "geteuid") and os.geteuid() == 0
