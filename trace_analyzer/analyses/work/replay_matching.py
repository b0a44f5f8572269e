"""Find runs of kernels that equal those of a graph replay, by names, grids and blocks in order, and note what is missing.

Sequences are compared by rolling hashes (Karp and Rabin 1987): the sum of codes times powers of an odd number modulo
2**64. `trace_analyzer.analyses.replays` interprets the matches.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import polars as pl

from trace_analyzer import thresholds
from trace_analyzer.errors import Note
from trace_analyzer.frames.lookups import map_unique
from trace_analyzer.ingest.trace import CaptureFiles
from trace_analyzer.units import counted, percent

KEYS = ("name", "grid", "block")
CALL = ("operator", "input_dims", "input_types", "input_strides", "concrete_inputs")
"""Columns that identify a call: equal ones mean that the kernels do the same work."""

_STEP = 6_364_136_223_846_793_005
"""An odd number, which has an inverse modulo 2**64 (Knuth's MMIX multiplier)."""
_STEP_BACK = pow(_STEP, -1, 2**64)
_MOST_VERSIONS = 64
"""Most runs of different calls that are compared for one sequence; more would not agree in anything."""

_AGREED = ("call", "operator_code", "module_code")
_RUNS = {"sequence": pl.UInt64, "length": pl.UInt32, "first": pl.UInt32}


def is_replayed(kernels: pl.DataFrame) -> pl.Series:
    """Return whether a graph launch enqueued each kernel."""
    by_graph = pl.col("launch_name").str.contains("(?i)graph_?launch").fill_null(False)
    return map_unique(kernels.select("launch_name"), by_graph).to_series()


def sequences_of(graphs: pl.DataFrame) -> pl.DataFrame:
    """Return (launch_id, length, sequence): the hash of each graph launch with enough kernels.

    ``graphs`` has launch_id, place and code, in order of both.
    """
    return (
        graphs.group_by("launch_id", maintain_order=True)
        .agg(pl.len().cast(pl.UInt32).alias("length"), (pl.col("code") * _powers()).sum().alias("sequence"))
        .filter(pl.col("length") >= thresholds.REPLAY_KERNELS)
    )


def whole_matches(graphs: pl.DataFrame, executed: pl.DataFrame) -> pl.DataFrame:
    """Return (launch_id, place, position, sources, `_AGREED` flags) for graph launches whose whole sequence was also executed.

    ``executed`` has source, track, code, call, operator_code and module_code in order; positions are its rows. Where
    several runs equal the sequence, the position is in the first one, ``sources`` lists those of all runs, and the flags
    show for each place in which columns all runs agree.
    """
    sequences = sequences_of(graphs)
    wanted = sequences.select("length", "sequence").unique()
    matches = [_runs(executed, wanted, length) for length in wanted.get_column("length").unique().sort()]
    runs = pl.concat(matches) if matches else pl.DataFrame(schema=_RUNS)
    places = runs.with_columns(pl.int_ranges(0, "length").alias("place")).explode("place", empty_as_null=False)
    agreed = _agreement(places, executed, ["length", "sequence"])
    return sequences.join(agreed, on=["length", "sequence"], how="inner").drop("length", "sequence")


def part_matches(graphs: pl.DataFrame, executed: pl.DataFrame) -> pl.DataFrame:
    """Return the columns of `whole_matches` for kernels in an executed run of enough neighbours, not of all kernels."""
    length = thresholds.REPLAY_NEIGHBOURS
    sequences = sequences_of(graphs)
    firsts = sequences.unique(["length", "sequence"], keep="first", maintain_order=True)
    kinds = graphs.join(firsts.select("launch_id"), on="launch_id", how="semi", maintain_order="left")
    windows = kinds.select(
        "launch_id",
        pl.col("place").alias("from"),
        _windows("code", length).alias("sequence"),
        (pl.col("launch_id") == pl.col("launch_id").shift(1 - length)).alias("whole"),
    ).filter("whole")
    wanted = windows.select("sequence", pl.lit(length, pl.UInt32).alias("length")).unique()
    runs = _runs(executed, wanted, length)
    pairs = windows.join(runs, on="sequence", how="inner").with_columns(pl.int_ranges(0, "length").alias("offset"))
    places = pairs.explode("offset", empty_as_null=False).with_columns(
        (pl.col("from") + pl.col("offset")).alias("place"), (pl.col("first") + pl.col("offset")).alias("position")
    )
    agreed = _agreement(places.drop("first"), executed, ["launch_id"])
    representative = sequences.join(
        firsts.select("length", "sequence", pl.col("launch_id").alias("like")), on=["length", "sequence"]
    )
    return (
        representative.select("launch_id", "like")
        .join(agreed.rename({"launch_id": "like"}), on="like", how="inner")
        .drop("like")
    )


def captured_matches(
    graphs: pl.DataFrame, captured: pl.DataFrame, fits: Callable[[pl.DataFrame], pl.Series]
) -> pl.DataFrame:
    """Return the columns of `whole_matches` for graph launches with as many kernels as a capture has launches.

    Kernels match launches in order. Of several captures, those count whose launches fit the kernels best (``fit``, the
    share): ``fits`` tells of rows with name and operator whether they do, null where they do not show it. ``captured`` has capture, place,
    operator, source, call, operator_code and module_code; positions are its rows.
    """
    sequences = sequences_of(graphs)
    firsts = sequences.unique(["length", "sequence"], keep="first", maintain_order=True)
    counts = captured.group_by("capture").len("length")
    rows = captured.select("capture", "place", "operator").with_row_index("position").join(counts, on="capture")
    kernels = graphs.select("launch_id", "place", "name").join(firsts, on="launch_id", how="inner")
    places = kernels.join(rows, on=["length", "place"], how="inner")
    fit = places.with_columns(fits(places).alias("fit")).group_by("launch_id", "capture").agg(pl.col("fit").mean())
    best = fit.filter((pl.col("fit") == pl.col("fit").max().over("launch_id")).fill_null(False))
    of_best = places.join(best, on=["launch_id", "capture"], how="inner")
    agreed = _agreement(of_best, captured, ["length", "sequence", "fit"])
    return sequences.join(agreed, on=["length", "sequence"], how="inner").drop("length", "sequence")


def _agreement(places: pl.DataFrame, executed: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """Return for each place the first position of its runs, and the columns in which all of them agree."""
    if "position" not in places.columns:
        places = places.with_columns((pl.col("first") + pl.col("place")).alias("position"))
    rows = executed.select("source", *_AGREED)[places.get_column("position").cast(pl.UInt32)]
    return (
        places.select(*by, "place", pl.col("position").cast(pl.UInt32))
        .hstack(rows)
        .sort("position")
        .group_by(*by, "place", maintain_order=True)
        .agg(
            pl.col("position").first(),
            pl.col("source").unique().sort().alias("sources"),
            *((pl.col(column).n_unique() == 1) for column in _AGREED),
        )
    )


def _runs(executed: pl.DataFrame, wanted: pl.DataFrame, length: int) -> pl.DataFrame:
    """Return (sequence, length, first): the rows at which executions of sequences of this length start.

    Of executions of one source with equal calls, only the first is returned. A window's sum of codes times powers, divided by the
    power at its start, is independent of its position.
    """
    windows = executed.select(
        pl.int_range(pl.len(), dtype=pl.UInt32).alias("first"),
        "source",
        (pl.col("track") == pl.col("track").shift(1 - length)).alias("whole"),
        _windows("code", length).alias("sequence"),
        _windows("call", length).alias("calls"),
    ).filter("whole")
    of_length = wanted.filter(pl.col("length") == length).select("sequence", "length")
    return (
        windows.join(of_length, on="sequence", how="inner")
        .group_by("sequence", "length", "calls", "source")
        .agg(pl.col("first").min())
        .sort("first")
        .group_by("sequence", "length", maintain_order=True)
        .head(_MOST_VERSIONS)
        .select(pl.col(column).cast(dtype) for column, dtype in _RUNS.items())
    )


def _windows(column: str, length: int) -> pl.Expr:
    """Return the hash of the ``length`` values from each row on; arithmetic wraps at 2**64."""
    terms = pl.col(column) * _powers()
    upto = terms.cum_sum()
    return (upto.shift(1 - length) - upto + terms) * pl.repeat(_STEP_BACK, pl.len(), dtype=pl.UInt64).cum_prod().shift(
        1, fill_value=1
    )


def _powers() -> pl.Expr:
    """Return 1, step, step**2, ... modulo 2**64."""
    return pl.repeat(_STEP, pl.len(), dtype=pl.UInt64).cum_prod().shift(1, fill_value=1)


_HOW = {
    "sequence": "from the same kernels launched one by one (equal names, grids and blocks in order)",
    "names": "from kernels of the same names launched one by one in the same order (grids were not recorded)",
    "capture": "from the launches of a graph's capture, in their order",
    "part": "from runs of the same kernels launched one by one; the whole sequence was not recorded",
}


def file_notes(matched: pl.DataFrame, files: CaptureFiles | None, rank: int | None) -> Iterator[Note]:
    """Note which files of a folder the graph launches repeat, and which files say nothing."""
    if files is None:
        return
    if files.left_out:
        listed = "; ".join(files.left_out)
        yield Note(
            "capture-left-out", "warning", f"files of the capture folder are left out: {listed}", len(files.left_out)
        )
    if not files.traces:
        whose = "" if rank is None else f" of this trace's rank, {rank}"
        yield Note(
            "capture-unmatched", "warning", f"the capture folder has no trace{whose}: --capture FILE takes any file"
        )
    if files.other_rank is not None:
        text = f"the captures are of rank {files.other_rank}, the only one in the folder: this trace is of rank {rank}"
        yield Note("capture-rank", "info", text)
    if matched.is_empty() or len(files.traces) < 2:
        return
    names = [Path(file.path).name for file in files.traces]
    launches = matched.group_by("launch_id").agg(pl.col("sources").explode().unique().sort())
    for sources, count in launches.group_by("sources").len().sort("sources").iter_rows():
        fitting = [names[source - 1] for source in sources if source]
        kernels = f"the kernels of {counted(count, 'graph launch', 'graph launches')} are those of"
        if len(fitting) > 1:
            text = f"{kernels} {len(fitting)} capture files alike: {_some(fitting)}"
            yield Note("ambiguous-capture", "warning", text, count)
        elif fitting:
            yield Note("capture-file", "info", f"{kernels} {fitting[0]}", count)


def _some(texts: Sequence[str]) -> str:
    return "; ".join([*texts[:4], *(["..."] if len(texts) > 4 else [])])


def match_notes(graphs: pl.DataFrame, matched: pl.DataFrame, files: CaptureFiles | None) -> tuple[Note, ...]:
    """Note which share of replayed time took its operators from which source, and what is ambiguous."""
    total = int(graphs.get_column("duration_ns").sum())
    notes = list(_unmatched(graphs, matched, files))
    if matched.is_empty():
        return tuple(notes)
    for how, text in _HOW.items():
        rows = matched.filter(pl.col("replay_match") == how)
        if rows.is_empty():
            continue
        launches, least = rows.select(pl.col("launch_id").n_unique(), pl.col("replay_confidence").min()).row(0)
        share = int(rows.get_column("duration_ns").sum()) / total if total else 0.0
        notes.append(
            Note(
                "replay-match",
                "info",
                f"kernels of {counted(launches, 'graph launch', 'graph launches')}, {percent(share)} of the replayed time, take their"
                f" operators {text}; confidence {percent(least)}{' or more' if least < 1 and launches > 1 else ''}",
                launches,
            )
        )
    ambiguous = matched.filter(~pl.col("agrees")).get_column("launch_id").n_unique()
    if ambiguous:
        notes.append(
            Note(
                "ambiguous-replay",
                "info",
                f"{counted(ambiguous, 'graph launch', 'graph launches')} replayed kernels whose executions differ in shapes or"
                " operators: which of them the graph holds is not known, so the FLOP of these kernels are not either",
                ambiguous,
            )
        )
    return tuple(notes)


def _unmatched(graphs: pl.DataFrame, matched: pl.DataFrame, files: CaptureFiles | None) -> tuple[Note, ...]:
    """Note which graph launches have no operators, and what to record to get them."""
    left = graphs if matched.is_empty() else graphs.join(matched, on="launch_id", how="anti")
    total, time = int(graphs.get_column("duration_ns").sum()), int(left.get_column("duration_ns").sum())
    if left.is_empty() or not total:
        return ()
    launches = left.get_column("launch_id").n_unique()
    if files is not None and files.traces and matched.is_empty():
        why = "the capture holds no such sequence of kernels, and no capture of as many launches: record both with the same sizes"
        return (Note("capture-unmatched", "warning", f"no graph launch could be matched: {why}", launches),)
    return (
        Note(
            "replay-unmatched",
            "info",
            f"no operators for {counted(launches, 'graph launch', 'graph launches')}, {percent(time / total)} of the replayed time:"
            " --capture FILE takes them from a second trace, of the same program without graphs or of their capture",
            launches,
        ),
    )


def annotation_note(graphs: pl.DataFrame, named: pl.DataFrame) -> Note:
    """Note the share of replayed time that the annotations name."""
    total, time = (int(rows.get_column("duration_ns").sum()) for rows in (graphs, named))
    if named.is_empty():
        return Note(
            "annotations-unmatched",
            "warning",
            "the graph annotations name no kernel of this trace: they are of another process, or this profiler records no graph node ids",
        )
    share = percent(time / total) if total else percent(0.0)
    return Note(
        "graph-annotations",
        "info",
        f"{counted(named.height, 'kernel')} that graphs replayed, {share} of the replayed time, are named by the program's graph annotations",
        named.height,
    )
