"""Describe where device memory goes as a document."""

import re
from functools import partial
from pathlib import PurePath

import polars as pl

from trace_analyzer.allocator import DeviceMemory, Memory, OutOfMemory, PeakSaving, attribution
from trace_analyzer.documents import Chapter, Code, Document, Figure, FlameFigure, Notes, PlainTable
from trace_analyzer.sections import Axis, Boxes, Chart, Flame, LineMark
from trace_analyzer.units import counted, duration, memory_size as size, percent, visible

_ROWS, _MOST_ROWS = 10, 500
_LARGER = 1.05
"""Least factor of the batch that is shown."""
_NOBODY = (attribution.UNKNOWN, attribution.BEFORE, attribution.ROUNDED)
"""Keys that name no part of the program."""
_TITLES = {"category": "By category", "line": "By line", "module": "By module", "operator": "By operator"}
_CAUSES = {
    "need": "The program needs more: even all free pieces together are too few",
    "fragmentation": "Fragmentation: the free pieces would suffice, but none is large enough",
    "limit": "The device had enough free: a limit of the process (set_per_process_memory_fraction) or another process is the cause",
}
_CURES = {
    "need": "lower the peak",
    "fragmentation": "let segments grow: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    "limit": "raise the limit, or look for other processes on the device",
}
_FOLDERS = re.compile(r"^.*[/\\](?=[^/\\]+[/\\][^/\\]+:-?\d+ )")
"""All but the last folder of a line's file."""


def document(result: Memory) -> Document:
    """Return the document: the peak and what holds it, out-of-memory errors, what would lower it, growth, fragmentation."""
    title = f"{PurePath(result.path).name or result.path}: memory"
    if not result.devices:
        return Document(title, "No device memory was recorded.", [_notes(result)])
    first = result.devices[0]
    chapters = [chapter for device in result.devices for chapter in _chapters(result, device, len(result.devices) > 1)]
    return Document(title, headline(first), [*chapters, _notes(result)], chips=[counted(first.events, "event")])


def _notes(result: Memory) -> Chapter:
    severe = "warning" if any(note.severity != "info" for note in result.notes) else "info"
    return Chapter("notes", "Notes", [Notes([note.message for note in result.notes], severe)])


def headline(device: DeviceMemory) -> str:
    """Return who holds the peak, in a sentence."""
    of = f" of {size(device.reserved_at_peak_bytes)} reserved" if _is_possible(device) else ""
    peak = f"Peak {size(device.peak_bytes)}{of}"
    categories = device.held_by("category")
    known = [h for h in categories if h.key not in _NOBODY]
    lines = [h for h in device.held_by("line") if h.key not in _NOBODY]
    if not device.peak_bytes:
        return f"{peak}."
    parts = []
    if categories[0].key == attribution.BEFORE:
        parts.append(f"{size(categories[0].bytes)} ({percent(device.ratio_of(categories[0]))}) {attribution.BEFORE}")
    if known:
        parts.append(f"{known[0].key} hold {size(known[0].bytes)} ({percent(device.ratio_of(known[0]))})")
    if lines:
        parts.append(f"{_short(lines[0].key)} holds {size(lines[0].bytes)} ({percent(device.ratio_of(lines[0]))})")
    return f"{peak}: {', '.join(parts)}." if parts else f"{peak}: what holds it is not recorded."


def _is_possible(device: DeviceMemory) -> bool:
    """Return whether all that lives at the peak fits into what is reserved then; else the record contradicts the blocks."""
    return device.peak_bytes <= device.reserved_at_peak_bytes


def _short(line: str) -> str:
    """Return a line with the last folder of its path."""
    return _FOLDERS.sub("", line)


def _chapters(result: Memory, device: DeviceMemory, several: bool) -> list[Chapter]:
    of, key = (f" of device {device.device}" if several else ""), f"-{device.device}" if several else ""
    tables = [
        PlainTable(
            (_TITLES[kind].removeprefix("By ").capitalize(), "Bytes", "Of the peak", "Blocks"), "lrrr",
            [(_short(h.key), size(h.bytes), percent(device.ratio_of(h)), f"{h.count:,}") for h in device.held_by(kind)[:_MOST_ROWS]],
            title=_TITLES[kind], most=_ROWS,
        )
        for kind in _TITLES if any(h.key not in _NOBODY for h in device.held_by(kind)) or kind == "category"
    ]  # fmt: skip
    changes = [
        (_short(c.key), size(c.before_bytes), size(c.after_bytes), _signed(c.after_bytes - c.before_bytes))
        for c in result.changes
        if c.device == device.device and c.kind == "line"
    ]
    saved = [(s.label, _short(s.what), range_of(s), s.condition) for s in device.savings]
    codes = "\n".join(dict.fromkeys(s.code for s in device.savings))
    growth = [
        (_short(g.line), size(g.bytes), f"{g.count:,}", size(g.step_bytes) if g.step_bytes else "–")
        for g in device.growth
    ]
    segments = [
        (f"0x{h.address:x}", size(h.bytes), size(h.free_bytes), size(h.largest_free_bytes), _short(h.line or attribution.UNKNOWN)) for h in device.held_segments
    ]  # fmt: skip
    return [
        Chapter(f"oom{key}", f"Out of memory{of}", [Notes([oom_sentence(each) for each in device.out_of_memory], "error")]),
        Chapter(f"peak{key}", f"The peak{of}", [
            Notes([_moment(device), *_place(result, device), *_rest(device)]),
            Figure("Live bytes over time", "Bytes live and reserved after each event of the record; of neighbouring events the highest is drawn.", partial(over_time, result, device)),
            FlameFigure("The peak by category, module and line", "Width: bytes live at the peak.", partial(flames, result, device)),
            *tables,
        ]),
        Chapter(f"changes{key}", f"Changes at the peak, by line{of}", [PlainTable(("Line", "Before", "After", "Change"), "lrrr", changes, most=_ROWS)]),
        Chapter(f"savings{key}", f"What would lower the peak{of}", [PlainTable(("Change", "Of", "Peak then", "Provided that"), "llrl", saved), Code(codes)], lead="Each figure is the record replayed with the change."),
        Chapter(f"growth{key}", f"Lines that grow{of}", [PlainTable(("Line", "Live at the end", "Blocks", "A step"), "lrrr", growth)], lead="They keep blocks all through the record: a leak, unless the program means to keep them."),
        Chapter(f"fragmentation{key}", f"Reserved and free{of}", [
            Notes(_reserved(result, device)),
            Figure("Segments at the end", "A row a segment, the largest first.", partial(segments_map, result, device)),
            PlainTable(("Segment", "Size", "Free", "Largest piece", "Most of it"), "lrrrl", segments, title="Segments with free pieces that cannot go back"),
        ]),
    ]  # fmt: skip


def _signed(n_bytes: int) -> str:
    return f"{'+' if n_bytes > 0 else '-'}{size(abs(n_bytes))}"


def oom_sentence(oom: OutOfMemory) -> str:
    """Return what was asked for, what was free, why it failed, and what to change."""
    where = f" at {_short(oom.line)}" if oom.line and oom.line != attribution.UNKNOWN else ""
    largest = "" if oom.largest_piece_bytes is None else f", the largest {size(oom.largest_piece_bytes)}"
    return (
        f"Event {oom.event:,} asked for {size(oom.asked_bytes)}{where}: {size(oom.live_bytes)} were live, {size(oom.pieces_bytes)} free in pieces"
        f"{largest}, {size(oom.device_free_bytes)} free on the device. {_CAUSES[oom.cause]}. To change: {_CURES[oom.cause]}."
    )


def _moment(device: DeviceMemory) -> str:
    if device.peak_event is None:
        return f"The peak is what was live before the record of {counted(device.events, 'event')}: {size(device.peak_bytes)}."
    return (
        f"Event {device.peak_event:,} of {device.events:,} reaches it. {size(device.base_bytes)} were live before the record, "
        f"{size(device.end_bytes)} are live at its end."
    )


def _place(result: Memory, device: DeviceMemory) -> list[str]:
    """Return where the first device's peak is in the trace, or why that is not known."""
    place = result.place
    if place is None or device is not result.devices[0]:
        return []
    name = PurePath(place.path).name or place.path
    if place.time_ns is None:
        return [f"Where {name} reaches it is not known: {place.reason}."]
    code = [each for each in (place.operator, place.module, place.python_function) if each]
    where = ", ".join(
        [f"{duration(place.time_ns)} after its start", *([f"in {place.step}"] if place.step else []), *code]
    )
    return [
        f"{name} reaches it {where} ({place.matched:,} of {counted(place.compared, 'allocation')} of the time that both cover match)."
    ]


def _rest(device: DeviceMemory) -> list[str]:
    """Return how much larger a batch has the same peak without the line that holds most, where it is worth a word."""
    then = device.larger_batch
    if then is None or then.low < _LARGER:
        return []
    large = " to ".join(dict.fromkeys(f"{times:.1f}" for times in (then.low, then.high)))
    return [f"Without what {_short(then.line)} holds, a batch {large} times as large has the same peak."]


def range_of(saving: PeakSaving) -> str:
    """Return the peak with a change, or its ends."""
    low, high = size(saving.low_bytes), size(saving.high_bytes)
    return low if low == high else f"{low} to {high}"


def _reserved(result: Memory, device: DeviceMemory) -> list[str]:
    sentences = []
    if _is_possible(device):
        ratio = device.fragmentation_bytes / device.reserved_at_peak_bytes if device.reserved_at_peak_bytes else None
        sentences.append(
            f"At the peak {size(device.fragmentation_bytes)} of {size(device.reserved_at_peak_bytes)} reserved were not live ({percent(ratio)})."
        )
    if result.source == "snapshot":  # a trace tells of no segments
        sentences.append(
            f"At the end {size(device.reserved_bytes)} are reserved: {size(device.cached_bytes)} in empty segments, which "
            f"torch.cuda.empty_cache() frees, and {size(device.stranded_bytes)} free in segments that blocks hold."
        )
    return sentences


_GIB, _MIB = 1 << 30, 1 << 20
_COLOURS = {
    "parameters": "p-compute", "gradients": "p-copy", "optimizer state": "p-communication", "activations": "k-matmul", "temporaries": "k-pointwise",
    "library workspaces": "k-other",
}  # fmt: skip

_LABELS = {"rest": "before the record, or unknown"}


def over_time(result: Memory, device: DeviceMemory) -> Chart | None:
    """Declare live bytes by category over the events, stacked, below the reserved ones; None without a record."""
    rows = attribution.curve(result.levels, result.lives, device.device)
    if rows.height < 2:
        return None
    x = rows.get_column("event").to_list()
    ends = [*x[1:], device.events]
    reserved = (rows.get_column("reserved_bytes") / _GIB).to_list()
    floor, boxes, legend = [0.0] * len(x), [], []
    for name in ("rest", *_COLOURS):
        held = rows.get_column(name).clip(lower_bound=0)
        if not (held > 0).any():
            continue
        label, colour = _LABELS.get(name, name), _COLOURS.get(name, "queue")
        top = [low + length / _GIB for low, length in zip(floor, held, strict=True)]
        texts = {
            "": [label] * len(x),
            "live": [size(length) for length in held],
            "event": [f"{event:,}" for event in x],
        }
        boxes.append(Boxes(x, ends, floor, top, colour, texts))
        legend.append((label, colour))
        floor = top
    return Chart(
        Axis("event of the record", counts=True), Axis("memory", "GiB", ends=(0, max(reserved + floor) * 1.05)),
        (*boxes, LineMark("reserved", x, reserved, "text-muted", "dashed")),
        legend=tuple(legend), signs=(("- -", "reserved"),), zooms=True,
    )  # fmt: skip


def segments_map(result: Memory, device: DeviceMemory) -> Chart | None:
    """Declare the largest segments as rows of their blocks; None without segments."""
    rows = attribution.segments(result.blocks, device.device)
    if rows.is_empty():
        return None
    n = rows.get_column("row").n_unique()
    left = (rows.get_column("offset_bytes") / _MIB).to_list()
    right = ((rows.get_column("offset_bytes") + rows.get_column("bytes")) / _MIB).to_list()
    bottom = [n - row - 0.9 for row in rows.get_column("row")]
    states = rows.get_column("state").to_list()
    boxes = Boxes(
        left, right, bottom, [at + 0.8 for at in bottom], ["queue" if state == "inactive" else "k-matmul" for state in states],
        {"size": [size(length) for length in rows.get_column("bytes")], "state": [visible(state.replace("_", " ")) for state in states]},
    )  # fmt: skip
    return Chart(
        Axis("offset in the segment", "MiB", ends=(0, max(right))), Axis("", ends=(0, n), hidden=True), (boxes,),
        legend=(("live", "k-matmul"), ("free", "queue")), height=80 + 9 * n,
    )  # fmt: skip


def flames(result: Memory, device: DeviceMemory) -> tuple[Flame, ...]:
    """Declare the peak as a flame graph of category, module and line."""
    rows = [
        (caller, visible(path[-1]), visible(_short(path[-1])), _COLOURS.get(path[0], "queue"), length)
        for caller, path, length in attribution.tree(result.at_peak, device.device)
    ]
    nodes = pl.DataFrame(rows, schema=["caller", "frame", "label", "colour", "value_ns"], orient="row")
    return (Flame(f"peak-{device.device}", f"Device {device.device}", nodes, unit="bytes"),)
