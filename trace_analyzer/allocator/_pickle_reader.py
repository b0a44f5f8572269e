# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
"""Read the pickle of a memory snapshot in one pass, and never make an object of a class.

Plain Python that Cython compiles with the types of ``_pickle_reader.pxd``. Of the opcodes of protocols 2 to 5
(CPython's ``Lib/pickletools.py`` defines them) only those for numbers, texts, lists, tuples and dictionaries are read. Memory
stays bounded: what repeats is numbered as soon as it is complete, and only columns of numbers remain of the events.
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
_CLASSES = {0x63: "GLOBAL", 0x93: "STACK_GLOBAL", 0x69: "INST", 0x6F: "OBJ", 0x52: "REDUCE", 0x62: "BUILD", 0x81: "NEWOBJ", 0x92: "NEWOBJ_EX", 0x50: "PERSID", 0x51: "BINPERSID", 0x82: "EXT1", 0x83: "EXT2", 0x84: "EXT4"}  # fmt: skip


class RefusedError(ValueError):
    """Signal a pickle that is no snapshot, and say at which byte and why."""


class Pickle:
    """Read one pickle from blocks of bytes.

    ``root`` is the document. In it, a list of events is ``[k]``, the number of its trace; a frame is its number, and the
    value of ``frames`` is the number of a stack, a tuple of numbers of frames. On the way, an event is its number as bytes,
    which no pickle that is read here can hold. What was numbered is replaced where it is remembered, too, so that its
    dictionary or list goes. Of each event there are ``actions`` (codes of
    ``action_names``), ``addresses``, ``sizes``, ``streams``, ``times_us`` (`UNKNOWN`: none), ``event_stacks`` (-1: none)
    and ``traces``, the number of its trace.
    """

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._buffer: Any = memoryview(b"")
        self._at = 0
        self._left = 0
        self._before = 0
        self._memo: list[Any] = []
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._places: dict[int, int] = {}  # of dictionaries and lists among what is remembered, by identity
        self.frames: dict[tuple[str, str, int], int] = {}
        self.stacks: dict[tuple[int, ...], int] = {}
        self.action_names: dict[str, int] = {}
        self.addresses, self.sizes, self.streams, self.times_us = (array("q") for _ in range(4))
        self.actions = array("b")
        self.event_stacks = array("q")
        self.traces = array("q")
        self.n_traces = 0
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
                if len(self._marks) >= MOST_DEPTH:
                    raise self._refused(f"it nests deeper than {MOST_DEPTH} levels")
                self._marks.append(len(self._stack))
            elif code == 0x4B:  # BININT1
                self._stack.append(self._unsigned(1))
            elif code == 0x4D:  # BININT2
                self._stack.append(self._unsigned(2))
            elif code == 0x4A:  # BININT
                number = self._unsigned(4)
                self._stack.append(number - (1 << 32) if number >= 1 << 31 else number)
            elif code == 0x8A:  # LONG1
                size = self._unsigned(1)
                if size > 9:
                    raise self._refused(f"an integer of {size} bytes")
                self._stack.append(int.from_bytes(self._bytes(size), "little", signed=True))
            elif code == 0x71:  # BINPUT
                self._put(self._unsigned(1))
            elif code == 0x72:  # LONG_BINPUT
                self._put(self._unsigned(4))
            elif code == 0x94:  # MEMOIZE
                self._put(len(self._memo))
            elif code == 0x7D:  # EMPTY_DICT
                self._stack.append({})
            elif code == 0x5D:  # EMPTY_LIST
                self._stack.append([])
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
                self._stack.append(None)
            elif code == 0x88 or code == 0x89:  # NEWTRUE, NEWFALSE
                self._stack.append(code == 0x88)
            elif code == 0x47:  # BINFLOAT
                self._stack.append(struct.unpack(">d", self._bytes(8))[0])
            elif code == 0x29:  # EMPTY_TUPLE
                self._stack.append(())
            elif code == 0x74:  # TUPLE
                self._stack.append(tuple(self._to_mark()))
            elif 0x85 <= code <= 0x87:  # TUPLE1 to TUPLE3
                self._stack.append(tuple(self._top(code - 0x84)))
            elif code == 0x80:  # PROTO
                if not 2 <= self._unsigned(1) <= 5:
                    raise self._refused("no pickle of protocol 2 to 5 begins here")
            elif code == 0x95:  # FRAME: a hint for reading ahead
                self._unsigned(8)
            elif code == 0x2E:  # STOP
                self._need(1)
                self.root = self._stack.pop()
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
            value |= self._buffer[self._at + place] << (8 * place)
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

    def _text(self, size: int) -> None:
        if size < 0 or size > MOST_TEXT:
            raise self._refused(f"a text that claims more than {MOST_TEXT:,} bytes")
        self._stack.append(self._bytes(size).decode("utf-8", "backslashreplace"))

    def _get(self, place: int) -> None:
        if place < 0 or place >= len(self._memo):
            raise self._refused(f"it refers to object {place:,} of {len(self._memo):,}")
        self._stack.append(self._memo[place])

    def _put(self, place: int) -> None:
        """Remember the top of the stack; picklers number objects without gaps, and a gap would claim memory."""
        self._need(1)
        value = self._stack[len(self._stack) - 1]
        if type(value) is dict or type(value) is list:
            self._places[id(value)] = place
        if place == len(self._memo):
            self._memo.append(value)
        elif 0 <= place < len(self._memo):
            self._memo[place] = value
        else:
            raise self._refused(f"it numbers object {len(self._memo):,} as {place:,}")

    def _need(self, size: int) -> None:
        if len(self._stack) - (self._marks[len(self._marks) - 1] if self._marks else 0) < size:
            raise self._refused("it takes a value that nothing has made")

    def _to_mark(self) -> list[Any]:
        if not self._marks:
            raise self._refused("it takes a value that nothing has made")
        mark = self._marks.pop()
        return self._cut(mark)

    def _top(self, size: int) -> list[Any]:
        self._need(size)
        return self._cut(len(self._stack) - size)

    def _cut(self, place: int) -> list[Any]:
        """Take the objects from ``place`` on off the stack."""
        items = self._stack[place:]
        del self._stack[place:]
        return items

    def _set_items(self, items: list[Any]) -> None:
        """Fill the dictionary on top, and number it if it is a frame or an event."""
        self._need(1)
        target = self._stack[len(self._stack) - 1]
        if type(target) is not dict or len(items) % 2:
            raise self._refused("it fills something that is no open dictionary")
        for place in range(0, len(items), 2):
            key, value = items[place], items[place + 1]
            if type(key) is not str and type(key) is not int:
                raise self._refused("a key that is neither text nor integer")
            if key == "frames":
                value = self._stack_number(value)
            target[key] = value
        if "action" in target and "size" in target:
            self._stack[len(self._stack) - 1] = self._replaced(target, self._take_event(target))
        elif "filename" in target and "name" in target and "line" in target:
            self._stack[len(self._stack) - 1] = self._replaced(target, self._frame_number(target))

    def _replaced(self, value: Any, number: Any) -> Any:
        """Remember the number instead of the value; return it."""
        place = self._places.pop(id(value), -1)
        if place >= 0:
            self._memo[place] = number
        return number

    def _stack_number(self, frames: Any) -> Any:
        """Return the number of a list of frames; it is a number already where the list was read before."""
        if type(frames) is int and 0 <= frames < len(self.stacks):
            return frames
        try:
            number = self.stacks.get(tuple(frames))
        except TypeError:  # no list, or a list of dictionaries
            raise self._refused("call stacks that are no lists of frames") from None
        if number is None:
            number = self._new_stack(tuple(frames))
        return self._replaced(frames, number)

    def _new_stack(self, frames: tuple[Any, ...]) -> Any:
        if len(frames) > MOST_STACK or any(type(k) is not int or not 0 <= k < len(self.frames) for k in frames):
            raise self._refused(f"call stacks that are no lists of at most {MOST_STACK:,} frames")
        return self.stacks.setdefault(frames, len(self.stacks))

    def _frame_number(self, frame: dict[Any, Any]) -> Any:
        name, file, line = frame["name"], frame["filename"], frame["line"]
        if type(name) is not str or type(file) is not str or type(line) is not int or not -(1 << 62) < line < 1 << 62:
            raise self._refused("a frame without name, file name or line")
        return self.frames.setdefault((name, file, line), len(self.frames))

    def _take_event(self, event: dict[Any, Any]) -> bytes:
        """Move the numbers of an event to the columns; return its own number."""
        action, address = event["action"], event.get("addr", event.get("device_free", UNKNOWN))
        if type(action) is not str:
            raise self._refused("an event whose action is no text")
        code = self.action_names.setdefault(action, len(self.action_names))
        if code > 100:
            raise self._refused("more than a hundred kinds of events")
        try:
            self.actions.append(code)
            self.addresses.append(address if address < 1 << 63 else address - (1 << 64))
            self.sizes.append(event["size"])
            self.streams.append(event.get("stream", UNKNOWN))
            self.times_us.append(event.get("time_us", UNKNOWN))
            self.event_stacks.append(event.get("frames", -1))
        except (TypeError, OverflowError):
            raise self._refused("an event whose address, size, stream or time is no integer of 64 bits") from None
        self.traces.append(-1)
        return (len(self.traces) - 1).to_bytes(8, "little")

    def _append(self, items: list[Any]) -> None:
        """Append to the list on top; of events, note only whose they are."""
        self._need(1)
        target = self._stack[len(self._stack) - 1]
        if type(target) is not list:
            raise self._refused("it appends to something that is no list")
        if items and type(items[0]) is bytes:
            self._take_events(target, items)
        else:
            target.extend(items)

    def _take_events(self, target: list[Any], items: list[Any]) -> None:
        if not target:
            target.append(self.n_traces)
            self.n_traces += 1
        trace = target[0]
        if type(trace) is not int or not 0 <= trace < self.n_traces:
            raise self._refused("events and other values in one list")
        for event in items:
            if type(event) is not bytes:
                raise self._refused("events and other values in one list")
            number = int.from_bytes(event, "little")
            if self.traces[number] != -1:
                raise self._refused("an event that is in two lists")
            self.traces[number] = trace
