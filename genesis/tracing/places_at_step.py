"""What a captured call has kept in Python when it comes to its step, which is run when the call is over.

Where the step's writes are dropped then, as there is no memory for it, the program has to be where it would be if the
optimizer's `step()` had raised: what the function kept in objects, lists and variables behind that line is put back, by
one call of C. What it kept before stays. Objects of Genesis' own put themselves back.
"""

from __future__ import annotations

import operator
import types
from collections import deque
from collections.abc import Iterator
from typing import Any

from genesis.frontend.at_once import Change, at_once, changes
from genesis.frontend.tensor import Tensor
from genesis.tracing.snapshot import MISSING, Entered, own_dictionary
from genesis.tracing.tracer import is_own_module

Place = tuple[Any, Any]
"""A container, or a variable of a closure, and what it holds."""


class PlacesAtStep:
    """The places that a call's code can look up, as they are when it comes to its first step.

    Args:
        entered: the call's snapshot.
    """

    def __init__(self, entered: Entered):
        self._entered = entered
        self._there: list[Place] = []
        self._globals: list[tuple[Any, str, Any]] = []

    def note(self) -> None:
        """The call has come to its step."""
        values = self._entered.world.values()
        own = set[int]()
        for value in values:
            if is_own_module(type(value).__module__) and type(inside := own_dictionary(value)) is dict:
                _note_containers(inside, own)
        self._there = [(target, _held(target)) for value in values for target in _places(value)
                       if id(target) not in own]
        self._globals = [(space, name, space.get(name, MISSING)) for space, name, _ in self._entered.found.values()
                         if type(space) is dict]

    def put_back(self) -> None:
        """Put back what has changed in these places since."""
        found: list[Change] = []
        replaced: list[Any] = []  # held until it is done: the end of an object may be a line of Python
        for target, before in self._there:
            now = _held(target)
            if not _same(before, now):
                replaced.append(now)
                found += _putting(target, before)
        for space, name, value in self._globals:
            now = space.get(name, MISSING)
            if now is not value and value is not MISSING:
                replaced.append(now)
                found.append((operator.setitem, space, name, value))
        if found:
            at_once(changes((), found))
        del replaced


def _note_containers(value: Any, found: set[int]) -> None:
    """Note a container of an object of Genesis' own, and those in it: an optimizer takes its counts back by itself."""
    if id(value) not in found and isinstance(value, (dict, list)):
        found.add(id(value))
        for inner in value.values() if isinstance(value, dict) else value:
            _note_containers(inner, found)


def _places(value: Any) -> Iterator[Any]:
    """The containers that an object of a snapshot is, or has."""
    if type(value) in (dict, list, set, deque):
        yield value
    elif isinstance(value, types.FunctionType):
        yield from value.__closure__ or ()
    elif not isinstance(value, (type, types.ModuleType, Tensor)):
        inside = own_dictionary(value)
        if type(inside) is dict:
            yield inside


def _held(target: Any) -> Any:
    if isinstance(target, types.CellType):
        try:
            return (target.cell_contents,)
        except ValueError:
            return ()
    return dict(target) if type(target) is dict else list(target)


def _same(before: Any, now: Any) -> bool:
    if type(before) is dict:
        return before.keys() == now.keys() and all(now[key] is value for key, value in before.items())
    return len(before) == len(now) and all(map(operator.is_, before, now))


def _putting(target: Any, before: Any) -> list[Change]:
    if isinstance(target, types.CellType):
        return [(setattr, target, "cell_contents", before[0])] if before else [(delattr, target, "cell_contents")]
    if type(target) is list:
        return [(operator.setitem, target, slice(None), before)]
    return [(target.clear,), (target.extend if type(target) is deque else target.update, before)]
