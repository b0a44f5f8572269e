"""Note which kernels of replayed graphs took their operators from where, what is ambiguous, and what is missing."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from trace_analyzer.errors import Note
from trace_analyzer.ingest.trace import CaptureFiles
from trace_analyzer.units import counted, percent

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
