"""Judge a job from the summaries of its ranks."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path, PurePosixPath
from typing import Annotated, TypeVar

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from trace_analyzer import results, units
from trace_analyzer.compare import judgement, statistics
from trace_analyzer.installation import tool_version
from trace_analyzer.ranks import engine, files, lateness, waits
from trace_analyzer.ranks.clocks import Alignment, Clock, RankClock, align, hosts_of
from trace_analyzer.ranks.joining import PART_ROWS, Joined, Problem, joined, misnamed
from trace_analyzer.ranks.stragglers import (
    Pipeline,
    Slowdown,
    Straggler,
    imbalance,
    own_work,
    pipeline,
    sentence,
    slowdown,
    stragglers,
    with_problems,
)
from trace_analyzer.ranks.summary import from_bytes, mean_levers, separate, with_ranks
from trace_analyzer.redact import Redaction
from trace_analyzer.report import Lever

SCHEMA_VERSION = 1
_MOST_UNEVEN = 20


class Job(Struct, frozen=True):
    """The verdict on the job. Times are means over ranks and steady steps."""

    sentence: Annotated[str, "The verdict in a sentence."]
    regime: Annotated[str | None, "Regime of most ranks; null where none has one."]
    world_size: Annotated[int | None, "Number of ranks of the job; null where no trace records it."]
    seen: Annotated[int, "Ranks whose traces are used."]
    step_ns: Annotated[float | None, "Time of a step, ns; null where no rank has steps."]
    parts_ns: Annotated[Mapping[str, float], "Parts of the step, ns."]
    waiting_ns: Annotated[float | None, "Exposed waiting in collectives that could be split, ns per step."]
    transfer_ns: Annotated[float | None, "Exposed transfer in collectives that could be split, ns per step."]
    recording_ns: Annotated[
        float | None,
        "What recording takes of the step, by the measured step; else at least, by the rank that it slows most, ns; null where none tells it.",
    ] = None
    measured_step_ns: Annotated[
        float | None, "Time of a step without the profiler, ns; null where it is not given."
    ] = None
    levers: Annotated[tuple[Lever, ...], "Means of the ranks' levers, the largest saving first; may be empty."] = ()

    @property
    def part_ratios(self) -> Mapping[str, float]:
        """Return the share of each part in the step; empty where the step's length is unknown."""
        return {part: ns / self.step_ns for part, ns in self.parts_ns.items()} if self.step_ns else {}


class OfStep(Struct, frozen=True):
    """What collectives take of a rank's step: means of its steady steps, or its window where none repeats."""

    wait_ns: Annotated[float, "Waiting in collectives that could be split, ns."]
    transfer_ns: Annotated[float, "Transfer in collectives that could be split, ns."]
    exposed_ns: Annotated[float, "The part of both that no other work hides, ns."]
    late_ns: Annotated[float, "Lateness that the rank itself caused, ns."]


class Rank(Struct, frozen=True):
    """One rank and the figures of its trace, as far as it could be read.

    All times except ``step_ns`` and ``of_step`` are sums over its trace. Exposed time is time that no other work hides.
    """

    rank: Annotated[int | None, "Number of the rank; null where it is not known."]
    host: Annotated[str | None, "Host that it ran on; null where it is not recorded."]
    path: Annotated[str, "File of its trace."]
    status: Annotated[str, "Whether its trace is used, or why not."]
    step_ns: Annotated[float | None, "Mean time of a step, ns."]
    regime: Annotated[str | None, "Regime of its verdict."]
    cause: Annotated[str | None, "Cause of that regime."]
    levers: Annotated[tuple[Lever, ...], "What each resource can bring, by its own trace; empty without a replay."]
    wait_ns: Annotated[int | None, "Waiting in collectives that could be split, ns."]
    transfer_ns: Annotated[int | None, "Transfer in collectives that could be split, ns."]
    exposed_wait_ns: Annotated[int | None, "Exposed part of the waiting, ns."]
    exposed_transfer_ns: Annotated[int | None, "Exposed part of the transfer, ns."]
    unsplit_ns: Annotated[int | None, "All other communication, ns."]
    late_ns: Annotated[int | None, "Lateness that the rank itself caused, ns."]
    of_step: Annotated[OfStep | None, "The same times of a step; null where nothing could be split."]
    led_ratio: Annotated[float | None, "Share of its split collectives in which it arrived last."]
    role: Annotated[str | None, "Name of the ranks that make the same calls."]
    named_rank: Annotated[
        int | None, "Rank in the file's name, where that is another; null else. The trace counts."
    ] = None


class Unsplit(Struct, frozen=True):
    """Communication kernels that could not be split into waiting and transfer."""

    reason: Annotated[str, "Why they could not."]
    collectives: Annotated[int, "Kernels on all ranks."]
    total_ns: Annotated[int, "Their time on all ranks, ns."]


class Matches(Struct, frozen=True):
    """How many communication kernels are matched with those of other ranks, and by which method."""

    matched: Annotated[int, "Kernels with peers."]
    unmatched: Annotated[int, "Kernels without peers."]
    by: Annotated[Mapping[str, int], "Matched kernels by method: seq, comms-id, order, pair or ends."]
    residual_ns: Annotated[
        int | None, "95 % of their ends lie no further from the middle end of their collective, ns; null without any."
    ]
    unsplit: Annotated[tuple[Unsplit, ...], "Those that are neither waiting nor transfer, longest first."] = ()
    total_ns: Annotated[int, "Time of all of them on all ranks, ns."] = 0

    @property
    def unsplit_ns(self) -> int:
        """Return the time of those that are neither waiting nor transfer, ns."""
        return sum(item.total_ns for item in self.unsplit)


class Uneven(Struct, frozen=True):
    """An operator whose time differs between the ranks of a role."""

    role: Annotated[str, "Role of the ranks."]
    operator: Annotated[str | None, "Operator; null where none launched the kernels."]
    category: Annotated[str, "Bucket of its kernels."]
    ranks: Annotated[int, "Ranks that run it."]
    mean_ns: Annotated[float, "Mean time over the ranks, ns per step."]
    max_ns: Annotated[float, "Time of the slowest rank, ns per step."]
    max_rank: Annotated[int, "The slowest rank."]
    ratio: Annotated[float, "(max - mean) / max."]


class GroupInfo(Struct, frozen=True):
    """A process group."""

    name: Annotated[str, "Name that PyTorch gave it."]
    description: Annotated[str | None, "Its description; null where none is recorded."]
    size: Annotated[int | None, "Ranks in it; null where it is not known."]
    ranks: Annotated[tuple[int, ...], "Its ranks; empty where they are not known."]
    collectives: Annotated[int, "Collectives that were recorded."]
    time_ns: Annotated[int, "Time of these on all ranks, ns."]


class JobReport(results.Result, frozen=True):
    """The analysis of a job from the traces of its ranks."""

    PLOTTED = ("by_step", "rows", "steps", "rank_clocks")

    schema_version: Annotated[int, "Version of this schema."]
    tool_version: Annotated[str, "Version of the program that wrote it."]
    job: Annotated[Job, "Verdict on the job."]
    problems: Annotated[tuple[Problem, ...], "Ranks that are missing or whose traces are not used."]
    ranks: Annotated[tuple[Rank, ...], "The ranks."]
    stragglers: Annotated[tuple[Straggler, ...], "Ranks that others wait for."]
    clocks: Annotated[tuple[Clock, ...], "Clocks of the hosts against the first one's."]
    collectives: Annotated[Matches, "How many communication kernels are matched."]
    groups: Annotated[tuple[GroupInfo, ...], "Process groups."]
    slowdown: Annotated[
        Slowdown | None, "What keeps steps longer than even ranks would take; null for too few steps or ranks."
    ]
    pipeline: Annotated[Pipeline | None, "The pipeline; null without pipeline parallelism."]
    imbalance: Annotated[tuple[Uneven, ...], "Operators whose time differs between ranks."]
    notes: Annotated[tuple[str, ...], "What to know before trusting it."]
    by_step: Annotated[pl.DataFrame, "Frame of ranks by steps, for plots; no part of the JSON."] = pl.DataFrame()
    rows: Annotated[pl.DataFrame, "Frame of collectives, for plots; no part of the JSON."] = pl.DataFrame()
    steps: Annotated[pl.DataFrame, "Frame of steps, for plots; no part of the JSON."] = pl.DataFrame()
    rank_clocks: Annotated[Mapping[int, RankClock], "Clock of each rank, for timelines; no part of the JSON."] = {}

    @property
    def unit(self) -> str:
        """Return what figures are of: a step, or the window where steps do not repeat."""
        return _unit(self.steps)


def _unit(steps: pl.DataFrame) -> str:
    return "step" if steps.is_empty() or steps.get_column("is_steady").any() else "window"


def judge(
    contents: Sequence[bytes],
    *,
    part_rows: int = PART_ROWS,
    hides_hosts: bool = False,
    measured_step_ms: float | None = None,
) -> JobReport:
    """Judge a job from summaries of `summarize`, in any order; ``part_rows`` collectives at a time.

    Hidden hosts get numbers as names. ``measured_step_ms`` is the step without the profiler.
    """
    together = joined(contents, part_rows)
    if all(summary.is_little for summary in together.ranks):  # one rule for all, as waits alone make one's work longer
        together = replace(together, ranks=tuple(replace(s, regime=None, cause=None) for s in together.ranks))
    with closing(together.collectives) as spool:
        aligned = align(spool.sample(), *hosts_of(together.ranks, hides_hosts))
        doubt_ns = 2 * (aligned.residual_ns or 0)  # for a rank's end and for the median end
        totals = waits.reduced(spool, aligned, together.world_size, doubt_ns)
        groups, sends = spool.groups(), spool.pairs()
    by_step = totals.by_step
    role_of = judgement.roles(together.work)
    named_roles = pl.DataFrame(
        {"rank": list(role_of), "role": list(role_of.values())}, schema={"rank": pl.Int64(), "role": pl.String()}
    )
    known = [summary.step_ns for summary in together.ranks if summary.step_ns is not None]
    step_ns = sum(known) / len(known) if known else None
    measured_ns = None if measured_step_ms is None else measured_step_ms * units.NS_PER_MS
    late, floor = lateness.late_ranks(by_step, totals.rows, max(doubt_ns, statistics.FLOOR_RATIO * (step_ns or 0)))
    recording = {s.rank: s.recording_ns for s in together.ranks if s.rank is not None and s.recording_ns is not None}
    named = stragglers(
        late, aligned.hosts, role_of, lambda rank: from_bytes(contents[together.places[rank]]).profile, recording
    )
    steady = _of_step(by_step, together)
    exposed = pl.col("exposed_wait_ns", "exposed_transfer_ns").sum() / pl.col("steps").sum()
    waiting, transfer = steady.select(exposed).row(0) if steady.get_column("exposed_wait_ns").count() else (None, None)
    parts = _parts(together.parts)
    uneven = imbalance(together.work, named_roles, statistics.FLOOR_RATIO * (step_ns or 0)).head(_MOST_UNEVEN)
    unsplit = tuple(Unsplit(waits.UNSPLIT[reason], *rest) for reason, *rest in totals.unsplit.iter_rows())
    spent = int(by_step.get_column("communication_ns").sum())
    counts = Matches(totals.matched, totals.unmatched, totals.by, aligned.residual_ns, unsplit, spent)
    regimes = Counter(summary.regime for summary in together.ranks if summary.regime is not None)
    regime = max(sorted(regimes), key=lambda name: regimes[name]) if regimes else None
    kind = slowdown(own_work(together.parts), named_roles, (transfer or 0) / step_ns if step_ns else 0.0)
    seen = len(together.ranks)
    verdict = sentence(
        named,
        matched=counts.matched,
        seen=seen,
        floor_ns=floor,
        regime=regime,
        waiting_ratio=(waiting or 0) / step_ns if step_ns else None,
        step_ns=step_ns,
        unit=_unit(together.steps),
        waited=lateness.waited_for(totals.rows),
    )
    return JobReport(
        schema_version=SCHEMA_VERSION,
        tool_version=tool_version(),
        job=Job(
            with_problems(verdict, together.problems, seen),
            regime,
            together.world_size,
            seen,
            step_ns,
            parts,
            waiting,
            transfer,
            max(recording.values(), default=None)
            if measured_ns is None or step_ns is None
            else max(step_ns - measured_ns, 0.0),
            measured_ns,
            mean_levers(together.ranks),
        ),
        problems=together.problems,
        ranks=_ranks(together, aligned, by_step, steady, role_of, hides_hosts),
        stragglers=named,
        clocks=aligned.clocks,
        collectives=counts,
        groups=_groups(together, groups),
        slowdown=kind,
        pipeline=pipeline(sends, by_step, together.parts, role_of),
        imbalance=tuple(Uneven(**row) for row in uneven.iter_rows(named=True)),
        notes=_notes(together, aligned, counts),
        by_step=by_step,
        rows=totals.rows,
        steps=together.steps,
        rank_clocks=aligned.rank_clocks(together.ranks, together.origin_ns),
    )


def _parts(parts: pl.DataFrame) -> dict[str, float]:
    """Return the mean of each part over ranks and steady steps, longest first."""
    steps = parts.select("rank", "step").unique().height
    sums = parts.group_by("part").agg(pl.col("total_ns").sum()).sort("total_ns", "part", descending=[True, False])
    return {part: total / steps for part, total in sums.iter_rows()}


def _of_step(by_step: pl.DataFrame, together: Joined) -> pl.DataFrame:
    """Return rank, steps (their number), and sums of times over its steady steps, null where nothing could be split.

    A rank without steady steps has one window, in which all of its steps lie.
    """
    times = ("wait_ns", "transfer_ns", "exposed_wait_ns", "exposed_transfer_ns", "own_late_ns")
    steady = together.parts.select("rank", "step").unique()
    key = ["rank", "step"] if steady.get_column("step").count() else ["rank"]
    own = steady.join(by_step.filter(pl.col("split") > 0), on=key, how="inner", nulls_equal=True)
    sums = own.group_by("rank").agg(pl.col(times).sum())
    steps = steady.group_by("rank").agg(pl.len().alias("steps"))
    return steps.join(sums, on="rank", how="left")


def _ranks(
    together: Joined,
    matched: Alignment,
    by_step: pl.DataFrame,
    steady: pl.DataFrame,
    role_of: Mapping[int, str],
    hides_hosts: bool,
) -> tuple[Rank, ...]:
    times = ("wait_ns", "transfer_ns", "exposed_wait_ns", "exposed_transfer_ns", "unsplit_ns")
    names = (*times, "own_late_ns", "split", "led")
    sums = {row["rank"]: row for row in by_step.group_by("rank").agg(pl.col(names).sum()).iter_rows(named=True)}
    exposed = pl.col("exposed_wait_ns") + pl.col("exposed_transfer_ns")
    of_steps = steady.drop_nulls().select("rank", "steps", "wait_ns", "transfer_ns", exposed, "own_late_ns")
    of_step = {rank: OfStep(*(ns / steps for ns in own)) for rank, steps, *own in of_steps.iter_rows()}
    problems = {problem.path: problem.kind for problem in together.problems if problem.path is not None}
    other_names = misnamed(together.ranks)
    ranks = []
    for place, summary in enumerate((*together.ranks, *together.left_out)):
        used = summary.rank if place < len(together.ranks) and summary.rank is not None else -1
        row = sums.get(used, {})
        own = {name: row[name] if row.get("split") else None for name in names}
        ranks.append(
            Rank(
                rank=summary.rank,
                host=matched.hosts.get(used) if used >= 0 else None if hides_hosts else summary.host,
                path=summary.path,
                status=problems.get(summary.path, "ok"),
                step_ns=summary.step_ns,
                regime=summary.regime,
                cause=summary.cause,
                levers=summary.levers,
                **{name: own[name] for name in times},
                late_ns=own["own_late_ns"],
                of_step=of_step.get(used),
                led_ratio=own["led"] / own["split"] if own["split"] else None,
                role=role_of.get(used),
                named_rank=other_names.get(used),
            )
        )
    return tuple(ranks)


def _groups(together: Joined, sums: pl.DataFrame) -> tuple[GroupInfo, ...]:
    """Return the process groups with recorded collectives, in the order of ``sums`` (group, time_ns, collectives)."""
    known = {group.key: group for summary in together.ranks for group in summary.groups}
    return tuple(
        GroupInfo(group.name, group.description, group.size, group.ranks, count, time)
        for key, time, count in sums.iter_rows()
        for group in [known[key]]
    )


def _notes(together: Joined, matched: Alignment, counts: Matches) -> tuple[str, ...]:
    notes = []
    if together.ranks and not all(summary.host for summary in together.ranks):
        notes.append("traces do not name their hosts: clocks are distinguished by " + (
            "rank" if matched.clocks and matched.clocks[0].host.startswith("rank ") else "eight consecutive ranks"
        ))  # fmt: skip
    notes += matched.notes(has_devices=together.parts.height > 0)
    if any(summary.steps_from not in (None, "ProfilerStep") for summary in together.ranks):
        notes.append("steps are not marked by prof.step(): their numbers may differ between ranks")
    if not counts.matched and counts.unmatched:
        notes.append("no collective of two ranks could be matched: waits are not known")
    return tuple(notes)


_HANDLER_NAME = re.compile(r"[^/]+?(?=_\d+\.\d+\.pt\.trace\.json)")
"""The host in a file name of ``tensorboard_trace_handler``."""
T = TypeVar("T", Rank, Problem)


def redacted(report: JobReport, sources: Sequence[str]) -> JobReport:
    """Return the report of `judge` with ``hides_hosts``, containing only data known to be harmless.

    ``sources`` are the user's paths, patterns and addresses.
    """
    redaction = Redaction(*sources)

    def named(item: T) -> T:
        if item.path is None:
            return item
        name = PurePosixPath(item.path.replace("\\", "/")).name
        return replace(item, path=redaction.text(_HANDLER_NAME.sub("host", name)))

    ranks = tuple(named(rank) for rank in report.ranks)
    problems = tuple(named(replace(p, message=redaction.text(p.message))) for p in report.problems)
    clean = redaction.result(replace(report, ranks=(), problems=()))
    return replace(
        clean, ranks=tuple(replace(redaction.result(rank), path=rank.path) for rank in ranks), problems=problems
    )


def analyze_ranks(
    source: str | Path | Sequence[str | Path],
    *,
    executor: engine.Executor | None = None,
    workers: int | None = None,
    progress: engine.Progress | None = None,
    redact: bool = False,
    rank_of: str | None = None,
    measured_step_ms: float | None = None,
) -> JobReport:
    """Judge a job: which rank is late, how often, by how much, why, and the gain of a fix.

    Parameters
    ----------
    source: a folder, a pattern (``"traces/*rank*.json.gz"``), an address that fsspec knows (``"s3://..."``), or several of them. Each file is the trace
        of one rank, or its summary (``*.rank.gz``).
    executor: runs ``submit(function, path).result()``: a `concurrent.futures` executor, a `dask.distributed.Client`, ...; new processes by default.
    workers: processes of the default executor, or ranks that the given one has at a time.
    progress: called with (stage, fraction or None).
    rank_of: a regular expression whose first group is the rank in a file's path, instead of what the trace says.
    measured_step_ms: time of a step without the profiler, ms, as in a log: what recording takes is then known.
    redact: keep only what is known to be harmless: hosts get numbers, and other names, directories and addresses go as in a redacted report.

    A file that cannot be read is a problem of the report, never an exception. Raises ``UsageError`` where a source names no file.
    """
    several = [source] if isinstance(source, str | Path) else list(source)
    sources = [str(item) for item in several]
    read = engine.summaries(files.files_of(sources), executor, workers=workers, progress=progress)
    contents = with_ranks([each for content in read for each in separate(content)], rank_of)
    if progress is not None:
        progress("judging the job", None)
    report = judge(contents, hides_hosts=redact, measured_step_ms=measured_step_ms)
    return redacted(report, sources) if redact else report
