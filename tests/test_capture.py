"""Check that a finished profile becomes a report."""

from pathlib import Path

import pytest
from kineto import call, kernel, trace_bytes

import trace_analyzer as ta

pytestmark = pytest.mark.slow


class Profile:
    """Stand for the interface of `torch.profiler.profile` that this package uses."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.path: Path | None = None

    def export_chrome_trace(self, path: str) -> None:
        self.path = Path(path)
        self.path.write_bytes(self.content)


def test_a_profile_is_exported_and_analysed() -> None:
    launches = [call("cudaLaunchKernel", 10 * i, 3, correlation=i) for i in range(1, 20)]
    kernels = [kernel("k", 10 * i + 5, 2, correlation=i) for i in range(1, 20)]
    profile = Profile(trace_bytes([*launches, *kernels]))
    report = ta.analyze(profile, step="all")
    assert report.verdict.status == "ok"
    assert report.devices[0].linked_count == 19
    assert report.trace.path == "torch.profiler.profile"
    assert not profile.path.exists()


def test_a_profile_of_torch() -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profile:
        model(torch.ones(2, 8)).sum().backward()
    report = ta.analyze(profile)
    assert report.verdict.status == "cpu-run"
    assert report.trace.recorded.shapes
    operators = report.tables["operators"].get_column("name").to_list()
    assert {"aten::addmm", "aten::relu"} <= set(operators)
    links = report.tables["backward_links"].join(
        report.tables["host_events"].select("event_id", "name"), left_on="forward_id", right_on="event_id"
    )
    assert "aten::addmm" in links.get_column("name").to_list()


def test_an_unknown_option_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        ta.analyze(b"{}", nonsense=1)
