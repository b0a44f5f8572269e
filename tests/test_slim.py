"""Without Bokeh and HoloViews: everything except pages works with only polars, numpy and click installed."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from commands import ROOT, environment, ran, run_python

from trace_analyzer.installation import PURPOSES, missing

SAMPLE = ROOT / "sample_traces" / "synthetic_overhead_data-loading.json.gz"
NEEDED = ("polars", "_polars_runtime_32", "_polars_runtime_64", "_polars_runtime_compat", "numpy", "click", "msgspec")
LACKING = "a page needs bokeh, jinja2, markupsafe, which are not installed: pip install bokeh"


@pytest.fixture(scope="module")
def slim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a folder of packages with only the needed ones."""
    folder = tmp_path_factory.mktemp("slim")
    for name in NEEDED:
        spec = find_spec(name)
        if spec is not None and spec.origin is not None:
            package = Path(spec.origin).parent
            for path in (package, *package.parent.glob(f"{name}.libs")):
                (folder / path.name).symlink_to(path)
    return folder


def run(slim: Path, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command without the packages of this environment."""
    paths = os.pathsep.join((str(slim), str(ROOT)))
    command = (sys.executable, "-S", "-m", "trace_analyzer")
    return ran(*command, *arguments, cwd=cwd, env=environment(PYTHONPATH=paths))


def test_a_page_that_is_asked_for_is_refused_in_one_line(slim: Path, tmp_path: Path) -> None:
    ended = run(slim, str(SAMPLE), "--report", str(tmp_path / "report.html"))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"analyze: {LACKING}")
    assert ended.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_without_being_asked_for_the_page_is_left_out_with_a_note(slim: Path, tmp_path: Path) -> None:
    ended = run(slim, str(SAMPLE), cwd=tmp_path)
    assert ended.returncode == 0
    assert "Overhead-bound" in ended.stdout
    assert f"analyze: no page: {LACKING}" in ended.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("form", ["text", "json", "markdown"])
def test_everything_else_works(slim: Path, tmp_path: Path, form: str) -> None:
    ended = run(slim, str(SAMPLE), "--no-report", "--format", form, "--tables", str(tmp_path / "tables"))
    assert ended.returncode == 0
    assert "bokeh" not in ended.stderr
    assert list((tmp_path / "tables").glob("*.parquet"))
    assert form != "json" or json.loads(ended.stdout)["verdict"]["regime"] == "overhead-bound"


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("compare", str(SAMPLE), str(SAMPLE)), ("whatif", str(SAMPLE))])
def test_other_commands_need_no_page_either(slim: Path, arguments: tuple[str, ...]) -> None:
    assert run(slim, *arguments).returncode == 0


@pytest.mark.slow
def test_a_comparison_s_page_is_refused_in_one_line(slim: Path, tmp_path: Path) -> None:
    ended = run(slim, "compare", str(SAMPLE), str(SAMPLE), "--html", str(tmp_path / "page.html"))
    assert ended.returncode == 2
    assert "not installed: pip install" in ended.stderr
    assert "a bug in this program" not in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_only_our_own_packages_are_explained() -> None:
    assert {missing(ModuleNotFoundError(name=name)) is not None for name in PURPOSES} == {True}
    assert missing(ModuleNotFoundError(name="bokeh.models")) == (
        "a page needs bokeh, which is not installed: pip install bokeh"
    )
    assert missing(ModuleNotFoundError(name="else")) is None
    assert missing(ModuleNotFoundError("no name")) is None


@pytest.mark.slow
def test_plots_name_their_extra(slim: Path) -> None:
    code = f"import trace_analyzer as ta; ta.analyze({str(SAMPLE)!r}).plots"
    paths = os.pathsep.join((str(slim), str(Path(find_spec("bokeh").submodule_search_locations[0]).parent), str(ROOT)))  # type: ignore[union-attr, index]
    code = f"import sys; sys.modules['holoviews'] = None; {code}"
    ended = run_python(code, env=environment(PYTHONPATH=paths))
    assert ended.stderr.endswith("UsageError: plots need holoviews: pip install 'torch-trace-analyzer[plots]'\n")
