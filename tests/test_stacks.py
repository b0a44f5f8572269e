"""Test trees of merged stacks: table `stacks` on literal traces, and its drawing on the page."""

import polars as pl
import pytest
from conftest import sample_report
from hypothesis import given, settings, strategies as st
from kineto import analysed, op, python, rows
from msgspec.structs import replace
from report_factory import frame, gpu_report, hostile_report
from tiers import examples

from trace_analyzer.analyses.chart_data import STACKS
from trace_analyzer.frames.arrays import call_tree
from trace_analyzer.frames.intervals import union
from trace_analyzer.ingest.tables import HOST_EVENTS as _HOST
from trace_analyzer.render.html import figures, html, tracks
from trace_analyzer.render.names import frame_label
from trace_analyzer.report import Report


def tree(
    parents: list[int | None], texts: list[str], ends: list[tuple[int | None, int]], **more: list[object]
) -> pl.DataFrame:
    is_frame = pl.Series(more.get("is_frame", [True] * len(parents)), dtype=pl.Boolean)
    tips = pl.Series(more["tips"], dtype=pl.String) if "tips" in more else None
    rows = pl.DataFrame(ends, schema={"row": pl.UInt32, "value_ns": pl.Int64}, orient="row")
    return call_tree(pl.Series(parents, dtype=pl.UInt32), is_frame, pl.Series(texts, dtype=pl.String), rows, tips)


def paths(nodes: pl.DataFrame) -> dict[str, tuple[int, int]]:
    """Return the value_ns and self_ns of each path."""
    path: dict[int, str] = {}
    for node, parent, text in nodes.select("node_id", "parent_id", "text").iter_rows():
        path[node] = text if parent is None else f"{path[parent]}/{text}"
    return dict(zip(path.values(), nodes.select("value_ns", "self_ns").iter_rows(), strict=True))


def test_the_same_frames_under_the_same_callers_are_one_node() -> None:
    nodes = tree([None, 0, None, 2, 2], ["main", "step", "main", "step", "load"], [(1, 10), (3, 20), (4, 5), (2, 1)])
    assert paths(nodes) == {"main": (36, 1), "main/load": (5, 5), "main/step": (30, 30)}


def test_what_is_no_frame_is_left_out_of_stacks_and_its_time_goes_to_its_caller() -> None:
    nodes = tree([None, 0, 1], ["main", "marker", "step"], [(1, 3), (2, 4)], is_frame=[True, False, True])
    assert paths(nodes) == {"main": (7, 3), "main/step": (4, 4)}


def test_tips_end_the_stacks_and_stand_alone_without_a_frame() -> None:
    nodes = tree([None], ["main"], [(0, 3), (None, 4), (0, 5)], tips=["python", "python", "dispatch"])
    assert paths(nodes) == {"main": (8, 0), "main/dispatch": (5, 5), "main/python": (3, 3), "python": (4, 4)}
    assert nodes.filter("is_tip").height == 3
    assert tree([], [], [(None, 2)], tips=["python"]).get_column("value_ns").to_list() == [2]
    assert tree([], [], []).is_empty()


def test_a_thread_that_waits_takes_no_cpu_time() -> None:
    waiting = [python(name, 0, 100, tid=7) for name in ("threading.py(637): wait", "<built-in method acquire>")]
    report = analysed(op("aten::mm", 0, 60), *waiting, python("worker.py(3): load", 100, 20, tid=7))
    outermost = report.tables["stacks"].filter(pl.col("parent_id").is_null(), view="cpu")
    assert dict(rows(outermost, "frame", "value_ns")) == {"aten::mm": 60, "worker.py(3): load": 20}


def threads_count_once(report: Report) -> None:
    """CPU time is at most the time in which each thread had an event in progress."""
    stacks = report.tables["stacks"].filter(pl.col("parent_id").is_null(), view="cpu")
    events = report.tables["host_events"].with_columns(end_ns=pl.col("start_ns") + pl.col("duration_ns"))
    busy_ns = union(events, ["thread_id"]).select(pl.col("end_ns") - pl.col("start_ns")).sum().item()
    assert stacks.get_column("value_ns").sum() <= busy_ns


def test_a_thread_counts_once_where_its_events_cross() -> None:
    report = analysed(op("first", 0, 60), op("second", 40, 60), op("other thread", 0, 30, tid=7))
    outermost = report.tables["stacks"].filter(pl.col("parent_id").is_null(), view="cpu")
    assert dict(rows(outermost, "frame", "value_ns")) == {"first": 40, "second": 60, "other thread": 30}
    threads_count_once(report)


@given(st.data())
@settings(max_examples=examples(60))
def test_every_node_holds_its_own_time_and_that_of_what_it_calls(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    parents = [data.draw(st.none() | st.integers(0, row - 1)) if row else None for row in range(count)]
    texts = [data.draw(st.sampled_from("abc")) for _ in range(count)]
    ends = data.draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, 9)), max_size=10))
    nodes = tree(parents, texts, ends)
    values = dict(nodes.select("node_id", "value_ns").iter_rows())
    for node, value, own in nodes.select("node_id", "value_ns", "self_ns").iter_rows():
        assert value == own + sum(values[each] for each in nodes.filter(parent_id=node).get_column("node_id"))
    naive: dict[str, int] = {}
    for row, ns in ends:
        path, at = [], row
        while at is not None:
            path.append(texts[at])
            at = parents[at]
        naive["/".join(reversed(path))] = naive.get("/".join(reversed(path)), 0) + ns
    assert {path: own for path, (_, own) in paths(nodes).items() if own} == {
        path: ns for path, ns in naive.items() if ns
    }


def test_trees_sum_up_to_idle_time_and_kernel_time() -> None:
    report = sample_report("synthetic_overhead_launch.json.gz")
    stacks = report.tables["stacks"]
    outermost = stacks.filter(pl.col("parent_id").is_null()).group_by("view").agg(pl.col("value_ns").sum())
    sums = dict(outermost.iter_rows())
    assert sums["idle"] == sum(device.idle_ns for device in report.devices if device.idle_ns)
    assert sums["kernels"] == report.tables["activities"].get_column("duration_ns").sum()
    causes = stacks.filter(view="idle", kind="cause").group_by("frame").agg(pl.col("self_ns").sum())
    assert dict(causes.iter_rows()) == {c: ns for c, ns in report.devices[0].gaps.by_cause_ns.items() if ns}


def stacked(report: Report) -> Report:
    """Return the report with a small tree of waiting."""
    rows = [
        {"view": "idle", "device": 0, "node_id": 0, "frame": "train.py(12): step", "kind": "python", "value_ns": 90, "self_ns": 0},
        {"view": "idle", "device": 0, "node_id": 1, "parent_id": 0, "frame": "aten::mm", "kind": "operator", "value_ns": 60, "self_ns": 0},
        {"view": "idle", "device": 0, "node_id": 2, "parent_id": 1, "frame": "dispatch", "kind": "cause", "value_ns": 60, "self_ns": 60},
        {"view": "idle", "device": 0, "node_id": 3, "parent_id": 0, "frame": "python", "kind": "cause", "value_ns": 30, "self_ns": 30},
    ]  # fmt: skip
    return replace(report, tables={**report.tables, "stacks": frame(STACKS, rows)})


def test_the_page_draws_callers_before_callees_in_their_colours() -> None:
    (flame,) = figures.flames(stacked(gpu_report()))
    assert (flame.key, flame.left_out) == ("idle", 0)
    assert list(flame.nodes.iter_rows()) == [
        (-1, "train.py(12): step", "step · train.py", "k-py-1", 90), (0, "aten::mm", "aten::mm", "k-operator", 60),
        (1, "Dispatch", "Dispatch", "p-dispatch", 60), (0, "Python", "Python", "p-python", 30),
    ]  # fmt: skip


def test_only_the_largest_nodes_are_on_the_page_with_all_their_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "MOST_NODES", 2)
    (flame,) = figures.flames(stacked(gpu_report()))
    assert flame.nodes.get_column("frame").to_list() == ["train.py(12): step", "aten::mm"]
    assert flame.left_out == 2


@pytest.mark.slow
def test_a_page_without_stacks_has_no_flame_graph() -> None:
    assert 'id="flame"' not in html(gpu_report())
    graph = html(stacked(gpu_report())).partition('id="flame"')[2].partition("</ul>")[0]
    assert ("<span>Operator</span>" in graph, "<span>Module</span>" in graph) == (True, False)


def test_frames_have_the_colour_of_their_package_the_programs_own_first() -> None:
    names = [
        "/home/me/project/models/net.py(3): forward", "/home/me/project/train.py(9): step", "torch/nn/modules/module.py(1): _call_impl",
        "torch/nn/modules/module.py(1): _call_impl", "<built-in method mm>", "/usr/lib/python3.11/threading.py(5): run",
        "/tmp/torchinductor/cabcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz.py(7): call",
    ]  # fmt: skip
    report, frames = gpu_report(), {"kind": "python", "thread_id": 0, "duration_ns": 1}
    host = frame(_HOST, [{**frames, "event_id": i, "name": n, "start_ns": i, "row": i} for i, n in enumerate(names)])
    actual = tracks.packages(replace(report, tables={**report.tables, "host_events": host}))
    of_package = {label: slot for slot, label in actual.labels.items()}
    assert set(of_package) == {"models", "train.py", "torch", "python", "compiled by Inductor"}
    assert {of_package["models"], of_package["train.py"]} <= actual.own
    assert not {of_package["torch"], of_package["python"]} & actual.own
    assert dict(actual.kinds.iter_rows())["<built-in method mm>"] == "python"


def test_a_python_frame_is_labelled_by_function_and_file() -> None:
    assert frame_label("torch/nn/modules/module.py(1501): _call_impl") == "_call_impl · module.py"
    assert frame_label("nn.Module: Linear_0") is None
    assert frame_label("void kernel<int>(4): x") is None


def test_hostile_names_in_trees_stay_text() -> None:
    page = html(stacked(hostile_report()))
    assert "<img src=x" not in page
