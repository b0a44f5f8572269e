"""Check that kernels of graphs take operators and work from eager launches of the same kernels or a capture."""

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, strategies as st
from kineto import analysed, call, kernel, launch, loaded, op, python, trace_bytes

from trace_analyzer.analyses.work.replay_matching import captured_matches, part_matches, whole_matches
from trace_analyzer.errors import InputError
from trace_analyzer.pipeline import analyze, report_of
from trace_analyzer.report import Report

pytestmark = pytest.mark.slow

GEMM = "ampere_fp16_s16816gemm_fp16_128x64"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int)"
CAST = "void at::native::(anonymous namespace)::softmax_warp_forward<float, float, float, 8, false>(float*)"
NAMES = (GEMM, ADD, GEMM, CAST)
GRIDS = ([500, 1, 1], [40, 1, 1], [500, 2, 1], [7, 1, 1])


def product(rows: int) -> dict[str, Any]:
    return {"Input Dims": [[rows, 20], [20, 30]], "Input type": ["c10::Half", "c10::Half"]}


def flop(rows: int) -> float:
    return 2.0 * rows * 20 * 30


VECTOR = {"Input Dims": [[600], [600]], "Input type": ["float", "float"]}
SOFTMAX = {"Input Dims": [[30, 20]], "Input type": ["float"]}


def operators(start: float, rows: int = 10) -> list[Any]:
    """Build the operators of one pass, each within 10 us, in two modules."""
    return [
        python("nn.Module: Linear_0", start, 19),
        op("aten::mm", start, 9, **product(rows)),
        op("aten::add", start + 10, 9, **VECTOR),
        python("nn.Module: Head_1", start + 20, 19),
        op("aten::mm", start + 20, 9, **product(2 * rows)),
        op("aten::_softmax", start + 30, 9, **SOFTMAX),
    ]


def eager(start: float = 0, first: int = 1, rows: int = 10, lasting: float = 50, grids: Any = GRIDS) -> list[Any]:
    """Build one pass launched one by one, whose kernels run from ``start`` + 100 us on."""
    return [
        operators(start, rows),
        [launch(start + 10 * i + 2, 3, first + i) for i in range(4)],
        [kernel(n, start + 100 + lasting * i, lasting, correlation=first + i, **_grid(grids, i)) for i, n in enumerate(NAMES)],
    ]  # fmt: skip


def _grid(grids: Any, i: int) -> dict[str, Any]:
    return {} if grids is None else {"grid": grids[i], "block": [128, 1, 1]}


def replay(
    start: float = 1000, names: tuple[str, ...] = NAMES, grids: Any = GRIDS, lasting: float = 50, correlation: int = 99, nodes: Any = None,
) -> list[Any]:  # fmt: skip
    """Build one graph launch and its kernels."""
    return [
        call("cudaGraphLaunch", start, 5, correlation=correlation),
        *(
            kernel(
                n, start + 100 + lasting * i, lasting, correlation=correlation,
                **_grid(grids, i), **({} if nodes is None else {"graph id": 1, "graph node id": nodes[i]}),
            )
            for i, n in enumerate(names)
        ),
    ]  # fmt: skip


def capture(start: float = 0, rows: int = 10, first: int = 500) -> list[Any]:
    """Build the launches of one pass in a capture, which execute nothing."""
    return [
        call("cudaStreamBeginCapture", start, 1),
        operators(start + 5, rows),
        [launch(start + 10 * i + 7, 3, first + i) for i in range(4)],
        call("cudaStreamEndCapture", start + 60, 1),
    ]


TAKEN = ("operator", "flop", "work_from", "replay_match", "replay_confidence", "replayed_module")
WHOLE = [
    ("aten::mm", flop(10), "replay", "sequence", 1.0, "Linear_0"),
    ("aten::add", 600.0, "replay", "sequence", 1.0, "Linear_0"),
    ("aten::mm", flop(20), "replay", "sequence", 1.0, "Head_1"),
    ("aten::_softmax", 3000.0, "replay", "sequence", 1.0, "Head_1"),
]


def taken(report: Report, last: int = 4) -> list[tuple[Any, ...]]:
    return report.tables["activities"].select(TAKEN).rows()[-last:]


def notes(report: Report, code: str) -> list[int]:
    return [note.count for note in report.notes if note.code == code]


def test_a_replayed_sequence_takes_operator_module_shapes_and_work() -> None:
    report = analysed(eager(), replay())
    assert taken(report) == WHOLE
    table = report.tables["activities"]
    assert table.get_column("replayed_from").to_list() == [None] * 4 + [0, 1, 2, 3]
    assert table.get_column("bucket").to_list()[4:] == table.get_column("bucket").to_list()[:4]
    assert notes(report, "replay-match") == [1]
    # Roofline and modules count both passes under one call.
    row = report.tables["roofline"].filter(pl.col("input_dims") == "[[20, 20], [20, 30]]")
    assert row.get_column("count").to_list() == [2]
    assert report.tables["modules"].select("module", "count").sort("module").rows() == [("Head_1", 4), ("Linear_0", 4)]


@pytest.mark.sampled
@pytest.mark.parametrize(
    "graph",
    [replay(names=(*NAMES[:3], "other")), replay(names=NAMES[:3]), replay(grids=[*GRIDS[:3], [8, 1, 1]])],
    ids=["name", "length", "grid"],
)
def test_another_sequence_takes_nothing(graph: list[Any]) -> None:
    report = analysed(eager(), graph)
    assert report.tables["activities"].get_column("replay_match").null_count() == report.tables["activities"].height
    assert taken(report, 1)[0][:3] == (None, None, None)


def test_what_executions_differ_in_is_reported_and_not_guessed() -> None:
    """Two sizes with equal grids: the operators are the same, the products' shapes are not known, the rest is."""
    report = analysed(eager(), eager(500, 20, rows=12), replay())
    assert taken(report) == TWELVE
    assert notes(report, "ambiguous-replay") == [1]
    assert notes(analysed(eager(), eager(500, 20), replay()), "ambiguous-replay") == []


def test_the_capture_file_holds_the_execution() -> None:
    report = report_of(loaded(replay(0)), capture=loaded(eager()))
    assert taken(report) == WHOLE
    assert report.tables["activities"].get_column("replayed_from").null_count() == 4
    softmax = report.tables["roofline"].filter(pl.col("operator") == "aten::_softmax")
    assert softmax.get_column("input_dims").to_list() == ["[[30, 20]]"]
    both = report_of(loaded(eager(), replay()), capture=loaded(eager(rows=12)))
    assert notes(both, "ambiguous-replay") == [1]
    assert taken(report_of(loaded(replay(0))), 1)[0][:4] == (None, None, None, None)


def test_a_capture_file_that_says_nothing_is_reported() -> None:
    other = report_of(loaded(replay(0)), capture=loaded(launch(0, 1, 1), kernel("k", 5, 5, correlation=1)))
    assert notes(other, "capture-unmatched") == [1]
    assert notes(report_of(loaded(eager()), capture=loaded(eager())), "capture-unused") == [1]
    assert notes(analysed(replay(), replay(3000, correlation=98)), "replay-unmatched") == [2]
    assert notes(analysed(eager(), replay()), "replay-unmatched") == []


def test_the_function_takes_a_file(tmp_path: Path) -> None:
    path = tmp_path / "capture.json"
    path.write_bytes(trace_bytes([eager()]))
    assert taken(analyze(trace_bytes([replay(0)]), capture=path)) == WHOLE


def folder_of(path: Path, **files: list[Any]) -> Path:
    """Write traces of passes into a folder, with the names of SGLang's and ATOM's captures."""
    for name, events in files.items():
        (path / f"{name}.json").write_bytes(trace_bytes([events]))
    return path


def of_rank(rank: int | None, folder: Path, *events: Any) -> Report:
    header = {} if rank is None else {"distributedInfo": {"rank": rank, "world_size": 4}}
    return analyze(trace_bytes([*(events or [replay(0)])], **header), capture=folder)


def told(report: Report) -> list[tuple[str, str]]:
    return [(note.code, note.message) for note in report.notes if "capture" in note.code]


OTHER = [[9, 1, 1], *GRIDS[1:]]
TWELVE = [("aten::mm", None, None, "sequence", 1.0, "Linear_0"), WHOLE[1], (*WHOLE[2][:1], None, None, *WHOLE[2][3:]), WHOLE[3]]  # fmt: skip


def test_a_folder_of_captures_gives_the_file_of_the_rank_and_size(tmp_path: Path) -> None:
    sizes = {"8_rank0": eager(rows=99), "8_rank1": eager(), "16_rank1": eager(grids=OTHER, rows=12)}
    folder = folder_of(tmp_path, server_args=[], **{f"decode_bs_{size}": events for size, events in sizes.items()})
    (folder / "server_args.json").write_text('{"tp": 4}')
    report = of_rank(1, folder)
    assert taken(report) == WHOLE
    assert ("capture-file", "the kernels of 1 graph launch are those of decode_bs_8_rank1.json") in told(report)
    assert "server_args.json" in dict(told(report))["capture-left-out"]
    both = of_rank(1, folder, replay(0), replay(3000, grids=OTHER, correlation=98))
    assert [row[1] for row in taken(both, 8) if row[0] == "aten::mm"] == [flop(10), flop(20), flop(12), flop(24)]


def test_files_of_a_folder_that_fit_alike_are_ambiguous(tmp_path: Path) -> None:
    """Check that a folder never guesses: of equal sequences, or where the rank is not known, what all agree on counts."""
    folder = folder_of(tmp_path, bs_8_rank0=eager(), bs_16_rank0=eager(rows=12), bs_8_rank2=eager(rows=14))
    report = of_rank(0, folder)
    assert taken(report) == TWELVE
    text = "the kernels of 1 graph launch are those of 2 capture files alike: bs_16_rank0.json; bs_8_rank0.json"
    assert ("ambiguous-capture", text) in told(report)
    assert taken(of_rank(2, folder))[0][1] == flop(14)
    assert taken(of_rank(None, folder)) == TWELVE
    absent = of_rank(3, folder)
    assert taken(absent)[0][:4] == (None, None, None, None)
    assert "no trace of this trace's rank, 3" in dict(told(absent))["capture-unmatched"]


@pytest.mark.parametrize("rank", [0, 3])
def test_captures_of_one_rank_alone_serve_every_rank(tmp_path: Path, rank: int) -> None:
    """vLLM names its captures `graph_capture_rank_0.TIME.pt.trace.json.gz`, one a size, and records those of rank 0."""
    names = [f"graph_capture_rank_0.178550197{place}713.pt.trace" for place in range(2)]
    folder = folder_of(tmp_path, **{names[0]: eager(grids=OTHER, rows=12), names[1]: eager()})
    report = of_rank(rank, folder)
    assert taken(report) == WHOLE
    assert ("capture-file", f"the kernels of 1 graph launch are those of {names[1]}.json") in told(report)
    assert ("capture-rank" in dict(told(report))) == (rank == 3)


def test_of_captures_of_equal_length_those_count_that_fit_the_kernels(tmp_path: Path) -> None:
    reversed_pass = [
        call("cudaStreamBeginCapture", 0, 1),
        [op(name, 5 + 10 * i, 9, **given) for i, (name, given) in enumerate((("aten::add", VECTOR), ("aten::mm", product(7)), ("aten::_softmax", SOFTMAX), ("aten::mm", product(7))))],
        [launch(10 * i + 7, 3, 500 + i) for i in range(4)],
        call("cudaStreamEndCapture", 60, 1),
    ]  # fmt: skip
    folder = folder_of(tmp_path, bs_1_q_2_rank0=reversed_pass, bs_4_q_2_rank0=capture())
    assert taken(of_rank(0, folder)) == named("capture", 1.0)


def test_an_empty_folder_of_captures_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no trace"):
        of_rank(0, tmp_path)


def named(match: str, confidence: float, rows: list[tuple[Any, ...]] = WHOLE) -> list[tuple[Any, ...]]:
    return [(operator, work, "replay", match, confidence, module) for operator, work, _, _, _, module in rows]


def test_the_launches_of_a_capture_become_the_kernels_of_its_graph() -> None:
    """In order of the nodes, whatever stream and time they ran at; memsets and copies are no kernels."""
    assert taken(analysed(capture(), replay())) == named("capture", 1.0)
    reordered = analysed(capture(), replay(names=NAMES[::-1], grids=GRIDS[::-1], nodes=[9, 8, 7, 6]))
    assert taken(reordered)[::-1] == named("capture", 1.0)
    assert taken(report_of(loaded(replay(0)), capture=loaded(capture()))) == named("capture", 1.0)


def test_captured_products_share_their_work_by_the_duration_of_the_kernels() -> None:
    """Check that of two launches in one operator the one that runs twice as long has two thirds of its FLOP."""
    captured = [
        call("cudaStreamBeginCapture", 0, 1),
        op("aten::mm", 5, 30, **product(9)),
        [launch(7 + 5 * i, 3, 500 + i) for i in range(2)],
        op("aten::add", 40, 9, **VECTOR),
        op("aten::add", 50, 9, **VECTOR),
        launch(42, 3, 600),
        launch(52, 3, 601),
        call("cudaStreamEndCapture", 70, 1),
    ]
    graph = [
        call("cudaGraphLaunch", 1000, 5, correlation=99),
        *(kernel(n, at, lasting, correlation=99) for n, at, lasting in ((GEMM, 1100, 20), (GEMM, 1120, 40), (ADD, 1200, 5), (ADD, 1300, 5))),
    ]  # fmt: skip
    got = analysed(captured, graph).tables["activities"].get_column("flop").to_list()
    assert got == [flop(9) / 3, flop(9) * 2 / 3, 600.0, 600.0]
    again = [e | {"ts": e["ts"] + 5000, "args": e["args"] | {"correlation": 98}} for e in graph]
    assert analysed(captured, graph, again).tables["activities"].get_column("flop").to_list() == got * 2


def test_captures_of_several_sizes_tell_the_operators_only() -> None:
    rows = taken(analysed(capture(), capture(200, rows=12, first=600), replay()))
    assert [row[:3] for row in rows] == [
        ("aten::mm", None, None), ("aten::add", 600.0, "replay"), ("aten::mm", None, None), ("aten::_softmax", 3000.0, "replay"),
    ]  # fmt: skip


def test_runs_of_neighbours_tell_what_they_hold() -> None:
    """Check a graph of three passes, executed eagerly before, with a kernel of its own behind them."""
    executed = [eager(), eager(500, 20), eager(1000, 40)]
    graph = replay(3000, names=(*NAMES * 3, "own"), grids=[*GRIDS * 3, [1, 1, 1]])
    report = analysed(executed, graph)
    rows = taken(report, 13)
    assert rows[:12] == [(*row[:3], "part", 12 / 13, row[5]) for row in named("part", 12 / 13) * 3]
    assert rows[12] == (None, None, None, None, None, None)
    few = analysed(executed, replay(3000, names=(*NAMES * 3, *["own"] * 13), grids=[*GRIDS * 3, *[[1, 1, 1]] * 13]))
    assert taken(few, 1)[0][3] is None


def frame(codes: list[int], **columns: Any) -> pl.DataFrame:
    return pl.DataFrame({"code": pl.Series(codes, dtype=pl.UInt64).hash(), **columns})


def zeros(count: int) -> dict[str, list[int]]:
    return dict.fromkeys(("source", "track", "operator_code", "module_code"), [0] * count)


SEQUENCES = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=9), max_size=4)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), max_size=30), SEQUENCES)
def test_sequences_are_found_as_by_looking(executed: list[tuple[int, int]], graphs: list[list[int]]) -> None:
    """Check that whole sequences of 4 or more are found, with the first run's position and if all agree in calls."""
    names = [name for name, _ in executed]
    calls = pl.Series([called for _, called in executed], dtype=pl.UInt64).hash()
    rows = frame(names, call=calls, **zeros(len(names)))
    launches = [(i, place, name) for i, graph in enumerate(graphs) for place, name in enumerate(graph)]
    columns = {"launch_id": [i for i, *_ in launches], "place": [p for _, p, _ in launches]}
    graph_rows = frame([n for *_, n in launches], **columns)
    expected = {}
    for launch_id, graph in enumerate(graphs):
        starts = [i for i in range(len(names) - len(graph) + 1) if names[i : i + len(graph)] == graph]
        for place in range(len(graph)):
            if len(graph) >= 4 and starts:
                agrees = len({executed[i + place][1] for i in starts}) == 1
                expected[launch_id, place] = (starts[0] + place, agrees)
    actual = whole_matches(graph_rows, rows) if launches and names else pl.DataFrame()
    assert {(r["launch_id"], r["place"]): (r["position"], r["call"]) for r in actual.to_dicts()} == expected


@given(st.lists(st.integers(0, 2), max_size=40), SEQUENCES.map(lambda parts: [name for part in parts for name in part]))
def test_neighbours_are_found_as_by_looking(executed: list[int], graph: list[int]) -> None:
    """Check that a kernel is matched where one of the runs of 8 around it was executed."""
    if not executed or not graph:
        return
    rows = frame(executed, call=frame(executed)["code"], **zeros(len(executed)))
    actual = part_matches(frame(graph, launch_id=[0] * len(graph), place=list(range(len(graph)))), rows)
    runs = {tuple(executed[i : i + 8]) for i in range(len(executed) - 7)}
    expected = {i + o for i in range(len(graph) - 7) if tuple(graph[i : i + 8]) in runs for o in range(8)}
    assert set(actual.get_column("place")) == expected
    assert all(executed[r["position"]] == graph[r["place"]] for r in actual.to_dicts())


def test_captures_match_by_number_of_launches() -> None:
    captured = pl.DataFrame({"capture": [0] * 4 + [1] * 5, "place": [0, 1, 2, 3, 0, 1, 2, 3, 4]}).with_columns(
        source=pl.lit(0), call=pl.lit(0), operator_code=pl.lit(0), module_code=pl.lit(0), operator=pl.lit("o")
    )
    places = [*range(5), *range(6)]
    graphs = pl.DataFrame({"launch_id": [7] * 5 + [8] * 6, "place": places, "name": "k"}).with_columns(
        code=pl.col("place").hash()
    )
    actual = captured_matches(graphs, captured, lambda rows: pl.repeat(True, len(rows), eager=True)).sort("place")
    assert actual.select("launch_id", "position").rows() == [(7, i) for i in range(4, 9)]


# Annotations that PyTorch keeps of a graph's nodes


def annotated(annotations: Any, *, nodes: Any = (9, 8, 7, 6), **options: Any) -> Report:
    return analyze(trace_bytes([replay(0, nodes=list(nodes))]), capture=json.dumps(annotations).encode(), **options)


def test_annotations_name_modules_by_graph_node_id() -> None:
    outer = [{"name": "outer"}, {"name": "mlp", "dtype": "bf16"}]
    report = annotated({"9": [{"name": "attention"}], "8": outer, "7": ["head"], "77": ["other"]})
    assert report.tables["activities"].sort("start_ns").select(
        "replayed_module", "replay_match", "replay_confidence", "operator", "flop"
    ).rows() == [
        ("attention", "annotation", 1.0, None, None), ("mlp", "annotation", 1.0, None, None), ("head", "annotation", 1.0, None, None),
        (None, None, None, None, None),
    ]  # fmt: skip
    assert notes(report, "graph-annotations") == [3]


def test_annotations_of_the_first_versions_are_read() -> None:
    report = annotated(
        {"9": [{"str": "attention"}], "8": "mlp", "7": [], "6": [{"dtype": "bf16"}], "x": ["no"], "1" * 30: ["no"]}
    )
    modules = report.tables["activities"].sort("start_ns").get_column("replayed_module").to_list()
    assert modules == ["attention", "mlp", None, None]


def test_annotations_of_another_program_are_reported() -> None:
    assert notes(annotated({"1234": ["x"]}), "annotations-unmatched") == [1]
    assert notes(annotated({}), "annotations-unmatched") == [1]
    eager_only = analyze(trace_bytes([eager()]), capture=b'{"1": ["x"]}')
    assert notes(eager_only, "capture-unused") == [1]


def test_annotations_from_a_compressed_file(tmp_path: Path) -> None:
    path = tmp_path / "graph.json.gz"
    path.write_bytes(gzip.compress(b'{"9": ["attention"]}'))
    report = analyze(trace_bytes([replay(0, nodes=[9, 8, 7, 6])]), capture=path)
    assert notes(report, "graph-annotations") == [1]


class Trap:
    """Show the effects that a pickle can have when it is read."""

    def __reduce__(self) -> Any:
        return pytest.fail, ("the pickle was read",)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_is_refused_unread(protocol: int, tmp_path: Path) -> None:
    path = tmp_path / "annotations.pkl"
    path.write_bytes(pickle.dumps({9: [Trap()]}, protocol))
    with pytest.raises(
        InputError, match=r"annotations.pkl: is a pickle, and to read one can run code; save .* as JSON"
    ):
        analyze(trace_bytes([replay(0)]), capture=path)


@pytest.mark.parametrize("text", [b'{"9": [', b'{"9": ' + b"[" * 100_000, b'{"9": [1]} x'])
def test_damaged_annotations_are_one_line(text: bytes) -> None:
    with pytest.raises(InputError, match="begins like graph annotations, and is no JSON"):
        analyze(trace_bytes([replay(0)]), capture=text)
