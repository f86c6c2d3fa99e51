"""The signature of a call: what must be equal, of its arguments and of the modes around it, for a replay."""

from __future__ import annotations

import enum
from typing import Any, Final

from genesis.autograd import anomaly
from genesis.config import IN_KEY, config
from genesis.frontend import patches
from genesis.frontend.autocast_policy import state as autocast_state
from genesis.frontend.default_dtypes import default_dtype
from genesis.frontend.draw_parts import parts
from genesis.frontend.draw_parts import state as draw_state
from genesis.frontend.grad_mode import mode
from genesis.frontend.patches import Held
from genesis.frontend.recording import FREED, TensorBase
from genesis.frontend.views import Layout
from genesis.nn.modules.tree import Tree
from genesis.ops import creation
from genesis.tracing.records import is_of_attributes, record_fields
from genesis.tracing.snapshot import NotReplayable, own_dictionary, set_by_the_user
from genesis.tracing.tracer import is_library_module

AROUND = ("grad mode", "inference mode", "default device", "default dtype", "anomaly mode", "config",
          "replaced functions")
"""What a key begins with: the modes and settings around the call."""


def named_surroundings() -> dict[str, Any]:
    """What is around a call now, and is in its key, by the names that a program knows: modes, settings, and functions
    of Genesis' own that it has replaced."""
    dtypes = autocast_state.dtypes or {}
    return {
        "inference mode": mode.inference, "grad mode": mode.enabled, "anomaly mode": anomaly.enabled,
        "default device": creation._default_device, "default dtype": default_dtype("float"),
        "autocast": tuple([f"{dtype.name} on {device}" for device, dtype in sorted(dtypes.items())]),
        "parts that are drawn": parts() if draw_state.chosen[0] else None,
        **{f"config.{name}": value for name, value in zip(IN_KEY, config.key(), strict=True)},
        **{f"{owner.__name__}.{name}": held.value for (owner, name), held in patches.replaced},
    }


def signature(args: tuple, kwargs: dict[str, Any]) -> tuple[Any, list[Any]]:
    """(key, tensors): a key of the arguments' types and values, and the tensors among them, each once.

    Raises NotReplayable for an argument that cannot be compared.
    """
    tensors: list[Any] = []
    at: dict[int, int] = {}
    key: list[Any] = [mode.enabled, mode.inference, creation._default_device, default_dtype("float"), anomaly.enabled,
                      config.key(), patches.replaced]
    if autocast_state.dtypes is not None:
        key.append(tuple(sorted((name, dtype.name) for name, dtype in autocast_state.dtypes.items())))
    if draw_state.chosen[0]:
        key.append(parts())
    for value in args:
        describe(value, key, tensors, at)
    for name, value in kwargs.items():
        key.append(name)
        describe(value, key, tensors, at)
    return tuple(key), tensors


def describe(value: Any, key: list[Any], tensors: list[Any], at: dict[int, int]) -> None:
    """Add the description of one value to the key, and the tensors in it that are not there yet.

    Args:
        at: address of a storage → which of the tensors it is of: a call may be given thousands.

    Raises NotReplayable for a value that cannot be compared.
    """
    if isinstance(value, TensorBase):
        index = at.setdefault(id(value.storage), len(tensors))
        if index < len(tensors):
            if tensors[index] is not value:
                raise NotReplayable("two arguments share memory")
            key.append(("same", index))
            return
        if value.detached is not None and value.detached.history is not None:
            raise NotReplayable("an argument was detached, and written to with what requires grad: pass its clone()")
        part = value.part
        if part is not None and (part.__class__ is not Layout or value.leaf is not None):
            raise NotReplayable("an argument is a view of other memory: pass its clone()")
        tensors.append(value)
        key.append(value.spec if part is None else (value.spec, part.strides, part.steps))
        key.append((value.leaf is None, value.leaf == FREED, value.detached is None,
                    value.storage.needs_grad, value.__class__, value.is_view, value.storage.inference))
        if value.__dict__:
            for name, item in set_by_the_user(value).items():
                key.append(name)
                describe(item, key, tensors, at)
    elif value is None or isinstance(value, (bool, int, float, str, bytes)):
        key.append((type(value), repr(value) if isinstance(value, float) else value))
        if value.__class__ not in _PLAIN:
            _describe_class(value, key, tensors, at)
    elif isinstance(value, (list, tuple)):
        key.append((type(value), len(value)))
        for item in value:
            describe(item, key, tensors, at)
        if value.__class__ not in _PLAIN:
            _describe_class(value, key, tensors, at)
    elif isinstance(value, dict):
        key.append((type(value), len(value)))
        for name, item in value.items():
            describe(name, key, tensors, at)
            describe(item, key, tensors, at)
        if value.__class__ not in _PLAIN:
            _describe_class(value, key, tensors, at)
    elif callable(value) or isinstance(value, (Tree, enum.Enum)) or type(value).__module__.startswith("genesis."):
        key.append(Held(value))
    elif (fields := record_fields(value)) is not None:
        key.append(Held(type(value)))
        for name, item in fields.items():
            key.append(name)
            describe(item, key, tensors, at)
    elif is_of_attributes(value):
        key.append(Held(value))
    else:
        raise NotReplayable(f"an argument is a {type(value).__name__}, which cannot be compared")


def _describe_class(value: Any, key: list[Any], tensors: list[Any], at: dict[int, int]) -> None:
    """Add what a number, a text or a container of a class of the user's is besides: its class, and its attributes."""
    kind = type(value)
    if isinstance(value, enum.Enum) or kind.__module__.startswith("genesis.") or is_library_module(kind.__module__):
        return
    key.append(Held(kind))
    for name, item in (own_dictionary(value) or {}).items():
        key.append(name)
        describe(item, key, tensors, at)


_PLAIN: Final = frozenset({bool, int, float, str, bytes, list, tuple, dict, type(None)})


__all__ = ["AROUND", "describe", "named_surroundings", "signature"]
