"""A call that only computes (and writes), done again: `call` nodes over its memories and numbers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from types import CodeType
from typing import Any

from genesis.engine.capture import capture
from genesis.frontend.at_once import Change, at_once, changes
from genesis.frontend.pending import look_behind
from genesis.frontend.recording import FREED, entered, operand, wrap
from genesis.frontend.session import Session, forget_last, take_back
from genesis.frontend.state import state
from genesis.frontend.storage import Storage
from genesis.frontend.views import read_as_leaf
from genesis.ir.graph import Graph
from genesis.ir.interrupting import from_inside
from genesis.ir.node import Node, make
from genesis.ir.numbers import PLAIN
from genesis.ir.ops import control
from genesis.ir.source import here
from genesis.tracing.replay_base import Replay
from genesis.tracing.replay_parts import MANY_NUMBERS, CallPart, Operand, literals_of, parts_of, sharing_numbers
from genesis.tracing.replay_sources import Expected, live_positions, look_ahead, same_numbers, sources_of
from genesis.tracing.results import Result
from genesis.tracing.slots import Slots
from genesis.tracing.snapshot import NotReplayable

_node_of = attrgetter("_node")


class CallReplay(Replay):
    """A call that only computes (and writes): one `call` node, or several where the program has to be cut.

    What is read goes in as it was read: a leaf tensor through its `watch` node where gradients were tracked, as it is
    where they were not. So the grad mode at the replay does not matter, but for what the guards compare.

    Attributes:
        numbers: the numbers of its program.
    """

    def __init__(self, effects: Session, shape: Result, tensors: Sequence[Any], allowed: set[Storage],
                 known: Collection[int], slots: Slots | None):
        super().__init__(effects, shape, tensors, slots)
        written = [(s, count) for s, count in effects.writes.items() if s.cell is not None]
        if any(s.node.needs_grad for s, _ in written):  # the next call is another program
            raise NotReplayable("it writes a value that gradients flow through to a tensor that stays")
        nodes = [s.node for s in shape.fresh] + [s.node for s, _ in written]
        captured = capture(nodes)
        if any(node.op is control.watch and node.attrs[0] in state.crossings for node in captured.order
               if node.buffer is None):
            raise NotReplayable(effects.own_backward or "it reads a value whose gradient leaves the program")
        found = parts_of(captured, nodes, lambda leaf: leaf == FREED or leaf in known)
        self._parts, self._operands = found.parts, found.operands
        self._sharing = self._parts
        self._take_over(sources_of(captured, tensors, allowed, effects.of_values), tensors)
        arguments = {id(x.storage): i for i, x in enumerate(tensors)}
        made = len(shape.fresh)
        self._targets = [(arguments.get(id(s), s), count, *where)
                         for (s, count), where in zip(written, found.results[made:], strict=True)]
        self._copied = [(at, operand) for at, (_, operand) in enumerate(found.results[:made]) if operand is not None]
        self._made_at: dict[int, list[int]] = {}
        for at, (value, _) in enumerate(found.results[:made]):
            if value is not None:
                self._made_at.setdefault(value, []).append(at)
        overwritten = [x for x, *_ in self._targets if x.__class__ is not int]
        self._plain += overwritten  # with a history, what is written to it would have one
        self.storages = frozenset([*self._fixed, *overwritten])
        self.numbers = captured.numbers
        self._live = live_positions(effects, captured.number_nodes)

    def _take_over(self, sources: Sequence[Any], tensors: Sequence[Any]) -> None:
        """Note where the operands that are memory come from: storages that stay, and arguments."""
        own = {x.leaf: i for i, x in enumerate(tensors) if x.leaf is not None and x.leaf != FREED}
        memory = [(at, x, sources[x.memory]) for at, x in enumerate(self._operands) if x.memory is not None]
        fixed = [(at, x.leaf, source) for at, x, source in memory if source.__class__ is not int]
        self._fixed = [source for _, _, source in fixed]
        self._watched = [(i, leaf, own.get(leaf)) for i, (_, leaf, _) in enumerate(fixed) if leaf is not None]
        self._plain = [source for _, leaf, source in fixed if leaf is None]
        self._tracked_writes = -1
        self._given = [(at, source, x.leaf) for at, x, source in memory if source.__class__ is int]
        self._leaves = {leaf: own.get(leaf) for leaf in {x.leaf for x in self._operands if x.leaf is not None}}

    def share_numbers(self, codes: Collection[CodeType]) -> None:
        if len(self.numbers) < MANY_NUMBERS:
            return
        asked = {place for _, positions in self._live for place in chain.from_iterable(positions)}
        fixed = [None if place in asked or type(x) not in PLAIN else x for place, x in enumerate(self.numbers)]
        literals = literals_of(codes)
        self._sharing = [sharing_numbers(part, fixed, literals) for part in self._parts]

    def filled(self, graph_of: Callable[[Graph], Graph], numbers: list[Any], shape: Result) -> CallReplay:
        """The same replay with other graphs, numbers and results: of another call over the same program."""
        found = self.with_numbers(numbers, shape)
        found._parts = [replace(part, graph=graph_of(part.graph)) for part in self._parts]
        found._sharing = found._parts if self._sharing is self._parts else [
            replace(part, graph=graph_of(part.graph)) for part in self._sharing]
        return found

    def with_numbers(self, numbers: list[Any], shape: Result | None = None) -> CallReplay:
        """The same replay with other numbers, and other results if these differ."""
        found = self._of_another_call(shape)
        found.numbers = numbers
        return found

    def same_as(self, other: Any) -> bool:
        return other.__class__ is CallReplay and self._shape.same_as(other._shape) and (
            len(self._parts) == len(other._parts) and all(map(_same_part, self._parts, other._parts))
            and same_numbers((self.numbers, self._live), (other.numbers, other._live))
            and all(getattr(self, name) == getattr(other, name) for name in _COMPARED)
            and self._leaves_by_place() == other._leaves_by_place())

    def _leaves_by_place(self) -> list[Any]:
        """Where leaf tensors are read, those that are arguments by their position."""
        of: dict[int | None, Any] = {
            leaf: leaf if own is None else ("argument", own) for leaf, own in self._leaves.items()}
        return [[(x.memory, x.value, of.get(x.leaf)) for x in self._operands],
                [(i, of.get(leaf, leaf)) for i, leaf, _ in self._watched],
                [(at, source, of.get(leaf, leaf)) for at, source, leaf in self._given]]

    @property
    def writes_arguments(self) -> bool:
        return any(target.__class__ is int for target, *_ in self._targets)

    @property
    def updated(self) -> list[Any]:
        return [target for target, *_ in self._targets if target.__class__ is not int]

    @property
    def changes_state(self) -> bool:
        return bool(self._targets or self._live)

    def ready(self, tensors: Sequence[Any]) -> bool:
        """True if the gradients that it looked at are the same, meet no hooks, and flow through no more than before."""
        if not self._hooks.absent(tensors):
            return False
        if self._tracked_writes != state.tracked_writes:
            if any(storage.needs_grad for storage in self._plain):
                return False
            self._tracked_writes = state.tracked_writes
        return not self.entry_gradients or self.finds_gradients

    def run(self, tensors: Sequence[Any]) -> Any:
        """Record the call. What it changes is changed at once, when all of it is recorded."""
        done: list[bool] = []
        if self._live:
            forget_last(again for again, _ in self._live)
        try:  # from here on a schedule may have taken its step
            while True:
                fresh, written, told, expected = self._recorded(tensors)
                made = self._shape.tensors(fresh, tensors)
                if self._slots is None:
                    held = None
                else:
                    held = self._slots.changes(self._shape, made, told, expected)
                if self._live:
                    told.append((done.append, True))
                try:
                    at_once(changes((), told, expected))
                    break
                except from_inside(KeyError):  # another thread drew, or a handler did
                    take_back(again for again, _ in self._live)
        except BaseException:
            if not done:
                take_back(again for again, _ in self._live)
            raise
        del held
        for storage in written:
            storage.written()
        return self._returned(made)

    def _recorded(self, tensors: Sequence[Any]) -> tuple[list[Any], list[Storage], list[Change], list[Expected]]:
        """The storages that the call makes, those that it writes to, and what it changes and expects to find."""
        look_behind(len(self._shape.fresh) - 1)  # at the last of a thousand results: they are no turns of a loop
        operands = self._read(tensors)
        asked = list(self.numbers)
        told, expected = look_ahead(asked, self._live)
        line = here()
        values: list[Node] = []
        fresh: list[Any] = [None] * len(self._shape.fresh)
        for part in self._sharing:
            while len(operands) < part.operands_there:
                operands.append(self._passed_on(self._operands[len(operands)], values, tensors))
            inputs = operands if part.takes_all else [operands[at] for at in part.operands]
            call = make(control.call, (*inputs, *[operand(asked[at]) for at in part.numbers]), (part.graph,), line)
            for index, gradient in enumerate(part.gradient):
                node = make(control.item, (call,), (index,), line)
                if not gradient:
                    node = make(control.stop_gradient, (node,))
                for position in self._made_at.get(len(values), ()):
                    fresh[position] = wrap(node).storage
                    node = fresh[position]._node
                values.append(node)
        for x in self._operands[len(operands):]:
            operands.append(self._passed_on(x, values, tensors))
        for position, at in self._copied:
            fresh[position] = wrap(operands[at]).storage
        written: list[Storage] = []
        for target, count, value, place in self._targets:
            storage = tensors[target].storage if target.__class__ is int else target
            expected.append(((getattr, storage, "writes"), storage.writes))
            told += storage.writing(operands[place] if value is None else values[value], count)  # type: ignore[index]
            written.append(storage)
        return fresh, written, told, expected

    def _read(self, tensors: Sequence[Any]) -> list[Node]:
        """The nodes of the operands that are memory."""
        fixed = list(map(_node_of, self._fixed))
        if not all(fixed):
            fixed = [storage.node for storage in self._fixed]
        for at, leaf, own in self._watched:
            node = fixed[at]
            if node.needs_grad:
                node = _stopped(node)
            fixed[at] = read_as_leaf(self._fixed[at], node, leaf if own is None else tensors[own].leaf)
        if state.regions:
            fixed = list(map(entered, self._fixed, fixed))
        for at, argument, own_leaf in self._given:
            storage = tensors[argument].storage
            node = storage.node if own_leaf is None else self._watch(storage.node, own_leaf, tensors)
            fixed.insert(at, node if not state.regions else entered(storage, node))
        return fixed

    def _watch(self, node: Node, leaf: int, tensors: Sequence[Any]) -> Node:
        """The value as the leaf tensor reads it that had this number when the call was captured."""
        own = self._leaves[leaf]
        return make(control.watch, (_stopped(node) if node.needs_grad else node,),
                    (leaf if own is None else tensors[own].leaf,))

    def _passed_on(self, x: Operand, values: Sequence[Node], tensors: Sequence[Any]) -> Node:
        """A value that one part hands to another, as it is or as a leaf tensor reads it."""
        node = values[x.value]  # type: ignore[index]
        if x.leaf is None:
            return node
        own = self._leaves[x.leaf]
        tensor: Any = state.watched.get(x.leaf) if own is None else tensors[own]
        node = self._watch(node, x.leaf, tensors)
        return node if not state.regions or tensor is None else entered(tensor.storage, node)


_COMPARED = ("_copied", "_made_at", "_fixed", "_targets", "entry_gradients")
"""What two replays that do the same have in common, beside their parts and leaves."""


def _same_part(a: CallPart, b: CallPart) -> bool:
    """Whether both are one `call`. Nodes that compute the same are one object."""
    return (a.graph.inputs, a.graph.outputs, a.graph.updates, replace(a, graph=b.graph)) == (
        b.graph.inputs, b.graph.outputs, b.graph.updates, b)


def _stopped(node: Node) -> Node:
    return make(control.stop_gradient, (node,))
