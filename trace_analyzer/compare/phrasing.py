"""Describe the results of a comparison in sentences."""

from collections.abc import Mapping

from trace_analyzer.catalog.devices import find_device
from trace_analyzer.catalog.kernels import group_label, line_label, line_phrase
from trace_analyzer.compare.comparison import Bar, Comparison, Line, Side
from trace_analyzer.compare.facts import MATMULS_IN, STATES
from trace_analyzer.compare.judgement import most_used, side_without_operators
from trace_analyzer.compare.profiles import DEVICE_SEPARATOR
from trace_analyzer.units import NS_PER_MS, NS_PER_S, NS_PER_US, counted, duration, number, percent
from trace_analyzer.vocabulary import limit_label

CHANCE = "within chance"
"""Remark on a difference that is not significant."""
_NAMED = 3
"""Number of lines that the headline names."""
SAME_FLOP = 0.01
"""Smallest relative difference of FLOP per step that is mentioned."""
_STATE_CHANGE = 0.1
"""Least change of the share of compiled or replayed kernels that is named."""
_FACTOR = 1.5
"""Least factor that is written as one."""
_SHARE = 0.02
"""Least share of the largest line's difference for a line in the headline."""


def headline(result: Comparison) -> str:
    """Write one sentence: both times, the speed-up where both have a verdict, where it is, and the present limit."""
    before, after = result.both
    scale, name = scale_of(max(before.step_ns, after.step_ns))
    one, other = (scaled(side.step_ns, scale) for side in (before, after))
    where = "; ".join(f"{line_phrase(bar.name)} {signed(bar.difference_ns, scale)}" for bar in named_bars(result))
    verdict = f"; {'still' if limit(after) == limit(before) else 'now'} {limit(after)}" if after.verdict else ""
    if result.whole and is_undivided(result):
        text = f"Whole recordings, {one} → {other} {name}, if both did the same work"
    else:
        text = f"{other} {name} instead of {one}{a_step(result)}"
        if before.verdict and after.verdict:
            text += f", {change(before.step_ns, after.step_ns)}"
    text += ", no more than chance" if result.significant is False and result.difference_ns else ""
    text += (f": {where}" if where else "") + verdict
    return f"{text}. Not known to be the same program." if result.same_program is False else f"{text}."


def named_bars(result: Comparison) -> list[Bar]:
    """Return the bars of causes and buckets for the headline, those of the table; without bars that may be chance.

    Where the step's difference is within chance, there are none: of many bars, some always differ by more (Fisher's
    protected tests).
    """
    bars = result.waterfall["bucket"]
    if not bars or result.significant is False:
        return []
    floor = max(result.floor_ns, _SHARE * abs(bars[0].difference_ns))
    return [bar for bar in bars if abs(bar.difference_ns) > floor and bar.significant is not False][:_NAMED]


def is_undivided(result: Comparison) -> bool:
    """Return whether recordings count as one piece of work each."""
    return all(side.unit_of_work == 1 for side in result.sides)


def a_step(result: Comparison) -> str:
    """Return what a time is of: `` a step``, `` a unit of work``, or nothing for a whole recording."""
    if not is_undivided(result):
        return " a unit of work"
    return "" if result.whole else " a step"


def line_name(line: Line) -> str:
    """Return the label of a line; operators, modules and kernels keep their names."""
    if line.level == "group":
        return group_label(line.name)
    return line_label(line.name) if line.name == line.category else line.name


def limit(side: Side) -> str:
    """Return the limit of a side in the words of its verdict."""
    if side.verdict is None:
        return "no verdict"
    name = limit_label(side.verdict, side.cause)
    return name[:1].lower() + name[1:]


def notes(result: Comparison) -> tuple[str, ...]:
    """Write notes that readers need for the figures."""
    kinds = (
        _hardware, _changed, _inputs, _program, _sameness, _reality, _adjusted, _unit, _recordings, _once, _device_gaps,
        _devices, _ranks,
    )  # fmt: skip
    return tuple(text for text in (*(kind(result) for kind in kinds), *_rest(result)) if text)


def _reality(result: Comparison) -> str:
    before, after = result.both
    ranks = before.recordings if result.ranks else 1
    steps = f"{counted(before.steps // ranks, 'step' if is_undivided(result) else 'unit')} against {after.steps // (after.recordings if result.ranks else 1)}"
    if result.significant is None:
        few = "One recording a side is" if result.whole else f"{steps}:"
        return (
            f"{few} too few to tell a difference from chance; record three steps or more, or several recordings a side."
        )
    more = f" {result.needed_steps:,} a side would show this one, were it real." if result.needed_steps else ""
    if result.interval_ns is None:
        return f"{steps} cannot tell: they differ among themselves by more than so few show.{more}"
    without = "" if result.adjustment is None else f" of the step without {line_phrase(result.adjustment.left_out)}"
    shown = (
        f" With this many, a real difference of {duration(result.detectable_ns)}{without} is found 4 times in 5."
        if result.detectable_ns is not None
        else ""
    )
    units = f"{before.recordings} recordings against {after.recordings}" if result.are_recordings_units else steps
    if not result.significant:
        return f"No difference is shown by {units}: as much comes by chance.{shown}{more}"
    if result.are_recordings_units:
        return f"The difference is more than chance between recordings ({units}).{shown}"
    return (
        f"The recordings differ by more than chance between their steps ({steps}); that the program does, only several recordings"
        f" of each side can show.{shown}"
    )


def _adjusted(result: Comparison) -> str:
    """Write which line the test leaves out, and the difference of the remaining step."""
    item = result.adjustment
    if item is None:
        return ""
    scale, unit = scale_of(result.both[0].step_ns)
    low, high = (signed(end, scale) for end in item.interval_ns)
    return (
        f"{line_label(item.left_out)} varies from {scaled(item.least_ns, scale)} to {scaled(item.most_ns, scale)} {unit}{a_step(result)}, and so few"
        f" observations show no difference of it between the sides. If that is chance, the rest of the step changes by {signed(item.difference_ns, scale)} {unit}"
        f" ({low} to {high})."
    )


def _program(result: Comparison) -> str:
    if result.likeness is None:
        return ""
    flop = None if result.whole else result.likeness.flop_ratio  # `_sameness` has it
    if result.same_work and (flop is None or abs(flop - 1) <= SAME_FLOP):
        return ""
    if result.same_work:
        return (
            f"Most calls are the same, but a step asks for {number(flop)} times the FLOP of matmuls and convolutions."
        )
    work = "" if flop is None else f" A step asks for {number(flop)} times the FLOP of matmuls and convolutions."
    if result.same_program:
        return f"The same program with other work: calls differ in their shapes.{work}"
    return f"The two are not known to be one program (likeness of calls {result.likeness.calls:.2f}).{work}"


def _sameness(result: Comparison) -> str:
    """Write what shows that two whole recordings did the same work."""
    if not result.whole or result.likeness is None or result.matched_ratio is None:
        return ""
    alike, flop = result.likeness, result.likeness.flop_ratio
    is_same = flop is not None and abs(flop - 1) <= SAME_FLOP
    times = "as many" if is_same else f"{number(flop)} times the"
    work = "FLOP not known" if flop is None else f"{times} FLOP of matmuls and convolutions"
    units = " --units N,M gives the units of work of each." if is_undivided(result) else ""
    return (
        f"How alike their work is: {percent(result.matched_ratio.call)} of kernel time in equal calls (operator and shapes),"
        f" {alike.equal_operators} of {alike.operators} operators equally often{a_step(result)}, {work}.{units}"
    )


def _changed(result: Comparison) -> str:
    """Write versions, the type of numbers of most time, and shares of compiled and replayed kernels, where they changed."""
    before, after = (side.facts for side in result.sides)
    texts = [
        f"{name} {version} → {after.versions[name]}"
        for name, version in before.versions.items()
        if after.versions.get(name, version) != version
    ]
    texts += _changed_kernels(before.ratios, after.ratios) if before.shares and after.shares else []
    return f"Changed: {'; '.join(texts)}." if texts else ""


def _changed_kernels(before: Mapping[str, float], after: Mapping[str, float]) -> list[str]:
    texts = _changed_type(before, after)
    for name in STATES:
        old, new = (shares.get(name, 0.0) for shares in (before, after))
        if abs(new - old) >= _STATE_CHANGE:
            texts.append(f"{name} kernels {percent(old)} → {percent(new)} of kernel time")
    return texts


def _changed_type(before: Mapping[str, float], after: Mapping[str, float]) -> list[str]:
    for start, of_what in ((MATMULS_IN, "the time of matmuls, convolutions and attention"), ("", "kernel time")):
        (old, had), (new, has) = (most_used(shares, start) for shares in (before, after))
        if old and new:
            return [f"{old} ({percent(had)} of {of_what}) became {new} ({percent(has)})"] if old != new else []
    return []


def _once(result: Comparison) -> str:
    """Write how one-time work differs, which longer runs spread over more steps."""
    before, after = (side.once_ns / side.steps for side in result.sides)
    if abs(after - before) <= result.floor_ns:
        return ""
    scale, unit = scale_of(max(side.step_ns for side in result.both))
    rest = (result.difference_ns or 0.0) - (after - before)
    return (
        f"One-time work (compilation, loading of kernels, graph capture, allocation) takes {signed(after - before, scale)} {unit} of it; all else"
        f" {signed(rest, scale)}."
    )


def _unit(result: Comparison) -> str:
    unit = result.unit_of_work
    if unit == 1:
        return ""
    more, less = ("after", "before") if unit > 1 else ("before", "after")
    return f"A step of {more} makes {abs(unit)} times the calls of one of {less}, so it is taken as {abs(unit)} units of work."


def _recordings(result: Comparison) -> str:
    """Write that both sides share recordings, which cannot show a difference."""
    before, after = (set(side.recordings) for side in result.sides)
    shared = len(before & after)
    if before == after:
        return f"Both sides are the same recording{'s' if shared > 1 else ''}."
    return f"On both sides {'is' if shared == 1 else 'are'} {counted(shared, 'recording')}." if shared else ""


def _hardware(result: Comparison) -> str:
    """Write that the sides ran on devices of different names, or one side on several."""
    names = [side.facts.device_name for side in result.sides]
    if None in names or (names[0] == names[1] and DEVICE_SEPARATOR not in str(names[0])):
        return ""
    return f"Before ran on {names[0]}, after on {names[1]}: the difference is of the device as well as of the program."


def _device_gaps(result: Comparison) -> str:
    """Write how to read gaps between kernels on devices of two vendors.

    AMD's records have nearly no gaps, NVIDIA's 1 to 2 us per kernel: a gap of one vendor is inside the kernels of the
    other.
    """
    known = [find_device(side.facts.device_name) for side in result.sides]
    gaps = next((bar for bar in result.waterfall["cause"] if bar.name == "device-gap"), None)
    vendors = [device.vendor for device in known if device is not None]
    if gaps is None or len(set(vendors)) < 2 or abs(gaps.difference_ns) <= result.floor_ns:
        return ""
    return (
        f"Records of {vendors[0]} and {vendors[1]} GPUs do not cut alike between a kernel and the gap after it: read the line"
        f" {line_label(gaps.name)} together with those of kernels."
    )


def _ranks(result: Comparison) -> str:
    """Write whether one of a job's ranks changed its own work unlike the others, and how communication changed."""
    if not result.ranks:
        return ""
    scale, unit = scale_of(max(side.step_ns for side in result.both))
    usual, first, sent = result.of_ranks
    alike = abs(first.own_work_ns - usual) <= result.floor_ns
    role = f" of role {first.role}" if len({item.role for item in result.ranks}) > 1 else ""
    one = "" if alike else f", and by {signed(first.own_work_ns, scale)} {unit} on rank {first.rank}"
    return (
        f"Of {counted(len(result.ranks), 'rank')} that both jobs have, own work changes by {signed(usual, scale)} {unit} a step in the median{role}"
        f"{one}; communication that holds the device by {signed(sent, scale)} {unit} in the mean. Ranks of a job share their steps: an observation"
        " is a step of all."
    )


def _devices(result: Comparison) -> str:
    """Write which of several devices is compared, and how the steps of the others changed."""
    if not result.devices:
        return ""
    before, after = (side.facts.device or "" for side in result.sides)
    scale, unit = scale_of(max(side.step_ns for side in result.both))
    changes = [
        (item.after_ns - item.before_ns, item.device)
        for item in result.devices
        if not item.is_compared and item.before_ns is not None and item.after_ns is not None
    ]
    counts = sorted({len(side.facts.devices) or 1 for side in result.sides})
    text = (
        f"Device {after} is compared"
        if before == after
        else f"Device {before} of before is compared with device {after} of after"
    )
    text += f", of {' and '.join(map(str, counts))}; --device N picks another."
    if before != after:
        text += " Their steps may differ for that alone."
    if changes:
        least, most = min(changes), max(changes)
        text += f" Steps of the others change by {signed(least[0], scale)} {unit} (device {least[1]})"
        text += f" to {signed(most[0], scale)} {unit} (device {most[1]})." if len(changes) > 1 else "."
    return text


def _inputs(result: Comparison) -> str:
    sizes = [
        f"{item.before} became {item.after} (in {counted(item.calls, 'kind')} of calls)"
        for item in result.input_changes
    ]
    return f"Sizes of inputs changed: {', '.join(sizes[:3])}." if sizes else ""


def _rest(result: Comparison) -> list[str]:
    texts = []
    before, after = result.sides
    bare = side_without_operators(before, after)
    if "parts" in (before.detail, after.detail):
        texts.append(
            "A saved report keeps no calls: idle causes, bounds and copies are compared, operators and modules are not, and whether it is one program is not known."
        )
    elif not all(side.facts.shapes_known or name == bare for name, side in (("before", before), ("after", after))):
        texts.append(
            "Shapes of inputs were not recorded on both sides (record_shapes=True), so calls are matched without them."
        )
    if bare and result.same_work is False:
        texts.append(
            f"Most kernels of {bare} have no operator, like those that a graph replays: --capture FILE takes it from a trace in which they"
            " were launched one by one."
        )
    for name, side in (("before", before), ("after", after)):
        if side.facts.causes_withheld:
            texts.append(f"Causes of idle time are not known of {name}.")
        if side.is_cold:
            texts.append(f"One-time work is most of {name}: a cold start.")
    return texts


def change(before: float, after: float) -> str:
    """Write how much less or more time it is, as a share; from a factor of 1.5 on, as a factor."""
    ratio = after / before if before else 1.0
    if abs(ratio - 1) < 0.0005:
        return "as fast"
    if ratio >= _FACTOR:
        return f"{number(ratio)} times as long"
    if ratio and 1 / ratio >= _FACTOR:
        return f"{number(1 / ratio)} times as fast"
    return f"{percent(abs(ratio - 1))} {'less' if ratio < 1 else 'more'} time"


def scale_of(ns: float) -> tuple[float, str]:
    """Return the common unit of all times in a sentence."""
    for scale, name in ((10 * NS_PER_S, "s"), (NS_PER_MS / 10, "ms"), (NS_PER_US / 10, "us")):
        if abs(ns) >= scale:
            return {"s": float(NS_PER_S), "ms": float(NS_PER_MS), "us": float(NS_PER_US)}[name], name
    return 1.0, "ns"


def scaled(ns: float, scale: float) -> str:
    """Write a time in that unit, with three digits."""
    value = ns / scale
    digits = 0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    return f"{value:,.{digits}f}"


def signed(ns: float, scale: float) -> str:
    """Write a difference in that unit, with its sign."""
    value = ns / scale
    digits = 0 if abs(value) >= 9.95 else 1 if abs(value) >= 0.95 else 2
    return f"{value:+,.{digits}f}" if is_shown(ns, scale) else "0.00"


def is_shown(ns: float, scale: float) -> bool:
    """Return whether a difference is above 0 at the precision of `signed`."""
    return abs(ns / scale) >= 0.005
