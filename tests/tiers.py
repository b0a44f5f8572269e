"""Two tiers of tests: the quick one runs by default, ``--slow`` runs every test with its examples.

``--left-out`` runs what the quick tier leaves out: slow tests, and property tests with all their examples.

A test marked ``slow`` starts browsers, torch or many processes, or analyses many traces; so do together those of a module
that is marked. Property tests run in both tiers: the quick one gives each of them a fraction of its examples, the slow one
a third. So do tests marked ``sampled``: of the cases that they are parametrized with, the quick tier runs the first and the
last (none if the test is slow), the slow one a quarter of the others. A test that is named on the command line (``tests/test_laws.py::test_x``) or chosen with ``-m`` or ``-k`` runs
in either tier.

``PROPERTY_EXAMPLES=10`` gives each property test of the slow tier ten times the examples that it names, and each sampled
test every case. Workers of pytest-xdist get the modules that take longest first, so that all of them end at about the same time.
"""

import gc
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import is_hypothesis_test, settings

from trace_analyzer import tuning

QUICK_SHARE = 20
"""Divisor of a property test's examples in the quick tier."""
SLOW_SHARE = 3
"""Divisor of them in the slow tier, unless it is thorough."""
QUICK_LEAST = 2
"""Least examples of a property test in the quick tier."""
QUICK_CASES = 2
"""Number of cases of a ``sampled`` test in the quick tier."""
SLOW_STRIDE = 4
"""The slow tier runs one in so many of the other cases of a ``sampled`` test."""
MORE_EXAMPLES = int(os.environ.get("PROPERTY_EXAMPLES", "1"))
"""Multiplier of a property test's examples in the slow tier."""
LONGEST = (
    "test_advice", "test_broken_input", "test_record", "test_corpus", "test_timeline_browser", "test_ranks",
    "test_compare", "test_replay_pairs", "test_page_browser", "test_laws", "test_steps", "test_help", "test_planted",
    "test_advice_conditions", "test_cpu", "test_surroundings", "test_whatif", "test_ranks_engine", "test_advice_code",
    "test_causes", "test_redact", "test_recipes", "test_faults", "test_program", "test_nsight", "test_ranks_recorded",
    "test_compare_pairs", "test_fast_reader", "test_cli", "test_docs", "test_hostile_verbs", "test_advice_applied",
    "test_plugins", "test_gpu_cases", "test_handler", "test_links", "test_multiples", "test_memory_faults",
)  # fmt: skip
"""Modules of over 20 s, the longest first; the others follow by their number of tests."""
_EXAMPLES = 100
"""Examples of a property test without a stated number: Hypothesis' default."""
_SLOW_MODULE = re.compile(r"^pytestmark = \[?pytest\.mark\.slow\b", re.MULTILINE)
_LEFT_OUT = pytest.StashKey[int]()
_REPORTED = "slow tests left out"
_FLAG = "TRACE_ANALYZER_SLOW_TESTS"
"""Environment variable for all processes of a run, as decorators are evaluated without access to options."""


def is_slow_tier() -> bool:
    """Return whether every test runs, with all examples."""
    return os.environ.get(_FLAG) == "1"


def is_thorough() -> bool:
    """Return whether property tests run more examples than they name, and tests make whole reports."""
    return is_slow_tier() and MORE_EXAMPLES > 1


def examples(count: int) -> int:
    """Return how many examples of a property test's ``count`` this tier runs."""
    if is_thorough():
        return count * MORE_EXAMPLES
    return min(count, max(QUICK_LEAST, count // (SLOW_SHARE if is_slow_tier() else QUICK_SHARE)))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--slow`` and ``--left-out``."""
    parser.addoption("--slow", action="store_true", help="run both tiers, property tests with all their examples")
    parser.addoption(
        "--left-out", action="store_true", help="run what the quick tier leaves out: slow tests and all examples"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Choose the tier, and Hypothesis' profile for it, before any test module is imported."""
    tuning.collect_garbage_rarely()  # as the command does
    if config.getoption("--slow") or config.getoption("--left-out"):
        os.environ[_FLAG] = "1"
    # The same examples in each run, so that results are reproducible; others with --hypothesis-profile=search.
    settings.register_profile("tests", deadline=None, derandomize=True, max_examples=examples(_EXAMPLES))
    settings.register_profile("search", deadline=None)
    if not config.getoption("--hypothesis-profile", None):
        settings.load_profile("tests")
    config.stash[_LEFT_OUT] = 0
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False  # pytest-xdist would start the modules with most tests first


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave modules of slow tests alone out of the quick tier unseen, as most of them import torch, which takes seconds."""
    chosen = is_slow_tier() or config.getoption("-m") or config.getoption("-k")
    if chosen or collection_path.suffix != ".py" or any(collection_path.name in argument for argument in config.args):
        return None
    text = collection_path.read_text("utf-8")
    if not _SLOW_MODULE.search(text):
        return None
    config.stash[_LEFT_OUT] += len(re.findall(r"^def test_", text, re.MULTILINE))
    return True


def pytest_collection_finish() -> None:
    """Keep what modules and tests hold out of garbage collections: they took 8 % of the time of tests that analyse traces."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave slow tests out of the quick tier, and the others out of ``--left-out``; put what takes long first."""
    chosen, others = _choose(config, items)
    items[:] = chosen
    config.hook.pytest_deselected(items=others)
    if "PYTEST_XDIST_WORKER" in os.environ:
        tests = Counter(item.path for item in items)
        places = {name: place for place, name in enumerate(LONGEST)}
        items.sort(key=lambda item: (places.get(item.path.stem, len(places)), -tests[item.path]))


def _choose(config: pytest.Config, items: list[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Return the tests to run, and the others, which count as left out in the quick tier."""
    if config.getoption("-m") or config.getoption("-k"):
        return items, []
    named = {argument.partition("[")[0] for argument in config.args if "::" in argument}
    is_named = {item for item in items if item.nodeid.partition("[")[0] in named}
    quick, rest = _tiers([item for item in items if item not in is_named])
    if config.getoption("--left-out"):
        chosen = rest | {item for item in quick if is_hypothesis_test(getattr(item, "obj", None))}
    elif config.getoption("--slow"):
        chosen = quick | rest
    else:
        chosen = quick
        config.stash[_LEFT_OUT] += len(items) - len(is_named) - len(quick)
    chosen |= is_named
    return [item for item in items if item in chosen], [item for item in items if item not in chosen]


def _tiers(items: list[pytest.Item]) -> tuple[set[pytest.Item], set[pytest.Item]]:
    """Return the tests of the quick tier, and those that the slow one adds."""
    slow = {item for item in items if item.get_closest_marker("slow")}
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sampled"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    between = [of_test if of_test[0] in slow else of_test[QUICK_CASES - 1 : -1] for of_test in cases.values()]
    stride = 1 if is_thorough() else SLOW_STRIDE
    added = {item for of_test in between for item in of_test[::stride]}
    others = {item for of_test in between for item in of_test}
    return set(items) - slow - others, (slow - others) | added


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take the number over from a worker of pytest-xdist: each of them collects all tests, and the controller none."""
    config: pytest.Config = node.config
    config.stash[_LEFT_OUT] = max(config.stash[_LEFT_OUT], getattr(node, "workeroutput", {}).get(_REPORTED, 0))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand the number to the controller of pytest-xdist."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_REPORTED] = session.config.stash[_LEFT_OUT]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Report what was left out and how to run it."""
    left_out = config.stash[_LEFT_OUT]
    if left_out:
        terminalreporter.write_line(
            f"quick tier: {left_out} slow tests (browsers, torch, processes, many traces) were left out, and property tests"
            f" ran one in {QUICK_SHARE} of their examples; add --slow for all of them",
            yellow=True,
        )
