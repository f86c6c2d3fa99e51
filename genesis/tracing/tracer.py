"""The tracer follows a call while it is captured: the user's code that runs, and calls that no guard can stand for."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import types
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, starmap
from operator import is_
from typing import Any, Final

from genesis.ir.source import PACKAGE, Source
from genesis.runtime.contexts import Context, in_order, leaving, profiled_by
from genesis.tracing.stance import untraced

_LIBRARY = os.path.dirname(types.__file__)
_CALLED_BY_GENESIS = tuple(f"-packages/{name}/" for name in ("numpy", "torch", "triton", "cuda", "nccl"))
"""Libraries that Genesis itself calls, maybe in the middle of a captured call: a group's first collective makes its
communicator there."""

_IMPORT: Final = importlib._bootstrap._find_and_load.__code__  # type: ignore[attr-defined]
"""Loads a module for the first time. Where Genesis imports one of its rooms in the middle of a call, finders of others
run inside (setuptools', pytest's, those of editable installations), and what classes make themselves of."""

_SITE = (f"{_LIBRARY}/site-packages", f"{_LIBRARY}/dist-packages")

PURE_MODULES = frozenset({
    "math", "cmath", "operator", "_operator", "itertools", "functools", "_functools", "typing", "types", "dataclasses",
    "contextlib", "enum", "abc", "_abc", "collections", "_collections", "collections.abc", "_collections_abc",
    "numbers", "copy", "__future__", "re", "string", "keyword",
})
"""Modules of the standard library whose functions give the same for the same, and change only what they are given."""

_NUMPY = frozenset({f"numpy.{name}" for name in (
    "_core.fromnumeric", "core.fromnumeric", "_core.numeric", "core.numeric", "_core.function_base",
    "core.function_base", "_core.shape_base", "core.shape_base", "lib._function_base_impl", "lib.function_base")})
"""Modules of numpy's whose functions are Python, and give the same for the same: `np.prod(x.shape)`, `np.clip`. What
one writes to its arguments, guards on these see; a tensor that one is given is read, which ends a capture."""

_NUMPY_C = frozenset({"array", "asarray", "arange", "zeros", "where", "dot", "concatenate"})
"""Such functions of numpy's that are written in C."""

_PURE_BUILTINS = frozenset({
    "len", "isinstance", "issubclass", "getattr", "hasattr", "max", "min", "sum", "abs", "sorted", "all", "any",
    "divmod", "pow", "round", "repr", "chr", "ord", "hash", "iter", "next", "callable", "format", "bin", "hex", "oct",
    "ascii", "vars", "dir", "__build_class__",
})
_PURE_OWNERS = (str, bytes, tuple, int, float, complex, frozenset, range, dict, list, set, slice, deque,
                types.MappingProxyType, types.GeneratorType)
_READS_STATE = ("/utils/", "/cuda/", "/cli/", "/checkpointing/", "/hub/", "/multiprocessing/")
"""Rooms whose functions read or write what no guard sees: files, other processes, a GPU's memory and streams, a
program's arguments."""

_READS_STATE_NAMES = frozenset({"set_default_device", "set_rng_state", "get_rng_state", "initial_seed",
                                "Generator.get_state", "Generator.set_state", "Generator.initial_seed",
                                "Generator.clone_state", "fork_rng", "set_num_threads", "get_num_threads",
                                "set_flush_denormal", "set_printoptions", "Distribution.set_default_validate_args"})
_HARMLESS = frozenset({"is_available", "device_count", "current_device", "is_initialized", "checkpoint",
                       "checkpoint_sequential"})
"""Functions of these rooms that read nothing of this: activation checkpointing marks parts of what is recorded."""


class Tracer(Context):
    """Follows one call: a context, inside of which it is made.

    Attributes:
        globals: the user's code objects that ran, with their global names.
        looked: a method ran that looks at all attributes of an object: that which a dataclass makes for `==`, say.
        refusal: the first call that rules out a replay, or None.

    Args:
        entered: told each of the user's code objects before its first line runs; gives what rules out a replay, if
            anything does.
        refused: told the refusal as soon as it is known; nothing is followed from there on.
    """

    def __init__(self, entered: Callable[[types.CodeType, dict[str, Any]], str | None],
                 refused: Callable[[str], None]):
        self._refused = refused
        self.globals: dict[types.CodeType, dict[str, Any]] = {}
        self.refusal: str | None = None
        self.looked = False
        self._entered = entered
        self._inside: types.FrameType | None = None
        self._users: dict[int, bool] = {}
        self._kept: list[types.CodeType] = []
        self._following: Callable[..., Any] | None = self._event

    def _entering(self) -> Callable[[], Any]:
        self._before = sys.getprofile()
        return partial(sys.setprofile, self._following)

    def _leaving(self) -> Callable[..., Any]:
        set_profile, before = profiled_by(sys.getprofile())
        follows = map(is_, starmap(sys.getprofile, ((),)), (self._following,))  # it may have stopped
        return leaving((in_order, starmap(set_profile, chain.from_iterable(
            map({True: (before,), False: ()}.__getitem__, follows)))))

    def _event(self, frame: types.FrameType, event: str, arg: Any) -> None:
        """What the interpreter calls at each call and return: few statements, as a step has tens of thousands."""
        if event == "call":
            code = frame.f_code
            users = self._users.get(id(code))
            if users is None:
                users = self._learn(code)
            if self._inside is None and (code is _IMPORT or users
                                         or self._users.get(id(frame.f_back and frame.f_back.f_code))):
                self._begins(frame, code, users)
        elif event == "c_call":
            if self._users.get(id(frame.f_code)) and self._inside is None and not is_pure(arg):
                self._refuse(f"it calls {getattr(arg, '__qualname__', arg)}", frame)
        elif self._inside is frame and event == "return":  # of a function that the user answers for
            self._inside = None

    def _learn(self, code: types.CodeType) -> bool:
        """Whether the code is the user's. A code object's own hash is slow, so it is remembered by its id."""
        self._kept.append(code)
        found = self._users[id(code)] = is_user_code(code)
        return found

    def _begins(self, frame: types.FrameType, code: types.CodeType, users: bool) -> None:
        """The user's code begins, or calls other code."""
        if code in untraced or (code is _IMPORT and not self._users.get(id(frame.f_back and frame.f_back.f_code))):
            self._inside = frame
        elif not users:
            self._called(code, frame, frame.f_back)  # type: ignore[arg-type]
        else:
            if code not in self.globals:
                self.globals[code] = frame.f_globals
                reason = self._entered(code, frame.f_globals)
                if reason is not None:
                    self._refuse(reason, frame)

    def _called(self, code: types.CodeType, frame: types.FrameType, caller: types.FrameType) -> None:
        """The user's code calls other code."""
        if code in _OF_WEAK_DICTIONARIES:
            return  # the interpreter does, when a value dies there
        if _is_generated(code):
            self.looked = self.looked or code.co_name not in ("__init__", "<lambda>")
        elif not _is_known_function(frame):
            self._refuse(f"it calls {_called_as(code, frame)}", caller)

    def _refuse(self, reason: str, frame: types.FrameType) -> None:
        if self.refusal is None:
            self.refusal = reason if " at " in reason else f"{reason} at {Source(frame.f_code, frame.f_lasti)}"
            self._refused(self.refusal)
            self.stop()

    def forget(self) -> None:
        """Let go of whom to tell: the call is over."""
        self._refused = lambda reason: None
        self._entered = lambda code, namespace: None
        self._following = None

    def stop(self) -> None:
        """Follow the call no further."""
        if self._following is not None and sys.getprofile() is self._following:
            set_profile, before = profiled_by(self._before)
            set_profile(*before)


def _called_as(code: types.CodeType, frame: types.FrameType) -> str:
    """What a function that begins is called; of a module's `__getattr__` also for what: `np.random` of a process that
    has not imported it runs one."""
    if code.co_qualname != "__getattr__" or not code.co_argcount:
        return code.co_qualname
    return f"{frame.f_globals.get('__name__')}.__getattr__({frame.f_locals.get(code.co_varnames[0])!r})"


def is_user_code(code: types.CodeType) -> bool:
    """True unless the code is Genesis's own (its models count as the user's) or the standard library's."""
    name = code.co_filename
    if name.startswith(PACKAGE):
        return name.startswith(f"{PACKAGE}models{os.sep}")
    if _is_generated(code):
        return False
    if any(part in name for part in _CALLED_BY_GENESIS):
        return False
    return not name.startswith("<frozen") and (not name.startswith(_LIBRARY) or name.startswith(_SITE))


def _is_generated(code: types.CodeType) -> bool:
    """True for the methods that dataclasses and named tuples make."""
    return code.co_qualname.startswith("__create_fn__") or (
        code.co_filename == "<string>" and code.co_name == "<lambda>" and code.co_varnames[:1] == ("_cls",))


def is_own_module(name: str) -> bool:
    """True for a module of Genesis's whose code is not taken for the user's."""
    return name.startswith("genesis.") and not name.startswith("genesis.models.")


def is_refused_when_called(value: Any, names: Sequence[str]) -> bool:
    """Whether the tracer sees it, and refuses it, when the user's code calls `value.name(...)`, or the value itself
    where there are no names: a function of C's that is not pure, or one of a library's in Python.

    >>> import random, time
    >>> is_refused_when_called(time.time, ()), is_refused_when_called(random, ["randint"])
    (True, False)
    >>> is_refused_when_called(random.Random(0), ["random"]), is_refused_when_called([], ["append"])
    (True, False)
    """
    if len(names) > 1 or (names and type(value).__getattribute__ is not object.__getattribute__):
        return False
    called: Any = inspect.getattr_static(value, names[0], None) if names else value
    if isinstance(called, types.MethodDescriptorType) and names:
        called = called.__get__(value)
    if isinstance(called, types.MethodType):
        called = called.__func__
    if isinstance(called, types.BuiltinFunctionType):
        return not is_pure(called)
    if not isinstance(called, types.FunctionType):
        return False
    code = called.__code__
    known = is_user_code(code) or code.co_filename.startswith(PACKAGE) or _is_generated(code)
    later = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR  # it runs when somebody goes on
    return not (known or code.co_flags & later or code in _OF_WEAK_DICTIONARIES or code in untraced
                or called.__globals__.get("__name__") in PURE_MODULES | _NUMPY)


def is_library_module(name: str) -> bool:
    """True for a module of the standard library, or numpy, torch: nothing in it is a user's setting."""
    top = name.partition(".")[0] if isinstance(name, str) else "builtins"
    return (top in sys.stdlib_module_names and top != "__main__") or top in ("numpy", "torch") or (
        top.startswith("_cython"))  # the types of compiled functions


_WEAK: Final[tuple[Any, ...]] = (weakref.WeakValueDictionary(), weakref.WeakKeyDictionary(), weakref.WeakSet())
_OF_WEAK_DICTIONARIES: Final = frozenset(x._remove.__code__ for x in _WEAK)
"""What takes an entry out of a weak dictionary, Genesis' own among them, when the value in it dies."""


def _is_known_function(frame: types.FrameType) -> bool:
    code = frame.f_code
    name = code.co_filename
    if name.startswith(PACKAGE):
        inside = name[len(PACKAGE) - 1:]
        return code.co_qualname not in _READS_STATE_NAMES and (
            not inside.startswith(_READS_STATE) or code.co_name in _HARMLESS)
    if _is_generated(code):
        return True
    return str(frame.f_globals.get("__name__", "")) in PURE_MODULES | _NUMPY


def is_pure_of_numpy(function: Any) -> bool:
    """Whether it is one of numpy's functions in Python that give the same for the same.

    >>> import numpy
    >>> is_pure_of_numpy(numpy.prod), is_pure_of_numpy(numpy.random.rand)
    (True, False)
    """
    if type(function).__module__ != "numpy":  # an object of the user's may raise anything when it is asked
        return False
    inside = getattr(function, "_implementation", None)
    return getattr(inside, "__globals__", {}).get("__name__") in _NUMPY


def is_pure(function: Any) -> bool:
    """A C function that only looks at its arguments, or changes a container (which guards on that container see)."""
    name = getattr(function, "__name__", "")
    owner = getattr(function, "__self__", None)
    module = getattr(function, "__module__", None) or ""
    if isinstance(owner, types.ModuleType):
        module = owner.__name__
        if module == "builtins":
            return name in _PURE_BUILTINS
        return module in PURE_MODULES or (module.startswith("numpy.") and name in _NUMPY_C)
    if owner is None:
        if module == "builtins":
            return name in _PURE_BUILTINS
        if module:
            return module in PURE_MODULES or module.startswith("genesis")
        kind = getattr(function, "__objclass__", None)  # a method of a type: list.append
        return kind in _PURE_OWNERS or kind in (object, type)
    if isinstance(owner, type):
        return owner in _PURE_OWNERS or owner in (object, type) or issubclass(owner, _PURE_OWNERS)
    kind = type(owner)
    return issubclass(kind, _PURE_OWNERS) or name in ("__init_subclass__", "__init__", "__new__", "__getattribute__")
