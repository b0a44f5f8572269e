"""Read common names of operator chains from ``fusions.toml``."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from trace_analyzer.catalog.documents import document

COMPILE = "torch.compile(f)  # fuses the chain into one kernel"


@dataclass(frozen=True)
class Fusion:
    """Hold a named chain: the pattern of its operators, its description, and replacement code."""

    id: str
    operators: str
    what: str
    code: str
    examples: tuple[str, ...]
    counterexamples: tuple[str, ...]


@cache
def fusions() -> tuple[Fusion, ...]:
    """Return all rules, in order of precedence."""
    rows = document("fusions.toml")["fusion"]
    return tuple(_fusion(**row) for row in rows)


def named_fusion(operators: str) -> Fusion | None:
    """Return the first rule that matches a chain of operators, ``>add>gelu>``."""
    return next((rule for rule in fusions() if re.search(rule.operators, operators)), None)


def _fusion(*, examples: Sequence[str], counterexamples: Sequence[str], **texts: str) -> Fusion:
    return Fusion(examples=tuple(examples), counterexamples=tuple(counterexamples), **texts)
