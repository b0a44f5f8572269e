# The types of _row_loops.py.
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t


@cython.locals(n=Py_ssize_t, size=Py_ssize_t, known=Py_ssize_t, i=Py_ssize_t)
cpdef void sums(
    const uint32_t[::1] groups, bint by_code, const uint32_t[::1] codes, const int64_t[::1] values, int64_t[::1] totals
) except *


@cython.locals(
    n=Py_ssize_t, size=uint64_t, room=Py_ssize_t, count=Py_ssize_t, i=Py_ssize_t, run=Py_ssize_t, code=uint32_t,
    key=uint64_t, span=uint64_t, none=uint32_t,
)
cpdef Py_ssize_t refine(
    const uint32_t[::1] groups, const uint32_t[::1] codes, uint32_t width, bint in_runs, uint32_t[::1] table,
    uint32_t[::1] numbers, uint32_t[::1] firsts,
) except -1


@cython.locals(n=Py_ssize_t, size=Py_ssize_t, i=Py_ssize_t, none=uint32_t)
cpdef void places(const uint32_t[::1] numbers, uint32_t[::1] rows) except *


@cython.locals(n=Py_ssize_t, size=Py_ssize_t, i=Py_ssize_t, none=uint32_t)
cpdef void picked(const uint32_t[::1] rows, const uint32_t[::1] asked, uint32_t[::1] result) except *


@cython.locals(n=Py_ssize_t, size=Py_ssize_t, i=Py_ssize_t, group=uint32_t, none=uint32_t)
cpdef void greatest(const uint32_t[::1] groups, const int64_t[::1] values, uint32_t[::1] rows) except *


@cython.locals(n=Py_ssize_t, depth=Py_ssize_t, unknown=uint32_t)
cdef Py_ssize_t _climb(
    const uint32_t[::1] parents, uint32_t[::1] result, uint32_t[::1] stack, Py_ssize_t row,
    Py_ssize_t none,
) except -1 nogil


@cython.locals(
    n=Py_ssize_t, i=Py_ssize_t, j=Py_ssize_t, depth=Py_ssize_t, here=uint32_t, none=uint32_t,
    unknown=uint32_t, farthest=bint, least=bint,
)
cpdef void inherited(
    const uint32_t[::1] parents, const uint8_t[::1] wishes, const uint32_t[::1] values, int rule,
    uint32_t[::1] result, uint32_t[::1] stack,
) except *
