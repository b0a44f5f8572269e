"""Name every regime, cause, part of a window, kernel group and kernel bucket once: key, label, sentence, cure, colour.

Keys are the words of the JSON report and of tables; labels are what people read in the terminal, in Markdown, on the page
and in the docs. Analyses, verdict, renderers, style sheet, JSON Schema and command line read these entries.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

RegimeKey = Literal["overhead-bound", "memory-bandwidth-bound", "compute-bound", "communication-bound"]
StatusKey = Literal["ok", "no-gpu-activity", "gpu-timeline-missing", "unsupported-accelerator", "insufficient"]
RunAheadKey = Literal["ahead", "keeping-up", "behind"]
Role = Literal["work", "wait", "named", "innermost", "launch", "device", "unseen", "unknown"]
"""What a part says of its time: the device worked; or it idled, because the host waited for it, did work that is named,
was at its innermost event, or launched; because of the device itself; not at all, as it did work that nobody recorded; or
nobody knows why."""


@dataclass(frozen=True)
class Term:
    """Hold a key with its label and what it means, in one sentence."""

    key: str
    label: str
    definition: str

    @property
    def phrase(self) -> str:
        """Return the label within a sentence: in small letters but for names and acronyms."""
        first, _, _ = self.label.partition(" ")
        return self.label if first in _NAMES or first[1:2].isupper() else self.label[:1].lower() + self.label[1:]


@dataclass(frozen=True)
class Colour:
    """Hold ``#rrggbb`` for a light and a dark page; the same for both where ``dark`` is empty."""

    light: str
    dark: str = ""


@dataclass(frozen=True)
class Regime(Term):
    """Hold what limits a window; ``noun`` names the time that counts as it, ``part`` the part whose colour it has.

    ``clause`` is that of the headline where the regime has no cause.
    """

    key: RegimeKey
    noun: str
    part: str
    clause: str = ""


@dataclass(frozen=True)
class Cause(Term):
    """Hold what makes a window be of its regime; ``definition`` is the clause of the headline.

    ``limit`` and ``noun`` replace the regime's label and noun where these would name something else.
    """

    regime: RegimeKey
    limit: str = ""
    noun: str = ""


@dataclass(frozen=True)
class Part(Term):
    """Hold a part of a window: what the device did, or why it idled.

    ``cure`` is the regime that the time counts as and the cause within it; None where it speaks for no regime.
    """

    role: Role
    colour: Colour
    cure: tuple[RegimeKey, str | None] | None

    @property
    def is_work(self) -> bool:
        """Return whether the device works in it; every other part is a cause of idle time."""
        return self.role == "work"


@dataclass(frozen=True)
class Group(Term):
    """Hold a group of kernel buckets, as in the article's table, or another kind of activity or event."""

    colour: Colour


_NAMES = ("Python",)
_T = TypeVar("_T", bound=Term)


def by_key(*terms: _T) -> Mapping[str, _T]:
    """Map the key of each term to the term, in order."""
    return {term.key: term for term in terms}


REGIMES: Mapping[str, Regime] = by_key(
    Regime(
        "overhead-bound",
        "Overhead-bound",
        "The device waits for the CPU, or for work too small to fill it.",
        "overhead",
        "python",
    ),
    Regime(
        "memory-bandwidth-bound",
        "Memory-bandwidth-bound",
        "Most time goes to moving data to and from device memory.",
        "memory-bound kernels",
        "memory",
        "kernels spend their time moving data, not computing",
    ),
    Regime(
        "compute-bound",
        "Compute-bound",
        "Most time goes to arithmetic: the device does what it was bought for.",
        "compute-bound kernels",
        "compute",
        "the GPU spends its time in matmuls and convolutions",
    ),
    Regime(
        "communication-bound",
        "Communication-bound",
        "The device waits for other devices, or for copies.",
        "communication",
        "communication",
    ),
)
"""What can limit a window."""

_OVERHEAD: RegimeKey = "overhead-bound"
_COMMUNICATION: RegimeKey = "communication-bound"

CAUSES: Mapping[str, Cause] = by_key(
    Cause("launch", "Launch", "the CPU cannot launch work fast enough", _OVERHEAD),
    Cause("data-loading", "Data loading", "the GPU waits for input data", _OVERHEAD),
    Cause("synchronization", "Synchronization", "the CPU waits for the GPU, and then the GPU for the CPU", _OVERHEAD),
    Cause("blocking-copy", "Blocking copy", "the CPU stands still in copies that block it", _OVERHEAD),
    Cause("allocation", "Allocation", "the CPU stands still in allocator calls", _OVERHEAD),
    Cause("compilation", "Compilation", "code is compiled or loaded while the GPU waits", _OVERHEAD),
    Cause("graph-capture", "Graph capture", "graphs are captured while the GPU rests, which happens once", _OVERHEAD),
    Cause("cpu-operator", "Work on the CPU", "operators hold the CPU for long while the GPU waits", _OVERHEAD),
    Cause(
        "cold-start",
        "Cold start",
        "most waiting comes before the first use of kernels: this is a cold start",
        _OVERHEAD,
    ),
    Cause("small-kernels", "Small kernels", "the kernels are too small to fill the GPU", _OVERHEAD),
    Cause("collectives", "Collectives", "collectives run while nothing else does", _COMMUNICATION),
    Cause(
        "copies",
        "Copies",
        "copies between host and device run while nothing else does",
        _COMMUNICATION,
        limit="Copy-bound",
        noun="copies",
    ),
    Cause(
        "dependency",
        "Device waits",
        "queued work waits for other streams or peers, not for the CPU",
        _COMMUNICATION,
    ),
)
"""What makes a window be of its regime."""


def limit_label(regime: str, cause: str | None) -> str:
    """Return what limits a window: the regime's label, but for a cause that has one of its own (copies: Copy-bound)."""
    return (CAUSES[cause].limit if cause is not None and cause in CAUSES else "") or label(regime)


def limit_noun(regime: str, cause: str | None) -> str:
    """Return the name of the time that counts as it: the cause's own, else the regime's."""
    return (CAUSES[cause].noun if cause is not None and cause in CAUSES else "") or REGIMES[regime].noun


_LAUNCH = (_OVERHEAD, "launch")

PARTS: Mapping[str, Part] = by_key(
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
        "Launches went into a graph that was being captured: the device rests by design, once.",
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
    Part("garbage-collection", "Garbage collection", "Python collected garbage.", "named", Colour("#8f3c00"), _LAUNCH),
    Part(
        "blocking-copy",
        "Blocking copy",
        "A copy call held the CPU until it was done.",
        "named",
        Colour("#c97d9b"),
        (_OVERHEAD, "blocking-copy"),
    ),
    Part(
        "profiler",
        "Profiler",
        "The profiler itself was working; without it this time is gone.",
        "named",
        Colour("#c9a58c"),
        _LAUNCH,
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
        "An operator held the CPU for over 1 ms without a runtime call: it computed there, or prepared its launch for long.",
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
        "The next kernel was queued already: the device's own gap between kernels.",
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
        "The device worked on what was launched before the recording began, which no event shows.",
        "unseen",
        Colour("#7f8b73"),
        None,
    ),
    Part(
        "unexplained",
        "Unexplained",
        "Work was queued, yet nothing recorded says why it did not start.",
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
        "A check of the trace fails that causes of idle time rest on.",
        "unknown",
        Colour("#b3bac2"),
        None,
    ),
)
"""Parts of a window, in the order of the report: where activities overlap, or several things go on at once on the host, an
instant counts for the first."""

GROUPS: Mapping[str, Group] = by_key(
    Group(
        "matmul",
        "Matmul, conv, attention",
        "Matrix products, convolutions and attention: the kernels that tensor cores are made for.",
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
"""Activities that are no kernels."""

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
    Term("ahead", "Ahead", "The CPU launches well before the device gets there: its overhead is hidden."),
    Term("keeping-up", "Keeping up", "The CPU launches in time, with little to spare."),
    Term("behind", "Behind", "The queue is empty most of the time: the device waits for launches."),
)
"""Whether the CPU runs ahead of a device."""

WORK = tuple(part.key for part in PARTS.values() if part.is_work)
"""Keys of the parts in which the device works."""

IDLE_CAUSES = tuple(part.key for part in PARTS.values() if not part.is_work)
"""Keys of the causes of idle time."""

NAMED_WORK = tuple(part.key for part in PARTS.values() if part.role == "named")
"""Keys of the causes that are named after work of the host, whatever its innermost event is."""

INNERMOST_WORK = tuple(part.key for part in PARTS.values() if part.role == "innermost")
"""Keys of the causes that the host's innermost event stands for."""

HOST_CAUSES = tuple(part.key for part in PARTS.values() if part.role in ("wait", "named", "innermost", "launch"))
"""Keys of the causes that lie with the host."""

DEVICE_CAUSES = tuple(part.key for part in PARTS.values() if part.role == "device")
"""Keys of the causes that lie with the device."""

WITHHELD = "withheld"
"""Key of idle time of a device whose trace does not support causes."""

EARLIER_WORK = "earlier-work"
"""Key of idle time in which the device worked on what was launched before the recording began."""

UNKNOWN_PARTS = tuple(
    part.key for part in PARTS.values() if not part.is_work and part.cure is None and part.key != EARLIER_WORK
)
"""Keys of the idle time of which nobody knows whose it is; the page hatches them."""


def part_term(key: str) -> Term:
    """Return the part of a window; one that this version does not know is called by its key."""
    return PARTS.get(key) or Term(key, label(key), "")


def label(key: str | None) -> str:
    """Return the label of a part, a cause, a regime or a group; a key without one is written as words, None as a dash."""
    term = _term(key)
    return term.label if term else "–" if not key else key[:1].upper() + key[1:].replace("-", " ")


def phrase(key: str) -> str:
    """Return what `label` returns as it stands within a sentence."""
    term = _term(key)
    return term.phrase if term else key.replace("-", " ")


def _term(key: str | None) -> Term | None:
    kinds: tuple[Mapping[str, Term], ...] = (PARTS, CAUSES, REGIMES, GROUPS, ACTIVITIES, RUN_AHEAD_STATES)
    return next((terms[key] for terms in kinds if key is not None and key in terms), None)
