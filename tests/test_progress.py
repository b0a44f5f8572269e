"""Test the progress line: shown only on a terminal for long work, and erased at the end."""

import io
import time

import pytest

from trace_analyzer.cli import outputs


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "_PATIENCE_S", 0.05)
    monkeypatch.setattr(outputs, "_REDRAW_S", 0.01)
    monkeypatch.setenv("TERM", "xterm")


def drawn(stream: io.StringIO, seconds: float) -> str:
    with outputs.Progress(stream) as tell:
        tell("reading", 0.256)
        time.sleep(seconds)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("stream", "seconds", "kind"), [(io.StringIO(), 0.2, "xterm"), (Terminal(), 0, "xterm"), (Terminal(), 0.2, "dumb")]
)
def test_a_file_short_work_and_a_dumb_terminal_stay_silent(
    stream: io.StringIO, seconds: float, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", kind)
    assert drawn(stream, seconds) == ""


def test_long_work_is_reported_and_the_line_is_wiped() -> None:
    text = drawn(Terminal(), 0.3)
    assert "analyze: reading 26 % ..." in text
    assert text.endswith("\r\x1b[K")


def test_the_line_is_wiped_after_a_failure_too() -> None:
    stream = Terminal()

    def interrupted() -> None:
        with outputs.Progress(stream):
            time.sleep(0.3)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert stream.getvalue().endswith("\r\x1b[K")
