"""Define the classes of vocabulary terms, and name the regimes and their causes.

`trace_analyzer.vocabulary` has the other terms. These are separate, as the command line needs the regimes before it
knows which plug-ins add parts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

RegimeKey = Literal["overhead-bound", "memory-bandwidth-bound", "compute-bound", "communication-bound"]
StatusKey = Literal["ok", "no-gpu-activity", "gpu-timeline-missing", "unsupported-accelerator", "insufficient"]
RunAheadKey = Literal["ahead", "keeping-up", "behind"]
Role = Literal["work", "wait", "named", "innermost", "launch", "device", "unseen", "unknown"]
"""What the time of a part means:

``work``: the device worked. Otherwise it idled: the host waited for it (``wait``), did named work (``named``), was in
its innermost event (``innermost``) or launched (``launch``); the reason is the device (``device``); it did unrecorded
work (``unseen``); or the reason is ``unknown``.
"""


@dataclass(frozen=True)
class Term:
    """Hold a key with its label and its meaning in one sentence."""

    key: str
    label: str
    definition: str

    @property
    def phrase(self) -> str:
        """Return the label as written within a sentence: in lower case, except for names and acronyms."""
        first, _, _ = self.label.partition(" ")
        return self.label if first in _NAMES or first[1:2].isupper() else self.label[:1].lower() + self.label[1:]


@dataclass(frozen=True)
class Colour:
    """Hold ``#rrggbb`` for a light and a dark page; an empty ``dark`` means the same for both."""

    light: str
    dark: str = ""


@dataclass(frozen=True)
class Regime(Term):
    """Hold a limit of a window; ``noun`` names the time that counts towards it, ``part`` the part with its colour.

    ``clause`` is the headline's clause where the regime has no cause.
    """

    key: RegimeKey
    noun: str
    part: str
    clause: str = ""


@dataclass(frozen=True)
class Cause(Term):
    """Hold a cause of a regime; ``definition`` is the headline's clause.

    ``limit`` and ``noun`` replace the regime's label and noun where those would mislead.
    """

    regime: RegimeKey
    limit: str = ""
    noun: str = ""


@dataclass(frozen=True)
class Part(Term):
    """Hold a part of a window: work of the device, or a cause of its idle time.

    ``cure`` is the regime and its cause that the time counts towards; None where it counts towards no regime.
    """

    role: Role
    colour: Colour
    cure: tuple[RegimeKey, str | None] | None

    @property
    def is_work(self) -> bool:
        """Return whether the device works in this part; every other part is a cause of idle time."""
        return self.role == "work"


@dataclass(frozen=True)
class Group(Term):
    """Hold a group of kernel buckets, as in the article's table, or another class of activities or events."""

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
        "Most time goes to arithmetic on the device.",
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
"""Limits of a window."""

_OVERHEAD: RegimeKey = "overhead-bound"
_COMMUNICATION: RegimeKey = "communication-bound"

CAUSES: Mapping[str, Cause] = by_key(
    Cause("launch", "Launch", "the CPU cannot launch work fast enough", _OVERHEAD),
    Cause("data-loading", "Data loading", "the GPU waits for input data", _OVERHEAD),
    Cause("synchronization", "Synchronization", "the CPU waits for the GPU, then the GPU waits for the CPU", _OVERHEAD),
    Cause("blocking-copy", "Blocking copy", "copies block the CPU while the GPU waits", _OVERHEAD),
    Cause("allocation", "Allocation", "allocator calls block the CPU while the GPU waits", _OVERHEAD),
    Cause("compilation", "Compilation", "code is compiled or loaded while the GPU waits", _OVERHEAD),
    Cause("graph-capture", "Graph capture", "graphs are captured while the GPU waits, which happens once", _OVERHEAD),
    Cause("garbage-collection", "Garbage collection", "Python's garbage collector runs while the GPU waits", _OVERHEAD),
    Cause("cpu-operator", "Work on the CPU", "long CPU work of operators keeps the GPU waiting", _OVERHEAD),
    Cause(
        "host-wait",
        "Host waits",
        "the CPU waits for another thread or process, the network or a timer",
        _OVERHEAD,
    ),
    Cause(
        "cold-start",
        "Cold start",
        "most waiting comes before kernels are first used",
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
"""Causes of the regimes."""

CHANGE_PARTS: Mapping[str, tuple[str, ...]] = {
    "fuse": ("attention", "chain", "optimizer"),
    "warm": ("allocation", "compilation"),
}
"""Change -> its parts, which are the values of ``--fuse-only`` and ``--warm-only``."""
PART_OPTION: Mapping[str, str] = {"fuse": "of", "warm": "only"}
"""Change -> its option that names a part."""
