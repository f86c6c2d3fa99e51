"""Hooks on the leaf tensors that a captured call differentiated by: a replay calls none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from genesis.frontend.session import Session
from genesis.frontend.state import state


class LeafHooks:
    """Whether a captured call's gradients still arrive at no function of Python.

    A capture whose gradients met a hook is refused, so there were none when it ended. The leaf tensors are looked at
    again only where any tensor got a hook since.
    """

    __slots__ = ("_given", "_hooked", "_leaves")

    def __init__(self, effects: Session, tensors: Sequence[Any]):
        places = {id(x): i for i, x in enumerate(tensors)}
        self._given = sorted({places[id(x)] for x in effects.differentiated if id(x) in places})
        self._leaves = list({id(x): x for x in effects.differentiated if id(x) not in places}.values())
        self._hooked = state.hooked

    def same_as(self, other: LeafHooks) -> bool:
        """Whether both look at the same leaf tensors."""
        return self._given == other._given and {*map(id, self._leaves)} == {*map(id, other._leaves)}

    def absent(self, tensors: Sequence[Any]) -> bool:
        """True if no leaf tensor of the call with these tensors as arguments has a hook."""
        if self._given and any(_has_hooks(tensors[i]) for i in self._given):
            return False
        hooked = state.hooked
        if self._hooked != hooked:
            if any(map(_has_hooks, self._leaves)):
                return False
            self._hooked = hooked
        return True


def _has_hooks(leaf: Any) -> bool:
    return bool(leaf._hooks or leaf._after_hooks)
