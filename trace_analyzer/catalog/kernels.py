"""Classify kernels by their work, from the operator that launched them and their names, and label lines of device and idle time.

The rules are in ``kernels.toml``; the first match counts. ``arithmetic.toml`` has what names show of a kernel's
arithmetic: tensor cores, precision, and whether it only supports a matmul. ``article.toml`` has the article's figures.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import polars as pl
from msgspec import Struct
from msgspec.structs import asdict

from trace_analyzer import json_types, tuning
from trace_analyzer.catalog import NAME_LIMIT, check_patterns, document, event_names, first, matches, rows
from trace_analyzer.vocabulary import GROUPS, PARTS, Term, label, phrase

PRIORS = ("compute", "memory", "communication", "other")
"""Bounds of a bucket's kernels when nothing better is known."""

CONDITIONS = ("name", "words", "operator")
"""Conditions of a rule; all that it has must hold."""


class Bucket(Struct, frozen=True):
    """A kind of work: its group in the article's table, and its bound when shapes are unknown.

    ``label`` is its name for people.
    """

    bucket: str
    label: str
    group: str
    prior: str
    doc: str


class Kernel(Struct, frozen=True):
    """The properties of a kernel that rules read."""

    name: str
    operator: str | None = None


class KernelRule(Struct, frozen=True, kw_only=True):
    """Conditions on kernel name and launching operator, and the bucket of kernels that meet them."""

    id: str
    bucket: str
    group: str
    prior: str
    name: str | None = None
    words: str | None = None
    operator: str | None = None
    examples: tuple[Kernel, ...] = ()
    counterexamples: tuple[Kernel, ...] = ()


@cache
def rules() -> tuple[KernelRule, ...]:
    """Return all rules in order of precedence, those of plug-ins first; the last one matches every kernel."""
    known = {bucket.bucket: bucket for bucket in _buckets()}
    return rows("kernels.toml", "rule", lambda row: _rule(known, row), lambda rule: rule.id, check_added=_check_rule)


def _check_rule(rule: KernelRule) -> None:
    if not any(getattr(rule, condition) for condition in CONDITIONS):
        raise ValueError(f"has no condition: {', '.join(CONDITIONS)}")
    check_patterns(rule.name, rule.words, rule.operator)


def _rule(known: Mapping[str, Bucket], row: Mapping[str, Any]) -> KernelRule:
    home = known.get(row["bucket"])
    if home is None:
        raise ValueError(f"bucket {row['bucket']!r} is none of {', '.join(known)}")
    cases = {
        key: [case if isinstance(case, Mapping) else {"name": case} for case in row.get(key, ())]
        for key in ("examples", "counterexamples")
    }
    return json_types.read_as(KernelRule, {"group": home.group, "prior": home.prior, **row, **cases})


@cache
def _buckets() -> tuple[Bucket, ...]:
    return rows("kernels.toml", "bucket", _bucket, lambda bucket: bucket.bucket, own_first=True)


def _bucket(row: Mapping[str, Any]) -> Bucket:
    bucket = json_types.read_as(Bucket, {"label": row["bucket"].replace("_", " ").capitalize(), **row})
    if bucket.group not in GROUPS or bucket.prior not in PRIORS:
        raise ValueError(f"group is one of {', '.join(GROUPS)}, prior of {', '.join(PRIORS)}")
    return bucket


def buckets() -> pl.DataFrame:
    """Return all buckets, in the catalogue's order: (bucket, label, group, prior, doc), all strings."""
    return pl.DataFrame([asdict(bucket) for bucket in _buckets()])


def kernel_buckets(kernels: pl.DataFrame, *, using: Sequence[KernelRule] | None = None) -> pl.DataFrame:
    """Return the bucket of each kernel: (name, operator) -> (name, operator, bucket, group, prior, rule), strings.

    ``operator`` is the innermost operator around the launch, null when unknown. There is one row per distinct pair, in
    order of appearance; kernels without a specific rule are in bucket ``other``, never null. ``prior`` is the bound
    when nothing better is known: compute, memory, communication or other.

    Args:
        using: rules instead of the catalogue's, to measure the effect of each; the last must match all.

    Raises:
        polars.exceptions.ColumnNotFoundError: a column is missing.
    """
    pairs = kernels.select("name", "operator").unique(maintain_order=True)
    return _by_catalogue(pairs) if using is None else _decided(pairs, tuple(using))


@tuning.remembered
def _by_catalogue(pairs: pl.DataFrame) -> pl.DataFrame:
    return _decided(pairs, rules())


def _decided(pairs: pl.DataFrame, used: tuple[KernelRule, ...]) -> pl.DataFrame:
    """Add bucket, group, prior and rule to distinct pairs of name and operator."""
    pairs = pairs.with_columns(words=function_words())
    # A null name or operator joins nothing, and a null condition does not hold.
    return (
        pairs.join(_matches(pairs, "name", used), on="name", how="left", maintain_order="left")
        .join(_matches(pairs, "words", used), on="words", how="left", maintain_order="left")
        .join(_matches(pairs, "operator", used), on="operator", how="left", maintain_order="left")
        .select("name", "operator", decision(used).alias("rule"))
        .join(_rule_table(used), on="rule", how="left", maintain_order="left")
        .select("name", "operator", "bucket", "group", "prior", "rule")
    )


def function_words() -> pl.Expr:
    """Return the words of a kernel's own identifier, in lower case, joined by ``_``.

    Namespaces and template arguments are left out.

    ``void ns::residualScaleRMSNorm<float, 8>(float*)`` is ``residual_scale_rms_norm``.
    """
    return (
        pl.col("name")
        .str.head(NAME_LIMIT)
        .str.replace_all(r"\(anonymous namespace\)|<unnamed>", "")
        .str.extract(r"^([^<(]*)")
        .str.extract(r"(\w+)\s*$")
        .str.replace_all(r"([a-z0-9])([A-Z])", "${1}_${2}")
        .str.replace_all(r"([A-Z])([A-Z][a-z])", "${1}_${2}")
        .str.to_lowercase()
    )


OWN_NAME = (
    r"(?s)^(?:void |std::enable_if<.*?>::type )?(?:\w+::|\(anonymous namespace\)::|<unnamed>::)*?(?:Kernel\d*<)?"
    r"((?:\w+::)?kernel|\w+)[<(>].*"
)
"""A kernel's C++ symbol; the group is its identifier, or that of the kernel in CUTLASS's entry point ``Kernel2<...>``."""


def function_name(name: str) -> str:
    """Return a kernel's own identifier, without namespaces, template arguments and characters special to a shell.

    ``void ns::softmax_warp_forward<float, 8>(float*)`` becomes ``softmax_warp_forward``, as does its mangled name; a name
    without an identifier stays.
    """
    if _MANGLED.fullmatch(name) and (words := _identifiers(name)):
        kernels = (word for word in words if re.search(r"(?i)kernel(?!\d*$)|.kernel", word))
        return next(kernels, max(words, key=len))
    head = name[:NAME_LIMIT]
    own = re.match(OWN_NAME, head) or re.search(r"(\w+)(?:\.kd)?\s*$", re.split(r"[<(]", head, maxsplit=1)[0])
    return own[1] if own else re.sub(r"\W+", "_", head)


def _matches(pairs: pl.DataFrame, column: str, used: tuple[KernelRule, ...]) -> pl.DataFrame:
    """Return each distinct value of a column and, for each rule with a condition on it, whether it holds."""
    head = pl.col(column).str.head(NAME_LIMIT)
    return pairs.select(pl.col(column).unique()).with_columns(
        matches(head, pattern).alias(f"{column}:{rule.id}")
        for rule in used
        if (pattern := getattr(rule, column)) is not None
    )


def decision(used: tuple[KernelRule, ...]) -> pl.Expr:
    """Return the id of the first rule whose conditions all hold."""
    conditions_by_rule = {
        rule.id: [pl.col(f"{column}:{rule.id}") for column in CONDITIONS if getattr(rule, column)] for rule in used
    }
    return pl.coalesce(
        pl.when(pl.all_horizontal(all_ or pl.lit(True))).then(pl.lit(id_)) for id_, all_ in conditions_by_rule.items()
    )


def _rule_table(used: Sequence[KernelRule]) -> pl.DataFrame:
    return pl.DataFrame(
        [(rule.id, rule.bucket, rule.group, rule.prior) for rule in used],
        schema=["rule", "bucket", "group", "prior"],
        orient="row",
    )


ARITHMETIC = ("unit", "precision", "operand", "helper", "fast")
"""Tables of ``arithmetic.toml``."""


class ArithmeticRule(Struct, frozen=True, kw_only=True):
    """A pattern over kernel names and its implications; ``None`` for properties that its table does not define."""

    id: str
    name: str
    tensor_cores: bool | None = None
    fp32: str | None = None
    dtype: str | None = None


@cache
def arithmetic_rules(table: str) -> tuple[ArithmeticRule, ...]:
    """Return the rules of one of the tables `ARITHMETIC`."""
    return rows("arithmetic.toml", table, ArithmeticRule, lambda rule: rule.id)


def arithmetic(names: pl.Series) -> pl.DataFrame:
    """Return (name, tensor_cores, fp32, precision, helper, fast) per distinct name.

    ``tensor_cores``: null where the name does not show it. ``fp32``: the type in which FP32 operands are multiplied,
    null for FP32. ``precision``: the type of the multiplications regardless of the operands, null where the operands
    determine it. ``helper``: launched only next to a matmul, without any of its FLOP. ``fast``: part of an algorithm
    with fewer multiplications than the definition.
    """
    head = pl.col("name").str.head(NAME_LIMIT)
    units = pl.DataFrame(
        [(rule.id, rule.tensor_cores, rule.fp32) for rule in arithmetic_rules("unit")],
        schema={"unit": pl.String, "tensor_cores": pl.Boolean, "fp32": pl.String},
        orient="row",
    )
    return (
        pl.DataFrame({"name": names.unique(maintain_order=True)}, schema={"name": pl.String})
        .with_columns(
            first((matches(head, rule.name), pl.lit(rule.id)) for rule in arithmetic_rules("unit")).alias("unit"),
            _dtype(head, "precision").alias("precision"),
            *(
                pl.any_horizontal(matches(head, rule.name) for rule in arithmetic_rules(table)).alias(table)
                for table in ("helper", "fast")
            ),
        )
        .join(units, on="unit", how="left", maintain_order="left")
        .select("name", "tensor_cores", "fp32", "precision", "helper", "fast")
    )


def operand_type() -> pl.Expr:
    """Return Kineto's name of the operand type that a kernel's name contains; null without one."""
    return _dtype(pl.col("name").cast(pl.String).str.head(NAME_LIMIT), "operand").alias("operand_type")


def says_tf32() -> pl.Expr:
    """Return whether a kernel's name says that it multiplies FP32 operands in TF32."""
    head = pl.col("name").cast(pl.String).str.head(NAME_LIMIT)
    rule = next(rule for rule in arithmetic_rules("unit") if rule.id == "tf32")
    return (matches(head, rule.name) & (_dtype(head, "operand") == "float").fill_null(False)).alias("says_tf32")


def _dtype(name: pl.Expr, table: str) -> pl.Expr:
    return first((matches(name, rule.name), pl.lit(rule.dtype)) for rule in arithmetic_rules(table))


class Figures(Struct, frozen=True):
    """The shares of one operator class in a training step of BERT."""

    flop_ratio: float
    time_ratio: float


class Article(Struct, frozen=True):
    """Map groups to figures, and name the paper with the measurements."""

    groups: dict[str, Figures]
    source: str
    url: str


@cache
def article() -> Article:
    """Return the article's table."""
    data = document("article.toml")
    groups = {group: Figures(**row) for group, row in data["group"].items()}
    return Article(groups, data["source"], data["url"])


# Write a regular expression that selects one kernel in Nsight Compute (``--kernel-name-base demangled``) and ROCm Compute
# Profiler. They match a part of the demangled name, and write template arguments differently from traces, such as
# ``(int)4`` for ``4``, so a pattern consists of words with anything between.

LONG_WORD = 40
"""Longest identifier that is matched as a whole: libraries join whole parameter sets with ``_``, and longer ones are
matched by parts."""
MOST_WORDS = 6
"""Most words of a pattern: names that so many words do not distinguish differ in ways that words cannot express."""
_MANGLED = re.compile(r"_Z\w+", re.ASCII)
_NUMBERS = re.compile(r"L[a-z]n?\d+E|[ST][0-9A-Z]*_|DF\d+|(?P<length>[1-9]\d{0,2})")
_WORDS = re.compile(r"\w+", re.ASCII)
_SPELT_OTHERWISE = frozenset({"void", "const", "unsigned", "false", "true"})
"""Words that some profilers write in another order, or as ``(bool)1``."""


def kernel_pattern(name: str, names: Iterable[str]) -> tuple[str, int]:
    """Return a regular expression that matches ``name``, and the number of other ``names`` that it matches.

    It is the kernel's own identifier where no other kernel has it, else the fewest words that distinguish the kernel.
    None of its characters is special to a shell in double quotes.
    """
    others = {other for other in names if other != name}
    own = function_name(name)
    words = list(dict.fromkeys((own, *_words(name)) if own in name and 0 < len(own) <= LONG_WORD else _words(name)))
    if not words:
        return ".*", len(others)
    chosen: list[str] = []
    tried = [(others, chosen)]
    while (tried[-1][0] and len(chosen) < min(MOST_WORDS, len(words))) or not chosen:
        # Among words that leave equally many names, prefer the kernel's own identifier, then the longest.
        rest = ((_left(name, [*chosen, word], tried[-1][0]), word) for word in words if word not in chosen)
        left, best = min(rest, key=lambda one: (len(one[0]), one[1] != own, -len(one[1]), one[1]))
        chosen = [*chosen, best]
        tried.append((left, chosen))
    left, chosen = min(tried[1:], key=lambda one: len(one[0]))
    if left and _WORDS.fullmatch(name) and not _MANGLED.fullmatch(name):
        whole = re.compile(rf"^{name}\b", re.ASCII)
        return whole.pattern, sum(whole.search(other) is not None for other in left)
    return _in_order(name, chosen), len(left)


def _words(name: str) -> Sequence[str]:
    """Return the words of a name, demangled or not; long words are split."""
    words = _WORDS.findall(name)
    if _MANGLED.fullmatch(name):
        words = _identifiers(name)
    parts = [part for word in words for part in (word.split("_") if len(word) > LONG_WORD else [word])]
    return [part for part in parts if part and part not in _SPELT_OTHERWISE]


def _identifiers(mangled: str) -> list[str]:
    """Return the identifiers of a mangled name (Itanium C++ ABI), each after its length; other numbers are skipped."""
    identifiers, at = [], 2
    while match := _NUMBERS.search(mangled, at):
        length = int(match["length"] or 0)
        word = mangled[match.end() : match.end() + length]
        identifiers += [word] if length > 2 else []
        at = match.end() + len(word)
    return identifiers


def _in_order(name: str, words: Sequence[str]) -> str:
    """Return a pattern of the words in their order within the name, with anything between."""
    return ".*".join(sorted(words, key=lambda word: (name.find(word), len(word))))


def _left(name: str, words: Sequence[str], others: Iterable[str]) -> set[str]:
    """Return the other names that match the words; all of them where the words overlap in the name itself."""
    pattern = re.compile(_in_order(name, words), re.DOTALL)
    return {other for other in others if pattern.search(other)} if pattern.search(name) else set(others)


@cache
def _bucket_terms() -> dict[str, Term]:
    rows = buckets().iter_rows(named=True)  # no query: it would hang in a forked process
    return {row["bucket"]: Term(row["bucket"], row["label"], row["doc"]) for row in rows}


def bucket_keys() -> tuple[str, ...]:
    """Return the keys of all buckets."""
    return tuple(_bucket_terms())


def line_label(key: str) -> str:
    """Return the label of a bucket, cause, part or kind of copy; other keys are written as words.

    >>> line_label("copy_cast"), line_label("launch-latency"), line_label("host-to-device copy")
    ('Copy and cast', 'Launch latency', 'Host to device copy')
    """
    term = PARTS.get(key) or _bucket_terms().get(key)
    return term.label if term else label(key)


def line_phrase(key: str) -> str:
    """Return the label of `line_label` as written within a sentence.

    >>> line_phrase("kv_cache"), line_phrase("copy_cast"), line_phrase("host-unknown")
    ('KV cache', 'copy and cast', 'unrecorded host time')
    """
    term = PARTS.get(key) or _bucket_terms().get(key)
    return term.phrase if term else phrase(key)


def is_line(name: str) -> bool:
    """Return whether a name is the key of a line, in contrast to a program's name for an operator or module.

    >>> is_line("sort_scan"), is_line("memset"), is_line("unknown copy"), is_line("aten::copy_")
    (True, True, True, False)
    """
    copies = [f"{direction} copy" for direction in (*(rule.name for rule in event_names.direction_rules()), "unknown")]
    return name in PARTS or name in _bucket_terms() or name in ("memset", *copies)


def group_label(key: str) -> str:
    """Return the label of a group of buckets, else of a line."""
    return GROUPS[key].label if key in GROUPS else line_label(key)


def bucket_key(text: str) -> str:
    """Return the key of the bucket with this label, ignoring case; any other text unchanged.

    >>> bucket_key("Copy and cast"), bucket_key("kv cache"), bucket_key("aten::mm")
    ('copy_cast', 'kv_cache', 'aten::mm')
    """
    keys = {term.label.casefold(): key for key, term in _bucket_terms().items()}
    return keys.get(text.casefold(), text)


def is_named(key: str, text: str) -> bool:
    """Return whether a text names the line: its key, or its label ignoring case."""
    return text == key or text.casefold() == line_label(key).casefold()


def is_group_named(key: str, text: str) -> bool:
    """Return whether a text names the group of buckets: its key, or its label ignoring case."""
    return text == key or (key in GROUPS and text.casefold() == GROUPS[key].label.casefold())
