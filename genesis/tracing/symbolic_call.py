"""A captured call over symbolic sizes and numbers: the replays of all calls that differ in nothing else.

When a call comes with a second size, the function runs once more, on stand-ins (`stand_ins.py`), and its program is
taken over symbols. What the function, or an op's own rule, asks of a size or a number is answered by its value and
becomes a guard. A call whose numbers give the same answers gets its replay from here: the captured one, with its graph,
results and numbers filled in. It is the replay that a capture of that call would make; where the stand-ins' program is
not exactly that of a captured call, filled in, nothing is kept.

    seen with 7 and 9 tokens    linear(%0: f32[n0, 8], …)      guard: n0 > 5
    a call with 12              linear(%0: f32[12, 8], …)
    a call with 3               is captured itself
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import chain, starmap
from operator import call as run
from typing import Any, Final

from genesis.engine.plan_lookup import Superseded
from genesis.engine.symbolic.symbolic_program import concrete
from genesis.frontend import session
from genesis.frontend.at_once import at_once, attributes
from genesis.frontend.generator import default_generator
from genesis.frontend.held_handlers import handlers_left, undisturbed
from genesis.frontend.pending import live_pending, next_number
from genesis.frontend.session import Session
from genesis.frontend.threads import others_may_read
from genesis.frontend.traced_number import TracedNumber, evaluated, traced_math
from genesis.frontend.views import View
from genesis.func.vectorize import on_stand_ins
from genesis.ir.errors import failure
from genesis.ir.graph import Graph
from genesis.ir.interrupting import from_inside
from genesis.ir.numbers import LEAST_NUMBER, MOST_NUMBER
from genesis.ir.result_types import forget_sizes_of
from genesis.ir.size_ranges import COMPARISONS
from genesis.ir.sym_int import SymInt, value_at
from genesis.ir.types import TensorType, has_sym_int
from genesis.ir.walk import walk
from genesis.runtime.contexts import uncollected
from genesis.tracing.code_reads import compares_unknown_objects, reads
from genesis.tracing.erased_signature import Erased
from genesis.tracing.find_slots import results_of
from genesis.tracing.last_values import LastValues
from genesis.tracing.replay import computing_anew
from genesis.tracing.replay_call import CallReplay
from genesis.tracing.replay_step import StepReplay
from genesis.tracing.results import Result
from genesis.tracing.slot_access import putting_back
from genesis.tracing.slots import Slots
from genesis.tracing.snapshot import NotReplayable
from genesis.tracing.stand_ins import StandIns, Symbols
from genesis.tracing.symbolic_step import SymbolicStep
from genesis.tracing.trial import Trial, check_alone

MOST_ENTRIES = 64
"""Replays of a template that are kept, for as many sizes; others are filled in again."""


class SymbolicCall:
    """A captured call over symbols.

    Attributes:
        kept: the capture that it was made beside, whose guards hold for it.

    Args:
        capture: a call that was captured last.
        kept: what was kept of it.
        function: what it called.
        symbols: those of its sizes and numbers.

    Raises:
        NotReplayable: it cannot be taken over symbols, and why.
    """

    def __init__(self, capture: Any, kept: Any, function: Callable[..., Any], symbols: Symbols):
        self.kept, self._symbols = kept, symbols
        self._entries: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
        undisturbed(partial(self._made_of, capture, function))

    def _made_of(self, capture: Any, function: Callable[..., Any]) -> None:
        """`_take_over`, of which nothing stays but the replay."""
        first = next_number()
        try:
            with uncollected, default_generator.standing():
                self._take_over(capture, function)
        finally:
            _give_up_pending(first, self.kept.replay.changes_state)
            forget_sizes_of(self._symbols.trace.sizes)

    def _take_over(self, capture: Any, function: Callable[..., Any]) -> None:
        """Run the function on stand-ins, and make its replay."""
        _check(capture, self.kept, self._symbols)
        stand_ins, slots, step = StandIns(self._symbols), self.kept.slots, _step_of(self.kept)
        trial = _trial_of(self.kept.replay, slots)
        effects, values = trial or Session(), LastValues(_entrance)
        effects.last_values = values.stand_in
        contents = capture.entered.contents.union(
            [node for x in capture.entered.world.tensors if (node := x.storage._node) is not None])
        args, kwargs = stand_ins.of(capture.args), stand_ins.of(capture.kwargs)
        given = [] if slots is None else [stand_ins.of(x) for x in slots.given_values()]
        gradients = [] if slots is None else slots.gradients
        for _, x in gradients:
            stand_ins.of(x)
        with _undone(self.kept.guards, slots):
            with nullcontext() if trial is None else trial.undone():
                try:
                    with session.running(effects), on_stand_ins, self._symbols.trace, traced_math():
                        at_once(starmap(run, [attributes([x], "_grad", [before]) for x, before in gradients]))
                        if slots is not None:
                            slots.put(given)
                        items = None if slots is None else slots.items()
                        result = function(*args, **kwargs)
                        after = None if slots is None else slots.values_now(items)
                except from_inside(Exception) as error:  # of the function, which may raise anything for want of values
                    raise NotReplayable(
                        effects.refusal or f"on stand-ins it raises {type(error).__name__}") from None
                if effects.refusal is None and trial is not None:
                    with self._symbols.trace:
                        shape = self._shape_of(capture, stand_ins, result, after, values)
                        self._replay: SymbolicStep | CallReplay = (
                            self._call(capture, trial, stand_ins, shape) if step is None else SymbolicStep(
                                step, capture.effects.ended, trial, shape, stand_ins.tensors,
                                capture.entered.world.tensors, contents))
            if not self.kept.guards.hold() or (slots is not None and not slots.numbers_are(given)):
                raise NotReplayable("it writes to a place what was there in the captured call, and is not in others")
        if effects.refusal:
            raise NotReplayable(effects.refusal)
        if trial is None:
            with self._symbols.trace:
                shape = self._shape_of(capture, stand_ins, result, after, values)
                self._replay = self._call(capture, effects, stand_ins, shape)
        shape.fresh = [None] * len(shape.fresh)  # type: ignore[list-item]  # nobody looks at these any more
        self._shape, self._strides = shape, tuple(stand_ins.strides)
        self._changing, self._results_change = any(self._symbols.number_names), shape.has(TracedNumber)

    def _shape_of(self, capture: Any, stand_ins: StandIns, result: Any, after: Any, values: LastValues) -> Result:
        """The structure of what the function gave on stand-ins, and of what it left in its slots."""
        guards, tensors, entered = self.kept.guards, stand_ins.tensors, capture.entered
        made = result if after is None else (result, results_of(after, tensors, guards))
        return Result(made, tensors, lambda x: guards.knows(x) or x in entered.world, values.of)

    def _call(self, capture: Any, effects: Session, stand_ins: StandIns, shape: Result) -> CallReplay:
        """The symbolic replay of a call that ended no step on stand-ins, and wrote to what the captured one did."""
        tensors, entered = stand_ins.tensors, capture.entered
        effects.forget_made({id(x) for x in (*tensors, *entered.world.tensors)})
        own = {x.storage for x in tensors}
        allowed = own.union([x.storage for x in entered.world.tensors], session.own_storages)
        written = [s for s in effects.writes if s.cell is not None]
        if effects.grads or effects.entry_grads or effects.ended or set(written) != set(self.kept.replay.updated):
            raise NotReplayable("on stand-ins it does something else")
        known = {x.leaf for x in (*tensors, *entered.world.tensors) if x.leaf is not None}
        with computing_anew([s.node for s in (*shape.fresh, *written)], entered.contents):
            found = CallReplay(effects, shape, tensors, allowed, known, self.kept.slots)
        found.share_numbers(self.kept.guards.ran)
        return found

    def same_as(self, call: Erased, kept: Any) -> bool:
        """Whether this makes the replay of a captured call; True for one that it makes none for."""
        values = self._symbols.values(call)
        if values is None or not self._admits_sizes(call, values) or self._symbols.trace.evaluate(values) is None:
            return True
        made = self._filled(kept, values)
        return bool(made.replay.same_as(kept.replay))

    def entry(self, call: Erased) -> Any:
        """The replay of a call; None where a guard does not hold."""
        positions = self._symbols.trace.positions
        values = self._symbols.values(call) if positions else None
        if positions and values is None:
            return None
        at = call.sizes, call.strides, tuple([values[name] for name in positions]) if values is not None else ()
        found = self._entries.get(at)
        if found is not None and not self._changing:
            return found if self._symbols.number_values(call) is not None else None
        values = self._symbols.values(call) if values is None else values
        if values is None or (found is None and not self._admits_sizes(call, values)):
            return None
        known = self._symbols.trace.evaluate(values)
        if known is None:
            return None
        numbers = [evaluated(x, values, known) for x in self._replay.numbers]
        if any(x.__class__ is int and not LEAST_NUMBER <= x <= MOST_NUMBER for x in numbers):
            return None  # the function raises, after what it did before
        if found is None:
            try:
                found = self._entries[at] = self._filled(self.kept, values)
            except (NotReplayable, Superseded):
                return None
            if len(self._entries) > MOST_ENTRIES:
                self._entries.popitem(last=False)
        if not self._changing:
            return found
        return found.with_replay(found.replay.with_numbers(
            numbers, self._shape_for(values) if self._results_change else None))

    def _admits_sizes(self, call: Erased, values: dict[str, Any]) -> bool:
        """Whether the guards on sizes hold, and the tensors lie as their stand-ins do."""
        trace = self._symbols.trace.sizes
        return all(values[name] in kind for name, kind in trace.classes.items()) and all(
            COMPARISONS[name](value_at(size, values), 0) for name, size in trace.guards) and (
            call.strides == tuple([tuple([evaluated(x, values) for x in strides]) for strides in self._strides]))

    def _filled(self, kept: Any, values: dict[str, Any]) -> Any:
        """The capture of a call with these numbers."""
        def value(x: Any) -> Any:
            return evaluated(x, values)
        shape = self._shape_for(values)
        if isinstance(self._replay, SymbolicStep):
            return kept.with_replay(self._replay.filled(self.kept.replay, value, shape))
        return kept.with_replay(self._replay.filled(
            lambda graph: concrete(graph, value), [value(x) for x in self._replay.numbers], shape))

    def _shape_for(self, values: dict[str, Any]) -> Result:
        return self._shape.mapped(lambda x: in_call(x, values))


_entrance: Final = SymbolicCall._take_over.__code__
"""The code that calls a function on stand-ins."""


def _step_of(kept: Any) -> StepReplay | None:
    """The replay of a captured step; None for a call that only computes."""
    return kept.replay if kept.replay.__class__ is StepReplay else None


def _trial_of(replay: Any, slots: Slots | None) -> Trial | None:
    """The trial of a call that changes what stays; None for one that only computes."""
    if not replay.changes_state:
        return None
    given = [] if slots is None else slots.gradients
    gradients = chain(*replay.set_gradients) if replay.__class__ is StepReplay else ()
    return Trial([*replay.updated, *[grad.storage for _, grad in given if grad is not None]],
                 list({id(x): x for x in (*gradients, *[x for x, _ in given])}.values()))


def _check(capture: Any, kept: Any, symbols: Symbols) -> None:
    """Raise NotReplayable if the function cannot run once more without an effect that stays."""
    effects, slots, step = capture.effects, kept.slots, _step_of(kept)
    if kept.replay.writes_arguments:
        raise NotReplayable("it writes to an argument")
    if step is None and (effects.grads or effects.entry_grads):
        raise NotReplayable("it looks at gradients, or sets them, and ends no step")
    if kept.replay.changes_state:
        check_alone()
    if kept.guards.checks.has_caches:
        raise NotReplayable("it calls a function that keeps its results")
    if any(map(kept.guards.knows, (type, id))) or any(
            chain[0] in ("type", "id") for code in kept.guards.ran for chain in reads(code).chains):
        raise NotReplayable("it may ask for the class of a number, or where it is")
    if any(starmap(compares_unknown_objects, kept.guards.ran.items())):
        raise NotReplayable("it may ask whether a number is the same object as another")
    if slots is not None and others_may_read():
        raise NotReplayable("another thread may read what a stand-in takes the place of")
    if slots is not None and handlers_left():
        raise NotReplayable("a signal handler may read what a stand-in takes the place of")
    if slots is not None and not slots.can_run_twice:
        raise NotReplayable("it changes what cannot be put back")


@contextmanager
def _undone(guards: Any, slots: Slots | None) -> Iterator[None]:
    """A context after which all that a call read, or wrote to, is as it was before."""
    kept = nullcontext() if slots is None else slots.kept()
    try:
        with kept:
            yield
    finally:
        kept.__exit__(None, None, None)  # again: what is raised where the `with` ends would leave stand-ins there
        if not guards.hold():
            for x in list(guards.checks.differences()):
                run(*putting_back(x))


def _give_up_pending(first: int, alone: bool) -> None:
    """Nobody can compute what was recorded over symbols since this number, if anybody still holds it.

    Args:
        alone: nobody else has recorded anything since. Then what is computed of no value with a symbol in its type is
            of that too.
    """
    for storage in live_pending():
        if storage.queued >= first and (alone or any(has_sym_int(kind) for node in walk([storage.node])
                                                     for kind in node.types)):
            storage.fail(failure("compile", "a stand-in of genesis.compile has no value"))


def in_call(x: Any, values: dict[str, Any]) -> Any:
    """A value with symbols in it, in a call with these numbers."""
    kind = type(x)
    if kind is SymInt or kind is TracedNumber:
        return evaluated(x, values)
    if kind is tuple:
        return tuple([in_call(y, values) for y in x])
    if kind is TensorType:
        return x if x.weak or not has_sym_int(x) else x.with_shape(in_call(x.shape, values))
    if isinstance(x, View):
        return type(x)(in_call(x.strides, values), evaluated(x.offset, values), in_call(x.steps, values), x.leaf_steps,
                       in_call(x.shapes, values))
    return concrete(x, lambda y: evaluated(y, values)) if kind is Graph else x
