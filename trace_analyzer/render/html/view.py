"""Select the content of the page as plain values in the order of display, and assemble the page in one text.

`assets/page.html.j2` only lays it out, so that the page's statements can be tested without parsing markup.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import PurePath
from typing import NamedTuple

import polars as pl
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup, escape

from trace_analyzer import registry, run_metadata, sections, units
from trace_analyzer.analyses.chart_data import longest_intervals
from trace_analyzer.catalog import fixes, kernels
from trace_analyzer.documents import Chapter, Figure
from trace_analyzer.json_types import field_docs
from trace_analyzer.render import charts, phrasing
from trace_analyzer.render.declared import declared_sections, record_rows
from trace_analyzer.render.html import cells, codec, shell, timeline
from trace_analyzer.render.html.figures import flames, timeline_figures
from trace_analyzer.report import CheckStatus, DeviceReport, Report, StepReport, TraceInfo
from trace_analyzer.report.devices import BUCKETS_SECTION, DEVICES_SECTION, GROUPS_SECTION, overview
from trace_analyzer.report.summaries import (
    debiased_worth_a_line,
    device_code,
    main_thread_parts,
    part_shares,
    step_strips,
)
from trace_analyzer.report.verdicts import BLAME_SECTION
from trace_analyzer.vocabulary import PARTS, WORK, Term, check_label, part_term

GRAVITY: tuple[CheckStatus, ...] = ("ok", "warn", "fail")


class Share(NamedTuple):
    """One part of a partition; ``span`` is its longest interval."""

    key: str
    word: Term
    ns: int
    ratio: float
    span: cells.Span | None = None


class Fact(NamedTuple):
    """A measured value with its name and its relevance."""

    name: str
    value: str
    why: str = ""


class CheckRow(NamedTuple):
    """A check of the trace; ``withheld`` names the metrics that its failure suppresses."""

    status: CheckStatus
    name: str
    value: str
    meaning: str
    device: str
    withheld: str


class StepRow(NamedTuple):
    """One step on the strip; ``ratio`` is its share of the strip's length."""

    step: StepReport
    span: cells.Span
    ratio: float


class View(NamedTuple):
    """The sections of the page that depend on more than one field of the report."""

    title: str
    partition: tuple[Share, ...]
    debiased: tuple[Share, ...]
    evidence: tuple[Fact, ...]
    steps: tuple[tuple[str, tuple[StepRow, ...]], ...]
    trust: tuple[CheckRow, ...]
    facts: tuple[Fact, ...]
    chapters: tuple[Chapter, ...]


def view(report: Report, *, compact: bool = False) -> View:
    """Return the content of the page except the timeline; a compact page has nothing below it."""
    return View(
        title=PurePath(report.trace.path).name,
        partition=shares(report.verdict.parts_ns, _part_spans(report)) or shares(main_thread_parts(report)),
        debiased=shares(unbiased.parts_ns) if (unbiased := debiased_worth_a_line(report.verdict)) else (),
        evidence=tuple(
            Fact(units.capitalized(phrasing.evidence_label(e)), phrasing.evidence_value(e), e.why)
            for e in report.verdict.evidence
        ),
        steps=tuple(
            (
                f"GPU {device}",
                tuple(
                    StepRow(step, cells.Span(step.start_ns, step.start_ns + step.duration_ns), ratio)
                    for step, ratio in steps
                ),
            )
            for device, steps in step_strips(report.steps)
        ),
        trust=_trust(report),
        facts=_facts(report.trace),
        chapters=() if compact else _chapters(report),
    )


_OF_A_STEP = ("phases", "what_would_help", "critical_path_parts")
"""Declared sections that follow the steps: of what a step consists, and what would make it shorter."""


def _chapters(report: Report) -> tuple[Chapter, ...]:
    """Return the parts below the timeline in reading order; one without pieces is left out."""

    def listed(*keys: str) -> list[cells.Listing]:
        return [cells.section_listing(report, registry.SECTIONS[key]) for key in keys]

    def filled(*keys: str) -> list[cells.Listing]:
        return [each for each in listed(*keys) if each.rows]

    def of_devices(*keys: str) -> list[cells.Listing]:  # also without rows: they then tell what to record
        return listed(*keys) if report.devices else []

    def of_judged(section: sections.Section) -> list[cells.Listing]:
        return [
            cells.section_listing(report, section, cells.device_rows(report, each, record_rows(rows)))
            for each in judged
            if (rows := getattr(each, section.key))
        ]

    judged = [device for device in report.devices if device.index == report.verdict.device]
    measured = next(filter(None, map(phrasing.measured_roofs, judged)), "")
    has_roofs = report.tables["roofline"].get_column("roof_ratio").count()
    has_gaps = report.tables["gaps"].height
    blame = [cells.section_listing(report, BLAME_SECTION, record_rows(report.blame))] if report.blame else []
    declared = {}
    for shown in declared_sections(report):
        key, title = f"declared-{shown.key}", shown.section.title
        rows = cells.listing(key, title, shown.columns, shown.rows, shown.total)
        declared[shown.key] = Chapter(key, title, [rows], shown.section.doc)
    return (
        *(declared.pop(key) for key in _OF_A_STEP if key in declared),
        Chapter(
            "kernels",
            "Where device time goes",
            [*of_devices("kernels"), *of_judged(BUCKETS_SECTION)],
            short="Kernels",
        ),
        Chapter(
            "roofline",
            "How good the kernels are",
            [
                *of_judged(GROUPS_SECTION),
                *([_roofline(report, judged)] if has_roofs else []),
                *of_devices("roofline"),
                *filled("fusions", "recomputation"),
            ],
            f"{measured}." if measured else "",
            short="Roofline",
        ),
        Chapter(
            "idle",
            "Why the device idled",
            [
                *of_devices("causes"),
                *([_figure(report, "gaps"), *listed("gaps")] if has_gaps else []),
                *blame,
                *of_devices("host"),
                *(listed("idle-python-function", "idle-module") if has_gaps else []),
            ],
            short="Idle time",
        ),
        Chapter(
            "ahead",
            "Does the CPU run ahead?",
            [*(_figure(report, key) for key in ("queue_depth", "queued_work", "launch_lead")), *filled("drains")],
            "A CPU that launches early hides its own overhead. Where the queue runs empty, the device waits for it.",
            short="Run-ahead",
        ),
        Chapter(
            "transfers", "What moved between devices and host", filled("communication", "copies"), short="Transfers"
        ),
        Chapter("modules", "Time by module", of_devices("modules"), short="Modules"),
        Chapter("operators", "Where CPU time goes", listed("operators"), short="Operators"),
        *declared.values(),
        Chapter("devices", "Devices", _devices(report)),
    )


def _devices(report: Report) -> Sequence[cells.Listing]:
    rows = [cells.device_rows(report, device, pl.DataFrame([overview(device)])) for device in report.devices]
    if not rows:
        return ()
    return cells.pieces_beside(cells.section_listing(report, DEVICES_SECTION, pl.concat(rows, how="vertical_relaxed")))


_INSTANT = "A tap leads to what ran then, or to what had emptied the queue."
_FIGURES = {
    "gaps": (
        "Idle time by length of gap",
        "Gaps of the whole trace. Many short ones ask for fewer launches, a few long ones for a look at each. A tap on a bar leads to its longest gap.",
    ),
    "queue_depth": ("Queue depth", f"Activities launched and not yet started; of each instant the highest. {_INSTANT}"),
    "queued_work": (
        "Queued work",
        f"Device time of what is launched and not yet started; of each instant the highest. {_INSTANT}",
    ),
    "launch_lead": (
        "Launch lead",
        "How long before its start work was launched, over the whole trace. Late launches are left out. A tap on a bar leads to the longest.",
    ),
}
"""Chart of the report -> its title and caption on the page."""


def _figure(report: Report, key: str) -> Figure:
    return Figure(*_FIGURES[key], partial(charts.CHARTS[key], report), key, is_wide=False)


def _roofline(report: Report, judged: Sequence[DeviceReport]) -> Figure:
    """Return the roofline with a caption that names the measured lines."""
    known = next((device.attained for device in judged if device.attained and device.attained.roofs), None)
    source = (
        "measured by analyze calibrate"
        if known and phrasing.alone(known)
        else "the datasheet's, and dashed what was measured"
    )
    caption = (
        "Achieved FLOP/s of each kernel of known work against its FLOP per byte; the lines are what the device can"
        f" do{f': {source}' if known else ''}. A tap on a point leads to the longest kernel on the timeline."
    )
    return Figure("Roofline", caption, partial(charts.CHARTS["roofline"], report), "roofline")


def shares(parts_ns: Mapping[str, int], spans: Mapping[str, cells.Span] | None = None) -> tuple[Share, ...]:
    """Return a partition as shares of its sum: work in a fixed order, then idle time, largest cause first."""
    # Work has a fixed place in the bar; stable sorting keeps the order of idle time.
    parts = sorted(part_shares(parts_ns), key=lambda share: WORK.index(share.part) if share.part in WORK else len(WORK))
    return tuple(
        Share(share.part, part_term(share.part), share.time_ns, share.time_ratio, (spans or {}).get(share.part))
        for share in parts
    )


def _part_spans(report: Report) -> dict[str, cells.Span]:
    """Return the longest interval of each part of the judged device."""
    judged = pl.lit(device_code(report, report.verdict.device), pl.Int64)
    places = longest_intervals(report.tables["partition"].filter(pl.col("device") == judged), ["part"])
    return {part: cells.Span(start, end) for part, start, end in places.iter_rows()}


def _trust(report: Report) -> tuple[CheckRow, ...]:
    """Return the checks of the data behind the figures, the most serious first."""
    return tuple(
        CheckRow(
            check.status,
            units.capitalized(check_label(check.name)),
            phrasing.check_value(check),
            check.meaning,
            f"GPU {check.device}" if check.device is not None and len(report.devices) > 1 else "",
            phrasing.withheld_metrics(check),
        )
        for check in sorted(report.trust, key=lambda check: -GRAVITY.index(check.status))
    )


def _settings(trace: TraceInfo) -> tuple[Fact, ...]:
    if trace.settings is None:
        return ()
    known = ((name, doc, getattr(trace.settings, name)) for name, doc in field_docs(run_metadata.RunMetadata).items())
    return tuple(
        Fact(_setting_title(name), _setting_value(name, value), doc.replace("`", ""))
        for name, doc, value in known
        if value is not None
    )


_ACRONYMS = {"tf32": "TF32", "cuda": "CUDA", "cudnn": "cuDNN", "sm": "SM", "l2": "L2", "cpu": "CPU", "torch": "PyTorch"}
_SETTING_UNITS: Mapping[str, Callable[[float], str]] = {
    "ms": lambda value: units.duration(value * units.NS_PER_MS),
    "mhz": lambda value: f"{units.count(round(value))} MHz",
    "bits": lambda value: f"{units.count(round(value))} bits",
    "bytes": units.size,
}


def _setting_title(name: str) -> str:
    """Return the title of a fact without its unit, which the value shows: ``CPU threads``."""
    head, _, unit = name.rpartition("_")
    first, *rest = (head if unit in _SETTING_UNITS else name).split("_")
    return " ".join([_ACRONYMS.get(first, first.capitalize()), *(_ACRONYMS.get(word, word) for word in rest)])


def _setting_value(name: str, value: float | str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    written = _SETTING_UNITS.get(name.rpartition("_")[2])
    return str(value) if written is None or isinstance(value, str) else written(value)


def _facts(trace: TraceInfo) -> tuple[Fact, ...]:
    recorded = trace.recorded
    kept = {
        "shapes": recorded.shapes,
        "Python stacks": recorded.stack,
        "memory": recorded.memory,
        "modules": recorded.modules,
    }
    rank = f"{trace.rank}" if trace.world_size is None else f"{trace.rank} of {trace.world_size}"
    facts = [
        Fact("File", trace.path),
        Fact("Devices", ", ".join(f"{d.index}: {d.name or 'unnamed'}" for d in trace.devices)),
        Fact("Idle devices", ", ".join(trace.idle_devices), "In the file's header, but no work was recorded on them."),
        Fact("Events", units.count(trace.event_count)),
        Fact("Duration", units.duration(trace.duration_ns)),
        Fact("Rank", "" if trace.rank is None else rank),
        Fact("Recorded", ", ".join(name for name, on in kept.items() if on) or "no optional details"),
        Fact("Not recorded", ", ".join(name for name, on in kept.items() if not on)),
        *_settings(trace),
        Fact(
            "Time zero", trace.origin_ns, "Absolute time of 0 on this page, in ns: add it to find an event in Perfetto."
        ),
    ]
    return tuple(fact for fact in facts if fact.value)


SCRIPTS = (
    "store.js", "layout.js", "describe.js", "interval.js", "overlays.js", "painter.js", "input.js", "timeline.js", "main.js",
)  # fmt: skip
"""The timeline's modules, each after those that it imports."""

_FLAME_LEGEND = (
    ("Annotation", "k-annotation"), ("Module", "k-module"), ("Operator", "k-operator"), ("Runtime call", "k-runtime"),
)  # fmt: skip
_LEFT_OUT_BYTES = 1_000  # for the sentence on what was left out


def page(report: Report, command: str = "", *, compact: bool = False, max_mb: float | None = None) -> str:
    """Return the whole page as text; ``command`` is the command line that made it, for display.

    A compact page ends after the timeline.

    A page that would exceed ``max_mb`` leaves out the smallest sufficient part of the timeline.
    """
    columns = timeline.timeline_columns(report)
    data = timeline.payload(columns)
    text = _page(report, columns, data, command, compact)
    if max_mb is None or (size := len(text.encode())) <= max_mb * 1e6:
        return text
    thinner = timeline.thinned_columns(report, int(max_mb * 1e6) - (size - len(data)) - _LEFT_OUT_BYTES)
    return _page(report, thinner, timeline.payload(thinner), command, compact)


def _page(report: Report, columns: timeline.TimelineColumns, data: str, command: str, compact: bool) -> str:
    shown = view(report, compact=compact)
    has_events = bool(columns.events.height)
    present = set(columns.events.get_column("kind").unique())
    chapters, drawn = shell.laid_out(shown.chapters)
    burning = () if compact or not has_events else flames(report)
    burnt = {colour for flame in burning for colour in flame.nodes.get_column("colour").unique()}
    packages = ((package, f"k-{slot}") for slot, package in columns.packages.labels.items())
    return (
        shell.environment()
        .get_template("page.html.j2")
        .render(
            **shell.shell(shown.title),
            report=report,
            view=shown,
            chapters=chapters,
            nav=[] if compact else [*([("timeline", "Timeline")] if has_events else []), *shell.nav(chapters), ("trace", "Trace")],
            command=command,
            compact=compact,
            record_instead=phrasing.record_instead(report),
            bokeh_js=Markup(shell.bokeh()),
            figures=_embedded(timeline_figures(report, columns)),
            plots=shell.plots_json(drawn),
            drawn=drawn,
            words={key: kernels.line_label(key) for key in (*cells.KINDS, *kernels.bucket_keys(), *PARTS)},
            has_events=has_events,
            curves=columns.curve_kinds,
            left_out=columns.left_out,
            kinds=[kind for kind in cells.KINDS if kind in present],
            idle_kinds=[part for part in PARTS if f"idle-{part}" in present],
            path_kinds=[part for part in PARTS if f"path-{part}" in present and f"idle-{part}" not in present],
            flames=burning,
            flame_legend=[(name, colour) for name, colour in (*packages, *_FLAME_LEGEND) if colour in burnt],
            stacks=Markup(shell.flame_payload(burning)) if burning else "",
            packages=columns.packages.labels,
            timeline=Markup(data),  # base64, which contains no special characters of HTML
            script=Markup(shell.scoped(*shell.MODULES, *SCRIPTS)),
            ADVICE_DOCS=_advice_docs(),
        )
    )  # fmt: skip


@cache
def _advice_docs() -> Mapping[str, Markup]:
    """Return the page of each fix by its id as HTML, without its code, which the card has."""
    return {
        fix_id: Markup().join(
            Markup("<h4>{}</h4>{}").format(heading, _html(page["sections"][heading]))
            for heading in fixes.HEADINGS
            if heading != "Code" and heading in page["sections"]
        )
        for fix_id, page in fixes.pages().items()
    }


def _html(markdown: str) -> Markup:
    """Return paragraphs and blocks of code of a page of advice as HTML; links become their text."""
    blocks = []
    for block in markdown.split("\n\n"):
        if block.startswith("```"):
            blocks.append(
                Markup("<pre class=code><code>{}</code></pre>").format(block.strip("`").partition("\n")[2].strip())
            )
            continue
        text = re.sub(r"\[(.+?)\]\([^)]*\)", r"\1", str(escape(block)), flags=re.DOTALL)
        text = re.sub(r"`([^`]+)`", r"<code>\1</code>", re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", text))
        blocks.append(Markup(f"<p>{text}</p>"))
    return Markup().join(blocks)


def frame(page_html: str) -> str:
    """Wrap a page in a sandboxed frame that may only run its own scripts."""
    return (
        '<iframe sandbox="allow-scripts" title="Trace analysis" width="100%" height="900" '
        f'style="border:0" srcdoc="{escape(page_html)}"></iframe>'
    )


def _embedded(figures: Sequence[codec.Model]) -> Markup:
    """Return Bokeh's document and the container of each figure, as JSON for ``Bokeh.embed.embed_items``."""
    written = codec.document(figures, "p")
    places = {root["id"]: f"figure-{root['attributes']['name']}" for root in written["roots"]}
    items = [{"docid": "timeline", "roots": places, "root_ids": list(places)}]
    return Markup(htmlsafe_json_dumps({"documents": {"timeline": written}, "items": items}))
