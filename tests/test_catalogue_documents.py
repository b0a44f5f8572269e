"""What setup.py keeps of the catalogues is what their TOML holds, and counts for nothing else."""

import json
import tomllib
from pathlib import Path

import pytest

from trace_analyzer import catalog
from trace_analyzer.catalog.documents import PARSED, document, write_parsed

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
