"""Compiled programs: regions, graph breaks and recompilations, what kernels fuse, and logs of compilations."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from kineto import analysed, launched, op, python, trace_bytes

from trace_analyzer.analyses.compiled import read_compile_log
from trace_analyzer.cli import main
from trace_analyzer.errors import UsageError
from trace_analyzer.explain import items
from trace_analyzer.pipeline import analyze

NORM = "triton_red_fused__to_copy_add_native_layer_norm_7"
SOURCE = "/tmp/cache/ab/cab" + 49 * "a" + ".py"  # TORCHINDUCTOR_CACHE_DIR=/tmp/cache
EVENTS = [
    op("Torch-Compiled Region: 0/0", 0, 100), python("m.py(3): forward", 1, 98),
    op(NORM, 10, 8, kernel_file=SOURCE), launched(NORM, 12, 200, 30, 1),
    op("Torch-Compiled Region: !2/1/0", 50, 40), python("m.py(7): torch_dynamo_resume_in_forward_at_6", 51, 38),
    launched("gemm", 60, 300, 10, 2), launched("gemm", 70, 400, 10, 3),
    op("Torch-Compiled Region: 0/1", 150, 20), python("m.py(3): forward", 151, 18),
]  # fmt: skip


def test_regions_have_their_function_their_graph_break_and_what_they_launched() -> None:
    columns = [
        "region",
        "python_function",
        "resumed_after",
        "compiled_before",
        "count",
        "host_ns",
        "activity_count",
        "device_ns",
    ]
    assert analysed(EVENTS).tables["compiled_regions"].select(columns).rows() == [
        ("0/0", "m.py(3): forward", None, 0, 1, 100_000, 1, 30_000),
        ("1/0", "m.py(7): torch_dynamo_resume_in_forward_at_6", "forward, line 6", 0, 1, 40_000, 2, 20_000),
        ("0/1", "m.py(3): forward", None, 1, 1, 20_000, 0, 0),
    ]
    assert analysed(launched("gemm", 0, 10, 5, 1)).tables["compiled_regions"].is_empty()


@pytest.mark.slow
def test_a_fused_kernel_has_its_operators_and_its_source(tmp_path: Path) -> None:
    report = analysed(EVENTS)
    (row,) = report.tables["fused_kernels"].select("name", "fuses", "kernel_file", "count", "device_ns").rows()
    assert row == (NORM, "_to_copy, add, native_layer_norm", SOURCE, 1, 30_000)
    facts = report.explain(f"kernel:{items.kernel_hash(NORM)}").facts
    assert (facts["fuses"], facts["kernel_file"]) == (row[1], SOURCE)
    report.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text("utf-8")
    for shown in (report.to_markdown(), page, report.summary(width=160, verbose=True)):
        assert "Fused kernels" in shown
        assert "native_layer_norm" in shown


@pytest.mark.parametrize("width", [80, 100])
def test_a_kernel_of_many_operators_keeps_room_for_its_name(width: int) -> None:
    operators = "add_clone_div_exp_gelu_log_mean_mul_neg_pow_relu_rsqrt_sigmoid_sub_sum_tanh_view_where"
    report = analysed([launched(f"triton_red_fused_{operators}_0", 50 * n, 50 * n + 5, 40, n + 1) for n in range(12)])
    table = report.summary(width=width, verbose=True).partition("Fused kernels")[2].partition("\n\n")[0]
    assert "triton_red_fused_add" in table
    assert "…\n" not in table


@pytest.mark.parametrize(
    ("name", "fuses"),
    [
        ("triton_poi_fused__softmax_add_0", "_softmax, add"),
        ("triton_per_fused__log_softmax_nll_loss_forward_12", "_log_softmax, nll_loss_forward"),
        ("triton_red_fused_mul_native_layer_norm_backward_sum_3", "mul, native_layer_norm_backward, sum"),
        ("triton_poi_fused__scaled_dot_product_flash_attention_cat_10", "_scaled_dot_product_flash_attention, cat"),
        ("triton_poi_fused_constant_pad_nd_moe_forward_0", "constant_pad_nd, moe_forward"),
        ("triton_tem_fused_addmm_relu_threshold_backward_1", "addmm, relu, threshold_backward"),
        ("triton_per_fused__fused_rms_norm__unsafe_view_add_10", "_fused_rms_norm, _unsafe_view, add"),
        ("triton_poi_fused_cat_index_copy_scalar_tensor_split_with_sizes_3", "cat, index_copy, scalar_tensor, split_with_sizes"),
        ("triton_red_fused__scaled_mm_lift_fresh_prepare_softmax_online_2", "_scaled_mm, lift_fresh, prepare_softmax_online"),
    ],
)  # fmt: skip
def test_operators_of_a_kernels_name(name: str, fuses: str) -> None:
    assert analysed(launched(name, 0, 10, 5, 1)).tables["fused_kernels"].get_column("fuses").to_list() == [fuses]


@pytest.mark.slow
def test_the_catalogue_knows_the_operators_that_inductor_compiles() -> None:
    """Check that they are in its list, but for a few of a release after that of which it was made."""
    pytest.importorskip("torch")
    listing = runpy.run_path(str(Path(__file__).parents[1] / ".ci" / "operators.py"))
    operators, known = {*listing["operators"]()}, {*listing["FILE"].read_text("utf-8").splitlines()}
    assert len(operators - known) < 0.02 * len(operators)


PREFIX = "V1125 23:13:23.542000 31949 torch/_dynamo/symbolic_convert.py:5098] "


def event(head: dict[str, object], payload: str = "", frame: int = 0, version: int = 0) -> str:
    """Write an event of a log, as `torch._logging` does."""
    head = {**head, "frame_id": frame, "frame_compile_id": version, "attempt": 0}
    return PREFIX + json.dumps(head) + "\n" + "".join(f"\t{line}\n" for line in payload.splitlines())


def artifact(name: str) -> dict[str, object]:
    return {"artifact": {"name": name, "encoding": "string"}}


BREAK = (
    "Graph break in user code at /lib/python3.11/site-packages/m.py:6\nGraph Break Reason: Encountered graph break when attempting to"
    " trace CALL: a function call, e.g. f(x, y):\n\nCall to print\n  Explanation: Dynamo\n    stops.\n  Hint: Remove it.\n"
    "\n  Developer debug context: none"
)
REASONS = ["x: size mismatch\nUser stack trace:\n  File m.py", "y: other type"]
LOG = (
    event(artifact("dynamo_graph_break_reason"), BREAK)
    + event({"compilation_metrics": {"entire_frame_compile_time_s": 2.5, "co_filename": "/lib/python3.11/site-packages/m.py",
                                     "co_firstlineno": 3, "co_name": "forward", "fail_reason": None}})
    + "a line that is none of these\n" + PREFIX + "{broken\n"
    + event(artifact("recompile_reasons"), json.dumps(REASONS), version=1)
    + event(artifact("fx_graph_cache_miss_3"), "{}", version=1)
)  # fmt: skip
ROWS = [
    ("0/0", "m.py(3): forward", "m.py:6: Call to print – Remove it.", None, 2_500_000_000, 0),
    ("0/1", None, None, "x: size mismatch; y: other type", None, 1),
]


def test_a_log_says_why_graphs_broke_and_were_compiled_again(tmp_path: Path) -> None:
    for rank, log in enumerate((LOG, event(artifact("dynamo_graph_break_reason"), "other rank"))):
        (tmp_path / f"dedicated_log_torch_trace_rank_{rank}_a.log").write_text(log, "utf-8")
    assert read_compile_log(tmp_path, 0).rows() == ROWS
    table = analyze(trace_bytes(EVENTS, distributedInfo={"rank": 0}), compile_log=tmp_path).tables["compiled_regions"]
    kept = table.select("region", "graph_break", "recompiled", "compile_ns", "cache_misses")
    assert [row for row in kept.sort("region").rows() if row[0] != "1/0"] == [(row[0], *row[2:]) for row in ROWS]


def test_what_was_compiled_in_vain_has_its_reason_and_functions_need_no_stacks(tmp_path: Path) -> None:
    """Frame 3 cannot be compiled; frame 4 was compiled, and never ran."""
    failed = event({"compilation_metrics": {"fail_reason": "Data-dependent branching\n  Explanation: none"}}, frame=3)
    unused = event({"compilation_metrics": {"entire_frame_compile_time_s": 0.5}}, frame=4)
    (tmp_path / "raw.log").write_text(LOG + failed + unused, "utf-8")
    table = analyze(trace_bytes(EVENTS[:1]), compile_log=tmp_path).tables["compiled_regions"]
    kept = table.select("region", "python_function", "graph_break", "compiled_before", "count")
    assert kept.sort("region").rows() == [
        ("0/0", "m.py(3): forward", "m.py:6: Call to print – Remove it.", 0, 1),
        ("0/1", None, None, 1, 0),
        ("3/0", None, "Data-dependent branching", 0, 0),
    ]


def test_what_tlparse_made_of_a_log_says_the_same(tmp_path: Path) -> None:
    """It copies the log; without that, only its pages say how long a compilation took."""
    for folder, name, text in (
        ("-_0_0_0", "dynamo_graph_break_reason_7.txt", BREAK),
        ("-_0_0_1", "compilation_metrics_9.html", "<table>"),
        ("-_0_1_0", "recompile_reasons_12.json", json.dumps(REASONS)),
        ("-_0_1_0", "fx_graph_cache_miss_3_14.json", "{}"),
    ):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / name).write_text(text, "utf-8")
    assert read_compile_log(tmp_path, None).rows() == [(row[0], None, *row[2:4], None, row[5]) for row in ROWS]
    (tmp_path / "raw.log").write_text(LOG, "utf-8")
    assert read_compile_log(tmp_path, None).rows() == ROWS


def test_a_folder_without_logs_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no logs of compilations"):
        read_compile_log(tmp_path / "absent", None)
    (tmp_path / "trace.json").write_bytes(trace_bytes(EVENTS))
    done = CliRunner().invoke(main, [str(tmp_path / "trace.json"), "--no-report", "--compile-log", str(tmp_path)])
    assert (done.exit_code, "TORCH_TRACE" in done.stderr, "Traceback" in done.stderr) == (2, True, False)


PROGRAM = """
import torch
def forward(x):
    y = x.sin()
    torch._dynamo.graph_break()
    return y.cos() * x.shape[0]
compiled = torch.compile(forward, backend="eager")
compiled(torch.randn(4)), compiled(torch.randn(5))
"""


@pytest.mark.slow
def test_the_log_of_todays_pytorch(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    environment = {"TORCH_TRACE": str(tmp_path), "PATH": "", "HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True, timeout=300)
    rows = {row["region"]: row for row in read_compile_log(tmp_path, None).to_dicts()}
    assert "graph_break()" in rows["0/0"]["graph_break"]
    assert "size mismatch" in rows["0/1"]["recompiled"]
    assert all(row["compile_ns"] > 0 for row in rows.values())


def test_advice_names_what_a_fused_kernel_is_made_of() -> None:
    """Twelve of 350 us, four times what their bytes take, in code that Inductor wrote."""
    name, shapes = "triton_poi_fused_add_gelu_0", {"Input Dims": [[20_390_000], []], "Input type": ["float", "Scalar"]}
    work = [
        [op("aten::add", 20 * n, 10, **shapes, kernel_file=SOURCE), launched(name, 20 * n + 1, 1_000 + 350 * n, 350, n + 1, takes=1, grid=[500, 1, 1])]
        for n in range(12)
    ]  # fmt: skip
    (item,) = (item for item in analysed(work).advice if item.id == "inefficient-kernels")
    assert item.where == f"{name}, which fuses add, gelu, in {SOURCE} (4.20 ms)"
