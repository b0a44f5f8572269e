"""Define every regime, cause, window part, kernel group and kernel bucket once: key, label, sentence, cure, colour.

Keys are the words of the JSON report and of tables; labels are what people read in the terminal, in Markdown, on the page
and in the docs. Analyses, replay, verdict, comparison, renderers, JSON Schema and command line read these entries.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from msgspec import Struct

from trace_analyzer import plugins
from trace_analyzer.units import percent

RegimeKey = Literal["overhead-bound", "memory-bandwidth-bound", "compute-bound", "communication-bound"]
StatusKey = Literal[
    "ok", "cpu-run", "no-gpu-activity", "gpu-timeline-missing", "unsupported-accelerator", "insufficient"
]
RunAheadKey = Literal["ahead", "keeping-up", "behind"]
Replay = Literal["", "work", "wait"]
"""How a replay treats time of this part on a host thread: as ``work`` of its own, which changes can shorten and within
which all nested events count; as a ``wait`` for others, which no faster CPU shortens; or, empty, as part of the events
and calls that it consists of.
"""
Per = Literal["step", "sample", "once"]
"""What the time grows with: the number of steps, the samples of a step, or neither as the work occurs once."""
Role = Literal["work", "wait", "named", "innermost", "launch", "device", "unseen", "unknown"]
"""What the time of a part means:

``work``: the device worked. Otherwise it idled: the host waited for it (``wait``), did named work (``named``), was in
its innermost event (``innermost``) or launched (``launch``); the reason is the device (``device``); it did unrecorded
work (``unseen``); or the reason is ``unknown``.
"""


class Term(Struct, frozen=True):
    """A key with its label and its meaning in one sentence."""

    key: str
    label: str
    definition: str

    @property
    def phrase(self) -> str:
        """Return the label as written within a sentence: in lower case, except for names and acronyms."""
        first, _, _ = self.label.partition(" ")
        return self.label if first in _NAMES or first[1:2].isupper() else self.label[:1].lower() + self.label[1:]


class Colour(Struct, frozen=True):
    """``#rrggbb`` for a light and a dark page; an empty ``dark`` means the same for both."""

    light: str
    dark: str = ""


class Regime(Term, frozen=True):
    """A limit of a window; ``noun`` names the time that counts towards it, ``part`` the part with its colour.

    ``clause`` is the headline's clause where the regime has no cause.
    """

    key: RegimeKey
    noun: str
    part: str
    clause: str = ""


class Cause(Term, frozen=True):
    """A cause of a regime; ``definition`` is the headline's clause.

    ``limit`` replaces the regime's label where that would mislead; ``noun`` names the time of this cause where a regime
    is called by its causes.
    """

    regime: RegimeKey
    limit: str = ""
    noun: str = ""


class Part(Term, frozen=True):
    """A part of a window: work of the device, or a cause of its idle time, with all that other modules need of it.

    ``cure`` is the regime and its cause that the time counts towards; None where it counts towards no regime. Recording
    lengthens ``slowed`` causes. ``fixes`` are the ids of advice that shortens this part.
    """

    role: Role
    colour: Colour
    cure: tuple[RegimeKey, str | None] | None
    replay: Replay = ""
    slowed: bool = False
    per: Per = "step"
    fixes: tuple[str, ...] = ()

    @property
    def is_work(self) -> bool:
        """Return whether the device works in this part; every other part is a cause of idle time."""
        return self.role == "work"


class Group(Term, frozen=True):
    """A group of kernel buckets, as in the article's table, or another class of activities or events."""

    colour: Colour


_NAMES = ("Python",)
_T = TypeVar("_T", bound=Term)


def by_key(*terms: _T) -> Mapping[str, _T]:
    """Map the key of each term to the term, in order."""
    return {term.key: term for term in terms}


def part(
    key: str, label: str, definition: str, role: Role, light: str, dark: str = "", *, cure: str = "", **more: Any
) -> Part:
    """Return a part; ``cure`` is a cause, or a regime where it has none.

    A cause that is a thread's own work is work of its own in the replay, and recording lengthens it, unless ``more``
    tells otherwise.
    """
    regime = CAUSES[cure].regime if cure in CAUSES else REGIMES[cure].key if cure else None
    if role in ("named", "innermost"):
        more = {"replay": "work", "slowed": True, **more}
    return Part(
        key, label, definition, role, Colour(light, dark), regime and (regime, cure if cure in CAUSES else None), **more
    )


REGIMES: Mapping[str, Regime] = by_key(
    Regime("overhead-bound", "Overhead-bound", "The device waits for the CPU, or for work too small to fill it.", "overhead", "python"),
    Regime("memory-bandwidth-bound", "Memory-bandwidth-bound", "Most time goes to moving data to and from device memory.", "memory-bound kernels", "memory", "kernels spend their time moving data, not computing"),
    Regime("compute-bound", "Compute-bound", "Most time goes to arithmetic on the device.", "compute-bound kernels", "compute", "the GPU spends its time in matmuls, convolutions and attention"),
    Regime("communication-bound", "Communication-bound", "The device waits for other devices, or for copies.", "communication", "communication"),
)  # fmt: skip
"""Limits of a window."""

RESOURCES: Mapping[str, str] = {
    "host": "host time", "compute": "compute-bound kernels", "memory-bandwidth": "memory-bound kernels",
    "communication": "communication", "copies": "copies", "small-kernels": "small kernels", "data-loading": "data loading",
    "python": "Python", "dispatch": "operators and calls of the runtime", "host-unknown": "unrecorded host time", "waits": "waits for the device",
}  # fmt: skip
"""What could take no time (levers), in words."""

CAUSES: Mapping[str, Cause] = by_key(
    Cause("launch", "Launch", "the CPU cannot launch work fast enough", "overhead-bound"),
    Cause("python", "Python", "the GPU waits for the CPU, which runs Python", "overhead-bound"),
    Cause("host-unknown", "Unrecorded host time", "the GPU waits for the CPU, of which nothing was recorded", "overhead-bound"),
    Cause("data-loading", "Data loading", "the GPU waits for input data", "overhead-bound"),
    Cause("synchronization", "Synchronization", "the CPU waits for the GPU, then the GPU waits for the CPU", "overhead-bound"),
    Cause("blocking-copy", "Blocking copy", "copies block the CPU while the GPU waits", "overhead-bound"),
    Cause("allocation", "Allocation", "allocator calls block the CPU while the GPU waits", "overhead-bound"),
    Cause("compilation", "Compilation", "code is compiled or loaded while the GPU waits", "overhead-bound"),
    Cause("graph-capture", "Graph capture", "graphs are captured while the GPU waits", "overhead-bound"),
    Cause("garbage-collection", "Garbage collection", "Python's garbage collector runs while the GPU waits", "overhead-bound"),
    Cause("cpu-operator", "Work on the CPU", "long CPU work of operators keeps the GPU waiting", "overhead-bound"),
    Cause("host-wait", "Host waits", "the CPU waits for another thread or process, the network or a timer", "overhead-bound"),
    Cause("cold-start", "Cold start", "most waiting comes before kernels are first used", "overhead-bound"),
    Cause("small-kernels", "Small kernels", "the kernels are too small to fill the GPU", "overhead-bound"),
    Cause("collectives", "Collectives", "collectives run while nothing else does", "communication-bound", noun="communication"),
    Cause("copies", "Copies", "copies between host and device, or between devices, run while nothing else does", "communication-bound", limit="Copy-bound", noun="copies"),
    Cause("dependency", "Device waits", "queued work waits for other streams or peers, not for the CPU", "communication-bound", noun="device waits"),
)  # fmt: skip
"""Causes of the regimes."""

FEWER_LAUNCHES = ("cuda-graphs", "set-to-none")
"""Advice that saves launches: it shortens all that a launch consists of."""

_OWN_PARTS = by_key(
    part("compute", "Compute", "Kernels limited by the device's arithmetic.", "work", "#0072b2", "#2d74b3", cure="compute-bound"),
    part("memory", "Memory", "Kernels limited by memory bandwidth; device-to-device copies and memsets too.", "work", "#56b4e9", cure="memory-bandwidth-bound"),
    part("latency", "Small kernels", "Kernels too short or too small to fill the device.", "work", "#e69f00", cure="small-kernels"),
    part("other", "Other kernels", "Kernels whose limit is not known.", "work", "#a7cad7", "#a9c1bd"),
    part("communication", "Communication", "Collectives and other traffic between devices that nothing else hides.", "work", "#9e4b7d", "#9e4c83", cure="collectives"),
    part("copy", "Copies", "Copies between host and device, or between devices, that nothing else hides.", "work", "#75925a", "#86aa82", cure="copies", per="sample"),
    part("synchronization", "Synchronization", "The CPU waited for the device before it launched more work.", "wait", "#761a33", "#c03c5c", cure="synchronization", fixes=("synchronization",)),
    part("data-loading", "Data loading", "The launching thread waited for input data.", "named", "#99234d", "#bf5f83", cure="data-loading", slowed=False, per="sample", fixes=("data-loading",)),
    part("compilation", "Compilation", "Code was being compiled or loaded: Dynamo, Inductor, Triton, lazy loading.", "named", "#5c2751", "#8d4f80", cure="compilation", per="once", fixes=("recompilation", "lazy-loading")),
    part("graph-capture", "Graph capture", "Launches were captured into a graph: the device is idle by design, once per graph.", "named", "#74407e", cure="graph-capture", replay="", per="once"),
    part("allocation", "Allocation", "Device memory was being allocated or freed.", "named", "#b8527a", cure="allocation", slowed=False, per="once", fixes=("allocator",)),
    part("garbage-collection", "Garbage collection", "Python's garbage collector ran.", "named", "#8f3c00", cure="garbage-collection", fixes=("garbage-collection",)),
    part("blocking-copy", "Blocking copy", "A copy call blocked the CPU until the copy was done.", "named", "#c97d9b", cure="blocking-copy", replay="", slowed=False, fixes=("pinned-memory",)),
    part("profiler", "Profiler", "The profiler itself used the CPU: a run without it does not have this time.", "named", "#c9a58c", cure="launch", replay="", slowed=False),
    part("host-wait", "Host waits", "The launching thread waited for another thread or process, the network or a timer.", "named", "#6b5b2e", "#8f7d45", cure="host-wait", replay="wait", slowed=False, per="sample", fixes=("host-wait",)),
    part("python", "Python", "The launching thread was in Python code.", "innermost", "#d55e00", cure="launch", fixes=FEWER_LAUNCHES),
    part("dispatch", "Dispatch", "The launching thread was inside PyTorch's operators, on the way to a launch.", "innermost", "#e47719", "#da7c4c", cure="launch", fixes=FEWER_LAUNCHES),
    part("cpu-operator", "Work on the CPU", "An operator kept the CPU busy for over 1 ms without a runtime call: it computed on the CPU, or prepared its launch.", "innermost", "#8a5a44", cure="cpu-operator", per="sample", fixes=("cpu-operators",)),
    part("runtime-call", "Runtime calls", "The launching thread was in a driver or runtime call.", "innermost", "#ea9a66", cure="launch", fixes=FEWER_LAUNCHES),
    part("launch-latency", "Launch latency", "A launch was under way: the call itself, and the time until its kernel starts.", "launch", "#d8c1a0", "#f7bf94", cure="launch", fixes=FEWER_LAUNCHES),
    part("host-unknown", "Unrecorded host time", "The host recorded nothing: often plain Python without stacks.", "launch", "#ab491a", "#a54100", cure="launch", replay="work", slowed=True, fixes=FEWER_LAUNCHES),
    part("device-gap", "Between kernels", "The next kernel was already queued: the device's own gap between kernels.", "device", "#f0ba43", "#cdc260", cure="small-kernels"),
    part("device-wait", "Device waits", "Queued work waited for communication or for an event of another stream.", "device", "#c379a9", "#cf80ae", cure="dependency", fixes=("dependencies",)),
    part("earlier-work", "Earlier work", "The device ran work launched before the recording began, which the trace does not contain.", "unseen", "#7f8b73", per="once"),
    part("time-slice", "Time slices", "Queued work waited for equal turns: another program seems to use the device too.", "unseen", "#6d7f9b"),
    part("unrecorded-work", "Unrecorded work", "The CPU waited for device work that the trace does not contain.", "unseen", "#5f7d73"),
    part("unexplained", "Unexplained", "Work was queued, but nothing recorded explains why it did not start.", "device", "#8b939d"),
    part("unlinked", "No launch known", "The next activity has no known launch, so its delay has no known cause.", "unknown", "#9aa2ac"),
    part("untraced", "Not recorded", "The recording was paused.", "unknown", "#b3bac2"),
    part("withheld", "Withheld", "A check that the causes of idle time depend on fails.", "unknown", "#b3bac2"),
)  # fmt: skip


GROUPS: Mapping[str, Group] = by_key(
    Group("matmul", "Matmul, conv, attention", "Matmuls, convolutions and attention: the kernels that can use tensor cores.", Colour("#0072b2", "#2d74b3")),
    Group("normalization", "Normalization, reduction", "Normalization, softmax and reduction kernels.", Colour("#019ea3", "#229ba8")),
    Group("pointwise", "Pointwise", "Elementwise kernels, casts, fills, dropout, optimizer updates.", Colour("#56b4e9")),
    Group("communication", "Communication", "Collectives and point-to-point transfers.", Colour("#9e4b7d", "#9e4c83")),
    Group("other", "Other kernels", "Embedding, gather, sort, cache and unrecognised kernels.", Colour("#a7cad7", "#a9c1bd")),
)  # fmt: skip
"""Groups of kernel buckets, in the article's order."""

ACTIVITIES: Mapping[str, Group] = by_key(
    Group("memcpy", "Copy", "Memory copies.", Colour("#75925a", "#86aa82")),
    Group("memset", "Memset", "Memory fills.", Colour("#ccbe7d", "#d1ba5f")),
)  # fmt: skip
"""Activities other than kernels."""

CPU_OPERATORS: Mapping[str, Group] = by_key(
    Group("stalled-operators", "Stalled operators", "Operators of a run on the CPU that wait for their threads.", Colour("#6b5b2e", "#8f7d45")),
    Group("tiny-operators", "Tiny operators", "Operators of a run on the CPU that are shorter than their dispatch.", Colour("#e69f00")),
    Group("first-calls", "First calls", "First calls of operators in a run on the CPU, which take much longer than later ones.", Colour("#5c2751", "#efe0a2")),
)  # fmt: skip
"""Operators of a run on the CPU, told apart by how long they take."""

STATUSES: Mapping[str, Term] = by_key(
    Term("ok", "Judged", "The trace holds what a verdict needs."),
    Term("cpu-run", "Run on the CPU", "Operators ran on the CPU alone: the trace shows where its main thread spends time."),
    Term("no-gpu-activity", "No GPU work", "Nothing ran on a GPU while this trace was recorded."),
    Term("gpu-timeline-missing", "GPU timeline missing", "Work was launched, but the trace holds no GPU activity."),
    Term("unsupported-accelerator", "Unsupported accelerator", "The accelerator's events are of a kind this program cannot read."),
    Term("insufficient", "Not enough to judge", "Too little of the trace can be judged for a verdict."),
)  # fmt: skip
"""Whether a trace can be judged."""

RUN_AHEAD_STATES: Mapping[str, Term] = by_key(
    Term("ahead", "Ahead", "The CPU launches well before the device starts the work: its overhead is hidden."),
    Term("keeping-up", "Keeping up", "The CPU launches in time, with little to spare."),
    Term("behind", "Behind", "The queue is empty most of the time: the device waits for launches."),
)  # fmt: skip
"""Whether the CPU runs ahead of a device."""

CHANGE_PARTS = {"fuse": ("attention", "chain", "optimizer"), "warm": ("allocation", "compilation")}
"""Change -> its parts, which are the values of ``--fuse-only`` and ``--warm-only``."""
PART_OPTION: Mapping[str, str] = {"fuse": "of", "warm": "only"}
"""Change -> its option that names a part."""

WITHHELD = "withheld"
"""Key of idle time on a device whose trace does not support causes."""

EARLIER_WORK = "earlier-work"
"""Key of idle time in which the device did work that was launched before the recording."""

TIME_SLICE = "time-slice"
"""Key of idle time in which another program seems to use the device."""

NOT_OWN = (EARLIER_WORK, TIME_SLICE)
"""Keys of idle time in which the device did other work than the recorded program's: it counts towards no window."""

UNRECORDED = "unrecorded-work"
"""Key of idle time in which the CPU waited although all recorded work had ended: the trace lacks that work."""

UNSEEN = (*NOT_OWN, UNRECORDED)
"""Keys of idle time in which the device did work that the trace does not contain: no sentence says that it idled."""

UNKNOWN_CAUSES = ("unlinked", "untraced", UNRECORDED)
"""Keys of idle time of which nothing is known, whether the trace supports causes or not."""


def _added_part(
    *, key: str, colour: str, dark: str = "", cure: str = "launch", before: str = "", **more: Any
) -> tuple[Part, str]:
    """Return a cause of a plug-in's ``causes.toml``, and the named cause that it precedes."""
    named = [own.key for own in _OWN_PARTS.values() if own.role == "named"]
    if not re.fullmatch("[a-z][a-z0-9-]*", key):
        raise ValueError(f"cause {key!r}: a key has small letters, digits and hyphens")
    if not all(re.fullmatch("#[0-9a-f]{6}", shade) for shade in (colour, dark or colour)):
        raise ValueError(f"cause {key}: colours are written #rrggbb, in small letters")
    if cure not in CAUSES:
        raise ValueError(f"cause {key}: cure {cure!r} is none of {', '.join(CAUSES)}")
    if before and before not in named:
        raise ValueError(f"cause {key}: before {before!r} is none of {', '.join(named)}")
    more["fixes"] = tuple(more.get("fixes", ()))
    made = part(key=key, role="named", light=colour, dark=dark, cure=cure, **more)
    if made.replay not in get_args(Replay) or made.per not in get_args(Per):
        raise ValueError(f"cause {key}: replay is work or wait, per is one of {', '.join(get_args(Per))}")
    return made, before or named[0]


@cache
def _parts() -> Mapping[str, Part]:
    """Return this package's parts, with each plug-in's part before the part that it names."""
    added = plugins.added(
        "causes.toml",
        lambda document: [_added_part(**row) for row in document["cause"]],
        key=lambda made: made[0].key,
        taken=_OWN_PARTS,
    )
    return by_key(
        *(made for own in _OWN_PARTS.values() for made in (*(new for new, before in added if before == own.key), own))
    )


@cache
def _of_parts() -> Mapping[str, Any]:
    parts = _parts().values()

    def of_role(*roles: Role) -> tuple[str, ...]:
        return tuple(part.key for part in parts if part.role in roles)

    idle = [part for part in parts if not part.is_work]
    return {
        "PARTS": _parts(),
        "WORK": of_role("work"),
        "IDLE_CAUSES": tuple(part.key for part in idle),
        "NAMED_WORK": of_role("named"),  # determines the cause, whatever the innermost event is
        "INNERMOST_WORK": of_role("innermost"),
        "HOST_CAUSES": of_role("wait", "named", "innermost", "launch"),
        "UNKNOWN_PARTS": tuple(part.key for part in idle if part.cure is None and part.key not in NOT_OWN),
    }


# Plug-ins add parts, and the command line learns of plug-ins after it has read the regimes: what depends on the parts is
# made when it is first asked for.
if TYPE_CHECKING:
    PARTS: Mapping[str, Part]
    """Parts of a window in the order of the report, which is also their precedence: where activities or host events
    overlap, an instant counts for the first."""
    WORK: tuple[str, ...]
    IDLE_CAUSES: tuple[str, ...]
    NAMED_WORK: tuple[str, ...]
    INNERMOST_WORK: tuple[str, ...]
    HOST_CAUSES: tuple[str, ...]
    UNKNOWN_PARTS: tuple[str, ...]
else:

    def __getattr__(name: str) -> Any:
        """Return a value that depends on the parts."""
        if name.startswith("_") or name not in _of_parts():
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return _of_parts()[name]


def shortened_by(fix: str) -> tuple[str, ...]:
    """Return the keys of the parts that this advice shortens."""
    return tuple(part.key for part in _parts().values() if fix in part.fixes)


def although(regime: str, cause: str | None) -> str:
    """Return the words for a change that does not concern the limit: ``although memory bandwidth limits``."""
    if limit_label(regime, cause) != label(regime):
        return f"although {CAUSES[cause or ''].noun} limit"
    return f"although {regime.removesuffix('-bound').replace('-', ' ')} limits"


def limit_label(regime: str, cause: str | None) -> str:
    """Return the label of a window's limit: the regime's, unless the cause has its own (copies: Copy-bound)."""
    return (CAUSES[cause].limit if cause is not None and cause in CAUSES else "") or label(regime)


def cause_sums(regime: str, parts_ns: Mapping[str, int]) -> dict[str, int]:
    """Return the time of each cause of a regime that has any, ns."""
    sums: dict[str, int] = {}
    known = _parts()
    for part, ns in parts_ns.items():
        of, cause = (known[part].cure if part in known else None) or (None, None)
        if of == regime and cause is not None and ns:
            sums[cause] = sums.get(cause, 0) + ns
    return sums


def regime_noun(regime: str, parts_ns: Mapping[str, int]) -> str:
    """Name the time that counts towards a regime, so that its share is that of what is named: ``communication and copies``.

    These are its causes, the largest first, until their share is that of the regime; else the regime's noun.
    """
    times = {CAUSES[cause].noun: ns for cause, ns in cause_sums(regime, parts_ns).items()}
    if not times or not all(times):
        return REGIMES[regime].noun
    window, named, nouns = sum(parts_ns.values()), 0, list[str]()
    for noun, ns in sorted(times.items(), key=lambda item: -item[1]):
        nouns, named = [*nouns, noun], named + ns
        if percent(named / window) == percent(sum(times.values()) / window):
            break
    return ", ".join(nouns[:-1]) + " and " * (len(nouns) > 1) + nouns[-1]


def part_term(key: str) -> Term:
    """Return the term of a part; an unknown key is its own label."""
    return _parts().get(key) or Term(key, label(key), "")


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
    kinds: tuple[Mapping[str, Term], ...] = (
        _parts(),
        CAUSES,
        REGIMES,
        GROUPS,
        ACTIVITIES,
        CPU_OPERATORS,
        RUN_AHEAD_STATES,
    )
    return next((terms[key] for terms in kinds if key is not None and key in terms), None)
