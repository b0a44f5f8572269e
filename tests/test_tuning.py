"""Check that allocators share few arenas unless the user sets a number."""

import os
import sys

import pytest

from trace_analyzer.tuning import ARENAS, limit_arenas

VARIABLE = "_RJEM_MALLOC_CONF"


@pytest.fixture
def before_polars(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Polars look as if it were not imported yet, which is when it reads the variable."""
    monkeypatch.delitem(sys.modules, "polars", raising=False)
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.delenv(VARIABLE)


@pytest.mark.usefixtures("before_polars")
def test_polars_is_given_few_arenas_that_return_freed_pages() -> None:
    limit_arenas()
    assert os.environ[VARIABLE] == f"narenas:{ARENAS},muzzy_decay_ms:0"


@pytest.mark.usefixtures("before_polars")
def test_what_the_user_sets_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "narenas:7")
    limit_arenas()
    assert os.environ[VARIABLE] == "narenas:7"


@pytest.mark.usefixtures("before_polars")
def test_a_polars_that_is_imported_has_read_it_already(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", sys)
    limit_arenas()
    assert VARIABLE not in os.environ
