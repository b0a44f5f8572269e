"""Assemble the report's page: template, styles, scripts and data in one text."""

import re
from collections.abc import Mapping, Sequence
from functools import cache

from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup, escape

from trace_analyzer.catalog.fixes import HEADINGS, pages
from trace_analyzer.catalog.line_labels import bucket_keys, line_label
from trace_analyzer.render import phrasing
from trace_analyzer.render.html.bokeh_models import Model, document
from trace_analyzer.render.html.cells import KINDS
from trace_analyzer.render.html.figures import flames, timeline_figures
from trace_analyzer.render.html.shell import (
    MODULES,
    bokeh,
    environment,
    flame_payload,
    laid_out,
    nav,
    plots_json,
    scoped,
    shell,
)
from trace_analyzer.render.html.timeline import TimelineColumns, payload, thinned_columns, timeline_columns
from trace_analyzer.render.html.view import view
from trace_analyzer.report import Report
from trace_analyzer.vocabulary import PARTS

SCRIPTS = (
    "store.js", "layout.js", "describe.js", "interval.js", "overlays.js", "painter.js", "input.js", "timeline.js", "main.js",
)  # fmt: skip
"""The timeline's modules, each after those that it imports."""

_FLAME_LEGEND = (("Module", "k-module"), ("Operator", "k-operator"), ("Runtime call", "k-runtime"))
_LEFT_OUT_BYTES = 1_000  # for the sentence on what was left out


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
    shown = view(report, compact=compact)
    has_events = bool(columns.events.height)
    present = set(columns.events.get_column("kind").unique())
    chapters, drawn = laid_out(shown.chapters)
    burning = () if compact or not has_events else flames(report)
    return (
        environment()
        .get_template("page.html.j2")
        .render(
            **shell(shown.title),
            report=report,
            view=shown,
            chapters=chapters,
            nav=[] if compact else [*([("timeline", "Timeline")] if has_events else []), *nav(chapters), ("trace", "Trace")],
            command=command,
            compact=compact,
            record_instead=phrasing.record_instead(report),
            bokeh_js=Markup(bokeh()),
            figures=_embedded(timeline_figures(report, columns)),
            plots=plots_json(drawn),
            drawn=drawn,
            words={key: line_label(key) for key in (*KINDS, *bucket_keys(), *PARTS)},
            has_events=has_events,
            curves=columns.curve_kinds,
            left_out=columns.left_out,
            kinds=[kind for kind in KINDS if kind in present],
            idle_kinds=[part for part in PARTS if f"idle-{part}" in present],
            path_kinds=[part for part in PARTS if f"path-{part}" in present and f"idle-{part}" not in present],
            flames=burning,
            flame_legend=[*((package, f"k-{slot}") for slot, package in columns.packages.labels.items()), *_FLAME_LEGEND],
            stacks=Markup(flame_payload(burning)) if burning else "",
            packages=columns.packages.labels,
            timeline=Markup(data),  # base64, which contains no special characters of HTML
            script=Markup(scoped(*MODULES, *SCRIPTS)),
            ADVICE_DOCS=_advice_docs(),
        )
    )  # fmt: skip


@cache
def _advice_docs() -> Mapping[str, Markup]:
    """Return the page of each fix by its id as HTML, without its code, which the card has."""
    return {
        fix_id: Markup().join(
            Markup("<h4>{}</h4>{}").format(heading, _html(page["sections"][heading]))
            for heading in HEADINGS
            if heading != "Code" and heading in page["sections"]
        )
        for fix_id, page in pages().items()
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


def _embedded(figures: Sequence[Model]) -> Markup:
    """Return Bokeh's document and the container of each figure, as JSON for ``Bokeh.embed.embed_items``."""
    written = document(figures, "p")
    places = {root["id"]: f"figure-{root['attributes']['name']}" for root in written["roots"]}
    items = [{"docid": "timeline", "roots": places, "root_ids": list(places)}]
    return Markup(htmlsafe_json_dumps({"documents": {"timeline": written}, "items": items}))
