"""The compiled part: of the reader, and the loops of the analyses. Everything else is in pyproject.toml."""

import sysconfig

from setuptools import Extension, setup

# Where they cannot be compiled, reading and analysing take longer, and that is all.
SOURCES = {
    "trace_analyzer.frames._arrow": "trace_analyzer/frames/_arrow.pyx",
    "trace_analyzer.frames._path_loops": "trace_analyzer/frames/_path_loops.py",
    "trace_analyzer.frames._row_loops": "trace_analyzer/frames/_row_loops.py",
    "trace_analyzer.frames._span_loops": "trace_analyzer/frames/_span_loops.py",
    "trace_analyzer.ingest._scanner": "trace_analyzer/ingest/_scanner.pyx",
    "trace_analyzer.allocator._pickle_reader": "trace_analyzer/allocator/_pickle_reader.py",
}
# One wheel serves CPython 3.11 and later. Free-threaded builds have no limited API.
LIMITED = not sysconfig.get_config_var("Py_GIL_DISABLED")
MACROS = [("Py_LIMITED_API", "0x030B0000")] if LIMITED else []

setup(
    ext_modules=[
        Extension(name, [source], define_macros=MACROS, py_limited_api=LIMITED, optional=True)
        for name, source in SOURCES.items()
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if LIMITED else {},
)
