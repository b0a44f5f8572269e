"""Make the page of a job: its document, with a map of ranks by steps and the collectives of each step."""

import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import polars as pl
from markupsafe import Markup
from msgspec.structs import replace

from trace_analyzer.documents import Chapter, Document
from trace_analyzer.ranks import files, lateness
from trace_analyzer.ranks.job import JobReport, Rank
from trace_analyzer.render.html import codec, shell
from trace_analyzer.units import count, counted
from trace_analyzer.vocabulary import REGIMES


def page(report: JobReport, document: Document, folder: Path) -> str:
    """Return the page as text; links to reports of ranks next to their traces are relative to ``folder``."""
    ranks = [rank for rank in report.ranks if rank.rank is not None and rank.status in ("ok", "cut")]
    steps = lateness.drawn_steps(report.by_step, len(ranks))
    if not ranks or not steps:
        return shell.document_page(document)
    rows = lateness.drawn_collectives(report.rows, steps, report.by_step)
    template: Any = shell.environment().get_template("ranks.html.j2").module
    keys = [(key, REGIMES[key].label) for key in _regimes(report) if key in REGIMES]
    drawn = (
        Chapter("map", "Ranks by steps", [Markup(template.heat_map(keys))]),
        Chapter(
            "step-title", "Collectives of a step", [Markup(template.step_lanes(steps, left_out(report.rows, rows)))]
        ),
    )
    place = next(n for n, chapter in enumerate(document.chapters) if chapter.key == "ranks")
    chapters = (*document.chapters[:place], *drawn, *document.chapters[place:])
    data = {"job": _data(report, ranks, steps, rows, folder)}
    return shell.document_page(replace(document, chapters=chapters), scripts=["ranks.js"], data=data)


def _regimes(report: JobReport) -> list[str]:
    return report.steps.get_column("regime").drop_nulls().unique().sort().to_list() if report.steps.width else []


def left_out(rows: pl.DataFrame, drawn: pl.DataFrame) -> str:
    """Return a sentence on the collectives that the page leaves out; "" where it has all."""
    if drawn.height == rows.height:
        return ""
    named = counted(drawn.get_column("step").n_unique(), "step")
    return f"This file holds {count(drawn.height)} of {count(rows.height)} collectives, those of the {named} with most lateness."


def _data(report: JobReport, ranks: list[Rank], steps: list[int | None], rows: pl.DataFrame, folder: Path) -> str:
    numbers = [rank.rank for rank in ranks if rank.rank is not None]
    names = _regimes(report)
    cells = lateness.cells(report.by_step, report.steps, numbers, steps, names)
    shown = lateness.placed_collectives(rows, numbers, steps)
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
            "offsets": codec.plain(lateness.offsets(shown, len(steps))),
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
    if files.is_remote(path):
        return None
    report = Path(f"{path.removesuffix(files.SUFFIX) if path.endswith(files.SUFFIX) else files.stem(path)}.report.html")
    if not report.is_file():
        return None
    try:
        return quote(Path(os.path.relpath(report.absolute(), folder)).as_posix())
    except ValueError:  # on another drive
        return quote(report.absolute().as_posix())
