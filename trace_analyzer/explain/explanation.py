"""The explanation of one item, for people and for scripts."""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from trace_analyzer import report, results, schema, units
from trace_analyzer.catalog.kernels import line_label
from trace_analyzer.documents import Chapter, Code, Document, Notes, PlainTable
from trace_analyzer.render.layout import Line, columns, folded, folded_code, hanging, line_text


@dataclass(frozen=True, repr=False)
class Explanation(results.Result):
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

    def summary(self, width: int = 100, colour: bool = False) -> str:
        """Return the explanation as text in lines of at most ``width`` cells."""
        lines = hanging([(units.visible(self.id) + "  ", "title")], units.visible(self.title), width, style="bold")
        for sentence in self.text:
            lines += [[("  ", ""), (line, "")] for line in folded(units.visible(sentence), width - 2)]
        lines += [
            [("    ", ""), (line, "code")]
            for text in self.code.splitlines()
            for line in folded_code(units.visible(text), width - 4)
        ]
        lines += _facts(self.facts, width)
        lines += _rows(self.rows_title, self.rows, width)
        if self.see:
            lines += [[], *hanging([("See   ", "title")], units.visible(", ".join(self.see)), width)]
        if self.next:
            lines += [*([] if self.see else [[]]), *hanging([("Next  ", "title")], units.visible(self.next), width)]
        return "".join(line_text(line, width, colour) + "\n" for line in lines)

    def _repr_html_(self) -> str:
        return f'<pre style="font-family: monospace">{html.escape(self.summary())}</pre>'


def document(explanation: Explanation) -> Document:
    """Return the explanation as a document: its sentences, figures, evidence, and what to ask next."""
    facts = [
        (label_of(name), value_of(name, value)) for name, value in explanation.facts.items() if value not in (None, "")
    ]
    names = list(explanation.rows[0]) if explanation.rows else []
    rows = [[value_of(name, row[name]) for name in names] for row in explanation.rows]
    more = [f"See {', '.join(explanation.see)}"] if explanation.see else []
    return Document(
        explanation.id,
        explanation.title,
        [
            Chapter("text", "Explanation", [Notes(explanation.text)] if explanation.text else []),
            Chapter("code", "Code", [Code(explanation.code)] if explanation.code else []),
            Chapter("facts", "Figures", [PlainTable(("", ""), "ll", facts)] if facts else []),
            Chapter("rows", explanation.rows_title, [PlainTable([label_of(name) for name in names], "l" * len(names), rows)] if rows else []),
            Chapter("next", "Next", [Notes([*more, explanation.next])] if explanation.next else []),
        ],
    )  # fmt: skip


def _facts(facts: Mapping[str, report.Value], width: int) -> list[Line]:
    """Write the known figures, one per line."""
    known = {name: value for name, value in facts.items() if value not in (None, "")}
    if not known:
        return []
    indent = max(units.cell_width(label_of(name)) for name in known) + 4
    return [
        [],
        *(
            line
            for name, value in known.items()
            for line in hanging(
                [("  " + label_of(name).ljust(indent - 2), "dim")], units.visible(value_of(name, value)), width
            )
        ),
    ]


def _rows(title: str, rows: Sequence[Mapping[str, report.Value]], width: int) -> list[Line]:
    """Write the rows: figures as columns, then their descriptions, wrapped."""
    if not rows:
        return []
    names = list(rows[0])
    figures = [name for name in names if schema.unit_of(name)]
    heads = columns([[(value_of(name, row[name]), "bold") for name in figures] for row in rows], "r" * len(figures))
    lines: list[Line] = [[], [(title, "title")]]
    for row, head in zip(rows, heads, strict=True):
        texts = [value_of(name, row[name]) for name in names if name not in figures and row[name] not in (None, "")]
        lines += hanging([("  ", ""), *head, ("  ", "")], units.visible(", ".join(texts)), width)
    return lines


def label_of(name: str) -> str:
    """Return the label of a fact, escaped for terminals and without a unit that its value shows."""
    if name in ("flop", "mfu_ratio"):
        return name.partition("_")[0].upper()
    shown = name.removesuffix("_ns").removesuffix("_bytes")
    return units.visible(shown.replace("_flop_per_s", " FLOP/s").replace("_byte_per_s", " B/s").replace("_", " "))


def value_of(name: str, value: Any) -> str:
    """Write the value of a fact in the unit of its name; a bucket by its label, memory in use with a binary prefix."""
    if name == "bucket" and value:
        return line_label(value)
    return units.memory_size(value) if name == "live_bytes" else units.written(value, schema.unit_of(name))
