"""Test the guide for language models and the Model Context Protocol server, driven by the SDK's own client."""

import asyncio
import inspect
import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from click import Context
from click.testing import CliRunner
from commands import run_python
from conftest import SAMPLES
from msgspec.structs import replace
from report_factory import gpu_report

from trace_analyzer.agents import MOST_CHARACTERS, Tools, called
from trace_analyzer.catalog.fixes import fixes
from trace_analyzer.cli import VERBS, main
from trace_analyzer.errors import UsageError
from trace_analyzer.explain.lookups import whatif_options

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
    helps = (
        "".join(CliRunner().invoke(main, [verb, "--help"]).output for verb in ("report", "whatif")) + "--json-schema"
    )
    assert [option for option in re.findall(r" (--[a-z][a-z-]+)", guide()) if option not in helps] == []


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    """Return the tools over a folder with two samples."""
    for name in (LOADING, GRAPH):
        shutil.copy(SAMPLES / name, tmp_path)
    return Tools(tmp_path)


def next_call(answer: str) -> tuple[str, dict[str, Any]]:
    """Return the tool and the arguments in the last line of an answer."""
    tool, _, arguments = answer.splitlines()[-1].removeprefix("next call: ").partition(" ")
    return tool, json.loads(arguments)


@pytest.mark.slow
def test_each_id_of_the_short_answer_can_be_explained_and_answers_lead_on(tools: Tools) -> None:
    answer = tools.analyze(LOADING)
    ids = _ID.findall(answer)
    assert "data loading" in answer.lower()
    assert len(ids) >= 3
    for asked in ids:
        explained = tools.explain(LOADING, asked)
        assert len(explained) <= MOST_CHARACTERS + 200
        assert "analyze " not in explained, "calls, no commands"
    assert next_call(answer) == ("explain", {"trace": LOADING, "id": "advice:data-loading"})
    verb, arguments = next_call(tools.explain(**next_call(answer)[1]))
    assert (verb, arguments) == ("whatif", {"trace": LOADING, "prefetch": "auto"})
    assert "no estimate" not in tools.whatif(**arguments)


@pytest.mark.slow
def test_estimates_and_comparisons(tools: Tools) -> None:
    assert "5.37 ms" in tools.whatif(LOADING, prefetch=4)
    assert "batch" in tools.whatif(GRAPH, batch=2)
    assert next_call(tools.whatif(LOADING)) == ("whatif", {"trace": LOADING, "prefetch": 3})
    fused = "synthetic_memory-bandwidth.json.gz"
    assert next_call(Tools(SAMPLES).whatif(fused)) == ("whatif", {"trace": fused, "fuse_only": "chain"})
    with pytest.raises(UsageError, match="exclude each other"):
        tools.whatif(GRAPH, warm=True, warm_only="allocation")
    assert "as fast" in tools.compare(LOADING, LOADING)
    assert next_call(tools.compare(LOADING, "*loading*"))[1] == {"trace": LOADING}


def test_the_tools_are_verbs_and_take_their_changes() -> None:
    """What-if takes what the command takes, except for options of its output."""
    assert {tool.__name__ for tool in Tools(SAMPLES).all()} - {"traces"} <= {"analyze", *VERBS}
    command = {param.name for param in main.get_command(Context(main), "whatif").params}
    taken = set(inspect.signature(Tools.whatif).parameters) - {"self"}
    assert command - taken == {"device", "export", "form", "output", "page", "force", "redact", "plugin", "debug"}
    assert taken <= command


@pytest.mark.parametrize("fix", [fix for fix, page in fixes().items() if page.replayed])
def test_the_command_of_each_advice_is_a_call(fix: str) -> None:
    item = replace(gpu_report().advice[0], id=fix)
    verb, arguments = called(shlex.join(("analyze", "whatif", "a trace.json", *whatif_options(item))), "a trace.json")
    assert verb == "whatif"
    assert arguments["trace"] == "a trace.json"
    assert len(inspect.signature(Tools.whatif).bind(None, **arguments).arguments) == 3


def test_traces_are_listed_newest_first_and_links_are_not_followed(tmp_path: Path) -> None:
    names = ("b.json", "a/old.json.gz", "memory.pickle", ".hidden/c.json", "x.report.json", "readme.md")
    for age, name in enumerate(names):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"{}")
        os.utime(file, (10**9 - age, 10**9 - age))
    (tmp_path / "link.json").symlink_to("/etc/passwd")
    *lines, call = Tools(tmp_path).traces().splitlines()
    assert lines == [f"{name}  2 B, 2001-09-09 01:46 UTC" for name in names[:3]]
    assert call == 'next call: analyze {"trace": "b.json"}'
    for name, call in {
        "a.pickle.gz": 'memory {"source": "a.pickle.gz"}',
        "a/r.rank.gz": 'ranks {"source": "a"}',
    }.items():
        (tmp_path / name).write_bytes(b"")
        assert Tools(tmp_path).traces().endswith(f"next call: {call}\n")
        (tmp_path / name).unlink()


@pytest.mark.parametrize(
    "path",
    ["../outside.json", "/etc/passwd", "link.json", "missing.json", "a\0b", "round.json", "n" * 5000, "*.json", "../*"],
)
def test_nothing_outside_the_root_is_read(tmp_path: Path, path: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "outside.json").write_text('{"traceEvents": []}')
    (root / "link.json").symlink_to(tmp_path / "outside.json")
    (root / "round.json").symlink_to(root / "round.json")
    tools = Tools(root)
    pair: dict[Any, tuple[Any, ...]] = {tools.compare: (path, path), tools.scaling: ([path, path],)}
    for tool in (tools.analyze, tools.memory, tools.ranks, *pair):
        with pytest.raises(UsageError) as refused:
            tool(*pair.get(tool, (path,)))
        line = str(refused.value)
        assert "folder that this server" in line or "no path" in line
        assert "\0" not in line
        assert len(line) < 500


@pytest.mark.slow
def test_a_root_that_is_no_folder_is_one_line(tmp_path: Path) -> None:
    pytest.importorskip("mcp")
    run = CliRunner().invoke(main, ["mcp", "--root", str(tmp_path / "none")])
    assert run.exit_code == 2
    assert "no such folder" in run.stderr


async def _agreeing(_context: Any, asked: Any) -> Any:
    from mcp_types import ElicitResult

    if "never.py" in asked.message:
        return ElicitResult(action="decline")
    return ElicitResult(action="accept", content={"run": "no.py" not in asked.message})


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_every_tool_over_standard_input_and_output(tmp_path: Path, mode: str) -> None:
    mcp = pytest.importorskip("mcp")
    shutil.copy(SAMPLES / LOADING, tmp_path)
    (tmp_path / "yes.py").write_text("print('it ran')")
    command = mcp.StdioServerParameters(
        command=sys.executable, args=["-m", "trace_analyzer", "mcp", "--root", str(tmp_path)]
    )
    calls: list[tuple[str, dict[str, Any], bool, str]] = [
        ("traces", {}, False, LOADING),
        ("analyze", {"trace": LOADING}, False, "verdict"),
        ("explain", {"trace": LOADING, "id": "verdict"}, False, "next call: "),
        ("whatif", {"trace": LOADING, "prefetch": "auto"}, False, "next call: compare"),
        ("compare", {"before": LOADING, "after": LOADING}, False, "as fast"),
        ("scaling", {"traces": [LOADING]}, True, "two traces or more"),
        ("ranks", {"source": "."}, False, "next call: analyze"),
        ("memory", {"source": LOADING}, False, "next call: record"),
        ("loop", {"folder": "turns", "step": "start", "trace": LOADING}, False, '"step": "apply"'),
        ("loop", {"folder": "turns", "step": "apply", "note": "two workers"}, False, "1 turn: 0 kept"),
        (
            "loop",
            {"folder": "turns", "step": "check", "trace": LOADING},
            False,
            '"step": "start", "trace": "a pattern of more',
        ),
        ("loop", {"folder": "turns", "step": "check", "note": "x"}, True, "check takes no note: it takes trace"),
        ("loop", {"folder": "../turns", "step": "start", "trace": LOADING}, True, "not inside the folder"),
        ("record", {"command": ["python", "yes.py"]}, False, "it ran"),
        ("record", {"command": ["python", "no.py"]}, True, "did not consent"),
        ("record", {"command": ["python", "never.py"]}, True, "did not consent"),
        ("record", {"command": ["python", "yes.py"], "output": "../x"}, True, "not inside the folder"),
        ("analyze", {"trace": "../secret.json"}, True, "not inside the folder"),
        ("whatif", {"trace": LOADING, "bach": 2}, True, "no argument 'bach'; did you mean batch?"),
        ("whatif", {"trace": LOADING, "batch": "two"}, True, "batch"),
        ("whatif", {}, True, "trace"),
        ("analyse", {"trace": LOADING}, True, "did you mean analyze?"),
    ]

    # The tools are the same in both modes; how a server asks whether a command may run is not.
    asked = [call for call in calls if mode == "auto" or call[0] in ("traces", "record")]

    async def talk() -> tuple[set[str], list[Any]]:
        async with mcp.Client(command, elicitation_callback=_agreeing, mode=mode) as client:
            tools = (await client.list_tools()).tools
            assert all(tool.input_schema["additionalProperties"] is False for tool in tools)
            return {tool.name for tool in tools}, [await client.call_tool(name, given) for name, given, *_ in asked]

    names, answers = asyncio.run(talk())
    assert names == {name for name, *_ in calls[:-1]}
    for (name, given, failed, part), got in zip(asked, answers, strict=True):
        assert part in got.content[0].text, (name, given, got.content[0].text)
        assert bool(got.is_error) is failed, (name, given)
        assert not failed or got.content[0].text.count("\n") == 0


@pytest.mark.slow
def test_no_command_runs_where_nobody_can_be_asked(tmp_path: Path) -> None:
    mcp = pytest.importorskip("mcp")
    from trace_analyzer.agents.server import server

    async def talk() -> Any:
        async with mcp.Client(server(tmp_path)) as client:
            return await client.call_tool("record", {"command": ["touch", "ran"]})

    refused = asyncio.run(talk())
    assert refused.is_error
    assert "run it in a shell: analyze record -- touch ran" in refused.content[0].text
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_without_the_sdk_one_line_says_what_to_install() -> None:
    script = "import sys; sys.modules['mcp'] = None; sys.argv = ['analyze', 'mcp']; from trace_analyzer.cli import run; run()"
    ended = run_python(script)
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert ended.stderr.startswith("analyze: serving needs the package mcp: pip install")
