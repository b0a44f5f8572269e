"""Hold what changes look at, and the reasons why one may not apply."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from trace_analyzer.catalog.devices import Device
from trace_analyzer.replay.graph import Graph
from trace_analyzer.replay.recording import Flags
from trace_analyzer.replay.weights import Attributes


class NotApplicable(Exception):
    """Signal why a change cannot be predicted from this trace, for people."""


class NothingToChange(NotApplicable):
    """Signal why a change would do nothing here, for people: the program has nothing of the kind."""


class UnknownTarget(NotApplicable):
    """Signal why nothing is made faster: the trace has nothing of that name."""


@dataclass(frozen=True)
class Scene:
    """Hold what changes may look at: graph, meaning of edges, tables, device, steady steps, recorded step."""

    graph: Graph
    known: Attributes
    tables: Mapping[str, pl.DataFrame]
    device: Device | None
    steady: Flags
    steady_steps: int
    step_ns: float = 0.0

    @cached_property
    def has_workers(self) -> bool:
        """Return whether workers load data in the recording already."""
        names = self.tables["host_events"].get_column("name").unique().cast(pl.String)
        return bool(names.str.contains(WORKERS, literal=True).any())


WORKERS = "_MultiProcessingDataLoaderIter"
"""What PyTorch calls the iterator of a data loader with workers, in its annotation of ``__next__``."""
