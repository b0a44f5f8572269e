"""Test `analyze doctor`: its output for a sound installation, for each faulty part, and with --redact."""

import json
import shutil
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from test_plugins import SAMPLE, run

from trace_analyzer import cli, doctor, files, plugins


def facts(topic: str) -> dict[str, doctor.Item]:
    return {item.name: item for item in doctor.items() if item.topic == topic}


def asked(*words: str) -> Any:
    result = CliRunner().invoke(cli.main, ["doctor", *words])
    assert not result.stderr
    return result


def test_a_sound_installation_has_no_problems_and_one_not_compiled_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "why_slow", lambda: None)
    result = asked()
    assert result.exit_code == 0
    assert result.stdout.endswith("No problems.\n")
    for topic in ("Versions", "Speed", "Plug-ins", "Calibrations"):
        assert f"\n{topic}\n" in f"\n{result.stdout}"
    monkeypatch.setattr(doctor, "why_slow", lambda: "reading is slow: compile it")
    result = asked()
    assert result.exit_code == 1
    assert "! compiled reader" in result.stdout
    assert "compile it" in result.stdout
    assert result.stdout.endswith(" problem.\n")


def test_versions_are_those_of_the_metadata() -> None:
    own = facts("versions")
    for name in ("polars", "numpy", "click", "bokeh", "holoviews"):
        assert (own[name].value, own[name].status) == (metadata.version(name), "ok")


@pytest.mark.slow
def test_torch_is_named_but_not_imported() -> None:
    done = run("-c", "import sys, trace_analyzer.doctor as d; d.items(); print('torch' in sys.modules)")
    assert done.stdout == "False\n"


def test_json_has_the_same_items() -> None:
    document = json.loads(asked("--format", "json").stdout)
    assert (document["format"], document["problems"]) == (1, sum(i["status"] == "problem" for i in document["items"]))
    assert {item["topic"] for item in document["items"]} >= {"versions", "speed", "plug-ins", "calibrations"}
    assert all(set(item) == {"topic", "name", "value", "status", "advice"} for item in document["items"])


@pytest.mark.parametrize(("version", "status"), [(None, "problem"), ("0.1", "problem"), ("99.0", "ok")])
def test_a_missing_or_old_package_is_a_problem(
    version: str | None, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_version", lambda name: version if name == "bokeh" else "99")
    monkeypatch.setattr(doctor, "_least_version", lambda name: "3.9")
    own = facts("versions")["bokeh"]
    assert own.status == status
    assert ("pip install" in own.advice) == (status == "problem")


def test_what_is_optional_is_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_version", lambda name: None if name in ("torch", "mcp") else "99")
    own = facts("versions")
    assert {own[name].status for name in ("torch", "mcp")} == {"info"}
    assert "pip install 'torch-trace-analyzer[mcp]'" in own["mcp"].advice


def test_the_least_versions_are_those_that_are_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = ["bokeh<4,>=3.9", "bokeh-extra>=7", "polars>=2.1,<3", 'torch>=2.1; extra == "torch"']
    monkeypatch.setattr(doctor.metadata, "requires", lambda name: declared)
    assert [doctor._least_version(name) for name in ("bokeh", "polars", "torch", "numpy")] == ["3.9", "2.1", "", ""]


def test_calibrations_are_listed_and_damaged_ones_are_problems() -> None:
    folder = files.config_folder() / "devices"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sound.json").write_text(json.dumps({"format": 1, "name": "Toy 1", "kind": "cuda"}), encoding="utf-8")
    (folder / "torn.json").write_text("{", encoding="utf-8")
    try:
        own = facts("calibrations")
    finally:
        shutil.rmtree(folder)
    assert own["Toy 1"].value == "cuda"
    assert own["torn.json"].status == "problem"
    assert "analyze calibrate" in own["torn.json"].advice
    assert facts("calibrations")["none"].status == "info"


def test_redacted_it_names_no_path_and_no_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = plugins.Plugin("secret", Path("/home/somebody/secret"), "secret")
    monkeypatch.setattr(plugins, "_settled", [(secret,)])
    monkeypatch.setattr(plugins, "_problems", {("secret", "x"): "plug-in secret (/home/somebody/secret): x"})
    assert "/home/somebody/secret" in asked().stdout
    for form in ("text", "json"):
        output = asked("--redact", "--format", form).stdout
        for private in ("secret", "somebody", str(files.config_folder())):
            assert private not in output


@pytest.mark.slow
def test_plugins_are_listed_with_examples_that_do_not_hold(tmp_path: Path) -> None:
    folder = tmp_path / "wrong"
    shutil.copytree(SAMPLE, folder)
    wrong = (
        ("kernels.toml", "not_toylib_map", "toylib_map_x", "toylib decides its counterexample 'toylib_map_x'"),
        ("host_work.toml", "serialization.py(944)", "x.py(944)", "saving does not decide its example"),
        ("step_marks.toml", "toylib round 3", "round 3", "toylib does not decide its example 'round 3'"),
        ("devices.toml", 'examples = ["Toy 1"]', 'examples = ["Toy 2"]', "Toy 1 does not decide its example 'Toy 2'"),
    )
    for file, old, new, _ in wrong:
        path = folder / file
        path.write_text(path.read_text("utf-8").replace(old, new), encoding="utf-8")
    done = run("-m", "trace_analyzer", "doctor", "--plugin", str(folder))
    assert done.returncode == 1
    for part in ("wrong ", *(f"{file}: {line}" for file, *_, line in wrong), "4 problems."):
        assert part in done.stdout
    assert run("-m", "trace_analyzer", "doctor", "--plugin", str(SAMPLE)).stdout.endswith("No problems.\n")
