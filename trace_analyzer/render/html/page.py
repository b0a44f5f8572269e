"""The report's page: template, styles, scripts and data in one text."""

import re
from importlib.resources import files

from bokeh.document import Document
from bokeh.resources import Resources
from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup, escape

from trace_analyzer import units
from trace_analyzer.render.html.figure import TimelineFigures, timeline_figures
from trace_analyzer.render.html.files import GENERATOR
from trace_analyzer.render.html.timeline import payload, timeline_columns
from trace_analyzer.render.html.view import part_word, view
from trace_analyzer.render.html.words import KINDS, PARTS, REGIMES, STATES, STATUSES, TERMS
from trace_analyzer.report import Report

SCRIPTS = (
    "format.js",
    "codec.js",
    "store.js",
    "lod.js",
    "layout.js",
    "navigation.js",
    "describe.js",
    "timeline.js",
    "main.js",
)
"""The page's modules, each after those that it imports."""

_ASSETS = files("trace_analyzer.render.html") / "assets"
_BOKEH_ID = re.compile(r'"p\d+"')
_MODULE_SYNTAX = re.compile(r"^import [^;]*;\n|^export (?=(?:async )?(?:function|const|class) )", re.MULTILINE)


def page(report: Report) -> str:
    """The whole page as text."""
    columns = timeline_columns(report)
    figures = timeline_figures(report, columns)
    present = set(columns.events.get_column("kind").unique())
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            report=report,
            view=view(report),
            generator=GENERATOR,
            style=Markup(_asset("style.css")),
            bokeh_js=Markup("\n".join(Resources(mode="inline", components=["bokeh"]).js_raw)),
            figures=_embedded(figures),
            words={key: word.label for key, word in {**KINDS, **PARTS}.items()},
            has_events=bool(columns.events.height),
            kinds=[kind for kind in KINDS if kind in present],
            idle_kinds=[part for part in PARTS if f"idle-{part}" in present],
            timeline=Markup(payload(columns)),  # base64: has no character that means something to HTML
            theme=Markup(_scoped("theme.js")),
            script=Markup(_scoped(*SCRIPTS)),
        )
    )


def frame(page_html: str) -> str:
    """A page in a sandboxed frame that may run its own scripts and nothing else."""
    return (
        '<iframe sandbox="allow-scripts" title="Trace analysis" width="100%" height="900" '
        f'style="border:0" srcdoc="{escape(page_html)}"></iframe>'
    )


def _scoped(*names: str) -> str:
    """Modules as one classic script.

    Inline modules cannot import each other, so their import and export keywords are dropped and all of them
    share one function scope.
    """
    modules = "\n".join(_MODULE_SYNTAX.sub("", _asset(name)) for name in names)
    return f"(() => {{\n'use strict';\n{modules}\n}})();"


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _embedded(figures: TimelineFigures) -> Markup:
    """Bokeh's documents and where each figure goes, as JSON for ``Bokeh.embed.embed_items``."""
    document = Document()
    for model in figures.all:
        document.add_root(model)
    places = {model.id: f"figure-{model.name}" for model in figures.all}
    items = [{"docid": "timeline", "roots": places, "root_ids": list(places)}]
    return Markup(
        _renumbered(htmlsafe_json_dumps({"documents": {"timeline": document.to_json(deferred=False)}, "items": items}))
    )


def _renumbered(text: str) -> str:
    """Bokeh numbers its objects through the whole process; from 1, the same report is the same file."""
    ids = {number: f'"p{place}"' for place, number in enumerate(dict.fromkeys(_BOKEH_ID.findall(text)), start=1)}
    return _BOKEH_ID.sub(lambda match: ids[match[0]], text)


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("trace_analyzer.render.html", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"duration": units.duration, "percent": units.percent, "count": units.count}
    environment.globals |= {
        "PARTS": PARTS, "KINDS": KINDS, "REGIMES": REGIMES, "STATUSES": STATUSES,
        "STATES": STATES, "TERMS": TERMS,
        "part_word": part_word,
    }  # fmt: skip
    return environment
