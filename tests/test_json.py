"""Check that the JSON report keeps its contract: strict, described by its schema, and reproducible byte for byte."""

import copy
import json
from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any, get_args

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator
from msgspec.structs import replace
from report_factory import gpu_report, hostile_report
from text_reports import all_reports, report_saying

import trace_analyzer
from trace_analyzer import cli, registry, vocabulary

SCHEMA = registry.json_schema()


def strict(text: str) -> Any:
    """Parse the text according to RFC 8259: NaN and Infinity are errors."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def errors(document: Any) -> list[str]:
    return [f"{e.json_path}: {e.message}" for e in Draft202012Validator(SCHEMA).iter_errors(document)]


def test_the_schema_is_valid_and_one_in_python_and_on_the_command_line() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert json.loads(registry.json_schema_text()) == SCHEMA == trace_analyzer.json_schema()
    printed = CliRunner().invoke(cli.main, ["--json-schema"], standalone_mode=False)
    assert (printed.output, printed.exit_code) == (registry.json_schema_text(), 0)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value in a document, with only the first item of arrays."""
    items = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


def replaced(document: Any, path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> Any:
    """Copy the document with a change at a path; the function gets the value's container, and its key."""
    made = copy.deepcopy(document)
    holder = made
    for key in path[:-1]:
        holder = holder[key]
    change(holder, path[-1])
    return made


def accepted(document: Any, wrong: Any) -> list[tuple[Any, ...]]:
    """Return the paths of the values that ``wrong`` may replace."""
    valid = Draft202012Validator(SCHEMA).is_valid
    set_wrong = lambda holder, key: holder.__setitem__(key, wrong)  # noqa: E731
    return [path for path in places(document) if valid(replaced(document, path, set_wrong))]


@pytest.mark.slow
def test_an_array_of_arrays_is_refused_everywhere_and_a_text_where_the_value_is_none() -> None:
    document = strict(gpu_report().to_json())
    assert accepted(document, [[["gremlin"]]]) == []
    free = [path for path in accepted(document, "gremlin") if not isinstance(at(document, path), str | None)]
    # Facts of the evidence and ids of devices may be a text instead of a number.
    assert [path for path in free if path[-1] not in ("value", "index", "device")] == []


def at(document: Any, path: tuple[Any, ...]) -> Any:
    return reduce(lambda value, key: value[key], path, document)


def test_every_field_is_required() -> None:
    document = strict(gpu_report().to_json())
    valid = Draft202012Validator(SCHEMA).is_valid
    named = [path for path in places(document) if isinstance(path[-1], str)]
    optional = [path for path in named if valid(replaced(document, path, lambda holder, key: holder.pop(key)))]
    maps = {"by_cause_ns", "partition_ns", "parts_ns", "event_cost_ns", "peak_tflops", "roof_ratio"}
    assert [path for path in optional if path[-2] not in maps] == []
    document["new"] = document["trace"]["new"] = document["devices"][0]["new"] = 1
    assert errors(document) == [], "more fields are welcome"


@pytest.mark.parametrize("name", all_reports())
def test_reports_satisfy_the_schema(name: str) -> None:
    assert errors(strict(all_reports()[name].to_json())) == []


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        ("verdict.regime", "slow"), ("verdict.status", "fine"), ("verdict.cause", "gremlins"),
        ("verdict.shares.idle", 1.5),
        ("verdict.window.intervals.0", [1, 2, 3]), ("verdict.window.kind", "odd"),
        ("verdict.parts_ns", {"gremlins": 1}),
        ("verdict.shares", {}), ("verdict.confidence", "sure"), ("devices.0.gaps.by_cause_ns", {"gremlins": 1}),
        ("devices.0.partition_ns", {"compute": -1}), ("devices.0.busy_ratio", 1.01),
        ("devices.0.buckets.0.group", "gremlins"),
        ("devices.0.run_ahead.state", "odd"), ("trace.origin_ns", 12), ("trace.origin_ns", "1e3"),
        ("trace.event_count", -1),
        ("steps.0.state", "odd"), ("schema_version", 1), ("schema_version", 3), ("trust.0.value", -0.5),
        ("trust.0.status", "odd"),
        ("notes.0.severity", "fatal"), ("advice.0.saves_ns_at_most", -1),
    ],
)  # fmt: skip
def test_the_schema_is_closed_where_words_are_fixed(path: str, wrong: Any) -> None:
    keys = tuple(int(key) if key.isdigit() else key for key in path.split("."))
    assert errors(replaced(strict(gpu_report().to_json()), keys, lambda holder, key: holder.__setitem__(key, wrong)))


def test_the_words_of_the_schema_are_those_of_the_program() -> None:
    words = {name: definition.get("enum") for name, definition in SCHEMA["$defs"].items()}
    assert words["status"] == list(get_args(vocabulary.StatusKey))
    assert words["regime"] == list(get_args(vocabulary.RegimeKey))
    assert set(words["idle_cause"]) == set(vocabulary.IDLE_CAUSES)
    assert set(words["part"]) == set(vocabulary.PARTS)


def described(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    for name, field in schema.get("properties", {}).items():
        yield f"{path}{name}", field.get("description", "")
        for inner in (field, *field.get("anyOf", ()), field.get("items", {})):
            yield from described(inner, f"{path}{name}.")


def test_every_field_of_the_report_is_described() -> None:
    sentences = dict(described(SCHEMA))
    assert [path for path, sentence in sentences.items() if not sentence.endswith((".", ":"))] == []
    assert len(sentences) > 280
    document = strict(gpu_report().to_json())
    assert set(document) == {path for path in sentences if "." not in path}


def test_keys_stand_in_the_order_of_the_contract_and_the_same_report_gives_the_same_bytes() -> None:
    document = strict(gpu_report().to_json())
    assert " ".join(document) == (
        "schema_version tool_version trace trust notes verdict devices steps blame host_costs advice steps_from compiled_regions"
        " fused_kernels serving cpu_time what_would_help critical_path memory"
    )
    assert list(document["devices"][0]["gaps"]) == ["count", "longest_ns", "by_cause_ns"]
    assert gpu_report().to_json() == gpu_report().to_json()


def test_text_is_ascii_ends_in_a_newline_and_keeps_the_traces_own_names() -> None:
    name = "\x1b]0;pwned\x07\x9b </script> é 模型 \u2028\u202e"
    text = report_saying(name).to_json()
    assert text.isascii()
    assert "\x1b" not in text
    assert text.endswith("}\n")
    assert not text.endswith("\n\n")
    assert strict(text)["advice"][0]["title"] == name
    assert strict(hostile_report().to_json())["trace"]["path"] == hostile_report().trace.path


def test_what_is_no_number_becomes_null_and_a_name_that_is_no_unicode_is_still_encodable() -> None:
    made = gpu_report()
    shares = replace(made.verdict.shares, compute=float("nan"), memory=float("inf"))  # type: ignore[type-var]
    named = replace(made.trace, path="caf\udce9.json")
    document = strict(replace(made, verdict=replace(made.verdict, shares=shares), trace=named).to_json())
    assert (document["verdict"]["shares"]["compute"], document["verdict"]["shares"]["memory"]) == (None, None)
    assert document["trace"]["path"] == "caf\\udce9.json"
