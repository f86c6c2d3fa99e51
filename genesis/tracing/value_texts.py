"""Values in a few words, for a reader of an explanation. Nothing of the program's runs for them: no `__repr__`."""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import islice
from reprlib import Repr
from typing import Any, Final

from genesis.frontend.recording import FREED, TensorBase
from genesis.frontend.tensor import Tensor
from genesis.ir.source import Source
from genesis.tracing.plain_values import SIMPLE
from genesis.tracing.records import record_fields
from genesis.tracing.snapshot import MISSING, set_by_the_user

_short = Repr()
_short.maxstring = _short.maxother = 60
_ITEMS: Final = 4
"""Elements of a container that a text shows."""
_DEPTH: Final = 4
"""Containers inside of each other that a text shows."""


class Words(str):
    """What a reader is told in a value's place."""

    __repr__ = str.__str__


def value_text(value: Any, depth: int = _DEPTH) -> str:
    """A value in a few words: of a tensor its type, and how gradients flow; of a function where it is written.

    >>> value_text([1, "a", (None,)]), value_text(MISSING)
    ("[1, 'a', (None,)]", 'missing')
    """
    if isinstance(value, TensorBase):
        return tensor_text(value)
    if value is MISSING:
        return "missing"
    if isinstance(value, SIMPLE):
        return str(value) if type(value) is Words else _short.repr(value)
    if isinstance(value, types.FunctionType):
        return f"function {_function(value.__code__)}"
    if isinstance(value, types.CodeType):
        return f"code {_function(value)}"
    if isinstance(value, types.BuiltinFunctionType):
        return f"function {value.__name__}"
    if isinstance(value, type):
        return f"class {value.__qualname__.replace('<locals>.', '')}"
    if not depth:
        return "…"
    kind = type(value)
    if kind is list or kind is deque:
        items = _items(value, depth)
        return f"[{items}]" if kind is list else f"deque([{items}])"
    if kind is tuple:
        return f"({_items(value, depth)}{',' * (len(value) == 1)})"
    if kind is set or kind is frozenset:
        return f"{{{_items(value, depth)}}}" if value else "set()"
    if kind is dict:
        pairs = [f"{_short.repr(k) if isinstance(k, SIMPLE) else value_text(k, depth - 1)}: {value_text(x, depth - 1)}"
                 for k, x in islice(value.items(), _ITEMS)]
        return "{" + ", ".join(pairs + ["…"] * (len(value) > _ITEMS)) + "}"
    fields = _fields(value)
    return f"a {kind.__name__}" if fields is None else f"{kind.__name__}({_named(fields, depth)})"


def tensor_text(x: Any) -> str:
    """A tensor's class and type, strides where elements do not lie in their order, how gradients flow, and what
    attributes the program has set."""
    flows = "a leaf that requires grad" if x.leaf not in (None, FREED) else (
        "of a step" if x.leaf == FREED else "detached" if x.detached is not None else
        "with a gradient" if x.storage.needs_grad else "")
    kind = "tensor" if type(x) is Tensor else type(x).__name__
    lies = "" if x.part is None or Tensor.is_contiguous(x) else f" of strides {Tensor.stride(x)}"
    own = _named(set_by_the_user(x), 2)
    return f"{kind} {x.spec}{lies}{flows and f' ({flows})'}{own and f' with {own}'}"


def two_texts(before: Any, now: Any) -> tuple[str, str]:
    """The texts of two values that differ: where both read alike, the second is another one."""
    first, second = value_text(before), value_text(now)
    return first, second if first != second else f"another {second.removeprefix('a ')}"


def _function(code: types.CodeType) -> str:
    source = Source(code, 0)
    place, _, name = str(source).partition(" ")
    return f"{name or code.co_name} at {place}"


def _items(values: Iterable[Any], depth: int) -> str:
    found = [value_text(x, depth - 1) for x in islice(values, _ITEMS + 1)]
    return ", ".join([*found[:_ITEMS], *["…"] * (len(found) > _ITEMS)])


def _fields(value: Any) -> Mapping[str, Any] | None:
    """What a record, or a named tuple, holds; None for another object."""
    if not isinstance(value, tuple):
        return record_fields(value)
    names = next((vars(kind)["_fields"] for kind in type(value).__mro__ if "_fields" in vars(kind)), None)
    if type(names) is not tuple or len(names) != tuple.__len__(value):
        return None
    return dict(zip(names, tuple.__iter__(value), strict=True))


def _named(fields: Mapping[str, Any], depth: int) -> str:
    found = [f"{name}={value_text(x, depth - 1)}" for name, x in islice(fields.items(), _ITEMS)]
    return ", ".join([*found, *["…"] * (len(fields) > _ITEMS)])
