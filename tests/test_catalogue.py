"""Test the rules of the catalogue against their examples, and that a mistake in a file is named with its row."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from catalogue import examples

from trace_analyzer import catalog, errors
from trace_analyzer.catalog import devices, event_names, fixes, kernels

CODE = ("phases", "libraries", "preparations", "sources")
PATTERNS: dict[str, Callable[[], Iterable[str | None]]] = {
    "kernels": lambda: (pattern for rule in kernels.rules() for pattern in (rule.name, rule.words, rule.operator)),
    "arithmetic": lambda: (rule.name for table in kernels.ARITHMETIC for rule in kernels.arithmetic_rules(table)),
    "host_work": lambda: (rule.pattern for rule in event_names.host_work_rules()),
    "step_marks": lambda: (rule.pattern for rule in event_names.step_mark_rules()),
    "serving_steps": lambda: (rule.pattern for rule in event_names.serving_rules()),
    "code": lambda: (rule.pattern for table in CODE for rule in event_names.code_rules(table)),
    "copies": lambda: (rule.pattern for rule in event_names.direction_rules()),
    "architectures": lambda: (row.name for row in devices.architectures()),
}


def results(kind: str, names: list[str], column: str, file: str) -> dict[str, Any]:
    """Map names to their results in a column: of host work, of step marks or of code."""
    events = pl.DataFrame({"kind": [kind] * len(names), "name": names}, schema={"kind": pl.String, "name": pl.String})
    read = event_names.named_code if file == "code" else getattr(event_names, file)
    return dict(read(events).select("name", column).iter_rows())


def named(row: dict[str, Any], file: str, table: str) -> tuple[str, Any]:
    """Return the column and the value that a rule gives to names."""
    if table in ("phases", "sources"):
        return table[:-1], row["name"]
    column = {"host_work": "work", "step_marks": "marks"}.get(file)
    return (column, row[column]) if column else ("library", True)


ROWS = [
    (file, table, row)
    for file in ("host_work", "step_marks", "code")
    for table, rows in examples(f"{file}.toml").items()
    for row in rows
    if table != "preparations"
]


@pytest.mark.parametrize(("file", "table", "row"), ROWS, ids=lambda value: value if isinstance(value, str) else "")
def test_rules_on_host_events_name_their_examples_in_all_their_kinds(
    file: str, table: str, row: dict[str, Any]
) -> None:
    column, value = named(row, file, table)
    for kind in row.get("kinds", ["python"]):
        assert results(kind, row["examples"], column, file) == dict.fromkeys(row["examples"], value)
        assert value not in results(kind, row.get("counterexamples", []), column, file).values()
        if "source" in row:
            assert set(results(kind, row["examples"], "source", file).values()) == {row["source"]}


def test_every_rule_on_host_events_decides_an_example() -> None:
    """Check that no rule is without an example, or behind another one that decides all of its own."""
    rules: list[tuple[str, str, tuple[event_names.Rule, ...]]] = [
        ("host_work", "rules", event_names.host_work_rules()),
        ("step_marks", "rules", event_names.step_mark_rules()),
        *(("code", table, event_names.code_rules(table)) for table in CODE),
    ]
    for file, table, those in rules:
        rows = [
            (kind, row["examples"]) for row in examples(f"{file}.toml")[table] for kind in row.get("kinds", ["python"])
        ]
        names = pl.DataFrame(rows, schema=["kind", "name"], orient="row").explode("name")
        decides = catalog.first((rule.holds, pl.lit(number)) for number, rule in enumerate(those))
        assert set(names.select(decides).to_series()) == set(range(len(those))), (file, table)


def test_preparation_of_inputs_is_known_by_name() -> None:
    for row in examples("code.toml")["preparations"]:
        for names, expected in ((row["examples"], row["name"]), ([*row["counterexamples"], None], None)):
            prepared = pl.DataFrame({"name": names}).select(event_names.preparation_of(pl.col("name"))).to_series()
            assert prepared.to_list() == [expected] * len(names)


def directions(names: list[str]) -> list[str | None]:
    return pl.DataFrame({"name": names}).select(event_names.copy_direction()).to_series().to_list()


def test_directions_of_copies() -> None:
    rows = examples("copies.toml")["directions"]
    assert [row["name"] for row in rows] == [rule.name for rule in event_names.direction_rules()]
    for row in rows:
        assert directions(row["examples"]) == [row["name"]] * len(row["examples"])
        assert row["name"] not in directions(row["counterexamples"])


def test_steps_of_serving_frameworks() -> None:
    rows = examples("serving_steps.toml")["rules"]
    assert [row["source"] for row in rows] == [rule.source for rule in event_names.serving_rules()]
    for row in rows:
        for name, kind, tokens in row["examples"]:
            (step,) = event_names.serving_steps(pl.Series([name])).to_dicts()
            expected = {"source": row["source"], "step_kind": kind, "tokens": None if tokens == -1 else tokens}
            assert step.items() >= expected.items()
            assert kind in event_names.STEP_KINDS


def test_architectures_by_names_of_kernels() -> None:
    rows = examples("architectures.toml")["architecture"]
    for row, architecture in zip(rows, devices.architectures(), strict=True):
        assert row["id"] == architecture.id
        one_each = pl.DataFrame({"device": range(len(row["examples"])), "name": row["examples"]})
        assert devices.architectures_of(one_each) == dict.fromkeys(range(one_each.height), architecture)
        (assumed,) = devices.assumed_devices(one_each.with_columns(device=pl.lit(3))).items()
        assert (assumed[0], assumed[1].name, assumed[1].assumed) == (3, architecture.device, True)


def arithmetic(names: list[str], table: str) -> list[Any]:
    made = kernels.arithmetic(pl.Series("name", names, dtype=pl.String))
    if table == "operand":
        return made.select(kernels.operand_type()).to_series().to_list()
    return made.select("tensor_cores", "fp32").rows() if table == "unit" else made.get_column(table).to_list()


@pytest.mark.parametrize("table", kernels.ARITHMETIC)
def test_arithmetic_by_names_of_kernels(table: str) -> None:
    for row, rule in zip(examples("arithmetic.toml")[table], kernels.arithmetic_rules(table), strict=True):
        assert row["id"] == rule.id
        value = (rule.tensor_cores, rule.fp32) if table == "unit" else rule.dtype or True
        assert arithmetic(row["examples"], table) == [value] * len(row["examples"])
        assert value not in arithmetic(row.get("counterexamples", []), table)


def test_other_names() -> None:
    """Check that names without a rule have no marks and no known arithmetic."""
    assert results("annotation", ["do_it", "", "execute"], "marks", "step_marks") == {}
    assert results("runtime", ["Optimizer.step#SGD.step"], "marks", "step_marks") == {}
    assert kernels.arithmetic(pl.Series(["kernel_v7"])).row(0) == ("kernel_v7", None, None, None, False, False)
    assert kernels.arithmetic(pl.Series([], dtype=pl.String)).is_empty()
    assert pl.DataFrame({"name": ["kernel_v7"]}).select(kernels.operand_type()).item() is None


def test_fusions_by_chains_of_operators() -> None:
    for row, rule in zip(examples("fusions.toml")["fusion"], fixes.fusions(), strict=True):
        assert row["id"] == rule.id
        assert {fixes.named_fusion(chain) for chain in row["examples"]} == {rule}
        assert rule not in {fixes.named_fusion(chain) for chain in row["counterexamples"]}


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        (r"^\w+_kernel$", "gemm2_kernel", True), (r"^\w+_kernel$", "gemm<2>_kernel", False),
        (r"^[\w:]+$", "ns::gemm", True), (r"^[^\w]+$", "<<>>", True), (r"^[^\w]+$", "<a>", False),
        (r"\.py\(\d+\)$", "train.py(12)", True), (r"(?i)^GEMM\d$", "gemm7", True), (r"^\w+$", "né", False),
        (r"^\d$", "٣", False), (r"^.$", "é", True), (r"a", None, None),
    ],
)  # fmt: skip
def test_classes_are_those_of_ascii(pattern: str, name: str | None, expected: bool | None) -> None:
    names = pl.DataFrame({"name": [name]}, schema={"name": pl.String})
    assert names.select(catalog.matches(pl.col("name"), pattern)).item() is expected


@pytest.mark.parametrize("file", PATTERNS)
def test_patterns_are_regular_expressions(file: str) -> None:
    catalog.check_patterns(*PATTERNS[file]())


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("devices", "memory_gbps", "memory_gps", "device P100 SXM2: TypeError: memory_gps is unknown"),
        ("devices", "sm_count = 56", 'sm_count = "56"', "device P100 SXM2: TypeError: sm_count is no int"),
        ("devices", "sm_count = 56", "sm_count = -56", "device P100 SXM2: sm_count is no number over 0"),
        ("devices", "fp16 = ", "fp17 = ", "TypeError: peaks.fp17 is unknown"),
        ("kernels", 'bucket = "attention"', 'bucket = "atention"', "rule inductor-.*: bucket 'atention' is none of"),
        ("host_work", 'work = "data-loading"', 'work = "loading"', "rules loading: work 'loading' is none of data-loading, "),
        ("host_work", '"annotation"', '"anotation"', "rules data-loading: .*: kinds are some of annotation, "),
        ("host_work", "pattern = ", "patern = ", "rules data-loading: TypeError: patern is unknown"),
        ("step_marks", 'marks = "', 'marks = "no', "marks 'no.*' is none of "),
        ("step_marks", "= [", "[", "Expected "),
    ],
)  # fmt: skip
def test_a_mistake_in_a_file_is_named_with_its_row(
    name: str, old: str, new: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (catalog.FOLDER / f"{name}.toml").read_text("utf-8")
    head = re.search(r"\n\w+ = \[\n", text).start()  # type: ignore[union-attr]
    (tmp_path / f"{name}.toml").write_text(text[:head] + text[head:].replace(old, new, 1), encoding="utf-8")
    read: dict[str, Any] = {
        "devices": devices.devices, "kernels": kernels.rules, "host_work": event_names.host_work_rules, "step_marks": event_names.step_mark_rules,
    }  # fmt: skip
    monkeypatch.setattr(catalog, "FOLDER", tmp_path)
    catalog.document.cache_clear()
    with pytest.raises(errors.UsageError, match=rf"^catalog/{name}.toml: (.*){message}"):
        read[name].__wrapped__()
    catalog.document.cache_clear()
