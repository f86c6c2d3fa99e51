"""Plain values: their classes, and which two of them are one."""

from __future__ import annotations

import enum
from math import copysign
from operator import attrgetter
from typing import Any, Final

from genesis.ir.types import Device, DType

PLAIN: Final = (bool, int, float, str, bytes, type(None), complex)
"""Numbers and texts. Asking an object of exactly one of these classes runs no code of the program's."""
SIMPLE: Final = (*PLAIN, type(Ellipsis), type(NotImplemented), range, slice, enum.Enum, DType, Device)
"""Values that stay what they are, of these classes and of those that derive from them; they are compared as equals."""


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
