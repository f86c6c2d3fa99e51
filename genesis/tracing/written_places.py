"""Comparisons of places written out as two Python functions, made once a capture's guards have held a few times.

`Checks` compares by loops of C over lists: the place that is looked up and the comparison are a call each, 60 to 100 ns
for a dictionary's entry or a name that a class must not have. A line of Python that names the place takes a third:

    x12['config'] is x40 and x3.__code__ is x51 and x7.cell_contents is x60
    x4.__dict__ is x5 and 'is_causal' not in x15

`benchmarks/host_time.py` has the guards of a step of 12 layers. What is compared, and by what, is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from keyword import iskeyword
from types import MappingProxyType
from typing import Any, Final, NamedTuple

HELD_BEFORE: Final = 8
"""Times that guards hold by loops before they are written out: that takes 10 µs a place, once."""

MOST_PLACES: Final = 4096
"""Places up to which guards are written out."""


class Written(NamedTuple):
    """Two functions without arguments.

    Attributes:
        same: whether what is in the places is what was there; raises what looking there raises.
        settled: whether objects have the dictionaries that they had, and no name is where none was.
    """

    same: Callable[[], bool]
    settled: Callable[[], bool]


class Places(NamedTuple):
    """What is compared, in four kinds.

    Attributes:
        kinds: (object, class).
        entries: (dictionary, key, value).
        attributes: (object, name, value).
        cells: (closure variable, value).
    """

    kinds: list[tuple[Any, type]]
    entries: list[tuple[Mapping[str, Any], str, Any]]
    attributes: list[tuple[Any, str, Any]]
    cells: list[tuple[Any, Any]]


def write_out(places: Places, holders: Iterable[tuple[Any, Any]],
              absent: Iterable[tuple[Mapping[str, Any], frozenset[str]]]) -> Written | None:
    """The comparisons as two functions; None where there are too many.

    Args:
        places: what `same` compares, each by identity.
        holders: (object, its dictionary of attributes) for `settled`.
        absent: (dictionary, names that it must not have) for `settled`.

    >>> space = {"a": 1}
    >>> written = write_out(Places([], [(space, "a", 1)], [], []), [], [(space, frozenset("b"))])
    >>> written.same(), written.settled()
    (True, True)
    >>> space["b"] = 2
    >>> written.same(), written.settled()
    (True, False)
    """
    held, left_out = list(holders), list(absent)
    if sum(len(each) for each in (*places, held, left_out)) > MOST_PLACES:
        return None
    named = _Names()
    name = named.of
    same = [f"type({name(value)}) is {name(kind)}" for value, kind in places.kinds]
    same += [f"{name(space)}[{_key(key, named)}] is {name(value)}" for space, key, value in places.entries]
    same += [f"{_attribute(owner, attribute, named)} is {name(value)}" for owner, attribute, value in places.attributes]
    same += [f"{name(cell)}.cell_contents is {name(value)}" for cell, value in places.cells]
    settled = [f"{name(value)}.__dict__ is {name(inside)}" for value, inside in held]
    for space, names in left_out:
        if len(names) == 1 and type(space) in _PLAIN:
            only, = names
            settled.append(f"{_key(only, named)} not in {name(space)}")
        else:
            settled.append(f"{name(space.keys().isdisjoint)}({name(names)})")
    text = "\n".join(["def same():", f" return {' and '.join(same) or True}",
                      "def settled():", f" return {' and '.join(settled) or True}"])
    exec(compile(text, __file__, "exec"), named.values)
    return Written(named.values.pop("same"), named.values.pop("settled"))  # no cycle through what they look names up in


_PLAIN: Final = (dict, MappingProxyType)
"""Classes of dictionaries whose `in` is C's: not a user's own."""


class _Names:
    """Names of objects in the text, each object once.

    Attributes:
        values: name → object, the namespace of the functions.
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


def _key(key: str, named: _Names) -> str:
    return repr(key) if type(key) is str else named.of(key)


def _attribute(owner: Any, name: str, named: _Names) -> str:
    plain = type(name) is str and name.isidentifier() and name.isascii() and not iskeyword(name)
    return f"{named.of(owner)}.{name}" if plain else f"getattr({named.of(owner)}, {_key(name, named)})"
