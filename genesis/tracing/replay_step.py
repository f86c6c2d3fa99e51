"""A call that ended a training step, done again: its plan, over the same memories."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import repeat, starmap
from operator import attrgetter, is_, setitem
from operator import call as operate
from sys import getrefcount
from typing import Any

from genesis import engine
from genesis.autograd.graph_release import is_freed
from genesis.engine.interruption import beside, left_behind
from genesis.engine.plan_lookup import Superseded
from genesis.engine.preparation import needed_by_backwards
from genesis.engine.running import replay
from genesis.engine.state import engine_state
from genesis.frontend.at_once import Change, Expected, at_once, attributes
from genesis.frontend.pending import live_pending
from genesis.frontend.recording import over
from genesis.frontend.session import Session, take_back
from genesis.frontend.state import lock, state
from genesis.frontend.storage import Cell, Storage
from genesis.frontend.threads import others, others_record
from genesis.ir.types import Device
from genesis.runtime.plan import Memories, Rewritten
from genesis.runtime.references import HELD_AND_NAMED, HELD_ONCE
from genesis.tracing.leaf_hooks import LeafHooks
from genesis.tracing.replay_sources import live_positions, look_ahead, sources_of
from genesis.tracing.results import Result
from genesis.tracing.slots import Slots
from genesis.tracing.snapshot import NotReplayable, Unsettled

_grad_of, _cell_of, _memory_of = attrgetter("_grad"), attrgetter("cell"), attrgetter("cell.memory")
_node_of, _outside_of = attrgetter("_node"), attrgetter("_outside")
_LEAKED = "a tensor that it makes stays alive elsewhere"
_DISTURBED = "a signal handler or a finalizer computes while the step is captured"
_OURS = HELD_ONCE + 1
"""References to a gradient that only its owner and the replay's list hold."""


class StepReplay:
    """A call that ended a training step: its plan, run over the same memories again.

    What stays from call to call (parameters, optimizer state, gradients that nobody else holds) is
    checked in a few C loops, and not at all when no storage was touched since the last replay.
    """

    def __init__(self, effects: Session, shape: Result, tensors: Sequence[Any], allowed: set[Storage],
                 slots: Slots | None = None):
        self._shape, self._slots = shape, slots
        self._hooks = LeafHooks(effects, tensors)
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
        device = devices.pop()
        flush = _prepared(wanted, live, device)
        missing = [x._grad.storage for x in graded if x._grad.storage not in flush.outputs]
        if missing:  # gradients of what no optimizer updates would be computed when somebody reads them
            flush = _prepared([*wanted, *missing], live, device)
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
            raise Unsettled(_DISTURBED) from None
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
        self._fixed_memories = [s.cell.memory for s in self._fixed]
        self._given = [(i, s) for i, s in enumerate(sources) if s.__class__ is int]
        self._memories: Memories[Any] = Memories([None] * len(sources))
        for i, memory in zip(self._at, self._fixed_memories, strict=True):
            self._memories[i] = memory
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
        self._other_outputs = tuple(set(range(len(flush.outputs))).difference(self._grad_positions))
        self._rewritten: Rewritten | None = None
        self._touched = self._looks = -1
        self.storages = frozenset([*self._fixed, *self._updated])

    def ready(self, tensors: Sequence[Any]) -> bool:
        """True if gradients are as they were at the captured call's start, meet no hooks, and no region is entered."""
        return (not state.regions and self._hooks.absent(tensors)
                and all(map(is_, map(_grad_of, self._entry_tensors), self._entry_grads)))

    def run(self, tensors: Sequence[Any]) -> Any:
        """Run the plan; returns the function's result over new memory."""
        call = _StepCall(self, tensors)
        with lock:
            record = engine_state.record
            if record is None or left_behind(record):
                call.complete()
            else:
                with beside(record):
                    call.complete()
        made: Any = call.made
        return self._shape.value(made) if self._slots is None else self._slots.result(self._shape, made)

    def run_once(self, call: _StepCall) -> None:
        """Run the plan for a call, which is done then.

        Raises:
            Superseded: nothing has been done, as something else ran or was recorded meanwhile.
        """
        if state.pending:
            _compute_before(live_pending())
        memories = self._memories
        for index, argument in self._given:
            memory = engine.memory_of(call.tensors[argument])
            if memories[index] is not memory:
                memories.changed()  # first: an exception may come between the two
                memories[index] = memory
        call.untouched = self._touched == state.touched
        if not call.untouched:
            self._refresh_memories()
        call.counted, call.expected = look_ahead(self._numbers, self._live)
        unseen = call.untouched and self._looks == state.grad_looks  # nobody could get hold of what the last run made
        call.ours = bool(self._graded) and (unseen or self._hold_alone())
        memories.rewritten = call.rewritten = self._rewritten if unseen else None
        rewrites = call.ours and self._compiled.backend.asynchronous  # the plan writes to the gradients' memory again
        try:
            if rewrites and call.rewritten is None:
                at_once(starmap(operate, [attributes(self._grad_cells, "memory", repeat(None))]))
            replay(call, self._compiled, memories, self._numbers)
        except BaseException:
            if not call.done:
                take_back(again for again, _ in self._live)
                if rewrites:
                    self._looks = -1  # first: the gradients are not those of the last call any more
                    at_once(starmap(operate, [attributes(self._graded, "_grad", repeat(None))]))
            raise

    def changes(self, call: _StepCall, outputs: Sequence[Any]) -> tuple[list[Change], list[Expected], int]:
        """What everybody has to be told when the plan has run: the changes, what they expect to find, and
        `state.touched` from then on."""
        held: list[Any] = []
        call.held = held  # what is replaced, until it is
        expected = call.expected.copy()
        found: list[Change] = [*call.counted, (setitem, self._runs, 0, self._runs[0] + 1)]
        looks, told_all = state.grad_looks, not (call.untouched and self._touched == state.touched)
        if told_all or self._written_arguments or others() or (self._graded and not call.ours):
            state.touched += 1
        touched = state.touched
        if told_all or self._written_arguments or others():
            found += self._overwritten(call, held, expected)
        if self._cleared:
            held.append(list(map(_grad_of, self._cleared)))
            found.append(attributes(self._cleared, "_grad", repeat(None)))
        if self._graded:
            found += self._gradients(call, outputs, held)
        fresh = [Storage(kind, None, Cell(outputs[index])) for index, kind in self._results]
        made = self._shape.tensors(fresh, call.tensors)
        if self._slots is not None:
            held += self._slots.changes(self._shape, made, found, expected)
        found += [(setattr, self, "_touched", touched), (setattr, self, "_looks", looks),
                  (setattr, call, "made", made)]
        return found, expected, touched

    def _refresh_memories(self) -> None:
        """Settle what was written, and find the memories where they are now."""
        if any(map(_node_of, self._fixed)):
            waiting = [s for s in self._fixed if not s.settled]
            if waiting:
                engine.flush(waiting)
        found = list(map(_memory_of, self._fixed))
        if not all(map(is_, found, self._fixed_memories)):
            self._memories.changed()  # first: an exception may come between any two of these
            for i, memory in zip(self._at, found, strict=True):
                self._memories[i] = memory
            self._fixed_memories = found

    def _overwritten(self, call: _StepCall, held: list[Any], expected: list[Expected]) -> list[Change]:
        """The changes that give the written storages new content: who looks at them from then on sees that, and who
        looks at the old one finds no memory there, or a copy. They expect that nobody reads more of the old one by
        then: what was recorded so would be lost.

        Raises:
            Superseded: one of them has been written to and is to be computed first.
        """
        found: list[Change] = []
        ended: list[tuple[Cell, Any]] = []
        read: list[Storage] = []
        given = [call.tensors[argument].storage for argument in self._written_arguments]
        found += [(setattr, storage, "writes", storage.writes + 1) for storage in given]
        for storage in (*given, *self._updated):
            cell = _ended(storage)
            if cell is None:
                continue
            held.append((cell, storage._node))
            if storage._node is not None:
                found.append((setattr, storage, "_node", None))
            new = Cell(cell.memory)
            new.owner = storage._reference
            ended.append((cell, cell.memory))
            read.append(storage)
            found.append((setattr, storage, "cell", new))
        looks = [(getrefcount, node) for _, node in held if node is not None]
        counts = [*starmap(operate, looks)]
        if others_record() or (state.pending and live_pending()):  # somebody may have looked at what they hold
            copies = [memory.clone() for _, memory in ended]
        else:
            needed = needed_by_backwards(read, [], {}) if read else ()
            copies = [memory.clone() if storage in needed else None
                      for storage, (_, memory) in zip(read, ended, strict=True)]
            expected += zip(looks, counts, strict=True)
        return [attributes([cell for cell, _ in ended], "memory", copies), *found]

    def _hold_alone(self) -> bool:
        """True if the gradients are those of the last call, and nobody else looks at their tensors or memory."""
        held, cells = self._grad_storages, self._grad_cells
        return (all(map(is_, map(_grad_of, self._graded), self._grads)) and all(map(is_, map(_cell_of, held), cells))
                and not any(map(_node_of, held)) and not any(map(_outside_of, held))
                and set(map(getrefcount, self._grads)) == set(map(getrefcount, held)) == set(map(getrefcount, cells))
                == {_OURS})

    def _gradients(self, call: _StepCall, outputs: Sequence[Any], held: list[Any]) -> list[Change]:
        """The changes that give each gradient its new memory: in the tensor of the last call, if nobody else looks at
        that. Where the plan wrote to the memory that they have, there are none."""
        stamp = self._memories.outputs
        if call.rewritten is not None and call.rewritten.stamp is stamp:
            return []
        rewritten = None if stamp is None else Rewritten(stamp, self._other_outputs)
        if call.ours:
            held.append([cell.memory for cell in self._grad_cells])
            return [attributes(self._grad_cells, "memory", [outputs[index] for index in self._grad_positions]),
                    (setattr, self, "_rewritten", rewritten)]
        made, storages, cells = [], [], []
        for before, index in zip(self._grads, self._grad_positions, strict=True):
            cell = Cell(outputs[index])
            storage = Storage(before.storage.type, None, cell)
            storage.persistent = True
            made.append(over(storage, before.spec, before.part))
            storages.append(storage)
            cells.append(cell)
        held += [self._grads, self._grad_storages, self._grad_cells, list(map(_grad_of, self._graded))]
        return [attributes(self._graded, "_grad", made), (setattr, self, "_grads", made),
                (setattr, self, "_grad_storages", storages), (setattr, self, "_grad_cells", cells),
                (setattr, self, "_rewritten", rewritten)]


def _compute_before(live: list[Storage]) -> None:
    """Compute what may read content that is about to be overwritten. What cannot be computed says so when it is read:
    it is not this call's. Without memory for the others, nothing is overwritten."""
    try:
        if live:
            engine.flush(live)
    except MemoryError:
        raise
    except Exception:  # one of them cannot be computed: the others still have to be
        for storage in live:
            try:
                engine.flush([storage])
            except MemoryError:
                raise
            except Exception:  # the storage has the error, and tells it when it is read
                continue


def _prepared(wanted: list[Storage], live: list[Storage], device: Device) -> engine.Flush:
    """The flush of the captured step.

    Raises:
        Unsettled: something else was computed meanwhile.
    """
    with suppress(Superseded):
        flush = engine.prepare(wanted, live, device)
        if flush is not None:
            return flush
    raise Unsettled(_DISTURBED)


def _ended(storage: Storage) -> Cell | None:
    """The storage's content, which ends when its memory is written to, if anything but the storage may read it.

    Raises:
        Superseded: another content has been written to it and is to be computed first.
    """
    cell, content = storage.cell, storage._node
    if content is not None and content.buffer is not cell:
        raise Superseded
    return cell if content is not None or getrefcount(cell) > HELD_AND_NAMED else None


class _StepCall:
    """One call of a replayed step. It is done or not: all that it changes is changed at once.

    Attributes:
        tensors: its arguments.
        made: the tensors of the function's result; None before it is done.
        untouched: no storage was looked at since the last call.
        ours: gradients are those of the last call, and nobody else looks at them.
        rewritten: their memory, if the plan may write there while they hold it.
        counted, expected: the changes that make its numbers given, and what they expect to find.
        held: what the changes replace, until they are made.
    """

    __slots__ = ("counted", "expected", "held", "made", "ours", "replay", "rewritten", "tensors", "untouched")

    def __init__(self, replay: StepReplay, tensors: Sequence[Any]):
        self.replay, self.tensors = replay, tensors
        self.made: list[Any] | None = None
        self.untouched = self.ours = False
        self.rewritten: Rewritten | None = None
        self.counted: list[Change] = []
        self.expected: list[Expected] = []
        self.held: list[Any] = []

    @property
    def done(self) -> bool:
        """Whether its changes are made."""
        return self.made is not None

    def complete(self) -> None:
        """Run it until it is done: what ran or was recorded meanwhile comes first."""
        while self.made is None:
            with suppress(Superseded):
                self.replay.run_once(self)

    def changes(self, outputs: Sequence[Any]) -> tuple[list[Change], list[Expected], int]:
        """See `engine.running.Replayed`."""
        return self.replay.changes(self, outputs)
