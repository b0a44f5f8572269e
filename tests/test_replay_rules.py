"""Test one case for each rule by which kernels of graphs take their operators, which fails without the rule."""

import json
from typing import Any

import pytest
from kineto import analysed, call, kernel, launch, trace_bytes
from test_replays import ADD, CAST, GEMM, GRIDS, NAMES, WHOLE, capture, eager, named, notes, operators, replay, taken

from trace_analyzer.pipeline import analyze


def executed(places: list[tuple[int, int, int]]) -> list[Any]:
    """Build one pass with each kernel at a (place in time, stream, device)."""
    return [
        operators(0),
        [launch(10 * i + 2, 3, 1 + i) for i in range(4)],
        [
            kernel(
                name,
                100 + 50 * at,
                50,
                correlation=1 + i,
                stream=stream,
                device=device,
                grid=GRIDS[i],
                block=[128, 1, 1],
            )
            for i, (name, (at, stream, device)) in enumerate(zip(NAMES, places, strict=True))
        ],
    ]


@pytest.mark.parametrize(("grids", "match"), [(GRIDS, "sequence"), (None, "names")])
def test_streams_may_run_in_another_order_than_launches(grids: Any, match: str) -> None:
    """Executed in order 0, 2, 1, 3 on two streams, replayed in order of the launches."""
    events = executed([(0, 7, 0), (2, 7, 0), (1, 8, 0), (3, 7, 0)])
    assert taken(analysed(events, replay(grids=grids))) == named(match, 1.0)


def test_without_any_grids_names_and_durations_are_all_there_is() -> None:
    """Check that equal names are no proof of equal sizes where an old profiler records no grids at all."""
    assert taken(analysed(eager(grids=None), replay(grids=None))) == named("names", 1.0)
    slower = taken(analysed(eager(grids=None), replay(grids=None, lasting=150)))
    assert [row[1:5] for row in slower] == [(None, None, "names", 0.0)] * 4


def test_kernels_of_two_devices_are_no_sequence() -> None:
    events = executed([(0, 7, 0), (1, 7, 0), (2, 7, 1), (3, 7, 1)])
    assert taken(analysed(events, replay()))[0][3] is None


def test_kernels_that_are_much_faster_are_of_another_size_too() -> None:
    rows = taken(analysed(eager(), replay(grids=None, lasting=15)))
    assert [row[1:5] for row in rows] == [(None, None, "names", 0.0)] * 4


@pytest.mark.parametrize("name", ["hipGraphLaunch", "cuGraphLaunch", "cudaGraphLaunch_v10000"])
def test_every_vendors_graph_launch_replays(name: str) -> None:
    events = [row | {"name": name} if row["name"] == "cudaGraphLaunch" else row for row in replay()]
    assert taken(analysed(eager(), events)) == WHOLE


def test_a_name_that_says_nothing_does_not_speak_against_a_capture() -> None:
    rows = taken(analysed(capture(), replay(names=(GEMM, ADD, "kernel_v9", CAST))))
    assert rows == named("capture", 1.0)


def test_a_capture_that_fits_in_part_has_a_lower_confidence() -> None:
    rows = taken(analysed(capture(), replay(names=(GEMM, GEMM, GEMM, CAST))))
    assert [row[3:5] for row in rows] == [("capture", 0.75)] * 4


def test_a_capture_of_few_launches_fits_too_many_graphs() -> None:
    few = [
        call("cudaStreamBeginCapture", 0, 1),
        operators(5)[:3],
        [launch(10 * i + 7, 3, 500 + i) for i in range(3)],
        call("cudaStreamEndCapture", 60, 1),
    ]
    assert taken(analysed(few, replay(names=NAMES[:3])), 1)[0][3] is None


@pytest.mark.parametrize("nodes", [[9, None, 7, 6], [9, 9, 7, 6]], ids=["not recorded for all", "not unique"])
def test_nodes_order_kernels_only_where_each_has_its_own(nodes: list[int | None]) -> None:
    assert taken(analysed(capture(), replay(nodes=nodes))) == named("capture", 1.0)


def test_a_run_of_neighbours_that_holds_little_of_the_graph_says_nothing() -> None:
    passes = [eager(), eager(500, 20), eager(1000, 40)]
    graph = replay(3000, names=(*NAMES * 3, *["own"] * 13), grids=[*GRIDS * 3, *[[1, 1, 1]] * 13])
    assert {row[3] for row in taken(analysed(passes, graph), 25)} == {None}


def test_an_annotation_names_no_module_that_a_match_names() -> None:
    annotations = json.dumps({str(node): ["attention"] for node in (9, 8, 7, 6)}).encode()
    report = analyze(trace_bytes([eager(), replay(nodes=[9, 8, 7, 6])]), capture=annotations)
    assert [row[5] for row in taken(report)] == [row[5] for row in WHOLE]


def test_executions_of_other_operators_and_modules_tell_neither() -> None:
    """Check that what is not known of kernels run as sums in one module and differences in another is noted."""
    others = [
        row | {"name": {"aten::add": "aten::sub", "nn.Module: Linear_0": "nn.Module: Other_0"}.get(row["name"], row["name"])}
        for part in eager(500, 20) for row in part
    ]  # fmt: skip
    report = analysed(eager(), others, replay())
    assert [(row[0], row[5]) for row in taken(report)] == [
        ("aten::mm", None), (None, None), ("aten::mm", "Head_1"), ("aten::_softmax", "Head_1"),
    ]  # fmt: skip
    assert notes(report, "ambiguous-replay") == [1]
