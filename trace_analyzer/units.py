"""Convert quantities and format them for people."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping

NS_PER_US = 1_000
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000

# Control characters (C0, DEL, C1), line separators, bidirectional controls and isolates: terminals and logs execute
# them instead of showing them.
_ACTIVE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe0f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


_SURROGATE = re.compile("[\ud800-\udfff]")


def visible(text: str) -> str:
    """Escape every character that a terminal would execute."""
    return _ACTIVE.sub(lambda match: _escape(ord(match[0])), text)


def visible_lines(text: str) -> str:
    """Escape like `visible`, but keep line breaks and tabs."""
    return _ACTIVE.sub(lambda match: match[0] if match[0] in "\n\t" else _escape(ord(match[0])), text)


def printable(text: str) -> str:
    r"""Escape undecodable bytes of a file name as ``\xe9``, and other lone surrogates as ``\ud800``."""
    return _SURROGATE.sub(lambda match: _escape(ord(match[0])), text)


def _escape(code: int) -> str:
    if 0xDC80 <= code <= 0xDCFF:  # a byte that Python could not decode (PEP 383)
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def cell_width(text: str) -> int:
    """Return the width of a text in terminal cells: wide characters take two, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def capitalized(text: str) -> str:
    """Return the text with its first letter in upper case and the rest unchanged."""
    return text[:1].upper() + text[1:]


def shorten(text: str, cells: int) -> str:
    """Cut the text to at most ``cells`` terminal cells, with an ellipsis at the cut."""
    if cell_width(text) <= cells:
        return text
    kept, used = [], 1
    for c in text:
        used += cell_width(c)
        if used > cells:
            break
        kept.append(c)
    return "".join(kept) + "…"


def duration(ns: int | float | None) -> str:
    """Write nanoseconds as three significant digits with the unit that fits: ``1.23 ms``."""
    return "–" if ns is None else _scaled(ns, ((NS_PER_S, "s"), (NS_PER_MS, "ms"), (NS_PER_US, "us"), (1, "ns")))


def percent(ratio: float | None) -> str:
    """Write a ratio as a percentage: ``12 %``, with one decimal under 10 %, and 0 % or 100 % only for exact values."""
    if ratio is None:
        return "–"
    share = 100 * ratio
    if 0 < share < 0.1:
        return "<0.1 %"
    if 99.9 < share < 100:
        return ">99.9 %"
    return f"{share:.0f} %" if share >= 99.95 or share == 0 or 10 <= share < 99.5 else f"{share:.1f} %"


def saved_between(now_ns: float, low_ns: float, high_ns: float) -> str:
    """Write what a step saves that then takes ``low_ns`` to ``high_ns``: ``saves 7.5 % to 34 %``."""
    least, most = (max(0.0, 1 - ns / now_ns) for ns in (high_ns, low_ns))
    return f"saves {percent(least)} to {percent(most)}"


def count(n: int | float | None) -> str:
    """Write a count with thousands separators."""
    return "–" if n is None else f"{n:,.0f}"


def counted(n: int | float, one: str, many: str | None = None) -> str:
    """Write a count with its noun.

    For example ``1 kernel``, ``2 kernels``; ``many`` is the plural where it is not ``one`` plus s.
    """
    number = count(n)
    return f"{number} {one if number == '1' else many or one + 's'}"


def flops(flop_per_s: float | None) -> str:
    """Write FLOP/s with the prefix that fits: ``312 TFLOP/s``."""
    return "–" if flop_per_s is None else _prefixed(flop_per_s, "FLOP/s")


def flop(n_flop: float | None) -> str:
    """Write FLOP with the prefix that fits: ``34.6 TFLOP``."""
    return "–" if n_flop is None else _prefixed(n_flop, "FLOP")


def size(n_bytes: int | float | None) -> str:
    """Write bytes with the decimal prefix that fits: ``2.04 GB``."""
    return "–" if n_bytes is None else _prefixed(n_bytes, "B")


def memory_size(n_bytes: int | float | None) -> str:
    """Write bytes of memory with the binary prefix that fits, as PyTorch does: ``22.5 GiB``."""
    prefixes = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))
    return "–" if n_bytes is None else _scaled(n_bytes, prefixes)


def bandwidth(byte_per_s: float | None) -> str:
    """Write bytes per second with the decimal prefix that fits: ``2.04 TB/s``."""
    return "–" if byte_per_s is None else _prefixed(byte_per_s, "B/s")


def number(value: float | None) -> str:
    """Write a number without a unit with three significant digits, but in full from 1,000 to a million.

    For example ``1.23``, ``1,390``.
    """
    if value is None:
        return "–"
    return f"{value:,.0f}" if 999.5 <= abs(value) < 999_999.5 else f"{value:,.3g}"


def factor(factor: float | None) -> str:
    """Write a factor: ``1.23 ×``; beyond 100,000 only that limit."""
    if factor is None:
        return "–"
    return "over 100,000 ×" if factor > 100_000 else f"{number(factor)} ×"


def fine_percent(ratio: float | None) -> str:
    """Write a ratio as a percentage with two decimals, for shares of which most are tiny: ``0.17 %``."""
    return "–" if ratio is None else f"{100 * ratio:.2f} %"


FORMS: Mapping[str, Callable[[float | None], str]] = {
    "ns": duration,
    "ratio": percent,
    "percent": lambda value: percent(None if value is None else value / 100),
    "count": count,
    "bytes": size,
    "byte/s": bandwidth,
    "FLOP": flop,
    "FLOP/s": flops,
    "FLOP/byte": number,
}
"""Unit of a column -> how its values are written for people."""


def written(value: float | str | bool | None, unit: str) -> str:
    """Write the value in its column's unit; text stays unchanged, null becomes a dash."""
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    form = FORMS.get(unit, count if isinstance(value, int) else number)
    return form(value)


def _prefixed(value: float, unit: str) -> str:
    return _scaled(
        value,
        ((1e15, "P" + unit), (1e12, "T" + unit), (1e9, "G" + unit), (1e6, "M" + unit), (1e3, "k" + unit), (1, unit)),
    )


def _scaled(value: float, scales: tuple[tuple[float, str], ...]) -> str:
    # 999.6 us is written as 1 ms, not as 1,000 us.
    finer = (*(f for f, _ in scales[1:]), 1)
    factor, unit = next(
        ((f, u) for (f, u), g in zip(scales, finer, strict=True) if round(abs(value) / g) * g >= f), scales[-1]
    )
    scaled = value / factor
    digits = 0 if abs(scaled) >= 99.95 or scaled == int(scaled) else 1 if abs(scaled) >= 9.995 else 2
    return f"{scaled:,.{digits}f} {unit}"


def runs(numbers: Iterable[int]) -> str:
    """Write ordered numbers as runs: ``2 to 127, 130``."""
    texts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if texts and number == texts[-1][1] + 1:
            texts[-1][1] = number
        else:
            texts.append([number, number])
    return ", ".join(f"{first}" if first == last else f"{first} to {last}" for first, last in texts)
