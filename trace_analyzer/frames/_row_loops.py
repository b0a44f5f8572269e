# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
"""Loop over rows and trees: sums by group, numbering, look-ups, and what rows inherit.

Plain Python, which Cython compiles with the types of ``_row_loops.pxd``, a hundred times as fast. Compiled, indices are not
checked: that they are in range must follow from the lengths that are checked, whatever the values. Columns are flat
sequences as `trace_analyzer.frames.buffers` makes them. Other threads go on while a loop runs. A function gets two hundred
bytes for each column that it is given, so loops call one of these only where few rows need it, or where it is so small that
it is compiled into them.
"""

try:
    import cython
except ImportError:  # it is needed to compile this, and not to run it
    from contextlib import nullcontext
    from types import SimpleNamespace

    cython = SimpleNamespace(nogil=nullcontext())

Column = memoryview | list[int]

NONE = 0xFFFFFFFF
"""In the place of a row: no row."""
NEVER = -(1 << 63)
"""In the place of a time: no time."""
NEAREST, FARTHEST, LEAST = range(3)
"""Which of the values on the way up a tree is wanted."""


def sums(groups: Column, by_code: bool, codes: Column, values: Column, totals: Column) -> None:
    """Add each row's value, or that of its code, to its group; skip groups beyond ``totals``."""
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
    """Split groups of rows by a code under ``width`` or `NONE`, numbered by appearance; return their number.

    ``table`` has room for ``width`` + 1 numbers for each group there was, or, ``in_runs`` where the rows of each stand
    together, for one. ``firsts`` become the first rows of the new groups.
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
    """Write for each number the last row that holds it, or `NONE`."""
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
    """Write ``rows[asked]``, with `NONE` for what lies outside."""
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
    """Push ``row`` and those of its ancestors that have no result yet; return how many."""
    n = len(parents)
    unknown = none - 1
    depth = 0
    while row != none:
        if row >= n:
            raise ValueError("no tree")
        if result[row] != unknown:
            break
        if depth == n:  # in a circle
            raise ValueError("no tree")
        stack[depth] = row
        depth += 1
        row = parents[row]
    return depth


def inherited(parents: Column, wishes: Column, values: Column, rule: int, result: Column, stack: Column) -> None:
    """Write for each row the value of a wished-for row among itself and its ancestors.

    The ``rule`` says of which: of the `NEAREST`, of the `FARTHEST`, or the `LEAST` value.
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
            # Rows before this one have theirs, and parents mostly come before their children.
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
