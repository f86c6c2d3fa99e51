"""Hooks: functions of the user's that run around a module's forward."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

_numbers = itertools.count()


class RemovableHandle:
    """Removes a hook again: call `remove()`, or use it as a context."""

    __slots__ = ("_changed", "_hooks", "_number")

    def __init__(self, hooks: dict[int, Callable[..., Any]], hook: Callable[..., Any], changed: Callable[[], None]):
        self._hooks, self._number, self._changed = hooks, next(_numbers), changed
        hooks[self._number] = hook
        changed()

    def remove(self) -> None:
        """Take the hook out; a second time does nothing."""
        self._hooks.pop(self._number, None)
        self._changed()

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def call(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """forward, with the pre-hooks before it and the hooks after it.

    A pre-hook returns the new positional arguments (one that is no tuple is wrapped) or None, a
    hook the new result or None.
    """
    for before in list(module._forward_pre_hooks.values()):
        changed = before(module, args)
        if changed is not None:
            args = changed if isinstance(changed, tuple) else (changed,)
    result = module.forward(*args, **kwargs)
    for after in list(module._forward_hooks.values()):
        changed = after(module, args, result)
        if changed is not None:
            result = changed
    return result
