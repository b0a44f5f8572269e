"""Assemble the report's page: template, styles, scripts and data in one text."""

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup, escape

from trace_analyzer import units
from trace_analyzer.catalog.line_labels import bucket_keys, line_label
from trace_analyzer.render import phrasing, window_phrasing
from trace_analyzer.render.advice_phrasing import predicted_arrow, saves_at_most
from trace_analyzer.render.html import codec, flames, marks
from trace_analyzer.render.html.asset_files import asset
from trace_analyzer.render.html.bokeh_models import Model, bokeh_library, document
from trace_analyzer.render.html.drawings import Drawing, drawings
from trace_analyzer.render.html.figure import timeline_figures
from trace_analyzer.render.html.files import GENERATOR
from trace_analyzer.render.html.inert import inert
from trace_analyzer.render.html.labels import GLOSSARY, KINDS, TERMS
from trace_analyzer.render.html.page_cells import MANY, NAMES, SHOWN_ROWS
from trace_analyzer.render.html.timeline import TimelineColumns, payload, thinned_columns, timeline_columns
from trace_analyzer.render.html.view import View, view
from trace_analyzer.render.palette import palette_css
from trace_analyzer.render.phrasing import confidence, record_instead
from trace_analyzer.report import Report
from trace_analyzer.vocabulary import PARTS, REGIMES, STATUSES, UNKNOWN_PARTS, phrase

OPEN_ADVICE = 3
"""Number of advice cards that are open initially; the others are folded."""

ON_PAPER = ("trust", "kernels", "idle")
"""Folded parts that are printed nevertheless: checks of the trace, and where device and idle time go."""

MOST_TIP = 240
"""Most characters of a name in a tooltip; the timeline has the whole name."""

STYLES = ("style.css", "timeline.css")

SCRIPTS = (
    "clipboard.js",
    "format.js",
    "codec.js",
    "store.js",
    "lod.js",
    "layout.js",
    "navigation.js",
    "path.js",
    "python_class.js",
    "describe.js",
    "advice.js",
    "idle_story.js",
    "interval.js",
    "queue.js",
    "ink.js",
    "elements.js",
    "part.js",
    "tracks.js",
    "painter.js",
    "arrows.js",
    "panels.js",
    "overlays.js",
    "ruler.js",
    "finder.js",
    "input.js",
    "timeline.js",
    "flame.js",
    "main.js",
)
"""The timeline's modules, each after those that it imports."""

PLOT_SCRIPTS = ("plots.js", "figures.js")
"""Scripts of the summary plots."""

PAGE_SCRIPTS = ("clipboard.js", "cards.js", "folds.js", "tables.js", "tips.js", "page.js")
"""Scripts that work before the timeline is loaded, and without it."""

_LEFT_OUT_BYTES = 1_000  # for the sentence on what was left out

_COMMENT = re.compile(r"^\s*//.*\n", re.MULTILINE)
_MODULE_SYNTAX = re.compile(r"^import [^;]*;\n|^export (?=(?:async )?(?:function|const|class) )", re.MULTILINE)


def page(report: Report, command: str = "", *, compact: bool = False, max_mb: float | None = None) -> str:
    """Return the whole page as text; ``command`` is the command line that made it, for display.

    A compact page ends after the timeline.

    A page that would exceed ``max_mb`` leaves out the smallest sufficient part of the timeline.
    """
    columns = timeline_columns(report)
    data = payload(columns)
    text = _page(report, columns, data, command, compact)
    if max_mb is None or (size := len(text.encode())) <= max_mb * 1e6:
        return text
    thinner = thinned_columns(report, int(max_mb * 1e6) - (size - len(data)) - _LEFT_OUT_BYTES)
    return _page(report, thinner, payload(thinner), command, compact)


def _page(report: Report, columns: TimelineColumns, data: str, command: str, compact: bool) -> str:
    figures = timeline_figures(report, columns)
    shown = view(report, compact=compact)
    drawn = _drawings(report, shown)
    present = set(columns.events.get_column("kind").unique())
    return (
        environment()
        .get_template("page.html.j2")
        .render(
            report=report,
            view=shown,
            nav=_nav(shown, bool(columns.events.height)),
            command=command,
            compact=compact,
            record_instead=record_instead(report),
            generator=GENERATOR,
            style=Markup("\n".join((palette_css(), *map(asset, STYLES)))),
            bokeh_js=Markup(_bokeh()),
            figures=_embedded(figures),
            plots=_plots(drawn),
            plot_script=Markup(scoped(*PLOT_SCRIPTS)),
            drawn=drawn,
            words={key: line_label(key) for key in (*KINDS, *bucket_keys(), *PARTS)},
            has_events=bool(columns.events.height),
            curves=columns.curve_kinds,
            left_out=columns.left_out,
            kinds=[kind for kind in KINDS if kind in present],
            idle_kinds=[part for part in PARTS if f"idle-{part}" in present],
            path_kinds=[part for part in PARTS if f"path-{part}" in present and f"idle-{part}" not in present],
            flames=(burning := () if compact or not columns.events.height else flames.flames(report)),
            stacks=Markup(flames.payload(burning)) if burning else "",
            packages=columns.packages.labels,
            timeline=Markup(data),  # base64, which contains no special characters of HTML
            theme=Markup(scoped("theme.js")),
            page_script=Markup(scoped(*PAGE_SCRIPTS)),
            script=Markup(scoped(*SCRIPTS)),
        )
    )


@cache
def _advice_docs() -> Mapping[str, Markup]:
    """Return the documentation of each fix by its id, as HTML that `docs/generate.py` makes from docs/advice.md."""
    text = (files("trace_analyzer.render.html") / "advice_docs.json").read_text(encoding="utf-8")
    return {fix: Markup(html) for fix, html in json.loads(text).items()}


@cache
def _bokeh() -> str:
    """Return BokehJS, compressed; ``assets/main.js`` inflates it."""
    return codec.deflated(bokeh_library().encode())


def _nav(shown: View, has_events: bool) -> list[tuple[str, str]]:
    """Return the anchors and labels of the sections with a link."""
    return [
        *([("timeline", "Timeline")] if has_events else []),
        *((section.key, section.short) for section in shown.sections if section.pieces),
        ("trace", "Trace"),
    ]


def frame(page_html: str) -> str:
    """Wrap a page in a sandboxed frame that may only run its own scripts."""
    return (
        '<iframe sandbox="allow-scripts" title="Trace analysis" width="100%" height="900" '
        f'style="border:0" srcdoc="{escape(page_html)}"></iframe>'
    )


def scoped(*names: str) -> str:
    """Return asset modules as one classic script, without comment lines.

    Inline modules cannot import each other, so their import and export keywords are removed and they share one function
    scope.
    """
    modules = "\n".join(_MODULE_SYNTAX.sub("", _COMMENT.sub("", asset(name))) for name in names)
    return f"(() => {{\n'use strict';\n{modules}\n}})();"


def _embedded(figures: Sequence[Model]) -> Markup:
    """Return Bokeh's document and the container of each figure, as JSON for ``Bokeh.embed.embed_items``."""
    written = document(figures, "p")
    places = {root["id"]: f"figure-{root['attributes']['name']}" for root in written["roots"]}
    items = [{"docid": "timeline", "roots": places, "root_ids": list(places)}]
    return Markup(htmlsafe_json_dumps({"documents": {"timeline": written}, "items": items}))


def _drawings(report: Report, shown: View) -> Mapping[str, Drawing]:
    """Return the plots of the page."""
    return drawings(report, tuple(plot.name for section in shown.sections for plot in section.plots))


def _plots(drawn: Mapping[str, Drawing]) -> Markup:
    """Return Bokeh's documents by plot; each is embedded separately, so their ids must differ."""
    return Markup(htmlsafe_json_dumps({name: plot.document for name, plot in drawn.items()}))


@cache
def environment() -> Environment:
    """Return the template environment, which escapes all text and makes it inert."""
    environment = Environment(
        loader=PackageLoader("trace_analyzer.render.html", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: inert(value) if isinstance(value, str) else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"duration": units.duration, "percent": units.percent, "count": units.count}
    environment.filters |= {"confidence": confidence, "phrase": phrase, "predicted_step": phrasing.predicted_step}
    environment.filters |= {"predicted_arrow": predicted_arrow, "saves_at_most": saves_at_most}
    environment.filters["rule_applied"] = phrasing.rule_applied
    environment.filters["sentences"] = phrasing.sentences
    environment.filters["judged_window"] = lambda report: ", ".join(
        filter(None, [window_phrasing.window_length(report), window_phrasing.window_kind(report)])
    )
    environment.filters["brief"] = lambda value: f"{value:.6g}" if isinstance(value, float) else value
    environment.filters |= {"coded": marks.coded, "remarked": marks.remarked, "breakable": marks.breakable}
    environment.filters["capitalize_first"] = units.capitalized
    environment.globals |= {
        "PARTS": PARTS, "KINDS": KINDS, "REGIMES": REGIMES, "STATUSES": STATUSES, "TERMS": TERMS,
        "GLOSSARY": GLOSSARY, "HATCHED": UNKNOWN_PARTS, "SHOWN_ROWS": SHOWN_ROWS, "MANY": MANY, "NAMES": NAMES, "OPEN_ADVICE": OPEN_ADVICE, "MOST_TIP": MOST_TIP, "ON_PAPER": ON_PAPER,
        "ADVICE_DOCS": _advice_docs(),
    }  # fmt: skip
    return environment
