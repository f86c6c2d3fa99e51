"""Replays: a captured call done again as a node (`replay_call`), or as the plan of a whole step (`replay_step`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from genesis.frontend.grad_mode import mode
from genesis.frontend.session import Session, own_storages
from genesis.frontend.state import state
from genesis.ir.node import Node
from genesis.ir.ops import leaves
from genesis.tracing.replay_base import Replay
from genesis.tracing.replay_call import CallReplay
from genesis.tracing.replay_step import StepReplay
from genesis.tracing.results import Result
from genesis.tracing.slots import Slots
from genesis.tracing.snapshot import Entered, NotReplayable, Unsettled


def make_replay(effects: Session, shape: Result, tensors: Sequence[Any], entered: Entered,
                slots: Slots | None = None) -> Replay:
    """The replay of a call that was just captured. When it ended a step, the step runs here.

    Args:
        effects: the effects of the call.
        shape: the structure of its result.
        tensors: its arguments that are tensors.
        entered: the state before it.
        slots: the places that it writes to.
    """
    arguments, gradients = {id(x) for x in tensors}, [] if slots is None else slots.gradients
    if not arguments.isdisjoint(effects.grads) or not arguments.isdisjoint(effects.entry_grads):
        raise NotReplayable("it looks at or sets the gradient of an argument")
    if any(x is not None and not x.storage.settled and x.storage not in entered.computed
           for _, x in effects.entry_grads.values()):
        raise Unsettled("it reads a gradient that was not computed yet")
    found = [x for _, x in (*effects.grads.values(), *effects.entry_grads.values()) if x is not None]
    allowed = {x.storage for x in (*tensors, *entered.world.tensors, *found)}.union(own_storages)
    for x, _ in gradients:  # those are arguments
        del effects.entry_grads[id(x)]
    given_gradients = {id(x) for x, _ in gradients}
    for x, before in effects.grads.values():  # it may set one to what is there anyway: to a tensor that stays
        if before is not None and x._grad is before and id(x) not in given_gradients:
            effects.entry_grads.setdefault(id(x), (x, before))
    given = {x.storage for x in tensors}
    if any(s.exported for s in allowed if s not in given):
        raise Unsettled("it reads memory that a numpy array or another process shares")
    if any(s.cell is not None and s not in allowed for s in effects.writes):
        raise NotReplayable("it writes to a tensor that it made from values")
    with computing_anew(_contents_made(effects, shape), entered.contents):
        if effects.ended or effects.grads or gradients or _advances_state(effects, shape):
            return StepReplay(effects, shape, tensors, allowed, slots)
        known = {x.leaf for x in (*tensors, *entered.world.tensors) if x.leaf is not None}
        return CallReplay(effects, shape, tensors, allowed, known, slots)


def _contents_made(effects: Session, shape: Result) -> list[Node]:
    """The contents that the call made for its result, storages and gradients. Not in a list of the storages: a flush
    counts who holds those that boundaries of autograd keep."""
    return [s.node for s in (*shape.fresh, *effects.writes, *(
        x._grad.storage for x, _ in effects.grads.values() if x._grad is not None))]


def _advances_state(effects: Session, shape: Result) -> bool:
    """Is the call a step of its own: what it overwrites stays (a cache of keys and values, a running mean, weights by
    gradients that it asks for), and no gradient flows through it? Then its plan runs at once, over the same memories,
    where a node would be recorded and looked at again each time."""
    written = [s for s in effects.writes if s.cell is not None]
    alone = (not mode.enabled or bool(effects.differentiated)) and not state.regions and not effects.grads
    return bool(written) and alone and not any(s.needs_grad for s in (*written, *shape.fresh))


@contextmanager
def computing_anew(roots: Iterable[Node], known: set[Node]) -> Iterator[None]:
    """Inside, nodes that the call recorded and that are in memory, because an equal one was computed before, have
    to be computed: another call has other memory below them."""
    seen: set[Node] = set()
    stack = list(roots)
    hidden: list[tuple[Node, Any]] = []
    while stack:
        node = stack.pop()
        if node in seen or node in known or node.op is leaves.data:
            continue
        seen.add(node)
        stack.extend(node.inputs)
        if node.buffer is not None:
            hidden.append((node, node.buffer))
    try:
        for node, _ in hidden:
            node.buffer = None
        yield
    finally:
        for node, buffer in hidden:
            if node.buffer is None:
                node.buffer = buffer
