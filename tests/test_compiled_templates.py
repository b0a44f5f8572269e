"""Compiled templates are cached next to the traces' cache: made once, and ignored when damaged, foreign or not
private."""

import os
from pathlib import Path

import pytest
from jinja2 import DictLoader, Environment, Template

from trace_analyzer import trace_cache
from trace_analyzer.render.html import compiled_templates
from trace_analyzer.render.html.compiled_templates import CompiledTemplates
from trace_analyzer.user_folders import cache_folder, template_folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def rendered(text: str = "Hello {{ name }}") -> str:
    template: Template = Environment(
        loader=DictLoader({"page": text}), bytecode_cache=CompiledTemplates(), autoescape=True
    ).get_template("page")
    return template.render(name="you")


def kept() -> list[Path]:
    return sorted(template_folder().iterdir())


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise AssertionError("compiled again")

    rendered()
    monkeypatch.setattr(Environment, "compile", refuse)


@pytest.mark.usefixtures("no_compiler")
def test_a_template_is_compiled_once() -> None:
    assert rendered() == "Hello you"


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.parametrize("damage", [b"", b"x", b"x" * 500])
def test_a_damaged_entry_is_compiled_again(damage: bytes) -> None:
    (path,) = kept()
    path.write_bytes(damage or path.read_bytes()[:-1])
    with pytest.raises(AssertionError, match="compiled again"):
        rendered()


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.parametrize(("name", "other"), [("version", lambda _: "0"), ("tool_version", lambda: "0")])
def test_another_version_compiles_again(name: str, other: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_templates, name, other)
    with pytest.raises(AssertionError, match="compiled again"):
        rendered()


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.skipif(not hasattr(os, "getuid"), reason="the system has no modes")
@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_code_that_others_can_write_is_not_loaded(mode: int) -> None:
    (path,) = kept()
    path.chmod(mode)
    with pytest.raises(AssertionError, match="compiled again"):
        rendered()


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.skipif(not hasattr(os, "getuid"), reason="the system has no owners")
def test_code_of_another_user_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: kept()[0].stat().st_uid + 1)
    with pytest.raises(AssertionError, match="compiled again"):
        rendered()


def test_another_text_takes_the_place_of_the_first() -> None:
    assert rendered() == "Hello you"
    assert rendered("Bye {{ name }}") == rendered("Bye {{ name }}") == "Bye you"
    assert len(kept()) == 1


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="the system has no modes")
def test_a_folder_that_others_can_write_to_is_not_used() -> None:
    rendered()
    template_folder().chmod(0o770)
    (path,) = kept()
    before = path.read_bytes()
    assert rendered("Bye {{ name }}") == "Bye you"
    assert path.read_bytes() == before


def test_a_folder_that_cannot_be_made_is_no_failure() -> None:
    cache_folder().parent.mkdir()
    cache_folder().write_text("a file")
    assert rendered() == rendered() == "Hello you"


def test_without_a_home_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(compiled_templates, "template_folder", homeless)
    assert rendered() == "Hello you"


def test_templates_are_no_traces() -> None:
    rendered()
    assert list(trace_cache.entries_of(cache_folder())) == []
