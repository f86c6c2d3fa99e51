"""Where a value goes that a call gives, read off the code of the function with the call.

The walk follows all ways on from the call: jumps, loops, handlers of exceptions. It ends well if the value only takes
part in arithmetic and then goes into the result, alone or in tuples, lists and dictionaries that are made there, to the
end of a list, into an item or an attribute; and if from then on nobody is called who might look there.

A replay puts the value into its place when all else is done, and an interrupt may come just before. So what is kept
from there on is noted, too: it has to be put there along with the value.
"""

from __future__ import annotations

import dis
import inspect
import re
import types
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

from genesis.frontend.caught import regions_of

_NOTHING = frozenset({"CACHE", "EXTENDED_ARG", "NOP", "PRECALL", "RESUME", "NOT_TAKEN", "KW_NAMES", "MAKE_CELL",
                      "COPY_FREE_VARS"})
_ROOTS = frozenset({"LOAD_GLOBAL", "LOAD_DEREF", "LOAD_NAME"})
_ENDS = frozenset({"RETURN_VALUE", "RETURN_CONST", "RERAISE", "RAISE_VARARGS"})
_ALWAYS = frozenset({"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"})
_CONSTANTS = frozenset({"LOAD_CONST", "LOAD_SMALL_INT"})
_ARITHMETIC = frozenset({"+", "-", "*", "/", "//", "**", "+=", "-=", "*=", "/=", "//=", "**="})
_UNARY = frozenset({"UNARY_NOT", "UNARY_NEGATIVE", "UNARY_POSITIVE", "UNARY_INVERT", "TO_BOOL"})
_ASKING = _UNARY | {"COMPARE_OP", "CONTAINS_OP"}
"""Instructions that call a method of an object, which may look anywhere; a number's does not."""
_QUIET = frozenset({"POP_TOP", "PUSH_NULL", "LOAD_CLOSURE", "POP_EXCEPT", "PUSH_EXC_INFO", "DELETE_FAST", "END_FOR",
                    "POP_ITER", "BUILD_STRING"})
"""Instructions that call nobody, and keep nothing where others find it."""
_POPS = {"POP_TOP": 1, "UNPACK_SEQUENCE": 1, "GET_ITER": 1, "STORE_GLOBAL": 1, "STORE_DEREF": 1, "STORE_NAME": 1,
         "LOAD_CLOSURE": 0, "PUSH_NULL": 0, "DELETE_FAST": 0, "LIST_EXTEND": 1, "DICT_UPDATE": 1, "SET_UPDATE": 1,
         "DICT_MERGE": 1, "BEFORE_WITH": 1, "IMPORT_FROM": 0, "PUSH_EXC_INFO": 1, "POP_EXCEPT": 1, "DELETE_ATTR": 1,
         "BINARY_SLICE": 3, "STORE_SLICE": 4, "FORMAT_SIMPLE": 1, "FORMAT_WITH_SPEC": 2, "CONVERT_VALUE": 1,
         "LOAD_ASSERTION_ERROR": 0, "DELETE_SUBSCR": 2}
"""Values that an instruction takes off the stack."""
_POPPING_ALL = frozenset({"BUILD_SET", "BUILD_STRING", "BUILD_SLICE"})
"""Instructions that take as many as they are told."""
_LOOKING = frozenset({"locals", "vars", "eval", "exec", "dir"})
_GENERATOR = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE | inspect.CO_ASYNC_GENERATOR
_PUTTING: Final = frozenset({"append"})
_NUMBERS: Final = frozenset({("round",), ("abs",)})
"""Functions that compute with numbers, as operators do."""
_FUNCTIONS: Final = frozenset({(name,) for name in ("len", "float", "int", "round", "min", "max", "abs", "str")})
"""Functions that look at what they are given, and no further."""
_MOST_STEPS: Final = 20_000
"""Instructions that a walk follows, each as often as it learns something new; a longer one is given up."""


class Item(NamedTuple):
    """An item of a dictionary, as a part of a path."""

    key: str


Path = tuple[Any, ...]
"""A variable, then attributes (their names) and items of it."""
ANYWHERE: Final = None
"""A key of which nothing is known, or the end of a list."""


@dataclass(frozen=True)
class Method:
    """A method of what is at the path, or of a container that the code has made; None for something else."""

    owner: Any
    name: str


@dataclass(frozen=True)
class Made:
    """A function that is made on the way: a comprehension."""

    code: types.CodeType


@dataclass(frozen=True)
class _Constant:
    value: Any


@dataclass(frozen=True)
class _Own:
    """A list or dictionary that the code has made and nobody else knows: in this variable, '' for none."""

    variable: str


@dataclass(frozen=True)
class Kind:
    """What an entry of the stack is to the value."""

    name: str


NUMBER: Final = Kind("number")
"""The value, or what arithmetic made of it."""
HOLDER: Final = Kind("holder")
"""A container that was made on the way and has it inside, or what no arithmetic is done with."""
_PLAIN: Final = Kind("plain")
"""A number of Python's that has nothing to do with the value."""
_VALUES: Final = frozenset({NUMBER, HOLDER})


@dataclass(frozen=True)
class WayOut:
    """Where a value goes from the call that gives it to the end of its function.

    Attributes:
        callee: the path of what is called, a `Method`, a `Made`, or None where the code does not show it.
        returned: NUMBER or HOLDER where it is in the result; None where it is not.
        put: (container, key) where it, or something after it, is put: the key of a dictionary's item, or ANYWHERE.
        stored: (object, attribute) where it, or something after it, is stored.
        looked_up: attributes and items that are looked up while it is in such places.
        given: (callee, position of the argument) of functions that it is given to.
        called: what is called while it is in such places. It must not look there.
        plain: what has to be a plain number, a text or a tensor: methods of these look nowhere.
        fixed: which of them may be no tensor, as an operator would write to that.
    """

    callee: Any
    returned: Kind | None
    put: tuple[tuple[Path, str | None], ...]
    stored: tuple[tuple[Path, str], ...]
    looked_up: tuple[Path, ...]
    given: tuple[tuple[Any, int], ...]
    called: tuple[Any, ...]
    plain: tuple[Path, ...]
    fixed: tuple[Path, ...]


def way_out(code: types.CodeType, offset: int, kind: Kind | None = NUMBER, there: bool = False,
            hidden: frozenset[str] | None = None) -> WayOut | None:
    """Where what the call at the offset gives goes; None unless it only leaves the function.

    Args:
        kind: what the call gives; None where it gives something else, and has left the value somewhere.
        there: the call has left the value in a list or attribute.
        hidden: attributes, and some items, are what must not be looked at: None where the value is one that says so.
    """
    return _way_out(code, offset, kind, there, hidden)


@lru_cache(maxsize=1024)
def _way_out(code: types.CodeType, offset: int, kind: Kind | None, there: bool,
             hidden: frozenset[str] | None) -> WayOut | None:
    if code.co_flags & _GENERATOR or _looks(code):
        return None
    steps = list(_steps(code))
    at = max((i for i, x in enumerate(steps) if x.offset <= offset), default=None)  # it may be that of an inline cache
    if at is None or steps[at].opname not in ("CALL", "CALL_KW"):
        return None
    return _Walk(code, steps, hidden).run(at, kind, there)


@lru_cache(maxsize=1024)
def way_of_argument(code: types.CodeType, position: int) -> WayOut | None:
    """Where a positional argument of a function goes; None unless it only leaves the function."""
    if code.co_flags & _GENERATOR or _looks(code) or position >= code.co_argcount or (
            code.co_varnames[position] in code.co_cellvars):
        return None
    return _Walk(code, list(_steps(code))).run(None, None, False, {code.co_varnames[position]: NUMBER})


@lru_cache(maxsize=1024)
def way_through(code: types.CodeType) -> WayOut | None:
    """What a function does that is called while the value is somewhere: None unless it looks nowhere."""
    if code.co_flags & _GENERATOR or _looks(code):
        return None
    return _Walk(code, list(_steps(code))).run(None, None, True)


def _looks(code: types.CodeType) -> bool:
    """Whether the code may look at all its variables at once."""
    return not _LOOKING.isdisjoint(code.co_names) and any(
        x.argval in _LOOKING and x.opname in _ROOTS for x in dis.get_instructions(code))


class _Step(NamedTuple):
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


def _steps(code: types.CodeType) -> Iterator[_Step]:
    named = False
    for x in dis.get_instructions(code):
        named = named or x.opname in ("KW_NAMES", "CALL_KW")
        if x.opname in _NOTHING:
            continue
        if isinstance(x.argval, tuple) and x.opname.count("_FAST") == 2:
            for kind, name in zip(re.findall("(LOAD|STORE)_FAST", x.opname), x.argval, strict=True):
                yield _Step(f"{kind}_FAST", dis.opmap[f"{kind}_FAST"], 0, name, "", x.offset, False)
            continue
        yield _Step(x.opname, x.opcode, x.arg, x.argval, x.argrepr, x.offset, named)
        named = named and x.opname not in ("CALL", "CALL_KW")


class _Lost(Exception):
    """The value may be looked at."""


class _State:
    """What is known before an instruction.

    Attributes:
        stack: of each entry a kind, a path, a `Method`, ...; None for anything else.
        variables: NUMBER, HOLDER or an `_Own` for those that hold such; the others are not in it.
        there: the value is in a list or attribute that others may know.
    """

    __slots__ = ("stack", "there", "variables")

    def __init__(self, stack: list[Any], variables: dict[str, Any], there: bool):
        self.stack, self.variables, self.there = stack, variables, there

    def copy(self) -> _State:
        return _State(self.stack.copy(), self.variables.copy(), self.there)

    def joined(self, other: _State) -> _State | None:
        """The state that holds after either; None if this one does."""
        if len(self.stack) != len(other.stack):
            raise _Lost
        stack = list(map(_either, self.stack, other.stack))
        variables = {name: kind for name in {**self.variables, **other.variables} if (kind := _either(
            self.variables.get(name), other.variables.get(name))) is not None}
        there = self.there or other.there
        if stack == self.stack and variables == self.variables and there == self.there:
            return None
        return _State(stack, variables, there)


def _either(a: Any, b: Any) -> Any:
    if a == b:
        return a
    if type(a) is Method and type(b) is Method and a.name == b.name:
        return Method(_either(a.owner, b.owner), a.name)
    if HOLDER in (a, b):
        return HOLDER
    if NUMBER in (a, b):
        return HOLDER if _Own in (type(a), type(b)) else NUMBER
    return None


class _Walk:
    """A walk along the code, from its beginning: before the call nothing holds the value."""

    def __init__(self, code: types.CodeType, steps: Sequence[_Step], hidden: frozenset[str] | None = None):
        self._hidden = hidden
        self._steps, self._offsets = steps, [x.offset for x in steps]
        self._regions = list(regions_of(code))
        self._callee: Any = None
        self._returned: Kind | None = None
        self._put_in: dict[tuple[Path, str | None], None] = {}
        self._stored: dict[tuple[Path, str], Kind] = {}
        self._also_stored: dict[tuple[Path, str], None] = {}
        self._before: set[tuple[Path, str | None]] = set()  # where something is kept before the value is
        self._looked_up: dict[Path, None] = {}
        self._fixed: dict[Path, None] = {}
        self._keys: set[str] = set()
        self._given: dict[tuple[Any, int], None] = {}
        self._called: dict[Any, None] = {}
        self._plain: dict[Path, None] = {}
        self._assigned: set[str] = set()

    def run(self, call: int | None, kind: Kind | None, there: bool,
            variables: dict[str, Any] | None = None) -> WayOut | None:
        """See `way_out`. The value is what the instruction at `call` gives, or in these variables."""
        self._call, self._kind, self._gives_there = call, kind, there
        known: dict[int, _State] = {0: _State([], variables or {}, there and call is None)}
        waiting, left = [0], _MOST_STEPS
        try:
            while waiting:
                at, left = waiting.pop(), left - 1
                if not left:
                    return None
                for place, state in self._after(at, known[at].copy()):
                    before = known.get(place)
                    joined = state if before is None else before.joined(state)
                    if joined is not None:
                        known[place] = joined
                        waiting.append(place)
        except (_Lost, IndexError):
            return None
        stored = (*self._stored, *self._also_stored)
        if not self._before.isdisjoint((*self._put_in, *stored)):  # there is no one moment for the place
            return None
        if any(how is ANYWHERE and path in {x for x, _ in self._put_in} for path, how in self._before) or any(
                how is ANYWHERE and path in {x for x, _ in self._before} for path, how in self._put_in):
            return None
        roots = {path[0] for path in (*self._plain, *self._looked_up, *map(_path_of, self._called),
                                      *[x for x, _ in (*self._put_in, *stored)]) if path}
        if not roots.isdisjoint(self._assigned):  # what is called then is not what is there now
            return None
        return WayOut(self._callee, self._returned, tuple(self._put_in), stored, tuple(self._looked_up),
                      tuple(self._given), tuple(self._called), tuple(self._plain), tuple(self._fixed))

    def _after(self, at: int, state: _State) -> list[tuple[int, _State]]:
        """The instructions that may come after one, with what is known then."""
        step = self._steps[at]
        found = []
        for region in self._regions:
            if region.start <= step.offset < region.end:
                stack = [*(state.stack[:region.depth]), *[None] * (1 + region.lasti)]
                found.append((self._place(region.target), _State(stack, state.variables.copy(), state.there)))
                break
        if step.opname in _ENDS:
            if step.opname == "RETURN_VALUE":
                self._returns(state.stack.pop())
            elif step.opname != "RETURN_CONST" and not _VALUES.isdisjoint(filter(_is_kind, state.stack)):
                raise _Lost
            return found
        if step.opcode in dis.hasjrel or step.opcode in dis.hasjabs:
            target = self._place(step.argval)
            if step.opname in _ALWAYS:
                return [*found, (target, state)]
            jumped = state.copy()
            self._jump(step, jumped, True)
            self._jump(step, state, False)
            return [*found, (target, jumped), (at + 1, state)]
        if at == self._call:
            self._gives(step, state)
        else:
            self._follow(step, state)
        return [*found, (at + 1, state)]

    def _place(self, offset: int) -> int:
        """The first instruction that does something from an offset on."""
        return bisect_left(self._offsets, offset)

    def _returns(self, value: Any) -> None:
        if value in (NUMBER, HOLDER):
            self._returned = value if self._returned in (None, value) else HOLDER

    def _jump(self, step: _Step, state: _State, jump: bool) -> None:
        """Follow a jump that is made or not."""
        top = state.stack[-1] if state.stack else None
        if top in (NUMBER, HOLDER):
            raise _Lost
        if state.there and not step.opname.endswith("NONE"):
            self._needs_plain(top)
        change = dis.stack_effect(step.opcode, step.arg, jump=jump)
        if change < 0:
            del state.stack[change:]
        state.stack += [None] * change

    def _gives(self, step: _Step, state: _State) -> None:
        """Follow the call that gives the value."""
        taken = _take(state, _popped(step))
        self._callee = next((x for x in taken[:2] if type(x) in (tuple, Method, Made)), None)
        if not _VALUES.isdisjoint(filter(_is_kind, taken)):
            raise _Lost
        self._use(state, taken)
        state.there = state.there or self._gives_there
        state.stack.append(self._kind)

    def _follow(self, step: _Step, state: _State) -> None:
        """Follow one instruction."""
        name, count, stack = step.opname, step.arg or 0, state.stack
        if name.startswith("LOAD_FAST"):
            if name == "LOAD_FAST_AND_CLEAR" and step.argval in state.variables:
                raise _Lost
            held = state.variables.get(step.argval)
            stack.append((step.argval,) if held is None else held)
        elif name in _ROOTS:
            for _ in range(dis.stack_effect(step.opcode, step.arg) - 1):
                stack.append(None)
            stack.append((step.argval,))
        elif name in _CONSTANTS:
            stack.append(_Constant(step.argval))
        elif name == "STORE_FAST":
            self._set(state, step.argval, stack.pop())
        elif name == "SWAP":
            stack[-1], stack[-count] = stack[-count], stack[-1]
        elif name == "COPY":
            stack.append(stack[-count])
        elif name in ("BUILD_TUPLE", "BUILD_LIST", "BUILD_MAP", "BUILD_CONST_KEY_MAP"):
            self._build(step, state)
        elif name in ("LIST_APPEND", "MAP_ADD"):
            self._add(state, _take(state, 1 + (name == "MAP_ADD")), count)
        elif name in ("CALL", "CALL_KW"):
            self._calls(step, state)
        elif name == "STORE_ATTR":
            self._store(step, state)
        elif name == "STORE_SUBSCR":
            self._put(state)
        elif name in ("LOAD_ATTR", "LOAD_METHOD"):
            self._attribute(step, state)
        elif name == "BINARY_SUBSCR" or (name == "BINARY_OP" and step.argrepr == "[]"):
            self._item(state)
        elif name == "BINARY_OP":
            self._operation(step, state)
        elif name in _ASKING or name == "IS_OP":
            self._ask(step, state)
        elif name == "MAKE_FUNCTION":
            code = stack[-1].value if type(stack[-1]) is _Constant else None
            self._other(step, state)
            if isinstance(code, types.CodeType) and not code.co_freevars:
                stack[-1] = Made(code)
        else:
            if state.there and name not in _QUIET:
                raise _Lost
            self._other(step, state)

    def _ask(self, step: _Step, state: _State) -> None:
        """Follow a comparison, or an operator of one operand."""
        taken = _take(state, 1 if step.opname in _UNARY else 2)
        if taken == [NUMBER] and step.opname == "UNARY_NEGATIVE":
            state.stack.append(NUMBER)
            return
        if not _VALUES.isdisjoint(filter(_is_kind, taken)):
            raise _Lost
        if state.there and step.opname != "IS_OP":
            for operand in taken:
                self._needs_plain(operand)
        self._use(state, taken)
        state.stack.append(_PLAIN if state.there or step.opname == "IS_OP" else None)

    def _other(self, step: _Step, state: _State) -> None:
        """Follow an instruction that must not get the value; which entries it takes nobody may say."""
        if "FAST" in step.opname and step.argval in state.variables:
            raise _Lost
        count = _POPS.get(step.opname, (step.arg or 0) if step.opname in _POPPING_ALL else None)
        if count is not None:
            taken = _take(state, count)
            if step.opname != "POP_TOP":
                if not _VALUES.isdisjoint(filter(_is_kind, taken)):
                    raise _Lost
                self._use(state, taken)
            state.stack += [None] * (count + dis.stack_effect(step.opcode, step.arg, jump=False))
            return
        if not _VALUES.isdisjoint(filter(_is_kind, state.stack)):
            raise _Lost
        self._use(state, state.stack)
        state.stack[:] = [None] * (len(state.stack) + dis.stack_effect(step.opcode, step.arg, jump=False))

    def _set(self, state: _State, name: str, value: Any) -> None:
        """Follow a write to a local variable."""
        if state.there:
            self._assigned.add(name)
        if type(value) is _Own and value.variable:  # two variables have it
            state.variables.pop(value.variable, None)
            value = None
        if value in (NUMBER, HOLDER):
            state.variables[name] = value
        elif type(value) is _Own:
            state.variables[name] = _Own(name)
        else:
            state.variables.pop(name, None)

    def _build(self, step: _Step, state: _State) -> None:
        count = step.arg or 0
        of_map = step.opname == "BUILD_MAP"
        taken = _take(state, 2 * count if of_map else count + (step.opname == "BUILD_CONST_KEY_MAP"))
        keys = taken[::2] if step.opname == "BUILD_MAP" else ()
        if not _VALUES.isdisjoint(filter(_is_kind, keys)):
            raise _Lost
        self._use(state, taken)
        holds = not _VALUES.isdisjoint(filter(_is_kind, taken))
        state.stack.append(HOLDER if holds else None if step.opname == "BUILD_TUPLE" else _Own(""))

    def _add(self, state: _State, taken: list[Any], count: int) -> None:
        """Follow what a comprehension does."""
        if len(taken) == 2 and taken[0] in (NUMBER, HOLDER):
            raise _Lost
        self._use(state, taken)
        if taken[-1] in (NUMBER, HOLDER):
            if state.stack[-count] not in (_Own(""), HOLDER):
                raise _Lost
            state.stack[-count] = HOLDER

    def _calls(self, step: _Step, state: _State) -> None:
        """Follow a call of something else."""
        taken = _take(state, _popped(step))
        callee: Any = next((x for x in taken[:2] if type(x) in (tuple, Method, Made)), None)
        arguments = taken[-step.arg:] if step.arg else []  # positional ones, where `step.named` is not true
        if step.opname == "CALL_KW":
            arguments = taken[-step.arg - 1:-1] if step.arg else []
        values = [i for i, x in enumerate(arguments) if x in (NUMBER, HOLDER)]
        if len(values) < sum(x in (NUMBER, HOLDER) for x in taken):
            raise _Lost
        putting = type(callee) is Method and callee.name in _PUTTING and step.arg == 1
        fresh = type(callee) is Made and callee.code.co_name in ("<listcomp>", "<dictcomp>")
        result: Any = _Own("") if fresh else None
        if putting and values and callee.owner is not None:
            self._hold(state, callee.owner, ANYWHERE)
        elif callee in _NUMBERS and values == [0] and arguments[0] == NUMBER and not step.named:
            self._called[callee] = None
            result = NUMBER
        elif values:
            known = type(callee) is tuple or (type(callee) is Method and type(callee.owner) is tuple)
            if step.named or len(values) > 1 or arguments[values[0]] != NUMBER or not known or state.there:
                raise _Lost
            self._given[callee, values[0]] = None
            state.there = True
        elif state.there:
            if type(callee) is not Method and type(callee) is not tuple:
                raise _Lost
            self._called[callee] = None
            if callee in _FUNCTIONS:
                for x in arguments:
                    self._needs_plain(x)
        elif putting and type(callee.owner) is tuple:
            self._before.add((callee.owner, ANYWHERE))
        if type(callee) is Method and callee.owner == HOLDER and not putting:
            raise _Lost
        self._use(state, [x for x in taken if x is not callee] if putting else taken)
        state.stack.append(result)

    def _hold(self, state: _State, owner: Any, key: str | None) -> None:
        """The value is put into a container."""
        if type(owner) is _Own:
            if owner.variable:
                state.variables[owner.variable] = HOLDER
        elif owner != HOLDER:
            if type(owner) is not tuple:
                raise _Lost
            self._put_in[owner, key] = None
            state.there = True

    def _store(self, step: _Step, state: _State) -> None:
        value, owner = _take(state, 2)
        if owner in (NUMBER, HOLDER):
            raise _Lost
        if value in (NUMBER, HOLDER):
            if type(owner) is not tuple:
                raise _Lost
            self._stored[owner, step.argval] = value
            state.there = True
        elif any(step.argval == name for _, name in self._stored):
            raise _Lost
        elif state.there:
            if type(owner) is not tuple:
                raise _Lost
            self._also_stored[owner, step.argval] = None
        elif type(owner) is tuple:
            self._before.add((owner, step.argval))
        self._use(state, (value, owner))

    def _put(self, state: _State) -> None:
        """Follow a write to an item."""
        value, owner, key = _take(state, 3)
        if key in (NUMBER, HOLDER) or owner == NUMBER:
            raise _Lost
        if value in (NUMBER, HOLDER):
            if type(key) is not _Constant or type(key.value) is not str:
                raise _Lost
            self._keys.add(key.value)
            self._hold(state, owner, key.value)
            self._use(state, (value, key))
        else:
            place = key.value if type(key) is _Constant and type(key.value) is str else ANYWHERE
            if state.there and type(owner) is not _Own:
                if type(owner) is not tuple:
                    raise _Lost
                self._put_in[owner, place] = None
                if place is ANYWHERE:
                    self._needs_plain(key)
            elif type(owner) is tuple:
                self._before.add((owner, place))
            self._use(state, (value, key) if type(owner) is _Own else (value, owner, key))

    def _attribute(self, step: _Step, state: _State) -> None:
        owner = state.stack.pop()
        pushes = 1 + dis.stack_effect(step.opcode, step.arg)
        if owner == NUMBER or (owner == HOLDER and step.argval not in _PUTTING):
            raise _Lost
        if state.there and self._hidden is not None and step.argval in self._hidden:
            raise _Lost
        kept = self._stored.get((owner, step.argval)) if type(owner) is tuple else None
        if kept is None and any(step.argval == name for _, name in self._stored):
            raise _Lost
        if owner == HOLDER or type(owner) is _Own:
            if step.argval not in _PUTTING:
                self._use(state, (owner,))
                owner = None
            found: Any = Method(owner, step.argval)
        elif kept is not None:
            found = kept
        elif type(owner) is tuple:
            found = (*owner, step.argval) if pushes == 1 else Method(owner, step.argval)
            if state.there and pushes == 1 and (owner, step.argval) not in self._also_stored:
                self._looked_up[found] = None
        elif state.there and pushes == 1:
            raise _Lost
        else:
            found = Method(None, step.argval)
        state.stack += [*[None] * (pushes - 1), found] if kept is not None else [found, *[None] * (pushes - 1)]

    def _item(self, state: _State) -> None:
        owner, key = _take(state, 2)
        if owner in (NUMBER, HOLDER) or key in (NUMBER, HOLDER):
            raise _Lost
        self._use(state, (owner, key))
        named = type(key) is _Constant and type(key.value) is str
        if state.there and (not named or key.value in self._keys or type(owner) is not tuple
                            or self._hidden is not None):
            raise _Lost
        if state.there:
            self._looked_up[*owner, Item(key.value)] = None
        state.stack.append((*owner, Item(key.value)) if named and type(owner) is tuple else None)

    def _operation(self, step: _Step, state: _State) -> None:
        """Follow an operator between two operands."""
        pair = _take(state, 2)
        numbers = [x == NUMBER for x in pair]
        if HOLDER in pair:
            if step.argrepr not in ("|", "|=") or not all(x == HOLDER or x == _Own("") for x in pair):
                raise _Lost
            state.stack.append(HOLDER)
            return
        if any(numbers):
            if step.argrepr not in _ARITHMETIC:
                raise _Lost
            for x in pair:
                if x != NUMBER:
                    self._needs_number(x)
            state.stack.append(NUMBER)
            return
        if state.there:
            for x in pair:
                self._needs_plain(x)
            if step.argrepr.endswith("=") and type(pair[0]) is tuple:
                self._fixed[pair[0]] = None
        self._use(state, pair)
        state.stack.append(_PLAIN if all(type(x) is _Constant or x == _PLAIN for x in pair) or state.there else None)

    def _needs_number(self, x: Any) -> None:
        """The other operand beside the value: asked at run time, as `LaterNumber` asks again."""
        if type(x) is _Own:
            raise _Lost

    def _needs_plain(self, x: Any) -> None:
        """What this is must look nowhere when it is asked for something."""
        if type(x) is tuple:
            self._plain[x] = None
        elif type(x) is not _Constant and x not in (_PLAIN, NUMBER):
            raise _Lost

    def _use(self, state: _State, taken: Sequence[Any]) -> None:
        """Somebody else gets these: containers of this function's own are not its own any more."""
        for x in taken:
            owner = x.owner if type(x) is Method else x
            if type(owner) is _Own and owner.variable:
                state.variables.pop(owner.variable, None)


def _is_kind(x: Any) -> bool:
    return type(x) is Kind


def _path_of(callee: Any) -> Path:
    return callee.owner or () if type(callee) is Method else callee


def _take(state: _State, count: int) -> list[Any]:
    if count > len(state.stack):
        raise _Lost
    taken = state.stack[len(state.stack) - count:]
    del state.stack[len(state.stack) - count:]
    return taken


def _popped(step: _Step) -> int:
    """What a call takes off the stack: the function, what it is a method of, arguments, and their names' tuple."""
    return (step.arg or 0) + 2 + (step.opname == "CALL_KW")
