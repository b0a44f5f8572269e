"""Classify host events by name: rules as data, read from ``host_work.toml``."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import polars as pl

from trace_analyzer import plugins
from trace_analyzer.catalog.checked import each, own
from trace_analyzer.catalog.patterns import check, matches, with_slashes
from trace_analyzer.tuning import dataclass, remembered
from trace_analyzer.vocabulary import NAMED_WORK

CAPTURE = "graph-capture"
"""Named work of a process between the begin and the end of a graph's capture, whatever its threads do then."""

BLOCKING = "blocking"
"""Work of calls that wait for the device: no cause by itself."""

HOST_WAIT = "host-wait"
"""Named work of calls in which a thread waits, but for the device; short ones only hand over (`thresholds.HOST_WAIT_NS`)."""

GUARDS = "guards"
"""Work of Dynamo before each call of compiled code: it looks for a version whose guards hold. No cause by itself."""

LOOKUP = "lookup"
"""Calls that only look up what the runtime knows, and return at once: what they take is what recording them takes."""

_OTHER_WORK = (CAPTURE, BLOCKING, HOST_WAIT, GUARDS, LOOKUP)
KINDS = ("annotation", "python", "operator", "other", "overhead", "runtime", "driver")
"""Kinds of host events."""
MATCHED = 4_096


@dataclass(frozen=True)
class HostWorkRule:
    """Hold a pattern of names, the kinds of host events it is for, and the work it stands for."""

    work: str
    kinds: tuple[str, ...]
    pattern: str
    examples: tuple[str, ...]
    counterexamples: tuple[str, ...] = ()


@cache
def host_work_rules() -> tuple[HostWorkRule, ...]:
    """Return the rules in the file's order, those of plug-ins first: the first that matches an event names it."""
    ours = own("host_work.toml", parsed, check_rules)
    added = plugins.added("host_work.toml", _added_rules, key=lambda rule: f"{rule.work}: {rule.pattern}")
    return (*added, *ours)


def _added_rules(document: Mapping[str, Any]) -> tuple[HostWorkRule, ...]:
    made = parsed(document)
    check_rules(made)
    return made


def parsed(document: Mapping[str, Any]) -> tuple[HostWorkRule, ...]:
    """Return the rules of a parsed file. Raises ``ValueError`` or ``KeyError`` for a row that lacks something."""
    return tuple(each(document["rules"], _rule, lambda row: f"work {row['work']}"))


def _rule(row: Mapping[str, Any]) -> HostWorkRule:
    cases = {key: tuple(row.get(key, ())) for key in ("kinds", "counterexamples")}
    return HostWorkRule(**{**row, **cases, "examples": tuple(row["examples"])})


def check_rules(rules: Sequence[HostWorkRule]) -> None:
    """Refuse patterns that are none, and work and kinds of events that do not exist. Raises ``ValueError``."""
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
    """Return unique (kind, name) of ``events`` that a rule names: kind, name, work."""
    return _named_work(events.select("kind", "name").unique(maintain_order=True))


@remembered
def _named_work(names: pl.DataFrame) -> pl.DataFrame:
    return names.with_columns(with_slashes(names).select(work_of_name()).to_series().alias("work")).drop_nulls("work")


@cache
def work_of_name() -> pl.Expr:
    """Return the work of the first rule that matches kind and name, null for none."""
    name = pl.col("name").str.slice(0, MATCHED)
    return pl.coalesce(
        pl.when(pl.col("kind").is_in(list(rule.kinds)) & matches(name, rule.pattern)).then(pl.lit(rule.work))
        for rule in host_work_rules()
    )
