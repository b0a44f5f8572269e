# The types of _span_loops.py.
cimport cython
from libc.stdint cimport int64_t, uint32_t


@cython.locals(i=Py_ssize_t, j=Py_ssize_t)
cdef bint _precedes(
    const int64_t[::1] tracks, const int64_t[::1] starts, const int64_t[::1] ends, Py_ssize_t i, Py_ssize_t j
) noexcept nogil


cdef Py_ssize_t _NEAR, _FEW


@cython.locals(i=Py_ssize_t, track=int64_t, start=int64_t, end=int64_t)
cdef bint _in_order(
    const int64_t[::1] tracks, const int64_t[::1] starts, const int64_t[::1] ends
) noexcept nogil


@cython.locals(
    size=Py_ssize_t, at=Py_ssize_t, i=Py_ssize_t, j=Py_ssize_t, track=int64_t, before=int64_t,
)
cdef bint _by_track(
    const int64_t[::1] tracks, uint32_t[::1] rows, int64_t[::1] known, int64_t[::1] counts
) noexcept nogil


@cython.locals(n=Py_ssize_t, i=Py_ssize_t, j=Py_ssize_t, k=Py_ssize_t, least=Py_ssize_t, row=uint32_t)
cdef Py_ssize_t _run(
    const int64_t[::1] tracks, const int64_t[::1] starts, const int64_t[::1] ends, uint32_t[::1] rows, Py_ssize_t low
) noexcept nogil


@cython.locals(at=Py_ssize_t, edges=list)
cdef list _runs(
    const int64_t[::1] tracks, const int64_t[::1] starts, const int64_t[::1] ends, uint32_t[::1] rows
)


@cython.locals(i=Py_ssize_t, j=Py_ssize_t, k=Py_ssize_t)
cdef void _merged(
    const int64_t[::1] tracks, const int64_t[::1] starts, const int64_t[::1] ends, const uint32_t[::1] rows,
    uint32_t[::1] spare, Py_ssize_t low, Py_ssize_t middle, Py_ssize_t high,
) noexcept nogil


@cython.locals(
    n=Py_ssize_t, i=Py_ssize_t, e=Py_ssize_t, low=Py_ssize_t, middle=Py_ssize_t, high=Py_ssize_t, edges=list,
    merged=list, grouped=bint,
)
cpdef bint order(
    const int64_t[::1] tracks, const int64_t[::1] starts, const int64_t[::1] ends, uint32_t[::1] rows,
    uint32_t[::1] spare, int64_t[::1] known, int64_t[::1] counts,
) except -1


@cython.locals(
    n=Py_ssize_t, i=Py_ssize_t, count=Py_ssize_t, track=int64_t, start=int64_t, end=int64_t, until=int64_t
)
cpdef Py_ssize_t union(
    const int64_t[::1] tracks, const int64_t[::1] starts, const int64_t[::1] ends, int64_t apart, uint32_t[::1] rows,
    int64_t[::1] stops,
) except -1


@cython.locals(n=Py_ssize_t, i=Py_ssize_t, depth=Py_ssize_t, track=int64_t, end=int64_t, none=uint32_t)
cpdef void enclosing(
    const int64_t[::1] tracks, const int64_t[::1] starts, const int64_t[::1] ends, uint32_t[::1] outer,
    uint32_t[::1] stack,
) except *


@cython.locals(
    n=Py_ssize_t, i=Py_ssize_t, depth=Py_ssize_t, count=Py_ssize_t, track=int64_t, start=int64_t, end=int64_t,
    time=int64_t,
)
cpdef Py_ssize_t innermost(
    const int64_t[::1] tracks, const int64_t[::1] starts, const int64_t[::1] ends, uint32_t[::1] stack,
    uint32_t[::1] rows, int64_t[::1] since, int64_t[::1] until,
) except -1


cdef bint _stays(
    const int64_t[::1] tracks, const int64_t[::1] starts, int64_t track, int64_t time, Py_ssize_t near
) noexcept nogil


@cython.locals(
    n=Py_ssize_t, step=Py_ssize_t, low=Py_ssize_t, middle=Py_ssize_t, high=Py_ssize_t
)
cdef Py_ssize_t _sought(
    const int64_t[::1] tracks, const int64_t[::1] starts, int64_t track, int64_t time, Py_ssize_t near
) noexcept nogil


@cython.locals(
    n=Py_ssize_t, points=Py_ssize_t, i=Py_ssize_t, last=Py_ssize_t, none=uint32_t, never=int64_t, time=int64_t,
    track=int64_t, without_ends=bint,
)
cpdef void around(
    const int64_t[::1] tracks, const int64_t[::1] starts, const int64_t[::1] ends,
    const int64_t[::1] on, const int64_t[::1] times, uint32_t[::1] result,
) except *


@cython.locals(points=Py_ssize_t, i=Py_ssize_t, last=Py_ssize_t, time=int64_t)
cpdef void passed(const int64_t[::1] instants, const int64_t[::1] times, uint32_t[::1] counts) except *


@cython.locals(
    n=Py_ssize_t, points=Py_ssize_t, i=Py_ssize_t, first=Py_ssize_t, last=Py_ssize_t, length=int64_t, never=int64_t,
    time=int64_t,
)
cpdef void covered(
    const int64_t[::1] tracks, const int64_t[::1] starts, const int64_t[::1] ends, int64_t[::1] before,
    const int64_t[::1] on, const int64_t[::1] since, const int64_t[::1] until, int64_t[::1] lengths,
) except *


@cython.locals(
    n=Py_ssize_t, count=Py_ssize_t, room=Py_ssize_t, i=Py_ssize_t, last=Py_ssize_t, at=Py_ssize_t,
    segment=Py_ssize_t,
    none=Py_ssize_t, track=int64_t, time=int64_t, end=int64_t, stop=int64_t,
)
cpdef Py_ssize_t cut(
    const int64_t[::1] tracks, const int64_t[::1] starts, const int64_t[::1] ends,
    const int64_t[::1] on, const int64_t[::1] since, const int64_t[::1] until, bint outside,
    uint32_t[::1] spans, uint32_t[::1] segments, int64_t[::1] begins, int64_t[::1] stops,
) except -1


@cython.locals(
    n=Py_ssize_t, count=Py_ssize_t, i=Py_ssize_t, last=Py_ssize_t, at=Py_ssize_t, track=int64_t, time=int64_t,
    end=int64_t,
)
cpdef void overlaps(
    const int64_t[::1] tracks, const int64_t[::1] starts, const int64_t[::1] ends,
    const int64_t[::1] on, const int64_t[::1] since, const int64_t[::1] until, const uint32_t[::1] codes,
    Py_ssize_t width, int64_t[::1] totals,
) except *
