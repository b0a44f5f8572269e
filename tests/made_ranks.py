"""Build jobs of known truth: ranks that compute and meet in collectives in turn, with different clocks.

A program is a list of what each rank does in a step: ``("work", ns)`` or ``("meet", groups)``, where groups are lists
of ranks; ``("work on", (ranks, ns))``, or ``("send", (from, to))``. Nothing overlaps, so starts, ends, waits and
lateness follow by arithmetic, independent of the tested code.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from trace_analyzer.ranks.summary import COLLECTIVES, PARTS, STEPS, RankGroup, RankSummary, to_bytes
from trace_analyzer.schema import typed

MS = 1_000_000
TRANSFER = 2 * MS
SEND = 1_000
BASE = 1_700_000_000_000_000_000
Delay = Callable[[int, int], int]
"""Additional work of a rank in a step, ns, by (rank, step)."""


@dataclass
class Made:
    """Describe a job with its true times.

    For each rank: the events (step, name, group or None, start, end) in true time, and its waits; and its hosts'
    clocks.
    """

    size: int
    steps: int
    groups: dict[str, list[int]]
    ran: list[list[tuple[int, str, str | None, int, int]]]
    bounds: list[list[tuple[int, int]]]
    waits: list[int]
    ranks_per_host: int = 8
    offsets: dict[str, int] = field(default_factory=dict)
    drifts: dict[str, float] = field(default_factory=dict)

    def host(self, rank: int) -> str:
        return f"host{rank // self.ranks_per_host}"

    def clock(self, rank: int, time: int) -> int:
        """Return the time of the rank's host clock at a true time."""
        host = self.host(rank)
        return time + self.offsets.get(host, 0) + round(self.drifts.get(host, 0.0) * time)


def job(
    size: int, steps: int, program: Sequence[tuple[str, Any]], delay: Delay = lambda rank, step: 0, **clocks: Any
) -> Made:
    """Run a program; ``("work", ns)`` takes that time and, for the first one of a step, the rank's delay."""
    names: dict[tuple[int, ...], str] = {}
    now = [0] * size
    ran: list[list[tuple[int, str, str | None, int, int]]] = [[] for _ in range(size)]
    bounds: list[list[tuple[int, int]]] = [[] for _ in range(size)]
    waits = [0] * size
    for step in range(steps):
        begun = list(now)
        is_first = True
        for what, value in program:
            if what in ("work", "work on"):
                for rank in range(size) if what == "work" else value[0]:
                    takes = value[1] if what == "work on" else value + (delay(rank, step) if is_first else 0)
                    ran[rank].append((step, "gemm", None, now[rank], now[rank] + takes))
                    now[rank] += takes
                is_first &= what != "work"
                continue
            if what == "send":
                end = max(now[rank] for rank in value) + SEND
                for rank in value:
                    ran[rank].append((step, "send_recv", f"{value[0]}>{value[1]}", now[rank], end))
                    now[rank] = end
                continue
            for members in value:
                group = names.setdefault(tuple(members), f"group{len(names)}")
                last = max(now[rank] for rank in members)
                for rank in members:
                    ran[rank].append((step, "all_reduce", group, now[rank], last + TRANSFER))
                    waits[rank] += last - now[rank]
                    now[rank] = last + TRANSFER
        for rank in range(size):
            bounds[rank].append((begun[rank], now[rank]))
    groups = {name: list(members) for members, name in names.items()}
    return Made(size, steps, groups, ran, bounds, waits, **clocks)


def summaries(made: Made, *, seq: bool = True, grouped: bool = True, hosts: bool = True) -> list[bytes]:
    """Return summaries of the ranks, made without traces."""
    return [to_bytes(summary(made, rank, seq=seq, grouped=grouped, hosts=hosts)) for rank in range(made.size)]


def summary(made: Made, rank: int, *, seq: bool = True, grouped: bool = True, hosts: bool = True) -> RankSummary:
    """Build the summary of a rank."""
    base = made.clock(rank, 0) + BASE
    counts: dict[Any, int] = {}
    rows = []
    for step, name, group, start, end in made.ran[rank]:
        if group is None:
            continue
        number = counts[group] = counts.get(group, 0) + 1
        place = counts[(group, step)] = counts.get((group, step), 0) + 1
        at, until = made.clock(rank, start) + BASE - base, made.clock(rank, end) + BASE - base
        source, _, destination = group.partition(">")
        is_send = bool(destination)
        rows.append(
            {
                "group": ("pipeline" if is_send else group) if grouped else None, "seq": number if seq and not is_send else None, "comms_id": None, "step": step,
                "ordinal": place - 1 if grouped else len([r for r in rows if r["step"] == step]), "kind": name,
                "dtype": "Float", "elements": 1_000, "group_size": (2 if is_send else len(made.groups[group])) if grouped else None,
                "source": int(source) if is_send else None, "destination": int(destination) if is_send else None, "start_ns": at, "duration_ns": until - at, "exposed_ns": until - at,
            }
        )  # fmt: skip
    frame = pl.DataFrame(rows, schema=COLLECTIVES)
    steps = [
        {"step": n, "start_ns": made.clock(rank, a) + BASE - base, "end_ns": made.clock(rank, b) + BASE - base, "is_steady": True, "regime": None}
        for n, (a, b) in enumerate(made.bounds[rank])
    ]  # fmt: skip
    parts = [
        {"step": step, "part": "communication" if group else "compute", "total_ns": end - start}
        for step, _, group, start, end in made.ran[rank]
    ]
    summed = (
        pl.DataFrame(parts, schema=PARTS).group_by("step", "part").agg(pl.col("total_ns").sum()).sort("step", "part")
    )
    return RankSummary(
        path=f"rank{rank}.json", rank=rank, world_size=made.size, host=made.host(rank) if hosts else None, base_ns=base,
        step_ns=sum(b - a for a, b in made.bounds[rank]) / made.steps, steps_from="ProfilerStep",
        groups=(
            *(
                RankGroup(name, name, None, len(ranks), tuple(ranks))
                for name, ranks in made.groups.items()
                if rank in ranks
            ),
            RankGroup("pipeline", "pipeline", "PIPELINE_PARALLEL_GROUP", 2, ()),
        ),
        steps=pl.DataFrame(steps, schema=STEPS), parts=typed(summed, PARTS), collectives=frame,
    )  # fmt: skip


def write_traces(made: Made, folder: Path, *, seq: bool = True, launches: str = "cudaLaunchKernel") -> list[Path]:
    """Write the trace of each rank, with steps, operators, launches and kernels in Kineto's format."""
    paths = []
    for rank in range(made.size):
        path = folder / f"trace.rank{rank}.json"
        path.write_text(json.dumps(document(made, rank, seq=seq, launches=launches)), encoding="utf-8")
        paths.append(path)
    return paths


def document(made: Made, rank: int, *, seq: bool = True, launches: str = "cudaLaunchKernel") -> dict[str, Any]:
    """Build the trace of a rank: the CPU launches everything at the start of its step, in order."""
    events: list[dict[str, Any]] = []
    counts: dict[str, int] = {}
    number = 0

    def row(cat: str, name: str, start: float, end: float, pid: int, tid: int, **args: Any) -> None:
        events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": start, "dur": end - start, "args": args}
        )

    def us(time: int) -> float:
        return (made.clock(rank, time) - made.clock(rank, 0)) / 1_000

    for step, (begun, ended) in enumerate(made.bounds[rank]):
        row("user_annotation", f"ProfilerStep#{step + 10}", us(begun), us(ended), 100, 100)
        at = us(begun)
        for _, _name, group, start, end in [item for item in made.ran[rank] if item[0] == step]:
            number += 1
            kernel = {"device": 0, "context": 1, "stream": 7, "correlation": number}
            if group is None:
                shapes = {"External id": number, "Input Dims": [[64, 64], [64, 64]]}
                row("cpu_op", "aten::mm", at, at + 8, 100, 100, **shapes)
                row("kernel", "ampere_sgemm_128x64_nn", us(start), us(end), 0, 7, **kernel, **{"External id": number})
            else:
                counts[group] = counts.get(group, 0) + 1
                members = made.groups[group]
                args = {
                    "External id": number, "Collective name": "allreduce", "In msg nelems": 1_000, "Out msg nelems": 1_000, "dtype": "Float",
                    "Group size": len(members), "Process Group Name": group, "Process Group Ranks": str(members),
                } | ({"Seq": counts[group]} if seq else {})  # fmt: skip
                row("cpu_op", "record_param_comms", at, at + 8, 100, 100, **args)
                row("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", us(start), us(end), 0, 7, **kernel, **args)
            row("cuda_runtime", launches, at + 2, at + 6, 100, 100, correlation=number)
            at += 10
    return {
        "schemaVersion": 1, "host_name": made.host(rank), "baseTimeNanoseconds": made.clock(rank, 0) + BASE,
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": made.size, "pg_config": [
            {"pg_name": name, "pg_size": len(ranks), "ranks": ranks} for name, ranks in made.groups.items() if rank in ranks
        ]},
        "deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-80GB", "computeMajor": 8, "computeMinor": 0, "numSms": 108, "warpSize": 32}],
        "traceEvents": events,
    }  # fmt: skip
