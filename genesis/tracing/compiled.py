"""`genesis.compile`, for a function or a module, and `genesis.explain`: the entrance to this room."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

from genesis.ir.errors import failure
from genesis.nn.modules.tree import Tree
from genesis.tracing.compiled_function import CompiledFunction, EagerFunction, reset
from genesis.tracing.explanation import Explanation
from genesis.tracing.options import check_options


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
            and so are replays (docs/compile.md), whatever this is.
        backend: "inductor" or "genesis": Genesis' own; "eager": each call is recorded, as an undecorated one is, unless
            `fullgraph` asks for captures.
        mode: "default", or "reduce-overhead", which changes nothing: replays on a GPU are CUDA graphs anyway. Nor does
            "max-autotune", with a warning: kernels are timed for all programs (`genesis.config.tune`).
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
    if disable:
        return function
    kind = EagerFunction if backend == "eager" and not fullgraph else CompiledFunction
    if isinstance(function, Tree):
        return _compiled_module(function, fullgraph, kind)
    if not callable(function):
        raise failure("compile", f"a {type(function).__name__} cannot be called", error=TypeError,
                      hint="a function, a method or a module")
    return kind(function, fullgraph)


def _compiled_module(module: Any, fullgraph: bool, made: type[CompiledFunction]) -> Any:
    """The module itself, whose call is compiled from now on, by a function of this class."""
    if "_compiled_call" in vars(module):
        return module
    kind = type(module)
    compiled = made(functools.wraps(module.forward)(
        lambda *args, **kwargs: kind.__call__(module, *args, **kwargs)), fullgraph)
    fast = type(kind.__name__, (kind,), {"__call__": _call_compiled, "__reduce_ex__": _taken_apart,
                                         "_orig_mod": property(_itself), "load_state_dict": _load_compiled,
                                         "__module__": kind.__module__, "__qualname__": kind.__qualname__})
    object.__setattr__(module, "__class__", fast)
    object.__setattr__(module, "_compiled_call", compiled)
    return module


def _call_compiled(module: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a compiled module."""
    return module._compiled_call(*args, **kwargs)


def _itself(module: Any) -> Any:
    """The module that was compiled: torch's compiled modules hold it, and programs save its state."""
    return module


def _load_compiled(module: Any, state_dict: Any, *args: Any, **options: Any) -> Any:
    """Load a state dict; of one that torch saved from a compiled module the names go through `_orig_mod`."""
    if any("_orig_mod." in name for name in state_dict):
        state_dict = {name.replace("_orig_mod.", ""): value for name, value in state_dict.items()}
    return super(type(module), module).load_state_dict(state_dict, *args, **options)


def _taken_apart(module: Any, protocol: Any) -> Any:
    """The reduced form of a compiled module for copy and pickle: a new one, compiled, and then its attributes."""
    plain = type(module).__bases__[0]
    make, given, *rest = super(type(module), module).__reduce_ex__(protocol)
    given = tuple([plain if x is type(module) else x for x in given])
    if rest and isinstance(rest[0], dict):
        rest[0] = {name: value for name, value in rest[0].items() if name != "_compiled_call"}
    compiled = module._compiled_call
    return _made_again, (make, given, compiled.fullgraph, type(compiled)), *rest


def _made_again(make: Callable[..., Any], given: tuple, fullgraph: bool = False,
                kind: type[CompiledFunction] = CompiledFunction) -> Any:
    return _compiled_module(make(*given), fullgraph, kind)


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
    <lambda>: 2 captures, 1 replays; other sizes and numbers are replayed in 1 way
      captured again: argument x: tensor f32[2] → tensor f32[3]
    """
    compiled = _compiled_in(function)
    if compiled is function:
        return compiled.explain()
    if compiled is not None:
        return compiled.explain(around=function)
    call: Any = function
    if isinstance(function, Tree):  # the module itself stays as it is
        call = functools.wraps(function.forward)(lambda *args, **kwargs: function(*args, **kwargs))  # type: ignore
    head = f"{getattr(function, '__name__', function)!r} is not compiled"
    return Explanation(head, 0, 0, (), (), (), functools.partial(_explain_plain, call))


def _explain_plain(call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Explanation:
    """Call a function that is not compiled, compiled, and explain it afterwards."""
    compiled = CompiledFunction(call)
    return compiled.explain_call(compiled, *args, **kwargs)


def _compiled_in(function: Any) -> Any:
    """The compiled function that a call of this one calls: as a method, with arguments that are given, or as a module's
    call or `forward`; None if there is none."""
    if isinstance(function, Tree):
        function = vars(function).get("_compiled_call") or getattr(function, "forward", None)
    while isinstance(function, (functools.partial, types.MethodType)):
        function = function.func if isinstance(function, functools.partial) else function.__func__
    return function if isinstance(function, CompiledFunction) else None


__all__ = ["CompiledFunction", "compile", "explain", "reset"]
