"""The places that a value gets to on its way out of a call, and whether anybody looks at them on it."""

from __future__ import annotations

import inspect
from collections import defaultdict, deque
from typing import Any, Final

from genesis.frontend.later_number import LaterNumber
from genesis.frontend.recording import TensorBase
from genesis.nn.modules.tree import Tree
from genesis.tracing.frame_paths import attributes_of, builtin_of, found_at, frame_of, function_of
from genesis.tracing.plain_values import PLAIN
from genesis.tracing.snapshot import MISSING
from genesis.tracing.value_walk import way_of_argument, way_through
from genesis.tracing.walk_state import ANYWHERE, Answer, Constant, Item, Kind, Method, Path
from genesis.tracing.way_out import WayOut

CONTAINERS: Final = (list, deque, dict, defaultdict)
"""Classes whose objects a value may be put into, but for those of a class that derives from one of these."""
_PURE: Final = (len, float, int, round, min, max, abs, str)
"""Functions that look at nothing but what they are given."""
_TENSORS: Final = frozenset({
    "item", "tolist", "detach", "clone", "cpu", "float", "double", "sum", "mean", "max", "min", "norm", "abs", "sqrt",
    "exp", "log", "std", "var", "argmax", "argmin", "any", "all", "eq", "ne", "lt", "le", "gt", "ge", "size", "dim",
    "numel",
})
"""Methods of tensors that only compute."""


class KeptPlaces:
    """The places that a value gets to.

    Attributes:
        hidden: what stands for the value does not notice that somebody looks at it.
        containers: lists, deques, dictionaries: anything in them.
        spaces: (dictionary of attributes or items, which of them).
    """

    def __init__(self, hidden: bool) -> None:
        self.hidden = hidden
        self.containers: list[Any] = []
        self.spaces: list[tuple[dict[str, Any], str]] = []

    def __bool__(self) -> bool:
        return bool(self.containers or self.spaces)

    @property
    def names(self) -> frozenset[str]:
        """The attributes and keys."""
        return frozenset([name for _, name in self.spaces])

    def admit(self, frame: Any, way: WayOut, depth: int) -> bool:
        """Note the places on a way through a function. False where somebody may look at them on it."""
        if not all(self._puts(found_at(frame, path), key) for path, key in way.put) or not all(
                self._stores(found_at(frame, path), name) for path, name in way.stored) or not all(
                self._looks_up(frame, path) for path in way.looked_up):
            return False
        if any(isinstance(found_at(frame, path), TensorBase) for path in way.fixed):
            return False
        return (depth > 0 and all(self._is_plain(frame, x) for x in way.plain)
                and all(self._is_quiet(frame, callee, depth) for callee in way.called)
                and all(self._looks_no_further(frame, *given) for given in way.arguments)
                and all(self._takes(frame, callee, position, depth) for callee, position in way.given))

    def _puts(self, items: Any, key: str | None) -> bool:
        """Note that something is put into a container; False for what is none of Python's own."""
        if type(items) not in CONTAINERS:
            return False
        if isinstance(items, dict):
            if key is ANYWHERE and not all(map(PLAIN.__contains__, map(type, items))):
                return False  # it may call their methods to find them
            if key is not ANYWHERE:
                self.spaces.append((items, key))
                return True
        elif key is not ANYWHERE:
            return False
        self.containers.append(items)
        return True

    def _stores(self, owner: Any, name: str) -> bool:
        """Note that an attribute is set; False where that may do something else."""
        space = attributes_of(owner)
        if space is None or hasattr(inspect.getattr_static(type(owner), name, None), "__set__") or (
                isinstance(owner, Tree) and name not in space):
            return False
        self.spaces.append((space, name))
        return True

    def _looks_up(self, frame: Any, path: Path) -> bool:
        """Whether looking the path up runs no code. Notes the item that a dictionary makes then."""
        *way, last = path
        owner = found_at(frame, tuple(way))
        if type(last) is Item:
            if type(owner) is defaultdict and last.key not in owner:
                self.spaces.append((owner, last.key))
                return owner.default_factory in (list, int, float, dict)
            return type(owner) in (dict, defaultdict)
        if isinstance(owner, TensorBase) or type(owner) in PLAIN:
            return True
        return found_at(frame, path) is not MISSING and not hasattr(
            inspect.getattr_static(type(owner), last, None), "__get__")

    def _is_quiet(self, frame: Any, callee: Any, depth: int) -> bool:
        """Whether what a line calls looks at none of the places."""
        if type(callee) is Method:
            if callee.owner is None:
                return False
            if type(callee.owner) is not tuple:
                return callee.name in _TENSORS and self._is_plain(frame, callee.owner)
            owner = found_at(frame, callee.owner)
            if isinstance(owner, TensorBase):
                return callee.name in _TENSORS
            if type(owner) in PLAIN:
                return True
            if owner is MISSING and _is_made_a_list(frame, callee.owner):
                return callee.name == "append"
            if type(owner) in CONTAINERS:
                return callee.name == "append" and self._puts(owner, ANYWHERE)
        elif _is_pure(frame, callee):
            return True
        function, bound = (None, ()) if self.hidden else function_of(frame, callee)
        way = None if function is None else way_through(function.__code__)
        return way is not None and self.admit(frame_of(function, bound), way, depth - 1)

    def _looks_no_further(self, frame: Any, method: Method, argument: Path | None) -> bool:
        """Whether a method of a number, a text or a tensor asks its argument for nothing that shows the places:
        `text.format(meter)` does. What stands for the value tells where it is looked at, if it is not hidden."""
        owner = found_at(frame, method.owner) if type(method.owner) is tuple else 0
        looks = self.hidden and (isinstance(owner, TensorBase) or type(owner) in PLAIN)
        return not looks or (argument is not None and self._is_plain(frame, argument))

    def _is_plain(self, frame: Any, x: Any, depth: int = 2) -> bool:
        """Whether what is at a path, or an answer, is a number, a text, a tensor, or a tuple or list of such.

        Args:
            depth: functions of the user's that give it, each what another one gives.
        """
        if x is Kind.PLAIN or type(x) is Constant:
            return True
        if type(x) is Answer:
            callee = x.callee
            if type(callee) is Method and callee.name in _TENSORS and self._is_plain(frame, callee.owner, depth):
                return True
            if type(callee) is tuple and _is_pure(frame, callee):
                return True
            function, bound = function_of(frame, callee) if depth else (None, ())
            way = None if function is None else way_through(function.__code__)
            inside = None if way is None else frame_of(function, bound)
            return way is not None and all(self._is_plain(inside, given, depth - 1) for given in way.gives)
        value = MISSING if type(x) is not tuple else found_at(frame, x)
        return value is not MISSING and (type(value) is LaterNumber or value.__class__ in PLAIN or isinstance(
            value, TensorBase))

    def _takes(self, frame: Any, callee: Any, position: int, depth: int) -> bool:
        """Whether a function of the user's that gets the value puts it into such places, and returns something else."""
        function, bound = function_of(frame, callee)
        if function is None:
            return False
        way = way_of_argument(function.__code__, position + len(bound))
        return way is not None and way.returned is None and self.admit(frame_of(function, bound), way, depth - 1)


def _is_pure(frame: Any, callee: Path) -> bool:
    """Whether a name means one of Python's own functions that only compute."""
    name = callee[0]
    if len(callee) > 1 or name in frame.f_locals:
        return False
    builtin = frame.f_globals.get(name, builtin_of(name))
    return any(builtin is x for x in _PURE)


def _is_made_a_list(frame: Any, path: Path) -> bool:
    """Whether an item that is not there yet will be a list when the code looks for it."""
    return type(path[-1]) is Item and getattr(found_at(frame, path[:-1]), "default_factory", None) is list
