"""Time that several fixes concern is saved once: the first advice counts it, and the others refer to it."""

import polars as pl
import pytest
from conftest import sample_report
from hypothesis import given, settings, strategies as st
from kineto import analysed, kernel
from test_advice import CASES, FP32, V100, WIDE, in_a_row
from tiers import examples

from trace_analyzer.advice.opportunity import with_claims
from trace_analyzer.analyses.chart_data import ADVICE_MEMBERS, advice_members
from trace_analyzer.report import Advice, Saving

Spans = list[tuple[int, int]]


def advice(name: str, spans: Spans | None, device: int = 0) -> tuple[Advice, dict[str, pl.DataFrame]]:
    item = Advice(name.title(), "because", "", "", 1, "all", Saving(1, 1, 1, 1, has_steps=False), id=name)
    rows = [(device, *span) for span in spans or ()]
    schema = dict.fromkeys(("device", "start_ns", "end_ns"), pl.Int64)
    return item, {} if spans is None else {name: pl.DataFrame(rows, schema=schema, orient="row")}


def claims(*items: tuple[Advice, dict[str, pl.DataFrame]]) -> list[tuple[str, str | None, float | None]]:
    members = {name: spans for _, own in items for name, spans in own.items()}
    claimed = with_claims([item for item, _ in items], members)
    return [(item.id, item.shared_with, item.shared_ratio) for item in claimed]


@pytest.mark.parametrize(
    ("own", "shared"),
    [
        ([(100, 200)], ("first", 1.0)),
        ([(150, 250)], ("first", 0.5)),
        ([(190, 290)], ("first", 0.1)),
        ([(191, 291)], (None, None)),
        ([(200, 300)], (None, None)),
        ([(0, 1_000)], ("first", 0.1)),
        ([(100, 150), (100, 150), (300, 350)], ("first", 0.5)),
        ([], (None, None)),
        (None, (None, None)),
    ],
    ids=["the same", "half", "a tenth", "less", "beside it", "around it", "twice the same", "nothing", "unknown"],
)
def test_what_advice_above_counts_is_said(own: Spans | None, shared: tuple[str | None, float | None]) -> None:
    assert claims(advice("first", [(100, 200)]), advice("second", own)) == [("first", None, None), ("second", *shared)]


def test_the_advice_above_that_counts_most_is_named() -> None:
    first, second, third = (advice("first", [(0, 40)]), advice("second", [(30, 100)]), advice("third", [(0, 100)]))
    assert claims(first, second, third)[2] == ("third", "second", 0.7)
    assert claims(third, second, first)[1:] == [("second", "third", 1.0), ("first", "third", 1.0)]
    assert claims(first, advice("other device", [(0, 40)], device=1))[1][1] is None


def test_the_sentence_names_the_advice_and_the_share() -> None:
    (first, one), (second, other) = advice("first", [(0, 60)]), advice("second", [(0, 100)])
    why = with_claims([first, second], one | other)[1].why
    assert why == "because; “First” already counts 60 % of this time, which can be saved only once"


@settings(max_examples=examples(100))
@given(
    spans=st.lists(
        st.lists(st.tuples(st.integers(0, 90), st.integers(0, 30)).map(lambda s: (s[0], s[0] + s[1])), max_size=5),
        min_size=1, max_size=4,
    )
)  # fmt: skip
def test_shares_are_those_of_single_nanoseconds(spans: list[Spans]) -> None:
    instants = [{at for start, end in own for at in range(start, end)} for own in spans]
    for place, (_, other, ratio) in enumerate(claims(*(advice(str(n), own) for n, own in enumerate(spans)))):
        own = instants[place]
        best = max((len(own & above) / len(own) for above in instants[:place] if own), default=0.0)
        assert (ratio or 0.0) == (best if best >= 0.1 else 0.0)
        assert other is None or int(other) < place


@pytest.mark.slow
def test_a_bigger_batch_saves_the_launches_that_graphs_save() -> None:
    shared = {item.id: item.shared_with for item in analysed(CASES["bigger-batch"][0]).advice}
    assert (shared["bigger-batch"], shared["cuda-graphs"]) == ("cuda-graphs", None)


PASSES = [kernel(WIDE, 2_000 + 60 * n, 50, grid=[500, 1, 1], stream=7 + n) for n in range(24)]


@pytest.mark.slow
def test_the_same_code_is_advised_once_for_all_of_its_reasons() -> None:
    """On a V100 autocast is the cure of products in fp32, and of passes over fp32."""
    (item,) = (
        item for item in analysed(in_a_row(FP32), PASSES, devices=[V100]).advice if "torch.autocast" in item.code
    )
    assert item.id == "tensor-cores"
    assert "12 matmuls ran in fp32" in item.why
    assert "24 memory-bound kernels read and write fp32" in item.why
    products = analysed(in_a_row(FP32), devices=[V100]).advice[0]
    assert item.saves_ns_at_most == products.saves_ns_at_most + 24 * 25_000


def test_products_that_autocast_takes_along_are_those_of_tf32() -> None:
    """On an A100 TF32 is one line; 16-bit types save what it does and more, with the passes over fp32."""
    items = {item.id: item for item in analysed(in_a_row(FP32), PASSES).advice}
    assert items["fewer-bytes"].shared_with == "tf32" or items["tf32"].shared_with == "fewer-bytes"
    assert "24 memory-bound kernels read and write fp32, and 12 matmuls ran in fp32" in items["fewer-bytes"].why
    assert items["fewer-bytes"].saves_ns_at_most > items["tf32"].saves_ns_at_most + 24 * 25_000


def test_members_are_listed_by_advice_in_order_of_time() -> None:
    spans = pl.DataFrame({"device": [0, 0], "start_ns": [50, 10], "end_ns": [60, 40]})
    table = advice_members({"fusion": spans, "cuda-graphs": spans.head(1)})
    assert list(table.iter_rows()) == [("cuda-graphs", 0, 50, 60), ("fusion", 0, 10, 40), ("fusion", 0, 50, 60)]
    assert advice_members({}).schema == pl.Schema(ADVICE_MEMBERS.schema)


def test_every_advice_has_members_and_its_place_is_one_of_them() -> None:
    report = sample_report("synthetic_overhead_launch.json.gz")
    assert report.advice
    for item in report.advice:
        own = report.tables["advice_members"].filter(advice=item.id).select("start_ns", "end_ns")
        assert (item.start_ns, item.end_ns) in own.rows(), item.id
