"""Names of Genesis' own that the program replaced: `genesis.Tensor.relu = …`, `nn.functional.linear = …`.

Genesis looks these up itself, in code that no guard looks into. So the class and the module note when one of their
names is set, and the set of replaced names is part of a compiled call's signature.
"""

from __future__ import annotations

import types
from typing import Any

_MISSING: Any = object()
_first: dict[tuple[Any, str], Any] = {}
_now: dict[tuple[Any, str], Held] = {}
replaced: tuple[Any, ...] = ()
"""((owner, name), value) for each name that is not as Genesis made it; values compare by identity."""


class Held:
    """An object in a key, which compares it by identity and keeps it alive."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Held) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


class WatchedClass(type):
    """A class that notes when one of its names is set."""

    def __setattr__(cls, name: str, value: Any) -> None:
        _note(cls, name, value)
        super().__setattr__(name, value)

    def __delattr__(cls, name: str) -> None:
        _note(cls, name, _MISSING)
        super().__delattr__(name)


class WatchedModule(types.ModuleType):
    """A module that notes when one of its names is set."""

    def __setattr__(self, name: str, value: Any) -> None:
        _note(self, name, value)
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        _note(self, name, _MISSING)
        super().__delattr__(name)


def _note(owner: Any, name: str, value: Any) -> None:
    global replaced
    if isinstance(value, types.ModuleType):  # an import sets a module in its package
        return
    key = (owner, name)
    getattr(owner, name, None)  # a method or function that waits to be asked for stands there now
    if value is _first.setdefault(key, vars(owner).get(name, _MISSING)):
        _now.pop(key, None)
    else:
        _now[key] = Held(value)
    replaced = tuple(_now.items())
