"""Redaction: no output made from the report contains a directory, host name or argument."""

from dataclasses import replace

import polars as pl
import pytest
from report_factory import frame, gpu_report

from trace_analyzer.errors import Note
from trace_analyzer.ingest.tables import HOST_EVENTS, OPERATOR_INPUTS, THREADS
from trace_analyzer.redact import Redaction, redacted, without_directories
from trace_analyzer.report import FusionOpportunity, Report, Verdict

SECRETS = ("alice", "acme", "node-17", "s3cr3t", "my job")


def secret_report() -> Report:
    """Return a report with secrets wherever a trace can bring them."""
    made = gpu_report()
    path = "/home/alice/acme/node-17_4242.1690000000.pt.trace.json.gz"
    inputs = {
        "event_id": 0,
        "input_dims": "[[2, 3]]",
        "concrete_inputs": '["s3cr3t"]',
        "group_size": 16,
        "call_stack": "/home/alice/acme/a.py(1): f",
        "module_hierarchy": "Net.fc",
    }
    host = [
        {
            "event_id": i,
            "kind": "python",
            "name": name,
            "thread_id": 0,
            "start_ns": i,
            "duration_ns": 1,
            "row": i,
        }
        for i, name in enumerate(
            (
                "/home/alice/my job/train.py(12): main",
                "acme/my job/loss.py(3): a/b",
                "torch/nn/modules/module.py(1): _call_impl",
                "<built-in method mul of type>",
            )
        )
    ]
    return replace(
        made,
        trace=replace(made.trace, path=path),
        devices=(replace(made.devices[0], fusions=(fused("acme/my job/loss.py(3): a/b"),)),),
        notes=(Note("n", "warning", f"{path}: odd"), Note("m", "info", "node-17 is slow, 300 GB/s")),
        advice=(
            replace(
                made.advice[0],
                where="/home/alice/my job/train.py(12): main; acme/loss.py(3): loss",
                why="waits in ~alice/acme/x.py",
            ),
        ),
        tables={
            **made.tables,
            "host_events": frame(HOST_EVENTS, host),
            "operator_inputs": frame(OPERATOR_INPUTS, [inputs]),
            "threads": frame(
                THREADS,
                [
                    {
                        "thread_id": 0,
                        "process_id": 0,
                        "pid": "1",
                        "tid": "1",
                        "name": "python /home/alice/acme/main.py",
                    }
                ],
            ),
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
        "train.py(12): main",
        "loss.py(3): a/b",
        "module.py(1): _call_impl",
        "<built-in method mul of type>",
    ]
    assert clean.tables["operator_inputs"].row(0, named=True) | {"event_id": 0} == {
        **dict.fromkeys(OPERATOR_INPUTS.schema),
        "event_id": 0,
        "input_dims": "[[2, 3]]",
        "module_hierarchy": "Net.fc",
    }
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
    """Check that no pattern is quadratic: such a one takes a quarter of an hour here, not a second."""
    redaction = Redaction("t.json")
    assert redaction.text("zor" + "blat " + unit * (300_000 // len(unit))).startswith("name1 ")
    assert redaction._cell(unit * (300_000 // len(unit))) is not None
