"""Define the rules for work of the CPU while the device waits."""

from dataclasses import replace

import polars as pl

from trace_analyzer.advice.opportunity import Opportunity, idle_opportunity, length_ns, total
from trace_analyzer.advice.window_context import AdviceContext
from trace_analyzer.catalog.event_names import preparation_of
from trace_analyzer.units import percent

COMPILED_REGION = r"^Torch-Compiled Region|^## Call CompiledFxGraph"
"""Names that Dynamo and Inductor give to their compiled code at run time."""

_PREPARED = {
    ("random numbers", True): 'noise = torch.randn(shape, device="cuda")  # random numbers where they are used',
    ("text", True): "# text: tokenize in the data loader's workers (a Dataset or collate_fn), or once before training",
    ("text", False): "# text: tokenize the next requests in another thread or process, while the GPU works on these",
    (
        "images or sound",
        True,
    ): """x = transforms(images.to("cuda"))  # torchvision.transforms.v2 or torchaudio compute where the tensor is
# or in the data loader's workers""",
    (
        "images or sound",
        False,
    ): """inputs = processor(images, return_tensors="pt", device="cuda")  # transformers: a fast image processor resizes on the GPU
# else x = transforms(images.to("cuda")): torchvision.transforms.v2 or torchaudio compute where the tensor is""",
}
"""Code by the prepared data (the rules of `preparation_of`), and whether the program trains."""


def _preparations(context: AdviceContext, idle: pl.DataFrame) -> pl.Series:
    """Return the data that the CPU prepares in each idle interval (``prepared``), except in launching operators."""
    events = idle.get_column("event_id")
    by_event = context.host.each(preparation_of(pl.col("name")), events)
    function = pl.col("python_function").cast(pl.String)
    by_function = context.blamed.codes.select(preparation_of(function)).to_series()[idle.get_column("code")]
    prepared = pl.DataFrame([by_event.alias("by_event"), by_function.alias("by_function"), events.alias("event_id")])
    computes = ~context.is_launching.fill_null(False)
    return prepared.select(pl.when(computes).then(pl.coalesce("by_event", "by_function")).alias("prepared")).to_series()


_IN_REGION = """# run the compiled region once before the loop, with these shapes: its first call compiles, or loads what is kept
# does it come back later? TORCH_LOGS=recompiles,guards names the guards that fail, and those that each call checks"""
_PART_OF_CODE = 0.1
"""Least share of the idle time for which the advice shows code."""
_ON_CPU = """x = x.to("cuda", non_blocking=True)  # before the operator, so that the GPU computes it; CPU tensors: create them where they are used
# transform data in the data loader's workers, not between launches"""
_BEFORE_LAUNCH = (
    "# run them once before the loop, with these shapes: a first call starts its library, or searches for its kernel"
)


def cpu_operators(context: AdviceContext) -> Opportunity | None:
    """Propose less CPU computation: idle time in long operators, except those that prepare data.

    An operator that launches work afterwards does not compute on the CPU: it takes long to prepare its launch.
    """
    idle = context.idle.filter(pl.col("cause") == "cpu-operator")
    idle = idle.filter(_preparations(context, idle).is_null())
    before_launch, idle_ns = idle.filter(context.is_launching), total(idle, length_ns())
    why = "single operators keep the CPU busy for over 1 ms without a runtime call, while the GPU waits"
    if before_launch.height:
        share = percent(total(before_launch, length_ns()) / max(1, idle_ns))
        why += f"; {share} of it in GPU operators before their launch"
    regions = context.host.texts(before_launch.get_column("event_id")).cast(pl.String).str.contains(COMPILED_REGION)
    compiled_ns, launch_ns = (total(before_launch.filter(rows), length_ns()) for rows in (regions, ~regions))
    rest_ns = idle_ns - compiled_ns - launch_ns
    lines = ((compiled_ns, _IN_REGION), (rest_ns, _ON_CPU), (launch_ns, _BEFORE_LAUNCH))
    codes = [code for ns, code in sorted(lines, reverse=True) if ns >= _PART_OF_CODE * idle_ns]
    opportunity = idle_opportunity(context, idle, ("cpu-operator",), why)
    return opportunity and replace(opportunity, values={"snippet": "\n".join(codes)})


def cpu_preparation(context: AdviceContext) -> Opportunity | None:
    """Propose moving preparation out of the loop: idle time in which the CPU makes random numbers, tokens or images."""
    causes = ("cpu-operator", "python")
    idle = context.idle.filter(pl.col("cause").is_in(causes))
    idle = idle.with_columns(_preparations(context, idle)).drop_nulls("prepared")
    by_kind = (
        idle.group_by("prepared").agg(length_ns().sum().alias("ns")).sort("ns", "prepared", descending=[True, False])
    )
    kinds = [kind for kind, ns in by_kind.iter_rows() if ns >= _PART_OF_CODE * total(idle, length_ns())]
    trains = context.program != "inference"
    codes = [_PREPARED.get((kind, trains)) or _PREPARED[kind, True] for kind in kinds]
    why = f"the loop prepares {' and '.join(kinds)} on the CPU while the GPU waits"
    opportunity = idle_opportunity(context, idle.drop("prepared"), causes, why, " in functions that prepare data")
    return opportunity and replace(opportunity, values={"snippet": "\n".join(codes)})
