"""Test the architecture from kernel names: examples, precedence of the newest, and the device assumed for it."""

import polars as pl
import pytest
from kineto import A100, analysed, kernel, launched, op

from trace_analyzer.catalog.devices import architecture_of, architectures
from trace_analyzer.report import Report


def test_the_newest_counts_as_libraries_reuse_kernels() -> None:
    names = pl.Series(["volta_sgemm_128x64_nn", "sm80_xmma_gemm_bf16bf16", "sm90_xmma_gemm_bf16bf16", "kernel"])
    assert architecture_of(names) is next(row for row in architectures() if row.id == "Hopper")
    assert architecture_of(pl.Series(["void at::native::kernel<float>()"])) is None
    assert architecture_of(pl.Series([], dtype=pl.String)) is None


GEMM = "ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_32x6_tn"


def products(devices: list[dict[str, object]] | None, **options: object) -> Report:
    shapes = {"Input Dims": [[4096, 4096]] * 2, "Input type": ["c10::Half"] * 2}
    events = [
        [op("aten::mm", 20 * n, 15, **shapes), launched(GEMM, 20 * n + 2, 1000 + 500 * n, 490, n + 1, grid=[500, 1, 1])]
        for n in range(12)
    ]
    return analysed(events, kernel("volta_sgemm_128x64_nn", 8000, 5), devices=devices or [], **options)


@pytest.mark.slow
def test_a_device_without_a_name_has_assumed_roofs_and_a_doubt() -> None:
    report = products(None)
    assert "A100 SXM 80GB" in " ".join(report.verdict.confidence_why)
    assert "names no device" in " ".join(report.verdict.confidence_why)
    assert report.trace.devices[0].catalog_name is None
    named = products([A100])
    assert "names no device" not in " ".join(named.verdict.confidence_why)


def test_the_user_overrules_the_names() -> None:
    report = products(None, gpu="h100")
    assert "names no device" not in " ".join(report.verdict.confidence_why)
