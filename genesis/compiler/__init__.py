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
from typing import Any

from genesis.ir.errors import failure
from genesis.ir.suggest import suggesting
from genesis.nn.modules.tree import Tree
from genesis.tracing import stance as _state
from genesis.tracing.compiled import compile, reset
from genesis.tracing.options import BACKENDS as _BACKENDS
from genesis.tracing.stance import is_compiling, set_stance


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """The function, or the module, whose calls are never captured: a compiled function that calls it is recorded.

    Args:
        fn: without it, a decorator is returned.
        recursive: compiled functions that it calls run as they are, too.
        reason: for readers; torch prints it.

    >>> import genesis
    >>> plain = genesis.compiler.disable(genesis.compile(lambda x: x + 1))
    >>> plain(genesis.ones(1)), genesis.compiler.is_compiling()
    (tensor([2.]), False)
    """
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    if isinstance(fn, Tree):
        fn.forward = disable(fn.forward, recursive, reason=reason)
        return fn
    if not callable(fn):
        raise failure("disable", f"a {type(fn).__name__} cannot be called", error=TypeError, hint="a function")

    @functools.wraps(fn)
    def disabled(*args: Any, **kwargs: Any) -> Any:
        with _state.nothing_compiled(recursive):
            return fn(*args, **kwargs)
    return disabled


def allow_in_graph(fn: Any) -> Any:
    """Let a function be part of captures whatever its Python does: what it records is replayed, its Python is not run.

    It is the caller's word that the function records the same ops each time: values that it reads in Python are not
    guarded. A list or tuple of functions allows each of them.

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
    code = getattr(fn, "__code__", None)
    if code is None:
        raise failure("allow_in_graph", f"a {type(fn).__name__} has no Python code", error=TypeError, hint="a function")
    _state.untraced.add(code)
    return fn


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


__all__ = ["allow_in_graph", "compile", "cudagraph_mark_step_begin", "disable", "is_compiling", "is_dynamo_compiling",
           "is_exporting", "list_backends", "reset", "set_stance"]

__getattr__ = suggesting(__name__)
