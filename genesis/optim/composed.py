"""Optimizers whose rule is written with tensors: a few elementwise ops a parameter, which the compiler fuses.

Hyperparameters and what follows from the number of steps are inputs of the plan, as of the other optimizers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from genesis.frontend.recording import assign_all, read
from genesis.frontend.session import live_numbers
from genesis.frontend.tensor import Tensor
from genesis.ir.node import Node
from genesis.ir.types import float32
from genesis.ops.common import to_dtype
from genesis.ops.creation import zeros_like
from genesis.optim.optimizer import Group, Optimizer

State = dict[str, Any]


class ComposedOptimizer(Optimizer):
    """The base of these optimizers. A subclass names its state, its numbers and its rule."""

    def tensors(self, group: Group) -> tuple[str, ...]:
        """The names of the state that is a tensor like the parameter, 0 at first."""
        raise NotImplementedError

    def numbers(self, group: Group, step: int) -> tuple[float, ...]:
        """The numbers that the rule needs at this step, counted from 1."""
        raise NotImplementedError

    def rule(self, group: Group, p: Tensor, g: Tensor, state: State, *numbers: Node) -> dict[str, Tensor]:
        """The new parameter as "p" and the new state by name. The numbers come behind tensors: `g * lr`."""
        raise NotImplementedError

    def initial_state(self, parameter: Tensor, group: Group) -> State:
        """No steps, and zeros."""
        dtype = parameter.dtype if parameter.dtype.itemsize >= 4 else float32
        return {"step": 0, **{name: zeros_like(parameter, dtype=dtype)
                              for name in self.tensors(group)}}

    def kind(self, parameter: Tensor) -> int:
        """The number of steps that a parameter has made."""
        steps: int = self.state[parameter]["step"]
        return steps

    def update(self, group: Group, parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
        """The rule, for each parameter."""
        states = [self.state[p] for p in parameters]
        decay, kept, *numbers = live_numbers(_NextStep(self, group, states))
        for p, g, state in zip(parameters, gradients, states, strict=True):
            upcast = to_dtype(p, float32) if p.dtype.itemsize < 4 else p
            g = to_dtype(g, upcast.dtype)
            if group.get("decoupled_weight_decay"):
                upcast = upcast * kept
            found = self.rule(group, upcast, g + upcast * decay, state, *numbers)
            targets = [p if name == "p" else state[name] for name in found]
            assign_all(targets, [read(to_dtype(x, t.dtype)) for x, t in zip(found.values(), targets, strict=True)])


class _NextStep:
    """The numbers of the next step, which is counted when they are asked for; `undo` takes it back.

    First weight decay: what the gradient gets of the parameter, and what is kept of the parameter.
    """

    def __init__(self, optimizer: ComposedOptimizer, group: Group, states: Sequence[State]):
        self._optimizer, self._group, self._states = optimizer, group, states

    def __call__(self) -> tuple[float, ...]:
        step = self._states[0]["step"] + 1
        self._count(step)
        group, found = self._group, self._optimizer.numbers(self._group, step)
        decay = float(group.get("weight_decay", 0.0))
        if group.get("decoupled_weight_decay"):
            return (0.0, 1 - group["lr"] * decay, *map(float, found))
        return (decay, 1.0, *map(float, found))

    def undo(self) -> None:
        """One step less."""
        self._count(self._states[0]["step"] - 1)

    def _count(self, step: int) -> None:
        for state in self._states:
            state["step"] = step
