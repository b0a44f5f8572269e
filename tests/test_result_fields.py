"""Check that every field of a public result has its own sentence."""

import typing
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import Struct

import trace_analyzer
from trace_analyzer import json_types, results

RESULTS = [
    value
    for name in dir(trace_analyzer)
    if isinstance(value := getattr(trace_analyzer, name), type) and issubclass(value, results.Result)
]
IN_DOCSTRING = {"Report": {"tables", "declared"}}
"""Fields that are no part of the JSON report, whose sentences in the docstring tell more than one line could."""


def classes(hint: Any) -> Iterator[type]:
    """Yield the records of the package that a type names, and those of their fields."""
    if isinstance(hint, type) and results.field_names(hint):
        yield hint
        hints = typing.get_type_hints(hint)
        for name in results.document_fields(hint):
            if name not in IN_DOCSTRING.get(hint.__name__, ()):
                yield from classes(hints[name])
    for inner in typing.get_args(hint):
        yield from classes(inner)


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: result.__name__)
def test_every_field_has_a_sentence(result: type[results.Result]) -> None:
    reached = set(classes(result))
    missing = [
        f"{each.__name__}.{name}"
        for each in reached
        for name in results.field_names(each)
        if not json_types.field_docs(each).get(name, "").endswith((".", ":"))
        and name not in IN_DOCSTRING.get(each.__name__, ())
    ]
    assert result in reached
    assert missing == []
    for name in IN_DOCSTRING.get(result.__name__, ()):
        assert f"``{name}``" in (result.__doc__ or "")


def test_a_field_without_a_sentence_is_seen() -> None:
    class Pair(Struct, frozen=True):
        with_one: typing.Annotated[int, "A number."]
        without: int

    assert json_types.field_docs(Pair) == {"with_one": "A number."}
    assert json_types.doc_of(int) == ""


def test_results_are_those_of_all_verbs() -> None:
    assert {result.__name__ for result in RESULTS} == {
        "Comparison", "Explanation", "JobReport", "Memory", "Report", "Scaling", "WhatIf",
    }  # fmt: skip
