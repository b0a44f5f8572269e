"""Test the guide for language models and the Model Context Protocol server, driven by the SDK's own client."""

import asyncio
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from trace_analyzer.agents.server import MOST_CHARACTERS, Tools
from trace_analyzer.cli import VERBS, main
from trace_analyzer.errors import UsageError

SAMPLES = Path(__file__).parents[1] / "sample_traces"
LOADING, GRAPH = "synthetic_overhead_data-loading.json.gz", "synthetic_memory-bandwidth_cuda-graph.json.gz"
_ID = re.compile(r"^((?:advice|gap|kernel|step|check):\S+) ", re.MULTILINE)


def guide() -> str:
    """Return what `analyze skill` prints."""
    run = CliRunner().invoke(main, ["skill"])
    assert run.exit_code == 0
    return run.stdout


def test_the_guide_is_a_skill_of_commands_that_exist() -> None:
    text = guide()
    head = text.split("---")[1]
    assert re.search(r"^name: [a-z-]+$", head, re.MULTILINE)
    assert re.search(r"^description: .{50,1000}$", head, re.MULTILINE)
    named = set(re.findall(r"`analyze ([a-z]+) ", text))
    assert {"explain", "whatif", "compare"} <= named <= set(VERBS)


def test_options_of_the_guide_exist() -> None:
    runner = CliRunner()
    helps = "".join(runner.invoke(main, [verb, "--help"]).output for verb in ("report", "whatif")) + "--json-schema"
    assert [option for option in re.findall(r" (--[a-z][a-z-]+)", guide()) if option not in helps] == []


@pytest.fixture
def tools(tmp_path: Path) -> dict[str, Any]:
    """Return the tools over a folder with two samples."""
    for name in (LOADING, GRAPH):
        shutil.copy(SAMPLES / name, tmp_path)
    return {tool.__name__: tool for tool in Tools(tmp_path).all()}


@pytest.mark.slow
def test_each_id_of_the_short_answer_can_be_explained(tools: dict[str, Any]) -> None:
    answer = tools["analyze"](LOADING)
    ids = _ID.findall(answer)
    assert len(answer.encode()) <= 2_000
    assert "data loading" in answer.lower()
    assert len(ids) >= 3
    for asked in ids:
        assert len(tools["explain"](LOADING, asked)) <= MOST_CHARACTERS


@pytest.mark.slow
def test_estimates_and_comparisons(tools: dict[str, Any]) -> None:
    assert "5.37 ms" in tools["whatif"](LOADING, prefetch=4)
    assert "as fast" in tools["compare"](LOADING, LOADING)


@pytest.mark.parametrize("path", ["../outside.json", "/etc/passwd", "link.json", "missing.json"])
def test_nothing_outside_the_root_is_read(tmp_path: Path, path: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "outside.json").write_text('{"traceEvents": []}')
    (root / "link.json").symlink_to(tmp_path / "outside.json")
    with pytest.raises(UsageError, match="folder that this server"):
        Tools(root)._of(path)


def test_a_root_that_is_no_folder_is_one_line(tmp_path: Path) -> None:
    pytest.importorskip("mcp")
    run = CliRunner().invoke(main, ["mcp", "--root", str(tmp_path / "none")])
    assert run.exit_code == 2
    assert "no such folder" in run.stderr


@pytest.mark.slow
def test_the_sdk_s_client_over_standard_input_and_output(tmp_path: Path) -> None:
    mcp = pytest.importorskip("mcp")
    shutil.copy(SAMPLES / LOADING, tmp_path)
    command = mcp.StdioServerParameters(
        command=sys.executable, args=["-m", "trace_analyzer", "mcp", "--root", str(tmp_path)]
    )

    async def talk() -> tuple[list[str], str, bool, str]:
        async with mcp.Client(command) as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
            reported = await client.call_tool("analyze", {"trace": LOADING})
            refused = await client.call_tool("analyze", {"trace": "../secret.json"})
            return names, reported.content[0].text, bool(refused.is_error), refused.content[0].text

    names, reported, failed, why = asyncio.run(talk())
    assert names == ["analyze", "explain", "whatif", "compare"]
    assert reported.startswith("verdict")
    assert failed
    assert "not inside the folder" in why


@pytest.mark.slow
def test_without_the_sdk_one_line_says_what_to_install() -> None:
    script = "import sys; sys.modules['mcp'] = None; sys.argv = ['analyze', 'mcp']; from trace_analyzer.cli import run; run()"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith("analyze: serving needs the package mcp: pip install")
    assert ended.stderr.count("\n") == 1
