"""Test the kernel catalogue: every rule against its own examples, counterexamples, and hand-made labels."""

from pathlib import Path

import polars as pl
import pytest
from catalogue import examples
from conftest import CORPUS

from trace_analyzer.catalog.kernels import (
    NAME_LIMIT,
    Kernel,
    KernelRule,
    buckets,
    function_words,
    kernel_buckets,
    rules,
)

LABELS = CORPUS.parent / "kernel_names.csv"

EXAMPLES = examples("kernels.toml")


def frame(*kernels: Kernel) -> pl.DataFrame:
    rows = [(kernel.name, kernel.operator) for kernel in kernels]
    return pl.DataFrame(rows, schema={"name": pl.String, "operator": pl.String}, orient="row")


def bucket(name: str, operator: str | None = None) -> str:
    return str(kernel_buckets(frame(Kernel(name, operator)))["bucket"].item())


def cases(rule: KernelRule, kind: str) -> list[Kernel]:
    """Return the examples or counterexamples of a rule: those in its row, and those of tests/catalog."""
    those = EXAMPLES.get(rule.id, {}).get(kind, ())
    return [*getattr(rule, kind), *(Kernel(**{"name": case} if isinstance(case, str) else case) for case in those)]


def test_every_rule_decides_its_examples() -> None:
    assert set(EXAMPLES) <= {rule.id for rule in rules()}
    kernels = [(rule, case) for rule in rules() for case in cases(rule, "examples")]
    assert {rule.id for rule, _ in kernels} == {rule.id for rule in rules()}
    decided = kernel_buckets(frame(*(case for _, case in kernels))).select("rule", "bucket", "group", "prior").rows()
    assert decided == [(rule.id, rule.bucket, rule.group, rule.prior) for rule, _ in kernels]


@pytest.mark.slow
def test_every_rule_leaves_its_counterexamples() -> None:
    """A rule with a prior of its own may leave them to its bucket's other rules, but not to that prior."""
    priors = dict(buckets().select("bucket", "prior").iter_rows())
    for rule in (rule for rule in rules() if cases(rule, "counterexamples")):
        own = priors[rule.bucket] != rule.prior
        columns = ["bucket", "prior"] if own else ["bucket"]
        left = (rule.bucket, rule.prior) if own else (rule.bucket,)
        decided = kernel_buckets(frame(*cases(rule, "counterexamples"))).select(columns)
        assert left not in decided.rows(), rule.id


def test_every_rule_is_well_formed() -> None:
    for rule in rules():
        assert {rule.group} <= {"matmul", "normalization", "pointwise", "communication", "other"}
        assert {rule.prior} <= {"compute", "memory", "communication", "other"}
        for pattern in filter(None, (rule.name, rule.words, rule.operator)):
            assert pl.Series(["x"]).str.contains(pattern, strict=True).dtype == pl.Boolean


def test_ids_are_unique_and_only_the_last_rule_matches_all() -> None:
    assert len({rule.id for rule in rules()}) == len(rules())
    assert [rule.id for rule in rules() if not (rule.name or rule.words or rule.operator)] == [rules()[-1].id]


def test_words_are_those_of_the_function_itself() -> None:
    names = [
        "void ns::residualScaleRMSNorm<other::Softmax<float>, 8>(float*)",
        "ns::(anonymous namespace)::Store_KVCache(int*)",
        "_fused_add_kernel",
        "",
        None,
    ]
    words = pl.DataFrame({"name": pl.Series(names, dtype=pl.String)}).select(function_words("name"))["name"].to_list()
    assert words == ["residual_scale_rms_norm", "store_kv_cache", "_fused_add_kernel", None, None]


def test_buckets_have_the_groups_of_the_article() -> None:
    assert buckets().columns == ["bucket", "label", "group", "prior", "doc"]
    groups = dict(buckets().group_by("group").agg("bucket").iter_rows())
    assert set(groups["matmul"]) == {"matmul", "convolution", "attention", "moe"}
    assert set(groups["normalization"]) == {"normalization", "softmax", "reduction"}
    assert groups["communication"] == ["communication"]
    assert {rule.bucket for rule in rules()} == set(buckets()["bucket"])


@pytest.mark.parametrize(
    ("name", "operator", "expected"),
    [
        ("Cijk_Ailk_Bljk_BBS_BH_MT128x128x32", None, "matmul"),
        ("Cijk_Ailk_Bljk_BBS_BH_MT128x128x32", "aten::miopen_convolution", "convolution"),
        ("batched_transpose_16x32_half", "aten::convolution_backward", "copy_cast"),
        ("kernel_v7", "vllm::moe_forward", "moe"),
        ("void moe::dev::finalize::finalizeKernelVecLoad<int>()", "vllm::moe_forward", "moe"),
        ("bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3", "vllm::moe_forward", "matmul"),
        ("triton_red_fused_add_addmm_native_layer_norm_1", "CompiledFunction", "normalization"),
        ("triton_poi_fused_add_addmm_silu_3", "Torch-Compiled Region: 0/0", "pointwise"),
        ("triton_poi_fused__to_copy_1.kd", None, "copy_cast"),
    ],
)
def test_operator_and_name_together(name: str, operator: str | None, expected: str) -> None:
    assert bucket(name, operator) == expected


def test_one_row_per_distinct_kernel_in_order_and_never_null() -> None:
    kernels = pl.DataFrame(
        {"name": ["b", "ampere_sgemm_128x64_nn", "b", None], "operator": [None, "aten::mm", None, None], "extra": 1},
        schema_overrides={"operator": pl.String},
    )
    decided = kernel_buckets(kernels)
    assert decided.columns == ["name", "operator", "bucket", "group", "prior", "rule"]
    assert decided["name"].to_list() == ["b", "ampere_sgemm_128x64_nn", None]
    assert decided["bucket"].to_list() == ["other", "matmul", "other"]


def test_no_kernels() -> None:
    assert kernel_buckets(frame()).schema == dict.fromkeys(
        ("name", "operator", "bucket", "group", "prior", "rule"), pl.String
    )


def test_missing_column() -> None:
    with pytest.raises(pl.exceptions.ColumnNotFoundError):
        kernel_buckets(pl.DataFrame({"name": ["x"]}))


def test_only_the_head_of_a_name_counts() -> None:
    assert bucket("x" * NAME_LIMIT + "_gemm") == "other"
    assert bucket("x_gemm" + "x" * 10_000_000) == "matmul"


def test_rules_are_tried_in_order() -> None:
    broad, narrow = (next(rule for rule in rules() if rule.id == wanted) for wanted in ("gemm", "unknown"))
    decided = kernel_buckets(frame(Kernel("gemm_kernel")), using=[narrow, broad])
    assert decided["rule"].to_list() == ["unknown"]


@pytest.mark.skipif(not LABELS.exists(), reason="no labelled kernel names")
@pytest.mark.parametrize("linked", [True, False], ids=["with operators", "by name alone"])
def test_agrees_with_labels(linked: bool) -> None:
    first = pl.col("launching_ops").str.split(";").list.first().str.replace(r":\d+$", "")
    labels = pl.read_csv(LABELS).with_columns(
        pl.when(first != "<unlinked>", linked).then(first).alias("operator"),
        pl.concat_str("bucket", "also_acceptable", separator="|", ignore_nulls=True).str.split("|").alias("accepted"),
    )
    assert set(labels["accepted"].explode()) <= set(buckets()["bucket"])
    right = pl.col("accepted").list.contains(pl.col("bucket"))
    time = pl.col("total_dur_us")
    joined = labels.drop("bucket").join(kernel_buckets(labels), on=["name", "operator"], nulls_equal=True)
    assert joined.height == labels.height
    assert joined.select(right.mean()).item() >= 0.98
    assert joined.select(time.filter(right).sum() / time.sum()).item() >= 0.995


def test_kernels_of_libraries_are_known_by_name_alone() -> None:
    """Kernel names from the sources of libraries, labelled by function; few names show the function."""
    labels = pl.read_csv(Path(__file__).parent / "library_kernels.csv").with_columns(
        pl.col("bucket").str.split("|").alias("accepted"), pl.lit(None, pl.String).alias("operator")
    )
    assert set(labels["accepted"].explode()) <= set(buckets()["bucket"])
    assert labels.select(pl.col("name").is_duplicated().any()).item() is False
    joined = labels.drop("bucket").join(kernel_buckets(labels), on="name")
    assert joined.select(pl.col("accepted").list.contains(pl.col("bucket")).mean()).item() >= 0.98
