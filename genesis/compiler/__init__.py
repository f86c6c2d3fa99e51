"""`genesis.compiler`, with torch's names: what is around `genesis.compile`.

In: functions, and settings of how they are compiled. Out: functions that are, or are not, captured.

>>> import genesis
>>> @genesis.compiler.disable
... def log(x):
...     print("seen")
>>> f = genesis.compile(lambda x: (log(x), x * 2)[1])
>>> f(genesis.ones(1))
seen
tensor([2.])
>>> "not to be compiled" in genesis.explain(f)
True
"""

from __future__ import annotations

import functools
import types
from typing import Any

from genesis.ir.errors import failure
from genesis.ir.suggest import suggesting
from genesis.nn.modules.tree import Tree
from genesis.tracing import stance as _state
from genesis.tracing.compiled import CompiledFunction, compile, reset
from genesis.tracing.options import BACKENDS as _BACKENDS
from genesis.tracing.stance import is_compiling, set_stance


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """The function, module or class whose calls are never captured: a compiled function that calls it is recorded.

    Of a class, making an object of it, and calling one. A function that is compiled itself is taken as it was before; a
    compiled one that a disabled one calls stays compiled, as in torch.

    Args:
        fn: without it, a decorator is returned.
        recursive: as in torch, about plain functions that it calls, of which none is compiled by itself here.
        reason: why, for readers of an explanation.

    >>> import genesis
    >>> plain = genesis.compiler.disable(genesis.compile(lambda x: x + genesis.compiler.is_compiling()))
    >>> plain(genesis.ones(1))
    tensor([1.])
    """
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    if isinstance(fn, type):
        _disable_methods(fn, reason)
        return fn
    if isinstance(fn, Tree):
        fn.forward = disable(fn.forward, reason=reason)
        return fn
    if not callable(fn):
        raise failure("disable", f"a {type(fn).__name__} cannot be called", error=TypeError, hint="a function")
    plain = _not_compiled(fn)

    @functools.wraps(plain)
    def disabled(*args: Any, **kwargs: Any) -> Any:
        with _state.outside(reason):
            return plain(*args, **kwargs)
    return disabled


def _disable_methods(kind: type, reason: str | None) -> None:
    """Disable what makes an object of the class, and what a call of one runs."""
    for name in ("__init__", "forward" if issubclass(kind, Tree) else "__call__"):
        own = next((vars(x)[name] for x in kind.__mro__[:-1] if name in vars(x)), None)
        if callable(own):
            setattr(kind, name, disable(own, reason=reason))


def _not_compiled(fn: Any) -> Any:
    """The function that a compiled one, or a method of it, was made of; any other as it is."""
    if isinstance(fn, types.MethodType) and isinstance(fn.__func__, CompiledFunction):
        return types.MethodType(fn.__func__.function, fn.__self__)
    return fn.function if isinstance(fn, CompiledFunction) else fn


def allow_in_graph(fn: Any) -> Any:
    """Let a function be part of captures whatever its Python does: what it records is replayed, its Python is not run.

    It is the caller's word that the function records the same ops each time: values that it reads in Python are not
    guarded. Of an `autograd.Function` it is the forward and the backward, of another class or an object what a call of
    it runs. A list or tuple of functions allows each of them.

    >>> import genesis
    >>> @genesis.compiler.allow_in_graph
    ... def shout(x):
    ...     print("captured")
    ...     return x + 1
    >>> f = genesis.compile(lambda x: shout(x) * 2)
    >>> f(genesis.ones(1)), f(genesis.ones(1))
    captured
    (tensor([4.]), tensor([4.]))
    """
    if isinstance(fn, (list, tuple)):
        return [allow_in_graph(each) for each in fn]
    codes = [code for each in _called(fn) if (code := getattr(each, "__code__", None)) is not None]
    if not codes:
        raise failure("allow_in_graph", f"a {type(fn).__name__} has no Python code", error=TypeError, hint="a function")
    _state.untraced.update(codes)
    return fn


def _called(fn: Any) -> list[Any]:
    """The functions that a call of this one runs first, and those of its backward."""
    while isinstance(fn, (functools.partial, CompiledFunction)):
        fn = fn.func if isinstance(fn, functools.partial) else fn.function
    if isinstance(fn, type):
        return [getattr(fn, name, None) for name in ("__init__", "forward", "setup_context", "backward")]
    return [fn, getattr(type(fn), "forward" if isinstance(fn, Tree) else "__call__", None)]


def assume_constant_result(fn: Any) -> Any:
    """Let a function be part of captures with the result that it gives while capturing: the caller's word that it gives
    the same each time. It is `allow_in_graph`.

    >>> import genesis, os
    >>> width = genesis.compiler.assume_constant_result(lambda: len(os.listdir("/")) * 0 + 3)
    >>> f = genesis.compile(lambda x: x * width(), fullgraph=True)
    >>> f(genesis.ones(1))
    tensor([3.])
    """
    return allow_in_graph(fn)


def nested_compile_region(fn: Any = None, *, options: Any = None, max_reuse_entries: int = 8,
                          reuse_hash_fn: Any = None) -> Any:
    """The function as it is: parts of a program that repeat are found, and compiled once, without being told."""
    return (lambda function: function) if fn is None else fn


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """The names that `compile` takes for a backend.

    >>> list_backends()
    ['genesis', 'inductor', 'eager']
    """
    return list(_BACKENDS)


def is_dynamo_compiling() -> bool:
    """`is_compiling` by its older name."""
    return is_compiling()


def is_exporting() -> bool:
    """False: nothing is exported here."""
    return False


def cudagraph_mark_step_begin() -> None:
    """Nothing: a replay never overwrites what an earlier one returned."""


__all__ = ["allow_in_graph", "assume_constant_result", "compile", "cudagraph_mark_step_begin", "disable",
           "is_compiling", "is_dynamo_compiling", "is_exporting", "list_backends", "nested_compile_region", "reset",
           "set_stance"]

__getattr__ = suggesting(__name__)
