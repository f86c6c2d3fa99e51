"""What a line would find, looked up in its frame: what is there, and what is called. Nothing of the program's runs."""

from __future__ import annotations

import inspect
import sys
import types
from types import SimpleNamespace
from typing import Any, get_args

from genesis.nn.modules.hooks import HookKind
from genesis.nn.modules.tree import Tree
from genesis.tracing.snapshot import MISSING, cells, own_dictionary
from genesis.tracing.tracer import is_user_code
from genesis.tracing.walk_state import Item, Made, Method, Path

_PASSING = frozenset({"__call__", "<lambda>", "_call_compiled"})
"""Functions of Genesis' that call a module's forward, and return what it does if there are no hooks."""


def found_at(frame: Any, path: Path) -> Any:
    """The object at the path, MISSING if it is not simply there."""
    name, *parts = path
    value = frame.f_locals.get(name, frame.f_globals.get(name, MISSING))
    for part in parts:
        if type(part) is Item:
            value = dict.get(value, part.key, MISSING) if isinstance(value, dict) else MISSING
            continue
        space = None if value is MISSING else own_dictionary(value)
        inside = space.get("_modules") if space is not None and isinstance(value, Tree) else None
        value = MISSING if space is None else space.get(part, MISSING if inside is None else inside.get(part, MISSING))
    return value


def attributes_of(value: Any) -> dict[str, Any] | None:
    """The dictionary that setting an attribute writes to, None if something else may happen."""
    plain = type(value).__setattr__ in (object.__setattr__, Tree.__setattr__)
    return getattr(value, "__dict__", None) if plain and value is not MISSING else None


def builtin_of(name: str) -> Any:
    """What a name means that is nobody's variable, None for nothing."""
    return vars(sys.modules["builtins"]).get(name)


def function_of(frame: Any, callee: Any) -> tuple[Any, tuple[Any, ...]]:
    """(a function of the user's, what it is bound to) that a line calls; (None, ()) for anything else."""
    if type(callee) is Method and type(callee.owner) is not tuple:  # of what the code has made
        return None, ()
    if type(callee) is Method:
        owner = found_at(frame, callee.owner)
        found = inspect.getattr_static(owner, callee.name, None)
        bound = () if callee.name in getattr(owner, "__dict__", {}) else (owner,)
    else:
        found, bound = found_at(frame, callee), ()
    method: Any = found
    if isinstance(method, types.MethodType):
        found, bound = method.__func__, (method.__self__,)
    known = isinstance(found, types.FunctionType) and is_user_code(found.__code__)
    return (found, bound) if known else (None, ())


def frame_of(function: Any, bound: tuple[Any, ...]) -> Any:
    """What is known of the variables of a function that is going to run. Arguments of which nothing is known are taken
    for numbers: what they do when they are added to something is no look at the places."""
    code = function.__code__
    known: dict[str, Any] = dict.fromkeys(code.co_varnames[:code.co_argcount + code.co_kwonlyargcount], 0)
    known |= zip(code.co_varnames, bound, strict=False)
    known |= zip(code.co_freevars, cells(function), strict=True)
    return SimpleNamespace(f_locals=known, f_globals=function.__globals__)


def reads_below(frame: types.FrameType, callee: Any, below: types.FrameType) -> bool:
    """Whether what a line calls is the method of tensors whose frame is below, and nothing that calls that."""
    if callee == ("float",):
        float_there = frame.f_locals.get("float", frame.f_globals.get("float", float))
        return below.f_code.co_name == "__float__" and float_there is float
    return type(callee) is Method and callee.name == below.f_code.co_name


def calls_below(frame: types.FrameType, callee: Any, below: types.FrameType) -> bool:
    """Whether what a line calls is the function whose frame is below, or a module whose call that is."""
    called = None
    if type(callee) is Made:
        return callee.code is below.f_code
    if type(callee) is tuple:
        called = found_at(frame, callee)
    elif type(callee) is Method and type(callee.owner) is tuple:
        called = _attribute(found_at(frame, callee.owner), callee.name)
    if isinstance(called, Tree):
        return below.f_code.co_name in _PASSING or _code_of(type(called).__call__) is below.f_code
    of_class = inspect.getattr_static(type(called), "__call__", None)
    return below.f_code in (_code_of(called), _code_of(of_class))


def passes_on(frame: types.FrameType) -> bool:
    """Whether a frame of Genesis' own returns what the function that it called does."""
    module = frame.f_locals.get("self")
    hooks = any(getattr(module, f"_{kind}_hooks", None) for kind in get_args(HookKind))
    return frame.f_code.co_name in _PASSING and not hooks


def _code_of(called: Any) -> Any:
    """The code of a function, or of the one that a method, static or bound, is made of."""
    return getattr(getattr(called, "__func__", called), "__code__", None)


def _attribute(owner: Any, name: str) -> Any:
    """What is at a name of an object, without asking the object."""
    parts = getattr(owner, "__dict__", {}).get("_modules") if isinstance(owner, Tree) else None
    return parts[name] if parts is not None and name in parts else inspect.getattr_static(owner, name, None)
