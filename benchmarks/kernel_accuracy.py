"""Measure how often the kernel catalogue agrees with hand-made labels, by kernel name and by GPU time.

    python benchmarks/kernel_accuracy.py [kernel_names.csv]

The labels are next to the traces (``TRACE_CORPUS``, default ``../shared/traces``); ``also_acceptable`` counts as
correct. Each figure is printed twice: with the operator that launched the name most often, and by name alone.

The rules are hand-written, so there is no training set to hold out. Instead, the tables per trace drop the rules that
match only this trace's kernels, and classify it again. The result is a lower bound, as many of these rules were written
from knowledge of the library, not from the trace.
"""

import gzip
import json
import os
import sys
from pathlib import Path

import polars as pl

from trace_analyzer.catalog.kernels import kernel_buckets, rules

CORPUS = Path(os.environ.get("TRACE_CORPUS", Path(__file__).parents[1] / "../shared/traces"))
LABELS = CORPUS.parent / "kernel_names.csv"

by_name = pl.col("right").mean().alias("by_name")
by_time = ((pl.col("right") * pl.col("total_dur_us")).sum() / pl.col("total_dur_us").sum()).alias("by_time")


def labels(path: Path) -> pl.DataFrame:
    """Return the labelled names and their most frequent operator: (name, want, accepted, operator, total_dur_us)."""
    first = pl.col("launching_ops").str.split(";").list.first().str.replace(r":\d+$", "")
    return pl.read_csv(path).select(
        "name",
        pl.col("bucket").alias("want"),
        pl.concat_str("bucket", "also_acceptable", separator="|", ignore_nulls=True).str.split("|").alias("accepted"),
        pl.when(first != "<unlinked>").then(first).alias("operator"),
        "total_dur_us",
    )


def judged(named: pl.DataFrame, dropped: frozenset[str] = frozenset()) -> pl.DataFrame:
    """Return ``named`` with (bucket, rule, right), classified without the dropped rules."""
    decided = kernel_buckets(named, using=[rule for rule in rules() if rule.id not in dropped])
    return named.join(
        decided, on=["name", "operator"], how="left", nulls_equal=True, maintain_order="left"
    ).with_columns(pl.col("accepted").list.contains(pl.col("bucket")).alias("right"))


def names_alone(named: pl.DataFrame) -> pl.DataFrame:
    """Return ``named`` as if no launch were linked to an operator."""
    return named.with_columns(pl.lit(None, pl.String).alias("operator"))


def occurrences(corpus: Path) -> pl.DataFrame:
    """Return which kernel name occurs in which trace: (name, trace)."""
    return pl.concat(
        [
            pl.DataFrame(
                {"name": kernel_names(path), "trace": path.name.removesuffix(".json.gz")},
                schema={"name": pl.String, "trace": pl.String},
            )
            for path in sorted(corpus.glob("*.json.gz"))
        ]
    )


def kernel_names(path: Path) -> list[str]:
    """Return the distinct kernel names of one trace."""
    with gzip.open(path) as file:
        events = json.load(file)["traceEvents"]
    return sorted({event["name"] for event in events if str(event.get("cat")).lower() == "kernel"})


def trace_dependence(named: pl.DataFrame, occurring: pl.DataFrame) -> pl.DataFrame:
    """Return per trace: accuracy on names of its own, rules that match only its names, and accuracy without these."""
    known = judged(named).join(occurring, on="name")
    own_rules = (
        known.group_by("rule").agg(pl.col("trace").unique()).filter(pl.col("trace").list.len() == 1).explode("trace")
    )
    return pl.concat(
        one_trace(
            trace,
            named,
            occurring,
            frozenset(own_rules.filter(pl.col("trace") == trace)["rule"]) - {"unknown"},
        )
        for trace in known["trace"].unique().sort()
    )


def one_trace(trace: str, named: pl.DataFrame, occurring: pl.DataFrame, own: frozenset[str]) -> pl.DataFrame:
    """Return one row of ``trace_dependence``."""
    here = occurring.filter(pl.col("trace") == trace)
    elsewhere = occurring.filter(pl.col("trace") != trace)
    only_here = named.join(here, on="name", how="semi").join(elsewhere, on="name", how="anti")
    without = judged(named.join(here, on="name", how="semi"), own).select(
        by_name.alias("without_own_rules"), by_time.alias("without_own_rules_by_time")
    )
    return (
        judged(only_here)
        .select(
            pl.lit(trace).alias("trace"),
            pl.len().alias("own_names"),
            by_name,
            by_time,
            pl.lit(len(own)).alias("own_rules"),
        )
        .hstack(without)
    )


def main(path: Path) -> None:
    """Print all tables."""
    named = labels(path)
    pl.Config(tbl_rows=100, tbl_cols=20, fmt_str_lengths=100, tbl_width_chars=200, tbl_hide_dataframe_shape=True)
    for title, asked in (("with operators", named), ("by name alone", names_alone(named))):
        answers = judged(asked)
        exact = answers.with_columns((pl.col("bucket") == pl.col("want")).alias("right"))
        print(f"\n{title}: {answers.height} names")
        print(answers.select(by_name, by_time))
        print("without also_acceptable:", exact.select(by_name, by_time))
        print(answers.group_by("want").agg(pl.len().alias("names"), by_name, by_time).sort("want"))
        print(
            "misses:",
            answers.filter(~pl.col("right")).select("want", "bucket", "rule", "name", "total_dur_us"),
        )
    if CORPUS.is_dir():
        occurring = occurrences(CORPUS)
        print("\nper trace, with operators:", trace_dependence(named, occurring))
        print("\nper trace, by name alone:", trace_dependence(names_alone(named), occurring))
        unlabelled = names_alone(occurring.join(named, on="name", how="anti"))
        print(
            "\nnames without a label:",
            kernel_buckets(unlabelled).group_by("bucket").len("names").sort("bucket"),
        )
    used = judged(named)["rule"].n_unique()
    print(f"\n{len(rules())} rules, of which the labelled names use {used} with operators")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else LABELS)
