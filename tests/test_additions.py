"""Check that a device, kernel rule, cause, analysis and fix are added in the places that CONTRIBUTING names.

They are added to a copy of the package, and a report made with it shows them in text, Markdown, JSON, page and schema.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kineto import annotation, launched, python, trace_bytes

PACKAGE = Path(__file__).parents[1] / "trace_analyzer"

DEVICE = """
  { name = "Toy 1", patterns = ["Toy 1"], vendor = "NVIDIA", architecture = "Hopper", compute_capability = "9.0", sm_count = 100, memory_gib = 50, memory_gbps = 1000, l2_mib = 10, warp_size = 32, tflops = { fp32 = 50, bf16 = 100 }, source = "made up" },"""
KERNEL_RULE = r"""
  { id = "toylib", bucket = "softmax", name = '\btoylib_map_' },"""
CAUSE = """    part("saving", "Saving weights", "Weights were being saved.", "named", "#4f6d8f", cure="launch", fixes=("background-saving",)),
"""
HOST_WORK = r"""
  { work = "saving", kinds = ["python"], pattern = 'torch/serialization\.py\(\d+\): save$' },"""
ANALYSIS = '''"""Count the launches of each host thread."""

import polars as pl

from trace_analyzer.analysis import Analysis
from trace_analyzer.schema import Table, columns
from trace_analyzer.sections import Section

BUSY_THREADS = Table("busy_threads", "Launches by host thread.", columns("thread_id\nlaunch_count u32 Launches."))


def busy_threads(launches: pl.DataFrame) -> pl.DataFrame:
    """Return table `busy_threads`: launches counted by thread."""
    return launches.group_by("thread_id").agg(pl.len().alias("launch_count")).sort("thread_id")


ANALYSES = (Analysis(BUSY_THREADS, busy_threads, json="busy_threads", section=Section("Threads that launch")),)
'''
FIX = """
[[fixes]]
id = "background-saving"
regimes = ["overhead-bound"]
title = "Save weights in the background"
code = "torch.distributed.checkpoint.async_save(state_dict, checkpoint_id=path)"
"""
FIX_RULE = '''def background_saving(context: AdviceContext) -> Opportunity | None:
    """Return the idle time in which weights were being saved."""
    return idle_of(context, ("saving",), "weights are saved within the step")


'''
SCRIPT = """
import json, sys
from pathlib import Path
from jsonschema import Draft202012Validator
import trace_analyzer as ta
from trace_analyzer.analyses.profiler_overhead import SLOWED
from trace_analyzer.compare.judgement import TARGETS
report = ta.analyze(sys.argv[1])
report.to_html(sys.argv[2])
document = json.loads(report.to_json())
Draft202012Validator(ta.json_schema()).validate(document)
compared = ta.compare(report, ta.analyze(sys.argv[3]))
print(json.dumps({"json": document, "text": report.summary(verbose=True), "markdown": report.to_markdown(), "package": ta.__file__,
    "page": Path(sys.argv[2]).read_text("utf-8"), "path": report.tables["critical_path_parts"].to_dicts(), "slowed": SLOWED,
    "compared": compared.headline,
    "targets": TARGETS["background-saving"]}))
"""


def inserted(path: Path, place: str, text: str, *, after: bool = False) -> None:
    """Insert the text before or after the first occurrence of another one."""
    whole = path.read_text(encoding="utf-8")
    assert place in whole
    path.write_text(whole.replace(place, place + text if after else text + place, 1), encoding="utf-8")


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return all outputs on a trace with the additions, made by a copy of the package that has them."""
    folder = tmp_path_factory.mktemp("additions")
    copy = folder / "trace_analyzer"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "*.c"))
    catalog = copy / "catalog"
    for file, table, row in (
        ("devices.toml", "device", DEVICE),
        ("kernels.toml", "rule", KERNEL_RULE),
        ("host_work.toml", "rules", HOST_WORK),
    ):
        inserted(catalog / file, f"\n{table} = [", row, after=True)
    (catalog / "fixes.toml").write_text((catalog / "fixes.toml").read_text(encoding="utf-8") + FIX, encoding="utf-8")
    inserted(copy / "vocabulary.py", '    part("garbage-collection"', CAUSE)
    (copy / "analyses" / "busy_threads.py").write_text(ANALYSIS, encoding="utf-8")
    inserted(copy / "analyses" / "registry.py", '"host_costs", "partition"', '"busy_threads", ')
    inserted(copy / "advice" / "overhead.py", "def earlier_work(", FIX_RULE)
    inserted(
        copy / "advice" / "rules.py", '    "earlier-work":', '    "background-saving": overhead.background_saving,\n'
    )
    toy = {"id": 0, "name": "Toy 1", "totalGlobalMem": 50 << 30, "computeMajor": 9, "computeMinor": 0, "numSms": 100}
    for name, length in (("trace.json", 100_000), ("without.json", 40_000)):
        events = [
            [
                annotation(f"ProfilerStep#{step}", length * step, length),
                *([python("torch/serialization.py(944): save", length * step + 10, 60_000)] if length > 60_000 else []),
                *(
                    launched("toylib_map_f32", at, at + 5_000, 1_000, 20 * step + number + 1)
                    for number in range(20)
                    for at in (length * (step + 1) - 35_000 + 1_000 * number,)
                ),
            ]
            for step in range(4)
        ]
        (folder / name).write_bytes(trace_bytes(events, deviceProperties=[toy]))
    paths = (folder / name for name in ("trace.json", "page.html", "without.json"))
    command = [sys.executable, "-c", SCRIPT, *map(str, paths)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert Path(made["package"]).parent == copy
    return made


@pytest.mark.slow
def test_a_device_is_one_row_of_the_catalogue(outputs: Any) -> None:
    assert [device["name"] for device in outputs["json"]["trace"]["devices"]] == ["Toy 1"]
    assert not [note for note in outputs["json"]["notes"] if "catalogue" in note["message"]]


@pytest.mark.slow
def test_a_kernel_rule_decides_the_bucket(outputs: Any) -> None:
    assert [bucket["bucket"] for bucket in outputs["json"]["devices"][0]["buckets"]] == ["softmax"]


@pytest.mark.slow
def test_a_cause_is_its_entry_and_its_rule(outputs: Any) -> None:
    assert outputs["json"]["devices"][0]["gaps"]["by_cause_ns"]["saving"] > 1_500_000
    for output in ("text", "markdown", "page"):
        assert "saving weights" in outputs[output].lower(), output
    assert "#4f6d8f" in outputs["page"]


@pytest.mark.slow
def test_replay_debiasing_and_promises_take_a_cause_from_its_entry(outputs: Any) -> None:
    path = {row["name"]: row for row in outputs["path"]}
    assert path["saving"]["kind"] == "host"
    assert path["saving"]["ns"] == pytest.approx(60_000_000, rel=0.05)
    assert path.get("python", {"ns": 0})["ns"] < 40_000_000
    assert "saving" in outputs["slowed"]
    assert "saving weights" in outputs["compared"].lower()
    assert outputs["targets"] == [["saving"], []]


@pytest.mark.slow
def test_an_analysis_is_its_file_and_its_place_in_the_registry(outputs: Any) -> None:
    assert outputs["json"]["busy_threads"] == [{"thread_id": 0, "launch_count": 80}]
    for output in ("text", "markdown", "page"):
        assert "Threads that launch" in outputs[output], output


@pytest.mark.slow
def test_a_fix_is_its_entry_and_its_rule(outputs: Any) -> None:
    advice = {item["id"]: item for item in outputs["json"]["advice"]}
    assert advice["background-saving"]["saves_ns_at_most"] == 3 * 60_000_000  # of three steady steps
    for output in ("text", "markdown", "page"):
        assert "Save weights in the background" in outputs[output], output
