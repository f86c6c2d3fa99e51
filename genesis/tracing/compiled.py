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
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from operator import is_
from typing import Any, TypeVar

from genesis import engine
from genesis.autograd import anomaly
from genesis.config import config
from genesis.frontend import patches, session
from genesis.frontend.autocast_policy import state as autocast_state
from genesis.frontend.default_dtypes import default_dtype
from genesis.frontend.grad_mode import mode
from genesis.frontend.patches import Held
from genesis.frontend.recording import FREED, TensorBase
from genesis.frontend.session import Session, take_back
from genesis.frontend.state import lock, state
from genesis.frontend.storage import Layout
from genesis.frontend.threads import unlocked_after_fork
from genesis.ir.source import Source
from genesis.nn.modules.tree import Tree
from genesis.ops import creation
from genesis.tracing.code_reads import place_of
from genesis.tracing.guards import Guards
from genesis.tracing.replay import Replay, make_replay
from genesis.tracing.results import Result
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

Function = TypeVar("Function", bound=Callable[..., Any])
_VARIANTS, _SIGNATURES = 8, 64
"""Captures kept for one set of argument types and values, and such sets; beyond these numbers the oldest is dropped."""
_ATTEMPTS = 3
"""Captures of a call that still changes what it reads, as one that fills a cache does, before giving up."""
_MISSES = 24
"""Captures in a row without a replay between them, before giving up."""
_SHARED: Any = ("shared",)
"""The key of the reason why calls are recorded whose arguments share memory."""
_capturing = threading.RLock()
"""One capture at a time."""
unlocked_after_fork(sys.modules[__name__], "_capturing")


class CompiledFunction(CompiledBase):
    """A function that is captured and replayed; `genesis.compile` makes it.

    Attributes:
        function: the function that it calls.
        hits: how many calls were replayed.
    """

    def __init__(self, function: Callable[..., Any]):
        self.function = function
        self._entries: dict[Any, list[_Kept]] = {}
        self._recorded: dict[Any, str] = {}
        self._attempts: Counter[Any] = Counter()
        self._lock = threading.RLock()
        unlocked_after_fork(self, "_lock")
        self._misses = 0
        self.hits = 0
        functools.update_wrapper(self, function)
        self.__name__ = getattr(function, "__name__", type(function).__name__)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if state.session is not None and session.active() is not None:  # inside another capture it is part of that one
            return self.function(*args, **kwargs)
        if session.rewriting.calls:  # the arguments are stand-ins, which have no values
            return self.function(*args, **kwargs)
        try:
            key, tensors = signature(args, kwargs)
        except NotReplayable as refusal:
            self._recorded[None] = self._located(str(refusal))
            return self.function(*args, **kwargs)
        if key in self._recorded:
            return self.function(*args, **kwargs)
        with self._lock:
            for entry in self._entries.get(key, ()):
                if entry.shares(tensors):
                    self._recorded[_SHARED] = self._located("an argument shares memory with a tensor that it knows")
                    return self.function(*args, **kwargs)
                if entry.replay.ready(tensors) and entry.guards.hold():
                    self.hits += 1
                    self._misses = 0
                    return entry.replay.run(tensors)
        if self._misses >= _MISSES:
            self._recorded[None] = self._located("its arguments, or what it reads, differ from call to call")
            return self.function(*args, **kwargs)
        with _capturing, self._lock:
            return self._capture(key, tensors, args, kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledFunction:
        """A compiled function of its own, without captures; of a plain function, which copies share, the same one."""
        function = copy.deepcopy(self.function, memo)
        return self if function is self.function else CompiledFunction(function)

    def __reduce__(self) -> Any:
        """Pickle the function by its name, as functions are, or as the compiled form of what the name finds."""
        found: Any = sys.modules.get(self.__module__)
        name: str = getattr(self, "__qualname__", self.__name__)
        for part in name.split("."):
            found = getattr(found, part, None)
        return name if found is self else (CompiledFunction, (self.function,))

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def explain(self) -> str:
        """A text that says what is replayed, what is recorded at each call, and why."""
        lines = [f"{self.__name__}: {sum(map(len, self._entries.values()))} captures, {self.hits} replays"]
        lines += [f"  recorded at each call: {reason}" for reason in dict.fromkeys(self._recorded.values())]
        return "\n".join(lines)

    def _capture(self, key: Any, tensors: list[Any], args: tuple, kwargs: dict[str, Any]) -> Any:
        roots = [self.function, *(part.value for part in key if isinstance(part, Held)),
                 *(held.value for _, held in patches.replaced)]
        entered = Entered(*roots)
        before_call = [_state(x) for x in tensors]
        there = [*tensors, *(x for x in with_gradients((*tensors, *entered.world.tensors)) if x.storage.error is None)]
        with suppress(Exception):  # a failed value raises when it is read, as without a capture
            engine.materialize(there)
        entered.uncomputed += [x for x in (*tensors, *there) if x.storage.error is not None or not x.storage.settled]
        engine.end_step()
        entered.note_contents(there)
        effects, tracer = Session(), Tracer(entered.enter)
        before = session.enter(effects)
        try:
            with tracer:
                result = self.function(*args, **kwargs)
        except BaseException:
            effects.refusal = effects.refusal or "it raised"
            raise
        finally:
            session.enter(before)
            if effects.refusal is not None and effects.ended:
                _end_step(effects)
        self._misses += 1
        try:
            if effects.refusal or tracer.refusal:
                raise NotReplayable(effects.refusal or tracer.refusal)
            if before_call != [_state(x) for x in tensors]:
                raise NotReplayable("it changes which memory an argument shows, or sets an attribute of it")
            if any(_differs(entered.world.attributes[id(x)], set_by_the_user(x)) for x in entered.world.tensors):
                raise NotReplayable("it sets an attribute of a tensor")
            guards = self._guards(roots, entered, tracer, key, tensors, args, kwargs)
            known = {id(x) for x in _containers((*args, *kwargs.values()))}
            shape = Result(result, tensors, lambda x: guards.knows(x) or id(x) in known)
            with lock:
                replay = make_replay(effects, shape, tensors, entered)
            kept = _Kept(guards, replay)
            if kept.shares(tensors):
                raise NotReplayable("an argument shares memory with a tensor that the function knows already")
            self._keep(key, kept)
        except NotReplayable as refusal:
            self._refused(key, refusal)
            if effects.refusal is None and effects.ended:
                _end_step(effects)
            later = [x for x in entered.uncomputed if x.storage.error is None]
            if later:
                with suppress(Exception):
                    engine.materialize(later)
        return result

    def _located(self, reason: str) -> str:
        """The reason with a line: the one that it names, or the function's first."""
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        return reason if " at " in reason or code is None else f"{reason} at {Source(code, 0)}"

    def _guards(self, roots: Sequence[Any], entered: Entered, tracer: Tracer, key: Any, tensors: Sequence[Any],
                args: tuple, kwargs: dict[str, Any]) -> Guards:
        """The guards of the call that was just captured; they hold."""
        guards = Guards(roots, entered, tracer)
        if entered.uncomputed:
            raise Unsettled("it reads a tensor that was not computed yet")
        key_now, tensors_now = signature(args, kwargs)
        if key != key_now or not all(map(is_, tensors, tensors_now)):
            raise Unsettled("it changes an argument, or a mode that it runs in")
        if not guards.hold():
            name = guards.checks.difference()
            raise Unsettled(f"it changes {name!r}, which it reads{place_of(name, tracer.globals)}" if name else
                            "it changes something that it reads (an attribute, a container, a variable)")
        return guards

    def _keep(self, key: Any, entry: _Kept) -> None:
        kept = self._entries.setdefault(key, [])
        kept.insert(0, entry)
        del kept[_VARIANTS:]
        while len(self._entries) > _SIGNATURES:
            del self._entries[next(iter(self._entries))]

    def _refused(self, key: Any, refusal: NotReplayable) -> None:
        self._attempts[key] += 1
        if not isinstance(refusal, Unsettled) or self._attempts[key] >= _ATTEMPTS:
            self._recorded[key] = self._located(str(refusal))
        if len(self._recorded) > _SIGNATURES:
            del self._recorded[next(iter(self._recorded))]
            self._attempts.clear()


class _Kept:
    """A captured call: its guards, and its replay."""

    __slots__ = ("_storages", "guards", "replay")

    def __init__(self, guards: Guards, replay: Replay):
        self.guards, self.replay = guards, replay
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


def signature(args: tuple, kwargs: dict[str, Any]) -> tuple[Any, list[Any]]:
    """(key, tensors): a key of the arguments' types and values, and the tensors among them, each once.

    Raises NotReplayable for an argument that cannot be compared.
    """
    tensors: list[Any] = []
    key: list[Any] = [mode.enabled, mode.inference, creation._default_device, default_dtype("float"), anomaly.enabled,
                      config.key(), patches.replaced]
    if autocast_state.dtypes is not None:
        key.append(tuple(sorted((name, dtype.name) for name, dtype in autocast_state.dtypes.items())))
    for value in args:
        _describe(value, key, tensors)
    for name, value in kwargs.items():
        key.append(name)
        _describe(value, key, tensors)
    return tuple(key), tensors


def _describe(value: Any, key: list[Any], tensors: list[Any]) -> None:
    if isinstance(value, TensorBase):
        for index, other in enumerate(tensors):
            if other is value:
                key.append(("same", index))
                return
            if other.storage is value.storage:
                raise NotReplayable("two arguments share memory")
        if value.detached is not None and value.detached.history is not None:
            raise NotReplayable("an argument was detached, and written to with what requires grad: pass its clone()")
        part = value.part
        if part is not None and (part.__class__ is not Layout or value.leaf is not None):
            raise NotReplayable("an argument is a view of other memory: pass its clone()")
        tensors.append(value)
        key.append(value.type if part is None else (value.type, part.strides, part.steps))
        key.append((value.leaf is None, value.leaf == FREED, value.detached is None,
                    value.storage.needs_grad, value.__class__, value.is_view, value.storage.inference))
        if value.__dict__:
            for name, item in set_by_the_user(value).items():
                key.append(name)
                _describe(item, key, tensors)
    elif value is None or isinstance(value, (bool, int, float, str, bytes)):
        key.append((type(value), repr(value) if isinstance(value, float) else value))
    elif isinstance(value, (list, tuple)):
        key.append((type(value), len(value)))
        for item in value:
            _describe(item, key, tensors)
    elif isinstance(value, dict):
        key.append((type(value), len(value)))
        for name, item in value.items():
            _describe(name, key, tensors)
            _describe(item, key, tensors)
    elif callable(value) or isinstance(value, Tree) or type(value).__module__.startswith("genesis."):
        key.append(Held(value))
    else:
        raise NotReplayable(f"an argument is a {type(value).__name__}, which cannot be compared")


def _containers(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (list, dict, tuple)):
            yield value
            yield from _containers(value.values() if isinstance(value, dict) else value)


def compile(function: Any = None, **options: Any) -> Any:
    """The function, or the module, captured at its first call and replayed as one plan afterwards.

    Results are those of the function itself, always: a call whose arguments or surroundings differ is
    captured again, and what cannot be guarded is recorded at each call (`genesis.explain` says what).
    `options` of torch.compile (mode, fullgraph, dynamic, backend) are accepted and not needed.

    >>> import genesis
    >>> double = genesis.compile(lambda x: x * 2)
    >>> double(genesis.ones(2)), double(genesis.ones(2))
    (tensor([2., 2.]), tensor([2., 2.]))
    """
    unknown = set(options) - {"mode", "fullgraph", "dynamic", "backend", "disable"}
    if unknown:
        raise TypeError(f"compile() got unknown options {sorted(unknown)}")
    if function is None:
        return functools.partial(compile, **options)
    if options.get("disable"):
        return function
    if isinstance(function, Tree):
        return _compiled_module(function)
    return CompiledFunction(function)


def _compiled_module(module: Any) -> Any:
    """The module itself, whose call is compiled from now on."""
    if "_compiled_call" in vars(module):
        return module
    kind = type(module)
    compiled = CompiledFunction(functools.wraps(module.forward)(
        lambda *args, **kwargs: kind.__call__(module, *args, **kwargs)))
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
    return _made_again, (make, given), *rest


def _made_again(make: Callable[..., Any], given: tuple) -> Any:
    return _compiled_module(make(*given))


def explain(function: Any) -> str:
    """A text that says what of a compiled function is replayed, and why the rest is not.

    >>> import genesis
    >>> noisy = genesis.compile(lambda x: x * 2 if x.sum() > 0 else x)
    >>> _ = noisy(genesis.ones(2))
    >>> print(genesis.explain(noisy).splitlines()[1].rpartition(" at ")[0])
      recorded at each call: a value is read while the function runs
    """
    compiled = getattr(function, "_compiled_call", function)
    if not isinstance(compiled, CompiledFunction):
        return f"{getattr(function, '__name__', function)!r} is not compiled"
    return compiled.explain()


__all__ = ["CompiledFunction", "compile", "explain", "signature"]
