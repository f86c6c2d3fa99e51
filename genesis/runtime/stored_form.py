"""Checks that a file describes a plan's form: every part is there, has the right kind, and refers to what is there.

A plan addresses memory by what its form says, without another check. So a form is checked once, when it is read: where
a defect or a bad disk wrote the file, the program compiles anew instead of writing over other memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final, TypeAlias, TypeGuard

from genesis.ir.interrupting import from_inside
from genesis.ir.place import MOST_EXCHANGED
from genesis.ir.types import Device, dtype_named

Field: TypeAlias = Any
"""A value of JSON: what it is, is what is to be found out."""

Entry = list[Field]
"""An object, or a type, in a file: its fields."""

Stored = dict[str, Field]
"""A form in a file, by its parts' names."""

Fits = Callable[[object, "_Tables"], bool]
"""A check of one field: whether its value is of the right kind."""


WORD: Final = 1 << 63
"""The smallest positive number that an int64 argument cannot hold."""


class Malformed(ValueError):
    """A file is undamaged and describes no plan's form."""


class _Tables:
    """How many types and kernels a field may refer to, and the classes of the objects so far."""

    def __init__(self, types: int, kernels: int):
        self.types, self.kernels = types, kernels
        self.classes: list[str] = []


def _count(x: object, tables: _Tables) -> bool:
    return type(x) is int and 0 <= x < WORD


def _flag(x: object, tables: _Tables) -> bool:
    return type(x) is bool


def _text(x: object, tables: _Tables) -> bool:
    return type(x) is str


def _device(x: object, tables: _Tables) -> bool:
    if not _tagged(x, "d") or type(x[1]) is not str:
        return False
    try:
        Device(x[1])
    except from_inside(RuntimeError):
        return False
    return True


def _type(x: object, tables: _Tables) -> bool:
    return _tagged(x, "t") and _below(x[1], tables.types)


def _kernel(x: object, tables: _Tables) -> bool:
    return _tagged(x, "k") and _below(x[1], tables.kernels)


def _place(x: object, tables: _Tables) -> bool:
    return _object(x, tables, ("Place",))


def _where(x: object, tables: _Tables) -> bool:
    return x in ("input", "output", "arena", "errors", "exchange", "numbers")


def _nothing(x: object, tables: _Tables) -> bool:
    return x is None


def _object(x: object, tables: _Tables, classes: Sequence[str]) -> bool:
    return _tagged(x, "o") and _below(x[1], len(tables.classes)) and tables.classes[x[1]] in classes


def _one_of(*classes: str) -> Fits:
    return lambda x, tables: _object(x, tables, classes)


def _number_or(*classes: str) -> Fits:
    return lambda x, tables: (-WORD <= x < WORD) if type(x) is int else _object(x, tables, classes)


def _or_none(fits: Fits) -> Fits:
    return lambda x, tables: x is None or fits(x, tables)


def _tuple_of(fits: Fits, length: int | None = None) -> Fits:
    return lambda x, tables: (type(x) is list and len(x) > 0 and x[0] == "()"
                              and length in (None, len(x) - 1) and all(fits(y, tables) for y in x[1:]))


FIELDS: Final[dict[str, tuple[Fits, ...]]] = {
    "Place": (_where, _count, _count, _type),
    "Check": (_text, _count, _count, _text),
    "Table": (_tuple_of(_number_or("Place", "Check")),),
    "MatrixMap": (_place, _tuple_of(_count, 2), _count, _count, _tuple_of(_count), _tuple_of(_tuple_of(_count, 2))),
    "Copy": (_place, _place, _text),
    "Launch": (_kernel, _tuple_of(_number_or("Place", "Table", "MatrixMap")), _tuple_of(_count, 3), _text,
               _or_none(_tuple_of(_place)), _text, _tuple_of(_place), _tuple_of(_text), _count, _flag, _count),
    "Collective": (_text, _text, _tuple_of(_place), _tuple_of(_place), _text, _count, _tuple_of(_count),
                   _tuple_of(_count), _text, _text, _tuple_of(_type)),
    "Plan": (_device, _tuple_of(_type), _tuple_of(_type), _tuple_of(_count), _tuple_of(_type),
             _tuple_of(_one_of("Launch", "Copy", "Collective")), _count, _count, _tuple_of(_nothing, 0),
             _tuple_of(_count), _or_none(_one_of("Plan"))),
}
"""The checks of each class's fields, in order, for plans on disk: no field depends on a size, and steps are
launches, copies and collectives."""


def check_form(stored: Stored) -> list[str]:
    """Check a form without open sizes; returns the names of its kernels' entries.

    Raises:
        Malformed: names the part that is wrong.
    """
    for name in ("entries", "fixed", "types", "objects"):
        if type(stored.get(name)) is not list:
            raise Malformed(f"{name} is no list")
    for name in ("values", "guards", "open", "symbols", "moving"):
        if stored.get(name) != []:
            raise Malformed(f"{name} is not empty: nothing is open in what is on disk")
    entries: list[str] = stored["entries"]
    if not all(type(entry) is str and entry.isalnum() for entry in entries):
        raise Malformed("an entry of a kernel is no name")
    for number, entry in enumerate(stored["types"]):
        if not _is_type(entry):
            raise Malformed(f"type {number} is none")
    _check_objects(stored["objects"], _Tables(len(stored["types"]), len(entries)))
    _check_places(stored["objects"], stored["types"])
    return entries


def _check_objects(objects: Entry, tables: _Tables) -> None:
    """Check that each object refers only to those before it, and that the last one is the plan."""
    for number, entry in enumerate(objects):
        if type(entry) is not list or not entry or type(entry[0]) is not str:
            raise Malformed(f"object {number} has no class")
        fields = FIELDS.get(entry[0], ())
        if not fields or len(fields) != len(entry) - 1:
            raise Malformed(f"object {number} is no {entry[0]}")
        for position, (fits, x) in enumerate(zip(fields, entry[1:], strict=True)):
            if not fits(x, tables):
                raise Malformed(f"field {position} of object {number}, a {entry[0]}")
        tables.classes.append(entry[0])
    if tables.classes[-1:] != ["Plan"]:
        raise Malformed("there is no plan")


def _check_places(objects: Entry, types: Entry) -> None:
    """Check that the places of the steps are inside of the plan's memories, or its refresh plan's."""
    plans = [entry for entry in objects if entry[0] == "Plan"]
    sizes = {("arena", 0): max(plan[7] for plan in plans), ("errors", 0): 8, ("exchange", 0): MOST_EXCHANGED,
             ("numbers", 0): 8 * max(len(plan[5]) - 1 for plan in plans)}
    nbytes = list(map(_bytes, types))
    for plan in plans:
        for where, memories in (("input", plan[2][1:]), ("output", plan[3][1:])):
            for index, (_, number) in enumerate(memories):
                sizes[where, index] = max(sizes.get((where, index), 0), nbytes[number])
        if any(position >= len(plan[2]) - 1 for position in (*plan[4][1:], *plan[10][1:])):
            raise Malformed("a plan overwrites an input that it does not have")
    for _, where, index, offset, (_, number) in (entry for entry in objects if entry[0] == "Place"):
        memory = (where, index if where in ("input", "output") else 0)
        if offset + nbytes[number] > sizes.get(memory, -1):
            raise Malformed(f"a place in {where} {index} at {offset} is outside of the plan's memory")
    for entry in objects:
        if entry[0] == "MatrixMap" and _reach(entry) > prod(types[objects[entry[1][1]][4][1]][1]):
            raise Malformed("a matrix's map reaches beyond its memory")


def _reach(matrix: Entry) -> int:
    """How many elements there are from the start of its memory to the end of the last element of a matrix."""
    _, _, shape, stride, start, _, outer = matrix
    dimensions = [*(pair[1:] for pair in outer[1:]), (shape[1], stride), (shape[2], 1)]
    return start + 1 + sum((size - 1) * step for size, step in dimensions)


def _bytes(entry: Entry) -> int:
    """Bytes of a value of a type."""
    short, shape, _, _ = entry
    return dtype_named(short).itemsize * prod(shape)


def _is_type(entry: object) -> bool:
    if type(entry) is not list or len(entry) != 4:
        return False
    short, shape, device, weak = entry
    if type(short) is not str or type(shape) is not list or type(device) is not str or type(weak) is not bool:
        return False
    try:
        dtype_named(short)
        Device(device)
    except from_inside(TypeError, RuntimeError):
        return False
    return all(type(size) is int and size >= 0 for size in shape)


def _tagged(x: object, tag: str) -> TypeGuard[Entry]:
    return type(x) is list and len(x) == 2 and x[0] == tag


def _below(x: object, count: int) -> bool:
    return type(x) is int and 0 <= x < count
