"""Find plug-ins: folders whose files extend the files of the same name in this package (docs/plugins.md).

A plug-in is a package that an entry point of `GROUP` names, a folder in the user's folder of plug-ins, or a folder that
the caller names. The first call of `active` settles for this process which plug-ins are active. An error in a plug-in
that the caller named raises ``UsageError``; an installed one with an error is left out, and listed by `problems`.
"""

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from trace_analyzer.errors import TraceAnalyzerError, UsageError
from trace_analyzer.user_folders import config_folder

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "trace_analyzer.plugins"
"""Group of entry points; each names a package."""
ENVIRONMENT = "TRACE_ANALYZER_PLUGINS"
"""Environment variable with folders of plug-ins, separated as in PATH; child processes inherit it."""
NONE = "none"
"""Value in place of a folder that deactivates all plug-ins."""
DATA = ("kernels.toml", "devices.toml", "host_work.toml", "step_marks.toml", "fixes.toml", "causes.toml")
CODE = ("analyses.py", "advice.py")

Origin = Literal["named", "folder", "installed"]
T = TypeVar("T")


@dataclass(frozen=True)
class Plugin:
    """Hold a plug-in: its folder, and the package name for its modules."""

    name: str
    folder: Path
    origin: Origin
    package: str
    version: str = ""

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
    for folder in folders:
        if os.pathsep in folder:
            raise UsageError(f"--plugin {folder}: {os.pathsep!r} in a path separates folders; rename it")
    known = [] if NONE in folders else [folder for folder in _named() if folder != NONE]
    before, wanted = os.environ.get(ENVIRONMENT), list(dict.fromkeys((*known, *map(_absolute, folders))))
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
    """Return the active plug-ins: named by the caller, in the user's folder, installed. Raises ``UsageError``."""
    if not _settled:
        _settled.append(_discovered())
    return _settled[0]


def is_asked_for() -> bool:
    """Return whether the caller named plug-ins."""
    return any(plugin.origin == "named" for plugin in active())


def problems() -> tuple[str, ...]:
    """Return a line for each part of an installed plug-in that was left out so far."""
    return tuple(_problems.values())


def owner(file: str, key: str) -> Plugin | None:
    """Return the plug-in whose file added this key; None for the package's own entries."""
    return _owners.get((file, key))


def fingerprint() -> str:
    """Return names, versions, and sizes and times of files of the active plug-ins, as part of cache keys."""
    files = ((plugin, path) for plugin in active() for path in sorted(plugin.folder.rglob("*")))
    stats = ((plugin, path, path.stat()) for plugin, path in files if path.suffix in (".toml", ".py"))
    return " ".join(f"{plugin} {path.name} {stat.st_size} {stat.st_mtime_ns}" for plugin, path, stat in stats)


def refuse(plugin: Plugin, where: str, why: str) -> None:
    """Leave out a part of a plug-in and add a line to `problems`.

    Raises ``UsageError`` for a plug-in named by the caller.
    """
    line = f"plug-in {plugin.name} ({plugin.folder}): {where}{': ' if where else ''}{why}"
    if plugin.origin == "named":
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
    if plugin.origin != "installed" and plugin.package not in sys.modules:
        package = ModuleType(plugin.package)
        package.__path__ = [str(plugin.folder)]
        sys.modules[plugin.package] = package
    return import_module(f"{plugin.package}.{stem}")


def _absolute(folder: str) -> str:
    return folder if folder == NONE else os.path.abspath(folder)


def _named() -> list[str]:
    return [part for part in os.environ.get(ENVIRONMENT, "").split(os.pathsep) if part]


def _discovered() -> tuple[Plugin, ...]:
    """Return all plug-ins that can be found, the first of each name."""
    named = _named()
    if named == [NONE]:
        return ()
    plugins: dict[str, Plugin] = {}
    for plugin in (*map(_of_named, named), *_of_user(), *_installed()):
        known = plugins.setdefault(plugin.name, plugin)
        if known.folder.resolve() != plugin.folder.resolve():
            refuse(plugin, "", f"there is another plug-in {plugin.name}, in {known.folder}")
    return tuple(plugins.values())


def _of_named(path: str) -> Plugin:
    plugin = _of_folder(Path(path).resolve(), "named")
    if not plugin.folder.is_dir():
        raise UsageError(
            f"--plugin {path}: is no folder; a plug-in is a folder with one of {', '.join((*DATA, *CODE))}"
        )
    if not plugin.files:
        raise UsageError(f"--plugin {path}: holds none of {', '.join((*DATA, *CODE))}")
    return plugin


def _of_user() -> list[Plugin]:
    try:
        folders = sorted(path for path in (config_folder() / "plugins").iterdir() if path.name[0] not in "._")
        plugins = [_of_folder(folder, "folder") for folder in folders if folder.is_dir()]
    except (OSError, RuntimeError):  # the folder, or the home folder, does not exist
        return []
    return [plugin for plugin in plugins if _is_plugin(plugin)]


def _installed() -> list[Plugin]:
    from importlib.metadata import distributions, entry_points

    # To look for the group's name takes a third of the time of parsing the entry points of all packages.
    if not any(GROUP in (distribution.read_text("entry_points.txt") or "") for distribution in distributions()):
        return []
    plugins = [_of_entry_point(entry) for entry in entry_points(group=GROUP)]
    return [plugin for plugin in plugins if plugin is not None and _is_plugin(plugin)]


def _of_folder(folder: Path, origin: Origin) -> Plugin:
    package = f"_trace_analyzer_plugin_{re.sub(r'[^0-9A-Za-z]', '_', folder.name)}_{hash(folder) & 0xFFFFFFFF:x}"
    return Plugin(folder.name, folder, origin, package)


def _of_entry_point(entry: "EntryPoint") -> Plugin | None:
    """Return the plug-in of an entry point without importing its package."""
    version = entry.dist.version if entry.dist is not None else ""
    try:
        spec = find_spec(entry.module)
    except Exception as error:
        spec, why = None, reason(error)
    else:
        why = f"no module {entry.module}" if spec is None else f"{entry.module} is no package"
    if spec is None or not spec.submodule_search_locations:
        refuse(Plugin(entry.name, Path(entry.value), "installed", entry.module, version), "", why)
        return None
    folder = Path(next(iter(spec.submodule_search_locations)))
    return Plugin(entry.name, folder, "installed", entry.module, version)


def _is_plugin(plugin: Plugin) -> bool:
    if not plugin.files:
        refuse(plugin, "", f"holds none of {', '.join((*DATA, *CODE))}")
    return bool(plugin.files)


__all__ = [
    "CODE", "DATA", "ENVIRONMENT", "GROUP", "NONE", "Plugin", "active", "add", "added", "fingerprint", "is_asked_for", "modules", "owner",
    "problems", "reason", "refuse",
]  # fmt: skip
