"""Make the parts of a report from the analyses' tables."""

from trace_analyzer.report_parts import devices, facts, notes, rows

VALUES = (*devices.VALUES, *facts.VALUES, *notes.VALUES, *rows.VALUES)
