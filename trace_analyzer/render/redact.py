"""What is left of a report when it is to be shared: no directories, no host names, no arguments.

Names of kernels, operators, functions, modules and annotations stay, and so do shapes: they are what the
report is about.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

from trace_analyzer.report import DeviceReport, Report

ARGUMENTS = ("concrete_inputs", "group_size", "call_stack")
"""Columns that hold arguments, process groups or call stacks, in whatever table: emptied."""

# A directory may hold spaces, but not a file name and more words: "/a/b.py and /c/d.py" are two paths.
_DIRECTORY = r"(?:(?!\.\w{1,5}[\s(),;:'\"`])[^/\\\n<>|\"'`])*[^/\\\s<>|\"'`][/\\]+"
_ABSOLUTE = re.compile(
    rf"(?<![\w/\\.<])(?:file://+|[A-Za-z]:[/\\]+|\\\\|~\w*[/\\]|\.{{0,2}}/)(?:{_DIRECTORY})*(?=[^\s/\\])"
)
_RELATIVE = re.compile(
    r"(?<![\w.+@/\\-])(?:[\w.+@-]+[/\\])+(?=[\w.+-]+\.(?:py|pyx|pyi|ipynb|c|cc|cpp|cu|cuh|h|hpp|so|json|gz|pt)\b)"
)
_FRAME = re.compile(r"[^\n]*[/\\]([^/\\\n]+\(\d+\): [^\n]*)")
"""A Python frame as Kineto names it, ``dir/file.py(12): function``; the directory may hold anything."""

_NOTHING = re.compile(r"(?!)")
_TENSORBOARD_NAME = re.compile(r"(.+?)(_\d+\.\d+\.pt\.trace\.json.*)")
"""File name that ``tensorboard_trace_handler`` gives: ``host_pid.time.pt.trace.json``."""


def redacted(report: Report) -> Report:
    """The report without directories, host names and arguments, in its texts and its tables."""
    path = report.trace.path
    name = re.split(r"[/\\]", path)[-1]
    host = _host_pattern(name)

    def without_names(text: str) -> str:
        return host.sub("host", text.replace(path, name) if path else text)

    def prose(text: str) -> str:
        return without_directories(without_names(text))

    def cell(text: str) -> str:
        frame = _FRAME.fullmatch(text)
        return without_names(frame[1]) if frame else prose(text)

    devices = tuple(_without_places(device, cell) for device in report.devices)
    texts: Report = _clean_texts(dataclasses.replace(report, tables={}, devices=devices), prose)
    return dataclasses.replace(texts, tables={name: _clean_table(t, cell) for name, t in report.tables.items()})


def without_directories(text: str) -> str:
    """The text with every path in it cut down to its file name."""
    if "/" not in text and "\\" not in text:
        return text
    return _RELATIVE.sub("", _ABSOLUTE.sub("", text))


def _host_pattern(file_name: str) -> re.Pattern[str]:
    """What matches the host that the file name starts with; nothing if it names none.

    A host called ``memory`` is no reason to take that word out of the report: words without digits or
    dots are host names only where a process id follows.
    """
    handler = _TENSORBOARD_NAME.fullmatch(file_name)
    if not handler:
        return _NOTHING
    alone = r"|\b" if re.search(r"[\d.]", handler[1]) else ""
    return re.compile(rf"(?<!\w){re.escape(handler[1])}(?=_\d{alone})")


def _clean_texts(value: Any, clean: Callable[[str], str]) -> Any:
    """The value with every text in it cleaned, through dataclasses, mappings and tuples."""
    if isinstance(value, str):
        return clean(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changes = {f.name: _clean_texts(getattr(value, f.name), clean) for f in dataclasses.fields(value)}
        return dataclasses.replace(value, **changes)
    if isinstance(value, Mapping):
        return {key: _clean_texts(item, clean) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(_clean_texts(item, clean) for item in value)
    return value


def _without_places(device: DeviceReport, clean: Callable[[str], str]) -> DeviceReport:
    """The device with the functions of its fusions cleaned as frames, whose directories may hold spaces."""
    fusions = (dataclasses.replace(f, function=f.function and clean(f.function)) for f in device.fusions)
    return dataclasses.replace(device, fusions=tuple(fusions))


def _clean_table(frame: pl.DataFrame, clean: Callable[[str], str]) -> pl.DataFrame:
    """The frame with its arguments emptied and its other texts cleaned."""
    emptied = [pl.lit(None, dtype=frame.schema[name]).alias(name) for name in ARGUMENTS if name in frame.columns]
    texts = [name for name, dtype in frame.schema.items() if dtype == pl.String and name not in ARGUMENTS]
    return frame.with_columns(*emptied, *(_clean_column(frame.get_column(name), clean) for name in texts))


def _clean_column(column: pl.Series, clean: Callable[[str], str]) -> pl.Series:
    """The column cleaned; each different text once, because names repeat a million times."""
    old = column.unique().drop_nulls()
    new = [clean(text) for text in old]
    return column.replace_strict(old, pl.Series(new, dtype=pl.String), default=None) if new else column
