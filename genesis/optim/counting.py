"""The count of an optimizer's steps, which Python keeps: it moves on with what the step writes, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from operator import itemgetter, setitem
from typing import Any

from genesis.frontend.at_once import Change, at_once, changes

State = dict[str, Any]
_step_of = itemgetter("step")


class NextStep:
    """The numbers of the next step of these states, which is counted when they are asked for.

    Asked by `ahead` they are counted by the changes that it returns, which are made together with the step's writes;
    `undo` takes the count back where the plan of these writes fails.

    Args:
        states: of parameters; each has made "step" steps. Those that are at one step when this is made still are
            whenever it is asked: that is a guard of a compiled call.
        numbers: the number of the first state's next step, from 1 on → the numbers.

    >>> states = [{"step": 3}, {"step": 3}]
    >>> following = NextStep(states, lambda step: (0.5**step,))
    >>> numbers, counted, _ = following.ahead({})
    >>> numbers, states[0]
    ((0.0625,), {'step': 3})
    >>> at_once(changes((), counted)); states
    [{'step': 4}, {'step': 4}]
    >>> following.undo(); states
    [{'step': 3}, {'step': 3}]
    """

    def __init__(self, states: Sequence[State], numbers: Callable[[int], tuple[float, ...]]):
        self._states, self._numbers = states, numbers
        self._alike = len(set(map(_step_of, states))) == 1
        self._reached = -1

    def __call__(self) -> tuple[float, ...]:
        numbers, counted, _ = self.ahead({})
        at_once(changes((), counted))
        return numbers

    def ahead(self, moved: dict[Any, Any]) -> tuple[tuple[float, ...], list[Change], list[Any]]:
        """The numbers, and the change that counts the step; see `session.ahead_of`."""
        states = self._states
        key = id(states[0]) if states else None
        more = moved[key] = moved.get(key, 0) + 1
        self._reached = states[0]["step"] + more if states else more
        counted = repeat(self._reached) if self._alike else [state["step"] + more for state in states]
        return self._numbers(self._reached), [(at_once, map(setitem, states, repeat("step"), counted))], []

    def undo(self) -> None:
        """One step less, unless another has been counted or taken back since."""
        states = self._states
        if states and states[0]["step"] == self._reached:
            at_once(map(setitem, states, repeat("step"), [state["step"] - 1 for state in states]))
