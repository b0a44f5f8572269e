"""Test comparisons: exact, antisymmetric, zero against itself; planted changes in their line; refusals; gates."""

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner
from compare_sides import GEMM, Program
from conftest import SAMPLES, sample_report
from generator import RandomTrace, random_traces
from hypothesis import HealthCheck, given, settings, strategies as st
from simulator import Kernel, Simulation, Stream, Tensor, Thread
from tiers import examples

from trace_analyzer import cli, errors, pipeline
from trace_analyzer.compare.comparison import Comparison
from trace_analyzer.compare.decomposition import compare, split
from trace_analyzer.compare.facts import TimeShare
from trace_analyzer.compare.gates import Gate, held, refusal
from trace_analyzer.compare.judgement import kept_promises
from trace_analyzer.compare.profiles import Profile, profile_of
from trace_analyzer.compare.sides import baseline_json, in_parts, profile_from
from trace_analyzer.report import Report

UNHURRIED = settings(max_examples=examples(4), suppress_health_check=list(HealthCheck))
BASE = Program()


@cache
def report(program: Program) -> Report:
    return pipeline.analyze(program.trace())


def compared(before: Program, after: Program) -> Comparison:
    return compare(report(before), report(after))


def sums_are_exact(result: Comparison) -> None:
    """Check that lines, matches and waterfalls sum to the difference as rationals, and counts never lose time."""
    assert sum(line.before_total_ns for line in result.lines) == result.before.total_ns
    assert sum(line.after_total_ns for line in result.lines) == result.after.total_ns
    whole = Fraction(result.after.total_ns, result.after.steps) - Fraction(result.before.total_ns, result.before.steps)
    parts = [
        split(
            Fraction(row["before_total_ns"], result.before.steps),
            Fraction(row["after_total_ns"], result.after.steps),
            None if row["before_count"] is None else Fraction(row["before_count"], result.before.steps),
            None if row["after_count"] is None else Fraction(row["after_count"], result.after.steps),
        )
        for row in result.matches.iter_rows(named=True)
    ]
    assert sum(by_count + by_time for by_count, by_time in parts) == whole
    for (by_count, by_time), row in zip(parts, result.matches.iter_rows(named=True), strict=True):
        assert row["by_count_ns"] == pytest.approx(float(by_count), rel=1e-9, abs=1e-3)
        assert row["by_time_ns"] == pytest.approx(float(by_time), rel=1e-9, abs=1e-3)
    for bars in result.waterfall.values():
        assert sum(bar.difference_ns for bar in bars) == pytest.approx(float(whole), rel=1e-9, abs=1e-2)


def swap_flips_every_sign(one: Comparison, other: Comparison) -> None:
    def key(line: object) -> tuple[object, ...]:
        return tuple(
            {"new": "removed", "removed": "new"}.get(str(value), value)
            for value in (line.kind, line.level, line.phase, line.name, line.category)  # type: ignore[attr-defined]
        )

    forward = {key(line): line for line in one.lines}
    backward = {
        tuple({"new": "removed", "removed": "new"}.get(str(v), v) for v in key(line)): line for line in other.lines
    }
    assert forward.keys() == backward.keys()
    for name, line in forward.items():
        mirrored = backward[name]
        assert (line.before_total_ns, line.after_total_ns) == (mirrored.after_total_ns, mirrored.before_total_ns)
        assert line.by_count_ns == pytest.approx(-mirrored.by_count_ns, abs=1e-3)
        assert line.by_time_ns == pytest.approx(-mirrored.by_time_ns, abs=1e-3)


counts = st.one_of(st.none(), st.integers(0, 50))


@given(st.integers(0, 10**12), st.integers(0, 10**12), counts, counts)
def test_splitting_leaves_no_remainder_and_flips_with_the_sides(
    before: int, after: int, before_count: int | None, after_count: int | None
) -> None:
    parts = split(before, after, before_count, after_count)
    assert sum(parts) == after - before
    assert split(after, before, after_count, before_count) == tuple(-part for part in parts)
    assert split(before, before, before_count, before_count) == (0, 0)


@pytest.mark.slow
@given(random_traces(), random_traces())
@UNHURRIED
def test_laws_on_random_traces(one: RandomTrace, other: RandomTrace) -> None:
    sides = [profile_of(pipeline.analyze(trace.content)) for trace in (one, other)]
    for side in sides:
        assert side.rows.get_column("total_ns").sum() == side.total_ns
    result, swapped = compare(*sides), compare(*reversed(sides))
    assert result.status == swapped.status
    if result.status == "ok":
        sums_are_exact(result)
        swap_flips_every_sign(result, swapped)
    itself = compare(sides[0], sides[0])
    if itself.status == "ok":
        assert itself.difference_ns == 0
        assert all(line.difference_ns == line.by_count_ns == line.by_time_ns == 0 for line in itself.lines)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["communication_collectives", "memory-bandwidth_cuda-graph", "overhead_data-loading"])
def test_a_sample_against_itself_and_the_others(name: str) -> None:
    own, compute = sample_report(f"synthetic_{name}.json.gz"), sample_report("synthetic_compute.json.gz")
    itself = compare(own, own)
    sums_are_exact(itself)
    assert itself.same_work
    assert itself.difference_ns == 0
    assert not any(line.difference_ns for line in itself.lines)
    result, swapped = compare(own, compute), compare(compute, own)
    sums_are_exact(result)
    swap_flips_every_sign(result, swapped)


# Planted changes


def launch(operator: str, kernel: str, ns: int) -> Callable[[Thread, Stream], None]:
    def extra(thread: Thread, stream: Stream) -> None:
        with thread.op(operator, (Tensor((32, 1024)),)):
            thread.launch(Kernel(kernel, ns, (432, 1, 1)), stream)

    return extra


ROLL = launch("aten::roll", "void at::native::roll_cuda_kernel<float>(float const*, float*, long)", 300_000)
PLANTED = {
    "slower products": (BASE.faster(mm_ns=500_000), "aten::mm", 400_000, "by_time_ns"),
    "more additions": (BASE.faster(adds=3), "aten::add", 400_000, "by_count_ns"),
    "another operator": (BASE.faster(extra=ROLL), "aten::roll", 300_000, "by_count_ns"),
    "a slower normalization": (BASE.faster(norm_ns=100_000), "aten::native_layer_norm", 160_000, "by_time_ns"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_change_is_in_its_line(name: str) -> None:
    program, line_name, planted_ns, column = PLANTED[name]
    result = compared(BASE, program)
    sums_are_exact(result)
    line = result.lines[0]
    assert line.name == line_name
    assert getattr(line, column) == pytest.approx(planted_ns, rel=0.05)
    assert result.same_program
    removed = compared(program, BASE).lines[0]
    assert (removed.name, getattr(removed, column)) == (line_name, pytest.approx(-planted_ns, rel=0.05))


@pytest.mark.slow
def test_planted_data_loading() -> None:
    """Check that the loader's time at a step's end is idle time of its cause, except while the device works."""
    host_bound = BASE.faster(mm_ns=4_000, norm_ns=4_000, add_ns=4_000, host_ns=60_000)
    result = compared(host_bound, host_bound.faster(loading_ns=2_000_000))
    line = result.lines[0]
    assert (line.kind, line.name) == ("idle", "data-loading")
    assert line.difference_ns == pytest.approx(result.difference_ns, rel=0.05)


@pytest.mark.slow
def test_inputs_that_changed() -> None:
    result = compared(BASE, BASE.faster(batch=64, mm_ns=800_000))
    assert (result.same_work, result.same_program) == (False, True)
    assert (result.input_changes[0].before, result.input_changes[0].after) == (32, 64)
    assert result.likeness.flop_ratio == pytest.approx(2.0)


def test_units_of_work() -> None:
    """Check that the other's calls cut a recording without steps, and that each is one where neither has steps."""
    result = compared(BASE, BASE.faster(marked=False))
    assert result.unit_of_work == BASE.steps
    assert result.after.steps == BASE.steps
    assert result.after.step_ns * result.after.steps == result.after.total_ns
    assert compared(BASE.faster(marked=False), BASE).unit_of_work == -BASE.steps
    assert "units of work" in " ".join(result.notes)


@cache
def on_two_devices(second_ns: int, first_ns: int = 400_000) -> Report:
    """Analyse a trace with two devices, the second with products of another length."""
    simulation = Simulation(devices=2)
    thread, streams = simulation.thread(), (simulation.stream(0), simulation.stream(1))
    for number in range(5):
        with thread.step(number):
            for stream, ns in zip(streams, (first_ns, second_ns), strict=True):
                with thread.op("aten::mm", (Tensor((32, 1024)), Tensor((1024, 1024)))):
                    thread.launch(Kernel(GEMM, ns, (432, 1, 1)), stream)
            for stream in streams:
                thread.synchronize(stream)
    return pipeline.analyze(simulation.json().encode())


@pytest.mark.slow
def test_several_devices_in_one_trace() -> None:
    result = compare(on_two_devices(300_000), on_two_devices(390_000))
    assert [(item.device, item.is_compared) for item in result.devices] == [("0", True), ("1", False)]
    other = result.devices[1]
    assert other.before_ns is not None
    assert other.after_idle_ns - other.before_idle_ns == pytest.approx(-90_000, rel=0.2)
    assert any(note.startswith("Device 0 is compared, of 2") for note in result.notes)
    moved = compare(on_two_devices(300_000), on_two_devices(600_000))
    assert any("Device 0 of before is compared with device 1 of after" in note for note in moved.notes)
    assert not compared(BASE, BASE).devices
    kept = profile_from(json.loads(baseline_json(profile_of(on_two_devices(300_000)))))
    assert compare(kept, on_two_devices(390_000)).devices == result.devices


@pytest.mark.slow
def test_several_recordings_are_units() -> None:
    noisy = [[report(BASE.faster(steps=4, scatter=0.02, seed=10 * side + n)) for n in range(4)] for side in range(2)]
    result = compare(*noisy)
    assert result.are_recordings_units
    assert (result.before.recordings, result.before.steps) == (4, 12)
    slower = [report(BASE.faster(steps=4, scatter=0.02, seed=50 + n, mm_ns=480_000)) for n in range(4)]
    actual = compare(noisy[0], slower)
    assert actual.significant
    assert "recordings differ" not in " ".join(actual.notes)
    sums_are_exact(actual)


@pytest.mark.slow
def test_steps_of_one_recording_say_that_recordings_differ() -> None:
    result = compared(BASE, BASE.faster(mm_ns=500_000))
    assert result.significant
    assert "The recordings differ" in result.notes[0]
    single = compare(*(profile_of(report(BASE.faster(steps=2, seed=n))) for n in range(2)))
    assert single.significant is None
    assert single.interval_ns is None


# Refusals and gates


def cpu_only() -> Path:
    return SAMPLES / "cpu_mlp.json.gz"


@pytest.mark.slow
def test_refusals() -> None:
    result = compare(cpu_only(), report(BASE))
    assert result.status == "refused"
    assert "no device work" in str(result.reason)
    one = profile_of(report(BASE))
    withheld = replace(one, facts=replace(one.facts, withheld="corrupt durations"))
    assert "corrupt durations" in str(compare(withheld, one).reason)
    cold = replace(one, facts=replace(one.facts, cold=True))
    assert "One-time work is most of before: a cold start." in compare(cold, one).notes
    assert "cold start" in str(refusal(compare(cold, one)))
    unlike = report(BASE.faster(layers=3, adds=2, steps=5))
    bare = profile_of(report(BASE.faster(marked=False)))
    assert "has no steps" in str(compare(bare, unlike).reason)


@pytest.mark.slow
def test_gates() -> None:
    slower = compared(BASE, BASE.faster(mm_ns=430_000))
    by_line = [Gate("mm", 0.05, "aten::mm"), Gate("add", 0.01, "aten::add")]
    gates = [Gate("--fail-if-slower 5%", 0.05), Gate("10 %", 0.10), *by_line]
    assert [actual.broke for actual in held(slower, gates)] == [True, False, True, False]
    assert not any(actual.broke for actual in held(compared(BASE, BASE), gates))
    assert "no line is called 'nonesuch'" in str(refusal(slower, [*gates, Gate("x", 0.1, "nonesuch")]))
    assert refusal(slower, [*gates, Gate("x", 0.1, "data-loading")]) is None
    idle = compared(BASE, BASE.faster(loading_ns=3_000_000))
    assert held(idle, [Gate("idle", 0.05, is_idle=True)])[0].broke
    assert "not known to be the same program" in str(
        refusal(compare(sample_report("synthetic_compute.json.gz"), report(BASE)))
    )
    assert "gates need 3 steps of each side, and one has 2 steps" in str(
        refusal(compared(BASE.faster(steps=2), BASE), gates)
    )


@pytest.mark.slow
def test_gates_do_not_break_by_chance() -> None:
    noisy = compared(BASE.faster(scatter=0.3, seed=1), BASE.faster(scatter=0.3, seed=4))
    (actual,) = held(noisy, [Gate("--fail-if-slower 1%", 0.0001)])
    assert not actual.broke
    assert noisy.significant is False


# Stored data


def test_a_saved_report_compares_by_parts(tmp_path: Path) -> None:
    path = tmp_path / "before.json"
    path.write_text(report(BASE).to_json())
    result = compare(path, report(BASE.faster(mm_ns=500_000)))
    assert (result.same_work, result.same_program) == (None, None)
    assert result.difference_ns == pytest.approx(400_000, rel=0.05)
    sums_are_exact(result)
    assert "saved report" in str(refusal(result))
    parts = in_parts(profile_of(report(BASE)))
    assert parts.rows.get_column("total_ns").sum() == parts.total_ns
    itself = compare(path, report(BASE))
    assert itself.difference_ns == 0
    assert not any(line.difference_ns for line in itself.lines)


@pytest.mark.parametrize(
    "damage", ["{}", '{"tool_version": 1, "verdict": {}, "devices": []}', '{"baseline_version": 99}']
)
def test_damaged_files_are_bad_input(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "before.json"
    path.write_text(damage)
    with pytest.raises(errors.InputError):
        compare(path, report(BASE))


def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli.main, [str(argument) for argument in arguments])
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def traces(tmp_path: Path) -> dict[str, Path]:
    programs = {"base": BASE, "slower": BASE.faster(mm_ns=500_000), "short": BASE.faster(steps=2)}
    for name, program in programs.items():
        (tmp_path / f"{name}.json").write_bytes(program.trace())
    return {name: tmp_path / f"{name}.json" for name in programs}


@pytest.mark.slow
def test_exit_codes(traces: dict[str, Path]) -> None:
    assert run("compare", traces["base"], traces["slower"], "--fail-if-slower", "30%")[0] == 0
    code, _, err = run("compare", traces["base"], traces["slower"], "--fail-if-slower", "5%")
    assert (code, "gate broke" in err) == (1, True)
    assert run("compare", traces["base"], traces["short"], "--fail-if-slower", "5%")[0] == 2
    code, out, err = run("compare", cpu_only(), traces["base"], "--format", "json")
    assert (code, json.loads(out)["status"]) == (2, "refused")
    assert "not compared" in err
    assert run("compare", traces["base"], "nowhere/*.json")[0] == 2
    assert run("compare", traces["base"], traces["slower"], "--fail-if-slower", "soon")[0] == 2
    code, _, err = run("compare", traces["base"], traces["slower"], "--fail-if-slower", "aten::nm=5%")
    assert (code, "'aten::nm'; near it: aten::mm" in err) == (2, True)


@pytest.mark.slow
def test_baselines(traces: dict[str, Path], tmp_path: Path) -> None:
    kept = tmp_path / "baseline.json"
    assert run("baseline", "save", traces["base"], kept)[0] == 0
    assert kept.stat().st_size < 64_000
    assert run("baseline", "check", traces["base"], kept)[0] == 0
    assert run("baseline", "check", traces["slower"], kept)[0] == 1
    assert run("baseline", "check", traces["slower"], kept, "--fail-if-slower", "50%")[0] == 0
    direct, from_file = (compare(side, traces["slower"]) for side in (traces["base"], kept))
    assert from_file.lines == direct.lines
    assert from_file.interval_ns == direct.interval_ns
    document = json.loads(kept.read_text())
    document["frames"]["rows"]["total_ns"][0] += 1
    kept.write_text(json.dumps(document))
    code, _, err = run("baseline", "check", traces["base"], kept)
    assert (code, "damaged" in err) == (2, True)
    assert run("baseline", "save", cpu_only(), tmp_path / "none.json")[0] == 2
    assert not (tmp_path / "none.json").exists()


@pytest.mark.slow
def test_folders_and_patterns(traces: dict[str, Path], tmp_path: Path) -> None:
    result = compare(tmp_path / "s*.json", traces["base"])
    assert result.before.recordings == 2
    folder = tmp_path / "empty"
    folder.mkdir()
    with pytest.raises(errors.UsageError, match="no trace"):
        compare(folder, traces["base"])


@pytest.mark.slow
def test_the_page(tmp_path: Path) -> None:
    """Check that the page shows figures of all kinds, and that names stay text."""
    name = "</script><script>alert(1)</script>"
    result = compared(BASE, BASE.faster(extra=launch(name, f"void {name}()", 500_000)))
    page = result.to_html(tmp_path / "page.html").read_text()
    assert page.count('class="scroll" tabindex="0"') == page.count('class="scroll"') > 1, (
        "what scrolls is reached by the keyboard"
    )
    shown = (
        "By cause and bucket",
        "By operator",
        "By module",
        "Differential flame graph",
        "Lines by operator and cause",
    )
    for title in ("Timelines", *shown):
        assert f">{title}</h2>" in page
    assert name not in page
    assert "prefers-color-scheme" in page
    (tmp_path / "kept.json").write_text(baseline_json(profile_of(report(BASE))))
    kept = compare(tmp_path / "kept.json", report(BASE)).to_html(tmp_path / "other.html").read_text()
    assert ">Timelines</h2>" not in kept


@pytest.mark.slow
def test_promises() -> None:
    host_bound = Program(mm_ns=4_000, norm_ns=4_000, add_ns=4_000, host_ns=60_000, loading_ns=3_000_000)
    result = compared(host_bound, host_bound.faster(loading_ns=0))
    kept = {item.id: item for item in result.promises}["data-loading"]
    assert kept.came_ns <= kept.promised_ns_at_most * 1.01
    assert kept.bound_held
    assert kept.came_ns == pytest.approx(-(result.difference_ns or 0), rel=0.1)
    assert not compared(host_bound, host_bound).promises
    assert kept.predicted_interval_ns is not None
    low, high = kept.predicted_interval_ns
    assert low <= kept.predicted_ns <= high
    before, after = result.sides
    nothing = tuple(replace(promise, saves_ns_at_most=0.0) for promise in before.facts.advice)
    assert not kept_promises(replace(before, facts=replace(before.facts, advice=nothing)), after, result.matches)
    assert kept.prediction_held == (low <= kept.step_ns <= high)
    assert ") held" in result.summary(400)


def test_predictions_outlive_saving(tmp_path: Path) -> None:
    """Check that a saved report and a baseline keep what a replay predicted."""
    host_bound = Program(mm_ns=4_000, norm_ns=4_000, add_ns=4_000, host_ns=60_000, loading_ns=3_000_000)
    own = profile_of(report(host_bound)).facts.advice
    (tmp_path / "report.json").write_text(report(host_bound).to_json())
    (tmp_path / "baseline.json").write_text(baseline_json(profile_of(report(host_bound))))
    assert any(item.predicted_ratio is not None for item in own)
    for name in ("report.json", "baseline.json"):
        kept = compare(tmp_path / name, report(host_bound)).sides[0].facts.advice
        assert [item.predicted_interval for item in kept] == [item.predicted_interval for item in own]


def test_profiles_keep_owned_time(tmp_path: Path) -> None:
    side: Profile = profile_of(report(BASE))
    assert side.steps == 5
    assert side.units.get_column("total_ns").sum() == side.total_ns
    assert side.rows.filter(pl.col("kind") == "kernel").get_column("count").sum() == 5 * 4 * 3


@pytest.mark.slow
def test_whole_recordings_are_compared_where_steps_do_not_correspond(tmp_path: Path) -> None:
    """One side marks its steps, the other does other calls and marks none: both are read again as a whole."""
    paths = []
    for name, program in (("before", BASE), ("after", BASE.faster(marked=False, layers=3, adds=2, steps=5))):
        paths.append(tmp_path / f"{name}.json")
        paths[-1].write_bytes(program.trace())
    result = compare(*paths)
    assert result.status == "ok"
    assert result.whole
    assert [side.steps for side in result.both] == [1, 1]
    assert result.headline.startswith("Whole recordings, ")
    assert "if both did the same work" in result.headline
    assert "a step" not in result.summary()
    assert any(note.startswith("Evidence of the same work: ") for note in result.notes)
    sums_are_exact(result)
    asked = compare(paths[0], paths[0], whole=True)
    assert asked.whole
    assert any("operators equally often, as many FLOP" in note for note in asked.notes)
    assert (
        asked.both[0].total_ns
        >= report(BASE).verdict.window.intervals[0][1] - report(BASE).verdict.window.intervals[0][0]
    )  # type: ignore[union-attr]
    units = compare(*paths, units=(6, 5))
    assert [side.steps for side in units.both] == [6, 5]
    assert "a unit of work" in units.headline
    assert "Units" in units.summary()
    assert "--units" not in units.summary(), "they are given"
    ran = CliRunner().invoke(cli.main, ["compare", *map(str, paths), "--units", "6,5"])
    assert ran.exit_code == 0
    assert CliRunner().invoke(cli.main, ["compare", *map(str, paths), "--units", "6"]).exit_code == 2


def test_recordings_that_share_nothing_are_refused() -> None:
    simulation = Simulation(seed=1)
    thread, stream = simulation.thread(), simulation.stream()
    for _ in range(3):
        with thread.op("aten::unheard_of", (Tensor((4,)),)):
            thread.launch(Kernel("another_kernel", 100_000, (432, 1, 1)), stream)
    thread.synchronize(stream)
    result = compare(pipeline.analyze(simulation.json().encode()), report(BASE.faster(marked=False)))
    assert result.status == "refused"
    assert "share neither a call nor a kernel" in str(result.reason)


def test_what_changed_comes_first_and_hardware_only_where_devices_differ() -> None:
    one = profile_of(report(BASE))

    def with_shares(**shares: float) -> Profile:
        named = tuple(TimeShare(name, ratio) for name, ratio in shares.items())
        return replace(one, facts=replace(one.facts, shares=named))

    eager = with_shares(fp32=0.9, compiled=0.0, flop=1.0)
    new = with_shares(bf16=0.7, fp32=0.2, compiled=0.5, flop=0.11)
    result = compare(eager, new)
    assert result.notes[0] == (
        "Changed: fp32 (90 % of kernel time) became bf16 (70 %); compiled kernels 0 % → 50 % of kernel time."
    )
    newer = replace(new, facts=replace(new.facts, versions={"PyTorch": "2.8.0", "NCCL": "2.27.5"}))
    older = replace(eager, facts=replace(eager.facts, versions={"CUDA": "12.6", "PyTorch": "2.7.1", "NCCL": "2.27.5"}))
    assert compare(older, newer).notes[0].startswith("Changed: PyTorch 2.7.1 → 2.8.0; fp32 (90 %")
    assert result.likeness.flop_ratio is None
    assert compare(eager, eager).likeness.flop_ratio == 1
    assert all(line.by_hardware_ns is None for line in result.lines)


@pytest.mark.slow
def test_few_scattered_steps_say_what_they_can() -> None:
    result = compared(BASE.faster(steps=5, scatter=0.03, seed=1), BASE.faster(steps=5, scatter=0.03, seed=2))
    assert result.interval_ns is not None
    assert result.interval_ns[1] - result.interval_ns[0] < result.before.step_ns
    assert not result.significant
    assert any("a side would show this one" in note for note in result.notes)


@pytest.mark.slow
def test_the_same_device_of_both_sides_is_compared(tmp_path: Path) -> None:
    """Device 1 works longer in AFTER, device 0 in BEFORE: the verdicts are of different ones."""
    paths = []
    for name, times in (("before", (900_000, 500_000)), ("after", (400_000, 500_000))):
        simulation = Simulation(seed=1, devices=2)
        thread = simulation.thread()
        streams = [simulation.stream(device=device) for device in range(2)]
        for step in range(5):
            with thread.step(step):
                for stream, ns in zip(streams, times, strict=True):
                    with thread.op("aten::mm", (Tensor((4, 4)), Tensor((4, 4)))):
                        thread.launch(Kernel(GEMM, ns, (432, 1, 1)), stream)
                for stream in streams:
                    thread.synchronize(stream)
        paths.append(tmp_path / f"{name}.json")
        paths[-1].write_bytes(simulation.json().encode())
    result = compare(*paths)
    assert [side.facts.device for side in result.sides] == ["0", "0"]
