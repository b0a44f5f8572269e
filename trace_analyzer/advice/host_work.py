"""Declare the rules of advice for work that the CPU itself does while the device waits."""

from dataclasses import replace

import polars as pl

from trace_analyzer.advice.opportunity import Opportunity, idle_opportunity, length_ns, total
from trace_analyzer.advice.window_context import AdviceContext
from trace_analyzer.units import percent

COMPILED_REGION = r"^Torch-Compiled Region|^## Call CompiledFxGraph"
"""What Dynamo and Inductor call the code that they compiled, where it runs."""

_RANDOM = r"randn|normal_|uniform_|randint|randperm|bernoulli|\brand$|exponential_|multinomial"
_TEXT = r"(?i)tokeniz|\b(batch_)?encode(_plus|_batch)?$|json/decoder"
_IMAGES = (
    r"(?i)image_transforms|image_processing|feature_extraction|torchvision/transforms|torchaudio/|PIL/|cv2|librosa|\bresize\b"
    r"|\bpreprocess(_\w+)?$|^aten::_?upsample_"
)
"""Functions and operators that prepare data: random numbers, text, images and sound."""

_PREPARATION = {
    "random numbers": _RANDOM,
    "text": _TEXT,
    "images or sound": _IMAGES,
}
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
"""Code by what is prepared, and whether the program trains."""


def _prepares(context: AdviceContext, idle: pl.DataFrame, pattern: str) -> pl.Series:
    """Return which intervals of idle time the CPU spends on preparing data of a kind: in no operator that launches work."""
    by_event = context.host.each(pl.col("name").str.contains(pattern).fill_null(False))[idle.get_column("event_id")]
    function = context.blamed.named(idle.select("event_id", "code")).get_column("python_function").cast(pl.String)
    launching = context.within.activities.get_column("operator_id").drop_nulls()
    computes = ~idle.get_column("event_id").is_in(launching.implode()).fill_null(False)
    return (by_event.fill_null(False) | function.str.contains(pattern).fill_null(False)) & computes


def _kinds(context: AdviceContext, idle: pl.DataFrame) -> pl.Series:
    """Return what the CPU prepares in each interval of idle time; null for nothing."""
    kinds = pl.Series([None] * idle.height, dtype=pl.String)
    for kind, pattern in _PREPARATION.items():
        named = pl.Series([kind] * idle.height, dtype=pl.String)
        kinds = kinds.zip_with(kinds.is_not_null() | ~_prepares(context, idle, pattern), named)
    return kinds


_IN_REGION = """# run the compiled region once before the loop, with these shapes: its first call compiles, or loads what is kept
# does it come back later? TORCH_LOGS=recompiles,guards names the guards that fail, and those that each call checks"""
_PART_OF_CODE = 0.1
"""Code is given for what holds this share of the idle time or more."""
_ON_CPU = """x = x.to("cuda", non_blocking=True)  # before the operator, so that the GPU computes it; CPU tensors: create them where they are used
# transform data in the data loader's workers, not between launches"""
_BEFORE_LAUNCH = (
    "# run them once before the loop, with these shapes: a first call starts its library, or searches for its kernel"
)


def cpu_operators(context: AdviceContext) -> Opportunity | None:
    """Return the idle time in operators that hold the CPU, but those that prepare data.

    An operator that launches work afterwards does not compute on the CPU: it prepares its launch for long.
    """
    idle = context.idle.filter(pl.col("cause") == "cpu-operator")
    idle = idle.filter(_kinds(context, idle).is_null())
    launching = context.within.activities.get_column("operator_id").drop_nulls()
    before_launch = idle.filter(pl.col("event_id").is_in(launching.implode()))
    why = "operators hold the CPU for over 1 ms at a time, without a call to the GPU's runtime, while the GPU waits"
    if before_launch.height:
        share = percent(total(before_launch, length_ns()) / max(1, total(idle, length_ns())))
        why += f"; {share} of it before operators of the GPU launch their kernels"
    regions = context.host.texts(before_launch.get_column("event_id")).cast(pl.String).str.contains(COMPILED_REGION)
    compiled_ns, launch_ns = (total(before_launch.filter(rows), length_ns()) for rows in (regions, ~regions))
    rest_ns = total(idle, length_ns()) - compiled_ns - launch_ns
    lines = ((compiled_ns, _IN_REGION), (rest_ns, _ON_CPU), (launch_ns, _BEFORE_LAUNCH))
    codes = [code for ns, code in sorted(lines, reverse=True) if ns >= _PART_OF_CODE * total(idle, length_ns())]
    opportunity = idle_opportunity(context, idle, ("cpu-operator",), why)
    return opportunity and replace(opportunity, values={"snippet": "\n".join(codes)})


def cpu_preparation(context: AdviceContext) -> Opportunity | None:
    """Return the idle time in which the loop itself makes random numbers, tokens or images on the CPU."""
    causes = ("cpu-operator", "python")
    idle = context.idle.filter(pl.col("cause").is_in(causes))
    idle = idle.with_columns(_kinds(context, idle).alias("prepared")).drop_nulls("prepared")
    by_kind = (
        idle.group_by("prepared").agg(length_ns().sum().alias("ns")).sort("ns", "prepared", descending=[True, False])
    )
    kinds = [kind for kind, ns in by_kind.iter_rows() if ns >= _PART_OF_CODE * total(idle, length_ns())]
    trains = context.program != "inference"
    codes = [_PREPARED.get((kind, trains)) or _PREPARED[kind, True] for kind in kinds]
    why = f"the loop prepares {' and '.join(kinds)} on the CPU while the GPU waits"
    opportunity = idle_opportunity(context, idle.drop("prepared"), causes, why, " in functions that prepare data")
    return opportunity and replace(opportunity, values={"snippet": "\n".join(codes)})
