"""Queue underruns and their causes, worked out by hand (microseconds)."""

from typing import Any

from kineto import analysed, annotation, call, launch, launched, op, python, rows

# The CPU queues 390 us of work until 30, which the device finishes at 410; the next launch is at 600.
AHEAD = [launched(f"k{i}", 10 * i, 20 + 130 * i, 130, i + 1) for i in range(3)]
LATE = launched("late", 600, 610, 10, 9)
COLUMNS = (
    "start_ns",
    "end_ns",
    "queued_work_ns",
    "idle_ns",
    "cause",
    "host_start_ns",
    "host_end_ns",
    "name",
    "operator",
    "source",
)


def drained(*events: Any, columns: tuple[str, ...] = COLUMNS) -> list[tuple[Any, ...]]:
    return rows(analysed(*events).tables["drains"], *columns)


def test_the_longest_event_between_the_launches_drained_the_queue() -> None:
    loads = annotation("enumerate(DataLoader)#_It.__next__", 40, 500)
    assert drained(AHEAD, LATE, op("aten::stack", 100, 50), loads) == [
        (280, 605, 260, 195, "data-loading", 25, 600, "enumerate(DataLoader)#_It.__next__", None, None)
    ]  # fmt: skip


def test_many_small_things_name_what_is_around_them() -> None:
    small = [op("aten::mul", 30 + 50 * i, 40) for i in range(11)]
    actual = drained(AHEAD, LATE, python("train.py(3): step", 0, 700), small, columns=("name", "operator"))
    assert actual == [("train.py(3): step", None)]
    assert drained(AHEAD, LATE, annotation("ProfilerStep#1", 0, 700), small, columns=("name",)) == [("aten::mul",)]


def test_a_blocking_call_drains_the_queue_while_the_device_is_busy() -> None:
    item = [op("aten::item", 40, 380), op("aten::_local_scalar_dense", 41, 378), call("cudaStreamSynchronize", 42, 376)]
    actual = drained(AHEAD, LATE, item, columns=("name", "source", "cause", "idle_ns"))
    assert actual == [("aten::item", ".item()", "synchronization", 195)]


def test_a_queue_that_was_never_long_has_not_run_out() -> None:
    assert drained([launched(f"k{i}", 200 * i, 200 * i + 10, 10, i + 1) for i in range(3)]) == []


def test_a_device_that_stays_busy_until_the_next_launch_has_not_idled() -> None:
    assert drained(AHEAD, launched("late", 300, 410, 10, 9)) == []


def test_nothing_recorded_names_nothing() -> None:
    assert drained(AHEAD, launch(600, 5, 9), LATE[1], columns=("idle_ns", "name", "cause")) == [
        (195, None, "host-unknown")
    ]
