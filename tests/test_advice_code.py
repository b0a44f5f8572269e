"""Code of advice fits the trace: it parses, its names exist in PyTorch, and it contradicts nothing that was recorded."""

import ast
import importlib
import inspect
import json
import re
from collections.abc import Iterator
from string import Template
from typing import Any

import pytest
from kineto import A100, analysed, annotation, call, copy, kernel, launched, op, python, trace_bytes
from test_advice import (
    CASES,
    GEMM,
    LOADS,
    ON,
    V100,
    VALUES,
    advised,
    attention,
    copied,
    eager,
    first_uses,
    in_a_row,
    iterations,
    matmuls,
    memory_bound,
    messages,
    moved,
    optimizer,
    partly_graphs,
    saved,
    uploads,
)

from trace_analyzer.advice.communication import _GROUPS
from trace_analyzer.catalog.event_names import code_rules
from trace_analyzer.catalog.fixes import (
    FOREACH,
    FUSED,
    PLATFORMS,
    Fix,
    fixes,
    for_compiled,
    fusions,
    optimizer_in_few_launches,
    pages,
)
from trace_analyzer.replay.prediction import Replay
from trace_analyzer.replay.whatif import least_workers
from trace_analyzer.report import Advice, Report

pytestmark = pytest.mark.slow

COMPILED = r"Torch-Compiled Region|CompiledFxGraph|torchinductor_|triton_(poi|red|per)_fused"
CHUNKED = r"transformers/pipelines/(zero_shot_object_detection|zero_shot_classification|token_classification)\.py"
LIBRARIES = {
    r"model\.register_comm_hook|with model\.no_sync": r"DistributedDataParallel|ddp\.reducer",
    "fully_shard|block.set_modules": "FSDP|fsdp", 'config\\["zero': "deepspeed", "# --(overlap|ddp)-": "megatron",
}  # fmt: skip
"""Statements of code -> what a trace names that such code is for."""
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
    for statement, library in LIBRARIES.items():
        if re.search(rf"^{statement}", item.code, re.MULTILINE) and not re.search(library, text):
            yield f"a program without {library}"
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
        (
            "products",
            "dtype",
            "scaled",
            "profile",
            "also",
            "first",
            "or_fewer_bits",
            "reached",
            "sizes",
            "arguments",
            "about",
        ),
        "",
    )
    values |= {"workers": "4", "torch_dtype": "bfloat16", "chains": "pass", "factory": "arange", "optimizer": "pass"}
    for fix in fixes().values():
        for platform in PLATFORMS:
            for case in ("", *fix.cases):
                yield fix.code_of(platform, case, **values)
    yield from (rule.code for rule in fusions())
    yield from map(optimizer_in_few_launches, (*FUSED, *FOREACH, "Muon", ""))
    for page in pages().values():
        if "parts" in page:
            yield from (Template(text["code"]).substitute(values) for text in (page, *page["cases"].values()))


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


def waiting_for_copies(direction: str, around: str = "aten::to", module: str = "") -> list[object]:
    """Build kernels, each with a copy after it that the CPU waits for within an operator, and a module."""
    return [
        [*([python(f"nn.Module: {module}", t + 13, 327)] if module else []), launched(GEMM, t, t + 10, 300, 2 * n + 1), op(around, t + 14, 325), op("aten::copy_", t + 15, 320),
         call("cudaMemcpyAsync", t + 16, 300, correlation=2 * n + 2), call("cudaStreamSynchronize", t + 317, 8),
         copy(direction, t + 312, 3, correlation=2 * n + 2)]
        for n, t in enumerate(range(0, 6_000, 500))
    ]  # fmt: skip


PIPELINE = "transformers/pipelines/base.py(1173): _ensure_tensor_on_device"
VLLM = op("vllm::unified_attention", 0, 1)


def scaled(optimizer: str) -> list[object]:
    """Build waits of a GradScaler for its check for overflow."""
    waits = waiting_for_copies("DtoH (Device -> Pageable)", "aten::_local_scalar_dense")
    return [
        python("torch/amp/grad_scaler.py(360): step", 0, 6_000),
        annotation(f"Optimizer.step#{optimizer}.step", 1, 1),
        *waits,
    ]


def renamed(events: Any, direction: str) -> list[object]:
    """Return events whose copies from pageable memory show another direction, or none."""
    return json.loads(json.dumps(events).replace("HtoD (Pageable -> Device)", direction))


BOTH = 'x = x.to("cuda", non_blocking=True)  # a copy to the device'
UNDIRECTED = [
    ("pinned-memory", renamed(uploads(381), "Unknown"), BOTH),
    ("pinned-memory", [renamed(uploads(381), "Unknown"), python("nn.Module: Net_0", -1, 50_000)], BOTH),
    ("synchronization", waiting_for_copies("Unknown"), BOTH),
    ("synchronization", waiting_for_copies("DtoD (Device -> Device)"), BOTH),
    ("small-copies", moved("Unknown", 1_000), "packed = torch.cat([a.flatten(), b.flatten()])"),
    ("copies", copied(25, "Unknown"), "with torch.cuda.stream(copies):  # what the next batch needs, or the last one"),
]


def freeing(us: int) -> list[object]:
    """Build steps in which the program frees memory for so long, and allocates for 700 us."""
    return iterations(
        lambda t: python("torch/cuda/memory.py(222): empty_cache", t, us + 2), lambda t: call("cudaFree", t + 1, us),
        lambda t: call("cudaMalloc", t + us + 10, 700), period=1_500,
    )  # fmt: skip


LATE = iterations(lambda t: op("aten::mm", t, 850))
SCRIPT = op("fallback_function", 0, 1)
ATTENTION = eager(attention(6))


def between(name: str) -> list[object]:
    """Build attention whose scores this operator, not the scaling, passes on to softmax; "" for none."""
    calls = [call if call[0] != "div" else (name, *call[1:]) for call in attention(6)]
    return eager([call for call in calls if call[0]])


HALVES = [in_a_row("ampere_bf16_s16816gemm_bf16_128x64"), [op("aten::mm", 20 * n, 10) for n in range(12)]]


@pytest.mark.parametrize(
    ("fix", "events", "code", "lacks"),
    [
        # The optimizer is that of the trace.
        ("fused-optimizer", optimizer("aten::addcdiv_", "Optimizer.step#SGD.step"), "optimizer = torch.optim.SGD(model.parameters(), **options, fused=True)", "RMS"),
        ("fused-optimizer", optimizer("aten::addcdiv_", "Optimizer.step#RMSprop.step"), "optimizer = torch.optim.RMSprop(model.parameters(), **options, foreach=True)", "SGD"),
        ("fused-optimizer", optimizer("aten::addcdiv_", "Optimizer.step#Adafactor.step"), "optimizer = torch.optim.Adafactor(model.parameters(), **options, foreach=True)", "fused=True"),
        ("fused-optimizer", optimizer("aten::addcdiv_", "Optimizer.step#Adagrad.step"), "torch.optim.Adagrad(model.parameters(), **options, fused=True)", "# torch.optim"),
        ("fused-optimizer", optimizer("aten::addcdiv_", "Optimizer.step#Muon.step"), "# torch.optim has no fused or foreach form of Muon", "optimizer ="),
        # Only a fused optimizer spares a GradScaler its wait.
        ("synchronization", scaled("SGD"), "optimizer = torch.optim.SGD(model.parameters(), **options, fused=True)", "autocast("),
        ("synchronization", scaled("RMSprop"), 'with torch.autocast("cuda", dtype=torch.bfloat16)', "optimizer"),
        # A tensor that the CPU makes is made on the device; data that no DataLoader loads is fetched ahead.
        ("cpu-operators", iterations(lambda t: op("aten::arange", t, 4_800), period=5_000), 'x = torch.arange(..., device="cuda")', ".to("),
        ("data-loading", iterations(lambda t: annotation("get_batch", t, 850)), "pool.submit(next, batches)", "num_workers"),
        # Copies have the code of their direction.
        ("small-copies", moved("DtoH (Device -> Pinned)", 1_000), "values = torch.stack", "torch.cat"),
        ("small-copies", moved("HtoD (Pinned -> Device)", 1_000), "packed = torch.cat", "torch.stack"),
        ("synchronization", waiting_for_copies("DtoH (Device -> Pageable)"), "host.copy_(x, non_blocking=True)", "pin_memory()"),
        ("synchronization", waiting_for_copies("HtoD (Pageable -> Device)"), "x = x.pin_memory()", "host.copy_("),
        ("synchronization", waiting_for_copies("HtoD (Pageable -> Device)", module="Net_0"), "self.register_buffer(", "pin_memory()"),
        ("synchronization", waiting_for_copies("DtoH (Device -> Pageable)", module="Net_0"), "host.copy_(", "register_buffer"),
        ("synchronization", [python("torch/serialization.py(1268): _save", 0, 6_000), waiting_for_copies("DtoH (Device -> Pageable)")], "torch.save(state, path)", ".item()"),
        ("pinned-memory", CASES["pinned-memory"][0], "x = x.pin_memory()", "register_buffer"),
        # Without a known direction, or where no direction has most of the copies' time, the code has both.
        *((fix, events, code, ".pin_memory()") for fix, events, code in UNDIRECTED),
        ("pinned-memory", [CASES["pinned-memory"][0], python("nn.Module: Net_0", -1, 50_000)], "self.register_buffer(", "pin_memory()"),
        ("synchronization", [python(PIPELINE, 0, 6_000), waiting_for_copies("HtoD (Pageable -> Device)")], "outputs = model(**inputs)", "pin_memory"),
        ("pinned-memory", [python(PIPELINE, 0, 6_000), uploads(381)], "outputs = model(**inputs)", "pin_memory"),
        # What the model copies within a pipeline is the model's.
        ("synchronization", [python(PIPELINE, 0, 6_000), waiting_for_copies("HtoD (Pageable -> Device)", module="Net_0")], "self.register_buffer(", "inputs"),
        ("pinned-memory", [python(PIPELINE, -2, 60_000), CASES["pinned-memory"][0], python("nn.Module: Net_0", -1, 50_000)], "self.register_buffer(", "inputs"),
        ("pinned-memory", [python(PIPELINE.replace("pipelines", "trainer"), 0, 6_000), uploads(381)], "pin_memory", "outputs"),
        # What gives memory back is told to keep it, where that is a quarter of the allocation.
        ("allocator", freeing(300), "# delete torch.cuda.empty_cache()", "expandable_segments"),
        ("allocator", freeing(100), "expandable_segments", "delete"),
        ("allocator", iterations(lambda t: call("cudaFree", t + 1, 300), lambda t: call("cudaMalloc", t + 310, 550)), "# delete torch.cuda.empty_cache()", "expandable_segments"),
        ("allocator", iterations(lambda t: call("cudaMalloc", t + 10, 850)), "expandable_segments", "delete"),
        ("synchronization", waiting_for_copies("HtoD (Pageable -> Device)", "aten::index"), 'index.to("cuda")', "torch.where"),
        ("synchronization", waiting_for_copies("DtoH (Device -> Pageable)", "aten::index"), "torch.where", "index.to("),
        # TorchScript is warmed up three times, and replaced before anything compiles.
        ("warm-up", [first_uses(same=False), SCRIPT], "for _ in range(3)", "torch.jit"),
        ("cuda-graphs", [LATE, SCRIPT], "# of the module itself, instead of torch.jit.script\n", "_inductor"),
        # Compiled programs get options of their compiler; where Triton compiles alone, dynamic shapes of Dynamo do not help.
        ("cuda-graphs", LATE, "torch.compile(model", "_inductor"),
        # A program that replays graphs for over half of its work is told to capture the rest with it, not to compile.
        ("cuda-graphs", partly_graphs(59), "torch.cuda.CUDAGraph()): step()", "torch.compile"),
        ("cuda-graphs", partly_graphs(61), "torch.compile(model", "step()"),
        ("cuda-graphs", [LATE, REGION], "torch._inductor.config.triton.cudagraphs = True", "torch.compile("),
        ("fusion", [memory_bound(7), REGION], "", "torch.compile"),
        ("recompilation", iterations(lambda t: python("triton/compiler/compiler.py(226): compile", t, 850)), "Triton", "_dynamo"),
        # Attention of a module fuses when nobody wants its weights.
        ("attention-kernel", [python("nn.Module: MultiheadAttention_0", 0, 900), ATTENTION], "need_weights=False", "nothing"),
        ("attention-kernel", [python("nn.Module: SelfAttention_0", 0, 900), ATTENTION], "F.scaled_dot_product_attention", "need_weights"),
        # What is between product and softmax names the arguments; a mask that nobody adds would change the results.
        ("attention-kernel", ATTENTION, "F.scaled_dot_product_attention(q, k, v)", "is_causal"),
        ("attention-kernel", between("masked_fill_"), "(q, k, v, attn_mask=mask, scale=1.0)  # or is_causal", "baddbmm"),
        ("attention-kernel", between("mul"), "(q, k, v)", "mask"),
        ("attention-kernel", between(""), "(q, k, v, scale=1.0)", "mask"),
        # DDP that runs is set, not added.
        ("overlap", [messages(20_000_000), kernel(GEMM, 1_300, 300), op("DistributedDataParallel.forward", 2_990, 2), op("Optimizer.step#Adam.step", 3_000, 2)],
         "gradient_as_bucket_view=True", "model = "),
        # Weights are quantized only after training; engines name their steps where no frame or kernel of theirs was recorded.
        ("low-precision", [HALVES], "quantize_(model", "--quantization"),
        ("low-precision", [HALVES, kernel("sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize128x128x128", 1_600, 100)], "filter of layers", "quantize_("),
        # Other kernels for an engine's matmuls are a matter of its compiler; AMD's library tries its own.
        ("max-autotune", [VLLM, matmuls(700)], "compile_sizes", "TUNABLEOP"),
        ("low-precision", [HALVES, op("autograd::engine::evaluate_function: MmBackward0", 300, 50)], "torchao.float8.convert_to_float8_training", "quantize_("),
        ("low-precision", [HALVES, python("vllm/v1/worker/gpu_model_runner.py(2100): execute_model", 0, 1_900)], "--quantization fp8", "quantize_("),
    ],
)  # fmt: skip
def test_code_is_for_what_the_program_does(fix: str, events: list[object], code: str, lacks: str) -> None:
    written = advised(fix, events, devices=[ON.get(fix, A100)]).code
    assert code in written
    assert lacks not in written


def test_waits_for_copies_and_pageable_copies_are_one_piece_of_advice() -> None:
    report = analysed(waiting_for_copies("HtoD (Pageable -> Device)"))
    (item,) = (item for item in report.advice if "pin_memory()" in item.code)
    assert "after a blocking call the queue is empty" in item.why
    assert "the memory is pageable" in item.why


@pytest.mark.parametrize("compiled", [False, True])
def test_an_amd_library_tries_its_own_matmuls(compiled: bool) -> None:
    mi300 = {"id": 0, "name": "AMD Instinct MI300X", "computeMajor": 9, "computeMinor": 4, "numSms": 304}
    code = advised("max-autotune", [VLLM, matmuls(250), [REGION] * compiled], devices=[mi300]).code
    assert "PYTORCH_TUNABLEOP_ENABLED=1" in code


def test_an_optimizer_that_is_compiled_is_fused() -> None:
    work = [optimizer("aten::addcdiv_"), op("Torch-Compiled Region: 1/0", 1_999, 1_300)]
    assert "fused-optimizer" not in [item.id for item in analysed(work).advice]


def attending(backend: str, rows: list[int], rest: list[str], dtype: str, us: int) -> list[object]:
    """Build calls of fused attention, their kernels one after the other."""
    inputs = {
        "Input Dims": [rows] * 3 + [[]] * len(rest),
        "Input type": [dtype] * 3 + ["Scalar" if value else "" for value in rest],
        "Concrete Inputs": ["", "", "", *rest],
    }
    return [
        [op(f"aten::_scaled_dot_product_{backend}_attention", 20 * n, 15, **inputs),
         launched("fmha_forward", 20 * n + 5, 1_000 + us * n, us, n + 1, grid=[5_000, 1, 1])]
        for n in range(12)
    ]  # fmt: skip


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
    work = attending(backend, [8, 16, 1000, 64], rest, dtype, 9_000)
    codes = "\n".join(item.code for item in analysed(work, devices=[device]).advice)
    assert code in codes
    assert ("sdpa_kernel" in codes) == (code == "CUDNN_ATTENTION")


def test_attention_below_its_peak_is_called_so_and_gets_another_backend() -> None:
    item = advised("max-autotune", attending("flash", [8, 16, 4096, 64], ["0.", "False"], "c10::Half", 5_000))
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
    work = [[op(operator, 20 * n, 15, **args), launched(name, 20 * n + 5, 1_000 + time * n, time, n + 1, grid=[5_000, 1, 1])]
            for n in range(12)]  # fmt: skip
    item = advised("inefficient-kernels", work)
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


@pytest.mark.parametrize(
    ("operator", "code"), [("aten::nonzero", "torch.where"), ("aten::item", "loss.detach()"), ("aten::copy_", "")]
)
def test_a_copy_of_what_an_operator_waits_for_is_no_pageable_memory(operator: str, code: str) -> None:
    """A copy to the host follows each kernel; its call lasts as long as the device idles."""
    work = [
        [launched(GEMM, t, t + 10, 100, 2 * n + 1), op(operator, t + 15, 400), call("cudaMemcpyAsync", t + 16, 390, correlation=2 * n + 2),
         copy("DtoH (Device -> Pageable)", t + 395, 2, correlation=2 * n + 2)]
        for n, t in enumerate(range(0, 6_000, 500))
    ]  # fmt: skip
    items = {item.id: item.code for item in analysed(work).advice}
    assert ("pinned-memory" in items) == (not code)
    assert items.get("pinned-memory", "host.copy_(").startswith("host.copy_("), "what goes to the host"
    assert not code or code in items["synchronization"]


def test_a_pipeline_that_splits_its_inputs_gets_one_worker_and_its_estimate() -> None:
    frame = "transformers/pipelines/zero_shot_object_detection.py(164): preprocess"
    report = analysed(iterations(lambda t: annotation(LOADS, t, 850), lambda t: python(frame, t, 851)))
    assert least_workers(Replay.of(report, 0)) == 1
    first = report.advice[0]
    assert "num_workers=1)" in first.code
    assert first.predicted is not None
    assert first.predicted.low_ns >= 800_000, "one worker loads for 850 us a step; six reach the floor"


@pytest.mark.parametrize(("memory", "asks"), [("Pageable", True), ("Pinned", False)])
def test_copies_of_pageable_memory_have_a_bound_without_any_kernel(memory: str, asks: bool) -> None:
    """Of 20 ms, 1.33 ms are what 1.75 MB a copy take over PCIe 4.0 (31.5 GB/s)."""
    copies = [copy(f"HtoD ({memory} -> Device)", 1_000 * n, 1_000, bytes=2_100_000) for n in range(20)]
    saves = pytest.approx(20 * (1_000_000 - 2_100_000 / 31.5), rel=0.01)
    assert saved(analysed(copies)) == ({"pinned-memory": saves} if asks else {})


def test_every_case_of_code_can_be_reached() -> None:
    """Cases that no rule names would be dead: each stands in the rules, the sources of waits or the programs."""
    named = "".join(inspect.getsource(importlib.import_module(f"trace_analyzer.advice.{name}")) for name in (
        "fusion", "overhead", "host_work", "kernels", "communication", "opportunity"))  # fmt: skip
    written = {case for fix in fixes().values() if fix.id != "synchronization" for case in fix.cases}
    programs = {"training", "inference", "serving", "object_detection", "attention", "convolution"}
    programs |= {f"{rule.name}{where}" for rule in code_rules("preparations") for where in ("", " in inference")}
    programs |= {f"{group} of Megatron" for group in _GROUPS}
    assert {case for case in written - programs if f'"{case}"' not in named} == set()
