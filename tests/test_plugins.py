"""Test plug-ins: every output shows the sample of docs/sample_plugin; a broken part gives one line."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import ROOT, environment, ran, run_python
from kineto import annotation, launched, python, trace_bytes

from trace_analyzer import errors, plugins

SAMPLE = ROOT / "docs" / "sample_plugin"
TEXT = {path.name: path.read_text("utf-8") for path in SAMPLE.iterdir() if path.is_file()}
TOY = {"id": 0, "name": "Toy 1", "totalGlobalMem": 50 << 30, "computeMajor": 9, "computeMinor": 0, "numSms": 100}
SCRIPT = """
import json, sys
from pathlib import Path
from jsonschema import Draft202012Validator
import trace_analyzer as ta
report = ta.analyze(sys.argv[1])
report.to_html(sys.argv[2])
document = json.loads(report.to_json())
Draft202012Validator(ta.json_schema()).validate(document)
more = {}
print(json.dumps({"json": document, "schema": ta.json_schema(), "text": report.summary(verbose=True), "markdown": report.to_markdown(),
    "table": report.tables["busy_threads"].to_dicts(), "page": Path(sys.argv[2]).read_text("utf-8"), **more}))
"""


@pytest.fixture
def afresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Determine plug-ins anew; the other tests keep theirs."""
    monkeypatch.setattr(plugins, "_settled", [])
    monkeypatch.setattr(plugins, "_problems", {})
    monkeypatch.setattr(plugins, "_owners", {})
    monkeypatch.delenv(plugins.ENVIRONMENT, raising=False)
    plugins.modules.cache_clear()
    yield monkeypatch
    plugins.modules.cache_clear()


def trace(folder: Path) -> Path:
    """Write a trace of everything that the sample adds: its device, kernels, host work and steps."""
    events = [
        [annotation(f"toylib round {step}", at, 1000), python("torch/serialization.py(944): save", at + 10, 600),
         launched("toylib_map_f32", at + 650, at + 700, 200, step + 1)]
        for step, at in enumerate(range(0, 5000, 1000))
    ]  # fmt: skip
    path = folder / "trace.json"
    path.write_bytes(trace_bytes(events, deviceProperties=[TOY]))
    return path


def installed(folder: Path, name: str = "toylib", content: Path = SAMPLE, module: str = "") -> Path:
    """Put a package with an entry point into a folder, as pip does."""
    package = folder / (module or f"{name}_plugin")
    shutil.copytree(content, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "__init__.py").write_text("", encoding="utf-8")
    facts = folder / f"{package.name}-1.2.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package.name}\nVersion: 1.2\n", encoding="utf-8")
    (facts / "entry_points.txt").write_text(f"[{plugins.GROUP}]\n{name} = {package.name}\n", encoding="utf-8")
    return package


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join(filter(None, (variables.pop("PYTHONPATH", ""), str(ROOT))))
    own = {plugins.ENVIRONMENT: ""} | variables | {"PYTHONPATH": paths}
    return ran(sys.executable, *arguments, env=environment(**own))


@pytest.fixture(scope="module", params=("named", "installed"))
def outputs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Produce all outputs on a trace of what the sample adds, by each way to have it."""
    folder = tmp_path_factory.mktemp("plugins")
    installed(folder)
    by = {plugins.ENVIRONMENT: str(SAMPLE)} if request.param == "named" else {"PYTHONPATH": str(folder)}
    done = run("-c", SCRIPT, str(trace(folder)), str(folder / "page.html"), PYTHONDONTWRITEBYTECODE="1", **by)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_every_kind_of_file_adds_to_the_analysis_and_every_output_shows_it(outputs: Any) -> None:
    document = outputs["json"]
    assert [device["name"] for device in document["trace"]["devices"]] == ["Toy 1"]
    assert not [note for note in document["notes"] if "catalogue" in note["message"]]
    assert [bucket["bucket"] for bucket in document["devices"][0]["buckets"]] == ["toy_map"]
    assert document["devices"][0]["gaps"]["by_cause_ns"]["saving"] > 1_500_000
    assert document["steps_from"].startswith("toylib")
    assert outputs["table"] == [{"thread_id": 0, "launch_count": 5}] == document["busy_threads"]
    [advice] = [item for item in document["advice"] if item["id"] == "save-less-often"]
    assert advice["saves_ns_at_most"] > 1_500_000
    assert advice["docs"] == "https://toylib.example/saving"
    assert [note["code"] for note in document["notes"] if note["code"].startswith("plugin")] == ["plugins"]
    for output in ("text", "markdown", "page"):
        for words in ("saving weights", "threads that launch", "save weights less often", "active plug-ins"):
            assert words in outputs[output].lower(), (output, words)
    assert "#4f6d8f" in outputs["page"]
    assert "saving" in outputs["schema"]["$defs"]["idle_cause"]["enum"]
    assert "busy_threads" in outputs["schema"]["required"]


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["report", "compare", "ranks"])
def test_every_verb_takes_plugins_and_refuses_a_broken_one(verb: str, tmp_path: Path) -> None:
    path = str(trace(tmp_path))
    words = ["-m", "trace_analyzer", verb, path, *{"compare": [path], "report": ["--no-report"]}.get(verb, [])]
    done = run(*words, "--plugin", str(SAMPLE))
    assert done.returncode in (0, 2, 3)
    assert "plug-in" not in done.stderr
    refused(run(*words, "--plugin", str(broken(tmp_path, "toml"))), tmp_path, "toml")


BROKEN = {
    "toml": ("devices.toml", "[[device", "devices.toml: "),
    "no such key": ("devices.toml", '[[device]]\nname = "x"\n', "devices.toml: "),
    "a text for a number": ("devices.toml", TEXT["devices.toml"].replace("= 100\n", '= "100"\n', 1), "sm_count is no int"),
    "a device of ours": ("devices.toml", TEXT["devices.toml"].replace('"Toy 1"\nali', '"H100 PCIe"\nali'), "is there already, of this program"),
    "an unknown bucket": ("kernels.toml", '[[rule]]\nid = "x"\nbucket = "y"\nname = "z"\n', "kernels.toml: rule x: bucket 'y' is none of"),
    "no condition": ("kernels.toml", '[[rule]]\nid = "x"\nbucket = "softmax"\n', "rule x: has no condition"),
    "no pattern": ("kernels.toml", '[[rule]]\nid = "x"\nbucket = "softmax"\nname = "("\n', "'(' is no regular expression"),
    "a rule of ours": ("kernels.toml", '[[rule]]\nid = "unknown"\nbucket = "softmax"\nname = "z"\n', "'unknown' is there already"),
    "twice": ("kernels.toml", 2 * '[[rule]]\nid = "x"\nbucket = "softmax"\nname = "z"\n', "'x' stands there twice"),
    "a cause of ours": ("causes.toml", TEXT["causes.toml"].replace('"saving"', '"python"'), "'python' is there already"),
    "a colour that is code": ("causes.toml", TEXT["causes.toml"].replace("#4f6d8f", "red;}body{}"), "written #rrggbb"),
    "unknown work": ("host_work.toml", TEXT["host_work.toml"].replace('"saving"', '"nothing"'), "work 'nothing' is none of"),
    "unknown mark": ("step_marks.toml", TEXT["step_marks.toml"].replace('"span"', '"spam"'), "marks 'spam' is none of"),
    "no rule": ("fixes.toml", TEXT["fixes.toml"], "fix save-less-often: has no rule"),
    "no page": ("fixes.toml", '[[fixes]]\nid="x"\nregimes=[]\ntitle="t"\ncode="c"\n', "fixes x: page, where it is documented, is missing"),
    "unknown change": ("fixes.toml", TEXT["fixes.toml"] + 'replayed = { name = "magic" }\n', "fix save-less-often: "),
    "syntax": ("analyses.py", "def (", "analyses.py: SyntaxError: "),
    "it raises": ("analyses.py", "1 / 0", "analyses.py: ZeroDivisionError: "),
    "it ends": ("analyses.py", "raise SystemExit(3)", "analyses.py: SystemExit: "),
    "no declarations": ("analyses.py", "", "analyses.py: AttributeError: "),
    "no analysis": ("analyses.py", "ANALYSES = (1,)", "holds 1, which is no Analysis"),
    "unknown value": ("analyses.py", TEXT["analyses.py"].replace("launches: pl", "nothing: pl"), "busy_threads is made from nothing"),
    "a table of ours": ("analyses.py", TEXT["analyses.py"].replace('Table("busy_threads"', 'Table("gaps"'), "gaps is there already"),
    "a field of ours": ("analyses.py", TEXT["analyses.py"].replace('json="busy_threads"', 'json="verdict"'), "'verdict' in the JSON report is taken"),
    "an unknown column": ("analyses.py", TEXT["analyses.py"].replace('launch")', 'launch", show=("x",))'), "shows x, and table"),
    "it fails later": ("analyses.py", TEXT["analyses.py"].replace('group_by("thread_id")', 'group_by("x")'), "analysis busy_threads: ColumnNotFoundError"),
    "no frame": ("analyses.py", TEXT["analyses.py"].replace("return launches", "return 1  #"), "analysis busy_threads: TypeError: makes a int"),
}  # fmt: skip
"""File, its content, and the expected line."""


def slug(what: str) -> str:
    return what.replace(" ", "-")


def own_names(text: str, what: str) -> str:
    """Return the text with names that no other plug-in has."""
    return text.replace("busy_threads", what.replace(" ", "_")).replace("save-less-often", f"save-{slug(what)}")


def broken(folder: Path, what: str) -> Path:
    file, text, _ = BROKEN[what]
    path = folder / slug(what)
    path.mkdir(parents=True)
    (path / file).write_text(own_names(text, what), encoding="utf-8")
    return path


def line_of(what: str) -> str:
    return own_names(BROKEN[what][2], what)


def refused(done: subprocess.CompletedProcess[str], folder: Path, what: str) -> None:
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"analyze: plug-in {slug(what)} ({folder / slug(what)}): ")
    assert line_of(what) in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("what", ["a colour that is code", "unknown change", "it raises", "it fails later"])
def test_a_broken_plugin_that_is_named_is_one_line(what: str, tmp_path: Path) -> None:
    folder = broken(tmp_path, what)
    refused(run("-m", "trace_analyzer", str(trace(tmp_path)), "--no-report", "--plugin", str(folder)), tmp_path, what)


@pytest.mark.slow
def test_broken_plugins_that_are_installed_are_a_note_each(tmp_path: Path) -> None:
    for what in BROKEN:
        installed(tmp_path, slug(what), broken(tmp_path / "broken", what), slug(what).replace("-", "_"))
    installed(tmp_path, "sound")
    words = ("-m", "trace_analyzer", str(trace(tmp_path)), "--no-report", "--format", "json")
    done = run(*words, PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    notes = [note for note in document["notes"] if note["code"] == "plugin-left-out"]
    for what in BROKEN:  # a fix with an unknown change exists without an estimate
        lines = [note["message"] for note in notes if note["message"].startswith(f"plug-in {slug(what)} (")]
        assert lines or what == "unknown change", what
        assert all(line_of(what) in line or what == "unknown change" for line in lines)
    assert document["devices"][0]["gaps"]["by_cause_ns"]["saving"] > 1_500_000
    assert document["busy_threads"]


def test_what_is_no_plugin_is_refused(tmp_path: Path, afresh: pytest.MonkeyPatch) -> None:
    for paths, why in (
        ([str(tmp_path / "nowhere")], "is no folder"),
        ([str(tmp_path)], "holds none of kernels.toml"),
        ([f"a{os.pathsep}b"], "separates folders"),
        (["none", str(SAMPLE)], "switches all plug-ins off"),
    ):
        with pytest.raises(errors.UsageError, match=why):
            plugins.add(paths)
        assert plugins.ENVIRONMENT not in os.environ
    assert plugins.active() == ()
    with pytest.raises(errors.UsageError, match="made before with other plug-ins"):
        plugins.add([str(SAMPLE)])
    assert plugins.ENVIRONMENT not in os.environ


def test_none_switches_all_off(afresh: pytest.MonkeyPatch) -> None:
    afresh.setenv(plugins.ENVIRONMENT, str(SAMPLE))
    plugins.add(["none"])
    assert plugins.active() == ()


def test_two_plugins_of_one_name(tmp_path: Path, afresh: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other" / SAMPLE.name
    shutil.copytree(SAMPLE, other)
    with pytest.raises(errors.UsageError, match="there is another plug-in sample_plugin"):
        plugins.add([str(SAMPLE), str(other)])
    plugins.add([str(SAMPLE), f"{SAMPLE}/../{SAMPLE.name}"])
    assert [plugin.folder for plugin in plugins.active()] == [SAMPLE]


def test_an_installed_one_of_a_name_that_is_named_is_left_out(tmp_path: Path, afresh: pytest.MonkeyPatch) -> None:
    installed(tmp_path, "sample_plugin", module="other_sample")
    afresh.syspath_prepend(tmp_path)
    afresh.setenv(plugins.ENVIRONMENT, str(SAMPLE))
    assert [plugin.folder for plugin in plugins.active()] == [SAMPLE]
    [line] = plugins.problems()
    assert line.endswith(f"there is another plug-in sample_plugin, in {SAMPLE}")


def test_an_entry_point_without_a_package(tmp_path: Path, afresh: pytest.MonkeyPatch) -> None:
    shutil.rmtree(installed(tmp_path, "gone"))
    (tmp_path / "flat_plugin.py").write_text("", encoding="utf-8")
    shutil.rmtree(installed(tmp_path, "flat"))
    afresh.syspath_prepend(tmp_path)
    assert plugins.active() == ()
    assert sorted(line.partition(": ")[2] for line in plugins.problems()) == [
        "flat_plugin is no package",
        "no module gone_plugin",
    ]


def test_installed_ones_are_listed_without_importing_them(tmp_path: Path, afresh: pytest.MonkeyPatch) -> None:
    package = installed(tmp_path, "lazy", module="lazy_package")
    (package / "analyses.py").write_text("raise AssertionError('imported')", encoding="utf-8")
    afresh.syspath_prepend(tmp_path)
    [plugin] = plugins.active()
    assert (str(plugin), plugin.is_named, plugin.files[0]) == ("lazy 1.2", False, "kernels.toml")
    assert "lazy_package" not in sys.modules
    assert plugins.modules("advice")
    assert plugins.modules("analyses") == ()
    assert plugins.problems() == (f"plug-in lazy ({package}): analyses.py: AssertionError: imported",)


def test_help_loads_no_plugin_and_nothing_heavy() -> None:
    script = "import sys\nfrom trace_analyzer.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\n" + (
        "from trace_analyzer import plugins\n"
        "print(plugins._settled + [n for n in ('polars', 'importlib.metadata') if n in sys.modules])"
    )
    assert run("-c", script).stdout.endswith("[]\n")


PACKAGE = Path(__file__).parents[1] / "trace_analyzer"

DEVICE = """
  { name = "Toy 1", patterns = ["Toy 1"], vendor = "NVIDIA", architecture = "Hopper", compute_capability = "9.0", sm_count = 100, memory_gib = 50, memory_gbps = 1000, l2_mib = 10, warp_size = 32, tflops = { fp32 = 50, bf16 = 100 }, source = "made up" },"""
KERNEL_RULE = r"""
  { id = "toylib", bucket = "softmax", name = '\btoylib_map_' },"""
CAUSE = """    part("saving", "Saving weights", "Weights were being saved.", "named", "#4f6d8f", cure="launch", fixes=("background-saving",)),
"""
HOST_WORK = r"""
  { work = "saving", kinds = ["python"], pattern = 'torch/serialization\.py\(\d+\): save$' },"""
FIX = """# Save weights in the background

```toml
regimes = ["overhead-bound"]
```

## Code

```python
torch.distributed.checkpoint.async_save(state_dict, checkpoint_id=path)
```
"""
FIX_RULE = TEXT["advice.py"].split("\n\n\n")[1] + "\n\n\n"
ADDING = SCRIPT.replace(
    "more = {}",
    """
from trace_analyzer.analyses.profiler_overhead import SLOWED
from trace_analyzer.compare.judgement import TARGETS
compared = ta.compare(report, ta.analyze(sys.argv[3])).headline
more = {"package": ta.__file__, "path": report.tables["critical_path_parts"].to_dicts(), "slowed": SLOWED, "compared": compared,
    "targets": TARGETS["background-saving"]}
""",
)


def inserted(path: Path, place: str, text: str, *, after: bool = False) -> None:
    """Insert the text before or after the first occurrence of another one."""
    whole = path.read_text(encoding="utf-8")
    assert place in whole
    path.write_text(whole.replace(place, place + text if after else text + place, 1), encoding="utf-8")


def save_each_step(length: int) -> bytes:
    """Return four steps that launch at their end, and save weights for 60 ms where they are long enough."""
    events: list[Any] = []
    for step, at in enumerate(range(0, 4 * length, length)):
        events.append(annotation(f"ProfilerStep#{step}", at, length))
        events += [python("torch/serialization.py(944): save", at + 10, 60_000)] * (length > 60_000)
        for number, called in enumerate(range(at + length - 35_000, at + length - 15_000, 1_000), 20 * step + 1):
            events.append(launched("toylib_map_f32", called, called + 5_000, 1_000, number))
    return trace_bytes(events, deviceProperties=[TOY])


@pytest.fixture(scope="module")
def added(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return all added on a trace with the additions, made by a copy of the package that has them."""
    folder = tmp_path_factory.mktemp("additions")
    copy = folder / "trace_analyzer"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "*.c"))
    (copy / "catalog" / "advice" / "background-saving.md").write_text(FIX, encoding="utf-8")
    (copy / "analyses" / "busy_threads.py").write_text(TEXT["analyses.py"], encoding="utf-8")
    inserted(copy / "catalog" / "devices.toml", "\ndevice = [", DEVICE, after=True)
    inserted(copy / "catalog" / "kernels.toml", "\nrule = [", KERNEL_RULE, after=True)
    inserted(copy / "catalog" / "host_work.toml", "\nrules = [", HOST_WORK, after=True)
    inserted(copy / "vocabulary.py", '    part("garbage-collection"', CAUSE)
    inserted(copy / "analyses" / "registry.py", '"host_costs", "compiled"', '"busy_threads", ')
    inserted(copy / "advice" / "overhead.py", "def earlier_work(", FIX_RULE)
    inserted(
        copy / "advice" / "rules.py", '    "earlier-work":', '    "background-saving": overhead.save_less_often,\n'
    )
    paths = [folder / name for name in ("trace.json", "page.html", "without.json")]
    paths[0].write_bytes(save_each_step(100_000))
    paths[2].write_bytes(save_each_step(40_000))
    done = run_python(ADDING, *paths, cwd=folder, env=None)
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert Path(made["package"]).parent == copy
    return made


@pytest.mark.slow
def test_a_device_and_a_kernel_rule_are_a_row_an_analysis_and_a_fix_their_file_and_their_line(added: Any) -> None:
    document = added["json"]
    assert [device["name"] for device in document["trace"]["devices"]] == ["Toy 1"]
    assert not [note for note in document["notes"] if "catalogue" in note["message"]]
    assert [bucket["bucket"] for bucket in document["devices"][0]["buckets"]] == ["softmax"]
    assert document["busy_threads"] == [{"thread_id": 0, "launch_count": 80}]
    advice = {item["id"]: item for item in document["advice"]}
    assert advice["background-saving"]["saves_ns_at_most"] == 3 * 60_000_000  # of three steady steps
    for output in ("text", "markdown", "page"):
        assert "Threads that launch" in added[output], output
        assert "Save weights in the background" in added[output], output


@pytest.mark.slow
def test_a_cause_is_its_entry_and_its_rule(added: Any) -> None:
    assert added["json"]["devices"][0]["gaps"]["by_cause_ns"]["saving"] > 1_500_000
    for output in ("text", "markdown", "page"):
        assert "saving weights" in added[output].lower(), output
    assert "#4f6d8f" in added["page"]


@pytest.mark.slow
def test_replay_debiasing_and_promises_take_a_cause_from_its_entry(added: Any) -> None:
    path = {row["name"]: row for row in added["path"]}
    assert path["saving"]["kind"] == "host"
    assert path["saving"]["ns"] == pytest.approx(60_000_000, rel=0.05)
    assert path.get("python", {"ns": 0})["ns"] < 40_000_000
    assert "saving" in added["slowed"]
    assert "saving weights" in added["compared"].lower()
    assert added["targets"] == [["saving"], []]
