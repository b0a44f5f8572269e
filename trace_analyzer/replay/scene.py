"""Hold the inputs of changes, and define the reasons why a change does not apply."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from trace_analyzer.catalog.devices import Device, find_device, interconnects_of
from trace_analyzer.replay.graph import Graph
from trace_analyzer.replay.recording import Analysed, Flags
from trace_analyzer.replay.weights import Attributes


class NotApplicable(Exception):
    """Signal that a change cannot be predicted from this trace, with the reason for people."""


class NothingToChange(NotApplicable):
    """Signal that a change has nothing to act on in this program, with the reason for people."""


class UnknownTarget(NotApplicable):
    """Signal that the trace has no part with the name given for a speed-up."""


@dataclass(frozen=True)
class Scene:
    """Hold the inputs of changes: graph, labels of edges, the analysed trace, steady steps, recorded step and memory."""

    graph: Graph
    known: Attributes
    report: Analysed
    steady: Flags
    steady_steps: int
    step_ns: float = 0.0
    recorded_bytes: int | None = None

    @property
    def tables(self) -> Mapping[str, pl.DataFrame]:
        """Return the tables of the trace by name."""
        return self.report.tables

    @cached_property
    def sm_count(self) -> int | None:
        """Return the number of multiprocessors of the replayed device; None where it is unknown."""
        devices = self.tables["devices"]
        label = devices.filter(pl.col("device") == self.graph.recorded.device).item(0, "label")
        return next((device.sm_count for device in self.report.devices if str(device.index) == label), None)

    @cached_property
    def model(self) -> Device | None:
        """Return the replayed device in the catalogue; None where it is unknown."""
        devices = self.tables["devices"]
        name = devices.filter(pl.col("device") == self.graph.recorded.device).item(0, "name")
        return find_device(name, sm_count=self.sm_count)

    @property
    def memory_bytes(self) -> float | None:
        """Return the memory of the replayed device by the file, else by the catalogue; None where it is unknown."""
        model = self.model
        if self.recorded_bytes is not None:
            return self.recorded_bytes
        return None if model is None or model.memory_gib is None else model.memory_gib * 2**30

    @property
    def host_gbps(self) -> float | None:
        """Return the peak of the replayed device's link to the host, GB/s; None where it is unknown."""
        links = interconnects_of(self.model.name) if self.model is not None else ()
        return max((link.gbps for link in links if link.kind in ("pcie", "c2c")), default=None)

    @cached_property
    def has_workers(self) -> bool:
        """Return whether the recording already has data-loading workers."""
        names = self.tables["host_events"].get_column("name").unique().cast(pl.String)
        return bool(names.str.contains(WORKERS, literal=True).any())


WORKERS = "_MultiProcessingDataLoaderIter"
"""Name of a data loader's iterator with workers, in PyTorch's annotation of ``__next__``."""
