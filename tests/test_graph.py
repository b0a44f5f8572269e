"""Tables that are made when they are first asked for, and only once."""

import copy
import pickle
import threading

import polars as pl
import pytest
from kineto import analysed, kernel, launch

from trace_analyzer import tables
from trace_analyzer.graph import Later, OnDemand, beside

ONE = pl.DataFrame({"a": [1]})


class Counted:
    """A maker that counts its calls."""

    calls = 0

    def __call__(self) -> pl.DataFrame:
        self.calls += 1
        return ONE


def test_a_frame_is_made_when_it_is_asked_for_and_once():
    make = Counted()
    frames = OnDemand({"made": make, "there": ONE})
    assert list(frames) == ["made", "there"]
    assert len(frames) == 2
    assert make.calls == 0
    assert frames["made"] is frames["made"] is ONE
    assert make.calls == 1
    with pytest.raises(KeyError):
        frames["other"]


def test_a_value_is_made_once_though_two_threads_ask_for_it():
    entered, go_on, calls = threading.Event(), threading.Event(), []

    def make() -> int:
        calls.append(1)
        entered.set()
        assert go_on.wait(10)
        return 7

    later: Later[int] = Later(make)
    with beside((later,)):
        assert entered.wait(10)
        go_on.set()
        assert later() == 7
    assert later() == 7
    assert len(calls) == 1


def test_what_raises_beside_raises_for_who_asks_and_the_rest_is_left_to_them():
    tried, after = threading.Event(), Counted()

    def fail() -> int:
        tried.set()
        raise ValueError("no such figure")

    failing: Later[int] = Later(fail)
    with beside((failing, Later(after))):
        assert tried.wait(10)
        with pytest.raises(ValueError, match="no such figure"):
            failing()
    assert after.calls == 0
    assert not [thread for thread in threading.enumerate() if thread.name == "beside"]


def test_several_threads_make_what_is_left_at_once_and_each_once():
    meet, made = threading.Barrier(3), [Counted() for _ in range(9)]

    def wait() -> int:
        return meet.wait(10)

    laters = [Later(make) for make in made]
    with beside((Later(wait), Later(wait), *laters), threads=2):
        meet.wait(10)  # both are at it
        for later in laters:
            later()
    assert [make.calls for make in made] == [1] * len(made)


def test_at_the_end_what_was_not_begun_beside_is_left():
    entered, go_on, left = threading.Event(), threading.Event(), Counted()

    def slow() -> int:
        entered.set()
        assert go_on.wait(10)
        return 1

    def leave() -> None:
        with beside((Later(slow), Later(left))):
            assert entered.wait(10)
            threading.Timer(0.5, go_on.set).start()

    leave()
    assert left.calls == 0


def test_others_take_the_place_of_those_of_their_name_and_nothing_is_made():
    make, other = Counted(), pl.DataFrame({"b": [2]})
    frames = OnDemand({"made": make, "there": ONE}) | {"there": other}
    assert make.calls == 0
    assert frames["there"] is other
    assert frames["made"] is ONE


def test_changes_wait_until_their_frame_is_asked_for():
    make = Counted()
    twice = OnDemand({"made": make, "there": ONE}).each(dict.fromkeys(["made", "there"], lambda f: f.vstack(f)))
    assert make.calls == 0
    assert twice["made"].height == twice["there"].height == 2


def test_a_copy_holds_all_frames():
    for copied in (copy.deepcopy, lambda frames: pickle.loads(pickle.dumps(frames))):
        make = Counted()
        assert {name: frame.rows() for name, frame in copied(OnDemand({"made": make})).items()} == {"made": [(1,)]}
        assert make.calls == 1


def test_a_report_goes_to_another_process_with_all_its_tables():
    report = analysed(launch(0, 5, 1), kernel(10, 20, 1))
    there = pickle.loads(pickle.dumps(report))
    assert there == report
    for table in tables.ALL:
        assert there.tables[table.name].equals(report.tables[table.name])
        assert there.tables[table.name].schema == table.schema
