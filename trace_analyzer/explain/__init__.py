"""Explain one item of a report in full: an advice, an idle gap, a kernel, a step, a check, or the verdict."""

import html
from collections.abc import Mapping
from typing import Annotated, Any

from trace_analyzer import report, results, schema, units
from trace_analyzer.catalog.kernels import line_label
from trace_analyzer.documents import Chapter, Code, Document, Notes, PlainTable


class Explanation(results.Result, frozen=True):
    """One item of a report in full: description, figures, table rows, and the next commands.

    The names of figures carry their unit: ``duration_ns``, ``time_ratio``. ``print`` shows it as text.
    """

    id: Annotated[str, "The id that was asked for."]
    title: Annotated[str, "What it is, in a line."]
    text: Annotated[tuple[str, ...], "What it means, in sentences."]
    facts: Annotated[Mapping[str, report.Value], "Its figures; the names carry the unit."]
    code: Annotated[str, "What to write, for advice; else empty."] = ""
    rows_title: Annotated[str, "What the rows are."] = ""
    rows: Annotated[tuple[Mapping[str, report.Value], ...], "The evidence: rows of one form."] = ()
    see: Annotated[tuple[str, ...], "Ids that belong to it."] = ()
    next: Annotated[str, "The command to run next."] = ""

    def _repr_html_(self) -> str:  # a few lines, not a page
        return f'<pre style="font-family: monospace">{html.escape(self.summary())}</pre>'


def document(explanation: Explanation) -> Document:
    """Return the explanation as a document: its sentences, figures, evidence, and what to ask next."""
    facts = [
        (label_of(name), value_of(name, value)) for name, value in explanation.facts.items() if value not in (None, "")
    ]
    names = list(explanation.rows[0]) if explanation.rows else []
    rows = [[value_of(name, row[name]) for name in names] for row in explanation.rows]
    code = [Code(explanation.code)] if explanation.code else []
    sides = "".join("r" if schema.unit_of(name) else "l" for name in names)
    more = [f"See {', '.join(explanation.see)}"] if explanation.see else []
    return Document(
        explanation.id,
        f"{explanation.id} {explanation.title}",
        [
            Chapter("text", "Explanation", [Notes(explanation.text), *code]),
            Chapter("facts", "Figures", [PlainTable(("", ""), "ll", facts)] if facts else []),
            Chapter("rows", explanation.rows_title, [PlainTable([label_of(name) for name in names], sides, rows)] if rows else []),
            Chapter("next", "Next", [Notes([*more, explanation.next])] if explanation.next else []),
        ],
    )  # fmt: skip


def label_of(name: str) -> str:
    """Return the label of a fact, escaped for terminals and without a unit that its value shows."""
    if name in ("flop", "mfu_ratio"):
        return name.partition("_")[0].upper()
    shown = name.removesuffix("_ns").removesuffix("_bytes").removesuffix("_percent")
    return units.visible(shown.replace("_flop_per_s", " FLOP/s").replace("_byte_per_s", " B/s").replace("_", " "))


def value_of(name: str, value: Any) -> str:
    """Write the value of a fact in the unit of its name; a bucket by its label, memory in use with a binary prefix."""
    if name == "bucket" and value:
        return line_label(value)
    return units.memory_size(value) if name == "live_bytes" else units.written(value, schema.unit_of(name))
