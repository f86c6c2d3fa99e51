"""Hooks: functions of the user's that run around a module's forward, of one module or of all."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

_numbers = itertools.count()

everywhere: dict[int, tuple[bool, Callable[..., Any]]] = {}
"""Hooks of all modules: whether one runs before forward, and the hook."""


class RemovableHandle:
    """Removes a hook again: call `remove()`, or use it as a context."""

    __slots__ = ("_changed", "_hooks", "_number")

    def __init__(self, hooks: dict[int, Callable[..., Any]], hook: Callable[..., Any], changed: Callable[[], None],
                 prepend: bool = False):
        self._hooks, self._number, self._changed = hooks, next(_numbers), changed
        later = dict(hooks) if prepend else {}
        for number in later:
            del hooks[number]
        hooks[self._number] = hook
        hooks.update(later)
        changed()

    @property
    def id(self) -> int:
        """The hook's number, which no other has."""
        return self._number

    def remove(self) -> None:
        """Take the hook out; a second time does nothing."""
        self._hooks.pop(self._number, None)
        self._changed()

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def with_keywords(hook: Callable[..., Any]) -> Callable[..., Any]:
    """A hook that gets forward's keywords, too."""
    def taking(*arguments: Any) -> Any:
        return hook(*arguments)
    taking.keywords = True  # type: ignore[attr-defined]
    return taking


def call(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """forward, with the pre-hooks before it and the hooks after it; those of all modules come first.

    A pre-hook returns the new positional arguments (one that is no tuple is wrapped) or None, one with keywords a pair
    of both; a hook returns the new result or None.
    """
    common = list(everywhere.values())
    for before in [*(hook for first, hook in common if first), *module._forward_pre_hooks.values()]:
        if hasattr(before, "keywords"):
            changed = before(module, args, kwargs)
            if changed is not None:
                args, kwargs = changed
            continue
        changed = before(module, args)
        if changed is not None:
            args = changed if isinstance(changed, tuple) else (changed,)
    result = module.forward(*args, **kwargs)
    for after in [*(hook for first, hook in common if not first), *module._forward_hooks.values()]:
        changed = after(module, args, kwargs, result) if hasattr(after, "keywords") else after(module, args, result)
        if changed is not None:
            result = changed
    return result
