"""Find plug-ins: folders whose files extend the files of the same name in this package (docs/plugins.md).

A plug-in is a package that an entry point of `GROUP` names, or a folder that the caller names. The first call of
`active` settles for this process which plug-ins are active. An error in a plug-in that the caller named raises
``UsageError``; an installed one with an error is left out, and listed by `problems`.
"""

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from msgspec import Struct

from trace_analyzer.errors import TraceAnalyzerError, UsageError

GROUP = "trace_analyzer.plugins"
"""Group of entry points; each names a package."""
ENVIRONMENT = "TRACE_ANALYZER_PLUGINS"
"""Environment variable with folders of plug-ins, separated as in PATH; child processes inherit it."""
NONE = "none"
"""Value in place of a folder that deactivates all plug-ins."""
DATA = ("kernels.toml", "devices.toml", "host_work.toml", "step_marks.toml", "fixes.toml", "causes.toml")
CODE = ("analyses.py", "advice.py")

T = TypeVar("T")


class Plugin(Struct, frozen=True):
    """A plug-in: its folder, and the package name for its modules."""

    name: str
    folder: Path
    package: str
    version: str = ""
    is_named: bool = False
    """Whether the caller named it."""

    def __str__(self) -> str:
        """Return name and version, for people."""
        return f"{self.name} {self.version}".rstrip()

    @property
    def files(self) -> tuple[str, ...]:
        """Return the names of its files that extend this package."""
        return tuple(name for name in (*DATA, *CODE) if (self.folder / name).is_file())


_problems: dict[tuple[str, str], str] = {}
_owners: dict[tuple[str, str], Plugin] = {}
_settled: list[tuple[Plugin, ...]] = []


def add(folders: Sequence[str]) -> None:
    """Add folders of plug-ins for this process and its children; ``none`` alone deactivates all plug-ins.

    Raises ``UsageError`` for a folder that is no plug-in, and after a report was made with other plug-ins.
    """
    if not folders:
        return
    if wrong := next((folder for folder in folders if os.pathsep in folder), None):
        raise UsageError(f"--plugin {wrong}: {os.pathsep!r} in a path separates folders; rename it")
    before = os.environ.get(ENVIRONMENT)
    known = [] if NONE in folders else [folder for folder in _named() if folder != NONE]
    wanted = dict.fromkeys((*known, *(NONE if folder == NONE else os.path.abspath(folder) for folder in folders)))
    if len(wanted) > 1 and NONE in wanted:
        raise UsageError(f"--plugin {NONE} switches all plug-ins off, and others are named")
    os.environ[ENVIRONMENT] = os.pathsep.join(wanted)
    try:
        if _settled and _discovered() != _settled[0]:
            raise UsageError(
                "--plugin: a report was made before with other plug-ins; name them in a process of their own"
            )
        active()
    except BaseException:
        os.environ.pop(ENVIRONMENT) if before is None else os.environ.update({ENVIRONMENT: before})
        raise


def active() -> tuple[Plugin, ...]:
    """Return the active plug-ins: named by the caller, then installed. Raises ``UsageError``."""
    if not _settled:
        _settled.append(_discovered())
    return _settled[0]


def problems() -> tuple[str, ...]:
    """Return a line for each part of an installed plug-in that was left out so far."""
    return tuple(_problems.values())


def owner(file: str, key: str) -> Plugin | None:
    """Return the plug-in whose file added this key; None for the package's own entries."""
    return _owners.get((file, key))


def refuse(plugin: Plugin, where: str, why: str) -> None:
    """Leave out a part of a plug-in and add a line to `problems`.

    Raises ``UsageError`` for a plug-in named by the caller.
    """
    line = f"plug-in {plugin.name} ({plugin.folder}): {where}{': ' if where else ''}{why}"
    if plugin.is_named:
        raise UsageError(line)
    _problems[plugin.name, where] = line


def added(
    file: str, parse: Callable[[Mapping[str, Any]], Sequence[T]], *, key: Callable[[T], str], taken: Iterable[str] = ()
) -> tuple[T, ...]:
    """Return the entries that plug-ins' files of that name add.

    ``parse`` converts a document; ``taken`` are existing keys.

    An unreadable file, or one with a taken key, adds nothing (`refuse`).
    """
    made: list[T] = []
    keys = dict.fromkeys(taken, "of this program itself")
    for plugin in active():
        path = plugin.folder / file
        if not path.is_file():
            continue
        import tomllib

        try:
            items = parse(tomllib.loads(path.read_text("utf-8")))
            names = [key(item) for item in items]
            if double := next((name for number, name in enumerate(names) if name in names[:number]), None):
                raise ValueError(f"{double!r} stands there twice")
            if double := next((name for name in names if name in keys), None):
                raise ValueError(f"{double!r} is there already, {keys[double]}")
        except Exception as error:  # a plug-in's file may cause any error
            refuse(plugin, file, reason(error))
            continue
        made += items
        keys |= dict.fromkeys(names, f"of plug-in {plugin.name}")
        _owners.update({(file, name): plugin for name in names})
    return tuple(made)


@cache
def modules(stem: str) -> tuple[tuple[Plugin, ModuleType], ...]:
    """Import and return the modules of that name, with the plug-ins that have one."""
    made = []
    for plugin in active():
        if (plugin.folder / f"{stem}.py").is_file():
            try:
                made.append((plugin, _imported(plugin, stem)))
            except (Exception, SystemExit) as error:
                refuse(plugin, f"{stem}.py", reason(error))
    return tuple(made)


def reason(error: BaseException) -> str:
    """Return one line for people on an error."""
    text = next(iter(str(error).splitlines()), "")
    if isinstance(error, KeyError):
        return f"{text} is missing"
    if isinstance(error, (TraceAnalyzerError, ValueError, OSError)):
        return text or type(error).__name__
    return f"{type(error).__name__}: {re.sub(r'^[^ ]*[(][)] ', '', text)}"


def _imported(plugin: Plugin, stem: str) -> ModuleType:
    """Import a module of a plug-in; a folder becomes a package that contains its modules."""
    if plugin.is_named and plugin.package not in sys.modules:
        package = ModuleType(plugin.package)
        package.__path__ = [str(plugin.folder)]
        sys.modules[plugin.package] = package
    return import_module(f"{plugin.package}.{stem}")


def _named() -> list[str]:
    return [part for part in os.environ.get(ENVIRONMENT, "").split(os.pathsep) if part]


def _discovered() -> tuple[Plugin, ...]:
    """Return all plug-ins that can be found, the first of each name."""
    if _named() == [NONE]:
        return ()
    found: dict[str, Plugin] = {}
    for plugin in (*map(_of_folder, _named()), *_installed()):
        known = found.setdefault(plugin.name, plugin)
        if known.folder.resolve() != plugin.folder.resolve():
            refuse(plugin, "", f"there is another plug-in {plugin.name}, in {known.folder}")
    return tuple(found.values())


def _of_folder(path: str) -> Plugin:
    folder, files = Path(path).resolve(), ", ".join((*DATA, *CODE))
    package = f"_trace_analyzer_plugin_{re.sub(r'[^0-9A-Za-z]', '_', folder.name)}_{hash(folder) & 0xFFFFFFFF:x}"
    plugin = Plugin(folder.name, folder, package, is_named=True)
    if not folder.is_dir():
        raise UsageError(f"--plugin {path}: is no folder; a plug-in is a folder with one of {files}")
    if not plugin.files:
        raise UsageError(f"--plugin {path}: holds none of {files}")
    return plugin


def _installed() -> Iterator[Plugin]:
    """Yield the plug-ins of entry points, without importing their packages."""
    from importlib.metadata import distributions, entry_points

    # To look for the group's name takes a third of the time of parsing the entry points of all packages.
    if not any(GROUP in (distribution.read_text("entry_points.txt") or "") for distribution in distributions()):
        return
    for entry in entry_points(group=GROUP):
        try:
            spec, why = find_spec(entry.module), f"no module {entry.module}"
        except Exception as error:
            spec, why = None, reason(error)
        places = spec.submodule_search_locations if spec is not None else None
        folder = Path(next(iter(places))) if places else Path(entry.value)
        plugin = Plugin(entry.name, folder, entry.module, entry.dist.version if entry.dist is not None else "")
        if places and plugin.files:
            yield plugin
        elif places:
            refuse(plugin, "", f"holds none of {', '.join((*DATA, *CODE))}")
        else:
            refuse(plugin, "", why if spec is None else f"{entry.module} is no package")
