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
| gradient | `.grad` of a tensor that found another one in an earlier call: described like an argument | nothing |
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import starmap
from operator import call
from typing import Any

from genesis.frontend.at_once import Change, Expected, at_once, changes
from genesis.frontend.recording import TensorBase
from genesis.frontend.views import Layout
from genesis.nn.modules.tree import changed, changing
from genesis.runtime.contexts import Context, in_order, leaving
from genesis.tracing.differences import APPENDED, Difference, appended_to
from genesis.tracing.plain_values import SIMPLE, same
from genesis.tracing.results import Result, reads
from genesis.tracing.signature import describe
from genesis.tracing.slot_access import cut_off, is_put_by_c, looking, now_in, putting
from genesis.tracing.snapshot import NotReplayable, set_by_the_user
from genesis.tracing.value_texts import value_text

Place = tuple[int, Any]
"""The id of what a place is in, and which of its places."""


class Slots:
    """The slots of one capture.

    Attributes:
        tensors: the call's arguments that are tensors, then those in given slots.
        after: what a replay makes for the slots.
        reasons: what a capture holds for one value only, in words.
        numbers: the places of numbers that others change.
        gradients: (tensor, its gradient before the call) of those whose gradients are given.
        set_first: ids of an optimizer's groups that are written to before the call's numbers are asked for.
        late: places that get a value which the call reads last, and what is kept after it: put there at once.
        before_gradients: how many of `tensors` are none of these gradients.
    """

    def __init__(self, changes: Sequence[Difference], kinds: Sequence[str], tensors: Sequence[Any],
                 reasons: Sequence[str], gradients: Sequence[tuple[Any, Any]] = ()):
        of = {kind: [x for x, its in zip(changes, kinds, strict=True) if its == kind] for kind in kinds}
        self._fixed, counted = of.get("fixed", []), of.get("counted", [])
        self.numbers = of.get("number", [])
        given = [*of.get("given", []), *self.numbers]
        self._given = [partial(now_in, x.owner, x.key) for x in given]
        self._counted = [(x, x.now - x.before) for x in counted]
        key, found = describe_all([x.before for x in given], tensors)
        more, self.tensors = describe_all([grad for _, grad in gradients], found)
        self._key, self.gradients, self.before_gradients = (*key, *more), gradients, len(found)
        self._givens, self._arguments = given, len(tensors)
        made = [*self._fixed, *of.get("given", []), *of.get("stored", []), *of.get("appended", [])]
        self.after = [x.now for x in made]
        self._made = made
        self._puts: list[tuple[Difference, Any]] = []
        self._later: list[tuple[Difference, Any]] = []
        self._first: list[tuple[Difference, Any]] = []
        self.set_first: frozenset[int] = frozenset()
        self.late: frozenset[Place] = frozenset()
        self._in_modules = any(x.slowly for x in (*made, *counted))
        self._numbers_in_modules = any(x.slowly for x in self.numbers)
        self.reasons = reasons

    def hold(self, shape: Result) -> None:
        """Take over the structure of (the call's result, what a replay puts into the places)."""
        trees = shape.tree[1][1][1]
        for x, tree in zip(self._made, trees, strict=True):
            if id(x.owner) in self.set_first:
                if tree.__class__ is int or tree[0] != "constant":
                    raise NotReplayable("it sets an option of an optimizer before its step to what it computes")
                self._first.append((x, tree))
            elif self._is_late(x):
                if any(x is y for y in self._givens) and not is_number(x.before):
                    raise NotReplayable("it keeps a tensor after a value that it has read")
                self._later.append((x, tree))
            elif reads(tree):
                raise NotReplayable("it keeps a value that it reads last in an object that it has made before")
            else:
                (self._puts if is_put_by_c(x) else self._later).append((x, tree))

    def places(self) -> list[Difference]:
        """All places that the call writes to."""
        return [*self._made, *[x for x, _ in self._counted]]

    def _is_late(self, x: Difference) -> bool:
        return (id(x.owner), x.key) in self.late

    def put_first(self, shape: Result) -> None:
        """Put what a call sets before its steps where these look for it."""
        puts = [putting(x, shape.part(tree, ())) for x, tree in self._first]
        held = [now_in(x.owner, x.key) for x, _ in self._first]
        at_once(changes((), puts))
        del held

    def first_as_now(self) -> list[Change]:
        """What puts back there what is there now: a call that does not come to its end has set nothing."""
        return [putting(replace(x, now=now), now) for x, _ in self._first for now in (now_in(x.owner, x.key),)]

    def read(self, tensors: Sequence[Any]) -> list[Any] | None:
        """The tensors that a replay takes, the arguments first; None if another value is in a place."""
        found = self.describe(tensors)
        return found[1] if found is not None and found[0] == self._key else None

    def changes(self, shape: Result, made: Sequence[Any], found: list[Change], expected: list[Expected]) -> list[Any]:
        """Add the changes that put what a replay made into the places, and what they expect to find. Returns what they
        replace.

        Not among them: what is read from a tensor, which has its value later, and what Python puts there."""
        held = [now_in(x.owner, x.key) for x, _ in self._puts if x.key is not APPENDED]
        found += [putting(x, shape.part(tree, made)) for x, tree in self._puts]
        for x, added in self._counted:
            if self._is_late(x):
                continue
            look = looking(x)
            before = call(*look)
            expected.append((look, before))
            found.append(putting(x, before + added))
        if self._in_modules:
            found.append(changing())
        return held

    def result(self, shape: Result, made: Sequence[Any]) -> Any:
        """The call's own result, when the changes are made; puts the rest into the places: all of it at once, where C
        does."""
        own, _ = shape.tree[1]
        counted = [(x, added) for x, added in self._counted if self._is_late(x)] if self.late else []
        if not self._later and not counted:
            return shape.part(own, made)
        found = [(x, shape.part(tree, made)) for x, tree in self._later]
        found += [(x, now_in(x.owner, x.key) + added) for x, added in counted]
        held = [now_in(x.owner, x.key) for x, _ in found if x.key is not APPENDED]
        puts = [putting(x, value) for x, value in found]
        if self._in_modules:
            puts.append(changing())
        at_once(changes((), puts))
        del held
        return shape.part(own, made)

    @property
    def can_run_twice(self) -> bool:
        """Whether what the call does to the places is undone by putting back what was there. A dictionary keeps the
        key that was first, which may be a stand-in."""
        return all(is_put_by_c(x) for x, _ in self._later) and all(
            not isinstance(x.owner, dict) or isinstance(x.key, str)
            for x in (*self._made, *[x for x, _ in self._counted]))

    @property
    def places_of_numbers(self) -> list[Difference]:
        """The places whose values are numbers, but for those that are counted in."""
        return [x for x in (*self._fixed, *self._givens) if is_number(x.before)]

    @property
    def appended(self) -> list[Difference]:
        """The lists that it appends to."""
        return [x for x in self._made if x.key is APPENDED]

    def given_values(self) -> list[Any]:
        """What was in the given places before the captured call."""
        return [x.before for x in self._givens]

    def items(self) -> list[tuple[Any, ...]]:
        """What is in the lists that the call appends to."""
        return [tuple(x.owner) for x in self._made if x.key is APPENDED]

    def values_now(self, items: Iterable[tuple[Any, ...]]) -> list[Any]:
        """What is in the places now that a replay makes something for; of lists, what is behind these items."""
        before = iter(items)
        return [appended_to(x.owner, next(before)) or () if x.key is APPENDED else now_in(x.owner, x.key)
                for x in self._made]

    def put(self, given: Sequence[Any]) -> None:
        """Put these values into the given places, and into the others what was there before the captured call."""
        values = {id(x): value for x, value in zip(self._givens, given, strict=True)}
        for x in (*self._made, *self.numbers):
            if x.key is not APPENDED:
                self._put(x, values.get(id(x), x.before))

    def numbers_are(self, given: Sequence[Any]) -> bool:
        """Whether the places of numbers, of which a replay writes to none, hold what `put` put there."""
        return all(get() is value for get, value in list(zip(self._given, given, strict=True))[
            len(self._given) - len(self.numbers):])

    def kept(self) -> Context:
        """A context after which there is in all places what was there before it."""
        places = (*self._made, *[x for x, _ in self._counted], *self.numbers)
        return _AsBefore([cut_off(x.owner) if x.key is APPENDED else
                          putting(replace(x, now=now_in(x.owner, x.key)), now_in(x.owner, x.key)) for x in places])

    def _put(self, x: Difference, value: Any) -> None:
        call(*putting(replace(x, now=value), value))
        if self._in_modules or self._numbers_in_modules:
            changed()

    def filled(self, shape: Result) -> Slots:
        """The slots of another call, whose results have this structure."""
        found = copy.copy(self)
        found._puts, found._later, found._first = [], [], []
        found.hold(shape)
        return found

    def describe(self, tensors: Sequence[Any]) -> tuple[tuple[Any, ...], list[Any]] | None:
        """The key of what is in the given places, and the tensors of a call with these arguments; None if a place that
        is fixed holds something else."""
        if not all(same(now_in(x.owner, x.key), x.before) for x in self._fixed):
            return None
        if not all(type(now_in(x.owner, x.key)) is int for x, _ in self._counted):
            return None
        try:
            return describe_all([*[get() for get in self._given], *[x._grad for x, _ in self.gradients]], tensors)
        except NotReplayable:
            return None

    @property
    def key(self) -> tuple[Any, ...]:
        """The key of what was in the given places."""
        return self._key

    def change(self) -> Difference | None:
        """A place that keeps it from being replayed, with the value that it is captured for and the value now."""
        for x in self._fixed:
            if not same(now := now_in(x.owner, x.key), x.before):
                return replace(_for_reader(x), before=x.before, now=now)
        if self.read(self.tensors[:self._arguments]) is None:
            for x, get in zip(self._givens, self._given, strict=True):
                if value_text(x.before) != value_text(now := get()):
                    return replace(_for_reader(x), now=now)
            for x, before in self.gradients:
                if value_text(before) != value_text(x._grad):
                    return Difference(x, "grad", "a gradient", before, x._grad)
        return None

    def state(self) -> Any:
        """What is in the places now, as far as a replay depends on it: something to hash and compare."""
        fixed = [now_in(x.owner, x.key) for x in self._fixed]
        plain = tuple([x if isinstance(x, SIMPLE) else id(x) for x in fixed])
        try:
            return plain, describe_all([*[get() for get in self._given], *[x._grad for x, _ in self.gradients]], ())[0]
        except NotReplayable:
            return plain


class _AsBefore(Context):
    """A context after which these changes are made. C makes them, so that no exception comes between."""

    __slots__ = ("_puts",)

    def __init__(self, puts: Sequence[Change]):
        self._puts = puts

    def _entering(self) -> Callable[[], object]:
        return partial(len, self._puts)

    def _leaving(self) -> Callable[..., object]:
        return leaving((in_order, starmap(call, self._puts)))


def _for_reader(x: Difference) -> Difference:
    """The place with the name that a reader knows: of an element, not that of its list or dictionary alone."""
    element = isinstance(x.owner, (dict, list, deque)) and not (type(x.key) is str and x.key == x.name)
    return x.of_element() if element and x.key is not APPENDED else x


def is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _place_in_memory(part: Any) -> tuple[Any, ...]:
    """Which part of its memory a tensor shows; nothing for all of it."""
    if part is None:
        return ()
    return (part.strides, part.steps) if part.__class__ is Layout else (
        part.strides, part.offset, part.steps, part.shapes)


def describe_all(values: Iterable[Any], tensors: Sequence[Any]) -> tuple[tuple[Any, ...], list[Any]]:
    """(key, tensors) as of further arguments after these tensors. A value may be a view, as a result is that was given
    another shape (`state["momentum"] = update.view(shape)`): a replay takes the memory that it is a view of. One may
    share memory with one before it, as what a layer and the one that flattens it have given last (`self.out`)."""
    key: list[Any] = []
    found, arguments = list(tensors), len(tensors)
    at: dict[int, int] = {}
    for i, x in enumerate(found):
        at.setdefault(id(x.storage), i)
    for value in values:
        if not isinstance(value, TensorBase) or value.leaf is not None or value.detached is not None:
            describe(value, key, found, at)
            continue
        part, index = value.part, at.get(id(value.storage))
        shared = index is not None and index >= arguments and found[index] is not value and (
            found[index].leaf is None and found[index].detached is None)
        if not shared and (part is None or part.__class__ is Layout):
            describe(value, key, found, at)
            continue
        if shared:
            key.append(("shares", index))
        elif index is not None:
            raise NotReplayable("two arguments share memory")
        else:
            at[id(value.storage)] = len(found)
            found.append(value)
        key.append((value.spec, value.storage.type, part.__class__, *_place_in_memory(part),
                    value.storage.needs_grad, value.__class__, value.is_view, value.storage.inference))
        if set_by_the_user(value):
            raise NotReplayable("a view that it keeps has an attribute of the user's")
    return tuple(key), found


