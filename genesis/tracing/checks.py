"""Guards as places to compare: those that were looked up (`written_places.py`), and the values that were found there.

A check of a hundred values is a few C loops over them, comparing by identity; values that are not
identical are compared again, as equal plain values. What only changes through Genesis itself (a
module's attributes, which memory a tensor looks at) is looked at only when an epoch has passed.
"""

from __future__ import annotations

import abc
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from math import copysign
from operator import attrgetter, is_, itemgetter
from typing import Any, NamedTuple

from genesis.frontend.recording import TensorBase
from genesis.frontend.state import state
from genesis.ir.interrupting import from_inside
from genesis.nn.modules.tree import epoch
from genesis.tracing.snapshot import MISSING, SIMPLE, kept, numbers_of, stored, tensor_identity
from genesis.tracing.value_texts import Words, value_text
from genesis.tracing.written_places import (
    ABSENT,
    ATTRIBUTE,
    CELL,
    CLASS,
    DICTIONARY,
    ENTRY,
    HELD_BEFORE,
    LOOKS,
    Look,
    Place,
    write_out,
)

ANY: Any = type("Any", (), {"__repr__": lambda self: "any"})()
"""The value of a slot, which others check."""
APPENDED: Any = type("Appended", (), {"__repr__": lambda self: "appended"})()
"""The key of the place behind the end of a list."""


_AS_CAPTURED = Words("as captured")


@dataclass(frozen=True)
class Difference:
    """A place whose value is not what it was.

    Attributes:
        owner: the dictionary, list, cell, class or object with slots that the place is in.
        key: which place of it: a key, an index, an attribute's name, APPENDED, or None for a cell.
        name: the name that a program knows it by.
        before: the value that it had, a tuple of appended items being none; MISSING for none.
        now: the value that it has, the items for APPENDED; MISSING for none.
        slowly: it is looked at only after an epoch has passed.
    """

    owner: Any
    key: Any
    name: str
    before: Any
    now: Any
    slowly: bool = False

    def of_element(self) -> Difference:
        """The same for a reader, of a place in a list or dictionary, which has its name: `rates[0]`; of a longer list
        what was in it, and what is."""
        if self.key is not APPENDED and self.key is not ANY:
            return replace(self, name=f"{self.name}[{value_text(self.key)}]")
        kind: Any = deque if isinstance(self.owner, deque) else list
        now = kind(self.owner)
        if self.key is APPENDED and kind is list:
            return replace(self, before=now[:len(now) - len(self.now)], now=now)
        return replace(self, before=kind(self.before), now=now)


class Contents(NamedTuple):
    """What a collection had, in this order.

    Attributes:
        value: the collection.
        items: its elements; of a dictionary its keys, or where `value` is a view of its values these.
        before: a copy of a dictionary.
        name: the name that a program knows the collection by.
    """

    value: Any
    items: tuple[Any, ...]
    before: dict[Any, Any] | None = None
    name: str = ""


class Compared:
    """Places and collections, laid out to be compared all at once.

    Args:
        places: see `written_places.py`.
        contents: collections with their elements.
        spans: (collection, how many elements it has), of others.
    """

    def __init__(self, places: Iterable[Place], contents: Sequence[Contents], spans: Iterable[tuple[Any, int]] = ()):
        of_look: dict[Look, list[Place]] = {look: [] for look in LOOKS}
        for place in places:
            of_look[place.look].append(place)
        self._places = [*chain.from_iterable(of_look.values())]
        self._loops = [(look.now, [place.owner for place in found], [place.key for place in found])
                       for look, found in of_look.items() if found]
        self._lists = [each.value for each in contents]
        self._items = tuple(item for each in contents for item in each.items)
        self._expected = (*(place.value for place in self._places), *self._items)
        lengths = [*((each.value, len(each.items)) for each in contents), *spans]
        self._sized, self._lengths = [value for value, _ in lengths], [length for _, length in lengths]
        self._written: Callable[[], bool] | None = None

    def hold(self) -> bool:
        """Whether everything is as it was."""
        try:
            if self._written is None:
                same = all(map(is_, self._now(), self._expected))
            else:
                same = self._written() and all(map(is_, chain.from_iterable(self._lists), self._items))
            return (same or self._equal()) and list(map(len, self._sized)) == self._lengths
        except from_inside(KeyError, AttributeError, ValueError, RuntimeError, TypeError):
            return False

    def write_out(self) -> None:
        """Compare places by a function of Python's from now on."""
        self._written = write_out(self._places)

    def _now(self) -> Iterator[Any]:
        """The values that are now in the places of `_expected`."""
        return chain(*[now(owners, keys) for now, owners, keys in self._loops], chain.from_iterable(self._lists))

    def _equal(self) -> bool:
        now = list(self._now())
        return len(now) == len(self._expected) and all(
            same(value, before) for value, before in zip(now, self._expected, strict=True) if value is not before)


class Checks:
    """Conditions on places that can be looked up again. Fill it, then `finish`.

    Args:
        slots: places that are checked elsewhere, since the call writes to them (`genesis.tracing.slots`).
    """

    def __init__(self, slots: frozenset[tuple[int, Any]] = frozenset()) -> None:
        self._slots = slots
        # those that are looked at at each call, and those that are after an epoch has passed
        self._places: dict[tuple[Look, int, Any], Place] = {}
        self._slow_places: dict[tuple[Look, int, Any], Place] = {}
        self._contents: list[Contents] = []
        self._slow_contents: list[Contents] = []
        self._spans: list[tuple[Any, int]] = []
        self._tensors: list[tuple[Any, tuple]] = []
        self._names: list[str] = []
        self._groups: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._states: list[tuple[dict[Any, Any], Mapping[Any, Any]]] = []
        self._more: list[Callable[[], bool]] = []
        self._read: dict[Any, tuple[int, int]] = {}
        self._registered = False
        self._module_epoch = self._tensor_epoch = self._states_epoch = -1
        self._held_so_far = 0

    # Filling

    def _add(self, look: Look, of: Any, values: Mapping[Any, Any], owner: Any = None, slowly: bool = False) -> None:
        """Check places of one owner: key → value. `owner` is what is looked into, where that is not `of`."""
        places, number = self._slow_places if slowly else self._places, id(of)
        looked_into = of if owner is None else owner
        for key, value in values.items():
            places[look, number, key] = Place(look, looked_into, key, value, of, key)

    def entries(self, space: Mapping[str, Any], values: dict[str, Any]) -> None:
        """Check that these keys have these values."""
        self._add(ENTRY, space, self._without(space, values))

    def class_entries(self, kind: type, values: dict[str, Any]) -> None:
        """Check that a class has these values of its own."""
        self._add(ENTRY, kind, self._without(kind, values), owner=vars(kind))

    def absent(self, space: Mapping[str, Any], names: Iterable[str], slowly: bool = False) -> None:
        """Check that none of these keys is there; `slowly` for a module's attributes: in another epoch of modules, or
        where there are more or fewer attributes, which are written without one through `vars(module)`."""
        if left := frozenset(self._without(space, dict.fromkeys(names))):
            self._add(ABSENT, space, {left: True}, owner=space.keys().isdisjoint, slowly=slowly)

    def _without(self, owner: Any, values: Mapping[Any, Any]) -> Mapping[Any, Any]:
        """The values without those whose places are slots."""
        if not self._slots:
            return values
        return {name: value for name, value in values.items() if (id(owner), name) not in self._slots}

    def attributes(self, value: Any, values: dict[str, Any]) -> None:
        """Check that these attributes have these values, or no value for MISSING."""
        for name in [name for name, x in values.items() if x is MISSING]:
            del values[name]
            self._more.append(partial(_lacks, value, name))
        self._add(ATTRIBUTE, value, self._without(value, values))

    def cell(self, cell: Any, value: Any, name: str) -> None:
        """Check that a closure variable has this value, or none for MISSING."""
        if (id(cell), None) in self._slots:
            return
        if value is MISSING:
            self._more.append(lambda: _is_empty(cell))
            return
        self._places[CELL, id(cell), None] = Place(CELL, cell, None, value, cell, name)

    def container(self, value: Any, copy: Any, name: str = "") -> None:
        """Check that a list, dictionary or set has these items in this order, which a loop over a set follows, too."""
        if (id(value), APPENDED) in self._slots:  # nobody reads what is in a list that is only appended to
            return
        if self._slots and (left := self._slots_in(value, copy)) is not None:
            self._more.append(left)
        elif isinstance(value, dict):
            self._contents.append(Contents(value, tuple(copy), dict(copy), name))
            self._contents.append(Contents(value.values(), tuple(copy.values())))
        elif isinstance(value, (list, set, frozenset, deque)):
            self._contents.append(Contents(value, tuple(copy), name=name))

    def _slots_in(self, value: Any, copy: Any) -> Callable[[], bool] | None:
        """A check of what is no slot in a container that has some; None for one without."""
        if isinstance(value, dict):
            keys = [key for key in {**copy, **value} if (id(value), key) in self._slots]
            return partial(_same_others, value, dict(copy), frozenset(keys)) if keys else None
        if isinstance(value, list):
            items = [at for at in range(len(copy)) if (id(value), at) in self._slots]
            return partial(_same_items, value, copy, frozenset(items)) if items else None
        return None

    def numbers(self, array: Any, known: tuple[Any, ...]) -> None:
        """Check that an array of numpy's has this content; what it lies in may be another's."""
        self._more.append(lambda: numbers_of(array) == known)

    def kept(self, cached: Any, misses: int, pairs: tuple[tuple[Any, Any], ...]) -> None:
        """Check that a function under `functools.lru_cache` still keeps these results; and, when it is checked first,
        right after the capture, that the call computed none: a replay would compute that again, for itself alone."""
        self._more.append(_Kept(cached, misses, pairs))

    @property
    def has_caches(self) -> bool:
        """Whether there is a function under `functools.lru_cache` among them."""
        return any(isinstance(check, _Kept) for check in self._more)

    def length(self, value: Any, length: int) -> None:
        """Check that the collection has so many entries: otherwise a class has got or lost a name."""
        self._spans.append((value, length))

    def kind(self, value: Any, kind: type, slowly: bool = False) -> None:
        """Check that the object has this class; `slowly` for a module."""
        self._add(CLASS, value, {"__class__": kind}, slowly=slowly)

    def dictionary(self, value: Any, inside: Any, slowly: bool = False) -> None:
        """Check that an object has this dictionary of attributes, which `value.__dict__ = ...` replaces; `slowly` for a
        module."""
        if slowly or type(inside) is dict:
            self._add(DICTIONARY, value, {"__dict__": inside}, slowly=slowly)

    def contents(self, versions: Mapping[Any, tuple[int, int]]) -> None:
        """Check that nobody has written, or could have, to these storages since their `seen` was this."""
        if versions:
            self._read |= versions
            self._more.append(lambda: all(storage.seen == at and not storage.exported
                                          for storage, at in versions.items()))

    @property
    def over(self) -> bool:
        """Whether somebody wrote to memory that a value was read of: the guards never hold again."""
        return any(storage.seen != at for storage, at in self._read.items())

    def registrations(self) -> None:
        """Check that no class was registered with an abstract one, which `isinstance` asks."""
        if not self._registered:
            self._registered, token = True, abc.get_cache_token()
            self._more.append(lambda: abc.get_cache_token() == token)

    def tensor(self, x: Any, identity: tuple, name: str) -> None:
        """Check that a tensor shows the same memory, and gradients flow as they did."""
        self._tensors.append((x, identity))
        self._names.append(name)

    def slowly(self, space: Mapping[str, Any], values: dict[str, Any]) -> None:
        """Check that a module's attributes have these values."""
        self._add(ENTRY, space, self._without(space, values), slowly=True)

    def slowly_all(self, space: Mapping[Any, Any], values: dict[Any, Any], name: str) -> None:
        """Check that a module's registry, or that of all modules, has these entries and no others."""
        self._slow_contents.append(Contents(space, tuple(values), dict(values), name))
        self._add(ENTRY, space, self._without(space, values), slowly=True)

    def optimizer(self, optimizer: Any, copy: dict[str, Any], world: Any, states: bool) -> None:
        """Check that groups have the same parameters and flags, and parameters that were at one step still are.

        Of those that the call stepped, where it stepped any: others have no gradient, and stay behind at each call.

        Args:
            states: whether parameters' states are compared here: where the call looks into them they are guarded as
                any dictionaries are.
        """
        self.entries(vars(optimizer), {name: copy[name] for name in ("param_groups", "state") if name in copy})
        groups, state = copy.get("param_groups", []), copy.get("state")
        self.container(groups, world.of(groups), "param_groups")
        for group in world.of(groups):
            options = world.of(group)
            self.entries(group, {"params": options["params"]})
            self.container(options["params"], world.of(options["params"]), "params")
            self._more.append(_flags(group, options))
            self._groups.append((group, options))
            if states and state is not None:
                self._states_of([state[p] for p in options["params"] if p in state], world)
        if states and state is not None:
            count = len(world.of(state))
            self._more.append(lambda: len(state) == count)
            self._states.append((state, world.of(state)))

    def _states_of(self, states: list[dict[str, Any]], world: Any) -> None:
        """Check the states of a group's parameters, of an optimizer that Genesis steps."""
        for held in states:
            found = world.of(held) or held  # what a look has left empty is begun in the call
            tensors = {name: x for name, x in found.items() if isinstance(x, TensorBase)}
            self._states.append((held, self._without(held, tensors)))
        counted = [held for held in states if "step" in held]
        steps = [world.of(held).get("step", held["step"]) for held in counted]
        if moved := [at for at, held in enumerate(counted) if held["step"] != steps[at]]:
            counted, steps = [counted[at] for at in moved], [steps[at] for at in moved]
        if counted:
            self._more.append(_steps(counted, steps))

    def finish(self) -> None:
        """Lay all out for comparing; nothing is added afterwards."""
        self._always = Compared(self._places.values(), self._contents, self._spans)
        self._slowly = Compared(self._slow_places.values(), self._slow_contents)
        # not of Genesis' own layers, of which `forward` alone is asked for, and which are most of a model's modules
        self._growing = [place.of for place in self._slow_places.values()
                         if place.look is ABSENT and len(place.key) > 1]
        self._grown: list[int] = []

    # Checking

    def hold(self) -> bool:
        """True if everything is as it was."""
        if not self._always.hold():
            return False
        for check in self._more:
            if not check():
                return False
        grown = list(map(len, self._growing))
        if self._module_epoch != epoch() or grown != self._grown:
            at = epoch()
            if not self._slowly.hold():
                return False
            self._module_epoch, self._grown = at, grown
        if self._tensor_epoch != state.rebound:
            at = state.rebound
            if not all(all(map(is_, tensor_identity(x)[:3], known[:3])) and tensor_identity(x)[3:] == known[3:]
                       for x, known in self._tensors):
                return False
            self._tensor_epoch = at
        if self._states_epoch != state.states_shown:
            at = state.states_shown
            if not all(all(map(is_, map(now.get, known), known.values())) for now, known in self._states):
                return False
            self._states_epoch = at
        if self._held_so_far <= HELD_BEFORE:
            self._note_held()
        return True

    def _note_held(self) -> None:
        """Everything was as it was: once more, and it is written out."""
        self._held_so_far += 1
        if self._held_so_far == HELD_BEFORE:
            self._always.write_out()

    def difference(self) -> str | None:
        """The name of something that is not as it was; None when that is not known."""
        return next((each.name for each in self.differences()), None)

    def differences(self) -> Iterator[Difference]:
        """What is not as it was, as far as that is known place by place."""
        yield from self._named_differ()
        yield from self._elements_differ()
        yield from self._names_added()

    def _names_added(self) -> Iterator[Difference]:
        """Names that are there and were not."""
        for slowly in (False, True):
            for place in (self._slow_places if slowly else self._places).values():
                for name in sorted(place.key.intersection(place.of)) if place.look is ABSENT else ():
                    yield Difference(place.of, name, name, MISSING, place.of[name], slowly)

    def _named_differ(self) -> Iterator[Difference]:
        """Variables and attributes that are not as they were."""
        yield from self._places_differ(ENTRY)
        yield from self._places_differ(ENTRY, slowly=True)
        yield from self._places_differ(CELL)
        yield from self._places_differ(ATTRIBUTE)

    def _elements_differ(self) -> Iterator[Difference]:
        """What is not as it was in lists and dictionaries, of which it has the name."""
        for each in self._contents:
            if isinstance(each.value, (list, deque)):
                yield from _items_differ(each.value, each.items, each.name)
            elif each.before is not None:  # an element's name is that of the container
                for key in {**each.before, **each.value}:
                    before, now = each.before.get(key, MISSING), each.value.get(key, MISSING)
                    if not same(now, before):
                        yield Difference(each.value, key, each.name, before, now)

    def changes(self) -> Iterator[Difference]:
        """What is not as it was, for a reader: `differences`, and what has no place that a call could write to."""
        yield from self._named_differ()
        yield from (x.of_element() for x in self._elements_differ())
        yield from self._names_added()
        for place in (*self._places.values(), *self._slow_places.values()):
            if place.look is CLASS and type(place.owner) is not place.value:
                yield Difference(place.of, place.key, "the class of an object", place.value, type(place.owner))
        for (x, known), name in zip(self._tensors, self._names, strict=True):
            yield from _tensor_differs(x, known, name)
        for group, options in self._groups:
            for key in {**options, **group}:
                before, now = options.get(key, MISSING), group.get(key, MISSING)
                if _another_program(key, before, now):
                    yield Difference(group, key, f"{key} of an optimizer's group", before, now)
        for state_of, held in self._states:
            for key, before in held.items():
                if (now := state_of.get(key, MISSING)) is not before:
                    name = f"the state of a parameter {key.spec}" if isinstance(key, TensorBase) else f"state {key}"
                    yield Difference(state_of, key, name, before, now)
        for each in (*self._contents, *self._slow_contents):
            if isinstance(each.value, (set, frozenset)) or each.before is not None:
                before, now = each.items, tuple(each.value)
                if len(before) != len(now) or not all(map(same, before, now)):
                    kind: Any = tuple if each.before is not None else set  # keys of a dictionary have an order
                    yield Difference(each.value, ANY, each.name, kind(before), kind(now))

    def _places_differ(self, look: Look, slowly: bool = False) -> Iterator[Difference]:
        """Those of one kind: an entry, an attribute or a cell."""
        for place in (self._slow_places if slowly else self._places).values():
            if place.look is look and not same(now := _now_in(place), place.value):
                yield Difference(place.of, place.key, place.name, place.value, now, slowly)


def _tensor_differs(x: Any, known: tuple, name: str) -> Iterator[Difference]:
    """How a tensor is another one than that with this `tensor_identity`."""
    storage, spec, part, *flow = tensor_identity(x)
    if spec is not known[1] and spec != known[1]:
        yield Difference(x, "spec", f"the type of {name}", Words(known[1]), Words(spec))
    elif storage is not known[0] or part is not known[2]:
        yield Difference(x, "data", f"the memory that {name} shows", _AS_CAPTURED, Words("other memory"))
    elif flow[0] is not known[3] and (flow[0] is None) != (known[3] is None):
        yield Difference(x, "requires_grad", f"requires_grad of {name}", known[3] is not None, flow[0] is not None)
    elif tuple(flow) != known[3:]:
        yield Difference(x, "grad_fn", f"how gradients flow through {name}", _AS_CAPTURED, Words("in another way"))


def _another_program(key: str, before: Any, now: Any) -> bool:
    """Whether an option of a group asks for another program, as `_flags` checks it."""
    if before is MISSING or now is MISSING:
        return before is not now
    if key == "momentum":
        return bool(before) is not bool(now)
    return (before is None or isinstance(before, (bool, str))) and not same(before, now)


def _now_in(place: Place) -> Any:
    """What is in an entry, an attribute or a cell, MISSING for nothing."""
    if place.look is CELL:
        return contents_of(place.owner)
    if place.look is ATTRIBUTE:
        return getattr(place.owner, place.key, MISSING)
    return place.owner.get(place.key, MISSING)


class _Kept:
    """The check of `Checks.kept`. By identity: a result that was computed again is another one."""

    def __init__(self, cached: Any, misses: int, pairs: tuple[tuple[Any, Any], ...]):
        self._cached, self._pairs, self._misses = cached, pairs, misses  # the pairs live, so that ids stay theirs
        self._ids = {(id(key), id(result)) for key, result in pairs}
        self._checked = False

    def __call__(self) -> bool:
        if not self._checked:
            self._checked = True
            if self._cached.cache_info().misses != self._misses:
                return False
        return self._ids.issubset([(id(key), id(result)) for key, result in kept(self._cached)])


def _lacks(value: Any, name: str) -> bool:
    return stored(value, name) is MISSING


def _is_empty(cell: Any) -> bool:
    try:
        return cell.cell_contents is MISSING
    except ValueError:
        return True


def contents_of(cell: Any) -> Any:
    """What is in a cell, MISSING for nothing."""
    return MISSING if _is_empty(cell) else cell.cell_contents


def appended_to(container: list[Any] | deque[Any], items: tuple) -> tuple[Any, ...] | None:
    """What was appended to a list or deque that held these items before; None if something else was done to it. A deque
    that is full lets go of as many of its first items."""
    most = container.maxlen if isinstance(container, deque) else None
    if most is None or len(container) < most:
        longer = len(container) >= len(items) and all(map(same, container, items))
        return tuple(container)[len(items):] if longer else None
    now = tuple(container)
    least = most - len(items)
    found = [added for added in range(least, most) if all(map(same, items[added - least:], now))]
    return now[most - found[0]:] if len(found) == 1 else None


def _items_differ(container: list[Any] | deque[Any], items: tuple, name: str) -> Iterator[Difference]:
    added = appended_to(container, items)
    if added:
        yield Difference(container, APPENDED, name, items if isinstance(container, deque) else (), added)
    elif isinstance(container, deque) and added is None:
        yield Difference(container, ANY, name, items, tuple(container))
    elif isinstance(container, deque):
        return
    elif len(container) != len(items):
        yield Difference(container, ANY, name, items, tuple(container))
    else:
        for at, (now, before) in enumerate(zip(container, items, strict=True)):
            if not same(now, before):
                yield Difference(container, at, name, before, now)


def _same_others(value: dict[Any, Any], copy: dict[Any, Any], keys: frozenset[Any]) -> bool:
    """Whether a dictionary has the entries that it had, in their order, but for these keys."""
    return ([key for key in value if key not in keys] == [key for key in copy if key not in keys]
            and all(same(value[key], x) for key, x in copy.items() if key not in keys))


def _same_items(value: list[Any], copy: tuple, items: frozenset[int]) -> bool:
    return len(value) == len(copy) and all(at in items or same(x, y)
                                           for at, (x, y) in enumerate(zip(value, copy, strict=True)))


def same(a: Any, b: Any) -> bool:
    """Whether both are the same object, or plain values of one type that no program tells apart: 0.0 and -0.0 are
    equal and two values, as are empty ranges that begin elsewhere."""
    kind = type(a)
    if a is b or kind is not type(b):
        return a is b
    if kind is tuple:
        return len(a) == len(b) and all(map(same, a, b))
    if kind is slice or kind is range:
        return all(map(same, _ends(a), _ends(b)))
    return isinstance(a, SIMPLE) and (a == b or (a != a and b != b)) and _signs(a) == _signs(b)


_ends = attrgetter("start", "stop", "step")


def _signs(value: Any) -> tuple[float, ...]:
    """The signs of a float and of the parts of a complex number, of zeros and classes that derive from these, too."""
    if isinstance(value, float):
        return (copysign(1.0, value),)
    return (copysign(1.0, value.real), copysign(1.0, value.imag)) if isinstance(value, complex) else ()


def _flags(group: dict[str, Any], options: dict[str, Any]) -> Callable[[], bool]:
    """A check of a group's options that are part of the program: flags, None, and whether a switching number is 0."""
    flags = [(k, v) for k, v in options.items() if v is None or isinstance(v, (bool, str))]
    momentum, get, names = bool(options.get("momentum")), group.get, options.keys()

    def check() -> bool:
        for key, value in flags:
            now = get(key)
            if not (now is value or now == value):
                return False
        return bool(get("momentum")) is momentum and group.keys() == names
    return check


def _steps(states: list[dict[str, Any]], steps: list[Any]) -> Callable[[], bool]:
    get = itemgetter("step")
    if len(set(steps)) == 1:
        def at_one_step() -> bool:
            first = states[0]["step"]
            for state in states:  # a step gives all one object; loops of C call two functions for each (`host_time.py`)
                if state["step"] is not first:
                    return len(set(map(get, states))) == 1
            return True
        return at_one_step
    offsets = [step - steps[0] for step in steps]
    return lambda: [state["step"] - states[0]["step"] for state in states] == offsets
