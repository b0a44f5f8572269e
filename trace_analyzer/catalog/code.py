"""Classify code by name: phases, library frames, sources of blocking calls. Rules from ``code.toml``."""

import re
from functools import cache

import polars as pl

from trace_analyzer.catalog.documents import document
from trace_analyzer.catalog.host_work import MATCHED
from trace_analyzer.catalog.patterns import matches, with_slashes
from trace_analyzer.tuning import dataclass, remembered

DATA_LOADING = "data-loading"
PHASES = (DATA_LOADING, "optimizer", "backward", "forward")
"""Phases of a step; where several are in progress, the first of these decides. `host_work` names the first."""
NO_OPERATOR = r"^[^:<(]*[#\[\]/=@!|?][^:<]*$"
"""What PyTorch before 1.11 wrote as operators, too. Names that no operator has, such as `[pl][profile]run_training_batch` or `epoch=3/step`: scopes of `record_function`."""
SCOPE = rf"{NO_OPERATOR}|^[^:<(]*[\s.-][^:<]*$"
"""The same in files that hold no user annotations, where blanks, dots and hyphens tell scopes too: `train step`, `epoch-3`, `model.forward`."""
PLAIN_SCOPE = r"^[a-z]\w*[a-z0-9]$"
"""Names that scopes and scripted functions have, such as `train_step`; operators have a namespace, autograd's nodes and functions a class's name."""
_ANNOTATIONS = rf"^(ProfilerStep|Optimizer\.(step|zero_grad)#|enumerate\(DataLoader\)#|## )|{NO_OPERATOR}"


@dataclass(frozen=True)
class CodeRule:
    """Hold a pattern of names, the kinds of host events it is for (none: Python frames), and what it names."""

    pattern: str
    examples: tuple[str, ...]
    counterexamples: tuple[str, ...]
    name: str = ""
    kinds: tuple[str, ...] = ("python",)


@dataclass(frozen=True)
class CodeRules:
    """Hold the rules of ``code.toml`` in the file's order: the first that matches an event names it."""

    phases: tuple[CodeRule, ...]
    libraries: tuple[CodeRule, ...]
    sources: tuple[CodeRule, ...]


@cache
def code_rules() -> CodeRules:
    """Return the rules, read once."""
    raw = document("code.toml")
    return CodeRules(
        **{part: tuple(_rule(entry) for entry in raw[part]) for part in ("phases", "libraries", "sources")}
    )


def _rule(entry: dict[str, object]) -> CodeRule:
    lists = {key: tuple(value) for key, value in entry.items() if isinstance(value, list)}
    return CodeRule(**entry | lists)  # type: ignore[arg-type]


FRAME = re.compile(r"(?P<file>.+)\((?P<line>\d{1,9})\): (?P<function>[^/(]+)", re.DOTALL)
"""A Python frame as Kineto names it. No function's name has a parenthesis: so each is tried in constant time."""


def in_function(frame: str, call_line: int | None = None) -> str:
    """Format a Python frame for people: ``in step (train.py:12)``, with the line where the function begins."""
    match = FRAME.fullmatch(frame)
    if match is None:
        return f"in {frame}"
    call = "" if call_line is None else f", call in line {call_line}"
    return f"in {match['function']} ({match['file']}:{match['line']}{call})"


def is_annotation() -> pl.Expr:
    """Return whether an event only marks what others do; needs kind and name."""
    return (pl.col("kind") == "annotation") | (
        (pl.col("kind") == "operator") & pl.col("name").str.contains(_ANNOTATIONS)
    )


def named_code(events: pl.DataFrame) -> pl.DataFrame:
    """Return unique (kind, name) of ``events`` with phase, source (null where none) and library."""
    return _named_code(events.select("kind", "name").unique(maintain_order=True))


@remembered
def _named_code(names: pl.DataFrame) -> pl.DataFrame:
    return names.hstack(with_slashes(names).select(code_of_name()))


@cache
def code_of_name() -> tuple[pl.Expr, ...]:
    """Return expressions of the rules over kind and name."""
    rules = code_rules()
    return (
        pl.coalesce(_matches(rules.phases)).alias("phase"),
        pl.coalesce(_matches(rules.sources)).alias("source"),
        pl.any_horizontal(matches(_name(), rule.pattern) for rule in rules.libraries).alias("library"),
    )


def _matches(rules: tuple[CodeRule, ...]) -> list[pl.Expr]:
    return [
        pl.when(pl.col("kind").is_in(list(rule.kinds)) & matches(_name(), rule.pattern)).then(pl.lit(rule.name))
        for rule in rules
    ]


def _name() -> pl.Expr:
    return pl.col("name").str.slice(0, MATCHED)
