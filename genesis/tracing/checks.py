"""Guards as places to compare: those that were looked up (`written_places.py`), and the values that were found there.

A check of a hundred values is a few C loops over them, comparing by identity; values that are not
identical are compared again, as equal plain values. What only changes through Genesis itself (a
module's attributes, which memory a tensor looks at) is looked at only when an epoch has passed.
"""

from __future__ import annotations

import abc
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from operator import is_, itemgetter
from typing import Any

from genesis.frontend.recording import TensorBase
from genesis.frontend.state import state
from genesis.ir.interrupting import from_inside
from genesis.nn.modules.tree import epoch
from genesis.tracing.differences import APPENDED, Contents, Difference, Watched, contents_of
from genesis.tracing.plain_values import same
from genesis.tracing.snapshot import MISSING, kept, numbers_of, stored, tensor_identity
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
        self._watched = Watched()
        self._spans: list[tuple[Any, int]] = []
        self._more: list[Callable[[], bool]] = []
        self._read: dict[Any, tuple[int, int]] = {}
        self._registered = False
        self._module_epoch = self._tensor_epoch = self._states_epoch = -1
        self._held_so_far = 0

    # Filling

    def _add(self, look: Look, of: Any, values: Mapping[Any, Any], owner: Any = None, slowly: bool = False) -> None:
        """Check places of one owner: key → value. `owner` is what is looked into, where that is not `of`."""
        places, number = self._watched.slow_places if slowly else self._watched.places, id(of)
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
            self._more.append(lambda: contents_of(cell) is MISSING)
            return
        self._watched.places[CELL, id(cell), None] = Place(CELL, cell, None, value, cell, name)

    def container(self, value: Any, copy: Any, name: str = "") -> None:
        """Check that a list, dictionary or set has these items in this order, which a loop over a set follows, too."""
        if (id(value), APPENDED) in self._slots:  # nobody reads what is in a list that is only appended to
            return
        if self._slots and (left := self._slots_in(value, copy)) is not None:
            self._more.append(left)
        elif isinstance(value, dict):
            self._watched.contents.append(Contents(value, tuple(copy), dict(copy), name))
            self._watched.contents.append(Contents(value.values(), tuple(copy.values())))
        elif isinstance(value, (list, set, frozenset, deque)):
            self._watched.contents.append(Contents(value, tuple(copy), name=name))

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
        self._watched.tensors.append((x, identity, name))

    def slowly(self, space: Mapping[str, Any], values: dict[str, Any]) -> None:
        """Check that a module's attributes have these values."""
        self._add(ENTRY, space, self._without(space, values), slowly=True)

    def slowly_all(self, space: Mapping[Any, Any], values: dict[Any, Any], name: str) -> None:
        """Check that a module's registry, or that of all modules, has these entries and no others."""
        self._watched.slow_contents.append(Contents(space, tuple(values), dict(values), name))
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
            self._watched.groups.append((group, options))
            if states and state is not None:
                self._states_of([state[p] for p in options["params"] if p in state], world)
        if states and state is not None:
            count = len(world.of(state))
            self._more.append(lambda: len(state) == count)
            self._watched.states.append((state, world.of(state)))

    def _states_of(self, states: list[dict[str, Any]], world: Any) -> None:
        """Check the states of a group's parameters, of an optimizer that Genesis steps."""
        for held in states:
            found = world.of(held) or held  # what a look has left empty is begun in the call
            tensors = {name: x for name, x in found.items() if isinstance(x, TensorBase)}
            self._watched.states.append((held, self._without(held, tensors)))
        counted = [held for held in states if "step" in held]
        steps = [world.of(held).get("step", held["step"]) for held in counted]
        if moved := [at for at, held in enumerate(counted) if held["step"] != steps[at]]:
            counted, steps = [counted[at] for at in moved], [steps[at] for at in moved]
        if counted:
            self._more.append(_steps(counted, steps))

    def finish(self) -> None:
        """Lay all out for comparing; nothing is added afterwards."""
        self._always = Compared(self._watched.places.values(), self._watched.contents, self._spans)
        self._slowly = Compared(self._watched.slow_places.values(), self._watched.slow_contents)
        # not of Genesis' own layers, of which `forward` alone is asked for, and which are most of a model's modules
        self._growing = [place.of for place in self._watched.slow_places.values()
                         if place.look is ABSENT and len(place.key) > 1]
        self._grown: list[int] = []

    # Checking

    def differences(self) -> Iterator[Difference]:
        """See `Watched.differences`."""
        return self._watched.differences()

    def changes(self) -> Iterator[Difference]:
        """See `Watched.changes`."""
        return self._watched.changes()

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
                       for x, known, _ in self._watched.tensors):
                return False
            self._tensor_epoch = at
        if self._states_epoch != state.states_shown:
            at = state.states_shown
            if not all(all(map(is_, map(now.get, known), known.values())) for now, known in self._watched.states):
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


def _same_others(value: dict[Any, Any], copy: dict[Any, Any], keys: frozenset[Any]) -> bool:
    """Whether a dictionary has the entries that it had, in their order, but for these keys."""
    return ([key for key in value if key not in keys] == [key for key in copy if key not in keys]
            and all(same(value[key], x) for key, x in copy.items() if key not in keys))


def _same_items(value: list[Any], copy: tuple, items: frozenset[int]) -> bool:
    return len(value) == len(copy) and all(at in items or same(x, y)
                                           for at, (x, y) in enumerate(zip(value, copy, strict=True)))


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
