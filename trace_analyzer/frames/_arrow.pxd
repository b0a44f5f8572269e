from libc.stdint cimport int64_t


# https://arrow.apache.org/docs/format/CDataInterface.html
cdef struct ArrowSchema:
    const char* format
    const char* name
    const char* metadata
    int64_t flags
    int64_t n_children
    ArrowSchema** children
    ArrowSchema* dictionary
    void (*release)(ArrowSchema*) noexcept
    void* private_data


cdef struct ArrowArray:
    int64_t length
    int64_t null_count
    int64_t offset
    int64_t n_buffers
    int64_t n_children
    const void** buffers
    ArrowArray** children
    ArrowArray* dictionary
    void (*release)(ArrowArray*) noexcept
    void* private_data


# https://arrow.apache.org/docs/format/CStreamInterface.html
cdef struct ArrowArrayStream:
    int (*get_schema)(ArrowArrayStream*, ArrowSchema*) noexcept
    int (*get_next)(ArrowArrayStream*, ArrowArray*) noexcept
    const char* (*get_last_error)(ArrowArrayStream*) noexcept
    void (*release)(ArrowArrayStream*) noexcept
    void* private_data


cdef class Column:
    cdef ArrowArray* array
    cdef const char* format
    cdef Py_ssize_t width
    cdef Py_ssize_t lent
    cdef int _check(self) except -1


cdef Column column_of(Py_ssize_t length, Py_ssize_t width, const char* format, bint nullable)
