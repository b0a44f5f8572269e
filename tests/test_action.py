"""Run the script of the GitHub Action as the runner does, with a stand-in for `gh`."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from compare_sides import Program

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "action" / "compare.sh"
pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    (tmp_path / "before.json").write_bytes(Program().trace())
    (tmp_path / "after.json").write_bytes(Program(mm_ns=500_000).trace())
    tools = tmp_path / "bin"
    tools.mkdir()
    run = "import sys; from trace_analyzer.cli import run; sys.exit(run())"
    (tools / "analyze").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {shlex.quote(run)} "$@"\n')
    (tools / "gh").write_text('#!/bin/sh\necho "$@" >> "$GH_LOG"\n')
    for tool in tools.iterdir():
        tool.chmod(0o755)
    return tmp_path


def action(folder: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    files = {
        "RUNNER_TEMP": "", "GITHUB_STEP_SUMMARY": "summary.md", "GITHUB_OUTPUT": "output.txt", "GH_LOG": "gh.log",
        "BEFORE": "before.json", "AFTER": "after.json",
    }  # fmt: skip
    environment = {
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "GITHUB_REPOSITORY": "somebody/something",
        **{variable: str(folder / name) for variable, name in files.items()},
        **inputs,
    }
    command = ["bash", str(SCRIPT)]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_gate_that_breaks_fails_the_job_and_is_commented(traces: Path) -> None:
    run = action(traces, FAIL_IF_SLOWER="5%\naten::add=50%", COMMENT="true", PULL_REQUEST="7")
    assert run.returncode == 1, run.stderr
    summary = (traces / "summary.md").read_text()
    assert "more time: matmul" in summary
    assert "gate broke: --fail-if-slower 5%" in summary
    assert "exit-code=1" in (traces / "output.txt").read_text()
    assert "pr comment 7" in (traces / "gh.log").read_text()


@pytest.mark.slow
def test_inputs_are_never_run_as_commands(traces: Path) -> None:
    run = action(traces, AFTER=f"$(touch {traces}/ran); --help")
    assert run.returncode == 2
    assert not (traces / "ran").exists()
    run = action(traces)
    assert run.returncode == 0, run.stderr
    assert not (traces / "gh.log").exists(), "without gates and comments the job passes"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("jq") is None, reason="the stand-in for gh filters with jq, as gh does")
@pytest.mark.parametrize(("wrote", "changed"), [((False,), None), ((False, True), "IC_1"), ((), None)])
def test_only_a_comment_of_its_own_is_replaced(traces: Path, wrote: tuple[bool, ...], changed: str | None) -> None:
    marked = "<!-- trace-analyzer: compare --> a table"
    nodes = [{"id": f"IC_{n}", "body": marked, "viewerDidAuthor": own} for n, own in enumerate(wrote)]
    nodes.append({"id": "IC_9", "body": "another bot's", "viewerDidAuthor": True})
    answer = {"data": {"repository": {"pullRequest": {"comments": {"nodes": nodes}}}}}
    (traces / "answer.json").write_text(json.dumps(answer))
    (traces / "bin" / "analyze").write_text("#!/bin/sh\necho compared\n")  # what it does is tested above
    (traces / "bin" / "gh").write_text(
        '#!/bin/sh\necho "$@" >> "$GH_LOG"\ncase "$*" in *--jq*) for filter; do :; done\n'
        f'jq -r "$filter" {shlex.quote(str(traces / "answer.json"))};; esac\n'
    )
    assert action(traces, COMMENT="true", PULL_REQUEST="7").returncode == 0
    log = (traces / "gh.log").read_text()
    assert ("pr comment 7" in log) == (changed is None)
    assert ("updateIssueComment" in log) == (changed is not None)
    assert changed is None or f"id={changed} " in log


def test_the_action_passes_every_input() -> None:
    text = (ROOT / "action.yml").read_text()
    script = SCRIPT.read_text()
    for name in ("BEFORE", "AFTER", "FAIL_IF_SLOWER", "FAIL_IF_MORE_IDLE", "COMMENT", "PULL_REQUEST"):
        assert f"{name}: ${{{{" in text
        assert name in script


def test_no_input_is_pasted_into_a_command() -> None:
    """Check that inputs reach the script as environment variables: an expression in a `run` line is run as it is."""
    runs = [line for line in (ROOT / "action.yml").read_text().splitlines() if line.strip().startswith("run:")]
    assert ["${{" in line for line in runs] == [False, False]
