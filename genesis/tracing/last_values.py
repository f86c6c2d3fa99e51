"""Values that a captured call reads last: `return loss.item()`.

Reading a tensor ends a capture, as a program may go on with what it reads. Where the code shows that the value goes
nowhere but into the result (alone, in tuples, lists and dictionaries that are made there) or to the end of a list that
others hold, the captured call gets a number that stands for it, and a replay reads the tensor after it ran.

An exception between the two leaves no such number: what was in its places is put back, as if the program had come to
the line that keeps the value and no further.

Whoever else gets the number would compute with it: what of Genesis', of the standard library or in C reads a value
for itself (`bool(x)`, `allclose`, `max(map(read, xs))`). So each line on the way has to call by name what returns it.
"""

from __future__ import annotations

import dis
import inspect
import re
import sys
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import is_, setitem
from typing import Any, NamedTuple

from genesis.frontend.at_once import Change, at_once, changes
from genesis.frontend.layouts import forget
from genesis.frontend.recording import TensorBase, read, wrap
from genesis.frontend.state import state
from genesis.ir.node import make
from genesis.ir.ops import control
from genesis.nn.modules.tree import Tree, changing
from genesis.tracing.snapshot import MISSING
from genesis.tracing.tracer import is_user_code

_NOTHING = frozenset({"CACHE", "EXTENDED_ARG", "NOP", "PRECALL", "RESUME", "NOT_TAKEN", "KW_NAMES", "MAKE_CELL",
                      "COPY_FREE_VARS"})
_POPS = {
    "LOAD_CONST": 0, "LOAD_SMALL_INT": 0, "LOAD_NAME": 0, "PUSH_NULL": 0, "LOAD_ATTR": 1, "LOAD_METHOD": 1,
    "LOAD_GLOBAL": 0, "LOAD_DEREF": 0, "POP_TOP": 1, "STORE_GLOBAL": 1, "STORE_DEREF": 1, "STORE_ATTR": 2,
    "STORE_SUBSCR": 3, "BINARY_OP": 2, "BINARY_SUBSCR": 2, "COMPARE_OP": 2, "IS_OP": 2, "CONTAINS_OP": 2,
    "UNARY_NEGATIVE": 1, "UNARY_NOT": 1,
}
"""Values that an instruction takes off the stack, of those that may stand between the reading and the return."""
_ROOTS = frozenset({"LOAD_GLOBAL", "LOAD_DEREF", "LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK"})
_LOOKING_INSIDE = frozenset({"BINARY_SUBSCR", "CONTAINS_OP", "COMPARE_OP", "BINARY_OP", "UNARY_NOT", "UNARY_NEGATIVE"})
_KEEPING = frozenset({"STORE_GLOBAL", "STORE_DEREF", "STORE_SUBSCR"})
_ENDS = frozenset({"POP_TOP", "RETURN_VALUE", "RETURN_CONST", "RESUME", "FOR_ITER", "GET_ITER", "BEFORE_WITH"})
_LOOKING = frozenset({"locals", "vars", "eval", "exec", "dir"})
_GENERATOR = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE | inspect.CO_ASYNC_GENERATOR
_PASSING = frozenset({"__call__", "<lambda>", "_call_compiled"})
"""Functions of Genesis' that call a module's forward, and return what it does if there are no hooks."""
Path = tuple[str, ...]
"""A variable, and attributes of it."""


@dataclass
class _Later:
    """A number that stands for a value: `tensor` has it once it is computed; `method` reads it."""

    tensor: Any
    method: str
    stand_in: float


@dataclass(frozen=True)
class _WayOut:
    """Where a value goes from the call that gives it to the end of its function.

    Attributes:
        callee: the path of what is called, a `_Method`, or None where the code does not show it.
        appended: lists that it is appended to.
        stored: (object, attribute) where it is stored.
        looked_up: attributes that the code looks up once the value is in such a place.
    """

    callee: Any
    appended: tuple[Path, ...]
    stored: tuple[tuple[Path, str], ...]
    looked_up: tuple[Path, ...]


class LastValues:
    """The values that one captured call reads last.

    Args:
        entrance: the code whose frame calls the captured function.
    """

    def __init__(self, entrance: types.CodeType):
        self._entrance = entrance
        self._found: dict[int, _Later] = {}
        self._lists: list[tuple[list[Any], int]] = []  # with their lengths before
        self._spaces: list[tuple[dict[str, Any], str, Any]] = []  # with the names, and what was there before

    def stand_in(self, tensor: TensorBase, method: str) -> Any:
        """A number for the tensor's value, if that only leaves the call; else None.

        Args:
            method: by which the value is read: "item", "tolist" or "__float__".
        """
        if state.regions or not self._goes_out(method):
            return None
        node = read(tensor)
        forget()
        if node.buffer is not None or not node.inputs:  # memory, which may be written to later
            return None
        if node.needs_grad:
            node = make(control.stop_gradient, (node,))
        later = _Later(wrap(node), method, float("nan"))
        self._found[id(later.stand_in)] = later
        return later.stand_in

    def of(self, value: Any) -> tuple[Any, str] | None:
        """(tensor, method) of a number that stands for a value, None for anything else."""
        later = self._found.get(id(value))
        return None if later is None else (later.tensor, later.method)

    def settle(self, result: Any) -> Any:
        """The result with the values themselves, which are computed now; where else stand-ins went gets them, too."""
        if not self._found:
            return result
        values = {key: getattr(x.tensor, x.method)() for key, x in self._found.items()}
        puts: list[Change] = []
        for items, length in self._lists:
            for at in range(length, len(items)):
                _put(setitem, items, at, values, puts)
        for space, name, _ in self._spaces:
            if name in space:
                _put(dict.__setitem__, space, name, values, puts)
        found = _replaced(result, values, puts, set())
        held = [(owner, key, owner[key]) for _, owner, key, _ in puts]
        at_once(changes((), [*puts, (self._lists.clear,), (self._spaces.clear,)]))
        del held
        return found

    def undo(self) -> None:
        """Put back what was in the places of stand-ins that have not been settled."""
        puts: list[Change] = [(items.__delitem__, slice(length, None)) for items, length in self._lists]
        puts += [(dict.pop, space, name, None) if before is MISSING else (dict.__setitem__, space, name, before)
                 for space, name, before in self._spaces]
        if puts:
            at_once(changes((), [*puts, (self._lists.clear,), (self._spaces.clear,), changing()]))

    def _goes_out(self, method: str) -> bool:
        """Whether what the user's line reads now by this method of tensors only leaves the captured function."""
        below = sys._getframe(3)  # of the method
        frame = below.f_back
        if below.f_code.co_name != method or frame is None or not is_user_code(frame.f_code):
            return False
        lists: list[Any] = []
        spaces: list[tuple[Any, str]] = []
        calls = _reads
        kept: tuple[str, ...] | None = None
        while frame is not None and frame.f_code is not self._entrance:
            if is_user_code(frame.f_code):
                way = _way_out(frame.f_code, frame.f_lasti, kept)
                if way is None or not calls(frame, way.callee, below) or not all(
                        _is_plain(frame, path) for path in way.looked_up):
                    return False
                calls = _calls
                lists += [_found(frame, path) for path in way.appended]
                spaces += [(_attributes_of(_found(frame, path)), name) for path, name in way.stored]
                if way.appended or way.stored:
                    kept = (*(kept or ()), *[name for _, name in way.stored])
            elif not _passes_on(frame):
                return False
            below, frame = frame, frame.f_back
        if frame is None or any(type(x) is not list for x in lists) or any(space is None for space, _ in spaces):
            return False
        self._lists += [(x, len(x)) for x in lists]
        self._spaces += [(space, name, space.get(name, MISSING)) for space, name in spaces]
        return True


def _reads(frame: types.FrameType, callee: Any, below: types.FrameType) -> bool:
    """Whether what a line calls is the method of tensors whose frame is below, and nothing that calls that."""
    if callee == ("float",):
        float_there = frame.f_locals.get("float", frame.f_globals.get("float", float))
        return below.f_code.co_name == "__float__" and float_there is float
    return type(callee) is _Method and callee.name == below.f_code.co_name


def _calls(frame: types.FrameType, callee: Any, below: types.FrameType) -> bool:
    """Whether what a line calls is the function whose frame is below, or a module whose call that is."""
    called = None
    if type(callee) is tuple:
        called = _found(frame, callee)
    elif type(callee) is _Method and callee.path is not None:
        called = _attribute(_found(frame, callee.path), callee.name)
    if isinstance(called, Tree):
        return below.f_code.co_name in _PASSING or _code_of(type(called).__call__) is below.f_code
    of_class = inspect.getattr_static(type(called), "__call__", None)
    return below.f_code in (_code_of(called), _code_of(of_class))


def _code_of(called: Any) -> Any:
    """The code of a function, or of the one that a method, static or bound, is made of."""
    return getattr(getattr(called, "__func__", called), "__code__", None)


def _attribute(owner: Any, name: str) -> Any:
    """What is at a name of an object, without asking the object."""
    parts = getattr(owner, "__dict__", {}).get("_modules") if isinstance(owner, Tree) else None
    return parts[name] if parts is not None and name in parts else inspect.getattr_static(owner, name, None)


def _passes_on(frame: types.FrameType) -> bool:
    """Whether a frame of Genesis' own returns what the function that it called does."""
    module = frame.f_locals.get("self")
    hooks = getattr(module, "_forward_hooks", None) or getattr(module, "_forward_pre_hooks", None)
    return frame.f_code.co_name in _PASSING and not hooks


def _found(frame: types.FrameType, path: Path) -> Any:
    """The object at the path, None if it is not simply there."""
    name, *attributes = path
    value = frame.f_locals.get(name, frame.f_globals.get(name))
    for attribute in attributes:
        space = getattr(value, "__dict__", None)
        parts = space.get("_modules") if space is not None and isinstance(value, Tree) else None
        value = None if space is None else space.get(attribute, None if parts is None else parts.get(attribute))
    return value


def _is_plain(frame: types.FrameType, path: Path) -> bool:
    """Whether looking the path up runs no code: an attribute is in the object itself."""
    *owner, name = path
    value = _found(frame, tuple(owner))
    return name in getattr(value, "__dict__", ()) and not hasattr(
        inspect.getattr_static(type(value), name, None), "__get__")


def _attributes_of(value: Any) -> dict[str, Any] | None:
    """The dictionary that setting an attribute writes to, None if something else may happen."""
    plain = type(value).__setattr__ in (object.__setattr__, Tree.__setattr__)
    return getattr(value, "__dict__", None) if plain else None


def _put(setter: Any, owner: Any, key: Any, values: dict[int, Any], puts: list[Change]) -> None:
    """Add what puts the value into a place, if a stand-in is there; and into what is in the place."""
    found = _replaced(owner[key], values, puts, set())
    if found is not owner[key]:
        puts.append((setter, owner, key, found))


def _replaced(value: Any, values: dict[int, Any], puts: list[Change], seen: set[int]) -> Any:
    """The value with these in place of their stand-ins: the object itself, but for a tuple that has one. Adds what puts
    them into lists and dictionaries. `seen` are those on the way, which may hold themselves."""
    if id(value) in values:
        return values[id(value)]
    if type(value) is tuple:
        found = tuple([_replaced(x, values, puts, seen) for x in value])
        return value if all(map(is_, found, value)) else found
    if type(value) not in (list, dict) or id(value) in seen:
        return value
    seen.add(id(value))
    for key, x in list(enumerate(value) if type(value) is list else value.items()):
        found = _replaced(x, values, puts, seen)
        if found is not x:
            puts.append((setitem, value, key, found))
    return value


@lru_cache(maxsize=1024)
def _way_out(code: types.CodeType, offset: int, kept: tuple[str, ...] | None = None) -> _WayOut | None:
    """Where what the call at the offset gives goes; None unless it only leaves the function.

    Args:
        kept: what is called has kept the value, as attributes of these names or at the end of a list; None for not so.
    """
    if code.co_flags & _GENERATOR or not _LOOKING.isdisjoint(code.co_names):
        return None
    steps = list(_steps(code))
    at = max((i for i, x in enumerate(steps) if x.offset <= offset), default=None)  # it may be that of an inline cache
    if at is None or steps[at].opname not in ("CALL", "CALL_KW"):
        return None
    start = next((i + 1 for i in reversed(range(at)) if _ends_a_statement(steps[i])), 0)
    return _Walk(steps).run(start, at, kept)


class _Step(NamedTuple):
    """An instruction; those of two variables at once, of later Pythons, are two."""

    opname: str
    opcode: int
    arg: int | None
    argval: Any
    offset: int


def _steps(code: types.CodeType) -> Iterator[_Step]:
    for x in dis.get_instructions(code):
        if x.opname in _NOTHING:
            continue
        if isinstance(x.argval, tuple) and x.opname.count("_FAST") == 2:
            for kind, name in zip(re.findall("(LOAD|STORE)_FAST", x.opname), x.argval, strict=True):
                yield _Step(f"{kind}_FAST", dis.opmap[f"{kind}_FAST"], 0, name, x.offset)
        else:
            yield _Step(x.opname, x.opcode, x.arg, x.argval, x.offset)


def _ends_a_statement(step: _Step) -> bool:
    return step.opname in _ENDS or "STORE" in step.opname or "JUMP" in step.opname


class _Walk:
    """A walk along the code that follows where one value is: on the stack, in local variables.

    On its stack are _VALUE for what holds the value, the path of what was loaded, None for anything else. Once the
    value is kept in a place that outlives the function, no code may run that could look there. Nor is anything else
    kept from there on: a replay puts the value there when all else is done, and an interrupt may come just before.
    """

    def __init__(self, steps: Sequence[_Step]):
        self._steps = steps
        self._stack: list[Any] = []
        self._variables: set[str] = set()
        self._callee: Any = None
        self._appended: list[Path] = []
        self._stored: list[tuple[Path, str]] = []
        self._looked_up: list[Path] = []
        self._kept_by_others: tuple[str, ...] | None = None

    @property
    def _kept(self) -> bool:
        """Whether the value is kept somewhere by now."""
        return bool(self._appended or self._stored or self._kept_by_others is not None)

    def run(self, start: int, call: int, kept: tuple[str, ...] | None = None) -> _WayOut | None:
        """See `_way_out`. The value is what the instruction at `call` gives."""
        at, places = start, {x.offset: i for i, x in enumerate(self._steps)}
        while at < len(self._steps):
            step = self._steps[at]
            if step.opname in ("RETURN_CONST", "RETURN_VALUE"):
                return _WayOut(self._callee, tuple(self._appended), tuple(self._stored), tuple(self._looked_up))
            if step.opname == "JUMP_FORWARD":
                if step.argval not in places:
                    return None
                at = places[step.argval]
                continue
            if at == call:
                taken = self._take(_popped(step))
                self._callee = next((x for x in taken[:2] if type(x) in (tuple, _Method)), None)
                self._push(_VALUE)
                self._kept_by_others = kept
            elif not self._follow(step):
                return None
            at += 1
        return None

    def _follow(self, step: _Step) -> bool:
        """Follow one instruction; returns False where it could look at the value."""
        name, count = step.opname, step.arg or 0
        if name in _ROOTS:
            for _ in range(dis.stack_effect(step.opcode, step.arg) - 1):
                self._push(None)
            self._push(_VALUE if "FAST" in name and step.argval in self._variables else (step.argval,))
        elif name == "STORE_FAST":
            (self._variables.add if self._pop() is _VALUE else self._variables.discard)(step.argval)
        elif name in ("SWAP", "COPY"):
            self._fill(count)
            if name == "COPY":
                self._push(self._stack[-count])
            else:
                self._stack[-1], self._stack[-count] = self._stack[-count], self._stack[-1]
        elif name in ("BUILD_TUPLE", "BUILD_LIST"):
            self._push(_VALUE if _VALUE in self._take(count) else None)
        elif name == "BUILD_MAP":
            pairs = self._take(2 * count)
            self._push(_VALUE if _VALUE in pairs[1::2] else None)
            return _VALUE not in pairs[::2]
        elif name == "BUILD_CONST_KEY_MAP":
            self._pop()
            self._push(_VALUE if _VALUE in self._take(count) else None)
        elif name in ("CALL", "CALL_KW"):
            return self._call(step)
        elif name == "STORE_ATTR":
            return self._store(step)
        else:
            return self._other(step)
        return True

    def _call(self, step: _Step) -> bool:
        taken = self._take(_popped(step))
        if self._kept:  # whoever is called may look there
            return False
        if _VALUE in taken:
            method = next((x for x in taken[:2] if type(x) is _Method), None)
            if (method is None or method.name != "append" or method.path is None or step.arg != 1
                    or taken[2] is not _VALUE):
                return False
            self._appended.append(method.path)
        self._push(None)
        return True

    def _store(self, step: _Step) -> bool:
        value, owner = self._take(2)
        if value is _VALUE:
            if type(owner) is not tuple:
                return False
            self._stored.append((owner, step.argval))
        return owner is not _VALUE and (value is _VALUE or not self._kept)

    def _other(self, step: _Step) -> bool:
        """Follow an instruction that must not get the value."""
        name = step.opname
        if name not in _POPS or (self._kept and name in _LOOKING_INSIDE | _KEEPING):
            return False
        taken = self._take(_POPS[name])
        if _VALUE in taken and name != "POP_TOP":
            return False
        names = [*(self._kept_by_others or ()), *[attribute for _, attribute in self._stored]]
        if name.startswith("LOAD_") and step.argval in names:
            return False
        pushes = _POPS[name] + dis.stack_effect(step.opcode, step.arg, jump=False)
        path = taken[0] if taken and type(taken[0]) is tuple else None
        if name in ("LOAD_METHOD", "LOAD_ATTR") and self._kept:
            if path is None:
                return False
            self._looked_up.append((*path, step.argval))
        if name in ("LOAD_METHOD", "LOAD_ATTR") and (path is not None or pushes == 2):
            self._push((*path, step.argval) if pushes == 1 and path is not None else _Method(path, step.argval))
            pushes -= 1
        for _ in range(pushes):
            self._push(None)
        return True

    def _push(self, what: Any) -> None:
        self._stack.append(what)

    def _pop(self) -> Any:
        return self._stack.pop() if self._stack else None

    def _take(self, count: int) -> list[Any]:
        self._fill(count)
        taken = self._stack[len(self._stack) - count:]
        del self._stack[len(self._stack) - count:]
        return taken

    def _fill(self, count: int) -> None:
        """Makes at least so many entries on the stack: what was there before the walk began holds no such value."""
        self._stack[:0] = [None] * (count - len(self._stack))


@dataclass(frozen=True)
class _Method:
    """A method of what is at the path, None for something else."""

    path: Path | None
    name: str


_VALUE: Any = type("Value", (), {"__repr__": lambda self: "value"})()


def _popped(step: _Step) -> int:
    """What a call takes off the stack: the function, what it is a method of, arguments, and their names' tuple."""
    return (step.arg or 0) + 2 + (step.opname == "CALL_KW")
