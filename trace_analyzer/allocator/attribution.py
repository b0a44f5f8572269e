"""Attribute blocks to the line, module, operator and category of their call stacks; what charts of memory draw.

A category needs evidence: a frame that shows the pass of training (`catalog/allocations.toml`), and a life that shows
whether the pass keeps the block. Blocks without evidence stay unknown.
"""

from functools import cache

import polars as pl
from msgspec import Struct

from trace_analyzer.allocator.snapshot import Snapshot, live_at, peaks_of, with_held
from trace_analyzer.catalog import matches, rows
from trace_analyzer.catalog.event_names import OPTIMIZER_STEP
from trace_analyzer.schema import Table, columns

UNKNOWN = "unknown"
BEFORE = "allocated before the record"
ROUNDED = "rounded up by the allocator"
_PRIORITY = ("workspace", "gradient", "backward", "optimizer", "forward", "parameter")
"""Roles in the order in which they decide: a hook that runs a forward pass within backward work is backward work."""
ATTENTION = ("attention", "softmax")
"""Roles that a frame of a loss, or of attention that keeps no scores, overrules."""
_KEPT = {"forward": "activations", "backward": "gradients", "optimizer": "optimizer state"}
"""Pass -> category of what outlives it."""
_CERTAIN = {"workspace": "library workspaces", "gradient": "gradients", "parameter": "parameters"}
"""Role -> category, whatever the life."""
NAMED = (*sorted(set(_CERTAIN.values()) | set(_KEPT.values())), "temporaries")
"""Categories that evidence can name."""

MEANINGS = {
    "parameters": "Made in a constructor, or by a module that moves or initializes them",
    "activations": "Made in a forward pass, and kept for the backward pass; without one, all that a forward pass made",
    "gradients": "Made in a backward pass, which they outlive",
    "optimizer state": "Made in an optimizer's step, which they outlive",
    "temporaries": "Made in a pass that they do not outlive",
    "library workspaces": "Scratch memory of libraries such as cuBLAS",
    BEFORE: "Live before the record, which does not tell what made it: parameters and the optimizer's state, as a rule",
    ROUNDED: "What the allocator added to the sizes that were asked for",
    UNKNOWN: "No event around the allocation tells which pass made it",
}
"""What each category is."""

STACKS = Table(
    "memory_stacks",
    "What the call stacks of allocations show.",
    columns("""
    stack i64 Number of the stack.
    line str Innermost line of the program, `file:line function`; a library's for want of any, else the backward node.
    module str Innermost `forward` of the program, `file:line forward`; null for none.
    unit str What checkpointing runs again: the module here, in a trace the kind of the module around the innermost.
    instance str The module around the innermost, of which a unit has several; null where only code is known.
    operator str Backward node, else outermost operator of ATen, else function of PyTorch; null for none.
    pass str Role that decides (`catalog/allocations.toml`); null for none.
    attention bool Whether a frame is named after attention or softmax, and none after a loss or attention without scores.
    softmax bool The same of softmax alone.
    evaluation bool Whether a frame is named after evaluation.
    """),
)


class FrameRule(Struct, frozen=True):
    """A row of ``catalog/allocations.toml``."""

    role: str
    column: str
    pattern: str
    source: str


@cache
def frame_rules() -> tuple[FrameRule, ...]:
    """Return the rules. Raises ``UsageError``."""
    return rows("allocations.toml", "rules", FrameRule, lambda rule: rule.role + rule.pattern)


@cache
def shows(role: str, name: str = "name") -> pl.Expr:
    """Return whether a frame (columns name, file) shows a role; ``name`` is the column of its name."""
    rules = [rule for rule in frame_rules() if rule.role == role]
    return pl.any_horizontal(
        matches(pl.col({"name": name}.get(rule.column, rule.column)), rule.pattern) for rule in rules
    )


def stack_table(snapshot: Snapshot) -> pl.DataFrame:
    """Return table `memory_stacks` from frames and stacks."""
    by_role = {role: shows(role) for role in dict.fromkeys(rule.role for rule in frame_rules())}
    name, file = pl.col("name"), pl.col("file")
    in_python = file.str.contains(r"\.py$|^<|^/tmp/ipykernel|\.ipynb")
    text = pl.format("{}:{} {}", file, pl.col("line"), name)
    frames = snapshot.frames.with_row_index("frame").with_columns(
        pl.col("frame").cast(pl.Int64), **by_role
    ).with_columns(
        own_line=pl.when(in_python & ~pl.col("library")).then(text),
        any_line=pl.when(in_python).then(text),
        own_forward=pl.when(in_python & ~pl.col("library") & (name == "forward")).then(text),
        node=name.str.extract(r"^torch::autograd::generated::([0-9A-Za-z_]+?)(?:_apply_functional|::apply)"),
        aten=name.str.extract(r"^at::_ops::([0-9A-Za-z_]+)::call"),
        torch_function=pl.when(in_python & file.str.contains(r"[\\/]torch[\\/](nn[\\/]functional|_tensor|functional)\.py$")).then(name),
    )  # fmt: skip
    return STACKS.conform(
        snapshot.stacks.join(frames, on="frame", how="left", maintain_order="left")
        .group_by("stack", maintain_order=True)
        .agg(
            line=pl.coalesce(_first("own_line"), _first("any_line"), pl.format("backward: {}", _first("node"))),
            module=_first("own_forward"),
            unit=_first("own_forward"),
            instance=pl.lit(None),
            operator=pl.coalesce(_first("node"), pl.col("aten").drop_nulls().last(), _first("torch_function")),
            **{role: pl.col(role).any() for role in (*_PRIORITY, "evaluation")},
            **{role: pl.col(role).any() & ~pl.col("scoreless").any() for role in ATTENTION},
        )
        .with_columns(parameter=pl.col("parameter") | pl.col("line").str.ends_with(" __init__"))  # of a module, mostly
        .with_columns(pl.coalesce(pl.when(role).then(pl.lit(role)) for role in _PRIORITY).alias("pass"))
    )


def _first(name: str) -> pl.Expr:
    return pl.col(name).drop_nulls().first()


def attributed(lives: pl.DataFrame, snapshot: Snapshot) -> pl.DataFrame:
    """Return `lives` with columns line, module, operator, pass and category, by their call stacks."""
    return categorized(lives.join(stack_table(snapshot), on="stack", how="left", maintain_order="left"), snapshot)


def categorized(lives: pl.DataFrame, snapshot: Snapshot) -> pl.DataFrame:
    """Return `lives` that have line, module, operator and pass with their category."""
    is_recorded = pl.col("start_event").is_not_null()
    allocated = _passes(lives.filter(is_recorded).sort("device", "start_event"), snapshot)
    return (
        pl.concat([lives.filter(~is_recorded), allocated], how="diagonal")
        .with_columns(_category())
        .select(*lives.columns, "category")
        .with_columns(line=pl.coalesce("line", pl.when(pl.col("category") == BEFORE).then("category"), pl.lit(UNKNOWN)))
    )


def _passes(allocated: pl.DataFrame, snapshot: Snapshot) -> pl.DataFrame:
    """Fill the pass of allocations without a stack, and add the next event that begins another pass.

    Backward work runs on a thread of its own, which has no Python stack: between allocations of a backward call, what has
    no stack belongs to it. Optimizers mark their steps (`OPTIMIZER_STEP`, `annotations`).
    """
    steps = snapshot.annotations.filter(pl.col("name").str.contains(OPTIMIZER_STEP))
    marks = steps.select("device", "time_us", inside=pl.col("stage") == "START").sort("time_us")
    inside = pl.lit(None, pl.Boolean)
    if marks.height and allocated.get_column("time_us").null_count() == 0:
        times = allocated.select("device", "time_us").with_row_index().sort("time_us")
        times = times.join_asof(marks, on="time_us", by="device", check_sortedness=False).sort("index")
        inside = pl.lit(times.get_column("inside"))
    last = pl.col("pass").forward_fill().over("device")
    silent = pl.col("stack").is_null() | pl.col("line").is_null() & pl.col("operator").is_null()
    rows = allocated.with_columns(
        pl.coalesce("pass", pl.when(inside).then(pl.lit("optimizer")), pl.when(silent & (last == "backward")).then(last)).alias("pass")
    )  # fmt: skip
    which = pl.col("pass").replace({"gradient": "backward"})
    changes = [
        pl.when(condition).then("start_event").shift(-1).backward_fill().over("device").alias(name)
        for name, condition in {
            "next_forward": which == "backward", "next_backward": which.is_in(["forward", "optimizer"]),
            "next_optimizer": which.is_in(["forward", "backward"]),
        }.items()
    ]  # fmt: skip
    return rows.with_columns(*changes)


def _category() -> pl.Expr:
    """Return the category: what outlives its pass is kept by it, what does not is temporary."""
    end = pl.col("end_event")
    kept = [
        pl.when(pl.col("pass") == name).then(
            pl.when(end.is_null() | (end > pl.col(f"next_{name}"))).then(pl.lit(category)).otherwise(pl.lit("temporaries"))
        )
        for name, category in _KEPT.items()
    ]  # fmt: skip
    # Without a backward pass, nothing shows which results of a forward pass are kept for one.
    kept.insert(
        0, pl.when((pl.col("pass") == "forward") & pl.col("next_forward").is_null()).then(pl.lit("activations"))
    )
    certain = [pl.when(pl.col("pass") == role).then(pl.lit(category)) for role, category in _CERTAIN.items()]
    before = pl.when(pl.col("start_event").is_null() & pl.col("pass").is_null()).then(pl.lit(BEFORE))
    unheld = pl.when(pl.col("start_event").is_not_null()).then(pl.coalesce(kept))
    return pl.coalesce(*certain, unheld, before, pl.lit(UNKNOWN)).alias("category")


def live_at_peak(lives: pl.DataFrame, levels: pl.DataFrame, rest: str) -> pl.DataFrame:
    """Return the blocks live at the peaks with their category, and as ``rest`` the bytes that no block explains."""
    unexplained = pl.when(pl.col("bytes") < 0).then(pl.lit(UNKNOWN)).otherwise(pl.lit(rest))
    return live_at(lives, peaks_of(levels)).with_columns(pl.col("category").fill_null(unexplained))


_POINTS, _BINS = 2_000, 400
_SEGMENTS = 40
_LEVELS = ("category", "module", "line")


def curve(levels: pl.DataFrame, lives: pl.DataFrame, device: int) -> pl.DataFrame:
    """Return event, live_bytes and reserved_bytes of a device, thinned out, and the bytes of each category then.

    Of each bin the row with most live bytes stays. ``rest`` has what no recorded allocation of a known category holds.
    """
    own = levels.filter(pl.col("device") == device)
    bins = pl.int_range(pl.len()) * _BINS // pl.max_horizontal(pl.len(), _BINS)
    highest = pl.all().sort_by("live_bytes", descending=True).first()
    rows = (
        own.group_by(bins.alias("bin"), maintain_order=True)
        .agg(highest)
        .select("device", "event", "live_bytes", "reserved_bytes")
    )
    recorded = lives.filter((pl.col("device") == device) & pl.col("start_event").is_not_null())
    by_category = {category: recorded.filter(pl.col("category") == category) for category in NAMED}
    return with_held(rows, by_category).with_columns(rest=pl.col("live_bytes") - pl.sum_horizontal(NAMED))


def segments(blocks: pl.DataFrame, device: int) -> pl.DataFrame:
    """Return the blocks of the largest segments, with the segment's row and the offset in it."""
    own = blocks.filter(pl.col("device") == device)
    largest = (
        own.group_by("segment")
        .agg(pl.col("bytes").sum(), start=pl.col("address").min())
        .sort("bytes", "segment", descending=[True, False])
        .head(_SEGMENTS)
        .with_row_index("row")
    )
    placed = own.join(largest.select("segment", "row", "start"), on="segment").sort("row", "address").head(_POINTS)
    return placed.with_columns(offset_bytes=pl.col("address") - pl.col("start"))


def tree(at_peak: pl.DataFrame, device: int) -> list[tuple[int, tuple[str, ...], int]]:
    """Return the peak as nodes: caller (-1: none), path of category, module and line, and bytes.

    What has no module hangs directly below its category.
    """
    live = at_peak.filter((pl.col("device") == device) & (pl.col("bytes") > 0))
    nodes: list[tuple[int, tuple[str, ...], int]] = []
    places: dict[tuple[str, ...], int] = {(): -1}
    for depth in range(1, len(_LEVELS) + 1):
        sums = live.group_by(_LEVELS[:depth]).agg(pl.col("bytes").sum())
        for *path, size in (
            sums.sort("bytes", *_LEVELS[:depth], descending=[True, *[False] * depth]).head(_POINTS).rows()
        ):
            caller = places.get(tuple(path[:-1]))
            if caller is None:
                continue
            is_named_again = depth > 1 and path[-1] in (path[-2], BEFORE)
            places[tuple(path)] = caller if is_named_again else len(nodes)
            if not is_named_again:
                nodes.append((caller, tuple(path), size))
    return nodes
