"""Records: objects of the user's that are no more than their attributes, as a batch, or what a step returns.

A record among a call's arguments is compared by what it holds, as a dictionary is: each call comes with another one.
An object that holds more than plain values and tensors (a trainer with its modules), or that calls write to, is
compared by identity, and what of it is read is guarded.
"""

from __future__ import annotations

from typing import Any, Final
from weakref import WeakSet

from genesis.frontend.recording import TensorBase
from genesis.tracing.plain_values import SIMPLE
from genesis.tracing.snapshot import MISSING, attributes, content

_DEPTH: Final = 8
"""Records and containers inside of each other that are looked into: an object may hold itself."""


def record_fields(value: Any) -> dict[str, Any] | None:
    """The attributes of a record, in their order; None for an object that is none.

    >>> from argparse import Namespace
    >>> record_fields(Namespace(x=[1.0, None]))
    {'x': [1.0, None]}
    >>> record_fields(Namespace(x=print)) is None
    True
    """
    return None if type(value) in written_to else _fields(value, _DEPTH)


written_to: Final[WeakSet[type]] = WeakSet()
"""Classes of records that a captured call has written to, which is why they are compared by identity from then on: what
a call leaves in such an object stays there for the next one."""


def is_of_attributes(value: Any) -> bool:
    """Whether all that the object keeps are its attributes, whatever these hold."""
    kind = type(value)
    if kind in SIMPLE or kind.__module__.startswith("genesis.") or callable(value) or hasattr(kind, "__del__"):
        return False
    return not isinstance(value, (TensorBase, *SIMPLE, list, tuple, dict, set, frozenset)) and type(
        content(value)) is dict


def _fields(value: Any, depth: int) -> dict[str, Any] | None:
    if not depth or not is_of_attributes(value):
        return None
    found = {name: x for name, x in attributes(value) if x is not MISSING}
    return found if all(_is_plain(x, depth - 1) for x in found.values()) else None


def _is_plain(value: Any, depth: int) -> bool:
    if isinstance(value, (TensorBase, *SIMPLE)):
        return True
    if not depth:
        return False
    if isinstance(value, (list, tuple)):
        return all(_is_plain(x, depth - 1) for x in value)
    if isinstance(value, dict):
        return all(isinstance(name, SIMPLE) and _is_plain(x, depth - 1) for name, x in value.items())
    return _fields(value, depth) is not None


def with_fields(kind: type, fields: dict[str, Any]) -> Any:
    """A record of this class that holds these."""
    made: Any = object.__new__(kind)
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made
