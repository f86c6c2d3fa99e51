"""Calls that a function's code alone shows to rule out a replay: a capture would only find out again.

    def step(x, y):
        loss = train(x, y)
        print(loss.item())        # each call comes here, and `print` is none that a replay makes
"""

from __future__ import annotations

import builtins
import dis
import inspect
from collections.abc import Iterator
from types import FunctionType, MethodType, ModuleType
from typing import Any, Final

from genesis.ir.source import Source
from genesis.tracing.reached import ENDS, JUMPS
from genesis.tracing.tracer import is_refused_when_called

_GLOBALS: Final = frozenset({"LOAD_GLOBAL"})
_CELLS: Final = frozenset({"LOAD_DEREF"})
_ATTRIBUTES: Final = frozenset({"LOAD_METHOD", "LOAD_ATTR"})

_TO_CALL: Final = 1
"""A bit of the argument of `LOAD_GLOBAL` (and, from Python 3.12 on, of `LOAD_ATTR`): what is loaded is called next."""


def certain_refusal(function: Any) -> str | None:
    """What rules out a replay of each call of the function, by its own code up to the first branch or loop; None if
    nothing there does. What a name stands for is looked up now.

    >>> def told(x): print(x); return x
    >>> certain_refusal(told).partition(" at ")[0], certain_refusal(len)
    ('it calls print', None)
    """
    if isinstance(function, MethodType):
        function = function.__func__
    if not isinstance(function, FunctionType):
        return None
    code, later = function.__code__, inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
    if code.co_flags & later:
        return None
    for value, names, offset in _called(function):
        if is_refused_when_called(value, names):
            called = inspect.getattr_static(value, names[0]) if names else value
            return f"it calls {getattr(called, '__qualname__', called)} at {Source(code, offset)}"
    return None


def _called(function: FunctionType) -> Iterator[tuple[Any, list[str], int]]:
    """What the function calls by a global name or one of its closure, or as a method of that, before its first branch:
    the value, the method's name if it is one, and where."""
    straight = []
    for instruction in dis.get_instructions(function.__code__):
        if instruction.opcode in JUMPS or instruction.opname in ENDS:
            break
        straight.append(instruction)
    for instruction, after, then in zip(straight, straight[1:], straight[2:], strict=False):
        name = instruction.argval
        if instruction.opname in _GLOBALS:
            found = function.__globals__.get(name, vars(builtins).get(name))
        elif instruction.opname in _CELLS and name in function.__code__.co_freevars:
            cell = (function.__closure__ or ())[function.__code__.co_freevars.index(name)]
            found = next(iter(_content(cell)), None)
        else:
            continue
        if found is None:
            continue
        to_call = instruction.opname in _GLOBALS and _says_so(instruction)
        if after.opname not in _ATTRIBUTES:
            if to_call:
                yield found, [], instruction.offset
        elif then.opname not in _ATTRIBUTES and (
                to_call or after.opname == "LOAD_METHOD" or (_ATTRIBUTES_SAY and _says_so(after))):
            if isinstance(found, ModuleType):
                yield vars(found).get(after.argval), [], after.offset
            else:
                yield found, [after.argval], after.offset


def _says_so(instruction: dis.Instruction) -> bool:
    return instruction.arg is not None and instruction.arg & _TO_CALL == _TO_CALL


_ATTRIBUTES_SAY: Final = "LOAD_METHOD" not in dis.opmap
"""Whether `LOAD_ATTR` says that what it loads is called."""


def _content(cell: Any) -> list[Any]:
    """What a variable of a closure holds, if anything yet."""
    try:
        return [cell.cell_contents]
    except ValueError:
        return []
