"""Classify step marks by name: rules as data, read from ``step_marks.toml``."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import polars as pl

from trace_analyzer import plugins
from trace_analyzer.catalog.checked import own
from trace_analyzer.catalog.patterns import check, matches, with_slashes
from trace_analyzer.tuning import dataclass

MARKS = ("span", "end", "start", "part")
"""What an event may mark; the file's header says what each means."""

LAYERS = "layers"
"""Source of annotations that name layers: parts of a pass."""

PROFILER_STEP_NAME = r"^ProfilerStep#?\*?([0-9]{1,9})$"
"""Matches annotations of ``torch.profiler``'s ``step()``; the group is the step's number."""

_MATCHED = 4_096


@dataclass(frozen=True)
class StepMarkRule:
    """Hold a pattern of names, the kinds of host events it is for, what they mark, and whose they are."""

    marks: str
    source: str
    kinds: tuple[str, ...]
    pattern: str
    examples: tuple[str, ...]
    counterexamples: tuple[str, ...]


@cache
def step_mark_rules() -> tuple[StepMarkRule, ...]:
    """Return the rules in the file's order, those of plug-ins first: the first that matches an event names it."""
    ours = own("step_marks.toml", parsed, check_rules)
    return (*plugins.added("step_marks.toml", _added_rules, key=lambda rule: f"{rule.marks}: {rule.pattern}"), *ours)


def _added_rules(document: Mapping[str, Any]) -> tuple[StepMarkRule, ...]:
    made = parsed(document)
    check_rules(made)
    return made


def check_rules(rules: Sequence[StepMarkRule]) -> None:
    """Refuse patterns that are none, and marks that do not exist. Raises ``ValueError``."""
    for rule in rules:
        check(rule.pattern)
        if rule.marks not in MARKS:
            raise ValueError(f"marks {rule.marks!r} is none of {', '.join(MARKS)}")


def parsed(document: Mapping[str, Any]) -> tuple[StepMarkRule, ...]:
    """Return the rules of a parsed file. Raises ``ValueError`` or ``KeyError`` for a row that lacks something."""
    return tuple(
        StepMarkRule(
            rule["marks"],
            rule["source"],
            tuple(rule["kinds"]),
            rule["pattern"],
            tuple(rule["examples"]),
            tuple(rule["counterexamples"]),
        )
        for rule in document["rules"]
    )


def step_marks(events: pl.DataFrame) -> pl.DataFrame:
    """Return unique (kind, name) of ``events`` that a rule knows: kind, name, marks, source."""
    names = events.select("kind", "name").unique(maintain_order=True)
    return names.hstack(with_slashes(names).select(marks_of_name().struct.unnest())).drop_nulls("marks")


@cache
def marks_of_name() -> pl.Expr:
    """Return expressions of the first rule that matches kind and name."""
    name = pl.col("name").str.slice(0, _MATCHED)
    return pl.coalesce(
        pl.when(pl.col("kind").is_in(list(rule.kinds)) & matches(name, rule.pattern)).then(
            pl.struct(pl.lit(rule.marks).alias("marks"), pl.lit(rule.source).alias("source"))
        )
        for rule in step_mark_rules()
    )
