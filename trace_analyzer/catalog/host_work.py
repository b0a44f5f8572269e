"""Classify host events by name, with rules from ``host_work.toml``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import polars as pl

from trace_analyzer import plugins
from trace_analyzer.catalog.checked import each, own
from trace_analyzer.catalog.patterns import check, matches, with_slashes
from trace_analyzer.tuning import remembered
from trace_analyzer.vocabulary import NAMED_WORK

CAPTURE = "graph-capture"
"""Work of a process between the begin and the end of a graph capture, regardless of its threads' events."""

BLOCKING = "blocking"
"""Work of calls that wait for the device; no cause of its own."""

HOST_WAIT = "host-wait"
"""Work of calls in which a thread waits, but not for the device; short ones are hand-overs
(`thresholds.HOST_WAIT_NS`)."""

GUARDS = "guards"
"""Dynamo's search for a version with valid guards before each call of compiled code; no cause of its own."""

LOOKUP = "lookup"
"""Calls that only look up values in the runtime and return at once: their duration is the recording's overhead."""

_OTHER_WORK = (CAPTURE, BLOCKING, HOST_WAIT, GUARDS, LOOKUP)
KINDS = ("annotation", "python", "operator", "other", "overhead", "runtime", "driver")
"""Kinds of host events."""
MATCHED = 4_096


@dataclass(frozen=True)
class HostWorkRule:
    """Hold a pattern of names, the kinds of host events for which it applies, and their work."""

    work: str
    kinds: tuple[str, ...]
    pattern: str
    examples: tuple[str, ...]
    counterexamples: tuple[str, ...] = ()


@cache
def host_work_rules() -> tuple[HostWorkRule, ...]:
    """Return the rules in order of precedence: those of plug-ins, then the file's; the first match counts."""
    ours = own("host_work.toml", parsed, check_rules)
    added = plugins.added("host_work.toml", _added_rules, key=lambda rule: f"{rule.work}: {rule.pattern}")
    return (*added, *ours)


def _added_rules(document: Mapping[str, Any]) -> tuple[HostWorkRule, ...]:
    made = parsed(document)
    check_rules(made)
    return made


def parsed(document: Mapping[str, Any]) -> tuple[HostWorkRule, ...]:
    """Return the rules of a parsed file. Raises ``ValueError`` or ``KeyError`` for an incomplete row."""
    return tuple(each(document["rules"], _rule, lambda row: f"work {row['work']}"))


def _rule(row: Mapping[str, Any]) -> HostWorkRule:
    cases = {key: tuple(row.get(key, ())) for key in ("kinds", "counterexamples")}
    return HostWorkRule(**{**row, **cases, "examples": tuple(row["examples"])})


def check_rules(rules: Sequence[HostWorkRule]) -> None:
    """Refuse invalid patterns, and unknown work and kinds of events. Raises ``ValueError``."""
    known = (*NAMED_WORK, *(work for work in _OTHER_WORK if work not in NAMED_WORK))
    for rule in rules:
        check(rule.pattern)
        if rule.work not in known:
            raise ValueError(
                f"work {rule.work!r} is none of {', '.join(known)}; a new cause is a part of vocabulary.py"
            )
        if not rule.kinds or not set(rule.kinds) <= set(KINDS):
            raise ValueError(f"work {rule.work}, {rule.pattern!r}: kinds are some of {', '.join(KINDS)}")


def host_work(events: pl.DataFrame) -> pl.DataFrame:
    """Return distinct (kind, name) of ``events`` with a matching rule: kind, name, work."""
    return _named_work(events.select("kind", "name").unique(maintain_order=True))


@remembered
def _named_work(names: pl.DataFrame) -> pl.DataFrame:
    return names.with_columns(with_slashes(names).select(work_of_name()).to_series().alias("work")).drop_nulls("work")


@cache
def work_of_name() -> pl.Expr:
    """Return the work of the first rule that matches kind and name; null without a match."""
    name = pl.col("name").str.slice(0, MATCHED)
    return pl.coalesce(
        pl.when(pl.col("kind").is_in(list(rule.kinds)) & matches(name, rule.pattern)).then(pl.lit(rule.work))
        for rule in host_work_rules()
    )
