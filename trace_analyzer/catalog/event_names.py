"""Classify host events, steps and copies by name, with the rules of the catalogue; the first that matches counts.

``host_work.toml``: what a host event does. ``step_marks.toml``: which events mark steps. ``serving_steps.toml``: steps
of serving frameworks. ``code.toml``: phases, library frames, sources of blocking calls. ``copies.toml``: directions.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, TypeVar

import polars as pl
from msgspec import Struct

from trace_analyzer import tuning, vocabulary
from trace_analyzer.catalog import NAME_LIMIT, check_patterns, document, first, matches, rows

CALLS = ("runtime", "driver")
"""Kinds of host events that are calls of an API of the device."""
KINDS = ("annotation", "python", "operator", "other", "overhead", *CALLS)
"""Kinds of host events, outer ones first, for events with equal start and end."""


class Rule(Struct, frozen=True, kw_only=True):
    """A pattern of names and the kinds of host events for which it applies; examples are a plug-in's."""

    pattern: str
    kinds: tuple[str, ...] = ("python",)
    examples: tuple[str, ...] = ()
    counterexamples: tuple[str, ...] = ()

    @property
    def holds(self) -> pl.Expr:
        """Return whether the rule matches columns kind and name."""
        return pl.col("kind").is_in(list(self.kinds)) & matches(NAME, self.pattern)


R = TypeVar("R", bound=Rule)
NAME = pl.col("name").str.head(NAME_LIMIT)


def _rules(file: str, make: type[R], role: str, roles: Iterable[str], hint: str = "") -> tuple[R, ...]:
    """Return the rules of a table in order of precedence: those of plug-ins, then the file's; ``role`` is what they tell."""
    known = list(dict.fromkeys(roles))

    def check(rule: R) -> None:
        value = getattr(rule, role)
        if value not in known:
            raise ValueError(f"{role} {value!r} is none of {', '.join(known)}{hint}")
        if not rule.kinds or not set(rule.kinds) <= set(KINDS):
            raise ValueError(f"{rule.pattern!r}: kinds are some of {', '.join(KINDS)}")

    return rows(
        file, "rules", make, lambda rule: f"{getattr(rule, role)}: {rule.pattern}", check=check,
        check_added=lambda rule: check_patterns(rule.pattern),
    )  # fmt: skip


def _with_slashes(names: pl.DataFrame) -> pl.DataFrame:
    r"""Replace ``\`` in names by ``/``, as in the rules' paths; frames from Windows have ``\``."""
    return names.with_columns(pl.col("name").str.replace_all("\\", "/", literal=True))


# --- Work of host events

CAPTURE = "graph-capture"
"""Work of a process between the begin and the end of a graph capture, regardless of its threads' events."""
BLOCKING = "blocking"
"""Work of calls that wait for the device; no cause of its own."""
HOST_WAIT = "host-wait"
"""Work of calls in which a thread waits, but not for the device; short ones are hand-overs
(`thresholds.HOST_WAIT_NS`)."""
GUARDS = "guards"
"""Dynamo's search for a version with valid guards before each call of compiled code; no cause of its own."""
LOOKUP = "lookup"
"""Calls that only look up values in the runtime and return at once: their duration is the recording's overhead."""


class HostWorkRule(Rule, frozen=True, kw_only=True):
    """The work of host events with matching names."""

    work: str


@cache
def host_work_rules() -> tuple[HostWorkRule, ...]:
    """Return the rules in order of precedence: those of plug-ins, then the file's."""
    roles = (*vocabulary.NAMED_WORK, CAPTURE, BLOCKING, HOST_WAIT, GUARDS, LOOKUP)
    return _rules("host_work.toml", HostWorkRule, "work", roles, "; a new cause is a part of vocabulary.py")


def host_work(events: pl.DataFrame) -> pl.DataFrame:
    """Return distinct (kind, name) of ``events`` with a matching rule: kind, name, work."""
    return _named_work(events.select("kind", "name").unique(maintain_order=True))


@tuning.remembered
def _named_work(names: pl.DataFrame) -> pl.DataFrame:
    work = first((rule.holds, pl.lit(rule.work)) for rule in host_work_rules())
    return names.with_columns(_with_slashes(names).select(work.alias("work")).to_series()).drop_nulls("work")


# --- Marks of steps

NAMED = "named"
MARKS = ("span", "end", "start", "part", NAMED)
"""What an event may mark, as defined in the header of ``step_marks.toml``."""


def optimizer_step(of: str = r"\w+") -> str:
    """Return the pattern of the scope that PyTorch opens around an optimizer's step; the group is its class."""
    return rf"^Optimizer\.step#({of})\.step"


OPTIMIZER_STEP = optimizer_step()
ZERO_GRAD = r"^Optimizer\.zero_grad#"
"""Scope around an optimizer's `zero_grad()`."""
LAYOUT_ASKED = r"^aten::(_nnz|sparse_dim|_coalesced?_?)$"
"""Operators with which an optimizer asks for the layout of sparse gradients, which no fused one takes."""
PROFILER_STEP_NAME = r"^ProfilerStep#?\*?([0-9]{1,9})$"
"""Pattern of annotations from ``torch.profiler``'s ``step()``; the group is the step's number."""


class StepMarkRule(Rule, frozen=True, kw_only=True):
    """What host events with matching names mark, and their source."""

    marks: str
    source: str


@cache
def step_mark_rules() -> tuple[StepMarkRule, ...]:
    """Return the rules in order of precedence: those of plug-ins, then the file's."""
    return _rules("step_marks.toml", StepMarkRule, "marks", MARKS)


def step_marks(events: pl.DataFrame) -> pl.DataFrame:
    """Return distinct (kind, name) of ``events`` with a matching rule: kind, name, marks, source."""
    return _marks_of(events.select("kind", "name").unique(maintain_order=True))


@tuning.remembered
def _marks_of(names: pl.DataFrame) -> pl.DataFrame:
    mark = first(
        (rule.holds, pl.struct(pl.lit(rule.marks).alias("marks"), pl.lit(rule.source).alias("source")))
        for rule in step_mark_rules()
    )
    return names.hstack(_with_slashes(names).select(mark.struct.unnest())).drop_nulls("marks")


# --- Steps of serving frameworks

STEP_KINDS = ("prefill", "decode", "mixed")
"""Kinds of steps: prompt tokens only, one or a few tokens per running request, or both."""

_STEPS = {
    **dict.fromkeys(("name", "source", "step_kind"), pl.String),
    **dict.fromkeys(("prefill_tokens", "decode_tokens", "tokens", "prefill_keys", "decode_keys"), pl.Int64),
}
_COUNTS = (
    "prefill_requests", "decode_requests", "prefill_tokens", "decode_tokens", "prefill_keys", "decode_keys",
    "requests", "tokens", "keys",
)  # fmt: skip
_MOST_TOKENS = 10**12
"""A larger size is no count of tokens; sums of sizes stay far below 2**63."""


class ServingRule(Struct, frozen=True):
    """A pattern of names, whose groups are sizes of a step, their framework, and more sizes as ``group=key``."""

    source: str
    pattern: str
    sizes: tuple[str, ...] = ()


@cache
def serving_rules() -> tuple[ServingRule, ...]:
    """Return the rules in the file's order."""
    return rows("serving_steps.toml", "rules", ServingRule, key=lambda rule: rule.pattern)


def serving_steps(names: pl.Series) -> pl.DataFrame:
    """Return distinct names that match a rule: name, source, step_kind and token counts.

    Tokens are null where the name contains no sizes.
    """
    return _steps_of(names.cast(pl.String).unique(maintain_order=True).alias("name").to_frame())


@tuning.remembered
def _steps_of(names: pl.DataFrame) -> pl.DataFrame:
    matched = ((rule, names.filter(pl.col("name").str.contains(rule.pattern))) for rule in serving_rules())
    parsed = [_parsed_steps(found, rule) for rule, found in matched if found.height]
    return pl.concat([pl.DataFrame(schema=_STEPS), *parsed]).unique("name", keep="first", maintain_order=True)


def _parsed_steps(found: pl.DataFrame, rule: ServingRule) -> pl.DataFrame:
    modes: Mapping[str, Any] = document("serving_steps.toml")
    sizes = dict(size.split("=") for size in rule.sizes)
    groups = {*re.compile(rule.pattern).groupindex, *sizes}
    matched = found.with_columns(
        pl.col("name").str.extract_groups(rule.pattern).struct.unnest(),
        *(pl.col("name").str.extract(rf"[ \[]{key}=(\d+)").alias(size) for size, key in sizes.items()),
    )
    absent = [pl.lit(None, dtype=pl.String).alias(group) for group in ("mode", *_COUNTS) if group not in groups]
    counts = pl.col(_COUNTS).cast(pl.Int64, strict=False)
    matched = matched.with_columns(absent).with_columns(pl.when(counts <= _MOST_TOKENS).then(counts))
    prefills, decodes = (pl.col(f"{kind}_requests") > 0 for kind in ("prefill", "decode"))
    by_requests = (
        pl.when(prefills & decodes).then(pl.lit("mixed")).when(prefills).then(pl.lit("prefill")).when(decodes).then(pl.lit("decode"))
    )  # fmt: skip
    by_mode = pl.col("mode").replace_strict(modes["modes"], default=None, return_dtype=pl.String)
    ones = pl.when(pl.col("mode").is_in(modes["one_token"])).then("requests")
    parts = pl.when(pl.any_horizontal(pl.col("prefill_tokens", "decode_tokens").is_not_null())).then(
        pl.sum_horizontal("prefill_tokens", "decode_tokens")
    )
    return (
        matched.with_columns(
            pl.coalesce(by_mode, by_requests).alias("step_kind"), pl.coalesce("tokens", parts, ones).alias("tokens")
        )
        .drop_nulls("step_kind")
        .select(
            "name",
            pl.lit(rule.source).alias("source"),
            "step_kind",
            *(
                pl.coalesce(f"{kind}_{size}", pl.when(pl.col("step_kind") == kind).then(size)).alias(f"{kind}_{size}")
                for size in ("tokens", "keys")
                for kind in ("prefill", "decode")
            ),
            "tokens",
        )
        .select(*_STEPS)
    )


# --- Code

DATA_LOADING = "data-loading"
INDUCTOR_FILE = r"(?:^|[/\\])(?:torchinductor_\w+[/\\]|c[a-z0-9]{50,}\.py\b)"
"""Files that Inductor writes: in its default folder, or by their hash (``TORCHINDUCTOR_CACHE_DIR``; torch/_inductor/codecache.py)."""
DDP = r"DistributedDataParallel|ddp\.reducer|parallel[/\\]distributed\.py\(\d+\): (_pre_)?forward"
"""Annotations, modules, operators and files of PyTorch's DistributedDataParallel."""
OF_DATALOADER = r"(?i)data_?loader|datapipe|torch[/\\]utils[/\\]data[/\\]|^\[pl\]"
"""Names of what loads data by PyTorch's DataLoader; Lightning's annotations name its own hooks around one."""
PHASES = (DATA_LOADING, "optimizer", "backward", "forward")
"""Phases of a step; where several are in progress, the first in this order counts.

`host_work` determines data loading.
"""
NO_OPERATOR = r"^[^:<(]*[#\[\]/=@!|?][^:<]*$"
"""Names of `record_function` scopes that PyTorch before 1.11 wrote as operators, such as
`[pl][profile]run_training_batch` or `epoch=3/step`; no operator has such a name."""
SCOPE = rf"{NO_OPERATOR}|^[^:<(]*[\s.-][^:<]*$"
"""The same for files without user annotations, where blanks, dots and hyphens also indicate scopes, such as
`train step`, `epoch-3` or `model.forward`."""
SCOPES_OF_TORCH = rf"^(ProfilerStep|enumerate\(DataLoader\))#|{OPTIMIZER_STEP}|{ZERO_GRAD}"
"""Scopes that PyTorch itself opens."""
_ANNOTATIONS = rf"{SCOPES_OF_TORCH}|^ProfilerStep|^## |{NO_OPERATOR}"


class CodeRule(Rule, frozen=True, kw_only=True):
    """The name of what matching names are."""

    name: str = ""


@cache
def code_rules(table: str) -> tuple[CodeRule, ...]:
    """Return a table of ``code.toml`` in the file's order: phases, libraries, preparations or sources."""
    return rows("code.toml", table, CodeRule, key=lambda rule: rule.pattern)


FRAME = re.compile(r"(?P<file>.+)\((?P<line>\d{1,9})\): (?P<function>[^/(]+)", re.DOTALL)
"""Pattern of a Python frame in Kineto's notation.

Function names contain no parenthesis, which makes matching linear.
"""


def in_function(frame: str, call_line: int | None = None) -> str:
    """Format a Python frame for people: ``in step (train.py:12)``, with the line where the function begins."""
    match = FRAME.fullmatch(frame)
    if match is None:
        return f"in {frame}"
    call = "" if call_line is None else f", call in line {call_line}"
    return f"in {match['function']} ({match['file']}:{match['line']}{call})"


def built_in_call(name: pl.Expr) -> pl.Expr:
    """Return names of events with built-in functions as ``reshape()``, whatever object they were called on."""
    named = name.str.replace(r"^<built-in (?:method|function) (\w+)(?: of [^>]*)?>$", "${1}()")
    return named.str.replace(r"^<built-in method +of pybind11[^>]*>$", "C++ function")


ONE_WORKER = (
    r"transformers/pipelines/(automatic_speech_recognition|document_question_answering|mask_generation|question_answering"
    r"|token_classification|zero_shot_(audio_)?classification|zero_shot_object_detection)\.py\("
)
"""Frames of Hugging Face pipelines of class ChunkPipeline, which resets more data-loading workers to one."""


def is_annotation() -> pl.Expr:
    """Return whether an event only marks others; needs columns kind and name, of all of a file's names.

    Files without annotations are of PyTorch before 1.11, unless they name TorchDynamo.
    """
    kind, name = pl.col("kind"), pl.col("name")
    is_new = ((kind == "annotation") | name.str.contains("^Torch(Dynamo|-Compiled)")).any()
    is_scope = name.str.contains(_ANNOTATIONS) | (~is_new & name.str.contains(SCOPE))
    return (kind == "annotation") | ((kind == "operator") & is_scope)


def named_code(events: pl.DataFrame) -> pl.DataFrame:
    """Return distinct (kind, name) of ``events`` with phase, source (null without one) and library."""
    return _named_code(events.select("kind", "name").unique(maintain_order=True))


@tuning.remembered
def _named_code(names: pl.DataFrame) -> pl.DataFrame:
    phase, source = (
        first((rule.holds, pl.lit(rule.name)) for rule in code_rules(table)) for table in ("phases", "sources")
    )
    library = pl.any_horizontal(matches(NAME, rule.pattern) for rule in code_rules("libraries"))
    return names.hstack(
        _with_slashes(names).select(phase.alias("phase"), source.alias("source"), library.alias("library"))
    )


def preparation_of(name: pl.Expr) -> pl.Expr:
    """Return what a function or operator of this name prepares: the name of the first rule that matches; null for nothing."""
    rules = code_rules("preparations")
    names = pl.Enum(list(dict.fromkeys(rule.name for rule in rules)))  # a byte a row instead of a text
    return first((matches(name, rule.pattern), pl.lit(rule.name)) for rule in rules).cast(names)


INPUT_FILES = ("text", "images or sound")
"""Names of the rules for what is decoded or transformed for each input."""


def prepares_input_files(name: str) -> bool:
    """Return whether a function or operator of this name decodes or transforms text, images or sound."""
    return any(re.search(rule.pattern, name) for rule in code_rules("preparations") if rule.name in INPUT_FILES)


# --- Directions of copies

WITHIN_DEVICE, TO_PEER = "within-device", "peer-to-peer"
FROM_HOST, TO_HOST = "host-to-device", "device-to-host"
_COLLECTIVES = r"^(c10d::|record_param_comms$|nccl:|symm_mem::)"


class DirectionRule(Struct, frozen=True):
    """A direction and the pattern of names that imply it."""

    name: str
    pattern: str


@cache
def direction_rules() -> tuple[DirectionRule, ...]:
    """Return the rules in the file's order."""
    return rows("copies.toml", "directions", DirectionRule, key=lambda rule: rule.name)


def is_collective_copy() -> pl.Expr:
    """Return whether a copy between devices is part of a collective by its ``operator``, whose copy engines move the data.

    To the driver, memory of a peer that is mapped (symmetric memory) can be memory of the device.
    """
    return copy_direction().is_in([TO_PEER, WITHIN_DEVICE]) & matches(pl.col("operator").cast(pl.String), _COLLECTIVES)


def copy_direction(name: pl.Expr = NAME) -> pl.Expr:
    """Return the direction of a copy from its name; null where no rule matches."""
    return first((matches(name, rule.pattern), pl.lit(rule.name)) for rule in direction_rules())
