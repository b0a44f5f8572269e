"""Describe the explanation of one item of a report: its sentences, figures, evidence, and what to ask next."""

from trace_analyzer.documents import Chapter, Code, Document, Notes, PlainTable
from trace_analyzer.explain.explanation import Explanation, label_of, value_of


def document(explanation: Explanation) -> Document:
    """Return the explanation as a document."""
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
