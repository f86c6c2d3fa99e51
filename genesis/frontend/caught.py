"""Whether the user's program would catch an error here: a `try` stands around the line that records an op.

An op that may fail by its values raises when these are read. A loop that adds to a matrix's diagonal until its Cholesky
decomposition succeeds would see none fail, and its error would come where nothing catches it. So where a handler waits
such an op is computed at once, and elsewhere with what needs it.
"""

from __future__ import annotations

import builtins
import dis
import sys
from collections.abc import Iterator
from itertools import pairwise
from types import CodeType, FrameType, ModuleType
from typing import Any, Final, NamedTuple

from genesis.ir.memos import counted
from genesis.ir.source import PACKAGE, is_internal

_CAPTURES: Final = f"{PACKAGE}tracing/"


class _Installed(dict[str, bool]):
    """File → whether it is of Python's library or of an installed package, worked out when it is first asked for."""

    def __missing__(self, filename: str) -> bool:
        import sysconfig  # most programs never ask
        homes = [f"{path}/" for name, path in sysconfig.get_paths().items() if name.endswith("lib")]
        found = self[filename] = filename.startswith((*homes, "<frozen"))
        return found


_installed = _Installed()

Clause = tuple[str, ...]
"""What one `except` names, such as ("torch.linalg.LinAlgError", "ValueError"); none for one that takes everything."""

_MOST: Final = 1024
_clauses: dict[tuple[CodeType, int], tuple[Clause, ...]] = {}
counted("handlers around lines of the user's", lambda: len(_clauses), 400, _MOST)


def is_caught(*errors: type[Exception]) -> bool:
    """Whether a handler around the user's line takes one of these errors, or a class of them.

    Callers of the user's count as far as they are the user's, too: a test runner's handlers are no part of a test. A
    captured call is looked at from inside: what is around it has a say when it is read.
    """
    frame: FrameType | None = sys._getframe(1)
    users = False
    while frame is not None:
        filename = frame.f_code.co_filename
        if is_internal(filename):
            if filename.startswith(_CAPTURES):
                return False
        else:
            installed = _installed[filename]
            if users and installed:
                return False
            users = users or not installed
            if any(_takes(clause, frame, errors) for clause in _clauses_at(frame.f_code, frame.f_lasti)):
                return True
        frame = frame.f_back
    return False


def _takes(clause: Clause, frame: FrameType, errors: tuple[type[Exception], ...]) -> bool:
    """Whether one `except` takes one of the errors, or some of its class; what cannot be looked up may."""
    if not clause:
        return True
    for name in clause:
        found = _looked_up(name, frame)
        for kind in found if isinstance(found, tuple) else (found,):
            if not isinstance(kind, type) or any(issubclass(kind, x) or issubclass(x, kind) for x in errors):
                return True
    return False


def _looked_up(name: str, frame: FrameType) -> Any:
    """A global name, or an attribute of a module that one names; None where it is neither."""
    first, *rest = name.split(".")
    found = frame.f_globals.get(first, getattr(builtins, first, None))
    for part in rest:
        found = getattr(found, part, None) if isinstance(found, ModuleType) else None
    return found


def _clauses_at(code: CodeType, offset: int) -> tuple[Clause, ...]:
    """The `except` clauses around an instruction, the innermost first."""
    if not code.co_exceptiontable:
        return ()
    found = _clauses.get((code, offset))
    if found is None:
        if len(_clauses) >= _MOST:
            _clauses.clear()
        found = _clauses[code, offset] = tuple(_all_clauses(code, offset))
    return found


class _Region(NamedTuple):
    """Instructions from `start` until before `end` whose errors go to `target`, with so many entries of the stack, and
    the place of the instruction if `lasti`, below the error."""

    start: int
    end: int
    target: int
    depth: int
    lasti: bool


def regions_of(code: CodeType) -> Iterator[_Region]:
    """The rows of a code object's exception table (CPython's InternalDocs/exception_handling.md)."""
    rest = iter(code.co_exceptiontable)

    def number(byte: int) -> int:
        value = byte & 63
        while byte & 64:
            byte = next(rest)
            value = value << 6 | byte & 63
        return value
    for byte in rest:
        start, length, target, depth = number(byte), number(next(rest)), number(next(rest)), number(next(rest))
        yield _Region(2 * start, 2 * (start + length), 2 * target, depth >> 1, bool(depth & 1))


def _all_clauses(code: CodeType, offset: int) -> Iterator[Clause]:
    regions = list(regions_of(code))
    instructions = {x.offset: x for x in dis.get_instructions(code)}
    places = list(instructions)
    following = dict(pairwise(places))
    seen = set()
    while True:  # an error in a handler goes to the one around it
        target = next((x.target for x in regions if x.start <= offset < x.end), None)
        if target is None or target in seen:
            return
        seen.add(target)
        offset = target
        if instructions[target].opname == "PUSH_EXC_INFO":
            yield from _clauses_of(instructions, following, following[target])


def _clauses_of(instructions: dict[int, dis.Instruction], following: dict[int, int], place: int) -> Iterator[Clause]:
    """The clauses of the handler that begins here; none of what a `with` or a `finally` does."""
    while instructions[place].opname != "POP_TOP":  # what `except:` begins with
        names: list[str] = []
        while (each := instructions[place]).opname != "CHECK_EXC_MATCH":
            if each.opname == "LOAD_ATTR" and names:
                names[-1] += f".{each.argval}"
            elif each.opname.startswith("LOAD_"):
                names.append(str(each.argval))
            elif each.opname not in ("BUILD_TUPLE", "EXTENDED_ARG", "NOP", "CACHE"):
                return
            place = following[place]
        yield tuple(names)
        while not instructions[place].opname.startswith("POP_JUMP"):
            place = following[place]
        place = instructions[place].argval  # the next clause
    yield ()
