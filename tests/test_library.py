"""Test the library at the prompt: names, signatures, representations, and the cell magic."""

import inspect
import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import sample_report
from msgspec.structs import replace
from report_factory import empty_report, gpu_report
from text_reports import all_reports, report_saying

import trace_analyzer as ta
from trace_analyzer import pipeline
from trace_analyzer.analysis import LazyTables
from trace_analyzer.report import Report


def test_dir_is_the_public_interface_and_all_of_it_is_there() -> None:
    assert dir(ta) == sorted(ta.__all__)
    assert {"analyze", "profile", "trace_handler", "whatif", "compare", "Report", "Explanation"} <= set(dir(ta))
    assert "Any" not in dir(ta)
    for name in dir(ta):
        assert getattr(ta, name) is not None


def test_analyze_has_the_options_of_the_pipeline() -> None:
    assert [(p.name, p.kind, p.default) for p in inspect.signature(ta.analyze).parameters.values()] == [
        (p.name, p.kind, p.default) for p in inspect.signature(pipeline.analyze).parameters.values()
    ]


@pytest.mark.parametrize(
    "function", [ta.analyze, ta.whatif, ta.compare, ta.scaling, ta.profile], ids=lambda f: f.__name__
)
def test_signatures_name_every_option(function: object) -> None:
    parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    assert not [p for p in parameters if p.kind is inspect.Parameter.VAR_KEYWORD]
    assert all(p.annotation is not inspect.Parameter.empty for p in parameters)


@pytest.mark.parametrize("function", [ta.analyze, ta.whatif, ta.compare, ta.scaling], ids=lambda f: f.__name__)
def test_an_unknown_option_names_the_nearest(function: Callable[..., object]) -> None:
    with pytest.raises(TypeError, match=r"\(\) has no option 'devise'; did you mean device\?"):
        function("t.json", "t.json", devise=1)


@pytest.mark.parametrize("source", [5, None, [], [5]])
def test_what_is_no_recording_is_refused_by_name(source: object) -> None:
    with pytest.raises(ta.UsageError, match=r"no recording in an object of type (int|NoneType|list)"):
        ta.compare(source, source)  # type: ignore[arg-type]


@pytest.mark.parametrize("report", [*all_reports().values(), report_saying("\x1b[2J\nx" * 500)])
def test_repr_is_five_lines_of_text(report: Report) -> None:
    lines = repr(report).splitlines()
    assert len(lines) == 5
    assert "\x1b" not in repr(report)
    assert max(map(len, lines)) <= 170


def test_an_advice_is_a_line_at_the_prompt_and_is_printed_with_its_code() -> None:
    item = gpu_report().advice[0]
    assert repr(item).startswith(f"<Advice {item.id}: {item.title}; ")
    assert "\n" not in repr(item)
    assert str(item).startswith(f"{item.title}\n")
    assert str(item).endswith("".join(f"\n    {line}" for line in item.code.splitlines()))
    hostile = replace(item, title="\x1b[31mred", predicted=None)
    assert "\x1b" not in repr(hostile) + str(hostile)
    assert "saves at most" in repr(hostile)


def test_repr_names_file_verdict_and_advice() -> None:
    lines = repr(gpu_report()).splitlines()
    assert lines[0] == "<Report of train_step.pt.trace.json.gz>"
    assert lines[1] == "  Overhead-bound: launch (medium confidence)"
    assert lines[3] == "  Advice: Capture the step in a CUDA graph (saves at most 360 us, 30 %)"
    assert "Advice: none" in repr(empty_report())
    long = replace(
        gpu_report().verdict, headline=f"It waits (30 % of 1.08 s). The window leaves out {'much, ' * 40}too."
    )
    assert repr(replace(gpu_report(), verdict=long)).splitlines()[2] == "  It waits (30 % of 1.08 s)."


def test_print_is_the_summary() -> None:
    assert str(gpu_report()) + "\n" == gpu_report().summary()


def test_a_misspelt_function_is_named() -> None:
    with pytest.raises(AttributeError, match="no attribute 'analyse'; did you mean analyze"):
        ta.analyse  # noqa: B018


def test_tables_are_listed_not_made() -> None:
    def make() -> None:
        pytest.fail("nobody asked for it")

    tables = LazyTables({"one": make, "two": make})  # type: ignore[dict-item]
    assert repr(replace(gpu_report(), tables=tables).tables) == "<2 tables: one, two>"
    with pytest.raises(KeyError, match="no table 'twoo'; did you mean two"):
        tables["twoo"]
    assert "twoo" not in tables


def test_an_explanation_shows_itself_as_text() -> None:
    explanation = gpu_report().explain("verdict")
    assert explanation._repr_html_().startswith('<pre style="font-family: monospace">verdict Overhead-bound')
    hostile = report_saying("<img src=x>").explain("verdict")
    assert "<img" not in hostile._repr_html_()


@pytest.mark.slow
def test_results_are_a_line_at_the_prompt_and_a_page_in_a_notebook() -> None:
    report = sample_report("synthetic_overhead_data-loading.json.gz")
    results = (ta.whatif(report), ta.compare(report, report), ta.scaling(report, report), ta.memory(report.trace.path), ta.analyze_ranks(report.trace.path))  # fmt: skip
    for result in results:
        assert re.fullmatch(rf"<{type(result).__name__}: .+>", repr(result))
        assert len(repr(result)) <= 160
        assert result._repr_html_().startswith("<iframe srcdoc=")
    hostile = report_saying("\x1b[2J\nx" * 500).explain("verdict")
    assert len(repr(hostile)) <= 160
    assert repr(hostile).isprintable()
    assert repr(gpu_report().plots).startswith("<")
    assert "plots: " in repr(gpu_report().plots)


@pytest.mark.slow
def test_a_profile_that_cannot_be_saved_says_why(tmp_path: Path) -> None:
    profiler = pytest.importorskip("torch.profiler")
    cpu = [profiler.ProfilerActivity.CPU]
    handler = ta.trace_handler(tmp_path, report=False)
    saved = profiler.profile(activities=cpu, on_trace_ready=handler)
    with saved, pytest.raises(ta.UsageError, match="no finished recording: analyze it after its with block"):
        ta.analyze(saved)
    with pytest.raises(ta.UsageError, match="saved already, by on_trace_ready"):
        ta.whatif(saved)
    with pytest.raises(ta.UsageError, match="no finished recording"):
        ta.analyze(profiler.profile(activities=cpu))


class Shell:
    """An IPython shell with the magic, whose recordings have no content, and the levels of these."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        shells = pytest.importorskip("IPython.core.interactiveshell")
        from trace_analyzer.capture import session

        self.levels: list[str] = []

        def profile(*, level: str) -> Any:
            self.levels.append(level)
            return nullcontext(SimpleNamespace(report=gpu_report()))

        monkeypatch.setattr(session, "profile", profile)
        self.shell = shells.InteractiveShell()
        self.shell.run_line_magic("load_ext", "trace_analyzer")

    def run(self, line: str, cell: str) -> Any:
        return self.shell.run_cell_magic("analyze", line, cell)


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(monkeypatch)


def test_the_cell_runs_and_its_report_is_kept_under_a_name(shell: Shell) -> None:
    report = shell.run("", "x = 1 + 1")
    assert shell.shell.user_ns["x"] == 2
    assert shell.shell.user_ns["report"] is report
    assert report == gpu_report()
    shell.run("mine --level full", "pass")
    assert shell.shell.user_ns["mine"] == gpu_report()
    assert shell.levels == ["standard", "full"]


def test_a_cell_that_fails_has_no_report(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    assert shell.run("", "1 / 0") is None
    assert "ZeroDivisionError" in capsys.readouterr().out
    assert "report" not in shell.shell.user_ns


@pytest.mark.parametrize("line", ["--level none", "1x", "a b c", "'", "--wrong"])
def test_a_wrong_word_is_one_line(shell: Shell, line: str) -> None:
    from IPython.core.error import UsageError

    with pytest.raises(UsageError, match=r"^%%analyze: "):
        shell.run(line, "x = 1")
    assert "x" not in shell.shell.user_ns


@pytest.mark.slow
def test_the_magic_profiles_a_cell() -> None:
    pytest.importorskip("torch")
    shells = pytest.importorskip("IPython.core.interactiveshell")
    shell = shells.InteractiveShell()
    shell.run_line_magic("load_ext", "trace_analyzer")
    report = shell.run_cell_magic("analyze", "", "import torch\ny = torch.ones(8, 8) @ torch.ones(8, 8)")
    assert "aten::mm" in report.tables["operators"].get_column("name").to_list()
