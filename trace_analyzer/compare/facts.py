"""Hold what a comparison has to know of a side beside its frames: recordings, device, verdict, what its report advised."""

from trace_analyzer.tuning import dataclass


@dataclass(frozen=True)
class RecordedSteps:
    """Hold one trace: where it lies, and the lengths of its steady steps in ns; without steps, it is one step long."""

    path: str
    lengths_ns: tuple[int, ...]
    has_steps: bool

    @property
    def total_ns(self) -> int:
        """Return the sum of the steps."""
        return sum(self.lengths_ns)


@dataclass(frozen=True)
class Promise:
    """Hold an advice of a report and what it bounds the saving to, in ns a step.

    ``predicted_ratio`` is what a replay made of the step with the change, as a share of the step, and ``predicted_interval`` its interval.
    """

    id: str
    title: str
    saves_ns_at_most: float
    how: str
    predicted_ratio: float | None = None
    predicted_interval: tuple[float, float] | None = None


def promise(item: tuple[str, str, float, str], predicted: tuple[float, float, float, float] | None) -> Promise:
    """Return a promise of (id, title, bound in ns a step, how).

    ``predicted`` is step, low, high and now of its replay, in ns.
    """
    if predicted is None or predicted[3] <= 0:
        return Promise(*item)
    step, low, high, now = predicted
    return Promise(*item, step / now, (low / now, high / now))


@dataclass(frozen=True)
class DeviceTime:
    """Hold what the steady steps of one of a trace's devices take, and how long it idles in them.

    ``label`` is its id in the file.
    """

    label: str
    steps: int
    total_ns: int
    idle_ns: int


@dataclass(frozen=True)
class Facts:
    """Hold what else a comparison has to know of a side.

    ``device`` is the label of the device that is compared, ``devices`` all that worked where these are several. ``launches`` counts the launches
    of its work in all steps; None where a baseline was saved without.
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
