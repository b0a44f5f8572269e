"""Write the report in at most 2,000 bytes, for language models, scripts and chats."""

import shlex
from collections.abc import Iterator, Mapping

from msgspec.structs import asdict

from trace_analyzer import allocator, units
from trace_analyzer.documents import memory as memory_document
from trace_analyzer.explain import items
from trace_analyzer.render import phrasing, row_phrases
from trace_analyzer.render.names import kernel_label
from trace_analyzer.report import Report
from trace_analyzer.report.summaries import broken_checks, part_totals, shares_of, step_totals
from trace_analyzer.vocabulary import UNSEEN, label

MOST_BYTES = 2_000
_LONGEST = 240  # characters of a line, so that no name in a trace displaces the other lines
_TOP_ADVICE, _TOP_PARTS, _TOP_CHECKS, _TOP_GAPS = 4, 6, 4, 2
_TOP_KERNELS, _TOP_OPERATORS, _TOP_MEMORY, _TOP_LINES = 3, 5, 1, 6


def agent_text(report: Report, more: str = "") -> str:
    """Return the verdict and its consequences, one item per line with its id; equal reports give equal text.

    The least important lines are left out where there is no room. ``more`` says how an id is explained, by default with
    the command.
    """
    more = more or f"analyze explain {_argument(report.trace.path)} ID"
    forms = [form for form, is_there in _id_forms(report).items() if is_there]
    return _fitting(_lines(report), f"more: {more}; ids: {', '.join(forms)}")


def _id_forms(report: Report) -> Mapping[str, bool]:
    """Return each form of ids, and whether the report has such items."""
    tables = report.tables
    return {
        "verdict": True,
        "advice:ID": bool(report.advice),
        "gap:N": not tables["gaps"].is_empty(),
        "kernel:HASH[/RUN]": not tables["kernels"].is_empty(),
        "step:N": bool(report.steps),
        "check:ID": bool(report.trust),
        "memory:N": not tables["memory"].is_empty(),
    }


def _argument(path: str) -> str:
    """Return a path as a word of a command; TRACE for one that takes too much room, or that a terminal cannot show."""
    return shlex.quote(path) if len(path) <= _LONGEST and _short(path) == path else "TRACE"


def memory_text(memory: allocator.Memory) -> str:
    """Return where memory goes, an item per line; a snapshot's lines have ids, as those of a trace are of its report."""
    more = f"more: analyze explain {_argument(memory.path)} memory:N; ids: memory:N"
    if memory.source != "snapshot" or not memory.devices:
        more = f"more: analyze {_argument(memory.path)} --format agent"
    return _fitting(_memory_lines(memory), more)


def _memory_lines(memory: allocator.Memory) -> Iterator[str]:
    """Yield the lines about the device with the highest peak, and the notes."""
    for device in memory.devices[:1]:
        yield f"memory  device {device.device}. {memory_document.headline(device)}"
        yield from (f"oom  {memory_document.oom_sentence(each)}" for each in device.out_of_memory[:1])
        for saving in device.savings[:_TOP_ADVICE]:
            yield f"change  {saving.label}, {saving.what}: peak {memory_document.range_of(saving)}, if {saving.condition}"
        for code in dict.fromkeys(saving.code for saving in device.savings[:_TOP_ADVICE]):
            yield f"  code: {row_phrases.code_line(code, 0)}"
        for number, holder in enumerate(device.held_by("line")[:_TOP_LINES]):
            name = f"memory:{number}" if memory.source == "snapshot" else "line"
            share = units.percent(device.ratio_of(holder))
            yield f"{name}  {units.memory_size(holder.bytes)}, {share} of the peak, {units.counted(holder.count, 'block')}: {holder.key}"
        yield from (
            f"grows  {units.memory_size(each.bytes)} live at the end: {each.line}" for each in device.growth[:2]
        )
    yield from (f"note  {note.message}" for note in memory.notes)


def _fitting(lines: Iterator[str], end: str) -> str:
    """Return the first lines that there is room for, shortened, and the end."""
    room = MOST_BYTES - _bytes(end)
    kept: list[str] = []
    for line in map(_short, lines):
        if _bytes(line) > room:
            break
        kept.append(line)
        room -= _bytes(line)
    return "\n".join([*kept, end]) + "\n"


def _bytes(line: str) -> int:
    return len(line.encode("utf-8", "backslashreplace")) + 1


def _short(text: str, most: int = _LONGEST) -> str:
    shown = units.visible(text).encode("utf-8", "backslashreplace").decode("utf-8")
    return shown if len(shown) <= most else shown[: most - 3] + "..."


def _lines(report: Report) -> Iterator[str]:
    """Yield the lines of the report, the most important first."""
    verdict = report.verdict
    sure = f" ({verdict.confidence} confidence)" if verdict.regime else ""
    yield f"verdict  {phrasing.verdict_label(verdict)}{sure}. {phrasing.headline(verdict)}"
    for sentence in filter(None, (row_phrases.step_without_recording(verdict), row_phrases.levers_sentence(verdict))):
        yield f"  {sentence}"
    if rule := row_phrases.rule_applied(verdict):
        yield f"  rule: {rule}"
    if verdict.regime and verdict.confidence_why:
        yield f"  {' '.join(phrasing.confidence(verdict))}"
    yield from _advice(report)
    yield from _window(report)
    yield from _setting(report)
    yield from _broken_checks(report)
    for tip in phrasing.record_instead(report):
        yield f"record  {tip}"
    for row in items.longest_gaps(report, _TOP_GAPS).to_dicts():
        idle = "" if row["cause"] in UNSEEN else " idle"
        yield f"gap:{row['gap_id']}  {units.duration(row['duration_ns'])}{idle}, {label(row['cause'])}"
    for number, row in enumerate(report.tables["memory"].head(_TOP_MEMORY).to_dicts()):
        held = ", ".join(filter(None, (row["category"], row["operator"], row["module"])))
        yield f"memory:{number}  {units.memory_size(row['live_bytes'])}, {units.percent(row['live_ratio'])} of the peak: {held}"
    yield from _kernels(report)
    yield from _steps(report)
    if not report.devices:
        yield from _operators(report)


def _advice(report: Report) -> Iterator[str]:
    for item in report.advice[:_TOP_ADVICE]:
        worth = "; ".join(filter(None, (phrasing.predicted_briefly(item), row_phrases.saves_at_most(item))))
        yield f"advice:{item.id}  {item.title}{worth and f': {worth}'}"
        if code := row_phrases.code_line(item.code, 0):
            yield f"  code: {code}"
        if place := row_phrases.first_place(item, 120):
            yield f"  {place}"


def _window(report: Report) -> Iterator[str]:
    """Yield the parts of the verdict's window, work and idle time together, longest first."""
    totals = part_totals(report.verdict.parts_ns)
    parts = sorted([*totals.work.items(), *totals.idle.items()], key=lambda item: -item[1])[:_TOP_PARTS]
    if parts:
        shares = ", ".join(
            f"{label(share.part)} {units.percent(share.time_ratio)}" for share in shares_of(parts, totals.total_ns)
        )
        yield f"window  {phrasing.window_phrase(report)}: {shares}"


def _setting(report: Report) -> Iterator[str]:
    """Yield the judged device, and the length of its steady steps."""
    names = [
        device.name or device.catalog_name for device in report.trace.devices if device.index == report.verdict.device
    ]
    steady = step_totals((step for step in report.steps if step.steady), report.verdict)
    if report.verdict.device is not None:
        step = f"; a step takes {units.duration(steady.median_ns)} (median of {steady.count})" if steady else ""
        yield f"device  {report.verdict.device}, {next(filter(None, names), 'without a name')}{step}"


def _broken_checks(report: Report) -> Iterator[str]:
    broken = broken_checks(report)
    for check in broken[:_TOP_CHECKS]:
        yield f"{items.check_id(report, check)}  {check.status}: {phrasing.check_phrase(check)}"
    for note in [note for note in phrasing.sorted_notes(report.notes) if note.severity != "info"][:2]:
        yield f"note  {note.message}"


def _kernels(report: Report) -> Iterator[str]:
    for name in items.kernel_names(report)[:_TOP_KERNELS]:
        of_devices = items.kernel_totals(report.tables["kernels"].filter(name=name).to_dicts())
        time = f"{units.duration(of_devices['time_ns'])}, {units.percent(of_devices['time_ratio'])} of kernel time"
        runs = units.counted(of_devices["count"], "run")
        yield f"kernel:{items.kernel_hash(name)}  {time}, {runs}: {kernel_label(name, 60)}"


def _steps(report: Report) -> Iterator[str]:
    """Yield the longest steady step, which shows most."""
    steady = [step for step in report.steps if step.steady and step.device == report.verdict.device]
    if steady:
        longest = max(steady, key=lambda step: (step.duration_ns, -step.index))
        yield f"{items.step_id(report, longest)}  {units.duration(longest.duration_ns)}, {phrasing.step_limit(asdict(longest))}"


def _operators(report: Report) -> Iterator[str]:
    """Yield the operators with most self CPU time, where no device did any work."""
    top = report.tables["operators"].sort("host_self_ns", "name", descending=[True, False]).head(_TOP_OPERATORS)
    for row in top.to_dicts():
        yield f"operator  {row['name']}: {units.duration(row['host_self_ns'])} of its own, {units.counted(row['count'], 'call')}"
