"""One call of a compiled function that is captured: what it depends on, what it does, and the replay made of that."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import is_
from types import CodeType
from typing import Any

from genesis import engine
from genesis.frontend import session
from genesis.frontend.session import Session, take_back
from genesis.frontend.state import lock
from genesis.ir.interrupting import interrupts, keeps_pending, told_later
from genesis.runtime.contexts import uncollected
from genesis.tracing.differences import Difference
from genesis.tracing.find_slots import find_slots, results_of
from genesis.tracing.guards import Guards
from genesis.tracing.last_values import LastValues
from genesis.tracing.places_at_step import PlacesAtStep
from genesis.tracing.plain_values import same
from genesis.tracing.reached import is_always_reached
from genesis.tracing.records import record_fields, written_to
from genesis.tracing.replay import make_replay
from genesis.tracing.replay_base import Replay
from genesis.tracing.results import Result
from genesis.tracing.signature import signature
from genesis.tracing.slots import Place, Slots
from genesis.tracing.snapshot import (
    Entered,
    NotReplayable,
    Unsettled,
    set_by_the_user,
    tensor_identity,
    with_gradients,
)
from genesis.tracing.staying_reads import StayingReads
from genesis.tracing.tracer import Tracer
from genesis.tracing.view_copies import Copied, without_copies


class CallCapture:
    """A call that is run under a tracer, so that calls like it can be replayed: `run`, then `kept` or `refused`.

    Attributes:
        args, kwargs, tensors: the arguments, and those of them that are tensors.
        entered: the state before the call.
        effects: what it did besides making nodes.
        reached_again: the line that rules out a replay is one that the next call comes to as well.
    """

    def __init__(self, roots: Sequence[Any], known: dict[CodeType, dict[str, Any]], key: Any, tensors: list[Any],
                 args: tuple, kwargs: dict[str, Any], copied: Copied | None,
                 numbers: Sequence[Difference] = (), gradients_move: bool = False):
        """Compute what is pending, and note what the call finds.

        Args:
            roots: the function, and what else of Python the call depends on.
            known: `globals` of an earlier capture.
            key, tensors: the signature of the call.
            copied: the copies that the call is made on, if its arguments are views.
            numbers: places of numbers that others change from call to call.
            gradients_move: the gradients that the call finds are other tensors from call to call, or none.
        """
        self._roots, self._key, self.tensors, self.args, self.kwargs = roots, key, tensors, args, kwargs
        self._numbers, self._gradients_move = numbers, gradients_move
        entered = self.entered = Entered(*roots)
        entered.look_up(known)
        self._records = [(x, fields) for x in _containers((*args, *kwargs.values()))
                         if (fields := record_fields(x)) is not None]
        self._before_call = [_state(x) for x in tensors]
        there = [*tensors, *(x for x in with_gradients((*tensors, *entered.world.tensors)) if x.storage.error is None)]
        _compute(there)
        entered.uncomputed += [x for x in (*tensors, *there) if x.storage.error is not None or not x.storage.settled]
        engine.end_step()
        entered.note_contents(there)
        self.effects, self._values = Session(), LastValues(_entrance)
        enter = entered.enter if copied is None else copied.watching(entered.enter)
        self._tracer = Tracer(enter, self.effects.give_up)
        places = PlacesAtStep(entered)
        self.effects.comes_to_step, self.effects.put_back = places.note, places.put_back
        self.effects.refused = self._stop
        self.reached_again = False
        self.effects.last_values = self._values.stand_in
        self._reads = StayingReads(self.effects, entered)
        self.effects.may_read = self._reads.may_read
        if copied is not None:
            copied.mirror(self.effects)

    def _stop(self) -> None:
        """The call does what no replay does: nothing is followed from there on."""
        self.reached_again = not self.effects.beginning and is_always_reached(sys._getframe(1), _entrance)
        self._tracer.stop()

    @property
    def globals(self) -> dict[CodeType, dict[str, Any]]:
        """Code object that ran → the globals that it read: where the next capture looks first."""
        return self._tracer.globals

    def run(self, function: Callable[..., Any]) -> Any:
        """Call the function; its result may hold stand-ins for values that are read last, until `settle`."""
        effects, tracer = self.effects, self._tracer
        failed = False
        try:  # a collection may call the user's callbacks, which are no part of the function
            with uncollected, session.running(effects), tracer:
                result = function(*self.args, **self.kwargs)
        except BaseException as error:
            failed = isinstance(error, Exception)
            effects.refusal = effects.refusal or "it raised"
            raise
        finally:
            tracer.forget()  # no cycle: what the call held is freed when it ends
            effects.refused = tracer.stop  # nor one through this capture, which holds the arguments
            effects.may_read = None  # or through its reads
            if effects.refusal is not None and effects.ended:
                _end_step(effects)
            if failed:  # the program came further than to the values, and may look at them
                with told_later:  # what the function raised says what went wrong
                    self._values.settle(None)
        return result

    def settle(self, result: Any) -> Any:
        """The result with the values that the call read last."""
        return self._values.settle(result)

    def undo(self) -> None:
        """Take the stand-ins back that the call has left, after an exception anywhere before they were settled."""
        self._values.undo()

    def kept(self, result: Any) -> Kept:
        """The capture of the call, which gave this result.

        Raises:
            NotReplayable: calls like it have to be recorded one by one, and why.
        """
        self._check()
        entered, effects, values = self.entered, self.effects, self._values
        effects.forget_made({id(x) for x in (*self.tensors, *entered.world.tensors)})
        guards, slots = self._guards()
        self._reads.check({x.storage for x in guards.tensors})
        guards.checks.contents(self._reads.versions)
        set_first = self._groups_set_first()
        known = {id(x) for x in _containers((*self.args, *self.kwargs.values()))}
        made, given = result, self.tensors
        if slots is not None:
            if effects.repeats_own_code:  # a replay runs that before it writes to the slots
                raise NotReplayable("it changes Python's objects around a schedule that calls a function of yours")
            made, given = (result, results_of(slots.after, slots.tensors, guards)), slots.tensors
        shape = Result(made, given, lambda x: guards.knows(x) or id(x) in known or x in entered.world, values.of)
        if slots is not None:
            slots.set_first, slots.late = set_first, values.late(slots.places())
            slots.hold(shape)
        with lock:
            replay = make_replay(effects, shape, given, entered, slots)
            replay.share_numbers(guards.ran)
        entered.computed.clear()  # what the guards hold on to would keep the arguments' memory
        kept = Kept(guards, replay, slots)
        if kept.shares(given):
            raise NotReplayable("an argument shares memory with a tensor that the function knows already")
        return kept

    def _check(self) -> None:
        """Raise NotReplayable if the call did what no replay does."""
        attributes, refusal = self.entered.world.attributes, self.effects.refusal or self._tracer.refusal
        if refusal:
            raise (Unsettled if self.effects.beginning else NotReplayable)(refusal)
        for detached, reason in self.effects.histories:
            if detached() is not None:
                raise NotReplayable(reason)
        if self._before_call != [_state(x) for x in self.tensors]:
            raise NotReplayable("it changes which memory an argument shows, or sets an attribute of it")
        if any(_differs(attributes[id(x)], set_by_the_user(x)) for x in self.entered.world.tensors):
            raise NotReplayable("it sets an attribute of a tensor")

    def _groups_set_first(self) -> frozenset[int]:
        """The ids of optimizers' groups whose options the call sets before its steps, which find in them what it leaves
        there. The steps of other groups find what was there before the call, or what a schedule has left there.

        Raises:
            NotReplayable: they find something else. A replay asks for the numbers of all its steps at once.
        """
        world, found, first = self.entered.world, dict[int, dict[str, Any]](), dict[int, bool]()
        for group, before, *after in self.effects.options:
            if group in world:
                expected = found.setdefault(id(group), world.of(group))
                of_before = _same_options(expected, before)
                if not of_before and not (_same_options(group, before) and not after):
                    raise NotReplayable("it sets an option of an optimizer before its step, and another one later")
                if first.setdefault(id(group), not of_before) is of_before:
                    raise NotReplayable("it sets an option of an optimizer between two steps")
                found[id(group)] = after[0] if after else expected
        return frozenset(key for key, is_first in first.items() if is_first)

    def _guards(self) -> tuple[Guards, Slots | None]:
        """The guards of the call, which hold, and the places that it writes to."""
        roots, entered, tracer = self._roots, self.entered, self._tracer
        looked_into, counting = frozenset(self.effects.looked_into), frozenset(self.effects.counting)

        def guarded(slots: frozenset[Place] = frozenset(), given: frozenset[Place] = frozenset()) -> Guards:
            return Guards(roots, entered, tracer, slots, given, looked_into, counting)
        guards = guarded()
        if entered.uncomputed:
            raise Unsettled("it reads a tensor that was not computed yet")
        key_now, tensors_now = signature(self.args, self.kwargs)
        if without_copies(self._key) != key_now or not all(map(is_, self.tensors, tensors_now)):
            written_to.update(type(x) for x, fields in self._records if _differs(fields, record_fields(x) or {}))
            raise Unsettled("it changes an argument, or a mode that it runs in")
        numbers = () if self.effects.repeats_own_code else self._numbers
        gradients = list(self.effects.entry_grads.values()) if self._gradients_move else []
        held = guards.hold()
        if held and not numbers and not gradients:
            return guards, None
        return find_slots(guards, held, entered, self.tensors, guarded, numbers, gradients)

    def refused(self) -> None:
        """Run what the call left to its replay: the end of its step, and values that were not computed before it."""
        if self.effects.refusal is None and self.effects.ended:
            _end_step(self.effects)
        later = [x for x in self.entered.uncomputed if x.storage.error is None]
        if later:
            _compute(later)


_entrance = CallCapture.run.__code__
"""The code that calls a function to capture it."""


class Kept:
    """A captured call: its guards, its replay, and the places that it writes to, if any."""

    __slots__ = ("_storages", "guards", "replay", "slots")

    def __init__(self, guards: Guards, replay: Replay, slots: Slots | None):
        self.guards, self.replay, self.slots = guards, replay, slots
        self._storages = replay.storages.union([x.storage for x in guards.tensors])

    def with_replay(self, replay: Any) -> Kept:
        """The same call with a replay for other sizes or numbers, which reads and writes the same storages."""
        found = object.__new__(Kept)
        found.guards, found.replay, found.slots, found._storages = self.guards, replay, replay.slots, self._storages
        return found

    def shares(self, tensors: Sequence[Any]) -> bool:
        """Whether an argument shows memory that the function also knows otherwise, so that writes reach both."""
        return not self._storages.isdisjoint([x.storage for x in tensors])


def _state(x: Any) -> tuple[Any, ...]:
    """The state of a tensor that a call may change besides its content."""
    return (*map(id, tensor_identity(x)[:3]), *tensor_identity(x)[3:],
            {k: id(v) for k, v in set_by_the_user(x).items()})


def _compute(tensors: Sequence[Any]) -> None:
    """Compute these tensors, and every pending write. A value that fails raises when it is read, as without a capture;
    of a write that fails, and is dropped, nobody else would be told."""
    try:
        engine.materialize(tensors)
    except Exception as error:
        if interrupts(error) or all(x.storage.error is None for x in tensors):
            raise


def _differs(before: dict[str, Any], now: dict[str, Any]) -> bool:
    return before.keys() != now.keys() or any(now[name] is not value for name, value in before.items())


def _same_options(group: dict[str, Any], other: dict[str, Any]) -> bool:
    return group.keys() == other.keys() and all(same(other[name], x) for name, x in group.items())


def _end_step(effects: Session) -> None:
    """Run the step of a call that cannot be replayed; if that fails, schedules do not move on either, unless all of it
    stays pending."""
    held = engine.held_at_step(effects)
    try:
        engine.end_step(effects.wrote)
    except BaseException as error:
        if not keeps_pending(error):
            effects.put_back()
            take_back(again for _, again in effects.numbers)
        raise
    finally:
        held.clear()


def _containers(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        fields = value if isinstance(value, (list, dict, tuple)) else record_fields(value)
        if fields is not None:
            yield value
            yield from _containers(fields.values() if isinstance(fields, dict) else fields)
