"""Optimizers whose update is one op of `ir/ops/update_rules.py`, over all parameters that are at the same step.

Hyperparameters and what follows from the number of steps are inputs of the plan, as of the other optimizers.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import repeat
from typing import Any, ClassVar

from genesis.frontend.at_once import Change, at_once, changes
from genesis.frontend.tensor import Tensor
from genesis.ir.node import Op
from genesis.ir.types import float32
from genesis.ops.creation import zeros_like
from genesis.optim.groups import Group
from genesis.optim.optimizer import Optimizer

State = dict[str, Any]


class ComposedOptimizer(Optimizer):
    """The base of these optimizers. A subclass names its op, its state and its numbers."""

    op: ClassVar[Op]

    def tensors(self, group: Group) -> tuple[str, ...]:
        """The names of the state that is a tensor like the parameter, 0 at first, as the op's operands stand."""
        raise NotImplementedError

    def attributes(self, group: Group) -> tuple[Any, ...]:
        """What the group's options make of the op."""
        return ()

    def numbers(self, group: Group, counted: Mapping[str, Any]) -> tuple[float, ...]:
        """The op's numbers behind weight decay, at the step that `advance` counted."""
        raise NotImplementedError

    def numbers_between(self, group: Group, before: Mapping[str, Any], counted: Mapping[str, Any]) -> tuple[float, ...]:
        """`numbers`, where they depend on what was counted before the step."""
        return self.numbers(group, counted)

    def advance(self, group: Group, state: State) -> dict[str, Any]:
        """The part of a state that Python counts, one step later."""
        return {"step": state["step"] + 1}

    def initial_state(self, parameter: Tensor, group: Group) -> State:
        """No steps, and zeros."""
        dtype = parameter.dtype if parameter.dtype.itemsize >= 4 else float32
        return {"step": 0, **{name: zeros_like(parameter, dtype=dtype)
                              for name in self.tensors(group)}}

    def kind(self, parameter: Tensor) -> Hashable:
        """What the numbers depend on: the number of steps that a parameter has made."""
        state = self._states[parameter]
        return tuple([state[name] for name in self.counted])

    def update(self, group: Group, parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
        """The rule, as one op."""
        states = [self._states[p] for p in parameters]
        held = [state[name] for name in self.tensors(group) for state in states]
        attributes = len(parameters), bool(group.get("decoupled_weight_decay")), *self.attributes(group)
        self.record(self.op, attributes, _NextStep(self, group, states), [*parameters, *gradients, *held],
                    [*parameters, *held])


class _NextStep:
    """The numbers of the next step, which is counted when they are asked for.

    Asked by `ahead` they are counted together with the step's writes; `undo` takes the count back where these fail.
    First weight decay: what the gradient gets of the parameter, or, decoupled, what is kept of the parameter.
    """

    def __init__(self, optimizer: ComposedOptimizer, group: Group, states: Sequence[State]):
        self._optimizer, self._group, self._states = optimizer, group, states
        self._before: dict[str, Any] = {}
        self._after: dict[str, Any] = {}

    def __call__(self) -> tuple[float, ...]:
        numbers, counted, _ = self.ahead({})
        at_once(changes((), counted))
        return numbers

    def ahead(self, moved: dict[Any, Any]) -> tuple[tuple[float, ...], list[Change], list[Any]]:
        """The numbers, and the change that counts the step; see `session.ahead_of`."""
        group, key = self._group, id(self._states[0])
        before = moved.get(key, self._states[0])
        self._after = after = moved[key] = self._optimizer.advance(group, before)
        self._before = {name: before[name] for name in after}
        decay = float(group.get("weight_decay", 0.0))
        kept = 1 - float(group["lr"]) * decay if group.get("decoupled_weight_decay") else decay
        return ((kept, *map(float, self._optimizer.numbers_between(group, before, after))),
                [(at_once, map(dict.update, self._states, repeat(after)))], [])

    def undo(self) -> None:
        """One step less, unless another has been counted or taken back since."""
        if self._after.items() <= self._states[0].items():
            at_once(map(dict.update, self._states, repeat(self._before)))
