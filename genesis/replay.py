"""Doing a captured call again: as one node, or as the plan of a whole step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Any, Protocol

from genesis.capture import build_graph, capture
from genesis.ir.node import Node, make
from genesis.ir.ops import control, leaves
from genesis.ir.source import here
from genesis.recording import entered, operand, read, regions, wrap
from genesis.replay_sources import live_positions, refresh, sources_of
from genesis.replay_step import StepReplay
from genesis.results import Result
from genesis.session import Session
from genesis.snapshot import Entered, Refusal, Unsettled
from genesis.storage import Storage

_node_of = attrgetter("_node")


class Replay(Protocol):
    """A captured call that can be done again."""

    def ready(self, tensors: Sequence[Any]) -> bool:
        """True if gradients and optimizers are as they were at the captured call's start."""

    def run(self, tensors: Sequence[Any]) -> Any:
        """Do it again on these tensor arguments; returns what the function would."""


def make_replay(effects: Session, shape: Result, tensors: Sequence[Any], entered: Entered) -> Replay:
    """The replay of a call that was just captured. When it ended a step, the step runs here.

    Args:
        effects: what the call did.
        shape: what it returned.
        tensors: its arguments that are tensors.
        entered: the state before it.
    """
    arguments = {id(x) for x in tensors}
    if not arguments.isdisjoint(effects.grads) or not arguments.isdisjoint(effects.entry_grads):
        raise Refusal("it looks at or sets the gradient of an argument")
    gradients = [x for _, x in (*effects.grads.values(), *effects.entry_grads.values()) if x is not None]
    allowed = {x.storage for x in (*tensors, *entered.world.tensors, *gradients)}
    given = {x.storage for x in tensors}
    if any(s.exported for s in allowed if s not in given):
        raise Unsettled("it reads memory that a numpy array shares")
    if any(s.cell is not None and s not in allowed for s in effects.writes):
        raise Refusal("it writes to a tensor that it made from values")
    made = [*shape.fresh, *effects.writes, *(x._grad.storage for x, _ in effects.grads.values() if x._grad is not None)]
    with _computing_anew([s.node for s in made], entered.contents):
        if effects.ended:
            return StepReplay(effects, shape, tensors, allowed)
        if effects.grads:
            raise Refusal("it sets gradients without ending a step")
        return CallReplay(effects, shape, tensors, allowed)


@contextmanager
def _computing_anew(roots: Iterable[Node], known: set[Node]) -> Iterator[None]:
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
            node.buffer = None
    try:
        yield
    finally:
        for node, buffer in hidden:
            if node.buffer is None:
                node.buffer = buffer


class CallReplay:
    """A call that only computes (and writes): one `call` node over its memories and numbers."""

    def __init__(self, effects: Session, shape: Result, tensors: Sequence[Any], allowed: set[Storage]):
        self._shape = shape
        self._entry_grads = list(effects.entry_grads.values())
        self._written = [s for s in effects.writes if s.cell is not None]
        nodes = [s.node for s in shape.fresh] + [s.node for s in self._written]
        captured = capture(nodes, [], [])
        self._graph = build_graph(captured)
        self._gradient = [node.needs_grad for node in nodes]
        self._take_over(sources_of(captured, tensors, allowed), _watching(captured.order))
        arguments = {id(x.storage): i for i, x in enumerate(tensors)}
        self._targets = [arguments.get(id(s), s) for s in self._written]
        self._numbers = captured.numbers
        self._live = live_positions(effects, captured.number_nodes)

    def _take_over(self, sources: Sequence[Any], leaves: dict[Storage, int]) -> None:
        """Note where the operands come from: storages that stay, some of them watched, and arguments."""
        self._fixed = [source for source in sources if source.__class__ is not int]
        self._watched = [(at, leaves[storage]) for at, storage in enumerate(self._fixed) if storage in leaves]
        self._given = [(at, source) for at, source in enumerate(sources) if source.__class__ is int]

    def ready(self, tensors: Sequence[Any]) -> bool:
        """True if the gradients that it looked at are the same."""
        return all(x._grad is grad for x, grad in self._entry_grads)

    def run(self, tensors: Sequence[Any]) -> Any:
        """Record the call."""
        operands = list(map(_node_of, self._fixed))
        if not all(operands):
            operands = [storage.node for storage in self._fixed]
        for at, leaf in self._watched:
            operands[at] = make(control.watch, (operands[at],), (leaf,))
        if regions:
            operands = list(map(entered, self._fixed, operands))
        for at, argument in self._given:
            operands.insert(at, read(tensors[argument]))
        numbers = refresh(list(self._numbers), self._live)
        call = make(control.call, (*operands, *(operand(x) for x in numbers)), (self._graph,), here())
        results = []
        for index, gradient in enumerate(self._gradient):
            node = make(control.item, (call,), (index,), call.source)
            results.append(node if gradient else make(control.stop_gradient, (node,)))
        count = len(self._shape.fresh)
        fresh = [wrap(node).storage for node in results[:count]]
        for target, node in zip(self._targets, results[count:], strict=True):
            (tensors[target].storage if target.__class__ is int else target).write(node)
        return self._shape.build(fresh, tensors)


def _watching(order: Sequence[Node]) -> dict[Storage, int]:
    """The leaf number under which each storage's content is watched."""
    found: dict[Storage, int] = {}
    for node in order:
        if node.op is control.watch and node.inputs[0].buffer is not None:
            owner = node.inputs[0].buffer.owner
            storage = owner() if owner is not None else None
            if storage is not None and found.setdefault(storage, node.attrs[0]) != node.attrs[0]:
                raise Refusal("two tensors over one memory require grad")
    return found
