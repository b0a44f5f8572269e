"""Check that items of a report are explained by stable ids, and the whole report in 2,000 bytes with these ids."""

import json
import re
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner
from conftest import SAMPLES, sample_report
from kineto import A100, annotation, launched, trace_bytes
from lazy_report import changed, report_on
from msgspec.structs import replace
from report_factory import empty_report, gpu_report, hostile_report
from text_reports import all_reports, report_saying

from trace_analyzer.catalog import document
from trace_analyzer.catalog.fixes import Fix, fixes
from trace_analyzer.cli import main
from trace_analyzer.cli.whatif import whatif
from trace_analyzer.errors import UsageError
from trace_analyzer.explain import Explanation, agent, items, label_of, lookups
from trace_analyzer.render import row_phrases
from trace_analyzer.render.documents import document_of, text
from trace_analyzer.report import Report
from trace_analyzer.thresholds import HIGH_CONFIDENCE, MEDIUM_CONFIDENCE
from trace_analyzer.units import cell_width
from trace_analyzer.vocabulary import PART_OPTION, PARTS

SAMPLE = SAMPLES / "synthetic_overhead_launch.json.gz"
ID = re.compile(r"^((?:advice|gap|kernel|step|check):\S+)  ", re.MULTILINE)


@pytest.fixture(scope="module")
def report() -> Report:
    return sample_report(SAMPLE.name)


def ids_of(report: Report) -> list[str]:
    kernel = f"kernel:{items.kernel_hash(items.kernel_names(report)[0])}"
    gap = items.longest_gaps(report, 1).item(0, "gap_id")
    own = (items.step_id(report, report.steps[1]), items.check_id(report, report.trust[-1]))
    return ["verdict", f"advice:{report.advice[0].id}", f"gap:{gap}", kernel, f"{kernel}/1", *own]


@pytest.mark.slow
def test_each_kind_is_reported_as_text_and_as_json(report: Report) -> None:
    for asked in ids_of(report):
        answer = report.explain(asked)
        assert answer.id == asked
        assert max(map(cell_width, answer.summary(80).splitlines())) <= 80
        document = json.loads(answer.to_json())
        assert (document["id"], document["title"]) == (asked, answer.title)
        assert answer.to_json() == report.explain(asked).to_json()
        assert [report.explain(other).id for other in answer.see] == list(answer.see), "they belong together"


def test_the_verdict_says_how_often_such_confidence_held(report: Report) -> None:
    known = {row["level"]: row for row in document("confidence.toml")["levels"]}
    row = known[report.verdict.confidence]
    said = f"Of {row['verdicts']} verdicts of {row['level']} confidence"
    assert any(said in sentence and f"{row['held']} held" in sentence for sentence in report.explain("verdict").text)
    for level, least in (("high", HIGH_CONFIDENCE), ("medium", MEDIUM_CONFIDENCE)):
        assert known[level]["held"] >= least * known[level]["verdicts"], "else mend the cause, not the words"


def test_advice_is_explained_by_its_own_id(report: Report) -> None:
    assert [report.explain(item.id).id for item in report.advice] == [f"advice:{item.id}" for item in report.advice]


def test_a_gap_tells_what_ended_it_and_what_the_host_did(report: Report) -> None:
    gap = items.longest_gaps(report, 1).row(0, named=True)
    answer = report.explain(f"gap:{gap['gap_id']}")
    after = report.tables["activities"].row(gap["activity_id"], named=True)
    assert answer.facts["duration_ns"] == gap["duration_ns"]
    assert answer.facts["ended_by"] == after["name"]
    assert answer.facts["launched_by"] == "cudaLaunchKernel"
    assert sum(int(row["time_ns"] or 0) for row in answer.rows) <= gap["duration_ns"]
    ended = report.explain(answer.see[0])
    assert ended.facts["start_ns"] == gap["start_ns"] + gap["duration_ns"]


def test_a_gap_leads_to_advice_on_its_own_cause() -> None:
    report = sample_report("synthetic_overhead_data-loading.json.gz")
    known = {item.id: item for item in report.advice}
    led = {}
    for gap in report.tables["gaps"].to_dicts():
        *_, asked = report.explain(f"gap:{gap['gap_id']}").next.split()
        led[gap["cause"]] = asked
        if best := known.get(asked.removeprefix("advice:")):
            assert best.id in PARTS[gap["cause"]].fixes or gap["start_ns"] <= (best.start_ns or 0) < gap["end_ns"]
    assert led["data-loading"] == "advice:data-loading"
    assert led["device-gap"] == "verdict"
    long = report.tables["gaps"].filter(cause="device-gap").with_columns(start_ns=1, end_ns=2**62).head(1)
    without = changed(report, advice=[replace(item, start_ns=None) for item in report.advice])
    gap = replace(without, tables={**report.tables, "gaps": long}).explain(f"gap:{long.item(0, 'gap_id')}")
    assert gap.next.split()[-1] == "verdict", "and needs no time for each of its nanoseconds"


def test_a_kernel_is_the_sum_of_its_runs_and_a_step_of_its_parts(report: Report) -> None:
    name = items.kernel_names(report)[0]
    answer = report.explain(f"kernel:{items.kernel_hash(name)}")
    runs = report.tables["activities"].filter(pl.col("name").cast(pl.String) == name)
    assert answer.facts["count"] == runs.height
    assert answer.facts["time_ns"] == runs.get_column("duration_ns").sum()
    assert report.explain(f"{answer.id}/{runs.height}").facts["start_ns"] == runs.get_column("start_ns")[-1]
    step = report.steps[2]
    parts = report.explain(items.step_id(report, step)).rows
    assert sum(int(row["time_ns"] or 0) for row in parts) == step.duration_ns


@pytest.mark.slow
def test_advice_names_the_command_that_estimates_it() -> None:
    report = sample_report("synthetic_overhead_data-loading.json.gz")
    answer = report.explain("advice:data-loading")
    assert answer.next.endswith("data-loading.json.gz --prefetch auto")
    assert answer.next.startswith("analyze whatif ")
    report = sample_report("synthetic_compute.json.gz")
    unestimated = next(item for item in report.advice if item.predicted is None)
    assert report.explain(f"advice:{unestimated.id}").next.startswith("analyze explain ")


@pytest.mark.parametrize("fix", [fix for fix in fixes().values() if fix.replayed], ids=lambda fix: fix.id)
def test_each_replayed_fix_has_options_that_whatif_takes(fix: Fix) -> None:
    item = replace(gpu_report().advice[0], id=fix.id)
    context = whatif.make_context("whatif", ["trace.json", *lookups.whatif_options(item)])
    changed = [name for name, value in context.params.items() if value not in (None, False, (), "text")]
    replayed = dict(fix.replayed or {})
    name = str(replayed.pop("name")).replace("-", "_")
    is_part = any(key in PART_OPTION.values() for key in replayed)
    option = f"{name}_only" if is_part else name
    assert set(changed) == {"trace", option}
    assert context.params[option] in (True, *replayed.values())


def test_a_kernel_of_two_devices_is_told_once_with_the_runs_of_both() -> None:
    runs = [
        [launched("k", 100 * n, 1_000 + 100 * n, 10 + 20 * n, n + 9 * d, device=d) for n in range(1, 3)] for d in (0, 1)
    ]
    report = report_on(trace_bytes([*runs, launched("k", 400, 1_400, 90, 99, device=1)]))
    (line,) = (line for line in agent.agent_text(report).splitlines() if line.startswith("kernel:"))
    answer = report.explain("kernel:k")
    assert (answer.facts["count"], answer.facts["time_ns"], answer.facts["median_ns"]) == (5, 250_000, 50_000)
    assert "  250 us, 100 % of kernel time, 5 runs: k" in line


def test_things_of_another_device_have_it_behind_their_id() -> None:
    report = gpu_report(devices=2)
    other = replace(report.steps[1], device=1)
    report = replace(report, steps=(*report.steps, other))
    assert [items.step_id(report, step) for step in report.steps] == ["step:0", "step:1", "step:2", "step:1@1"]
    assert report.explain("step:1@1").facts["duration_ns"] == other.duration_ns
    assert items.check_id(report, replace(report.trust[0], device=1)) == "check:link_coverage@1"
    assert items.check_id(report, report.trust[1]) == "check:lost_events"


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ("gap:999999", "there are gap:0 to gap:278; the longest is gap:"),
        ("advice:cuda-graph", "near it: advice:cuda-graphs"),
        ("step:77", "near it: step:"), ("check:link", "near it: check:link_coverage"),
        ("kernel:00000000", "the longest are: kernel:"),
        ("kernel:", "the longest are: kernel:"), ("kernel:" + "x" * 4000, "the longest are: kernel:"),
        ("kernal:1", "did you mean kernel?"),
        ("Gap:1", "did you mean gap?"), ("phase:forward", "as ids begin with verdict, advice"),
        ("verdit", "near it: verdict"),
        ("", "near it: verdict"),
    ],
)  # fmt: skip
def test_an_unknown_id_names_those_near_it_in_a_line(report: Report, asked: str, near: str) -> None:
    with pytest.raises(UsageError) as raised:
        report.explain(asked)
    assert near in str(raised.value)
    assert len(str(raised.value)) < 400


def test_without_kernels_nothing_is_near_and_nothing_is_checked() -> None:
    report = sample_report("cpu_mlp.json.gz")
    with pytest.raises(UsageError, match="no 'kernel:gemm' in this trace: there are no kernels"):
        report.explain("kernel:gemm")
    assert report.explain("check:missing_activities").title == "missing activities: nothing to check"
    assert agent.agent_text(report).splitlines()[-1].endswith("ids: verdict, advice:ID, check:ID")


def test_a_kernel_is_explained_by_a_part_of_its_name() -> None:
    names = ("void gemm_a/b<1>(int)", "void gemm_a/b<1>", "cast_Kernel")
    events = [launched(name, 100 * n, 1_000 + 100 * n, 50 - n, n + 1) for n, name in enumerate(names)]
    report = report_on(trace_bytes(events))
    whole = report.explain("kernel:cast_kernel")
    assert whole == report.explain(whole.id)
    assert whole.id == f"kernel:{items.kernel_hash('cast_Kernel')}"
    assert report.explain("kernel:CAST/1").id == f"{whole.id}/1"
    assert [report.explain(f"kernel:{name}").title for name in names] == list(names)
    several = r"no 'kernel:gemm' in this trace; 2 kernels have this in their name: kernel:\w+ \(void gemm"
    with pytest.raises(UsageError, match=several):
        report.explain("kernel:gemm")


def test_gaps_of_a_trace_or_device_that_never_idles() -> None:
    busy = [launched("k", 100 * n, 1_000 + 100 * n, 100, n + 1) for n in range(4)]
    with pytest.raises(UsageError, match="no 'gap:0' in this trace: there are no gaps"):
        report_on(trace_bytes(busy)).explain("gap:0")
    other = [launched("k", 100 * n, 1_000 + 300 * n, 10, n + 9, device=1) for n in range(2)]
    with pytest.raises(UsageError, match="there are gap:0 to gap:"):
        report_on(trace_bytes([busy, other])).explain("gap:99")


@pytest.mark.parametrize("asked", ["kernel:{}/0", "kernel:{}/999999", "gap:-1", "gap:1.5", "gap:1_0", "step:", "gap:²"])
def test_ids_that_only_look_right_are_refused(report: Report, asked: str) -> None:
    with pytest.raises(UsageError):
        report.explain(asked.format(items.kernel_hash(items.kernel_names(report)[0])))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["synthetic_overhead_launch", "synthetic_communication_dependency", "cpu_mlp"])
def test_the_whole_takes_2000_bytes_and_its_ids_exist(name: str) -> None:
    report = sample_report(f"{name}.json.gz")
    text = report.to_agent_text()
    assert len(text.encode()) <= agent.MOST_BYTES
    assert text == report.to_agent_text()
    named = ID.findall(text)
    assert (len(named) > 5) == bool(report.devices)
    for asked in named:
        assert report.explain(asked).id == asked


@pytest.mark.parametrize(
    "report", [hostile_report(), report_saying("\x1b[2J" + "模型" * 3000), *all_reports().values()]
)
def test_no_name_makes_the_whole_longer_or_breaks_a_line(report: Report) -> None:
    text = agent.agent_text(report)
    assert len(text.encode()) <= agent.MOST_BYTES
    assert "\x1b" not in text
    assert text.startswith("verdict  ")
    assert text.rstrip("\n").splitlines()[-1].startswith("more: analyze explain ")


@pytest.mark.parametrize(
    ("path", "word"), [("my traces/a'b.json", "'my traces/a'\"'\"'b.json'"), ("d" * 4000, "TRACE"), ("a\nb", "TRACE")]
)
def test_the_next_command_names_the_trace_as_a_shell_takes_it(path: str, word: str) -> None:
    report = gpu_report()
    told = agent.agent_text(replace(report, trace=replace(report.trace, path=path)))
    assert f"more: analyze explain {word} ID; ids: " in told


def test_gaps_outside_of_the_window_or_of_a_busy_one_are_left_out() -> None:
    report = gpu_report()
    window = replace(report.verdict.window, intervals=((1_000_000, 1_200_000),))
    late = replace(report, verdict=replace(report.verdict, window=window))
    assert items.longest_gaps(late, 99).get_column("start_ns").min() > 800_000
    assert "\ngap:" in agent.agent_text(late)
    busy = replace(late, verdict=replace(late.verdict, parts_ns={"compute": 990, "dispatch": 10}))
    assert "\ngap:" not in agent.agent_text(busy)


def test_recording_that_lengthens_the_window_is_told() -> None:
    report = sample_report("gpu_cases/distort_eager700.json.gz")
    assert (told := row_phrases.step_without_recording(report.verdict))
    assert told in report.explain("verdict").text
    assert told in agent.agent_text(report)


def test_launches_are_of_a_steady_step_and_an_advice_says_which_it_leaves() -> None:
    """The first step of one compiles, with more launches; a graph of the other leaves 7 of the optimizer outside."""
    verdict = sample_report("gpu_cases/first_steps_compile.json.gz").explain("verdict")
    assert verdict.facts["launches_per_step"] == 51
    report = sample_report("gpu_cases/mlp_adam_eager.json.gz")
    assert report.explain("verdict").facts["launches_per_step"] == 50
    assert "(43 launches per step, without those of optimizers)" in report.explain("cuda-graphs").text[0]


def test_a_name_from_a_trace_does_not_act_on_a_terminal() -> None:
    report = report_saying("\x1b[2J\nx")
    for asked in ("verdict", "check:lost_events"):
        with_id = replace(report, trust=(replace(report.trust[0], name="lost_events", device=None),))
        assert "\x1b" not in with_id.explain(asked).summary()


@pytest.mark.parametrize(("confidence", "start"), [("high", "High confidence. One"), ("low", "Low confidence: one")])
def test_a_remark_does_not_read_as_a_reason(confidence: str, start: str) -> None:
    report, why = gpu_report(), ("one step was recorded",)
    noted = replace(report, verdict=replace(report.verdict, confidence=confidence, confidence_why=why))
    assert f"  {start} step was recorded" in agent.agent_text(noted).splitlines()


def test_without_a_device_operators_are_reported() -> None:
    operators = [{"name": "aten::mm", "count": 2, "host_ns": 9_000, "host_self_ns": 5_000}]
    assert "operator  aten::mm: 5 us of its own, 2 calls" in agent.agent_text(empty_report(operators=operators))


def test_facts_have_names_for_people() -> None:
    names = ("duration_ns", "busy_ratio", "achieved_flop_per_s", "flop", "occupancy_percent")
    assert [label_of(name) for name in names] == ["duration", "busy ratio", "achieved FLOP/s", "FLOP", "occupancy"]
    answer = Explanation("gap:1", "A gap", ("It idled.",), {"duration_ns": 5_000}, next="analyze t.json")
    assert (
        str(answer) == "gap:1 A gap\n\nExplanation\n  It idled.\n\nFigures\n  duration  5 us\n\nNext\n  analyze t.json"
    )


@pytest.mark.slow
def test_the_command_tells_one_thing() -> None:
    result = CliRunner().invoke(main, ["explain", str(SAMPLE), "gap:3", "--format", "json"])
    assert (result.exit_code, json.loads(result.stdout)["id"]) == (0, "gap:3")
    unknown = CliRunner().invoke(main, ["explain", str(SAMPLE), "gap:x"])
    assert unknown.exit_code == 2
    assert unknown.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_redacted_thing_keeps_public_names_only(tmp_path: Path) -> None:
    secret = tmp_path / "zorgq_project.json"
    names = ["void zorgq_kernel<float>(float*)", "zorgq_step"]
    kernels = [launched(names[0], 100 * k, 100 * k + 20, 30, k + 1) for k in range(4)]
    secret.write_bytes(trace_bytes([annotation(names[1], 0, 500), *kernels], deviceProperties=[A100]))
    for form in ("text", "json"):
        listed = CliRunner().invoke(main, [str(secret), "--no-report", "--redact", "--format", "agent"]).stdout
        kernel = next(asked for asked in ID.findall(listed) if asked.startswith("kernel:"))
        for asked in ("verdict", kernel):
            result = CliRunner().invoke(main, ["explain", str(secret), asked, "--redact", "--format", form])
            assert result.exit_code == 0
            assert "zorgq" not in result.stdout
    open_ = CliRunner().invoke(main, ["explain", str(secret), f"kernel:{items.kernel_hash(names[0])}"])
    assert "zorgq_kernel" in open_.stdout


def test_code_keeps_its_lines_in_every_format(tmp_path: Path) -> None:
    source = "for batch in loader:\n    model(batch)  # one"
    explanation = Explanation("advice:x", "Do this", (), {}, source)
    assert f"```python\n{source}\n```" in explanation.to_markdown()
    assert "    for batch in loader:\n        model(batch)  # one\n" in text(document_of(explanation), 80)
    page = explanation.to_html(tmp_path / "page.html").read_text("utf-8")
    assert "<code>for batch in loader:\n    model(batch)" in page
