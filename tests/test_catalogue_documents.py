"""Check that the catalogues stored by setup.py equal their TOML files, and are ignored for other content."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from trace_analyzer import catalog
from trace_analyzer.catalog import devices, host_work, kernels, step_marks
from trace_analyzer.catalog.checked import own
from trace_analyzer.catalog.documents import PARSED, document, is_changed, write_parsed
from trace_analyzer.errors import UsageError

CATALOG = Path(catalog.__file__).parent
NAMES = sorted(path.name for path in CATALOG.glob("*.toml"))
TEXT = '[[row]]\nname = "a"\nshare = 0.5\n'


@pytest.mark.parametrize("name", NAMES)
def test_both_forms_hold_the_same(name: str, tmp_path: Path) -> None:
    content = (CATALOG / name).read_bytes()
    (tmp_path / name).write_bytes(content)
    write_parsed(tmp_path)
    assert document(name, tmp_path) == tomllib.loads(content.decode("utf-8")) == document(name)


def test_the_parsed_form_is_read_where_the_file_is_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.toml").write_text(TEXT, encoding="utf-8")
    write_parsed(tmp_path)
    monkeypatch.setattr(tomllib, "loads", lambda _: pytest.fail("the TOML is parsed"))
    assert document("x.toml", tmp_path) == {"row": [{"name": "a", "share": 0.5}]}


@pytest.mark.parametrize("kept", ["", "{", "[]", json.dumps({"x.toml": [1, {"row": []}]})])
def test_a_changed_file_and_a_cut_form_are_read_as_toml(kept: str, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(TEXT, encoding="utf-8")
    (tmp_path / PARSED).write_text(kept, encoding="utf-8")
    assert document("x.toml", tmp_path) == {"row": [{"name": "a", "share": 0.5}]}


def test_a_file_is_changed_where_its_parsed_form_is_of_another(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(TEXT, encoding="utf-8")
    write_parsed(tmp_path)
    assert not is_changed("x.toml", tmp_path)
    (tmp_path / "x.toml").write_text(TEXT + "\n", encoding="utf-8")
    assert is_changed("x.toml", tmp_path)
    (tmp_path / "new.toml").write_text(TEXT, encoding="utf-8")
    assert is_changed("new.toml", tmp_path), "it was never read"


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("devices.toml", "memory_gbps", "memory_gps", r"P100 SXM2: TypeError: .*memory_gps"),
        ("devices.toml", "sm_count = 56", 'sm_count = "56"', "device P100 SXM2: sm_count is '56', no number over 0"),
        ("devices.toml", "fp16 = ", "fp17 = ", "TypeError: .*fp17"),
        (
            "kernels.toml",
            'bucket = "attention"',
            'bucket = "atention"',
            "rule inductor-.*: bucket 'atention' is none of",
        ),
        ("kernels.toml", "name = '^", "name = '(?=a)^", "rule inductor-.*: .* is no regular expression"),
        ("host_work.toml", 'work = "data-loading"', 'work = "loading"', "work 'loading' is none of data-loading, "),
        ("host_work.toml", '"annotation"', '"anotation"', "work data-loading, .*: kinds are some of annotation, "),
        ("host_work.toml", "pattern = ", "patern = ", "work data-loading: TypeError: .*patern"),
        ("step_marks.toml", 'marks = "', 'marks = "no', "marks 'no.*' is none of "),
        ("step_marks.toml", "[[", "[", "Expected newline"),
    ],
)
def test_a_mistake_in_a_file_is_named_with_its_row(name: str, old: str, new: str, message: str, tmp_path: Path) -> None:
    text = (CATALOG / name).read_text("utf-8")
    head = text.index(old, re.search(r"\n(\[\[|\w+ = \[\n)", text).start())  # type: ignore[union-attr]
    (tmp_path / name).write_text(text[:head] + text[head:].replace(old, new, 1), encoding="utf-8")
    read = {
        "devices.toml": lambda: own(name, devices.parsed, devices.check_figures, tmp_path),
        "kernels.toml": lambda: own(name, kernels.parsed, kernels.check_rules, tmp_path),
        "host_work.toml": lambda: own(name, host_work.parsed, host_work.check_rules, tmp_path),
        "step_marks.toml": lambda: own(name, step_marks.parsed, step_marks.check_rules, tmp_path),
    }
    with pytest.raises(UsageError, match=rf"^{tmp_path.name}/{name}: (.*){message}"):
        read[name]()


@pytest.mark.parametrize("name", ["devices", "kernels", "host_work", "step_marks"])
def test_the_files_pass_their_checks(name: str) -> None:
    module = {"devices": devices, "kernels": kernels, "host_work": host_work, "step_marks": step_marks}[name]
    made = module.parsed(document(f"{name}.toml"))
    getattr(module, "check_figures" if name == "devices" else "check_rules")(made)
    assert made
