"""Memory snapshots: the replay against a naive one, public peaks, planted programs, and pickles that mean harm."""

import ast
import gzip
import json
import pickle
import runpy
from array import array
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import polars as pl
import pytest
from click.testing import CliRunner, Result
from commands import run_python
from conftest import CORPUS, SAMPLES
from hypothesis import given, settings, strategies as st
from lazy_report import report_on
from tiers import examples

import trace_analyzer as ta
from trace_analyzer import agents, json_types
from trace_analyzer.allocator import _pickle_reader, attribution, savings
from trace_analyzer.cli import main

MIB = 1 << 20
TRUTH = CORPUS.parent / "truth" / "memory"


def frame(name: str, file: str = "/home/me/train.py", line: int = 1) -> dict[str, Any]:
    return {"name": name, "filename": file, "line": line}


FORWARD = [frame("forward", "/home/me/model.py", 7), frame("main")]
BACKWARD = [
    frame("at::_ops::mm::call(at::Tensor const&)", "??", 0),
    frame("torch::autograd::generated::MmBackward0::apply(...)", "??", 0),
    frame("torch::autograd::Engine::thread_main(...)", "??", 0),
]
STEP = [frame("step", "/usr/lib/python3/site-packages/torch/optim/adamw.py", 9), frame("main", line=5)]


class Program:
    """A made allocator: every block has a segment of its own unless ``into`` names one."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.segments: dict[int, list[list[Any]]] = {}
        self.blocks: dict[int, list[Any]] = {}
        self.address = 1 << 30

    def segment(self, *sizes: int) -> list[int]:
        start = self.address
        self.segments[start] = [[start + sum(sizes[:k]), size, "inactive", None] for k, size in enumerate(sizes)]
        self.blocks |= {block[0]: block for block in self.segments[start]}
        self.address += sum(sizes)
        return [block[0] for block in self.segments[start]]

    def alloc(self, size: int, frames: list[dict[str, Any]], at: int | None = None, recorded: bool = True) -> int:
        address = self.segment(size)[0] if at is None else at
        self.blocks[address][2:] = ["active_allocated", frames if recorded else []]
        if recorded:
            self.event("alloc", address, size, frames)
        return address

    def free(self, address: int) -> None:
        self.blocks[address][2] = "inactive"
        for action in ("free_requested", "free_completed"):
            self.event(action, address, self.blocks[address][1], [])

    def event(self, action: str, address: int, size: int, frames: list[dict[str, Any]]) -> None:
        key = "device_free" if action == "oom" else "addr"
        self.events.append(
            {"action": action, key: address, "size": size, "stream": 0, "time_us": len(self.events), "frames": frames}
        )

    def document(self) -> dict[str, Any]:
        segments = [
            {
                "device": 0, "address": start, "total_size": sum(b[1] for b in blocks), "stream": 0, "segment_type": "large",
                "blocks": [
                    {"address": at, "size": size, "requested_size": size, "state": state, "frames": frames or []}
                    for at, size, state, frames in blocks
                ],
            }
            for start, blocks in self.segments.items()
        ]  # fmt: skip
        return {"segments": segments, "device_traces": [self.events]}

    def result(self, **changed: Any) -> ta.Memory:
        return ta.memory(pickle.dumps(self.document() | changed))

    def answer(self) -> Any:
        return self.result().devices[0]

    def write(self, path: Path) -> Path:
        path.write_bytes(pickle.dumps(self.document()))
        return path


def naive(document: dict[str, Any]) -> tuple[int, int, int | None, Counter[str]]:
    """Return base, peak, its event, and bytes of the record live then by function, by one loop over the events."""
    events = document["device_traces"][0]
    sign = {"alloc": 1, "free_completed": -1}
    net = sum(sign.get(e["action"], 0) * e["size"] for e in events)
    held = sum(b["size"] for s in document["segments"] for b in s["blocks"] if b["state"] != "inactive")
    live = base = held - net
    peak, at, then = base, None, Counter[str]()
    owners: dict[int, tuple[str, int]] = {}
    for number, event in enumerate(events):
        live += sign.get(event["action"], 0) * event["size"]
        if event["action"] == "alloc":
            owners[event["addr"]] = (event["frames"][0]["name"], event["size"])
        elif event["action"] == "free_completed":
            owners.pop(event["addr"], None)
        if live > peak:
            peak, at, then = live, number, Counter()
            for name, size in owners.values():
                then[name] += size
    return base, peak, at, then


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Draw programs that allocate before and within the record, free, and use addresses again."""
    program, live, free = Program(), [], []
    for _ in range(draw(st.integers(0, 3))):
        live.append(program.alloc(draw(st.integers(1, 9)) * 512, FORWARD, recorded=False))
    for _ in range(draw(st.integers(1, 30))):
        if live and draw(st.booleans()):
            address = live.pop(draw(st.integers(0, len(live) - 1)))
            program.free(address)
            free.append(address)
        else:
            frames = draw(st.sampled_from([FORWARD, BACKWARD, STEP, [frame("other", line=3)]]))
            at = free.pop() if free and draw(st.booleans()) else None
            size = program.blocks[at][1] if at else draw(st.integers(1, 9)) * 512
            live.append(program.alloc(size, frames, at))
    return program


@given(programs(), st.integers(2, 5))
@settings(max_examples=examples(80), deadline=None)
def test_the_replay_is_that_of_a_naive_loop(program: Program, protocol: int) -> None:
    document = program.document()
    base, peak, at, then = naive(document)
    result = ta.memory(pickle.dumps(document, protocol))
    if not peak and not result.devices:
        return
    (device,) = result.devices
    assert (device.base_bytes, device.peak_bytes, device.peak_event) == (base, peak, at)
    assert device.end_bytes == sum(b[1] for b in program.blocks.values() if b[2] != "inactive")
    for kind in ("category", "line", "module", "operator"):
        assert sum(holder.bytes for holder in device.held_by(kind)) == peak, "a partition of the peak"
    lines = {h.key: h.bytes for h in device.held_by("line")}
    assert lines.get("/home/me/train.py:3 other", 0) == then["other"]
    assert lines.get("/home/me/model.py:7 forward", 0) == then["forward"]
    assert lines.get("backward: MmBackward0", 0) == then[BACKWARD[0]["name"]]
    assert {note.code for note in result.notes} <= {"no-record"}


PEAKS = {  # TRUTH.md: base (None: not stated), peak, reserved, MiB
    "W_training_1024": (4864, 23_090, 24_012), "W_training_128": (4867, 6_696, None), "W_inference_128": (1624, 1_658, None),
    "W_inference_1024": (1625, 2_746, None), "N_fwd_100": (None, 394, None), "N_fb_100": (None, 655, None), "N_fb_200": (None, 1_177, None),
    "Y_oom_snapshot": (None, 11_292, 11_296),
}  # fmt: skip


@pytest.mark.skipif(not TRUTH.exists(), reason="public snapshots are absent")
@pytest.mark.parametrize("name", PEAKS)
def test_public_peaks_are_exact(name: str) -> None:
    result = ta.memory(TRUTH / f"{name}.pickle.gz")
    (device,) = result.devices
    found = tuple(round(b / MIB) for b in (device.base_bytes, device.peak_bytes, device.reserved_bytes))
    assert all(stated in (None, mib) for stated, mib in zip(PEAKS[name], found, strict=True)), found
    document = json.loads(result.to_json())
    jsonschema.validate(document, json_types.result_schema(ta.Memory))
    with gzip.open(TRUTH / f"{name}.pickle.gz") as file:
        raw = pickle.loads(file.read())
    net = sum({"alloc": 1, "free_completed": -1}.get(e["action"], 0) * e["size"] for e in raw["device_traces"][0])
    assert device.base_bytes == sum(s["allocated_size"] for s in raw["segments"]) - net
    if name == "W_training_1024":
        (softmax,) = [h for h in device.held_by("line") if "nn_utils.py:6 " in h.key]
        assert softmax.bytes == 6_144 * MIB
        assert device.held_by("category")[0].key == "activations"
        assert "nn_utils.py:6" in result.summary().split("\n\n")[0]
        assert device.larger_batch is not None
        assert 1.3 < device.larger_batch.low <= device.larger_batch.high < 1.8


def trained(steps: int, leak: bool = False, batch: int = 2) -> Program:
    """A program with parameters, and in each step activations, gradients, temporaries; with one block kept a step."""
    program = Program()
    program.alloc(100 * MIB, [frame("__init__", "/home/me/model.py", 3)])
    state = 0
    for _ in range(steps):
        kept = [program.alloc(15 * batch * MIB, FORWARD) for _ in range(4)]
        if leak:
            program.alloc(7 * MIB, [frame("log_losses", line=42)])
        temporary = program.alloc(5 * batch * MIB, BACKWARD)
        gradients = [program.alloc(25 * MIB, BACKWARD) for _ in range(4)]
        for address in (*kept, temporary):
            program.free(address)
        state = state or program.alloc(200 * MIB, STEP)
        program.free(program.alloc(50 * MIB, STEP))
        for address in gradients:
            program.free(address)
    return program


def test_a_snapshot_in_2_kb_has_ids_that_can_be_explained(tmp_path: Path) -> None:
    path = trained(3).write(tmp_path / "it's.pickle")
    run = invoked(path, "--format", "agent")
    assert len(run.stdout.encode()) <= 2_000
    ids = [line.split()[0] for line in run.stdout.splitlines() if line.startswith("memory:")]
    result = ta.memory(path)
    explained = [result.explain(each) for each in ids]
    lines = [line.bytes for line in result.devices[0].held_by("line")]
    assert [each.facts["live_bytes"] for each in explained] == lines != []
    assert [sum(row["live_bytes"] for row in each.rows) for each in explained] == lines
    assert CliRunner().invoke(main, ["explain", str(path), ids[0]]).stdout == explained[0].summary()
    assert agents.Tools(tmp_path).explain(path.name, ids[0]).count("\n") > 3
    for unknown in ("verdict", f"memory:{len(lines)}", "memory:-1", "memory:" + "9" * 99):
        refused = CliRunner().invoke(main, ["explain", str(path), unknown])
        assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)


FLASH = [frame("at::_ops::_scaled_dot_product_flash_attention::call(...)", "??", 0)]
LOSS = [frame("void host_softmax<LogSoftMaxForwardEpilogue>", "??", 0), frame("cross_entropy", line=9)]


def step_of(*kept: tuple[int, list[dict[str, Any]]], backward: bool = True, freed: bool = True) -> Any:
    """Return the answer on blocks (MiB, stack) that live until the backward pass is over, or for ever."""
    program = Program()
    live = [program.alloc(size * MIB, frames) for size, frames in kept]
    if backward:
        program.free(program.alloc(5 * MIB, BACKWARD))
    for address in live if freed else []:
        program.free(address)
    return program.answer()


@pytest.mark.parametrize(
    ("inner", "is_proposed"),
    [([[frame("softmax", line=9)]], True), ([FLASH], False), ([LOSS], False), ([FLASH, LOSS], False)],
    ids=["written-out", "flash", "loss", "flash and loss"],
)
def test_fused_attention_is_proposed_where_scores_stay(inner: list[list[dict[str, Any]]], is_proposed: bool) -> None:
    attention = [(500, [*frames, frame("attention", line=8), *FORWARD]) for frames in inner]
    assert ("fused-attention" in {s.name for s in step_of((90, FORWARD), *attention).savings}) == is_proposed


@pytest.mark.parametrize(("backward", "freed", "proposed"), [(True, True, 1), (False, False, 1), (False, True, 0)])
def test_nothing_is_recomputed_without_a_backward_pass(backward: bool, freed: bool, proposed: int) -> None:
    device = step_of(*[(100, FORWARD)] * 4, backward=backward, freed=freed)
    assert [s.name for s in device.savings].count("checkpoint") == proposed
    sized = [s for s in device.savings if s.name != "expandable-segments"]
    assert all(s.low_bytes <= s.high_bytes <= device.peak_bytes for s in sized)


@pytest.mark.slow
def test_a_trace_proposes_to_checkpoint_modules_with_all_that_is_in_them() -> None:
    saved = ta.memory(SAMPLES / "synthetic_training.json.gz").devices[0].savings
    assert [(s.name, s.what) for s in saved] == [
        ("checkpoint", what) for what in ("GPT/Block", "GPT/Block/MLP", "GPT/Block/Attention")
    ]  # flash attention keeps no scores


def test_what_has_no_module_is_named_by_its_category_and_hangs_below_it() -> None:
    result = trained(3).result()
    categories = {"optimizer state", "gradients", "parameters", "temporaries"}
    names = {h.key for h in result.devices[0].held_by("module")}
    assert names == {"/home/me/model.py:7 forward", *categories}
    nodes = attribution.tree(result.at_peak, 0)
    below = {path[-1]: nodes[caller][1][-1] for caller, path, _ in nodes if caller >= 0}
    assert below["/home/me/train.py:5 main"] == "optimizer state"
    assert below["/home/me/model.py:3 __init__"] == "parameters"


def test_categories_follow_from_stacks_and_lives() -> None:
    device = trained(3).answer()
    # The peak is in the second step's backward pass, when all but the temporary block of the optimizer is live.
    assert {h.key: h.bytes // MIB for h in device.held_by("category")} == {
        "optimizer state": 200, "activations": 120, "parameters": 100, "gradients": 100, "temporaries": 10,
    }  # fmt: skip
    assert device.growth == ()
    (checkpoint,) = [s for s in device.savings if s.name == "checkpoint"]
    # Without activations the peak is in the optimizer's step; with one of four calls, in the backward pass.
    assert (checkpoint.low_bytes, checkpoint.high_bytes) == (450 * MIB, 480 * MIB)
    names = {s.name for s in device.savings}
    assert {"checkpoint", "8-bit-optimizer"} <= names
    assert "fused-optimizer" not in names, "its temporaries are not live at the peak"


@pytest.mark.parametrize(
    ("optimizers", "code"),
    [
        (["SGD"], "optimizer = bitsandbytes.optim.SGD8bit(model.parameters(), **options)"),
        (["Adam", "SGD"], "# the optimizer with a state of 8 bits: bitsandbytes has"),
        (["Muon"], None),
    ],
)
def test_the_optimizer_stays_that_of_the_record(optimizers: list[str], code: str | None) -> None:
    mark = {"device": 0, "stage": "START", "time_us": 0}
    marks = [mark | {"name": f"Optimizer.step#{each}.step"} for each in optimizers]
    device = trained(3).result(external_annotations=marks).devices[0]
    codes = [saving.code for saving in device.savings if saving.name == "8-bit-optimizer"]
    assert [each.startswith(code or "") for each in codes] == [True] * (code is not None)


def test_every_code_parses() -> None:
    codes = [
        savings._saving(name, "", 0, optimizer=each).code
        for each in ("", "AdamW", "Muon")
        for name in savings.peak_fixes()
    ]
    assert [ast.parse(code) for code in codes]


def test_a_peak_beyond_what_is_reserved_is_no_share_of_it() -> None:
    program = trained(2)
    for number in range(8):
        program.event("alloc", (1 << 40) + number, 200 * MIB, FORWARD)
    result = program.result()
    assert result.devices[0].peak_bytes > result.devices[0].reserved_at_peak_bytes
    assert "reserved" not in result.summary().split("\n\n")[0]
    assert "were not live" not in result.summary()
    assert [note.code for note in result.notes] == ["record-contradicts-blocks"]


def test_a_leak_is_named_with_its_growth_a_step() -> None:
    (line,) = trained(8, leak=True).answer().growth
    assert (line.line, line.step_bytes, line.steps) == ("/home/me/train.py:42 log_losses", 7 * MIB, 6)


def test_fragmentation_names_the_segments_that_hold_it() -> None:
    program = Program()
    for _ in range(3):
        first, second = program.segment(90 * MIB, 10 * MIB)
        program.alloc(90 * MIB, FORWARD, first)
        program.alloc(10 * MIB, STEP, second)
        program.free(first)
    program.event("oom", 5 * MIB, 95 * MIB, FORWARD)
    device = program.answer()
    assert device.stranded_bytes == 270 * MIB
    assert [(s.free_bytes, s.largest_free_bytes) for s in device.held_segments] == [(90 * MIB, 90 * MIB)] * 3
    (oom,) = device.out_of_memory
    assert (oom.cause, oom.pieces_bytes, oom.largest_piece_bytes) == ("fragmentation", 270 * MIB, 90 * MIB)
    assert "expandable_segments" in program.result().summary()
    program.event("oom", 5 * MIB, 300 * MIB, FORWARD)
    assert [oom.cause for oom in program.answer().out_of_memory] == ["need", "fragmentation"]


def test_a_record_without_its_beginning_says_so() -> None:
    program = trained(3)
    result = program.result(device_traces=[program.events[5:]])
    assert [note.code for note in result.notes] == ["record-is-cut"]
    assert result.devices[0].peak_bytes == program.answer().peak_bytes
    program = Program()
    program.alloc(300 * MIB, [])
    program.free(program.alloc(10 * MIB, FORWARD))
    shown = " ".join(program.result(device_traces=[program.events[1:]]).summary().split())
    assert "300 MiB (97 %) allocated before the record, activations hold 10 MiB (3.2 %)" in shown


@pytest.mark.parametrize(("batch", "other"), [(2, 1), (2, 8), (8, 2), (3, 4)])
def test_another_batch_takes_what_its_record_has(batch: int, other: int) -> None:
    record, truth = (trained(3, batch=each).result() for each in (batch, other))
    then = savings.batch_memory(savings.growing(record.levels, record.lives), 0, other / batch, None)
    assert then is not None
    assert then.low_bytes == then.high_bytes == truth.devices[0].peak_bytes


def test_what_may_grow_is_in_the_interval_and_decides_what_fits() -> None:
    gib = 1 << 30
    rows = [(0, 10, 12, 0, 0), (0, 30, 40, 10, 0), (0, 40, 44, 4, 6)]
    names = ["live_bytes", "reserved_bytes", "growing_bytes", "open_bytes"]
    levels = pl.DataFrame(rows, ["torch_device", *names], orient="row").with_columns(pl.col(names) * gib)
    then = savings.batch_memory(levels, 2, 3, 65 * gib)
    assert then is not None, "profilers of ROCm number devices otherwise"
    assert (then.low_bytes, then.high_bytes, then.fits) == (50 * gib, 60 * gib, None)
    # 64 GiB over 44/40 are 58.2 GiB of live bytes; 65 GiB are all.
    assert (then.largest_low, then.largest_high) == (pytest.approx(1 + 1.818, abs=1e-3), 4.5)
    fits = [savings.batch_memory(levels, 2, times, 65 * gib) for times in (1.5, 4.6)]
    assert [each and each.fits for each in fits] == [True, False]
    unknown = savings.batch_memory(levels.with_columns(growing_bytes=0), 2, 3, 65 * gib)
    assert unknown is not None
    assert (unknown.fits, unknown.low_bytes) == (None, None)
    assert "no activations" in str(unknown.reason)
    several = pl.concat([levels, levels.with_columns(torch_device=pl.lit(1, pl.Int64))])
    assert savings.batch_memory(several, 2, 3, None) is None


@pytest.mark.slow
def test_what_if_says_whether_a_batch_fits(tmp_path: Path) -> None:
    path, trace = trained(3).write(tmp_path / "snapshot.pickle"), str(SAMPLES / "synthetic_compute.json.gz")
    words = ["whatif", trace, "--memory", str(path)]
    assert CliRunner().invoke(main, words).exit_code == 2
    shown = CliRunner().invoke(main, [*words, "--batch", "4", "--format", "json"])
    assert json.loads(shown.stdout)["memory"]["low_bytes"] == 920 * MIB
    assert "now 530 MiB" in ta.whatif(trace, batch=4, memory=path).summary()
    assert ta.whatif(trace, batch=4).memory is None


def invoked(path: Path, *words: str) -> Result:
    return CliRunner().invoke(main, ["memory", str(path), *words])


def test_a_gate_and_every_format(tmp_path: Path) -> None:
    path = trained(3).write(tmp_path / "snapshot.pickle")
    assert invoked(path, "--max-peak", "600MiB").exit_code == 0
    broken = invoked(path, "--max-peak", "500MiB")
    assert broken.exit_code == 1
    assert "the peak of device 0 is 530 MiB, over 500 MiB" in broken.stderr
    assert json.loads(invoked(path, "--format", "json").stdout)["devices"][0]["peak_bytes"] == 530 * MIB
    assert "model.py:7" in invoked(path, "--format", "markdown").stdout
    assert invoked(path, "-o", str(tmp_path / "page.html")).exit_code == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "530 MiB" in page
    assert "<title>snapshot.pickle: memory" in page
    assert 'me/<span class="file-name">model.py:7</span> forward' in page, "paths break after a slash"


def test_the_change_of_a_peak_is_exact_by_line(tmp_path: Path) -> None:
    before, after = trained(3), trained(3)
    after.alloc(600 * MIB, [frame("cache", line=9)])
    one, other = before.write(tmp_path / "a"), after.write(tmp_path / "b")
    assert ta.memory(one, before=one).changes == ()
    changes = {
        kind: {c.key: c.after_bytes - c.before_bytes for c in ta.memory(other, before=one).changes if c.kind == kind}
        for kind in ("line", "category")
    }
    assert changes["line"]["/home/me/train.py:9 cache"] == 600 * MIB
    difference = after.answer().peak_bytes - before.answer().peak_bytes
    assert [sum(of_kind.values()) for of_kind in changes.values()] == [difference] * 2
    shown = invoked(other, "--before", str(one)).stdout
    assert "train.py:9 cache" in shown
    assert "+600 MiB" in shown


def span(category: str, name: str, ts: float, dur: float) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": {}}


def change(ts: float, address: int, size: int, total: int, device: int = 0, reserved: int = 0) -> dict[str, Any]:
    """A memory event of the profiler; device -1 is the host."""
    args = {
        "Device Id": device, "Device Type": int(device >= 0), "Addr": address, "Bytes": size, "Total Allocated": total,
        "Total Reserved": reserved,
    }  # fmt: skip
    return {
        "ph": "i",
        "s": "t",
        "cat": "cpu_instant_event",
        "name": "[memory]",
        "pid": 1,
        "tid": 1,
        "ts": ts,
        "args": args,
    }


def traced() -> dict[str, Any]:
    """A trace with an operator in a forward pass, one after it, and memory events of a device and of the host."""
    rows = [(10, 4096, 5, 105), (12, 8192, 20, 125), (14, 64, 900, 900, -1), (40, 4096, -5, 120), (52, 4096, 3, 123)]
    changes = [change(ts, at, size * MIB, total * MIB, *of, reserved=200 * MIB) for ts, at, size, total, *of in rows]
    return {
        "schemaVersion": 1,
        "traceEvents": [span("cpu_op", "aten::mm", 5, 30), span("cpu_op", "aten::relu", 50, 10), *changes],
    }


def test_memory_events_of_a_trace_give_the_same_answer() -> None:
    document = traced()
    result = ta.memory(json.dumps(document).encode())
    (device,) = result.devices
    assert result.source == "trace"
    assert (device.base_bytes, device.peak_bytes, device.peak_event) == (100 * MIB, 125 * MIB, 1)
    assert (device.end_bytes, device.fragmentation_bytes) == (123 * MIB, 75 * MIB)
    held = {h.key: h.bytes // MIB for h in device.held_by("operator")}
    assert held == {"allocated before the record": 100, "aten::mm": 25}
    assert "segments" not in result.summary()
    without = ta.memory(json.dumps({"traceEvents": document["traceEvents"][:2]}).encode())
    assert [note.code for note in without.notes] == ["no-memory-events"]


def test_each_process_has_an_allocator_of_its_own() -> None:
    """Events of two ranks in one file alternate; those of the one that holds less take nothing from the other."""
    document = traced()
    less = document["traceEvents"][2] | {"pid": 99, "ts": 11}
    both = document | {"traceEvents": [*document["traceEvents"], less]}
    tables = [report_on(json.dumps(each).encode()).tables["memory"] for each in (document, both)]
    assert tables[0].equals(tables[1])


def test_a_report_shows_the_peak_by_operator_with_ids_where_memory_was_recorded() -> None:
    report = report_on(json.dumps(traced()).encode())
    assert report.tables["memory"].drop("module", "python_function", "live_ratio").rows() == [
        (0, "allocated before the record", None, 100 * MIB, 1, 7_000, 35_000),
        (0, "unknown", "aten::mm", 25 * MIB, 2, 7_000, 35_000),
    ]
    assert json.loads(report.to_json())["memory"][1]["live_ratio"] == 0.2
    without = report_on(json.dumps({"traceEvents": traced()["traceEvents"][:2]}).encode())
    for shown, lacks in zip(*((r.summary(verbose=True), r.to_markdown()) for r in (report, without)), strict=True):
        assert "25 MiB" in shown
        assert "Memory at the peak" not in lacks
    assert "memory:0  100 MiB, 80 % of the peak: allocated before the record" in report.to_agent_text()
    explained = report.explain("memory:1")
    assert (explained.facts["operator"], explained.facts["live_bytes"]) == ("aten::mm", 25 * MIB)
    assert [row["live_bytes"] for row in explained.rows] == [100 * MIB]
    assert agents.called(explained.next, "a.json") == ("memory", {"source": "a.json"})
    with pytest.raises(ta.UsageError, match="memory:0 to memory:1"):
        report.explain("memory:2")
    assert set(attribution.MEANINGS) >= set(attribution.NAMED)


SINCE_1970_US = 1_700_000_000_000_000


def trace_of(program: Program, shift_us: int = 0, move: int = 0, recorded: bool = True) -> bytes:
    """A trace of the program with an operator and a step around its events, whose clock or addresses may differ.

    The events of the program are moved to a millisecond each, from a time since 1970 on.
    """
    live, rows = 0, []
    for number, event in enumerate(program.events):
        event["time_us"] = SINCE_1970_US + 1000 * number
        size = {"alloc": 1, "free_completed": -1}.get(event["action"], 0) * event["size"]
        live += size
        if size:
            rows.append(change(1000 * number + 20 + shift_us, event["addr"] + move, size, live))
    length = 1000 * len(program.events)
    spans = [
        span("user_annotation", "ProfilerStep#7", shift_us, length),
        span("cpu_op", "aten::mm", shift_us + 1, length - 1),
    ]
    events = [*spans, *(rows if recorded else [])]
    return json.dumps({"baseTimeNanoseconds": SINCE_1970_US * 1000, "traceEvents": events}).encode()


@pytest.mark.parametrize(
    ("differs", "reason"),
    [
        ({}, None),
        ({"shift_us": 90}, None),
        ({"move": 512}, "not of one run"),
        ({"shift_us": 60_000_000}, "no common time"),
        ({"recorded": False}, "no memory events"),
    ],
)
def test_a_peak_is_placed_in_a_trace_that_is_proven_of_the_run(differs: dict[str, int], reason: str | None) -> None:
    program = trained(3)
    trace = trace_of(program, **differs)  # type: ignore[arg-type]
    result = ta.memory(pickle.dumps(program.document()), trace=trace)
    place = result.place
    assert place is not None
    if reason is None:
        assert (place.step, place.operator, place.reason) == ("ProfilerStep#7", "aten::mm", None)
        assert 0.9 * place.compared <= place.matched <= place.compared
        assert place.time_ns == (1000 * (result.devices[0].peak_event or 0) + 20) * 1000
        assert "in ProfilerStep#7, aten::mm" in " ".join(result.summary().split())
    else:
        assert reason in str(place.reason)
        assert (place.time_ns, place.step) == (None, None)


@pytest.mark.skipif(not CORPUS.exists(), reason="the corpus ($TRACE_CORPUS) is absent")
@pytest.mark.parametrize("name", ["h100_bert_small_fillmask", "mi300_timesformer"])
def test_the_peak_of_a_real_trace_is_its_highest_total(name: str) -> None:
    path = CORPUS / f"{name}.json.gz"
    with gzip.open(path) as file:
        events = [e["args"] for e in json.load(file)["traceEvents"] if e.get("name") == "[memory]"]
    (device,) = ta.memory(path).devices
    assert device.peak_bytes == max(e["Total Allocated"] for e in events if e["Device Type"] != 0)
    for kind in ("category", "line", "module", "operator"):
        assert sum(holder.bytes for holder in device.held_by(kind)) == device.peak_bytes


class Harmful:
    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("harm",))


LOOP: list[Any] = []
LOOP.append(LOOP)


_SHARED = trained(1).events
HARMFUL = {
    "no pickle": b"PK\x03\x04 a zip",
    "empty": b"",
    "cut": pickle.dumps(trained(1).document())[:-200],
    "class": pickle.dumps(Harmful()),
    "class in a frame": pickle.dumps({"segments": [], "device_traces": [[Harmful()]]}),
    "protocol 0": pickle.dumps({"segments": []}, 0),
    "another document": pickle.dumps({"weights": [1.0, 2.0]}),
    "recursion": pickle.dumps({"segments": LOOP, "device_traces": LOOP}),
    "depth": b"\x80\x02" + b"(" * 100_000 + b".",
    "nested lists": pickle.dumps({"segments": [[[[]]]]}),
    "memo bomb": b"\x80\x02]r\xff\xff\xff\x7f.",
    "one list for two devices": pickle.dumps({"segments": [], "device_traces": [_SHARED, _SHARED]}),
    "text that lies": b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7fabc.",
    "integer that lies": b"\x80\x02\x8a\xff" + b"\x01" * 255 + b".",
    "list that was never made": b"\x80\x02e.",
    "dictionary as key": b"\x80\x02}}K\x01s.",
    "negative size": pickle.dumps({"segments": [], "device_traces": [[{"action": "alloc", "addr": 1, "size": -5}]]}),
    "size of a planet": pickle.dumps({"segments": [], "device_traces": [[{"action": "alloc", "addr": 1, "size": 1 << 62}]]}),
    "blocks beyond their segment": pickle.dumps(
        {"segments": [{"device": 0, "address": 1, "total_size": 1, "blocks": [{"size": 9, "state": "inactive"}]}]}
    ),
    "event among other values": pickle.dumps({"segments": [], "device_traces": [[_SHARED[0], 1]]}),
    "event in no list": pickle.dumps({"segments": [], "device_traces": [], "event": _SHARED[0]}),
    "integer of 65 bits": pickle.dumps({"segments": [], "device_traces": [[{"action": "alloc", "addr": 1 << 64, "size": 1}]]}),
    "endless stack": pickle.dumps({"segments": [], "device_traces": [[{"action": "alloc", "addr": 1, "size": 1, "frames": [frame("f")] * 5_000}]]}),
    "frames that are none": pickle.dumps({"device_traces": [[{"action": "alloc", "addr": 1, "size": 1, "frames": ["a"]}]]}),
}  # fmt: skip


@pytest.mark.parametrize("what", HARMFUL)
def test_a_foreign_pickle_is_one_line(what: str, tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(HARMFUL[what])
    result = invoked(path)
    assert result.exit_code == 2, result.output
    assert result.stderr.count("\n") == 1, result.stderr
    assert "a bug in this program" not in result.stderr
    assert "harm\n" not in result.output


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    name = "</script><script>alert(1)</script> \x1b[31m\u202e `|` @octocat"
    program = trained(2)
    program.alloc(900 * MIB, [frame(name, "/tmp/" + name + ".py", -3)])
    result = program.result()
    page = result.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<script>alert(1)" not in page
    assert "\x1b" not in result.summary() + result.to_json() + page
    assert "\u202e" not in result.summary()
    assert "@octocat" not in result.to_markdown()


VALUES = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.integers(-(1 << 63), (1 << 63) - 1) | st.text(),
    lambda of: st.lists(of) | st.lists(of).map(tuple) | st.dictionaries(st.text() | st.integers(0, 9), of),
    max_leaves=20,
)


def read(*blocks: bytes, reader: Any = _pickle_reader.Pickle) -> Any:
    """Read a pickle that comes in blocks."""
    made = reader(iter(blocks))
    made.read()
    return made


@given(VALUES, st.integers(2, 5))
@settings(max_examples=examples(200), deadline=None)
def test_what_is_no_event_is_read_as_python_reads_it(value: Any, protocol: int) -> None:
    content = pickle.dumps([value, value], protocol)  # the second one is remembered
    assert read(content).root == pickle.loads(content)


@pytest.mark.parametrize("depth", [1, 999, 1000, 1001, 2500], ids=str)
def test_a_deep_stack_is_whole(depth: int) -> None:
    """Pickles append a thousand values at once."""
    program, frames = trained(1), [frame("recurse", line=number) for number in range(depth)]
    program.free(program.alloc(900 * MIB, frames))
    program.alloc(5, frames)
    reader = read(pickle.dumps(program.document()))
    lines = [[reader.frames[number][2] for number in array("q", stack)] for stack in reader.stacks]
    assert lines.count(list(range(depth))) == 1


_PEAK = """
import pathlib, sys, trace_analyzer as ta
ta.memory(sys.argv[1])
status = pathlib.Path("/proc/self/status").read_text()
print(status[status.index("VmHWM"):].split()[1])
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells the peak memory of a process")
def test_memory_is_bounded_by_the_number_of_events(tmp_path: Path) -> None:
    """docs/memory.md: 330 bytes an event; objects of Python would take a kilobyte."""
    few, many = trained(1_000), trained(6_000)
    peaks = [1024 * int(run_python(_PEAK, each.write(tmp_path / "snapshot")).stdout) for each in (few, many)]
    assert (peaks[1] - peaks[0]) / (len(many.events) - len(few.events)) < 600


def test_plain_and_compiled_readers_agree() -> None:
    plain = runpy.run_path(str(Path(_pickle_reader.__file__).with_name("_pickle_reader.py")))["Pickle"]
    content = pickle.dumps(trained(4).document())
    blocks = [content[at : at + 7] for at in range(0, len(content), 7)]
    one, other = read(*blocks, reader=plain), read(content)
    for name in ("frames", "stacks", "texts", "events", "traces", "root"):
        assert getattr(one, name) == getattr(other, name), name
