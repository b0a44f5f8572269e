# cython: language_level=3, boundscheck=False, wraparound=False
"""Exchange columns of integers between Polars and compiled loops without copying.

This uses Arrow's C data interface, https://arrow.apache.org/docs/format/CDataInterface.html, and Python's buffers.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.stdint cimport INT64_MAX, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport strcmp

# Address for buffers of no bytes, as some readers do not accept NULL.
cdef char _nothing = 0


cdef void _released_schema(ArrowSchema* schema) noexcept:
    schema.release = NULL


cdef void _released_array(ArrowArray* array) noexcept:
    free(<void*> array.buffers[0])
    free(<void*> array.buffers[1])
    free(array.buffers)
    array.release = NULL


cdef void _end_schema(object capsule) noexcept:
    cdef ArrowSchema* schema = <ArrowSchema*> PyCapsule_GetPointer(capsule, "arrow_schema")
    if schema.release != NULL:
        schema.release(schema)
    free(schema)


cdef void _end_array(object capsule) noexcept:
    cdef ArrowArray* array = <ArrowArray*> PyCapsule_GetPointer(capsule, "arrow_array")
    if array.release != NULL:
        array.release(array)
    free(array)


cdef class Column:
    """Hold integers that are written as the bytes of a buffer, and then moved to Polars, once."""

    def __cinit__(self):
        self.array = NULL
        self.lent = 0

    def __dealloc__(self):
        if self.array != NULL:
            self.array.release(self.array)
            free(self.array)

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        if self.array == NULL:
            raise BufferError("taken already")
        PyBuffer_FillInfo(
            buffer, self, <void*> self.array.buffers[1], <Py_ssize_t> self.array.length * self.width, False, flags
        )
        self.lent += 1

    def __releasebuffer__(self, Py_buffer* buffer):
        self.lent -= 1

    cdef int _check(self) except -1:
        """Refuse a column whose memory was moved away or is in use."""
        if self.array == NULL:
            raise ValueError("taken already")
        if self.lent:
            raise ValueError("in use")
        return 0

    def keep(self, Py_ssize_t length):
        """Keep only the first ``length`` values."""
        self._check()
        if not 0 <= length <= self.array.length:
            raise ValueError("a column gets no longer")
        self.array.length = length

    def without(self, uint32_t nothing):
        """Treat this value in a column of uint32 as null."""
        self._check()
        if self.width != sizeof(uint32_t) or self.array.buffers[0] != NULL:
            raise ValueError("no column of uint32 without nulls")
        cdef const uint32_t* values = <const uint32_t*> self.array.buffers[1]
        cdef Py_ssize_t i, j, length = <Py_ssize_t> self.array.length, known = 0
        cdef int bits
        cdef uint8_t* valid
        with nogil:
            for i in range(length):
                known += values[i] != nothing
        if known == length:
            return
        valid = <uint8_t*> calloc(length // 8 + 1, 1)
        if valid == NULL:
            raise MemoryError
        with nogil:
            for i in range(length // 8):
                bits = 0
                for j in range(8):
                    bits |= (values[8 * i + j] != nothing) << j
                valid[i] = <uint8_t> bits
            for i in range(length & ~7, length):
                valid[i >> 3] |= (values[i] != nothing) << (i & 7)
        self.array.buffers[0], self.array.null_count = valid, length - known

    def __arrow_c_array__(self, requested_schema=None):
        self._check()
        cdef ArrowSchema* schema = <ArrowSchema*> calloc(1, sizeof(ArrowSchema))
        if schema == NULL:
            raise MemoryError
        schema.format, schema.name, schema.flags, schema.release = self.format, "", 2, &_released_schema
        described = PyCapsule_New(schema, "arrow_schema", &_end_schema)
        taken = PyCapsule_New(self.array, "arrow_array", &_end_array)
        self.array = NULL
        return described, taken


cdef Column column_of(Py_ssize_t length, Py_ssize_t width, const char* format, bint nullable):
    """Return a column of this many values of ``width`` bytes, all valid; its memory is not initialized."""
    if not 0 <= length < INT64_MAX // 16:
        raise MemoryError
    cdef Column column = Column.__new__(Column)
    cdef ArrowArray* array = <ArrowArray*> calloc(1, sizeof(ArrowArray))
    if array == NULL:
        raise MemoryError
    array.buffers = <const void**> calloc(2, sizeof(void*))
    if array.buffers == NULL:
        free(array)
        raise MemoryError
    array.length, array.n_buffers, array.release = length, 2, &_released_array
    column.array, column.format, column.width = array, format, width
    array.buffers[1] = malloc(length * width + 1)
    if nullable:
        array.buffers[0] = calloc(length // 8 + 1, 1)
    if array.buffers[1] == NULL or (nullable and array.buffers[0] == NULL):
        raise MemoryError
    return column


def int64s(Py_ssize_t length):
    """Return a column of int64 for writing; its values are not initialized."""
    return column_of(length, 8, "l", False)


def uint32s(Py_ssize_t length):
    """Return a column of uint32 for writing; its values are not initialized."""
    return column_of(length, 4, "I", False)


cdef class Values:
    """Provide the values of a series of int64, uint32 or uint8 in one chunk as a readable buffer."""

    cdef ArrowArray array
    cdef Py_ssize_t width

    def __cinit__(self, series):
        self.array.release = NULL
        capsule = series.__arrow_c_stream__()
        cdef ArrowArrayStream* stream = <ArrowArrayStream*> PyCapsule_GetPointer(capsule, "arrow_array_stream")
        cdef ArrowSchema schema
        cdef ArrowArray more
        if stream.get_schema(stream, &schema) != 0:
            raise ValueError("no schema")
        self.width = _width(schema.format)
        if schema.release != NULL:
            schema.release(&schema)
        if not self.width:
            raise TypeError("no column of int64, uint32 or uint8")
        if stream.get_next(stream, &self.array) != 0:
            self.array.release = NULL
            raise ValueError("no values")
        if self.array.release == NULL:  # end of the stream: no values
            self.array.length = 0
            return
        # A count of -1 means unknown.
        if self.array.n_buffers != 2 or (self.array.null_count != 0 and self.array.buffers[0] != NULL):
            raise ValueError("there are nulls")
        if stream.get_next(stream, &more) != 0:
            raise ValueError("no values")
        if more.release != NULL:
            more.release(&more)
            raise ValueError("more than one piece")

    def __dealloc__(self):
        if self.array.release != NULL:
            self.array.release(&self.array)

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        cdef const char* start = &_nothing
        if self.array.length:
            start = <const char*> self.array.buffers[1] + self.array.offset * self.width
        PyBuffer_FillInfo(buffer, self, <void*> start, <Py_ssize_t> self.array.length * self.width, True, flags)


cdef Py_ssize_t _width(const char* format) noexcept:
    """Return the size of a value in an Arrow format; 0 for unsupported formats."""
    if strcmp(format, "l") == 0:
        return 8
    if strcmp(format, "I") == 0:
        return 4
    return strcmp(format, "C") == 0
