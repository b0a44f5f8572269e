"""Define what words of reports are made of, and name the regimes and their causes.

`trace_analyzer.vocabulary` has the others. These are apart, as the command line needs regimes before it knows which plug-ins add parts.
"""

from collections.abc import Mapping
from typing import Literal, TypeVar

from trace_analyzer.tuning import dataclass

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
        "host-wait",
        "Host waits",
        "the CPU itself waits: for another thread or process, for the network, or for a timer",
        _OVERHEAD,
    ),
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
