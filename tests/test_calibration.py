"""Test calibrations: the file, its lookup, and its use in reports."""

import html
import json
import os
import re
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from click.testing import CliRunner
from kineto import A100, launched, op, trace_bytes
from msgspec.structs import replace

from trace_analyzer import cli, documents, errors, sections
from trace_analyzer.catalog.calibration import (
    Calibration,
    CopyRate,
    MatmulRate,
    SweepPoint,
    file_name,
    known_calibrations,
    matching,
    read_calibration,
)
from trace_analyzer.catalog.devices import device_named
from trace_analyzer.documents.whatif import calibration_document, doubts_in_short
from trace_analyzer.pipeline import analyze
from trace_analyzer.render.charts import CHARTS
from trace_analyzer.render.documents import page, text
from trace_analyzer.render.html.view import view
from trace_analyzer.report import MeasuredRoof, Report

MEASURED = Calibration(
    name=str(A100["name"]),
    kind="cuda",
    sm_count=108,
    memory_bytes=85198045184,
    compute_capability="8.0",
    torch_version="2.13.0",
    copies=(CopyRate(1 << 20, 4000.0), CopyRate(1 << 26, 1500.0), CopyRate(1 << 28, 1600.0)),
    matmuls=(MatmulRate("fp16", 1024, 150.0), MatmulRate("fp16", 8192, 250.0), MatmulRate("fp32", 4096, 18.0)),
    sweep=(SweepPoint(1, 1600.0, 0.4), SweepPoint(64, 1500.0, 12.0), SweepPoint(256, 500.0, 19.0)),
    launch_overhead_ns=4200.0,
    launch_latency_ns=3100,
)


FLOP = 2 * 4096**3


def product(calibration: object = None, **header: object) -> Report:
    """Analyse a product of two matrices of 4096 x 4096 in 700 us."""
    shapes = {"Input Dims": [[4096, 4096], [4096, 4096]], "Input type": ["c10::Half", "c10::Half"]}
    events = [
        op("aten::mm", 5, 20, **shapes),
        launched("ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_nn", 10, 40, 700, 1),
    ]
    content = trace_bytes(events, **{"deviceProperties": [A100], **header})
    return analyze(content, calibration=calibration, step="all")


def stored(folder: Path, **changes: Any) -> Path:
    """Write the calibration with changes into a file."""
    (folder / "c.json").write_text(replace(MEASURED, **changes).to_json())
    return folder / "c.json"


PROTOTYPE = A100 | {"name": "Prototype", "numSms": 7}


def test_attained_figures_are_those_of_the_memory_and_of_the_best_size() -> None:
    assert MEASURED.memory_gbps == 1600.0  # the small copy fits in the cache
    assert MEASURED.peak_tflops == {"fp16": 250.0, "fp32": 19.0}
    assert Calibration(name="x", kind="cpu").memory_gbps is None


def test_a_listed_device_gets_the_figures_and_an_unlisted_one_these_alone() -> None:
    listed = MEASURED.device(device_named("a100"))
    assert (listed.memory_gbps, listed.peaks.fp16, listed.l2_mib) == (1600.0, 250.0, 40)
    alone = MEASURED.device(None)
    assert (alone.name, alone.peaks.fp16, alone.peaks.bf16) == (MEASURED.name, 250.0, None)
    assert Calibration(name="x", kind="cuda").device(None) is None


def test_a_file_holds_all_of_it(tmp_path: Path) -> None:
    assert read_calibration(stored(tmp_path)) == MEASURED


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "No such file"),
        ("no", "is no JSON"),
        ("[]", "no calibration of format 1"),
        ('{"format": 2}', "no calibration of format 1"),
        ('{"format": 1}', "damaged"),
        ('{"format": 1, "name": "x", "kind": "cuda", "colour": 1}', "damaged"),
        ('{"format": 1, "name": "x", "kind": "cuda", "copies": [{"bytes": 1, "gbps": -1}]}', "gbps is -1, which is out of range"),
        ('{"format": 1, "name": "x", "kind": "cuda", "copies": [{"bytes": 1, "gbps": "1"}]}', "gbps is no float"),
        ('{"format": 1, "name": "x", "kind": "cuda", "copies": 3}', "damaged"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_reported(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "c.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(errors.UsageError, match=message):
        read_calibration(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with a name")
def test_a_pipe_or_a_device_is_no_calibration(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "c.json")
    for path in (tmp_path / "c.json", Path("/dev/zero")):
        with pytest.raises(errors.UsageError, match="is no file"):
            read_calibration(path)


def test_a_device_is_known_by_name_size_and_memory() -> None:
    smaller, of_cpu = replace(MEASURED, memory_bytes=42 << 30), replace(MEASURED, kind="cpu")
    assert matching([smaller, MEASURED], MEASURED.name, 108, 85198045184) is MEASURED
    assert matching([smaller], MEASURED.name, 108, None) is smaller
    for known, name, sms in (
        (MEASURED, "NVIDIA H100", 108),
        (MEASURED, MEASURED.name, 98),
        (MEASURED, None, 108),
        (of_cpu, MEASURED.name, 108),
    ):
        assert matching([known], name, sms, 85198045184) is None


def test_a_report_tells_what_the_device_attains(tmp_path: Path) -> None:
    (device,) = product(stored(tmp_path)).devices
    (bucket,) = device.buckets
    assert bucket.roof_ratio == pytest.approx(FLOP / 312e12 / 700e-6)  # the datasheet's roof stays
    assert device.attained.roof_ratio == {"matmul": pytest.approx(FLOP / 250e12 / 700e-6)}
    assert device.attained.launch_latency_ns == 3100


def test_products_measure_matrix_units_and_the_sweep_vector_units() -> None:
    products = (MatmulRate("fp64", 8192, 17.0), MatmulRate("fp32", 8192, 17.5))
    nvidia = replace(MEASURED, matmuls=products).device(device_named("a100"))  # FP64 tensor cores, and none for FP32
    assert (nvidia.peaks.fp64, nvidia.peaks.fp64_matrix, nvidia.peaks.fp32) == (9.7, 17.0, 19.0)
    amd = replace(MEASURED, matmuls=products, sweep=()).device(device_named("mi300x"))
    listed = device_named("mi300x").peaks
    assert (amd.peaks.fp32, amd.peaks.fp32_matrix) == (listed.fp32, 17.5)


@pytest.mark.slow
def test_measured_roofs_stand_beside_the_datasheets_in_every_output(tmp_path: Path) -> None:
    report = product(stored(tmp_path))
    attained = report.devices[0].attained
    assert attained.roofs == (MeasuredRoof(None, None, 1600e9, 2039e9), MeasuredRoof("fp16", True, 250e12, 312e12))
    sentence = (
        "Measured by analyze calibrate: memory 1.60 TB/s (78 % of the datasheet's 2.04 TB/s), "
        "fp16 on tensor cores 250 TFLOP/s (80 % of the datasheet's 312 TFLOP/s); "
        "of these roofs, matmul 79 % (datasheet: 63 %)"
    )
    page = report.to_html(tmp_path / "r.html").read_text()
    for shown in (" ".join(report.summary(width=400, verbose=True).split()), report.to_markdown(), html.unescape(page)):
        assert sentence in shown
    assert sentence in [chapter.lead.removesuffix(".") for chapter in view(report).chapters]
    assert "dashed what was measured" in _caption(report)
    assert _lines(report) == [("solid", 312e12), ("dashed", 250e12)]


@pytest.mark.slow
def test_without_a_datasheet_the_measured_roofs_are_the_only_ones(tmp_path: Path) -> None:
    report = product(stored(tmp_path, name="Prototype", sm_count=7), deviceProperties=[PROTOTYPE])
    assert (
        "Measured by analyze calibrate: memory 1.60 TB/s, fp16 on tensor cores 250 TFLOP/s; "
        "not in the catalogue, so all roofs are these; of these roofs, matmul 79 %"
    ) in " ".join(report.summary(width=400, verbose=True).split())
    assert "measured by analyze calibrate" in _caption(report)
    assert _lines(report) == [("solid", 250e12)]
    assert report.devices[0].buckets[0].roof_ratio is not None
    assert product("none", deviceProperties=[PROTOTYPE]).devices[0].buckets[0].roof_ratio is None
    plain = product("none")
    assert "calibrate" not in plain.summary(verbose=True) + plain.to_markdown() + _caption(plain)
    assert _lines(plain) == [("solid", 312e12)]


def test_a_roof_that_was_not_measured_is_not_called_so(tmp_path: Path) -> None:
    attained = product(stored(tmp_path, matmuls=MEASURED.matmuls[2:])).devices[0].attained
    assert [roof.dtype for roof in attained.roofs] == [None]


def _caption(report: Report) -> str:
    pieces = [piece for chapter in view(report).chapters for piece in chapter.pieces]
    return next(piece.caption for piece in pieces if isinstance(piece, documents.Figure) and piece.key == "roofline")


def _lines(report: Report) -> list[tuple[str, float]]:
    """Return the roofs of the plot: how each is drawn, and how high it gets."""
    chart = CHARTS["roofline"](report)
    return [(mark.dash, float(max(mark.y))) for mark in chart.marks if isinstance(mark, sections.LineMark)]


@pytest.mark.slow
def test_the_users_own_calibration_is_found_unless_unwanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("XDG_CONFIG_HOME", "APPDATA"):
        monkeypatch.setenv(variable, str(tmp_path))
    folder = tmp_path / "trace-analyzer" / "devices"
    folder.mkdir(parents=True)
    (folder / "broken.json").write_text("{")
    stored(folder).rename(folder / file_name(MEASURED))
    assert known_calibrations() == (MEASURED,)
    found, unwanted, other = product(), product("none"), product(deviceProperties=[A100 | {"numSms": 98}])
    assert [report.devices[0].attained is None for report in (found, unwanted, other)] == [False, True, True]
    attained = json.loads(found.to_json())["devices"][0]["attained"]
    assert attained["peak_tflops"] == {"fp16": 250.0, "fp32": 19.0}


def test_it_is_shown_as_text_and_as_figures_without_a_network() -> None:
    hostile = replace(MEASURED, name="</script><script>alert(1)\x1b[2J")
    shown, html = text(calibration_document(hostile), 100), page(hostile, Path())
    assert "\x1b" not in shown
    assert all(words in shown for words in ("fp16 matmuls", "1.60 TB/s", "64  multiply-adds"))
    assert "<script>alert(1)" not in html
    assert all(words in html for words in ("Matmuls", "Memory-bound to compute-bound"))
    assert not re.search(r'<(script|link|img)[^>]*(src|href)="?http', html)


@pytest.fixture
def calibrate(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the module that measures, with small sizes on the CPU."""
    pytest.importorskip("torch")
    from trace_analyzer.capture import calibrate

    monkeypatch.setattr(calibrate, "_COPY_BYTES", {("cpu", True): (64, 128)})
    monkeypatch.setattr(calibrate, "_MATMUL_SIZES", {("cpu", True): (8, 16)})
    return calibrate


@pytest.mark.slow
def test_the_command_measures_the_cpu(tmp_path: Path, calibrate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    plot = tmp_path / "plot.html"
    command = ["calibrate", "--quick", "--device", "cpu", "--plot", str(plot)]
    done = CliRunner().invoke(cli.main, command, standalone_mode=True)
    assert done.exit_code == 0, done.output
    (measured,) = known_calibrations()
    assert (measured.kind, measured.sweep_failure, measured.launch_latency_ns) == ("cpu", "left out", None)
    assert [copy.bytes for copy in measured.copies] == [64, 128]
    assert {(matmul.dtype, matmul.size) for matmul in measured.matmuls} >= {("fp32", 8), ("fp64", 16)}
    assert measured.launch_overhead_ns is not None
    assert "the CPU, as a device of its own; no GPU was measured" in done.output
    assert plot.exists()
    again = CliRunner().invoke(cli.main, command, standalone_mode=True)
    assert (again.exit_code, "--force overwrites it" in again.output) == (2, True)


@pytest.mark.slow
def test_a_compiler_that_fails_costs_the_sweep_only(calibrate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.compile", Mock(side_effect=RuntimeError("no compiler\nat all")))
    outcome = calibrate.calibrate("cpu", quick=True)
    assert (outcome.sweep, outcome.sweep_failure) == ((), "torch.compile failed: no compiler")
    with pytest.raises(errors.UsageError, match="no device of kind npu"):
        calibrate.calibrate("npu")


@pytest.mark.slow
def test_the_chain_is_the_arithmetic_that_it_counts(calibrate: Any) -> None:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    x = torch.full((4,), 0.3, dtype=torch.float64)
    assert calibrate._chain(2)(x)[0].item() == pytest.approx((0.3 * 0.75 + 0.25) * 0.75 + 0.25)
    with FlopCounterMode(display=False) as counter:
        torch.mm(torch.ones(8, 8), torch.ones(8, 8))
    assert counter.get_total_flops() == 2 * 8**3


@pytest.mark.slow
def test_what_has_no_time_is_left_out_and_named(calibrate: Any) -> None:
    stages = Mock()
    outcome = calibrate.calibrate("cpu", quick=True, budget_s=1e-9, progress=stages)
    assert (outcome.copies, outcome.matmuls, outcome.sweep) == ((), (), ())
    assert outcome.left_out[:2] == ("copies of 128 B", "copies of 64 B")
    assert "fp32 matmuls of 8" in outcome.left_out
    assert outcome.sweep_failure == "the budget left no time for it"
    assert doubts_in_short(outcome)[-1].startswith("no time was left for copies of 128 B and ")
    stages.assert_not_called()


@pytest.mark.slow
def test_batches_that_differ_are_doubted(calibrate: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = calibrate._Bench(None, "cpu", True, calibrate._Budget(60, lambda *_: None))
    times = iter([0, 1, 0, 2, 0, 2, 0, 2, 0, 1])
    monkeypatch.setattr("trace_analyzer.capture.calibrate.time.perf_counter", lambda: next(times))
    assert bench._seconds(lambda: None, "copies of 64 B") == 1
    assert bench.doubts == ["copies of 64 B: the median batch took 100 % longer than the best one"]


@pytest.mark.parametrize(("kind", "fp32", "doubted"), [("cpu", 1.0, True), ("cpu", 2.0, False), ("cuda", 1.0, False)])
def test_a_cpu_on_which_fp32_is_no_faster_than_fp64_is_doubted(kind: str, fp32: float, doubted: bool) -> None:
    from trace_analyzer.capture.calibrate import implausible

    rates = (MatmulRate("fp64", 64, 1.0), MatmulRate("fp32", 64, fp32))
    assert bool(implausible(replace(MEASURED, kind=kind, matmuls=rates, sweep=()))) == doubted


def test_doubts_are_kept_in_the_file_and_reported_in_short(tmp_path: Path) -> None:
    doubted = replace(MEASURED, doubts=("a", "b", "c", "d"), left_out=("copies of 64 B",))
    assert read_calibration(stored(tmp_path, doubts=doubted.doubts, left_out=doubted.left_out)) == doubted
    assert doubts_in_short(doubted) == [
        "a", "b", "c", "1 more measurements scatter; the file names them", "measure again on a quiet machine",
        "no time was left for copies of 64 B; --budget gives more",
    ]  # fmt: skip
    assert doubts_in_short(MEASURED) == []
