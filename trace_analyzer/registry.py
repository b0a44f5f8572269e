"""List all declared analyses: those of single questions, and the replay, which rests on them."""

from collections.abc import Mapping

from trace_analyzer.analyses import registry
from trace_analyzer.analyses.registry import TRACE_TABLES
from trace_analyzer.analysis import Analysis, Declaration
from trace_analyzer.replay import estimates
from trace_analyzer.sections import Section

ANALYSES: tuple[Declaration, ...] = (*registry.ANALYSES, *estimates.ANALYSES)
"""Every table and value of the analyses, in the order of the reference of their tables."""

TABLES = (*(declared.table for declared in ANALYSES if isinstance(declared, Analysis)), *TRACE_TABLES)
"""The tables of a report, in the order of the reference."""

SECTIONS: Mapping[str, Section] = {
    section.key: section for declared in ANALYSES if isinstance(declared, Analysis) for section in declared.placed
}
"""The sections that renderers place themselves, by key."""

__all__ = ["ANALYSES", "SECTIONS", "TABLES", "TRACE_TABLES"]
