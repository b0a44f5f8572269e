# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
"""Loop over rows and trees: sums by group, numbering, look-ups, and inheritance of values.

Plain Python, which Cython compiles with the types of ``_row_loops.pxd``, a hundred times as fast. Compiled code does
not check indices: the checked lengths must guarantee that they are in range for all values. Columns are flat sequences,
as made by `trace_analyzer.frames.lookups`. Loops release the GIL. A call passes two hundred bytes for each column, so
loops call these functions only for few rows, or where they are small enough to be inlined.
"""

try:
    import cython
except ImportError:  # Cython is needed for compiling only
    from contextlib import nullcontext
    from types import SimpleNamespace

    cython = SimpleNamespace(nogil=nullcontext())

Column = memoryview | list[int]

NONE = 0xFFFFFFFF
"""Row number that means no row."""
NEVER = -(1 << 63)
"""Time that means no time."""
NEAREST, FARTHEST, LEAST = range(3)
"""Which value among a row and its ancestors to take."""


def sums(groups: Column, by_code: bool, codes: Column, values: Column, totals: Column) -> None:
    """Add each row's value, or its code's value, to its group; skip groups beyond ``totals``."""
    n, size, known = len(groups), len(totals), len(values)
    if (len(codes) if by_code else known) != n:
        raise ValueError("columns of different lengths")
    with cython.nogil:
        for i in range(size):
            totals[i] = 0
        for i in range(n):
            if groups[i] >= size:
                continue
            if not by_code:
                totals[groups[i]] += values[i]
            elif codes[i] < known:
                totals[groups[i]] += values[codes[i]]
            else:
                raise ValueError("no such code")


def refine(
    groups: Column, codes: Column, width: int, in_runs: bool, table: Column, numbers: Column, firsts: Column
) -> int:
    """Split groups of rows by a code under ``width`` or `NONE`; return the number of new groups.

    Groups are numbered by appearance.

    ``table`` has room for ``width`` + 1 numbers per old group or, with ``in_runs`` (rows of each group are contiguous),
    for one group. ``firsts`` receives the first rows of the new groups.
    """
    n, size, room, count = len(groups), len(table), len(firsts), 0
    if not (len(codes) == len(numbers) == n):
        raise ValueError("columns of different lengths")
    none, span, run = NONE, width + 1, 0
    with cython.nogil:
        for i in range(len(table)):
            table[i] = none
        for i in range(n):
            code = width if codes[i] == none else codes[i]
            key = code if in_runs else groups[i] * span + code
            if code > width or key >= size:
                raise ValueError("no such group or code")
            if in_runs and groups[i] != groups[run]:
                run = i
            if table[key] == none or (in_runs and firsts[table[key]] < run):
                if count == room:
                    raise ValueError("no room for another group")
                table[key], firsts[count] = count, i
                count += 1
            numbers[i] = table[key]
        return count


def places(numbers: Column, rows: Column) -> None:
    """Write for each number the last row with that number, or `NONE`."""
    n, size = len(numbers), len(rows)
    none = NONE
    with cython.nogil:
        for i in range(size):
            rows[i] = none
        for i in range(n):
            if numbers[i] >= size:
                raise ValueError("no room for such a number")
            rows[numbers[i]] = i


def picked(rows: Column, asked: Column, result: Column) -> None:
    """Write ``rows[asked]``, with `NONE` for indices out of range."""
    n, size = len(asked), len(rows)
    if len(result) != n:
        raise ValueError("columns of different lengths")
    none = NONE
    with cython.nogil:
        for i in range(n):
            result[i] = rows[asked[i]] if asked[i] < size else none


def greatest(groups: Column, values: Column, rows: Column) -> None:
    """Write the row of the greatest value of each group, the first of equal ones, or `NONE`."""
    n, size = len(groups), len(rows)
    if len(values) != n:
        raise ValueError("columns of different lengths")
    none = NONE
    with cython.nogil:
        for i in range(size):
            rows[i] = none
        for i in range(n):
            group = groups[i]
            if group < size and (rows[group] == none or values[i] > values[rows[group]]):
                rows[group] = i


def _climb(parents: Column, result: Column, stack: Column, row: int, none: int) -> int:
    """Push ``row`` and its ancestors without a result; return their number."""
    n = len(parents)
    unknown = none - 1
    depth = 0
    while row != none:
        if row >= n:
            raise ValueError("no tree")
        if result[row] != unknown:
            break
        if depth == n:  # a cycle
            raise ValueError("no tree")
        stack[depth] = row
        depth += 1
        row = parents[row]
    return depth


def inherited(parents: Column, wishes: Column, values: Column, rule: int, result: Column, stack: Column) -> None:
    """Write for each row the value of a requested row among itself and its ancestors.

    ``rule`` selects it: the `NEAREST`, the `FARTHEST`, or the one with the `LEAST` value.
    """
    n = len(parents)
    if not (len(wishes) == len(values) == len(result) == len(stack) == n):
        raise ValueError("columns of different lengths")
    none, unknown, farthest, least = NONE, NONE - 1, rule == FARTHEST, rule == LEAST
    with cython.nogil:
        for i in range(n):
            result[i] = unknown
        for i in range(n):
            depth, stack[0], j = 1, i, parents[i]
            if result[i] != unknown:
                continue
            # Earlier rows have a result, and parents mostly precede their children.
            if j != none and j >= i:
                depth = _climb(parents, result, stack, i, none)
                j = parents[stack[depth - 1]]
            here = none if j == none else result[j]
            while depth:
                depth -= 1
                j = stack[depth]
                if wishes[j] and (here == none or (values[j] < here if least else not farthest)):
                    here = values[j]
                result[j] = here
