"""Share one shell between all pages: header, theme, styles, tables, charts, flame graphs, and what templates need.

`document_page` lays out a document as one offline page. All texts are escaped and made inert here.
"""

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.resources import files
from pathlib import Path

import polars as pl
from jinja2 import Environment, FileSystemBytecodeCache, PackageLoader, StrictUndefined
from jinja2.bccache import Bucket
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup, escape

from trace_analyzer import installation, sections, units
from trace_analyzer.catalog import document
from trace_analyzer.documents import Chapter, Document, Figure, FlameFigure
from trace_analyzer.render import charts, phrasing, row_phrases
from trace_analyzer.render.html import codec, figures
from trace_analyzer.render.html.cells import KINDS, MANY, NAMES, SHOWN_ROWS
from trace_analyzer.render.html.codec import bokeh_library, inert
from trace_analyzer.render.row_phrases import predicted_arrow, saves_at_most
from trace_analyzer.vocabulary import PARTS, REGIMES, RUN_AHEAD_STATES, STATUSES, UNKNOWN_PARTS, Term, by_key, phrase

MODULES = ("common.js", "flame.js", "plots.js")
"""Scripts of all pages, each after those that it imports."""

OPEN_ADVICE = 3
"""Number of advice cards that are open initially; the others are folded."""

ON_PAPER = ("trust", "kernels", "idle")
"""Folded parts that are printed nevertheless: checks of the trace, and where device and idle time go."""

MOST_TIP = 4_000
"""Most characters of a name that a table keeps for its file (CSV); a tooltip shows its beginning."""

_COLUMN = ".listing td:nth-child({0}) {{ --n: var(--n{0}, 20); }}"
_ASSETS = files("trace_analyzer.render.html") / "assets"
_COMMENT = re.compile(r"^\s*//.*\n", re.MULTILINE)
_MODULE_SYNTAX = re.compile(r"^import [^;]*;\n|^export (?=(?:async )?(?:function|const|class) )", re.MULTILINE)
_BEFORE_UNIT = re.compile(r"(?<=[0-9]) (?=%|(?:[num]?s|[KMGT]?i?B)\b)")
_CODE = re.compile(r"`([^`]*)`")
_PARTS = re.compile(
    r"(?<=[_.:/#])(?=[^_.:/#])(?!(?<=\.)[A-Za-z]\w*[:(]\d|(?<=:)\d)|(?<=[a-z])(?=[A-Z])|(?<= )"
)  # not between a file's name, its ending and a line's number
_FOLDERS = re.compile(r"(?<=[/\\])(?=[^/\\])|(?<=[^_]_)(?=[^_\s./\\]+(?:_[^\s./\\]*)?$)")
_WORDS = re.compile(r"(?<=[_-])(?=[^_-])")
_FILE = re.compile(r"(\(?[\w.+-]+\.[A-Za-z]\w*(?:\(\d+\)|:\d+)?[,;:.)]*)")
_REMARK = re.compile(r"(?:^|(?<=  ))#.*", re.MULTILINE)


def document_page(document: Document, *, scripts: Sequence[str] = (), data: Mapping[str, str] | None = None) -> str:
    """Return a document as one offline page.

    A page of its own kind adds ``scripts`` (assets) and ``data`` (base64 by the id of its element).
    """
    laid, drawn = laid_out(document.chapters)
    flames = {key: piece.flames() for _, pieces in laid for piece, _, key in pieces if isinstance(piece, FlameFigure)}
    payloads = dict(data or {})
    for each in flames.values():
        payloads["stacks"] = flame_payload(each)
    return (
        environment()
        .get_template("document.html.j2")
        .render(
            **shell(document.title), headline=document.headline, regime=document.regime, chips=document.chips,
            chapters=laid, nav=nav(laid), drawn=drawn, flames=flames,
            plots=plots_json(drawn), bokeh_js=Markup(bokeh()) if drawn else "",
            data={key: Markup(text) for key, text in payloads.items()},  # base64 has no special characters of HTML
            script=Markup(scoped(*MODULES, *scripts, "main.js")),
        )
    )  # fmt: skip


Laid = list[tuple[Chapter, list[tuple[object, str, str]]]]
"""Chapters with their pieces, each with the name of its type and its key."""


def laid_out(chapters: Iterable[Chapter]) -> tuple[Laid, dict[str, figures.Drawing]]:
    """Return the chapters that have anything to show, and the charts by key."""
    drawn: dict[str, figures.Drawing] = {}
    laid: Laid = []
    for chapter in chapters:
        pieces: list[tuple[object, str, str]] = []
        for place, piece in enumerate(chapter.shown):
            key = f"{chapter.key}-{place}"
            if isinstance(piece, Figure):
                if (chart := piece.chart()) is None:
                    continue
                key = piece.key or key
                drawn[key] = figures.drawing(key, chart)
            pieces.append((piece, type(piece).__name__, key))
        if pieces:
            laid.append((chapter, pieces))
    return laid, drawn


def nav(laid: Laid) -> list[tuple[str, str]]:
    """Return the keys of chapters with their titles in the page's navigation."""
    return [(chapter.key, chapter.short or chapter.title) for chapter, _ in laid]


def shell(title: str) -> dict[str, object]:
    """Return what every page's template needs: the title, styles, and the scripts that work without data."""
    return {
        "title": title,
        "generator": installation.GENERATOR,
        "version": installation.tool_version(),
        "style": Markup(
            charts.palette_css()
            + "\n"
            + asset("style.css").replace("/* columns */", "\n".join(map(_COLUMN.format, range(1, 19))))
        ),
        "theme": Markup(scoped("theme.js")),
        "page_script": Markup(scoped("common.js", "page.js")),
    }


def asset(name: str) -> str:
    """Return the text of an asset file."""
    return (_ASSETS / name).read_text(encoding="utf-8")


def scoped(*names: str) -> str:
    """Return asset modules as one classic script, without comment lines.

    Inline modules cannot import each other, so their import and export keywords are removed and they share one function
    scope.
    """
    modules = "\n".join(_MODULE_SYNTAX.sub("", _COMMENT.sub("", asset(name))) for name in names)
    return f"(() => {{\n'use strict';\n{modules}\n}})();"


@cache
def bokeh() -> str:
    """Return BokehJS, compressed; ``assets/plots.js`` inflates it."""
    return codec.deflated(bokeh_library().encode())


def plots_json(drawn: Mapping[str, figures.Drawing]) -> Markup:
    """Return Bokeh's documents by plot; each is embedded separately, so their ids must differ."""
    return Markup(htmlsafe_json_dumps({name: plot.document for name, plot in drawn.items()}))


def flame_payload(drawn: Sequence[sections.Flame]) -> str:
    """Return flame graphs as text for the page's script."""
    nodes = pl.concat([flame.nodes for flame in drawn])
    header = {"flames": [[flame.key, flame.title, flame.nodes.height, flame.left_out, flame.unit] for flame in drawn]}
    texts = [name for name in ("frame", "label", "colour", "note") if name in nodes.columns]
    columns: dict[str, codec.EncodedColumn] = {
        "caller": codec.delta(nodes.get_column("caller")),
        **{name: codec.text(nodes.get_column(name)) for name in texts},
        "value": codec.plain(nodes.get_column("value_ns")),
    }
    return codec.encode(header, columns)


class _CompiledTemplates(FileSystemBytecodeCache):
    """Keep compiled templates where Python keeps compiled modules, if it does and may write there.

    Compiling takes an eighth of the CPU time of a small trace with its page.
    """

    def get_source_checksum(self, source: str) -> str:
        """Return the checksum of a template and of this file, as `environment` decides what is escaped."""
        return super().get_source_checksum(source + Path(__file__).read_text("utf-8"))

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Write a compiled template, unless Python writes no compiled modules."""
        if not sys.dont_write_bytecode:
            with suppress(OSError):
                super().dump_bytecode(bucket)


@cache
def environment() -> Environment:
    """Return the template environment, which escapes all text and makes it inert."""
    environment = Environment(
        loader=PackageLoader("trace_analyzer.render.html", "assets"),
        bytecode_cache=_CompiledTemplates(str(Path(__file__).parent / "__pycache__")),
        autoescape=True,
        optimized=False,  # folding constants takes a third of compiling, and there are hardly any
        undefined=StrictUndefined,
        finalize=lambda value: inert(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "duration": units.duration,
        "percent": units.percent,
        "count": units.count,
        "capitalize_first": units.capitalized,
        "brief": lambda value: f"{value:.6g}" if isinstance(value, float) else value,
        "phrase": phrase,
        "coded": coded,
        "remarked": remarked,
        "unbroken": unbroken,
        "breakable": breakable,
        "as_path": as_path,
        "confidence": phrasing.confidence,
        "predicted_step": phrasing.predicted_step,
        "predicted_arrow": predicted_arrow,
        "saves_at_most": saves_at_most,
        "rule_applied": row_phrases.rule_applied,
        "lever_rows": row_phrases.lever_rows,
        "levers_title": row_phrases.levers_title,
        "host_levers_sentence": row_phrases.host_levers_sentence,
        "step_without_recording": row_phrases.step_without_recording,
        "sentences": phrasing.sentences,
        "judged_window": lambda report: ", ".join(
            filter(None, [phrasing.window_length(report), phrasing.window_kind(report)])
        ),
    }
    environment.globals |= {
        "PARTS": PARTS, "KINDS": KINDS, "REGIMES": REGIMES, "STATUSES": STATUSES, "TERMS": TERMS, "GLOSSARY": GLOSSARY,
        "HATCHED": UNKNOWN_PARTS, "SHOWN_ROWS": SHOWN_ROWS, "MANY": MANY, "NAMES": NAMES, "OPEN_ADVICE": OPEN_ADVICE,
        "MOST_TIP": MOST_TIP, "ON_PAPER": ON_PAPER, "LEVER_PARTS": row_phrases.LEVER_PARTS,
    }  # fmt: skip
    return environment


def coded(text: str) -> Markup:
    """Return the text with the parts between backticks as code."""
    marks = (
        Markup("<code>{}</code>").format(inert(part)) if k % 2 else escape(inert(part))
        for k, part in enumerate(_CODE.split(text))
    )
    return Markup("").join(marks)


def unbroken(text: str) -> str:
    """Return prose in which a number and its unit stay on one line."""
    return _BEFORE_UNIT.sub("\u00a0", text)


def remarked(code: str) -> Markup:
    """Return Python code with its comments marked: a comment after code wraps to the next line as a whole."""
    code = inert(code)
    marks, end = [], 0
    for remark in _REMARK.finditer(code):
        name = "remark after" if code[end : remark.start()].strip(" ").rpartition("\n")[2] else "remark"
        marks += [escape(code[end : remark.start()]), Markup('<span class="{}">{}</span>').format(name, remark[0])]
        end = remark.end()
    return Markup("").join([*marks, escape(code[end:])])


def breakable(name: str, room: int, lines: int) -> Markup:
    """Return a name that may break between its words, unless it would then exceed its lines.

    A line has room for ``room`` characters and a sixth more, as letters are narrower than the digits by which rooms are
    measured.
    """
    room += room // 6
    name = inert(name)
    parts, taken, width = _PARTS.split(name), 1, 0
    for part in parts:
        if width and width + len(part) > room:
            taken, width = taken + 1, 0
        width += len(part)
    fits = taken <= lines and max(map(len, parts)) <= room
    return Markup("<wbr>" if fits else "").join(map(escape, parts))


def as_path(text: str) -> Markup:
    """Return a text that may break after a slash, and after an underscore of its last word.

    A file's name moves to the next line as a whole; between its words breaks only one that is longer than a line.
    """
    marks = (
        Markup('<span class="file-name">{}</span>').format(_may_break(_WORDS, part))
        if k % 2
        else _may_break(_FOLDERS, part)
        for k, part in enumerate(_FILE.split(inert(text)))
    )
    return Markup("").join(marks)


def _may_break(place: re.Pattern[str], text: str) -> Markup:
    return Markup("<wbr>").join(map(escape, place.split(text)))


TERMS: Mapping[str, Term] = by_key(*(Term(key, *row) for key, row in document("terms.toml").items()))

GLOSSARY: Mapping[str, Mapping[str, Term]] = {
    "term": TERMS,
    "regime": REGIMES,
    "status": STATUSES,
    "state": RUN_AHEAD_STATES,
    "part": PARTS,
    "kind": KINDS,
}
"""Every definition on the page by group and key, for its tooltips and its glossary."""
