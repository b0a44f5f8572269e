"""Test patterns for kernel profilers: short, matching the kernel's name, and as few others as possible."""

import re

import pytest
from hypothesis import given, settings, strategies as st
from kineto import analysed, kernel
from test_advice import GEMM, in_a_row
from tiers import examples

from trace_analyzer.catalog.kernels import function_name, kernel_pattern

ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3> >(int)"
)
MUL = "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor<float>, std::array<char*, 3> >(int)"
GEMM_64 = "void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_f16_64x64_32x6_tn_align8>(T1::Params)"
GEMM_128 = "void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_f16_128x64_32x6_tn_align8>(T1::Params)"
TENSILE = (
    "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT{}_MI16x16x1_SN_LDSB1_AFC1_AFEM1_AFEM1_ASEM1_CLR1_CADS0_DTLA0_DTLB0"
)
TILED = "_ZN7ck_tile6kentryILi2ENS_13FmhaFwdKernelINS_{}ENS_16Default2DEpilogueIfEEEEJNS_5KargsEEEEvDF16bLi16ET1_"
PREFILL, DECODE = TILED.format("19BlockFmhaPipelineQR"), TILED.format("26BlockFmhaFwdSplitKVPipeline")
QUANTIZE = "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256ELi16ELb1EEEvPT0_S4_d"


@pytest.mark.parametrize(
    ("name", "others", "pattern", "left"),
    [
        ("softmax_warp_forward", [ADD], "softmax_warp_forward", 0),
        (ADD, [GEMM_64], "vectorized_elementwise_kernel", 0),
        (ADD, [MUL], "CUDAFunctor_add", 0),
        (GEMM_64, [GEMM_128, ADD], "64x64", 0),
        (GEMM_64, [ADD], "s16816gemm", 0),
        (TENSILE.format("256x192x64"), [TENSILE.format("128x128x32")], "MT256x192x64", 0),
        (PREFILL, [DECODE], "BlockFmhaPipelineQR", 0),
        (PREFILL, [ADD], "FmhaFwdKernel", 0),
        (QUANTIZE, [PREFILL], "add_rmsnorm_quant_kernel", 0),
        ("k<1, 2>", ["k<2, 1>"], "k.*1.*2", 0),
        ("k<float>", ["k<double>"], "float", 0),
        ("k<true>", ["k<false>"], "k", 1),
        (f"{'tile_' * 10}k", [], "tile", 0),
        ("triton__0d1d", ["triton__0d1d2d"], r"^triton__0d1d\b", 0),
        ("k", ["k<1>", "kk"], r"^k\b", 1),
        ("", [ADD], ".*", 1),
        ("<> ()", [ADD], ".*", 1),
    ],
)  # fmt: skip
def test_a_pattern_is_the_least_that_tells_a_kernel(name: str, others: list[str], pattern: str, left: int) -> None:
    assert kernel_pattern(name, [name, *others]) == (pattern, left)


_NAMES = st.text(st.sampled_from("abk_18Z<>(), :$`\"'\\.*"), max_size=30)


@settings(max_examples=examples(100))
@given(name=_NAMES, others=st.lists(_NAMES, max_size=6))
def test_a_pattern_is_found_in_its_kernel_and_counts_all_others(name: str, others: list[str]) -> None:
    pattern, left = kernel_pattern(name, others)
    assert re.search(pattern, name, re.DOTALL)
    assert left == sum(re.search(pattern, other, re.DOTALL) is not None for other in {*others} - {name})
    assert re.fullmatch(r"[\w.*]+|\^\w+\\b", pattern, re.ASCII), "nothing that a shell runs"


@pytest.mark.parametrize(
    ("names", "command"),
    [
        (("Weave<1>", "Braid<1>"), '--kernel-name "regex:Weave" --launch-count 1 COMMAND'),
        (("Weave<true>", "Weave<false>"), "COMMAND  # 1 other kernel has such a name"),
    ],
)
def test_the_command_of_a_card_names_one_kernel(names: tuple[str, str], command: str) -> None:
    """Kernels of an extension that share their outer name: the pattern is what differs."""
    calls = enumerate(f"void own::Launch<own::{name}>(float*)" for name in names * 6)
    rows = [kernel(name, 1_600 + 60 * n, 50 - n % 2) for n, name in calls]
    (item,) = (item for item in analysed(in_a_row(GEMM), rows).advice if item.id == "custom-kernels")
    assert item.code.endswith(command)


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("void ns::softmax_warp_forward<float, 8>(float*)", "softmax_warp_forward"),
        ("void (anonymous namespace)::softmax_warp_forward<float, 8>(float*)", "softmax_warp_forward"),
        ("std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float>(x)", "gemvx::kernel"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm>(cutlass_80_tensorop_s1688gemm::Params)", "cutlass_80_tensorop_s1688gemm"),
        ("attn_fwd.kd", "attn_fwd"),
        ("_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi64EEEvPT0_", "add_rmsnorm_quant_kernel"),
        ("_ZN7ck_tile6kentryILi2ENS_38FmhaBatchPrefillWithPagedKVCacheKernelINS_40Block", "FmhaBatchPrefillWithPagedKVCacheKernel"),
        ("_ZN7cutlass7Kernel2I34cutlass_80_tensorop_f16_s16816gemmEE", "cutlass_80_tensorop_f16_s16816gemm"),
    ],
)  # fmt: skip
def test_a_kernel_has_its_own_name(name: str, own: str) -> None:
    assert function_name(name) == own
