# The types of _pickle_reader.py.
cimport cython
from libc.stdint cimport int8_t, int64_t, uint8_t, uint64_t

cdef int _ACTION, _ADDR, _SIZE, _STREAM, _TIME, _FRAMES, _FREE, _FILE, _NAME, _LINE
cdef int _INT, _TEXT, _FRAME, _STACK, _EVENT, _TRACE, _DICT, _LIST, _OBJECT, _BLOCK, _OF_EVENT, _OF_FRAME


@cython.final
cdef class Pickle:
    cdef object _blocks, _view
    cdef const uint8_t[::1] _buffer
    cdef Py_ssize_t _at, _left, _depth, _end, _n_memo, _n_marks, _n_events, _n_placed, _n_traces
    cdef readonly Py_ssize_t _before
    cdef int8_t[::1] _kinds, _memo_kinds
    cdef int64_t[::1] _values, _memo, _places, _marks, _block, _of_key
    cdef dict _text_numbers, _frame_numbers, _stack_numbers
    cdef list _objects
    cdef readonly list texts, frames, stacks, events, traces
    cdef readonly object root

    @cython.locals(code=int)
    cpdef read(self)
    cdef object _refused(self, str reason)
    cdef int _fill(self) except -1
    cdef int _byte(self) except -1

    @cython.locals(value=uint64_t, byte=uint64_t, place=Py_ssize_t)
    cdef int64_t _unsigned(self, Py_ssize_t size) except? -1
    cdef bytes _bytes(self, Py_ssize_t size)

    @cython.locals(half=int64_t)
    cdef int _long(self, Py_ssize_t size) except -1

    @cython.locals(number=Py_ssize_t)
    cdef int _text(self, int64_t size) except -1
    cdef int _push(self, int kind, int64_t value) except -1
    cdef int _push_object(self, object value) except -1
    cdef int _get(self, int64_t place) except -1

    @cython.locals(top=Py_ssize_t)
    cdef int _put(self, int64_t place) except -1

    @cython.locals(place=int64_t)
    cdef void _become(self, Py_ssize_t at, int kind, int64_t value) noexcept
    cdef Py_ssize_t _to_mark(self) except -1
    cdef Py_ssize_t _top(self, Py_ssize_t size) except -1

    @cython.locals(at=Py_ssize_t)
    cdef list _cut(self, Py_ssize_t start)

    @cython.locals(kind=int, value=int64_t)
    cdef object _value(self, Py_ssize_t at)

    @cython.locals(place=int64_t)
    cdef Py_ssize_t _open(self, Py_ssize_t at) except -1

    @cython.locals(end=Py_ssize_t, target=Py_ssize_t, at=Py_ssize_t, seen=int)
    cdef int _set_items(self, Py_ssize_t start) except -1

    @cython.locals(at=Py_ssize_t, row=Py_ssize_t)
    cdef int _take_event(self, Py_ssize_t target, int seen) except -1
    cdef int _flush(self, Py_ssize_t rows) except -1
    cdef int64_t _integer(self, int seen, int key) except? -1
    cdef int64_t _stack_at(self, Py_ssize_t at) except? -1

    @cython.locals(name=Py_ssize_t, file=Py_ssize_t, line=Py_ssize_t, number=Py_ssize_t)
    cdef int _take_frame(self, Py_ssize_t target) except -1

    @cython.locals(at=Py_ssize_t)
    cdef int _fill_object(self, Py_ssize_t target, Py_ssize_t start, Py_ssize_t end) except -1

    @cython.locals(end=Py_ssize_t, target=Py_ssize_t, kind=int)
    cdef int _append(self, Py_ssize_t start) except -1

    @cython.locals(at=Py_ssize_t, number=Py_ssize_t)
    cdef int _take_stack(self, Py_ssize_t target, Py_ssize_t start, Py_ssize_t end) except -1

    @cython.locals(at=Py_ssize_t)
    cdef int _take_events(self, Py_ssize_t target, Py_ssize_t start, Py_ssize_t end) except -1
