"""Doing a captured call again: as one node, or as the plan of a whole step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from sys import getrefcount
from typing import Any, Protocol

from genesis import engine
from genesis.capture import build_graph, capture
from genesis.guards import Refusal
from genesis.ir.node import Node, make
from genesis.ir.ops import control
from genesis.ir.source import here
from genesis.recording import FREED, TensorBase, operand, over, read, wrap
from genesis.session import Session
from genesis.storage import Cell, Storage, View, live_pending


class Replay(Protocol):
    """A captured call that can be done again."""

    def ready(self, tensors: Sequence[Any]) -> bool:
        """True if gradients and optimizers are as they were at the captured call's start."""

    def run(self, tensors: Sequence[Any]) -> Any:
        """Do it again on these tensor arguments; returns what the function would."""


def make_replay(effects: Session, result: Any, tensors: Sequence[Any]) -> Replay:
    """The replay of a call that was just captured. When it ended a step, the step runs here."""
    shape = _Result(result, tensors)
    if effects.ended:
        return StepReplay(effects, shape, tensors)
    if effects.grads:
        raise Refusal("it sets gradients without ending a step")
    return CallReplay(effects, shape, tensors)


# What the function returned

@dataclass(frozen=True)
class _Out:
    """A returned tensor: `source` is ("argument", i), ("storage", it) or ("fresh", j)."""

    source: tuple[str, Any]
    type: Any
    part: View | None
    leaf: int | None
    detached: bool


class _Result:
    """The structure of a result, with the tensors in it described."""

    def __init__(self, result: Any, tensors: Sequence[Any]):
        self._arguments = {id(x): i for i, x in enumerate(tensors)}
        self._argument_storages = {id(x.storage) for x in tensors}
        self.fresh: list[Storage] = []
        self.tree = self._describe(result)

    def _describe(self, value: Any) -> Any:
        if isinstance(value, TensorBase):
            return self._tensor(value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return (type(value), [self._describe(x) for x in value])
        if type(value) in (list, tuple):
            return (type(value), [self._describe(x) for x in value])
        if type(value) is dict:
            return (dict, {k: self._describe(x) for k, x in value.items()})
        if value is None or isinstance(value, (bool, int, float, str)):
            return ("constant", value)
        raise Refusal(f"it returns a {type(value).__name__}")

    def _tensor(self, x: Any) -> Any:
        if id(x) in self._arguments:
            return _Out(("argument", self._arguments[id(x)]), x.type, None, None, False)
        storage = x.storage
        if id(storage) in self._argument_storages:
            raise Refusal("it returns a view of an argument")
        if storage.cell is not None:
            raise Refusal("it returns a tensor over memory that existed before")
        if storage not in self.fresh:
            self.fresh.append(storage)
        if x.leaf is not None and x.leaf != FREED:
            raise Refusal("it returns a new leaf that requires grad")
        return _Out(("fresh", self.fresh.index(storage)), x.type, x.part, x.leaf, x.detached)

    def build(self, fresh: Sequence[Storage], tensors: Sequence[Any]) -> Any:
        """The result over these storages and arguments."""
        return self._build(self.tree, fresh, tensors)

    def _build(self, tree: Any, fresh: Sequence[Storage], tensors: Sequence[Any]) -> Any:
        if isinstance(tree, _Out):
            where, which = tree.source
            if where == "argument":
                return tensors[which]
            made = over(fresh[which], tree.type, tree.part)
            made.leaf, made.detached, made.is_view = tree.leaf, tree.detached, tree.part is not None
            return made
        kind, parts = tree
        if kind == "constant":
            return parts
        if kind is dict:
            return {k: self._build(x, fresh, tensors) for k, x in parts.items()}
        built = [self._build(x, fresh, tensors) for x in parts]
        return kind(*built) if hasattr(kind, "_fields") else kind(built)


# What it read

def _sources(cells: Sequence[Cell], tensors: Sequence[Any]) -> list[Any]:
    """For each memory of the program where a replay finds it: an argument's number, or a storage."""
    arguments = {x.storage.cell: i for i, x in enumerate(tensors)}
    found: list[Any] = []
    for cell in cells:
        if cell in arguments:
            found.append(arguments[cell])
            continue
        owner = cell.owner() if cell.owner is not None else None
        if owner is None or owner.cell is not cell:
            raise Refusal("it reads a tensor whose memory nobody holds")
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

    def __init__(self, effects: Session, shape: _Result, tensors: Sequence[Any]):
        self._shape = shape
        self._written = [s for s in effects.writes if s.cell is not None]
        nodes = [s.node for s in shape.fresh] + [s.node for s in self._written]
        captured = capture(nodes, [], [])
        self._graph = build_graph(captured)
        self._gradient = [node.needs_grad for node in nodes]
        self._sources = _sources(captured.cells, tensors)
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
            if storage is not None:
                if found.setdefault(storage, node.attrs[0]) != node.attrs[0]:
                    raise Refusal("two tensors over one memory require grad")
    return found


class StepReplay:
    """A call that ended a training step: its plan, run over the same memories again."""

    def __init__(self, effects: Session, shape: _Result, tensors: Sequence[Any]):
        self._shape = shape
        self._checks = effects.checks
        self._entry_grads = [(x, grad) for x, grad in effects.entry_grads.values()]
        gradients = [x for x, _ in effects.grads.values()]
        self._cleared = [x for x in gradients if x._grad is None]
        self._graded = [x for x in gradients if x._grad is not None and x._grad.storage.cell is None]
        live = live_pending()
        devices = {s.type.device for s in live}
        wanted = list(shape.fresh)
        if len(devices) != 1 or any(s.type.device not in devices for s in wanted):
            raise Refusal("its step is on several devices")
        flush = engine.prepare(wanted, live, devices.pop())
        assert flush is not None
        expected = {id(s) for s in wanted} | {id(x._grad.storage) for x in self._graded}
        leaked = [s for s in flush.outputs if id(s) not in expected]
        captured = flush.captured
        arguments = {x.storage: i for i, x in enumerate(tensors)}
        sources: list[Any] | None = None
        reason = ""
        try:
            sources = _sources(captured.cells, tensors)
        except Refusal as refusal:
            reason = str(refusal)
        self._compiled = engine.run(flush)
        if sources is None:
            raise Refusal(reason)
        if leaked or flush.snapshots:
            raise Refusal("a tensor that it makes stays alive elsewhere")
        self._fixed = [(i, s, s.cell.memory) for i, s in enumerate(sources) if s.__class__ is not int]  # type: ignore[union-attr]
        self._given = [(i, s) for i, s in enumerate(sources) if s.__class__ is int]
        self._memories = [None] * len(sources)
        for i, _, memory in self._fixed:
            self._memories[i] = memory
        self._updated = [arguments.get(s, s) for s in flush.updates]
        self._numbers = list(captured.numbers)
        self._live = _live_positions(effects, captured.number_nodes)
        position = {id(s): i for i, s in enumerate(flush.outputs)}
        self._results = [(position[id(s)], s.type) for s in shape.fresh]
        self._gradients = [(x, position[id(x._grad.storage)], x._grad.type) for x in self._graded]

    def ready(self, tensors: Sequence[Any]) -> bool:
        """True if gradients and optimizers are as they were at the captured call's start."""
        return (all(x._grad is grad for x, grad in self._entry_grads) and all(check() for check in self._checks))

    def run(self, tensors: Sequence[Any]) -> Any:
        """Run the plan; returns the function's result over new memory."""
        memories = self._memories
        if live_pending():
            engine.end_step()
        for index, storage, memory in self._fixed:
            if storage.cell.memory is not memory or not storage.settled:
                engine.flush([storage])
                memories[index] = storage.cell.memory
                self._fixed = [(i, s, s.cell.memory) for i, s, _ in self._fixed]
        for index, argument in self._given:
            x = tensors[argument]
            memories[index] = engine.memory_of(x if x.part is None else x.detach().clone())  # type: ignore[call-overload]
        numbers = _refresh(self._numbers, self._live)
        outputs = self._compiled.run(memories, numbers)
        for target in self._updated:
            storage = tensors[target].storage if target.__class__ is int else target
            storage._node = None
            storage.version += 1
            cell = storage.cell
            if getrefcount(cell) > 3:  # the storage, this variable, the call: anything else may read the old content
                storage.cell = Cell(cell.memory)
                storage.cell.owner = cell.owner
                cell.memory = None
        for x in self._cleared:
            x._grad = None
        for x, index, kind in self._gradients:
            x._grad = over(Storage(kind, None, Cell(outputs[index])), kind, None)
        fresh = [Storage(kind, None, Cell(outputs[index])) for index, kind in self._results]
        return self._shape.build(fresh, tensors)
