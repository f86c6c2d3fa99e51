"""Whether the next call comes to the same line: what rules out a replay there rules out the next one's, too.

A capture that fails late costs as much Python again as the call has. Where nothing on the way to the line that failed
was a choice, another capture right after would fail there, too.
"""

from __future__ import annotations

import dis
import inspect
from types import CodeType, FrameType
from typing import Final

from genesis.tracing.tracer import is_user_code

ENDS: Final = frozenset({"RETURN_VALUE", "RETURN_CONST", "RETURN_GENERATOR", "RAISE_VARARGS", "RERAISE",
                          "PUSH_EXC_INFO"})
JUMPS: Final = frozenset({*dis.hasjrel, *dis.hasjabs})
"""Opcodes that may go on elsewhere, and (`ENDS`) names of those behind which nothing follows."""


def is_always_reached(frame: FrameType | None, entrance: CodeType) -> bool:
    """Whether each call of the function that `entrance` calls comes to where this frame is, as far as the code of the
    user's functions on the way says."""
    while frame is not None and frame.f_code is not entrance:
        if is_user_code(frame.f_code) and not runs_always(frame.f_code, frame.f_lasti):
            return False
        frame = frame.f_back
    return frame is not None


def runs_always(code: CodeType, place: int) -> bool:
    """Whether no branch of the code goes around this place; a loop that turned once turns again.

    >>> def straight(x): return x + 1
    >>> def chosen(x): return x + 1 if x else x
    >>> def last(code, kind): return max(i.offset for i in dis.get_instructions(code) if i.opname.startswith(kind))
    >>> [runs_always(f.__code__, last(f.__code__, "BINARY")) for f in (straight, chosen)]
    [True, False]
    """
    if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        return False
    for instruction in dis.get_instructions(code):
        if instruction.offset >= place:
            return True
        if instruction.opname in ENDS:
            return False
        if instruction.opcode in JUMPS and instruction.opname != "FOR_ITER" and instruction.argval > place:
            return False
    return True
