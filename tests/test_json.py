"""The JSON report keeps its contract: strict, described by its schema, the same bytes every time."""

import json
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_args

import pytest
from jsonschema import Draft202012Validator
from report_factory import gpu_report, hostile_report
from text_reports import all_reports, report_saying

from trace_analyzer import render, report
from trace_analyzer.render.json import to_json
from trace_analyzer.vocabulary import IDLE_CAUSES, PARTS

SCHEMA = json.loads((Path(render.__path__[0]) / "report.schema.json").read_text(encoding="utf-8"))


def strict(text: str) -> Any:
    """Parsed as RFC 8259 has it: NaN and Infinity are errors, not numbers."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def errors(document: Any) -> list[str]:
    return [f"{e.json_path}: {e.message}" for e in Draft202012Validator(SCHEMA).iter_errors(document)]


def test_schema_is_valid() -> None:
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("name", all_reports())
def test_reports_satisfy_the_schema(name: str) -> None:
    assert errors(strict(to_json(all_reports()[name]))) == []


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        (("verdict", "regime"), "slow"),
        (("verdict", "status"), "fine"),
        (("verdict", "cause"), "gremlins"),
        (("verdict", "shares", "idle"), 1.5),
        (("devices", 0, "gaps", "by_cause_ns"), {"gremlins": 1}),
        (("devices", 0, "partition_ns"), {"compute": -1}),
        (("trace", "origin_ns"), 12),
        (("steps", 0, "state"), "odd"),
    ],
)
def test_the_schema_is_closed_where_words_are_fixed(path: tuple[Any, ...], wrong: Any) -> None:
    document = strict(to_json(gpu_report()))
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = wrong
    assert errors(document)


def test_more_fields_are_welcome() -> None:
    document = strict(to_json(gpu_report()))
    document["new"] = document["trace"]["new"] = document["devices"][0]["new"] = 1
    assert errors(document) == []


def test_the_words_of_the_schema_are_those_of_the_program() -> None:
    words = {name: definition.get("enum") for name, definition in SCHEMA["$defs"].items()}
    assert set(words["status"]) == set(get_args(report.Status))
    assert set(words["regime"]) == set(get_args(report.Regime))
    assert set(words["idle_cause"]) == set(IDLE_CAUSES)
    assert set(words["part"]) == set(PARTS)


def test_every_field_of_the_report_is_described() -> None:
    def undescribed(value: Any, schema: dict[str, Any], path: str) -> list[str]:
        choices = [schema, *schema.get("anyOf", ())]
        properties = {name: s for choice in choices for name, s in choice.get("properties", {}).items()}
        missing = []
        for field in fields(value):
            inner, item = properties.get(field.name), getattr(value, field.name)
            if inner is None or "description" not in inner:
                missing.append(f"{path}.{field.name}")
            elif is_dataclass(item):
                missing += undescribed(item, inner, f"{path}.{field.name}")
            elif isinstance(item, tuple) and item and is_dataclass(item[0]):
                missing += undescribed(item[0], inner["items"], f"{path}.{field.name}[]")
        return missing

    assert undescribed(replace(gpu_report(), tables={}), SCHEMA, "") == [".tables"]


def test_the_same_report_gives_the_same_bytes() -> None:
    assert to_json(gpu_report()) == to_json(gpu_report())


def test_keys_stand_in_the_order_of_the_contract() -> None:
    document = strict(to_json(gpu_report()))
    keys = [
        "schema_version",
        "tool_version",
        "trace",
        "trust",
        "notes",
        "verdict",
        "devices",
        "steps",
        "blame",
        "host_costs",
        "advice",
        "steps_from",
    ]
    assert list(document) == keys
    assert list(document["devices"][0]["gaps"]) == ["count", "longest_ns", "by_cause_ns"]


def test_text_is_ascii_and_ends_in_a_newline() -> None:
    text = to_json(report_saying("\x1b[31m\x9b é 模型 \u202e"))
    assert text.isascii()
    assert "\x1b" not in text
    assert text.endswith("}\n")
    assert not text.endswith("\n\n")


def test_names_stay_the_traces_own_text() -> None:
    name = "\x1b]0;pwned\x07 </script> 模型 \u2028"
    assert strict(to_json(report_saying(name)))["advice"][0]["title"] == name
    assert strict(to_json(hostile_report()))["trace"]["path"] == hostile_report().trace.path


def test_what_is_no_number_becomes_null() -> None:
    made = gpu_report()
    shares = replace(made.verdict.shares, compute=float("nan"), memory=float("inf"))  # type: ignore[type-var]
    document = strict(to_json(replace(made, verdict=replace(made.verdict, shares=shares))))
    assert document["verdict"]["shares"]["compute"] is None
    assert document["verdict"]["shares"]["memory"] is None


def test_a_file_name_that_is_no_unicode_is_still_encodable() -> None:
    made = gpu_report()
    text = to_json(replace(made, trace=replace(made.trace, path="caf\udce9.json")))
    assert strict(text)["trace"]["path"] == "caf\\udce9.json"
