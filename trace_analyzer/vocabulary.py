"""Define every regime, cause, window part, kernel group and kernel bucket once: key, label, sentence, cure, colour.

Keys are the words of the JSON report and of tables; labels are what people read in the terminal, in Markdown, on the page
and in the docs. Analyses, verdict, renderers, style sheet, JSON Schema and command line read these entries.
"""

import re
from collections.abc import Mapping
from typing import Any

from trace_analyzer import plugins
from trace_analyzer.terms import (
    CAUSES,
    REGIMES,
    Cause,
    Colour,
    Group,
    Part,
    Regime,
    RegimeKey,
    RunAheadKey,
    StatusKey,
    Term,
    by_key,
)


def limit_label(regime: str, cause: str | None) -> str:
    """Return the label of a window's limit: the regime's, unless the cause has its own (copies: Copy-bound)."""
    return (CAUSES[cause].limit if cause is not None and cause in CAUSES else "") or label(regime)


def limit_noun(regime: str, cause: str | None) -> str:
    """Return the name of the time that counts towards a limit: the cause's noun, else the regime's."""
    return (CAUSES[cause].noun if cause is not None and cause in CAUSES else "") or REGIMES[regime].noun


_OVERHEAD: RegimeKey = "overhead-bound"
_COMMUNICATION: RegimeKey = "communication-bound"
_LAUNCH = (_OVERHEAD, "launch")

_OWN_PARTS = by_key(
    Part(
        "compute",
        "Compute",
        "Kernels limited by the device's arithmetic.",
        "work",
        Colour("#0072b2", "#2d74b3"),
        ("compute-bound", None),
    ),
    Part(
        "memory",
        "Memory",
        "Kernels limited by memory bandwidth; device-to-device copies and memsets too.",
        "work",
        Colour("#56b4e9"),
        ("memory-bandwidth-bound", None),
    ),
    Part(
        "latency",
        "Small kernels",
        "Kernels too short or too small to fill the device.",
        "work",
        Colour("#e69f00"),
        (_OVERHEAD, "small-kernels"),
    ),
    Part("other", "Other kernels", "Kernels whose limit is not known.", "work", Colour("#a7cad7", "#a9c1bd"), None),
    Part(
        "communication",
        "Communication",
        "Collectives and other traffic between devices that nothing else hides.",
        "work",
        Colour("#9e4b7d", "#9e4c83"),
        (_COMMUNICATION, "collectives"),
    ),
    Part(
        "copy",
        "Copies",
        "Copies between host and device, or between devices, that nothing else hides.",
        "work",
        Colour("#75925a", "#86aa82"),
        (_COMMUNICATION, "copies"),
    ),
    Part(
        "synchronization",
        "Synchronization",
        "The CPU waited for the device before it launched more work.",
        "wait",
        Colour("#761a33", "#c03c5c"),
        (_OVERHEAD, "synchronization"),
    ),
    Part(
        "data-loading",
        "Data loading",
        "The launching thread waited for input data.",
        "named",
        Colour("#99234d", "#bf5f83"),
        (_OVERHEAD, "data-loading"),
    ),
    Part(
        "compilation",
        "Compilation",
        "Code was being compiled or loaded: Dynamo, Inductor, Triton, lazy loading.",
        "named",
        Colour("#5c2751", "#8d4f80"),
        (_OVERHEAD, "compilation"),
    ),
    Part(
        "graph-capture",
        "Graph capture",
        "Launches were captured into a graph: the device is idle by design, once per graph.",
        "named",
        Colour("#74407e"),
        (_OVERHEAD, "graph-capture"),
    ),
    Part(
        "allocation",
        "Allocation",
        "Device memory was being allocated or freed.",
        "named",
        Colour("#b8527a"),
        (_OVERHEAD, "allocation"),
    ),
    Part(
        "garbage-collection",
        "Garbage collection",
        "Python's garbage collector ran.",
        "named",
        Colour("#8f3c00"),
        (_OVERHEAD, "garbage-collection"),
    ),
    Part(
        "blocking-copy",
        "Blocking copy",
        "A copy call blocked the CPU until the copy was done.",
        "named",
        Colour("#c97d9b"),
        (_OVERHEAD, "blocking-copy"),
    ),
    Part(
        "profiler",
        "Profiler",
        "The profiler itself used the CPU: a run without it does not have this time.",
        "named",
        Colour("#c9a58c"),
        _LAUNCH,
    ),
    Part(
        "host-wait",
        "Host waits",
        "The launching thread waited for another thread or process, the network or a timer.",
        "named",
        Colour("#6b5b2e", "#8f7d45"),
        (_OVERHEAD, "host-wait"),
    ),
    Part("python", "Python", "The launching thread was in Python code.", "innermost", Colour("#d55e00"), _LAUNCH),
    Part(
        "dispatch",
        "Dispatch",
        "The launching thread was inside PyTorch's operators, on the way to a launch.",
        "innermost",
        Colour("#e47719", "#da7c4c"),
        _LAUNCH,
    ),
    Part(
        "cpu-operator",
        "Work on the CPU",
        "An operator kept the CPU busy for over 1 ms without a runtime call: it computed on the CPU, or prepared its launch.",
        "innermost",
        Colour("#8a5a44"),
        (_OVERHEAD, "cpu-operator"),
    ),
    Part(
        "runtime-call",
        "Runtime calls",
        "The launching thread was in a driver or runtime call.",
        "innermost",
        Colour("#ea9a66"),
        _LAUNCH,
    ),
    Part(
        "launch-latency",
        "Launch latency",
        "A launch was under way: the call itself, and the time until its kernel starts.",
        "launch",
        Colour("#d8c1a0", "#f7bf94"),
        _LAUNCH,
    ),
    Part(
        "host-unknown",
        "Host, unrecorded",
        "The host recorded nothing: often plain Python without stacks.",
        "launch",
        Colour("#ab491a", "#a54100"),
        _LAUNCH,
    ),
    Part(
        "device-gap",
        "Between kernels",
        "The next kernel was already queued: the device's own gap between kernels.",
        "device",
        Colour("#f0ba43", "#cdc260"),
        (_OVERHEAD, "small-kernels"),
    ),
    Part(
        "device-wait",
        "Device waits",
        "Queued work waited for communication or for an event of another stream.",
        "device",
        Colour("#c379a9", "#cf80ae"),
        (_COMMUNICATION, "dependency"),
    ),
    Part(
        "earlier-work",
        "Earlier work",
        "The device ran work launched before the recording began, which the trace does not contain.",
        "unseen",
        Colour("#7f8b73"),
        None,
    ),
    Part(
        "unexplained",
        "Unexplained",
        "Work was queued, but nothing recorded explains why it did not start.",
        "device",
        Colour("#8b939d"),
        None,
    ),
    Part(
        "unlinked",
        "No launch known",
        "The next activity has no known launch, so its delay has no known cause.",
        "unknown",
        Colour("#9aa2ac"),
        None,
    ),
    Part("untraced", "Not recorded", "The recording was paused.", "unknown", Colour("#b3bac2"), None),
    Part(
        "withheld",
        "Withheld",
        "A check that the causes of idle time depend on fails.",
        "unknown",
        Colour("#b3bac2"),
        None,
    ),
)


def _added_parts(document: Mapping[str, Any]) -> list[tuple[Part, str]]:
    """Return the causes of idle time in a plug-in's ``causes.toml``, each with the part that it precedes."""
    return [_added_part(**row) for row in document["cause"]]


def _added_part(*, key: str, label: str, definition: str, colour: str, **more: str) -> tuple[Part, str]:
    dark, cure, before = (
        more.pop(name, default) for name, default in (("dark", ""), ("cure", "launch"), ("before", ""))
    )
    if more:
        raise ValueError(f"cause {key}: {min(more)} is unknown")
    if not re.fullmatch("[a-z][a-z0-9-]*", key):
        raise ValueError(f"cause {key!r}: a key has small letters, digits and hyphens")
    if not all(re.fullmatch("#[0-9a-f]{6}", shade) for shade in (colour, dark or colour)):
        raise ValueError(f"cause {key}: colours are written #rrggbb, in small letters")
    if cure not in CAUSES:
        raise ValueError(f"cause {key}: cure {cure!r} is none of {', '.join(CAUSES)}")
    named = [part.key for part in _OWN_PARTS.values() if part.role == "named"]
    if before and before not in named:
        raise ValueError(f"cause {key}: before {before!r} is none of {', '.join(named)}")
    part = Part(key, label, definition, "named", Colour(colour, dark), (CAUSES[cure].regime, cure))
    return part, before or named[0]


def _parts() -> Mapping[str, Part]:
    """Return this package's parts, with each plug-in's part before the part that it names."""
    added = plugins.added("causes.toml", _added_parts, key=lambda made: made[0].key, taken=_OWN_PARTS)
    return by_key(
        *(part for own in _OWN_PARTS.values() for part in (*(new for new, before in added if before == own.key), own))
    )


PARTS = _parts()
"""Parts of a window in the order of the report, which is also their precedence: where activities or host events
overlap, an instant counts for the first."""

GROUPS: Mapping[str, Group] = by_key(
    Group(
        "matmul",
        "Matmul, conv, attention",
        "Matmuls, convolutions and attention: the kernels that can use tensor cores.",
        Colour("#0072b2", "#2d74b3"),
    ),
    Group(
        "normalization",
        "Normalization, reduction",
        "Normalization, softmax and reduction kernels.",
        Colour("#019ea3", "#229ba8"),
    ),
    Group(
        "pointwise",
        "Pointwise",
        "Elementwise kernels, casts, fills, dropout, optimizer updates.",
        Colour("#56b4e9"),
    ),
    Group("communication", "Communication", "Collectives and point-to-point transfers.", Colour("#9e4b7d", "#9e4c83")),
    Group(
        "other",
        "Other kernels",
        "Embedding, gather, sort, cache and unrecognised kernels.",
        Colour("#a7cad7", "#a9c1bd"),
    ),
)
"""Groups of kernel buckets, in the article's order."""

ACTIVITIES: Mapping[str, Group] = by_key(
    Group("memcpy", "Copy", "Memory copies.", Colour("#75925a", "#86aa82")),
    Group("memset", "Memset", "Memory fills.", Colour("#ccbe7d", "#d1ba5f")),
)
"""Activities other than kernels."""

STATUSES: Mapping[str, Term] = by_key(
    Term("ok", "Judged", "The trace holds what a verdict needs."),
    Term("no-gpu-activity", "No GPU work", "Nothing ran on a GPU while this trace was recorded."),
    Term("gpu-timeline-missing", "GPU timeline missing", "Work was launched, but the trace holds no GPU activity."),
    Term(
        "unsupported-accelerator",
        "Unsupported accelerator",
        "The accelerator's events are of a kind this program cannot read.",
    ),
    Term("insufficient", "Not enough to judge", "Too little of the trace can be judged for a verdict."),
)
"""Whether a trace can be judged."""

RUN_AHEAD_STATES: Mapping[str, Term] = by_key(
    Term("ahead", "Ahead", "The CPU launches well before the device starts the work: its overhead is hidden."),
    Term("keeping-up", "Keeping up", "The CPU launches in time, with little to spare."),
    Term("behind", "Behind", "The queue is empty most of the time: the device waits for launches."),
)
"""Whether the CPU runs ahead of a device."""

WORK = tuple(part.key for part in PARTS.values() if part.is_work)
"""Keys of the parts in which the device works."""

IDLE_CAUSES = tuple(part.key for part in PARTS.values() if not part.is_work)
"""Keys of the causes of idle time."""

NAMED_WORK = tuple(part.key for part in PARTS.values() if part.role == "named")
"""Keys of causes that named host work determines, whatever the innermost event is."""

INNERMOST_WORK = tuple(part.key for part in PARTS.values() if part.role == "innermost")
"""Keys of causes that the host's innermost event determines."""

HOST_CAUSES = tuple(part.key for part in PARTS.values() if part.role in ("wait", "named", "innermost", "launch"))
"""Keys of causes on the host."""

DEVICE_CAUSES = tuple(part.key for part in PARTS.values() if part.role == "device")
"""Keys of causes on the device."""

WITHHELD = "withheld"
"""Key of idle time on a device whose trace does not support causes."""

EARLIER_WORK = "earlier-work"
"""Key of idle time in which the device did work that was launched before the recording."""

UNKNOWN_PARTS = tuple(
    part.key for part in PARTS.values() if not part.is_work and part.cure is None and part.key != EARLIER_WORK
)
"""Keys of idle time without a known cause; the page hatches them."""


def part_term(key: str) -> Term:
    """Return the term of a part; an unknown key is its own label."""
    return PARTS.get(key) or Term(key, label(key), "")


def label(key: str | None) -> str:
    """Return the label of a part, a cause, a regime or a group; an unknown key is written as words, None as a dash."""
    term = _term(key)
    return term.label if term else "–" if not key else key[:1].upper() + key[1:].replace("-", " ")


_CHECKS = {
    "unlinked_before": "launched before the recording",
    "untraced": "idle outside the recording",
    "few_long_activities": "in the five longest activities",
    "graph_share": "launched by graphs",
}
"""Labels of checks whose names are too short for people."""


def check_label(name: str) -> str:
    """Return a check's label within a sentence; programs use its name."""
    return _CHECKS.get(name, name.replace("_", " "))


def phrase(key: str) -> str:
    """Return the label as written within a sentence."""
    term = _term(key)
    return term.phrase if term else key.replace("-", " ")


def _term(key: str | None) -> Term | None:
    kinds: tuple[Mapping[str, Term], ...] = (PARTS, CAUSES, REGIMES, GROUPS, ACTIVITIES, RUN_AHEAD_STATES)
    return next((terms[key] for terms in kinds if key is not None and key in terms), None)


__all__ = [
    "ACTIVITIES", "CAUSES", "DEVICE_CAUSES", "EARLIER_WORK", "GROUPS", "HOST_CAUSES", "IDLE_CAUSES", "INNERMOST_WORK", "NAMED_WORK",
    "PARTS", "REGIMES", "RUN_AHEAD_STATES", "STATUSES", "UNKNOWN_PARTS", "WITHHELD", "WORK", "Cause", "Colour", "Group", "Part",
    "Regime", "RegimeKey", "RunAheadKey", "StatusKey", "Term", "by_key", "label", "limit_label", "limit_noun", "part_term", "phrase",
]  # fmt: skip
