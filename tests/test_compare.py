"""Test comparisons: exact, antisymmetric, zero against itself; planted changes in their line; refusals; gates."""

import json
from collections.abc import Callable, Iterable
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
from lazy_report import report_on
from msgspec.structs import replace
from simulator import Kernel, Simulation, Stream, Tensor, Thread
from tiers import examples

from trace_analyzer import cli, errors
from trace_analyzer.compare.comparison import Comparison, Line
from trace_analyzer.compare.decomposition import compare
from trace_analyzer.compare.facts import TimeShare
from trace_analyzer.compare.gates import Gate, held, refusal
from trace_analyzer.compare.judgement import kept_promises
from trace_analyzer.compare.profiles import Profile, profile_of
from trace_analyzer.compare.sides import baseline_json, in_parts, profile_from
from trace_analyzer.report import Report

UNHURRIED = settings(max_examples=examples(4), suppress_health_check=list(HealthCheck))
BASE = Program()
HOST_BOUND = Program(mm_ns=4_000, norm_ns=4_000, add_ns=4_000, host_ns=60_000)
LOADING = HOST_BOUND.faster(loading_ns=3_000_000)


@cache
def report(program: Program) -> Report:
    return report_on(program.trace())


def compared(before: Program, after: Program) -> Comparison:
    return compare(report(before), report(after))


def split(
    before_ns: int, after_ns: int, before_count: Fraction | int | None, after_count: Fraction | int | None
) -> tuple[Fraction, Fraction]:
    """Split a difference into (by count, by time), as rationals; arguments are all totals, or all per step."""
    change = Fraction(after_ns) - Fraction(before_ns)
    if before_count is None or after_count is None:
        return Fraction(0), change
    if not before_count or not after_count:
        return change, Fraction(0)
    means = Fraction(before_ns) / Fraction(before_count) + Fraction(after_ns) / Fraction(after_count)
    by_count = (Fraction(after_count) - Fraction(before_count)) * means / 2
    return by_count, change - by_count


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
    def by_name(lines: Iterable[Line], **mirrored: str) -> dict[tuple[object, ...], Line]:
        keys = ((line, (line.kind, line.level, line.phase, line.name, line.category)) for line in lines)
        return {tuple(mirrored.get(str(value), value) for value in key): line for line, key in keys}

    forward, backward = by_name(one.lines), by_name(other.lines, new="removed", removed="new")
    assert forward.keys() == backward.keys()
    for name, line in forward.items():
        mirrored = backward[name]
        assert (line.before_total_ns, line.after_total_ns) == (mirrored.after_total_ns, mirrored.before_total_ns)
        assert line.by_count_ns == pytest.approx(-mirrored.by_count_ns, abs=1e-3)
        assert line.by_time_ns == pytest.approx(-mirrored.by_time_ns, abs=1e-3)
    ways = [{(bar.name, bar.kind): bar.significant for bar in side.waterfall["bucket"]} for side in (one, other)]
    assert ways[0] == ways[1]


counts = st.one_of(st.none(), st.integers(0, 50))


def test_swapped_sides_have_the_same_real_lines() -> None:
    """A step of 13 ms against one of 3 ms: what is chance does not depend on which of them comes first."""
    slow, fast = report(BASE.faster(loading_ns=10_000_000)), report(BASE.faster(norm_ns=68_000))
    there, back = compare(slow, fast), compare(fast, slow)
    swap_flips_every_sign(there, back)
    assert there.interval_ns == pytest.approx([-end for end in reversed(back.interval_ns or ())])


@given(st.integers(0, 10**12), st.integers(0, 10**12), counts, counts)
def test_splitting_leaves_no_remainder_and_flips_with_the_sides(
    before: int, after: int, before_count: int | None, after_count: int | None
) -> None:
    parts = split(before, after, before_count, after_count)
    assert sum(parts) == after - before
    assert split(after, before, after_count, before_count) == tuple(-part for part in parts)
    assert split(before, before, before_count, before_count) == (0, 0)


def is_zero(result: Comparison) -> bool:
    lines = (line.difference_ns or line.by_count_ns or line.by_time_ns for line in result.lines)
    return result.difference_ns == 0 and not any(lines)


@pytest.mark.slow
@given(random_traces(), random_traces())
@UNHURRIED
def test_laws_on_random_traces(one: RandomTrace, other: RandomTrace) -> None:
    sides = [profile_of(report_on(trace.content)) for trace in (one, other)]
    for side in sides:
        assert side.rows.get_column("total_ns").sum() == side.total_ns
    result, swapped = compare(*sides), compare(*reversed(sides))
    assert result.status == swapped.status
    if result.status == "ok":
        sums_are_exact(result)
        swap_flips_every_sign(result, swapped)
    itself = compare(sides[0], sides[0])
    assert itself.status != "ok" or is_zero(itself)


# Planted changes


def launch(operator: str, kernel: str, ns: int) -> Callable[[Thread, Stream], None]:
    def extra(thread: Thread, stream: Stream) -> None:
        with thread.op(operator, (Tensor((32, 1024)),)):
            thread.launch(Kernel(kernel, ns, (432, 1, 1)), stream)

    return extra


ROLL = launch("aten::roll", "void at::native::roll_cuda_kernel<float>(float const*, float*, long)", 300_000)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "name", "planted_ns", "column"),
    [
        ({"mm_ns": 500_000}, "aten::mm", 400_000, "by_time_ns"),
        ({"adds": 3}, "aten::add", 400_000, "by_count_ns"),
        ({"extra": ROLL}, "aten::roll", 300_000, "by_count_ns"),
        ({"norm_ns": 100_000}, "aten::native_layer_norm", 160_000, "by_time_ns"),
    ],
)
def test_a_planted_change_is_in_its_line(changes: dict[str, object], name: str, planted_ns: int, column: str) -> None:
    program = BASE.faster(**changes)
    result = compared(BASE, program)
    sums_are_exact(result)
    assert result.same_program
    for line, ns in ((result.lines[0], planted_ns), (compared(program, BASE).lines[0], -planted_ns)):
        assert (line.name, getattr(line, column)) == (name, pytest.approx(ns, rel=0.05))


@pytest.mark.slow
def test_planted_data_loading() -> None:
    """Check that the loader's time at a step's end is idle time of its cause, except while the device works."""
    result = compared(HOST_BOUND, HOST_BOUND.faster(loading_ns=2_000_000))
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
def on_two_devices(second_ns: int, first_ns: int = 400_000) -> bytes:
    """Return a trace with two devices, the second with products of another length."""
    simulation = Simulation(devices=2)
    thread, streams = simulation.thread(), (simulation.stream(0), simulation.stream(1))
    for number in range(5):
        with thread.step(number):
            for stream, ns in zip(streams, (first_ns, second_ns), strict=True):
                with thread.op("aten::mm", (Tensor((32, 1024)), Tensor((1024, 1024)))):
                    thread.launch(Kernel(GEMM, ns, (432, 1, 1)), stream)
            for stream in streams:
                thread.synchronize(stream)
    return simulation.json().encode()


@pytest.mark.slow
def test_several_devices_in_one_trace() -> None:
    before, after, longer = (report_on(on_two_devices(ns)) for ns in (300_000, 390_000, 600_000))
    result = compare(before, after)
    assert [(item.device, item.is_compared) for item in result.devices] == [("0", True), ("1", False)]
    other = result.devices[1]
    assert other.before_ns is not None
    assert other.after_idle_ns - other.before_idle_ns == pytest.approx(-90_000, rel=0.2)
    assert any(note.startswith("Device 0 is compared, of 2") for note in result.notes)
    moved = compare(before, longer)
    assert any("Device 0 of before is compared with device 1 of after" in note for note in moved.notes)
    assert not compared(BASE, BASE).devices
    kept = profile_from(json.loads(baseline_json(profile_of(before))))
    assert compare(kept, after).devices == result.devices


@pytest.mark.slow
def test_the_same_device_of_both_sides_is_compared(tmp_path: Path) -> None:
    """Device 1 works longer in AFTER, device 0 in BEFORE: the verdicts are of different ones."""
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    before.write_bytes(on_two_devices(500_000, 900_000))
    after.write_bytes(on_two_devices(500_000, 400_000))
    assert [side.facts.device for side in compare(before, after).sides] == ["0", "0"]


@pytest.mark.slow
def test_several_recordings_are_units() -> None:
    def side(seed: int, **changes: object) -> list[Report]:
        return [report(BASE.faster(steps=4, scatter=0.02, seed=seed + n, **changes)) for n in range(4)]

    result = compare(side(0), side(10))
    assert result.are_recordings_units
    assert (result.before.recordings, result.before.steps) == (4, 12)
    actual = compare(side(0), side(50, mm_ns=480_000))
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


CPU_ONLY = SAMPLES / "cpu_mlp.json.gz"


@pytest.mark.slow
def test_refusals() -> None:
    one = profile_of(report(BASE))
    withheld = replace(one, facts=replace(one.facts, withheld="corrupt durations"))
    unlike, bare = report(BASE.faster(layers=3, adds=2, steps=5)), profile_of(report(BASE.faster(marked=False)))
    simulation = Simulation(seed=1)
    thread, stream = simulation.thread(), simulation.stream()
    for _ in range(3):
        launch("aten::unheard_of", "another_kernel", 100_000)(thread, stream)
    thread.synchronize(stream)
    for before, after, reason in (
        (CPU_ONLY, one, "no device work"),
        (withheld, one, "corrupt durations"),
        (bare, unlike, "has no steps"),
        (report_on(simulation.json().encode()), bare, "share neither a call nor a kernel"),
    ):
        result = compare(before, after)
        assert result.status == "refused"
        assert reason in str(result.reason)
    cold = compare(replace(one, facts=replace(one.facts, cold=True)), one)
    assert "One-time work is most of before: a cold start." in cold.notes
    assert "cold start" in str(refusal(cold))


@pytest.mark.slow
def test_gates() -> None:
    slower = compared(BASE, BASE.faster(mm_ns=430_000))
    by_line = [Gate("mm", 0.05, "aten::mm"), Gate("add", 0.01, "aten::add")]
    gates = [Gate("--fail-if-slower 5%", 0.05), Gate("10 %", 0.10), *by_line]
    assert [actual.broke for actual in held(slower, gates)] == [True, False, True, False]
    assert not any(actual.broke for actual in held(compared(BASE, BASE), gates))
    idle = compared(BASE, BASE.faster(loading_ns=3_000_000))
    assert held(idle, [Gate("idle", 0.05, is_idle=True)])[0].broke
    assert refusal(slower, [*gates, Gate("x", 0.1, "data-loading")]) is None
    for result, more, reason in (
        (slower, [Gate("x", 0.1, "nonesuch")], "no line is called 'nonesuch'"),
        (compare(sample_report("synthetic_compute.json.gz"), report(BASE)), [], "not known to be the same program"),
        (compared(BASE.faster(steps=2), BASE), [], "gates need 3 steps of each side, and one has 2 steps"),
    ):
        assert reason in str(refusal(result, [*gates, *more]))


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


PROGRAMS = {"base": BASE, "slower": BASE.faster(mm_ns=500_000), "short": BASE.faster(steps=2)}


@pytest.fixture
def traces(tmp_path: Path) -> dict[str, Path]:
    for name, program in PROGRAMS.items():
        (tmp_path / f"{name}.json").write_bytes(program.trace())
    return {name: tmp_path / f"{name}.json" for name in PROGRAMS}


@pytest.mark.slow
def test_exit_codes(tmp_path: Path) -> None:
    base, slower, short = (tmp_path / f"{name}.json" for name in PROGRAMS)
    for path, program in zip((base, slower, short), PROGRAMS.values(), strict=True):
        path.write_text(baseline_json(profile_of(report(program))))
    for sides, gate, ends, says in (
        ((base, slower), "30%", 0, ""),
        ((base, slower), "5%", 1, "gate broke"),
        ((base, short), "5%", 2, "gates need 3 steps"),
        ((base, "nowhere/*.json"), "5%", 2, "nowhere"),
        ((base, slower), "soon", 2, "soon"),
        ((base, slower), "aten::nm=5%", 2, "'aten::nm'; near it: aten::mm"),
    ):
        code, _, err = run("compare", *sides, "--fail-if-slower", gate)
        assert (code, says in err) == (ends, True), err
    code, out, err = run("compare", CPU_ONLY, base, "--format", "json")
    assert (code, json.loads(out)["status"], "not compared" in err) == (2, "refused", True)


@pytest.mark.slow
def test_baselines(traces: dict[str, Path], tmp_path: Path) -> None:
    kept, base, slower = tmp_path / "baseline.json", traces["base"], traces["slower"]
    assert run("baseline", "save", base, kept)[0] == 0
    assert kept.stat().st_size < 64_000
    assert run("baseline", "check", base, kept)[0] == 0
    assert run("baseline", "check", slower, kept)[0] == 1
    assert run("baseline", "check", slower, kept, "--fail-if-slower", "50%")[0] == 0
    direct, from_file = (compare(side, slower) for side in (base, kept))
    assert (from_file.lines, from_file.interval_ns) == (direct.lines, direct.interval_ns)
    document = json.loads(kept.read_text())
    document["frames"]["rows"]["total_ns"][0] += 1
    kept.write_text(json.dumps(document))
    code, _, err = run("baseline", "check", base, kept)
    assert (code, "damaged" in err) == (2, True)
    assert run("baseline", "save", CPU_ONLY, tmp_path / "none.json")[0] == 2
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
    scrolls = page.count('class="scroll" tabindex="0"')
    assert scrolls == page.count('class="scroll"') > 1, "what scrolls is reached by the keyboard"
    for title in (
        "Timelines", "By cause and bucket", "By operator", "By module", "Differential flame graph", "Lines by operator and cause",
    ):  # fmt: skip
        assert f">{title}</h2>" in page
    assert name not in page
    assert "prefers-color-scheme" in page
    (tmp_path / "kept.json").write_text(baseline_json(profile_of(report(BASE))))
    kept = compare(tmp_path / "kept.json", report(BASE)).to_html(tmp_path / "other.html").read_text()
    assert ">Timelines</h2>" not in kept


@pytest.mark.slow
def test_promises() -> None:
    result = compared(LOADING, HOST_BOUND)
    kept = {item.id: item for item in result.promises}["data-loading"]
    assert kept.came_ns <= kept.promised_ns_at_most * 1.01
    assert kept.bound_held
    assert kept.came_ns == pytest.approx(-(result.difference_ns or 0), rel=0.1)
    assert not compared(LOADING, LOADING).promises
    assert kept.predicted_interval_ns is not None
    low, high = kept.predicted_interval_ns
    assert low <= kept.predicted_ns <= high
    before, after = result.sides
    nothing = tuple(replace(promise, saves_ns_at_most=0.0) for promise in before.facts.advice)
    assert not kept_promises(replace(before, facts=replace(before.facts, advice=nothing)), after, result.matches)
    assert kept.prediction_held == (low <= kept.step_ns <= high)
    assert "), which held" in result.summary(400)
    over = replace(kept, promised_ns_at_most=min(kept.came_ns, kept.step_ns) - 1)
    assert ", as much as the bound; " in replace(result, promises=(over,)).summary(400)


def test_predictions_outlive_saving(tmp_path: Path) -> None:
    """Check that a saved report and a baseline keep what a replay predicted."""
    own = profile_of(report(LOADING))
    (tmp_path / "report.json").write_text(report(LOADING).to_json())
    (tmp_path / "baseline.json").write_text(baseline_json(own))
    predicted = [item.predicted_interval for item in own.facts.advice]
    assert any(predicted)
    for name in ("report.json", "baseline.json"):
        kept = compare(tmp_path / name, own).sides[0].facts.advice
        assert [item.predicted_interval for item in kept] == predicted


def test_profiles_keep_owned_time() -> None:
    side = profile_of(report(BASE))
    assert side.steps == 5
    assert side.units.get_column("total_ns").sum() == side.total_ns
    assert side.rows.filter(pl.col("kind") == "kernel").get_column("count").sum() == 5 * 4 * 3


@pytest.mark.slow
def test_whole_recordings_are_compared_where_steps_do_not_correspond(tmp_path: Path) -> None:
    """One side marks its steps, the other does other calls and marks none: both are read again as a whole."""
    paths = tmp_path / "before.json", tmp_path / "after.json"
    for path, program in zip(paths, (BASE, BASE.faster(marked=False, layers=3, adds=2, steps=5)), strict=True):
        path.write_bytes(program.trace())
    result = compare(*paths)
    assert (result.status, result.whole, [side.steps for side in result.both]) == ("ok", True, [1, 1])
    assert result.headline.startswith("Whole recordings, ")
    assert "if both did the same work" in result.headline
    assert "a step" not in result.summary()
    assert any(note.startswith("How alike their work is: ") for note in result.notes)
    sums_are_exact(result)
    asked = compare(paths[0], paths[0], whole=True)
    assert asked.whole
    assert any("operators equally often, as many FLOP" in note for note in asked.notes)
    start, end = report(BASE).verdict.window.intervals[0]
    assert asked.both[0].total_ns >= end - start
    units = compare(*paths, units=(6, 5))
    assert [side.steps for side in units.both] == [6, 5]
    assert "a unit of work" in units.headline
    assert "Units" in units.summary()
    assert "--units" not in units.summary(), "they are given"
    assert [run("compare", *paths, "--units", words)[0] for words in ("6,5", "6")] == [0, 2]


def test_what_changed_comes_first_and_hardware_only_where_devices_differ() -> None:
    one = profile_of(report(BASE))

    def with_shares(**shares: float) -> Profile:
        named = tuple(TimeShare(name, ratio) for name, ratio in shares.items())
        return replace(one, facts=replace(one.facts, shares=named))

    eager = with_shares(fp32=0.9, compiled=0.0, flop=1.0)
    new = with_shares(bf16=0.7, fp32=0.2, compiled=0.5, flop=0.11)
    few = compare(eager, with_shares(fp64=0.001, compiled=0.5, flop=0.11))
    assert few.notes[0] == "Changed: compiled kernels 0 % → 50 % of kernel time.", "the type of most time is not known"
    result = compare(eager, new)
    assert result.notes[0] == (
        "Changed: fp32 (90 % of kernel time) became bf16 (70 %); compiled kernels 0 % → 50 % of kernel time."
    )
    # With a fused optimizer in fp32, 16-bit matmuls take less time than it: the type is theirs.
    mixed = with_shares(**{"bf16": 0.3, "fp32": 0.7, "matmul bf16": 0.9, "compiled": 0.0, "flop": 1.0})
    whole = with_shares(**{"fp32": 1.0, "matmul fp32": 1.0, "compiled": 0.0, "flop": 1.0})
    assert compare(whole, mixed).notes[0] == (
        "Changed: fp32 (100 % of the time of matmuls, convolutions and attention) became bf16 (90 %)."
    )
    assert "Changed:" not in compare(mixed, mixed).summary()
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
