"""What code does with a name that it never reads otherwise: counts it up, stores there, appends to the list there.

Such an update is the same at every call, whatever the value is: a replay repeats it.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import lru_cache, partial
from typing import Any

from genesis.tracing.code_reads import inner
from genesis.tracing.instructions import CONSTANTS, NOTHING, instructions_of

_NO_LOOKUP = frozenset({"LOAD_CONST", "LOAD_CLOSURE", "MAKE_CELL", "COPY_FREE_VARS", "KW_NAMES"})
_ADDING = frozenset({"+", "-", "+=", "-="})
_VARIABLES = frozenset({"LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_DEREF", "LOAD_GLOBAL"})
_APPENDING = frozenset({"append", "extend"})
_GET_ITEM, _SET_ITEM = ("BINARY_SUBSCR", "BINARY_OP"), "STORE_SUBSCR"
Code = tuple[dis.Instruction, ...]


def only_counted(name: str, codes: Iterable[types.CodeType]) -> bool:
    """Whether all that the code does with an attribute or variable is to add whole numbers that are written in it."""
    return _all(name, codes, _counted)


def only_counted_in(name: str, key: Any, codes: Iterable[types.CodeType]) -> bool:
    """Whether all that the code does with a list or dictionary is to add such numbers to the item of this key."""
    return _all(name, codes, partial(_item_counted, key=key))


def only_stored(name: str, codes: Iterable[types.CodeType]) -> bool:
    """Whether all that the code does with an attribute or variable is to give it a value."""
    return _all(name, codes, lambda code, at: code[at].opname.startswith("STORE_"))


def only_stored_in(name: str, key: Any, codes: Iterable[types.CodeType]) -> bool:
    """Whether all that the code does with a list or dictionary is to give the item of this key a value."""
    return _all(name, codes, lambda code, at: code[at].opname.startswith("LOAD_") and (
        _is_key(code, at + 1, key) and _name(code, at + 2) == _SET_ITEM))


def only_appended(name: str, codes: Iterable[types.CodeType]) -> bool:
    """Whether all that the code does with a list is to append to it."""
    return _all(name, codes, lambda code, at: code[at].opname.startswith("LOAD_") and (
        _name(code, at + 1) in ("LOAD_ATTR", "LOAD_METHOD") and code[at + 1].argval in _APPENDING))


def only_appended_in(name: str, codes: Iterable[types.CodeType], keys: Collection[Any] = ()) -> bool:
    """Whether all that the code does with a dictionary or list of lists is to append to those under constant keys.

    Args:
        keys: those of one list in a dictionary: then the code may do what it likes with the items of other constant
            keys. None: with all lists.
    """
    def does(code: Code, at: int) -> bool:
        if not code[at].opname.startswith("LOAD_") or _name(code, at + 1) not in CONSTANTS:
            return False
        if keys and code[at + 1].argval not in keys and type(code[at + 1].argval) is str:
            return _name(code, at + 2) in (*_GET_ITEM, _SET_ITEM, "COPY", "DELETE_SUBSCR")
        return _name(code, at + 2) in _GET_ITEM and (
            _name(code, at + 3) in ("LOAD_ATTR", "LOAD_METHOD") and code[at + 3].argval in _APPENDING)
    return _all(name, codes, does)


def _all(name: str, codes: Iterable[types.CodeType], does: Callable[[Code, int], bool]) -> bool:
    """Whether the code names it, and does this wherever it does."""
    found = list(_mentions(name, codes))
    return bool(found) and all(does(code, at) for code, at in found)


def _mentions(name: str, codes: Iterable[types.CodeType]) -> Iterator[tuple[Code, int]]:
    """(instructions of a code object, position) of each that looks the name up, or stores under it."""
    codes = set(codes)
    for each in codes | inner(codes):
        if name not in (*each.co_names, *each.co_freevars, *each.co_cellvars):
            continue
        code = _without_nothing(each)
        for at, instruction in enumerate(code):
            if instruction.argval == name and isinstance(instruction.argval, str) and (
                    instruction.opname not in _NO_LOOKUP and "FAST" not in instruction.opname):
                yield code, at


@lru_cache(maxsize=256)
def _without_nothing(code: types.CodeType) -> Code:
    """The code's instructions, but those that do nothing."""
    return tuple(x for x in instructions_of(code) if x.opname not in NOTHING)


def _counted(code: Code, at: int) -> bool:
    """Whether the place is one end of `n += 1`, `x.n += 1` or `x.n = x.n + 1`."""
    name = code[at].argval
    if code[at].opname.startswith("LOAD_"):
        end = _added(code, at + 1)
        if end is None:
            return False
        if _is(code, end, "SWAP", 2):
            return _is(code, at - 1, "COPY", 1) and _is(code, end + 1, "STORE_ATTR", name)
        if _is(code, end + 1, "STORE_ATTR", name):
            owner, again = code[at - 1], code[end]
            return owner.opname == again.opname and owner.opname in _VARIABLES and owner.argval == again.argval
        return _name(code, end).startswith("STORE_") and not _is(code, end, "STORE_ATTR", name) and (
            code[end].argval == name)
    if code[at].opname.startswith("STORE_"):
        return any(code[start].argval == name and code[start].opname.startswith("LOAD_") and _counted(code, start)
                   for start in range(max(at - 4, 0), at))
    return False


def _item_counted(code: Code, at: int, key: Any) -> bool:
    """Whether `items[key] += 1` begins at the place."""
    if not (code[at].opname.startswith("LOAD_") and _is_key(code, at + 1, key)):
        return False
    if not (_is(code, at + 2, "COPY", 2) and _is(code, at + 3, "COPY", 2) and _name(code, at + 4) in _GET_ITEM):
        return False
    end = _added(code, at + 5)
    return end is not None and (
        _is(code, end, "SWAP", 3) and _is(code, end + 1, "SWAP", 2) and _name(code, end + 2) == _SET_ITEM)


def _is_key(code: Code, at: int, key: Any) -> bool:
    """Whether the place loads a constant that is this key."""
    return _name(code, at) in CONSTANTS and type(code[at].argval) is type(key) and bool(code[at].argval == key)


def _added(code: Code, at: int) -> int | None:
    """Where the code goes on after a whole number is added; None if it does something else."""
    if _name(code, at) in CONSTANTS and type(code[at].argval) is int and (
            _name(code, at + 1) == "BINARY_OP" and code[at + 1].argrepr in _ADDING):
        return at + 2
    return None


def _name(code: Code, at: int) -> str:
    return code[at].opname if 0 <= at < len(code) else ""


def _is(code: Code, at: int, opname: str, value: Any) -> bool:
    return _name(code, at) == opname and code[at].argval == value
