"""Code of advice fits the trace: it parses, its names exist in PyTorch, and it contradicts nothing that was recorded."""

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest
from kineto import A100, analysed, annotation, call, copy, kernel, launched, op, python, trace_bytes
from test_advice import ADD, CASES, GEMM, LOADS, ON, V100, VALUES, first_uses, iterations, moved, optimizer

from trace_analyzer.catalog.event_names import code_rules
from trace_analyzer.catalog.fixes import (
    FUSED,
    PLATFORMS,
    Fix,
    fixes,
    for_compiled,
    fusions,
    optimizer_in_few_launches,
    pages,
)
from trace_analyzer.report import Advice, Report

pytestmark = pytest.mark.slow

COMPILED = r"Torch-Compiled Region|CompiledFxGraph|torchinductor_|triton_(poi|red|per)_fused"
CHUNKED = r"transformers/pipelines/(zero_shot_object_detection|zero_shot_classification|token_classification)\.py"
REGION = op("Torch-Compiled Region: 0/0", 0, 1)
SGD = annotation("Optimizer.step#SGD.step", 1, 1)


def contradictions(item: Advice, text: str, major: int | None) -> Iterator[str]:
    """Yield what an advice's code says against the text of a trace, and the compute capability of its device."""
    ast.parse(item.code)
    named = {*re.findall(r"Optimizer\.step#(\w+)\.step", text)}
    if other := {*re.findall(r"torch\.optim\.(\w+)\(", item.code)} - named:
        yield f"another optimizer: {other}"
    if ("torch.compile(" in item.code or ": compile" in item.title) and re.search(COMPILED, text):
        yield "compiled already"
    if "torch.bfloat16" in item.code and major is not None and major < 8:
        yield "no bf16"
    if "CUDNN_ATTENTION" in item.code and not re.search(r"_flash_|_cudnn_|Half|BFloat16", text):
        yield "a backend for 16 bits"
    if re.search(CHUNKED, text) and re.search(r"num_workers=(?!1\b)", item.code):
        yield "more workers than the pipeline has"
    if ".pin_memory()" in item.code and not re.search(r"HtoD|HostToDevice", text):
        yield "nothing is copied to the device"
    if re.match(r"host\.copy_\(|values = ", item.code) and not re.search(r"DtoH|DeviceToHost", text):
        yield "nothing is copied to the host"
    if "instead of x[mask], whose size" in item.code and not re.search(
        r"aten::(nonzero|masked_select)|DtoH|DeviceToHost", text
    ):
        yield "no mask waits for its size"


def check_code(report: Report, text: str) -> None:
    majors = [int(major) for major in re.findall(r'"computeMajor": ?(\d+)', text)]
    for item in report.advice:
        assert list(contradictions(item, text, majors[0] if majors else None)) == [], (item.id, item.code)


@pytest.mark.sampled
@pytest.mark.parametrize("dressed", ["SGD on V100", "compiled"])
@pytest.mark.parametrize("fix", CASES)
def test_code_contradicts_no_trace_that_asks_for_it(fix: str, dressed: str) -> None:
    events = [CASES[fix][0], REGION if dressed == "compiled" else SGD]
    device = ON.get(fix, A100) if dressed == "compiled" else V100
    check_code(analysed(events, devices=[device]), trace_bytes(events, deviceProperties=[device]).decode())


def codes() -> Iterator[str]:
    """Yield all code of the catalogue, for each platform and case, and code that rules make."""
    values = dict.fromkeys(
        ("products", "dtype", "scaled", "profile", "also", "first", "or_fewer_bits", "reached", "sizes"), ""
    )
    values |= {"workers": "4", "torch_dtype": "bfloat16", "chains": "pass", "factory": "arange", "optimizer": "pass"}
    for fix in fixes().values():
        for platform in PLATFORMS:
            for case in ("", *fix.cases):
                yield fix.code_of(platform, case, **values)
    yield from (rule.code for rule in fusions())
    yield from map(optimizer_in_few_launches, (*FUSED, "Adagrad", "Muon", ""))
    yield from (str(page["code"]).replace("$optimizer", "pass") for page in pages().values() if "parts" in page)


OF_LOOPS = ("channels-last", "data-loading", "fused-optimizer", "set-to-none")
"""Fixes that only programs with a model, a loader or an optimizer of their own call for."""


@pytest.mark.parametrize("fix", [fix for fix in fixes().values() if fix.id not in OF_LOOPS], ids=lambda fix: fix.id)
def test_an_engine_is_not_asked_for_code_of_a_loop(fix: Fix) -> None:
    """Who serves by an engine sets its options, and has neither model nor loader; inference has no gradients."""
    serving, inference = (fix.code_of("cuda", case, **VALUES) for case in ("serving", "inference"))
    assert not re.search(r"^(model|loader|optimizer) = |torch\.compile\(", serving, re.MULTILINE)
    assert not re.search(r"^(loader|optimizer|model = Distributed)|no_sync|backward\(", inference, re.MULTILINE)


@pytest.mark.parametrize("code", dict.fromkeys(codes()))
def test_code_parses_also_where_the_program_is_compiled(code: str) -> None:
    ast.parse(code)
    compiled = for_compiled(code)
    ast.parse(compiled)
    assert "torch.compile" not in compiled
    assert compiled
    assert for_compiled(compiled) == compiled


@pytest.mark.parametrize("code", dict.fromkeys(codes()))
def test_names_and_options_are_those_of_pytorch(code: str) -> None:
    torch = pytest.importorskip("torch")
    for module in ("torch._dynamo", "torch._inductor.config"):
        importlib.import_module(module)
    for text in (code, for_compiled(code)):
        for node in ast.walk(ast.parse(text)):
            name = ast.unparse(node.func if isinstance(node, ast.Call) else node)
            if not isinstance(node, ast.Call | ast.Attribute) or not re.fullmatch(r"torch(\.\w+)+", name):
                continue
            known: Any = torch
            for part in name.split(".")[1:]:
                known = getattr(known, part)
            if isinstance(node, ast.Call) and (options := {key.arg for key in node.keywords if key.arg}):
                try:
                    parameters = inspect.signature(known).parameters
                except ValueError:
                    continue  # built-in functions have no signature
                takes_all = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
                assert takes_all or options <= set(parameters), (name, options)


def code_of(fix: str, *events: object, devices: tuple[dict[str, Any], ...] = (A100,)) -> str:
    report = analysed(*events, devices=list(devices))
    return next(item.code for item in report.advice if item.id == fix)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("SGD", "optimizer = torch.optim.SGD(model.parameters(), **options, fused=True)"),
        ("RMSprop", "optimizer = torch.optim.RMSprop(model.parameters(), **options, foreach=True)"),
        ("Muon", "# torch.optim has no fused or foreach form of Muon"),
    ],
)
def test_the_optimizer_is_that_of_the_trace(name: str, code: str) -> None:
    assert code_of("fused-optimizer", optimizer("aten::addcdiv_", f"Optimizer.step#{name}.step")).startswith(code)


def test_an_optimizer_that_is_compiled_is_fused() -> None:
    work = [optimizer("aten::addcdiv_"), op("Torch-Compiled Region: 1/0", 1_999, 1_300)]
    assert "fused-optimizer" not in [item.id for item in analysed(work).advice]


ROWS = [8, 16, 1000, 64]


@pytest.mark.parametrize(
    ("backend", "rest", "dtype", "device", "code"),
    [
        ("flash", ["0.", "False"], "c10::Half", A100, "CUDNN_ATTENTION"),
        ("efficient", ["", "True", "0.", "False"], "float", A100, ""),
        ("efficient", ["", "True", "0.", "False"], "c10::Half", V100, "ncu --set full"),
    ],
)
def test_attention_gets_a_backend_for_its_type_and_device(
    backend: str, rest: list[str], dtype: str, device: dict[str, Any], code: str
) -> None:
    inputs = {
        "Input Dims": [ROWS] * 3 + [[]] * len(rest),
        "Input type": [dtype] * 3 + ["Scalar" if value else "" for value in rest],
        "Concrete Inputs": ["", "", "", *rest],
    }
    work = [
        [op(f"aten::_scaled_dot_product_{backend}_attention", 20 * n, 15, **inputs),
         launched("fmha_forward", 20 * n + 5, 1_000 + 9_000 * n, 9_000, n + 1, grid=[5_000, 1, 1])]
        for n in range(12)
    ]  # fmt: skip
    codes = "\n".join(item.code for item in analysed(work, devices=[device]).advice)
    assert code in codes
    assert ("sdpa_kernel" in codes) == (code == "CUDNN_ATTENTION")


def test_attention_below_its_peak_is_called_so_and_gets_another_backend() -> None:
    inputs = {"Input Dims": [[8, 16, 4096, 64]] * 3 + [[]] * 2, "Input type": ["c10::Half"] * 3 + ["Scalar"] * 2,
              "Concrete Inputs": ["", "", "", "0.", "False"]}  # fmt: skip
    work = [[op("aten::_scaled_dot_product_flash_attention", 20 * n, 15, **inputs),
             launched("fmha_forward", 20 * n + 5, 1_000 + 5_000 * n, 5_000, n + 1, grid=[5_000, 1, 1])] for n in range(12)]  # fmt: skip
    item = next(item for item in analysed(work).advice if item.id == "max-autotune")
    assert item.title == "Bring attention closer to the peak"
    assert item.code.startswith("with sdpa_kernel(SDPBackend.CUDNN_ATTENTION)")


@pytest.mark.parametrize(
    ("operator", "name", "inputs", "percent", "code"),
    [
        ("vllm::inplace_fused_experts", "fused_moe_kernel", [[4096, 4096], [8, 14336, 4096], [8, 4096, 7168], [4096, 2], [4096, 2]], 24, "benchmark_moe.py"),
        ("quack::gemm", "my_gemm", [[4096, 4096], [4096, 4096]], 3.6, "torch.matmul(a, b)"),
        ("vllm::rocm_unquantized_gemm", "my_gemm", [[4096, 4096], [4096, 4096]], 3.6, "torch.matmul(a, b)"),
        ("fbgemm::bf16i4bf16_rowwise", "my_gemm", [[4096, 4096], [4096, 2048], [32, 4096], [32, 4096]], 3.6, "ncu --set full"),
    ],
)  # fmt: skip
def test_kernels_far_below_the_roof_are_findings_by_name(
    operator: str, name: str, inputs: list[list[int]], percent: float, code: str
) -> None:
    """A100: 312 TFLOP/s. Each of 4,096 tokens goes to two experts of three matrices of 4,096 x 7,168; else one matmul."""
    flop = 2 * 4_096 * 2 * 3 * 4_096 * 7_168 if len(inputs) == 5 else 2 * 4_096**3
    time = flop / 312e12 * 1e6 / (percent / 100)
    types = ["c10::BFloat16"] * 2 + ["c10::BFloat16" if len(inputs) > 4 else "float"] + ["float", "int"]
    args = {"Input Dims": inputs, "Input type": types[: len(inputs)]}
    work = [
        [
            op(operator, 20 * n, 15, **args),
            launched(name, 20 * n + 5, 1_000 + time * n, time, n + 1, grid=[5_000, 1, 1]),
        ]
        for n in range(12)
    ]
    (item,) = (item for item in analysed(work).advice if item.id == "inefficient-kernels")
    assert f"{name} reaches {percent:g} % of the roof" in item.why
    assert code in item.code


@pytest.mark.parametrize(
    ("operator", "name", "is_own"),
    [
        ("my_ops::product", "product_gemm", True),
        ("MatmulFunction", "my_matmul", True),
        (None, "matmul_kernel_0d1d2d", True),
        (None, "ampere_sgemm_128x64_tn", False),
        ("aten::mm", "my_matmul", False),
        ("my_ops::w4a16_product", "my_matmul", False),
        ("CompiledFunction", "my_matmul", False),
    ],
)
def test_a_matmul_of_unknown_work_is_compared_with_the_library_s(operator: str | None, name: str, is_own: bool) -> None:
    work = [[*([op(operator, 20 * n, 15)] if operator else []), launched(name, 20 * n + 5, 400 + 100 * n, 100, n + 1)]
            for n in range(12)]  # fmt: skip
    beside = [kernel("my_own_operator(int)", 1_700, 100)]
    codes = {item.id: item.code for item in analysed(work, beside).advice}
    assert ("torch.matmul(a, b)" in codes.get("custom-kernels", "")) == is_own
    assert "torch.matmul(a, b)" not in codes.get("less-work", "")


def test_a_tensor_that_the_cpu_makes_is_made_on_the_device() -> None:
    code = code_of("cpu-operators", iterations(lambda t: op("aten::arange", t, 4_800), period=5_000))
    assert code.startswith('x = torch.arange(..., device="cuda")')
    assert ".to(" not in code


def results(operator: str) -> list[object]:
    """Build kernels, each with a copy to the host after it whose call lasts as long as the device idles."""
    return [
        [launched(GEMM, t, t + 10, 100, 2 * n + 1), op(operator, t + 15, 400),
         call("cudaMemcpyAsync", t + 16, 390, correlation=2 * n + 2),
         copy("DtoH (Device -> Pageable)", t + 395, 2, correlation=2 * n + 2)]
        for n, t in enumerate(range(0, 6_000, 500))
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("operator", "code"), [("aten::nonzero", "torch.where"), ("aten::item", "loss.detach()"), ("aten::copy_", "")]
)
def test_a_copy_of_what_an_operator_waits_for_is_no_pageable_memory(operator: str, code: str) -> None:
    items = {item.id: item.code for item in analysed(results(operator)).advice}
    assert ("pinned-memory" in items) == (not code)
    assert items.get("pinned-memory", "host.copy_(").startswith("host.copy_("), "what goes to the host"
    assert not code or code in items["synchronization"]


def test_a_wait_for_a_copy_has_code_for_its_direction() -> None:
    def work(direction: str, around: str = "aten::to") -> list[object]:
        return [
            [launched(GEMM, t, t + 10, 300, 2 * n + 1), op(around, t + 14, 325), op("aten::copy_", t + 15, 320),
             call("cudaMemcpyAsync", t + 16, 300, correlation=2 * n + 2), call("cudaStreamSynchronize", t + 317, 8),
             copy(direction, t + 312, 3, correlation=2 * n + 2)]
            for n, t in enumerate(range(0, 6_000, 500))
        ]  # fmt: skip

    assert code_of("synchronization", work("DtoH (Device -> Pageable)")).startswith("host.copy_(x, non_blocking=True)")
    assert code_of("synchronization", work("HtoD (Pageable -> Device)")).startswith("x = x.pin_memory().to(")
    for direction, says in (
        ("HtoD (Pageable -> Device)", 'index.to("cuda")'),
        ("DtoH (Device -> Pageable)", "torch.where"),
    ):
        assert says in code_of("synchronization", work(direction, "aten::index"))


def test_a_pipeline_that_splits_its_inputs_gets_one_worker_and_its_estimate() -> None:
    frame = "transformers/pipelines/zero_shot_object_detection.py(164): preprocess"
    first = analysed(iterations(lambda t: annotation(LOADS, t, 850), lambda t: python(frame, t, 851))).advice[0]
    assert "num_workers=1)" in first.code
    assert first.predicted is not None
    assert first.predicted.low_ns >= 800_000, "one worker loads for 850 us a step; six reach the floor"


def test_data_that_no_dataloader_loads_is_fetched_ahead() -> None:
    code = code_of("data-loading", iterations(lambda t: annotation("get_batch", t, 850)))
    assert "pool.submit(next, batches)" in code
    assert "num_workers" not in code


@pytest.mark.parametrize(
    ("direction", "code"), [("DtoH (Device -> Pinned)", "torch.stack"), ("HtoD (Pinned -> Device)", "torch.cat")]
)
def test_small_copies_are_merged_in_their_direction(direction: str, code: str) -> None:
    assert code_of("small-copies", moved(direction, 1_000)).startswith(
        ("values = " if "stack" in code else "packed = ") + code
    )


def test_copies_of_pageable_memory_have_a_bound_without_any_kernel() -> None:
    """Of 20 ms, 1.33 ms are what 1.75 MB a copy take over PCIe 4.0 (31.5 GB/s)."""
    copies = [copy("HtoD (Pageable -> Device)", 1_000 * n, 1_000, bytes=2_100_000) for n in range(20)]
    (item,) = analysed(copies).advice
    assert item.id == "pinned-memory"
    assert item.saves_ns_at_most == pytest.approx(20 * (1_000_000 - 2_100_000 / 31.5), rel=0.01)
    pinned = [copy("HtoD (Pinned -> Device)", 1_000 * n, 1_000, bytes=2_100_000) for n in range(20)]
    assert analysed(pinned).advice == ()


def test_torchscript_is_warmed_up_three_times() -> None:
    assert code_of("warm-up", first_uses(same=False), op("fallback_function", 0, 1)).startswith("for _ in range(3)")


def test_torchscript_is_replaced_before_anything_compiles() -> None:
    late = iterations(lambda t: op("aten::mm", t, 850))
    scripted = code_of("cuda-graphs", late, op("fallback_function", 0, 1))
    assert scripted.splitlines()[0].endswith("# of the module itself, instead of torch.jit.script")


def test_where_triton_compiles_alone_no_dynamic_shapes_of_dynamo_help() -> None:
    code = code_of("recompilation", iterations(lambda t: python("triton/compiler/compiler.py(226): compile", t, 850)))
    assert "Triton" in code
    assert "_dynamo" not in code


def test_compiled_programs_get_options_of_their_compiler() -> None:
    late = iterations(lambda t: op("aten::mm", t, 850))
    assert "torch.compile(model" in code_of("cuda-graphs", late)
    assert code_of("cuda-graphs", late, REGION).startswith("torch._inductor.config.triton.cudagraphs = True")
    assert "torch.compile" not in code_of(
        "fusion", [kernel(ADD, 30 * n, 30, grid=[500, 1, 1]) for n in range(40)], REGION
    )


def test_every_case_of_code_can_be_reached() -> None:
    """Cases that no rule names would be dead: each stands in the rules, the sources of waits or the programs."""
    named = "".join(inspect.getsource(importlib.import_module(f"trace_analyzer.advice.{name}")) for name in (
        "overhead", "host_work", "kernels", "communication"))  # fmt: skip
    written = {case for fix in fixes().values() if fix.id != "synchronization" for case in fix.cases}
    programs = {"training", "inference", "serving", "object_detection", "attention", "convolution"}
    programs |= {f"{rule.name}{where}" for rule in code_rules("preparations") for where in ("", " in inference")}
    assert {case for case in written - programs if f'"{case}"' not in named} == set()
