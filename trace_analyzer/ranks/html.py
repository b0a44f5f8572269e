"""Write the report on a job as one offline HTML file: a map of ranks by steps, a step's collectives, and tables."""

import os
from pathlib import Path
from urllib.parse import quote

import polars as pl
from markupsafe import Markup

from trace_analyzer.files import write_text
from trace_analyzer.ranks import map_rows
from trace_analyzer.ranks.files import SUFFIX, is_remote, stem
from trace_analyzer.ranks.job import JobReport, Rank
from trace_analyzer.ranks.text import doubt_lines, figure_lines, runs
from trace_analyzer.render.charts import palette_css
from trace_analyzer.render.html import GENERATOR, codec
from trace_analyzer.render.html.page import environment, scoped
from trace_analyzer.render.html.shell import asset
from trace_analyzer.units import count, counted
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
    return environment().get_template("ranks.html.j2").render(
        report=report,
        generator=GENERATOR,
        style=Markup("\n".join((palette_css(), asset("style.css")))),
        theme=Markup(scoped("theme.js")),
        script=Markup(scoped("common.js", "ranks.js")),
        data=Markup(_data(report, ranks, steps, rows, folder)),  # base64, which contains no special characters of HTML
        has_map=bool(ranks and steps),
        steps=steps,
        left_out=left_out(report.rows, rows),
        problems=doubt_lines(report),
        figures=figure_lines(report, _WIDTH)[:3],
        regime_keys=[(key, REGIMES[key].label) for key in _regimes(report) if key in REGIMES],
        listed=_listed(report),
        groups=[(group, runs(group.ranks) or "not known") for group in report.groups[:_GROUPS]],
        stages=[(stage, runs(stage.ranks)) for stage in report.pipeline.stages] if report.pipeline else [],
        clocks=report.clocks[:_CLOCKS],
    )  # fmt: skip


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
