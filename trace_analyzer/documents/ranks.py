"""Describe the report on a job as a document."""

from collections.abc import Sequence
from itertools import compress

from trace_analyzer.documents import Chapter, Document, Notes, PlainTable, largest_lever, savings_of
from trace_analyzer.ranks.job import JobReport, Rank
from trace_analyzer.ranks.joining import Problem
from trace_analyzer.ranks.stragglers import WHOLE, Pipeline
from trace_analyzer.units import capitalized, count, counted, duration, percent, runs
from trace_analyzer.vocabulary import REGIMES, phrase

_RANKS, _PROBLEMS, _HOSTS, _UNEVEN, _GROUPS, _STAGES = 16, 8, 8, 6, 8, 8
"""Rows in text and Markdown."""
_MOST = 200
"""Rows on the page."""
_KINDS = {
    "missing": "missing", "failed": "could not be read", "cut": "are cut", "duplicate": "are there twice", "foreign": "are not of this job",
}  # fmt: skip
_SLOWDOWN = {
    "worker": "one rank works longer than the others",
    "data": "work differs from step to step, as that of uneven data does",
    "stages": "ranks of one role work longer than those of the others",
    "network": "ranks work evenly; transfer takes what is left",
    "even": "ranks work evenly",
}


def document(report: JobReport) -> Document:
    """Return the document: problems, late ranks, ranks, figures of the job, and its tables."""
    job, matches = report.job, report.collectives
    means = ", in the mean of its steady ones" if report.unit == "step" else ""
    times = f"Times are of a {report.unit}{means}. Exposed: what no other work hides of wait and transfer."
    of = f" of {job.world_size}" if job.world_size else ""
    return Document(
        f"{job.seen}{of} ranks",
        job.sentence,
        (
            Chapter("problems", "Problems", [Notes(doubt_lines(report), "warning")]),
            Chapter(
                "late",
                "Late ranks",
                _late(report),
                f"Means of the {report.unit}s in which they are late; last in: of all collectives.",
            ),
            Chapter("ranks", "Ranks", [_ranks(report)], times),
            Chapter("figures", "The job", [Notes([*_figures(report), *map(capitalized, report.notes)])]),
            Chapter("uneven", "Uneven operators", [_uneven(report)]),
            Chapter("pipeline", "Pipeline", _pipeline(report.pipeline, report.unit) if report.pipeline else []),
            Chapter("groups", "Process groups", [_groups(report)]),
            Chapter("clocks", "Clocks", [_clocks(report)] if len(report.clocks) > 1 else []),
        ),
        [f"{count(matches.matched)} of {count(matches.matched + matches.unmatched)} collectives matched"],
        job.regime if job.regime is not None and job.regime in REGIMES else "",
    )


def doubt_lines(report: JobReport) -> list[str]:
    """Return the problems of a job by kind, then files with another rank in their name."""
    named = [rank for rank in report.ranks if rank.named_rank is not None]
    lines = problem_lines(report.problems)
    lines += [f"misnamed: {rank.path} is of rank {rank.rank}, not {rank.named_rank}: the trace counts" for rank in named[:_PROBLEMS]]  # fmt: skip
    return lines + ([f"misnamed: {count(len(named) - _PROBLEMS)} more files"] if named[_PROBLEMS:] else [])


def problem_lines(problems: Sequence[Problem]) -> list[str]:
    """Return problems by kind: one line for all missing ranks, one each for some of the others."""
    lines: list[str] = []
    for kind, words in _KINDS.items():
        own = [problem for problem in problems if problem.kind == kind]
        ranks = [problem.rank for problem in own if problem.rank is not None]
        if kind == "missing" and own:
            lines.append(f"missing: {'rank' if len(ranks) == 1 else 'ranks'} {runs(ranks)}")
            continue
        alike: dict[str, list[Problem]] = {}
        for problem in own:
            alike.setdefault(problem.message, []).append(problem)
        shown = dict(list(alike.items())[:_PROBLEMS])
        for message, some in shown.items():
            listed = runs(p.rank for p in some if p.rank is not None)
            who = f"rank{'s' * (len(some) > 1)} {listed}, " if listed else ""
            more = f" and {count(len(some) - 1)} more" if len(some) > 1 else ""
            lines.append(f"{kind}: {who}{some[0].path}{more}: {message}")
        if rest := [problem for problem in own if problem.message not in shown]:
            lines.append(f"{kind}: {count(len(rest))} more {words}")
    return lines


def _late(report: JobReport) -> list[object]:
    """Return the late ranks; a reason that several share follows once, with their list."""
    rows = [
        (str(late.rank), late.host, "once late" if late.kind == "once" else late.kind, duration(late.late_ns), f"{late.late_steps} of {late.steps}", percent(late.led_ratio),
         "–" if late.gain_at_least_ns is None else duration(late.gain_at_least_ns), late.why)
        for late in report.stragglers
    ]  # fmt: skip
    headings = ("Rank", "Host", "Kind", "Late", "Steps", "Last in", "A cure wins at least", "Why")
    whys: dict[str, list[int]] = {}
    for late in report.stragglers:
        whys.setdefault(late.why, []).append(late.rank)
    shared = {why for why, ranks in whys.items() if len(ranks) > 1}
    rows = [(*row[:-1], "see below" if row[-1] in shared else row[-1]) for row in rows]
    again = [f"Ranks {runs(whys[why])}: {why}" for why in whys if why in shared]
    return [PlainTable(headings, "rllrrrrl", rows, most=_RANKS, picks="rank"), Notes(again)]


def _ranks(report: JobReport) -> PlainTable:
    """Return the ranks: those of a small job in order, else those with most lateness, the latest first."""
    unit = report.unit
    ranks: list[Rank] = sorted(report.ranks, key=lambda rank: (rank.rank is None, rank.rank or 0))
    if len(ranks) > _RANKS:
        ranks = sorted(ranks, key=lambda rank: -(rank.late_ns or 0))[:_MOST]
    title = f"The latest {len(ranks)} of {len(report.ranks)}" if len(ranks) < len(report.ranks) else ""
    headings = (
        "Rank", unit.capitalize(), "Wait", "Transfer", "Exposed", "Late", "Last in", "Role", "Regime", "Saves most", "Host", "Status",
    )  # fmt: skip
    rows = [
        ("–" if r.rank is None else str(r.rank), duration(r.step_ns),
         *map(duration, (o.wait_ns, o.transfer_ns, o.exposed_ns, o.late_ns) if (o := r.of_step) else [None] * 4),
         percent(r.led_ratio), r.role or "–", (r.regime or "–").removesuffix("-bound"), largest_lever(r.levers), r.host or "–", r.status)
        for r in ranks
    ]  # fmt: skip
    alike = {"Host": len({rank.host for rank in report.ranks}) == 1, "Status": all(r.status == "ok" for r in ranks)}
    columns = [not alike.get(heading) for heading in headings]
    kept = [tuple(compress(row, columns)) for row in (headings, "rrrrrrrlllll", *rows)]
    return PlainTable(kept[0], "".join(kept[1]), kept[2:], title, most=_RANKS, picks="rank")


def _figures(report: JobReport) -> list[str]:
    """Return sentences on the step, collectives, own work, uneven operators, clocks and process groups."""
    lines = []
    job, matches, unit = report.job, report.collectives, report.unit
    if job.step_ns:
        longest = [f"{phrase(part)} {percent(ratio)}" for part, ratio in list(job.part_ratios.items())[:5]]
        lines.append("; ".join([f"{unit.capitalize()}, a mean of ranks: {duration(job.step_ns)}", *([", ".join(longest)] if longest else [])]))  # fmt: skip
    if saved := savings_of(job.levers):
        lines.append(
            f"{capitalized(WHOLE[unit])} would be shorter by {saved}: means of ranks, each by its own trace alone"
        )
    if job.measured_step_ns is not None and job.recording_ns is not None:
        lines.append(
            f"Without the profiler a step takes {duration(job.measured_step_ns)}: recording takes {duration(job.recording_ns)} of the recorded one, and lateness by dispatch is partly of recording"
        )
    elif job.recording_ns:
        lines.append(
            f"Recording takes {duration(job.recording_ns)} of it or more, estimated, on the rank that it slows most: lateness by dispatch is partly of recording; the step time in a log shows how much"
        )
    if job.waiting_ns is not None:
        lines.append(
            f"Exposed in collectives a {unit}: waiting {duration(job.waiting_ns)}, transfer {duration(job.transfer_ns)}"
        )
    if matches.matched or matches.unmatched:
        ways = ", ".join(f"{count(n)} by {way}" for way, n in matches.by.items())
        lines.append(
            f"Collectives: {count(matches.matched)} of {count(matches.matched + matches.unmatched)} matched with their peers"
            f"{f' ({ways})' if ways else ''}"
            f"{'' if matches.residual_ns is None else f'; ends agree within {duration(matches.residual_ns)}'}"
        )
    if matches.unsplit:
        reasons = "; ".join(
            f"{count(item.collectives)} {item.reason} ({duration(item.total_ns)})" for item in matches.unsplit
        )
        lines.append(
            f"In neither waiting nor transfer: {duration(matches.unsplit_ns)} of {duration(matches.total_ns)} on all ranks: {reasons}"
        )
    if slow := report.slowdown:
        worst = f" (rank {slow.worst_rank} in {slow.worst_steps} of {counted(slow.steps, unit)})"
        lines.append(
            f"Own work: the slowest rank takes {slow.estimate:.3f} times the mean; {_SLOWDOWN[slow.kind]}{worst if slow.kind == 'worker' else ''}"
        )
    return lines


def _uneven(report: JobReport) -> PlainTable:
    rows = [
        (row.operator or "–", row.category, row.role, duration(row.mean_ns), duration(row.max_ns), str(row.max_rank), percent(row.ratio))
        for row in report.imbalance
    ]  # fmt: skip
    headings = ("Operator", "Bucket", "Role", f"Mean a {report.unit}", "Longest", "Rank", "Under the longest")
    return PlainTable(headings, "lllrrrr", rows, most=_UNEVEN)


def _pipeline(pipeline: Pipeline, unit: str) -> list[object]:
    """Return the bubble of each stage (of some in a long pipeline), and that of an even schedule."""
    rows = [
        (str(s.stage), runs(s.ranks), s.role or "–", duration(s.step_ns), duration(s.idle_ns), duration(s.sends_ns), percent(s.bubble_ratio))
        for s in pipeline.stages
    ]  # fmt: skip
    worst = sorted(pipeline.stages, key=lambda stage: (-stage.bubble_ratio, stage.stage))[:_STAGES]
    shares = ", ".join(f"stage {s.stage} {percent(s.bubble_ratio)}" for s in sorted(worst, key=lambda s: s.stage))
    some = "" if len(worst) == len(pipeline.stages) else f" the emptiest {len(worst)} of {len(pipeline.stages)} stages:"
    ideal = (
        f"; {counted(pipeline.microbatches, 'microbatch', 'microbatches')} of even stages, without interleaving, leave {percent(pipeline.ideal_ratio)}"
        if pipeline.microbatches and pipeline.ideal_ratio is not None
        else ""
    )
    headings = ("Stage", "Ranks", "Role", unit.capitalize(), "Idle", "Exposed sends", "Bubble")
    return [
        Notes([f"Share of the {unit} without work or in sends that nothing hid:{some} {shares}{ideal}"]),
        PlainTable(headings, "rllrrrr", rows, most=0),
    ]


def _groups(report: JobReport) -> PlainTable:
    rows = [
        (g.name, g.description or "–", count(g.size), runs(g.ranks) or "not known", count(g.collectives), duration(g.time_ns))
        for g in report.groups[:_MOST]
    ]  # fmt: skip
    headings = ("Name", "Description", "Size", "Ranks", "Collectives", "Time on all ranks")
    title = f"The {_MOST} longest of {len(report.groups)}" if len(report.groups) > _MOST else ""
    return PlainTable(headings, "llrlrr", rows, title, most=_GROUPS)


def _clocks(report: JobReport) -> PlainTable:
    rows = [
        (c.host, duration(c.offset_ns), "–" if c.drift_ppm is None else f"{c.drift_ppm:.2f} ppm", duration(c.residual_ns))
        for c in report.clocks[:_MOST]
    ]  # fmt: skip
    title = f"The first {_MOST} of {len(report.clocks)}" if len(report.clocks) > _MOST else ""
    return PlainTable(("Host", "Ahead of the first", "Drift", "Ends agree within"), "lrrr", rows, title, most=_HOSTS)
