"""Test estimates in reports: what would help most, advice with predictions, and the critical path as a table."""

import json
from itertools import islice

import polars as pl
import pytest
from conftest import sample_report
from kineto import analysed, annotation, call, launched, op, python
from lazy_report import report_on
from msgspec.structs import replace
from replay_pairs import MULTIPLY, Eager, Simulation, steps

from trace_analyzer import registry, thresholds, units
from trace_analyzer.catalog.fixes import fixes
from trace_analyzer.render.documents import to_markdown
from trace_analyzer.render.html.view import view
from trace_analyzer.render.phrasing import predicted_briefly, predicted_step
from trace_analyzer.render.row_phrases import predicted_arrow, saves_at_most
from trace_analyzer.render.terminal import summary
from trace_analyzer.replay import changes, graph, outcomes, prediction
from trace_analyzer.replay.estimates import Estimates, change_of, what_would_help
from trace_analyzer.replay.weights import scale_label
from trace_analyzer.replay.whatif import whatif
from trace_analyzer.report import Predicted, Report, Saving

pytestmark = pytest.mark.slow

LOADS = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def sample(name: str) -> Report:
    return sample_report(f"synthetic_{name}.json.gz")


def rows(report: Report) -> list[dict[str, object]]:
    return report.tables["what_would_help"].to_dicts()


def test_what_would_help_is_what_whatif_says() -> None:
    report = sample("overhead_synchronization")
    result = whatif(report)
    change_rows = [row for row in rows(report) if row["kind"] == "change"]
    assert [(row["change"], row["label"]) for row in change_rows] == [(s.name, s.label) for s in result.helpful]
    assert [row["step_ns"] for row in change_rows] == [s.step_ns for s in result.helpful]
    assert all(row["low_ns"] <= row["step_ns"] <= row["high_ns"] for row in change_rows)  # type: ignore[operator]
    assert all(row["saves_ratio"] >= thresholds.WORTH_RATIO for row in change_rows)  # type: ignore[operator]
    floors = {row["kind"]: row["step_ns"] for row in rows(report) if "floor" in str(row["kind"])}
    assert floors == {"cpu-floor": result.cpu_floor_ns, "device-floor": result.device_floor_ns}


def test_every_output_shows_it() -> None:
    report = sample("overhead_data-loading")
    for text in (summary(report, verbose=True), to_markdown(report)):
        assert "What would help most" in text
        assert "prefetched data, 3 workers" in text
        assert "no CPU fix goes below" in text
    assert any(chapter.title == "What would help most" for chapter in view(report).chapters)
    assert '"what_would_help"' in report.to_json()


@pytest.mark.parametrize(
    ("count", "steps", "reason"),
    [(12, 0, "12 activities on the device are too few"), (12, 3, "too few"), (12, 4, None), (60, 0, None)],
    ids=["too few", "two steady steps", "three steady steps", "enough"],
)
def test_a_refusal_gives_its_reason(count: int, steps: int, reason: str | None) -> None:
    report = analysed(
        [launched("k", 100 * n, 100 * n + 10, 50, n + 1) for n in range(count)],
        [annotation(f"ProfilerStep#{n}", 1_200 // steps * n, 1_200 // steps) for n in range(steps)],
    )
    refusals = [str(row["label"]) for row in rows(report) if row["kind"] == "refused"]
    assert len(refusals) == (reason is not None)
    assert reason is None or reason in refusals[0]
    assert all(item.predicted is None for item in report.advice) == (reason is not None)


def test_a_report_that_leaves_the_replay_out_names_the_command_that_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trace_analyzer.replay.estimates.MAX_EVENTS", 100)
    report = analysed([launched("k", 100 * n, 100 * n + 10, 50, n + 1) for n in range(60)])
    why = "no estimate: reports of over 100 events leave it out; `analyze whatif TRACE` estimates it"
    assert [row["label"] for row in rows(report)] == [why]
    assert whatif(report).status == "ok"


def test_without_a_device_nothing_is_reported() -> None:
    tables = analysed(op("aten::mm", 0, 100)).tables
    assert all(tables[name].is_empty() for name in ("what_would_help", "critical_path", "critical_path_parts"))


def late(device: int, host: int) -> Report:
    """Analyse steps in which the CPU loads data and then waits for the kernels that it launched."""
    period, each = device + host + 40, device // 10
    return analysed([
        [annotation(f"ProfilerStep#{n}", at, period), annotation(LOADS, at + 1, host - 1),
         *(launched("ampere_sgemm_128x64_tn", at + host + 10 * k, at + host + 20 + each * k, each, 10 * n + k + 1)
           for k in range(10)),
         call("cudaDeviceSynchronize", at + host + 95, device - 65)]
        for n, at in enumerate(range(0, 10 * period, period))
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("device", "host", "fix", "step_us"),
    [(2_000, 600, "synchronization", 2_000), (600, 2_000, "data-loading", 650), (1_000, 1_000, "data-loading", 1_050)],
)
def test_a_step_is_predicted(device: int, host: int, fix: str, step_us: int) -> None:
    """The rest is the device's work and one launch, or the CPU's work."""
    report = late(device, host)
    item = next(item for item in report.advice if item.id == fix)
    assert item.predicted.now_ns == 1_000 * (device + host + 40)
    assert item.predicted.step_ns == pytest.approx(1_000 * step_us, rel=0.01)
    assert f"estimate: {units.duration(item.predicted.step_ns)} a step (" in summary(report, verbose=True)
    assert "estimate: " in summary(report)
    assert f"{units.duration(item.predicted.step_ns)} a step (" in to_markdown(report)


def test_a_prediction_that_saves_nothing_says_so() -> None:
    item = late(2_000, 600).advice[0]
    no_gain, gain = "no measurable gain (under 2 %)", "3 → 2 us a step, 33 % less"
    for now, small, brief in ((3_000.0, False, f"{gain} (1.90 to 2.10)"), (2_010.0, True, no_gain)):
        then = Predicted(2_000.0, 1_900.0, 2_100.0, now)
        saving = replace(item.saving, ns=now - 2_000, ratio=1 - 2_000 / now)
        item = replace(item, saving=saving, predicted=then)
        assert predicted_step(item).startswith(f"estimate: {no_gain}, 2 us a step (") == small
        assert predicted_briefly(item) == f"estimate: {brief}"
        assert predicted_arrow(item) == (brief.partition(" (")[0])
    wide = Predicted(2_500.0, 2_000.0, 3_100.0, 3_000.0, is_known=False)
    saves = "estimate: 2 us to 3.10 us a step, now 3 us: saves 0 % to 33 %, too wide for one figure"
    assert predicted_step(replace(item, predicted=wide)) == saves
    unknown = replace(item, predicted=None)
    assert predicted_step(unknown) == predicted_briefly(unknown) == ""
    assert "for the window" in predicted_step(replace(item, predicted=replace(then, has_steps=False)))


def test_beside_an_estimate_the_bound_is_called_one() -> None:
    item = late(2_000, 600).advice[0]
    item = replace(item, saving=Saving(1e6, 0.1, 3e6, 0.3, has_steps=True))
    assert saves_at_most(item) == "bound: saves at most 3 ms a step, 30 %, if nothing else limits"
    assert saves_at_most(replace(item, predicted=None)) == "saves at most 3 ms a step, 30 %"
    window = replace(item, predicted=None, saving=replace(item.saving, has_steps=False))
    assert saves_at_most(window) == "saves at most 3 ms, 30 %"
    assert saves_at_most(replace(window, saving=Saving(0, 0, 0, 0, has_steps=True))) == ""


@pytest.mark.parametrize(
    "name", ["overhead_synchronization", "overhead_data-loading", "overhead_launch", "memory-bandwidth"]
)
def test_advice_is_in_the_order_of_estimates(name: str) -> None:
    report = sample(name)
    window, saved = sum(report.verdict.parts_ns.values()), []
    for item in report.advice:
        ns, then = item.saves_ns_at_most, item.predicted
        if then is not None:
            assert then.low_ns <= then.step_ns <= then.high_ns
            assert item.saves_ns_at_most >= round(window * (1 - then.step_ns / then.now_ns)) - 1
            ns = window * (1 - (then.low_ns + then.high_ns) / 2 / then.now_ns)  # advice.md: the middle of its interval
        if not fixes()[item.id].last_resort:
            saved.append(ns)
    assert saved[1:] == sorted(saved[1:], reverse=True)
    assert saved[0] >= 0.75 * max(saved)


@pytest.mark.parametrize("fix", [fix for fix in fixes().values() if fix.replayed is not None], ids=lambda fix: fix.id)
def test_a_fix_names_a_change_that_there_is(fix: object) -> None:
    change = change_of(fix)  # type: ignore[arg-type]
    assert change.name in changes.CHANGES
    assert "{" not in change.label


def test_the_critical_path_is_one_chain_with_names() -> None:
    path = sample("overhead_synchronization").tables["critical_path"]
    assert path.height > 100
    assert (path["end_ns"][:-1] == path["start_ns"][1:]).all()
    assert (path["end_ns"] > path["start_ns"]).all()
    assert set(path["edge"]) <= set(graph.EDGES)
    assert set(path["kind"]) == {"host", "device", "dependency"}
    device = path.filter(pl.col("edge") == "execution")
    assert device.get_column("activity_id").null_count() == 0
    assert "matmul" in set(device["name"])
    assert device.get_column("operator").null_count() == 0
    host = path.filter(pl.col("edge") == "thread", pl.col("event_id").is_not_null())
    assert host.height
    assert host.get_column("thread_id").null_count() == 0


def test_the_path_of_a_loader_is_the_loader() -> None:
    path = late(200, 1_000).tables["critical_path"]
    length = pl.col("end_ns") - pl.col("start_ns")
    by_name = dict(path.group_by("name").agg(length.sum()).iter_rows())
    assert by_name["data-loading"] > 0.7 * sum(by_name.values())


def test_allocation_alone_is_predicted() -> None:
    """Check steps that allocate for 400 us and compile for 300 us: the advice on either is of that alone."""
    steps = [
        [annotation(f"ProfilerStep#{n}", 1_000 * n, 1_000), call("cudaMalloc", 1_000 * n + 1, 399),
         python("torch/_dynamo/convert_frame.py(1): _compile", 1_000 * n + 400, 300), op("aten::mm", 1_000 * n + 700, 295),
         *(launched("k", 1_000 * n + 710 + 25 * i, 1_000 * n + 720 + 25 * i, 20, 10 * n + i + 1) for i in range(10))]
        for n in range(10)
    ]  # fmt: skip
    items = {item.id: item for item in analysed(steps).advice}
    assert items["allocator"].predicted.step_ns == pytest.approx(600_000, rel=0.01)
    assert items["recompilation"].predicted.step_ns == pytest.approx(700_000, rel=0.01)


def test_each_share_of_the_path_has_its_speed_up_curve() -> None:
    report = sample("overhead_synchronization")
    parts = report.tables["critical_path_parts"]
    asked = whatif(report).critical_path
    assert parts.get_column("name").to_list() == [part.name for part in asked][: parts.height]
    for row, part in zip(parts.to_dicts(), asked, strict=False):
        steps = [row[f"step_{less}_less_ns"] for less in (10, 25, 50, 75, 100)]
        assert steps == list(part.speedups.values())
        assert steps == sorted(steps, reverse=True)
        assert (row["ratio"], row["operator"], row["start_ns"]) == (part.ratio, part.operator, part.start_ns)
    assert parts.get_column("ratio").sum() <= 1
    (matmul,) = parts.filter(name="matmul").to_dicts()
    assert f"{units.duration(matmul['step_50_less_ns'])}" in summary(report, verbose=True)
    document = json.loads(report.to_json())
    of_whatif = whatif(report).document()["critical_path"][: parts.height]
    assert document["critical_path"] == [{"device": 0, **row} for row in of_whatif]
    items = registry.json_schema()["properties"]["critical_path"]["items"]["properties"]
    assert list(items["speedups"]["properties"]) == list(of_whatif[0]["speedups"])


@pytest.mark.parametrize("name", ["overhead_synchronization", "communication_collectives"])
def test_a_speed_up_curve_is_what_each_speed_up_alone_gives(name: str) -> None:
    replay = prediction.Replay.of(sample(name), 0)
    for label, curve in islice(replay.parts()[1], 4):
        for key, factor in outcomes.SPEEDUPS.items():
            weights = replay.weights(())
            scale_label(weights, replay.known, label, factor)
            alone = min(replay.run(weights).step_ns, replay.identity.step_ns)
            assert curve[key] == pytest.approx(alone, rel=1e-4)


@pytest.mark.parametrize(
    ("rows", "first"), [(512, "cuda-graphs"), (8_192, "fusion")], ids=["the CPU is behind", "the device is"]
)
def test_fused_chains_spare_the_device_time_and_the_cpu_launches(rows: int, first: str) -> None:
    """A chain of three has one launch: where launching limits, that gains too, but less than a graph without any."""
    simulation = Simulation(header={"record_shapes": 1}, seed=1)
    main = simulation.thread()
    torch = Eager(simulation, main, simulation.stream())
    functors = {"aten::mul": MULTIPLY, "aten::add": "at::native::CUDAFunctor_add<c10::BFloat16>"}

    def step(_: int) -> None:
        torch.mm(256, 256, 256)
        for _ in range(16):
            torch.mm(64, 64, 64)
            for operator in ("aten::mul", "aten::add", "aten::mul"):
                torch.pointwise(operator, functors[operator], rows, 1_024, inputs=1)

    report = report_on(steps(simulation, main, step).json().encode(), device=0)
    assert report.advice[0].id == first
    (item,) = (item for item in report.advice if item.id == "fusion")
    assert ("chains launch several kernels each" in item.why) is (first != "fusion"), (
        "a device that gains nothing is not why"
    )
    assert "it spares launches, which save" in item.why, "more than kernels that take no time"
    assert (item.is_of_limit, "although" in item.why) == (True, False), "launching is the limit that it acts on"
    chains = item.predicted
    assert chains is not None
    assert chains.is_known
    assert chains.step_ns < 0.6 * chains.now_ns


def test_chains_that_the_device_alone_gains_from_say_nothing_of_launches() -> None:
    (item,) = (item for item in sample("memory-bandwidth").advice if item.id == "fusion")
    assert item.predicted is not None
    assert "launches" not in item.why


def test_the_step_now_says_how_much_of_the_window_is_outside_of_steps() -> None:
    def label(outside_ns: int) -> str:
        return what_would_help(Estimates(0, now_ns=30e6, outside_ns=outside_ns)).get_column("label").item(0)

    assert label(0) == label(100_000) == "now"
    assert label(14_800_000) == "now, a step; 14.8 ms of the verdict's window lie outside of steps"
