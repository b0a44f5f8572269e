"""Test names of lines: labels in text, Markdown, pages and tracks, keys in JSON, both in options."""

import json
from functools import cache

import polars as pl
import pytest
from compare_sides import Program
from lazy_report import report_on
from msgspec.structs import replace

from trace_analyzer import errors, sections, vocabulary
from trace_analyzer.analyses.communication import COPIES_SECTION
from trace_analyzer.analyses.idle import CAUSES_SECTION
from trace_analyzer.analyses.kernel_bounds import KERNELS_SECTION
from trace_analyzer.catalog.kernels import bucket_key, buckets, group_label, is_line, line_label, line_phrase
from trace_analyzer.compare.comparison import Bar, Comparison, Line, bar_label
from trace_analyzer.compare.decomposition import LINE_KEY, compare, parts_of_lines
from trace_analyzer.compare.gates import Gate, held, refusal
from trace_analyzer.compare.phrasing import line_name
from trace_analyzer.explain import value_of
from trace_analyzer.render.declared import laid_column
from trace_analyzer.render.html.cells import listing
from trace_analyzer.render.phrasing import evidence_label
from trace_analyzer.replay.changes import Change
from trace_analyzer.replay.whatif import changes_of, whatif
from trace_analyzer.report import Evidence, Report
from trace_analyzer.report.devices import BUCKETS_SECTION, DEVICES_SECTION, GROUPS_SECTION

BASE = Program(host_ns=60_000, mm_ns=40_000, loading_ns=400_000)
SLOWER = BASE.faster(loading_ns=1_500_000, norm_ns=90_000)


@cache
def report(program: Program) -> Report:
    return report_on(program.trace())


@cache
def result() -> Comparison:
    return compare(report(BASE), report(SLOWER))


def test_every_bucket_has_a_label_of_words_of_its_own() -> None:
    labels = dict(buckets().select("bucket", "label").iter_rows())
    assert not [label for label in labels.values() if "_" in label or "," in label or not label[:1].isupper()]
    assert {bucket_key(label.upper()) for label in labels.values()} == labels.keys()
    lines = {*vocabulary.PARTS, *labels}
    assert (
        len({line_label(key).casefold() for key in lines}) >= len(lines) - 1
    )  # "Other kernels" is a part and a bucket
    assert all(is_line(key) for key in lines)
    assert (group_label("matmul"), line_label("matmul")) == (vocabulary.GROUPS["matmul"].label, "Matmul")
    assert line_phrase("kv_cache") == "KV cache"


@pytest.mark.slow
def test_people_read_labels_and_programs_keys() -> None:
    shown = result()
    texts = (shown.headline, shown.summary(), shown.to_markdown(), *shown.notes)
    for key in ("data-loading", "launch-latency", "host-unknown", "copy_cast"):
        assert not [text for text in texts if key in text]
    assert "data loading +" in shown.headline
    assert "\n  Data loading " in shown.summary()
    assert "| Data loading |" in shown.to_markdown()
    document = json.loads(shown.to_json())
    assert "data-loading" in {line["name"] for line in document["lines"]}
    assert "data-loading" in {bar["name"] for bar in document["waterfall"]["bucket"]}


def test_a_report_names_buckets_for_people_and_has_keys_for_programs() -> None:
    activities = pl.DataFrame({"bucket": ["copy_cast", None], "kind": ["kernel", "memcpy"]})
    column = laid_column(next(shown for shown in KERNELS_SECTION.show if shown.column == "bucket"), activities.schema)
    assert [column.cell(row) for row in activities.iter_rows(named=True)] == ["Copy and cast", "Copy"]
    table = listing("buckets", "", [laid_column(sections.Shown("bucket", form="line"), {})], activities.to_dicts(), 2)
    cells = [(row.cells[0].text, row.cells[0].sort) for row in table.rows]
    assert cells == [("Copy and cast", "copy_cast"), ("–", None)]
    assert value_of("bucket", "kv_cache") == "KV cache"


def test_sums_over_the_whole_trace_say_so_beside_their_title() -> None:
    """Figures of the judged window stand on the same page: the verdict's, and those of who kept the device waiting."""
    sums = [KERNELS_SECTION, BUCKETS_SECTION, GROUPS_SECTION, CAUSES_SECTION, COPIES_SECTION, DEVICES_SECTION]
    assert {section.scope for section in sums} == {"of the whole trace"}
    assert "### Top kernels and copies, of the whole trace" in report(BASE).to_markdown()
    assert "Top kernels and copies  of the whole trace" in report(BASE).summary(verbose=True)


def test_labels_of_facts_have_no_unit() -> None:
    only = Evidence("memory-bandwidth_ratio", 0.1, "ratio", "share of the window that counts as memory-bandwidth-bound")
    assert evidence_label(only) == "memory bandwidth"
    assert evidence_label(replace(only, metric="launch_lead_p50_ns")) == "launch lead p50"


def test_names_of_programs_stay_as_they_are() -> None:
    named = {
        ("aten::_to_copy", "work"): "aten::_to_copy",
        ("Net/Layer_norm", "work"): "Net/Layer_norm",
        ("memset", "work"): "Memset",
        ("idle", "idle"): "Idle",
    }
    assert [bar_label(Bar(*bar, 0.0, 1.0, 1.0, 0.0, 1.0)) for bar in named] == list(named.values())
    line = next(item for item in result().lines if item.name == "aten::mm")
    assert line_name(line) == "aten::mm"
    assert isinstance(line, Line)


@pytest.mark.parametrize("name", ["data-loading", "Data loading", "data loading", "Normalization", "normalization"])
def test_gates_take_keys_and_labels(name: str) -> None:
    gate = Gate("--fail-if-slower", 0.05, name)
    assert refusal(result(), [gate]) is None
    (item,) = held(result(), [gate])
    assert item.broke
    assert not held(result(), [Gate("--fail-if-slower", 5.0, name)])[0].broke
    assert "no line is called 'Data loadings'" in (refusal(result(), [Gate("x", 0.1, "Data loadings")]) or "")
    assert refusal(result(), [Gate("x", 0.1, "KV cache")]) is None  # none here, but there could be
    for key, label in (("data-loading", "Data loading"), ("normalization", "NORMALIZATION, reduction")):
        key_gate, label_gate = (held(result(), [Gate("x", 0.0, name)])[0] for name in (key, label))
        assert key_gate.why.replace(key, "") == label_gate.why.replace(label, "")


def test_changes_have_labels_and_keep_keys() -> None:
    for name, key in (("CPU", "cpu"), ("Copy and cast", "copy_cast")):
        (change,) = changes_of(speedup={name: 2})
        assert (change.options["target"], change.label) == (key, f"{name} 2 times as fast")
    assert Change("speedup", {"target": "gpu", "factor": float("inf")}).label == "GPU infinitely fast"
    assert Change("speedup", {"target": "aten::mm", "factor": 3.0}).label == "aten::mm 3 times as fast"


def test_a_group_is_named_by_its_label() -> None:
    compute = report(Program(host_ns=5_000, norm_ns=200_000))
    by_key = whatif(compute, changes_of(speedup={"normalization": 2}))
    by_label = whatif(compute, changes_of(speedup={"normalization, REDUCTION": 2}))
    assert by_label.predicted.step_ns == by_key.predicted.step_ns < whatif(compute).replay.step_ns
    with pytest.raises(errors.UsageError, match="no bucket, group, operator or module"):
        whatif(compute, changes_of(speedup={"normalization and more": 2}))


def test_parts_of_lines_sum_to_them() -> None:
    """Check that the rows that the page unfolds are exactly the modules and shapes of each line of work."""
    shown = result()
    parts = parts_of_lines(shown)
    sums = {row[:-1]: row[-1] for row in parts.group_by(LINE_KEY).agg(pl.col("difference_ns").sum()).iter_rows()}
    work = [line for line in shown.lines if line.kind == "kernel"]
    assert work
    for line in work:
        key = tuple(getattr(line, name) for name in LINE_KEY)
        assert sums[key] == pytest.approx(line.difference_ns, abs=1e-3)
    assert set(parts.filter(pl.col("name") == "aten::mm").get_column("module")) == {"Layer"}
