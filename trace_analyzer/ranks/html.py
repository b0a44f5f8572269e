"""Write the report on a job as one offline HTML file: a map of ranks by steps, a step's collectives, and tables."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import polars as pl
from markupsafe import Markup

from trace_analyzer.files import write_text
from trace_analyzer.ranks import map_rows
from trace_analyzer.ranks.files import SUFFIX, is_remote, stem
from trace_analyzer.ranks.job import JobReport, Rank
from trace_analyzer.ranks.text import doubt_lines, figure_lines, runs
from trace_analyzer.render.html import codec
from trace_analyzer.render.html.shell import Chapter, Notes, PlainTable, document_page, environment
from trace_analyzer.units import count, counted, duration, percent
from trace_analyzer.vocabulary import REGIMES

_LISTED, _GROUPS, _CLOCKS = 200, 200, 200
_WIDTH = 10_000


def write_html(report: JobReport, path: Path) -> Path:
    """Write the page to ``path`` in one step and return it. Raises ``OSError`` when it cannot be written."""
    write_text(path, page(report, path.absolute().parent))
    return path


def page(report: JobReport, folder: Path) -> str:
    """Return the page as text; links to reports of ranks next to their traces are relative to ``folder``."""
    ranks = [rank for rank in report.ranks if rank.rank is not None and rank.status in ("ok", "cut")]
    steps = map_rows.drawn_steps(report.by_step, len(ranks))
    rows = map_rows.drawn_collectives(report.rows, steps, report.by_step)
    chapters = [
        Chapter("problems", "Problems", _notes(doubt_lines(report), "warning") + _notes(report.notes, "info")),
        Chapter("late", "Late ranks", _late(report)),
    ]
    data = {}
    if ranks and steps:
        data["job"] = _data(report, ranks, steps, rows, folder)
        template: Any = environment().get_template("ranks.html.j2").module
        keys = [(key, REGIMES[key].label) for key in _regimes(report) if key in REGIMES]
        chapters += [
            Chapter("map", "Ranks by steps", [template.heat_map(keys)]),
            Chapter("lanes-title", "Collectives of a step", [template.step_lanes(steps, left_out(report.rows, rows))]),
        ]
    chapters += [*_tables(report)]
    matched = report.collectives.matched
    return document_page(
        f"{report.job.seen}{f' of {report.job.world_size}' if report.job.world_size else ''} ranks", report.job.sentence, chapters,
        regime=report.job.regime if report.job.regime and report.job.regime in REGIMES else "",
        chips=(f"{count(matched)} of {count(matched + report.collectives.unmatched)} collectives matched",),
        lines=figure_lines(report, _WIDTH)[:3], scripts=("ranks.js",), data=data,
    )  # fmt: skip


def _notes(lines: Sequence[str], severity: str) -> list[Notes]:
    return [Notes(lines, severity)] if lines else []


def _button(rank: int | None) -> str:
    """Return a rank as a button that leads to it on the map."""
    return (
        "–" if rank is None else Markup('<button type="button" class="link" data-rank="{0}">{0}</button>').format(rank)
    )


def _late(report: JobReport) -> list[PlainTable]:
    rows = [
        (_button(late.rank), late.host, late.kind, duration(late.late_ns), f"{late.late_steps} of {late.steps}", duration(late.gain_at_least_ns), late.why)
        for late in report.stragglers
    ]  # fmt: skip
    headings = ("Rank", "Host", "Kind", "Late", "Steps", "A cure wins at least", "Why")
    return [PlainTable(headings, "rllrrrl", rows)] if rows else []


def _tables(report: JobReport) -> Iterator[Chapter]:
    """Yield the tables of ranks, uneven operators, pipeline stages, process groups and clocks."""
    listed, groups, clocks = _listed(report), report.groups[:_GROUPS], report.clocks[:_CLOCKS]
    by_rank = [
        (_button(rank.rank), rank.host or "–", duration(rank.step_ns), duration(rank.wait_ns), duration(rank.transfer_ns), duration(rank.late_ns),
         percent(rank.led_ratio), rank.role or "–", rank.regime or "–", rank.status)
        for rank in listed
    ]  # fmt: skip
    few = f"The latest {len(listed)} of {len(report.ranks)}." if len(listed) < len(report.ranks) else ""
    headings: tuple[str, ...] = (
        "Rank",
        "Host",
        "Step",
        "Wait",
        "Transfer",
        "Late",
        "Last in",
        "Role",
        "Regime",
        "Status",
    )
    yield Chapter("ranks", "Ranks", [PlainTable(headings, "rlrrrrrlll", by_rank)], few)
    uneven = [
        (row.operator or "–", row.category, row.role, duration(row.mean_ns), duration(row.max_ns), str(row.max_rank), percent(row.ratio))
        for row in report.imbalance
    ]  # fmt: skip
    headings = ("Operator", "Bucket", "Role", "Mean a step", "Longest", "Rank", "(max - mean) / max")
    yield Chapter("uneven", "Uneven operators", [PlainTable(headings, "lllrrrr", uneven)] if uneven else [])
    if (pipeline := report.pipeline) is not None:
        stages = [
            (str(stage.stage), runs(stage.ranks), stage.role or "–", duration(stage.step_ns), duration(stage.idle_ns), duration(stage.sends_ns), percent(stage.bubble_ratio))
            for stage in pipeline.stages
        ]  # fmt: skip
        ideal = pipeline.ideal_ratio
        lead = (
            ""
            if ideal is None
            else f"{pipeline.microbatches} microbatches a step: even stages leave {percent(ideal)} without interleaving."
        )
        headings = ("Stage", "Ranks", "Role", "Step", "Idle", "Exposed sends", "Bubble")
        yield Chapter("pipeline", "Pipeline", [PlainTable(headings, "rllrrrr", stages)], lead)
    by_group = [
        (group.name, group.description or "–", count(group.size), runs(group.ranks) or "not known", count(group.collectives), duration(group.time_ns))
        for group in groups
    ]  # fmt: skip
    few = f"The {len(groups)} longest of {len(report.groups)}." if len(groups) < len(report.groups) else ""
    headings = ("Name", "Description", "Size", "Ranks", "Collectives", "Time on all ranks")
    yield Chapter("groups", "Process groups", [PlainTable(headings, "llrlrr", by_group)] if by_group else [], few)
    by_host = [
        (clock.host, duration(clock.offset_ns), "–" if clock.drift_ppm is None else f"{clock.drift_ppm:.2f} ppm", duration(clock.residual_ns))
        for clock in clocks
    ]  # fmt: skip
    few = f"The first {len(clocks)} of {len(report.clocks)}." if len(clocks) < len(report.clocks) else ""
    yield Chapter(
        "clocks",
        "Clocks",
        [PlainTable(("Host", "Ahead of the first", "Drift", "Ends agree within"), "lrrr", by_host)],
        few,
    )


def _listed(report: JobReport) -> list[Rank]:
    """Return the ranks of the table: all of them, or those with most lateness, in order."""
    if len(report.ranks) <= _LISTED:
        return list(report.ranks)
    latest = sorted(report.ranks, key=lambda rank: -(rank.late_ns or 0))[:_LISTED]
    return sorted(latest, key=lambda rank: (rank.rank is None, rank.rank or 0))


def _regimes(report: JobReport) -> list[str]:
    """Return the regimes of steps, sorted."""
    return report.steps.get_column("regime").drop_nulls().unique().sort().to_list() if report.steps.width else []


def left_out(rows: pl.DataFrame, drawn: pl.DataFrame) -> str:
    """Return a sentence on the collectives that the page leaves out; "" where it has all."""
    if drawn.height == rows.height:
        return ""
    named = counted(drawn.get_column("step").n_unique(), "step")
    return f"This file holds {count(drawn.height)} of {count(rows.height)} collectives, those of the {named} with most lateness."


def _data(report: JobReport, ranks: list[Rank], steps: list[int | None], rows: pl.DataFrame, folder: Path) -> str:
    """Return the page's data, encoded."""
    numbers = [rank.rank for rank in ranks if rank.rank is not None]
    names = _regimes(report)
    cells = map_rows.cells(report, numbers, steps, names)
    shown = map_rows.placed_collectives(rows, numbers, steps)
    place = {rank: number for number, rank in enumerate(numbers)}
    late = [straggler.rank for straggler in report.stragglers]
    header = {
        "ranks": numbers,
        "hosts": [rank.host for rank in ranks],
        "steps": steps,
        "regimes": names,
        "regimeColours": [f"p-{REGIMES[name].part}" if name in REGIMES else "p-other" for name in names],
        "late": [place[rank] for rank in late if rank in place],
        "links": [_link(rank.path, folder) for rank in ranks],
        "commands": [f"analyze {rank.path}" for rank in ranks],
    }
    is_split = shown.get_column("wait_ns").is_not_null()
    return codec.encode(
        header,
        {
            "late": codec.plain(cells.get_column("own_late_ns")),
            "wait": codec.plain(cells.get_column("wait_ns")),
            "known": codec.plain(cells.get_column("wait_ns").is_not_null().cast(pl.Int64)),
            "regime": codec.plain(cells.get_column("regime")),
            "offsets": codec.plain(map_rows.offsets(shown, len(steps))),
            "c_rank": codec.plain(shown.get_column("c_rank")),
            "c_start": codec.plain(shown.get_column("c_start")),
            "c_duration": codec.plain(shown.get_column("duration_ns")),
            "c_wait": codec.plain(shown.get_column("wait_ns")),
            "c_split": codec.plain(is_split.cast(pl.Int64)),
            "c_kind": codec.text(shown.get_column("kind")),
        },
    )


def _link(path: str, folder: Path) -> str | None:
    """Return the report next to a rank's trace, relative to the page; None where it is missing."""
    if is_remote(path):
        return None
    report = Path(f"{path.removesuffix(SUFFIX) if path.endswith(SUFFIX) else stem(path)}.report.html")
    if not report.is_file():
        return None
    try:
        return quote(Path(os.path.relpath(report.absolute(), folder)).as_posix())
    except ValueError:  # on another drive
        return quote(report.absolute().as_posix())
