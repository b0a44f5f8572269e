"""Define `Trace`: the content of a file in typed tables, before any analysis. Activities have the names that Kineto writes."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl
from msgspec import Struct

from trace_analyzer.errors import InputError, Note
from trace_analyzer.ingest.raw import SURROGATE
from trace_analyzer.ingest.source import Source, content_of
from trace_analyzer.run_metadata import HEADER_KEY, RunMetadata, settings_of


class DeviceProperties(Struct, frozen=True):
    """A device from the file's header; what a multiprocessor (SM) holds is what its resident blocks share."""

    index: str
    name: str | None
    memory_bytes: int | None
    compute_capability: str | None
    sm_count: int | None
    warp_size: int | None
    threads_per_sm: int | None
    registers_per_sm: int | None
    shared_bytes_per_sm: int | None


class ProcessGroup(Struct, frozen=True):
    """A process group from the file's header: its global ranks in order; empty where they are not listed."""

    name: str
    description: str | None
    backend: str | None
    size: int | None
    ranks: tuple[int, ...]


class Header(Struct, frozen=True):
    """Facts from the file's header; ``profiler`` is the program that wrote it, None for PyTorch Profiler.

    ``versions`` are by name of the software (`versions_of`).
    """

    devices: tuple[DeviceProperties, ...]
    rank: int | None
    world_size: int | None
    base_time_ns: str | None
    settings: RunMetadata | None = None
    host_name: str | None = None
    process_groups: tuple[ProcessGroup, ...] = ()
    profiler: str | None = None
    versions: Mapping[str, str] = {}

    def memory_bytes(self, name: str | None) -> int | None:
        """Return the memory of devices of this name: profilers of ROCm number devices otherwise than the header does."""
        return {each.name: each.memory_bytes for each in self.devices if each.memory_bytes}.get(name)


class Trace(Struct, frozen=True):
    """One trace file.

    `trace_analyzer.ingest.tables` describes the tables; texts of events and of operators' inputs are categorical.

    ``profiler_sessions`` are (start, end) of the profiler's own spans, ns; ``boundaries`` are the instants at which it
    marks the start or end of a recording. ``unsupported`` counts device events of categories that this program does not
    support.
    """

    path: str
    header: Header
    event_count: int
    origin_ns: int
    duration_ns: int
    notes: tuple[Note, ...]
    threads: pl.DataFrame
    devices: pl.DataFrame
    host_events: pl.DataFrame
    operator_inputs: pl.DataFrame
    device_events: pl.DataFrame
    collective_inputs: pl.DataFrame
    sync_events: pl.DataFrame
    device_annotations: pl.DataFrame
    flows: pl.DataFrame
    memory_events: pl.DataFrame
    profiler_sessions: tuple[tuple[int, int], ...]
    boundaries: tuple[int, ...]
    unsupported: Mapping[str, int]

    @property
    def rank(self) -> int | None:
        """Return the rank that the file's header or its name gives."""
        return rank_of(self.header, self.path)


def header_of(raw: Mapping[str, Any]) -> tuple[Header, tuple[Note, ...]]:
    """Read the header from the document's keys, and note impossible numbers; malformed values count as missing."""
    distributed = raw.get("distributedInfo")
    distributed = distributed if isinstance(distributed, dict) else {}
    entries = raw.get("deviceProperties")
    entries = entries if isinstance(entries, list) else []
    refused: list[str] = []
    base = _integer(raw, "baseTimeNanoseconds", _INT64, refused, least=-_INT64)
    world = _integer(distributed, "world_size", _INT32, refused, least=1)
    settings = settings_of(raw.get(HEADER_KEY))
    header = Header(
        devices=tuple(_device_properties(entry, refused) for entry in entries if isinstance(entry, dict)),
        rank=_integer(distributed, "rank", _INT32 if world is None else world - 1, refused),
        world_size=world,
        base_time_ns=None if base is None else str(base),
        settings=settings,
        host_name=_text(raw.get("host_name")),
        process_groups=_process_groups(distributed.get("pg_config")),
        versions=versions_of({**distributed, **(vars(settings) if settings else {}), **raw}),
    )
    if not refused:
        return header, ()
    names = ", ".join(dict.fromkeys(refused))
    message = f"numbers of the header that cannot be are left out: {names}"
    return header, (Note("implausible-header", "warning", message, len(refused)),)


_VERSIONS: Mapping[str, tuple[str, int]] = {
    "torch_version": ("PyTorch", 0), "pytorch_version": ("PyTorch", 0), "python_version": ("Python", 0), "cuda_version": ("CUDA", 0),
    "cuda_runtime_version": ("CUDA", 10), "cuda_driver_version": ("driver (CUDA)", 10), "driver_version": ("driver (CUDA)", 10),
    "hip_runtime_version": ("HIP", 100_000), "hip_driver_version": ("driver (HIP)", 100_000), "cudnn_version": ("cuDNN", 0),
    "nccl_version": ("NCCL", 0),
}  # fmt: skip
"""Key of a header -> software, and the unit of its minor version in a number, of which 100 make a major one.

CUDA writes 1000 major + 10 minor (``cudaRuntimeGetVersion``), HIP 10**7 major + 10**5 minor + patch (``HIP_VERSION``).
"""
_IS_VERSION = re.compile(r"[0-9][\w.+-]{0,39}", re.ASCII)


def versions_of(keys: Mapping[str, Any]) -> dict[str, str]:
    """Return software -> its version, of the keys of a header that name one: ``{"CUDA": "12.6"}``."""
    versions: dict[str, str] = {}
    for key, (software, minor) in _VERSIONS.items():
        value = keys.get(key)
        if minor and isinstance(value, int) and not isinstance(value, bool):
            value = f"{value // (100 * minor)}.{value // minor % 100}"
        if isinstance(value, str | int) and _IS_VERSION.fullmatch(str(value)):
            versions.setdefault(software, str(value))
    return versions


def _device_properties(entry: Mapping[str, Any], refused: list[str]) -> DeviceProperties:
    major, minor = (_integer(entry, key, _VERSION, refused) for key in ("computeMajor", "computeMinor"))
    return DeviceProperties(
        index=SURROGATE.sub("\ufffd", str(entry.get("id", ""))),
        name=_text(entry.get("name")),
        memory_bytes=_integer(entry, "totalGlobalMem", _INT64, refused),
        compute_capability=None if major is None else f"{major}.{minor or 0}",
        sm_count=_integer(entry, "numSms", _INT32, refused),
        warp_size=_integer(entry, "warpSize", _INT32, refused),
        threads_per_sm=_integer(entry, "maxThreadsPerMultiprocessor", _INT32, refused, least=1),
        registers_per_sm=_integer(entry, "regsPerMultiprocessor", _INT32, refused, least=1),
        shared_bytes_per_sm=_integer(entry, "sharedMemPerMultiprocessor", _INT32, refused, least=1),
    )


def _process_groups(entries: object) -> tuple[ProcessGroup, ...]:
    """Return the named groups of ``pg_config`` (torch.distributed.distributed_c10d._get_all_pg_configs)."""
    listed = entries if isinstance(entries, list) else []
    groups = [(entry, _text(entry.get("pg_name"))) for entry in listed if isinstance(entry, dict)]
    ignored: list[str] = []
    return tuple(
        ProcessGroup(
            name=name,
            description=_text(entry.get("pg_desc")),
            backend=_text(entry.get("backend_config")),
            size=_integer(entry, "pg_size", _INT32, ignored, least=1),
            ranks=_ranks(entry.get("ranks")),
        )
        for entry, name in groups
        if name is not None
    )


def _ranks(values: object) -> tuple[int, ...]:
    """Return a list of ranks; empty where an entry is no integer."""
    try:
        ranks = tuple(int(str(value)) for value in values) if isinstance(values, list) else ()
    except ValueError:
        return ()
    return ranks if all(0 <= rank <= _INT32 for rank in ranks) else ()


def _text(value: object) -> str | None:
    """Return a non-blank text, shortened; None for any other value."""
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    text = SURROGATE.sub("\ufffd", text)
    return (text if len(text) <= _LONGEST_NAME else text[: _LONGEST_NAME - 1] + "\u2026") if text.strip() else None


_LONGEST_NAME = 256
"""Limit on the characters of device names, by their definitions (CUDA's `cudaDeviceProp`, HIP's `hipDeviceProp_t`)."""


_INT32, _INT64, _VERSION = 2**31 - 1, 2**63 - 1, 999


def _integer(entry: Mapping[str, Any], key: str, most: int, refused: list[str], least: int = 0) -> int | None:
    """Return the integer of a key, None where it is no integer; one out of range is added to ``refused``."""
    value = entry.get(key)
    try:
        number = None if value is None else int(str(value))
    except ValueError:  # also raised for numbers of over 4,300 digits
        return None
    if number is None or least <= number <= most:
        return number
    refused.append(key)
    return None


_PICKLE = b"\x80"
"""First byte of a pickle of protocol 2 or later."""
_BY_NODE = re.compile(rb"\s*\{\s*(?:\"\d+\"\s*:|\}\s*$)")
_NAMES = ("module_fqn", "name", "str")
"""Keys of an annotation's name; torchtitan names modules, the first versions of PyTorch write ``str``."""
_LONGEST = 4_096
_MOST = 1 << 63
"""Limit on ids: they have 64 bits, and no profiler writes one with the highest bit set."""


class GraphAnnotations(Struct, frozen=True):
    """Names of graphs' kernels: ``names`` has columns graph_node_id and name, with distinct ids."""

    names: pl.DataFrame


class CaptureFiles(Struct, frozen=True):
    """The traces of a folder that are of the rank of the trace at hand, and why files were left out.

    ``other_rank`` is their rank where the folder names one rank alone, and the trace is of another.
    """

    traces: tuple[Trace, ...]
    left_out: tuple[str, ...] = ()
    other_rank: int | None = None


Capture = Trace | CaptureFiles | GraphAnnotations
SUFFIXES = (".json", ".json.gz", ".json.zst")
"""Suffixes of traces in a folder."""


def read_capture(source: Source, read: Callable[[Source], Trace], *, max_bytes: int) -> Trace | GraphAnnotations:
    """Read a second trace with ``read``, or graph annotations from a regular file or bytes.

    Raises ``InputError`` for other content, and for a pickle, as unpickling can execute code.
    """
    if not isinstance(source, bytes) and not (isinstance(source, str | Path) and Path(source).is_file()):
        return read(source)
    with closing(content_of(source, max_bytes=max_bytes)) as content:
        head, name = next(content.blocks(), b""), content.name
    if head.startswith(_PICKLE):
        raise InputError(
            f"{name}: is a pickle, and to read one can run code; save the annotations as JSON:"
            " json.dump(dict(torch.cuda.graph_annotations.get_kernel_annotations()), file)"
        )
    if not _BY_NODE.match(head):
        return read(source)
    with closing(content_of(source, max_bytes=max_bytes)) as content:
        return GraphAnnotations(_names(b"".join(content.blocks()), name))


_RANK_IN_NAME = re.compile(r"rank[-_.[]?(\d{1,7})(?!\d)", re.IGNORECASE)
_TENSOR_PARALLEL = re.compile(r"(?:^|-)TP-(\d{1,7})(?!\d)")
_OTHER_PARALLEL = re.compile(r"-(?:DP|PP)-\d")
"""Pattern of other parallelism in SGLang's names: without it, ``TP-`` is the rank."""


def rank_in_name(path: str) -> int | None:
    """Return the rank in the name of a file, else in that of its folder; None without one.

    ``rank3``, ``rank_3``, ``rank-3``, ``rank[3]``, or ``TP-3``.
    """
    *folders, name = path.replace("\\", "/").split("/")[-2:]
    numbers = _RANK_IN_NAME.findall(name)
    if not _OTHER_PARALLEL.search(name):
        numbers = numbers or _TENSOR_PARALLEL.findall(name)
    for folder in folders:
        numbers = numbers or _RANK_IN_NAME.findall(folder)
    return int(numbers[-1]) if numbers else None


def rank_of(header: Header, path: str) -> int | None:
    """Return the rank in the header, else in the name; the header's rank 0 without a world size does not count."""
    named = rank_in_name(path)
    says = header.rank if header.rank or header.world_size is not None else None
    return says if says is not None else named if named is not None else header.rank


def read_captures(folder: Path, rank: int | None, read: Callable[[Source], Trace]) -> CaptureFiles:
    """Read with ``read`` the files of a folder, one for a graph's size and rank, that are of this rank.

    Files whose rank nothing says are read too, and all where ``rank`` is None, or where their names have one rank alone:
    vLLM records the captures of rank 0 only, as the ranks of a model capture the same graphs. Raises ``InputError`` for a
    folder without files.
    """
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name.endswith(SUFFIXES)]
    if not files:
        raise InputError(f"{folder}: no trace ({', '.join(f'*{suffix}' for suffix in SUFFIXES)}) in this folder")
    traces: list[Trace] = []
    left_out: list[str] = []
    named = {path: rank_in_name(str(path)) for path in files}
    ranks = set(named.values())
    other = named[files[0]] if rank is not None and len(ranks) == 1 and ranks.isdisjoint((None, rank)) else None
    if other is not None:
        rank = None
    for path in files:
        if rank is not None and named[path] not in (None, rank):
            continue
        try:
            made = read(path)
        except InputError as problem:
            left_out.append(str(problem))
            continue
        if rank is None or made.rank in (None, rank):
            traces.append(made)
    return CaptureFiles(tuple(traces), tuple(left_out), other)


def _names(text: bytes, source: str) -> pl.DataFrame:
    """Return (graph_node_id, name) from annotations as JSON text. Raises ``InputError`` for invalid text."""
    try:
        by_node = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise InputError(f"{source}: begins like graph annotations, and is no JSON: {problem}") from None
    known = [
        (int(node), name)
        for node, annotations in by_node.items()
        if len(node) < 20 and node.isascii() and node.isdigit() and int(node) < _MOST and (name := _name(annotations))
    ]
    rows = pl.DataFrame(known, schema={"graph_node_id": pl.Int64, "name": pl.String}, orient="row")
    return rows.unique("graph_node_id", keep="last", maintain_order=True)


def annotation_name(text: str) -> str | None:
    """Return the name of a kernel's annotation: a text, or JSON of its scopes."""
    if not text.startswith("["):
        return text[:_LONGEST] or None
    try:
        return _name(json.loads(text))
    except (ValueError, RecursionError):
        return None


def _name(annotations: Any) -> str | None:
    """Return the name of the innermost scope that has one; None without any."""
    scopes = annotations if isinstance(annotations, list) else [annotations]
    for scope in reversed(scopes):
        names = [scope.get(key) for key in _NAMES] if isinstance(scope, dict) else [scope]
        for name in names:
            if isinstance(name, str) and name:
                return name[:_LONGEST]
    return None


COPY_KINDS = ("copy_kind", "source_kind", "destination_kind", "memory_kind")
NODE_NAMES = ("module", "annotation", "label")
"""Arguments with names of a graph's node, the most telling first."""

# Kinds of copies and of memory (cupti_activity.h: CUpti_ActivityMemcpyKind, CUpti_ActivityMemoryKind) as Kineto names them.
_COPIES = ["Unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"]
_MEMORY = ("Unknown", "Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static")


def activity_names(device: pl.DataFrame) -> pl.Expr:
    """Return names as Kineto writes them: "Memcpy HtoD (Pageable -> Device)" for "Memcpy" with these kinds."""
    known = [
        column
        for column in COPY_KINDS
        if column in device.columns and device.get_column(column).null_count() < device.height
    ]
    if not known:
        return pl.col("name")
    copied, source, destination, memory = (
        _named_kind(column, _MEMORY if column != "copy_kind" else _COPIES) if column in known else pl.lit("Unknown")
        for column in COPY_KINDS
    )
    name, given = pl.col("name").cast(pl.String), pl.any_horizontal(pl.col(known).is_not_null())
    return (
        pl.when((name == "Memcpy") & given).then(pl.format("Memcpy {} ({} -> {})", copied, source, destination))
        .when((name == "Memset") & given).then(pl.format("Memset ({})", memory))
        .otherwise(name)
        .cast(pl.Categorical)
        .alias("name")
    )  # fmt: skip


def _named_kind(column: str, names: Sequence[str]) -> pl.Expr:
    """Return the name of a kind, which files have as its number or in words such as `device_static`."""
    numbers = {str(number): name for number, name in enumerate(names)}
    words = {name.lower().replace(" ", "_"): name for name in names}
    return pl.col(column).cast(pl.String).str.to_lowercase().replace_strict(numbers | words, default="Unknown")


def node_names(device: pl.DataFrame) -> pl.Expr:
    """Return what the program called the node of a graph: its module, else the innermost of its names."""
    known = [column for column in NODE_NAMES if column in device.columns]
    if not known:
        return pl.lit(None, dtype=pl.Categorical()).alias("annotation")
    texts = pl.coalesce(pl.col(known).cast(pl.String))
    names = {
        text: annotation_name(text) for text in device.select(texts.alias("text")).to_series().drop_nulls().unique()
    }
    return texts.replace_strict(names, default=None, return_dtype=pl.String).cast(pl.Categorical).alias("annotation")
