"""Build recordings of a few rows, for tests of single edges of the replay's graph; times in microseconds."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from trace_analyzer.replay.device_edges import DeviceLinks, Links, device_links, launch_orders, trimmed
from trace_analyzer.replay.host_edges import Resumes, Returns, Room, hand_overs, queue_room, returns, silences, spins
from trace_analyzer.replay.recording import KERNEL, LAUNCH, PYTHON, Activities, Calls, Recording, Segments, Steps

US = 1_000


class Work(NamedTuple):
    """Describe an activity; ``call`` is an index in the list of calls, ``track`` the number of its stream."""

    start: float
    end: float
    call: int = -1
    track: int = 0
    kind: int = KERNEL
    device: int = 0
    pageable: bool = False


class Made(NamedTuple):
    """Describe a runtime call; calls of one name are of one class."""

    start: float
    end: float
    kind: int = LAUNCH
    thread: int = 0
    awaits: int = -1
    waiting: int = -1
    name: int | None = None


class Busy(NamedTuple):
    """Describe an interval of a thread's work; ``busy`` where silence counts as work."""

    start: float
    end: float
    thread: int = 0
    busy: bool = True


def _us(values: Sequence[float]) -> np.ndarray:
    return np.array([round(value * US) for value in values], dtype=np.int64)


def _ints(values: Sequence[int]) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def recorded(
    work: Sequence[Work] = (),
    made: Sequence[Made] = (),
    busy: Sequence[Busy] = (),
    *,
    devices: Sequence[int] = (0,) * 8,
    processes: Sequence[int] = (0,) * 8,
) -> Recording:
    """Return the recording of some rows, activities in order of start; ``devices`` of tracks, ``processes`` of threads."""
    activities = Activities(
        _us([row.start for row in work]), _us([row.end for row in work]), _ints([row.kind for row in work]),
        _ints([devices[row.track] for row in work]), _ints([row.track for row in work]), _ints([row.call for row in work]),
        np.zeros(len(work), dtype=bool), np.array([row.pageable for row in work], dtype=bool), _ints([-1] * len(work)),
    )  # fmt: skip
    calls = Calls(
        _us([row.start for row in made]), _us([row.end for row in made]), _ints([row.thread for row in made]),
        _ints([processes[row.thread] for row in made]), _ints([row.kind for row in made]),
        _ints([row.kind if row.name is None else row.name for row in made]), _ints([row.awaits for row in made]),
        _ints([row.waiting for row in made]), _ints(range(len(made))),
    )  # fmt: skip
    segments = Segments.of([
        _ints([row.thread for row in busy]), _us([row.start for row in busy]), _us([row.end for row in busy]),
        np.full(len(busy), PYTHON, dtype=np.int8), np.array([row.busy for row in busy], dtype=bool), np.arange(len(busy), dtype=np.uint32),
    ], len(processes))  # fmt: skip
    tracks = _ints([(device, 7 + number) for number, device in enumerate(devices)]).reshape(-1, 2)
    none = np.zeros(0, dtype=np.int64)
    steps = Steps(none, none, none, none.astype(bool))
    return Recording(activities, calls, segments, steps, tracks, _ints(processes), 0)


def named(recording: Recording, links: Links) -> list[tuple[str, str, float]]:
    """Return edges as (from, to, us): ``+0`` and ``-0`` are start and end of an activity, ``(0`` and ``)0`` of a call."""
    n, m = recording.activities.start.size, recording.calls.start.size
    names = [f"{sign}{row}" for sign, count in (("+", n), ("-", n), ("(", m), (")", m)) for row in range(count)]
    rows = zip(links.source.tolist(), links.target.tolist(), links.weight.tolist(), strict=True)
    return sorted((names[source], names[target], weight / US) for source, target, weight in rows)


def device_edges(recording: Recording, *, fitted: Sequence[bool] | None = None) -> DeviceLinks:
    """Return the edges to starts of activities."""
    end, orders = trimmed(recording.activities), launch_orders(recording)
    room = queue_room(recording, orders)
    blocked = np.zeros(max(recording.calls.start.size, 1), dtype=bool)
    blocked[room.call[~room.hidden]] = True
    count = recording.activities.start.size
    return device_links(recording, end, orders, blocked, np.array(fitted if fitted is not None else [True] * count))


def call_returns(recording: Recording) -> Returns:
    """Return what calls waited for."""
    return returns(recording, trimmed(recording.activities), launch_orders(recording))


def waits(recording: Recording) -> list[tuple[int, int, float]]:
    """Return (activity, call, us) of each wait of a call."""
    waited = call_returns(recording)
    rows = zip(waited.source.tolist(), waited.target.tolist(), waited.lag.tolist(), strict=True)
    return sorted((source, target, lag / US) for source, target, lag in rows)


def polled(recording: Recording) -> Resumes:
    """Return the silences in which a thread polled memory."""
    return spins(recording, silences(recording), trimmed(recording.activities))


def handed(recording: Recording) -> list[tuple[float, float, float]]:
    """Return (end of the silence, start of the other silence, us) of each hand-over between threads."""
    quiet = silences(recording)
    resumes = hand_overs(recording, quiet, spins(recording, quiet, trimmed(recording.activities)).silence)
    return sorted(
        (float(quiet.end[silence]) / US, float(quiet.start[release]) / US, float(lag) / US)
        for silence, release, lag in zip(resumes.silence, resumes.release, resumes.lag, strict=True)
    )


def queued(recording: Recording) -> Room:
    """Return the calls that waited for room in their queue."""
    return queue_room(recording, launch_orders(recording))
