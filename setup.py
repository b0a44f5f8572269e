"""The compiled part of the reader. Everything else is in pyproject.toml."""

from setuptools import Extension, setup

# Where it cannot be compiled, reading takes longer, and that is all.
setup(ext_modules=[Extension("trace_analyzer.ingest._scanner", ["trace_analyzer/ingest/_scanner.pyx"], optional=True)])
