"""Hold the facts on a side other than its frames: recordings, device, verdict, the report's advice."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RecordedSteps:
    """Hold one trace: its path, and the lengths of its steady steps in ns; a trace without steps counts as one step."""

    path: str
    lengths_ns: tuple[int, ...]
    has_steps: bool

    @property
    def total_ns(self) -> int:
        """Return the sum of the steps."""
        return sum(self.lengths_ns)


@dataclass(frozen=True)
class Promise:
    """Hold an advice of a report and its bound on the saving, in ns per step.

    ``predicted_ratio`` is the replayed step with the change as a share of the recorded step, and ``predicted_interval``
    the interval of this share.
    """

    id: str
    title: str
    saves_ns_at_most: float
    how: str
    predicted_ratio: float | None = None
    predicted_interval: tuple[float, float] | None = None


def promise(item: tuple[str, str, float, str], predicted: tuple[float, float, float, float] | None) -> Promise:
    """Return a promise from (id, title, bound in ns per step, how).

    ``predicted`` is step, low, high and now of the replay, in ns.
    """
    if predicted is None or predicted[3] <= 0:
        return Promise(*item)
    step, low, high, now = predicted
    return Promise(*item, step / now, (low / now, high / now))


@dataclass(frozen=True)
class DeviceTime:
    """Hold the lengths of the steady steps of one of a trace's devices, and the idle time in them.

    ``label`` is its id in the file.
    """

    label: str
    steps: int
    total_ns: int
    idle_ns: int


@dataclass(frozen=True)
class Facts:
    """Hold all other facts that a comparison needs about a side.

    ``device`` is the label of the compared device, ``devices`` those of all that worked, if several. ``launches``
    counts the launches of its work in all steps; None for a baseline saved without this count.
    """

    device_name: str | None = None
    regime: str | None = None
    cause: str | None = None
    headline: str = ""
    withheld: str | None = None
    causes_withheld: bool = False
    cold: bool = False
    shapes_known: bool = True
    flop: float | None = None
    advice: tuple[Promise, ...] = ()
    attention: tuple[str, ...] = ()
    device: str | None = None
    devices: tuple[DeviceTime, ...] = ()
    launches: int | None = None
