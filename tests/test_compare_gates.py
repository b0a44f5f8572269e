"""Check that gates that cannot judge refuse with a reason and exit code 2; none passes silently."""

import re
from functools import cache

import click
import polars as pl
import pytest
from compare_sides import Program
from lazy_report import report_on
from msgspec.structs import replace

from trace_analyzer.cli.compare import bound
from trace_analyzer.compare import decomposition, gates, profiles

BASE = Program(steps=5)
GATE = gates.Gate("--fail-if-slower 5%", 0.05)


@cache
def profile(program: Program) -> profiles.Profile:
    return profiles.profile_of(report_on(program.trace()))


def with_facts(side: profiles.Profile, **facts: object) -> profiles.Profile:
    return replace(side, facts=replace(side.facts, **facts))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ({}, {"cold": True}, "all steps of after are a cold start"),
        ({"withheld": "no stream"}, {}, "what the device did is not known: no stream"),
        ({"device_name": "A"}, {"device_name": "B"}, "before ran on A, after on B; record both on one device"),
        ({"device_name": "A"}, {"device_name": "A"}, "None"),
        ({"device_name": "A"}, {"device_name": None}, "None"),
    ],
)
def test_gates_that_cannot_judge_say_why(before: dict[str, object], after: dict[str, object], reason: str) -> None:
    result = decomposition.compare_profiles(with_facts(profile(BASE), **before), with_facts(profile(BASE), **after))
    assert reason in str(gates.refusal(result, (GATE,)))


def test_a_growth_that_may_be_chance_is_reported_with_what_would_have_been_seen() -> None:
    before = profile(BASE)
    lengths = [length * factor for length, factor in zip(before.recordings[0].lengths_ns, (1, 2, 1, 2), strict=True)]
    after = replace(before, recordings=(replace(before.recordings[0], lengths_ns=tuple(lengths)),))
    (held,) = gates.held(decomposition.compare_profiles(before, after), (GATE,))
    assert not held.broke
    assert "no more than chance; so many steps show" in held.why


def test_a_step_that_shrinks_has_the_sign_of_a_gain() -> None:
    """A gate that holds with "24 % of BEFORE's; allowed are 5 %" reads as one that broke."""
    sides = [profile(BASE.faster(mm_ns=mm_ns)) for mm_ns in (2 * BASE.mm_ns, BASE.mm_ns)]
    for (before, after), sign in ((sides, "-"), (sides[::-1], "+")):
        (held,) = gates.held(decomposition.compare_profiles(before, after), (GATE,))
        assert held.broke is (sign == "+")
        changes = (
            rf"the step changes by \{sign}[\d.]+ [mu]s \(\{sign}\d+ % of BEFORE's [\d.]+ [mu]s\); allowed are \+5\.0 %"
        )
        assert re.search(changes, held.why)


def test_a_bare_number_of_1_or_more_is_no_share() -> None:
    assert bound("0.05") == (None, 0.05)
    assert bound("matmul=150%") == ("matmul", 1.5)
    with pytest.raises(click.BadParameter, match=r"'5' is 500 %; write 5% or 500%"):
        bound("5")


def test_a_line_that_varies_by_chance_is_named_beside_what_would_have_been_seen() -> None:
    """Else a growth of more than so many steps show would be called chance without a reason."""
    side = profile(BASE)
    row, ms = side.rows.filter(pl.col("kind") == "idle").get_column("row")[0], 1_000_000

    def slowed(lengths: tuple[int, ...], extra: tuple[int, ...]) -> profiles.Profile:
        assert side.units is not None
        waits = pl.DataFrame({"row": row, "unit": range(len(extra)), "total_ns": extra}, schema=side.units.schema)
        units = pl.concat([side.units, waits]).group_by("row", "unit").agg(pl.col("total_ns").sum())
        recording = replace(side.recordings[0], lengths_ns=tuple(map(sum, zip(lengths, extra, strict=True))))
        return replace(side, recordings=(recording,), units=units)

    lengths = side.recordings[0].lengths_ns
    result = decomposition.compare_profiles(slowed(lengths, (0, ms, 0, 0)), slowed(lengths, (ms, 0, ms, ms)))
    assert result.adjustment is not None
    (held,) = gates.held(result, (GATE,))
    assert not held.broke
    assert "of the rest, as " in held.why
    assert "a step, which may be chance" in held.why
    assert " of the step without " in result.notes[0]
