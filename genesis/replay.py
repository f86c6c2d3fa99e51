"""Doing a captured call again: as one node, or as the plan of a whole step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter, is_
from sys import getrefcount
from typing import Any, Protocol

from genesis import engine
from genesis.capture import Captured, build_graph, capture
from genesis.guards import Entered, Refusal, Unsettled
from genesis.ir.node import Node, make
from genesis.ir.ops import control, leaves
from genesis.ir.source import here
from genesis.recording import operand, over, read, wrap
from genesis.results import Result
from genesis.session import Session
from genesis.storage import Cell, Storage, live_pending, pending, touched

_grad_of, _cell_of = attrgetter("_grad"), attrgetter("cell")
_node_of, _outside_of = attrgetter("_node"), attrgetter("_outside")
_OURS = 3
"""References to a gradient that nobody else holds: its owner's, the replay's list's, the call's that counts."""



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


# What it read

def _sources(captured: Captured, tensors: Sequence[Any], allowed: set[Storage]) -> list[Any]:
    """For each memory of the program where a replay finds it: an argument's number, or a storage."""
    arguments = {x.storage.cell: i for i, x in enumerate(tensors)}
    for i, x in enumerate(tensors):
        leaf = x.storage.snapshot  # what stands for it while numpy shares its memory
        if leaf is not None:
            arguments[leaf.buffer] = i
    owners = {s.cell: s for s in allowed}
    found: list[Any] = []
    for cell, kind in zip(captured.cells, captured.memory_types, strict=True):
        if cell in arguments:
            found.append(arguments[cell])
            continue
        owner = owners.get(cell)
        if owner is None and cell.owner is not None:
            owner = cell.owner()
        if owner is None:  # made from values by the call itself: a constant
            found.append(Storage(kind, None, cell))
            cell.owner = found[-1]._reference
            continue
        if owner.cell is not cell:
            raise Unsettled("it reads a tensor that was overwritten since")
        if owner not in allowed:
            raise Refusal("it reads a tensor that is reached in a way that cannot be followed")
        if owner._node is not None and owner._node.needs_grad and owner._node.inputs:
            raise Refusal("it reads a tensor that was computed outside and requires grad")
        found.append(owner)
    return found


def _live_positions(effects: Session, nodes: Sequence[Node]) -> list[tuple[Any, list[list[int]]]]:
    """(again, positions of each of its numbers) for numbers that a replay asks for anew."""
    at: dict[Node, list[int]] = {}
    for position, node in enumerate(nodes):
        at.setdefault(node, []).append(position)
    return [(again, [at.get(node, []) for node in made]) for made, again in effects.numbers]


def _refresh(numbers: list[Any], live: list[tuple[Any, list[list[int]]]]) -> list[Any]:
    for again, positions in live:
        for value, places in zip(again(), positions, strict=True):
            for place in places:
                numbers[place] = value
    return numbers


class CallReplay:
    """A call that only computes (and writes): one `call` node over its memories and numbers."""

    def __init__(self, effects: Session, shape: Result, tensors: Sequence[Any], allowed: set[Storage]):
        self._shape = shape
        self._written = [s for s in effects.writes if s.cell is not None]
        nodes = [s.node for s in shape.fresh] + [s.node for s in self._written]
        captured = capture(nodes, [], [])
        self._graph = build_graph(captured)
        self._gradient = [node.needs_grad for node in nodes]
        self._sources = _sources(captured, tensors, allowed)
        self._leaves = _watching(captured.order)
        arguments = {id(x.storage): i for i, x in enumerate(tensors)}
        self._targets = [arguments.get(id(s), s) for s in self._written]
        self._numbers = captured.numbers
        self._live = _live_positions(effects, captured.number_nodes)

    def ready(self, tensors: Sequence[Any]) -> bool:
        """Always: it has set no gradients."""
        return True

    def run(self, tensors: Sequence[Any]) -> Any:
        """Record the call."""
        operands = []
        for source in self._sources:
            if source.__class__ is int:
                operands.append(read(tensors[source]))
            else:
                leaf = self._leaves.get(source)
                node = source.node
                operands.append(node if leaf is None else make(control.watch, (node,), (leaf,)))
        numbers = _refresh(list(self._numbers), self._live)
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


class StepReplay:
    """A call that ended a training step: its plan, run over the same memories again.

    What stays from call to call (parameters, optimizer state, gradients that nobody else holds) is
    checked in a few C loops, and not at all when no storage was touched since the last replay.
    """

    def __init__(self, effects: Session, shape: Result, tensors: Sequence[Any], allowed: set[Storage]):
        self._shape = shape
        entry = list(effects.entry_grads.values())
        self._entry_tensors, self._entry_grads = [x for x, _ in entry], [grad for _, grad in entry]
        gradients = [x for x, _ in effects.grads.values()]
        self._cleared = [x for x in gradients if x._grad is None]
        graded = [x for x in gradients if x._grad is not None and x._grad.storage.cell is None]
        new = {id(x) for x in graded}
        if any(x._grad is not grad for x, grad in effects.grads.values() if x._grad is not None and id(x) not in new):
            raise Refusal("it gives a tensor a gradient that was computed before")
        live = live_pending()
        devices = {s.type.device for s in live}
        wanted = list(shape.fresh)
        if len(devices) != 1 or any(s.type.device not in devices for s in wanted):
            raise Refusal("its step is on several devices")
        flush = engine.prepare(wanted, live, devices.pop())
        assert flush is not None
        expected = {id(s) for s in wanted} | {id(x._grad.storage) for x in graded}
        leaked = [s for s in flush.outputs if id(s) not in expected]
        captured = flush.captured
        sources: list[Any] | Refusal
        try:
            sources = _sources(captured, tensors, allowed)
        except Refusal as refusal:
            sources = refusal
        self._compiled = engine.run(flush)
        if isinstance(sources, Refusal):
            raise sources
        if leaked or flush.snapshots:
            raise Unsettled("a tensor that it makes stays alive elsewhere")
        self._take_over(flush, sources, graded, tensors)
        self._numbers = list(captured.numbers)
        self._live = _live_positions(effects, captured.number_nodes)

    def _take_over(self, flush: engine.Flush, sources: list[Any], graded: list[Any], tensors: Sequence[Any]) -> None:
        """Note the memories of the plan that just ran."""
        arguments = {x.storage: i for i, x in enumerate(tensors)}
        self._at = [i for i, s in enumerate(sources) if s.__class__ is not int]
        self._fixed = [sources[i] for i in self._at]
        self._cells: list[Cell] = [s.cell for s in self._fixed]
        self._given = [(i, s) for i, s in enumerate(sources) if s.__class__ is int]
        self._memories: list[Any] = [None] * len(sources)
        for i, cell in zip(self._at, self._cells, strict=True):
            self._memories[i] = cell.memory
        targets = [arguments.get(s, s) for s in flush.updates]
        self._written_arguments = [t for t in targets if t.__class__ is int]
        self._updated: list[Any] = [t for t in targets if t.__class__ is not int]
        position = {id(s): i for i, s in enumerate(flush.outputs)}
        self._results = [(position[id(s)], s.type) for s in self._shape.fresh]
        self._graded = graded
        self._grads = [x._grad for x in graded]
        self._grad_storages = [x.storage for x in self._grads]
        self._grad_cells = [s.cell for s in self._grad_storages]
        self._grad_positions = [position[id(s)] for s in self._grad_storages]
        self._touched = -1

    def ready(self, tensors: Sequence[Any]) -> bool:
        """True if gradients are as they were at the captured call's start."""
        return all(map(is_, map(_grad_of, self._entry_tensors), self._entry_grads))

    def run(self, tensors: Sequence[Any]) -> Any:
        """Run the plan; returns the function's result over new memory."""
        if pending:
            live = live_pending()
            if live:  # what reads content that is about to be overwritten
                engine.flush(live)
        memories = self._memories
        for index, argument in self._given:
            memories[index] = engine.memory_of(tensors[argument])
        untouched = self._touched == touched[0]
        if not untouched:
            self._refresh_memories()
        numbers = _refresh(self._numbers, self._live)
        ours = bool(self._graded) and self._hold_alone()
        if ours:  # the call replaces these gradients: let go of their memory, so that the plan writes there again
            for cell in self._grad_cells:
                cell.memory = None
        try:
            outputs = self._compiled.run(memories, numbers)
        except BaseException:
            if ours:
                for x in self._graded:
                    x._grad = None
            raise
        self._advance(tensors, untouched)
        for x in self._cleared:
            x._grad = None
        if self._graded:
            self._set_gradients(outputs, ours)
        fresh = [Storage(kind, None, Cell(outputs[index])) for index, kind in self._results]
        self._touched = touched[0]
        return self._shape.build(fresh, tensors)

    def _refresh_memories(self) -> None:
        """Settle what was written, and find the memories where they are now."""
        if any(map(_node_of, self._fixed)):
            waiting = [s for s in self._fixed if not s.settled]
            if waiting:
                engine.flush(waiting)
        if not all(map(is_, map(_cell_of, self._fixed), self._cells)):
            self._cells = [s.cell for s in self._fixed]
            for i, cell in zip(self._at, self._cells, strict=True):
                self._memories[i] = cell.memory

    def _advance(self, tensors: Sequence[Any], untouched: bool) -> None:
        """The written storages have new content."""
        if untouched and not self._written_arguments:
            for storage in self._updated:
                storage.version += 1
            return
        self._cells = []  # hold on to no content
        for argument in self._written_arguments:
            _overwritten(tensors[argument].storage)
        for storage in self._updated:
            _overwritten(storage)
        self._cells = [s.cell for s in self._fixed]
        touched[0] += 1

    def _hold_alone(self) -> bool:
        """True if the gradients are those of the last call, and nobody else looks at their tensors or memory."""
        held, cells = self._grad_storages, self._grad_cells
        return (all(map(is_, map(_grad_of, self._graded), self._grads)) and all(map(is_, map(_cell_of, held), cells))
                and not any(map(_node_of, held)) and not any(map(_outside_of, held))
                and set(map(getrefcount, self._grads)) == set(map(getrefcount, held)) == set(map(getrefcount, cells))
                == {_OURS})

    def _set_gradients(self, outputs: Sequence[Any], ours: bool) -> None:
        """Each gradient's new memory: in the tensor of the last call, if nobody else looks at that."""
        touched[0] += 1
        if ours:
            for cell, index in zip(self._grad_cells, self._grad_positions, strict=True):
                cell.memory = outputs[index]
            return
        for at, (x, index) in enumerate(zip(self._graded, self._grad_positions, strict=True)):
            kind = self._grads[at].type
            cell = Cell(outputs[index])
            storage = Storage(kind, None, cell)
            storage.persistent = True
            x._grad = self._grads[at] = over(storage, kind, None)
            self._grad_storages[at], self._grad_cells[at] = storage, cell


def _overwritten(storage: Storage) -> None:
    """Its memory was written to; whoever reads the old content must not see the new one."""
    storage._node = None
    storage.version += 1
    cell = storage.cell
    if getrefcount(cell) > 3:  # the storage, this variable, the call: anything else may read the old content
        new = storage.cell = Cell(cell.memory)  # type: ignore[union-attr]
        new.owner, cell.memory = storage._reference, None  # type: ignore[union-attr]
