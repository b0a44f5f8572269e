"""Test steps of serving frameworks: the content of their annotations, and the figures and verdict of each kind."""

import json
from typing import Any

import polars as pl
import pytest
from kineto import analysed, annotation, call, idle_parts, kernel, launch, launched, op

from trace_analyzer.catalog.event_names import serving_steps
from trace_analyzer.report import Report

pytestmark = pytest.mark.slow

GEMM = "ampere_fp16_s16816gemm_fp16_128x128"
COPY = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, x>(int)"


@pytest.mark.parametrize(
    "name", ["execute_diffusion_1024x1024", "step[1]", "step[IDLE bs=0]", "ProfilerStep#3", "execute_context_0(0)_generation_0(0)", ""]
)  # fmt: skip
def test_other_names_say_nothing(name: str) -> None:
    assert serving_steps(pl.Series([name])).is_empty()


@pytest.mark.parametrize(
    ("name", "prefill", "decode", "tokens"),
    [
        ("execute_context_2(512)_generation_30(30)", 512, 30, 542),
        ("step[DECODE bs=32]", None, 32, 32),
        ("step[EXTEND bs=4 toks=4096]", 4096, None, 4096),
        ("step[MIXED bs=4 toks=99]", None, None, 99),
        ("execute_new_2_cached_30", None, None, None),
    ],
)
def test_sizes(name: str, prefill: int | None, decode: int | None, tokens: int | None) -> None:
    assert serving_steps(pl.Series([name])).select("prefill_tokens", "decode_tokens", "tokens").row(0) == (prefill, decode, tokens)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        # SGLang with `roofline_annotations`, in the orders of its keys so far
        ("step[DECODE bs=2 g_sqsq=2 g_sqsk=30 g_sk=30]", (None, 2, 2, None, 30)),
        ("step[DECODE bs=64 g_sq=128 g_sqsq=256 g_sqsk=262144 g_sk=131072]", (None, 128, 128, None, 131_072)),
        ("step[EXTEND bs=1 toks=8192 c_sq=8192 c_sqsq=67108864 c_sqsk=201326592 c_sk=24576]", (8_192, None, 8_192, 24_576, None)),
        ("step[EXTEND bs=2 toks=12 c_sqsq=80 c_sqsk=120 c_sk=20]", (12, None, 12, 20, None)),
        ("step[MIXED bs=2 c=1 g=1 c_sq=5 c_sk=8 c_sqsq=25 c_sqsk=40 g_sq=1 g_sk=12 g_sqsq=1 g_sqsk=12]", (5, 1, 6, 8, 12)),
        ("step[MIXED bs=1 c=1 g=0 c_sq=3 c_sk=3 c_sqsq=9 c_sqsk=9 g_sq=0 g_sk=0 g_sqsq=0 g_sqsk=0]", (3, 0, 3, 3, 0)),
        # vLLM and ATOM
        ("execute_6147_context_2(sq6144sk7144sqsq20971520sqsk23019520)_generation_3(sq3sk6144sqsq3sqsk6144)", (6_144, 3, 6_147, 7_144, 6_144)),
        ("prefill[bs=2 tok=14721 ctx=[7803, 6918] sqsq=108745533 sqsk=108745533 sk=14721]", (14_721, None, 14_721, 14_721, None)),
        ("decode[bs=117/128 tok=117 d=117]", (None, 117, 117, None, None)),
        # sizes that are none
        ("step[DECODE bs=9999999999999999999 g_sk=99999999999999]", (None, None, None, None, None)),
        ("step[MIXED bs=2 c_sq= g_sk=-4]", (None, None, None, None, None)),
    ],
)  # fmt: skip
def test_tokens_and_lengths_of_keys(name: str, sizes: tuple[int | None, ...]) -> None:
    columns = ("prefill_tokens", "decode_tokens", "tokens", "prefill_keys", "decode_keys")
    assert serving_steps(pl.Series([name])).select(columns).row(0) == sizes


def served(*more: Any) -> Report:
    """Analyse a prefill of 10 ms of products, four decoding steps of 1 ms of memory-bound work, then a mixed step."""
    names = ["step[EXTEND bs=4 toks=4000]", *["step[DECODE bs=8]"] * 4, "step[MIXED bs=3 toks=300]"]
    starts = [0, 10_000, 11_000, 12_000, 13_000, 14_000]
    lengths = [10_000, 1_000, 1_000, 1_000, 1_000, 2_000]
    steps = [
        [annotation(name, 10 * n, 8),
         *(launched(GEMM if n == 0 else COPY, 10 * n + k / 2, 100 + start + k * length // 10, length // 10, 100 * n + k + 1, takes=0.25)
           for k in range(10))]
        for n, (name, start, length) in enumerate(zip(names, starts, lengths, strict=True))
    ]  # fmt: skip
    return analysed(steps, *more)


def test_each_kind_has_its_time_its_tokens_and_its_verdict() -> None:
    rows = served().tables["serving"]
    assert rows.select("step_kind", "count", "time_ns", "median_ns", "busy_ns").rows() == [
        ("prefill", 1, 10_000_000, 10_000_000, 10_000_000), ("decode", 4, 4_000_000, 1_000_000, 4_000_000),
        ("mixed", 1, 2_000_000, 2_000_000, 2_000_000),
    ]  # fmt: skip
    assert rows.select("prefill_tokens", "decode_tokens", "tokens_per_s").rows() == [
        (4_000, None, 400_000.0), (None, 32, 8_000.0), (None, None, 150_000.0),
    ]  # fmt: skip
    assert rows.get_column("regime").to_list() == ["compute-bound", *["memory-bandwidth-bound"] * 2]


def test_a_mixed_step_has_both_kinds_of_tokens_and_keys() -> None:
    mixed = "step[MIXED bs=66 c=2 g=64 c_sq=2048 c_sk=4096 c_sqsq=1 c_sqsk=1 g_sq=64 g_sk=65600 g_sqsq=1 g_sqsk=1]"
    at = enumerate(range(0, 4_000, 1_000))
    steps = [[annotation(mixed, t, 900), launched(GEMM, t + 1, t + 10, 800, n + 1)] for n, t in at]
    (row,) = analysed(steps).tables["serving"].to_dicts()
    assert (row["prefill_tokens"], row["decode_tokens"], row["prefill_keys"], row["decode_keys"]) == (8_192, 256, 16_384, 262_400)  # fmt: skip
    assert row["tokens_per_s"] == pytest.approx(4 * 2_112 / row["time_ns"] * 1e9)


def test_steps_without_sizes_count_for_no_tokens_per_second() -> None:
    unsized = [annotation("execute_new_0_cached_30", 80, 8), launched(COPY, 80.5, 16_100, 3_000, 901, takes=0.25)]
    rows = served(unsized).tables["serving"]
    assert rows.filter(step_kind="decode").select("count", "decode_tokens", "tokens_per_s").rows() == [(5, 32, 8_000.0)]


def test_it_stands_in_the_json() -> None:
    rows = json.loads(served().to_json())["serving"]
    assert [(row["device"], row["step_kind"], row["count"]) for row in rows] == [(0, "prefill", 1), (0, "decode", 4), (0, "mixed", 1)]  # fmt: skip
    assert json.loads(analysed(launched("a", 0, 10, 10, 1)).to_json())["serving"] == []


def test_parts_of_a_kind_are_those_of_its_steps() -> None:
    report = served()
    steps = report.tables["steps"]
    assert report.steps_from == "SGLang"
    assert report.tables["serving"].get_column("time_ns").sum() == steps.select((pl.col("end_ns") - pl.col("start_ns")).sum()).item()  # fmt: skip
    marked = served([annotation(f"ProfilerStep#{n}", 30 * n, 30) for n in range(2)])
    assert marked.steps_from == "SGLang"
    assert marked.tables["serving"].equals(report.tables["serving"])


def test_of_annotations_within_each_other_the_outermost_is_the_step() -> None:
    around = annotation("execute_context_4(4000)_generation_0(0)", 0, 9)
    rows = served(around).tables["serving"]
    assert rows.select("count", "prefill_tokens", "decode_tokens").row(0) == (1, 4_000, 0)


def test_work_from_before_the_recording_is_no_step_s() -> None:
    report = analysed(
        annotation("step[EXTEND bs=1 toks=100]", 0, 9_900),
        [launch(5, 2, 1), kernel("arange", 10, 3, correlation=1)],
        [launch(100, 5, 2), kernel("next", 9_000, 100, correlation=2, stream=20)],
        [op("aten::to", 120, 8_860), call("cudaStreamSynchronize", 130, 8_840)],
        [launched(GEMM, 9_100 + 20 * n, 9_110 + 20 * n, 19, 10 + n, stream=20) for n in range(20)],
    )
    earlier = sum(end - start for start, end, cause in idle_parts(report) if cause == "earlier-work")
    assert earlier > 8_000
    (row,) = report.tables["serving"].to_dicts()
    assert row["time_ns"] == report.devices[0].window_ns - round(1_000 * earlier)
    assert row["tokens_per_s"] == pytest.approx(100 / row["time_ns"] * 1e9)


def test_each_kind_has_a_sentence() -> None:
    first, second, third = served().tables["serving"].get_column("headline")
    assert first.startswith("Prefill is compute-bound: ")
    assert "of the step" in first
    assert second.startswith("Decode is memory-bandwidth-bound: ")
    assert "of its 4 steps" in second
    assert third.startswith("Mixed is ")


def attention(
    name: str, queries: int, start: float = 5, operator: str = "_vllm_fa2_C::varlen_fwd", **inputs: Any
) -> Report:
    """Analyse four steps of this name, each with a call of attention that reads a cache of 2 heads of 128 in bf16."""
    dims = [[queries, 8, 128], [1000, 16, 2, 128], [1000, 16, 2, 128]]
    inputs = inputs or {"Input Dims": dims, "Input type": ["c10::BFloat16"] * 3}
    steps = [
        [annotation(name, 1_000 * n, 900), op(operator, 1_000 * n + start, 9, **inputs),
         launch(1_000 * n + start + 1, 3, n + 1), kernel("flash_fwd_kernel", 1_000 * n + start + 20, 400, correlation=n + 1)]
        for n in range(4)
    ]  # fmt: skip
    return analysed(steps)


KEY = 2 * 2 * 128 * 2
"""Bytes of a key and a value."""
MIXED = "step[MIXED bs=66 c=2 g=64 c_sq=2048 c_sk=4096 g_sq=64 g_sk=65600]"


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("name", "queries", "keys"),
    [
        ("step[DECODE bs=64 g_sqsq=64 g_sqsk=100032 g_sk=100032]", 64, 100_032),
        ("step[DECODE bs=50 g_sk=70000]", 64, 70_000),  # padded to the size of a graph
        ("step[EXTEND bs=2 toks=300 c_sq=300 c_sk=900]", 300, 900),
        ("execute_312_context_1(sq300sk900)_generation_12(sq12sk5000)", 312, 5_900),
        (MIXED, 2_112, 69_696),
        (MIXED, 64, 65_600),  # prompts and running requests in calls of their own
        (MIXED, 2_048, 4_096),
        (MIXED, 100, None),
        ("step[MIXED bs=2 c=1 g=1 c_sq=5 c_sk=8 g_sq=5 g_sk=12]", 5, None),  # whose queries these are is not known
        ("step[DECODE bs=64]", 64, None),
        ("step[DECODE bs=8 g_sk=70000]", 64, None),
        ("ProfilerStep#3", 64, None),
    ],
)
def test_attention_reads_the_keys_of_its_step(name: str, queries: int, keys: int | None) -> None:
    """Check the bytes of query, result, and the step's keys and values; without these, the bytes are a lower bound."""
    own = 2 * queries * 8 * 128 * 2
    expected = (own, "at-least") if keys is None else (own + keys * KEY, "inferred-shape")
    rows = attention(name, queries).tables["activities"].select("moved_bytes", "work_from").rows()
    assert rows == [expected] * 4


@pytest.mark.parametrize(
    ("operator", "dims", "own", "key"),
    [
        ("sglang::unified_attention_with_output", [[64, 1024], [64, 256], [64, 256], [64, 1024]], 64 * (2 * 1024 + 512), 512),
        ("_C::paged_attention_v1", [[64, 8, 128], [64, 8, 128], [99, 2, 16, 16, 8], [99, 2, 128, 16]], 2 * 64 * 1024, 512),
        ("sgl_kernel::cutlass_mla_decode", [[64, 8, 512], [64, 8, 512], [64, 8, 64], [99, 16, 576]], 64 * 8 * 1088, 576),
    ],
)  # fmt: skip
def test_operators_of_attention_over_a_cache(operator: str, dims: list[list[int]], own: int, key: int) -> None:
    inputs = {"Input Dims": dims, "Input type": ["c10::BFloat16"] * len(dims)}
    report = attention("step[DECODE bs=64 g_sk=9000]", 64, operator=operator, **inputs)
    assert report.tables["activities"].get_column("moved_bytes").to_list() == [2.0 * (own + 9_000 * key)] * 4


def test_attention_outside_of_steps_has_a_lower_bound() -> None:
    rows = attention("step[DECODE bs=64 g_sk=9000]", 64, start=950).tables["activities"]
    assert rows.get_column("work_from").unique().to_list() == ["at-least"]


def test_the_kind_that_holds_most_time_is_judged_and_the_headline_says_which() -> None:
    report = served()
    assert (report.verdict.window.step_kind, report.verdict.window.steps) == ("prefill", (0,))
    assert "of the prefill step" in report.verdict.headline
    states = report.tables["steps"].select("step_kind", "state", "steady").rows()
    assert states == [("prefill", "ok", True), *[("decode", "outlier", False)] * 4, ("mixed", "outlier", False)]
    marked = served([annotation(f"ProfilerStep#{n}", 30 * n, 30) for n in range(3)])
    assert marked.verdict.window == report.verdict.window, "whatever else marks steps"
