"""Plain data out of files that nobody has to trust: pickles without classes, and both formats with bounds.

`pickle.load` runs what a file asks for. The reader here knows only numbers, strings, lists, tuples and dicts; it meets
anything else with a refusal that names the class.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from allranks.base.unpacked import Unpacked
from allranks.jobs.job import ProfileError

MOST_BYTES = 512 * 2**20
MOST_OBJECTS = 10_000_000  # also after every shared part is counted as often as it is used
MOST_DEPTH = 32


class RefusedError(ProfileError):
    """A file that holds more than plain data, or more of it than can be read safely."""


class _Ended(Exception):
    """The file ends in the middle."""


def content(path: Path) -> bytes:
    """All bytes of a file, unpacked. Raises RefusedError if there are too many.

    >>> content(Path("/dev/null"))
    b''
    """
    with path.open("rb") as file:
        source = Unpacked(file)
        found = source.first(MOST_BYTES + 1)
    if source.fault.endswith("damaged"):
        raise RefusedError(source.fault)
    if len(found) > MOST_BYTES:
        raise RefusedError(f"it is larger than {MOST_BYTES // 2**20} MiB, more than any dump")
    return found


def unpickle(data: bytes) -> tuple[Any, bool]:
    """The plain data of a pickle, and whether it is whole: of a truncated one, what was complete.

    Raises RefusedError for a pickle with a class in it, and for one that would fill the memory.

    >>> import pickle
    >>> unpickle(pickle.dumps({"version": "2.10", "entries": []}, protocol=2))
    ({'version': '2.10', 'entries': []}, True)
    """
    machine = _Machine(data)
    try:
        value, whole = machine.run(), True
    except _Ended:
        value, whole = machine.rest(), False
    bounded(value)
    return value, whole


def bounded(value: Any) -> None:
    """Raise RefusedError if a value is too deep, contains itself, or is too large with its shared parts written out."""
    sizes: dict[int, tuple[int, int]] = {}  # of each container: its objects and its depth
    open_now: set[int] = set()
    stack = [(value, False)]
    while stack:
        item, left = stack.pop()
        children = item.values() if isinstance(item, dict) else item if isinstance(item, (list, tuple)) else None
        if children is None or (id(item) in sizes and not left):
            continue
        if left:
            open_now.discard(id(item))
            inner = [sizes.get(id(child), (1, 0)) for child in children]
            sizes[id(item)] = 1 + sum(size for size, _ in inner), 1 + max((deep for _, deep in inner), default=0)
            if sizes[id(item)][0] > MOST_OBJECTS or sizes[id(item)][1] > MOST_DEPTH:
                raise RefusedError("its data are nested so that they would fill the memory, as no recorder writes them")
        elif id(item) in open_now:
            raise RefusedError("its data contain themselves, as no recorder writes them")
        else:
            open_now.add(id(item))
            stack.append((item, True))
            stack.extend((child, False) for child in children if isinstance(child, (dict, list, tuple)))


class _Machine:
    """The part of pickle's stack machine that makes plain data."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []  # the stacks under the open marks
        self.memo: dict[int, Any] = {}
        self.made = 0

    def run(self) -> Any:
        data, end = self.data, len(self.data)
        while self.at < end:
            code = data[self.at]
            self.at += 1
            if code == 0x2E:  # STOP
                if len(self.stack) != 1 or self.below:
                    raise RefusedError("its pickle does not end with one value")
                return self.stack[0]
            act = _ACTS.get(code)
            if act is None:
                self.refuse(code)
            try:
                act(self)  # type: ignore[misc]
            except (IndexError, KeyError, TypeError, AttributeError, UnicodeDecodeError) as wrong:
                raise RefusedError(f"its pickle contradicts itself at byte {self.at}") from wrong
            self.made += 1
            if self.made > 6 * MOST_OBJECTS:
                raise RefusedError(f"its pickle has more than {6 * MOST_OBJECTS:,} instructions")
        raise _Ended

    def rest(self) -> Any:
        """What a pickle that ended too early had built: the open lists and dicts with their complete items."""
        while self.below:
            items, self.stack = self.stack, self.below.pop()
            if self.stack:
                _fill(self.stack[-1], items)
        return self.stack[0] if self.stack else None

    def take(self, count: int) -> bytes:
        if count < 0 or self.at + count > len(self.data):
            raise _Ended
        self.at += count
        return self.data[self.at - count : self.at]

    def line(self) -> str:
        end = self.data.find(b"\n", self.at)
        if end < 0:
            raise _Ended
        text, self.at = self.data[self.at : end], end + 1
        return text.decode("utf-8", "replace")

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def items(self) -> list[Any]:
        items, self.stack = self.stack, self.below.pop()
        return items

    def refuse(self, code: int) -> None:
        """Raise RefusedError, with the class's name where the pickle says one."""
        if code in b"ci":  # GLOBAL, INST
            asked = f"{self.line()}.{self.line()}"
        elif code == 0x93 and len(self.stack) > 1:  # STACK_GLOBAL
            asked = ".".join(str(part) for part in self.stack[-2:] if isinstance(part, str))
        elif code in _BUILDS:
            asked = f"an object ({_BUILDS[code]})"
        else:
            raise RefusedError(f"its pickle has the instruction 0x{code:02x}, which plain data do not need")
        shown = asked if len(asked) <= 100 else asked[:100] + "..."
        raise RefusedError(f"its pickle asks for {shown}, and a dump has plain data only: nothing of it was run")


_BUILDS = {
    ord("R"): "REDUCE",
    ord("b"): "BUILD",
    ord("o"): "OBJ",
    0x81: "NEWOBJ",
    0x92: "NEWOBJ_EX",
    0x82: "EXT1",
    0x83: "EXT2",
    0x84: "EXT4",
    0x93: "STACK_GLOBAL",
    ord("P"): "PERSID",
    ord("Q"): "BINPERSID",
}


def _fill(container: Any, items: list[Any]) -> None:
    if isinstance(container, list):
        container.extend(items)
    elif isinstance(container, dict):
        for name, value in zip(items[::2], items[1::2], strict=False):
            if not isinstance(name, str):
                raise RefusedError(f"a name in its data is {type(name).__name__}, not text")
            container[name] = value
    else:
        raise TypeError


def _push(make: Callable[[_Machine], Any]) -> Callable[[_Machine], None]:
    return lambda m: m.stack.append(make(m))


def _skip(count: int) -> Callable[[_Machine], None]:
    def act(m: _Machine) -> None:
        m.take(count)

    return act


def _mark(m: _Machine) -> None:
    m.below.append(m.stack)
    m.stack = []
    if len(m.below) > 4 * MOST_DEPTH:
        raise RefusedError("its data are nested deeper than any recorder writes them")


def _put(form: str) -> Callable[[_Machine], None]:
    def put(m: _Machine) -> None:
        m.memo[m.number(form)] = m.stack[-1]

    return put


def _memoize(m: _Machine) -> None:
    m.memo[len(m.memo)] = m.stack[-1]


def _several(m: _Machine) -> None:
    items = m.items()
    _fill(m.stack[-1], items)


def _one(count: int) -> Callable[[_Machine], None]:
    def act(m: _Machine) -> None:
        items = m.stack[-count:]
        del m.stack[-count:]
        _fill(m.stack[-1], items)

    return act


def _tuple(count: int) -> Callable[[_Machine], None]:
    def act(m: _Machine) -> None:
        if len(m.stack) < count:
            raise IndexError
        items = tuple(m.stack[-count:])
        del m.stack[-count:]
        m.stack.append(items)

    return act


def _text(form: str) -> Callable[[_Machine], None]:
    return _push(lambda m: m.take(m.number(form)).decode("utf-8", "surrogatepass"))


def _long(form: str) -> Callable[[_Machine], None]:
    return _push(lambda m: int.from_bytes(m.take(m.number(form)), "little", signed=True))


_ACTS: dict[int, Callable[[_Machine], None]] = {
    0x80: _skip(1),  # PROTO
    0x95: _skip(8),  # FRAME
    ord("("): _mark,
    ord("N"): _push(lambda m: None),
    0x88: _push(lambda m: True),
    0x89: _push(lambda m: False),
    ord("J"): _push(lambda m: m.number("<i")),
    ord("K"): _push(lambda m: m.number("<B")),
    ord("M"): _push(lambda m: m.number("<H")),
    0x8A: _long("<B"),
    0x8B: _long("<i"),
    ord("G"): _push(lambda m: m.number(">d")),
    ord("X"): _text("<I"),
    0x8C: _text("<B"),
    0x8D: _text("<Q"),
    ord("]"): _push(lambda m: []),
    ord("}"): _push(lambda m: {}),
    ord(")"): _push(lambda m: ()),
    ord("l"): _push(lambda m: m.items()),
    ord("t"): _push(lambda m: tuple(m.items())),
    0x85: _tuple(1),
    0x86: _tuple(2),
    0x87: _tuple(3),
    ord("a"): _one(1),
    ord("s"): _one(2),
    ord("e"): _several,
    ord("u"): _several,
    ord("q"): _put("<B"),
    ord("r"): _put("<I"),
    0x94: _memoize,
    ord("h"): _push(lambda m: m.memo[m.number("<B")]),
    ord("j"): _push(lambda m: m.memo[m.number("<I")]),
}
