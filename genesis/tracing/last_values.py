"""Values that a captured call reads last: `return loss.item()`.

Reading a tensor ends a capture, as a program may go on with what it reads. Where the code shows that the value only
takes part in arithmetic and then leaves the call (`value_walk.py`: in the result, at the end of a list, in an item or
an attribute), the captured call gets a number that stands for it, and a replay reads the tensor after it ran.

An exception between the two leaves no such number: what was in its places is put back, as if the program had come to
the line that keeps the value and no further.

Whoever else gets the number would compute with it: what of Genesis', of the standard library or in C reads a value
for itself (`bool(x)`, `allclose`, `max(map(read, xs))`). So each line on the way has to call by name what returns it.
"""

from __future__ import annotations

import sys
import types
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from operator import is_, setitem
from typing import Any, Final

from genesis.frontend.at_once import Change, at_once, changes
from genesis.frontend.host_values import host_number
from genesis.frontend.later_number import LaterNumber
from genesis.frontend.layouts import forget
from genesis.frontend.recording import TensorBase, read, wrap
from genesis.frontend.state import state
from genesis.ir.node import make
from genesis.ir.ops import control
from genesis.nn.modules.tree import changing
from genesis.tracing.differences import APPENDED, Difference
from genesis.tracing.frame_paths import calls_below, passes_on, reads_below
from genesis.tracing.kept_places import CONTAINERS, KeptPlaces
from genesis.tracing.plain_values import same
from genesis.tracing.slots import Place
from genesis.tracing.snapshot import MISSING, NotReplayable
from genesis.tracing.tracer import is_user_code
from genesis.tracing.value_walk import way_out
from genesis.tracing.walk_state import HOLDER, NUMBER, Kind

_DEEPEST: Final = 4
"""Functions that are called by each other and get the value, or run while it is somewhere."""


@dataclass
class _Later:
    """A number that stands for a value: `tensor` has it once it is computed; `method` reads it."""

    tensor: Any
    method: str
    stand_in: Any


class LastValues:
    """The values that one captured call reads last.

    Args:
        entrance: the code whose frame calls the captured function.
    """

    def __init__(self, entrance: types.CodeType):
        self._entrance = entrance
        self._found: dict[int, _Later] = {}
        self._containers: dict[int, tuple[Any, Any]] = {}  # with what was in them before
        self._spaces: dict[tuple[int, Any], tuple[dict[Any, Any], str, Any]] = {}  # with what was there before

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
        kept = wrap(node)
        number: Any = float("nan") if method != "item" else LaterNumber(partial(host_number, kept), (kept, method))
        later = _Later(kept, method, number)
        self._found[id(number)] = later
        return number

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
        seen: set[int] = set()
        for items, _ in self._containers.values():
            _replaced(items, values, puts, seen)
        for space, name, _ in self._spaces.values():
            if name in space and (found := _replaced(space[name], values, puts, seen)) is not space[name]:
                puts.append((dict.__setitem__, space, name, found))
        held = [(owner, key, owner[key]) for _, owner, key, _ in puts]
        at_once(changes((), [*puts, (self._containers.clear,), (self._spaces.clear,)]))
        puts = []
        result = _replaced(result, values, puts, seen)
        at_once(changes((), puts))
        del held
        return result

    def late(self, places: Iterable[Difference]) -> frozenset[Place]:
        """Which of the places get the value, or something that is kept after it: a replay puts all that there at once.

        Raises:
            NotReplayable: something was kept in one before the value was read. An interrupt would find neither.
        """
        found = set()
        for x in places:
            items, before = self._containers.get(id(x.owner), (None, None))
            if items is None:
                if (id(x.owner), x.key) not in self._spaces:
                    continue
                as_before = same(self._spaces[id(x.owner), x.key][2], x.before)
            elif x.key is APPENDED:
                as_before = (same(tuple(before), x.before) if isinstance(items, deque)
                             else len(before) == len(items) - len(x.now))
            else:
                as_before = same(_item_of(before, x.key), x.before)
            if not as_before:
                raise NotReplayable("it keeps a value that it reads last where it has kept something else before")
            found.add((id(x.owner), x.key))
        return frozenset(found)

    def undo(self) -> None:
        """Put back what was in the places of stand-ins that have not been settled."""
        puts = [change for items, before in self._containers.values() for change in _refilling(items, before)]
        puts += [(dict.pop, space, name, None) if before is MISSING else (dict.__setitem__, space, name, before)
                 for space, name, before in self._spaces.values()]
        if puts:
            held = [[*items] for items, _ in self._containers.values()]
            at_once(changes((), [*puts, (self._containers.clear,), (self._spaces.clear,), changing()]))
            del held

    def _goes_out(self, method: str) -> bool:
        """Whether what the user's line reads now by this method of tensors only leaves the captured function."""
        below = sys._getframe(3)  # of the method
        frame = below.f_back
        if below.f_code.co_name != method or frame is None or not is_user_code(frame.f_code):
            return False
        places, calls = KeptPlaces(method != "item"), reads_below
        kind: Kind | None = NUMBER if method == "item" else HOLDER
        while frame is not None and frame.f_code is not self._entrance:
            if is_user_code(frame.f_code):
                hidden = places.names if places.hidden else None
                way = way_out(frame.f_code, frame.f_lasti, kind, bool(places), hidden)
                if way is None or not calls(frame, way.callee, below) or not places.admit(frame, way, _DEEPEST):
                    return False
                calls, kind = calls_below, way.returned
            elif not passes_on(frame):
                return False
            below, frame = frame, frame.f_back
        if frame is None:
            return False
        for items in places.containers:
            self._containers.setdefault(id(items), (items, items.copy()))
        for space, name in places.spaces:
            self._spaces.setdefault((id(space), name), (space, name, space.get(name, MISSING)))
        return True


def _item_of(items: Any, key: Any) -> Any:
    """An item of a container, MISSING for none."""
    if isinstance(items, dict):
        return items.get(key, MISSING)
    return items[key] if type(key) is int and key < len(items) else MISSING


def _refilling(items: Any, before: Any) -> list[Change]:
    """What makes a container's items those that were in it before."""
    if isinstance(items, dict):
        return [(dict.clear, items), (dict.update, items, before)]
    if isinstance(items, deque):
        return [(deque.__init__, items, before, items.maxlen)]
    return [(setitem, items, slice(None), before)]


def _replaced(value: Any, values: dict[int, Any], puts: list[Change], seen: set[int]) -> Any:
    """The value with these in place of their stand-ins: the object itself, but for a tuple that has one. Adds what puts
    them into containers. `seen` are those on the way, which may hold themselves."""
    if id(value) in values:
        return values[id(value)]
    if type(value) is LaterNumber:
        return value.number()
    if type(value) is tuple:
        found = tuple([_replaced(x, values, puts, seen) for x in value])
        return value if all(map(is_, found, value)) else found
    if not isinstance(value, CONTAINERS) or id(value) in seen:
        return value
    seen.add(id(value))
    for key, x in list(value.items() if isinstance(value, dict) else enumerate(value)):
        found = _replaced(x, values, puts, seen)
        if found is not x:
            puts.append((dict.__setitem__ if isinstance(value, dict) else setitem, value, key, found))
    return value
