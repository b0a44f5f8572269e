"""Save time and memory in ways that change no result. Each names the benchmark that shows what it wins."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def beside(work: Callable[[], object]) -> Iterator[None]:
    """Do some work in another thread while this lasts, and wait for its end; what raises there is left to who needs it."""

    def quietly() -> None:
        try:
            work()
        except BaseException:  # it raises again where it is needed
            return

    thread = threading.Thread(target=quietly, name="beside")
    thread.start()
    try:
        yield
    finally:
        thread.join()


def prepare() -> None:
    """Import the analyses, read their catalogues and make expressions of the rules: reading a trace leaves time for it."""
    import trace_analyzer.pipeline  # noqa: F401
    from trace_analyzer.catalog.arithmetic import arithmetic_of_name
    from trace_analyzer.catalog.article import article
    from trace_analyzer.catalog.code import code_of_name
    from trace_analyzer.catalog.copy_directions import direction_rules
    from trace_analyzer.catalog.devices import devices
    from trace_analyzer.catalog.fixes import fixes
    from trace_analyzer.catalog.fusions import fusions
    from trace_analyzer.catalog.host_work import work_of_name
    from trace_analyzer.catalog.kernels import CONDITIONS, conditions, decision, rules
    from trace_analyzer.catalog.step_marks import marks_of_name

    for catalogue in (devices, fixes, fusions, direction_rules, article):
        catalogue()
    for of_name in (work_of_name, code_of_name, marks_of_name, arithmetic_of_name):
        of_name()
    for column in CONDITIONS:
        conditions(column, rules())
    decision(rules())
