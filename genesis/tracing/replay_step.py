"""A call that ended a training step, done again: its plan, over the same memories."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter, is_
from sys import getrefcount
from typing import Any

from genesis import engine
from genesis.autograd.graph_release import is_freed
from genesis.frontend.recording import over
from genesis.frontend.session import Session, take_back
from genesis.frontend.state import state
from genesis.frontend.storage import Cell, Storage, live_pending
from genesis.frontend.threads import handled, others, others_record
from genesis.runtime.plan import Memories
from genesis.runtime.references import HELD_AND_NAMED, HELD_ONCE
from genesis.tracing.replay_sources import live_positions, refresh, sources_of
from genesis.tracing.results import Result
from genesis.tracing.snapshot import NotReplayable, Unsettled

_grad_of, _cell_of = attrgetter("_grad"), attrgetter("cell")
_node_of, _outside_of = attrgetter("_node"), attrgetter("_outside")
_LEAKED = "a tensor that it makes stays alive elsewhere"
_OURS = HELD_ONCE + 1
"""References to a gradient that only its owner and the replay's list hold."""


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
            raise NotReplayable("it gives a tensor a gradient that was computed before")
        if any(s.node.needs_grad for s in effects.writes if s.cell is not None):
            raise NotReplayable("it writes a value that gradients flow through, and ends a step")
        shape.free(lambda node: is_freed(node, effects.freed))
        live = live_pending()
        devices = {s.type.device for s in live}
        wanted = list(shape.fresh)
        if len(devices) != 1 or any(s.type.device not in devices for s in wanted):
            raise NotReplayable("its step is on several devices")
        flush = engine.prepare(wanted, live, devices.pop())
        assert flush is not None
        expected = {id(s) for s in wanted} | {id(x._grad.storage) for x in graded}
        leaked = [s for s in flush.outputs if id(s) not in expected]
        if any(s.needs_grad for s in leaked):  # a backward may read what only the function held
            raise Unsettled(_LEAKED)
        captured = flush.captured
        sources: list[Any] | NotReplayable
        try:
            sources = sources_of(captured, tensors, allowed)
        except NotReplayable as refusal:
            sources = refusal
        try:
            self._compiled = engine.run(flush)
        except engine.Superseded:
            raise Unsettled("a signal handler or a finalizer computes while the step is captured") from None
        except BaseException:
            take_back(again for _, again in effects.numbers)
            raise
        if isinstance(sources, NotReplayable):
            raise sources
        if leaked or flush.snapshots:
            raise Unsettled(_LEAKED)
        self._take_over(flush, sources, graded, tensors)
        self._numbers = list(captured.numbers)
        self._live = live_positions(effects, captured.number_nodes)

    def _take_over(self, flush: engine.Flush, sources: list[Any], graded: list[Any], tensors: Sequence[Any]) -> None:
        """Note the memories of the plan that just ran."""
        arguments = {x.storage: i for i, x in enumerate(tensors)}
        self._at = [i for i, s in enumerate(sources) if s.__class__ is not int]
        self._fixed = [sources[i] for i in self._at]
        self._cells: list[Cell] = [s.cell for s in self._fixed]
        self._given = [(i, s) for i, s in enumerate(sources) if s.__class__ is int]
        self._memories = Memories([None] * len(sources))
        for i, cell in zip(self._at, self._cells, strict=True):
            self._memories[i] = cell.memory
        targets = [arguments.get(s, s) for s in flush.updates]
        self._written_arguments = [t for t in targets if t.__class__ is int]
        self._updated: list[Any] = [t for t in targets if t.__class__ is not int]
        self._runs = [0]
        for storage in self._updated:
            storage.replays = (*storage.replays, self._runs)
        position = {id(s): i for i, s in enumerate(flush.outputs)}
        self._results = [(position[id(s)], s.type) for s in self._shape.fresh]
        self._graded = graded
        self._grads = [x._grad for x in graded]
        self._grad_storages = [x.storage for x in self._grads]
        self._grad_cells = [s.cell for s in self._grad_storages]
        self._grad_positions = [position[id(s)] for s in self._grad_storages]
        self._touched = self._looks = -1
        self.storages = frozenset([*self._fixed, *self._updated])

    def ready(self, tensors: Sequence[Any]) -> bool:
        """True if gradients are as they were at the captured call's start."""
        return all(map(is_, map(_grad_of, self._entry_tensors), self._entry_grads))

    def run(self, tensors: Sequence[Any]) -> Any:
        """Run the plan; returns the function's result over new memory."""
        made = engine.undisturbed(lambda: self._run(tensors), handled() and not self._compiled.backend.asynchronous)
        return self._shape.build(made, tensors)

    def _run(self, tensors: Sequence[Any]) -> list[Storage]:
        """Run the plan; returns the storages that the function made."""
        if state.pending:
            live = live_pending()
            if live:  # what reads content that is about to be overwritten
                engine.flush(live)
        memories = self._memories
        for index, argument in self._given:
            memory = engine.memory_of(tensors[argument])
            if memories[index] is not memory:
                memories[index] = memory
                memories.changed()
        untouched = self._touched == state.touched
        if not untouched:
            self._refresh_memories()
        numbers = refresh(self._numbers, self._live)
        ours = bool(self._graded) and self._hold_alone(untouched)
        return engine.overwrite(lambda: self._overwrite(tensors, numbers, untouched, ours), self._compiled)

    def _overwrite(self, tensors: Sequence[Any], numbers: Sequence[Any], untouched: bool, ours: bool) -> list[Storage]:
        """Run the plan over its memories, and let everybody know what is in them now."""
        memories = self._memories
        ended = self._advance(tensors, untouched)
        if others() and (others_record() or live_pending()):  # another thread may have looked at what they hold
            for cell, memory in ended:
                cell.memory = memory.clone()
        if ours:  # the call replaces these gradients: let go of their memory, so that the plan writes there again
            for cell in self._grad_cells:
                cell.memory = None
        try:
            outputs = self._compiled.run(memories, numbers)
        except BaseException:
            take_back(again for again, _ in self._live)
            self._looks = -1
            for cell, memory in ended:
                cell.memory = memory
            if ours:
                for x in self._graded:
                    x._grad = None
            raise
        for x in self._cleared:
            x._grad = None
        if self._graded:
            self._set_gradients(outputs, ours)
        fresh = [Storage(kind, None, Cell(outputs[index])) for index, kind in self._results]
        self._touched, self._looks = state.touched, state.grad_looks
        return fresh

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
            self._memories.changed()

    def _advance(self, tensors: Sequence[Any], untouched: bool) -> list[tuple[Cell, Any]]:
        """The written storages get new content: who looks at them from now on sees that. Returns the cells that end
        with their old content, and their memory."""
        self._runs[0] += 1
        if untouched and not self._written_arguments and not others():
            return []
        ended = []
        self._cells = []  # hold on to no content
        for argument in self._written_arguments:
            tensors[argument].storage.writes += 1
            ended += _overwritten(tensors[argument].storage)
        for storage in self._updated:
            ended += _overwritten(storage)
        self._cells = [s.cell for s in self._fixed]
        state.touched += 1
        return ended

    def _hold_alone(self, untouched: bool) -> bool:
        """True if the gradients are those of the last call, and nobody else looks at their tensors or memory."""
        if untouched and self._looks == state.grad_looks:  # nobody could get hold of what the last run made
            return True
        held, cells = self._grad_storages, self._grad_cells
        return (all(map(is_, map(_grad_of, self._graded), self._grads)) and all(map(is_, map(_cell_of, held), cells))
                and not any(map(_node_of, held)) and not any(map(_outside_of, held))
                and set(map(getrefcount, self._grads)) == set(map(getrefcount, held)) == set(map(getrefcount, cells))
                == {_OURS})

    def _set_gradients(self, outputs: Sequence[Any], ours: bool) -> None:
        """Each gradient's new memory: in the tensor of the last call, if nobody else looks at that."""
        state.touched += 1
        if ours:
            for cell, index in zip(self._grad_cells, self._grad_positions, strict=True):
                cell.memory = outputs[index]
            return
        for at, (x, index) in enumerate(zip(self._graded, self._grad_positions, strict=True)):
            before = self._grads[at]
            cell = Cell(outputs[index])
            storage = Storage(before.storage.type, None, cell)
            storage.persistent = True
            x._grad = self._grads[at] = over(storage, before.type, before.part)
            self._grad_storages[at], self._grad_cells[at] = storage, cell


def _overwritten(storage: Storage) -> list[tuple[Cell, Any]]:
    """Its memory is written to; whoever reads the old content must not see the new one.

    Returns the cell that ends, and its memory, if somebody may read it."""
    cell, content = storage.cell, storage._node
    if content is not None and content.buffer is cell and storage._node is content:  # not one to be computed yet
        storage._node = None
    content = None
    if getrefcount(cell) > HELD_AND_NAMED:  # anything but the storage may read the old content
        new = storage.cell = Cell(cell.memory)  # type: ignore[union-attr]
        memory, new.owner, cell.memory = cell.memory, storage._reference, None  # type: ignore[union-attr]
        return [(cell, memory)]  # type: ignore[list-item]
    return []
