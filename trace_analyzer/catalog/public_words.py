"""Tell whether a name is made of public words alone: those of PyTorch, of its kernels, and of this program.

`public_words.txt` is written by ``.ci/public_words.py``; `_SHORT` and `_KERNEL_WORDS` are what names of library kernels
are made of beside that (cuBLAS, cuDNN, CUTLASS, NCCL, Triton, rocBLAS, Composable Kernel).
"""

import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("public_words.txt")

_PACKAGE = Path(__file__).parents[1]
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_a-zA-Z]+")
_SOURCES = ("*.py", "*.pyx", "*.toml", "*.json", "*.j2", "*.js")
_ROCBLAS = re.compile(r"C[ijkl]{2,4}_A[ijkl]{2,4}_B[ijkl]{2,4}_")
_ROCBLAS_CODE = re.compile(r"[A-Z]{1,8}n?\d+[A-Z]{0,3}\d*|MT\d+x\d+x\d+|MI(?:\d+x)+\d+|[A-Z]{1,4}")
"""How names of Tensile's kernels begin, and their parameters: `MT128x64x32`, `ISA942`, `GRVWA8`."""
_LONGEST_NUMBER = 8
"""Digits of a number within a name; longer ones may be somebody's."""

_SHORT = frozenset(
    "a an as at be by do e f ff fp go gt gz h hd i id if in io is it k lt lu m mb me mk ms mt my n nc nd ne nn no np ns nt"
    " of on op or os pg pi pk pt py q qk rs s sm so sp ss st sz t tc td tf th ti tn to tp ts tt tx u ui up us v vs w"
    " we wg ws x xs xx y yz z bf gb gi kb kv ln mm mv ok bn bs bw cc ck cu cp dd dt dx dy el eq fc fn ge gi gp hf hi"
    " hp hz ih ul kd kh kw le lh ll lr lw pc pe pf qa rf rl rm rn rt sb sd se sr vd wb wh wt za zb bh bb bd mi rx ld ag"
    " ar bc ty tw tz un va ve xe xi xp".split()
)
_KERNEL_WORDS = frozenset(
    "adam ull ampere amax aten avx bgrad bhsd bias cask cdna cijk ailk alik bljk bjlk bmm bshd bsdh col coll cublas cublaslt cuda"
    " cudnn cudnninfer cutlass deepseek devel dgrad dgated dgelu dropout dsv ffma flash fmha fprop fused fwd bwd gelu gemm gemmk gemmx gemv"
    " gfx hgemm hhs hmma hopper hss igemm imma implicit inds indexed infer interleave kernel ldg ldgsts lds mha mfma mmha mqa"
    " nccl nchw ncdhw ndhwc nhwc nhwckrsc nvjet nvidia nvte onednn persistent pingpong pointwise qkv rcclx rccl relu relugrad rms rmsnorm"
    " rope rocblas hip hipblas hipblaslt miopen rocm sgemm sgemmk scudnn silu softmax splitk streamk stages swiglu syrk tensorop"
    " tensorwarp tilesize tma triton trsm turing unroll volta vllm warpgroup warpgroupsize warpsize warpspecialized wgmma wgrad winograd xmma"
    " zgemm dgemm cgemm bsr csr coo nvlink nvls ring tree simple treell sendrecv allreduce allgather reducescatter alltoall"
    " broadcast memcpy memset dtoh htod dtod ptop pageable pinned managed xxh xla mtia hpu xpu tbe fbgemm linalg launder conv convolve"
    " hcpu geforce gtx rtx quadro tesla titan instinct radeon arc intel amd pcie sxm nvl hbm jetson orin thor max min gpu cpu"
    " dataloader dataparallel ddp fsdp deepspeed megatron apex lightning accelerate transformers torchvision torchaudio numpy"
    " bert gpt llama resnet vit unet clip".split()
)


def is_public(identifier: str) -> bool:
    """Whether all words of the identifier are public; its digits do not count, unless there are many in a row.

    >>> is_public("vectorized_elementwise_kernel"), is_public("s16816gemm_bf16"), is_public("zor" + "blat_gemm"), is_public("b7d2c9")
    (True, True, False, False)
    """
    if not identifier.isascii() or any(len(digits) > _LONGEST_NUMBER for digits in re.findall(r"\d+", identifier)):
        return False
    parts = identifier.split("_")
    return all(_part_is_public(part) for part in parts) or bool(
        _ROCBLAS.match(identifier) and all(_ROCBLAS_CODE.fullmatch(part) or _part_is_public(part) for part in parts)
    )


def _part_is_public(part: str) -> bool:
    words = list(words_of(part))
    # Single letters between digits, more than a type or a size has: a code, perhaps of somebody.
    codes = re.findall(r"(?<=\d)[A-Za-z](?=\d)", part)
    if len([letter for letter in codes if letter not in "xXef"]) > 1:
        return False
    known = _words()
    return all(word in known or len(word) < 2 or word in _SHORT for word in words) or part.lower() in known


def words_of(identifier: str) -> Iterator[str]:
    """The words of an identifier in lower case, cut at underscores, digits and capitals."""
    return (match[0].lower() for match in _WORD.finditer(identifier))


@cache
def _words() -> frozenset[str]:
    """Every public word: PyTorch's, those of kernels and of Python's modules, and what this program's own files say."""
    listed = (line for line in FILE.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    own = (path.read_text(encoding="utf-8") for pattern in _SOURCES for path in _PACKAGE.rglob(pattern))
    ours = (word for text in own for word in words_of(text) if len(word) > 2)
    modules = (word for name in sys.stdlib_module_names for word in words_of(name))
    return frozenset((*listed, *_KERNEL_WORDS, *ours, *modules))
