# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Scan the text of a list of events once, in compiled code: check the JSON and write values into columns.

Hostile text is safe: a `bytes` ends with a NUL, which is no token and therefore ends every scan; strings, which may
contain a NUL, are searched within the size; nesting is limited; the scan stops before rows or words run out of room.
"""

from libc.stdint cimport INT64_MIN, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memchr, memcmp, memcpy, memset

from trace_analyzer.frames._arrow cimport Column, column_of

cdef enum:
    _DEPTH = 256
    _ENTRIES = 512
    _LEARNED = 128
    _COLUMNS = 64
    _ROUTES = 16
    _NO_ROUTE = 127
    _ODD = 126

# How a scan ended: at the end of the text between events; within an event; at the bracket that closes the list;
# without room for another event; where no event can be read.
cdef enum:
    _MORE = 0
    _PARTIAL = 1
    _CLOSED = 2
    _FULL = 3
    _BROKEN = 4
    _DONE = 5

MORE, PARTIAL, CLOSED, FULL, BROKEN = _MORE, _PARTIAL, _CLOSED, _FULL, _BROKEN
NO_ROUTE, ODD = _NO_ROUTE, _ODD

# Form in which a value is kept: ns from decimal microseconds, an integer, or the number of its text among the words.
cdef enum:
    _TIME = 0
    _INTEGER = 1
    _LABEL = 2
    _TEXT = 3
    _ARGUMENTS = 1000

TIME, INTEGER, LABEL, TEXT = _TIME, _INTEGER, _LABEL, _TEXT

# Later times are left to the strict reader, which checks whether they are plausible.
cdef uint64_t _FARTHEST_US = 4 * 10 ** 15


cdef struct Entry:
    # A key, its column or -1, and the index of the entry that last followed it, which mostly follows again. The entry
    # after all others represents the start, before the first key, and keys without an entry.
    const unsigned char* key
    Py_ssize_t size
    int value
    int next


cdef struct Words:
    # Distinct substrings of the scanned text, by number; 0 is null, and empty. Open addressing: slots contain
    # numbers.
    uint32_t* slots
    uint64_t mask
    int64_t* starts
    int64_t* ends
    int64_t count
    int64_t room


cdef struct Scan:
    const unsigned char* text
    Py_ssize_t size
    uint64_t seed
    Entry[_ENTRIES + 1] fields
    Entry[_ENTRIES + 1] arguments
    int learned  # keys without a column that have an entry for this text
    const int* forms
    int ph
    int cat
    Words labels
    Words texts
    int64_t[_COLUMNS] last  # words of the columns, which are mostly also those of the next event
    # Current event: its values by column, its columns (one bit each), whether the strict reader has to read it,
    # its phase and its category.
    int64_t values[_COLUMNS]
    uint64_t seen
    bint has_arguments
    bint odd
    unsigned char phase
    Py_ssize_t category
    Py_ssize_t category_end


cdef inline uint64_t _hash(const unsigned char* key, Py_ssize_t size, uint64_t seed) noexcept nogil:
    cdef uint64_t mixed = (seed ^ <uint64_t> size) * <uint64_t> 0x9E3779B97F4A7C15
    cdef uint64_t word
    cdef Py_ssize_t i = 0
    while i + 8 <= size:
        memcpy(&word, key + i, 8)
        mixed = (mixed ^ word) * <uint64_t> 0xD6E8FEB86659FD93
        mixed ^= mixed >> 32
        i += 8
    word = 0
    while i < size:
        word = (word << 8) | key[i]
        i += 1
    mixed = (mixed ^ word) * <uint64_t> 0xD6E8FEB86659FD93
    return mixed ^ (mixed >> 32)


cdef inline int _place(const Entry* entries, const unsigned char* key, Py_ssize_t size, uint64_t seed) noexcept nogil:
    """Return the slot of the key, or the slot for inserting it."""
    cdef uint64_t at = _hash(key, size, seed) & (_ENTRIES - 1)
    while entries[at].key != NULL and (entries[at].size != size or memcmp(entries[at].key, key, size) != 0):
        at = (at + 1) & (_ENTRIES - 1)
    return <int> at


cdef inline int64_t _word(Scan* scan, Words* words, Py_ssize_t start, Py_ssize_t end) noexcept nogil:
    """Return the number of a text among the words."""
    cdef const unsigned char* text = scan.text
    cdef uint64_t at = _hash(text + start, end - start, scan.seed) & words.mask
    cdef uint32_t number = words.slots[at]
    while number:
        if (
            words.ends[number] - words.starts[number] == end - start
            and memcmp(text + words.starts[number], text + start, end - start) == 0
        ):
            return number
        at = (at + 1) & words.mask
        number = words.slots[at]
    number = <uint32_t> words.count
    words.slots[at] = number
    words.starts[number] = start
    words.ends[number] = end
    words.count += 1
    return number


cdef inline Py_ssize_t _again(const Scan* scan, const Words* words, int64_t number, Py_ssize_t start) noexcept nogil:
    """Return the end of the value that begins there if it is the word with this number again; else 0."""
    cdef const unsigned char* text = scan.text
    cdef Py_ssize_t size = words.ends[number] - words.starts[number]
    if size == 0 or size >= scan.size - start or memcmp(text + words.starts[number], text + start, size) != 0:
        return 0
    return 0 if _is_digit(text[start + size - 1]) and _goes_on(text[start + size]) else start + size


cdef inline Py_ssize_t _blank(const unsigned char* text, Py_ssize_t at) noexcept nogil:
    """Return the start of the next token."""
    while text[at] == c' ' or text[at] == c'\n' or text[at] == c'\t' or text[at] == c'\r':
        at += 1
    return at


cdef inline int _fault(Scan* scan, Py_ssize_t at) noexcept nogil:
    """Return how a scan ends that cannot continue there."""
    return _PARTIAL if at >= scan.size else _BROKEN


cdef inline bint _is_digit(unsigned char sign) noexcept nogil:
    return c'0' <= sign <= c'9'


cdef inline bint _is_hex(unsigned char sign) noexcept nogil:
    return _is_digit(sign) or c'a' <= sign <= c'f' or c'A' <= sign <= c'F'


cdef inline bint _goes_on(unsigned char sign) noexcept nogil:
    """Return whether the character belongs to the number before it."""
    return _is_digit(sign) or sign == c'.' or sign == c'e' or sign == c'E'


cdef inline bint _holds(uint64_t signs, uint64_t sign) noexcept nogil:
    """Return whether one of the eight bytes is the character."""
    cdef uint64_t ones = <uint64_t> 0x0101010101010101
    signs ^= ones * sign
    return ((signs - ones) & ~signs & (ones << 7)) != 0


cdef int _string(Scan* scan, Py_ssize_t* at, bint* escaped) noexcept nogil:
    """Skip the string that begins there; ``escaped`` is set if it has escapes."""
    cdef const unsigned char* text = scan.text
    cdef Py_ssize_t i = at[0] + 1
    cdef uint64_t signs
    while True:
        while i + 8 <= scan.size:
            memcpy(&signs, text + i, 8)
            if _holds(signs, c'"') or _holds(signs, c'\\'):
                break
            i += 8
        while i < scan.size and text[i] != c'"' and text[i] != c'\\':
            i += 1
        if i >= scan.size:
            return _PARTIAL
        if text[i] == c'"':
            at[0] = i + 1
            return _DONE
        escaped[0] = True
        i += 1
        if text[i] == c'u':
            for _ in range(4):
                i += 1
                if not _is_hex(text[i]):
                    return _fault(scan, i)
        elif not (
            text[i] == c'"' or text[i] == c'\\' or text[i] == c'/' or text[i] == c'n' or text[i] == c't'
            or text[i] == c'r' or text[i] == c'b' or text[i] == c'f'
        ):
            return _fault(scan, i)
        i += 1


cdef int _number(Scan* scan, Py_ssize_t* at, bint* whole) noexcept nogil:
    """Skip the number that begins there; ``whole`` is cleared if it has a point or an exponent."""
    cdef const unsigned char* text = scan.text
    cdef Py_ssize_t i = at[0]
    if text[i] == c'-':
        i += 1
    if text[i] == c'0':
        i += 1
    elif _is_digit(text[i]):
        while _is_digit(text[i]):
            i += 1
    else:
        return _fault(scan, i)
    if text[i] == c'.':
        whole[0] = False
        i += 1
        if not _is_digit(text[i]):
            return _fault(scan, i)
        while _is_digit(text[i]):
            i += 1
    if text[i] == c'e' or text[i] == c'E':
        whole[0] = False
        i += 1
        if text[i] == c'+' or text[i] == c'-':
            i += 1
        if not _is_digit(text[i]):
            return _fault(scan, i)
        while _is_digit(text[i]):
            i += 1
    if i >= scan.size:  # it may continue in the next text
        return _PARTIAL
    at[0] = i
    return _DONE


cdef int _literal(Scan* scan, Py_ssize_t* at, const char* word, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(size):
        if scan.text[at[0] + i] != <unsigned char> word[i]:
            return _fault(scan, at[0] + i)
    at[0] += size
    return _DONE


cdef int _scalar(Scan* scan, Py_ssize_t* at) noexcept nogil:
    """Skip a value that is no list and no object. NaN and infinities are accepted, as by Python's reader."""
    cdef bint ignored = False
    cdef unsigned char sign = scan.text[at[0]]
    if sign == c'"':
        return _string(scan, at, &ignored)
    if sign == c'-' and scan.text[at[0] + 1] == c'I':
        return _literal(scan, at, b"-Infinity", 9)
    if sign == c'-' or _is_digit(sign):
        return _number(scan, at, &ignored)
    if sign == c't':
        return _literal(scan, at, b"true", 4)
    if sign == c'f':
        return _literal(scan, at, b"false", 5)
    if sign == c'n':
        return _literal(scan, at, b"null", 4)
    if sign == c'N':
        return _literal(scan, at, b"NaN", 3)
    if sign == c'I':
        return _literal(scan, at, b"Infinity", 8)
    return _fault(scan, at[0])


cdef inline int _colon(Scan* scan, Py_ssize_t* at) noexcept nogil:
    """Move from the end of a key to its value."""
    cdef Py_ssize_t i = _blank(scan.text, at[0])
    if scan.text[i] != c':':
        return _fault(scan, i)
    at[0] = _blank(scan.text, i + 1)
    return _DONE


cdef int _skip(Scan* scan, Py_ssize_t* at) noexcept nogil:
    """Skip any value."""
    cdef const unsigned char* text = scan.text
    cdef unsigned char[_DEPTH] closing
    cdef int depth = 0, ending
    cdef bint ignored = False, is_due
    cdef Py_ssize_t i = at[0]
    while True:
        is_due = True  # a value is expected at i, unless the list or object that opens there is empty
        if text[i] == c'{' or text[i] == c'[':
            if depth == _DEPTH:
                return _BROKEN
            closing[depth] = c'}' if text[i] == c'{' else c']'
            i = _blank(text, i + 1)
            if text[i] == closing[depth]:
                i += 1
            else:
                depth += 1
                is_due = False
        else:
            ending = _scalar(scan, &i)
            if ending != _DONE:
                return ending
        while is_due:  # a value has ended
            if depth == 0:
                at[0] = i
                return _DONE
            i = _blank(text, i)
            if text[i] == c',':
                i = _blank(text, i + 1)
                is_due = False
            elif text[i] == closing[depth - 1]:
                i += 1
                depth -= 1
            else:
                return _fault(scan, i)
        if closing[depth - 1] == c'}':
            if text[i] != c'"':
                return _fault(scan, i)
            ending = _string(scan, &i, &ignored)
            if ending == _DONE:
                ending = _colon(scan, &i)
            if ending != _DONE:
                return ending


cdef inline bint _plain(Scan* scan, Py_ssize_t* at, int places, int64_t* value) noexcept nogil:
    """Skip the number that begins there, if it fits, with up to ``places`` decimals and no exponent."""
    cdef const unsigned char* text = scan.text
    cdef Py_ssize_t i = at[0], start = i
    cdef uint64_t number = 0
    while _is_digit(text[i]):
        number = number * 10 + (text[i] - c'0')
        i += 1
    if i - start > 18 or (text[start] == c'0' and i - start > 1) or (places and number >= _FARTHEST_US):
        return False
    if places and text[i] == c'.' and _is_digit(text[i + 1]):
        i += 1
        while places and _is_digit(text[i]):
            number = number * 10 + (text[i] - c'0')
            places -= 1
            i += 1
    while places:
        number *= 10
        places -= 1
    if i >= scan.size or _goes_on(text[i]):
        return False
    at[0], value[0] = i, <int64_t> number
    return True


cdef inline bint _time(Scan* scan, Py_ssize_t start, Py_ssize_t end, int64_t* value) noexcept nogil:
    """Convert decimal microseconds to ns, rounded half to even; return whether the digits fit."""
    cdef const unsigned char* text = scan.text
    cdef Py_ssize_t i = start
    cdef bint negative = text[i] == c'-', more = False
    cdef int64_t ns = 0
    cdef int places = 0
    cdef unsigned char after
    if negative:
        i += 1
    start = i
    while i < end and text[i] != c'.':
        if i - start == 16:
            return False
        ns = ns * 10 + (text[i] - c'0')
        i += 1
    if <uint64_t> ns >= _FARTHEST_US:
        return False
    i += 1
    while i < end and places < 3:
        ns = ns * 10 + (text[i] - c'0')
        places += 1
        i += 1
    while places < 3:
        ns *= 10
        places += 1
    if i < end:
        after = text[i]
        i += 1
        while i < end and not more:
            more = text[i] != c'0'
            i += 1
        if after > c'5' or (after == c'5' and (more or ns & 1)):
            ns += 1
    value[0] = -ns if negative else ns
    return True


cdef inline bint _integer(Scan* scan, Py_ssize_t start, Py_ssize_t end, int64_t* value) noexcept nogil:
    """Read an integer of up to 18 digits; return whether it is one."""
    cdef const unsigned char* text = scan.text
    cdef Py_ssize_t i = start
    cdef bint negative = i < end and text[i] == c'-'
    cdef int64_t number = 0
    if negative:
        i += 1
    if i == end or end - i > 18 or (text[i] == c'0' and (end - i > 1 or negative)):
        return False
    while i < end:
        if not _is_digit(text[i]):
            return False
        number = number * 10 + (text[i] - c'0')
        i += 1
    value[0] = -number if negative else number
    return True


cdef int _kept(Scan* scan, Py_ssize_t* at, int column) noexcept nogil:
    """Skip a value and write it into the column."""
    cdef const unsigned char* text = scan.text
    cdef Py_ssize_t start = at[0]
    cdef unsigned char sign = text[start]
    cdef bint escaped = False, whole = True
    cdef int ending, form = scan.forms[column]
    cdef Words* words
    cdef Py_ssize_t end
    cdef uint64_t bit = <uint64_t> 1 << column
    if scan.seen & bit:  # the strict reader decides which of equal keys, or of two spellings, counts
        scan.odd = True
        return _skip(scan, at)
    scan.seen |= bit
    if form < _LABEL and _is_digit(sign) and _plain(scan, at, 3 if form == _TIME else 0, &scan.values[column]):
        return _DONE
    words = &scan.labels if form == _LABEL else &scan.texts
    end = _again(scan, words, scan.last[column], start)
    if end:
        at[0] = end
        ending = _DONE
    elif sign == c'"':
        ending = _string(scan, at, &escaped)
    elif _is_digit(sign) or (sign == c'-' and text[start + 1] != c'I'):
        ending = _number(scan, at, &whole)
    elif form >= _LABEL and (sign == c'[' or sign == c'{'):
        ending = _skip(scan, at)
    elif sign == c'n':
        return _literal(scan, at, b"null", 4)
    else:
        scan.odd = True
        return _skip(scan, at)
    if ending != _DONE:
        return ending
    if column == scan.ph:
        scan.phase = text[start + 1] if sign == c'"' and at[0] - start == 3 else 0
    elif column == scan.cat and sign == c'"':
        scan.category = start + 1
        scan.category_end = at[0] - 1
    if form >= _LABEL:
        scan.last[column] = scan.values[column] = scan.last[column] if end else _word(scan, words, start, at[0])
    elif sign == c'"':
        if form == _TIME or not _integer(scan, start + 1, at[0] - 1, &scan.values[column]):
            scan.odd = True
    elif form == _TIME:
        if not (whole or _has_no_exponent(text, start, at[0])) or not _time(scan, start, at[0], &scan.values[column]):
            scan.odd = True
    elif not _integer(scan, start, at[0], &scan.values[column]):
        scan.odd = True
    return _DONE


cdef inline bint _has_no_exponent(const unsigned char* text, Py_ssize_t start, Py_ssize_t end) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(start, end):
        if text[i] == c'e' or text[i] == c'E':
            return False
    return True


cdef inline int _key(Scan* scan, Py_ssize_t* at, Entry* entries, int* place) noexcept nogil:
    """Skip the key that begins there, and move from the previous key's entry to its own."""
    cdef const unsigned char* text = scan.text
    cdef Py_ssize_t start = at[0] + 1
    cdef const Entry* entry = &entries[entries[place[0]].next]
    cdef bint escaped = False
    cdef int ending, slot = _ENTRIES
    if (
        entry.key != NULL and entry.size < scan.size - start and text[start + entry.size] == c'"'
        and memcmp(entry.key, text + start, entry.size) == 0
    ):
        at[0] = start + entry.size + 1
        place[0] = entries[place[0]].next
        return _DONE
    ending = _string(scan, at, &escaped)
    if ending != _DONE:
        return ending
    if escaped:  # it may be a known key
        scan.odd = True
    else:
        slot = _place(entries, text + start, at[0] - 1 - start, scan.seed)
        if entries[slot].key == NULL and scan.learned < _LEARNED:
            entries[slot].key, entries[slot].size = text + start, at[0] - 1 - start
            scan.learned += 1
        elif entries[slot].key == NULL:
            slot = _ENTRIES
    entries[place[0]].next = slot
    place[0] = slot
    return _DONE


cdef int _object(Scan* scan, Py_ssize_t* at, Entry* entries) noexcept nogil:
    """Skip the object that begins there, an event or its arguments, and keep the values of its entries."""
    cdef const unsigned char* text = scan.text
    cdef Py_ssize_t i = _blank(text, at[0] + 1)
    cdef int place = _ENTRIES, column, ending
    if text[i] == c'}':
        at[0] = i + 1
        return _DONE
    while True:
        if text[i] != c'"':
            return _fault(scan, i)
        ending = _key(scan, &i, entries, &place)
        if ending == _DONE:
            ending = _colon(scan, &i)
        if ending != _DONE:
            return ending
        column = entries[place].value
        if column == _ARGUMENTS:
            if scan.has_arguments:
                scan.odd = True
            scan.has_arguments = True
            ending = _object(scan, &i, scan.arguments) if text[i] == c'{' else _skip(scan, &i)
        elif column >= 0:
            ending = _kept(scan, &i, column)
        else:
            ending = _skip(scan, &i)
        if ending != _DONE:
            return ending
        i = _blank(text, i)
        if text[i] == c'}':
            at[0] = i + 1
            return _DONE
        if text[i] != c',':
            return _fault(scan, i)
        i = _blank(text, i + 1)


cdef class Keys:
    """Hold keys, up to half as many as there are entries, and their columns."""

    cdef Entry[_ENTRIES + 1] entries
    cdef list kept

    def __cinit__(self, meanings, uint64_t seed):
        cdef int at
        cdef bytes key
        if len(meanings) > _ENTRIES // 2:
            raise ValueError("too many keys")
        for at in range(_ENTRIES + 1):
            self.entries[at] = Entry(NULL, 0, -1, _ENTRIES)
        self.kept = [text.encode() for text in meanings]
        for key, value in zip(self.kept, meanings.values()):
            at = _place(self.entries, key, len(key), seed)
            self.entries[at].key = key
            self.entries[at].size = len(key)
            self.entries[at].value = value


cdef class Scanner:
    """Hold columns for the events of one text at a time. Not for use by two threads at once."""

    cdef Keys fields, arguments, categories
    cdef int[_COLUMNS] forms
    cdef unsigned char[_ROUTES][2] phases
    cdef int64_t[_COLUMNS] nothing
    cdef int[_NO_ROUTE + 1][_COLUMNS] wanted
    cdef int[_NO_ROUTE + 1] wanted_counts
    cdef uint64_t[_NO_ROUTE + 1] has_room
    cdef Scan scan
    cdef Py_ssize_t width, room, count
    cdef dict names
    cdef int64_t* values
    cdef uint8_t* routes
    cdef int64_t* starts
    cdef int64_t* ends
    cdef uint32_t* order
    cdef Py_ssize_t[_NO_ROUTE + 1] counts
    cdef Py_ssize_t[_NO_ROUTE + 1] offsets
    cdef uint64_t[_NO_ROUTE + 1] present

    def __cinit__(self, columns, fields, arguments, routes, seed, rows):
        """Make room for ``rows`` events.

        ``columns`` are (name, form), including ``ph`` and ``cat``; ``fields`` and ``arguments`` map keys to names of
        columns; ``routes`` are (categories, phases, names of columns): events of such a category and phase have these
        columns. Other events have all columns.
        """
        if len(columns) > _COLUMNS or len(routes) > _ROUTES or rows < 1:
            raise ValueError("too many columns or routes")
        self.names = {name: number for number, (name, _) in enumerate(columns)}
        self.fields = Keys({key: self.names[name] for key, name in fields.items()} | {"args": _ARGUMENTS}, seed)
        self.arguments = Keys({key: self.names[name] for key, name in arguments.items()}, seed)
        self.categories = Keys({name: code for code, (known, _, _) in enumerate(routes) for name in known}, seed)
        memset(self.wanted_counts, 0, sizeof(self.wanted_counts))
        memset(self.has_room, 0, sizeof(self.has_room))
        for code, (_, signs, wanted) in enumerate(routes):
            self.phases[code][0], self.phases[code][1] = ord(signs[0]), ord(signs[len(signs) - 1])
            for name in wanted:
                self._want(code, self.names[name])
        for number, (_, form) in enumerate(columns):
            self._want(_NO_ROUTE, number)
            self.forms[number] = form
            self.nothing[number] = 0 if form == _LABEL or form == _TEXT else INT64_MIN
        self.width, self.room = len(columns), rows
        self.scan.seed = seed
        self.scan.forms = self.forms
        self.scan.ph, self.scan.cat = self.names["ph"], self.names["cat"]
        self.values = <int64_t*> malloc(self.width * rows * sizeof(int64_t))
        self.routes = <uint8_t*> malloc(rows)
        self.starts = <int64_t*> malloc(rows * sizeof(int64_t))
        self.ends = <int64_t*> malloc(rows * sizeof(int64_t))
        self.order = <uint32_t*> malloc(rows * sizeof(uint32_t))
        if (
            self.values == NULL or self.routes == NULL or self.starts == NULL or self.ends == NULL or self.order == NULL
        ):
            raise MemoryError
        _make(&self.scan.labels, 4 * rows + _COLUMNS)
        _make(&self.scan.texts, 4 * rows + _COLUMNS)

    cdef _want(self, int route, int column):
        self.has_room[route] |= <uint64_t> 1 << column
        if self.wanted_counts[route] == _COLUMNS:
            raise ValueError("a column twice")
        self.wanted[route][self.wanted_counts[route]] = column
        self.wanted_counts[route] += 1

    def __dealloc__(self):
        free(self.values)
        free(self.routes)
        free(self.starts)
        free(self.ends)
        free(self.order)
        _unmake(&self.scan.labels)
        _unmake(&self.scan.texts)

    def read(self, bytes text not None, Py_ssize_t at, Py_ssize_t size):
        """Scan the first ``size`` bytes from the event at ``at`` on; return (ending, end of the scan, events).

        An event that the bytes do not contain completely, with the token after it, does not count; it begins where
        the scan ended.
        """
        cdef int ending
        if not 0 <= at <= size <= len(text):
            raise ValueError("no place in the text")
        self.scan.text, self.scan.size = text, size
        memset(self.scan.labels.slots, 0, (self.scan.labels.mask + 1) * sizeof(uint32_t))
        memset(self.scan.texts.slots, 0, (self.scan.texts.mask + 1) * sizeof(uint32_t))
        self.scan.labels.count = self.scan.texts.count = 1
        memcpy(self.scan.fields, self.fields.entries, sizeof(self.fields.entries))
        memcpy(self.scan.arguments, self.arguments.entries, sizeof(self.arguments.entries))
        memset(self.scan.last, 0, sizeof(self.scan.last))
        self.scan.learned = 0
        memset(self.counts, 0, sizeof(self.counts))
        memset(self.present, 0, sizeof(self.present))
        with nogil:
            ending = self._events(&at)
            self._group()
        return ending, at, self.count

    cdef void _group(self) noexcept nogil:
        """Sort the numbers of events by their routes; those of a route begin at its offset."""
        cdef Py_ssize_t i, at = 0
        cdef Py_ssize_t[_NO_ROUTE + 1] places
        for i in range(_NO_ROUTE + 1):
            self.offsets[i] = places[i] = at
            at += self.counts[i]
        for i in range(self.count):
            self.order[places[self.routes[i]]] = <uint32_t> i
            places[self.routes[i]] += 1

    cdef int _events(self, Py_ssize_t* at) noexcept nogil:
        cdef Scan* scan = &self.scan
        cdef const unsigned char* text = scan.text
        cdef Py_ssize_t i, end, column
        cdef int ending, route
        self.count = 0
        while True:
            i = at[0] = _blank(text, at[0])
            if i >= scan.size:
                at[0] = scan.size
                return _MORE
            if (
                self.count == self.room
                or scan.labels.count + self.width > scan.labels.room
                or scan.texts.count + self.width > scan.texts.room
            ):
                return _FULL
            if text[i] != c'{':
                return _BROKEN
            memcpy(scan.values, self.nothing, sizeof(self.nothing))
            scan.seen = 0
            scan.has_arguments = scan.odd = False
            scan.phase = 0
            scan.category = scan.category_end = 0
            ending = _object(scan, &i, scan.fields)
            if ending != _DONE:
                return ending
            end = _blank(text, i)
            if end >= scan.size:  # the rest belongs to the next scan
                return _PARTIAL
            if text[end] != c',' and text[end] != c']':
                return _fault(scan, end)
            self.starts[self.count], self.ends[self.count] = at[0], i
            route = self._route()
            self.routes[self.count] = <uint8_t> route
            self.counts[route] += 1
            self.present[route] |= scan.seen
            for i in range(self.wanted_counts[route]):
                column = self.wanted[route][i]
                self.values[column * self.room + self.count] = scan.values[column]
            self.count += 1
            at[0] = end
            if text[end] == c']':
                return _CLOSED
            at[0] += 1

    cdef inline int _route(self) noexcept nogil:
        """Return the route of the current event."""
        cdef Scan* scan = &self.scan
        cdef int route
        if scan.odd:
            return _ODD
        if scan.category_end:
            route = self.categories.entries[
                _place(
                    self.categories.entries, scan.text + scan.category, scan.category_end - scan.category, scan.seed
                )
            ].value
            if route >= 0 and (scan.phase == self.phases[route][0] or scan.phase == self.phases[route][1]):
                return route
        return _NO_ROUTE

    def taken(self):
        """Return the number of events of the last scan on each route that has any."""
        return {route: self.counts[route] for route in range(_NO_ROUTE + 1) if self.counts[route]}

    def rows(self, int route, uint32_t first):
        """Return numbers of the route's events, where the first event of the scan is ``first``."""
        self._check(route)
        cdef Column column = column_of(self.counts[route], sizeof(uint32_t), "I", False)
        cdef uint32_t* out = <uint32_t*> column.array.buffers[1]
        cdef const uint32_t* order = self.order + self.offsets[route]
        cdef Py_ssize_t i
        for i in range(self.counts[route]):
            out[i] = first + order[i]
        return column

    def has(self, int route, str name):
        """Return whether the route is read for the column and any of its events has it."""
        self._check(route)
        return bool((self.present[route] & self.has_room[route]) >> <int> self.names[name] & 1)

    cdef int _check(self, int route) except -1:
        if not 0 <= route <= _NO_ROUTE:
            raise IndexError("no such route")
        return 0

    cdef const int64_t* _of(self, int route, str name) except NULL:
        """Return the values of a column that the route is read for."""
        cdef Py_ssize_t column = self.names[name]
        self._check(route)
        if not self.has_room[route] >> column & 1:
            raise KeyError(name)
        return self.values + column * self.room

    def codes(self, int route, str name):
        """Return a column of labels or texts as numbers of words; 0 without a value."""
        cdef const int64_t* values = self._of(route, name)
        cdef Column column = column_of(self.counts[route], sizeof(uint32_t), "I", False)
        cdef uint32_t* out = <uint32_t*> column.array.buffers[1]
        cdef const uint32_t* order = self.order + self.offsets[route]
        cdef Py_ssize_t i
        for i in range(self.counts[route]):
            out[i] = <uint32_t> values[order[i]]
        return column

    def integers(self, int route, str name):
        """Return a column of times or integers as int64 with nulls."""
        cdef const int64_t* values = self._of(route, name)
        cdef Column column = column_of(self.counts[route], sizeof(int64_t), "l", True)
        cdef int64_t* out = <int64_t*> column.array.buffers[1]
        cdef uint8_t* valid = <uint8_t*> column.array.buffers[0]
        cdef const uint32_t* order = self.order + self.offsets[route]
        cdef Py_ssize_t i, known = 0
        for i in range(self.counts[route]):
            out[i] = values[order[i]]
            valid[i >> 3] |= <uint8_t> ((out[i] != INT64_MIN) << (i & 7))
            known += out[i] != INT64_MIN
        column.array.null_count = self.counts[route] - known
        return column

    def tracks(self, str process, str thread, uint32_t first):
        """Return (numbers, codes, codes) of events, with at least the first of each pair of these two labels."""
        cdef const int64_t* processes = self._of(_NO_ROUTE, process)
        cdef const int64_t* threads = self._of(_NO_ROUTE, thread)
        cdef Py_ssize_t i, at = 0
        cdef tuple columns = tuple(column_of(self.count, sizeof(uint32_t), "I", False) for _ in range(3))
        cdef uint32_t* numbers = <uint32_t*> (<Column> columns[0]).array.buffers[1]
        cdef uint32_t* out = <uint32_t*> (<Column> columns[1]).array.buffers[1]
        cdef uint32_t* others = <uint32_t*> (<Column> columns[2]).array.buffers[1]
        cdef uint32_t* last = <uint32_t*> calloc(self.scan.labels.count, sizeof(uint32_t))  # for each thread
        if last == NULL:
            raise MemoryError
        for i in range(self.count):
            if self.routes[i] < _ROUTES and last[threads[i]] != processes[i] + 1:
                last[threads[i]] = <uint32_t> processes[i] + 1
                numbers[at], out[at], others[at] = first + <uint32_t> i, <uint32_t> processes[i], <uint32_t> threads[i]
                at += 1
        free(last)
        for column in columns:
            column.keep(at)
        return columns

    def places(self, int route):
        """Return (number, start, end) of the route's events in the text."""
        return [(i, self.starts[i], self.ends[i]) for i in range(self.count) if self.routes[i] == route]

    def words(self, bytes text not None, int form, read):
        """Return the words of the last scan of this text, by number; ``read`` converts the few unusual ones."""
        cdef Words* words = &self.scan.labels if form == _LABEL else &self.scan.texts
        cdef const unsigned char* signs = text
        cdef int64_t number, start, end
        cdef Py_ssize_t size, room = 0
        cdef unsigned char* copy = NULL
        cdef list decoded = [None]
        if signs != self.scan.text:
            raise ValueError("another text")
        for number in range(1, words.count):
            room = max(room, 2 * (words.ends[number] - words.starts[number]))
        copy = <unsigned char*> malloc(room + 1)
        if copy == NULL:
            raise MemoryError
        try:
            for number in range(1, words.count):
                start, end = words.starts[number], words.ends[number]
                if signs[start] == c'"' and memchr(signs + start, c'\\', end - start) == NULL:
                    decoded.append(signs[start + 1:end - 1].decode("utf-8", "replace"))
                elif signs[start] == c'-' or _is_digit(signs[start]):
                    decoded.append(signs[start:end].decode("ascii"))
                else:
                    size = _spaced(signs, start, end, copy)
                    decoded.append(copy[:size].decode("utf-8", "replace") if size else read(text[start:end]))
        finally:
            free(copy)
        return decoded


cdef Py_ssize_t _spaced(
    const unsigned char* text, Py_ssize_t start, Py_ssize_t end, unsigned char* copy
) noexcept nogil:
    """Return the length of a list written with one blank after each comma; 0 if it needs the strict reader."""
    cdef Py_ssize_t i, size = 0
    cdef bint quoted = False
    cdef unsigned char sign
    for i in range(start, end):
        sign = text[i]
        if sign == c'\\' or (quoted and sign < c' ') or (not quoted and _is_word(sign)):
            return 0
        if quoted or not (sign == c' ' or sign == c'\n' or sign == c'\t' or sign == c'\r'):
            copy[size] = sign
            size += 1
        if sign == c'"':
            quoted = not quoted
        elif sign == c',' and not quoted:
            copy[size] = c' '
            size += 1
    return size


cdef inline bint _is_word(unsigned char sign) noexcept nogil:
    """Return whether it contains a literal (true, NaN), an object, or an exponent, outside strings."""
    return sign == c'{' or c'a' <= sign <= c'z' or c'A' <= sign <= c'Z'


cdef _make(Words* words, Py_ssize_t room):
    cdef Py_ssize_t size = 1
    while size < 2 * room:
        size *= 2
    words.mask, words.room = size - 1, room
    words.slots = <uint32_t*> malloc(size * sizeof(uint32_t))
    words.starts = <int64_t*> malloc(room * sizeof(int64_t))
    words.ends = <int64_t*> malloc(room * sizeof(int64_t))
    if words.slots == NULL or words.starts == NULL or words.ends == NULL:
        raise MemoryError
    words.starts[0] = words.ends[0] = 0


cdef void _unmake(Words* words) noexcept:
    free(words.slots)
    free(words.starts)
    free(words.ends)
