"""How a walk along bytecode follows calls: the one that gives the value, those that the value is given to, and those
that come while it is where they may look at it."""

from __future__ import annotations

from typing import Any, Final

from genesis.tracing.instructions import Step, popped
from genesis.tracing.walk_state import (
    ANYWHERE,
    HOLDER,
    NUMBER,
    PLAIN,
    Answer,
    Constant,
    Kind,
    Lost,
    Made,
    Method,
    Own,
    State,
    any_value,
    is_value,
)
from genesis.tracing.way_out import Found

PUTTING: Final = frozenset({"append"})
"""Methods that put what they are given into a container."""
_NUMBERS: Final = frozenset({("round",), ("abs",)})
"""Functions that compute with numbers, as operators do."""
_FUNCTIONS: Final = frozenset({(name,) for name in ("len", "float", "int", "round", "min", "max", "abs", "str")})
"""Functions that look at what they are given, and no further."""
_COMPREHENSIONS: Final = frozenset({"<listcomp>", "<dictcomp>"})


def give_value(found: Found, step: Step, state: State, kind: Kind | None, there: bool) -> None:
    """Follow the call that gives the value.

    Args:
        kind: what it gives; None for something else.
        there: it has left the value where others may look.

    Raises:
        Lost: it was given the value that it has given before, in a loop.
    """
    taken = state.take(popped(step))
    found.callee = _callee_of(taken)
    if any_value(taken):
        raise Lost
    state.use(taken)
    state.there = state.there or there
    state.stack.append(kind)


def follow_call(found: Found, step: Step, state: State) -> None:
    """Follow a call of something else.

    Raises:
        Lost: it may look at the value.
    """
    taken = state.take(popped(step))
    callee = _callee_of(taken)
    end = len(taken) - (step.opname == "CALL_KW")
    before, arguments = taken[:end - (step.arg or 0)], taken[end - (step.arg or 0):end]
    if any_value(before):
        raise Lost
    putting = type(callee) is Method and callee.name in PUTTING and step.arg == 1
    if type(callee) is Method and callee.owner == HOLDER and not putting:
        raise Lost
    if any_value(arguments):
        result: Any = _gets(found, step, state, callee, arguments, putting)
    else:
        result = Own("") if type(callee) is Made and callee.code.co_name in _COMPREHENSIONS else None
        if state.there:
            _is_called(found, callee, arguments)
            result = Answer(callee)
        elif putting and type(callee.owner) is tuple:
            found.before.add((callee.owner, ANYWHERE))
    state.use([x for x in taken if x is not callee] if putting else taken)
    state.stack.append(result)


def _callee_of(taken: list[Any]) -> Any:
    """What is called, of the entries that a call takes off the stack; None for what the code does not show."""
    return next((x for x in taken[:2] if type(x) in (tuple, Method, Made)), None)


def _gets(found: Found, step: Step, state: State, callee: Any, arguments: list[Any], putting: bool) -> Kind | None:
    """Follow a call that the value is given to; what the call gives."""
    values = [i for i, x in enumerate(arguments) if is_value(x)]
    if putting and callee.owner is not None:
        found.hold(state, callee.owner, ANYWHERE, HOLDER)
        return None
    if step.named or values != values[:1] or arguments[values[0]] != NUMBER:
        raise Lost
    if callee in _NUMBERS and values == [0]:
        found.called[callee] = None
        return NUMBER
    known = type(callee) is tuple or (type(callee) is Method and type(callee.owner) is tuple)
    if not known or state.there:
        raise Lost
    found.given[callee, values[0]] = None
    state.there = True
    return None


def _is_called(found: Found, callee: Any, arguments: list[Any]) -> None:
    """Something is called while the value is where it may be looked at."""
    if type(callee) is not Method and type(callee) is not tuple:
        raise Lost
    if type(callee) is Method and (type(callee.owner) is Own or callee.owner is HOLDER):
        return  # the end of a list that the code has made
    found.called[callee] = None
    if callee in _FUNCTIONS:
        for x in arguments:
            found.needs_plain(x)
    elif type(callee) is Method and callee.owner is not None:
        found.arguments.update({(callee, x if type(x) is tuple else None): None for x in arguments
                                if type(x) is not Constant and x is not PLAIN})
