"""Make the parts of a report from the analyses' tables."""

from trace_analyzer.report_parts import device_figures, notes, rows, trace_facts

VALUES = (*device_figures.VALUES, *trace_facts.VALUES, *notes.VALUES, *rows.VALUES)
