"""Load the catalogues ahead of their first use."""

from trace_analyzer.catalog.arithmetic import arithmetic_of_name
from trace_analyzer.catalog.article import article
from trace_analyzer.catalog.code import code_of_name
from trace_analyzer.catalog.copy_directions import direction_rules
from trace_analyzer.catalog.devices import devices
from trace_analyzer.catalog.fixes import fixes
from trace_analyzer.catalog.fusions import fusions
from trace_analyzer.catalog.host_work import work_of_name
from trace_analyzer.catalog.kernels import rules
from trace_analyzer.catalog.step_marks import marks_of_name


def prepare() -> None:
    """Read the catalogues that every report needs, and build the expressions of some rules."""
    for catalogue in (devices, fixes, fusions, direction_rules, article, rules):
        catalogue()
    for of_name in (work_of_name, code_of_name, marks_of_name, arithmetic_of_name):
        of_name()
