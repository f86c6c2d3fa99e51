"""A step: the updates of all parameters are recorded and written at once, and the iteration ends."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

from genesis.frontend import session
from genesis.frontend.engine_protocol import engine
from genesis.frontend.grad_mode import enable_grad, no_grad
from genesis.frontend.pending import next_number
from genesis.frontend.tensor import Tensor, gradients_of
from genesis.ir.node import next_node_number
from genesis.ir.ops import leaves
from genesis.optim import hooks
from genesis.optim.groups import Group
from genesis.optim.writes import layers_of, repeated

if TYPE_CHECKING:
    from genesis.optim.optimizer import Optimizer


def stepped(optimizer: Optimizer, closure: Callable[[], Any] | None = None) -> Any:
    """See `Optimizer.step`; hooks are called around this."""
    loss = None
    if closure is not None:
        with enable_grad():
            loss = closure()
    states = optimizer._states
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter._grad is not None and not states.get(parameter):
                _begin(optimizer, parameter, group)
    if type(optimizer).update.__module__.startswith("genesis.optim."):
        _update(optimizer)
        return loss
    counts = [(state, name, state[name]) for state in states.values() for name in optimizer.counted
              if type(state.get(name)) in (int, float)]
    try:
        _update(optimizer)
    except BaseException:  # tensors keep their last content by themselves, what a user's update counts does not
        for state, name, count in counts:
            state[name] = count
        raise
    return loss


def _begin(optimizer: Optimizer, parameter: Tensor, group: Group) -> None:
    """Give a parameter the state of one that has not been stepped: what it had was taken away, or the group's options
    ask for more than when it was added."""
    initial = optimizer.initial_state(parameter, group)
    if not initial:  # as of plain gradient descent
        return
    session.states_shown()  # a compiled step holds the states that it knew
    state = optimizer._states[parameter]
    ahead = optimizer.make_ahead(parameter, state, "step" in initial)  # first: a signal may come between any two lines
    if ahead.keys() == initial.keys() and all(map(_is_as, ahead.values(), initial.values())):
        state.update(ahead)  # in memory already: a compiled step reads nothing for it
        return
    state.update(initial)
    held = [x for x in state.values() if isinstance(x, Tensor)]
    if held:
        session.begins("an optimizer's state begins in it")
        engine.materialize(held)


def _is_as(ahead: Any, initial: Any) -> bool:
    """Whether what was made ahead is what is made now: an equal number, or zeros of the same kind. Other tensors follow
    from options, which may be others by now."""
    if not isinstance(ahead, Tensor):
        return bool(ahead == initial)
    return isinstance(initial, Tensor) and ahead.spec == initial.spec and initial.storage.node.op is leaves.const and (
        initial.storage.node.attrs[0] == 0)


def _update(optimizer: Optimizer) -> None:
    """Record the updates of all parameters, write all of them at once, and end the step."""
    writes = optimizer.new_writes()
    try:
        with no_grad():
            optimizer._writes = writes
            for group in optimizer.param_groups:
                for layer, parameters in _alike(optimizer, group):
                    if layer:  # they show what was written before
                        writes.commit(False, optimizer._states.values())
                    gradients = gradients_of(parameters)
                    optimizer.update(group, parameters,
                                     [-g for g in gradients] if group.get("maximize") else gradients)
            writes.commit()
    except BaseException:
        writes.take_back()
        raise
    finally:
        optimizer._writes = None
    engine.end_step(writes.wrote)


def _alike(optimizer: Optimizer, group: Group) -> Sequence[tuple[int, list[Tensor]]]:
    """The group's parameters with a gradient, those together that one op can update, with their layers."""
    buckets: dict[tuple[int, Hashable], list[Tensor]] = {}
    listed = group["params"]
    found = [parameter for parameter, gradient in zip(listed, gradients_of(listed), strict=True)
             if gradient is not None]
    memories = {None if p.storage.exported else p.storage for p in found}
    layers, alone = [0] * len(found), frozenset[int]()
    if len(memories) < len(found):
        layers, alone = layers_of(found), repeated(found)
    for parameter, layer in zip(found, layers, strict=True):
        kind = parameter.spec
        own = id(parameter) if alone and id(parameter) in alone else None
        buckets.setdefault((layer, (kind.dtype, kind.device, optimizer.kind(parameter), own)), []).append(parameter)
    return [(layer, buckets[layer, kind]) for layer, kind in sorted(buckets, key=_layer_of)]


def _layer_of(key: tuple[int, Hashable]) -> int:
    return key[0]


def ending(step: Callable[..., Any]) -> Callable[..., Any]:
    """A subclass's own `step`, after which what it wrote is computed: steps do not pile up until somebody reads."""
    if getattr(step, "ends_the_step", False):
        return step

    @functools.wraps(step)
    def ending(self: Optimizer, *args: Any, **options: Any) -> Any:
        recorded, noted = next_node_number(), next_number()
        if hooks.around(self):
            result = hooks.around_step(self, step, args, options)
        else:
            result = step(self, *args, **options)
        engine.end_step(lambda storage: storage.queued > noted or storage.node_in_passing.number > recorded)
        return result
    ending.ends_the_step = True  # type: ignore[attr-defined]
    return ending
