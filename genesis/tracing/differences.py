"""What is not as it was when a call was captured, place by place: for slots, which write there, and for a reader."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from genesis.frontend.recording import TensorBase
from genesis.tracing.plain_values import same
from genesis.tracing.snapshot import MISSING, tensor_identity
from genesis.tracing.value_texts import Words, value_text
from genesis.tracing.written_places import ABSENT, ATTRIBUTE, CELL, CLASS, ENTRY, Look, Place

ANY: Any = type("Any", (), {"__repr__": lambda self: "any"})()
"""The key of a collection as a whole, and the value of a slot, which others check."""
APPENDED: Any = type("Appended", (), {"__repr__": lambda self: "appended"})()
"""The key of the place behind the end of a list."""
_AS_CAPTURED: Final = Words("as captured")


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


@dataclass
class Watched:
    """What guards compare, with what it was.

    Attributes:
        places: (kind, id of the owner, key) → a place that is looked at at each call.
        slow_places: the same of those that are looked at after an epoch has passed.
        contents: collections with their elements; `slow_contents` are those of modules.
        tensors: (tensor, its `tensor_identity`, name).
        groups: (a group of an optimizer, its options then).
        states: (a parameter's state, or all of them, what was in it then).
    """

    places: dict[tuple[Look, int, Any], Place] = field(default_factory=dict)
    slow_places: dict[tuple[Look, int, Any], Place] = field(default_factory=dict)
    contents: list[Contents] = field(default_factory=list)
    slow_contents: list[Contents] = field(default_factory=list)
    tensors: list[tuple[Any, tuple, str]] = field(default_factory=list)
    groups: list[tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=list)
    states: list[tuple[dict[Any, Any], Mapping[Any, Any]]] = field(default_factory=list)

    def differences(self) -> Iterator[Difference]:
        """What is not as it was, as far as that is known place by place."""
        yield from self._named_differ()
        yield from self._elements_differ()
        yield from self._names_added()

    def changes(self) -> Iterator[Difference]:
        """What is not as it was, for a reader: `differences`, and what has no place that a call could write to."""
        yield from self._named_differ()
        yield from (x.of_element() for x in self._elements_differ())
        yield from self._names_added()
        for place in (*self.places.values(), *self.slow_places.values()):
            if place.look is CLASS and type(place.owner) is not place.value:
                yield Difference(place.of, place.key, "the class of an object", place.value, type(place.owner))
        for x, known, name in self.tensors:
            yield from _tensor_differs(x, known, name)
        for group, options in self.groups:
            for key in {**options, **group}:
                before, now = options.get(key, MISSING), group.get(key, MISSING)
                if _another_program(key, before, now):
                    yield Difference(group, key, f"{key} of an optimizer's group", before, now)
        for state_of, held in self.states:
            for key, before in held.items():
                if (now := state_of.get(key, MISSING)) is not before:
                    name = f"the state of a parameter {key.spec}" if isinstance(key, TensorBase) else f"state {key}"
                    yield Difference(state_of, key, name, before, now)
        for each in (*self.contents, *self.slow_contents):
            if isinstance(each.value, (set, frozenset)) or each.before is not None:
                before, now = each.items, tuple(each.value)
                if len(before) != len(now) or not all(map(same, before, now)):
                    kind: Any = tuple if each.before is not None else set  # keys of a dictionary have an order
                    yield Difference(each.value, ANY, each.name, kind(before), kind(now))

    def _names_added(self) -> Iterator[Difference]:
        """Names that are there and were not."""
        for slowly in (False, True):
            for place in (self.slow_places if slowly else self.places).values():
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
        for each in self.contents:
            if isinstance(each.value, (list, deque)):
                yield from _items_differ(each.value, each.items, each.name)
            elif each.before is not None:  # an element's name is that of the container
                for key in {**each.before, **each.value}:
                    before, now = each.before.get(key, MISSING), each.value.get(key, MISSING)
                    if not same(now, before):
                        yield Difference(each.value, key, each.name, before, now)

    def _places_differ(self, look: Look, slowly: bool = False) -> Iterator[Difference]:
        """Those of one kind: an entry, an attribute or a cell."""
        for place in (self.slow_places if slowly else self.places).values():
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


def contents_of(cell: Any) -> Any:
    """What is in a cell, MISSING for nothing."""
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


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
