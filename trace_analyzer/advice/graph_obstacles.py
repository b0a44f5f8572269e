"""Name the parts of a step that a CUDA graph cannot contain, or only under conditions.

These are waits, kernels that differ between steps, collectives, and CPU work.
"""

import polars as pl

from trace_analyzer.advice.opportunity import total, worth_ns
from trace_analyzer.advice.window_context import AdviceContext
from trace_analyzer.frames.intervals import LENGTH_NS
from trace_analyzer.replay.changes import MANY_WAITS, in_pieces
from trace_analyzer.units import count, counted, duration, percent

DIFFERS_RATIO = 0.05
"""Least share of differing kernels that is an obstacle: fewer are prefetched copies or occasional work."""
_OUTSIDE = {"data-loading": "loading data", "cpu-operator": "long CPU work of operators"}
"""Causes of idle time that a graph does not change."""


def obstacles(context: AdviceContext) -> str:
    """Return the obstacles to a graph, each after a semicolon; "" where none is known."""
    known = (
        *_waits(context), *_changes(context), *_caches(context), *_ragged(context), *_collectives(context), *_outside(context)
    )  # fmt: skip
    return "".join(f"; {text}" for text in known)


_APPENDED = r"^\[\[\[[\d, ]*?,? ?(\d+), ?\d+\], ?\[[\d, ]*?,? ?1, ?\d+\]\]"
"""Shapes of ``torch.cat([keys, new], dim=-2)`` with one new row; the group is the number of keys."""
_MANY_TOKENS = 8
"""Least number of different lengths at which caches count as growing with each token."""


def appends_to_cache(context: AdviceContext) -> bool:
    """Return whether an inference program appends a row to tensors of many lengths, as decoding does to its cache."""
    if context.program != "inference":
        return False
    appends = context.host.those(pl.col("name") == "aten::cat", "event_id")
    rows = context.within.shapes.join(appends, left_on="operator_id", right_on="event_id", how="semi")
    shapes = rows.get_column("input_dims")
    lengths = shapes.cast(pl.String).str.extract(_APPENDED).drop_nulls()
    return lengths.n_unique() >= _MANY_TOKENS


def _caches(context: AdviceContext) -> list[str]:
    if not appends_to_cache(context):
        return []
    return ["keys and values grow by a row per token (aten::cat), so that no graph fits the next token: keep them in a cache of fixed size first"]  # fmt: skip


_RAGGED = r"(?i)jagged|^fbgemm::(permute_\w*sparse\w*|asynchronous_\w*cumsum|split_embedding_)|^aten::_nested_"
"""Operators on rows of different lengths: sizes of their tensors depend on the data."""


def _ragged(context: AdviceContext) -> list[str]:
    """Name an operator whose tensors have sizes that depend on the data."""
    is_ragged = (pl.col("kind") == "operator") & pl.col("name").str.contains(_RAGGED)
    names = context.host.names.filter(is_ragged).get_column("name").cast(pl.String).sort()
    return [f"sizes depend on the data in operators such as {names[0]}: pad them first"] if names.len() else []


def _per_step(context: AdviceContext) -> str:
    return " per step" if context.steps > 1 else ""


def is_in_pieces(context: AdviceContext) -> bool:
    """Return whether waits are so frequent that a graph of the launches between them is not worth its own launch."""
    return in_pieces(context.wait_count, context.launch_count, context.steps)


def has_waits(context: AdviceContext) -> bool:
    """Return whether calls within a step wait for the device, and not just one at its end."""
    return context.wait_count >= MANY_WAITS * context.steps


def waits_between(context: AdviceContext) -> str:
    """Return how many waits a graph stands between, for a title; "" where one graph holds a step."""
    if not has_waits(context):
        return ""
    return f" between waits ({count(context.wait_count / context.steps)}{' a step' if context.steps > 1 else ''})"


def _waits(context: AdviceContext) -> list[str]:
    if not has_waits(context):
        return []
    waits = context.wait_count / context.steps
    return [f"{counted(waits, 'call')}{_per_step(context)} wait for the device, which no graph can contain: remove them, or a graph ends at each"]  # fmt: skip


def differing_ratio(context: AdviceContext) -> float:
    """Return the share of a step's kernels that some steps of the window do not launch, by name and blocks."""
    steps = context.step_spans.with_row_index("step")
    if steps.height < 2:
        return 0.0
    kernels = context.within.activities.filter(pl.col("kind") == "kernel").select("name", "blocks", "start_ns")
    own = kernels.sort("start_ns").join_asof(steps.sort("start_ns"), on="start_ns", strategy="backward")
    counts = own.group_by("name", "blocks", "step").len().group_by("name", "blocks").agg(
        pl.col("len").sum(), pl.col("len").min().alias("least"), pl.len().alias("steps")
    )  # fmt: skip
    everywhere = total(counts.filter(pl.col("steps") == steps.height), "least")
    return 1 - everywhere * steps.height / own.height if own.height else 0.0


def _changes(context: AdviceContext) -> list[str]:
    ratio = differing_ratio(context)
    if ratio < DIFFERS_RATIO:
        return []
    return [f"{percent(ratio)} of the kernels differ from step to step, because shapes or branches change: pad or bucket the inputs first"]  # fmt: skip


def _collectives(context: AdviceContext) -> list[str]:
    rows = context.within.activities.filter(pl.col("group") == "communication")
    if rows.is_empty():
        return []
    version = " (NCCL 2.9.6 or later)" if context.platform == "cuda" else ""
    what = counted(rows.height / context.steps, "collective")
    return [f"{what}{_per_step(context)}: all ranks have to capture them in the same order{version}"]


def _outside(context: AdviceContext) -> list[str]:
    """Name CPU work that takes a relevant share of the window and that a graph does not change."""
    outside = context.idle.filter((pl.col("cause") != "cpu-operator") | ~context.is_launching)
    idle = {cause: total(outside.filter(pl.col("cause") == cause), LENGTH_NS) for cause in _OUTSIDE}
    return [
        f"{what} ({duration(idle[cause] / context.steps)}{_per_step(context)}) stays outside of it"
        for cause, what in _OUTSIDE.items()
        if idle[cause] >= worth_ns(context)
    ]
