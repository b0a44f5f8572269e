"""Test series of batches: the batch from shapes, exponents and lower bounds of a model, and real series."""

import json
import re
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner
from compare_sides import Program
from conftest import CORPUS, SAMPLES
from msgspec.structs import replace
from simulator import Stream, Thread

from trace_analyzer import cli, errors, pipeline, report
from trace_analyzer.compare import judgement, profiles
from trace_analyzer.compare.scaling import LEAST_FACTOR, _batches, scaling
from trace_analyzer.documents.comparison import scaling_chart

CASES, PAIRS = SAMPLES / "gpu_cases", CORPUS.parent / "pairs"
FIXED_NS, ITEM_NS = 5_000, 400


@cache
def at(batch: int, host_ns: int = 100_000) -> report.Report:
    """Analyse a program whose matmul takes this time per batch, on a host that needs this time per operator."""
    program = Program(batch=batch, mm_ns=FIXED_NS + ITEM_NS * batch, norm_ns=5_000, add_ns=5_000, host_ns=host_ns)
    return pipeline.analyze(program.trace())


def test_another_algorithm_is_another_kernel_of_the_same_call() -> None:
    """cuDNN runs a convolution of batch 64 with more kernels than one of batch 1, and the program stays the same."""
    result = scaling(*(CASES / f"resnet50_forward_fp32_b{batch}.json.gz" for batch in (1, 64)))
    assert (result.status, [point.batch for point in result.points]) == ("ok", [1, 64])


@pytest.mark.slow
def test_the_host_takes_no_longer_than_the_shortest_step() -> None:
    """Chance makes the step grow from batch 1 to 2 and shrink afterwards: batch 1 tells of the host all the same."""
    result = scaling(*(CASES / f"prefill_b{batch}.json.gz" for batch in (1, 2, 4, 8)))
    assert result.host_floor_ns == pytest.approx(min(point.step_ns for point in result.points), rel=0.03)
    assert all(item.work_ratio >= LEAST_FACTOR for item in result.operators), "exponents over less work are noise"


@pytest.mark.slow
def test_overhead_is_proven_and_the_flip_is_where_the_model_has_it() -> None:
    result = scaling(at(64), at(16), at(256))
    assert [point.batch for point in result.points] == [16, 64, 256]
    assert result.overhead_is_proven
    assert all(item.growth == "flat" for item in result.step)
    assert [point.levers for point in result.points] == [at(batch).verdict.levers for batch in (16, 64, 256)]
    assert result.host_floor_ns is not None
    assert result.device_line.per_item_ns == pytest.approx(4 * ITEM_NS, rel=0.02)
    measured = next(
        batch for batch in range(300, 2000, 60) if at(batch).steps[2].idle_ns < 0.15 * at(batch).steps[2].duration_ns
    )
    assert result.flip_batch == pytest.approx(measured, rel=0.15)
    assert result.is_upper_bound
    assert scaling_chart(result).x.ends[1] > result.flip_batch > 256, "the plot reaches to where the lines cross"
    (product,) = [item for item in result.operators if item.name == "aten::mm" and item.to_batch == 256]
    assert product.work == "FLOP"
    assert product.work_ratio == pytest.approx(4)


@pytest.mark.slow
@pytest.mark.skipif(not PAIRS.exists(), reason="the public pairs (beside $TRACE_CORPUS) are absent")
def test_a_device_that_flattens_takes_over_later_than_its_line_says() -> None:
    """An item takes 0.18 ms up to batch 64, then 0.16: the line crosses at 147, and steps are flat up to 150."""
    result = scaling(*(PAIRS / f"a100_forward_batch{batch}.json.gz" for batch in (16, 64, 128)))
    assert not result.is_upper_bound
    assert result.headline.endswith("the device takes over at batch 147 or so.")


@pytest.mark.slow
@pytest.mark.skipif(not PAIRS.exists(), reason="the public pairs (beside $TRACE_CORPUS) are absent")
def test_without_steps_no_sentence_speaks_of_one() -> None:
    for named, result in (
        ("window", scaling(*(PAIRS / f"a100_forward_batch{batch}.json.gz" for batch in (16, 64)))),
        ("step", scaling(at(16), at(64))),
    ):
        said = [result.summary(), *result.contradictions, *result.notes, str(scaling_chart(result))]
        other = {"window": "step", "step": "window"}[named]
        assert all(re.search(rf"\b{named}\b", text) for text in said[:1] + said[-1:]), "the table and the plot"
        assert not [text for text in said if re.search(rf"\b{other}s?\b", text, re.IGNORECASE)]


@pytest.mark.slow
def test_one_time_work_is_no_part_of_a_step() -> None:
    def allocates(thread: Thread, _: Stream) -> None:
        thread.malloc(500_000)

    program = Program(batch=64, mm_ns=FIXED_NS + ITEM_NS * 64, norm_ns=5_000, add_ns=5_000, host_ns=100_000)
    cold = scaling(at(16), pipeline.analyze(program.faster(extra=allocates).trace())).points[1]
    warm = scaling(at(16), at(64)).points[1]
    assert cold.step_ns == pytest.approx(warm.step_ns, rel=0.05)


@pytest.mark.slow
def test_work_that_takes_its_time_is_no_overhead() -> None:
    result = scaling(at(4096, 5_000), at(8192, 5_000))
    assert result.step[0].growth == "proportional"
    assert not result.overhead_is_proven
    assert result.host_floor_ns is None
    assert "grows with the work" in result.headline


@pytest.mark.slow
def test_what_is_refused() -> None:
    assert "do not differ" in str(scaling(at(16), at(16)).reason)
    other = next((Path(__file__).parents[1] / "sample_traces").glob("*communication_coll*"))
    assert scaling(at(16), other).status == "refused"
    with pytest.raises(errors.UsageError):
        scaling(at(16))


@pytest.mark.slow
def test_sizes_that_padding_changes_are_no_batches() -> None:
    padded = scaling(*(pipeline.analyze(Program(batch=size).trace()) for size in (48, 49)))
    assert padded.status == "refused"
    assert "from 48 to 49 only" in str(padded.reason)


@pytest.mark.slow
def test_the_command(tmp_path: Path) -> None:
    for batch in (16, 64):
        program = Program(batch=batch, mm_ns=FIXED_NS + ITEM_NS * batch, norm_ns=5_000, add_ns=5_000, host_ns=100_000)
        (tmp_path / f"{batch}.json").write_bytes(program.trace())
    traces = [str(tmp_path / "16.json"), str(tmp_path / "64.json")]
    run = CliRunner().invoke(cli.main, ["scaling", *traces, "--format", "json", "--plot", str(tmp_path / "plot.html")])
    assert run.exit_code == 0, run.stderr
    assert json.loads(run.stdout)["overhead_is_proven"] is True
    assert 'data-plot="times-0"' in (tmp_path / "plot.html").read_text()
    assert CliRunner().invoke(cli.main, ["scaling", traces[0]]).exit_code == 2
    refused = CliRunner().invoke(cli.main, ["scaling", traces[0], traces[0]])
    assert (refused.exit_code, refused.output.count("Not scaled")) == (2, 1)


@pytest.mark.slow
@pytest.mark.skipif(not PAIRS.exists(), reason="the recorded pairs are absent")
def test_a_real_series() -> None:
    files = ["batch2_again00", "batch16", "batch64", "batch128"]
    result = scaling(*(PAIRS / f"a100_forward_{name}.json.gz" for name in files))
    assert [point.batch for point in result.points] == [2, 16, 64, 128]
    assert result.overhead_is_proven
    assert result.host_floor_ns == pytest.approx(30e6, rel=0.05)
    assert 128 < result.flip_batch < 256
    assert not result.contradictions, "the verdicts name the host, as the series does"


@pytest.mark.slow
def test_a_batch_recorded_twice_with_other_padding_does_not_hide_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """More calls change by padding, and between two traces of one batch, than by the batch."""
    sides = [profiles.profile_of(at(batch)) for batch in (2, 128)]
    first, again = sides[0], replace(sides[0], path="again")
    padded = [judgement.InputChange(48, 49, 41)]
    changes = {id(again): padded, id(sides[1]): [judgement.InputChange(2, 128, 65), judgement.InputChange(48, 128, 25)]}
    monkeypatch.setattr(judgement, "input_changes", lambda before, after: changes[id(after)])
    assert _batches([first, again, sides[1]])[0] == [2, 2, 128]
    assert _batches([first, again])[0] == [48, 49]


def test_a_refused_series_names_the_traces() -> None:
    one = replace(profiles.profile_of(at(2)), path="one.json")
    cold = replace(one, path="cold.json", facts=replace(one.facts, cold=True))
    assert "all steps of cold.json are a cold start, and those of one.json are not" in str(scaling(one, cold).reason)
