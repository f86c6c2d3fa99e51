"""Lists, tuples and named tuples, built anew with other parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Kind = TypeVar("Kind", bound=Sequence[object])


def is_named(kind: type) -> bool:
    """Is this a class of named tuples, which are made of their fields one by one?

    The class is asked: an object's own `__getattr__` may raise whatever it likes.
    """
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def sequence_of(kind: type[Kind], parts: Sequence[object]) -> Kind:
    """A list, tuple or named tuple of the class with these parts.

    >>> from collections import namedtuple
    >>> sequence_of(namedtuple("Pair", ["a", "b"]), [1, 2]), sequence_of(tuple, [1, 2])
    (Pair(a=1, b=2), (1, 2))
    """
    make: Callable[..., Kind] = kind
    return make(*parts) if is_named(kind) else make(parts)
