"""Eager against graphs and compiled models: kernels take operators and modules from a capture."""

from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner
from compare_sides import ADD, Program
from kineto import analysed, call, kernel, op
from lazy_report import report_on
from msgspec.structs import replace

from trace_analyzer import cli
from trace_analyzer.compare import matching, profiles
from trace_analyzer.compare.decomposition import compare

CASES = Path(__file__).parent.parent / "sample_traces" / "gpu_cases"


@pytest.fixture
def traces(tmp_path: Path) -> tuple[Path, Path]:
    """Write the traces of an eager program and of one whose graphs run the same kernels, the products longer."""
    eager, graph = tmp_path / "eager.json", tmp_path / "graph.json"
    eager.write_bytes(Program().trace())
    graph.write_bytes(Program(graphed=True, mm_ns=500_000).trace())
    return eager, graph


def test_a_graph_runs_the_kernels_that_were_launched_one_by_one() -> None:
    """Without a capture, kernels are matched by name and grid: none is new, and fewer launches are no fewer kernels."""
    eager, graph = (CASES.joinpath(f"mlp_adam_{name}.json.gz") for name in ("eager", "graph"))
    result = compare(eager, graph)
    assert result.same_work
    matmul = next(line for line in result.lines if (line.name, line.category) == ("aten::mm", "matmul"))
    assert (matmul.level, matmul.before_count) == ("replay", matmul.after_count)
    assert "Changed: replayed kernels 0 % → 100 % of kernel time." in result.notes
    assert not any("record_shapes" in note for note in result.notes)
    assert [promise.id for promise in result.promises] == ["cuda-graphs"]
    assert "void " not in str(result)


def test_the_operator_around_the_launch_of_a_graph_is_not_that_of_its_kernels() -> None:
    """Their sequence ran in a graph whose launch was not recorded, thus without operators, too."""
    side = profiles.profile_of(report_on(CASES / "decode_compile_reduce_overhead.json.gz"))
    replayed = side.called_rows.filter(pl.col("kind") == "kernel", pl.col("phase") == "forward")
    assert "Torch-Compiled Region: 0/0" not in replayed.get_column("operator")
    assert side.facts.ratios["replayed"] > 0.5


@pytest.mark.slow
def test_replayed_kernels_take_their_call_from_a_capture(traces: tuple[Path, Path]) -> None:
    eager, graph = traces
    blind = compare(eager, graph)
    assert blind.same_work
    result = compare(eager, graph, capture=eager)
    assert result.same_work
    assert result.matched_ratio is not None
    assert result.matched_ratio.call == 1
    line = next(line for line in result.lines if line.name == "aten::mm")
    assert (line.level, line.module, line.before_count, line.after_count) == ("replay", "Layer", 20, 20)
    assert line.by_time_ns == pytest.approx(400_000, rel=0.01)
    swapped = compare(graph, eager, capture=eager)
    assert {bar.name: -bar.difference_ns for bar in swapped.waterfall["operator"]} == pytest.approx(
        {bar.name: bar.difference_ns for bar in result.waterfall["operator"]}
    )


@pytest.mark.slow
def test_the_capture_option(traces: tuple[Path, Path]) -> None:
    eager, graph = (str(path) for path in traces)
    run = CliRunner().invoke(cli.main, ["compare", eager, graph, "--capture", eager, "--fail-if-slower", "50%"])
    assert run.exit_code == 0, run.stderr
    assert "100 % of kernel time by call" in run.stdout
    assert CliRunner().invoke(cli.main, ["compare", eager, graph, "--capture", "-"]).exit_code == 2
    missing = CliRunner().invoke(cli.main, ["compare", eager, graph, "--capture", "nowhere.json"])
    assert (missing.exit_code, "nowhere.json" in missing.stderr) == (2, True)


@pytest.mark.parametrize(("launch", "count"), [("cudaGraphLaunch", 60), ("cudaLaunchKernel", 12)])
def test_each_kernel_of_a_graph_within_an_operator_is_a_call(launch: str, count: int) -> None:
    """A compiled region launches a graph of five kernels in each millisecond, or one kernel alone."""
    each = 5 if launch == "cudaGraphLaunch" else 1
    work = [
        [op("my::region", t, 30), call(launch, t + 10, 10, correlation=n + 1),
         *(kernel(ADD, t + 40 + 100 * k, 90, correlation=n + 1) for k in range(each))]
        for n, t in enumerate(range(0, 12_000, 1_000))
    ]  # fmt: skip
    report = analysed(work)
    assert profiles.profile_of(report).calls.get_column("count").sum() == count


def within(side: profiles.Profile, path: str) -> profiles.Profile:
    """Return the side with its modules at that path, their own path following where it ends in a slash."""
    module = pl.lit(path) + pl.col("module") if path.endswith("/") else pl.lit(path)
    return replace(side, calls=side.calls.with_columns(module.alias("module")))


def test_wrappers_are_no_modules() -> None:
    """A model in data parallelism is the model; one compiled as a whole lies in the model that runs eagerly."""
    own = profiles.profile_of(report_on(Program().trace()))
    for path, level, module in (
        ("DistributedDataParallel/Net/", "call", "Net/Layer"),
        ("OptimizedModule", "module", "Net"),
    ):
        rows = matching.matches(within(own, "Net/"), within(own, path))
        assert set(rows.get_column("module").drop_nulls()) == {module}
        assert set(rows.filter(kind="kernel").get_column("level")) == {level}
