"""The compiled part: of the reader, and the loops of the analyses. Everything else is in pyproject.toml."""

from setuptools import Extension, setup

# Where they cannot be compiled, reading and analysing take longer, and that is all.
SOURCES = {
    "trace_analyzer.frames._arrow": "trace_analyzer/frames/_arrow.pyx",
    "trace_analyzer.frames._path_loops": "trace_analyzer/frames/_path_loops.py",
    "trace_analyzer.frames._row_loops": "trace_analyzer/frames/_row_loops.py",
    "trace_analyzer.frames._span_loops": "trace_analyzer/frames/_span_loops.py",
    "trace_analyzer.ingest._scanner": "trace_analyzer/ingest/_scanner.pyx",
}
setup(ext_modules=[Extension(name, [source], optional=True) for name, source in SOURCES.items()])
