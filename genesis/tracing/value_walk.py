"""Where a value goes that a call gives, read off the code of the function with the call.

The walk follows all ways on from the call: jumps, loops, handlers of exceptions. It ends well if the value only takes
part in arithmetic and then goes into the result, alone or in tuples, lists and dictionaries that are made there, to the
end of a list, into an item or an attribute; and if from then on nobody is called who might look there.

A replay puts the value into its place when all else is done, and an interrupt may come just before. So what is kept
from there on is noted, too: it has to be put there along with the value.
"""

from __future__ import annotations

import dis
import types
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

from genesis.frontend.caught import regions_of
from genesis.tracing.instructions import CONSTANTS, ROOTS, Step, steps_of
from genesis.tracing.walk_calls import PUTTING, follow_call, give_value
from genesis.tracing.walk_state import (
    ANYWHERE,
    HOLDER,
    NUMBER,
    PLAIN,
    Answer,
    Constant,
    Item,
    Kind,
    Lost,
    Made,
    Method,
    Own,
    State,
    any_value,
    is_value,
)
from genesis.tracing.way_out import Found, WayOut

_ENDS = frozenset({"RETURN_VALUE", "RETURN_CONST", "RERAISE", "RAISE_VARARGS"})
_ALWAYS = frozenset({"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"})
_ARITHMETIC = frozenset({"+", "-", "*", "/", "//", "**", "+=", "-=", "*=", "/=", "//=", "**="})
_UNARY = frozenset({"UNARY_NOT", "UNARY_NEGATIVE", "UNARY_POSITIVE", "UNARY_INVERT", "TO_BOOL"})
_ASKING = _UNARY | {"COMPARE_OP", "CONTAINS_OP"}
"""Instructions that call a method of an object, which may look anywhere; a number's does not."""
_QUIET = frozenset({"POP_TOP", "PUSH_NULL", "LOAD_CLOSURE", "POP_EXCEPT", "PUSH_EXC_INFO", "DELETE_FAST", "END_FOR",
                    "POP_ITER", "BUILD_STRING"})
"""Instructions that call nobody, and keep nothing where others find it."""
_POPS: Final[dict[str, int]] = {
    "POP_TOP": 1, "UNPACK_SEQUENCE": 1, "GET_ITER": 1, "STORE_GLOBAL": 1, "STORE_DEREF": 1, "STORE_NAME": 1,
    "LOAD_CLOSURE": 0, "PUSH_NULL": 0, "DELETE_FAST": 0, "LIST_EXTEND": 1, "DICT_UPDATE": 1, "SET_UPDATE": 1,
    "DICT_MERGE": 1, "BEFORE_WITH": 1, "IMPORT_FROM": 0, "PUSH_EXC_INFO": 1, "POP_EXCEPT": 1, "DELETE_ATTR": 1,
    "BINARY_SLICE": 3, "STORE_SLICE": 4, "FORMAT_SIMPLE": 1, "FORMAT_WITH_SPEC": 2, "CONVERT_VALUE": 1,
    "LOAD_ASSERTION_ERROR": 0, "DELETE_SUBSCR": 2,
    **{name: -dis.stack_effect(dis.opmap[name]) for name in ("END_FOR", "POP_ITER") if name in dis.opmap}}
"""Values that an instruction takes off the stack."""
_POPPING_ALL = frozenset({"BUILD_SET", "BUILD_STRING", "BUILD_SLICE"})
"""Instructions that take as many as they are told."""
_MOST_STEPS: Final = 20_000
"""Instructions that a walk follows, each as often as it learns something new; a longer one is given up."""


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
    steps = steps_of(code)
    at = max((i for i, x in enumerate(steps or ()) if x.offset <= offset), default=None)  # or that of an inline cache
    if steps is None or at is None or steps[at].opname not in ("CALL", "CALL_KW"):
        return None
    return _Walk(code, steps, hidden).run(at, kind, there)


@lru_cache(maxsize=1024)
def way_of_argument(code: types.CodeType, position: int) -> WayOut | None:
    """Where a positional argument of a function goes; None unless it only leaves the function."""
    steps = steps_of(code)
    if steps is None or position >= code.co_argcount or code.co_varnames[position] in code.co_cellvars:
        return None
    return _Walk(code, steps).run(None, None, False, {code.co_varnames[position]: NUMBER})


@lru_cache(maxsize=1024)
def way_through(code: types.CodeType) -> WayOut | None:
    """What a function does that is called while the value is somewhere: None unless it looks nowhere."""
    steps = steps_of(code)
    return None if steps is None else _Walk(code, steps).run(None, None, True)


class _Walk:
    """A walk along the code, from its beginning: before the call nothing holds the value."""

    def __init__(self, code: types.CodeType, steps: Sequence[Step], hidden: frozenset[str] | None = None):
        self._hidden = hidden
        self._steps, self._offsets = steps, [x.offset for x in steps]
        self._regions = list(regions_of(code))
        self._found = Found()

    def run(self, call: int | None, kind: Kind | None, there: bool,
            variables: dict[str, Any] | None = None) -> WayOut | None:
        """See `way_out`. The value is what the instruction at `call` gives, or in these variables."""
        self._call, self._kind, self._gives_there = call, kind, there
        known: dict[int, State] = {0: State([], variables or {}, there and call is None)}
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
        except (Lost, IndexError):
            return None
        return self._found.way()

    def _after(self, at: int, state: State) -> list[tuple[int, State]]:
        """The instructions that may come after one, with what is known then."""
        step = self._steps[at]
        found = []
        for region in self._regions:
            if region.start <= step.offset < region.end:
                stack = [*(state.stack[:region.depth]), *[None] * (1 + region.lasti)]
                found.append((self._place(region.target), State(stack, state.variables.copy(), state.there)))
                break
        if step.opname in _ENDS:
            if step.opname == "RETURN_VALUE":
                if is_value(value := state.stack.pop()):
                    self._found.returns(value)
                else:
                    self._found.gives[value] = None
            elif step.opname == "RETURN_CONST":
                self._found.gives[Constant(step.argval)] = None
            elif any_value(state.stack):
                raise Lost
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
            give_value(self._found, step, state, self._kind, self._gives_there)
        else:
            self._follow(step, state)
        return [*found, (at + 1, state)]

    def _place(self, offset: int) -> int:
        """The first instruction that does something from an offset on."""
        return bisect_left(self._offsets, offset)

    def _jump(self, step: Step, state: State, jump: bool) -> None:
        """Follow a jump that is made or not."""
        top = state.stack[-1] if state.stack else None
        if is_value(top):
            raise Lost
        if state.there and not step.opname.endswith("NONE"):
            self._found.needs_plain(top)
        change = dis.stack_effect(step.opcode, step.arg, jump=jump)
        if change < 0:
            del state.stack[change:]
        state.stack += [None] * change

    def _follow(self, step: Step, state: State) -> None:
        """Follow one instruction."""
        rule = _RULES.get(step.opname)
        if rule is not None:
            rule(self, step, state)
        else:
            self._follow_unknown(step, state)

    def _follow_unknown(self, step: Step, state: State) -> None:
        """Follow an instruction that has no rule."""
        if state.there and step.opname not in _QUIET:
            raise Lost
        self._other(step, state)

    def _load(self, step: Step, state: State) -> None:
        if step.opname == "LOAD_FAST_AND_CLEAR" and step.argval in state.variables:
            raise Lost
        held = state.variables.get(step.argval)
        state.stack.append((step.argval,) if held is None else held)

    def _load_root(self, step: Step, state: State) -> None:
        state.stack += [None] * (dis.stack_effect(step.opcode, step.arg) - 1)
        state.stack.append((step.argval,))

    def _constant(self, step: Step, state: State) -> None:
        state.stack.append(Constant(step.argval))

    def _swap(self, step: Step, state: State) -> None:
        depth = step.arg or 0
        state.stack[-1], state.stack[-depth] = state.stack[-depth], state.stack[-1]

    def _copy(self, step: Step, state: State) -> None:
        state.stack.append(state.stack[-(step.arg or 0)])

    def _make_function(self, step: Step, state: State) -> None:
        code = state.stack[-1].value if type(state.stack[-1]) is Constant else None
        self._other(step, state)
        if isinstance(code, types.CodeType) and not code.co_freevars:
            state.stack[-1] = Made(code)

    def _ask(self, step: Step, state: State) -> None:
        """Follow a comparison, or an operator of one operand."""
        taken = state.take(1 if step.opname in _UNARY else 2)
        if taken == [NUMBER] and step.opname == "UNARY_NEGATIVE":
            state.stack.append(NUMBER)
            return
        if any_value(taken):
            raise Lost
        if state.there and step.opname != "IS_OP":
            for operand in taken:
                self._found.needs_plain(operand)
        state.use(taken)
        state.stack.append(PLAIN if state.there or step.opname == "IS_OP" else None)

    def _other(self, step: Step, state: State) -> None:
        """Follow an instruction that must not get the value; which entries it takes nobody may say."""
        if "FAST" in step.opname and step.argval in state.variables:
            raise Lost
        count = _POPS.get(step.opname, (step.arg or 0) if step.opname in _POPPING_ALL else None)
        if count is not None:
            taken = state.take(count)
            if step.opname != "POP_TOP":
                if any_value(taken):
                    raise Lost
                state.use(taken)
            state.stack += [None] * (count + dis.stack_effect(step.opcode, step.arg, jump=False))
            return
        if any_value(state.stack):
            raise Lost
        state.use(state.stack)
        state.stack[:] = [None] * (len(state.stack) + dis.stack_effect(step.opcode, step.arg, jump=False))

    def _set(self, step: Step, state: State) -> None:
        """Follow a write to a local variable."""
        name, value = step.argval, state.stack.pop()
        if state.there:
            self._found.assigned.add(name)
        if type(value) is Own and value.variable:  # two variables have it
            state.variables.pop(value.variable, None)
            value = None
        if is_value(value) or type(value) is Answer:
            state.variables[name] = value
        elif type(value) is Own:
            state.variables[name] = Own(name)
        else:
            state.variables.pop(name, None)

    def _build(self, step: Step, state: State) -> None:
        count, of_map = step.arg or 0, step.opname == "BUILD_MAP"
        taken = state.take(2 * count if of_map else count + (step.opname == "BUILD_CONST_KEY_MAP"))
        if of_map and any_value(taken[::2]):
            raise Lost
        state.use(taken)
        state.stack.append(HOLDER if any_value(taken) else None if step.opname == "BUILD_TUPLE" else Own(""))

    def _add(self, step: Step, state: State) -> None:
        """Follow what a comprehension does."""
        taken, depth = state.take(1 + (step.opname == "MAP_ADD")), step.arg or 0
        if len(taken) == 2 and is_value(taken[0]):
            raise Lost
        state.use(taken)
        if is_value(taken[-1]):
            if state.stack[-depth] not in (Own(""), HOLDER):
                raise Lost
            state.stack[-depth] = HOLDER

    def _calls(self, step: Step, state: State) -> None:
        follow_call(self._found, step, state)

    def _store(self, step: Step, state: State) -> None:
        value, owner = state.take(2)
        if is_value(owner):
            raise Lost
        if is_value(value):
            if type(owner) is not tuple:
                raise Lost
            self._found.stored[owner, step.argval] = value
            state.there = True
        elif any(step.argval == name for _, name in self._found.stored):
            raise Lost
        elif state.there:
            if type(owner) is not tuple:
                raise Lost
            self._found.also_stored[owner, step.argval] = None
        elif type(owner) is tuple:
            self._found.before.add((owner, step.argval))
        state.use((value, owner))

    def _put(self, step: Step, state: State) -> None:
        """Follow a write to an item."""
        value, owner, key = state.take(3)
        if is_value(key) or owner == NUMBER or (type(key) is Constant and type(key.value) is slice):  # since 3.14
            raise Lost
        if is_value(value):
            if type(key) is not Constant or type(key.value) is not str:
                raise Lost
            self._found.keys.add(key.value)
            self._found.hold(state, owner, key.value, value)
            state.use((value, key))
        else:
            place = key.value if type(key) is Constant and type(key.value) is str else ANYWHERE
            if state.there and type(owner) is not Own:
                if type(owner) is not tuple:
                    raise Lost
                self._found.put.setdefault((owner, place), None)
                if place is ANYWHERE:
                    self._found.needs_plain(key)
            elif type(owner) is tuple:
                self._found.before.add((owner, place))
            state.use((value, key) if type(owner) is Own else (value, owner, key))

    def _attribute(self, step: Step, state: State) -> None:
        owner = state.stack.pop()
        pushes = 1 + dis.stack_effect(step.opcode, step.arg)
        if owner == NUMBER or (owner == HOLDER and step.argval not in PUTTING):
            raise Lost
        if state.there and self._hidden is not None and step.argval in self._hidden:
            raise Lost
        kept = self._found.stored.get((owner, step.argval)) if type(owner) is tuple else None
        if kept is None and any(step.argval == name for _, name in self._found.stored):
            raise Lost
        if owner == HOLDER or type(owner) is Own:
            if step.argval not in PUTTING:
                state.use((owner,))
                owner = None
            found: Any = Method(owner, step.argval)
        elif kept is not None:
            found = kept
        elif type(owner) is tuple:
            found = (*owner, step.argval) if pushes == 1 else Method(owner, step.argval)
            if state.there and pushes == 1 and (owner, step.argval) not in self._found.also_stored:
                self._found.looked_up[found] = None
        elif state.there and pushes == 1:
            raise Lost
        else:
            found = Method(owner if type(owner) is Answer or owner is PLAIN else None, step.argval)
        state.stack += [*[None] * (pushes - 1), found] if kept is not None else [found, *[None] * (pushes - 1)]

    def _item(self, step: Step, state: State) -> None:
        owner, key = state.take(2)
        if is_value(owner) or is_value(key):
            raise Lost
        state.use((owner, key))
        named = type(key) is Constant and type(key.value) is str
        if state.there and type(owner) is tuple and owner[-1] == "shape" and (
                type(key) is Constant and type(key.value) is int):
            state.stack.append(Answer(Method(owner[:-1], "size")))
            return
        kept = self._found.put.get((owner, key.value)) if named and type(owner) is tuple else None
        if kept is NUMBER and self._hidden is None:
            state.stack.append(kept)
            return
        if state.there and (not named or key.value in self._found.keys or type(owner) is not tuple
                            or self._hidden is not None):
            raise Lost
        if state.there:
            self._found.looked_up[*owner, Item(key.value)] = None
        state.stack.append((*owner, Item(key.value)) if named and type(owner) is tuple else None)

    def _unpack(self, step: Step, state: State) -> None:
        """Follow what takes a sequence apart: of an answer's parts is known what is of the whole."""
        whole = state.stack[-1] if state.stack else None
        if type(whole) is not Answer or not state.there:
            self._follow_unknown(step, state)
            return
        state.stack[-1:] = [whole] * (step.arg or 0)

    def _operation(self, step: Step, state: State) -> None:
        """Follow an operator between two operands."""
        if step.argrepr == "[]":  # since 3.14
            self._item(step, state)
            return
        pair = state.take(2)
        if HOLDER in pair:
            if step.argrepr not in ("|", "|=") or not all(x == HOLDER or x == Own("") for x in pair):
                raise Lost
            state.stack.append(HOLDER)
            return
        if NUMBER in pair:
            if step.argrepr not in _ARITHMETIC:
                raise Lost
            if Own in map(type, pair):
                raise Lost  # any other operand is asked at run time, as `LaterNumber` asks again
            state.stack.append(NUMBER)
            return
        if state.there:
            for x in pair:
                self._found.needs_plain(x)
            if step.argrepr.endswith("="):
                if type(pair[0]) is Answer or pair[0] is PLAIN:
                    raise Lost  # it may be a tensor, which the operator would write to
                if type(pair[0]) is tuple:
                    self._found.fixed[pair[0]] = None
        state.use(pair)
        state.stack.append(PLAIN if all(type(x) is Constant or x == PLAIN for x in pair) or state.there else None)


_RULES: Final[dict[str, Callable[[_Walk, Step, State], None]]] = {
    **dict.fromkeys(("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW", "LOAD_FAST_AND_CLEAR"), _Walk._load),
    **dict.fromkeys(ROOTS, _Walk._load_root),
    **dict.fromkeys(CONSTANTS, _Walk._constant),
    "STORE_FAST": _Walk._set,
    "SWAP": _Walk._swap,
    "COPY": _Walk._copy,
    **dict.fromkeys(("BUILD_TUPLE", "BUILD_LIST", "BUILD_MAP", "BUILD_CONST_KEY_MAP"), _Walk._build),
    **dict.fromkeys(("LIST_APPEND", "MAP_ADD"), _Walk._add),
    **dict.fromkeys(("CALL", "CALL_KW"), _Walk._calls),
    "STORE_ATTR": _Walk._store,
    "STORE_SUBSCR": _Walk._put,
    **dict.fromkeys(("LOAD_ATTR", "LOAD_METHOD"), _Walk._attribute),
    "BINARY_SUBSCR": _Walk._item,
    "UNPACK_SEQUENCE": _Walk._unpack,
    "BINARY_OP": _Walk._operation,
    **dict.fromkeys((*_ASKING, "IS_OP"), _Walk._ask),
    "MAKE_FUNCTION": _Walk._make_function,
}
"""What follows an instruction, by its name; `_other` the rest."""
