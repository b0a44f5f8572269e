"""Inspect this installation: versions, compiled reader, plug-ins, calibrations, and what is slow or missing."""

import json
import os
import platform
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import asdict, replace

from trace_analyzer import errors, plugins, units
from trace_analyzer.catalog.calibration import calibration_folder, read_calibration
from trace_analyzer.installation import DISTRIBUTION, PURPOSES, tool_version, why_slow

if TYPE_CHECKING:
    from trace_analyzer.catalog.event_names import Rule

FORMAT = 1
Status = Literal["ok", "info", "problem"]

_NEEDED = {**dict.fromkeys(("polars", "numpy", "click"), "everything"), **PURPOSES}
_OPTIONAL = {
    "holoviews": "report.plots: pip install 'torch-trace-analyzer[plots]'",
    "torch": "recording (analyze record, profile) and analyze calibrate: pip install torch",
    "mcp": "analyze mcp: pip install 'torch-trace-analyzer[mcp]'",
    "distributed": "analyze ranks --dask: pip install 'torch-trace-analyzer[distributed]'",
    "fsspec": "analyze ranks s3://...: pip install 'torch-trace-analyzer[remote]'",
    "ipython": "%%analyze in notebooks: pip install ipython",
}
HIDDEN = "(left out)"


class Item(Struct, frozen=True):
    """One fact: topic, name, value, status, and what to do about a problem.

    ``is_private`` marks a value or advice that may contain a path of the user or the name of a plug-in.
    """

    topic: str
    name: str
    value: str
    status: Status = "ok"
    advice: str = ""
    is_private: bool = False


def items() -> tuple[Item, ...]:
    """Return all facts, by topic. Raises ``UsageError`` for plug-ins that the caller named and that do not load."""
    return tuple(item for topic in (_versions, _reading, _plugins, _calibrations, _environment) for item in topic())


def redacted(facts: tuple[Item, ...]) -> tuple[Item, ...]:
    """Return the facts without the user's paths and the names of plug-ins."""
    return tuple(
        replace(
            item,
            name=item.topic if item.topic == "plug-ins" else item.name,
            value=HIDDEN,
            advice=item.advice and HIDDEN,
        )
        if item.is_private
        else item
        for item in facts
    )


def to_json(facts: tuple[Item, ...]) -> str:
    """Return the facts as JSON text that ends in a newline."""
    rows = [{key: value for key, value in asdict(item).items() if key != "is_private"} for item in facts]
    problems = sum(item.status == "problem" for item in facts)
    return json.dumps({"format": FORMAT, "problems": problems, "items": rows}, indent=2) + "\n"


def to_text(facts: tuple[Item, ...]) -> str:
    """Return the facts as lines by topic, each problem with what to do."""
    lines: list[str] = []
    width = max(len(item.name) for item in facts)
    for number, item in enumerate(facts):
        if number == 0 or item.topic != facts[number - 1].topic:
            lines += ["", units.capitalized(item.topic)]
        mark = {"ok": " ", "info": "-", "problem": "!"}[item.status]
        lines.append(f"{mark} {units.visible(item.name):<{width}}  {units.visible(item.value)}")
        if item.advice:
            lines.append(f"  {'':<{width}}  {units.visible(item.advice)}")
    problems = sum(item.status == "problem" for item in facts)
    lines += ["", f"{units.counted(problems, 'problem')}." if problems else "No problems."]
    return "\n".join(lines[1:]) + "\n"


def _versions() -> Iterator[Item]:
    topic = "versions"
    yield Item(topic, DISTRIBUTION, tool_version())
    build = " free-threaded" if not getattr(sys, "_is_gil_enabled", lambda: True)() else ""
    yield Item(
        topic,
        "python",
        f"{platform.python_version()}{build} ({platform.python_implementation()}), {platform.system()} {platform.machine()}",
    )
    for name, purpose in _NEEDED.items():
        version = _version(name)
        least = _least_version(name)
        if version is None:
            yield Item(topic, name, "not installed", "problem", f"{purpose} needs it: pip install {name}")
        elif least and _numbers(version) < _numbers(least):
            yield Item(topic, name, version, "problem", f"older than {least}: pip install -U {name}")
        else:
            yield Item(topic, name, version)
    for name, purpose in _OPTIONAL.items():
        version = _version(name)
        yield Item(
            topic, name, version or "not installed", "ok" if version else "info", "" if version else f"for {purpose}"
        )


def _version(name: str) -> str | None:
    """Return a package's version from its metadata, without importing it."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _least_version(name: str) -> str:
    """Return the minimum version that this package's metadata requires; "" where none is stated."""
    try:
        needed = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return ""
    own = (
        re.match(rf"{re.escape(name)}\b[^;]*>=([0-9.]+)", line, re.IGNORECASE)
        for line in needed
        if "extra ==" not in line
    )
    return next((match[1] for match in own if match), "")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", re.split(r"[a-z+]", version)[0])))


def _reading() -> Iterator[Item]:
    reason = why_slow()
    if reason is None:
        yield Item("speed", "compiled reader", "yes")
    else:
        yield Item("speed", "compiled reader", "no", "problem", reason, is_private=True)
    threads = os.environ.get("POLARS_MAX_THREADS")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if threads is not None and threads.isdecimal() and int(threads) < cores:
        advice = "unset it, and large traces are analysed by all cores"
        yield Item(
            "speed", "threads", f"POLARS_MAX_THREADS={threads} of {units.counted(cores, 'core')}", "info", advice
        )
    else:
        yield Item("speed", "threads", units.counted(cores, "core"))


def _plugins() -> Iterator[Item]:
    topic, problems = "plug-ins", check_plugins()
    for plugin in plugins.active():
        way = "named" if plugin.is_named else "installed"
        value = f"{plugin.version or 'no version'}, {way}: {', '.join(plugin.files)}"
        yield Item(topic, plugin.name, value, advice=str(plugin.folder), is_private=True)
    if not plugins.active():
        yield Item(topic, "active", "none", "info", "none named, none installed")
    for line in problems:
        yield Item(topic, "left out", line, "problem", "mend it, or remove it", is_private=True)
    for line in _wrong_examples():
        yield Item(topic, "example", line, "problem", "mend the rule or the example", is_private=True)


def check_plugins() -> tuple[str, ...]:
    """Load all that the active plug-ins add, and return a line for each part of an installed one that is left out.

    Raises ``UsageError`` for a plug-in named by the caller.
    """
    from trace_analyzer import registry  # noqa: F401 (it loads the analyses of plug-ins)
    from trace_analyzer.advice.rules import rules_of_fixes
    from trace_analyzer.catalog import devices, event_names, fixes, kernels
    from trace_analyzer.replay.estimates import change_of

    for catalogue in (devices.devices, kernels.rules, event_names.host_work_rules, event_names.step_mark_rules):
        catalogue()
    rules_of_fixes()
    for fix in fixes.fixes().values():
        plugin = plugins.owner("fixes.toml", fix.id)
        if plugin is not None and fix.replayed is not None and change_of(fix) is None:
            why = f"replayed: {fix.replayed.get('name')!r} is no change of analyze whatif"
            plugins.refuse(plugin, f"fix {fix.id}", why)
    return plugins.problems()


def _wrong_examples() -> Iterator[str]:
    """Yield a line for each example of a plug-in that its rule misses, and each counterexample that it decides."""
    import polars as pl

    from trace_analyzer.catalog import devices, event_names, kernels

    def decided(kernel: kernels.Kernel) -> Mapping[str, str]:
        schema = {"name": pl.String, "operator": pl.String}
        frame = pl.DataFrame([(kernel.name, kernel.operator)], schema, orient="row")
        return kernels.kernel_buckets(frame).row(0, named=True)

    def wrong(file: str, key: str, name: str, missed: Iterable[str], taken: Iterable[str] = ()) -> Iterator[str]:
        if (plugin := plugins.owner(file, key)) is not None:
            for what, cases in (("does not decide its example", missed), ("decides its counterexample", taken)):
                yield from (f"plug-in {plugin.name}: {file}: {name} {what} {case!r}" for case in cases)

    def of_events(
        file: str, rule: "Rule", name: str, rules: Callable[[pl.DataFrame], pl.DataFrame], *result: str
    ) -> Iterator[str]:
        def decided_kinds(case: str) -> int:
            """Return for how many kinds of events a name has the result; the table lacks names without any."""
            events = pl.DataFrame({"kind": rule.kinds, "name": [case] * len(rule.kinds)})
            return sum(row[2:] == result for row in rules(events).iter_rows())

        missed = (case for case in rule.examples if decided_kinds(case) < len(rule.kinds))
        taken = (case for case in rule.counterexamples if decided_kinds(case))
        return wrong(file, f"{result[0]}: {rule.pattern}", name, missed, taken)

    for rule in kernels.rules():
        missed = (case.name for case in rule.examples if decided(case)["rule"] != rule.id)
        taken = (case.name for case in rule.counterexamples if decided(case)["bucket"] == rule.bucket)
        yield from wrong("kernels.toml", rule.id, rule.id, missed, taken)
    for work in event_names.host_work_rules():
        yield from of_events("host_work.toml", work, work.work, event_names.host_work, work.work)
    for mark in event_names.step_mark_rules():
        yield from of_events("step_marks.toml", mark, mark.source, event_names.step_marks, mark.marks, mark.source)
    for device in devices.devices():
        missed = (case for case in device.examples if devices.find_device(case) != device)
        yield from wrong("devices.toml", device.name, device.name, missed)


def _calibrations() -> Iterator[Item]:
    topic = "calibrations"
    try:
        paths = sorted(calibration_folder().glob("*.json"))
    except (OSError, RuntimeError):
        paths = []
    for path in paths:
        try:
            known = read_calibration(path)
        except errors.UsageError as error:
            yield Item(topic, path.name, "damaged", "problem", str(error), is_private=True)
        else:
            doubts = f"; {units.counted(len(known.doubts), 'doubt')}" if known.doubts else ""
            yield Item(topic, known.name or path.name, f"{known.kind}{', quick' if known.quick else ''}{doubts}")
    if not paths:
        advice = "reports compare with datasheets; analyze calibrate measures this machine's device"
        yield Item(topic, "none", _folder(calibration_folder), "info", advice, is_private=True)


def _environment() -> Iterator[Item]:
    names = sorted(
        name for name in os.environ if name.startswith(("BOKEH_", "HOLOVIEWS_", "POLARS_", "TRACE_ANALYZER_"))
    )
    if names:
        yield Item("environment", "set", ", ".join(names), "info", "they change what libraries and this program do")


def _folder(which: Callable[[], Path]) -> str:
    try:
        return str(which())
    except RuntimeError:  # the user has no home folder
        return "(no home)"
