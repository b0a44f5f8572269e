"""Name activities as Kineto does where an exporter wrote kinds, and nodes of graphs as the program did."""

from collections.abc import Sequence

import polars as pl

from trace_analyzer.ingest.trace import annotation_name

COPY_KINDS = ("copy_kind", "source_kind", "destination_kind", "memory_kind")
NODE_NAMES = ("module", "annotation", "label")
"""Arguments with names of a graph's node, the most telling first."""

# Kinds of copies and of memory (cupti_activity.h: CUpti_ActivityMemcpyKind, CUpti_ActivityMemoryKind) as Kineto names them.
_COPIES = ["Unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"]
_MEMORY = ("Unknown", "Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static")


def activity_names(device: pl.DataFrame) -> pl.Expr:
    """Return names as Kineto writes them: "Memcpy HtoD (Pageable -> Device)" for "Memcpy" with these kinds."""
    known = [
        column
        for column in COPY_KINDS
        if column in device.columns and device.get_column(column).null_count() < device.height
    ]
    if not known:
        return pl.col("name")
    copied, source, destination, memory = (
        _named_kind(column, _MEMORY if column != "copy_kind" else _COPIES) if column in known else pl.lit("Unknown")
        for column in COPY_KINDS
    )
    name, given = pl.col("name").cast(pl.String), pl.any_horizontal(pl.col(known).is_not_null())
    return (
        pl.when((name == "Memcpy") & given).then(pl.format("Memcpy {} ({} -> {})", copied, source, destination))
        .when((name == "Memset") & given).then(pl.format("Memset ({})", memory))
        .otherwise(name)
        .cast(pl.Categorical)
        .alias("name")
    )  # fmt: skip


def _named_kind(column: str, names: Sequence[str]) -> pl.Expr:
    """Return the name of a kind, which files have as its number or in words such as `device_static`."""
    numbers = {str(number): name for number, name in enumerate(names)}
    words = {name.lower().replace(" ", "_"): name for name in names}
    return pl.col(column).cast(pl.String).str.to_lowercase().replace_strict(numbers | words, default="Unknown")


def node_names(device: pl.DataFrame) -> pl.Expr:
    """Return what the program called the node of a graph: its module, else the innermost of its names."""
    known = [column for column in NODE_NAMES if column in device.columns]
    if not known:
        return pl.lit(None, dtype=pl.Categorical()).alias("annotation")
    texts = pl.coalesce(pl.col(known).cast(pl.String))
    names = {
        text: annotation_name(text) for text in device.select(texts.alias("text")).to_series().drop_nulls().unique()
    }
    return texts.replace_strict(names, default=None, return_dtype=pl.String).cast(pl.Categorical).alias("annotation")
