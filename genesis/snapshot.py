"""What the objects that a function can reach look like before it runs.

A guard compares with the content from before the call, so that what the call itself changed shows
as a guard that fails right after the capture. A snapshot copies, one level each, everything that
can be reached from the roots; which of it matters is known only afterwards (`genesis.guards`).
"""

from __future__ import annotations

import enum
import functools
import types
from collections.abc import Iterable, Iterator
from typing import Any

from genesis.ir.types import Device, DType
from genesis.recording import TensorBase
from genesis.tracer import is_library_module

SIMPLE = (bool, int, float, str, bytes, type(None), complex, type(Ellipsis), type(NotImplemented), range, slice,
          enum.Enum, DType, Device)
MISSING: Any = type("Missing", (), {"__repr__": lambda self: "missing"})()
_CONTAINERS = (list, tuple, dict, set, frozenset)
_SLOTS = (types.GetSetDescriptorType, types.MemberDescriptorType)
_WRAPPERS = (staticmethod, classmethod)
_LIMIT = 200_000


class CompiledBase:
    """A compiled function, of which only the function matters here."""

    function: Any


class Snapshot:
    """Copies of objects, by id. It keeps the objects, so that no id is used twice.

    Attributes:
        tensors: the tensors among them.
        complete: False when there were too many objects.
    """

    def __init__(self) -> None:
        self._copies: dict[int, tuple[Any, Any]] = {}
        self.tensors: list[Any] = []
        self.complete = True

    def add(self, *roots: Any) -> None:
        """Copy what the roots are made of, as far as that is not copied yet."""
        copies = self._copies
        stack = list(roots)
        while stack:
            value = stack.pop()
            if isinstance(value, SIMPLE) or id(value) in copies:
                continue
            if len(copies) > _LIMIT:
                self.complete = False
                return
            copy = content(value)
            copies[id(value)] = (value, copy)
            if isinstance(value, TensorBase):
                self.tensors.append(value)
            else:
                stack.extend(parts(value, copy))

    def of(self, value: Any) -> Any:
        """The copy: see `content`. An object that the call itself made is as it is now."""
        found = self._copies.get(id(value))
        if found is None:
            self.add(value)
            found = self._copies.get(id(value), (value, MISSING))
        return found[1]

    def __contains__(self, value: Any) -> bool:
        return id(value) in self._copies


def content(value: Any) -> Any:
    """One level of an object: a tuple of what it consists of, or a dictionary of its attributes; MISSING for an
    object whose content nobody knows."""
    if isinstance(value, TensorBase):
        return tensor_identity(value)
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, _CONTAINERS):
        return tuple(value)
    if isinstance(value, types.FunctionType):
        return (cells(value), value.__defaults__, dict(value.__kwdefaults__ or {}), dict(vars(value)))
    if isinstance(value, types.MethodType):
        return (value.__self__, value.__func__)
    if isinstance(value, CompiledBase):
        return (value.function,)
    if isinstance(value, functools.cached_property):
        return (value.func,)
    if isinstance(value, functools.partial):
        return (value.func, value.args, value.keywords)
    if isinstance(value, property):
        return (value.fget, value.fset, value.fdel)
    if isinstance(value, _WRAPPERS):
        return (value.__func__,)
    if isinstance(value, type):
        return MISSING if is_library_module(value.__module__) else dict(vars(value))
    if isinstance(value, types.ModuleType):
        return MISSING
    if is_library_module(type(value).__module__) and not isinstance(value, types.SimpleNamespace):
        return MISSING
    return dict(attributes(value))


def attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """(name, value) of what an instance holds: its dictionary and its slots."""
    yield from getattr(value, "__dict__", {}).items()
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__"):
                yield name, getattr(value, name, MISSING)


def parts(value: Any, copy: Any) -> Iterable[Any]:
    """What to copy next: the objects in a copy, and the classes that give an object its methods."""
    if copy is MISSING:
        return ()
    if isinstance(value, type):
        inner = [x for x in copy.values() if not isinstance(x, _SLOTS)]
        return [*inner, *value.__mro__[1:], *type(value).__mro__]
    if isinstance(value, types.FunctionType):
        return [x for x in (*copy[0], *(copy[1] or ()), *copy[2].values(), *copy[3].values()) if x is not MISSING]
    if isinstance(value, dict):
        return [*copy, *copy.values(), *_class_of(value)]
    if isinstance(copy, dict):
        return [*copy.values(), *_class_of(value)]
    return [*copy, *_class_of(value)]


def _class_of(value: Any) -> tuple[type, ...]:
    kind = type(value)
    return () if is_library_module(kind.__module__) else (kind,)


def cells(function: types.FunctionType) -> tuple[Any, ...]:
    """The contents of a function's closure; MISSING for a variable that has no value."""
    found = []
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:
            found.append(MISSING)
    return tuple(found)


def tensor_identity(x: Any) -> tuple[Any, ...]:
    """What makes reading a tensor the same program: its memory, the part it shows, how gradients flow."""
    return (x.storage, x.type, x.part, x.leaf, x.detached)
