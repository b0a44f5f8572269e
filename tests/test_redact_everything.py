"""Redaction end to end: secrets are planted in every field of a trace, and no byte that is written holds one."""

import base64
import gzip
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner

from trace_analyzer.catalog.public_words import is_public
from trace_analyzer.cli import main

SAMPLES = Path(__file__).resolve().parents[1] / "sample_traces"
PLANT = "Zorblat"
"""What every secret contains, in some case; no word of PyTorch or of this program does."""

FORMS = (
    "{}", "/home/{}", "/home/{}/my job/train.py(12): step", "https://{}:pw@host.example/x", "{}@host:/data", "s3://{}/models/x",
    r"\\{}\share\x", "C:\\Users\\{}\\x.py", "{}_gemm_kernel<float>", "aten::{}", "{}-42", "Ünï{}",
)  # fmt: skip
"""Shapes that a secret may have."""


def planted(value: Any, secrets: Iterator[str], keep: frozenset[str] = frozenset()) -> Any:
    """The value with a secret in every text of it, but for the keys that make it a trace."""
    if isinstance(value, dict):
        return {
            key: item if key in keep else planted(item, secrets, keep)
            for key, item in value.items()
        } | {f"{PLANT}_key": next(secrets)}  # fmt: skip
    if isinstance(value, list):
        return [planted(item, secrets, keep) for item in value]
    if isinstance(value, str):
        form = next(secrets)
        return form if value.isdecimal() else f"{value} {form}"
    return value


def secrets() -> Iterator[str]:
    """Secrets of all shapes, again and again, each another word."""
    number = 0
    while True:
        for form in FORMS:
            number += 1
            yield form.format(PLANT.swapcase() if number % 3 else PLANT)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded trace with secrets in every field: names, arguments, header, process and thread names."""
    document = json.loads(gzip.decompress((SAMPLES / "synthetic_overhead_launch.json.gz").read_bytes()))
    source = secrets()
    # Without these it is another trace: kinds of events, phases, ids and times.
    structure = frozenset({"ph", "cat", "id", "bp", "ts", "dur", "pid", "tid", "s", "correlation", "External id"})
    events = [
        {**event, **{key: planted(item, source) for key, item in event.items() if key not in structure}}
        if event.get("ph") != "M" else {**event, "args": planted(event.get("args", {}), source)}
        for event in document["traceEvents"]
    ]  # fmt: skip
    header = {key: planted(item, source) for key, item in document.items() if key != "traceEvents"}
    settings = {
        name: f"2.4 {next(source)}" for name in ("torch_version", "allocator_settings", "python_version", "level")
    }
    whole = {**header, "trace_analyzer": settings, "traceEvents": events, PLANT: next(source)}
    path = tmp_path_factory.mktemp(PLANT) / f"{PLANT.lower()}-host_4242.1690000000.pt.trace.json"
    path.write_text(json.dumps(whole))
    return path


def inflated(page: str) -> Iterator[str]:
    """Everything that a page holds compressed."""
    for packed in re.findall(r'<script type="text/plain"[^>]*>([A-Za-z0-9+/=\s]+)</script>', page):
        yield zlib.decompress(base64.b64decode(packed), -15).decode("utf-8", "replace")


@pytest.mark.slow
def test_no_byte_that_is_written_holds_a_secret(trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    printed = []
    for form in ("text", "json", "markdown"):
        result = CliRunner().invoke(main, [str(trace), "--redact", "--format", form, "--tables", "t", "--force"])
        assert result.exit_code == 0, result.output
        printed.append(result.stdout + result.stderr)
    assert CliRunner().invoke(main, [str(trace), "--redact", "--tables", "c", "--tables-format", "csv"]).exit_code == 0
    (page,) = tmp_path.glob("*.html")
    html = page.read_text(encoding="utf-8")
    unpacked = list(inflated(html))
    assert len(unpacked) == 2, "the page's data and BokehJS"
    assert "aten::" in unpacked[0]
    texts = {"file names": "\n".join(path.name for path in tmp_path.rglob("*")), "page": html, "data": unpacked[0]}
    texts |= {f"printed {place}": text for place, text in enumerate(printed)}
    for path in (*tmp_path.glob("t/*.parquet"), *tmp_path.glob("c/*.csv")):
        frame = pl.read_parquet(path) if path.suffix == ".parquet" else pl.read_csv(path, infer_schema=False)
        texts[path.name] = frame.write_json()
    leaks = {name: re.findall(rf"(?i).{{0,60}}{PLANT}.{{0,40}}", text)[:3] for name, text in texts.items()}
    assert {name: found for name, found in leaks.items() if found} == {}


def test_the_trace_is_full_of_secrets(trace: Path) -> None:
    """Without --redact they are everywhere, so that the test above can fail."""
    shown = CliRunner().invoke(main, [str(trace), "--no-report", "--format", "json"]).stdout
    assert shown.lower().count(PLANT.lower()) > 20


@pytest.mark.parametrize(
    "name",
    [
        "aten::add_", "cudaLaunchKernel", "hipLaunchKernel", "ProfilerStep#12", "nn.Module: Linear_7", "torch/nn/modules/module.py(1739): _call_impl",
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)",
        "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_nn", "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
        "triton_poi_fused_add_relu_0", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "Memcpy HtoD (Pinned -> Device)",
        "autograd::engine::evaluate_function: AddmmBackward0", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "Optimizer.step#AdamW.step",
        "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "AMD Instinct MI300X", "flash_fwd_kernel",
    ],
)  # fmt: skip
def test_public_names_stay(name: str) -> None:
    assert [word for word in re.findall(r"\w+", name) if not is_public(word)] == []


@pytest.mark.parametrize(
    "name", ["alice", "zorblat_gemm", "GemmZorblat", "b7d2c9e1", "123456789012", "größe", "x7f3k9q2"]
)
def test_other_names_go(name: str) -> None:
    assert not is_public(name)
