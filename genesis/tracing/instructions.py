"""Instructions of Python's as a walk along them reads them (3.11 to 3.13)."""

from __future__ import annotations

import dis
import inspect
import re
import types
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

NOTHING = frozenset({"CACHE", "EXTENDED_ARG", "NOP", "PRECALL", "RESUME", "NOT_TAKEN"})
"""Instructions that do nothing."""
_NO_STEPS = NOTHING | {"KW_NAMES", "MAKE_CELL", "COPY_FREE_VARS"}
"""Those, and what leaves the stack and all variables as they were."""
CONSTANTS = frozenset({"LOAD_CONST", "LOAD_SMALL_INT"})
"""Instructions that load a constant; that of small integers is there since 3.14."""
ROOTS = frozenset({"LOAD_GLOBAL", "LOAD_DEREF", "LOAD_NAME"})
_LOOKING = frozenset({"locals", "vars", "eval", "exec", "dir"})
_GENERATOR = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE | inspect.CO_ASYNC_GENERATOR


class Step(NamedTuple):
    """An instruction; those of two variables at once, of later Pythons, are two.

    Attributes:
        named: a call with arguments by name.
    """

    opname: str
    opcode: int
    arg: int | None
    argval: Any
    argrepr: str
    offset: int
    named: bool


@lru_cache(maxsize=512)
def instructions_of(code: types.CodeType) -> tuple[dis.Instruction, ...]:
    """The instructions of a code object: `dis` takes longer than the capture that asks for them several times.

    >>> instructions_of((lambda x: x).__code__)[-1].opname
    'RETURN_VALUE'
    """
    return tuple(dis.get_instructions(code))


@lru_cache(maxsize=512)
def steps_of(code: types.CodeType) -> tuple[Step, ...] | None:
    """The instructions that do something; None for code that may look at all its variables at once, or be left and
    entered again in its middle.

    >>> [step.opname for step in steps_of((lambda x: x).__code__)]
    ['LOAD_FAST', 'RETURN_VALUE']
    """
    if code.co_flags & _GENERATOR or (not _LOOKING.isdisjoint(code.co_names) and any(
            x.argval in _LOOKING and x.opname in ROOTS for x in instructions_of(code))):
        return None
    return tuple(_steps(code))


def _steps(code: types.CodeType) -> Iterator[Step]:
    named = False
    for x in instructions_of(code):
        named = named or x.opname in ("KW_NAMES", "CALL_KW")
        if x.opname in _NO_STEPS:
            continue
        if isinstance(x.argval, tuple) and x.opname.count("_FAST") == 2:
            for kind, name in zip(re.findall("(LOAD|STORE)_FAST", x.opname), x.argval, strict=True):
                yield Step(f"{kind}_FAST", dis.opmap[f"{kind}_FAST"], 0, name, "", x.offset, False)
            continue
        yield Step(x.opname, x.opcode, x.arg, x.argval, x.argrepr, x.offset, named)
        named = named and x.opname not in ("CALL", "CALL_KW")


def popped(step: Step) -> int:
    """What a call takes off the stack: the function, what it is a method of, arguments, and their names' tuple."""
    return (step.arg or 0) + 2 + (step.opname == "CALL_KW")
