"""What a comparison needs to know about a side, beside its tables, and its timeline: one typical step with few enough
intervals to draw."""

from collections.abc import Mapping
from typing import Annotated, Any

import polars as pl
from msgspec import Struct

from trace_analyzer.frames.intervals import LENGTH_NS, coalesce
from trace_analyzer.json_types import Amount, Limits, Quantity
from trace_analyzer.report import Lever
from trace_analyzer.schema import typed


class RecordedSteps(Struct, frozen=True):
    """One trace: its path, and the lengths of its steady steps in ns; a trace without steps counts as one step.

    ``rank`` is that of its process in a job, ``role`` that of the ranks that make its calls; ``communication_ns`` and ``idle_ns`` are sums over its steps.
    ``cold_ns`` is the idle time before slow first launches in each step (`left_out.cold_idle`) that no part of one-time
    work has; empty where it is not known.
    """

    path: str
    lengths_ns: tuple[Amount, ...]
    has_steps: bool
    cold_ns: tuple[Amount, ...] = ()
    rank: int | None = None
    role: str | None = None
    communication_ns: Amount = 0
    idle_ns: Amount = 0

    @property
    def total_ns(self) -> int:
        """Return the sum of the steps."""
        return sum(self.lengths_ns)

    @property
    def own_ns(self) -> int:
        """Return the time of its own work: neither idle nor communication."""
        return self.total_ns - self.communication_ns - self.idle_ns


class Promise(Struct, frozen=True):
    """An advice of a report and its bound on the saving, in ns per step.

    ``predicted_ratio`` is the replayed step with the change as a share of the recorded step, and ``predicted_interval``
    the interval of this share.
    """

    id: str
    title: str
    saves_ns_at_most: Quantity
    how: str
    predicted_ratio: Quantity | None = None
    predicted_interval: tuple[float, float] | None = None


def promise(advice: Mapping[str, Any], steps: int) -> Promise:
    """Return the promise of an advice from its fields, as the JSON of a report has them; its window has ``steps``."""
    item = advice["id"], advice["title"], advice["saves_ns_at_most"] / steps, advice["how_bound"]
    predicted = advice.get("predicted")
    if predicted is None or predicted["now_ns"] <= 0:
        return Promise(*item)
    step, low, high = (float(predicted[name]) / predicted["now_ns"] for name in ("step_ns", "low_ns", "high_ns"))
    return Promise(*item, step, (low, high))


class DeviceTime(Struct, frozen=True):
    """The lengths of the steady steps of one of a trace's devices, and the idle time in them."""

    label: str
    steps: Annotated[int, Limits(minimum=1)]
    total_ns: Amount
    idle_ns: Amount


class TimeShare(Struct, frozen=True):
    """The share of kernel time that a name has."""

    name: str
    ratio: Quantity


STATES = ("compiled", "replayed")
"""Names of shares of kernel time by how kernels were made and launched."""
MATMULS_IN = "matmul "
"""Beginning of names of shares of the time of matmuls, convolutions and attention."""


class Facts(Struct, frozen=True):
    """All other facts that a comparison needs about a side.

    ``device`` is the label of the compared device, ``devices`` those of all that worked, if several. ``launches``
    counts the launches of its work in all steps; None for a baseline saved without this count. ``shares`` are shares of kernel time by type of numbers
    (after `MATMULS_IN` those of the time of matmuls, convolutions and attention, whose type the program chooses; an optimizer's
    stays), that of ``compiled`` and ``replayed`` kernels, and that of matmuls' time whose FLOP are known (``flop``). ``cold`` is whether one-time work is most of the steps.
    ``versions`` are those of software, by name; ``levers`` those of the verdict.
    """

    device_name: str | None = None
    regime: str | None = None
    cause: str | None = None
    headline: str = ""
    withheld: str | None = None
    causes_withheld: bool = False
    cold: bool = False
    shapes_known: bool = True
    flop: Quantity | None = None
    advice: tuple[Promise, ...] = ()
    attention: tuple[str, ...] = ()
    device: str | None = None
    devices: tuple[DeviceTime, ...] = ()
    launches: Amount | None = None
    shares: tuple[TimeShare, ...] = ()
    versions: Mapping[str, str] = {}
    levers: tuple[Lever, ...] = ()

    @property
    def ratios(self) -> dict[str, float]:
        """Return the shares by name."""
        return {share.name: share.ratio for share in self.shares}


TIMELINE: dict[str, pl.DataType] = {
    "start_ns": pl.Int64(),
    "end_ns": pl.Int64(),
    "kind": pl.String(),
    "category": pl.String(),
    "name": pl.String(),
}
MOST_PIECES = 4000


def typical_step(pieces: pl.DataFrame) -> pl.DataFrame:
    """Return the intervals of the step of median length, relative to its start: `TIMELINE`.

    ``pieces`` are intervals with kind, category and kernel. Touching intervals of one category are merged; of more than
    `MOST_PIECES`, those too short to be visible join the previous one.
    """
    steps = (
        pieces.group_by("step")
        .agg((pl.col("end_ns").max() - pl.col("start_ns").min()).alias("length"))
        .sort("length", "step", nulls_last=False)
    )
    if steps.is_empty():
        return pl.DataFrame(schema=TIMELINE)
    step = steps.row((steps.height - 1) // 2, named=True)
    own = pieces.filter(pl.col("step").eq_missing(step["step"]) & (pl.col("start_ns") < pl.col("end_ns")))
    shown = coalesce(own.with_columns(pl.lit(0, pl.Int64).alias("track")), ["track"], "category")
    if shown.height > MOST_PIECES:
        # Of each equal part of the step, the category with most time in it.
        width = max(1, step["length"] // MOST_PIECES + 1)
        first = shown.get_column("start_ns").min()
        part = ((pl.col("start_ns") - first) // width).alias("part")
        owned = LENGTH_NS.alias("owned")
        best = (
            shown.with_columns(part, owned).sort("owned", descending=True).unique("part", keep="first").sort("start_ns")
        )
        following = pl.col("start_ns").shift(-1).fill_null(shown.get_column("end_ns").max())
        shown = best.with_columns(following.alias("end_ns"))
    start = shown.get_column("start_ns").min()
    timeline = shown.select(
        (pl.col("start_ns") - start).alias("start_ns"),
        (pl.col("end_ns") - start).alias("end_ns"),
        pl.col("kind", "category").cast(pl.String),
        pl.coalesce("operator", "kernel", "category").cast(pl.String).alias("name"),
    )
    return typed(timeline, TIMELINE)
