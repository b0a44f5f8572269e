"""Decimal text in microseconds -> int64 nanoseconds, against exact decimal arithmetic."""

from decimal import ROUND_HALF_EVEN, Decimal, localcontext

import polars as pl
import pytest
from hypothesis import given, strategies as st

from trace_analyzer.ingest.raw import nanoseconds


def ns(*texts: str | None) -> list[int | None]:
    return nanoseconds(pl.Series("ts", texts, dtype=pl.String)).to_list()


def exact(text: str) -> int:
    with localcontext(prec=200):
        return int((Decimal(text) * 1_000).to_integral_value(ROUND_HALF_EVEN))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0), ("1", 1_000), ("1.5", 1_500), ("1.234", 1_234), ("-3.25", -3_250), ("-0", 0),
        ("0.0005", 0), ("0.0015", 2), ("0.0025", 2), ("0.00250000001", 3), ("-0.0015", -2),
        ("1622222222222222.125", 1_622_222_222_222_222_125), ("1e3", 1_000_000), ("1.5E-3", 2), ("2.5e-3", 2),
        ("+7", 7_000), (" 7\t", 7_000), (".5", 500), ("1.", 1_000), ("00012.5", 12_500), ("1E-999999999", 0),
    ],
)  # fmt: skip
def test_text_becomes_nanoseconds(text: str, expected: int) -> None:
    assert ns(text) == [expected]


@pytest.mark.parametrize(
    "text",
    [None, "", " ", "x", "1,5", "1.2.3", "0x10", "NaN", "-Infinity", "null", "[1]", "1e30", "4611686018427388", "9" * 500,
     "1e99999999999999999999", "--1", "1 2"],
)  # fmt: skip
def test_what_is_no_time_is_null(text: str | None) -> None:
    assert ns(text, "1") == [None, 1_000]


def test_digits_of_other_scripts_do_not_crash() -> None:
    assert ns("١٢", "1")[1] == 1_000


@given(st.lists(st.decimals(-(4 * 10**15), 4 * 10**15, allow_nan=False), max_size=20))
def test_any_decimal_is_exact(values: list[Decimal]) -> None:
    texts = [format(value, "f") for value in values]
    assert ns(*texts) == [exact(text) for text in texts]


@given(st.integers(-4_000_000_000_000, 4_000_000_000_000), st.integers(0, 12), st.sampled_from(["e", "E", "e+", "e-"]))
def test_exponents_are_exact(digits: int, exponent: int, mark: str) -> None:
    text = f"{digits}{mark}{exponent}"
    value = exact(text)
    assert ns(text) == [value if abs(value) < 1 << 62 and Decimal(text).adjusted() <= 20 else None]


@given(st.floats(0, 4e15))
def test_floats_as_json_writes_them(value: float) -> None:
    assert ns(repr(value)) == [exact(repr(value))]


NUMBER = r"\A[-+ ]?[0-9]{0,20}\.?[0-9]{0,6}(e[0-9]{1,3})?\Z"


@given(st.lists(st.one_of(st.none(), st.text(max_size=8), st.from_regex(NUMBER)), max_size=8))
def test_each_text_is_converted_by_itself(texts: list[str | None]) -> None:
    texts = [text if text is None or text.isascii() else None for text in texts]
    assert ns(*texts) == [ns(text)[0] for text in texts]
