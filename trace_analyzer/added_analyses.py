"""Add the analyses of plug-ins: check their declarations, and keep a failing one from breaking a report."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any

import polars as pl

from trace_analyzer import plugins
from trace_analyzer.analysis import Analysis, Declaration, Value
from trace_analyzer.errors import TraceAnalyzerError
from trace_analyzer.graph import Node
from trace_analyzer.plugins import Plugin, reason

_OF_DEVICES = "devices[]."


class _Failed:
    """Mark the place of a plug-in's value whose function failed."""


def added_analyses(own: Sequence[Declaration], given: Sequence[str], places: Sequence[str]) -> tuple[Declaration, ...]:
    """Return the analyses and values that plug-ins declare in addition to ``own``.

    ``given`` names the other values that their functions may take, ``places`` the existing fields of the JSON report. A
    plug-in with one invalid declaration adds none (`plugins.refuse`).
    """
    known, taken = {*given, *(made.name for made in own)}, set(places)
    taken |= {made.json for made in own if isinstance(made, Analysis) and made.json}
    made: list[Declaration] = []
    for plugin, module in plugins.modules("analyses"):
        try:
            declared = _checked(module.ANALYSES, known, taken)
        except Exception as error:  # a plug-in's module may raise anything
            plugins.refuse(plugin, "analyses.py", reason(error))
            continue
        known |= {item.name for item in declared}
        taken |= {item.json for item in declared if isinstance(item, Analysis) and item.json}
        made += [_guarded(item, plugin) for item in declared]
    return tuple(made)


def _checked(declared: Sequence[Declaration], known: set[str], taken: set[str]) -> Sequence[Declaration]:
    """Check the declarations and return them.

    Raises ``ValueError`` for an invalid one, ``TypeError`` for another type.
    """
    names: set[str] = set()
    for item in declared:
        if not isinstance(item, Analysis | Value):
            raise TypeError(f"ANALYSES holds {item!r}, which is no Analysis and no Value")
        if item.name in known or item.name in names:
            raise ValueError(f"{item.name} is there already: a table or value has a name of its own")
        names.add(item.name)
        if isinstance(item, Analysis):
            _check_places(item, taken)
    for item in declared:
        for source in Node(item.name, item.make, item.takes).sources.values():
            if source.removeprefix("unmasked_") not in known | names:
                raise ValueError(f"{item.name} is made from {source}, and nothing makes that")
    return declared


def _check_places(item: Analysis, taken: set[str]) -> None:
    """Refuse a place in the JSON report that is taken or invalid."""
    if item.json is not None:
        name = item.json.removeprefix(_OF_DEVICES)
        if item.json in taken or not name.isidentifier():
            raise ValueError(f"{item.name}: the place {item.json!r} in the JSON report is taken, or no name")
        if item.json != name and "device" not in item.table.schema:
            raise ValueError(f"{item.name}: rows in {item.json} need a column device")


def _guarded(item: Declaration, plugin: Plugin) -> Declaration:
    """Wrap a declaration's function, so that its failure leaves its result out (`plugins.refuse`)."""
    of_table = isinstance(item, Analysis)

    @wraps(item.make)
    def make(*args: Any, **values: Any) -> Any:
        try:
            if any(isinstance(value, _Failed) for value in values.values()):
                return item.table.empty() if isinstance(item, Analysis) else _Failed()
            made = item.make(*args, **values)
            return _conformed(item, made) if isinstance(item, Analysis) else made
        except TraceAnalyzerError:
            raise
        except BaseException as error:  # a panic of Polars is a BaseException, but no Exception
            if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
                raise
            plugins.refuse(plugin, f"{'analysis' if of_table else 'value'} {item.name}", reason(error))
            return item.table.empty() if isinstance(item, Analysis) else _Failed()

    made: Callable[..., Any] = make
    return replace(item, make=made)


def _conformed(item: Analysis, made: object) -> pl.DataFrame:
    if not isinstance(made, pl.DataFrame):
        raise TypeError(f"makes a {type(made).__name__}, no DataFrame")
    return item.table.conform(made)
