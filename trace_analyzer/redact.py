"""Redact a report for sharing: keep data known to be harmless, and replace or remove all other data.

Figures, times, shapes and this program's own words stay. A name of public words stays (see
`trace_analyzer.catalog.public_words`); any other identifier becomes ``name1``, ``name2``, ..., the same one at each
occurrence. Directories, addresses, the host's name, arguments and call stacks are removed.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import polars as pl

from trace_analyzer.catalog.public_words import is_public
from trace_analyzer.report import DeviceReport, Report, TraceInfo

T = TypeVar("T")

ARGUMENTS = (
    "concrete_inputs", "group_size", "call_stack", "process_group", "process_group_description", "process_group_ranks",
    "global_rank_start", "global_rank_stride", "comms_id", "source_rank", "destination_rank", "input_splits", "output_splits",
)  # fmt: skip
"""Columns with arguments, process groups or call stacks, which are emptied in all tables."""

NUMBERS = ("pid", "tid", "flow_id", "label", "grid", "block", "input_dims", "input_strides")
"""Columns of numbers as text, which stay whatever their length."""

PUBLIC_HOSTS = frozenset(
    ("arxiv.org", "docs.nvidia.com", "docs.pytorch.org", "doi.org", "github.com/pytorch", "horace.io", "pytorch.org")
)
"""Addresses that advice may contain; others are removed."""

# A directory may contain spaces, but not a file name and more words: "/a/b.py and /c/d.py" are two paths.
_DIRECTORY = r"(?:(?!\.\w{1,5}[\s(),;:'\"`])[^/\\\n<>|\"'`])*[^/\\\s<>|\"'`][/\\]+"
_ABSOLUTE = re.compile(
    rf"(?<![\w/\\.<])(?:file://+|[A-Za-z]:[/\\]+|\\\\|~\w*[/\\]|\.{{0,2}}/)(?:{_DIRECTORY})*(?=[^\s/\\])"
)
_RELATIVE = re.compile(
    r"(?<![\w.+@/\\-])(?:[\w.+@-]+[/\\])+(?=[\w.+-]+\.(?:py|pyx|pyi|ipynb|c|cc|cpp|cu|cuh|h|hpp|so|json|gz|pt)\b)"
)
_FRAME = re.compile(r"[^\n]*[/\\]([^/\\\n]+\(\d+\): [^\n]*)")
"""A Python frame in Kineto's notation, ``dir/file.py(12): function``; the directory may contain any characters."""

_ADDRESS = re.compile(
    r"(?<![A-Za-z0-9+.-])[A-Za-z0-9+.-]+://(?:www\.)?([^\s\"'<>)\]]*)"
    r"|(?<![^\s@\"'<>(\[])[^\s@\"'<>(\[]+@[^\s@\"'<>)\]]+"
)
"""A URL, or ``user@host``, with the text after it.

The search starts only at beginnings of words, as names may have millions of characters.
"""
_SHARE = re.compile(r"\\\\[^\s\"'<>]+[\\/]")
"""Server and folders of a UNC path."""
_IDENTIFIER = re.compile(r"[^\W_](?:\w*[^\W_])?|\w+")
_FIGURES = re.compile(r"[\d\s\[\],.+-]*")

_NOTHING = re.compile(r"(?!)")
_TENSORBOARD_NAME = re.compile(r"(.+?)(_\d+\.\d+\.pt\.trace\.json.*)")
"""File name of ``tensorboard_trace_handler``: ``host_pid.time.pt.trace.json``."""


class Redaction:
    """Redact all data from one trace, or from compared traces; equal names get equal numbers in all of it.

    ``paths`` are those of the traces or their folders, as the user gave them.
    """

    def __init__(self, *paths: str) -> None:
        names = {path: re.split(r"[/\\]", path.rstrip("/\\"))[-1] for path in paths if path.strip("/\\")}
        self._names = dict(sorted(names.items(), key=lambda item: -len(item[0])))
        self._host = _host_pattern(self._names.values())
        self._shown: dict[str, str] = {}
        self._count = 0
        self.file_name = self.text(names.get(paths[0], "")) if paths else ""
        """Redacted file name of the first trace."""

    def text(self, text: str) -> str:
        """Return a text without directories, addresses and private names."""
        for path, name in self._names.items():
            text = text.replace(path, name)
        text = without_directories(_SHARE.sub("", _ADDRESS.sub(_address, text)))
        return _IDENTIFIER.sub(self._identifier, self._host.sub("host", text))

    def report(self, report: Report) -> Report:
        """Return the report with redacted texts and tables."""
        devices = tuple(self._without_places(device) for device in report.devices)
        texts = self.result(dataclasses.replace(report, tables={}, devices=devices))
        kept = TraceInfo(**{**vars(texts.trace), "path": self.file_name, **_times(report.trace)})
        tables = {name: self._table(table) for name, table in report.tables.items()}
        return dataclasses.replace(texts, trace=kept, tables=tables)

    def result(self, value: T) -> T:
        """Return a comparison or an estimate with redacted texts and frames, including those made later."""
        cleaned: T = _clean_texts(value, self.text, self._table)
        return cleaned

    def _identifier(self, match: re.Match[str]) -> str:
        identifier = match[0]
        if identifier not in self._shown:
            known = is_public(identifier)
            self._count += not known
            self._shown[identifier] = identifier if known else f"name{self._count}"
        return self._shown[identifier]

    def _cell(self, text: str) -> str:
        frame = _FRAME.fullmatch(text)
        return self.text(frame[1] if frame else text)

    def _without_places(self, device: DeviceReport) -> DeviceReport:
        """Return the device with its fusions' functions redacted as frames, whose directories may contain spaces."""
        fusions = (dataclasses.replace(f, function=f.function and self._cell(f.function)) for f in device.fusions)
        return dataclasses.replace(device, fusions=tuple(fusions))

    def _table(self, frame: pl.DataFrame) -> pl.DataFrame:
        emptied = [pl.lit(None, dtype=frame.schema[name]).alias(name) for name in ARGUMENTS if name in frame.columns]
        texts = [name for name, dtype in frame.schema.items() if dtype == pl.String and name not in ARGUMENTS]
        return frame.with_columns(*emptied, *(self._column(frame.get_column(name)) for name in texts))

    def _column(self, column: pl.Series) -> pl.Series:
        """Return the redacted column; each distinct text is processed once, because names repeat a million times."""
        old = column.unique(maintain_order=True).drop_nulls()
        numbers = column.name in NUMBERS
        new = [text if numbers and _FIGURES.fullmatch(text) else self._cell(text) for text in old]
        return column.replace_strict(old, pl.Series(new, dtype=pl.String), default=None) if new else column


def redacted(report: Report) -> Report:
    """Return the report with only data known to be harmless."""
    return Redaction(report.trace.path).report(report)


def without_directories(text: str) -> str:
    """Replace every path in the text by its file name."""
    if "/" not in text and "\\" not in text:
        return text
    return _RELATIVE.sub("", _ABSOLUTE.sub("", text))


def _address(match: re.Match[str]) -> str:
    place = match[1] or ""
    return match[0] if any(place == host or place.startswith(f"{host}/") for host in PUBLIC_HOSTS) else "address"


def _times(trace: TraceInfo) -> dict[str, str | None]:
    """Return the trace's absolute times, which are numbers as text."""
    base = trace.base_time_ns
    return {
        "origin_ns": trace.origin_ns if _FIGURES.fullmatch(trace.origin_ns) else "",
        "base_time_ns": base if base is None or _FIGURES.fullmatch(base) else None,
    }


def _host_pattern(file_names: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern of the hosts at the beginning of file names; it matches nothing without any.

    A host called ``memory`` must not remove that word from the report: words without digits or dots count as host names
    only before a process id.
    """
    hosts = {handler[1] for name in file_names if (handler := _TENSORBOARD_NAME.fullmatch(name))}
    if not hosts:
        return _NOTHING
    patterns = [re.escape(host) + (r"(?=_\d|\b)" if re.search(r"[\d.]", host) else r"(?=_\d)") for host in hosts]
    return re.compile(rf"(?<!\w)(?:{'|'.join(sorted(patterns, key=len, reverse=True))})")


def _clean_texts(value: Any, clean: Callable[[str], str], clean_table: Callable[[pl.DataFrame], pl.DataFrame]) -> Any:
    """Clean every text in a value: in dataclasses, mappings, tuples, frames and functions that make frames."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, pl.DataFrame):
        return clean_table(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = (f.name for f in dataclasses.fields(value) if f.init)
        return dataclasses.replace(value, **{f: _clean_texts(getattr(value, f), clean, clean_table) for f in fields})
    if isinstance(value, Mapping):
        return {key: _clean_texts(item, clean, clean_table) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(_clean_texts(item, clean, clean_table) for item in value)
    if callable(value) and not isinstance(value, type):
        return lambda *given: _clean_texts(value(*given), clean, clean_table)
    return value
