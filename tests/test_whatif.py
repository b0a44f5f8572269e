"""What-if: the contract of its JSON, the command, refusals with reasons, and how the answer is shown."""

import gzip
import json
import math
import re
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any

import click
import kineto as k
import pytest
from click.testing import CliRunner, Result
from conftest import SAMPLES, sample_report
from lazy_report import LazyReport, changed
from msgspec.structs import replace
from replay_pairs import PAIRS

import trace_analyzer as ta
from trace_analyzer.catalog.fixes import fixes
from trace_analyzer.cli import main
from trace_analyzer.documents.whatif import _headline
from trace_analyzer.ingest import load
from trace_analyzer.options import Options
from trace_analyzer.pipeline import report_of, whatif_of
from trace_analyzer.replay import outcomes, prediction, weights
from trace_analyzer.replay.changes import CHANGES, Change
from trace_analyzer.replay.whatif import Skipped, WhatIf, changes_of, whatif
from trace_analyzer.vocabulary import CHANGE_PARTS, PART_OPTION

pytestmark = pytest.mark.slow

SYNCHRONIZED = SAMPLES / "synthetic_overhead_synchronization.json.gz"
COMPUTE = SAMPLES / "synthetic_compute.json.gz"
INTERVAL = {"step_ns", "low_ns", "high_ns"}
CONTRACT = {
    "schema_version", "status", "reason", "device", "steps", "step_ns", "replay", "floors", "changes", "predicted", "scenarios",
    "critical_path", "levers", "memory",
}  # fmt: skip


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["whatif", *map(str, arguments)])


@cache
def report(path: Path) -> ta.Report:
    return sample_report(path.name)


def test_the_json_holds_the_contract() -> None:
    result = run(SYNCHRONIZED, "--no-sync", "--speedup", "matmul=2", "--format", "json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    check_contract(document)
    assert document["changes"] == [
        {"name": "no-sync", "options": {}},
        {"name": "speedup", "options": {"target": "matmul", "factor": 2.0}},
    ]
    assert [scenario["name"] for scenario in document["scenarios"]] == ["no-sync", "speedup"]
    assert all(document["predicted"]["step_ns"] <= scenario["step_ns"] for scenario in document["scenarios"])
    for part in document["critical_path"]:
        steps = list(part["speedups"].values())
        assert list(part["speedups"]) == ["1.11", "1.33", "2", "4", "inf"]
        assert steps == sorted(steps, reverse=True)
    assert sum(part["ns"] for part in document["critical_path"]) <= document["predicted"]["step_ns"] * 1.001


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


def is_interval(value: dict[str, Any]) -> bool:
    return all(map(is_number, (value["low_ns"], value["step_ns"], value["high_ns"]))) and value["low_ns"] <= value["step_ns"] <= value["high_ns"]  # fmt: skip


def check_contract(document: dict[str, Any]) -> None:
    """Check each field of the contract, by name and type; a refused result has no field that needs a replay."""
    assert document.keys() == CONTRACT | {"skipped"}
    assert document["schema_version"] == 1
    assert isinstance(document["steps"], int)
    assert document["device"] is None or isinstance(document["device"], int | str)
    for named in (*document["changes"], *document["scenarios"], *document["skipped"]):
        assert isinstance(named["name"], str)
        assert all(isinstance(value, str) or is_number(value) for value in named["options"].values())
    if document["status"] == "refused":
        assert isinstance(document["reason"], str)
        assert (document["floors"], document["predicted"]) == (None, None)
        assert (document["levers"], document["scenarios"], document["critical_path"]) == ([], [], [])
        return
    assert (document["status"], document["reason"]) == ("ok", None)
    assert is_number(document["step_ns"])
    replay = document["replay"]
    assert set(replay) == {"step_ns", "error_ratio", "unexplained_ratio", "inferred_ratio"}
    assert replay["step_ns"] == pytest.approx(document["step_ns"] * (1 + replay["error_ratio"]))
    assert 0 <= replay["unexplained_ratio"] <= 0.05
    assert 0 <= replay["inferred_ratio"] <= 1
    assert set(document["floors"]) == {"cpu_ns", "device_ns"}
    assert all(0 <= floor <= replay["step_ns"] for floor in document["floors"].values())
    assert set(document["predicted"]) == INTERVAL
    estimated = [scenario for scenario in document["scenarios"] if scenario["refused"] is None]
    assert all(map(is_interval, (document["predicted"], *estimated)))
    reasons = {None, *(skipped["reason"] for skipped in document["skipped"])}
    assert {scenario["refused"] for scenario in document["scenarios"]} <= reasons
    for lever in document["levers"]:
        assert set(lever) == {"resource", "share_ratio", "path_ratio", "saves_ns", "saves_ratio"}
        assert all(0 <= lever[key] <= 1 + 1e-9 for key in ("share_ratio", "path_ratio"))
        assert 0 <= lever["saves_ns"] <= document["replay"]["step_ns"]
    for part in document["critical_path"]:
        assert part["kind"] in ("host", "device", "dependency")
        assert isinstance(part["name"], str)
        assert is_number(part["ns"])
        assert is_number(part["speedups"]["2"])
        assert all(step <= document["predicted"]["step_ns"] * (1 + 1e-9) for step in part["speedups"].values())


INF = math.inf
ODD: dict[str, tuple[Path, dict[str, Any]]] = {
    "one step of a graph": (SAMPLES / "synthetic_memory-bandwidth_cuda-graph.json.gz", {"graphs": True, "speedup": {"gpu": INF}}),
    "everything at once": (COMPUTE, {"no_sync": True, "pinned": True, "prefetch": 3, "graphs": True, "fuse": True, "bf16": True,
                                     "overlap": True, "batch": 1.5, "warm": True, "speedup": {"cpu": INF, "gpu": INF}}),
    "no time is left": (COMPUTE, {"speedup": {"cpu": 1e9, "gpu": 1e9}}),
    "a smaller batch": (COMPUTE, {"batch": 1e-9}),
    "slower": (COMPUTE, {"speedup": {"gpu": 1e-9}}),
    "over a century": (COMPUTE, {"speedup": {"gpu": 1e-9, "matmul": 1e-9}}),
    "a CPU's recording": (SAMPLES / "cpu_mlp.json.gz", {"graphs": True, "batch": 2}),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_odd_programs_and_absurd_changes_keep_the_contract(name: str) -> None:
    path, options = ODD[name]
    asked = whatif(report(path), changes_of(**options))
    check_contract(json.loads(asked.to_json()))
    text = asked.summary(80)
    assert "nan" not in text
    assert "…" not in text.partition("Critical path then")[0], "the answer is not cut"


@pytest.mark.parametrize("cut", [0.5, 0.95])
def test_a_file_that_breaks_off_keeps_the_contract(cut: float, tmp_path: Path) -> None:
    whole = gzip.decompress(SYNCHRONIZED.read_bytes())
    path = tmp_path / "cut.json"
    path.write_bytes(whole[: int(cut * len(whole))])
    asked = run(path, "--no-sync", "--format", "json")
    assert asked.exit_code in (0, 3)
    check_contract(json.loads(asked.stdout))


@pytest.mark.parametrize("device", [0, 1])
def test_each_of_two_devices_keeps_the_contract(device: int) -> None:
    trace = PAIRS["devices"].before(1)
    document = ta.whatif(trace, device=device, no_sync=True, speedup={"matmul": 2}).document()
    check_contract(document)
    assert (document["status"], document["device"]) == ("ok", device)


def test_without_changes_the_identity_is_predicted() -> None:
    document = whatif(report(SYNCHRONIZED)).document()
    assert document["changes"] == []
    assert set(document["predicted"].values()) == {document["step_ns"]}, "what was recorded is certain"
    assert document["predicted"]["step_ns"] == pytest.approx(document["step_ns"], rel=0.005)
    assert document["steps"] == 6
    names = [scenario["name"] for scenario in document["scenarios"]]
    assert {"no-sync", "graphs", "fuse", "speedup"} <= set(names)
    assert [s["step_ns"] for s in document["scenarios"]] == sorted(s["step_ns"] for s in document["scenarios"])
    assert {s["name"] for s in document["skipped"]} >= {"pinned", "prefetch"}


def test_the_library_says_the_same_as_the_command() -> None:
    result = run(COMPUTE, "--graphs", "--format", "json")
    assert json.loads(result.stdout) == ta.whatif(report(COMPUTE), graphs=True).document()
    assert ta.whatif(COMPUTE, graphs=True).to_json() == result.stdout


@pytest.mark.sampled
@pytest.mark.parametrize("share", [None, 0.8, 1.2])
@pytest.mark.parametrize("path", sorted(SAMPLES.glob("synthetic_*.json.gz")), ids=lambda path: path.name)
def test_a_trace_has_the_estimates_of_its_report(path: Path, share: float | None) -> None:
    """Also with the step without the profiler, where that is shorter, or longer than the recorded one."""
    step_ns = whatif(sample_report(path.name)).step_ns
    options = Options(measured_step_ms=share and step_ns and share * step_ns / 1e6)
    trace = load(path)
    assert whatif_of(trace, (), options).document() == whatif(report_of(trace, options)).document()


@pytest.mark.parametrize(("change", "reason"), [
    (Change("prefetch", {"workers": 4}), "no time goes to loading data"),
    (Change("batch", {"times": 1.0}), "the batch stays as big as it is"),
])  # fmt: skip
def test_a_change_without_anything_to_change_saves_nothing(change: Change, reason: str) -> None:
    result = whatif(report(COMPUTE), (change,))
    assert result.status == "ok"
    then = result.predicted
    assert then.low_ns == then.step_ns == then.high_ns == result.step_ns
    assert [skipped.reason for skipped in result.skipped] == [reason]
    assert f"Not changed: {reason}." in result.summary()


def test_a_synchronize_whose_removal_saves_nothing() -> None:
    """The device is busy all the time: the CPU waits, and the step is no shorter without."""
    simulation = PAIRS["gpu"].before(1)
    result = ta.whatif(simulation, no_sync=True)
    assert result.predicted.step_ns == pytest.approx(result.step_ns, rel=1e-3)


def test_helpful_changes_save_two_percent_or_more() -> None:
    result = whatif(report(SYNCHRONIZED))
    assert [s.name for s in result.helpful][:2] == ["no-sync", "fuse"], "as advice: by the middle of the interval"
    middles = [s.low_ns + s.high_ns for s in result.helpful]
    assert middles == sorted(middles)
    assert all(s.saves_ratio >= 0.02 and s.what == "change" for s in result.helpful)
    assert whatif(report(COMPUTE)).helpful == ()
    assert whatif(report(COMPUTE)).summary().startswith("No standard change saves 2 % or more.")


# After work that starts at once, all is launched, and every kernel starts long after the one before for no recorded reason.
UNEXPLAINED = [
    *(k.launched("k", 20 * i, 20 * i + 10, 5, i + 1) for i in range(20)),
    *(k.launched("k", 400 + 6 * i, 1_500 + 200 * i, 5, i + 100) for i in range(60)),
]
REFUSED = {
    "few": (k.trace_bytes([k.launched("k", 20 * i, 20 * i + 10, 5, i + 1) for i in range(49)]), "49 activities"),
    "captures": (
        k.trace_bytes([k.call("cudaStreamBeginCapture", 1, 2), *(k.launched("k", 20 * i + 9, 20 * i + 19, 5, i + 1) for i in range(60))]),
        "captures CUDA graphs (cudaStreamBeginCapture)",
    ),
    "unexplained": (k.trace_bytes(UNEXPLAINED), "nothing in the trace explains"),
    "host": (k.trace_bytes([k.op("aten::add", 1, 2)]), "no device of the trace did any work"),
    "unrecorded": (k.trace_bytes([k.launch(1, 2, correlation=1)]), "1 launch but no GPU activity"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_have_a_reason_and_exit_3(name: str, tmp_path: Path) -> None:
    trace, reason = REFUSED[name]
    path = tmp_path / "t.json"
    path.write_bytes(trace)
    result = run(path, "--format", "json")
    assert result.exit_code == 3
    document = json.loads(result.stdout)
    assert document["status"] == "refused"
    assert reason in document["reason"]
    assert document["predicted"] is None
    assert document["scenarios"] == []
    assert "no estimate" in result.stderr
    assert "No estimate" in run(path).stdout


UNLINKED = k.trace_bytes(
    [
        *(k.launched("k", 40 * i, 40 * i + 10, 20, i + 1) for i in range(60)),
        *(k.kernel("u", 40 * i + 31, 8) for i in range(60)),
    ]
)


def test_without_links_only_the_device_can_be_made_faster(tmp_path: Path) -> None:
    standard = ta.whatif(UNLINKED)
    assert standard.status == "ok"
    assert {s.options.get("target") for s in standard.scenarios} >= {"gpu"}
    assert all("launches of" in s.reason for s in standard.skipped if s.name in ("no-sync", "graphs"))
    assert not any("launches of" in s.reason for s in standard.skipped if s.name in ("fuse", "bf16"))
    assert "No standard change that has an estimate saves 2 % or more." in standard.summary()
    path = tmp_path / "t.json"
    path.write_bytes(UNLINKED)
    refused = run(path, "--no-sync")
    assert refused.exit_code == 3
    assert "launches of" in refused.stdout
    assert run(path, "--speedup", "gpu=2").exit_code == 0


def test_a_change_that_leaves_a_path_that_nothing_explains_is_refused(tmp_path: Path) -> None:
    """The CPU takes 40 ms while queued kernels start 200 us apart."""
    path = tmp_path / "t.json"
    loads = k.python("dataloader.py(3): __next__", 800, 39_100)
    path.write_bytes(k.trace_bytes([*UNEXPLAINED, loads, k.launched("k", 40_000, 40_010, 5, 300)]))
    assert run(path, "--speedup", "gpu=2").exit_code == 0
    refused = run(path, "--speedup", "cpu=100")
    assert refused.exit_code == 3
    assert "of what the step would wait for then" in refused.stdout
    standard = ta.whatif(path)
    assert standard.status == "ok"
    loading = next(s for s in standard.skipped if s.name == "prefetch")
    assert "nothing in the trace explains" in loading.reason
    named = f"estimate of {Change(loading.name, loading.options).label}: {loading.reason}"
    assert f"No {named}." in " ".join(standard.summary().split())
    assert f"No {named}." in standard.to_markdown()
    helping = ta.analyze(path).tables["what_would_help"].filter(kind="refused")
    assert helping.get_column("label").to_list() == [f"no {named}"]
    assert standard.device_floor_ns < 2_000_000, "what nothing explains holds no floor up"


def test_no_graph_is_estimated_of_a_cold_start() -> None:
    """Nine tenths of every step go to allocating memory, which a cache keeps."""
    steps = [
        [k.call("cudaMalloc", 1_000 * n, 900, correlation=2 * n + 1), k.launched("k", 1_000 * n + 910, 1_000 * n + 930, 60, 2 * n + 2)]
        for n in range(60)
    ]  # fmt: skip
    result = whatif(LazyReport.on(k.trace_bytes(steps, deviceProperties=[k.A100])))
    assert "graphs" not in [s.name for s in result.scenarios]
    assert "No estimate of CUDA graphs: one-time work takes most of the time" in result.summary(200)
    document = json.loads(result.to_json())
    check_contract(document)
    (graphs,) = (scenario for scenario in document["scenarios"] if scenario["refused"])
    assert (graphs["name"], graphs["is_known"]) == ("graphs", False)
    assert {graphs[key] for key in (*INTERVAL, "saves_ratio")} == {None}
    assert [lever["saves_ns"] for lever in document["levers"]][:1] == [max(x["saves_ns"] for x in document["levers"])]


def test_a_change_that_is_explained_with_another_only_is_called_so() -> None:
    text = WhatIf("ok", None, 0, 0, 1.0, changes_of(warm=True), predicted=outcomes.Prediction(1, 1, 1), replay=outcomes.Identity(1, 0, 0, 0),
                  cpu_floor_ns=1, device_floor_ns=1, skipped=(Skipped("warm", {}, "why", is_applied=True),)).summary()  # fmt: skip
    assert "Not estimated alone: why." in text


def test_a_failed_check_refuses() -> None:
    known = report(COMPUTE)
    trust = tuple(replace(c, status="fail") if c.name == "stream_overlap" else c for c in known.trust)
    result = whatif(changed(known, trust=trust))
    assert result.status == "refused"
    assert "stream_overlap" in (result.reason or "")


def test_a_batch_for_which_libraries_choose_other_kernels_is_refused_where_these_decide() -> None:
    """The CPU limits: at twice the batch no kernel can make the step much longer, at a hundred times any can."""
    launching = report(SAMPLES / "synthetic_overhead_launch.json.gz")
    twice, by_far = (whatif(launching, (Change("batch", {"times": times}),)) for times in (2.0, 100.0))
    assert by_far.status == "refused"
    assert "libraries choose for another batch, decides" in (by_far.reason or "")
    assert twice.status == "ok"
    fast = prediction.Replay.of(launching, 0).outcome((Change("batch", {"times": 2.0}).towards("high"),)).step_ns
    assert twice.predicted.low_ns < twice.predicted.step_ns <= fast < twice.predicted.high_ns


def test_a_batch_that_does_not_fit_into_memory_is_refused() -> None:
    """Check that the tensors of one pointwise kernel must fit at once into the memory of the sample's device."""
    path = SAMPLES / "synthetic_memory-bandwidth.json.gz"
    moved = report(path).tables["activities"].filter(bucket="pointwise").get_column("moved_bytes").max()
    assert isinstance(moved, float)
    (device,) = report(path).trace.devices
    assert device.memory_bytes
    fits, exceeds = (
        whatif(report(path), changes_of(batch=share * device.memory_bytes / moved)) for share in (0.9, 1.1)
    )
    assert "more than the device's 85.2 GB" in (exceeds.reason or "")
    assert "more than the device's" not in (fits.reason or "")


def test_a_smaller_batch_takes_between_as_long_and_in_proportion() -> None:
    products = [
        k.launched("ampere_sgemm_128x64_tn", 10 * i, 20 + 100 * i, 100, i + 1, grid=[8, 1, 1], block=[256, 1, 1])
        for i in range(60)
    ]
    limited = prediction.Replay.of(k.analysed(products, devices=[k.A100]), 0)
    then = limited.predict((Change("batch", {"times": 0.75}),))
    assert then.low_ns < 0.76 * limited.identity.step_ns
    assert then.high_ns > limited.identity.step_ns
    with pytest.raises(weights.NotApplicable, match="libraries choose"):
        limited.predict((Change("batch", {"times": 0.25}),))


@pytest.mark.parametrize(
    ("changed", "options", "sm_count"),
    [
        ({}, {}, 108),
        ({"numSms": 14, "totalGlobalMem": 10 << 30}, {}, 14),
        ({"name": "a device of no catalogue"}, {}, 108),
        ({}, {"gpu": "h100"}, 132),
        ({"name": "a device of no catalogue", "numSms": None}, {}, None),
    ],
    ids=["listed", "partition", "not listed", "as the caller says", "unknown"],
)
def test_a_batch_is_predicted_with_the_multiprocessors_of_the_report(
    changed: dict[str, Any], options: dict[str, Any], sm_count: int | None
) -> None:
    """240 blocks, two per multiprocessor: the device's number of waves determines the time of twice as many."""
    kernels = [
        k.launched("tile", 10 * i, 20 + 100 * i, 100, i + 1, grid=[240, 1, 1], block=[1024, 1, 1]) for i in range(60)
    ]
    header = k.trace_bytes(kernels, deviceProperties=[{**k.A100, **changed}])
    lazy = LazyReport.on(header, **options)
    assert lazy.devices[0].sm_count == sm_count
    replay, twice = prediction.Replay.of(lazy, 0), (Change("batch", {"times": 2.0}),)
    if sm_count is None:
        with pytest.raises(weights.NotApplicable, match="multiprocessors is not known"):
            replay.predict(twice)
        return
    waves = 240 / (2 * sm_count)
    start_ns = 10_000 * (1 + waves)
    filling = max(1, 2 * waves) / max(1, waves)
    kernels_ns = 10_000 * (1 + 2 * waves) + (100_000 - start_ns) * filling
    assert replay.predict(twice).step_ns == pytest.approx(60 * kernels_ns, rel=0.001)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--speedup", "nonsense=2"), "no bucket, group, operator or module 'nonsense'; some that there are: "),
        (("--speedup", "mattmul=2"), "'mattmul'; did you mean matmul?"),
        (("--speedup", "matmul"), "is not NAME=K"),
        (("--speedup", "matmul=0"), "is not NAME=K"),
        (("--speedup", "matmul=nan"), "is not NAME=K"),
        (("--speedup", "matmul=-inf"), "is not NAME=K"),
        (("--speedup", "matmul=1e-300"), "the factor must be over 0"),
        (("--speedup", "matmul=2", "--speedup", "matmul=3"), "--speedup matmul is asked for twice"),
        (("--prefetch", "0"), "prefetch"),
        (("--batch", "inf"), "the factor must be a number over 0"),
        (("--batch", "nan"), "the factor must be a number over 0"),
        (("--prefetch", "1000000"), "a number of workers from 1 to 1024"),
        (("--warm", "--warm-only", "allocation"), "exclude each other"),
        (("--fuse", "--fuse-only", "chain"), "exclude each other"),
        (("--fuse-only", "all"), "is not one of"),
        (("--batch", "0"), "batch"),
        (("--memory", str(COMPUTE)), "says whether the batch of --batch fits"),
        (("--batch", "2", "--memory", str(COMPUTE)), "records no memory of a device"),
        (("--tf32", "--bf16"), "exclude each other"),
        (("--device", "9"), "9"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(
    arguments: tuple[str, ...], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    result = run(COMPUTE, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_buckets_of_the_path_have_the_names_of_the_report() -> None:
    buckets = {
        "matmul": "Matmul",
        "copy_cast": "Copy and cast",
        "moe": "Mixture of experts",
        "normalization": "Normalization",
    }
    path = tuple(replace(whatif(report(COMPUTE)).critical_path[0], name=name, ratio=0.25) for name in buckets)
    text = replace(whatif(report(COMPUTE)), critical_path=path).summary()
    assert re.findall(r"^  (\S.*?) +25 %  +\d", text, re.MULTILINE) == list(buckets.values())


def test_text_tells_step_interval_path_and_floors() -> None:
    standard, one = whatif(report(SYNCHRONIZED)), whatif(report(SYNCHRONIZED), (Change("no-sync"),))
    estimate = "Estimate with no synchronization: 6.89 ms → 4.12 ms"
    text = one.summary()
    assert f"{estimate} (" in text
    assert "Critical path then" in text
    assert _headline(one).startswith(estimate)
    assert _headline(standard).startswith("What would help most: ")
    slower = tuple(Change("speedup", {"target": target, "factor": 0.01}) for target in ("cpu", "gpu"))
    assert re.search(
        r"Estimate with no sync\w+, \w+ .*fast and \w+ .* times as long",
        _headline(whatif(report(SYNCHRONIZED), (Change("no-sync"), *slower))),
    )
    assert "Floors: no CPU fix goes below 3.74 ms a step, no GPU fix below 4.18 ms." in text
    assert "Floors: no CPU fix goes below 3.74 ms a step.\n" in replace(standard, cpu_floor_ns=0).summary()
    half = whatif(report(SYNCHRONIZED), (Change("batch", {"times": 0.5}),))  # whose step lies below these floors
    assert "Floors, with the batch as it is: no CPU fix goes below 3.74 ms a step" in half.summary()
    samples = r"as many samples\s+as now take (?P<many>[\d.]+) ms"
    match = re.search(rf"6.89 ms → (?P<then>[\d.]+) ms .*; {samples}\.", half.summary().replace("\n", " "))
    assert match is not None
    assert float(match["many"]) == pytest.approx(2 * float(match["then"]), rel=0.01)
    assert "What would help most" in standard.summary()
    assert all(len(line) <= 80 for line in standard.summary(80).splitlines())


@pytest.mark.parametrize(("off", "said"), [(1.0001, "<0.1 %"), (0.9999, "<0.1 %"), (0.95, "5.0 %"), (1.0, "0 %")])
def test_the_recorded_step_has_one_figure_beside_the_error_of_its_replay(off: float, said: str) -> None:
    result = whatif(report(SYNCHRONIZED))
    assert result.replay is not None
    identity = replace(result.replay, step_ns=12_549_500 * off, error_ratio=off - 1)
    text = replace(result, status="refused", reason="x", step_ns=12_549_500.0, replay=identity).summary(200)
    assert re.findall(r"\d\S* ms", text) == ["12.5 ms"]
    assert f"is off by {said}." in text


def test_text_tells_the_order_of_changes_that_estimates_do_not_show() -> None:
    """A sure 30 % of 10 ms comes before an estimate of 40 % that may save nothing."""
    standard, now = whatif(report(SYNCHRONIZED)), 10e6
    sure, wide = (
        replace(standard.helpful[0], name=name, step_ns=step, low_ns=low, high_ns=high, saves_ratio=1 - step / now)
        for name, step, low, high in (("no-sync", 7e6, 6.9e6, 7.1e6), ("graphs", 6e6, 5.9e6, now))
    )
    for scenarios, is_told in (((wide, sure), True), ((sure,), False)):
        result = replace(standard, step_ns=now, scenarios=scenarios)
        assert result.helpful[0] is sure
        assert ("The order is that of the middle" in result.summary()) is is_told


def test_the_tornado_plot_has_a_bar_per_scenario(tmp_path: Path) -> None:
    result = whatif(report(SYNCHRONIZED))
    bars = next(iter(result.plot))
    assert len(bars) == len(result.scenarios)
    page = tmp_path / "tornado.html"
    assert run(SYNCHRONIZED, "--plot", page).exit_code == 0
    assert "no synchronization" in page.read_text("utf-8")
    refused = run(SYNCHRONIZED, "--plot", page)
    assert refused.exit_code == 2
    assert "exists" in refused.stderr


def test_output_goes_into_a_file_and_a_dash_is_standard_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "estimate.md"
    result = run(SYNCHRONIZED, "--format", "markdown", "-o", path)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "| no synchronization |" in path.read_text("utf-8")
    monkeypatch.chdir(tmp_path)
    assert "6 steady steps" in run(SYNCHRONIZED, "-o", "-").stdout
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("name", CHANGE_PARTS)
def test_a_part_of_a_change_can_be_asked_for(name: str) -> None:
    used = {str(fix.replayed[PART_OPTION[name]]) for fix in fixes().values()
            if fix.replayed is not None and fix.replayed["name"] == name and PART_OPTION[name] in fix.replayed}  # fmt: skip
    assert used <= set(CHANGE_PARTS[name])
    (change,) = changes_of(**{name: CHANGE_PARTS[name][0]})  # type: ignore[arg-type]
    assert change == Change(name, {PART_OPTION[name]: CHANGE_PARTS[name][0]})
    assert change.label.endswith(f" ({CHANGE_PARTS[name][0]} only)")
    assert changes_of(**{name: True}) == (Change(name),)  # type: ignore[arg-type]
    with pytest.raises(ta.UsageError, match="no part of it; there are"):
        changes_of(**{name: "x"})  # type: ignore[arg-type]
    verb = main.get_command(click.Context(main), "whatif")
    (option,) = (option for option in verb.params if option.name == f"{name}_only")  # type: ignore[union-attr]
    assert isinstance(option.type, click.Choice)
    assert tuple(option.type.choices) == CHANGE_PARTS[name]


def test_a_part_saves_no_more_than_the_whole() -> None:
    known = report(SAMPLES / "synthetic_memory-bandwidth.json.gz")
    whole, part = (whatif(known, changes_of(fuse=which)) for which in (True, "chain"))
    assert 0 < whole.predicted.step_ns <= part.predicted.step_ns
    assert part.document()["changes"] == [{"name": "fuse", "options": {"of": "chain"}}]
    (row,) = (s for s in whatif(known).scenarios if s.name == "fuse")
    assert row == next(iter(whatif(known, changes_of(fuse="chain")).scenarios)), "as the advice has it, each kind alone"


def test_every_change_has_an_option_and_words() -> None:
    verb = main.get_command(click.Context(main), "whatif")
    options = {parameter.name for parameter in verb.params}
    assert {name.replace("-", "_") for name in CHANGES} <= options
    plain = dict.fromkeys(("no_sync", "pinned", "graphs", "fuse", "tf32", "overlap", "overlap_copies", "warm"), True)
    for change in changes_of(**plain, prefetch=2, batch=2, speedup={"cpu": 2}):
        assert "{" not in change.label


@pytest.mark.parametrize("loads", [398, 98])
def test_workers_slow_the_loop_while_they_load(loads: int) -> None:
    """The CPU limits the step: a quarter slower at worst, by as much of that as a worker loads, and at best not at all."""
    name, rest = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 600
    steps = [
        [k.annotation(f"ProfilerStep#{n}", at, rest + loads), k.annotation(name, at + 1, loads), k.op("aten::mm", at + loads + 2, 590),
         *(k.launched("k", at + loads + 12 + 50 * i, at + loads + 22 + 50 * i, 5, 10 * n + i + 1) for i in range(10))]
        for n, at in enumerate(range(0, 10 * (rest + loads), rest + loads))
    ]  # fmt: skip
    result = ta.whatif(k.trace_bytes(steps), prefetch=4)
    now = (rest + loads) * 1_000
    assert result.predicted.step_ns == pytest.approx(1_000 * (rest + 0.25 * loads), rel=0.01)
    assert 1_250 * rest <= result.predicted.high_ns < max(now, 1_320 * rest)
    assert 0.85 * 1_000 * rest < result.predicted.low_ns <= 1_001 * rest


def test_of_workers_that_there_are_already_more_are_estimated() -> None:
    content = PAIRS["prefetch, more workers"].before(1)
    auto, some = (ta.whatif(content, prefetch=workers) for workers in ("auto", 8))
    assert [change.label for change in auto.changes] == ["prefetched data, more workers"]
    assert auto.predicted == some.predicted


def test_parts_of_the_path_name_the_code_that_holds_them() -> None:
    result = whatif(report(SYNCHRONIZED))
    parts = {part.name: part for part in result.critical_path}
    matmul = parts["matmul"]
    assert matmul.operator == "aten::mm"
    assert 0 < matmul.end_ns - matmul.start_ns <= matmul.ns * result.steps
    changed = whatif(report(SYNCHRONIZED), (Change("no-sync"),))
    assert all(part.start_ns is None for part in changed.critical_path)


def test_a_notebook_shows_the_page_or_why_there_is_none() -> None:
    result = whatif(report(SYNCHRONIZED))
    refused = ta.whatif(k.trace_bytes([k.op("<b>x</b>", 1, 2)]))
    page, other = (
        unescape(shown._repr_html_().partition('<iframe srcdoc="')[2].partition('"')[0]) for shown in (result, refused)
    )
    assert "What would help most" in page
    assert "no synchronization" in page
    assert not re.search(r"<(script|link)\b[^>]{0,80}(src|href)=(?!.data:)", page), "nothing is fetched"
    assert str(result) == result.summary().rstrip("\n")
    assert "no device of the trace did any work" in other


@pytest.mark.sampled
@pytest.mark.parametrize(("loading", "least"), [(200, 1), (900, 1), (2_500, 3), (7_300, 8)])
def test_auto_takes_the_fewest_workers_that_suffice(loading: int, least: int) -> None:
    steps = []
    for number in range(6):
        at = number * (loading + 1_000)
        steps += [
            k.annotation(f"ProfilerStep#{number}", at, loading + 999),
            k.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, loading),
        ]
        for i in range(10):
            now, one = at + loading + 10 * i, 10 * number + i + 1
            run = k.kernel("ampere_sgemm_128x64_tn", at + loading + 20 + 90 * i, 88, correlation=one)
            steps += [k.op("aten::mm", now, 9), k.launch(now + 2, 4, one), run]
    content = k.trace_bytes(steps)
    chosen = ta.whatif(content, prefetch="auto")
    assert [change.options["workers"] for change in chosen.changes] == [least]
    assert chosen.predicted == ta.whatif(content, prefetch=least).predicted
    assert chosen.predicted.step_ns == pytest.approx(ta.whatif(content, prefetch=64).predicted.step_ns, rel=0.01)
    if least > 1:
        assert chosen.predicted.low_ns < 0.99 * ta.whatif(content, prefetch=least - 1).predicted.low_ns
