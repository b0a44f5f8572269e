"""Small programs recorded on a GPU whose limit is known, and series of batches: `sample_traces/gpu_cases`."""

import json
from pathlib import Path
from typing import Any

import pytest

import trace_analyzer as ta
from trace_analyzer.report import Verdict

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[1] / "sample_traces" / "gpu_cases"
CASES: dict[str, dict[str, Any]] = {case["name"]: case for case in json.loads((FOLDER / "cases.json").read_text())}


def path_of(name: str) -> Path:
    return FOLDER / f"{name}.json.gz"


def limit_of(verdict: Verdict) -> str | None:
    """Return what limits by a verdict: small kernels are work of the device, however little of it they use."""
    if verdict.cause in ("copies", "small-kernels"):
        return {"copies": "copies", "small-kernels": "device"}[verdict.cause]
    kernels = dict.fromkeys(("compute-bound", "memory-bandwidth-bound"), "device")
    return {**kernels, "overhead-bound": "host"}.get(verdict.regime or "")


def test_each_case_has_its_recording() -> None:
    assert {path.name for path in FOLDER.glob("*.gz")} == {path_of(name).name for name in CASES}
    assert {case["limit"] for case in CASES.values()} == {"host", "device", "copies", None}


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case["limit"]])
def test_the_verdict_names_the_limit_that_is_known(name: str) -> None:
    assert limit_of(ta.analyze(path_of(name)).verdict) == CASES[name]["limit"]


@pytest.mark.parametrize(
    ("name", "times", "then"),
    [
        ("resnet50_forward_fp32_b64", 4, "resnet50_forward_fp32_b256"),
        ("resnet50_forward_bf16cl_b64", 4, "resnet50_forward_bf16cl_b256"),
        ("resnet50_forward_fp32_b16", 16, "resnet50_forward_fp32_b256"),
    ],
)
def test_a_batch_that_fills_the_device_takes_what_is_predicted(name: str, times: float, then: str) -> None:
    """What came is within 5 % of the prediction, and inside its interval."""
    predicted = ta.whatif(path_of(name), batch=times).predicted
    assert predicted is not None
    came = CASES[then]["mean_ms"] * 1e6
    assert predicted.low_ns <= came <= predicted.high_ns
    assert predicted.step_ns == pytest.approx(came, rel=0.05)
