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

import inspect
import sys
import types
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from operator import is_, setitem
from types import SimpleNamespace
from typing import Any, Final, get_args

from genesis.frontend.at_once import Change, at_once, changes
from genesis.frontend.host_values import host_number
from genesis.frontend.later_number import LaterNumber
from genesis.frontend.layouts import forget
from genesis.frontend.recording import TensorBase, read, wrap
from genesis.frontend.state import state
from genesis.ir.node import make
from genesis.ir.ops import control
from genesis.nn.modules.hooks import HookKind
from genesis.nn.modules.tree import Tree, changing
from genesis.tracing.checks import APPENDED, Difference, same
from genesis.tracing.slots import Place
from genesis.tracing.snapshot import MISSING, NotReplayable, cells, own_dictionary
from genesis.tracing.tracer import is_user_code
from genesis.tracing.value_walk import way_of_argument, way_out, way_through
from genesis.tracing.walk_state import ANYWHERE, HOLDER, NUMBER, Item, Kind, Made, Method, Path
from genesis.tracing.way_out import WayOut

_PASSING = frozenset({"__call__", "<lambda>", "_call_compiled"})
"""Functions of Genesis' that call a module's forward, and return what it does if there are no hooks."""
_CONTAINERS: Final = (list, deque, dict, defaultdict)
"""Classes whose objects a value may be put into, but for those of a class that derives from one of these."""
_PLAIN: Final = (bool, int, float, complex, str, bytes, type(None))
_PURE: Final = (len, float, int, round, min, max, abs, str)
"""Functions that look at nothing but what they are given."""
_TENSORS: Final = frozenset({
    "item", "tolist", "detach", "clone", "cpu", "float", "double", "sum", "mean", "max", "min", "norm", "abs", "sqrt",
    "exp", "log", "std", "var", "argmax", "argmin", "any", "all", "eq", "ne", "lt", "le", "gt", "ge", "size", "dim",
    "numel",
})
"""Methods of tensors that only compute."""
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
        places, calls = _Places(method != "item"), _reads
        kind: Kind | None = NUMBER if method == "item" else HOLDER
        while frame is not None and frame.f_code is not self._entrance:
            if is_user_code(frame.f_code):
                hidden = places.names if places.hidden else None
                way = way_out(frame.f_code, frame.f_lasti, kind, bool(places), hidden)
                if way is None or not calls(frame, way.callee, below) or not places.admit(frame, way, _DEEPEST):
                    return False
                calls, kind = _calls, way.returned
            elif not _passes_on(frame):
                return False
            below, frame = frame, frame.f_back
        if frame is None:
            return False
        for items in places.containers:
            self._containers.setdefault(id(items), (items, items.copy()))
        for space, name in places.spaces:
            self._spaces.setdefault((id(space), name), (space, name, space.get(name, MISSING)))
        return True


class _Places:
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
        if not all(self._puts(_found(frame, path), key) for path, key in way.put) or not all(
                self._stores(_found(frame, path), name) for path, name in way.stored) or not all(
                self._looks_up(frame, path) for path in way.looked_up):
            return False
        if any(isinstance(_found(frame, path), TensorBase) for path in way.fixed):
            return False
        return (depth > 0 and all(_is_plain(_found(frame, path)) for path in way.plain)
                and all(self._is_quiet(frame, callee, depth) for callee in way.called)
                and all(self._takes(frame, callee, position, depth) for callee, position in way.given))

    def _puts(self, items: Any, key: str | None) -> bool:
        """Note that something is put into a container; False for what is none of Python's own."""
        if type(items) not in _CONTAINERS:
            return False
        if isinstance(items, dict):
            if key is ANYWHERE and not all(map(_PLAIN.__contains__, map(type, items))):
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
        space = _attributes_of(owner)
        if space is None or hasattr(inspect.getattr_static(type(owner), name, None), "__set__") or (
                isinstance(owner, Tree) and name not in space):
            return False
        self.spaces.append((space, name))
        return True

    def _looks_up(self, frame: Any, path: Path) -> bool:
        """Whether looking the path up runs no code. Notes the item that a dictionary makes then."""
        *way, last = path
        owner = _found(frame, tuple(way))
        if type(last) is Item:
            if type(owner) is defaultdict and last.key not in owner:
                self.spaces.append((owner, last.key))
                return owner.default_factory in (list, int, float, dict)
            return type(owner) in (dict, defaultdict)
        if isinstance(owner, TensorBase) or type(owner) in _PLAIN:
            return True
        return _found(frame, path) is not MISSING and not hasattr(
            inspect.getattr_static(type(owner), last, None), "__get__")

    def _is_quiet(self, frame: Any, callee: Any, depth: int) -> bool:
        """Whether what a line calls looks at none of the places."""
        if type(callee) is Method:
            if callee.owner is None:
                return False
            owner = _found(frame, callee.owner)
            if isinstance(owner, TensorBase):
                return callee.name in _TENSORS
            if type(owner) in _PLAIN:
                return True
            if owner is MISSING and _is_made_a_list(frame, callee.owner):
                return callee.name == "append"
            if type(owner) in _CONTAINERS:
                return callee.name == "append" and self._puts(owner, ANYWHERE)
        elif len(callee) == 1 and callee[0] not in frame.f_locals:
            name = callee[0]
            builtin = frame.f_globals.get(name, _builtin(name))
            if any(builtin is x for x in _PURE):
                return True
        function, bound = (None, ()) if self.hidden else _function_of(frame, callee)
        way = None if function is None else way_through(function.__code__)
        return way is not None and self.admit(_frame_of(function, bound), way, depth - 1)

    def _takes(self, frame: Any, callee: Any, position: int, depth: int) -> bool:
        """Whether a function of the user's that gets the value puts it into such places, and returns something else."""
        function, bound = _function_of(frame, callee)
        if function is None:
            return False
        way = way_of_argument(function.__code__, position + len(bound))
        return way is not None and way.returned is None and self.admit(_frame_of(function, bound), way, depth - 1)


def _builtin(name: str) -> Any:
    return vars(sys.modules["builtins"]).get(name)


def _function_of(frame: Any, callee: Any) -> tuple[Any, tuple[Any, ...]]:
    """(a function of the user's, what it is bound to) that a line calls; (None, ()) for anything else."""
    if type(callee) is Method:
        owner = _found(frame, callee.owner)
        found = inspect.getattr_static(owner, callee.name, None)
        bound = () if callee.name in getattr(owner, "__dict__", {}) else (owner,)
    else:
        found, bound = _found(frame, callee), ()
    method: Any = found
    if isinstance(method, types.MethodType):
        found, bound = method.__func__, (method.__self__,)
    known = isinstance(found, types.FunctionType) and is_user_code(found.__code__)
    return (found, bound) if known else (None, ())


def _frame_of(function: Any, bound: tuple[Any, ...]) -> Any:
    """What is known of the variables of a function that is going to run. Arguments of which nothing is known are taken
    for numbers: what they do when they are added to something is no look at the places."""
    code = function.__code__
    known: dict[str, Any] = dict.fromkeys(code.co_varnames[:code.co_argcount + code.co_kwonlyargcount], 0)
    known |= zip(code.co_varnames, bound, strict=False)
    known |= zip(code.co_freevars, cells(function), strict=True)
    return SimpleNamespace(f_locals=known, f_globals=function.__globals__)


def _is_plain(value: Any) -> bool:
    return value is not MISSING and (type(value) is LaterNumber or value.__class__ in _PLAIN or isinstance(
        value, TensorBase))


def _is_made_a_list(frame: Any, path: Path) -> bool:
    """Whether an item that is not there yet will be a list when the code looks for it."""
    return type(path[-1]) is Item and getattr(_found(frame, path[:-1]), "default_factory", None) is list


def _reads(frame: types.FrameType, callee: Any, below: types.FrameType) -> bool:
    """Whether what a line calls is the method of tensors whose frame is below, and nothing that calls that."""
    if callee == ("float",):
        float_there = frame.f_locals.get("float", frame.f_globals.get("float", float))
        return below.f_code.co_name == "__float__" and float_there is float
    return type(callee) is Method and callee.name == below.f_code.co_name


def _calls(frame: types.FrameType, callee: Any, below: types.FrameType) -> bool:
    """Whether what a line calls is the function whose frame is below, or a module whose call that is."""
    called = None
    if type(callee) is Made:
        return callee.code is below.f_code
    if type(callee) is tuple:
        called = _found(frame, callee)
    elif type(callee) is Method and type(callee.owner) is tuple:
        called = _attribute(_found(frame, callee.owner), callee.name)
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
    hooks = any(getattr(module, f"_{kind}_hooks", None) for kind in get_args(HookKind))
    return frame.f_code.co_name in _PASSING and not hooks


def _found(frame: Any, path: Path) -> Any:
    """The object at the path, MISSING if it is not simply there."""
    name, *parts = path
    value = frame.f_locals.get(name, frame.f_globals.get(name, MISSING))
    for part in parts:
        if type(part) is Item:
            value = dict.get(value, part.key, MISSING) if isinstance(value, dict) else MISSING
            continue
        space = None if value is MISSING else own_dictionary(value)
        inside = space.get("_modules") if space is not None and isinstance(value, Tree) else None
        value = MISSING if space is None else space.get(part, MISSING if inside is None else inside.get(part, MISSING))
    return value


def _attributes_of(value: Any) -> dict[str, Any] | None:
    """The dictionary that setting an attribute writes to, None if something else may happen."""
    plain = type(value).__setattr__ in (object.__setattr__, Tree.__setattr__)
    return getattr(value, "__dict__", None) if plain and value is not MISSING else None


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
    if not isinstance(value, _CONTAINERS) or id(value) in seen:
        return value
    seen.add(id(value))
    for key, x in list(value.items() if isinstance(value, dict) else enumerate(value)):
        found = _replaced(x, values, puts, seen)
        if found is not x:
            puts.append((dict.__setitem__ if isinstance(value, dict) else setitem, value, key, found))
    return value
