"""An interpreter for pickles that executes nothing: the opcodes that torch writes, over an allow-list of names.

A pickle is a program for a stack machine. Python's own reader imports what it names and calls it; here a name is looked
up in a table of handlers, and whatever is not there is refused. All that a pickle makes is bounded by its size: its
opcodes, what handlers copy, digits of numbers, and containers inside of each other.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from genesis.utils.safetensors_file import Damaged

MOST_WORK: Final = 10_000_000
"""Opcodes, and items and characters that handlers copy, beyond four for each byte; 100,000 tensors take half of it."""

MOST_NESTED: Final = 150
"""Containers inside of each other."""

LONGEST_NAME: Final = 200
"""Characters of a module's or a global's name."""

MOST_DIGITS: Final = 1024
"""Bytes of an integer."""

_KEYS: Final = (str, int, float, bool, type(None), bytes)
_LARGEST_KEY: Final = 1 << 60
"""Integers from here on have the hashes of smaller ones: so many equal hashes would take for ever."""

MOST_IN_A_KEY: Final = 16
"""Items of a tuple that is a key; a tuple's hash is worked out at each use."""


@dataclass(frozen=True)
class Function:
    """A global that may be called.

    Attributes:
        name: the module and the name in the pickle.
        call: what is done instead of what the name means elsewhere.
    """

    name: str
    call: Callable[..., Any]


class Outside(Exception):
    """What a handler asks of others has failed, by no fault of the pickle.

    Attributes:
        reason: the error to raise.
    """

    def __init__(self, reason: Exception):
        super().__init__(reason)
        self.reason = reason


_MARK: Final = object()


class Interpreter:
    """Reads one pickle.

    Args:
        data: the pickle, and what is behind it.
        allowed: "module.name" → what stands for it, a `Function` or a value.
        persistent: gives the object for an identifier outside of the pickle.
        refusal: says why a name is not on the list.
        at: where the pickle begins.

    Attributes:
        at: how far the data was read.
    """

    def __init__(self, data: bytes, allowed: Mapping[str, Any], persistent: Callable[[Any], Any],
                 refusal: Callable[[str], str], at: int = 0):
        self._data, self.at = data, at
        self._allowed, self._persistent, self._refusal = allowed, persistent, refusal
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._left = MOST_WORK + 4 * len(data)

    def run(self) -> Any:
        """The object.

        Raises:
            Damaged: it is no pickle of a kind that is read, or takes more than the bounds allow.
        """
        try:
            while True:
                self._spend(1)
                code = self._take(1)[0]
                if code == 0x2E:  # STOP
                    return self._end()
                operation = _OPERATIONS.get(code)
                if operation is None:
                    raise Damaged(f"its pickle has the opcode {bytes([code])!r} at byte {self.at - 1}, which is not "
                                  "read")
                operation(self)
        except (IndexError, KeyError, struct.error, UnicodeDecodeError) as error:
            raise Damaged(f"its pickle is malformed at byte {self.at} ({type(error).__name__})") from None

    def _end(self) -> Any:
        if len(self._stack) != 1 or self._stack[0] is _MARK:
            raise Damaged("what its pickle ends with is not one object")
        return self._stack[0]

    def _spend(self, amount: int) -> None:
        self._left -= amount
        if self._left < 0:
            raise Damaged(f"its pickle takes more than {MOST_WORK} steps and four for each of its bytes")

    def _take(self, count: int) -> bytes:
        found = self._data[self.at:self.at + count]
        if len(found) != count or count < 0:
            raise Damaged("its pickle ends within an object")
        self.at += count
        return found

    def _number(self, format: str, size: int) -> int:
        value: int = struct.unpack(format, self._take(size))[0]
        return value

    def _line(self) -> str:
        end = self._data.find(b"\n", self.at, self.at + LONGEST_NAME + 1)
        if end < 0:
            raise Damaged(f"its pickle has a name of more than {LONGEST_NAME} characters")
        found = self._data[self.at:end].decode()
        self.at = end + 1
        return found

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _pop(self) -> Any:
        value = self._stack.pop()
        if value is _MARK:
            raise Damaged("its pickle takes an object where there is none")
        return value

    def _top(self) -> Any:
        value = self._stack[-1]
        if value is _MARK:
            raise Damaged("its pickle takes an object where there is none")
        return value

    def _since_mark(self) -> list[Any]:
        """What was pushed since the last mark."""
        at = len(self._stack) - 1
        while self._stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise Damaged("its pickle has no mark where it needs one")
        found = self._stack[at + 1:]
        del self._stack[at:]
        self._spend(len(found))
        return found

    def _digits(self, count: int) -> int:
        if not 0 <= count <= MOST_DIGITS:
            raise Damaged(f"its pickle has an integer of {count} bytes; at most {MOST_DIGITS} are read")
        return int.from_bytes(self._take(count), "little", signed=True)

    def _global(self, module: str, name: str) -> None:
        full = f"{'builtins' if module == '__builtin__' else module}.{name}"
        if full not in self._allowed:
            raise Damaged(self._refusal(full[:2 * LONGEST_NAME]))
        self._push(self._allowed[full])

    def _named(self) -> None:
        name, module = self._pop(), self._pop()
        if type(name) is not str or type(module) is not str or len(name) + len(module) > 2 * LONGEST_NAME:
            raise Damaged("its pickle has a global that is not named by two texts")
        self._global(module, name)

    def _call(self) -> None:
        args, function = self._pop(), self._pop()
        if not isinstance(function, Function) or type(args) is not tuple:
            raise Damaged("its pickle calls what cannot be called")
        self._spend(sum(len(x) for x in args if isinstance(x, (str, bytes, list, tuple, dict, set))))
        try:
            self._push(function.call(*args))
        except (Damaged, Outside, MemoryError):
            raise
        except Exception as error:  # what a handler is given may be anything that a pickle can make
            raise Damaged(f"its pickle calls {function.name} with other arguments than torch does "
                          f"({str(error)[:200]})") from None

    def _build(self) -> None:
        """Attributes of dictionaries (the versions of a state dict's modules) are not kept; nothing else has some."""
        self._pop()
        if not isinstance(self._top(), dict):
            raise Damaged(f"its pickle sets attributes of a {type(self._top()).__name__}")

    def _append(self, items: list[Any]) -> None:
        target = self._top()
        if type(target) is not list:
            raise Damaged(f"its pickle appends to a {type(target).__name__}")
        target.extend(items)

    def _set(self, items: list[Any]) -> None:
        target = self._top()
        if not isinstance(target, dict) or len(items) % 2:
            raise Damaged("its pickle sets items of what is no dictionary, or half an item")
        for key, value in zip(items[::2], items[1::2], strict=True):
            target[checked_key(key)] = value

    def _add(self) -> None:
        items = self._since_mark()
        if type(self._top()) is not set:
            raise Damaged("its pickle adds to what is no set")
        self._top().update(map(checked_key, items))

    def _tuple(self, count: int) -> None:
        found = [self._pop() for _ in range(count)]
        self._push(tuple(reversed(found)))

    def _item(self) -> None:
        value, key = self._pop(), self._pop()
        self._set([key, value])

    def _one(self) -> None:
        value = self._pop()
        self._append([value])

    def _text(self, count: int) -> None:
        self._push(self._take(count).decode("utf-8", "surrogatepass"))

    def _keep(self, index: int) -> None:
        self._memo[index] = self._top()

    def _protocol(self) -> None:
        version = self._take(1)[0]
        if not 2 <= version <= 5:
            raise Damaged(f"its pickle is of protocol {version}; 2 to 5 are read")


Operation = Callable[[Interpreter], None]

_OPERATIONS: Final[dict[int, Operation]] = {ord(code): operation for code, operation in {
    "\x80": Interpreter._protocol,
    "\x95": lambda self: void(self._take(8)),  # FRAME: its length, which nothing here needs
    "(": lambda self: self._push(_MARK),
    "0": lambda self: void(self._stack.pop()),
    "1": lambda self: void(self._since_mark()),
    "2": lambda self: self._push(self._top()),
    "N": lambda self: self._push(None),
    "\x88": lambda self: self._push(True),
    "\x89": lambda self: self._push(False),
    "K": lambda self: self._push(self._take(1)[0]),
    "M": lambda self: self._push(self._number("<H", 2)),
    "J": lambda self: self._push(self._number("<i", 4)),
    "\x8a": lambda self: self._push(self._digits(self._take(1)[0])),
    "\x8b": lambda self: self._push(self._digits(self._number("<i", 4))),
    "G": lambda self: self._push(struct.unpack(">d", self._take(8))[0]),
    "X": lambda self: self._text(self._number("<I", 4)),
    "\x8c": lambda self: self._text(self._take(1)[0]),
    "\x8d": lambda self: self._text(self._number("<Q", 8)),
    "C": lambda self: self._push(self._take(self._take(1)[0])),
    "B": lambda self: self._push(self._take(self._number("<I", 4))),
    "\x8e": lambda self: self._push(self._take(self._number("<Q", 8))),
    "\x96": lambda self: self._push(bytearray(self._take(self._number("<Q", 8)))),
    ")": lambda self: self._push(()),
    "\x85": lambda self: self._tuple(1),
    "\x86": lambda self: self._tuple(2),
    "\x87": lambda self: self._tuple(3),
    "t": lambda self: self._push(tuple(self._since_mark())),
    "]": lambda self: self._push([]),
    "a": Interpreter._one,
    "e": lambda self: self._append(self._since_mark()),
    "}": lambda self: self._push({}),
    "s": Interpreter._item,
    "u": lambda self: self._set(self._since_mark()),
    "\x8f": lambda self: self._push(set()),
    "\x90": Interpreter._add,
    "\x91": lambda self: self._push(frozenset(map(checked_key, self._since_mark()))),
    "q": lambda self: self._keep(self._take(1)[0]),
    "r": lambda self: self._keep(self._number("<I", 4)),
    "\x94": lambda self: self._keep(len(self._memo)),
    "h": lambda self: self._push(self._memo[self._take(1)[0]]),
    "j": lambda self: self._push(self._memo[self._number("<I", 4)]),
    "c": lambda self: self._global(self._line(), self._line()),
    "\x93": Interpreter._named,
    "R": Interpreter._call,
    "\x81": Interpreter._call,  # NEWOBJ: a class and its arguments
    "b": Interpreter._build,
    "Q": lambda self: self._push(self._persistent(self._pop())),
}.items()}


def void(_: Any) -> None:
    """A value that is not wanted."""


def checked_key(key: Any) -> Any:
    """What may be looked up: texts, numbers, and short tuples of them, whose hashes take no time.

    Raises:
        Damaged: it is something else.
    """
    plain = (type(key) in _KEYS and (type(key) is not int or -_LARGEST_KEY < key < _LARGEST_KEY))
    if not plain and not (type(key) is tuple and len(key) <= MOST_IN_A_KEY
                          and all(type(x) in _KEYS and checked_key(x) is x for x in key)):
        raise Damaged(f"its pickle has a {type(key).__name__} for a key that is not read")
    return key


def check_result(root: Any, leaves: tuple[type, ...]) -> None:
    """Refuse an object that contains itself, is nested too deep, or holds what stands for code.

    Raises:
        Damaged: it does.
    """
    heights: dict[int, int] = {}
    above: set[int] = {id(root)}
    stack: list[tuple[Any, Iterator[Any], list[int]]] = [(root, _parts(root, leaves), [0])]
    while stack:
        value, parts, below = stack[-1]
        for part in parts:
            if id(part) in above:
                raise Damaged("it has a container that contains itself")
            if id(part) in heights:
                below.append(heights[id(part)])
                continue
            above.add(id(part))
            stack.append((part, _parts(part, leaves), [0]))
            break
        else:
            stack.pop()
            above.discard(id(value))
            heights[id(value)] = height = 1 + max(below)
            if len(stack) > 0:
                stack[-1][2].append(height)
        if len(stack) > MOST_NESTED or heights.get(id(value), 0) > MOST_NESTED:
            raise Damaged(f"it has more than {MOST_NESTED} containers inside of each other")


_CONTAINERS: Final = (list, tuple, set, frozenset)


def _parts(value: Any, leaves: tuple[type, ...]) -> Iterator[Any]:
    """The containers right inside of a value; a value of an unknown kind is refused."""
    if isinstance(value, dict):
        inside: Any = (*value, *value.values())
    elif isinstance(value, _CONTAINERS):
        inside = value
    elif type(value) in leaves or isinstance(value, leaves):
        return iter(())
    else:
        name = value.name if isinstance(value, Function) else type(value).__name__
        raise Damaged(f"it holds {name[:LONGEST_NAME]} itself, which is no value")
    return (part for part in inside if type(part) not in _KEYS)


__all__ = ["Function", "Interpreter", "Outside", "check_result", "checked_key"]
