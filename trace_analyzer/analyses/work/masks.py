"""Count the pairs of query and key that a mask of attention leaves, and the keys that it reads."""

from typing import NamedTuple


class Mask(NamedTuple):
    """Which keys a query sees: at most ``left`` before and ``right`` after its own position; None is all.

    ``from_end`` aligns the last query with the last key (flash-attn), else the first with the first (PyTorch).
    """

    left: int | None = None
    right: int | None = None
    from_end: bool = False

    def pairs(self, queries: int, keys: int) -> int:
        """Count the pairs of query and key that are computed."""
        offset = keys - queries if self.from_end else 0
        upto = queries * keys if self.right is None else _clamped_sum(queries, offset + self.right + 1, keys)
        before = 0 if self.left is None else _clamped_sum(queries, offset - self.left, keys)
        return upto - before

    def keys_seen(self, queries: int, keys: int) -> int:
        """Count the keys that at least one query sees.

        Keys before the first query's window and after the last query's window are not read.
        """
        offset = keys - queries if self.from_end else 0
        first = 0 if self.left is None else min(keys, max(0, offset - self.left))
        behind = keys if self.right is None else min(keys, max(0, offset + queries + self.right))
        return max(0, behind - first) if queries else 0


CAUSAL_FROM_START, CAUSAL_FROM_END = Mask(right=0), Mask(right=0, from_end=True)


def _clamped_sum(count: int, first: int, most: int) -> int:
    """Sum over i < count of first + i, clamped to 0..most."""
    rising = range(max(0, -first), max(0, -first, min(count, most - first)))
    full = max(0, count - max(0, most - first))
    return sum((first + rising.start, first + rising.stop - 1)) * len(rising) // 2 + full * most
