"""Encode the trees of table `stacks` for the flame graph, limited to what a screen can show."""

from dataclasses import dataclass

import polars as pl

from trace_analyzer.render.html import codec
from trace_analyzer.render.html.labels import short_name
from trace_analyzer.render.html.packages import frame_label, packages
from trace_analyzer.render.html.timeline_rows import MODULE_PREFIX
from trace_analyzer.report import Report
from trace_analyzer.vocabulary import PARTS

MOST_NODES = 3000
"""Most nodes of a tree in the page, those with most time: the others are narrower than a pixel except on a wide
screen."""

_TITLES = {"idle": "Waiting of the device", "cpu": "CPU time", "kernels": "Kernel time"}
_COLOURS = {"module": "k-module", "operator": "k-operator", "call": "k-runtime", "annotation": "k-annotation"}


@dataclass(frozen=True)
class Flame:
    """Hold a tree to draw: its key, title and nodes, callers first; ``left_out`` counts the other nodes."""

    key: str
    title: str
    nodes: pl.DataFrame
    left_out: int


def flames(report: Report) -> tuple[Flame, ...]:
    """Return the trees to draw: idle and kernel time of the judged device, and CPU time.

    Nodes have caller (index among them, -1 for roots), frame, colour (a CSS variable) and value_ns; the callees of a
    caller are in descending order of time.
    """
    labels = dict(report.tables["devices"].select("device", "label").iter_rows())
    judged = next((code for code, label in labels.items() if label == str(report.verdict.device)), None)
    several = len(labels) > 1
    made = []
    for view, title in _TITLES.items():
        device = pl.col("device").is_null() if view == "cpu" else pl.col("device") == (-1 if judged is None else judged)
        tree = report.tables["stacks"].filter(pl.col("view") == view, device)
        if tree.get_column("value_ns").max():
            name = f"{title}, GPU {labels[judged]}" if several and view != "cpu" and judged is not None else title
            made.append(Flame(view, name, _drawn(report, tree), max(0, tree.height - MOST_NODES)))
    return tuple(made)


def payload(drawn: tuple[Flame, ...]) -> str:
    """Return the trees as text for the page's script."""
    nodes = pl.concat([flame.nodes for flame in drawn])
    frames = codec.text(nodes.get_column("frame"))
    header = {
        "flames": [[flame.key, flame.title, flame.nodes.height, flame.left_out] for flame in drawn],
        "labels": [_label(name) for name in frames.values],
    }
    columns = {
        "caller": codec.delta(nodes.get_column("caller")),
        "frame": frames,
        "colour": codec.text(nodes.get_column("colour")),
        "value": codec.plain(nodes.get_column("value_ns")),
    }
    return codec.encode(header, columns)


def _label(name: str) -> str:
    """Return the text of a box: a module's class, a function with its file, a kernel's name or a cause's label."""
    if name in PARTS:
        return PARTS[name].label
    return frame_label(name) or short_name(name.removeprefix(MODULE_PREFIX))


def _drawn(report: Report, tree: pl.DataFrame) -> pl.DataFrame:
    """Return the nodes with most time; a caller has at least the time of each callee, so it comes first."""
    kept = tree.sort("value_ns", "node_id", descending=[True, False]).head(MOST_NODES).with_row_index("place")
    places = kept.select(parent_id=pl.col("node_id"), caller=pl.col("place").cast(pl.Int64))
    python = packages(report).kinds.select(frame="name", of_package=pl.format("k-{}", "kind"))
    groups = (
        report.tables["activities"]
        .select(
            pl.col("name").cast(pl.String).alias("frame"), of_kernel=pl.format("k-{}", pl.coalesce("group", "kind"))
        )
        .unique("frame", keep="first", maintain_order=True)
    )
    joined = kept.join(places, on="parent_id", how="left", maintain_order="left")
    joined = joined.join(python, on="frame", how="left", maintain_order="left")
    joined = joined.join(groups, on="frame", how="left", maintain_order="left")
    kind = pl.col("kind")
    colour = (
        pl.when(kind == "cause").then(pl.format("p-{}", "frame"))
        .when(kind == "kernel").then("of_kernel")
        .when(kind == "python").then("of_package")
        .otherwise(kind.replace_strict(_COLOURS, default="k-host", return_dtype=pl.String))
    )  # fmt: skip
    return joined.select(
        pl.col("caller").fill_null(-1),
        pl.col("frame").fill_null(""),
        colour=colour.fill_null("k-other"),
        value_ns="value_ns",
    )
