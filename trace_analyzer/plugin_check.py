"""Load everything that the active plug-ins add, so that errors show before any analysis."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

import polars as pl

from trace_analyzer import registry  # noqa: F401 (it loads the analyses of plug-ins)
from trace_analyzer.advice.rules import rules_of_fixes
from trace_analyzer.catalog import devices, event_names, kernels
from trace_analyzer.catalog.fixes import fixes
from trace_analyzer.plugins import Plugin, owner, problems, refuse
from trace_analyzer.replay.estimates import change_of

T = TypeVar("T")


def check() -> tuple[str, ...]:
    """Return a line for each part of an installed plug-in that is left out.

    Raises ``UsageError`` for a plug-in named by the caller.
    """
    for catalogue in (devices.devices, kernels.rules, event_names.host_work_rules, event_names.step_mark_rules):
        catalogue()
    rules_of_fixes()
    for fix in fixes().values():
        plugin = owner("fixes.toml", fix.id)
        if plugin is not None and fix.replayed is not None and change_of(fix) is None:
            refuse(plugin, f"fix {fix.id}", f"replayed: {fix.replayed.get('name')!r} is no change of analyze whatif")
    return problems()


def wrong_examples() -> tuple[str, ...]:
    """Return a line for each example of a plug-in that its rule misses, and each counterexample that it matches."""
    return (*_wrong_kernels(), *_wrong_host_work(), *_wrong_step_marks(), *_wrong_devices())


def _line(plugin: Plugin, file: str, key: str, example: str, is_counterexample: bool = False) -> str:
    what = "decides its counterexample" if is_counterexample else "does not decide its example"
    return f"plug-in {plugin.name}: {file}: {key} {what} {example!r}"


def _wrong_kernels() -> Iterator[str]:
    for rule in kernels.rules():
        if (plugin := owner("kernels.toml", rule.id)) is None:
            continue
        for kernel, is_example in _cases(rule.examples, rule.counterexamples):
            pair = pl.DataFrame(
                {"name": [kernel.name], "operator": [kernel.operator]}, schema_overrides={"operator": pl.String}
            )
            decided = kernels.kernel_buckets(pair).row(0, named=True)
            if (decided["rule"] != rule.id) if is_example else (decided["bucket"] == rule.bucket):
                yield _line(plugin, "kernels.toml", rule.id, kernel.name, not is_example)


def _wrong_host_work() -> Iterator[str]:
    for rule in event_names.host_work_rules():
        if (plugin := owner("host_work.toml", f"{rule.work}: {rule.pattern}")) is None:
            continue
        for name, is_example in _cases(rule.examples, rule.counterexamples):
            for kind in rule.kinds:
                works = (
                    event_names.host_work(pl.DataFrame({"kind": [kind], "name": [name]})).get_column("work").to_list()
                )
                if (works == [rule.work]) is not is_example:
                    yield _line(plugin, "host_work.toml", rule.work, name, not is_example)


def _wrong_step_marks() -> Iterator[str]:
    for rule in event_names.step_mark_rules():
        if (plugin := owner("step_marks.toml", f"{rule.marks}: {rule.pattern}")) is None:
            continue
        for name, is_example in _cases(rule.examples, rule.counterexamples):
            for kind in rule.kinds:
                marked = (
                    event_names.step_marks(pl.DataFrame({"kind": [kind], "name": [name]}))
                    .select("marks", "source")
                    .rows()
                )
                if (marked == [(rule.marks, rule.source)]) is not is_example:
                    yield _line(plugin, "step_marks.toml", rule.source, name, not is_example)


def _wrong_devices() -> Iterator[str]:
    for device in devices.devices():
        if (plugin := owner("devices.toml", device.name)) is not None:
            for name in device.examples:
                if devices.find_device(name) != device:
                    yield _line(plugin, "devices.toml", device.name, name)


def _cases(examples: Sequence[T], counterexamples: Sequence[T]) -> Iterator[tuple[T, bool]]:
    yield from ((case, True) for case in examples)
    yield from ((case, False) for case in counterexamples)
