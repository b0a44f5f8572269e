# The types of _pickle_reader.py.
cimport cython
from libc.stdint cimport int64_t, uint8_t, uint64_t


@cython.final
cdef class Pickle:
    cdef object _blocks
    cdef const uint8_t[::1] _buffer
    cdef Py_ssize_t _at, _left
    cdef readonly Py_ssize_t _before
    cdef list _memo, _stack, _marks
    cdef readonly dict frames, stacks, action_names
    cdef dict _places
    cdef readonly object addresses, sizes, streams, times_us, actions, event_stacks, traces, root
    cdef readonly Py_ssize_t n_traces

    @cython.locals(code=int, size=Py_ssize_t, number=int64_t)
    cpdef read(self)
    cdef object _refused(self, str reason)
    cdef int _fill(self) except -1
    cdef int _byte(self) except -1

    @cython.locals(value=uint64_t, place=Py_ssize_t)
    cdef int64_t _unsigned(self, Py_ssize_t size) except? -1
    cdef bytes _bytes(self, Py_ssize_t size)
    cdef int _text(self, int64_t size) except -1
    cdef int _get(self, int64_t place) except -1
    cdef int _put(self, int64_t place) except -1
    cdef int _need(self, Py_ssize_t size) except -1

    @cython.locals(mark=Py_ssize_t)
    cdef list _to_mark(self)
    cdef list _top(self, Py_ssize_t size)

    @cython.locals(items=list)
    cdef list _cut(self, Py_ssize_t place)

    @cython.locals(place=Py_ssize_t)
    cdef int _set_items(self, list items) except -1

    @cython.locals(place=Py_ssize_t)
    cdef object _replaced(self, object value, object number)
    cdef object _stack_number(self, object frames)
    cdef object _new_stack(self, tuple frames)
    cdef object _frame_number(self, dict frame)
    cdef bytes _take_event(self, dict event)
    cdef int _append(self, list items) except -1
    cdef int _take_events(self, list target, list items) except -1
