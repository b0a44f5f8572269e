"""Load all that the active plug-ins add, so that what is broken shows before any work is done."""

from trace_analyzer import registry  # noqa: F401 (it loads the analyses of plug-ins)
from trace_analyzer.advice.rules import rules_of_fixes
from trace_analyzer.catalog.fixes import fixes
from trace_analyzer.catalog.prepare import prepare
from trace_analyzer.plugins import owner, problems, refuse
from trace_analyzer.replay.estimates import change_of


def check() -> tuple[str, ...]:
    """Return a line for each thing of installed plug-ins that is left out. Raises ``UsageError`` for those that were named."""
    prepare()
    rules_of_fixes()
    for fix in fixes().values():
        plugin = owner("fixes.toml", fix.id)
        if plugin is not None and fix.replayed is not None and change_of(fix) is None:
            refuse(plugin, f"fix {fix.id}", f"replayed: {fix.replayed.get('name')!r} is no change of analyze whatif")
    return problems()
