"""Hooks: functions of the user's around a module's forward and backward, of one module or of all.

`hooked_call.py` calls a module that has some.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Literal, TypeVar

_numbers = itertools.count()

Hook = TypeVar("Hook")
"""A function, or a function and when it is called."""

HookKind = Literal["forward_pre", "forward", "backward_pre", "backward"]
"""When a hook runs; a module has those of a kind in `_forward_pre_hooks` and so on, torch's names."""

everywhere: dict[int, tuple[HookKind, Callable[..., Any]]] = {}
"""Hooks of all modules."""


def of(module: Any, kind: HookKind) -> list[Callable[..., Any]]:
    """The hooks of a kind that run for a module: those of all modules come first."""
    return [*(hook for when, hook in everywhere.values() if when == kind), *getattr(module, f"_{kind}_hooks").values()]


class RemovableHandle:
    """Removes a hook again: call `remove()`, or use it as a context."""

    __slots__ = ("_changed", "_hooks", "_number")

    def __init__(self, hooks: dict[int, Hook], hook: Hook, changed: Callable[[], None], prepend: bool = False):
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


def marked(hook: Callable[..., Any], with_kwargs: bool, always: bool = False) -> Callable[..., Any]:
    """The hook, with the marks `keywords` (it gets forward's keywords, too) and `always` (also behind an error)."""
    if not with_kwargs and not always:
        return hook

    def taking(*arguments: Any) -> Any:
        return hook(*arguments)
    taking.keywords, taking.always = with_kwargs, always  # type: ignore[attr-defined]
    return taking
