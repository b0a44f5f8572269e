"""Classify code by name with the rules of ``code.toml``: phases, library frames, sources of blocking calls."""

import re
from dataclasses import dataclass, fields
from functools import cache

import polars as pl

from trace_analyzer.catalog.documents import document
from trace_analyzer.catalog.host_work import MATCHED
from trace_analyzer.catalog.patterns import matches, with_slashes
from trace_analyzer.tuning import remembered

DATA_LOADING = "data-loading"
PHASES = (DATA_LOADING, "optimizer", "backward", "forward")
"""Phases of a step; where several are in progress, the first in this order counts.

`host_work` determines data loading.
"""
NO_OPERATOR = r"^[^:<(]*[#\[\]/=@!|?][^:<]*$"
"""Names of `record_function` scopes that PyTorch before 1.11 wrote as operators, such as
`[pl][profile]run_training_batch` or `epoch=3/step`; no operator has such a name."""
SCOPE = rf"{NO_OPERATOR}|^[^:<(]*[\s.-][^:<]*$"
"""The same for files without user annotations, where blanks, dots and hyphens also indicate scopes, such as
`train step`, `epoch-3` or `model.forward`."""
SCOPES_OF_TORCH = r"^(ProfilerStep|Optimizer\.(step|zero_grad)|enumerate\(DataLoader\))#"
"""Scopes that PyTorch itself opens."""
_ANNOTATIONS = rf"{SCOPES_OF_TORCH}|^ProfilerStep|^## |{NO_OPERATOR}"


@dataclass(frozen=True)
class CodeRule:
    """Hold a pattern of names, the kinds of host events for which it applies (none: Python frames), and its result."""

    pattern: str
    examples: tuple[str, ...]
    counterexamples: tuple[str, ...]
    name: str = ""
    kinds: tuple[str, ...] = ("python",)


@dataclass(frozen=True)
class CodeRules:
    """Hold the rules of ``code.toml`` in the file's order, of which the first match counts."""

    phases: tuple[CodeRule, ...]
    libraries: tuple[CodeRule, ...]
    preparations: tuple[CodeRule, ...]
    sources: tuple[CodeRule, ...]


@cache
def code_rules() -> CodeRules:
    """Return the rules, read once."""
    raw = document("code.toml")
    parts = (field.name for field in fields(CodeRules))
    return CodeRules(**{part: tuple(_rule(entry) for entry in raw[part]) for part in parts})


def _rule(entry: dict[str, object]) -> CodeRule:
    lists = {key: tuple(value) for key, value in entry.items() if isinstance(value, list)}
    return CodeRule(**entry | lists)  # type: ignore[arg-type]


FRAME = re.compile(r"(?P<file>.+)\((?P<line>\d{1,9})\): (?P<function>[^/(]+)", re.DOTALL)
"""Pattern of a Python frame in Kineto's notation.

Function names contain no parenthesis, which makes matching linear.
"""


def in_function(frame: str, call_line: int | None = None) -> str:
    """Format a Python frame for people: ``in step (train.py:12)``, with the line where the function begins."""
    match = FRAME.fullmatch(frame)
    if match is None:
        return f"in {frame}"
    call = "" if call_line is None else f", call in line {call_line}"
    return f"in {match['function']} ({match['file']}:{match['line']}{call})"


def without_address(name: pl.Expr) -> pl.Expr:
    """Return names of events with built-in functions as ``reshape()``, whatever object they were called on."""
    return name.str.replace(r"^<built-in (?:method|function) (\w+)(?: of [^>]*)?>$", "${1}()")


def is_annotation() -> pl.Expr:
    """Return whether an event only marks others; needs columns kind and name."""
    return (pl.col("kind") == "annotation") | (
        (pl.col("kind") == "operator") & pl.col("name").str.contains(_ANNOTATIONS)
    )


def named_code(events: pl.DataFrame) -> pl.DataFrame:
    """Return distinct (kind, name) of ``events`` with phase, source (null without one) and library."""
    return _named_code(events.select("kind", "name").unique(maintain_order=True))


@remembered
def _named_code(names: pl.DataFrame) -> pl.DataFrame:
    return names.hstack(with_slashes(names).select(code_of_name()))


@cache
def code_of_name() -> tuple[pl.Expr, ...]:
    """Return the expressions of the rules over kind and name."""
    rules = code_rules()
    return (
        pl.coalesce(_matches(rules.phases)).alias("phase"),
        pl.coalesce(_matches(rules.sources)).alias("source"),
        pl.any_horizontal(matches(_name(), rule.pattern) for rule in rules.libraries).alias("library"),
    )


def preparation_of(name: pl.Expr) -> pl.Expr:
    """Return what a function or operator of this name prepares: the name of the first rule that matches; null for nothing."""
    return pl.coalesce(
        pl.when(matches(name, rule.pattern)).then(pl.lit(rule.name)) for rule in code_rules().preparations
    )


INPUT_FILES = ("text", "images or sound")
"""Names of the rules for what is decoded or transformed for each input."""


def prepares_input_files(name: str) -> bool:
    """Return whether a function or operator of this name decodes or transforms text, images or sound."""
    rules = [rule for rule in code_rules().preparations if rule.name in INPUT_FILES]
    return any(re.search(rule.pattern, name) for rule in rules)


def _matches(rules: tuple[CodeRule, ...]) -> list[pl.Expr]:
    return [
        pl.when(pl.col("kind").is_in(list(rule.kinds)) & matches(_name(), rule.pattern)).then(pl.lit(rule.name))
        for rule in rules
    ]


def _name() -> pl.Expr:
    return pl.col("name").str.slice(0, MATCHED)
