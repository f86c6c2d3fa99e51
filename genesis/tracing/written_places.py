"""Places that can be looked up again: what kinds there are, each as loops of C and as a line of Python.

`Checks` compares by loops of C over lists: the place that is looked up and the comparison are a call each, 60 to 100 ns
for a dictionary's entry or a name that a class must not have. Once a capture's guards have held a few times, they are
written out as a function, whose lines take a third of that:

    x12['config'] is x40 and x3.__code__ is x51 and x7.cell_contents is x60
    and x4.__dict__ is x5 and 'is_causal' not in x15

`benchmarks/host_time.py` has the guards of a step of 12 layers. What is compared, and by what, is the same: a kind of
place is one row, of which both follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from keyword import iskeyword
from operator import attrgetter, call, getitem
from types import MappingProxyType
from typing import Any, Final, NamedTuple

HELD_BEFORE: Final = 8
"""Times that guards hold by loops before they are written out: that takes 10 µs a place, once."""

MOST_PLACES: Final = 4096
"""Places up to which guards are written out."""


class Names:
    """Names of objects in the text, each object once.

    Attributes:
        values: name → object, the namespace of the function.
    """

    def __init__(self) -> None:
        self.values: dict[str, Any] = {"type": type, "getattr": getattr}
        self._of: dict[int, str] = {}

    def of(self, value: Any) -> str:
        """The object's name."""
        name = self._of.get(id(value))
        if name is None:
            name = self._of[id(value)] = f"x{len(self._of)}"
            self.values[name] = value
        return name

    def key(self, key: Any) -> str:
        """A dictionary's key: a plain string as it is written."""
        return repr(key) if type(key) is str else self.of(key)


@dataclass(frozen=True, eq=False)
class Look:
    """A kind of place.

    Attributes:
        now: what is in places with these owners and these keys, one after another.
        text: the comparison of a place by identity, as an expression.
    """

    now: Callable[[list[Any], list[Any]], Iterator[Any]]
    text: Callable[[Place, Names], str]


class Place(NamedTuple):
    """Somewhere that a value was found.

    Attributes:
        look: its kind.
        owner: what is looked into.
        key: which place of it.
        value: what was there.
        of: what a program knows as the owner: the class of a class's dictionary, of a method the dictionary.
        name: the name that a program knows it by.
    """

    look: Look
    owner: Any
    key: Any
    value: Any
    of: Any
    name: str


_PLAIN: Final = (dict, MappingProxyType)
"""Classes of dictionaries whose `in` is C's: not a user's own."""


def _attribute(place: Place, names: Names) -> str:
    name, owner = place.key, names.of(place.owner)
    plain = type(name) is str and name.isidentifier() and name.isascii() and not iskeyword(name)
    looked_up = f"{owner}.{name}" if plain else f"getattr({owner}, {names.key(name)})"
    return f"{looked_up} is {names.of(place.value)}"


def _none_of(place: Place, names: Names) -> str:
    if len(place.key) == 1 and type(place.of) in _PLAIN:
        only, = place.key
        return f"{names.key(only)} not in {names.of(place.of)}"
    return f"{names.of(place.owner)}({names.of(place.key)})"


CLASS: Final = Look(lambda owners, keys: map(type, owners),
                    lambda place, names: f"type({names.of(place.owner)}) is {names.of(place.value)}")
"""An object's class."""

ENTRY: Final = Look(lambda owners, keys: map(getitem, owners, keys),
                    lambda place, names: f"{names.of(place.owner)}[{names.key(place.key)}] is {names.of(place.value)}")
"""A dictionary's value for a key."""

ATTRIBUTE: Final = Look(lambda owners, keys: map(getattr, owners, keys), _attribute)
"""An object's attribute, wherever it is from."""

CELL: Final = Look(lambda owners, keys: map(attrgetter("cell_contents"), owners),
                   lambda place, names: f"{names.of(place.owner)}.cell_contents is {names.of(place.value)}")
"""What a closure variable has."""

DICTIONARY: Final = Look(lambda owners, keys: map(vars, owners),
                         lambda place, names: f"{names.of(place.owner)}.__dict__ is {names.of(place.value)}")
"""An object's dictionary of attributes, which `value.__dict__ = ...` replaces."""

ABSENT: Final = Look(lambda owners, keys: map(call, owners, keys), _none_of)
"""Whether none of a set of keys is in a dictionary, of which the owner is the method `keys().isdisjoint`."""

LOOKS: Final = (CLASS, ENTRY, ATTRIBUTE, CELL, DICTIONARY, ABSENT)
"""All kinds, in the order in which they are compared: a dictionary before what is looked up in no other way."""


def write_out(places: Sequence[Place]) -> Callable[[], bool] | None:
    """A function that compares what is in the places by identity; None where there are too many.

    It raises what looking there raises.

    >>> space = {"a": 1}
    >>> same = write_out([Place(ENTRY, space, "a", 1, space, "a")])
    >>> same()
    True
    >>> space["a"] = 2
    >>> same()
    False
    """
    if len(places) > MOST_PLACES:
        return None
    names = Names()
    found = " and ".join([place.look.text(place, names) for place in places]) or True
    exec(compile(f"def same():\n return {found}", __file__, "exec"), names.values)
    return names.values.pop("same")  # no cycle through what it looks names up in
