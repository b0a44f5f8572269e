"""Test the intervals that advice concerns."""

from pathlib import Path

import polars as pl

from trace_analyzer.analyses.advice_members import ADVICE_MEMBERS, advice_members
from trace_analyzer.pipeline import analyze

SAMPLES = Path(__file__).parents[1] / "sample_traces"


def test_members_are_listed_by_advice_in_order_of_time() -> None:
    spans = pl.DataFrame({"device": [0, 0], "start_ns": [50, 10], "end_ns": [60, 40]})
    table = advice_members({"fusion": spans, "cuda-graphs": spans.head(1)})
    assert list(table.iter_rows()) == [("cuda-graphs", 0, 50, 60), ("fusion", 0, 10, 40), ("fusion", 0, 50, 60)]
    assert advice_members({}).schema == pl.Schema(ADVICE_MEMBERS.schema)


def test_every_advice_has_members_and_its_place_is_one_of_them() -> None:
    report = analyze(str(SAMPLES / "synthetic_overhead_launch.json.gz"))
    members = report.tables["advice_members"]
    assert report.advice
    for item in report.advice:
        own = members.filter(advice=item.id)
        assert own.height, item.id
        assert (item.start_ns, item.end_ns) in set(own.select("start_ns", "end_ns").iter_rows()), item.id
