"""Recommend changes for a run on the CPU, from where its main thread spends time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from string import Template

import polars as pl

from trace_analyzer.advice.window_context import BY_INDUCTOR, GRADIENTS
from trace_analyzer.analyses.cpu import CpuRun
from trace_analyzer.catalog.event_names import OPTIMIZER_STEP, PROFILER_STEP_NAME
from trace_analyzer.catalog.fixes import FUSED, for_compiled, optimizer_in_few_launches, page_of, pages
from trace_analyzer.report import Advice, Saving
from trace_analyzer.units import count, duration, percent


@dataclass(frozen=True)
class CpuFix:
    """Hold the page of a fix: its texts, and which time of the main thread it concerns.

    This is time in ``parts`` of table `cpu_time`, in ``phases`` of a step (all without), in operators on FP64 operands
    only (``double``; false: on others only), and not in events whose name matches ``unless`` (Rust regex). It is worth
    saying from a share ``least`` of the window on. The change saves at most a share ``saves`` of it: 1 where the time can
    go away, 0.5 where half the bytes or bits remain, 0 where it only shows what to change; such a fix ranks by its time.
    """

    id: str
    title: str
    code: str
    sections: Mapping[str, str]
    cases: Mapping[str, Mapping[str, str]]
    parts: list[str]
    least: float
    saves: float
    phases: list[str] | None = None
    double: bool | None = None
    unless: str = "^$"


def cpu_advice(run: CpuRun, names: pl.DataFrame) -> tuple[Advice, ...]:
    """Return the fixes whose time is worth it, largest saving first; ``names`` are those of the trace's host events."""
    name = names.get_column("name").cast(pl.String)
    shown = {
        "training": names.get_column("phase").is_in(GRADIENTS).any(),
        "convolutions": name.str.contains("convolution").any(),
    }
    cases = [case for case, is_shown in shown.items() if is_shown]
    advice = (_advice(CpuFix(**page), run, cases) for page in pages().values() if "parts" in page)
    items = (item for _, item in sorted(filter(None, advice), key=lambda pair: -pair[0]))
    is_compiled = name.str.contains(BY_INDUCTOR).any()
    return tuple(replace(item, code=for_compiled(item.code)) if is_compiled else item for item in items)


def _advice(fix: CpuFix, run: CpuRun, cases: Sequence[str]) -> tuple[float, Advice] | None:
    """Return the rank of a fix, ns, and the advice; None where too little time is concerned."""
    concerned = pl.col("part").is_in(fix.parts) & ~pl.col("name").fill_null("").str.contains(fix.unless)
    if fix.phases is not None:
        concerned &= pl.col("phase").fill_null("").is_in(fix.phases)
    if fix.double is not None:
        concerned &= pl.col("double") == fix.double
    length = pl.col("end_ns") - pl.col("start_ns")
    pieces = run.pieces.filter(concerned).with_columns(length.alias("time_ns")).sort("time_ns", descending=True)
    time = int(pieces.get_column("time_ns").sum())
    silent = run.window_ns - int(run.pieces.select(length.sum()).item())
    time += silent if "host-unknown" in fix.parts and fix.phases is None else 0
    if not time or time < fix.least * run.window_ns:
        return None
    saved, steps = round(fix.saves * time), max(1, run.steps)
    each = f", {duration(time / steps)} a step" if run.steps else ""
    events = pieces.get_column("event_id").n_unique() / steps
    named = pieces.group_by("name").agg(pl.col("time_ns").sum()).sort("time_ns", "name", descending=[True, False])
    named = named.filter(~pl.col("name").str.contains(PROFILER_STEP_NAME))
    where = [f"{name} ({duration(ns / steps)})" for name, ns in named.head(3).iter_rows()]
    start, end = pieces.select("start_ns", "end_ns").row(0) if pieces.height else (None, None)
    classes = pieces.get_column("name").cast(pl.String).str.extract(OPTIMIZER_STEP).drop_nulls()
    optimizer = optimizer_in_few_launches(classes[0] if classes.len() and classes[0] in FUSED else "")
    return saved or time, Advice(
        title=fix.title,
        why=f"{percent(time / run.window_ns)} of the main thread's time{each}, in {count(round(events))} events",
        where=", ".join(where),
        code=Template(next((fix.cases[case]["code"] for case in cases if case in fix.cases), fix.code)).substitute(
            optimizer=optimizer
        ),
        saves_ns_at_most=saved,
        how_bound=_within_a_sentence(fix.sections["Bound"]),
        saving=Saving(saved / steps, saved / run.window_ns, saved / steps, saved / run.window_ns, run.steps > 0),
        start_ns=start,
        end_ns=end,
        id=fix.id,
        docs=page_of(fix.id),
    )


def _within_a_sentence(text: str) -> str:
    return " ".join(f"{text[:1].lower()}{text[1:]}".rstrip(".").split())
