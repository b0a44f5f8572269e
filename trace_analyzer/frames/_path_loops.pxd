# The types of _path_loops.py.
cimport cython
from libc.stdint cimport int8_t, int64_t


@cython.locals(points=Py_ssize_t, p=Py_ssize_t, e=Py_ssize_t, wrong=int)
cpdef check(const int64_t[::1] offsets, const int64_t[::1] sources)


@cython.locals(
    points=Py_ssize_t, p=Py_ssize_t, e=Py_ssize_t, best=int64_t, edge=int64_t, time=int64_t, removed=int64_t,
)
cpdef longest(
    const int64_t[::1] offsets, const int64_t[::1] sources, const int64_t[::1] weights, const int64_t[::1] roots,
    int64_t[::1] times, int64_t[::1] binding,
)


@cython.locals(points=Py_ssize_t, count=Py_ssize_t, room=Py_ssize_t)
cpdef Py_ssize_t walk_back(
    const int64_t[::1] sources, const int64_t[::1] binding, Py_ssize_t point, int64_t until, int64_t[::1] path,
) except -1


@cython.locals(
    count=Py_ssize_t, segments=Py_ssize_t, known=Py_ssize_t, rooms=Py_ssize_t, wrong=int, track=int64_t, row=Py_ssize_t,
    until=Py_ssize_t, i=Py_ssize_t, r=Py_ssize_t, since=int64_t, end=int64_t,
)
cpdef spend(
    const int64_t[::1] firsts, const int64_t[::1] begins, const int64_t[::1] ends, const int8_t[::1] parts,
    const int64_t[::1] tracks, const int64_t[::1] starts, const int64_t[::1] stops, int64_t[::1] spent,
)
