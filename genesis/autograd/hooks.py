"""Hooks on tensors: functions that see gradients pass."""

from __future__ import annotations

import weakref
from typing import Any

from genesis import session
from genesis.autograd.borders import Hooked, RemovableHandle, stand_before
from genesis.gradmode import enable_grad
from genesis.ir.errors import failure
from genesis.recording import read, wrap


def register_hook(tensor: Any, hook: Any) -> RemovableHandle:
    """See `Tensor.register_hook`."""
    if not tensor.requires_grad:
        raise failure("register_hook", "cannot register a hook on a tensor that doesn't require gradient",
                      [("tensor", tensor)])
    _refuse()
    if tensor.is_leaf:
        return RemovableHandle(tensor.__dict__.setdefault("_hooks", {}), hook)
    return RemovableHandle(_border(tensor).hooks, hook)


def register_post_accumulate_grad_hook(tensor: Any, hook: Any) -> RemovableHandle:
    """See `Tensor.register_post_accumulate_grad_hook`."""
    if not tensor.requires_grad or not tensor.is_leaf:
        raise failure("register_post_accumulate_grad_hook",
                      "post accumulate grad hooks cannot be registered on non-leaf tensors", [("tensor", tensor)])
    _refuse()
    return RemovableHandle(tensor.__dict__.setdefault("_after_hooks", {}), hook)


def retain_grad(tensor: Any) -> None:
    """See `Tensor.retain_grad`."""
    if not tensor.requires_grad:
        raise failure("retain_grad", "can't retain_grad on Tensor that has requires_grad=False", [("tensor", tensor)])
    if tensor.is_leaf or tensor.retains_grad:
        return
    _refuse()
    place = weakref.ref(tensor)

    def keep(gradient: Any) -> None:
        held = place()
        if held is not None:
            held._grad = gradient if held._grad is None else held._grad + gradient
    tensor.__dict__["_retains"] = RemovableHandle(_border(tensor).keepers, keep)


def _border(tensor: Any) -> Hooked:
    """The border in front of the tensor's content as it is now."""
    storage = tensor.storage
    known = tensor.__dict__.get("_border")
    if known is not None and known[1]() is storage.node:
        return known[0]
    with enable_grad():
        border = Hooked(wrap(read(tensor)))
    stand_before(tensor, border)
    tensor.__dict__["_border"] = (border, weakref.ref(tensor.storage.node))
    return border


def _refuse() -> None:
    if session.current is not None and (running := session.active()) is not None:
        running.refuse("it registers a hook")
