"""`genesis.compile`: capture a function once, replay it while everything it depended on holds.

A call is looked up by its arguments' types and Python values, grad mode, autocast and the modules'
epoch; then the guards of its entry are checked (`genesis.guards`). A hit replays without running
the function: as one `call` node when the function only computes, so that an outer backward and
step still form one plan; as the plan itself when it ended a training step. What cannot be guarded
is recorded anew at each call, like an undecorated function, and `explain` says why.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from genesis import engine, session
from genesis.amp.policy import state as autocast_state
from genesis.config import config
from genesis.gradmode import mode
from genesis.guards import Guards, Refusal, Tracer
from genesis.nn.modules.tree import Tree, epoch
from genesis.ops.shape import is_contiguous
from genesis.recording import TensorBase
from genesis.replay import Replay, make_replay
from genesis.session import Session

Function = TypeVar("Function", bound=Callable[..., Any])
_ENTRIES = 32
"""Captures kept for one set of argument types; beyond, the oldest goes."""


class CompiledFunction:
    """A function that is captured and replayed. Made by `genesis.compile`."""

    def __init__(self, function: Callable[..., Any]):
        self._function = function
        self._entries: dict[Any, list[tuple[Guards, Replay]]] = {}
        self._recorded: dict[Any, str] = {}
        self._lock = threading.RLock()
        self.hits = 0
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if session.current is not None:  # inside another capture: part of that one
            return self._function(*args, **kwargs)
        try:
            key, tensors = signature(args, kwargs)
        except Refusal as refusal:
            self._recorded[None] = str(refusal)
            return self._function(*args, **kwargs)
        if key in self._recorded:
            return self._function(*args, **kwargs)
        with self._lock:
            for guards, replay in self._entries.get(key, ()):
                if replay.ready(tensors) and guards.hold():
                    self.hits += 1
                    return replay.run(tensors)
            return self._capture(key, tensors, args, kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def explain(self) -> str:
        """What is replayed and what is recorded at each call, and why."""
        lines = [f"{self.__name__}: {sum(map(len, self._entries.values()))} captures, {self.hits} replays"]
        lines += [f"  recorded at each call: {reason}" for reason in dict.fromkeys(self._recorded.values())]
        return "\n".join(lines)

    def _capture(self, key: Any, tensors: Sequence[Any], args: tuple, kwargs: dict[str, Any]) -> Any:
        engine.materialize(tensors)
        engine.end_step()
        effects = Session()
        before = session.enter(effects)
        tracer = Tracer(self._function)
        try:
            with tracer:
                result = self._function(*args, **kwargs)
        finally:
            session.enter(before)
            if effects.refusal is not None and effects.ended:
                engine.end_step()
        refusal = effects.refusal or tracer.refusal
        if refusal is None:
            try:
                guards = Guards(getattr(self._function, "forward", self._function), tracer)
                if key != signature(args, kwargs)[0] or not guards.hold():
                    raise Refusal("it changes something that it reads (an attribute, a container, a variable)")
                if {id(x.storage) for x in guards.tensors.values()} & {id(x.storage) for x in tensors}:
                    raise Refusal("an argument shares memory with a tensor that the function knows already")
                replay = make_replay(effects, result, tensors)
                kept = self._entries.setdefault(key, [])
                kept.insert(0, (guards, replay))
                del kept[_ENTRIES:]
                return result
            except Refusal as found:
                refusal = str(found)
        if effects.ended:
            engine.end_step()
        self._recorded[key] = refusal
        return result


def signature(args: tuple, kwargs: dict[str, Any]) -> tuple[Any, list[Any]]:
    """(key, tensors): what the arguments are, and those of them that are tensors, each once.

    Raises Refusal for an argument that cannot be compared.
    """
    tensors: list[Any] = []
    key: list[Any] = [mode.enabled, mode.inference, epoch(), config.key()]
    if autocast_state.dtypes is not None:
        key.append(tuple(sorted((name, dtype.name) for name, dtype in autocast_state.dtypes.items())))
    for value in args:
        _describe(value, key, tensors)
    for name in sorted(kwargs):
        key.append(name)
        _describe(kwargs[name], key, tensors)
    return tuple(key), tensors


def _describe(value: Any, key: list[Any], tensors: list[Any]) -> None:
    if isinstance(value, TensorBase):
        for index, other in enumerate(tensors):
            if other is value:
                key.append(("same", index))
                return
            if other.storage is value.storage:
                raise Refusal("two arguments share memory")
        if not is_contiguous(value):
            raise Refusal("an argument is not contiguous")
        tensors.append(value)
        key.append(value.type)
        key.append((value.leaf is not None, value.requires_grad, type(value)))  # type: ignore[attr-defined]
    elif value is None or isinstance(value, (bool, int, float, str, bytes)):
        key.append((type(value), repr(value) if isinstance(value, float) else value))
    elif isinstance(value, (list, tuple)):
        key.append((type(value), len(value)))
        for item in value:
            _describe(item, key, tensors)
    elif isinstance(value, dict):
        key.append((dict, len(value)))
        for name, item in value.items():
            key.append(name)
            _describe(item, key, tensors)
    elif isinstance(value, Tree) or callable(value) or type(value).__module__.startswith("genesis."):
        key.append((type(value), id(value)))
        key.append(_Held(value))
    else:
        raise Refusal(f"an argument is a {type(value).__name__}, which cannot be compared")


class _Held:
    """Keeps an object that a key names by its address."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


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
    """The module itself, with its call compiled."""
    whole = type(module).__call__
    compiled = CompiledFunction(functools.wraps(module.forward)(lambda *args, **kwargs: whole(module, *args, **kwargs)))
    compiled._function.forward = module.forward  # type: ignore[attr-defined]
    kind = type(module)
    fast = type(kind.__name__, (kind,), {"__call__": lambda self, *args, **kwargs: compiled(*args, **kwargs),
                                         "__module__": kind.__module__, "__qualname__": kind.__qualname__})
    object.__setattr__(module, "__class__", fast)
    object.__setattr__(module, "_compiled_call", compiled)
    return module


def explain(function: Any) -> str:
    """What of a compiled function is replayed, and why the rest is not.

    >>> import genesis
    >>> noisy = genesis.compile(lambda x: x * 2 if x.sum() > 0 else x)
    >>> _ = noisy(genesis.ones(2))
    >>> print(genesis.explain(noisy).splitlines()[1].split(" at ")[0])
      recorded at each call: a value is read while the function runs
    """
    compiled = getattr(function, "_compiled_call", function)
    if not isinstance(compiled, CompiledFunction):
        return f"{getattr(function, '__name__', function)!r} is not compiled"
    return compiled.explain()


__all__ = ["CompiledFunction", "compile", "explain", "signature"]
