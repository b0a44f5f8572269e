"""Test the kernel catalogue: every rule against its own examples, counterexamples, and hand-made labels."""

from pathlib import Path

import polars as pl
import pytest
from catalogue import examples
from conftest import CORPUS

from trace_analyzer.catalog import kernels as catalog
from trace_analyzer.catalog.kernels import Kernel, KernelRule, buckets, function_words, kernel_buckets, rules

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


def test_every_rule_is_well_formed_and_only_the_last_matches_all() -> None:
    for rule in rules():
        assert rule.group in ("matmul", "normalization", "pointwise", "communication", "other")
        assert rule.prior in ("compute", "memory", "communication", "other")
        for pattern in filter(None, (rule.name, rule.words, rule.operator)):
            assert pl.Series(["x"]).str.contains(pattern, strict=True).dtype == pl.Boolean
    assert len({rule.id for rule in rules()}) == len(rules())
    assert [rule.id for rule in rules() if not (rule.name or rule.words or rule.operator)] == [rules()[-1].id]


def test_words_are_those_of_the_function_itself() -> None:
    named = {
        "void ns::residualScaleRMSNorm<other::Softmax<float>, 8>(float*)": "residual_scale_rms_norm",
        "ns::(anonymous namespace)::Store_KVCache(int*)": "store_kv_cache", "_fused_add_kernel": "_fused_add_kernel",
        "": None, None: None,
    }  # fmt: skip
    names = pl.DataFrame({"name": pl.Series(list(named), dtype=pl.String)})
    assert names.select(function_words())["name"].to_list() == list(named.values())


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
    assert decided["name"].to_list() == ["b", "ampere_sgemm_128x64_nn", None]
    assert decided["bucket"].to_list() == ["other", "matmul", "other"]
    columns = ("name", "operator", "bucket", "group", "prior", "rule")
    assert decided.schema == kernel_buckets(frame()).schema == dict.fromkeys(columns, pl.String)


def test_rules_are_tried_in_order_on_the_head_of_a_name() -> None:
    broad, narrow = (next(rule for rule in rules() if rule.id == wanted) for wanted in ("gemm", "unknown"))
    assert kernel_buckets(frame(Kernel("gemm_kernel")), using=[narrow, broad])["rule"].to_list() == ["unknown"]
    assert bucket("x" * catalog.NAME_LIMIT + "_gemm") == "other"
    assert bucket("x_gemm" + "x" * 10_000_000) == "matmul"


def right(labels: pl.DataFrame) -> pl.DataFrame:
    """Return the labelled kernels with whether their bucket is one of those accepted."""
    assert set(labels["accepted"].explode()) <= set(buckets()["bucket"])
    assert not labels.select(pl.struct("name", "operator").is_duplicated().any()).item()
    joined = labels.drop("bucket").join(kernel_buckets(labels), on=["name", "operator"], nulls_equal=True)
    assert joined.height == labels.height
    return joined.with_columns(right=pl.col("accepted").list.contains(pl.col("bucket")))


@pytest.mark.skipif(not LABELS.exists(), reason="no labelled kernel names")
@pytest.mark.parametrize("linked", [True, False], ids=["with operators", "by name alone"])
def test_agrees_with_labels(linked: bool) -> None:
    first = pl.col("launching_ops").str.split(";").list.first().str.replace(r":\d+$", "")
    both = pl.concat_str("bucket", "also_acceptable", separator="|", ignore_nulls=True)
    operator = pl.when(first != "<unlinked>", linked).then(first)
    decided = right(pl.read_csv(LABELS).with_columns(operator=operator, accepted=both.str.split("|")))
    time = pl.col("total_dur_us")
    assert decided.select(pl.col("right").mean()).item() >= 0.98
    assert decided.select(time.filter("right").sum() / time.sum()).item() >= 0.995


def test_kernels_of_libraries_are_known_by_name_alone() -> None:
    """Kernel names from the sources of libraries, labelled by function; few names show the function."""
    labels = pl.read_csv(Path(__file__).parent / "library_kernels.csv")
    accepted = pl.col("bucket").str.split("|")
    decided = right(labels.with_columns(accepted=accepted, operator=pl.lit(None, pl.String)))
    assert decided.select(pl.col("right").mean()).item() >= 0.98
