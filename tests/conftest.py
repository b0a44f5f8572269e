"""Code shared by all tests: the two tiers, and each real trace analysed once."""

import csv
import os
import signal
import stat
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

if "PYTEST_XDIST_WORKER" in os.environ:  # each core has a worker
    os.environ.setdefault("POLARS_MAX_THREADS", "1")

from trace_analyzer import report

pytest_plugins = ["tiers"]

SAMPLES = Path(__file__).parents[1] / "sample_traces"
CORPUS = Path(os.environ.get("TRACE_CORPUS", Path(__file__).parents[1] / "../shared/traces"))


def corpus_rows() -> list[dict[str, str]]:
    """Return the rows of the corpus's index; none where it is absent."""
    index = CORPUS / "INDEX.csv"
    if not index.exists():
        return []
    with index.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@cache
def sample_report(name: str) -> report.Report:
    """Return the report on a file of `sample_traces/`, each part made once per process."""
    from lazy_report import report_on  # not earlier: pytest loads the plug-in that it imports

    return report_on(SAMPLES / name)


@pytest.fixture(scope="session")
def corpus_report() -> Callable[[str], report.Report]:
    """Return a function that gives the report on a file of the corpus, each part made once per session."""
    from lazy_report import report_on  # not earlier: pytest loads the plug-in that it imports

    return cache(lambda name: report_on(CORPUS / name))


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    """Skip disk synchronization for files written in the test process; tests/test_faults.py covers these calls."""

    def synchronize(descriptor: int) -> None:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            fsync(descriptor)

    fsync, os.fsync = os.fsync, synchronize
    yield
    os.fsync = fsync


@pytest.fixture(scope="session", autouse=True)
def no_ignored_signals() -> None:
    """Reset signals that a run under nohup ignores, as processes started by tests would inherit that."""
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def nobodys_settings(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Isolate reports from the calibrations of the user who runs the tests."""
    os.environ["XDG_CONFIG_HOME"] = os.environ["APPDATA"] = str(tmp_path_factory.mktemp("config"))
    os.environ["TRACE_ANALYZER_PLUGINS"] = "none"
