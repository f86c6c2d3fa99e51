"""Slots: the places in Python's objects that a captured call writes to, which a replay writes to as well.

A hidden state or cache on a module, a counter, a list of losses: what such a place holds before the call is given to
the replay like an argument, what it holds afterwards is made like a result.

| kind | what is in the place before | what a replay puts there |
|---|---|---|
| given | tensors, alone or in containers, that nothing else leads to: described like an argument | a result |
| given | an int or float that was another in an earlier call | a result |
| counted | a whole number that the code only adds to | that number, and what the call added |
| appended | a list that the code only appends to | its items, and results |
| stored | anything: the code only stores there | a result |
| fixed | anything else: the same value | a result |
| number | an int or float that others change from call to call: described like an argument | nothing |
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from inspect import getattr_static
from itertools import starmap
from operator import call, getitem, setitem
from types import (
    CellType,
    MemberDescriptorType,
    MethodDescriptorType,
    SimpleNamespace,
    WrapperDescriptorType,
)
from typing import Any

from genesis.frontend.at_once import Change, Expected
from genesis.frontend.patches import Held
from genesis.frontend.recording import TensorBase
from genesis.nn.modules.module import Module
from genesis.nn.modules.tree import Registry, Tree, changed, changing
from genesis.runtime.contexts import Context, in_order, leaving
from genesis.tracing.checks import ANY, APPENDED, Difference, contents_of, same
from genesis.tracing.code_reads import place_of
from genesis.tracing.explanation import value_text
from genesis.tracing.guards import Guards
from genesis.tracing.results import Known, Result, reads
from genesis.tracing.signature import describe
from genesis.tracing.snapshot import MISSING, SIMPLE, Entered, NotReplayable, Unsettled, content
from genesis.tracing.tracer import is_library_module, is_own_module
from genesis.tracing.updates import only_appended, only_counted, only_counted_in, only_stored, only_stored_in

Place = tuple[int, Any]
_NUMBERS = 8
"""Places of numbers that others change, beyond which a capture is for these values alone."""
_BASES = (object, SimpleNamespace, Tree, Module)
_WAYS = ("the attribute ", "the closure variable ")


class Slots:
    """The slots of one capture.

    Attributes:
        tensors: the call's arguments that are tensors, then those in given slots.
        after: what a replay makes for the slots.
        reasons: what a capture holds for one value only, in words.
        numbers: the places of numbers that others change.
    """

    def __init__(self, changes: Sequence[Difference], kinds: Sequence[str], tensors: Sequence[Any],
                 reasons: Sequence[str]):
        of = {kind: [x for x, its in zip(changes, kinds, strict=True) if its == kind] for kind in kinds}
        self._fixed, counted = of.get("fixed", []), of.get("counted", [])
        self.numbers = of.get("number", [])
        given = [*of.get("given", []), *self.numbers]
        self._given = [partial(_get, x.owner, x.key) for x in given]
        self._counted = [(x, x.now - x.before) for x in counted]
        self._key, self.tensors = describe_all([x.before for x in given], tensors)
        self._givens, self._arguments = given, len(tensors)
        made = [*self._fixed, *of.get("given", []), *of.get("stored", []), *of.get("appended", [])]
        self.after = [x.now for x in made]
        self._made = made
        self._puts: list[tuple[Difference, Any]] = []
        self._later: list[tuple[Difference, Any]] = []
        self._kinds = frozenset(kinds)
        self._in_modules = any(x.slowly for x in (*made, *counted))
        self._numbers_in_modules = any(x.slowly for x in self.numbers)
        self.reasons = reasons

    def hold(self, shape: Result) -> None:
        """Take over the structure of (the call's result, what a replay puts into the places)."""
        trees = shape.tree[1][1][1]
        for x, tree in zip(self._made, trees, strict=True):
            (self._later if reads(tree) or not _in_c(x) else self._puts).append((x, tree))

    def read(self, tensors: Sequence[Any]) -> list[Any] | None:
        """The tensors that a replay takes, the arguments first; None if another value is in a place."""
        found = self.describe(tensors)
        return found[1] if found is not None and found[0] == self._key else None

    def changes(self, shape: Result, made: Sequence[Any], found: list[Change], expected: list[Expected]) -> list[Any]:
        """Add the changes that put what a replay made into the places, and what they expect to find. Returns what they
        replace.

        Not among them: what is read from a tensor, which has its value later, and what Python puts there."""
        held = [_get(x.owner, x.key) for x, _ in self._puts if x.key is not APPENDED]
        found += [_putting(x, shape.part(tree, made)) for x, tree in self._puts]
        for x, added in self._counted:
            look = _looking(x)
            before = call(*look)
            expected.append((look, before))
            found.append(_putting(x, before + added))
        if self._in_modules:
            found.append(changing())
        return held

    def result(self, shape: Result, made: Sequence[Any]) -> Any:
        """The call's own result, when the changes are made; puts the rest into the places."""
        own, (_, trees) = shape.tree[1]
        del trees
        for x, tree in self._later:
            call(*_putting(x, shape.part(tree, made)))
        if self._later and self._in_modules:
            changed()
        return shape.part(own, made)

    @property
    def can_run_twice(self) -> bool:
        """Whether what the call does to the places is undone by putting back what was there. A dictionary keeps the
        key that was first, which may be a stand-in."""
        return self._kinds <= {"given", "stored", "fixed", "number", "counted"} and not self._later and all(
            not isinstance(x.owner, dict) or isinstance(x.key, str)
            for x in (*self._made, *[x for x, _ in self._counted]))

    @property
    def places_of_numbers(self) -> list[Difference]:
        """The places whose values are numbers, but for those that are counted in."""
        return [x for x in (*self._fixed, *self._givens) if _is_number(x.before)]

    def given_values(self) -> list[Any]:
        """What was in the given places before the captured call."""
        return [x.before for x in self._givens]

    def values_now(self) -> list[Any]:
        """What is in the places now that a replay makes something for."""
        return [_get(x.owner, x.key) for x in self._made]

    def put(self, given: Sequence[Any]) -> None:
        """Put these values into the given places, and into the others what was there before the captured call."""
        values = {id(x): value for x, value in zip(self._givens, given, strict=True)}
        for x in (*self._made, *self.numbers):
            self._put(x, values.get(id(x), x.before))

    def numbers_are(self, given: Sequence[Any]) -> bool:
        """Whether the places of numbers, of which a replay writes to none, hold what `put` put there."""
        return all(get() is value for get, value in list(zip(self._given, given, strict=True))[
            len(self._given) - len(self.numbers):])

    def kept(self) -> Context:
        """A context after which there is in all places what was there before it."""
        counted = [x for x, _ in self._counted]
        return _AsBefore([(x, _get(x.owner, x.key)) for x in (*self._made, *counted, *self.numbers)])

    def _put(self, x: Difference, value: Any) -> None:
        call(*_putting(replace(x, now=value), value))
        if self._in_modules or self._numbers_in_modules:
            changed()

    def filled(self, shape: Result) -> Slots:
        """The slots of another call, whose results have this structure."""
        found = copy.copy(self)
        found._puts, found._later = [], []
        found.hold(shape)
        return found

    def describe(self, tensors: Sequence[Any]) -> tuple[tuple[Any, ...], list[Any]] | None:
        """The key of what is in the given places, and the tensors of a call with these arguments; None if a place that
        is fixed holds something else."""
        if not all(same(_get(x.owner, x.key), x.before) for x in self._fixed):
            return None
        if not all(type(_get(x.owner, x.key)) is int for x, _ in self._counted):
            return None
        try:
            return describe_all([get() for get in self._given], tensors)
        except NotReplayable:
            return None

    @property
    def key(self) -> tuple[Any, ...]:
        """The key of what was in the given places."""
        return self._key

    def change(self) -> tuple[str, Any, Any] | None:
        """(name, the value that it is captured for, the value now) of a place that keeps it from being replayed."""
        for x in self._fixed:
            if not same(now := _get(x.owner, x.key), x.before):
                return x.name, x.before, now
        if self.read(self.tensors[:self._arguments]) is None:
            for x, get in zip(self._givens, self._given, strict=True):
                if value_text(x.before) != value_text(now := get()):
                    return x.name, x.before, now
        return None

    def state(self) -> Any:
        """What is in the places now, as far as a replay depends on it: something to hash and compare."""
        fixed = [_get(x.owner, x.key) for x in self._fixed]
        plain = tuple([x if isinstance(x, SIMPLE) else id(x) for x in fixed])
        try:
            return plain, describe_all([get() for get in self._given], ())[0]
        except NotReplayable:
            return plain


class _AsBefore(Context):
    """A context after which these places hold these values. C puts them there, so that no exception comes between."""

    __slots__ = ("_puts",)

    def __init__(self, before: Sequence[tuple[Difference, Any]]):
        self._puts = [_putting(replace(x, now=value), value) for x, value in before]

    def _entering(self) -> Callable[[], object]:
        return partial(len, self._puts)

    def _leaving(self) -> Callable[..., object]:
        return leaving((in_order, starmap(call, self._puts)))


def find_slots(guards: Guards, entered: Entered, tensors: Sequence[Any],
               again: Callable[[frozenset[Place], frozenset[Place]], Guards],
               numbers: Sequence[Difference] = ()) -> tuple[Guards, Slots]:
    """The guards and slots of a call that changed something that is guarded, or read what others change.

    Args:
        guards: guards of everything, which do not hold any more.
        entered: the state before the call.
        tensors: the arguments that are tensors.
        again: makes guards without those of some places, and for which of them the values are given.
        numbers: places that are not changed, of numbers that others change.

    Raises:
        Unsettled: it changed what has no slot.
    """
    changes = list(guards.checks.differences())
    kinds = [_kind(x, guards, entered, tensors) for x in changes]
    known = {(id(x.owner), x.key) for x in changes}
    moving = {(id(x.owner), x.key) for x in numbers}
    kinds = ["given" if kind == "fixed" and (id(x.owner), x.key) in moving and _is_number(x.before)
             and _is_number(x.now) else kind for x, kind in zip(changes, kinds, strict=True)]
    others = [replace(x, before=x.now) for x in numbers if (id(x.owner), x.key) not in known]
    changes, kinds = [*changes, *others], [*kinds, *["number"] * len(others)]
    places = frozenset((id(x.owner), x.key) for x in changes)
    while True:
        given = frozenset((id(x.owner), x.key) for x, kind in zip(changes, kinds, strict=True)
                          if kind in ("given", "stored", "appended"))
        found = again(places, given)
        fixed = {x.storage for x in found.tensors}
        shared = [at for at, (x, kind) in enumerate(zip(changes, kinds, strict=True))
                  if kind == "given" and any(found.knows(y) or getattr(y, "storage", None) in fixed
                                             for y in _inside(x.before))]
        if not shared:
            break
        for at in shared:  # something else leads to it, too
            kinds[at] = "fixed"
    if not changes or not found.hold():
        raise _unsettled(next(found.checks.differences(), next(iter(changes), None)), guards)
    for x, kind in zip(changes, kinds, strict=True):
        if kind == "none":
            raise _unsettled(x, guards)
    reasons = [_reason(x, guards) for x, kind in zip(changes, kinds, strict=True)
               if kind == "fixed" and _is_number(x.before) and type(x.now) is type(x.before)]
    return found, Slots(changes, kinds, tensors, reasons)


def changed_numbers(kept: Guards, slots: Slots | None) -> list[Difference]:
    """The places where an earlier capture had another int or float than there is now, and those that it knows of;
    none if it differs in anything else, too."""
    places = {} if slots is None else {(id(x.owner), x.key): x for x in slots.places_of_numbers}
    for x in kept.checks.differences():
        if not _is_number(x.before) or type(x.now) is not type(x.before) or len(places) >= _NUMBERS or (
                isinstance(x.owner, type) and not _is_plain_class(x.owner)):
            return []
        places[id(x.owner), x.key] = x
    found = [replace(x, now=_get(x.owner, x.key)) for x in places.values()]
    return [x for x in found if _is_number(x.now)]


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def results_of(after: Sequence[Any], tensors: Sequence[Any], guards: Guards) -> list[Any]:
    """What slots hold after a call with these tensors, as results: an object that is there anyway stands for itself."""
    arguments = {id(x) for x in tensors}
    return [Known(x) if not isinstance(x, SIMPLE) and id(x) not in arguments and (x is MISSING or guards.knows(x))
            else x for x in after]


def describe_all(values: Iterable[Any], tensors: Sequence[Any]) -> tuple[tuple[Any, ...], list[Any]]:
    """(key, tensors) as of further arguments after these tensors."""
    key: list[Any] = []
    found = list(tensors)
    for value in values:
        describe(value, key, found)
    return tuple(key), found


def _kind(x: Difference, guards: Guards, entered: Entered, tensors: Sequence[Any]) -> str:
    """Which kind of slot the place is; "none" where it can be none."""
    if not isinstance(x.owner, (dict, list, CellType)) and not hasattr(type(x.owner), str(x.key)) and (
            not _is_plain_class(x.owner)):
        return "none"
    if x.key is ANY or (isinstance(x.owner, dict) and x.owner.get("__name__") == "sys"):
        return "none"
    names = _names_of(guards.ways.get(id(x.owner), set()))
    if x.key is APPENDED:
        return "appended" if guards.follows_names and _all(only_appended, names, guards) else "none"
    if guards.follows_names and _is_of_the_user(_holder(x, guards)):
        kept = id(x.owner) in guards.ways  # an element of a list or dictionary, or an attribute, or a variable
        if type(x.before) is type(x.now) is int and (
                _all(only_counted_in, names, guards, x.key) if kept else only_counted(x.name, guards.ran)):
            return "counted"
        if _all(only_stored_in, names, guards, x.key) if kept else only_stored(x.name, guards.ran):
            return "stored"
    return "given" if _can_be_given(x.before, entered, tensors) else "fixed"


def _all(does: Callable[..., bool], names: Sequence[str], guards: Guards, *key: Any) -> bool:
    """Whether this holds for all names of a container."""
    return bool(names) and all(does(name, *key, guards.ran) for name in names)


def _holder(x: Difference, guards: Guards) -> Any:
    """The object whose attribute the place is; None for a variable, or an element of a list or dictionary."""
    return guards.holders.get(id(x.owner)) if isinstance(x.owner, (dict, list, CellType)) else x.owner


def _is_of_the_user(holder: Any) -> bool:
    """Whether nobody but the user's code reads the attributes of the object, if they are some object's."""
    return holder is None or all(
        kind in _BASES or not (is_library_module(kind.__module__) or is_own_module(kind.__module__))
        for kind in (holder if isinstance(holder, type) else type(holder)).__mro__)


def _is_plain_class(owner: Any) -> bool:
    """Whether it is a class whose attributes C sets."""
    return isinstance(owner, type) and type(owner).__setattr__ is type.__setattr__


def _names_of(ways: Iterable[str]) -> list[str]:
    """The names that lead to an object; none if it is reached without one."""
    names = []
    for way in ways:
        name = next((way.removeprefix(start) for start in _WAYS if way.startswith(start)), way)
        if " " in name:
            return []
        names.append(name.rpartition(".")[2])
    return names


def _can_be_given(before: Any, entered: Entered, tensors: Sequence[Any]) -> bool:
    """Whether a value can be described like an argument, and is as it was before the call."""
    if isinstance(before, SIMPLE) or before is MISSING:
        return False
    for x in _inside(before):
        if isinstance(x, (list, dict)) and x in entered.world:
            copy, now = entered.world.of(x), content(x)
            pairs = (copy.items(), now.items()) if isinstance(x, dict) else (enumerate(copy), enumerate(now))
            if len(copy) != len(now) or any(a[0] != b[0] or a[1] is not b[1] for a, b in zip(*pairs, strict=True)):
                return False
    try:
        key, _ = describe_all([before], tensors)
    except NotReplayable:
        return False
    return not any(isinstance(part, Held) for part in key)


def _inside(value: Any) -> Iterable[Any]:
    """The tensors and containers that a value is made of."""
    stack = [value]
    while stack:
        x = stack.pop()
        if isinstance(x, TensorBase):
            yield x
        elif isinstance(x, (list, tuple)):
            yield x
            stack.extend(x)
        elif isinstance(x, dict):
            yield x
            stack.extend(x.values())


def _get(owner: Any, key: Any) -> Any:
    if isinstance(owner, dict):
        return owner.get(key, MISSING)
    if isinstance(owner, list):
        return getitem(owner, key) if key < len(owner) else MISSING
    return contents_of(owner) if isinstance(owner, CellType) else getattr(owner, key, MISSING)


def putting_back(x: Difference) -> Change:
    """What makes a place as it was before."""
    if x.key is APPENDED:
        return x.owner.__delitem__, slice(len(x.owner) - len(x.now), None)
    return _putting(replace(x, now=x.before), x.before)


def _putting(x: Difference, value: Any) -> Change:
    """What puts a value into the place."""
    owner, key = x.owner, x.key
    if key is APPENDED:
        return owner.extend, value
    if isinstance(owner, dict):
        kind = _of_dict(type(owner))
        return (kind.pop, owner, key, None) if x.now is MISSING else (kind.__setitem__, owner, key, value)
    if isinstance(owner, list):
        return setitem, owner, key, value
    name = "cell_contents" if isinstance(owner, CellType) else key
    return (delattr, owner, name) if x.now is MISSING else (setattr, owner, name, value)


def _of_dict(kind: type) -> Any:
    """The class whose methods write to such a dictionary: a module's registry is told of its changes otherwise."""
    return dict if issubclass(kind, Registry) else kind


def _in_c(x: Difference) -> bool:
    """Whether C puts the value into the place, so that nothing comes in between."""
    kind: type = type(x.owner)
    if isinstance(x.owner, dict):
        own = _of_dict(kind)
        method = own.pop if x.now is MISSING else own.__setitem__
        return isinstance(method, WrapperDescriptorType | MethodDescriptorType)
    if isinstance(x.owner, list):
        return kind is list
    return isinstance(x.owner, CellType) or _is_plain_class(x.owner) or (
        kind.__setattr__ is object.__setattr__ and isinstance(
            getattr_static(kind, str(x.key), None), MemberDescriptorType))


def _looking(x: Difference) -> Change:
    """What looks at the place."""
    if isinstance(x.owner, (dict, list)):
        return getitem, x.owner, x.key
    return getattr, x.owner, "cell_contents" if isinstance(x.owner, CellType) else x.key


def _unsettled(x: Difference | None, guards: Guards) -> Unsettled:
    return Unsettled("it changes something that it reads (an attribute, a container, a variable)" if x is None else
                     _reason(x, guards))


def _reason(x: Difference, guards: Guards) -> str:
    return f"it changes {x.name!r}, which it reads{place_of(x.name, guards.ran)}"
