"""Prepare figures for charts: times in bins, events to mark, and the intervals that each advice concerns."""

from collections.abc import Mapping
from os.path import commonpath
from pathlib import PurePosixPath

import numpy as np
import numpy.typing as npt
import polars as pl

from trace_analyzer.analysis import Analysis
from trace_analyzer.catalog.event_names import named_code
from trace_analyzer.frames.intervals import longest_place
from trace_analyzer.schema import Table, columns


def logarithmic_histogram(times: pl.DataFrame, bins_per_decade: int) -> pl.DataFrame:
    """Count positive times in bins of equal logarithmic width, over whole decades.

    ``times`` has value_ns, start_ns, end_ns and at least one row; if it has weight_ns, its sum is the height instead of
    the count. Returns low_ns, high_ns, height, and start_ns, end_ns of each bin's largest time, null for an empty bin.
    """
    edges = _edges(times.get_column("value_ns"), bins_per_decade)
    inside = np.searchsorted(edges[1:-1], times.get_column("value_ns").to_numpy(), side="right")
    bins = (
        times.with_columns(bin=pl.Series(inside, dtype=pl.Int64))
        .group_by("bin")
        .agg(
            (pl.col("weight_ns").sum() if "weight_ns" in times.columns else pl.len()).alias("height"),
            pl.col("start_ns", "end_ns").get(pl.col("value_ns").arg_max()),
        )
        .with_columns(pl.exclude("bin").cast(pl.Float64))
    )
    return (
        pl.DataFrame({"bin": np.arange(len(edges) - 1), "low_ns": edges[:-1], "high_ns": edges[1:]})
        .join(bins, on="bin", how="left", maintain_order="left")
        .with_columns(pl.col("height").fill_null(0))
        .drop("bin")
    )


def highest_per_bin(steps: pl.DataFrame, column: str, bins: int) -> pl.DataFrame:
    """Reduce a step function of time to at most one change per bin, with the highest value in the bin.

    ``steps`` has time_ns and ``column``, in order of time, and at least one row. Returns the same columns, with the time of
    the first change in each of ``bins`` bins that has one.
    """
    start, end = steps.select(pl.min("time_ns").alias("start"), pl.max("time_ns").alias("end")).row(0)
    width = max((end - start) / bins, 1)
    return (
        steps.select("time_ns", column)
        .group_by(((pl.col("time_ns") - start) // width).alias("bin"), maintain_order=True)
        .agg(pl.col("time_ns").first(), pl.col(column).max())
        .drop("bin")
    )


def _edges(values: pl.Series, bins_per_decade: int) -> npt.NDArray[np.float64]:
    least, most = np.log10(values.min()), np.log10(values.max())  # type: ignore[arg-type]
    first, last = np.floor(least), max(np.ceil(most), np.floor(least) + 1)
    return 10 ** np.linspace(first, last, round((last - first) * bins_per_decade) + 1)


# Choose a place on the timeline that represents several events: the longest of them.


def longest_events(events: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Return the longest event per key: ``keys``, start_ns, end_ns; the first of equal ones.

    ``events`` have start_ns and duration_ns, ns.
    """
    return events.group_by(keys).agg(longest_place())


def longest_intervals(intervals: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Return the longest interval per key: ``keys``, start_ns, end_ns; the first of equal ones."""
    return longest_events(intervals.with_columns(duration_ns=pl.col("end_ns") - pl.col("start_ns")), keys)


def named_events(events: pl.DataFrame, names: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Add start_ns and end_ns of the longest event with the same ``keys`` to each row of ``names``, in their order."""
    places = longest_events(events, keys)
    return names.join(places, on=keys, how="left", maintain_order="left", nulls_equal=True)


# Order host threads for display and title them.


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


# Name the package of each Python frame.

_FILE = r"^(.+)\(\d+\): "
_INSTALLED = r"^.*(?:site|dist)-packages/"
_STANDARD = r"^(?:.*/lib/python3\.\d+/|<frozen .*>)"
_COMPILED = r"(?:^|/)c[a-z0-9]{50,}\.py$"
"""Files that Inductor generates, named by their hash."""


def frame_packages(host_events: pl.DataFrame) -> pl.DataFrame:
    """Return distinct Python frames of table `host_events`: name, count, package, is_own (no library by the rules).

    The package of a built-in function is null.
    """
    names = host_events.filter(pl.col("kind") == "python").group_by("kind", "name").agg(pl.len().alias("count"))
    return names.join(named_code(names), on=["kind", "name"], how="left").select(
        "name",
        "count",
        _package(_shared_folder(names.get_column("name"))).alias("package"),
        (~pl.col("library").fill_null(True) & pl.col("name").str.contains(_FILE)).alias("is_own"),
    )


def frames_by_package(frames: pl.DataFrame) -> pl.DataFrame:
    """Return package, count and is_own from the frames of `frame_packages`, the package with most frames first."""
    return (
        frames.filter(pl.col("package").is_not_null())
        .group_by("package")
        .agg(pl.col("count").sum(), pl.col("is_own").any())
        .sort("count", "package", descending=[True, False])
    )


def _package(shared: str) -> pl.Expr:
    """Return the package of a frame: its first folder below Python's path, else the file; null for built-ins.

    ``shared`` is the common folder of the program's own files.
    """
    file = pl.col("name").str.extract(_FILE).str.replace_all("\\", "/", literal=True)
    inside = (
        file.str.replace(_INSTALLED, "")
        .str.replace(_STANDARD, "python/")
        .str.strip_prefix(shared)
        .str.strip_prefix("/")
    )
    first = inside.str.split("/").list.first()
    return pl.when(file.str.contains(_COMPILED)).then(pl.lit("compiled by Inductor")).otherwise(first)


def _shared_folder(names: pl.Series) -> str:
    """Return the common folder of all files with an absolute path, except installed packages and Python's own."""
    files = names.str.extract(_FILE).drop_nulls().str.replace_all("\\", "/", literal=True)
    installed = files.str.contains(_INSTALLED) | files.str.contains(_STANDARD) | files.str.contains(_COMPILED)
    own = files.filter(files.str.starts_with("/") & ~installed).unique()
    return commonpath([PurePosixPath(file).parent for file in own]) if len(own) else ""


ADVICE_MEMBERS = Table(
    "advice_members",
    "The intervals that each piece of advice is about: kernels, copies, runs of kernels, or idle time.",
    columns("""
        advice str `id` of the advice.
        device start_ns end_ns
    """),
)


def advice_members(advice_intervals: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Return table `advice_members`, each advice's intervals in order of time, from intervals by advice."""
    rows = [frame.select(pl.lit(advice).alias("advice"), pl.all()) for advice, frame in advice_intervals.items()]
    members = pl.concat(rows, how="diagonal_relaxed") if rows else ADVICE_MEMBERS.empty()
    return ADVICE_MEMBERS.conform(members).sort("advice", "device", "start_ns", "end_ns")


ANALYSES = (Analysis(ADVICE_MEMBERS, advice_members),)
