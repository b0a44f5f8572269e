"""Define the exceptions of this package.

::

    TraceAnalyzerError          anything this package refuses to do
    ├── UsageError              a wrong option, argument or output path
    ├── ForkedError             this process was forked from one that had used Polars
    └── InputError              the input cannot be read as a trace
        ├── NotATrace           readable, but not a Chrome trace
        └── InputTooLarge       more bytes than the stated limit

Each carries one line for people: what is wrong, where, and what to do. The command prints that
line and exits with 2.
"""


class TraceAnalyzerError(Exception):
    """Signal an error that this package raises on purpose: the base of all of them."""


class UsageError(TraceAnalyzerError):
    """Signal a wrong option, argument or output path."""


class ForkedError(TraceAnalyzerError):
    """Signal that this process was forked from one that had used Polars, whose threads it lacks."""


class InputError(TraceAnalyzerError):
    """Signal an input that cannot be read as a trace."""


class NotATrace(InputError):
    """Signal an input that can be read, but is no Chrome trace."""


class InputTooLarge(InputError):
    """Signal an input that holds more bytes than the stated limit."""
