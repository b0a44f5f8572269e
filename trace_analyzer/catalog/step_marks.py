"""Classify step marks by name, with rules from ``step_marks.toml``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import polars as pl

from trace_analyzer import plugins
from trace_analyzer.catalog.checked import own
from trace_analyzer.catalog.patterns import check, matches, with_slashes

MARKS = ("span", "end", "start", "part")
"""What an event may mark, as defined in the file's header."""

PROFILER_STEP_NAME = r"^ProfilerStep#?\*?([0-9]{1,9})$"
"""Pattern of annotations from ``torch.profiler``'s ``step()``; the group is the step's number."""

_MATCHED = 4_096


@dataclass(frozen=True)
class StepMarkRule:
    """Hold a pattern of names, the kinds of host events for which it applies, what they mark, and their source."""

    marks: str
    source: str
    kinds: tuple[str, ...]
    pattern: str
    examples: tuple[str, ...]
    counterexamples: tuple[str, ...]


@cache
def step_mark_rules() -> tuple[StepMarkRule, ...]:
    """Return the rules in order of precedence: those of plug-ins, then the file's; the first match counts."""
    ours = own("step_marks.toml", parsed, check_rules)
    return (*plugins.added("step_marks.toml", _added_rules, key=lambda rule: f"{rule.marks}: {rule.pattern}"), *ours)


def _added_rules(document: Mapping[str, Any]) -> tuple[StepMarkRule, ...]:
    made = parsed(document)
    check_rules(made)
    return made


def check_rules(rules: Sequence[StepMarkRule]) -> None:
    """Refuse invalid patterns, and unknown marks. Raises ``ValueError``."""
    for rule in rules:
        check(rule.pattern)
        if rule.marks not in MARKS:
            raise ValueError(f"marks {rule.marks!r} is none of {', '.join(MARKS)}")


def parsed(document: Mapping[str, Any]) -> tuple[StepMarkRule, ...]:
    """Return the rules of a parsed file. Raises ``ValueError`` or ``KeyError`` for an incomplete row."""
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
    """Return distinct (kind, name) of ``events`` with a matching rule: kind, name, marks, source."""
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
