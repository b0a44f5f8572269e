# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
"""Read the pickle of a memory snapshot in one pass, and never make an object of a class.

Plain Python that Cython compiles with the types of ``_pickle_reader.pxd``. Of the opcodes of protocols 2 to 5
(CPython's ``Lib/pickletools.py`` defines them) only those for numbers, texts, lists, tuples and dictionaries are read.
Stack and memo are columns of kinds and numbers. Dictionaries and lists become objects only when they are complete and are
neither a frame, nor a call stack, nor an event, of which numbers remain.
"""

import struct
from array import array
from collections.abc import Iterator
from typing import Any

MOST_TEXT = 1 << 20
"""Longest text in bytes: names of C++ functions reach some thousands."""
MOST_DEPTH = 64
"""Most open marks: a snapshot has six levels."""
MOST_STACK = 4096
"""Most frames of a call stack; PyTorch's unwinder and Python stop far below."""
UNKNOWN = -(1 << 63)
"""What stands for a number that an event lacks."""
EVENT_COLUMNS = ("action", "address", "bytes", "stream", "time_us", "stack")
"""What is kept of an event, each a column of integers: the number of its action's text, `UNKNOWN` for what it lacks."""
_CLASSES = {0x63: "GLOBAL", 0x93: "STACK_GLOBAL", 0x69: "INST", 0x6F: "OBJ", 0x52: "REDUCE", 0x62: "BUILD", 0x81: "NEWOBJ", 0x92: "NEWOBJ_EX", 0x50: "PERSID", 0x51: "BINPERSID", 0x82: "EXT1", 0x83: "EXT2", 0x84: "EXT4"}  # fmt: skip
_KEYS = ("action", "addr", "size", "stream", "time_us", "frames", "device_free", "filename", "name", "line")
_ACTION, _ADDR, _SIZE, _STREAM, _TIME, _FRAMES, _FREE, _FILE, _NAME, _LINE = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
# Kinds of values, and what the number of each is.
_INT = 0  # itself
_TEXT = 1  # row of texts
_FRAME = 2  # its number
_STACK = 3  # its number
_EVENT = 4  # its number
_TRACE = 5  # its number
_DICT = 6  # nothing yet: it is empty
_LIST = 7  # nothing yet: it is empty
_OBJECT = 8  # row of objects
_OF_EVENT, _OF_FRAME = 0b101, 0b1110000000  # keys that an event has, and a frame
_BLOCK = 1024
"""Events that are added to the columns at once."""


class RefusedError(ValueError):
    """Signal a pickle that is no snapshot, and say at which byte and why."""


class Pickle:
    """Read one pickle from blocks of bytes.

    ``root`` is the document. In it, a list of events is ``[k]``, the number of its trace, and the value of ``frames`` is
    the number of a call stack. ``frames`` are (name, file, line), a row of ``stacks`` has the bytes of the int64 numbers
    of its frames, ``events`` a column for each of `EVENT_COLUMNS`, in the order of ``traces``, which has the number of
    the trace and of its events, for each list of them that was read.
    """

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._buffer: Any = memoryview(b"")
        self._at = self._left = self._before = 0
        self._depth = self._n_memo = self._n_marks = 0
        self._kinds, self._memo_kinds = array("b", bytes(1024)), array("b", bytes(1024))
        # Where each value of the stack is remembered; what it becomes is then known there, too.
        self._values, self._memo, self._places = (array("q", bytes(8 * 1024)) for _ in range(3))
        self._view = memoryview(self._values)
        self._marks = array("q", bytes(8 * MOST_DEPTH))
        self._of_key = array("q", bytes(8 * len(_KEYS)))  # where the value of each key of a dictionary is
        self._end = 0
        self._block = array("q", bytes(8 * _BLOCK * len(EVENT_COLUMNS)))
        self._n_events = self._n_placed = self._n_traces = 0
        self._text_numbers = {key: number for number, key in enumerate(_KEYS)}
        self._frame_numbers: dict[tuple[int, int, int], int] = {}
        self._stack_numbers: dict[bytes, int] = {}
        self._objects: list[Any] = [None, False, True]
        self.texts: list[str] = list(_KEYS)
        self.frames: list[tuple[str, str, int]] = []
        self.stacks: list[bytes] = []
        self.events = [array("q") for _ in EVENT_COLUMNS]
        self.traces: list[tuple[int, int]] = []
        self.root: Any = None

    def read(self) -> None:
        """Read to the end. Raises `RefusedError`."""
        if self._byte() != 0x80:
            raise self._refused("no pickle of protocol 2 to 5 begins here")
        self._at -= 1
        self._left += 1
        while True:
            code = self._byte()
            if code == 0x6A:  # LONG_BINGET, nearly all of a file
                self._get(self._unsigned(4))
            elif code == 0x68:  # BINGET
                self._get(self._unsigned(1))
            elif code == 0x28:  # MARK
                if self._n_marks >= MOST_DEPTH:
                    raise self._refused(f"it nests deeper than {MOST_DEPTH} levels")
                self._marks[self._n_marks] = self._depth
                self._n_marks += 1
            elif code == 0x4B:  # BININT1
                self._push(_INT, self._unsigned(1))
            elif code == 0x4D:  # BININT2
                self._push(_INT, self._unsigned(2))
            elif code == 0x4A:  # BININT
                self._push(_INT, (self._unsigned(4) ^ 0x80000000) - 0x80000000)
            elif code == 0x8A:  # LONG1
                self._long(self._unsigned(1))
            elif code == 0x71:  # BINPUT
                self._put(self._unsigned(1))
            elif code == 0x72:  # LONG_BINPUT
                self._put(self._unsigned(4))
            elif code == 0x94:  # MEMOIZE
                self._put(self._n_memo)
            elif code == 0x7D:  # EMPTY_DICT
                self._push(_DICT, 0)
            elif code == 0x5D:  # EMPTY_LIST
                self._push(_LIST, 0)
            elif code == 0x75:  # SETITEMS
                self._set_items(self._to_mark())
            elif code == 0x73:  # SETITEM
                self._set_items(self._top(2))
            elif code == 0x65:  # APPENDS
                self._append(self._to_mark())
            elif code == 0x61:  # APPEND
                self._append(self._top(1))
            elif code == 0x8C:  # SHORT_BINUNICODE
                self._text(self._unsigned(1))
            elif code == 0x58:  # BINUNICODE
                self._text(self._unsigned(4))
            elif code == 0x8D:  # BINUNICODE8
                self._text(self._unsigned(8))
            elif code == 0x4E:  # NONE
                self._push(_OBJECT, 0)
            elif code == 0x88 or code == 0x89:  # NEWTRUE, NEWFALSE
                self._push(_OBJECT, 2 if code == 0x88 else 1)
            elif code == 0x47:  # BINFLOAT
                self._push_object(struct.unpack(">d", self._bytes(8))[0])
            elif code == 0x29:  # EMPTY_TUPLE
                self._push_object(())
            elif code == 0x74:  # TUPLE
                self._push_object(tuple(self._cut(self._to_mark())))
            elif 0x85 <= code <= 0x87:  # TUPLE1 to TUPLE3
                self._push_object(tuple(self._cut(self._top(code - 0x84))))
            elif code == 0x80:  # PROTO
                if not 2 <= self._unsigned(1) <= 5:
                    raise self._refused("no pickle of protocol 2 to 5 begins here")
            elif code == 0x95:  # FRAME: a hint for reading ahead
                self._unsigned(8)
            elif code == 0x2E:  # STOP
                self.root = self._value(self._top(1))
                self._flush(self._n_events % _BLOCK)
                if self._n_placed < self._n_events:
                    raise self._refused("an event in no list of events")
                return
            elif code in _CLASSES:
                raise self._refused(
                    f"it asks for an object of a class ({_CLASSES[code]}), which a snapshot has none of"
                )
            else:
                raise self._refused(f"an opcode that snapshots do not use (0x{code:02x})")

    def _refused(self, reason: str) -> RefusedError:
        return RefusedError(f"byte {self._before + self._at:,}: {reason}")

    def _fill(self) -> None:
        """Take the next block, after the bytes of the present one that are left."""
        block = b""
        while not block:
            taken = next(self._blocks, None)
            if taken is None:
                raise self._refused("the file ends early")
            block = taken
        self._before += self._at
        self._buffer = memoryview(bytes(self._buffer[self._at : self._at + self._left]) + block)
        self._at = 0
        self._left = len(self._buffer)

    def _byte(self) -> int:
        if self._left < 1:
            self._fill()
        value: int = self._buffer[self._at]
        self._at += 1
        self._left -= 1
        return value

    def _unsigned(self, size: int) -> int:
        """Return an unsigned little-endian integer of ``size`` bytes."""
        while self._left < size:
            self._fill()
        value = 0
        for place in range(size):
            byte = self._buffer[self._at + place]
            value |= byte << (8 * place)
        self._at += size
        self._left -= size
        return value

    def _bytes(self, size: int) -> bytes:
        while self._left < size:
            self._fill()
        value = bytes(self._buffer[self._at : self._at + size])
        self._at += size
        self._left -= size
        return value

    def _long(self, size: int) -> None:
        """Push an integer of at most 64 bits; addresses may have no sign, and are kept with one."""
        if size > 9:
            raise self._refused(f"an integer of {size} bytes")
        if size < 8:
            half = 1
            half = half << 8 * size >> 1
            self._push(_INT, (self._unsigned(size) ^ half) - half)
        else:
            long = int.from_bytes(self._bytes(size), "little", signed=True)
            if not -(1 << 63) <= long < 1 << 64:
                raise self._refused("an integer of more than 64 bits")
            self._push(_INT, long - (1 << 64) if long >= 1 << 63 else long)

    def _text(self, size: int) -> None:
        if size < 0 or size > MOST_TEXT:
            raise self._refused(f"a text that claims more than {MOST_TEXT:,} bytes")
        text = self._bytes(size).decode("utf-8", "backslashreplace")
        number = self._text_numbers.setdefault(text, len(self.texts))
        if number == len(self.texts):
            self.texts.append(text)
        self._push(_TEXT, number)

    def _push(self, kind: int, value: int) -> None:
        if self._depth == len(self._values):
            self._kinds, self._values = _grown(self._kinds), _grown(self._values)
            self._places, self._view = _grown(self._places), memoryview(self._values)
        self._kinds[self._depth] = kind
        self._values[self._depth] = value
        self._places[self._depth] = -1
        self._depth += 1

    def _push_object(self, value: Any) -> None:
        self._push(_OBJECT, len(self._objects))
        self._objects.append(value)

    def _get(self, place: int) -> None:
        if place < 0 or place >= self._n_memo:
            raise self._refused(f"it refers to object {place:,} of {self._n_memo:,}")
        self._push(self._memo_kinds[place], self._memo[place])
        self._places[self._depth - 1] = place

    def _put(self, place: int) -> None:
        """Remember the top of the stack; picklers number objects without gaps, and a gap would claim memory."""
        top = self._top(1)
        self._depth = top + 1
        if place < 0 or place > self._n_memo:
            raise self._refused(f"it numbers object {self._n_memo:,} as {place:,}")
        if place == self._n_memo:
            if place == len(self._memo):
                self._memo_kinds, self._memo = _grown(self._memo_kinds), _grown(self._memo)
            self._n_memo += 1
        self._places[top] = place
        self._become(top, self._kinds[top], self._values[top])

    def _become(self, at: int, kind: int, value: int) -> None:
        """Set a value of the stack, and what is remembered of it."""
        self._kinds[at] = kind
        self._values[at] = value
        place = self._places[at]
        if place >= 0:
            self._memo_kinds[place] = kind
            self._memo[place] = value

    def _to_mark(self) -> int:
        """Take what is above the last mark off the stack, and return where it begins."""
        if not self._n_marks:
            raise self._refused("it takes a value that nothing has made")
        self._n_marks -= 1
        self._end = self._depth
        self._depth = self._marks[self._n_marks]
        return self._depth

    def _top(self, size: int) -> int:
        """Take ``size`` values off the stack, and return where they begin."""
        if self._depth - (self._marks[self._n_marks - 1] if self._n_marks else 0) < size:
            raise self._refused("it takes a value that nothing has made")
        self._end = self._depth
        self._depth -= size
        return self._depth

    def _cut(self, start: int) -> list[Any]:
        """Return the values that were taken off the stack as objects."""
        return [self._value(at) for at in range(start, self._end)]

    def _value(self, at: int) -> Any:
        """Return a value of the stack as an object; None for frames and call stacks, which only ``frames`` has."""
        kind, value = self._kinds[at], self._values[at]
        if kind == _INT:
            return value
        if kind == _TEXT:
            return self.texts[value]
        if kind == _TRACE:
            return [value]
        if kind == _EVENT:
            raise self._refused("an event in no list of events")
        if kind in (_DICT, _LIST):
            value = self._open(at)
        elif kind != _OBJECT:
            return None
        return self._objects[value]

    def _open(self, at: int) -> int:
        """Make an object of an empty dictionary or list, and return its row."""
        place = self._places[at]
        if place >= 0 and self._memo_kinds[place] == _OBJECT:
            self._become(at, _OBJECT, self._memo[place])
        else:
            made: Any = {} if self._kinds[at] == _DICT else []
            self._become(at, _OBJECT, len(self._objects))
            self._objects.append(made)
        return self._values[at]

    def _set_items(self, start: int) -> None:
        """Fill the dictionary on top, and number it if it is a frame or an event."""
        end, target = self._end, self._top(1)
        self._depth = target + 1
        if (end - start) % 2:
            raise self._refused("it fills something that is no open dictionary")
        seen = 0
        if self._kinds[target] == _DICT:
            for at in range(start, end, 2):
                if self._kinds[at] == _TEXT and self._values[at] <= _LINE:
                    seen |= 1 << self._values[at]
                    self._of_key[self._values[at]] = at + 1
        if seen & _OF_EVENT == _OF_EVENT:
            self._take_event(target, seen)
        elif seen & _OF_FRAME == _OF_FRAME:
            self._take_frame(target)
        else:
            self._fill_object(target, start, end)

    def _take_event(self, target: int, seen: int) -> None:
        """Move the numbers of an event to the columns."""
        at = self._of_key[_ACTION]
        if self._kinds[at] != _TEXT:
            raise self._refused("an event whose action is no text")
        row = self._n_events % _BLOCK
        self._block[row] = self._values[at]
        self._block[row + _BLOCK] = self._integer(seen, _ADDR if seen & 1 << _ADDR else _FREE)
        self._block[row + 2 * _BLOCK] = self._integer(seen, _SIZE)
        self._block[row + 3 * _BLOCK] = self._integer(seen, _STREAM)
        self._block[row + 4 * _BLOCK] = self._integer(seen, _TIME)
        self._block[row + 5 * _BLOCK] = self._stack_at(self._of_key[_FRAMES]) if seen & 1 << _FRAMES else UNKNOWN
        self._become(target, _EVENT, self._n_events)
        self._n_events += 1
        if row == _BLOCK - 1:
            self._flush(_BLOCK)

    def _flush(self, rows: int) -> None:
        view = memoryview(self._block)
        for number, column in enumerate(self.events):
            column.frombytes(view[number * _BLOCK : number * _BLOCK + rows].tobytes())

    def _integer(self, seen: int, key: int) -> int:
        if not seen & 1 << key:
            return UNKNOWN
        if self._kinds[self._of_key[key]] != _INT:
            raise self._refused("an event whose address, size, stream or time is no integer of 64 bits")
        return self._values[self._of_key[key]]

    def _stack_at(self, at: int) -> int:
        """Return the number of a call stack; `UNKNOWN` for an empty one."""
        if self._kinds[at] == _LIST:
            return UNKNOWN
        if self._kinds[at] != _STACK:
            raise self._refused("call stacks that are no lists of frames")
        return self._values[at]

    def _take_frame(self, target: int) -> None:
        name, file, line = self._of_key[_NAME], self._of_key[_FILE], self._of_key[_LINE]
        if self._kinds[name] != _TEXT or self._kinds[file] != _TEXT or self._kinds[line] != _INT:
            raise self._refused("a frame without name, file name or line")
        key = (self._values[name], self._values[file], self._values[line])
        number = self._frame_numbers.setdefault(key, len(self.frames))
        if number == len(self.frames):
            self.frames.append((self.texts[key[0]], self.texts[key[1]], key[2]))
        self._become(target, _FRAME, number)

    def _fill_object(self, target: int, start: int, end: int) -> None:
        if self._kinds[target] == _DICT:
            self._open(target)
        filled = self._objects[self._values[target]] if self._kinds[target] == _OBJECT else None
        if type(filled) is not dict:
            raise self._refused("it fills something that is no open dictionary")
        for at in range(start, end, 2):
            if self._kinds[at] != _TEXT and self._kinds[at] != _INT:
                raise self._refused("a key that is neither text nor integer")
            key, value = self._value(at), None
            if key != "frames":
                value = self._value(at + 1)
            elif self._stack_at(at + 1) != UNKNOWN:
                value = self._values[at + 1]
            filled[key] = value

    def _append(self, start: int) -> None:
        """Append to the list on top; of frames the list becomes a call stack, of events a trace."""
        end, target = self._end, self._top(1)
        self._depth, kind = target + 1, self._kinds[target]
        if start < end and self._kinds[start] == _FRAME and kind in (_LIST, _STACK):
            self._take_stack(target, start, end)
        elif start < end and self._kinds[start] == _EVENT and kind in (_LIST, _TRACE):
            self._take_events(target, start, end)
        else:
            if kind == _LIST:
                self._open(target)
            extended = self._objects[self._values[target]] if self._kinds[target] == _OBJECT else None
            if type(extended) is not list:
                raise self._refused("it appends to something that is no list, or of other values")
            self._end = end
            extended.extend(self._cut(start))

    def _take_stack(self, target: int, start: int, end: int) -> None:
        for at in range(start, end):
            if self._kinds[at] != _FRAME:
                raise self._refused("call stacks that are no lists of frames")
        stack = self._view[start:end].tobytes()
        if self._kinds[target] == _STACK:
            stack = self.stacks[self._values[target]] + stack
        if len(stack) > 8 * MOST_STACK:
            raise self._refused(f"call stacks of more than {MOST_STACK:,} frames")
        number = self._stack_numbers.setdefault(stack, len(self.stacks))
        if number == len(self.stacks):
            self.stacks.append(stack)
        self._become(target, _STACK, number)

    def _take_events(self, target: int, start: int, end: int) -> None:
        """Note whose events they are: each event is in one list, and lists are filled one after another."""
        for at in range(start, end):
            if self._kinds[at] != _EVENT or self._values[at] != self._n_placed:
                raise self._refused("an event that is in two lists, or among other values")
            self._n_placed += 1
        if self._kinds[target] == _LIST:
            self._become(target, _TRACE, self._n_traces)
            self._n_traces += 1
        self.traces.append((self._values[target], end - start))


def _grown(column: Any) -> Any:
    """Return a copy of a column with twice the room."""
    grown = array(memoryview(column).format)
    grown.frombytes(memoryview(column).cast("B"))
    grown *= 2
    return grown
