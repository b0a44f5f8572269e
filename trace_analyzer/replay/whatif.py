"""Estimate the effect of a change: the step before and after with an interval, or why it cannot be estimated.

>>> result = whatif(report, (Change("no-sync"),))
>>> result.status, result.predicted.step_ns
('ok', 1769000.0)
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from math import ceil, inf
from typing import Annotated, Any, Literal

import polars as pl
from msgspec import Struct
from msgspec.structs import asdict, replace

from trace_analyzer.allocator import Memory
from trace_analyzer.allocator.savings import BatchMemory, batch_memory, growing
from trace_analyzer.errors import UsageError
from trace_analyzer.frames.intervals import LENGTH_NS
from trace_analyzer.frames.lookups import factorize, sum_by_group
from trace_analyzer.replay.changes import AUTO, Change
from trace_analyzer.replay.kernel_changes import target_key
from trace_analyzer.replay.outcomes import Identity, Prediction
from trace_analyzer.replay.prediction import Replay
from trace_analyzer.replay.recording import HOST_PARTS
from trace_analyzer.replay.refusals import barred, refusal
from trace_analyzer.replay.weights import FIRST_DEVICE, NotApplicable, NothingToChange, UnknownTarget
from trace_analyzer.report import Lever, Report
from trace_analyzer.report.summaries import device_code
from trace_analyzer.report.verdicts import is_saving_known, middle_ratio
from trace_analyzer.results import Result
from trace_analyzer.thresholds import WORTH_RATIO
from trace_analyzer.units import printable
from trace_analyzer.vocabulary import CHANGE_PARTS, PART_OPTION

SCHEMA_VERSION = 1
LARGEST_FACTOR = 1e9
"""Largest factor of a change, and the inverse of the smallest."""
MOST_WORKERS = 1024
"""Most workers of a loader: no host has cores for more."""
_PROGRAM = (
    "no-sync", "pinned", "prefetch", "warm", "fuse", "tf32", "bf16", "overlap", "overlap-copies", "buckets", "graphs",
)  # fmt: skip
_SENSITIVE = ("cpu", "gpu", "matmul", "normalization", "pointwise", "communication", "copies")
COLD_RATIO = 0.5
"""Largest share of one-time work in the step for other estimates on its launches: a cold start is never captured as
a graph."""
_COLD = "one-time work takes most of the time, and no graph is captured of a cold start"
_NO_DEVICE = "no device of the trace did any work"


class Scenario(Struct, frozen=True):
    """One change and the estimated step."""

    name: Annotated[str, "Name of the change."]
    options: Annotated[Mapping[str, float | str], "Its options."]
    label: Annotated[str, "The change in words."]
    what: Annotated[
        Literal["change", "sensitivity"], "A change of the program, or a part that no one change makes so fast."
    ]
    step_ns: Annotated[float, "Estimated step, ns."]
    low_ns: Annotated[float, "Lower end of its interval, ns."]
    high_ns: Annotated[float, "Upper end of its interval, ns."]
    saves_ratio: Annotated[float, "What it saves, as a share of the present step."]
    is_known: Annotated[
        bool, "Whether half of the interval is at most half of what it saves, and the present step outside of it."
    ] = True


class PathPart(Struct, frozen=True):
    """A part of the critical path.

    Without changes, ``operator``, ``module`` and ``python_function`` are the code that takes most of it, where known.
    """

    kind: Annotated[str, "Host, device or dependency."]
    name: Annotated[str, "Key of the part."]
    ns: Annotated[float, "Time of a step, ns."]
    ratio: Annotated[float, "Share of the step."]
    speedups: Annotated[Mapping[str, float], "Speed-up factor of this part -> length of the step, ns."]
    operator: Annotated[str | None, "Operator with most of it; null where none is known."] = None
    module: Annotated[str | None, "Module with most of it; null where none is known."] = None
    python_function: Annotated[str | None, "Python function with most of it; null where none is known."] = None
    start_ns: Annotated[int | None, "Start of its longest stretch, ns; null under changes."] = None
    end_ns: Annotated[int | None, "End of that stretch, ns; null under changes."] = None


class Skipped(Struct, frozen=True):
    """A change that has no effect here, or that cannot be predicted."""

    name: Annotated[str, "Name of the change."]
    options: Annotated[Mapping[str, float | str], "Its options."]
    reason: Annotated[str, "Why it has no estimate."]
    is_applied: Annotated[bool, "Whether only an estimate of it alone is missing."] = False
    is_refused: Annotated[bool, "Whether it cannot be predicted."] = False


class WhatIf(Result, frozen=True):
    """The answer to `whatif`. Where it is refused, fields that need the replay are None or empty."""

    status: Annotated[Literal["ok", "refused"], "Whether the trace allows estimates."]
    reason: Annotated[str | None, "Why not; None where it does."]
    device: Annotated[int | str | None, "The device whose steps these are."]
    steps: Annotated[int, "Steady steps; 0 where the window is predicted."]
    step_ns: Annotated[
        float | None, "The recorded step, ns: mean distance of the steady steps' last activity ends, or the window."
    ]
    changes: Annotated[tuple[Change, ...], "Changes that were asked for."] = ()
    replay: Annotated[Identity | None, "The replay without changes, not anchored."] = None
    cpu_floor_ns: Annotated[float | None, "The step with an infinitely fast device, ns."] = None
    device_floor_ns: Annotated[float | None, "The step with an infinitely fast CPU, ns."] = None
    predicted: Annotated[Prediction | None, "The step with all changes; without changes that of the replay."] = None
    scenarios: Annotated[tuple[Scenario, ...], "Each change alone."] = ()
    critical_path: Annotated[tuple[PathPart, ...], "Parts of the path under the changes, the longest first."] = ()
    skipped: Annotated[tuple[Skipped, ...], "Changes without an estimate."] = ()
    levers: Annotated[tuple[Lever, ...], "What each resource can bring, the largest saving first."] = ()
    memory: Annotated[BatchMemory | None, "Memory with another batch; None without one, or without a record."] = None

    @property
    def saves_ratio(self) -> float:
        """Return the share of the recorded step that the changes save; 0 without a replay or a change."""
        if self.predicted is None or not self.step_ns:
            return 0.0
        return 1 - self.predicted.step_ns / self.step_ns

    def document(self) -> dict[str, Any]:
        """Return the content of `to_json` in JSON's own types; docs/whatif.md describes it."""
        return {
            "schema_version": SCHEMA_VERSION,
            "status": self.status,
            "reason": self.reason,
            "device": self.device,
            "steps": self.steps,
            "step_ns": self.step_ns,
            "replay": self.replay and asdict(self.replay),
            "floors": None if self.cpu_floor_ns is None else {"cpu_ns": self.cpu_floor_ns, "device_ns": self.device_floor_ns},
            "changes": [{"name": c.name, "options": _plain(c.options)} for c in self.changes],
            "predicted": self.predicted and asdict(self.predicted),
            "scenarios": [
                {**asdict(s), "options": _plain(s.options), "refused": None} for s in self.scenarios
            ] + [
                {
                    "name": s.name, "options": _plain(s.options), "label": Change(s.name, s.options).label, "what": what_of(s.name),
                    **dict.fromkeys(("step_ns", "low_ns", "high_ns", "saves_ratio")), "is_known": False, "refused": s.reason,
                }
                for s in self.skipped if s.is_refused
            ],
            "critical_path": [
                {**asdict(p), "speedups": dict(p.speedups)}
                for p in self.critical_path
            ],
            "levers": [asdict(lever) for lever in self.levers],
            "memory": self.memory and asdict(self.memory),
            "skipped": [{"name": s.name, "options": _plain(s.options), "reason": s.reason} for s in self.skipped],
        }  # fmt: skip

    @property
    def refused(self) -> Mapping[str, str]:
        """Return the standard changes that cannot be predicted, as text by reason."""
        return by_reason(self.skipped)

    @property
    def helpful(self) -> tuple[Scenario, ...]:
        """Return the changes that save at least `WORTH_RATIO`, in the order of `helpful`."""
        return helpful(self.step_ns or 0.0, self.scenarios)


def helpful(now_ns: float, scenarios: Iterable[Scenario]) -> tuple[Scenario, ...]:
    """Return the changes that save at least `WORTH_RATIO` of the present step, in the order of advice (`middle_ratio`)."""
    worth = (s for s in scenarios if s.what == "change" and s.saves_ratio >= WORTH_RATIO)
    return tuple(sorted(worth, key=lambda s: -middle_ratio(now_ns, s.low_ns, s.high_ns)))


def _plain(options: Mapping[str, float | str]) -> dict[str, float | str]:
    """Return options in JSON's types: an infinite factor becomes the text ``inf``."""
    return {name: "inf" if value == inf else value for name, value in options.items()}


def changes_of(
    *,
    no_sync: bool = False,
    pinned: bool = False,
    prefetch: int | Literal["auto"] | None = None,
    graphs: bool = False,
    fuse: bool | str = False,
    tf32: bool = False,
    bf16: bool = False,
    overlap: bool = False,
    overlap_copies: bool = False,
    buckets: bool = False,
    batch: float | None = None,
    warm: bool | str = False,
    speedup: Mapping[str, float] | None = None,
) -> tuple[Change, ...]:
    """Return the changes that the options name; ``fuse`` and ``warm`` may name a single part (`CHANGE_PARTS`).

    Raises ``UsageError`` for invalid numbers and parts. ``prefetch="auto"`` takes the fewest workers that suffice.
    """
    for name, part in (("fuse", fuse), ("warm", warm)):
        if isinstance(part, str) and part not in CHANGE_PARTS[name]:
            raise UsageError(f"{name} {printable(part)}: no part of it; there are {', '.join(CHANGE_PARTS[name])}")
    flags: Mapping[str, bool | str] = {
        "no-sync": no_sync,
        "pinned": pinned,
        "warm": warm,
        "fuse": fuse,
        "tf32": tf32,
        "bf16": bf16,
        "overlap": overlap,
        "overlap-copies": overlap_copies,
        "buckets": buckets,
        "graphs": graphs,
    }
    if tf32 and bf16:
        raise UsageError("tf32 and bf16 exclude each other: work in bfloat16 is not in TF32")
    if prefetch is not None and prefetch != AUTO and not (isinstance(prefetch, int) and 1 <= prefetch <= MOST_WORKERS):
        raise UsageError(f"prefetch {printable(str(prefetch))}: a number of workers from 1 to {MOST_WORKERS}, or auto")
    if batch is not None and not 1 / LARGEST_FACTOR <= batch <= LARGEST_FACTOR:
        raise UsageError(f"batch {batch:g}: the factor must be a number over 0, at most {LARGEST_FACTOR:g}")
    for name, factor in (speedup or {}).items():
        if factor != inf and not 1 / LARGEST_FACTOR <= factor <= LARGEST_FACTOR:
            raise UsageError(f"speedup {name}={factor:g}: the factor must be over 0, at most {LARGEST_FACTOR:g} or inf")
    return (
        *(
            Change(name, {PART_OPTION[name]: wanted} if isinstance(wanted, str) else {})
            for name, wanted in flags.items()
            if wanted
        ),
        *([] if prefetch is None else [Change("prefetch", {"workers": prefetch})]),
        *([] if batch is None else [Change("batch", {"times": float(batch)})]),
        *(
            Change("speedup", {"target": target_key(name), "factor": float(factor)})
            for name, factor in (speedup or {}).items()
        ),
    )


def _measured_ns(report: Report) -> float | None:
    """Return the step without the profiler that the report's estimates begin with, ns; None where it was not measured."""
    unbiased, known = report.verdict.debiased, report.tables["what_would_help"].filter(kind="now")
    is_measured = unbiased is not None and unbiased.is_measured
    return known.item(0, "step_ns") if is_measured and known.height else None


def _batch_memory(report: Report, changes: tuple[Change, ...], snapshot: Memory | None) -> BatchMemory | None:
    """Return the memory with the batch that is asked for, by the snapshot or the trace's own events; None without these."""
    times = next((float(change.options["times"]) for change in changes if change.name == "batch"), None)
    if times is None:
        return None
    levels, reason = report.tables["memory_levels"], None
    if snapshot is not None:
        levels = growing(snapshot.levels, snapshot.lives)
        reason = next((note.message for note in snapshot.notes if note.severity != "info"), None)
    return batch_memory(levels, report.verdict.device, times, _memory_bytes(report), reason)


def _memory_bytes(report: Report) -> int | None:
    return next(each.memory_bytes for each in report.trace.devices if each.index == report.verdict.device)


def whatif(
    report: Report, changes: tuple[Change, ...] = (), *, snapshot: Memory | None = None, replay: Replay | None = None
) -> WhatIf:
    """Return the effect of the changes, or of each standard change, on the judged device of an analysed trace.

    ``snapshot`` is the allocator's record of the same program, for the memory that another batch takes; ``replay`` is the
    report's own. Raises ``UsageError`` where a change names something that the trace lacks.
    """
    index = report.verdict.device
    device = device_code(report, index)
    if device is None:
        unseen = _NO_DEVICE if report.verdict.status == "cpu-run" else report.verdict.headline
        return WhatIf("refused", unseen, index, 0, None, changes)
    if report.tables["activities"].filter(pl.col("device") == device).is_empty():
        return WhatIf("refused", _NO_DEVICE, index, 0, None, changes)
    replay = replay or Replay.of(report, device, _measured_ns(report), _memory_bytes(report))
    changes = settled(replay, changes)
    steps = int(replay.graph.recorded.steps.steady.sum())
    refused = WhatIf(
        "refused",
        None,
        index,
        steps,
        replay.identity.step_ns,
        changes,
        replay.summary,
        memory=_batch_memory(report, changes, snapshot),
    )
    reason = refusal(report, replay, device, changes)
    if reason is not None:
        return replace(refused, reason=reason)
    kept, skipped = [], []
    for change in changes:
        try:
            replay.weights((change,))
            kept.append(change)
        except NothingToChange as error:
            skipped.append(Skipped(change.name, change.options, str(error)))
        except UnknownTarget as error:
            raise UsageError(f"speedup: {error}") from None
        except NotApplicable as error:
            return replace(refused, reason=str(error))
    applied = tuple(kept)
    try:
        predicted = replay.predict(applied)
    except NotApplicable as error:
        return replace(refused, reason=str(error))
    if changes:
        scenarios, left_out = _scenarios(replay, applied)
    else:
        scenarios, left_out = _standard(replay, partial(barred, report, replay.graph.recorded))
    cpu_floor, device_floor = replay.floors
    parts = path_parts(replay, applied)
    return replace(
        refused,
        status="ok",
        cpu_floor_ns=cpu_floor,
        device_floor_ns=device_floor,
        predicted=predicted,
        scenarios=tuple(scenarios),
        critical_path=parts if applied else located(parts, report.tables["critical_path"]),
        skipped=(*skipped, *left_out),
        levers=report.verdict.levers,
    )


def path_parts(replay: Replay, changes: tuple[Change, ...] = (), rows: int = 8) -> tuple[PathPart, ...]:
    """Return the parts of the critical path under changes, longest first."""
    label_ns, curves = replay.parts(changes)
    total = max(float(label_ns.sum()), 1.0)
    return tuple(
        PathPart(
            "device" if label >= FIRST_DEVICE else "host" if label < len(HOST_PARTS) else "dependency",
            replay.known.labels[label], float(label_ns[label]), float(label_ns[label]) / total, curve,
        )
        for label, curve in islice(curves, rows)
    )  # fmt: skip


def located(parts: tuple[PathPart, ...], stretches: pl.DataFrame) -> tuple[PathPart, ...]:
    """Return parts of the unchanged path with the code that takes most of each, from table `critical_path`."""
    code = ["operator", "module", "python_function"]
    path = stretches.select("name", *code, "start_ns", "end_ns", LENGTH_NS.alias("ns"))
    known = path.select("name", *code, "ns").filter(pl.any_horizontal(pl.col(code).is_not_null()))
    numbers, firsts = factorize(*known.select("name", *code))
    ns = sum_by_group(numbers, known.get_column("ns"), firsts.len()).alias("ns")
    sums = known[firsts].select(pl.col("name", *code).cast(pl.String)).with_columns(ns)
    sums = sums.sort("ns", *code, descending=[True, False, False, False]).drop("ns")
    names = {row.pop("name"): row for row in sums.unique("name", keep="first", maintain_order=True).to_dicts()}
    longest = path.filter(pl.col("ns") == pl.col("ns").max().over("name")).select("name", "start_ns", "end_ns")
    longest = longest.sort("start_ns").unique("name", keep="first", maintain_order=True)
    places = {row.pop("name"): row for row in longest.to_dicts()}
    return tuple(replace(part, **names.get(part.name, {}), **places.get(part.name, {})) for part in parts)


def by_reason(skipped: Sequence[Skipped]) -> Mapping[str, str]:
    """Return the changes that cannot be predicted, as text by reason."""
    labels: dict[str, list[str]] = {}
    for one in skipped:
        if one.is_refused:
            labels.setdefault(one.reason, []).append(Change(one.name, one.options).label)
    return {reason: ", ".join(named) for reason, named in labels.items()}


def standard_changes() -> tuple[Change, ...]:
    """Return the changes that are estimated when none is requested: of `fuse` each kind, as in the advice."""
    options: dict[str, list[dict[str, float | str]]] = {
        "prefetch": [{"workers": AUTO}],
        "fuse": [{PART_OPTION["fuse"]: kind} for kind in CHANGE_PARTS["fuse"]],
    }
    return tuple(Change(name, each) for name in _PROGRAM for each in options.get(name, [{}]))


def least_workers(replay: Replay) -> int | None:
    """Return the fewest workers that load data as fast as a step without loading; None where that is not known.

    Workers that exist already are not recorded, so their number is not known. Some pipelines take one alone.
    """
    if replay.scene.has_workers:
        return None
    if replay.scene.takes_one_worker:
        return 1
    try:
        loading_ns = replay.weights((Change("prefetch", {"workers": 1}),)).at_least_ns
        without_ns = replay.step((Change("prefetch", {"workers": inf, "reach": "never"}),))
    except NotApplicable:
        return None
    return max(1, ceil(loading_ns / without_ns)) if without_ns else None


def settled(replay: Replay, changes: Sequence[Change]) -> tuple[Change, ...]:
    """Return the changes with `least_workers` as the number of workers where it is ``auto``, and known."""
    return tuple(change.with_workers(lambda: least_workers(replay)) for change in changes)


def _scenarios(replay: Replay, applied: tuple[Change, ...]) -> tuple[list[Scenario], list[Skipped]]:
    """Return each requested change alone, to compare its effect with that of all."""
    scenarios, skipped = [], []
    for change in applied:
        try:
            scenarios.append(scenario(replay.identity.step_ns, change, replay.predict((change,))))
        except NotApplicable as error:
            skipped.append(Skipped(change.name, change.options, str(error), is_applied=True))
    return scenarios, skipped


def _standard(replay: Replay, barred: Callable[[Change], str | None]) -> tuple[list[Scenario], list[Skipped]]:
    """Return the standard scenarios, shortest step first, and the changes without anything to act on."""
    asked = list(standard_changes())
    asked += [Change("speedup", {"target": target, "factor": 2.0}) for target in _SENSITIVE]
    predictions, skipped = predict_each(replay, asked, barred)
    scenarios = [scenario(replay.identity.step_ns, change, predicted) for change, predicted in predictions]
    return sorted(scenarios, key=lambda one: one.step_ns), skipped


def predict_each(
    replay: Replay, changes: Sequence[Change], barred: Callable[[Change], str | None]
) -> tuple[list[tuple[Change, Prediction]], list[Skipped]]:
    """Return the step with each change alone, and the reasons for changes without one.

    ``barred`` returns why a change has none whatever it does. A change of a part that the trace lacks is in neither list.
    """
    predictions: list[tuple[Change, Prediction]] = []
    skipped: list[Skipped] = []
    for change in settled(replay, changes):
        if (reason := barred(change)) is not None:
            skipped.append(Skipped(change.name, change.options, reason, is_refused=True))
            continue
        try:
            predictions.append((change, replay.predict((change,))))
        except UnknownTarget:
            continue
        except NotApplicable as error:
            is_refused = not isinstance(error, NothingToChange)
            skipped.append(Skipped(change.name, change.options, str(error), is_refused=is_refused))
    now = replay.identity.step_ns
    if any(change == Change("warm") and then.step_ns < COLD_RATIO * now for change, then in predictions):
        skipped += [Skipped(c.name, c.options, _COLD, is_refused=True) for c, _ in predictions if c.name == "graphs"]
        predictions = [pair for pair in predictions if pair[0].name != "graphs"]
    return predictions, skipped


def what_of(name: str) -> Literal["change", "sensitivity"]:
    """Return whether a change is one of the program, or only shows how much a part matters."""
    return "sensitivity" if name == "speedup" else "change"


def scenario(now: float, change: Change, predicted: Prediction) -> Scenario:
    """Return a change and its estimate, with what it saves of the step ``now``, ns."""
    saves = 1 - predicted.step_ns / now if now else 0.0
    return Scenario(
        change.name, change.options, change.label, what_of(change.name), predicted.step_ns, predicted.low_ns, predicted.high_ns, saves,
        is_saving_known(now, predicted.step_ns, predicted.low_ns, predicted.high_ns),
    )  # fmt: skip
