"""`genesis.compile`: capture a function once, replay it while everything it depended on holds.

A call is looked up by its arguments' types and Python values, grad mode and autocast; then the
guards of its entry are checked (`genesis.tracing.guards`). A hit replays without running the function: as
one `call` node when the function only computes, so that an outer backward and step still form one
plan; as the plan itself when it ended a training step. What cannot be guarded is recorded anew at
each call, like an undecorated function, and `explain` says why.
"""

from __future__ import annotations

import copy
import functools
import inspect
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from operator import is_
from types import CodeType
from typing import Any, TypeVar

from genesis import engine
from genesis.frontend import patches, session
from genesis.frontend.patches import Held
from genesis.frontend.session import Session, take_back
from genesis.frontend.state import lock, state
from genesis.frontend.threads import unlocked_after_fork
from genesis.ir.errors import failure
from genesis.ir.source import Source
from genesis.nn.modules.tree import Tree
from genesis.runtime.contexts import uncollected
from genesis.tracing import stance
from genesis.tracing.attempts import Attempts
from genesis.tracing.explanation import CallShape, Explanation, Recapture, value_text
from genesis.tracing.guards import Guards
from genesis.tracing.last_values import LastValues
from genesis.tracing.options import check_options
from genesis.tracing.replay import Replay, make_replay
from genesis.tracing.results import Result
from genesis.tracing.signature import signature
from genesis.tracing.slots import Slots, find_slots, results_of
from genesis.tracing.snapshot import (
    CompiledBase,
    Entered,
    NotReplayable,
    Unsettled,
    set_by_the_user,
    tensor_identity,
    with_gradients,
)
from genesis.tracing.tracer import Tracer
from genesis.tracing.view_copies import Copied, ViewCopies, without_copies

Function = TypeVar("Function", bound=Callable[..., Any])
_VARIANTS, _SIGNATURES = 64, 64
"""Captures kept for one set of argument types and values, and such sets; beyond these numbers the oldest is dropped."""
_RECAPTURES = 256
"""Recaptures that `explain` remembers."""
_capturing = threading.RLock()
"""One capture at a time."""
unlocked_after_fork(sys.modules[__name__], "_capturing")
_made: weakref.WeakSet[CompiledFunction] = weakref.WeakSet()
"""All compiled functions, for `reset`."""


class CompiledFunction(CompiledBase):
    """A function that is captured and replayed; `genesis.compile` makes it.

    Attributes:
        function: the function that it calls.
        hits: how many calls were replayed.
    """

    def __init__(self, function: Callable[..., Any], fullgraph: bool = False):
        self.function, self.fullgraph = function, fullgraph
        self._lock = threading.RLock()
        unlocked_after_fork(self, "_lock")
        self.reset()
        functools.update_wrapper(self, function)
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        _made.add(self)

    def reset(self) -> None:
        """Forget all captures, and what was learned of the calls."""
        self._entries: dict[Any, list[_Kept]] = {}
        self._attempts, self._views = Attempts(), ViewCopies()
        self._notes: dict[str, None] = {}
        self._ran: dict[CodeType, dict[str, Any]] = {}
        self._latest: CallShape | None = None
        self._recaptures: deque[Recapture] = deque(maxlen=_RECAPTURES)
        self.hits = self._calls = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if state.session is not None and session.active() is not None:  # inside another capture it is part of that one
            return self.function(*args, **kwargs)
        if state.rewriting.calls:  # the arguments are stand-ins, which have no values
            return self.function(*args, **kwargs)
        if stance.unusual and stance.disabled():
            return self.function(*args, **kwargs)
        copied = None
        try:
            key, tensors = signature(args, kwargs)
        except NotReplayable as refusal:
            copied = self._views.of(args, kwargs)
            if copied is None:
                return self._plainly(str(refusal), args, kwargs)
            if not copied.allowed:
                with stance.inside():
                    return copied.watched(lambda: self.function(*args, **kwargs))
            key, tensors = copied.key, copied.tensors
        with self._lock:
            for entry in self._entries.get(key, ()):
                given: Any = tensors
                if entry.slots is not None:
                    given = entry.slots.read(tensors)
                    if given is None or (entry.shares(given) and not entry.shares(tensors)):
                        continue
                if entry.shares(given) or (copied is not None and entry.shares(copied.originals)):
                    return self._plainly("an argument shares memory with a tensor that it knows", args, kwargs)
                if entry.replay.ready(given) and entry.guards.hold():
                    self.hits += 1
                    return entry.replay.run(given)
        if copied is not None and self._entries.get(key):
            copied.watch_again()
            with stance.inside():
                return copied.watched(lambda: self.function(*args, **kwargs))
        if not self._wanted(key):
            with stance.inside():
                return self.function(*args, **kwargs)
        with _capturing, self._lock, stance.inside():
            if copied is not None:
                return self._capture_copies(copied)
            return self._capture(key, tensors, args, kwargs)

    def _capture_copies(self, copied: Copied) -> Any:
        """Capture a call on copies of the views among its arguments."""
        result = self._capture(copied.key, copied.tensors, copied.args, copied.kwargs, copied)
        if not copied.captured(result, self._ran):
            self._entries.pop(copied.key, None)
        return result

    def _plainly(self, reason: str, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Call the function as it is, and note why."""
        reason = self._located(reason)
        if self.fullgraph:
            raise self._unsupported(reason)
        self._notes[reason] = None
        with stance.inside():
            return self.function(*args, **kwargs)

    def _wanted(self, key: Any) -> bool:
        """Whether a call that nothing is replayed for is captured."""
        self._calls += 1
        known = self._entries.get(key)
        if not stance.captures(self.__name__, self._calls, bool(self._entries)):
            return False
        return self.fullgraph or self._attempts.wanted(
            key, self.hits, lambda: known and known[0].slots and known[0].slots.state())

    def _unsupported(self, reason: str) -> Exception:
        return failure("compile", f"{self.__name__} cannot be captured as a whole: {reason}",
                       hint="change that line, or leave out fullgraph=True, which records such calls one by one")

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledFunction:
        """A compiled function of its own, without captures; of a plain function, which copies share, the same one."""
        function = copy.deepcopy(self.function, memo)
        return self if function is self.function else CompiledFunction(function, self.fullgraph)

    def __reduce__(self) -> Any:
        """Pickle the function by its name, as functions are, or as the compiled form of what the name finds."""
        found: Any = sys.modules.get(self.__module__)
        name: str = getattr(self, "__qualname__", self.__name__)
        for part in name.split("."):
            found = getattr(found, part, None)
        return name if found is self else (CompiledFunction, (self.function, self.fullgraph))

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def explain(self) -> Explanation:
        """A text that says what is replayed, what is captured again or recorded at each call, and why."""
        kept = [entry for entries in self._entries.values() for entry in entries]
        head = f"{self.__name__}: {len(kept)} captures, {self.hits} replays"
        recorded = [self._located(x) for x in (*self._notes, *self._attempts.reasons())]
        single = dict.fromkeys(x for entry in kept if entry.slots is not None for x in entry.slots.reasons)
        return Explanation(head, len(kept), self.hits, self._recaptures, dict.fromkeys(recorded), single,
                           self._explained)

    def _explained(self, *args: Any, **kwargs: Any) -> Explanation:
        self(*args, **kwargs)
        return self.explain()

    def _capture(self, key: Any, tensors: list[Any], args: tuple, kwargs: dict[str, Any],
                 copied: Copied | None = None) -> Any:
        roots = [self.function, *(part.value for part in key if isinstance(part, Held)),
                 *(held.value for _, held in patches.replaced)]
        again = self._failed_guard(key)
        entered = Entered(*roots)
        entered.look_up(self._ran)
        before_call = [_state(x) for x in tensors]
        there = [*tensors, *(x for x in with_gradients((*tensors, *entered.world.tensors)) if x.storage.error is None)]
        with suppress(Exception):  # a failed value raises when it is read, as without a capture
            engine.materialize(there)
        entered.uncomputed += [x for x in (*tensors, *there) if x.storage.error is not None or not x.storage.settled]
        engine.end_step()
        entered.note_contents(there)
        effects, values = Session(), LastValues(_entrance)
        tracer = Tracer(entered.enter, effects.give_up)
        effects.refused = tracer.stop
        effects.last_values = values.stand_in
        if copied is not None:
            copied.mirror(effects)
        failed = True
        try:  # a collection may call the user's callbacks, which are no part of the function
            with uncollected, session.running(effects), tracer:
                result = self.function(*args, **kwargs)
            failed = False
        except BaseException:
            effects.refusal = effects.refusal or "it raised"
            raise
        finally:
            tracer.forget()  # no cycle: what the call held is freed when it ends
            if effects.refusal is not None and effects.ended:
                _end_step(effects)
            if failed:
                with suppress(Exception):  # what the function raised says what went wrong
                    values.settle(None)
        self._ran = tracer.globals
        try:
            if effects.refusal or tracer.refusal:
                raise NotReplayable(effects.refusal or tracer.refusal)
            if before_call != [_state(x) for x in tensors]:
                raise NotReplayable("it changes which memory an argument shows, or sets an attribute of it")
            if any(_differs(entered.world.attributes[id(x)], set_by_the_user(x)) for x in entered.world.tensors):
                raise NotReplayable("it sets an attribute of a tensor")
            guards, slots = self._guards(roots, entered, tracer, key, tensors, args, kwargs)
            known = {id(x) for x in _containers((*args, *kwargs.values()))}
            made, given = result, tensors
            if slots is not None:
                if effects.repeats_own_code:  # a replay runs that before it writes to the slots
                    raise NotReplayable("it changes Python's objects around a schedule that calls a function of yours")
                made, given = (result, results_of(slots, guards)), slots.tensors
            shape = Result(made, given, lambda x: guards.knows(x) or id(x) in known or x in entered.world,
                           values.of)
            if slots is not None:
                slots.hold(shape)
            with lock:
                replay = make_replay(effects, shape, given, entered, slots)
            kept = _Kept(guards, replay, slots)
            if kept.shares(given):
                raise NotReplayable("an argument shares memory with a tensor that the function knows already")
            shape_of_call = CallShape(self.function, key, args, kwargs)
            self._recaptures += again or self._other_call(shape_of_call)
            self._latest = shape_of_call
            self._keep(key, kept)
        except NotReplayable as refusal:
            reason = self._located(str(refusal))
            settled = self._attempts.refused(key, reason, isinstance(refusal, Unsettled))
            if effects.refusal is None and effects.ended:
                _end_step(effects)
            later = [x for x in entered.uncomputed if x.storage.error is None]
            if later:
                with suppress(Exception):
                    engine.materialize(later)
            if self.fullgraph and settled:
                values.settle(result)
                raise self._unsupported(reason) from None
        return values.settle(result)

    def _failed_guard(self, key: Any) -> list[Recapture]:
        """What keeps the newest capture of such calls from being replayed."""
        entry = next(iter(self._entries.get(key, ())), None)
        if entry is None:
            return []
        change = None if entry.slots is None else entry.slots.change()
        if change is not None:
            return [Recapture(change[0], value_text(change[1]), value_text(change[2]))]
        different = next(entry.guards.checks.differences(), None)
        if different is not None:
            return [Recapture(different.name, value_text(different.before), value_text(different.now))]
        return [Recapture("a gradient, a set, a class or an optimizer that it reads", "as captured", "changed")]

    def _other_call(self, shape: CallShape) -> list[Recapture]:
        """In what the call differs from the last one that was captured."""
        return [] if self._latest is None else [self._latest.difference(shape)]

    def _located(self, reason: str) -> str:
        """The reason with a line: the one that it names, or the function's first."""
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        return reason if " at " in reason or code is None else f"{reason} at {Source(code, 0)}"

    def _guards(self, roots: Sequence[Any], entered: Entered, tracer: Tracer, key: Any, tensors: Sequence[Any],
                args: tuple, kwargs: dict[str, Any]) -> tuple[Guards, Slots | None]:
        """The guards of the call that was just captured, which hold, and the places that it writes to."""
        guards = Guards(roots, entered, tracer)
        if entered.uncomputed:
            raise Unsettled("it reads a tensor that was not computed yet")
        key_now, tensors_now = signature(args, kwargs)
        if without_copies(key) != key_now or not all(map(is_, tensors, tensors_now)):
            raise Unsettled("it changes an argument, or a mode that it runs in")
        if guards.hold():
            return guards, None
        return find_slots(guards, entered, tensors, lambda slots, given: Guards(roots, entered, tracer, slots, given))

    def _keep(self, key: Any, entry: _Kept) -> None:
        self._attempts.kept(key)
        kept = self._entries.setdefault(key, [])
        kept.insert(0, entry)
        del kept[_VARIANTS:]
        while len(self._entries) > _SIGNATURES:
            del self._entries[next(iter(self._entries))]


_entrance = CompiledFunction._capture.__code__
"""The code that calls a function to capture it."""


class _Kept:
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


def compile(function: Any = None, *, fullgraph: bool = False, dynamic: bool | None = None,
            backend: str | Callable[..., Any] | None = None, mode: str | None = None,
            options: dict[str, Any] | None = None, disable: bool = False) -> Any:
    """The function, or the module, captured at its first call and replayed as one plan afterwards.

    Results are those of the function itself, always: a call whose arguments or surroundings differ is
    captured again, and what cannot be guarded is recorded at each call (`genesis.explain` says what).

    Args:
        function: what to compile; without it, a decorator with these options is returned.
        fullgraph: raise where a call cannot be captured as a whole, rather than record it each time.
        dynamic: as in torch, a wish about sizes. Kernels for several sizes are made by themselves once two were seen,
            and each size has a capture of its own, whatever this is.
        backend: "inductor" or "genesis": Genesis' own; "eager": the function as it is.
        mode: "default", or "reduce-overhead", which changes nothing: replays on a GPU are CUDA graphs anyway.
        options: torch's options of its backend; there are none here.
        disable: return the function as it is.

    Raises:
        RuntimeError: a mode, backend or option that has no meaning here; with `fullgraph`, from a call that cannot be
            captured.

    >>> import genesis
    >>> double = genesis.compile(lambda x: x * 2)
    >>> double(genesis.ones(2)), double(genesis.ones(2))
    (tensor([2., 2.]), tensor([2., 2.]))
    """
    check_options(fullgraph, dynamic, backend, mode, options)
    if function is None:
        return functools.partial(compile, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode,
                                 options=options, disable=disable)
    if disable or backend == "eager":
        return function
    if isinstance(function, Tree):
        return _compiled_module(function, fullgraph)
    if not callable(function):
        raise failure("compile", f"a {type(function).__name__} cannot be called", error=TypeError,
                      hint="a function, a method or a module")
    return CompiledFunction(function, fullgraph)


def reset() -> None:
    """Forget what was captured of all compiled functions: the next call of each is captured anew.

    >>> import genesis
    >>> genesis.compiler.reset()
    """
    for each in list(_made):
        with each._lock:
            each.reset()


def _compiled_module(module: Any, fullgraph: bool = False) -> Any:
    """The module itself, whose call is compiled from now on."""
    if "_compiled_call" in vars(module):
        return module
    kind = type(module)
    compiled = CompiledFunction(functools.wraps(module.forward)(
        lambda *args, **kwargs: kind.__call__(module, *args, **kwargs)), fullgraph)
    fast = type(kind.__name__, (kind,), {"__call__": _call_compiled, "__reduce_ex__": _taken_apart,
                                         "__module__": kind.__module__, "__qualname__": kind.__qualname__})
    object.__setattr__(module, "__class__", fast)
    object.__setattr__(module, "_compiled_call", compiled)
    return module


def _call_compiled(module: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a compiled module."""
    return module._compiled_call(*args, **kwargs)


def _taken_apart(module: Any, protocol: Any) -> Any:
    """The reduced form of a compiled module for copy and pickle: a new one, compiled, and then its attributes."""
    plain = type(module).__bases__[0]
    make, given, *rest = super(type(module), module).__reduce_ex__(protocol)
    given = tuple([plain if x is type(module) else x for x in given])
    if rest and isinstance(rest[0], dict):
        rest[0] = {name: value for name, value in rest[0].items() if name != "_compiled_call"}
    return _made_again, (make, given, module._compiled_call.fullgraph), *rest


def _made_again(make: Callable[..., Any], given: tuple, fullgraph: bool = False) -> Any:
    return _compiled_module(make(*given), fullgraph)


def explain(function: Any) -> Explanation:
    """What of a compiled function is replayed, and why the rest is not.

    Returns:
        A text with the attributes `captures`, `hits`, `recaptures` and `recorded`. Called with a call's arguments, as
        torch's is, it calls the function, compiled, and gives the explanation after that call.

    >>> import genesis
    >>> noisy = genesis.compile(lambda x: x * 2 if x.sum() > 0 else x)
    >>> _ = noisy(genesis.ones(2))
    >>> print(genesis.explain(noisy).splitlines()[1].rpartition(" at ")[0])
      recorded at each call: a value is read while the function runs
    >>> once = genesis.explain(lambda x: x + 1)(genesis.ones(2))
    >>> print(once, once(genesis.ones(2)), once(genesis.ones(3)), sep="\\n")
    <lambda>: 1 captures, 0 replays
    <lambda>: 1 captures, 1 replays
    <lambda>: 2 captures, 1 replays
      captured again: argument x: tensor f32[2] → tensor f32[3]
    """
    compiled = getattr(function, "_compiled_call", function)
    if isinstance(compiled, CompiledFunction):
        return compiled.explain()
    call: Any = function
    if isinstance(function, Tree):  # the module itself stays as it is
        call = functools.wraps(function.forward)(lambda *args, **kwargs: function(*args, **kwargs))  # type: ignore
    head = f"{getattr(function, '__name__', function)!r} is not compiled"
    return Explanation(head, 0, 0, (), (), (), lambda *args, **kwargs: CompiledFunction(call)._explained(
        *args, **kwargs))


__all__ = ["CompiledFunction", "compile", "explain", "reset", "signature"]
