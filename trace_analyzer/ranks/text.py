"""Write the report on a job as plain text and as Markdown."""

from collections.abc import Iterable, Sequence

from trace_analyzer.ranks.job import JobReport, Pipeline, Rank
from trace_analyzer.ranks.joining import Problem
from trace_analyzer.ranks.stragglers import Straggler
from trace_analyzer.render.layout import wrapped
from trace_analyzer.units import count, counted, duration, percent, shorten, visible
from trace_analyzer.vocabulary import phrase

_RANKS, _PROBLEMS, _HOSTS, _UNEVEN, _GROUPS, _STAGES = 16, 8, 8, 6, 8, 8
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


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Wrap text to lines of ``width`` cells, all but the first indented."""
    first, *rest = wrapped(text, max(20, width - len(indent)))
    return [first, *(indent + line for line in rest)]


def runs(numbers: Iterable[int]) -> str:
    """Write ordered numbers as runs: ``2 to 127, 130``."""
    texts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if texts and number == texts[-1][1] + 1:
            texts[-1][1] = number
        else:
            texts.append([number, number])
    return ", ".join(f"{first}" if first == last else f"{first} to {last}" for first, last in texts)


def problem_lines(problems: Sequence[Problem]) -> list[str]:
    """Return problems by kind: one line for all missing ranks, one each for some of the others."""
    lines: list[str] = []
    for kind, words in _KINDS.items():
        own = [problem for problem in problems if problem.kind == kind]
        ranks = [problem.rank for problem in own if problem.rank is not None]
        if kind == "missing" and own:
            lines.append(f"missing: {'rank' if len(ranks) == 1 else 'ranks'} {runs(ranks)}")
            continue
        lines += [
            f"{kind}: {f'rank {p.rank}, ' if p.rank is not None else ''}{p.path}: {p.message}" for p in own[:_PROBLEMS]
        ]
        if len(own) > _PROBLEMS:
            lines.append(f"{kind}: {count(len(own) - _PROBLEMS)} more {words}")
    return lines


def doubt_lines(report: JobReport) -> list[str]:
    """Return the problems of a job, then files with another rank in their name."""
    named = [rank for rank in report.ranks if rank.named_rank is not None]
    lines = [
        f"misnamed: {rank.path} is of rank {rank.rank}, not {rank.named_rank}: the trace counts"
        for rank in named[:_PROBLEMS]
    ]
    if len(named) > _PROBLEMS:
        lines.append(f"misnamed: {count(len(named) - _PROBLEMS)} more files")
    return [*problem_lines(report.problems), *lines]


def listed_ranks(report: JobReport) -> list[Rank]:
    """Return the ranks to list: all of a small job, else those with most lateness."""
    known = [rank for rank in report.ranks if rank.late_ns is not None]
    if len(known) <= _RANKS:
        return known
    latest = sorted(known, key=lambda rank: (-(rank.late_ns or 0), rank.rank or 0))[:_RANKS]
    return sorted(latest, key=lambda rank: rank.rank or 0)


def summary(report: JobReport, width: int = 100) -> str:
    """Write the report as plain text, ``width`` cells wide."""
    text = [*wrapped(report.job.sentence, width), ""]
    if doubts := doubt_lines(report):
        text += [
            "Problems",
            *(line for item in doubts for line in _wrapped(item, width, "  ")),
            "",
        ]
    if report.stragglers:
        text += ["Late ranks: mean in the steps in which they are late"]
        for late in report.stragglers[:_RANKS]:
            head = f"  {late.rank:>5}  {late.kind:<10}  {duration(late.late_ns):>8}  "
            rest = (
                f"{late.late_steps} of {counted(late.steps, 'step')}, last in {percent(late.led_ratio)} of its collectives"
                f"{_gain(late)}; {late.why}"
            )
            lines = wrapped(rest, max(20, width - len(head)))
            text += [(head if place == 0 else " " * len(head)) + line for place, line in enumerate(lines)]
        text.append("")
    ranks = listed_ranks(report)
    if ranks:
        some = (
            ""
            if len(ranks) == len([rank for rank in report.ranks if rank.late_ns is not None])
            else f", the latest {len(ranks)}"
        )
        text += [
            f"Ranks{some}",
            f"  {'rank':>5}  {'step':>8}  {'wait':>8}  {'transfer':>8}  {'late':>8}  {'last in':>7}  role  regime, host",
        ]
        text += [
            shorten(
                f"  {rank.rank:>5}  {duration(rank.step_ns):>8}  {duration(rank.wait_ns):>8}  {duration(rank.transfer_ns):>8}"
                f"  {duration(rank.late_ns):>8}  {percent(rank.led_ratio):>7}  {rank.role or '–':<4}  {rank.regime or '–'}, {rank.host or '–'}",
                width,
            )
            for rank in ranks
        ]
        text.append("")
    text += figure_lines(report, width)
    text += [line for note in report.notes for line in _wrapped(f"note: {note}", width, "  ")]
    return "\n".join(visible(line).rstrip() for line in text).rstrip() + "\n"


def figure_lines(report: JobReport, width: int) -> list[str]:
    """Return lines on the step, collectives, own work, uneven operators, clocks and process groups."""
    lines = []
    job, matches = report.job, report.collectives
    if job.step_ns:
        longest = [f"{phrase(part)} {percent(ratio)}" for part, ratio in list(job.part_ratios.items())[:5]]
        lines.append(
            "; ".join([f"Step, a mean of ranks: {duration(job.step_ns)}", *([", ".join(longest)] if longest else [])])
        )
    if job.waiting_ns is not None:
        lines.append(
            f"Exposed in collectives a step: waiting {duration(job.waiting_ns)}, transfer {duration(job.transfer_ns)}"
        )
    if matches.matched or matches.unmatched:
        ways = ", ".join(f"{count(n)} by {way}" for way, n in matches.by.items())
        lines.append(
            f"Collectives: {count(matches.matched)} of {count(matches.matched + matches.unmatched)} matched with their peers"
            f"{f' ({ways})' if ways else ''}; ends agree within {duration(matches.residual_ns)}"
        )
    if report.slowdown:
        slow = report.slowdown
        lines.append(
            f"Own work: the slowest rank takes {slow.estimate:.3f} times the mean; {_SLOWDOWN[slow.kind]}"
            + (
                f" (rank {slow.worst_rank} in {slow.worst_steps} of {counted(slow.steps, 'step')})"
                if slow.kind == "worker"
                else ""
            )
        )
    if report.pipeline:
        lines += pipeline_lines(report.pipeline)
    for uneven in report.imbalance[:_UNEVEN]:
        lines.append(
            f"Uneven: {uneven.operator or uneven.category} in role {uneven.role}: {percent(uneven.ratio)} under the longest,"
            f" {duration(uneven.max_ns)} a step on rank {uneven.max_rank}"
        )
    if len(report.clocks) > 1:
        shown = [c for c in report.clocks if c.offset_ns is not None][:_HOSTS]
        lines += [
            f"Clock of {c.host}: {duration(c.offset_ns)}, drift {c.drift_ppm:.2f} ppm, ends agree within {duration(c.residual_ns)}"
            for c in shown
        ]
    for group in report.groups[:_GROUPS]:
        name = f"{group.name}{f' ({group.description})' if group.description else ''}"
        lines.append(
            f"Process group {name}: ranks {runs(group.ranks) or 'not known'}; {count(group.collectives)} collectives, {duration(group.time_ns)}"
        )
    return [line for item in lines for line in _wrapped(item, width, "  ")]


def pipeline_lines(pipeline: Pipeline) -> list[str]:
    """Write the bubble of each stage (of some in a long pipeline), and that of an even schedule."""
    ideal = (
        f"; {counted(pipeline.microbatches, 'microbatch', 'microbatches')} of even stages, without interleaving, leave {percent(pipeline.ideal_ratio)}"
        if pipeline.microbatches and pipeline.ideal_ratio is not None
        else ""
    )
    worst = sorted(pipeline.stages, key=lambda stage: (-stage.bubble_ratio, stage.stage))[:_STAGES]
    shares = ", ".join(f"stage {s.stage} {percent(s.bubble_ratio)}" for s in sorted(worst, key=lambda s: s.stage))
    some = "" if len(worst) == len(pipeline.stages) else f" the emptiest {len(worst)} of {len(pipeline.stages)} stages:"
    return [f"Pipeline, share of the step without work or in sends that nothing hid:{some} {shares}{ideal}"]


def _gain(late: Straggler) -> str:
    """Write the gain of a fix; "" where it is unknown, as less than half of the group was seen waiting."""
    return f"; a cure wins at least {duration(late.gain_at_least_ns)}" if late.gain_at_least_ns else ""


def to_markdown(report: JobReport) -> str:
    """Write the report as Markdown, for pull requests."""
    lines = [f"**{_cell(report.job.sentence)}**", ""]
    lines += [f"- {_cell(line)}" for line in doubt_lines(report)]
    if report.stragglers:
        lines += [
            "",
            "| rank | host | kind | late | steps | a cure wins at least | why |",
            "|---|---|---|---|---|---|---|",
        ]
        lines += [
            f"| {late.rank} | {_cell(late.host)} | {late.kind} | {duration(late.late_ns)} | {late.late_steps} of {late.steps} |"
            f" {duration(late.gain_at_least_ns)} | {_cell(late.why)} |"
            for late in report.stragglers[:_RANKS]
        ]
    ranks = listed_ranks(report)
    if ranks:
        lines += [
            "",
            "| rank | step | wait | transfer | late | last in | role | regime |",
            "|---|---|---|---|---|---|---|---|",
        ]
        lines += [
            f"| {r.rank} | {duration(r.step_ns)} | {duration(r.wait_ns)} | {duration(r.transfer_ns)} | {duration(r.late_ns)} |"
            f" {percent(r.led_ratio)} | {r.role or '–'} | {r.regime or '–'} |"
            for r in ranks
        ]
    lines += [
        "",
        *(f"- {_cell(line.strip())}" for line in figure_lines(report, 10_000)),
        *(f"- {_cell(note)}" for note in report.notes),
    ]
    return "\n".join(lines).strip() + "\n"


def _cell(text: str) -> str:
    """Escape text for a cell of a Markdown table."""
    from trace_analyzer.render.markdown import escaped

    return escaped(visible(text))
