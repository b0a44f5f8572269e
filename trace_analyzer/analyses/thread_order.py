"""Order host threads for display and title them."""

import polars as pl


def titled_threads(host_events: pl.DataFrame, launches: pl.DataFrame, threads: pl.DataFrame) -> pl.DataFrame:
    """Return threads with events: thread_id, title; those that launch work first, then those with most events.

    Parameters are the tables of these names. A title includes the process where there are several.
    """
    launching = launches.group_by("thread_id").agg(launches=pl.len())
    return (
        host_events.group_by("thread_id")
        .agg(events=pl.len())
        .join(launching, on="thread_id", how="left")
        .join(_titles(host_events, threads), on="thread_id", how="left")
        .sort(pl.col("launches").fill_null(0), "events", "thread_id", descending=[True, True, False])
        .select("thread_id", pl.col("title").fill_null("Thread"))
    )


def _titles(host_events: pl.DataFrame, threads: pl.DataFrame) -> pl.DataFrame:
    with_events = threads.join(host_events.select("thread_id").unique(), on="thread_id", how="semi")
    several = with_events.get_column("process_id").n_unique() > 1
    process = pl.format("Process {} · ", "pid") if several else pl.lit("")
    thread = pl.when(pl.col("name").fill_null("") == "").then(pl.format("Thread {}", "tid")).otherwise(pl.col("name"))
    return threads.select("thread_id", title=process + thread)
