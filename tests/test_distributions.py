"""Test aggregates for plots and the page's tables: longest events, bins of times, blocks, order of threads."""

import polars as pl

from trace_analyzer.analyses import chart_data
from trace_analyzer.frames.arrays import distinct_rows

EVENTS = pl.DataFrame({"name": ["a", "b", "a", "a"], "start_ns": [0, 5, 20, 40], "duration_ns": [3, 2, 7, 7]})


def test_the_first_of_the_longest_stands_for_a_name_or_a_key() -> None:
    assert sorted(chart_data.longest_events(EVENTS, ["name"]).rows()) == [("a", 20, 27), ("b", 5, 7)]
    intervals = pl.DataFrame({"cause": ["x", "x", "y"], "start_ns": [0, 10, 20], "end_ns": [5, 12, 21]})
    assert sorted(chart_data.longest_intervals(intervals, ["cause"]).rows()) == [("x", 0, 5), ("y", 20, 21)]


def test_rows_keep_their_order_and_missing_keys_match() -> None:
    events = EVENTS.with_columns(operator=pl.Series([None, "mm", None, None], dtype=pl.String))
    names = pl.DataFrame({"name": ["c", "b", "a"], "operator": pl.Series([None, "mm", None], dtype=pl.String)})
    assert chart_data.named_events(events, names, ["name", "operator"]).rows() == [
        ("c", None, None, None), ("b", "mm", 5, 7), ("a", None, 20, 27),
    ]  # fmt: skip


def test_a_histogram_covers_whole_decades_and_sums_weights() -> None:
    times = pl.DataFrame({"value_ns": [2, 3, 500], "start_ns": [0, 1, 2], "end_ns": [2, 4, 502]})
    bins = chart_data.logarithmic_histogram(times, 1)
    assert bins.get_column("low_ns").round(9).to_list() == [1, 10, 100]
    assert bins.get_column("high_ns").round(9).to_list() == [10, 100, 1000]
    assert bins.select("height", "start_ns", "end_ns").rows() == [(2, 1, 4), (0, None, None), (1, 2, 502)]
    weighted = chart_data.logarithmic_histogram(times.with_columns(weight_ns=pl.col("value_ns")), 1)
    assert weighted.get_column("height").to_list() == [5, 0, 500]


def test_a_bin_has_the_highest_of_its_changes() -> None:
    steps = pl.DataFrame({"time_ns": [0, 1, 5, 10], "depth": [1, 4, 2, 3]})
    assert chart_data.highest_per_bin(steps, "depth", 2).rows() == [(0, 4), (5, 2), (10, 3)]


def test_threads_that_launch_come_first_and_processes_are_named_where_there_are_several() -> None:
    host_events = pl.DataFrame({"thread_id": [0, 1, 1, 2]})
    launches = pl.DataFrame({"thread_id": [2]})
    threads = pl.DataFrame(
        {"thread_id": [0, 1, 2, 3], "process_id": [0, 0, 0, 1], "pid": [7, 7, 7, 8], "tid": [70, 71, 72, 80],
         "name": ["main", "", None, "idle"]}
    )  # fmt: skip
    assert chart_data.titled_threads(host_events, launches, threads).rows() == [
        (2, "Thread 72"),
        (1, "Thread 71"),
        (0, "main"),
    ]
    both = pl.concat([host_events, pl.DataFrame({"thread_id": [3]})])
    assert chart_data.titled_threads(both, launches, threads).rows()[0] == (2, "Process 7 · Thread 72")


def test_rows_are_encoded_by_the_distinct_ones() -> None:
    rows, which = distinct_rows(pl.DataFrame({"a": [1, 1, None, 1], "b": ["x", "y", None, "x"]}))
    assert rows.rows() == [(1, "x"), (1, "y"), (None, None)]
    assert which.tolist() == [0, 1, 2, 0]
