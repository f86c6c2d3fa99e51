"""A call that ended a training step, or gave gradients, done again: its plan, over the same memories."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import repeat, starmap
from operator import attrgetter, is_, itemgetter, setitem
from operator import call as operate
from types import CodeType
from typing import TYPE_CHECKING, Any

from genesis.engine.interruption import beside, left_behind
from genesis.engine.running import replay
from genesis.engine.state import engine_state
from genesis.frontend.at_once import Change, Expected, at_once, attributes, changes
from genesis.frontend.pending import live_pending
from genesis.frontend.session import Session, forget_last, take_back
from genesis.frontend.state import lock, state
from genesis.frontend.storage import Cell, Storage
from genesis.frontend.threads import others
from genesis.ir.types import Device, TensorType
from genesis.runtime.plan import Memories, Rewritten
from genesis.tracing.leaf_hooks import LeafHooks
from genesis.tracing.replay_base import Replay
from genesis.tracing.replay_sources import Live, live_positions, look_ahead, same_numbers
from genesis.tracing.results import Result
from genesis.tracing.slots import Slots
from genesis.tracing.step_call import StepCall
from genesis.tracing.step_capture import CapturedStep, captured_step
from genesis.tracing.step_gradients import StepGradients
from genesis.tracing.step_memories import StepMemories
from genesis.tracing.step_writes import compute_before, overwritten

if TYPE_CHECKING:
    from genesis.engine.compilation import Compiled

_grad_of = attrgetter("_grad")
_SAME = ("_entry_tensors", "_entry_grads", "_cleared", "_graded")
"""Lists of tensors that two replays that do the same have in common."""


class StepReplay(Replay):
    """A call that ended a training step: its plan, run over the same memories again.

    What stays from call to call (parameters, optimizer state, gradients that nobody else holds) is
    checked in a few C loops, and not at all when no storage was touched since the last replay.
    """

    def __init__(self, effects: Session, shape: Result, tensors: Sequence[Any], allowed: set[Storage],
                 slots: Slots | None = None):
        super().__init__(effects, shape, tensors, slots)
        entry = list(effects.entry_grads.values())
        self._entry_tensors, self._entry_grads = [x for x, _ in entry], [grad for _, grad in entry]
        self._cleared = [x for x, _ in effects.grads.values() if x._grad is None]
        captured = captured_step(effects, shape, tensors, allowed)
        self._compiled = captured.compiled
        self._take_over(captured, tensors)
        program = captured.flush.captured
        self._numbers = list(program.numbers)
        self._number_places: list[list[int]] = []  # of the function's numbers, where these change
        self._live = live_positions(effects, program.number_nodes)

    def _take_over(self, captured: CapturedStep, tensors: Sequence[Any]) -> None:
        """Note the memories of the plan that just ran."""
        flush, graded = captured.flush, captured.graded
        self._memories, self._tracked_writes = StepMemories(captured.sources), -1
        arguments = {x.storage: i for i, x in enumerate(tensors)}
        targets: list[Any] = [arguments.get(s, s) for s in flush.updates]
        self._targets = targets
        self._written_arguments = [t for t in targets if t.__class__ is int]
        self._own_arguments = len(tensors) if self._slots is None else self._slots.before_gradients
        self._takes_own = self._is_given_one_of(graded)
        self._updated: list[Any] = [t for t in targets if t.__class__ is not int]
        self._runs = [0]
        for storage in self._updated:
            storage.replays = (*storage.replays, self._runs)
        position = {id(s): i for i, s in enumerate(flush.outputs)}
        self._results = [(position[id(s)], s.type) for s in self._shape.fresh]
        self._asked = flush.asked
        self._graded = graded
        self._given_last = StepGradients([x._grad for x in graded])
        self._grad_positions = [position[id(s)] for s in self._given_last.storages]
        self._news = _all_at(self._grad_positions)
        self._other_outputs = tuple(set(range(len(flush.outputs))).difference(self._grad_positions))
        self._rewritten: Rewritten | None = None
        self._touched = self._looks = -1
        self.storages = frozenset([*self._memories.fixed, *self._updated])
        self._histories = {storage for storage in self.storages if storage.needs_grad}

    def _is_given_one_of(self, graded: Sequence[Any]) -> bool:
        """Whether the call is given the gradient of one of these, in whose place it leaves another: at the next call
        one that it has left itself, which it may read, write to, give away or keep."""
        owners, given = set(map(id, graded)), [] if self._slots is None else self._slots.gradients
        return any(gradient is not None and id(x) in owners for x, gradient in given)

    @property
    def writes_arguments(self) -> bool:
        """Whether it writes to tensors among its arguments, apart from gradients that it is given."""
        return any(argument < self._own_arguments for argument in self._written_arguments)

    def targets(self, tensors: Sequence[Any]) -> list[Storage]:
        """The storages that a call with these tensors writes to, gradients that it is given among them."""
        return [tensors[t].storage if t.__class__ is int else t for t in self._targets]

    @property
    def updated(self) -> list[Any]:
        return self._updated

    @property
    def changes_state(self) -> bool:
        return True

    @property
    def set_gradients(self) -> tuple[list[Any], list[Any]]:
        """(the tensors that it leaves without a gradient, those that it gives a new one)."""
        return self._cleared, self._graded

    @property
    def hooks(self) -> LeafHooks:
        """The leaf tensors that it differentiates by."""
        return self._hooks

    @property
    def given_last(self) -> StepGradients:
        """The gradients that it gave last."""
        return self._given_last

    def finds(self, tensors: Sequence[Any], gradients: Sequence[Any]) -> bool:
        """Whether it looks at the gradients of these tensors, and has to find these."""
        there = dict(zip(map(id, self._entry_tensors), self._entry_grads, strict=True))
        return there.keys() == {*map(id, tensors)} and all(
            there[id(x)] is grad for x, grad in zip(tensors, gradients, strict=True))

    @property
    def shape_and_slots(self) -> tuple[Result, Slots | None]:
        """The structure of its result, and the places that it writes to."""
        return self._shape, self._slots

    @property
    def device(self) -> Device:
        """Where it runs."""
        return self._compiled.plan.device

    def outputs_of(self, fresh: Sequence[Storage]) -> tuple[list[Storage], int]:
        """The outputs of its plan, in order, in a call that made these storages for its result and whose tensors have
        their gradients; and how many of them are asked for by themselves."""
        at = dict(zip([position for position, _ in self._results], fresh, strict=True))
        at |= dict(zip(self._grad_positions, [x._grad.storage for x in self._graded], strict=True))
        return [at[position] for position in sorted(at)], self._asked

    def of_other_sizes(self, compiled: Compiled, sources: list[Any], numbers: list[Any], places: list[list[int]],
                       live: Live, shape: Result, kinds: Sequence[TensorType]) -> StepReplay:
        """The replay of another call, whose plan over these memories does the same for other sizes.

        Args:
            places: where among the numbers each of the function's is.
            live: see `live_positions`.
            kinds: the types of what it makes for its result.
        """
        found = self._of_another_call(shape)
        found._compiled, found._numbers, found._number_places, found._live = compiled, numbers, places, live
        found._memories, found._tracked_writes = StepMemories(sources), -1
        found._results = [(position, kind) for (position, _), kind in zip(self._results, kinds, strict=True)]
        found._rewritten, found._touched, found._looks = None, -1, -1
        found.storages = frozenset([*found._memories.fixed, *found._updated])
        return found

    def same_as(self, other: Any) -> bool:
        return other.__class__ is StepReplay and self._compiled is other._compiled and (
            self._shape.same_as(other._shape) and self._results == other._results
            and self._memories.same_as(other._memories)
            and (self._written_arguments, self._updated) == (other._written_arguments, other._updated)
            and all(are_same(getattr(self, name), getattr(other, name)) for name in _SAME)
            and self._grad_positions == other._grad_positions
            and same_numbers((self._numbers, self._live), (other._numbers, other._live))
            and self._hooks.same_as(other._hooks))

    def share_numbers(self, codes: Collection[CodeType]) -> None:
        """A step's plan takes its numbers as they are: there is no node for each."""

    def ready(self, tensors: Sequence[Any]) -> bool:
        """True if gradients are as they were at the captured call's start, meet no hooks, and flow through no more than
        before, and no region is entered."""
        if self._tracked_writes != state.tracked_writes:
            if any(storage.needs_grad and storage not in self._histories for storage in self.storages):
                return False
            self._tracked_writes = state.tracked_writes
        return (not state.regions and self._hooks.absent(tensors)
                and all(map(is_, map(_grad_of, self._entry_tensors), self._entry_grads)))

    def with_numbers(self, numbers: Sequence[Any], shape: Result | None = None) -> NumberedStep:
        """The same replay with other numbers, those of the function in order, and other results if these differ."""
        found = self._numbers.copy()
        for places, value in zip(self._number_places, numbers, strict=True):
            for at in places:
                found[at] = value
        return NumberedStep(self, found, shape)

    def run(self, tensors: Sequence[Any]) -> Any:
        """Run the plan; returns the function's result over new memory."""
        return self.run_call(StepCall(self, tensors, self._numbers, self._shape, self._slots))

    def run_call(self, call: StepCall) -> Any:
        """Run the plan for a call; returns the function's result over new memory."""
        with lock:
            record = engine_state.record
            if record is None or left_behind(record):
                call.complete()
            else:
                with beside(record):
                    call.complete()
        made: Any = call.made
        return call.shape.value(made) if call.slots is None else call.slots.result(call.shape, made)

    def run_once(self, call: StepCall) -> None:
        """Run the plan for a call, which is done then.

        Raises:
            Superseded: nothing has been done, as something else ran or was recorded meanwhile.
        """
        if state.pending:
            compute_before(live_pending())
        memories = self._memories.bound
        self._memories.give(call.tensors)
        call.untouched = self._touched == state.touched
        if not call.untouched:
            self._memories.refresh()
        back = [] if call.slots is None else call.slots.first_as_now()
        try:
            if back and call.slots is not None:
                call.slots.put_first(call.shape)
            self._run_now(call, memories)
        except BaseException:
            if back and not call.done:
                at_once(changes((), back))
            raise

    def _run_now(self, call: StepCall, memories: Memories[Any]) -> None:
        """Run the plan for a call over these memories, which have been given what it takes."""
        if self._live:
            forget_last(again for again, _ in self._live)
        rewrites = False
        try:  # from here on a schedule may have taken its step
            call.counted, call.expected = look_ahead(call.numbers, self._live)
            # Nobody could get hold of what the last run made.
            unseen = call.untouched and self._looks == state.grad_looks
            # A gradient that the call takes is one tensor, and the one that it leaves is another.
            unseen = unseen and not self._takes_own
            call.ours = bool(self._graded) and (unseen or self._given_last.held_alone(self._graded))
            memories.rewritten = call.rewritten = self._rewritten if unseen else None
            # The plan writes to the gradients' memory again.
            rewrites = call.ours and self._compiled.backend.asynchronous
            if rewrites and call.rewritten is None:
                at_once(starmap(operate, [attributes(self._given_last.cells, "memory", repeat(None))]))
            replay(call, self._compiled, memories, call.numbers)
        except BaseException:
            if not call.done:
                take_back(again for again, _ in self._live)
                if rewrites:
                    self._looks = -1  # first: the gradients are not those of the last call any more
                    at_once(starmap(operate, [attributes(self._graded, "_grad", repeat(None))]))
            raise

    def changes(self, call: StepCall, outputs: Sequence[Any]) -> tuple[list[Change], list[Expected], int]:
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
            given = [call.tensors[argument].storage for argument in self._written_arguments]
            found += overwritten(given, self._updated, held, expected)
        if self._cleared:
            held.append(list(map(_grad_of, self._cleared)))
            found.append(attributes(self._cleared, "_grad", repeat(None)))
        if self._graded:
            found += self._gradients(call, outputs, held)
        fresh = [Storage(kind, None, Cell(outputs[index])) for index, kind in self._results]
        made = call.shape.tensors(fresh, call.tensors)
        if call.slots is not None:
            held += call.slots.changes(call.shape, made, found, expected)
        found += [(setattr, self, "_touched", touched), (setattr, self, "_looks", looks),
                  (setattr, call, "made", made)]
        return found, expected, touched

    def _gradients(self, call: StepCall, outputs: Sequence[Any], held: list[Any]) -> list[Change]:
        """The changes that give each gradient its new memory. Where the plan wrote to the memory that they have, there
        are none."""
        stamp = self._memories.bound.outputs
        if call.rewritten is not None and call.rewritten.stamp is stamp:
            return []
        rewritten = None if stamp is None else Rewritten(stamp, self._other_outputs)
        news = self._news(outputs)
        return [*self._given_last.moved(news, self._graded, call.ours, held),
                (setattr, self, "_rewritten", rewritten)]


def _all_at(positions: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """What gives the items at these positions: one call of C for hundreds (`benchmarks/host_time.py`)."""
    if len(positions) < 2:  # then `itemgetter` gives no tuple
        return lambda items: [items[at] for at in positions]
    return itemgetter(*positions)


class NumberedStep:
    """A step's replay with other numbers. What it knows of its memories, it knows for all of them.

    Attributes:
        slots: the places that it writes to, with what it puts there.
    """

    def __init__(self, step: StepReplay, numbers: list[Any], shape: Result | None):
        self._step, self._numbers = step, numbers
        own, slots = step.shape_and_slots
        self._shape = own if shape is None else shape
        self.slots = slots if slots is None or shape is None else slots.filled(shape)

    def ready(self, tensors: Sequence[Any]) -> bool:
        """See `StepReplay.ready`."""
        return self._step.ready(tensors)

    def run(self, tensors: Sequence[Any]) -> Any:
        """Run the plan; returns the function's result over new memory."""
        return self._step.run_call(StepCall(self._step, tensors, self._numbers, self._shape, self.slots))


def are_same(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether both are the same objects in the same order."""
    return len(a) == len(b) and all(map(is_, a, b))
