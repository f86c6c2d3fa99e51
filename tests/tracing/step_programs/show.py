"""What a program leaves, as texts to compare."""

from __future__ import annotations

import collections
import types
from typing import Any

import genesis


def bits(value: Any) -> Any:
    """Nested lists with every bit of the tensors in a value; two that are the same object show as such."""
    return _bits(value, _Seen(), 0)


class _Seen:
    """Objects by number, in the order in which they are met; none of them goes meanwhile."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[int, Any]] = {}

    def __call__(self, value: Any) -> tuple[int, bool]:
        """(the object's number, whether it was met before)."""
        known = id(value) in self._found
        return self._found.setdefault(id(value), (len(self._found), value))[0], known


def _bits(value: Any, seen: _Seen, depth: int) -> Any:
    if isinstance(value, genesis.Tensor):
        number, known = seen(value)
        if known:
            return ["the same", number]
        flags = f"{'requires grad ' if value.requires_grad else ''}{'leaf ' if value.is_leaf else ''}"
        storage, _ = seen(value.storage)
        return [f"{value.dtype} {list(value.shape)} {flags}of {storage}", value.detach().numpy().tobytes().hex()[:4096]]
    if depth > 8:
        return "deep"
    if isinstance(value, (dict, list, collections.deque)) or (
            hasattr(value, "__dict__") and not isinstance(value, (type, types.FunctionType))):
        number, known = seen(value)
        if known:
            return ["the same", number]
    kind = type(value).__name__
    if isinstance(value, genesis.nn.Module):
        own = {k: v for k, v in vars(value).items() if k in ("scale", "state", "calls", "deep", "training")}
        return [kind, _bits(own, seen, depth + 1), *([name, _bits(x, seen, depth + 1)] for name, x in (
            *value.named_parameters(), *value.named_buffers()))]
    if isinstance(value, (genesis.optim.Optimizer, genesis.optim.lr_scheduler.LRScheduler)):
        return [kind, _bits(value.state_dict(), seen, depth + 1)]
    if isinstance(value, dict):
        return [kind, *([str(name), _bits(x, seen, depth + 1)] for name, x in value.items())]
    if isinstance(value, (list, tuple, collections.deque)):
        return [kind, *[_bits(x, seen, depth + 1) for x in value]]
    if isinstance(value, (types.FunctionType, types.MethodType, type)):
        return kind
    if hasattr(value, "__dict__"):
        return [kind, _bits(dict(vars(value)), seen, depth + 1)]
    return [kind, repr(value)]
