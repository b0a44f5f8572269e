"""Tables that are made when they are first asked for, and only once."""

import copy
import pickle

import polars as pl
import pytest
from kineto import analysed, kernel, launch
from trace_analyzer import tables
from trace_analyzer.on_demand import OnDemand

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
