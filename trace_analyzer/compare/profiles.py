"""Aggregate the steady steps of one side: the input of every comparison, small enough to be stored in a file."""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

import polars as pl
from msgspec import Struct
from msgspec.structs import asdict, replace

from trace_analyzer import schema, vocabulary
from trace_analyzer.analyses import left_out, roofline
from trace_analyzer.analyses.work.replay_matching import is_replayed
from trace_analyzer.catalog.event_names import copy_direction
from trace_analyzer.compare.facts import MATMULS_IN, DeviceTime, Facts, RecordedSteps, TimeShare, promise, typical_step
from trace_analyzer.frames import lookups
from trace_analyzer.frames.intervals import LENGTH_NS
from trace_analyzer.report import Report
from trace_analyzer.report.summaries import device_code

COLD_RATIO = 0.5
"""Least share of one-time work in steps that are a cold start."""
CALLS: Mapping[str, pl.DataType] = {
    "call": pl.UInt32(),
    "phase": pl.String(),
    "module": pl.String(),
    "operator": pl.String(),
    "outer_operator": pl.String(),
    "shapes": pl.String(),
    "outer_shapes": pl.String(),
    "count": pl.Int64(),
    "flop": pl.Float64(),
    "first": pl.UInt32(),
}
"""Calls of operators that launched work; ``count`` equal calls per row;
``first`` is the number of the first of them in order of time."""
DEVICE_SEPARATOR = " and "
"""Separator of device names where the recordings of one side ran on several kinds of device."""
KINDS = ("idle", "kernel", "copy", "communication")
"""Kinds of time: idle intervals, and activities by kind."""
ROWS: Mapping[str, pl.DataType] = {
    "row": pl.UInt32(),
    "call": pl.UInt32(),
    "kind": pl.String(),
    "category": pl.String(),
    "group": pl.String(),
    "part": pl.String(),
    "kernel": pl.String(),
    "count": pl.Int64(),
    "total_ns": pl.Int64(),
    "roof_ns": pl.Float64(),
    "known_ns": pl.Int64(),
    "blocks": pl.Int64(),
}
"""Attributed time by call and kernel, and idle time by cause.

``category`` is a kernel's bucket, a copy's direction or the cause; ``count`` counts kernels, copies or gaps;
``known_ns`` is the time with a known ``roof_ns``; ``blocks`` is the sum of the grids, which indicates sizes where
shapes were not recorded.
"""
UNITS: Mapping[str, pl.DataType] = {"row": pl.UInt32(), "unit": pl.UInt32(), "total_ns": pl.Int64()}
"""Attributed time of each row in each unit of observation."""


class Profile(Struct, frozen=True, dict=True, eq=False):
    """The aggregated steady steps of one side.

    ``calls``, ``rows`` and ``units`` are frames with the schemas of this module; rows sum to ``total_ns`` exactly.
    ``unit_of_work`` is the number of units of work into which each step is divided. ``detail`` is ``parts`` where only
    the parts of the partition are known. ``timeline`` makes the frame of one typical step; None without single events.
    """

    path: str
    recordings: tuple[RecordedSteps, ...]
    calls: pl.DataFrame
    rows: pl.DataFrame
    units: pl.DataFrame | None
    facts: Facts
    unit_of_work: int = 1
    detail: str = "calls"
    timeline: Callable[[], pl.DataFrame] | None = None

    @property
    def steps(self) -> int:
        """Return the number of steps in all recordings, or of units of work where a step has several."""
        return sum(len(recording.lengths_ns) for recording in self.recordings) * self.unit_of_work

    @property
    def total_ns(self) -> int:
        """Return the length of all steps of all recordings."""
        return sum(recording.total_ns for recording in self.recordings)

    @cached_property
    def once_ns(self) -> int:
        """Return the idle time of one-time work in all steps: that of its parts, and that before slow first launches."""
        cold = sum(sum(recording.cold_ns) for recording in self.recordings)
        return int(self._once_rows.get_column("total_ns").sum()) + cold

    @property
    def _once_rows(self) -> pl.DataFrame:
        """Return the rows of one-time work: compilation, graph capture, allocation, work from before the recording."""
        return self.rows.filter(pl.col("kind") == "idle", pl.col("category").is_in(once_parts()))

    def without_once(self) -> list[float]:
        """Return `observations` without one-time work, of which the mean is taken where it is not known by unit."""
        if self.units is None or not self.once_ns:
            return [time - self.once_ns / self.steps for time in self.observations()]
        named = self.unit_times(self._once_rows.select(pl.lit(0).alias("group"), "row")).get(
            0, [0.0] * len(self.weights())
        )
        cold = (
            [sum(r.cold_ns) for r in self.recordings]
            if self.are_recordings_units
            else [sum(of_step) for of_step in zip(*(r.cold_ns for r in self.recordings), strict=False)]
        )
        before = [ns / units for ns, units in zip(cold or [0] * len(named), self.weights(), strict=True)]
        return [time - one - other for time, one, other in zip(self.observations(), named, before, strict=True)]

    @property
    def is_cold(self) -> bool:
        """Return whether its steps are a cold start: by its verdict, or as one-time work is most of them."""
        return self.facts.cold or self.once_ns >= COLD_RATIO * self.total_ns > 0

    @property
    def has_steps(self) -> bool:
        """Return whether every recording has steps."""
        return all(recording.has_steps for recording in self.recordings)

    @property
    def are_recordings_units(self) -> bool:
        """Return whether a recording, instead of a step, is the unit of observation: true for several of one process."""
        return len(self.recordings) > 1 and not self.is_job

    @property
    def is_job(self) -> bool:
        """Return whether the recordings are of the same steps of a job's ranks, which wait for each other."""
        ranks = [recording.rank for recording in self.recordings]
        steps = {len(recording.lengths_ns) for recording in self.recordings}
        return len(ranks) > 1 and None not in ranks and len({*ranks}) == len(ranks) and len(steps) == 1

    @property
    def unit_totals_ns(self) -> list[int]:
        """Return the length of each unit of observation: a recording, or a step, of a job the sum over its ranks."""
        if self.are_recordings_units:
            return [recording.total_ns for recording in self.recordings]
        return [sum(of_step) for of_step in zip(*(r.lengths_ns for r in self.recordings), strict=True)]

    @cached_property
    def called_rows(self) -> pl.DataFrame:
        """Return rows with the columns of their calls: phase to outer_shapes, and calls."""
        calls = self.calls.rename({"count": "calls"}).drop("flop", "first")
        return self.rows.join(calls, on="call", how="left", maintain_order="left")

    @property
    def work(self) -> pl.DataFrame:
        """Return the work of a step by kind, category and operator: count, step_ns."""
        sums = self.called_rows.group_by("kind", "category", "operator", maintain_order=True)
        each = (pl.col("count", "total_ns").sum() / max(1, self.steps)).name.replace("total_ns", "step_ns")
        return sums.agg(each)

    def observations(self) -> list[float]:
        """Return the time per step in ns, by unit of observation.

        A unit is a step of a single recording or of a job, or a whole one of several recordings (its mean).
        """
        return [total / units for total, units in zip(self.unit_totals_ns, self.weights(), strict=True)]

    def weights(self) -> list[int]:
        """Return the number of steps, or units of work, in each unit of observation."""
        if self.are_recordings_units:
            return [len(r.lengths_ns) * self.unit_of_work for r in self.recordings]
        return [self.unit_of_work * len(self.recordings)] * len(self.recordings[0].lengths_ns)

    def unit_times(self, groups: pl.DataFrame) -> dict[Any, list[float]]:
        """Return the time per step in ns of each group of rows (group, row), by unit of observation.

        Groups without rows, as with a null as row, have 0 in each unit. The profile must have units.
        """
        assert self.units is not None
        weights = self.weights()
        times = {group: [0.0] * len(weights) for group in groups.get_column("group").unique()}
        sums = groups.join(self.units, on="row").group_by("group", "unit").agg(pl.col("total_ns").sum())
        for group, unit, total in sums.iter_rows():
            times[group][unit] = total / weights[unit]
        return times

    def divided(self, units: int) -> "Profile":
        """Return the profile with each step divided into so many units of work."""
        return replace(self, unit_of_work=units)


def once_parts() -> list[str]:
    """Return the parts of one-time work."""
    return [key for key, part in vocabulary.PARTS.items() if part.per == "once"]


def profile_of(report: Report) -> Profile:
    """Aggregate the judged device's steady steps."""
    tables = report.tables
    device = device_code(report, report.verdict.device)
    pieces, steps = (
        lookups.where_equal(tables[name], "device", device) if device is not None else tables[name].clear()
        for name in ("owners", "steps")
    )
    lengths = (
        pieces.group_by("step").agg((pl.col("end_ns").max() - pl.col("start_ns").min()).alias("length_ns")).sort("step")
    )
    has_steps = pieces.height > 0 and pieces.get_column("step").null_count() == 0
    places = lengths.select("step", unit=pl.int_range(pl.len(), dtype=pl.UInt32))
    pieces = pieces.with_columns(LENGTH_NS.alias("total_ns")).join(
        places, on="step", how="left", nulls_equal=True, maintain_order="left"
    )
    is_work = pieces.get_column("activity_id").is_not_null()
    work = _with_work(pieces.drop("device", "gap_id", "event_id", "python_function").filter(is_work), report)
    calls, work = _calls(work, tables["operator_inputs"])
    idle = pieces.filter(~is_work)
    rows, units = _rows(work, idle.select("part", "unit", "gap_id", "total_ns"))
    cold = left_out.cold_idle(idle.rename({"part": "cause"}), tables["gaps"], tables["first_launches"])
    cold = cold.filter(~pl.col("cause").is_in(once_parts()))
    cold_ns = lookups.sum_by_group(cold.get_column("unit"), cold.get_column("total_ns"), lengths.height)
    return Profile(
        path=report.trace.path,
        recordings=(
            RecordedSteps(
                report.trace.path,
                tuple(lengths.get_column("length_ns")),
                has_steps,
                tuple(cold_ns),
                report.trace.rank if (report.trace.world_size or 0) > 1 else None,
                None,
                int(work.filter(pl.col("kind") == "communication").get_column("total_ns").sum()),
                int(idle.get_column("total_ns").sum()),
            ),
        ),
        calls=calls,
        rows=rows,
        units=units,
        facts=_facts(report, device, work, steps, calls),
        timeline=lambda: typical_step(_timeline(work, idle)),
    )


def categories(report: Report) -> pl.DataFrame:
    """Return the intervals of the judged device in order of time, with total_ns and category.

    The category is a kernel's bucket, a copy's direction or a cause of idle time.
    """
    device = device_code(report, report.verdict.device)
    pieces = report.tables["owners"].filter(pl.col("device") == device).with_columns(LENGTH_NS.alias("total_ns"))
    is_work = pl.col("activity_id").is_not_null()
    work = _with_work(pieces.filter(is_work), report).select(*pieces.columns, "category")
    idle = pieces.filter(~is_work).with_columns(pl.col("part").alias("category"))
    return pl.concat([work, idle]).sort("device", "start_ns", "end_ns")


def _with_work(pieces: pl.DataFrame, report: Report) -> pl.DataFrame:
    """Return pieces of activities with kind, category, group, kernel, its number ``what``, flop, roof_ns and is_replayed.

    A kernel of a graph has the operator that it was matched to, not the one around the launch of its graph.
    """
    ids = pieces.get_column("activity_id")
    activities = report.tables["activities"]
    names = activities.select(
        "kind", "name", "bucket", "group", "bound", "flop", "blocks", "replayed_module", "launch_id", "graph_id",
        "replay_match", "replayed_from",
    )[ids]  # fmt: skip
    launches = report.tables["launches"].select("launch_id", pl.col("name").alias("launch_name"))
    replayed = is_replayed(lookups.lookup(launches, names, "launch_id")) | names.get_column("graph_id").is_not_null()
    around = pl.col("operator", "operator_id", "outer_operator", "outer_operator_id")
    twins = names.get_column("replayed_from")
    is_known = activities.get_column("operator")[twins].is_not_null() | twins.is_null()
    is_own = (names.get_column("replay_match") != "annotation").fill_null(False) & is_known | ~replayed
    pieces = pieces.with_columns(pl.when(is_own).then(around))
    roofs = report.tables["roofs"].select("activity_id", "roof_ns")
    places = lookups.inverse_index(roofs.get_column("activity_id"), activities.height)[ids]
    is_kernel = pl.col("kind") == "kernel"
    of_collective = (pl.col("kind") == "memcpy") & (pl.col("bound") == "communication")
    numbers, firsts = lookups.factorize(
        *names.select(pl.col("kind", "name", "bucket", "group", "bound").cast(pl.Categorical))
    )
    named = lookups.as_strings(names[firsts]).select(
        pl.when(is_kernel & (pl.col("bucket") == "communication") | of_collective).then(pl.lit("communication"))
        .when(pl.col("kind") == "memcpy").then(pl.lit("copy"))
        .otherwise(pl.lit("kernel"))
        .alias("kind"),
        pl.when(is_kernel).then(pl.col("bucket").fill_null("other"))
        .when(of_collective).then(pl.lit("communication"))
        .when(pl.col("kind") == "memset").then(pl.lit("memset"))
        .otherwise(pl.concat_str(copy_direction().fill_null("unknown"), pl.lit(" copy")))
        .alias("category"),
        pl.when(is_kernel).then(pl.col("group").fill_null("other")).otherwise(pl.lit("copy")).alias("group"),
    )[numbers]  # fmt: skip
    is_first = ids.is_first_distinct()
    flop = names.select(pl.when((pl.col("group") == "matmul").fill_null(False) & is_first).then("flop")).to_series()
    return pieces.hstack(named).with_columns(
        names.get_column("name").alias("kernel"),
        names.get_column("blocks"),
        pl.coalesce("module", names.get_column("replayed_module").cast(pl.String).str.replace("_[0-9]+$", "")),
        flop.alias("flop"),
        is_first.alias("is_first"),
        replayed.alias("is_replayed"),
        numbers.alias("what"),
        lookups.gather(roofs.get_column("roof_ns"), places).alias("roof_ns"),
    )


def _calls(work: pl.DataFrame, operator_inputs: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return `CALLS`, and the work with the ``call`` of each piece."""
    shapes = operator_inputs.select("event_id", pl.col("input_dims").alias("shapes"))
    work = work.with_columns(
        lookups.lookup(shapes, work.select(pl.col(around).alias("event_id")), "event_id")
        .get_column("shapes")
        .alias(name)
        for name, around in (("shapes", "operator_id"), ("outer_shapes", "outer_operator_id"))
    )
    # Columns with most values come first: combinations with few values then need no table of all pairs.
    key = ["shapes", "outer_shapes", "operator", "outer_operator", "module", "phase"]
    numbers, firsts = lookups.factorize(*work.select(pl.col(key).cast(pl.Categorical)))
    by = pl.col("call").cast(pl.UInt64)
    counts = (
        work.select("operator_id", "is_first", "is_replayed", "flop", numbers.alias("call"))
        .with_columns(
            # A kernel replayed by a graph, or launched outside operators, is a call of its own.
            pl.when(pl.col("operator_id").is_null() | pl.col("is_replayed"))
            .then("is_first")
            .otherwise((by + firsts.len() * pl.col("operator_id")).is_first_distinct())
            .alias("operators")
        )
        .group_by("call")
        .agg(pl.col("operators").sum().alias("count"), roofline.known_sum("flop"))
        .sort("call")
    )
    calls = work.select(key)[firsts].hstack(counts).with_columns(firsts.alias("first"))
    return schema.typed(calls, CALLS), work.with_columns(numbers.alias("call"))


def _rows(work: pl.DataFrame, idle: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return `ROWS` and `UNITS` for work, and for idle time by cause."""
    key = ["call", "kind", "category", "group", "part", "kernel"]
    sums = ["count", "total_ns", "roof_ns", "known_ns", "blocks"]
    numbers, firsts = lookups.factorize(*work.select("call", "what", "part"))
    worked = (
        work.select("unit", "is_first", "total_ns", "roof_ns", "blocks", numbers.alias("row"))
        .group_by("row", "unit", maintain_order=True)
        .agg(
            pl.col("is_first").sum().cast(pl.Int64).alias("count"),
            pl.col("total_ns").sum(),
            pl.col("roof_ns").filter("is_first").sum(),
            pl.col("total_ns").filter(pl.col("roof_ns").is_not_null()).sum().alias("known_ns"),
            pl.col("blocks").filter("is_first").sum(),
        )
    )
    by_cause = idle.group_by("part", "unit", maintain_order=True).agg(
        pl.col("gap_id").n_unique().alias("count"), pl.col("total_ns").sum()
    )
    causes, of_causes = lookups.factorize(by_cause.get_column("part"))
    waited = by_cause.select(
        (causes + firsts.len()).alias("row"),
        "unit",
        "count",
        "total_ns",
        *(pl.lit(0, worked.schema[name]).alias(name) for name in sums[2:]),
    )
    parts = by_cause.select("part")[of_causes]
    units = pl.concat([worked, waited.cast({name: worked.schema[name] for name in waited.columns})])
    of_cause = {
        "call": pl.lit(None, pl.UInt32), "kind": pl.lit("idle"), "category": pl.col("part"),
        "group": pl.lit("idle"), "part": pl.col("part"), "kernel": pl.lit(None, pl.String),
    }  # fmt: skip
    keys = pl.concat([work.select(key)[firsts], parts.select(expr.alias(name) for name, expr in of_cause.items())])
    rows = units.group_by("row").agg(pl.col(sums).sum()).sort("row").hstack(keys)
    return schema.typed(rows, ROWS), schema.typed(units, UNITS)


def _timeline(work: pl.DataFrame, idle: pl.DataFrame) -> pl.DataFrame:
    """Return intervals of both kinds with kind, category, operator and kernel, in order of time."""
    columns = ["step", "start_ns", "end_ns", "kind", "category", "operator", "kernel"]
    waiting = idle.with_columns(
        pl.lit("idle").alias("kind"), pl.col("part").alias("category"), pl.lit(None, pl.String).alias("kernel")
    )
    return pl.concat([work.select(columns), waiting.select(columns)]).sort("start_ns", "end_ns")


def _facts(report: Report, device: int | None, work: pl.DataFrame, steps: pl.DataFrame, calls: pl.DataFrame) -> Facts:
    """Return the report's facts on the side other than times."""
    judged = next((d for d in report.devices if d.index == report.verdict.device), None)
    withheld = {item.metric: item.reason for item in judged.withheld} if judged else {}
    window = report.verdict.window
    step_count = window.step_count if window else 1
    kernels = work.filter(pl.col("kind") == "kernel")
    of_activity = report.tables["activities"].select("dtype", pl.col("flop").alias("own_flop"))
    kernels = kernels.with_columns(of_activity[kernels.get_column("activity_id")])
    fusions = report.tables["fusions"].filter(pl.col("kind") == "attention")
    shaped = calls.filter(pl.col("shapes").is_not_null() & (pl.col("shapes") != "[]"))
    return Facts(
        device_name=judged.name if judged else None,
        regime=report.verdict.regime,
        cause=report.verdict.cause,
        headline=report.verdict.headline,
        withheld=report.verdict.headline if work.is_empty() else withheld.get("partition"),
        causes_withheld="idle_causes" in withheld,
        cold=report.verdict.cause == "cold-start",
        shapes_known=shaped.height > 0,
        flop=work.select(roofline.known_sum("flop")).item(),
        shares=_shares(kernels),
        versions=report.trace.versions,
        advice=tuple(
            promise(asdict(item) | {"predicted": item.predicted and asdict(item.predicted)}, step_count)
            for item in report.advice
        ),
        attention=tuple(sorted({name for text in fusions.get_column("operators") for name in text.split(">") if name})),
        device=None if report.verdict.device is None else str(report.verdict.device),
        devices=_devices(report),
        launches=report.tables["activities"]
        .get_column("launch_id")[work.get_column("activity_id")]
        .drop_nulls()
        .n_unique(),
        levers=report.verdict.levers,
    )


def _shares(kernels: pl.DataFrame) -> tuple[TimeShare, ...]:
    """Return the shares of `Facts`."""
    total = kernels.get_column("total_ns").sum()
    if not total:
        return ()
    names = pl.col("kernel").cast(pl.String)
    own = {"compiled": names.str.starts_with("triton_"), "replayed": pl.col("is_replayed")}
    sums = kernels.select(pl.col("total_ns").filter(is_own).sum().alias(name) for name, is_own in own.items()).row(
        0, named=True
    )
    matmuls = kernels.filter(pl.col("group") == "matmul")
    of_matmuls = int(matmuls.get_column("total_ns").sum()) or 1  # they may all take no time
    known_ns = int(matmuls.filter(pl.col("own_flop").is_not_null()).get_column("total_ns").sum())
    types = [(name, ns / total) for name, ns in _ns_by_type(kernels)]
    types += [(MATMULS_IN + name, ns / of_matmuls) for name, ns in _ns_by_type(matmuls)]
    states = [(name, ns / total) for name, ns in sums.items()]
    return tuple(TimeShare(name, ratio) for name, ratio in (*types, *states, ("flop", known_ns / of_matmuls)))


def _ns_by_type(kernels: pl.DataFrame) -> Iterator[tuple[str, int]]:
    """Yield the types of numbers with the time of their kernels, ns."""
    return kernels.drop_nulls("dtype").group_by("dtype").agg(pl.col("total_ns").sum()).sort("dtype").iter_rows()


def _devices(report: Report) -> tuple[DeviceTime, ...]:
    """Return the steady steps' time on each device that worked, where there are several."""
    labels = dict(report.tables["devices"].select("device", "label").iter_rows())
    if len(labels) < 2:
        return ()
    sums = (
        report.tables["owners"]
        .group_by("device")
        .agg(
            pl.col("step").n_unique().alias("steps"),
            LENGTH_NS.sum().alias("total_ns"),
            LENGTH_NS.filter(pl.col("activity_id").is_null()).sum().alias("idle_ns"),
        )
        .sort("device")
    )
    times = tuple(DeviceTime(str(labels[device]), *rest) for device, *rest in sums.iter_rows())
    return times if len(times) > 1 else ()
