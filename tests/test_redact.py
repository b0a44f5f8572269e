"""Redaction: no output made from the report contains a directory, host name or argument."""

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
from made_ranks import MS, document, job
from msgspec.structs import replace
from report_factory import frame, gpu_report

from trace_analyzer import cli, errors, redact
from trace_analyzer.ingest.tables import HOST_EVENTS, OPERATOR_INPUTS, THREADS
from trace_analyzer.redact import Redaction, is_public, without_directories
from trace_analyzer.report import FusionOpportunity, Report, Verdict

SECRETS = ("alice", "acme", "node-17", "s3cr3t", "my job")


def redacted(report: Report) -> Report:
    return Redaction(report.trace.path).report(report)


def secret_report() -> Report:
    """Return a report with secrets wherever a trace can bring them."""
    made = gpu_report()
    path = "/home/alice/acme/node-17_4242.1690000000.pt.trace.json.gz"
    inputs = {
        "event_id": 0, "input_dims": "[[2, 3]]", "concrete_inputs": '["s3cr3t"]', "group_size": 16,
        "call_stack": "/home/alice/acme/a.py(1): f", "module_hierarchy": "Net.fc",
    }  # fmt: skip
    names = (
        "/home/alice/my job/train.py(12): main", "acme/my job/loss.py(3): a/b", "torch/nn/modules/module.py(1): _call_impl",
        "<built-in method mul of type>",
    )  # fmt: skip
    host = [
        {"event_id": i, "kind": "python", "name": name, "thread_id": 0, "start_ns": i, "duration_ns": 1, "row": i}
        for i, name in enumerate(names)
    ]
    thread = {"thread_id": 0, "process_id": 0, "pid": "1", "tid": "1", "name": "python /home/alice/acme/main.py"}
    where = "/home/alice/my job/train.py(12): main; acme/loss.py(3): loss"
    return replace(
        made,
        trace=replace(made.trace, path=path),
        devices=(replace(made.devices[0], fusions=(fused("acme/my job/loss.py(3): a/b"),)),),
        notes=(errors.Note("n", "warning", f"{path}: odd"), errors.Note("m", "info", "node-17 is slow, 300 GB/s")),
        advice=(replace(made.advice[0], where=where, why="waits in ~alice/acme/x.py"),),
        tables={
            **made.tables,
            "host_events": frame(HOST_EVENTS, host),
            "operator_inputs": frame(OPERATOR_INPUTS, [inputs]),
            "threads": frame(THREADS, [thread]),
            "kernels": made.tables["kernels"].with_columns(name=pl.lit("k [/home/alice/acme/k.cu:12]")),
        },
    )


def fused(function: str) -> FusionOpportunity:
    """Return a fusion opportunity in a function."""
    return FusionOpportunity(
        "chain", "x.cos().cos()", ">cos>cos>", "[4] float", "Net", function, 1, 2, 10, 64.0, 6.4e9, 32.0, 5.0, "how", "code", 0, 10
    )  # fmt: skip


def everything(report: Report) -> str:
    frames = (table.write_json() for table in report.tables.values())
    return "\n".join([report.to_json(), report.summary(200, verbose=True), report.to_markdown(), repr(report), *frames])


@pytest.mark.parametrize("secret", SECRETS)
def test_no_secret_is_left_anywhere(secret: str) -> None:
    assert secret in everything(secret_report())
    assert secret not in everything(redacted(secret_report()))


def test_what_the_report_is_about_stays() -> None:
    clean = redacted(secret_report())
    assert clean.trace.path == "host_4242.name1.pt.trace.json.gz"
    assert clean.tables["host_events"]["name"].to_list() == [
        "train.py(12): main", "loss.py(3): a/b", "module.py(1): _call_impl", "<built-in method mul of type>",
    ]  # fmt: skip
    kept = {"event_id": 0, "input_dims": "[[2, 3]]", "module_hierarchy": "Net.fc"}
    inputs = clean.tables["operator_inputs"].row(0, named=True)
    assert inputs | {"event_id": 0} == dict.fromkeys(OPERATOR_INPUTS.schema) | kept
    assert clean.notes[1].message == "host is slow, 300 GB/s"
    assert clean.advice[0].where == "train.py(12): main; loss.py(3): loss"


def figures(verdict: Verdict) -> Verdict:
    """Return the verdict without the sentences that the factory made up, which are no words of the program."""
    return replace(verdict, evidence=tuple(replace(fact, why="") for fact in verdict.evidence))


def test_figures_and_schemas_are_untouched() -> None:
    before, after = secret_report(), redacted(secret_report())
    assert figures(after.verdict) == figures(before.verdict)
    (device,), (clean,) = before.devices, after.devices
    assert replace(clean, fusions=()) == replace(device, fusions=())
    assert clean.fusions == (fused("loss.py(3): a/b"),)
    for name, table in before.tables.items():
        assert after.tables[name].schema == table.schema
        assert after.tables[name].height == table.height


def test_it_is_pure_and_idempotent() -> None:
    report = secret_report()
    once = redacted(report)
    assert everything(report) == everything(secret_report())
    assert everything(redacted(once)) == everything(once)


def test_a_host_that_is_called_like_a_word_takes_no_word_away() -> None:
    made = gpu_report()
    named = replace(made, trace=replace(made.trace, path="compute_12.34.pt.trace.json"))
    clean = redacted(named)
    assert clean.trace.path == "host_12.34.pt.trace.json"
    assert figures(clean.verdict) == figures(made.verdict)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("/home/u/x.py", "x.py"),
        ("see /home/x/train.py and also /home/y/b.py.", "see train.py and also b.py."),
        ("/home/John Doe/train.py", "train.py"),
        ("C:\\Users\\al ice\\t.py", "t.py"),
        ("\\\\server\\share\\a.json", "a.json"),
        ("file:///home/u/f.py", "f.py"),
        ("../acme/x.py", "x.py"),
        ("lambda at /home/a/b.cu:12", "lambda at b.cu:12"),
        ("waits in torch/utils/data/dataloader.py(630): __next__", "waits in dataloader.py(630): __next__"),
        ("https://pytorch.org/docs/stable/x.html", "https://pytorch.org/docs/stable/x.html"),
        ("300 GB/s and 200 TFLOP/s, HtoD/DtoH and/or 1/2", "300 GB/s and 200 TFLOP/s, HtoD/DtoH and/or 1/2"),
        ("Torch-Compiled Region: 0/1", "Torch-Compiled Region: 0/1"),
        ("aten::div / x", "aten::div / x"),
    ],
)
def test_paths_are_cut_to_their_file_name_and_nothing_else_is(text: str, left: str) -> None:
    assert without_directories(text) == left


@pytest.mark.sampled
@pytest.mark.parametrize(
    "unit", ["x", "x.", "x/", "/", "a_", "1.", " /a", "\\\\", "a@", "(", "_Z1a", "a(1): ", "http://"]
)
def test_no_pattern_goes_through_a_long_text_again_and_again(unit: str) -> None:
    redaction = Redaction("t.json")
    assert redaction.text("zor" + "blat " + unit * (300_000 // len(unit))).startswith("name1 ")
    assert redaction._cell(unit * (300_000 // len(unit))) is not None


SAMPLES = Path(__file__).resolve().parents[1] / "sample_traces"
IDENTIFIER = redact._IDENTIFIER
PLANT = "Zorblat"
"""A word in every secret, in any case, which neither PyTorch nor this program uses."""

FORMS = (
    "{}", "/home/{}", "/home/{}/my job/train.py(12): step", "https://{}:pw@host.example/x", "{}@host:/data", "s3://{}/models/x",
    r"\\{}\share\x", "C:\\Users\\{}\\x.py", "{}_gemm_kernel<float>", "aten::{}", "{}-42", "Ünï{}",
)  # fmt: skip
"""Shapes that a secret may have."""


def planted(value: Any, secrets: Iterator[str], keep: frozenset[str] = frozenset()) -> Any:
    """Return the value with a secret in every text of it, but for the keys that make it a trace."""
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
    """Yield secrets of all shapes, again and again, each another word."""
    number = 0
    while True:
        for form in FORMS:
            number += 1
            yield form.format(PLANT.swapcase() if number % 3 else PLANT)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a recorded trace with secrets in every field: names, arguments, header, process and thread names."""
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
    names = ("torch_version", "allocator_settings", "python_version", "level")
    settings = {name: f"2.4 {next(source)}" for name in names}
    whole = {**header, "trace_analyzer": settings, "traceEvents": events, PLANT: next(source)}
    path = tmp_path_factory.mktemp(PLANT) / f"{PLANT.lower()}-host_4242.1690000000.pt.trace.json"
    path.write_text(json.dumps(whole))
    return path


def inflated(page: str) -> Iterator[str]:
    """Yield everything that a page holds compressed."""
    for packed in re.findall(r'<script type="text/plain"[^>]*>([A-Za-z0-9+/=\s]+)</script>', page):
        yield zlib.decompress(base64.b64decode(packed), -15).decode("utf-8", "replace")


@pytest.mark.slow
def test_no_byte_that_is_written_holds_a_secret(trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    printed = []
    for form, *outputs in (
        ("text", "--tables", "t"), ("json", "--no-report"), ("markdown", "--no-report"),
        ("agent", "--no-report", "--tables", "c", "--tables-format", "csv"),
    ):  # fmt: skip
        result = CliRunner().invoke(cli.main, [str(trace), "--redact", "--format", form, *outputs])
        assert result.exit_code == 0, result.output
        printed.append(result.stdout + result.stderr)
    (page,) = tmp_path.glob("*.html")
    html = page.read_text(encoding="utf-8")
    unpacked = list(inflated(html))
    timeline, stacks, _ = unpacked  # and BokehJS
    assert "aten::" in timeline
    names = "\n".join(path.name for path in tmp_path.rglob("*"))
    texts = {"file names": names, "page": html, "timeline": timeline, "stacks": stacks}
    texts |= {f"printed {place}": text for place, text in enumerate(printed)}
    for path in (*tmp_path.glob("t/*.parquet"), *tmp_path.glob("c/*.csv")):
        frame = pl.read_parquet(path) if path.suffix == ".parquet" else pl.read_csv(path, infer_schema=False)
        texts[path.name] = frame.write_json()
    shown = CliRunner().invoke(cli.main, [str(trace), "--no-report", "--format", "json"]).stdout
    assert shown.lower().count(PLANT.lower()) > 20, "the trace is full of secrets"
    leaks = {name: re.findall(rf"(?i).{{0,60}}{PLANT}.{{0,40}}", text)[:3] for name, text in texts.items()}
    assert {name: actual for name, actual in leaks.items() if actual} == {}


@pytest.mark.parametrize(
    "name",
    [
        "aten::add_", "cudaLaunchKernel", "hipLaunchKernel", "ProfilerStep#12", "nn.Module: Linear_7", "torch/nn/modules/module.py(1739): _call_impl",
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)",
        "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_nn", "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
        "triton_poi_fused_add_relu_0", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "Memcpy HtoD (Pinned -> Device)",
        "autograd::engine::evaluate_function: AddmmBackward0", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "Optimizer.step#AdamW.step",
        "void flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<64, 128, cutlass::half_t>, true>(flash::Flash_bwd_params)",
        "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTT", "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_3_64x128x128_4x1x1_kernel0_0",
        "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t, cutlass::arch::Sm80, true>::Params)",
        "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false, false, cublasGemvParamsEx<int>>", "triton__0d1d2d3d",
        "void cub::CUB_200200_800_900_NS::DeviceRadixSortOnesweepKernel<at::cuda::cub::detail::OpaqueType<8>, unsigned long long>",
        "void vllm::paged_attention_v1_kernel<__nv_bfloat16, 128, 16, (vllm::Fp8KVCacheDataType)0, false>", "fused_moe_kernel",
        "void flashinfer::BatchPrefillWithPagedKVCacheKernel", "void deep_gemm::fp8_gemm_kernel<2112u, 7168u>", "kgemm_4bit_inference_naive",
        "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_cga1x1x1_16dp256b_rM_TN_transOut_schedP2x1x2x3_biasM_bN_tma_tmaOpt_clmp",
        "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT320x224x64_MI16x16x1_SN_1LDSB0_AFC1_AF0EM1_EMLLn1_GRPM0p30_LBSPPA256_MIWT5_4_GSUAMBSK_WG32_4_1",
        "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_",
        "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256ELi16ELb1ELb0ELb1ELi1EEEvPT0_PT_PfS4_S4_S4_diiiiiiib",
        "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "AMD Instinct MI300X", "flash_fwd_kernel",
    ],
)  # fmt: skip
def test_public_names_stay(name: str) -> None:
    assert [word for word in IDENTIFIER.findall(name) if not is_public(word)] == []


@pytest.mark.parametrize(
    "name",
    [
        "alice", "zorblat_gemm", "GemmZorblat", "b7d2c9e1", "123456789012", "größe", "x7f3k9q2", "triton_zorblat_0d1d2d", "_ZN7zorblat6kernelIfEEvi",
        "_ZN2at8zorblat_EvT_", "_ZN2at6kernelEzorblat", "_ZN2at99zorblat", "Cijk_Alik_Bljk_ZORBLAT_MT64x64x64_SN", "Cijk_Alik_Bljk_zorblat1_MT64x64x64_SN",
        "Cijk_ZORBLAT1_MT64x64x64", "nvjet_zorblat_128x256",
    ],
)  # fmt: skip
def test_other_names_go(name: str) -> None:
    assert not is_public(name)


def texts_of(folder: Path, printed: str) -> dict[str, str]:
    """Return all printed text, and every file in the folder with its name and its decompressed content."""
    files = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir() if path.is_file()}
    packed = {f"{name}, packed": "\n".join(inflated(text)) for name, text in files.items()}
    return {"printed": printed, "names": "\n".join(files), **files, **packed}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("compare TRACE OTHER --html page.html --fail-if-slower zorblat=5%", 2),
        ("compare TRACE FOLDER --format json -o out.json", 0),
        ("baseline check TRACE BASELINE --format json", 2),
        ("whatif TRACE --plot plot.html", 0),
        ("whatif TRACE --format markdown", 0),
        ("scaling TRACE OTHER --plot plot.html", 2),
    ],
)
def test_no_other_verb_writes_a_secret(
    line: str, code: int, trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is refused (code 2) names the files, and the reason."""
    other = tmp_path / "in" / PLANT / "other-zorblat_7.1.pt.trace.json"
    other.parent.mkdir(parents=True)
    other.write_text(trace.read_text().replace("gemm", "gemm_zorblat_gemm"))
    baseline = other.parent.parent / "baseline.json"
    if "BASELINE" in line:
        assert CliRunner().invoke(cli.main, ["baseline", "save", str(trace), str(baseline)]).exit_code == 0
        assert PLANT.lower() in baseline.read_text().lower()
    places = {"TRACE": trace, "OTHER": other, "FOLDER": other.parent, "BASELINE": baseline}
    words = [str(places.get(word, word)) for word in line.split()]
    folder = tmp_path / "out"
    folder.mkdir()
    monkeypatch.chdir(folder)
    result = CliRunner().invoke(cli.main, [*words, "--redact"])
    assert result.exit_code == code, result.stderr
    assert "a bug in this program" not in result.stderr
    for place, text in texts_of(folder, result.stdout + result.stderr).items():
        assert re.findall(rf"(?i).{{0,60}}{PLANT}.{{0,40}}", text) == [], place


@pytest.mark.slow
def test_the_report_on_a_job_holds_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts, folders, process groups, kernels and operators of all ranks, and what a file that is no trace begins with."""
    made = job(4, 4, [("work", 20 * MS), ("meet", [list(range(4))])], lambda rank, step: 9 * MS * (rank == 2))
    folder, out = tmp_path / f"my {PLANT} job", tmp_path / "out"
    for place in (folder, out):
        place.mkdir()
    source = secrets()
    structure = frozenset({"ph", "cat", "ts", "dur", "pid", "tid", "correlation", "External id", "Collective name", "dtype", "pg_name",
        "Process Group Name", "Process Group Ranks", "backend", "baseTimeNanoseconds"})  # fmt: skip
    for rank in range(4):
        trace = document(made, rank)
        made_events = trace.pop("traceEvents")
        events = [e if "ProfilerStep" in e["name"] else planted(e, source, structure) for e in made_events]
        for event in events:
            if "Process Group Name" in event.get("args", {}):
                event["args"]["Process Group Name"] = f"{PLANT}-group"
        header = planted(trace, source, structure) | {"host_name": f"{PLANT.lower()}.10.0.0.{rank // 2}"}
        for group in header["distributedInfo"]["pg_config"]:
            group["pg_name"] = f"{PLANT}-group"
        whole = {**header, "baseTimeNanoseconds": trace["baseTimeNanoseconds"], "traceEvents": events}
        (folder / f"{PLANT}-host{rank}_42.rank{rank}.pt.trace.json").write_text(json.dumps(whole))
    (folder / f"{PLANT}.rank1.json").write_text(f"{PLANT} is no trace")
    monkeypatch.chdir(out)
    words = ["ranks", str(folder), "--workers", "1"]
    shown, text, result = (
        CliRunner().invoke(cli.main, [*words, *more])
        for more in ((), ("--redact", "--html", "page.html"), ("--redact", "--format", "json"))
    )
    assert {run.exit_code for run in (shown, text, result)} == {0}
    assert shown.stdout.lower().count(PLANT.lower()) > 3
    report = json.loads(result.stdout)
    assert [late["rank"] for late in report["stragglers"]] == [2]
    assert {rank["host"] for rank in report["ranks"] if rank["status"] == "ok"} == {"host1"} | {"host2"}
    assert report["collectives"]["matched"] == 16
    for place, written in texts_of(out, text.output + result.output).items():
        assert re.findall(rf"(?i).{{0,60}}(?:{PLANT}|10\.0\.0\.).{{0,40}}", written) == [], place
