"""Instants of a running program at which a fault can be injected, and the injection."""

from __future__ import annotations

import dis
import gc
import signal
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple, Protocol

import genesis
from genesis.frontend.state import lock

_HOME = str(Path(genesis.__file__).parent) + "/"
_MACHINE = _HOME + "runtime/fake_cuda/"
"""The fake GPU stands for hardware: nothing is injected inside of it."""

_OWN = str(Path(__file__).parent) + "/"
_PROGRAMS = tuple(map(str, Path(__file__).parent.glob("*programs.py")))
"""The programs: between two lines of a function that they compile, or hand over, there are instants as well."""

_ARGUMENTS = _HOME + "runtime/cuda/launch_arguments.py"

_PLAN_CALLS = tuple(_HOME + room for room in ("runtime/cpu/", "codegen/cpu/"))
"""Where a plan's torch calls are made."""


class Place(NamedTuple):
    """A place of an event: where in the code, or which resource was asked for.

    Attributes:
        file: the path inside of the package, or what stands for it.
        line: its line; of what asks for a resource, the number of the request.
        offset: of the opcode; -1 for an event that is no opcode's.
    """

    file: str
    line: int
    offset: int = -1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f"+{self.offset}" if self.offset >= 0 else "")


class Instants(Protocol):
    """A kind of instants: numbered from 0 while a function runs.

    Attributes:
        last: where the last fault was injected.
    """

    last: AtExit

    def places(self, function: Callable[[], Any]) -> list[Place]:
        """Run the function; returns the place of each instant, in order."""

    def fail(self, function: Callable[[], Any], at: int, error: BaseException) -> Any:
        """Run the function, raising the error at instant number `at`; returns what the function does."""


class Injected:
    """Marks of an error that was injected: how it is told from one that the program raised."""

    text = "injected"


def injected(kind: type[BaseException]) -> BaseException:
    """A new error of this kind, to be injected."""
    return kind(Injected.text)


def was_injected(error: BaseException) -> bool:
    """Whether an error is an injected one, or a copy of it that a tensor kept."""
    return Injected.text in str(error)


class AtExit(NamedTuple):
    """Where the last fault was injected: whether that is between the end of a `with` block and the call of the
    context's `__exit__`, where Python protects nothing and looks for no signal."""

    code: CodeType | None
    offset: int
    line: int = 0

    @property
    def place(self) -> Place | None:
        """Where it was, if it was in code: with memory that others use it may be elsewhere than in the run before."""
        return None if self.code is None else Place(_file_of(self.code), self.line, self.offset)

    @property
    def unprotected(self) -> bool:
        """Whether it is there."""
        return self.code is not None and self.offset in _exits_of(self.code)


@cache
def _exits_of(code: CodeType) -> frozenset[int]:
    """The offsets of the opcodes with which `with` blocks of the code end: three times None, and the call; after an
    exception in the block those of its handler, before that calls."""
    found: set[int] = set()
    listed = list(dis.get_instructions(code))
    for before, call in pairwise(listed):
        if (before.opname, call.opname) == ("PUSH_EXC_INFO", "WITH_EXCEPT_START"):
            found.update((before.offset, call.offset))
    for at in range(len(listed) - 4):
        window = listed[at:at + 5]
        if all(i.opname == "LOAD_CONST" and i.argval is None for i in window[:3]) and (
                window[3].opname in ("PRECALL", "CALL") and window[3].arg == 2):
            first = [listed[at - 1].offset] if at and listed[at - 1].opname in ("SWAP", "NOP") else []
            found.update([*first, *(i.offset for i in window if i.opname != "POP_TOP")])
    return frozenset(found)


@cache
def _met_at(code: CodeType) -> frozenset[int]:
    """The offsets of opcodes before which Python looks for signals: where a function begins, behind a call, and where a
    loop turns."""
    listed = list(dis.get_instructions(code))
    found = {i.offset for i in listed if i.opname in ("RESUME", "JUMP_BACKWARD")}
    return frozenset(found | {after.offset for before, after in pairwise(listed) if before.opname.startswith("CALL")})


LIMIT = signal.SIGUSR1
"""The signal of time limits, whose handler raises an error."""


@contextmanager
def _limited(error: BaseException) -> Iterator[None]:
    """`LIMIT` has a handler that raises this error."""
    def limit(number: int, frame: object) -> None:
        raise error
    before = signal.signal(LIMIT, limit)
    try:
        yield
    finally:
        signal.signal(LIMIT, before)


class Traced:
    """Instants of the interpreter: lines, opcodes, or calls of C functions while a plan runs.

    Args:
        kind: "line", "opcode", "call", or "limit": opcodes before which Python looks for signals, whose handler raises.
        rooms: folders of the package whose code has them, all by default. A flush has other lines each time. What the
            collector finds would run lines of a room at any time, whatever it is of (a pass over a loader that an
            earlier test has left): where there are rooms, it waits.
    """

    def __init__(self, kind: str, rooms: tuple[str, ...] = ("",)):
        self._kind = kind
        self._opcodes = kind in ("opcode", "limit")
        self._rooms, self._collects = tuple(_HOME + room for room in rooms), rooms == ("",)
        self._watched: dict[CodeType, bool] = {}
        self.last = AtExit(None, 0)

    def _watches(self, code: CodeType) -> bool:
        found = self._watched.get(code)
        if found is None:
            name = code.co_filename
            found = name.startswith(_PLAN_CALLS) if self._kind == "call" else (
                name.startswith((*self._rooms, *_PROGRAMS)) and not name.startswith(_MACHINE))
            self._watched[code] = found
        return found

    def _serves_the_machine(self, caller: Any) -> bool:
        """Is what this frame calls a part of the machine's work: the arguments of a launch that it runs, described?"""
        return caller is not None and (caller.f_code.co_filename.startswith(_MACHINE) or (
            caller.f_trace is None and caller.f_code.co_filename == _ARGUMENTS))

    def places(self, function: Callable[[], Any]) -> list[Place]:
        """See `Instants`."""
        found: list[Place] = []
        opcodes = self._opcodes

        def note(frame: Any) -> None:
            code = frame.f_code
            found.append(Place(_file_of(code), frame.f_lineno or 0, frame.f_lasti if opcodes else -1))
        with self._handled(injected(RuntimeError)), self._installed(note):  # what handlers are held back from has lines
            function()
        return found

    def fail(self, function: Callable[[], Any], at: int, error: BaseException) -> Any:
        """See `Instants`."""
        left = at

        def count(frame: Any) -> None:
            nonlocal left
            left -= 1
            if left == -1:
                sys.settrace(None)
                sys.setprofile(None)
                self.last = AtExit(frame.f_code, frame.f_lasti, frame.f_lineno or 0)
                self._raise(error)
        with self._handled(error), self._installed(count):
            return function()

    def _handled(self, error: BaseException) -> AbstractContextManager[None]:
        return _limited(error) if self._kind == "limit" else nullcontext()

    def _raise(self, error: BaseException) -> None:
        if self._kind != "limit":
            raise error
        signal.raise_signal(LIMIT)  # its handler raises, behind the statement's part that it is held back from

    def fail_in_turn(self, function: Callable[[], Any], place: Place, turn: int, error: BaseException) -> Any:
        """Run the function, raising the error where a line's or opcode's place is reached for the time number `turn`.

        That is the instant that `fail` finds by its number. Frames of other code are not traced: the function runs
        nearly as fast as by itself, where each opcode's call of `fail` takes ten times as long.
        """
        left, opcodes = turn, self._opcodes

        def inside(frame: Any, event: str, argument: Any) -> Any:
            nonlocal left
            if (event == "opcode" and frame.f_lasti == place.offset) if opcodes else (
                    event == "line" and frame.f_lineno == place.line):
                left -= 1
                if left == -1:
                    sys.settrace(None)
                    self.last = AtExit(frame.f_code, frame.f_lasti, frame.f_lineno or 0)
                    self._raise(error)
            return inside

        def entered(frame: Any, event: str, argument: Any) -> Any:
            if _file_of(frame.f_code) != place.file or not _has(frame.f_code, place):
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = opcodes, not opcodes
            return inside
        with self._handled(error), self._traced(sys.settrace, entered):
            return function()

    def interrupt(self, function: Callable[[], Any], at: int) -> None:
        """Run the function, raising KeyboardInterrupt at instant number `at`. Grad mode may stay off, and the engine's
        lock held, only where a `with` ends unprotected, and are put back there, for what runs next."""
        try:
            self.fail(function, at, injected(KeyboardInterrupt))
        finally:
            if not genesis.is_grad_enabled():
                genesis.set_grad_enabled(True)
                assert self.last.unprotected, f"grad mode is left off by an interrupt at {self.last.place}"
            while lock._is_owned():  # type: ignore[attr-defined]
                lock.release()
                assert self.last.unprotected, f"the engine's lock is left held by an interrupt at {self.last.place}"

    @contextmanager
    def _installed(self, each: Callable[[Any], None]) -> Iterator[None]:
        watches, opcodes, signals = self._watches, self._opcodes, self._kind == "limit"
        wanted = "opcode" if opcodes else self._kind

        def inside(frame: Any, event: str, argument: Any) -> Any:
            if event == wanted and (not signals or frame.f_lasti in _met_at(frame.f_code)):
                each(frame)
            return inside

        def entered(frame: Any, event: str, argument: Any) -> Any:
            if not watches(frame.f_code) or self._serves_the_machine(frame.f_back):
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = opcodes, not opcodes
            return inside

        def calls(frame: Any, event: str, argument: Any) -> None:
            if event == "c_call" and watches(frame.f_code) and _of_torch(argument):
                each(frame)
        with self._traced(*(sys.setprofile, calls) if wanted == "call" else (sys.settrace, entered)):
            yield

    @contextmanager
    def _traced(self, trace: Callable[[Any], None], each: Callable[..., Any]) -> Iterator[None]:
        collects = gc.isenabled()
        if not self._collects:
            gc.disable()
        trace(each)
        try:
            yield
        finally:
            sys.settrace(None)
            sys.setprofile(None)
            if collects and not self._collects:
                gc.enable()


@cache
def _file_of(code: CodeType) -> str:
    """The code's file inside of the package, or among the programs."""
    return code.co_filename.removeprefix(_HOME).removeprefix(_OWN)


@cache
def _has(code: CodeType, place: Place) -> bool:
    """Whether a line's or opcode's place is in this code."""
    return any((line or 0) == place.line and (place.offset < 0 or start <= place.offset < end)
               for start, end, line in code.co_lines())


def _of_torch(function: Any) -> bool:
    owner = type(getattr(function, "__self__", None))
    return str(getattr(function, "__module__", None) or owner.__module__).startswith("torch")


class Asked:
    """Instants at which a resource is asked for through functions that are replaced meanwhile: allocations, or calls
    of a driver."""

    def __init__(self, *functions: tuple[Any, str]):
        self._functions = functions
        self.last = AtExit(None, 0)

    def places(self, function: Callable[[], Any]) -> list[Place]:
        """See `Instants`."""
        found: list[Place] = []
        with self._replaced(lambda name: found.append(Place(name, len(found)))):
            function()
        return found

    def fail(self, function: Callable[[], Any], at: int, error: BaseException) -> Any:
        """See `Instants`."""
        left = at

        def count(name: str) -> None:
            nonlocal left
            left -= 1
            if left == -1:
                raise error
        with self._replaced(count):
            return function()

    @contextmanager
    def _replaced(self, each: Callable[[str], None]) -> Iterator[None]:
        before = [(owner, name, getattr(owner, name), name in vars(owner)) for owner, name in self._functions]
        for owner, name, original, _ in before:
            setattr(owner, name, _telling(each, name, original))
        try:
            yield
        finally:
            for owner, name, original, own in before:
                if own:
                    setattr(owner, name, original)
                else:
                    delattr(owner, name)


def _telling(each: Callable[[str], None], name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def asked(*what: Any, **how: Any) -> Any:
        each(name)
        return original(*what, **how)
    return asked


class Depths:
    """Instants of the stack: how many calls into one another there is room for. Which call finds its end is up to
    Python, and may be one of C (up to Python 3.11).

    Args:
        driver: of the fake GPU, which has all the room that it wants: hardware has no such stack.
    """

    LEAST = 3
    """Calls that there is always room for: what restores the limit is one."""

    def __init__(self, driver: Any = None) -> None:
        self.last = AtExit(None, 0)
        self._driver = driver

    def places(self, function: Callable[[], Any]) -> list[Place]:
        """See `Instants`: of one run, up to a few more calls than those of Python's functions."""
        deepest = here = _depth()

        def note(frame: Any, event: str, argument: Any) -> None:
            nonlocal deepest
            if event == "call":
                deepest = max(deepest, _depth(frame))
        sys.setprofile(note)
        try:
            function()
        finally:
            sys.setprofile(None)
        return [Place("stack", room) for room in range(deepest - here + 6)]

    def fail(self, function: Callable[[], Any], at: int, error: BaseException) -> Any:
        """See `Instants`; the error is Python's."""
        before = sys.getrecursionlimit()
        with self._roomy(before):
            sys.setrecursionlimit(_depth() + self.LEAST + at)
            try:
                return function()
            finally:
                sys.setrecursionlimit(before)

    @contextmanager
    def _roomy(self, limit: int) -> Iterator[None]:
        own = () if self._driver is None else dir(type(self._driver))
        names = [name for name in own if not name.startswith("_") and callable(getattr(self._driver, name))]
        for name in names:
            setattr(self._driver, name, _with_room(getattr(self._driver, name), limit))
        try:
            yield
        finally:
            for name in names:
                delattr(self._driver, name)


def _with_room(function: Callable[..., Any], limit: int) -> Callable[..., Any]:
    def run(*what: Any, **how: Any) -> Any:
        before = sys.getrecursionlimit()
        sys.setrecursionlimit(limit)
        try:
            return function(*what, **how)
        finally:
            sys.setrecursionlimit(before)
    return run


def _depth(frame: Any = None) -> int:
    """The frames below this one, or below the caller's."""
    frame, count = frame or sys._getframe(1), 0
    while frame is not None:
        frame, count = frame.f_back, count + 1
    return count


def instants_of(kind: str, device: str, driver: Any = None) -> Instants:
    """The instants of a kind: "line", "opcode", "limit", "allocation", "call" or "depth", of programs on a device."""
    from genesis.runtime.cpu import executor, storage
    if kind == "depth":
        return Depths(driver)
    if kind in ("line", "opcode", "limit") or (kind == "call" and device == "cpu"):
        return Traced(kind)
    if kind == "call":
        return Asked(*[(driver, name) for name in ("launch", "launch_graph", "build_graph", "update_node", "copy",
                                                   "copy_to_device", "copy_to_host", "fill", "synchronize_stream")])
    if kind != "allocation":
        raise ValueError(f"no such kind of instants: {kind}")
    host = [(executor, "allocate"), (storage, "allocate")]
    if device == "cpu":
        return Asked(*host)
    from genesis.runtime.cuda.storage import CUDAStorage
    return Asked(*host, (CUDAStorage, "__init__"), (driver, "alloc"), (driver, "map_memory"),
                 (driver, "alloc_host"))


def turns_of(places: list[Place]) -> list[int]:
    """How often the place of each instant came before it.

    >>> turns_of([Place("a", 1), Place("b", 1), Place("a", 1)])
    [0, 0, 1]
    """
    found: Counter[Place] = Counter()
    turns = []
    for place in places:
        turns.append(found[place])
        found[place] += 1
    return turns


def chosen(places: list[Place]) -> list[int]:
    """The instants to fail at: of each place the first, the second, the middle and the last.

    >>> chosen([Place("a", 1), Place("b", 1), Place("a", 1)])
    [0, 1, 2]
    """
    at: dict[Hashable, list[int]] = {}
    for number, place in enumerate(places):
        at.setdefault(place, []).append(number)
    found = sorted({n for several in at.values()
                    for n in (*several[:2], several[len(several) // 2], several[-1])})
    return found
