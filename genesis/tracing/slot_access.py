"""How the place of a slot is read and written: an attribute, an item of a list or dictionary, or a closure's variable.

Writes are calls into C where they can be, so that no exception comes between those of one replay
(`frontend/at_once.py`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from inspect import getattr_static
from operator import getitem, setitem
from types import CellType, MemberDescriptorType, MethodDescriptorType, WrapperDescriptorType
from typing import Any

from genesis.frontend.at_once import Change
from genesis.nn.modules.tree import Registry
from genesis.tracing.differences import APPENDED, Difference, contents_of
from genesis.tracing.snapshot import MISSING


def now_in(owner: Any, key: Any) -> Any:
    """What is in the place now; `MISSING` if nothing is."""
    if isinstance(owner, dict):
        return owner.get(key, MISSING)
    if isinstance(owner, list):
        return getitem(owner, key) if key < len(owner) else MISSING
    return contents_of(owner) if isinstance(owner, CellType) else getattr(owner, key, MISSING)


def putting_back(x: Difference) -> Change:
    """What makes a place as it was before."""
    if x.key is APPENDED:
        return (deque.__init__, x.owner, x.before, x.owner.maxlen) if isinstance(x.owner, deque) else (
            x.owner.__delitem__, slice(len(x.owner) - len(x.now), None))
    return putting(replace(x, now=x.before), x.before)


def cut_off(items: list[Any] | deque[Any]) -> Change:
    """What takes away all that is appended to the list from now on. A deque that is full has let go of others then."""
    if isinstance(items, deque):
        return deque.__init__, items, tuple(items), items.maxlen
    return items.__delitem__, slice(len(items), None)


def putting(x: Difference, value: Any) -> Change:
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


def is_put_by_c(x: Difference) -> bool:
    """Whether C puts the value into the place, so that nothing comes in between."""
    kind: type = type(x.owner)
    if isinstance(x.owner, dict):
        own = _of_dict(kind)
        method = own.pop if x.now is MISSING else own.__setitem__
        return isinstance(method, WrapperDescriptorType | MethodDescriptorType)
    if isinstance(x.owner, (list, deque)):
        return kind in (list, deque)
    return isinstance(x.owner, CellType) or is_plain_class(x.owner) or (
        kind.__setattr__ is object.__setattr__ and isinstance(
            getattr_static(kind, str(x.key), None), MemberDescriptorType))


def is_plain_class(owner: Any) -> bool:
    """Whether it is a class whose attributes C sets."""
    return isinstance(owner, type) and type(owner).__setattr__ is type.__setattr__


def looking(x: Difference) -> Change:
    """What looks at the place."""
    if isinstance(x.owner, (dict, list)):
        return getitem, x.owner, x.key
    return getattr, x.owner, "cell_contents" if isinstance(x.owner, CellType) else x.key
