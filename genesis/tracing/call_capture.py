"""One call of a compiled function that is captured: what it depends on, what it does, and the replay made of that."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from operator import is_
from types import CodeType
from typing import Any

from genesis import engine
from genesis.frontend import session
from genesis.frontend.session import Session, take_back
from genesis.frontend.state import lock
from genesis.runtime.contexts import uncollected
from genesis.tracing.guards import Guards
from genesis.tracing.last_values import LastValues
from genesis.tracing.reached import is_always_reached
from genesis.tracing.replay import Replay, make_replay
from genesis.tracing.results import Result
from genesis.tracing.signature import signature
from genesis.tracing.slots import Slots, find_slots, results_of
from genesis.tracing.snapshot import (
    Entered,
    NotReplayable,
    Unsettled,
    set_by_the_user,
    tensor_identity,
    with_gradients,
)
from genesis.tracing.tracer import Tracer
from genesis.tracing.view_copies import Copied, without_copies


class CallCapture:
    """A call that is run under a tracer, so that calls like it can be replayed: `run`, then `kept` or `refused`.

    Attributes:
        reached_again: the line that rules out a replay is one that the next call comes to as well.
    """

    def __init__(self, roots: Sequence[Any], known: dict[CodeType, dict[str, Any]], key: Any, tensors: list[Any],
                 args: tuple, kwargs: dict[str, Any], copied: Copied | None):
        """Compute what is pending, and note what the call finds.

        Args:
            roots: the function, and what else of Python the call depends on.
            known: `globals` of an earlier capture.
            key, tensors: the signature of the call.
            copied: the copies that the call is made on, if its arguments are views.
        """
        self._roots, self._key, self._tensors, self._args, self._kwargs = roots, key, tensors, args, kwargs
        entered = self._entered = Entered(*roots)
        entered.look_up(known)
        self._before_call = [_state(x) for x in tensors]
        there = [*tensors, *(x for x in with_gradients((*tensors, *entered.world.tensors)) if x.storage.error is None)]
        with suppress(Exception):  # a failed value raises when it is read, as without a capture
            engine.materialize(there)
        entered.uncomputed += [x for x in (*tensors, *there) if x.storage.error is not None or not x.storage.settled]
        engine.end_step()
        entered.note_contents(there)
        self._effects, self._values = Session(), LastValues(_entrance)
        self._tracer = Tracer(entered.enter, self._effects.give_up)
        self._effects.refused = self._stop
        self.reached_again = False
        self._effects.last_values = self._values.stand_in
        if copied is not None:
            copied.mirror(self._effects)

    def _stop(self) -> None:
        """The call does what no replay does: nothing is followed from there on."""
        self.reached_again = is_always_reached(sys._getframe(1), _entrance)
        self._tracer.stop()

    @property
    def globals(self) -> dict[CodeType, dict[str, Any]]:
        """Code object that ran → the globals that it read: where the next capture looks first."""
        return self._tracer.globals

    def run(self, function: Callable[..., Any]) -> Any:
        """Call the function; its result may hold stand-ins for values that are read last, until `settle`."""
        effects, tracer = self._effects, self._tracer
        failed = True
        try:  # a collection may call the user's callbacks, which are no part of the function
            with uncollected, session.running(effects), tracer:
                result = function(*self._args, **self._kwargs)
            failed = False
        except BaseException:
            effects.refusal = effects.refusal or "it raised"
            raise
        finally:
            tracer.forget()  # no cycle: what the call held is freed when it ends
            effects.refused = tracer.stop  # nor one through this capture, which holds the arguments
            if effects.refusal is not None and effects.ended:
                _end_step(effects)
            if failed:
                with suppress(Exception):  # what the function raised says what went wrong
                    self._values.settle(None)
        return result

    def settle(self, result: Any) -> Any:
        """The result with the values that the call read last."""
        return self._values.settle(result)

    def kept(self, result: Any) -> Kept:
        """The capture of the call, which gave this result.

        Raises:
            NotReplayable: calls like it have to be recorded one by one, and why.
        """
        self._check()
        entered, effects, values = self._entered, self._effects, self._values
        effects.forget_made({id(x) for x in (*self._tensors, *entered.world.tensors)})
        guards, slots = self._guards()
        known = {id(x) for x in _containers((*self._args, *self._kwargs.values()))}
        made, given = result, self._tensors
        if slots is not None:
            if effects.repeats_own_code:  # a replay runs that before it writes to the slots
                raise NotReplayable("it changes Python's objects around a schedule that calls a function of yours")
            made, given = (result, results_of(slots, guards)), slots.tensors
        shape = Result(made, given, lambda x: guards.knows(x) or id(x) in known or x in entered.world, values.of)
        if slots is not None:
            slots.hold(shape)
        with lock:
            replay = make_replay(effects, shape, given, entered, slots)
        entered.computed.clear()  # what the guards hold on to would keep the arguments' memory
        kept = Kept(guards, replay, slots)
        if kept.shares(given):
            raise NotReplayable("an argument shares memory with a tensor that the function knows already")
        return kept

    def _check(self) -> None:
        """Raise NotReplayable if the call did what no replay does."""
        attributes, refusal = self._entered.world.attributes, self._effects.refusal or self._tracer.refusal
        if refusal:
            raise NotReplayable(refusal)
        if self._before_call != [_state(x) for x in self._tensors]:
            raise NotReplayable("it changes which memory an argument shows, or sets an attribute of it")
        if any(_differs(attributes[id(x)], set_by_the_user(x)) for x in self._entered.world.tensors):
            raise NotReplayable("it sets an attribute of a tensor")

    def _guards(self) -> tuple[Guards, Slots | None]:
        """The guards of the call, which hold, and the places that it writes to."""
        roots, entered, tracer = self._roots, self._entered, self._tracer
        guards = Guards(roots, entered, tracer)
        if entered.uncomputed:
            raise Unsettled("it reads a tensor that was not computed yet")
        key_now, tensors_now = signature(self._args, self._kwargs)
        if without_copies(self._key) != key_now or not all(map(is_, self._tensors, tensors_now)):
            raise Unsettled("it changes an argument, or a mode that it runs in")
        if guards.hold():
            return guards, None
        return find_slots(guards, entered, self._tensors,
                          lambda slots, given: Guards(roots, entered, tracer, slots, given))

    def refused(self) -> None:
        """Run what the call left to its replay: the end of its step, and values that were not computed before it."""
        if self._effects.refusal is None and self._effects.ended:
            _end_step(self._effects)
        later = [x for x in self._entered.uncomputed if x.storage.error is None]
        if later:
            with suppress(Exception):  # a failed value raises when it is read
                engine.materialize(later)


_entrance = CallCapture.run.__code__
"""The code that calls a function to capture it."""


class Kept:
    """A captured call: its guards, its replay, and the places that it writes to, if any."""

    __slots__ = ("_storages", "guards", "replay", "slots")

    def __init__(self, guards: Guards, replay: Replay, slots: Slots | None):
        self.guards, self.replay, self.slots = guards, replay, slots
        self._storages = replay.storages.union([x.storage for x in guards.tensors])

    def shares(self, tensors: Sequence[Any]) -> bool:
        """Whether an argument shows memory that the function also knows otherwise, so that writes reach both."""
        return not self._storages.isdisjoint([x.storage for x in tensors])


def _state(x: Any) -> tuple[Any, ...]:
    """The state of a tensor that a call may change besides its content."""
    return (*map(id, tensor_identity(x)[:3]), *tensor_identity(x)[3:],
            {k: id(v) for k, v in set_by_the_user(x).items()})


def _differs(before: dict[str, Any], now: dict[str, Any]) -> bool:
    return before.keys() != now.keys() or any(now[name] is not value for name, value in before.items())


def _end_step(effects: Session) -> None:
    """Run the step of a call that cannot be replayed; if that fails, the optimizers' counts do not move on either."""
    held = engine.held_at_step(effects)
    try:
        engine.end_step()
    except BaseException:
        take_back(again for _, again in effects.numbers)
        raise
    finally:
        held.clear()


def _containers(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (list, dict, tuple)):
            yield value
            yield from _containers(value.values() if isinstance(value, dict) else value)
