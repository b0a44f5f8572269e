"""List all declared analyses: those of single questions, and the replay, which uses them."""

from collections.abc import Mapping
from dataclasses import fields

from trace_analyzer.added_analyses import added_analyses
from trace_analyzer.analyses import registry
from trace_analyzer.analyses.registry import TRACE_TABLES
from trace_analyzer.analysis import Analysis, Declaration
from trace_analyzer.replay import critical_path, estimates
from trace_analyzer.report import DeviceReport, Report
from trace_analyzer.sections import Section

OWN_ANALYSES: tuple[Declaration, ...] = (
    *registry.ANALYSES,
    *estimates.ANALYSES,
    *critical_path.ANALYSES,
)
"""Analyses of this package."""

_GIVEN = ("trace", "options", "matched_devices", "device_models", "capture_executions")
_PLACES = (
    *(field.name for field in fields(Report)),
    *(f"devices[].{field.name}" for field in fields(DeviceReport)),
)

ADDED_ANALYSES = added_analyses(OWN_ANALYSES, (*_GIVEN, *(table.name for table in TRACE_TABLES)), _PLACES)
"""Analyses of plug-ins."""

ANALYSES: tuple[Declaration, ...] = (*OWN_ANALYSES, *ADDED_ANALYSES)
"""Every table and value of the analyses, in the order of the reference of their tables."""

TABLES = (*(declared.table for declared in ANALYSES if isinstance(declared, Analysis)), *TRACE_TABLES)
"""The tables of a report, in the order of the reference."""

SECTIONS: Mapping[str, Section] = {
    section.key: section for declared in OWN_ANALYSES if isinstance(declared, Analysis) for section in declared.placed
}
"""Sections with a fixed place in renderers, by key."""

__all__ = ["ADDED_ANALYSES", "ANALYSES", "OWN_ANALYSES", "SECTIONS", "TABLES", "TRACE_TABLES"]
