"""The exceptions of this package.

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
    """Base of every exception that this package raises on purpose."""


class UsageError(TraceAnalyzerError):
    """A wrong option, argument or output path."""


class ForkedError(TraceAnalyzerError):
    """This process was forked from one that had used Polars, whose threads it lacks: to work would hang."""


class InputError(TraceAnalyzerError):
    """The input cannot be read as a trace."""


class NotATrace(InputError):
    """The input can be read, but it is no Chrome trace."""


class InputTooLarge(InputError):
    """The input holds more bytes than the stated limit."""
